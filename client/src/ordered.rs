//! A value that many wait for, as `tokio::sync::watch`, of which it has the calls that are used here. That
//! one wakes those who wait in a random order; this one in the order in which they came, so that a
//! simulation runs the same way twice.

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

/// The one who changes the value.
pub struct Sender<T>(Arc<Shared<T>>);

/// The sender is gone: nothing will change any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

/// The value as it is while this is held.
pub struct Ref<'a, T>(RwLockReadGuard<'a, State<T>>);

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

impl<T> Sender<T> {
    pub fn new(value: T) -> Sender<T> {
        let state = RwLock::new(State { value, version: 0, closed: false });
        Sender(Arc::new(Shared { state, moved: Notify::new() }))
    }

    /// Sets the value; what it was before.
    pub fn send_replace(&self, value: T) -> T {
        let mut state = self.0.change();
        state.version += 1;
        let before = std::mem::replace(&mut state.value, value);
        drop(state);
        self.0.moved.notify_waiters();
        before
    }

    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.0.state())
    }

    /// One who has seen the value that is there now.
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
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.shared.state())
    }

    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let state = self.shared.state();
        self.seen = state.version;
        Ref(state)
    }

    /// Waits for a value that has not been seen.
    pub async fn changed(&mut self) -> Result<(), Closed> {
        loop {
            // Made before the question is asked: a change in between is not missed.
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

    /// Waits for a value of which something holds.
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
    async fn waiters_are_woken_in_their_order_and_hear_of_the_end() {
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
    async fn a_change_that_came_before_is_not_missed() {
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
