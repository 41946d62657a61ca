//! One Endpoint's own budget of attempts, spent by all shards: a single word that moves by compare-and-swap.

use crate::logic::limiter::Limiter;
use crate::logic::units::Nanos;
use crate::shared::atomics::{AtomicU64, Relaxed};
use crossbeam_utils::CachePadded;

/// What is left of a budget. It outlives Snapshots, also where its rate changes.
#[derive(Debug, Default)]
pub struct Budget(CachePadded<AtomicU64>);

impl Budget {
    /// When the next attempt may start: now or earlier if it may.
    pub fn ready_ns(&self, limiter: Limiter) -> Nanos {
        limiter.ready_ns(self.0.load(Relaxed))
    }

    /// Spends one attempt.
    ///
    /// # Errors
    /// When the next may start; then nothing was spent.
    pub fn take(&self, limiter: Limiter, now_ns: Nanos) -> Result<(), Nanos> {
        let mut full_ns = self.0.load(Relaxed);
        loop {
            let next = limiter.take(full_ns, now_ns)?;
            match self.0.compare_exchange_weak(full_ns, next, Relaxed, Relaxed) {
                Ok(_) => return Ok(()),
                // Each time that somebody else was faster one attempt more was spent, so this ends.
                Err(now) => full_ns = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::limiter::Rate;
    use crate::logic::units::SECOND;

    #[test]
    fn shards_together_spend_exactly_the_budget() {
        for round in 1..100 {
            let (budget, limiter) = (Budget::default(), Limiter::new(Rate { rps: 1, burst: 50 }));
            let now_ns = round * 1_000 * SECOND;
            let spent: usize = std::thread::scope(|scope| {
                let spenders = (0..4)
                    .map(|_| scope.spawn(|| (0..40).filter(|_| budget.take(limiter, now_ns).is_ok()).count()))
                    .collect::<Vec<_>>();
                spenders.into_iter().map(|spender| spender.join().unwrap()).sum()
            });
            assert_eq!(spent, 50);
            assert_eq!(budget.ready_ns(limiter), now_ns + SECOND);
        }
    }
}
