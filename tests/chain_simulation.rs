//! Is a network's chain judged rightly? A seeded simulation of nodes that follow a chain with re-orgs, late, frozen,
//! rolled back, away, on a fork of their own or lying, with an oracle that knows the true chain and not the code.
//!
//! It uses `ringway::logic` alone. `SIM_SEED=7` replays one seed, `SIM_SEEDS=100000` runs more.

mod chain_simulation {
    pub mod node;
    pub mod oracle;
    pub mod run;
    pub mod tree;
}
#[path = "simulation/random.rs"]
mod random;

use chain_simulation::oracle::Counts;
use chain_simulation::run::{Run, Violation};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const SEEDS: u64 = 2_500;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

fn one(seed: u64) -> Result<Counts, Violation> {
    let ended = catch_unwind(AssertUnwindSafe(|| Run::new(seed).through()));
    ended.unwrap_or_else(|_| Err(Violation("a panic, see above".to_owned())))
}

#[test]
fn the_chain_is_judged_as_it_is() {
    if let Some(seed) = setting("SIM_SEED") {
        let ended = one(seed);
        assert!(ended.is_ok(), "SIM_SEED={seed}: {}", ended.unwrap_err().0);
        return;
    }
    let (next, seeds) = (AtomicU64::new(0), setting("SIM_SEEDS").unwrap_or(SEEDS));
    let (sum, wrong) = (Mutex::new(Counts::default()), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get().min(4));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds || wrong.lock().unwrap().len() >= 5 {
                        return;
                    }
                    match one(seed) {
                        Ok(counts) => sum.lock().unwrap().add(&counts),
                        Err(violation) => wrong.lock().unwrap().push(format!("SIM_SEED={seed}: {}", violation.0)),
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let sum = sum.into_inner().unwrap();
    // Each of the oracle's questions was asked, else its silence would say nothing.
    for (what, times) in sum.all() {
        assert!(times * 10 >= seeds, "{what}: only {times} times in {seeds} seeds: {sum:?}");
    }
}
