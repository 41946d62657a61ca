//! SIGHUP: the new file is taken whole, or nothing changes; nobody who is being served notices.

use super::circuit::OnDrop;
use super::harness::{Gateway, Setup, Upstream, call_body};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// Asks until the answer is as wanted: a shard takes a new Snapshot within a tick.
#[track_caller]
fn until_answered_by(gateway: &Gateway, result: &str) {
    let until = Instant::now() + super::harness::PATIENCE;
    while gateway.call("eth_call", "[]").result() != result {
        assert!(Instant::now() < until, "never answered {result}");
    }
}

#[test]
fn a_good_file_moves_the_traffic() {
    let (a, b) = (Upstream::answering("1"), Upstream::answering("2"));
    let setup = || Setup::of(&[&a, &b]);
    let gateway = setup().targets("[\"a\"]").start();
    assert_eq!(gateway.call("eth_call", "[]").result(), "1");
    assert!(gateway.reload(&setup().targets("[\"b\"]")));
    until_answered_by(&gateway, "2");
}

#[test]
fn a_connection_that_waits_takes_the_new_file_for_its_next_request() {
    let (a, b) = (Upstream::answering("1"), Upstream::answering("2"));
    let gateway = Setup::of(&[&a]).shards(1).start();
    let mut waiting: Vec<_> = (0..8).map(|_| gateway.connect()).collect();
    for client in &mut waiting {
        client.ask(call_body("1", "eth_call", "[]")).assert_result("1", "1");
    }
    // The same Endpoint at another place: nothing of the old one is of use any more.
    assert!(gateway.reload(&Setup::of(&[&b]).shards(1)));
    until_answered_by(&gateway, "2");
    gateway.wait_for_metrics("connections to the old place to be closed", |now| {
        now.of("ringway_endpoint_connections", "a") <= 1
    });
    let before = a.count();
    for client in &mut waiting {
        client.ask(call_body("1", "eth_call", "[]")).assert_result("1", "2");
    }
    assert_eq!(a.count(), before);
}

#[test]
fn all_that_is_wrong_with_a_file_is_said_at_once() {
    let a = Upstream::answering("1");
    let gateway = Setup::of(&[&a]).start();
    assert!(!gateway.reload(&Setup::of(&[&a]).targets("[\"nobody\"]").route("max_attemps = 2")));
    assert_eq!(gateway.call("eth_call", "[]").result(), "1");
    let log = gateway.log();
    assert!(log.contains("nobody") && log.contains("max_attempts") && log.contains("nothing changed"), "{log}");
}

#[test]
fn what_needs_a_restart_is_refused_by_name() {
    let a = Upstream::answering("1");
    let gateway = Setup::of(&[&a]).start();
    assert!(!gateway.reload(&Setup::of(&[&a]).shards(1).server("max_connections = 7")));
    let log = gateway.log();
    let text = Setup::of(&[&a]).shards(1).server("max_connections = 7").text();
    for (key, typed) in [("server.shards", "shards = 1"), ("server.max_connections", "max_connections = 7")] {
        let line = text.lines().position(|line| line == typed).unwrap() + 1;
        let column = typed.len();
        assert!(log.contains(&format!("ringway.toml:{line}:{column}: {key}: can't be changed by a reload")), "{log}");
    }
    assert!(!log.contains("server.listen:"), "{log}");
    assert_eq!(gateway.call("eth_call", "[]").result(), "1");
}

/// Callers that ask all the time, over connections that they keep and over fresh ones; each answer must come.
fn under_load(gateway: &Gateway, change: impl FnOnce(&AtomicUsize)) -> usize {
    let (over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for caller in 0..6 {
            let (over, asked) = (&over, &asked);
            scope.spawn(move || {
                let mut client = gateway.connect();
                while !over.load(Ordering::Relaxed) {
                    if caller >= 4 {
                        client = gateway.connect();
                    }
                    let method = ["eth_call", "eth_sendTransaction"][caller % 2];
                    let result = client.ask(call_body("7", method, "[]")).result();
                    assert!(result == "1" || result == "2", "{result}");
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _end = OnDrop(|| over.store(true, Ordering::Relaxed));
        change(&asked);
    });
    asked.into_inner()
}

/// Waits until so many more requests were answered.
#[track_caller]
fn and_more(asked: &AtomicUsize, more: usize) {
    let (wanted, until) = (asked.load(Ordering::Relaxed) + more, Instant::now() + super::harness::PATIENCE);
    while asked.load(Ordering::Relaxed) < wanted {
        assert!(Instant::now() < until, "nothing is answered any more");
        std::thread::yield_now();
    }
}

#[test]
fn no_request_is_lost_while_a_hundred_files_come() {
    let (a, b) = (Upstream::answering("1"), Upstream::answering("2"));
    let setup = || Setup::of(&[&a, &b]);
    let gateway = setup().targets("[\"a\"]").start();
    let asked = under_load(&gateway, |asked| {
        for round in 0..100 {
            let (target, node) = if round % 2 == 0 { ("[\"b\"]", &b) } else { ("[\"a\"]", &a) };
            let before = node.count();
            assert!(gateway.reload(&setup().targets(target)));
            and_more(asked, 20);
            node.wait_for(before + 1);
        }
    });
    assert!(asked >= 2_000, "{asked}");
    assert_eq!(a.count() + b.count(), asked, "each reached a node, and one only");
    let metrics = gateway.metrics();
    assert_eq!(metrics.sum("ringway_calls_total", &["outcome=\"ok\""]), asked as u64, "counters go on");
    assert_eq!(metrics.sum("ringway_calls_total", &[]), asked as u64);
    assert_eq!(gateway.log().matches("\"reloaded\"").count(), 100);
}

#[test]
fn a_hundred_broken_files_change_nothing_under_load_and_the_log_says_what_is_wrong() {
    let (a, b) = (Upstream::answering("1"), Upstream::answering("2"));
    let setup = || Setup::of(&[&a, &b]);
    let gateway = setup().targets("[\"a\"]").start();
    // Each would move the traffic to `b`, were it taken in part.
    let moved = |round: usize| setup().targets("[\"b\"]").text() + &format!("max_attempts = {}\n", round + 100);
    let asked = under_load(&gateway, |asked| {
        for round in 0..100 {
            let (broken, word) = match round % 4 {
                0 => (moved(round), "max_attempts"),
                1 => (moved(1).replacen("[[gateway]]", "[[gatewai]]", 1), "gatewai"),
                2 => (setup().targets("[\"b\", \"nobody\"]").text(), "nobody"),
                _ => (setup().targets("[\"b\"]").text() + "[server\n", "ringway.toml:"),
            };
            let before = gateway.log().lines().count();
            assert!(!gateway.reload_text(&broken));
            let log = gateway.log();
            let told = log.lines().skip(before);
            assert!(told.clone().any(|line| line.contains(word) && line.contains("ERROR")), "{word}: {log}");
            and_more(asked, 20);
        }
    });
    assert!(asked >= 2_000, "{asked}");
    assert_eq!((a.count(), b.count()), (asked, 0));
    assert_eq!(a.connections() as u64, gateway.metrics().of("ringway_endpoint_connects_total", "a"));
    assert_eq!(gateway.log().matches("reload refused: nothing changed").count(), 100);
    assert!(gateway.reload(&setup().targets("[\"b\"]")), "a mended file is taken");
    until_answered_by(&gateway, "2");
}

#[test]
fn pools_stay_unless_the_way_to_the_endpoint_changes() {
    let a = Upstream::answering("1");
    let gateway = Setup::of(&[&a]).shards(1).start();
    let mut client = gateway.connect();
    client.ask(call_body("1", "eth_call", "[]")).assert_result("1", "1");
    assert!(gateway.reload(&Setup::of(&[&a]).shards(1).route("attempt_timeout = \"3s\"")));
    client.ask(call_body("1", "eth_call", "[]")).assert_result("1", "1");
    assert!(gateway.reload(&Setup::of(&[&a]).shards(1).endpoint(0, "headers = { X-Key = \"new\" }")));
    let until = Instant::now() + super::harness::PATIENCE;
    while a.seen().last().and_then(|seen| seen.header("X-Key")).as_deref() != Some("new") {
        client.ask(call_body("1", "eth_call", "[]")).assert_result("1", "1");
        assert!(Instant::now() < until);
    }
    assert_eq!(a.connections(), 2, "one for each way to reach it");
}

#[test]
fn an_open_circuit_stays_open_until_the_endpoint_moves() {
    let (bad, good) = (Upstream::start(|_| super::harness::Reply::close()), Upstream::answering("2"));
    let setup = |at: &Upstream| {
        Setup::of(&[at, &good]).circuit("consecutive_failures = 2\ncooldown = \"30s\"\nmax_cooldown = \"30s\"")
    };
    let gateway = setup(&bad).start();
    for _ in 0..2 {
        gateway.call("eth_call", "[]");
    }
    gateway.wait_for_metrics("an open Circuit", |metrics| metrics.of("ringway_circuit_state", "a") == 1);
    assert!(gateway.reload(&setup(&bad).route("attempt_timeout = \"3s\"")));
    let seen = bad.count();
    for _ in 0..10 {
        assert_eq!(gateway.call("eth_call", "[]").result(), "2");
    }
    assert_eq!(bad.count(), seen);
    let moved = Upstream::answering("3");
    assert!(gateway.reload(&setup(&moved)));
    until_answered_by(&gateway, "3");
}
