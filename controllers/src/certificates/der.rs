//! The few DER encodings that a certificate needs.

pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const OCTETS: u8 = 0x04;
pub(super) const NULL: [u8; 2] = [0x05, 0x00];
pub(super) const TRUE: [u8; 3] = [0x01, 0x01, 0xff];

/// A value with its tag and length.
pub(super) fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match content.len() {
        length @ 0..128 => out.push(length as u8),
        length => {
            let bytes: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
            out.push(0x80 | bytes.len() as u8);
            out.extend(bytes);
        }
    }
    out.extend_from_slice(content);
    out
}

pub(super) fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    value(SEQUENCE, &parts.concat())
}

/// A positive integer.
pub(super) fn unsigned(bytes: &[u8]) -> Vec<u8> {
    let digits: Vec<u8> = bytes.iter().copied().skip_while(|byte| *byte == 0).collect();
    let sign = digits.first().is_none_or(|first| *first >= 0x80).then_some(0);
    value(0x02, &sign.into_iter().chain(digits).collect::<Vec<_>>())
}

pub(super) fn oid(arcs: &[u64]) -> Vec<u8> {
    let (Some(first), Some(second)) = (arcs.first(), arcs.get(1)) else { return value(0x06, &[]) };
    let mut content = Vec::new();
    for arc in std::iter::once(first * 40 + second).chain(arcs[2..].iter().copied()) {
        let sevens = (64 - arc.leading_zeros()).div_ceil(7).max(1);
        let digit = |at: u32| (arc >> (7 * at)) as u8 & 0x7f | if at > 0 { 0x80 } else { 0 };
        content.extend((0..sevens).rev().map(digit));
    }
    value(0x06, &content)
}

/// A bit string; bits count from the left, trailing zero bits are omitted.
pub(super) fn bits(set: &[u8]) -> Vec<u8> {
    let Some(last) = set.iter().max() else { return value(0x03, &[0]) };
    let mut bytes = vec![0u8; usize::from(last / 8) + 1];
    for bit in set {
        bytes[usize::from(bit / 8)] |= 0x80 >> (bit % 8);
    }
    value(0x03, &[&[7 - last % 8][..], &bytes].concat())
}

/// A bit string of whole bytes, such as a signature or a key.
pub(crate) fn bit_string(bytes: &[u8]) -> Vec<u8> {
    value(0x03, &[&[0][..], bytes].concat())
}

/// UTCTime before 2050, GeneralizedTime from then on, as X.509 requires.
pub(super) fn time(seconds: i64) -> Vec<u8> {
    let text: String =
        api::time::format_seconds(seconds).chars().filter(|char| !matches!(char, '-' | ':' | 'T')).collect();
    match text.strip_prefix("20") {
        Some(short) if text.as_str() < "2050" => value(0x17, short.as_bytes()),
        _ => value(0x18, text.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_der_values() {
        assert_eq!(value(OCTETS, &[7]), [4, 1, 7]);
        assert_eq!(value(OCTETS, &[0; 200])[..3], [4, 0x81, 200]);
        assert_eq!(value(OCTETS, &[0; 300])[..4], [4, 0x82, 1, 44]);
        assert_eq!(unsigned(&[0, 0x80]), [2, 2, 0, 0x80]);
        assert_eq!(unsigned(&[0, 5]), [2, 1, 5]);
        assert_eq!(unsigned(&[]), [2, 1, 0]);
        assert_eq!(oid(&[1, 2, 840, 113549]), [6, 6, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d]);
        assert_eq!(oid(&[2, 5, 29, 15]), [6, 3, 0x55, 0x1d, 0x0f]);
        assert_eq!(bits(&[0, 2]), [3, 2, 5, 0xa0]);
        assert_eq!(bits(&[8]), [3, 3, 7, 0, 0x80]);
        assert_eq!(bits(&[]), [3, 1, 0]);
        assert_eq!(time(0), [&[0x18, 15][..], b"19700101000000Z"].concat());
        assert_eq!(time(1_767_225_600), [&[0x17, 13][..], b"260101000000Z"].concat());
        assert_eq!(time(2_524_608_000), [&[0x18, 15][..], b"20500101000000Z"].concat());
    }
}
