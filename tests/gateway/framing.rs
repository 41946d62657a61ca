//! Request framing: what two parsers could read in two ways is refused, and nothing of it reaches an upstream.

use super::harness::{Setup, Upstream, call_body, request};

const START: &str = "POST /eth HTTP/1.1\r\nHost: h\r\n";

/// Requests that must fall with 400 at their head. `BODY` is a whole Call.
const BAD_HEADS: [&str; 39] = [
    "POST /eth HTTP/1.1\r\nHost: h\r\nContent-Length: LEN\r\nTransfer-Encoding: chunked\r\n\r\nBODY",
    "POST /eth HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: LEN\r\n\r\n0\r\n\r\n",
    "POST /eth HTTP/1.1\r\nHost: h\r\nContent-Length: LEN\r\nContent-Length: 0\r\n\r\nBODY",
    "POST /eth HTTP/1.1\r\nHost: h\r\nContent-Length: LEN, 0\r\n\r\nBODY",
    "POST /eth HTTP/1.1\r\nHost: h\r\nContent-Length: +LEN\r\n\r\nBODY",
    "POST /eth HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\nBODY",
    "POST /eth HTTP/1.1\r\nHost: h\r\nContent-Length: 0x1f\r\n\r\nBODY",
    "POST /eth HTTP/1.1\r\nHost: h\r\nContent-Length: 1 1\r\n\r\nBODY",
    "POST /eth HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\nBODY",
    "POST /eth HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999999\r\n\r\nBODY",
    "POST /eth HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "POST /eth HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "POST /eth HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n\r\nBODY",
    "POST /eth HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "POST /eth HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "POST /eth HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "POST /eth HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "POST /eth HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST /eth HTTP/1.1\r\nHost: h\r\nContent-Length : LEN\r\n\r\nBODY",
    "POST /eth HTTP/1.1\r\nHost: h\r\n Content-Length: LEN\r\n\r\nBODY",
    "POST /eth HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\nContent-Length: LEN\r\n\r\nBODY",
    "POST /eth HTTP/1.1\r\nHost: h\r\nX: a\r\n\tb\r\nContent-Length: LEN\r\n\r\nBODY",
    "POST /eth HTTP/1.1\r\nHost: h\nContent-Length: LEN\r\n\r\nBODY",
    "POST /eth HTTP/1.1\nHost: h\r\nContent-Length: LEN\r\n\r\nBODY",
    "POST /eth HTTP/1.1\r\nHost: h\r\nX: a\rContent-Length: LEN\r\n\r\nBODY",
    "POST /eth HTTP/1.1\r\nHost: h\r\nX: a\0b\r\nContent-Length: LEN\r\n\r\nBODY",
    "POST /eth HTTP/1.1\r\nHost: h\r\nX: a\x01b\r\nContent-Length: LEN\r\n\r\nBODY",
    "POST /eth HTTP/1.1\r\nHost: h\r\nX y: a\r\nContent-Length: LEN\r\n\r\nBODY",
    "POST /eth HTTP/1.1\r\nHost: h\r\n: a\r\nContent-Length: LEN\r\n\r\nBODY",
    "POST /eth HTTP/1.1\r\nHost: h\r\nnocolon\r\nContent-Length: LEN\r\n\r\nBODY",
    "POST /eth HTTP/1.1\r\nHost: h\r\nHost: h\r\nContent-Length: LEN\r\n\r\nBODY",
    "POST /eth HTTP/1.1\r\nHost: a b\r\nContent-Length: LEN\r\n\r\nBODY",
    "POST /eth HTTP/1.1\r\nHost: user@h\r\nContent-Length: LEN\r\n\r\nBODY",
    "POST /eth HTTP/1.1\r\nContent-Length: LEN\r\n\r\nBODY",
    "POST  /eth HTTP/1.1\r\nHost: h\r\nContent-Length: LEN\r\n\r\nBODY",
    "POST /eth  HTTP/1.1\r\nHost: h\r\nContent-Length: LEN\r\n\r\nBODY",
    "POST /eth HTTP/1.1 \r\nHost: h\r\nContent-Length: LEN\r\n\r\nBODY",
    "POST eth HTTP/1.1\r\nHost: h\r\nContent-Length: LEN\r\n\r\nBODY",
    "\x16\x03\x01\x02\x00\x01\x00\x01\x7c\x03\x03\r\n\r\n",
];

/// Chunked bodies that must fall with 400. Each begins with a whole Call in a chunk of its own.
const BAD_CHUNKS: [&str; 15] = [
    "zz\r\n",
    "-1\r\n",
    "+1\r\na\r\n",
    "0x1\r\na\r\n",
    " 1\r\na\r\n",
    "1 \x00\r\na\r\n",
    "\r\n",
    "ffffffffffffffffff\r\n",
    "1\r\nab\r\n",
    "1\r\na\n0\r\n\r\n",
    "1\na\r\n0\r\n\r\n",
    "1;x\na\r\n0\r\n\r\n",
    "1\r\na\rX0\r\n\r\n",
    "0\r\nbroken trailer\r\n\r\n",
    "0\r\nX: a\nY: b\r\n\r\n",
];

fn smuggled() -> String {
    let body = call_body("666", "eth_sendTransaction", "[\"smuggled\"]");
    format!("{}{body}", request("/eth", &[], body.len()))
}

#[test]
fn an_ambiguous_head_is_400_and_the_end_of_the_connection() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    let body = call_body("1", "eth_call", "[]");
    for head in BAD_HEADS {
        let text = head.replace("LEN", &body.len().to_string()).replace("BODY", &body);
        let mut client = gateway.connect();
        client.send(text).send(smuggled());
        let answer = client.response();
        answer.assert_fault(400, "null", -32600);
        assert_eq!(answer.header("connection").as_deref(), Some("close"), "{head:?}");
        assert!(!answer.reason().is_empty(), "{head:?}");
        client.closed();
    }
    assert_eq!((node.connections(), node.count()), (0, 0));
    assert_eq!(gateway.metrics().sum("ringway_http_refused_total", &["status=\"400\""]), BAD_HEADS.len() as u64);
}

#[test]
fn an_ambiguous_chunk_is_400_and_nothing_of_the_call_is_sent() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    let body = call_body("1", "eth_call", "[]");
    for chunk in BAD_CHUNKS {
        let mut client = gateway.connect();
        let whole = format!("{:x}\r\n{body}\r\n", body.len());
        client.send(format!("{START}Transfer-Encoding: chunked\r\n\r\n{whole}{chunk}")).send(smuggled());
        let answer = client.response();
        answer.assert_fault(400, "null", -32600);
        assert_eq!(answer.header("connection").as_deref(), Some("close"), "{chunk:?}");
        client.closed();
    }
    assert_eq!((node.connections(), node.count()), (0, 0));
}

#[test]
fn a_chunked_body_may_be_cut_anywhere() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    let body = call_body("1", "eth_call", "[\"a\",\"b\"]");
    let mut client = gateway.connect();
    for at in 1..body.len() {
        let (front, back) = body.split_at(at);
        let text = format!(
            "{START}Transfer-Encoding: Chunked\r\nTrailer: X-Sum\r\n\r\n{:x};name=\"va;lue\\\"\"\r\n{front}\r\n00{:X};b\r\n{back}\r\n0;last\r\nX-Sum: 1\r\nX-Foo: 2\r\n\r\n",
            front.len(),
            back.len()
        );
        // The socket's segments are cut at other places than the chunks.
        let cut = at * 7 % text.len();
        client.send(&text[..cut]).send(&text[cut..]);
        client.response().assert_result("1", "1");
    }
    let seen = node.seen();
    assert_eq!(seen.len(), body.len() - 1);
    for one in seen {
        assert_eq!(one.text(), body);
        assert_eq!(one.header("content-length").unwrap(), body.len().to_string());
        assert!(one.headers("transfer-encoding").is_empty() && one.headers("x-sum").is_empty(), "{}", one.head);
        assert!(one.headers("trailer").is_empty() && one.headers("x-foo").is_empty(), "{}", one.head);
    }
}

#[test]
fn requests_may_come_byte_by_byte() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    let body = call_body("1", "eth_call", "[]");
    let counted = format!("{}{body}", request("/eth", &[], body.len()));
    let chunked = format!("{START}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let mut client = gateway.connect();
    for text in [&counted, &chunked, &counted] {
        for byte in text.bytes() {
            client.send([byte]);
        }
        client.response().assert_result("1", "1");
    }
    assert_eq!(node.count(), 3);
}

#[test]
fn a_request_that_is_cut_short_is_not_served() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    let body = call_body("1", "eth_call", "[]");
    let counted = format!("{}{body}", request("/eth", &[], body.len()));
    let chunked = format!("{START}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for text in [&counted, &chunked] {
        for keep in [10, text.len() - body.len() / 2, text.len() - 1] {
            let mut client = gateway.connect();
            client.send(&text[..keep]).finish();
            client.closed();
        }
    }
    assert_eq!(node.count(), 0);
    // A FIN after a whole request is no cancellation.
    let mut client = gateway.connect();
    client.send(&counted).finish();
    client.response().assert_result("1", "1");
    client.closed();
}
