//! The runtime of a shard: its clock, its tasks, and the turns in which they meet the kernel.
//!
//! Why not a runtime from elsewhere: with one, half of all completions and polls of a Call were for writes that had
//! already succeeded, each wait set a timer of its own, each look at a pooled connection was a system call, and a read
//! that was dropped lost its bytes. What was measured stands in `perf/tried.md`.

use crate::logic::units::Nanos;
use crate::net::epoll::Epoll;
use crate::net::executor;
use crate::net::sleepers::{self, Sleep};
use crate::net::socket::{Driver, install, with_epoll, with_uring};
pub use crate::net::stream::{Listener, SHORT_WRITE, Stream, WriteBroke};
use crate::net::uring::Uring;
pub use crate::net::watch::{Cut, Watch, hurry_readers};
pub use crate::net::wheel::TICK_NS;
use crate::net::{socket, watch};
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::OnceLock;
use std::time::Instant;

thread_local! {
    /// What the clock said in this poll: 0 = nobody has asked yet.
    static POLLED_NS: Cell<Nanos> = const { Cell::new(UNKEPT) };
}

/// Outside of any poll the clock is read each time.
const UNKEPT: Nanos = Nanos::MAX;

/// Monotonic time since the process first asked. Within one poll of a task the clock is read once.
pub fn now() -> Nanos {
    match POLLED_NS.get() {
        UNKEPT => read_clock(),
        0 => {
            let now_ns = read_clock();
            POLLED_NS.set(now_ns);
            now_ns
        }
        now_ns => now_ns,
    }
}

fn read_clock() -> Nanos {
    static START: OnceLock<Instant> = OnceLock::new();
    // A base of one hour keeps `now - something` away from zero without any check.
    let elapsed = START.get_or_init(Instant::now).elapsed();
    3_600_000_000_000 + elapsed.as_nanos() as Nanos
}

/// Seconds since 1970, for `Retry-After` dates.
pub fn unix_seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The driver that a shard ended up with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// io_uring.
    IoUring,
    /// epoll.
    Epoll,
}

/// A runtime for one thread.
pub struct Ring {
    kind: Kind,
    driver: Option<Driver>,
}

impl Ring {
    /// On io_uring.
    pub fn io_uring() -> io::Result<Ring> {
        Uring::new().map(|uring| Ring { kind: Kind::IoUring, driver: Some(Driver::Uring(uring)) })
    }

    /// The fallback for kernels and containers that block io_uring.
    pub fn epoll() -> io::Result<Ring> {
        Epoll::new().map(|epoll| Ring { kind: Kind::Epoll, driver: Some(Driver::Epoll(epoll)) })
    }

    /// Which driver it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Runs a future to its end on this thread. Tasks that are left then are dropped.
    pub fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        install(self.driver.take());
        let done = executor::run(future, || POLLED_NS.set(0), turn);
        POLLED_NS.set(UNKEPT);
        // Before the driver goes: what they let go still finds it.
        executor::clear();
        self.driver = install(None);
        done
    }
}

/// One turn of input, output and time.
fn turn(may_wait: bool) {
    let wake_ns = sleepers::next_ns();
    if socket::is_uring() {
        with_uring(|uring| uring.turn(may_wait, wake_ns, read_clock));
    } else if let Some(mut news) = with_epoll(|epoll| epoll.turn(may_wait, wake_ns, read_clock)) {
        // Outside of the driver: who is woken, and a socket that is let go, may come back to it.
        news.drain(..).for_each(|socket| socket.wake());
        with_epoll(|epoll| epoll.keep(news));
    }
    if wake_ns.is_some() {
        sleepers::wake_due(read_clock());
    }
}

/// Whether the last turn brought much, so that waiting for news costs more than asking for it.
pub fn is_busy() -> bool {
    with_uring(|uring| uring.is_busy()).unwrap_or(true)
}

/// Pins this thread to one CPU; a refusal costs locality, nothing else.
pub fn pin(cpu: usize) -> bool {
    let mut set = rustix::thread::CpuSet::new();
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return false;
    }
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).is_ok()
}

/// Runs a task on this shard; a panic in it ends it, tells `on_panic`, and costs nobody else anything.
pub fn spawn(task: impl Future<Output = ()> + 'static, on_panic: impl FnOnce() + 'static) {
    // Combinators and no async block: a block would hold the task twice, as what it captured and as what it awaits.
    executor::spawn(Box::pin(AssertUnwindSafe(task).catch_unwind().map(move |ended| {
        if ended.is_err() {
            on_panic();
        }
    })));
}

/// Waits.
pub async fn sleep(ns: Nanos) {
    Sleep::until(now().saturating_add(ns)).await;
}

/// Waits for a future that may be dropped, but not for ever.
pub async fn within<F: Future>(ns: Nanos, future: F) -> Option<F::Output> {
    let future = pin!(future);
    match select(future, Sleep::until(now().saturating_add(ns))).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(_) => None,
    }
}

/// Looks after the deadlines of this shard for ever, and calls `each` once a tick.
pub async fn tick(mut each: impl FnMut(Nanos) -> bool) {
    let mut done = now() / TICK_NS;
    loop {
        sleep(TICK_NS).await;
        let now_ns = now();
        while (done + 1) * TICK_NS <= now_ns {
            done += 1;
            watch::visit(done, now_ns);
        }
        if !each(now_ns) {
            return;
        }
    }
}
