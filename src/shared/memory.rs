//! How many bytes of large bodies all shards hold together, against one limit. Each shard writes its own sum, and
//! only when a body grows past [`LARGE`]: Calls with small bodies never come here.

use crate::shared::counters::{Cell, PerShard};
use crossbeam_utils::CachePadded;

/// Smaller bodies are bounded by the limits on Calls and connections, and are not counted.
pub const LARGE: usize = 64 << 10;

/// What is held. It outlives Snapshots.
#[derive(Debug)]
pub struct Memory(PerShard<Cell>);

impl Memory {
    /// Nothing is held yet.
    pub fn new(shards: usize) -> Memory {
        Memory((0..shards).map(|_| CachePadded::default()).collect())
    }

    /// Bytes that all shards hold.
    pub fn held(&self) -> u64 {
        self.0.iter().map(|own| own.get()).sum()
    }

    /// A shard takes more, if the sum stays within `max` bytes. Shards that take at the same moment may pass it by
    /// what each of them takes.
    pub fn take(&self, shard: usize, bytes: u64, max: u64) -> bool {
        let fits = self.held().saturating_add(bytes) <= max;
        if fits && let Some(own) = self.0.get(shard) {
            own.add(bytes);
        }
        fits
    }

    /// A shard gives back what it took.
    pub fn give(&self, shard: usize, bytes: u64) {
        if let Some(own) = self.0.get(shard) {
            own.sub(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_all_shards_stays_within_the_limit() {
        let memory = Memory::new(2);
        assert!(memory.take(0, 60, 100) && memory.take(1, 40, 100), "exactly full is not too much");
        assert!(!memory.take(0, 1, 100));
        assert_eq!(memory.held(), 100);
        memory.give(1, 40);
        assert_eq!(memory.held(), 60);
        assert!(memory.take(1, 1, 100));
        memory.give(0, 60);
        memory.give(1, 1);
        assert_eq!(memory.held(), 0);
    }
}
