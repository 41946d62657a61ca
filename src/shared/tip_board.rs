//! What trackers know of Endpoints and chains, where every shard sees it without waiting.
//!
//! The facts of one Endpoint have one writer, the shard that tracks it; what callers' shards write is only that a
//! method is lacking, and that a poll is wanted. Nothing is written for a Call that goes well.

use crate::logic::block::Hash;
use crate::logic::chain::Standing;
use crate::logic::facts::{Client, client_of};
use crate::logic::methods::MethodId;
use crate::logic::snapshot::{EndpointIx, Snapshot, Strategy, Target};
use crate::logic::units::{Nanos, SECOND};
use crate::shared::atomics::{AtomicU64, Relaxed};
use crate::shared::counters::Cell;
use arc_swap::ArcSwapOption;
use crossbeam_utils::CachePadded;
use std::sync::Arc;

/// So many of the newest blocks are compared.
pub const WINDOW: u64 = 256;
/// Methods of one Endpoint that are remembered as lacking.
const LEARNED_MAX: usize = 8;
/// So long that is believed.
pub const LEARNED_NS: Nanos = 300 * SECOND;
/// Upper bounds of the depths of re-orgs, in blocks.
pub const DEPTHS: [u64; 9] = [1, 2, 3, 4, 6, 8, 16, 64, 256];

/// Where things stand in the word of an Endpoint.
const CLIENT_AT: u32 = 2;
const MISMATCHED_AT: u32 = 5;
const IDENTIFIED_AT: u32 = 6;
const TIP_AT: u32 = 7;

/// What a tracker says of an Endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// How its chain stands.
    pub standing: Standing,
    /// Its newest block.
    pub tip: u64,
    /// Its software.
    pub client: Client,
    /// It was asked for it, or its configuration says it.
    pub identified: bool,
    /// It serves another chain.
    pub mismatched: bool,
}

/// Wishes for a poll at once. One poll grants all that were made before it began.
#[derive(Debug, Default)]
pub struct Wish {
    wanted: AtomicU64,
    polled: AtomicU64,
}

impl Wish {
    /// Asks for a poll at once; gives the number that [`Wish::granted`] reaches when it is done.
    pub fn make(&self) -> u64 {
        self.wanted.fetch_add(1, Relaxed) + 1
    }

    /// The number of the newest wish.
    pub fn made(&self) -> u64 {
        self.wanted.load(Relaxed)
    }

    /// The newest wish that a poll was begun and ended for.
    pub fn granted(&self) -> u64 {
        self.polled.load(Relaxed)
    }

    /// A poll that was begun when so much was wanted has ended; only the tracking shard may.
    pub fn grant(&self, wanted: u64) {
        self.polled.store(wanted, Relaxed);
    }
}

/// One Endpoint.
#[derive(Debug)]
pub struct EndpointTips {
    word: AtomicU64,
    /// Nothing is known of its tip from then on.
    good_until_ns: AtomicU64,
    lag: AtomicU64,
    /// Namespaces that it does not offer, by the table's numbers.
    closed: AtomicU64,
    /// One bit for each method below, so that most Calls look no further.
    learned: AtomicU64,
    /// Method (16 bits, one more than its id) and the second until which it is taken for lacking.
    lacking: [AtomicU64; LEARNED_MAX],
    /// Polls out of turn.
    pub wish: Wish,
    version: ArcSwapOption<String>,
    /// Polls that brought a block.
    pub polls_ok: Cell,
    /// Polls that did not.
    pub polls_failed: Cell,
}

impl EndpointTips {
    fn new(client: Option<Client>) -> EndpointTips {
        let tips = EndpointTips {
            word: AtomicU64::default(),
            good_until_ns: AtomicU64::default(),
            lag: AtomicU64::default(),
            closed: AtomicU64::default(),
            learned: AtomicU64::default(),
            lacking: Default::default(),
            wish: Wish::default(),
            version: ArcSwapOption::default(),
            polls_ok: Cell::default(),
            polls_failed: Cell::default(),
        };
        let (identified, client) = (client.is_some(), client.unwrap_or(Client::Unknown));
        let told = Told { standing: Standing::Unknown, tip: 0, client, identified, mismatched: false };
        tips.tell(told, 0, 0);
        tips
    }

    /// Writes what is known; only the tracking shard may.
    pub fn tell(&self, told: Told, lag: u64, good_until_ns: Nanos) {
        let word = told.standing as u64
            | (told.client as u64) << CLIENT_AT
            | u64::from(told.mismatched) << MISMATCHED_AT
            | u64::from(told.identified) << IDENTIFIED_AT
            | told.tip.min(u64::MAX >> TIP_AT) << TIP_AT;
        // A reader between the two sees an old end of a new sample at worst: unknown, and never fresh for too long.
        self.lag.store(lag, Relaxed);
        self.word.store(word, Relaxed);
        self.good_until_ns.store(good_until_ns, Relaxed);
    }

    /// What is known now.
    pub fn told(&self, now_ns: Nanos) -> Told {
        let word = self.word.load(Relaxed);
        let standing = match word & 3 {
            // That ends when it agrees, and not by itself.
            3 => Standing::Fork,
            _ if self.good_until_ns.load(Relaxed) < now_ns => Standing::Unknown,
            1 => Standing::Fresh,
            2 => Standing::Lagging,
            _ => Standing::Unknown,
        };
        let (mismatched, identified) = (word >> MISMATCHED_AT & 1 == 1, word >> IDENTIFIED_AT & 1 == 1);
        Told {
            identified,
            standing,
            tip: word >> TIP_AT,
            client: Client::ALL[(word >> CLIENT_AT & 7) as usize % Client::ALL.len()],
            mismatched,
        }
    }

    /// Blocks behind the best tip when it was last seen.
    pub fn lag(&self) -> u64 {
        self.lag.load(Relaxed)
    }

    /// Namespaces that it does not offer; only the tracking shard may.
    pub fn lacks_namespaces(&self, namespaces: u64) {
        self.closed.store(namespaces, Relaxed);
    }

    /// The namespaces that it does not offer.
    pub fn closed(&self) -> u64 {
        self.closed.load(Relaxed)
    }

    /// It said that it lacks a method. Any shard may say so; of two at once one may be lost, and is learned again.
    pub fn learn(&self, method: MethodId, now_ns: Nanos) {
        let until_s = (now_ns + LEARNED_NS) / SECOND;
        let entry = (u64::from(method.0) + 1) << 48 | until_s;
        let entries = || self.lacking.iter().map(|cell| cell.load(Relaxed)).enumerate();
        let same = entries().find(|(_, entry)| entry >> 48 == u64::from(method.0) + 1);
        let oldest = || entries().min_by_key(|(_, entry)| entry & (u64::MAX >> 16));
        if let Some((at, _)) = same.or_else(oldest) {
            self.lacking[at].store(entry, Relaxed);
            self.learned.fetch_or(1 << (method.0 & 63), Relaxed);
        }
    }

    /// Whether it said so of late.
    pub fn said_no(&self, method: MethodId, now_ns: Nanos) -> bool {
        if self.learned.load(Relaxed) >> (method.0 & 63) & 1 == 0 {
            return false;
        }
        let is_it = |entry: u64| entry >> 48 == u64::from(method.0) + 1 && (entry & (u64::MAX >> 16)) * SECOND > now_ns;
        self.lacking.iter().any(|cell| is_it(cell.load(Relaxed)))
    }

    /// Its `web3_clientVersion`, for people.
    pub fn version(&self) -> Option<Arc<String>> {
        self.version.load_full()
    }

    /// Writes it.
    pub fn set_version(&self, version: Option<Arc<String>>) {
        self.version.store(version);
    }
}

/// One chain.
#[derive(Debug)]
pub struct NetworkTips {
    /// One more than the newest block; 0 = none is known.
    best: AtomicU64,
    /// Polls out of turn of whoever has it.
    pub wish: Wish,
    /// By number modulo [`WINDOW`]: 16 bits of what is above, and 48 of the hash, so that one word is never torn.
    window: Box<[AtomicU64]>,
    /// Re-orgs that were seen.
    pub reorgs: Cell,
    /// By depth.
    pub depths: [Cell; DEPTHS.len() + 1],
    /// Blocks that were given up, in sum.
    pub depth_sum: Cell,
}

impl Default for NetworkTips {
    fn default() -> NetworkTips {
        NetworkTips {
            best: AtomicU64::default(),
            wish: Wish::default(),
            window: (0..WINDOW).map(|_| AtomicU64::default()).collect(),
            reorgs: Cell::default(),
            depths: Default::default(),
            depth_sum: Cell::default(),
        }
    }
}

impl NetworkTips {
    /// The newest block.
    pub fn best(&self) -> Option<u64> {
        self.best.load(Relaxed).checked_sub(1)
    }

    /// Writes it; only the tracking shard may.
    pub fn set_best(&self, best: Option<u64>) {
        self.best.store(best.map_or(0, |number| number.saturating_add(1)), Relaxed);
    }

    /// The hash of a block on the canonical chain is this; only the tracking shard may.
    pub fn set_canonical(&self, number: u64, hash: Option<&Hash>) {
        self.window[slot(number)].store(hash.map_or(0, |hash| word(number, hash)), Relaxed);
    }

    /// Whether a block is on the canonical chain; `None` = nothing is known of this number.
    pub fn agrees(&self, number: u64, hash: &Hash) -> Option<bool> {
        let best = self.best()?;
        let known = self.window[slot(number)].load(Relaxed);
        if number > best || best - number >= WINDOW || known == 0 {
            return None;
        }
        let word = word(number, hash);
        (word >> 48 == known >> 48).then_some(word == known)
    }

    /// Counts a re-org; only the tracking shard may.
    pub fn reorganised(&self, depth: u64) {
        self.reorgs.add(1);
        self.depth_sum.add(depth);
        self.depths[DEPTHS.partition_point(|bound| *bound < depth)].add(1);
    }
}

/// Where a number stands in the window.
fn slot(number: u64) -> usize {
    (number % WINDOW) as usize
}

/// Never 0, so that an empty slot can be told: the numbers of the first window count from 1.
fn word(number: u64, hash: &Hash) -> u64 {
    let [.., a, b, c, d, e, f] = *hash;
    let tail = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    (number / WINDOW + 1) << 48 | tail
}

/// All of it, for one Snapshot.
#[derive(Debug, Default)]
pub struct TipBoard {
    endpoints: Vec<Option<Arc<CachePadded<EndpointTips>>>>,
    networks: Vec<Arc<NetworkTips>>,
    network_of: Vec<u16>,
    mismatches: AtomicU64,
}

impl TipBoard {
    /// The board of a Snapshot. What `before` knew of an Endpoint at the same place and of a chain goes on.
    pub fn new(snapshot: &Snapshot, before: Option<(&Snapshot, &TipBoard)>) -> TipBoard {
        let old_endpoint = |at: usize| {
            let endpoint = &snapshot.endpoints[at];
            let (old, board) = before?;
            let was = old.endpoints.iter().position(|old| old.id == endpoint.id)?;
            let old = &old.endpoints[was];
            let same = old.is_reached_like(endpoint) && old.client == endpoint.client && old.chain == endpoint.chain;
            board.endpoints[was].clone().filter(|_| same && old.network == endpoint.network)
        };
        let tracked = tracked(snapshot);
        let endpoint = |(at, endpoint): (usize, &crate::logic::snapshot::Endpoint)| {
            let client = endpoint.client.as_deref().map(client_of);
            tracked[at]
                .then(|| old_endpoint(at).unwrap_or_else(|| Arc::new(CachePadded::new(EndpointTips::new(client)))))
        };
        let place = |chain: &str, network: &str| {
            let same = |one: &crate::logic::snapshot::Network| *one.chain == *chain && *one.network == *network;
            snapshot.networks.iter().position(same)
        };
        let old_network = |network: &crate::logic::snapshot::Network| {
            let (old, board) = before?;
            let same =
                |one: &crate::logic::snapshot::Network| one.chain == network.chain && one.network == network.network;
            let was = old.networks.iter().position(same)?;
            board.networks.get(was).cloned()
        };
        let network_of = snapshot.endpoints.iter().map(|one| place(&one.chain, &one.network).unwrap_or(0) as u16);
        TipBoard {
            endpoints: snapshot.endpoints.iter().enumerate().map(endpoint).collect(),
            networks: snapshot.networks.iter().map(|one| old_network(one).unwrap_or_default()).collect(),
            network_of: network_of.collect(),
            mismatches: AtomicU64::new(before.map_or(0, |(_, board)| board.mismatches.load(Relaxed))),
        }
    }

    /// Whether there is anything to follow.
    pub fn any_tracked(&self) -> bool {
        self.endpoints.iter().any(Option::is_some)
    }

    /// Whether each Endpoint that is followed has been polled, well or not.
    pub fn all_polled(&self) -> bool {
        let polled = |tips: &EndpointTips| tips.polls_ok.get() + tips.polls_failed.get() > 0;
        self.endpoints.iter().flatten().all(|tips| polled(tips))
    }

    /// What is known of an Endpoint, if it is tracked.
    pub fn endpoint(&self, at: EndpointIx) -> Option<&EndpointTips> {
        self.endpoints.get(usize::from(at.0))?.as_ref().map(|tips| &***tips)
    }

    /// What is known of the chain of an Endpoint.
    pub fn network_of(&self, at: EndpointIx) -> Option<&NetworkTips> {
        self.network(usize::from(*self.network_of.get(usize::from(at.0))?))
    }

    /// What is known of a chain.
    pub fn network(&self, at: usize) -> Option<&NetworkTips> {
        self.networks.get(at).map(|network| &**network)
    }

    /// The place of an Endpoint's chain in the Snapshot.
    pub fn network_ix(&self, at: EndpointIx) -> usize {
        self.network_of.get(usize::from(at.0)).map_or(0, |at| usize::from(*at))
    }

    /// Notes that some Endpoint was found on another chain, so that Calls look.
    pub fn note_mismatch(&self) {
        self.mismatches.store(1, Relaxed);
    }

    /// Whether an Endpoint was found on another chain. Where none ever was, this is one look at a line that nobody
    /// writes.
    pub fn is_mismatched(&self, at: EndpointIx) -> bool {
        self.mismatches.load(Relaxed) != 0 && self.endpoint(at).is_some_and(|tips| tips.told(0).mismatched)
    }
}

/// By Endpoint: whether a tiered Route may send Calls to it.
fn tracked(snapshot: &Snapshot) -> Vec<bool> {
    let mut tracked = vec![false; snapshot.endpoints.len()];
    let routes = snapshot.gateways.iter().flat_map(|gateway| &gateway.routes);
    for route in routes.filter(|route| route.strategy == Strategy::Tiered) {
        let eligible = |(at, _): &(usize, &Target)| route.eligible >> at & 1 == 1;
        route.targets.iter().enumerate().filter(eligible).for_each(|(_, target)| {
            tracked[usize::from(target.endpoint.0)] = true;
        });
    }
    tracked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_read_until_it_is_old() {
        let tips = EndpointTips::new(Some(Client::Reth));
        let told =
            Told { standing: Standing::Unknown, tip: 0, client: Client::Reth, identified: true, mismatched: false };
        assert_eq!(tips.told(1), told);
        assert!(!EndpointTips::new(None).told(1).identified);
        for standing in [Standing::Fresh, Standing::Lagging, Standing::Fork] {
            for client in Client::ALL {
                let told =
                    Told { standing, tip: 27_000_000, client, identified: true, mismatched: client == Client::Besu };
                tips.tell(told, 7, 100);
                assert_eq!((tips.told(100), tips.lag()), (told, 7));
                let later = if standing == Standing::Fork { standing } else { Standing::Unknown };
                assert_eq!(tips.told(101), Told { standing: later, ..told }, "the sample is too old");
            }
        }
    }

    #[test]
    fn a_lacking_method_is_remembered_for_a_while() {
        let tips = EndpointTips::new(None);
        let (one, same_bit) = (MethodId(3), MethodId(67));
        assert!(!tips.said_no(one, 0));
        tips.learn(one, SECOND);
        assert!(tips.said_no(one, SECOND) && tips.said_no(one, LEARNED_NS) && !tips.said_no(same_bit, SECOND));
        assert!(!tips.said_no(one, LEARNED_NS + 2 * SECOND));
        for more in 0..20 {
            tips.learn(MethodId(100 + more), 2 * SECOND);
        }
        assert!(!tips.said_no(one, 2 * SECOND), "the oldest makes room");
        assert!(tips.said_no(MethodId(119), 2 * SECOND));
    }

    #[test]
    fn a_block_is_compared_within_the_window_only() {
        let network = NetworkTips::default();
        let hash = |byte| [byte; 32];
        assert_eq!(network.agrees(7, &hash(1)), None);
        network.set_best(Some(1_000));
        assert_eq!(network.best(), Some(1_000));
        network.set_canonical(1_000, Some(&hash(1)));
        network.set_canonical(745, Some(&hash(0)));
        assert_eq!(network.agrees(1_000, &hash(1)), Some(true));
        assert_eq!(network.agrees(1_000, &hash(2)), Some(false));
        assert_eq!(network.agrees(745, &hash(0)), Some(true), "a hash of zeros is a hash");
        for (number, why) in [(744, "too old"), (1_001, "too new"), (999, "a gap"), (1_000 + WINDOW, "the same slot")] {
            assert_eq!(network.agrees(number, &hash(1)), None, "{why}");
        }
        network.set_canonical(1_000, None);
        assert_eq!(network.agrees(1_000, &hash(2)), None);
        network.set_best(None);
        assert_eq!((network.best(), network.agrees(745, &hash(0))), (None, None));
    }

    #[test]
    fn one_poll_grants_the_wishes_that_were_made_before_it_began() {
        let wish = Wish::default();
        let (one, two) = (wish.make(), wish.make());
        let begun = wish.made();
        let late = wish.make();
        wish.grant(begun);
        assert!(wish.granted() >= one && wish.granted() >= two && wish.granted() < late);
    }

    #[test]
    fn depths_are_counted_by_their_bounds() {
        let network = NetworkTips::default();
        [1, 1, 5, 300].into_iter().for_each(|depth| network.reorganised(depth));
        let counts: Vec<u64> = network.depths.iter().map(Cell::get).collect();
        assert_eq!(counts, [2, 0, 0, 0, 1, 0, 0, 0, 0, 1]);
        assert_eq!((network.reorgs.get(), network.depth_sum.get()), (4, 307));
    }
}
