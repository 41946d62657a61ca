//! When an Endpoint is left alone after failures: the arithmetic on the one word that all shards share.
//!
//! closed -> open (failures in a row, or too large a share of failures) -> after the cooldown exactly one
//! probe Call over all shards -> closed, or open again with a doubled, jittered cooldown. Operators may hold
//! it open or closed for a time. The word lives in `shared::circuit_cells`; here are only pure functions
//! from word to word.

use super::snapshot::CircuitRule;
use super::units::{MILLION, MS, Nanos};

/// The Circuit of one Endpoint as one word.
///
/// `[2 bits state][6 bits how often it opened in a row][12 bits generation][44 bits time in ms]`.
/// The time is the end of the cooldown (open), of the permit (probing) or of the hold, or the moment at which
/// it closed; 44 bits of ms are 557 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Word(pub u64);

/// State of a Circuit at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Requests pass.
    Closed,
    /// No requests until this time (ns).
    Open {
        /// End of the cooldown.
        until_ns: Nanos,
    },
    /// One probe is under way; its permit ends at this time (ns).
    Probing {
        /// End of the permit.
        until_ns: Nanos,
    },
    /// An operator holds it open until this time (ns); then a probe decides.
    HeldOpen {
        /// End of the hold.
        until_ns: Nanos,
    },
    /// An operator holds it closed until this time (ns); then failures count again.
    HeldClosed {
        /// End of the hold.
        until_ns: Nanos,
    },
}

/// What an operator wants of a Circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forced {
    /// No requests, for a time.
    Open,
    /// Requests whatever fails, for a time.
    Closed,
    /// As if nobody had forced it: what was held open is half-open now.
    Auto,
}

/// What a Circuit says to a Call that wants an Endpoint now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Go.
    Admit,
    /// The cooldown (or a lost probe's permit) is over: one Call may take the permit and probe.
    Probe,
    /// Not before this time.
    Reject {
        /// When it may be tried again, as far as is known.
        until_ns: Nanos,
    },
}

impl Admission {
    /// The same, but not before this time, for a reason that is not the Circuit's: a rest, a budget.
    pub fn not_before(self, ready_ns: Nanos, now_ns: Nanos) -> Admission {
        match self {
            _ if ready_ns <= now_ns => self,
            Admission::Reject { until_ns } => Admission::Reject { until_ns: until_ns.max(ready_ns) },
            Admission::Admit | Admission::Probe => Admission::Reject { until_ns: ready_ns },
        }
    }
}

/// A permit outlives its attempt's deadline by so much: deadlines fire late, never early, and the timeout of
/// a black hole must still count as its probe's failure, or its cooldown would never double.
pub const PERMIT_SLACK_NS: Nanos = 100 * MS;

const CLOSED: u64 = 0;
const OPEN: u64 = 1;
const PROBING: u64 = 2;
const HELD_CLOSED: u64 = 3;
const TIME_BITS: u32 = 44;
const GENERATION_BITS: u32 = 12;
const STREAK_MAX: u64 = 63;

impl Word {
    fn new(state: u64, streak: u64, generation: u64, until_ns: Nanos) -> Word {
        // Rounded up: a permit or cooldown never ends before its time.
        let ms = until_ns.div_ceil(MS).min((1 << TIME_BITS) - 1);
        let generation = generation & ((1 << GENERATION_BITS) - 1);
        Word(state << 62 | streak.min(STREAK_MAX) << 56 | generation << TIME_BITS | ms)
    }
    fn state_bits(self) -> u64 {
        self.0 >> 62
    }
    fn streak(self) -> u64 {
        self.0 >> 56 & STREAK_MAX
    }
    fn until_ns(self) -> Nanos {
        (self.0 & ((1 << TIME_BITS) - 1)).saturating_mul(MS)
    }
    /// Counts transitions, so that a result under an old permit is known for one.
    pub fn generation(self) -> u64 {
        self.0 >> TIME_BITS & ((1 << GENERATION_BITS) - 1)
    }

    /// The state as people read it.
    pub fn state(self) -> State {
        match self.state_bits() {
            // What opens by itself has opened at least once in a row.
            OPEN if self.streak() == 0 => State::HeldOpen { until_ns: self.until_ns() },
            OPEN => State::Open { until_ns: self.until_ns() },
            PROBING => State::Probing { until_ns: self.until_ns() },
            HELD_CLOSED => State::HeldClosed { until_ns: self.until_ns() },
            _ => State::Closed,
        }
    }

    /// Whether a Call may pass now.
    pub fn admission(self, now_ns: Nanos) -> Admission {
        match self.state() {
            State::Closed | State::HeldClosed { .. } => Admission::Admit,
            State::Open { until_ns } | State::Probing { until_ns } | State::HeldOpen { until_ns }
                if until_ns > now_ns =>
            {
                Admission::Reject { until_ns }
            }
            State::Open { .. } | State::Probing { .. } | State::HeldOpen { .. } => Admission::Probe,
        }
    }

    /// Whether failures may open it now; if so, the moment from which on samples count. Samples from before it
    /// last closed would open it again at its first failure.
    pub fn counts_since_ns(self, now_ns: Nanos) -> Option<Nanos> {
        match self.state() {
            State::Closed => Some(self.until_ns()),
            State::HeldClosed { until_ns } => (until_ns <= now_ns).then_some(until_ns),
            State::Open { .. } | State::Probing { .. } | State::HeldOpen { .. } => None,
        }
    }

    /// Does what an operator wants, until `until_ns`; `None` if there is nothing to do.
    pub fn forced(self, forced: Forced, until_ns: Nanos, now_ns: Nanos) -> Option<Word> {
        let next = |state, streak, until_ns| Some(Word::new(state, streak, self.generation() + 1, until_ns));
        match (forced, self.state()) {
            (Forced::Open, _) => next(OPEN, 0, until_ns),
            (Forced::Closed, _) => next(HELD_CLOSED, 0, until_ns),
            // A millisecond back, because times are rounded up: the very next Call may probe.
            (Forced::Auto, State::HeldOpen { until_ns }) if until_ns > now_ns => {
                next(OPEN, 1, now_ns.saturating_sub(MS))
            }
            (Forced::Auto, State::HeldClosed { until_ns }) if until_ns > now_ns => next(CLOSED, 0, now_ns),
            (Forced::Auto, _) => None,
        }
    }

    /// Takes the permit: the word to swap in if nobody else was faster.
    pub fn probe(self, permit_until_ns: Nanos) -> Word {
        Word::new(PROBING, self.streak(), self.generation() + 1, permit_until_ns)
    }

    /// Opens a closed Circuit.
    pub fn trip(self, rule: &CircuitRule, now_ns: Nanos, jitter: f64) -> Word {
        Word::new(OPEN, 1, self.generation() + 1, now_ns.saturating_add(cooldown(rule, 1, jitter)))
    }

    /// The probe under `permit` failed: open again, twice as long. `None` if the permit is no longer the
    /// one that counts.
    pub fn probe_failed(self, permit: Word, rule: &CircuitRule, now_ns: Nanos, jitter: f64) -> Option<Word> {
        let streak = (self.streak() + 1).min(STREAK_MAX);
        let until = now_ns.saturating_add(cooldown(rule, streak, jitter));
        self.holds(permit, now_ns).then(|| Word::new(OPEN, streak, self.generation() + 1, until))
    }

    /// The probe under `permit` succeeded: closed.
    pub fn probe_succeeded(self, permit: Word, now_ns: Nanos) -> Option<Word> {
        self.holds(permit, now_ns).then(|| Word::new(CLOSED, 0, self.generation() + 1, now_ns))
    }

    /// The probe under `permit` ended without saying anything about the Endpoint: the permit is free
    /// again for the next Call.
    pub fn probe_returned(self, permit: Word, now_ns: Nanos) -> Option<Word> {
        self.holds(permit, now_ns).then(|| Word::new(OPEN, self.streak(), self.generation() + 1, now_ns))
    }

    fn holds(self, permit: Word, now_ns: Nanos) -> bool {
        // Rounded up like the word itself, so that a result in the permit's last ms still counts.
        self == permit && self.until_ns() >= now_ns
    }
}

/// The cooldown after `streak` openings in a row; `jitter` in 0..1 spreads it over ±10 %, so that many
/// gateways don't probe one node at the same moment.
pub fn cooldown(rule: &CircuitRule, streak: u64, jitter: f64) -> Nanos {
    let doublings = u32::try_from(streak.saturating_sub(1)).unwrap_or(u32::MAX).min(62);
    let full = rule.cooldown_ns.saturating_mul(1u64 << doublings).min(rule.max_cooldown_ns.max(rule.cooldown_ns));
    // The first cooldown is exact: an operator who set 5s sees 5s.
    if streak <= 1 {
        return full;
    }
    let spread = (full as f64 * (0.9 + 0.2 * jitter.clamp(0.0, 1.0))) as Nanos;
    spread.min(rule.max_cooldown_ns.max(rule.cooldown_ns))
}

/// Whether too large a share of the samples in the window failed.
pub fn ratio_reached(rule: &CircuitRule, succeeded: u64, failed: u64) -> bool {
    let [succeeded, failed, fewest] = [succeeded, failed, u64::from(rule.min_samples)].map(u128::from);
    let samples = succeeded + failed;
    let share = u128::from(rule.failure_ratio_ppm);
    samples > 0 && samples >= fewest && failed * u128::from(MILLION) >= samples * share
}

/// Failures in a row as all shards see them, in one word: `[16 bits failures][48 bits successes]`.
/// *In a row* means: since the successes, summed over all shards, last moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Streak(pub u64);

impl Streak {
    /// One more failure, with the sum of all shards' successes as it is now.
    pub fn failed(self, successes: u64) -> Streak {
        let successes = successes & ((1 << 48) - 1);
        let failures = if self.0 & ((1 << 48) - 1) == successes { self.failures() + 1 } else { 1 };
        Streak(failures.min(u64::from(u16::MAX)) << 48 | successes)
    }
    /// How many failures in a row.
    pub fn failures(self) -> u64 {
        self.0 >> 48
    }
}

/// The defaults, for the tests of this room.
#[cfg(test)]
pub(super) const RULE: CircuitRule = CircuitRule {
    consecutive_failures: 5,
    failure_ratio_ppm: 500_000,
    min_samples: 20,
    cooldown_ns: 5_000 * MS,
    max_cooldown_ns: 30_000 * MS,
    window_ns: 10_000_000_000,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::units::SECOND;

    #[test]
    fn closed_open_probe_closed() {
        let closed = Word::default();
        assert_eq!(closed.admission(0), Admission::Admit);
        let open = closed.trip(&RULE, SECOND, 0.3);
        assert_eq!(open.state(), State::Open { until_ns: 6 * SECOND });
        assert_eq!(open.admission(6 * SECOND - 1), Admission::Reject { until_ns: 6 * SECOND });
        assert_eq!(open.admission(6 * SECOND), Admission::Probe);
        let permit = open.probe(8 * SECOND);
        assert_eq!(permit.admission(7 * SECOND), Admission::Reject { until_ns: 8 * SECOND });
        assert_eq!(permit.probe_succeeded(permit, 7 * SECOND).map(Word::state), Some(State::Closed));
    }

    #[test]
    fn a_lost_probe_never_closes_an_endpoint_for_ever() {
        let permit = Word::default().trip(&RULE, 0, 0.5).probe(8 * SECOND);
        assert_eq!(permit.admission(8 * SECOND), Admission::Probe);
    }

    #[test]
    fn results_under_an_old_permit_are_ignored() {
        let old = Word::default().trip(&RULE, 0, 0.5).probe(8 * SECOND);
        let new = old.probe(20 * SECOND);
        assert_eq!(new.probe_succeeded(old, 9 * SECOND), None);
        assert_eq!(new.probe_failed(old, &RULE, 9 * SECOND, 0.5), None);
        assert_eq!(old.probe_succeeded(old, 8 * SECOND + 1), None, "expired");
        assert!(new.probe_succeeded(new, 9 * SECOND).is_some());
    }

    #[test]
    fn cooldowns_double_up_to_the_longest() {
        let mut word = Word::default().trip(&RULE, 0, 0.5);
        let mut lengths = vec![];
        for _ in 0..5 {
            let permit = word.probe(u64::from(u32::MAX) * MS);
            word = permit.probe_failed(permit, &RULE, 0, 0.5).unwrap();
            let State::Open { until_ns } = word.state() else { panic!("{word:?}") };
            lengths.push(until_ns / SECOND);
        }
        assert_eq!(lengths, [10, 20, 30, 30, 30]);
        for jitter in [0.0, 1.0] {
            let length = cooldown(&RULE, 2, jitter);
            assert!((9 * SECOND..=11 * SECOND).contains(&length), "{length}");
        }
    }

    #[test]
    fn a_closed_circuit_starts_from_the_first_cooldown_again() {
        let mut word = Word::default().trip(&RULE, 0, 0.5);
        for _ in 0..3 {
            let permit = word.probe(SECOND);
            word = permit.probe_failed(permit, &RULE, SECOND, 0.5).unwrap();
        }
        let permit = word.probe(SECOND);
        let closed = permit.probe_succeeded(permit, 0).unwrap();
        assert_eq!(closed.trip(&RULE, 0, 0.9).state(), State::Open { until_ns: 5 * SECOND });
    }

    #[test]
    fn a_returned_permit_is_free_at_once() {
        let permit = Word::default().trip(&RULE, 0, 0.5).probe(8 * SECOND);
        let back = permit.probe_returned(permit, 7 * SECOND).unwrap();
        assert_eq!(back.admission(7 * SECOND), Admission::Probe);
    }

    #[test]
    fn each_transition_counts_so_that_no_permit_is_taken_for_another() {
        // Permits that end at one moment after openings of one length differ in nothing else.
        let open = Word::default().trip(&RULE, 0, 0.5);
        let mut words = vec![open, open.probe(8 * SECOND)];
        for now_s in [1, 2] {
            let permit = words[words.len() - 1];
            let back = permit.probe_returned(permit, now_s * SECOND).unwrap();
            words.extend([back, back.probe(8 * SECOND)]);
            assert_eq!(words[words.len() - 1].probe_succeeded(permit, 7 * SECOND), None);
        }
        let permit = words[words.len() - 1];
        words.push(permit.probe_failed(permit, &RULE, 7 * SECOND, 0.5).unwrap());
        let permit = words[words.len() - 1].probe(60 * SECOND);
        words.extend([permit, permit.probe_succeeded(permit, 50 * SECOND).unwrap()]);
        words.push(words[words.len() - 1].forced(Forced::Open, 90 * SECOND, 51 * SECOND).unwrap());
        words.push(words[words.len() - 1].forced(Forced::Closed, 90 * SECOND, 52 * SECOND).unwrap());
        words.push(words[words.len() - 1].forced(Forced::Auto, 0, 53 * SECOND).unwrap());
        let generations: Vec<u64> = words.iter().map(|word| word.generation()).collect();
        assert_eq!(generations, (1..=words.len() as u64).collect::<Vec<_>>());
    }

    #[test]
    fn the_count_of_transitions_starts_again_and_touches_nothing_else() {
        let mut word = Word::default().trip(&RULE, 0, 0.5);
        let mut seen = vec![word.generation()];
        for _ in 0..4_200 {
            word = word.probe(8 * SECOND);
            assert_eq!((word.state(), word.streak()), (State::Probing { until_ns: 8 * SECOND }, 1));
            seen.push(word.generation());
        }
        assert_eq!((seen[4_094], seen[4_095], seen[4_096]), (4_095, 0, 1));
        assert!(seen.iter().all(|generation| *generation < 4_096));
    }

    #[test]
    fn a_timeout_that_fires_a_little_late_still_fails_its_probe() {
        let permit = Word::default().trip(&RULE, 0, 0.5).probe(8 * SECOND + PERMIT_SLACK_NS);
        assert!(permit.probe_failed(permit, &RULE, 8 * SECOND + 50 * MS, 0.5).is_some());
        assert!(permit.probe_failed(permit, &RULE, 9 * SECOND, 0.5).is_none());
    }

    #[test]
    fn a_hold_that_is_over_can_not_be_released() {
        let open = Word::default().trip(&RULE, 0, 0.5);
        for forced in [Forced::Open, Forced::Closed] {
            let held = open.forced(forced, 9 * SECOND, SECOND).unwrap();
            assert!(held.forced(Forced::Auto, 0, 9 * SECOND - 1).is_some());
            assert_eq!(held.forced(Forced::Auto, 0, 9 * SECOND), None);
            assert_eq!(held.forced(Forced::Auto, 0, 20 * SECOND), None);
        }
    }

    #[test]
    fn more_successes_than_the_word_holds_are_no_failures() {
        let streak = Streak::default().failed(2 << 48 | 5);
        assert_eq!(streak.failures(), 1);
        assert_eq!(streak.failed(2 << 48 | 5).failures(), 2);
        assert_eq!(streak.failed(2 << 48 | 6).failures(), 1);
    }

    #[test]
    fn in_a_row_means_since_the_successes_last_moved() {
        let mut streak = Streak::default();
        for expected in 1..=4 {
            streak = streak.failed(17);
            assert_eq!(streak.failures(), if expected == 1 { 1 } else { expected });
        }
        assert_eq!(streak.failed(18).failures(), 1);
        let full = (0..100_000).fold(Streak::default(), |streak, _| streak.failed(3));
        assert_eq!(full.failures(), u64::from(u16::MAX));
    }

    #[test]
    fn the_share_of_failures_counts_from_the_fewest_samples_on() {
        for (succeeded, failed, opens) in
            [(10, 10, true), (11, 10, false), (0, 19, false), (0, 20, true), (9, 10, false), (0, 0, false)]
        {
            assert_eq!(ratio_reached(&RULE, succeeded, failed), opens, "{succeeded} {failed}");
        }
        let all = CircuitRule { failure_ratio_ppm: 1_000_000, min_samples: 1, ..RULE };
        assert!(ratio_reached(&all, 0, 1) && !ratio_reached(&all, 1, 1_000_000));
        assert!(ratio_reached(&all, 0, u64::MAX) && !ratio_reached(&all, u64::MAX, u64::MAX));
        let none = CircuitRule { min_samples: 0, ..RULE };
        assert!(!ratio_reached(&none, 0, 0));
    }

    #[test]
    fn samples_count_from_when_it_last_closed() {
        assert_eq!(Word::default().counts_since_ns(7 * SECOND), Some(0));
        let open = Word::default().trip(&RULE, 0, 0.5);
        assert_eq!(open.counts_since_ns(60 * SECOND), None);
        let permit = open.probe(9 * SECOND);
        assert_eq!(permit.counts_since_ns(8 * SECOND), None);
        let closed = permit.probe_succeeded(permit, 8 * SECOND).unwrap();
        assert_eq!(closed.counts_since_ns(9 * SECOND), Some(8 * SECOND));
    }

    #[test]
    fn an_operator_holds_it_for_a_time() {
        let held = Word::default().forced(Forced::Open, 9 * SECOND, SECOND).unwrap();
        assert_eq!(held.state(), State::HeldOpen { until_ns: 9 * SECOND });
        assert_eq!(held.admission(9 * SECOND - 1), Admission::Reject { until_ns: 9 * SECOND });
        assert_eq!(held.admission(9 * SECOND), Admission::Probe, "then a probe decides");
        let released = held.forced(Forced::Auto, 0, 2 * SECOND).unwrap();
        assert_eq!(released.admission(2 * SECOND), Admission::Probe);
        assert_eq!(held.forced(Forced::Auto, 0, 9 * SECOND), None, "it is over");
        let open = Word::default().trip(&RULE, 0, 0.5);
        assert_eq!(open.forced(Forced::Auto, 0, SECOND), None, "its own cooldown goes on");
        let held = open.forced(Forced::Closed, 9 * SECOND, SECOND).unwrap();
        assert_eq!(held.state(), State::HeldClosed { until_ns: 9 * SECOND });
        for now_ns in [SECOND, 9 * SECOND, 20 * SECOND] {
            assert_eq!(held.admission(now_ns), Admission::Admit);
        }
        assert_eq!(held.counts_since_ns(9 * SECOND - 1), None, "whatever fails");
        assert_eq!(held.counts_since_ns(9 * SECOND), Some(9 * SECOND));
        let released = held.forced(Forced::Auto, 0, 2 * SECOND).unwrap();
        assert_eq!((released.state(), released.counts_since_ns(3 * SECOND)), (State::Closed, Some(2 * SECOND)));
        let for_ever = Word::default().forced(Forced::Open, u64::MAX, 0).unwrap();
        assert!(matches!(for_ever.admission(u64::MAX / 2), Admission::Reject { .. }));
    }

    #[test]
    fn a_probe_that_is_overruled_changes_nothing() {
        let permit = Word::default().trip(&RULE, 0, 0.5).probe(8 * SECOND);
        for forced in [Forced::Open, Forced::Closed] {
            let held = permit.forced(forced, 20 * SECOND, 7 * SECOND).unwrap();
            assert_eq!(held.probe_succeeded(permit, 7 * SECOND), None);
            assert_eq!(held.probe_failed(permit, &RULE, 7 * SECOND, 0.5), None);
            assert_eq!(held.probe_returned(permit, 7 * SECOND), None);
        }
    }

    #[test]
    fn another_reason_only_makes_it_later() {
        let reject = |until_ns| Admission::Reject { until_ns };
        for (own, ready_ns, right) in [
            (Admission::Admit, 7, Admission::Admit),
            (Admission::Probe, 7, Admission::Probe),
            (reject(9), 7, reject(9)),
            (Admission::Admit, 8, reject(8)),
            (Admission::Probe, 8, reject(8)),
            (reject(9), 8, reject(9)),
            (reject(9), 20, reject(20)),
        ] {
            assert_eq!(own.not_before(ready_ns, 7), right, "{own:?} {ready_ns}");
        }
    }
}
