//! The terminal of the user: raw while a remote command has it, and restored on every way out.

use std::io::stdin;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use tokio::signal::unix::{SignalKind, signal};

use crate::error::Result;

/// A terminal without line editing, echo and signals, until this is dropped.
pub(crate) struct RawMode {
    before: Termios,
}

impl RawMode {
    /// Makes the terminal raw.
    pub(crate) fn enter() -> Result<RawMode> {
        let before = tcgetattr(stdin()).map_err(std::io::Error::from)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw).map_err(std::io::Error::from)?;
        Ok(RawMode { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}

/// Waits for a signal that ends processes: the terminal has to be restored before.
pub(crate) async fn interrupted() {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
    let Ok(mut signals) = kinds.into_iter().map(signal).collect::<std::io::Result<Vec<_>>>() else {
        return std::future::pending().await;
    };
    std::future::poll_fn(|cx| {
        let has_one = signals.iter_mut().any(|signal| signal.poll_recv(cx).is_ready());
        if has_one { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

/// Columns and lines of the terminal.
pub(crate) fn terminal_size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(stdin()).ok()?;
    Some((size.ws_col, size.ws_row))
}
