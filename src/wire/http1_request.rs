//! Request heads from clients: what is asked, how the body is framed, and the few fields that matter here.

use super::http1::{BadHttp, Coding, Declared, FramingFields, HeadLimits, is_tchar, trim, visible};
use super::http1_lines::{Field, Lines, Step, is_graphic, short_text, token_len};
use super::http1_target::{is_host, read_target};
use crate::logic::fault::HttpFault;

/// Empty lines that are skipped before a request line (RFC 9112, 2.2 asks for at least one).
pub const EMPTY_LINES_MAX: usize = 4;
/// The longest `X-Request-Id` that is echoed; a longer one counts as not sent.
pub const REQUEST_ID_MAX: usize = 128;

/// The method, as far as it makes a difference here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// `POST`.
    Post,
    /// `GET`.
    Get,
    /// `HEAD`.
    Head,
    /// `OPTIONS`.
    Options,
    /// Any other token, other cases included.
    Other,
}

/// What ends the body of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    Empty,
    /// So many bytes, at least one.
    Length(u64),
    /// The last chunk: see `http1_chunked`.
    Chunked,
}

/// `Content-Type`, as far as it makes a difference here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentType {
    /// Not sent.
    Missing,
    /// `application/json` or `application/json-rpc`, with any parameters.
    Json,
    /// Anything else, and several that differ.
    Other,
}

/// What Ringway wants to know of a request head; it borrows from the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHead<'b> {
    /// The bytes of the head, skipped empty lines included; the body begins here.
    pub head_len: usize,
    /// The method.
    pub verb: Verb,
    /// The path of the target, as sent (not decoded), with its leading `/`; or `*` with `OPTIONS`.
    pub path: &'b str,
    /// What follows the first `?`.
    pub query: Option<&'b str>,
    /// HTTP/1.1, not 1.0.
    pub http11: bool,
    /// The authority of an absolute target, else `Host`. Always there in HTTP/1.1.
    pub host: Option<&'b str>,
    /// What ends the body.
    pub framing: Framing,
    /// Whether the client wants to go on after the answer.
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expect_continue: bool,
    /// The type of the body.
    pub content_type: ContentType,
    /// The coding of the body.
    pub content_encoding: Coding,
    /// `Origin`.
    pub origin: Option<&'b str>,
    /// `X-Request-Id`, if it is visible ASCII of at most [`REQUEST_ID_MAX`] bytes.
    pub request_id: Option<&'b str>,
    /// `Ringway-Explain: 1`.
    pub explain: bool,
    /// `traceparent`, if it came once and has the form of W3C Trace Context.
    pub traceparent: Option<&'b str>,
    field_lines: &'b [u8],
}

impl<'b> RequestHead<'b> {
    /// All fields in order, names as sent. For fields that few requests carry: walks the head again.
    pub fn fields(&self) -> impl DoubleEndedIterator<Item = (&'b [u8], &'b [u8])> {
        FieldLines(self.field_lines)
    }

    /// The values of the fields with this name, in order, however it is spelled.
    pub fn values(&self, name: &str) -> impl DoubleEndedIterator<Item = &'b [u8]> {
        self.fields().filter(move |(field, _)| field.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }
}

/// The field lines of a head that was read before, from either side.
struct FieldLines<'b>(&'b [u8]);

impl<'b> FieldLines<'b> {
    fn field(line: &'b [u8]) -> Option<(&'b [u8], &'b [u8])> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (name, value) = line.split_at_checked(memchr::memchr(b':', line)?)?;
        Some((name, trim(value.get(1..)?)))
    }
}

impl<'b> Iterator for FieldLines<'b> {
    type Item = (&'b [u8], &'b [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (line, rest) = self.0.split_at_checked(memchr::memchr(b'\n', self.0)?)?;
        self.0 = rest.get(1..)?;
        // The empty line at the end is none, and there is nothing behind it.
        FieldLines::field(line)
    }
}

impl DoubleEndedIterator for FieldLines<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        loop {
            let whole = self.0.strip_suffix(b"\n")?;
            let start = memchr::memrchr(b'\n', whole).map_or(0, |at| at + 1);
            let (rest, line) = self.0.split_at_checked(start)?;
            self.0 = rest;
            // The empty line is the first from this side.
            if let Some(field) = FieldLines::field(line.strip_suffix(b"\n")?) {
                return Some(field);
            }
        }
    }
}

/// Reads a request head from the front of `buf`; `None` = not all of it is here yet. `scanned` is the
/// length of `buf` at the last call for this head (0 at the first), so that slow heads cost linear work.
///
/// # Errors
/// The fault to answer with; the connection closes after it, since the next request can't be found.
pub fn request_head<'b>(
    buf: &'b [u8],
    scanned: usize,
    limits: &HeadLimits,
) -> Result<Option<RequestHead<'b>>, HttpFault> {
    let Some(start) = skip_empty_lines(buf)? else { return Ok(None) };
    // TLS or another protocol on this port needs no waiting for an end that never comes.
    if !buf.get(start).copied().is_some_and(is_tchar) {
        return Err(HttpFault::BadRequest("the request does not start with a method"));
    }
    let Some(mut lines) = Lines::open(buf, start, scanned, limits)? else { return Ok(None) };
    let Some(line) = lines.line()? else { return Ok(lines.missing()?) };
    let first = request_line(line.text);
    if let Err(wrong) = first {
        lines.note(wrong);
    }
    let (method, target, http11) = first.unwrap_or_default();
    let fields_at = lines.at();

    let mut gathered = Gathered::default();
    let mut odd = Ok(());
    loop {
        match lines.step()? {
            Step::Field(field, value) if odd.is_ok() => odd = gathered.take(field, value),
            Step::Field(..) => {}
            Step::End => break,
            Step::Missing => return Ok(lines.missing()?),
        }
    }
    lines.close()?;
    let target = read_target(method, target)?;
    odd?;
    if http11 && gathered.host.is_none() {
        return Err(HttpFault::BadRequest("no Host"));
    }
    let framing = match gathered.framing.declared(http11)? {
        Declared::Nothing | Declared::Length(0) => Framing::Empty,
        Declared::Length(length) => Framing::Length(length),
        Declared::Chunked => Framing::Chunked,
    };
    // Last, so that a broken head is never answered as a whole one. HTTP/1.0 has no expectations.
    if http11 && gathered.expects_other {
        return Err(HttpFault::ExpectationFailed);
    }
    Ok(Some(RequestHead {
        head_len: lines.at(),
        verb: verb(method),
        path: target.path,
        query: target.query,
        http11,
        host: target.authority.or(gathered.host),
        framing,
        keep_alive: gathered.framing.keep_alive(http11),
        expect_continue: http11 && gathered.expects_continue,
        content_type: gathered.content_type.unwrap_or(ContentType::Missing),
        content_encoding: gathered.content_encoding,
        origin: gathered.origin,
        request_id: gathered.request_id,
        explain: gathered.explain,
        traceparent: gathered.traceparent.flatten(),
        field_lines: buf.get(fields_at..lines.at()).unwrap_or_default(),
    }))
}

/// The index of the request line, or `None` = not here yet.
fn skip_empty_lines(buf: &[u8]) -> Result<Option<usize>, HttpFault> {
    let mut start = 0;
    for _ in 0..=EMPTY_LINES_MAX {
        match &buf[start..] {
            [] | [b'\r'] => return Ok(None),
            [b'\r', b'\n', ..] => start += 2,
            [b'\r', ..] => return Err(BadHttp::BareCr.into()),
            [b'\n', ..] => return Err(BadHttp::BareLf.into()),
            _ => return Ok(Some(start)),
        }
    }
    Err(HttpFault::BadRequest("too many empty lines before the request"))
}

/// Method, target, and whether it is HTTP/1.1.
type RequestLine<'b> = (&'b [u8], &'b [u8], bool);

fn request_line(line: &[u8]) -> Result<RequestLine<'_>, BadHttp> {
    let (method, rest) = match line.split_at_checked(token_len(line)) {
        Some((method @ [_, ..], [b' ', rest @ ..])) => (method, rest),
        _ => return Err(BadHttp::StartLine),
    };
    if let Some((target @ [_, ..], version)) = rest.split_last_chunk()
        && is_graphic(target)
    {
        if version == b" HTTP/1.1" {
            return Ok((method, target, true));
        } else if version == b" HTTP/1.0" {
            return Ok((method, target, false));
        }
    }
    odd_request_line(method, rest)
}

/// Another version is well-formed and not ours; a target outside ASCII is judged with the other targets.
#[cold]
fn odd_request_line<'b>(method: &'b [u8], rest: &'b [u8]) -> Result<RequestLine<'b>, BadHttp> {
    let is_target = |byte: &u8| *byte > b' ' && *byte != 0x7f;
    let target_len = rest.iter().position(|byte| !is_target(byte)).ok_or(BadHttp::StartLine)?;
    let (target, version) = match rest.split_at_checked(target_len) {
        Some((target @ [_, ..], [b' ', version @ ..])) if std::str::from_utf8(target).is_ok() => (target, version),
        _ => return Err(BadHttp::StartLine),
    };
    match version {
        b"HTTP/1.1" => Ok((method, target, true)),
        b"HTTP/1.0" => Ok((method, target, false)),
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => Err(BadHttp::Version),
        _ => Err(BadHttp::StartLine),
    }
}

fn verb(method: &[u8]) -> Verb {
    match method {
        b"POST" => Verb::Post,
        b"GET" => Verb::Get,
        b"HEAD" => Verb::Head,
        b"OPTIONS" => Verb::Options,
        _ => Verb::Other,
    }
}

/// The fields that matter, as they come by.
#[derive(Default)]
struct Gathered<'b> {
    framing: FramingFields,
    host: Option<&'b str>,
    expects_continue: bool,
    expects_other: bool,
    content_type: Option<ContentType>,
    content_encoding: Coding,
    origin: Option<&'b str>,
    request_id: Option<&'b str>,
    explain: bool,
    /// Outer: whether it was sent. Inner: whether it can be passed on.
    traceparent: Option<Option<&'b str>>,
}

impl<'b> Gathered<'b> {
    #[inline(always)]
    fn take(&mut self, field: Field, value: &'b [u8]) -> Result<(), HttpFault> {
        match field {
            Field::Host => self.take_host(value)?,
            Field::ContentType => self.take_content_type(value),
            Field::ContentEncoding => self.content_encoding = self.content_encoding.and(value),
            Field::Expect => {
                let known = value.eq_ignore_ascii_case(b"100-continue");
                self.expects_continue |= known;
                self.expects_other |= !known;
            }
            Field::Origin => self.take_origin(value)?,
            Field::RequestId => {
                let sane = visible(value).filter(|text| !text.is_empty() && text.len() <= REQUEST_ID_MAX);
                self.request_id = self.request_id.or(sane);
            }
            Field::RingwayExplain => self.explain |= value == b"1",
            Field::Traceparent => {
                let alone = self.traceparent.is_none();
                self.traceparent = Some(visible(value).filter(|text| alone && is_traceparent(text.as_bytes())));
            }
            _ => self.framing.take(field, value)?,
        }
        Ok(())
    }

    fn take_host(&mut self, value: &'b [u8]) -> Result<(), HttpFault> {
        if self.host.is_some() {
            return Err(HttpFault::BadRequest("a second Host"));
        }
        match short_text(value) {
            Some(host) if is_host(value) => self.host = Some(host),
            _ => return Err(HttpFault::BadRequest("malformed Host")),
        }
        Ok(())
    }

    fn take_content_type(&mut self, value: &[u8]) {
        if value == b"application/json" && self.content_type.is_none() {
            self.content_type = Some(ContentType::Json);
            return;
        }
        let essence = trim(value.split(|&byte| byte == b';').next().unwrap_or_default());
        let json = [&b"application/json"[..], b"application/json-rpc"];
        let json = json.iter().any(|wanted| essence.eq_ignore_ascii_case(wanted));
        self.content_type = match self.content_type {
            None | Some(ContentType::Json) if json => Some(ContentType::Json),
            _ => Some(ContentType::Other),
        };
    }

    /// Never dropped in silence: CORS and the cross-site rules hang on its presence.
    fn take_origin(&mut self, value: &'b [u8]) -> Result<(), HttpFault> {
        if self.origin.is_some() {
            return Err(HttpFault::BadRequest("a second Origin"));
        }
        match visible(value) {
            Some(origin) => self.origin = Some(origin),
            None => return Err(HttpFault::BadRequest("malformed Origin")),
        }
        Ok(())
    }
}

/// `version-traceid-parentid-flags` in lower-case hex; longer forms of later versions are not passed on.
fn is_traceparent(text: &[u8]) -> bool {
    text.len() == 55
        && text.iter().enumerate().all(|(at, byte)| match at {
            2 | 35 | 52 => *byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::http1::HEADERS_MAX;
    use proptest::prelude::*;

    const LIMITS: HeadLimits = HeadLimits { bytes: 16 << 10, headers: 100 };

    fn parse(text: &[u8]) -> Result<Option<RequestHead<'_>>, HttpFault> {
        request_head(text, 0, &LIMITS)
    }

    fn whole(text: &str) -> RequestHead<'_> {
        parse(text.as_bytes()).unwrap_or_else(|fault| panic!("{text:?}: {fault:?}")).unwrap()
    }

    fn refused(text: impl AsRef<[u8]>, why: &'static str) {
        let text = text.as_ref();
        assert_eq!(parse(text), Err(HttpFault::BadRequest(why)), "{}", text.escape_ascii());
    }

    /// A POST with these fields besides `Host`.
    fn with(fields: &str) -> String {
        format!("POST /eth HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n")
    }

    #[test]
    fn an_ordinary_post() {
        let text = "POST /eth/KEY?a=b?c HTTP/1.1\r\nHost: rpc.example:8545\r\nContent-Type: Application/JSON; charset=utf-8\r\n\
                    Content-Length: 2\r\nX-Request-Id: abc-1\r\nOrigin: https://dapp.example\r\n\r\n{}";
        let head = whole(text);
        assert_eq!(head.head_len, text.len() - 2);
        assert_eq!((head.verb, head.path, head.query), (Verb::Post, "/eth/KEY", Some("a=b?c")));
        assert_eq!((head.host, head.http11, head.keep_alive), (Some("rpc.example:8545"), true, true));
        assert_eq!((head.framing, head.content_type), (Framing::Length(2), ContentType::Json));
        assert_eq!((head.content_encoding, head.expect_continue), (Coding::Identity, false));
        assert_eq!((head.origin, head.request_id), (Some("https://dapp.example"), Some("abc-1")));
        assert_eq!(head.traceparent, None);
    }

    #[test]
    fn verbs_are_case_sensitive() {
        for (method, expected) in [
            ("POST", Verb::Post),
            ("GET", Verb::Get),
            ("HEAD", Verb::Head),
            ("OPTIONS", Verb::Options),
            ("post", Verb::Other),
            ("DELETE", Verb::Other),
            ("M-SEARCH", Verb::Other),
        ] {
            assert_eq!(whole(&format!("{method} / HTTP/1.1\r\nHost: h\r\n\r\n")).verb, expected);
        }
    }

    #[test]
    fn framing_of_the_body() {
        assert_eq!(whole("POST / HTTP/1.1\r\nHost: h\r\n\r\n").framing, Framing::Empty);
        for (fields, framing) in [
            ("Content-Length: 0", Framing::Empty),
            ("Content-Length:\t042 \t", Framing::Length(42)),
            ("content-length: 5, 5\r\nCONTENT-LENGTH: 5", Framing::Length(5)),
            ("Content-Length: 18446744073709551615", Framing::Length(u64::MAX)),
            ("Transfer-Encoding: chunked", Framing::Chunked),
            ("TRANSFER-ENCODING: \t CHUNKED\t", Framing::Chunked),
            ("Content-Length-X: 7", Framing::Empty),
        ] {
            assert_eq!(whole(&with(fields)).framing, framing, "{fields:?}");
        }
    }

    #[test]
    fn ambiguous_framing_is_refused() {
        let both = "both Content-Length and Transfer-Encoding";
        refused(with("Content-Length: 5\r\nTransfer-Encoding: chunked"), both);
        refused(with("Transfer-Encoding: chunked\r\nContent-Length: 5"), both);
        refused(with("Content-Length: 5\r\nContent-Length: 6"), "differing Content-Lengths");
        refused(with("Content-Length: 6\r\nX: y\r\nContent-Length: 5"), "differing Content-Lengths");
        refused(with("Content-Length: 5, 6"), "differing Content-Lengths");
        for length in ["", "+5", "-5", "0x5", "5a", "5 5", "5,", ",5", "18446744073709551616", "5.0", "five"] {
            refused(with(&format!("Content-Length: {length}")), "malformed Content-Length");
        }
        let other = "Transfer-Encoding other than chunked";
        for coding in [
            "",
            "identity",
            "gzip",
            "gzip, chunked",
            "chunked, gzip",
            "chunked, chunked",
            "chunked,",
            "chunked;q=1",
            "\"chunked\"",
        ] {
            refused(with(&format!("Transfer-Encoding: {coding}")), other);
        }
        refused(with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), other);
        refused(with("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked"), other);
        refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "Transfer-Encoding in HTTP/1.0");
    }

    #[test]
    fn line_ends_are_crlf_and_nothing_else() {
        refused("POST / HTTP/1.1\nHost: h\n\n", "bare LF in the head");
        refused(with("A: b\nContent-Length: 5"), "bare LF in the head");
        refused("POST / HTTP/1.1\r\nHost: h\r\n\n", "bare LF in the head");
        refused("POST / HTTP/1.1\r\nHost: h\n\r\n", "bare LF in the head");
        refused("POST / HTTP/1.1\n", "bare LF in the head");
        refused("\nPOST / HTTP/1.1\r\nHost: h\r\n\r\n", "bare LF in the head");
        refused(with("A: b\rContent-Length: 5"), "bare CR in the head");
        refused(with("A: b\r"), "bare CR in the head");
        refused("POST / HTTP/1.1\rHost: h\r\n", "bare CR in the head");
        refused("\rPOST / HTTP/1.1\r\nHost: h\r\n\r\n", "bare CR in the head");
        refused("POST / HTTP/1.1\r\nHost: h\r\n\rX", "bare CR in the head");
    }

    #[test]
    fn field_lines_are_name_colon_value() {
        let name = "malformed header name";
        for line in [
            " A: b", "\tA: b", "A : b", "A\t: b", ": b", "A", "A b: c", "A\0: b", "A\x7f: b", "A\"b: c", "é: b", "(: b",
        ] {
            refused(with(line), name);
        }
        refused(with("A: b\r\n folded"), name);
        refused(with("A: b\r\n\tfolded"), name);
        refused("POST / HTTP/1.1\r\n Host: h\r\n\r\n", name);
        for byte in (0..=0x1f).chain([0x7f]).filter(|byte| !b"\t\r\n".contains(byte)) {
            // Long, so that the vectorised loops see it as well.
            for at in [0, 1, 20, 40, 70] {
                let mut value = vec![b'v'; 71];
                value[at] = byte;
                let text = [&b"GET / HTTP/1.1\r\nHost: h\r\nA: "[..], &value, b"\r\n\r\n"].concat();
                refused(text, "control character in a header value");
            }
        }
        assert!(parse(b"GET / HTTP/1.1\r\nHost: h\r\nA: D\xfcsseldorf\ttab\r\n\r\n").unwrap().is_some());
    }

    #[test]
    fn start_lines() {
        let bad = "malformed start line";
        for line in [
            "GET /",
            "GET  / HTTP/1.1",
            "GET /  HTTP/1.1",
            "GET / HTTP/1.1 ",
            "GET\t/ HTTP/1.1",
            "GET /a b HTTP/1.1",
            "GET / http/1.1",
            "GET / HTTP/1",
            "GET / HTTP/1.10",
            "GET / HTTP/11.1",
            "GET / HTTP/1,1",
            "GET / ICE/1.0",
            "G(T / HTTP/1.1",
            "GET",
            "GET / \0",
            "GET /\x01 HTTP/1.1",
            "GET /0123456789012345678901234567890123456789012345\x7f HTTP/1.1",
        ] {
            refused(format!("{line}\r\nHost: h\r\n\r\n"), bad);
        }
        for version in ["2.0", "1.2", "0.9", "5.6"] {
            let text = format!("GET / HTTP/{version}\r\nHost: h\r\n\r\n");
            assert_eq!(parse(text.as_bytes()), Err(HttpFault::VersionNotSupported), "{version}");
        }
        refused(b"\x16\x03\x01", "the request does not start with a method");
        refused(" GET / HTTP/1.1", "the request does not start with a method");
    }

    #[test]
    fn targets() {
        let of = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: header\r\n\r\n");
        for (target, path, query, host) in [
            ("/", "/", None, "header"),
            ("/a/b?", "/a/b", Some(""), "header"),
            ("//a", "//a", None, "header"),
            ("/a://b", "/a://b", None, "header"),
            ("/a?http://b", "/a", Some("http://b"), "header"),
            ("http://url:80/a?b", "/a", Some("b"), "url:80"),
            ("HTTPS://url", "/", None, "url"),
            ("http://url?b", "/", Some("b"), "url"),
            ("http://[::1]:80/", "/", None, "[::1]:80"),
        ] {
            let text = of(target);
            let head = whole(&text);
            assert_eq!((head.path, head.query, head.host), (path, query, Some(host)), "{target}");
        }
        let neither = "request target is neither a path nor an http URL";
        for target in ["*", "a", "host:80", "ftp://h/", "http:/h", "?a", "://h"] {
            refused(of(target), neither);
        }
        for target in
            ["http:///a", "http://", "http://u@h/", "http://u:p@h/", "http://h:x/", "http://[::1/", "http://a\"b/"]
        {
            refused(of(target), "malformed authority in the request target");
        }
        refused(of("/a#b"), "fragment in the request target");
        refused(of("/é"), "request target is not visible ASCII");
        assert_eq!(whole("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n").path, "*");
        refused("CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n", neither);
    }

    #[test]
    fn host_comes_once_and_is_one() {
        refused("GET / HTTP/1.1\r\n\r\n", "no Host");
        refused("GET http://h/ HTTP/1.1\r\n\r\n", "no Host");
        refused("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "a second Host");
        refused("GET / HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n", "a second Host");
        assert_eq!(whole("GET / HTTP/1.0\r\n\r\n").host, None);
        for host in
            ["", "a", "a:80", "a:", "1.2.3.4:5", "[::1]", "[::ffff:1.2.3.4]:80", "a_b-c.d~", "a%20b", "0.0.0.0=5000"]
        {
            assert_eq!(whole(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).host, Some(host));
        }
        for host in [
            "a b", "a, b", "a/b", "u@a", "a:b", "a:80:80", "[::1", "[]", "[::1]x", "[g]", "a?b", "a#b", "a\\b", "<a>",
            "é",
        ] {
            refused(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"), "malformed Host");
        }
    }

    #[test]
    fn keeping_alive() {
        for (text, keep_alive) in [
            ("GET / HTTP/1.1\r\nHost: h\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nHost: h\r\nConnection: x ,\tCLOSE , y\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nHost: h\r\nConnection: closed\r\n\r\n", true),
            ("GET / HTTP/1.0\r\n\r\n", false),
            ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true),
            ("GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", false),
        ] {
            assert_eq!(whole(text).keep_alive, keep_alive, "{text:?}");
        }
    }

    #[test]
    fn expectations() {
        assert!(whole(&with("Expect: 100-Continue")).expect_continue);
        assert!(!whole("POST / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n").expect_continue);
        for other in ["", "200-ok", "100-continue, x"] {
            assert_eq!(
                parse(with(&format!("Expect: {other}")).as_bytes()),
                Err(HttpFault::ExpectationFailed),
                "{other:?}"
            );
        }
        refused(with("Expect: x\r\nContent-Length: x"), "malformed Content-Length");
    }

    #[test]
    fn content_types_and_codings() {
        use ContentType::*;
        for (fields, expected) in [
            ("A: b", Missing),
            ("Content-Type: application/json", Json),
            ("content-type: APPLICATION/json-RPC ; x=\"y\"", Json),
            ("Content-Type: application/json;", Json),
            ("Content-Type: application/json\r\nContent-Type: application/json; a=b", Json),
            ("Content-Type: application/json\r\nContent-Type: text/plain", Other),
            ("Content-Type: text/plain\r\nContent-Type: application/json", Other),
            ("Content-Type: application/jsonp", Other),
            ("Content-Type: text/plain; application/json", Other),
            ("Content-Type: application/json, application/json", Other),
            ("Content-Type:", Other),
        ] {
            assert_eq!(whole(&with(fields)).content_type, expected, "{fields:?}");
        }
        assert_eq!(whole(&with("Content-Encoding: GZip")).content_encoding, Coding::Gzip);
        assert_eq!(whole(&with("Content-Encoding: gzip\r\nContent-Encoding: br")).content_encoding, Coding::Other);
    }

    #[test]
    fn fields_that_go_on() {
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(whole(&with(&format!("TraceParent: {trace}"))).traceparent, Some(trace));
        for bad in [
            "",
            "00",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(whole(&with(&format!("traceparent: {bad}"))).traceparent, None, "{bad:?}");
            let twice = with(&format!("traceparent: {bad}\r\ntraceparent: {trace}"));
            assert_eq!(whole(&twice).traceparent, None, "{bad:?} and a good one");
        }
        assert_eq!(whole(&with(&format!("traceparent: {trace}\r\ntraceparent: {trace}"))).traceparent, None);

        let longest = "i".repeat(REQUEST_ID_MAX);
        assert_eq!(whole(&with(&format!("x-request-id: {longest}"))).request_id, Some(longest.as_str()));
        for bad in ["", "a b", "é", &"i".repeat(REQUEST_ID_MAX + 1)] {
            assert_eq!(whole(&with(&format!("X-Request-Id: {bad}"))).request_id, None, "{bad:?}");
        }
        refused(with("Origin: a\r\nOrigin: a"), "a second Origin");
        refused(with("Origin: é"), "malformed Origin");
    }

    #[test]
    fn all_fields_can_be_walked() {
        let text = "GET / HTTP/1.1\r\nHost: h:1\r\nX-Api-Key:  k\t\r\nEmpty:\r\nx-api-key: l\r\n\r\nBody: x\r\n";
        let head = whole(text);
        let fields: Vec<_> = head.fields().collect();
        let expected: [(&[u8], &[u8]); 4] =
            [(b"Host", b"h:1"), (b"X-Api-Key", b"k"), (b"Empty", b""), (b"x-api-key", b"l")];
        assert_eq!(fields, expected);
        let mut backwards: Vec<_> = head.fields().rev().collect();
        backwards.reverse();
        assert_eq!(backwards, expected);
        let (mut both, mut found) = (head.fields(), Vec::new());
        while let Some(front) = both.next() {
            found.extend([Some(front), both.next_back()].into_iter().flatten());
        }
        assert_eq!(found, [expected[0], expected[3], expected[1], expected[2]]);
        assert_eq!((both.next(), both.next_back()), (None, None));
        assert_eq!(head.values("X-API-KEY").collect::<Vec<_>>(), [b"k", b"l"]);
        assert_eq!(head.values("body").count(), 0);
    }

    #[test]
    fn empty_lines_before_the_request_are_few() {
        let request = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        for lines in 0..=EMPTY_LINES_MAX {
            let text = "\r\n".repeat(lines) + request;
            assert_eq!(whole(&text).head_len, text.len(), "{lines}");
        }
        let text = "\r\n".repeat(EMPTY_LINES_MAX + 1);
        refused(text, "too many empty lines before the request");
        for prefix in ["", "\r", "\r\n", "\r\n\r"] {
            assert_eq!(parse(prefix.as_bytes()), Ok(None), "{prefix:?}");
        }
    }

    #[test]
    fn limits_hold_before_the_end_is_there() {
        let text = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        let of = |bytes, headers| HeadLimits { bytes, headers };
        assert!(request_head(text.as_bytes(), 0, &of(text.len(), 1)).unwrap().is_some());
        assert_eq!(request_head(text.as_bytes(), 0, &of(text.len() - 1, 1)), Err(HttpFault::HeadTooLarge));
        assert_eq!(request_head(text.as_bytes(), 0, &of(text.len(), 0)), Err(HttpFault::HeadTooLarge));
        let endless = "GET /".to_owned() + &"a".repeat(100);
        assert_eq!(request_head(endless.as_bytes(), 0, &of(100, 9)), Err(HttpFault::HeadTooLarge));
        let many = format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "A: b\r\n".repeat(HEADERS_MAX));
        assert_eq!(request_head(many.as_bytes(), 0, &of(usize::MAX, usize::MAX)), Err(HttpFault::HeadTooLarge));
    }

    #[test]
    fn a_stale_hint_never_joins_two_heads() {
        let text = "GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n";
        assert_eq!(request_head(text.as_bytes(), 40, &LIMITS), Err(HttpFault::BadRequest("malformed start line")));
    }

    const SAMPLE: &[u8] = b"\r\nPOST /eth?a=b HTTP/1.1\r\nHost: rpc.example:8545\r\nContent-Type: application/json\r\n\
        Expect: 100-continue\r\nConnection: close\r\nX-Request-Id: 12\r\nContent-Length: 17\r\n\r\nbody\r\n\r\nGET ";

    proptest! {
        #[test]
        fn pieces_give_the_same_as_the_whole(cuts in prop::collection::vec(0..SAMPLE.len(), 0..8)) {
            let expected = parse(SAMPLE).unwrap().unwrap();
            let mut cuts = cuts;
            cuts.sort_unstable();
            cuts.push(SAMPLE.len());
            let (mut scanned, mut got) = (0, None);
            for cut in cuts {
                got = request_head(&SAMPLE[..cut], scanned, &LIMITS).unwrap();
                prop_assert_eq!(got.is_some(), cut >= expected.head_len);
                if got.is_some() { break }
                scanned = cut;
            }
            prop_assert_eq!(got, Some(expected));
        }

        #[test]
        fn no_bytes_panic(edits in prop::collection::vec((0..SAMPLE.len(), any::<u8>()), 0..6), scanned in 0..200usize) {
            let mut bytes = SAMPLE.to_vec();
            for (at, byte) in edits { bytes[at] = byte; }
            if let Ok(Some(head)) = parse(&bytes) {
                let raw = &bytes[..head.head_len];
                prop_assert!(raw.ends_with(b"\r\n\r\n"));
                prop_assert!(memchr::memchr_iter(b'\n', raw).all(|at| at > 0 && raw[at - 1] == b'\r'));
                prop_assert!(head.path.starts_with('/') || head.path == "*");
                prop_assert!(head.fields().count() <= LIMITS.headers);
            }
            let _ = request_head(&bytes, scanned, &LIMITS);
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), scanned in 0..300usize) {
            let _ = request_head(&bytes, scanned, &LIMITS);
        }
    }
}
