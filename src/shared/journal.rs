//! What happened to Endpoints, for the log: shards write here and wait for nobody, a thread of `ops` reads.

use crate::logic::chain::Standing;
use crate::logic::units::Nanos;
use crate::shared::atomics::{AtomicU64, Relaxed};
use crossbeam_queue::ArrayQueue;
use std::sync::Arc;

/// Lines that may wait; what comes while it is full is counted, and not written.
const WAITING_MAX: usize = 1_024;

/// Why and whereto a Circuit changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// Closed to open: too many failures in a row.
    Tripped,
    /// Closed to open: too large a share of failures.
    TrippedByRatio,
    /// Open to half-open: a probe is on its way.
    Probing,
    /// Half-open to open: the probe failed.
    ProbeFailed,
    /// Half-open to closed: the probe succeeded.
    ProbeSucceeded,
    /// Half-open to open: the probe ended without saying anything.
    ProbeReturned,
    /// An operator holds it open.
    HeldOpen,
    /// An operator holds it closed, or lets go of one that was held closed.
    HeldClosed,
    /// An operator lets go of one that was held open: a probe decides.
    Released,
}

impl Transition {
    /// All transitions, in the order of their counters.
    pub const ALL: [Transition; 9] = [
        Transition::Tripped,
        Transition::TrippedByRatio,
        Transition::Probing,
        Transition::ProbeFailed,
        Transition::ProbeSucceeded,
        Transition::ProbeReturned,
        Transition::HeldOpen,
        Transition::HeldClosed,
        Transition::Released,
    ];
    /// The state that it leads to, as a label.
    pub const fn to(self) -> &'static str {
        match self {
            Transition::Tripped
            | Transition::TrippedByRatio
            | Transition::ProbeFailed
            | Transition::ProbeReturned
            | Transition::HeldOpen => "open",
            Transition::Probing | Transition::Released => "half_open",
            Transition::ProbeSucceeded | Transition::HeldClosed => "closed",
        }
    }
    /// Its reason, as a label.
    pub const fn reason(self) -> &'static str {
        match self {
            Transition::Tripped => "consecutive_failures",
            Transition::TrippedByRatio => "failure_ratio",
            Transition::Probing => "cooldown_over",
            Transition::ProbeFailed => "probe_failed",
            Transition::ProbeSucceeded => "probe_succeeded",
            Transition::ProbeReturned => "probe_inconclusive",
            Transition::HeldOpen | Transition::HeldClosed | Transition::Released => "operator",
        }
    }
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The Circuit changed.
    Circuit(Transition),
    /// The Endpoint said how long it wants to be left alone.
    AskedToRest,
    /// Too many of its answers were busy ones.
    OftenBusy,
    /// Its chain stands otherwise than before.
    Standing {
        /// So.
        standing: Standing,
        /// Its newest block, if that is known.
        tip: Option<u64>,
        /// Blocks behind the best tip, as of its own last poll.
        lag: u64,
    },
    /// It serves another chain than its configuration says.
    Mismatched,
    /// It gave up blocks of its chain.
    Reorg {
        /// So many.
        depth: u64,
        /// The first block that differs.
        number: u64,
    },
}

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    /// At which Endpoint.
    pub endpoint: Arc<str>,
    /// Of which chain and network (`ethereum/mainnet`), where a tracker tells it.
    pub network: Option<Arc<str>>,
    /// What.
    pub what: What,
    /// How long that lasts: the cooldown, the permit, the hold or the rest; 0 where it has no end.
    pub for_ns: Nanos,
}

/// A bounded queue of incidents. It outlives Snapshots.
#[derive(Debug)]
pub struct Journal {
    waiting: ArrayQueue<Incident>,
    dropped: AtomicU64,
}

impl Default for Journal {
    fn default() -> Journal {
        Journal { waiting: ArrayQueue::new(WAITING_MAX), dropped: AtomicU64::default() }
    }
}

impl Journal {
    /// Writes a line, if there is room.
    pub fn write(&self, incident: Incident) {
        if self.waiting.push(incident).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Takes the oldest line.
    pub fn take(&self) -> Option<Incident> {
        self.waiting.pop()
    }

    /// Lines that found no room.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_transition_has_its_own_counter_and_labels() {
        for (at, transition) in Transition::ALL.iter().enumerate() {
            assert_eq!(*transition as usize, at);
        }
        let mut labels: Vec<_> = Transition::ALL.iter().map(|one| (one.to(), one.reason())).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), Transition::ALL.len(), "two series of one name");
    }

    #[test]
    fn a_full_journal_drops_and_counts() {
        let journal = Journal::default();
        let line = |for_ns| Incident { endpoint: "a".into(), network: None, what: What::OftenBusy, for_ns };
        (0..WAITING_MAX as u64 + 5).for_each(|at| journal.write(line(at)));
        assert_eq!(journal.dropped(), 5);
        assert_eq!(journal.take(), Some(line(0)), "the oldest first");
        journal.write(line(7));
        assert_eq!(std::iter::from_fn(|| journal.take()).count(), WAITING_MAX);
        assert_eq!(journal.dropped(), 5);
    }
}
