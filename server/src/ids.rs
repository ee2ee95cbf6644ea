//! Random identities: uids and the suffixes of generated names.

use api::Str;

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // The kernel's source fails only where there is none; a uid of the clock alone would collide.
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    bytes
}

/// A version 4 UUID.
pub fn uid() -> Str {
    let mut bytes: [u8; 16] = random();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
        text.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
    }
    Str::from(text)
}

/// Five letters and digits that spell no word.
pub fn suffix() -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    random::<5>().iter().map(|byte| ALPHABET[usize::from(*byte) % ALPHABET.len()] as char).collect()
}

/// A number below `bound`, for places where any will do.
pub fn below(bound: u64) -> u64 {
    if bound == 0 { 0 } else { u64::from_le_bytes(random()) % bound }
}

#[cfg(test)]
mod tests {
    #[test]
    fn uids_are_version_4() {
        let uid = super::uid();
        assert_eq!(uid.len(), 36);
        assert_eq!(uid.as_bytes()[14], b'4');
        assert_ne!(uid, super::uid());
        assert_eq!(super::suffix().len(), 5);
    }
}
