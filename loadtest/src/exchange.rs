//! One request and its answer: how the generator asks and what the upstream sees; the results that belong to them.
//!
//! A gateway may give a Call another id on its way up, so the result follows from a mark in the params, which no
//! gateway may touch, while the id is checked on its own. An answer that was swapped and then given the right id
//! shows by its result; a right result under a foreign id shows by its id.

use std::io::Write as _;

use memchr::memmem::Finder;

use crate::{
    mixture::{Class, Mixture, Params},
    payload::{Template, hex, mix},
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
    pub fn calls(&self, n: u64) -> std::ops::Range<u64> {
        let first = n.saturating_mul(self.batch);
        first..first.saturating_add(self.batch)
    }

    /// Method and params of Call `n`.
    pub fn asks(&self, n: u64) -> (&'static str, Params) {
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
pub fn key(n: u64) -> [u8; KEY_DIGITS] {
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
pub fn value(bytes: &[u8]) -> &[u8] {
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
pub const BEFORE_ID: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":";
/// The answer's body between id and result.
pub const BEFORE_RESULT: &[u8] = b",\"result\":";

/// Bytes of an answer's body apart from its id and its result.
pub const ENVELOPE_BYTES: usize = BEFORE_ID.len() + BEFORE_RESULT.len() + 1;

/// Appends the answer's body up to the result.
pub fn append_answer_start(id: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(BEFORE_ID);
    out.extend_from_slice(id);
    out.extend_from_slice(BEFORE_RESULT);
}

/// The result of `eth_chainId`.
pub const CHAIN_ID: &[u8] = b"\"0x1\"";

/// Appends a height as a result.
pub fn append_height(height: u64, out: &mut Vec<u8>) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "\"{height:#x}\"");
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

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
}
