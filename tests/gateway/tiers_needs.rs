//! Tiers by need: each Call goes to the cheapest node that holds what it reads, and no other node hears of it.

use super::fleet::{Fleet, Plan, all_fallbacks, decisions};
use super::fleet_node::{MAIN, Mood, TIP, hash};

/// A minimal Geth `a`, a full Reth `b`, an Erigon archive `c`, all at [`TIP`].
fn three() -> Fleet {
    let plan = Plan::of(&["minimal geth", "full reth", "archive erigon"]).interval("1s");
    plan.nodes[0].set(|state| (state.state_from, state.history_from) = (TIP - 127, TIP - 127));
    plan.nodes[1].set(|state| state.state_from = TIP - 127);
    plan.start()
}

/// A block by its number.
fn number(number: u64) -> String {
    format!("\"{number:#x}\"")
}

/// Blocks as arguments name them, and who has the state there.
fn states() -> Vec<(String, &'static str)> {
    let object = |block: u64| format!("{{\"blockNumber\":\"{block:#x}\"}}");
    let mut all: Vec<(String, &str)> = vec![
        ("\"latest\"".into(), "a"),
        ("\"pending\"".into(), "a"),
        ("\"safe\"".into(), "a"),
        ("\"finalized\"".into(), "a"),
        ("\"earliest\"".into(), "c"),
        ("null".into(), "a"),
        (format!("{{\"blockHash\":\"{}\"}}", hash(MAIN, TIP)), "a"),
        (format!("{{\"blockHash\":\"{}\",\"requireCanonical\":true}}", hash(MAIN, TIP)), "a"),
        (format!("\"{}\"", hash(MAIN, TIP)), "a"),
    ];
    for (block, path) in [(0, "c"), (1, "c"), (TIP - 128, "c"), (TIP - 127, "a"), (TIP, "a"), (TIP + 1, "a")] {
        all.push((number(block), path));
        all.push((object(block), path));
    }
    all
}

#[test]
fn states_by_their_block() {
    let fleet = three();
    let mut calls = 0;
    for (method, before) in [
        ("eth_call", "{}"),
        ("eth_getBalance", "\"0x0\""),
        ("eth_getCode", "\"0x0\""),
        ("eth_getTransactionCount", "\"0x0\""),
        ("eth_estimateGas", "{}"),
        ("eth_createAccessList", "{}"),
        ("eth_getStorageAt", "\"0x0\",\"0x0\""),
        ("eth_getProof", "\"0x0\",[]"),
    ] {
        for (block, path) in states() {
            let params = format!("[{before},{block}]");
            assert_eq!(fleet.path(method, &params), path, "{method} {params}");
            calls += 1;
        }
        assert_eq!(fleet.path(method, &format!("[{before}]")), "a", "{method} without a block");
    }
    assert_eq!(fleet.path("debug_traceCall", &format!("[{{}},{}]", number(TIP - 127))), "a");
    assert_eq!(fleet.path("debug_traceCall", &format!("[{{}},{}]", number(TIP - 128))), "c");
    assert_eq!(fleet.path("trace_call", &format!("[{{}},[],{}]", number(TIP - 127))), "b", "a Geth has no trace_*");
    let metrics = fleet.gateway.metrics();
    assert_eq!(all_fallbacks(&metrics), 0, "to need an archive, or another client, is no fallback");
    assert_eq!(metrics.sum("ringway_routing_decisions_total", &[]), calls + 8 + 3);
    assert_eq!(decisions(&metrics, "eth_call", "archive"), 7);
    assert_eq!(decisions(&metrics, "trace_call", "full"), 1);
}

#[test]
fn bodies_receipts_and_logs_by_their_oldest_block() {
    let fleet = three();
    let (inside, outside) = (number(TIP - 127), number(TIP - 128));
    let logs = |from: &str, to: &str| format!("[{{\"fromBlock\":{from},\"toBlock\":{to}}}]");
    let mut all: Vec<(&str, String, &str)> = Vec::new();
    for (block, path) in [
        (inside.as_str(), "a"),
        (&outside, "b"),
        ("\"earliest\"", "b"),
        ("\"0x0\"", "b"),
        ("\"latest\"", "a"),
        ("\"safe\"", "a"),
        ("\"finalized\"", "a"),
    ] {
        all.push(("eth_getBlockByNumber", format!("[{block},true]"), path));
        all.push(("eth_getBlockReceipts", format!("[{block}]"), path));
        all.push(("eth_getTransactionByBlockNumberAndIndex", format!("[{block},\"0x0\"]"), path));
        all.push(("eth_getBlockTransactionCountByNumber", format!("[{block}]"), path));
        all.push(("eth_getUncleCountByBlockNumber", format!("[{block}]"), path));
        all.push(("debug_getRawBlock", format!("[{block}]"), path));
        all.push(("eth_getLogs", logs(block, "\"latest\""), path));
    }
    all.extend([
        ("eth_getLogs", logs(&outside, &inside), "b"),
        ("eth_getLogs", logs(&inside, &outside), "b"),
        ("eth_getLogs", logs("\"latest\"", "\"earliest\""), "b"),
        ("eth_getLogs", logs(&inside, &inside), "a"),
        ("eth_getLogs", format!("[{{\"fromBlock\":{outside}}}]"), "b"),
        ("eth_getLogs", format!("[{{\"toBlock\":{inside}}}]"), "a"),
        ("eth_getLogs", "[{}]".into(), "a"),
        ("eth_feeHistory", "[\"0x7f\",\"latest\",[]]".into(), "a"),
        ("eth_feeHistory", "[127,\"latest\",[]]".into(), "a"),
        ("eth_feeHistory", "[\"0x82\",\"latest\",[]]".into(), "b"),
        ("eth_feeHistory", "[\"0x400\",\"latest\",[]]".into(), "b"),
        ("eth_feeHistory", format!("[\"0xa\",{}]", number(TIP - 100)), "a"),
        ("eth_feeHistory", format!("[\"0x28\",{}]", number(TIP - 100)), "b"),
    ]);
    for (method, params, path) in all {
        assert_eq!(fleet.path(method, &params), path, "{method} {params}");
    }
    assert_eq!(fleet.count('c'), 0, "an archive is for states");
    assert_eq!(all_fallbacks(&fleet.gateway.metrics()), 0);
}

#[test]
fn a_trace_needs_the_state_of_the_block_before() {
    let fleet = three();
    for (method, geth) in [("debug_traceBlockByNumber", true), ("trace_block", false), ("debug_storageRangeAt", true)] {
        let at = |block: u64| fleet.path(method, &format!("[{}]", number(block)));
        assert_eq!(at(TIP), if geth { "a" } else { "b" }, "{method}");
        assert_eq!(at(TIP - 126), if geth { "a" } else { "b" }, "{method}");
        assert_eq!(at(TIP - 127), "c", "{method}: the block is held, its parent's state is not");
    }
    let range = |from: u64, to: u64| format!("[{{\"fromBlock\":\"{from:#x}\",\"toBlock\":\"{to:#x}\"}}]");
    assert_eq!(fleet.path("trace_filter", &range(TIP - 126, TIP)), "b");
    assert_eq!(fleet.path("trace_filter", &range(TIP - 127, TIP)), "c");
    assert_eq!(fleet.path("trace_filter", "[{\"toBlock\":\"0x64\"}]"), "c", "some begin with the first block");
}

#[test]
fn what_only_an_archive_has_goes_nowhere_else_when_it_is_dead() {
    let fleet = three();
    let params = format!("[\"0x0\",{}]", number(TIP - 128));
    for mood in [Mood::Broken, Mood::Closes] {
        fleet.node('c').set(|state| state.calls = mood);
        for _ in 0..3 {
            let (path, answer) = fleet.ask("eth_getBalance", &params);
            // A connection that was idle may be replaced once: the node sees the same bytes again.
            assert!(path.chars().all(|node| node == 'c') && !path.is_empty(), "{path}");
            answer.assert_fault(502, "1", -32052);
        }
    }
    assert_eq!((fleet.count('a'), fleet.count('b')), (0, 0));
    assert_eq!(fleet.path("eth_getBalance", "[\"0x0\",\"latest\"]"), "a");
    assert_eq!(all_fallbacks(&fleet.gateway.metrics()), 0);
}

#[test]
fn an_open_circuit_of_the_only_archive_is_told_as_such() {
    let plan = Plan::of(&["minimal geth", "archive erigon"]).interval("1s");
    let rule = "consecutive_failures = 2\ncooldown = \"60s\"\nmax_cooldown = \"60s\"";
    let fleet = plan.circuit(rule).start();
    fleet.node('b').set(|state| state.calls = Mood::Broken);
    let old = "[{},\"0x1\"]";
    (0..2).for_each(|_| fleet.ask("eth_call", old).1.assert_fault(502, "1", -32052));
    for _ in 0..3 {
        let (path, answer) = fleet.ask("eth_call", old);
        assert_eq!(path, "");
        answer.assert_fault(503, "1", -32051);
        assert!(answer.header("Retry-After").is_some());
    }
    assert_eq!(fleet.path("eth_call", "[{},\"latest\"]"), "a");
}

#[test]
fn cheap_calls_never_reach_an_archive_while_a_cheaper_node_is_up_to_date() {
    let fleet = three();
    for nth in 0..200u64 {
        let block = [number(TIP - nth % 128), "\"latest\"".into(), "\"pending\"".into()][nth as usize % 3].clone();
        assert_eq!(fleet.path("eth_call", &format!("[{{}},{block}]")), "a");
        assert_eq!(fleet.path("eth_blockNumber", "[]"), "a");
        assert_eq!(fleet.path("eth_gasPrice", "[]"), "a");
        assert_eq!(fleet.path("eth_getBlockByNumber", &format!("[{block},true]")), "a");
    }
    assert_eq!((fleet.count('a'), fleet.count('b'), fleet.count('c')), (800, 0, 0));
    let metrics = fleet.gateway.metrics();
    assert_eq!(metrics.sum("ringway_routing_decisions_total", &["tier=\"minimal\""]), 800);
    assert_eq!((metrics.sum("ringway_routing_decisions_total", &[]), all_fallbacks(&metrics)), (800, 0));
}

#[test]
fn depths_are_what_the_configuration_says() {
    let plan = Plan::of(&["minimal geth", "full geth", "archive geth"])
        .interval("1s")
        .lines(0, "state_blocks = 10\nhistory_blocks = 20")
        .lines(1, "state_blocks = 1000\nhistory_blocks = 3000")
        .lines(2, "history_blocks = 5000");
    let fleet = plan.start();
    for (depth, state, history) in [
        (9, "a", "a"),
        (10, "b", "a"),
        (19, "b", "a"),
        (20, "b", "b"),
        (999, "b", "b"),
        (1000, "c", "b"),
        (2999, "c", "b"),
        (3000, "c", "c"),
        (4999, "c", "c"),
    ] {
        let block = number(TIP - depth);
        assert_eq!(fleet.path("eth_call", &format!("[{{}},{block}]")), state, "{depth}");
        assert_eq!(fleet.path("eth_getBlockByNumber", &format!("[{block},true]")), history, "{depth}");
    }
    // What nobody is said to hold is asked of the cheapest, and the answer is the node's.
    assert_eq!(fleet.path("eth_getBlockByNumber", "[\"0x1\",true]"), "a");
}

#[test]
fn a_height_that_a_node_has_not_got_yet_is_not_asked_of_it() {
    let fleet = three();
    fleet.node('b').chain(|chain| chain.mine(2));
    fleet.wait_for_tip('b', TIP + 2);
    assert_eq!(fleet.path("eth_call", "[{},\"latest\"]"), "a", "two behind is no lag");
    for method in ["eth_call", "eth_getBalance"] {
        assert_eq!(fleet.path(method, &format!("[{{}},{}]", number(TIP))), "a");
        assert_eq!(fleet.path(method, &format!("[{{}},{}]", number(TIP + 1))), "b");
        assert_eq!(fleet.path(method, &format!("[{{}},{}]", number(TIP + 2))), "b");
        assert_eq!(
            fleet.path(method, &format!("[{{}},{}]", number(TIP + 3))),
            "a",
            "nobody has it: the cheapest says so"
        );
    }
}
