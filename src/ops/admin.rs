//! The admin port: health, readiness, metrics and what operators change, on threads and sockets of its own, so
//! that a stuck ring can't hide them.

use crate::logic::circuit::Admission;
use crate::logic::snapshot::Gateway;
use crate::logic::units::{Nanos, SECOND};
use crate::ops::admin_guard::{may_read, may_read_metrics, may_write};
use crate::ops::{admin_circuits, admin_unlisted, explain, metrics};
use crate::shared::snapshot_cell::{Live, Phase, World};
use crate::wire::http1::HeadLimits;
use crate::wire::http1_request::{Framing, RequestHead, Verb, request_head};
use crate::wire::http1_write::{Announced, Head, ResponseWriter};
use serde::Serialize;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Connections that wait for one of the threads.
const QUEUE: usize = 64;
/// Threads that answer; a slow reader holds up one of them for at most the timeout.
const THREADS: usize = 4;
/// A peer that neither sends nor takes anything for so long is dropped.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A request takes no longer than this, however it drips.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest body that is read.
pub(super) const BODY_MAX: u64 = 64 << 10;
/// So long after its start a process is not ready while an Endpoint of a tiered Route was never polled.
const KNOWN_WITHIN_NS: Nanos = 2 * SECOND;
const LIMITS: HeadLimits = HeadLimits { bytes: 16 << 10, headers: 100 };

/// Answers on `listener` for as long as the process lives. `now_ns` reads the shards' clock.
pub fn start(listener: TcpListener, world: Arc<World>, now_ns: fn() -> Nanos) -> std::io::Result<()> {
    let (sender, receiver) = sync_channel::<TcpStream>(QUEUE);
    let receiver = Arc::new(std::sync::Mutex::new(receiver));
    for at in 0..THREADS {
        let (receiver, world) = (receiver.clone(), world.clone());
        std::thread::Builder::new().name(format!("admin-{at}")).spawn(move || {
            loop {
                let next = receiver.lock().map(|queue| queue.recv());
                match next {
                    Ok(Ok(stream)) => serve(stream, &world, now_ns),
                    _ => return,
                }
            }
        })?;
    }
    std::thread::Builder::new().name("admin".into()).spawn(move || accept(&listener, &sender))?;
    Ok(())
}

fn accept(listener: &TcpListener, sender: &SyncSender<TcpStream>) {
    loop {
        match listener.accept() {
            // A full queue drops the connection: better than memory for everyone who knocks.
            Ok((stream, _)) => drop(sender.try_send(stream)),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn serve(mut stream: TcpStream, world: &World, now_ns: fn() -> Nanos) {
    let _ = stream.set_read_timeout(Some(TIMEOUT));
    let _ = stream.set_write_timeout(Some(TIMEOUT));
    let mut buf = Vec::with_capacity(2048);
    let Some(received) = receive(&mut stream, &mut buf) else { return };
    // Read once more, now that the buffer stays as it is.
    let page = match (received, request_head(&buf, 0, &LIMITS)) {
        (Ok(()), Ok(Some(head))) => answer(&head, &buf[head.head_len..], world, now_ns),
        (Err(page), _) => page,
        (Ok(()), _) => Page::error(400, "bad_request", "not a request that can be understood"),
    };
    let _ = stream.write_all(&page.bytes());
}

/// Reads one request whole into `buf`, or says what is wrong with it. `None`: the peer is gone or too slow.
fn receive(stream: &mut TcpStream, buf: &mut Vec<u8>) -> Option<Result<(), Page>> {
    let until = Instant::now() + REQUEST_TIMEOUT;
    let mut whole = None;
    let mut scanned = 0;
    loop {
        if whole.is_none() {
            match request_head(buf, scanned, &LIMITS) {
                Ok(Some(head)) => match head.framing {
                    Framing::Empty => whole = Some(head.head_len),
                    Framing::Length(bytes) if bytes <= BODY_MAX => whole = Some(head.head_len + bytes as usize),
                    Framing::Length(_) => {
                        return Some(Err(Page::error(413, "too_large", "at most 64 KiB are read here")));
                    }
                    Framing::Chunked => return Some(Err(Page::error(411, "length_required", "send a Content-Length"))),
                },
                Ok(None) => scanned = buf.len(),
                Err(fault) => {
                    let what = "not a request that can be understood";
                    return Some(Err(Page::error(fault.status(), "bad_request", what)));
                }
            }
        }
        if whole.is_some_and(|bytes| buf.len() >= bytes) {
            buf.truncate(whole?);
            return Some(Ok(()));
        }
        let mut chunk = [0; 2048];
        match stream.read(&mut chunk) {
            Ok(n) if n > 0 && Instant::now() < until => buf.extend_from_slice(&chunk[..n]),
            _ => return None,
        }
    }
}

/// What is answered.
pub(super) struct Page {
    status: u16,
    content_type: &'static str,
    body: String,
    head_only: bool,
    allow: Option<&'static str>,
}

impl Page {
    fn json(status: u16, body: String) -> Page {
        Page { status, content_type: "application/json", body, head_only: false, allow: None }
    }
    /// A value as JSON.
    pub(super) fn of(status: u16, value: &impl Serialize) -> Page {
        // Only maps with keys that are no texts can fail, and no page holds one.
        Page::json(status, serde_json::to_string(value).unwrap_or_default() + "\n")
    }
    /// An error, by the code that programs read and the message that people do.
    pub(super) fn error(status: u16, code: &str, message: &str) -> Page {
        Page::of(status, &serde_json::json!({ "error": { "code": code, "message": message } }))
    }
    fn not_allowed(allow: &'static str) -> Page {
        Page { allow: Some(allow), ..Page::error(405, "method_not_allowed", &format!("use {allow}")) }
    }

    fn bytes(&self) -> Vec<u8> {
        let announced = Announced { content_type: self.content_type, bytes: self.body.len() };
        let mut head = ResponseWriter::new(self.status, Some(announced));
        head.keep_alive = false;
        head.allow = self.allow;
        if self.status == 401 {
            head.extra = b"WWW-Authenticate: Bearer\r\n";
        }
        let mut out = Vec::new();
        head.write(&mut out);
        if !self.head_only {
            out.extend_from_slice(self.body.as_bytes());
        }
        out
    }
}

fn answer(head: &RequestHead<'_>, body: &[u8], world: &World, now_ns: fn() -> Nanos) -> Page {
    let live = world.live.load();
    let mut page = page(head, body, world, &live, now_ns).unwrap_or_else(|refused| refused);
    page.head_only = head.verb == Verb::Head;
    page
}

/// The page, or the one that says why there is none.
fn page(head: &RequestHead<'_>, body: &[u8], world: &World, live: &Live, now_ns: fn() -> Nanos) -> Result<Page, Page> {
    let reads = matches!(head.verb, Verb::Get | Verb::Head);
    if let Some(id) = head.path.strip_prefix("/v1/circuits/") {
        if head.verb != Verb::Post {
            return Err(Page::not_allowed("POST"));
        }
        may_write(head, &live.snapshot.server)?;
        return Ok(admin_circuits::force(id, body, live, now_ns()));
    }
    match head.path {
        "/v1/explain" if head.verb != Verb::Post => Err(Page::not_allowed("POST")),
        "/v1/explain" => {
            // It changes nothing, but what a page of another site can't send it need not be asked. Who sends nothing
            // has no type for it, and is told what to send.
            if body.is_empty() {
                may_read(head, &live.snapshot.server)?
            } else {
                may_write(head, &live.snapshot.server)?
            }
            Ok(explain::page(body, live, now_ns()))
        }
        "/v1/methods/unlisted" if !reads => Err(Page::not_allowed("GET, HEAD")),
        "/v1/methods/unlisted" => {
            may_read(head, &live.snapshot.server)?;
            Ok(admin_unlisted::page(live))
        }
        "/healthz" | "/readyz" | "/metrics" if !reads => Err(Page::not_allowed("GET, HEAD")),
        "/healthz" => Ok(Page::json(200, "{\"status\":\"ok\"}\n".into())),
        "/readyz" => Ok(ready(head.query, world, live, now_ns())),
        "/metrics" => {
            may_read_metrics(head, &live.snapshot.server)?;
            let body = metrics::encode(live, &world.memory, now_ns());
            let content_type = "text/plain; version=0.0.4; charset=utf-8";
            Ok(Page { content_type, ..Page::json(200, body) })
        }
        _ => {
            let known =
                "known here: /healthz, /readyz, /metrics, /v1/explain, /v1/methods/unlisted, /v1/circuits/{endpoint}";
            Err(Page::error(404, "not_found", known))
        }
    }
}

fn ready(query: Option<&str>, world: &World, live: &Live, now_ns: Nanos) -> Page {
    let not = |reason: &str| Page::json(503, format!("{{\"status\":\"not_ready\",\"reason\":\"{reason}\"}}\n"));
    if world.lifecycle.phase() != Phase::Running {
        return not("draining");
    }
    if live.counters.shards.iter().any(|shard| shard.accepting.get() == 0) {
        return not("a shard does not accept yet");
    }
    // Before that, what only some software has is nobody's. One that is dead must not keep the others from serving.
    if now_ns < KNOWN_WITHIN_NS && !live.tips.all_polled() {
        return not("the chains of tiered Routes are not known yet");
    }
    let wanted = query.and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix("gateway=")));
    let Some(wanted) = wanted else { return Page::json(200, "{\"status\":\"ready\"}\n".into()) };
    match live.snapshot.gateways.iter().find(|gateway| *gateway.id == *wanted) {
        None => Page::error(404, "not_found", "no Gateway has this id"),
        Some(gateway) if has_usable_target(gateway, live, now_ns) => Page::json(200, "{\"status\":\"ready\"}\n".into()),
        Some(_) => not("no usable target"),
    }
}

/// Whether the default Route has a target that passes the filter, whose Circuit admits, and which does not rest.
fn has_usable_target(gateway: &Gateway, live: &Live, now_ns: Nanos) -> bool {
    let route = &gateway.routes[usize::from(gateway.default_route.0)];
    route.targets.iter().enumerate().any(|(at, target)| {
        let eligible = route.eligible >> at & 1 == 1;
        let here = eligible && !live.tips.is_mismatched(target.endpoint);
        here && !matches!(live.board.usable(target.endpoint, now_ns), Admission::Reject { .. })
    })
}
