//! Calls of Ringway's own to one Endpoint: no attempt, no Circuit, no caller.

use crate::logic::snapshot::EndpointIx;
use crate::logic::units::Nanos;
use crate::net::exchange::place;
use crate::net::ring;
use crate::net::shard::{Current, Shard};
use crate::net::tab::Tab;
use crate::net::upstream::{self, Message, Place, Request};
use crate::wire::jsonrpc::{Checked, check};
use std::rc::Rc;

/// Calls to one Endpoint that have to be over by one moment.
pub struct OwnCalls<'a> {
    shard: &'a Shard,
    current: &'a Current,
    at: EndpointIx,
    until_ns: Nanos,
    tab: Tab,
}

/// What a node said.
pub enum Said<T> {
    /// A result, as it was understood.
    Result(T),
    /// An error: it has been asked, and will say the same again.
    Error,
}

impl<'a> OwnCalls<'a> {
    /// Calls that have so long in all.
    pub fn new(shard: &'a Rc<Shard>, current: &'a Current, at: EndpointIx, timeout_ns: Nanos) -> OwnCalls<'a> {
        let tab = Tab::new(shard.clone(), current.server().max_buffered_bytes);
        OwnCalls { shard, current, at, until_ns: ring::now().saturating_add(timeout_ns), tab }
    }

    /// The Endpoint.
    pub fn at(&self) -> EndpointIx {
        self.at
    }

    /// The Snapshot.
    pub fn current(&self) -> &Current {
        self.current
    }

    /// The time.
    pub fn now_ns(&self) -> Nanos {
        ring::now()
    }

    /// Asks; `None` = no answer came, or none that can be believed, or an error.
    pub async fn ask<T>(&self, method: &str, params: &str, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        match self.hear(method, params, read).await? {
            Said::Result(result) => Some(result),
            Said::Error => None,
        }
    }

    /// Asks; `None` = no answer came, or none that can be believed.
    pub async fn hear<T>(&self, method: &str, params: &str, read: impl FnOnce(&[u8]) -> T) -> Option<Said<T>> {
        let place = place(self.shard, self.current, &self.tab, self.at);
        let (method, now_ns) = ((method, params), ring::now());
        let (said, _) = once(place, self.shard.next_id(), method, self.until_ns, now_ns, read).await;
        self.tab.give(usize::MAX);
        said
    }
}

/// One question of our own, by JSON-RPC, and when it was over. `None` = no answer came, or none that can be believed.
pub async fn once<T>(
    place: Place<'_>,
    id: u64,
    (method, params): (&str, &str),
    until_ns: Nanos,
    now_ns: Nanos,
    read: impl FnOnce(&[u8]) -> T,
) -> (Option<Said<T>>, Nanos) {
    let message = Message::JsonRpc { id: Some(id), method, params: Some(params.as_bytes()) };
    let request = Request { message, traceparent: None, replayable: true, caller: None };
    let ended = upstream::attempt(place, request, until_ns, now_ns).await;
    let Ok(incoming) = ended.result else { return (None, ended.at_ns) };
    let body = &incoming.buf[incoming.body.clone()];
    let said = match check(body, incoming.sent_id) {
        Checked::Result(value) if (200..=299).contains(&incoming.status) => Some(Said::Result(read(&body[value]))),
        Checked::Error { .. } => Some(Said::Error),
        _ => None,
    };
    place.buffers.give(incoming.buf);
    (said, ended.at_ns)
}
