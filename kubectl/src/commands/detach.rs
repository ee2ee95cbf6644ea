//! The keys that detach a terminal from a container that runs on.

use crate::error::{Error, Result};

/// The default of `--detach-keys`.
pub(crate) const DETACH_KEYS: &str = "ctrl-p,ctrl-q";
/// More keys in a row are a mistake.
const MAX_KEYS: usize = 16;

/// Finds a sequence of keys in the input.
#[derive(Debug, Default)]
pub(crate) struct DetachKeys {
    keys: Vec<u8>,
    /// How many of them have been typed.
    typed: usize,
}

impl DetachKeys {
    /// From `ctrl-p,ctrl-q`: letters, or ctrl- with one. Empty for none.
    pub(crate) fn parse(text: &str) -> Result<DetachKeys> {
        let invalid = || {
            Error::new(format!("invalid --detach-keys {text:?}: want keys such as ctrl-p,ctrl-q, separated by commas"))
        };
        let names = text.split(',').filter(|_| !text.is_empty());
        let keys: Vec<u8> = names.map(key).collect::<Option<_>>().ok_or_else(invalid)?;
        if keys.len() > MAX_KEYS { Err(invalid()) } else { Ok(DetachKeys { keys, typed: 0 }) }
    }

    /// The bytes that the container gets, and whether the sequence is complete. The first keys of it are held back.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> (Vec<u8>, bool) {
        let mut passed = Vec::with_capacity(bytes.len());
        for byte in bytes {
            if self.keys.is_empty() {
                passed.push(*byte);
                continue;
            }
            if self.keys.get(self.typed) != Some(byte) {
                passed.extend_from_slice(&self.keys[..self.typed]);
                self.typed = 0;
            }
            if self.keys.get(self.typed) == Some(byte) {
                self.typed += 1;
            } else {
                passed.push(*byte);
            }
            if self.typed == self.keys.len() {
                return (passed, true);
            }
        }
        (passed, false)
    }
}

fn key(name: &str) -> Option<u8> {
    match (name.strip_prefix("ctrl-").map(str::as_bytes), name.as_bytes()) {
        (Some([letter @ (b'a'..=b'z' | b'@' | b'['..=b'_')]), _) => Some(letter & 0x1f),
        (None, [key]) if key.is_ascii_graphic() => Some(*key),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_detach_only_in_their_order() {
        let check = |input: &[&[u8]], want: &[u8], is_detached: bool| {
            let mut keys = DetachKeys::parse(DETACH_KEYS).expect("valid");
            let (mut all, mut is_found) = (Vec::new(), false);
            for part in input {
                let (bytes, found) = keys.push(part);
                all.extend(bytes);
                is_found = found;
            }
            assert_eq!((all.as_slice(), is_found), (want, is_detached), "{input:?}");
        };
        check(&[b"abc"], b"abc", false);
        check(&[b"a\x10\x11"], b"a", true);
        check(&[b"a\x10", b"\x11"], b"a", true);
        check(&[b"\x10b"], b"\x10b", false);
        check(&[b"\x10\x10\x11"], b"\x10", true);
        check(&[b"\x11"], b"\x11", false);
    }

    #[test]
    fn rejects_invalid_keys() {
        for bad in ["ctrl-", "ctrl-pp", "ab", "ctrl-p,,", "ctrl-A"] {
            assert!(DetachKeys::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(DetachKeys::parse("").expect("none").push(b"\x10\x11"), (b"\x10\x11".to_vec(), false));
        assert_eq!(DetachKeys::parse("ctrl-[,x").expect("valid").keys, [0x1b, b'x']);
    }
}
