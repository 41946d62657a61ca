//! The reader of heads against httparse, which it once was: where that one refuses a line, the same words are
//! told, and where it accepts, the same method, target, version and fields are read.
//!
//! httparse takes a bare LF for a line end, so only heads whose lines all end with CRLF come here; bare ones are the
//! matter of the unit tests, the vectors and the fuzz targets.

use httparse::{Error, ParserConfig, Request, Response, Status};
use proptest::prelude::*;
use ringway::logic::fault::HttpFault;
use ringway::wire::http1::{BadHttp, HeadLimits};
use ringway::wire::http1_request::request_head;
use ringway::wire::http1_response::response_head;
use std::mem::MaybeUninit;

const MOST: usize = 5;
const LIMITS: HeadLimits = HeadLimits { bytes: 64 << 10, headers: MOST };

/// What is wrong, in our words; a version is another matter in each direction.
fn words(error: Error, version: BadHttp) -> BadHttp {
    match error {
        Error::TooManyHeaders => BadHttp::HeadTooLarge,
        Error::HeaderName => BadHttp::FieldName,
        Error::HeaderValue => BadHttp::FieldValue,
        Error::Version => version,
        Error::Status | Error::Token | Error::NewLine => BadHttp::StartLine,
    }
}

/// 505 for what has the form of a version, 400 for the rest.
fn version_of(head: &str) -> BadHttp {
    let line = head.split("\r\n").next().unwrap_or_default();
    match line.split(' ').collect::<Vec<_>>()[..] {
        [_, _, version] => match version.as_bytes() {
            [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => BadHttp::Version,
            _ => BadHttp::StartLine,
        },
        _ => BadHttp::StartLine,
    }
}

/// Whether a fault is one of those that only what a field or a target says can earn.
fn is_about_meaning(fault: HttpFault) -> bool {
    let lines = [BadHttp::StartLine, BadHttp::Version, BadHttp::FieldName, BadHttp::FieldValue, BadHttp::HeadTooLarge];
    !lines.iter().any(|line| fault == HttpFault::from(*line))
}

fn compare_request(head: &str) -> bool {
    let ours = request_head(head.as_bytes(), 0, &LIMITS);
    let mut slots = [const { MaybeUninit::uninit() }; MOST];
    let mut theirs = Request::new(&mut []);
    match theirs.parse_with_uninit_headers(head.as_bytes(), &mut slots) {
        Err(error) => {
            assert_eq!(ours, Err(words(error, version_of(head)).into()), "{head:?}");
            false
        }
        Ok(Status::Partial) => panic!("{head:?} has no end"),
        Ok(Status::Complete(length)) => match ours {
            Ok(read) => {
                let read = read.expect("a head");
                let fields: Vec<_> = read.fields().collect();
                let theirs_of: Vec<_> =
                    theirs.headers.iter().map(|field| (field.name.as_bytes(), field.value)).collect();
                assert_eq!((read.head_len, fields), (length, theirs_of), "{head:?}");
                assert_eq!(Some(u8::from(read.http11)), theirs.version, "{head:?}");
                assert!(theirs.path.is_some_and(|path| path == "*" || path.contains(read.path) || read.path == "/"));
                true
            }
            Err(fault) => {
                assert!(is_about_meaning(fault), "{head:?}: {fault:?}");
                false
            }
        },
    }
}

fn compare_response(head: &str) -> bool {
    let ours = response_head(head.as_bytes(), 0, &LIMITS);
    let mut slots = [const { MaybeUninit::uninit() }; MOST];
    let mut theirs = Response::new(&mut []);
    let config = ParserConfig::default();
    match config.parse_response_with_uninit_headers(&mut theirs, head.as_bytes(), &mut slots) {
        Err(error) => {
            assert_eq!(ours, Err(words(error, BadHttp::Version)), "{head:?}");
            false
        }
        Ok(Status::Partial) => panic!("{head:?} has no end"),
        Ok(Status::Complete(length)) => match ours {
            Ok(read) => {
                let read = read.expect("a head");
                assert_eq!((read.head_len, Some(read.status)), (length, theirs.code), "{head:?}");
                true
            }
            Err(bad) => {
                assert!(is_about_meaning(bad.into()), "{head:?}: {bad:?}");
                false
            }
        },
    }
}

/// Mostly what is right, and now and then something else.
fn piece(good: &'static [&'static str], odd: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop_oneof![15 => prop::sample::select(good), 1 => prop::sample::select(odd)]
}

fn fields() -> impl Strategy<Value = String> {
    let name = piece(
        &[
            "Host",
            "Content-Type",
            "content-length",
            "Accept",
            "X-Request-Id",
            "Origin",
            "connection",
            "User-Agent",
            "A",
        ],
        &[
            "",
            "A b",
            " Host",
            "Host ",
            "H\u{1a}st",
            "Ho\0st",
            "é",
            "Content\tType",
            "Transfer-Encoding",
            "A\"",
            "Expect",
        ],
    );
    let colon = piece(&[":", ": ", ":\t", ":  "], &["", " :", "::"]);
    let value = piece(
        &["h", "", "application/json", "17", "a, b", "0123456789012345678901234567890123456789", "D\u{fc}ss \t "],
        &["\u{1}", "\u{7f}", "a\0b", "0123456789012345678901234567890\u{8}", "chunked", "\u{b}"],
    );
    let lines = prop::collection::vec((name, colon, value), 0..MOST + 2);
    lines.prop_map(|lines| {
        lines.iter().fold(String::new(), |text, (name, colon, value)| format!("{text}{name}{colon}{value}\r\n"))
    })
}

fn request() -> impl Strategy<Value = String> {
    let method = piece(&["POST", "GET", "OPTIONS", "M-SEARCH"], &["", "G(T", "é", "P\tST", "G\0"]);
    let space = || piece(&[" "], &["", "  ", "\t"]);
    let target = piece(
        &["/", "/eth?a=b", "*", "http://h/x", "/0123456789012345678901234567890123456789"],
        &["", "/é", "/a b", "/\u{1}", "/\u{7f}", "/a#b", "\u{80}"],
    );
    let version = piece(
        &["HTTP/1.1", "HTTP/1.0"],
        &["HTTP/1.2", "HTTP/2.0", "http/1.1", "HTTP/1.1 ", "HTTP/1.1 x", "HTTP/1", ""],
    );
    let parts = (method, space(), target, space(), version, piece(&["Host: h\r\n"], &[""]), fields());
    let known = |head: &String| head.as_bytes().first().is_some_and(|first| *first != b'\r' && *first > b' ');
    let whole = parts.prop_map(|(method, one, target, two, version, host, fields)| {
        format!("{method}{one}{target}{two}{version}\r\n{host}{fields}\r\n")
    });
    // What does not begin with a method is refused at once, in words of its own.
    whole.prop_filter("begins with a method", move |head| known(head) && !head.starts_with(['/', 'é', 'h', '\u{80}']))
}

fn response() -> impl Strategy<Value = String> {
    let version = piece(&["HTTP/1.1", "HTTP/1.0"], &["HTTP/1.2", "HTTP/2.0", "HTTP/", "HTTP/1.10", "HTTP/1"]);
    let space = piece(&[" "], &["", "  ", "\t"]);
    let code = piece(&["200", "503", "404"], &["", "20", "2000", "2x0", "099", "600", "é"]);
    let reason = piece(&["", " ", " OK", " Ori\u{e9}nt \t x"], &["OK", " \u{1}", " \u{7f}", "\t", " a\0"]);
    (version, space, code, reason, fields())
        .prop_map(|(version, space, code, reason, fields)| format!("{version}{space}{code}{reason}\r\n{fields}\r\n"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn requests_are_read_as_httparse_reads_them(head in request()) {
        compare_request(&head);
    }

    #[test]
    fn responses_are_read_as_httparse_reads_them(head in response()) {
        compare_response(&head);
    }
}

#[test]
fn heads_that_are_right_are_compared_as_well() {
    let request = "POST /eth?a=b HTTP/1.1\r\nHost: h:1\r\nX:\t y \t\r\nEmpty:\r\nA: D\u{fc}ss\r\n\r\n";
    assert!(compare_request(request));
    assert!(compare_response("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nA:\r\n\r\n"));
    assert!(!compare_request("POST / HTTP/1.1\r\nHost: h\r\n folded\r\n\r\n"));
    assert!(!compare_response("HTTP/1.1 200 OK\r\nA b: c\r\n\r\n"));
}
