//! Requests of TRON's HTTP API: what one wants, and its answer. The connection is `client_http`'s.

use crate::logic::fault::HttpFault;
use crate::logic::snapshot::Protocol;
use crate::logic::tron_http::{self, ApiCall, Verb};
use crate::net::client_head::{Place, Want, asks_first};
use crate::net::client_http::explained;
use crate::net::coded::CODED;
use crate::net::exchange::{self, Ask, Context};
use crate::net::reply::{Frame, Reply};
use crate::net::shard::Current;
use crate::wire::http1::Coding;
use crate::wire::http1_request::{self, Framing, RequestHead};

/// What goes up of a request, by its places in the bytes that came.
pub struct Places {
    verb: Verb,
    path: Place,
    query: Option<Place>,
    content_type: Option<Place>,
}

/// What a request wants that is for no JSON-RPC Gateway.
pub fn want(current: &Current, head: &RequestHead<'_>) -> Want {
    let Some((gateway, own)) = current.entrances.find_above(head.path, head.host) else {
        return Want::Nothing(HttpFault::NotFound, Protocol::JsonRpc);
    };
    if asks_first(current, gateway, head) {
        return Want::Preflight(gateway);
    }
    let snapshot = &current.live.snapshot;
    let table = snapshot.gateways[usize::from(gateway.0)].table(&snapshot.methods);
    match tron_http::admit(table, &head.path[own..], verb(head)).and_then(|_| acceptable(head)) {
        Ok(()) => Want::Api(gateway),
        Err(fault) => Want::Nothing(fault, Protocol::TronHttp),
    }
}

fn verb(head: &RequestHead<'_>) -> Option<Verb> {
    match head.verb {
        http1_request::Verb::Get => Some(Verb::Get),
        http1_request::Verb::Post => Some(Verb::Post),
        _ => None,
    }
}

/// Whether the body may go up as it is. Its type is the node's business, as long as there is one type.
fn acceptable(head: &RequestHead<'_>) -> Result<(), HttpFault> {
    let plain = |value: &[u8]| value.iter().all(|&byte| byte == b' ' || byte.is_ascii_graphic());
    let mut types = head.values("content-type");
    let first = types.next();
    if types.next().is_some() || !first.is_none_or(plain) {
        return Err(HttpFault::Unsupported("Content-Type is not one plain value"));
    }
    // Without a type a browser would send it without asking first.
    if first.is_none() && head.origin.is_some() && head.framing != Framing::Empty {
        return Err(HttpFault::Unsupported("a body with an Origin needs a Content-Type"));
    }
    match head.content_encoding {
        Coding::Other => Err(HttpFault::Unsupported(CODED)),
        _ => Ok(()),
    }
}

/// Where in `bytes`, which hold the head, the parts of a wanted request are.
pub fn places(current: &Current, head: &RequestHead<'_>, bytes: &[u8]) -> Option<Places> {
    let place = |part: &[u8]| Place::of(part, bytes);
    let (_, own) = current.entrances.find_above(head.path, head.host)?;
    Some(Places {
        verb: verb(head)?,
        path: place(&head.path.as_bytes()[own..]),
        query: head.query.map(|query| place(query.as_bytes())),
        content_type: head.values("content-type").next().map(place),
    })
}

/// The answer to a request.
pub async fn respond(context: Context<'_>, places: &Places, bytes: &[u8], body: &[u8], frame: &mut Frame<'_>) -> Reply {
    let text = |place: Place| place.text(bytes);
    let call = ApiCall {
        verb: places.verb,
        path: text(places.path).unwrap_or_default(),
        query: places.query.and_then(text),
        content_type: places.content_type.and_then(text),
        body,
    };
    let answer = exchange::call(context, Ask::TronHttp(&call)).await;
    explained(context, b"null", answer, frame).await
}
