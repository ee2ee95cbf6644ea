//! Recently joined chunks of frames. Watchers at the same position and with the same format send the same bytes, which
//! saves the copy, and memory if they are slow.

use std::collections::VecDeque;

use bytes::Bytes;

/// The key of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkKey<'a> {
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
    fn is_for(&self, place: ChunkKey<'_>) -> bool {
        self.cursor == place.cursor && self.encoding == place.encoding && *self.namespace == *place.namespace
    }
}

/// A small number: watchers that keep up all read the newest chunk.
const KEPT: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct ChunkCache {
    chunks: VecDeque<Chunk>,
}

impl ChunkCache {
    /// The bytes for a position and the cursor after them.
    pub(super) fn find(&self, place: ChunkKey<'_>) -> Option<(Bytes, u64)> {
        let chunk = self.chunks.iter().rev().find(|chunk| chunk.is_for(place))?;
        Some((chunk.bytes.clone(), chunk.next))
    }

    pub(super) fn keep(&mut self, place: ChunkKey<'_>, bytes: Bytes, next: u64) {
        if self.chunks.len() >= KEPT {
            self.chunks.pop_front();
        }
        let ChunkKey { cursor, encoding, namespace } = place;
        self.chunks.push_back(Chunk { cursor, encoding, namespace: namespace.into(), bytes, next });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_chunks_by_position_until_evicted() {
        let mut joined = ChunkCache::default();
        let place = ChunkKey { cursor: 7, encoding: 0, namespace: "a" };
        joined.keep(place, Bytes::from("x"), 9);
        assert_eq!(joined.find(place), Some((Bytes::from("x"), 9)));
        for other in
            [ChunkKey { cursor: 8, ..place }, ChunkKey { encoding: 1, ..place }, ChunkKey { namespace: "b", ..place }]
        {
            assert_eq!(joined.find(other), None);
        }
        for cursor in 0..KEPT as u64 {
            joined.keep(ChunkKey { cursor: 100 + cursor, ..place }, Bytes::new(), 0);
        }
        assert_eq!(joined.find(place), None);
    }
}
