//! What happened in one seed or in many: to show that the simulation went there.

use crate::simulation::board::Passed;
use crate::simulation::draws::Draws;
use ringway::logic::failover::{Finish, Known};
use ringway::logic::fault::Fault;
use std::collections::BTreeMap;
use std::fmt;

/// Each is a number of times.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counted {
    /// Calls, those that knock at closed Endpoints included.
    pub calls: u64,
    pub attempts: u64,
    pub executed: u64,
    /// Calls that went down with their shard.
    pub lost: u64,
    /// Attempts and look-ups that went wrong, broken connections, shards that died and callers that left.
    pub faults: u64,
    /// Pooled connections that broke with a request on them, and were replaced.
    pub lost_sends: u64,
    /// Calls whose transaction a node may have taken.
    pub doubts: u64,
    /// Errors of nodes about a transaction in doubt: it holds it, it has seen it, something else.
    pub spoke: [u64; 3],
    /// Look-ups that brought a yes, a no, and nothing.
    pub look_ups: [u64; 3],
    /// Look-ups that went to a second Endpoint.
    pub second_look_ups: u64,
    /// Ends that rest on a node's word.
    pub believed: u64,
    /// Errors that went to a caller in doubt, after the chain had been asked.
    pub settled_errors: u64,
    /// Operations that must not be repeated: those that nodes executed once, and those executed again.
    pub unsafe_once: u64,
    pub unsafe_again: u64,
}

#[derive(Debug, Clone)]
pub struct Tally {
    pub counted: Counted,
    pub most_in_flight: u64,
    pub ends: BTreeMap<&'static str, u64>,
    pub draws: Draws,
    pub passed: Passed,
}

impl Tally {
    pub fn new() -> Tally {
        Tally {
            counted: Counted::default(),
            most_in_flight: 0,
            ends: BTreeMap::new(),
            draws: Draws::new(),
            passed: Passed::default(),
        }
    }

    pub fn add(&mut self, other: &Tally) {
        self.counted.add(&other.counted);
        self.most_in_flight = self.most_in_flight.max(other.most_in_flight);
        other.ends.iter().for_each(|(end, times)| *self.ends.entry(end).or_default() += times);
        self.draws.add(&other.draws);
        self.passed.add(&other.passed);
    }

    pub fn ended(&self, end: &str) -> u64 {
        self.ends.get(end).copied().unwrap_or(0)
    }
}

impl Counted {
    fn add(&mut self, other: &Counted) {
        self.calls += other.calls;
        self.attempts += other.attempts;
        self.executed += other.executed;
        self.lost += other.lost;
        self.faults += other.faults;
        self.lost_sends += other.lost_sends;
        self.doubts += other.doubts;
        (0..3).for_each(|at| self.spoke[at] += other.spoke[at]);
        (0..3).for_each(|at| self.look_ups[at] += other.look_ups[at]);
        self.second_look_ups += other.second_look_ups;
        self.believed += other.believed;
        self.settled_errors += other.settled_errors;
        self.unsafe_once += other.unsafe_once;
        self.unsafe_again += other.unsafe_again;
    }

    pub fn looked_up(&mut self, known: Known) {
        self.look_ups[known as usize] += 1;
        self.faults += u64::from(known == Known::Unclear);
    }

    /// A Call whose operation must not be repeated is over.
    pub fn unsafe_ended(&mut self, executed: u32) {
        self.unsafe_once += u64::from(executed == 1);
        self.unsafe_again += u64::from(executed > 1);
    }
}

/// The line for people.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counted { calls, attempts, faults, lost_sends, doubts, look_ups: [yes, no, unclear], .. } = self.counted;
        let Counted { believed, unsafe_once, unsafe_again, .. } = self.counted;
        write!(f, "{calls} Calls, {attempts} attempts, {faults} faults; {lost_sends} lost sends, {doubts} doubts, ")?;
        write!(f, "{} look-ups ({yes} yes, {no} no, {unclear} unclear), ", yes + no + unclear)?;
        write!(f, "{} told as taken ({believed} on a node's word); ", self.ended("taken"))?;
        write!(f, "of the operations that must not be repeated {unsafe_once} executed once, {unsafe_again} twice")
    }
}

pub fn name(finish: &Finish) -> &'static str {
    match finish {
        Finish::Reply => "reply",
        Finish::Kept => "kept",
        Finish::Taken => "taken",
        Finish::Silent => "silent",
        Finish::Abandoned => "abandoned",
        Finish::Fault(Fault::NoTarget) => "-32050",
        Finish::Fault(Fault::Unavailable { .. }) => "-32051",
        Finish::Fault(Fault::Exhausted { .. }) => "-32052",
        Finish::Fault(Fault::TimedOut) => "-32053",
        Finish::Fault(Fault::OutcomeUnknown { .. }) => "-32054",
        Finish::Fault(Fault::ResponseTooLarge) => "-32055",
        Finish::Fault(Fault::Overloaded) => "-32056",
        Finish::Fault(_) => "another fault",
    }
}
