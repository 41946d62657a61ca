//! What is counted: each shard writes its own cells, people read the sums.
//!
//! A cell has one writer, so adding is a load and a store on a line that nobody else writes.

use crate::logic::fault::{Outcome, Reason};
use crate::logic::methods::MethodId;
use crate::logic::snapshot::Tier;
use crate::logic::tiers::{Cause, Served};
use crate::logic::units::{MS, Nanos, SECOND};
use crate::shared::atomics::{AtomicU64, Relaxed};
use crate::shared::unlisted::Unlisted;
use crossbeam_utils::CachePadded;
use std::sync::Arc;
use std::sync::OnceLock;

/// A counter or gauge with a single writer.
#[derive(Debug, Default)]
pub struct Cell(AtomicU64);

impl Cell {
    /// Adds; only the owning shard may.
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }
    /// Takes away; only the owning shard may.
    pub fn sub(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(n), Relaxed);
    }
    /// Replaces; only the owning shard may.
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }
    /// The value as of now.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Upper bounds of the duration buckets in ns: 5 µs to 2 min.
pub const BUCKETS_NS: [Nanos; 23] = [
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    MS,
    2_500_000,
    5 * MS,
    10 * MS,
    25 * MS,
    50 * MS,
    100 * MS,
    250 * MS,
    500 * MS,
    SECOND,
    2_500 * MS,
    5 * SECOND,
    10 * SECOND,
    30 * SECOND,
    60 * SECOND,
    120 * SECOND,
];

/// A histogram of durations with a single writer.
#[derive(Debug, Default)]
pub struct Durations {
    buckets: [Cell; BUCKETS_NS.len() + 1],
    sum_ns: Cell,
}

impl Durations {
    /// Counts one duration.
    pub fn note(&self, ns: Nanos) {
        self.buckets[BUCKETS_NS.partition_point(|bound| *bound < ns)].add(1);
        self.sum_ns.add(ns);
    }
    /// Adds this shard's counts to a sum.
    pub fn sum_into(&self, sum: &mut DurationSum) {
        for (cell, total) in self.buckets.iter().zip(&mut sum.buckets) {
            *total += cell.get();
        }
        sum.sum_ns += self.sum_ns.get();
    }
}

/// A histogram summed over shards.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DurationSum {
    /// Not cumulative; the last one is over all bounds.
    pub buckets: [u64; BUCKETS_NS.len() + 1],
    /// Sum of all durations.
    pub sum_ns: u64,
}

/// Counts of one method on one Route.
#[derive(Debug, Default)]
pub struct MethodCells {
    outcomes: [Cell; Outcome::ALL.len()],
    /// By the tier that served.
    tiers: [Cell; Tier::ALL.len()],
}

impl MethodCells {
    /// The count of an outcome.
    pub fn get(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize].get()
    }
    /// Calls that a tier served, on a tiered Route.
    pub fn served_by(&self, tier: Tier) -> u64 {
        self.tiers[tier as usize].get()
    }
}

/// Counts of a tiered Route.
#[derive(Debug, Default)]
pub struct TierCells {
    /// From tier, to tier, by cause.
    fallbacks: [[[Cell; Cause::ALL.len()]; Tier::ALL.len()]; Tier::ALL.len()],
    /// Answers that contradict the chain, and went out because nobody had a better one.
    pub unresolved: Cell,
}

impl TierCells {
    /// How often a tier served in place of another, for this cause.
    pub fn fallbacks(&self, from: Tier, to: Tier, cause: Cause) -> u64 {
        self.fallbacks[from as usize][to as usize][cause as usize].get()
    }
}

/// One shard's counts of one Route (or of the Calls of a Gateway that reached none).
#[derive(Debug)]
pub struct RouteCells {
    /// Each row on lines of its own, whatever the allocator puts beside it.
    methods: Box<[OnceLock<Box<CachePadded<MethodCells>>>]>,
    tiers: OnceLock<Box<CachePadded<TierCells>>>,
    /// From the Call's last byte in to its answer's first byte out.
    pub durations: Durations,
}

impl RouteCells {
    fn new(methods: usize) -> RouteCells {
        let methods = (0..methods).map(|_| OnceLock::new()).collect();
        RouteCells { methods, tiers: OnceLock::new(), durations: Durations::default() }
    }
    /// Counts one Call. The first Call of a method makes its row; later ones allocate nothing.
    pub fn called(&self, method: MethodId, outcome: Outcome, took_ns: Nanos) {
        if let Some(row) = self.methods.get(usize::from(method.0)) {
            row.get_or_init(Box::default).outcomes[outcome as usize].add(1);
        }
        self.durations.note(took_ns);
    }
    /// Counts which tier served a Call.
    pub fn served(&self, method: MethodId, served: Served) {
        if let Some(row) = self.methods.get(usize::from(method.0)) {
            row.get_or_init(Box::default).tiers[served.tier as usize].add(1);
        }
        if served.instead_of.is_none() && !served.unresolved {
            return;
        }
        let cells = self.tiers.get_or_init(Box::default);
        if let Some((from, cause)) = served.instead_of {
            cells.fallbacks[from as usize][served.tier as usize][cause as usize].add(1);
        }
        cells.unresolved.add(u64::from(served.unresolved));
    }
    /// What is counted of a tiered Route, once there is something.
    pub fn tiers(&self) -> Option<&TierCells> {
        self.tiers.get().map(|cells| &***cells)
    }
    /// The row of a method, if it was ever called.
    pub fn method(&self, method: MethodId) -> Option<&MethodCells> {
        self.methods.get(usize::from(method.0))?.get().map(|row| &***row)
    }
}

/// TLS handshakes of one side.
#[derive(Debug, Default)]
pub struct Handshakes {
    /// With certificates and all.
    pub full: Cell,
    /// Shortened by a ticket.
    pub resumed: Cell,
    /// That came to nothing.
    pub failed: Cell,
}

impl Handshakes {
    /// Counts one that was made.
    pub fn made(&self, resumed: bool) {
        if resumed { self.resumed.add(1) } else { self.full.add(1) }
    }
}

/// One shard's counts of one Endpoint.
#[derive(Debug, Default)]
pub struct EndpointCells {
    ok: Cell,
    failed: [Cell; Reason::ALL.len()],
    /// Answers that were not delivered at once although they would be final, by cause.
    objections: [Cell; Cause::ALL.len()],
    /// From the attempt's start to its last byte or its failure.
    pub durations: Durations,
    /// Connections that are open now.
    pub connections: Cell,
    /// Connections that were opened.
    pub connected: Cell,
    /// TLS handshakes with it.
    pub handshakes: Handshakes,
    /// Pooled connections that turned out dead and were replaced within the attempt.
    pub replaced: Cell,
    /// Look-ups of a transaction that found it.
    pub found: Cell,
    /// Look-ups that did not, whatever the reason.
    pub not_found: Cell,
}

impl EndpointCells {
    /// Counts one attempt that brought an answer for the caller.
    pub fn answered(&self, took_ns: Nanos) {
        self.ok.add(1);
        self.durations.note(took_ns);
    }
    /// Counts one attempt that failed.
    pub fn failed(&self, reason: Reason, took_ns: Nanos) {
        self.failed[reason as usize].add(1);
        self.durations.note(took_ns);
    }
    /// Counts an answer that was not delivered at once, besides as one that was brought.
    pub fn objected(&self, cause: Cause) {
        self.objections[cause as usize].add(1);
    }
    /// Such answers.
    pub fn objections(&self, cause: Cause) -> u64 {
        self.objections[cause as usize].get()
    }
    /// Attempts that brought an answer for the caller.
    pub fn ok_count(&self) -> u64 {
        self.ok.get()
    }
    /// Attempts that failed so.
    pub fn failed_count(&self, reason: Reason) -> u64 {
        self.failed[reason as usize].get()
    }
}

/// One shard's counts that belong to no Route and no Endpoint.
#[derive(Debug, Default)]
pub struct ShardCells {
    /// Client connections that are open now.
    pub clients: Cell,
    /// Client connections that were accepted.
    pub accepted: Cell,
    /// TLS handshakes with clients.
    pub handshakes: Handshakes,
    /// Connections of trusted proxies that did not begin with a PROXY header that can be read.
    pub proxy_refused: Cell,
    /// HTTP requests that never became a Call, by status class: see [`ShardCells::refused`].
    refused: [Cell; REFUSED.len()],
    /// Tasks that panicked (each cost its connection, and is a bug).
    pub panics: Cell,
    /// Calls in flight now.
    pub inflight: Cell,
    /// 1 while this shard accepts.
    pub accepting: Cell,
}

/// The HTTP statuses of requests that never became a Call.
pub const REFUSED: [u16; 9] = [400, 404, 405, 408, 413, 415, 417, 431, 505];

impl ShardCells {
    /// Counts an HTTP request that never became a Call.
    pub fn refused(&self, status: u16) {
        if let Some(at) = REFUSED.iter().position(|known| *known == status) {
            self.refused[at].add(1);
        }
    }
    /// How many were refused with this status.
    pub fn refused_count(&self, status: u16) -> u64 {
        REFUSED.iter().position(|known| *known == status).map_or(0, |at| self.refused[at].get())
    }
}

/// Counts of look-ups of host names; the thread that looks up is their one writer.
#[derive(Debug, Default)]
pub struct NameCells {
    /// Look-ups that brought addresses.
    pub ok: Cell,
    /// Look-ups that brought none, whatever the reason.
    pub failed: Cell,
}

/// One thing's cells for each shard, each on lines of its own.
pub type PerShard<T> = Box<[CachePadded<T>]>;

/// All counters of one Snapshot. What a reload keeps (by its id) keeps counting.
#[derive(Debug)]
pub struct Counters {
    /// By Gateway, by Route; one more at the end of each Gateway for Calls that reached no Route.
    pub routes: Vec<Vec<Arc<PerShard<RouteCells>>>>,
    /// By Endpoint.
    pub endpoints: Vec<Arc<PerShard<EndpointCells>>>,
    /// Of the process.
    pub names: Arc<NameCells>,
    /// By shard.
    pub shards: Arc<PerShard<ShardCells>>,
    /// By shard: the names that no table has.
    pub unlisted: Arc<PerShard<Unlisted>>,
}

/// Fresh cells of a Route with so many method ids.
pub fn route_cells(shards: usize, methods: usize) -> Arc<PerShard<RouteCells>> {
    Arc::new(per_shard(shards, || RouteCells::new(methods)))
}

/// Fresh cells of an Endpoint.
pub fn endpoint_cells(shards: usize) -> Arc<PerShard<EndpointCells>> {
    Arc::new(per_shard(shards, EndpointCells::default))
}

/// Fresh cells of the process.
pub fn shard_cells(shards: usize) -> Arc<PerShard<ShardCells>> {
    Arc::new(per_shard(shards, ShardCells::default))
}

fn per_shard<T>(shards: usize, new: impl Fn() -> T) -> PerShard<T> {
    (0..shards).map(|_| CachePadded::new(new())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_the_bucket_whose_bound_they_do_not_pass() {
        let durations = Durations::default();
        for ns in [0, 5_000, 5_001, SECOND, 120 * SECOND, 120 * SECOND + 1] {
            durations.note(ns);
        }
        let mut sum = DurationSum::default();
        durations.sum_into(&mut sum);
        durations.sum_into(&mut sum);
        assert_eq!(
            (sum.buckets[0], sum.buckets[1], sum.buckets[16], sum.buckets[22], sum.buckets[23]),
            (4, 2, 2, 2, 2)
        );
        assert_eq!(sum.sum_ns, 2 * (10_001 + SECOND + 240 * SECOND + 1));
    }

    #[test]
    fn each_outcome_has_its_own_cell() {
        for (at, outcome) in Outcome::ALL.iter().enumerate() {
            assert_eq!(*outcome as usize, at);
        }
        for (at, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, at);
        }
        let cells = route_cells(2, 3);
        cells[0].called(MethodId(2), Outcome::NodeError, 7);
        let row = cells[0].method(MethodId(2)).unwrap();
        assert_eq!((row.get(Outcome::NodeError), row.get(Outcome::Ok)), (1, 0));
        assert!(cells[1].method(MethodId(2)).is_none());
    }
}
