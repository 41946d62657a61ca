//! The Circuits of all Endpoints, with their rests and budgets, as one Snapshot sees them: shared by all shards,
//! read per attempt, written on transitions.
//!
//! A success writes only its own shard's padded cells; the failure path sums all shards' cells.

use crate::logic::circuit::{Admission, Forced, State, Word};
use crate::logic::failover::World;
use crate::logic::limiter::{Limiter, Rate};
use crate::logic::snapshot::{CircuitRule, EndpointIx};
use crate::logic::units::Nanos;
use crate::logic::verdict::CircuitNote;
use crate::logic::window::Span;
use crate::shared::budget::Budget;
pub use crate::shared::circuit_cells::{Circuit, Permit};
use crate::shared::circuit_cells::{Failed, Rule};
use crate::shared::journal::{Journal, Transition};
use std::sync::Arc;

/// What is shared about one Endpoint, and the rules that it follows in one Snapshot.
#[derive(Debug, Clone)]
pub struct Entry {
    rule: Rule,
    circuit: Arc<Circuit>,
    limiter: Option<Limiter>,
    budget: Arc<Budget>,
}

impl Entry {
    /// An Endpoint with these rules; `circuit` and `budget` may come from another Snapshot.
    pub fn new(rule: CircuitRule, rate: Option<Rate>, circuit: Arc<Circuit>, budget: Arc<Budget>) -> Entry {
        let rule = Rule { circuit: rule, window: Span::new(rule.window_ns) };
        Entry { rule, circuit, limiter: rate.map(Limiter::new), budget }
    }
}

/// The Circuits of one Snapshot.
#[derive(Debug)]
pub struct CircuitBoard {
    entries: Vec<Entry>,
    journal: Arc<Journal>,
}

impl World for CircuitBoard {
    fn admission(&self, endpoint: EndpointIx, now_ns: Nanos) -> Admission {
        // What can't be read admits.
        let Some(entry) = self.at(endpoint) else { return Admission::Admit };
        let admission = entry.circuit.admission(now_ns);
        match entry.limiter {
            None => admission,
            Some(limiter) => admission.not_before(entry.budget.ready_ns(limiter), now_ns),
        }
    }
}

impl CircuitBoard {
    /// The board of a Snapshot: new Circuits are closed, kept ones stay as they are.
    pub fn new(entries: impl IntoIterator<Item = Entry>, journal: Arc<Journal>) -> CircuitBoard {
        CircuitBoard { entries: entries.into_iter().collect(), journal }
    }

    /// The Circuit of an Endpoint, to be kept in another Snapshot.
    pub fn circuit(&self, endpoint: EndpointIx) -> Option<Arc<Circuit>> {
        self.at(endpoint).map(|entry| entry.circuit.clone())
    }

    /// The budget of an Endpoint, to be kept in another Snapshot.
    pub fn budget(&self, endpoint: EndpointIx) -> Option<Arc<Budget>> {
        self.at(endpoint).map(|entry| entry.budget.clone())
    }

    /// Where transitions are written down.
    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    fn at(&self, endpoint: EndpointIx) -> Option<&Entry> {
        self.entries.get(usize::from(endpoint.0))
    }

    /// The Circuit's state as of now.
    pub fn state(&self, endpoint: EndpointIx) -> State {
        self.at(endpoint).map_or(Word::default(), |entry| entry.circuit.word()).state()
    }

    /// What the Circuit and a rest say: whether the Endpoint is usable, however much of its budget is left.
    pub fn usable(&self, endpoint: EndpointIx, now_ns: Nanos) -> Admission {
        self.at(endpoint).map_or(Admission::Admit, |entry| entry.circuit.admission(now_ns))
    }

    /// What rejects a Call now: the Circuit, else a rest, else the budget; `None` = nothing does.
    pub fn rejected_by(&self, endpoint: EndpointIx, now_ns: Nanos) -> Option<&'static str> {
        let entry = self.at(endpoint)?;
        let rejects = |admission: Admission| matches!(admission, Admission::Reject { .. });
        match () {
            () if rejects(entry.circuit.word().admission(now_ns)) => Some("circuit"),
            () if rejects(entry.circuit.admission(now_ns)) => Some("rest"),
            () if rejects(self.admission(endpoint, now_ns)) => Some("budget"),
            () => None,
        }
    }

    /// Until when an Endpoint rests, if it does.
    pub fn rests_until_ns(&self, endpoint: EndpointIx, now_ns: Nanos) -> Option<Nanos> {
        self.at(endpoint).map(|entry| entry.circuit.rests_until_ns()).filter(|until_ns| *until_ns > now_ns)
    }

    /// How often an Endpoint began to rest.
    pub fn rests(&self, endpoint: EndpointIx) -> u64 {
        self.at(endpoint).map_or(0, |entry| entry.circuit.rests())
    }

    /// How often a Circuit made this transition.
    pub fn transitions(&self, endpoint: EndpointIx, transition: Transition) -> u64 {
        self.at(endpoint).map_or(0, |entry| entry.circuit.transitions(transition))
    }

    /// Starts an attempt that ends at `until_ns`: takes the permit if it is a probe, and spends of the Endpoint's
    /// budget. Both or nothing.
    ///
    /// # Errors
    /// When to come back, if somebody else was faster.
    pub fn begin(
        &self,
        endpoint: EndpointIx,
        probe: bool,
        now_ns: Nanos,
        until_ns: Nanos,
    ) -> Result<Option<Permit>, Nanos> {
        let Some(entry) = self.at(endpoint) else { return Ok(None) };
        let permit = if probe { entry.circuit.take_permit(now_ns, until_ns)? } else { None };
        let Some(limiter) = entry.limiter else { return Ok(permit) };
        match entry.budget.take(limiter, now_ns) {
            Ok(()) => Ok(permit),
            Err(ready_ns) => {
                if let Some(permit) = permit {
                    entry.circuit.probe_returned(permit, now_ns);
                }
                Err(ready_ns)
            }
        }
    }

    /// Counts a whole answer, whatever it says: among these the busy ones are counted.
    pub fn answered(&self, endpoint: EndpointIx, shard: usize, now_ns: Nanos) {
        if let Some(entry) = self.at(endpoint) {
            entry.circuit.answered(shard, now_ns);
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
        let Some(Entry { rule, circuit, .. }) = self.at(endpoint) else { return };
        let failed = match note {
            CircuitNote::Success => {
                circuit.succeeded(shard, rule.window, now_ns);
                None
            }
            CircuitNote::Failure => Some(Failed::InARow),
            CircuitNote::FailureIfNoRecentSuccess => {
                (!circuit.succeeded_within(&rule.circuit, now_ns)).then_some(Failed::InARow)
            }
            CircuitNote::AbandonedAfterWait => Some(Failed::Sample),
            CircuitNote::Busy { retry_after_ns } => {
                circuit.was_busy(shard, &rule.circuit, retry_after_ns, now_ns);
                None
            }
            CircuitNote::Nothing => None,
        };
        let jitter = draw as f64 / u64::MAX as f64;
        match (permit, failed) {
            (None, None) => {}
            (None, Some(failed)) => circuit.failed(shard, rule, failed, now_ns, jitter),
            (Some(permit), Some(Failed::InARow)) => circuit.probe_failed(permit, &rule.circuit, now_ns, jitter),
            (Some(permit), None) if note == CircuitNote::Success => circuit.probe_succeeded(permit, now_ns),
            // A caller's patience proves nothing: the next Call probes.
            (Some(permit), None | Some(Failed::Sample)) => circuit.probe_returned(permit, now_ns),
        }
    }

    /// Holds a Circuit open or closed until `until_ns`, or lets it go. `false`: there was nothing to do.
    pub fn force(&self, endpoint: EndpointIx, forced: Forced, until_ns: Nanos, now_ns: Nanos) -> bool {
        self.at(endpoint).is_some_and(|entry| entry.circuit.force(forced, until_ns, now_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::units::{MS, SECOND};
    use crate::shared::journal::What;

    const RULE: CircuitRule = CircuitRule {
        consecutive_failures: 3,
        failure_ratio_ppm: 500_000,
        min_samples: 20,
        cooldown_ns: SECOND,
        max_cooldown_ns: 8 * SECOND,
        window_ns: 10 * SECOND,
    };
    const E: EndpointIx = EndpointIx(0);

    fn with(rule: CircuitRule, rate: Option<Rate>, shards: usize) -> CircuitBoard {
        let journal = Arc::new(Journal::default());
        let circuit = Circuit::closed("a", shards, journal.clone());
        CircuitBoard::new([Entry::new(rule, rate, circuit, Arc::default())], journal)
    }
    fn board(shards: usize) -> CircuitBoard {
        with(RULE, None, shards)
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
        assert_eq!(board.begin(E, true, SECOND, 9 * SECOND), Err(2 * SECOND));
        let permit = board.begin(E, true, 2 * SECOND, 3 * SECOND).unwrap().unwrap();
        assert_eq!(board.begin(E, true, 2 * SECOND, 3 * SECOND), Err(3 * SECOND));
        board.note(E, 0, CircuitNote::Failure, Some(permit), 2 * SECOND, u64::MAX / 2);
        assert_eq!(board.admission(E, 2 * SECOND), Admission::Reject { until_ns: 4 * SECOND }, "doubled");
        let permit = board.begin(E, true, 4 * SECOND, 5 * SECOND).unwrap();
        let permit = permit.unwrap();
        board.note(E, 0, CircuitNote::Success, Some(permit), 4 * SECOND, 0);
        assert_eq!(board.admission(E, 4 * SECOND), Admission::Admit);
        assert_eq!(board.begin(E, true, 4 * SECOND, 5 * SECOND), Ok(None));
    }

    #[test]
    fn a_probe_without_a_result_gives_its_permit_back() {
        let board = board(1);
        (0..3).for_each(|_| note(&board, 0, CircuitNote::Failure, SECOND));
        let permit = board.begin(E, true, 2 * SECOND, 30 * SECOND).unwrap().unwrap();
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
                        (0..16).filter(|_| board.begin(E, true, 2 * SECOND, 9 * SECOND).is_ok()).count()
                    })
                });
                tries.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!(won, 1);
        }
    }

    const BUSY: CircuitNote = CircuitNote::Busy { retry_after_ns: None };

    #[test]
    fn a_share_of_failures_opens_it_over_all_shards() {
        let rule = CircuitRule { consecutive_failures: 1_000, ..RULE };
        let board = with(rule, None, 2);
        for at in 0..10 {
            note(&board, at % 2, CircuitNote::Success, SECOND + at as u64 * 100 * MS);
            if at < 9 {
                note(&board, (at + 1) % 2, CircuitNote::Failure, SECOND + at as u64 * 100 * MS);
            }
        }
        assert_eq!(board.admission(E, 2 * SECOND), Admission::Admit, "19 samples");
        note(&board, 0, CircuitNote::Failure, 2 * SECOND);
        assert_eq!(board.admission(E, 2 * SECOND), Admission::Reject { until_ns: 3 * SECOND });
        assert_eq!(
            (board.transitions(E, Transition::Tripped), board.transitions(E, Transition::TrippedByRatio)),
            (0, 1)
        );
        // Closed again, it begins anew: what was before does not open it at the first failure.
        let permit = board.begin(E, true, 3 * SECOND, 4 * SECOND).unwrap();
        board.note(E, 0, CircuitNote::Success, permit, 3 * SECOND, 0);
        (0..9).for_each(|_| note(&board, 0, CircuitNote::Failure, 3 * SECOND + MS));
        assert_eq!(board.admission(E, 3 * SECOND + MS), Admission::Admit);
        (0..20).for_each(|_| note(&board, 1, CircuitNote::Failure, 5 * SECOND));
        assert!(matches!(board.admission(E, 5 * SECOND), Admission::Reject { .. }));
    }

    #[test]
    fn old_failures_open_nothing() {
        let rule = CircuitRule { consecutive_failures: 1_000, ..RULE };
        let board = with(rule, None, 1);
        (0..19).for_each(|_| note(&board, 0, CircuitNote::Failure, SECOND));
        note(&board, 0, CircuitNote::Failure, 11 * SECOND + 2 * MS);
        assert_eq!(board.admission(E, 11 * SECOND + 2 * MS), Admission::Admit);
    }

    #[test]
    fn callers_that_do_not_wait_count_in_the_share_and_not_in_a_row() {
        let board = with(RULE, None, 2);
        (0..19).for_each(|at| note(&board, at % 2, CircuitNote::AbandonedAfterWait, SECOND));
        assert_eq!(board.admission(E, SECOND), Admission::Admit);
        note(&board, 0, CircuitNote::AbandonedAfterWait, SECOND);
        assert!(matches!(board.admission(E, SECOND), Admission::Reject { .. }));
        assert_eq!(board.transitions(E, Transition::TrippedByRatio), 1);
        let permit = board.begin(E, true, 3 * SECOND, 9 * SECOND).unwrap();
        board.note(E, 0, CircuitNote::AbandonedAfterWait, permit, 4 * SECOND, 0);
        assert_eq!(board.admission(E, 4 * SECOND), Admission::Probe, "it says nothing as a probe");
    }

    #[test]
    fn a_busy_endpoint_rests_for_all_shards_and_has_not_failed() {
        let board = board(2);
        let busy = CircuitNote::Busy { retry_after_ns: Some(2 * SECOND) };
        (0..50).for_each(|_| note(&board, 0, busy, SECOND));
        assert_eq!(board.admission(E, 3 * SECOND - 1), Admission::Reject { until_ns: 3 * SECOND });
        assert_eq!((board.rests_until_ns(E, SECOND), board.rests(E)), (Some(3 * SECOND), 1));
        assert_eq!((board.admission(E, 3 * SECOND), board.rests_until_ns(E, 3 * SECOND)), (Admission::Admit, None));
        assert!(matches!(board.state(E), State::Closed));
        // A shorter wait does not end a longer one.
        note(&board, 0, CircuitNote::Busy { retry_after_ns: Some(3 * SECOND) }, 4 * SECOND);
        note(&board, 1, CircuitNote::Busy { retry_after_ns: Some(SECOND) }, 5 * SECOND);
        assert_eq!((board.rests_until_ns(E, 5 * SECOND), board.rests(E)), (Some(7 * SECOND), 2));
        note(&board, 1, CircuitNote::Busy { retry_after_ns: Some(u64::MAX) }, 10 * SECOND);
        assert_eq!(board.rests_until_ns(E, 10 * SECOND), Some(18 * SECOND), "at most max_cooldown");
    }

    #[test]
    fn unasked_it_rests_once_a_tenth_of_the_last_second_was_busy() {
        let board = board(2);
        let busy = |shard, now_ns| {
            board.answered(E, shard, now_ns);
            note(&board, shard, BUSY, now_ns);
        };
        (0..90).for_each(|at| board.answered(E, at % 2, 5 * SECOND));
        (0..9).for_each(|at| busy(at % 2, 5 * SECOND + MS));
        assert_eq!(board.rests_until_ns(E, 5 * SECOND + MS), None, "9 of 99");
        busy(0, 5 * SECOND + 2 * MS);
        assert_eq!(board.rests_until_ns(E, 5 * SECOND + 2 * MS), Some(6 * SECOND + 2 * MS), "10 of 100");
        // A second later those say nothing any more.
        (0..10).for_each(|_| board.answered(E, 1, 7 * SECOND));
        busy(0, 7 * SECOND);
        assert_eq!((board.rests_until_ns(E, 7 * SECOND), board.rests(E)), (None, 1), "1 of 11");
    }

    #[test]
    fn a_probe_that_finds_it_busy_gives_its_permit_back() {
        let board = board(1);
        (0..3).for_each(|_| note(&board, 0, CircuitNote::Failure, SECOND));
        let permit = board.begin(E, true, 2 * SECOND, 30 * SECOND).unwrap();
        board.note(E, 0, CircuitNote::Busy { retry_after_ns: Some(SECOND) }, permit, 3 * SECOND, 0);
        assert_eq!(board.admission(E, 3 * SECOND), Admission::Reject { until_ns: 4 * SECOND });
        assert_eq!(board.admission(E, 4 * SECOND), Admission::Probe);
    }

    #[test]
    fn a_budget_is_spent_by_attempts_that_start_and_by_nothing_else() {
        let board = with(RULE, Some(Rate { rps: 1, burst: 2 }), 2);
        (0..9).for_each(|_| assert_eq!(board.admission(E, 10 * SECOND), Admission::Admit));
        (0..2).for_each(|_| assert_eq!(board.begin(E, false, 10 * SECOND, 20 * SECOND), Ok(None)));
        assert_eq!(board.admission(E, 10 * SECOND), Admission::Reject { until_ns: 11 * SECOND });
        assert_eq!(board.usable(E, 10 * SECOND), Admission::Admit);
        (0..9).for_each(|_| assert_eq!(board.begin(E, false, 10 * SECOND, 20 * SECOND), Err(11 * SECOND)));
        assert_eq!(board.admission(E, 11 * SECOND), Admission::Admit);
    }

    #[test]
    fn a_probe_over_budget_gives_its_permit_back() {
        let board = with(RULE, Some(Rate { rps: 1, burst: 1 }), 1);
        (0..3).for_each(|_| note(&board, 0, CircuitNote::Failure, SECOND));
        assert_eq!(board.begin(E, false, 2 * SECOND, 3 * SECOND), Ok(None));
        assert_eq!(board.begin(E, true, 2 * SECOND, 9 * SECOND), Err(3 * SECOND));
        assert_eq!(board.admission(E, 3 * SECOND), Admission::Probe);
        assert!(board.begin(E, true, 3 * SECOND, 9 * SECOND).is_ok_and(|permit| permit.is_some()));
        // A lost permit costs no budget.
        assert_eq!(board.begin(E, true, 5 * SECOND, 9 * SECOND), Err(9 * SECOND));
        assert_eq!(board.begin(E, false, 5 * SECOND, 9 * SECOND), Ok(None));
    }

    #[test]
    fn an_operator_overrules_and_is_counted_and_written_down() {
        let board = board(1);
        assert!(!board.force(E, Forced::Auto, 0, SECOND), "nothing to let go of");
        assert!(board.force(E, Forced::Open, 9 * SECOND, SECOND));
        assert_eq!(board.admission(E, 2 * SECOND), Admission::Reject { until_ns: 9 * SECOND });
        assert_eq!(board.state(E), State::HeldOpen { until_ns: 9 * SECOND });
        assert!(board.force(E, Forced::Closed, 5 * SECOND, 2 * SECOND));
        (0..50).for_each(|_| note(&board, 0, CircuitNote::Failure, 3 * SECOND));
        assert_eq!(board.admission(E, 3 * SECOND), Admission::Admit, "whatever fails");
        note(&board, 0, CircuitNote::Failure, 5 * SECOND);
        assert!(matches!(board.admission(E, 5 * SECOND), Admission::Reject { .. }), "the hold is over");
        assert!(board.force(E, Forced::Open, 20 * SECOND, 6 * SECOND));
        assert!(board.force(E, Forced::Auto, 0, 7 * SECOND));
        assert_eq!(board.admission(E, 7 * SECOND), Admission::Probe);
        let lines = std::iter::from_fn(|| board.journal().take());
        let told: Vec<_> = lines.map(|line| (line.what, line.for_ns / SECOND)).collect();
        let right = [
            (What::Circuit(Transition::HeldOpen), 8),
            (What::Circuit(Transition::HeldClosed), 3),
            (What::Circuit(Transition::Tripped), 1),
            (What::Circuit(Transition::HeldOpen), 14),
            (What::Circuit(Transition::Released), 0),
        ];
        assert_eq!(told, right);
        assert_eq!(board.transitions(E, Transition::HeldOpen), 2);
    }
}
