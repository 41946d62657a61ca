//! Ways in besides a bare port: TLS, client certificates, PROXY headers, sockets in the file system.

use super::harness::{Gateway, Response, Setup, Upstream, call_body, request};
use super::pki::{Authority, Files, Signed, TlsClient};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const READ: &str = "eth_call";

/// One Call over any connection, whose answer ends it.
fn ask(mut stream: impl Read + Write, fields: &[&str]) -> std::io::Result<Response> {
    let body = call_body("1", READ, "[]");
    let head = request("/eth", &[&["Connection: close"], fields].concat(), body.len());
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    Response::read(&mut stream)
}

struct Pki {
    authority: Authority,
    files: Files,
}

impl Pki {
    fn new() -> Pki {
        Pki { authority: Authority::new(), files: Files::new() }
    }

    /// A line for `[server]` that serves this certificate.
    fn server(&self, signed: &Signed, more: &str) -> String {
        let (cert, key) = (self.files.write("cert.pem", &signed.cert), self.files.write("key.pem", &signed.key));
        format!("tls = {{ cert = \"{cert}\", key = \"{key}\"{more} }}")
    }
}

#[test]
fn callers_are_served_over_tls_in_both_versions() {
    let (node, pki) = (Upstream::answering("1"), Pki::new());
    let tls = pki.server(&pki.authority.sign(&["localhost"]), "");
    let gateway = Setup::of(&[&node]).server(&tls).start();
    for versions in [&[&rustls::version::TLS12][..], &[&rustls::version::TLS13]] {
        let client = TlsClient::new(&pki.authority, None, versions);
        let mut stream = client.connect(gateway.listen);
        let large = format!("[\"{}\"]", "x".repeat(200_000));
        for params in ["[]", &large, "[1]"] {
            let body = call_body("9", READ, params);
            stream.write_all(request("/eth", &[], body.len()).as_bytes()).unwrap();
            stream.write_all(body.as_bytes()).unwrap();
            Response::read(&mut stream).unwrap().assert_result("9", "1");
            assert!(node.seen().pop().unwrap().holds(params));
        }
        assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
        let answer = ask(client.connect(gateway.listen), &[]).unwrap();
        answer.assert_result("1", "1");
    }
    // In plain text, from a stranger, or without a word: no answer, and no harm to others.
    assert!(ask(TcpStream::connect(gateway.listen).unwrap(), &[]).is_err());
    let stranger = TlsClient::new(&Authority::new(), None, rustls::ALL_VERSIONS);
    assert!(ask(stranger.connect(gateway.listen), &[]).is_err());
    let metrics = gateway.wait_for_metrics("both failures", |metrics| {
        metrics.sum("ringway_client_tls_handshakes_total", &["outcome=\"failed\""]) == 2
    });
    assert_eq!(metrics.sum("ringway_client_tls_handshakes_total", &["outcome=\"full\""]), 2);
}

#[test]
fn a_large_answer_comes_whole_over_tls() {
    let result: &'static str = Box::leak(format!("\"{}\"", "y".repeat(5_000_000)).into_boxed_str());
    let (node, pki) = (Upstream::answering(result), Pki::new());
    let gateway = Setup::of(&[&node]).server(&pki.server(&pki.authority.sign(&["localhost"]), "")).start();
    let client = TlsClient::new(&pki.authority, None, rustls::ALL_VERSIONS);
    ask(client.connect(gateway.listen), &[]).unwrap().assert_result("1", result);
}

#[test]
fn any_shard_takes_up_the_session_of_another_also_after_a_reload() {
    let (node, pki) = (Upstream::answering("1"), Pki::new());
    let tls = pki.server(&pki.authority.sign(&["localhost"]), "");
    let setup = || Setup::of(&[&node]).shards(4).server(&tls);
    let gateway = setup().start();
    for versions in [&[&rustls::version::TLS12][..], &[&rustls::version::TLS13]] {
        let client = TlsClient::new(&pki.authority, None, versions);
        for turn in 0..24 {
            if turn == 12 {
                // Another certificate, which who comes back is not asked to look at.
                pki.server(&pki.authority.sign(&["localhost"]), "");
                assert!(gateway.reload(&setup()));
            }
            let mut stream = client.connect(gateway.listen);
            let body = call_body("1", READ, "[]");
            write!(stream, "{}{body}", request("/eth", &[], body.len())).unwrap();
            Response::read(&mut stream).unwrap().assert_result("1", "1");
            let resumed = stream.conn.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
            assert_eq!(resumed, turn > 0, "{turn}");
        }
    }
}

#[test]
fn a_reload_serves_the_new_certificate_and_a_broken_one_changes_nothing() {
    let (node, pki, other) = (Upstream::answering("1"), Pki::new(), Authority::new());
    let tls = pki.server(&pki.authority.sign(&["localhost"]), "");
    let setup = || Setup::of(&[&node]).shards(1).server(&tls);
    let gateway = setup().start();
    let fresh = |authority: &Authority| {
        let client = TlsClient::new(authority, None, rustls::ALL_VERSIONS);
        ask(client.connect(gateway.listen), &[])
    };
    fresh(&pki.authority).unwrap().assert_result("1", "1");
    pki.files.write("cert.pem", "no certificate at all");
    assert!(!gateway.reload(&setup()));
    assert!(gateway.log().contains("server.tls.cert"), "{}", gateway.log());
    fresh(&pki.authority).unwrap().assert_result("1", "1");
    pki.server(&other.sign(&["localhost"]), "");
    assert!(gateway.reload(&setup()));
    let until = Instant::now() + super::harness::PATIENCE;
    while fresh(&other).is_err() {
        assert!(Instant::now() < until);
    }
    while fresh(&pki.authority).is_ok() {
        assert!(Instant::now() < until);
    }
    // And off again.
    assert!(gateway.reload(&Setup::of(&[&node]).shards(1)));
    while ask(TcpStream::connect(gateway.listen).unwrap(), &[]).is_err() {
        assert!(Instant::now() < until);
    }
}

#[test]
fn without_a_certificate_of_the_right_authority_nobody_calls() {
    let (node, pki, clients, others) = (Upstream::answering("1"), Pki::new(), Authority::new(), Authority::new());
    let ca = |authority: &Authority| pki.files.write("clients.pem", &authority.pem());
    let tls = pki.server(&pki.authority.sign(&["localhost"]), &format!(", client_ca = \"{}\"", ca(&clients)));
    // One shard: whoever it lets in by the new rules shows that they hold for all.
    let setup = || Setup::of(&[&node]).shards(1).server(&tls);
    let gateway = setup().start();
    let (right, wrong) = (clients.sign(&["caller"]), others.sign(&["caller"]));
    for versions in [&[&rustls::version::TLS12][..], &[&rustls::version::TLS13]] {
        let of = |own: Option<&Signed>| TlsClient::new(&pki.authority, own, versions);
        let client = of(Some(&right));
        for _ in 0..3 {
            ask(client.connect(gateway.listen), &[]).unwrap().assert_result("1", "1");
        }
        assert!(ask(of(None).connect(gateway.listen), &[]).is_err());
        assert!(ask(of(Some(&wrong)).connect(gateway.listen), &[]).is_err());
    }
    assert_eq!(node.count(), 6);
    // Who was let in before is looked at again, once others decide.
    let client = TlsClient::new(&pki.authority, Some(&right), rustls::ALL_VERSIONS);
    ask(client.connect(gateway.listen), &[]).unwrap().assert_result("1", "1");
    ca(&others);
    assert!(gateway.reload(&setup()));
    let newcomer = TlsClient::new(&pki.authority, Some(&wrong), rustls::ALL_VERSIONS);
    let until = Instant::now() + super::harness::PATIENCE;
    while ask(newcomer.connect(gateway.listen), &[]).is_err() {
        assert!(Instant::now() < until);
    }
    // Each shard takes the new file at its own next tick.
    while ask(client.connect(gateway.listen), &[]).is_ok() {
        assert!(Instant::now() < until, "its ticket is worth nothing");
    }
    for _ in 0..4 {
        assert!(ask(client.connect(gateway.listen), &[]).is_err(), "its ticket is worth nothing");
    }
}

#[test]
fn whoever_says_nothing_is_let_go_of_in_header_timeout() {
    let (node, pki) = (Upstream::answering("1"), Pki::new());
    let tls = pki.server(&pki.authority.sign(&["localhost"]), "");
    let proxy = "proxy_protocol = true\ntrusted_proxies = [\"127.0.0.1\"]\nheader_timeout = \"200ms\"";
    let gateway = Setup::of(&[&node]).server(&tls).server(proxy).start();
    for said in [&b""[..], b"PROXY TCP4 192.0.2.1", b"PROXY UNKNOWN\r\n", b"PROXY UNKNOWN\r\n\x16\x03\x01"] {
        let mut stream = TcpStream::connect(gateway.listen).unwrap();
        stream.set_read_timeout(Some(super::harness::PATIENCE)).unwrap();
        stream.write_all(said).unwrap();
        let begun = Instant::now();
        let _ = stream.read_to_end(&mut Vec::new());
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }
    gateway.wait_for_metrics("all of them gone", |metrics| metrics.sum("ringway_connections", &["client"]) == 0);
}

/// A binary header for a source address.
fn v2(source: [u8; 4]) -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    bytes.extend(source);
    bytes.extend([127, 0, 0, 1, 0, 80, 0, 81]);
    bytes
}

fn tells(gateway: &Gateway, header: &[u8]) -> Option<bool> {
    let mut stream = TcpStream::connect(gateway.listen).unwrap();
    stream.write_all(header).unwrap();
    let answer = ask(stream, &["Ringway-Explain: 1"]).ok()?;
    answer.assert_result("1", "1");
    Some(answer.header("ringway-route").is_some())
}

#[test]
fn a_trusted_proxy_says_who_is_calling() {
    let node = Upstream::answering("1");
    let explain = "explain_from = [\"192.0.2.0/24\"]\nproxy_protocol = true\n";
    let gateway = Setup::of(&[&node]).server(&format!("{explain}trusted_proxies = [\"127.0.0.1\"]")).start();
    for (header, told) in [
        (b"PROXY TCP4 192.0.2.7 127.0.0.1 1 2\r\n".to_vec(), true),
        (b"PROXY TCP4 203.0.113.9 127.0.0.1 1 2\r\n".to_vec(), false),
        (v2([192, 0, 2, 7]), true),
        (v2([203, 0, 113, 9]), false),
        (b"PROXY UNKNOWN\r\n".to_vec(), true),
    ] {
        assert_eq!(tells(&gateway, &header), Some(told), "{}", String::from_utf8_lossy(&header));
    }
    // Without a header, or with half of one, there is no answer: nobody knows whose it would be.
    assert_eq!(tells(&gateway, b""), None);
    assert_eq!(tells(&gateway, b"PROXY TCP4 192.0.2.7\r\n"), None);
    assert_eq!(gateway.metrics().sum("ringway_proxy_header_refused_total", &[]), 2);
    // Who is not trusted writes no header, and one that it writes is no request.
    let gateway = Setup::of(&[&node]).server(&format!("{explain}trusted_proxies = [\"10.0.0.0/8\"]")).start();
    assert_eq!(tells(&gateway, b""), Some(true));
    let mut stream = TcpStream::connect(gateway.listen).unwrap();
    stream.write_all(b"PROXY TCP4 192.0.2.7 127.0.0.1 1 2\r\n").unwrap();
    assert_eq!(ask(stream, &[]).unwrap().status, 400);
}

#[test]
fn a_proxy_header_comes_before_tls() {
    let (node, pki) = (Upstream::answering("1"), Pki::new());
    let tls = pki.server(&pki.authority.sign(&["localhost"]), "");
    let server = "proxy_protocol = true\ntrusted_proxies = [\"127.0.0.1\"]\nexplain_from = [\"192.0.2.0/24\"]";
    let gateway = Setup::of(&[&node]).server(&tls).server(server).start();
    for (header, told) in [(v2([192, 0, 2, 7]), true), (v2([203, 0, 113, 9]), false)] {
        let client = TlsClient::new(&pki.authority, None, rustls::ALL_VERSIONS);
        let answer = ask(client.connect_behind(gateway.listen, &header), &["Ringway-Explain: 1"]).unwrap();
        answer.assert_result("1", "1");
        assert_eq!(answer.header("ringway-route").is_some(), told);
    }
}

#[test]
fn a_socket_in_the_file_system_serves_as_a_port_does() {
    let (node, pki) = (Upstream::answering("1"), Pki::new());
    let path = pki.files.write("gone", "") + ".sock";
    let tls = pki.server(&pki.authority.sign(&["localhost"]), "");
    let setup = |server: &str| {
        let text = Setup::of(&[&node]).server(server).text();
        text.replacen("listen = [\"127.0.0.1:0\"]", &format!("listen = [\"127.0.0.1:0\", \"unix:{path}\"]"), 1)
    };
    let mut gateway = Gateway::start(&setup(&tls));
    for _ in 0..20 {
        // This machine's own callers: trusted, and never TLS.
        let answer = ask(UnixStream::connect(&path).unwrap(), &["Ringway-Explain: 1"]).unwrap();
        answer.assert_result("1", "1");
        assert!(answer.header("ringway-route").is_some());
    }
    let client = TlsClient::new(&pki.authority, None, rustls::ALL_VERSIONS);
    ask(client.connect(gateway.listen), &[]).unwrap().assert_result("1", "1");
    // An answer that is under way when it leaves is delivered, and the file is gone.
    let mut waiting = UnixStream::connect(&path).unwrap();
    waiting.write_all(b"POST /eth HTTP/1.1\r\nHost: x\r\n").unwrap();
    gateway.terminate();
    gateway.wait_for_log("draining");
    let body = call_body("1", READ, "[]");
    write!(waiting, "Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    Response::read(&mut waiting).unwrap().assert_result("1", "1");
    assert!(gateway.wait().success());
    assert!(!std::path::Path::new(&path).exists());
    // What a killed one leaves behind is in nobody's way.
    drop(Gateway::start(&setup("")));
    assert!(std::path::Path::new(&path).exists(), "it was killed");
    let gateway = Gateway::start(&setup(""));
    ask(UnixStream::connect(&path).unwrap(), &[]).unwrap().assert_result("1", "1");
    drop(gateway);
}

#[test]
fn a_caller_over_a_socket_file_that_goes_away_ends_its_query() {
    let gate = super::harness::Gate::default();
    let door = gate.clone();
    let node =
        Upstream::start(move |seen| super::harness::Reply::after(&door, super::harness::Reply::result(seen, "1")));
    let files = Files::new();
    let path = files.write("s", "") + ".sock";
    let text =
        Setup::of(&[&node]).text().replacen("\"127.0.0.1:0\"]", &format!("\"127.0.0.1:0\", \"unix:{path}\"]"), 1);
    let gateway = Gateway::start(&text);
    let mut stream = UnixStream::connect(&path).unwrap();
    let body = call_body("1", READ, "[]");
    write!(stream, "{}{body}", request("/eth", &[], body.len())).unwrap();
    node.wait_for(1);
    drop(stream);
    gateway.wait_for_metrics("the query to be given up", |metrics| metrics.calls("abandoned") == 1);
    gate.open();
}
