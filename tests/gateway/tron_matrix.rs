//! The retry matrix for TRON's HTTP API: what the operation is × how certain the failure is.

use super::harness::{ClosedPort, Reply, Seen, Setup, Upstream};
use super::tron::{ask, assert_fault};

/// A path of each class, and whether an ambiguous failure may be followed by another attempt.
const ROWS: [(&str, bool); 9] = [
    ("/wallet/getaccount", true),
    ("/wallet/createtransaction", true),
    ("/wallet/broadcasttransaction", true),
    ("/wallet/broadcasthex", true),
    ("/wallet/getnodeinfo", false),
    ("/wallet/gettransactionfrompending", false),
    ("/wallet/easytransfer", false),
    ("/wallet/unheardof", false),
    ("/wallet/GetAccount", false),
];

/// How certain it is that nothing was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Refused,
    Ambiguous,
}

type Cause = (String, Column, &'static str, Reply);

fn closing(status: u16, fields: &[&str], body: &str) -> Reply {
    Reply::http(status, &[&["Connection: close"], fields].concat(), body).then_close()
}

fn causes() -> Vec<Cause> {
    use Column::{Ambiguous, Refused};
    let mut all: Vec<Cause> = Vec::new();
    for (status, reason) in [
        (301, "rejected"),
        (307, "rejected"),
        (401, "rejected"),
        (402, "rejected"),
        (403, "rejected"),
        (404, "rejected"),
        (407, "rejected"),
        (410, "rejected"),
        (415, "rejected"),
        (451, "rejected"),
        (408, "bad_request"),
        (413, "bad_request"),
        (422, "bad_request"),
    ] {
        // An answer of the node's form changes nothing: it speaks about the gateway.
        for body in ["<html>secret body</html>", "{\"result\":true,\"x\":\"secret body\"}"] {
            all.push((format!("{status} {}", body.len()), Refused, reason, closing(status, &["Location: /x"], body)));
        }
    }
    for status in [406, 409, 418, 500, 501, 502, 503, 504, 520] {
        for body in ["<html>secret body</html>", "{\"Error\":\"secret body\"}", ""] {
            all.push((format!("{status} {}", body.len()), Ambiguous, "http_status", closing(status, &[], body)));
        }
    }
    for body in
        ["", " ", "secret body", "<html>", "{", "{}{}", "{\"a\":1,}", "{\"a\":01}", "{\"a\":\"\u{1}\"}", "\u{feff}"]
    {
        let json = &["Content-Type: application/json"];
        all.push((format!("body {body:?}"), Ambiguous, "invalid_response", closing(200, json, body)));
    }
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n{";
    all.push(("eof".into(), Ambiguous, "connection_lost", Reply::close()));
    all.push(("reset".into(), Ambiguous, "connection_lost", Reply::reset()));
    all.push(("eof-in-body".into(), Ambiguous, "connection_lost", Reply::raw(head).then_close()));
    all.push(("not-http".into(), Ambiguous, "invalid_http", Reply::raw("SSH-2.0-x\r\n\r\n").then(Reply::hang())));
    all.push(("hang".into(), Ambiguous, "timeout", Reply::hang()));
    all.push(("hang-in-body".into(), Ambiguous, "timeout", Reply::raw(head).then(Reply::hang())));
    all
}

fn failing(causes: &[Cause]) -> Upstream {
    let replies: Vec<Reply> = causes.iter().map(|cause| cause.3.clone()).collect();
    Upstream::start(move |seen: &Seen| replies[seen.json()["cause"].as_u64().unwrap() as usize].clone())
}

#[test]
fn each_class_goes_on_or_stops_after_each_cause() {
    let causes = causes();
    let (first, second, good) =
        (failing(&causes), failing(&causes), Upstream::start(|_| Reply::json(200, "{\"b\":1}")));
    let hasty = "attempt_timeout = \"500ms\"";
    let gateway = Setup::of(&[&first, &second, &good])
        .tron()
        .no_circuit()
        .targets("[\"a\", \"c\"]")
        .route(hasty)
        .another("both", "[\"a\", \"b\"]", hasty)
        .start();
    let run = |(at, (name, column, reason, _)): (usize, &Cause)| {
        for (path, replayable) in ROWS {
            let goes_on = *column == Column::Refused || replayable;
            let what = format!("{name} {path}");
            let body = format!("{{\"cause\":{at},\"of\":\"one {path}\"}}");
            let answer = ask(&gateway, "POST", &format!("/tron{path}"), &body);
            let sent = [first.count_with(&body), good.count_with(&body)];
            assert_eq!(sent, [1, usize::from(goes_on)], "{what}: {answer:?}");
            assert!(!answer.body.contains("secret") && !answer.head.contains("Location"), "{what}: {answer:?}");
            if goes_on {
                assert_eq!((answer.status, answer.body.as_str()), (200, "{\"b\":1}"), "{what}");
            } else {
                let data = assert_fault(&answer, 502, -32054);
                assert_eq!((&data["reason"], &data["attempts"]), (&(*reason).into(), &1.into()), "{what}");
            }
            let body = format!("{{\"cause\":{at},\"of\":\"both {path}\"}}");
            let answer = ask(&gateway, "POST", &format!("/both{path}"), &body);
            let sent = [first.count_with(&body), second.count_with(&body)];
            assert_eq!(sent, [1, usize::from(goes_on)], "{what}: {answer:?}");
            let (status, code) = match (goes_on, *reason) {
                (false, _) => (502, -32054),
                (true, "timeout") => (504, -32053),
                (true, _) => (502, -32052),
            };
            assert_eq!(assert_fault(&answer, status, code)["reason"], *reason, "{what}");
        }
    };
    let run = &run;
    let numbered: Vec<(usize, &Cause)> = causes.iter().enumerate().collect();
    std::thread::scope(|scope| {
        for part in numbered.chunks(numbered.len().div_ceil(8)) {
            scope.spawn(move || part.iter().copied().for_each(run));
        }
    });
}

#[test]
fn what_was_not_sent_or_told_to_wait_goes_on_for_every_class() {
    for (path, _) in ROWS {
        let (closed, good) = (ClosedPort::new(), Upstream::start(|_| Reply::json(200, "{\"b\":1}")));
        let limited = Upstream::start(|_| Reply::http(429, &["Retry-After: 7"], "secret"));
        let pausing = Upstream::start(|_| Reply::http(503, &["Retry-After: 7"], "{\"Error\":\"secret\"}"));
        let busy = Upstream::start(|_| Reply::json(200, "{\"Error\":\"x : lack of computing resources\"}"));
        let all = [closed.address, limited.address, pausing.address, busy.address, good.address];
        let setup = Setup::at(&all).tron().route("max_attempts = 5");
        let gateway = setup.another("resting", "[\"b\", \"c\"]", "").start();
        let answer = ask(&gateway, "POST", &format!("/tron{path}"), "{}");
        assert_eq!((answer.status, answer.body.as_str()), (200, "{\"b\":1}"), "{path}");
        assert_eq!([limited.count(), pausing.count(), busy.count(), good.count()], [1; 4], "{path}");
        let answer = ask(&gateway, "POST", &format!("/resting{path}"), "{}");
        assert_fault(&answer, 503, -32051);
        assert_eq!(answer.header("retry-after").as_deref(), Some("7"), "{path}");
    }
}

#[test]
fn exhaustion_by_limits_says_when_to_come_back() {
    let limited = Upstream::start(|_| Reply::http(429, &["Retry-After: 7"], "secret"));
    let gateway = Setup::of(&[&limited]).tron().start();
    let answer = ask(&gateway, "GET", "/tron/wallet/getnowblock", "");
    assert_eq!(assert_fault(&answer, 502, -32052)["reason"], "rate_limited");
    assert_eq!(answer.header("retry-after").as_deref(), Some("7"));
}

#[test]
fn a_broadcast_goes_on_with_the_same_bytes() {
    let (a, b) = (Upstream::start(|_| Reply::close()), Upstream::start(|_| Reply::json(200, "{\"result\":true}")));
    let gateway = Setup::of(&[&a, &b]).tron().start();
    let body = "{ \"transaction\" :\"00\\u0030\",  \"visible\":true}\n";
    assert_eq!(ask(&gateway, "POST", "/tron/wallet/broadcasthex?x=%20", body).body, "{\"result\":true}");
    for seen in [a.only(), b.only()] {
        assert_eq!((seen.line(), seen.text()), ("POST /wallet/broadcasthex?x=%20 HTTP/1.1", body));
    }
}

#[test]
fn a_caller_that_leaves_ends_a_query_and_no_broadcast() {
    // The gateway looks at a silent client once a second.
    for (path, ends, timeout) in
        [("/tron/wallet/getaccount", true, "60s"), ("/tron/wallet/broadcasthex", false, "1500ms")]
    {
        let node = Upstream::start(|_| Reply::hang());
        let gateway = Setup::of(&[&node]).tron().route(&format!("attempt_timeout = \"{timeout}\"")).start();
        let mut client = gateway.connect();
        client.post(path, &[], "{}");
        node.wait_for(1);
        client.reset();
        node.wait_for_open(0);
        let metrics = gateway.wait_for_metrics("the attempt's end", |metrics| metrics.attempts("a", "") == 1);
        assert_eq!(metrics.attempts("a", "caller_gone"), u64::from(ends), "{path}");
        assert_eq!(metrics.attempts("a", "timeout"), u64::from(!ends), "{path}");
    }
}
