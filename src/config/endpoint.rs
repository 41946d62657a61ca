//! `[[endpoint]]`: the upstreams.

use super::family::Families;
use super::fault::{Faults, nearest};
use super::file::View;
use super::server::circuit;
use super::tier::holding;
use super::tls::{self, Files};
use super::url;
use crate::logic::limiter::Rate;
use crate::logic::snapshot::{CircuitRule, Endpoint, EndpointIx, Protocol, Secret, Url};
use std::collections::HashMap;

/// Headers that Ringway writes itself, or that speak about one connection.
const OWN_HEADERS: [&str; 14] = [
    "host",
    "content-length",
    "content-type",
    "content-encoding",
    "transfer-encoding",
    "connection",
    "accept",
    "accept-encoding",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
];
/// Above so many ids no nearest one is looked for: it would cost more than it helps.
const IDS_COMPARED_MAX: usize = 1_000;
/// So many ids are listed in a message.
const IDS_SHOWN_MAX: usize = 8;

/// What Routes need to know about an Endpoint, also where it is faulty itself.
pub(super) struct Typed {
    pub(super) id: Option<String>,
    pub(super) chain: Option<String>,
    pub(super) network: Option<String>,
    pub(super) protocol: Option<Protocol>,
    pub(super) enabled: bool,
    /// Whether TLS, host, port, and path without query: two of the same are one node.
    pub(super) place: Option<(bool, String, u16, String)>,
}

/// All Endpoints, found by id.
#[derive(Default)]
pub(super) struct Endpoints {
    /// In the order of the file.
    pub(super) typed: Vec<Typed>,
    /// Those without a fault: all of them, in the order of the file, if the file has none.
    pub(super) valid: Vec<Endpoint>,
    by_id: HashMap<String, EndpointIx>,
    /// Some could not be read at all, which is reported: an id that is not here may be one of them.
    pub(super) unsure: bool,
}

impl Endpoints {
    /// Reads all Endpoints.
    pub(super) fn read(
        top: &View<'_>,
        base: CircuitRule,
        families: &Families,
        files: Files<'_>,
        faults: &mut Faults<'_>,
    ) -> Endpoints {
        let no_list = top.typed("endpoint") && top.length("endpoint").is_none();
        let mut endpoints = Endpoints { unsure: no_list || top.misspelled("endpoint"), ..Endpoints::default() };
        let mut lines: HashMap<String, usize> = HashMap::new();
        for view in top.tables("endpoint") {
            let Ok(ix) = u16::try_from(endpoints.typed.len()) else {
                faults.fault(view.at, view.path, "is one too many; there may be 65536 Endpoints");
                break;
            };
            families.check(&view, faults);
            let typed = endpoint(&view, base, files, &mut endpoints.valid, faults);
            if let Some(id) = typed.id.clone() {
                unique(&view, &id, &mut lines, "Endpoint", faults);
                endpoints.by_id.entry(id).or_insert(EndpointIx(ix));
            }
            endpoints.typed.push(typed);
        }
        endpoints
    }

    /// The Endpoint of an id.
    pub(super) fn find(&self, id: &str) -> Option<(EndpointIx, &Typed)> {
        let ix = *self.by_id.get(id)?;
        self.typed.get(usize::from(ix.0)).map(|typed| (ix, typed))
    }

    /// What to write in place of an id that no Endpoint has.
    pub(super) fn instead_of(&self, id: &str) -> String {
        let mut ids: Vec<&str> = self.typed.iter().filter_map(|typed| typed.id.as_deref()).collect();
        if let Some(near) = (ids.len() <= IDS_COMPARED_MAX).then(|| nearest(id, ids.iter().copied())).flatten() {
            return format!("did you mean `{near}`?");
        }
        let more = if ids.len() > IDS_SHOWN_MAX { ", …" } else { "" };
        ids.truncate(IDS_SHOWN_MAX);
        match ids.is_empty() {
            true => format!("write an [[endpoint]] with id = \"{id}\""),
            false => format!("write an [[endpoint]] with id = \"{id}\", or use one of: {}{more}", ids.join(", ")),
        }
    }
}

/// Reports an id that came before; `lines` holds the line of each.
pub(super) fn unique(
    view: &View<'_>,
    id: &str,
    lines: &mut HashMap<String, usize>,
    what: &str,
    faults: &mut Faults<'_>,
) {
    let at = view.at_of("id");
    match lines.get(id) {
        Some(line) => {
            let text = format!("the {what} in line {line} has the id `{id}` too; give each its own");
            faults.fault(at, view.path_of("id"), text);
        }
        None => {
            lines.insert(id.to_owned(), faults.line(at));
        }
    }
}

/// `protocol` of an Endpoint or a Gateway; `None` where it is wrong.
pub(super) fn protocol(view: &View<'_>) -> Option<Protocol> {
    let tron_http = view.text("protocol").as_deref() == Some("tron-http");
    (!view.wrong("protocol")).then_some(if tron_http { Protocol::TronHttp } else { Protocol::JsonRpc })
}

fn endpoint(
    view: &View<'_>,
    base: CircuitRule,
    files: Files<'_>,
    valid: &mut Vec<Endpoint>,
    faults: &mut Faults<'_>,
) -> Typed {
    let url = view.text("url").and_then(|text| match url::parse(&text) {
        Ok(url) => Some(url),
        Err(why) => {
            faults.fault(view.at_of("url"), view.path_of("url"), why);
            None
        }
    });
    let headers = headers(view, url.as_ref(), faults);
    let tls = tls::upstream(view, url.as_ref(), files, faults);
    let circuit = circuit(&view.table("circuit"), Some(base), faults);
    let budget = budget(view, faults);
    let holding = holding(view, faults);
    let typed = Typed {
        id: view.name("id"),
        chain: view.name("chain"),
        network: view.name("network"),
        protocol: protocol(view),
        enabled: view.flag("enabled"),
        place: url.as_ref().map(place),
    };
    if let (Some(id), Some(chain), Some(network), Some(protocol), Some(url)) =
        (&typed.id, &typed.chain, &typed.network, typed.protocol, url)
    {
        valid.push(Endpoint {
            id: id.as_str().into(),
            chain: chain.as_str().into(),
            network: network.as_str().into(),
            protocol,
            url,
            tls,
            enabled: typed.enabled,
            headers,
            gzip: view.flag("gzip"),
            connect_timeout_ns: view.number("connect_timeout"),
            queue_timeout_ns: view.number("queue_timeout"),
            max_connections: view.count("max_connections"),
            warm: warm(view, faults),
            idle_timeout_ns: view.number("idle_timeout"),
            max_age_ns: view.number("max_age"),
            circuit,
            budget,
            tier: holding.tier,
            state_blocks: holding.state_blocks,
            history_blocks: holding.history_blocks,
            client: holding.client,
            capabilities: holding.capabilities,
            without: holding.without,
        });
    }
    typed
}

/// Ready connections: no more than there may be at all.
fn warm(view: &View<'_>, faults: &mut Faults<'_>) -> usize {
    let (warm, most) = (view.count("warm"), view.count("max_connections"));
    if warm > most {
        let text = format!("is above max_connections ({most}), which all shards share; lower it, or raise that");
        faults.fault(view.at_of("warm"), view.path_of("warm"), text);
    }
    warm
}

/// `rps` and `burst`: without `rps` there is no budget.
fn budget(view: &View<'_>, faults: &mut Faults<'_>) -> Option<Rate> {
    if view.typed("burst") && !view.typed("rps") {
        let text = "is the size of a budget that has no rate; write rps too, or remove it";
        faults.fault(view.at_of("burst"), view.path_of("burst"), text);
    }
    let whole = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let rps = view.number_or("rps").map(whole)?;
    Some(Rate { rps, burst: view.number_or("burst").map_or(rps, whole) })
}

fn place(url: &Url) -> (bool, String, u16, String) {
    let path = url.path_and_query.reveal().split('?').next().unwrap_or_default();
    (url.https, url.host.to_string(), url.port, path.to_owned())
}

fn headers(view: &View<'_>, url: Option<&Url>, faults: &mut Faults<'_>) -> Vec<(Box<str>, Secret)> {
    let mut headers: Vec<(Box<str>, Secret)> = Vec::new();
    for (name, value) in view.fields("headers") {
        let lower = name.text.to_ascii_lowercase();
        let token = is_token(&name.text);
        let path = match token && name.text.len() <= 64 {
            true => format!("{}.{}", view.path_of("headers"), name.text),
            false => view.path_of("headers"),
        };
        let basic = url.is_some_and(|url| url.basic_auth.is_some());
        let text = match lower.as_str() {
            _ if !token => "the name of a header must be of letters, digits and !#$%&'*+-.^_`|~",
            own if OWN_HEADERS.contains(&own) => "Ringway writes this header itself; remove it",
            "authorization" if basic => {
                "the URL holds a user name, which becomes `Authorization` too; keep one of the two"
            }
            name if headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) => {
                "this header is written twice (case does not count); keep one"
            }
            _ => {
                if value.text.chars().any(char::is_control) {
                    let text = "the value holds a control character; remove it (a line end after a variable's value?)";
                    faults.fault(value.at, path, text);
                }
                headers.push((name.text.into(), Secret::new(value.text)));
                continue;
            }
        };
        faults.fault(name.at, path, text);
    }
    headers
}

fn is_token(name: &str) -> bool {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(token)
}

#[cfg(test)]
mod tests {
    use super::super::resolve::probe::{SOUND, faulty, read, sound, with};
    use super::*;
    use crate::logic::units::{MS, SECOND};

    #[test]
    fn defaults_are_those_of_the_reference() {
        let endpoints = sound(&with("enabled = true", "")).endpoints;
        let endpoint = &endpoints[0];
        assert_eq!((&*endpoint.id, &*endpoint.chain, &*endpoint.network), ("geth-1", "ethereum", "mainnet"));
        assert_eq!((endpoint.protocol, endpoint.enabled, endpoint.headers.len()), (Protocol::JsonRpc, true, 0));
        assert_eq!((endpoint.connect_timeout_ns, endpoint.queue_timeout_ns), (2 * SECOND, SECOND));
        assert_eq!((endpoint.max_connections, endpoint.idle_timeout_ns), (4_096, 20 * SECOND));
        assert_eq!(endpoint.max_age_ns, 600 * SECOND);
        assert_eq!(endpoints[2].url.path_and_query.reveal(), "/key?x=1");
    }

    #[test]
    fn what_is_typed_counts_and_headers_keep_their_order() {
        let typed = "headers = { Z = \"${KEY}\", Authorization = \"Bearer x\", A = \"\" }\nconnect_timeout = \"5ms\"\nmax_connections = 1";
        let endpoints = sound(&with("enabled = true", typed)).endpoints;
        let headers: Vec<_> = endpoints[0].headers.iter().map(|(name, value)| (&**name, value.reveal())).collect();
        assert_eq!(headers, [("Z", "s3cret-of-env"), ("Authorization", "Bearer x"), ("A", "")]);
        assert_eq!((endpoints[0].connect_timeout_ns, endpoints[0].max_connections), (5 * MS, 1));
    }

    #[test]
    fn a_budget_has_a_rate_and_its_burst_defaults_to_it() {
        let budget = |typed| sound(&with("enabled = true", typed)).endpoints[0].budget;
        assert_eq!(budget(""), None);
        assert_eq!(budget("rps = 25"), Some(Rate { rps: 25, burst: 25 }));
        assert_eq!(budget("rps = 25\nburst = 50"), Some(Rate { rps: 25, burst: 50 }));
        let alone = with("enabled = true", "burst = «50");
        faulty(&alone, "endpoint[geth-1].burst", &["no rate", "write rps too"]);
        faulty(&with("enabled = true", "rps = «0"), "endpoint[geth-1].rps", &["at least 1"]);
        faulty(&with("enabled = true", "rps = 1\nburst = «0"), "endpoint[geth-1].burst", &["at least 1"]);
    }

    #[test]
    fn ready_connections_are_among_those_that_may_be() {
        assert_eq!(sound(&with("enabled = true", "warm = 4")).endpoints[0].warm, 4);
        let text = with("enabled = true", "max_connections = 3\nwarm = «4");
        faulty(&text, "endpoint[geth-1].warm", &["above max_connections (3)"]);
    }

    #[test]
    fn a_url_is_refused_where_it_stands() {
        let cases =
            [("ftp://h/s3cret", "neither http nor https"), ("h:8545", "no scheme"), ("http://h:0", "from 1 to 65535")];
        for (url, says) in cases {
            let text = with("url = \"http://10.0.0.1:8545\"", &format!("url = «\"{url}\""));
            faulty(&text, "endpoint[geth-1].url", &[says]);
        }
    }

    #[test]
    fn headers_that_ringway_writes_or_http_forbids_are_refused() {
        for name in ["Host", "content-length", "Transfer-Encoding", "CONNECTION", "Content-Type", "Accept-Encoding"] {
            let text = with("enabled = true", &format!("headers = {{ «{name} = \"s3cret\" }}"));
            faulty(
                &text,
                &format!("endpoint[geth-1].headers.{name}"),
                &["Ringway writes this header itself; remove it"],
            );
        }
        let text = with("enabled = true", "headers = { «\"X Y\" = \"s3cret\" }");
        faulty(&text, "endpoint[geth-1].headers", &["must be of letters, digits"]);
        let text = with("enabled = true", "headers = { X-A = \"a\", «x-a = \"b\" }");
        faulty(&text, "endpoint[geth-1].headers.x-a", &["written twice"]);
        let text = with("enabled = true", "headers = { X = «\"s3cret\\r\\n\" }");
        faulty(&text, "endpoint[geth-1].headers.X", &["control character", "line end"]);
        let text = with("enabled = true", "headers = { X = «1 }");
        faulty(&text, "endpoint[geth-1].headers.X", &["text in quotes"]);
        faulty(&with("enabled = true", "headers = «\"X: 1\""), "endpoint[geth-1].headers", &["{ Name = \"value\" }"]);
        let text =
            with("url = \"http://10.0.0.1:8545\"", "url = \"http://u:p@h\"\nheaders = { «Authorization = \"x\" }");
        faulty(&text, "endpoint[geth-1].headers.Authorization", &["keep one of the two"]);
    }

    #[test]
    fn ids_are_unique_and_readable() {
        let text = with("id = \"geth-2\"", "id = «\"geth-1\"")
            .replace(", \"geth-2\"]", "]")
            .replace(", { endpoint = \"geth-2\", weight = 1 }", "");
        faulty(&text, "endpoint[geth-1].id", &["the Endpoint in line 6 has the id `geth-1` too", "give each its own"]);
        let text =
            with("id = \"erigon\"", "id = «\"eri gon\"").replace("endpoint = \"erigon\"", "endpoint = \"geth-1\"");
        faulty(&text, "endpoint[2].id", &["1 to 64 letters, digits"]);
    }

    #[test]
    fn an_endpoint_that_is_faulty_itself_is_no_unknown_one() {
        let found = read(&with("url = \"http://10.0.0.1:8545\"\n", "")).faults;
        assert_eq!(found.len(), 1, "{found:#?}");
        let found = read(&SOUND.replacen("network = \"mainnet\"\n", "", 1)).faults;
        assert_eq!(found.len(), 1, "{found:#?}");
    }
}
