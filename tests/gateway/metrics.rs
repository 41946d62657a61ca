//! The admin port: metrics that add up to what clients and upstreams saw, and who may read them.

use super::harness::{ClosedPort, Reply, Setup, Upstream, call_body};
use std::collections::BTreeMap;

#[test]
fn the_sums_are_what_clients_saw_and_upstreams_received() {
    let first = Upstream::start(|seen| match seen.nth % 7 {
        0 => Reply::json(500, "no"),
        1 => Reply::error(seen, 200, r#"{"code":3,"message":"reverted"}"#),
        2 => Reply::http(429, &["Connection: close"], "").then_close(),
        3 => Reply::raw("HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{").then_close(),
        _ => Reply::result(seen, "1"),
    });
    let second = Upstream::start(|seen| match seen.nth % 3 {
        0 => Reply::json(200, "text"),
        _ => Reply::result(seen, "2"),
    });
    let closed = ClosedPort::new();
    let gateway = Setup::at(&[closed.address, first.address, second.address]).no_circuit().start();
    let methods = ["eth_call", "eth_sendTransaction", "acme_unknown", "eth_newFilter", "admin_peers"];
    let outcomes = std::sync::Mutex::new(BTreeMap::<&str, u64>::new());
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let (gateway, outcomes) = (&gateway, &outcomes);
            scope.spawn(move || {
                let mut client = gateway.connect();
                for nth in 0..150 {
                    let answer = client.ask(call_body("1", methods[(nth + caller) % methods.len()], "[]"));
                    let code = answer.json()["error"]["code"].as_i64();
                    let outcome = match code {
                        None => "ok",
                        Some(3) => "node_error",
                        Some(-32601) => "method_unavailable",
                        Some(-32052) => "exhausted",
                        Some(-32054) => "outcome_unknown",
                        Some(_) => panic!("{answer:?}"),
                    };
                    *outcomes.lock().unwrap().entry(outcome).or_default() += 1;
                }
                client.ask("{");
                client.post("/nowhere", &[], "").response();
            });
        }
    });
    let metrics = gateway.metrics();
    let outcomes = outcomes.into_inner().unwrap();
    for (outcome, count) in &outcomes {
        assert_eq!(metrics.calls(outcome), *count, "{outcome}");
    }
    assert_eq!((metrics.calls("invalid"), metrics.sum("ringway_http_refused_total", &["\"404\""])), (4, 4));
    assert_eq!(metrics.sum("ringway_calls_total", &[]), 604);
    assert_eq!(metrics.sum("ringway_call_duration_seconds_count", &[]), 604);
    assert_eq!(metrics.sum("ringway_calls_total", &["method=\"other\"", "route=\"default\""]), 120);
    assert_eq!(metrics.sum("ringway_calls_total", &["method=\"eth_call\""]), 120);
    assert_eq!(metrics.sum("ringway_calls_total", &["method=\"admin_peers\"", "route=\"\""]), 120);
    assert_eq!(metrics.attempts("b", ""), first.count() as u64);
    assert_eq!(metrics.attempts("c", ""), second.count() as u64);
    assert_eq!(metrics.attempts("a", "connect_failed"), 480, "each Call that was routed began there");
    for endpoint in ["a", "b", "c"] {
        assert_eq!(metrics.of("ringway_attempt_duration_seconds_count", endpoint), metrics.attempts(endpoint, ""));
    }
    let delivered = outcomes["ok"] + outcomes["node_error"];
    assert_eq!(metrics.attempts("b", "ok") + metrics.attempts("c", "ok"), delivered);
    assert_eq!(metrics.of("ringway_endpoint_connects_total", "b"), first.connections() as u64);
    assert_eq!(metrics.of("ringway_endpoint_connects_total", "c"), second.connections() as u64);
    assert_eq!(metrics.sum("ringway_accepted_connections_total", &[]), 4);
    assert_eq!(metrics.sum("ringway_task_panics_total", &[]), 0);
}

#[test]
fn gauges_follow_what_is_open() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    let mut clients: Vec<_> = (0..5).map(|_| gateway.connect()).collect();
    clients.iter_mut().for_each(|client| client.ask(call_body("1", "eth_call", "[]")).assert_result("1", "1"));
    assert_eq!(gateway.metrics().sum("ringway_connections", &["side=\"client\""]), 5);
    gateway.wait_for_metrics("the pools' gauge", |metrics| {
        metrics.sum("ringway_connections", &["side=\"upstream\""]) == node.open() as u64 && node.open() > 0
    });
    clients.truncate(2);
    gateway.wait_for_metrics("three clients to go", |metrics| {
        metrics.sum("ringway_connections", &["side=\"client\""]) == 2
    });
}

#[test]
fn metrics_need_the_token_unless_they_are_public() {
    let node = Upstream::answering("1");
    let with_token = Setup::of(&[&node]).server("admin_token = \"right-token\"").start();
    for (field, status) in [
        ("X: y", 401),
        ("Authorization: Bearer wrong-token", 401),
        ("Authorization: Bearer right-tokenX", 401),
        ("Authorization: Bearer right-toke", 401),
        ("Authorization: Bearer ", 401),
        ("Authorization: right-token", 401),
        ("Authorization: Basic right-token", 401),
        ("X-Api-Key: right-token", 401),
        ("Authorization: Bearer right-token", 200),
    ] {
        let page = with_token.admin_get("/metrics", &[field]);
        assert_eq!(page.status, status, "{field}");
        assert_eq!(page.body.contains("ringway_calls_total"), status == 200, "{field}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(with_token.admin_get(path, &[]).status, 200, "needs no token");
    }
    let public = Setup::of(&[&node]).server("admin_token = \"right-token\"\nmetrics_public = true").start();
    assert_eq!(public.admin_get("/metrics", &["Host: prometheus.test"]).status, 200);
    let without = Setup::of(&[&node]).start();
    for (host, status) in [
        ("localhost:9545", 200),
        ("127.0.0.1", 200),
        ("[::1]:1", 200),
        ("evil.test", 403),
        ("localhost.evil.test", 403),
    ] {
        assert_eq!(without.admin_get("/metrics", &[&format!("Host: {host}")]).status, status, "{host}");
    }
    assert_eq!(without.admin_get("/nothing", &[]).status, 404);
}

#[test]
fn readiness_by_gateway() {
    let node = Upstream::start(|_| Reply::json(500, "no"));
    let gateway = Setup::of(&[&node, &node])
        .circuit("consecutive_failures = 1\ncooldown = \"60s\"\nmax_cooldown = \"60s\"")
        .endpoint(1, "enabled = false")
        .another("off", "[\"b\"]", "")
        .start();
    assert_eq!(gateway.admin_get("/readyz", &[]).status, 200);
    assert_eq!(gateway.admin_get("/readyz?gateway=eth", &[]).status, 200);
    assert_eq!(gateway.admin_get("/readyz?gateway=off", &[]).status, 503);
    assert_eq!(gateway.admin_get("/readyz?gateway=none", &[]).status, 404);
    gateway.call("eth_call", "[]").assert_fault(502, "1", -32052);
    assert_eq!(gateway.admin_get("/readyz?gateway=eth", &[]).status, 503);
}
