//! Standard base64 with padding, as `bytes` fields carry it.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Refuses text that is no base64, in the words of Go's decoder.
pub fn check(text: &str) -> Result<(), String> {
    decode(text).map(|_| ())
}

/// Line ends are skipped, as Go's decoder does.
pub fn decode(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<(usize, u8)> =
        text.bytes().enumerate().filter(|(_, byte)| !matches!(byte, b'\r' | b'\n')).collect();
    let mut out = Vec::with_capacity(digits.len() / 4 * 3);
    let mut quartets = digits.chunks(4).peekable();
    while let Some(quartet) = quartets.next() {
        let padded = decode_quartet(quartet, &mut out)?;
        if padded && let Some(next) = quartets.peek() {
            return Err(bad(next[0].0));
        }
    }
    Ok(out)
}

fn bad(at: usize) -> String {
    format!("illegal base64 data at input byte {at}")
}

/// True if the quartet is padded, and so the last.
fn decode_quartet(quartet: &[(usize, u8)], out: &mut Vec<u8>) -> Result<bool, String> {
    let (mut bits, mut count) = (0u32, 0);
    for (place, (at, byte)) in quartet.iter().enumerate() {
        match digit(*byte) {
            Some(digit) if count == place => bits |= u32::from(digit) << (18 - 6 * place),
            None if *byte == b'=' && place >= 2 => continue,
            _ => return Err(bad(*at)),
        }
        count += 1;
    }
    if quartet.len() < 4 {
        return Err(bad(quartet[0].0));
    }
    out.extend_from_slice(&bits.to_be_bytes()[1..count]);
    Ok(count < 4)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

pub fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = u32::from(chunk[0]) << 16
            | u32::from(*chunk.get(1).unwrap_or(&0)) << 8
            | u32::from(*chunk.get(2).unwrap_or(&0));
        for place in 0..4 {
            let in_use = place <= chunk.len();
            out.push(if in_use { ALPHABET[(bits >> (18 - 6 * place) & 63) as usize] as char } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip_and_bad_input_is_located() {
        for bytes in [&b""[..], b"a", b"ab", b"abc", b"abcd", &[0, 255, 128]] {
            assert_eq!(decode(&encode(bytes)).as_deref(), Ok(bytes));
        }
        assert_eq!(decode("ab*d"), Err("illegal base64 data at input byte 2".to_string()));
        assert_eq!(decode("YQ=="), Ok(b"a".to_vec()));
        assert_eq!(decode("YQ==YQ=="), Err("illegal base64 data at input byte 4".to_string()));
        assert_eq!(decode("YWJj\nZGVm"), Ok(b"abcdef".to_vec()));
        assert_eq!(decode("YWJ"), Err("illegal base64 data at input byte 0".to_string()));
    }
}
