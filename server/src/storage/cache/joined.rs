//! Recently joined chunks of frames. Watchers at the same position and with the same format send the same bytes, which
//! saves the copy, and memory if they are slow.

use std::collections::VecDeque;

use bytes::Bytes;

/// What a chunk was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position<'a> {
    /// The cursor of the first change.
    pub cursor: u64,
    /// The number of the media type and transformation.
    pub encoding: u32,
    /// "" for all.
    pub namespace: &'a str,
}

#[derive(Debug)]
struct Chunk {
    cursor: u64,
    encoding: u32,
    namespace: Box<str>,
    bytes: Bytes,
    next: u64,
}

impl Chunk {
    fn is_for(&self, place: Position<'_>) -> bool {
        self.cursor == place.cursor && self.encoding == place.encoding && *self.namespace == *place.namespace
    }
}

/// Few: watchers that keep up are all at the newest.
const KEPT: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct Joined {
    chunks: VecDeque<Chunk>,
}

impl Joined {
    /// The bytes for a place and the cursor behind them.
    pub(super) fn find(&self, place: Position<'_>) -> Option<(Bytes, u64)> {
        let chunk = self.chunks.iter().rev().find(|chunk| chunk.is_for(place))?;
        Some((chunk.bytes.clone(), chunk.next))
    }

    pub(super) fn keep(&mut self, place: Position<'_>, bytes: Bytes, next: u64) {
        if self.chunks.len() >= KEPT {
            self.chunks.pop_front();
        }
        let Position { cursor, encoding, namespace } = place;
        self.chunks.push_back(Chunk { cursor, encoding, namespace: namespace.into(), bytes, next });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_found_by_its_place_until_it_is_old() {
        let mut joined = Joined::default();
        let place = Position { cursor: 7, encoding: 0, namespace: "a" };
        joined.keep(place, Bytes::from("x"), 9);
        assert_eq!(joined.find(place), Some((Bytes::from("x"), 9)));
        for other in
            [Position { cursor: 8, ..place }, Position { encoding: 1, ..place }, Position { namespace: "b", ..place }]
        {
            assert_eq!(joined.find(other), None);
        }
        for cursor in 0..KEPT as u64 {
            joined.keep(Position { cursor: 100 + cursor, ..place }, Bytes::new(), 0);
        }
        assert_eq!(joined.find(place), None);
    }
}
