//! What is told of a Call on a tiered Route: whose answer it is, what was held against it, and what was counted.

use super::fleet::{Fleet, Plan, all_fallbacks, decisions, fallbacks};
use super::fleet_node::{Answer, MARK, Mood, TIP, hash, transaction};
use super::harness::{Gateway, Reply, Response, Setup, Upstream, call_body};
use super::honesty::RAW;

const MISSING: &str = "missing trie node 5c0ee75d (path ) state 0xab is not available, not found";
const LATEST: &str = "[{},\"latest\"]";

fn three() -> Fleet {
    Plan::of(&["minimal geth", "full reth", "archive erigon"]).interval("1s").start()
}

fn explained(gateway: &Gateway, method: &str, params: &str) -> Response {
    let mut client = gateway.connect();
    client.post("/eth", &[MARK, "Ringway-Explain: 1"], call_body("1", method, params));
    client.response()
}

/// Whose answer it was, and the outcomes of its attempts.
#[track_caller]
fn told(gateway: &Gateway, method: &str, params: &str) -> (String, String) {
    let answer = explained(gateway, method, params);
    let trail = answer.header("ringway-trail").unwrap_or_default();
    let outcomes: Vec<&str> = trail.split(", ").filter_map(|step| step.split(' ').nth(1)).collect();
    (answer.header("ringway-endpoint").unwrap_or_default(), outcomes.join(" "))
}

fn objections(fleet: &Fleet) -> u64 {
    fleet.gateway.metrics().sum("ringway_answer_objections_total", &[])
}

#[test]
fn the_endpoint_that_is_told_is_the_one_whose_answer_was_delivered() {
    let fleet = three();
    let whose = |method, params: &str| told(&fleet.gateway, method, params);
    assert_eq!(whose("eth_call", LATEST), ("a".to_owned(), "ok".to_owned()));
    fleet.node('a').error("eth_call", -32000, MISSING);
    assert_eq!(whose("eth_call", LATEST), ("b".to_owned(), "missing_state ok".to_owned()));
    // Nobody has better: the first one's own error goes out, and a null, and what contradicts the chain.
    ['b', 'c'].into_iter().for_each(|letter| fleet.node(letter).set(|state| state.calls = Mood::Broken));
    let outcomes = |first: &str| ("a".to_owned(), format!("{first} http_status http_status"));
    assert_eq!(whose("eth_call", LATEST), outcomes("missing_state"));
    let unknown = format!("[\"{}\"]", transaction(77, TIP));
    assert_eq!(whose("eth_getTransactionReceipt", &unknown), outcomes("missing_state"));
    let lie = Answer::Result(format!("{{\"number\":\"{TIP:#x}\",\"hash\":\"{}\"}}", hash(9, TIP)));
    fleet.node('a').answer("eth_getBlockByNumber", lie);
    assert_eq!(whose("eth_getBlockByNumber", "[\"latest\",false]"), outcomes("fork"));
}

#[test]
fn so_it_is_where_the_error_of_an_earlier_attempt_goes_out() {
    let busy = Upstream::start(|seen| Reply::error(seen, 502, r#"{"code":-32005,"message":"too many"}"#));
    let dead = Upstream::start(|_| Reply::close());
    let gateway = Setup::of(&[&busy, &dead]).no_circuit().start();
    let answer = explained(&gateway, "eth_call", "[]");
    assert_eq!((answer.code(), answer.header("ringway-endpoint").as_deref()), (-32005, Some("a")), "{answer:?}");
}

#[test]
fn what_is_final_has_nothing_against_it() {
    let fleet = Plan::of(&["full reth"]).interval("1s").start();
    let unknown = format!("[\"{}\"]", transaction(77, TIP));
    for method in ["eth_getTransactionReceipt", "eth_getTransactionByHash"] {
        assert_eq!(told(&fleet.gateway, method, &unknown), ("a".to_owned(), "ok".to_owned()), "{method}");
    }
    assert_eq!(objections(&fleet), 0);
    let fleet = three();
    assert_eq!(told(&fleet.gateway, "eth_getTransactionByHash", &unknown).1, "missing_state ok");
    assert_eq!(objections(&fleet), 1);
}

#[test]
fn a_broadcast_that_was_taken_is_a_decision_too() {
    let fleet = Plan::of(&["minimal geth", "full reth"]).interval("1s").start();
    fleet.node('a').answer("eth_sendRawTransaction", Answer::Reply(Reply::close()));
    fleet.node('b').error("eth_sendRawTransaction", -32000, "already known");
    let (path, answer) = fleet.ask("eth_sendRawTransaction", &format!("[\"{RAW}\"]"));
    // A poll's connection that it took over may have been closed: then the first bytes go out twice.
    assert!(path.ends_with("ab") && answer.json()["result"].is_string(), "{path}: {answer:?}");
    let metrics = fleet.gateway.metrics();
    assert_eq!(decisions(&metrics, "eth_sendRawTransaction", "full"), 1);
    assert_eq!((fallbacks(&metrics, "minimal", "full", "failure"), all_fallbacks(&metrics)), (1, 1));
}

#[test]
fn a_tier_that_the_configuration_sets_is_kept_to() {
    let own = "[[method]]\nname = \"eth_gasPrice\"\nclass = \"stateless\"\ntier = \"archive\"";
    for archive in [None, Some("enabled = false")] {
        let nodes = ["minimal geth", "full reth", "archive erigon"];
        let plan = Plan::of(&nodes[..if archive.is_some() { 3 } else { 2 }]).interval("1s").more(own);
        let fleet = match archive {
            Some(off) => plan.lines(2, off).weights(&[1, 1, 0]).start(),
            None => plan.start(),
        };
        let (path, answer) = fleet.ask("eth_gasPrice", "[]");
        assert_eq!((path.as_str(), answer.code(), answer.attempts()), ("", -32050, 0), "{answer:?}");
        assert_eq!(fleet.path("eth_blockNumber", "[]"), "a", "only that method");
        let asked = r#"{"gateway":"eth","call":{"jsonrpc":"2.0","id":1,"method":"eth_gasPrice"}}"#;
        let told =
            fleet.gateway.admin_post("/v1/explain", &["Host: localhost", "Content-Type: application/json"], asked);
        let told = told.json();
        assert_eq!((&told["requirement"]["tier"], &told["targets"][0]["reason"]), (&"archive".into(), &"tier".into()));
    }
}

#[test]
fn a_member_whose_name_only_some_nodes_take_is_asked_of_the_deepest() {
    let fleet = three();
    for (method, params) in [
        ("eth_getBalance", r#"["0x0",{"BlockNumber":"0x10"}]"#),
        ("eth_getBalance", r#"["0x0",{"bloc\u212aNumber":"0x10"}]"#),
        ("eth_getLogs", r#"[{"fromblock":"0x10","toBlock":"latest"}]"#),
        ("eth_getLogs", r#"[{"FROMBLOCK":"0x10"}]"#),
    ] {
        assert_eq!(fleet.path(method, params).len(), 1);
        assert_eq!(fleet.count('a'), 0, "{method} {params}");
    }
    assert_eq!(fleet.path("eth_getBalance", r#"["0x0",{"blockNumber":"latest","Note":1}]"#), "a");
}

#[test]
fn what_a_contract_says_moves_no_traffic() {
    let fleet = three();
    for (code, message) in [
        (-32000, "Method not found: transfer()"),
        (-32000, "the method transfer does not exist"),
        (-32015, "method not found"),
        (-32015, "state not available"),
    ] {
        fleet.node('a').error("eth_call", code, message);
        let (path, answer) = fleet.ask("eth_call", LATEST);
        assert_eq!((path.as_str(), answer.code()), ("a", code), "{message}");
    }
    // In these words alone it may be the node's own: another one is asked, and nothing is remembered.
    fleet.node('a').error("eth_call", -32000, "Method not found");
    assert_eq!(fleet.path("eth_call", LATEST), "ab");
    fleet.node('a').set(|state| state.answers.clear());
    (0..10).for_each(|_| assert_eq!(fleet.path("eth_call", LATEST), "a"));
    assert_eq!((objections(&fleet), all_fallbacks(&fleet.gateway.metrics())), (1, 1));
}

#[test]
fn the_first_block_is_as_deep_by_its_name_as_by_its_number() {
    let plan = Plan::of(&["minimal geth", "archive erigon"]).interval("1s");
    plan.nodes.iter().for_each(|node| node.chain(|chain| chain.tip = 50));
    let fleet = plan.start();
    for block in ["0x0", "earliest"] {
        assert_eq!(fleet.path("eth_call", &format!("[{{}},\"{block}\"]")), "a", "{block}");
    }
}

#[test]
fn a_log_in_json_is_json_from_its_first_line() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).endpoint(0, "client = \"besuu\"").start();
    let log = gateway.log();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let warning = lines.iter().find(|line| line["message"].as_str().is_some_and(|text| text.contains("\"besu\"")));
    assert_eq!(warning.expect("a warning")["level"], "WARN");
}
