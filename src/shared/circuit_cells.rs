//! One Endpoint's Circuit in memory: the words that all shards read per attempt and write seldom, and the cells
//! that each shard writes alone.

use crate::logic::circuit::{Admission, Forced, State, Streak, Word, ratio_reached};
use crate::logic::rest::{ANSWERS, rest_ns};
use crate::logic::snapshot::CircuitRule;
use crate::logic::units::Nanos;
use crate::logic::window::{SLOTS, Slot, Span};
use crate::shared::atomics::{AtomicU64, Relaxed};
use crate::shared::counters::{Cell, PerShard};
use crate::shared::journal::{Incident, Journal, Transition, What};
use crossbeam_utils::CachePadded;
use std::sync::Arc;

/// The permit of a probe: the word that was swapped in for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permit(Word);

/// What a failed attempt counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failed {
    /// One more in a row, and among the samples.
    InARow,
    /// Among the samples only.
    Sample,
}

/// What decides when a Circuit opens in one Snapshot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    pub(super) circuit: CircuitRule,
    pub(super) window: Span,
}

/// One shard's counts over a window.
#[derive(Debug, Default)]
struct Ring([Cell; SLOTS]);

impl Ring {
    fn count(&self, span: Span, now_ns: Nanos) {
        if let Some(cell) = self.0.get(span.slot(now_ns)) {
            cell.set(Slot(cell.get()).counted(span, now_ns).0);
        }
    }
    fn within(&self, span: Span, since_ns: Nanos, now_ns: Nanos) -> u64 {
        self.0.iter().map(|cell| Slot(cell.get()).within(span, since_ns, now_ns)).sum()
    }
}

/// What one shard writes.
#[derive(Debug, Default)]
struct Own {
    successes: Cell,
    last_success_ns: Cell,
    succeeded: Ring,
    failed: Ring,
    answers: Ring,
    busy: Ring,
}

/// What every attempt reads, on one line: written on transitions and on busy answers only.
#[derive(Debug, Default)]
struct Words {
    circuit: AtomicU64,
    rests_until_ns: AtomicU64,
}

/// One Endpoint's Circuit. It outlives Snapshots: a reload that keeps the Endpoint's host and port keeps it.
#[derive(Debug)]
pub struct Circuit {
    words: CachePadded<Words>,
    streak: CachePadded<AtomicU64>,
    own: PerShard<Own>,
    endpoint: Arc<str>,
    journal: Arc<Journal>,
    transitions: [AtomicU64; Transition::ALL.len()],
    rests: AtomicU64,
}

impl Circuit {
    /// A closed one, with cells for each shard.
    pub fn closed(endpoint: &str, shards: usize, journal: Arc<Journal>) -> Arc<Circuit> {
        Arc::new(Circuit {
            words: CachePadded::default(),
            streak: CachePadded::default(),
            own: (0..shards).map(|_| CachePadded::default()).collect(),
            endpoint: endpoint.into(),
            journal,
            transitions: Default::default(),
            rests: AtomicU64::default(),
        })
    }

    pub(super) fn word(&self) -> Word {
        Word(self.words.circuit.load(Relaxed))
    }

    /// Until when the Endpoint rests; the past if it does not.
    pub(super) fn rests_until_ns(&self) -> Nanos {
        self.words.rests_until_ns.load(Relaxed)
    }

    /// What the Circuit and a rest say, before any budget.
    pub(super) fn admission(&self, now_ns: Nanos) -> Admission {
        self.word().admission(now_ns).not_before(self.rests_until_ns(), now_ns)
    }

    pub(super) fn transitions(&self, transition: Transition) -> u64 {
        self.transitions[transition as usize].load(Relaxed)
    }

    pub(super) fn rests(&self) -> u64 {
        self.rests.load(Relaxed)
    }

    fn swap(&self, old: Word, new: Word, transition: Transition, now_ns: Nanos) -> bool {
        let swapped = self.words.circuit.compare_exchange(old.0, new.0, Relaxed, Relaxed).is_ok();
        if swapped {
            self.transitions[transition as usize].fetch_add(1, Relaxed);
            let until_ns = match new.state() {
                State::Closed => now_ns,
                State::Open { until_ns }
                | State::Probing { until_ns }
                | State::HeldOpen { until_ns }
                | State::HeldClosed { until_ns } => until_ns,
            };
            self.write_down(What::Circuit(transition), until_ns.saturating_sub(now_ns));
        }
        swapped
    }

    fn write_down(&self, what: What, for_ns: Nanos) {
        self.journal.write(Incident { endpoint: self.endpoint.clone(), network: None, what, for_ns });
    }

    pub(super) fn succeeded(&self, shard: usize, window: Span, now_ns: Nanos) {
        if let Some(own) = self.own.get(shard) {
            own.successes.add(1);
            own.last_success_ns.set(now_ns);
            own.succeeded.count(window, now_ns);
        }
    }

    pub(super) fn answered(&self, shard: usize, now_ns: Nanos) {
        if let Some(own) = self.own.get(shard) {
            own.answers.count(ANSWERS, now_ns);
        }
    }

    pub(super) fn succeeded_within(&self, rule: &CircuitRule, now_ns: Nanos) -> bool {
        let last_ns = self.own.iter().map(|own| own.last_success_ns.get()).max().unwrap_or(0);
        last_ns != 0 && last_ns.saturating_add(rule.window_ns) >= now_ns
    }

    /// Lets the Endpoint rest, if it should.
    pub(super) fn was_busy(&self, shard: usize, rule: &CircuitRule, retry_after_ns: Option<Nanos>, now_ns: Nanos) {
        if let Some(own) = self.own.get(shard) {
            own.busy.count(ANSWERS, now_ns);
        }
        let (mut busy, mut answers) = (0, 0);
        for own in &self.own {
            busy += own.busy.within(ANSWERS, 0, now_ns);
            answers += own.answers.within(ANSWERS, 0, now_ns);
        }
        let Some(rest_ns) = rest_ns(rule, retry_after_ns, busy, answers) else { return };
        let until_ns = now_ns.saturating_add(rest_ns);
        let before_ns = self.words.rests_until_ns.fetch_max(until_ns, Relaxed);
        // One that goes on for longer is still the same rest.
        if before_ns <= now_ns {
            self.rests.fetch_add(1, Relaxed);
            let what = if retry_after_ns.is_some() { What::AskedToRest } else { What::OftenBusy };
            self.write_down(what, rest_ns);
        }
    }

    /// Counts a failure, and opens the Circuit once there are enough.
    pub(super) fn failed(&self, shard: usize, rule: &Rule, what: Failed, now_ns: Nanos, jitter: f64) {
        self.sample_failure(shard, rule.window, now_ns);
        let in_a_row = match what {
            Failed::InARow => self.failures_in_a_row(),
            Failed::Sample => 0,
        };
        let word = self.word();
        // Open or probing already: late failures of attempts that began before change nothing.
        let Some(since_ns) = word.counts_since_ns(now_ns) else { return };
        let transition = if in_a_row > 0 && in_a_row >= u64::from(rule.circuit.consecutive_failures) {
            Transition::Tripped
        } else if self.ratio_reached(rule, since_ns, now_ns) {
            Transition::TrippedByRatio
        } else {
            return;
        };
        self.swap(word, word.trip(&rule.circuit, now_ns, jitter), transition, now_ns);
    }

    pub(super) fn sample_failure(&self, shard: usize, window: Span, now_ns: Nanos) {
        if let Some(own) = self.own.get(shard) {
            own.failed.count(window, now_ns);
        }
    }

    fn failures_in_a_row(&self) -> u64 {
        let successes = self.own.iter().fold(0u64, |sum, own| sum.wrapping_add(own.successes.get()));
        let mut failures = 0;
        let _ = self.streak.fetch_update(Relaxed, Relaxed, |old| {
            let streak = Streak(old).failed(successes);
            failures = streak.failures();
            Some(streak.0)
        });
        failures
    }

    fn ratio_reached(&self, rule: &Rule, since_ns: Nanos, now_ns: Nanos) -> bool {
        let (mut succeeded, mut failed) = (0, 0);
        for own in &self.own {
            succeeded += own.succeeded.within(rule.window, since_ns, now_ns);
            failed += own.failed.within(rule.window, since_ns, now_ns);
        }
        ratio_reached(&rule.circuit, succeeded, failed)
    }

    /// Takes the one permit to probe. `Ok(None)`: the Circuit has closed meanwhile, and none is needed.
    pub(super) fn take_permit(&self, now_ns: Nanos, until_ns: Nanos) -> Result<Option<Permit>, Nanos> {
        let word = self.word();
        match word.admission(now_ns) {
            Admission::Probe => {
                let permit = word.probe(until_ns);
                if self.swap(word, permit, Transition::Probing, now_ns) {
                    return Ok(Some(Permit(permit)));
                }
                match self.word().admission(now_ns) {
                    Admission::Admit => Ok(None),
                    Admission::Reject { until_ns } => Err(until_ns),
                    // Its winner has given the permit back already: this Call was late all the same.
                    Admission::Probe => Err(now_ns),
                }
            }
            Admission::Reject { until_ns } => Err(until_ns),
            Admission::Admit => Ok(None),
        }
    }

    pub(super) fn probe_failed(&self, permit: Permit, rule: &CircuitRule, now_ns: Nanos, jitter: f64) {
        let next = self.word().probe_failed(permit.0, rule, now_ns, jitter);
        self.probe_ended(permit, next, Transition::ProbeFailed, now_ns);
    }

    pub(super) fn probe_succeeded(&self, permit: Permit, now_ns: Nanos) {
        let next = self.word().probe_succeeded(permit.0, now_ns);
        if next.is_some() {
            self.streak.store(0, Relaxed);
        }
        self.probe_ended(permit, next, Transition::ProbeSucceeded, now_ns);
    }

    pub(super) fn probe_returned(&self, permit: Permit, now_ns: Nanos) {
        let next = self.word().probe_returned(permit.0, now_ns);
        self.probe_ended(permit, next, Transition::ProbeReturned, now_ns);
    }

    /// Only the holder of the permit and an operator change a probing word, so one try is enough: if it fails,
    /// the permit does not count any more.
    fn probe_ended(&self, permit: Permit, next: Option<Word>, transition: Transition, now_ns: Nanos) {
        if let Some(next) = next {
            self.swap(permit.0, next, transition, now_ns);
        }
    }

    /// Does what an operator wants; `false` if there was nothing to do.
    pub(super) fn force(&self, forced: Forced, until_ns: Nanos, now_ns: Nanos) -> bool {
        loop {
            let word = self.word();
            let Some(next) = word.forced(forced, until_ns, now_ns) else { return false };
            let transition = match (forced, next.state()) {
                (Forced::Open, _) => Transition::HeldOpen,
                (Forced::Auto, State::Open { .. }) => Transition::Released,
                (Forced::Closed | Forced::Auto, _) => Transition::HeldClosed,
            };
            // Whoever was faster made a transition, and those are rare: this ends.
            if self.swap(word, next, transition, now_ns) {
                return true;
            }
        }
    }
}
