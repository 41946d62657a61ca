//! Host names: addresses that change, resolvers that are dead, names that nobody knows, and addresses that don't answer.

use super::circuit::OnDrop;
use super::dns::{Dns, Mood};
use super::harness::{FullPort, Gate, Gateway, PATIENCE, Reply, Setup, Upstream, call_body};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const NODE: &str = "node.test";

/// Listeners on these addresses, all on one port.
fn on_one_port<const N: usize>(addresses: [&str; N]) -> [TcpListener; N] {
    for _ in 0..100 {
        let first = TcpListener::bind((addresses[0], 0)).unwrap();
        let port = first.local_addr().unwrap().port();
        let rest: Vec<_> =
            addresses[1..].iter().map_while(|address| TcpListener::bind((*address, port)).ok()).collect();
        let all: Vec<TcpListener> = [first].into_iter().chain(rest).collect();
        if let Ok(all) = all.try_into() {
            return all;
        }
    }
    panic!("no port is free on all of {addresses:?}");
}

/// Endpoints at these authorities, whose names this server knows.
fn setup(dns: &Dns, authorities: &[&str]) -> Setup {
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
    let all = authorities.iter().enumerate();
    all.fold(Setup::at(&vec![nowhere; authorities.len()]).server(&dns.setting()), |setup, (at, authority)| {
        setup.endpoint(at, &format!("url = \"http://{authority}\""))
    })
}

fn node(port: u16) -> String {
    format!("{NODE}:{port}")
}

#[track_caller]
fn until_answered_by(gateway: &Gateway, result: &str) {
    let until = Instant::now() + 2 * PATIENCE;
    loop {
        let answer = gateway.call("eth_call", "[]");
        if answer.body.contains(&format!("\"result\":{result}")) {
            return;
        }
        assert!(Instant::now() < until, "never answered {result}:\n{}", gateway.log());
    }
}

/// Callers that ask all the time; each answer must be one of these. How many were asked.
fn under_load(gateway: &Gateway, results: &[&str], change: impl FnOnce()) -> usize {
    let (over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let (over, asked) = (&over, &asked);
            scope.spawn(move || {
                let mut client = gateway.connect();
                while !over.load(Ordering::Relaxed) {
                    if caller == 3 {
                        client = gateway.connect();
                    }
                    let method = ["eth_call", "eth_sendTransaction"][caller % 2];
                    let result = client.ask(call_body("7", method, "[]")).result();
                    assert!(results.contains(&result.as_str()), "{result}");
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _end = OnDrop(|| over.store(true, Ordering::Relaxed));
        change();
    });
    asked.into_inner()
}

#[test]
fn a_name_that_moves_takes_the_traffic_with_it_and_no_call_is_lost() {
    let [one, other] = on_one_port(["127.0.0.2", "127.0.0.3"]);
    let port = one.local_addr().unwrap().port();
    let (a, b) = (Upstream::on(one, "1"), Upstream::on(other, "2"));
    let dns = Dns::start();
    dns.says(NODE, &["127.0.0.2"], 1);
    let gateway = setup(&dns, &[&node(port)]).start();
    let asked = under_load(&gateway, &["1", "2"], || {
        a.wait_for(100);
        assert_eq!(b.count(), 0);
        dns.says(NODE, &["127.0.0.3"], 1);
        let moved = Instant::now();
        b.wait_for(1);
        assert!(moved.elapsed() < Duration::from_secs(2), "{:?}: more than the TTL and a second", moved.elapsed());
        a.wait_for_open(0);
        let before = (a.count(), b.count());
        b.wait_for(before.1 + 100);
        assert_eq!(a.count(), before.0, "the old place gets nothing more");
        dns.says(NODE, &["127.0.0.2"], 1);
        a.wait_for(before.0 + 100);
    });
    let metrics = gateway.metrics();
    assert_eq!(a.count() + b.count(), asked);
    assert_eq!((metrics.calls("ok"), metrics.attempts("a", "")), (asked as u64, asked as u64), "counters go on");
    assert!(metrics.sum("ringway_dns_lookups_total", &["outcome=\"ok\""]) >= 3);
    assert_eq!(metrics.sum("ringway_dns_lookups_total", &["outcome=\"failed\""]), 0);
}

#[test]
fn a_dead_resolver_costs_nothing_until_it_is_back() {
    std::thread::scope(|scope| {
        for mood in [Mood::Failing, Mood::Silent, Mood::Closed] {
            scope.spawn(move || dead_resolver(mood));
        }
    });
}

fn dead_resolver(mood: Mood) {
    let [one, other] = on_one_port(["127.0.0.2", "127.0.0.3"]);
    let port = one.local_addr().unwrap().port();
    let (_a, _b) = (Upstream::on(one, "1"), Upstream::on(other, "2"));
    let dns = Dns::start();
    dns.says(NODE, &["127.0.0.2"], 1);
    let gateway = setup(&dns, &[&node(port)]).start();
    dns.is(mood);
    under_load(&gateway, &["1"], || {
        gateway.wait_for_metrics("a look-up that failed", |metrics| {
            metrics.sum("ringway_dns_lookups_total", &["outcome=\"failed\""]) >= 1
        });
        // The passing of time is what is tested: twice the TTL.
        std::thread::sleep(Duration::from_secs(2));
    });
    dns.says(NODE, &["127.0.0.3"], 1);
    dns.is(Mood::Answering);
    until_answered_by(&gateway, "2");
    gateway.wait_for_log("can be looked up again");
    let log = gateway.log();
    assert_eq!(log.matches("can't be looked up").count(), 1, "{mood:?}: one line for one incident:\n{log}");
    assert_eq!(log.matches("can be looked up again").count(), 1, "{log}");
    assert!(log.contains("\"endpoints\":\"a\""), "{log}");
}

/// Calls over connections of their own, so that both shards get some; all are answered, each by one attempt.
fn all_are_answered(gateway: &Gateway, calls: usize, within: Duration) {
    for _ in 0..calls {
        let begun = Instant::now();
        gateway.call("eth_sendTransaction", "[]").assert_result("1", "1");
        assert!(begun.elapsed() < within, "{:?}", begun.elapsed());
    }
    let metrics = gateway.metrics();
    assert_eq!((metrics.attempts("a", "ok"), metrics.attempts("a", "")), (calls as u64, calls as u64));
}

#[test]
fn an_address_that_refuses_is_passed_over_within_the_attempt() {
    let [refusing, good] = on_one_port(["127.0.0.2", "127.0.0.3"]);
    let port = good.local_addr().unwrap().port();
    // Bound and not listening: nobody else can begin to.
    let closed = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    drop(refusing);
    closed.bind(&SocketAddr::from(([127, 0, 0, 2], port)).into()).unwrap();
    let upstream = Upstream::on(good, "1");
    let dns = Dns::start();
    dns.says(NODE, &["127.0.0.2", "127.0.0.3"], 60);
    let gateway = setup(&dns, &[&node(port)]).endpoint(0, "max_age = \"1ms\"").start();
    all_are_answered(&gateway, 40, Duration::from_secs(2));
    assert_eq!(upstream.count(), 40);
}

#[test]
fn an_address_that_swallows_packets_leaves_time_for_the_next() {
    let [taken, good] = on_one_port(["127.0.0.2", "127.0.0.3"]);
    let at = taken.local_addr().unwrap();
    drop(taken);
    let _full = FullPort::at(at);
    let _upstream = Upstream::on(good, "1");
    let dns = Dns::start();
    dns.says(NODE, &["127.0.0.2", "127.0.0.3"], 60);
    let gateway = setup(&dns, &[&node(at.port())]).endpoint(0, "connect_timeout = \"2s\"").start();
    all_are_answered(&gateway, 40, Duration::from_secs(2));
}

#[test]
fn connections_go_round_the_addresses_and_answers_that_turn_close_none() {
    let [one, other] = on_one_port(["127.0.0.2", "127.0.0.3"]);
    let port = one.local_addr().unwrap().port();
    let gate = Gate::default();
    let held = |listener, gate: &Gate| {
        let gate = gate.clone();
        Upstream::serving(listener, b"", move |seen| Reply::after(&gate, Reply::result(seen, "1")))
    };
    let (a, b) = (held(one, &gate), held(other, &gate));
    let dns = Dns::start();
    dns.says(NODE, &["127.0.0.2", "127.0.0.3"], 1);
    let gateway = setup(&dns, &[&node(port)]).shards(1).start();
    let mut clients: Vec<_> = (0..8).map(|_| gateway.connect()).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        client.post("/eth", &[], call_body("1", "eth_call", "[]"));
        let until = Instant::now() + PATIENCE;
        while a.count() + b.count() <= at {
            assert!(Instant::now() < until);
            std::thread::yield_now();
        }
    }
    assert_eq!((a.count(), b.count()), (4, 4));
    gate.open();
    clients.iter_mut().for_each(|client| client.response().assert_result("1", "1"));
    let before = dns.asked_for(NODE);
    let until = Instant::now() + PATIENCE;
    while dns.asked_for(NODE) < before + 4 {
        assert!(Instant::now() < until, "the TTL is not kept");
        gateway.call("eth_call", "[]").assert_result("1", "1");
    }
    assert_eq!((a.open(), b.open(), a.connections() + b.connections()), (4, 4, 8));
}

#[test]
fn a_name_that_nobody_knows_is_not_sent_and_is_used_once_it_appears() {
    let a = Upstream::answering("1");
    let b = Upstream::answering("2");
    let dns = Dns::start();
    let begun = Instant::now();
    let gateway = setup(&dns, &[&node(a.address.port()), &b.address.to_string()])
        .no_circuit()
        .another("alone", "[\"a\"]", "")
        .start();
    assert!(begun.elapsed() < PATIENCE);
    gateway.call("eth_sendTransaction", "[]").assert_result("1", "2");
    let alone = gateway.post_to("/alone", call_body("1", "eth_sendTransaction", "[]"));
    alone.assert_fault(502, "1", -32052);
    assert_eq!(alone.reason(), "dns");
    assert_eq!(gateway.metrics().attempts("a", "dns"), 2);
    dns.says(NODE, &["127.0.0.1"], 60);
    until_answered_by(&gateway, "1");
}

#[test]
fn a_resolver_that_says_nothing_does_not_keep_a_gateway_from_starting() {
    let a = Upstream::answering("1");
    let dns = Dns::start();
    dns.is(Mood::Silent);
    let begun = Instant::now();
    let gateway = setup(&dns, &[&node(80), &a.address.to_string()]).start();
    gateway.call("eth_call", "[]").assert_result("1", "1");
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[test]
fn ipv6_by_address_and_by_name_and_this_machine_by_its_own() {
    let upstream = Upstream::on(TcpListener::bind("[::1]:0").unwrap(), "6");
    let port = upstream.address.port();
    let dns = Dns::start();
    dns.says(NODE, &["::1"], 60);
    for authority in [format!("[::1]:{port}"), node(port), format!("x.localhost:{port}")] {
        let gateway = setup(&dns, &[&authority]).start();
        gateway.call("eth_sendTransaction", "[]").assert_result("1", "6");
    }
    // The hosts file may know IPv6 for this one, or not: IPv6 is tried first then, and refuses.
    let v4 = Upstream::answering("4");
    for name in ["localhost", "x.localhost"] {
        let gateway = setup(&dns, &[&format!("{name}:{}", v4.address.port())]).start();
        gateway.call("eth_sendTransaction", "[]").assert_result("1", "4");
    }
    assert_eq!(dns.asked_for("localhost") + dns.asked_for("x.localhost"), 0, "nobody is asked");
}

#[test]
fn what_is_in_flight_to_the_old_address_is_delivered_and_then_its_connection_closes() {
    let [one, other] = on_one_port(["127.0.0.2", "127.0.0.3"]);
    let port = one.local_addr().unwrap().port();
    let gate = Gate::default();
    let held = gate.clone();
    let slow = Upstream::serving(one, b"", move |seen| Reply::after(&held, Reply::result(seen, "1")));
    let new = Upstream::on(other, "2");
    let dns = Dns::start();
    dns.says(NODE, &["127.0.0.2"], 1);
    let gateway = setup(&dns, &[&node(port)]).shards(1).route("attempt_timeout = \"60s\"").start();
    let mut first = gateway.connect();
    first.post("/eth", &[], call_body("1", "eth_sendTransaction", "[]"));
    slow.wait_for(1);
    dns.says(NODE, &["127.0.0.3"], 1);
    let until = Instant::now() + PATIENCE;
    // Those that still go to the old place wait there like the first; nobody reads their answers.
    let mut others = Vec::new();
    while new.count() == 0 {
        let mut other = gateway.connect();
        other.post("/eth", &[], call_body("2", "eth_call", "[]"));
        others.push(other);
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(slow.open() > 0);
    gate.open();
    first.response().assert_result("1", "1");
    slow.wait_for_open(0);
}

#[test]
fn a_reload_changes_who_is_asked_and_waits_for_new_names() {
    let [one, other] = on_one_port(["127.0.0.2", "127.0.0.3"]);
    let port = one.local_addr().unwrap().port();
    let (_a, _b) = (Upstream::on(one, "1"), Upstream::on(other, "2"));
    let (dns, next) = (Dns::start(), Dns::start());
    dns.says(NODE, &["127.0.0.2"], 300);
    next.says(NODE, &["127.0.0.3"], 300);
    next.says("new.test", &["127.0.0.2"], 300);
    let gateway = setup(&dns, &[&node(port)]).start();
    gateway.call("eth_call", "[]").assert_result("1", "1");
    assert!(gateway.reload(&setup(&next, &[&node(port)])));
    until_answered_by(&gateway, "2");
    assert!(gateway.reload(&setup(&next, &[&format!("new.test:{port}")])));
    until_answered_by(&gateway, "1");
    assert_eq!(gateway.metrics().attempts("a", "dns"), 0, "a new file begins with addresses");
}
