//! Follows the chains behind tiered Routes: one shard polls each Endpoint, and writes what it finds where all see it.
//!
//! What a sample means is decided by `logic::chain`; here it is asked for, and told. Polls are Ringway's own: they
//! are no attempts, no Circuit hears of them, and no caller waits for one (but see `net::tiered::ask_again`).

use crate::logic::block::Header;
use crate::logic::chain::Standing;
use crate::logic::chain::{Chain, FILLS_MAX, Rules};
use crate::logic::snapshot::{EndpointIx, Network};
use crate::logic::units::{MS, Nanos, SECOND};
use crate::net::identity::{self, Identity};
use crate::net::own_call::OwnCalls;
use crate::net::ring;
use crate::net::shard::{Current, Shard};
use crate::shared::journal::{Incident, What};
use crate::shared::tip_board::{EndpointTips, Told};
use crate::wire::block_header::header;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// The longest that a poll may take.
const POLL_TIMEOUT_MAX_NS: Nanos = 5 * SECOND;
/// The shortest time that it is given.
const POLL_TIMEOUT_MIN_NS: Nanos = 500 * MS;

/// All chains that this shard follows.
#[derive(Default)]
pub struct Trackers {
    all: RefCell<Vec<Rc<Tracker>>>,
    /// The Snapshot that they are of.
    current: RefCell<Option<Rc<Current>>>,
}

/// One chain.
struct Tracker {
    current: Rc<Current>,
    /// Its place in the Snapshot.
    network: usize,
    /// Chain and network, as the log names them.
    name: Arc<str>,
    followed: Vec<RefCell<Followed>>,
    chain: RefCell<Chain>,
    /// Another one has taken its place: a poll that ends now has nothing to tell.
    replaced: Cell<bool>,
}

/// What was wished for when a poll began.
#[derive(Clone, Copy)]
struct Wishes {
    own: u64,
    /// Of whoever has the newest block.
    best: u64,
}

/// One Endpoint of it.
struct Followed {
    at: EndpointIx,
    due_ns: Nanos,
    polling: bool,
    identity: Identity,
    /// Both as the log knows them.
    standing: Standing,
    mismatched: bool,
}

impl Trackers {
    /// Begins the polls that are due. Called once a tick.
    pub fn each_tick(&self, shard: &Rc<Shard>, current: &Rc<Current>, now_ns: Nanos) {
        self.follow(shard, current, now_ns);
        for tracker in self.all.borrow().iter() {
            for slot in 0..tracker.followed.len() {
                tracker.clone().poll_if_due(shard, slot, now_ns);
            }
        }
    }

    /// Takes a new Snapshot: what is followed as before goes on.
    fn follow(&self, shard: &Shard, current: &Rc<Current>, now_ns: Nanos) {
        if self.current.borrow().as_ref().is_some_and(|of| Rc::ptr_eq(of, current)) {
            return;
        }
        *self.current.borrow_mut() = Some(current.clone());
        let mut trackers = self.all.borrow_mut();
        let before = std::mem::take(&mut *trackers);
        let networks = 0..current.live.snapshot.networks.len();
        let own = networks.filter(|network| network % shard.world.shards == shard.index);
        trackers.extend(own.filter_map(|network| Tracker::new(current, network, &before, now_ns)).map(Rc::new));
        before.iter().for_each(|old| old.replaced.set(true));
    }
}

impl Tracker {
    fn new(current: &Rc<Current>, network: usize, before: &[Rc<Tracker>], now_ns: Nanos) -> Option<Tracker> {
        let tips = &current.live.tips;
        let all = (0..current.live.snapshot.endpoints.len()).map(|at| EndpointIx(at as u16));
        let tracked: Vec<EndpointIx> =
            all.filter(|at| tips.endpoint(*at).is_some() && tips.network_ix(*at) == network).collect();
        let facts = current.live.snapshot.networks.get(network)?;
        if tracked.is_empty() {
            return None;
        }
        let same_chain = |old: &&Rc<Tracker>| {
            let was = old.facts();
            (&was.chain, &was.network) == (&facts.chain, &facts.network)
        };
        let old = before.iter().find(same_chain);
        let rules = Rules { poll_interval_ns: facts.poll_interval_ns, max_lag: facts.max_lag };
        let goes_on = old.filter(|old| old.facts() == facts && old.ids().eq(ids(current, &tracked)));
        let chain = goes_on.map(|old| old.chain.replace(Chain::new(0, rules)));
        let step_ns = facts.poll_interval_ns / tracked.len() as u64;
        let follow = |(slot, at): (usize, &EndpointIx)| {
            let was = goes_on.map(|old| old.followed[slot].borrow());
            // At first all at once, and from then on each in its own part of the interval.
            let (due_ns, identity, (standing, mismatched)) = match was {
                Some(was) if tips.endpoint(*at).is_some_and(|tips| tips.polls_ok.get() > 0) => {
                    (was.due_ns.max(now_ns), was.identity, (was.standing, was.mismatched))
                }
                _ => {
                    let client = current.live.snapshot.endpoints[usize::from(at.0)].client.as_deref();
                    let first_ns = now_ns.saturating_sub(step_ns * slot as u64);
                    (first_ns, Identity::configured(client), (Standing::Unknown, false))
                }
            };
            RefCell::new(Followed { at: *at, due_ns, polling: false, identity, standing, mismatched })
        };
        Some(Tracker {
            current: current.clone(),
            network,
            name: format!("{}/{}", facts.chain, facts.network).into(),
            followed: tracked.iter().enumerate().map(follow).collect(),
            chain: RefCell::new(chain.unwrap_or_else(|| Chain::new(tracked.len(), rules))),
            replaced: Cell::new(false),
        })
    }

    fn facts(&self) -> &Network {
        &self.current.live.snapshot.networks[self.network]
    }

    fn ids(&self) -> impl Iterator<Item = &str> {
        self.followed.iter().map(|one| &*self.current.live.snapshot.endpoints[usize::from(one.borrow().at.0)].id)
    }

    fn tips(&self, at: EndpointIx) -> Option<&EndpointTips> {
        self.current.live.tips.endpoint(at)
    }

    fn poll_if_due(self: Rc<Tracker>, shard: &Rc<Shard>, slot: usize, now_ns: Nanos) {
        let interval_ns = self.facts().poll_interval_ns;
        let mut one = self.followed[slot].borrow_mut();
        let (Some(tips), Some(network)) = (self.tips(one.at), self.current.live.tips.network(self.network)) else {
            return;
        };
        let is_best = || self.chain.borrow().best(now_ns).is_some_and(|(best, _)| best == slot);
        let wishes = Wishes { own: tips.wish.made(), best: network.wish.made() };
        let wanted = tips.wish.granted() < wishes.own || (network.wish.granted() < wishes.best && is_best());
        if one.polling || (one.due_ns > now_ns && !wanted) {
            return;
        }
        if one.due_ns <= now_ns {
            // What was missed is not made up for.
            one.due_ns += interval_ns * (1 + (now_ns - one.due_ns) / interval_ns.max(1));
        }
        one.polling = true;
        drop(one);
        let (tracker, owned, panicked) = (self.clone(), shard.clone(), shard.clone());
        let over = move || {
            panicked.note_panic();
            self.followed[slot].borrow_mut().polling = false;
        };
        ring::spawn(async move { tracker.poll(&owned, slot, wishes).await }, over);
    }

    async fn poll(self: Rc<Tracker>, shard: &Rc<Shard>, slot: usize, wishes: Wishes) {
        let at = self.followed[slot].borrow().at;
        let interval_ns = self.facts().poll_interval_ns;
        let timeout_ns = (3 * interval_ns).clamp(POLL_TIMEOUT_MIN_NS, POLL_TIMEOUT_MAX_NS);
        let calls = OwnCalls::new(shard, &self.current, at, timeout_ns);
        let identity = self.followed[slot].borrow().identity;
        let identity = identity::renew(identity, &calls, self.facts()).await;
        self.followed[slot].borrow_mut().identity = identity;
        let heard = !identity.mismatched && !calls.in_vain() && self.read(&calls, slot).await;
        if self.replaced.get() {
            return;
        }
        let mut one = self.followed[slot].borrow_mut();
        one.polling = false;
        if !heard {
            one.identity.doubt();
        }
        drop(one);
        if let Some(tips) = self.tips(at) {
            if heard { &tips.polls_ok } else { &tips.polls_failed }.add(1);
            let best = self.chain.borrow().best(ring::now()).map(|(best, _)| best);
            self.tell(ring::now());
            tips.wish.grant(wishes.own);
            // If another one has the newest block by now, the wish is for that one's.
            if best.is_none_or(|best| best == slot) {
                self.current.live.tips.network(self.network).inspect(|network| network.wish.grant(wishes.best));
            }
        }
    }

    /// Reads the newest block, and what is missing below it. `false` = there was none to be had.
    async fn read(&self, calls: &OwnCalls<'_>, slot: usize) -> bool {
        calls.give_time();
        let Some(newest) = read_block(calls, "\"latest\"").await else { return false };
        if self.chain.borrow_mut().heard(slot, &newest, ring::now()).is_err() {
            return false;
        }
        for _ in 0..FILLS_MAX {
            let Some(number) = self.chain.borrow().missing(slot) else { break };
            let found = read_block(calls, &format!("\"{number:#x}\"")).await.filter(|head| head.number == number);
            let mut chain = self.chain.borrow_mut();
            let taken = found.is_some_and(|head| chain.filled(slot, &head, ring::now()).is_ok());
            if !taken {
                chain.unfilled(slot, number);
            }
        }
        true
    }

    /// Writes what is known of all where every shard sees it.
    fn tell(&self, now_ns: Nanos) {
        let (mut chain, tips) = (self.chain.borrow_mut(), &self.current.live.tips);
        let Some(network) = tips.network(self.network) else { return };
        let best = chain.best(now_ns).map(|(_, number)| number);
        for (number, hash) in chain.take_changed() {
            network.set_canonical(number, hash.as_ref());
        }
        network.set_best(best);
        for (slot, one) in self.followed.iter().enumerate() {
            let (view, mut one) = (chain.view(slot, now_ns), one.borrow_mut());
            let Some(tips) = self.tips(one.at) else { continue };
            let Identity { client, known, mismatched, .. } = one.identity;
            let standing = if mismatched { Standing::Unknown } else { view.standing };
            let told = Told { standing, tip: view.tip.unwrap_or(0), client, identified: known, mismatched };
            tips.tell(told, view.lag, view.good_until_ns);
            if mismatched {
                self.current.live.tips.note_mismatch();
            }
            if std::mem::replace(&mut one.mismatched, mismatched) != mismatched && mismatched {
                self.note(one.at, What::Mismatched);
            }
            if std::mem::replace(&mut one.standing, standing) != standing {
                // What it has of another chain is no tip of this one.
                let tip = view.tip.filter(|_| !mismatched);
                self.note(one.at, What::Standing { standing, tip, lag: view.lag });
                if standing == Standing::Fork {
                    // Most often it has re-organised too, and was read before: until that shows, nobody is sent there.
                    one.due_ns = one.due_ns.min(now_ns);
                    one.identity.doubt();
                }
            }
        }
        while let Some(reorg) = chain.take_reorg() {
            network.reorganised(reorg.depth);
            if let Some(one) = self.followed.get(reorg.at) {
                self.note(one.borrow().at, What::Reorg { depth: reorg.depth, number: reorg.number });
            }
        }
    }

    fn note(&self, at: EndpointIx, what: What) {
        let id: &str = &self.current.live.snapshot.endpoints[usize::from(at.0)].id;
        let incident = Incident { endpoint: id.into(), network: Some(self.name.clone()), what, for_ns: 0 };
        self.current.live.board.journal().write(incident);
    }
}

fn ids<'c>(current: &'c Current, tracked: &[EndpointIx]) -> impl Iterator<Item = &'c str> {
    tracked.iter().map(|at| &*current.live.snapshot.endpoints[usize::from(at.0)].id)
}

async fn read_block(calls: &OwnCalls<'_>, block: &str) -> Option<Header> {
    calls.ask("eth_getBlockByNumber", &format!("[{block},false]"), header).await.flatten()
}
