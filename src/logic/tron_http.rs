//! TRON's HTTP API: which requests it has, what a node's answer to one may be, and how its own errors are told.
//!
//! A path is compared as it was sent. What a node could read as another path than the one that was judged here
//! (dot segments, empty segments, escapes, `;` parameters, backslashes) is outside the API.

use super::fault::HttpFault;
use super::methods::{MethodId, Served, Table, Verbs};

/// Below these, every path is an operation; elsewhere only what stands in the table.
const TREES: [&str; 6] = ["/wallet/", "/walletsolidity/", "/walletpbft/", "/net/", "/monitor/", "/v1/"];

/// Where a transaction in doubt is looked up: in the chain, and where it waits for its block. A node that
/// has just taken it knows it at the second place only.
pub const LOOK_UP_PATHS: [&str; 2] = ["/wallet/gettransactionbyid", "/wallet/gettransactionfrompending"];
/// Takes a transaction as JSON.
pub const BROADCAST: &str = "/wallet/broadcasttransaction";
/// Takes a transaction as protobuf bytes in hexadecimal.
pub const BROADCAST_HEX: &str = "/wallet/broadcasthex";

/// An HTTP method of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// `GET`.
    Get,
    /// `POST`.
    Post,
}

impl Verb {
    /// As it stands in a request line.
    pub const fn word(self) -> &'static str {
        match self {
            Verb::Get => "GET",
            Verb::Post => "POST",
        }
    }
}

/// One request of the API, borrowed from the bytes that the caller sent; everything in it goes up unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiCall<'a> {
    /// `GET` or `POST`.
    pub verb: Verb,
    /// The path below the Gateway's, with its leading `/`.
    pub path: &'a str,
    /// What followed the `?`.
    pub query: Option<&'a str>,
    /// `Content-Type`.
    pub content_type: Option<&'a str>,
    /// The body.
    pub body: &'a [u8],
}

/// Whether the API has this request; `verb` is `None` for every other HTTP method.
///
/// # Errors
/// 404 for a path outside the API, 405 for an HTTP method that the facts don't give the path.
pub fn admit(table: &Table, path: &str, verb: Option<Verb>) -> Result<Verb, HttpFault> {
    let method = table.find(path);
    if !is_inside(path, method != table.other()) {
        return Err(HttpFault::NotInApi);
    }
    let verbs = table.get(method).map_or(ANY, |row| row.verbs);
    match verb {
        Some(verb) if served(verbs, verb) != Served::No => Ok(verb),
        _ => Err(HttpFault::MethodNotAllowed(allowed(verbs))),
    }
}

/// Whether an answer without a body is what a node gives to this request.
pub fn may_be_empty(table: &Table, method: MethodId, verb: Verb) -> bool {
    table.get(method).is_some_and(|row| served(row.verbs, verb) == Served::Empty)
}

/// Whether a broadcast's `code` speaks of the node alone: it has not taken the transaction, and another may.
pub fn is_busy_code(code: &str) -> bool {
    matches!(code, "SERVER_BUSY" | "NO_CONNECTION" | "NOT_ENOUGH_EFFECTIVE_CONNECTION" | "BLOCK_UNSOLIDIFIED")
}

/// What an unlisted path is taken to serve.
const ANY: Verbs = Verbs { get: Served::Yes, post: Served::Yes };

const fn served(verbs: Verbs, verb: Verb) -> Served {
    match verb {
        Verb::Get => verbs.get,
        Verb::Post => verbs.post,
    }
}

fn allowed(verbs: Verbs) -> &'static str {
    match (verbs.get, verbs.post) {
        (Served::No, _) => "POST",
        (_, Served::No) => "GET",
        _ => "GET, POST",
    }
}

fn is_inside(path: &str, listed: bool) -> bool {
    // Names of tokens may hold escaped bytes; what is a fixed part of a path never does.
    let plain = |segment: &str| !matches!(segment, "" | "." | "..") && !segment.contains(['%', ';', '\\']);
    let opaque = |segment: &str| plain(segment) || (listed && is_opaque_name(segment));
    let Some(rest) = path.strip_prefix('/') else { return false };
    (listed || TREES.iter().any(|tree| path.starts_with(tree))) && rest.split('/').all(opaque)
}

/// A segment with escapes that no reader takes for a part of the path's structure.
fn is_opaque_name(segment: &str) -> bool {
    let mut rest = segment;
    while let Some(at) = rest.find('%') {
        let code = rest.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match code {
            Some(b'/' | b'\\' | b'.' | b';' | b'%' | 0..0x20 | 0x7f) | None => return false,
            Some(_) => rest = &rest[at + 3..],
        }
    }
    !segment.contains([';', '\\']) && !matches!(segment, "" | "." | "..")
}

#[cfg(test)]
mod tests {
    use super::super::methods::{Family, Methods};
    use super::super::snapshot::Protocol;
    use super::*;

    fn admitted(path: &str, verb: Option<Verb>) -> Result<Verb, HttpFault> {
        admit(Methods::embedded().table(Protocol::TronHttp, Family::Tron), path, verb)
    }

    #[test]
    fn the_facts_say_which_verbs_a_path_has() {
        let (get, post) = (Some(Verb::Get), Some(Verb::Post));
        for (path, verb, wanted) in [
            ("/wallet/getnowblock", get, Ok(Verb::Get)),
            ("/wallet/getnowblock", post, Ok(Verb::Post)),
            ("/wallet/getnowblock", None, Err("GET, POST")),
            ("/wallet/broadcasthex", post, Ok(Verb::Post)),
            ("/wallet/broadcasthex", get, Err("POST")),
            ("/wallet/createtransaction", get, Ok(Verb::Get)),
            ("/monitor/getstatsinfo", post, Err("GET")),
            ("/monitor/getstatsinfo", get, Ok(Verb::Get)),
            ("/healthcheck", post, Err("GET")),
            ("/v1/accounts/TXYZ", get, Ok(Verb::Get)),
            ("/v1/accounts/TXYZ", post, Err("GET")),
            ("/wallet/unheardof", get, Ok(Verb::Get)),
            ("/wallet/unheardof", post, Ok(Verb::Post)),
            ("/wallet/unheardof", None, Err("GET, POST")),
        ] {
            assert_eq!(admitted(path, verb), wanted.map_err(HttpFault::MethodNotAllowed), "{path} {verb:?}");
        }
    }

    #[test]
    fn what_is_no_operation_of_the_api_is_not_found() {
        for path in [
            "",
            "/",
            "wallet/getnowblock",
            "/wallet",
            "/wallet/",
            "/other/getnowblock",
            "/healthcheck/x",
            "/health",
            "//wallet/getnowblock",
            "/wallet//getnowblock",
            "/wallet/getnowblock/",
            "/wallet/../monitor/getnodeinfo",
            "/wallet/..",
            "/wallet/./getnowblock",
            "/wallet/getnowblock;x=1",
            "/wallet/%67etnowblock",
            "/wallet/a%2fb",
            "/wallet\\getnowblock",
            "/wallet/a\\b",
            "/v1/accounts/..",
            "/v1/accounts/%2e%2e",
            "/v1/accounts/T%2Fx",
            "/v1/accounts/T%5cx",
            "/v1/accounts/T%",
            "/v1/accounts/T%4",
            "/v1/accounts/T%zz",
            "/v1/accounts/T%252e",
            "/v1/accounts/T;x",
            "/v1/accounts/T%\u{e9}",
        ] {
            assert_eq!(admitted(path, Some(Verb::Post)), Err(HttpFault::NotInApi), "{path}");
            assert_eq!(admitted(path, None), Err(HttpFault::NotInApi), "{path}");
        }
        assert_eq!(admitted("/v1/assets/My%20Coin/list", Some(Verb::Get)), Ok(Verb::Get), "a name may be escaped");
    }

    #[test]
    fn every_escape_of_a_name_is_looked_at_wherever_it_stands() {
        let admitted = |name: &str| admitted(&format!("/v1/assets/{name}/list"), Some(Verb::Get));
        for wrong in ["A%2f", "AB%20%2f", "%20%2f", "A%20B%2fC", "%20%", "%20%2", "%20%zz", "%20%25"] {
            assert_eq!(admitted(wrong), Err(HttpFault::NotInApi), "{wrong}");
        }
        for right in ["%20", "A%20", "AB%20", "ABCDEF%20%41", "%c3%A9", "%20%20x"] {
            assert_eq!(admitted(right), Ok(Verb::Get), "{right}");
        }
    }

    #[test]
    fn verbs_are_spelled_as_in_a_request_line() {
        assert_eq!([Verb::Get, Verb::Post].map(Verb::word), ["GET", "POST"]);
    }

    #[test]
    fn an_empty_answer_is_right_where_the_facts_say_so() {
        let methods = Methods::embedded();
        let table = methods.table(Protocol::TronHttp, Family::Tron);
        let empty = |path, verb| may_be_empty(table, table.find(path), verb);
        assert!(empty("/wallet/createtransaction", Verb::Get));
        assert!(!empty("/wallet/createtransaction", Verb::Post));
        assert!(!empty("/wallet/getnowblock", Verb::Get));
        assert!(!empty("/wallet/unheardof", Verb::Get));
    }

    #[test]
    fn busy_codes_are_exact() {
        for code in ["SERVER_BUSY", "NO_CONNECTION", "NOT_ENOUGH_EFFECTIVE_CONNECTION", "BLOCK_UNSOLIDIFIED"] {
            assert!(is_busy_code(code));
            assert!(!is_busy_code(&code.to_lowercase()) && !is_busy_code(&format!("{code} ")));
        }
        for code in ["", "SIGERROR", "DUP_TRANSACTION_ERROR", "OTHER_ERROR", "BANDWITH_ERROR"] {
            assert!(!is_busy_code(code));
        }
    }
}
