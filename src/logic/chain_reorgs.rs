//! Which re-orgs of a network have been seen: one that several Endpoints show is one.

use super::block::Hash;
use super::chain_branch::Parting;
use std::collections::VecDeque;

/// So many re-orgs back it is known who has shown which.
const REMEMBERED: usize = 16;

/// A hash at a height.
pub type Place = (u64, Hash);

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

    /// Whether an Endpoint's parting is this event: both start with the same block, or may do so as far as is known,
    /// and both blocks are of one branch.
    fn is(&self, parting: &Parting, on_one_branch: &impl Fn([Place; 2]) -> bool) -> bool {
        let own = &self.parting;
        let places = [(own.number, own.hash), (parting.number, parting.hash)];
        let overlap = own.lowest <= parting.number && parting.lowest <= own.number;
        places[0] == places[1] || overlap && on_one_branch(places)
    }
}

impl Reorgs {
    /// An Endpoint left its old branch.
    pub fn shown(&mut self, at: usize, parting: Parting, on_one_branch: impl Fn([Place; 2]) -> bool) {
        let same = self.events.iter_mut().rev().find(|event| event.is(&parting, &on_one_branch));
        // One that shows an event again has left it in between: that is another one.
        if let Some(event) = same.filter(|event| !event.has(at)) {
            event.set(at);
            if parting.lowest == parting.number {
                event.parting = parting;
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
