//! Locks that ignore poisoning.
//!
//! A panic while a lock is held is caught and reported where the task or the request ends. The state behind the lock is
//! changed by single assignments and by collections that stay valid, so refusing every later caller would only turn one
//! failed request into a dead process.

use std::fmt;
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

pub use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// [`std::sync::Mutex`], which locks whether or not an earlier holder panicked.
#[derive(Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A mutex around `value`.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    /// The value; no other owner is left.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock, unless another holder has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The value without locking, since the caller is its only user.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Mutex<T> {
        Mutex::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// [`std::sync::RwLock`], which locks whether or not an earlier writer panicked.
#[derive(Default)]
pub struct RwLock<T: ?Sized>(std::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(std::sync::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until no writer holds the lock.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nothing else holds the lock.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// [`std::sync::Condvar`] for a [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// A condition for which no thread waits yet.
    pub const fn new() -> Condvar {
        Condvar(std::sync::Condvar::new())
    }

    /// Waits while `condition` is true.
    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        self.0.wait_while(guard, condition).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while `condition` is true, at most for `limit`.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        self.0.wait_timeout_while(guard, limit, condition).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes every waiting thread.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn panic_with(hold: impl FnOnce() + Send + 'static) {
        std::thread::spawn(hold).join().expect_err("the holder panics");
    }

    #[test]
    fn a_lock_survives_the_panic_of_its_holder() {
        let mutex = Arc::new(Mutex::new(1));
        let held = Arc::clone(&mutex);
        panic_with(move || {
            let _guard = held.lock();
            panic!("on purpose");
        });
        *mutex.lock() += 1;
        assert_eq!(*mutex.lock(), 2);

        let lock = Arc::new(RwLock::new(1));
        let held = Arc::clone(&lock);
        panic_with(move || {
            let _guard = held.write();
            panic!("on purpose");
        });
        *lock.write() += 1;
        assert_eq!(*lock.read(), 2);
    }

    #[test]
    fn a_condition_wakes_its_waiter() {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let other = Arc::clone(&shared);
        let waiter = std::thread::spawn(move || *other.1.wait_while(other.0.lock(), |done| !*done));
        *shared.0.lock() = true;
        shared.1.notify_all();
        assert!(waiter.join().expect("the waiter ends"));
        let late = shared.1.wait_timeout_while(shared.0.lock(), Duration::from_millis(1), |_| true);
        assert!(*late);
    }
}
