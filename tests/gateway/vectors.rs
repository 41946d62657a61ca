//! Raw HTTP/1.1 messages that were made to be misread (llhttp's and smuggler's vectors), and how they must be judged.
//!
//! By RFC 9112, not by what those parsers do: what a strict one refuses must be refused here, what it accepts must be
//! framed right. Each vector on which Ringway differs from strict llhttp stands below by name.

use std::collections::BTreeMap;

/// Accepted by strict llhttp, refused here.
pub const STRICTER: &[(&str, &str)] = &[
    ("request: M-SEARCH request", "`*` is for OPTIONS alone"),
    ("request: PRI request HTTP2", "`*` is for OPTIONS alone, and HTTP/2 is not spoken"),
    ("request: CONNECT request", "authority form: Ringway is no tunnel"),
    ("request: CONNECT request with CAPS", "authority form"),
    ("request: CONNECT with body", "authority form"),
    ("request: Underscore in hostname", "authority form"),
    ("request: SOURCE request with ICE", "not HTTP"),
    ("request: OPTIONS request with RTSP", "not HTTP"),
    ("request: ANNOUNCE request with RTSP", "not HTTP"),
    ("request: No HTTP version", "HTTP/0.9"),
    ("request: POST with `chunked` as last transfer-encoding", "a coding besides chunked; and a fragment"),
    ("request: POST with `chunked` as last transfer-encoding (multiple headers)", "the same in two fields"),
    ("request: Fragment in URI", "a fragment is no part of a request target"),
    ("request: `host:port` and basic auth", "user-info in a target (RFC 9110, 4.2.4)"),
    ("response: HTTP 100 first, then 400", "an empty line before a status line: only requests may have one"),
    ("response: Should parse multiple events", "an empty line before a status line"),
    ("response: Google 301", "an empty line after the body"),
    ("response: Response starting with CRLF", "an empty line before a status line"),
    ("response: RTSP response", "not HTTP"),
    ("response: ICE response", "not HTTP"),
    ("response: HTTP version 0.9", "not HTTP/1"),
    ("response: `chunked` before other transfer-encoding", "a coding that was not asked for"),
    ("response: multiple transfer-encoding where chunked is not the last one", "the same in two fields"),
    ("response: `chunkedchunked` transfer-encoding does not enable chunked enconding", "an unknown coding"),
];

/// Refused by strict llhttp (or meant to be read in two ways), accepted here.
pub const WIDER: &[(&str, &str)] = &[
    ("request: HTTP protocol and ANNOUNCE method", "any token is a method; it gets 405"),
    ("request: Invalid method", "any token is a method; it gets 405"),
    ("request: Resetting flags when keep-alive is off (1.0, lenient)", "the bytes after the close are never read"),
    (
        "response: HTTP/1.1 with keep-alive disabled, content-length (lenient)",
        "the bytes after the close are never read",
    ),
    (
        "response: HTTP/1.1 with keep-alive disabled and 204 status (lenient)",
        "the bytes after the close are never read",
    ),
    ("request: CL.TE underjoin1", "Transfer_Encoding is another field, and crosses to no upstream"),
    ("request: CL.TE contentEnc", "Content-Encoding frames nothing; it gets 415"),
];

/// One raw message, or several.
pub struct Vector {
    pub name: String,
    pub request: bool,
    /// What the source says that a parser in its mode does.
    pub says: String,
    pub expected: Expected,
    pub bytes: Vec<u8>,
}

impl Vector {
    /// What Ringway must do.
    pub fn wanted(&self) -> Expected {
        let listed = |list: &[(&str, &str)]| list.iter().any(|(name, _)| *name == self.name);
        match self.expected {
            Expected::Accept | Expected::AcceptFirst if listed(STRICTER) => Expected::Refuse,
            Expected::Refuse if listed(WIDER) => Expected::Accept,
            Expected::RefuseFirst if listed(WIDER) => Expected::AcceptFirst,
            expected => expected,
        }
    }
}

/// What a strict parser does with a vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Accepts it all.
    Accept,
    /// Accepts the first message, and takes nothing behind it for HTTP (close, Upgrade).
    AcceptFirst,
    /// Refuses it somewhere. So with everything that only a lenient parser takes.
    Refuse,
    /// Refuses the very first head: two parsers would end it in two places.
    RefuseFirst,
}

impl Expected {
    fn of(mode: &str, expect: &str) -> Expected {
        let strict = ["request", "response", "request-finish", "response-finish"].contains(&mode);
        match expect.split(':').nth(1) {
            _ if expect == "discrepancy" => Expected::RefuseFirst,
            None if strict => Expected::Accept,
            Some("5" | "22" | "23") if strict => Expected::AcceptFirst,
            _ => Expected::Refuse,
        }
    }
}

/// A message: its head in lower case, its body, and whether that came whole.
pub type Plain = (String, Vec<u8>, bool);

/// Messages as the plainest reading of RFC 9112 has them: an oracle that shares no code with the codec and
/// knows nothing of refusals. It reads well-formed messages only.
pub fn plain_messages(request: bool, bytes: &[u8]) -> Vec<Plain> {
    let find = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).position(|window| window == what);
    let (mut rest, mut messages) = (bytes, Vec::new());
    while let Some(skipped) = rest.strip_prefix(b"\r\n") {
        rest = skipped;
    }
    while let Some(end) = find(rest, b"\r\n\r\n") {
        let head = String::from_utf8_lossy(&rest[..end]).to_ascii_lowercase();
        rest = &rest[end + 4..];
        let (first, lines) = head.split_once("\r\n").unwrap_or((&head, ""));
        let value = |name: &str| {
            let line = lines.split("\r\n").find(|line| line.split(':').next() == Some(name))?;
            Some(line[name.len() + 1..].trim().to_owned())
        };
        let status = first.split(' ').nth(1).unwrap_or_default();
        let bodyless = !request && (status.starts_with('1') || status == "204" || status == "304");
        let (mut body, mut whole) = (Vec::new(), true);
        if bodyless {
        } else if value("transfer-encoding").is_some() {
            whole = false;
            while let Some(line_end) = find(rest, b"\r\n") {
                let line = String::from_utf8_lossy(&rest[..line_end]).into_owned();
                // Two messages in one stream, the first cut short: what follows is no chunk.
                let Ok(size) = usize::from_str_radix(line.split(';').next().unwrap(), 16) else { break };
                rest = &rest[line_end + 2..];
                if size == 0 {
                    let trailers = if rest.starts_with(b"\r\n") {
                        2
                    } else {
                        find(rest, b"\r\n\r\n").map_or(usize::MAX, |at| at + 4)
                    };
                    whole = rest.len() >= trailers;
                    rest = &rest[trailers.min(rest.len())..];
                    break;
                }
                let here = size.min(rest.len());
                body.extend_from_slice(&rest[..here]);
                rest = &rest[(here + 2).min(rest.len())..];
            }
        } else if let Some(length) = value("content-length") {
            let length = length.parse::<usize>().unwrap();
            let here = length.min(rest.len());
            whole = here == length;
            body = rest[..here].to_vec();
            rest = &rest[here..];
        } else if !request {
            body = rest.to_vec();
            rest = b"";
        }
        messages.push((head.clone(), body, whole));
        let close = value("connection").is_some_and(|value| value.contains("close"));
        let http10 = first.contains("http/1.0") && value("connection").is_none_or(|value| value != "keep-alive");
        if close
            || http10
            || (!request && status == "101")
            || (bodyless && (value("content-length").or(value("transfer-encoding"))).is_some())
        {
            break;
        }
        while let (true, Some(skipped)) = (request, rest.strip_prefix(b"\r\n")) {
            rest = skipped;
        }
    }
    messages
}

/// Gives every HTTP/1.1 request that lacks a `Host` one, so that it is judged for what it was made for.
pub fn with_hosts(bytes: &[u8]) -> Vec<u8> {
    const VERSION: &[u8] = b" HTTP/1.1\r\n";
    let mut out = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.windows(VERSION.len()).position(|window| window == VERSION) {
        let (line, behind) = rest.split_at(at + VERSION.len());
        out.extend_from_slice(line);
        let end = behind.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or(behind.len());
        let fields = String::from_utf8_lossy(&behind[..end]).to_ascii_lowercase();
        if !fields.split("\r\n").any(|line| line.starts_with("host:")) {
            out.extend_from_slice(b"Host: h\r\n");
        }
        rest = behind;
    }
    out.extend_from_slice(rest);
    out
}

/// All of them; `None` = the material is not here.
pub fn vectors() -> Option<Vec<Vector>> {
    let vector = |line: String| {
        let row: BTreeMap<String, String> = serde_json::from_str(&line).unwrap();
        let hex = row["hex"].as_bytes().chunks(2);
        Vector {
            name: format!("{}: {}", row["kind"], row["name"]),
            request: row["kind"] == "request",
            says: row["expect"].clone(),
            expected: Expected::of(&row["mode"], &row["expect"]),
            bytes: hex.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect(),
        }
    };
    let vectors: Vec<Vector> = super::material::lines("http1_vectors.jsonl.gz")?.into_iter().map(vector).collect();
    assert!(vectors.len() > 900, "only {} vectors", vectors.len());
    Some(vectors)
}
