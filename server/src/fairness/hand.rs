//! Shuffle sharding: the hash of a flow selects a few of a level's queues. Two flows seldom share all of them, and a
//! heavy flow does not block a light one.

/// The largest hand that the API allows.
pub(crate) const MAX_HAND: usize = 64;

/// Calls `visit` with `size` different numbers below `deck`. The digits of the hash, in decreasing bases, select among
/// the remaining cards.
pub(crate) fn deal(mut hash: u64, deck: usize, size: usize, mut visit: impl FnMut(usize)) {
    let mut taken = [0usize; MAX_HAND];
    let size = size.min(MAX_HAND).min(deck);
    for have in 0..size {
        let left = (deck - have) as u64;
        let mut card = (hash % left) as usize;
        hash /= left;
        // The chosen cards are sorted: each one at or below the chosen position moves it up by one.
        let mut at = 0;
        while at < have && taken[at] <= card {
            card += 1;
            at += 1;
        }
        taken.copy_within(at..have, at + 1);
        taken[at] = card;
        visit(card);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hand(hash: u64, deck: usize, size: usize) -> Vec<usize> {
        let mut hand = Vec::new();
        deal(hash, deck, size, |card| hand.push(card));
        hand
    }

    #[test]
    fn cards_are_different_and_in_the_deck() {
        for hash in (0..5000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            let mut cards = hand(hash, 128, 6);
            assert_eq!(cards.len(), 6);
            cards.sort_unstable();
            cards.dedup();
            assert_eq!(cards.len(), 6, "{hash}");
            assert!(cards.iter().all(|card| *card < 128));
        }
        assert_eq!(hand(7, 1, 1), [0]);
        assert_eq!(hand(7, 2, 6).len(), 2);
    }

    #[test]
    fn every_card_is_dealt_about_as_often() {
        let mut counts = [0u32; 16];
        for n in 0..16_000u64 {
            let hash = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            deal(hash, 16, 4, |card| counts[card] += 1);
        }
        assert!(counts.iter().all(|count| (3400..4600).contains(count)), "{counts:?}");
    }
}
