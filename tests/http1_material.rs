//! The HTTP/1.1 codec against raw messages that were made to be misread (llhttp's and smuggler's vectors).
//!
//! Judged by RFC 9112, not by what those parsers do: what a strict one refuses must be refused here, what it
//! accepts must be framed right. Each vector on which Ringway differs from strict llhttp stands below by name.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::PathBuf;

use ringway::wire::http1::HeadLimits;
use ringway::wire::http1_chunked::Chunked;
use ringway::wire::http1_request::{Framing, request_head};
use ringway::wire::http1_response::{BodyFraming, response_head};

const LIMITS: HeadLimits = HeadLimits { bytes: 64 << 10, headers: 100 };

/// Accepted by strict llhttp, refused here.
const STRICTER: &[(&str, &str)] = &[
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
const WIDER: &[(&str, &str)] = &[
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

struct Vector {
    name: String,
    request: bool,
    expected: Expected,
    bytes: Vec<u8>,
}

/// What a strict parser does with a vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
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

/// How the walk through the bytes of a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Between,
    InHead,
    InBody,
    Closed,
    /// A head was refused.
    Refused(String),
    /// A head was accepted, its chunked body refused.
    BadChunk(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    Length(u64),
    Chunked,
    UntilClose,
}

/// Head length, framing, whether another message may follow.
type HeadOf = fn(&[u8], usize) -> Result<Option<(usize, Body, bool)>, String>;

fn request_of(buf: &[u8], scanned: usize) -> Result<Option<(usize, Body, bool)>, String> {
    let head = request_head(buf, scanned, &LIMITS).map_err(|fault| format!("{fault:?}"))?;
    Ok(head.map(|head| {
        let body = match head.framing {
            Framing::Empty => Body::Length(0),
            Framing::Length(length) => Body::Length(length),
            Framing::Chunked => Body::Chunked,
        };
        (head.head_len, body, head.keep_alive)
    }))
}

fn response_of(buf: &[u8], scanned: usize) -> Result<Option<(usize, Body, bool)>, String> {
    let head = response_head(buf, scanned, &LIMITS).map_err(|bad| bad.words().to_owned())?;
    Ok(head.map(|head| {
        let body = match head.framing {
            BodyFraming::Empty => Body::Length(0),
            BodyFraming::Length(length) => Body::Length(length),
            BodyFraming::Chunked => Body::Chunked,
            BodyFraming::UntilClose => Body::UntilClose,
        };
        (head.head_len, body, head.keep_alive)
    }))
}

/// Reads messages as a connection would, `step` bytes a read: the bodies, the last one perhaps cut short.
fn walk(head_of: HeadOf, bytes: &[u8], step: usize) -> (Vec<Vec<u8>>, End) {
    let mut pieces = bytes.chunks(step.max(1));
    let (mut buf, mut bodies) = (Vec::new(), Vec::new());
    loop {
        let mut scanned = 0;
        let (head_len, framing, keep_alive) = loop {
            match head_of(&buf, scanned) {
                Ok(Some(head)) => break head,
                Ok(None) => scanned = buf.len(),
                Err(words) => return (bodies, End::Refused(words)),
            }
            match pieces.next() {
                Some(piece) => buf.extend_from_slice(piece),
                None if buf.is_empty() => return (bodies, End::Between),
                None => return (bodies, End::InHead),
            }
        };
        buf.drain(..head_len);
        let (mut decoder, mut end) = (Chunked::default(), 0);
        let rest = loop {
            match framing {
                Body::Length(length) if buf.len() as u64 >= length => {
                    end = length as usize;
                    break Some(end);
                }
                Body::Length(_) | Body::UntilClose => end = buf.len(),
                Body::Chunked => match decoder.decode(&mut buf[end..]) {
                    Ok(progress) => {
                        let rest = end + progress.consumed;
                        end += progress.produced;
                        if progress.done {
                            break Some(rest);
                        }
                        buf.truncate(end);
                    }
                    Err(bad) => return (bodies, End::BadChunk(bad.words().to_owned())),
                },
            }
            match pieces.next() {
                Some(piece) => buf.extend_from_slice(piece),
                None => break None,
            }
        };
        bodies.push(buf[..end].to_vec());
        match rest {
            _ if framing == Body::UntilClose => return (bodies, End::Closed),
            None => return (bodies, End::InBody),
            Some(_) if !keep_alive => return (bodies, End::Closed),
            Some(rest) => drop(buf.drain(..rest)),
        }
    }
}

/// The bodies as the plainest reading of RFC 9112 has them: an oracle that shares no code with the codec and
/// knows nothing of refusals. It reads well-formed messages only.
fn plain_bodies(request: bool, bytes: &[u8]) -> Vec<Vec<u8>> {
    let find = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).position(|window| window == what);
    let (mut rest, mut bodies) = (bytes, Vec::new());
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
        let mut body = Vec::new();
        if bodyless {
        } else if value("transfer-encoding").is_some() {
            while let Some(line_end) = find(rest, b"\r\n") {
                let line = String::from_utf8_lossy(&rest[..line_end]).into_owned();
                let size = usize::from_str_radix(line.split(';').next().unwrap(), 16).unwrap();
                rest = &rest[line_end + 2..];
                if size == 0 {
                    let trailers = if rest.starts_with(b"\r\n") {
                        2
                    } else {
                        find(rest, b"\r\n\r\n").map_or(rest.len(), |at| at + 4)
                    };
                    rest = &rest[trailers.min(rest.len())..];
                    break;
                }
                let here = size.min(rest.len());
                body.extend_from_slice(&rest[..here]);
                rest = &rest[(here + 2).min(rest.len())..];
            }
        } else if let Some(length) = value("content-length") {
            let here = length.parse::<usize>().unwrap().min(rest.len());
            body = rest[..here].to_vec();
            rest = &rest[here..];
        } else if !request {
            body = rest.to_vec();
            rest = b"";
        }
        bodies.push(body);
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
    bodies
}

/// Gives every HTTP/1.1 request that lacks a `Host` one, so that it is judged for what it was made for.
fn with_hosts(bytes: &[u8]) -> Vec<u8> {
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

fn vectors() -> Option<Vec<Vector>> {
    let folder = std::env::var_os("RINGWAY_MATERIAL")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/material"), PathBuf::from);
    let path = folder.join("http1_vectors.jsonl.gz");
    let Ok(file) = std::fs::File::open(&path) else {
        assert!(std::env::var_os("CI").is_none(), "{} is missing", path.display());
        eprintln!("left out: no {}", path.display());
        return None;
    };
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let vector = |line: &str| {
        let row: BTreeMap<String, String> = serde_json::from_str(line).unwrap();
        let hex = row["hex"].as_bytes().chunks(2);
        Vector {
            name: format!("{}: {}", row["kind"], row["name"]),
            request: row["kind"] == "request",
            expected: Expected::of(&row["mode"], &row["expect"]),
            bytes: hex.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect(),
        }
    };
    Some(text.lines().map(vector).collect())
}

fn judge(vector: &Vector) -> Result<(), String> {
    let head_of: HeadOf = if vector.request { request_of } else { response_of };
    let listed = |list: &[(&str, &str)]| list.iter().any(|(name, _)| *name == vector.name);
    let bytes = if vector.request { with_hosts(&vector.bytes) } else { vector.bytes.clone() };
    let (bodies, mut end) = walk(head_of, &bytes, usize::MAX);
    for step in [1, 2, 3, 7] {
        if walk(head_of, &bytes, step) != (bodies.clone(), end.clone()) {
            return Err(format!("{step} bytes a read give another result"));
        }
    }
    let expected = match vector.expected {
        Expected::Accept | Expected::AcceptFirst if listed(STRICTER) => Expected::Refuse,
        Expected::Refuse if listed(WIDER) => Expected::Accept,
        Expected::RefuseFirst if listed(WIDER) => Expected::AcceptFirst,
        expected => expected,
    };
    if end == End::InHead && expected == Expected::Refuse {
        // Several bad heads stop before their end; a whole head is judged.
        for tail in ["\r\n", "\r\n\r\n"] {
            let closed = walk(head_of, &[&bytes[..], tail.as_bytes()].concat(), usize::MAX).1;
            end = if matches!(closed, End::Refused(_) | End::BadChunk(_)) { closed } else { end };
        }
    }
    let refused = matches!(end, End::Refused(_) | End::BadChunk(_));
    let plain = || plain_bodies(vector.request, &bytes);
    let (right, framed) = match expected {
        Expected::Accept => (!refused, refused || bodies == plain()),
        Expected::AcceptFirst => (!bodies.is_empty(), bodies.is_empty() || bodies[0] == plain()[0]),
        Expected::Refuse => (refused, true),
        Expected::RefuseFirst => (matches!(end, End::Refused(_)) && bodies.is_empty(), true),
    };
    match (right, framed) {
        (true, true) => Ok(()),
        (false, _) => Err(format!("{end:?} after {} bodies; a strict parser: {:?}", bodies.len(), vector.expected)),
        (true, false) => Err(format!("framed as {bodies:?}, should be {:?}", plain())),
    }
}

#[test]
fn every_vector_is_judged_strictly() {
    let Some(vectors) = vectors() else { return };
    assert!(vectors.len() > 900, "only {} vectors", vectors.len());
    let faults: Vec<String> = vectors
        .iter()
        .filter_map(|vector| {
            let why = judge(vector).err()?;
            Some(format!(
                "{:?}\n    {why}\n    {}",
                vector.name,
                vector.bytes[..vector.bytes.len().min(160)].escape_ascii()
            ))
        })
        .collect();
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), vectors.len(), faults.join("\n"));

    let names: BTreeSet<&str> = vectors.iter().map(|vector| vector.name.as_str()).collect();
    for (name, why) in STRICTER.iter().chain(WIDER) {
        assert!(names.contains(name), "no vector is called {name:?} ({why})");
    }
}

#[test]
fn a_request_without_a_host_is_refused() {
    let Some(vectors) = vectors() else { return };
    let mut seen = 0;
    for vector in vectors.iter().filter(|vector| vector.request && with_hosts(&vector.bytes) != vector.bytes) {
        let closed = [&vector.bytes[..], b"\r\n\r\n"].concat();
        let (_, end) = walk(request_of, &closed, usize::MAX);
        // Pipelined and HTTP/1.0 ones may close before the one that lacks it.
        assert!(matches!(end, End::Refused(_) | End::Closed), "{:?}: {end:?}", vector.name);
        seen += 1;
    }
    assert!(seen > 50, "only {seen}");
}
