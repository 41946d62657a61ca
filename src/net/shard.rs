//! One shard: a thread with its own ring, listeners, pools, buffers and counters. It shares nothing that
//! is written on the path of a Call.

use crate::logic::routing::Entrances;
use crate::logic::snapshot::Server;
use crate::logic::units::{MS, Nanos, SECOND};
use crate::net::buffers::Buffers;
use crate::net::client_http;
use crate::net::link::ClientTls;
use crate::net::pool::Pool;
use crate::net::ring::{self, Cut, Listener, Ring, Watch};
use crate::net::tracker::Trackers;
use crate::net::upstream;
use crate::net::warm::keep_warm;
use crate::shared::counters::{EndpointCells, ShardCells};
use crate::shared::snapshot_cell::{Live, Phase, World};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// Idle connections looked at per pool and sweep.
const SWEEP_MOST: usize = 64;

/// So long a draining shard waits for the next request of an idle connection, whose answer tells the client
/// that the connection ends. Closed at once, it would lose the request of a busy client that is on its way.
pub const LAST_REQUEST_NS: Nanos = SECOND;

/// So long a draining shard still accepts, without new handshakes: who was promised a connection gets one.
const SETTLE_NS: Nanos = 50 * MS;
/// So long more if somebody still waits in a queue: a shard that had no time meanwhile has seen nobody yet.
const QUEUE_MAX_NS: Nanos = SECOND;

/// How far a shard's listeners are on their way out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Door {
    Open,
    /// No new handshakes; what is in the queue is accepted.
    Closing {
        until_ns: Nanos,
    },
    /// Cut in this tick: an accept that had succeeded may not have been seen yet.
    Cut,
    Closed,
}

/// What one shard owns.
pub struct Shard {
    /// Which one it is.
    pub index: usize,
    /// What it shares with the others.
    pub world: Arc<World>,
    /// Free buffers.
    pub buffers: Buffers,
    /// Calls in flight.
    pub inflight: Cell<usize>,
    door: Cell<Door>,
    current: RefCell<Rc<Current>>,
    random: RefCell<Xoshiro256PlusPlus>,
    next_id: Cell<u64>,
    clients: RefCell<HashMap<u64, Rc<Client>>>,
    trackers: Trackers,
}

/// One client connection, as the shard sees it from outside.
pub struct Client {
    /// By which it can be cut.
    pub watch: Rc<Watch>,
    /// Waiting for a request: may be cut when the shard drains.
    pub idle: Cell<bool>,
}

/// The live Snapshot with this shard's pools for it.
pub struct Current {
    /// The Snapshot, its Circuits and counters.
    pub live: Arc<Live>,
    /// Gateways by path and host.
    pub entrances: Entrances,
    /// By Endpoint.
    pub upstreams: Vec<Upstream>,
}

/// This shard's side of one Endpoint.
pub struct Upstream {
    /// Its connections.
    pub pool: Rc<Pool>,
    /// What every request to it begins with.
    pub template: Box<[u8]>,
    /// What TLS towards it needs, if it is spoken.
    pub tls: Option<ClientTls>,
}

impl Current {
    /// This shard's side of a Snapshot. Pools of Endpoints that are reached as before go on.
    fn new(live: Arc<Live>, shards: usize, before: Option<&Current>) -> Current {
        let same = |at: usize| {
            let (endpoint, before) = (&live.snapshot.endpoints[at], before?);
            let old = before.live.endpoint(&endpoint.id)?;
            let same = before.live.snapshot.endpoints[old].is_reached_like(endpoint);
            same.then(|| &before.upstreams[old])
        };
        let upstream = |(at, endpoint)| {
            let same = same(at);
            let pool = same.map_or_else(|| Pool::new(endpoint, shards), |old| old.pool.clone());
            pool.leads_to(live.addresses.get(at).map_or(&[], |addresses| addresses));
            // Kept: it remembers sessions that can be taken up again.
            let tls = same.map_or_else(|| ClientTls::of(endpoint), |old| old.tls.clone());
            Upstream { pool, template: upstream::template(endpoint), tls }
        };
        let upstreams = live.snapshot.endpoints.iter().enumerate().map(upstream).collect();
        Current { entrances: Entrances::new(&live.snapshot.gateways), live, upstreams }
    }

    /// The `[server]` section.
    pub fn server(&self) -> &Server {
        &self.live.snapshot.server
    }
}

impl Shard {
    /// The Snapshot that an Exchange that begins now keeps to its end.
    pub fn current(&self) -> Rc<Current> {
        self.current.borrow().clone()
    }

    /// Draining: each connection ends after its next answer. Read where it lives, a line that is written
    /// once: what the tick remembers would be late.
    pub fn draining(&self) -> bool {
        self.world.lifecycle.phase() == Phase::Draining
    }

    /// A random number, for choices that nobody gains from guessing.
    pub fn random(&self) -> u64 {
        self.random.borrow_mut().next_u64()
    }

    /// An id for a request upstream: below 10^15, so that no node can distort it.
    pub fn next_id(&self) -> u64 {
        let id = self.next_id.get();
        self.next_id.set((id + 1) % 1_000_000_000_000_000);
        id
    }

    /// This shard's own counters.
    pub fn cells<'l>(&self, live: &'l Live) -> &'l ShardCells {
        &live.counters.shards[self.index]
    }

    /// This shard's counters of one Endpoint.
    pub fn endpoint_cells<'l>(&self, live: &'l Live, endpoint: usize) -> &'l EndpointCells {
        &live.counters.endpoints[endpoint][self.index]
    }

    /// Makes a client known, so that draining finds it.
    pub fn enter(self: &Rc<Shard>, watch: Rc<Watch>) -> Presence {
        let id = self.next_id();
        let client = Rc::new(Client { watch, idle: Cell::new(false) });
        self.clients.borrow_mut().insert(id, client.clone());
        let current = self.current();
        let cells = self.cells(&current.live);
        cells.clients.add(1);
        cells.accepted.add(1);
        Presence { shard: self.clone(), id, client }
    }

    /// Client connections that are open now.
    pub fn clients(&self) -> usize {
        self.clients.borrow().len()
    }

    /// Once a tick: takes a new Snapshot, notices the end, sweeps pools. `false` = this shard is done.
    fn each_tick(self: &Rc<Shard>, now_ns: Nanos, swept_ns: &Cell<Nanos>, listeners: &[Rc<Watch>]) -> bool {
        if !Arc::ptr_eq(&self.current.borrow().live, &*self.world.live.load()) {
            let before = self.current();
            let fresh = Current::new(self.world.live.load_full(), self.world.shards, Some(&before));
            *self.current.borrow_mut() = Rc::new(fresh);
        }
        // To the end: who is still served must not get what a lagging node says.
        self.trackers.each_tick(self, &self.current(), now_ns);
        if swept_ns.get() + SECOND < now_ns {
            swept_ns.set(now_ns);
            let current = self.current();
            for (at, upstream) in current.upstreams.iter().enumerate() {
                upstream.pool.sweep(now_ns, SWEEP_MOST);
                self.endpoint_cells(&current.live, at).connections.set(upstream.pool.open() as u64);
            }
            if !self.draining() {
                keep_warm(self, &current, now_ns);
            }
        }
        let most = self.current.borrow().server().max_buffered_bytes as u64;
        ring::hurry_readers(self.world.memory.held() > most / 2);
        if self.draining() {
            self.close_the_door(now_ns, listeners);
        }
        !(self.door.get() == Door::Closed && self.clients() == 0)
    }

    /// One step on the way out per tick. What has connected is served; closing a listener would reset its queue.
    fn close_the_door(&self, now_ns: Nanos, listeners: &[Rc<Watch>]) {
        match self.door.get() {
            Door::Open => {
                self.door.set(Door::Closing { until_ns: now_ns + SETTLE_NS });
                listeners.iter().for_each(|listener| listener.no_new_handshakes());
                self.cells(&self.current().live).accepting.set(0);
                let idle: Vec<_> = self.clients.borrow().values().filter(|client| client.idle.get()).cloned().collect();
                idle.iter().for_each(|client| client.watch.hasten(now_ns + LAST_REQUEST_NS, now_ns));
            }
            Door::Closing { until_ns } if until_ns <= now_ns => {
                if until_ns + QUEUE_MAX_NS > now_ns && listeners.iter().any(|listener| listener.has_callers()) {
                    return;
                }
                self.door.set(Door::Cut);
                listeners.iter().for_each(|listener| listener.cut(Cut::Both));
            }
            Door::Cut => self.door.set(Door::Closed),
            Door::Closing { .. } | Door::Closed => {}
        }
    }

    /// Whether connections are still accepted.
    fn accepts(&self) -> bool {
        matches!(self.door.get(), Door::Open | Door::Closing { .. })
    }
}

/// A client connection is there as long as this lives.
pub struct Presence {
    shard: Rc<Shard>,
    id: u64,
    client: Rc<Client>,
}

impl Presence {
    /// Whether the connection waits for a request.
    pub fn idle(&self, idle: bool) {
        self.client.idle.set(idle);
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.shard.clients.borrow_mut().remove(&self.id);
        self.shard.cells(&self.shard.current().live).clients.sub(1);
    }
}

/// Runs a shard on this thread until it has drained; it lets at most `share` callers in at once.
pub fn run(index: usize, world: Arc<World>, mut ring: Ring, listeners: Vec<OwnedFd>, share: usize) {
    let current = Rc::new(Current::new(world.live.load_full(), world.shards, None));
    let shard = Rc::new(Shard {
        index,
        world,
        buffers: Buffers::default(),
        inflight: Cell::new(0),
        door: Cell::new(Door::Open),
        current: RefCell::new(current),
        random: RefCell::new(Xoshiro256PlusPlus::from_seed(seed())),
        next_id: Cell::new(1),
        clients: RefCell::default(),
        trackers: Trackers::default(),
    });
    ring.block_on(async {
        let mut watches = Vec::new();
        for listener in listeners {
            match Listener::from_fd(listener) {
                Ok(listener) => {
                    watches.push(listener.watch());
                    accept(shard.clone(), listener, share);
                }
                Err(error) => tracing::error!(shard = index, %error, "a listener could not join the ring"),
            }
        }
        shard.cells(&shard.current().live).accepting.set(1);
        let swept_ns = Cell::new(0);
        ring::tick(|now_ns| shard.each_tick(now_ns, &swept_ns, &watches)).await;
    });
}

fn accept(shard: Rc<Shard>, listener: Listener, share: usize) {
    let panicked = shard.clone();
    ring::spawn(
        async move {
            let (open, admit, serve) = (shard.clone(), shard.clone(), shard);
            listener
                .accept_all(
                    || open.accepts(),
                    || admit.clients() < share,
                    |stream, peer| {
                        let (shard, panicked) = (serve.clone(), serve.clone());
                        // Counted here, not when its task first runs: a burst would pass the limit before.
                        let presence = shard.enter(stream.watch());
                        ring::spawn(
                            client_http::serve(shard, stream, peer.map(|peer| peer.ip()), presence),
                            move || panicked.note_panic(),
                        );
                    },
                )
                .await;
        },
        move || panicked.note_panic(),
    );
}

impl Shard {
    /// Counts a task that panicked.
    pub fn note_panic(&self) {
        self.cells(&self.current().live).panics.add(1);
    }
}

/// 32 bytes from the OS; if it has none to give, from the hasher keys that it gave this process.
fn seed() -> [u8; 32] {
    use std::hash::{BuildHasher, Hasher, RandomState};
    use std::io::Read;
    let mut seed = [0; 32];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut seed));
    if read.is_err() {
        for chunk in seed.chunks_exact_mut(8) {
            chunk.copy_from_slice(&RandomState::new().build_hasher().finish().to_ne_bytes());
        }
    }
    seed
}
