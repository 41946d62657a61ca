//! What is told about one decision, on request: the trail of a Call's attempts.

use super::snapshot::{ATTEMPTS_MAX, EndpointIx, RouteIx};
use super::units::Nanos;
use super::verdict::Verdict;

/// One attempt, as the trail tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Where.
    pub endpoint: EndpointIx,
    /// What came of it.
    pub verdict: Verdict,
    /// How long it took.
    pub took_ns: Nanos,
}

impl Step {
    /// What came of it, and how certain that is, in the words of the metrics.
    pub const fn words(&self) -> (&'static str, &'static str) {
        match self.verdict {
            Verdict::Final => ("ok", "final"),
            Verdict::TooLarge => ("response_too_large", "final"),
            Verdict::Failed(failure) => (failure.reason.word(), failure.certainty.word()),
        }
    }
}

/// The attempts of one Call, in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trail {
    /// Its Route, if it reached one.
    pub route: Option<RouteIx>,
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

    /// The attempts.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().flatten()
    }
}
