//! The Fowler–Noll–Vo hashes, in the widths and variants that file formats and names depend on.
//!
//! The hashes distinguish values and are stable across processes and versions; they do not protect against an attacker.

const OFFSET_32: u32 = 0x811c_9dc5;
const PRIME_32: u32 = 0x0100_0193;
const OFFSET_64: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME_64: u64 = 0x0000_0100_0000_01b3;
const OFFSET_128: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME_128: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// FNV-1 of 32 bits: multiplies first.
pub fn fnv1_32(bytes: impl IntoIterator<Item = u8>) -> u32 {
    bytes.into_iter().fold(OFFSET_32, |hash, byte| hash.wrapping_mul(PRIME_32) ^ u32::from(byte))
}

/// FNV-1a of 32 bits.
pub fn fnv1a_32(bytes: impl IntoIterator<Item = u8>) -> u32 {
    bytes.into_iter().fold(OFFSET_32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(PRIME_32))
}

/// FNV-1a of 64 bits.
pub fn fnv1a_64(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(OFFSET_64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME_64))
}

/// FNV-1a of 128 bits.
pub fn fnv1a_128(bytes: impl IntoIterator<Item = u8>) -> u128 {
    bytes.into_iter().fold(OFFSET_128, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME_128))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_vectors() {
        assert_eq!([fnv1_32([]), fnv1_32(*b"a"), fnv1_32(*b"foobar")], [0x811c_9dc5, 0x050c_5d7e, 0x31f0_b262]);
        assert_eq!([fnv1a_32([]), fnv1a_32(*b"a"), fnv1a_32(*b"foobar")], [0x811c_9dc5, 0xe40c_292c, 0xbf9c_f968]);
        assert_eq!([fnv1a_64(*b"a"), fnv1a_64(*b"foobar")], [0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8]);
        assert_eq!(fnv1a_128(*b"foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }
}
