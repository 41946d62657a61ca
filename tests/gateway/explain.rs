//! Who asks how a Call was decided is told, if it may; and every answer has a request id.

use super::harness::{ClosedPort, Setup, Upstream, call_body};

#[test]
fn the_trail_of_a_call_is_told_on_request() {
    let (closed, b) = (ClosedPort::new(), Upstream::answering("2"));
    let gateway = Setup::at(&[closed.address, b.address]).start();
    let mut client = gateway.connect();
    client.post("/eth", &["Ringway-Explain: 1"], call_body("1", "eth_call", "[]"));
    let answer = client.response();
    answer.assert_result("1", "2");
    let header = |name: &str| answer.header(name).unwrap_or_else(|| panic!("no {name} in {answer:?}"));
    assert_eq!(header("Ringway-Route"), "default");
    assert_eq!(header("Ringway-Endpoint"), "b");
    assert_eq!(header("Ringway-Attempts"), "2");
    assert_eq!(header("Ringway-Source"), "upstream");
    let trail = header("Ringway-Trail");
    assert!(trail.starts_with("a connect_failed not_sent ") && trail.contains(", b ok final "), "{trail}");
    client.post("/eth", &[], call_body("1", "eth_call", "[]"));
    let answer = client.response();
    assert!(answer.header("Ringway-Trail").is_none(), "not asked, not told: {answer:?}");
}

#[test]
fn a_gateway_made_error_is_explained_without_a_source() {
    let node = Upstream::start(|_| super::harness::Reply::close());
    let gateway = Setup::of(&[&node]).start();
    let mut client = gateway.connect();
    client.post("/eth", &["Ringway-Explain: 1"], call_body("1", "eth_sendTransaction", "[]"));
    let answer = client.response();
    assert_eq!(answer.code(), -32054);
    assert_eq!(answer.header("Ringway-Source"), None);
    assert!(answer.header("Ringway-Trail").unwrap().starts_with("a connection_lost ambiguous "), "{answer:?}");
    client.post("/eth", &["Ringway-Explain: 1"], call_body("1", "admin_peers", "[]"));
    let answer = client.response();
    assert_eq!((answer.header("Ringway-Route"), answer.header("Ringway-Attempts").as_deref()), (None, Some("0")));
}

#[test]
fn explain_off_tells_nobody() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).server("explain = \"off\"").start();
    let mut client = gateway.connect();
    client.post("/eth", &["Ringway-Explain: 1"], call_body("1", "eth_call", "[]"));
    let answer = client.response();
    assert!(
        ["Route", "Endpoint", "Attempts", "Trail", "Source"]
            .iter()
            .all(|name| answer.header(&format!("Ringway-{name}")).is_none())
    );
}

#[test]
fn a_request_id_is_echoed_or_made_and_does_not_go_up() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    let mut client = gateway.connect();
    client.post("/eth", &["X-Request-Id: trace-7/a"], call_body("1", "eth_call", "[]"));
    assert_eq!(client.response().header("X-Request-Id").as_deref(), Some("trace-7/a"));
    let mut made = Vec::new();
    for body in [call_body("1", "eth_call", "[]"), "nonsense".into(), "[]".into()] {
        client.post("/eth", &[], body);
        made.push(client.response().header("X-Request-Id").unwrap());
    }
    client.send("GET /nowhere HTTP/1.1\r\nHost: h\r\n\r\n");
    made.push(client.response().header("X-Request-Id").unwrap());
    assert!(made.iter().all(|id| id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit())), "{made:?}");
    made.sort();
    made.dedup();
    assert_eq!(made.len(), 4, "each has its own");
    assert!(node.seen().iter().all(|seen| seen.header("X-Request-Id").is_none()));
}

#[test]
fn behind_a_proxy_the_caller_and_not_the_proxy_must_be_trusted() {
    let node = Upstream::answering("1");
    let told = |server: &str, field: &str| {
        let gateway = Setup::of(&[&node]).server(server).start();
        let mut client = gateway.connect();
        client.post("/eth", &["Ringway-Explain: 1", field], call_body("1", "eth_call", "[]"));
        client.response().header("Ringway-Trail").is_some()
    };
    let behind = "trusted_proxies = [\"127.0.0.0/8\", \"10.0.0.0/8\"]";
    assert!(!told(behind, "X-Forwarded-For: 203.0.113.7"));
    assert!(!told(behind, "X-Forwarded-For: 127.0.0.1, 203.0.113.7"), "what a caller wrote itself");
    assert!(!told(behind, "X-Forwarded-For: 203.0.113.7, 10.0.0.3"));
    assert!(!told(behind, "X-Forwarded-For: [2001:db8::1]:1234"));
    assert!(told(behind, "X-Forwarded-For: 127.0.0.9"));
    for junk in ["unknown", "", "198.51.100.1, unix:", "10.1.1.1, junk"] {
        assert!(!told(behind, &format!("X-Forwarded-For: {junk}")), "{junk}");
    }
    assert!(told(behind, "X-Nothing: 1"));
    let listed = format!("{behind}\nexplain_from = [\"203.0.113.0/24\"]");
    assert!(told(&listed, "X-Forwarded-For: 198.51.100.1, 203.0.113.7:4711"));
    assert!(!told(&listed, "X-Forwarded-For: 203.0.113.7, 198.51.100.1"));
    assert!(told("trusted_proxies = []", "X-Forwarded-For: 203.0.113.7"), "nobody is asked to believe it");
}
