//! Tiers and what goes wrong: missing states, look-ups that find nothing, failures, Circuits, and what must not be
//! repeated.

use super::fleet::{Fleet, Plan, all_fallbacks, decisions, fallbacks};
use super::fleet_node::{Answer, MAIN, Mood, TIP, hash, transaction};
use super::harness::Reply;
use serde_json::json;

const STRICT: &str = "consecutive_failures = 1\ncooldown = \"60s\"\nmax_cooldown = \"60s\"";
const MISSING: &str = "missing trie node 5c0ee75d (path ) state 0xab is not available, not found";

fn three(circuit: &str) -> Fleet {
    Plan::of(&["minimal geth", "full reth", "archive erigon"]).interval("1s").circuit(circuit).start()
}

#[test]
fn a_missing_state_goes_up_and_is_no_failure() {
    let fleet = three(STRICT);
    for (nth, message) in
        [MISSING, "header not found", "state at block #7 is pruned", "Unknown block"].iter().enumerate()
    {
        fleet.node('a').error("eth_call", -32000, message);
        assert_eq!(fleet.path("eth_call", "[{},\"latest\"]"), "ab", "{message}");
        fleet.node('b').error("eth_call", -32000, MISSING);
        assert_eq!(fleet.path("eth_call", "[{},\"latest\"]"), "abc", "{message}");
        fleet.node('b').set(|state| state.answers.clear());
        let metrics = fleet.gateway.metrics();
        let up = (nth + 1) as u64;
        assert_eq!(fallbacks(&metrics, "minimal", "full", "missing_state"), up);
        assert_eq!(fallbacks(&metrics, "minimal", "archive", "missing_state"), up);
        assert_eq!((all_fallbacks(&metrics), metrics.sum("ringway_circuit_state", &[])), (2 * up, 0));
    }
    // 4444 is what EIP-4444 says of history that was dropped.
    fleet.node('a').error("eth_getBlockReceipts", 4444, "pruned");
    assert_eq!(fleet.path("eth_getBlockReceipts", "[\"latest\"]"), "ab");
}

#[test]
fn another_client_of_the_same_tier_may_have_the_state_and_the_same_one_not() {
    let fleet = Plan::of(&["full geth", "full geth", "full reth"]).interval("1s").start();
    for letter in ['a', 'b'] {
        fleet.node(letter).error("eth_call", -32000, MISSING);
    }
    for _ in 0..20 {
        let path = fleet.path("eth_call", "[{},\"latest\"]");
        assert!(["ac", "bc", "c"].contains(&path.as_str()), "{path}");
    }
    assert_eq!(all_fallbacks(&fleet.gateway.metrics()), 0, "one tier");
    // A cheaper tier has no more than this one.
    let fleet = Plan::of(&["minimal geth", "full reth"]).interval("1s").start();
    fleet.node('b').error("eth_getBlockReceipts", -32000, "header not found");
    let old = format!("[\"{:#x}\"]", TIP - 500);
    let (path, answer) = fleet.ask("eth_getBlockReceipts", &old);
    assert_eq!((path.as_str(), answer.code()), ("b", -32000));
}

#[test]
fn the_nodes_own_error_is_told_if_nobody_has_the_state() {
    let fleet = three(STRICT);
    for letter in ['a', 'b', 'c'] {
        fleet.node(letter).error("eth_getBalance", -32000, &format!("header not found at {letter}"));
    }
    let (path, answer) = fleet.ask("eth_getBalance", "[\"0x0\",\"latest\"]");
    assert_eq!((path.as_str(), answer.status), ("abc", 200));
    assert_eq!(answer.json()["error"], json!({"code": -32000, "message": "header not found at a"}));
    // Also where those above only fail.
    for letter in ['b', 'c'] {
        fleet.node(letter).answer("eth_getBalance", Answer::Reply(Reply::json(400, "bad")));
    }
    let (path, answer) = fleet.ask("eth_getBalance", "[\"0x0\",\"latest\"]");
    assert_eq!((path.as_str(), answer.code()), ("abc", -32000), "{answer:?}");
    let metrics = fleet.gateway.metrics();
    assert_eq!((metrics.calls("node_error"), all_fallbacks(&metrics)), (2, 0), "the cheapest answered");
}

#[test]
fn a_revert_is_an_answer() {
    let fleet = three(STRICT);
    for (code, message) in [
        (3, "execution reverted"),
        (3, "execution reverted: missing trie node"),
        (-32000, "execution reverted: header not found"),
        (-32000, "insufficient funds for gas * price + value"),
        (-32602, "invalid argument 0"),
        (-32005, "query returned more than 10000 results"),
    ] {
        fleet.node('a').error("eth_call", code, message);
        let (path, answer) = fleet.ask("eth_call", "[{},\"latest\"]");
        assert_eq!((path.as_str(), answer.code()), ("a", code), "{message}");
    }
}

#[test]
fn nothing_found_by_hash_is_final_only_where_all_of_the_past_is() {
    let fleet = three(STRICT);
    fleet.node('a').set(|state| state.history_from = TIP - 127);
    let (old, new) = (TIP - 500, TIP - 5);
    for (method, name) in [
        ("eth_getBlockByHash", hash as fn(u64, u64) -> String),
        ("eth_getTransactionByHash", transaction),
        ("eth_getTransactionReceipt", transaction),
    ] {
        let ask = |branch, number| fleet.ask(method, &format!("[\"{}\",true]", name(branch, number)));
        let (path, answer) = ask(MAIN, new);
        assert_eq!(path, "a", "{method}: {answer:?}");
        let (path, answer) = ask(MAIN, old);
        assert_eq!(path, "ab", "{method}: {answer:?}");
        assert!(answer.body.contains(&hash(MAIN, old)), "{answer:?}");
        // Nobody has it: the archive is not asked for what the full one would have.
        let (path, answer) = ask(77, old);
        assert_eq!((path.as_str(), answer.result().as_str()), ("ab", "null"), "{method}");
    }
    let logs = |branch, number| fleet.ask("eth_getLogs", &format!("[{{\"blockHash\":\"{}\"}}]", hash(branch, number)));
    let (path, answer) = logs(MAIN, new);
    assert!(path == "a" && answer.body.contains(&hash(MAIN, new)), "{path}: {answer:?}");
    let (path, answer) = logs(MAIN, old);
    assert!(path == "ab" && answer.body.contains(&hash(MAIN, old)), "{path}: {answer:?}");
    let (path, answer) = logs(77, old);
    assert_eq!((path.as_str(), answer.result().as_str()), ("ab", "[]"));
    let receipts = |branch, number| fleet.ask("eth_getBlockReceipts", &format!("[\"{}\"]", hash(branch, number)));
    assert_eq!(
        (receipts(MAIN, new).0, receipts(MAIN, old).0, receipts(77, old).0),
        ("a".into(), "ab".into(), "ab".into())
    );
    // A block without transactions has no receipts: that is an answer.
    fleet.node('a').answer("eth_getBlockReceipts", Answer::Result("[]".to_owned()));
    assert_eq!(receipts(MAIN, new).0, "a");
    // Without a hash, nothing is an answer.
    fleet.node('a').answer("eth_getLogs", Answer::Result("[]".to_owned()));
    assert_eq!(fleet.path("eth_getLogs", "[{\"fromBlock\":\"latest\"}]"), "a");
    fleet.node('a').answer("eth_getBlockByNumber", Answer::Result("null".to_owned()));
    assert_eq!(fleet.path("eth_getBlockByNumber", "[\"latest\",true]"), "a");
    let metrics = fleet.gateway.metrics();
    assert_eq!(fallbacks(&metrics, "minimal", "full", "missing_state"), 10);
    assert_eq!((all_fallbacks(&metrics), metrics.sum("ringway_circuit_state", &[])), (10, 0));
}

#[test]
fn a_second_bounded_past_is_not_asked_for_what_the_first_did_not_find() {
    let fleet = Plan::of(&["minimal geth", "minimal reth", "archive erigon"]).interval("1s").start();
    for _ in 0..20 {
        let (path, answer) = fleet.ask("eth_getTransactionByHash", &format!("[\"{}\"]", transaction(77, 5)));
        assert!(["ac", "bc"].contains(&path.as_str()), "{path}");
        assert_eq!(answer.result(), "null");
    }
    let alone = Plan::of(&["minimal geth", "minimal geth"]).interval("1s").start();
    let (path, answer) = alone.ask("eth_getTransactionByHash", &format!("[\"{}\"]", transaction(77, 5)));
    assert_eq!((path.len(), answer.result().as_str()), (1, "null"), "there is nobody else to ask");
    // The one with all of it does not answer: what the first said is all there is.
    fleet.node('c').set(|state| state.calls = Mood::Broken);
    let (path, answer) = fleet.ask("eth_getTransactionByHash", &format!("[\"{}\"]", transaction(77, 5)));
    assert!(path.ends_with('c') && answer.result() == "null", "{path}: {answer:?}");
}

#[test]
fn on_other_strategies_the_nodes_word_is_final() {
    for strategy in ["priority", "weighted"] {
        let plan = Plan::of(&["minimal geth", "archive erigon"]).interval("1s");
        let weights: &[u32] = if strategy == "weighted" { &[1, 0] } else { &[1, 1] };
        let fleet = plan.weights(weights).route(&format!("strategy = \"{strategy}\"")).start_blind();
        let node = fleet.node('a');
        for (code, message) in [(-32000, MISSING), (-32601, "the method does not exist/is not available")] {
            node.error("eth_call", code, message);
            let (path, answer) = fleet.ask("eth_call", "[{},\"0x1\"]");
            assert_eq!((path.as_str(), answer.code()), ("a", code), "{strategy}");
        }
        let (path, answer) = fleet.ask("eth_getTransactionByHash", &format!("[\"{}\"]", transaction(77, 5)));
        assert_eq!((path.as_str(), answer.result().as_str()), ("a", "null"), "{strategy}");
        assert_eq!(fleet.path("trace_block", "[\"0x1\"]"), "a", "{strategy} asks no table");
        let metrics = fleet.gateway.metrics();
        assert_eq!((all_fallbacks(&metrics), metrics.sum("ringway_routing_decisions_total", &[])), (0, 0));
        let polls: usize = fleet.plan.nodes.iter().map(|node| node.set(|state| state.polled.len())).sum();
        assert_eq!(polls, 0, "{strategy}: nothing is tracked");
    }
}

#[test]
fn failures_and_open_circuits_of_the_cheap_tier_send_calls_up_and_back() {
    let plan = Plan::of(&["minimal geth", "full reth", "archive erigon"]);
    let fleet = plan.circuit("consecutive_failures = 2\ncooldown = \"300ms\"\nmax_cooldown = \"300ms\"").start();
    fleet.node('a').set(|state| state.calls = Mood::Broken);
    assert_eq!(fleet.path("eth_call", "[{}]"), "ab");
    assert_eq!(fleet.path("eth_gasPrice", "[]"), "ab");
    let metrics = fleet.gateway.metrics();
    assert_eq!((fallbacks(&metrics, "minimal", "full", "failure"), all_fallbacks(&metrics)), (2, 2));
    assert_eq!(metrics.of("ringway_circuit_state", "a"), 1);
    assert_eq!(fleet.path("eth_call", "[{}]"), "b", "open");
    let metrics = fleet.gateway.metrics();
    assert_eq!((fallbacks(&metrics, "minimal", "full", "circuit"), all_fallbacks(&metrics)), (1, 3));
    assert_eq!(decisions(&metrics, "eth_call", "full"), 2);
    fleet.node('a').set(|state| state.calls = Mood::Well);
    let until = std::time::Instant::now() + super::harness::PATIENCE;
    while fleet.path("eth_call", "[{}]") != "a" {
        assert!(std::time::Instant::now() < until, "never closed");
    }
    let before = all_fallbacks(&fleet.gateway.metrics());
    (0..20).for_each(|_| assert_eq!(fleet.path("eth_call", "[{}]"), "a", "closed: back in the cheap tier"));
    assert_eq!(all_fallbacks(&fleet.gateway.metrics()), before);
    assert_eq!(fleet.count('c'), 0);
}

#[test]
fn what_must_not_run_twice_stops_on_a_tiered_route_too() {
    let fleet = three("consecutive_failures = 4000000000\nmin_samples = 4000000000");
    for (mood, code) in [(Mood::Closes, -32054), (Mood::Broken, -32054)] {
        fleet.node('a').set(|state| state.calls = mood);
        for method in ["eth_sendTransaction", "eth_newFilter", "acme_unknown"] {
            let (path, answer) = fleet.ask(method, "[{}]");
            if method == "acme_unknown" {
                assert_eq!((path.as_str(), answer.code()), ("", -32601), "nobody is known for it");
                continue;
            }
            assert_eq!((path.as_str(), answer.code()), ("a", code), "{method} {mood:?}");
        }
    }
    // What an effect is told is final, whatever it says.
    fleet.node('a').set(|state| state.calls = Mood::Well);
    fleet.node('a').error("eth_sendTransaction", -32000, MISSING);
    let (path, answer) = fleet.ask("eth_sendTransaction", "[{}]");
    assert_eq!((path.as_str(), answer.code()), ("a", -32000));
    // Refused for sure: another one may take it.
    fleet.node('a').answer("eth_sendTransaction", Answer::Reply(Reply::http(429, &[], "")));
    let (path, answer) = fleet.ask("eth_sendTransaction", "[{}]");
    assert_eq!((path.as_str(), answer.status), ("ab", 200));
}

#[test]
fn a_signed_broadcast_goes_on_up_with_the_same_bytes() {
    let fleet = three("consecutive_failures = 4000000000\nmin_samples = 4000000000");
    let raw = format!("[ \"{}\" ]", super::honesty::RAW);
    fleet.node('a').set(|state| state.calls = Mood::Broken);
    let (path, answer) = fleet.ask("eth_sendRawTransaction", &raw);
    assert_eq!(path, "ab", "{answer:?}");
    for letter in ['a', 'b'] {
        let seen = fleet.node(letter).upstream.seen_with("eth_sendRawTransaction");
        assert_eq!(seen.len(), 1);
        assert!(seen[0].holds(&raw), "{}", seen[0].text());
    }
    fleet.node('b').error("eth_sendRawTransaction", -32000, "already known");
    let (path, answer) = fleet.ask("eth_sendRawTransaction", &raw);
    assert_eq!(path, "ab");
    answer.assert_result("1", &format!("\"{}\"", super::honesty::hash()));
    // Without doubt each error is the answer, and nobody else is sent the bytes.
    fleet.node('a').set(|state| state.calls = Mood::Well);
    fleet.node('a').error("eth_sendRawTransaction", -32000, "nonce too low");
    let (path, answer) = fleet.ask("eth_sendRawTransaction", &raw);
    assert_eq!((path.as_str(), answer.code()), ("a", -32000));
}
