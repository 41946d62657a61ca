//! Response heads from upstreams. All requests are Ringway's own POSTs, so no HEAD or CONNECT rules apply.

use std::time::UNIX_EPOCH;

use super::http1::{BadHttp, Coding, Declared, FramingFields, HeadLimits, digits, trim};
use super::http1_lines::{Field, Line, Lines, Step};

/// What ends the body of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is none.
    Empty,
    /// So many bytes.
    Length(u64),
    /// The last chunk: see `http1_chunked`.
    Chunked,
    /// The end of the connection. A body cut short can't be told from a whole one: its content must tell.
    UntilClose,
}

/// `Retry-After`, as it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAfter {
    /// So many seconds from now; what exceeds 64 bits is the largest number.
    Seconds(u64),
    /// A date, in seconds since 1970.
    At(u64),
}

/// What Ringway wants to know of a response head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHead {
    /// The bytes of the head; the body begins here.
    pub head_len: usize,
    /// 100 to 599. After a 1xx other than 101 the caller drops the head and reads on for the real one.
    pub status: u16,
    /// What ends the body.
    pub framing: BodyFraming,
    /// Whether the connection may carry another request after this body.
    pub keep_alive: bool,
    /// The first `Retry-After` that can be read.
    pub retry_after: Option<RetryAfter>,
    /// The coding of the body.
    pub content_encoding: Coding,
}

/// Reads a response head from the front of `buf`; `None` = not all of it is here yet. `scanned` is the
/// length of `buf` at the last call for this head (0 at the first), so that slow heads cost linear work.
///
/// # Errors
/// [`BadHttp`] for everything that could be framed in two ways; the connection is then unusable.
pub fn response_head(buf: &[u8], scanned: usize, limits: &HeadLimits) -> Result<Option<ResponseHead>, BadHttp> {
    const START: &[u8] = b"HTTP/";
    // Before the end is searched: garbage needs no waiting.
    if !buf.starts_with(START) && !START.starts_with(buf) {
        return Err(BadHttp::StartLine);
    }
    let Some(mut lines) = Lines::open(buf, 0, scanned, limits)? else { return Ok(None) };
    let Some(line) = lines.line()? else { return lines.missing() };
    let first = status_line(line);
    if let Err(wrong) = first {
        lines.note(wrong);
    }
    let (status, http11) = first.unwrap_or_default();

    let mut fields = FramingFields::default();
    let mut retry_after = None;
    let mut content_encoding = Coding::default();
    let mut odd = Ok(());
    loop {
        match lines.step()? {
            Step::Field(Field::RetryAfter, value) => retry_after = retry_after.or_else(|| read_retry_after(value)),
            Step::Field(Field::ContentEncoding, value) => content_encoding = content_encoding.and(value),
            Step::Field(field, value) if odd.is_ok() => odd = fields.take(field, value),
            Step::Field(..) => {}
            Step::End => break,
            Step::Missing => return lines.missing(),
        }
    }
    lines.close()?;
    if !(100..=599).contains(&status) {
        return Err(BadHttp::Status);
    }
    odd?;
    let declared = fields.declared(http11)?;
    let (framing, clean) = body(status, declared)?;
    let keep_alive = clean && fields.keep_alive(http11);
    Ok(Some(ResponseHead { head_len: lines.at(), status, framing, keep_alive, retry_after, content_encoding }))
}

/// The status, as yet of any size, and whether it is HTTP/1.1.
fn status_line(line: Line<'_>) -> Result<(u16, bool), BadHttp> {
    let (version, rest) = line.text.split_first_chunk().ok_or(BadHttp::Version)?;
    let http11 = version == b"HTTP/1.1 ";
    if !http11 && version != b"HTTP/1.0 " {
        return Err(BadHttp::Version);
    }
    match rest {
        [a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', end @ ..]
            if !line.control && matches!(end, [] | [b' ', ..]) =>
        {
            let digit = |byte: &u8| u16::from(byte - b'0');
            Ok((digit(a) * 100 + digit(b) * 10 + digit(c), http11))
        }
        _ => Err(BadHttp::StartLine),
    }
}

/// The `Content-Type` in a head that was read before; for the few answers that go out as they came.
pub fn content_type(head: &[u8]) -> Option<&str> {
    let mut fields = head.split(|&byte| byte == b'\n').filter_map(|line| {
        let (name, value) = line.split_at_checked(memchr::memchr(b':', line)?)?;
        name.eq_ignore_ascii_case(b"content-type").then_some(trim(value.get(1..)?.trim_ascii_end()))
    });
    // Interim heads stand before the real one.
    let value = fields.next_back()?;
    let plain = !value.is_empty() && value.iter().all(|&byte| byte == b' ' || byte.is_ascii_graphic());
    std::str::from_utf8(value).ok().filter(|_| plain)
}

/// The framing, and whether the connection is in a known state after the body.
fn body(status: u16, declared: Declared) -> Result<(BodyFraming, bool), BadHttp> {
    let bodyless = matches!(declared, Declared::Nothing | Declared::Length(0));
    match (status, declared) {
        // Never asked for: whatever follows is not HTTP.
        (101, _) => Ok((BodyFraming::Empty, false)),
        (100..=199, _) if bodyless => Ok((BodyFraming::Empty, true)),
        (100..=199, _) => Err(BadHttp::InterimBody),
        // These have no body by definition; a server that declares one may yet send it, so never reuse.
        (204 | 304, _) => Ok((BodyFraming::Empty, bodyless)),
        (_, Declared::Length(0)) => Ok((BodyFraming::Empty, true)),
        (_, Declared::Length(length)) => Ok((BodyFraming::Length(length), true)),
        (_, Declared::Chunked) => Ok((BodyFraming::Chunked, true)),
        (_, Declared::Nothing) => Ok((BodyFraming::UntilClose, false)),
    }
}

/// Seconds or an HTTP date; anything else counts as not sent.
fn read_retry_after(value: &[u8]) -> Option<RetryAfter> {
    if !value.is_empty() && value.iter().all(u8::is_ascii_digit) {
        return Some(RetryAfter::Seconds(digits(value).unwrap_or(u64::MAX)));
    }
    let date = httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
    Some(RetryAfter::At(date.duration_since(UNIX_EPOCH).ok()?.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::http1::HEADERS_MAX;
    use proptest::prelude::*;

    const LIMITS: HeadLimits = HeadLimits { bytes: 16 << 10, headers: 100 };

    fn parse(text: &str) -> Result<Option<ResponseHead>, BadHttp> {
        response_head(text.as_bytes(), 0, &LIMITS)
    }

    fn whole(text: &str) -> ResponseHead {
        parse(text).unwrap_or_else(|bad| panic!("{text:?}: {}", bad.words())).unwrap()
    }

    fn refused(text: &str, why: BadHttp) {
        assert_eq!(parse(text), Err(why), "{text:?}");
    }

    #[test]
    fn a_plain_answer() {
        let text = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\nhello";
        let head = whole(text);
        assert_eq!(head.head_len, text.len() - 5);
        assert_eq!((head.status, head.framing, head.keep_alive), (200, BodyFraming::Length(5), true));
        assert_eq!((head.retry_after, head.content_encoding), (None, Coding::Identity));
    }

    #[test]
    fn framing_by_status_and_fields() {
        use BodyFraming::*;
        for (text, framing, keep_alive) in [
            ("HTTP/1.1 200 OK\r\n\r\n", UntilClose, false),
            ("HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\n", UntilClose, false),
            ("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", Empty, true),
            ("HTTP/1.1 200 \r\nTransfer-Encoding:\tChunked \r\n\r\n", Chunked, true),
            ("HTTP/1.1 200 OK\r\nContent-Length: 7, 7\r\nContent-Length: 7\r\n\r\n", Length(7), true),
            ("HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 7\r\n\r\n", Length(7), false),
            (
                "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nConnection: close\r\nContent-Length: 7\r\n\r\n",
                Length(7),
                false,
            ),
            ("HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\n", Length(7), false),
            ("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 7\r\n\r\n", Length(7), true),
            ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", UntilClose, false),
            ("HTTP/1.1 204 No Content\r\n\r\n", Empty, true),
            ("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", Empty, true),
            ("HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n", Empty, false),
            ("HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", Empty, false),
            ("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", Empty, false),
            ("HTTP/1.1 100 Continue\r\n\r\n", Empty, true),
            ("HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n", Empty, true),
            ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n", Empty, false),
            ("HTTP/1.1 500 Ori\u{eb}nt  x\r\nContent-Length: 1\r\n\r\n", Length(1), true),
        ] {
            let head = whole(text);
            assert_eq!((head.framing, head.keep_alive), (framing, keep_alive), "{text:?}");
        }
    }

    #[test]
    fn ambiguous_framing_is_refused() {
        let with = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
        refused(&with("Content-Length: 5\r\nTransfer-Encoding: chunked"), BadHttp::LengthAndCoding);
        refused(&with("Transfer-Encoding: chunked\r\nContent-Length: 5"), BadHttp::LengthAndCoding);
        refused(&with("Content-Length: 5\r\nContent-Length: 6"), BadHttp::Lengths);
        refused(&with("Content-Length: 5, 6"), BadHttp::Lengths);
        for length in ["", "+5", "-5", "0x5", "5a", "5 5", "5,", ",5", "18446744073709551616", "5;x", "5.0"] {
            refused(&with(&format!("Content-Length: {length}")), BadHttp::Length);
        }
        for coding in
            ["", "gzip", "gzip, chunked", "chunked, gzip", "chunked, chunked", "chunked,", "xchunked", "\"chunked\""]
        {
            refused(&with(&format!("Transfer-Encoding: {coding}")), BadHttp::TransferCoding);
        }
        refused(&with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), BadHttp::TransferCoding);
        refused("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", BadHttp::CodingInHttp10);
        refused("HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\n", BadHttp::InterimBody);
        refused("HTTP/1.1 103 Early\r\nTransfer-Encoding: chunked\r\n\r\n", BadHttp::InterimBody);
        refused("HTTP/1.1 204 No\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", BadHttp::LengthAndCoding);
    }

    #[test]
    fn malformed_lines_are_refused() {
        let with = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
        refused(&with("A: b\nC: d"), BadHttp::BareLf);
        refused(&with("A: b\rC: d"), BadHttp::BareCr);
        refused("HTTP/1.1 200 OK\n\n", BadHttp::BareLf);
        refused("HTTP/1.1 200 OK\r\nA: b\n\r\n", BadHttp::BareLf);
        refused(&with("A: b\r\n folded"), BadHttp::FieldName);
        refused(&with(" A: b"), BadHttp::FieldName);
        refused(&with("A : b"), BadHttp::FieldName);
        refused(&with(": b"), BadHttp::FieldName);
        refused(&with("A"), BadHttp::FieldName);
        refused(&with("A b: c"), BadHttp::FieldName);
        refused(&with("A: \0"), BadHttp::FieldValue);
        refused(&with("A: 0123456789012345678901234567890123456789\x7f"), BadHttp::FieldValue);
        for line in [
            "HTTP/1.1  200 OK",
            "HTTP/1.1\t200 OK",
            "HTTP/1.1 2 OK",
            "HTTP/1.1 20 OK",
            "HTTP/1.1 2000 OK",
            "HTTP/1.1 OK",
        ] {
            assert!(parse(&format!("{line}\r\n\r\n")).is_err(), "{line:?}");
        }
        for line in [
            "HTTP/2.0 200 OK",
            "HTTP/0.9 200 OK",
            "HTTP/1.2 200 OK",
            "HTTP/01.1 200 OK",
            "HTTPS/1.1 200 OK",
            "ICE/1.1 200 OK",
        ] {
            assert!(parse(&format!("{line}\r\n\r\n")).is_err(), "{line:?}");
        }
        refused("http/1.1 200 OK\r\n\r\n", BadHttp::StartLine);
        refused("\r\nHTTP/1.1 200 OK\r\n\r\n", BadHttp::StartLine);
        refused("HTTP/1.1 099 Low\r\n\r\n", BadHttp::Status);
        refused("HTTP/1.1 600 High\r\n\r\n", BadHttp::Status);
        refused("SSH-2.0", BadHttp::StartLine);
    }

    #[test]
    fn limits_hold_before_the_end_is_there() {
        let limits = HeadLimits { bytes: 40, headers: 2 };
        let long = format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(40));
        assert_eq!(response_head(long.as_bytes(), 0, &limits), Err(BadHttp::HeadTooLarge));
        let two = b"HTTP/1.1 200 OK\r\nA: b\r\nC: d\r\n\r\n";
        assert!(response_head(two, 0, &limits).unwrap().is_some());
        let three = b"HTTP/1.1 200 OK\r\nA: b\r\nC: d\r\nE: f\r\n\r\n";
        assert_eq!(response_head(three, 0, &limits), Err(BadHttp::HeadTooLarge));
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(HEADERS_MAX + 1));
        let wide = HeadLimits { bytes: usize::MAX, headers: usize::MAX };
        assert_eq!(response_head(many.as_bytes(), 0, &wide), Err(BadHttp::HeadTooLarge));
    }

    #[test]
    fn retry_after_in_both_forms() {
        let of = |value: &str| {
            whole(&format!("HTTP/1.1 429 Slow\r\nRetry-After: {value}\r\nContent-Length: 0\r\n\r\n")).retry_after
        };
        assert_eq!(of("7"), Some(RetryAfter::Seconds(7)));
        assert_eq!(of("99999999999999999999999"), Some(RetryAfter::Seconds(u64::MAX)));
        assert_eq!(of("Sun, 06 Nov 1994 08:49:37 GMT"), Some(RetryAfter::At(784_111_777)));
        for bad in ["", "-1", "+1", "1.5", "soon", "Sun, 06 Nov 1894 08:49:37 GMT", "Sun, 99 Nov 9999 99:99:99 GMT"] {
            assert_eq!(of(bad), None, "{bad:?}");
        }
        assert_eq!(of("soon\r\nRetry-After: 3"), Some(RetryAfter::Seconds(3)));
    }

    #[test]
    fn the_coding_of_the_body() {
        let head = whole("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nContent-Length: 1\r\n\r\n");
        assert_eq!(head.content_encoding, Coding::Gzip);
    }

    const SAMPLE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nServer: x\r\nRetry-After: 2\r\n\
        Connection: keep-alive\r\nContent-Encoding: gzip\r\nContent-Length: 17\r\n\r\nbody\r\n\r\n";

    proptest! {
        #[test]
        fn pieces_give_the_same_as_the_whole(cuts in prop::collection::vec(0..SAMPLE.len(), 0..8)) {
            let expected = response_head(SAMPLE, 0, &LIMITS).unwrap();
            let mut cuts = cuts;
            cuts.sort_unstable();
            cuts.push(SAMPLE.len());
            let (mut scanned, mut got) = (0, None);
            for cut in cuts {
                got = response_head(&SAMPLE[..cut], scanned, &LIMITS).unwrap();
                prop_assert_eq!(got.is_some(), cut >= expected.unwrap().head_len);
                if got.is_some() { break }
                scanned = cut;
            }
            prop_assert_eq!(got, expected);
        }

        #[test]
        fn no_bytes_panic(edits in prop::collection::vec((0..SAMPLE.len(), any::<u8>()), 0..6), scanned in 0..200usize) {
            let mut bytes = SAMPLE.to_vec();
            for (at, byte) in edits { bytes[at] = byte; }
            if let Ok(Some(head)) = response_head(&bytes, 0, &LIMITS) {
                prop_assert!(head.head_len <= bytes.len());
                prop_assert!(bytes[..head.head_len].ends_with(b"\r\n\r\n"));
                prop_assert!(memchr::memchr_iter(b'\n', &bytes[..head.head_len]).all(|at| bytes[at - 1] == b'\r'));
            }
            let _ = response_head(&bytes, scanned, &LIMITS);
        }
    }

    #[test]
    fn the_type_of_a_body_is_found_again() {
        let of =
            |fields: &str| content_type(format!("\0\0HTTP/1.1 405 No\r\n{fields}\r\n").as_bytes()).map(str::to_owned);
        assert_eq!(of("A: b\r\ncontent-TYPE:  text/html; charset=x \r\n").as_deref(), Some("text/html; charset=x"));
        assert_eq!(of("Content-Type: a/b\r\n\r\nHTTP/1.1 200\r\nContent-Type: c/d\r\n").as_deref(), Some("c/d"));
        for none in ["", "Content-Type:\r\n", "Content-Type: \u{e9}\r\n", "Content-Typ: a/b\r\n", "Content-Type\r\n"] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
