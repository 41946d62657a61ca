//! Which nodes the demo simulates: three clients, three tiers, different latencies.

use crate::logic::snapshot::Tier;
use std::time::Duration;

/// What is known of a simulated node before it runs.
#[derive(Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its Endpoint id.
    pub id: &'static str,
    /// What `web3_clientVersion` says; the word `simulated` keeps anybody from taking it for a real one.
    pub client: &'static str,
    /// What it would cost.
    pub tier: Tier,
    /// Of so many of the newest blocks it has the state; `u64::MAX` = of all.
    pub state_blocks: u64,
    /// Of so many it has bodies, receipts and logs.
    pub history_blocks: u64,
    /// How long it takes over an answer.
    pub latency: Duration,
}

/// All nodes, the cheapest first.
pub const NODES: [Facts; 3] = [
    Facts {
        id: "geth-1",
        client: "Geth/v1.15.11-simulated/linux-amd64/go1.24.2",
        tier: Tier::Minimal,
        state_blocks: 128,
        history_blocks: 1_000,
        latency: Duration::from_millis(1),
    },
    Facts {
        id: "reth-1",
        client: "reth/v1.4.8-simulated/x86_64-unknown-linux-gnu",
        tier: Tier::Full,
        state_blocks: 10_000,
        history_blocks: u64::MAX,
        latency: Duration::from_millis(2),
    },
    Facts {
        id: "erigon-1",
        client: "erigon/3.0.4-simulated/linux-amd64/go1.24.2",
        tier: Tier::Archive,
        state_blocks: u64::MAX,
        history_blocks: u64::MAX,
        latency: Duration::from_millis(4),
    },
];

/// A node if there is one with this name.
pub fn known(name: &str) -> Option<&'static Facts> {
    NODES.iter().find(|node| node.id == name)
}
