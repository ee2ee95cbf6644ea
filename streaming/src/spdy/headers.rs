//! Header blocks: length-prefixed names and values, compressed in one context for each direction of a session with
//! SPDY's dictionary.

use bytes::{Buf, BufMut, Bytes};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::frame::Error;

/// The maximum uncompressed size: a few hundred bytes could otherwise expand to megabytes.
const MAX_BLOCK: usize = 64 * 1024;
const MAX_COUNT: usize = 256;

/// The headers of a stream: names and values.
pub type Headers = Vec<(String, String)>;

/// The value of a header, case-insensitively.
pub fn header<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

const WORDS: [&str; 65] = [
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
    "origin",
];

const TAIL: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden\
404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug \
Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,\
application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdch\
charset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

fn dictionary() -> Vec<u8> {
    let mut out = Vec::with_capacity(1423);
    for word in WORDS {
        out.put_u32(word.len() as u32);
        out.put_slice(word.as_bytes());
    }
    out.put_slice(TAIL.as_bytes());
    out
}

/// Created with the first header block.
#[derive(Default)]
pub(crate) struct Compressor(Option<Compress>);

impl Compressor {
    pub(super) fn write(&mut self, headers: &Headers) -> Result<Vec<u8>, Error> {
        if self.0.is_none() {
            let mut compress = Compress::new(Compression::default(), true);
            compress.set_dictionary(&dictionary()).map_err(|_| Error::Compression)?;
            self.0 = Some(compress);
        }
        let compress = self.0.as_mut().ok_or(Error::Compression)?;
        deflate(compress, &plain(headers))
    }
}

fn plain(headers: &Headers) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u32(headers.len() as u32);
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        for part in [name.as_bytes(), value.as_bytes()] {
            out.put_u32(part.len() as u32);
            out.put_slice(part);
        }
    }
    out
}

fn deflate(compress: &mut Compress, mut input: &[u8]) -> Result<Vec<u8>, Error> {
    let mut out = Vec::with_capacity(input.len() + 64);
    loop {
        out.reserve(64);
        let before = compress.total_in();
        compress.compress_vec(input, &mut out, FlushCompress::Sync).map_err(|_| Error::Compression)?;
        input = &input[(compress.total_in() - before) as usize..];
        // Unused capacity means that the flush is complete.
        if input.is_empty() && out.len() < out.capacity() {
            return Ok(out);
        }
    }
}

/// Created with the first header block.
#[derive(Default)]
pub(crate) struct Decompressor(Option<Decompress>);

impl Decompressor {
    pub(super) fn read(&mut self, block: &[u8]) -> Result<Headers, Error> {
        let decompress = self.0.get_or_insert_with(|| Decompress::new(true));
        parse(inflate(decompress, block)?.into())
    }
}

fn inflate(decompress: &mut Decompress, mut input: &[u8]) -> Result<Vec<u8>, Error> {
    let mut out = Vec::with_capacity(1024);
    loop {
        if out.len() == out.capacity() {
            out.reserve(out.len());
        }
        let (read, written) = (decompress.total_in(), decompress.total_out());
        let result = decompress.decompress_vec(input, &mut out, FlushDecompress::Sync);
        let (read, written) = (decompress.total_in() - read, decompress.total_out() - written);
        input = &input[read as usize..];
        match result {
            Ok(Status::StreamEnd) => return Err(Error::Compression),
            Ok(_) => {}
            Err(error) if error.needs_dictionary().is_some() => {
                decompress.set_dictionary(&dictionary()).map_err(|_| Error::Compression)?;
                continue;
            }
            Err(_) => return Err(Error::Compression),
        }
        if out.len() > MAX_BLOCK {
            return Err(Error::HeaderBlock("too large"));
        }
        if input.is_empty() && out.len() < out.capacity() {
            return Ok(out);
        }
        if read == 0 && written == 0 {
            return Err(Error::Compression);
        }
    }
}

fn parse(mut block: Bytes) -> Result<Headers, Error> {
    let count = length(&mut block)?;
    if count > MAX_COUNT {
        return Err(Error::HeaderBlock("too many headers"));
    }
    let headers = (0..count).map(|_| Ok((text(&mut block)?, text(&mut block)?))).collect::<Result<_, Error>>()?;
    if block.has_remaining() { Err(Error::HeaderBlock("bytes after the last header")) } else { Ok(headers) }
}

fn length(block: &mut Bytes) -> Result<usize, Error> {
    if block.len() < 4 { Err(Error::HeaderBlock("too short")) } else { Ok(block.get_u32() as usize) }
}

fn text(block: &mut Bytes) -> Result<String, Error> {
    let length = length(block)?;
    if block.len() < length {
        return Err(Error::HeaderBlock("too short"));
    }
    String::from_utf8(block.split_to(length).into()).map_err(|_| Error::HeaderBlock("not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adler32(data: &[u8]) -> u32 {
        let (a, b) = data.iter().fold((1u32, 0u32), |(a, b), byte| {
            let a = (a + u32::from(*byte)) % 65_521;
            (a, (b + a) % 65_521)
        });
        b << 16 | a
    }

    #[test]
    fn dictionary_matches_spdy_3() {
        assert_eq!(dictionary().len(), 1423);
        assert_eq!(adler32(&dictionary()), 0xe3c6_a7c2);
    }

    #[test]
    fn context_spans_blocks() {
        let headers: Headers = vec![("streamtype".into(), "data".into()), ("port".into(), "8080".into())];
        let (mut compressor, mut decompressor) = (Compressor::default(), Decompressor::default());
        let first = compressor.write(&headers).unwrap();
        let second = compressor.write(&headers).unwrap();
        assert!(second.len() < first.len());
        assert_eq!(decompressor.read(&first).unwrap(), headers);
        assert_eq!(decompressor.read(&second).unwrap(), headers);
        assert_eq!(Decompressor::default().read(&second), Err(Error::Compression));
    }

    #[test]
    fn refuses_decompression_bombs() {
        let noise: String =
            (0..20_000u32).map(|n| char::from(33 + (n.wrapping_mul(2_654_435_761) >> 25) as u8 % 90)).collect();
        let headers = vec![("noise".to_string(), noise)];
        let block = Compressor::default().write(&headers).unwrap();
        assert_eq!(Decompressor::default().read(&block).unwrap(), headers);
        let bomb = Compressor::default().write(&vec![("a".to_string(), "b".repeat(1 << 20))]).unwrap();
        assert!(bomb.len() < 4096);
        assert_eq!(Decompressor::default().read(&bomb), Err(Error::HeaderBlock("too large")));
    }

    #[test]
    fn refuses_invalid_lengths() {
        let check =
            |block: &'static [u8], what| assert_eq!(parse(Bytes::from_static(block)), Err(Error::HeaderBlock(what)));
        check(&[], "too short");
        check(&[0, 0, 0, 1, 0, 0, 0, 9, b'a'], "too short");
        check(&[0, 0, 0, 0, 1], "bytes after the last header");
        check(&[0xff, 0, 0, 0], "too many headers");
        check(&[0, 0, 0, 1, 0, 0, 0, 1, 0xff, 0, 0, 0, 0], "not UTF-8");
    }
}
