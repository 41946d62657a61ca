//! What is told about one decision, on request: the trail of a Call's attempts.

use super::failover::{Finish, Put};
use super::snapshot::{ATTEMPTS_MAX, EndpointIx, RouteIx};
use super::tiers::Cause;
use super::units::Nanos;
use super::verdict::Verdict;

/// One attempt, as the trail tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Where.
    pub endpoint: EndpointIx,
    /// What came of it.
    pub verdict: Verdict,
    /// Why an answer that would be final was not delivered at once.
    pub objection: Option<Cause>,
    /// How long it took.
    pub took_ns: Nanos,
}

impl Step {
    /// What came of it, and how certain that is, in the words of the metrics.
    pub const fn words(&self) -> (&'static str, &'static str) {
        if let Some(cause) = self.objection {
            return (cause.word(), "final");
        }
        match self.verdict {
            Verdict::Final => ("ok", "final"),
            Verdict::TooLarge => ("response_too_large", "final"),
            Verdict::NoRoom => ("no_room", "final"),
            Verdict::Failed(failure) => (failure.reason.word(), failure.certainty.word()),
        }
    }
}

/// The attempts of one Call, in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trail {
    /// Its Route, if it reached one.
    pub route: Option<RouteIx>,
    /// Whose answer is kept for the case that no better one comes.
    kept: Option<EndpointIx>,
    /// That one was delivered.
    is_kept: bool,
    steps: [Option<Step>; ATTEMPTS_MAX as usize],
    length: usize,
}

impl Trail {
    /// Adds an attempt; there is room for as many as a Call can have.
    pub fn push(&mut self, step: Step) {
        if let Some(free) = self.steps.get_mut(self.length) {
            *free = Some(step);
            self.length += 1;
        }
    }

    /// The answer of the last attempt was put there.
    pub fn put(&mut self, put: Put) {
        if put == Put::Kept {
            self.kept = self.last();
        }
    }

    /// The Call is over.
    pub fn ended(&mut self, finish: Finish) {
        self.is_kept = finish == Finish::Kept;
    }

    /// Whose answer was delivered; of a Call without one: who was asked last.
    pub fn endpoint(&self) -> Option<EndpointIx> {
        self.kept.filter(|_| self.is_kept).or(self.last())
    }

    fn last(&self) -> Option<EndpointIx> {
        self.steps().last().map(|step| step.endpoint)
    }

    /// The attempts.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::fault::Reason;
    use crate::logic::verdict::{Broke, judge_broken};

    fn step(endpoint: u16) -> Step {
        let (verdict, _) = judge_broken(Broke::Sent(Reason::Timeout));
        Step { endpoint: EndpointIx(endpoint), verdict, objection: None, took_ns: 7 }
    }

    #[test]
    fn attempts_stand_in_their_order_and_there_is_room_for_all() {
        let mut trail = Trail::default();
        assert_eq!(trail.steps().count(), 0);
        (0..u16::from(ATTEMPTS_MAX)).for_each(|at| trail.push(step(at)));
        let seen = |trail: &Trail| trail.steps().map(|step| step.endpoint.0).collect::<Vec<_>>();
        assert_eq!(seen(&trail), (0..u16::from(ATTEMPTS_MAX)).collect::<Vec<_>>());
        let whole = trail;
        trail.push(step(99));
        assert_eq!(trail, whole, "one that can't be leaves the others as they are");
    }

    #[test]
    fn whose_answer_was_delivered_is_who_answered_last_or_whose_was_kept() {
        let mut trail = Trail::default();
        trail.ended(Finish::Kept);
        assert_eq!(trail.endpoint(), None);
        for (endpoint, put) in [(3, Put::Away), (4, Put::Kept), (5, Put::Away)] {
            trail.push(step(endpoint));
            trail.put(put);
        }
        assert_eq!(trail.endpoint(), Some(EndpointIx(4)));
        trail.ended(Finish::Reply);
        assert_eq!(trail.endpoint(), Some(EndpointIx(5)));
    }

    #[test]
    fn an_attempt_is_told_in_the_words_of_the_metrics() {
        assert_eq!(step(0).words(), ("timeout", "ambiguous"));
        assert_eq!(Step { verdict: Verdict::Final, ..step(0) }.words(), ("ok", "final"));
        let lacking = Step { verdict: Verdict::Final, objection: Some(Cause::MissingState), ..step(0) };
        assert_eq!(lacking.words(), ("missing_state", "final"));
        assert_eq!(Step { verdict: Verdict::TooLarge, ..step(0) }.words(), ("response_too_large", "final"));
    }
}
