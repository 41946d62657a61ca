//! One Call from its first attempt to its end: which Endpoint next, and whether another is safe.
//!
//! Sans-io. The driver asks [`CallMachine::next`] for an [`Action`], does it, and tells what happened
//! with [`CallMachine::feed`]; time and randomness are arguments. The invariants:
//!
//! 1. at most `bound` attempts;
//! 2. no Endpoint twice;
//! 3. after an ambiguous failure nothing is sent again unless the operation may be replayed;
//! 4. no attempt at an Endpoint whose Circuit rejects;
//! 5. exactly one Finish;
//! 6. it never gives up while the bound and an admitted candidate remain, and nothing forbids another try.
//!
//! A signed broadcast that an Endpoint may have taken is *in doubt*: what later Endpoints say about the same
//! bytes may only mean that the first one took them. Then the chain is asked before the caller is told
//! (`logic::doubt`).

use super::broadcast::Said;
use super::call::Class;
use super::circuit::Admission;
use super::doubt::Doubt;
use super::draw::Bits;
pub use super::draw::weighted;
use super::fault::{Fault, Reason, Unavailable};
use super::snapshot::{EndpointIx, Route, Strategy};
use super::tiers::{ASK_AGAIN_NS, Cause, Course, Lack, Requirement, Served};
use super::units::Nanos;
use super::verdict::{Certainty, Failure, Verdict};
pub use super::world::World;

/// What the driver is to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Send the Call to this Endpoint; feed `Judged` (or `Refused`, if the probe's permit was lost).
    Attempt {
        /// Where.
        endpoint: EndpointIx,
        /// The attempt ends then, connect included.
        until_ns: Nanos,
        /// The Circuit is half-open: take the permit first.
        probe: bool,
    },
    /// An attempt is under way: feed what came of it.
    Await,
    /// Ask this Endpoint whether it knows the transaction; feed `LookedUp`. No attempt, and no Circuit hears of it.
    LookUp {
        /// Where.
        endpoint: EndpointIx,
        /// The look-up ends then.
        until_ns: Nanos,
    },
    /// The answer contradicts the chain: poll its Endpoint and the best one again at once; feed `Agrees`.
    AskAgain {
        /// Whose answer it is.
        endpoint: EndpointIx,
        /// No longer than this.
        until_ns: Nanos,
    },
    /// The Call is over.
    Finish(Finish),
}

/// How a Call ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The answer of the last attempt goes to the caller.
    Reply,
    /// The error that was kept from an earlier attempt goes to the caller.
    Kept,
    /// The transaction was taken by an earlier attempt: its hash goes to the caller as the result.
    Taken,
    /// Ringway speaks.
    Fault(Fault),
    /// A notification: nobody is told anything.
    Silent,
    /// The caller went away.
    Abandoned,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The attempt ended with this verdict.
    Judged(Verdict),
    /// The attempt could not start: the probe's permit was lost, until this time.
    Refused {
        /// When the Endpoint may be tried, as far as is known.
        until_ns: Nanos,
    },
    /// The attempt ended with an error of the node that would be final, and says this about the transaction.
    /// Only for a Call in doubt whose transaction has a name.
    Spoke(Said),
    /// A pooled connection broke after the request was sent over it, and a fresh one took its place: an
    /// earlier ambiguous attempt, for all that is known.
    LostSend,
    /// The look-up ended so.
    LookedUp(Known),
    /// The attempt ended with an answer that would be final, but lacks something that another Endpoint may have.
    /// Only for a stateless query on a tiered Route.
    Lacks(Lack),
    /// The attempt ended with an answer that would be final, but contradicts the chain. As above.
    Contradicts,
    /// Whether the chain, polled again, agrees with the answer.
    Agrees(bool),
    /// The caller is gone.
    CallerGone,
}

impl Event {
    /// Why an answer that would be final is not delivered at once, if the event says so.
    pub const fn objection(self) -> Option<Cause> {
        match self {
            Event::Lacks(Lack::State | Lack::Null) => Some(Cause::MissingState),
            Event::Lacks(Lack::Method) => Some(Cause::Capability),
            Event::Contradicts => Some(Cause::Fork),
            _ => None,
        }
    }
}

/// What a look-up brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// The node has the transaction.
    Yes,
    /// The node says that it has not.
    No,
    /// The node gave no answer to that.
    Unclear,
}

/// Where an answer belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// It is the answer, as far as is known.
    Reply,
    /// It is kept, in place of the one that was kept before.
    Kept,
    /// Nobody needs it.
    Away,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Choosing,
    InFlight(EndpointIx),
    /// The chain is being asked; if it does not know the transaction, the Call ends so. `seen`: the node
    /// has said that it saw the transaction before.
    Doubting {
        end: Finish,
        seen: bool,
    },
    /// The chain is polled again: the answer of this Endpoint contradicts it.
    AskingAgain(EndpointIx),
    Done(Finish),
}

/// What became of a target whose turn came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It is asked.
    Asked {
        /// The Circuit is half-open: take the permit first.
        probe: bool,
    },
    /// It is half-open, and this Call takes it only when nothing else is left.
    Later,
    /// Its Circuit, its rest or its budget rejects.
    Rejected,
    /// A tracker found it on another chain.
    Mismatched,
}

/// The state of one Call.
#[derive(Debug, Clone)]
pub struct CallMachine {
    class: Class,
    notification: bool,
    bound: u8,
    attempts: u8,
    /// Targets that this Call may still try, one bit each.
    remaining: u128,
    /// Half-open ones that this Call takes only when nothing else is left.
    deferred: u128,
    /// How often those came back in this decision: at most twice.
    rounds: u8,
    /// The number that makes the first weighted choice; shared by the members of a batch.
    first_draw: Option<u64>,
    soonest_ns: Option<Nanos>,
    last: Option<Failure>,
    kept: bool,
    doubt: Doubt,
    /// On tiered Routes.
    course: Option<Course>,
    put: Put,
    caller_gone: bool,
    step: Step,
}

impl CallMachine {
    /// A machine for one Call on one Route. `first_draw` makes the first weighted choice; batch members
    /// share it, so that one batch sees one node where it can.
    pub fn new(route: &Route, class: Class, notification: bool, first_draw: Option<u64>) -> CallMachine {
        CallMachine {
            class,
            notification,
            bound: route.max_attempts,
            attempts: 0,
            remaining: route.eligible,
            deferred: 0,
            rounds: 0,
            first_draw,
            soonest_ns: None,
            last: None,
            kept: false,
            doubt: Doubt::default(),
            course: None,
            put: Put::Away,
            caller_gone: false,
            step: Step::Choosing,
        }
    }

    /// Tells what the Call needs of an Endpoint; for tiered Routes.
    pub fn needs(&mut self, requirement: Requirement) {
        self.course = Some(Course::new(requirement));
    }

    /// Which tier served the Call that ended so; `None` where no tier did.
    pub fn served(&self, finish: Finish) -> Option<Served> {
        match finish {
            // Whoever is asked last settles what became of a transaction.
            Finish::Reply | Finish::Taken => self.course?.served(false),
            Finish::Kept => self.course?.served(true),
            _ => None,
        }
    }

    /// Where the answer belongs that the machine was just told of.
    pub fn put(&self) -> Put {
        self.put
    }

    /// Whether the answer that the machine was just told of goes to the caller.
    pub fn delivers(&self) -> bool {
        self.step == Step::Done(Finish::Reply)
    }

    /// Attempts that were started.
    pub fn attempts(&self) -> u8 {
        self.attempts
    }

    /// Decides what to do now. Bounded by the number of targets.
    pub fn next<W: World>(
        &mut self,
        route: &Route,
        world: &W,
        now_ns: Nanos,
        random: &mut impl FnMut() -> u64,
    ) -> Action {
        match self.step {
            Step::Done(finish) => return Action::Finish(finish),
            Step::InFlight(_) => return Action::Await,
            Step::Doubting { end, .. } => return self.look_up(end, now_ns),
            Step::AskingAgain(endpoint) => {
                return Action::AskAgain { endpoint, until_ns: now_ns.saturating_add(ASK_AGAIN_NS) };
            }
            Step::Choosing => {}
        }
        if self.caller_gone {
            return self.finish(Finish::Abandoned);
        }
        if self.attempts >= self.bound {
            return self.give_up(route, world, now_ns);
        }
        self.rounds = 0;
        while let Some(target) = self.select(route, world, now_ns, random) {
            let endpoint = route.targets[usize::from(target)].endpoint;
            let Turn::Asked { probe } = self.turn(target, endpoint, world, now_ns) else { continue };
            self.attempts += 1;
            debug_assert!(self.attempts <= self.bound);
            self.step = Step::InFlight(endpoint);
            return Action::Attempt { endpoint, until_ns: now_ns.saturating_add(route.attempt_timeout_ns), probe };
        }
        self.give_up(route, world, now_ns)
    }

    /// The turn of a target has come: it leaves the Call's set, and is asked or not.
    #[inline]
    fn turn<W: World>(&mut self, target: u8, endpoint: EndpointIx, world: &W, now_ns: Nanos) -> Turn {
        let bit = 1u128 << target;
        self.remaining &= !bit;
        if world.is_mismatched(endpoint) {
            self.deferred &= !bit;
            return Turn::Mismatched;
        }
        let probe = match world.admission(endpoint, now_ns) {
            Admission::Admit => false,
            // The last resort of a Call that shouldn't probe is still better than an error, once all of
            // them were asked again: one may have closed meanwhile.
            Admission::Probe if self.may_probe() || self.rounds >= 2 => true,
            Admission::Probe => {
                self.missed(Cause::Circuit);
                self.deferred |= bit;
                return Turn::Later;
            }
            Admission::Reject { until_ns } => {
                self.deferred &= !bit;
                self.rejected(until_ns);
                return Turn::Rejected;
            }
        };
        self.deferred &= !bit;
        Turn::Asked { probe }
    }

    /// Goes through all whose turn would come if each of them failed, and asks nobody: `heard` is told of each turn,
    /// with the number of the draw that it belongs to. What the caller would be told, if nobody would be asked.
    pub fn rehearse<W: World>(
        mut self,
        route: &Route,
        world: &W,
        now_ns: Nanos,
        mut heard: impl FnMut(usize, u8, Turn),
    ) -> Option<Fault> {
        let (mut draw, mut asked) = (0, false);
        while let Some((set, _)) = self.offer(route, world, now_ns) {
            // In their order each is a choice of its own.
            let set = if route.strategy == Strategy::Priority { set & set.wrapping_neg() } else { set };
            for at in Bits(set) {
                let turn = self.turn(at, route.targets[usize::from(at)].endpoint, world, now_ns);
                asked |= matches!(turn, Turn::Asked { .. });
                heard(draw, at, turn);
            }
            draw += 1;
        }
        (!asked).then(|| self.ending(route, world, now_ns))
    }

    /// Tells the machine what happened. After `Judged` with a failure that has `keep`, the driver keeps
    /// the answer's bytes: a later `Finish(Kept)` asks for the last ones kept.
    pub fn feed(&mut self, event: Event) {
        match (event, self.step) {
            (Event::CallerGone, Step::Done(_)) => {}
            (Event::CallerGone, _) => self.caller_gone = true,
            (Event::Refused { until_ns }, Step::InFlight(_)) => {
                self.attempts -= 1;
                self.rejected(until_ns);
                self.step = Step::Choosing;
            }
            (Event::Judged(verdict), Step::InFlight(endpoint)) => {
                self.put = self.place(verdict);
                self.judged(verdict, endpoint);
            }
            (Event::LostSend, Step::InFlight(endpoint)) => self.doubted(endpoint),
            (Event::Spoke(said), Step::InFlight(endpoint)) => {
                self.put = Put::Reply;
                self.step = self.spoke(said, endpoint);
            }
            (Event::Lacks(lack), Step::InFlight(_)) => self.lacked(lack),
            (Event::Contradicts, Step::InFlight(endpoint)) => {
                self.put = Put::Reply;
                self.step = Step::AskingAgain(endpoint);
            }
            (Event::Agrees(true), Step::AskingAgain(_)) => self.step = Step::Done(Finish::Reply),
            (Event::Agrees(false), Step::AskingAgain(_)) => {
                self.put = if self.course().keep_forked() { Put::Kept } else { Put::Away };
                self.kept = true;
                self.step = Step::Choosing;
            }
            (Event::LookedUp(known), Step::Doubting { seen, .. }) => {
                // A node that can't say anything about the chain is believed when it speaks of what it saw.
                if known == Known::Yes || (known == Known::Unclear && seen) {
                    self.step = Step::Done(Finish::Taken);
                }
            }
            _ => debug_assert!(false, "fed {event:?} in {:?}", self.step),
        }
    }

    /// Whether an Endpoint may have taken the transaction already, so that its name is of use.
    pub fn in_doubt(&self) -> bool {
        self.doubt.exists()
    }

    /// Tells that the transaction has a name (its hash) by which the chain can be asked.
    pub fn named(&mut self) {
        self.doubt.named();
    }

    /// An answer without what was asked for: another Endpoint may have it, and else this one is the answer.
    fn lacked(&mut self, lack: Lack) {
        self.step = match self.course().lacked(lack) {
            true => {
                self.put = if self.course().keep_lacking() { Put::Kept } else { Put::Away };
                self.kept = true;
                Step::Choosing
            }
            false => {
                self.put = Put::Reply;
                Step::Done(Finish::Reply)
            }
        };
    }

    fn doubted(&mut self, endpoint: EndpointIx) {
        if self.class == Class::SignedBroadcast && !self.notification {
            self.doubt.arose(endpoint);
        }
    }

    /// A node's error about a transaction in doubt: what it says decides, or the chain.
    fn spoke(&mut self, said: Said, endpoint: EndpointIx) -> Step {
        match said {
            _ if !self.doubt.can_be_settled() => Step::Done(Finish::Reply),
            Said::AlreadyKnown => Step::Done(Finish::Taken),
            Said::Seen | Said::Other => {
                self.doubt.ask_who_spoke(endpoint);
                Step::Doubting { end: Finish::Reply, seen: said == Said::Seen }
            }
        }
    }

    fn look_up(&mut self, end: Finish, now_ns: Nanos) -> Action {
        match self.doubt.next(now_ns).filter(|_| !self.caller_gone) {
            Some((endpoint, until_ns)) => Action::LookUp { endpoint, until_ns },
            None => self.finish(end),
        }
    }

    fn judged(&mut self, verdict: Verdict, endpoint: EndpointIx) {
        self.step = match verdict {
            Verdict::Final => Step::Done(if self.notification { Finish::Silent } else { Finish::Reply }),
            Verdict::TooLarge => Step::Done(self.told(Fault::ResponseTooLarge)),
            // The operation may have run: only what may be sent again is told to come again.
            Verdict::NoRoom if self.must_stop(Certainty::Ambiguous) => {
                Step::Done(self.told(Fault::OutcomeUnknown { reason: Reason::NoRoom }))
            }
            // Another node's answer would find no room either.
            Verdict::NoRoom => Step::Done(self.told(Fault::Overloaded)),
            Verdict::Failed(failure) => {
                self.kept |= failure.keep;
                self.last = Some(failure);
                self.missed(Cause::Failure);
                if failure.certainty == Certainty::Ambiguous {
                    self.doubted(endpoint);
                }
                if self.must_stop(failure.certainty) { Step::Done(self.stopped(failure)) } else { Step::Choosing }
            }
        };
    }

    /// The last error of a node that failed is kept, unless an answer is that lacked something or is on a fork.
    fn place(&self, verdict: Verdict) -> Put {
        match verdict {
            Verdict::Final => Put::Reply,
            Verdict::Failed(failure) if failure.keep && !self.course.is_some_and(|course| course.has_spare()) => {
                Put::Kept
            }
            _ => Put::Away,
        }
    }

    /// The retry matrix: may another Endpoint see this Call after such a failure?
    fn must_stop(&self, certainty: Certainty) -> bool {
        match certainty {
            Certainty::NotSent | Certainty::Refused => false,
            Certainty::Ambiguous => self.notification || !self.class.replayable(),
        }
    }

    /// What an earlier Endpoint said when it refused would tell the caller that nothing has run.
    fn stopped(&self, failure: Failure) -> Finish {
        let Failure { keep, reason, .. } = failure;
        if keep { self.told_kept() } else { self.told(Fault::OutcomeUnknown { reason }) }
    }

    fn give_up<W: World>(&mut self, route: &Route, world: &W, now_ns: Nanos) -> Action {
        if self.doubt.can_be_settled() && self.step == Step::Choosing {
            let reason = self.last.map_or(Reason::ConnectionLost, |last| last.reason);
            let end = if self.kept { Finish::Kept } else { Finish::Fault(Fault::OutcomeUnknown { reason }) };
            let targets = Bits(route.eligible).map(|at| route.targets[usize::from(at)].endpoint);
            let admits = |endpoint: &EndpointIx| world.admission(*endpoint, now_ns) == Admission::Admit;
            self.doubt.ask_where_it_arose(targets.clone().filter(admits).chain(targets));
            self.step = Step::Doubting { end, seen: false };
            return self.look_up(end, now_ns);
        }
        let finish = if self.kept { self.told_kept() } else { self.told(self.ending(route, world, now_ns)) };
        self.finish(finish)
    }

    /// What is said when there is nobody left to ask.
    fn ending<W: World>(&self, route: &Route, world: &W, now_ns: Nanos) -> Fault {
        match (self.last, self.soonest_ns) {
            (Some(Failure { reason: Reason::Timeout, .. }), _) => Fault::TimedOut,
            (Some(Failure { reason, retry_after_ns, .. }), _) => {
                Fault::Exhausted { reason, retry_after_ns: retry_after_ns.unwrap_or(0) }
            }
            (None, Some(soonest_ns)) => Fault::Unavailable { retry_after_ns: soonest_ns.saturating_sub(now_ns) },
            (None, None) => self.nobody(route, world, now_ns),
        }
    }

    /// Why there was nobody to ask.
    fn nobody<W: World>(&self, route: &Route, world: &W, now_ns: Nanos) -> Fault {
        match self.course.is_some_and(|course| course.lacks_method(route, world, now_ns)) {
            true => Fault::Method(Unavailable::NoCapability),
            false => Fault::NoTarget,
        }
    }

    fn course(&mut self) -> &mut Course {
        self.course.get_or_insert_default()
    }

    fn missed(&mut self, cause: Cause) {
        if let Some(course) = &mut self.course {
            course.missed(cause);
        }
    }

    fn finish(&mut self, finish: Finish) -> Action {
        self.step = Step::Done(finish);
        Action::Finish(finish)
    }

    fn told(&self, fault: Fault) -> Finish {
        if self.notification { Finish::Silent } else { Finish::Fault(fault) }
    }

    fn told_kept(&self) -> Finish {
        if self.notification { Finish::Silent } else { Finish::Kept }
    }

    fn rejected(&mut self, until_ns: Nanos) {
        self.missed(Cause::Circuit);
        self.soonest_ns = Some(self.soonest_ns.map_or(until_ns, |soonest| soonest.min(until_ns)));
    }

    /// Only what may be repeated finds out whether an Endpoint lives again.
    fn may_probe(&self) -> bool {
        self.class.replayable() && !self.notification
    }

    fn select<W: World>(
        &mut self,
        route: &Route,
        world: &W,
        now_ns: Nanos,
        random: &mut impl FnMut() -> u64,
    ) -> Option<u8> {
        let (set, cause) = self.offer(route, world, now_ns)?;
        if route.strategy == Strategy::Priority {
            return Some(set.trailing_zeros() as u8);
        }
        let draw = self.first_draw.take().unwrap_or_else(random);
        let chosen = weighted(route, set, draw)?;
        if route.strategy == Strategy::Tiered {
            self.course().chose(route, chosen, cause, world, now_ns);
        }
        Some(chosen)
    }

    /// The targets among which the next one is drawn, and what keeps the preferred tier from serving.
    #[inline]
    fn offer<W: World>(&mut self, route: &Route, world: &W, now_ns: Nanos) -> Option<(u128, Option<Cause>)> {
        if route.strategy == Strategy::Tiered {
            return self.offer_by_tier(route, world, now_ns);
        }
        if self.remaining == 0 {
            // What is left now are the half-open ones: they come back, first to be asked, then to be probed.
            self.remaining = self.deferred;
            self.rounds += 1;
        }
        if self.remaining == 0 {
            return None;
        }
        Some((self.remaining, None))
    }

    /// The same by tier: what remains may hold targets that this Call can't use.
    fn offer_by_tier<W: World>(&mut self, route: &Route, world: &W, now_ns: Nanos) -> Option<(u128, Option<Cause>)> {
        loop {
            let remaining = self.remaining;
            let (set, cause) = self.course().next(route, remaining, world, now_ns);
            if set != 0 {
                return Some((set, cause));
            }
            let back = self.deferred & !self.remaining;
            if back == 0 {
                return None;
            }
            self.remaining |= back;
            self.rounds += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::snapshot::{Target, shares};
    use crate::logic::units::{MS, SECOND};

    struct Board(Vec<Admission>);
    impl World for Board {
        fn admission(&self, endpoint: EndpointIx, _: Nanos) -> Admission {
            self.0[usize::from(endpoint.0)]
        }
    }

    fn route(strategy: Strategy, weights: &[u16]) -> Route {
        let targets: Vec<Target> =
            weights.iter().zip(0..).map(|(weight, at)| Target { endpoint: EndpointIx(at), weight: *weight }).collect();
        Route {
            id: "r".into(),
            methods: vec![],
            strategy,
            eligible: (1u128 << targets.len()) - 1,
            shares: shares(&targets, u128::MAX),
            held: Box::default(),
            by_tier: [0; 3],
            targets,
            max_attempts: 3,
            attempt_timeout_ns: 10 * SECOND,
            version: 1,
        }
    }

    fn failed(certainty: Certainty) -> Event {
        Event::Judged(Verdict::Failed(Failure {
            certainty,
            reason: Reason::ConnectionLost,
            keep: false,
            retry_after_ns: None,
        }))
    }

    /// Runs a Call whose attempts all fail so, and returns the Endpoints it saw and its end.
    fn run(machine: &mut CallMachine, route: &Route, world: &Board, event: Event) -> (Vec<u16>, Finish) {
        let mut seen = vec![];
        loop {
            match machine.next(route, world, MS, &mut || 0) {
                Action::Attempt { endpoint, .. } => {
                    seen.push(endpoint.0);
                    machine.feed(event);
                }
                Action::Finish(finish) => return (seen, finish),
                Action::Await | Action::LookUp { .. } | Action::AskAgain { .. } => {
                    unreachable!("nothing is under way, nothing is named")
                }
            }
        }
    }

    fn all_closed(n: usize) -> Board {
        Board(vec![Admission::Admit; n])
    }

    #[test]
    fn the_matrix() {
        use Certainty::{Ambiguous, NotSent, Refused};
        use Class::{Effect, Local, SignedBroadcast, Stateless, Unrecognised};
        let route = route(Strategy::Priority, &[1, 1, 1]);
        for (class, certainty, tries) in [
            (Stateless, NotSent, 3),
            (Stateless, Refused, 3),
            (Stateless, Ambiguous, 3),
            (SignedBroadcast, NotSent, 3),
            (SignedBroadcast, Refused, 3),
            (SignedBroadcast, Ambiguous, 3),
            (Local, NotSent, 3),
            (Local, Refused, 3),
            (Local, Ambiguous, 1),
            (Effect, NotSent, 3),
            (Effect, Refused, 3),
            (Effect, Ambiguous, 1),
            (Unrecognised, NotSent, 3),
            (Unrecognised, Refused, 3),
            (Unrecognised, Ambiguous, 1),
        ] {
            let mut machine = CallMachine::new(&route, class, false, None);
            let (seen, finish) = run(&mut machine, &route, &all_closed(3), failed(certainty));
            assert_eq!(seen.len(), tries, "{class:?} {certainty:?}");
            let unknown = Finish::Fault(Fault::OutcomeUnknown { reason: Reason::ConnectionLost });
            let spent = Finish::Fault(Fault::Exhausted { reason: Reason::ConnectionLost, retry_after_ns: 0 });
            assert_eq!(finish, if tries == 1 { unknown } else { spent }, "{class:?} {certainty:?}");
        }
    }

    #[test]
    fn a_notification_goes_on_only_if_it_was_not_sent() {
        let route = route(Strategy::Priority, &[1, 1, 1]);
        for (certainty, tries) in [(Certainty::NotSent, 3), (Certainty::Ambiguous, 1)] {
            let mut machine = CallMachine::new(&route, Class::Stateless, true, None);
            assert_eq!(
                run(&mut machine, &route, &all_closed(3), failed(certainty)),
                ((0..tries).collect(), Finish::Silent)
            );
        }
    }

    #[test]
    fn a_kept_error_is_delivered_when_nothing_better_comes() {
        let route = route(Strategy::Priority, &[1, 1]);
        let kept =
            Failure { certainty: Certainty::Ambiguous, reason: Reason::HttpStatus, keep: true, retry_after_ns: None };
        let mut machine = CallMachine::new(&route, Class::Stateless, false, None);
        machine.next(&route, &all_closed(2), 0, &mut || 0);
        machine.feed(Event::Judged(Verdict::Failed(kept)));
        machine.next(&route, &all_closed(2), 0, &mut || 0);
        machine.feed(failed(Certainty::Ambiguous));
        assert_eq!(machine.next(&route, &all_closed(2), 0, &mut || 0), Action::Finish(Finish::Kept));
        let mut stops = CallMachine::new(&route, Class::Effect, false, None);
        assert_eq!(
            run(&mut stops, &route, &all_closed(2), Event::Judged(Verdict::Failed(kept))),
            (vec![0], Finish::Kept)
        );
    }

    #[test]
    fn a_refusal_that_was_kept_hides_no_unknown_outcome() {
        let route = route(Strategy::Priority, &[1, 1]);
        let busy =
            Failure { certainty: Certainty::Refused, reason: Reason::NodeBusy, keep: true, retry_after_ns: None };
        for (class, expected) in [
            (Class::Effect, Finish::Fault(Fault::OutcomeUnknown { reason: Reason::ConnectionLost })),
            (Class::Stateless, Finish::Kept),
        ] {
            let mut machine = CallMachine::new(&route, class, false, None);
            machine.next(&route, &all_closed(2), 0, &mut || 0);
            machine.feed(Event::Judged(Verdict::Failed(busy)));
            machine.next(&route, &all_closed(2), 0, &mut || 0);
            machine.feed(failed(Certainty::Ambiguous));
            assert_eq!(machine.next(&route, &all_closed(2), 0, &mut || 0), Action::Finish(expected), "{class:?}");
        }
    }

    #[test]
    fn rejected_candidates_cost_no_attempt() {
        let route = route(Strategy::Priority, &[1; 5]);
        let mut world = all_closed(5);
        world.0[0] = Admission::Reject { until_ns: SECOND };
        world.0[2] = Admission::Reject { until_ns: 2 * SECOND };
        let mut machine = CallMachine::new(&route, Class::Stateless, false, None);
        let (seen, _) = run(&mut machine, &route, &world, failed(Certainty::NotSent));
        assert_eq!(seen, [1, 3, 4]);
    }

    #[test]
    fn nothing_admitted_says_when_to_come_back() {
        let route = route(Strategy::Priority, &[1, 1]);
        let world = Board(vec![Admission::Reject { until_ns: 3 * SECOND }, Admission::Reject { until_ns: 2 * SECOND }]);
        let mut machine = CallMachine::new(&route, Class::Stateless, false, None);
        let fault = Fault::Unavailable { retry_after_ns: 2 * SECOND - MS };
        assert_eq!(run(&mut machine, &route, &world, failed(Certainty::NotSent)), (vec![], Finish::Fault(fault)));
        let nobody = Route { eligible: 0, ..route };
        let mut machine = CallMachine::new(&nobody, Class::Stateless, false, None);
        assert_eq!(run(&mut machine, &nobody, &world, failed(Certainty::NotSent)).1, Finish::Fault(Fault::NoTarget));
    }

    #[test]
    fn only_what_may_be_repeated_probes_unless_nothing_else_is_left() {
        let route = route(Strategy::Priority, &[1, 1]);
        let world = Board(vec![Admission::Probe, Admission::Admit]);
        let first = |class| {
            let mut machine = CallMachine::new(&route, class, false, None);
            machine.next(&route, &world, 0, &mut || 0)
        };
        assert!(matches!(first(Class::Stateless), Action::Attempt { endpoint: EndpointIx(0), probe: true, .. }));
        assert!(matches!(first(Class::SignedBroadcast), Action::Attempt { endpoint: EndpointIx(0), probe: true, .. }));
        for class in [Class::Effect, Class::Local, Class::Unrecognised] {
            assert!(matches!(first(class), Action::Attempt { endpoint: EndpointIx(1), probe: false, .. }), "{class:?}");
        }
        let mut machine = CallMachine::new(&route, Class::Effect, false, None);
        assert_eq!(run(&mut machine, &route, &world, failed(Certainty::NotSent)).0, [1, 0]);
    }

    #[test]
    fn a_last_resort_that_has_closed_meanwhile_goes_before_a_probe() {
        let route = route(Strategy::Priority, &[1, 1, 1]);
        let mut world = Board(vec![Admission::Probe, Admission::Probe, Admission::Admit]);
        let mut machine = CallMachine::new(&route, Class::Effect, false, None);
        machine.next(&route, &world, 0, &mut || 0);
        machine.feed(failed(Certainty::NotSent));
        world.0[1] = Admission::Admit;
        let next = machine.next(&route, &world, 0, &mut || 0);
        assert!(matches!(next, Action::Attempt { endpoint: EndpointIx(1), probe: false, .. }), "{next:?}");
    }

    #[test]
    fn a_lost_permit_is_no_attempt() {
        let route = route(Strategy::Priority, &[1, 1]);
        let world = Board(vec![Admission::Probe, Admission::Admit]);
        let mut machine = CallMachine::new(&route, Class::Stateless, false, None);
        machine.next(&route, &world, 0, &mut || 0);
        machine.feed(Event::Refused { until_ns: SECOND });
        assert_eq!(machine.attempts(), 0);
        let next = machine.next(&route, &world, 0, &mut || 0);
        assert!(matches!(next, Action::Attempt { endpoint: EndpointIx(1), probe: false, .. }));
    }

    #[test]
    fn a_timeout_as_the_last_failure_has_its_own_code() {
        let route = route(Strategy::Priority, &[1]);
        let late =
            Failure { certainty: Certainty::Ambiguous, reason: Reason::Timeout, keep: false, retry_after_ns: None };
        let mut machine = CallMachine::new(&route, Class::Stateless, false, None);
        let end = run(&mut machine, &route, &all_closed(1), Event::Judged(Verdict::Failed(late))).1;
        assert_eq!(end, Finish::Fault(Fault::TimedOut));
    }

    #[test]
    fn weights_decide_and_removal_renormalises() {
        let route = route(Strategy::Weighted, &[3, 0, 1]);
        let share = |remaining: u128| {
            let mut hits = [0u32; 3];
            for step in 0..1_000u64 {
                let draw = step * (u64::MAX / 1_000) + u64::MAX / 2_000;
                hits[usize::from(weighted(&route, remaining, draw).unwrap())] += 1;
            }
            hits
        };
        assert_eq!(share(0b101), [750, 0, 250]);
        assert_eq!(share(0b100), [0, 0, 1_000]);
        assert_eq!(weighted(&route, 0b010, 7), None);
    }

    #[test]
    fn a_choice_that_is_looked_up_is_the_one_that_is_counted_out() {
        for weights in [vec![1], vec![3, 0, 1], vec![0, 0, 5, 0], vec![0, 0], vec![1_000; 100], (0..100).collect()] {
            let all = route(Strategy::Weighted, &weights);
            let known = Route { shares: shares(&all.targets, all.eligible), ..all.clone() };
            let unknown = Route { shares: [].into(), ..all };
            for step in 0..5_000u64 {
                let draw = step.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                assert_eq!(weighted(&known, known.eligible, draw), weighted(&unknown, unknown.eligible, draw));
            }
            assert_eq!(weighted(&known, known.eligible, u64::MAX), weighted(&unknown, unknown.eligible, u64::MAX));
        }
        let mut some = route(Strategy::Weighted, &[5, 1, 1]);
        some.eligible = 0b110;
        some.shares = shares(&some.targets, some.eligible);
        assert_eq!(*some.shares, [0, 1, 2]);
        assert_eq!((weighted(&some, 0b110, 0), weighted(&some, 0b110, u64::MAX)), (Some(1), Some(2)));
    }

    #[test]
    fn members_that_share_a_draw_start_at_one_node() {
        let route = route(Strategy::Weighted, &[1, 1, 1]);
        let first = |draw| {
            let mut machine = CallMachine::new(&route, Class::Stateless, false, Some(draw));
            machine.next(&route, &all_closed(3), 0, &mut || unreachable!("the draw is given"))
        };
        assert_eq!(first(u64::MAX / 2), first(u64::MAX / 2));
    }

    /// A signed broadcast whose first attempt at Endpoint 0 ended ambiguously, and whose transaction has a name.
    fn in_doubt(route: &Route, world: &Board) -> CallMachine {
        let mut machine = CallMachine::new(route, Class::SignedBroadcast, false, None);
        machine.next(route, world, 0, &mut || 0);
        machine.feed(failed(Certainty::Ambiguous));
        assert!(machine.in_doubt());
        machine.named();
        machine
    }

    #[test]
    fn an_error_about_a_transaction_in_doubt_is_no_answer_yet() {
        let (route, world) = (route(Strategy::Priority, &[1, 1]), all_closed(2));
        let next = |machine: &mut CallMachine| machine.next(&route, &world, SECOND, &mut || 0);
        let mut known = in_doubt(&route, &world);
        next(&mut known);
        known.feed(Event::Spoke(Said::AlreadyKnown));
        assert_eq!(next(&mut known), Action::Finish(Finish::Taken));
        for (known, after_seen, after_other) in [
            (Known::Yes, Finish::Taken, Finish::Taken),
            (Known::No, Finish::Reply, Finish::Reply),
            (Known::Unclear, Finish::Taken, Finish::Reply),
        ] {
            for (said, end) in [(Said::Seen, after_seen), (Said::Other, after_other)] {
                let mut machine = in_doubt(&route, &world);
                next(&mut machine);
                machine.feed(Event::Spoke(said));
                let asked = Action::LookUp { endpoint: EndpointIx(1), until_ns: 2 * SECOND };
                assert_eq!(next(&mut machine), asked, "where the error came from");
                machine.feed(Event::LookedUp(known));
                if end == Finish::Reply {
                    let asked = Action::LookUp { endpoint: EndpointIx(0), until_ns: 3 * SECOND };
                    assert_eq!(next(&mut machine), asked, "and where the doubt arose");
                    machine.feed(Event::LookedUp(Known::No));
                }
                assert_eq!(next(&mut machine), Action::Finish(end));
            }
        }
    }

    #[test]
    fn only_the_first_may_have_it_yet() {
        let (route, world) = (route(Strategy::Priority, &[1, 1]), all_closed(2));
        let next = |machine: &mut CallMachine| machine.next(&route, &world, SECOND, &mut || 0);
        for (here, there, end) in [
            (Known::No, Known::Yes, Finish::Taken),
            (Known::Unclear, Known::Yes, Finish::Taken),
            (Known::No, Known::Unclear, Finish::Reply),
        ] {
            let mut machine = in_doubt(&route, &world);
            next(&mut machine);
            machine.feed(Event::Spoke(Said::Other));
            next(&mut machine);
            machine.feed(Event::LookedUp(here));
            next(&mut machine);
            machine.feed(Event::LookedUp(there));
            assert_eq!(next(&mut machine), Action::Finish(end), "{here:?} {there:?}");
        }
    }

    #[test]
    fn after_total_failure_the_chain_is_asked_at_two_places() {
        let (route, world) = (route(Strategy::Priority, &[1, 1]), all_closed(2));
        let mut machine = in_doubt(&route, &world);
        let next = |machine: &mut CallMachine, now_ns| machine.next(&route, &world, now_ns, &mut || 0);
        next(&mut machine, 0);
        machine.feed(failed(Certainty::NotSent));
        assert_eq!(next(&mut machine, 0), Action::LookUp { endpoint: EndpointIx(0), until_ns: SECOND });
        machine.feed(Event::LookedUp(Known::No));
        assert_eq!(next(&mut machine, SECOND), Action::LookUp { endpoint: EndpointIx(1), until_ns: 2 * SECOND });
        machine.feed(Event::LookedUp(Known::No));
        let unknown = Finish::Fault(Fault::OutcomeUnknown { reason: Reason::ConnectionLost });
        assert_eq!(next(&mut machine, 2 * SECOND), Action::Finish(unknown));
        assert_eq!(machine.attempts(), 2, "look-ups are no attempts");
    }

    #[test]
    fn after_total_failure_a_kept_error_goes_out_only_if_the_chain_knows_nothing() {
        let (route, world) = (route(Strategy::Priority, &[1]), all_closed(1));
        let kept =
            Failure { certainty: Certainty::Ambiguous, reason: Reason::HttpStatus, keep: true, retry_after_ns: None };
        for (known, end) in [(Known::Yes, Finish::Taken), (Known::No, Finish::Kept), (Known::Unclear, Finish::Kept)] {
            let mut machine = CallMachine::new(&route, Class::SignedBroadcast, false, None);
            machine.next(&route, &world, 0, &mut || 0);
            machine.feed(Event::Judged(Verdict::Failed(kept)));
            machine.named();
            let asked = Action::LookUp { endpoint: EndpointIx(0), until_ns: 2 * SECOND };
            assert_eq!(machine.next(&route, &world, 0, &mut || 0), asked);
            machine.feed(Event::LookedUp(known));
            assert_eq!(machine.next(&route, &world, MS, &mut || 0), Action::Finish(end));
        }
    }

    #[test]
    fn the_other_that_is_asked_is_one_that_admits_if_there_is_one() {
        let (mut route, closed) = (route(Strategy::Priority, &[1; 4]), all_closed(4));
        route.max_attempts = 1;
        let reject = Admission::Reject { until_ns: SECOND };
        for (last, other) in [(Admission::Admit, EndpointIx(3)), (reject, EndpointIx(1))] {
            let world = Board(vec![Admission::Admit, reject, Admission::Probe, last]);
            let mut machine = in_doubt(&route, &closed);
            machine.next(&route, &world, 0, &mut || 0);
            machine.feed(Event::LookedUp(Known::No));
            let asked = Action::LookUp { endpoint: other, until_ns: 2 * SECOND };
            assert_eq!(machine.next(&route, &world, SECOND, &mut || 0), asked);
        }
    }

    #[test]
    fn nobody_is_asked_for_a_caller_that_left() {
        let (route, world) = (route(Strategy::Priority, &[1, 1]), all_closed(2));
        let mut machine = in_doubt(&route, &world);
        machine.next(&route, &world, 0, &mut || 0);
        machine.feed(Event::CallerGone);
        machine.feed(Event::Spoke(Said::Other));
        assert_eq!(machine.next(&route, &world, 0, &mut || 0), Action::Finish(Finish::Reply));
    }

    #[test]
    fn a_notification_is_never_in_doubt() {
        let (route, world) = (route(Strategy::Priority, &[1, 1]), all_closed(2));
        let mut machine = CallMachine::new(&route, Class::SignedBroadcast, true, None);
        machine.next(&route, &world, 0, &mut || 0);
        machine.feed(failed(Certainty::Ambiguous));
        assert!(!machine.in_doubt());
        assert_eq!(machine.next(&route, &world, 0, &mut || 0), Action::Finish(Finish::Silent));
    }

    #[test]
    fn a_lost_send_is_an_earlier_attempt_for_all_that_is_known() {
        let (route, world) = (route(Strategy::Priority, &[1]), all_closed(1));
        let mut machine = CallMachine::new(&route, Class::SignedBroadcast, false, None);
        machine.next(&route, &world, 0, &mut || 0);
        machine.feed(Event::LostSend);
        assert!(machine.in_doubt());
        let mut query = CallMachine::new(&route, Class::Stateless, false, None);
        query.next(&route, &world, 0, &mut || 0);
        query.feed(Event::LostSend);
        assert!(!query.in_doubt(), "nobody loses money by reading twice");
    }

    #[test]
    fn without_doubt_every_error_is_the_answer() {
        let (route, world) = (route(Strategy::Priority, &[1, 1]), all_closed(2));
        let mut machine = CallMachine::new(&route, Class::SignedBroadcast, false, None);
        machine.next(&route, &world, 0, &mut || 0);
        machine.feed(failed(Certainty::NotSent));
        assert!(!machine.in_doubt());
        machine.next(&route, &world, 0, &mut || 0);
        machine.feed(Event::Spoke(Said::AlreadyKnown));
        assert_eq!(machine.next(&route, &world, 0, &mut || 0), Action::Finish(Finish::Reply));
    }

    #[test]
    fn a_caller_that_left_starts_nothing_more() {
        let route = route(Strategy::Priority, &[1, 1]);
        let mut machine = CallMachine::new(&route, Class::Stateless, false, None);
        machine.next(&route, &all_closed(2), 0, &mut || 0);
        machine.feed(Event::CallerGone);
        machine.feed(failed(Certainty::Ambiguous));
        assert_eq!(machine.next(&route, &all_closed(2), 0, &mut || 0), Action::Finish(Finish::Abandoned));
    }
}
