//! Signed broadcasts that a node may have taken: connections that break with a request on them, what nodes
//! say afterwards, look-ups, and whether what the caller is told is true.

use crate::simulation::chain::{Chain, Word};
use crate::simulation::random::Random;
use crate::simulation::run::{Checked, Happens, Live, Run};
use crate::simulation::table::How;
use ringway::logic::call::Class;
use ringway::logic::failover::{Event, Finish, Known};
use ringway::logic::fault::Fault;
use ringway::logic::snapshot::EndpointIx;
use ringway::logic::units::Nanos;
use ringway::logic::verdict::{Body, Response, Verdict};

impl Run {
    /// A connection that was kept open breaks after the request went out over it, and the request goes out
    /// once more over a fresh one: the driver does so with what the code calls replayable.
    pub(super) fn lose(&mut self, id: u32) {
        let Some(live) = self.calls.get_mut(&id) else { return };
        if !live.oracle.class.replayable() || live.oracle.notification {
            return;
        }
        let (endpoint, transaction) = (live.endpoint, live.transaction);
        let Some(runs) = self.nodes[usize::from(endpoint.0)].loses(&mut self.random) else { return };
        live.lost_send = true;
        self.reached += 1;
        self.tally.counted.lost_sends += 1;
        self.tally.counted.faults += 1;
        let executed = runs && transaction.is_none_or(|transaction| self.chain.runs(transaction, endpoint));
        self.executed(id, executed);
    }

    /// The node has executed an operation or not, or has taken a transaction.
    pub(super) fn executed(&mut self, id: u32, executed: bool) {
        let Some(live) = self.calls.get_mut(&id).filter(|_| executed) else { return };
        live.oracle.executed += 1;
        self.nodes[usize::from(live.endpoint.0)].executed += 1;
        self.tally.counted.executed += 1;
        if let Some(transaction) = live.transaction
            && let Some(after_ns) = Chain::gossips(&mut self.random)
        {
            self.after(after_ns, Happens::Gossip(transaction));
        }
    }

    pub(super) fn look_up(&mut self, id: u32, endpoint: EndpointIx, until_ns: Nanos) -> Checked<()> {
        let Some(live) = self.calls.get_mut(&id) else { return Ok(()) };
        let Some(transaction) = live.transaction else { return Err("looks up what is no transaction".into()) };
        let (node, has) = (&self.nodes[usize::from(endpoint.0)], self.chain.holds(transaction, endpoint));
        let timeout_ns = until_ns.saturating_sub(self.now_ns).max(1);
        let (known, after_ns) = node.look_up(&mut self.random, has, timeout_ns);
        live.shown |= known == Known::Yes;
        self.tally.counted.looked_up(known);
        self.tally.counted.second_look_ups += u64::from(std::mem::replace(&mut live.asked, true));
        self.after(after_ns, Happens::LookedUp(id, known));
        Ok(())
    }

    pub(super) fn looked_up(&mut self, id: u32, known: Known) -> Checked<()> {
        self.current = Some(id);
        let Some(live) = self.calls.get_mut(&id) else { return Ok(()) };
        live.machine.feed(Event::LookedUp(known));
        live.oracle.looked_up(self.now_ns, known)?;
        self.soon(Happens::Step(id));
        Ok(())
    }

    /// Whether the end of a Call is the truth about its transaction, whoever said what.
    pub(super) fn told(&mut self, id: u32, finish: Finish) -> Checked<()> {
        let Some(live) = self.calls.get(&id) else { return Ok(()) };
        let oracle = &live.oracle;
        if finish == Finish::Taken {
            let (Class::SignedBroadcast, false, Some(transaction)) =
                (oracle.class, oracle.notification, live.transaction)
            else {
                return Err("taken, and it is no signed broadcast that somebody waits for".into());
            };
            if !self.chain.took(transaction) && !oracle.believed {
                return Err("told that its transaction was taken, and no node has it".into());
            }
            self.tally.counted.believed += u64::from(oracle.believed);
            return Ok(());
        }
        let error = match finish {
            Finish::Kept => true,
            // What is over the limit is final by contract, whatever it was about.
            Finish::Fault(fault) => !matches!(fault, Fault::ResponseTooLarge | Fault::Overloaded),
            Finish::Reply => live.speech.is_some(),
            Finish::Taken | Finish::Silent | Finish::Abandoned => false,
        };
        if error && live.shown {
            return Err("told an error, and a node that could be asked has its transaction".into());
        }
        self.tally.counted.settled_errors += u64::from(error && live.asked);
        Ok(())
    }
}

/// What the machine is told about an attempt. The real driver has it judge words only where there is doubt;
/// without one they must change nothing, so this one is not always as careful.
pub(super) fn event(
    live: &mut Live,
    verdict: Verdict,
    chain: &Chain,
    random: &mut Random,
    spoke: &mut [u64; 3],
) -> Checked<Event> {
    let signed = live.oracle.class == Class::SignedBroadcast && !live.oracle.notification;
    let Some(speech) = live.speech.filter(|_| signed && verdict == Verdict::Final) else {
        return Ok(Event::Judged(verdict));
    };
    let said = chain.judged(speech)?;
    if live.oracle.can_be_settled() {
        spoke[speech.word as usize] += 1;
        live.shown |= speech.word == Word::Known;
        return Ok(Event::Spoke(said));
    }
    Ok(if random.once_in(2) { Event::Spoke(said) } else { Event::Judged(verdict) })
}

/// The transaction gets its name when it is of use, if it has one.
pub(super) fn christen(live: &mut Live) {
    if live.machine.in_doubt() && live.oracle.named {
        live.machine.named();
    }
}

/// A result, or an error that a node stands by.
pub(super) fn went_well(how: &How) -> bool {
    matches!(how, How::Answered(Response { status: 200, body: Body::Result | Body::Error(_), .. }))
}
