//! One Call from its plan to its answer: the one function that calls all the others and decides nothing.

use crate::logic::call::Call;
use crate::logic::circuit::PERMIT_SLACK_NS;
use crate::logic::explain::{Step, Trail};
use crate::logic::failover::{Action, CallMachine, Event, Finish};
use crate::logic::fault::{Fault, Outcome, Reason};
use crate::logic::methods::{Family, MethodId};
use crate::logic::routing::{self, Plan};
use crate::logic::snapshot::{EndpointIx, Gateway, GatewayIx, Route};
use crate::logic::units::Nanos;
use crate::logic::verdict::{self, Body, CircuitNote, Response, Verdict};
use crate::net::buffers::HEADROOM;
use crate::net::look_up::{Name, look_up, said};
use crate::net::ring::Watch;
use crate::net::shard::{Current, Shard};
use crate::net::upstream::{self, Ended, Incoming, Place, Request};
use crate::wire::jsonrpc::{BadAnswer, Checked, check};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// What the caller gets.
#[derive(Debug)]
pub enum Answer {
    /// The node's own bytes: a buffer, and where the value of `result` or `error` is in it.
    Node {
        /// The whole response.
        buf: Vec<u8>,
        /// The value.
        value: Range<usize>,
        /// `error`, not `result`.
        is_error: bool,
    },
    /// The node's whole body, outside any envelope.
    Verbatim {
        /// The whole response.
        buf: Vec<u8>,
        /// The body.
        body: Range<usize>,
    },
    /// Ringway's own words.
    Fault {
        /// What is said.
        fault: Fault,
        /// Attempts that were made.
        attempts: u32,
        /// The transaction whose outcome is unknown.
        transaction: Option<Name>,
    },
    /// A notification: nothing.
    Silent,
    /// The caller is gone.
    Abandoned,
}

/// What all Calls of one Exchange have in common.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The shard.
    pub shard: &'a Shard,
    /// The Snapshot with which the Exchange began.
    pub current: &'a Current,
    /// The Gateway that was called.
    pub gateway: GatewayIx,
    /// The caller's `traceparent`.
    pub traceparent: Option<&'a str>,
    /// The first weighted draw, shared by the members of a batch.
    pub first_draw: Option<u64>,
    /// When the Exchange's last byte arrived; in a batch: when the member's turn came.
    pub started_ns: Nanos,
    /// The caller's connection.
    pub caller: &'a Rc<Watch>,
    /// Where the attempts are noted, if the caller asked to be told.
    pub trail: Option<&'a RefCell<Trail>>,
}

/// A response whose body was read and checked.
struct Received {
    incoming: Incoming,
    checked: Checked,
}

/// Takes one Call to its end.
pub async fn call(context: Context<'_>, call: &Call<'_>) -> Answer {
    let Context { shard, current, gateway, started_ns, .. } = context;
    let snapshot = &current.live.snapshot;
    let at = usize::from(gateway.0);
    let gateway = &snapshot.gateways[at];
    let (method, plan) = routing::plan(gateway, snapshot.methods.table(gateway.family), &call.method);
    let (row, answer, ended_ns) = match plan {
        Ok(plan) => {
            let _inflight = match InFlight::enter(shard, current.server().max_inflight) {
                Some(inflight) => inflight,
                None => return refuse(context, gateway, method, call.is_notification(), Fault::Overloaded),
            };
            if let Some(trail) = context.trail {
                trail.borrow_mut().route = Some(plan.route);
            }
            let (answer, ended_ns) = run(context, gateway, plan, call).await;
            (usize::from(plan.route.0), answer, ended_ns)
        }
        Err(fault) => return refuse(context, gateway, method, call.is_notification(), fault),
    };
    let cells = &current.live.counters.routes[at][row][shard.index];
    cells.called(method, outcome(&answer), ended_ns.saturating_sub(started_ns));
    answer
}

/// Counts and answers something that never became a Call.
pub fn invalid(context: Context<'_>, fault: Fault) -> Answer {
    let gateway = &context.current.live.snapshot.gateways[usize::from(context.gateway.0)];
    let other = context.current.live.snapshot.methods.table(gateway.family).other();
    refuse(context, gateway, other, false, fault)
}

fn refuse(context: Context<'_>, gateway: &Gateway, method: MethodId, notification: bool, fault: Fault) -> Answer {
    let rows = &context.current.live.counters.routes[usize::from(context.gateway.0)];
    rows[gateway.routes.len()][context.shard.index].called(method, fault.outcome(), 0);
    if notification { Answer::Silent } else { Answer::Fault { fault, attempts: 0, transaction: None } }
}

/// The loop of attempts.
async fn run(context: Context<'_>, gateway: &Gateway, plan: Plan, call: &Call<'_>) -> (Answer, Nanos) {
    let Context { shard, current, .. } = context;
    let board = &current.live.board;
    let route: &Route = &gateway.routes[usize::from(plan.route.0)];
    let mut machine = CallMachine::new(route, plan.class, call.is_notification(), context.first_draw);
    let mut now_ns = context.started_ns;
    let (mut reply, mut kept) = (None, None);
    let mut name = None;
    let finish = loop {
        match machine.next(route, board, now_ns, &mut || shard.random()) {
            Action::Finish(finish) => break finish,
            // Each attempt is awaited where it is started, so none can be under way here.
            Action::Await => break Finish::Fault(Fault::Overloaded),
            Action::LookUp { endpoint, until_ns } => {
                // The machine asks only for what was named.
                let Some(name) = &name else { break Finish::Fault(Fault::Overloaded) };
                // Boxed: rare, and its state would make each connection's task larger.
                let asked = Box::pin(look_up(context, gateway.family, endpoint, name, until_ns, now_ns)).await;
                now_ns = asked.1;
                machine.feed(Event::LookedUp(asked.0));
            }
            Action::Attempt { endpoint, until_ns, probe } => {
                let permit = match probe.then(|| board.take_permit(endpoint, now_ns, until_ns + PERMIT_SLACK_NS)) {
                    Some(Err(until_ns)) => {
                        machine.feed(Event::Refused { until_ns });
                        continue;
                    }
                    Some(Ok(permit)) => permit,
                    None => None,
                };
                let begun_ns = now_ns;
                let (ended, sent_id) = send(context, endpoint, plan, call, until_ns, now_ns).await;
                now_ns = ended.at_ns;
                if ended.lost_send {
                    machine.feed(Event::LostSend);
                    christen(&mut machine, &mut name, gateway.family, call);
                }
                if context.caller.gone() {
                    machine.feed(Event::CallerGone);
                }
                let (verdict, note, received) = judged(gateway, call, sent_id, ended);
                board.note(endpoint, shard.index, note, permit, now_ns, shard.random());
                count(context, endpoint, verdict, now_ns.saturating_sub(begun_ns));
                if let Some(trail) = context.trail {
                    trail.borrow_mut().push(Step { endpoint, verdict, took_ns: now_ns.saturating_sub(begun_ns) });
                }
                machine.feed(event(gateway.family, machine.in_doubt() && name.is_some(), verdict, received.as_ref()));
                christen(&mut machine, &mut name, gateway.family, call);
                match verdict {
                    Verdict::Final => reply = received,
                    Verdict::Failed(failure) if failure.keep => recycle(shard, std::mem::replace(&mut kept, received)),
                    _ => recycle(shard, received),
                }
            }
        }
    };
    let answer = match finish {
        Finish::Reply => deliver(reply.take()),
        Finish::Kept => deliver(kept.take()),
        Finish::Taken => taken(shard, name.as_ref()),
        Finish::Fault(fault) => {
            let transaction = name.filter(|_| matches!(fault, Fault::OutcomeUnknown { .. }));
            Answer::Fault { fault, attempts: u32::from(machine.attempts()), transaction }
        }
        Finish::Silent => Answer::Silent,
        Finish::Abandoned => Answer::Abandoned,
    };
    recycle(shard, reply);
    recycle(shard, kept);
    (answer, now_ns)
}

/// Finds out what a transaction in doubt is called, once: hashing is only paid for where it is of use.
fn christen(machine: &mut CallMachine, name: &mut Option<Name>, family: Family, call: &Call<'_>) {
    if machine.in_doubt() && name.is_none() {
        *name = Name::of(family, call.params);
        if name.is_some() {
            machine.named();
        }
    }
}

/// What the machine is told about an attempt: its verdict, or what a node's error says about a transaction
/// that may have been taken before.
fn event(family: Family, in_doubt: bool, verdict: Verdict, received: Option<&Received>) -> Event {
    match (verdict, received) {
        (Verdict::Final, Some(Received { incoming, checked: Checked::Error { value, .. } })) if in_doubt => {
            let from = incoming.body.start;
            Event::Spoke(said(family, &incoming.buf[from + value.start..from + value.end]))
        }
        _ => Event::Judged(verdict),
    }
}

/// The success that an earlier attempt earned: the transaction's name as the result.
fn taken(shard: &Shard, name: Option<&Name>) -> Answer {
    let mut buf = shard.buffers.take(2 * HEADROOM);
    buf.resize(HEADROOM, 0);
    buf.push(b'"');
    buf.extend_from_slice(name.map_or("", Name::text).as_bytes());
    buf.push(b'"');
    let value = HEADROOM..buf.len();
    Answer::Node { buf, value, is_error: false }
}

async fn send(
    context: Context<'_>,
    endpoint: EndpointIx,
    plan: Plan,
    call: &Call<'_>,
    until_ns: Nanos,
    now_ns: Nanos,
) -> (Ended, u64) {
    let sent_id = call.upstream_id(context.shard.next_id());
    let request = Request {
        id: (!call.is_notification()).then_some(sent_id),
        method: &call.method,
        params: call.params,
        traceparent: context.traceparent,
        replayable: plan.class.replayable() && !call.is_notification(),
        caller: plan.class.ends_with_caller().then_some(context.caller),
    };
    (upstream::attempt(place(context, endpoint), request, until_ns, now_ns).await, sent_id)
}

/// Everything about an Endpoint that an attempt needs.
pub fn place(context: Context<'_>, endpoint: EndpointIx) -> Place<'_> {
    let Context { shard, current, .. } = context;
    let at = usize::from(endpoint.0);
    Place {
        endpoint: &current.live.snapshot.endpoints[at],
        addresses: &current.live.addresses[at],
        upstream: &current.upstreams[at],
        cells: shard.endpoint_cells(&current.live, at),
        buffers: &shard.buffers,
        response_max: current.server().max_response_bytes,
    }
}

/// Checks and judges what came back.
fn judged(gateway: &Gateway, call: &Call<'_>, sent_id: u64, ended: Ended) -> (Verdict, CircuitNote, Option<Received>) {
    let incoming = match ended.result {
        Ok(incoming) => incoming,
        Err(broke) => {
            let (verdict, note) = verdict::judge_broken(broke);
            return (verdict, note, None);
        }
    };
    let response = |body| Response { status: incoming.status, retry_after_ns: incoming.retry_after_ns, body };
    if call.is_notification() {
        let (verdict, note) = verdict::judge_notification(&response(Body::Invalid));
        let ignored = Received { incoming, checked: Checked::Bad(BadAnswer::NoId) };
        return (verdict, note, Some(ignored));
    }
    let checked = check(&incoming.buf[incoming.body.clone()], sent_id);
    let body = match &checked {
        Checked::Result(_) => Body::Result,
        Checked::Error { code, .. } => Body::Error(*code),
        Checked::NodeBusy => Body::NodeBusy,
        Checked::Bad(_) => Body::Invalid,
    };
    let (verdict, note) = verdict::judge(gateway.family, &response(body));
    (verdict, note, Some(Received { incoming, checked }))
}

fn count(context: Context<'_>, endpoint: EndpointIx, verdict: Verdict, took_ns: Nanos) {
    let cells = context.shard.endpoint_cells(&context.current.live, usize::from(endpoint.0));
    match verdict {
        Verdict::Final => cells.answered(took_ns),
        Verdict::TooLarge => cells.failed(Reason::ResponseTooLarge, took_ns),
        Verdict::Failed(failure) => cells.failed(failure.reason, took_ns),
    }
}

fn deliver(received: Option<Received>) -> Answer {
    // The machine asks for a reply only after a verdict that kept one.
    let Some(Received { incoming, checked }) = received else {
        let fault = Fault::OutcomeUnknown { reason: Reason::InvalidResponse };
        return Answer::Fault { fault, attempts: 1, transaction: None };
    };
    let (buf, from) = (incoming.buf, incoming.body.start);
    match checked {
        Checked::Result(value) => Answer::Node { buf, value: from + value.start..from + value.end, is_error: false },
        Checked::Error { value, .. } => {
            Answer::Node { buf, value: from + value.start..from + value.end, is_error: true }
        }
        Checked::NodeBusy | Checked::Bad(_) => Answer::Verbatim { buf, body: incoming.body },
    }
}

fn recycle(shard: &Shard, received: Option<Received>) {
    if let Some(received) = received {
        shard.buffers.give(received.incoming.buf);
    }
}

fn outcome(answer: &Answer) -> Outcome {
    match answer {
        Answer::Node { is_error: false, .. } => Outcome::Ok,
        Answer::Node { is_error: true, .. } | Answer::Verbatim { .. } => Outcome::NodeError,
        Answer::Fault { fault, .. } => fault.outcome(),
        Answer::Silent => Outcome::Notification,
        Answer::Abandoned => Outcome::Abandoned,
    }
}

/// A Call in flight, as `max_inflight` counts it.
struct InFlight<'s>(&'s Shard);

impl<'s> InFlight<'s> {
    fn enter(shard: &'s Shard, limit: usize) -> Option<InFlight<'s>> {
        let inflight = shard.inflight.get();
        (inflight < limit).then(|| {
            shard.inflight.set(inflight + 1);
            InFlight(shard)
        })
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.inflight.set(self.0.inflight.get() - 1);
    }
}
