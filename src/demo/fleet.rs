//! Which nodes the demo simulates: three clients, three tiers, different latencies.

use std::time::Duration;

/// What is known of a simulated node before it runs.
#[derive(Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its Endpoint id.
    pub id: &'static str,
    /// What `web3_clientVersion` says; the word `simulated` keeps anybody from taking it for a real one.
    pub client: &'static str,
    /// How much it would hold and cost.
    pub tier: &'static str,
    /// How long it takes over an answer.
    pub latency: Duration,
}

/// All nodes, in the order of the default Route.
pub const NODES: [Facts; 3] = [
    Facts {
        id: "geth-1",
        client: "Geth/v1.15.11-simulated/linux-amd64/go1.24.2",
        tier: "minimal",
        latency: Duration::from_millis(1),
    },
    Facts {
        id: "reth-1",
        client: "reth/v1.4.8-simulated/x86_64-unknown-linux-gnu",
        tier: "full",
        latency: Duration::from_millis(2),
    },
    Facts {
        id: "erigon-1",
        client: "erigon/3.0.4-simulated/linux-amd64/go1.24.2",
        tier: "archive",
        latency: Duration::from_millis(4),
    },
];

/// The id of a node if there is one with this name.
pub fn known(name: &str) -> Option<&'static Facts> {
    NODES.iter().find(|node| node.id == name)
}
