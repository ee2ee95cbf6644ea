//! Waiting for a condition in tests: with a deadline, never for a fixed time.

use std::fmt::Display;
use std::time::{Duration, Instant};

use crate::backoff::Backoff;

/// Short at first, since most conditions hold soon; longer later, since looking may start a process.
fn poll_backoff() -> Backoff {
    Backoff::new(Duration::from_millis(1), Duration::from_millis(50))
}

/// A description that is expensive, such as a log: it is built only for the panic.
pub struct LazyDescription<F>(pub F);

impl<F: Fn() -> String> Display for LazyDescription<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0())
    }
}

/// Blocks until a condition holds. Panics after the deadline.
#[track_caller]
pub fn until(what: &str, deadline: Duration, mut holds: impl FnMut() -> bool) {
    until_ok(what, deadline, || if holds() { Ok(()) } else { Err("") });
}

/// Blocks until there is a value, and returns it. An error describes the current state, for the panic after the
/// deadline.
#[track_caller]
#[allow(clippy::disallowed_methods, reason = "a test that waits without a runtime may block")]
pub fn until_ok<T, E: Display>(what: &str, deadline: Duration, mut look: impl FnMut() -> Result<T, E>) -> T {
    let (started, mut polls) = (Instant::now(), poll_backoff());
    loop {
        match look() {
            Ok(value) => return value,
            Err(seen) => assert!(started.elapsed() < deadline, "{what}: not within {deadline:?}: {seen}"),
        }
        std::thread::sleep(polls.next_pause());
    }
}

/// Waits until a condition holds, by tokio's clock. Panics after the deadline.
#[cfg(feature = "tokio")]
pub async fn until_async(what: &str, deadline: Duration, mut holds: impl FnMut() -> bool) {
    let mut polls = poll_backoff();
    let wait = async {
        while !holds() {
            tokio::time::sleep(polls.next_pause()).await;
        }
    };
    tokio::time::timeout(deadline, wait).await.unwrap_or_else(|_| panic!("{what}: not within {deadline:?}"));
}

/// The same for a condition that is asynchronous itself. Panics also if it hangs.
#[cfg(feature = "tokio")]
pub async fn until_await(what: &str, deadline: Duration, mut holds: impl AsyncFnMut() -> bool) {
    until_ok_await(what, deadline, async || if holds().await { Ok(()) } else { Err("") }).await;
}

/// Waits until there is a value, and returns it, like [`until_ok`].
#[cfg(feature = "tokio")]
pub async fn until_ok_await<T, E: Display>(
    what: &str,
    deadline: Duration,
    mut look: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let (mut last, mut polls) = (None, poll_backoff());
    let found = tokio::time::timeout(deadline, async {
        loop {
            match look().await {
                Ok(value) => return value,
                Err(seen) => last = Some(seen),
            }
            tokio::time::sleep(polls.next_pause()).await;
        }
    });
    let found = found.await.ok();
    let seen = last.map(|seen| seen.to_string()).unwrap_or_default();
    found.unwrap_or_else(|| panic!("{what}: not within {deadline:?}: {seen}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_the_condition() {
        let mut looks = 0;
        until("three looks", Duration::from_secs(20), || {
            looks += 1;
            looks == 3
        });
        assert_eq!(until_ok("a value", Duration::from_secs(20), || Ok::<_, String>(looks)), 3);
    }

    #[test]
    #[should_panic(expected = "a pod: not within 5ms: Pending")]
    fn panics_with_the_last_state() {
        until_ok("a pod", Duration::from_millis(5), || Err::<(), _>("Pending"));
    }
}
