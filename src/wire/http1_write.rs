//! Heads that Ringway writes: responses to clients, requests to upstreams.
//!
//! A head is a sequence of pieces, and everything else follows from it: its length before it is written,
//! so that it can go right in front of a body that is already there, and the same bytes in both ways.

use super::http1::{is_tchar, is_value_char};
use super::http1_lines::is_graphic;
use crate::logic::tron_http::{ApiCall, Verb};

/// `Content-Type` of everything that speaks JSON.
pub const JSON: &str = "application/json";

/// The interim answer to `Expect: 100-continue`.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A head that can be written.
pub trait Head {
    /// Hands the bytes of the head to `put`, piece by piece.
    fn pieces(&self, put: &mut impl FnMut(&[u8]));

    /// The bytes it takes.
    fn bytes(&self) -> usize {
        let mut sum = 0;
        self.pieces(&mut |piece| sum += piece.len());
        sum
    }

    /// Appends it.
    fn write(&self, out: &mut Vec<u8>) {
        self.pieces(&mut |piece| out.extend_from_slice(piece));
    }

    /// Writes it to the end of `room`, the free bytes right in front of a body. Gives the index in `room`
    /// where the head begins, or `None`, with nothing written, if it does not fit.
    fn write_before(&self, room: &mut [u8]) -> Option<usize> {
        let start = room.len().checked_sub(self.bytes())?;
        let mut rest = &mut room[start..];
        self.pieces(&mut |piece| {
            let (here, behind) = std::mem::take(&mut rest).split_at_mut(piece.len());
            here.copy_from_slice(piece);
            rest = behind;
        });
        Some(start)
    }
}

/// The body that a response head announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announced<'a> {
    /// `Content-Type`.
    pub content_type: &'a str,
    /// `Content-Length`.
    pub bytes: usize,
}

impl Announced<'static> {
    /// A JSON body of so many bytes.
    pub const fn json(bytes: usize) -> Self {
        Announced { content_type: JSON, bytes }
    }
}

/// Whether an answer's coding depends on what the client takes, and which one it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerCoding {
    /// It is as it is, whoever asks.
    Fixed,
    /// As it is, but another client might get it in gzip.
    Plain,
    /// In gzip.
    Gzip,
}

/// The head of a response to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseWriter<'a> {
    /// The status.
    pub status: u16,
    /// The body; without one `Content-Length: 0` is sent where the status may have a body at all.
    pub body: Option<Announced<'a>>,
    /// Whether the connection stays open after this response.
    pub keep_alive: bool,
    /// Whether the request was HTTP/1.1: HTTP/1.0 has to be told that it is kept alive.
    pub http11: bool,
    /// `Retry-After`, in seconds.
    pub retry_after_s: Option<u64>,
    /// `Allow`.
    pub allow: Option<&'a str>,
    /// `X-Request-Id`; left out if it is not visible ASCII.
    pub request_id: Option<&'a str>,
    /// `Access-Control-Allow-Origin`, with what belongs to it.
    pub cors: Option<&'a str>,
    /// What is said about the body's coding.
    pub coding: AnswerCoding,
    /// More fields, as whole lines with their CRLFs.
    pub extra: &'a [u8],
}

impl<'a> ResponseWriter<'a> {
    /// A response on a connection that stays open, with no fields but those of its body.
    pub const fn new(status: u16, body: Option<Announced<'a>>) -> Self {
        ResponseWriter {
            status,
            body,
            keep_alive: true,
            http11: true,
            retry_after_s: None,
            allow: None,
            request_id: None,
            cors: None,
            coding: AnswerCoding::Fixed,
            extra: b"",
        }
    }

    /// The status line and the fields of the body, but for the CRLF of the last of these lines.
    #[inline(always)]
    fn first_pieces(&self, put: &mut impl FnMut(&[u8])) {
        match (self.status, self.body) {
            // Nearly all answers, and in few pieces.
            (200, Some(Announced { content_type: JSON, bytes })) => {
                put(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ");
                put(itoa::Buffer::new().format(bytes).as_bytes());
            }
            (status, body) => {
                put(b"HTTP/1.1 ");
                put(itoa::Buffer::new().format(status).as_bytes());
                put(b" ");
                put(reason(status).as_bytes());
                match body {
                    _ if matches!(status, 100..=199 | 204 | 304) => {}
                    Some(body) => {
                        field(put, b"\r\nContent-Type: ", body.content_type.as_bytes());
                        number(put, b"\r\nContent-Length: ", body.bytes as u64);
                    }
                    None => put(b"\r\nContent-Length: 0"),
                }
            }
        }
    }
}

/// Each line with the CRLF of the one before it.
impl Head for ResponseWriter<'_> {
    #[inline(always)]
    fn pieces(&self, put: &mut impl FnMut(&[u8])) {
        self.first_pieces(put);
        match (self.keep_alive, self.http11) {
            (false, _) => put(b"\r\nConnection: close"),
            (true, false) => put(b"\r\nConnection: keep-alive"),
            (true, true) => {}
        }
        if let Some(seconds) = self.retry_after_s {
            number(put, b"\r\nRetry-After: ", seconds);
        }
        if let Some(methods) = self.allow {
            field(put, b"\r\nAllow: ", methods.as_bytes());
        }
        if let Some(id) = self.request_id.filter(|id| is_graphic(id.as_bytes())) {
            field(put, b"\r\nX-Request-Id: ", id.as_bytes());
        }
        if let Some(origin) = self.cors {
            field(put, b"\r\nAccess-Control-Allow-Origin: ", origin.as_bytes());
            put(b"\r\nAccess-Control-Expose-Headers: Retry-After, X-Request-Id\r\nVary: Origin");
        }
        match self.coding {
            AnswerCoding::Fixed => {}
            AnswerCoding::Plain => put(b"\r\nVary: Accept-Encoding"),
            AnswerCoding::Gzip => put(b"\r\nContent-Encoding: gzip\r\nVary: Accept-Encoding"),
        }
        debug_assert!(self.extra.is_empty() || self.extra.ends_with(b"\r\n"), "extra holds whole lines");
        if !self.extra.is_empty() {
            put(b"\r\n");
            put(self.extra);
            put(b"\r\n");
        } else {
            put(b"\r\n\r\n");
        }
    }
}

#[inline(always)]
fn field(put: &mut impl FnMut(&[u8]), name: &[u8], value: &[u8]) {
    put(name);
    put(value);
}

#[inline(always)]
fn number(put: &mut impl FnMut(&[u8]), name: &[u8], value: u64) {
    field(put, name, itoa::Buffer::new().format(value).as_bytes());
}

fn line(put: &mut impl FnMut(&[u8]), name: &[u8], value: &[u8]) {
    put(name);
    put(value);
    put(b"\r\n");
}

/// The reason phrase (RFC 9110, 15; 428 to 431 from RFC 6585).
pub const fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        // The phrase may be empty; the space before it may not be missing.
        _ => "",
    }
}

/// What every request to one Endpoint has in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestTemplate<'a> {
    /// Host and port of the Endpoint's URL, for `Host`.
    pub authority: &'a str,
    /// Path and query of the Endpoint's URL; empty = `/`.
    pub path_and_query: &'a str,
    /// `User-Agent`, unless `headers` has one.
    pub user_agent: &'a str,
    /// Ask for gzip.
    pub gzip: bool,
    /// The Endpoint's own headers. They may replace `User-Agent` and `Accept`.
    pub headers: &'a [(&'a str, &'a str)],
}

/// Fields that only Ringway may set: they frame the message, or say what the body is.
const RESERVED: [&str; 13] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "accept-encoding",
    "content-type",
    "traceparent",
];

impl RequestTemplate<'_> {
    /// The head up to `Content-Length: `; [`RequestWriter`] adds the rest per request. What the configuration
    /// should have refused (reserved names, bytes that would end a line) is left out here once more.
    pub fn build(&self) -> Box<[u8]> {
        let mut out = Vec::new();
        let mut put = |piece: &[u8]| out.extend_from_slice(piece);
        put(b"POST ");
        if !self.path_and_query.starts_with('/') {
            put(b"/");
        }
        line(&mut put, &visible_part(self.path_and_query), b" HTTP/1.1");
        self.fields(Some(JSON), &mut put);
        put(b"Content-Length: ");
        out.into_boxed_slice()
    }

    /// The fields that every request to an API has in common; [`ApiRequestWriter`] writes what is around them.
    pub fn build_fields(&self) -> Box<[u8]> {
        let mut out = Vec::new();
        self.fields(None, &mut |piece| out.extend_from_slice(piece));
        out.into_boxed_slice()
    }

    fn fields(&self, content_type: Option<&str>, put: &mut impl FnMut(&[u8])) {
        line(put, b"Host: ", &visible_part(self.authority));
        if !self.overrides("User-Agent") {
            line(put, b"User-Agent: ", self.user_agent.as_bytes());
        }
        if !self.overrides("Accept") {
            line(put, b"Accept: ", JSON.as_bytes());
        }
        line(put, b"Accept-Encoding: ", if self.gzip { b"gzip" } else { b"identity" });
        if let Some(content_type) = content_type {
            line(put, b"Content-Type: ", content_type.as_bytes());
        }
        for (name, value) in self.headers.iter().filter(|(name, value)| may_set(name, value)) {
            put(name.as_bytes());
            line(put, b": ", value.as_bytes());
        }
    }

    fn overrides(&self, wanted: &str) -> bool {
        self.headers.iter().any(|(name, value)| name.eq_ignore_ascii_case(wanted) && may_set(name, value))
    }
}

fn may_set(name: &str, value: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(is_tchar)
        && value.bytes().all(is_value_char)
        && !RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(name))
}

/// Without the bytes that can't stand in a request line.
fn visible_part(text: &str) -> Vec<u8> {
    text.bytes().filter(u8::is_ascii_graphic).collect()
}

/// The head of a request to an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestWriter<'a> {
    /// From [`RequestTemplate::build`].
    pub template: &'a [u8],
    /// The bytes of the body.
    pub body_bytes: usize,
    /// The client's `traceparent`, as `http1_request` let it through.
    pub traceparent: Option<&'a str>,
}

impl Head for RequestWriter<'_> {
    #[inline(always)]
    fn pieces(&self, put: &mut impl FnMut(&[u8])) {
        number(put, self.template, self.body_bytes as u64);
        if let Some(traceparent) = self.traceparent {
            field(put, b"\r\ntraceparent: ", traceparent.as_bytes());
        }
        put(b"\r\n\r\n");
    }
}

/// The head of a request to an API of an upstream: what the caller asked, behind the Endpoint's own path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiRequestWriter<'a> {
    /// From [`RequestTemplate::build_fields`].
    pub fields: &'a [u8],
    /// Path and query of the Endpoint's URL: the path goes in front of the caller's, and so does the query.
    pub base: &'a str,
    /// The request.
    pub call: &'a ApiCall<'a>,
    /// The client's `traceparent`, as `http1_request` let it through.
    pub traceparent: Option<&'a str>,
}

impl Head for ApiRequestWriter<'_> {
    fn pieces(&self, put: &mut impl FnMut(&[u8])) {
        let ApiCall { verb, path, query, content_type, body } = *self.call;
        let (base, own) = match self.base.split_once('?') {
            Some((base, own)) => (base, Some(own).filter(|own| !own.is_empty())),
            None => (self.base, None),
        };
        put(verb.word().as_bytes());
        put(b" ");
        put(base.trim_end_matches('/').as_bytes());
        put(path.as_bytes());
        for (query, before) in [(own, &b"?"[..]), (query, if own.is_some() { b"&" } else { b"?" })] {
            if let Some(query) = query {
                put(before);
                put(query.as_bytes());
            }
        }
        put(b" HTTP/1.1\r\n");
        put(self.fields);
        if let Some(content_type) = content_type {
            line(put, b"Content-Type: ", content_type.as_bytes());
        }
        // A GET without a body announces none (RFC 9110, 8.6).
        if verb == Verb::Post || !body.is_empty() {
            line(put, b"Content-Length: ", itoa::Buffer::new().format(body.len()).as_bytes());
        }
        if let Some(traceparent) = self.traceparent {
            line(put, b"traceparent: ", traceparent.as_bytes());
        }
        put(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::http1::HeadLimits;
    use crate::wire::http1_request::{ContentType, Framing, Verb as Method, request_head};
    use crate::wire::http1_response::{BodyFraming, RetryAfter, response_head};

    const LIMITS: HeadLimits = HeadLimits { bytes: 16 << 10, headers: 100 };

    fn text(head: &impl Head) -> String {
        let mut out = Vec::new();
        head.write(&mut out);
        assert_eq!(out.len(), head.bytes());
        let mut room = vec![b'#'; out.len() + 3];
        assert_eq!(head.write_before(&mut room), Some(3));
        assert_eq!(room, [b"###", &out[..]].concat());
        let mut small = vec![b'#'; out.len() - 1];
        assert_eq!(head.write_before(&mut small), None);
        assert!(small.iter().all(|&byte| byte == b'#'));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_common_response() {
        let head = ResponseWriter::new(200, Some(Announced::json(38)));
        assert_eq!(text(&head), "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 38\r\n\r\n");
    }

    #[test]
    fn a_response_with_every_field() {
        let head = ResponseWriter {
            keep_alive: false,
            retry_after_s: Some(3),
            allow: Some("POST, OPTIONS"),
            request_id: Some("abc"),
            extra: b"Vary: Origin\r\n",
            ..ResponseWriter::new(503, Some(Announced { content_type: "text/plain", bytes: 0 }))
        };
        let written = text(&head);
        assert_eq!(
            written,
            "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\
             Connection: close\r\nRetry-After: 3\r\nAllow: POST, OPTIONS\r\nX-Request-Id: abc\r\nVary: Origin\r\n\r\n"
        );
        let read = response_head(written.as_bytes(), 0, &LIMITS).unwrap().unwrap();
        assert_eq!((read.status, read.framing, read.keep_alive), (503, BodyFraming::Empty, false));
        assert_eq!((read.head_len, read.retry_after), (written.len(), Some(RetryAfter::Seconds(3))));
    }

    #[test]
    fn a_response_without_a_body() {
        assert_eq!(text(&ResponseWriter::new(204, None)), "HTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!(text(&ResponseWriter::new(204, Some(Announced::json(9)))), "HTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!(text(&ResponseWriter::new(404, None)), "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(text(&ResponseWriter::new(299, None)), "HTTP/1.1 299 \r\nContent-Length: 0\r\n\r\n");
    }

    #[test]
    fn only_http10_is_told_that_it_is_kept_alive() {
        let of = |keep_alive, http11| {
            let head = ResponseWriter { keep_alive, http11, ..ResponseWriter::new(204, None) };
            text(&head).contains("Connection: keep-alive") as u8 + 2 * text(&head).contains("Connection: close") as u8
        };
        assert_eq!((of(true, true), of(true, false), of(false, true), of(false, false)), (0, 1, 2, 2));
    }

    #[test]
    fn a_request_id_never_splits_a_response() {
        for id in ["a\r\nX: y", "a b", "\u{e9}", "a\0"] {
            let head = ResponseWriter { request_id: Some(id), ..ResponseWriter::new(204, None) };
            assert_eq!(text(&head), "HTTP/1.1 204 No Content\r\n\r\n", "{id:?}");
        }
    }

    #[test]
    fn every_status_of_the_contract_has_its_phrase() {
        for status in [200, 204, 400, 401, 403, 404, 405, 408, 409, 413, 415, 417, 429, 431, 502, 503, 504, 505] {
            assert!(!reason(status).is_empty(), "{status}");
        }
        assert_eq!(reason(413), "Content Too Large");
        assert_eq!(reason(431), "Request Header Fields Too Large");
    }

    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    const TEMPLATE: RequestTemplate<'_> = RequestTemplate {
        authority: "node:8545",
        path_and_query: "/v3/key?x=1",
        user_agent: "ringway/1",
        gzip: false,
        headers: &[],
    };

    fn request(template: RequestTemplate<'_>, traceparent: Option<&str>) -> String {
        text(&RequestWriter { template: &template.build(), body_bytes: 1234, traceparent })
    }

    #[test]
    fn a_request_reads_back() {
        let written = request(TEMPLATE, Some(TRACE));
        assert_eq!(
            written,
            format!(
                "POST /v3/key?x=1 HTTP/1.1\r\nHost: node:8545\r\nUser-Agent: ringway/1\r\nAccept: application/json\r\n\
                 Accept-Encoding: identity\r\nContent-Type: application/json\r\nContent-Length: 1234\r\n\
                 traceparent: {TRACE}\r\n\r\n"
            )
        );
        let read = request_head(written.as_bytes(), 0, &LIMITS).unwrap().unwrap();
        assert_eq!((read.verb, read.path, read.query), (Method::Post, "/v3/key", Some("x=1")));
        assert_eq!((read.framing, read.content_type), (Framing::Length(1234), ContentType::Json));
        assert_eq!((read.host, read.traceparent), (Some("node:8545"), Some(TRACE)));
        assert!(request(TEMPLATE, None).ends_with("Content-Length: 1234\r\n\r\n"));
    }

    #[test]
    fn own_headers_replace_what_they_may() {
        let headers = [("USER-AGENT", "mine"), ("accept", "*/*"), ("Authorization", "Bearer k")];
        let written = request(RequestTemplate { headers: &headers, gzip: true, ..TEMPLATE }, None);
        assert_eq!(
            written,
            "POST /v3/key?x=1 HTTP/1.1\r\nHost: node:8545\r\nAccept-Encoding: gzip\r\nContent-Type: application/json\r\n\
             USER-AGENT: mine\r\naccept: */*\r\nAuthorization: Bearer k\r\nContent-Length: 1234\r\n\r\n"
        );
    }

    #[test]
    fn own_headers_never_frame_or_split_a_request() {
        let plain = request(TEMPLATE, None);
        for name in RESERVED {
            let upper = name.to_ascii_uppercase();
            let headers = [(upper.as_str(), "1")];
            assert_eq!(request(RequestTemplate { headers: &headers, ..TEMPLATE }, None), plain, "{name}");
        }
        for bad in [("", "x"), ("a b", "x"), ("a:", "x"), ("a", "x\r\nHost: y"), ("User-Agent", "x\n"), ("a", "\0")] {
            assert_eq!(request(RequestTemplate { headers: &[bad], ..TEMPLATE }, None), plain, "{bad:?}");
        }
    }

    #[test]
    fn the_request_line_is_always_one() {
        let line = |path_and_query| {
            request(RequestTemplate { path_and_query, ..TEMPLATE }, None).lines().next().unwrap().to_owned()
        };
        assert_eq!(line(""), "POST / HTTP/1.1");
        assert_eq!(line("?key=1"), "POST /?key=1 HTTP/1.1");
        assert_eq!(line("/a b\r\nX: y"), "POST /abX:y HTTP/1.1");
    }

    fn api(base: &str, call: &ApiCall<'_>) -> String {
        let fields = RequestTemplate { headers: &[("X-Key", "k"), ("Content-Type", "a/b")], ..TEMPLATE }.build_fields();
        text(&ApiRequestWriter { fields: &fields, base, call, traceparent: Some(TRACE) })
    }

    #[test]
    fn a_request_of_an_api_goes_behind_the_endpoints_own_path_and_query() {
        let call = ApiCall {
            verb: Verb::Post,
            path: "/wallet/getaccount",
            query: Some("a=1&&b"),
            content_type: Some("application/json; charset=utf-8"),
            body: b"{}",
        };
        let written = api("/key/?own=1", &call);
        assert_eq!(
            written,
            format!(
                "POST /key/wallet/getaccount?own=1&a=1&&b HTTP/1.1\r\nHost: node:8545\r\nUser-Agent: ringway/1\r\n\
                 Accept: application/json\r\nAccept-Encoding: identity\r\nX-Key: k\r\n\
                 Content-Type: application/json; charset=utf-8\r\nContent-Length: 2\r\ntraceparent: {TRACE}\r\n\r\n"
            )
        );
        let read = request_head(written.as_bytes(), 0, &LIMITS).unwrap().unwrap();
        assert_eq!((read.verb, read.path, read.framing), (Method::Post, "/key/wallet/getaccount", Framing::Length(2)));
    }

    #[test]
    fn a_request_of_an_api_says_nothing_that_its_caller_did_not() {
        let call = ApiCall { verb: Verb::Get, path: "/wallet/getnowblock", query: None, content_type: None, body: b"" };
        let written = api("/", &call);
        assert!(written.starts_with("GET /wallet/getnowblock HTTP/1.1\r\n"), "{written}");
        assert!(!written.contains("Content-"), "{written}");
        let line = |base, query| api(base, &ApiCall { query, ..call }).lines().next().unwrap_or_default().to_owned();
        assert_eq!(line("/?", Some("")), "GET /wallet/getnowblock? HTTP/1.1");
        assert_eq!(line("/a/b", None), "GET /a/b/wallet/getnowblock HTTP/1.1");
        assert_eq!(line("/?k", None), "GET /wallet/getnowblock?k HTTP/1.1");
        assert!(api("/", &ApiCall { verb: Verb::Post, ..call }).contains("\r\nContent-Length: 0\r\n"));
        assert!(api("/", &ApiCall { body: b"{}", ..call }).contains("\r\nContent-Length: 2\r\n"));
    }
}
