//! `POST /v1/explain`: the decision for a Call, without sending it.
//!
//! What is told comes from the functions that decide for a Call that is sent, over the same world; here it is only
//! read from JSON and written to it. Keys, rate limits and what a shard has in flight are not looked at.

use crate::logic::call::{Call, Id};
use crate::logic::capability::{Capable, namespace};
use crate::logic::chain::Standing;
use crate::logic::decision::{Part, Why, decide};
use crate::logic::facts::{Client, Clients};
use crate::logic::fault::Fault;
use crate::logic::methods::Family;
use crate::logic::routing::{self, Plan};
use crate::logic::snapshot::{EndpointIx, Gateway, Protocol, Route, Strategy};
use crate::logic::tiers::Requirement;
use crate::logic::tron_http::{Verb, admit};
use crate::logic::units::Nanos;
use crate::ops::admin::Page;
use crate::ops::admin_circuits;
use crate::shared::outlook::Outlook;
use crate::shared::snapshot_cell::Live;
use crate::wire::block_args::asked;
use crate::wire::jsonrpc::{Message, parse};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// What is right, wherever something is wrong.
fn right(gateway: &Gateway) -> String {
    let call = match (gateway.protocol, gateway.family) {
        (Protocol::TronHttp, _) => r#"{"path": "/wallet/getnowblock", "method": "POST"}"#,
        (Protocol::JsonRpc, Family::Solana) => r#"{"method": "getSlot", "params": []}"#,
        (Protocol::JsonRpc, Family::Evm | Family::Tron) => {
            r#"{"method": "eth_getBlockByNumber", "params": ["latest", false]}"#
        }
    };
    format!(r#"send {{"gateway": "{}", "call": {call}}}"#, gateway.id)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish<'a> {
    gateway: String,
    #[serde(borrow)]
    call: &'a RawValue,
}

/// A request of TRON's HTTP API. Query and body go up unchanged and decide nothing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApiWish {
    path: String,
    method: Option<String>,
    #[serde(rename = "query")]
    _query: Option<String>,
    #[serde(rename = "body")]
    _body: Option<serde::de::IgnoredAny>,
}

#[derive(Serialize)]
struct Told<'a> {
    gateway: &'a str,
    route: Option<&'a str>,
    strategy: Option<&'static str>,
    class: &'static str,
    requirement: Needs<'a>,
    endpoint_free: bool,
    max_attempts: Option<u8>,
    targets: Vec<Target<'a>>,
    refused: Option<Refused>,
}

#[derive(Serialize)]
struct Needs<'a> {
    tier: Option<&'static str>,
    capability: Option<&'a str>,
    height: Option<u64>,
}

#[derive(Serialize)]
struct Target<'a> {
    endpoint: &'a str,
    kept: bool,
    reason: Option<&'static str>,
    order: Option<u32>,
    probability: f64,
    circuit: &'static str,
    tip: Option<u64>,
    lag: Option<u64>,
    /// `false` of one that is left out for its capability, and would have it if its client turns out to be another
    /// one than unknown; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    client_known: Option<bool>,
}

/// What the caller would be told at once.
#[derive(Serialize)]
struct Refused {
    code: i32,
    reason: Option<&'static str>,
    message: &'static str,
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Refused {
        Refused { code: fault.code(), reason: fault.reason(), message: fault.message() }
    }
}

/// The decision for the Call in the body.
pub(super) fn page(body: &[u8], live: &Live, now_ns: Nanos) -> Page {
    match explained(body, live, now_ns) {
        Ok(page) | Err(page) => page,
    }
}

fn explained(body: &[u8], live: &Live, now_ns: Nanos) -> Result<Page, Page> {
    let first = || live.snapshot.gateways.first().map(right).unwrap_or_default();
    if body.trim_ascii_start().is_empty() {
        return Err(wrong(&format!("the body is empty: {}", first())));
    }
    // A list of values in the order of the members would be taken too.
    let is_object = body.trim_ascii_start().starts_with(b"{");
    let wish: Wish<'_> = serde_json::from_slice(if is_object { body } else { b"{}" })
        .map_err(|error| wrong(&format!("{error}: {}", first())))?;
    let gateway = live.snapshot.gateways.iter().find(|gateway| *gateway.id == *wish.gateway);
    let gateway = gateway.ok_or_else(|| unknown(live))?;
    let call = wish.call.get().as_bytes();
    match gateway.protocol {
        Protocol::JsonRpc => match parse(call, 1) {
            Ok(Message::Single(Ok(call))) => Ok(told(live, gateway, &call, Ok(()), now_ns)),
            Ok(Message::Single(Err(refused))) => {
                Err(wrong(&format!("call: {}: {}", refused.why.words(), right(gateway))))
            }
            Ok(Message::Batch(_)) => Err(wrong("members of a batch are decided one by one: send one of them")),
            Err(fault) => {
                let why = fault.reason().unwrap_or(fault.message());
                Err(wrong(&format!("call: {why}: {}", right(gateway))))
            }
        },
        Protocol::TronHttp => {
            let is_object = call.starts_with(b"{");
            let wish: ApiWish = serde_json::from_slice(if is_object { call } else { b"{}" }).map_err(|error| {
                wrong(&format!("this Gateway speaks TRON's HTTP API: call: {error}: {}", right(gateway)))
            })?;
            let (path, admitted) = api_call(live, gateway, &wish)?;
            let call = Call { id: Id::Present(b"1"), method: path.into(), params: None };
            Ok(told(live, gateway, &call, admitted, now_ns))
        }
    }
}

/// The path of a request of TRON's HTTP API, and whether the API has it.
fn api_call<'w>(live: &Live, gateway: &Gateway, wish: &'w ApiWish) -> Result<(&'w str, Result<(), Fault>), Page> {
    let table = gateway.table(&live.snapshot.methods);
    let admitted = |verb| admit(table, &wish.path, Some(verb)).map(|_| ()).map_err(Fault::Http);
    let admitted = match wish.method.as_deref() {
        Some("GET") => admitted(Verb::Get),
        Some("POST") => admitted(Verb::Post),
        Some(_) => return Err(wrong("`method` is \"GET\" or \"POST\"; left out, it is one that the path has")),
        None => admitted(Verb::Post).or_else(|_| admitted(Verb::Get)),
    };
    Ok((&wish.path, admitted))
}

fn wrong(message: &str) -> Page {
    Page::error(400, "invalid_body", message)
}

fn unknown(live: &Live) -> Page {
    let known: Vec<&str> = live.snapshot.gateways.iter().map(|gateway| &*gateway.id).collect();
    Page::error(404, "not_found", &format!("no Gateway has this id; known here: {}", known.join(", ")))
}

/// What is decided about a Call. `admitted`: what is said of it before it is one.
fn told(live: &Live, gateway: &Gateway, call: &Call<'_>, admitted: Result<(), Fault>, now_ns: Nanos) -> Page {
    let table = gateway.table(&live.snapshot.methods);
    let (method, plan) = routing::plan(gateway, table, &call.method);
    let plan = admitted.and(plan);
    let row = table.get(method);
    let capability = row.map_or_else(|| namespace(&call.method), |row| &row.capability);
    let mut told = Told {
        gateway: &gateway.id,
        route: None,
        strategy: None,
        class: table.class(method).word(),
        requirement: Needs { tier: None, capability: Some(capability).filter(|word| !word.is_empty()), height: None },
        endpoint_free: false,
        max_attempts: None,
        targets: Vec::new(),
        refused: None,
    };
    match plan {
        Ok(plan) => routed(&mut told, live, gateway, plan, call, now_ns),
        Err(fault) => told.refused = Some(fault.into()),
    }
    Page::of(200, &told)
}

/// What its Route decides.
fn routed<'a>(told: &mut Told<'a>, live: &'a Live, gateway: &'a Gateway, plan: Plan, call: &Call<'_>, now_ns: Nanos) {
    let route = &gateway.routes[usize::from(plan.route.0)];
    let outlook = Outlook::new(live, gateway, plan.method, &call.method);
    let need = match route.strategy {
        Strategy::Tiered => outlook.requirement(route, asked(outlook.reads(), call.params)),
        Strategy::Priority | Strategy::Weighted => Requirement::default(),
    };
    let decision = decide((gateway, route), &live.snapshot.endpoints, plan.class, need, &outlook, now_ns);
    told.route = Some(&route.id);
    told.strategy = Some(route.strategy.word());
    told.max_attempts = Some(route.max_attempts);
    told.requirement.tier = decision.tier.map(|tier| tier.word());
    told.requirement.height = Some(need.height).filter(|height| *height > 0);
    told.refused = decision.refused.map(Refused::from);
    let clients = outlook.row().map_or(Clients::default(), |row| row.clients);
    let may_have = |at: EndpointIx| {
        let serves = |of: &Capable, client| of.serves(plan.method, clients, &call.method, client);
        let capable = live.snapshot.capable.get(usize::from(at.0));
        capable.is_some_and(|capable| Client::ALL.into_iter().any(|client| serves(capable, client)))
    };
    let targets = (0..).zip(&decision.parts);
    let targets = targets.filter_map(|(at, part)| target(live, route, at, part, &may_have, now_ns));
    told.targets = targets.collect();
}

/// What is told of one target; `may_have`: whether there is a client with which it would have the method.
fn target<'a>(
    live: &'a Live,
    route: &Route,
    at: usize,
    part: &Part,
    may_have: &dyn Fn(EndpointIx) -> bool,
    now_ns: Nanos,
) -> Option<Target<'a>> {
    let at = route.targets.get(at)?.endpoint;
    let tips = live.tips.endpoint(at).map(|tips| (tips.told(now_ns), tips.lag()));
    let unheard = tips.is_some_and(|(told, _)| !told.identified) && part.why == Some(Why::Capability);
    let tips = tips.filter(|(told, _)| told.standing != Standing::Unknown);
    let reason = part.why.map(|why| match why {
        Why::Rejected => live.board.rejected_by(at, now_ns).unwrap_or(why.word()),
        why => why.word(),
    });
    Some(Target {
        endpoint: &live.snapshot.endpoints.get(usize::from(at.0))?.id,
        kept: part.order.is_some(),
        reason,
        order: part.order,
        probability: part.probability,
        circuit: admin_circuits::word(live.board.state(at), now_ns),
        tip: tips.map(|(told, _)| told.tip),
        lag: tips.map(|(_, lag)| lag),
        client_known: (unheard && part.order.is_none() && may_have(at)).then_some(false),
    })
}
