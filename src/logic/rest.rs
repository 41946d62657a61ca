//! When a busy Endpoint is left alone, and for how long: a rest, which ends by itself and is no failure.

use super::snapshot::CircuitRule;
use super::units::{Nanos, SECOND};
use super::window::Span;

/// A rest that nobody asked for.
const UNASKED_NS: Nanos = SECOND;
/// Over what time the share of busy answers counts.
pub const ANSWERS: Span = Span::new(SECOND);

/// How long an Endpoint rests after a busy answer; `None`: it goes on. `busy` of its `answers` in the last second
/// were busy, this one included.
///
/// An Endpoint that says when to come back is believed, up to `max_cooldown`. One that does not may have refused
/// one method or one burst, so it rests only once a tenth of its answers are refusals.
pub fn rest_ns(rule: &CircuitRule, retry_after_ns: Option<Nanos>, busy: u64, answers: u64) -> Option<Nanos> {
    match retry_after_ns {
        Some(asked_ns) => Some(asked_ns.min(rule.max_cooldown_ns)).filter(|rest_ns| *rest_ns > 0),
        None => (busy.saturating_mul(10) >= answers).then_some(UNASKED_NS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::circuit::RULE;

    #[test]
    fn it_rests_as_long_as_it_asked_for() {
        assert_eq!(rest_ns(&RULE, Some(2 * SECOND), 1, 1_000), Some(2 * SECOND));
        assert_eq!(rest_ns(&RULE, Some(u64::MAX), 1, 1_000), Some(RULE.max_cooldown_ns), "within reason");
        assert_eq!(rest_ns(&RULE, Some(0), 1, 1), None, "come back at once");
    }

    #[test]
    fn unasked_it_rests_once_a_tenth_of_its_answers_were_busy() {
        assert_eq!(rest_ns(&RULE, None, 1, 1), Some(SECOND));
        assert_eq!(rest_ns(&RULE, None, 1, 10), Some(SECOND));
        assert_eq!(rest_ns(&RULE, None, 1, 11), None);
        assert_eq!(rest_ns(&RULE, None, 10, 101), None);
        assert_eq!(rest_ns(&RULE, None, 11, 101), Some(SECOND));
    }
}
