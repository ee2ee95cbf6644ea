//! A pool of open sockets. When a netfilter socket is closed, the kernel waits until all earlier deletions are
//! completed, which takes milliseconds.

use stdx::sync::Mutex;

use super::Nft;
use crate::netlink::Error;

/// About as many as are used concurrently.
const CAPACITY: usize = 16;

/// A pool of sockets of one namespace, in which all its users have to be.
#[derive(Debug, Default)]
pub struct Pool(Mutex<Vec<Nft>>);

impl Pool {
    /// Runs `work` with a socket of the pool.
    pub fn with<T>(&self, work: impl FnOnce(&mut Nft) -> Result<T, Error>) -> Result<T, Error> {
        let sockets = self.0.lock().pop();
        let mut nft = sockets.map_or_else(Nft::open, Ok)?;
        let outcome = work(&mut nft);
        let mut sockets = self.0.lock();
        if sockets.len() < CAPACITY {
            sockets.push(nft);
        }
        outcome
    }
}
