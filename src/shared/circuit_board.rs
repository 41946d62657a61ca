//! The Circuits of all Endpoints, shared by all shards: one word each, read per attempt, written on transitions.
//!
//! A success writes only its own shard's padded cell; the failure path sums all shards' cells.

use crate::logic::circuit::{Admission, Streak, Word};
use crate::logic::failover::World;
use crate::logic::snapshot::{CircuitRule, EndpointIx};
use crate::logic::units::Nanos;
use crate::logic::verdict::CircuitNote;
use crate::shared::counters::{Cell, PerShard};
use crossbeam_utils::CachePadded;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Why and whereto a Circuit changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// Closed to open: too many failures in a row.
    Tripped,
    /// Open to half-open: a probe is on its way.
    Probing,
    /// Half-open to open: the probe failed.
    ProbeFailed,
    /// Half-open to closed: the probe succeeded.
    ProbeSucceeded,
    /// Half-open to open: the probe ended without saying anything.
    ProbeReturned,
}

impl Transition {
    /// All transitions, in the order of their counters.
    pub const ALL: [Transition; 5] = [
        Transition::Tripped,
        Transition::Probing,
        Transition::ProbeFailed,
        Transition::ProbeSucceeded,
        Transition::ProbeReturned,
    ];
    /// The state that it leads to, as a label.
    pub const fn to(self) -> &'static str {
        match self {
            Transition::Tripped | Transition::ProbeFailed | Transition::ProbeReturned => "open",
            Transition::Probing => "half_open",
            Transition::ProbeSucceeded => "closed",
        }
    }
    /// Its reason, as a label.
    pub const fn reason(self) -> &'static str {
        match self {
            Transition::Tripped => "consecutive_failures",
            Transition::Probing => "cooldown_over",
            Transition::ProbeFailed => "probe_failed",
            Transition::ProbeSucceeded => "probe_succeeded",
            Transition::ProbeReturned => "probe_inconclusive",
        }
    }
}

/// The permit of a probe: the word that was swapped in for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permit(Word);

#[derive(Debug, Default)]
struct Successes {
    count: Cell,
    last_ns: Cell,
}

/// One Endpoint's Circuit. It outlives Snapshots: a reload that keeps the Endpoint's host and port keeps it.
#[derive(Debug)]
pub struct Circuit {
    word: CachePadded<AtomicU64>,
    streak: CachePadded<AtomicU64>,
    transitions: [AtomicU64; Transition::ALL.len()],
    successes: PerShard<Successes>,
}

/// The Circuits of one Snapshot, each with the rule that it follows there.
#[derive(Debug)]
pub struct CircuitBoard(Vec<(CircuitRule, Arc<Circuit>)>);

impl World for CircuitBoard {
    fn admission(&self, endpoint: EndpointIx, now_ns: Nanos) -> Admission {
        // What can't be read admits.
        self.at(endpoint).map_or(Admission::Admit, |(_, circuit)| circuit.word().admission(now_ns))
    }
}

impl CircuitBoard {
    /// The board of a Snapshot: new Circuits are closed, kept ones stay as they are.
    pub fn new(circuits: impl IntoIterator<Item = (CircuitRule, Arc<Circuit>)>) -> CircuitBoard {
        CircuitBoard(circuits.into_iter().collect())
    }

    /// The Circuit of an Endpoint, to be kept in another Snapshot.
    pub fn circuit(&self, endpoint: EndpointIx) -> Option<Arc<Circuit>> {
        self.at(endpoint).map(|(_, circuit)| circuit.clone())
    }

    fn at(&self, endpoint: EndpointIx) -> Option<&(CircuitRule, Arc<Circuit>)> {
        self.0.get(usize::from(endpoint.0))
    }

    /// The Circuit's word as of now.
    pub fn word(&self, endpoint: EndpointIx) -> Word {
        self.at(endpoint).map_or(Word::default(), |(_, circuit)| circuit.word())
    }

    /// How often a Circuit made this transition.
    pub fn transitions(&self, endpoint: EndpointIx, transition: Transition) -> u64 {
        self.at(endpoint).map_or(0, |(_, circuit)| circuit.transitions[transition as usize].load(Relaxed))
    }

    /// Takes the one permit to probe. `Ok(None)`: the Circuit has closed meanwhile, and none is needed.
    ///
    /// # Errors
    /// When to come back, if somebody else was faster.
    pub fn take_permit(&self, endpoint: EndpointIx, now_ns: Nanos, until_ns: Nanos) -> Result<Option<Permit>, Nanos> {
        let Some((_, circuit)) = self.at(endpoint) else { return Ok(None) };
        let word = circuit.word();
        match word.admission(now_ns) {
            Admission::Probe => {
                let permit = word.probe(until_ns);
                if circuit.swap(word, permit, Transition::Probing) {
                    return Ok(Some(Permit(permit)));
                }
                match circuit.word().admission(now_ns) {
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

    /// Tells a Circuit what an attempt says about its Endpoint. `draw` is a random number for the jitter.
    pub fn note(
        &self,
        endpoint: EndpointIx,
        shard: usize,
        note: CircuitNote,
        permit: Option<Permit>,
        now_ns: Nanos,
        draw: u64,
    ) {
        let Some((rule, circuit)) = self.at(endpoint) else { return };
        let failed = match note {
            CircuitNote::Success => {
                circuit.succeeded(shard, now_ns);
                false
            }
            CircuitNote::Failure => true,
            CircuitNote::FailureIfNoRecentSuccess => !circuit.succeeded_within(rule, now_ns),
            CircuitNote::Nothing => false,
        };
        let jitter = draw as f64 / u64::MAX as f64;
        match (permit, failed, note) {
            (None, false, _) => {}
            (None, true, _) => circuit.failed(rule, now_ns, jitter),
            (Some(permit), true, _) => circuit
                .probe_ended(permit, Transition::ProbeFailed, |word| word.probe_failed(permit.0, rule, now_ns, jitter)),
            (Some(permit), false, CircuitNote::Success) => {
                circuit.probe_ended(permit, Transition::ProbeSucceeded, |word| word.probe_succeeded(permit.0, now_ns));
            }
            (Some(permit), false, _) => {
                circuit.probe_ended(permit, Transition::ProbeReturned, |word| word.probe_returned(permit.0, now_ns))
            }
        }
    }
}

impl Circuit {
    /// A closed one, with a cell for each shard.
    pub fn closed(shards: usize) -> Arc<Circuit> {
        Arc::new(Circuit {
            word: CachePadded::default(),
            streak: CachePadded::default(),
            transitions: Default::default(),
            successes: (0..shards).map(|_| CachePadded::default()).collect(),
        })
    }

    fn word(&self) -> Word {
        Word(self.word.load(Relaxed))
    }

    fn swap(&self, old: Word, new: Word, transition: Transition) -> bool {
        let swapped = self.word.compare_exchange(old.0, new.0, Relaxed, Relaxed).is_ok();
        if swapped {
            self.transitions[transition as usize].fetch_add(1, Relaxed);
        }
        swapped
    }

    fn succeeded(&self, shard: usize, now_ns: Nanos) {
        if let Some(own) = self.successes.get(shard) {
            own.count.add(1);
            own.last_ns.set(now_ns);
        }
    }

    fn succeeded_within(&self, rule: &CircuitRule, now_ns: Nanos) -> bool {
        let last_ns = self.successes.iter().map(|own| own.last_ns.get()).max().unwrap_or(0);
        last_ns != 0 && last_ns + rule.window_ns >= now_ns
    }

    /// Counts a failure in a row, and opens the Circuit once there are enough.
    fn failed(&self, rule: &CircuitRule, now_ns: Nanos, jitter: f64) {
        let successes = self.successes.iter().map(|own| own.count.get()).sum();
        let mut failures = 0;
        let _ = self.streak.fetch_update(Relaxed, Relaxed, |old| {
            let streak = Streak(old).failed(successes);
            failures = streak.failures();
            Some(streak.0)
        });
        if failures < u64::from(rule.consecutive_failures) {
            return;
        }
        let word = self.word();
        // Open or probing already: late failures of attempts that began before change nothing.
        if word.admission(now_ns) == Admission::Admit {
            self.swap(word, word.trip(rule, now_ns, jitter), Transition::Tripped);
        }
    }

    fn probe_ended(&self, permit: Permit, transition: Transition, next: impl Fn(Word) -> Option<Word>) {
        // Only the holder of the permit changes a probing word, so one try is enough: if it fails, the
        // permit had expired and somebody else probes.
        if let Some(new) = next(self.word()) {
            if transition == Transition::ProbeSucceeded {
                self.streak.store(0, Relaxed);
            }
            self.swap(permit.0, new, transition);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::units::SECOND;

    const RULE: CircuitRule = CircuitRule {
        consecutive_failures: 3,
        cooldown_ns: SECOND,
        max_cooldown_ns: 8 * SECOND,
        window_ns: 10 * SECOND,
    };
    const E: EndpointIx = EndpointIx(0);

    fn board(shards: usize) -> CircuitBoard {
        CircuitBoard::new([(RULE, Circuit::closed(shards))])
    }
    fn note(board: &CircuitBoard, shard: usize, note: CircuitNote, now_ns: Nanos) {
        board.note(E, shard, note, None, now_ns, 0);
    }

    #[test]
    fn failures_in_a_row_are_counted_over_all_shards() {
        let board = board(2);
        note(&board, 0, CircuitNote::Failure, SECOND);
        note(&board, 1, CircuitNote::Failure, SECOND);
        assert_eq!(board.admission(E, SECOND), Admission::Admit);
        note(&board, 1, CircuitNote::Success, SECOND);
        note(&board, 0, CircuitNote::Failure, SECOND);
        note(&board, 1, CircuitNote::Failure, SECOND);
        assert_eq!(board.admission(E, SECOND), Admission::Admit, "a success in between starts anew");
        note(&board, 0, CircuitNote::Failure, SECOND);
        assert_eq!(board.admission(E, SECOND), Admission::Reject { until_ns: 2 * SECOND });
        assert_eq!(board.transitions(E, Transition::Tripped), 1);
    }

    #[test]
    fn one_probe_decides() {
        let board = board(1);
        (0..3).for_each(|_| note(&board, 0, CircuitNote::Failure, SECOND));
        assert_eq!(board.take_permit(E, SECOND, 9 * SECOND), Err(2 * SECOND));
        let permit = board.take_permit(E, 2 * SECOND, 3 * SECOND).unwrap().unwrap();
        assert_eq!(board.take_permit(E, 2 * SECOND, 3 * SECOND), Err(3 * SECOND));
        board.note(E, 0, CircuitNote::Failure, Some(permit), 2 * SECOND, u64::MAX / 2);
        assert_eq!(board.admission(E, 2 * SECOND), Admission::Reject { until_ns: 4 * SECOND }, "doubled");
        let permit = board.take_permit(E, 4 * SECOND, 5 * SECOND).unwrap();
        let permit = permit.unwrap();
        board.note(E, 0, CircuitNote::Success, Some(permit), 4 * SECOND, 0);
        assert_eq!(board.admission(E, 4 * SECOND), Admission::Admit);
        assert_eq!(board.take_permit(E, 4 * SECOND, 5 * SECOND), Ok(None));
    }

    #[test]
    fn a_probe_without_a_result_gives_its_permit_back() {
        let board = board(1);
        (0..3).for_each(|_| note(&board, 0, CircuitNote::Failure, SECOND));
        let permit = board.take_permit(E, 2 * SECOND, 30 * SECOND).unwrap().unwrap();
        board.note(E, 0, CircuitNote::Nothing, Some(permit), 3 * SECOND, 0);
        assert_eq!(board.admission(E, 3 * SECOND), Admission::Probe);
    }

    #[test]
    fn a_refusal_for_configuration_counts_only_without_a_recent_success() {
        let board = board(1);
        note(&board, 0, CircuitNote::Success, SECOND);
        (0..9).for_each(|_| note(&board, 0, CircuitNote::FailureIfNoRecentSuccess, 11 * SECOND));
        assert_eq!(board.admission(E, 11 * SECOND), Admission::Admit);
        (0..3).for_each(|_| note(&board, 0, CircuitNote::FailureIfNoRecentSuccess, 12 * SECOND));
        assert!(matches!(board.admission(E, 12 * SECOND), Admission::Reject { .. }));
    }

    #[test]
    fn exactly_one_probe_over_threads() {
        for _ in 0..200 {
            let board = board(2);
            (0..3).for_each(|_| note(&board, 0, CircuitNote::Failure, SECOND));
            let start = std::sync::Barrier::new(4);
            let won: usize = std::thread::scope(|scope| {
                let tries = (0..4).map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        (0..16).filter(|_| board.take_permit(E, 2 * SECOND, 9 * SECOND).is_ok()).count()
                    })
                });
                tries.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!(won, 1);
        }
    }
}
