//! The retry matrix over sockets: what the operation is × how certain the failure is, with many causes for each.

use super::harness::{ClosedPort, FullPort, Gate, Gateway, PATIENCE, Reply, Response, Seen, Setup, Upstream};
use super::matrix_causes::{Cause, Column, NODE_ERROR, causes};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The rows: a method of each class, and whether an ambiguous failure may be followed by another attempt.
const ROWS: [(&str, bool); 7] = [
    ("eth_call", true),
    ("eth_sendRawTransaction", true),
    ("eth_newFilter", false),
    ("eth_sendTransaction", false),
    ("eth_sendRawTransactionSync", false),
    ("acme_unknown", false),
    ("ETH_CALL", false),
];

/// No node's id may be mistaken for this one: it survives no float.
const ID: &str = "9007199254740993123";

/// How an upstream answers, and with which status.
type Script = (fn(&Seen, u16) -> Reply, u16);

/// The gateway of the matrix: `X` has a failing first Endpoint and a good second one, `X-both` two failing ones.
struct Bench {
    gateway: Gateway,
    failing: [Upstream; 2],
    good: Upstream,
    _ports: ([ClosedPort; 2], [FullPort; 2]),
    _crowded: [Upstream; 2],
    gate: Gate,
}

impl Bench {
    fn new(causes: &[Cause]) -> Bench {
        let script = || {
            let table: HashMap<String, Script> =
                causes.iter().map(|cause| (cause.name.clone(), (cause.script, cause.status))).collect();
            Upstream::start(move |seen| {
                let name = seen.json()["params"][0].as_str().unwrap_or_default().to_owned();
                let (script, status) = table[&name];
                script(seen, status)
            })
        };
        let failing = [script(), script()];
        let good = Upstream::answering("\"0xb\"");
        let (closed, full) = ([ClosedPort::new(), ClosedPort::new()], [FullPort::new(), FullPort::new()]);
        let gate = Gate::default();
        let crowded = [&gate, &gate].map(|gate| {
            let gate = gate.clone();
            Upstream::start(move |seen| Reply::after(&gate, Reply::result(seen, "1")))
        });
        let addresses = [
            failing[0].address,
            failing[1].address,
            good.address,
            closed[0].address,
            closed[1].address,
            full[0].address,
            full[1].address,
            crowded[0].address,
            crowded[1].address,
        ];
        let mut setup = Setup::at(&addresses).shards(1).no_circuit();
        for at in [5, 6] {
            setup = setup.endpoint(at, "connect_timeout = \"40ms\"");
        }
        for at in [7, 8] {
            setup = setup.endpoint(at, "max_connections = 1\nqueue_timeout = \"40ms\"");
        }
        for (name, [first, second], route) in [
            ("plain", ["a", "b"], ""),
            ("hasty", ["a", "b"], "attempt_timeout = \"500ms\""),
            ("closed", ["d", "e"], ""),
            ("full", ["f", "g"], ""),
            ("crowded", ["h", "i"], ""),
        ] {
            setup = setup.another(name, &format!("[\"{first}\", \"c\"]"), route);
            setup = setup.another(&format!("{name}-both"), &format!("[\"{first}\", \"{second}\"]"), route);
        }
        setup = busy(setup, causes, &failing);
        setup = setup.another("first-crowd", "[\"h\"]", "attempt_timeout = \"60s\"");
        setup = setup.another("second-crowd", "[\"i\"]", "attempt_timeout = \"60s\"");
        let gateway = setup.start();
        for (path, upstream) in [("/first-crowd", &crowded[0]), ("/second-crowd", &crowded[1])] {
            let mut client = gateway.connect();
            client.post(path, &[], super::harness::call_body("1", "eth_call", "[]"));
            upstream.wait_for(1);
            // It goes on waiting, and holds the only connection, until the bench goes.
            std::thread::spawn(move || client.try_response(false));
        }
        Bench { gateway, failing, good, _ports: (closed, full), _crowded: crowded, gate }
    }

    /// Who was sent it how often. A node may come to read it only after its caller has its answer.
    #[track_caller]
    fn assert_sent(&self, token: &str, sent: [usize; 3], what: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            let now = [&self.failing[0], &self.failing[1], &self.good].map(|node| node.count_with(token));
            if now == sent {
                return;
            }
            let missing = now.iter().zip(sent).any(|(now, sent)| *now < sent);
            assert!(missing && Instant::now() < until, "{what}: sent {now:?}, not {sent:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Each busy cause has Endpoints of its own for each method: they rest afterwards.
fn busy(mut setup: Setup, causes: &[Cause], failing: &[Upstream; 2]) -> Setup {
    for (cause, (method, _)) in causes.iter().flat_map(|cause| ROWS.map(|row| (cause, row))) {
        if cause.gateway != "busy" {
            continue;
        }
        let id = &cause.path(method)[1..];
        let pair = [("first", &failing[0]), ("second", &failing[1])].map(|(which, upstream)| {
            let place = "chain = \"ethereum\"\nnetwork = \"mainnet\"";
            format!("[[endpoint]]\nid = \"{id}-{which}\"\n{place}\nurl = \"http://{}\"\n", upstream.address)
        });
        setup = setup.raw(&pair.concat()).another(id, &format!("[\"{id}-first\", \"c\"]"), "").another(
            &format!("{id}-both"),
            &format!("[\"{id}-first\", \"{id}-second\"]"),
            "",
        );
    }
    setup
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.gate.open();
    }
}

/// Runs all causes, several at a time: their tokens keep them apart.
fn for_each_cause(each: impl Fn(&Bench, &Cause) + Sync) {
    let causes = causes();
    let bench = Bench::new(&causes);
    let (bench, each) = (&bench, &each);
    std::thread::scope(|scope| {
        for part in causes.chunks(causes.len().div_ceil(8)) {
            scope.spawn(move || part.iter().for_each(|cause| each(bench, cause)));
        }
    });
}

/// Nothing that speaks about the gateway's own credentials, or that no node meant for callers.
fn assert_clean(answer: &Response, what: &str) {
    for secret in ["secret body", "<html>", "elsewhere"] {
        assert!(!answer.body.contains(secret) && !answer.head.contains(secret), "{what}: {answer:?}");
    }
}

fn assert_node_error(answer: &Response, error: &str, what: &str) {
    assert_eq!(answer.status, 200, "{what}: {answer:?}");
    assert_eq!(answer.body, format!(r#"{{"jsonrpc":"2.0","id":{ID},"error":{error}}}"#), "{what}");
}

/// The first Endpoint fails, the second would answer.
fn one_fails(bench: &Bench, cause: &Cause, method: &str, replayable: bool) {
    let token = format!("one {method}");
    let what = format!("{} {method}", cause.name);
    let params = format!(r#"["{}","{token}"]"#, cause.name);
    let body = super::harness::call_body(ID, method, &params);
    let answer = bench.gateway.post_to(&cause.path(method), body);
    assert_clean(&answer, &what);
    let first = usize::from(cause.column != Column::NotSent);
    let goes_on = cause.column != Column::Ambiguous || replayable;
    bench.assert_sent(&params, [first, 0, usize::from(goes_on)], &what);
    match (goes_on, cause.kept) {
        (true, _) => answer.assert_result(ID, "\"0xb\""),
        (false, Some(error)) => assert_node_error(&answer, error, &what),
        (false, None) => {
            answer.assert_fault(200, ID, -32054);
            assert_eq!((answer.reason().as_str(), answer.attempts()), (cause.reason, 1), "{what}: {answer:?}");
            assert_eq!(answer.header("retry-after"), None, "{what}");
        }
    }
}

/// Both Endpoints fail in the same way.
fn both_fail(bench: &Bench, cause: &Cause, method: &str, replayable: bool) {
    let token = format!("both {method}");
    let what = format!("{} {method} twice", cause.name);
    let params = format!(r#"["{}","{token}"]"#, cause.name);
    let body = super::harness::call_body(ID, method, &params);
    let answer = bench.gateway.post_to(&format!("{}-both", cause.path(method)), body);
    assert_clean(&answer, &what);
    let goes_on = cause.column != Column::Ambiguous || replayable;
    let sent = if cause.column == Column::NotSent { [0, 0, 0] } else { [1, usize::from(goes_on), 0] };
    bench.assert_sent(&params, sent, &what);
    if let Some(error) = cause.kept {
        assert_node_error(&answer, error, &what);
        return;
    }
    let (status, code, attempts) = match (goes_on, cause.reason) {
        (false, _) => (200, -32054, 1),
        (true, "timeout") => (504, -32053, 2),
        (true, _) => (502, -32052, 2),
    };
    answer.assert_fault(status, ID, code);
    assert_eq!((answer.reason().as_str(), answer.attempts()), (cause.reason, attempts), "{what}: {answer:?}");
    let wait = (cause.reason == "rate_limited").then(|| if cause.name.contains("wait") { "7" } else { "1" });
    assert_eq!(answer.header("retry-after").as_deref(), wait, "{what}: {answer:?}");
}

#[test]
fn one_endpoint_fails() {
    for_each_cause(|bench, cause| {
        for (method, replayable) in ROWS {
            one_fails(bench, cause, method, replayable);
        }
    });
}

#[test]
fn both_endpoints_fail() {
    for_each_cause(|bench, cause| {
        for (method, replayable) in ROWS {
            both_fail(bench, cause, method, replayable);
        }
    });
}

#[test]
fn a_notification_goes_on_only_if_it_was_not_sent() {
    for_each_cause(|bench, cause| {
        for (method, _) in ROWS {
            // Its answer is ignored: whatever a 2xx holds, it is a success.
            let params = format!(r#"["{}","note {method}"]"#, cause.name);
            let body = super::harness::notification_body(method, &params);
            let answer = bench.gateway.post_to(&cause.path(method), body);
            let what = format!("{} {method}", cause.name);
            assert_eq!((answer.status, answer.body.as_str()), (204, ""), "{what}");
            let (first, second) = if cause.column == Column::NotSent { (0, 1) } else { (1, 0) };
            bench.assert_sent(&params, [first, 0, second], &what);
            let receiver = if first == 1 { &bench.failing[0] } else { &bench.good };
            let seen = receiver.seen_with(&params);
            assert_eq!(seen[0].text(), super::harness::notification_body(method, &params), "{what}: it has no id");
        }
    });
}

#[test]
fn a_signed_broadcast_reaches_the_second_endpoint_with_the_same_bytes() {
    for_each_cause(|bench, cause| {
        if cause.column == Column::NotSent {
            return;
        }
        // Unusual spacing and escapes: parsed and written again they would differ.
        let params = format!(r#"[ "{}" ,  "same", "\u0030xf8" ]"#, cause.name);
        let body = super::harness::call_body("41", "eth_sendRawTransaction", &params);
        let answer = bench.gateway.post_to(&cause.path("eth_sendRawTransaction"), &body);
        answer.assert_result("41", "\"0xb\"");
        let token = format!(r#""{}" ,  "same""#, cause.name);
        let (first, second) = (bench.failing[0].seen_with(&token), bench.good.seen_with(&token));
        assert_eq!((first.len(), second.len()), (1, 1), "{}", cause.name);
        assert_eq!((first[0].text(), second[0].text()), (body.as_str(), body.as_str()), "{}", cause.name);
    });
}

#[test]
fn an_answer_over_the_limit_is_final_for_every_class() {
    let large = |seen: &Seen| Reply::result(seen, &format!("\"{}\"", "x".repeat(5_000)));
    let (first, second) = (Upstream::start(large), Upstream::answering("1"));
    let gateway = Setup::of(&[&first, &second]).server("max_response_bytes = \"4KiB\"").start();
    for (at, (method, _)) in ROWS.iter().enumerate() {
        let answer = gateway.call(method, "[]");
        answer.assert_fault(200, "1", -32055);
        assert_eq!(answer.attempts(), 1);
        assert_eq!((first.count(), second.count()), (at + 1, 0), "{method}");
    }
    first.wait_for_open(0);
}

#[test]
fn the_last_kept_error_goes_out_if_nothing_better_comes() {
    let kept = Upstream::start(|seen| Reply::error(seen, 503, NODE_ERROR));
    let worse = Upstream::start(|_| Reply::json(500, "text"));
    let other = Upstream::start(|seen| Reply::error(seen, 502, r#"{"code":7,"message":"second"}"#));
    let fine = Upstream::answering("\"0xd\"");
    let setup = Setup::of(&[&kept, &worse, &other, &fine]).no_circuit();
    let gateway = setup
        .another("worse", "[\"a\", \"b\"]", "")
        .another("newer", "[\"a\", \"c\", \"b\"]", "")
        .another("better", "[\"a\", \"b\", \"d\"]", "")
        .another("single", "[\"a\"]", "")
        .start();
    let body = super::harness::call_body(ID, "eth_call", "[]");
    assert_node_error(&gateway.post_to("/worse", &body), NODE_ERROR, "worse");
    assert_node_error(&gateway.post_to("/newer", &body), r#"{"code":7,"message":"second"}"#, "newer");
    assert_node_error(&gateway.post_to("/single", &body), NODE_ERROR, "single");
    gateway.post_to("/better", &body).assert_result(ID, "\"0xd\"");
    // And it stops an operation that must stop, although a later Endpoint would answer.
    let effect = super::harness::call_body(ID, "eth_sendTransaction", "[]");
    assert_node_error(&gateway.post_to("/better", &effect), NODE_ERROR, "effect");
    assert_eq!(fine.count(), 1);
}

#[test]
fn attempts_are_bounded_by_the_lower_of_route_and_deployment() {
    let upstreams: Vec<Upstream> = (0..5).map(|_| Upstream::start(|_| Reply::json(500, "no"))).collect();
    let all = "[\"a\", \"b\", \"c\", \"d\", \"e\"]";
    let gateway = Setup::of(&upstreams.iter().collect::<Vec<_>>())
        .no_circuit()
        .raw("[failsafe]\nmax_attempts = 4")
        .another("two", all, "max_attempts = 2")
        .another("ten", all, "max_attempts = 10")
        .start();
    for (path, attempts) in [("/eth", 3), ("/two", 2), ("/ten", 4)] {
        let before: Vec<usize> = upstreams.iter().map(Upstream::count).collect();
        let answer = gateway.post_to(path, super::harness::call_body("1", "eth_call", "[]"));
        answer.assert_fault(502, "1", -32052);
        assert_eq!(answer.attempts(), attempts as u64, "{path}");
        let sent: Vec<usize> =
            upstreams.iter().zip(before).map(|(upstream, before)| upstream.count() - before).collect();
        let expected: Vec<usize> = (0..5).map(|at| usize::from(at < attempts)).collect();
        assert_eq!(sent, expected, "{path}: in order, none twice");
    }
}
