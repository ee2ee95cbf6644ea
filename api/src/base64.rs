//! Base64: the standard alphabet with padding, as in `bytes` fields, and that of URLs, as in tokens. Errors have the
//! positions of Go's decoder.

use std::borrow::Cow;

use ::base64::Engine;
use ::base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

/// Text that is not base64: the position of the first invalid byte, with the message of Go's decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("illegal base64 data at input byte {0}")]
pub struct DecodeError(usize);

impl DecodeError {
    /// The position of the first invalid byte.
    pub fn position(self) -> usize {
        self.0
    }
}

/// The canonical encoding: without line ends and without stray bits before the padding, as Go encodes.
pub fn canonical(text: &str) -> Result<Cow<'_, str>, DecodeError> {
    let encoded = encode(&decode(text)?);
    Ok(if encoded == text { Cow::Borrowed(text) } else { Cow::Owned(encoded) })
}

/// Line ends are skipped, and errors have positions, like Go's decoder.
pub fn decode(text: &str) -> Result<Vec<u8>, DecodeError> {
    decode_all(Input { bytes: text.as_bytes(), at: 0, is_url: false, is_padded: true })
}

/// Like [`decode`], in the URL-safe alphabet without padding.
pub fn decode_url(text: &str) -> Result<Vec<u8>, DecodeError> {
    decode_all(Input { bytes: text.as_bytes(), at: 0, is_url: true, is_padded: false })
}

/// Like [`decode`], in the URL-safe alphabet with padding.
pub fn decode_url_padded(text: &str) -> Result<Vec<u8>, DecodeError> {
    decode_all(Input { bytes: text.as_bytes(), at: 0, is_url: true, is_padded: true })
}

fn decode_all(mut input: Input<'_>) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::with_capacity(input.bytes.len().div_ceil(4) * 3);
    while decode_quartet(&mut input, &mut out)? {}
    Ok(out)
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
    is_url: bool,
    is_padded: bool,
}

impl Input<'_> {
    fn skip_line_ends(&mut self) {
        while let Some(b'\r' | b'\n') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    /// The next byte that is not a line end, and its position.
    fn next(&mut self) -> Option<(usize, u8)> {
        self.skip_line_ends();
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some((self.at - 1, byte))
    }
}

/// Returns whether another quartet may follow.
fn decode_quartet(input: &mut Input<'_>, out: &mut Vec<u8>) -> Result<bool, DecodeError> {
    let mut bits = 0u32;
    for place in 0..4 {
        match input.next() {
            None if place == 0 => return Ok(false),
            None if place >= 2 && !input.is_padded => {
                out.extend_from_slice(&bits.to_be_bytes()[1..place]);
                return Ok(false);
            }
            None => return Err(DecodeError(input.at - place)),
            Some((at, byte)) => match digit(byte, input.is_url) {
                Some(digit) => bits |= u32::from(digit) << (18 - 6 * place),
                None if byte == b'=' && place >= 2 && input.is_padded => {
                    end_padding(input, place)?;
                    out.extend_from_slice(&bits.to_be_bytes()[1..place]);
                    return Ok(false);
                }
                None => return Err(DecodeError(at)),
            },
        }
    }
    out.extend_from_slice(&bits.to_be_bytes()[1..]);
    Ok(true)
}

/// After the first `=` at `place`: an optional second one, and nothing after it.
fn end_padding(input: &mut Input<'_>, place: usize) -> Result<(), DecodeError> {
    if place == 2 {
        match input.next() {
            None => return Err(DecodeError(input.bytes.len())),
            Some((at, byte)) if byte != b'=' => return Err(DecodeError(at - 1)),
            Some(_) => {}
        }
    }
    input.skip_line_ends();
    if input.at < input.bytes.len() { Err(DecodeError(input.at)) } else { Ok(()) }
}

fn digit(byte: u8, is_url: bool) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' if !is_url => Some(62),
        b'/' if !is_url => Some(63),
        b'-' if is_url => Some(62),
        b'_' if is_url => Some(63),
        _ => None,
    }
}

/// Encodes with padding and without line ends.
pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Encodes in the URL-safe alphabet, without padding and without line ends.
pub fn encode_url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_locates_errors() {
        let read = |text: &str| decode(text).map_err(|error| error.to_string());
        for bytes in [&b""[..], b"a", b"ab", b"abc", b"abcd", &[0, 255, 128]] {
            assert_eq!(decode(&encode(bytes)).as_deref(), Ok(bytes));
        }
        assert_eq!(read("ab*d"), Err("illegal base64 data at input byte 2".to_string()));
        assert_eq!(decode("YQ=="), Ok(b"a".to_vec()));
        assert_eq!(read("YQ==YQ=="), Err("illegal base64 data at input byte 4".to_string()));
        assert_eq!(decode("YWJj\nZGVm"), Ok(b"abcdef".to_vec()));
        for (text, at) in [("YWJ", 0), ("YW\nJ", 1), ("ab=d", 2), ("ab=", 3), ("a=", 1), ("YQ==\nYQ==", 5), ("=", 0)] {
            assert_eq!(read(text), Err(format!("illegal base64 data at input byte {at}")), "{text:?}");
        }
    }

    #[test]
    fn has_the_alphabet_of_urls() {
        for bytes in [&b""[..], b"a", b"ab", b"abc", &[0xfb, 0xff, 0xfe, 0xff]] {
            assert_eq!(decode_url(&encode_url(bytes)).as_deref(), Ok(bytes));
        }
        assert_eq!(encode_url(&[0xfb, 0xff]), "-_8");
        assert_eq!(decode_url_padded("-_8="), Ok(vec![0xfb, 0xff]));
        for (text, at) in [("a+", 1), ("YQ==", 2), ("YWJjZ", 4), ("Y", 0), ("ab/d", 2)] {
            assert_eq!(decode_url(text), Err(DecodeError(at)), "{text}");
        }
        for (text, at) in [("a/==", 1), ("YQ", 0), ("YQ==YQ==", 4)] {
            assert_eq!(decode_url_padded(text).map_err(DecodeError::position), Err(at), "{text}");
        }
    }

    #[test]
    fn canonical_form_is_unique() {
        for (text, want) in
            [("", ""), ("YQ==", "YQ=="), ("YWJj\nZGVm\r\n", "YWJjZGVm"), ("YR==", "YQ=="), ("YQ=\n=", "YQ==")]
        {
            assert_eq!(canonical(text).as_deref(), Ok(want), "{text:?}");
        }
    }
}
