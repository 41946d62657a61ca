//! `POST /v1/explain` and `ringway explain`: what they tell of a Call is what then happens to it.

use super::harness::{ClosedPort, Gateway, Reply, Response, Seen, Setup, Upstream, call_body};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::process::{Command, Output};

const JSON: [&str; 2] = ["Host: localhost", "Content-Type: application/json"];
/// The newest block of most nodes.
const TIP: u64 = 100_000;

/// A node of a chain that stands still; its own number is the result of everything else.
fn node(client: &'static str, tip: u64, own: &'static str) -> Upstream {
    Upstream::start(move |seen| answer(seen, client, tip, own))
}

fn answer(seen: &Seen, client: &str, tip: u64, own: &str) -> Reply {
    let call = seen.json();
    let block = |number: u64| {
        let hash = |number: u64| format!("0x{number:064x}");
        json!({"number": format!("{number:#x}"), "hash": hash(number), "parentHash": hash(number.saturating_sub(1)),
            "timestamp": format!("{number:#x}")})
    };
    let named = call["params"][0].as_str().unwrap_or_default();
    match call["method"].as_str().unwrap_or_default() {
        "web3_clientVersion" => Reply::result(seen, &format!("\"{client}\"")),
        "eth_chainId" => Reply::result(seen, "\"0x1\""),
        "eth_getBlockByNumber" => {
            let number = named.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
            Reply::result(seen, &block(number.unwrap_or(tip)).to_string())
        }
        _ => Reply::result(seen, own),
    }
}

/// The decision for a Call of the Gateway `eth`.
#[track_caller]
fn explain(gateway: &Gateway, call: &str) -> Value {
    let told = ask(gateway, &format!("{{\"gateway\":\"eth\",\"call\":{call}}}"));
    assert_eq!(told.status, 200, "{call}: {told:?}");
    told.json()
}

fn ask(gateway: &Gateway, body: &str) -> Response {
    gateway.admin_post("/v1/explain", &JSON, body)
}

/// `endpoint: reason` of each target, and those that are kept with their order.
fn reasons(told: &Value) -> Vec<String> {
    let of = |target: &Value| {
        let order = target["order"].as_u64().map(|order| format!("{order} ")).unwrap_or_default();
        assert_eq!(target["kept"].as_bool().unwrap(), !order.is_empty(), "{target}");
        format!("{order}{}: {}", target["endpoint"].as_str().unwrap(), target["reason"].as_str().unwrap_or("-"))
    };
    told["targets"].as_array().unwrap().iter().map(of).collect()
}

/// Sends a Call, and gives its answer with the Endpoint that was asked first.
fn sent(gateway: &Gateway, body: &str) -> (Response, String) {
    let mut client = gateway.connect();
    client.post("/eth", &["Ringway-Explain: 1"], body);
    let answer = client.response();
    let trail = answer.header("Ringway-Trail").unwrap_or_default();
    let first = trail.split(' ').next().unwrap_or_default().to_owned();
    (answer, first)
}

/// `a` minimal, `b` and `c` full with weights 1 and 3, `d` archive, `e` full and behind, `f` disabled, `g` held open.
fn fleet() -> (Vec<Upstream>, Gateway) {
    let nodes = vec![
        node("Geth/v1.14.0", TIP, "0"),
        node("Geth/v1.14.0", TIP, "1"),
        node("reth/v1.1.2", TIP, "2"),
        node("erigon/3.0.2", TIP, "3"),
        node("besu/v24.1.2", TIP - 50, "4"),
        node("Geth/v1.14.0", TIP, "5"),
        node("Geth/v1.14.0", TIP, "6"),
    ];
    let tiers = ["minimal", "full", "full", "archive", "full", "full\"\nenabled = false\n# \"", "minimal"];
    let mut setup = Setup::of(&nodes.iter().collect::<Vec<_>>())
        .route("strategy = \"tiered\"\nmax_attempts = 10")
        .targets("[\"a\", \"b\", { endpoint = \"c\", weight = 3 }, \"d\", \"e\", \"f\", \"g\"]")
        .raw(
            "[[gateway.route]]\nid = \"shares\"\nmethods = [\"eth_gasPrice\"]\nstrategy = \"weighted\"\n\
             targets = [{ endpoint = \"a\", weight = 1 }, { endpoint = \"g\", weight = 100 }, \
             { endpoint = \"b\", weight = 3 }, { endpoint = \"d\", weight = 0 }]\n\
             [[network]]\nchain = \"ethereum\"\nnetwork = \"mainnet\"\npoll_interval = \"50ms\"",
        );
    for (at, tier) in tiers.iter().enumerate() {
        setup = setup.endpoint(at, &format!("tier = \"{tier}\""));
    }
    let gateway = setup.start();
    gateway.admin_post("/v1/circuits/g", &JSON, r#"{"action":"open","for":"1h"}"#);
    gateway.wait_for_metrics("all tips and clients", |metrics| {
        let known = ["a", "b", "c", "d", "g"].iter().all(|id| metrics.of("ringway_endpoint_tip", id) == TIP);
        let client = |client: &str| metrics.sum("ringway_endpoint_client_info", &[&format!("client=\"{client}\"")]);
        let clients = (client("geth"), client("reth"), client("erigon"), client("besu")) == (3, 1, 1, 1);
        let lags = metrics.sum("ringway_endpoint_standing", &["endpoint=\"e\"", "standing=\"lagging\""]) == 1;
        known && clients && lags && metrics.of("ringway_endpoint_tip", "e") == TIP - 50
    });
    (nodes, gateway)
}

#[test]
fn each_target_has_its_reason_and_its_place() {
    let (_nodes, gateway) = fleet();
    let told = explain(&gateway, r#"{"id":1,"method":"eth_getBalance","params":["0x1","latest"]}"#);
    let right = ["1 a: -", "2 b: -", "2 c: -", "3 d: -", "4 e: lag", "f: disabled", "g: circuit"];
    assert_eq!(reasons(&told), right, "{told}");
    assert_eq!(
        (&told["gateway"], &told["route"], &told["strategy"], &told["class"]),
        (&json!("eth"), &json!("default"), &json!("tiered"), &json!("stateless"))
    );
    assert_eq!(told["requirement"], json!({"tier": "minimal", "capability": "state", "height": null}));
    assert_eq!(
        (&told["endpoint_free"], &told["max_attempts"], &told["refused"]),
        (&json!(false), &json!(10), &json!(null))
    );
    assert_eq!(
        told["targets"][0],
        json!({"endpoint":"a","kept":true,"reason":null,"order":1,"probability":1.0,"circuit":"closed","tip":TIP,"lag":0})
    );
    assert_eq!(
        told["targets"][4],
        json!({"endpoint":"e","kept":true,"reason":"lag","order":4,"probability":0.0,"circuit":"closed","tip":TIP - 50,"lag":50})
    );
    assert_eq!(told["targets"][6]["circuit"], "held_open");

    let deep = explain(&gateway, r#"{"method":"eth_getBalance","params":["0x1","0x10"]}"#);
    let right = ["a: tier", "b: tier", "c: tier", "1 d: -", "e: tier", "f: disabled", "g: tier"];
    assert_eq!((reasons(&deep), &deep["requirement"]["tier"]), (right.map(str::to_owned).to_vec(), &json!("archive")));
    let new = explain(&gateway, &format!(r#"{{"method":"eth_getBalance","params":["0x1","{TIP:#x}"]}}"#));
    assert_eq!((&reasons(&new)[4], &new["requirement"]["height"]), (&"e: height".to_owned(), &json!(TIP)));
    let trace = explain(&gateway, r#"{"method":"trace_block","params":["latest"]}"#);
    let right = ["a: capability", "b: capability", "1 c: -", "2 d: -", "3 e: lag", "f: disabled", "g: capability"];
    assert_eq!(
        (reasons(&trace), &trace["requirement"]["capability"]),
        (right.map(str::to_owned).to_vec(), &json!("trace"))
    );
    let nobody = explain(&gateway, r#"{"method":"acme_thing"}"#);
    assert_eq!((&nobody["refused"]["code"], &nobody["refused"]["reason"]), (&json!(-32601), &json!("capability")));
    assert_eq!((&nobody["class"], &nobody["requirement"]["capability"]), (&json!("unrecognised"), &json!("acme")));

    let shares = explain(&gateway, r#"{"method":"eth_gasPrice"}"#);
    assert_eq!(reasons(&shares), ["1 a: -", "g: circuit", "1 b: -", "d: weight"]);
    assert_eq!(
        (&shares["targets"][0]["probability"], &shares["targets"][2]["probability"]),
        (&json!(0.25), &json!(0.75))
    );
    assert_eq!(shares["requirement"], json!({"tier": null, "capability": "core", "height": null}));
    let closed = explain(&gateway, r#"{"method":"admin_peers"}"#);
    assert_eq!((&closed["route"], &closed["targets"]), (&json!(null), &json!([])));
    assert_eq!((&closed["refused"]["code"], &closed["refused"]["reason"]), (&json!(-32601), &json!("not_exposed")));
}

#[test]
fn whom_it_names_first_is_asked_first() {
    let (_nodes, gateway) = fleet();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(0x0045_5850_4c41_494e);
    let methods = [
        ("eth_getBalance", "[\"0x1\",BLOCK]"),
        ("eth_call", "[{},BLOCK]"),
        ("eth_getBlockByNumber", "[BLOCK,false]"),
        ("eth_getLogs", "[{\"fromBlock\":BLOCK,\"toBlock\":\"latest\"}]"),
        ("eth_feeHistory", "[4,BLOCK,[]]"),
        ("eth_getTransactionByHash", "[\"0x1\"]"),
        ("eth_chainId", "[]"),
        ("eth_gasPrice", "[]"),
        ("trace_block", "[BLOCK]"),
        ("debug_traceBlockByNumber", "[BLOCK]"),
        ("erigon_forks", "[]"),
        ("ots_hasCode", "[\"0x1\",BLOCK]"),
        ("txpool_status", "[]"),
        ("eth_sendTransaction", "[{}]"),
        ("engine_getPayloadV1", "[]"),
        ("acme_thing", "[BLOCK]"),
    ];
    let mut sure = 0;
    for _ in 0..300 {
        let mut below = |most: u64| random.next_u64() % most;
        let (method, params) = methods[below(methods.len() as u64) as usize];
        let block = match below(6) {
            0 => "\"latest\"".to_owned(),
            1 => "\"earliest\"".to_owned(),
            2 => "\"finalized\"".to_owned(),
            3 => format!("\"{:#x}\"", below(TIP)),
            4 => format!("\"{:#x}\"", TIP - below(200)),
            _ => "7".to_owned(),
        };
        let body = call_body("1", method, &params.replace("BLOCK", &block));
        let told = explain(&gateway, &body);
        let (answer, first) = sent(&gateway, &body);
        if let Some(code) = told["refused"]["code"].as_i64() {
            assert_eq!((answer.code(), first.as_str()), (code, ""), "{body}: {told}");
            assert_eq!(answer.reason(), told["refused"]["reason"].as_str().unwrap_or_default(), "{body}");
            continue;
        }
        let asked = |target: &&Value| target["endpoint"] == first;
        let target = told["targets"].as_array().unwrap().iter().find(asked);
        let target = target.unwrap_or_else(|| panic!("{body}: {answer:?}, {told}"));
        let probability = target["probability"].as_f64().unwrap();
        assert!(probability > 0.0 && target["order"] == 1, "{body}: {first} was asked first: {told}");
        sure += u32::from(probability == 1.0);
    }
    assert!(sure > 100, "only {sure} were certain");
}

#[test]
fn shares_are_those_of_the_draws() {
    let (nodes, gateway) = fleet();
    for (call, left, right) in [
        (call_body("1", "eth_gasPrice", "[]"), 0, 1),
        // Of the two full ones, behind the minimal one which has not that block.
        (call_body("1", "eth_getBlockByNumber", "[\"0x64\",false]"), 1, 2),
    ] {
        let told = explain(&gateway, &call);
        let odds = |id: &str| {
            let is = |target: &&Value| target["endpoint"] == id;
            told["targets"].as_array().unwrap().iter().find(is).unwrap()["probability"].as_f64().unwrap()
        };
        let ids = ["a", "b", "c"];
        assert_eq!((odds(ids[left]), odds(ids[right])), (0.25, 0.75), "{told}");
        let wanted = |node: &Upstream| {
            let own = |seen: &&Seen| seen.holds("eth_gasPrice") || seen.holds("\"0x64\"");
            node.seen().iter().filter(own).count() as f64
        };
        let before = (wanted(&nodes[left]), wanted(&nodes[right]));
        let mut client = gateway.connect();
        (0..1_000).for_each(|_| assert_eq!(client.ask(&call).status, 200));
        let after = (wanted(&nodes[left]), wanted(&nodes[right]));
        assert_eq!(after.0 + after.1 - before.0 - before.1, 1_000.0);
        // Seven times the standard deviation of 1000 draws.
        let share = (after.0 - before.0) / 1_000.0;
        assert!((share - 0.25).abs() < 0.096, "{share}");
    }
}

#[test]
fn orders_are_those_of_the_attempts() {
    let failing: Vec<_> = (0..5).map(|_| Upstream::start(|_| Reply::json(500, "no"))).collect();
    let busy = Upstream::start(|_| Reply::http(429, &["Retry-After: 30"], ""));
    let spent = Upstream::start(|_| Reply::json(500, "no"));
    let mut all: Vec<&Upstream> = failing.iter().collect();
    all.extend([&busy, &spent]);
    let gateway = Setup::of(&all)
        .no_circuit()
        .endpoint(6, "rps = 1\nburst = 1")
        .targets("[\"c\", \"f\", \"a\", \"g\", \"e\", \"b\", \"d\"]")
        .route("max_attempts = 10")
        .another("spent", "[\"g\"]", "")
        .start();
    gateway.call("eth_call", "[]");
    gateway.admin_post("/v1/circuits/a", &JSON, r#"{"action":"open","for":"1h"}"#);
    let body = call_body("1", "eth_call", "[]");
    let mut told = explain(&gateway, &body);
    // On a machine that is busy with others its budget may have filled again.
    while !reasons(&told)[3].starts_with("g: ") {
        gateway.post_to("/spent", &body);
        told = explain(&gateway, &body);
    }
    let right = ["1 c: -", "f: rest", "a: circuit", "g: budget", "2 e: -", "3 b: -", "4 d: -"];
    assert_eq!(reasons(&told), right);
    let mut client = gateway.connect();
    client.post("/eth", &["Ringway-Explain: 1"], &body);
    let trail = client.response().header("Ringway-Trail").unwrap();
    let asked: String = trail.split(", ").filter_map(|step| step.split(' ').next()).filter(|id| *id != "g").collect();
    assert_eq!(asked, "cebd", "{trail}");

    // Half-open: a query probes in its place, what must not be repeated comes there last.
    gateway.admin_post("/v1/circuits/a", &JSON, r#"{"action":"auto"}"#);
    gateway.admin_post("/v1/circuits/g", &JSON, r#"{"action":"open","for":"1h"}"#);
    let probes = explain(&gateway, &body);
    let right = ["1 c: -", "f: rest", "2 a: -", "g: circuit", "3 e: -", "4 b: -", "5 d: -"];
    assert_eq!(
        (reasons(&probes), &probes["targets"][2]["circuit"]),
        (right.map(str::to_owned).to_vec(), &json!("half_open"))
    );
    let effect = explain(&gateway, &call_body("1", "eth_sendTransaction", "[]"));
    let right = ["1 c: -", "f: rest", "5 a: circuit", "g: circuit", "2 e: -", "3 b: -", "4 d: -"];
    assert_eq!((reasons(&effect), &effect["class"]), (right.map(str::to_owned).to_vec(), &json!("effect")));

    for id in ["b", "c", "d", "e", "a"] {
        gateway.admin_post(&format!("/v1/circuits/{id}"), &JSON, r#"{"action":"open","for":"1h"}"#);
    }
    let nobody = explain(&gateway, &body);
    assert_eq!(nobody["refused"]["code"], -32051, "{nobody}");
    gateway.post(&body).assert_fault(503, "1", -32051);
}

#[test]
fn a_gateway_of_trons_http_api_is_asked_about_by_path() {
    let upstream = Upstream::start(|_| Reply::json(200, "{}"));
    let gateway = Setup::of(&[&upstream]).tron().gateway("blocked_methods = [\"/wallet/easytransfer\"]").start();
    let explain = |call: &str| ask(&gateway, &format!("{{\"gateway\":\"tron\",\"call\":{call}}}"));
    let told = explain(r#"{"path":"/wallet/broadcasttransaction","body":{"raw":1},"query":"visible=true"}"#).json();
    assert_eq!((&told["class"], &told["refused"]), (&json!("signed_broadcast"), &json!(null)));
    assert_eq!(reasons(&told), ["1 a: -"]);
    for (call, code, reason) in [
        (r#"{"path":"/wallet/easytransfer"}"#, -32601, json!("blocked")),
        (r#"{"path":"/nonsense"}"#, -32600, json!(null)),
        (r#"{"path":"/wallet/broadcasttransaction","method":"GET"}"#, -32600, json!(null)),
    ] {
        let refused = &explain(call).json()["refused"];
        assert_eq!((&refused["code"], &refused["reason"]), (&json!(code), &reason), "{call}");
    }
    assert_eq!(explain(r#"{"path":"/wallet/unknown"}"#).json()["class"], "unrecognised");
    for call in
        [r#"{"id":1,"method":"eth_call"}"#, "[]", r#"{"path":"/wallet/x","method":"PUT"}"#, r#"{"method":"GET"}"#]
    {
        let told = explain(call);
        assert_eq!((told.status, &told.json()["error"]["code"]), (400, &json!("invalid_body")), "{call}");
    }
    assert_eq!(upstream.count(), 0, "nothing was sent");
}

#[test]
fn who_was_never_heard_is_told_from_who_lacks_the_method() {
    let (closed, geth) = (ClosedPort::new(), node("Geth/v1.14.0", TIP, "1"));
    let gateway = Setup::at(&[closed.address, geth.address])
        .endpoint(0, "without = [\"debug\"]")
        .route("strategy = \"tiered\"")
        .raw("[[network]]\nchain = \"ethereum\"\nnetwork = \"mainnet\"\npoll_interval = \"50ms\"")
        .start();
    gateway.wait_for_metrics("a client", |metrics| {
        metrics.sum("ringway_endpoint_client_info", &["endpoint=\"b\"", "client=\"geth\""]) == 1
    });
    let told = explain(&gateway, r#"{"method":"trace_block","params":["latest"]}"#);
    assert_eq!(reasons(&told), ["a: capability", "b: capability"]);
    let known = |told: &Value, at: usize| told["targets"][at].get("client_known").cloned();
    assert_eq!((known(&told, 0), known(&told, 1)), (Some(json!(false)), None));
    // What no client at all has need not be waited for.
    for call in [r#"{"method":"acme_thing"}"#, r#"{"method":"debug_traceBlock","params":["0x"]}"#] {
        let told = explain(&gateway, call);
        assert_eq!((told["targets"][0]["reason"].as_str(), known(&told, 0)), (Some("capability"), None), "{call}");
    }
    // By a URL, and without a file.
    let run = command(&["--admin", &format!("http://{}/", gateway.admin), "eth", "trace_block", "[\"latest\"]"]);
    let table = String::from_utf8(run.stdout).unwrap();
    let ends = |end: &str| table.lines().any(|line| line.ends_with(end));
    assert!(table.contains("left out, client not known yet: until then"), "{table}");
    assert!(ends("left out, capability: its software lacks the method"), "{table}");
}

#[test]
fn what_is_not_understood_is_told_with_what_would_be_right() {
    let upstream = Upstream::answering("1");
    let gateway = Setup::of(&[&upstream]).another("other", "[\"a\"]", "").start();
    for (body, status, says) in [
        ("", 400, "the body is empty: send {\"gateway\": \"eth\", \"call\": {\"method\": \"eth_getBlockByNumber\""),
        (" \n", 400, "the body is empty: send {"),
        ("{}", 400, "missing field `gateway` at line 1 column 2: send {\"gateway\": \"eth\""),
        ("[]", 400, "missing field `gateway`"),
        ("{\"gateway\":\"eth\"}", 400, "missing field `call`"),
        ("{\"gateway\":\"eth\",\"call\":{\"method\":\"a\"},\"x\":1}", 400, "unknown field `x`"),
        ("{\"gateway\":\"eth\",\"call\":7}", 400, "not a JSON object"),
        ("{\"gateway\":\"eth\",\"call\":{}}", 400, "no method"),
        ("{\"gateway\":\"eth\",\"call\":{\"method\":\"a\",\"Method\":\"b\"}}", 400, "spelled otherwise"),
        ("{\"gateway\":\"eth\",\"call\":[{\"method\":\"a\"}]}", 400, "one by one"),
        ("{\"gateway\":\"eth\",\"call\":[]}", 400, "empty batch"),
        ("{\"gateway\":\"none\",\"call\":{\"method\":\"a\"}}", 404, "known here: eth, other"),
    ] {
        let told = ask(&gateway, body);
        let message = told.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(told.status == status && message.contains(says), "{body}: {told:?}");
    }
    let deep = format!(
        "{{\"gateway\":\"eth\",\"call\":{{\"method\":\"a\",\"params\":{}1{}}}}}",
        "[".repeat(9_000),
        "]".repeat(9_000)
    );
    assert_eq!(ask(&gateway, &deep).status, 400, "and no stack is at its end");
    assert_eq!(ask(&gateway, &" ".repeat(70_000)).status, 413);
    let page = gateway.admin_get("/v1/explain", &[]);
    assert_eq!((page.status, page.header("allow").as_deref()), (405, Some("POST")));
    assert_eq!(upstream.count(), 0);
}

#[test]
fn only_who_may_read_is_told() {
    let upstream = Upstream::answering("1");
    let body = "{\"gateway\":\"eth\",\"call\":{\"method\":\"eth_call\"}}";
    let json = "Content-Type: application/json";
    let bare = Setup::of(&[&upstream]).start();
    let status = |headers: &[&str]| bare.admin_post("/v1/explain", headers, body).status;
    assert_eq!(status(&["Host: localhost", json]), 200);
    assert_eq!(status(&["Host: localhost", "Content-Type: text/plain"]), 415);
    let nothing = bare.admin_post("/v1/explain", &["Host: localhost"], "");
    assert!(nothing.status == 400 && nothing.body.contains("the body is empty"), "who sends nothing: {nothing:?}");
    assert_eq!(bare.admin_post("/v1/explain", &["Host: evil.example"], "").status, 403);
    assert_eq!(status(&["Host: localhost", json, "Origin: http://evil.example"]), 403);
    assert_eq!(status(&["Host: evil.example", json]), 403);
    assert_eq!(bare.admin_get("/v1/methods/unlisted", &["Host: evil.example"]).status, 403);
    let tokened = Setup::of(&[&upstream]).server("admin_token = \"sesame\"\nmetrics_public = true").start();
    let right = ["Host: admin.example", json, "Authorization: Bearer sesame"];
    assert_eq!(tokened.admin_post("/v1/explain", &right, body).status, 200);
    assert_eq!(tokened.admin_post("/v1/explain", &right[..2], body).status, 401);
    assert_eq!(tokened.admin_get("/v1/methods/unlisted", &right).status, 200);
    assert_eq!(tokened.admin_get("/v1/methods/unlisted", &[]).status, 401);
}

/// `ringway explain` with these arguments.
fn command(arguments: &[&str]) -> Output {
    command_with(arguments, "")
}

/// The same, with this token in the environment.
fn command_with(arguments: &[&str], token: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command
        .arg("explain")
        .args(arguments)
        .env("RINGWAY_ADMIN_TOKEN", token)
        .env("TEST_TOKEN", "sesame-of-the-test")
        .env("TEST_OTHER", "wrong-of-the-test");
    let run = command.output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(!said.contains("-of-the-test"), "{said}");
    run
}

#[test]
fn the_command_prints_a_table_or_what_to_do() {
    let upstream = Upstream::answering("1");
    let gateway = Setup::of(&[&upstream]).server("admin_token = \"sesame-of-the-test\"").start();
    let folder = std::env::temp_dir().join(format!("ringway-explain-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, text: String| {
        let file = folder.join(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let door = |admin: &str, token: &str| {
        format!(
            "[server]\nadmin = \"{admin}\"\n{token}\n[[endpoint]]\nid = \"x\"\nurl = \"http://h/${{NO_SUCH_KEY}}\"\n"
        )
    };
    let admin = gateway.admin.to_string();
    let right = file("right.toml", door(&admin, "admin_token = \"${TEST_TOKEN}\""));
    let run = command(&["--config", &right, "eth", "eth_call", "[{},\"latest\"]"]);
    let table = String::from_utf8(run.stdout).unwrap();
    assert_eq!(run.status.code(), Some(0), "{}", String::from_utf8_lossy(&run.stderr));
    for line in [
        "Call      eth_call to Gateway eth\n",
        "Route     default: priority, at most 3 attempts\n",
        "class     stateless: ",
        "#  ENDPOINT    FIRST  CIRCUIT  TIP  LAG  NOTE\n",
        "1  a         100.0 %  closed     -    -\n",
    ] {
        assert!(table.contains(line), "{line:?} is not in\n{table}");
    }
    let elsewhere = file("elsewhere.toml", door("127.0.0.1:1", "admin_token = \"${TEST_TOKEN}\""));
    let call = r#"{"method":"admin_peers"}"#;
    let run = command(&["--config", &elsewhere, "--admin", &admin, "--json", "eth", call]);
    let told: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(told["refused"]["reason"], "not_exposed");

    let wrong = file("wrong.toml", door(&admin, "admin_token = \"${TEST_OTHER}\""));
    let none = file("none.toml", door(&admin, ""));
    let unset = file("unset.toml", door(&admin, "admin_token = \"${TEST_UNSET}\""));
    for (arguments, says) in [
        (&["--config", &right, "nowhere", "eth_call"][..], "known here: eth"),
        (&["--config", &right, "eth", "{\"method\""], "CALL is no JSON"),
        (&["--config", &right, "eth", "[{\"method\":\"a\"}]"], "one by one"),
        (&["--config", &wrong, "eth", "eth_call"], "has another admin_token"),
        (&["--config", &none, "eth", "eth_call"], "wants its admin_token"),
        (&["--config", &unset, "eth", "eth_call"], "the environment variable TEST_UNSET is not set"),
        (&["--config", &elsewhere, "eth", "eth_call"], "is the gateway running"),
        (&["--config", &format!("{right}x"), "eth", "eth_call"], "right.tomlx: No such file"),
        (&["--admin", &gateway.listen.to_string(), "eth", "eth_call"], "says 404"),
        (&["--admin", &admin, "eth", "eth_call"], "set it in RINGWAY_ADMIN_TOKEN, or name the file"),
        (&["--admin", "https://localhost:1", "eth", "eth_call"], "write http://"),
        (&["--admin", "localhost", "eth", "eth_call"], "like 127.0.0.1:9545 or http://127.0.0.1:9545"),
        (&["--config", &right, "eth", ""], "CALL is empty"),
        (&["--config", &right, "eth", "-"], "CALL is empty"),
    ] {
        let run = command(arguments);
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(
            run.status.code() == Some(1) && said.starts_with("ringway: ") && said.contains(says),
            "{arguments:?}: {said}"
        );
    }
    let without_file = |token| command_with(&["--admin", &admin, "eth", "eth_call"], token);
    assert_eq!(without_file("sesame-of-the-test").status.code(), Some(0));
    let said = without_file("wrong-of-the-test").stderr;
    assert!(String::from_utf8_lossy(&said).contains("has another admin_token than RINGWAY_ADMIN_TOKEN says"));
    let neither = command(&["eth", "eth_call"]);
    assert_eq!(neither.status.code(), Some(2), "no file and no address");
    assert!(String::from_utf8_lossy(&neither.stderr).contains("--config <FILE>|--admin <ADDR>"));
    std::fs::remove_dir_all(folder).unwrap();
}
