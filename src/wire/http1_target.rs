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
pub(super) fn read_target<'b>(method: &str, target: &'b str) -> Result<Target<'b>, HttpFault> {
    let bad = |why| Err(HttpFault::BadRequest(why));
    if visible(target.as_bytes()).is_none() {
        return bad("request target is not visible ASCII");
    }
    if target.contains('#') {
        return bad("fragment in the request target");
    }
    if target == "*" && method == "OPTIONS" {
        return Ok(Target { path: target, query: None, authority: None });
    }
    let (authority, origin) = match absolute(target) {
        Some((authority, _)) if authority.is_empty() || !is_host(authority.as_bytes()) => {
            return bad("malformed authority in the request target");
        }
        Some((authority, origin)) => (Some(authority), origin),
        None if target.starts_with('/') => (None, target),
        None => return bad("request target is neither a path nor an http URL"),
    };
    let (path, query) = match origin.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (origin, None),
    };
    Ok(Target { path: if path.is_empty() { "/" } else { path }, query, authority })
}

/// Authority and the rest of an `http` or `https` URL.
fn absolute(target: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = target.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    Some(rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())))
}

/// uri-host [":" port] (RFC 3986, 3.2.2); user-info is refused, as RFC 9110, 4.2.4 advises.
pub(super) fn is_host(text: &[u8]) -> bool {
    let (host_ok, rest) = match text {
        [b'[', rest @ ..] => match memchr::memchr(b']', rest) {
            Some(close) => {
                let inside = &rest[..close];
                let address = inside.iter().all(|&byte| byte.is_ascii_hexdigit() || byte == b':' || byte == b'.');
                (address && !inside.is_empty(), &rest[close + 1..])
            }
            None => (false, rest),
        },
        _ => {
            let (name, rest) = text.split_at(memchr::memchr(b':', text).unwrap_or(text.len()));
            (name.iter().all(|&byte| is_name_char(byte)), rest)
        }
    };
    let port_ok = match rest {
        [] => true,
        [b':', port @ ..] => port.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    host_ok && port_ok
}

/// unreserved / pct-encoded / sub-delims.
const fn is_name_char(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'%' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+')
        || matches!(byte, b',' | b';' | b'=')
}
