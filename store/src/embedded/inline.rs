//! The writer without a thread: each caller does the writer's work before it continues. With a simulated clock
//! nothing happens that the test did not request.

use std::sync::{Arc, Weak};
use std::time::Duration;

use stdx::sync::Mutex;
use tokio::sync::Notify;

use super::queue::Queue;
use super::writer::Writer;
use stdx::clock::Clock;

pub(crate) struct Inline {
    queue: Arc<Queue>,
    /// None once it is closed.
    writer: Mutex<Option<Writer>>,
    /// The next expiry has changed.
    expiry: Notify,
}

impl Inline {
    pub(super) fn start(writer: Writer, clock: &Arc<dyn Clock>) -> Arc<Self> {
        let queue = writer.queue.clone();
        let inline = Arc::new(Self { queue, writer: Mutex::new(Some(writer)), expiry: Notify::new() });
        let weak = Arc::downgrade(&inline);
        clock.on_advance(Arc::new(move || wake_writer(&weak)));
        // Without a runtime entries expire when the clock is advanced, or with the next write.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(expire(inline.clone()));
        }
        inline
    }

    /// Works until nothing is pending. If another caller is at work, it processes the request, since it checks again
    /// after unlocking.
    pub(super) fn run_pending(&self) {
        loop {
            let Some(mut slot) = self.writer.try_lock() else {
                return;
            };
            let Some(writer) = slot.as_mut() else { return };
            let before = writer.expiries.earliest();
            let closed = writer.run_pending();
            if writer.expiries.earliest() != before {
                self.expiry.notify_one();
            }
            if let Some(reply) = closed {
                let writer = slot.take();
                self.expiry.notify_one();
                return writer.map_or((), |writer| writer.close(reply));
            }
            drop(slot);
            if !self.queue.has_work() {
                return;
            }
        }
    }

    /// None once the store is closed.
    fn next_expiry(&self) -> Option<Option<Duration>> {
        let slot = self.writer.lock();
        let next = slot.as_ref().map(Writer::next_expiry);
        drop(slot);
        // Other callers may have queued requests while we held the writer.
        if next.is_some() && self.queue.has_work() {
            self.run_pending();
        }
        next
    }
}

fn wake_writer(inline: &Weak<Inline>) {
    if let Some(inline) = inline.upgrade() {
        inline.queue.wake_writer();
        inline.run_pending();
    }
}

/// Expires entries in the runtime's time until the store is closed.
async fn expire(inline: Arc<Inline>) {
    while let Some(next) = inline.next_expiry() {
        let changed = inline.expiry.notified();
        match next {
            None => changed.await,
            Some(time) => {
                if tokio::time::timeout(time, changed).await.is_err() {
                    inline.queue.wake_writer();
                    inline.run_pending();
                }
            }
        }
    }
}
