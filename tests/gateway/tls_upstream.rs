//! Endpoints behind TLS: who is believed, what happens when nobody is, and what a connection is worth.

use super::harness::{Gateway, Reply, Response, Setup, Upstream, call_body};
use super::pki::{Authority, Files, Front, Signed};
use std::net::SocketAddr;

const READ: &str = "eth_call";
const EFFECT: &str = "eth_sendTransaction";

/// An Endpoint at a TLS address, trusting only what is in this file.
fn behind(setup: Setup, at: usize, host: &str, front: SocketAddr, ca: &str) -> Setup {
    setup.endpoint(at, &format!("url = \"https://{host}:{}/s3cret-path\"\ntls = {{ ca = \"{ca}\" }}", front.port()))
}

#[test]
fn an_answer_from_behind_tls_is_delivered() {
    let (node, authority, files) = (Upstream::answering("\"0x1\""), Authority::new(), Files::new());
    let front = Front::start(authority.sign(&["localhost", "127.0.0.1"]).server(None), node.address);
    let ca = files.write("ca.pem", &authority.pem());
    let gateway = behind(Setup::of(&[&node]), 0, "localhost", front.address, &ca).shards(1).start();
    for method in [READ, EFFECT, READ] {
        gateway.call(method, "[]").assert_result("1", "\"0x1\"");
    }
    let seen = node.seen();
    assert_eq!(seen[0].header("host"), Some(format!("localhost:{}", front.address.port())));
    assert!(seen[0].line().contains("/s3cret-path"));
    let shaken = front.shaken();
    assert_eq!((shaken.full, shaken.resumed, shaken.failed), (1, 0, 0), "one connection carries all");
    assert_eq!(shaken.asked, [(Some("localhost".to_owned()), Some(b"http/1.1".to_vec()))]);
}

#[test]
fn answers_of_every_size_and_framing_come_through_to_the_byte() {
    let sizes = [0usize, 1, 100, 16_300, 16_384, 16_385, 70_000, 3_000_000];
    let result = |size: usize| format!("\"{}\"", "x".repeat(size));
    let node = Upstream::start(move |seen| Reply::result(seen, &result(sizes[seen.nth % sizes.len()])));
    let (authority, files) = (Authority::new(), Files::new());
    let front = Front::start(authority.sign(&["127.0.0.1"]).server(None), node.address);
    let ca = files.write("ca.pem", &authority.pem());
    let gateway = behind(Setup::of(&[&node]), 0, "127.0.0.1", front.address, &ca).shards(1).start();
    let mut client = gateway.connect();
    for turn in 0..2 * sizes.len() {
        let params = format!("[\"{}\"]", "y".repeat(sizes[turn % sizes.len()].min(900_000)));
        client.ask(call_body("7", READ, &params)).assert_result("7", &result(sizes[turn % sizes.len()]));
        assert!(node.seen().pop().unwrap().holds(&params));
    }
    assert_eq!(front.shaken().asked.len(), 1, "each left the connection fit for the next");
}

/// Each way in which TLS can't be had: the word for it, and a front or a bare address.
#[test]
fn without_tls_that_is_right_nothing_is_sent_and_another_is_asked() {
    let (first, second) = (Upstream::answering("1"), Upstream::answering("2"));
    let (authority, other, files) = (Authority::new(), Authority::new(), Files::new());
    // What a server of plain HTTP says to a hello that it can't read.
    let plain = Upstream::greeting(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", |_| Reply::close());
    let ca = files.write("ca.pem", &authority.pem());
    let front = |signed: &Signed| Front::start(signed.server(None), first.address).address;
    let cases = [
        ("tls_wrong_name", front(&authority.sign(&["elsewhere.example"]))),
        ("tls_expired", front(&authority.sign_until(&["localhost"], 2021))),
        ("tls_unknown_ca", front(&other.sign(&["localhost"]))),
        ("not_tls", plain.address),
    ];
    for (reason, address) in cases {
        let setup = behind(Setup::of(&[&first, &second]), 0, "localhost", address, &ca).shards(1);
        let gateway = setup.circuit("consecutive_failures = 3").start();
        for method in [READ, EFFECT, "eth_newFilter"] {
            let answer = gateway.post_explained(method);
            answer.assert_result("1", "2");
            let trail = answer.header("ringway-trail").unwrap();
            assert!(trail.starts_with(&format!("a {reason} not_sent ")), "{trail}");
        }
        let metrics = gateway.metrics();
        assert_eq!(metrics.attempts("a", reason), 3, "{reason}");
        gateway.wait_for_log("\"to\":\"open\"");
        gateway.call(READ, "[]").assert_result("1", "2");
        assert_eq!(gateway.metrics().attempts("a", reason), 3, "its Circuit is open");
        let said = format!("{} {}", gateway.log(), gateway.admin_get("/metrics", &[]).body);
        assert!(!said.contains("s3cret"), "{said}");
    }
    // What came to it in plain text was no request.
    assert_eq!((first.count(), plain.count()), (0, 0));
}

#[test]
fn alone_it_is_told_in_the_error() {
    let (node, authority, files) = (Upstream::answering("1"), Authority::new(), Files::new());
    let front = Front::start(authority.sign(&["elsewhere.example"]).server(None), node.address);
    let ca = files.write("ca.pem", &authority.pem());
    let gateway = behind(Setup::of(&[&node]), 0, "localhost", front.address, &ca).start();
    let answer = gateway.call(EFFECT, "[]");
    assert_eq!(answer.status, 502);
    let error = &answer.json()["error"];
    assert_eq!((error["code"].as_i64(), error["data"]["reason"].as_str()), (Some(-32052), Some("tls_wrong_name")));
}

#[test]
fn a_server_that_never_answers_costs_connect_timeout_and_no_more() {
    let (second, files, authority) = (Upstream::answering("2"), Files::new(), Authority::new());
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let ca = files.write("ca.pem", &authority.pem());
    let setup = behind(Setup::of(&[&second, &second]), 0, "localhost", silent.local_addr().unwrap(), &ca);
    let gateway = setup.endpoint(0, "connect_timeout = \"150ms\"").start();
    let begun = std::time::Instant::now();
    gateway.call(EFFECT, "[]").assert_result("1", "2");
    assert!(begun.elapsed() < std::time::Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(gateway.metrics().attempts("a", "connect_timeout"), 1);
}

#[test]
fn the_own_certificate_is_shown_where_it_is_asked_for() {
    let (node, authority, files) = (Upstream::answering("1"), Authority::new(), Files::new());
    let front = Front::start(authority.sign(&["localhost"]).server(Some(&authority)), node.address);
    let own = authority.sign(&["ringway"]);
    let ca = files.write("ca.pem", &authority.pem());
    let (cert, key) = (files.write("c.pem", &own.cert), files.write("k.pem", &own.key));
    let url = format!("url = \"https://localhost:{}\"", front.address.port());
    let with = |tls: &str| Setup::of(&[&node]).endpoint(0, &format!("{url}\ntls = {{ ca = \"{ca}\"{tls} }}")).start();
    let gateway = with(&format!(", cert = \"{cert}\", key = \"{key}\""));
    gateway.call(EFFECT, "[]").assert_result("1", "1");
    // In TLS 1.3 the refusal comes after the request has gone out: nobody knows what became of it.
    let answer = with("").call(EFFECT, "[]");
    assert_eq!(answer.json()["error"]["code"], -32054, "{answer:?}");
    assert_eq!(node.count(), 1);
}

#[test]
fn a_new_connection_takes_the_session_of_an_old_one_up_again() {
    let node = Upstream::start(|seen| Reply::result(seen, "1").then_close());
    let (authority, files) = (Authority::new(), Files::new());
    let front = Front::start(authority.sign(&["localhost"]).server(None), node.address);
    let ca = files.write("ca.pem", &authority.pem());
    let setup = || behind(Setup::of(&[&node]), 0, "localhost", front.address, &ca).shards(1);
    let gateway = setup().start();
    for _ in 0..5 {
        gateway.call(READ, "[]").assert_result("1", "1");
    }
    let shaken = front.shaken();
    assert_eq!((shaken.full, shaken.resumed), (1, 4));
    assert!(gateway.reload(&setup().gateway("blocked_methods = [\"eth_accounts\"]")));
    gateway.call(READ, "[]").assert_result("1", "1");
    assert_eq!(front.shaken().full, 1, "a reload forgets no session");
}

#[test]
fn a_connection_that_its_server_ended_is_not_used_for_effects() {
    let node = Upstream::answering("1");
    let (authority, files) = (Authority::new(), Files::new());
    let front = Front::start(authority.sign(&["localhost"]).server(None), node.address);
    let ca = files.write("ca.pem", &authority.pem());
    let gateway = behind(Setup::of(&[&node]), 0, "localhost", front.address, &ca).shards(1).start();
    gateway.call(READ, "[]").assert_result("1", "1");
    // At once: a relay would pass the end on when it comes to it.
    front.hang_up();
    gateway.call(EFFECT, "[]").assert_result("1", "1");
    assert_eq!(node.count(), 2);
}

impl Gateway {
    /// A Call whose decision is told.
    fn post_explained(&self, method: &str) -> Response {
        let mut client = self.connect();
        client.post("/eth", &["Ringway-Explain: 1"], call_body("1", method, "[]"));
        client.response()
    }
}

#[test]
fn ready_connections_wait_with_their_handshake_done() {
    let (node, authority, files) = (Upstream::answering("1"), Authority::new(), Files::new());
    let front = Front::start(authority.sign(&["localhost"]).server(None), node.address);
    let ca = files.write("ca.pem", &authority.pem());
    let gateway = behind(Setup::of(&[&node]), 0, "localhost", front.address, &ca)
        .endpoint(0, "warm = 2\nidle_timeout = \"60s\"")
        .shards(1)
        .start();
    gateway.wait_for_metrics("two of them", |metrics| metrics.of("ringway_endpoint_connects_total", "a") == 2);
    for _ in 0..5 {
        gateway.call(READ, "[]").assert_result("1", "1");
    }
    let shaken = front.shaken();
    assert_eq!(shaken.full + shaken.resumed, 2, "the tickets that came meanwhile are nothing that was said");
}
