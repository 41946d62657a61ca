//! Shards that meet at one Circuit or one budget, in every order that the memory model allows.

use loom::thread;
use ringway_loom_board::logic::circuit::{Admission, Forced, State};
use ringway_loom_board::logic::failover::World;
use ringway_loom_board::logic::limiter::Rate;
use ringway_loom_board::logic::snapshot::{CircuitRule, EndpointIx};
use ringway_loom_board::logic::units::SECOND;
use ringway_loom_board::logic::verdict::CircuitNote;
use ringway_loom_board::shared::circuit_board::{Circuit, CircuitBoard, Entry, Permit};
use ringway_loom_board::shared::journal::{Journal, Transition};
use std::sync::Arc;

const E: EndpointIx = EndpointIx(0);
const SHARDS: usize = 2;
/// Where the race is short enough to see every order of three.
const MORE_SHARDS: usize = 3;
const RULE: CircuitRule = CircuitRule {
    consecutive_failures: 1,
    failure_ratio_ppm: 1_000_000,
    min_samples: 2,
    cooldown_ns: SECOND,
    max_cooldown_ns: 8 * SECOND,
    window_ns: 10 * SECOND,
};

fn board(rule: CircuitRule, rate: Option<Rate>) -> Arc<CircuitBoard> {
    let journal = Arc::new(Journal::default());
    let circuit = Circuit::closed("a", MORE_SHARDS, journal.clone());
    Arc::new(CircuitBoard::new([Entry::new(rule, rate, circuit, Arc::default())], journal))
}

fn note(board: &CircuitBoard, shard: usize, note: CircuitNote, permit: Option<Permit>, now_ns: u64) {
    board.note(E, shard, note, permit, now_ns, 0);
}

/// A board whose Circuit has opened at one second, until two.
fn opened(rate: Option<Rate>) -> Arc<CircuitBoard> {
    let board = board(RULE, rate);
    note(&board, 0, CircuitNote::Failure, None, SECOND);
    assert!(matches!(board.state(E), State::Open { .. }));
    board
}

/// The same on so many shards, at once; what came of it.
fn on_shards<T: 'static>(
    shards: usize,
    board: &Arc<CircuitBoard>,
    what: impl Fn(&CircuitBoard, usize) -> T + Copy + 'static,
) -> Vec<T> {
    let others: Vec<_> = (1..shards)
        .map(|shard| {
            let board = board.clone();
            thread::spawn(move || what(&board, shard))
        })
        .collect();
    let own = what(board, 0);
    std::iter::once(own).chain(others.into_iter().map(|other| other.join().unwrap())).collect()
}

fn begin(board: &CircuitBoard, now_ns: u64, until_ns: u64) -> Result<Option<Permit>, u64> {
    board.begin(E, true, now_ns, until_ns)
}

#[test]
fn exactly_one_shard_gets_the_permit() {
    loom::model(|| {
        let board = opened(None);
        let got = on_shards(MORE_SHARDS, &board, |board, _| begin(board, 2 * SECOND, 9 * SECOND));
        assert_eq!(got.iter().filter(|permit| matches!(permit, Ok(Some(_)))).count(), 1, "{got:?}");
        assert_eq!(got.iter().filter(|permit| **permit == Err(9 * SECOND)).count(), MORE_SHARDS - 1, "{got:?}");
        assert_eq!(board.transitions(E, Transition::Probing), 1);
    });
}

#[test]
fn a_probe_that_ends_while_another_shard_tries_leaves_one_state() {
    for result in [CircuitNote::Success, CircuitNote::Failure, CircuitNote::Nothing] {
        loom::model(move || {
            let board = opened(None);
            let got = on_shards(SHARDS, &board, move |board, shard| {
                let permit = begin(board, 2 * SECOND, 9 * SECOND);
                if let Ok(Some(permit)) = permit {
                    note(board, shard, result, Some(permit), 3 * SECOND);
                }
                permit
            });
            let probes = got.iter().filter(|permit| matches!(permit, Ok(Some(_)))).count() as u64;
            assert_eq!(board.transitions(E, Transition::Probing), probes);
            let (state, admission) = (board.state(E), board.admission(E, 3 * SECOND));
            match result {
                CircuitNote::Success => assert_eq!((state, probes), (State::Closed, 1)),
                CircuitNote::Failure => assert!(matches!(admission, Admission::Reject { .. }) && probes == 1),
                // Given back, it may be taken again: by whoever saw that.
                _ => assert!(admission == Admission::Probe && (1..=2).contains(&probes), "{state:?} {probes}"),
            }
        });
    }
}

#[test]
fn a_lost_probe_never_closes_an_endpoint_for_ever() {
    loom::model(|| {
        let board = opened(None);
        // Both try, and whoever wins is never heard of again.
        on_shards(SHARDS, &board, |board, _| begin(board, 2 * SECOND, 9 * SECOND).is_ok());
        assert_eq!(board.admission(E, 9 * SECOND - 1), Admission::Reject { until_ns: 9 * SECOND });
        assert_eq!(board.admission(E, 9 * SECOND), Admission::Probe);
        let got = on_shards(SHARDS, &board, |board, _| begin(board, 9 * SECOND, 20 * SECOND));
        assert_eq!(got.iter().filter(|permit| matches!(permit, Ok(Some(_)))).count(), 1, "{got:?}");
    });
}

#[test]
fn a_result_under_an_expired_permit_is_ignored() {
    for late in [CircuitNote::Success, CircuitNote::Failure, CircuitNote::Nothing] {
        loom::model(move || {
            let board = opened(None);
            let old = begin(&board, 2 * SECOND, 3 * SECOND).unwrap().unwrap();
            // Its time is over. While its result comes in, another shard takes the next permit.
            let other = {
                let board = board.clone();
                thread::spawn(move || begin(&board, 4 * SECOND, 9 * SECOND))
            };
            note(&board, 0, late, Some(old), 4 * SECOND);
            let new = other.join().unwrap();
            assert!(matches!(new, Ok(Some(_))), "{new:?}");
            assert_eq!(board.state(E), State::Probing { until_ns: 9 * SECOND });
            note(&board, 0, late, Some(old), 5 * SECOND);
            assert_eq!(board.state(E), State::Probing { until_ns: 9 * SECOND });
            let ended = [Transition::ProbeSucceeded, Transition::ProbeFailed, Transition::ProbeReturned];
            assert_eq!(ended.map(|one| board.transitions(E, one)), [0; 3]);
        });
    }
}

#[test]
fn an_operator_and_a_probe_that_ends_at_once_are_put_in_order() {
    loom::model(|| {
        let board = opened(None);
        let permit = begin(&board, 2 * SECOND, 9 * SECOND).unwrap();
        let operator = {
            let board = board.clone();
            thread::spawn(move || board.force(E, Forced::Open, 60 * SECOND, 3 * SECOND))
        };
        note(&board, 0, CircuitNote::Success, permit, 3 * SECOND);
        assert!(operator.join().unwrap());
        assert_eq!(board.state(E), State::HeldOpen { until_ns: 60 * SECOND }, "the operator has the last word");
        assert_eq!(board.transitions(E, Transition::HeldOpen), 1);
    });
}

#[test]
fn failures_at_once_open_it_once() {
    loom::model(|| {
        let board = board(CircuitRule { consecutive_failures: 2, min_samples: 1_000, ..RULE }, None);
        on_shards(SHARDS, &board, |board, shard| note(board, shard, CircuitNote::Failure, None, SECOND));
        assert_eq!(board.state(E), State::Open { until_ns: 2 * SECOND }, "none is lost");
        assert_eq!(board.transitions(E, Transition::Tripped), 1);
    });
}

#[test]
fn a_share_of_failures_opens_it_at_most_once_and_no_sample_is_made_up() {
    loom::model(|| {
        let rule = CircuitRule { consecutive_failures: 1_000, min_samples: 3, ..RULE };
        let board = board(rule, None);
        on_shards(SHARDS, &board, |board, shard| note(board, shard, CircuitNote::Failure, None, SECOND));
        assert_eq!(board.state(E), State::Closed, "two samples are no three");
        note(&board, 0, CircuitNote::Failure, None, SECOND);
        assert_eq!(board.transitions(E, Transition::TrippedByRatio), 1);
    });
}

#[test]
fn the_last_of_a_budget_is_spent_once() {
    loom::model(|| {
        let board = board(RULE, Some(Rate { rps: 1, burst: 1 }));
        let got = on_shards(MORE_SHARDS, &board, |board, _| board.begin(E, false, 5 * SECOND, 9 * SECOND));
        assert_eq!(got.iter().filter(|begun| begun.is_ok()).count(), 1, "{got:?}");
        assert_eq!(got.iter().filter(|begun| **begun == Err(6 * SECOND)).count(), MORE_SHARDS - 1);
        assert_eq!(board.admission(E, 6 * SECOND), Admission::Admit);
    });
}

#[test]
fn each_shard_gets_its_own_part_of_a_budget() {
    loom::model(|| {
        let board = board(RULE, Some(Rate { rps: 1, burst: MORE_SHARDS as u32 }));
        let got = on_shards(MORE_SHARDS, &board, |board, _| board.begin(E, false, 5 * SECOND, 9 * SECOND));
        assert!(got.iter().all(Result::is_ok), "{got:?}");
        assert_eq!(board.begin(E, false, 5 * SECOND, 9 * SECOND), Err(6 * SECOND));
    });
}

#[test]
fn a_probe_that_finds_its_budget_spent_leaves_a_permit_for_the_next() {
    loom::model(|| {
        let board = opened(Some(Rate { rps: 1, burst: 1 }));
        assert_eq!(board.begin(E, false, 2 * SECOND, 9 * SECOND), Ok(None));
        let got = on_shards(SHARDS, &board, |board, _| begin(board, 2 * SECOND, 9 * SECOND));
        assert!(got.iter().all(Result::is_err), "{got:?}");
        assert_eq!(board.admission(E, 3 * SECOND), Admission::Probe);
        assert!(matches!(begin(&board, 3 * SECOND, 9 * SECOND), Ok(Some(_))));
    });
}

#[test]
fn the_longest_rest_counts_and_it_is_one_rest() {
    loom::model(|| {
        let board = board(RULE, None);
        on_shards(SHARDS, &board, |board, shard| {
            let retry_after_ns = Some((shard as u64 + 1) * SECOND);
            note(board, shard, CircuitNote::Busy { retry_after_ns }, None, 5 * SECOND);
        });
        assert_eq!(board.rests_until_ns(E, 5 * SECOND), Some((5 + SHARDS as u64) * SECOND));
        assert_eq!((board.rests(E), board.state(E)), (1, State::Closed));
    });
}
