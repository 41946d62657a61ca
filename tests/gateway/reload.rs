//! SIGHUP: the new file is taken whole, or nothing changes; nobody who is being served notices.

use super::harness::{Setup, Upstream, call_body};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// Asks until the answer is as wanted: a shard takes a new Snapshot within a tick.
#[track_caller]
fn until_answered_by(gateway: &super::harness::Gateway, result: &str) {
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
fn a_broken_file_changes_nothing_and_says_what_is_wrong() {
    let a = Upstream::answering("1");
    let gateway = Setup::of(&[&a]).start();
    for _ in 0..20 {
        assert!(!gateway.reload(&Setup::of(&[&a]).targets("[\"nobody\"]").route("max_attemps = 2")));
        assert!(!gateway.reload_text("[server\nlisten = 3"));
        assert_eq!(gateway.call("eth_call", "[]").result(), "1");
    }
    let log = gateway.log();
    assert!(log.contains("nobody") && log.contains("max_attempts"), "{log}");
    assert!(log.contains("nothing changed"), "{log}");
    assert!(gateway.reload(&Setup::of(&[&a])), "a mended file is taken");
}

#[test]
fn what_needs_a_restart_is_refused_by_name() {
    let a = Upstream::answering("1");
    let gateway = Setup::of(&[&a]).start();
    assert!(!gateway.reload(&Setup::of(&[&a]).shards(1).server("max_connections = 7")));
    let log = gateway.log();
    assert!(log.contains("server.shards") && log.contains("server.max_connections"), "{log}");
    assert!(!log.contains("server.listen:"), "{log}");
    assert_eq!(gateway.call("eth_call", "[]").result(), "1");
}

#[test]
fn no_request_is_lost_while_files_change() {
    let (a, b) = (Upstream::answering("1"), Upstream::answering("2"));
    let setup = || Setup::of(&[&a, &b]);
    let gateway = setup().targets("[\"a\"]").start();
    let (over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = gateway.connect();
                while !over.load(Ordering::Relaxed) {
                    let result = client.ask(call_body("7", "eth_call", "[]")).result();
                    assert!(result == "1" || result == "2", "{result}");
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..100 {
            let target = if round % 2 == 0 { "[\"b\"]" } else { "[\"a\"]" };
            assert!(gateway.reload(&setup().targets(target)));
            if round % 10 == 0 {
                assert!(!gateway.reload_text("nonsense ="));
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(a.count() + b.count(), asked.load(Ordering::Relaxed));
    assert!(a.count() > 0 && b.count() > 0);
    let metrics = gateway.metrics();
    let counted = metrics.sum("ringway_calls_total", &["outcome=\"ok\""]);
    assert_eq!(counted, asked.load(Ordering::Relaxed) as u64, "counters go on");
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
