//! What the chain of one network is, from what its Endpoints show of it: who is at its tip, who lags, who stands on a
//! fork, and which re-orgs there were.
//!
//! A driver reports each Endpoint's newest block ([`Chain::heard`]), then reads what is [`Chain::missing`], and reports
//! that too ([`Chain::filled`], [`Chain::unfilled`]); it asks at most [`FILLS_MAX`] times a poll. Blocks are believed
//! as they come, within bounds: a tip far above all others counts only if its Endpoint shows their chain below it.
//! Nothing here asks a node whether it syncs: nodes that lag say no.

use super::block::{Hash, Header};
use super::chain_branch::{Branch, Parting};
use super::chain_canon::Canon;
pub use super::chain_reorgs::Reorg;
use super::chain_reorgs::Reorgs;
pub use super::chain_window::WINDOW;
use super::units::Nanos;

/// So many missing headers are read for an Endpoint after each of its newest blocks.
pub const FILLS_MAX: usize = 8;
/// A tip that is more blocks above the second highest must show its chain.
const FAR_AHEAD: u64 = 64;
/// So many poll intervals after its last good sample a tip is unknown.
const GOOD_FOR_POLLS: u64 = 3;

/// How a network is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// How often each Endpoint is polled.
    pub poll_interval_ns: Nanos,
    /// An Endpoint that is more blocks behind lags.
    pub max_lag: u64,
}

/// Why a block is refused. It counts as no sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nonsense {
    /// It names itself as its parent.
    OwnParent,
    /// Its hash is zero.
    NoHash,
    /// Its hash, or its parent's, is that of another height of the same Endpoint.
    OtherHeight,
    /// There is no such Endpoint.
    NoEndpoint,
    /// It is not the height that is missing (or not any more).
    NotMissing,
}

/// How an Endpoint stands to the canonical chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its tip is not known, or so far above all others that it must be shown first.
    Unknown,
    /// At the tip, within `max_lag`.
    Fresh,
    /// On the canonical chain, too far behind.
    Lagging,
    /// Its hash differs from the canonical one at the highest height that both know.
    Fork,
}

/// An Endpoint as of a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// How it stands.
    pub standing: Standing,
    /// Its newest block's height, while it is known.
    pub tip: Option<u64>,
    /// Blocks behind the best tip, when its newest block was read.
    pub lag: u64,
    /// After this moment its tip is unknown.
    pub good_until_ns: Nanos,
}

#[derive(Debug, Clone, Default)]
struct Peer {
    branch: Branch,
    heard_ns: Nanos,
    lag: u64,
    /// When, in the order of events, its newest block was first seen here.
    seen: u64,
    /// What it showed at a height that others are at, to prove that its far tip is of their chain.
    proof: Option<(u64, Hash)>,
    /// It could not show that; not to be asked again before its next newest block.
    proof_rests: bool,
}

/// The chain of one network.
#[derive(Debug, Clone)]
pub struct Chain {
    rules: Rules,
    peers: Vec<Peer>,
    canon: Canon,
    reorgs: Reorgs,
    /// The latest moment that was heard of.
    now_ns: Nanos,
    events: u64,
}

impl Chain {
    /// A network with so many Endpoints, of which nothing is known yet.
    pub fn new(endpoints: usize, rules: Rules) -> Chain {
        let peers = vec![Peer::default(); endpoints];
        Chain { rules, peers, canon: Canon::default(), reorgs: Reorgs::default(), now_ns: 0, events: 0 }
    }

    /// The newest block of an Endpoint, read at `now_ns`.
    pub fn heard(&mut self, at: usize, header: &Header, now_ns: Nanos) -> Result<(), Nonsense> {
        let doubted = self.doubted(at);
        let peer = self.peers.get_mut(at).ok_or(Nonsense::NoEndpoint)?;
        let nothing = Branch::default();
        sensible(if doubted { &nothing } else { &peer.branch }, header)?;
        if doubted {
            // What was never believed is not what a later block is measured by.
            *peer = Peer::default();
        }
        self.now_ns = self.now_ns.max(now_ns);
        self.events += 1;
        let before = peer.branch.tip();
        if before.is_none_or(|tip| header.number.saturating_sub(tip) > FAR_AHEAD) {
            peer.proof = None;
        }
        if before != Some(header.number) || peer.branch.hash(header.number) != Some(&header.hash) {
            peer.seen = self.events;
        }
        (peer.heard_ns, peer.proof_rests) = (self.now_ns, false);
        let parting = peer.branch.heard(header);
        self.settle(at, parting);
        let best = self.best(self.now_ns).map_or(0, |(_, tip)| tip);
        if let Some(peer) = self.peers.get_mut(at) {
            peer.lag = best.saturating_sub(header.number);
        }
        Ok(())
    }

    /// The next height to be read from this Endpoint: to prove a tip far above the others, to fill what is missing
    /// between its tip and what is known, or to find where it left its old branch.
    pub fn missing(&self, at: usize) -> Option<u64> {
        let proof = self.proof_wanted(at);
        if proof.is_some() || self.doubted(at) {
            return proof;
        }
        self.peers.get(at)?.branch.wanted()
    }

    /// A block at the height that was missing.
    pub fn filled(&mut self, at: usize, header: &Header, now_ns: Nanos) -> Result<(), Nonsense> {
        let (missing, proof) = (self.missing(at), self.proof_wanted(at).is_some());
        let peer = self.peers.get_mut(at).ok_or(Nonsense::NoEndpoint)?;
        let good = match missing {
            Some(number) if number == header.number => sensible(&peer.branch, header),
            _ => Err(Nonsense::NotMissing),
        };
        if let (Err(_), Some(number)) = (good, missing) {
            self.unfilled(at, number);
        }
        good?;
        self.now_ns = self.now_ns.max(now_ns);
        let peer = self.peers.get_mut(at).ok_or(Nonsense::NoEndpoint)?;
        let mut parting = None;
        if proof {
            peer.proof = Some((header.number, header.hash));
        } else {
            parting = peer.branch.filled(header);
        }
        self.settle(at, parting);
        Ok(())
    }

    /// That height could not be read: it is not asked for again before the Endpoint's next newest block.
    pub fn unfilled(&mut self, at: usize, number: u64) {
        let proof = self.proof_wanted(at) == Some(number);
        let Some(peer) = self.peers.get_mut(at) else { return };
        if proof {
            peer.proof_rests = true;
        } else {
            let parting = peer.branch.unfilled(number);
            self.settle(at, parting);
        }
    }

    /// An Endpoint as of now.
    pub fn view(&self, at: usize, now_ns: Nanos) -> View {
        let Some(peer) = self.peers.get(at) else {
            return View { standing: Standing::Unknown, tip: None, lag: 0, good_until_ns: 0 };
        };
        let tip = peer.branch.tip().filter(|_| self.is_known(at, now_ns));
        let good_until_ns = if peer.branch.tip().is_some() { self.good_until(peer) } else { 0 };
        let standing = match tip {
            // Until it agrees: who is silent or slow on a fork is on it still.
            _ if self.on_fork(at, peer) => Standing::Fork,
            None => Standing::Unknown,
            Some(_) if !self.counts(at, now_ns) => Standing::Unknown,
            Some(_) if peer.lag > self.rules.max_lag => Standing::Lagging,
            Some(_) => Standing::Fresh,
        };
        View { standing, tip, lag: peer.lag, good_until_ns }
    }

    /// The Endpoint with the best tip, and that tip: the highest that counts; among equals one with the canonical hash.
    pub fn best(&self, now_ns: Nanos) -> Option<(usize, u64)> {
        let mut ceiling = u64::MAX;
        loop {
            let (at, tip) = self.highest(now_ns, |_, tip| tip <= ceiling)?;
            if self.counts(at, now_ns) {
                return Some((self.elected(tip, now_ns).unwrap_or(at), tip));
            }
            ceiling = tip.checked_sub(1)?;
        }
    }

    /// The canonical hash at a height, as far as it is known.
    pub fn canonical(&self, number: u64) -> Option<&Hash> {
        self.canon.hash(number)
    }

    /// Heights whose canonical hash changed since the last call, with what it is now. A height that only fell out of
    /// the window because the one 256 above took its place is not named.
    pub fn take_changed(&mut self) -> impl Iterator<Item = (u64, Option<Hash>)> + use<> {
        self.canon.take_changed().into_iter()
    }

    /// The next re-org that was not taken yet; the last 16 wait.
    pub fn take_reorg(&mut self) -> Option<Reorg> {
        self.reorgs.take()
    }

    /// An Endpoint is removed; another one may take its place.
    pub fn forget(&mut self, at: usize) {
        if let Some(peer) = self.peers.get_mut(at) {
            *peer = Peer::default();
            self.reorgs.forget(at);
            self.follow();
        }
    }

    fn settle(&mut self, at: usize, parting: Option<Parting>) {
        let believed = parting.filter(|_| !self.doubted(at));
        if let Some(parting) = believed {
            let has = |peer: &Peer, place: &(u64, Hash)| peer.branch.hash(place.0) == Some(&place.1);
            let together = |places: [_; 2]| self.peers.iter().any(|peer| places.iter().all(|place| has(peer, place)));
            self.reorgs.shown(at, parting, together);
        }
        self.follow();
    }

    fn follow(&mut self) {
        let best = self.best(self.now_ns).and_then(|(at, _)| self.peers.get(at));
        let Some(best) = best else { return };
        let Some((tip, hash)) = best.branch.tip().and_then(|tip| Some((tip, *best.branch.hash(tip)?))) else { return };
        let (peers, others) = (&self.peers, |at: &usize| self.is_known(*at, self.now_ns) && !self.doubted(*at));
        let trusted: Vec<&Peer> = (0..peers.len()).filter(others).filter_map(|at| peers.get(at)).collect();
        // A block that another Endpoint has too has the same parent there.
        self.canon.follow(tip, hash, |number, hash| {
            let own = best.branch.parent(number, hash);
            own.or_else(|| trusted.iter().find_map(|peer| peer.branch.parent(number, hash)))
        });
    }

    fn good_until(&self, peer: &Peer) -> Nanos {
        peer.heard_ns.saturating_add(self.rules.poll_interval_ns.saturating_mul(GOOD_FOR_POLLS))
    }

    fn is_known(&self, at: usize, now_ns: Nanos) -> bool {
        let peer = self.peers.get(at).filter(|peer| peer.branch.tip().is_some());
        peer.is_some_and(|peer| now_ns <= self.good_until(peer))
    }

    /// The highest known tip among some.
    fn highest(&self, now_ns: Nanos, among: impl Fn(usize, u64) -> bool) -> Option<(usize, u64)> {
        let tips = self.peers.iter().enumerate().filter_map(|(at, peer)| Some((at, peer.branch.tip()?)));
        tips.filter(|(at, tip)| self.is_known(*at, now_ns) && among(*at, *tip)).max_by_key(|(_, tip)| *tip)
    }

    /// The height at which this Endpoint must show the others' chain: the next lower known tip, if none is near its
    /// own.
    fn far_above(&self, at: usize, now_ns: Nanos) -> Option<u64> {
        let own = self.peers.get(at)?.branch.tip()?;
        let near = self.highest(now_ns, |other, tip| other != at && tip.abs_diff(own) <= FAR_AHEAD);
        let lower = self.highest(now_ns, |other, tip| other != at && tip < own);
        lower.filter(|_| near.is_none()).map(|(_, tip)| tip)
    }

    /// Whether a tip counts: it is not far above the next one, or it shows the same hash at that one's height.
    fn counts(&self, at: usize, now_ns: Nanos) -> bool {
        self.far_above(at, now_ns).is_none_or(|second| self.shows(at, second))
    }

    /// The height to be read as a proof: once for each of the others' blocks while it failed, and in time before a
    /// good one is too old to be compared.
    fn proof_wanted(&self, at: usize) -> Option<u64> {
        let peer = self.peers.get(at).filter(|peer| !peer.proof_rests)?;
        let second = self.far_above(at, self.now_ns)?;
        let proved = peer.proof.map(|(number, _)| number);
        let recent = proved.is_some_and(|number| second.abs_diff(number) <= FAR_AHEAD);
        let far = peer.branch.tip().unwrap_or(0).saturating_sub(second) > WINDOW / 2;
        let needed = if self.shows(at, second) { far && !recent } else { proved != Some(second) };
        needed.then_some(second)
    }

    fn doubted(&self, at: usize) -> bool {
        !self.counts(at, self.now_ns)
    }

    /// Whether an Endpoint showed the chain that those at this height are on. A proof holds while they go on: one for
    /// each of their blocks would make it doubtful at each.
    fn shows(&self, at: usize, second: u64) -> bool {
        let Some(peer) = self.peers.get(at) else { return false };
        let mut others =
            self.peers.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, other)| &other.branch);
        others.any(|other| {
            let Some(hash) = other.hash(second).filter(|_| other.tip() == Some(second)) else { return false };
            let proved = |(number, hash)| other.hash(number) == Some(&hash);
            peer.branch.linked(second, hash) || peer.proof.is_some_and(proved)
        })
    }

    /// Among the known ones at this height: the first seen of the hash that most of them report.
    fn elected(&self, tip: u64, now_ns: Nanos) -> Option<usize> {
        let there = |at: &usize| self.peers.get(*at).and_then(|peer| peer.branch.tip()) == Some(tip);
        let group: Vec<usize> = (0..self.peers.len()).filter(|at| there(at) && self.is_known(*at, now_ns)).collect();
        let hash = |at: usize| self.peers.get(at).and_then(|peer| peer.branch.hash(tip));
        let votes = |at: usize| group.iter().filter(|other| hash(**other) == hash(at)).count();
        let seen = |at: usize| self.peers.get(at).map_or(u64::MAX, |peer| peer.seen);
        group.iter().copied().max_by_key(|at| (votes(*at), std::cmp::Reverse(seen(*at))))
    }

    fn on_fork(&self, at: usize, peer: &Peer) -> bool {
        let (Some(tip), Some(canon)) = (peer.branch.tip(), self.canon.tip()) else { return false };
        let from = tip.min(canon);
        let common = (from.saturating_sub(WINDOW - 1)..=from).rev().find_map(|number| {
            let own = peer.branch.hash(number)?;
            self.canon.hash(number).map(|right| own != right)
        });
        let disproved = |(number, hash): (u64, Hash)| self.canon.hash(number).is_some_and(|right| *right != hash);
        common == Some(true) || self.doubted(at) && peer.proof.is_some_and(disproved)
    }
}

/// Whether a block may stand in a branch.
fn sensible(branch: &Branch, header: &Header) -> Result<(), Nonsense> {
    if header.hash == header.parent {
        return Err(Nonsense::OwnParent);
    }
    if header.hash == [0; 32] {
        return Err(Nonsense::NoHash);
    }
    let below = header.number.checked_sub(1);
    let parent_is_elsewhere = below.is_some_and(|below| branch.elsewhere(below, &header.parent));
    if branch.elsewhere(header.number, &header.hash) || parent_is_elsewhere {
        return Err(Nonsense::OtherHeight);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::units::SECOND;

    const RULES: Rules = Rules { poll_interval_ns: SECOND, max_lag: 2 };

    /// The hash of a height on a branch.
    fn hash(branch: u8, number: u64) -> Hash {
        let mut hash = [branch; 32];
        hash[..8].copy_from_slice(&number.to_be_bytes());
        hash
    }

    /// A block of branch 1 up to `left`, of `branch` above.
    fn block(branch: u8, left: u64, number: u64) -> Header {
        let on = |number: u64| hash(if number > left { branch } else { 1 }, number);
        let parent = number.checked_sub(1).map_or([0; 32], on);
        Header { number, hash: on(number), parent, timestamp_s: number }
    }

    fn main(number: u64) -> Header {
        block(1, 0, number)
    }

    /// Reports blocks of a branch and reads what is missing, at most 8 a poll.
    struct Net {
        chain: Chain,
        now_ns: Nanos,
        read: Vec<u64>,
    }

    impl Net {
        fn new(endpoints: usize) -> Net {
            Net { chain: Chain::new(endpoints, RULES), now_ns: 10 * SECOND, read: vec![] }
        }
        fn says(&mut self, at: usize, header: Header) {
            assert_eq!(self.chain.heard(at, &header, self.now_ns), Ok(()));
        }
        fn poll(&mut self, at: usize, branch: u8, left: u64, number: u64) {
            self.says(at, block(branch, left, number));
            self.read.clear();
            for _ in 0..FILLS_MAX {
                let Some(missing) = self.chain.missing(at) else { break };
                self.read.push(missing);
                assert_eq!(self.chain.filled(at, &block(branch, left, missing), self.now_ns), Ok(()));
            }
        }
        fn all(&mut self, number: u64) {
            (0..self.chain.peers.len()).for_each(|at| self.poll(at, 1, 0, number));
        }
        fn standing(&self, at: usize) -> Standing {
            self.chain.view(at, self.now_ns).standing
        }
        fn best(&self) -> Option<(usize, u64)> {
            self.chain.best(self.now_ns)
        }
        fn reorgs(&mut self) -> Vec<(u64, u64)> {
            std::iter::from_fn(|| self.chain.take_reorg()).map(|reorg| (reorg.number, reorg.depth)).collect()
        }
    }

    #[test]
    fn nonsense_is_no_sample() {
        let mut net = Net::new(2);
        let own_parent = Header { parent: hash(1, 100), ..main(100) };
        assert_eq!(net.chain.heard(0, &own_parent, net.now_ns), Err(Nonsense::OwnParent));
        let no_hash = Header { hash: [0; 32], ..main(100) };
        assert_eq!(net.chain.heard(0, &no_hash, net.now_ns), Err(Nonsense::NoHash));
        assert_eq!(net.chain.heard(2, &main(100), net.now_ns), Err(Nonsense::NoEndpoint));
        assert_eq!((net.standing(0), net.best(), net.chain.missing(0)), (Standing::Unknown, None, None));
        net.says(0, main(100));
        for same in [Header { number: 101, ..main(100) }, Header { number: 105, parent: hash(1, 100), ..main(105) }] {
            assert_eq!(net.chain.heard(0, &same, net.now_ns + SECOND), Err(Nonsense::OtherHeight));
        }
        assert_eq!(net.chain.view(0, net.now_ns).good_until_ns, net.now_ns + 3 * SECOND, "as of the good one");
        assert_eq!(net.chain.view(0, net.now_ns).tip, Some(100));
    }

    #[test]
    fn nothing_below_the_first_block_is_read() {
        let mut net = Net::new(1);
        net.poll(0, 1, 0, 100);
        assert!(net.read.is_empty());
        net.poll(0, 1, 0, 103);
        assert_eq!(net.read, [102, 101]);
        assert_eq!(net.chain.canonical(99), Some(&hash(1, 99)), "its child named it");
        assert_eq!(net.chain.canonical(98), None);
        net.poll(0, 1, 0, 104);
        assert!(net.read.is_empty());
    }

    #[test]
    fn a_chain_of_lies_is_not_walked_for_ever() {
        let mut net = Net::new(1);
        net.poll(0, 1, 0, 1_000);
        // Made-up blocks that fit each other and nothing else, down to what was known.
        let mut read = vec![];
        for _ in 0..WINDOW {
            net.poll(0, 9, 0, 1_200);
            read.append(&mut net.read);
        }
        assert_eq!((read.len(), read.last()), (200, Some(&1_000)));
        net.says(0, main(5_000));
        assert_eq!(net.chain.missing(0), None, "nothing that is known is near");
        // What is named by nobody is not taken: it is asked for once a poll, and given up.
        net.says(0, main(5_200));
        for _ in 0..20 {
            if let Some(missing) = net.chain.missing(0) {
                read.push(missing);
                assert_eq!(net.chain.filled(0, &block(8, 0, missing), net.now_ns), Ok(()));
                assert_eq!(net.chain.missing(0), None);
            }
            net.says(0, main(5_200));
        }
        assert_eq!(read.len(), 200 + 8);
    }

    #[test]
    fn lag_is_measured_when_its_own_block_is_read() {
        let mut net = Net::new(2);
        net.all(100);
        net.poll(1, 1, 0, 110);
        assert_eq!((net.standing(0), net.chain.view(0, net.now_ns).lag), (Standing::Fresh, 0));
        net.poll(0, 1, 0, 107);
        assert_eq!((net.standing(0), net.chain.view(0, net.now_ns).lag), (Standing::Lagging, 3));
        net.poll(0, 1, 0, 108);
        assert_eq!((net.standing(0), net.chain.view(0, net.now_ns).lag), (Standing::Fresh, 2));
    }

    #[test]
    fn a_tip_is_unknown_after_three_polls() {
        let mut net = Net::new(2);
        net.all(100);
        let heard_ns = net.now_ns;
        net.now_ns = heard_ns + 3 * SECOND;
        assert_eq!((net.standing(0), net.best()), (Standing::Fresh, Some((0, 100))));
        net.now_ns += 1;
        assert_eq!((net.standing(0), net.best()), (Standing::Unknown, None));
        assert_eq!(net.chain.view(0, net.now_ns).tip, None);
        net.poll(1, 1, 0, 99);
        assert_eq!(net.best(), Some((1, 99)), "the other one is not the best any more");
        assert_eq!(net.chain.canonical(100), None);
    }

    #[test]
    fn a_tip_far_above_must_show_the_chain_of_the_others() {
        let mut net = Net::new(3);
        net.all(1_000);
        net.says(2, block(7, 0, 50_000));
        assert_eq!((net.best(), net.standing(2)), (Some((0, 1_000)), Standing::Unknown));
        assert_eq!(net.chain.missing(2), Some(1_000));
        net.chain.filled(2, &block(7, 0, 1_000), net.now_ns).unwrap();
        assert_eq!((net.best(), net.standing(2)), (Some((0, 1_000)), Standing::Fork));
        assert_eq!(net.chain.missing(2), None, "asked once");
        // What is far above and of the same chain counts at once.
        net.says(2, main(50_000));
        assert_eq!(net.best(), Some((0, 1_000)));
        net.chain.filled(2, &main(1_000), net.now_ns).unwrap();
        assert_eq!((net.best(), net.standing(2)), (Some((2, 50_000)), Standing::Fresh));
        // And goes on to count while it and they go on.
        for step in 1..400 {
            net.says(0, main(1_000 + step));
            net.says(1, main(1_000 + step));
            net.says(2, main(50_000 + step));
            assert_eq!(net.best(), Some((2, 50_000 + step)));
            while let Some(missing) = net.chain.missing(2) {
                net.chain.filled(2, &main(missing), net.now_ns).unwrap();
            }
        }
        assert_eq!(net.standing(0), Standing::Lagging);
        assert!(net.reorgs().is_empty());
    }

    #[test]
    fn who_is_not_believed_shows_no_reorg() {
        let mut net = Net::new(3);
        for number in 90..=100 {
            net.all(number);
        }
        net.says(2, block(2, 95, 100));
        net.says(2, block(7, 0, 50_000));
        assert_eq!(net.reorgs(), [], "its way back was under way");
        net.poll(1, 2, 95, 100);
        assert_eq!(net.reorgs(), [(96, 5)]);
    }

    #[test]
    fn sixty_four_above_count_and_one_alone_counts() {
        let mut net = Net::new(2);
        net.says(1, block(7, 0, 9_000));
        assert_eq!(net.best(), Some((1, 9_000)), "nothing to compare it with");
        net.says(0, main(100));
        assert_eq!(net.best(), Some((0, 100)));
        net.says(1, main(164));
        assert_eq!(net.best(), Some((1, 164)));
        net.says(1, main(165));
        assert_eq!(net.best(), Some((0, 100)), "its own hash at 100 is not linked to 165 yet");
        net.chain.unfilled(1, 100);
        assert_eq!(net.chain.missing(1), None, "not again in this poll");
        net.says(1, main(166));
        assert_eq!(net.chain.missing(1), Some(100));
    }

    #[test]
    fn a_reorg_is_found_and_counted_once_with_its_depth() {
        let mut net = Net::new(3);
        for number in 90..=100 {
            net.all(number);
        }
        net.poll(0, 2, 97, 101);
        assert_eq!((net.reorgs(), net.read.clone()), (vec![(98, 3)], vec![100, 99, 98]));
        assert_eq!(
            [97, 98, 101].map(|n| net.chain.canonical(n).copied()),
            [hash(1, 97), hash(2, 98), hash(2, 101)].map(Some)
        );
        assert_eq!([0, 1, 2].map(|at| net.standing(at)), [Standing::Fresh, Standing::Fork, Standing::Fork]);
        net.poll(1, 2, 97, 100);
        net.poll(2, 2, 97, 101);
        assert_eq!(net.reorgs(), []);
        assert_eq!([0, 1, 2].map(|at| net.standing(at)), [Standing::Fresh; 3]);
        // One goes back and forth: both are re-orgs, and so is the first one shown again.
        net.poll(2, 1, 97, 102);
        assert_eq!(net.reorgs(), [(98, 4)]);
        net.poll(2, 2, 97, 102);
        assert_eq!(net.reorgs(), [(98, 5)]);
    }

    #[test]
    fn a_deep_reorg_is_walked_over_several_polls() {
        let mut net = Net::new(1);
        for number in 80..=100 {
            net.all(number);
        }
        net.poll(0, 2, 88, 101);
        assert_eq!((net.read.len(), net.reorgs()), (8, vec![]));
        assert_eq!(net.chain.canonical(88), None, "it is not known how deep it goes");
        net.poll(0, 2, 88, 102);
        assert_eq!((net.read.clone(), net.reorgs()), (vec![92, 91, 90, 89], vec![(89, 12)]));
        assert_eq!(net.chain.canonical(88), Some(&hash(1, 88)));
    }

    #[test]
    fn a_reorg_below_all_that_is_known_is_counted_as_far_as_it_is_known() {
        let mut net = Net::new(1);
        for number in 98..=100 {
            net.all(number);
        }
        net.poll(0, 2, 50, 101);
        assert_eq!((net.read.clone(), net.reorgs()), (vec![100, 99, 98], vec![(97, 4)]));
        // What can't be read is tried in eight polls.
        for number in 101..=120 {
            net.all(number);
        }
        net.reorgs();
        net.says(0, block(3, 110, 121));
        for poll in 0..8 {
            assert_eq!(net.chain.missing(0), Some(120), "poll {poll}");
            net.chain.unfilled(0, 120);
            net.says(0, block(3, 110, 121));
        }
        assert_eq!((net.chain.missing(0), net.reorgs()), (None, vec![(120, 1)]));
    }

    #[test]
    fn a_rollback_is_no_reorg_until_hashes_change() {
        let mut net = Net::new(1);
        for number in 90..=100 {
            net.all(number);
        }
        net.poll(0, 1, 0, 98);
        assert_eq!((net.best(), net.chain.canonical(99)), (Some((0, 98)), None));
        assert_eq!(net.reorgs(), []);
        net.poll(0, 1, 0, 99);
        net.poll(0, 1, 0, 98);
        assert_eq!(net.reorgs(), []);
        net.poll(0, 2, 98, 99);
        assert_eq!(net.reorgs(), [(99, 2)]);
        net.poll(0, 1, 0, 96);
        net.poll(0, 1, 0, 101);
        assert_eq!(net.reorgs(), [(99, 1)]);
    }

    #[test]
    fn what_a_rollback_leaves_above_the_tip_is_of_the_branch_that_it_stood_on() {
        let mut net = Net::new(1);
        for number in 90..=100 {
            net.all(number);
        }
        net.says(0, block(2, 96, 105));
        net.poll(0, 2, 96, 104);
        assert_eq!((net.read.clone(), net.reorgs()), (vec![103, 102, 101, 100, 99, 98, 97], vec![(97, 4)]));
    }

    #[test]
    fn a_rollback_below_the_way_back_does_not_end_it() {
        let mut net = Net::new(1);
        for number in 90..=100 {
            net.all(number);
        }
        net.says(0, block(2, 96, 101));
        assert_eq!(net.chain.missing(0), Some(100));
        net.poll(0, 1, 0, 93);
        assert_eq!(net.reorgs(), []);
        net.poll(0, 2, 96, 98);
        net.poll(0, 2, 96, 101);
        assert_eq!(net.reorgs(), [(97, 4)]);
    }

    #[test]
    fn at_equal_height_most_endpoints_decide_then_the_first() {
        let mut net = Net::new(3);
        net.all(99);
        net.says(0, block(2, 99, 100));
        net.says(1, main(100));
        assert_eq!((net.best(), net.chain.canonical(100)), (Some((0, 100)), Some(&hash(2, 100))));
        net.says(0, block(2, 99, 100));
        assert_eq!(net.best(), Some((0, 100)), "seen again is not seen later");
        net.says(2, main(100));
        assert_eq!((net.best(), net.chain.canonical(100)), (Some((1, 100)), Some(&hash(1, 100))));
        assert_eq!([0, 1, 2].map(|at| net.standing(at)), [Standing::Fork, Standing::Fresh, Standing::Fresh]);
        // Unknown ones have no vote.
        net.now_ns += 3 * SECOND + 1;
        net.says(0, block(2, 99, 100));
        assert_eq!(net.chain.canonical(100), Some(&hash(2, 100)));
    }

    #[test]
    fn who_has_another_hash_below_the_tip_is_on_a_fork() {
        let mut net = Net::new(2);
        net.all(98);
        net.all(99);
        net.poll(0, 1, 0, 103);
        net.poll(1, 5, 98, 101);
        assert_eq!([0, 1].map(|at| net.standing(at)), [Standing::Fresh, Standing::Fork]);
        net.poll(1, 1, 0, 103);
        assert_eq!(net.standing(1), Standing::Fresh);
    }

    #[test]
    fn changes_are_told_once() {
        let mut net = Net::new(1);
        let changes = |net: &mut Net| {
            let mut changes: Vec<_> = net.chain.take_changed().collect();
            changes.sort();
            changes
        };
        net.poll(0, 1, 0, 100);
        assert_eq!(changes(&mut net), [(99, Some(hash(1, 99))), (100, Some(hash(1, 100)))]);
        assert_eq!(changes(&mut net), []);
        net.poll(0, 2, 99, 100);
        net.poll(0, 1, 99, 100);
        net.poll(0, 2, 99, 101);
        assert_eq!(changes(&mut net), [(100, Some(hash(2, 100))), (101, Some(hash(2, 101)))]);
        net.poll(0, 1, 0, 99);
        assert_eq!(changes(&mut net), [(98, Some(hash(1, 98))), (100, None), (101, None)]);
        for number in 100..=355 {
            net.poll(0, 1, 0, number);
        }
        assert_eq!(changes(&mut net).len(), 256);
        assert_eq!((net.chain.canonical(99), net.chain.canonical(100)), (None, Some(&hash(1, 100))));
    }

    #[test]
    fn a_new_endpoint_in_an_old_ones_place_starts_afresh() {
        let mut net = Net::new(2);
        for number in 98..=100 {
            net.all(number);
        }
        net.chain.forget(0);
        assert_eq!((net.standing(0), net.best()), (Standing::Unknown, Some((1, 100))));
        net.poll(0, 4, 90, 101);
        assert_eq!(net.reorgs(), []);
    }

    #[test]
    fn no_number_is_too_large_or_small() {
        let mut net = Net::new(2);
        for number in [0, u64::MAX, 0, 1, u64::MAX - 1, u64::MAX, 255, 256, 0, u64::MAX - 255, u64::MAX - 256] {
            for (at, branch) in [(0, 1), (1, 2), (1, 3), (0, 2)] {
                let _ = net.chain.heard(at, &block(branch, 0, number), net.now_ns);
                for _ in 0..FILLS_MAX {
                    let Some(missing) = net.chain.missing(at) else { break };
                    let _ = net.chain.filled(at, &block(branch, 5, missing), net.now_ns);
                }
                net.chain.unfilled(at, number);
                assert!(net.chain.view(at, u64::MAX).tip.is_none());
                assert!(net.best().is_some());
            }
            net.now_ns = net.now_ns.wrapping_mul(7);
        }
        net.chain.heard(0, &main(7), u64::MAX).unwrap();
        assert_eq!(net.chain.view(0, u64::MAX).tip, Some(7));
    }
}
