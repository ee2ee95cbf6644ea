//! A watch channel like `tokio::sync::watch`, with the methods used here. Tokio wakes waiters in random order; this
//! channel wakes them in order of arrival, which makes simulations reproducible.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use stdx::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::Notify;

struct Shared<T> {
    state: RwLock<State<T>>,
    moved: Notify,
}

struct State<T> {
    value: T,
    version: u64,
    closed: bool,
}

impl<T> Shared<T> {
    fn state(&self) -> RwLockReadGuard<'_, State<T>> {
        self.state.read()
    }

    fn change(&self) -> RwLockWriteGuard<'_, State<T>> {
        self.state.write()
    }
}

/// The sending half.
pub struct Sender<T>(Arc<Shared<T>>);

/// The sender was dropped: nothing will change any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

/// A borrowed value.
pub struct Ref<'a, T>(RwLockReadGuard<'a, State<T>>);

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

/// A sender and a receiver of a value.
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

impl<T> Sender<T> {
    /// A sender without receivers.
    pub fn new(value: T) -> Sender<T> {
        let state = RwLock::new(State { value, version: 0, closed: false });
        Sender(Arc::new(Shared { state, moved: Notify::new() }))
    }

    /// Replaces the value and returns the previous one.
    pub fn send_replace(&self, value: T) -> T {
        let mut state = self.0.change();
        state.version += 1;
        let before = std::mem::replace(&mut state.value, value);
        drop(state);
        self.0.moved.notify_waiters();
        before
    }

    /// The current value.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.0.state())
    }

    /// A receiver that has seen the current value.
    pub fn subscribe(&self) -> Receiver<T> {
        Receiver { seen: self.0.state().version, shared: self.0.clone() }
    }
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Sender<T> {
        Sender::new(T::default())
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.change().closed = true;
        self.0.moved.notify_waiters();
    }
}

/// A receiver of a value; receivers are woken in the order in which they wait.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        Receiver { shared: self.shared.clone(), seen: self.seen }
    }
}

impl<T> Receiver<T> {
    /// The current value, without marking it as seen.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.shared.state())
    }

    /// The current value, which counts as seen.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let state = self.shared.state();
        self.seen = state.version;
        Ref(state)
    }

    /// Waits for an unseen value.
    pub async fn changed(&mut self) -> Result<(), Closed> {
        loop {
            // Created before the check, so that a change in between is not missed.
            let moved = self.shared.moved.notified();
            {
                let state = self.shared.state();
                if state.version != self.seen {
                    self.seen = state.version;
                    return Ok(());
                }
                if state.closed {
                    return Err(Closed);
                }
            }
            moved.await;
        }
    }

    /// Waits for a value that satisfies the predicate.
    pub async fn wait_for(&mut self, mut holds: impl FnMut(&T) -> bool) -> Result<(), Closed> {
        loop {
            if holds(&self.borrow_and_update()) {
                return Ok(());
            }
            self.changed().await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use stdx::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn wakes_waiters_in_order_and_reports_close() {
        let sender = Sender::new(0);
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for number in 0..50 {
            let (mut receiver, order) = (sender.subscribe(), order.clone());
            tasks.push(tokio::spawn(async move {
                receiver.wait_for(|value| *value == 7).await.expect("a value");
                order.lock().push(number);
                receiver.changed().await
            }));
            tokio::task::yield_now().await;
        }
        sender.send_replace(7);
        while order.lock().len() < 50 {
            tokio::task::yield_now().await;
        }
        assert_eq!(*order.lock(), (0..50).collect::<Vec<_>>());
        drop(sender);
        for task in tasks {
            assert_eq!(task.await.expect("it ends"), Err(Closed));
        }
    }

    #[tokio::test]
    async fn earlier_changes_are_not_missed() {
        let (sender, mut receiver) = channel(1);
        sender.send_replace(2);
        receiver.changed().await.expect("a change");
        assert_eq!((*receiver.borrow(), *sender.borrow()), (2, 2));
        sender.send_replace(3);
        assert_eq!(*receiver.borrow_and_update(), 3);
        drop(sender);
        assert_eq!(receiver.changed().await, Err(Closed), "it has been seen");
    }
}
