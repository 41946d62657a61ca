//! Metrics that add up to the last Call: a mixed load, counted by its callers and by the nodes as well.

use super::harness::{
    Client, ClosedPort, Gateway, Metrics, Reply, Seen, Setup, Upstream, call_body, notification_body,
};
use super::honesty::{RAW, hash};
use super::upstream::response;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const CALLERS: usize = 4;
const ROUNDS: usize = 25;

/// How often each of these was seen.
#[derive(Clone, Default)]
struct Tally(Arc<Mutex<BTreeMap<String, u64>>>);

impl Tally {
    fn add(&self, what: impl Into<String>) {
        *self.0.lock().unwrap().entry(what.into()).or_default() += 1;
    }

    fn of(&self, what: &str) -> u64 {
        self.0.lock().unwrap().get(what).copied().unwrap_or(0)
    }

    fn all(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap().clone()
    }
}

/// A node that does what the first parameter says (`first second`: what each of two nodes is to do), and counts
/// what the gateway must make of it.
fn node(at: usize, tally: &Tally) -> Upstream {
    let tally = tally.clone();
    Upstream::start(move |seen| {
        if seen.holds("eth_getTransactionByHash") {
            tally.add(if at == 1 { "found" } else { "not_found" });
            let known = format!("{{\"hash\":\"{}\",\"blockNumber\":null}}", hash());
            return Reply::result(seen, if at == 1 { &known } else { "null" });
        }
        let (outcome, reply) = answer(seen, script(seen, at));
        tally.add(outcome);
        reply
    })
}

/// What this node is to do: a broadcast has no room for a script.
fn script(seen: &Seen, at: usize) -> String {
    if seen.holds("eth_sendRawTransaction") {
        return ["close", "nonce"][at].to_owned();
    }
    let json = seen.json();
    let both = json["params"][0].as_str().unwrap_or_default();
    both.split(' ').cycle().nth(at).unwrap_or_default().to_owned()
}

fn answer(seen: &Seen, script: String) -> (&'static str, Reply) {
    match script.as_str() {
        "ok" => ("ok", Reply::result(seen, "1")),
        "reverted" => ("ok", Reply::error(seen, 200, r#"{"code":3,"message":"reverted"}"#)),
        "nonce" => ("ok", Reply::error(seen, 200, r#"{"code":-32000,"message":"nonce too low"}"#)),
        "500" => ("http_status", Reply::json(500, "no")),
        "403" => ("rejected", Reply::json(403, "no")),
        "400" => ("bad_request", Reply::json(400, "no")),
        "429" => ("rate_limited", Reply::http(429, &["Retry-After: 0"], "")),
        "close" => ("connection_lost", Reply::close()),
        "cut" => ("connection_lost", Reply::raw(&response(200, &[], "{}")[..30]).then_close()),
        "garbage" => ("invalid_http", Reply::raw("\u{1}\r\n\r\n").then_close()),
        "text" => ("invalid_response", Reply::json(200, "text")),
        "hang" => ("timeout", Reply::hang()),
        "large" => ("response_too_large", Reply::result(seen, &format!("\"{}\"", "x".repeat(20_000)))),
        other => panic!("{other}"),
    }
}

/// What a caller was told, in the words of `ringway_calls_total`.
fn outcome(answer: &serde_json::Value) -> &'static str {
    match answer["error"]["code"].as_i64() {
        None => "ok",
        Some(3 | -32000) => "node_error",
        Some(-32700 | -32600) => "invalid",
        Some(-32601) => "method_unavailable",
        Some(-32050) => "no_target",
        Some(-32051) => "unavailable",
        Some(-32052) => "exhausted",
        Some(-32053) => "timeout",
        Some(-32054) => "outcome_unknown",
        Some(-32055) => "response_too_large",
        Some(_) => panic!("{answer}"),
    }
}

const SCRIPTS: [&str; 16] = [
    "ok",
    "reverted",
    "500 ok",
    "403 ok",
    "400 reverted",
    "429 ok",
    "close ok",
    "cut text",
    "garbage ok",
    "text text",
    "500 500",
    "429 429",
    "403 cut",
    "large",
    "403 large",
    "text garbage",
];
const METHODS: [&str; 4] = ["eth_call", "eth_sendTransaction", "acme_unknown", "net_peerCount"];

/// All that one caller counts.
struct Caller<'a> {
    gateway: &'a Gateway,
    client: Client,
    tally: Tally,
}

impl Caller<'_> {
    fn ask(&mut self, path: &str, body: impl AsRef<[u8]>) {
        self.client.post(path, &[], body);
        let answer = self.client.response();
        match answer.status {
            204 => self.tally.add("notification"),
            _ => self.tally.add(outcome(&answer.json())),
        }
    }

    fn batch(&mut self, members: &[String], notifications: usize) {
        let answers = self.client.ask(format!("[{}]", members.join(","))).json();
        let answers = answers.as_array().unwrap();
        assert_eq!(answers.len() + notifications, members.len());
        answers.iter().for_each(|answer| self.tally.add(outcome(answer)));
        (0..notifications).for_each(|_| self.tally.add("notification"));
    }

    /// Something that never becomes a Call; `ends` = and ends its connection.
    fn refused(&mut self, status: u16, request: impl AsRef<[u8]>, ends: bool) {
        assert_eq!(self.client.send(request).response().status, status);
        self.tally.add(format!("http {status}"));
        if ends {
            self.client.closed();
            self.client = self.gateway.connect();
            self.tally.add("connection");
        }
    }

    fn round(&mut self, round: usize) {
        for (at, script) in SCRIPTS.iter().enumerate() {
            let method = METHODS[(at + round) % METHODS.len()];
            self.ask("/eth", call_body("1", method, &format!("[\"{script}\"]")));
        }
        let member = |script: &str| call_body("1", "eth_call", &format!("[\"{script}\"]"));
        let silent = |script: &str| notification_body("eth_call", &format!("[\"{script}\"]"));
        self.batch(&[member("ok"), silent("500"), "7".into(), member("500 reverted"), "{\"id\":1}".into()], 1);
        self.batch(&[silent("ok"), call_body("1", "admin_peers", "[]"), member("text")], 1);
        self.ask("/eth", silent("ok"));
        self.ask("/eth", silent("429"));
        self.ask("/eth", "{");
        self.ask("/eth", "[]");
        self.ask("/eth", call_body("1", "admin_peers", "[]"));
        self.ask("/eth", call_body("{}", "eth_call", "[]"));
        self.ask("/closed", member("ok"));
        self.ask("/nobody", member("ok"));
        self.ask("/eth", call_body("1", "eth_sendRawTransaction", &format!("[\"{RAW}\"]")));
        if round.is_multiple_of(10) {
            self.ask("/brief", member("hang"));
            self.ask("/brief", call_body("1", "eth_sendTransaction", "[\"hang\"]"));
        }
        self.refused(404, "POST /nowhere HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}", false);
        self.refused(405, "GET /eth HTTP/1.1\r\nHost: h\r\n\r\n", false);
        self.refused(
            415,
            "POST /eth HTTP/1.1\r\nHost: h\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n",
            false,
        );
        self.refused(413, "POST /eth HTTP/1.1\r\nHost: h\r\nContent-Length: 9999999\r\n\r\n", true);
        self.refused(400, "POST /eth HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", true);
        self.refused(431, format!("GET /eth HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "x".repeat(20_000)), true);
    }
}

#[test]
fn everything_is_counted_once_to_the_last_call() {
    let (said, served) = (Tally::default(), [Tally::default(), Tally::default()]);
    let nodes = [node(0, &served[0]), node(1, &served[1])];
    let (closed, moody) = (ClosedPort::new(), Upstream::start(|_| Reply::json(500, "no")));
    let gateway = Setup::at(&[nodes[0].address, nodes[1].address, closed.address, nodes[0].address, moody.address])
        .no_circuit()
        .server("max_response_bytes = \"16KiB\"")
        .targets("[\"a\", \"b\"]")
        .endpoint(3, "enabled = false")
        .endpoint(4, "circuit = { consecutive_failures = 3, cooldown = \"30s\" }")
        .another("brief", "[\"a\", \"b\"]", "attempt_timeout = \"60ms\"")
        .another("closed", "[\"c\"]", "")
        .another("nobody", "[\"d\"]", "")
        .another("moody", "[\"e\"]", "")
        .start();
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (gateway, tally) = (&gateway, said.clone());
            scope.spawn(move || {
                tally.add("connection");
                let mut caller_of = Caller { gateway, client: gateway.connect(), tally };
                (0..ROUNDS).for_each(|round| caller_of.round(round + caller));
            });
        }
    });
    // A Circuit opens after three failures, and rejects from then on.
    let mut last = Caller { gateway: &gateway, client: gateway.connect(), tally: said.clone() };
    said.add("connection");
    (0..9).for_each(|_| last.ask("/moody", call_body("1", "eth_call", "[]")));
    drop(last);
    let metrics = gateway
        .wait_for_metrics("the clients' ends", |metrics| metrics.sum("ringway_connections", &["side=\"client\""]) == 0);
    eprintln!("told: {:?}; the nodes: {:?}", said.all(), served.each_ref().map(Tally::all));
    callers_agree(&metrics, &said);
    nodes_agree(&metrics, &served);
    assert_eq!((metrics.attempts("e", "http_status"), metrics.attempts("e", ""), moody.count()), (3, 3, 3));
    assert_eq!((metrics.attempts("d", ""), metrics.attempts("c", "")), (0, (CALLERS * ROUNDS) as u64));
    assert_eq!(metrics.attempts("c", "connect_failed"), metrics.attempts("c", ""));
    assert_eq!(metrics.of("ringway_circuit_state", "e"), 1);
    assert_eq!(metrics.sum("ringway_circuit_transitions_total", &[]), 1, "only the moody one's Circuit opened");
    assert_eq!(metrics.sum("ringway_circuit_transitions_total", &["endpoint=\"e\"", "consecutive_failures"]), 1);
    nothing_stays_open(&gateway, &nodes, &moody);
}

/// Outcomes, refusals and connections, as the callers counted them.
fn callers_agree(metrics: &Metrics, said: &Tally) {
    let outcomes = [
        "ok",
        "node_error",
        "notification",
        "invalid",
        "method_unavailable",
        "no_target",
        "unavailable",
        "exhausted",
        "timeout",
        "outcome_unknown",
        "response_too_large",
    ];
    for outcome in outcomes {
        assert_eq!(metrics.calls(outcome), said.of(outcome), "{outcome}");
        assert!(said.of(outcome) > 0, "{outcome} never came up");
    }
    let calls: u64 = outcomes.iter().map(|outcome| said.of(outcome)).sum();
    assert_eq!(metrics.sum("ringway_calls_total", &[]), calls, "no other outcome");
    assert_eq!(metrics.sum("ringway_call_duration_seconds_count", &[]), calls);
    assert_eq!(metrics.sum("ringway_call_duration_seconds_bucket", &["le=\"+Inf\""]), calls);
    for route in ["eth", "brief", "closed", "nobody", "moody"] {
        for row in ["route=\"default\"", "route=\"\""] {
            let labels = [&*format!("gateway=\"{route}\""), row];
            let counted = metrics.sum("ringway_call_duration_seconds_count", &labels);
            assert_eq!(metrics.sum("ringway_calls_total", &labels), counted, "{labels:?}");
        }
    }
    for status in [400, 404, 405, 413, 415, 431] {
        let told = said.of(&format!("http {status}"));
        assert_eq!(metrics.sum("ringway_http_refused_total", &[&format!("\"{status}\"")]), told, "{status}");
        assert_eq!(told, (CALLERS * ROUNDS) as u64);
    }
    assert_eq!(metrics.sum("ringway_http_refused_total", &[]), 6 * (CALLERS * ROUNDS) as u64, "no other status");
    assert_eq!(metrics.sum("ringway_accepted_connections_total", &[]), said.of("connection"));
    assert_eq!(metrics.sum("ringway_task_panics_total", &[]), 0);
}

/// Attempts, look-ups and replaced connections, as the nodes counted them.
fn nodes_agree(metrics: &Metrics, served: &[Tally; 2]) {
    for (endpoint, tally) in ["a", "b"].iter().zip(served) {
        let mut attempts = 0;
        for outcome in [
            "ok",
            "http_status",
            "rejected",
            "bad_request",
            "rate_limited",
            "connection_lost",
            "invalid_http",
            "invalid_response",
            "timeout",
            "response_too_large",
        ] {
            let (counted, seen) = (metrics.attempts(endpoint, outcome), tally.of(outcome));
            // A dead pooled connection is replaced within the attempt: the node saw one more.
            let replaced = match outcome {
                "connection_lost" => metrics.of("ringway_stale_connections_total", endpoint),
                _ => 0,
            };
            assert_eq!(counted + replaced, seen, "{endpoint} {outcome}");
            attempts += counted;
        }
        assert_eq!(metrics.attempts(endpoint, ""), attempts, "{endpoint}: no other outcome");
        assert_eq!(metrics.of("ringway_attempt_duration_seconds_count", endpoint), attempts);
        for outcome in ["found", "not_found"] {
            let labels = [&*format!("endpoint=\"{endpoint}\""), &*format!("outcome=\"{outcome}\"")];
            assert_eq!(metrics.sum("ringway_lookups_total", &labels), tally.of(outcome), "{labels:?}");
        }
    }
    assert!(metrics.sum("ringway_lookups_total", &[]) > 0 && metrics.sum("ringway_stale_connections_total", &[]) > 0);
}

/// All gauges go back to nothing once the nodes have hung up too.
fn nothing_stays_open(gateway: &Gateway, nodes: &[Upstream; 2], moody: &Upstream) {
    let opened: usize = nodes.iter().chain([moody]).map(Upstream::connections).sum();
    assert_eq!(gateway.metrics().sum("ringway_endpoint_connects_total", &[]), opened as u64);
    nodes.iter().chain([moody]).for_each(Upstream::hang_up);
    gateway.wait_for_metrics("the pools to notice", |metrics| {
        metrics.sum("ringway_connections", &[]) == 0 && metrics.sum("ringway_endpoint_connections", &[]) == 0
    });
}
