//! Rests and budgets: a busy Endpoint is left alone for as long as it asks, and one with a budget gets no more.

use super::harness::{Gateway, Reply, Setup, Upstream, call_body};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const READ: &str = "eth_call";

fn rests(gateway: &Gateway, endpoint: &str) -> (u64, u64) {
    let metrics = gateway.metrics();
    (metrics.of("ringway_rests_total", endpoint), metrics.of("ringway_endpoint_resting", endpoint))
}

/// A node that is busy while its number is over 0, and counts it down; it asks for a wait of so many seconds.
fn node(name: &'static str, wait: Option<u64>) -> (Arc<AtomicU64>, Upstream) {
    let busy = Arc::new(AtomicU64::new(0));
    let left = busy.clone();
    let upstream = Upstream::start(move |seen| {
        let taken = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match (taken, wait) {
            (Err(_), _) => Reply::result(seen, &format!("\"{name}\"")),
            (Ok(_), None) => Reply::http(429, &[], "<html>"),
            (Ok(_), Some(wait)) => Reply::http(429, &[&format!("Retry-After: {wait}")], "<html>"),
        }
    });
    (busy, upstream)
}

#[test]
fn a_busy_endpoint_rests_as_long_as_it_asks_and_no_caller_notices() {
    let ((busy, first), (_, second)) = (node("first", Some(2)), node("second", None));
    let gateway = Setup::of(&[&first, &second]).circuit("consecutive_failures = 1").start();
    (0..20).for_each(|_| gateway.call(READ, "[]").assert_result("1", "\"first\""));
    busy.store(1, Ordering::SeqCst);
    gateway.call(READ, "[]").assert_result("1", "\"second\"");
    let refused = first.seen()[20].at;
    assert_eq!((rests(&gateway, "a"), rests(&gateway, "b")), ((1, 1), (0, 0)), "exactly that one");
    // Callers on both shards, for every class of operation.
    let mut client = gateway.connect();
    let mut asked = 0;
    loop {
        let method = ["eth_call", "eth_sendRawTransaction", "eth_newFilter", "eth_sendTransaction"][asked % 4];
        let answer =
            if asked % 16 == 0 { gateway.call(method, "[]") } else { client.ask(call_body("1", method, "[]")) };
        assert!(answer.json().get("error").is_none(), "{answer:?}");
        asked += 1;
        if answer.result() == "\"first\"" {
            break;
        }
    }
    let back = first.seen()[21].at - refused;
    assert!((Duration::from_millis(1_990)..Duration::from_millis(2_500)).contains(&back), "{back:?}");
    assert!(asked > 20, "{asked}");
    let metrics = gateway.metrics();
    assert_eq!((rests(&gateway, "a"), metrics.of("ringway_circuit_state", "a")), ((1, 0), 0), "no failure, no probe");
    assert_eq!(metrics.sum("ringway_circuit_transitions_total", &[]), 0);
}

#[test]
fn unasked_it_rests_a_second_once_a_tenth_of_its_last_answers_were_busy() {
    let ((busy, first), (_, second)) = (node("first", None), node("second", None));
    let gateway = Setup::of(&[&first, &second]).start();
    // On a slow machine the second is over before the answers are there: then it is tried again.
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < until, "too slow to count within a second");
        let mut clients = [gateway.connect(), gateway.connect(), gateway.connect(), gateway.connect()];
        let (before, began) = (first.count(), Instant::now());
        let rested = rests(&gateway, "a").0;
        let mut asked = 0;
        let mut ask = |expected: &str| {
            asked += 1;
            let answer = clients[asked % 4].ask(call_body("1", READ, "[]"));
            assert_eq!(answer.result(), expected);
        };
        (0..200).for_each(|_| ask("\"first\""));
        busy.store(20, Ordering::SeqCst);
        (0..20).for_each(|_| ask("\"second\""));
        let quick = began.elapsed() < Duration::from_millis(900);
        if !quick {
            busy.store(0, Ordering::SeqCst);
            wait_until_it_is_back(&gateway);
            continue;
        }
        // 20 of 220 are under a tenth; 23 of 223 are over it.
        assert_eq!((first.count() - before, rests(&gateway, "a")), (220, (rested, 0)));
        busy.store(10, Ordering::SeqCst);
        (0..10).for_each(|_| ask("\"second\""));
        if began.elapsed() < Duration::from_millis(900) {
            let rested_ns = first.seen()[before + 222].at;
            assert_eq!((first.count() - before, rests(&gateway, "a").0), (223, rested + 1));
            busy.store(0, Ordering::SeqCst);
            wait_until_it_is_back(&gateway);
            let rest = first.seen()[before + 223].at - rested_ns;
            assert!((Duration::from_millis(990)..Duration::from_millis(1_500)).contains(&rest), "{rest:?}");
            return;
        }
        busy.store(0, Ordering::SeqCst);
        wait_until_it_is_back(&gateway);
    }
}

fn wait_until_it_is_back(gateway: &Gateway) {
    let mut client = gateway.connect();
    while client.ask(call_body("1", READ, "[]")).result() != "\"first\"" {}
}

#[test]
fn rests_are_bounded_and_dates_are_understood() {
    let long = Upstream::start(|_| Reply::http(503, &["Retry-After: 86400"], "busy"));
    let past = Upstream::start(|_| Reply::http(429, &["Retry-After: Sun, 06 Nov 1994 08:49:37 GMT"], "busy"));
    let future = Upstream::start(|_| Reply::http(429, &["Retry-After: Thu, 31 Dec 2099 23:59:59 GMT"], "busy"));
    let gateway = Setup::of(&[&long, &past, &future])
        .circuit("cooldown = \"1s\"\nmax_cooldown = \"20s\"")
        .another("long", "[\"a\"]", "")
        .another("past", "[\"b\"]", "")
        .another("future", "[\"c\"]", "")
        .start();
    let body = call_body("1", READ, "[]");
    for path in ["/long", "/past", "/future"] {
        gateway.post_to(path, &body).assert_fault(502, "1", -32052);
    }
    for path in ["/long", "/future"] {
        let answer = gateway.post_to(path, &body);
        answer.assert_fault(503, "1", -32051);
        let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((18..=20).contains(&wait) && answer.attempts() == 0, "{answer:?}");
    }
    gateway.post_to("/past", &body).assert_fault(502, "1", -32052);
    assert_eq!((long.count(), past.count(), future.count()), (1, 2, 1));
    assert_eq!(gateway.admin_get("/readyz?gateway=long", &[]).status, 503);
}

#[test]
fn a_budget_is_kept_over_all_shards_and_the_rest_goes_elsewhere() {
    let ((_, first), (_, second)) = (node("first", None), node("second", None));
    let gateway = Setup::of(&[&first, &second]).endpoint(0, "rps = 5\nburst = 5").start();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = gateway.connect();
                let until = Instant::now() + Duration::from_millis(1_600);
                while Instant::now() < until {
                    let answer = client.ask(call_body("1", READ, "[]"));
                    assert!(answer.json().get("error").is_none(), "{answer:?}");
                }
            });
        }
    });
    let times: Vec<Instant> = first.seen().iter().map(|seen| seen.at).collect();
    assert!(times.len() >= 10, "it is used up: {}", times.len());
    for (at, time) in times.iter().enumerate() {
        // What stands between the start of an attempt and its last byte at the node is not the gateway's alone.
        let most = 5.0 + 5.0 * (*time - times[0] + Duration::from_millis(100)).as_secs_f64();
        assert!((at + 1) as f64 <= most, "{} within {:?}", at + 1, *time - times[0]);
    }
    assert!(second.count() > times.len());
    let metrics = gateway.metrics();
    assert_eq!(metrics.attempts("a", "ok"), times.len() as u64);
    assert_eq!(metrics.sum("ringway_circuit_transitions_total", &[]), 0, "no failure");
}

#[test]
fn when_all_budgets_are_spent_the_caller_hears_when_to_come_back() {
    let ((_, first), (_, second)) = (node("first", None), node("second", None));
    let gateway =
        Setup::of(&[&first, &second]).endpoint(0, "rps = 1\nburst = 1").endpoint(1, "rps = 1\nburst = 2").start();
    gateway.call("eth_sendTransaction", "[]").assert_result("1", "\"first\"");
    (0..2).for_each(|_| gateway.call("eth_sendTransaction", "[]").assert_result("1", "\"second\""));
    let answer = gateway.call("eth_sendTransaction", "[]");
    answer.assert_fault(503, "1", -32051);
    assert_eq!((answer.attempts(), answer.header("retry-after").as_deref()), (0, Some("1")));
    let wait = answer.json()["error"]["data"]["retry_after_ms"].as_u64().unwrap();
    assert!((1..=1_000).contains(&wait), "{wait}");
    assert_eq!((first.count(), second.count()), (1, 2));
    assert_eq!(gateway.admin_get("/readyz?gateway=eth", &[]).status, 200, "it is usable, only not at this moment");
    // What is refused is not charged: the budget is there again when it was told.
    let spent = first.seen()[0].at;
    let mut client = gateway.connect();
    while client.ask(call_body("1", READ, "[]")).json().get("result").is_none() {}
    let back = first.seen().get(1).or(second.seen().get(2)).unwrap().at - spent;
    assert!((Duration::from_millis(980)..Duration::from_millis(1_500)).contains(&back), "{back:?}");
}

#[test]
fn a_reload_keeps_rests_and_what_is_left_of_a_budget() {
    let ((busy, first), (_, second)) = (node("first", Some(20)), node("second", None));
    let setup = || Setup::of(&[&first, &second]).endpoint(1, "rps = 1\nburst = 3");
    let gateway = setup().start();
    busy.store(1, Ordering::SeqCst);
    gateway.call(READ, "[]").assert_result("1", "\"second\"");
    assert!(gateway.reload(&setup().route("max_attempts = 2")));
    (0..2).for_each(|_| gateway.call(READ, "[]").assert_result("1", "\"second\""));
    gateway.call(READ, "[]").assert_fault(503, "1", -32051);
    assert_eq!(first.count(), 1);
}
