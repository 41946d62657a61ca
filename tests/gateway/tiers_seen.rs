//! Tiers and people: what `/metrics` alone tells, in its format; nothing secret in it; and cases from the public record.

use super::fleet::{Fleet, Plan, all_fallbacks, decisions, fallbacks};
use super::fleet_node::{Answer, MAIN, Mood, TIP, View, hash};
use serde_json::json;
use std::collections::{HashMap, HashSet};

/// What Prometheus asks of a page: each sample behind the head of its family, each family once, no series twice,
/// counters that end in `_total`, histograms whose buckets grow to their count.
fn check_format(page: &str) {
    let (mut kinds, mut series) = (HashMap::<&str, &str>::new(), HashSet::new());
    let (mut family, mut told) = ("", false);
    let mut last_bucket: Option<(String, f64)> = None;
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or_else(|| panic!("no help: {line}"));
            assert!(!help.trim().is_empty() && !kinds.contains_key(name), "{line}");
            (family, told) = (name, false);
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(name == family && !told, "{line} behind {family}");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            kinds.insert(name, kind);
            told = true;
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(series.insert(name.to_owned()), "twice: {line}");
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        let bare = name.split('{').next().unwrap();
        let parts = ["_bucket", "_sum", "_count"].map(|end| bare.strip_suffix(end));
        let of_histogram = kinds.get(family) == Some(&"histogram") && parts.contains(&Some(family));
        assert!(told && (bare == family || of_histogram), "{line} behind {family}");
        let Some((before, _)) = name.split_once("le=\"").filter(|_| bare.ends_with("_bucket")) else { continue };
        let grows = last_bucket.as_ref().is_none_or(|(same, least)| same != before || *least <= value);
        assert!(grows, "{line}");
        last_bucket = Some((before.to_owned(), value));
    }
    assert!(kinds.len() > 20, "{kinds:?}");
}

fn page(fleet: &Fleet) -> String {
    let page = fleet.gateway.admin_get("/metrics", &[]);
    assert_eq!(page.status, 200);
    page.body
}

#[test]
fn metrics_alone_tell_which_tier_served_what_and_why() {
    let fleet = Plan::of(&["minimal geth", "full reth", "archive erigon"]).start();
    check_format(&page(&fleet));
    (0..3).for_each(|_| assert_eq!(fleet.path("eth_call", "[{},\"latest\"]"), "a"));
    (0..2).for_each(|_| assert_eq!(fleet.path("eth_call", "[{},\"0x1\"]"), "c"));
    assert_eq!(fleet.path("trace_block", "[\"latest\"]"), "b");
    fleet.node('a').set(|state| state.calls = Mood::Broken);
    assert_eq!(fleet.path("eth_gasPrice", "[]"), "ab");
    fleet.node('a').set(|state| state.calls = Mood::Well);
    fleet.node('a').error("eth_getCode", -32000, "missing trie node");
    assert_eq!(fleet.path("eth_getCode", "[\"0x0\",\"latest\"]"), "ab");
    fleet.node('a').chain(|chain| chain.reorg(1, 2));
    fleet.wait_for('a', "fork");
    assert_eq!(fleet.path("eth_call", "[{},\"latest\"]"), "b");
    // All of them leave two blocks.
    for letter in ['a', 'b', 'c'] {
        fleet.node(letter).chain(|chain| {
            chain.mine(1);
            chain.reorg(2, 3);
        });
    }
    for letter in ['a', 'b', 'c'] {
        fleet.wait_for_tip(letter, TIP + 1);
        fleet.wait_for(letter, "fresh");
    }
    let metrics = fleet.gateway.metrics();
    check_format(&page(&fleet));
    for (method, tier, count) in [
        ("eth_call", "minimal", 3),
        ("eth_call", "archive", 2),
        ("eth_call", "full", 1),
        ("trace_block", "full", 1),
        ("eth_gasPrice", "full", 1),
        ("eth_getCode", "full", 1),
    ] {
        assert_eq!(decisions(&metrics, method, tier), count, "{method} {tier}");
    }
    assert_eq!(metrics.sum("ringway_routing_decisions_total", &[]), 9);
    for reason in ["failure", "missing_state", "fork"] {
        assert_eq!(fallbacks(&metrics, "minimal", "full", reason), 1, "{reason}");
    }
    assert_eq!(all_fallbacks(&metrics), 3);
    // The node's own, of one block, and that of all: from block `TIP` on, which is where each of them knew it.
    let reorgs = metrics.sum("ringway_reorgs_total", &["chain=\"ethereum\"", "network=\"mainnet\""]);
    let depths = metrics.sum("ringway_reorg_depth_sum", &[]);
    assert!((2..=3).contains(&reorgs) && (reorgs..=reorgs + 1).contains(&depths), "{reorgs} of {depths} blocks");
    for (letter, client) in [('a', "geth"), ('b', "reth"), ('c', "erigon")] {
        let labels = [format!("endpoint=\"{letter}\""), format!("client=\"{client}\"")];
        assert_eq!(metrics.sum("ringway_endpoint_client_info", &[&labels[0], &labels[1]]), 1);
        assert_eq!(metrics.of("ringway_endpoint_tip", &letter.to_string()), TIP + 1);
    }
}

#[test]
fn nothing_secret_is_in_what_trackers_tell() {
    let plan = Plan::of(&["minimal geth", "full reth"]);
    let address = plan.nodes[0].upstream.address;
    let plan = plan.lines(
        0,
        &format!(
            "url = \"http://{address}/v3/s3cr3t-path?key=s3cr3t-query\"\nheaders = {{ X-Key = \"s3cr3t-header\" }}"
        ),
    );
    let fleet = plan.start();
    let node = fleet.node('a');
    let polls = node.upstream.seen_with("eth_getBlockByNumber");
    let sent = |seen: &super::harness::Seen| {
        seen.line().contains("/v3/s3cr3t-path?key=s3cr3t-query")
            && seen.header("x-key").as_deref() == Some("s3cr3t-header")
    };
    assert!(!polls.is_empty() && polls.iter().all(sent), "polls go where Calls go, with the same headers");
    let mut pages = Vec::new();
    // Each kind of incident: a fork, another chain, silence, a version that speaks of itself.
    node.chain(|chain| chain.reorg(1, 2));
    fleet.wait_for('a', "fork");
    pages.push(page(&fleet));
    node.chain(|chain| *chain = View::default());
    fleet.wait_for('a', "fresh");
    for mood in [Mood::Broken, Mood::Closes, Mood::Refuses] {
        node.set(|state| (state.polls, state.calls) = (mood, mood));
        fleet.wait_for('a', "unknown");
        pages.push(fleet.call("eth_getBalance", "[\"0x0\",\"latest\"]").body);
        pages.push(page(&fleet));
    }
    for target in ["/v1/endpoints", "/v1/endpoints/a", "/v1/gateways"] {
        pages.push(fleet.gateway.admin_get(target, &[]).body);
    }
    pages.push(fleet.gateway.log());
    for page in pages {
        assert!(!page.contains("s3cr3t"), "{page}");
    }
}

#[test]
fn nodecore_184_the_head_goes_down_with_the_chain() {
    let fleet = Plan::of(&["full geth", "full reth"]).start();
    for letter in ['a', 'b'] {
        fleet.node(letter).chain(|chain| {
            chain.rollback(2);
            chain.reorg(1, 2);
        });
    }
    fleet.settle();
    let metrics = fleet
        .gateway
        .wait_for_metrics("the head to go down", |metrics| metrics.sum("ringway_network_tip", &[]) == TIP - 2);
    assert_eq!(metrics.sum("ringway_endpoint_standing", &["standing=\"fresh\""]), 2);
    let (path, answer) = fleet.ask("eth_getBlockByNumber", "[\"latest\",true]");
    assert!(path.len() == 1 && answer.body.contains(&hash(2, TIP - 2)), "{path}: {answer:?}");
}

/// The first line of the log with this text.
fn line(fleet: &Fleet, text: &str) -> serde_json::Value {
    let log = fleet.gateway.log();
    log.lines().find(|line| line.contains(text)).map(|line| serde_json::from_str(line).unwrap()).unwrap_or_default()
}

#[test]
fn the_log_says_how_far_behind_a_node_is_and_of_which_chain() {
    let fleet = Plan::of(&["full geth", "full reth"]).network("max_lag = 2").start();
    fleet.node('b').chain(|chain| chain.rollback(7));
    fleet.gateway.wait_for_log("\"Tip: lags\"");
    let told = line(&fleet, "\"Tip: lags\"");
    let seen = ["endpoint", "network", "tip", "lag"].map(|key| &told[key]);
    assert_eq!(seen, [&json!("b"), &json!("ethereum/mainnet"), &json!(TIP - 7), &json!(7)], "{told}");
    let fresh = line(&fleet, "\"Tip: keeps up\"");
    assert_eq!((&fresh["tip"], &fresh["lag"]), (&json!(TIP), &json!(0)), "{fresh}");
    fleet.node('a').chain(|chain| chain.reorg(1, 2));
    fleet.gateway.wait_for_log("\"Re-org\"");
    let told = line(&fleet, "\"Re-org\"");
    let seen = ["endpoint", "network", "depth", "number"].map(|key| &told[key]);
    assert_eq!(seen, [&json!("a"), &json!("ethereum/mainnet"), &json!(1), &json!(TIP)], "{told}");
}

#[test]
fn nodecore_300_a_head_without_a_hash_or_that_is_its_own_parent_is_none() {
    let fleet = Plan::of(&["minimal geth", "full reth"]).interval("50ms").start();
    let block = |hash: &str, parent: &str| {
        let number = TIP + 1_000;
        format!("{{\"number\":\"{number:#x}\",\"hash\":\"{hash}\",\"parentHash\":\"{parent}\",\"timestamp\":\"0x1\"}}")
    };
    let (own, zero) = (hash(7, TIP + 1_000), format!("0x{}", "0".repeat(64)));
    let bad = [block("0x", &own), block("zz", &own), block("", ""), block(&own, &own), block(&zero, &own)];
    for head in bad.iter().map(String::as_str).chain(["null", "{}", "[]"]) {
        fleet.node('a').set(|state| state.head = Some(head.to_owned()));
        fleet.wait_for('a', "unknown");
        let before = fleet.node('a').upstream.count_with("eth_getBlockByNumber");
        let polls = fleet.node('a').set(|state| state.polled.len());
        fleet.gateway.wait_for_metrics("more polls", |_| fleet.node('a').set(|state| state.polled.len()) >= polls + 3);
        let asked = fleet.node('a').upstream.count_with("eth_getBlockByNumber") - before;
        let polled = fleet.node('a').set(|state| state.polled.len()) - polls;
        assert!(asked <= polled + 2, "no walk back: {asked} reads in {polled} polls of {head}");
        assert_eq!(fleet.path("eth_call", "[{},\"latest\"]"), "b", "{head}");
        assert_eq!(fleet.gateway.metrics().sum("ringway_network_tip", &[]), TIP);
        fleet.node('a').set(|state| state.head = None);
        fleet.wait_for('a', "fresh");
    }
}

#[test]
fn erpc_275_what_a_node_says_of_syncing_takes_nobody_out() {
    let fleet = Plan::of(&["minimal geth", "full reth"]).start();
    for letter in ['a', 'b'] {
        fleet.node(letter).answer("eth_syncing", Answer::Result("{\"currentBlock\":\"0x1\"}".to_owned()));
    }
    for _ in 0..10 {
        assert_eq!(fleet.path("eth_syncing", "[]"), "a");
        assert_eq!(fleet.path("eth_call", "[{},\"latest\"]"), "a");
    }
    let own = |letter| fleet.node(letter).upstream.seen_with("eth_syncing");
    assert!(own('a').iter().all(|seen| seen.header("traceparent").is_some()), "only callers ask");
    assert_eq!(fleet.gateway.metrics().sum("ringway_endpoint_standing", &["standing=\"fresh\""]), 2);
}

#[test]
fn metamask_13322_what_a_pruned_node_lacks_an_archive_is_asked() {
    let strict = "consecutive_failures = 1\ncooldown = \"60s\"\nmax_cooldown = \"60s\"";
    // It claims more than it holds.
    let plan = Plan::of(&["full geth", "archive erigon"]).circuit(strict).lines(0, "state_blocks = 100000");
    plan.nodes[0].set(|state| state.state_from = TIP - 100);
    let fleet = plan.start();
    let old = "[\"0x0\",\"0x350\"]";
    let (path, answer) = fleet.ask("eth_getBalance", old);
    assert_eq!(path, "ab");
    answer.assert_result("1", &format!("\"{TIP:#x}\""));
    assert!(fleet.node('b').upstream.seen_with("eth_getBalance")[0].holds(old), "numbers go up as they are");
    let metrics = fleet.gateway.metrics();
    assert_eq!(
        (fallbacks(&metrics, "full", "archive", "missing_state"), metrics.of("ringway_circuit_state", "a")),
        (1, 0)
    );
    fleet.node('b').set(|state| state.state_from = TIP);
    fleet.node('a').error("eth_getBalance", -32000, "missing trie node at a");
    let (path, answer) = fleet.ask("eth_getBalance", old);
    assert!(path == "ab" && answer.body.contains("missing trie node at a"), "{path}: {answer:?}");
    let (path, _) = fleet.ask("eth_getBlockByHash", &format!("[\"{}\",true]", hash(MAIN, TIP)));
    assert_eq!(path, "a");
}
