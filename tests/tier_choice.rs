//! The choice among tiers, simulated: random Routes, fleets and Calls, against an oracle that knows the rules in
//! other words. `SIM_SEED=7` repeats one seed.

use ringway::logic::call::Class;
use ringway::logic::chain::Standing;
use ringway::logic::circuit::Admission;
use ringway::logic::facts::Client;
use ringway::logic::failover::{Action, CallMachine, Event, Finish, World};
use ringway::logic::fault::{Fault, Reason, Unavailable};
use ringway::logic::snapshot::{EndpointIx, Route, Strategy, Target, Tier, shares};
use ringway::logic::tiers::{Has, Held, Lack, Requirement, Seen};
use ringway::logic::units::SECOND;
use ringway::logic::verdict::{Certainty, Failure, Verdict};

/// A generator that everybody has at hand: splitmix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
    fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound
    }
    fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

struct Fleet {
    seen: Vec<Seen>,
    admission: Vec<Admission>,
}

impl World for Fleet {
    fn admission(&self, endpoint: EndpointIx, _: u64) -> Admission {
        self.admission[usize::from(endpoint.0)]
    }
    fn seen(&self, endpoint: EndpointIx, _: u64) -> Seen {
        self.seen[usize::from(endpoint.0)]
    }
    fn is_mismatched(&self, endpoint: EndpointIx) -> bool {
        self.seen[usize::from(endpoint.0)].mismatched
    }
}

/// What the rules say of one target, in plain words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rule {
    never: bool,
    holds: bool,
    has_block: bool,
    tier: Tier,
    standing: Standing,
    tip: u64,
    said_no: bool,
}

fn route(dice: &mut Dice, targets: usize) -> Route {
    let held = |dice: &mut Dice| {
        let tier = dice.pick(&Tier::ALL);
        let blocks = dice.pick(&[16, 128, 1_000]);
        match tier {
            Tier::Minimal => Held { tier, state_blocks: blocks, history_blocks: dice.pick(&[128, u64::MAX]) },
            Tier::Full => Held { tier, state_blocks: blocks, history_blocks: u64::MAX },
            Tier::Archive => Held { tier, state_blocks: u64::MAX, history_blocks: u64::MAX },
        }
    };
    let held: Box<[Held]> = (0..targets).map(|_| held(dice)).collect();
    let of_tier = |tier: Tier| (0..targets).filter(|at| held[*at].tier == tier).fold(0u128, |set, at| set | 1 << at);
    let by_tier = Tier::ALL.map(of_tier);
    let weight = |dice: &mut Dice| 1 + dice.below(5) as u16;
    let targets: Vec<Target> =
        (0..targets).map(|at| Target { endpoint: EndpointIx(at as u16), weight: weight(dice) }).collect();
    let eligible = (0..targets.len()).fold(0u128, |set, at| set | u128::from(!dice.one_in(10)) << at);
    Route {
        id: "r".into(),
        methods: Vec::new(),
        strategy: Strategy::Tiered,
        shares: shares(&targets, eligible),
        held,
        by_tier,
        targets,
        eligible,
        max_attempts: 1 + dice.below(10) as u8,
        attempt_timeout_ns: SECOND,
        version: 1,
    }
}

fn fleet(dice: &mut Dice, targets: usize) -> Fleet {
    let clients = [Client::Geth, Client::Reth, Client::Erigon, Client::Unknown];
    let calm = dice.one_in(3);
    let seen = |dice: &mut Dice| Seen {
        standing: match calm {
            true => Standing::Fresh,
            false => {
                dice.pick(&[Standing::Fresh, Standing::Fresh, Standing::Lagging, Standing::Fork, Standing::Unknown])
            }
        },
        tip: 1_000 - dice.below(6),
        client: dice.pick(&clients),
        has: if calm {
            Has::Yes
        } else {
            dice.pick(&[Has::Yes, Has::Yes, Has::Yes, Has::SaidNo, Has::No, Has::No, Has::NotKnown])
        },
        mismatched: dice.one_in(20),
    };
    let admission = |dice: &mut Dice| match dice.below(8) {
        0 => Admission::Reject { until_ns: 7 },
        1 => Admission::Probe,
        _ => Admission::Admit,
    };
    let seen = (0..targets).map(|_| seen(dice)).collect();
    Fleet { seen, admission: (0..targets).map(|_| admission(dice)).collect() }
}

fn need(dice: &mut Dice) -> Requirement {
    Requirement {
        floor: dice.pick(&[None, None, None, Some(Tier::Full), Some(Tier::Archive)]),
        depth: dice.pick(&[0, 0, 0, 15, 127, 128, 999, 5_000, u64::MAX]),
        state: dice.one_in(2),
        history: dice.one_in(2),
        height: dice.pick(&[0, 0, 0, 995, 998, 1_000]),
        by_hash: dice.one_in(4),
    }
}

/// Each target as the rules see it, after what nobody has is left out.
fn rules(route: &Route, fleet: &Fleet, need: &Requirement) -> Vec<Rule> {
    let reaches = |blocks: u64| blocks == u64::MAX || need.depth < blocks;
    let mut rules: Vec<Rule> = (0..route.targets.len())
        .map(|at| {
            let (held, seen) = (route.held[at], fleet.seen[at]);
            Rule {
                never: route.eligible >> at & 1 == 0
                    || seen.mismatched
                    || matches!(seen.has, Has::No | Has::NotKnown)
                    || need.floor.is_some_and(|floor| held.tier < floor),
                holds: (!need.state || reaches(held.state_blocks)) && (!need.history || reaches(held.history_blocks)),
                has_block: seen.standing == Standing::Unknown || seen.tip >= need.height,
                tier: held.tier,
                standing: seen.standing,
                tip: seen.tip,
                said_no: seen.has == Has::SaidNo,
            }
        })
        .collect();
    if !rules.iter().any(|rule| !rule.never && rule.holds) {
        rules.iter_mut().for_each(|rule| rule.holds = true);
    }
    if !rules.iter().any(|rule| !rule.never && rule.holds && rule.has_block) {
        rules.iter_mut().for_each(|rule| rule.has_block = true);
    }
    let there = |at: usize| route.eligible >> at & 1 == 1 && !fleet.seen[at].mismatched;
    if !(0..rules.len()).any(|at| there(at) && fleet.seen[at].standing != Standing::Unknown) {
        rules.iter_mut().for_each(|rule| rule.standing = Standing::Fresh);
    }
    rules
}

impl Rule {
    fn may_be_asked(&self) -> bool {
        !self.never && self.holds && self.has_block && self.standing != Standing::Fork
    }
}

/// Those that may be chosen now, of those that are left.
fn right(rules: &[Rule], left: &[usize]) -> Vec<usize> {
    let preferred = rules.iter().filter(|rule| !rule.never && rule.holds).map(|rule| rule.tier).min();
    let open: Vec<usize> = left.iter().copied().filter(|at| rules[*at].may_be_asked()).collect();
    let sure: Vec<usize> = open.iter().copied().filter(|at| !rules[*at].said_no).collect();
    let of = |standing: &[Standing]| -> Vec<usize> {
        sure.iter().copied().filter(|at| standing.contains(&rules[*at].standing)).collect()
    };
    let cheapest = |set: Vec<usize>| -> Vec<usize> {
        let tier = set.iter().map(|at| rules[*at].tier).min();
        set.into_iter().filter(|at| Some(rules[*at].tier) == tier).collect()
    };
    let highest = |set: Vec<usize>| {
        let tip = set.iter().map(|at| rules[*at].tip).max();
        cheapest(set.into_iter().filter(|at| Some(rules[*at].tip) == tip).collect())
    };
    for tier in Tier::ALL {
        let here: Vec<usize> = sure.iter().copied().filter(|at| rules[*at].tier == tier).collect();
        let fresh: Vec<usize> = here.iter().copied().filter(|at| rules[*at].standing == Standing::Fresh).collect();
        if !fresh.is_empty() {
            return fresh;
        }
        let all_lag = here.iter().all(|at| rules[*at].standing == Standing::Lagging);
        if Some(tier) == preferred && !here.is_empty() && all_lag {
            return highest(of(&[Standing::Fresh, Standing::Lagging]));
        }
    }
    match of(&[Standing::Lagging]) {
        lagging if !lagging.is_empty() => highest(lagging),
        _ if !sure.is_empty() => cheapest(sure),
        _ => cheapest(open),
    }
}

fn failed(certainty: Certainty) -> Event {
    let failure = Failure { certainty, reason: Reason::ConnectionLost, keep: false, retry_after_ns: None };
    Event::Judged(Verdict::Failed(failure))
}

/// One Call from its first attempt to its end.
fn play(dice: &mut Dice, counts: &mut [u64; 6]) {
    let targets = 1 + dice.below(12) as usize;
    let (route, fleet, need) = (route(dice, targets), fleet(dice, targets), need(dice));
    let rules = rules(&route, &fleet, &need);
    let mut machine = CallMachine::new(&route, Class::Stateless, false, None);
    machine.needs(need);
    let mut left: Vec<usize> = (0..targets).collect();
    let (mut attempts, mut lacked, mut rejected) = (0, false, false);
    let mut seed = dice.roll();
    loop {
        let action = machine.next(&route, &fleet, 0, &mut || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed
        });
        match action {
            Action::Attempt { endpoint, probe, .. } => {
                let at = usize::from(endpoint.0);
                // Those before it in the order rejected: they are out of this Call.
                let mut now = right(&rules, &left);
                while !lacked && !now.contains(&at) {
                    let out = now.iter().all(|at| matches!(fleet.admission[*at], Admission::Reject { .. }));
                    assert!(!now.is_empty() && out, "{at} goes before {now:?}\n{rules:#?}\n{need:?}");
                    rejected = true;
                    left.retain(|at| !now.contains(at));
                    now = right(&rules, &left);
                }
                let rule = rules[at];
                assert!(rule.may_be_asked(), "never to be asked: {rule:?} {need:?}");
                assert!(left.contains(&at), "{at} twice");
                assert!(!matches!(fleet.admission[at], Admission::Reject { .. }));
                assert_eq!(probe, fleet.admission[at] == Admission::Probe);
                left.retain(|one| *one != at);
                attempts += 1;
                assert!(attempts <= route.max_attempts);
                let event = match dice.below(8) {
                    0 => Event::Judged(Verdict::Final),
                    1..=3 => failed(dice.pick(&[Certainty::NotSent, Certainty::Refused, Certainty::Ambiguous])),
                    4 => Event::Lacks(dice.pick(&[Lack::State, Lack::Method])),
                    5 if need.by_hash => Event::Lacks(Lack::Null),
                    6 => Event::Contradicts,
                    _ => failed(Certainty::Ambiguous),
                };
                lacked |= matches!(event, Event::Lacks(_));
                counts[usize::from(lacked)] += 1;
                machine.feed(event);
            }
            Action::AskAgain { .. } => {
                counts[2] += 1;
                machine.feed(Event::Agrees(dice.one_in(3)));
            }
            Action::Finish(finish) => {
                let open =
                    |at: &usize| rules[*at].may_be_asked() && !matches!(fleet.admission[*at], Admission::Reject { .. });
                let ended = matches!(finish, Finish::Reply);
                let tried_all = attempts == route.max_attempts || !left.iter().any(open);
                assert!(ended || lacked || tried_all, "gave up with {left:?} left\n{rules:#?}\n{need:?}");
                check_end(&rules, &route, &fleet, finish, attempts, rejected);
                counts[3] += u64::from(ended);
                counts[4] += u64::from(matches!(finish, Finish::Kept));
                counts[5] += u64::from(matches!(finish, Finish::Fault(_)));
                return;
            }
            Action::Await | Action::LookUp { .. } => panic!("{action:?} of a query"),
        }
    }
}

/// Whether what is told of a Call without an attempt is why there was none.
fn check_end(rules: &[Rule], route: &Route, fleet: &Fleet, finish: Finish, attempts: u8, rejected: bool) {
    if attempts > 0 {
        assert!(!matches!(finish, Finish::Fault(Fault::NoTarget | Fault::Unavailable { .. } | Fault::Method(_))));
        return;
    }
    let there: Vec<usize> =
        (0..rules.len()).filter(|at| route.eligible >> at & 1 == 1 && !fleet.seen[*at].mismatched).collect();
    let nobody = !there.is_empty() && there.iter().all(|at| fleet.seen[*at].has == Has::No);
    let right = match (rules.iter().any(Rule::may_be_asked), nobody) {
        (true, _) => matches!(finish, Finish::Fault(Fault::Unavailable { .. })),
        (false, true) => finish == Finish::Fault(Fault::Method(Unavailable::NoCapability)),
        (false, false) => finish == Finish::Fault(Fault::NoTarget),
    };
    assert!(right, "{finish:?} {rejected} {rules:#?}");
}

#[test]
fn a_hundred_thousand_calls_go_where_the_rules_say() {
    let one = std::env::var("SIM_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let seeds = one.map_or(0..100_000, |seed| seed..seed + 1);
    let mut counts = [0; 6];
    for seed in seeds {
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| play(&mut Dice(seed), &mut counts)));
        if let Err(panic) = run {
            eprintln!("SIM_SEED={seed} repeats it");
            std::panic::resume_unwind(panic);
        }
    }
    if one.is_none() {
        // Attempts before and after something lacked, chains asked again, replies, kept answers, faults.
        assert!(counts.iter().all(|count| *count > 1_000), "each kind happens often: {counts:?}");
    }
}
