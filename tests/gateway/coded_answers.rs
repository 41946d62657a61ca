//! Answers of Endpoints in a content coding: inflated under the limits, believed only whole, asked for where told to.

use super::coded::{gzip, raw, zlib};
use super::harness::{Reply, Seen, Setup, Upstream, call_body, notification_body, result_body};

const MIB: usize = 1 << 20;

/// A response with this coding and these bytes, and a length.
fn coded(status: u16, coding: &str, body: &[u8]) -> Reply {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} Whatever\r\nContent-Encoding: {coding}\r\nContent-Length: {length}\r\n\r\n");
    Reply::raw([head.as_bytes(), body].concat())
}

/// The first element of `params`: what a test wants of the node.
fn wish(seen: &Seen) -> String {
    seen.json()["params"][0].as_str().unwrap_or_default().to_owned()
}

fn ask(wish: &str, method: &str) -> String {
    call_body("7", method, &format!("[\"{wish}\"]"))
}

/// The most memory that the process ever had, in MiB.
fn peak_mib(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
}

#[test]
fn every_coding_is_read_in_every_framing_whether_asked_for_or_not() {
    let value = format!("\"{}\"", "0x61".repeat(30_000));
    let large = value.clone();
    let node = Upstream::start(move |seen| {
        let body = result_body(seen, &large).into_bytes();
        let (coding, framing) = wish(seen).split_once('/').map(|(c, f)| (c.to_owned(), f.to_owned())).unwrap();
        let packed = match coding.as_str() {
            "gzip" | "x-gzip" | "GZip" | "identity, gzip" => gzip(&body),
            "members" => [gzip(&body[..9]), gzip(b""), gzip(&body[9..])].concat(),
            "zlib" => zlib(&body),
            "raw" => raw(&body),
            _ => body,
        };
        let name = match coding.as_str() {
            "members" => "gzip",
            "zlib" | "raw" => "deflate",
            other => other,
        };
        // As odd as a name and a type may be.
        let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding:{name}\r\ncontent-type: text/plain\r\n");
        let chunk = |part: &[u8]| [format!("{:x};x=y\r\n", part.len()).as_bytes(), part, b"\r\n"].concat();
        match framing.as_str() {
            "length" => {
                Reply::raw([format!("{head}content-length: {}\r\n\r\n", packed.len()).as_bytes(), &packed].concat())
            }
            "chunks" => {
                let chunks = packed.chunks(packed.len() / 50 + 7).map(chunk).collect::<Vec<_>>().concat();
                Reply::raw(
                    [format!("{head}transfer-encoding: Chunked\r\n\r\n").as_bytes(), &chunks, b"0\r\n\r\n"].concat(),
                )
            }
            _ => Reply::raw([format!("{head}\r\n").as_bytes(), &packed].concat()).then_close(),
        }
    });
    let gateway =
        Setup::of(&[&node, &node]).shards(1).endpoint(1, "gzip = true").another("asks", "[\"b\"]", "").start();
    let mut client = gateway.connect();
    let codings = ["gzip", "x-gzip", "GZip", "identity, gzip", "members", "zlib", "raw", "identity"];
    for path in ["/eth", "/asks"] {
        for wish in codings.iter().flat_map(|coding| ["length", "chunks", "close"].map(|way| format!("{coding}/{way}")))
        {
            client.post(path, &[], ask(&wish, "eth_call"));
            client.response().assert_result("7", &value);
        }
    }
    let (before, after) = (node.seen()[..24].to_vec(), node.seen()[24..].to_vec());
    assert!(before.iter().all(|seen| seen.header("accept-encoding").as_deref() == Some("identity")));
    assert!(after.len() == 24 && after.iter().all(|seen| seen.header("accept-encoding").as_deref() == Some("gzip")));
    assert_eq!(node.connections(), 2 * codings.len(), "only those that end with their answer are not used again");
    gateway.wait_for_metrics("all memory to be given back", |now| now.sum("ringway_buffered_bytes", &[]) == 0);
}

#[test]
fn what_can_not_be_read_is_no_answer_and_says_why() {
    let node = Upstream::start(|seen| {
        let good = gzip(result_body(seen, "\"secret\"").as_bytes());
        let mut wrong_sum = good.clone();
        let sum_at = good.len() - 6;
        wrong_sum[sum_at] ^= 1;
        match wish(seen).as_str() {
            "cut" => coded(200, "gzip", &good[..good.len() - 1]),
            "cut early" => coded(200, "gzip", &good[..12]),
            "sum" => coded(200, "gzip", &wrong_sum),
            "behind" => coded(200, "gzip", &[&good[..], b"\n"].concat()),
            "plain" => coded(200, "gzip", result_body(seen, "1").as_bytes()),
            "deflate" => coded(200, "deflate", &good),
            "429" => coded(429, "br", b"\x0b\x02\x80"),
            "400" => coded(400, "br", b"\x0b\x02\x80"),
            "502" => coded(502, "gzip", b"no gzip"),
            coding => coded(200, coding, &good),
        }
    });
    let good = Upstream::answering("2");
    let gateway = Setup::of(&[&node, &good]).shards(1).no_circuit().another("alone", "[\"a\"]", "").start();
    let broken = ["br", "zstd", "compress", "gzip, gzip", "deflate, gzip", "gzip, br", "aes128gcm"];
    for wish in broken.into_iter().chain(["cut", "cut early", "sum", "behind", "plain", "deflate"]) {
        gateway.post(ask(wish, "eth_call")).assert_result("7", "2");
        for (path, method, status, code) in
            [("/alone", "eth_call", 502, -32052), ("/eth", "eth_sendTransaction", 200, -32054)]
        {
            let answer = gateway.post_to(path, ask(wish, method));
            answer.assert_fault(status, "7", code);
            assert_eq!(answer.reason(), "unreadable_coding", "{wish}");
        }
        // A notification's answer is looked at by nobody.
        assert_eq!(gateway.post(notification_body("eth_call", &format!("[\"{wish}\"]"))).status, 204);
    }
    let unreadable = gateway.metrics().attempts("a", "unreadable_coding");
    assert_eq!(unreadable, 3 * 13, "and the notifications are none of them");
    assert_eq!(node.connections(), 1, "the framing was right, and the connection is");
    for (wish, reason) in [("502", "http_status"), ("400", "bad_request"), ("429", "rate_limited")] {
        let answer = gateway.post_to("/alone", ask(wish, "eth_call"));
        answer.assert_fault(502, "7", -32052);
        assert_eq!(answer.reason(), reason, "a status says more than a body");
    }
}

#[test]
fn an_unreadable_answer_is_a_failure_of_its_node() {
    let node = Upstream::start(|_| coded(200, "br", b"\x0b\x02\x80"));
    let gateway = Setup::of(&[&node]).circuit("consecutive_failures = 1").start();
    gateway.post(ask("", "eth_call")).assert_fault(502, "7", -32052);
    gateway.post(ask("", "eth_call")).assert_fault(503, "7", -32051);
}

#[test]
fn bombs_stop_at_the_limit_and_what_just_fits_passes() {
    let spaces = vec![b' '; 128 * MIB];
    let (zlib, raw, small) = (zlib(&spaces), raw(&spaces), gzip(&spaces[..MIB - 1000]));
    let gzipped = gzip(&spaces);
    let node = Upstream::start(move |seen| {
        let frame = result_body(seen, "\"\"").len();
        let sized = |bytes: usize| gzip(result_body(seen, &format!("\"{}\"", "x".repeat(bytes - frame))).as_bytes());
        match wish(seen).as_str() {
            "fits" => coded(200, "gzip", &sized(MIB)),
            "over" => coded(200, "gzip", &sized(MIB + 1)),
            "zlib" => coded(200, "deflate", &zlib),
            "raw" => coded(200, "deflate", &raw),
            // A body may say that it is small, and it may be made of many that are.
            "lies" => coded(200, "gzip", &[&gzipped[..], &gzip(b" ")].concat()),
            "members" => coded(200, "gzip", &small.repeat(100)),
            "empty members" => coded(200, "gzip", &gzip(b"").repeat(50_000)),
            "large before" => coded(200, "gzip", &[b'x'; 2 * MIB]),
            _ => coded(200, "gzip", &gzipped),
        }
    });
    let good = Upstream::answering("2");
    let gateway = Setup::of(&[&node, &good]).shards(1).server("max_response_bytes = \"1MiB\"").start();
    assert_eq!(gateway.post(ask("fits", "eth_call")).status, 200);
    for wish in ["over", "gzip", "zlib", "raw", "lies", "members", "large before"] {
        for method in ["eth_call", "eth_sendTransaction"] {
            let answer = gateway.post(ask(wish, method));
            answer.assert_fault(200, "7", -32055);
            assert_eq!(answer.attempts(), 1, "{wish}: final, for every class");
        }
    }
    assert_eq!(good.count(), 0);
    node.wait_for_open(0);
    gateway.post(ask("empty members", "eth_call")).assert_result("7", "2");
    gateway.post(ask("fits", "eth_call"));
    let peak = peak_mib(gateway.pid());
    assert!(peak < 100, "{peak} MiB");
    gateway.wait_for_metrics("all memory to be given back", |now| now.sum("ringway_buffered_bytes", &[]) == 0);
}

#[test]
fn what_is_inflated_counts_as_memory_too() {
    let value = format!("\"{}\"", "ab".repeat(4 * MIB));
    let node = Upstream::start(move |seen| match wish(seen).as_str() {
        "small" => Reply::result(seen, "1"),
        _ => coded(200, "gzip", &gzip(result_body(seen, &value).as_bytes())),
    });
    let setup = || Setup::of(&[&node]).server("max_buffered_bytes = \"24MiB\"");
    let gateway = setup().server("write_timeout = \"60s\"").start();
    let slow: Vec<_> = (0..8)
        .map(|_| {
            let mut client = gateway.connect();
            client.post("/eth", &[], ask("large", "eth_call"));
            client
        })
        .collect();
    gateway.wait_for_metrics("those that find no room", |now| now.calls("overloaded") >= 4);
    (0..20).for_each(|_| gateway.post(ask("small", "eth_call")).assert_result("7", "1"));
    let held = gateway.metrics().sum("ringway_buffered_bytes", &[]) as usize;
    assert!((8 * MIB..=24 * MIB).contains(&held), "{held}");
    let whole = slow.into_iter().map(|mut client| client.response()).filter(|answer| answer.status == 200).count();
    assert!((1..=4).contains(&whole), "{whole}");
    gateway.wait_for_metrics("all memory to be given back", |now| now.sum("ringway_buffered_bytes", &[]) == 0);
    // One that could never fit is no matter of coming again.
    let gateway = Setup::of(&[&node]).server("max_buffered_bytes = \"4MiB\"").start();
    gateway.post(ask("large", "eth_call")).assert_fault(200, "7", -32055);
}

#[test]
fn answers_of_the_http_api_keep_their_type() {
    let node = Upstream::start(|seen| {
        let (status, body) = if seen.line().contains("getblock ") { (405, "<html>") } else { (200, "{ \"a\":1 }") };
        let body = gzip(body.as_bytes());
        let head = format!("HTTP/1.1 {status} X\r\nContent-Encoding: gzip\r\nContent-Type: text/html; a=b\r\n");
        match seen.line().contains("getaccount ") {
            true => coded(400, "br", b"\x0b\x02\x80"),
            false => Reply::raw([format!("{head}Content-Length: {}\r\n\r\n", body.len()).as_bytes(), &body].concat()),
        }
    });
    let gateway = Setup::of(&[&node]).tron().endpoint(0, "gzip = true").start();
    let ask = |path: &str| super::tron::ask(&gateway, "POST", &format!("/tron/wallet/{path}"), "{}");
    let answer = ask("getnowblock");
    assert_eq!((answer.status, answer.body.as_str()), (200, "{ \"a\":1 }"));
    assert_eq!(answer.header("content-encoding"), None);
    let answer = ask("getblock");
    assert_eq!((answer.status, answer.body.as_str()), (405, "<html>"));
    assert_eq!(answer.header("content-type").as_deref(), Some("text/html; a=b"));
    super::tron::assert_fault(&ask("getaccount"), 502, -32052);
    assert!(node.seen().iter().all(|seen| seen.header("accept-encoding").as_deref() == Some("gzip")));
}

#[test]
fn a_reload_changes_what_is_asked_for_and_keeps_the_connections() {
    let node = Upstream::answering("1");
    let setup = || Setup::of(&[&node]).shards(1);
    let gateway = setup().start();
    let mut client = gateway.connect();
    client.ask(ask("", "eth_call")).assert_result("7", "1");
    assert!(gateway.reload(&setup().endpoint(0, "gzip = true")));
    while node.seen().last().unwrap().header("accept-encoding").as_deref() != Some("gzip") {
        client.ask(ask("", "eth_call")).assert_result("7", "1");
    }
    assert_eq!(node.connections(), 1);
}
