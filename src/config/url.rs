//! An Endpoint's URL: what is accepted, and what is wrong with the rest, without ever repeating it.

use crate::logic::snapshot::{Secret, Url};
use std::net::{IpAddr, Ipv6Addr};

/// Longest URL.
const URL_BYTES_MAX: usize = 8 << 10;
/// Longest host name (RFC 1035, section 2.3.4, as text).
const HOST_BYTES_MAX: usize = 253;
const EXAMPLE: &str = "write it like \"http://10.0.0.1:8545\"";

/// Reads an `http` or `https` URL; the error says what would be right and repeats nothing of the text.
pub(super) fn parse(text: &str) -> Result<Url, String> {
    if text.len() > URL_BYTES_MAX {
        return Err(format!("is longer than 8 KiB; {EXAMPLE}"));
    }
    // Some readers of URLs take a backslash for a slash: then two would see two hosts.
    if !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
        return Err(
            "holds a space, a line end, a backslash, a control or a non-ASCII character; write such as %XX".to_owned()
        );
    }
    let (scheme, rest) = text.split_once("://").ok_or_else(|| format!("has no scheme; {EXAMPLE}"))?;
    let https = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        "ws" | "wss" => {
            return Err("must be http:// or https://; a WebSocket address belongs to `ws_url`".to_owned());
        }
        _ => return Err(format!("has a scheme that is neither http nor https; {EXAMPLE}")),
    };
    let own_port = if https { 443 } else { 80 };
    if rest.contains('#') {
        return Err("holds a fragment (`#…`), which no server ever gets; remove it, or write # as %23".to_owned());
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (before, tail) = rest.split_at(end);
    let (user, place) = match before.rsplit_once('@') {
        Some((user, place)) => (Some(user).filter(|user| !user.is_empty()), place),
        None => (None, before),
    };
    let (host, port) = host_and_port(place, own_port)?;
    let shown = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    let authority = if port == own_port { shown } else { format!("{shown}:{port}") };
    let path_and_query = if tail.starts_with('/') { tail.to_owned() } else { format!("/{tail}") };
    Ok(Url {
        host: host.into(),
        port,
        https,
        authority: authority.into(),
        path_and_query: Secret::new(path_and_query),
        basic_auth: user.map(basic).transpose()?,
    })
}

/// A host as `Host` names it, in lower case: a name, an address, or an IPv6 address in brackets; no port.
pub(super) fn bare_host(text: &str) -> Option<String> {
    match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?.parse::<Ipv6Addr>().ok().map(|address| format!("[{address}]")),
        None => name(text).ok(),
    }
}

fn host_and_port(place: &str, own_port: u16) -> Result<(String, u16), String> {
    let (host, port) = match place.strip_prefix('[') {
        Some(bracketed) => {
            let (host, rest) =
                bracketed.split_once(']').ok_or("has a `[` without `]`; write an IPv6 host like [::1]")?;
            let host = host.parse::<Ipv6Addr>().map_err(|_| {
                "has no IPv6 address between its brackets; write it like \"http://[::1]:8545\"".to_owned()
            })?;
            match rest.strip_prefix(':') {
                Some(port) => (host.to_string(), Some(port)),
                None if rest.is_empty() => (host.to_string(), None),
                None => {
                    return Err("has something between `]` and the port; write it like \"http://[::1]:8545\"".into());
                }
            }
        }
        None => match place.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err("has an IPv6 address without brackets; write it like \"http://[::1]:8545\"".to_owned());
            }
            Some((host, port)) => (name(host)?, Some(port)),
            None => (name(place)?, None),
        },
    };
    let port = match port {
        None => own_port,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse::<u16>().ok().filter(|port| *port > 0).ok_or("has a bad port; it must be from 1 to 65535")?
        }
        Some(_) => return Err("has a bad port; it must be a number from 1 to 65535".to_owned()),
    };
    Ok((host, port))
}

fn name(host: &str) -> Result<String, String> {
    if host.is_empty() {
        return Err(format!("has no host; {EXAMPLE}"));
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    let labels = host.strip_suffix('.').unwrap_or(host);
    let valid = host.len() <= HOST_BYTES_MAX && labels.split('.').all(label);
    // A last label of digits alone can only be an address, and then it must be a whole one.
    let numeric = labels.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    if !valid || (numeric && host.parse::<IpAddr>().is_err()) {
        return Err(format!("has a host that is neither a host name nor an address; {EXAMPLE}"));
    }
    Ok(host.to_ascii_lowercase())
}

/// The whole value of `Authorization` for the user-info of a URL (RFC 7617).
fn basic(user_info: &str) -> Result<Secret, String> {
    let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
    let broken = || "has user-info with a `%` that is no %XX; write a percent sign as %25".to_owned();
    let mut credentials = decoded(user).ok_or_else(broken)?;
    if credentials.contains(&b':') {
        return Err("has a user name with a colon, which Basic credentials can't carry; use `headers`".to_owned());
    }
    credentials.push(b':');
    credentials.extend(decoded(password).ok_or_else(broken)?);
    Ok(Secret::new(format!("Basic {}", base64(&credentials))))
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let (high, low) = (digit(bytes.next()?)?, digit(bytes.next()?)?);
                high << 4 | low
            }
            byte => byte,
        });
    }
    Some(out)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| chunk.get(at).copied().map_or(0, u32::from);
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (place, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let letter = ALPHABET[(bits >> shift & 63) as usize];
            out.push(if place <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(text: &str) -> (String, u16, String, String) {
        let url = parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        (url.host.into(), url.port, url.authority.into(), url.path_and_query.reveal().to_owned())
    }

    #[test]
    fn urls_as_providers_write_them() {
        for (text, host, port, authority, tail) in [
            ("http://10.0.0.1:8545", "10.0.0.1", 8545, "10.0.0.1:8545", "/"),
            ("HTTP://Node_1.Local/v3/KEY?x=1", "node_1.local", 80, "node_1.local", "/v3/KEY?x=1"),
            ("http://h:80/", "h", 80, "h", "/"),
            ("https://h:443/", "h", 443, "h", "/"),
            ("https://h", "h", 443, "h", "/"),
            ("https://h:80/", "h", 80, "h:80", "/"),
            ("http://h:443/", "h", 443, "h:443", "/"),
            ("http://h?key=1", "h", 80, "h", "/?key=1"),
            ("http://[::1]:8545/a", "::1", 8545, "[::1]:8545", "/a"),
            ("http://[2001:DB8::1]", "2001:db8::1", 80, "[2001:db8::1]", "/"),
            ("http://h/a@b", "h", 80, "h", "/a@b"),
            ("http://h.example./", "h.example.", 80, "h.example.", "/"),
        ] {
            assert_eq!(parts(text), (host.to_owned(), port, authority.to_owned(), tail.to_owned()), "{text}");
            assert!(parse(text).is_ok_and(|url| url.basic_auth.is_none()));
        }
    }

    #[test]
    fn what_is_wrong_is_said_and_the_url_is_not() {
        for (text, says) in [
            ("", "no scheme"),
            ("s3cret:8545", "no scheme"),
            ("gopher://s3cret/", "neither http nor https"),
            ("ws://s3cret/", "ws_url"),
            ("ftp://s3cret/", "neither http"),
            ("http:///s3cret", "no host"),
            ("http://:8545/s3cret", "no host"),
            ("http://user:s3cret@/", "no host"),
            ("http://h/s3cret#x", "fragment"),
            ("http://h:0/s3cret", "bad port"),
            ("http://h:/s3cret", "bad port"),
            ("http://h:65536/s3cret", "bad port"),
            ("http://h:8s3cret/", "bad port"),
            ("http://h:+80/", "bad port"),
            ("http://::1/", "without brackets"),
            ("http://[::1/", "without `]`"),
            ("http://[s3cret]/", "no IPv6 address"),
            ("http://[::1]s3cret/", "between `]` and the port"),
            ("http://h s3cret/", "%XX"),
            ("http://h/s3cret\n", "%XX"),
            ("http://h/é", "%XX"),
            ("http://s3cret..h/", "neither"),
            ("http://10.0.0.s3cret%/", "neither"),
            ("http://10.0.0.256/", "neither"),
            ("http://10.1/", "neither"),
            ("http://h\\@x/", "%XX"),
            ("http://u:s3cret%@h/", "%25"),
            ("http://u%3as3cret:p@h/", "colon"),
        ] {
            let why = parse(text).err().unwrap_or_else(|| panic!("{text} was taken"));
            assert!(why.contains(says), "{text}: {why}");
            assert!(!why.contains("s3cret"), "{text}: {why}");
        }
    }

    #[test]
    fn user_info_becomes_basic_credentials() {
        for (text, value) in [
            ("http://Aladdin:open%20sesame@h/", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
            ("http://u:p@q@h/", "Basic dTpwQHE="),
            ("http://user@h/", "Basic dXNlcjo="),
            ("http://a:b:c@h", "Basic YTpiOmM="),
        ] {
            let url = parse(text).expect("valid");
            assert_eq!(url.basic_auth.as_ref().map(Secret::reveal), Some(value), "{text}");
            assert_eq!(&*url.host, "h");
        }
    }

    #[test]
    fn base64_of_each_length() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_is_taken_can_stand_in_a_request(text in "(http://)?[ -~é\\n]{0,40}") {
            if let Ok(url) = parse(&text) {
                prop_assert!(url.port > 0 && !url.host.is_empty());
                prop_assert!(url.path_and_query.reveal().starts_with('/'));
                prop_assert!(url.path_and_query.reveal().bytes().all(|byte| byte.is_ascii_graphic()));
                prop_assert!(url.authority.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'@'));
            }
        }
    }
}
