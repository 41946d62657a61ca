//! Which methods a Gateway offers, and which Route each of them takes.

use super::fault::{Faults, nearest, quoted};
use super::file::View;
use crate::logic::fault::Unavailable;
use crate::logic::methods::{MethodId, Table};
use crate::logic::routing::{CLOSED_NAMESPACES, admit};
use crate::logic::snapshot::{Admittance, Protocol, RouteIx, Surface};
use std::collections::HashMap;

/// Longest method name.
const METHOD_BYTES_MAX: usize = 128;

/// Reads `allowed_methods`, `blocked_methods` and `expose`.
pub(super) fn surface(view: &View<'_>, protocol: Protocol, faults: &mut Faults<'_>) -> Surface {
    Surface {
        allowed: patterns(view, protocol, "allowed_methods", faults),
        blocked: patterns(view, protocol, "blocked_methods", faults),
        expose: namespaces(view, faults),
    }
}

/// The methods that Routes of one Gateway name.
#[derive(Default)]
pub(super) struct MethodRoutes {
    by_name: HashMap<String, Named>,
}

struct Named {
    route: RouteIx,
    at: usize,
    /// Of the Route.
    path: String,
    /// Of the entry.
    entry: String,
}

impl MethodRoutes {
    /// Reads the `methods` of one Route.
    pub(super) fn read(&mut self, route: &View<'_>, ix: RouteIx, protocol: Protocol, faults: &mut Faults<'_>) {
        let example = example(protocol);
        for (position, typed) in route.texts("methods").into_iter().enumerate() {
            let entry = format!("{}[{position}]", route.path_of("methods"));
            if typed.text.contains('*') {
                let text = format!("must be an exact name, like \"{example}\"; a Route takes no patterns");
                faults.fault(typed.at, entry, text);
                continue;
            }
            if !is_method(&typed.text, protocol) {
                faults.fault(typed.at, entry, format!("must be the exact name of a method, like \"{example}\""));
                continue;
            }
            let shown = quoted(&typed.text).unwrap_or_else(|| "this method".to_owned());
            match self.by_name.get(&typed.text) {
                Some(other) if other.route == ix => {
                    faults.fault(typed.at, entry, format!("{shown} is listed twice; remove one of the two"));
                }
                Some(other) => {
                    let text = format!("{shown} is in {} already; a method takes one Route, remove one", other.path);
                    faults.fault(typed.at, entry, text);
                }
                None => {
                    let named = Named { route: ix, at: typed.at, path: route.path.clone(), entry };
                    self.by_name.insert(typed.text, named);
                }
            }
        }
    }

    /// Warns of names that no Call can reach a Route by, and of names that are nearly a known one.
    pub(super) fn warn_unreachable(&self, table: &Table, surface: &Surface, faults: &mut Faults<'_>) {
        for (name, named) in &self.by_name {
            let id = table.find(name);
            let shown = quoted(name).unwrap_or_else(|| "this method".to_owned());
            let why = match admit(surface, name, table.class(id)) {
                Some(Unavailable::Blocked) => "it is in blocked_methods; remove it there or here",
                Some(Unavailable::NotAllowed) => "it is not in allowed_methods; add it there or remove it here",
                Some(_) => "its namespace is closed; add the namespace to `expose` or remove it here",
                None if id == table.other() => {
                    let folded = table.rows().iter().map(|row| &*row.name);
                    if let Some(near) =
                        folded.filter(|row| row.eq_ignore_ascii_case(name)).chain(close(table, name)).next()
                    {
                        let text =
                            format!("{shown} is no known method; did you mean `{near}`? (names are case-sensitive)");
                        faults.warn(named.at, named.entry.clone(), text);
                    }
                    continue;
                }
                None if table.label(id) != name => {
                    let row = table.label(id);
                    let text =
                        format!("{shown} never comes here: it is one of `{row}`, which a Route takes as a whole");
                    faults.warn(named.at, named.entry.clone(), text);
                    continue;
                }
                None => continue,
            };
            faults.warn(named.at, named.entry.clone(), format!("{shown} never comes here: {why}"));
        }
    }
}

/// For each row of the table (and `other`) where it goes, and the Routes of names that stand in no row.
pub(super) fn listed(
    table: &Table,
    surface: &Surface,
    named: &MethodRoutes,
    default: RouteIx,
) -> (Vec<Admittance>, HashMap<Box<str>, RouteIx>) {
    let rows =
        table.rows().iter().zip(0u16..).map(|(row, at)| match admit(surface, &row.name, table.class(MethodId(at))) {
            Some(why) => Admittance::Closed(why),
            None => Admittance::Route(named.by_name.get(&*row.name).map_or(default, |named| named.route)),
        });
    let listed = rows.chain([Admittance::ByName]).collect();
    let unlisted = named.by_name.iter().filter(|(name, _)| table.find(name) == table.other());
    (listed, unlisted.map(|(name, named)| (name.as_str().into(), named.route)).collect())
}

fn close<'t>(table: &'t Table, name: &str) -> Option<&'t str> {
    let near = nearest(name, table.rows().iter().map(|row| &*row.name))?;
    // Names of methods are long, and own methods often look like known ones: only a slip of the finger is one.
    (strsim::damerau_levenshtein(near, name) <= 2).then_some(near)
}

/// A method as a protocol writes it.
pub(super) fn example(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::JsonRpc => "eth_getLogs",
        Protocol::TronHttp => "/wallet/getaccount",
    }
}

fn patterns(view: &View<'_>, protocol: Protocol, key: &str, faults: &mut Faults<'_>) -> Vec<Box<str>> {
    let (rest, text) = match protocol {
        Protocol::JsonRpc => ("_*", "must be an exact name or a namespace, like \"eth_call\" or \"debug_*\""),
        Protocol::TronHttp => {
            ("/*", "must be an exact path or all below one, like \"/wallet/getaccount\" or \"/walletsolidity/*\"")
        }
    };
    let mut patterns = Vec::new();
    for (position, typed) in view.texts(key).into_iter().enumerate() {
        let name = typed.text.strip_suffix(rest).unwrap_or(&typed.text);
        if is_method(name, protocol) && !name.contains('*') {
            patterns.push(typed.text.into());
        } else {
            faults.fault(typed.at, format!("{}[{position}]", view.path_of(key)), text);
        }
    }
    patterns
}

fn namespaces(view: &View<'_>, faults: &mut Faults<'_>) -> Vec<Box<str>> {
    let closed = || CLOSED_NAMESPACES.into_iter().chain(["debug"]);
    let mut open = Vec::new();
    for (position, typed) in view.texts("expose").into_iter().enumerate() {
        if closed().any(|namespace| namespace == typed.text) {
            open.push(typed.text.into());
            continue;
        }
        let text = match nearest(typed.text.strip_suffix("_*").unwrap_or(&typed.text), closed()) {
            Some(near) => format!("is no closed namespace; did you mean \"{near}\"?"),
            None => {
                let known: Vec<&str> = closed().collect();
                format!("is no closed namespace; these are: {} (all others are open already)", known.join(", "))
            }
        };
        faults.fault(typed.at, format!("{}[{position}]", view.path_of("expose")), text);
    }
    open
}

pub(super) fn is_method(name: &str, protocol: Protocol) -> bool {
    let starts_right = protocol == Protocol::JsonRpc || name.starts_with('/');
    starts_right
        && (1..=METHOD_BYTES_MAX).contains(&name.len())
        && !name.chars().any(|c| c.is_control() || c.is_whitespace())
}

#[cfg(test)]
mod tests {
    use super::super::resolve::probe::{SOUND, faulty, sound, warned, with};
    use super::*;
    use crate::logic::methods::Family;
    use crate::logic::routing::plan;

    const PATH: &str = "path = \"/eth\"";
    const HEAVY: &str = "methods = [\"debug_traceTransaction\", \"acme_getThing\"]";
    const METHODS: &str = "gateway[eth].route[heavy].methods";

    /// Which Route a method takes in this file.
    fn taken(text: &str, method: &str) -> Result<u16, Unavailable> {
        let snapshot = sound(text);
        let gateway = &snapshot.gateways[0];
        match plan(gateway, gateway.table(&snapshot.methods), method).1 {
            Ok(plan) => Ok(plan.route.0),
            Err(crate::logic::fault::Fault::Method(why)) => Err(why),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_row_of_the_table_has_its_admittance_and_other_is_by_name() {
        let snapshot = sound(SOUND);
        let (gateway, table) = (&snapshot.gateways[0], snapshot.methods.table(Protocol::JsonRpc, Family::Evm));
        assert_eq!(gateway.listed.len(), table.rows().len() + 1);
        assert_eq!(gateway.admittance(table.other()), Admittance::ByName);
        assert_eq!(gateway.unlisted_routes.len(), 1);
    }

    #[test]
    fn listed_and_unlisted_methods_take_their_route() {
        for (method, route) in
            [("eth_call", 0), ("debug_traceTransaction", 1), ("acme_getThing", 1), ("acme_getthing", 0)]
        {
            assert_eq!(taken(SOUND, method), Ok(route), "{method}");
        }
    }

    #[test]
    fn lists_close_methods() {
        let text = with(
            PATH,
            &format!(
                "{PATH}\nallowed_methods = [\"eth_*\", \"debug_traceTransaction\", \"acme_getThing\", \"anvil_*\"]\nblocked_methods = [\"eth_sign\"]"
            ),
        );
        assert_eq!(taken(&text, "eth_call"), Ok(0));
        assert_eq!(taken(&text, "eth_sign"), Err(Unavailable::Blocked));
        assert_eq!(taken(&text, "net_version"), Err(Unavailable::NotAllowed));
        assert_eq!(taken(&text, "anvil_mine"), Err(Unavailable::NotExposed));
        let text = text.replace("blocked_methods", "expose = [\"anvil\"]\nblocked_methods");
        assert_eq!(taken(&text, "anvil_mine"), Ok(0));
    }

    #[test]
    fn a_method_takes_one_route() {
        let text = with(HEAVY, "methods = [\"eth_getLogs\", «\"eth_getLogs\"]");
        faulty(&text, &format!("{METHODS}[1]"), &["`eth_getLogs` is listed twice"]);
        let third = "[[gateway.route]]\nid = \"third\"\nmethods = [«\"acme_getThing\"]\ntargets = [\"geth-1\"]\n";
        let says = ["`acme_getThing` is in gateway[eth].route[heavy] already", "remove one"];
        faulty(&format!("{SOUND}\n{third}"), "gateway[eth].route[third].methods[0]", &says);
    }

    #[test]
    fn a_route_names_methods_exactly() {
        faulty(&with(HEAVY, "methods = [«\"debug_*\"]"), &format!("{METHODS}[0]"), &["takes no patterns"]);
        for bad in ["", "a b", "a\\n", &"x".repeat(129)] {
            let text = with(HEAVY, &format!("methods = [«\"{bad}\"]"));
            faulty(&text, &format!("{METHODS}[0]"), &["exact name of a method"]);
        }
    }

    #[test]
    fn patterns_are_names_or_namespaces() {
        for key in ["allowed_methods", "blocked_methods"] {
            for bad in ["", "*", "_*", "eth*", "eth_get*", "*_call", "eth_*x"] {
                let text =
                    with(PATH, &format!("{PATH}\n{key} = [\"eth_*\", \"debug_*\", \"acme_getThing\", «\"{bad}\"]"));
                let text =
                    if key == "blocked_methods" { text.replace("\"debug_*\", \"acme_getThing\", ", "") } else { text };
                let position = if key == "blocked_methods" { 1 } else { 3 };
                faulty(&text, &format!("gateway[eth].{key}[{position}]"), &["\"eth_call\" or \"debug_*\""]);
            }
        }
    }

    #[test]
    fn only_closed_namespaces_are_exposed() {
        let text = |open: &str| with(PATH, &format!("{PATH}\nexpose = [«\"{open}\"]"));
        faulty(&text("admim"), "gateway[eth].expose[0]", &["did you mean \"admin\"?"]);
        faulty(&text("debug_*"), "gateway[eth].expose[0]", &["did you mean \"debug\"?"]);
        faulty(&text("eth"), "gateway[eth].expose[0]", &["these are: admin, engine,", "open already"]);
        assert_eq!(taken(&text("debug").replace('«', ""), "debug_setHead"), Ok(0));
    }

    #[test]
    fn names_that_never_come_are_warned_of() {
        let methods = |name: &str| format!("methods = [\"acme_getThing\", «\"{name}\"]");
        let path = format!("{METHODS}[1]");
        warned(&with(HEAVY, &methods("eth_getlogs")), &path, &["did you mean `eth_getLogs`?", "case-sensitive"]);
        warned(&with(HEAVY, &methods("eth_getLog")), &path, &["did you mean `eth_getLogs`?"]);
        warned(&with(HEAVY, &methods("admin_peers")), &path, &["never comes here", "`expose`"]);
        let blocked =
            with(HEAVY, &methods("eth_call")).replace(PATH, &format!("{PATH}\nblocked_methods = [\"eth_call\"]"));
        warned(&blocked, &path, &["blocked_methods"]);
        let allowed =
            with(HEAVY, &methods("net_version")).replace(PATH, &format!("{PATH}\nallowed_methods = [\"acme_*\"]"));
        warned(&allowed, &path, &["not in allowed_methods"]);
    }

    /// [`SOUND`] for TRON's HTTP API.
    fn tron(methods: &str, gateway: &str) -> String {
        let text = SOUND.replace("\"ethereum\"", "\"tron\"");
        let text = text.replace("[[endpoint]]", "[[endpoint]]\nprotocol = \"tron-http\"");
        text.replace(HEAVY, &format!("methods = [{methods}]"))
            .replace(PATH, &format!("{PATH}\nprotocol = \"tron-http\"\n{gateway}"))
    }

    #[test]
    fn methods_of_the_http_api_are_paths() {
        let text = tron("\"/wallet/getblock\", \"/wallet/unheardof\", \"/v1/accounts/{address}\"", "");
        for (path, route) in [
            ("/wallet/getblock", 1),
            ("/wallet/unheardof", 1),
            ("/v1/accounts/T1", 1),
            ("/wallet/getBlock", 0),
            ("/wallet/getnowblock", 0),
            ("/v1/accounts/T1/transactions", 0),
        ] {
            assert_eq!(taken(&text, path), Ok(route), "{path}");
        }
        let says = ["exact name", "\"/wallet/getaccount\""];
        faulty(&tron("«\"wallet/getblock\"", ""), &format!("{METHODS}[0]"), &says);
        faulty(&tron("«\"/wallet/*\"", ""), &format!("{METHODS}[0]"), &["takes no patterns", says[1]]);
        let one = "never comes here: it is one of `/v1/accounts/{address}`";
        warned(&tron("«\"/v1/accounts/T1\"", ""), &format!("{METHODS}[0]"), &[one]);
        warned(&tron("«\"/wallet/getBlock\"", ""), &format!("{METHODS}[0]"), &["did you mean `/wallet/getblock`?"]);
    }

    #[test]
    fn lists_of_the_http_api_hold_paths_and_what_is_below_one() {
        let text = tron(
            "\"/wallet/getblock\"",
            "allowed_methods = [\"/wallet/*\", \"/net/listnodes\"]\nblocked_methods = [\"/wallet/easytransfer\"]",
        );
        assert_eq!(taken(&text, "/wallet/getblock"), Ok(1));
        assert_eq!((taken(&text, "/net/listnodes"), taken(&text, "/wallet/unheardof")), (Ok(0), Ok(0)));
        assert_eq!(taken(&text, "/wallet/easytransfer"), Err(Unavailable::Blocked));
        assert_eq!(taken(&text, "/walletsolidity/getnowblock"), Err(Unavailable::NotAllowed));
        for bad in ["wallet", "/*", "*", "/wallet*", "/wallet/get*", "/wallet/*/x", "eth_*", ""] {
            let text = tron("\"/wallet/getblock\"", &format!("blocked_methods = [«\"{bad}\"]"));
            faulty(&text, "gateway[eth].blocked_methods[0]", &["exact path", "\"/walletsolidity/*\""]);
        }
    }
}
