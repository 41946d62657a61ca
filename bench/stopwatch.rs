//! CPU time of a piece of work, which other load on the machine hardly touches.

use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;

/// Rounds for each figure.
pub const ROUNDS: usize = 25;
/// CPU time that one figure of a round is measured over.
const SPAN_NS: f64 = 2e6;

/// CPU time of this thread so far, in ns.
fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// CPU time of `count` runs, in ns for each.
pub fn mean(run: &mut dyn FnMut() -> bool, count: u32) -> f64 {
    let start = cpu_ns();
    for _ in 0..count {
        assert!(black_box(run()));
    }
    (cpu_ns() - start) / f64::from(count)
}

/// How many runs fill the span of one figure.
pub fn repeats(run: &mut dyn FnMut() -> bool) -> u32 {
    mean(run, 3);
    (SPAN_NS / mean(run, 10)).clamp(1.0, 1e6) as u32
}

/// The middle, the least and the most.
pub fn spread(values: impl Iterator<Item = f64>) -> (f64, f64, f64) {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

/// CPU time of one run, in ns: the middle of the rounds, the least and the most.
pub fn many(run: &mut dyn FnMut() -> bool) -> (f64, f64, f64) {
    let count = repeats(run);
    spread((0..ROUNDS).map(|_| mean(run, count)))
}
