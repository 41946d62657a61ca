//! The HTTP/1 codec against hyper's, on requests that were made to be quarrelled about.
//!
//! Two parsers in a row that read one stream in two ways are how requests are smuggled. Here both read the same
//! bytes; where both accept, every message must have the same method, target and body, and where one refuses, the
//! reason stands below. `DIFFERENTIAL_SEED` and `DIFFERENTIAL_CASES` change what is tried.

mod http1_differential {
    pub mod grammar;
    pub mod hyper_side;
    pub mod our_side;
    pub mod reading;

    /// Header fields that both allow.
    pub const HEADERS_MAX: usize = 100;
}

use http1_differential::grammar::{Dice, connection};
use http1_differential::reading::{Body, Message, Side, difference};
use http1_differential::{hyper_side, our_side};
use std::collections::BTreeSet;

/// Who refuses what the other one takes, and why that is right. The words are those of who refuses.
const EXPLAINED: &[(Side, &str, &str)] = &[
    (
        Side::Stricter,
        "bare LF in the head",
        "RFC 9112, 2.2 lets a recipient take it for a line end; one that does not may stand before or behind",
    ),
    (
        Side::Stricter,
        "too many empty lines before the request",
        "one is asked for (RFC 9112, 2.2); without a bound they cost work for nothing",
    ),
    (
        Side::Stricter,
        "request target is neither a path nor an http URL",
        "authority form is for CONNECT, and `*` for OPTIONS (RFC 9112, 3.2); Ringway is no tunnel",
    ),
    (
        Side::Stricter,
        "malformed authority in the request target",
        "user-info in a target is an attack or a mistake (RFC 9110, 4.2.4)",
    ),
    (
        Side::Stricter,
        "fragment in the request target",
        "no part of a target (RFC 9112, 3.2); hyper drops it, another one may not",
    ),
    (Side::Stricter, "no Host", "400 is a MUST (RFC 9112, 3.2)"),
    (Side::Stricter, "a second Host", "400 is a MUST (RFC 9112, 3.2)"),
    (Side::Stricter, "malformed Host", "400 is a MUST (RFC 9112, 3.2)"),
    (
        Side::Stricter,
        "both Content-Length and Transfer-Encoding",
        "may be refused (RFC 9112, 6.1); the one who reads the other field is smuggled past",
    ),
    (
        Side::Stricter,
        "malformed Content-Length",
        "hyper looks at none beside a Transfer-Encoding; both together are refused anyhow",
    ),
    (
        Side::Stricter,
        "differing Content-Lengths",
        "hyper looks at none beside a Transfer-Encoding; both together are refused anyhow",
    ),
    (
        Side::Stricter,
        "Transfer-Encoding other than chunked",
        "no other coding is announced; 501 or 400 (RFC 9112, 6.1)",
    ),
    (Side::Stricter, "ExpectationFailed", "417 for an unknown expectation (RFC 9110, 10.1.1)"),
    (Side::Stricter, "a second Origin", "one that counts can't be chosen, and CORS hangs on it (RFC 6454, 7.3)"),
    (Side::Stricter, "malformed Origin", "an origin is visible ASCII (RFC 6454, 7.1)"),
    (
        Side::StricterBody,
        "malformed chunk size",
        "white space behind a size, and more than 16 digits: hyper allows both, the grammar only the second",
    ),
    (
        Side::StricterBody,
        "malformed chunk extension",
        "white space around `;` is for old senders, and hyper reads extensions without their grammar",
    ),
    (
        Side::StricterBody,
        "bare CR or LF in the chunked coding",
        "hyper looks for no grammar in extensions, so it takes `;` before a line end",
    ),
    (
        Side::Wider,
        "invalid URI",
        "characters that RFC 3986 does not have, but senders do; a path is compared and never decoded, and another one is 404",
    ),
    (
        Side::Wider,
        "invalid content-length parsed",
        "the same length several times in one field may be taken (RFC 9110, 8.6)",
    ),
    (
        Side::Count,
        "",
        "hyper does not look into a Connection field with a byte outside ASCII; its `close` counts all the same (RFC 9112, 9.6)",
    ),
];

/// Whether a difference is one of those that the list means, and not some other one with the same words.
fn is_meant(side: Side, words: &str, ours: Option<&Message>, bytes: &[u8]) -> bool {
    let fields = |name: &str| -> Vec<&[u8]> {
        let lines = bytes.split(|byte| *byte == b'\n');
        lines.filter(|line| line.to_ascii_lowercase().starts_with(name.as_bytes())).collect()
    };
    let strange = |byte: u8| !byte.is_ascii_alphanumeric() && !b"-._~%!$&'()*+,;=:@/?[]".contains(&byte);
    match (side, words) {
        (Side::Stricter | Side::StricterBody, _) => true,
        (Side::Wider, "invalid URI") => ours.is_some_and(|message| {
            let (authority, _) =
                message.target.split_once("://").map_or("", |(_, rest)| rest).split_once('/').unwrap_or_default();
            message.target.bytes().any(strange) || authority.contains('%')
        }),
        (Side::Wider, _) => fields("content-length:").iter().any(|line| line.contains(&b',')),
        (Side::Count, _) => fields("connection:").iter().any(|line| !line.is_ascii()),
        (Side::WiderBody | Side::Otherwise, _) => false,
    }
}

fn number(name: &str, or: u64) -> u64 {
    std::env::var(name).ok().map_or(or, |text| text.parse().expect("a number"))
}

#[test]
fn no_stream_is_read_in_two_ways() {
    let (seed, cases) = (number("DIFFERENTIAL_SEED", 1), number("DIFFERENTIAL_CASES", 100_000));
    let mut dice = Dice::new(seed);
    let mut seen = BTreeSet::new();
    let mut unexplained = Vec::new();
    let (mut with_messages, mut with_bodies) = (0, 0);
    for _ in 0..cases {
        let bytes = connection(&mut dice);
        let (our_step, their_step) = (1 + dice.below(200), 1 + dice.below(200));
        let (ours, theirs) = (our_side::read(&bytes, our_step), hyper_side::read(&bytes, their_step));
        let Some((at, side, words)) = difference(&ours, &theirs) else {
            with_messages += usize::from(!ours.messages.is_empty());
            with_bodies += usize::from(ours.messages.iter().any(|message| message.body != Body::Whole(Vec::new())));
            continue;
        };
        let listed = EXPLAINED.iter().any(|(of, wanted, _)| (*of, *wanted) == (side, &words));
        if !listed || !is_meant(side, &words, ours.messages.get(at), &bytes) {
            unexplained.push(format!(
                "{side:?} {words:?} at message {at} of {}\n  ours   {ours:?}\n  theirs {theirs:?}",
                bytes.escape_ascii()
            ));
        }
        seen.insert((side, words));
    }
    assert!(
        unexplained.is_empty(),
        "{} differences, such as\n{}",
        unexplained.len(),
        unexplained[..unexplained.len().min(5)].join("\n")
    );
    // The grammar reaches what it is for, and the list holds nothing that is no longer so.
    assert!(
        with_messages as u64 > cases / 5 && with_bodies as u64 > cases / 10,
        "{with_messages}, {with_bodies} of {cases}"
    );
    for (side, words, _) in EXPLAINED {
        let found = seen.contains(&(*side, (*words).to_owned()));
        assert!(found || cases < 100_000, "{side:?} {words:?} was not seen: take it off the list");
    }
}

#[test]
fn a_difference_is_seen() {
    let bytes = b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nxPOST /b HTTP/1.1\r\nHost: a\r\n\r\n";
    let (ours, theirs) = (our_side::read(bytes, 7), hyper_side::read(bytes, 9));
    assert_eq!((difference(&ours, &theirs), ours.messages.len()), (None, 2));
    let mut other = theirs.clone();
    other.messages[0].body = Body::Whole(b"y".to_vec());
    assert_eq!(difference(&ours, &other), Some((0, Side::Otherwise, String::new())));
    other = theirs.clone();
    other.messages[1].target = "/c".to_owned();
    assert_eq!(difference(&ours, &other), Some((1, Side::Otherwise, String::new())));
    other = theirs.clone();
    other.messages.pop();
    assert_eq!(difference(&ours, &other), Some((1, Side::Count, String::new())));
    other.refused = Some("x".to_owned());
    assert_eq!(difference(&ours, &other), Some((1, Side::Wider, "x".to_owned())));
    assert_eq!(difference(&other, &ours), Some((1, Side::Stricter, "x".to_owned())));
}
