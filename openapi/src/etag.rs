//! The hash in ETags and in URLs of the v3 index.

/// 128-bit FNV-1a in uppercase hexadecimal. It distinguishes versions of a document; it is not a signature.
pub fn etag(bytes: &[u8]) -> String {
    format!("{:032X}", stdx::fnv::fnv1a_128(bytes.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_is_fnv_1a() {
        assert_eq!(etag(b""), "6C62272E07BB014262B821756295C58D");
        assert_eq!(etag(b"a"), "D228CB696F1A8CAF78912B704E4A8964");
        assert_eq!(etag(b"foobar"), "343E1662793C64BF6F0D3597BA446F18");
    }
}
