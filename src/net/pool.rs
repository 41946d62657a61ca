//! The connections of one shard to one Endpoint: last in, first out, and poisoned when dropped.

use crate::logic::dial::Dial;
use crate::logic::recent_ids::RecentIds;
use crate::logic::snapshot::Endpoint;
use crate::logic::units::Nanos;
use crate::net::buffers::Buffers;
use crate::net::link::Link;
use crate::shared::counters::EndpointCells;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// A non-replayable operation never rides a connection that was idle for longer.
const IDLE_FOR_EFFECTS_NS: Nanos = 1_000_000_000;

/// The connections of one shard to one Endpoint.
pub struct Pool {
    idle: RefCell<Vec<Idle>>,
    open: Cell<usize>,
    limit: usize,
    idle_timeout_ns: Nanos,
    max_age_ns: Nanos,
    waiting: RefCell<VecDeque<Rc<Waiting>>>,
    addresses: RefCell<Vec<SocketAddr>>,
    /// Which address is tried first.
    pub dial: RefCell<Dial>,
    /// Connections that are being made for later.
    warming: Cell<usize>,
    /// See [`Pool::speaks_unasked`].
    unasked: Cell<bool>,
}

/// A connection, on the heap: it is handed on for every Call, and is too large to be moved that often.
struct Connection {
    link: Link,
    address: SocketAddr,
    born_ns: Nanos,
    ids: RecentIds,
}

struct Idle {
    connection: Box<Connection>,
    since_ns: Nanos,
}

/// One connection in use. Dropped without [`Lease::give_back`], it is closed: after a cancel, a timeout or
/// a half-read answer nobody may ever read from it again.
pub struct Lease {
    pool: Rc<Pool>,
    connection: Option<Box<Connection>>,
    /// Whether it carried something before.
    pub reused: bool,
}

/// The right to open one connection.
pub struct Slot {
    pool: Rc<Pool>,
    filled: bool,
}

impl Pool {
    /// A pool for this shard's share of the Endpoint's `max_connections`.
    pub fn new(endpoint: &Endpoint, shards: usize) -> Rc<Pool> {
        Rc::new(Pool {
            idle: RefCell::default(),
            open: Cell::new(0),
            limit: endpoint.max_connections.div_ceil(shards.max(1)),
            idle_timeout_ns: endpoint.idle_timeout_ns,
            max_age_ns: endpoint.max_age_ns,
            waiting: RefCell::default(),
            addresses: RefCell::default(),
            dial: RefCell::default(),
            warming: Cell::new(0),
            unasked: Cell::new(false),
        })
    }

    /// How many ready connections, those under way included, are missing to `wanted`.
    pub fn missing(&self, wanted: usize) -> usize {
        wanted.saturating_sub(self.idle.borrow().len() + self.warming.get())
    }

    /// Counts a connection as under way as long as what is returned lives.
    pub fn warming(self: &Rc<Pool>) -> Warming {
        self.warming.set(self.warming.get() + 1);
        Warming(self.clone())
    }

    /// Where the Endpoint is now.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.borrow().clone()
    }

    /// The Endpoint is at these addresses now. Connections to others finish what they carry, and are closed.
    pub fn leads_to(&self, addresses: &[SocketAddr]) {
        if *self.addresses.borrow() == addresses {
            return;
        }
        *self.addresses.borrow_mut() = addresses.to_vec();
        let idle = self.idle.take();
        let (kept, gone): (Vec<Idle>, Vec<Idle>) =
            idle.into_iter().partition(|one| addresses.contains(&one.connection.address));
        *self.idle.borrow_mut() = kept;
        for one in gone {
            drop(one);
            self.freed();
        }
    }

    /// Connections that are open now.
    pub fn open(&self) -> usize {
        self.open.get()
    }

    /// The connection that was used last, if it is young, was not idle for too long, and its peer has kept quiet. What
    /// is not `replayable` is not sent where an end or a byte has come, whether a turn has brought it yet or not. Dead
    /// ones on the way are closed.
    pub fn take_idle(self: &Rc<Pool>, now_ns: Nanos, replayable: bool) -> Option<Lease> {
        let idle_max_ns = if replayable { Nanos::MAX } else { IDLE_FOR_EFFECTS_NS };
        loop {
            let mut idle = self.idle.borrow_mut().pop()?;
            if idle.since_ns + idle_max_ns.min(self.idle_timeout_ns) < now_ns {
                // The rest was idle for even longer: leave them to other operations or to the sweep.
                self.idle.borrow_mut().push(idle);
                return None;
            }
            let young = idle.connection.born_ns + self.max_age_ns >= now_ns;
            if young && self.is_quiet(&mut idle.connection, !replayable) {
                return Some(Lease { pool: self.clone(), connection: Some(idle.connection), reused: true });
            }
            drop(idle);
            self.freed();
        }
    }

    fn is_quiet(&self, connection: &mut Connection, surely: bool) -> bool {
        let quiet = connection.link.is_quiet(surely);
        if !quiet && connection.link.has_spoken() {
            self.speaks_unasked();
        }
        quiet
    }

    /// The Endpoint said something that nobody had asked for: it may answer a request twice. From now on no id is used
    /// twice over one connection, so that such an answer, should it come while another request is under way, is not
    /// taken for the answer to that.
    pub fn speaks_unasked(&self) {
        self.unasked.set(true);
    }

    /// The right to open another connection, if the limit allows it.
    pub fn reserve(self: &Rc<Pool>) -> Option<Slot> {
        (self.open.get() < self.limit).then(|| {
            self.open.set(self.open.get() + 1);
            Slot { pool: self.clone(), filled: false }
        })
    }

    /// Closes an idle connection that would not do for the operation at hand, to make room for a fresh one.
    pub fn evict_one(&self) -> bool {
        let oldest = {
            let mut idle = self.idle.borrow_mut();
            if idle.is_empty() {
                return false;
            }
            idle.remove(0)
        };
        drop(oldest);
        self.freed();
        true
    }

    /// Waits until a connection or the right to open one may be had. May be dropped.
    pub async fn freed_one(self: &Rc<Pool>) {
        let turn = Turn { pool: self, waiting: Rc::new(Waiting::default()) };
        self.waiting.borrow_mut().push_back(turn.waiting.clone());
        std::future::poll_fn(|context| {
            if turn.waiting.granted.get() {
                return Poll::Ready(());
            }
            *turn.waiting.waker.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
        turn.waiting.taken.set(true);
    }

    /// Closes what has been idle for too long, is too old, or was closed by its peer. Looks at no more
    /// than `most` connections.
    pub fn sweep(&self, now_ns: Nanos, most: usize) {
        let mut dead = Vec::new();
        {
            let mut idle = self.idle.borrow_mut();
            let mut at = 0;
            for _ in 0..most.min(idle.len()) {
                let one = &mut idle[at];
                let expired =
                    one.since_ns + self.idle_timeout_ns < now_ns || one.connection.born_ns + self.max_age_ns < now_ns;
                if expired || !self.is_quiet(&mut one.connection, false) {
                    dead.push(idle.remove(at));
                } else {
                    at += 1;
                }
            }
        }
        for one in dead {
            drop(one);
            self.freed();
        }
    }

    fn freed(&self) {
        self.open.set(self.open.get() - 1);
        self.wake_one();
    }

    fn wake_one(&self) {
        let next = self.waiting.borrow_mut().pop_front();
        if let Some(next) = next {
            next.granted.set(true);
            if let Some(waker) = next.waker.borrow_mut().take() {
                waker.wake();
            }
        }
    }
}

/// A connection that is being made for later.
pub struct Warming(Rc<Pool>);

impl Drop for Warming {
    fn drop(&mut self) {
        self.0.warming.set(self.0.warming.get() - 1);
    }
}

#[derive(Default)]
struct Waiting {
    granted: Cell<bool>,
    taken: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// A place in the queue; one that is given up passes its turn on.
struct Turn<'p> {
    pool: &'p Rc<Pool>,
    waiting: Rc<Waiting>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.waiting.granted.get() {
            self.pool.waiting.borrow_mut().retain(|other| !Rc::ptr_eq(other, &self.waiting));
        } else if !self.waiting.taken.get() {
            self.pool.wake_one();
        }
    }
}

impl Slot {
    /// Turns the right into a connection.
    pub fn fill(mut self, link: Link, address: SocketAddr, now_ns: Nanos, cells: &EndpointCells) -> Lease {
        cells.connected.add(1);
        self.filled = true;
        let connection = Some(Box::new(Connection { link, address, born_ns: now_ns, ids: RecentIds::default() }));
        Lease { pool: self.pool.clone(), connection, reused: false }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.filled {
            self.pool.freed();
        }
    }
}

impl Lease {
    /// The connection itself.
    pub fn stream(&mut self) -> &mut Link {
        let connection = self.connection.as_mut();
        &mut connection.expect("a lease holds its connection until it is given back").link
    }

    /// The id for a request over this connection: the wanted one, unless this Endpoint has spoken unasked and the
    /// connection has carried that id lately.
    pub fn id(&mut self, wanted: u64) -> u64 {
        let unasked = self.pool.unasked.get();
        self.connection.as_mut().map_or(wanted, |connection| connection.ids.take(wanted, unasked))
    }

    /// Returns the connection after a clean, fully read, keep-alive response. One to an address that the Endpoint
    /// has left is closed.
    pub fn give_back(mut self, now_ns: Nanos, buffers: &Buffers) {
        let Some(mut connection) = self.connection.take() else { return };
        if !self.pool.addresses.borrow().contains(&connection.address) {
            drop(connection);
            return self.pool.freed();
        }
        connection.link.disarm();
        connection.link.listen_aside(buffers);
        self.pool.idle.borrow_mut().push(Idle { connection, since_ns: now_ns });
        self.pool.wake_one();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            drop(connection);
            self.pool.freed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::units::{MS, SECOND};
    use crate::net::ring::{now, sleep};
    use crate::net::stream::tests::{connected_to, on_both};
    use std::io::Write;
    use std::net::TcpStream;

    /// A pool with one idle connection, and the peer of that.
    async fn with_one(buffers: &Buffers) -> (Rc<Pool>, TcpStream) {
        let (stream, peer) = connected_to().await;
        let address = peer.local_addr().unwrap();
        let pool = Rc::new(Pool {
            idle: RefCell::default(),
            open: Cell::new(0),
            limit: 1,
            idle_timeout_ns: 60 * SECOND,
            max_age_ns: 600 * SECOND,
            waiting: RefCell::default(),
            addresses: RefCell::new(vec![address]),
            dial: RefCell::default(),
            warming: Cell::new(0),
            unasked: Cell::new(false),
        });
        let lease = pool.reserve().unwrap().fill(stream.into(), address, now(), &EndpointCells::default());
        lease.give_back(now(), buffers);
        sleep(MS).await;
        (pool, peer)
    }

    #[test]
    fn an_end_that_no_turn_has_brought_yet_keeps_an_effect_away() {
        on_both(|| async {
            let (pool, peer) = with_one(&Buffers::default()).await;
            drop(peer);
            assert!(pool.take_idle(now(), false).is_none());
            assert_eq!((pool.open(), pool.unasked.get()), (0, false));
        });
        on_both(|| async {
            let (pool, mut peer) = with_one(&Buffers::default()).await;
            peer.write_all(b"unasked").unwrap();
            assert!(pool.take_idle(now(), false).is_none());
            assert_eq!((pool.open(), pool.unasked.get()), (0, true));
        });
    }

    #[test]
    fn what_was_said_unasked_is_remembered() {
        on_both(|| async {
            let (pool, mut peer) = with_one(&Buffers::default()).await;
            peer.write_all(b"unasked").unwrap();
            sleep(20 * MS).await;
            pool.sweep(now(), 64);
            assert_eq!((pool.open(), pool.unasked.get()), (0, true));
        });
    }
}
