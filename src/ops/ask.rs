//! Asks the admin port of a running gateway, for whoever sits at a command line.

use super::admin::BODY_MAX;
use crate::logic::snapshot::Secret;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Who does not answer within this is taken for gone.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer that is read.
const ANSWER_MAX: u64 = 16 << 20;

/// Where the token is looked for when no file is named.
pub const TOKEN_VARIABLE: &str = "RINGWAY_ADMIN_TOKEN";

/// Where a token comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A configuration file.
    File,
    /// [`TOKEN_VARIABLE`].
    Environment,
}

/// The way to an admin port.
#[derive(Debug)]
pub struct Door<'a> {
    /// As it was typed, or stands in the file.
    pub name: &'a str,
    /// Its addresses: of a host's name there may be several, and not all of them lead there.
    pub at: &'a [SocketAddr],
    /// The token, if there is one.
    pub token: Option<&'a Secret>,
    /// Where that was looked for.
    pub source: Source,
}

/// The addresses of an admin port as it was typed: an address or a host's name, and a port, or a URL of these.
///
/// # Errors
/// What is wrong with it, for people.
pub fn addresses(typed: &str) -> Result<Vec<SocketAddr>, String> {
    let wants = "--admin wants the address and port of the admin port, like 127.0.0.1:9545 or http://127.0.0.1:9545";
    let (scheme, rest) = typed.trim().split_once("://").unwrap_or(("http", typed.trim()));
    if scheme.eq_ignore_ascii_case("https") {
        return Err("the admin port speaks no TLS: write http:// and not https:// in --admin".to_owned());
    }
    let authority = rest.split('/').next().unwrap_or_default();
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0));
    if !scheme.eq_ignore_ascii_case("http") || !has_port || authority.contains('@') {
        return Err(wants.to_owned());
    }
    let found: Vec<SocketAddr> =
        authority.to_socket_addrs().map_err(|error| format!("no address for this --admin ({error})"))?.collect();
    if found.is_empty() { Err(wants.to_owned()) } else { Ok(found) }
}

/// A Call as it was typed: JSON text, or a method's name (a path of TRON's HTTP API) and its params (its body).
/// Gives the JSON text of the `call` that `/v1/explain` takes.
///
/// # Errors
/// What is no JSON.
pub fn typed_call(call: &str, params: Option<&str>) -> Result<String, String> {
    let is_json = |what: &str, text: &str| {
        let read: Result<IgnoredAny, _> = serde_json::from_str(text);
        read.map(drop).map_err(|error| format!("{what} is no JSON: {error}"))
    };
    let call = call.trim();
    if call.is_empty() {
        return Err(r#"CALL is empty: write the name of a method, like eth_blockNumber, or JSON, like {"method": "eth_getBlockByNumber", "params": ["latest", false]}"#.to_owned());
    }
    if call.starts_with(['{', '[']) {
        if params.is_some() {
            return Err("PARAMS go with a METHOD, not with a CALL in JSON, which has its own".to_owned());
        }
        return is_json("CALL", call).map(|()| call.to_owned());
    }
    if let Some(params) = params {
        is_json("PARAMS", params)?;
    }
    let name = serde_json::Value::from(call);
    Ok(match (call.starts_with('/'), params) {
        (true, None) => format!("{{\"path\":{name}}}"),
        (true, Some(body)) => format!("{{\"path\":{name},\"method\":\"POST\",\"body\":{body}}}"),
        (false, params) => format!("{{\"id\":1,\"method\":{name},\"params\":{}}}", params.unwrap_or("[]")),
    })
}

/// The decision for a Call, as the JSON text that the gateway sent.
///
/// # Errors
/// What to do about it, for people.
pub fn explain(door: &Door<'_>, gateway: &str, call: &str) -> Result<String, String> {
    let Door { name: admin, token, source, .. } = door;
    let body = format!("{{\"gateway\":{},\"call\":{call}}}", serde_json::Value::from(gateway));
    if body.len() as u64 > BODY_MAX {
        return Err(format!(
            "the Call is too long: the admin port reads at most {} KiB; a decision goes by its method and its block arguments, so leave out what is long",
            BODY_MAX >> 10
        ));
    }
    let answer = post(door, "/v1/explain", &body).map_err(|error| {
        format!("no answer from the admin port {admin} ({error}); is the gateway running (`ringway serve --config FILE`), and is this its server.admin? `--admin ADDR` asks another one")
    })?;
    let (status, text) = answer;
    if status == 200 {
        return Ok(text);
    }
    let why = error(&text).unwrap_or_else(|| "it is no gateway, or one of another version".to_owned());
    Err(match (status, token, source) {
        (401, Some(_), Source::File) => format!(
            "the gateway at {admin} has another admin_token than this file: it was started with another one, or from another file"
        ),
        (401, None, Source::File) => format!(
            "the gateway at {admin} wants its admin_token, and this file has none: name the file that it was started with in --config"
        ),
        (401, Some(_), Source::Environment) => format!(
            "the gateway at {admin} has another admin_token than {TOKEN_VARIABLE} says: correct that, or name the file that it was started with in --config"
        ),
        (401, None, Source::Environment) => format!(
            "the gateway at {admin} wants its admin_token: set it in {TOKEN_VARIABLE}, or name the file that it was started with in --config"
        ),
        _ => format!("the gateway at {admin} says {status}: {why}"),
    })
}

/// An address that is listened on everywhere is reached here.
fn reachable(admin: SocketAddr) -> SocketAddr {
    let ip = match admin.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, admin.port())
}

fn error(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Body {
        error: Error,
    }
    #[derive(Deserialize)]
    struct Error {
        message: String,
    }
    serde_json::from_str::<Body>(text).ok().map(|body| body.error.message)
}

/// Connects to the first address that takes it.
fn connect(at: &[SocketAddr]) -> std::io::Result<(SocketAddr, TcpStream)> {
    let mut why = std::io::ErrorKind::NotFound.into();
    for at in at.iter().map(|at| reachable(*at)) {
        match TcpStream::connect_timeout(&at, TIMEOUT) {
            Ok(stream) => return Ok((at, stream)),
            Err(error) => why = error,
        }
    }
    Err(why)
}

fn post(door: &Door<'_>, path: &str, body: &str) -> std::io::Result<(u16, String)> {
    let (at, mut stream) = connect(door.at)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let bearer = door.token.map(|token| format!("Authorization: Bearer {}\r\n", token.reveal())).unwrap_or_default();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {at}\r\n{bearer}Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    // A gateway that has said what is wrong before it has read everything is heard all the same.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer)?;
    read(&answer).ok_or_else(|| std::io::Error::other("what answers there is no admin port"))
}

/// Status and body of an answer that ends with its connection.
fn read(answer: &[u8]) -> Option<(u16, String)> {
    let text = std::str::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    Some((status, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_json_or_a_name_with_params() {
        for (call, params, json) in [
            (r#"{"method":"eth_call"}"#, None, r#"{"method":"eth_call"}"#),
            ("eth_chainId", None, r#"{"id":1,"method":"eth_chainId","params":[]}"#),
            ("eth_call", Some("[1]"), r#"{"id":1,"method":"eth_call","params":[1]}"#),
            ("a\"b", None, r#"{"id":1,"method":"a\"b","params":[]}"#),
            ("/wallet/getnowblock", None, r#"{"path":"/wallet/getnowblock"}"#),
            (" eth_chainId\n", None, r#"{"id":1,"method":"eth_chainId","params":[]}"#),
            ("/wallet/x", Some("{}"), r#"{"path":"/wallet/x","method":"POST","body":{}}"#),
        ] {
            assert_eq!(typed_call(call, params).as_deref(), Ok(json));
        }
        for (call, params, says) in [
            ("{\"method\"", None, "CALL is no JSON"),
            ("", None, "CALL is empty: write the name of a method, like eth_blockNumber, or JSON, like {"),
            (" \n", None, "CALL is empty"),
            ("{}", Some("[]"), "PARAMS go with a METHOD"),
            ("eth_call", Some("[1"), "PARAMS is no JSON"),
        ] {
            assert!(typed_call(call, params).unwrap_err().contains(says), "{call}");
        }
    }

    #[test]
    fn an_admin_port_is_an_address_a_name_or_a_url_of_them() {
        for typed in ["127.0.0.1:7", " http://127.0.0.1:7", "HTTP://127.0.0.1:7/", "http://127.0.0.1:7/v1/explain"] {
            assert_eq!(addresses(typed), Ok(vec!["127.0.0.1:7".parse().unwrap()]), "{typed}");
        }
        assert_eq!(addresses("http://[::1]:7/"), Ok(vec!["[::1]:7".parse().unwrap()]));
        for (typed, says) in [
            ("https://127.0.0.1:7", "write http://"),
            ("127.0.0.1", "like 127.0.0.1:9545"),
            ("127.0.0.1:0", "like 127.0.0.1:9545"),
            ("127.0.0.1:99999", "like 127.0.0.1:9545"),
            ("http://user:s3cret@127.0.0.1:7", "like 127.0.0.1:9545"),
            ("unix:/run/x", "like 127.0.0.1:9545"),
            ("ftp://127.0.0.1:7", "like 127.0.0.1:9545"),
            ("", "like 127.0.0.1:9545"),
        ] {
            let told = addresses(typed).unwrap_err();
            assert!(told.contains(says) && !told.contains("s3cret"), "{typed}: {told}");
        }
    }

    #[test]
    fn of_several_addresses_the_first_that_takes_it_is_asked() {
        let closed = "127.0.0.1:1".parse().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        assert_eq!(connect(&[closed, open]).unwrap().0, open);
        assert!(connect(&[closed]).is_err() && connect(&[]).is_err());
    }

    #[test]
    fn an_answer_is_read_or_refused() {
        assert_eq!(read(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n{}"), Some((200, "{}".to_owned())));
        for odd in
            [&b""[..], b"HTTP/1.1 200 OK\r\n", b"SSH-2.0\r\n\r\n", b"HTTP/1.1 \xff\r\n\r\n", b"HTTP/1.1 2\r\n\r\n"]
        {
            assert_eq!(read(odd), None);
        }
    }

    #[test]
    fn what_the_admin_port_would_not_read_is_not_sent() {
        let door = Door { name: "127.0.0.1:1", at: &[], token: None, source: Source::File };
        let call = |length| format!("\"{}\"", "x".repeat(length));
        let told = explain(&door, "eth", &call(64 << 10)).unwrap_err();
        assert!(told.contains("too long") && told.contains("64 KiB"), "{told}");
        assert!(explain(&door, "eth", &call(63 << 10)).unwrap_err().contains("no answer"));
    }

    #[test]
    fn everywhere_is_here() {
        for (listened, reached) in [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:2", "[::1]:2"), ("10.0.0.1:3", "10.0.0.1:3")] {
            assert_eq!(reachable(listened.parse().unwrap()), reached.parse().unwrap());
        }
    }
}
