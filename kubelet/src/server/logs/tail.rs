//! Finds the last lines of a file.

use std::io::Result;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeek, AsyncSeekExt, SeekFrom};

const BLOCK: u64 = 16 << 10;

/// The offset of the last `lines` lines, and how many are missing.
pub(crate) async fn start<F: AsyncRead + AsyncSeek + Unpin>(file: &mut F, lines: u64) -> Result<(u64, u64)> {
    let end = file.seek(SeekFrom::End(0)).await?;
    if lines == 0 {
        return Ok((end, 0));
    }
    let (mut left, mut right) = (lines, end);
    while right > 0 {
        let begin = right.saturating_sub(BLOCK);
        let mut block = vec![0; usize::try_from(right - begin).unwrap_or(0)];
        file.seek(SeekFrom::Start(begin)).await?;
        file.read_exact(&mut block).await?;
        for (at, byte) in block.iter().enumerate().rev() {
            let place = begin + at as u64;
            // The line end of the last line starts no other.
            if *byte == b'\n' && place + 1 < end {
                left -= 1;
                if left == 0 {
                    return Ok((place + 1, 0));
                }
            }
        }
        right = begin;
    }
    // The first line has no end of another before it.
    Ok((0, left - u64::from(end > 0)))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[tokio::test]
    async fn finds_the_last_lines() {
        let long = format!("{}\nb\n", "a".repeat(40_000));
        let cases = [
            ("a\nb\nc\n", 0, (6, 0)),
            ("a\nb\nc\n", 1, (4, 0)),
            ("a\nb\nc\n", 2, (2, 0)),
            ("a\nb\nc\n", 3, (0, 0)),
            ("a\nb\nc\n", 9, (0, 6)),
            ("a\nb\nhalf", 1, (4, 0)),
            ("", 5, (0, 5)),
            (long.as_str(), 1, (40_001, 0)),
            (long.as_str(), 2, (0, 0)),
        ];
        for (text, lines, want) in cases {
            assert_eq!(start(&mut Cursor::new(text), lines).await.expect("a place"), want, "{} {lines}", text.len());
        }
    }
}
