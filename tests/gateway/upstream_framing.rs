//! Upstream responses in every framing, and when a connection may carry another request.

use super::harness::{Reply, Seen, Setup, Upstream, call_body, result_body};

/// A response with `ANSWER` for a right body and `LEN` for its length.
fn shaped(seen: &Seen, shape: &str) -> Reply {
    let answer = result_body(seen, "\"0x1\"");
    let (front, back) = answer.split_at(9);
    let chunks = format!("{:x};ext=\"a;b\"\r\n{front}\r\n0{:X}\r\n{back}\r\n0\r\n", front.len(), back.len());
    let text = shape.replace("CHUNKS", &chunks).replace("ANSWER", &answer).replace("LEN", &answer.len().to_string());
    Reply::raw(text)
}

/// Responses that are right, and whether their connection may be used again. A `!` at the end closes it.
const RIGHT: [(&str, bool); 22] = [
    ("HTTP/1.1 200 OK\r\nContent-Length: LEN\r\n\r\nANSWER", true),
    ("HTTP/1.1 200 OK\r\ncontent-length:LEN\r\nX: y\r\n\r\nANSWER", true),
    ("HTTP/1.1 200\r\nContent-Length: LEN\r\n\r\nANSWER", true),
    ("HTTP/1.1 200 \r\nContent-Length: LEN\r\n\r\nANSWER", true),
    ("HTTP/1.1 200 OK\r\nContent-Length: LEN\r\nConnection: keep-alive\r\n\r\nANSWER", true),
    ("HTTP/1.1 200 OK\r\nContent-Length: LEN\r\nConnection: close\r\n\r\nANSWER", false),
    ("HTTP/1.1 200 OK\r\nContent-Length: LEN\r\nConnection: x, Close\r\n\r\nANSWER", false),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nCHUNKS\r\n", true),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nCHUNKSX-Trailer: 1\r\nY: 2\r\n\r\n", true),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nCHUNKS\r\n", false),
    ("HTTP/1.1 200 OK\r\n\r\nANSWER!", false),
    ("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nANSWER!", false),
    ("HTTP/1.0 200 OK\r\n\r\nANSWER!", false),
    ("HTTP/1.0 200 OK\r\nContent-Length: LEN\r\n\r\nANSWER", false),
    ("HTTP/1.0 200 OK\r\nContent-Length: LEN\r\nConnection: keep-alive\r\n\r\nANSWER", true),
    ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: LEN\r\n\r\nANSWER", true),
    (
        "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: LEN\r\n\r\nANSWER",
        true,
    ),
    ("HTTP/1.1 200 OK\r\nContent-Length: LEN\r\n\r\nANSWER\r\n", false),
    ("HTTP/1.1 200 OK\r\nContent-Length: LEN\r\n\r\nANSWER{\"jsonrpc\":\"2.0\"}", false),
    ("HTTP/1.1 200 OK\r\nContent-Length: LEN\r\n\r\nANSWERHTTP/1.1 200 OK\r\nContent-Length: LEN\r\n\r\nANSWER", false),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nCHUNKS\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        false,
    ),
    ("HTTP/1.1 200 OK\r\nContent-Length: LEN\r\nContent-Type: text/html\r\nSet-Cookie: a=b\r\n\r\nANSWER", true),
];

fn by_shape(seen: &Seen, dripping: bool) -> Reply {
    let at = usize::try_from(seen.json()["params"][0].as_u64().unwrap()).unwrap();
    let (shape, _) = RIGHT[at];
    let ends = shape.ends_with('!');
    let reply = shaped(seen, shape.trim_end_matches('!'));
    let reply = if dripping { reply.dripping() } else { reply };
    if ends { reply.then_close() } else { reply }
}

#[test]
fn every_framing_is_read_and_only_clean_connections_are_used_again() {
    for dripping in [false, true] {
        let node = Upstream::start(move |seen| by_shape(seen, dripping));
        let gateway = Setup::of(&[&node]).shards(1).start();
        let mut client = gateway.connect();
        let mut connections = 0;
        let mut reusable = false;
        for (at, (shape, again)) in RIGHT.iter().enumerate() {
            let answer = client.ask(call_body("1", "eth_call", &format!("[{at}]")));
            answer.assert_result("1", "\"0x1\"");
            assert_eq!(answer.header("set-cookie"), None);
            connections += usize::from(!reusable);
            // Bytes behind an answer may still be on their way when it is complete: it is then found out
            // before the next use, or by the next answer's id.
            assert_eq!(node.connections(), connections, "before {shape:?}");
            reusable = *again;
        }
        assert_eq!(node.count(), RIGHT.len());
    }
}

#[test]
fn a_body_that_may_not_be_there_ends_nothing() {
    // 204 and 304 have no body: no answer, and whatever was sent as one must not be taken for the next.
    let node = Upstream::start(|seen| {
        if seen.nth % 2 == 1 {
            return Reply::result(seen, "\"next\"");
        }
        let body = result_body(seen, "\"ghost\"");
        let status = if seen.nth % 4 == 0 { "204 No Content" } else { "304 Not Modified" };
        Reply::raw(format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
    });
    let gateway = Setup::of(&[&node]).shards(1).no_circuit().start();
    for reason in ["invalid_response", "rejected"] {
        let answer = gateway.call("eth_call", "[]");
        answer.assert_fault(502, "1", -32052);
        assert_eq!(answer.reason(), reason);
        gateway.call("eth_call", "[]").assert_result("1", "\"next\"");
    }
    assert_eq!(node.connections(), 3, "only what followed a clean answer rode its connection");
}

#[test]
fn bytes_that_nobody_asked_for_are_never_delivered() {
    let node = Upstream::start(|seen| Reply::result(seen, &format!("\"answer {}\"", seen.nth)));
    let gateway = Setup::of(&[&node]).shards(1).start();
    let mut client = gateway.connect();
    for nth in 0..5 {
        client.ask(call_body("1", "eth_call", "[]")).assert_result("1", &format!("\"answer {nth}\""));
        let ghost = r#"{"jsonrpc":"2.0","id":1,"result":"ghost"}"#;
        node.say_unasked(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{ghost}", ghost.len()).as_bytes());
    }
    assert_eq!(node.connections(), 5, "a connection that spoke unasked is not used again");
}

#[test]
fn a_greeting_is_no_answer() {
    let ghost = r#"{"jsonrpc":"2.0","id":1,"result":"ghost"}"#;
    let greeting = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{ghost}", ghost.len());
    let node = Upstream::greeting(greeting.as_bytes(), |seen| Reply::result(seen, "\"true\""));
    let gateway = Setup::of(&[&node]).start();
    for id in ["1", "2", "\"x\""] {
        let answer = gateway.post(call_body(id, "eth_call", "[]"));
        assert!(id == "1" || !answer.body.contains("ghost"), "{answer:?}");
    }
}

#[test]
fn what_is_over_the_limit_is_cut_in_every_framing() {
    let pieces = |seen: &Seen| {
        let answer = result_body(seen, &format!("\"{}\"", "x".repeat(5_000)));
        let chunks: String = answer.as_bytes().chunks(100).map(|_| format!("64\r\n{}\r\n", "x".repeat(100))).collect();
        match seen.nth {
            0 => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{answer}", answer.len()),
            1 => format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"),
            2 => format!("HTTP/1.1 200 OK\r\n\r\n{answer}"),
            3 => "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n{".into(),
            4 => "HTTP/1.1 200 OK\r\nContent-Length: 4097\r\n\r\n".into(),
            _ => format!("HTTP/1.1 429 Too Many\r\nContent-Length: 5000\r\n\r\n{answer}"),
        }
    };
    let node = Upstream::start(move |seen| Reply::raw(pieces(seen)).then(Reply::hang()));
    let other = Upstream::answering("1");
    let gateway = Setup::of(&[&node, &other]).server("max_response_bytes = \"4KiB\"").shards(1).start();
    for nth in 0..6 {
        let answer = gateway.call("eth_call", "[]");
        answer.assert_fault(200, "1", -32055);
        assert_eq!((answer.attempts(), node.count(), node.connections()), (1, nth + 1, nth + 1));
        node.wait_for_open(0);
    }
    assert_eq!(other.count(), 0);
    let metrics = gateway.metrics();
    assert_eq!(metrics.attempts("a", "response_too_large"), 6);
    assert_eq!(metrics.of("ringway_circuit_state", "a"), 0, "it says nothing about the node's health");
}

#[test]
fn exactly_the_limit_is_within_it() {
    let node = Upstream::start(|seen| {
        let empty = result_body(seen, "\"\"").len();
        let answer = result_body(seen, &format!("\"{}\"", "x".repeat(4096 - empty)));
        match seen.nth {
            0 => Reply::http(200, &[], &answer),
            1 => Reply::raw(format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\n{answer}\r\n0\r\n\r\n"
            )),
            _ => Reply::raw(format!("HTTP/1.1 200 OK\r\n\r\n{answer}")).then_close(),
        }
    });
    let gateway = Setup::of(&[&node]).server("max_response_bytes = \"4KiB\"").start();
    for _ in 0..3 {
        assert!(gateway.call("eth_call", "[]").result().len() > 4_000);
    }
}

#[test]
fn a_bomb_of_headers_is_no_answer_and_costs_no_memory() {
    let endless = |seen: &Seen| match seen.nth {
        0 => format!(
            "HTTP/1.1 200 OK\r\n{}",
            "X-Bomb: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n".repeat(40_000)
        ),
        1 => format!("HTTP/1.1 200 OK\r\nX: {}", "y".repeat(2 << 20)),
        2 => "HTTP/1.1 100 Continue\r\n\r\n".repeat(10_000),
        3 => format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(300)),
        4 => format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;{}\r\n", "y".repeat(2 << 20)),
        _ => format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{}", "A: b\r\n".repeat(400_000)),
    };
    let node = Upstream::start(move |seen| Reply::raw(endless(seen)).then(Reply::hang()));
    let gateway = Setup::of(&[&node]).no_circuit().start();
    for nth in 0..6 {
        let answer = gateway.call("eth_call", "[]");
        answer.assert_fault(502, "1", -32052);
        assert_eq!(answer.reason(), "invalid_http", "{nth}");
        node.wait_for_open(0);
    }
}

#[test]
fn an_answer_before_the_request_is_whole_is_still_judged() {
    // A node that refuses a large body on seeing its head, and does not read the rest.
    let node = Upstream::refusing_early("HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    let other = Upstream::answering("\"other\"");
    let gateway = Setup::at(&[node.address, other.address]).server("max_request_bytes = \"32MiB\"").start();
    let params = format!("[\"{}\"]", "z".repeat(16 << 20));
    let mut client = gateway.connect();
    client.post("/eth", &[], call_body("1", "eth_sendTransaction", &params));
    let answer = client.response();
    // Refused or lost in the reset, but never taken for served, and an effect is never sent again after a loss.
    match answer.json().get("result") {
        Some(result) => assert_eq!((result.as_str(), other.count()), (Some("other"), 1)),
        None => assert_eq!((answer.code(), other.count()), (-32054, 0), "{answer:?}"),
    }
}

#[test]
fn a_refusal_is_heard_although_the_node_reads_no_further_and_stays() {
    let refusal = "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n";
    for method in ["eth_call", "eth_sendTransaction"] {
        let (node, _stay) = Upstream::refusing_and_deaf(refusal);
        let other = Upstream::answering("\"other\"");
        let gateway = Setup::at(&[node.address, other.address])
            .server("max_request_bytes = \"32MiB\"")
            .route("attempt_timeout = \"15s\"")
            .start();
        let params = format!("[\"{}\"]", "z".repeat(16 << 20));
        gateway.call(method, &params).assert_result("1", "\"other\"");
        let metrics = gateway.metrics();
        assert_eq!((metrics.attempts("a", "bad_request"), metrics.attempts("a", "timeout")), (1, 0), "{method}");
    }
}
