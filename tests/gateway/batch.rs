//! Batches: members are judged, routed and retried one by one, and answered in the order of the request.

use super::harness::{Gate, Reply, Setup, Upstream, call_body, notification_body};

/// Echoes the first param as the result.
fn echo() -> Upstream {
    Upstream::start(|seen| Reply::result(seen, &seen.json()["params"][0].to_string()))
}

fn batch(members: &[String]) -> String {
    format!("[{}]", members.join(","))
}

/// A node that answers with the first parameter, and whose answer to 0 waits for the gate.
fn first_waits() -> (Gate, Upstream) {
    let gate = Gate::default();
    let held = gate.clone();
    let node = Upstream::start(move |seen| {
        let param = seen.json()["params"][0].to_string();
        let reply = Reply::result(seen, &param);
        if param == "0" { Reply::after(&held, reply) } else { reply }
    });
    (gate, node)
}

#[test]
fn answers_come_in_the_order_of_the_request() {
    let (gate, node) = first_waits();
    let gateway = Setup::of(&[&node]).start();
    let members: Vec<String> = (0..16).map(|n| call_body(&format!("\"{n}\""), "eth_call", &format!("[{n}]"))).collect();
    let mut client = gateway.connect();
    client.post("/eth", &[], batch(&members));
    node.wait_for(16);
    gate.open();
    let expected: Vec<String> = (0..16).map(|n| format!(r#"{{"jsonrpc":"2.0","id":"{n}","result":{n}}}"#)).collect();
    let answer = client.response();
    assert_eq!((answer.status, answer.body), (200, batch(&expected)));
}

#[test]
fn equal_ids_each_get_their_own_answer_and_notifications_leave_no_gap() {
    let node = echo();
    let gateway = Setup::of(&[&node]).start();
    let answer = gateway.post(batch(&[
        call_body("7", "eth_call", "[1]"),
        notification_body("eth_call", "[2]"),
        call_body("7", "eth_call", "[3]"),
        "  5 ".into(),
        call_body("null", "eth_call", "[4]"),
        notification_body("eth_call", "[5]"),
        r#"{"id":9,"method":1}"#.into(),
        call_body("7.0", "eth_call", "[6]"),
    ]));
    let brief = |answer: &serde_json::Value| {
        let id = answer["id"].to_string();
        (id, answer.get("result").map_or_else(|| answer["error"]["code"].to_string(), ToString::to_string))
    };
    let brief: Vec<(String, String)> = answer.json().as_array().unwrap().iter().map(brief).collect();
    let expected = [("7", "1"), ("7", "3"), ("null", "-32600"), ("null", "4"), ("9", "-32600"), ("7.0", "6")];
    assert_eq!(brief, expected.map(|(id, value)| (id.to_owned(), value.to_owned())));
    assert_eq!(node.count(), 6);
    assert_eq!(node.seen().iter().filter(|seen| seen.id() == "null").count(), 2, "notifications went up without an id");
}

#[test]
fn empty_and_silent_batches_are_not_the_same() {
    let node = echo();
    let gateway = Setup::of(&[&node]).server("max_batch = 3").start();
    gateway.post(" [ ] ").assert_fault(200, "null", -32600);
    assert_eq!(node.count(), 0);
    let silent = gateway.post(batch(&[notification_body("eth_call", "[1]"), notification_body("eth_call", "[2]")]));
    assert_eq!((silent.status, silent.body.as_str(), node.count()), (204, "", 2));
    let one = gateway.post(batch(&[call_body("1", "eth_call", "[1]")]));
    assert_eq!(one.body, r#"[{"jsonrpc":"2.0","id":1,"result":1}]"#, "one member is still an array");
    let member = call_body("1", "eth_call", "[1]");
    gateway.post(batch(&vec![member.clone(); 4])).assert_fault(200, "null", -32600);
    assert_eq!(node.count(), 3);
    assert_eq!(gateway.post(batch(&vec![member; 3])).json().as_array().unwrap().len(), 3);
    gateway.post("[1,2").assert_fault(200, "null", -32700);
    gateway
        .post("[[],[],[]]")
        .json()
        .as_array()
        .unwrap()
        .iter()
        .for_each(|answer| assert_eq!(answer["error"]["code"], -32600));
}

#[test]
fn one_members_failure_disturbs_no_other() {
    let first = Upstream::start(|seen| match seen.json()["params"][0].as_str().unwrap() {
        "die" => Reply::close(),
        "busy" => Reply::http(429, &["Retry-After: 9"], ""),
        "kept" => Reply::error(seen, 503, r#"{"code":-32000,"message":"kept"}"#),
        _ => Reply::result(seen, "\"first\""),
    });
    let replayed = Gate::default();
    let second = Upstream::start(move |seen| {
        // Only one of them says when to come back, and after the read was replayed: what comes later finds the node at
        // rest.
        if seen.holds("kept") {
            Reply::http(400, &[], "")
        } else if seen.holds("busy") {
            Reply::after(&replayed, Reply::http(429, &["Retry-After: 4"], ""))
        } else {
            replayed.open();
            Reply::result(seen, "\"second\"")
        }
    });
    let gateway = Setup::of(&[&first, &second]).no_circuit().start();
    let answer = gateway.post(batch(&[
        call_body("1", "eth_call", "[\"good\"]"),
        call_body("2", "eth_call", "[\"die\"]"),
        call_body("3", "eth_sendTransaction", "[\"die\"]"),
        call_body("4", "eth_call", "[\"busy\"]"),
        call_body("5", "eth_call", "[\"kept\"]"),
        call_body("6", "admin_peers", "[]"),
        call_body("7", "eth_call", "[\"good\"]"),
    ]));
    let answers = answer.json();
    let code = |at: usize| answers[at]["error"]["code"].as_i64();
    assert_eq!(answers.as_array().unwrap().len(), 7);
    assert_eq!((&answers[0]["result"], &answers[1]["result"]), (&"first".into(), &"second".into()), "{answers}");
    assert_eq!((code(2), code(3), code(5)), (Some(-32054), Some(-32052), Some(-32601)), "{answers}");
    assert_eq!((&answers[4]["error"]["message"], &answers[6]["result"]), (&"kept".into(), &"first".into()));
    // The status is the batch's, the wait its members' longest.
    assert_eq!((answer.status, answer.header("retry-after").as_deref()), (200, Some("4")));
    assert_eq!(first.count_with("die") + first.count_with("good"), 4);
    assert_eq!(second.count_with("die"), 1, "only the read was replayed");
}

#[test]
fn members_beyond_the_largest_answer_get_an_error_each() {
    let node = Upstream::start(|seen| Reply::result(seen, &format!("\"{}\"", "x".repeat(1_000))));
    let gateway = Setup::of(&[&node]).server("max_batch_response_bytes = \"3500B\"").start();
    let members: Vec<String> = (0..10).map(|id| call_body(&id.to_string(), "eth_call", "[]")).collect();
    let answers = gateway.post(batch(&members)).json();
    let answers = answers.as_array().unwrap();
    let ids: Vec<u64> = answers.iter().map(|answer| answer["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (0..10).collect::<Vec<_>>());
    let whole = answers.iter().take_while(|answer| answer.get("result").is_some()).count();
    assert_eq!(whole, 3);
    assert!(answers[whole..].iter().all(|answer| answer["error"]["code"] == -32055), "{answers:?}");
}

#[test]
fn no_more_members_are_in_flight_than_allowed() {
    let gates: Vec<Gate> = (0..24).map(|_| Gate::default()).collect();
    let doors = gates.clone();
    let node = Upstream::start(move |seen| {
        let member = usize::try_from(seen.json()["params"][0].as_u64().unwrap()).unwrap();
        Reply::after(&doors[member], Reply::result(seen, "1"))
    });
    let gateway = Setup::of(&[&node]).server("batch_concurrency = 4").start();
    let members: Vec<String> = (0..24).map(|id| call_body(&id.to_string(), "eth_call", &format!("[{id}]"))).collect();
    let mut client = gateway.connect();
    client.post("/eth", &[], batch(&members));
    for (nth, gate) in gates.iter().enumerate() {
        node.wait_for((nth + 4).min(24));
        assert_eq!(node.count(), (nth + 4).min(24), "four at a time, and always four");
        gate.open();
    }
    assert_eq!(client.response().json().as_array().unwrap().len(), 24);
}

#[test]
fn a_slow_member_holds_nobody_back_and_its_answer_still_comes_first() {
    let (gate, node) = first_waits();
    let gateway = Setup::of(&[&node]).server("batch_concurrency = 2").start();
    let members: Vec<String> = (0..30).map(|n| call_body(&n.to_string(), "eth_call", &format!("[{n}]"))).collect();
    let mut client = gateway.connect();
    client.post("/eth", &[], batch(&members));
    node.wait_for(30);
    assert!(client.is_quiet());
    gate.open();
    let expected: Vec<String> = (0..30).map(|n| format!(r#"{{"jsonrpc":"2.0","id":{n},"result":{n}}}"#)).collect();
    assert_eq!(client.response().body, batch(&expected));
}

#[test]
fn once_a_batch_is_full_nothing_more_is_executed_for_it() {
    let node = Upstream::start(|seen| Reply::result(seen, &format!("\"{}\"", "x".repeat(1_000))));
    let gateway = Setup::of(&[&node]).server("max_batch_response_bytes = \"3500B\"\nbatch_concurrency = 1").start();
    let mut members: Vec<String> = (0..10).map(|id| call_body(&id.to_string(), "eth_sendTransaction", "[]")).collect();
    members.push(notification_body("eth_call", "[\"silent\"]"));
    let answers = gateway.post(batch(&members)).json();
    let answers = answers.as_array().unwrap();
    assert_eq!((answers.len(), node.count_with("eth_sendTransaction")), (10, 4), "{answers:?}");
    let attempts =
        |at: usize| (answers[at]["error"]["code"].as_i64(), answers[at]["error"]["data"]["attempts"].as_u64());
    assert_eq!(attempts(3), (Some(-32055), Some(1)));
    (4..10).for_each(|at| assert_eq!(attempts(at), (Some(-32055), Some(0))));
    assert_eq!(node.count_with("silent"), 1, "it has no answer that would have to fit");
    assert_eq!(gateway.metrics().calls("response_too_large"), 6);
}

#[test]
fn a_member_that_waited_for_its_turn_has_its_whole_time() {
    let node = Upstream::start(|seen| {
        std::thread::sleep(std::time::Duration::from_millis(120));
        Reply::result(seen, "1")
    });
    let gateway =
        Setup::of(&[&node]).no_circuit().server("batch_concurrency = 1").route("attempt_timeout = \"400ms\"").start();
    let members: Vec<String> = (0..5).map(|id| call_body(&id.to_string(), "eth_sendTransaction", "[]")).collect();
    let answers = gateway.post(batch(&members)).json();
    assert!(answers.as_array().unwrap().iter().all(|answer| answer["result"] == 1), "{answers}");
}

#[test]
fn members_on_one_weighted_route_see_one_node() {
    let nodes: Vec<Upstream> = ["0", "1", "2"].into_iter().map(Upstream::answering).collect();
    let gateway = Setup::of(&[&nodes[0], &nodes[1], &nodes[2]]).route("strategy = \"weighted\"").start();
    let members: Vec<String> = (0..5).map(|id| call_body(&id.to_string(), "eth_call", "[]")).collect();
    let mut client = gateway.connect();
    let mut first = [0usize; 3];
    for _ in 0..60 {
        let answers = client.ask(batch(&members)).json();
        let node = answers[0]["result"].as_u64().unwrap();
        assert!(answers.as_array().unwrap().iter().all(|answer| answer["result"] == node), "{answers}");
        first[usize::try_from(node).unwrap()] += 1;
    }
    assert!(first.iter().all(|count| *count > 0), "all get some: {first:?}");
}
