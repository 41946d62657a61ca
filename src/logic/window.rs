//! How many of the last attempts were so: counts in buckets of time, each bucket one word that one shard writes.
//!
//! A bucket is tagged with the moment at which it began, not with a number: whoever reads it can tell by itself
//! whether it is old, also after the length of the window was changed. A writer that comes to a bucket of another
//! time starts it anew, so nobody ever has to clear one. What is counted lies within the window for certain; of
//! its oldest eighth some may be missing.

use super::units::Nanos;

/// Buckets of one window. A bucket is over a sixteenth of it, so this many always reach back far enough.
pub const SLOTS: usize = 16;
/// Times in a tag are in units of 2^20 ns: about 1 ms; no bucket is shorter.
const UNIT_BITS: u32 = 20;
/// 40 bits of units are 36 years; the other 24 count to 16 million a bucket, and stay there.
const COUNT_BITS: u32 = 24;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;

/// The length of a window, and how it is cut: buckets are powers of two, because the success path divides by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    length_ns: Nanos,
    shift: u32,
}

impl Span {
    /// A window of this length.
    pub const fn new(length_ns: Nanos) -> Span {
        let bucket_ns = length_ns / 8;
        let least_ns = 1 << UNIT_BITS;
        let bucket_ns = if bucket_ns > least_ns { bucket_ns } else { least_ns };
        Span { length_ns, shift: bucket_ns.ilog2() }
    }

    /// Which bucket is written now.
    pub const fn slot(self, now_ns: Nanos) -> usize {
        (now_ns >> self.shift) as usize % SLOTS
    }

    /// How long a bucket is.
    pub const fn bucket_ns(self) -> Nanos {
        1 << self.shift
    }
}

/// One bucket of one shard: `[40 bits when it began, in 2^20 ns][24 bits count]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slot(pub u64);

impl Slot {
    /// One more now. A bucket that began at another time starts anew.
    pub const fn counted(self, span: Span, now_ns: Nanos) -> Slot {
        let tag = now_ns >> span.shift << (span.shift - UNIT_BITS) << COUNT_BITS;
        let count = if self.0 & !COUNT_MAX == tag { self.0 & COUNT_MAX } else { 0 };
        let count = if count < COUNT_MAX { count + 1 } else { count };
        Slot(tag | count)
    }

    /// What it counted, if all of that lies within the window and not before `since_ns`.
    pub const fn within(self, span: Span, since_ns: Nanos, now_ns: Nanos) -> u64 {
        let began_ns = self.0 >> COUNT_BITS << UNIT_BITS;
        let old = now_ns.saturating_sub(began_ns) >= span.length_ns.saturating_add(1);
        if old || began_ns > now_ns || began_ns < since_ns { 0 } else { self.0 & COUNT_MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::units::{MS, SECOND};

    /// One shard's buckets.
    struct Ring([Slot; SLOTS]);
    impl Ring {
        fn count(&mut self, span: Span, now_ns: Nanos) {
            let slot = &mut self.0[span.slot(now_ns)];
            *slot = slot.counted(span, now_ns);
        }
        fn sum(&self, span: Span, since_ns: Nanos, now_ns: Nanos) -> u64 {
            self.0.iter().map(|slot| slot.within(span, since_ns, now_ns)).sum()
        }
    }
    fn ring() -> Ring {
        Ring([Slot::default(); SLOTS])
    }

    #[test]
    fn buckets_cover_the_window_and_are_at_most_an_eighth_of_it() {
        for length_ns in [MS, 8 * MS, 17 * MS, 300 * MS, SECOND, 10 * SECOND, 3_600 * SECOND, 365 * 86_400 * SECOND] {
            let span = Span::new(length_ns);
            assert!(span.bucket_ns() * SLOTS as u64 > length_ns, "{length_ns}");
            assert!(span.bucket_ns() <= (length_ns / 8).max(1 << UNIT_BITS), "{length_ns}");
        }
    }

    #[test]
    fn what_is_in_the_window_counts_and_what_is_old_never_does() {
        for length_ns in [100 * MS, 333 * MS, SECOND, 10 * SECOND] {
            let span = Span::new(length_ns);
            for begin_ns in [0, 7 * MS, 3_600 * SECOND, 86_399 * SECOND + 7] {
                let mut ring = ring();
                (0..5).for_each(|_| ring.count(span, begin_ns));
                for age_ns in [0, length_ns / 2, length_ns - span.bucket_ns()] {
                    assert_eq!(ring.sum(span, 0, begin_ns + age_ns), 5, "{length_ns} {begin_ns} {age_ns}");
                }
                for age_ns in [length_ns + 1, 2 * length_ns, 100 * length_ns, 1 << 60] {
                    assert_eq!(ring.sum(span, 0, begin_ns + age_ns), 0, "{length_ns} {begin_ns} {age_ns}");
                }
            }
        }
    }

    #[test]
    fn a_bucket_of_another_time_starts_anew() {
        let span = Span::new(SECOND);
        let mut ring = ring();
        (0..9).for_each(|_| ring.count(span, 0));
        // The same slot, one round later.
        let later_ns = span.bucket_ns() * SLOTS as u64;
        assert_eq!(span.slot(0), span.slot(later_ns));
        ring.count(span, later_ns);
        assert_eq!(ring.sum(span, 0, later_ns), 1);
    }

    #[test]
    fn what_was_before_the_circuit_closed_does_not_count() {
        let span = Span::new(SECOND);
        let mut ring = ring();
        ring.count(span, 5 * SECOND);
        ring.count(span, 5 * SECOND + 500 * MS);
        assert_eq!(ring.sum(span, 0, 5 * SECOND + 600 * MS), 2);
        assert_eq!(ring.sum(span, 5 * SECOND + 100 * MS, 5 * SECOND + 600 * MS), 1);
        assert_eq!(ring.sum(span, 5 * SECOND + 600 * MS, 5 * SECOND + 600 * MS), 0);
    }

    #[test]
    fn another_length_of_the_window_brings_nothing_old_back() {
        let (short, long) = (Span::new(SECOND), Span::new(64 * SECOND));
        let mut ring = ring();
        (0..400).for_each(|step| ring.count(short, step * 50 * MS));
        for now_s in 100..4_000 {
            assert_eq!(ring.sum(long, 0, now_s * SECOND), 0, "{now_s}");
            assert_eq!(ring.sum(short, 0, now_s * SECOND), 0, "{now_s}");
        }
    }

    #[test]
    fn a_full_bucket_stays_full() {
        let span = Span::new(SECOND);
        let full = Slot(COUNT_MAX);
        assert_eq!(full.counted(span, 5).within(span, 0, 5), COUNT_MAX);
        assert_eq!(Slot(u64::MAX).within(span, 0, u64::MAX), 0, "from the future");
        assert_eq!(Slot(0).counted(span, u64::MAX).0 & COUNT_MAX, 1);
    }
}
