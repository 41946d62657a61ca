//! Who may ask the admin port for what: the token, loopback names, and pages of other sites.

use crate::logic::routing::host_name;
use crate::logic::snapshot::{Secret, Server};
use crate::ops::admin::Page;
use crate::wire::http1_request::{ContentType, RequestHead};

/// Whether `/metrics` is shown; the page that says why not.
pub(super) fn may_read_metrics(head: &RequestHead<'_>, server: &Server) -> Result<(), Page> {
    if server.metrics_public { Ok(()) } else { may_read(head, server) }
}

/// Whether what needs the token is shown; the page that says why not.
pub(super) fn may_read(head: &RequestHead<'_>, server: &Server) -> Result<(), Page> {
    match &server.admin_token {
        Some(token) => {
            let given = head.values("authorization").next().and_then(|value| value.split_at_checked(7));
            let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer ")).map(|(_, given)| given);
            let right = given.is_some_and(|given| same(given, token));
            let why = "send Authorization: Bearer with the admin_token";
            if right { Ok(()) } else { Err(Page::error(401, "unauthorized", why)) }
        }
        // Without a token a page in a browser could ask through a name that it makes point here.
        None if is_loopback(head.host) => Ok(()),
        None => Err(Page::error(403, "forbidden", "without an admin_token only loopback Host names are answered")),
    }
}

/// Whether something may be changed; the page that says why not. A page of another site can make a browser send
/// a plain form, or name its own origin: neither gets through.
pub(super) fn may_write(head: &RequestHead<'_>, server: &Server) -> Result<(), Page> {
    may_read(head, server)?;
    if head.origin.is_some_and(|origin| !is_own(origin, head.host)) {
        return Err(Page::error(403, "forbidden", "a page of another origin may change nothing here"));
    }
    match head.content_type {
        ContentType::Json => Ok(()),
        _ => Err(Page::error(415, "unsupported_media_type", "send Content-Type: application/json")),
    }
}

/// Whether an origin is this port as the browser knows it.
fn is_own(origin: &str, host: Option<&str>) -> bool {
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    authority.zip(host).is_some_and(|(authority, host)| authority.eq_ignore_ascii_case(host))
}

/// Compares in a time that depends on the lengths only.
fn same(given: &[u8], token: &Secret) -> bool {
    let token = token.reveal().as_bytes();
    given.len() == token.len() && given.iter().zip(token).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

fn is_loopback(host: Option<&str>) -> bool {
    let Some(host) = host else { return true };
    let name = host_name(host);
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_are_loopback() {
        for host in ["localhost", "localhost:9545", "127.0.0.1:9545", "127.8.8.8", "[::1]:9545", "LOCALHOST"] {
            assert!(is_loopback(Some(host)), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:9545", "10.0.0.1", "[::2]", "127.0.0.1.evil.example"] {
            assert!(!is_loopback(Some(host)), "{host}");
        }
    }

    #[test]
    fn tokens_compare_whole() {
        let token = Secret::new("correct horse");
        assert!(same(b"correct horse", &token));
        for wrong in [&b"correct hors"[..], b"correct horse ", b"", b"Correct horse"] {
            assert!(!same(wrong, &token));
        }
    }

    #[test]
    fn only_this_port_is_its_own_origin() {
        let host = Some("localhost:9545");
        assert!(is_own("http://localhost:9545", host) && is_own("https://LOCALHOST:9545", host));
        for other in ["http://localhost:9546", "http://localhost", "null", "", "http://evil.example", "localhost:9545"]
        {
            assert!(!is_own(other, host), "{other}");
        }
    }
}
