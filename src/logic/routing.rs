//! Which Route a Call takes, or why it takes none.

use super::call::Class;
use super::fault::{Fault, Unavailable};
use super::methods::{ByName, MethodId, Table};
use super::snapshot::{Admittance, Gateway, GatewayIx, Protocol, RouteIx, Surface};
use std::borrow::Cow;

/// Namespaces that are closed unless `expose` names them: they administrate a node, or rewrite a development chain.
pub const CLOSED_NAMESPACES: [&str; 9] =
    ["admin", "engine", "personal", "miner", "clique", "anvil", "hardhat", "ganache", "evm"];

/// What is decided about a Call before the first attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Its Route.
    pub route: RouteIx,
    /// Its row in the method table, for counting.
    pub method: MethodId,
    /// What a repetition would mean.
    pub class: Class,
}

/// Plans a Call by its decoded method name.
pub fn plan(gateway: &Gateway, table: &Table, name: &str) -> (MethodId, Result<Plan, Fault>) {
    let method = table.find(name);
    let class = table.class(method);
    let route = match gateway.admittance(method) {
        Admittance::Route(route) => Ok(route),
        Admittance::Closed(why) => Err(why),
        Admittance::ByName => match admit(&gateway.surface, name, feared(table, name)) {
            Some(why) => Err(why),
            None => Ok(gateway.unlisted_routes.get(name).copied().unwrap_or(gateway.default_route)),
        },
    };
    (method, route.map(|route| Plan { route, method, class }).map_err(Fault::Method))
}

/// Gateways by where they are reached.
#[derive(Debug, Default)]
pub struct Entrances {
    /// JSON-RPC: on one path each.
    exact: ByName<Vec<Door>>,
    /// TRON's HTTP API: below a path, the longest first. `/` is the empty one.
    below: Vec<(Box<str>, Vec<Door>)>,
}

/// The hosts that a Gateway answers for (none = all), and the Gateway.
type Door = (Vec<Box<str>>, GatewayIx);

impl Entrances {
    /// The entrances of all Gateways.
    pub fn new(gateways: &[Gateway]) -> Entrances {
        let doors = |protocol| {
            let mut doors: ByName<Vec<Door>> = ByName::default();
            for (gateway, at) in gateways.iter().zip(0..).filter(|(gateway, _)| gateway.protocol == protocol) {
                doors.entry(gateway.path.clone()).or_default().push((gateway.hosts.clone(), GatewayIx(at)));
            }
            // A Gateway that names this host goes before one that takes every host.
            doors.values_mut().for_each(|doors| doors.sort_by_key(|(hosts, _)| hosts.is_empty()));
            doors
        };
        let below = doors(Protocol::TronHttp).into_iter();
        let mut below: Vec<_> = below.map(|(path, doors)| (path.trim_end_matches('/').into(), doors)).collect();
        below.sort_by_key(|(path, _): &(Box<str>, _)| std::cmp::Reverse(path.len()));
        Entrances { exact: doors(Protocol::JsonRpc), below }
    }

    /// The Gateway of TRON's HTTP API above a path, and the length of its own path. A Gateway of that path
    /// that is for other hosts does not hide a shorter one.
    pub fn find_above(&self, path: &str, host: Option<&str>) -> Option<(GatewayIx, usize)> {
        self.below.iter().find_map(|(own, doors)| {
            let rest = path.strip_prefix(&**own)?;
            let gateway = open_to(doors, host).filter(|_| rest.starts_with('/') || rest.is_empty())?;
            Some((gateway, own.len()))
        })
    }

    /// The JSON-RPC Gateway behind a path (one trailing slash is forgiven) and a `Host`.
    pub fn find(&self, path: &str, host: Option<&str>) -> Option<GatewayIx> {
        let trimmed = path.strip_suffix('/').filter(|rest| !rest.is_empty()).unwrap_or(path);
        open_to(self.exact.get(trimmed)?, host)
    }
}

fn open_to(doors: &[Door], host: Option<&str>) -> Option<GatewayIx> {
    doors.iter().find(|(hosts, _)| hosts.is_empty() || is_one_of(hosts, host)).map(|(_, gateway)| *gateway)
}

fn is_one_of(hosts: &[Box<str>], host: Option<&str>) -> bool {
    let Some(host) = host else { return false };
    hosts.iter().any(|known| known.eq_ignore_ascii_case(host_name(host)))
}

/// The name in a `Host`: the port is not part of it; an IPv6 address keeps its brackets.
pub fn host_name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Why a method is not offered; `None` if it is.
///
/// What is closed or blocked is so in every spelling that a node could take for the name: some fold its case (as
/// Nethermind does), and a comparison by the rules of a language skips control and zero-width characters.
pub fn admit(surface: &Surface, name: &str, class: Class) -> Option<Unavailable> {
    let read = as_read(name);
    if surface.blocked.iter().any(|pattern| covers(pattern, &read)) {
        return Some(Unavailable::Blocked);
    }
    if !surface.allowed.is_empty() && !surface.allowed.iter().any(|pattern| matches(pattern, name)) {
        return Some(Unavailable::NotAllowed);
    }
    let namespace = read.split_once('_').map_or("", |(namespace, _)| namespace);
    let exposed = surface.expose.iter().any(|open| open.eq_ignore_ascii_case(namespace));
    let closed = CLOSED_NAMESPACES.iter().any(|closed| closed.eq_ignore_ascii_case(namespace))
        || (namespace.eq_ignore_ascii_case("debug") && class == Class::Effect);
    (closed && !exposed).then_some(Unavailable::NotExposed)
}

/// The class of an unlisted name, as far as the surface asks: that of the `debug_*` row that a node could take it for.
fn feared(table: &Table, name: &str) -> Class {
    let read = as_read(name);
    if !covers("debug_*", &read) {
        return Class::Unrecognised;
    }
    let row = table.rows().iter().find(|row| row.name.eq_ignore_ascii_case(&read));
    row.map_or(Class::Unrecognised, |row| row.class)
}

/// A name without the characters that a node could skip. No honest name has any, so this allocates for none.
fn as_read(name: &str) -> Cow<'_, str> {
    match name.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Cow::Borrowed(name),
        false => Cow::Owned(name.chars().filter(char::is_ascii_graphic).collect()),
    }
}

/// As [`matches`], in any case.
fn covers(pattern: &str, name: &str) -> bool {
    let (name, pattern) = (name.as_bytes(), pattern.as_bytes());
    match pattern.strip_suffix(b"*") {
        Some(prefix) => name.get(..prefix.len()).is_some_and(|front| front.eq_ignore_ascii_case(prefix)),
        None => name.eq_ignore_ascii_case(pattern),
    }
}

/// Whether `pattern` (an exact name, or `ns_*`) covers `name`.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::super::methods::Family;
    use super::*;
    use crate::logic::snapshot::Snapshot;
    use crate::logic::snapshot::tests::{gateway, snapshot};

    #[test]
    fn a_port_is_not_part_of_a_hosts_name() {
        for (host, name) in
            [("a.b", "a.b"), ("a.b:80", "a.b"), ("a.b:", "a.b"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]")]
        {
            assert_eq!(host_name(host), name);
        }
    }

    #[test]
    fn a_call_takes_the_route_of_its_method_or_the_default_one() {
        let Snapshot { methods, mut gateways, .. } = snapshot();
        let (table, mut gateway) = (methods.table(Protocol::JsonRpc, Family::Evm), gateways.remove(0));
        let taken = |gateway: &Gateway, name: &str| plan(gateway, table, name).1;
        let listed = table.find("eth_call");
        gateway.listed[usize::from(listed.0)] = Admittance::Route(RouteIx(2));
        gateway.listed[usize::from(table.find("eth_sign").0)] = Admittance::Closed(Unavailable::Blocked);
        gateway.unlisted_routes.insert("my_method".into(), RouteIx(3));
        let right = Plan { route: RouteIx(2), method: listed, class: Class::Stateless };
        assert_eq!(plan(&gateway, table, "eth_call"), (listed, Ok(right)));
        assert_eq!(taken(&gateway, "eth_sign"), Err(Fault::Method(Unavailable::Blocked)));
        let named = Plan { route: RouteIx(3), method: table.other(), class: Class::Unrecognised };
        assert_eq!(taken(&gateway, "my_method"), Ok(named));
        assert_eq!(taken(&gateway, "other_method"), Ok(Plan { route: gateway.default_route, ..named }));
        assert_eq!(taken(&gateway, "admin_any"), Err(Fault::Method(Unavailable::NotExposed)));
    }

    #[test]
    fn a_gateway_is_found_by_path_and_by_the_host_that_it_names() {
        let mut all = snapshot();
        let route = all.gateways.remove(0).routes.remove(0);
        let entrances = Entrances::new(&[
            gateway("every", "/eth", &[], route.clone()),
            gateway("named", "/eth", &["a.example", "b.example"], route.clone()),
            gateway("root", "/", &[], route.clone()),
            gateway("only", "/only", &["a.example"], route),
        ]);
        for (path, host, found) in [
            ("/eth", None, Some(0)),
            ("/eth/", None, Some(0)),
            ("/eth", Some("c.example"), Some(0)),
            ("/eth", Some("B.example:8545"), Some(1)),
            ("/", Some("a.example"), Some(2)),
            ("/only", Some("a.example"), Some(3)),
            ("/only", Some("b.example"), None),
            ("/only", None, None),
            ("/eth//", None, None),
            ("/et", None, None),
            ("", None, None),
        ] {
            assert_eq!(entrances.find(path, host), found.map(GatewayIx), "{path} {host:?}");
        }
    }

    #[test]
    fn dangerous_namespaces_are_closed_until_exposed() {
        let closed = Surface::default();
        for name in ["admin_addPeer", "engine_newPayloadV3", "anvil_mine", "evm_mine", "personal_sign", "ADMIN_peers"] {
            assert_eq!(admit(&closed, name, Class::Effect), Some(Unavailable::NotExposed), "{name}");
        }
        assert_eq!(admit(&closed, "debug_setHead", Class::Effect), Some(Unavailable::NotExposed));
        assert_eq!(admit(&closed, "debug_traceCall", Class::Stateless), None);
        assert_eq!(admit(&closed, "eth_call", Class::Stateless), None);
        assert_eq!(admit(&closed, "admin", Class::Unrecognised), None);
        let open = Surface { expose: vec!["evm".into(), "debug".into()], ..Surface::default() };
        assert_eq!(admit(&open, "evm_mine", Class::Effect), None);
        assert_eq!(admit(&open, "debug_setHead", Class::Effect), None);
        assert_eq!(admit(&open, "anvil_mine", Class::Effect), Some(Unavailable::NotExposed));
    }

    #[test]
    fn no_spelling_that_a_node_could_read_as_a_closed_name_gets_past() {
        let Snapshot { methods, mut gateways, .. } = snapshot();
        let (table, mut gateway) = (methods.table(Protocol::JsonRpc, Family::Evm), gateways.remove(0));
        gateway.surface.blocked = vec!["eth_sign".into(), "txpool_*".into()];
        let taken = |name: &str| plan(&gateway, table, name).1;
        for name in
            ["debug_sethead", "DEBUG_setHead", "debug_set\u{200b}Head", "ad\u{200d}min_peers", "admin\u{0}_peers"]
        {
            assert_eq!(taken(name), Err(Fault::Method(Unavailable::NotExposed)), "{name:?}");
        }
        for name in ["ETH_SIGN", "eth_Sign", "eth_si\u{ad}gn", "TxPool_content", "txpool_x"] {
            assert_eq!(taken(name), Err(Fault::Method(Unavailable::Blocked)), "{name:?}");
        }
        for name in ["debug_tracecall", "eth_signs", "debug_", "é_x", ""] {
            assert!(taken(name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn lists_block_and_allow_by_name_and_by_namespace() {
        let surface = Surface {
            allowed: vec!["eth_*".into(), "net_version".into()],
            blocked: vec!["eth_sign".into()],
            expose: vec![],
        };
        assert_eq!(admit(&surface, "eth_call", Class::Stateless), None);
        assert_eq!(admit(&surface, "net_version", Class::Stateless), None);
        assert_eq!(admit(&surface, "eth_sign", Class::Effect), Some(Unavailable::Blocked));
        assert_eq!(admit(&surface, "net_versions", Class::Unrecognised), Some(Unavailable::NotAllowed));
    }

    fn speaking(path: &str, hosts: &[&str], protocol: Protocol) -> Gateway {
        let route = snapshot().gateways.remove(0).routes.remove(0);
        Gateway { protocol, ..gateway(path, path, hosts, route) }
    }

    #[test]
    fn a_gateway_of_the_http_api_has_what_is_below_its_path() {
        let http = Protocol::TronHttp;
        let entrances = Entrances::new(&[
            speaking("/tron", &[], http),
            speaking("/tron/deep", &[], http),
            speaking("/tron/deep", &["h"], http),
            speaking("/tron/rpc", &[], Protocol::JsonRpc),
            speaking("/", &["h"], http),
            speaking("/here", &["h"], http),
        ]);
        let above = |path, host| entrances.find_above(path, Some(host)).map(|(gateway, own)| (gateway.0, own));
        assert_eq!(above("/tron/wallet/x", "g"), Some((0, 5)));
        assert_eq!((above("/tron", "g"), above("/tron/", "g")), (Some((0, 5)), Some((0, 5))));
        assert_eq!(above("/tron/deep/wallet/x", "g"), Some((1, 10)), "the longest path wins");
        assert_eq!(above("/tron/deep/wallet/x", "h:80"), Some((2, 10)), "and then the host");
        assert_eq!(above("/tron/deeper/x", "g"), Some((0, 5)));
        assert_eq!((above("/tronic/x", "g"), above("/tronic/x", "h")), (None, Some((4, 0))));
        assert_eq!((above("/here/x", "g"), above("/here/x", "h")), (None, Some((5, 5))));
        assert_eq!(entrances.find("/tron/rpc", None), Some(GatewayIx(3)));
        assert_eq!((entrances.find("/tron", None), entrances.find("/", Some("h"))), (None, None));
        assert_eq!(entrances.find_above("/x", None), None, "no host is none of those that are named");
    }
}
