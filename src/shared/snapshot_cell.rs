//! What is live now: one Snapshot with its Circuits and counters, swapped whole.

use crate::logic::methods::MethodId;
use crate::logic::snapshot::Snapshot;
use crate::shared::circuit_board::CircuitBoard;
use crate::shared::counters::Counters;
use arc_swap::ArcSwap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// A Snapshot and everything that is indexed by it.
#[derive(Debug)]
pub struct Live {
    /// The configuration.
    pub snapshot: Snapshot,
    /// Addresses of each Endpoint, resolved before the shards see them; empty = the name is unknown.
    pub addresses: Vec<Vec<SocketAddr>>,
    /// The Circuits.
    pub board: CircuitBoard,
    /// The counters.
    pub counters: Counters,
}

impl Live {
    /// Puts a Snapshot to work.
    pub fn new(snapshot: Snapshot, addresses: Vec<Vec<SocketAddr>>, shards: usize) -> Live {
        let gateways: Vec<(usize, usize)> =
            snapshot.gateways.iter().map(|gateway| (gateway.routes.len(), gateway.listed.len())).collect();
        let board = CircuitBoard::new(snapshot.endpoints.iter().map(|endpoint| endpoint.circuit), shards);
        let counters = Counters::new(shards, &gateways, snapshot.endpoints.len());
        Live { snapshot, addresses, board, counters }
    }

    /// All method ids of a Gateway, `other` included.
    pub fn method_ids(&self, gateway: usize) -> impl Iterator<Item = MethodId> + use<> {
        (0..self.snapshot.gateways[gateway].listed.len() as u16).map(MethodId)
    }
}

/// The cell that all shards and all people read.
pub type SnapshotCell = ArcSwap<Live>;

/// How far the process is on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Serving.
    Running,
    /// Still accepting; readiness already says no.
    Leaving,
    /// No new connections; each one ends after its next answer.
    Draining,
}

/// What the signal thread tells the shards. They look at it once a tick.
#[derive(Debug, Default)]
pub struct Lifecycle(AtomicU8);

impl Lifecycle {
    /// The phase as of now.
    pub fn phase(&self) -> Phase {
        match self.0.load(Relaxed) {
            0 => Phase::Running,
            1 => Phase::Leaving,
            _ => Phase::Draining,
        }
    }
    /// Goes on to a later phase.
    pub fn advance(&self, phase: Phase) {
        self.0.fetch_max(phase as u8, Relaxed);
    }
}

/// Everything that shards and people share.
#[derive(Debug)]
pub struct World {
    /// What is live.
    pub live: SnapshotCell,
    /// How far the process is on its way out.
    pub lifecycle: Lifecycle,
    /// How many shards there are.
    pub shards: usize,
}

impl World {
    /// A world that serves `live`.
    pub fn new(live: Live, shards: usize) -> Arc<World> {
        Arc::new(World { live: ArcSwap::from_pointee(live), lifecycle: Lifecycle::default(), shards })
    }
}
