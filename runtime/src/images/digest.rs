//! Content digests, and how they are computed.

use std::fmt;
use std::io::{self, Read};

use aws_lc_rs::digest::{Context, SHA256, SHA512};
use serde::{Deserialize, Serialize};

/// `algorithm:hex`, validated, so that it is safe as part of a path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// A text that is not a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a digest: expected `sha256:` or `sha512:` and 64 or 128 lower-case hexadecimal digits")]
pub struct InvalidDigest;

impl Digest {
    /// Parses and validates a digest.
    pub fn parse(text: &str) -> Result<Digest, InvalidDigest> {
        let (algorithm, hex) = text.split_once(':').ok_or(InvalidDigest)?;
        let length = match algorithm {
            "sha256" => 64,
            "sha512" => 128,
            _ => return Err(InvalidDigest),
        };
        let plain = hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if hex.len() == length && plain { Ok(Digest(text.to_owned())) } else { Err(InvalidDigest) }
    }

    /// The SHA-256 digest of some bytes.
    pub fn of(bytes: &[u8]) -> Digest {
        let mut hasher = Hasher::sha256();
        hasher.update(bytes);
        hasher.finish()
    }

    /// The digest with its algorithm.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the algorithm.
    pub fn algorithm(&self) -> &str {
        self.0.split(':').next().unwrap_or_default()
    }

    /// The hexadecimal digits.
    pub fn hex(&self) -> &str {
        self.0.split(':').nth(1).unwrap_or_default()
    }

    /// A hasher for the same algorithm.
    pub fn hasher(&self) -> Hasher {
        if self.algorithm() == "sha512" { Hasher::sha512() } else { Hasher::sha256() }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Digest, InvalidDigest> {
        Digest::parse(&text)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.0
    }
}

/// The chain IDs of a stack of layers, lowest first: each identifies a layer together with all layers below.
pub(super) fn chain(diff_ids: &[Digest]) -> Vec<Digest> {
    let mut chain: Vec<Digest> = Vec::with_capacity(diff_ids.len());
    for diff_id in diff_ids {
        let next = match chain.last() {
            Some(below) => Digest::of(format!("{below} {diff_id}").as_bytes()),
            None => diff_id.clone(),
        };
        chain.push(next);
    }
    chain
}

/// Computes a digest.
pub struct Hasher {
    context: Context,
    algorithm: &'static str,
}

impl Hasher {
    /// A SHA-256.
    pub fn sha256() -> Hasher {
        Hasher { context: Context::new(&SHA256), algorithm: "sha256" }
    }

    /// A SHA-512.
    pub fn sha512() -> Hasher {
        Hasher { context: Context::new(&SHA512), algorithm: "sha512" }
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
    }

    /// The digest of all bytes.
    pub fn finish(self) -> Digest {
        Digest(format!("{}:{}", self.algorithm, hex(self.context.finish().as_ref())))
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    stdx::hex::encode(bytes)
}

/// Computes the digest of everything that is read through it.
pub(super) struct HashingReader<R> {
    inner: R,
    hasher: Hasher,
}

impl<R: Read> HashingReader<R> {
    pub(super) fn new(inner: R, hasher: Hasher) -> HashingReader<R> {
        HashingReader { inner, hasher }
    }

    pub(super) fn finish(self) -> Digest {
        self.hasher.finish()
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_digests_strictly() {
        let good = format!("sha256:{}", "a".repeat(64));
        let cases: &[(&str, bool)] = &[
            (&good, true),
            (&format!("sha512:{}", "0".repeat(128)), true),
            (&format!("sha256:{}", "A".repeat(64)), false),
            (&format!("sha256:{}", "a".repeat(63)), false),
            (&format!("sha256:{}/", "a".repeat(63)), false),
            (&format!("md5:{}", "a".repeat(32)), false),
            ("sha256:", false),
            ("../../etc/passwd", false),
            ("", false),
        ];
        for (text, expected) in cases {
            assert_eq!(Digest::parse(text).is_ok(), *expected, "{text}");
        }
    }

    #[test]
    fn computes_known_digests() {
        assert_eq!(Digest::of(b"").as_str(), "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    #[test]
    fn chain_ids_identify_the_stack() {
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        let both = chain(&[a.clone(), b.clone()]);
        assert_eq!(both[0], a);
        assert_eq!(both[1], Digest::of(format!("{a} {b}").as_bytes()));
        assert_ne!(both[1], chain(&[b, a])[1]);
        assert!(chain(&[]).is_empty());
    }
}
