//! Bytes as hexadecimal digits.

use std::fmt::Write;

/// Two digits in lower case for each byte.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a String can be written");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_two_digits_for_each_byte() {
        assert_eq!(encode(&[]), "");
        assert_eq!(encode(&[0, 0x0f, 0xa0, 0xff]), "000fa0ff");
    }
}
