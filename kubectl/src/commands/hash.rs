//! The suffix of names that upstream derives from content.

use rustls::crypto::hash::HashAlgorithm;

/// Ten characters of the SHA-256, with digits and vowels replaced so that no words come out.
pub(crate) fn suffix(content: &[u8]) -> String {
    let hex = sha256(content);
    hex.chars()
        .take(10)
        .map(|char| match char {
            '0' => 'g',
            '1' => 'h',
            '3' => 'k',
            'a' => 'm',
            'e' => 't',
            other => other,
        })
        .collect()
}

/// The hash in hexadecimal digits.
pub(crate) fn sha256(content: &[u8]) -> String {
    stdx::hex::encode(&sha256_bytes(content))
}

/// The hash.
pub(crate) fn sha256_bytes(content: &[u8]) -> Vec<u8> {
    let provider = http_client::tls::provider();
    let suites = provider.cipher_suites.iter();
    let hash = suites.filter_map(|suite| suite.tls13()).map(|suite| suite.common.hash_provider);
    let hash = hash.into_iter().find(|hash| hash.algorithm() == HashAlgorithm::SHA256);
    hash.map(|hash| hash.hash(content).as_ref().to_vec()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_upstreams() {
        assert_eq!(sha256(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(suffix(b""), "t3b0c44298".replace('0', "g").replace('3', "k"));
    }
}
