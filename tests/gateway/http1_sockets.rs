//! Messages that were made to be misread, over real sockets: as requests to a running gateway, and as answers to it.
//! Each is sent as it is, and once more armed: with a Call in its body that must get through or must not.

use super::client::Client;
use super::harness::{Reply, Seen, Setup, Upstream, call_body, in_threads, request};
use super::vectors::{Expected, STRICTER, Vector, plain_messages, vectors, with_hosts};
use std::collections::BTreeMap;
use std::sync::Arc;

const THREADS: usize = 6;
/// Statuses of a head or a body that nobody may read in two ways.
const REFUSALS: [u16; 4] = [400, 417, 431, 505];

/// An answer as seen by somebody who does not know what was asked: status, head, body.
type Answer = (u16, String, String);

/// Sends all of it, says that no more will come, and reads to the end.
fn exchange(mut client: Client, bytes: &[u8]) -> Vec<Answer> {
    client.send(bytes).finish();
    let text = String::from_utf8(client.rest()).unwrap();
    let (mut rest, mut answers) = (text.as_str(), Vec::new());
    while !rest.is_empty() {
        let (head, behind) = rest.split_once("\r\n\r\n").unwrap_or_else(|| panic!("half a head: {text:?}"));
        let words: Vec<&str> = head.splitn(3, ' ').collect();
        assert!(words.len() == 3 && words[0] == "HTTP/1.1", "no answer: {rest:?}");
        let status = words[1].parse().unwrap();
        // The answer to HEAD tells a length, and has no body.
        let length = head.to_ascii_lowercase();
        let length = length.split_once("content-length: ").map_or("0", |(_, rest)| rest.lines().next().unwrap());
        let length = if behind.starts_with('{') { length.parse().unwrap() } else { 0 };
        let (body, next) = behind.split_at_checked(length).unwrap_or_else(|| panic!("half a body: {text:?}"));
        if status >= 200 {
            answers.push((status, head.to_owned(), body.to_owned()));
        }
        rest = next;
    }
    answers
}

fn call(token: &str) -> String {
    call_body("1", "eth_call", &format!("[\"{token}\"]"))
}

fn post(token: &str) -> String {
    let body = call(token);
    format!("{}{body}", request("/eth", &["Connection: close"], body.len()))
}

fn token(seen: &Seen) -> String {
    seen.json()["params"][0].as_str().unwrap_or_else(|| panic!("a stranger: {}", seen.text())).to_owned()
}

/// Each Call that should have arrived arrived once, and nothing else did.
fn assert_arrived(node: &Upstream, mut expected: BTreeMap<String, usize>) {
    for seen in node.seen() {
        let token = token(&seen);
        assert_eq!(seen.text(), call(&token), "it went up in another form");
        let left = expected.get_mut(&token).unwrap_or_else(|| panic!("{token} got through"));
        *left = left.checked_sub(1).unwrap_or_else(|| panic!("{token} got through twice"));
    }
    expected.retain(|_, left| *left > 0);
    assert!(expected.is_empty(), "not arrived: {expected:?}");
}

fn echoing() -> Upstream {
    Upstream::start(|seen| Reply::result(seen, &format!("\"{}\"", token(seen))))
}

fn is_refusal(answer: &Answer) -> bool {
    REFUSALS.contains(&answer.0) && answer.1.to_ascii_lowercase().contains("\r\nconnection: close")
}

/// Whether these answers are right for a vector with a good request behind it, and whether that was answered.
/// `aimed` = its first line is a Call's.
fn judge(vector: &Vector, aimed: bool, bytes: &[u8], good: &str, answers: &[Answer]) -> Result<bool, String> {
    let result = format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{good}"}}"#);
    let served = answers.iter().filter(|answer| answer.2 == result).count();
    let last = answers.last();
    if served > 1 || (served == 1 && last.is_none_or(|last| last.2 != result)) {
        return Err(format!("the good request was answered {served} times"));
    }
    if answers.iter().any(|answer| answer.2 != result && !answer.2.is_empty() && !answer.2.contains("\"ringway\"")) {
        return Err("an answer that nobody gave".into());
    }
    let closes = |answer: &Answer| answer.1.to_ascii_lowercase().contains("\r\nconnection: close");
    // With a path that is none, an answer may go out before the body has come; then nothing of it is read.
    let refused = |answer: &Answer| if aimed { is_refusal(answer) } else { closes(answer) };
    let own = || plain_messages(true, &bytes[..bytes.len() - post(good).len()]);
    let right = match vector.wanted() {
        Expected::Refuse => served == 0 && last.is_some_and(refused),
        Expected::RefuseFirst => answers.len() == 1 && last.is_some_and(is_refusal),
        Expected::AcceptFirst => served == 1 || last.is_some_and(closes),
        // Cut short: the good request is taken for the rest of it, or for nothing.
        Expected::Accept if own().last().is_none_or(|(_, _, whole)| !whole) => served == 0 && last.is_some_and(closes),
        Expected::Accept => {
            let messages = plain_messages(true, bytes);
            let good = messages.iter().any(|(_, body, _)| *body == call(good).into_bytes());
            match served {
                1 => good && answers.len() == messages.len(),
                _ => {
                    last.is_some_and(closes)
                        && answers.len() <= messages.len()
                        && (!good || answers.len() < messages.len())
                }
            }
        }
    };
    if right { Ok(served == 1) } else { Err(format!("{answers:?}")) }
}

#[test]
fn as_requests_none_is_misread_and_the_next_is_answered_right() {
    let Some(vectors) = vectors() else { return };
    let vectors: Vec<Vector> = vectors.into_iter().filter(|vector| vector.request).collect();
    let node = echoing();
    let gateway = Setup::of(&[&node]).no_circuit().start();
    let (served, faults) = (std::sync::Mutex::new(BTreeMap::new()), std::sync::Mutex::new(Vec::new()));
    in_threads(THREADS, &vectors, |at, vector| {
        let as_it_is = with_hosts(&vector.bytes);
        let aimed = aimed(vector, &as_it_is);
        for (aimed, own) in [(false, Some(as_it_is)), (true, aimed)] {
            let Some(own) = own else { continue };
            let good = format!("good-{at}-{aimed}");
            let bytes = [&own, post(&good).as_bytes()].concat();
            let answers = exchange(gateway.connect(), &bytes);
            match judge(vector, aimed, &bytes, &good, &answers) {
                Ok(true) => drop(served.lock().unwrap().insert(good, 1)),
                Ok(false) => {}
                Err(why) => {
                    let shown = bytes[..bytes.len().min(200)].escape_ascii();
                    faults.lock().unwrap().push(format!("{} ({:?}): {why}\n    {shown}", vector.name, vector.says));
                }
            }
        }
    });
    let (served, faults) = (served.into_inner().unwrap(), faults.into_inner().unwrap());
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), vectors.len(), faults.join("\n"));
    let aimed = vectors.iter().filter(|vector| aimed(vector, &with_hosts(&vector.bytes)).is_some()).count();
    eprintln!("{} as they are, {aimed} under the first line of a Call, {} went on", vectors.len(), served.len());
    assert!(served.len() > 50, "hardly any good request was answered: {}", served.len());
    assert_arrived(&node, served);
}

/// The head of a vector as one for a Call; `None` = it has no end, or its fault lies behind it.
fn armed_head(vector: &Vector) -> Option<Vec<u8>> {
    let bytes = with_hosts(&vector.bytes);
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 2;
    let (line, fields) = bytes[..end].split_at(bytes.windows(2).position(|two| two == b"\r\n")?);
    let line = std::str::from_utf8(line).ok()?;
    let words: Vec<&str> = line.split(' ').collect();
    if vector.request {
        let plain = words.len() == 3 && words[0].bytes().all(|byte| byte.is_ascii_uppercase());
        if !plain || !words[2].starts_with("HTTP/1.") {
            return None;
        }
    }
    let line = if vector.request { format!("POST /eth {}", words[2]) } else { line.to_owned() };
    let json: &[u8] = match vector.request && !has(fields, "\r\ncontent-type:") {
        true => b"Content-Type: application/json\r\n",
        false => b"",
    };
    Some([line.as_bytes(), fields, json].concat())
}

/// The whole vector with its first line and content type those of a Call; `None` = that would mend it.
fn aimed(vector: &Vector, bytes: &[u8]) -> Option<Vec<u8>> {
    let accepted = matches!(vector.wanted(), Expected::Accept | Expected::AcceptFirst);
    if !accepted && !is_bad_behind_its_line(vector) {
        return None;
    }
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 2;
    Some([&with_value(&armed_head(vector)?, "Content-Type", "application/json"), &bytes[end..]].concat())
}

/// Whether it is refused for something behind its first line: that stays when another line stands in front.
fn is_bad_behind_its_line(vector: &Vector) -> bool {
    let elsewhere = ["CRLF between requests", "Second request", "Should parse multiple events"];
    let stricter = STRICTER.iter().any(|(name, why)| *name == vector.name && !why.contains("coding"));
    let line = ["error:6", "error:7", "error:8", "error:9"].iter().any(|code| vector.says.starts_with(code));
    !stricter && !line && !elsewhere.iter().any(|name| vector.name.contains(name))
}

/// Whether its fault lies in its chunks: it would be good with others.
fn is_bad_in_its_chunks(vector: &Vector) -> bool {
    vector.says.contains("hunk") || ["hunk header", "hunk data"].iter().any(|part| vector.name.contains(part))
}

/// Puts these bytes in place of the value of a field, wherever it stands in a line of its own.
fn with_value(head: &[u8], name: &str, value: &str) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        let named = line.len() > name.len() && line[..name.len()].eq_ignore_ascii_case(name.as_bytes());
        match named && line[name.len()] == b':' {
            true => lines.push(format!("{name}: {value}\r\n").into_bytes()),
            false => lines.push(line.to_vec()),
        }
    }
    lines.concat()
}

fn has(head: &[u8], text: &str) -> bool {
    String::from_utf8_lossy(head).to_ascii_lowercase().contains(text)
}

fn in_one_chunk(body: &str) -> String {
    format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}

#[test]
fn as_requests_with_a_call_what_is_ambiguous_smuggles_nothing() {
    let Some(vectors) = vectors() else { return };
    let wanted = |vector: &Vector| vector.request && vector.wanted() == Expected::RefuseFirst;
    let vectors: Vec<Vector> = vectors.into_iter().filter(wanted).collect();
    let node = echoing();
    let gateway = Setup::of(&[&node]).no_circuit().start();
    in_threads(THREADS, &vectors, |_, vector| {
        let head = with_value(&armed_head(vector).unwrap(), "Content-Type", "application/json");
        // Who goes by the length reads one request, who goes by the chunks two; and the other way round.
        let hidden = post("hidden");
        let by_length = format!("{}{hidden}", in_one_chunk(&call("by chunks")));
        let whole_length = by_length.len().to_string();
        let by_chunks = in_one_chunk(&hidden);
        let short_length = by_chunks.find(&hidden).unwrap().to_string();
        for (length, body) in [(whole_length, by_length), (short_length, by_chunks)] {
            let bytes = [&with_value(&head, "Content-Length", &length), b"\r\n".as_slice(), body.as_bytes()].concat();
            let answers = exchange(gateway.connect(), &bytes);
            let refused = answers.len() == 1 && is_refusal(&answers[0]);
            assert!(refused, "{}: {answers:?}\n{}", vector.name, bytes.escape_ascii());
        }
    });
    eprintln!("{} ambiguous ones, each in two readings", vectors.len());
    assert!(vectors.len() > 600, "only {}", vectors.len());
    assert_eq!((node.connections(), node.count()), (0, 0));
}

#[test]
fn as_requests_with_a_call_the_good_ones_get_through() {
    let Some(vectors) = vectors() else { return };
    let mut expected = BTreeMap::new();
    let mut streams = Vec::new();
    for (at, vector) in vectors.iter().enumerate().filter(|(_, vector)| vector.request) {
        let Some(head) = armed_head(vector) else { continue };
        let accepted = matches!(vector.wanted(), Expected::Accept | Expected::AcceptFirst);
        // What is refused for its chunks, or for what it says of its body, would be good with the body of a Call.
        let other = (!accepted && is_bad_in_its_chunks(vector)) || vector.name.ends_with("contentEnc");
        if other || vector.wanted() == Expected::RefuseFirst || (!accepted && !is_bad_behind_its_line(vector)) {
            continue;
        }
        let (token, name) = (format!("armed-{at}"), vector.name.as_str());
        let body = call(&token);
        let head = with_value(&head, "Content-Type", "application/json");
        // A length that is wrong as such stays wrong.
        let (head, body) = match (has(&head, "transfer-encoding"), has(&head, "\r\ncontent-length:")) {
            (true, _) => (head, in_one_chunk(&body)),
            (false, true) if accepted => (with_value(&head, "Content-Length", &body.len().to_string()), body),
            (false, true) => (head, body),
            (false, false) => ([&head, format!("Content-Length: {}\r\n", body.len()).as_bytes()].concat(), body),
        };
        if accepted {
            expected.insert(token.clone(), 1);
        }
        streams.push((accepted, name, [&head, b"\r\n".as_slice(), body.as_bytes(), post("next").as_bytes()].concat()));
    }
    let node = echoing();
    let gateway = Setup::of(&[&node]).no_circuit().start();
    let next = std::sync::Mutex::new(0);
    in_threads(THREADS, &streams, |_, (accepted, name, bytes)| {
        let answers = exchange(gateway.connect(), bytes);
        let shown = || format!("{name}: {answers:?}\n    {}", bytes.escape_ascii());
        if *accepted {
            assert!(answers.len() <= 2 && answers[0].2.contains("\"result\":\"armed-"), "{}", shown());
            if answers.len() == 2 {
                assert!(answers[1].2.contains("\"result\":\"next\""), "{}", shown());
                *next.lock().unwrap() += 1;
            }
        } else {
            assert!(answers.len() == 1 && is_refusal(&answers[0]), "{}", shown());
        }
    });
    eprintln!("{} with the body of a Call, {} of them good", streams.len(), expected.len());
    assert!(expected.len() > 50, "only {} good ones", expected.len());
    expected.insert("next".into(), next.into_inner().unwrap());
    assert_arrived(&node, expected);
}

/// What the node that speaks the vector says under an armed one; `None` = it can't be armed.
fn armed_answer(vector: &Vector, body: &str) -> Option<Vec<u8>> {
    let head = armed_head(vector)?;
    let elsewhere = is_bad_in_its_chunks(vector) || vector.name.contains("multiple events");
    if vector.wanted() == Expected::Refuse && elsewhere {
        return None;
    }
    let status = String::from_utf8_lossy(&head).split(' ').nth(1)?.to_owned();
    if status.starts_with('1') {
        return None;
    }
    let body = if has(&head, "transfer-encoding") { in_one_chunk(body) } else { body.to_owned() };
    let head = with_value(&head, "Content-Length", &body.len().to_string());
    Some([&head, b"\r\n".as_slice(), body.as_bytes()].concat())
}

/// Whether an armed vector is an answer with a Call's result in it.
fn is_delivered(vector: &Vector) -> bool {
    let head = String::from_utf8_lossy(&vector.bytes).into_owned();
    let status = head.split([' ', '\r']).nth(1).unwrap_or_default().to_owned();
    vector.wanted() != Expected::Refuse && ["200", "404", "500"].contains(&status.as_str())
}

#[test]
fn as_answers_none_is_misread_and_no_connection_is_used_again() {
    let Some(vectors) = vectors() else { return };
    let vectors: Arc<Vec<Vector>> = Arc::new(vectors.into_iter().filter(|vector| !vector.request).collect());
    let known = vectors.clone();
    // Params: which vector, and how it is said.
    let crafty = Upstream::start(move |seen| {
        let json = seen.json();
        let Some(vector) = json["params"][0].as_u64().map(|at| &known[at as usize]) else {
            return Reply::result(seen, &json["params"][0].to_string());
        };
        let body = super::harness::result_body(seen, "\"armed\"");
        match json["params"][1].as_str().unwrap() {
            "open" => Reply::raw(&vector.bytes),
            "closed" => Reply::raw(&vector.bytes).then_close(),
            "dripping" => Reply::raw(&vector.bytes).dripping().then_close(),
            _ => Reply::raw(armed_answer(vector, &body).unwrap()).then_close(),
        }
    });
    let honest = Upstream::answering("\"honest\"");
    let gateway = Setup::of(&[&crafty, &honest]).no_circuit().route("attempt_timeout = \"700ms\"").start();
    let armed = std::sync::atomic::AtomicUsize::new(0);
    in_threads(THREADS, &vectors, |at, vector| {
        let mut client = gateway.connect();
        for how in ["open", "closed", "dripping", "armed"] {
            if how == "armed" && armed_answer(vector, "").is_none() {
                continue;
            }
            let answer = client.ask(call_body("1", "eth_call", &format!("[{at},\"{how}\"]")));
            let delivered = how == "armed" && is_delivered(vector);
            let result = if delivered { "armed" } else { "honest" };
            let told = format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{result}"}}"#);
            assert_eq!(answer.body, told, "{} {how} {:?}", vector.name, vector.bytes.escape_ascii().to_string());
            armed.fetch_add(usize::from(delivered), std::sync::atomic::Ordering::Relaxed);
            // The next Call may get the very same connection.
            let next = format!("\"next-{at}-{how}\"");
            client.ask(call_body("1", "eth_call", &format!("[{next}]"))).assert_result("1", &next);
        }
    });
    let mut over = BTreeMap::new();
    for seen in crafty.seen() {
        let params = &seen.json()["params"];
        let before = over.insert(seen.connection, params[0].as_u64());
        if let Some(Some(at)) = before {
            let vector = &vectors[at as usize];
            let why = format!("{} was followed by another request", vector.name);
            assert!(vector.wanted() == Expected::Accept, "{why}");
        }
    }
    let fit = vectors.iter().filter(|vector| armed_answer(vector, "").is_some()).count();
    let delivered = armed.into_inner();
    eprintln!("{} as they are, {fit} with an answer in the body, {delivered} of them delivered", vectors.len());
    assert!(vectors.len() > 80 && delivered > 20, "{}", vectors.len());
}
