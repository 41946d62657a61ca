//! A readable table of a Snapshot: ids only, no URL, no host, no secret.

use crate::logic::methods::Family;
use crate::logic::snapshot::{Endpoint, Gateway, Network, Protocol, Route, Snapshot, Strategy, Target, Tier};
use crate::logic::units::show_duration;
use std::collections::HashSet;
use std::fmt::Write;

/// What `ringway check` prints for a file without faults.
pub fn summary(snapshot: &Snapshot) -> String {
    let Snapshot { server, endpoints, gateways, .. } = snapshot;
    let mut out = String::new();
    let listen: Vec<String> = server.listen.iter().map(ToString::to_string).collect();
    // Writing to a String can't fail.
    let _ = writeln!(out, "listen   {}", listen.join(", "));
    let token = if server.admin_token.is_some() { " (with a token)" } else { "" };
    let _ = writeln!(out, "admin    {}{token}", server.admin);
    for gateway in gateways {
        let _ = writeln!(out, "\n{}", gateway_line(gateway));
        let rows: Vec<[String; 5]> = gateway.routes.iter().map(|route| route_row(route, endpoints)).collect();
        table(&mut out, ["ROUTE", "METHODS", "STRATEGY", "ATTEMPTS", "TARGETS"], &rows);
    }
    let tracked: Vec<String> = snapshot.networks.iter().filter_map(|network| tracked_line(network, snapshot)).collect();
    if !tracked.is_empty() {
        let _ = writeln!(out, "\n{}", tracked.join("\n"));
    }
    let _ = writeln!(out);
    let rows: Vec<[String; 5]> =
        endpoints.iter().zip(0..).map(|(endpoint, at)| endpoint_row(endpoint, at, gateways)).collect();
    table(&mut out, ["ENDPOINT", "CHAIN", "NETWORK", "ENABLED", "ROUTES"], &rows);
    out
}

fn gateway_line(gateway: &Gateway) -> String {
    let family = match (gateway.protocol, gateway.family) {
        (Protocol::TronHttp, _) => "tron-http",
        (Protocol::JsonRpc, Family::Evm) => "evm",
        (Protocol::JsonRpc, Family::Tron) => "tron",
        (Protocol::JsonRpc, Family::Solana) => "solana",
    };
    let Gateway { id, path, chain, network, hosts, .. } = gateway;
    let hosts = if hosts.is_empty() { String::new() } else { format!(" for {}", hosts.join(", ")) };
    format!("gateway  {id} at {path}{hosts}: {chain} {network} ({family})")
}

/// Which Endpoints of a chain are asked for their newest block, and what follows from it; `None` = none.
fn tracked_line(facts: &Network, snapshot: &Snapshot) -> Option<String> {
    let of_chain = |of: &&Gateway| of.chain == facts.chain && of.network == facts.network;
    let gateways = snapshot.gateways.iter().filter(of_chain);
    let tiered = gateways.flat_map(|of| &of.routes).filter(|route| route.strategy == Strategy::Tiered);
    let used = tiered.flat_map(|route| route.targets.iter().zip(0..).filter(|(_, at)| is_used(route, *at)));
    let endpoints: HashSet<u16> = used.map(|(target, _)| target.endpoint.0).collect();
    let Network { chain, network, chain_id, poll_interval_ns, max_lag, .. } = facts;
    let ids = if endpoints.len() == 1 { "1 Endpoint".to_owned() } else { format!("{} Endpoints", endpoints.len()) };
    let id = chain_id.map_or_else(|| "any chain id".to_owned(), |id| format!("chain id {id}"));
    let every = show_duration(*poll_interval_ns);
    (!endpoints.is_empty())
        .then(|| format!("tracked  {chain} {network}: {ids} every {every}, lagging above {max_lag} blocks, {id}"))
}

fn is_used(route: &Route, at: u32) -> bool {
    route.eligible.checked_shr(at).unwrap_or(0) & 1 == 1
}

fn route_row(route: &Route, endpoints: &[Endpoint]) -> [String; 5] {
    let of = |target: &Target| endpoints.get(usize::from(target.endpoint.0));
    let shown = |(target, at): (&Target, u32)| {
        let id = of(target).map_or("?", |endpoint| &endpoint.id);
        let weight = if route.strategy == Strategy::Priority { String::new() } else { format!(":{}", target.weight) };
        let dropped = if is_used(route, at) { "" } else { " (unused)" };
        format!("{id}{weight}{dropped}")
    };
    let list = |tier: Option<Tier>| -> Vec<String> {
        let targets = route.targets.iter().zip(0..);
        targets.filter(|(target, _)| tier.is_none() || of(target).map(|of| of.tier) == tier).map(shown).collect()
    };
    let targets = if route.strategy == Strategy::Tiered {
        let tiers = Tier::ALL.into_iter().map(|tier| (tier, list(Some(tier)).join(", ")));
        let tiers = tiers.filter(|(_, targets)| !targets.is_empty());
        tiers.map(|(tier, targets)| format!("{}: {targets}", tier.word())).collect::<Vec<_>>().join("; ")
    } else {
        list(None).join(", ")
    };
    let methods = if route.methods.is_empty() { "all other".to_owned() } else { route.methods.len().to_string() };
    let attempts = format!("{} x {}", route.max_attempts, show_duration(route.attempt_timeout_ns));
    [route.id.to_string(), methods, route.strategy.word().to_owned(), attempts, targets]
}

fn endpoint_row(endpoint: &Endpoint, at: u16, gateways: &[Gateway]) -> [String; 5] {
    let routes = gateways.iter().flat_map(|gateway| &gateway.routes);
    let used = routes.filter(|route| route.targets.iter().any(|target| target.endpoint.0 == at)).count();
    let enabled = if endpoint.enabled { "yes" } else { "no" };
    let Endpoint { id, chain, network, .. } = endpoint;
    [id.to_string(), chain.to_string(), network.to_string(), enabled.to_owned(), used.to_string()]
}

fn table(out: &mut String, head: [&str; 5], rows: &[[String; 5]]) {
    let head = head.map(str::to_owned);
    let mut widths = [0; 5];
    for row in rows.iter().chain([&head]) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.len());
        }
    }
    for row in [&head].into_iter().chain(rows) {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        let _ = writeln!(out, "  {}", cells.join("  ").trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::super::resolve::probe::{sound, with};
    use super::*;

    #[test]
    fn a_table_of_ids() {
        let text = with("enabled = true", "enabled = false").replace("shards = 2", "admin_token = \"${KEY}\"");
        let expected = "\
listen   127.0.0.1:8545
admin    127.0.0.1:9545 (with a token)

gateway  eth at /eth: ethereum mainnet (evm)
  ROUTE    METHODS    STRATEGY  ATTEMPTS  TARGETS
  default  all other  priority  3 x 10s   geth-1 (unused), geth-2
  heavy    2          weighted  3 x 10s   erigon:3, geth-2:1

  ENDPOINT  CHAIN     NETWORK  ENABLED  ROUTES
  geth-1    ethereum  mainnet  no       1
  geth-2    ethereum  mainnet  yes      2
  erigon    ethereum  mainnet  yes      1
";
        assert_eq!(summary(&sound(&text)), expected);
    }

    #[test]
    fn tiers_and_what_is_tracked() {
        let text =
            include_str!("../../config/fleet.toml").replace("\"geth-1\",", "{ endpoint = \"geth-1\", weight = 0 },");
        let told = summary(&sound(&text));
        let expected = "\
gateway  eth at /eth: ethereum mainnet (evm)
  ROUTE    METHODS    STRATEGY  ATTEMPTS  TARGETS
  default  all other  tiered    3 x 10s   minimal: minimal-1:3, minimal-2:1; full: geth-1:0 (unused), nethermind-1:1; archive: erigon-1:1, reth-1:1
  traces   4          tiered    2 x 1m    archive: erigon-1:2, reth-1:1

tracked  ethereum mainnet: 5 Endpoints every 1s, lagging above 2 blocks, chain id 1

  ENDPOINT      CHAIN     NETWORK  ENABLED  ROUTES
";
        assert!(told.contains(expected), "{told}");
        let one = with("\"weighted\"", "\"tiered\"")
            .replace("ethereum", "acme")
            .replace(", { endpoint = \"geth-2\", weight = 1 }", "");
        let told = summary(&sound(&one));
        assert!(
            told.contains("\ntracked  acme mainnet: 1 Endpoint every 1s, lagging above 2 blocks, any chain id\n"),
            "{told}"
        );
    }

    #[test]
    fn the_http_api_of_tron_is_told_from_its_json_rpc() {
        let text = include_str!("../../config/tron.toml").replace("${TRON_KEY}", "k");
        let told = summary(&sound(&text));
        assert!(told.contains("gateway  tron at /tron: tron mainnet (tron-http)\n"), "{told}");
        assert!(told.contains("gateway  tron-rpc at /tron-rpc: tron mainnet (tron)\n"), "{told}");
    }
}
