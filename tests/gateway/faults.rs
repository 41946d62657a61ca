//! What ends a Call: final answers of nodes, unchanged, and the errors that Ringway makes itself.

use super::harness::{ClosedPort, Gate, Reply, Setup, Upstream, call_body};

const ERROR: &str = r#"{ "code":3, "message":"execution reverted\u0000", "data":"0x08c379a0" }"#;

/// A pair of upstreams: the first answers with the status and error that the params name, the second always.
fn pair() -> (Upstream, Upstream) {
    let first = Upstream::start(|seen| {
        let params = seen.json()["params"].clone();
        let status = u16::try_from(params[0].as_u64().unwrap()).unwrap();
        match params[1].as_i64() {
            None => Reply::result(seen, r#"{ "kept" : [1e2, "\u0041"] }"#),
            Some(3) => Reply::error(seen, status, ERROR),
            Some(code) => Reply::error(seen, status, &format!(r#"{{"code":{code},"message":"m"}}"#)),
        }
    });
    (first, Upstream::answering("\"second\""))
}

#[test]
fn final_answers_go_out_as_200_and_unchanged() {
    let (first, second) = pair();
    let gateway = Setup::of(&[&first, &second]).start();
    let mut client = gateway.connect();
    let mut sent = 0;
    for method in ["eth_call", "eth_sendRawTransaction", "eth_newFilter", "eth_sendTransaction", "acme_unknown"] {
        for status in [200, 201, 202, 203, 206, 226, 299, 400, 404, 405, 413, 415, 422, 500] {
            let answer = client.ask(call_body("\"i\\u0064\"", method, &format!("[{status}]")));
            answer.assert_result("\"i\\u0064\"", r#"{ "kept" : [1e2, "\u0041"] }"#);
            let answer = client.ask(call_body("1.50", method, &format!("[{status}, 3]")));
            assert_eq!(answer.status, 200, "{method} {status}");
            assert_eq!(answer.body, format!(r#"{{"jsonrpc":"2.0","id":1.50,"error":{ERROR}}}"#), "{method} {status}");
            sent += 2;
        }
    }
    assert_eq!((first.count(), second.count()), (sent, 0));
}

#[test]
fn errors_about_the_request_are_final_under_nearly_every_status() {
    let (first, second) = pair();
    let gateway = Setup::of(&[&first, &second]).no_circuit().start();
    let mut client = gateway.connect();
    let mut sent = 0;
    for status in [200, 302, 400, 404, 408, 410, 418, 451, 500, 501, 502, 503, 504, 520] {
        for code in [-32700, -32600, -32601, -32602] {
            let answer = client.ask(call_body("1", "eth_call", &format!("[{status}, {code}]")));
            assert_eq!((answer.status, answer.code()), (200, code), "{status}");
            assert!(answer.json()["error"].get("data").is_none(), "{answer:?}");
            sent += 1;
        }
    }
    assert_eq!((first.count(), second.count()), (sent, 0));
}

#[test]
fn an_internal_error_is_final_with_200_but_not_with_500() {
    let (first, second) = pair();
    let gateway = Setup::of(&[&first, &second]).no_circuit().start();
    assert_eq!(gateway.call("eth_call", "[200, -32603]").code(), -32603);
    assert_eq!(second.count(), 0);
    gateway.call("eth_call", "[500, -32603]").assert_result("1", "\"second\"");
    assert_eq!(gateway.call("eth_sendTransaction", "[500, -32603]").code(), -32603);
    assert_eq!(second.count(), 1);
}

#[test]
fn null_members_beside_a_real_one_count_as_absent() {
    let bodies = [
        (r#"{"id":1,"result":"0x1","error":null}"#, r#""result":"0x1""#),
        (r#"{"id":1,"result":null}"#, r#""result":null"#),
        (r#"{"id":1,"result":null,"error":null}"#, r#""result":null"#),
        (r#"{"id":1,"result":null,"error":{"code":5,"message":""}}"#, r#""error":{"code":5,"message":""}"#),
        ("{\"jsonrpc\":\"1.0\",\"result\":0,\"id\":1.0,\"x\":1}", r#""result":0"#),
        (" \r\n\t{ \"id\" : 1 , \"result\" : [ 1e999 ] }\n", r#""result":[ 1e999 ]"#),
    ];
    let node = Upstream::start(move |seen| Reply::http(200, &["Content-Type: text/plain"], bodies[seen.nth].0));
    let gateway = Setup::of(&[&node]).start();
    for (body, expected) in bodies {
        let answer = gateway.call("eth_call", "[]");
        assert_eq!(answer.body, format!(r#"{{"jsonrpc":"2.0","id":1,{expected}}}"#), "{body}");
        assert_eq!(answer.header("content-type").as_deref(), Some("application/json"));
    }
}

#[test]
fn bodies_that_are_no_calls() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).server("max_batch = 3").start();
    let deep =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"eth_call","params":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    let cases = [
        ("", "null", -32700),
        ("{", "null", -32700),
        ("hello", "null", -32700),
        (r#"{"id":1,"method":"eth_call"}x"#, "null", -32700),
        ("{\"id\":1,\"method\":\"a\tb\"}", "null", -32700),
        (r#"{"id":01,"method":"eth_call"}"#, "null", -32700),
        ("7", "null", -32600),
        ("\"text\"", "null", -32600),
        ("null", "null", -32600),
        ("[]", "null", -32600),
        ("[1,2,3,4]", "null", -32600),
        ("{}", "null", -32600),
        (r#"{"id":7}"#, "7", -32600),
        (r#"{"id":7,"method":42}"#, "7", -32600),
        (r#"{"id":7,"method":null}"#, "7", -32600),
        (r#"{"id":{},"method":"eth_call"}"#, "null", -32600),
        (r#"{"id":[1],"method":"eth_call"}"#, "null", -32600),
        (r#"{"id":true,"method":"eth_call"}"#, "null", -32600),
        (deep.as_str(), "null", -32600),
    ];
    for (body, id, code) in cases {
        let answer = gateway.post(body);
        answer.assert_fault(200, id, code);
        assert_eq!(answer.attempts(), 0, "{body}");
    }
    assert!(gateway.post(b"{\"id\":1,\"method\":\"a\xff\"}").code() == -32700);
    assert_eq!((node.count(), node.connections()), (0, 0));
}

#[test]
fn methods_that_are_not_offered() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node])
        .gateway("blocked_methods = [\"eth_sign\", \"txpool_*\"]\nexpose = [\"anvil\"]")
        .raw(
            "[[gateway]]\nid = \"few\"\npath = \"/few\"\nchain = \"ethereum\"\nnetwork = \"mainnet\"\n\
             allowed_methods = [\"eth_chainId\", \"net_*\"]\n[[gateway.route]]\nid = \"default\"\ntargets = [\"a\"]",
        )
        .start();
    let refused = [
        ("/eth", "eth_sign", "blocked"),
        ("/eth", "txpool_content", "blocked"),
        ("/eth", "txpool_unknown", "blocked"),
        ("/eth", "admin_peers", "not_exposed"),
        ("/eth", "ADMIN_peers", "not_exposed"),
        ("/eth", "engine_newPayloadV3", "not_exposed"),
        ("/eth", "personal_sign", "not_exposed"),
        ("/eth", "evm_mine", "not_exposed"),
        ("/eth", "debug_setHead", "not_exposed"),
        ("/eth", "debug_sethead", "not_exposed"),
        ("/eth", "Txpool_Content", "blocked"),
        ("/few", "eth_call", "not_allowed"),
        ("/few", "eth_chainid", "not_allowed"),
    ];
    for (path, method, reason) in refused {
        let answer = gateway.post_to(path, call_body("null", method, "[]"));
        answer.assert_fault(200, "null", -32601);
        assert_eq!((answer.reason().as_str(), answer.attempts()), (reason, 0), "{method}");
        // Escaped spellings are judged by what they mean.
        let escaped: String = method.bytes().map(|byte| format!("\\u{byte:04x}")).collect();
        assert_eq!(gateway.post_to(path, call_body("1", &escaped, "[]")).reason(), reason, "{method}");
    }
    assert_eq!(node.count(), 0);
    for (path, method) in
        [("/eth", "anvil_mine"), ("/eth", "eth_signTypedData"), ("/few", "net_version"), ("/few", "eth_chainId")]
    {
        gateway.post_to(path, call_body("1", method, "[]")).assert_result("1", "1");
    }
}

#[test]
fn no_usable_target() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node, &node])
        .endpoint(0, "enabled = false")
        .targets("[\"a\"]")
        .raw(
            "[[gateway]]\nid = \"other\"\npath = \"/other\"\nchain = \"polygon\"\nnetwork = \"mainnet\"\n\
             [[gateway.route]]\nid = \"default\"\ntargets = [\"b\"]",
        )
        .start();
    for path in ["/eth", "/other"] {
        let answer = gateway.post_to(path, call_body("\"\"", "eth_call", "[]"));
        answer.assert_fault(503, "\"\"", -32050);
        assert_eq!((answer.attempts(), answer.header("retry-after")), (0, None));
    }
    assert_eq!(node.connections(), 0);
}

#[test]
fn exhausted_says_how_the_last_attempt_failed() {
    let closed = ClosedPort::new();
    let busy = Upstream::start(|_| Reply::http(429, &["Retry-After: 3"], "wait"));
    let dated = Upstream::start(|_| Reply::http(503, &["Retry-After: Sun, 06 Nov 1994 08:49:37 GMT"], "wait"));
    // Under another name it does not rest yet.
    let gateway = Setup::at(&[closed.address, busy.address, dated.address, busy.address])
        .no_circuit()
        .another("busy-last", "[\"a\", \"b\"]", "")
        .another("closed-last", "[\"d\", \"a\"]", "")
        .another("dated", "[\"c\"]", "")
        .start();
    for (path, reason, wait, attempts) in [
        ("/busy-last", "rate_limited", Some("3"), 2),
        ("/closed-last", "connect_failed", None, 2),
        ("/dated", "rate_limited", Some("1"), 1),
    ] {
        let answer = gateway.post_to(path, call_body("-0", "eth_sendTransaction", "[]"));
        answer.assert_fault(502, "-0", -32052);
        assert_eq!((answer.reason().as_str(), answer.attempts()), (reason, attempts), "{path}");
        assert_eq!(answer.header("retry-after").as_deref(), wait, "{path}");
    }
}

#[test]
fn a_method_route_has_targets_and_bounds_of_its_own() {
    let (first, second) = (Upstream::answering("\"first\""), Upstream::start(|_| Reply::json(500, "no")));
    let gateway = Setup::of(&[&first, &second])
        .no_circuit()
        .raw("[[gateway.route]]\nid = \"heavy\"\nmethods = [\"debug_traceTransaction\", \"acme_heavy\"]\ntargets = [\"b\", \"a\"]\nmax_attempts = 1")
        .start();
    for method in ["debug_traceTransaction", "acme_heavy", "acme_heav\\u0079"] {
        let answer = gateway.call(method, "[]");
        assert_eq!(answer.attempts(), 1, "{method}: {answer:?}");
    }
    for method in ["debug_traceTransactions", "acme_heavy2", "ACME_heavy", "eth_call"] {
        gateway.call(method, "[]").assert_result("1", "\"first\"");
    }
    assert_eq!((first.count(), second.count()), (4, 3));
}

#[test]
fn priority_goes_in_the_order_of_the_file() {
    let gate = Gate::default();
    let held = gate.clone();
    let slow = Upstream::start(move |seen| Reply::after(&held, Reply::result(seen, "\"slow\"")));
    let fast = Upstream::answering("\"fast\"");
    let gateway = Setup::of(&[&slow, &fast]).start();
    let mut clients: Vec<_> = (0..8).map(|_| gateway.connect()).collect();
    for client in &mut clients {
        client.post("/eth", &[], call_body("1", "eth_call", "[]"));
    }
    slow.wait_for(8);
    assert_eq!(fast.count(), 0, "being slow or busy is no reason to go elsewhere");
    gate.open();
    clients.iter_mut().for_each(|client| client.response().assert_result("1", "\"slow\""));
}

#[test]
fn what_a_node_said_when_it_refused_hides_no_unknown_outcome() {
    let behind = Upstream::start(|seen| Reply::error(seen, 200, r#"{"code":-32005,"message":"Node is behind"}"#));
    let lost = Upstream::start(|_| Reply::close());
    let place = "chain = \"solana\"\nnetwork = \"mainnet\"";
    let endpoint = |id: &str, node: &Upstream| {
        format!("[[endpoint]]\nid = \"{id}\"\n{place}\nurl = \"http://{}\"\n", node.address)
    };
    let gateway = Setup::of(&[&lost])
        .no_circuit()
        .raw(&(endpoint("behind", &behind) + &endpoint("lost", &lost)))
        .raw(&format!("[[gateway]]\nid = \"sol\"\npath = \"/sol\"\n{place}"))
        .raw("[[gateway.route]]\nid = \"default\"\ntargets = [\"behind\", \"lost\"]")
        .start();
    // Behind, it did not run it; the other may have.
    for method in ["requestAirdrop", "acme_unknown"] {
        gateway.post_to("/sol", call_body("1", method, "[]")).assert_fault(200, "1", -32054);
    }
    let answer = gateway.post_to("/sol", call_body("1", "getBalance", "[]"));
    assert_eq!(answer.code(), -32005, "a query has no effect that could be hidden");
    assert_eq!((behind.count(), lost.count()), (3, 3));
}
