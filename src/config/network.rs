//! `[[network]]`: facts about each chain and network that the file names, typed or publicly known.

use super::endpoint::Endpoints;
use super::fault::Faults;
use super::file::View;
use super::schema::NETWORK;
use crate::logic::networks::{known, max_lag};
use crate::logic::snapshot::{Gateway, Network};
use crate::logic::units::{Nanos, SECOND, show_duration};
use std::collections::{HashMap, HashSet};

/// Above it tips are unknown or stale for so long that tiers could as well be left out.
const POLL_SLOW_NS: Nanos = 60 * SECOND;

/// A chain and a network.
type Name = (Box<str>, Box<str>);

/// The facts about each that an Endpoint or a Gateway names, once, in the order of the file: Endpoints first.
pub(super) fn networks(
    top: &View<'_>,
    endpoints: &Endpoints,
    gateways: &[Gateway],
    faults: &mut Faults<'_>,
) -> Vec<Network> {
    let (names, all_read) = names(top, endpoints, gateways);
    let set: HashSet<&Name> = names.iter().collect();
    let mut typed: HashMap<Name, Network> = HashMap::new();
    for view in top.tables("network") {
        let (Some(chain), Some(network)) = (view.name("chain"), view.name("network")) else { continue };
        let name = (chain.into(), network.into());
        warn(&view, &name, faults);
        if all_read && !set.contains(&name) {
            let text = format!(
                "no Endpoint and no Gateway is of the chain `{}` and the network `{}`, so this counts nowhere; correct the names, or remove it",
                name.0, name.1
            );
            faults.warn(view.at, view.path.clone(), text);
        }
        let facts = facts(&view, &name);
        typed.entry(name).or_insert(facts);
    }
    let nothing = View { path: String::new(), at: 0, table: None, keys: NETWORK, env: top.env };
    names.iter().map(|name| typed.remove(name).unwrap_or_else(|| facts(&nothing, name))).collect()
}

/// What the file names, and whether nothing that could be a name is wrong or absent.
fn names(top: &View<'_>, endpoints: &Endpoints, gateways: &[Gateway]) -> (Vec<Name>, bool) {
    let (mut names, mut seen) = (Vec::new(), HashSet::new());
    let no_list = top.typed("gateway") && top.length("gateway").is_none();
    let mut all_read = !endpoints.unsure && !no_list && !top.misspelled("gateway");
    let of_endpoints = endpoints.typed.iter().map(|typed| (typed.chain.as_deref(), typed.network.as_deref()));
    // What a Gateway got wrong is empty in it.
    let word = |word: &str| -> bool { !word.is_empty() };
    let of_gateways = gateways
        .iter()
        .map(|of| (Some(&*of.chain).filter(|chain| word(chain)), Some(&*of.network).filter(|network| word(network))));
    for name in of_endpoints.chain(of_gateways) {
        let (Some(chain), Some(network)) = name else {
            all_read = false;
            continue;
        };
        if seen.insert((chain, network)) {
            names.push((chain.into(), network.into()));
        }
    }
    (names, all_read)
}

fn facts(view: &View<'_>, (chain, network): &Name) -> Network {
    let known = known(chain, network);
    let block_time_ns = view.number_or("block_time").or(known.and_then(|known| known.block_time_ns));
    Network {
        chain: chain.clone(),
        network: network.clone(),
        chain_id: view.number_or("chain_id").or(known.map(|known| known.chain_id)),
        poll_interval_ns: view.number("poll_interval"),
        max_lag: view.number_or("max_lag").unwrap_or_else(|| max_lag(block_time_ns)),
        finality_depth: view.number("finality_depth"),
    }
}

fn warn(view: &View<'_>, (chain, network): &Name, faults: &mut Faults<'_>) {
    let poll_interval_ns = view.number("poll_interval");
    if poll_interval_ns > POLL_SLOW_NS {
        let text = format!(
            "a node that stands still would be noticed {} later only, and what it says is believed as long; write at most 1m",
            show_duration(poll_interval_ns)
        );
        faults.warn(view.at_of("poll_interval"), view.path_of("poll_interval"), text);
    }
    let typed = view.number_or("chain_id");
    let Some((typed, known)) = typed.zip(known(chain, network)) else { return };
    if typed != known.chain_id {
        let text = format!(
            "the public chain of this name has the id {}, and Endpoints that say so would be left out; correct the id, or give a chain of your own its own name",
            known.chain_id
        );
        faults.warn(view.at_of("chain_id"), view.path_of("chain_id"), text);
    }
}

#[cfg(test)]
mod tests {
    use super::super::resolve::probe::{SOUND, faulty, read, sound, warned, with};
    use super::*;
    use crate::logic::units::MS;

    /// The sound file with `[[network]]` of ethereum mainnet and these keys.
    fn typed(keys: &str) -> String {
        with("shards = 2", &format!("[[network]]\nchain = \"ethereum\"\nnetwork = \"mainnet\"\n{keys}"))
    }

    fn of(text: &str) -> Network {
        let mut networks = sound(text).networks;
        assert_eq!(networks.len(), 1, "{networks:?}");
        networks.remove(0)
    }

    fn named(chain: &str, network: &str) -> Network {
        Network {
            chain: chain.into(),
            network: network.into(),
            chain_id: None,
            poll_interval_ns: SECOND,
            max_lag: 2,
            finality_depth: 64,
        }
    }

    #[test]
    fn each_that_is_named_is_there_once_in_the_order_of_first_mention() {
        let text = SOUND.replacen("network = \"mainnet\"", "network = \"sepolia\"", 1).replacen(
            "chain = \"ethereum\"\nnetwork = \"mainnet\"\nurl = \"http://10.0.0.2",
            "chain = \"acme\"\nnetwork = \"mainnet\"\nurl = \"http://10.0.0.2",
            1,
        );
        let networks = sound(&text).networks;
        let sepolia = Network { chain_id: Some(11_155_111), ..named("ethereum", "sepolia") };
        let mainnet = Network { chain_id: Some(1), ..named("ethereum", "mainnet") };
        assert_eq!(networks, [sepolia, named("acme", "mainnet"), mainnet]);
        let only_a_gateway = "[[gateway]]\nid = \"b\"\npath = \"/b\"\nchain = \"polygon\"\nnetwork = \"mainnet\"\n[[gateway.route]]\nid = \"default\"\ntargets = [\"geth-1\"]\n";
        let networks = sound(&format!("{SOUND}\n{only_a_gateway}")).networks;
        let polygon = Network { chain_id: Some(137), ..named("polygon", "mainnet") };
        assert_eq!(networks[1..], [polygon]);
    }

    #[test]
    fn what_is_typed_counts_before_what_is_known() {
        let keys = "chain_id = 1\npoll_interval = \"250ms\"\nmax_lag = 9\nfinality_depth = 3\nblock_time = \"1ms\"";
        let expected = Network {
            chain_id: Some(1),
            poll_interval_ns: 250 * MS,
            max_lag: 9,
            finality_depth: 3,
            ..named("ethereum", "mainnet")
        };
        assert_eq!(of(&typed(keys)), expected);
        let acme = SOUND.replace("\"ethereum\"", "\"acme\"");
        assert_eq!(of(&acme), named("acme", "mainnet"));
        let own = "shards = 2\n[[network]]\nchain = \"acme\"\nnetwork = \"mainnet\"\nchain_id = 18446744073709551615\nblock_time = \"400ms\"";
        let expected = Network { chain_id: Some(u64::MAX), max_lag: 5, ..named("acme", "mainnet") };
        assert_eq!(of(&acme.replace("shards = 2", own)), expected);
    }

    #[test]
    fn a_fast_chain_may_be_more_blocks_behind() {
        let lag = |text: &str| of(text).max_lag;
        assert_eq!(lag(&SOUND.replace("\"ethereum\"", "\"arbitrum\"")), 8);
        assert_eq!(lag(&typed("block_time = \"300ms\"")), 7);
        assert_eq!(lag(&typed("block_time = \"12s\"")), 2);
        assert_eq!(lag(&typed("max_lag = 0")), 0);
    }

    #[test]
    fn bounds_are_said() {
        for (keys, key, says) in [
            ("chain_id = «0", "chain_id", "at least 1"),
            ("chain_id = «\"0x1\"", "chain_id", "without quotes"),
            ("max_lag = «-1", "max_lag", "at least 0"),
            ("max_lag = «4294967296", "max_lag", "at most 4294967295"),
            ("finality_depth = «-1", "finality_depth", "at least 0"),
            ("poll_interval = «\"0s\"", "poll_interval", "from 10ms to a year"),
            ("poll_interval = «\"9ms\"", "poll_interval", "from 10ms to a year"),
            ("poll_interval = «1", "poll_interval", "\"250ms\""),
            ("block_time = «\"0s\"", "block_time", "from 1ms to a year"),
        ] {
            faulty(&typed(keys), &format!("network[0].{key}"), &[says]);
        }
    }

    #[test]
    fn what_can_hardly_be_meant_is_warned_of() {
        let path = |key: &str| format!("network[0].{key}");
        warned(&typed("poll_interval = «\"61s\""), &path("poll_interval"), &["noticed 61s later", "at most 1m"]);
        assert_eq!(read(&typed("poll_interval = \"1m\"\nchain_id = 1")).faults, []);
        warned(&typed("chain_id = «5"), &path("chain_id"), &["has the id 1", "its own name"]);
        let unnamed = "«[[network]]\nchain = \"ethereum\"\nnetwork = \"minnet\"";
        warned(&with("shards = 2", unnamed), "network[0]", &["`ethereum`", "`minnet`", "counts nowhere"]);
    }

    #[test]
    fn what_may_be_named_where_nothing_could_be_read_is_not_called_unnamed() {
        let text = with("shards = 2", "[[network]]\nchain = \"ethereum\"\nnetwork = \"sepolia\"");
        for (good, slip) in [
            ("network = \"mainnet\"\nurl = \"http://10.0.0.1", "netwrk = \"sepolia\"\nurl = \"http://10.0.0.1"),
            ("[[gateway]]", "[[gatway]]"),
            ("path = \"/eth\"\nchain = \"ethereum\"", "path = \"/eth\"\nchain = \"ether eum\""),
        ] {
            assert_eq!(text.matches(good).count(), 1, "{good}");
            let found = read(&text.replace(good, slip)).faults;
            assert!(
                !found.is_empty() && found.iter().all(|fault| !fault.text.contains("counts nowhere")),
                "{found:#?}"
            );
        }
    }
}
