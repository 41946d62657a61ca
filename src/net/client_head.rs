//! What a request head asks for, and what of it is remembered while its body is read into the same buffer.

use crate::logic::cors::Cors;
use crate::logic::fault::HttpFault;
use crate::logic::forwarded;
use crate::logic::snapshot::{GatewayIx, Protocol, Server};
use crate::net::client_tron::{self, Places};
use crate::net::coded::CODED;
use crate::net::shard::Current;
use crate::wire::coding::accepts_gzip;
use crate::wire::http1::{Coding, HeadLimits};
use crate::wire::http1_glimpse::glimpse;
use crate::wire::http1_request::{ContentType, Framing, RequestHead, Verb};
use crate::wire::http1_write::AnswerCoding;
use std::net::IpAddr;

/// A refused request's body is still read if it is no longer than this: its connection can then go on.
const DRAINED_BODY_MAX: u64 = 64 << 10;
/// What a request wants, known from its head.
#[derive(Clone, Copy)]
pub enum Want {
    /// JSON-RPC.
    Call(GatewayIx),
    /// TRON's HTTP API.
    Api(GatewayIx),
    /// A page asks what it may send.
    Preflight(GatewayIx),
    /// `/healthz`.
    Health,
    /// Nothing that is there, told in the form of this protocol.
    Nothing(HttpFault, Protocol),
}

impl Want {
    /// In whose form errors are told.
    pub fn protocol(self) -> Protocol {
        match self {
            Want::Api(_) => Protocol::TronHttp,
            Want::Nothing(_, protocol) => protocol,
            Want::Call(_) | Want::Preflight(_) | Want::Health => Protocol::JsonRpc,
        }
    }
}

/// What is remembered of a head while its body is read into the same buffer.
pub struct Heard {
    /// What is wanted.
    pub want: Want,
    /// What ends the body.
    pub framing: Framing,
    /// Bytes of the head.
    pub head_len: usize,
    /// The client wants to go on.
    pub keep_alive: bool,
    /// HTTP/1.1, not 1.0.
    pub http11: bool,
    /// HEAD: the answer's body is left out.
    pub head_only: bool,
    /// The client waits to be told to send the body.
    pub expect_continue: bool,
    /// `traceparent`.
    pub traceparent: Option<Place>,
    /// `X-Request-Id`.
    pub request_id: Option<Place>,
    /// The caller asks how its Call was decided, and may.
    pub explain: bool,
    /// What goes up of a request of TRON's HTTP API. Boxed, since most requests are JSON-RPC.
    pub api: Option<Box<Places>>,
    /// How the body is coded.
    pub coding: Coding,
    /// Whether the page that asks may read the answer.
    pub reader: Reader,
    /// How the answer may be coded.
    pub answer_coding: AnswerCoding,
}

/// Which page may read an answer.
pub enum Reader {
    /// Nobody asks, or none that may.
    NoPage,
    /// Any page.
    Any,
    /// The one of this origin, which stands in the head.
    Origin(Place),
}

/// Where in a head something stands. Half the size of a range, and every connection has several.
#[derive(Clone, Copy)]
pub struct Place {
    /// Offset of its first byte.
    pub from: u32,
    /// How long it is.
    pub bytes: u32,
}

impl Place {
    /// Where `part` is in `bytes`, of which it is a piece.
    pub fn of(part: &[u8], bytes: &[u8]) -> Place {
        // What fits in no word stands nowhere: heads have a limit far below.
        let word = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Place { from: word(part.as_ptr() as usize - bytes.as_ptr() as usize), bytes: word(part.len()) }
    }

    /// The text there, while `bytes` still hold it.
    pub fn text(self, bytes: &[u8]) -> Option<&str> {
        let text = bytes.get(self.from as usize..)?.get(..self.bytes as usize)?;
        std::str::from_utf8(text).ok()
    }
}

/// What is remembered of a head that stands at the front of `bytes`, and came from `peer`.
pub fn heard(current: &Current, head: &RequestHead<'_>, bytes: &[u8], peer: IpAddr) -> Heard {
    let place = |text: &str| Place::of(text.as_bytes(), bytes);
    let want = want(current, head);
    let api = match want {
        Want::Api(_) => client_tron::places(current, head, bytes).map(Box::new),
        _ => None,
    };
    Heard {
        want,
        api,
        framing: head.framing,
        head_len: head.head_len,
        keep_alive: head.keep_alive,
        http11: head.http11,
        head_only: head.verb == Verb::Head,
        expect_continue: head.expect_continue,
        traceparent: head.traceparent.map(place),
        request_id: head.request_id.map(place),
        explain: head.explain && may_be_told(current.server(), head, peer),
        // What is refused is not worth the work.
        coding: if let Want::Nothing(..) = want { Coding::Identity } else { head.content_encoding },
        reader: reader(current, (head.path, head.host), head.origin, bytes),
        answer_coding: match current.server().compression {
            false => AnswerCoding::Fixed,
            true if accepts_gzip(head.values("accept-encoding")) => AnswerCoding::Gzip,
            true => AnswerCoding::Plain,
        },
    }
}

/// What is known of a head that is refused, or never came whole: in whose form it is told so, and to which page.
pub fn overheard(current: &Current, fault: HttpFault, bytes: &[u8]) -> Option<Heard> {
    let seen = glimpse(bytes)?;
    let gateway = gateway_of(current, (seen.path, seen.host));
    let protocol = gateway.map_or(Protocol::JsonRpc, |at| current.live.snapshot.gateways[usize::from(at.0)].protocol);
    Some(Heard {
        want: Want::Nothing(fault, protocol),
        api: None,
        framing: Framing::Empty,
        head_len: 0,
        keep_alive: false,
        http11: true,
        head_only: seen.head_only,
        expect_continue: false,
        traceparent: None,
        request_id: seen.request_id.map(|id| Place::of(id.as_bytes(), bytes)),
        explain: false,
        coding: Coding::Identity,
        reader: reader(current, (seen.path, seen.host), seen.origin, bytes),
        answer_coding: AnswerCoding::Fixed,
    })
}

/// Whether the caller, and not only the proxy in front of it, may see how Calls are decided.
fn may_be_told(server: &Server, head: &RequestHead<'_>, peer: IpAddr) -> bool {
    let trusted = &server.trusted_proxies;
    server.explains_to(forwarded::caller(peer, trusted, head.values("x-forwarded-for")))
}

/// What a request wants, as far as its head tells.
fn want(current: &Current, head: &RequestHead<'_>) -> Want {
    if head.path == "/healthz" {
        return match head.verb {
            Verb::Get | Verb::Head => Want::Health,
            _ => Want::Nothing(HttpFault::MethodNotAllowed("GET, HEAD"), Protocol::JsonRpc),
        };
    }
    let Some(gateway) = current.entrances.find(head.path, head.host) else {
        return client_tron::want(current, head);
    };
    if asks_first(current, gateway, head) {
        return Want::Preflight(gateway);
    }
    let nothing = |fault| Want::Nothing(fault, Protocol::JsonRpc);
    if head.verb != Verb::Post {
        let allow = if has_pages(current, gateway) { "OPTIONS, POST" } else { "POST" };
        return nothing(HttpFault::MethodNotAllowed(allow));
    }
    match (head.content_type, head.content_encoding) {
        (ContentType::Other, _) => nothing(HttpFault::Unsupported("Content-Type is not application/json")),
        // Without a type a browser would send it without asking first.
        (ContentType::Missing, _) if head.origin.is_some() => {
            nothing(HttpFault::Unsupported("a request with an Origin needs Content-Type: application/json"))
        }
        (_, Coding::Other) => nothing(HttpFault::Unsupported(CODED)),
        _ => Want::Call(gateway),
    }
}

/// Whether this is a page's question to a Gateway that has pages.
pub fn asks_first(current: &Current, gateway: GatewayIx, head: &RequestHead<'_>) -> bool {
    head.verb == Verb::Options && has_pages(current, gateway)
}

fn has_pages(current: &Current, gateway: GatewayIx) -> bool {
    current.live.snapshot.gateways[usize::from(gateway.0)].cors.is_some()
}

/// Which page may read the answer to a request with this `Origin` for this path and host.
fn reader(current: &Current, door: (&str, Option<&str>), origin: Option<&str>, bytes: &[u8]) -> Reader {
    let allowed = |origin| cors_of(current, door)?.allows(origin);
    match origin.and_then(allowed) {
        None => Reader::NoPage,
        Some("*") => Reader::Any,
        Some(origin) => Reader::Origin(Place::of(origin.as_bytes(), bytes)),
    }
}

/// Which pages may read answers to what is asked at this path and host.
fn cors_of<'c>(current: &'c Current, door: (&str, Option<&str>)) -> Option<&'c Cors> {
    let gateway = gateway_of(current, door)?;
    current.live.snapshot.gateways[usize::from(gateway.0)].cors.as_ref()
}

/// The Gateway of whatever protocol behind a path and a host.
fn gateway_of(current: &Current, (path, host): (&str, Option<&str>)) -> Option<GatewayIx> {
    let entrances = &current.entrances;
    entrances.find(path, host).or_else(|| entrances.find_above(path, host).map(|(gateway, _)| gateway))
}

/// What a head may take.
pub fn limits(server: &Server) -> HeadLimits {
    HeadLimits { bytes: server.max_header_bytes, headers: server.max_headers }
}

/// Whether a refused request's body is still read.
pub fn is_short(framing: Framing) -> bool {
    match framing {
        Framing::Empty => true,
        Framing::Length(length) => length <= DRAINED_BODY_MAX,
        Framing::Chunked => false,
    }
}
