//! Decompression. The format is detected from the first bytes, because the media type of a layer may be wrong.

use std::io::{self, BufRead, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// The magic number of a skippable frame, with which some writers begin.
const ZSTD_SKIPPABLE: &[u8] = &[0x2a, 0x4d, 0x18];

pub(crate) enum Decoder<R: BufRead> {
    Plain(R),
    Gzip(Box<MultiGzDecoder<R>>),
    Zstd(Box<Zstd<R>>),
}

impl<R: BufRead> Decoder<R> {
    pub(crate) fn new(mut inner: R) -> io::Result<Decoder<R>> {
        let start = inner.fill_buf()?;
        if start.starts_with(GZIP) {
            return Ok(Decoder::Gzip(Box::new(MultiGzDecoder::new(inner))));
        }
        let skippable = start.len() > 3 && start[0] & 0xf0 == 0x50 && &start[1..4] == ZSTD_SKIPPABLE;
        if start.starts_with(ZSTD) || skippable {
            return Ok(Decoder::Zstd(Box::new(Zstd { inner: Some(inner), frame: None })));
        }
        Ok(Decoder::Plain(inner))
    }
}

impl<R: BufRead> Read for Decoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Decoder::Plain(inner) => inner.read(buffer),
            Decoder::Gzip(inner) => inner.read(buffer),
            Decoder::Zstd(inner) => inner.read(buffer),
        }
    }
}

/// Decodes all frames of a stream: the decoder stops after one.
pub(crate) struct Zstd<R: BufRead> {
    /// Some between frames; within a frame, `frame` owns it.
    inner: Option<R>,
    frame: Option<StreamingDecoder<R, ruzstd::decoding::FrameDecoder>>,
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                let read = frame.read(buffer)?;
                if read > 0 || buffer.is_empty() {
                    return Ok(read);
                }
                self.inner = self.frame.take().map(StreamingDecoder::into_inner);
            }
            if !self.next_frame()? {
                return Ok(0);
            }
        }
    }
}

impl<R: BufRead> Zstd<R> {
    /// Starts the next data frame; false at the end of the stream.
    fn next_frame(&mut self) -> io::Result<bool> {
        let Some(mut inner) = self.inner.take() else { return Ok(false) };
        loop {
            let start = inner.fill_buf()?;
            if start.is_empty() {
                return Ok(false);
            }
            if start[0] & 0xf0 != 0x50 {
                break;
            }
            skip_frame(&mut inner)?;
        }
        let frame = StreamingDecoder::new(inner)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        self.frame = Some(frame);
        Ok(true)
    }
}

fn skip_frame(inner: &mut impl BufRead) -> io::Result<()> {
    let mut header = [0; 8];
    inner.read_exact(&mut header)?;
    let [_, _, _, _, a, b, c, d] = header;
    let length = u64::from(u32::from_le_bytes([a, b, c, d]));
    match io::copy(&mut inner.take(length), &mut io::sink())? == length {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("more than {0} bytes")]
struct OverLimit(u64);

/// The exceeded limit, if the error is about one.
pub(crate) fn limit_of(error: &io::Error) -> Option<u64> {
    error.get_ref()?.downcast_ref::<OverLimit>().map(|over| over.0)
}

/// Fails if the stream is longer than the limit.
pub(crate) struct LimitedReader<R> {
    inner: R,
    limit: u64,
    left: u64,
}

impl<R: Read> LimitedReader<R> {
    pub(crate) fn new(inner: R, limit: u64) -> LimitedReader<R> {
        LimitedReader { inner, limit, left: limit }
    }
}

impl<R: Read> Read for LimitedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        match self.left.checked_sub(read as u64) {
            Some(left) => self.left = left,
            None => return Err(io::Error::other(OverLimit(self.limit))),
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(data: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(data, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn decode(data: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        Decoder::new(data)?.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn decodes_every_format() {
        let data: Vec<u8> = (0..300_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let (head, tail) = data.split_at(1000);
        let skippable = [&[0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3], &zstd(&data)[..]].concat();
        let cases: &[(&str, Vec<u8>)] = &[
            ("plain", data.clone()),
            ("gzip", gzip(&data)),
            ("two members", [gzip(head), gzip(tail)].concat()),
            ("zstd", zstd(&data)),
            ("two frames", [zstd(head), zstd(tail)].concat()),
            ("a skippable frame first", skippable),
        ];
        for (name, bytes) in cases {
            assert!(decode(bytes).unwrap() == data, "{name}");
        }
    }

    #[test]
    fn reports_damaged_streams() {
        let data = vec![7; 100_000];
        for (name, bytes) in [("gzip", gzip(&data)), ("zstd", zstd(&data))] {
            assert!(decode(&bytes[..bytes.len() - 6]).is_err(), "{name}");
            assert!(decode(&bytes[..6]).is_err(), "{name}");
        }
        assert!(decode(&[0x53, 0x2a, 0x4d, 0x18, 255, 255, 255, 255]).is_err());
    }

    #[test]
    fn reports_the_limit() {
        let mut limited = LimitedReader::new(&[0; 100][..], 99);
        let error = io::copy(&mut limited, &mut io::sink()).unwrap_err();
        assert_eq!(limit_of(&error), Some(99));
        assert_eq!(io::copy(&mut LimitedReader::new(&[0; 100][..], 100), &mut io::sink()).unwrap(), 100);
    }
}
