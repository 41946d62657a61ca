//! Request targets and the authorities in them and in `Host` (RFC 9112, 3.2; RFC 3986, 3.2).
//!
//! Paths and queries are taken as sent: nothing is decoded or normalised, so no two readings can differ.

use super::http1::visible;
use crate::logic::fault::HttpFault;

/// A request target, taken apart.
pub(super) struct Target<'b> {
    pub(super) path: &'b str,
    pub(super) query: Option<&'b str>,
    pub(super) authority: Option<&'b str>,
}

/// Origin form, absolute form, and `*` with OPTIONS (RFC 9112, 3.2). Percent signs stay as they are.
pub(super) fn read_target<'b>(method: &[u8], target: &'b [u8]) -> Result<Target<'b>, HttpFault> {
    let bad = |why| Err(HttpFault::BadRequest(why));
    let Some(target) = visible(target) else { return bad("request target is not visible ASCII") };
    let (mut question, mut fragment) = (None, false);
    for (at, byte) in target.bytes().enumerate() {
        match byte {
            b'#' => fragment = true,
            b'?' if question.is_none() => question = Some(at),
            _ => {}
        }
    }
    if fragment {
        return bad("fragment in the request target");
    }
    if !target.starts_with('/') {
        return read_other_target(method, target);
    }
    Ok(match question.and_then(|at| target.split_at_checked(at)) {
        Some((path, query)) => Target { path, query: query.get(1..), authority: None },
        None => Target { path: target, query: None, authority: None },
    })
}

/// What is no path.
#[cold]
fn read_other_target<'b>(method: &[u8], target: &'b str) -> Result<Target<'b>, HttpFault> {
    let bad = |why| Err(HttpFault::BadRequest(why));
    if target == "*" && method == b"OPTIONS" {
        return Ok(Target { path: target, query: None, authority: None });
    }
    let Some((authority, origin)) = absolute(target) else {
        return bad("request target is neither a path nor an http URL");
    };
    if authority.is_empty() || !is_host(authority.as_bytes()) {
        return bad("malformed authority in the request target");
    }
    let (path, query) = match origin.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (origin, None),
    };
    Ok(Target { path: if path.is_empty() { "/" } else { path }, query, authority: Some(authority) })
}

/// Authority and the rest of an `http` or `https` URL.
fn absolute(target: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = target.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    Some(rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())))
}

/// uri-host [":" port] (RFC 3986, 3.2.2); user-info is refused, as RFC 9110, 4.2.4 advises. What passes is
/// visible ASCII.
pub(super) fn is_host(text: &[u8]) -> bool {
    let rest = match text {
        [b'[', rest @ ..] => match is_address(rest) {
            Some(rest) => rest,
            None => return false,
        },
        _ => {
            let name = text.iter().position(|&byte| !NAME[usize::from(byte)]).unwrap_or(text.len());
            text.get(name..).unwrap_or_default()
        }
    };
    match rest {
        [] => true,
        [b':', port @ ..] => port.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// What follows an address and its closing bracket.
#[cold]
fn is_address(text: &[u8]) -> Option<&[u8]> {
    let (inside, rest) = text.split_at_checked(memchr::memchr(b']', text)?)?;
    let address = inside.iter().all(|&byte| byte.is_ascii_hexdigit() || byte == b':' || byte == b'.');
    if address && !inside.is_empty() { rest.get(1..) } else { None }
}

static NAME: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = is_name_char(byte as u8);
        byte += 1;
    }
    table
};

/// unreserved / pct-encoded / sub-delims.
const fn is_name_char(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'%' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+')
        || matches!(byte, b',' | b';' | b'=')
}
