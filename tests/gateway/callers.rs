//! Callers that go away: a query ends with its caller, what may have an effect runs to its end.

use super::harness::{Gate, Reply, Setup, Upstream, call_body};

#[test]
fn a_query_ends_with_its_caller_and_says_nothing_about_the_node() {
    let node = Upstream::start(|seen| if seen.holds("eth_call") { Reply::hang() } else { Reply::result(seen, "1") });
    let gateway = Setup::of(&[&node]).circuit("consecutive_failures = 1").start();
    let mut client = gateway.connect();
    client.post("/eth", &[], call_body("1", "eth_call", "[]"));
    node.wait_for(1);
    client.reset();
    node.wait_for_open(0);
    let metrics = gateway.wait_for_metrics("the Call's end", |metrics| metrics.calls("abandoned") == 1);
    assert_eq!(metrics.attempts("a", "caller_gone"), 1);
    assert_eq!(metrics.of("ringway_circuit_state", "a"), 0);
    gateway.call("eth_gasPrice", "[]").assert_result("1", "1");
    assert_eq!(node.count_with("eth_call"), 1, "cut short, and not sent again");
}

#[test]
fn a_caller_that_only_stopped_writing_gets_its_answer() {
    let gate = Gate::default();
    let door = gate.clone();
    let node = Upstream::start(move |seen| Reply::after(&door, Reply::result(seen, "1")));
    let gateway = Setup::of(&[&node]).start();
    let mut client = gateway.connect();
    client.post("/eth", &[], call_body("1", "eth_call", "[]"));
    node.wait_for(1);
    client.finish();
    std::thread::sleep(std::time::Duration::from_millis(1_200)); // longer than between two looks at the client
    gate.open();
    client.response().assert_result("1", "1");
}

#[test]
fn what_may_have_an_effect_runs_to_its_end() {
    for method in ["eth_sendTransaction", "eth_sendRawTransaction", "eth_newFilter"] {
        let gate = Gate::default();
        let door = gate.clone();
        let node = Upstream::start(move |seen| Reply::after(&door, Reply::result(seen, "1")));
        let gateway = Setup::of(&[&node]).start();
        let mut client = gateway.connect();
        client.post("/eth", &[], call_body("1", method, "[\"0x\"]"));
        node.wait_for(1);
        client.reset();
        std::thread::sleep(std::time::Duration::from_millis(1_200)); // longer than between two looks at the client
        gate.open();
        let metrics = gateway.wait_for_metrics("the attempt's end", |metrics| metrics.attempts("a", "ok") == 1);
        assert_eq!(metrics.attempts("a", "caller_gone"), 0, "{method}");
    }
}
