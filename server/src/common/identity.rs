//! The name of this server among the servers of its cluster.

use aws_lc_rs::digest;

/// This machine, by a name that can be a label.
pub fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim().to_lowercase();
    // The name becomes a label value: a host without a valid name gets a default one.
    let usable = !name.is_empty() && name.len() <= 63 && api::validation::dns1123_subdomain(&name).is_empty();
    if usable { name } else { "localhost".to_string() }
}

/// The identity of this server among the servers of its cluster.
pub(crate) fn server_id() -> String {
    name(&hostname())
}

/// The same on every start of a machine.
pub(crate) fn name(hostname: &str) -> String {
    let hash = digest::digest(&digest::SHA256, hostname.as_bytes());
    format!("apiserver-{}", base32(&hash.as_ref()[..16]))
}

fn base32(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let bit = |at: usize| bytes.get(at / 8).is_some_and(|byte| byte >> (7 - at % 8) & 1 == 1);
    let digit = |start: usize| (start..start + 5).fold(0, |digit, at| digit * 2 + usize::from(bit(at)));
    (0..bytes.len() * 8).step_by(5).map(|start| ALPHABET[digit(start)] as char).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base32_follows_the_standard() {
        let cases: &[(&[u8], &str)] = &[(b"", ""), (b"f", "my"), (b"fo", "mzxq"), (b"foobar", "mzxw6ytboi")];
        for (bytes, want) in cases {
            assert_eq!(base32(bytes), *want);
        }
        assert_eq!(name("a").len(), "apiserver-".len() + 26);
    }
}
