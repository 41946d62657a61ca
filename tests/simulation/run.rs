//! One seed from its first Call to its last: the virtual clock, the shards, and a driver that treats the
//! machine as the real one does.

use crate::simulation::board::{Board, Glimpse, Permit, Trip};
use crate::simulation::chain::{Chain, Speech};
use crate::simulation::doubt::{christen, event, went_well};
use crate::simulation::draws::Draws;
use crate::simulation::node::{Ending, Node};
use crate::simulation::oracle::{Choice, Line, Oracle};
use crate::simulation::random::Random;
use crate::simulation::scene::Scene;
use crate::simulation::table::{self, How, Meaning, Row};
use crate::simulation::tally::{Tally, name};
use ringway::logic::call::Class;
use ringway::logic::circuit::Word;
use ringway::logic::failover::{Action, CallMachine, Event, Finish, Known};
use ringway::logic::fault::Reason;
use ringway::logic::snapshot::{EndpointIx, Protocol, Strategy};
use ringway::logic::units::{MS, Nanos, SECOND};
use ringway::logic::verdict::{self, Broke, CircuitNote, Verdict};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// After the faults: how often each Endpoint whose Circuit is not closed gets a Call.
const KNOCK_NS: Nanos = 50 * MS;
/// Look-ups take two seconds in all, and the timer of the last may fire two seconds late.
const LOOK_UPS_NS: Nanos = 5 * SECOND;

#[derive(Debug, Clone, Copy)]
pub(super) enum Happens {
    Arrival,
    /// The shard that has this Call asks its machine.
    Step(u32),
    /// It goes for the permit...
    Glimpse(u32),
    /// ...and swaps this word.
    Take(u32, Word),
    /// It spends of the Endpoint's budget.
    Spend(u32),
    /// The attempt with this number ends.
    Ends(u32, u32),
    /// The look-up of this Call ends.
    LookedUp(u32, Known),
    /// A node tells its peers about a transaction.
    Gossip(usize),
    Leaves(u32),
    Turn(u16),
    Trip(Trip),
    Knock,
}

/// A Call under way.
pub(super) struct Live {
    pub(super) road: usize,
    pub(super) shard: usize,
    pub(super) machine: CallMachine,
    pub(super) oracle: Oracle,
    pub(super) first_draw: Option<u64>,
    pub(super) endpoint: EndpointIx,
    pub(super) until_ns: Nanos,
    pub(super) permit: Option<Permit>,
    pub(super) attempt: u32,
    /// Its place on the chain, if it is a signed broadcast.
    pub(super) transaction: Option<usize>,
    /// The request of this attempt went out before, over a connection that broke.
    pub(super) lost_send: bool,
    /// What the node says, if it answers with an error.
    pub(super) speech: Option<Speech>,
    /// A node that has the transaction has said so.
    pub(super) shown: bool,
    /// The chain was asked.
    pub(super) asked: bool,
    pub(super) ending: Option<Ending>,
    /// Attempts that no byte was sent for.
    pub(super) unsent: u32,
    pub(super) reached: u32,
    /// The machine said so, and no request has gone out yet.
    pub(super) begins: bool,
    pub(super) began_ns: Nanos,
    /// The last weighted choice, as a number.
    pub(super) drawn: Option<f64>,
}

/// Where the members of one batch start.
#[derive(Debug, Clone, Copy)]
struct Shared {
    draw: u64,
    at: u8,
}

/// A broken rule, with all that is needed to see it again.
#[derive(Debug)]
pub struct Violation(pub String);

pub struct Run {
    pub(super) seed: u64,
    pub(super) random: Random,
    pub(super) scene: Scene,
    pub(super) board: Board,
    pub(super) nodes: Vec<Node>,
    pub(super) chain: Chain,
    pub(super) calls: BTreeMap<u32, Live>,
    pub(super) queue: BinaryHeap<Reverse<(Nanos, u64, u64)>>,
    pub(super) happenings: Vec<Option<Happens>>,
    pub(super) free: Vec<usize>,
    pub(super) now_ns: Nanos,
    pub(super) to_arrive: u64,
    pub(super) deadline_ns: Option<Nanos>,
    /// Where the last batch started.
    shared: Option<Shared>,
    pub(super) current: Option<u32>,
    pub(super) reached: u64,
    pub(super) tally: Tally,
}

pub(super) type Checked<T> = Result<T, String>;

impl Run {
    pub fn new(seed: u64, calls: u64) -> Run {
        let mut random = Random::new(seed);
        let scene = Scene::new(&mut random);
        let nodes: Vec<Node> = scene.rules.iter().map(|_| Node::new(&mut random)).collect();
        let mut run = Run {
            seed,
            board: Board::new(&scene.rules, &scene.rates, scene.shards),
            chain: Chain::new((scene.protocol, scene.family), nodes.len(), &mut random),
            scene,
            calls: BTreeMap::new(),
            queue: BinaryHeap::new(),
            happenings: Vec::new(),
            free: Vec::new(),
            now_ns: 0,
            to_arrive: calls,
            deadline_ns: None,
            shared: None,
            current: None,
            reached: 0,
            tally: Tally::new(),
            random,
            nodes,
        };
        run.after(0, Happens::Arrival);
        (0..run.nodes.len() as u16).for_each(|node| run.after(1, Happens::Turn(node)));
        run
    }

    /// Runs to the end, or to the first rule that is broken.
    pub fn through(&mut self) -> Result<Tally, Violation> {
        let ended = self.all().and_then(|()| self.at_the_end());
        ended.map_err(|why| Violation(self.story(&why)))?;
        self.tally.passed = self.board.passed;
        Ok(self.tally.clone())
    }

    /// What was going on, for people.
    pub fn story(&self, why: &str) -> String {
        let mut story = format!("{why}\n  SIM_SEED={} at {} ns", self.seed, self.now_ns);
        if let Some((id, live)) = self.current.and_then(|id| self.calls.get(&id).map(|live| (id, live))) {
            let Oracle { class, notification, .. } = live.oracle;
            let road = self.scene.road(live.road);
            story += &format!("\n  Call {id}: {class:?}, notification {notification}, shard {}", live.shard);
            story += &format!("\n  {:?}", road.route);
            for (at_ns, line) in &live.oracle.history {
                story += &format!("\n  {at_ns:>14} {line:?}");
            }
        }
        story
    }

    fn all(&mut self) -> Checked<()> {
        while let Some(Reverse((at_ns, _, slot))) = self.queue.pop() {
            let slot = slot as usize;
            let Some(happens) = self.happenings[slot].take() else { continue };
            self.free.push(slot);
            self.now_ns = at_ns;
            self.current = None;
            self.happens(happens)?;
            if self.deadline_ns.is_some_and(|deadline_ns| at_ns > deadline_ns) {
                break;
            }
        }
        Ok(())
    }

    fn happens(&mut self, happens: Happens) -> Checked<()> {
        match happens {
            Happens::Arrival => self.arrival(),
            Happens::Step(id) => self.step(id),
            Happens::Glimpse(id) => self.glimpse(id),
            Happens::Take(id, word) => self.take(id, word),
            Happens::Spend(id) => self.spend(id),
            Happens::Ends(id, attempt) => self.ends(id, attempt),
            Happens::LookedUp(id, known) => self.looked_up(id, known),
            Happens::Gossip(transaction) => {
                self.chain.spreads(transaction, &mut self.random);
                Ok(())
            }
            Happens::Leaves(id) => self.leaves(id),
            Happens::Trip(trip) => self.board.trip(trip),
            Happens::Turn(node) => {
                let again_ns = self.nodes[usize::from(node)].turn(&mut self.random);
                if self.deadline_ns.is_none() {
                    self.after(again_ns, Happens::Turn(node));
                }
                Ok(())
            }
            Happens::Knock => {
                for endpoint in (0..self.board.endpoints()).filter(|at| !self.board.is_closed(*at)).collect::<Vec<_>>()
                {
                    self.enter(self.scene.roads.len() + endpoint, (Class::Stateless, false), None);
                }
                self.after(KNOCK_NS, Happens::Knock);
                Ok(())
            }
        }
    }

    pub(super) fn after(&mut self, after_ns: Nanos, happens: Happens) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.happenings.push(None);
            self.happenings.len() - 1
        });
        self.happenings[slot] = Some(happens);
        // What happens at one moment happens in any order: shards run side by side.
        self.queue.push(Reverse((self.now_ns + after_ns, self.random.bits(), slot as u64)));
    }

    /// Between two instructions of one shard others may be there, or not.
    pub(super) fn soon(&mut self, happens: Happens) {
        let after_ns = if self.random.once_in(2) { 0 } else { self.random.below(20_000) };
        self.after(after_ns, happens);
    }

    fn arrival(&mut self) -> Checked<()> {
        let road = self.random.below(self.scene.roads.len() as u64) as usize;
        let members = if self.random.once_in(6) { self.random.between(2, 8) } else { 1 };
        let shared = (members > 1).then(|| self.random.bits());
        for _ in 0..members.min(self.to_arrive) {
            let kind = self.scene.kind(&mut self.random, road);
            let id = self.enter(road, kind, shared);
            self.to_arrive -= 1;
            if self.random.once_in(15) {
                // Many leave before the first answer, some after seconds.
                let longest_ns = self.scene.roads[road].route.attempt_timeout_ns;
                let after_ns =
                    if self.random.once_in(2) { self.random.below(30 * MS) } else { self.random.below(2 * longest_ns) };
                self.after(after_ns, Happens::Leaves(id));
            }
        }
        if self.to_arrive > 0 {
            let pause_ns = self.random.below(2 * self.scene.pace_ns * members);
            self.after(pause_ns, Happens::Arrival);
        } else {
            // All faults end here, and from here every Circuit must find that out.
            self.nodes.iter_mut().for_each(|node| node.cured = true);
            self.deadline_ns = Some(self.now_ns + self.scene.patience_ns() + self.slowest_ns());
            self.after(0, Happens::Knock);
        }
        Ok(())
    }

    /// Calls that are under way may still run through all their attempts.
    fn slowest_ns(&self) -> Nanos {
        let roads = self.scene.roads.iter().map(|road| road.route.attempt_timeout_ns + 3 * MS);
        roads.max().unwrap_or(0) + LOOK_UPS_NS
    }

    fn enter(&mut self, road: usize, (class, notification): (Class, bool), first_draw: Option<u64>) -> u32 {
        self.tally.counted.calls += 1;
        let id = self.tally.counted.calls as u32;
        let signed = class == Class::SignedBroadcast;
        let transaction = signed.then(|| self.chain.enters(&mut self.random));
        let named = transaction.is_some_and(|transaction| self.chain.named(transaction));
        let route = &self.scene.road(road).route;
        let live = Live {
            road,
            shard: self.random.below(self.scene.shards as u64) as usize,
            machine: CallMachine::new(route, class, notification, first_draw),
            oracle: Oracle::new(self.scene.road(road), class, notification, named),
            first_draw,
            endpoint: EndpointIx(0),
            until_ns: 0,
            permit: None,
            attempt: 0,
            transaction,
            lost_send: false,
            speech: None,
            shown: false,
            asked: false,
            ending: None,
            unsent: 0,
            reached: 0,
            begins: false,
            began_ns: 0,
            drawn: None,
        };
        self.calls.insert(id, live);
        self.tally.most_in_flight = self.tally.most_in_flight.max(self.calls.len() as u64);
        self.soon(Happens::Step(id));
        id
    }

    /// Asks the machine what to do now, and whether that is right.
    fn step(&mut self, id: u32) -> Checked<()> {
        self.current = Some(id);
        let Some(live) = self.calls.get_mut(&id) else { return Ok(()) };
        let road = self.scene.road(live.road);
        let random = &mut self.random;
        self.board.asked.borrow_mut().clear();
        let action = live.machine.next(&road.route, &self.board, self.now_ns, &mut || random.bits());
        let choices = live.oracle.decided(road, &self.board, self.now_ns, &action)?;
        if road.route.strategy == Strategy::Weighted {
            let begins = live.oracle.history.len() == choices.len() + 1 && !choices.is_empty();
            self.drawn(id, &choices, begins)?;
        }
        let Some(live) = self.calls.get_mut(&id) else { return Ok(()) };
        match action {
            Action::Attempt { endpoint, until_ns, probe } => {
                (live.endpoint, live.until_ns, live.permit) = (endpoint, until_ns, None);
                live.begins = true;
                match probe {
                    true => self.soon(Happens::Glimpse(id)),
                    false => self.permitted(id),
                }
                Ok(())
            }
            Action::Finish(finish) => self.finished(id, finish),
            Action::Await => Err("waits for nothing".into()),
            Action::LookUp { endpoint, until_ns } => self.look_up(id, endpoint, until_ns),
            Action::AskAgain { .. } => Err("asks the chain again".into()),
        }
    }

    /// Counts weighted choices; `begins`: they are the first ones of their Call.
    fn drawn(&mut self, id: u32, choices: &[Choice], begins: bool) -> Checked<()> {
        let Some(live) = self.calls.get_mut(&id) else { return Ok(()) };
        let route = &self.scene.road(live.road).route;
        for (at, choice) in choices.iter().enumerate() {
            // Sums over a hundred targets are done once a Call.
            let first = begins && at == 0;
            if !choice.fair || (!first && choice.among.count_ones() > 12) {
                live.drawn = None;
                continue;
            }
            let value = Draws::value(route, *choice, &mut self.random);
            match (first, live.drawn) {
                (true, _) => {
                    // Members of a batch share the first draw, so only one of them says something about it.
                    let known = live.first_draw.and_then(|draw| self.shared.filter(|shared| shared.draw == draw));
                    match known {
                        Some(shared) if shared.at != choice.at => {
                            return Err(format!("one batch starts at positions {} and {}", shared.at, choice.at));
                        }
                        Some(_) => {}
                        None => self.tally.draws.first(value),
                    }
                    self.shared = live.first_draw.map(|draw| Shared { draw, at: choice.at }).or(self.shared);
                }
                (false, Some(before)) => self.tally.draws.later(value, before),
                (false, None) => {}
            }
            live.drawn = Some(value);
        }
        Ok(())
    }

    fn glimpse(&mut self, id: u32) -> Checked<()> {
        self.current = Some(id);
        let Some(live) = self.calls.get_mut(&id) else { return Ok(()) };
        match self.board.glimpse(live.endpoint, self.now_ns)? {
            Glimpse::Closed => self.permitted(id),
            Glimpse::HalfOpen(word) => self.soon(Happens::Take(id, word)),
            Glimpse::Rejected(until_ns) => self.refused(id, until_ns),
        }
        Ok(())
    }

    fn take(&mut self, id: u32, word: Word) -> Checked<()> {
        self.current = Some(id);
        let Some(live) = self.calls.get_mut(&id) else { return Ok(()) };
        let until_ns = live.until_ns;
        match self.board.take(live.endpoint, word, until_ns, self.now_ns)? {
            Some(permit) => {
                live.permit = Some(permit);
                self.permitted(id);
            }
            None => self.refused(id, until_ns),
        }
        Ok(())
    }

    /// Now only the budget is between the Call and its attempt.
    fn permitted(&mut self, id: u32) {
        let Some(live) = self.calls.get(&id) else { return };
        match self.board.has_budget(live.endpoint) {
            true => self.soon(Happens::Spend(id)),
            false => self.start(id),
        }
    }

    fn spend(&mut self, id: u32) -> Checked<()> {
        self.current = Some(id);
        let Some(live) = self.calls.get_mut(&id) else { return Ok(()) };
        let (place, permit) = ((live.endpoint, live.shard), live.permit);
        match self.board.spend(live.endpoint, self.now_ns)? {
            Ok(()) => self.start(id),
            Err(until_ns) => {
                live.permit = None;
                if permit.is_some() {
                    self.board.note(place, CircuitNote::Nothing, permit, (self.now_ns, 0.0), false)?;
                }
                self.refused(id, until_ns);
            }
        }
        Ok(())
    }

    fn refused(&mut self, id: u32, until_ns: Nanos) {
        if let Some(live) = self.calls.get_mut(&id) {
            live.begins = false;
            live.machine.feed(Event::Refused { until_ns });
            live.oracle.refused(self.now_ns, until_ns);
            self.soon(Happens::Step(id));
        }
    }

    /// The request goes out, and what will come of it is known to the node alone.
    fn start(&mut self, id: u32) {
        self.lose(id);
        let Some(live) = self.calls.get_mut(&id) else { return };
        let timeout_ns = live.until_ns.saturating_sub(self.now_ns).max(1);
        let (endpoint, notification) = (live.endpoint, live.oracle.notification);
        let node = &mut self.nodes[usize::from(endpoint.0)];
        let spoken = (self.scene.protocol, self.scene.family);
        let (mut ending, would) = node.take(&mut self.random, spoken, notification, timeout_ns);
        let reached = !matches!(ending.how, How::Broke(Broke::NotSent(_)));
        let (executed, speech) = match live.transaction.filter(|_| reached) {
            Some(at) => self.chain.receives((at, endpoint), &mut ending, (would, notification), &mut self.random),
            None => (would, None),
        };
        live.begins = false;
        live.began_ns = self.now_ns;
        live.speech = speech;
        live.reached += u32::from(reached);
        live.unsent += u32::from(!reached);
        live.attempt += 1;
        live.ending = Some(ending);
        let (attempt, probes) = (live.attempt, live.permit.is_some());
        self.reached += u64::from(reached);
        self.tally.counted.attempts += 1;
        self.tally.counted.faults += u64::from(!went_well(&ending.how));
        self.executed(id, executed);
        // A shard that dies takes its Calls with it, and a probe's permit is never given back.
        if self.random.once_in(if probes { 20 } else { 4_000 }) && self.deadline_ns.is_none() {
            self.tally.counted.lost += 1;
            self.tally.counted.faults += 1;
            self.over(id);
            return;
        }
        self.after(ending.after_ns, Happens::Ends(id, attempt));
    }

    /// The Call is gone: counts what became of its operation.
    fn over(&mut self, id: u32) {
        if let Some(Live { oracle, .. }) = self.calls.remove(&id) {
            self.tally.counted.doubts += u64::from(oracle.in_doubt());
            if !oracle.repeatable() {
                self.tally.counted.unsafe_ended(oracle.executed);
            }
        }
    }

    fn ends(&mut self, id: u32, attempt: u32) -> Checked<()> {
        self.current = Some(id);
        let Some(live) = self.calls.get_mut(&id).filter(|live| live.attempt == attempt) else { return Ok(()) };
        let Some(ending) = live.ending.take() else { return Ok(()) };
        let (protocol, family, notification) = (self.scene.protocol, self.scene.family, live.oracle.notification);
        let (verdict, note) = match &ending.how {
            How::Broke(broke) => verdict::judge_broken(*broke),
            How::Answered(response) if notification => verdict::judge_notification(response),
            How::Answered(response) if protocol == Protocol::TronHttp => verdict::judge_tron_http(response),
            How::Answered(response) => verdict::judge(family, response),
        };
        let row = table::row((protocol, family), notification, &ending.how);
        if let Some(why) = table::objection(&row, &verdict, note) {
            return Err(format!("{:?}: {why}", ending.how));
        }
        self.judged(id, &ending.how, verdict, note, &row)
    }

    fn judged(&mut self, id: u32, how: &How, verdict: Verdict, note: CircuitNote, row: &Row) -> Checked<()> {
        let Some(live) = self.calls.get_mut(&id) else { return Ok(()) };
        let failure = if let Verdict::Failed(failure) = verdict { Some(failure) } else { None };
        let asked = match how {
            How::Answered(response) if row.meaning == Meaning::Refused => response.retry_after_ns,
            _ => None,
        };
        let failed = (failure.map(|failure| failure.reason), asked);
        if std::mem::take(&mut live.lost_send) {
            live.oracle.lost_send(self.now_ns);
            live.machine.feed(Event::LostSend);
            christen(live);
        }
        let event = event(live, verdict, &self.chain, &mut self.random, &mut self.tally.counted.spoke)?;
        let said = live.speech.map(|speech| speech.word);
        live.oracle.ended(self.now_ns, row, said, failed, format!("{how:?} {:?} -> {verdict:?}", live.speech));
        if live.oracle.executed > 1 && !live.oracle.repeatable() {
            return Err(format!("executed {} times, and it must not be repeated", live.oracle.executed));
        }
        let split = self.random.once_in(4);
        let (place, permit) = ((live.endpoint, live.shard), live.permit.take());
        live.machine.feed(event);
        christen(live);
        if live.machine.in_doubt() != live.oracle.in_doubt() {
            return Err(format!("the machine is in doubt: {}", live.machine.in_doubt()));
        }
        if let How::Answered(_) = how {
            let busy = matches!(note, CircuitNote::Busy { .. });
            self.board.answered(place.0, place.1, busy, self.now_ns);
        }
        let trip = self.board.note(place, note, permit, (self.now_ns, self.random.unit()), split)?;
        if let Some(trip) = trip {
            self.soon(Happens::Trip(trip));
        }
        self.soon(Happens::Step(id));
        Ok(())
    }

    fn leaves(&mut self, id: u32) -> Checked<()> {
        self.current = Some(id);
        let Some(live) = self.calls.get_mut(&id) else { return Ok(()) };
        live.machine.feed(Event::CallerGone);
        live.oracle.caller_gone(self.now_ns);
        self.tally.counted.faults += 1;
        let cancels = live.oracle.class.ends_with_caller();
        if cancels != (live.oracle.class == Class::Stateless) {
            return Err(format!("a caller that leaves cuts a {:?} short: {cancels}", live.oracle.class));
        }
        if !live.oracle.is_away() || live.begins {
            return Ok(());
        }
        let (road, random) = (self.scene.road(live.road), &mut self.random);
        let action = live.machine.next(&road.route, &self.board, self.now_ns, &mut || random.bits());
        if action != Action::Await {
            return Err(format!("an attempt is under way, and the machine says {action:?}"));
        }
        if cancels && live.ending.take().is_some() {
            let how = How::Broke(Broke::Sent(Reason::ConnectionLost));
            let (verdict, _) = verdict::judge_broken(Broke::Sent(Reason::ConnectionLost));
            let row = table::row((self.scene.protocol, self.scene.family), live.oracle.notification, &how);
            let waited_ns = self.now_ns - live.began_ns;
            let note = verdict::judge_abandoned(waited_ns);
            if (note == CircuitNote::AbandonedAfterWait) != (waited_ns >= 1_000 * MS) {
                return Err(format!("a caller that left after {waited_ns} says {note:?}"));
            }
            return self.judged(id, &how, verdict, note, &row);
        }
        Ok(())
    }

    fn finished(&mut self, id: u32, finish: Finish) -> Checked<()> {
        let Some(live) = self.calls.get_mut(&id) else { return Ok(()) };
        let (road, random) = (self.scene.road(live.road), &mut self.random);
        let again = live.machine.next(&road.route, &self.board, self.now_ns, &mut || random.bits());
        live.oracle.history.push((self.now_ns, Line::Did(again)));
        if again != Action::Finish(finish) {
            return Err(format!("finished with {finish:?}, and then says {again:?}"));
        }
        let (said, counted) = (live.machine.attempts(), live.oracle.attempts());
        let made = live.reached + live.unsent;
        if said != counted || u32::from(said) != made {
            return Err(format!("{made} attempts were made, the machine says {said}, right is {counted}"));
        }
        self.told(id, finish)?;
        *self.tally.ends.entry(name(&finish)).or_default() += 1;
        self.over(id);
        Ok(())
    }

    fn at_the_end(&mut self) -> Checked<()> {
        // The last knocks may still be under way; callers' Calls have all ended.
        let callers = self.calls.iter().find(|(_, live)| live.road < self.scene.roads.len());
        self.current = callers.map(|(id, _)| *id);
        if let Some(id) = self.current {
            return Err(format!("Call {id} has not ended"));
        }
        let ended: u64 = self.tally.ends.values().sum();
        if ended + self.tally.counted.lost + self.calls.len() as u64 != self.tally.counted.calls {
            return Err(format!("{ended} ends of {} Calls", self.tally.counted.calls));
        }
        if let Some(endpoint) = (0..self.board.endpoints()).find(|at| !self.board.is_closed(*at)) {
            return Err(format!("Endpoint {endpoint} works again, and its Circuit has not closed"));
        }
        let received: u64 = self.nodes.iter().map(|node| node.received).sum();
        let executed: u64 = self.nodes.iter().map(|node| node.executed).sum();
        if (received, executed) != (self.reached, self.tally.counted.executed) {
            return Err(format!("nodes received {received}, executed {executed}, and the Calls sum to others"));
        }
        Ok(())
    }
}
