//! The configuration of the demo: a text like any other, read and started like any other.

use super::chain::{BLOCK_TIME_S, CHAIN_ID};
use super::fleet::{Facts, NODES};
use crate::boot::Failure;
use crate::config::resolve::resolve;
use crate::logic::snapshot::{Snapshot, Tier};
use std::fmt::Write;
use std::net::SocketAddr;

/// The method of the weighted Route.
pub const LOGS: &str = "eth_getLogs";
/// Its nodes, which have all logs, and their shares.
pub const SHARES: [(&str, u16); 2] = [("reth-1", 2), ("erigon-1", 1)];
/// The method of the priority Route.
pub const SEND: &str = "eth_sendRawTransaction";

/// What the text depends on.
pub struct Places<'p> {
    /// Port of the Gateway.
    pub port: u16,
    /// Port of metrics and health.
    pub admin_port: u16,
    /// `auto`, `io_uring` or `epoll`.
    pub driver: &'p str,
    /// Where the nodes listen.
    pub nodes: &'p [SocketAddr],
}

/// The text.
pub fn text(places: &Places<'_>) -> String {
    let Places { port, admin_port, driver, nodes } = places;
    let mut out = format!(
        "\
[server]
listen = [\"127.0.0.1:{port}\"]     # where callers come
admin = \"127.0.0.1:{admin_port}\"        # /metrics, /readyz, /healthz, /v1/explain
driver = \"{driver}\"
shards = 2                       # plenty for a demo; left out, it is one per CPU
max_connections = 1000           # of callers

[log]
level = \"error\"                  # the rest is told by the demo itself; warn for your own

[circuit]                        # quick to open and to close, so that it can be watched
consecutive_failures = 3
cooldown = \"3s\"
max_cooldown = \"6s\"

[[network]]                      # what tiered Routes go by; of public chains it is known and can be left out
chain = \"ethereum\"
network = \"demo\"
chain_id = {CHAIN_ID}                  # a node of another chain is never asked
block_time = \"{BLOCK_TIME_S}s\"
poll_interval = \"1s\"             # each node is asked for its newest block so often
max_lag = 1                      # more blocks behind the best: asked last, until it has caught up

"
    );
    for (node, address) in NODES.iter().zip(*nodes) {
        endpoint(&mut out, node, *address);
    }
    let _ = writeln!(
        out,
        "\
[[gateway]]                      # POST http://127.0.0.1:{port}/eth
id = \"eth\"
path = \"/eth\"
chain = \"ethereum\"
network = \"demo\"
"
    );
    routes(&mut out);
    out
}

fn endpoint(out: &mut String, node: &Facts, address: SocketAddr) {
    let _ = writeln!(
        out,
        "[[endpoint]]\nid = \"{}\"\nchain = \"ethereum\"\nnetwork = \"demo\"\nurl = \"http://{address}\"\nmax_connections = 64",
        node.id
    );
    let what = match node.tier {
        Tier::Minimal => "the cheapest is asked first",
        Tier::Full => "asked for what the cheaper ones lack",
        Tier::Archive => "has everything since the first block",
    };
    let _ = writeln!(out, "{:<33}# {what}", format!("tier = \"{}\"", node.tier.word()));
    for (name, blocks, what) in [
        ("state_blocks", node.state_blocks, "balances, calls and traces at so many newest blocks"),
        ("history_blocks", node.history_blocks, "bodies, receipts and logs of so many"),
    ] {
        if blocks != u64::MAX {
            let _ = writeln!(out, "{:<33}# {what}", format!("{name} = {blocks}"));
        }
    }
    out.push('\n');
}

fn routes(out: &mut String) {
    let ids = NODES.map(|node| format!("\"{}\"", node.id)).join(", ");
    let shares = SHARES.map(|(id, weight)| format!("{{ endpoint = \"{id}\", weight = {weight} }}")).join(", ");
    let _ = write!(
        out,
        "\
[[gateway.route]]                # all else: the cheapest node that has what a Call asks for and is up to date
id = \"default\"
strategy = \"tiered\"
targets = [{ids}]
attempt_timeout = \"1s\"

[[gateway.route]]                # at random by weight, between those that have all logs
id = \"logs\"
methods = [\"{LOGS}\"]
strategy = \"weighted\"
targets = [{shares}]
attempt_timeout = \"1s\"

[[gateway.route]]                # always the first one, and the next only where it can't
id = \"send\"
methods = [\"{SEND}\"]
strategy = \"priority\"
targets = [{ids}]
attempt_timeout = \"1s\"
"
    );
}

/// The text for somebody who wants to start from it.
pub fn example() -> String {
    let nodes = [18_541, 18_542, 18_543].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let places = Places { port: 8545, admin_port: 9545, driver: "auto", nodes: &nodes };
    format!(
        "\
# What `ringway demo` runs on. To start from it: save it as ringway.toml and give each [[endpoint]] the url of
# a node of yours (the demo's own nodes listen on free ports, chosen anew each time).
# Judge it:  ringway check ringway.toml
# Serve it:  ringway serve --config ringway.toml

{}",
        text(&places)
    )
}

/// What the text means.
///
/// # Errors
/// If something is wrong with it.
pub fn snapshot(text: &str) -> Result<Snapshot, Failure> {
    let resolved = resolve(text, &|_| None);
    let faults: Vec<String> = resolved.faults.iter().map(|fault| fault.shown("demo").to_string()).collect();
    resolved.snapshot.ok_or_else(|| Failure(faults.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_taken_without_a_word() {
        let resolved = resolve(&example(), &|_| None);
        assert_eq!(resolved.faults, []);
        let snapshot = resolved.snapshot.unwrap();
        assert_eq!(snapshot.endpoints.len(), NODES.len());
        assert_eq!(snapshot.gateways[0].routes.len(), 3);
    }

    #[test]
    fn a_fault_in_it_is_told() {
        let Err(failure) = snapshot("[server]\nlisten = [\"nowhere\"]\n") else { panic!("taken") };
        assert!(failure.0.contains("demo:2:"), "{}", failure.0);
    }
}
