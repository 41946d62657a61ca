//! Envelopes are rebuilt, contents never: ids and params to the byte, in both directions.

use super::harness::{Reply, Setup, Upstream, call_body};

#[test]
fn ids_come_back_byte_for_byte_and_go_up_only_where_they_are_safe() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    let long = format!("\"{}\"", "x".repeat(3_000));
    let digits = "9".repeat(400);
    let ids = [
        ("1", true),
        ("0", true),
        ("999999999999999", true),
        ("1000000000000000", false),
        ("1720000000123456789", false),
        ("18446744073709551616", false),
        ("-1", false),
        ("-0", false),
        ("1.5", false),
        ("1.0", false),
        ("1e3", false),
        ("1E+400", false),
        ("0.1e-7", false),
        (r#""a\u0041""#, false),
        (r#""""#, false),
        (r#""7""#, false),
        (r#""\ud800""#, false),
        (r#""\"\\\/\b""#, false),
        ("\"é😀\u{2028}\"", false),
        ("null", false),
        (long.as_str(), false),
        (digits.as_str(), false),
    ];
    for (id, safe) in ids {
        gateway.post(call_body(id, "eth_call", "[]")).assert_result(id, "1");
        let sent = node.seen().pop().unwrap().id();
        assert!(sent.len() <= 15 && sent.bytes().all(|byte| byte.is_ascii_digit()), "{id}: {sent}");
        assert!(sent == "0" || !sent.starts_with('0'), "{id}: {sent}");
        if safe {
            assert_eq!(sent, id);
        }
    }
    // The same bytes in an error of the node, and in one of our own.
    let down = Upstream::start(|seen| {
        if seen.holds("final") { Reply::error(seen, 200, r#"{"code":1}"#) } else { Reply::json(500, "") }
    });
    let gateway = Setup::of(&[&down]).no_circuit().start();
    for (id, _) in ids {
        let answer = gateway.post(call_body(id, "eth_call", "[\"final\"]"));
        assert_eq!(answer.body, format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":1}}}}"#));
        gateway.post(call_body(id, "eth_call", "[]")).assert_fault(502, id, -32052);
        gateway.post(call_body(id, "admin_peers", "[]")).assert_fault(200, id, -32601);
    }
}

#[test]
fn what_goes_up_is_rebuilt_around_the_callers_own_params() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    let params = "[ {\"to\" : \"0x\\u0041\", \"b\":1e999,\"a\":-0.0 , \"a\":2},\n\t[ ], 12345678901234567890123 ]";
    let cases = [
        (
            format!("{{\"params\":{params} , \"x\":1,\"id\":5, \"method\" : \"eth_c\\u0061ll\"}}"),
            format!("{{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"eth_call\",\"params\":{params}}}"),
        ),
        (r#"{"id":5,"method":"eth_call"}"#.into(), r#"{"jsonrpc":"2.0","id":5,"method":"eth_call"}"#.into()),
        (
            r#"{"id":5,"method":"eth_call","params":null}"#.into(),
            r#"{"jsonrpc":"2.0","id":5,"method":"eth_call","params":null}"#.into(),
        ),
        (
            r#"{"id":5,"method":"eth_call","params":{"named" : true}}"#.into(),
            r#"{"jsonrpc":"2.0","id":5,"method":"eth_call","params":{"named" : true}}"#.into(),
        ),
        (
            r#"{"jsonrpc":7,"id":5,"method":"acme \"x\"\né","params":[]}"#.into(),
            r#"{"jsonrpc":"2.0","id":5,"method":"acme \"x\"\né","params":[]}"#.into(),
        ),
        (
            "\u{feff} \r\n{\"jsonrpc\":\"1.0\",\"id\":5,\"method\":\"eth_call\",\"params\":[]}\r\n\t ".into(),
            r#"{"jsonrpc":"2.0","id":5,"method":"eth_call","params":[]}"#.into(),
        ),
    ];
    for (sent, expected) in cases {
        gateway.post(&sent).assert_result("5", "1");
        let seen = node.seen().pop().unwrap();
        assert_eq!(seen.text(), expected);
        assert_eq!(seen.header("content-length").unwrap(), expected.len().to_string());
        assert_eq!(seen.headers("transfer-encoding"), Vec::<String>::new());
        assert_eq!(seen.header("content-type").as_deref(), Some("application/json"));
    }
}

#[test]
fn results_come_back_as_the_node_wrote_them() {
    let results = [
        "\"0x1\"",
        "null",
        "[ 1 , 2e0,\t\"\\u00e9\\ud800\" ]",
        "{ \"b\":1, \"a\" : {}, \"b\":2 }",
        "1e999",
        "0.10",
        "123456789012345678901234567890123456789012345678901234567890",
    ];
    let node = Upstream::start(move |seen| Reply::result(seen, results[seen.nth]));
    let gateway = Setup::of(&[&node]).start();
    for result in results {
        gateway.call("eth_call", "[]").assert_result("1", result);
    }
}

#[test]
fn large_and_deep_values_pass_in_both_directions() {
    let deep = format!("{}1{}", "[".repeat(9_000), "]".repeat(9_000));
    let large = format!("\"{}\"", "y".repeat(3 << 20));
    let (deep_copy, large_copy) = (deep.clone(), large.clone());
    let node =
        Upstream::start(move |seen| Reply::result(seen, if seen.holds("deep") { &deep_copy } else { &large_copy }));
    let gateway = Setup::of(&[&node]).start();
    gateway.call("eth_call", "[\"deep\"]").assert_result("1", &deep);
    let params = format!("[\"{}\"]", "z".repeat(900_000));
    gateway.call("eth_call", &params).assert_result("1", &large);
    assert_eq!(node.seen()[1].json()["params"][0].as_str().unwrap().len(), 900_000);
}

#[test]
fn depth_has_its_limit_in_each_direction() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    // Not by a reader of JSON: this one goes no deeper than 127. An id of 1 goes up as it is.
    let node = Upstream::start(move |seen| {
        let levels = ["9999", "10000"].into_iter().find(|levels| seen.holds(&format!("[{levels}]")));
        let result = nested(levels.map_or(1, |levels| levels.parse().unwrap()));
        Reply::json(200, &format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#))
    });
    let gateway = Setup::of(&[&node]).start();
    // The envelope is a level of its own, and so is a batch.
    gateway.call("eth_call", &nested(127)).assert_result("1", "[]");
    gateway.call("eth_call", &nested(128)).assert_fault(200, "null", -32600);
    let batch = |levels| format!("[{}]", call_body("1", "eth_call", &nested(levels)));
    assert_eq!(gateway.post(batch(126)).body, r#"[{"jsonrpc":"2.0","id":1,"result":[]}]"#);
    assert!(gateway.post(batch(127)).body.contains("-32600"));
    assert_eq!(node.count(), 2);
    gateway.call("eth_call", "[9999]").assert_result("1", &nested(9_999));
    gateway.call("eth_call", "[10000]").assert_fault(502, "1", -32052);
}

#[test]
fn members_that_nodes_could_read_otherwise_are_refused_and_nothing_is_sent() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    let cases = [
        (r#"{"id":1,"method":"eth_chainId","method":"debug_setHead"}"#, "1"),
        (r#"{"id":1,"method":"eth_chainId","m\u0065thod":"debug_setHead"}"#, "1"),
        (r#"{"id":1,"method":"eth_chainId","Method":"debug_setHead"}"#, "1"),
        (r#"{"id":1,"METHOD":"eth_chainId"}"#, "1"),
        (r#"{"id":1,"method":"eth_chainId","param\u017f":[]}"#, "1"),
        ("{\"id\":1,\"method\":\"eth_chainId\",\"param\u{17f}\":[]}", "1"),
        (r#"{"id":1,"method":"eth_chainId","params":[],"params":[]}"#, "1"),
        (r#"{"id":1,"method":"eth_chainId","Params":[]}"#, "1"),
        (r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#, "1"),
        (r#"{"jsonRPC":"2.0","id":1,"method":"eth_chainId"}"#, "1"),
        (r#"{"id":1,"id":1,"method":"eth_chainId"}"#, "null"),
        (r#"{"id":1,"Id":1,"method":"eth_chainId"}"#, "1"),
        (r#"{"i\u0064":1,"method":"eth_chainId"}"#, "null"),
    ];
    for (body, id) in cases {
        gateway.post(body).assert_fault(200, id, -32600);
        // In a batch too, and its neighbours are served.
        let answer = gateway.post(format!("[{body},{}]", call_body("2", "eth_call", "[]")));
        let answers = answer.json();
        assert_eq!((&answers[0]["error"]["code"], &answers[1]["result"]), (&(-32600).into(), &1.into()), "{body}");
    }
    assert_eq!(node.count(), cases.len());
    assert!(node.seen().iter().all(|seen| seen.holds("eth_call")));
}

#[test]
fn an_odd_or_missing_version_is_accepted() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    for version in ["", r#""jsonrpc":"2.0","#, r#""jsonrpc":"1.0","#, r#""jsonrpc":null,"#, r#""jsonrpc":{"a":[1]},"#] {
        gateway.post(format!(r#"{{{version}"id":1,"method":"eth_call"}}"#)).assert_result("1", "1");
        assert_eq!(node.seen().pop().unwrap().json()["jsonrpc"], "2.0");
    }
}

#[test]
fn a_notification_is_sent_without_an_id_and_answered_with_nothing() {
    let node = Upstream::start(|seen| {
        let status = u16::try_from(seen.json()["params"][0].as_u64().unwrap()).unwrap();
        Reply::http(status, &[], if status == 204 { "" } else { "whatever this is" })
    });
    let gateway = Setup::of(&[&node]).no_circuit().start();
    let mut client = gateway.connect();
    // The busy one last: after it the node rests.
    let statuses = [200, 201, 202, 204, 400, 500, 503, 429];
    for (at, status) in statuses.iter().enumerate() {
        let answer = client.ask(format!(r#"{{"jsonrpc":"2.0","method":"eth_call","params":[{status}]}}"#));
        assert_eq!((answer.status, answer.body.as_str()), (204, ""), "{status}");
        assert_eq!(answer.header("content-length").unwrap_or("0".into()), "0");
        let seen = node.seen();
        assert_eq!(seen.len(), at + 1, "{status}: sent once, before the answer");
        assert_eq!(seen[at].text(), format!(r#"{{"jsonrpc":"2.0","method":"eth_call","params":[{status}]}}"#));
    }
    // Refused ones are as silent, and are not sent.
    let refused = client.ask(r#"{"jsonrpc":"2.0","method":"admin_peers"}"#);
    assert_eq!((refused.status, node.count()), (204, statuses.len()));
    let metrics = gateway.metrics();
    assert_eq!(metrics.calls("notification"), statuses.len() as u64);
    assert_eq!((metrics.calls("method_unavailable"), metrics.attempts("a", "ok")), (1, 4));
}
