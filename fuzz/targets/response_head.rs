//! Responses on a connection: the head against a plain second reading, its framing, and no difference by cuts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway::wire::http1::HeadLimits;
use ringway::wire::http1_response::{BodyFraming, ResponseHead, RetryAfter, content_type, response_head};
use ringway_fuzz::http_head::{self, Body, Head, Response, values};
use ringway_fuzz::http_walk::{Framing, Seen, walk};

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
    let ours = response_head(buf, scanned, limits);
    if judged {
        match (&ours, http_head::response(buf, limits.bytes, limits.headers.min(256))) {
            (Ok(Some(head)), Head::Good(plain)) => same(buf, head, &plain),
            (Ok(None), Head::Unfinished) | (Err(_), Head::Bad(_)) => {}
            (ours, plain) => panic!("{ours:?}\n{plain:?}"),
        }
    }
    let Some(head) = ours.map_err(|bad| bad.words().to_owned())? else { return Ok(None) };
    let framing = match head.framing {
        BodyFraming::Empty => Framing::Length(0),
        BodyFraming::Length(length) => Framing::Length(length),
        BodyFraming::Chunked => Framing::Chunked,
        BodyFraming::UntilClose => Framing::UntilClose,
    };
    let says = format!("{} {:?} {:?}", head.status, head.retry_after, head.content_encoding);
    Ok(Some(Seen { head_len: head.head_len, framing, keep_alive: head.keep_alive, says }))
}

fn same(buf: &[u8], head: &ResponseHead, plain: &Response<'_>) {
    assert_eq!((head.head_len, head.status, head.keep_alive), (plain.len, plain.status, plain.keep_alive));
    let body = match head.framing {
        BodyFraming::Empty => Body::Empty,
        BodyFraming::Length(length) => Body::Length(length),
        BodyFraming::Chunked => Body::Chunked,
        BodyFraming::UntilClose => Body::UntilClose,
    };
    assert_eq!(body, plain.body);

    let waits = values(&plain.fields, "retry-after");
    let digits = |wait: &&[u8]| !wait.is_empty() && wait.iter().all(u8::is_ascii_digit);
    let first = waits.first().filter(|wait| digits(wait)).map(|wait| {
        let seconds = wait.iter().fold(0u128, |sum, digit| (sum * 10 + u128::from(digit - b'0')).min(1 << 100));
        RetryAfter::Seconds(u64::try_from(seconds).unwrap_or(u64::MAX))
    });
    match head.retry_after {
        Some(wait) if first.is_some() => assert_eq!(Some(wait), first),
        Some(RetryAfter::Seconds(_)) => assert!(waits.iter().any(digits)),
        Some(RetryAfter::At(_)) => assert!(waits.iter().any(|wait| wait.len() > 20)),
        None => assert!(!waits.iter().any(digits)),
    }
    let shown = |byte: &u8| *byte == b' ' || byte.is_ascii_graphic();
    let kind = values(&plain.fields, "content-type").last().copied();
    let kind = kind.filter(|kind| !kind.is_empty() && kind.iter().all(shown));
    assert_eq!(content_type(&buf[..head.head_len]).map(str::as_bytes), kind);
}
