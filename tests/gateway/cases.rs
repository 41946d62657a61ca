//! Cases from the public record, each under the name of the thread that reported it.

use super::harness::{Gate, Reply, Setup, Upstream, call_body, notification_body, request};

const CHAIN_ID: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}"#;

#[test]
fn erpc_851_numeric_ids_pass_through_no_float() {
    let node = Upstream::answering("\"0x1\"");
    let gateway = Setup::of(&[&node]).start();
    for id in ["1720000000123456789", "1.5"] {
        gateway.post(call_body(id, "eth_chainId", "[]")).assert_result(id, "\"0x1\"");
        gateway.post(call_body(id, "admin_peers", "[]")).assert_fault(200, id, -32601);
    }
}

#[test]
fn nethermind_1439_a_null_id_is_a_call_and_no_id_is_a_notification() {
    let node = Upstream::answering("\"0x1\"");
    let gateway = Setup::of(&[&node]).start();
    gateway.post(call_body("null", "eth_chainId", "[]")).assert_result("null", "\"0x1\"");
    let silent = gateway.post(notification_body("eth_chainId", "[]"));
    assert_eq!((silent.status, silent.body.as_str()), (204, ""));
    assert_eq!(node.count(), 2);
}

#[test]
fn erpc_846_an_upstream_that_renumbers_ids_is_not_believed() {
    let renumbers = Upstream::start(|_| Reply::json(200, r#"{"jsonrpc":"2.0","id":99,"result":"0x10"}"#));
    let other = Upstream::answering("\"0x11\"");
    let gateway = Setup::of(&[&renumbers, &other]).start();
    gateway.post(CHAIN_ID).assert_result("1", "\"0x11\"");
    gateway.call("eth_sendTransaction", "[]").assert_fault(200, "1", -32054);
    assert_eq!((renumbers.count(), other.count()), (2, 1));
}

#[test]
fn dshackle_148_a_batch_is_answered_in_its_order() {
    let gate = Gate::default();
    let held = gate.clone();
    let node = Upstream::start(move |seen| {
        if seen.holds("eth_blockNumber") {
            Reply::after(&held, Reply::result(seen, "\"0x2\""))
        } else {
            Reply::result(seen, "\"0x1\"")
        }
    });
    let gateway = Setup::of(&[&node]).start();
    let members = ["eth_chainId", "eth_blockNumber", "eth_chainId"];
    let members: Vec<String> =
        (1..).zip(members).map(|(id, method)| call_body(&id.to_string(), method, "[]")).collect();
    let mut client = gateway.connect();
    client.post("/eth", &[], format!("[{}]", members.join(",")));
    node.wait_for(3);
    gate.open();
    let answers = client.response().json();
    let brief: Vec<(u64, &str)> = answers
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["id"].as_u64().unwrap(), one["result"].as_str().unwrap()))
        .collect();
    assert_eq!(brief, [(1, "0x1"), (2, "0x2"), (3, "0x1")]);
}

#[test]
fn foundry_14405_an_empty_batch_is_not_a_silent_one() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    gateway.post("[]").assert_fault(200, "null", -32600);
    assert_eq!(node.count(), 0);
    let silent = gateway.post(r#"[{"jsonrpc":"2.0","method":"eth_chainId"}]"#);
    assert_eq!((silent.status, silent.body.as_str(), node.count()), (204, "", 1));
}

#[test]
fn ethers_3155_a_valid_batch_is_never_answered_with_one_object() {
    for body in
        [r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"batch too large"}}"#, "batch too large"]
    {
        let node = Upstream::start(move |_| Reply::json(200, body));
        let other = Upstream::answering("7");
        let gateway = Setup::of(&[&node, &other]).no_circuit().another("alone", "[\"a\"]", "").start();
        let members: Vec<String> = (1..4).map(|id| call_body(&id.to_string(), "eth_call", "[]")).collect();
        let batch = format!("[{}]", members.join(","));
        let ids = |answer: super::harness::Response, member: &str| -> Vec<u64> {
            let answers = answer.json();
            let one =
                |one: &serde_json::Value| one.get(member).and(one["id"].as_u64()).unwrap_or_else(|| panic!("{one}"));
            answers.as_array().unwrap().iter().map(one).collect()
        };
        assert_eq!(ids(gateway.post(&batch), "result"), [1, 2, 3]);
        assert_eq!(ids(gateway.post_to("/alone", &batch), "error"), [1, 2, 3]);
    }
}

#[test]
fn jsonrpsee_888_a_result_beside_a_null_error_is_a_success() {
    let node = Upstream::start(|seen| {
        Reply::json(200, &format!(r#"{{"jsonrpc":"2.0","id":{},"result":"0x1","error":null}}"#, seen.id()))
    });
    let other = Upstream::answering("2");
    let gateway = Setup::of(&[&node, &other]).circuit("consecutive_failures = 1").start();
    (0..3).for_each(|_| gateway.post(CHAIN_ID).assert_result("1", "\"0x1\""));
    assert_eq!((node.count(), other.count(), gateway.metrics().of("ringway_circuit_state", "a")), (3, 0, 0));
}

#[test]
fn infura_82_the_endpoints_own_authority_is_the_host() {
    let picky = Upstream::start(|seen| match seen.header("host").as_deref() {
        Some("gw.test") => Reply::result(seen, "1"),
        _ => Reply::json(200, "invalid host specified"),
    });
    let strict = Upstream::start(|seen| {
        let own = seen.header("host").unwrap();
        Reply::result(seen, &format!("\"{own}\""))
    });
    let gateway = Setup::of(&[&picky, &strict]).start();
    let answer = gateway.post(CHAIN_ID);
    answer.assert_result("1", &format!("\"{}\"", strict.address));
    assert_eq!(picky.only().header("host"), Some(picky.address.to_string()));
}

#[test]
fn solana_26_a_rate_limiters_html_never_reaches_the_caller() {
    let limited =
        Upstream::start(|_| Reply::http(429, &["Content-Type: text/html", "Retry-After: 2"], "<html>slow down</html>"));
    let other = Upstream::answering("1");
    let gateway = Setup::of(&[&limited, &other]).another("alone", "[\"a\"]", "").start();
    let answer = gateway.post_to("/alone", CHAIN_ID);
    answer.assert_fault(502, "1", -32052);
    assert_eq!((answer.reason().as_str(), answer.header("retry-after").as_deref()), ("rate_limited", Some("2")));
    assert!(!answer.body.contains('<'), "{answer:?}");
    gateway.post(CHAIN_ID).assert_result("1", "1");
    assert_eq!(limited.count(), 1, "it rests");
}

#[test]
fn erpc_1126_answers_without_end_are_cut_and_disturb_nobody() {
    let node = Upstream::start(|seen| {
        if seen.holds("eth_getLogs") {
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            return Reply::raw(format!("{head}{}", format!("10000\r\n{}\r\n", "[".repeat(0x10000)).repeat(200)))
                .then(Reply::hang());
        }
        Reply::result(seen, "1")
    });
    let gateway = Setup::of(&[&node]).server("max_response_bytes = \"1MiB\"").start();
    let mut clients: Vec<_> = (0..20).map(|_| gateway.connect()).collect();
    clients.iter_mut().for_each(|client| {
        client.post("/eth", &[], call_body("1", "eth_getLogs", "[{}]"));
    });
    (0..20).for_each(|_| gateway.post(CHAIN_ID).assert_result("1", "1"));
    clients.iter_mut().for_each(|client| client.response().assert_fault(200, "1", -32055));
    // What was cut is dropped; what served well is kept.
    node.wait_for_open(2 * 20);
    assert_eq!(gateway.metrics().attempts("a", "response_too_large"), 20);
}

#[test]
fn bitcoin_20949_a_name_twice_is_refused() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    for second in ["method", "m\\u0065thod", "Method"] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"eth_chainId","{second}":"debug_traceTransaction","params":[]}}"#
        );
        gateway.post(body).assert_fault(200, "1", -32600);
    }
    assert_eq!(node.count(), 0);
}

#[test]
fn nodecore_270_encodings_and_hop_headers_stay_on_their_side() {
    let node = Upstream::start(|seen| {
        assert_eq!(seen.header("accept-encoding").as_deref(), Some("identity"));
        assert!(seen.headers("x-foo").is_empty() && seen.headers("connection").is_empty(), "{}", seen.head);
        Reply::http(200, &["Connection: keep-alive, X-Bar", "X-Bar: 1"], &super::harness::result_body(seen, "1"))
    });
    let gateway = Setup::of(&[&node]).start();
    let mut client = gateway.connect();
    let fields = ["Accept-Encoding: gzip, br", "Connection: keep-alive, X-Foo", "X-Foo: 1"];
    let answer = client.post("/eth", &fields, CHAIN_ID).response();
    answer.assert_result("1", "1");
    assert_eq!((answer.header("content-encoding"), answer.header("x-bar")), (None, None));
}

#[test]
fn ganache_2320_a_chunked_body_goes_up_with_its_length() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    let (front, back) = CHAIN_ID.split_at(CHAIN_ID.find("chainId").unwrap());
    let mut client = gateway.connect();
    client.send(format!(
        "POST /eth HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{:x};a=b\r\n{front}\r\n{:x}\r\n{back}\r\n0\r\nX-T: 1\r\n\r\n",
        front.len(),
        back.len()
    ));
    client.response().assert_result("1", "1");
    let seen = node.only();
    assert_eq!((seen.text(), seen.header("content-length").unwrap()), (CHAIN_ID, CHAIN_ID.len().to_string()));
    assert!(seen.headers("transfer-encoding").is_empty());
}

#[test]
fn geth_1727_line_ends_after_a_body_are_no_request() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    let whole = |fields: &[&str]| format!("{}{CHAIN_ID}", request("/eth", fields, CHAIN_ID.len()));
    let mut client = gateway.connect();
    client.send(format!("{}\r\n", whole(&["Connection: close"])));
    client.response().assert_result("1", "1");
    client.closed();
    let mut kept = gateway.connect();
    kept.send(format!("\r\n{}\r\n{}\r\n\r\n{}", whole(&[]), whole(&[]), whole(&[])));
    (0..3).for_each(|_| kept.response().assert_result("1", "1"));
    kept.ask(format!("\n {CHAIN_ID}\r\n\t ")).assert_result("1", "1");
    assert!(kept.is_quiet());
    assert_eq!(node.count(), 5);
}

#[test]
fn cacherpc_118_content_types_are_compared_by_what_they_mean() {
    let node = Upstream::start(|seen| {
        Reply::http(200, &["Content-Type: text/plain"], &super::harness::result_body(seen, "1"))
    });
    let gateway = Setup::of(&[&node]).start();
    let mut client = gateway.connect();
    for kind in ["application/json; charset=utf-8", "APPLICATION/JSON", "application/json-rpc"] {
        let head = format!(
            "POST /eth HTTP/1.1\r\nHost: h\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            CHAIN_ID.len()
        );
        client.send(head).send(CHAIN_ID).response().assert_result("1", "1");
    }
    let head = format!(
        "POST /eth HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n",
        CHAIN_ID.len()
    );
    client.send(head).send(CHAIN_ID).response().assert_fault(415, "null", -32600);
}

#[test]
fn ethers_4186_on_a_first_attempt_the_nodes_error_goes_out_unchanged() {
    let error = r#"{"code":-32000,"message":"already known"}"#;
    let node = Upstream::start(move |seen| Reply::error(seen, 200, error));
    let other = Upstream::answering("\"0xhash\"");
    let gateway = Setup::of(&[&node, &other]).start();
    let answer = gateway.call("eth_sendRawTransaction", "[\"0x02f8\"]");
    assert_eq!(answer.body, format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#));
    assert_eq!((node.count(), other.count()), (1, 0));
}

#[test]
fn metamask_13322_tags_and_numbers_go_up_as_they_are() {
    let error = r#"{"code":-32000,"message":"missing trie node"}"#;
    let node = Upstream::start(move |seen| Reply::error(seen, 200, error));
    let gateway = Setup::of(&[&node]).circuit("consecutive_failures = 1").start();
    for tag in ["\"latest\"", "\"0x350\"", "\"pending\""] {
        let answer = gateway.call("eth_call", &format!("[{{}},{tag}]"));
        assert_eq!(answer.body, format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#));
        assert!(node.seen().pop().unwrap().holds(&format!("[{{}},{tag}]")));
    }
    assert_eq!(gateway.metrics().of("ringway_circuit_state", "a"), 0);
}

#[test]
fn rpc_proxy_36_health_checks_by_get_and_head() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    let mut client = gateway.connect();
    assert_eq!(client.send("GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n").response().status, 200);
    assert_eq!(client.send("HEAD /healthz HTTP/1.1\r\nHost: h\r\n\r\n").head_response().status, 200);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").response().assert_fault(404, "null", -32600);
    client.send("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n").head_response();
    client.ask(CHAIN_ID).assert_result("1", "1");
}

#[test]
fn joshrotenberg_1336_a_byte_order_mark_is_skipped() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    gateway.post(format!("\u{feff}{CHAIN_ID}")).assert_result("1", "1");
    gateway.post(format!("\u{feff}[{CHAIN_ID}]")).json().as_array().unwrap();
    gateway.post(r#"{"id":7,"method":42}"#).assert_fault(200, "7", -32600);
    assert_eq!(node.seen()[0].text(), CHAIN_ID);
}

#[test]
fn java_tron_5764_a_jetty_page_is_never_shown_on_json_rpc() {
    let node = Upstream::start(|_| Reply::http(405, &["Content-Type: text/html"], "<html>Jetty</html>"));
    let gateway = Setup::of(&[&node]).start();
    let answer = gateway.post(CHAIN_ID);
    answer.assert_fault(502, "1", -32052);
    assert!(!answer.body.contains("Jetty"));
}

#[test]
fn dshackle_469_result_and_error_together_are_no_answer() {
    let long = "x".repeat(1 << 20);
    let node = Upstream::start(move |seen| {
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":{},"result":"{long}","error":{{"code":1,"message":"m"}}}}"#, seen.id());
        Reply::json(200, &body)
    });
    let gateway = Setup::of(&[&node]).start();
    let answer = gateway.post(CHAIN_ID);
    answer.assert_fault(502, "1", -32052);
    assert_eq!(answer.reason(), "invalid_response");
}

#[test]
fn erpc_1095_an_answer_too_big_for_the_node_is_its_error() {
    let error = r#"{"code":-32008,"message":"Response is too big","data":"Exceeded max limit"}"#;
    let node = Upstream::start(move |seen| Reply::error(seen, 200, error));
    let gateway = Setup::of(&[&node]).circuit("consecutive_failures = 1").start();
    for _ in 0..3 {
        let answer = gateway.call("eth_getLogs", "[{}]");
        assert_eq!(answer.body, format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#));
    }
    assert_eq!(node.count(), 3);
}

#[test]
fn aztec_12470_a_revert_is_final() {
    let (node, other) = (
        Upstream::start(|seen| {
            let code = if seen.nth == 0 { 3 } else { -32000 };
            Reply::error(seen, 200, &format!(r#"{{"code":{code},"message":"execution reverted","data":"0x08C379a0"}}"#))
        }),
        Upstream::answering("1"),
    );
    let gateway = Setup::of(&[&node, &other]).start();
    for code in [3, -32000] {
        let answer = gateway.call("eth_call", "[{}]");
        assert_eq!(
            answer.body,
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":"execution reverted","data":"0x08C379a0"}}}}"#
            )
        );
    }
    assert_eq!((node.count(), other.count()), (2, 0));
}

#[test]
fn erpc_1002_a_deploy_loses_no_request_of_kept_connections() {
    let node = Upstream::answering("1");
    let mut gateway = Setup::of(&[&node]).server("shutdown_delay = \"150ms\"").start();
    let lost = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..6)
            .map(|_| {
                let mut client = gateway.connect();
                scope.spawn(move || {
                    client.ask(CHAIN_ID).assert_result("1", "1");
                    let mut served = 0u32;
                    loop {
                        let Some(answer) = client.post("/eth", &[], CHAIN_ID).try_response(false) else {
                            return (served, true);
                        };
                        answer.assert_result("1", "1");
                        served += 1;
                        if answer.header("connection").as_deref() == Some("close") {
                            client.closed();
                            return (served, false);
                        }
                    }
                })
            })
            .collect();
        node.wait_for(100);
        gateway.terminate();
        callers.into_iter().map(|caller| caller.join().unwrap()).filter(|(_, lost)| *lost).count()
    });
    assert_eq!(lost, 0, "each connection was told by its last answer");
    assert_eq!(gateway.wait().code(), Some(0));
}

#[test]
fn ethers_4186_already_known_after_a_lost_answer_is_the_hash() {
    let bytes = super::honesty::RAW;
    for (code, message) in [(-32000, "already known"), (-32010, "AlreadyKnown")] {
        let took = Upstream::start(|_| Reply::close());
        let other = Upstream::start(move |seen| {
            Reply::error(seen, 200, &format!(r#"{{"code":{code},"message":"{message}"}}"#))
        });
        let gateway = Setup::of(&[&took, &other]).start();
        let answer = gateway.call("eth_sendRawTransaction", &format!("[\"{bytes}\"]"));
        answer.assert_result("1", &format!("\"{}\"", super::honesty::hash()));
        // Nethermind also says so of what it refused shortly before, and is asked.
        let sent = |node: &Upstream| node.count_with("eth_sendRawTransaction");
        assert_eq!((sent(&took), sent(&other)), (1, 1));
    }
}

#[test]
fn trongrid_22_an_error_member_is_an_answer_and_visible_is_nobodys_business() {
    let error = r#"{"Error":"class org.bouncycastle.util.encoders.DecoderException : exception decoding Hex string"}"#;
    let node = Upstream::start(move |_| Reply::json(200, error));
    let other = Upstream::start(|_| Reply::json(200, "{}"));
    let gateway = Setup::of(&[&node, &other]).tron().circuit("consecutive_failures = 1").start();
    let address = r#"{"address":"TZ4UXDV5ZhNW7fb2AMSbgfAEZ7hWsnYS2g"}"#;
    let visible = r#"{ "address":"TZ4UXDV5ZhNW7fb2AMSbgfAEZ7hWsnYS2g", "visible":true }"#;
    for body in [address, visible] {
        let answer = super::tron::ask(&gateway, "POST", "/tron/wallet/getaccountresource", body);
        assert_eq!((answer.status, answer.body.as_str()), (200, error));
        assert_eq!(node.seen().pop().unwrap().text(), body);
    }
    super::tron::ask(&gateway, "GET", "/tron/wallet/getaccount?address=TZ4U&visible=true", "");
    assert_eq!(node.seen().pop().unwrap().line(), "GET /wallet/getaccount?address=TZ4U&visible=true HTTP/1.1");
    assert_eq!((node.count(), other.count(), gateway.metrics().of("ringway_circuit_state", "a")), (3, 0, 0));
}

#[test]
fn java_tron_5764_on_the_http_api_the_jetty_page_is_the_answer() {
    let page = "<html><body><h2>HTTP ERROR 405 HTTP method GET is not supported by this URL</h2></body></html>";
    let node = Upstream::start(move |_| Reply::http(405, &["Content-Type: text/html"], page));
    let other = Upstream::start(|_| Reply::json(200, "{}"));
    let gateway = Setup::of(&[&node, &other]).tron().circuit("consecutive_failures = 1").start();
    let answer = super::tron::ask(&gateway, "GET", "/tron/wallet/ofanotheryear", "");
    assert_eq!((answer.status, answer.body.as_str()), (405, page));
    assert_eq!((node.count(), other.count(), gateway.metrics().of("ringway_circuit_state", "a")), (1, 0, 0));
}
