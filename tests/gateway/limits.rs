//! Limits of the server, and its end: full, idle, and asked to leave.

use super::harness::{Gate, Gateway, PATIENCE, Reply, Setup, Upstream, call_body, notification_body, request};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn gated() -> (Gate, Upstream) {
    let gate = Gate::default();
    let held = gate.clone();
    (gate, Upstream::start(move |seen| Reply::after(&held, Reply::result(seen, "1"))))
}

#[test]
fn over_max_inflight_calls_are_refused_and_not_queued() {
    let (gate, node) = gated();
    let gateway = Setup::of(&[&node]).shards(1).server("max_inflight = 3").start();
    let mut clients: Vec<_> = (0..3).map(|_| gateway.connect()).collect();
    for client in &mut clients {
        client.post("/eth", &[], call_body("1", "eth_call", "[]"));
    }
    node.wait_for(3);
    let mut late = gateway.connect();
    for method in ["eth_call", "eth_sendTransaction"] {
        let refused = late.ask(call_body("4", method, "[]"));
        refused.assert_fault(503, "4", -32056);
        assert_eq!((refused.header("retry-after").as_deref(), refused.attempts()), (Some("1"), 0));
        assert_eq!(refused.reason(), "overloaded");
    }
    // A notification is refused as silently as it would be served.
    let refused = late.ask(notification_body("eth_call", "[]"));
    assert_eq!((refused.status, refused.body.as_str()), (204, ""));
    // A batch is served as far as there is room; here there is none.
    let member = call_body("5", "eth_call", "[]");
    let answers = late.ask(format!("[{member},{member}]"));
    assert_eq!((answers.status, answers.header("retry-after").as_deref()), (200, Some("1")));
    assert!(answers.json().as_array().unwrap().iter().all(|answer| answer["error"]["code"] == -32056));
    gate.open();
    clients.iter_mut().for_each(|client| client.response().assert_result("1", "1"));
    late.ask(call_body("4", "eth_call", "[]")).assert_result("4", "1");
    assert_eq!(node.count(), 4);
    assert_eq!(gateway.metrics().calls("overloaded"), 5);
}

#[test]
fn over_max_connections_clients_wait_to_be_accepted() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).shards(1).server("max_connections = 2").start();
    let (mut first, mut second, mut third) = (gateway.connect(), gateway.connect(), gateway.connect());
    let body = call_body("1", "eth_call", "[]");
    first.ask(&body).assert_result("1", "1");
    second.ask(&body).assert_result("1", "1");
    third.post("/eth", &[], &body);
    gateway.wait_for_metrics("two clients", |metrics| metrics.sum("ringway_accepted_connections_total", &[]) == 2);
    first.ask(&body).assert_result("1", "1");
    assert!(third.is_quiet());
    drop(first);
    third.response().assert_result("1", "1");
    assert_eq!(gateway.metrics().sum("ringway_connections", &["side=\"client\""]), 2);
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).server("idle_timeout = \"150ms\"").start();
    let mut unused = gateway.connect();
    let mut used = gateway.connect();
    used.ask(call_body("1", "eth_call", "[]")).assert_result("1", "1");
    unused.closed();
    used.closed();
}

#[test]
fn a_slow_node_is_no_idle_client() {
    let (gate, node) = gated();
    let gateway = Setup::of(&[&node])
        .server("idle_timeout = \"60ms\"\nheader_timeout = \"60ms\"\nbody_timeout = \"60ms\"\nwrite_timeout = \"60ms\"")
        .start();
    let (mut client, mut idle) = (gateway.connect(), gateway.connect());
    client.post("/eth", &[], call_body("1", "eth_call", "[]"));
    node.wait_for(1);
    // Both timers of the connections began at about the same time: when this one is over, so is the other.
    idle.closed();
    let mut later = gateway.connect();
    later.closed();
    gate.open();
    client.response().assert_result("1", "1");
}

#[test]
fn a_reader_that_takes_nothing_is_cut_off() {
    let node = Upstream::start(|seen| Reply::result(seen, &format!("\"{}\"", "x".repeat(32 << 20))));
    let gateway = Setup::of(&[&node]).server("write_timeout = \"150ms\"").start();
    let mut client = gateway.connect();
    client.post("/eth", &[], call_body("1", "eth_call", "[]"));
    gateway.wait_for_metrics("the client's end", |metrics| {
        metrics.calls("ok") == 1 && metrics.sum("ringway_connections", &["side=\"client\""]) == 0
    });
    gateway.post(call_body("2", "admin_peers", "[]")).assert_fault(200, "2", -32601);
}

/// A connection with a small buffer for what comes in: it tells often what was taken.
fn slow_reader(gateway: &Gateway) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    socket.connect(&gateway.listen.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let body = call_body("1", "eth_call", "[]");
    stream.write_all(format!("{}{body}", request("/eth", &[], body.len())).as_bytes()).unwrap();
    stream
}

#[test]
fn a_reader_that_takes_little_but_steadily_gets_all_of_it() {
    const BYTES: usize = 8 << 20;
    let node = Upstream::start(|seen| Reply::result(seen, &format!("\"{}\"", "x".repeat(BYTES))));
    let gateway = Setup::of(&[&node]).server("write_timeout = \"1s\"").start();
    let mut slow = slow_reader(&gateway);
    // 20 kB a second, for more than five times as long as it may take nothing.
    let (began, mut taken, mut some) = (Instant::now(), 0, vec![0; 20_000 / 20]);
    while began.elapsed() < Duration::from_millis(5_500) {
        let n = slow.read(&mut some).unwrap();
        assert!(n > 0, "cut off after {:?} and {taken} bytes", began.elapsed());
        taken += n;
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(gateway.metrics().sum("ringway_connections", &["side=\"client\""]), 1);
    assert!(gateway.metrics().sum("ringway_buffered_bytes", &[]) > 0, "the kernel holds all of it: nothing was tried");
    // Then as fast as it can.
    let mut rest = vec![0; 1 << 20];
    while taken < BYTES {
        let n = slow.read(&mut rest).unwrap();
        assert!(n > 0, "cut off after {taken} bytes");
        taken += n;
    }
}

#[test]
fn a_reader_that_stops_is_cut_off_and_its_memory_given_back() {
    let node = Upstream::start(|seen| Reply::result(seen, &format!("\"{}\"", "x".repeat(8 << 20))));
    let gateway = Setup::of(&[&node]).server("write_timeout = \"1s\"").start();
    let mut slow = slow_reader(&gateway);
    let mut some = [0; 20_000];
    slow.read_exact(&mut some).unwrap();
    let stopped = Instant::now();
    gateway.wait_for_metrics("the end of who takes nothing", |metrics| {
        metrics.sum("ringway_connections", &["side=\"client\""]) == 0 && metrics.sum("ringway_buffered_bytes", &[]) == 0
    });
    // A second, half of one for a look, and what a busy machine adds; far from what it takes to see no end.
    assert!(stopped.elapsed() < Duration::from_secs(5), "{:?}", stopped.elapsed());
}

#[test]
fn deadlines_of_a_connection_still_fire_after_a_node_thought_for_long() {
    // Longer than one turn of the wheel that the deadlines hang on, and than the client has to take an answer.
    let pause = Duration::from_millis(2_700);
    let node = Upstream::start(move |seen| {
        std::thread::sleep(pause);
        Reply::result(seen, &format!("\"{}\"", "x".repeat(4 << 20)))
    });
    let gateway = Setup::of(&[&node]).server("write_timeout = \"1s\"\nidle_timeout = \"200ms\"").start();
    let mut client = gateway.connect();
    client.post("/eth", &[], call_body("1", "eth_call", "[]"));
    assert_eq!(client.response().result().len(), (4 << 20) + 2, "its time began with the answer");
    client.closed();
}

#[test]
fn sigterm_finishes_what_is_in_flight_and_leaves() {
    let (gate, node) = gated();
    let mut gateway = Setup::of(&[&node]).start();
    let body = call_body("1", "eth_call", "[]");
    let mut running: Vec<_> = (0..6).map(|_| gateway.connect()).collect();
    for client in &mut running {
        client.post("/eth", &[], &body);
    }
    let member = call_body("2", "eth_sendTransaction", "[]");
    let mut batch = gateway.connect();
    batch.post("/eth", &[], format!("[{member},{member}]"));
    node.wait_for(8);
    let mut idle = gateway.connect();
    idle.send("GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n").response();
    gateway.terminate();
    gateway.wait_for_log("draining");
    idle.closed();
    gate.open();
    for client in &mut running {
        let answer = client.response();
        answer.assert_result("1", "1");
        assert_eq!(answer.header("connection").as_deref(), Some("close"));
        client.closed();
    }
    let answer = batch.response();
    assert_eq!(answer.json().as_array().unwrap().len(), 2);
    assert_eq!(answer.header("connection").as_deref(), Some("close"));
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.log());
    gateway.wait_for_log("stopped");
}

#[test]
fn readiness_turns_first_and_requests_are_served_meanwhile() {
    let node = Upstream::answering("1");
    let mut gateway = Setup::of(&[&node]).server("shutdown_delay = \"400ms\"").start();
    assert_eq!(gateway.admin_get("/readyz", &[]).status, 200);
    let mut client = gateway.connect();
    client.ask(call_body("1", "eth_call", "[]")).assert_result("1", "1");
    gateway.terminate();
    gateway.wait_for_log("leaving");
    assert_eq!(gateway.admin_get("/readyz", &[]).status, 503);
    assert_eq!(client.send("GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n").response().status, 503);
    let answer = client.ask(call_body("1", "eth_call", "[]"));
    answer.assert_result("1", "1");
    gateway.call("eth_call", "[]").assert_result("1", "1");
    assert_eq!(gateway.wait().code(), Some(0));
}

#[test]
fn the_grace_ends_what_does_not_end() {
    let node = Upstream::start(|_| Reply::hang());
    let mut gateway = Setup::of(&[&node]).server("shutdown_grace = \"150ms\"").start();
    let mut client = gateway.connect();
    client.post("/eth", &[], call_body("1", "eth_call", "[]"));
    node.wait_for(1);
    gateway.terminate();
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.log());
    gateway.wait_for_log("cut off");
}
