//! `[server]`, `[log]`, `[failsafe]` and `[circuit]`: everything that is not about one chain.

use super::fault::Faults;
use super::file::View;
use super::tls::{self, Files};
use crate::logic::cidr::Cidr;
use crate::logic::snapshot::{ATTEMPTS_MAX, CircuitRule, Driver, Explain, Listen, LogFormat, LogLevel, Secret, Server};
use crate::logic::units::{MILLION, show_duration};
use std::net::SocketAddr;

/// Reads everything that is not about one chain.
pub(super) fn server(top: &View<'_>, files: Files<'_>, faults: &mut Faults<'_>) -> Server {
    let (server, log) = (top.table("server"), top.table("log"));
    let listen = listen(&server, faults);
    let token = admin_token(&server, faults);
    let admin = admin(&server, &listen, token.is_some(), faults);
    warn_of_little_memory(&server, faults);
    Server {
        listen,
        admin,
        admin_token: token,
        metrics_public: server.flag("metrics_public"),
        shards: server.count("shards"),
        driver: match server.text("driver").as_deref() {
            Some("io_uring") => Driver::IoUring,
            Some("epoll") => Driver::Epoll,
            _ => Driver::Auto,
        },
        explain: match server.text("explain").as_deref() {
            Some("off") => Explain::Off,
            Some("all") => Explain::All,
            _ => Explain::Trusted,
        },
        explain_from: ranges(&server, "explain_from", faults),
        tls: tls::listen(&server, files, faults),
        proxy_protocol: proxy_protocol(&server, faults),
        trusted_proxies: ranges(&server, "trusted_proxies", faults),
        compression: server.flag("compression"),
        max_connections: server.count("max_connections"),
        max_header_bytes: server.count("max_header_bytes"),
        max_headers: server.count("max_headers"),
        max_request_bytes: server.count("max_request_bytes"),
        max_response_bytes: server.count("max_response_bytes"),
        max_batch: server.count("max_batch"),
        max_batch_response_bytes: server.count("max_batch_response_bytes"),
        max_buffered_bytes: server.count("max_buffered_bytes"),
        max_inflight: server.count("max_inflight"),
        batch_concurrency: server.count("batch_concurrency"),
        header_timeout_ns: server.number("header_timeout"),
        body_timeout_ns: server.number("body_timeout"),
        write_timeout_ns: server.number("write_timeout"),
        idle_timeout_ns: server.number("idle_timeout"),
        shutdown_delay_ns: server.number("shutdown_delay"),
        shutdown_grace_ns: server.number("shutdown_grace"),
        log_format: match log.text("format").as_deref() {
            Some("json") => LogFormat::Json,
            _ => LogFormat::Text,
        },
        log_level: match log.text("level").as_deref() {
            Some("error") => LogLevel::Error,
            Some("warn") => LogLevel::Warn,
            Some("debug") => LogLevel::Debug,
            Some("trace") => LogLevel::Trace,
            _ => LogLevel::Info,
        },
        max_attempts: attempts(&top.table("failsafe")),
    }
}

/// An answer that is allowed and never fits would be -32056 each time, as if it could pass later.
fn warn_of_little_memory(server: &View<'_>, faults: &mut Faults<'_>) {
    let (all, one) = (server.count("max_buffered_bytes"), server.count("max_response_bytes"));
    let name = if server.typed("max_buffered_bytes") { "max_buffered_bytes" } else { "max_response_bytes" };
    if all < one && server.typed(name) {
        let text = "max_buffered_bytes is below max_response_bytes, so an answer may be allowed and never find room; let it hold a few of the largest";
        faults.warn(server.at_of(name), server.path_of(name), text);
    }
}

fn proxy_protocol(server: &View<'_>, faults: &mut Faults<'_>) -> bool {
    let on = server.flag("proxy_protocol");
    if on && !server.typed("trusted_proxies") {
        let text =
            "is on, and trusted_proxies is empty, so no PROXY header is ever read; name the proxies that write it";
        faults.warn(server.at_of("proxy_protocol"), server.path_of("proxy_protocol"), text);
    }
    on
}

/// A list of address ranges.
fn ranges(server: &View<'_>, name: &str, faults: &mut Faults<'_>) -> Vec<Cidr> {
    let path = server.path_of(name);
    let mut ranges = Vec::new();
    for (position, typed) in server.texts(name).iter().enumerate() {
        match Cidr::parse(&typed.text) {
            Some(range) => ranges.push(range),
            None => faults.fault(typed.at, format!("{path}[{position}]"), RANGE),
        }
    }
    ranges
}

const RANGE: &str =
    "must be an address or a range with no bits behind its prefix, like \"10.0.0.0/8\" or \"2001:db8::/32\"";

/// `max_attempts` of a Route or of `[failsafe]`.
pub(super) fn attempts(view: &View<'_>) -> u8 {
    u8::try_from(view.number("max_attempts")).unwrap_or(ATTEMPTS_MAX).min(ATTEMPTS_MAX)
}

/// `[circuit]`, or an Endpoint's own with the rest from `[circuit]`.
pub(super) fn circuit(view: &View<'_>, base: Option<CircuitRule>, faults: &mut Faults<'_>) -> CircuitRule {
    let of = |name: &str, base: Option<u64>| view.number_or(name).or(base).unwrap_or(0);
    let failures = of("consecutive_failures", base.map(|rule| u64::from(rule.consecutive_failures)));
    let ratio = of("failure_ratio", base.map(|rule| u64::from(rule.failure_ratio_ppm)));
    let samples = of("min_samples", base.map(|rule| u64::from(rule.min_samples)));
    let rule = CircuitRule {
        consecutive_failures: u32::try_from(failures).unwrap_or(u32::MAX),
        failure_ratio_ppm: u32::try_from(ratio).unwrap_or(MILLION).clamp(1, MILLION),
        min_samples: u32::try_from(samples).unwrap_or(u32::MAX),
        cooldown_ns: of("cooldown", base.map(|rule| rule.cooldown_ns)),
        max_cooldown_ns: of("max_cooldown", base.map(|rule| rule.max_cooldown_ns)),
        window_ns: of("window", base.map(|rule| rule.window_ns)),
    };
    let typed = view.typed("cooldown") || view.typed("max_cooldown");
    if typed && rule.max_cooldown_ns < rule.cooldown_ns {
        let name = if view.typed("max_cooldown") { "max_cooldown" } else { "cooldown" };
        let (shortest, longest) = (show_duration(rule.cooldown_ns), show_duration(rule.max_cooldown_ns));
        let text = format!("max_cooldown ({longest}) is below cooldown ({shortest}); it must be at least as long");
        faults.fault(view.at_of(name), view.path_of(name), text);
    }
    rule
}

fn listen(server: &View<'_>, faults: &mut Faults<'_>) -> Vec<Listen> {
    let (texts, path) = (server.texts("listen"), server.path_of("listen"));
    if texts.is_empty() {
        faults.fault(
            server.at_of("listen"),
            path.clone(),
            "is empty; write at least one address, like [\"127.0.0.1:8545\"]",
        );
    }
    let mut listen: Vec<Listen> = Vec::with_capacity(texts.len());
    for (position, typed) in texts.iter().enumerate() {
        let path = format!("{path}[{position}]");
        let one = match typed.text.strip_prefix("unix:") {
            Some(file) if file.starts_with('/') && file.len() <= UNIX_BYTES_MAX && !file.contains('\0') => {
                Listen::Unix(file.into())
            }
            Some(_) => {
                faults.fault(typed.at, path, UNIX);
                continue;
            }
            None => match typed.text.parse::<SocketAddr>() {
                Ok(address) => Listen::Tcp(address),
                Err(_) => {
                    faults.fault(typed.at, path, ADDRESS);
                    continue;
                }
            },
        };
        let any_port = matches!(one, Listen::Tcp(address) if address.port() == 0);
        match !any_port && listen.contains(&one) {
            true => faults.fault(typed.at, path, "is listed twice; remove one of the two"),
            false => listen.push(one),
        }
    }
    listen
}

/// Longest path of a Unix socket (unix(7)).
const UNIX_BYTES_MAX: usize = 107;
const UNIX: &str = "must be unix: and an absolute path of at most 107 bytes, like \"unix:/run/ringway.sock\"";
const ADDRESS: &str = "must be an IP address and a port, like \"127.0.0.1:8545\", \"0.0.0.0:8545\" or \"[::1]:8545\"";

fn admin_token(server: &View<'_>, faults: &mut Faults<'_>) -> Option<Secret> {
    let token = server.text("admin_token")?;
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let text = "must be one or more visible ASCII characters without spaces or line ends, or be left out";
        faults.fault(server.at_of("admin_token"), server.path_of("admin_token"), text);
    }
    Some(Secret::new(token))
}

fn admin(server: &View<'_>, listen: &[Listen], token: bool, faults: &mut Faults<'_>) -> SocketAddr {
    let (at, path) = (server.at_of("admin"), server.path_of("admin"));
    let admin = match server.text("admin").unwrap_or_default().parse::<SocketAddr>() {
        Ok(admin) => admin,
        Err(_) => {
            faults.fault(at, path, ADDRESS);
            return SocketAddr::from(([127, 0, 0, 1], 0));
        }
    };
    // A token that could not be read was meant.
    let token = token || server.typed("admin_token");
    if !admin.ip().to_canonical().is_loopback() && !token {
        let text = "is not on loopback, so it needs a token; write admin_token = \"${RINGWAY_ADMIN_TOKEN}\", or listen on 127.0.0.1";
        faults.fault(at, path.clone(), text);
    }
    if admin.port() != 0 && listen.contains(&Listen::Tcp(admin)) {
        faults.fault(at, path, "is an address of `listen` too; give the admin port an address of its own");
    }
    admin
}

#[cfg(test)]
mod tests {
    use super::super::resolve::probe::{SOUND, faulty, sound, warned, with};
    use super::*;
    use crate::logic::units::{MS, SECOND};

    #[test]
    fn defaults_are_those_of_the_reference() {
        let server = sound(&with("shards = 2", "")).server;
        assert_eq!(server.listen, [Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 8545)))]);
        assert_eq!(server.admin, SocketAddr::from(([127, 0, 0, 1], 9545)));
        assert!(server.admin_token.is_none() && !server.metrics_public);
        assert_eq!((server.shards, server.driver, server.max_connections), (0, Driver::Auto, 100_000));
        assert_eq!((server.max_header_bytes, server.max_headers), (16 << 10, 100));
        assert_eq!((server.max_request_bytes, server.max_response_bytes), (1 << 20, 128 << 20));
        assert_eq!((server.max_batch, server.max_batch_response_bytes), (100, 256 << 20));
        assert_eq!((server.max_inflight, server.batch_concurrency), (10_000, 16));
        let timeouts =
            [server.header_timeout_ns, server.body_timeout_ns, server.write_timeout_ns, server.idle_timeout_ns];
        assert_eq!(timeouts, [10 * SECOND, 30 * SECOND, 30 * SECOND, 75 * SECOND]);
        assert_eq!((server.shutdown_delay_ns, server.shutdown_grace_ns), (0, 30 * SECOND));
        assert_eq!((server.log_format, server.log_level, server.max_attempts), (LogFormat::Text, LogLevel::Info, 10));
    }

    #[test]
    fn what_is_typed_counts() {
        let typed = "listen = [\"[::1]:0\", \"0.0.0.0:80\"]\nadmin = \"0.0.0.0:81\"\nadmin_token = \"${KEY}\"\nmetrics_public = true\n\
                     driver = \"epoll\"\nmax_headers = 256\nmax_request_bytes = \"2KiB\"\nidle_timeout = \"250ms\"\n\
                     [log]\nformat = \"json\"\nlevel = \"trace\"\n[failsafe]\nmax_attempts = 3";
        let server = sound(&with("shards = 2", typed)).server;
        assert_eq!(server.listen.len(), 2);
        assert_eq!(server.admin_token.as_ref().map(Secret::reveal), Some("s3cret-of-env"));
        assert_eq!((server.metrics_public, server.driver, server.max_headers), (true, Driver::Epoll, 256));
        assert_eq!((server.max_request_bytes, server.idle_timeout_ns), (2 << 10, 250 * MS));
        assert_eq!((server.log_format, server.log_level, server.max_attempts), (LogFormat::Json, LogLevel::Trace, 3));
    }

    #[test]
    fn addresses_are_checked() {
        let cases = [
            ("listen = «[]", "server.listen", "at least one address"),
            ("listen = [«\"localhost:8545\"]", "server.listen[0]", "IP address and a port"),
            ("listen = [«\"8545\"]", "server.listen[0]", "IP address and a port"),
            ("listen = [«\"unix:ringway.sock\"]", "server.listen[0]", "an absolute path"),
            ("listen = [«\"unix:\"]", "server.listen[0]", "an absolute path"),
            ("listen = [\"unix:/r\", «\"unix:/r\"]", "server.listen[1]", "listed twice"),
            ("listen = [\"127.0.0.1:1\", «\"127.0.0.1:1\"]", "server.listen[1]", "listed twice"),
            ("admin = «\"nowhere\"", "server.admin", "IP address and a port"),
            ("admin = «\"127.0.0.1:8545\"", "server.admin", "address of its own"),
        ];
        for (typed, path, says) in cases {
            faulty(&with("shards = 2", typed), path, &[says]);
        }
    }

    #[test]
    fn a_socket_in_the_file_system_may_be_listened_on() {
        let server = sound(&with("shards = 2", "listen = [\"unix:/run/ringway.sock\"]")).server;
        assert_eq!(server.listen, [Listen::Unix("/run/ringway.sock".into())]);
        assert_eq!(server.listen[0].to_string(), "unix:/run/ringway.sock");
    }

    #[test]
    fn a_proxy_header_needs_somebody_who_may_write_it() {
        let both = "proxy_protocol = true\ntrusted_proxies = [\"10.0.0.0/8\"]";
        assert!(sound(&with("shards = 2", both)).server.proxy_protocol);
        warned(&with("shards = 2", "proxy_protocol = «true"), "server.proxy_protocol", &["trusted_proxies is empty"]);
    }

    #[test]
    fn an_admin_address_off_loopback_needs_a_token() {
        for admin in ["0.0.0.0:9545", "[::]:9545", "10.0.0.1:1"] {
            let text = with("shards = 2", &format!("admin = «\"{admin}\""));
            faulty(&text, "server.admin", &["needs a token", "admin_token = \"${RINGWAY_ADMIN_TOKEN}\"", "127.0.0.1"]);
            sound(&with("shards = 2", &format!("admin = \"{admin}\"\nadmin_token = \"t\"")));
        }
        for admin in ["127.0.0.1:9545", "127.9.9.9:1", "[::1]:9545", "[::ffff:127.0.0.1]:9545"] {
            sound(&with("shards = 2", &format!("admin = \"{admin}\"")));
        }
        for token in ["", "a b", "line\\n", "é"] {
            let text = with("shards = 2", &format!("admin_token = «\"{token}\""));
            faulty(&text, "server.admin_token", &["visible ASCII characters"]);
        }
        let unset = with("shards = 2", "admin = \"0.0.0.0:1\"\nadmin_token = «\"${NO_KEY}\"");
        faulty(&unset, "server.admin_token", &["NO_KEY is not set"]);
    }

    #[test]
    fn attempts_of_the_deployment_are_bounded() {
        for bad in ["0", "11"] {
            let text = with("shards = 2", &format!("[failsafe]\nmax_attempts = «{bad}"));
            faulty(&text, "failsafe.max_attempts", &["from 1 to 10"]);
        }
    }

    #[test]
    fn an_endpoint_takes_from_circuit_what_it_does_not_say() {
        let plain = sound(SOUND).endpoints[0].circuit;
        let default = CircuitRule {
            consecutive_failures: 5,
            failure_ratio_ppm: 500_000,
            min_samples: 20,
            cooldown_ns: 5 * SECOND,
            max_cooldown_ns: 30 * SECOND,
            window_ns: 10 * SECOND,
        };
        assert_eq!(plain, default);
        let text = with("shards = 2", "[circuit]\nconsecutive_failures = 7\nmin_samples = 9\ncooldown = \"1s\"")
            .replace("enabled = true", "circuit = { cooldown = \"2s\", window = \"3s\", failure_ratio = 0.25 }");
        let endpoints = sound(&text).endpoints;
        let base = CircuitRule { consecutive_failures: 7, min_samples: 9, cooldown_ns: SECOND, ..default };
        let own = CircuitRule { cooldown_ns: 2 * SECOND, window_ns: 3 * SECOND, failure_ratio_ppm: 250_000, ..base };
        assert_eq!(endpoints[0].circuit, own);
        assert_eq!(endpoints[1].circuit, base);
    }

    #[test]
    fn the_longest_cooldown_is_not_below_the_first() {
        let says = ["max_cooldown (30s) is below cooldown (1m)", "at least as long"];
        faulty(&with("shards = 2", "[circuit]\ncooldown = «\"1m\""), "circuit.cooldown", &says);
        let own = with("enabled = true", "circuit = { max_cooldown = «\"1s\" }");
        faulty(&own, "endpoint[geth-1].circuit.max_cooldown", &["max_cooldown (1s) is below cooldown (5s)"]);
    }
}
