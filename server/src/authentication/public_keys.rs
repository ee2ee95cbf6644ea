//! The parts of public keys in DER.

/// The content of a SubjectPublicKeyInfo: a point, or a PKCS#1 key.
pub(super) fn public_key(spki: &[u8]) -> Option<&[u8]> {
    let (_, body) = read_der(spki, 0x30)?;
    let (rest, _algorithm) = read_der(body, 0x30)?;
    let (_, bits) = read_der(rest, 0x03)?;
    bits.split_first().filter(|(unused, _)| **unused == 0).map(|(_, key)| key)
}

/// The two numbers of a PKCS#1 RSA public key: modulus and exponent, without leading zeros.
pub(crate) fn rsa_numbers(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, body) = read_der(der, 0x30)?;
    let (rest, modulus) = read_der(body, 0x02)?;
    let (_, exponent) = read_der(rest, 0x02)?;
    Some((without_zeros(modulus), without_zeros(exponent)))
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

/// Reads one value of this tag: the rest after it, and its content.
fn read_der(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = bytes.split_first()?;
    if *first != tag {
        return None;
    }
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match *length {
        short @ 0..=0x7f => (usize::from(short), rest),
        long => {
            let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            (bytes.iter().fold(0usize, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((rest, content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_in_its_envelope() {
        let spki = [0x30, 0x09, 0x30, 0x02, 0x05, 0x00, 0x03, 0x03, 0x00, 0x04, 0x07];
        assert_eq!(public_key(&spki), Some(&[0x04, 0x07][..]));
        assert_eq!(public_key(&spki[..8]), None);
    }

    #[test]
    fn the_numbers_of_a_key_are_found() {
        let der = [0x30, 0x81, 0x08, 0x02, 0x03, 0x00, 0xab, 0xcd, 0x02, 0x01, 0x03];
        assert_eq!(rsa_numbers(&der), Some((&[0xab, 0xcd][..], &[3][..])));
        assert_eq!(rsa_numbers(&der[..5]), None);
    }
}
