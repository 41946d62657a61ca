//! Ids of requests that one connection has carried lately. Where none is used twice, an answer that comes once too
//! often, or too late, is never taken for the answer to a later request.
//!
//! Callers choose their own ids, which go up as they are, and many choose 1 for everything. A node, or a proxy in front
//! of it, that answers one request twice is behind by one answer from then on; only the id tells.

/// So many requests back an id is remembered.
const RECENT: usize = 16;
/// Below this an id is a number that no node can distort.
const END: u64 = 1_000_000_000_000_000;
/// No id.
const NONE: u64 = u64::MAX;

/// The ids of the last requests.
#[derive(Debug, Clone)]
pub struct RecentIds {
    ids: [u64; RECENT],
    next: usize,
}

impl Default for RecentIds {
    fn default() -> RecentIds {
        RecentIds { ids: [NONE; RECENT], next: 0 }
    }
}

impl RecentIds {
    /// The id for the next request: the wanted one or, if it must be `new`, the first one from it on that was not used
    /// lately.
    pub fn take(&mut self, wanted: u64, new: bool) -> u64 {
        let mut id = wanted;
        // Among one more than are remembered one is free.
        for _ in 0..RECENT {
            if !new || !self.ids.contains(&id) {
                break;
            }
            id = (id + 1) % END;
        }
        self.ids[self.next % RECENT] = id;
        self.next = (self.next + 1) % RECENT;
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wanted_id_goes_up_unless_it_was_there_lately() {
        let mut recent = RecentIds::default();
        assert_eq!([7, 42, 0, END - 1].map(|wanted| recent.take(wanted, true)), [7, 42, 0, END - 1]);
        assert_eq!(
            [42, 7, END - 1].map(|wanted| recent.take(wanted, true)),
            [43, 8, 1],
            "the end is followed by 0, which was there"
        );
    }

    #[test]
    fn no_id_is_one_of_the_last() {
        let mut recent = RecentIds::default();
        let mut used: Vec<u64> = Vec::new();
        for step in 0..1_000u64 {
            let wanted = [1, 1, step % 5, END - 1 - step % 3][step as usize % 4];
            let id = recent.take(wanted, true);
            assert!(id < END && !used.iter().rev().take(RECENT).any(|one| *one == id), "{id} again");
            used.push(id);
        }
        assert!(used.iter().filter(|id| **id == 1).count() > 1, "an id is forgotten after a while");
    }
}
