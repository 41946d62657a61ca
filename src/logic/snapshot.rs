//! One immutable resolved configuration: what the rest of the product reads, whole or not at all.
//!
//! Indexes ([`EndpointIx`], [`RouteIx`]) are valid in one Snapshot only: an Exchange keeps the Snapshot
//! with which it began.

use super::capability::Capable;
use super::cidr::{Cidr, is_loopback};
use super::cors::Cors;
use super::limiter::Rate;
use super::methods::{Family, MethodId, Methods, Table};
use super::tiers::{self, Held};
use super::tls::{ListenTls, UpstreamTls};
use super::units::Nanos;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// Most targets of one Route; a Call's candidates fit one `u128`.
pub const TARGETS_MAX: usize = 100;
/// Most attempts of one Call.
pub const ATTEMPTS_MAX: u8 = 10;

/// A string that never reaches an error, a log, a metric or an admin answer.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Wraps a secret.
    pub fn new(text: impl Into<Box<str>>) -> Secret {
        Secret(text.into())
    }
    /// The secret itself: for the wire to an Endpoint and for comparisons, nothing else.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Position of an Endpoint in [`Snapshot::endpoints`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointIx(pub u16);

/// Position of a Gateway in [`Snapshot::gateways`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GatewayIx(pub u16);

/// Position of a Route in [`Gateway::routes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouteIx(pub u16);

/// A whole resolved configuration.
#[derive(Debug)]
pub struct Snapshot {
    /// The `[server]`, `[log]` and `[failsafe]` sections.
    pub server: Server,
    /// All Endpoints, enabled or not.
    pub endpoints: Vec<Endpoint>,
    /// All Gateways.
    pub gateways: Vec<Gateway>,
    /// Each chain and network that an Endpoint or a Gateway names, once.
    pub networks: Vec<Network>,
    /// By Endpoint: which methods its configuration adds and takes away.
    pub capable: Vec<Capable>,
    /// The method tables.
    pub methods: Methods,
}

impl Snapshot {
    /// Puts a configuration together, with what Routes and Endpoints need of each other.
    pub fn new(
        server: Server,
        endpoints: Vec<Endpoint>,
        mut gateways: Vec<Gateway>,
        networks: Vec<Network>,
        methods: Methods,
    ) -> Snapshot {
        let routes = gateways.iter_mut().flat_map(|gateway| &mut gateway.routes);
        routes.for_each(|route| tiers::place(route, &endpoints));
        // Only chains of this family have tiered Routes, and only there anybody asks.
        let table = methods.table(Protocol::JsonRpc, Family::Evm);
        let capable = endpoints.iter().map(|endpoint| Capable::new(table, endpoint)).collect();
        Snapshot { server, endpoints, gateways, networks, capable, methods }
    }
}

/// Which driver the shards run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// io_uring where the kernel lets us, else epoll.
    Auto,
    /// io_uring or nothing.
    IoUring,
    /// epoll.
    Epoll,
}

/// Who may ask for the `Ringway-*` headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Explain {
    /// Nobody.
    Off,
    /// Loopback and `explain_from`.
    Trusted,
    /// Everybody.
    All,
}

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Lowest level that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Where callers connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A socket in the file system, for callers of this machine: never TLS.
    Unix(Box<str>),
}

impl std::fmt::Display for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Listen::Tcp(address) => address.fmt(f),
            Listen::Unix(path) => write!(f, "unix:{path}"),
        }
    }
}

/// Everything that is not about one chain.
#[derive(Debug, Clone)]
pub struct Server {
    /// Data plane addresses.
    pub listen: Vec<Listen>,
    /// Admin address.
    pub admin: SocketAddr,
    /// Bearer token of the admin port.
    pub admin_token: Option<Secret>,
    /// `/metrics` without the token.
    pub metrics_public: bool,
    /// 0 = as many as there are CPUs to use.
    pub shards: usize,
    /// io_uring or epoll.
    pub driver: Driver,
    /// Who may ask for the `Ringway-*` headers.
    pub explain: Explain,
    /// Who is trusted, besides loopback.
    pub explain_from: Vec<Cidr>,
    /// TLS towards callers, on all addresses that are not Unix sockets.
    pub tls: Option<ListenTls>,
    /// Trusted proxies begin each connection with a PROXY header.
    pub proxy_protocol: bool,
    /// Whose `X-Forwarded-For`, and whose PROXY header, is believed.
    pub trusted_proxies: Vec<Cidr>,
    /// DNS servers that are asked in place of those of `/etc/resolv.conf`.
    pub resolvers: Vec<SocketAddr>,
    /// Large answers go out in gzip to clients that take it.
    pub compression: bool,
    /// Client connections, all shards together.
    pub max_connections: usize,
    /// Largest request head in bytes.
    pub max_header_bytes: usize,
    /// Most header fields of a request.
    pub max_headers: usize,
    /// Largest request body in bytes.
    pub max_request_bytes: usize,
    /// Largest answer of an Endpoint in bytes.
    pub max_response_bytes: usize,
    /// Most members of a batch.
    pub max_batch: usize,
    /// Largest answer to a batch in bytes.
    pub max_batch_response_bytes: usize,
    /// Bytes of large bodies that all shards hold together.
    pub max_buffered_bytes: usize,
    /// Calls in flight per shard.
    pub max_inflight: usize,
    /// Calls of one batch in flight.
    pub batch_concurrency: usize,
    /// Time for a request head.
    pub header_timeout_ns: Nanos,
    /// Time for a request body.
    pub body_timeout_ns: Nanos,
    /// Time in which a reader must take something.
    pub write_timeout_ns: Nanos,
    /// Time that a connection may be idle.
    pub idle_timeout_ns: Nanos,
    /// After SIGTERM: still accepting, readiness already 503.
    pub shutdown_delay_ns: Nanos,
    /// After that: time for what is in flight.
    pub shutdown_grace_ns: Nanos,
    /// Form of the log.
    pub log_format: LogFormat,
    /// Lowest level that is logged.
    pub log_level: LogLevel,
    /// `[failsafe] max_attempts`.
    pub max_attempts: u8,
}

/// Keys of `[server]` that a reload can't change.
pub const RESTART_KEYS: [&str; 5] = ["listen", "admin", "shards", "driver", "max_connections"];

impl Server {
    /// Whether a caller at this address is told how its Call was decided, if it asks.
    /// `None` = nobody knows who it is.
    pub fn explains_to(&self, caller: Option<IpAddr>) -> bool {
        match self.explain {
            Explain::Off => false,
            Explain::Trusted => caller
                .is_some_and(|caller| is_loopback(caller) || self.explain_from.iter().any(|range| range.holds(caller))),
            Explain::All => true,
        }
    }

    /// The keys that differ and need a restart: sockets, threads and rings are made once.
    pub fn needs_restart(&self, other: &Server) -> Vec<&'static str> {
        let differs = [
            self.listen != other.listen,
            self.admin != other.admin,
            self.shards != other.shards,
            self.driver != other.driver,
            self.max_connections != other.max_connections,
        ];
        RESTART_KEYS.into_iter().zip(differs).filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }
}

/// What an Endpoint or a Gateway speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// JSON-RPC over HTTP.
    JsonRpc,
    /// The TRON HTTP API.
    TronHttp,
}

/// Where an Endpoint is. Only `authority` may be shown, and only to the Endpoint itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    /// Host name or address, without brackets.
    pub host: Box<str>,
    /// TCP port.
    pub port: u16,
    /// TLS is spoken.
    pub https: bool,
    /// What `Host` says: host and, where it is not the scheme's own, port.
    pub authority: Box<str>,
    /// Path and query, starting with `/`: may hold a key.
    pub path_and_query: Secret,
    /// `Authorization: Basic` value made from user-info in the URL.
    pub basic_auth: Option<Secret>,
}

impl std::fmt::Debug for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Url(…)")
    }
}

/// When an Endpoint's Circuit opens and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitRule {
    /// Failures in a row that open it.
    pub consecutive_failures: u32,
    /// Share of failures in the window that opens it, in parts of a million: 1..=1,000,000.
    pub failure_ratio_ppm: u32,
    /// Fewest samples in the window for the share to count.
    pub min_samples: u32,
    /// First time that it stays open.
    pub cooldown_ns: Nanos,
    /// Longest time that it stays open.
    pub max_cooldown_ns: Nanos,
    /// The share of failures is over so long, and a refusal for configuration counts only if there was no
    /// success for so long.
    pub window_ns: Nanos,
}

/// One upstream.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Its name in everything that people see.
    pub id: Box<str>,
    /// Chain, as the Gateway names it.
    pub chain: Box<str>,
    /// Network, as the Gateway names it.
    pub network: Box<str>,
    /// What it speaks.
    pub protocol: Protocol,
    /// Where it is.
    pub url: Url,
    /// TLS towards it; used where its URL is `https`.
    pub tls: UpstreamTls,
    /// Off = no candidate.
    pub enabled: bool,
    /// Own headers, in the order of the file; names are valid tokens, values hold no control characters.
    pub headers: Vec<(Box<str>, Secret)>,
    /// Ask for gzip.
    pub gzip: bool,
    /// TCP connect.
    pub connect_timeout_ns: Nanos,
    /// Waiting for a free connection.
    pub queue_timeout_ns: Nanos,
    /// Connections, all shards together.
    pub max_connections: usize,
    /// Ready connections, per shard.
    pub warm: usize,
    /// A pooled connection idle for longer is closed.
    pub idle_timeout_ns: Nanos,
    /// A pooled connection older than this is closed.
    pub max_age_ns: Nanos,
    /// Its Circuit.
    pub circuit: CircuitRule,
    /// Its own budget of attempts.
    pub budget: Option<Rate>,
    /// How much it holds and costs.
    pub tier: Tier,
    /// So many of the newest blocks have their state here; `u64::MAX` = all.
    pub state_blocks: u64,
    /// So many of the newest blocks have their bodies, receipts and logs here; `u64::MAX` = all.
    pub history_blocks: u64,
    /// What `web3_clientVersion` would say, if it is not to be asked.
    pub client: Option<Box<str>>,
    /// Namespaces or methods that it has although its client is not known for them.
    pub capabilities: Vec<Box<str>>,
    /// And those that it lacks.
    pub without: Vec<Box<str>>,
}

impl Endpoint {
    /// Whether connections to `other` may carry requests to this one: everything that a pool depends on is equal.
    pub fn is_reached_like(&self, other: &Endpoint) -> bool {
        self.url == other.url
            && self.tls == other.tls
            && self.headers == other.headers
            && self.max_connections == other.max_connections
            && self.idle_timeout_ns == other.idle_timeout_ns
            && self.max_age_ns == other.max_age_ns
    }

    /// What of its URL and headers is long enough to be a key.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let parts = self.url.path_and_query.reveal().split(['/', '?', '&', '=', '#']);
        let headers = self.headers.iter().map(|(_, value)| value).chain(&self.url.basic_auth);
        // The scheme in front of a credential is none.
        let headers = headers.flat_map(|value| value.reveal().split(' '));
        parts.chain(headers).filter(|part| part.len() >= KEY_BYTES_MIN)
    }
}

/// A shorter part of a URL or a header may be a word.
const KEY_BYTES_MIN: usize = 12;

/// How much of the chain an Endpoint holds, in order of cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Tier {
    /// The newest blocks only.
    Minimal = 0,
    /// All blocks, and the newest states.
    #[default]
    Full = 1,
    /// Everything.
    Archive = 2,
}

impl Tier {
    /// All of them, the cheapest first.
    pub const ALL: [Tier; 3] = [Tier::Minimal, Tier::Full, Tier::Archive];

    /// The word in configuration and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Tier::Minimal => "minimal",
            Tier::Full => "full",
            Tier::Archive => "archive",
        }
    }
}

/// Facts about a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// Chain, as Gateways and Endpoints name it.
    pub chain: Box<str>,
    /// Network.
    pub network: Box<str>,
    /// What `eth_chainId` must say, if it is known.
    pub chain_id: Option<u64>,
    /// How often its Endpoints are polled.
    pub poll_interval_ns: Nanos,
    /// An Endpoint that is more blocks behind lags.
    pub max_lag: u64,
    /// So many blocks below the newest one a block is taken for final.
    pub finality_depth: u64,
}

impl Network {
    /// Blocks below the newest one that are final, where nothing else is said.
    pub const FINALITY_DEPTH: u64 = 64;
}

/// How a Route orders its candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Configured order.
    Priority,
    /// At random by weight.
    Weighted,
    /// By what the Call needs, the cheapest that has it first.
    Tiered,
}

impl Strategy {
    /// The word in configuration and in what people see.
    pub const fn word(self) -> &'static str {
        match self {
            Strategy::Priority => "priority",
            Strategy::Weighted => "weighted",
            Strategy::Tiered => "tiered",
        }
    }
}

/// One Endpoint of a Route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Which Endpoint.
    pub endpoint: EndpointIx,
    /// 0..=1000; 0 = listed, never selected.
    pub weight: u16,
}

/// Connects a Gateway to Endpoints.
#[derive(Debug, Clone)]
pub struct Route {
    /// Its name.
    pub id: Box<str>,
    /// Exact method names; empty for the default Route.
    pub methods: Vec<Box<str>>,
    /// Order of the candidates.
    pub strategy: Strategy,
    /// As configured, at most [`TARGETS_MAX`].
    pub targets: Vec<Target>,
    /// Bit i is set if target i passes the candidate filter (enabled; same chain, network and protocol;
    /// weighted and tiered: weight over 0).
    pub eligible: u128,
    /// From [`shares`]: who is first chosen by weight is looked up here.
    pub shares: Box<[u32]>,
    /// By target: how much of the past it holds.
    pub held: Box<[Held]>,
    /// The targets of each tier, one bit each.
    pub by_tier: [u128; 3],
    /// The effective bound: the lower of the Route's and the deployment's.
    pub max_attempts: u8,
    /// One attempt, from its start to the last response byte.
    pub attempt_timeout_ns: Nanos,
    /// Version of the Route.
    pub version: u64,
}

/// For each target the weights of the eligible ones up to it, in sum.
pub fn shares(targets: &[Target], eligible: u128) -> Box<[u32]> {
    let mut sum = 0u32;
    let up_to = |(at, target): (usize, &Target)| {
        let counts = at < TARGETS_MAX && eligible >> at & 1 == 1;
        sum = sum.saturating_add(if counts { u32::from(target.weight) } else { 0 });
        sum
    };
    targets.iter().enumerate().map(up_to).collect()
}

/// A public entry point.
#[derive(Debug)]
pub struct Gateway {
    /// Its name.
    pub id: Box<str>,
    /// `/eth`; no trailing slash, except for `/` itself.
    pub path: Box<str>,
    /// Optional Host match, lower case, without port.
    pub hosts: Vec<Box<str>>,
    /// Which pages of other sites may read answers; `None` = none.
    pub cors: Option<Cors>,
    /// Chain.
    pub chain: Box<str>,
    /// Network.
    pub network: Box<str>,
    /// Which method table counts.
    pub family: Family,
    /// What it speaks.
    pub protocol: Protocol,
    /// All Routes; the default one is at [`Gateway::default_route`].
    pub routes: Vec<Route>,
    /// The Route without `methods`.
    pub default_route: RouteIx,
    /// For each listed method (and [`MethodId`] `other` at the end): its Route, or why it is closed.
    pub listed: Vec<Admittance>,
    /// Route by name for method Routes that name an unlisted method.
    pub unlisted_routes: HashMap<Box<str>, RouteIx>,
    /// Decides about unlisted names.
    pub surface: Surface,
}

impl Gateway {
    /// The table in which its methods stand.
    pub fn table<'m>(&self, methods: &'m Methods) -> &'m Table {
        methods.table(self.protocol, self.family)
    }

    /// The row of [`Gateway::listed`] for a method.
    pub fn admittance(&self, method: MethodId) -> Admittance {
        self.listed[usize::from(method.0)]
    }
}

/// What a Gateway does with one listed method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admittance {
    /// It goes to this Route.
    Route(RouteIx),
    /// It is not available.
    Closed(super::fault::Unavailable),
    /// Not a listed method: ask the surface and the map of unlisted Routes.
    ByName,
}

/// Which methods a Gateway offers at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surface {
    /// `allowed_methods`: exact names or `ns_*`; empty = all.
    pub allowed: Vec<Box<str>>,
    /// `blocked_methods`.
    pub blocked: Vec<Box<str>>,
    /// `expose`: namespaces opened that are closed by default.
    pub expose: Vec<Box<str>>,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::logic::units::SECOND;

    /// A configuration for the tests of this room: two Endpoints, one Gateway with one Route to both.
    pub(in crate::logic) fn snapshot() -> Snapshot {
        let target = |endpoint| Target { endpoint: EndpointIx(endpoint), weight: 1 };
        let route = Route {
            id: "default".into(),
            methods: Vec::new(),
            strategy: Strategy::Priority,
            targets: vec![target(0), target(1)],
            eligible: 0b11,
            shares: [1, 2].into(),
            held: Box::default(),
            by_tier: [0; 3],
            max_attempts: 3,
            attempt_timeout_ns: 10 * SECOND,
            version: 1,
        };
        let gateways = vec![gateway("ethereum", "/eth", &[], route)];
        let endpoints = vec![endpoint("a"), endpoint("b")];
        Snapshot::new(server(), endpoints, gateways, Vec::new(), Methods::embedded())
    }

    pub(in crate::logic) fn gateway(id: &str, path: &str, hosts: &[&str], route: Route) -> Gateway {
        let methods = Methods::embedded();
        Gateway {
            id: id.into(),
            path: path.into(),
            hosts: hosts.iter().map(|host| (*host).into()).collect(),
            cors: None,
            chain: "ethereum".into(),
            network: "mainnet".into(),
            family: Family::Evm,
            protocol: Protocol::JsonRpc,
            routes: vec![route],
            default_route: RouteIx(0),
            listed: vec![Admittance::ByName; methods.table(Protocol::JsonRpc, Family::Evm).rows().len() + 1],
            unlisted_routes: HashMap::new(),
            surface: Surface::default(),
        }
    }

    fn server() -> Server {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Server {
            listen: vec![Listen::Tcp(address(8545))],
            admin: address(8550),
            admin_token: None,
            metrics_public: false,
            shards: 2,
            driver: Driver::Auto,
            explain: Explain::Trusted,
            explain_from: Vec::new(),
            tls: None,
            proxy_protocol: false,
            trusted_proxies: Vec::new(),
            resolvers: Vec::new(),
            compression: false,
            max_connections: 100,
            max_header_bytes: 16_384,
            max_headers: 64,
            max_request_bytes: 1 << 20,
            max_response_bytes: 1 << 26,
            max_batch: 100,
            max_batch_response_bytes: 1 << 26,
            max_buffered_bytes: 1 << 30,
            max_inflight: 1_000,
            batch_concurrency: 10,
            header_timeout_ns: SECOND,
            body_timeout_ns: SECOND,
            write_timeout_ns: SECOND,
            idle_timeout_ns: SECOND,
            shutdown_delay_ns: 0,
            shutdown_grace_ns: SECOND,
            log_format: LogFormat::Text,
            log_level: LogLevel::Info,
            max_attempts: 3,
        }
    }

    fn endpoint(id: &str) -> Endpoint {
        Endpoint {
            id: id.into(),
            chain: "ethereum".into(),
            network: "mainnet".into(),
            protocol: Protocol::JsonRpc,
            url: Url {
                host: "node.example".into(),
                port: 8545,
                https: false,
                authority: "node.example:8545".into(),
                path_and_query: Secret::new("/v1/hunter2"),
                basic_auth: Some(Secret::new("Basic aHVudGVyMg==")),
            },
            tls: UpstreamTls::default(),
            enabled: true,
            headers: vec![("x-key".into(), Secret::new("hunter2"))],
            gzip: false,
            connect_timeout_ns: SECOND,
            queue_timeout_ns: SECOND,
            max_connections: 10,
            warm: 0,
            idle_timeout_ns: SECOND,
            max_age_ns: SECOND,
            circuit: crate::logic::circuit::RULE,
            budget: None,
            tier: Tier::Full,
            state_blocks: 128,
            history_blocks: u64::MAX,
            client: None,
            capabilities: Vec::new(),
            without: Vec::new(),
        }
    }

    #[test]
    fn a_secret_is_in_no_text_that_is_made_of_a_configuration() {
        let whole = format!("{:?} {:?}", snapshot().endpoints, Secret::new("hunter2"));
        assert!(whole.contains("Secret(…)") && whole.contains("Url(…)"), "{whole}");
        for secret in ["hunter2", "aHVudGVyMg", "/v1", "node.example"] {
            assert!(!whole.contains(secret), "{whole}");
        }
        assert_eq!(Secret::new("hunter2").reveal(), "hunter2");
    }

    #[test]
    fn decisions_are_explained_to_those_who_are_trusted() {
        let server = |explain| Server { explain, explain_from: vec![Cidr::parse("10.0.0.0/8").unwrap()], ..server() };
        for (caller, trusted) in [("127.0.0.1", true), ("::1", true), ("10.9.9.9", true), ("192.0.2.1", false)] {
            let caller: IpAddr = caller.parse().unwrap();
            assert!(!server(Explain::Off).explains_to(Some(caller)));
            assert_eq!(server(Explain::Trusted).explains_to(Some(caller)), trusted, "{caller}");
            assert!(server(Explain::All).explains_to(Some(caller)));
        }
        assert!(!server(Explain::Trusted).explains_to(None) && server(Explain::All).explains_to(None));
    }

    #[test]
    fn only_what_is_made_once_needs_a_restart() {
        let now = server();
        assert!(now.needs_restart(&now.clone()).is_empty());
        assert!(now.needs_restart(&Server { max_batch: 7, resolvers: vec![server().admin], ..server() }).is_empty());
        let moved: SocketAddr = ([127, 0, 0, 1], 9).into();
        for (key, other) in [
            ("listen", Server { listen: vec![Listen::Tcp(moved)], ..server() }),
            ("admin", Server { admin: moved, ..server() }),
            ("shards", Server { shards: 3, ..server() }),
            ("driver", Server { driver: Driver::Epoll, ..server() }),
            ("max_connections", Server { max_connections: 7, ..server() }),
        ] {
            assert_eq!(now.needs_restart(&other), [key]);
        }
    }

    #[test]
    fn keys_are_what_is_long_enough_to_be_one() {
        let path_and_query = Secret::new("/v3/0123456789ab/rpc?apikey=abcdefghijkl&x=1");
        let url = Url { path_and_query, basic_auth: Some(Secret::new("Basic dXNlcjpwYXNz")), ..endpoint("a").url };
        let headers = vec![("X".into(), Secret::new("Bearer a-token-of-mine")), ("Y".into(), Secret::new("short"))];
        let keyed = Endpoint { url, headers, ..endpoint("a") };
        let keys: Vec<&str> = keyed.keys().collect();
        assert_eq!(keys, ["0123456789ab", "abcdefghijkl", "a-token-of-mine", "dXNlcjpwYXNz"]);
    }

    #[test]
    fn a_pool_is_kept_only_where_its_connections_would_be_made_the_same_way() {
        let now = endpoint("a");
        let renamed = Endpoint { id: "b".into(), budget: None, connect_timeout_ns: 7, enabled: false, ..now.clone() };
        assert!(now.is_reached_like(&renamed));
        let elsewhere = Url { path_and_query: Secret::new("/v2"), ..now.url.clone() };
        for other in [
            Endpoint { url: elsewhere, ..now.clone() },
            Endpoint { url: Url { https: true, ..now.url.clone() }, ..now.clone() },
            Endpoint { tls: UpstreamTls { roots: vec![(*b"ca").into()], identity: None }, ..now.clone() },
            Endpoint { headers: Vec::new(), ..now.clone() },
            Endpoint { max_connections: 7, ..now.clone() },
            Endpoint { idle_timeout_ns: 7, ..now.clone() },
            Endpoint { max_age_ns: 7, ..now.clone() },
        ] {
            assert!(!now.is_reached_like(&other), "{other:?}");
        }
    }

    #[test]
    fn each_listed_method_has_its_own_row() {
        let mut gateway = snapshot().gateways.remove(0);
        gateway.listed[7] = Admittance::Route(RouteIx(3));
        assert_eq!(gateway.admittance(MethodId(7)), Admittance::Route(RouteIx(3)));
        assert_eq!(gateway.admittance(MethodId(8)), Admittance::ByName);
    }
}
