//! Calls of Ringway's own to one Endpoint: no attempt, no Circuit, no caller.

use crate::logic::snapshot::EndpointIx;
use crate::logic::units::Nanos;
use crate::net::exchange::place;
use crate::net::ring;
use crate::net::shard::{Current, Shard};
use crate::net::tab::Tab;
use crate::net::upstream::{self, Message, Place, Request};
use crate::wire::jsonrpc::{Checked, check};
use std::cell::Cell;
use std::rc::Rc;

/// Calls to one Endpoint, one after the other, that share a time which can be given anew.
pub struct OwnCalls<'a> {
    shard: &'a Shard,
    current: &'a Current,
    at: EndpointIx,
    timeout_ns: Nanos,
    until_ns: Cell<Nanos>,
    answered: Cell<bool>,
    tab: Tab,
}

/// What a node said.
pub enum Said<T> {
    /// A result, as it was understood.
    Result(T),
    /// An error: it has been asked, and will say the same again.
    Error,
    /// Something that can't be believed.
    Odd,
}

impl<'a> OwnCalls<'a> {
    /// Calls that have so long in all, until they are [given time](OwnCalls::give_time) again.
    pub fn new(shard: &'a Rc<Shard>, current: &'a Current, at: EndpointIx, timeout_ns: Nanos) -> OwnCalls<'a> {
        let tab = Tab::new(shard.clone(), current.server().max_buffered_bytes);
        let calls =
            OwnCalls { shard, current, at, timeout_ns, until_ns: Cell::default(), answered: Cell::default(), tab };
        calls.give_time();
        calls
    }

    /// From now on they have the whole time again.
    pub fn give_time(&self) {
        self.until_ns.set(ring::now().saturating_add(self.timeout_ns));
    }

    /// The time is over, and the node has not said a word.
    pub fn in_vain(&self) -> bool {
        !self.answered.get() && ring::now() >= self.until_ns.get()
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
            Said::Error | Said::Odd => None,
        }
    }

    /// Asks; `None` = no answer came.
    pub async fn hear<T>(&self, method: &str, params: &str, read: impl FnOnce(&[u8]) -> T) -> Option<Said<T>> {
        let place = place(self.shard, self.current, &self.tab, self.at);
        let (method, now_ns) = ((method, params), ring::now());
        let (said, _) = once(place, self.shard.next_id(), method, self.until_ns.get(), now_ns, read).await;
        self.tab.give(usize::MAX);
        self.answered.set(self.answered.get() || said.is_some());
        said
    }
}

/// One question of our own, by JSON-RPC, and when it was over. `None` = no answer came.
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
        Checked::Result(value) if (200..=299).contains(&incoming.status) => Said::Result(read(&body[value])),
        Checked::Error { .. } => Said::Error,
        _ => Said::Odd,
    };
    place.buffers.give(incoming.buf);
    (Some(said), ended.at_ns)
}
