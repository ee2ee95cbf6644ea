//! Runs several futures concurrently in one task.

use std::pin::Pin;
use std::task::Poll;

pub(crate) type BoxedFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Waits for all of them; the results in their order.
pub(crate) async fn join_all<T>(mut running: Vec<BoxedFuture<'_, T>>) -> Vec<T> {
    let mut done: Vec<Option<T>> = running.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (slot, future) in done.iter_mut().zip(&mut running) {
            if slot.is_none()
                && let Poll::Ready(value) = future.as_mut().poll(context)
            {
                *slot = Some(value);
            }
        }
        let pending = done.iter().any(Option::is_none);
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    done.into_iter().flatten().collect()
}
