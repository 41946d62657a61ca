//! The Circuit: opens, lets exactly one probe through over all shards, closes or opens for longer.

use super::harness::{Client, ClosedPort, Gate, Gateway, PATIENCE, Reply, Setup, Upstream, call_body};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

const READ: &str = "eth_call";

/// A node that answers with this status: 200 with a result, others with text.
fn node(name: &'static str) -> (Arc<AtomicU16>, Upstream) {
    let status = Arc::new(AtomicU16::new(200));
    let wanted = status.clone();
    let upstream = Upstream::start(move |seen| match wanted.load(Ordering::SeqCst) {
        200 => Reply::result(seen, &format!("\"{name}\"")),
        0 => Reply::close(),
        status => Reply::http(status, &["Content-Type: text/html"], "<html>"),
    });
    (status, upstream)
}

/// Calls until an Endpoint answers.
fn until_served(client: &mut Client) {
    let until = Instant::now() + PATIENCE;
    while client.ask(call_body("1", READ, "[]")).json().get("result").is_none() {
        assert!(Instant::now() < until, "never served again");
    }
}

/// Does something whatever happens before.
pub struct OnDrop<F: Fn()>(pub F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn state(gateway: &Gateway, endpoint: &str) -> u64 {
    gateway.metrics().of("ringway_circuit_state", endpoint)
}

fn transitions(gateway: &Gateway, reason: &str) -> u64 {
    gateway.metrics().sum("ringway_circuit_transitions_total", &["endpoint=\"a\"", &format!("reason=\"{reason}\"")])
}

#[test]
fn it_opens_after_so_many_failures_in_a_row_and_stops_traffic() {
    let ((status, first), (_, second)) = (node("first"), node("second"));
    let gateway = Setup::of(&[&first, &second])
        .circuit("consecutive_failures = 4\ncooldown = \"60s\"\nmax_cooldown = \"60s\"")
        .start();
    // Three failures and a success, twice: not in a row.
    for _ in 0..2 {
        status.store(500, Ordering::SeqCst);
        (0..3).for_each(|_| gateway.call(READ, "[]").assert_result("1", "\"second\""));
        status.store(200, Ordering::SeqCst);
        gateway.call(READ, "[]").assert_result("1", "\"first\"");
    }
    assert_eq!((state(&gateway, "a"), first.count()), (0, 8));
    status.store(500, Ordering::SeqCst);
    // Over connections of their own, so that both shards have a part in it.
    (0..4).for_each(|_| gateway.call(READ, "[]").assert_result("1", "\"second\""));
    assert_eq!((state(&gateway, "a"), first.count()), (1, 12));
    status.store(200, Ordering::SeqCst);
    for method in [READ, "eth_sendRawTransaction", "eth_newFilter", "eth_sendTransaction", "acme_unknown"] {
        (0..4).for_each(|_| gateway.call(method, "[]").assert_result("1", "\"second\""));
    }
    assert_eq!(first.count(), 12, "no traffic while it is open");
    assert_eq!(transitions(&gateway, "consecutive_failures"), 1);
}

#[test]
fn every_kind_of_failure_counts_and_what_says_nothing_does_not() {
    let rule = "consecutive_failures = 3\ncooldown = \"60s\"\nmax_cooldown = \"60s\"";
    for (failing, opens) in [
        (500, true),
        (503, true),
        (0, true),
        (204, true),
        (401, true),
        (403, true),
        (404, true),
        (302, true),
        (400, false),
        (408, false),
        (413, false),
        (414, false),
        (422, false),
        (418, false),
    ] {
        let (status, first) = node("first");
        let gateway = Setup::of(&[&first]).circuit(rule).start();
        status.store(failing, Ordering::SeqCst);
        (0..3).for_each(|_| assert!(gateway.call(READ, "[]").json().get("error").is_some()));
        assert_eq!(state(&gateway, "a"), u64::from(opens), "{failing}");
        (0..9).for_each(|_| assert!(gateway.call(READ, "[]").json().get("error").is_some()));
        assert_eq!(first.count(), if opens { 3 } else { 12 }, "{failing}");
    }
    let closed = ClosedPort::new();
    let gateway = Setup::at(&[closed.address]).circuit(rule).start();
    (0..3).for_each(|_| gateway.call("eth_sendTransaction", "[]").assert_fault(502, "1", -32052));
    gateway.call("eth_sendTransaction", "[]").assert_fault(503, "1", -32051);
}

#[test]
fn refusals_of_our_credentials_count_only_without_a_recent_success() {
    let (status, first) = node("first");
    let gateway = Setup::of(&[&first])
        .shards(1)
        .circuit("consecutive_failures = 2\nwindow = \"300ms\"\ncooldown = \"60s\"\nmax_cooldown = \"60s\"")
        .start();
    gateway.call(READ, "[]").assert_result("1", "\"first\"");
    let succeeded = Instant::now();
    status.store(403, Ordering::SeqCst);
    let mut within = 0;
    while succeeded.elapsed() < Duration::from_millis(150) {
        gateway.call(READ, "[]");
        within += 1;
    }
    assert!(within > 2 && first.count() == within + 1, "one method that is not in our plan is no fault of the node");
    // The window ends; from then on they count.
    let until = Instant::now() + Duration::from_secs(10);
    while state(&gateway, "a") == 0 {
        assert!(Instant::now() < until, "never opened");
        gateway.call(READ, "[]");
    }
    assert!(succeeded.elapsed() >= Duration::from_millis(300));
}

#[test]
fn exactly_one_probe_over_all_shards() {
    let gate = Gate::default();
    let (held, failing) = (gate.clone(), Arc::new(AtomicU16::new(1)));
    let fails = failing.clone();
    let first = Upstream::start(move |seen| match fails.load(Ordering::SeqCst) {
        1 => Reply::json(500, "no"),
        _ => Reply::after(&held, Reply::result(seen, "\"first\"")),
    });
    let second = Upstream::answering("\"second\"");
    let gateway = Setup::of(&[&first, &second]).circuit("consecutive_failures = 2\ncooldown = \"150ms\"").start();
    (0..2).for_each(|_| gateway.call(READ, "[]").assert_result("1", "\"second\""));
    assert_eq!(state(&gateway, "a"), 1);
    failing.store(0, Ordering::SeqCst);
    // Callers on both shards press all the time; the first one after the cooldown is held at the node.
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = gateway.connect();
                    let mut first = 0;
                    while !stop.load(Ordering::SeqCst) {
                        first += usize::from(client.ask(call_body("1", READ, "[]")).result() == "\"first\"");
                    }
                    first
                })
            })
            .collect();
        // Whatever fails below, the callers end.
        let _end = OnDrop(|| {
            stop.store(true, Ordering::SeqCst);
            gate.open();
        });
        first.wait_for(3);
        let (before, passed) = (second.count(), Instant::now());
        second.wait_for(before + 500);
        while passed.elapsed() < Duration::from_millis(100) {
            second.wait_for(second.count() + 10);
        }
        let probing = (first.count(), state(&gateway, "a"));
        gate.open();
        first.wait_for(200);
        stop.store(true, Ordering::SeqCst);
        let served: usize = callers.into_iter().map(|caller| caller.join().unwrap()).sum();
        assert_eq!(probing, (3, 2), "one probe, half-open");
        assert!(served >= 190, "traffic returned to the first: {served}");
    });
    assert_eq!(state(&gateway, "a"), 0);
    assert_eq!((transitions(&gateway, "cooldown_over"), transitions(&gateway, "probe_succeeded")), (1, 1));
}

#[test]
fn a_failed_probe_doubles_the_cooldown() {
    let (status, first) = node("first");
    status.store(500, Ordering::SeqCst);
    let gateway =
        Setup::of(&[&first]).circuit("consecutive_failures = 1\ncooldown = \"200ms\"\nmax_cooldown = \"10s\"").start();
    gateway.call(READ, "[]");
    let mut client = gateway.connect();
    let mut times = vec![first.seen()[0].at];
    let until = Instant::now() + PATIENCE;
    while times.len() < 4 {
        assert!(Instant::now() < until, "{times:?}");
        let answer = client.ask(call_body("1", READ, "[]"));
        assert!([-32051, -32052].contains(&answer.code()), "{answer:?}");
        times = first.seen().iter().map(|seen| seen.at).collect();
    }
    let gaps: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (gap, least) in gaps.iter().zip([195, 355, 715]) {
        let most = Duration::from_millis(least + least / 2 + 150);
        assert!((Duration::from_millis(least)..most).contains(gap), "{gaps:?}");
    }
    status.store(200, Ordering::SeqCst);
    until_served(&mut client);
    assert_eq!((state(&gateway, "a"), first.count()), (0, 5));
    // Closed, it begins with the first cooldown again.
    status.store(500, Ordering::SeqCst);
    let opened = Instant::now();
    client.ask(call_body("1", READ, "[]")).assert_fault(502, "1", -32052);
    status.store(200, Ordering::SeqCst);
    until_served(&mut client);
    assert!(opened.elapsed() < Duration::from_millis(600), "{:?}", opened.elapsed());
}

#[test]
fn when_all_are_open_the_caller_hears_when_to_come_back() {
    let ((a, first), (b, second)) = (node("first"), node("second"));
    let gateway = Setup::of(&[&first, &second])
        .circuit("consecutive_failures = 1")
        .endpoint(0, "circuit = { cooldown = \"9s\" }")
        .endpoint(1, "circuit = { cooldown = \"3900ms\" }")
        .start();
    a.store(500, Ordering::SeqCst);
    b.store(500, Ordering::SeqCst);
    gateway.call(READ, "[]").assert_fault(502, "1", -32052);
    for method in [READ, "eth_sendTransaction", "acme_unknown"] {
        let answer = gateway.call(method, "[]");
        answer.assert_fault(503, "1", -32051);
        assert_eq!((answer.attempts(), answer.header("retry-after").as_deref()), (0, Some("4")), "the soonest");
        let wait = answer.json()["error"]["data"]["retry_after_ms"].as_u64().unwrap();
        assert!((2_500..=3_901).contains(&wait), "{wait}");
    }
    let silent = gateway.post(r#"{"method":"eth_call"}"#);
    assert_eq!((silent.status, silent.body.as_str()), (204, ""));
    assert_eq!((first.count(), second.count()), (1, 1));
    assert_eq!(gateway.admin_get("/readyz?gateway=eth", &[]).status, 503);
    assert_eq!(gateway.admin_get("/readyz", &[]).status, 200);
}

#[test]
fn only_what_may_be_repeated_is_the_probe_while_another_can_answer() {
    let ((status, first), (_, second)) = (node("first"), node("second"));
    let gateway = Setup::of(&[&first, &second])
        .circuit("consecutive_failures = 1\ncooldown = \"1ms\"")
        .another("alone", "[\"a\"]", "")
        .start();
    let open = || {
        status.store(500, Ordering::SeqCst);
        gateway.call(READ, "[]").assert_result("1", "\"second\"");
        status.store(200, Ordering::SeqCst);
        // Long over before the next request can arrive: the cooldown is 1 ms.
        let until = Instant::now() + Duration::from_millis(5);
        while Instant::now() < until {
            std::thread::yield_now();
        }
    };
    open();
    for method in ["eth_sendTransaction", "eth_newFilter", "acme_unknown"] {
        gateway.call(method, "[]").assert_result("1", "\"second\"");
    }
    gateway.post(r#"{"method":"eth_call","params":["note"]}"#);
    assert_eq!((first.count(), second.count_with("note")), (1, 1));
    // With nothing else left an effect is better served than refused.
    gateway.post_to("/alone", call_body("1", "eth_sendTransaction", "[]")).assert_result("1", "\"first\"");
    assert_eq!(state(&gateway, "a"), 0);
    open();
    gateway.call("eth_sendRawTransaction", "[]").assert_result("1", "\"first\"");
    assert_eq!(state(&gateway, "a"), 0);
}

#[test]
fn a_probe_that_never_comes_back_keeps_no_endpoint_closed() {
    let hangs = Arc::new(AtomicU16::new(1));
    let wanted = hangs.clone();
    let first = Upstream::start(move |seen| match wanted.load(Ordering::SeqCst) {
        1 => Reply::hang(),
        _ => Reply::result(seen, "\"first\""),
    });
    let gateway = Setup::of(&[&first])
        .circuit("consecutive_failures = 1\ncooldown = \"50ms\"\nmax_cooldown = \"50ms\"")
        .route("attempt_timeout = \"150ms\"")
        .start();
    gateway.call(READ, "[]").assert_fault(504, "1", -32053);
    let mut client = gateway.connect();
    let until = Instant::now() + PATIENCE;
    while first.count() < 3 {
        assert!(Instant::now() < until, "no second probe");
        let answer = client.ask(call_body("1", READ, "[]"));
        assert!([-32051, -32053].contains(&answer.code()), "{answer:?}");
    }
    hangs.store(0, Ordering::SeqCst);
    until_served(&mut client);
    assert_eq!(state(&gateway, "a"), 0);
}

#[test]
fn a_share_of_failures_opens_it_although_there_are_never_two_in_a_row() {
    let first = Upstream::start(|seen| match seen.nth % 2 {
        0 => Reply::result(seen, "\"first\""),
        _ => Reply::json(500, "no"),
    });
    let second = Upstream::answering("\"second\"");
    let gateway = Setup::of(&[&first, &second])
        .circuit("consecutive_failures = 2\nmin_samples = 30\ncooldown = \"60s\"\nmax_cooldown = \"60s\"")
        .start();
    let mut client = gateway.connect();
    // Both shards have a part in it.
    for at in 0..29 {
        let answer = if at % 3 == 0 { gateway.call(READ, "[]") } else { client.ask(call_body("1", READ, "[]")) };
        answer.assert_result("1", if at % 2 == 0 { "\"first\"" } else { "\"second\"" });
    }
    assert_eq!(state(&gateway, "a"), 0, "29 samples");
    client.ask(call_body("1", READ, "[]")).assert_result("1", "\"second\"");
    assert_eq!((state(&gateway, "a"), transitions(&gateway, "failure_ratio")), (1, 1));
    (0..9).for_each(|_| gateway.call(READ, "[]").assert_result("1", "\"second\""));
    assert_eq!((first.count(), transitions(&gateway, "consecutive_failures")), (30, 0));
    gateway.wait_for_log("failure_ratio");
    let log = gateway.log();
    let line = log.lines().find(|line| line.contains("failure_ratio")).unwrap();
    assert!(line.contains("\"WARN\"") && line.contains("\"endpoint\":\"a\"") && line.contains("60000"), "{line}");
}

#[test]
fn a_share_of_failures_under_its_ratio_opens_nothing() {
    let first = Upstream::start(|seen| match seen.nth % 4 {
        3 => Reply::json(500, "no"),
        _ => Reply::result(seen, "\"first\""),
    });
    let second = Upstream::answering("\"second\"");
    let gateway = Setup::of(&[&first, &second])
        .circuit("min_samples = 10")
        .endpoint(0, "circuit = { failure_ratio = 0.26 }")
        .start();
    let mut client = gateway.connect();
    for at in 0..100 {
        let answer = client.ask(call_body("1", READ, "[]"));
        answer.assert_result("1", if at % 4 == 3 { "\"second\"" } else { "\"first\"" });
    }
    assert_eq!((state(&gateway, "a"), first.count()), (0, 100));
}

#[test]
fn one_probe_among_many_calls_at_once_round_after_round() {
    let failing = Arc::new(AtomicU16::new(1));
    let fails = failing.clone();
    let first = Upstream::start(move |seen| match fails.load(Ordering::SeqCst) {
        1 => Reply::json(500, "no"),
        _ => Reply::result(seen, "\"first\""),
    });
    let second = Upstream::answering("\"second\"");
    let gateway = Setup::of(&[&first, &second])
        .circuit("consecutive_failures = 1\ncooldown = \"100ms\"\nmax_cooldown = \"100ms\"")
        .start();
    gateway.call(READ, "[]").assert_result("1", "\"second\"");
    let mut clients: Vec<_> = (0..64).map(|_| gateway.connect()).collect();
    let mut round = || {
        for client in &mut clients {
            client.post("/eth", &[], call_body("1", READ, "[]"));
        }
        clients.iter_mut().map(|client| client.response()).filter(|answer| answer.result() == "\"first\"").count()
    };
    let until = Instant::now() + Duration::from_secs(30);
    while first.count() < 7 {
        assert!(Instant::now() < until, "{} probes", first.count() - 1);
        assert_eq!(round(), 0, "no caller sees a failed probe");
    }
    let times: Vec<Instant> = first.seen().iter().map(|seen| seen.at).collect();
    for pair in times.windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_millis(85), "two probes in one cooldown: {:?}", pair[1] - pair[0]);
    }
    let probes = first.count() as u64 - 1;
    assert_eq!((transitions(&gateway, "cooldown_over"), transitions(&gateway, "probe_failed")), (probes, probes));
    failing.store(0, Ordering::SeqCst);
    while round() < 64 {
        assert!(Instant::now() < until, "never closed");
    }
    assert_eq!((state(&gateway, "a"), transitions(&gateway, "probe_succeeded")), (0, 1));
}

#[test]
fn the_cooldown_of_a_black_hole_doubles() {
    // Its probes end by timeout, and deadlines fire late: the permit must outlive them.
    let (hole, good) = (Upstream::start(|_| Reply::hang()), Upstream::answering("2"));
    let gateway = Setup::of(&[&hole, &good])
        .route("attempt_timeout = \"200ms\"")
        .circuit("consecutive_failures = 1\ncooldown = \"50ms\"\nmax_cooldown = \"30s\"")
        .start();
    gateway.wait_for_metrics("three failed probes", |metrics| {
        gateway.call("eth_call", "[]").assert_result("1", "2");
        let labels = ["endpoint=\"a\"", "reason=\"probe_failed\""];
        metrics.sum("ringway_circuit_transitions_total", &labels) >= 3
    });
}
