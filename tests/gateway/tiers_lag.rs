//! Tiers and tips: who lags, whose tip is unknown, who is on another chain, and who only says that it is far ahead.

use super::fleet::{Fleet, Plan, all_fallbacks, decisions, fallbacks};
use super::fleet_node::{MAIN, Mood, TIP, hash};
use super::harness::call_body;
use std::time::Duration;

const LATEST: &str = "[{},\"latest\"]";

fn three() -> Fleet {
    Plan::of(&["minimal geth", "full reth", "archive erigon"]).start()
}

#[test]
fn two_blocks_are_no_lag_and_three_are() {
    let fleet = three();
    ['b', 'c'].into_iter().for_each(|letter| fleet.node(letter).chain(|chain| chain.mine(2)));
    fleet.wait_for_lag('a', 2);
    fleet.wait_for('a', "fresh");
    assert_eq!(fleet.path("eth_call", LATEST), "a", "two behind");
    fleet.node('b').chain(|chain| chain.mine(1));
    fleet.node('c').chain(|chain| chain.mine(2));
    fleet.wait_for_lag('a', 4);
    fleet.wait_for('a', "lagging");
    for _ in 0..5 {
        assert_eq!(fleet.path("eth_call", LATEST), "c", "to whoever has the highest block, and not to the next tier");
    }
    let metrics = fleet.gateway.metrics();
    assert_eq!((fallbacks(&metrics, "minimal", "archive", "lag"), all_fallbacks(&metrics)), (5, 5));
    assert_eq!((decisions(&metrics, "eth_call", "archive"), metrics.of("ringway_endpoint_lag_blocks", "a")), (5, 4));
    // It catches up: the next poll tells.
    let polls = |fleet: &Fleet| fleet.node('a').set(|state| state.polled.len());
    let before = fleet.node('a').set(|state| {
        state.view.mine(4);
        state.polled.len()
    });
    fleet.wait_for('a', "fresh");
    // One that was under way may have read the block from before.
    assert!(polls(&fleet) - before <= 3, "{}", polls(&fleet) - before);
    assert_eq!(fleet.path("eth_call", LATEST), "a");
    assert_eq!(all_fallbacks(&fleet.gateway.metrics()), 5);
}

#[test]
fn a_node_that_lags_leaves_its_tier_to_the_others() {
    let fleet = Plan::of(&["minimal geth", "minimal geth", "archive erigon"]).start();
    ['b', 'c'].into_iter().for_each(|letter| fleet.node(letter).chain(|chain| chain.mine(5)));
    fleet.settle();
    fleet.wait_for('a', "lagging");
    (0..20).for_each(|_| assert_eq!(fleet.path("eth_call", LATEST), "b"));
    assert_eq!(all_fallbacks(&fleet.gateway.metrics()), 0, "the tier serves");
    // Old blocks are no exception.
    assert_eq!(fleet.path("eth_call", &format!("[{{}},\"{:#x}\"]", TIP - 3)), "b");
}

#[test]
fn lagging_ones_are_asked_last_and_the_highest_of_them_first() {
    let fleet = Plan::of(&["minimal geth", "minimal reth", "full nethermind", "archive erigon"]).start();
    for (letter, blocks) in [('a', 3), ('b', 5), ('c', 4), ('d', 20)] {
        fleet.node(letter).chain(|chain| chain.mine(blocks));
    }
    [('a', 17), ('b', 15), ('c', 16)].into_iter().for_each(|(letter, lag)| fleet.wait_for_lag(letter, lag));
    fleet.node('d').set(|state| state.calls = Mood::Broken);
    let attempts = |fleet: &Fleet| fleet.path("eth_call", LATEST);
    assert_eq!(attempts(&fleet), "db");
    fleet.node('b').set(|state| state.calls = Mood::Broken);
    assert_eq!(attempts(&fleet), "dbc");
}

#[test]
fn max_lag_is_what_the_configuration_says() {
    let fleet = Plan::of(&["minimal geth", "archive erigon"]).network("max_lag = 7").start();
    fleet.node('b').chain(|chain| chain.mine(7));
    fleet.wait_for_lag('a', 7);
    assert_eq!(fleet.path("eth_call", LATEST), "a");
    fleet.node('b').chain(|chain| chain.mine(1));
    fleet.settle();
    fleet.wait_for('a', "lagging");
    assert_eq!(fleet.path("eth_call", LATEST), "b");
}

#[test]
fn inside_a_tier_calls_go_by_weight() {
    let plan = Plan::of(&["minimal geth", "minimal reth", "minimal besu", "archive erigon"]).interval("1s");
    let fleet = plan.weights(&[3, 1, 0, 5]).start();
    let mut client = fleet.gateway.connect();
    for _ in 0..600 {
        client.post("/eth", &[super::fleet_node::MARK], call_body("1", "eth_call", LATEST));
        client.response().assert_result("1", &format!("\"{TIP:#x}\""));
    }
    let (a, b) = (fleet.count('a'), fleet.count('b'));
    // 450 ± 10.6: six deviations.
    assert!(a + b == 600 && (386..=514).contains(&a), "{a} and {b}");
    assert_eq!((fleet.count('c'), fleet.count('d')), (0, 0), "weight 0 is never drawn");
}

#[test]
fn an_unknown_tip_is_not_taken_for_fresh() {
    let fleet = three();
    fleet.node('a').set(|state| state.polls = Mood::Refuses);
    fleet.wait_for('a', "unknown");
    assert_eq!(fleet.path("eth_call", LATEST), "b", "it serves, but nobody knows what");
    let metrics = fleet.gateway.metrics();
    assert_eq!((fallbacks(&metrics, "minimal", "full", "unknown_tip"), all_fallbacks(&metrics)), (1, 1));
    ['b', 'c'].into_iter().for_each(|letter| fleet.node(letter).set(|state| state.calls = Mood::Broken));
    assert_eq!(fleet.path("eth_call", LATEST), "bca", "better than nobody");
    ['b', 'c']
        .into_iter()
        .for_each(|letter| fleet.node(letter).set(|state| (state.polls, state.calls) = (Mood::Refuses, Mood::Well)));
    ['b', 'c'].into_iter().for_each(|letter| fleet.wait_for(letter, "unknown"));
    assert_eq!(fleet.path("eth_call", LATEST), "a", "no tip is known at all: all count");
    fleet.node('a').set(|state| state.polls = Mood::Well);
    fleet.wait_for('a', "fresh");
    assert_eq!(fleet.path("eth_call", LATEST), "a");
}

#[test]
fn before_anything_is_known_all_count() {
    let plan = Plan::of(&["minimal geth", "archive anvil"]);
    plan.nodes.iter().for_each(|node| node.set(|state| state.polls = Mood::Hangs));
    let fleet = plan.lines(0, "client = \"geth\"").start_blind();
    assert_eq!(fleet.path("eth_call", LATEST), "a");
    assert_eq!(fleet.path("eth_call", "[{},\"0x1\"]"), "a", "no height is deep while none is known");
    assert_eq!(fleet.path("eth_call", "[{},\"earliest\"]"), "b");
    assert_eq!(fleet.path("debug_traceTransaction", "[\"0x1\"]"), "a", "its client is configured");
    let (path, answer) = fleet.ask("trace_block", "[\"latest\"]");
    assert_eq!(
        (path.as_str(), answer.code()),
        ("", -32050),
        "what the other one runs is not known yet: not for ever no"
    );
}

#[test]
fn far_ahead_and_alone_makes_nobody_lag() {
    let fleet = three();
    fleet.node('c').chain(|chain| {
        chain.reorg(1_000, 66);
        chain.mine(65);
    });
    fleet.gateway.wait_for_metrics("the liar to be heard", |metrics| {
        metrics.sum("ringway_endpoint_standing", &["endpoint=\"c\"", "standing=\"fresh\""]) == 0
    });
    let polls = fleet.node('a').set(|state| state.polled.len());
    fleet.gateway.wait_for_metrics("another poll", |_| fleet.node('a').set(|state| state.polled.len()) > polls + 1);
    for _ in 0..5 {
        assert_eq!(fleet.path("eth_call", LATEST), "a");
    }
    let metrics = fleet.gateway.metrics();
    assert_eq!((metrics.sum("ringway_network_tip", &[]), all_fallbacks(&metrics)), (TIP, 0));
    // One that shows the others' chain below is believed.
    fleet.node('c').set(|state| state.view = Default::default());
    fleet.wait_for('c', "fresh");
    fleet.node('c').chain(|chain| chain.mine(65));
    fleet.wait_for_tip('c', TIP + 65);
    fleet.wait_for('a', "lagging");
    assert_eq!(fleet.path("eth_call", LATEST), "c");
}

#[test]
fn a_node_of_another_chain_is_never_asked() {
    let plan = Plan::of(&["minimal geth", "full reth", "archive erigon"]);
    plan.nodes[0].set(|state| state.chain_id = 137);
    let more = |id: &str, strategy: &str, targets: &str| {
        format!(
            "[[gateway]]\nid = \"{id}\"\npath = \"/{id}\"\nchain = \"ethereum\"\nnetwork = \"mainnet\"\n\
             endpoint_free = []\n[[gateway.route]]\nid = \"default\"\nstrategy = \"{strategy}\"\ntargets = {targets}\n"
        )
    };
    let fleet = plan
        .more(&more("first", "priority", "[\"a\", \"b\"]"))
        .more(&more("drawn", "weighted", "[{ endpoint = \"a\", weight = 999 }, { endpoint = \"b\", weight = 1 }]"))
        .more(&more("alone", "priority", "[\"a\"]"))
        .more(&more("tiers", "tiered", "[\"a\"]"))
        .start_blind();
    fleet.gateway.wait_for_metrics("the wrong chain to be found", |metrics| {
        metrics.of("ringway_endpoint_mismatched", "a") == 1
            && metrics.sum("ringway_endpoint_standing", &["standing=\"fresh\""]) == 2
    });
    fleet.gateway.wait_for_log("\"a\"");
    let ask = |path: &str| {
        let (before, mut client) = (fleet.so_far(), fleet.gateway.connect());
        client.post(path, &[super::fleet_node::MARK], call_body("1", "eth_call", LATEST));
        let answer = client.response();
        (fleet.reached(before), answer)
    };
    for _ in 0..5 {
        for path in ["/eth", "/first", "/drawn"] {
            assert_eq!(ask(path).0, "b", "{path}");
        }
        for path in ["/alone", "/tiers"] {
            let (reached, answer) = ask(path);
            assert_eq!(reached, "", "{path}");
            answer.assert_fault(503, "1", -32050);
        }
    }
    // Mended, it is found out again.
    fleet.node('a').set(|state| state.chain_id = 1);
    fleet.wait_for('a', "fresh");
    for path in ["/eth", "/first", "/alone", "/tiers"] {
        assert_eq!(ask(path).0, "a", "{path}");
    }
}

#[test]
fn a_poll_that_fails_excludes_nobody() {
    let plan = Plan::of(&["minimal geth", "archive erigon"]);
    let first = "[[gateway]]\nid = \"first\"\npath = \"/first\"\nchain = \"ethereum\"\nnetwork = \"mainnet\"\n\
                 [[gateway.route]]\nid = \"default\"\ntargets = [\"a\", \"b\"]\n";
    let fleet = plan.more(first).circuit("consecutive_failures = 1").start();
    for mood in [Mood::Refuses, Mood::Broken, Mood::Closes] {
        fleet.node('a').set(|state| state.polls = mood);
        fleet.wait_for('a', "unknown");
        let before = fleet.so_far();
        let mut client = fleet.gateway.connect();
        client.post("/first", &[super::fleet_node::MARK], call_body("1", "eth_call", LATEST));
        client.response().assert_result("1", &format!("\"{TIP:#x}\""));
        assert_eq!(fleet.reached(before), "a", "{mood:?}");
        assert_eq!(fleet.gateway.metrics().of("ringway_circuit_state", "a"), 0, "polls are nothing to a Circuit");
        fleet.node('a').set(|state| state.polls = Mood::Well);
        fleet.wait_for('a', "fresh");
    }
    assert!(fleet.gateway.metrics().sum("ringway_tracker_polls_total", &["endpoint=\"a\"", "\"failed\""]) >= 3);
}

#[test]
fn a_reload_keeps_what_is_known_of_tips() {
    let mut fleet = Plan::of(&["minimal geth", "archive erigon"]).interval("10s").start();
    fleet.plan.reweigh(&[5, 1]);
    fleet.plan.nodes.iter().for_each(|node| node.set(|state| state.polls = Mood::Hangs));
    assert!(fleet.gateway.reload(&fleet.plan.setup()));
    let metrics = fleet.gateway.metrics();
    for letter in ["a", "b"] {
        assert_eq!(metrics.of("ringway_endpoint_tip", letter), TIP, "{letter}");
        let info = [format!("endpoint=\"{letter}\""), "client=\"unknown\"".to_owned()];
        assert_eq!(metrics.sum("ringway_endpoint_client_info", &[&info[0], &info[1]]), 0, "{letter}");
    }
    assert_eq!(fleet.path("trace_block", "[\"latest\"]"), "b");
    assert_eq!(fleet.path("eth_call", &format!("[{{}},\"{:#x}\"]", TIP - 128)), "b");
    assert_eq!(fleet.path("eth_call", LATEST), "a");
    // And the chain: a block that is on another branch is still seen as such. Nobody can be polled, nobody agrees.
    fleet.node('a').set(|state| {
        let mut lie = state.view.clone();
        lie.reorg(1, 9);
        state.lie = Some(lie);
    });
    let (path, answer) = fleet.ask("eth_getBlockByNumber", "[\"latest\",true]");
    assert!(path == "ab" && answer.body.contains(&hash(MAIN, TIP)), "{path}: {answer:?}");
}

#[test]
fn a_poll_that_a_reload_overtakes_tells_nothing() {
    let mut fleet = Plan::of(&["minimal geth", "full reth", "archive erigon"]).interval("300ms").start();
    fleet.settle();
    fleet.node('a').set(|state| state.polls = Mood::Hangs);
    fleet.wait_for('a', "unknown");
    fleet.plan.reweigh(&[5, 1, 1]);
    let failed = |metrics: &super::harness::Metrics| {
        metrics.sum("ringway_tracker_polls_total", &["endpoint=\"a\"", "outcome=\"failed\""])
    };
    let before = failed(&fleet.gateway.metrics());
    assert!(fleet.gateway.reload(&fleet.plan.setup()));
    fleet.gateway.wait_for_metrics("polls that fail after it", |metrics| {
        for letter in ["b", "c"] {
            let unknown = [format!("endpoint=\"{letter}\""), "standing=\"unknown\"".to_owned()];
            assert_eq!(metrics.sum("ringway_endpoint_standing", &[&unknown[0], &unknown[1]]), 0, "{letter}");
        }
        assert_eq!(metrics.sum("ringway_network_tip", &[]), TIP);
        failed(metrics) >= before + 2
    });
}

#[test]
fn a_reload_keeps_the_chain() {
    let mut fleet = three();
    for _ in 0..2 {
        ['a', 'b', 'c'].into_iter().for_each(|letter| fleet.node(letter).chain(|chain| chain.mine(4)));
        fleet.settle();
    }
    fleet.plan.reweigh(&[5, 1, 1]);
    assert!(fleet.gateway.reload(&fleet.plan.setup()));
    let polls = |letter| fleet.node(letter).set(|state| state.polled.len());
    let before = ['a', 'b', 'c'].map(polls);
    fleet.gateway.wait_for_metrics("polls after it", |_| {
        ['a', 'b', 'c'].map(polls).iter().zip(before).all(|(now, before)| *now > before + 1)
    });
    for letter in ['a', 'b', 'c'] {
        fleet.node(letter).chain(|chain| {
            chain.reorg(6, 2);
            chain.mine(1);
        });
    }
    fleet.settle();
    let metrics = fleet.gateway.wait_for_metrics("the re-org", |metrics| metrics.sum("ringway_reorgs_total", &[]) > 0);
    assert_eq!(metrics.sum("ringway_reorg_depth_sum", &[]), 6, "as deep as it was, though most of it came before");
}

#[test]
fn a_node_that_is_far_away_is_known_although_all_questions_together_take_longer_than_a_poll() {
    let plan = Plan::of(&["minimal geth", "full reth"]);
    // Four answers take 800 ms, and a poll has 500.
    plan.nodes.iter().for_each(|node| node.set(|state| state.away = Duration::from_millis(200)));
    let fleet = plan.start();
    assert_eq!(fleet.path("eth_call", LATEST), "a");
    let metrics = fleet.gateway.metrics();
    for client in ["client=\"geth\"", "client=\"reth\""] {
        assert_eq!(metrics.sum("ringway_endpoint_client_info", &[client]), 1, "{client}");
    }
    // It is gone for a while, and is asked all of it again.
    fleet.node('a').set(|state| state.polls = Mood::Hangs);
    fleet.wait_for('a', "unknown");
    fleet.node('a').set(|state| state.polls = Mood::Well);
    fleet.wait_for('a', "fresh");
}

#[test]
fn a_question_that_is_never_answered_keeps_no_tip_back() {
    for question in ["web3_clientVersion", "rpc_modules"] {
        let plan = Plan::of(&["minimal geth", "full reth"]);
        plan.nodes[0].set(|state| state.deaf_to = question);
        let fleet = plan.start();
        // Not only once: later polls ask for its blocks alone.
        let polls = || fleet.node('a').set(|state| state.polled.len());
        let before = polls();
        fleet.gateway.wait_for_metrics("more polls", |_| polls() >= before + 5);
        fleet.wait_for('a', "fresh");
        let asked = fleet.node('a').upstream.count_with(question);
        assert!(asked <= 3, "{question}: asked {asked} times");
    }
}
