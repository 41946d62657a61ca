//! The chain as one node shows it: the common one, one that stands still, or one that has left it.

use super::chain::{self, Hash};
use serde_json::Value;

/// Blocks that a node gives up when it goes its own way.
const GIVEN_UP: u64 = 2;
/// Salt of the blocks that all healthy nodes share.
const COMMON: &str = "block";

/// What one node shows at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Branch {
    head: u64,
    /// Where it left the common chain, and the salt of its own blocks from there on.
    left: Option<(u64, &'static str)>,
}

impl Branch {
    /// The common chain as of this moment (seconds since 1970). One that stands still is that of an earlier moment.
    pub fn common(now_s: u64) -> Branch {
        Branch { head: chain::head(now_s), left: None }
    }

    /// A chain that left the common one at `since_s`: it gave up two blocks then, and has blocks of its own instead.
    /// It is one block shorter, as the branch of a minority is, so that nobody takes it for the best one.
    pub fn own(salt: &'static str, since_s: u64, now_s: u64) -> Branch {
        let last_common = chain::head(since_s).saturating_sub(GIVEN_UP);
        let head = chain::head(now_s).saturating_sub(1).max(last_common.saturating_add(1));
        Branch { head, left: Some((last_common, salt)) }
    }

    /// The newest block.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The hash of a block, also of one to come.
    pub fn hash(&self, number: u64) -> Hash {
        let salt = self.left.filter(|(last_common, _)| number > *last_common).map_or(COMMON, |(_, salt)| salt);
        chain::hash(salt, number)
    }

    /// The block with this hash, if there is one.
    pub fn number_of(&self, wanted: &Hash) -> Option<u64> {
        let number = chain::number_in(wanted);
        (number <= self.head && self.hash(number) == *wanted).then_some(number)
    }

    /// A block, also one to come.
    pub fn block(&self, number: u64) -> Value {
        let parent = number.checked_sub(1).map_or([0; 32], |below| self.hash(below));
        chain::block(number, &self.hash(number), &parent)
    }
}

#[cfg(test)]
mod tests {
    use super::super::chain::{BLOCK_TIME_S, hex};
    use super::*;

    const NOW_S: u64 = 1_790_000_000;

    #[test]
    fn every_block_names_its_parent() {
        for branch in [Branch::common(NOW_S), Branch::own("geth-1", NOW_S - 8, NOW_S)] {
            for number in [1, 2, 1_000].into_iter().chain(branch.head() - 10..=branch.head()) {
                assert_eq!(branch.block(number)["parentHash"], branch.block(number - 1)["hash"]);
                assert_eq!(branch.block(number)["number"], chain::quantity(number));
            }
            assert_eq!(branch.block(0)["parentHash"], hex(&[0; 32]));
        }
    }

    #[test]
    fn a_block_is_found_by_its_hash_where_it_is_part_of_the_chain() {
        let (common, own) = (Branch::common(NOW_S), Branch::own("geth-1", NOW_S, NOW_S));
        for branch in [common, own] {
            for number in [0, 7, branch.head()] {
                assert_eq!(branch.number_of(&branch.hash(number)), Some(number));
            }
            assert_eq!(branch.number_of(&branch.hash(branch.head() + 1)), None, "not there yet");
        }
        assert_eq!(common.number_of(&own.hash(own.head())), None);
        assert_eq!(own.number_of(&common.hash(own.head())), None);
        let mut other = common.hash(8);
        other[31] ^= 1;
        assert_eq!(common.number_of(&other), None);
    }

    #[test]
    fn one_of_its_own_parts_two_blocks_below_and_stays_one_behind() {
        let before = Branch::common(NOW_S);
        for seconds in [0, 1, 2, 100] {
            let own = Branch::own("reth-1", NOW_S, NOW_S + seconds);
            let same = |number: u64| own.hash(number) == before.hash(number);
            assert!(same(before.head() - 2) && !same(before.head() - 1) && !same(before.head()));
            assert_eq!(own.head() + 1, before.head() + seconds / BLOCK_TIME_S);
        }
        let other = Branch::own("geth-1", NOW_S, NOW_S);
        assert_ne!(other.hash(other.head()), Branch::own("reth-1", NOW_S, NOW_S).hash(other.head()));
        assert_eq!(Branch::own("geth-1", 0, 0).head(), 1, "at the very beginning too");
    }
}
