//! Counts over time: as the shards keep them, by `logic::window` alone, and beside them every sample with its
//! time, which knows the contract and no buckets.

use ringway::logic::limiter::{Limiter, Rate};
use ringway::logic::units::{MS, Nanos, SECOND};
use ringway::logic::window::{SLOTS, Slot, Span};
use std::collections::VecDeque;

/// One kind of samples, good and bad, over one window.
#[derive(Debug)]
pub struct Counts {
    length_ns: Nanos,
    span: Span,
    /// By shard: the buckets of the good ones, and of the bad ones.
    rings: Vec<[[Slot; SLOTS]; 2]>,
    /// When each was, and whether it was bad.
    samples: VecDeque<(Nanos, bool)>,
}

impl Counts {
    pub fn new(length_ns: Nanos, shards: usize) -> Counts {
        let rings = vec![[[Slot::default(); SLOTS]; 2]; shards];
        Counts { length_ns, span: Span::new(length_ns), rings, samples: VecDeque::new() }
    }

    pub fn count(&mut self, shard: usize, bad: bool, now_ns: Nanos) {
        let slot = &mut self.rings[shard][usize::from(bad)][self.span.slot(now_ns)];
        *slot = slot.counted(self.span, now_ns);
        while self.samples.front().is_some_and(|(at_ns, _)| at_ns + self.length_ns < now_ns) {
            self.samples.pop_front();
        }
        self.samples.push_back((now_ns, bad));
    }

    /// Good and bad ones, as all shards' buckets say.
    pub fn sums(&self, since_ns: Nanos, now_ns: Nanos) -> (u64, u64) {
        let sum = |bad: usize| {
            let slots = self.rings.iter().flat_map(|ring| &ring[bad]);
            slots.map(|slot| slot.within(self.span, since_ns, now_ns)).sum()
        };
        (sum(0), sum(1))
    }

    /// Whether something holds of the samples within the window and since a moment: for certain, and at all. Of the
    /// oldest eighth some may be missing.
    pub fn holds(&self, since_ns: Nanos, now_ns: Nanos, that: impl Fn(u64, u64) -> bool) -> (bool, bool) {
        let first_ns = since_ns.max(now_ns.saturating_sub(self.length_ns));
        let sure_ns = first_ns + self.length_ns / 8 + 3 * MS;
        let (mut good, mut bad) = (0, 0);
        let (mut always, mut ever) = (true, false);
        let mut newest_first = self.samples.iter().rev().peekable();
        loop {
            let next_ns = newest_first.peek().map_or(0, |(at_ns, _)| *at_ns);
            // What is counted may begin right after the next older one.
            if next_ns < sure_ns {
                let now = that(good, bad);
                always &= now;
                ever |= now;
            }
            let Some((_, was_bad)) = newest_first.next().filter(|(at_ns, _)| *at_ns >= first_ns) else {
                return (always, ever);
            };
            good += u64::from(!was_bad);
            bad += u64::from(*was_bad);
        }
    }
}

/// One Endpoint's budget: the word that shards share, and beside it a bucket of tokens.
#[derive(Debug)]
pub struct Budget {
    limiter: Limiter,
    word: u64,
    interval_ns: Nanos,
    most_ns: Nanos,
    level_ns: Nanos,
    at_ns: Nanos,
}

impl Budget {
    pub fn new(rate: Rate) -> Budget {
        let interval_ns = SECOND / u64::from(rate.rps);
        let most_ns = interval_ns * u64::from(rate.burst);
        Budget { limiter: Limiter::new(rate), word: 0, interval_ns, most_ns, level_ns: most_ns, at_ns: 0 }
    }

    fn level_ns(&self, now_ns: Nanos) -> Nanos {
        (self.level_ns + (now_ns - self.at_ns)).min(self.most_ns)
    }

    /// When the next attempt may start, as the word says.
    pub fn said_ns(&self) -> Nanos {
        self.limiter.ready_ns(self.word)
    }

    /// The same by tokens: now, if it may.
    pub fn right_ns(&self, now_ns: Nanos) -> Nanos {
        now_ns + self.interval_ns.saturating_sub(self.level_ns(now_ns))
    }

    /// Spends one token; `Err`: when the next is there.
    pub fn spend(&mut self, now_ns: Nanos) -> Result<Result<(), Nanos>, String> {
        let right_ns = self.right_ns(now_ns);
        match self.limiter.take(self.word, now_ns) {
            Ok(_) if right_ns > now_ns => Err(format!("over its budget until {right_ns}, and one more passes")),
            Ok(word) => {
                self.word = word;
                self.level_ns = self.level_ns(now_ns) - self.interval_ns;
                self.at_ns = now_ns;
                Ok(Ok(()))
            }
            Err(ready_ns) if ready_ns != right_ns => {
                Err(format!("refused until {ready_ns}, and its budget has one at {right_ns}"))
            }
            Err(ready_ns) => Ok(Err(ready_ns)),
        }
    }
}
