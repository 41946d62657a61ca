//! Providers and their quirks, row by row: what each answer means for a read, a signed broadcast and an operation that
//! must not run twice, for the Endpoint, and for the secrets in it.

use super::harness::{Gateway, Metrics, Reply, Response, Seen, Setup, Upstream, call_body, in_threads};
use super::providers_table::{Effect, Form, JSON_RPC, Meaning, Row, TRON_HTTP};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::net::SocketAddr;

/// A way to meet a row: each has an Endpoint and a Gateway of its own. The last two have no other Endpoint behind.
const KINDS: [&str; 5] = ["read", "broadcast", "effect", "alone", "warm"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    JsonRpc,
    TronHttp,
}
use Protocol::{JsonRpc, TronHttp};

impl Protocol {
    fn rows(self) -> &'static [Row] {
        if self == JsonRpc { JSON_RPC } else { TRON_HTTP }
    }

    fn method(self, kind: &str) -> &'static str {
        match (self, kind) {
            (JsonRpc, "broadcast") => "eth_sendRawTransaction",
            (JsonRpc, "effect") => "eth_sendTransaction",
            (JsonRpc, _) => "eth_call",
            (TronHttp, "broadcast") => "broadcasthex",
            (TronHttp, "effect") => "easytransfer",
            (TronHttp, _) => "getaccount",
        }
    }
}

struct Bench {
    protocol: Protocol,
    gateway: Gateway,
    provider: Upstream,
    good: Upstream,
    elsewhere: Upstream,
}

fn id(row: usize, kind: &str) -> String {
    format!("r{row}-{kind}")
}

fn good_answer(protocol: Protocol, seen: &Seen) -> Reply {
    if protocol == JsonRpc { Reply::result(seen, "\"good\"") } else { Reply::json(200, r#"{"good":1}"#) }
}

/// The row's answer as bytes.
fn written(row: &Row, id: &str, elsewhere: SocketAddr) -> Reply {
    let filled = |text: &str| text.replace("ELSEWHERE", &elsewhere.to_string());
    let fields: String = row.fields.iter().map(|field| format!("{}\r\n", filled(field))).collect();
    let mut body = row.body.replace("ID", id).into_bytes();
    if row.form == Form::GzipInChunks {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&body).unwrap();
        body = encoder.finish().unwrap();
    }
    let head = format!("HTTP/1.1 {} \r\n{fields}", row.status);
    let chunk = |part: &[u8]| [format!("{:X}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat();
    Reply::raw(match row.form {
        Form::Length => [format!("{head}content-length: {}\r\n\r\n", body.len()).as_bytes(), &body].concat(),
        _ => {
            let chunks: Vec<u8> = body.chunks(11).flat_map(chunk).collect();
            [format!("{head}transfer-encoding: chunked\r\n\r\n").as_bytes(), &chunks, b"0\r\n\r\n"].concat()
        }
    })
}

impl Bench {
    fn new(protocol: Protocol) -> Bench {
        let elsewhere = Upstream::answering("\"elsewhere\"");
        let good = Upstream::start(move |seen| good_answer(protocol, seen));
        let other = elsewhere.address;
        let provider = Upstream::start(move |seen| {
            if seen.holds("first") {
                return good_answer(protocol, seen);
            }
            // Each row has a path of its own.
            let at =
                seen.line().split(['/', '-']).nth(1).and_then(|part| part.strip_prefix('r')?.parse::<usize>().ok());
            let row = &protocol.rows()[at.expect("a row")];
            written(row, &if protocol == JsonRpc { seen.id() } else { String::new() }, other)
        });
        let mut setup =
            Setup::of(&[&good]).circuit("consecutive_failures = 1\ncooldown = \"60s\"\nmax_cooldown = \"60s\"");
        let place = match protocol {
            JsonRpc => "chain = \"ethereum\"\nnetwork = \"mainnet\"\n",
            TronHttp => "chain = \"tron\"\nnetwork = \"mainnet\"\nprotocol = \"tron-http\"\n",
        };
        let address = good.address;
        setup = setup.raw(&format!("[[endpoint]]\nid = \"good\"\n{place}url = \"http://{address}\""));
        for (at, kind) in (0..protocol.rows().len()).flat_map(|at| KINDS.map(|kind| (at, kind))) {
            let (id, address) = (id(at, kind), provider.address);
            let targets =
                if matches!(kind, "alone" | "warm") { format!("\"{id}\"") } else { format!("\"{id}\", \"good\"") };
            setup = setup.raw(&format!(
                "[[endpoint]]\nid = \"{id}\"\n{place}url = \"http://{address}/{id}\"\n\
                 [[gateway]]\nid = \"{id}\"\npath = \"/{id}\"\n{place}\
                 [[gateway.route]]\nid = \"default\"\ntargets = [{targets}]"
            ));
        }
        Bench { protocol, gateway: setup.start(), provider, good, elsewhere }
    }

    /// One Call of this kind; `token` stands in its body.
    fn ask(&self, row: usize, kind: &str, token: &str) -> Response {
        let (id, method) = (id(row, kind), self.protocol.method(kind));
        match self.protocol {
            JsonRpc => self.gateway.post_to(&format!("/{id}"), call_body("\"me\"", method, &format!("[\"{token}\"]"))),
            TronHttp => {
                let body = format!("{{\"token\":\"{token}\"}}");
                super::tron::ask(&self.gateway, "POST", &format!("/{id}/wallet/{method}"), &body)
            }
        }
    }

    fn assert_delivered(&self, answer: &Response, words: &str, status: u16, what: &str) {
        match self.protocol {
            JsonRpc => {
                assert_eq!(
                    (answer.status, &answer.body),
                    (200, &format!("{{\"jsonrpc\":\"2.0\",\"id\":\"me\",{words}}}")),
                    "{what}"
                );
            }
            TronHttp => assert_eq!((answer.status, answer.body.as_str()), (status, words), "{what}"),
        }
    }

    fn assert_good(&self, answer: &Response, what: &str) {
        let words = if self.protocol == JsonRpc { "\"result\":\"good\"" } else { r#"{"good":1}"# };
        self.assert_delivered(answer, words, 200, what);
    }

    fn assert_fault(&self, answer: &Response, code: i64, reason: &str, what: &str) {
        let status = if code == -32054 && self.protocol == JsonRpc { 200 } else { 502 };
        let told = match self.protocol {
            JsonRpc => {
                answer.assert_fault(status, "\"me\"", code);
                answer.reason()
            }
            TronHttp => super::tron::assert_fault(answer, status, code)["reason"].as_str().unwrap().to_owned(),
        };
        assert_eq!(told, reason, "{what}");
        assert_eq!(answer.header("retry-after").is_some(), reason == "rate_limited", "{what}: {answer:?}");
    }

    /// A row as every kind of operation meets it.
    fn judge(&self, at: usize, row: &Row) {
        for kind in KINDS {
            let token = format!("<{}>", id(at, kind));
            let what = format!("{} ({}), {kind}", row.provider, row.source);
            if kind == "warm" {
                self.assert_good(&self.ask(at, kind, "first"), &what);
            }
            let answer = self.ask(at, kind, &token);
            let goes_on = match row.meaning {
                Meaning::Final(_) => false,
                Meaning::Refused(_) => !matches!(kind, "alone" | "warm"),
                Meaning::Ambiguous(_) | Meaning::Kept(_) => matches!(kind, "read" | "broadcast"),
            };
            assert_eq!(
                (self.provider.count_with(&token), self.good.count_with(&token)),
                (1, usize::from(goes_on)),
                "{what}"
            );
            match row.meaning {
                _ if goes_on => self.assert_good(&answer, &what),
                Meaning::Final(words) | Meaning::Kept(words) => {
                    self.assert_delivered(&answer, words, row.status, &what)
                }
                Meaning::Ambiguous(reason) if kind == "effect" => self.assert_fault(&answer, -32054, reason, &what),
                Meaning::Refused(reason) | Meaning::Ambiguous(reason) => {
                    self.assert_fault(&answer, -32052, reason, &what)
                }
            }
            if !matches!(row.meaning, Meaning::Final(_) | Meaning::Kept(_)) {
                let told = format!("{}{}", answer.head, answer.body);
                let words = row.body.split(|c: char| !c.is_ascii_alphabetic() && c != ' ');
                let words = words.max_by_key(|words| words.len()).filter(|words| words.len() > 8);
                assert!(!words.is_some_and(|words| told.contains(words)), "{what}: {told}");
            }
        }
    }

    /// What the row did to the Endpoints that met it.
    fn judge_effect(&self, at: usize, row: &Row, metrics: &Metrics) {
        for kind in KINDS {
            let id = id(at, kind);
            let told = (metrics.of("ringway_circuit_state", &id), metrics.of("ringway_rests_total", &id));
            let expected = match row.effect {
                Effect::None => (0, 0),
                Effect::Failure => (1, 0),
                Effect::FailureIfNew => (u64::from(kind != "warm"), 0),
                Effect::Rest => (0, 1),
            };
            assert_eq!(told, expected, "{}, {kind}", row.provider);
        }
    }
}

fn every_row(protocol: Protocol) {
    let bench = Bench::new(protocol);
    in_threads(4, protocol.rows(), |at, row| bench.judge(at, row));
    let metrics = bench.gateway.metrics();
    for (at, row) in protocol.rows().iter().enumerate() {
        bench.judge_effect(at, row, &metrics);
    }
    assert_eq!((bench.elsewhere.count(), bench.elsewhere.connections()), (0, 0), "no redirect is followed");
}

#[test]
fn every_answer_of_a_json_rpc_provider_means_what_the_table_says() {
    every_row(JsonRpc);
}

#[test]
fn every_answer_of_a_tron_provider_means_what_the_table_says() {
    every_row(TronHttp);
}

/// A rest is as long as `Retry-After` says, or a second. What bodies say of waits is left alone: providers differ in
/// where they say it, say 0 while they refuse (INFURA/infura#201), and speak to one key's user; a wait that came
/// from there would keep an Endpoint from all callers by words that nobody promised.
#[test]
fn a_wait_in_a_body_is_not_read() {
    let row = JSON_RPC.iter().find(|row| row.body.contains("\"backoff_seconds\":30.0")).unwrap();
    let node = Upstream::start(|seen| written(row, &seen.id(), SocketAddr::from(([127, 0, 0, 1], 1))));
    let gateway = Setup::of(&[&node]).start();
    let answer = gateway.call("eth_call", "[]");
    answer.assert_fault(502, "1", -32052);
    assert!(!answer.body.contains("backoff") && !answer.body.contains("infura"), "{answer:?}");
    let answer = gateway.call("eth_call", "[]");
    answer.assert_fault(503, "1", -32051);
    assert_eq!(answer.header("retry-after").as_deref(), Some("1"));
    assert_eq!(node.count(), 1);
}

#[test]
fn a_key_goes_up_where_it_was_put_and_nowhere_else() {
    let node = Upstream::start(|seen| match seen.holds("refuse") {
        true => Reply::http(401, &["WWW-Authenticate: Basic realm=\"k3y\""], &format!("no such key: {}", seen.head)),
        false => Reply::result(seen, "1"),
    });
    let url = |path: &str| format!("url = \"http://{}{path}\"", node.address);
    let in_header = format!("{}\nheaders = {{ X-Api-Key = \"k3y-header\" }}", url("/"));
    let gateway = Setup::of(&[&node, &node, &node])
        .no_circuit()
        .endpoint(0, &url("/v3/k3y-path"))
        .endpoint(1, &in_header)
        .endpoint(2, &url("/rpc?a=b&apikey=k3y-query"))
        .another("path", "[\"a\"]", "")
        .another("header", "[\"b\"]", "")
        .another("query", "[\"c\"]", "")
        .start();
    for (at, (way, line)) in [
        ("path", "POST /v3/k3y-path HTTP/1.1"),
        ("header", "POST / HTTP/1.1"),
        ("query", "POST /rpc?a=b&apikey=k3y-query HTTP/1.1"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = gateway.connect();
        // What the caller brings is its own, and stays here.
        let own = ["X-Api-Key: mine", "Authorization: Bearer mine", "TRON-PRO-API-KEY: mine", "Cookie: mine"];
        client.post(&format!("/{way}"), &own, call_body("1", "eth_call", "[]"));
        client.response().assert_result("1", "1");
        let seen = node.seen()[2 * at].clone();
        assert_eq!(seen.line(), line);
        assert_eq!(seen.head.matches("k3y").count(), 1, "{}", seen.head);
        assert_eq!(seen.header("x-api-key"), (way == "header").then(|| "k3y-header".to_owned()));
        assert!(!seen.head.contains("mine"), "{}", seen.head);
        client.post(&format!("/{way}"), &["Ringway-Explain: 1"], call_body("1", "eth_call", "[\"refuse\"]"));
        let refused = client.response();
        refused.assert_fault(502, "1", -32052);
        let told =
            format!("{}{}{}{}", refused.head, refused.body, gateway.log(), gateway.admin_get("/metrics", &[]).body);
        assert!(!told.contains("k3y"), "{told}");
    }
}
