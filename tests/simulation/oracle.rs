//! The history of one Call, and what is allowed and right next by the contract. It follows the machine's
//! words only to compare them: candidates, budget, certainty and end are its own.

use crate::simulation::board::Board;
use crate::simulation::chain::Word;
use crate::simulation::table::{Meaning, Row};
use ringway::logic::call::Class;
use ringway::logic::circuit::Admission;
use ringway::logic::failover::{Action, Finish, Known};
use ringway::logic::fault::{Fault, Reason};
use ringway::logic::snapshot::{EndpointIx, Route, Strategy};
use ringway::logic::units::{Nanos, SECOND};

/// A Route, and what the oracle needs to know beside it.
pub struct Road {
    pub route: Route,
    /// Position of each Endpoint among the targets.
    pub place: Vec<Option<u8>>,
    /// The candidate filter lets weights of 0 through; the choice must not.
    pub loose: bool,
    /// Its Calls must seldom be repeated: half-open Circuits stay so for long.
    pub effects: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    Choosing,
    /// An attempt is under way at this position.
    Away(u8),
    /// The last attempt decided it.
    Decided(Finish),
    /// The chain is being asked.
    Asking(Asking),
    Over,
}

/// What is left to ask about a transaction.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Asking {
    /// The end of a Call whose transaction nobody knows.
    end: Finish,
    /// A node has said that it saw it.
    seen: bool,
    /// One of these positions first, and one of those then.
    whom: [u128; 2],
    /// All look-ups end then.
    until_ns: Option<Nanos>,
    under_way: bool,
}

/// One line of a Call's history.
#[derive(Debug, Clone)]
#[allow(dead_code)] // read by people, through Debug
pub enum Line {
    Asked { endpoint: u16, said: Admission },
    Did(Action),
    Refused { until_ns: Nanos },
    Ended(String),
    LostSend,
    LookedUp(Known),
    CallerGone,
}

pub struct Oracle {
    pub class: Class,
    pub notification: bool,
    /// Positions that may still be tried.
    remaining: u128,
    attempts: u8,
    phase: Phase,
    gone: bool,
    kept: bool,
    last: Option<(Reason, Option<Nanos>)>,
    soonest_ns: Option<Nanos>,
    /// Something ambiguous happened: what must not be repeated stays where it is.
    ambiguous: bool,
    /// Positions that said half-open to a Call that does not probe: they are its last resort.
    deferred: u128,
    /// Where the transaction may have been taken, at last.
    doubted: Option<u8>,
    /// It has a name to ask by.
    pub named: bool,
    /// Its end rests on a node's word alone: that it saw the transaction before.
    pub believed: bool,
    /// Times that a node executed it.
    pub executed: u32,
    pub history: Vec<(Nanos, Line)>,
}

type Checked<T> = Result<T, String>;
/// Why an attempt failed, and what wait the node asked for.
type Failed = (Option<Reason>, Option<Nanos>);

macro_rules! must {
    ($holds:expr, $($why:tt)+) => {
        if !$holds {
            return Err(format!($($why)+));
        }
    };
}

impl Oracle {
    pub fn new(road: &Road, class: Class, notification: bool, named: bool) -> Oracle {
        let weighted = road.route.strategy == Strategy::Weighted;
        let usable = |(at, target): (usize, &ringway::logic::snapshot::Target)| {
            ((road.route.eligible >> at) & 1 == 1 && (!weighted || target.weight > 0)).then_some(1u128 << at)
        };
        Oracle {
            class,
            notification,
            remaining: road.route.targets.iter().enumerate().filter_map(usable).sum(),
            attempts: 0,
            phase: Phase::Choosing,
            gone: false,
            kept: false,
            last: None,
            soonest_ns: None,
            ambiguous: false,
            deferred: 0,
            doubted: None,
            named,
            believed: false,
            executed: 0,
            history: Vec::new(),
        }
    }

    pub fn attempts(&self) -> u8 {
        self.attempts
    }

    /// The same bytes may be sent again.
    pub fn repeatable(&self) -> bool {
        match self.class {
            Class::Stateless | Class::SignedBroadcast => !self.notification,
            Class::Local | Class::Effect | Class::Unrecognised => false,
        }
    }

    /// Checks what the machine asked and answered. Returns the choices it made among the remaining.
    pub fn decided(&mut self, road: &Road, board: &Board, now_ns: Nanos, action: &Action) -> Checked<Vec<Choice>> {
        board.verdict()?;
        let mut choices = Vec::new();
        for (endpoint, said) in board.asked.take() {
            self.history.push((now_ns, Line::Asked { endpoint: endpoint.0, said }));
            let tried_all = self.remaining == 0 || self.attempts >= road.route.max_attempts;
            // Who has tried all asks where a look-up is worth while.
            if !(tried_all && matches!(action, Action::LookUp { .. })) {
                choices.push(self.asked(road, endpoint, said)?);
            }
        }
        self.history.push((now_ns, Line::Did(*action)));
        let waits = matches!(self.phase, Phase::Away(_) | Phase::Over | Phase::Asking(Asking { under_way: true, .. }));
        must!(!waits, "an action in phase {:?}", self.phase);
        match *action {
            Action::Await => return Err("it waits, and nothing is under way".into()),
            Action::LookUp { endpoint, until_ns } => self.look_up(road, board, now_ns, endpoint, until_ns)?,
            Action::Attempt { endpoint, until_ns, probe } => {
                self.attempt(road, board, now_ns, endpoint, probe)?;
                let end_ns = now_ns + road.route.attempt_timeout_ns;
                must!(until_ns == end_ns, "the attempt ends at {until_ns}, not {end_ns}");
            }
            Action::AskAgain { .. } => return Err("it asks the chain again on a Route without tiers".into()),
            Action::Finish(finish) => self.finish(road, board, now_ns, finish)?,
        }
        Ok(choices)
    }

    fn asked(&mut self, road: &Road, endpoint: EndpointIx, said: Admission) -> Checked<Choice> {
        let place = road.place[usize::from(endpoint.0)];
        let Some(at) = place else { return Err(format!("{endpoint:?} is no target")) };
        let bit = 1u128 << at;
        must!(self.remaining & bit != 0, "{endpoint:?} was tried, rejected or filtered already");
        // Those that were put off stand behind all others.
        let before = self.remaining & !self.deferred;
        let among = if before == 0 { self.remaining } else { before };
        must!(among & bit != 0, "{endpoint:?} was put off, and others remain");
        // The last resorts may be asked more than once: only fresh ones are fair draws.
        let fair = self.deferred & bit == 0;
        match said {
            Admission::Reject { until_ns } => {
                self.remaining &= !bit;
                self.rejected(until_ns);
            }
            Admission::Probe if !self.repeatable() => self.deferred |= bit,
            Admission::Probe | Admission::Admit => {}
        }
        Ok(Choice { at, among, fair })
    }

    fn attempt(&mut self, road: &Road, board: &Board, now_ns: Nanos, endpoint: EndpointIx, probe: bool) -> Checked<()> {
        must!(self.phase == Phase::Choosing, "an attempt after the end {:?}", self.phase);
        must!(!self.gone, "an attempt, and the caller is gone");
        must!(self.attempts < road.route.max_attempts, "attempt {} of {}", self.attempts + 1, road.route.max_attempts);
        must!(!self.ambiguous || self.repeatable(), "sent again after an ambiguous failure");
        let Some(at) = road.place[usize::from(endpoint.0)] else { return Err(format!("{endpoint:?} is no target")) };
        let bit = 1u128 << at;
        must!(self.remaining & bit != 0, "{endpoint:?} twice, or rejected, or filtered");
        match board.right(endpoint, now_ns) {
            Admission::Admit => must!(!probe, "a probe at a closed Circuit"),
            Admission::Probe => must!(probe, "half-open, and no permit is asked for"),
            Admission::Reject { .. } => return Err(format!("an attempt at {endpoint:?}, whose Circuit is open")),
        }
        let others = self.remaining & !bit;
        let admits = |at: &u8| board.right(road.route.targets[usize::from(*at)].endpoint, now_ns) == Admission::Admit;
        if probe
            && !self.repeatable()
            && let Some(other) = positions(others).iter().find(|at| admits(at))
        {
            return Err(format!("what must not be repeated probes, and position {other} admits"));
        }
        if road.route.strategy == Strategy::Priority {
            let before = others & (bit - 1);
            let passed = match (self.deferred & bit == 0, probe) {
                (true, _) => positions(before & !self.deferred),
                (false, true) => positions(before & self.deferred),
                // Among the last resorts one that admits goes first.
                (false, false) => positions(before & self.deferred).into_iter().filter(admits).collect(),
            };
            must!(passed.is_empty(), "position {at} before {passed:?}");
        }
        self.remaining = others;
        self.deferred &= !bit;
        self.attempts += 1;
        self.phase = Phase::Away(at);
        Ok(())
    }

    fn finish(&mut self, road: &Road, board: &Board, now_ns: Nanos, finish: Finish) -> Checked<()> {
        let right = match self.phase {
            Phase::Decided(right) => right,
            Phase::Asking(asking) => {
                let in_time = asking.until_ns.is_none_or(|until_ns| now_ns < until_ns);
                let could_ask = asking.whom[0] != 0 && in_time && !self.gone;
                must!(!could_ask, "ends with {finish:?}, and {:?} could still be asked", positions(asking.whom[0]));
                asking.end
            }
            _ if self.gone => Finish::Abandoned,
            _ => {
                self.tried_all(road, board, now_ns, finish)?;
                must!(!self.can_be_settled(), "ends with {finish:?}, and the chain was never asked");
                self.spent(now_ns)
            }
        };
        self.phase = Phase::Over;
        must!(same(&finish, &right), "finished with {finish:?}, and right is {right:?}");
        Ok(())
    }

    /// Nobody may give up before.
    fn tried_all(&self, road: &Road, board: &Board, now_ns: Nanos, finish: Finish) -> Checked<()> {
        if self.attempts >= road.route.max_attempts {
            return Ok(());
        }
        let willing = |at: &u8| {
            let endpoint = road.route.targets[usize::from(*at)].endpoint;
            !matches!(board.right(endpoint, now_ns), Admission::Reject { .. })
        };
        if let Some(at) = positions(self.remaining).into_iter().find(willing) {
            return Err(format!("gives up with {finish:?}, and position {at} could be tried"));
        }
        must!(self.remaining == 0, "gives up without having asked all: {:b} remain", self.remaining);
        Ok(())
    }

    /// The chain is asked where the contract says so, and for two seconds in all.
    fn look_up(
        &mut self,
        road: &Road,
        board: &Board,
        now_ns: Nanos,
        endpoint: EndpointIx,
        until_ns: Nanos,
    ) -> Checked<()> {
        must!(!self.gone, "a look-up, and the caller is gone");
        must!(self.can_be_settled(), "a look-up, and nobody is in doubt, or nothing is named");
        let mut asking = match self.phase {
            Phase::Asking(asking) => asking,
            Phase::Choosing => self.asks_around(road, board, now_ns)?,
            _ => return Err(format!("a look-up in phase {:?}", self.phase)),
        };
        let [whom, next] = asking.whom;
        let place = road.place[usize::from(endpoint.0)].map_or(0, |at| 1u128 << at);
        must!(place & whom != 0, "{endpoint:?} is looked at, and right are positions {:?}", positions(whom));
        let end_ns = *asking.until_ns.get_or_insert(now_ns + 2 * SECOND);
        must!(now_ns < end_ns, "a look-up after two seconds");
        // With another one to come, it gets half of the time.
        let right_ns = now_ns + (end_ns - now_ns) / if next == 0 { 1 } else { 2 };
        must!(until_ns == right_ns, "the look-up ends at {until_ns}, not {right_ns}");
        self.phase = Phase::Asking(Asking { whom: [next, 0], under_way: true, ..asking });
        Ok(())
    }

    /// After total failure: where the doubt arose last, and one other, if possible one that admits.
    fn asks_around(&self, road: &Road, board: &Board, now_ns: Nanos) -> Checked<Asking> {
        let Some(at) = self.doubted else { return Err("nothing is in doubt".into()) };
        let end = match (self.kept, self.last) {
            (true, _) => Finish::Kept,
            (false, Some((reason, _))) => Finish::Fault(Fault::OutcomeUnknown { reason }),
            (false, None) => return Err("a doubt, and no attempt has ended".into()),
        };
        self.tried_all(road, board, now_ns, end)?;
        let others = road.route.eligible & !(1u128 << at);
        let admits = |at: &u8| board.right(road.route.targets[usize::from(*at)].endpoint, now_ns) == Admission::Admit;
        let admitting = positions(others).into_iter().filter(admits).fold(0, |bits, at| bits | (1u128 << at));
        let other = if admitting == 0 { others } else { admitting };
        Ok(Asking { end, seen: false, whom: [1u128 << at, other], until_ns: None, under_way: false })
    }

    /// A look-up ended. A node that can't say anything about the chain is believed when it speaks of what it saw.
    pub fn looked_up(&mut self, now_ns: Nanos, known: Known) -> Checked<()> {
        self.history.push((now_ns, Line::LookedUp(known)));
        let Phase::Asking(asking) = self.phase else { return Err("nothing was asked".into()) };
        self.believed = known == Known::Unclear && asking.seen;
        self.phase = match known == Known::Yes || self.believed {
            true => Phase::Decided(Finish::Taken),
            false => Phase::Asking(Asking { under_way: false, ..asking }),
        };
        Ok(())
    }

    /// The end of a Call that has nothing left to try.
    fn spent(&self, now_ns: Nanos) -> Finish {
        let fault = match (self.last, self.soonest_ns) {
            (Some((Reason::Timeout, _)), _) => Fault::TimedOut,
            (Some((reason, wait)), _) => Fault::Exhausted { reason, retry_after_ns: wait.unwrap_or(0) },
            (None, Some(soonest_ns)) => Fault::Unavailable { retry_after_ns: soonest_ns.saturating_sub(now_ns) },
            (None, None) => Fault::NoTarget,
        };
        match (self.notification, self.kept) {
            (true, _) => Finish::Silent,
            (false, true) => Finish::Kept,
            (false, false) => Finish::Fault(fault),
        }
    }

    /// The permit went to somebody else.
    pub fn refused(&mut self, now_ns: Nanos, until_ns: Nanos) {
        self.history.push((now_ns, Line::Refused { until_ns }));
        self.attempts -= 1;
        self.rejected(until_ns);
        self.phase = Phase::Choosing;
    }

    /// An attempt ended, maybe with an error of the node. Decides what must follow.
    pub fn ended(&mut self, now_ns: Nanos, row: &Row, said: Option<Word>, (reason, wait): Failed, how: String) {
        self.history.push((now_ns, Line::Ended(how)));
        let told = |finish| if self.notification { Finish::Silent } else { finish };
        let reason = reason.unwrap_or(Reason::ConnectionLost);
        let Phase::Away(at) = self.phase else { return };
        // Who spoke, and then where it may have been taken before.
        let before = self.doubted.filter(|before| *before != at).map_or(0, |before| 1u128 << before);
        let whom = [1u128 << at, before];
        let here = Asking { end: Finish::Reply, seen: false, whom, until_ns: None, under_way: false };
        self.phase = match (row.meaning, said.filter(|_| self.can_be_settled())) {
            (Meaning::Final, Some(Word::Known)) => Phase::Decided(Finish::Taken),
            (Meaning::Final, Some(Word::Seen)) => Phase::Asking(Asking { seen: true, ..here }),
            (Meaning::Final, Some(Word::Other)) => Phase::Asking(here),
            (Meaning::Final, None) => Phase::Decided(told(Finish::Reply)),
            (Meaning::TooLarge, _) => Phase::Decided(told(Finish::Fault(Fault::ResponseTooLarge))),
            (Meaning::NoRoom, _) if !self.repeatable() => {
                Phase::Decided(told(Finish::Fault(Fault::OutcomeUnknown { reason: Reason::NoRoom })))
            }
            (Meaning::NoRoom, _) => Phase::Decided(told(Finish::Fault(Fault::Overloaded))),
            (Meaning::Ambiguous, _) if !self.repeatable() => {
                // What was kept before came with a refusal: it would say that nothing has run.
                let unknown = Finish::Fault(Fault::OutcomeUnknown { reason });
                Phase::Decided(told(if row.keep { Finish::Kept } else { unknown }))
            }
            (Meaning::NotSent | Meaning::Refused | Meaning::Ambiguous, _) => Phase::Choosing,
        };
        if row.meaning == Meaning::Ambiguous {
            (self.ambiguous, self.doubted) = (true, Some(at));
        }
        self.kept |= row.keep;
        self.last = Some((reason, wait));
    }

    /// The request of the attempt that is under way went out before, over a connection that broke.
    pub fn lost_send(&mut self, now_ns: Nanos) {
        self.history.push((now_ns, Line::LostSend));
        if let Phase::Away(at) = self.phase {
            self.doubted = Some(at);
        }
    }

    /// Some node may have taken the transaction.
    pub fn in_doubt(&self) -> bool {
        self.class == Class::SignedBroadcast && !self.notification && self.doubted.is_some()
    }

    /// ...and the chain can be asked.
    pub fn can_be_settled(&self) -> bool {
        self.in_doubt() && self.named
    }

    pub fn caller_gone(&mut self, now_ns: Nanos) {
        self.history.push((now_ns, Line::CallerGone));
        self.gone = true;
    }

    pub fn is_away(&self) -> bool {
        matches!(self.phase, Phase::Away(_))
    }

    fn rejected(&mut self, until_ns: Nanos) {
        self.soonest_ns = Some(self.soonest_ns.map_or(until_ns, |soonest| soonest.min(until_ns)));
    }
}

/// One draw: this position, among those.
#[derive(Debug, Clone, Copy)]
pub struct Choice {
    pub at: u8,
    pub among: u128,
    /// The draw was made among exactly those.
    pub fair: bool,
}

/// The wait in *exhausted* means something only where the Endpoint was busy.
fn same(said: &Finish, right: &Finish) -> bool {
    match (said, right) {
        (
            Finish::Fault(Fault::Exhausted { reason: said, retry_after_ns: said_wait }),
            Finish::Fault(Fault::Exhausted { reason, retry_after_ns }),
        ) => said == reason && (*reason != Reason::RateLimited || said_wait == retry_after_ns),
        _ => said == right,
    }
}

pub fn positions(mut bits: u128) -> Vec<u8> {
    let mut found = Vec::with_capacity(bits.count_ones() as usize);
    while bits != 0 {
        found.push(bits.trailing_zeros() as u8);
        bits &= bits - 1;
    }
    found
}
