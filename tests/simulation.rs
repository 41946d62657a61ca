//! Does a Call ever end wrongly? A seeded simulation of many Calls, shards and faulty nodes on a virtual
//! clock, with an oracle that knows the contract and not the code.
//!
//! It uses `ringway::logic` alone. `SIM_SEED=7` replays one seed; `SIM_CALLS=50000` makes it shorter or
//! longer; both together replay one seed of a longer or shorter run.

mod simulation {
    pub mod board;
    pub mod chain;
    pub mod counts;
    pub mod doubt;
    pub mod draws;
    pub mod node;
    pub mod oracle;
    pub mod random;
    pub mod run;
    pub mod scene;
    pub mod table;
    pub mod tally;
}

use simulation::run::{Run, Violation};
use simulation::tally::Tally;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Callers' Calls of one seed, always: else a seed alone would not replay a run.
const CALLS_OF_A_SEED: u64 = 2_500;
const CALLS: u64 = 3_000_000;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Always to be seen, captured or not: a seed that fails once must be at hand.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn one(seed: u64) -> Result<Tally, Violation> {
    let mut run = Run::new(seed, CALLS_OF_A_SEED);
    let ended = catch_unwind(AssertUnwindSafe(|| run.through()));
    ended.unwrap_or_else(|_| Err(Violation(run.story("a panic, see above"))))
}

/// Runs all seeds, side by side, and stops at the first violation.
fn many(seeds: &[u64]) -> Tally {
    let next = AtomicU64::new(0);
    let sum = Mutex::new(Tally::new());
    let found: Mutex<Option<Violation>> = Mutex::new(None);
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get().min(4));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    match one(*seed) {
                        Ok(tally) => sum.lock().unwrap().add(&tally),
                        Err(violation) => {
                            next.store(seeds.len() as u64, Ordering::Relaxed);
                            found.lock().unwrap().get_or_insert(violation);
                        }
                    }
                }
            });
        }
    });
    if let Some(Violation(story)) = found.into_inner().unwrap() {
        panic!("violation: {story}");
    }
    sum.into_inner().unwrap()
}

#[test]
fn no_call_ends_wrongly_over_many_seeds() {
    if let Some(seed) = setting("SIM_SEED") {
        tell(&format!("{:?}", many(&[seed])));
        return;
    }
    let calls = setting("SIM_CALLS").unwrap_or(CALLS);
    let fresh = RandomState::new().build_hasher().finish();
    tell(&format!("a fresh seed: SIM_SEED={fresh}"));
    let seeds: Vec<u64> = (1..=calls.div_ceil(CALLS_OF_A_SEED)).chain([fresh]).collect();
    let tally = many(&seeds);
    tell(&tally.to_string());
    assert!(tally.counted.calls >= calls, "{} Calls", tally.counted.calls);
    assert_eq!(tally.counted.unsafe_again, 0, "violation: an operation that must not be repeated was executed twice");
    if let Some(why) = tally.draws.objection().or_else(|| tally.passed.objection()) {
        panic!("violation: {why}");
    }
    // A simulation that doesn't get somewhere proves nothing about it.
    if calls >= CALLS {
        went_everywhere(&tally);
    }
}

fn went_everywhere(tally: &Tally) {
    for end in [
        "reply",
        "kept",
        "taken",
        "silent",
        "abandoned",
        "-32050",
        "-32051",
        "-32052",
        "-32053",
        "-32054",
        "-32055",
        "-32056",
    ] {
        assert!(tally.ended(end) >= 50, "hardly any Call ended so: {end}");
    }
    let (passed, counted) = (&tally.passed, &tally.counted);
    for (times, what) in [
        (passed.trips, "Circuits that opened"),
        (passed.trips_by_ratio, "Circuits that opened by their share of failures"),
        (passed.rests_asked, "rests that were asked for"),
        (passed.rests_unasked, "rests that nobody asked for"),
        (passed.busy_without_rest, "busy answers that were too few for a rest"),
        (passed.spent, "attempts of a budget"),
        (passed.overspent, "races for the last of a budget"),
        (passed.impatient, "callers that waited for a second and left"),
        (passed.probes, "probes"),
        (passed.races_lost, "races for a permit"),
        (passed.closed, "probes that closed a Circuit"),
        (passed.reopened, "probes that failed"),
        (passed.returned, "permits given back"),
        (passed.expired, "results under an expired permit"),
        (counted.lost, "Calls lost with their shard"),
        (counted.lost_sends, "connections that broke with a request on them"),
        (counted.doubts, "Calls whose transaction a node may have taken"),
        (counted.spoke[0], "nodes that said that they hold a transaction in doubt"),
        (counted.spoke[1], "nodes that said that they have seen a transaction in doubt"),
        (counted.spoke[2], "nodes that said something else about a transaction in doubt"),
        (counted.look_ups[0], "look-ups that found a transaction"),
        (counted.look_ups[1], "look-ups that found none"),
        (counted.look_ups[2], "look-ups that brought nothing"),
        (counted.second_look_ups, "look-ups at a second Endpoint"),
        (counted.believed, "ends on a node's word"),
        (counted.settled_errors, "errors after the chain was asked"),
        (counted.unsafe_once, "operations that must not be repeated, and were executed"),
        (tally.most_in_flight, "Calls in flight"),
        (tally.draws.counted()[0], "first weighted draws"),
        (tally.draws.counted()[2], "later weighted draws"),
    ] {
        assert!(times >= 50, "hardly any: {what} ({times})");
    }
    assert!(passed.doublings_most >= 3, "cooldowns hardly doubled");
}

#[test]
fn a_seed_replays() {
    let (first, second) = (one(7).expect("seed 7 passes"), one(7).expect("seed 7 passes"));
    assert_eq!(format!("{first:?}"), format!("{second:?}"));
}
