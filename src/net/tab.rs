//! What one Exchange holds of the memory for large bodies. Given back when its answer is written, whatever happened.

use crate::logic::units::{MS, Nanos};
use crate::net::ring;
use crate::net::shard::Shard;
use crate::shared::memory::Memory;
use std::cell::Cell;
use std::rc::Rc;

/// How often somebody who waits for room looks again.
const LOOK_AGAIN_NS: Nanos = 5 * MS;

/// The bytes that an Exchange was given.
pub struct Tab {
    shard: Rc<Shard>,
    /// `max_buffered_bytes`.
    max: u64,
    taken: Cell<u64>,
}

impl Tab {
    /// Nothing yet.
    pub fn new(shard: Rc<Shard>, max: usize) -> Tab {
        Tab { shard, max: max as u64, taken: Cell::new(0) }
    }

    fn memory(&self) -> &Memory {
        &self.shard.world.memory
    }

    /// Takes `bytes` more; waits for room for at most `patience_ns`. `false` = there is none.
    pub async fn take(&self, bytes: usize, patience_ns: Nanos) -> bool {
        let bytes = bytes as u64;
        let until_ns = ring::now().saturating_add(patience_ns);
        while !self.memory().take(self.shard.index, bytes, self.max) {
            if ring::now() >= until_ns {
                return false;
            }
            ring::sleep(LOOK_AGAIN_NS).await;
        }
        self.taken.set(self.taken.get() + bytes);
        true
    }

    /// Takes `bytes` more for what may come, if most of the memory is free: what has come goes before.
    pub fn take_spare(&self, bytes: usize) -> bool {
        let taken = self.memory().take(self.shard.index, bytes as u64, self.max / 4);
        if taken {
            self.taken.set(self.taken.get() + bytes as u64);
        }
        taken
    }

    /// Gives back so many bytes, or all that were taken.
    pub fn give(&self, bytes: usize) {
        let bytes = (bytes as u64).min(self.taken.get());
        if bytes > 0 {
            self.taken.set(self.taken.get() - bytes);
            self.memory().give(self.shard.index, bytes);
        }
    }

    /// The limit.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// A random length of time below this.
    pub fn random_below(&self, ns: Nanos) -> Nanos {
        self.shard.random() % ns.max(1)
    }

    /// What was taken so far.
    pub fn taken(&self) -> u64 {
        self.taken.get()
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        self.give(usize::MAX);
    }
}
