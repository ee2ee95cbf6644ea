//! Functions and futures whose panic becomes an error, so that one failed task does not end other tasks.

use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The message of a panic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panic(String);

impl Panic {
    fn from_payload(payload: &(dyn Any + Send)) -> Panic {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Panic(text.unwrap_or("without a text").to_string())
    }
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Panic {}

/// Runs a function; a panic becomes an error. What the function changes must stay usable if it ends in the middle.
pub fn catch<T>(run: impl FnOnce() -> T) -> Result<T, Panic> {
    std::panic::catch_unwind(AssertUnwindSafe(run)).map_err(|payload| Panic::from_payload(&*payload))
}

/// Polls the future until it is ready or panics. The caller pins it, on the stack or in a box.
pub fn catch_unwind<F: Future + Unpin>(future: F) -> CatchUnwind<F> {
    CatchUnwind(future)
}

/// See [`catch_unwind`].
#[derive(Debug)]
pub struct CatchUnwind<F>(F);

impl<F: Future + Unpin> Future for CatchUnwind<F> {
    type Output = Result<F::Output, Panic>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // A panic leaves its traces in the future itself, which is not polled again.
        match std::panic::catch_unwind(AssertUnwindSafe(|| Pin::new(&mut self.0).poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(payload) => Poll::Ready(Err(Panic::from_payload(&*payload))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> Result<T, Panic> {
        let future = pin!(future);
        let mut caught = catch_unwind(future);
        match Pin::new(&mut caught).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => panic!("the future waits"),
        }
    }

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(run(async { 7 }), Ok(7));
        let panicked = run(async { panic!("on purpose") });
        assert_eq!(panicked.map_err(|panic| panic.to_string()), Err("on purpose".to_string()));
        let number = 3;
        let formatted = run(async move { panic!("number {number}") });
        assert_eq!(formatted.map_err(|panic| panic.to_string()), Err("number 3".to_string()));
        let other = run(async { std::panic::panic_any(7) });
        assert_eq!(other.map_err(|panic| panic.to_string()), Err("without a text".to_string()));
    }
}
