//! One Call from its plan to its answer: the one function that calls all the others and decides nothing.

use crate::logic::call::Call;
use crate::logic::circuit::PERMIT_SLACK_NS;
use crate::logic::explain::{Step, Trail};
use crate::logic::failover::{Action, CallMachine, Event, Finish, Put};
use crate::logic::fault::{Fault, Outcome, Reason};
use crate::logic::methods::{Family, MethodId};
use crate::logic::routing::{self, Plan};
use crate::logic::snapshot::{Endpoint, EndpointIx, Gateway, GatewayIx, Route};
use crate::logic::tiers::Cause;
use crate::logic::tron_http::{ApiCall, may_be_empty};
use crate::logic::units::Nanos;
use crate::logic::verdict::{self, Body, CircuitNote, Response, Verdict};
use crate::net::buffers::HEADROOM;
use crate::net::look_up::{Name, look_up, said};
use crate::net::ring::Watch;
use crate::net::shard::{Current, Shard};
use crate::net::tab::Tab;
use crate::net::tiered::{self, Tiered};
use crate::net::upstream::{self, Ended, Incoming, Message, Place, Request};
use crate::shared::outlook::Outlook;
use crate::wire::jsonrpc::{BadAnswer, Checked, check};
use crate::wire::tron_http;
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
    /// The node's whole body: TRON's HTTP API, and what a node says outside any envelope.
    Verbatim {
        /// The whole response.
        buf: Vec<u8>,
        /// The body.
        body: Range<usize>,
        /// The HTTP status.
        status: u16,
        /// The body is JSON, or there is none.
        is_json: bool,
        /// The node says no.
        is_error: bool,
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

impl Answer {
    /// Bytes of it that a node sent.
    pub fn bytes(&self) -> usize {
        match self {
            Answer::Node { value, .. } => value.len(),
            Answer::Verbatim { body, .. } => body.len(),
            Answer::Fault { .. } | Answer::Silent | Answer::Abandoned => 0,
        }
    }

    /// The buffer that a node's answer came in.
    pub fn into_buf(self) -> Option<Vec<u8>> {
        match self {
            Answer::Node { buf, .. } | Answer::Verbatim { buf, .. } => Some(buf),
            Answer::Fault { .. } | Answer::Silent | Answer::Abandoned => None,
        }
    }
}

/// What the caller wants of a node.
#[derive(Clone, Copy)]
pub enum Ask<'a> {
    /// A Call of JSON-RPC.
    JsonRpc(&'a Call<'a>),
    /// A request of TRON's HTTP API.
    TronHttp(&'a ApiCall<'a>),
}

impl<'a> Ask<'a> {
    /// The name in the method table.
    fn method(self) -> &'a str {
        match self {
            Ask::JsonRpc(call) => &call.method,
            Ask::TronHttp(call) => call.path,
        }
    }

    fn is_notification(self) -> bool {
        matches!(self, Ask::JsonRpc(call) if call.is_notification())
    }
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
    /// What the Exchange holds of the memory for large bodies.
    pub tab: &'a Tab,
    /// Where the attempts are noted, if the caller asked to be told.
    pub trail: Option<&'a RefCell<Trail>>,
}

/// A response whose body was read and checked.
struct Received {
    incoming: Incoming,
    finding: Finding,
}

/// What the check of a body found.
enum Finding {
    JsonRpc(Checked),
    TronHttp(tron_http::Checked),
}

/// Takes one Call to its end.
pub async fn call(context: Context<'_>, ask: Ask<'_>) -> Answer {
    let Context { shard, current, gateway, started_ns, .. } = context;
    let snapshot = &current.live.snapshot;
    let at = usize::from(gateway.0);
    let gateway = &snapshot.gateways[at];
    let table = gateway.table(&snapshot.methods);
    let (method, plan) = routing::plan(gateway, table, ask.method());
    if method == table.other() {
        current.live.counters.unlisted[shard.index].note(ask.method());
    }
    let (row, answer, ended_ns) = match plan {
        Ok(plan) => {
            let _inflight = match InFlight::enter(shard, current.server().max_inflight) {
                Some(inflight) => inflight,
                None => return refuse(context, gateway, method, ask.is_notification(), Fault::Overloaded),
            };
            if let Some(trail) = context.trail {
                trail.borrow_mut().route = Some(plan.route);
            }
            let (answer, ended_ns) = run(&context, gateway, plan, ask).await;
            (usize::from(plan.route.0), answer, ended_ns)
        }
        Err(fault) => return refuse(context, gateway, method, ask.is_notification(), fault),
    };
    let cells = &current.live.counters.routes[at][row][shard.index];
    cells.called(method, outcome(&answer), ended_ns.saturating_sub(started_ns));
    answer
}

/// Counts and answers something that never became a Call.
pub fn invalid(context: Context<'_>, fault: Fault) -> Answer {
    let gateway = &context.current.live.snapshot.gateways[usize::from(context.gateway.0)];
    let other = gateway.table(&context.current.live.snapshot.methods).other();
    refuse(context, gateway, other, false, fault)
}

/// Counts and answers a Call that is not let in.
pub fn turned_away(context: Context<'_>, ask: Ask<'_>, fault: Fault) -> Answer {
    let snapshot = &context.current.live.snapshot;
    let gateway = &snapshot.gateways[usize::from(context.gateway.0)];
    let table = gateway.table(&snapshot.methods);
    let method = table.find(ask.method());
    if method == table.other() {
        context.current.live.counters.unlisted[context.shard.index].note(ask.method());
    }
    refuse(context, gateway, method, ask.is_notification(), fault)
}

fn refuse(context: Context<'_>, gateway: &Gateway, method: MethodId, notification: bool, fault: Fault) -> Answer {
    let rows = &context.current.live.counters.routes[usize::from(context.gateway.0)];
    rows[gateway.routes.len()][context.shard.index].called(method, fault.outcome(), 0);
    if notification { Answer::Silent } else { Answer::Fault { fault, attempts: 0, transaction: None } }
}

/// The loop of attempts.
async fn run(context: &Context<'_>, gateway: &Gateway, plan: Plan, ask: Ask<'_>) -> (Answer, Nanos) {
    let (shard, live) = (context.shard, &context.current.live);
    let board = &live.board;
    let route: &Route = &gateway.routes[usize::from(plan.route.0)];
    let outlook = Outlook::new(live, gateway, plan.method, ask.method());
    let mut machine = CallMachine::new(route, plan.class, ask.is_notification(), context.first_draw);
    let tiered = Tiered::new(&outlook, route, plan.class, ask);
    if let Some(tiered) = &tiered {
        machine.needs(tiered.need());
    }
    let mut now_ns = context.started_ns;
    let mut held = Held::default();
    let finish = loop {
        match machine.next(route, &outlook, now_ns, &mut || shard.random()) {
            Action::Finish(finish) => break finish,
            // Each attempt is awaited where it is started, so none can be under way here.
            Action::Await => break Finish::Fault(Fault::Overloaded),
            Action::LookUp { endpoint, until_ns } => {
                // The machine asks only for what was named.
                let Some(name) = &held.name else { break Finish::Fault(Fault::Overloaded) };
                // Boxed: rare, and its state would make each connection's task larger.
                let asked = Box::pin(look_up(*context, gateway, endpoint, name, until_ns, now_ns)).await;
                now_ns = asked.1;
                machine.feed(Event::LookedUp(asked.0));
            }
            Action::AskAgain { endpoint, until_ns } => {
                // Boxed: as above.
                now_ns = Box::pin(tiered::ask_again(*context, route, endpoint, until_ns)).await;
                held.asked_again(*context, &mut machine, tiered.as_ref());
            }
            Action::Attempt { endpoint, until_ns, probe } => {
                let permit = match board.begin(endpoint, probe, now_ns, until_ns + PERMIT_SLACK_NS) {
                    Ok(permit) => permit,
                    Err(until_ns) => {
                        machine.feed(Event::Refused { until_ns });
                        continue;
                    }
                };
                let begun_ns = now_ns;
                let ended = send(context, endpoint, plan, ask, until_ns, now_ns).await;
                now_ns = ended.at_ns;
                if ended.lost_send {
                    machine.feed(Event::LostSend);
                    held.christen(&mut machine, gateway.family, ask);
                }
                if context.caller.gone() {
                    machine.feed(Event::CallerGone);
                }
                let (verdict, note, received) = judged(*context, gateway, plan, (endpoint, ask), ended);
                if received.is_some() {
                    board.answered(endpoint, shard.index, now_ns);
                }
                board.note(endpoint, shard.index, note, permit, now_ns, shard.random());
                let objection = tiered.as_ref().and_then(|tiered| objection(tiered, endpoint, verdict, &received));
                let plain = || held.event(&machine, gateway.family, verdict, &received);
                let event = objection.unwrap_or_else(plain);
                machine.feed(event);
                held.christen(&mut machine, gateway.family, ask);
                let objection = event.objection().filter(|_| !machine.delivers());
                count(*context, endpoint, verdict, objection, now_ns.saturating_sub(begun_ns));
                held.put(*context, machine.put(), received);
            }
        }
    };
    if tiered.is_some() {
        let rows = &live.counters.routes[usize::from(context.gateway.0)];
        tiered::count(&rows[usize::from(plan.route.0)][shard.index], plan, &machine, finish);
    }
    (held.told(*context, ask, finish, machine.attempts()), now_ns)
}

/// What a Call holds between its attempts.
#[derive(Default)]
struct Held {
    /// The answer, as far as is known.
    reply: Option<Received>,
    /// The one that goes out if none better comes.
    kept: Option<Received>,
    /// What its transaction is called, once that is of use.
    name: Option<Name>,
}

impl Held {
    /// Puts an answer where the machine wants it.
    fn put(&mut self, context: Context<'_>, put: Put, received: Option<Received>) {
        let shard = context.shard;
        if let Some(trail) = context.trail {
            trail.borrow_mut().put(put);
        }
        match put {
            Put::Reply => self.reply = received,
            Put::Kept => recycle(shard, std::mem::replace(&mut self.kept, received)),
            Put::Away => recycle(shard, received),
        }
    }

    /// Tells the machine whether the chain, polled again, agrees with the answer.
    fn asked_again(&mut self, context: Context<'_>, machine: &mut CallMachine, tiered: Option<&Tiered<'_>>) {
        let agrees = !tiered.is_some_and(|tiered| contradicts(tiered, &self.reply));
        machine.feed(Event::Agrees(agrees));
        if !agrees {
            let reply = self.reply.take();
            self.put(context, machine.put(), reply);
        }
    }

    /// Finds out what a transaction in doubt is called, once: hashing is only paid for where it is of use.
    fn christen(&mut self, machine: &mut CallMachine, family: Family, ask: Ask<'_>) {
        if machine.in_doubt() && self.name.is_none() {
            self.name = match ask {
                Ask::JsonRpc(call) => Name::of(family, call.params),
                Ask::TronHttp(call) => Name::of_broadcast(call),
            };
            if self.name.is_some() {
                machine.named();
            }
        }
    }

    /// What the machine is told about an attempt: its verdict, or what a node's error says about a transaction
    /// that may have been taken before.
    fn event(&self, machine: &CallMachine, family: Family, verdict: Verdict, received: &Option<Received>) -> Event {
        let doubted = self.name.as_ref().filter(|_| machine.in_doubt());
        let (Verdict::Final, Some(name), Some(Received { incoming, finding })) = (verdict, doubted, received) else {
            return Event::Judged(verdict);
        };
        let body = &incoming.buf[incoming.body.clone()];
        let said = match finding {
            Finding::JsonRpc(Checked::Error { value, .. }) => Some(said(family, &body[value.clone()])),
            Finding::JsonRpc(_) => None,
            Finding::TronHttp(_) => tron_http::said(body, name.text()),
        };
        said.map_or(Event::Judged(verdict), Event::Spoke)
    }

    /// What the caller gets.
    fn told(mut self, context: Context<'_>, ask: Ask<'_>, finish: Finish, attempts: u8) -> Answer {
        let shard = context.shard;
        if let Some(trail) = context.trail {
            trail.borrow_mut().ended(finish);
        }
        let answer = match finish {
            Finish::Reply => deliver(self.reply.take()),
            Finish::Kept => deliver(self.kept.take()),
            Finish::Taken => taken(shard, ask, self.name.as_ref()),
            Finish::Fault(fault) => {
                let transaction = self.name.filter(|_| matches!(fault, Fault::OutcomeUnknown { .. }));
                Answer::Fault { fault, attempts: u32::from(attempts), transaction }
            }
            Finish::Silent => Answer::Silent,
            Finish::Abandoned => Answer::Abandoned,
        };
        recycle(shard, self.reply);
        recycle(shard, self.kept);
        answer
    }
}

/// What a tiered Route has against an answer of this Endpoint.
fn objection(tiered: &Tiered<'_>, at: EndpointIx, verdict: Verdict, received: &Option<Received>) -> Option<Event> {
    let Some(Received { incoming, finding: Finding::JsonRpc(checked) }) = received else { return None };
    tiered.objection(at, verdict, &incoming.buf[incoming.body.clone()], checked)
}

/// Whether an answer that is held still contradicts the chain.
fn contradicts(tiered: &Tiered<'_>, held: &Option<Received>) -> bool {
    let Some(Received { incoming, finding: Finding::JsonRpc(Checked::Result(value)) }) = held else { return false };
    tiered.contradicts(&incoming.buf[incoming.body.clone()][value.clone()])
}

/// The success that an earlier attempt earned: the transaction's name as the result.
fn taken(shard: &Shard, ask: Ask<'_>, name: Option<&Name>) -> Answer {
    let name = name.map_or("", Name::text);
    let mut buf = shard.buffers.take(2 * HEADROOM);
    buf.resize(HEADROOM, 0);
    match ask {
        Ask::JsonRpc(_) => {
            buf.push(b'"');
            buf.extend_from_slice(name.as_bytes());
            buf.push(b'"');
            let value = HEADROOM..buf.len();
            Answer::Node { buf, value, is_error: false }
        }
        Ask::TronHttp(_) => {
            tron_http::write_taken(&mut buf, name);
            let body = HEADROOM..buf.len();
            Answer::Verbatim { buf, body, status: 200, is_json: true, is_error: false }
        }
    }
}

async fn send(
    context: &Context<'_>,
    endpoint: EndpointIx,
    plan: Plan,
    ask: Ask<'_>,
    until_ns: Nanos,
    now_ns: Nanos,
) -> Ended {
    let message = match ask {
        Ask::JsonRpc(call) => {
            let id = (!call.is_notification()).then(|| call.upstream_id(context.shard.next_id()));
            Message::JsonRpc { id, method: &call.method, params: call.params }
        }
        Ask::TronHttp(call) => Message::TronHttp(call),
    };
    let request = Request {
        message,
        traceparent: context.traceparent,
        replayable: plan.class.replayable() && !ask.is_notification(),
        caller: plan.class.ends_with_caller().then_some(context.caller),
    };
    let place = place(context.shard, context.current, context.tab, endpoint);
    upstream::attempt(place, request, until_ns, now_ns).await
}

/// Everything about an Endpoint that an attempt needs.
pub fn place<'a>(shard: &'a Shard, current: &'a Current, tab: &'a Tab, endpoint: EndpointIx) -> Place<'a> {
    let at = usize::from(endpoint.0);
    Place {
        endpoint: &current.live.snapshot.endpoints[at],
        shard: shard.index,
        upstream: &current.upstreams[at],
        cells: shard.endpoint_cells(&current.live, at),
        buffers: &shard.buffers,
        response_max: current.server().max_response_bytes,
        tab,
    }
}

/// Checks and judges what came back.
fn judged(
    context: Context<'_>,
    gateway: &Gateway,
    plan: Plan,
    (endpoint, ask): (EndpointIx, Ask<'_>),
    ended: Ended,
) -> (Verdict, CircuitNote, Option<Received>) {
    let incoming = match ended.result {
        Ok(incoming) => incoming,
        Err(broke) => {
            let (verdict, note) = match ended.left_after_ns {
                Some(waited_ns) => (verdict::judge_broken(broke).0, verdict::judge_abandoned(waited_ns)),
                None => verdict::judge_broken(broke),
            };
            return (verdict, note, None);
        }
    };
    let response = |body| Response { status: incoming.status, retry_after_ns: incoming.retry_after_ns, body };
    if ask.is_notification() {
        let (verdict, note) = verdict::judge_notification(&response(Body::Invalid));
        let ignored = Received { incoming, finding: Finding::JsonRpc(Checked::Bad(BadAnswer::NoId)) };
        return (verdict, note, Some(ignored));
    }
    let bytes = &incoming.buf[incoming.body.clone()];
    let (verdict, note, finding) = match ask {
        Ask::JsonRpc(_) => {
            let checked = check(bytes, incoming.sent_id);
            if matches!(checked, Checked::Bad(BadAnswer::WrongId)) {
                context.current.upstreams[usize::from(endpoint.0)].pool.speaks_unasked();
            }
            let body = match &checked {
                Checked::Result(_) => Body::Result,
                Checked::Error { code, .. } => Body::Error(*code),
                Checked::NodeBusy => Body::NodeBusy,
                Checked::Bad(_) if !incoming.readable => Body::Unreadable,
                Checked::Bad(_) => Body::Invalid,
            };
            let (verdict, note) = verdict::judge(gateway.family, &response(body));
            (verdict, note, Finding::JsonRpc(checked))
        }
        Ask::TronHttp(call) => {
            let checked = tron_http::check(bytes);
            let table = gateway.table(&context.current.live.snapshot.methods);
            let body = match checked {
                _ if !incoming.readable => Body::Unreadable,
                tron_http::Checked::Answer | tron_http::Checked::Refusal => Body::Result,
                tron_http::Checked::Empty if may_be_empty(table, plan.method, call.verb) => Body::Result,
                tron_http::Checked::NodeBusy => Body::NodeBusy,
                tron_http::Checked::Empty | tron_http::Checked::Bad => Body::Invalid,
            };
            // A page that says which URL was not understood would say it to the caller.
            let (verdict, note) = match incoming.status {
                400 | 405 if tells_of(&context.current.live.snapshot.endpoints[usize::from(endpoint.0)], bytes) => {
                    verdict::judge(gateway.family, &response(Body::Invalid))
                }
                _ => verdict::judge_tron_http(&response(body)),
            };
            (verdict, note, Finding::TronHttp(checked))
        }
    };
    (verdict, note, Some(Received { incoming, finding }))
}

/// Whether a body repeats what only the Endpoint may see.
fn tells_of(endpoint: &Endpoint, body: &[u8]) -> bool {
    endpoint.keys().any(|key| memchr::memmem::find(body, key.as_bytes()).is_some())
}

/// Counts an attempt, for people and for the caller that wants to know.
fn count(context: Context<'_>, endpoint: EndpointIx, verdict: Verdict, objection: Option<Cause>, took_ns: Nanos) {
    let cells = context.shard.endpoint_cells(&context.current.live, usize::from(endpoint.0));
    match verdict {
        Verdict::Final => cells.answered(took_ns),
        Verdict::TooLarge => cells.failed(Reason::ResponseTooLarge, took_ns),
        Verdict::NoRoom => cells.failed(Reason::NoRoom, took_ns),
        Verdict::Failed(failure) => cells.failed(failure.reason, took_ns),
    }
    if let Some(cause) = objection {
        cells.objected(cause);
    }
    if let Some(trail) = context.trail {
        trail.borrow_mut().push(Step { endpoint, verdict, objection, took_ns });
    }
}

fn deliver(received: Option<Received>) -> Answer {
    // The machine asks for a reply only after a verdict that kept one.
    let Some(Received { incoming, finding }) = received else {
        let fault = Fault::OutcomeUnknown { reason: Reason::InvalidResponse };
        return Answer::Fault { fault, attempts: 1, transaction: None };
    };
    let Incoming { status, buf, body, .. } = incoming;
    let from = body.start;
    let checked = match finding {
        Finding::JsonRpc(checked) => checked,
        Finding::TronHttp(checked) => {
            let is_json = checked != tron_http::Checked::Bad;
            let is_error =
                status >= 300 || matches!(checked, tron_http::Checked::Refusal | tron_http::Checked::NodeBusy);
            return Answer::Verbatim { buf, body, status, is_json, is_error };
        }
    };
    match checked {
        Checked::Result(value) => Answer::Node { buf, value: from + value.start..from + value.end, is_error: false },
        Checked::Error { value, .. } => {
            Answer::Node { buf, value: from + value.start..from + value.end, is_error: true }
        }
        Checked::NodeBusy | Checked::Bad(_) => {
            Answer::Verbatim { buf, body, status: 200, is_json: true, is_error: true }
        }
    }
}

fn recycle(shard: &Shard, received: Option<Received>) {
    if let Some(received) = received {
        shard.buffers.give(received.incoming.buf);
    }
}

fn outcome(answer: &Answer) -> Outcome {
    match answer {
        Answer::Node { is_error: false, .. } | Answer::Verbatim { is_error: false, .. } => Outcome::Ok,
        Answer::Node { is_error: true, .. } | Answer::Verbatim { is_error: true, .. } => Outcome::NodeError,
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
