//! Tiers and branches: who is on a fork, answers that come from one, re-orgs, and chains that fall back.

use super::fleet::{Fleet, Plan, all_fallbacks, fallbacks};
use super::fleet_node::{Answer, MAIN, Mood, TIP, View, hash, transaction};
use super::harness::Metrics;
use std::time::{Duration, Instant};

const STRICT: &str = "consecutive_failures = 1\ncooldown = \"60s\"\nmax_cooldown = \"60s\"";

fn three() -> Fleet {
    Plan::of(&["minimal geth", "full reth", "archive erigon"]).circuit(STRICT).start()
}

/// The same, polled so seldom that a test sees no poll but those that it causes.
fn still() -> Fleet {
    Plan::of(&["minimal geth", "full reth", "archive erigon"]).circuit(STRICT).interval("60s").start()
}

/// A chain whose newest blocks are of another branch.
fn other(depth: u64, branch: u64) -> View {
    let mut view = View::default();
    view.reorg(depth, branch);
    view
}

fn unresolved(fleet: &Fleet) -> u64 {
    fleet.gateway.metrics().sum("ringway_fork_unresolved_total", &[])
}

#[test]
fn a_node_on_another_branch_is_skipped_until_it_agrees() {
    let fleet = three();
    fleet.node('a').chain(|chain| chain.reorg(3, 2));
    fleet.wait_for('a', "fork");
    for _ in 0..5 {
        assert_eq!(fleet.path("eth_call", "[{},\"latest\"]"), "b");
    }
    let metrics = fleet.gateway.metrics();
    assert_eq!((fallbacks(&metrics, "minimal", "full", "fork"), all_fallbacks(&metrics)), (5, 5));
    // Nor is it when the others fail.
    ['b', 'c'].into_iter().for_each(|letter| fleet.node(letter).set(|state| state.calls = Mood::Broken));
    let (path, answer) = fleet.ask("eth_getBalance", "[\"0x0\",\"latest\"]");
    assert!(!path.contains('a'), "{path}: {answer:?}");
    // A partition that ends: it takes the others' chain.
    fleet.node('a').set(|state| state.view = View { tip: TIP + 1, forks: vec![] });
    fleet.wait_for('a', "fresh");
    assert_eq!(fleet.path("eth_call", "[{},\"latest\"]"), "a");
    assert_eq!(fleet.gateway.metrics().sum("ringway_reorgs_total", &[]), 2, "there and back");
}

#[test]
fn an_answer_from_a_fork_is_held_and_the_call_goes_on() {
    let plan = Plan::of(&["minimal geth", "full reth", "archive erigon"]).circuit(STRICT).interval("500ms");
    plan.nodes.iter().for_each(|node| node.chain(|chain| chain.rollback(14)));
    let fleet = plan.start();
    // What is compared is what was seen since the start, and at most eight headers are read a poll.
    for _ in 0..2 {
        ['a', 'b', 'c'].into_iter().for_each(|letter| fleet.node(letter).chain(|chain| chain.mine(7)));
        fleet.settle();
    }
    let polls = |letter| fleet.node(letter).set(|state| state.polled.len());
    fleet.node('a').set(|state| state.lie = Some(other(10, 2)));
    let block = format!("\"{:#x}\"", TIP - 4);
    let calls = [
        ("eth_getBlockByNumber", format!("[{block},true]")),
        ("eth_getBlockByNumber", "[\"latest\",true]".to_owned()),
        ("eth_getBlockReceipts", format!("[{block}]")),
        ("eth_getLogs", format!("[{{\"fromBlock\":\"{:#x}\",\"toBlock\":{block}}}]", TIP - 12)),
        ("eth_getLogs", "[{}]".to_owned()),
    ];
    for (nth, (method, params)) in calls.iter().enumerate() {
        let before = polls('a');
        let (path, answer) = fleet.ask(method, params);
        assert!(path == "ab" && answer.json().get("result").is_some(), "{method} {params} by {path}: {answer:?}");
        assert!(!answer.body.contains("000000000002\""), "{answer:?}");
        assert!(answer.body.contains(&hash(MAIN, TIP)) || answer.body.contains(&hash(MAIN, TIP - 4)), "{answer:?}");
        assert!(polls('a') > before, "{method}: it was asked again");
        let metrics = fleet.gateway.metrics();
        assert_eq!(fallbacks(&metrics, "minimal", "full", "fork"), nth as u64 + 1);
    }
    let metrics = fleet.gateway.metrics();
    assert_eq!((metrics.sum("ringway_circuit_state", &[]), unresolved(&fleet)), (0, 0), "no failure, and settled");
    assert_eq!(metrics.attempts("a", "ok"), calls.len() as u64);
    // Below the fork they agree, and old blocks are compared with nothing.
    for number in [TIP - 10, TIP - 11, TIP - 100] {
        let (path, answer) = fleet.ask("eth_getBlockByNumber", &format!("[\"{number:#x}\",true]"));
        assert!(path == "a" && answer.body.contains(&hash(MAIN, number)), "{number}: {answer:?}");
    }
}

#[test]
fn an_answer_that_the_chain_agrees_with_by_now_is_delivered() {
    let fleet = still();
    // All three have moved on; nobody was polled since.
    for letter in ['a', 'b', 'c'] {
        fleet.node(letter).chain(|chain| {
            chain.reorg(2, 2);
            chain.mine(1);
        });
    }
    let (path, answer) = fleet.ask("eth_getBlockByNumber", &format!("[\"{TIP:#x}\",true]"));
    assert!(path == "a" && answer.body.contains(&hash(2, TIP)), "{path}: {answer:?}");
    let metrics = fleet.gateway.metrics();
    assert_eq!((all_fallbacks(&metrics), unresolved(&fleet)), (0, 0));
    assert_eq!((metrics.sum("ringway_network_tip", &[]), metrics.sum("ringway_reorgs_total", &[])), (TIP + 1, 1));
}

#[test]
fn the_best_one_is_polled_again_too() {
    let plan = Plan::of(&["minimal geth", "full reth", "archive erigon"]).circuit(STRICT).interval("60s");
    plan.nodes[1].chain(|chain| chain.mine(1));
    let fleet = plan.start();
    // What the node says of itself would not do: the best is higher, and known on the old branch.
    for letter in ['a', 'b', 'c'] {
        fleet.node(letter).chain(|chain| chain.forks.push((TIP, 2)));
    }
    let (path, answer) = fleet.ask("eth_getBlockByNumber", &format!("[\"{TIP:#x}\",true]"));
    assert!(path == "a" && answer.body.contains(&hash(2, TIP)), "{path}: {answer:?}");
}

#[test]
fn a_poll_that_hangs_holds_an_answer_no_longer_than_a_quarter_second() {
    let fleet = still();
    ['a', 'b', 'c'].into_iter().for_each(|letter| fleet.node(letter).set(|state| state.polls = Mood::Hangs));
    fleet.node('a').set(|state| state.lie = Some(other(1, 2)));
    let began = Instant::now();
    let (path, answer) = fleet.ask("eth_getBlockByNumber", "[\"latest\",true]");
    let took = began.elapsed();
    assert!(path == "ab" && answer.body.contains(&hash(MAIN, TIP)), "{path}: {answer:?}");
    // The upper end is wide, for machines that have more to do; a poll alone would take five seconds.
    assert!((Duration::from_millis(200)..Duration::from_millis(2_000)).contains(&took), "{took:?}");
}

#[test]
fn one_poll_is_shared_by_all_who_wait() {
    let fleet = still();
    fleet.node('a').set(|state| state.lie = Some(other(1, 2)));
    let before = fleet.node('a').set(|state| state.polled.len());
    let callers = 32;
    std::thread::scope(|scope| {
        for _ in 0..callers {
            scope.spawn(|| {
                let answer = fleet.call("eth_getBlockByNumber", "[\"latest\",true]");
                assert!(answer.body.contains(&hash(MAIN, TIP)), "{answer:?}");
            });
        }
    });
    let polls = fleet.node('a').set(|state| state.polled.len()) - before;
    assert!((1..=callers / 2).contains(&polls), "{polls} polls for {callers} callers");
}

#[test]
fn if_nobody_agrees_the_highest_tip_is_believed() {
    let fleet = still();
    for (letter, branch) in [('a', 2), ('b', 3), ('c', 4)] {
        fleet.node(letter).set(|state| state.lie = Some(other(5, branch)));
    }
    let (path, answer) = fleet.ask("eth_getBlockByNumber", "[\"latest\",true]");
    assert_eq!(path, "abc", "{answer:?}");
    assert!(answer.body.contains(&hash(2, TIP)), "of equal ones the first: {answer:?}");
    assert_eq!(unresolved(&fleet), 1);
    // Of others the highest.
    let fleet = Plan::of(&["minimal geth", "full reth", "archive erigon"]).circuit(STRICT).start();
    fleet.node('b').chain(|chain| chain.mine(1));
    fleet.settle();
    for (letter, branch) in [('a', 2), ('b', 3), ('c', 4)] {
        fleet.node(letter).set(|state| state.lie = Some(other(5, branch)));
    }
    let (path, answer) = fleet.ask("eth_getBlockByNumber", &format!("[\"{TIP:#x}\",true]"));
    assert_eq!(path, "abc", "{answer:?}");
    assert!(answer.body.contains(&hash(3, TIP)), "{answer:?}");
    let metrics = fleet.gateway.metrics();
    assert_eq!((unresolved(&fleet), metrics.calls("ok"), metrics.sum("ringway_circuit_state", &[])), (1, 1, 0));
    assert_eq!((fallbacks(&metrics, "minimal", "full", "fork"), all_fallbacks(&metrics)), (1, 1));
}

#[test]
fn what_names_a_hash_and_what_shows_none_is_exempt() {
    let fleet = still();
    fleet.node('a').set(|state| state.lie = Some(other(10, 2)));
    for (method, name) in [
        ("eth_getBlockByHash", hash(2, TIP - 3)),
        ("eth_getTransactionByHash", transaction(2, TIP - 3)),
        ("eth_getTransactionReceipt", transaction(2, TIP - 3)),
        ("eth_getBlockReceipts", hash(2, TIP - 3)),
    ] {
        let (path, answer) = fleet.ask(method, &format!("[\"{name}\",true]"));
        assert!(path == "a" && answer.body.contains(&hash(2, TIP - 3)), "{method}: {path}: {answer:?}");
    }
    let (path, answer) = fleet.ask("eth_getLogs", &format!("[{{\"blockHash\":\"{}\"}}]", hash(2, TIP)));
    assert!(path == "a" && answer.body.contains(&hash(2, TIP)), "{path}: {answer:?}");
    for (method, params, result) in [
        ("eth_getBlockByNumber", "[\"pending\",true]", "{\"number\":\"0x2710\",\"hash\":null}"),
        ("eth_getBlockByNumber", "[\"latest\",true]", "{\"hash\":null,\"number\":null}"),
        ("eth_getBlockByNumber", "[\"latest\",true]", "{\"number\":\"0x2710\"}"),
        ("eth_getBlockByNumber", "[\"latest\",true]", "null"),
        ("eth_getLogs", "[{}]", "[]"),
        ("eth_getLogs", "[{}]", "[{\"blockNumber\":null,\"blockHash\":null}]"),
    ] {
        fleet.node('a').answer(method, Answer::Result(result.to_owned()));
        assert_eq!(fleet.path(method, params), "a", "{result}");
    }
    // A number that the chain has not got yet says nothing.
    fleet.node('a').set(|state| {
        state.answers.clear();
        state.lie.as_mut().unwrap().mine(3);
    });
    assert_eq!(fleet.path("eth_getBlockByNumber", "[\"latest\",true]"), "a");
    let metrics = fleet.gateway.metrics();
    assert_eq!((all_fallbacks(&metrics), unresolved(&fleet)), (0, 0));
}

#[test]
fn a_reorg_is_counted_once_with_its_depth() {
    let fleet = three();
    // The highest shows it first; the others follow.
    for letter in ['a', 'b', 'c'] {
        fleet.node(letter).chain(|chain| {
            chain.mine(6);
        });
    }
    fleet.settle();
    for letter in ['c', 'a', 'b'] {
        fleet.node(letter).chain(|chain| {
            chain.reorg(3, 2);
            chain.mine(1);
        });
        fleet.wait_for_tip(letter, TIP + 7);
        fleet.wait_for(letter, "fresh");
    }
    let metrics = fleet.gateway.metrics();
    assert_eq!(metrics.sum("ringway_reorgs_total", &["chain=\"ethereum\"", "network=\"mainnet\""]), 1);
    assert_eq!(metrics.sum("ringway_reorg_depth_sum", &[]), 3);
    for (bound, count) in [("le=\"2\"", 0), ("le=\"3\"", 1), ("le=\"+Inf\"", 1)] {
        assert_eq!(metrics.sum("ringway_reorg_depth_bucket", &[bound]), count, "{bound}");
    }
    assert_eq!(fleet.path("eth_call", "[{},\"latest\"]"), "a");
}

#[test]
fn a_chain_that_falls_back_takes_the_tip_down() {
    let fleet = three();
    for letter in ['a', 'b', 'c'] {
        fleet.node(letter).chain(|chain| {
            chain.rollback(3);
            chain.mine(1);
            chain.reorg(1, 2);
        });
    }
    fleet.settle();
    let metrics = fleet
        .gateway
        .wait_for_metrics("the tip to go down", |metrics| metrics.sum("ringway_network_tip", &[]) == TIP - 2);
    assert_eq!(metrics.sum("ringway_endpoint_standing", &["standing=\"fresh\""]), 3);
    let (path, answer) = fleet.ask("eth_getBlockByNumber", "[\"latest\",true]");
    assert!(path == "a" && answer.body.contains(&hash(2, TIP - 2)), "{path}: {answer:?}");
    assert_eq!(fleet.path("eth_call", &format!("[{{}},\"{:#x}\"]", TIP - 2)), "a");
    assert_eq!(all_fallbacks(&fleet.gateway.metrics()), 0);
}

#[test]
fn who_is_slow_or_silent_on_a_fork_is_on_it_still() {
    let fleet = Plan::of(&["minimal geth", "full reth", "archive erigon"]).interval("50ms").start();
    // Each of its samples is too old before the next one comes.
    fleet.node('a').set(|state| {
        state.view.reorg(2, 9);
        state.away = Duration::from_millis(200);
    });
    fleet.wait_for('a', "fork");
    ['b', 'c'].into_iter().for_each(|letter| fleet.node(letter).set(|state| state.calls = Mood::Broken));
    let polls = || fleet.node('a').set(|state| state.polled.len());
    let until = polls() + 6;
    while polls() < until {
        let (path, answer) = fleet.ask("eth_gasPrice", "[]");
        assert!(!path.contains('a'), "{path}: {answer:?}");
    }
    fleet.node('a').set(|state| state.polls = Mood::Hangs);
    let failed =
        |metrics: &Metrics| metrics.sum("ringway_tracker_polls_total", &["endpoint=\"a\"", "outcome=\"failed\""]);
    fleet.gateway.wait_for_metrics("its polls to fail", |metrics| failed(metrics) >= 2);
    assert_eq!(fleet.ask("eth_gasPrice", "[]").0, "bc");
    // Back on the chain it serves again.
    fleet.node('a').set(|state| {
        (state.polls, state.view) = (Mood::Well, View::default());
    });
    fleet.wait_for('a', "fresh");
    assert_eq!(fleet.path("eth_gasPrice", "[]"), "a");
}
