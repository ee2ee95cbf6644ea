//! The hash in ETags and in URLs of the v3 index.

const OFFSET: u128 = 0x6c62272e07bb014262b821756295c58d;
const PRIME: u128 = 0x0000000001000000000000000000013B;

/// 128-bit FNV-1a in uppercase hexadecimal. It distinguishes versions of a document; it is not a signature.
pub fn etag(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME));
    format!("{hash:032X}")
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
