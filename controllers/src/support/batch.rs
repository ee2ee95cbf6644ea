//! Runs many requests with limited concurrency, and stops early when they fail.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use client::{Error, Result};

/// The maximum number of concurrent requests of one caller.
const UNDER_WAY: usize = 32;

/// Runs all futures with limited concurrency; results are in input order. Everything runs in the calling task, so
/// that its writes are recorded as the caller's.
pub(crate) async fn bounded<F: Future>(work: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut work = work.into_iter().enumerate();
    let mut running: Vec<(usize, Pin<Box<F>>)> = Vec::new();
    let mut done: Vec<Option<F::Output>> = Vec::new();
    poll_fn(|cx| {
        loop {
            let more = work.by_ref().take(UNDER_WAY - running.len());
            running.extend(more.map(|(at, future)| (at, Box::pin(future))));
            if running.is_empty() {
                return Poll::Ready(());
            }
            let before = running.len();
            running.retain_mut(|(at, future)| match future.as_mut().poll(cx) {
                Poll::Pending => true,
                Poll::Ready(output) => {
                    done.resize_with(done.len().max(*at + 1), || None);
                    done[*at] = Some(output);
                    false
                }
            });
            if running.len() == before {
                return Poll::Pending;
            }
        }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// Calls `act` `count` times in batches of doubling size until one fails. Returns the number of successes and the
/// first error: a thousand pods that a quota rejects cost one request.
pub(crate) async fn slow_start<F, T>(count: usize, mut act: impl FnMut(usize) -> F) -> (usize, Option<Error>)
where
    F: Future<Output = Result<T>>,
{
    let (mut begun, mut succeeded, mut size) = (0, 0, 1);
    while begun < count {
        let end = count.min(begun + size);
        let results = bounded((begun..end).map(&mut act)).await;
        succeeded += results.iter().filter(|result| result.is_ok()).count();
        if let Some(error) = results.into_iter().find_map(Result::err) {
            return (succeeded, Some(error));
        }
        begun = end;
        size *= 2;
    }
    (succeeded, None)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn runs_all_with_limited_concurrency() {
        let (now, most) = (Cell::new(0), Cell::new(0));
        let act = |at: u64| {
            let (now, most) = (&now, &most);
            async move {
                now.set(now.get() + 1);
                most.set(most.get().max(now.get()));
                tokio::time::sleep(Duration::from_millis(100 - at)).await;
                now.set(now.get() - 1);
                at
            }
        };
        assert_eq!(bounded((0..100).map(act)).await, (0..100).collect::<Vec<_>>());
        assert_eq!(most.get(), UNDER_WAY);
        assert_eq!(bounded((0..0).map(act)).await, []);
    }

    #[tokio::test]
    async fn batches_double_until_a_failure() {
        let check = async |count: usize, fails_at: usize, want: (usize, bool), tried: usize| {
            let tries = Cell::new(0);
            let result = slow_start(count, |at| {
                tries.set(tries.get() + 1);
                async move { if at == fails_at { Err(Error::failed(at.to_string())) } else { Ok(()) } }
            })
            .await;
            assert_eq!((result.0, result.1.is_some()), want, "{count} {fails_at}");
            assert_eq!(tries.get(), tried, "{count} {fails_at}");
        };
        check(0, 99, (0, false), 0).await;
        check(10, 99, (10, false), 10).await;
        check(10, 0, (0, true), 1).await;
        check(10, 2, (2, true), 3).await;
        check(100, 8, (14, true), 15).await;
    }
}
