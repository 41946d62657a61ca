//! One seed's world: how many shards, nodes and Routes, how strict, how long.

use crate::simulation::oracle::Road;
use crate::simulation::random::Random;
use ringway::logic::call::Class;
use ringway::logic::limiter::Rate;
use ringway::logic::methods::Family;
use ringway::logic::snapshot::{CircuitRule, EndpointIx, Protocol, Route, Strategy, Target, shares};
use ringway::logic::units::{MS, Nanos, SECOND};

pub struct Scene {
    pub protocol: Protocol,
    pub family: Family,
    pub shards: usize,
    pub rules: Vec<CircuitRule>,
    /// Budgets of Endpoints that have one.
    pub rates: Vec<Option<Rate>>,
    /// The Routes that callers use.
    pub roads: Vec<Road>,
    /// One Route to each Endpoint alone: what shows after the faults that every Circuit closes again.
    pub solo: Vec<Road>,
    /// Mean time between two arrivals.
    pub pace_ns: Nanos,
}

impl Scene {
    pub fn new(random: &mut Random) -> Scene {
        let endpoints = match random.below(10) {
            0 => random.between(60, 120),
            1..=4 => random.between(8, 20),
            _ => random.between(1, 6),
        } as usize;
        let roads = (0..random.between(1, 6)).map(|_| road(random, endpoints)).collect();
        let solo = (0..endpoints).map(|at| lane(at, endpoints, random.between(60 * MS, 3 * SECOND))).collect();
        let (protocol, family) = random.pick(&[
            (Protocol::JsonRpc, Family::Evm),
            (Protocol::JsonRpc, Family::Evm),
            (Protocol::JsonRpc, Family::Evm),
            (Protocol::JsonRpc, Family::Evm),
            (Protocol::JsonRpc, Family::Tron),
            (Protocol::JsonRpc, Family::Solana),
            (Protocol::TronHttp, Family::Tron),
        ]);
        Scene {
            protocol,
            family,
            shards: random.between(1, 4) as usize,
            rules: (0..endpoints).map(|_| rule(random)).collect(),
            rates: (0..endpoints).map(|_| rate(random)).collect(),
            roads,
            solo,
            pace_ns: random.pick(&[MS / 5, 2 * MS, 10 * MS, 50 * MS]),
        }
    }

    /// A Call of any class for one of the Routes. The HTTP API has no notifications.
    pub fn kind(&self, random: &mut Random, road: usize) -> (Class, bool) {
        let (class, notification) = class(random, &self.roads[road]);
        (class, notification && self.protocol == Protocol::JsonRpc)
    }

    pub fn road(&self, at: usize) -> &Road {
        self.roads.get(at).unwrap_or_else(|| &self.solo[at - self.roads.len()])
    }

    /// The longest that an Endpoint may stay closed to Calls once all its faults are over: an attempt that
    /// began before, a permit that was lost, a whole cooldown, a whole rest, and the next of its budget.
    pub fn patience_ns(&self) -> Nanos {
        let all = self.roads.iter().chain(&self.solo);
        let attempt = all.map(|road| road.route.attempt_timeout_ns).max().unwrap_or(0);
        let cooldown = self.rules.iter().map(|rule| rule.max_cooldown_ns.max(rule.cooldown_ns)).max().unwrap_or(0);
        2 * attempt + cooldown + cooldown.max(SECOND) + 2 * SECOND
    }
}

fn rule(random: &mut Random) -> CircuitRule {
    let longest_ms = random.pick(&[40, 400, 2_000]);
    let cooldown_ns = random.between(5, longest_ms) * MS + random.below(3) * 333;
    CircuitRule {
        consecutive_failures: random.pick(&[1, 2, 3, 5, 8, 12, 1_000]),
        failure_ratio_ppm: random.pick(&[100_000, 333_333, 500_000, 500_000, 750_000, 1_000_000]),
        min_samples: random.pick(&[1, 5, 10, 20, 20, 60]),
        cooldown_ns,
        // Sometimes below the first one: then nothing doubles.
        max_cooldown_ns: random.between(cooldown_ns / 2, 16 * cooldown_ns),
        window_ns: random.between(100 * MS, 10 * SECOND),
    }
}

/// Rates whose intervals are whole ns, so that what is right is exact.
fn rate(random: &mut Random) -> Option<Rate> {
    let rate = Rate { rps: random.pick(&[1, 5, 20, 50, 200, 500]), burst: random.pick(&[1, 2, 5, 20, 100]) };
    random.once_in(3).then_some(rate)
}

fn road(random: &mut Random, endpoints: usize) -> Road {
    let wanted = if random.once_in(3) { endpoints as u64 } else { random.between(1, 5) };
    let mut pool: Vec<u16> = (0..endpoints as u16).collect();
    let mut chosen = Vec::new();
    while !pool.is_empty() && (chosen.len() as u64) < wanted.min(100) {
        chosen.push(pool.swap_remove(random.below(pool.len() as u64) as usize));
    }
    let strategy = random.pick(&[Strategy::Priority, Strategy::Weighted]);
    let weight = |random: &mut Random| random.pick(&[0, 1, 1, 2, 3, 10, 1_000]);
    let targets: Vec<Target> =
        chosen.iter().map(|at| Target { endpoint: EndpointIx(*at), weight: weight(random) }).collect();
    let loose = random.once_in(3);
    let keeps = |target: &Target, random: &mut Random| {
        let zero = strategy == Strategy::Weighted && target.weight == 0;
        !random.once_in(12) && (!zero || loose)
    };
    let eligible = targets.iter().enumerate().map(|(at, target)| u128::from(keeps(target, random)) << at).sum();
    let route = Route {
        id: "road".into(),
        methods: Vec::new(),
        strategy,
        shares: shares(&targets, eligible),
        held: Box::default(),
        by_tier: [0; 3],
        targets,
        eligible,
        max_attempts: random.between(1, 10) as u8,
        attempt_timeout_ns: random.between(50 * MS, 3 * SECOND),
        version: 1,
    };
    let effects = !loose && random.once_in(3);
    placed(route, endpoints, loose, effects)
}

fn lane(endpoint: usize, endpoints: usize, attempt_timeout_ns: Nanos) -> Road {
    let route = Route {
        id: "lane".into(),
        methods: Vec::new(),
        strategy: Strategy::Priority,
        targets: vec![Target { endpoint: EndpointIx(endpoint as u16), weight: 1 }],
        eligible: 1,
        shares: [1].into(),
        held: Box::default(),
        by_tier: [0; 3],
        max_attempts: 1,
        attempt_timeout_ns,
        version: 1,
    };
    placed(route, endpoints, false, false)
}

fn placed(route: Route, endpoints: usize, loose: bool, effects: bool) -> Road {
    let mut place = vec![None; endpoints];
    for (target, at) in route.targets.iter().zip(0u8..) {
        place[usize::from(target.endpoint.0)] = Some(at);
    }
    Road { route, place, loose, effects }
}

/// A Call of any class; where a Route lets weights of 0 through, one that never defers.
fn class(random: &mut Random, road: &Road) -> (Class, bool) {
    if road.loose {
        return (random.pick(&[Class::Stateless, Class::SignedBroadcast]), false);
    }
    if road.effects && !random.once_in(50) {
        return (random.pick(&[Class::Local, Class::Effect, Class::Unrecognised]), random.once_in(8));
    }
    let class = random.pick(&[
        Class::Stateless,
        Class::Stateless,
        Class::Stateless,
        Class::SignedBroadcast,
        Class::SignedBroadcast,
        Class::Local,
        Class::Effect,
        Class::Effect,
        Class::Unrecognised,
    ]);
    (class, random.once_in(8))
}
