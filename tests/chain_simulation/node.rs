//! A node: which chain it shows when, and what goes wrong with it in its bad hours.

use super::tree::{Ms, Tree, made_up};
use crate::random::Random;
use ringway::logic::block::{Hash, Header};

/// So long a node that flips shows one of its chains.
const FLIP_MS: Ms = 6_000;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trouble {
    None,
    /// Answers, and its tip does not move.
    Frozen,
    /// Goes down by so many blocks and comes up again.
    RolledBack(u64),
    /// Does not answer.
    Away,
    /// Follows a fork of its own, slower than the true chain.
    Partitioned,
    /// The same, and shows the true chain in between: two nodes behind one address.
    Flips,
    /// Reports tips so many blocks ahead, with made-up hashes; whether they fit each other.
    Lies(u64, bool),
}

pub struct Node {
    pub trouble: Trouble,
    pub from: Ms,
    pub to: Ms,
    /// How late it has the true chain's blocks.
    delay: Ms,
    private: Vec<(Ms, usize)>,
    seed: u64,
}

/// What a node says.
pub enum Answer {
    Nothing,
    Block(usize),
    Lie(Header),
}

impl Node {
    pub fn new(random: &mut Random, tree: &mut Tree, block_ms: Ms, quiet_ms: Ms, trouble: Trouble) -> Node {
        let from = random.between(5_000, quiet_ms / 2);
        let to = random.between(from + 4_000, quiet_ms);
        let delay = random.below(150);
        let mut node = Node { trouble, from, to, delay, private: vec![], seed: random.bits() };
        if matches!(trouble, Trouble::Partitioned | Trouble::Flips) {
            let (mut now, mut head) = (from, tree.head(from.saturating_sub(delay)));
            while now < to {
                node.private.push((now, head));
                (now, head) = (now + block_ms * 3 / 2, tree.add(head, random));
            }
        }
        node
    }

    pub fn is_ill(&self, now: Ms) -> bool {
        self.trouble != Trouble::None && (self.from..self.to).contains(&now)
    }

    fn view(&self, tree: &Tree, now: Ms) -> usize {
        let head = tree.head(now.saturating_sub(self.delay));
        match self.trouble {
            _ if !self.is_ill(now) => head,
            Trouble::Frozen => tree.head(self.from - self.delay),
            Trouble::RolledBack(by) => {
                let still = by * (self.to - now) / (self.to - self.from);
                tree.above(head, tree.blocks[head].number - still)
            }
            Trouble::Flips if (now - self.from) / FLIP_MS % 2 == 1 => head,
            Trouble::Partitioned | Trouble::Flips => {
                self.private[self.private.partition_point(|(at, _)| *at <= now) - 1].1
            }
            Trouble::None | Trouble::Away | Trouble::Lies(..) => head,
        }
    }

    fn lie(&self, number: u64, fitting: bool, random: &mut Random) -> Header {
        let of = |number: u64| -> Hash { made_up(&mut Random::new(self.seed ^ number)) };
        let (hash, parent) = if fitting { (of(number), of(number - 1)) } else { (made_up(random), made_up(random)) };
        Header { number, hash, parent, timestamp_s: 0 }
    }

    pub fn newest(&self, tree: &Tree, now: Ms, random: &mut Random) -> Answer {
        let block = self.view(tree, now);
        match self.trouble {
            Trouble::Away if self.is_ill(now) => Answer::Nothing,
            Trouble::Lies(ahead, fitting) if self.is_ill(now) => {
                Answer::Lie(self.lie(tree.blocks[block].number + ahead, fitting, random))
            }
            _ => Answer::Block(block),
        }
    }

    pub fn at(&self, tree: &Tree, number: u64, now: Ms, random: &mut Random) -> Answer {
        let block = self.view(tree, now);
        match self.trouble {
            Trouble::Away if self.is_ill(now) => Answer::Nothing,
            Trouble::Lies(_, fitting) if self.is_ill(now) => Answer::Lie(self.lie(number, fitting, random)),
            _ if number > tree.blocks[block].number || number < tree.blocks[0].number => Answer::Nothing,
            _ => Answer::Block(tree.above(block, number)),
        }
    }
}
