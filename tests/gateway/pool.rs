//! Connections to upstreams: used again, replaced once when stale, never shared with a late answer.

use super::harness::{Gate, Reply, Setup, Upstream, call_body};
use std::time::Duration;

const READ: &str = "eth_call";
const EFFECT: &str = "eth_sendTransaction";

#[test]
fn sequential_calls_use_one_connection_per_shard() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    for _ in 0..20 {
        let mut client = gateway.connect();
        for method in [READ, EFFECT, "eth_newFilter", "eth_sendRawTransaction", READ] {
            client.ask(call_body("1", method, "[]")).assert_result("1", "1");
        }
    }
    assert_eq!(node.count(), 100);
    assert_eq!(node.connections(), 2, "each of the two shards has its own");
    assert_eq!(gateway.metrics().of("ringway_endpoint_connects_total", "a"), 2);
}

#[test]
fn the_connection_that_was_used_last_is_used_first() {
    let gates: Vec<Gate> = (0..3).map(|_| Gate::default()).collect();
    let doors = gates.clone();
    let node = Upstream::start(move |seen| {
        let reply = Reply::result(seen, "1");
        match doors.get(seen.nth) {
            Some(door) => Reply::after(door, reply),
            None => reply,
        }
    });
    let gateway = Setup::of(&[&node]).shards(1).start();
    let mut clients: Vec<_> = (0..3).map(|_| gateway.connect()).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        client.post("/eth", &[], call_body("1", READ, "[]"));
        node.wait_for(at + 1);
    }
    assert_eq!(node.connections(), 3);
    for last in [2, 0, 1] {
        gates[last].open();
        clients[last].response().assert_result("1", "1");
        clients[last].ask(call_body("1", READ, "[]")).assert_result("1", "1");
        assert_eq!(node.seen().pop().unwrap().connection, last);
    }
    assert_eq!(node.connections(), 3);
}

/// A node that answers the first request of each connection, and dies on the second without a byte.
fn dying(reset: bool) -> Upstream {
    let firsts = std::sync::Mutex::new(std::collections::HashSet::new());
    Upstream::start(move |seen| {
        if firsts.lock().unwrap().insert(seen.connection) {
            return Reply::result(seen, &format!("\"connection {}\"", seen.connection));
        }
        if reset { Reply::reset() } else { Reply::close() }
    })
}

#[test]
fn a_stale_connection_is_replaced_once_for_what_may_be_sent_twice() {
    for reset in [false, true] {
        for method in [READ, "eth_sendRawTransaction"] {
            let (node, other) = (dying(reset), Upstream::answering("\"other\""));
            let gateway = Setup::of(&[&node, &other]).shards(1).circuit("consecutive_failures = 1").start();
            let mut client = gateway.connect();
            client.ask(call_body("1", method, "[]")).assert_result("1", "\"connection 0\"");
            client.ask(call_body("2", method, "[]")).assert_result("2", "\"connection 1\"");
            assert_eq!((node.count(), node.connections(), other.count()), (3, 2, 0));
            let seen = node.seen();
            assert_eq!(seen[1].text(), seen[2].text());
            let metrics = gateway.metrics();
            assert_eq!((metrics.attempts("a", "ok"), metrics.attempts("a", "")), (2, 2), "it was no attempt");
            assert_eq!(metrics.of("ringway_stale_connections_total", "a"), 1);
            assert_eq!(metrics.of("ringway_circuit_state", "a"), 0, "and no failure");
        }
    }
}

#[test]
fn the_replacement_is_not_replaced() {
    let node = Upstream::start(|seen| if seen.nth == 0 { Reply::result(seen, "1") } else { Reply::close() });
    let other = Upstream::answering("\"other\"");
    let gateway = Setup::of(&[&node, &other]).shards(1).no_circuit().start();
    let mut client = gateway.connect();
    client.ask(call_body("1", READ, "[]")).assert_result("1", "1");
    client.ask(call_body("2", READ, "[]")).assert_result("2", "\"other\"");
    assert_eq!((node.count(), node.connections(), other.count()), (3, 2, 1));
    assert_eq!(gateway.metrics().attempts("a", "connection_lost"), 1);
}

#[test]
fn a_stale_connection_is_not_replaced_for_effects() {
    for reset in [false, true] {
        for method in [EFFECT, "eth_newFilter", "acme_unknown"] {
            let (node, other) = (dying(reset), Upstream::answering("\"other\""));
            let gateway = Setup::of(&[&node, &other]).shards(1).no_circuit().start();
            let mut client = gateway.connect();
            client.ask(call_body("1", method, "[]")).assert_result("1", "\"connection 0\"");
            let answer = client.ask(call_body("2", method, "[]"));
            answer.assert_fault(200, "2", -32054);
            assert_eq!((answer.reason().as_str(), answer.attempts()), ("connection_lost", 1));
            assert_eq!((node.count(), node.connections(), other.count()), (2, 1, 0), "{method}: sent once");
            assert_eq!(gateway.metrics().of("ringway_stale_connections_total", "a"), 0);
        }
        // A notification is no less of an effect, whatever its method.
        let node = dying(reset);
        let gateway = Setup::of(&[&node]).shards(1).no_circuit().start();
        let mut client = gateway.connect();
        client.ask(call_body("1", READ, "[]")).assert_result("1", "\"connection 0\"");
        assert_eq!(client.ask(r#"{"method":"eth_call","params":[]}"#).status, 204);
        assert_eq!((node.count(), node.connections()), (2, 1));
    }
}

#[test]
fn a_lost_answer_of_which_a_byte_came_is_not_asked_for_again() {
    let node =
        Upstream::start(|seen| if seen.nth == 0 { Reply::result(seen, "1") } else { Reply::raw("H").then_close() });
    let gateway = Setup::of(&[&node]).shards(1).no_circuit().start();
    gateway.call(READ, "[]").assert_result("1", "1");
    gateway.call(READ, "[]").assert_fault(502, "1", -32052);
    assert_eq!((node.count(), node.connections()), (2, 1));
}

#[test]
fn a_connection_that_was_closed_while_idle_is_never_used() {
    for method in [READ, EFFECT] {
        let node = Upstream::answering("1");
        let gateway = Setup::of(&[&node]).shards(1).circuit("consecutive_failures = 1").start();
        let mut client = gateway.connect();
        for nth in 1..=4 {
            client.ask(call_body("1", method, "[]")).assert_result("1", "1");
            node.hang_up();
            assert_eq!((node.count(), node.connections()), (nth, nth), "{method}");
        }
        assert_eq!(gateway.metrics().of("ringway_stale_connections_total", "a"), 0, "seen before anything was sent");
    }
}

#[test]
fn an_effect_does_not_ride_a_connection_that_was_idle_for_a_second() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).shards(1).start();
    let mut client = gateway.connect();
    client.ask(call_body("1", EFFECT, "[]")).assert_result("1", "1");
    client.ask(call_body("1", EFFECT, "[]")).assert_result("1", "1");
    assert_eq!(node.connections(), 1);
    // The passing of time is what is tested.
    std::thread::sleep(Duration::from_millis(1_050));
    client.ask(call_body("1", READ, "[]")).assert_result("1", "1");
    assert_eq!(node.connections(), 1, "a read may");
    std::thread::sleep(Duration::from_millis(1_050));
    for method in [EFFECT, "acme_unknown"] {
        client.ask(call_body("1", method, "[]")).assert_result("1", "1");
        assert_eq!(node.seen().pop().unwrap().connection, 1, "{method}");
    }
    assert_eq!(node.connections(), 2);
}

#[test]
fn an_effect_gets_a_fresh_connection_even_if_the_pool_is_full_of_idle_ones() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).shards(1).endpoint(0, "max_connections = 1").start();
    let mut client = gateway.connect();
    client.ask(call_body("1", EFFECT, "[]")).assert_result("1", "1");
    std::thread::sleep(Duration::from_millis(1_050));
    client.ask(call_body("1", EFFECT, "[]")).assert_result("1", "1");
    assert_eq!(node.connections(), 2);
    node.wait_for_open(1);
}

#[test]
fn idle_and_aged_connections_are_closed() {
    for setting in ["idle_timeout = \"100ms\"", "max_age = \"100ms\""] {
        let node = Upstream::answering("1");
        let gateway = Setup::of(&[&node]).endpoint(0, setting).start();
        gateway.call(READ, "[]").assert_result("1", "1");
        node.wait_for_open(0);
        gateway.call(READ, "[]").assert_result("1", "1");
        assert_eq!(node.connections(), 2, "{setting}");
    }
}

#[test]
fn calls_wait_for_a_connection_and_get_the_first_that_is_free() {
    let gate = Gate::default();
    let held = gate.clone();
    let node = Upstream::start(move |seen| Reply::after(&held, Reply::result(seen, &seen.id())));
    let gateway = Setup::of(&[&node]).shards(1).endpoint(0, "max_connections = 2\nqueue_timeout = \"15s\"").start();
    let mut clients: Vec<_> = (0..6).map(|_| gateway.connect()).collect();
    for (id, client) in clients.iter_mut().enumerate() {
        client.post("/eth", &[], call_body(&id.to_string(), EFFECT, "[]"));
        node.wait_for((id + 1).min(2));
    }
    gateway.call("admin_peers", "[]").assert_fault(200, "1", -32601);
    assert_eq!((node.count(), node.connections()), (2, 2));
    gate.open();
    for (id, client) in clients.iter_mut().enumerate() {
        client.response().assert_result(&id.to_string(), &id.to_string());
    }
    assert_eq!((node.count(), node.connections()), (6, 2));
}

#[test]
fn no_free_connection_is_not_sent_and_not_held_against_the_node() {
    let gate = Gate::default();
    let held = gate.clone();
    let node = Upstream::start(move |seen| Reply::after(&held, Reply::result(seen, "1")));
    let other = Upstream::answering("\"other\"");
    let gateway = Setup::of(&[&node, &other])
        .shards(1)
        .circuit("consecutive_failures = 1")
        .endpoint(0, "max_connections = 1\nqueue_timeout = \"50ms\"")
        .another("alone", "[\"a\"]", "")
        .start();
    let mut first = gateway.connect();
    first.post("/eth", &[], call_body("1", EFFECT, "[]"));
    node.wait_for(1);
    gateway.call(EFFECT, "[]").assert_result("1", "\"other\"");
    let answer = gateway.post_to("/alone", call_body("1", EFFECT, "[]"));
    answer.assert_fault(502, "1", -32052);
    assert_eq!(answer.reason(), "queue_timeout");
    gate.open();
    first.response().assert_result("1", "1");
    gateway.call(EFFECT, "[]").assert_result("1", "1");
    assert_eq!((node.count(), node.connections(), other.count()), (2, 1, 1));
}

#[test]
fn a_late_answer_never_reaches_another_caller() {
    let gate = Gate::default();
    let held = gate.clone();
    // Every call has the same id, so that nothing but the connection tells whose answer it is.
    let node = Upstream::start(move |seen| {
        let own = seen.json()["params"][0].to_string();
        let reply = Reply::result(seen, &own);
        if own.contains("late") { Reply::after(&held, reply) } else { reply }
    });
    let gateway = Setup::of(&[&node]).no_circuit().shards(1).route("attempt_timeout = \"300ms\"").start();
    let mut client = gateway.connect();
    for round in 0..5 {
        for method in [READ, EFFECT] {
            client
                .ask(call_body("1", method, &format!("[\"warm {round}\"]")))
                .assert_result("1", &format!("\"warm {round}\""));
            let answer = client.ask(call_body("1", method, &format!("[\"late {round}\"]")));
            assert!([-32053, -32054].contains(&answer.code()), "{answer:?}");
            client
                .ask(call_body("1", method, &format!("[\"next {round}\"]")))
                .assert_result("1", &format!("\"next {round}\""));
        }
    }
    assert_eq!(node.connections(), 11, "each timeout costs its connection");
    gate.open();
    for at in 0..40 {
        client.ask(call_body("1", READ, &format!("[{at}]"))).assert_result("1", &at.to_string());
    }
    node.wait_for_open(1);
}

#[test]
fn ready_connections_are_there_before_a_call_and_again_after_they_were_lost() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).endpoint(0, "warm = 3").shards(2).start();
    let opened =
        |count| move |metrics: &super::harness::Metrics| metrics.of("ringway_endpoint_connects_total", "a") >= count;
    gateway.wait_for_metrics("three for each shard", opened(6));
    node.wait_for_connections(6);
    assert_eq!(node.count(), 0);
    for _ in 0..10 {
        gateway.call(READ, "[]").assert_result("1", "1");
    }
    assert_eq!(node.connections(), 6, "calls found them");
    node.hang_up();
    gateway.wait_for_metrics("new ones", opened(12));
    // A node that is not there gets no storm, and no Circuit opens over what no Call asked for.
    let closed = super::harness::ClosedPort::new();
    let gateway = Setup::at(&[closed.address, node.address]).endpoint(0, "warm = 3").start();
    gateway.call(READ, "[]").assert_result("1", "1");
    let metrics = gateway.metrics();
    assert_eq!((metrics.attempts("a", ""), metrics.of("ringway_circuit_state", "a")), (1, 0));
}

/// Takes Calls of many callers with few ids to a node that says each answer once more when the next request is already
/// under way: no look at the connection could see that coming. Before, it says its first answer twice, at once or, with
/// `later`, while nobody asks for anything.
fn nobody_gets_what_was_said_twice(later: bool) {
    let before = std::sync::Mutex::new(std::collections::HashMap::<usize, String>::new());
    let answer = |id: &str, params: &str| {
        let body = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{params}}}");
        super::upstream::response(200, &[], &body)
    };
    let stutters = Upstream::start(move |seen| {
        let answer = answer(&seen.id(), &seen.json()["params"][0].to_string());
        if seen.nth == 0 {
            return Reply::raw(answer.repeat(if later { 1 } else { 2 }));
        }
        let late = before.lock().unwrap().insert(seen.connection, answer.clone());
        Reply::raw(late.unwrap_or_default() + &answer)
    });
    let good = Upstream::start(|seen| Reply::result(seen, &seen.json()["params"][0].to_string()));
    let gateway = Setup::of(&[&stutters, &good]).no_circuit().shards(1).start();
    for token in 0..40 {
        let (method, id) =
            ([READ, EFFECT, "eth_sendRawTransaction"][token % 3], ["1", "\"1\"", "1", "null", "1"][token % 5]);
        // An answer under another id would give the node away as well.
        let id = if later { "1" } else { id };
        let told = gateway.post(call_body(id, method, &format!("[\"{token}\"]")));
        if method != EFFECT || !told.body.contains("-32054") {
            told.assert_result(id, &format!("\"{token}\""));
        }
        if later && token == 0 {
            stutters.say_unasked(answer("1", "\"0\"").as_bytes());
            stutters.wait_for_open(0);
        }
    }
    assert!(stutters.count() >= 40 && good.count() > 10, "{} and {}", stutters.count(), good.count());
}

#[test]
fn a_node_that_was_heard_unasked_is_never_taken_at_its_word_for_another_caller() {
    nobody_gets_what_was_said_twice(false);
}

#[test]
fn nor_is_one_that_spoke_while_nobody_asked_for_anything() {
    nobody_gets_what_was_said_twice(true);
}

#[test]
fn who_left_gets_no_more_done_than_was_begun() {
    let gate = Gate::default();
    let held = gate.clone();
    let node = Upstream::start(move |seen| match seen.nth {
        0 => Reply::after(&held, Reply::result(seen, "1")),
        _ => Reply::result(seen, "1"),
    });
    let gateway = Setup::of(&[&node]).shards(1).start();
    let mut client = gateway.connect();
    let body = call_body("1", EFFECT, "[]");
    client.send(format!("{}{body}", super::harness::request("/eth", &[], body.len())).repeat(20));
    node.wait_for(1);
    client.reset();
    gate.open();
    gateway.wait_for_metrics("nobody", |metrics| metrics.sum("ringway_connections", &["side=\"client\""]) == 0);
    assert!(node.count() <= 3, "{} requests of somebody who can't be answered", node.count());
}
