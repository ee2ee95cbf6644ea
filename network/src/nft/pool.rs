//! Sockets that are kept. The kernel waits, when one is closed, until all that was deleted before is taken apart:
//! milliseconds that nobody has to spend.

use stdx::sync::Mutex;

use super::Nft;
use crate::netlink::Error;

/// As many as are likely to be used at once.
const KEPT: usize = 16;

/// Sockets of one namespace: all who use it are in the same.
#[derive(Debug, Default)]
pub struct Pool(Mutex<Vec<Nft>>);

impl Pool {
    pub fn with<T>(&self, work: impl FnOnce(&mut Nft) -> Result<T, Error>) -> Result<T, Error> {
        let kept = self.0.lock().pop();
        let mut nft = kept.map_or_else(Nft::open, Ok)?;
        let outcome = work(&mut nft);
        let mut kept = self.0.lock();
        if kept.len() < KEPT {
            kept.push(nft);
        }
        outcome
    }
}
