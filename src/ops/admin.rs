//! The admin port: health, readiness and metrics, on a thread and sockets of its own, so that a stuck ring
//! can't hide them.

use crate::logic::circuit::Admission;
use crate::logic::routing::host_name;
use crate::logic::snapshot::{Gateway, Secret, Server};
use crate::logic::units::Nanos;
use crate::ops::metrics;
use crate::shared::snapshot_cell::{Live, Phase, World};
use crate::wire::http1::HeadLimits;
use crate::wire::http1_request::{RequestHead, Verb, request_head};
use crate::wire::http1_write::{Announced, Head, ResponseWriter};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

/// Connections that wait for one of the threads.
const QUEUE: usize = 64;
/// Threads that answer; a slow reader holds up one of them for at most the timeout.
const THREADS: usize = 4;
/// A peer that neither sends nor takes anything for so long is dropped.
const TIMEOUT: Duration = Duration::from_secs(5);
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
    let mut scanned = 0;
    let page = loop {
        match request_head(&buf, scanned, &LIMITS) {
            Ok(Some(head)) => break answer(&head, world, now_ns),
            Ok(None) => {}
            Err(fault) => break Page::error(fault.status(), "bad_request", "not a request that can be understood"),
        }
        scanned = buf.len();
        let mut chunk = [0; 2048];
        match stream.read(&mut chunk) {
            Ok(n) if n > 0 => buf.extend_from_slice(&chunk[..n]),
            _ => return,
        }
    };
    let announced = Announced { content_type: page.content_type, bytes: page.body.len() };
    let mut head = ResponseWriter::new(page.status, Some(announced));
    head.keep_alive = false;
    head.allow = (page.status == 405).then_some("GET, HEAD");
    if page.status == 401 {
        head.extra = b"WWW-Authenticate: Bearer\r\n";
    }
    let mut out = Vec::new();
    head.write(&mut out);
    if !page.head_only {
        out.extend_from_slice(page.body.as_bytes());
    }
    let _ = stream.write_all(&out);
}

struct Page {
    status: u16,
    content_type: &'static str,
    body: String,
    head_only: bool,
}

impl Page {
    fn json(status: u16, body: String) -> Page {
        Page { status, content_type: "application/json", body, head_only: false }
    }
    fn error(status: u16, code: &str, message: &str) -> Page {
        Page::json(status, format!("{{\"error\":{{\"code\":\"{code}\",\"message\":\"{message}\"}}}}\n"))
    }
}

fn answer(head: &RequestHead<'_>, world: &World, now_ns: fn() -> Nanos) -> Page {
    let live = world.live.load();
    let mut page = page(head, world, &live, now_ns);
    page.head_only = head.verb == Verb::Head;
    page
}

fn page(head: &RequestHead<'_>, world: &World, live: &Live, now_ns: fn() -> Nanos) -> Page {
    let known = matches!(head.path, "/healthz" | "/readyz" | "/metrics");
    if !known {
        return Page::error(404, "not_found", "known here: /healthz, /readyz, /metrics");
    }
    if !matches!(head.verb, Verb::Get | Verb::Head) {
        return Page::error(405, "method_not_allowed", "use GET");
    }
    match head.path {
        "/healthz" => Page::json(200, "{\"status\":\"ok\"}\n".into()),
        "/readyz" => ready(head.query, world, live, now_ns()),
        _ => match refused(head, &live.snapshot.server) {
            Some(page) => page,
            None => Page {
                status: 200,
                content_type: "text/plain; version=0.0.4; charset=utf-8",
                body: metrics::encode(live, now_ns()),
                head_only: false,
            },
        },
    }
}

/// Who may not read what needs the token.
fn refused(head: &RequestHead<'_>, server: &Server) -> Option<Page> {
    if server.metrics_public {
        return None;
    }
    match &server.admin_token {
        Some(token) => {
            let given = head.values("authorization").next().and_then(|value| value.strip_prefix(b"Bearer "));
            let right = given.is_some_and(|given| same(given, token));
            (!right).then(|| Page::error(401, "unauthorized", "send Authorization: Bearer with the admin_token"))
        }
        // Without a token a page in a browser could ask through a name that it makes point here.
        None => (!is_loopback(head.host))
            .then(|| Page::error(403, "forbidden", "without an admin_token only loopback Host names are answered")),
    }
}

/// Compares in a time that depends on the lengths only.
fn same(given: &[u8], token: &Secret) -> bool {
    let token = token.reveal().as_bytes();
    given.len() == token.len() && given.iter().zip(token).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

fn is_loopback(host: Option<&str>) -> bool {
    let Some(host) = host else { return true };
    let name = host_name(host);
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn ready(query: Option<&str>, world: &World, live: &Live, now_ns: Nanos) -> Page {
    let not = |reason: &str| Page::json(503, format!("{{\"status\":\"not_ready\",\"reason\":\"{reason}\"}}\n"));
    if world.lifecycle.phase() != Phase::Running {
        return not("draining");
    }
    if live.counters.shards.iter().any(|shard| shard.accepting.get() == 0) {
        return not("a shard does not accept yet");
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
        eligible && !matches!(live.board.usable(target.endpoint, now_ns), Admission::Reject { .. })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_are_loopback() {
        for host in ["localhost", "localhost:9545", "127.0.0.1:9545", "127.8.8.8", "[::1]:9545", "LOCALHOST"] {
            assert!(is_loopback(Some(host)), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:9545", "10.0.0.1", "[::2]", "127.0.0.1.evil.example"] {
            assert!(!is_loopback(Some(host)), "{host}");
        }
    }

    #[test]
    fn tokens_compare_whole() {
        let token = Secret::new("correct horse");
        assert!(same(b"correct horse", &token));
        for wrong in [&b"correct hors"[..], b"correct horse ", b"", b"Correct horse"] {
            assert!(!same(wrong, &token));
        }
    }
}
