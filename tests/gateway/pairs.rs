//! Recorded exchanges of real nodes, replayed: params reach the node byte for byte, and what the node said reaches
//! the caller byte for byte under the caller's own id.

use super::harness::{Client, Gateway, Reply, Response, Seen, Setup, Upstream, chunked, in_threads, request};
use super::material;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::sync::Arc;

/// Ids as callers make them: the ones in front go up as they are, the others could be distorted by some node.
const OWN_IDS: [&str; 3] = ["0", "7", "999999999999999"];
const OTHER_IDS: [&str; 11] = [
    "1000000000000000",
    "1720000000123456789012345678901234567890",
    "-1",
    "1.5",
    "1e3",
    "-0.0",
    "null",
    "\"\"",
    "\"1\"",
    r#""a\"b\\c\/d\u0041\ud83d\ude00\n é ✓""#,
    r#""lone \ud800""#,
];

/// What must come of an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    /// `"result":…` or `"error":…` as recorded.
    Delivered(String),
    /// The recording is no valid answer.
    Unusable,
}

struct Pair {
    source: String,
    /// `"method":…` and `"params":…` as they must go up.
    call: String,
    /// The recorded answer before and after its id.
    answer: (String, String),
    outcome: Outcome,
}

impl Pair {
    fn body(&self, id: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},{}}}"#, self.call)
    }

    fn assert_told(&self, id: &str, told: &str) {
        match &self.outcome {
            Outcome::Delivered(content) => {
                assert_eq!(told, format!(r#"{{"jsonrpc":"2.0","id":{id},{content}}}"#), "{}", self.source);
            }
            Outcome::Unusable => {
                let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32052,"#);
                assert!(told.starts_with(&head) && told.contains("\"invalid_response\""), "{}: {told}", self.source);
            }
        }
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    src: String,
    #[serde(borrow)]
    request: &'a RawValue,
    response: String,
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// What belongs into the answer that a caller gets. `None` beside a member may also be its null.
fn outcome(text: &str, answer: &Answer<'_>) -> Outcome {
    match (answer.result, answer.error) {
        (_, Some(error)) => Outcome::Delivered(format!("\"error\":{error}")),
        (Some(result), None) => Outcome::Delivered(format!("\"result\":{result}")),
        (None, None) if text.contains("\"result\":null") => Outcome::Delivered("\"result\":null".into()),
        (None, None) => Outcome::Unusable,
    }
}

fn pair(line: &Line<'_>) -> Pair {
    let request: Request<'_> = serde_json::from_str(line.request.get()).unwrap();
    let answer: Answer<'_> = serde_json::from_str(&line.response).unwrap();
    let method = request.method.unwrap();
    let params = request.params.map_or(String::new(), |params| format!(",\"params\":{params}"));
    let at = answer.id.get().as_ptr() as usize - line.response.as_ptr() as usize;
    Pair {
        source: line.src.clone(),
        call: format!("\"method\":{method}{params}"),
        answer: (line.response[..at].into(), line.response[at + answer.id.get().len()..].into()),
        outcome: outcome(&line.response, &answer),
    }
}

/// Requests and answers of batches.
type Batches = Vec<(String, String)>;

/// All exchanges of one Call each, and those of batches.
fn recordings() -> Option<(Vec<Pair>, Batches)> {
    let (mut pairs, mut batches) = (Vec::<Pair>::new(), Vec::new());
    let mut calls = HashMap::<String, usize>::new();
    for file in ["pairs_spec.jsonl.gz", "pairs_hive.jsonl.gz", "pairs_gnosis.jsonl.gz"] {
        for text in material::lines(file)? {
            let line: Line<'_> = serde_json::from_str(&text).unwrap();
            if line.request.get().starts_with('[') {
                batches.push((line.request.get().to_owned(), line.response));
                continue;
            }
            let mut pair = pair(&line);
            // Some were recorded on several chains. Blanks that mean nothing tell them apart, and must go up too.
            let times = calls.entry(pair.call.clone()).or_default();
            if *times > 0 {
                assert!(pair.call.contains(",\"params\":["), "{}", pair.call);
                pair.call = pair.call.replacen("\"params\":[", &format!("\"params\":[{}", " \t".repeat(*times)), 1);
            }
            *times += 1;
            pairs.push(pair);
        }
    }
    assert_eq!(pairs.len() + batches.len(), 475, "the recordings are not whole");
    Some((pairs, batches))
}

/// The id that a node saw, and what stood behind it.
fn taken_apart(body: &str) -> (&str, &str) {
    let rest = body.strip_prefix(r#"{"jsonrpc":"2.0","id":"#).unwrap_or_else(|| panic!("{body}"));
    let (id, call) = rest.split_once(',').unwrap_or_else(|| panic!("{body}"));
    assert!(!id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()), "{body}");
    (id, call.strip_suffix('}').unwrap_or_else(|| panic!("{body}")))
}

/// A node that knows the recordings by the bytes of method and params.
fn node(pairs: &Arc<Vec<Pair>>, in_chunks: bool) -> Upstream {
    let (pairs, mut by_call) = (pairs.clone(), HashMap::new());
    for (at, pair) in pairs.iter().enumerate() {
        assert!(by_call.insert(pair.call.clone(), at).is_none(), "{}", pair.source);
    }
    Upstream::start(move |seen| {
        let (id, call) = taken_apart(seen.text());
        let Some(at) = by_call.get(call) else {
            return Reply::json(200, &format!(r#"{{"id":{id},"result":"nobody recorded this"}}"#));
        };
        let (front, back) = &pairs[*at].answer;
        let body = format!("{front}{id}{back}");
        match in_chunks {
            true => {
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
                Reply::raw([head.as_bytes(), &chunked(body.as_bytes(), seen.nth)].concat())
            }
            false => Reply::json(200, &body),
        }
    })
}

fn ask(client: &mut Client, path: &str, body: &str, in_chunks: Option<usize>) -> Response {
    match in_chunks {
        Some(seed) => {
            let head = request(path, &["Transfer-Encoding: chunked"], 0).replace("Content-Length: 0\r\n", "");
            client.send(head).send(chunked(body.as_bytes(), seed)).response()
        }
        None => client.post(path, &[], body).response(),
    }
}

fn assert_own_ids_went_up(seen: &[Seen], pairs: &[Pair]) {
    for pair in pairs {
        for id in OWN_IDS {
            let body = pair.body(id);
            assert!(seen.iter().any(|seen| seen.body == body.as_bytes()), "{}: not with {id}", pair.source);
        }
    }
}

/// A gateway with a way to each of two nodes: `/eth` to the one whose answers have a length, `/chunked` to the other.
struct Stage {
    plain: Upstream,
    in_chunks: Upstream,
    gateway: Gateway,
}

fn stage(pairs: &Arc<Vec<Pair>>) -> Stage {
    let (plain, in_chunks) = (node(pairs, false), node(pairs, true));
    let gateway = Setup::of(&[&plain, &in_chunks])
        .no_circuit()
        .targets("[\"a\"]")
        .gateway("endpoint_free = []")
        .another("chunked", "[\"b\"]", "")
        .start();
    Stage { plain, in_chunks, gateway }
}

#[test]
fn recorded_exchanges_pass_to_the_byte() {
    let Some((pairs, _)) = recordings() else { return };
    let pairs = Arc::new(pairs);
    let Stage { plain, in_chunks, gateway } = stage(&pairs);
    let ids: Vec<&str> = OWN_IDS.iter().chain(&OTHER_IDS).copied().collect();
    in_threads(4, &pairs, |at, pair| {
        let mut client = gateway.connect();
        for (nth, id) in ids.iter().enumerate() {
            for path in ["/eth", "/chunked"] {
                let framing = (at + nth).is_multiple_of(2).then_some(at + nth);
                let answer = ask(&mut client, path, &pair.body(id), framing);
                let status = if pair.outcome == Outcome::Unusable { 502 } else { 200 };
                assert_eq!(answer.status, status, "{}: {answer:?}", pair.source);
                assert_eq!(answer.header("content-type").as_deref(), Some("application/json"));
                pair.assert_told(id, &answer.body);
            }
        }
    });
    for node in [&plain, &in_chunks] {
        assert_own_ids_went_up(&node.seen(), &pairs);
        assert_eq!(node.count(), pairs.len() * ids.len());
    }
    let unusable = pairs.iter().filter(|pair| pair.outcome == Outcome::Unusable).count();
    assert_eq!(unusable, 3, "neither a result nor an error was recorded");
}

#[test]
fn recorded_exchanges_pass_to_the_byte_in_batches() {
    let Some((pairs, _)) = recordings() else { return };
    let pairs = Arc::new(pairs);
    let Stage { plain, in_chunks, gateway } = stage(&pairs);
    // Each batch holds some ids twice and more.
    let ids: Vec<&str> = OWN_IDS.iter().chain(&OTHER_IDS).copied().collect();
    let batches: Vec<&[Pair]> = pairs.chunks(30).collect();
    in_threads(4, &batches, |at, batch| {
        let mut client = gateway.connect();
        for turn in 0..ids.len() {
            let id = |nth: usize| ids[(nth + turn + at) % ids.len()];
            let members: Vec<String> = batch.iter().enumerate().map(|(nth, pair)| pair.body(id(nth))).collect();
            let path = ["/eth", "/chunked"][turn % 2];
            let framing = (turn / 2).is_multiple_of(2).then_some(turn + at);
            let answer = ask(&mut client, path, &format!("[{}]", members.join(", ")), framing);
            assert_eq!(answer.status, 200, "{answer:?}");
            let told: Vec<&RawValue> = serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}"));
            let told: Vec<&str> = told.into_iter().map(RawValue::get).collect();
            assert_eq!(format!("[{}]", told.join(",")), answer.body, "nothing but the members");
            assert_eq!(told.len(), batch.len());
            for (nth, (pair, told)) in batch.iter().zip(told).enumerate() {
                pair.assert_told(id(nth), told);
            }
        }
    });
    for node in [&plain, &in_chunks] {
        assert_eq!(node.count(), pairs.len() * ids.len() / 2);
    }
}

#[test]
fn recorded_batches_get_what_was_recorded_but_for_calls_without_a_method() {
    let Some((_, batches)) = recordings() else { return };
    let node = Upstream::start(|seen| match seen.holds("\"method\":\"\"") {
        true => Reply::error(seen, 200, r#"{"code":-32600,"message":"invalid request"}"#),
        false => Reply::result(seen, "\"0x64\""),
    });
    let gateway = Setup::of(&[&node]).gateway("endpoint_free = []").start();
    for (request, recorded) in &batches {
        let answer = gateway.post(request);
        if request.matches("\"method\"").count() == 2 {
            assert_eq!(&answer.body, recorded);
            continue;
        }
        // What is no Call is refused by the gateway itself, with the same code.
        let (ours, recorded): (serde_json::Value, serde_json::Value) =
            (answer.json(), serde_json::from_str(recorded).unwrap());
        assert_eq!(ours[0]["error"]["code"], recorded[0]["error"]["code"]);
        assert_eq!((&ours[0]["id"], &ours[1]), (&recorded[0]["id"], &recorded[1]));
    }
    assert_eq!((batches.len(), node.count()), (3, 5));
}
