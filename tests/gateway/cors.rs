//! Pages of other sites: who may read answers, and what they may send.

use super::harness::{Setup, Upstream, call_body};

const APP: &str = "https://app.example";

fn preflight(path: &str, origin: &str, more: &str) -> String {
    format!(
        "OPTIONS {path} HTTP/1.1\r\nHost: h\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: POST\r\n{more}\r\n"
    )
}

#[test]
fn a_page_asks_first_and_is_told_what_it_may_send() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).gateway("cors = { origins = [\"https://app.example\"] }").start();
    let mut client = gateway.connect();
    client.send(preflight("/eth", APP, "Access-Control-Request-Headers: content-type,solana-client\r\n"));
    let answer = client.response();
    let header = |name: &str| answer.header(name).unwrap_or_else(|| panic!("no {name}: {answer:?}"));
    assert_eq!((answer.status, answer.body.as_str()), (204, ""));
    assert_eq!(header("access-control-allow-origin"), APP);
    assert!(header("access-control-allow-methods").contains("POST"));
    assert_eq!(header("access-control-allow-headers"), "content-type,solana-client");
    assert_eq!(header("access-control-max-age"), "7200");
    assert!(answer.head.contains("Vary: Origin\r\n"));
    assert_eq!(answer.header("access-control-allow-credentials"), None);
    // Another page is told nothing that would let it in.
    client.send(preflight("/eth", "https://evil.example", ""));
    let answer = client.response();
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (204, None));
    assert_eq!(answer.header("access-control-allow-methods"), None);
    client.send("OPTIONS /eth HTTP/1.1\r\nHost: h\r\n\r\n");
    let answer = client.response();
    assert_eq!((answer.status, answer.header("allow").as_deref()), (204, Some("OPTIONS, POST")));
    client.send(preflight("/nowhere", APP, ""));
    assert_eq!(client.response().status, 404);
    assert_eq!(node.count(), 0);
}

#[test]
fn every_answer_to_an_allowed_page_can_be_read_by_it() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node])
        .server("max_request_bytes = \"1KiB\"\nheader_timeout = \"100ms\"\nbody_timeout = \"100ms\"")
        .gateway("cors = { origins = [\"https://app.example\", \"http://localhost:3000\"] }")
        .start();
    let json = "Content-Type: application/json\r\n";
    let whole = |verb: &str, fields: &str, body: &str| {
        format!(
            "{verb} /eth HTTP/1.1\r\nHost: h\r\nOrigin: {APP}\r\n{fields}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let call = call_body("1", "eth_call", "[]");
    for (request, status) in [
        (whole("POST", json, &call), 200),
        (whole("POST", json, &format!("[{call}]")), 200),
        (whole("POST", json, "{"), 200),
        (whole("POST", json, &call_body("1", "admin_peers", "[]")), 200),
        (whole("POST", json, &call.replace("\"id\":1,", "")), 204),
        (whole("POST", "", &call), 415),
        (whole("POST", "Content-Type: text/plain\r\n", &call), 415),
        (whole("POST", &format!("{json}Content-Encoding: br\r\n"), &call), 415),
        (whole("GET", "", ""), 405),
        (whole("POST", json, &" ".repeat(2_000)), 413),
        (
            format!("POST /eth HTTP/1.1\r\nHost: h\r\nOrigin: {APP}\r\n{json}Transfer-Encoding: chunked\r\n\r\nx\r\n"),
            400,
        ),
        // What is wrong with a head does not keep the page from learning it.
        (whole("POST", "Content-Length: 3\r\n", &call), 400),
        (whole("POST", "X y: z\r\n", &call), 400),
        (whole("POST", "Expect: a-miracle\r\n", &call), 417),
        (whole("POST", "", &call).replace("HTTP/1.1", "HTTP/7.0"), 505),
        (whole("POST", &format!("X: {}\r\n", "y".repeat(20_000)), &call), 431),
        (whole("POST", &"X: y\r\n".repeat(200), &call), 431),
        (format!("POST /eth HTTP/1.1\r\nOrigin: {APP}\r\nHos"), 408),
        (format!("POST /eth HTTP/1.1\r\nHost: h\r\nOrigin: {APP}\r\n{json}Content-Length: 9\r\n\r\n{{"), 408),
    ] {
        let mut client = gateway.connect();
        client.send(&request);
        let answer = client.response();
        assert_eq!(answer.status, status, "{request}");
        assert_eq!(answer.header("access-control-allow-origin").as_deref(), Some(APP), "{request}: {answer:?}");
        assert_eq!(answer.header("access-control-expose-headers").as_deref(), Some("Retry-After, X-Request-Id"));
        assert_eq!(answer.header("vary").as_deref(), Some("Origin"), "{answer:?}");
        // The same from a page that is not listed: answered, and unreadable for it.
        let mut client = gateway.connect();
        client.send(request.replace(APP, "https://evil.example"));
        let answer = client.response();
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (status, None));
    }
    let mut client = gateway.connect();
    client.post("/eth", &[], &call);
    assert_eq!(client.response().header("access-control-allow-origin"), None, "no page asks");
    // Where no Gateway is, nobody has allowed anything.
    for request in [whole("POST", json, &call), whole("POST", "X y: z\r\n", &call)] {
        let mut client = gateway.connect();
        client.send(request.replace("/eth", "/nowhere"));
        assert_eq!(client.response().header("access-control-allow-origin"), None);
    }
}

#[test]
fn every_page_may_where_all_may_and_none_where_nothing_is_said() {
    let node = Upstream::answering("1");
    let any = Setup::of(&[&node]).gateway("cors = { origins = [\"*\"] }").start();
    let mut client = any.connect();
    client.post("/eth", &["Origin: https://any.example"], call_body("1", "eth_call", "[]"));
    let answer = client.response();
    answer.assert_result("1", "1");
    assert_eq!(answer.header("access-control-allow-origin").as_deref(), Some("*"));
    let none = Setup::of(&[&node]).start();
    let mut client = none.connect();
    client.post("/eth", &[&format!("Origin: {APP}")], call_body("1", "eth_call", "[]"));
    let answer = client.response();
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, None));
    client.send(preflight("/eth", APP, ""));
    let answer = client.response();
    assert_eq!((answer.status, answer.header("allow").as_deref()), (405, Some("POST")));
}

#[test]
fn pages_reach_the_http_api_of_tron_too() {
    let node = Upstream::start(|_| super::harness::Reply::json(200, "{}"));
    let gateway = Setup::of(&[&node]).tron().gateway("cors = { origins = [\"https://app.example\"] }").start();
    let mut client = gateway.connect();
    client.send(preflight("/tron/wallet/getnowblock", APP, "Access-Control-Request-Headers: tron-pro-api-key\r\n"));
    let answer = client.response();
    assert_eq!(answer.header("access-control-allow-methods").as_deref(), Some("GET, OPTIONS, POST"));
    assert_eq!(answer.header("access-control-allow-headers").as_deref(), Some("tron-pro-api-key"));
    client.send(format!("GET /tron/wallet/getnowblock HTTP/1.1\r\nHost: h\r\nOrigin: {APP}\r\n\r\n"));
    let answer = client.response();
    assert_eq!((answer.status, answer.body.as_str()), (200, "{}"));
    assert_eq!(answer.header("access-control-allow-origin").as_deref(), Some(APP));
}
