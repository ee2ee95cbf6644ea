//! A gzip stream that arrives in parts.

use std::io::{self, Write};

use flate2::write::GzDecoder;

/// Decompresses what it is given.
pub(super) struct Gunzip(GzDecoder<Vec<u8>>);

impl Gunzip {
    pub(super) fn new() -> Gunzip {
        Gunzip(GzDecoder::new(Vec::new()))
    }

    /// The plain bytes that a part adds.
    pub(super) fn push(&mut self, part: &[u8]) -> io::Result<Vec<u8>> {
        self.0.write_all(part)?;
        self.0.flush()?;
        Ok(std::mem::take(self.0.get_mut()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_any_division_into_parts() {
        let plain: Vec<u8> = (0..50_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&plain).expect("it is memory");
        let packed = encoder.finish().expect("it is memory");
        for size in [1, 7, 1000, packed.len()] {
            let mut gunzip = Gunzip::new();
            let parts: Vec<u8> = packed.chunks(size).flat_map(|part| gunzip.push(part).expect("gzip")).collect();
            assert!(parts == plain, "in parts of {size}");
        }
    }
}
