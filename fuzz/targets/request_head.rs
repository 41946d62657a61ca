//! Requests on a connection: the head against a plain second reading, its framing, and no difference by cuts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway::wire::http1::{Coding, HeadLimits};
use ringway::wire::http1_request::{ContentType, Framing, REQUEST_ID_MAX, RequestHead, Verb, request_head};
use ringway_fuzz::http_head::{self, Body, Head, Request, authority, values};
use ringway_fuzz::http_walk::{self, Seen, walk};

fuzz_target!(|data: &[u8]| {
    let Some(([step, size], stream)) = ringway_fuzz::settings::<2>(data) else { return };
    let limits = match size % 4 {
        0 => HeadLimits { bytes: 16 << 10, headers: 100 },
        1 => HeadLimits { bytes: 64 + usize::from(*size), headers: 3 },
        2 => HeadLimits { bytes: 600, headers: usize::from(*size) },
        _ => HeadLimits { bytes: usize::MAX, headers: usize::MAX },
    };
    let judged = |buf: &[u8], scanned: usize| read(buf, scanned, &limits, true);
    let whole = walk(&judged, stream, usize::MAX);
    // What is the same as the whole needs no second judge.
    let alone = |buf: &[u8], scanned: usize| read(buf, scanned, &limits, false);
    let cut = walk(&alone, stream, usize::from(*step));
    assert_eq!(whole, cut, "{step} bytes at a time");
});

/// Reads a head, and holds it against the plain reading if it is to be judged.
fn read(buf: &[u8], scanned: usize, limits: &HeadLimits, judged: bool) -> Result<Option<Seen>, String> {
    let ours = request_head(buf, scanned, limits);
    if judged {
        match (&ours, http_head::request(buf, limits.bytes, limits.headers.min(256))) {
            (Ok(Some(head)), Head::Good(plain)) => same(head, &plain),
            (Ok(None), Head::Unfinished) | (Err(_), Head::Bad(_)) => {}
            (ours, plain) => panic!("{ours:?}\n{plain:?}"),
        }
    }
    let Some(head) = ours.map_err(|fault| format!("{fault:?}"))? else { return Ok(None) };
    let framing = match head.framing {
        Framing::Empty => http_walk::Framing::Length(0),
        Framing::Length(length) => http_walk::Framing::Length(length),
        Framing::Chunked => http_walk::Framing::Chunked,
    };
    let says = format!("{:?} {} {:?}", head.verb, head.path, head.query);
    Ok(Some(Seen { head_len: head.head_len, framing, keep_alive: head.keep_alive, says }))
}

fn same(head: &RequestHead<'_>, plain: &Request<'_>) {
    assert_eq!(head.head_len, plain.len);
    assert_eq!(head.http11, plain.http11);
    let framing = match head.framing {
        Framing::Empty => Body::Empty,
        Framing::Length(length) => Body::Length(length),
        Framing::Chunked => Body::Chunked,
    };
    assert_eq!(framing, plain.body);
    assert_eq!(head.keep_alive, plain.keep_alive);
    let verb = match plain.method {
        "POST" => Verb::Post,
        "GET" => Verb::Get,
        "HEAD" => Verb::Head,
        "OPTIONS" => Verb::Options,
        _ => Verb::Other,
    };
    assert_eq!(head.verb, verb);
    assert!(head.fields().eq(plain.fields.iter().copied()), "{plain:?}");

    // The parts of the target make the target again.
    let query = head.query.map_or(String::new(), |query| format!("?{query}"));
    let origin = match authority(plain.target) {
        Some(authority) => {
            assert_eq!(head.host, Some(authority));
            let scheme = plain.target.find("://").map_or(0, |at| at + 3);
            &plain.target[scheme + authority.len()..]
        }
        None => {
            let host = values(&plain.fields, "host").first().copied();
            assert_eq!(head.host.map(str::as_bytes), host);
            plain.target
        }
    };
    let joined = format!("{}{query}", head.path);
    assert!(joined == origin || joined == format!("/{origin}") && !origin.starts_with('/'), "{plain:?}");
    assert!(head.path == "*" || head.path.starts_with('/'));
    fields_that_matter(head, plain);
}

fn fields_that_matter(head: &RequestHead<'_>, plain: &Request<'_>) {
    let of = |name: &str| values(&plain.fields, name);
    assert_eq!(head.origin.map(str::as_bytes), of("origin").first().copied());
    assert_eq!(head.explain, of("ringway-explain").contains(&&b"1"[..]));
    assert_eq!(head.expect_continue, plain.http11 && !of("expect").is_empty());
    let sane = |id: &&&[u8]| (1..=REQUEST_ID_MAX).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic);
    assert_eq!(head.request_id.map(str::as_bytes), of("x-request-id").iter().find(sane).copied());
    if let Some(parent) = head.traceparent {
        assert_eq!(of("traceparent"), [parent.as_bytes()]);
        let lengths: Vec<usize> = parent.split('-').map(str::len).collect();
        assert_eq!(lengths, [2, 32, 16, 2]);
    }
    let types: Vec<String> = of("content-type")
        .iter()
        .map(|value| String::from_utf8_lossy(value).split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
        .collect();
    let json = |name: &String| name == "application/json" || name == "application/json-rpc";
    match head.content_type {
        ContentType::Missing => assert!(types.is_empty()),
        ContentType::Json => assert!(!types.is_empty() && types.iter().all(json), "{types:?}"),
        ContentType::Other => assert!(!types.iter().all(json), "{types:?}"),
    }
    let codings: Vec<String> = of("content-encoding")
        .iter()
        .flat_map(|value| value.split(|byte| *byte == b','))
        .map(|name| String::from_utf8_lossy(name).trim_matches([' ', '\t']).to_ascii_lowercase())
        .filter(|name| !name.is_empty() && name != "identity")
        .collect();
    let coding = match &codings[..] {
        [] => Coding::Identity,
        [one] if one == "gzip" || one == "x-gzip" => Coding::Gzip,
        [one] if one == "deflate" => Coding::Deflate,
        _ => Coding::Other,
    };
    assert_eq!(head.content_encoding, coding);
}
