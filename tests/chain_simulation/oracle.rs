//! What must be true of a network's chain, told by who knows the true one. It asks after every event.

use super::node::{Node, Trouble};
use super::run::POLL_MS;
use super::tree::{Block, Ms, Tree};
use ringway::logic::chain::{Chain, Standing};
use ringway::logic::units::MS;

/// A node that was polled so often, with all its answers, has shown what it has to show of a re-org.
const SETTLED_POLLS: u32 = 4;
const FAR_AHEAD: u64 = 64;

/// How often each question was asked.
#[derive(Debug, Default)]
pub struct Counts {
    pub checks: u64,
    pub lies: u64,
    pub forks: u64,
    pub back_from_fork: u64,
    pub frozen: u64,
    pub lagging: u64,
    pub unknown: u64,
    pub forks_unheard: u64,
    pub reorgs: u64,
    pub reorgs_counted_exactly: u64,
    pub canonical_below_tip: u64,
}

impl Counts {
    pub fn all(&self) -> [(&'static str, u64); 10] {
        [
            ("lies", self.lies),
            ("forks", self.forks),
            ("back from a fork", self.back_from_fork),
            ("frozen", self.frozen),
            ("lagging", self.lagging),
            ("unknown", self.unknown),
            ("on a fork and unheard", self.forks_unheard),
            ("re-orgs", self.reorgs),
            ("counted exactly", self.reorgs_counted_exactly),
            ("canonical", self.canonical_below_tip),
        ]
    }

    pub fn add(&mut self, other: &Counts) {
        self.checks += other.checks;
        self.lies += other.lies;
        self.forks += other.forks;
        self.back_from_fork += other.back_from_fork;
        self.frozen += other.frozen;
        self.lagging += other.lagging;
        self.unknown += other.unknown;
        self.forks_unheard += other.forks_unheard;
        self.reorgs += other.reorgs;
        self.reorgs_counted_exactly += other.reorgs_counted_exactly;
        self.canonical_below_tip += other.canonical_below_tip;
    }
}

#[derive(Default, Clone, Copy, PartialEq, PartialOrd)]
enum Shown {
    #[default]
    Nothing,
    /// A child named its hash.
    Named,
    /// Its header, and so its parent's hash.
    Read,
}

#[derive(Default, Clone)]
struct Seen {
    /// The newest block that it showed, and when.
    last: Option<(usize, Ms)>,
    /// It lied last.
    lies: bool,
    /// What it showed of each block of its branch.
    shown: Vec<Shown>,
    /// The highest block of the branch that it showed: above the last one after a rollback.
    top: Option<usize>,
    /// Polls since anyone showed another branch, all of whose answers came; and whether the present one is such.
    good_polls: u32,
    good: bool,
    /// Polls since it left a branch itself.
    since_parting: u32,
    was_fork: bool,
}

/// A node left a branch whose highest block was `top`, `below` being the last common one.
#[derive(Debug)]
struct Left {
    node: usize,
    below: u64,
    top: u64,
    into: usize,
    known_below: bool,
}

pub struct Oracle {
    seen: Vec<Seen>,
    max_lag: u64,
    nothing_lost: bool,
    lefts: Vec<Left>,
    /// Re-orgs of the network: the first block of the new branch, and who showed it.
    reorgs: Vec<(usize, Vec<usize>)>,
    /// Two things happened to one node at once: then not everything can be told apart.
    inexact: bool,
    /// When the true chain was first too far above each frozen node.
    frozen_since: Vec<Option<Ms>>,
    counts: Counts,
}

impl Oracle {
    pub fn new(nodes: usize, max_lag: u64, nothing_lost: bool) -> Oracle {
        Oracle {
            seen: vec![Seen::default(); nodes],
            max_lag,
            nothing_lost,
            lefts: vec![],
            reorgs: vec![],
            inexact: false,
            frozen_since: vec![None; nodes],
            counts: Counts::default(),
        }
    }

    fn known(&self, node: usize, now: Ms) -> bool {
        self.seen[node].last.is_some_and(|(_, at)| now <= at + 3 * POLL_MS)
    }

    /// The honest known nodes and their newest blocks.
    fn honest(&self, now: Ms) -> Vec<(usize, usize)> {
        let known = (0..self.seen.len()).filter(|node| self.known(*node, now) && !self.seen[*node].lies);
        known.map(|node| (node, self.seen[node].last.unwrap().0)).collect()
    }

    pub fn lied(&mut self, node: usize, now: Ms) {
        let honest = self.honest(now).iter().filter(|(other, _)| *other != node).count();
        self.inexact |= honest == 0;
        // What it showed before is not remembered once it is doubted.
        self.seen[node] = Seen { last: Some((0, now)), lies: true, ..Seen::default() };
        self.counts.lies += 1;
    }

    pub fn lies(&self, node: usize) -> bool {
        self.seen[node].lies
    }

    pub fn unread(&mut self, node: usize) {
        self.seen[node].good = false;
    }

    fn show(&mut self, tree: &Tree, node: usize, block: usize) {
        let shown = &mut self.seen[node].shown;
        shown.resize(tree.blocks.len(), Shown::Nothing);
        shown[block] = Shown::Read;
        if let Some(parent) = tree.blocks[block].parent.filter(|parent| shown[*parent] == Shown::Nothing) {
            shown[parent] = Shown::Named;
        }
    }

    pub fn filled(&mut self, tree: &Tree, node: usize, block: usize) {
        match self.seen[node].last {
            Some((last, _)) if tree.stands_on(last, block) => self.show(tree, node, block),
            _ => self.seen[node].good = false,
        }
    }

    pub fn heard(&mut self, tree: &Tree, node: usize, block: usize, now: Ms, chain: &Chain) -> Result<(), String> {
        let honest = self.honest(now);
        let highest = honest.iter().filter(|(other, _)| *other != node).map(|(_, tip)| tree.blocks[*tip].number).max();
        let own = tree.blocks[block].number;
        if highest.is_some_and(|highest| own > highest + FAR_AHEAD) {
            // Doubted until it shows the others' chain, and its past with it.
            self.seen[node] = Seen::default();
            self.inexact = true;
        }
        let seen = &mut self.seen[node];
        seen.good_polls += u32::from(seen.good);
        seen.since_parting += u32::from(seen.good);
        (seen.good, seen.lies) = (true, false);
        let before = seen.last.replace((block, now)).map(|(last, _)| last);
        let branched = before.is_some_and(|before| !tree.stands_on(before, block) && !tree.stands_on(block, before));
        let beside = |a: usize, b: usize| !tree.stands_on(a, b) && !tree.stands_on(b, a);
        let newly_beside = |other: usize| beside(other, block) && before.is_none_or(|before| !beside(other, before));
        if branched || honest.iter().any(|(_, other)| newly_beside(*other)) {
            self.seen.iter_mut().for_each(|seen| seen.good_polls = 0);
        }
        self.leave(tree, node, block);
        self.show(tree, node, block);
        let lag = chain.view(node, now * MS).lag;
        let right = highest.unwrap_or(0).saturating_sub(own);
        if lag != right && !self.is_one_far_ahead(tree, now) {
            return Err(format!("lag is {lag}, not {right}"));
        }
        Ok(())
    }

    /// Does the new block stand on another branch than the one that the node showed before?
    fn leave(&mut self, tree: &Tree, node: usize, block: usize) {
        let seen = &mut self.seen[node];
        let Some(top) = seen.top.filter(|top| !tree.stands_on(block, *top)) else {
            seen.top = Some(block);
            return;
        };
        if tree.stands_on(top, block) {
            self.inexact |= seen.since_parting < SETTLED_POLLS && top != block && !self.nothing_lost;
            return;
        }
        let common = tree.common(top, block);
        let below = tree.blocks[common].number;
        seen.top = Some(block);
        // Nothing that was shown changed if the old branch's blocks above the common one were never shown; but its
        // highest one was.
        self.inexact |= seen.since_parting < SETTLED_POLLS && self.lefts.iter().any(|left| left.node == node);
        seen.since_parting = 0;
        // Below all that it knew there is nothing to tell where the branches part.
        let first = tree.blocks[0].number;
        self.inexact |= !(first..=below).any(|number| seen.shown[tree.above(top, number)] > Shown::Nothing);
        let into = tree.above(block, below + 1);
        let known_below =
            (below..=tree.blocks[top].number).all(|number| seen.shown[tree.above(top, number)] > Shown::Nothing);
        for number in below + 1..=tree.blocks[top].number {
            seen.shown[tree.above(top, number)] = Shown::Nothing;
        }
        self.lefts.push(Left { node, below, top: tree.blocks[top].number, into, known_below });
        match self.reorgs.iter_mut().rev().find(|(first, _)| *first == into) {
            Some((_, nodes)) if !nodes.contains(&node) => nodes.push(node),
            _ => self.reorgs.push((into, vec![node])),
        }
    }

    fn is_one_far_ahead(&self, tree: &Tree, now: Ms) -> bool {
        let mut tips: Vec<u64> = self.honest(now).iter().map(|(_, tip)| tree.blocks[*tip].number).collect();
        tips.sort_unstable();
        tips.len() > 1 && tips[tips.len() - 1] - tips[tips.len() - 2] > FAR_AHEAD
    }

    /// The height down to which a node has shown every block below its newest one.
    fn shows_down_to(&self, tree: &Tree, node: usize, mut block: usize) -> u64 {
        let end = tree.blocks[block].number.saturating_sub(255);
        while let Some(parent) = tree.blocks[block].parent {
            if self.seen[node].shown[block] != Shown::Read || tree.blocks[block].number == end {
                break;
            }
            block = parent;
        }
        tree.blocks[block].number
    }

    pub fn check(&mut self, tree: &Tree, nodes: &[Node], chain: &Chain, now: Ms, news: bool) -> Result<(), String> {
        self.counts.checks += 1;
        let honest = self.honest(now);
        self.standings_of_unknown(tree, chain, now)?;
        self.frozen_lag(tree, nodes, chain, now)?;
        let Some(height) = honest.iter().map(|(_, tip)| tree.blocks[*tip].number).max() else { return Ok(()) };
        let best = chain.best(now * MS).ok_or("no best tip")?;
        if self.seen[best.0].lies {
            return Err(format!("a liar is best: {best:?}"));
        }
        if self.is_one_far_ahead(tree, now) {
            return Ok(());
        }
        if best.1 != height {
            return Err(format!("best is {best:?}, not {height}"));
        }
        if !news {
            // The canonical chain moves when something is heard, not when time makes a tip unknown.
            return Ok(());
        }
        let highest: Vec<_> = honest.iter().filter(|(_, tip)| tree.blocks[*tip].number == height).copied().collect();
        let votes = |block: usize| highest.iter().filter(|(_, tip)| *tip == block).count();
        let most = highest.iter().map(|(_, tip)| votes(*tip)).max().unwrap_or(0);
        let canonical = chain.canonical(height);
        let elected = highest.iter().find(|(_, tip)| canonical == Some(&tree.blocks[*tip].hash));
        let Some((_, elected)) = elected.filter(|(_, tip)| votes(*tip) == most) else {
            return Err(format!("the canonical hash at {height} is {canonical:02x?}, not one of {most} votes"));
        };
        if (1..=255).any(|above| chain.canonical(height + above).is_some()) {
            return Err(format!("something is canonical above {height}"));
        }
        self.canonical(tree, chain, &highest, *elected)?;
        self.forks(tree, nodes, chain, now, &honest, *elected)
    }

    /// Who is not heard of any more is on a fork if the last that it showed is not canonical, and else unknown.
    fn standings_of_unknown(&mut self, tree: &Tree, chain: &Chain, now: Ms) -> Result<(), String> {
        let others = self.honest(now).len();
        for node in 0..self.seen.len() {
            let view = chain.view(node, now * MS);
            let unknown = view.standing == Standing::Unknown;
            if !self.known(node, now) {
                self.counts.unknown += 1;
                let last = self.seen[node].last.map(|(block, _)| &tree.blocks[block]).filter(|_| !self.seen[node].lies);
                let agrees = last.and_then(|last| chain.canonical(last.number).map(|hash| *hash == last.hash));
                let fork = view.standing == Standing::Fork;
                if !(unknown || fork) || view.tip.is_some() || agrees == Some(fork) {
                    return Err(format!("node {node} was not heard of for long, agrees {agrees:?}, and is {view:?}"));
                }
                self.counts.forks_unheard += u64::from(fork);
            } else if self.seen[node].lies && others > 0 && !unknown && view.standing != Standing::Fork {
                return Err(format!("node {node} lies and is {view:?}"));
            }
        }
        Ok(())
    }

    /// Too few blocks on both sides of a quiet tip make it lag: measured on the true chain's clock.
    fn frozen_lag(&mut self, tree: &Tree, nodes: &[Node], chain: &Chain, now: Ms) -> Result<(), String> {
        for (at, node) in nodes.iter().enumerate() {
            if node.trouble != Trouble::Frozen || !node.is_ill(now) || !self.nothing_lost {
                self.frozen_since[at] = None;
                continue;
            }
            let Some((tip, heard)) = self.seen[at].last.filter(|(_, heard)| *heard > node.from + 100) else { continue };
            let behind = tree.blocks[tree.head(now)].number > tree.blocks[tip].number + self.max_lag;
            let since = self.frozen_since[at].filter(|_| behind).unwrap_or(now);
            self.frozen_since[at] = behind.then_some(since);
            // 150 ms until another node has the block, a poll until it is seen there, and one more of its own.
            let late = behind && now > since + 150 + 2 * (POLL_MS + 100 + 100) && heard <= now;
            let standing = chain.view(at, now * MS).standing;
            self.counts.frozen += u64::from(late);
            if late && standing == Standing::Fresh {
                return Err(format!("node {at} is frozen since {} and is fresh", node.from));
            }
        }
        Ok(())
    }

    fn canonical(
        &mut self,
        tree: &Tree,
        chain: &Chain,
        highest: &[(usize, usize)],
        elected: usize,
    ) -> Result<(), String> {
        for (node, tip) in highest.iter().filter(|(_, tip)| *tip == elected) {
            let mut block = *tip;
            let lowest = self.shows_down_to(tree, *node, *tip);
            loop {
                let Block { number, parent, hash } = tree.blocks[block];
                self.counts.canonical_below_tip += 1;
                let said = chain.canonical(number);
                if said != Some(&hash) {
                    return Err(format!("canonical at {number} is {said:02x?}, node {node} showed {hash:02x?}"));
                }
                let Some(parent) = parent.filter(|_| number > lowest) else { break };
                block = parent;
            }
        }
        Ok(())
    }

    fn forks(
        &mut self,
        tree: &Tree,
        nodes: &[Node],
        chain: &Chain,
        now: Ms,
        honest: &[(usize, usize)],
        elected: usize,
    ) -> Result<(), String> {
        let settled = honest.iter().all(|(node, _)| self.seen[*node].good_polls >= SETTLED_POLLS);
        for (node, tip) in honest {
            let view = chain.view(*node, now * MS);
            let number = tree.blocks[*tip].number;
            let known_to = |(other, block): &(usize, usize)| {
                (*block == elected).then(|| self.shows_down_to(tree, *other, elected))
            };
            let comparable = honest.iter().filter_map(known_to).any(|lowest| lowest <= number);
            let agrees = tree.stands_on(elected, *tip);
            let fork = view.standing == Standing::Fork;
            if fork && agrees && (comparable || settled) {
                return Err(format!("node {node} agrees and is on a fork; settled {settled}"));
            }
            if !fork && !agrees && comparable {
                return Err(format!("node {node} is on a fork and is {view:?}"));
            }
            if view.standing == Standing::Unknown {
                return Err(format!("node {node} is known and is {view:?}"));
            }
            self.counts.forks += u64::from(fork);
            self.counts.back_from_fork += u64::from(self.seen[*node].was_fork && !fork);
            self.seen[*node].was_fork = fork;
            let lagging = view.standing == Standing::Lagging;
            self.counts.lagging += u64::from(lagging);
            // A poll after its hour a node is healthy again.
            let healthy = nodes[*node].trouble == Trouble::None;
            if lagging && healthy {
                return Err(format!("node {node} is healthy and lags by {}", view.lag));
            }
            if !fork && !lagging && view.lag > self.max_lag {
                return Err(format!("node {node} is {view:?}"));
            }
        }
        Ok(())
    }

    pub fn ended(&mut self, chain: &mut Chain) -> Result<Counts, String> {
        let told: Vec<_> = std::iter::from_fn(|| chain.take_reorg()).collect();
        for reorg in &told {
            let end = reorg.number + reorg.depth - 1;
            // Where a block between was never shown, it may begin above the true place.
            let begins = |left: &Left| left.below + 1 == reorg.number || !left.known_below && left.below < reorg.number;
            let shown = self.lefts.iter().any(|left| left.node == reorg.at && left.top == end && begins(left));
            if !shown && !self.inexact {
                return Err(format!("{reorg:?} was not shown: {:?}", self.lefts));
            }
        }
        self.counts.reorgs += told.len() as u64;
        if self.inexact {
            return Ok(std::mem::take(&mut self.counts));
        }
        self.counts.reorgs_counted_exactly += u64::from(told.len() == self.reorgs.len() && !told.is_empty());
        // What was lost, and forks deeper than there was time to walk back, leave a way unfinished.
        let unfinished = (0..self.seen.len()).any(|node| chain.missing(node).is_some() || !self.seen[node].good);
        if told.len() > self.reorgs.len() || told.len() < self.reorgs.len() && !unfinished {
            let right: Vec<_> =
                self.lefts.iter().map(|left| (left.node, left.below + 1, left.top, left.into)).collect();
            return Err(format!("{told:?} were counted; {} were shown: {right:?}", self.reorgs.len()));
        }
        Ok(std::mem::take(&mut self.counts))
    }
}
