//! Tiers by method: who has it by its client, its configuration, what it says it offers, and what it said before.

use super::fleet::{Fleet, Plan, decisions, fallbacks};
use super::fleet_node::{Answer, MARK};
use super::harness::{Response, call_body};
use serde_json::json;

const CLIENTS: [&str; 6] = ["geth", "reth", "erigon", "nethermind", "besu", "anvil"];
const TABLE: &str = include_str!("../../src/logic/methods/evm.csv");

/// Rows of these namespaces: the name, and the clients that have it.
fn rows(namespaces: &[&str]) -> Vec<(&'static str, Vec<&'static str>)> {
    let cells = TABLE.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    let named = |name: &str| namespaces.iter().any(|namespace| name.starts_with(namespace));
    let clients = |cell: &'static str| cell.split('|').filter(|name| *name != "-").collect();
    cells.filter(|cells| named(cells[0])).map(|cells| (cells[0], clients(cells[4]))).collect()
}

/// A node of each client, in one Route together, and each in a Gateway of its own under the client's name.
fn one_of_each() -> Fleet {
    let tiers: Vec<String> = CLIENTS.iter().map(|client| format!("full {client}")).collect();
    let tiers: Vec<&str> = tiers.iter().map(String::as_str).collect();
    let alone: String = ('a'..='f')
        .zip(CLIENTS)
        .map(|(letter, client)| {
            format!(
                "[[gateway]]\nid = \"{client}\"\npath = \"/{client}\"\nchain = \"ethereum\"\nnetwork = \"mainnet\"\n\
                 endpoint_free = []\nexpose = [\"debug\"]\n\
                 [[gateway.route]]\nid = \"default\"\nstrategy = \"tiered\"\ntargets = [\"{letter}\"]\n"
            )
        })
        .collect();
    Plan::of(&tiers).interval("1s").gateway("endpoint_free = []\nexpose = [\"debug\"]").more(&alone).start()
}

/// Nobody was asked, because nobody has it.
#[track_caller]
fn assert_lacking(fleet: &Fleet, before: usize, answer: &Response, what: &str) {
    answer.assert_fault(200, "1", -32601);
    assert_eq!((answer.reason().as_str(), answer.attempts()), ("capability", 0), "{what}: {answer:?}");
    assert_eq!(fleet.reached(before), "", "{what}");
}

#[test]
fn no_client_is_sent_what_it_lacks() {
    let fleet = one_of_each();
    let rows = rows(&["erigon_", "ots_", "txpool_", "trace_", "debug_"]);
    assert!(rows.len() > 120, "{}", rows.len());
    let mut connection = fleet.gateway.connect();
    for (method, clients) in &rows {
        for (letter, client) in ('a'..='f').zip(CLIENTS) {
            let before = fleet.so_far();
            connection.post(&format!("/{client}"), &[MARK], call_body("1", method, "[]"));
            let answer = connection.response();
            match clients.contains(&client) {
                true => assert_eq!(fleet.reached(before), letter.to_string(), "{method} of {client}: {answer:?}"),
                false => assert_lacking(&fleet, before, &answer, &format!("{method} of {client}")),
            }
        }
        // Among all of them: only who has it.
        for _ in 0..3 {
            let before = fleet.so_far();
            connection.post("/eth", &[MARK], call_body("1", method, "[]"));
            let answer = connection.response();
            if clients.is_empty() {
                assert_lacking(&fleet, before, &answer, method);
                continue;
            }
            let reached = fleet.reached(before);
            let client = reached.chars().next().map(|letter| CLIENTS[letter as usize - 'a' as usize]);
            assert!(reached.len() == 1 && clients.contains(&client.unwrap()), "{method} by {reached}: {answer:?}");
        }
    }
}

#[test]
fn who_has_what_is_as_the_contract_says() {
    let fleet = one_of_each();
    let sets: [(&str, &str); 10] = [
        ("erigon_blockNumber", "c"),
        ("ots_getApiLevel", "c"),
        ("txpool_status", "ab"),
        ("txpool_inspect", "ab"),
        ("txpool_content", "abcd"),
        ("trace_block", "bcde"),
        // No rows: by their namespace.
        ("erigon_ofAnotherYear", "c"),
        ("ots_ofAnotherYear", "c"),
        ("trace_ofAnotherYear", "bcde"),
        ("eth_ofAnotherYear", "abcdef"),
    ];
    for (method, letters) in sets {
        for (letter, client) in ('a'..='f').zip(CLIENTS) {
            let before = fleet.so_far();
            let mut connection = fleet.gateway.connect();
            connection.post(&format!("/{client}"), &[MARK], call_body("1", method, "[]"));
            let answer = connection.response();
            match letters.contains(letter) {
                true => assert_eq!(fleet.reached(before), letter.to_string(), "{method} of {client}: {answer:?}"),
                false => assert_lacking(&fleet, before, &answer, &format!("{method} of {client}")),
            }
        }
    }
    for method in ["eth_call", "net_version", "web3_clientVersion"] {
        let mut connection = fleet.gateway.connect();
        connection.post("/anvil", &[MARK], call_body("1", method, "[]"));
        assert!(connection.response().json().get("result").is_some(), "an unknown client has {method}");
    }
    let before = fleet.so_far();
    let answer = fleet.call("acme_thing", "[]");
    assert_lacking(&fleet, before, &answer, "a namespace that nobody is known for");
    let batch = format!("[{},{}]", call_body("1", "acme_thing", "[]"), call_body("2", "eth_chainId", "[]"));
    let mut connection = fleet.gateway.connect();
    connection.post("/eth", &[MARK], batch);
    let answers = connection.response();
    assert_eq!(answers.json()[0]["error"]["data"]["reason"], "capability", "{answers:?}");
    assert!(answers.json()[1].get("result").is_some() && answers.status == 200, "{answers:?}");
}

#[test]
fn configuration_adds_and_takes_away() {
    let fleet = Plan::of(&["minimal geth", "full anvil", "archive erigon"])
        .interval("1s")
        .lines(0, "capabilities = [\"ots\", \"acme_one\"]\nwithout = [\"debug\", \"ots_hasCode\"]")
        .lines(1, "capabilities = [\"trace_block\", \"acme\"]\nclient = \"nethermind/v1\"")
        .lines(2, "without = [\"trace_filter\", \"erigon\"]\ncapabilities = [\"erigon_forks\"]")
        .start();
    for (method, path) in [
        ("ots_getApiLevel", "a"),
        ("ots_hasCode", "c"),
        ("ots_ofAnotherYear", "a"),
        ("debug_traceTransaction", "b"),
        ("debug_memStats", "c"),
        ("trace_block", "b"),
        ("trace_filter", "b"),
        ("trace_transaction", "b"),
        ("acme_one", "a"),
        ("acme_two", "b"),
        ("erigon_forks", "c"),
    ] {
        assert_eq!(fleet.path(method, "[]"), path, "{method}");
    }
    for method in ["erigon_blockNumber", "erigon_ofAnotherYear", "debug_stacks"] {
        let before = fleet.so_far();
        let answer = fleet.call(method, "[]");
        assert_lacking(&fleet, before, &answer, method);
    }
}

#[test]
fn what_a_node_says_it_does_not_offer_is_not_asked_of_it() {
    let plan = Plan::of(&["minimal geth", "full geth", "archive reth"]).interval("1s");
    plan.nodes[0].set(|state| state.modules = Some(vec!["eth", "net", "web3"]));
    // One that does not name `eth` has told nothing.
    plan.nodes[2].set(|state| state.modules = Some(vec!["rpc"]));
    let plan = plan.lines(0, "capabilities = [\"debug_traceCall\"]");
    let fleet = plan.start();
    assert_eq!(fleet.path("txpool_status", "[]"), "b", "its modules leave it out");
    assert_eq!(fleet.path("debug_traceTransaction", "[\"0x1\"]"), "b");
    assert_eq!(fleet.path("debug_traceCall", "[{},\"latest\"]"), "a", "the configuration adds it");
    assert_eq!(fleet.path("eth_call", "[{},\"latest\"]"), "a");
    // Modules add nothing: Geth has no trace_*.
    fleet.node('b').set(|state| state.modules = Some(vec!["eth", "trace"]));
    assert_eq!(fleet.path("trace_block", "[\"latest\"]"), "c");
}

#[test]
fn nobody_offers_it_any_more() {
    let plan = Plan::of(&["minimal geth", "full geth"]).interval("1s");
    for node in &plan.nodes {
        node.set(|state| state.modules = Some(vec!["eth", "net", "web3"]));
    }
    let fleet = plan.start();
    let before = fleet.so_far();
    let answer = fleet.call("debug_traceTransaction", "[\"0x1\"]");
    assert_lacking(&fleet, before, &answer, "no module");
}

#[test]
fn method_not_found_goes_on_to_another_client_and_is_remembered() {
    let fleet = Plan::of(&["minimal geth", "full geth", "full reth", "archive geth"])
        .interval("1s")
        .circuit("consecutive_failures = 1\ncooldown = \"60s\"\nmax_cooldown = \"60s\"")
        .start();
    for letter in ['a', 'b'] {
        fleet.node(letter).set(|state| state.lacks = vec!["eth_simulateV1".to_owned(), "debug_".to_owned()]);
    }
    let first = fleet.path("eth_simulateV1", "[{},\"latest\"]");
    assert!(["ac", "abc", "abd"].contains(&first.as_str()), "{first}");
    // Once both have said so, nobody asks them before the others.
    let mut last = String::new();
    for _ in 0..40 {
        last = fleet.path("eth_simulateV1", "[{},\"latest\"]");
    }
    assert_eq!(last, "c");
    assert_eq!((fleet.path("eth_call", "[{}]"), fleet.path("eth_gasPrice", "[]")), ("a".into(), "a".into()));
    let metrics = fleet.gateway.metrics();
    assert_eq!(fallbacks(&metrics, "minimal", "full", "capability"), decisions(&metrics, "eth_simulateV1", "full"));
    assert_eq!(decisions(&metrics, "eth_simulateV1", "full") + decisions(&metrics, "eth_simulateV1", "archive"), 41);
    assert_eq!(metrics.sum("ringway_circuit_state", &[]), 0, "to lack a method is no failure");
    // The only ones that are left say so too: they are asked all the same, and the answer is theirs.
    for letter in ['c', 'd'] {
        fleet.node(letter).set(|state| state.lacks = vec!["eth_simulateV1".to_owned()]);
    }
    let (path, answer) = fleet.ask("eth_simulateV1", "[{},\"latest\"]");
    assert!(path.starts_with('c') && answer.code() == -32601, "{path}: {answer:?}");
}

#[test]
fn the_first_error_is_told_if_nobody_has_the_method() {
    let fleet = Plan::of(&["minimal geth", "full reth", "archive erigon"]).interval("1s").start();
    for letter in ['a', 'b', 'c'] {
        fleet.node(letter).error("eth_getProof", -32601, &format!("not at {letter}"));
    }
    let (path, answer) = fleet.ask("eth_getProof", "[\"0x0\",[],\"latest\"]");
    assert_eq!((path.as_str(), answer.status), ("abc", 200));
    assert_eq!(answer.json()["error"], json!({"code": -32601, "message": "not at a"}), "{answer:?}");
    let metrics = fleet.gateway.metrics();
    assert_eq!((metrics.calls("node_error"), metrics.sum("ringway_circuit_state", &[])), (1, 0));
    // Who says so in words alone is understood, and what is no query is asked once.
    fleet.node('a').error("eth_getBalance", -32000, "the method eth_getBalance does not exist/is not available");
    assert_eq!(fleet.path("eth_getBalance", "[\"0x0\",\"latest\"]"), "ab");
    fleet.node('a').error("eth_newFilter", -32601, "no filters");
    let (path, answer) = fleet.ask("eth_newFilter", "[{}]");
    assert_eq!((path.as_str(), answer.code()), ("a", -32601));
}

#[test]
fn methods_may_have_tiered_routes_of_their_own() {
    let heavy = "[[gateway.route]]\nid = \"heavy\"\nmethods = [\"debug_traceTransaction\"]\nstrategy = \"tiered\"\n\
                 targets = [\"b\", \"c\"]\n";
    // Behind the default Route, which is the last thing of its Gateway.
    let fleet = Plan::of(&["minimal geth", "full geth", "archive erigon"])
        .interval("1s")
        .route(&format!("strategy = \"tiered\"\n{heavy}"))
        .start();
    assert_eq!(fleet.path("debug_traceTransaction", "[\"0x1\"]"), "b");
    assert_eq!(fleet.path("debug_traceCall", "[{},\"latest\"]"), "a");
    fleet
        .node('b')
        .answer("debug_traceTransaction", Answer::Error(r#"{"code":-32000,"message":"header not found"}"#.into()));
    assert_eq!(fleet.path("debug_traceTransaction", "[\"0x1\"]"), "bc");
    let metrics = fleet.gateway.metrics();
    let labels = ["route=\"heavy\"", "from=\"full\"", "to=\"archive\"", "reason=\"missing_state\""];
    assert_eq!(metrics.sum("ringway_tier_fallbacks_total", &labels), 1);
}
