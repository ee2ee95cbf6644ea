//! Random identities: uids and the suffixes of generated names.

use std::cell::RefCell;

use api::Str;

/// Random bytes that were read ahead: every response has an ID, and a system call is its most expensive part.
struct Pool {
    bytes: [u8; 1024],
    used: usize,
    /// None for the kernel's bytes, or the state of a simulation's generator.
    seeded: Option<u64>,
}

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { bytes: [0; 1024], used: 1024, seeded: None }) };
}

/// Derives all later IDs of this thread from `seed`: simulations must be reproducible. The IDs are not secret, but only
/// a test has a reason to predict them.
pub fn seed_thread(seed: u64) {
    POOL.with_borrow_mut(|pool| (pool.used, pool.seeded) = (pool.bytes.len(), Some(seed)));
}

impl Pool {
    fn fill(&mut self) {
        match &mut self.seeded {
            Some(state) => self.bytes.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&split_mix(state))),
            // The kernel's source only fails if it does not exist; a uid from the clock alone would collide.
            None => getrandom::fill(&mut self.bytes).expect("the kernel gives random bytes"),
        }
        self.used = 0;
    }
}

/// SplitMix64: the next eight bytes.
fn split_mix(state: &mut u64) -> [u8; 8] {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ (mixed >> 31)).to_le_bytes()
}

/// Each byte is used once. `N` is far below the size of the pool.
fn random<const N: usize>() -> [u8; N] {
    POOL.with_borrow_mut(|pool| {
        if pool.used + N > pool.bytes.len() {
            pool.fill();
        }
        let mut bytes = [0; N];
        bytes.copy_from_slice(&pool.bytes[pool.used..pool.used + N]);
        pool.used += N;
        bytes
    })
}

/// A version 4 UUID.
pub fn uid() -> Str {
    Str::new(std::str::from_utf8(&uid_bytes()).unwrap_or(""))
}

/// The text of a version 4 UUID.
pub(crate) fn uid_bytes() -> [u8; 36] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut bytes: [u8; 16] = random();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = [b'-'; 36];
    for (at, byte) in bytes.iter().enumerate() {
        // A dash precedes the bytes 4, 6, 8 and 10.
        let place = at * 2 + (at / 2).saturating_sub(1).min(4);
        text[place] = DIGITS[usize::from(byte >> 4)];
        text[place + 1] = DIGITS[usize::from(byte & 15)];
    }
    text
}

/// Five letters and digits that spell no word.
pub fn suffix() -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    random::<5>().iter().map(|byte| ALPHABET[usize::from(*byte) % ALPHABET.len()] as char).collect()
}

/// A random number below `bound`, not for secrets.
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
        assert!(uid.bytes().enumerate().all(|(at, byte)| (byte == b'-') == matches!(at, 8 | 13 | 18 | 23)), "{uid}");
        assert_ne!(uid, super::uid());
        assert_eq!(super::suffix().len(), 5);
    }

    #[test]
    fn seeded_ids_are_reproducible() {
        let run = |seed| {
            super::seed_thread(seed);
            (0..100).map(|_| super::uid()).collect::<Vec<_>>()
        };
        let first = run(7);
        assert_eq!(first, run(7));
        assert_ne!(first, run(8));
        assert!(first.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
