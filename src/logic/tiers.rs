//! Which targets of a tiered Route may serve a Call, and which goes first: the cheapest that has what is asked.
//!
//! Pure: what is known of Endpoints comes in through [`Look`]. The order, for the targets that remain:
//! 1. fresh ones, tier by tier from the lowest that meets the [`Requirement`], by weight inside a tier;
//! 2. where the preferred tier has only lagging ones: whoever has the highest block, in whatever tier;
//! 3. lagging ones, the highest block first;
//! 4. those whose tip is unknown; and last those that said of late that they lack the method.
//!
//! What nobody has is asked of everybody: where no target holds the depth, or none has the height, that rule is
//! left out, and the node's own words go to the caller. Not so the lowest tier that the configuration sets for a method:
//! it is nobody's word but the operator's. An Endpoint on a fork is never asked.

use super::block::{Asked, BlockRef};
use super::chain::Standing;
use super::draw::Bits;
use super::facts::{Client, Clients, Reads};
use super::snapshot::{Endpoint, EndpointIx, Route, Strategy, Target, Tier};
use super::units::{MS, Nanos};

/// So long the chain may take to show whether an answer that contradicts it is on a fork.
pub const ASK_AGAIN_NS: Nanos = 250 * MS;

/// How much of the past a target holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// What it costs.
    pub tier: Tier,
    /// So many of the newest blocks with their state; `u64::MAX` = all.
    pub state_blocks: u64,
    /// So many with their bodies, receipts and logs.
    pub history_blocks: u64,
}

/// Writes what the targets of a tiered Route hold into it.
pub fn place(route: &mut Route, endpoints: &[Endpoint]) {
    if route.strategy != Strategy::Tiered {
        return;
    }
    let held = |target: &Target| {
        let endpoint = endpoints.get(usize::from(target.endpoint.0));
        endpoint.map_or(Held::default(), |endpoint| Held {
            tier: endpoint.tier,
            state_blocks: endpoint.state_blocks,
            history_blocks: endpoint.history_blocks,
        })
    };
    route.held = route.targets.iter().map(held).collect();
    route.by_tier = Tier::ALL.map(|tier| {
        let of_tier = route.held.iter().enumerate().filter(|(_, held)| held.tier == tier);
        of_tier.fold(0, |set, (at, _)| set | 1 << at)
    });
}

/// Whether an Endpoint has a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Has {
    /// As far as is known.
    #[default]
    Yes,
    /// It said of late that it has not.
    SaidNo,
    /// Its software is not known yet: the little that all have, it has.
    NotKnown,
    /// Its software lacks it.
    No,
}

/// What is known about one Endpoint, for one Call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// How its chain stands.
    pub standing: Standing,
    /// Its newest block; without meaning while `standing` is unknown.
    pub tip: u64,
    /// Its software.
    pub client: Client,
    /// Whether it has the method.
    pub has: Has,
    /// It serves another chain than its configuration says.
    pub mismatched: bool,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen { standing: Standing::Unknown, tip: 0, client: Client::Unknown, has: Has::Yes, mismatched: false }
    }
}

/// What a decision may look at, for the method of its Call.
pub trait Look {
    /// What is known of an Endpoint now.
    fn seen(&self, endpoint: EndpointIx, now_ns: Nanos) -> Seen;
}

/// What a Call needs of an Endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Requirement {
    /// No lower tier may serve it; none = any may.
    pub floor: Option<Tier>,
    /// Blocks below the newest one that are read; 0 = the newest.
    pub depth: u64,
    /// At that depth the state is read.
    pub state: bool,
    /// At that depth bodies, receipts or logs are read.
    pub history: bool,
    /// The highest block that is named; 0 = none.
    pub height: u64,
    /// It looks something up by hash in bodies, receipts or logs: to find nothing says something about the past.
    pub by_hash: bool,
}

impl Requirement {
    /// What a method that reads so needs for these arguments, where the newest known block is `best`.
    pub fn of(
        reads: Reads,
        floor: Option<Tier>,
        asked: Option<Asked>,
        best: Option<u64>,
        finality_depth: u64,
    ) -> Requirement {
        let history = !matches!(reads, Reads::Nothing | Reads::State(_));
        // Also where another argument could have named the block by its height.
        let by_hash = history && asked.is_some_and(|asked| asked.newest == BlockRef::Hash);
        let none = Requirement { floor, by_hash, ..Requirement::default() };
        let Some(asked) = asked else { return none };
        let below = |block: BlockRef| match (block, best) {
            // Some node may read it, as a number of old: one with a bounded past would then find nothing.
            (BlockRef::Unreadable, _) | (BlockRef::Earliest, None) => u64::MAX,
            (BlockRef::Earliest, Some(best)) => best,
            (BlockRef::Number(number), Some(best)) => best.saturating_sub(number),
            (BlockRef::Safe | BlockRef::Finalized, _) => finality_depth,
            _ => 0,
        };
        // A trace runs a block again, on the state that the one before it left.
        let before = u64::from(matches!(reads, Reads::Trace(_) | Reads::TraceRange(_)));
        let depth = below(asked.oldest).max(below(asked.newest)).saturating_add(asked.span).saturating_add(before);
        let height = match (asked.newest, best) {
            (BlockRef::Number(number), Some(best)) if number <= best => number,
            _ => 0,
        };
        Requirement { depth, height, state: reads.state(), history, ..none }
    }

    fn is_met_by(&self, held: &Held) -> bool {
        let reaches = |blocks: u64| blocks == u64::MAX || self.depth < blocks;
        (!self.state || reaches(held.state_blocks)) && (!self.history || reaches(held.history_blocks))
    }
}

/// Why a target is not asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// It serves another chain.
    Mismatch,
    /// Its software lacks the method.
    Capability,
    /// It does not hold the depth, or its tier is too low.
    Tier,
    /// It has not got the block yet.
    Height,
    /// It is on a fork.
    Fork,
}

/// Why a Call was not served by the cheapest tier that meets its Requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Its Endpoints lag.
    Lag,
    /// They are on a fork, or answered from one.
    Fork,
    /// Their Circuits, rests or budgets rejected.
    Circuit,
    /// They failed.
    Failure,
    /// They said that they lack the method.
    Capability,
    /// They said that they lack the state, or found nothing in a bounded past.
    MissingState,
    /// Nothing is known of their tips.
    UnknownTip,
}

impl Cause {
    /// All of them, in the order of their counters.
    pub const ALL: [Cause; 7] = [
        Cause::Lag,
        Cause::Fork,
        Cause::Circuit,
        Cause::Failure,
        Cause::Capability,
        Cause::MissingState,
        Cause::UnknownTip,
    ];

    /// The word in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Cause::Lag => "lag",
            Cause::Fork => "fork",
            Cause::Circuit => "circuit",
            Cause::Failure => "failure",
            Cause::Capability => "capability",
            Cause::MissingState => "missing_state",
            Cause::UnknownTip => "unknown_tip",
        }
    }
}

/// What is known of all targets at one moment, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slate {
    mismatched: u128,
    incapable: u128,
    /// Of these, nobody knows yet what they run.
    unasked: u128,
    /// Of a tier that the configuration keeps from the method.
    cheap: u128,
    shallow: u128,
    low: u128,
    fork: u128,
    fresh: u128,
    lagging: u128,
    unknown: u128,
    /// They said of late that they lack the method.
    doubtful: u128,
    /// They meet the Requirement, whatever their state is now.
    pub meets: u128,
}

/// What a node's answer lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// The state or the block: an error that says so.
    State,
    /// The method.
    Method,
    /// A look-up by hash that found nothing.
    Null,
}

/// Whom answers that lacked something leave to be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Left {
    /// Clients that lacked the method or the state.
    clients: Clients,
    /// The highest tier that did.
    tier: Option<Tier>,
    /// It was the state, so nobody cheaper has it.
    state: bool,
    /// A bounded past showed nothing: only whoever has all of it may still know.
    null: bool,
}

impl Left {
    fn allows(&self, held: &Held, client: Client) -> bool {
        if self.null && held.history_blocks != u64::MAX {
            return false;
        }
        match self.tier {
            None => true,
            Some(tier) => held.tier > tier || (!self.clients.has(client) && (!self.state || held.tier >= tier)),
        }
    }
}

impl Slate {
    /// Looks at all targets that pass the candidate filter.
    pub fn new(route: &Route, need: &Requirement, look: &impl Look, now_ns: Nanos) -> Slate {
        let mut slate = Slate::default();
        for at in bits(route.eligible) {
            let bit = 1u128 << at;
            let seen = look.seen(route.targets[at].endpoint, now_ns);
            if seen.mismatched {
                slate.mismatched |= bit;
                continue;
            }
            match seen.has {
                Has::Yes => {}
                Has::SaidNo => slate.doubtful |= bit,
                Has::No => slate.incapable |= bit,
                Has::NotKnown => (slate.incapable, slate.unasked) = (slate.incapable | bit, slate.unasked | bit),
            }
            if !route.held.get(at).is_some_and(|held| need.is_met_by(held)) {
                slate.shallow |= bit;
            }
            match seen.standing {
                Standing::Unknown => slate.unknown |= bit,
                Standing::Fresh => slate.fresh |= bit,
                Standing::Lagging => slate.lagging |= bit,
                Standing::Fork => slate.fork |= bit,
            }
            if seen.standing != Standing::Unknown && seen.tip < need.height {
                slate.low |= bit;
            }
        }
        let too_cheap = |tier: &&Tier| Some(**tier) < need.floor;
        let cheap = Tier::ALL.iter().filter(too_cheap).map(|tier| route.by_tier[*tier as usize]);
        slate.cheap = cheap.fold(0, |set, of_tier| set | of_tier);
        slate.settle(route.eligible);
        slate
    }

    /// What nobody has is asked of everybody.
    fn settle(&mut self, eligible: u128) {
        let capable = eligible & !self.mismatched & !self.incapable & !self.cheap;
        if capable & !self.shallow == 0 {
            self.shallow = 0;
        }
        self.meets = capable & !self.shallow;
        if self.meets & !self.low == 0 {
            self.low = 0;
        }
        if (self.fresh | self.lagging | self.fork) == 0 {
            self.fresh = std::mem::take(&mut self.unknown);
        }
    }

    /// Whether there is a target, and none of them has the method.
    pub fn nobody_is_capable(&self, eligible: u128) -> bool {
        let there = eligible & !self.mismatched;
        there != 0 && there & !self.incapable == 0 && there & self.unasked == 0
    }

    /// The cheapest tier that meets the Requirement.
    pub fn preferred(&self, route: &Route) -> Option<Tier> {
        Tier::ALL.into_iter().find(|tier| self.meets & route.by_tier[*tier as usize] != 0)
    }

    /// Those that may be asked.
    pub fn candidates(&self) -> u128 {
        self.meets & !self.low & !self.fork
    }

    /// Why a target is not among them.
    pub fn dropped(&self, at: usize) -> Option<Dropped> {
        let of = |set: u128| set >> at & 1 == 1;
        let reasons = [
            (self.mismatched, Dropped::Mismatch),
            (self.incapable, Dropped::Capability),
            (self.cheap | self.shallow, Dropped::Tier),
            (self.low, Dropped::Height),
            (self.fork, Dropped::Fork),
        ];
        reasons.into_iter().find(|(set, _)| of(*set)).map(|(_, why)| why)
    }

    /// Why a target that may be asked is not among the first.
    pub fn put_back(&self, at: usize) -> Option<Cause> {
        let of = |set: u128| set >> at & 1 == 1;
        let reasons =
            [(self.doubtful, Cause::Capability), (self.lagging, Cause::Lag), (self.unknown, Cause::UnknownTip)];
        reasons.into_iter().find(|(set, _)| of(*set)).map(|(_, why)| why)
    }

    /// What keeps the preferred tier from serving, as far as its state alone says it.
    fn cause(&self, route: &Route) -> Option<Cause> {
        let here = self.meets & route.by_tier[self.preferred(route)? as usize];
        let reasons = [
            (self.lagging | self.low, Cause::Lag),
            (self.fork, Cause::Fork),
            (self.unknown, Cause::UnknownTip),
            (self.doubtful, Cause::Capability),
        ];
        reasons.into_iter().find(|(set, _)| here & set != 0).map(|(_, why)| why)
    }

    /// The targets among which the next one is drawn by weight; 0 = there is none.
    pub fn first(&self, route: &Route, remaining: u128, look: &impl Look, now_ns: Nanos) -> u128 {
        let open = remaining & self.candidates();
        let (sure, doubtful) = (open & !self.doubtful, open & self.doubtful);
        let highest = |set: u128| self.highest(route, set, look, now_ns);
        let preferred = self.preferred(route);
        for tier in Tier::ALL {
            let here = sure & route.by_tier[tier as usize];
            if here & self.fresh != 0 {
                return here & self.fresh;
            }
            if Some(tier) == preferred && here != 0 && here & self.lagging == here {
                return highest(sure & (self.fresh | self.lagging));
            }
        }
        match sure & self.lagging {
            0 => cheapest(route, if sure == 0 { doubtful } else { sure }),
            lagging => highest(lagging),
        }
    }

    /// Those with the highest block; of these the cheapest.
    fn highest(&self, route: &Route, set: u128, look: &impl Look, now_ns: Nanos) -> u128 {
        let tip = |at: usize| look.seen(route.targets[at].endpoint, now_ns).tip;
        let most = bits(set).map(tip).max().unwrap_or(0);
        cheapest(route, bits(set).filter(|at| tip(*at) == most).fold(0, |kept, at| kept | 1 << at))
    }
}

/// Those of the lowest tier.
fn cheapest(route: &Route, set: u128) -> u128 {
    let of_tier = |tier: Tier| set & route.by_tier[tier as usize];
    Tier::ALL.into_iter().map(of_tier).find(|here| *here != 0).unwrap_or(0)
}

/// The positions of the set bits, lowest first.
fn bits(set: u128) -> impl Iterator<Item = usize> {
    Bits(set).map(usize::from)
}

/// An answer that is kept while a better one is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spare {
    tier: Tier,
    because: Option<Cause>,
    /// It contradicts the chain, and this was the tip of its Endpoint.
    fork_tip: Option<u64>,
}

/// The way of one Call through the tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Course {
    need: Requirement,
    left: Left,
    preferred: Option<Tier>,
    /// What kept the preferred tier from serving so far.
    cause: Option<Cause>,
    now: Option<Turn>,
    spare: Option<Spare>,
}

/// The target that is asked now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    held: Held,
    client: Client,
    tip: u64,
    because: Option<Cause>,
}

/// Which tier served a Call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// The tier.
    pub tier: Tier,
    /// The one that should have, and why it did not.
    pub instead_of: Option<(Tier, Cause)>,
    /// The answer contradicts the chain, and nobody had a better one.
    pub unresolved: bool,
}

impl Course {
    /// The way of a Call that needs this.
    pub fn new(need: Requirement) -> Course {
        Course { need, ..Course::default() }
    }

    /// The targets among which the next one is drawn.
    pub fn next(&mut self, route: &Route, remaining: u128, look: &impl Look, now_ns: Nanos) -> (u128, Option<Cause>) {
        let slate = Slate::new(route, &self.need, look, now_ns);
        self.preferred = self.preferred.or_else(|| slate.preferred(route));
        let left = match self.left == Left::default() {
            true => remaining,
            false => {
                bits(remaining).filter(|at| self.leaves(route, *at, look, now_ns)).fold(0, |kept, at| kept | 1 << at)
            }
        };
        (slate.first(route, left, look, now_ns), slate.cause(route))
    }

    /// Whether there are targets, and none has the method.
    pub fn lacks_method(&self, route: &Route, look: &impl Look, now_ns: Nanos) -> bool {
        Slate::new(route, &self.need, look, now_ns).nobody_is_capable(route.eligible)
    }

    fn leaves(&self, route: &Route, at: usize, look: &impl Look, now_ns: Nanos) -> bool {
        let client = look.seen(route.targets[at].endpoint, now_ns).client;
        route.held.get(at).is_some_and(|held| self.left.allows(held, client))
    }

    /// A target was chosen. `cause`: what the state of the preferred tier says.
    pub fn chose(&mut self, route: &Route, at: u8, cause: Option<Cause>, look: &impl Look, now_ns: Nanos) {
        let at = usize::from(at);
        let Some(held) = route.held.get(at).copied() else { return };
        let seen = look.seen(route.targets[at].endpoint, now_ns);
        let because = if Some(held.tier) == self.preferred { None } else { self.cause.or(cause) };
        self.now = Some(Turn { held, client: seen.client, tip: seen.tip, because });
    }

    /// The target that was chosen did not serve, because of this.
    pub fn missed(&mut self, cause: Cause) {
        if self.now.is_some_and(|turn| Some(turn.held.tier) == self.preferred) {
            self.cause = Some(cause);
        }
    }

    /// An answer that lacks something. `false` = it is final all the same.
    pub fn lacked(&mut self, lack: Lack) -> bool {
        let Some(turn) = self.now else { return false };
        match lack {
            Lack::Null if turn.held.history_blocks == u64::MAX => return false,
            Lack::Null => self.left.null = true,
            Lack::State | Lack::Method => {
                self.left.clients = self.left.clients.with(turn.client);
                self.left.tier = self.left.tier.max(Some(turn.held.tier));
                self.left.state |= lack == Lack::State;
            }
        }
        self.missed(if lack == Lack::Method { Cause::Capability } else { Cause::MissingState });
        true
    }

    /// Whether the answer that lacked something is kept for the case that nobody has a better one: the first is.
    pub fn keep_lacking(&mut self) -> bool {
        let Some(turn) = self.now.filter(|_| self.spare.is_none()) else { return false };
        self.spare = Some(Spare { tier: turn.held.tier, because: turn.because, fork_tip: None });
        true
    }

    /// The same for an answer that contradicts the chain: that of the highest tip is.
    pub fn keep_forked(&mut self) -> bool {
        self.missed(Cause::Fork);
        let Some(turn) = self.now else { return false };
        if self.spare.is_some_and(|spare| spare.fork_tip >= Some(turn.tip)) {
            return false;
        }
        self.spare = Some(Spare { tier: turn.held.tier, because: turn.because, fork_tip: Some(turn.tip) });
        true
    }

    /// Whether an answer is kept that goes before the error of a node that failed.
    pub fn has_spare(&self) -> bool {
        self.spare.is_some()
    }

    /// Who served, if the answer that is delivered is the last one, or the one that was kept.
    pub fn served(&self, kept: bool) -> Option<Served> {
        let spare = self.spare.filter(|_| kept);
        let (tier, because) = match (spare, self.now) {
            (Some(spare), _) => (spare.tier, spare.because),
            (None, Some(turn)) => (turn.held.tier, turn.because),
            (None, None) => return None,
        };
        let instead_of = self.preferred.filter(|preferred| *preferred != tier).zip(because);
        Some(Served { tier, instead_of, unresolved: spare.is_some_and(|spare| spare.fork_tip.is_some()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::snapshot::shares;
    use crate::logic::units::SECOND;

    struct Fleet(Vec<Seen>);
    impl Look for Fleet {
        fn seen(&self, endpoint: EndpointIx, _: Nanos) -> Seen {
            self.0[usize::from(endpoint.0)]
        }
    }

    fn held(tier: Tier) -> Held {
        match tier {
            Tier::Minimal => Held { tier, state_blocks: 128, history_blocks: 128 },
            Tier::Full => Held { tier, state_blocks: 128, history_blocks: u64::MAX },
            Tier::Archive => Held { tier, state_blocks: u64::MAX, history_blocks: u64::MAX },
        }
    }

    fn route(tiers: &[Tier]) -> Route {
        let targets: Vec<Target> =
            (0..tiers.len()).map(|at| Target { endpoint: EndpointIx(at as u16), weight: 1 }).collect();
        let eligible = (1u128 << targets.len()) - 1;
        let by_tier = Tier::ALL
            .map(|tier| tiers.iter().enumerate().filter(|(_, of)| **of == tier).fold(0, |set, (at, _)| set | 1 << at));
        Route {
            id: "r".into(),
            methods: vec![],
            strategy: Strategy::Tiered,
            shares: shares(&targets, eligible),
            held: tiers.iter().map(|tier| held(*tier)).collect(),
            by_tier,
            targets,
            eligible,
            max_attempts: 3,
            attempt_timeout_ns: SECOND,
            version: 1,
        }
    }

    fn at(standing: Standing, tip: u64) -> Seen {
        Seen { standing, tip, ..Seen::default() }
    }

    fn fresh(tip: u64) -> Seen {
        at(Standing::Fresh, tip)
    }

    const MFA: [Tier; 3] = Tier::ALL;

    fn first(tiers: &[Tier], fleet: &[Seen], need: Requirement) -> u128 {
        let (route, fleet) = (route(tiers), Fleet(fleet.to_vec()));
        let slate = Slate::new(&route, &need, &fleet, 0);
        slate.first(&route, route.eligible, &fleet, 0)
    }

    #[test]
    fn the_cheapest_fresh_one_that_holds_the_depth_goes_first() {
        let fleet = [fresh(1_000), fresh(1_000), fresh(1_000)];
        let need = |reads, oldest| {
            let past = Asked { oldest, newest: oldest, span: 0 };
            Requirement::of(reads, None, Some(past), Some(1_000), 64)
        };
        for (reads, block, chosen) in [
            (Reads::State(1), BlockRef::Latest, 0b001),
            (Reads::State(1), BlockRef::Pending, 0b001),
            (Reads::State(1), BlockRef::Finalized, 0b001),
            (Reads::State(1), BlockRef::Number(873), 0b001),
            (Reads::State(1), BlockRef::Number(872), 0b100),
            (Reads::Trace(0), BlockRef::Number(874), 0b001),
            (Reads::Trace(0), BlockRef::Number(873), 0b100),
            (Reads::Block(0), BlockRef::Number(873), 0b001),
            (Reads::Block(0), BlockRef::Number(872), 0b010),
            (Reads::Block(0), BlockRef::Earliest, 0b010),
            (Reads::State(1), BlockRef::Earliest, 0b100),
            (Reads::State(1), BlockRef::Number(5_000), 0b001),
            (Reads::State(1), BlockRef::Unreadable, 0b100),
            (Reads::ByHash, BlockRef::Hash, 0b001),
        ] {
            assert_eq!(first(&MFA, &fleet, need(reads, block)), chosen, "{reads:?} {block:?}");
        }
    }

    #[test]
    fn to_find_nothing_by_hash_says_something_of_bodies_receipts_and_logs() {
        let by_hash = Asked { oldest: BlockRef::Hash, newest: BlockRef::Hash, span: 0 };
        let need = |reads, asked| Requirement::of(reads, None, Some(asked), Some(1_000), 64).by_hash;
        for reads in [Reads::ByHash, Reads::TraceByHash, Reads::Block(0), Reads::Logs(0), Reads::Trace(0)] {
            assert!(need(reads, by_hash), "{reads:?}");
        }
        assert!(!need(Reads::State(1), by_hash), "a node that lacks the state says so");
        assert!(!need(Reads::Logs(0), Asked::default()) && !need(Reads::Block(0), Asked::default()));
    }

    #[test]
    fn a_range_needs_its_oldest_block_and_fees_the_whole_span() {
        let logs = Asked { oldest: BlockRef::Number(10), newest: BlockRef::Latest, span: 0 };
        let need = Requirement::of(Reads::Logs(0), None, Some(logs), Some(1_000), 64);
        assert_eq!((need.depth, need.state, need.history, need.height), (990, false, true, 0));
        let fees = Asked { oldest: BlockRef::Latest, newest: BlockRef::Latest, span: 200 };
        assert_eq!(Requirement::of(Reads::Fees, None, Some(fees), Some(1_000), 64).depth, 200);
        let floor = Requirement::of(Reads::Nothing, Some(Tier::Full), None, Some(1_000), 64);
        assert_eq!(first(&MFA, &[fresh(9), fresh(9), fresh(9)], floor), 0b010, "a row may ask for a tier");
    }

    #[test]
    fn without_a_tip_nothing_is_deep_but_the_beginning() {
        let number = Asked { oldest: BlockRef::Number(1), newest: BlockRef::Number(1), span: 0 };
        let need = Requirement::of(Reads::State(1), None, Some(number), None, 64);
        assert_eq!((need.depth, need.height), (0, 0));
        let earliest = Asked { oldest: BlockRef::Earliest, newest: BlockRef::Earliest, span: 0 };
        assert_eq!(Requirement::of(Reads::State(1), None, Some(earliest), None, 64).depth, u64::MAX);
    }

    #[test]
    fn lagging_ones_in_the_preferred_tier_send_the_call_to_the_highest_block() {
        let lag = |tip| at(Standing::Lagging, tip);
        let any = Requirement::default();
        assert_eq!(first(&MFA, &[lag(90), fresh(99), fresh(100)], any), 0b100);
        assert_eq!(first(&MFA, &[lag(90), fresh(100), fresh(100)], any), 0b010, "the cheaper of the highest");
        assert_eq!(first(&MFA, &[fresh(98), lag(90), fresh(100)], any), 0b001);
        assert_eq!(first(&[MFA[0], MFA[0], MFA[2]], &[lag(90), fresh(99), fresh(100)], any), 0b010);
        assert_eq!(first(&MFA, &[lag(90), lag(91), lag(80)], any), 0b010);
    }

    #[test]
    fn an_unknown_tip_is_never_taken_for_fresh_unless_none_is_known() {
        let none = Seen::default();
        let any = Requirement::default();
        assert_eq!(first(&MFA, &[none, fresh(99), none], any), 0b010);
        assert_eq!(first(&MFA, &[none, at(Standing::Lagging, 7), none], any), 0b010);
        assert_eq!(first(&MFA, &[none, none, none], any), 0b001);
        assert_eq!(first(&MFA, &[none, at(Standing::Fork, 7), none], any), 0b001);
    }

    #[test]
    fn a_fork_is_never_asked_and_a_block_only_where_it_is() {
        let fork = at(Standing::Fork, 100);
        let any = Requirement::default();
        assert_eq!(first(&MFA, &[fork, fresh(99), fresh(99)], any), 0b010);
        assert_eq!(first(&MFA[..1], &[fork], any), 0, "not even where it is the only one");
        let need = Requirement { height: 100, ..any };
        assert_eq!(first(&MFA, &[fresh(99), fresh(100), fresh(100)], need), 0b010);
        assert_eq!(first(&MFA, &[fresh(99), fresh(99), fresh(98)], need), 0b001, "nobody has it");
    }

    #[test]
    fn who_lacks_the_method_is_left_out_and_who_said_so_comes_last() {
        let lacks = |has| Seen { has, ..fresh(100) };
        let any = Requirement::default();
        assert_eq!(first(&MFA, &[lacks(Has::No), fresh(100), fresh(100)], any), 0b010);
        assert_eq!(first(&MFA, &[lacks(Has::SaidNo), fresh(100), fresh(100)], any), 0b010);
        assert_eq!(first(&MFA, &[lacks(Has::SaidNo), lacks(Has::No), lacks(Has::No)], any), 0b001);
        let (route, nobody) = (route(&MFA), Fleet(vec![lacks(Has::No); 3]));
        let slate = Slate::new(&route, &any, &nobody, 0);
        assert!(slate.nobody_is_capable(route.eligible) && !slate.nobody_is_capable(0));
        assert_eq!(slate.first(&route, route.eligible, &nobody, 0), 0);
        let mismatched = Seen { mismatched: true, ..fresh(100) };
        assert_eq!(first(&MFA, &[mismatched, fresh(100), fresh(100)], any), 0b010);
        assert_eq!(Slate::new(&route, &any, &Fleet(vec![mismatched; 3]), 0).dropped(1), Some(Dropped::Mismatch));
    }

    /// Asks and answers by hand: what is chosen next after each event.
    struct Walk {
        route: Route,
        fleet: Fleet,
        course: Course,
        remaining: u128,
    }

    impl Walk {
        fn new(tiers: &[Tier], fleet: &[Seen], need: Requirement) -> Walk {
            let route = route(tiers);
            Walk { remaining: route.eligible, route, fleet: Fleet(fleet.to_vec()), course: Course::new(need) }
        }

        fn next(&mut self) -> Option<u8> {
            let (set, cause) = self.course.next(&self.route, self.remaining, &self.fleet, 0);
            let at = (set != 0).then(|| set.trailing_zeros() as u8)?;
            self.course.chose(&self.route, at, cause, &self.fleet, 0);
            self.remaining &= !(1 << at);
            Some(at)
        }

        fn served(&self, kept: bool) -> (Tier, Option<(Tier, Cause)>) {
            let served = self.course.served(kept).unwrap();
            (served.tier, served.instead_of)
        }
    }

    #[test]
    fn missing_state_goes_to_a_higher_tier_or_another_client_and_the_first_error_is_kept() {
        let of = |client| Seen { client, ..fresh(100) };
        let fleet = [of(Client::Geth), of(Client::Geth), of(Client::Reth), of(Client::Erigon)];
        let mut walk = Walk::new(&[MFA[0], MFA[1], MFA[1], MFA[2]], &fleet, Requirement::default());
        assert_eq!(walk.next(), Some(0));
        assert!(walk.course.lacked(Lack::State) && walk.course.keep_lacking());
        assert_eq!(walk.next(), Some(1), "a higher tier");
        assert!(walk.course.lacked(Lack::State) && !walk.course.keep_lacking());
        assert_eq!(walk.next(), Some(2), "the same tier, another client");
        assert_eq!(walk.served(false), (Tier::Full, Some((Tier::Minimal, Cause::MissingState))));
        assert!(walk.course.lacked(Lack::State));
        assert_eq!(walk.next(), Some(3));
        assert_eq!(walk.next(), None);
        assert_eq!(walk.served(true), (Tier::Minimal, None), "the kept error is of the first");
        let mut same = Walk::new(&[MFA[0], MFA[0]], &fleet[..2], Requirement::default());
        same.next();
        assert!(same.course.lacked(Lack::State));
        assert_eq!(same.next(), None, "one more of the same would say the same");
    }

    #[test]
    fn a_lacking_method_may_be_had_of_another_client_in_any_tier() {
        let of = |client| Seen { client, ..fresh(100) };
        let fleet = [of(Client::Geth), of(Client::Geth), of(Client::Reth)];
        let mut walk = Walk::new(&[MFA[1], MFA[1], MFA[2]], &fleet, Requirement::default());
        walk.next();
        assert!(walk.course.lacked(Lack::Method));
        assert_eq!(walk.next(), Some(2));
        assert_eq!(walk.served(false), (Tier::Archive, Some((Tier::Full, Cause::Capability))));
    }

    #[test]
    fn nothing_found_in_a_bounded_past_is_looked_up_once_more_in_a_whole_one() {
        let fleet = [fresh(100); 4];
        let need = Requirement { by_hash: true, ..Requirement::default() };
        let mut walk = Walk::new(&[MFA[0], MFA[0], MFA[1], MFA[2]], &fleet, need);
        walk.next();
        assert!(walk.course.lacked(Lack::Null) && walk.course.keep_lacking());
        assert_eq!(walk.next(), Some(2), "the cheapest that has all of it");
        assert!(!walk.course.lacked(Lack::Null), "and its word is final");
        assert_eq!(walk.served(false), (Tier::Full, Some((Tier::Minimal, Cause::MissingState))));
    }

    #[test]
    fn of_answers_on_a_fork_the_one_of_the_highest_tip_is_kept() {
        let fleet = [fresh(99), fresh(101), fresh(100)];
        let mut walk = Walk::new(&MFA, &fleet, Requirement::default());
        walk.next();
        assert!(walk.course.keep_forked());
        walk.next();
        assert!(walk.course.keep_forked(), "a higher tip");
        walk.next();
        assert!(!walk.course.keep_forked(), "a lower one");
        let served = walk.course.served(true).unwrap();
        assert_eq!((served.tier, served.unresolved), (Tier::Full, true));
        assert_eq!(served.instead_of, Some((Tier::Minimal, Cause::Fork)));
    }

    #[test]
    fn a_fallback_has_the_cause_that_kept_the_preferred_tier_from_serving() {
        for (minimal, event, cause) in [
            (at(Standing::Lagging, 90), None, Some(Cause::Lag)),
            (at(Standing::Fork, 100), None, Some(Cause::Fork)),
            (Seen::default(), None, Some(Cause::UnknownTip)),
            (fresh(100), Some(Cause::Failure), Some(Cause::Failure)),
            (fresh(100), Some(Cause::Circuit), Some(Cause::Circuit)),
            (Seen { has: Has::No, ..fresh(100) }, None, None),
            (Seen { has: Has::SaidNo, ..fresh(100) }, None, Some(Cause::Capability)),
        ] {
            let mut walk = Walk::new(&MFA, &[minimal, fresh(100), fresh(100)], Requirement::default());
            if let Some(event) = event {
                assert_eq!(walk.next(), Some(0));
                walk.course.missed(event);
            }
            assert_eq!(walk.next(), Some(1));
            assert_eq!(walk.served(false), (Tier::Full, cause.map(|cause| (Tier::Minimal, cause))), "{minimal:?}");
        }
        let deep = Requirement { depth: 500, state: true, ..Requirement::default() };
        let mut walk = Walk::new(&MFA, &[fresh(100); 3], deep);
        assert_eq!(walk.next(), Some(2));
        assert_eq!(walk.served(false), (Tier::Archive, None), "needing an archive is no fallback");
    }

    #[test]
    fn what_no_target_holds_is_asked_of_the_cheapest() {
        let deep = Requirement { depth: 500, state: true, ..Requirement::default() };
        assert_eq!(first(&[MFA[0], MFA[1]], &[fresh(100), fresh(100)], deep), 0b01);
        let mut walk = Walk::new(&[MFA[0], MFA[2]], &[fresh(100), fresh(100)], deep);
        assert_eq!(walk.next(), Some(1));
        walk.course.missed(Cause::Failure);
        assert_eq!(walk.next(), None, "never of one that can't have it while another may");
    }
}
