//! What one Endpoint has shown of its chain, and where it left the branch that it showed before.
//!
//! The newest block is what counts; below it blocks are linked by their parents' hashes as far as they were read. What
//! was known from before stays below the linked part until the two meet: with one hash they are joined, with two the
//! Endpoint left its old branch, and the way goes on down until they agree.

use super::block::{Hash, Header};
use super::chain_window::{Known, WINDOW, Window};

/// A height that can't be read so many times (each in another poll) is not asked for any more.
const TRIES: u8 = 8;

/// Where an Endpoint left its old branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parting {
    /// The lowest height whose hash is known to have changed.
    pub number: u64,
    /// The hash there now.
    pub hash: Hash,
    /// The old branch's highest known block.
    pub top: u64,
    /// The lowest height at which it may have begun: above the highest known common block.
    pub lowest: u64,
}

/// How a block meets what was known at its height.
enum Met {
    New,
    Same,
    Other,
}

/// The chain as one Endpoint shows it.
#[derive(Debug, Clone, Default)]
pub struct Branch {
    window: Window,
    tip: Option<u64>,
    /// The highest remembered height: above the tip after a rollback.
    top: u64,
    /// Whether what is above the tip stood on it.
    above_is_own: bool,
    /// Nothing older than this has ever been known, or it can't be read.
    floor: u64,
    /// The way back to the old branch while it is under way.
    parting: Option<Parting>,
    /// What could not be read, and how often.
    unread: (u64, u8),
    /// Not to be asked again before the next newest block.
    resting: bool,
}

impl Branch {
    /// Height of the newest block.
    pub fn tip(&self) -> Option<u64> {
        self.tip
    }

    /// The hash at a height, as last shown.
    pub fn hash(&self, number: u64) -> Option<&Hash> {
        let depth = self.tip?.checked_sub(number)?;
        self.window.get(number).filter(|_| depth < WINDOW).map(|known| &known.hash)
    }

    /// The parent of this very block, if it was read.
    pub fn parent(&self, number: u64, hash: &Hash) -> Option<Hash> {
        self.window.get(number).filter(|known| known.hash == *hash).and_then(|known| known.parent)
    }

    /// Whether this hash stands at that height of the part that is linked to the newest block.
    pub fn linked(&self, number: u64, hash: &Hash) -> bool {
        self.hash(number) == Some(hash) && self.lowest().is_some_and(|lowest| lowest <= number)
    }

    /// Whether this hash is known for another height: it can't stand for two.
    pub fn elsewhere(&self, number: u64, hash: &Hash) -> bool {
        self.window.iter().any(|known| known.number != number && known.hash == *hash)
    }

    /// Where the linked part ends: the block whose parent is not known, or the window's end.
    fn lowest(&self) -> Option<u64> {
        let mut number = self.tip?;
        for _ in 1..WINDOW {
            let below = number.checked_sub(1).and_then(|below| self.window.get(below));
            match (self.window.get(number).and_then(|known| known.parent), below) {
                (Some(parent), Some(below)) if below.hash == parent => number = below.number,
                _ => break,
            }
        }
        Some(number)
    }

    /// The height to be read next so that the linked part meets what is known below.
    pub fn wanted(&self) -> Option<u64> {
        self.lowest().filter(|number| !self.resting && self.may_grow_down(*number))
    }

    fn may_grow_down(&self, lowest: u64) -> bool {
        let end = self.tip.unwrap_or(0).saturating_sub(WINDOW - 1);
        let open = self.window.get(lowest).is_some_and(|known| known.parent.is_none());
        open && lowest > end && lowest >= self.floor && lowest > 0
    }

    /// The newest block; says where the old branch was left, once that is known.
    pub fn heard(&mut self, header: &Header) -> Option<Parting> {
        self.resting = false;
        let number = header.number;
        let near =
            self.tip.is_some_and(|tip| number.saturating_sub(tip) < WINDOW) && self.top.saturating_sub(number) < WINDOW;
        let over = if near { None } else { self.start(number) };
        self.tip = Some(number);
        self.floor = self.floor.min(number);
        self.top = self.top.max(number);
        let met = self.place(number, header.hash);
        self.above_is_own = matches!(met, Met::Same);
        let joined = self.link(number, header.parent);
        over.or(joined).or_else(|| self.given_up())
    }

    /// A block at the height that was wanted.
    pub fn filled(&mut self, header: &Header) -> Option<Parting> {
        let expected = self.hash(header.number) == Some(&header.hash);
        if self.wanted() != Some(header.number) || !expected {
            // It changed its branch since its newest block was read: the next newest block will tell.
            return self.unfilled(header.number);
        }
        self.link(header.number, header.parent).or_else(|| self.given_up())
    }

    /// That height could not be read.
    pub fn unfilled(&mut self, number: u64) -> Option<Parting> {
        if self.wanted() != Some(number) {
            return None;
        }
        self.resting = true;
        self.unread = if self.unread.0 == number { (number, self.unread.1.saturating_add(1)) } else { (number, 1) };
        if self.unread.1 >= TRIES {
            self.floor = number.saturating_add(1);
        }
        self.given_up()
    }

    /// Forgets everything: nothing that is known lies near the new block.
    fn start(&mut self, number: u64) -> Option<Parting> {
        self.window.keep(|_| false);
        (self.top, self.floor, self.unread) = (number, number, (0, 0));
        self.parting.take()
    }

    fn place(&mut self, number: u64, hash: Hash) -> Met {
        let met = match self.window.get(number) {
            Some(known) if known.hash == hash => return Met::Same,
            Some(_) => Met::Other,
            None => Met::New,
        };
        if matches!(met, Met::Other) {
            self.parted(number, hash);
        }
        self.window.put(Known { number, hash, parent: None });
        met
    }

    /// Another hash stands at this height now. Ways down go one by one, so that above it all is of the new branch, but
    /// for what a rollback left above the tip: that is of the old one, unless it is known to stand on the tip.
    fn parted(&mut self, number: u64, hash: Hash) {
        let tip = self.tip.unwrap_or(number);
        let mut top = number;
        if self.top > tip && (number == tip || !self.above_is_own) {
            top = self.top;
            self.window.keep(|known| known.number <= tip);
            self.top = tip;
        }
        let way = self.parting.get_or_insert(Parting { number, hash, top, lowest: 0 });
        if number <= way.number {
            (way.number, way.hash) = (number, hash);
        }
    }

    fn link(&mut self, number: u64, parent: Hash) -> Option<Parting> {
        let known = *self.window.get(number)?;
        self.window.put(Known { parent: Some(parent), ..known });
        let below = number.checked_sub(1)?;
        if self.tip?.saturating_sub(below) >= WINDOW {
            return None;
        }
        let met = self.place(below, parent);
        // After a rollback below the way's end a link tells nothing of it.
        let (way, tip) = (self.parting?, self.tip?);
        let joined = matches!(met, Met::Same) && (below..=tip).contains(&way.number) && below != way.number;
        self.parting.take_if(|_| joined).map(|way| Parting { lowest: number, ..way })
    }

    /// The way back ends where nothing below can be read: what is known by then is told. After a rollback below it it
    /// waits until the chain is there again.
    fn given_up(&mut self) -> Option<Parting> {
        let passed = self.tip?.checked_sub(self.parting?.number)?;
        let over = passed >= WINDOW || !self.may_grow_down(self.lowest()?);
        self.parting.take_if(|_| over)
    }
}
