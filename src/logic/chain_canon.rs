//! The canonical chain of a network: the last 256 heights of the branch that its best tip stands on, and what of it
//! others have been told.

use super::block::Hash;
use super::chain_window::{Known, WINDOW, Window};

/// The canonical chain.
#[derive(Debug, Clone, Default)]
pub struct Canon {
    window: Window,
    /// The window as it was when changes were last taken.
    told: Window,
    tip: Option<u64>,
}

impl Canon {
    /// Height of its newest block.
    pub fn tip(&self) -> Option<u64> {
        self.tip
    }

    /// The hash at a height.
    pub fn hash(&self, number: u64) -> Option<&Hash> {
        self.window.get(number).map(|known| &known.hash)
    }

    /// Follows the chain of this block down, as far as `parent` knows it. Below that, what was known stays if nothing
    /// says that the branch is another one; else it is unknown until it is read.
    pub fn follow(&mut self, tip: u64, hash: Hash, parent: impl Fn(u64, &Hash) -> Option<Hash>) {
        let end = tip.saturating_sub(WINDOW - 1);
        self.window.keep(|known| (end..=tip).contains(&known.number));
        self.tip = Some(tip);
        let (mut number, mut hash, mut differed) = (tip, hash, false);
        loop {
            let before = self.hash(number).copied();
            differed = before.map_or(differed, |before| before != hash);
            self.window.put(Known { number, hash, parent: None });
            if number == end {
                return;
            }
            let Some(next) = parent(number, &hash) else { break };
            (number, hash) = (number - 1, next);
        }
        if differed {
            self.window.keep(|known| known.number >= number);
        }
    }

    /// What changed since the last call.
    pub fn take_changed(&mut self) -> Vec<(u64, Option<Hash>)> {
        let gone = self.told.iter().filter(|told| self.window.is_vacant(told.number));
        let mut changed: Vec<_> = gone.map(|told| (told.number, None)).collect();
        let new = self.window.iter().filter(|known| self.told.get(known.number) != Some(known));
        changed.extend(new.map(|known| (known.number, Some(known.hash))));
        self.told.clone_from(&self.window);
        changed
    }
}
