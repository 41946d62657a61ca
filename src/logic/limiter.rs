//! How often something may happen: a token bucket whose whole state is one number (GCRA), so that one atomic
//! word holds it for all shards.

use super::units::{Nanos, SECOND};

/// A rate as it was typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// In the long run, each second; at least 1.
    pub rps: u32,
    /// At once, after a pause; at least 1.
    pub burst: u32,
}

/// The arithmetic of one rate. The state is the time at which the bucket is full again; 0 is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limiter {
    /// Time that one costs; rounded up, so that never more pass than were allowed.
    interval_ns: Nanos,
    /// Time that a whole burst costs: below 2^63.
    depth_ns: Nanos,
}

impl Limiter {
    /// The arithmetic of a rate; 0 counts as 1.
    pub fn new(rate: Rate) -> Limiter {
        let interval_ns = SECOND.div_ceil(u64::from(rate.rps.max(1)));
        Limiter { interval_ns, depth_ns: interval_ns * u64::from(rate.burst.max(1)) }
    }

    /// When the next may pass: now or earlier if it may.
    pub fn ready_ns(self, full_ns: u64) -> Nanos {
        full_ns.saturating_add(self.interval_ns).saturating_sub(self.depth_ns)
    }

    /// Takes one: the state to swap in.
    ///
    /// # Errors
    /// When the next may pass.
    pub fn take(self, full_ns: u64, now_ns: Nanos) -> Result<u64, Nanos> {
        let ready_ns = self.ready_ns(full_ns);
        if ready_ns > now_ns {
            return Err(ready_ns);
        }
        Ok(full_ns.max(now_ns).saturating_add(self.interval_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::units::MS;

    fn limiter(rps: u32, burst: u32) -> Limiter {
        Limiter::new(Rate { rps, burst })
    }

    /// How many of so many tries pass, at one moment.
    fn pass(limiter: Limiter, full_ns: &mut u64, now_ns: Nanos, tries: u32) -> u32 {
        let passes = |_: &u32| match limiter.take(*full_ns, now_ns) {
            Ok(next) => {
                *full_ns = next;
                true
            }
            Err(_) => false,
        };
        (0..tries).filter(passes).count() as u32
    }

    #[test]
    fn a_whole_burst_passes_at_once_and_then_one_per_interval() {
        for burst in [1, 2, 5, 50] {
            let (limiter, mut full_ns) = (limiter(5, burst), 0);
            let start_ns = 3_600 * SECOND;
            assert_eq!(pass(limiter, &mut full_ns, start_ns, 100), burst);
            assert_eq!(limiter.take(full_ns, start_ns), Err(start_ns + 200 * MS));
            assert_eq!(pass(limiter, &mut full_ns, start_ns + 200 * MS - 1, 100), 0);
            assert_eq!(pass(limiter, &mut full_ns, start_ns + 200 * MS, 100), 1);
            assert_eq!(pass(limiter, &mut full_ns, start_ns + 600 * MS, 100), 2.min(burst));
        }
    }

    #[test]
    fn a_pause_refills_to_one_burst_and_no_more() {
        let (limiter, mut full_ns) = (limiter(10, 3), 0);
        assert_eq!(pass(limiter, &mut full_ns, SECOND, 9), 3);
        assert_eq!(pass(limiter, &mut full_ns, 1_000 * SECOND, 9), 3);
        assert!(limiter.ready_ns(full_ns) == 1_000 * SECOND + 100 * MS);
    }

    #[test]
    fn over_any_time_no_more_than_the_rate_and_one_burst() {
        for (rps, burst) in [(1, 1), (3, 1), (7, 20), (1_000, 10), (333_333, 5)] {
            let (limiter, mut full_ns) = (limiter(rps, burst), 0);
            let (step_ns, mut passed) = (SECOND / 2_000, 0u64);
            for step in 0..4_000 {
                passed += u64::from(pass(limiter, &mut full_ns, SECOND + step * step_ns, 1_000));
            }
            let most = u64::from(burst) + 2 * u64::from(rps);
            assert!(passed <= most && passed + u64::from(burst) + 1 >= most.min(4_000), "{rps} {burst}: {passed}");
        }
    }

    #[test]
    fn a_refusal_costs_nothing() {
        let limiter = limiter(1, 1);
        let full_ns = limiter.take(0, SECOND).unwrap();
        (0..100).for_each(|_| assert_eq!(limiter.take(full_ns, SECOND + 1), Err(2 * SECOND)));
        assert!(limiter.take(full_ns, 2 * SECOND).is_ok());
    }

    #[test]
    fn no_number_overflows() {
        let widest = limiter(0, u32::MAX);
        assert!(widest.take(u64::MAX, u64::MAX).is_ok_and(|next| next == u64::MAX));
        let fastest = limiter(u32::MAX, 1);
        assert_eq!(fastest.take(0, 7), Ok(8));
    }
}
