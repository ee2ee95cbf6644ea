//! Everything that a store has at one revision: what snapshots hold, and what copies move and compare.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest;

use crate::entries::Entries;
use crate::{Entry, Revision};

/// The entries of one revision.
#[derive(Clone, Default)]
pub struct Contents {
    pub entries: Entries,
    pub revision: Revision,
}

/// Two stores with equal digests have the same keys and values. Entries that expire are only counted: they may be
/// deleted between two reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digest {
    /// Entries that do not expire.
    pub objects: u64,
    /// The bytes of their keys and values.
    pub bytes: u64,
    /// The SHA-256 of their keys and values, in hexadecimal digits.
    pub sha256: String,
    /// Entries that expire.
    pub expiring: u64,
}

impl Digest {
    /// Whether the objects are the same, whatever has expired meanwhile.
    pub fn matches(&self, other: &Digest) -> bool {
        self.objects == other.objects && self.sha256 == other.sha256
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} objects of {} bytes, sha256 {}, and {} that expire",
            self.objects, self.bytes, self.sha256, self.expiring
        )
    }
}

impl Contents {
    /// Computes the digest.
    pub fn digest(&self) -> Digest {
        let mut hash = digest::Context::new(&digest::SHA256);
        let mut result = Digest { objects: 0, bytes: 0, sha256: String::new(), expiring: 0 };
        for entry in self.entries.iter() {
            if entry.expires > 0 {
                result.expiring += 1;
                continue;
            }
            result.objects += 1;
            result.bytes += (entry.key.len() + entry.value.len()) as u64;
            // With their lengths: otherwise bytes could move from a key to its value unnoticed.
            for part in [entry.key.as_bytes(), &entry.value] {
                hash.update(&(part.len() as u64).to_le_bytes());
                hash.update(part);
            }
        }
        result.sha256 = stdx::hex::encode(hash.finish().as_ref());
        result
    }

    /// The entries in the order of their revisions.
    pub(crate) fn by_revision(&self) -> Vec<Arc<Entry>> {
        let mut entries: Vec<_> = self.entries.iter().cloned().collect();
        entries.sort_by_key(|entry| entry.revision);
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(entries: &[(&str, &'static str, u64)]) -> Contents {
        let mut contents = Contents::default();
        for &(key, value, expires) in entries {
            let value = bytes::Bytes::from_static(value.as_bytes());
            contents.entries.insert(Arc::new(Entry { key: key.into(), value, revision: 1, expires }));
        }
        contents
    }

    #[test]
    fn digests_cover_keys_and_values_but_nothing_that_expires() {
        let base = contents(&[("/a", "1", 0), ("/b", "2", 0)]).digest();
        assert_eq!((base.objects, base.bytes, base.expiring), (2, 6, 0));
        let same = contents(&[("/b", "2", 0), ("/a", "1", 0), ("/event", "x", 9)]).digest();
        assert!(base.matches(&same) && same.expiring == 1);
        for other in [&[("/a", "1", 0)][..], &[("/a", "1", 0), ("/b", "3", 0)], &[("/a1", "", 0), ("/b", "2", 0)]] {
            assert!(!base.matches(&contents(other).digest()), "{other:?}");
        }
    }
}
