//! Which requests the scripted upstream answers badly, and how: drawn from a seed, so that a run can be repeated.

use crate::payload::mix;

/// A way to answer badly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Fault {
    /// HTTP 503 without a JSON-RPC answer.
    Status503,
    /// HTTP 429 that does not say when to come back.
    Status429,
    /// HTTP 429 that says to come back in 2 s.
    Status429For2s,
    /// The connection is closed without an answer.
    Close,
    /// Half of the answer, then the end of the connection.
    Truncate,
    /// The right result under another id.
    WrongId,
    /// Another request's result under the right id.
    WrongPayload,
    /// A JSON-RPC error under the right id.
    RpcError,
    /// The right answer, after `--stall-ms`.
    Stall,
}

/// When faults happen.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// The share of requests that get a fault, 0 to 1.
    pub rate: f64,
    /// The kinds to choose from; none means no faults.
    pub kinds: Vec<Fault>,
    /// The one request, counted from 1 on each thread, that gets the first kind whatever the rate.
    pub at: Option<u64>,
    /// Makes another sequence of draws.
    pub seed: u64,
}

impl Faults {
    /// The fault of the request that is number `n` on its thread.
    pub fn of(&self, n: u64) -> Option<Fault> {
        let first = *self.kinds.first()?;
        if self.at == Some(n) {
            return Some(first);
        }
        if self.rate <= 0.0 {
            return None;
        }
        let draw = mix(self.seed ^ mix(n));
        // 53 bits fill a double's fraction exactly.
        let share = (draw >> 11) as f64 / (1u64 << 53) as f64;
        if share >= self.rate {
            return None;
        }
        let kinds = self.kinds.len() as u64;
        let choice = usize::try_from(mix(draw) % kinds).ok()?;
        self.kinds.get(choice).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_met_and_kinds_share_it() {
        let kinds = vec![Fault::Close, Fault::Stall];
        let faults = Faults { rate: 0.1, kinds, at: None, seed: 7 };
        let drawn: Vec<Fault> = (1..=100_000).filter_map(|n| faults.of(n)).collect();
        // Five standard deviations around 10,000 and around half of it.
        assert!((9_526..=10_474).contains(&drawn.len()), "{} faults", drawn.len());
        let closes = drawn.iter().filter(|fault| **fault == Fault::Close).count();
        assert!((4_650..=5_350).contains(&closes), "{closes} closes");
    }

    #[test]
    fn one_request_can_be_named() {
        let faults = Faults { kinds: vec![Fault::Stall], at: Some(3), ..Faults::default() };
        let drawn: Vec<_> = (1..=5).map(|n| faults.of(n)).collect();
        assert_eq!(drawn, [None, None, Some(Fault::Stall), None, None]);
    }

    #[test]
    fn without_kinds_there_are_no_faults() {
        let faults = Faults { rate: 1.0, at: Some(1), ..Faults::default() };
        assert_eq!(faults.of(1), None);
    }
}
