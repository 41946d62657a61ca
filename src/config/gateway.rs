//! `[[gateway]]`: the public entry points, and what two of them may not share.

use super::endpoint::{Endpoints, protocol, unique};
use super::family::Families;
use super::fault::Faults;
use super::file::View;
use super::gateway_methods::{MethodRoutes, listed, surface};
use super::route::{Owner, route};
use super::url::bare_host;
use crate::logic::cors::{Cors, is_origin};
use crate::logic::methods::Methods;
use crate::logic::snapshot::{Gateway, Protocol, Route, RouteIx};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// What all Gateways are read against.
pub(super) struct Context<'c> {
    pub(super) endpoints: &'c Endpoints,
    pub(super) families: &'c Families,
    pub(super) methods: &'c Methods,
    /// `[failsafe] max_attempts`.
    pub(super) max_attempts: u8,
}

/// The place of one Gateway, for comparison with the others.
struct Place {
    at: usize,
    path_key: String,
    id: String,
    path: String,
    hosts: Vec<String>,
    auth: bool,
}

/// Reads all Gateways.
pub(super) fn gateways(top: &View<'_>, context: &Context<'_>, faults: &mut Faults<'_>) -> Vec<Gateway> {
    let (mut gateways, mut places, mut lines) = (Vec::new(), Vec::new(), HashMap::new());
    for view in top.tables("gateway") {
        if gateways.len() > usize::from(u16::MAX) {
            faults.fault(view.at, view.path, "is one too many; there may be 65536 Gateways");
            break;
        }
        if let Some(id) = view.name("id") {
            unique(&view, &id, &mut lines, "Gateway", faults);
        }
        let place = place(&view, faults);
        gateways.push(gateway(&view, &place, context, faults));
        places.push(place);
    }
    if gateways.is_empty() && !top.typed("gateway") && !top.misspelled("gateway") {
        faults.missing(0, "gateway", "there is none, so every request gets 404; write a [[gateway]]");
    }
    shared_places(&places, faults);
    key_segments(&places, faults);
    gateways
}

fn gateway(view: &View<'_>, place: &Place, context: &Context<'_>, faults: &mut Faults<'_>) -> Gateway {
    let (chain, network) = (view.name("chain"), view.name("network"));
    let family = context.families.of(chain.as_deref(), network.as_deref());
    let owner = Owner { chain, network, protocol: protocol(view), family };
    let key = (owner.chain.clone().unwrap_or_default(), owner.network.clone().unwrap_or_default());
    let protocol = owner.protocol.unwrap_or(Protocol::JsonRpc);
    context.families.check(view, faults);
    let surface = surface(view, protocol, faults);
    let table = context.methods.table(protocol, family);
    let mut named = MethodRoutes::default();
    let (routes, default_route) = routes(view, &owner, context, &mut named, faults);
    named.warn_unreachable(table, &surface, faults);
    let (listed, unlisted_routes) = listed(table, &surface, &named, default_route);
    Gateway {
        id: place.id.as_str().into(),
        path: place.path.as_str().into(),
        hosts: place.hosts.iter().map(|host| host.as_str().into()).collect(),
        cors: cors(view, faults),
        chain: key.0.into(),
        network: key.1.into(),
        family,
        protocol,
        routes,
        default_route,
        listed,
        unlisted_routes,
        surface,
    }
}

/// `cors`: `"*"` alone, or origins as browsers send them.
fn cors(view: &View<'_>, faults: &mut Faults<'_>) -> Option<Cors> {
    if !view.typed("cors") {
        return None;
    }
    let table = view.table("cors");
    let (typed, path) = (table.texts("origins"), table.path_of("origins"));
    if typed.iter().any(|origin| origin.text == "*") {
        if typed.len() > 1 {
            faults.fault(
                table.at_of("origins"),
                path,
                "has \"*\", which is every origin, beside others; keep one of the two",
            );
        }
        return Some(Cors::Any);
    }
    if typed.is_empty() && !table.wrong("origins") && table.typed("origins") {
        faults.fault(
            table.at_of("origins"),
            path.clone(),
            "is empty, so no page could call; name origins, or remove cors",
        );
    }
    for (position, origin) in typed.iter().enumerate().filter(|(_, origin)| !is_origin(&origin.text)) {
        let text =
            "is no origin as browsers send it, like \"https://app.example\": lower case, no path, no slash at the end";
        faults.fault(origin.at, format!("{path}[{position}]"), text);
    }
    Some(Cors::Listed(typed.iter().map(|origin| origin.text.as_str().into()).collect()))
}

fn routes(
    view: &View<'_>,
    owner: &Owner,
    context: &Context<'_>,
    named: &mut MethodRoutes,
    faults: &mut Faults<'_>,
) -> (Vec<Route>, RouteIx) {
    let (mut routes, mut lines, mut default) = (Vec::new(), HashMap::new(), None::<(RouteIx, usize)>);
    for of in view.tables("route") {
        let Ok(ix) = u16::try_from(routes.len()).map(RouteIx) else {
            faults.fault(of.at, of.path, "is one too many; a Gateway may have 65536 Routes");
            break;
        };
        if let Some(id) = of.name("id") {
            unique(&of, &id, &mut lines, "Route", faults);
        }
        let is_default = of.texts("methods").is_empty() && !of.wrong("methods");
        match default {
            Some((_, line)) if is_default => {
                let text = format!(
                    "is a second default Route beside the one in line {line}; give one of them `methods`, or remove it"
                );
                faults.fault(of.at, of.path.clone(), text);
            }
            None if is_default => default = Some((ix, faults.line(of.at))),
            _ => named.read(&of, ix, owner.protocol.unwrap_or(Protocol::JsonRpc), faults),
        }
        routes.push(route(&of, is_default, owner, context, faults));
    }
    if default.is_none() {
        // A Route whose `methods` are wrong may be the one that is missed.
        let no_list = view.typed("route") && view.length("route").is_none();
        let unsure = no_list || view.misspelled("route") || view.tables("route").iter().any(|of| of.wrong("methods"));
        if !unsure {
            let text = "has no default Route; write one [[gateway.route]] without `methods`, for all that no other Route names";
            faults.missing(view.at, view.path_of("route"), text);
        }
    }
    (routes, default.map_or(RouteIx(0), |(ix, _)| ix))
}

fn place(view: &View<'_>, faults: &mut Faults<'_>) -> Place {
    let path = view.text("path").unwrap_or_default();
    if let (true, false, Some(why)) = (view.typed("path"), view.wrong("path"), path_fault(&path)) {
        faults.fault(view.at_of("path"), view.path_of("path"), why);
    }
    let mut hosts: Vec<String> = Vec::new();
    for (position, typed) in view.texts("hosts").into_iter().enumerate() {
        let path = format!("{}[{position}]", view.path_of("hosts"));
        match bare_host(&typed.text) {
            Some(host) if hosts.contains(&host) => {
                faults.fault(typed.at, path, "is listed twice (case does not count); remove one of the two");
            }
            Some(host) => hosts.push(host),
            None => {
                let text = "must be a host name or an address without scheme, port and path, like \"rpc.example.com\" or \"[::1]\"";
                faults.fault(typed.at, path, text);
            }
        }
    }
    let auth = view.text("auth").is_some_and(|auth| auth != "none");
    let (at, path_key) = (view.at_of("path"), view.path_of("path"));
    Place { at, path_key, id: view.name("id").unwrap_or_default(), path, hosts, auth }
}

fn path_fault(path: &str) -> Option<&'static str> {
    if !path.starts_with('/') {
        Some("must start with `/`, like \"/eth\"")
    } else if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        Some("must be of visible ASCII characters, like \"/eth\"")
    } else if path.contains(['?', '#', '\\', '%']) {
        Some("must not hold `?`, `#`, `%` or `\\`; it is compared as it stands in the request, like \"/eth\"")
    } else if path.contains("//") || path.split('/').any(|segment| segment == "." || segment == "..") {
        Some("must not hold empty segments, `.` or `..`, like \"/eth\"")
    } else if path.len() > 1 && path.ends_with('/') {
        Some("must not end with `/`; write it without")
    } else if path == "/healthz" {
        Some("is taken: GET /healthz is the health check of the data port; choose another path")
    } else {
        None
    }
}

/// Two Gateways on one path and host. A Gateway without `hosts` beside one with them is none: the exact host wins.
fn shared_places(places: &[Place], faults: &mut Faults<'_>) {
    let mut taken: HashMap<(&str, &str), &Place> = HashMap::new();
    for place in places.iter().filter(|place| path_fault(&place.path).is_none()) {
        // Without `hosts` it is one place, "".
        let hosts = place.hosts.iter().map(String::as_str).chain(place.hosts.is_empty().then_some(""));
        let mut shared = None;
        for host in hosts {
            match taken.entry((&place.path, host)) {
                Entry::Occupied(other) => shared = shared.or(Some((host, *other.get()))),
                Entry::Vacant(free) => {
                    free.insert(place);
                }
            }
        }
        if let Some((host, other)) = shared {
            let of_host = if host.is_empty() { String::new() } else { format!(" for the host {host}") };
            let text =
                format!("Gateway `{}` has this path{of_host} too; give them different paths or `hosts`", other.id);
            faults.fault(place.at, place.path_key.clone(), text);
        }
    }
}

/// A Gateway whose path is another's plus one segment, where that segment could be a key.
fn key_segments(places: &[Place], faults: &mut Faults<'_>) {
    let mut keyed: HashMap<&str, Vec<&Place>> = HashMap::new();
    for place in places.iter().filter(|place| place.auth) {
        keyed.entry(place.path.as_str()).or_default().push(place);
    }
    for place in places {
        let parent = match place.path.rsplit_once('/') {
            Some((_, "")) | None => continue,
            Some(("", _)) => "/",
            Some((parent, _)) => parent,
        };
        let overlaps = |other: &&&Place| {
            place.hosts.is_empty()
                || other.hosts.is_empty()
                || place.hosts.iter().any(|host| other.hosts.contains(host))
        };
        if let Some(other) = keyed.get(parent).into_iter().flatten().find(overlaps) {
            let text = format!(
                "is the path of Gateway `{}` plus one segment, where its keys stand; choose a path that is not below it",
                other.id
            );
            faults.fault(place.at, place.path_key.clone(), text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::resolve::probe::{SOUND, faulty, read, sound, with};
    use super::*;
    use crate::logic::methods::Family;

    const PATH: &str = "path = \"/eth\"";

    fn second(id: &str, rest: &str) -> String {
        format!(
            "{SOUND}\n[[gateway]]\nid = \"{id}\"\nchain = \"ethereum\"\nnetwork = \"mainnet\"\n{rest}\n\
             [[gateway.route]]\nid = \"default\"\ntargets = [\"geth-1\"]\n"
        )
    }

    #[test]
    fn a_gateway_is_read() {
        let snapshot = sound(&with(PATH, "path = \"/eth\"\nhosts = [\"RPC.example.com\", \"[::1]\"]"));
        let gateway = &snapshot.gateways[0];
        assert_eq!((&*gateway.id, &*gateway.path, gateway.family), ("eth", "/eth", Family::Evm));
        assert_eq!((&*gateway.chain, &*gateway.network, gateway.protocol), ("ethereum", "mainnet", Protocol::JsonRpc));
        assert_eq!(gateway.hosts.iter().map(|host| &**host).collect::<Vec<_>>(), ["rpc.example.com", "[::1]"]);
        assert_eq!((gateway.default_route, gateway.routes.len()), (RouteIx(0), 2));
        sound(&with(PATH, "path = \"/\""));
    }

    #[test]
    fn the_default_route_may_stand_anywhere() {
        let text = SOUND.replace("id = \"default\"", "id = \"default\"\nmethods = [\"eth_call\"]");
        let text = text.replace("methods = [\"debug_traceTransaction\", \"acme_getThing\"]", "methods = []");
        assert_eq!(sound(&text).gateways[0].default_route, RouteIx(1));
    }

    #[test]
    fn exactly_one_route_is_the_default() {
        let heavy = "methods = [\"debug_traceTransaction\", \"acme_getThing\"]\n";
        let text = with(heavy, "").replace("[[gateway.route]]\nid = \"heavy\"", "«[[gateway.route]]\nid = \"heavy\"");
        let says = ["second default Route beside the one in line 30", "give one of them `methods`"];
        faulty(&text, "gateway[eth].route[heavy]", &says);
        let text = with("id = \"default\"", "id = \"default\"\nmethods = [\"eth_call\"]")
            .replace("[[gateway]]", "«[[gateway]]");
        let says = ["has no default Route", "[[gateway.route]] without `methods`"];
        faulty(&text, "gateway[eth].route", &says);
        let none = &SOUND[..SOUND.find("[[gateway.route]]").expect("a Route")];
        faulty(&none.replace("[[gateway]]", "«[[gateway]]"), "gateway[eth].route", &says);
        let no_list = none.replace("path = \"/eth\"", "path = \"/eth\"\nroute = «3");
        faulty(&no_list, "gateway[eth].route", &["[[gateway.route]]"]);
        let unsure = with("id = \"default\"", "id = \"default\"\nmethods = «7");
        faulty(&unsure, "gateway[eth].route[default].methods", &["must be a list"]);
    }

    #[test]
    fn paths_are_plain() {
        for (path, says) in [
            ("eth", "start with `/`"),
            ("", "start with `/`"),
            ("/eth/", "not end with `/`"),
            ("//", "empty segments"),
            ("/a//b", "empty segments"),
            ("/a/../b", "`..`"),
            ("/a?b", "`?`"),
            ("/a#b", "`#`"),
            ("/%41", "`%`"),
            ("/a b", "visible ASCII"),
            ("/é", "visible ASCII"),
            ("/a\\u0007", "visible ASCII"),
            ("/healthz", "health check"),
        ] {
            faulty(&with(PATH, &format!("path = «\"{path}\"")), "gateway[eth].path", &[says]);
        }
    }

    #[test]
    fn hosts_are_plain_and_once() {
        for bad in ["", "http://h", "h:8545", "h/x", "::1", "[::1]:80", "a b"] {
            let text = with(PATH, &format!("path = \"/eth\"\nhosts = [«\"{bad}\"]"));
            faulty(&text, "gateway[eth].hosts[0]", &["without scheme, port and path"]);
        }
        let text = with(PATH, "path = \"/eth\"\nhosts = [\"h\", «\"H\"]");
        faulty(&text, "gateway[eth].hosts[1]", &["listed twice"]);
    }

    #[test]
    fn two_gateways_are_not_at_one_path_and_host() {
        let says = ["Gateway `eth` has this path too", "different paths or `hosts`"];
        faulty(&second("two", "path = «\"/eth\""), "gateway[two].path", &says);
        let text = second("two", "path = «\"/eth\"\nhosts = [\"a\", \"b\"]").replacen(
            PATH,
            "path = \"/eth\"\nhosts = [\"B\"]",
            1,
        );
        faulty(&text, "gateway[two].path", &["for the host b too"]);
        sound(&second("two", "path = \"/eth\"\nhosts = [\"a\"]"));
        sound(&second("two", "path = \"/eth2\""));
    }

    #[test]
    fn a_path_below_a_gateway_with_keys_could_be_a_key() {
        let text = second("below", "path = \"/eth/two\"").replacen(PATH, "path = \"/eth\"\nauth = \"required\"", 1);
        let found = read(&text).faults;
        let texts: Vec<_> = found.iter().map(|fault| (fault.path.as_str(), fault.text.as_str())).collect();
        assert_eq!(texts.len(), 2, "{texts:#?}");
        assert!(texts[0].1.contains("not built yet"));
        assert_eq!(texts[1].0, "gateway[below].path");
        assert!(texts[1].1.contains("path of Gateway `eth` plus one segment, where its keys stand"));
        let root = second("root", "path = \"/\"\nauth = \"optional\"");
        assert!(read(&root).faults.iter().any(|fault| fault.path == "gateway[eth].path"));
        sound(&second("below", "path = \"/eth/two\""));
    }

    #[test]
    fn ids_are_unique() {
        let text = second("eth", "path = \"/two\"")
            .replace("[[gateway]]\nid = \"eth\"\nchain", "[[gateway]]\nid = «\"eth\"\nchain");
        faulty(&text, "gateway[eth].id", &["the Gateway in line 25 has the id `eth` too"]);
        let text = with("id = \"heavy\"", "id = «\"default\"");
        faulty(&text, "gateway[eth].route[default].id", &["the Route in line 31 has the id `default` too"]);
    }

    #[test]
    fn the_family_is_by_name_unless_a_network_says_otherwise() {
        let tron = SOUND.replace("\"ethereum\"", "\"tron\"");
        assert_eq!(sound(&tron).gateways[0].family, Family::Tron);
        let network = "[[network]]\nchain = \"tron\"\nnetwork = \"mainnet\"\nfamily = \"evm\"\n";
        assert_eq!(sound(&format!("{tron}{network}")).gateways[0].family, Family::Evm);
        let other = network.replace("mainnet", "nile");
        assert_eq!(sound(&format!("{tron}{other}")).gateways[0].family, Family::Tron);
        let twice = format!("{tron}{network}«{network}");
        faulty(&twice, "network[1]", &["same chain and network; merge the two"]);
    }

    #[test]
    fn the_http_api_is_tron_s_alone() {
        let http = |text: String| text.replace(PATH, &format!("{PATH}\nprotocol = «\"tron-http\""));
        let text = http(SOUND.to_owned());
        let found = read(&text.replace('«', "")).faults;
        assert!(found.iter().any(|fault| fault.text.contains("is for chains of the family tron only")), "{found:?}");
        let text =
            SOUND.replace("\"ethereum\"", "\"tron\"").replace("[[endpoint]]", "[[endpoint]]\nprotocol = \"tron-http\"");
        let text = text
            .replace("\"debug_traceTransaction\", \"acme_getThing\"", "\"/wallet/getblock\", \"/wallet/unheardof\"");
        let snapshot = sound(&http(text.clone()).replace('«', ""));
        let gateway = &snapshot.gateways[0];
        assert_eq!((gateway.protocol, gateway.family), (Protocol::TronHttp, Family::Tron));
        assert!(snapshot.endpoints.iter().all(|endpoint| endpoint.protocol == Protocol::TronHttp));
        assert!(gateway.routes.iter().all(|route| route.eligible != 0));
        let network = "[[network]]\nchain = \"tron\"\nnetwork = \"mainnet\"\nfamily = \"evm\"\n";
        let text = format!("{}{network}", http(text)).replace('«', "");
        let found = read(&text).faults;
        let gateway = found.iter().filter(|fault| fault.path == "gateway[eth].protocol");
        assert!(
            gateway.clone().all(|fault| fault.text.contains("family tron only")) && gateway.count() == 1,
            "{found:#?}"
        );
        assert_eq!(found.iter().filter(|fault| fault.path.ends_with(".protocol")).count(), 4, "{found:#?}");
        let found = read(&with("enabled = true", "protocol = \"tron-http\"")).faults;
        assert_eq!(found[0].path, "endpoint[geth-1].protocol", "{found:#?}");
        assert!(found[0].text.contains("family tron only"));
    }
}
