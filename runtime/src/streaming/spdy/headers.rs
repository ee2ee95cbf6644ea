//! SPDY's header blocks: names and values, compressed as one stream a direction with a dictionary that both know.

use std::collections::BTreeMap;
use std::io;
use std::sync::LazyLock;

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{TINFL_FLAG_HAS_MORE_INPUT, TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

const WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language \
    accept-ranges age allow authorization cache-control connection content-base content-encoding content-language \
    content-length content-location content-md5 content-range content-type date etag expect expires from host \
    if-match if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards \
    pragma proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding \
    upgrade user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public \
    set-cookie keep-alive origin";
const TAIL: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
    203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized\
    403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable\
    Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT\
    chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,\
    text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

/// Each word after its length, then what is common in values.
static DICTIONARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut dictionary = Vec::new();
    for word in WORDS.split(' ').filter(|w| !w.is_empty()) {
        dictionary.extend((word.len() as u32).to_be_bytes());
        dictionary.extend(word.replace('_', " ").bytes());
    }
    dictionary.extend(TAIL.bytes());
    dictionary
});

/// How zlib says that a stream needs a dictionary, and which.
const PREFIX: [u8; 6] = [0x78, 0xbb, 0xe3, 0xc6, 0xa7, 0xc2];
const HISTORY: usize = 32 << 10;
const LONGEST_BLOCK: usize = 32 << 10;

pub type Headers = BTreeMap<String, String>;

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("SPDY headers: {what}"))
}

/// Reads the other side's blocks.
pub struct Reader {
    state: Box<DecompressorOxide>,
    /// What was written last, which later blocks refer to; the dictionary is as if it had been.
    window: Vec<u8>,
    at: usize,
    begun: bool,
}

impl Default for Reader {
    fn default() -> Reader {
        let mut window = DICTIONARY.clone();
        let at = window.len();
        window.resize(2 * HISTORY + LONGEST_BLOCK, 0);
        Reader { state: Box::default(), window, at, begun: false }
    }
}

impl Reader {
    pub fn read(&mut self, mut block: &[u8]) -> io::Result<Headers> {
        if !self.begun {
            let head = block.split_at_checked(PREFIX.len()).ok_or_else(|| wrong("too short"))?;
            // The two bytes of the method differ with the level; the dictionary does not.
            if head.0[2..] != PREFIX[2..] || head.0[0] & 15 != 8 || head.0[1] & 0x20 == 0 {
                return Err(wrong("another dictionary"));
            }
            (block, self.begun) = (head.1, true);
        }
        if self.at > 2 * HISTORY {
            self.window.copy_within(self.at - HISTORY..self.at, 0);
            self.at = HISTORY;
        }
        let start = self.at;
        let end = start + LONGEST_BLOCK.min(self.window.len() - start);
        let flags = TINFL_FLAG_HAS_MORE_INPUT | TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
        let (status, used, written) = decompress(&mut self.state, block, &mut self.window[..end], start, flags);
        self.at += written;
        match status {
            TINFLStatus::NeedsMoreInput | TINFLStatus::Done if used == block.len() => {}
            TINFLStatus::HasMoreOutput => return Err(wrong("too long")),
            _ => return Err(wrong("damaged")),
        }
        parse(&self.window[start..self.at])
    }
}

fn parse(mut block: &[u8]) -> io::Result<Headers> {
    let number = |block: &mut &[u8]| -> io::Result<usize> {
        let (head, rest) = block.split_first_chunk::<4>().ok_or_else(|| wrong("cut off"))?;
        *block = rest;
        Ok(u32::from_be_bytes(*head) as usize)
    };
    let count = number(&mut block)?;
    let mut headers = Headers::new();
    for _ in 0..count {
        let mut text = || -> io::Result<String> {
            let length = number(&mut block)?;
            let (text, rest) = block.split_at_checked(length).ok_or_else(|| wrong("cut off"))?;
            block = rest;
            Ok(String::from_utf8_lossy(text).into_owned())
        };
        let (name, value) = (text()?.to_ascii_lowercase(), text()?);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Writes our blocks. They are few and small, so they are only wrapped, not compressed.
#[derive(Default)]
pub struct Writer {
    begun: bool,
}

impl Writer {
    pub fn write(&mut self, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut plain = (headers.len() as u32).to_be_bytes().to_vec();
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.extend((text.len() as u32).to_be_bytes());
            plain.extend(text.bytes());
        }
        let mut block = Vec::new();
        if !self.begun {
            block.extend(PREFIX);
            self.begun = true;
        }
        let length = plain.len() as u16;
        block.push(0);
        block.extend(length.to_le_bytes());
        block.extend((!length).to_le_bytes());
        block.extend(plain);
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_is_the_one_that_all_know() {
        let (mut a, mut b) = (1u32, 0u32);
        for byte in DICTIONARY.iter() {
            a = (a + u32::from(*byte)) % 65_521;
            b = (b + a) % 65_521;
        }
        assert_eq!(DICTIONARY.len(), 1423);
        assert_eq!((b << 16 | a).to_be_bytes(), PREFIX[2..]);
    }

    #[test]
    fn blocks_that_zlib_compressed() {
        let mut reader = Reader::default();
        let first = reader
            .read(&[
                0x78, 0xf9, 0xe3, 0xc6, 0xa7, 0xc2, 0x02, 0xa6, 0x23, 0x46, 0x70, 0x3a, 0x2b, 0x29, 0x4a, 0x4d, 0xcc,
                0x85, 0x16, 0x25, 0xac, 0xa9, 0xa0, 0x80, 0x06, 0x00, 0x00, 0x00, 0xff, 0xff,
            ])
            .unwrap();
        assert_eq!(first, Headers::from([("streamtype".into(), "error".into())]));
        let second = reader
            .read(&[
                0x02, 0x65, 0x1c, 0x0c, 0x29, 0x60, 0x62, 0x4e, 0xc9, 0x07, 0x97, 0xd1, 0x98, 0xa5, 0x18, 0x93, 0xa1,
                0x39, 0x00, 0x00, 0x00, 0xff, 0xff,
            ])
            .unwrap();
        let expected = Headers::from([("streamtype".into(), "stdout".into()), ("content-length".into(), "17".into())]);
        assert_eq!(second, expected);
    }

    #[test]
    fn our_own_blocks_are_read_again() {
        let (mut writer, mut reader) = (Writer::default(), Reader::default());
        for number in 0..3000 {
            let value = format!("value {number}");
            let found = reader.read(&writer.write(&[("Name", &value)])).unwrap();
            assert_eq!(found, Headers::from([("name".into(), value)]));
        }
        assert_eq!(reader.read(&writer.write(&[])).unwrap(), Headers::new());
    }

    #[test]
    fn damaged_blocks_are_refused() {
        for block in [&b"x"[..], &[0x78, 0xbb, 0, 0, 0, 0, 0], &[0x78, 0xbb, 0xe3, 0xc6, 0xa7, 0xc2, 0xff, 0xff]] {
            assert!(Reader::default().read(block).is_err(), "{block:?}");
        }
        assert!(parse(&[0, 0, 0, 9]).is_err());
    }
}
