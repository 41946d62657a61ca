//! The HTTP/1.1 codec against raw messages that were made to be misread (llhttp's and smuggler's vectors).
//!
//! `gateway/vectors.rs` says how they are judged; `gateway/http1_sockets.rs` sends them to a running gateway.

#[path = "gateway/material.rs"]
mod material;
#[path = "gateway/vectors.rs"]
mod vectors;

use std::collections::BTreeSet;
use vectors::{Expected, STRICTER, Vector, WIDER, plain_messages, vectors, with_hosts};

use ringway::wire::http1::HeadLimits;
use ringway::wire::http1_chunked::Chunked;
use ringway::wire::http1_request::{Framing, request_head};
use ringway::wire::http1_response::{BodyFraming, response_head};

const LIMITS: HeadLimits = HeadLimits { bytes: 64 << 10, headers: 100 };

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

fn judge(vector: &Vector) -> Result<(), String> {
    let head_of: HeadOf = if vector.request { request_of } else { response_of };
    let bytes = if vector.request { with_hosts(&vector.bytes) } else { vector.bytes.clone() };
    let (bodies, mut end) = walk(head_of, &bytes, usize::MAX);
    for step in [1, 2, 3, 7] {
        if walk(head_of, &bytes, step) != (bodies.clone(), end.clone()) {
            return Err(format!("{step} bytes a read give another result"));
        }
    }
    let expected = vector.wanted();
    if end == End::InHead && expected == Expected::Refuse {
        // Several bad heads stop before their end; a whole head is judged.
        for tail in ["\r\n", "\r\n\r\n"] {
            let closed = walk(head_of, &[&bytes[..], tail.as_bytes()].concat(), usize::MAX).1;
            end = if matches!(closed, End::Refused(_) | End::BadChunk(_)) { closed } else { end };
        }
    }
    let refused = matches!(end, End::Refused(_) | End::BadChunk(_));
    let plain = || plain_messages(vector.request, &bytes).into_iter().map(|(_, body, _)| body).collect::<Vec<_>>();
    let (right, framed) = match expected {
        Expected::Accept => (!refused, refused || bodies == plain()),
        Expected::AcceptFirst => (!bodies.is_empty(), bodies.is_empty() || bodies[0] == plain()[0]),
        Expected::Refuse => (refused, true),
        Expected::RefuseFirst => (matches!(end, End::Refused(_)) && bodies.is_empty(), true),
    };
    match (right, framed) {
        (true, true) => Ok(()),
        (false, _) => Err(format!(
            "{end:?} after {} bodies; a strict parser: {:?} {:?}",
            bodies.len(),
            vector.expected,
            vector.says
        )),
        (true, false) => Err(format!("framed as {bodies:?}, should be {:?}", plain())),
    }
}

#[test]
fn every_vector_is_judged_strictly() {
    let Some(vectors) = vectors() else { return };
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
