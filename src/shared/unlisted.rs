//! The names behind `other`: what callers ask for that no method table has.
//!
//! Each shard writes its own, under a lock that only a person who looks ever contends for; a Call of a listed method
//! touches nothing of it.

use crate::logic::top_names::TopNames;
use crate::shared::counters::{Cell, PerShard};
use crossbeam_utils::CachePadded;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// One shard's names.
#[derive(Debug, Default)]
pub struct Unlisted {
    total: Cell,
    names: Mutex<TopNames>,
}

impl Unlisted {
    /// Counts a Call; only the owning shard may.
    #[cold]
    pub fn note(&self, name: &str) {
        self.total.add(1);
        self.names.lock().unwrap_or_else(PoisonError::into_inner).note(name);
    }
}

/// Those of all shards.
pub fn per_shard(shards: usize) -> PerShard<Unlisted> {
    (0..shards).map(|_| CachePadded::new(Unlisted::default())).collect()
}

/// How many Calls had such a name.
pub fn total(shards: &PerShard<Unlisted>) -> u64 {
    shards.iter().map(|shard| shard.total.get()).sum()
}

/// The `most` names that came most often over all shards, the most frequent first: each came at least so often.
pub fn top(shards: &PerShard<Unlisted>, most: usize) -> Vec<(String, u64)> {
    let mut sums: HashMap<String, u64> = HashMap::new();
    for shard in shards {
        // Copied, so that the shard never waits for what is made of it.
        let names = shard.names.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (name, count) in names.counts() {
            let sum = sums.entry(name.to_owned()).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    let mut all: Vec<(String, u64)> = sums.into_iter().collect();
    all.sort_unstable_by(|one, two| two.1.cmp(&one.1).then_with(|| one.0.cmp(&two.0)));
    all.truncate(most);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shards_saw_is_summed_and_the_most_frequent_stand_first() {
        let shards = per_shard(2);
        assert_eq!((total(&shards), top(&shards, 100)), (0, vec![]));
        for (shard, name, times) in [(0, "a", 1), (1, "a", 2), (0, "b", 2), (1, "c", 9), (0, "d", 2)] {
            (0..times).for_each(|_| shards[shard].note(name));
        }
        let named = |name: &str, count| (name.to_owned(), count);
        assert_eq!(top(&shards, 3), [named("c", 9), named("a", 3), named("b", 2)]);
        assert_eq!((total(&shards), top(&shards, 100).len()), (16, 4));
    }

    #[test]
    fn no_more_are_told_than_were_asked_for() {
        let shards = per_shard(3);
        (0..3_000).for_each(|at| shards[at % 3].note(&format!("name-{at}")));
        assert_eq!((total(&shards), top(&shards, 100).len()), (3_000, 100));
    }
}
