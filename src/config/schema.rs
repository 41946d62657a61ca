//! Every key of the configuration file: its kind, its bounds, its default, and whether it is built.
//!
//! This is the one table of keys. Defaults stand here and nowhere else, and `config/reference.toml` is tested
//! against it.

/// What a key takes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// `true` or `false`.
    Flag,
    /// A whole number within bounds, both included.
    Count(u64, u64),
    /// A number above 0 and up to 1, kept in parts of a million.
    Ratio,
    /// A duration of at least so many nanoseconds.
    Duration(u64),
    /// A size of at least so many bytes.
    Size(u64),
    /// A name that people see: `[A-Za-z0-9_.-]{1,64}`.
    Name,
    /// Any text; never repeated in a message.
    Text,
    /// A list of texts.
    Texts,
    /// One of these words; the second list is known and not built yet.
    Choice(&'static [&'static str], &'static [&'static str]),
    /// A table whose keys are free and whose values are texts.
    Fields,
    /// A list of Endpoint ids, or of tables with these keys.
    Targets(&'static [Key]),
    /// A table with these keys.
    Table(&'static [Key]),
    /// An array of tables with these keys.
    Tables(&'static [Key]),
}

/// A value as the table states it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lit {
    /// No value.
    Absent,
    /// It must be written; the text is an example, as it would be typed.
    Required(&'static str),
    /// `true` or `false`.
    Flag(bool),
    /// A whole number.
    Count(u64),
    /// A number with a fraction.
    Ratio(&'static str),
    /// A text: words, durations and sizes too.
    Text(&'static str),
    /// A list of texts.
    Texts(&'static [&'static str]),
}

/// Whether the product does what a key asks for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Built {
    /// It does.
    Yes,
    /// Not yet; only this value, which asks for nothing, is accepted.
    Later(Lit),
}

/// One key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) default: Lit,
    pub(super) built: Built,
}

const fn key(name: &'static str, kind: Kind, default: Lit) -> Key {
    Key { name, kind, default, built: Built::Yes }
}

impl Key {
    const fn later(self, harmless: Lit) -> Key {
        Key { built: Built::Later(harmless), ..self }
    }
}

use crate::logic::units::MS;
use Kind::{Choice, Count, Duration, Fields, Flag, Name, Ratio, Size, Table, Tables, Targets, Text, Texts};
use Lit::Absent;

const MANY: u64 = u32::MAX as u64;
const NONE: Lit = Lit::Texts(&[]);

/// The top of the file.
pub(super) const ROOT: &[Key] = &[
    key("server", Table(SERVER), Absent),
    key("log", Table(LOG), Absent),
    key("failsafe", Table(FAILSAFE), Absent),
    key("circuit", Table(CIRCUIT), Absent),
    key("websocket", Table(WEBSOCKET), Absent).later(Absent),
    key("limits", Table(LIMITS), Absent).later(Absent),
    key("account", Tables(ACCOUNT), Absent).later(Absent),
    key("app", Tables(APP), Absent).later(Absent),
    key("network", Tables(NETWORK), Absent),
    key("method", Tables(METHOD), Absent),
    key("endpoint", Tables(ENDPOINT), Absent),
    key("gateway", Tables(GATEWAY), Absent),
];

const SERVER: &[Key] = &[
    key("listen", Texts, Lit::Texts(&["127.0.0.1:8545"])),
    key("admin", Text, Lit::Text("127.0.0.1:9545")),
    key("admin_token", Text, Absent),
    key("metrics_public", Flag, Lit::Flag(false)),
    key("shards", Count(0, 1_024), Lit::Count(0)),
    key("driver", Choice(&["auto", "io_uring", "epoll"], &[]), Lit::Text("auto")),
    key("tls", Table(SERVER_TLS), Absent),
    key("proxy_protocol", Flag, Lit::Flag(false)),
    key("trusted_proxies", Texts, NONE),
    key("explain", Choice(&["off", "trusted", "all"], &[]), Lit::Text("trusted")),
    key("explain_from", Texts, NONE),
    key("resolvers", Texts, NONE),
    key("compression", Flag, Lit::Flag(false)),
    key("max_connections", Count(1, MANY), Lit::Count(100_000)),
    key("max_header_bytes", Size(1), Lit::Text("16KiB")),
    key("max_headers", Count(1, 256), Lit::Count(100)),
    key("max_request_bytes", Size(1), Lit::Text("1MiB")),
    key("max_response_bytes", Size(1), Lit::Text("128MiB")),
    key("max_batch", Count(1, MANY), Lit::Count(100)),
    key("max_batch_response_bytes", Size(1), Lit::Text("256MiB")),
    key("max_buffered_bytes", Size(1 << 20), Lit::Text("1GiB")),
    key("max_inflight", Count(1, MANY), Lit::Count(10_000)),
    key("batch_concurrency", Count(1, MANY), Lit::Count(16)),
    key("header_timeout", Duration(1), Lit::Text("10s")),
    key("body_timeout", Duration(1), Lit::Text("30s")),
    key("write_timeout", Duration(1), Lit::Text("30s")),
    key("idle_timeout", Duration(1), Lit::Text("75s")),
    key("shutdown_delay", Duration(0), Lit::Text("0s")),
    key("shutdown_grace", Duration(0), Lit::Text("30s")),
];

const SERVER_TLS: &[Key] = &[key("cert", Text, Absent), key("key", Text, Absent), key("client_ca", Text, Absent)];

const LOG: &[Key] = &[
    key("format", Choice(&["text", "json"], &[]), Lit::Text("text")),
    key("level", Choice(&["error", "warn", "info", "debug", "trace"], &[]), Lit::Text("info")),
    key("sample", Count(0, MANY), Lit::Count(0)).later(Lit::Count(0)),
];

const FAILSAFE: &[Key] = &[key("max_attempts", Count(1, 10), Lit::Count(10))];

const CIRCUIT: &[Key] = &[
    key("consecutive_failures", Count(1, MANY), Lit::Count(5)),
    key("failure_ratio", Ratio, Lit::Ratio("0.5")),
    key("min_samples", Count(1, MANY), Lit::Count(20)),
    key("window", Duration(1), Lit::Text("10s")),
    key("cooldown", Duration(1), Lit::Text("5s")),
    key("max_cooldown", Duration(1), Lit::Text("30s")),
];

/// `circuit = { … }` on an Endpoint: what is not written comes from `[circuit]`.
const CIRCUIT_OVERRIDE: &[Key] = &[
    key("consecutive_failures", Count(1, MANY), Absent),
    key("failure_ratio", Ratio, Absent),
    key("min_samples", Count(1, MANY), Absent),
    key("window", Duration(1), Absent),
    key("cooldown", Duration(1), Absent),
    key("max_cooldown", Duration(1), Absent),
];

const WEBSOCKET: &[Key] = &[
    key("max_subscriptions", Count(1, MANY), Lit::Count(128)),
    key("max_inflight", Count(1, MANY), Lit::Count(64)),
    key("queue_bytes", Size(1), Lit::Text("4MiB")),
    key("ping_interval", Duration(1), Lit::Text("20s")),
];

const RATE: &[Key] = &[key("rps", Count(1, MANY), Absent), key("burst", Count(1, MANY), Absent)];

const LIMITS: &[Key] = &[key("global", Table(LIMITS_GLOBAL), Absent), key("ip", Table(LIMITS_IP), Absent)];

const LIMITS_GLOBAL: &[Key] = &[key("json_rpc", Table(RATE), Absent), key("tron_http", Table(RATE), Absent)];

const LIMITS_IP: &[Key] = &[
    key("json_rpc", Table(RATE), Absent),
    key("tron_http", Table(RATE), Absent),
    key("max_connections", Count(1, MANY), Absent),
];

const ACCOUNT: &[Key] =
    &[key("id", Name, Absent), key("json_rpc", Table(RATE), Absent), key("tron_http", Table(RATE), Absent)];

const APP: &[Key] = &[
    key("id", Name, Absent),
    key("account", Name, Absent),
    key("keys", Texts, Absent),
    key("json_rpc", Table(RATE), Absent),
    key("tron_http", Table(RATE), Absent),
    key("gateways", Texts, NONE),
];

pub(super) const NETWORK: &[Key] = &[
    key("chain", Name, Lit::Required("\"ethereum\"")),
    key("network", Name, Lit::Required("\"mainnet\"")),
    key("family", Choice(&["evm", "tron", "solana"], &[]), Absent),
    key("chain_id", Count(1, u64::MAX), Absent),
    key("network_id", Count(0, u64::MAX), Absent).later(Absent),
    key("genesis_hash", Text, Absent).later(Absent),
    key("block_time", Duration(MS), Absent),
    key("poll_interval", Duration(10 * MS), Lit::Text("1s")),
    // Its default depends on the pace of the chain: `logic/networks.rs`.
    key("max_lag", Count(0, MANY), Absent),
    key("finality_depth", Count(0, MANY), Lit::Count(64)),
];

const METHOD: &[Key] = &[
    key("protocol", Choice(&["json-rpc", "tron-http"], &[]), Lit::Text("json-rpc")),
    key("name", Text, Lit::Required("\"acme_getThing\"")),
    key("class", Choice(&["stateless", "local", "effect"], &[]), Absent),
    key("tier", Choice(TIERS, &[]), Absent),
    key("capability", Name, Absent),
];

const TIERS: &[&str] = &["minimal", "full", "archive"];

const ENDPOINT: &[Key] = &[
    key("id", Name, Lit::Required("\"geth-1\"")),
    key("chain", Name, Lit::Required("\"ethereum\"")),
    key("network", Name, Lit::Required("\"mainnet\"")),
    key("protocol", Choice(&["json-rpc", "tron-http"], &[]), Lit::Text("json-rpc")),
    key("url", Text, Lit::Required("\"http://10.0.0.1:8545\"")),
    key("ws_url", Text, Absent).later(Absent),
    key("enabled", Flag, Lit::Flag(true)),
    key("headers", Fields, Absent),
    key("tls", Table(ENDPOINT_TLS), Absent),
    key("gzip", Flag, Lit::Flag(false)),
    key("connect_timeout", Duration(1), Lit::Text("2s")),
    key("queue_timeout", Duration(1), Lit::Text("1s")),
    key("max_connections", Count(1, MANY), Lit::Count(4_096)),
    key("idle_timeout", Duration(1), Lit::Text("20s")),
    key("max_age", Duration(1), Lit::Text("10m")),
    key("circuit", Table(CIRCUIT_OVERRIDE), Absent),
    key("warm", Count(0, MANY), Lit::Count(0)),
    key("rps", Count(1, MANY), Absent),
    key("burst", Count(1, MANY), Absent),
    key("tier", Choice(TIERS, &[]), Lit::Text("full")),
    // The defaults of these two depend on the tier: `tier.rs`.
    key("state_blocks", Count(0, u64::MAX), Absent),
    key("history_blocks", Count(0, u64::MAX), Absent),
    key("client", Text, Absent),
    key("capabilities", Texts, NONE),
    key("without", Texts, NONE),
    key("filter_tag", Text, Absent).later(Absent),
];

const ENDPOINT_TLS: &[Key] = &[key("ca", Text, Absent), key("cert", Text, Absent), key("key", Text, Absent)];

const GATEWAY: &[Key] = &[
    key("id", Name, Lit::Required("\"eth\"")),
    key("path", Text, Lit::Required("\"/eth\"")),
    key("hosts", Texts, NONE),
    key("chain", Name, Lit::Required("\"ethereum\"")),
    key("network", Name, Lit::Required("\"mainnet\"")),
    key("protocol", Choice(&["json-rpc", "tron-http"], &[]), Lit::Text("json-rpc")),
    key("auth", Choice(&["none", "optional", "required"], &[]), Lit::Text("none")).later(Lit::Text("none")),
    key("endpoint_free", Texts, Lit::Texts(&["static"])).later(NONE),
    key("cache", Size(0), Lit::Text("0")).later(Lit::Text("0")),
    key("share_inflight", Texts, NONE).later(NONE),
    key("cors", Table(CORS), Absent),
    key("allowed_methods", Texts, NONE),
    key("blocked_methods", Texts, NONE),
    key("expose", Texts, NONE),
    key("route", Tables(ROUTE), Absent),
];

const CORS: &[Key] = &[key("origins", Texts, Lit::Required("[\"https://app.example\"]"))];

const ROUTE: &[Key] = &[
    key("id", Name, Lit::Required("\"default\"")),
    key("methods", Texts, NONE),
    key("strategy", Choice(&["priority", "weighted", "tiered"], &[]), Lit::Text("priority")),
    key("targets", Targets(TARGET), Lit::Required("[\"geth-1\"]")),
    key("max_attempts", Count(1, 10), Lit::Count(3)),
    key("attempt_timeout", Duration(1), Lit::Text("10s")),
    key("version", Count(1, i64::MAX as u64), Lit::Count(1)),
];

const TARGET: &[Key] =
    &[key("endpoint", Name, Lit::Required("\"geth-1\"")), key("weight", Count(0, 1_000), Lit::Count(1))];

#[cfg(test)]
mod tests {
    use super::super::check::shown;
    use super::super::resolve::probe::read;
    use super::*;
    use toml::de::{DeTable, DeValue};

    const REFERENCE: &str = include_str!("../../config/reference.toml");

    /// A line as it would be without its `# `, if it holds a key or a header.
    fn uncommented(line: &str) -> Option<&str> {
        let inner = line.strip_prefix("# ")?;
        let key = inner.split([' ', '=']).next().unwrap_or_default();
        let is_key = inner.contains(" = ") && key.chars().all(|c| c.is_ascii_lowercase() || matches!(c, '_' | '.'));
        (is_key && !key.is_empty() || inner.starts_with('[')).then_some(inner)
    }

    /// The reference with everything in it switched on.
    fn all_on() -> String {
        REFERENCE.lines().map(|line| uncommented(line).unwrap_or(line)).collect::<Vec<_>>().join("\n")
    }

    /// The line of an offset in [`all_on`], as it stands in the file.
    fn line_at(text: &str, at: usize) -> &'static str {
        REFERENCE.lines().nth(text[..at].matches('\n').count()).expect("a line")
    }

    fn tables_of<'v>(value: &'v DeValue<'v>) -> Vec<&'v DeTable<'v>> {
        match value {
            DeValue::Table(table) => vec![table],
            DeValue::Array(items) => items.iter().flat_map(|item| tables_of(item.get_ref())).collect(),
            _ => Vec::new(),
        }
    }

    /// Walks all keys; calls back with the path, the key, whether it is not built yet, and the offset of its first mention.
    fn walk(
        keys: &'static [Key],
        tables: &[&DeTable<'_>],
        path: &str,
        later: bool,
        see: &mut dyn FnMut(&str, &Key, bool, usize),
    ) {
        for key in keys {
            let path = if path.is_empty() { key.name.to_owned() } else { format!("{path}.{}", key.name) };
            let found = tables.iter().find_map(|table| table.get_key_value(key.name));
            let (name, _) = found.unwrap_or_else(|| panic!("{path} is not in config/reference.toml"));
            let later = later || matches!(key.built, Built::Later(_));
            see(&path, key, later, name.span().start);
            let values = tables.iter().filter_map(|table| table.get(key.name)).map(|value| value.get_ref());
            let below: Vec<&DeTable<'_>> = values.flat_map(tables_of).collect();
            if let Table(keys) | Tables(keys) | Targets(keys) = key.kind {
                walk(keys, &below, &path, later, see);
            }
        }
    }

    #[test]
    fn the_reference_is_taken_without_a_word() {
        let resolved = read(REFERENCE);
        assert_eq!(resolved.faults, []);
        assert!(resolved.snapshot.is_some());
    }

    #[test]
    fn the_reference_holds_every_key_with_its_meaning_and_default() {
        let text = all_on();
        let tree = DeTable::parse(&text).expect("valid TOML").into_inner();
        let mut seen = 0;
        walk(ROOT, &[&tree], "", false, &mut |path, key, later, at| {
            seen += 1;
            let line = line_at(&text, at);
            let (commented, typed) = (line.starts_with("# "), line.trim_start_matches("# "));
            if typed.starts_with('[') {
                assert_eq!(commented, later, "{path}: {line}");
                return;
            }
            let (typed, meaning) = typed.split_once(" # ").unwrap_or_else(|| panic!("{path} has no meaning: {line}"));
            let (typed, meaning) = (typed.trim_end(), meaning.trim());
            if !typed.starts_with(key.name) {
                // A key inside a table on one line: that line speaks for it.
                return;
            }
            let own = matches!(key.built, Built::Later(_));
            assert_eq!(meaning.starts_with("not built yet"), own, "{path}: {line}");
            assert!(!later || commented, "{path} is not built and not in a comment: {line}");
            let default = shown(key.default);
            match key.default {
                Absent => {}
                Lit::Required(_) => assert!(later || !commented && meaning.ends_with("example"), "{path}: {line}"),
                _ => {
                    assert_eq!(typed, format!("{} = {default}", key.name), "{path} does not show its default");
                    assert!(!meaning.ends_with("example") && commented == later, "{path}: {line}");
                }
            }
        });
        assert!(seen > 150, "{seen} keys");
    }

    #[test]
    fn leaving_out_what_shows_a_default_changes_nothing() {
        let text = all_on();
        let tree = DeTable::parse(&text).expect("valid TOML").into_inner();
        let mut dropped = Vec::new();
        walk(ROOT, &[&tree], "", false, &mut |_, key, later, at| {
            let line = line_at(&text, at);
            if !later && line.starts_with(key.name) && !matches!(key.default, Absent | Lit::Required(_)) {
                dropped.push(line);
            }
        });
        assert!(dropped.len() > 40, "{dropped:#?}");
        let short: Vec<&str> = REFERENCE.lines().filter(|line| !dropped.contains(line)).collect();
        let [full, short] = [REFERENCE, &short.join("\n")].map(|text| read(text).snapshot.expect("no fault"));
        assert_eq!(format!("{:?}", full.server), format!("{:?}", short.server));
        assert_eq!(format!("{:?}", full.endpoints), format!("{:?}", short.endpoints));
        assert_eq!(format!("{:?}", full.gateways), format!("{:?}", short.gateways));
        assert_eq!(full.networks, short.networks);
    }
}
