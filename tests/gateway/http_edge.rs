//! The HTTP edge: statuses, keep-alive, pipelining, and what crosses to the upstream.

use super::harness::{Gate, Reply, Setup, Upstream, call_body, request};

const BODY: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_call","params":[]}"#;

fn post(fields: &str) -> String {
    format!("POST /eth HTTP/1.1\r\nHost: h\r\n{fields}Content-Length: {}\r\n\r\n{BODY}", BODY.len())
}

#[test]
fn paths_verbs_and_types() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    let json = "Content-Type: application/json\r\n";
    let cases = [
        (post("").replace("/eth", "/"), 404),
        (post("").replace("/eth", "/eth2"), 404),
        (post("").replace("/eth", "/eth//"), 404),
        (post("").replace("/eth", "/ETH"), 404),
        (post("").replace("/eth", "/eth/key"), 404),
        (post("").replace("/eth", "/%65th"), 404),
        ("GET / HTTP/1.1\r\nHost: h\r\n\r\n".into(), 404),
        ("GET /eth HTTP/1.1\r\nHost: h\r\n\r\n".into(), 405),
        ("PUT /eth HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}".into(), 405),
        ("DELETE /eth HTTP/1.1\r\nHost: h\r\n\r\n".into(), 405),
        ("OPTIONS /eth HTTP/1.1\r\nHost: h\r\n\r\n".into(), 405),
        ("post /eth HTTP/1.1\r\nHost: h\r\n\r\n".into(), 405),
        (post("Content-Type: text/plain\r\n"), 415),
        (post("Content-Type: application/x-www-form-urlencoded\r\n"), 415),
        (post("Content-Type: application/jsonx\r\n"), 415),
        (post("Content-Type: application/json\r\nContent-Type: text/plain\r\n"), 415),
        (post("Origin: https://dapp.example\r\n"), 415),
        (post(&format!("{json}Content-Encoding: br\r\n")), 415),
        (post(&format!("{json}Content-Encoding: gzip, gzip\r\n")), 415),
    ];
    let mut client = gateway.connect();
    for (text, status) in &cases {
        // Each is refused alone: the connection serves on.
        let answer = client.send(text).response();
        answer.assert_fault(*status, "null", -32600);
        assert_eq!(answer.header("allow").as_deref(), (*status == 405).then_some("POST"), "{text}");
        assert_eq!(answer.header("connection"), None, "{text}");
    }
    assert_eq!(node.count(), 0);
    let served = [
        post(""),
        post(json),
        post("Content-Type: application/json; charset=utf-8\r\n"),
        post("Content-Type: APPLICATION/JSON\r\n"),
        post("Content-Type: application/json-rpc\r\n"),
        post("content-TYPE:application/json;x=\"y\"\r\n"),
        post(&format!("{json}Origin: https://dapp.example\r\n")),
        post(&format!("{json}Content-Encoding: identity\r\n")),
        post("").replace("/eth ", "/eth/ "),
        post("").replace("/eth ", "/eth?a=b "),
        post("").replace("/eth ", "http://elsewhere.test:99/eth "),
        post("").replace("Host: h", "Host: [::1]:8545"),
    ];
    for text in &served {
        client.send(text).response().assert_result("1", "1");
    }
    assert_eq!(node.count(), served.len());
}

#[test]
fn other_refusals_close() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node])
        .server("max_request_bytes = \"1KiB\"\nmax_header_bytes = \"2KiB\"\nmax_headers = 20")
        .start();
    let long = format!("X: {}\r\n", "y".repeat(3_000));
    let many = "X: y\r\n".repeat(30);
    let chunks =
        format!("POST /eth HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n600\r\n{}", "[".repeat(0x600));
    let announced = "POST /eth HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n401\r\n";
    let in_sum = format!("{}{}\r\n102\r\n", announced.replace("401", "300"), "[".repeat(0x300));
    let cases = [
        // Told when it is announced, and not when it has come.
        (announced.to_owned(), 413),
        (in_sum, 413),
        ("POST /eth HTTP/1.1\r\nHost: h\r\nContent-Length: 1025\r\n\r\n".to_owned(), 413),
        ("POST /eth HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551615\r\n\r\n".to_owned(), 413),
        ("POST /eth HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1025\r\n\r\n".to_owned(), 413),
        (chunks, 413),
        (post(&long), 431),
        (format!("POST /eth HTTP/1.1\r\nHost: h\r\n{long}"), 431),
        (format!("POST /{} HTTP/1.1\r\nHost: h\r\n\r\n", "p".repeat(3_000)), 431),
        (post(&many), 431),
        (post("Expect: a-miracle\r\n"), 417),
        (post("").replace("HTTP/1.1", "HTTP/2.0"), 505),
        (post("Expect: 100-continue\r\nContent-Type: text/plain\r\n"), 415),
    ];
    for (text, status) in &cases {
        let mut client = gateway.connect();
        let answer = client.send(text).response();
        answer.assert_fault(*status, "null", -32600);
        assert_eq!(answer.header("connection").as_deref(), Some("close"), "{text}");
        client.closed();
    }
    assert_eq!(node.count(), 0);
    // Exactly at the limit is within it.
    let padded = format!("{BODY}{}", " ".repeat(1024 - BODY.len()));
    gateway.post(&padded).assert_result("1", "1");
    let mut client = gateway.connect();
    client.send(announced.replace("401", "400")).send(format!("{padded}\r\n0\r\n\r\n"));
    client.response().assert_result("1", "1");
}

#[test]
fn slow_heads_and_bodies_time_out() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).server("header_timeout = \"120ms\"\nbody_timeout = \"120ms\"").start();
    for text in [
        "POST /eth HTTP/1.1\r\nHos",
        "P",
        "POST /eth HTTP/1.1\r\nHost: h\r\nContent-Length: 50\r\n\r\n{\"id\":",
        "POST /eth HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"i",
        "GET /healthz HTTP/1.1\r\n",
    ] {
        let mut client = gateway.connect();
        let answer = client.send(text).response();
        answer.assert_fault(408, "null", -32600);
        assert_eq!(answer.header("connection").as_deref(), Some("close"), "{text}");
        client.closed();
    }
    assert_eq!(node.count(), 0);
}

#[test]
fn health_on_the_data_port() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    let mut client = gateway.connect();
    let get = client.send("GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n").response();
    assert_eq!((get.status, get.json()["status"].as_str()), (200, Some("ok")));
    let head = client.send("HEAD /healthz HTTP/1.1\r\nHost: h\r\n\r\n").head_response();
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(head.header("content-length"), Some(get.body.len().to_string()));
    let with_query = client.send("GET /healthz?x=1 HTTP/1.1\r\nHost: h\r\n\r\n").response();
    assert_eq!(with_query.status, 200);
    let posted = client.send(post("").replace("/eth", "/healthz")).response();
    posted.assert_fault(405, "null", -32600);
    assert_eq!(posted.header("allow").as_deref(), Some("GET, HEAD"));
    client.send(post("")).response().assert_result("1", "1");
}

#[test]
fn a_head_request_is_never_answered_with_a_body() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    let mut client = gateway.connect();
    for (path, status) in [("/eth", 405), ("/nowhere", 404)] {
        let head = client.send(format!("HEAD {path} HTTP/1.1\r\nHost: h\r\n\r\n")).head_response();
        assert_eq!(head.status, status);
        // A body here would be read as the start of the next answer.
        client.send(post("")).response().assert_result("1", "1");
    }
}

#[test]
fn connections_are_kept_as_their_version_says() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    for (version, field, kept, said) in [
        ("HTTP/1.1", "", true, None),
        ("HTTP/1.1", "Connection: keep-alive\r\n", true, None),
        ("HTTP/1.1", "Connection: close\r\n", false, Some("close")),
        ("HTTP/1.1", "Connection: X-Foo, Close\r\n", false, Some("close")),
        ("HTTP/1.0", "", false, Some("close")),
        ("HTTP/1.0", "Connection: keep-alive\r\n", true, Some("keep-alive")),
        ("HTTP/1.0", "Connection: close\r\n", false, Some("close")),
    ] {
        let mut client = gateway.connect();
        let text = post(field).replace("HTTP/1.1", version);
        let answer = client.send(&text).response();
        answer.assert_result("1", "1");
        assert_eq!(answer.header("connection").as_deref(), said, "{version} {field:?}");
        if kept {
            client.send(&text).response().assert_result("1", "1");
        } else {
            client.closed();
        }
    }
    // An HTTP/1.0 request needs no Host.
    let mut client = gateway.connect();
    let answer = client.send(post("").replace("HTTP/1.1", "HTTP/1.0").replace("Host: h\r\n", "")).response();
    answer.assert_result("1", "1");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let gate = Gate::default();
    let held = gate.clone();
    let node = Upstream::start(move |seen| {
        let reply = Reply::result(seen, &seen.id());
        if seen.holds("slow") { Reply::after(&held, reply) } else { reply }
    });
    let gateway = Setup::of(&[&node]).start();
    let mut client = gateway.connect();
    let one = |id: usize, params: &str| {
        let body = call_body(&id.to_string(), "eth_call", params);
        format!("{}{body}", request("/eth", &[], body.len()))
    };
    let mut text = one(0, "[\"slow\"]");
    text += "GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n";
    text += &one(2, "[]");
    text += "POST /nowhere HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc";
    text += &one(4, "[\"slow\"]");
    (5..40).for_each(|id| text += &one(id, "[]"));
    client.send(text);
    node.wait_for(1);
    assert!(client.is_quiet());
    gate.open();
    client.response().assert_result("0", "0");
    assert_eq!(client.response().json()["status"], "ok");
    client.response().assert_result("2", "2");
    client.response().assert_fault(404, "null", -32600);
    (4..40).for_each(|id| client.response().assert_result(&id.to_string(), &id.to_string()));
    assert!(client.is_quiet());
}

#[test]
fn continue_is_said_once_and_only_if_the_body_is_wanted() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    let expect = "Expect: 100-continue\r\n";
    let text = post(expect);
    let (head, body) = text.split_at(text.len() - BODY.len());
    let mut client = gateway.connect();
    assert_eq!(client.send(head).response().status, 100);
    client.send(body).response().assert_result("1", "1");
    let chunked = format!("POST /eth HTTP/1.1\r\nHost: h\r\n{expect}Transfer-Encoding: chunked\r\n\r\n");
    assert_eq!(client.send(chunked).response().status, 100);
    client.send(format!("{:x}\r\n{BODY}\r\n0\r\n\r\n", BODY.len())).response().assert_result("1", "1");
    // Whoever sends it all at once needs no invitation.
    client.send(&text).response().assert_result("1", "1");
    // HTTP/1.0 knows no interim answers.
    client.send(text.replace("HTTP/1.1", "HTTP/1.0")).response().assert_result("1", "1");
    let mut unwanted = gateway.connect();
    unwanted.send(head.replace("/eth", "/nowhere")).response().assert_fault(404, "null", -32600);
    unwanted.closed();
    assert_eq!(node.count(), 4);
}

#[test]
fn hosts_choose_between_gateways_on_one_path() {
    let nodes = ["\"any\"", "\"one\"", "\"v6\""].map(Upstream::answering);
    let more = |id: &str, host: &str, target: &str| {
        format!(
            "[[gateway]]\nid = \"{id}\"\npath = \"/eth\"\nhosts = [\"{host}\"]\nchain = \"ethereum\"\nnetwork = \"mainnet\"\n\
             [[gateway.route]]\nid = \"default\"\ntargets = [\"{target}\"]\n"
        )
    };
    let gateway = Setup::of(&[&nodes[0], &nodes[1], &nodes[2]])
        .targets("[\"a\"]")
        .raw(&more("one", "rpc.example.com", "b"))
        .raw(&more("v6", "[::1]", "c"))
        .start();
    let mut client = gateway.connect();
    for (host, result) in [
        ("rpc.example.com", "\"one\""),
        ("RPC.Example.COM:8545", "\"one\""),
        ("rpc.example.com.evil", "\"any\""),
        ("xrpc.example.com", "\"any\""),
        ("[::1]:8545", "\"v6\""),
        ("127.0.0.1", "\"any\""),
    ] {
        client.send(post("").replace("Host: h", &format!("Host: {host}"))).response().assert_result("1", result);
    }
    // The authority of an absolute target stands above `Host`.
    let absolute = post("").replace("/eth ", "http://rpc.example.com/eth ");
    client.send(absolute).response().assert_result("1", "\"one\"");
}

#[test]
fn of_the_clients_headers_only_traceparent_crosses() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).endpoint(0, "headers = { X-Own = \"own value\" }").start();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let expected = |trace: &str| {
        format!(
            "POST / HTTP/1.1\r\nHost: {}\r\nUser-Agent: ringway/{}\r\nAccept: application/json\r\n\
             Accept-Encoding: identity\r\nContent-Type: application/json\r\nX-Own: own value\r\n\
             Content-Length: {}\r\n{trace}\r\n",
            node.address,
            env!("CARGO_PKG_VERSION"),
            BODY.len()
        )
    };
    let mut client = gateway.connect();
    let fields = "Accept-Encoding: gzip, br\r\nConnection: keep-alive, X-Foo\r\nX-Foo: 1\r\nCookie: a=b\r\n\
                  Authorization: Bearer client\r\nX-Api-Key: client\r\nX-Own: client\r\nUser-Agent: curl\r\n\
                  X-Forwarded-For: 1.2.3.4\r\nTE: trailers\r\nUpgrade: h2c\r\nForwarded: for=1\r\nVia: 1.1 x\r\n\
                  Accept: text/html\r\nKeep-Alive: timeout=5\r\nX-Request-Id: abc\r\ntracestate: a=b\r\n";
    client.send(post(fields)).response().assert_result("1", "1");
    assert_eq!(node.seen()[0].head, expected(""));
    client.send(post(&format!("Traceparent: {trace}\r\n{fields}"))).response().assert_result("1", "1");
    assert_eq!(node.seen()[1].head, expected(&format!("traceparent: {trace}\r\n")));
    // One that is malformed, or comes twice, could be anything.
    for odd in [&trace[1..], "x", &format!("{trace}\r\ntraceparent: {trace}")] {
        client.send(post(&format!("traceparent: {odd}\r\n"))).response().assert_result("1", "1");
        assert_eq!(node.seen().pop().unwrap().head, expected(""), "{odd}");
    }
}

#[test]
fn the_endpoints_own_user_agent_replaces_ours() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).endpoint(0, "headers = { user-agent = \"mine/1\" }").start();
    gateway.call("eth_call", "[]").assert_result("1", "1");
    assert_eq!(node.only().header("user-agent").as_deref(), Some("mine/1"));
}
