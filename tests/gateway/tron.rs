//! TRON's HTTP API: what goes up and what comes back, byte for byte; what is refused before; how errors are told.

use super::harness::{Client, Gateway, Reply, Response, Seen, Setup, Upstream};

/// An answer with digits that no float holds, odd spacing, an escape, and an order of its own.
const ODD: &str = "{ \"b\":9007199254740993123,\t\"a\" : \"\\u0054\", \"a\":[ 1e999 ] }\n";

fn send(client: &mut Client, verb: &str, target: &str, fields: &[&str], body: &str) -> Response {
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    let length =
        if verb == "GET" && body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    client.send(format!("{verb} {target} HTTP/1.1\r\nHost: gw.test\r\n{fields}{length}\r\n{body}"));
    match verb {
        "HEAD" => client.head_response(),
        _ => client.response(),
    }
}

/// One request over a connection of its own.
pub fn ask(gateway: &Gateway, verb: &str, target: &str, body: &str) -> Response {
    let fields: &[&str] = if body.is_empty() { &[] } else { &["Content-Type: application/json"] };
    send(&mut gateway.connect(), verb, target, fields, body)
}

/// An error that Ringway made, in the API's form.
#[track_caller]
pub fn assert_fault(answer: &Response, status: u16, code: i64) -> serde_json::Value {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.header("content-type").as_deref(), Some("application/json"));
    let json = answer.json();
    assert!(json["Error"].as_str().is_some_and(|words| words.starts_with("ringway: ")), "{answer:?}");
    assert_eq!((&json["code"], &json["data"]["source"]), (&code.into(), &"ringway".into()), "{answer:?}");
    assert!(json["data"]["attempts"].is_u64() && json.get("jsonrpc").is_none() && json.get("error").is_none());
    json["data"].clone()
}

fn odd() -> Upstream {
    Upstream::start(|_| Reply::json(200, ODD))
}

#[test]
fn path_query_body_and_type_go_up_and_the_body_comes_back_unchanged() {
    let node = odd();
    let gateway = Setup::of(&[&node]).tron().start();
    let mut client = gateway.connect();
    let body = "{ \"owner_address\" : \"T\\u0041\",\"visible\":true, \"amount\":9007199254740993123 } ";
    let json = "Content-Type: application/json; charset=UTF-8";
    let form = "Content-Type: application/x-www-form-urlencoded";
    for (verb, target, fields, body, line) in [
        ("POST", "/tron/wallet/createtransaction", &[json][..], body, "POST /wallet/createtransaction HTTP/1.1"),
        (
            "POST",
            "/tron/wallet/getaccount?a=%7B%22&&b==c?d",
            &[json],
            body,
            "POST /wallet/getaccount?a=%7B%22&&b==c?d HTTP/1.1",
        ),
        ("POST", "/tron/wallet/getchainparameters", &[form], "", "POST /wallet/getchainparameters HTTP/1.1"),
        ("POST", "/tron/wallet/getnowblock", &[], "", "POST /wallet/getnowblock HTTP/1.1"),
        ("GET", "/tron/wallet/getnowblock", &[], "", "GET /wallet/getnowblock HTTP/1.1"),
        (
            "GET",
            "/tron/wallet/getaccount?address=T1&visible=true",
            &[],
            "",
            "GET /wallet/getaccount?address=T1&visible=true HTTP/1.1",
        ),
        ("GET", "/tron/net/listnodes?", &[], "", "GET /net/listnodes? HTTP/1.1"),
        ("GET", "/tron/walletsolidity/getnowblock", &[json], "{}", "GET /walletsolidity/getnowblock HTTP/1.1"),
        (
            "GET",
            "/tron/v1/accounts/T1/transactions?limit=2",
            &[],
            "",
            "GET /v1/accounts/T1/transactions?limit=2 HTTP/1.1",
        ),
        ("POST", "/tron/wallet/ofanotheryear", &[form], "x=1&y=%00", "POST /wallet/ofanotheryear HTTP/1.1"),
    ] {
        let answer = send(&mut client, verb, target, fields, body);
        assert_eq!((answer.status, answer.body.as_str()), (200, ODD), "{target}");
        assert_eq!(answer.header("content-type").as_deref(), Some("application/json"));
        let seen = node.seen().pop().expect("it came");
        assert_eq!((seen.line(), seen.text()), (line, body), "{target}");
        let told = fields.first().map(|field| field.split_once(": ").unwrap().1.to_owned());
        assert_eq!(seen.header("content-type"), told, "{target}");
        let length = (verb == "POST" || !body.is_empty()).then(|| body.len().to_string());
        assert_eq!(seen.header("content-length"), length, "{target}");
        assert_eq!(seen.header("host"), Some(node.address.to_string()));
        assert_eq!(seen.header("accept").as_deref(), Some("application/json"));
        assert_eq!(seen.header("accept-encoding").as_deref(), Some("identity"));
    }
}

#[test]
fn only_the_endpoints_own_headers_path_and_query_are_added() {
    let node = odd();
    let url =
        format!("url = \"http://{}/key/?apikey=own\"\nheaders = {{ TRON-PRO-API-KEY = \"own-key\" }}", node.address);
    let gateway = Setup::of(&[&node]).tron().endpoint(0, &url).start();
    let mut client = gateway.connect();
    let trace = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let fields = ["TRON-PRO-API-KEY: callers", "Authorization: Bearer callers", "X-Other: 1", "Cookie: a=b", trace];
    send(&mut client, "GET", "/tron/wallet/getaccount?address=T1", &fields, "");
    send(&mut client, "GET", "/tron/wallet/getaccount", &[], "");
    let seen = node.seen();
    assert_eq!(seen[0].line(), "GET /key/wallet/getaccount?apikey=own&address=T1 HTTP/1.1");
    assert_eq!(seen[1].line(), "GET /key/wallet/getaccount?apikey=own HTTP/1.1");
    assert_eq!(seen[0].header("tron-pro-api-key").as_deref(), Some("own-key"));
    assert_eq!(seen[0].header("traceparent").as_deref(), trace.strip_prefix("traceparent: "));
    for name in ["authorization", "x-other", "cookie", "x-request-id"] {
        assert_eq!(seen[0].headers(name), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn a_chunked_body_goes_up_whole_and_a_pipeline_is_answered_in_order() {
    let node = Upstream::start(|seen| Reply::json(200, &format!("{{\"path\":\"{}\"}}", seen.line())));
    let gateway = Setup::of(&[&node]).tron().start();
    let mut client = gateway.connect();
    let head = "POST /tron/wallet/getaccount HTTP/1.1\r\nHost: h\r\n";
    client.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n3\r\n{{\"a\r\n4;x=y\r\n\":1}}\r\n0\r\nT: 1\r\n\r\n"));
    client.send("GET /tron/wallet/getnowblock HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(client.response().body.contains("getaccount"));
    assert!(client.response().body.contains("getnowblock"));
    let seen = &node.seen()[0];
    assert_eq!((seen.text(), seen.header("content-length").as_deref()), ("{\"a\":1}", Some("7")));
    assert!(seen.headers("transfer-encoding").is_empty());
}

#[test]
fn what_a_path_does_not_serve_is_405_and_what_is_outside_is_404() {
    let node = odd();
    let gateway = Setup::of(&[&node]).tron().start();
    for (verb, path, allow) in [
        ("GET", "/tron/wallet/broadcasttransaction", "POST"),
        ("GET", "/tron/wallet/freezebalancev2", "POST"),
        ("POST", "/tron/monitor/getstatsinfo", "GET"),
        ("POST", "/tron/v1/accounts/T1", "GET"),
        ("PUT", "/tron/wallet/getnowblock", "GET, POST"),
        ("DELETE", "/tron/wallet/ofanotheryear", "GET, POST"),
        ("OPTIONS", "/tron/wallet/getnowblock", "GET, POST"),
    ] {
        let answer = ask(&gateway, verb, path, "");
        assert_fault(&answer, 405, -32600);
        assert_eq!(answer.header("allow").as_deref(), Some(allow), "{verb} {path}");
    }
    let head = ask(&gateway, "HEAD", "/tron/wallet/getnowblock", "");
    assert_eq!((head.status, head.header("allow").as_deref()), (405, Some("GET, POST")));
    for path in ["", "/", "/wallet", "/wallet/", "/admin/x", "/wallet/../net/listnodes", "/wallet//getnowblock"] {
        let answer = ask(&gateway, "POST", &format!("/tron{path}"), "{}");
        assert_fault(&answer, 404, -32600);
        assert!(answer.body.contains("No such path in TRON's HTTP API"), "{answer:?}");
    }
    for path in ["/tronwallet/getnowblock", "/wallet/getnowblock", "/tro", "/"] {
        assert_eq!(ask(&gateway, "POST", path, "{}").status, 404, "{path}");
    }
    assert_eq!(node.count(), 0);
}

#[test]
fn requests_that_can_not_go_up_are_told_in_the_form_of_the_api() {
    let node = odd();
    let gateway = Setup::of(&[&node]).tron().server("max_request_bytes = \"1KiB\"").start();
    let path = "/tron/wallet/getaccount";
    let large = "x".repeat(1_025);
    assert_fault(&ask(&gateway, "POST", path, &large), 413, -32600);
    let fields = |fields: &[&str]| send(&mut gateway.connect(), "POST", path, fields, "{}");
    assert_fault(&fields(&["Content-Encoding: br"]), 415, -32600);
    assert_fault(&fields(&["Content-Encoding: gzip"]), 400, -32600);
    assert_fault(&fields(&["Content-Type: a/b", "Content-Type: c/d"]), 415, -32600);
    assert_fault(&fields(&["Origin: http://x.test"]), 415, -32600);
    assert_eq!(fields(&["Origin: http://x.test", "Content-Type: application/json"]).status, 200);
    assert_eq!(fields(&["Content-Type: text/plain"]).status, 200);
    assert_eq!(node.count(), 2);
    // So is what is wrong with a head, as far as it shows whose it is.
    for (field, status) in [("Content-Length: 3", 400), ("X y: z", 400), ("Expect: x", 417)] {
        let answer = fields(&[field, "Content-Type: application/json", "X-Request-Id: r-9"]);
        assert_fault(&answer, status, -32600);
        assert_eq!(answer.header("x-request-id").as_deref(), Some("r-9"));
    }
    let long = format!("X: {}", "y".repeat(20_000));
    assert_fault(&fields(&[&long]), 431, -32600);
    let mut head = gateway.connect();
    head.send(format!("HEAD {path} HTTP/1.1\r\nHost: h\r\nX y: z\r\n\r\n"));
    assert_eq!(head.head_response().status, 400);
    head.closed();
}

#[test]
fn several_gateways_live_side_by_side() {
    let (tron, eth) = (odd(), Upstream::answering("7"));
    let gateway = Setup::of(&[&tron])
        .tron()
        .another("tron/deep", "[\"a\"]", "")
        .raw(&format!(
            "[[endpoint]]\nid = \"e\"\nchain = \"other\"\nnetwork = \"mainnet\"\nurl = \"http://{}\"\n\
             [[gateway]]\nid = \"other\"\npath = \"/tron/wallet/rpc\"\nchain = \"other\"\nnetwork = \"mainnet\"\n\
             [[gateway.route]]\nid = \"default\"\ntargets = [\"e\"]\n\
             [[gateway]]\nid = \"hosted\"\npath = \"/\"\nhosts = [\"api.test\"]\nchain = \"tron\"\nnetwork = \"mainnet\"\nprotocol = \"tron-http\"\n\
             [[gateway.route]]\nid = \"default\"\ntargets = [\"a\"]\n",
            eth.address
        ));
    // An id holds no slash.
    let text = gateway.text().replace("id = \"tron/deep\"", "id = \"deep\"");
    let gateway = Gateway::start(&text);
    let rpc = super::harness::call_body("1", "eth_call", "[]");
    gateway.post_to("/tron/wallet/rpc", rpc).assert_result("1", "7");
    assert_eq!(ask(&gateway, "GET", "/tron/deep/wallet/getnowblock", "").body, ODD);
    assert_eq!(tron.only().line(), "GET /wallet/getnowblock HTTP/1.1");
    let mut client = gateway.connect();
    client.send("GET /wallet/getnowblock HTTP/1.1\r\nHost: API.test:80\r\n\r\n");
    assert_eq!(client.response().body, ODD);
    client.send("GET /wallet/getnowblock HTTP/1.1\r\nHost: other.test\r\n\r\n");
    let answer = client.response();
    answer.assert_fault(404, "null", -32600);
}

#[test]
fn methods_have_routes_and_lists_by_their_path() {
    let (usual, heavy) = (odd(), Upstream::start(|_| Reply::json(200, "{\"heavy\":true}")));
    let route = |methods: &str| format!("[[gateway.route]]\nid = \"heavy\"\nmethods = [{methods}]\ntargets = [\"b\"]");
    let gateway = Setup::of(&[&usual, &heavy])
        .tron()
        .targets("[\"a\"]")
        .gateway("blocked_methods = [\"/wallet/easytransfer\", \"/monitor/*\", \"/wallet/unlistedbad\"]")
        .raw(&route("\"/wallet/getblock\", \"/wallet/unlisted\", \"/v1/accounts/{address}\""))
        .start();
    for (path, is_heavy) in [
        ("/wallet/getblock", true),
        ("/wallet/unlisted", true),
        ("/v1/accounts/T1", true),
        ("/wallet/getBlock", false),
        ("/wallet/getnowblock", false),
        ("/v1/accounts/T1/transactions", false),
    ] {
        let answer = ask(&gateway, "GET", &format!("/tron{path}"), "");
        assert_eq!((answer.status, answer.body.contains("heavy")), (200, is_heavy), "{path}");
    }
    for path in ["/wallet/easytransfer", "/monitor/getnodeinfo", "/monitor/unheardof", "/wallet/unlistedbad"] {
        let data = assert_fault(&ask(&gateway, "GET", &format!("/tron{path}"), ""), 403, -32601);
        assert_eq!((&data["reason"], &data["attempts"]), (&"blocked".into(), &0.into()), "{path}");
    }
    let metrics = gateway.metrics();
    let count =
        |method: &str| metrics.sum("ringway_calls_total", &["gateway=\"tron\"", &format!("method=\"{method}\"")]);
    assert_eq!((count("/wallet/getblock"), count("/v1/accounts/{address}")), (1, 1));
    assert_eq!((count("/wallet/unlisted"), count("other")), (0, 4), "unlisted paths share one label");
}

#[test]
fn an_answer_with_an_error_of_the_node_is_an_answer() {
    // A Base58 address without `visible`, an unknown object, a refusal, and what is not even an object.
    let bodies = [
        "{\"Error\":\"class org.bouncycastle.util.encoders.DecoderException : exception decoding Hex string\"}",
        "{}",
        "{\"result\":false,\"code\":\"SIGERROR\",\"message\":\"00\"}",
        "{\"code\":\"CONTRACT_VALIDATE_ERROR\",\"message\":\"00\"}",
        "[]",
        "\"x\"",
        "null",
        " {\"a\":\"SERVER_BUSY\",\"result\":{\"code\":\"SERVER_BUSY\"}} ",
        "\u{feff}{}",
    ];
    for body in bodies {
        let (a, b) = (Upstream::start(move |_| Reply::http(200, &["Content-Type: text/plain"], body)), odd());
        let gateway = Setup::of(&[&a, &b]).tron().start();
        let answer = ask(&gateway, "POST", "/tron/wallet/getaccountresource", "{\"address\":\"T1\"}");
        assert_eq!((answer.status, answer.body.as_str()), (200, body));
        assert_eq!(answer.header("content-type").as_deref(), Some("application/json"));
        assert_eq!((a.count(), b.count()), (1, 0), "{body}");
        let metrics = gateway.metrics();
        let refused = body.contains("Error") || body.contains("false") || body.contains("VALIDATE");
        assert_eq!(
            (metrics.calls("ok"), metrics.calls("node_error")),
            (u64::from(!refused), u64::from(refused)),
            "{body}"
        );
        assert_eq!(metrics.attempts("a", "ok"), 1);
    }
}

#[test]
fn the_nodes_400_and_405_go_out_with_their_body() {
    let html = "<html><body><h2>HTTP ERROR 405 HTTP method GET is not supported by this URL</h2></body></html>";
    for (status, kind, body, told) in [
        (405, "Content-Type: text/html;charset=iso-8859-1", html, "text/html;charset=iso-8859-1"),
        (400, "Content-Type: application/json", "{\"Error\":\"x\"}", "application/json"),
        (400, "X-No: type", "no", "text/plain"),
        (405, "Content-Type: text/html", "", "application/json"),
    ] {
        let (a, b) = (Upstream::start(move |_| Reply::http(status, &[kind], body)), odd());
        let gateway = Setup::of(&[&a, &b]).tron().circuit("consecutive_failures = 1").start();
        for _ in 0..2 {
            let answer = ask(&gateway, "GET", "/tron/wallet/getnowblock", "");
            assert_eq!((answer.status, answer.body.as_str()), (status, body));
            assert_eq!(answer.header("content-type").as_deref(), Some(told));
        }
        assert_eq!((a.count(), b.count()), (2, 0));
    }
}

#[test]
fn an_empty_answer_is_right_only_where_the_facts_say_so() {
    let (a, b) = (Upstream::start(|_| Reply::http(200, &[], "")), odd());
    let gateway = Setup::of(&[&a, &b]).tron().no_circuit().start();
    let empty = ask(&gateway, "GET", "/tron/wallet/createtransaction", "");
    assert_eq!((empty.status, empty.body.as_str()), (200, ""));
    assert_eq!((a.count(), b.count()), (1, 0));
    for (verb, path) in [("POST", "/tron/wallet/createtransaction"), ("GET", "/tron/wallet/getnowblock")] {
        assert_eq!(ask(&gateway, verb, path, "").body, ODD, "{verb} {path}");
    }
    assert_eq!((a.count(), b.count()), (3, 2));
    let data = assert_fault(&ask(&gateway, "GET", "/tron/wallet/getnodeinfo", ""), 502, -32054);
    assert_eq!((&data["reason"], &data["attempts"]), (&"invalid_response".into(), &1.into()));
}

#[test]
fn a_lite_node_and_a_busy_one_are_passed_over() {
    for body in [
        "this API is closed because this node is a lite fullnode",
        "{\"Error\":\"class java.lang.IllegalAccessException : lack of computing resources\"}",
    ] {
        let (a, b) = (Upstream::start(move |_| Reply::http(200, &[], body)), odd());
        let gateway = Setup::of(&[&a, &b]).tron().start();
        assert_eq!(ask(&gateway, "GET", "/tron/wallet/getblockbynum?num=1", "").body, ODD);
        assert_eq!((a.count(), b.count()), (1, 1));
    }
}

#[test]
fn a_busy_answer_goes_out_unchanged_if_nothing_better_comes() {
    for code in ["SERVER_BUSY", "NO_CONNECTION", "NOT_ENOUGH_EFFECTIVE_CONNECTION", "BLOCK_UNSOLIDIFIED"] {
        let body = move |seen: &Seen| format!("{{ \"code\":\"{code}\", \"txid\":\"00\",\"message\":\"{}\"}}", seen.nth);
        let busy = || Upstream::start(move |seen| Reply::json(200, &body(seen)));
        let (a, b, good) = (busy(), busy(), Upstream::start(|_| Reply::json(200, "{\"result\":true}")));
        let gateway = Setup::of(&[&a, &b, &good])
            .tron()
            .targets("[\"a\", \"b\"]")
            .circuit("consecutive_failures = 1")
            .another("three", "[\"a\", \"b\", \"c\"]", "")
            .start();
        let answer = ask(&gateway, "POST", "/tron/wallet/broadcasthex", "{\"transaction\":\"00\"}");
        let expected = format!("{{ \"code\":\"{code}\", \"txid\":\"00\",\"message\":\"0\"}}");
        assert_eq!((answer.status, answer.body.as_str()), (200, expected.as_str()));
        assert_eq!((a.count(), b.count()), (1, 1));
        let answer = ask(&gateway, "POST", "/three/wallet/broadcasthex", "{\"transaction\":\"00\"}");
        assert_eq!(answer.body, "{\"result\":true}", "no Circuit opened");
        assert_eq!((a.count(), b.count(), good.count()), (2, 2, 1));
    }
}

#[test]
fn an_answer_over_the_limit_is_502() {
    let large = Upstream::start(|_| Reply::json(200, &format!("\"{}\"", "x".repeat(5_000))));
    let gateway = Setup::of(&[&large]).tron().server("max_response_bytes = \"4KiB\"").start();
    assert_fault(&ask(&gateway, "GET", "/tron/wallet/getnowblock", ""), 502, -32055);
}

#[test]
fn the_decision_is_told_and_the_request_id_echoed() {
    let (a, b) = (Upstream::start(|_| Reply::http(200, &[], "<html>")), odd());
    let gateway = Setup::of(&[&a, &b]).tron().start();
    let mut client = gateway.connect();
    let fields = ["Ringway-Explain: 1", "X-Request-Id: r-7"];
    let answer = send(&mut client, "GET", "/tron/wallet/getnowblock", &fields, "");
    let header = |name: &str| answer.header(name).unwrap_or_else(|| panic!("no {name} in {answer:?}"));
    assert_eq!((header("Ringway-Endpoint").as_str(), header("Ringway-Attempts").as_str()), ("b", "2"));
    assert_eq!((header("Ringway-Source").as_str(), header("X-Request-Id").as_str()), ("upstream", "r-7"));
    assert!(header("Ringway-Trail").starts_with("a invalid_response ambiguous "));
}
