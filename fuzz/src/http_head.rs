//! Message heads, read line by line (RFC 9112, 9110): which are refused, and how the others frame their body.

/// A head, or why there is none.
#[derive(Debug)]
pub enum Head<T> {
    /// It is good.
    Good(T),
    /// It must be refused.
    Bad(&'static str),
    /// Its end is not there, and nothing is wrong so far.
    Unfinished,
}

/// What ends a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    Empty,
    Length(u64),
    Chunked,
    UntilClose,
}

/// The name and value of a field.
pub type Field<'b> = (&'b [u8], &'b [u8]);

/// A request head.
#[derive(Debug)]
pub struct Request<'b> {
    pub len: usize,
    pub method: &'b str,
    pub target: &'b str,
    pub http11: bool,
    pub fields: Vec<Field<'b>>,
    pub body: Body,
    pub keep_alive: bool,
}

/// A response head.
#[derive(Debug)]
pub struct Response<'b> {
    pub len: usize,
    pub status: u16,
    pub fields: Vec<Field<'b>>,
    pub body: Body,
    pub keep_alive: bool,
}

/// Empty lines that may stand before a request.
const EMPTY_LINES: usize = 4;

/// Reads a request head of at most `bytes` bytes and `count` fields.
pub fn request(buf: &[u8], bytes: usize, count: usize) -> Head<Request<'_>> {
    let mut start = 0;
    while buf[start..].starts_with(b"\r\n") {
        start += 2;
        if start > 2 * EMPTY_LINES {
            return Head::Bad("empty lines");
        }
    }
    match &buf[start..] {
        [] | [b'\r'] => return Head::Unfinished,
        [first, ..] if !is_token(*first) => return Head::Bad("first byte"),
        _ => {}
    }
    let (first, fields, len) = match lines(buf, start, bytes, count) {
        Head::Good(found) => found,
        Head::Bad(why) => return Head::Bad(why),
        Head::Unfinished => return Head::Unfinished,
    };
    match judge_request(first, &fields) {
        Ok((method, target, http11, body, keep_alive)) => {
            Head::Good(Request { len, method, target, http11, fields, body, keep_alive })
        }
        Err(why) => Head::Bad(why),
    }
}

/// Reads a response head.
pub fn response(buf: &[u8], bytes: usize, count: usize) -> Head<Response<'_>> {
    if !buf.starts_with(b"HTTP/") && !b"HTTP/".starts_with(buf) {
        return Head::Bad("first bytes");
    }
    let (first, fields, len) = match lines(buf, 0, bytes, count) {
        Head::Good(found) => found,
        Head::Bad(why) => return Head::Bad(why),
        Head::Unfinished => return Head::Unfinished,
    };
    match judge_response(first, &fields) {
        Ok((status, body, keep_alive)) => Head::Good(Response { len, status, fields, body, keep_alive }),
        Err(why) => Head::Bad(why),
    }
}

/// The start line, the fields, and where the head ends.
type Lines<'b> = (&'b [u8], Vec<Field<'b>>, usize);

fn lines(buf: &[u8], start: usize, bytes: usize, count: usize) -> Head<Lines<'_>> {
    let seen = &buf[..buf.len().min(bytes)];
    let end = seen[start.min(seen.len())..].windows(4).position(|four| four == b"\r\n\r\n").map(|at| start + at);
    let head = &seen[start.min(seen.len())..end.map_or(seen.len(), |end| end + 4)];
    let bare = |(at, byte): (usize, &u8)| match byte {
        b'\n' => at == 0 || head[at - 1] != b'\r',
        b'\r' => head.get(at + 1).is_some_and(|next| *next != b'\n'),
        _ => false,
    };
    if head.iter().enumerate().any(bare) {
        return Head::Bad("bare CR or LF");
    }
    let Some(end) = end else {
        return if buf.len() >= bytes { Head::Bad("too large") } else { Head::Unfinished };
    };
    let mut lines = Vec::new();
    let mut rest = &buf[start..end + 2];
    while let Some(at) = rest.windows(2).position(|two| two == b"\r\n") {
        lines.push(&rest[..at]);
        rest = &rest[at + 2..];
    }
    if lines.len() - 1 > count {
        return Head::Bad("too many fields");
    }
    let mut fields = Vec::new();
    for line in &lines[1..] {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return Head::Bad("no colon") };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
            return Head::Bad("field name");
        }
        if !value.iter().all(|byte| is_text(*byte)) {
            return Head::Bad("field value");
        }
        fields.push((name, trim(value)));
    }
    Head::Good((lines[0], fields, end + 4))
}

type JudgedRequest<'b> = (&'b str, &'b str, bool, Body, bool);

fn judge_request<'b>(line: &'b [u8], fields: &[Field<'_>]) -> Result<JudgedRequest<'b>, &'static str> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let [method, target, version] = words[..] else { return Err("request line") };
    let http11 = match version {
        b"HTTP/1.1" => true,
        b"HTTP/1.0" => false,
        _ => return Err("version"),
    };
    if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) {
        return Err("method");
    }
    let method = std::str::from_utf8(method).map_err(|_| "method")?;
    if target.is_empty() || !target.iter().all(u8::is_ascii_graphic) || target.contains(&b'#') {
        return Err("target");
    }
    let target = std::str::from_utf8(target).map_err(|_| "target")?;
    if !(target.starts_with('/') || target == "*" && method == "OPTIONS" || authority(target).is_some_and(is_authority))
    {
        return Err("form of the target");
    }
    let hosts = values(fields, "host");
    if hosts.len() > 1 || (http11 && hosts.is_empty()) {
        return Err("Host");
    }
    if hosts.iter().any(|host| !std::str::from_utf8(host).is_ok_and(|host| host.is_empty() || is_authority(host))) {
        return Err("value of Host");
    }
    let origins = values(fields, "origin");
    if origins.len() > 1 || origins.iter().any(|origin| !origin.iter().all(u8::is_ascii_graphic)) {
        return Err("Origin");
    }
    if http11 && values(fields, "expect").iter().any(|value| !value.eq_ignore_ascii_case(b"100-continue")) {
        return Err("Expect");
    }
    let body = match framing(fields, http11)? {
        None | Some(Body::Length(0)) => Body::Empty,
        Some(body) => body,
    };
    Ok((method, target, http11, body, keep_alive(fields, http11)))
}

fn judge_response(line: &[u8], fields: &[Field<'_>]) -> Result<(u16, Body, bool), &'static str> {
    let http11 = match line.get(..9) {
        Some(b"HTTP/1.1 ") => true,
        Some(b"HTTP/1.0 ") => false,
        _ => return Err("version"),
    };
    let code = line.get(9..12).filter(|code| code.iter().all(u8::is_ascii_digit)).ok_or("status")?;
    let status = code.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    match &line[12..] {
        [] => {}
        [b' ', reason @ ..] if reason.iter().all(|byte| is_text(*byte)) => {}
        _ => return Err("reason"),
    }
    if !(100..600).contains(&status) {
        return Err("range of the status");
    }
    let declared = framing(fields, http11)?;
    let nothing = matches!(declared, None | Some(Body::Length(0)));
    let (body, clean) = match status {
        101 => (Body::Empty, false),
        100..200 if !nothing => return Err("1xx with a body"),
        100..200 => (Body::Empty, true),
        204 | 304 => (Body::Empty, nothing),
        _ => match declared {
            None => (Body::UntilClose, false),
            Some(Body::Length(0)) => (Body::Empty, true),
            Some(body) => (body, true),
        },
    };
    Ok((status, body, clean && keep_alive(fields, http11)))
}

/// What the fields say of the body; `None` = nothing.
fn framing(fields: &[Field<'_>], http11: bool) -> Result<Option<Body>, &'static str> {
    let mut lengths = Vec::new();
    for member in values(fields, "content-length").iter().flat_map(|value| value.split(|byte| *byte == b',')) {
        let member = trim(member);
        if member.is_empty() || !member.iter().all(u8::is_ascii_digit) {
            return Err("Content-Length");
        }
        let text = std::str::from_utf8(member).map_err(|_| "Content-Length")?;
        lengths.push(text.parse::<u64>().map_err(|_| "Content-Length over 64 bits")?);
    }
    let codings = values(fields, "transfer-encoding");
    match (&lengths[..], &codings[..]) {
        ([], []) => Ok(None),
        ([first, others @ ..], []) if others.iter().all(|other| other == first) => Ok(Some(Body::Length(*first))),
        ([], [coding]) if http11 && coding.eq_ignore_ascii_case(b"chunked") => Ok(Some(Body::Chunked)),
        _ => Err("framing"),
    }
}

fn keep_alive(fields: &[Field<'_>], http11: bool) -> bool {
    let options: Vec<Vec<u8>> = values(fields, "connection")
        .iter()
        .flat_map(|value| value.split(|byte| *byte == b','))
        .map(|option| trim(option).to_ascii_lowercase())
        .collect();
    let says = |option: &[u8]| options.iter().any(|said| said == option);
    !says(b"close") && (http11 || says(b"keep-alive"))
}

/// The values of the fields with this (lower-case) name.
pub fn values<'b>(fields: &[Field<'b>], name: &str) -> Vec<&'b [u8]> {
    fields.iter().filter(|(field, _)| field.to_ascii_lowercase() == name.as_bytes()).map(|(_, value)| *value).collect()
}

/// The authority of an absolute http or https target.
pub fn authority(target: &str) -> Option<&str> {
    let lower = target.to_ascii_lowercase();
    let start = if lower.starts_with("http://") {
        7
    } else if lower.starts_with("https://") {
        8
    } else {
        return None;
    };
    let rest = &target[start..];
    Some(rest.split(['/', '?']).next().unwrap_or(rest))
}

/// host [":" port], not empty, no user-info. An empty host before a port is a host to RFC 3986.
fn is_authority(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let Some((inside, behind)) = rest.split_once(']') else { return false };
            if inside.is_empty() || !inside.chars().all(|c| c.is_ascii_hexdigit() || ":.".contains(c)) {
                return false;
            }
            match behind.strip_prefix(':') {
                Some(port) => ("", port),
                None if behind.is_empty() => ("", ""),
                None => return false,
            }
        }
        None => text.split_once(':').unwrap_or((text, "")),
    };
    !text.is_empty()
        && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._~%!$&'()*+,;=".contains(c))
        && port.chars().all(|c| c.is_ascii_digit())
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= 0x20 && byte != 0x7f)
}

fn trim(value: &[u8]) -> &[u8] {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = value.iter().position(|byte| !blank(byte)).unwrap_or(value.len());
    let end = value.iter().rposition(|byte| !blank(byte)).map_or(start, |at| at + 1);
    &value[start..end]
}
