//! gzip.

use std::io::Write;

use flate2::write::GzEncoder;
use flate2::{Compress, Compression, Crc, FlushCompress};

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), Compression::fast());
    // Writing to a Vec does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// A piece of a gzip stream: compressed once, and part of many streams.
pub(crate) struct Piece {
    /// Blocks that end at a byte, none of them the last of a stream.
    deflate: Vec<u8>,
    crc: Crc,
}

impl Piece {
    pub(crate) fn new(bytes: &[u8]) -> Piece {
        let mut crc = Crc::new();
        crc.update(bytes);
        Piece { deflate: deflate(bytes), crc }
    }

    /// The length of the uncompressed bytes.
    pub(crate) fn len(&self) -> usize {
        self.crc.amount() as usize
    }
}

/// Deflate blocks that end at a byte. A flush is repeated until the output has unused capacity.
fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut compress = Compress::new(Compression::fast(), false);
    let mut out = Vec::with_capacity(bytes.len() / 4 + MIN_ROOM);
    loop {
        let rest = &bytes[compress.total_in() as usize..];
        // Writing to memory does not fail; the reader of a truncated stream would report an error.
        if compress.compress_vec(rest, &mut out, FlushCompress::Sync).is_err() {
            return out;
        }
        if out.len() < out.capacity() {
            return out;
        }
        out.reserve(out.len() / 2 + MIN_ROOM);
    }
}

const MIN_ROOM: usize = 1 << 10;

/// Concatenates pieces to a gzip stream.
pub(crate) fn concat<'a>(pieces: impl IntoIterator<Item = &'a Piece>) -> Vec<u8> {
    // Deflate, no flags, no time, the fastest method, an unknown system.
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff];
    let mut crc = Crc::new();
    for piece in pieces {
        out.extend_from_slice(&piece.deflate);
        crc.combine(&piece.crc);
    }
    // An empty last block.
    out.extend_from_slice(&[3, 0]);
    out.extend_from_slice(&crc.sum().to_le_bytes());
    out.extend_from_slice(&crc.amount().to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn pieces_are_one_stream() {
        // Incompressible bytes fill every intermediate buffer.
        let noise: Vec<u8> = (0u64..300_000).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 37) as u8).collect();
        let texts = [b"abc".repeat(20_000), Vec::new(), b"{".to_vec(), noise];
        let pieces: Vec<Piece> = texts.iter().map(|text| Piece::new(text)).collect();
        let order = [0, 1, 2, 0, 3];
        let stream = concat(order.iter().map(|at| &pieces[*at]));
        let mut read = Vec::new();
        // The decoder stops at the end of the first stream.
        flate2::read::GzDecoder::new(&stream[..]).read_to_end(&mut read).expect("a stream");
        assert_eq!(read, order.iter().flat_map(|at| texts[*at].clone()).collect::<Vec<u8>>());
        assert_eq!(pieces[0].len(), 60_000);
        assert!(pieces[0].deflate.len() < 2_000);
    }
}
