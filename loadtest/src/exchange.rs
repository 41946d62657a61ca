//! One request and its answer: how the generator asks, what the upstream sees, and how an answer is judged.
//!
//! A gateway may give a Call another id on its way up, so the result follows from a mark in the params, which no
//! gateway may touch, while the id is checked on its own. An answer that was swapped and then given the right id
//! shows by its result; a right result under a foreign id shows by its id.

use std::io::Write as _;

use memchr::memmem::{self, Finder};

use crate::payload::{Template, hex, mix, seed};

/// Starts the 32 bytes of hex in the params that carry the key (its last sixteen digits).
const MARK: &[u8] = b"\"0x52696e67";
/// Zeros between the mark and the key.
const MARK_ZEROS: usize = 40;
/// Digits of a key.
const KEY_DIGITS: usize = 16;
/// Results above this are asked for with `eth_getLogs`, below with `eth_call`.
const CALL_SIZE_MAX: usize = 1024;

/// Writes the requests of a run; every one has an id and a key of its own.
pub struct Asker {
    head: Vec<u8>,
    logs: bool,
    body: Vec<u8>,
}

impl Asker {
    /// Asks at `path` of `host` for results of `size` bytes.
    pub fn new(host: &str, path: &str, size: usize) -> Self {
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: ");
        Self { head: head.into_bytes(), logs: size > CALL_SIZE_MAX, body: Vec::with_capacity(512) }
    }

    /// Appends request number `n`. The id stands before the method or at the end, in turn.
    pub fn append(&mut self, n: u64, out: &mut Vec<u8>) {
        let body = &mut self.body;
        body.clear();
        body.extend_from_slice(b"{\"jsonrpc\":\"2.0\"");
        let id_last = n & 4 != 0;
        if !id_last {
            body.extend_from_slice(b",\"id\":");
            append_id(n, body);
        }
        body.extend_from_slice(if self.logs {
            br#","method":"eth_getLogs","params":[{"fromBlock":"0x1312d00","toBlock":"0x1312d10","topics":["#
        } else {
            br#","method":"eth_call","params":[{"to":"0xdac17f958d2ee523a2206206994597c13d831ec7","data":"#
        });
        body.extend_from_slice(MARK);
        body.extend_from_slice(&[b'0'; MARK_ZEROS]);
        body.extend_from_slice(&key(n));
        body.extend_from_slice(if self.logs { b"\"]}]" } else { b"\"},\"latest\"]" });
        if id_last {
            body.extend_from_slice(b",\"id\":");
            append_id(n, body);
        }
        body.push(b'}');
        out.extend_from_slice(&self.head);
        append_decimal(body.len() as u64, out);
        out.extend_from_slice(b"\r\n\r\n");
        out.extend_from_slice(body);
    }
}

/// The key of request `n`.
fn key(n: u64) -> [u8; KEY_DIGITS] {
    hex(mix(n))
}

/// Appends the id of request `n`: a number, a string, a string with escapes, or a number past 2^53, in turn.
pub fn append_id(n: u64, out: &mut Vec<u8>) {
    let (before, after): (&[u8], &[u8]) = match n % 4 {
        0 => (b"", b""),
        1 => (b"\"req-", b"\""),
        2 => (br#""q\"\u00e9\\"#, b"\""),
        _ => (b"9007199254740993", b""),
    };
    out.extend_from_slice(before);
    append_decimal(n, out);
    out.extend_from_slice(after);
}

/// Appends `value` in decimal digits.
pub fn append_decimal(value: u64, out: &mut Vec<u8>) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "{value}");
}

/// What the upstream sees of a request body.
pub struct Seen<'a> {
    /// The id's bytes; `null` where none is found.
    pub id: &'a [u8],
    /// What the result follows from: the key in the params, or else the id.
    pub key: &'a [u8],
    /// The params carry a key, so the request is the generator's, not a gateway's own.
    pub marked: bool,
}

/// Finds ids and keys by search alone: a request is trusted to be JSON.
pub struct Reader {
    id: Finder<'static>,
    mark: Finder<'static>,
}

impl Reader {
    /// A reader with its search tables.
    pub fn new() -> Self {
        Self { id: Finder::new(b"\"id\":"), mark: Finder::new(MARK) }
    }

    /// Looks at a request body.
    pub fn see<'a>(&self, body: &'a [u8]) -> Seen<'a> {
        let id = self.id.find(body).and_then(|at| body.get(at + 5..)).map_or(b"null".as_slice(), value);
        let key = self.mark.find(body).and_then(|at| {
            let start = at + MARK.len() + MARK_ZEROS;
            body.get(start..start + KEY_DIGITS)
        });
        Seen { id, key: key.unwrap_or(id), marked: key.is_some() }
    }
}

/// The string, number or word at the start of `bytes`, after blanks.
fn value(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.trim_ascii_start();
    if bytes.first() == Some(&b'"') {
        let mut at = 1;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'"' => return &bytes[..=at],
                b'\\' => at += 2,
                _ => at += 1,
            }
        }
        return b"null";
    }
    let end = bytes.iter().position(|byte| matches!(byte, b',' | b'}' | b' ' | b'\r' | b'\n' | b'\t'));
    match end {
        Some(0) | None => b"null",
        Some(end) => &bytes[..end],
    }
}

/// The answer's body up to its id.
const BEFORE_ID: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":";
/// The answer's body between id and result.
const BEFORE_RESULT: &[u8] = b",\"result\":";

/// Bytes of an answer's body apart from its id and its result.
pub const ENVELOPE_BYTES: usize = BEFORE_ID.len() + BEFORE_RESULT.len() + 1;

/// Appends the answer's body up to the result.
pub fn append_answer_start(id: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(BEFORE_ID);
    out.extend_from_slice(id);
    out.extend_from_slice(BEFORE_RESULT);
}

/// What an answer's body turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// The id and the result of the request, byte for byte.
    Right,
    /// Another id, or none.
    WrongId,
    /// The right id with another result.
    WrongPayload,
    /// The right id with a JSON-RPC error.
    RpcError,
}

/// Judges the answers of a run.
pub struct Judge {
    template: Template,
    expected: Vec<u8>,
}

impl Judge {
    /// Expects results of `size` bytes.
    pub fn new(size: usize) -> Self {
        Self { template: Template::new(size), expected: Vec::with_capacity(size + 128) }
    }

    /// Judges the body that came for request `n`.
    pub fn judge(&mut self, n: u64, body: &[u8]) -> Judgement {
        let expected = &mut self.expected;
        expected.clear();
        expected.extend_from_slice(BEFORE_ID);
        append_id(n, expected);
        let id_end = expected.len();
        expected.extend_from_slice(BEFORE_RESULT);
        let result_start = expected.len();
        self.template.append(seed(&key(n)), expected);
        let result_end = expected.len();
        expected.push(b'}');
        if body == expected.as_slice() {
            return Judgement::Right;
        }
        let (id, result) = (&expected[BEFORE_ID.len()..id_end], &expected[result_start..result_end]);
        inspect(body, id, result)
    }
}

/// The slow look at an answer that isn't as expected: says what is wrong, or that only the members' order differs.
fn inspect(body: &[u8], id: &[u8], result: &[u8]) -> Judgement {
    let result_first = [b"{\"jsonrpc\":\"2.0\",\"result\":", result, b",\"id\":", id, b"}"].concat();
    if body == result_first {
        return Judgement::Right;
    }
    let found = memmem::find_iter(body, b"\"id\":").any(|at| value(&body[at + 5..]) == id);
    if !found {
        Judgement::WrongId
    } else if memmem::find(body, b"\"error\":").is_some() {
        Judgement::RpcError
    } else {
        Judgement::WrongPayload
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn request(n: u64, size: usize) -> Vec<u8> {
        let mut out = Vec::new();
        Asker::new("h", "/eth", size).append(n, &mut out);
        out
    }

    fn body(message: &[u8]) -> &[u8] {
        let at = memmem::find(message, b"\r\n\r\n").unwrap();
        &message[at + 4..]
    }

    fn answer(id: &[u8], key: &[u8], size: usize) -> Vec<u8> {
        let mut out = Vec::new();
        append_answer_start(id, &mut out);
        Template::new(size).append(seed(key), &mut out);
        out.push(b'}');
        out
    }

    #[test]
    fn the_upstream_sees_the_id_and_key_that_were_asked() {
        for size in [120, 5000] {
            for n in 0..64 {
                let message = request(n, size);
                let seen = Reader::new().see(body(&message));
                let mut id = Vec::new();
                append_id(n, &mut id);
                assert_eq!(seen.id, id);
                assert_eq!(seen.key, key(n));
                assert!(seen.marked);
                assert_eq!(Judge::new(size).judge(n, &answer(seen.id, seen.key, size)), Judgement::Right);
            }
        }
    }

    #[test]
    fn no_two_requests_share_an_id_or_a_key() {
        let (mut ids, mut keys) = (HashSet::new(), HashSet::new());
        for n in 0..10_000 {
            let mut id = Vec::new();
            append_id(n, &mut id);
            assert!(ids.insert(id));
            assert!(keys.insert(key(n)));
        }
    }

    #[test]
    fn a_request_without_a_mark_is_answered_by_its_id() {
        let reader = Reader::new();
        for (body, id) in [
            (r#"{"id": "a\\\"b" ,"method":"m"}"#, r#""a\\\"b""#),
            (r#"{"method":"m","id":-1.5e3}"#, "-1.5e3"),
            (r#"{"method":"m"}"#, "null"),
            (r#"{"method":"m","id":"#, "null"),
            (r#"{"method":"m","id":"open\"#, "null"),
            (r#"{"method":"m","id":7"#, "null"),
        ] {
            let seen = reader.see(body.as_bytes());
            assert_eq!((seen.id, seen.key, seen.marked), (id.as_bytes(), id.as_bytes(), false), "{body}");
        }
    }

    #[test]
    fn a_key_cut_short_is_no_key() {
        let cut = br#"{"id":7,"params":["0x52696e6700"]}"#;
        assert!(!Reader::new().see(cut).marked);
    }

    #[test]
    fn a_judge_tells_wrong_ids_results_and_errors_apart() {
        let mut judge = Judge::new(120);
        for n in 0..8 {
            let mut id = Vec::new();
            append_id(n, &mut id);
            let right = answer(&id, &key(n), 120);
            assert_eq!(judge.judge(n, &right), Judgement::Right);
            assert_eq!(judge.judge(n, &answer(&id, &key(n + 4), 120)), Judgement::WrongPayload);
            assert_eq!(judge.judge(n, &answer(b"77", &key(n), 120)), Judgement::WrongId);
            assert_eq!(judge.judge(n, &right[..right.len() - 1]), Judgement::WrongPayload);
            assert_eq!(judge.judge(n, b""), Judgement::WrongId);
            let error = [b"{\"id\":", id.as_slice(), b",\"error\":{\"code\":-32000}}"].concat();
            assert_eq!(judge.judge(n, &error), Judgement::RpcError);
        }
    }

    #[test]
    fn each_changed_byte_of_an_answer_is_seen() {
        let mut judge = Judge::new(2000);
        let mut id = Vec::new();
        append_id(5, &mut id);
        let right = answer(&id, &key(5), 2000);
        for at in 0..right.len() {
            let mut wrong = right.clone();
            wrong[at] ^= 1;
            assert_ne!(judge.judge(5, &wrong), Judgement::Right, "byte {at}");
        }
    }

    #[test]
    fn the_order_of_the_members_is_free() {
        let mut result = Vec::new();
        Template::new(120).append(seed(&key(0)), &mut result);
        let swapped = [b"{\"jsonrpc\":\"2.0\",\"result\":", result.as_slice(), b",\"id\":0}"].concat();
        assert_eq!(Judge::new(120).judge(0, &swapped), Judgement::Right);
    }
}
