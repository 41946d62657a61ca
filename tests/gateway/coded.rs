//! Bodies in a content coding, both ways: inflated under the request's limit, compressed for who takes it.

use super::harness::{Reply, Setup, Upstream, call_body};
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use std::io::Write;

/// A body in gzip.
pub fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

/// A body in deflate, as RFC 9110 means it.
pub fn zlib(body: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

/// A body in deflate, as some senders do: without zlib's frame.
pub fn raw(body: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_coded_request_goes_up_as_it_is_meant() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    let params = format!("[\"{}\"]", "0x61 ".repeat(20_000));
    let body = call_body("7", "eth_call", &params);
    let mut client = gateway.connect();
    for (coding, bytes) in [
        ("gzip", gzip(body.as_bytes())),
        ("GZIP", gzip(body.as_bytes())),
        ("x-gzip", gzip(body.as_bytes())),
        ("deflate", zlib(body.as_bytes())),
        ("deflate", raw(body.as_bytes())),
        ("identity, gzip", gzip(body.as_bytes())),
    ] {
        client.post("/eth", &[&format!("Content-Encoding: {coding}")], &bytes);
        client.response().assert_result("7", "1");
    }
    for seen in node.seen() {
        assert!(seen.holds(&params));
        assert_eq!(seen.header("content-encoding"), None);
        assert_eq!(seen.header("content-length").unwrap(), body.len().to_string());
    }
    assert_eq!((node.count(), node.connections()), (6, 1));
    // A batch, in chunks that cut the coding anywhere.
    let bytes = gzip(format!("[{body},{body}]").as_bytes());
    let mut request =
        b"POST /eth HTTP/1.1\r\nHost: h\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in bytes.chunks(7) {
        request.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        request.extend_from_slice(chunk);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"0\r\n\r\n");
    client.send(&request);
    assert_eq!(client.response().json().as_array().unwrap().len(), 2);
    client.ask(call_body("8", "eth_call", "[]")).assert_result("8", "1");
}

#[test]
fn a_bomb_is_413_and_a_broken_body_400_and_neither_goes_up() {
    let node = Upstream::answering("1");
    let gateway = Setup::of(&[&node]).start();
    let bomb = gzip(&vec![b' '; 512 << 20]);
    assert!(bomb.len() < 1 << 20, "{}", bomb.len());
    let good = gzip(call_body("1", "eth_call", "[]").as_bytes());
    let mut cut = good.clone();
    cut.truncate(good.len() - 3);
    let behind = [&good[..], b"{}"].concat();
    for (coding, body, status) in [
        ("gzip", &bomb, 413),
        ("gzip", &cut, 400),
        ("gzip", &behind, 400),
        ("deflate", &good, 400),
        ("br", &good, 415),
        ("gzip, gzip", &good, 415),
    ] {
        let mut client = gateway.connect();
        client.post("/eth", &[&format!("Content-Encoding: {coding}")], body);
        client.response().assert_fault(status, "null", -32600);
    }
    assert_eq!(node.count(), 0);
    assert!(resident_kib(gateway.pid()) < 100 << 10, "{} KiB", resident_kib(gateway.pid()));
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn large_answers_are_compressed_for_those_who_take_it() {
    let large = format!("\"{}\"", "deadbeef".repeat(50_000));
    let whole = large.clone();
    let node = Upstream::start(move |seen| match seen.holds("small") {
        true => Reply::result(seen, "1"),
        false => Reply::result(seen, &large),
    });
    let gateway = Setup::of(&[&node]).server("compression = true").start();
    let mut client = gateway.connect();
    let mut ask = |fields: &[&str], body: &str| {
        client.post("/eth", fields, body);
        client.response()
    };
    let call = call_body("\"x\"", "eth_call", "[]");
    for accepted in ["gzip", "br, gzip;q=0.5", "*"] {
        let answer = ask(&[&format!("Accept-Encoding: {accepted}")], &call);
        answer.assert_result("\"x\"", &whole);
        assert_eq!(answer.header("content-encoding").as_deref(), Some("gzip"), "{accepted}");
        assert_eq!(answer.header("vary").as_deref(), Some("Accept-Encoding"));
        assert!(answer.header("content-length").unwrap().parse::<usize>().unwrap() < whole.len() / 10);
    }
    let batch = ask(&["Accept-Encoding: gzip"], &format!("[{call},{call}]"));
    assert_eq!(batch.header("content-encoding").as_deref(), Some("gzip"));
    assert_eq!(batch.json()[1]["result"].as_str().unwrap().len(), whole.len() - 2);
    for refused in ["Accept-Encoding: identity", "Accept-Encoding: gzip;q=0", "X-Nothing: 1"] {
        let answer = ask(&[refused], &call);
        answer.assert_result("\"x\"", &whole);
        assert_eq!(
            (answer.header("content-encoding"), answer.header("vary").as_deref()),
            (None, Some("Accept-Encoding"))
        );
    }
    let small = ask(&["Accept-Encoding: gzip"], &call_body("1", "eth_call", "[\"small\"]"));
    small.assert_result("1", "1");
    assert_eq!(small.header("content-encoding"), None, "what is small goes out as it is");
    for seen in node.seen() {
        assert_eq!(seen.header("accept-encoding").as_deref(), Some("identity"));
    }

    let off = Setup::of(&[&node]).start();
    let mut client = off.connect();
    client.post("/eth", &["Accept-Encoding: gzip"], &call);
    let answer = client.response();
    assert_eq!((answer.header("content-encoding"), answer.header("vary")), (None, None));
}
