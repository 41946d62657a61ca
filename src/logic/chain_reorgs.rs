//! Which re-orgs of a network have been seen: one that several Endpoints show is one.

use super::chain_branch::{Branch, Parting};
use std::collections::VecDeque;

/// So many re-orgs back it is known who has shown which.
const REMEMBERED: usize = 16;

/// One re-org of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reorg {
    /// Blocks that were given up; at least 1.
    pub depth: u64,
    /// The Endpoint that showed it first.
    pub at: usize,
    /// The first height whose block differs.
    pub number: u64,
}

#[derive(Debug, Clone)]
struct Event {
    parting: Parting,
    /// A bit for each Endpoint.
    shown_by: Vec<u64>,
}

/// The re-orgs of one network.
#[derive(Debug, Clone, Default)]
pub struct Reorgs {
    events: VecDeque<Event>,
    untaken: VecDeque<Reorg>,
}

impl Event {
    fn has(&self, at: usize) -> bool {
        self.shown_by.get(at / 64).is_some_and(|bits| bits >> (at % 64) & 1 == 1)
    }

    fn set(&mut self, at: usize) {
        if self.shown_by.len() <= at / 64 {
            self.shown_by.resize(at / 64 + 1, 0);
        }
        if let Some(bits) = self.shown_by.get_mut(at / 64) {
            *bits |= 1 << (at % 64);
        }
    }

    /// Whether an Endpoint's parting is this event: it starts with the same block. Where one of the two did not know
    /// the block below its first one, it may have started lower: then the new branch tells.
    fn is(&self, parting: &Parting, branch: &Branch) -> bool {
        let own = &self.parting;
        if (own.number, own.hash) == (parting.number, parting.hash) {
            return true;
        }
        (!own.sure || !parting.sure)
            && own.number <= parting.top
            && parting.number <= own.top
            && branch.hash(own.number) == Some(&own.hash)
    }
}

impl Reorgs {
    /// An Endpoint left its old branch.
    pub fn shown(&mut self, at: usize, parting: Parting, branch: &Branch) {
        let same = self.events.iter_mut().rev().find(|event| event.is(&parting, branch));
        // One that shows an event again has left it in between: that is another one.
        if let Some(event) = same.filter(|event| !event.has(at)) {
            event.set(at);
            event.parting.top = event.parting.top.max(parting.top);
            if parting.sure && !event.parting.sure {
                event.parting = Parting { top: event.parting.top, ..parting };
            }
            return;
        }
        let mut event = Event { parting, shown_by: Vec::new() };
        event.set(at);
        let depth = parting.top.saturating_sub(parting.number).saturating_add(1);
        push(&mut self.events, event);
        push(&mut self.untaken, Reorg { depth, at, number: parting.number });
    }

    /// The next one that nobody has taken.
    pub fn take(&mut self) -> Option<Reorg> {
        self.untaken.pop_front()
    }

    /// An Endpoint is removed: its place may be another one's.
    pub fn forget(&mut self, at: usize) {
        for event in &mut self.events {
            if let Some(bits) = event.shown_by.get_mut(at / 64) {
                *bits &= !(1 << (at % 64));
            }
        }
    }
}

fn push<T>(queue: &mut VecDeque<T>, value: T) {
    if queue.len() >= REMEMBERED {
        queue.pop_front();
    }
    queue.push_back(value);
}
