//! One request and its answer: how the generator asks, what the upstream sees, and how an answer is judged.
//!
//! A gateway may give a Call another id on its way up, so the result follows from a mark in the params, which no
//! gateway may touch, while the id is checked on its own. An answer that was swapped and then given the right id
//! shows by its result; a right result under a foreign id shows by its id.

use std::io::Write as _;

use memchr::memmem::{self, Finder};

use crate::{
    batch,
    mixture::{Class, Mixture, Params},
    payload::{Template, hex, mix, seed},
};

/// Starts the 32 bytes of hex in the params that carry the key (its last sixteen digits).
const MARK: &[u8] = b"\"0x52696e67";
/// Zeros between the mark and the key.
const MARK_ZEROS: usize = 40;
/// Digits of a key.
const KEY_DIGITS: usize = 16;
/// Results above this are asked for with `eth_getLogs`, below with `eth_call`.
const CALL_SIZE_MAX: usize = 1024;

/// A block number for those who ask for it: this height when an upstream starts, and more later.
pub const TIP: u64 = 0x131_2d00;
/// An upstream is at most this many blocks past its start.
const TIP_SPAN: u64 = 100_000;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// Bytes of each result, without a mix.
    pub size: usize,
    /// Calls in one request; with more than one, its body is an array.
    pub batch: u64,
    /// Methods and sizes as in [`crate::mixture`].
    pub mix: bool,
}

impl Work {
    /// Requests of one Call each, for results of `size` bytes.
    #[cfg(test)]
    pub fn single(size: usize) -> Self {
        Self { size, batch: 1, mix: false }
    }

    /// The numbers of the Calls in request `n`.
    fn calls(&self, n: u64) -> std::ops::Range<u64> {
        let first = n.saturating_mul(self.batch);
        first..first.saturating_add(self.batch)
    }

    /// Method and params of Call `n`.
    fn asks(&self, n: u64) -> (&'static str, Params) {
        if self.mix {
            let class = Class::of(n);
            (class.method, class.params)
        } else if self.size > CALL_SIZE_MAX {
            ("eth_getLogs", Params::Logs)
        } else {
            ("eth_call", Params::Call)
        }
    }
}

/// Writes the requests of a run; every Call has an id and a key of its own.
pub struct Asker {
    head: Vec<u8>,
    work: Work,
    body: Vec<u8>,
}

impl Asker {
    /// Asks at `path` of `host` for what `work` says.
    pub fn new(host: &str, path: &str, work: Work) -> Self {
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: ");
        Self { head: head.into_bytes(), work, body: Vec::with_capacity(512) }
    }

    /// Appends request number `n`.
    pub fn append(&mut self, n: u64, out: &mut Vec<u8>) {
        let body = &mut self.body;
        body.clear();
        if self.work.batch == 1 {
            append_call(n, self.work, body);
        } else {
            for call in self.work.calls(n) {
                body.push(if body.is_empty() { b'[' } else { b',' });
                append_call(call, self.work, body);
            }
            body.push(b']');
        }
        out.extend_from_slice(&self.head);
        append_decimal(body.len() as u64, out);
        out.extend_from_slice(b"\r\n\r\n");
        out.extend_from_slice(body);
    }
}

/// Appends Call number `n`. The id stands before the method or at the end, in turn.
fn append_call(n: u64, work: Work, out: &mut Vec<u8>) {
    let (method, params) = work.asks(n);
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\"");
    let id_last = n & 4 != 0;
    if !id_last {
        out.extend_from_slice(b",\"id\":");
        append_id(n, out);
    }
    out.extend_from_slice(b",\"method\":\"");
    out.extend_from_slice(method.as_bytes());
    let (before, after): (&[u8], &[u8]) = match params {
        Params::Call => (br#"[{"to":"0xdac17f958d2ee523a2206206994597c13d831ec7","data":"#, br#"},"latest"]"#),
        Params::Logs => (br#"[{"fromBlock":"0x1312d00","toBlock":"0x1312d10","topics":["#, b"]}]"),
        Params::AtLatest => (b"[", br#","latest"]"#),
        Params::Block => (br#"["latest",false,"#, b"]"),
        Params::Hash => (b"[", b"]"),
        Params::None => (b"[]", b""),
    };
    out.extend_from_slice(b"\",\"params\":");
    out.extend_from_slice(before);
    if params != Params::None {
        out.extend_from_slice(MARK);
        out.extend_from_slice(&[b'0'; MARK_ZEROS]);
        out.extend_from_slice(&key(n));
        out.push(b'"');
    }
    out.extend_from_slice(after);
    if id_last {
        out.extend_from_slice(b",\"id\":");
        append_id(n, out);
    }
    out.push(b'}');
}

/// The key of Call `n`.
fn key(n: u64) -> [u8; KEY_DIGITS] {
    hex(mix(n))
}

/// Appends the id of Call `n`: a number, a string, a string with escapes, or a number past 2^53, in turn.
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

/// What the upstream sees of a Call.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The method's name; empty where none is found.
    pub method: &'a [u8],
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
    method: Finder<'static>,
    mark: Finder<'static>,
}

impl Reader {
    /// A reader with its search tables.
    pub fn new() -> Self {
        Self { id: Finder::new(b"\"id\":"), method: Finder::new(b"\"method\":"), mark: Finder::new(MARK) }
    }

    /// Looks at a Call.
    pub fn see<'a>(&self, body: &'a [u8]) -> Seen<'a> {
        let id = self.id.find(body).and_then(|at| body.get(at + 5..)).map_or(b"null".as_slice(), value);
        let key = self.mark.find(body).and_then(|at| {
            let start = at + MARK.len() + MARK_ZEROS;
            body.get(start..start + KEY_DIGITS)
        });
        let method = self.method.find(body).and_then(|at| body.get(at + 9..)).map_or(b"".as_slice(), value);
        let method = method.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or_default();
        Seen { method, id, key: key.unwrap_or(id), marked: key.is_some() }
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

/// The results that belong to Calls: all of one size, or of a mix.
pub enum Results {
    /// One size.
    Same(Template),
    /// Sizes by method and key.
    Mixed(Mixture),
}

impl Results {
    /// Of one size, or of a mix.
    pub fn new(size: usize, mix: bool) -> Self {
        if mix { Self::Mixed(Mixture::new()) } else { Self::Same(Template::new(size)) }
    }

    /// The template of the result that belongs to a method and a key.
    pub fn template(&mut self, method: &[u8], key: &[u8]) -> &Template {
        match self {
            Self::Same(template) => template,
            Self::Mixed(mixture) => mixture.template(method, key),
        }
    }
}

/// Judges the answers of a run.
pub struct Judge {
    work: Work,
    results: Results,
    /// The height that the upstream told last.
    height: u64,
    expected: Vec<u8>,
}

impl Judge {
    /// Expects the answers to what `work` asks for.
    pub fn new(work: Work) -> Self {
        let (results, expected) = (Results::new(work.size, work.mix), Vec::with_capacity(work.size + 128));
        Self { work, results, height: TIP, expected }
    }

    /// Judges the body that came for request `n`.
    pub fn judge(&mut self, n: u64, body: &[u8]) -> Judgement {
        if self.work.batch == 1 {
            return self.judge_call(n, body);
        }
        self.expected.clear();
        for call in self.work.calls(n) {
            self.expected.push(if self.expected.is_empty() { b'[' } else { b',' });
            self.expect(call);
        }
        self.expected.push(b']');
        if body == self.expected.as_slice() { Judgement::Right } else { self.judge_members(n, body) }
    }

    /// The slow look at a batch: its members may come in any order, but each Call's must be among them.
    fn judge_members(&mut self, n: u64, body: &[u8]) -> Judgement {
        let Some(members) = batch::members(body) else { return Judgement::WrongPayload };
        if members.len() as u64 != self.work.batch {
            return Judgement::WrongId;
        }
        for (at, call) in self.work.calls(n).enumerate() {
            let in_place = members.get(at).map_or(Judgement::WrongId, |member| self.judge_call(call, member));
            let found = in_place == Judgement::Right
                || members.iter().any(|member| self.judge_call(call, member) == Judgement::Right);
            if !found {
                // Where another Call's answer stands, the order is free and what is missing is this one's.
                return in_place;
            }
        }
        Judgement::Right
    }

    /// Judges the answer to Call `n`.
    fn judge_call(&mut self, n: u64, body: &[u8]) -> Judgement {
        self.expected.clear();
        let (id_end, result_start) = self.expect(n);
        if body == self.expected.as_slice() {
            return Judgement::Right;
        }
        if self.asks_for_height(n)
            && let Some(height) = height(body).filter(|height| *height != self.height)
        {
            self.height = height;
            return self.judge_call(n, body);
        }
        let result_end = self.expected.len() - 1;
        let (id, result) = (&self.expected[BEFORE_ID.len()..id_end], &self.expected[result_start..result_end]);
        inspect(body, id, result)
    }

    fn asks_for_height(&self, n: u64) -> bool {
        self.work.asks(n).0 == "eth_blockNumber"
    }

    /// Appends the answer to Call `n` to what is expected. Says where its id ends and its result begins.
    fn expect(&mut self, n: u64) -> (usize, usize) {
        let expected = &mut self.expected;
        expected.extend_from_slice(BEFORE_ID);
        append_id(n, expected);
        let id_end = expected.len();
        expected.extend_from_slice(BEFORE_RESULT);
        let result_start = expected.len();
        match self.work.asks(n) {
            ("eth_chainId", _) => expected.extend_from_slice(CHAIN_ID),
            ("eth_blockNumber", _) => append_height(self.height, expected),
            (method, _) => {
                let key = key(n);
                self.results.template(method.as_bytes(), &key).append(seed(&key), expected);
            }
        }
        expected.push(b'}');
        (id_end, result_start)
    }
}

/// The result of `eth_chainId`.
pub const CHAIN_ID: &[u8] = b"\"0x1\"";

/// Appends a height as a result.
pub fn append_height(height: u64, out: &mut Vec<u8>) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "\"{height:#x}\"");
}

/// The height that an answer tells, if an upstream can have got there.
fn height(body: &[u8]) -> Option<u64> {
    const BEFORE: &[u8] = b"\"result\":\"0x";
    let rest = body.get(memmem::find(body, BEFORE)? + BEFORE.len()..)?;
    let digits = rest.get(..memchr::memchr(b'"', rest)?)?;
    let height = u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
    (TIP..TIP + TIP_SPAN).contains(&height).then_some(height)
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
        Asker::new("h", "/eth", Work::single(size)).append(n, &mut out);
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
                assert_eq!(Judge::new(Work::single(size)).judge(n, &answer(seen.id, seen.key, size)), Judgement::Right);
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
        let mut judge = Judge::new(Work::single(120));
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
        let mut judge = Judge::new(Work::single(2000));
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
        assert_eq!(Judge::new(Work::single(120)).judge(0, &swapped), Judgement::Right);
    }

    const BATCH: Work = Work { size: 120, batch: 20, mix: false };
    const MIX: Work = Work { size: 120, batch: 1, mix: true };

    /// What an upstream answers to the members of a batch.
    fn member_answers(n: u64) -> Vec<Vec<u8>> {
        let mut message = Vec::new();
        Asker::new("h", "/eth", BATCH).append(n, &mut message);
        let reader = Reader::new();
        let asked = batch::members(body(&message)).unwrap();
        asked.iter().map(|call| reader.see(call)).map(|seen| answer(seen.id, seen.key, 120)).collect()
    }

    fn array(members: &[Vec<u8>]) -> Vec<u8> {
        [b"[".as_slice(), &members.join(b",".as_slice()), b"]"].concat()
    }

    #[test]
    fn a_batch_is_right_in_any_order() {
        let mut judge = Judge::new(BATCH);
        for n in 0..3 {
            let mut members = member_answers(n);
            assert_eq!(members.len(), 20);
            assert_eq!(judge.judge(n, &array(&members)), Judgement::Right);
            members.reverse();
            assert_eq!(judge.judge(n, &array(&members)), Judgement::Right);
            assert_eq!(judge.judge(n + 1, &array(&members)), Judgement::WrongId);
        }
    }

    #[test]
    fn one_wrong_member_of_a_batch_is_seen() {
        let (mut judge, right) = (Judge::new(BATCH), member_answers(2));
        for at in 0..right.len() {
            let with = |member: Vec<u8>| {
                let mut members = right.clone();
                members[at] = member;
                array(&members)
            };
            let mut changed = right[at].clone();
            let place = changed.len() - 10;
            changed[place] ^= 1;
            assert_eq!(judge.judge(2, &with(changed)), Judgement::WrongPayload, "member {at}");
            // Another one twice, with this one missing.
            assert_eq!(judge.judge(2, &with(right[(at + 1) % 20].clone())), Judgement::WrongId, "member {at}");
            let mut id = Vec::new();
            append_id(40 + at as u64, &mut id);
            let error = [b"{\"id\":", id.as_slice(), b",\"error\":{\"code\":-32055}}"].concat();
            assert_eq!(judge.judge(2, &with(error)), Judgement::RpcError, "member {at}");
        }
        assert_eq!(judge.judge(2, &array(&right[1..])), Judgement::WrongId);
        assert_eq!(judge.judge(2, &right[0]), Judgement::WrongPayload);
        assert_eq!(judge.judge(2, b"[{"), Judgement::WrongPayload);
    }

    #[test]
    fn a_mix_asks_for_every_method_and_swapped_results_show() {
        let (mut judge, mut results, reader) = (Judge::new(MIX), Results::new(0, true), Reader::new());
        let mut methods = HashSet::new();
        for n in 0..400 {
            let mut message = Vec::new();
            Asker::new("h", "/eth", MIX).append(n, &mut message);
            let seen = reader.see(body(&message));
            methods.insert(seen.method.to_vec());
            if !seen.marked {
                continue;
            }
            let mut right = |key: &[u8]| {
                let mut out = Vec::new();
                append_answer_start(seen.id, &mut out);
                results.template(seen.method, key).append(seed(key), &mut out);
                out.push(b'}');
                out
            };
            let (own, others) = (right(seen.key), right(&key(n + 1)));
            assert_eq!(judge.judge(n, &own), Judgement::Right, "request {n}");
            assert_eq!(judge.judge(n, &others), Judgement::WrongPayload, "request {n}");
        }
        assert_eq!(methods.len(), crate::mixture::CLASSES.len());
    }

    #[test]
    fn a_height_may_have_grown_and_nothing_else() {
        let mut judge = Judge::new(MIX);
        let n = (0..).find(|n| Class::of(*n).method == "eth_blockNumber").unwrap();
        let mut told = |result: &str| {
            let mut out = Vec::new();
            append_answer_start(
                &{
                    let mut id = Vec::new();
                    append_id(n, &mut id);
                    id
                },
                &mut out,
            );
            out.extend_from_slice(result.as_bytes());
            out.push(b'}');
            judge.judge(n, &out)
        };
        for result in ["\"0x1312d00\"", "\"0x1312d07\"", "\"0x1312d00\""] {
            assert_eq!(told(result), Judgement::Right, "{result}");
        }
        for result in ["\"0x1312cff\"", "\"0x01312d00\"", "\"0x1312D00\"", "\"0x2\"", "null", "\"0x1312d00"] {
            assert_eq!(told(result), Judgement::WrongPayload, "{result}");
        }
    }
}
