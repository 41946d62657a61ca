//! All blocks there are, true and private ones, and what the true chain's head was at each moment.

use crate::random::Random;
use ringway::logic::block::{Hash, Header};

/// Milliseconds since the scenario began.
pub type Ms = u64;

pub struct Block {
    pub number: u64,
    pub parent: Option<usize>,
    pub hash: Hash,
}

pub struct Tree {
    pub blocks: Vec<Block>,
    heads: Vec<(Ms, usize)>,
}

pub fn made_up(random: &mut Random) -> Hash {
    let mut hash = [0; 32];
    for bytes in hash.chunks_mut(8) {
        bytes.copy_from_slice(&random.bits().to_be_bytes());
    }
    hash
}

impl Tree {
    /// A chain of `length_ms` whose re-orgs, 1 to 12 deep, stop at `quiet_ms`.
    pub fn grow(random: &mut Random, block_ms: Ms, length_ms: Ms, quiet_ms: Ms) -> Tree {
        let base = random.pick(&[0, 5_000, 1 << 40]);
        let first = Block { number: base, parent: None, hash: made_up(random) };
        let mut tree = Tree { blocks: vec![first], heads: vec![] };
        let mut head = 0;
        // In few scenarios re-orgs go deeper than what was there when the nodes were first asked.
        let deep = random.once_in(4);
        for _ in 0..40 {
            head = tree.add(head, random);
        }
        tree.heads.push((0, head));
        let pause = |random: &mut Random| random.between(8_000, 16_000).max(block_ms * 3);
        let (mut now, mut reorg_at) = (0, pause(random));
        while now < length_ms {
            now += random.between(block_ms * 4 / 5, block_ms * 6 / 5);
            let known = if deep { 12 } else { tree.blocks[head].number - base - 40 };
            let depth = if now >= reorg_at && now < quiet_ms { random.between(1, 12).min(known) } else { 0 };
            if depth > 0 {
                reorg_at = now + pause(random);
            }
            let common = tree.above(head, tree.blocks[head].number - depth);
            let new = if depth > 0 { depth + random.below(2) } else { 1 };
            head = (0..new).fold(common, |parent, _| tree.add(parent, random));
            tree.heads.push((now, head));
        }
        tree
    }

    pub fn add(&mut self, parent: usize, random: &mut Random) -> usize {
        let block = Block { number: self.blocks[parent].number + 1, parent: Some(parent), hash: made_up(random) };
        self.blocks.push(block);
        self.blocks.len() - 1
    }

    pub fn head(&self, now: Ms) -> usize {
        let next = self.heads.partition_point(|(at, _)| *at <= now);
        self.heads[next.max(1) - 1].1
    }

    /// The block of that height that a block stands above (or is); the first of all if it is lower.
    pub fn above(&self, mut block: usize, number: u64) -> usize {
        while self.blocks[block].number > number {
            block = self.blocks[block].parent.unwrap();
        }
        block
    }

    pub fn stands_on(&self, block: usize, lower: usize) -> bool {
        self.above(block, self.blocks[lower].number) == lower
    }

    pub fn common(&self, a: usize, b: usize) -> usize {
        let lowest = self.blocks[a].number.min(self.blocks[b].number);
        let (mut a, mut b) = (self.above(a, lowest), self.above(b, lowest));
        while a != b {
            (a, b) = (self.blocks[a].parent.unwrap(), self.blocks[b].parent.unwrap());
        }
        a
    }

    pub fn header(&self, block: usize) -> Header {
        let Block { number, parent, hash } = self.blocks[block];
        let parent = parent.map_or([0; 32], |parent| self.blocks[parent].hash);
        Header { number, hash, parent, timestamp_s: number }
    }
}
