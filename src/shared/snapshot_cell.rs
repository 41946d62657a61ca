//! What is live now: one Snapshot with its Circuits and counters, swapped whole.

use crate::logic::methods::MethodId;
use crate::logic::snapshot::{Endpoint, EndpointIx, Gateway, Snapshot};
use crate::shared::atomics::{AtomicU64, Relaxed};
use crate::shared::circuit_board::{Circuit, CircuitBoard, Entry};
use crate::shared::counters::{self, Counters, PerShard, RouteCells};
use crate::shared::memory::Memory;
use crate::shared::tip_board::TipBoard;
use crate::shared::unlisted;
use arc_swap::ArcSwap;
use rustls::ServerConfig;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// A Snapshot and everything that is indexed by it.
#[derive(Debug)]
pub struct Live {
    /// The configuration.
    pub snapshot: Arc<Snapshot>,
    /// Addresses of each Endpoint in a stable order, looked up off the shards; empty = the name is unknown.
    pub addresses: Vec<Vec<SocketAddr>>,
    /// TLS towards callers, if it is on: one for all shards, so that each takes up the sessions of the others.
    pub tls: Option<Arc<ServerConfig>>,
    /// The Circuits.
    pub board: CircuitBoard,
    /// What trackers know.
    pub tips: TipBoard,
    /// The counters.
    pub counters: Counters,
}

impl Live {
    /// Puts a Snapshot to work. What `before` had and the new one keeps goes on: counters of Routes and
    /// Endpoints with the same ids, budgets too, and Circuits of Endpoints that are still at the same host and port.
    pub fn new(
        snapshot: impl Into<Arc<Snapshot>>,
        addresses: Vec<Vec<SocketAddr>>,
        shards: usize,
        before: Option<&Live>,
    ) -> Live {
        let snapshot = snapshot.into();
        let kept = snapshot.endpoints.iter().map(|endpoint| before.and_then(|before| before.endpoint(&endpoint.id)));
        let kept: Vec<Option<(usize, &Live)>> = kept.map(|at| at.zip(before)).collect();
        let journal = before.map_or_else(Arc::default, |before| before.board.journal().clone());
        let entries = snapshot.endpoints.iter().zip(&kept).map(|(endpoint, kept)| {
            let same_place = |old: &Endpoint| old.url.host == endpoint.url.host && old.url.port == endpoint.url.port;
            let old = kept.filter(|(at, before)| same_place(&before.snapshot.endpoints[*at]));
            let circuit = old.and_then(|(at, before)| before.board.circuit(EndpointIx(at as u16)));
            let circuit = circuit.unwrap_or_else(|| Circuit::closed(&endpoint.id, shards, journal.clone()));
            let budget = kept.and_then(|(at, before)| before.board.budget(EndpointIx(at as u16)));
            Entry::new(endpoint.circuit, endpoint.budget, circuit, budget.unwrap_or_default())
        });
        let board = CircuitBoard::new(entries.collect::<Vec<_>>(), journal);
        let endpoints = kept.iter().map(|kept| match kept {
            Some((at, before)) => before.counters.endpoints[*at].clone(),
            None => counters::endpoint_cells(shards),
        });
        let counters = Counters {
            routes: snapshot.gateways.iter().map(|gateway| route_cells(&snapshot, gateway, shards, before)).collect(),
            endpoints: endpoints.collect(),
            names: before.map_or_else(Arc::default, |before| before.counters.names.clone()),
            shards: before.map_or_else(|| counters::shard_cells(shards), |before| before.counters.shards.clone()),
            unlisted: before
                .map_or_else(|| Arc::new(unlisted::per_shard(shards)), |before| before.counters.unlisted.clone()),
        };
        let tls = before.and_then(|before| before.tls.clone());
        let tips = TipBoard::new(&snapshot, before.map(|before| (&*before.snapshot, &before.tips)));
        Live { snapshot, addresses, tls, board, tips, counters }
    }

    /// Where an Endpoint with this id is.
    pub fn endpoint(&self, id: &str) -> Option<usize> {
        self.snapshot.endpoints.iter().position(|endpoint| *endpoint.id == *id)
    }

    /// All method ids of a Gateway, `other` included.
    pub fn method_ids(&self, gateway: usize) -> impl Iterator<Item = MethodId> + use<> {
        (0..self.snapshot.gateways[gateway].listed.len() as u16).map(MethodId)
    }
}

/// The cells of a Gateway's Routes, and of the Calls that reached none.
fn route_cells(
    snapshot: &Snapshot,
    gateway: &Gateway,
    shards: usize,
    before: Option<&Live>,
) -> Vec<Arc<PerShard<RouteCells>>> {
    let old = before.and_then(|before| {
        let same = |old: &Gateway| old.id == gateway.id && old.family == gateway.family;
        let at = before.snapshot.gateways.iter().position(same)?;
        // Rows are counted by their place: with a method of one's own more or less they would be mixed up.
        let table = gateway.table(&snapshot.methods);
        if !table.has_the_rows_of(before.snapshot.gateways[at].table(&before.snapshot.methods)) {
            return None;
        }
        Some((&before.snapshot.gateways[at], &before.counters.routes[at]))
    });
    let fresh = || counters::route_cells(shards, gateway.listed.len());
    let of_route = |id: &str| {
        let (old, cells) = old?;
        let at = old.routes.iter().position(|route| *route.id == *id)?;
        Some(cells[at].clone())
    };
    let routes = gateway.routes.iter().map(|route| of_route(&route.id).unwrap_or_else(fresh));
    let none = old.and_then(|(_, cells)| cells.last().cloned()).unwrap_or_else(fresh);
    routes.chain([none]).collect()
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
pub struct Lifecycle(AtomicU64);

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
        self.0.fetch_max(phase as u64, Relaxed);
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
    /// What large bodies take.
    pub memory: Memory,
    changing: Mutex<()>,
}

impl World {
    /// A world that serves `live`.
    pub fn new(live: Live, shards: usize) -> Arc<World> {
        Arc::new(World {
            live: ArcSwap::from_pointee(live),
            lifecycle: Lifecycle::default(),
            shards,
            memory: Memory::new(shards),
            changing: Mutex::default(),
        })
    }

    /// Puts in place what `next` makes of what is live; with `None` nothing changes. One at a time, so that a
    /// reload and new addresses never undo each other. Says whether anything changed.
    pub fn change(&self, next: impl FnOnce(&Live) -> Option<Live>) -> bool {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let next = next(&self.live.load());
        let changed = next.is_some();
        if let Some(next) = next {
            self.live.store(Arc::new(next));
        }
        changed
    }
}
