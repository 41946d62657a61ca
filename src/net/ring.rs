//! The only file that names the runtime, reads the clock, or holds a socket.
//!
//! Guards against what was measured in monoio 0.2.4:
//! - a dropped `read` loses bytes that had arrived, so nothing here is ever dropped in flight: a deadline
//!   shuts the *socket* down, and the operation ends by itself (EOF or EPIPE);
//! - a dropped `accept` leaks the accepted fd, so one task per listener accepts and is never cancelled;
//! - a panic in a task would unwind through the shard, so [`spawn`] catches it at the task's edge;
//! - EMFILE on accept is a busy loop, so accepting backs off.

#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods)] // this is the place that the other rooms are sent to

use crate::logic::units::{MS, Nanos};
pub use crate::net::wheel::TICK_NS;
use crate::net::wheel::{NEVER, SLOTS, Wheel};
use futures_util::FutureExt;
use monoio::buf::{IoBuf, IoBufMut};
use monoio::io::{AsyncReadRent, AsyncWriteRent};
use monoio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A deadline that never comes, but is visited all the same.
const ALWAYS: Nanos = u64::MAX - 1;
/// A socket with a deadline is visited at least so often: that is how late a reset of a waiting client is seen.
const REVISIT_NS: Nanos = 500 * MS;
/// Nobody has looked yet.
const UNKNOWN: u32 = u32::MAX;

/// Monotonic time since the process first asked.
pub fn now() -> Nanos {
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

/// A runtime of this thread.
pub struct Ring(Inner);

enum Inner {
    Uring(Box<monoio::Runtime<monoio::time::TimeDriver<monoio::IoUringDriver>>>),
    Epoll(Box<monoio::Runtime<monoio::time::TimeDriver<monoio::LegacyDriver>>>),
}

impl Ring {
    /// A ring with the cheapest flags that the kernel takes.
    pub fn io_uring() -> io::Result<Ring> {
        let mut best = io_uring::IoUring::builder();
        // One thread submits, and completions run when it asks: about 15 % less CPU per request.
        best.setup_single_issuer().setup_defer_taskrun();
        let plain = io_uring::IoUring::builder();
        let build =
            |flags| monoio::RuntimeBuilder::<monoio::IoUringDriver>::new().uring_builder(flags).enable_timer().build();
        build(best).or_else(|_| build(plain)).map(|runtime| Ring(Inner::Uring(Box::new(runtime))))
    }

    /// The fallback for kernels and containers that block io_uring.
    pub fn epoll() -> io::Result<Ring> {
        let runtime = monoio::RuntimeBuilder::<monoio::LegacyDriver>::new().enable_timer().build()?;
        Ok(Ring(Inner::Epoll(Box::new(runtime))))
    }

    /// Which driver it is.
    pub fn kind(&self) -> Kind {
        match self.0 {
            Inner::Uring(_) => Kind::IoUring,
            Inner::Epoll(_) => Kind::Epoll,
        }
    }

    /// Runs a future to its end on this thread.
    pub fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        match &mut self.0 {
            Inner::Uring(runtime) => runtime.block_on(future),
            Inner::Epoll(runtime) => runtime.block_on(future),
        }
    }
}

/// Pins this thread to one CPU; a refusal costs locality, nothing else.
pub fn pin(cpu: usize) -> bool {
    monoio::utils::bind_to_cpu_set([cpu]).is_ok()
}

/// Runs a task on this shard; a panic in it ends it, tells `on_panic`, and costs nobody else anything.
pub fn spawn(task: impl Future<Output = ()> + 'static, on_panic: impl FnOnce() + 'static) {
    // Combinators and no async block: a block would hold the task twice, as what it captured and as what it awaits.
    monoio::spawn(AssertUnwindSafe(task).catch_unwind().map(move |ended| {
        if ended.is_err() {
            on_panic();
        }
    }));
}

/// Waits.
pub async fn sleep(ns: Nanos) {
    monoio::time::sleep(Duration::from_nanos(ns)).await;
}

/// Waits for a future that may safely be dropped (no read, no accept), but not for ever.
pub async fn within<F: Future>(ns: Nanos, future: F) -> Option<F::Output> {
    monoio::time::timeout(Duration::from_nanos(ns), future).await.ok()
}

/// What a deadline does to its socket when it fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Ends reading only: an answer can still be written.
    Read,
    /// Ends both directions.
    Both,
    /// Ends nothing: looks whether the peer has reset the connection, again and again. What runs for such a
    /// peer is cut.
    Look,
}

/// The deadline of one socket. Arming one costs a store: it is looked at by the tick, and moved lazily.
pub struct Watch {
    fd: Cell<RawFd>,
    deadline_ns: Cell<Nanos>,
    visit_ns: Cell<Nanos>,
    cut: Cell<Cut>,
    fired: Cell<bool>,
    gone: Cell<bool>,
    /// While something is written: how long the peer may take nothing. Otherwise 0.
    patience_ns: Cell<Nanos>,
    /// Bytes that the peer had not yet taken at the last look.
    untaken: Cell<u32>,
    /// What is cut when this peer is gone.
    running: RefCell<Vec<Rc<Watch>>>,
    /// While something long is written: visits since the peer last took any of it.
    standstill: Cell<Option<u8>>,
}

impl Watch {
    fn new(fd: RawFd) -> Rc<Watch> {
        Rc::new(Watch {
            fd: Cell::new(fd),
            deadline_ns: Cell::new(NEVER),
            visit_ns: Cell::new(NEVER),
            cut: Cell::new(Cut::Both),
            fired: Cell::new(false),
            gone: Cell::new(false),
            patience_ns: Cell::new(0),
            untaken: Cell::new(UNKNOWN),
            running: RefCell::default(),
            standstill: Cell::new(None),
        })
    }

    fn arm(self: &Rc<Watch>, deadline_ns: Nanos, cut: Cut, now_ns: Nanos) {
        debug_assert!(REVISIT_NS < TICK_NS * SLOTS as u64, "a visit lies within one turn of the wheel");
        self.cut.set(cut);
        self.deadline_ns.set(deadline_ns);
        self.patience_ns.set(0);
        let visit_ns = self.visit_ns.get();
        // Scheduled early enough already? That is the common case, and it costs nothing.
        let late = visit_ns == NEVER || visit_ns > deadline_ns.saturating_add(TICK_NS);
        if late && deadline_ns != NEVER {
            let at_ns = deadline_ns.clamp(now_ns + 1, now_ns + REVISIT_NS);
            DEADLINES.with(|deadlines| deadlines.put(self.clone(), at_ns));
        }
    }

    /// From now on the socket is cut when its peer has taken nothing for so long.
    fn arm_write(self: &Rc<Watch>, patience_ns: Nanos, now_ns: Nanos) {
        self.arm(now_ns.saturating_add(patience_ns), Cut::Both, now_ns);
        self.patience_ns.set(patience_ns);
        self.untaken.set(UNKNOWN);
    }

    /// Moves the deadline of a write on if the peer took something since the last look. The write itself does not
    /// show that: it goes on only when a third of the kernel's buffer, often megabytes, has come free. The first
    /// look has nothing to compare with and trusts the peer: nobody is cut early, and who takes nothing is cut
    /// one look late.
    fn look_at_queue(&self, now_ns: Nanos) {
        let patience_ns = self.patience_ns.get();
        if patience_ns > 0 {
            let untaken = self.untaken_now();
            if untaken < self.untaken.replace(untaken) {
                self.deadline_ns.set(now_ns.saturating_add(patience_ns));
            }
        }
    }

    /// Bytes that were written and that the peer's kernel has not acknowledged.
    fn untaken_now(&self) -> u32 {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the fd is this watch's socket, as in `cut`, and the kernel writes one int to where `bytes` is.
        let asked = unsafe { libc::ioctl(self.fd.get(), libc::TIOCOUTQ, &raw mut bytes) };
        if asked == 0 { u32::try_from(bytes).unwrap_or(UNKNOWN) } else { UNKNOWN }
    }

    /// Brings the deadline forward to `deadline_ns`, if it is later.
    pub fn hasten(self: &Rc<Watch>, deadline_ns: Nanos, now_ns: Nanos) {
        if self.deadline_ns.get() > deadline_ns {
            self.arm(deadline_ns, self.cut.get(), now_ns);
        }
    }

    /// Whether the peer was seen to have reset the connection while others worked for it.
    pub fn gone(&self) -> bool {
        self.gone.get()
    }

    /// From now on `other` is cut when this peer is gone.
    pub fn runs(&self, other: Rc<Watch>) {
        self.running.borrow_mut().push(other);
    }

    /// `other` has ended by itself.
    pub fn ran(&self, other: &Rc<Watch>) {
        let mut running = self.running.borrow_mut();
        if let Some(at) = running.iter().position(|one| Rc::ptr_eq(one, other)) {
            running.swap_remove(at);
        }
    }

    /// Looks whether the peer has reset the connection. An end of its writing alone is none: it may still read.
    fn look(&self) {
        // Asked for nothing, it tells only of a reset and of an end in both directions (poll(2)).
        let mut asked = libc::pollfd { fd: self.fd.get(), events: 0, revents: 0 };
        // SAFETY: one pollfd that lives across the call, which does not wait.
        let gone = unsafe { libc::poll(&raw mut asked, 1, 0) } == 1;
        if !gone {
            return;
        }
        self.gone.set(true);
        for other in self.running.take() {
            other.cut(Cut::Both);
        }
    }

    /// A peer that has spoken and takes no more of what is written is to be heard: the write ends.
    fn hear_out(&self) {
        let Some(visits) = self.standstill.get() else { return };
        self.standstill.set(Some(visits.saturating_add(1)));
        // SAFETY: as in `cut`.
        let borrowed = unsafe { BorrowedFd::borrow_raw(self.fd.get()) };
        if visits > 0 && !nothing_came(&socket2::SockRef::from(&borrowed)) {
            let _ = socket2::SockRef::from(&borrowed).shutdown(Shutdown::Write);
        }
    }

    /// A listening socket takes no new handshakes from now on; those under way come to their end and are accepted.
    /// The kernel drops each SYN: its client sends it again after a second, to whoever listens by then.
    pub fn no_new_handshakes(&self) {
        let fd = self.fd.get();
        if fd < 0 {
            return;
        }
        // SAFETY: as in `cut`.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        let step = |code: u32, jf: u8, k: u32| socket2::SockFilter::new(code as u16, 0, jf, k);
        let [syn, syn_and_ack] = [0x02, 0x12];
        // The flags are byte 13 of the TCP header. An ACK that ends a handshake has no SYN.
        let filter = [
            step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 13),
            step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, syn_and_ack),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, syn),
            step(libc::BPF_RET | libc::BPF_K, 0, 0),
            step(libc::BPF_RET | libc::BPF_K, 0, u32::MAX),
        ];
        // Where it is not to be had, connections made in the last moment are reset instead of delayed.
        let _ = socket2::SockRef::from(&borrowed).attach_filter(&filter);
    }

    /// Cuts the socket now: whatever waits on it ends.
    pub fn cut(&self, how: Cut) {
        let fd = self.fd.get();
        if fd < 0 {
            return;
        }
        // SAFETY: `fd` is this watch's socket: the Stream that owns it sets it to -1 before it lets go of it.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        let how = match how {
            Cut::Read => Shutdown::Read,
            Cut::Both => Shutdown::Both,
            Cut::Look => return,
        };
        // A socket that the peer has already reset says ENOTCONN; its reader is awake then.
        let _ = socket2::SockRef::from(&borrowed).shutdown(how);
    }
}

/// The deadlines of this shard.
#[derive(Default)]
struct Deadlines {
    wheel: Wheel<Rc<Watch>>,
    /// See [`hurry_readers`].
    hurry: Cell<bool>,
}

thread_local! {
    static DEADLINES: Deadlines = Deadlines::default();
}

/// While memory is short, a reader shows that it takes something by what can be written on, and not by single
/// bytes: slow ones could hold all of it for ever.
pub fn hurry_readers(hurry: bool) {
    DEADLINES.with(|deadlines| deadlines.hurry.set(hurry));
}

impl Deadlines {
    fn put(&self, watch: Rc<Watch>, at_ns: Nanos) {
        let due_ns = self.wheel.due_ns(at_ns);
        watch.visit_ns.set(due_ns);
        self.wheel.put(watch, due_ns);
    }

    fn visit(&self, tick: u64, now_ns: Nanos) {
        self.wheel.visit(tick, |watch| watch.visit_ns.get(), |watch| self.look_at(watch, now_ns));
    }

    /// One socket whose time for a look has come.
    fn look_at(&self, watch: Rc<Watch>, now_ns: Nanos) {
        watch.visit_ns.set(NEVER);
        if watch.fd.get() < 0 || watch.deadline_ns.get() == NEVER {
            return;
        }
        if !self.hurry.get() {
            watch.look_at_queue(now_ns);
        }
        let deadline_ns = watch.deadline_ns.get();
        if deadline_ns <= now_ns {
            watch.deadline_ns.set(NEVER);
            watch.fired.set(true);
            watch.cut(watch.cut.get());
            return;
        }
        if watch.cut.get() == Cut::Look {
            watch.look();
        }
        watch.hear_out();
        if !watch.gone() {
            self.put(watch, deadline_ns.min(now_ns + REVISIT_NS));
        }
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
            DEADLINES.with(|deadlines| deadlines.visit(done, now_ns));
        }
        if !each(now_ns) {
            return;
        }
    }
}

/// A connected TCP socket with one deadline.
pub struct Stream {
    tcp: TcpStream,
    watch: Rc<Watch>,
}

impl Stream {
    fn new(tcp: TcpStream) -> Stream {
        // Small messages must not wait for each other; a socket that refuses is dead and says so on use.
        let _ = tcp.set_nodelay(true);
        let watch = Watch::new(tcp.as_raw_fd());
        Stream { tcp, watch }
    }

    /// The runtime's TCP stream knows no more of its descriptor than how to read, write and close it: it does for a Unix
    /// socket too, and one kind of stream keeps every connection's task small.
    fn of_unix(unix: UnixStream) -> io::Result<Stream> {
        // SAFETY: the number was this stream's own, which gave it up.
        let fd = unsafe { OwnedFd::from_raw_fd(unix.into_raw_fd()) };
        TcpStream::from_std(fd.into()).map(Stream::new)
    }

    /// Connects, or says why not: `TimedOut` after `timeout_ns`.
    pub async fn connect(address: SocketAddr, timeout_ns: Nanos) -> io::Result<Stream> {
        match within(timeout_ns, TcpStream::connect_addr(address)).await {
            Some(connected) => connected.map(Stream::new),
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// From now on the socket is cut at `deadline_ns`.
    pub fn arm(&self, deadline_ns: Nanos, cut: Cut, now_ns: Nanos) {
        self.watch.arm(deadline_ns, cut, now_ns);
    }

    /// From now on the socket is cut when its peer has taken nothing of what is written for `patience_ns`; that shows
    /// up to half a second late.
    pub fn arm_write(&self, patience_ns: Nanos, now_ns: Nanos) {
        self.watch.arm_write(patience_ns, now_ns);
    }

    /// No deadline until the next `arm`, but a look at the peer now and then.
    pub fn look_after(&self, now_ns: Nanos) {
        self.watch.arm(ALWAYS, Cut::Look, now_ns);
    }

    /// No deadline until the next `arm`.
    pub fn disarm(&self) {
        self.watch.deadline_ns.set(NEVER);
    }

    /// Whether the deadline fired.
    pub fn expired(&self) -> bool {
        self.watch.fired.get()
    }

    /// Forgets that a read deadline fired, so that an answer to it can have one of its own.
    pub fn forgive(&self) {
        self.watch.fired.set(false);
    }

    /// A handle by which somebody else can cut the socket.
    pub fn watch(&self) -> Rc<Watch> {
        self.watch.clone()
    }

    /// Reads once into the spare capacity behind `buf`'s contents; 0 = EOF. Never dropped in flight.
    pub async fn read(&mut self, buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        let (filled, capacity) = (buf.len(), buf.capacity());
        debug_assert!(capacity > filled, "nowhere to read to");
        let (read, slice) = self.tcp.read(buf.slice_mut(filled..capacity)).await;
        let mut buf = slice.into_inner();
        if read.is_err() {
            buf.truncate(filled);
        }
        (read, buf)
    }

    /// Writes `buf[from..to]`. An error says how many bytes the kernel had taken. With `patience_ns` the
    /// deadline moves on whenever the peer takes something: it bounds the standstill, not the whole.
    pub async fn write(
        &mut self,
        mut buf: Vec<u8>,
        from: usize,
        to: usize,
        patience_ns: Option<Nanos>,
    ) -> (Result<(), WriteBroke>, Vec<u8>) {
        let mut at = from;
        while at < to {
            let (wrote, slice) = self.tcp.write(buf.slice(at..to)).await;
            buf = slice.into_inner();
            match wrote {
                Ok(0) => return (Err(WriteBroke { taken: at - from }), buf),
                Ok(n) => {
                    at += n;
                    self.watch.standstill.set(self.watch.standstill.get().and(Some(0)));
                    if let Some(patience_ns) = patience_ns.filter(|_| at < to) {
                        let now_ns = now();
                        self.watch.arm_write(patience_ns, now_ns);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return (Err(WriteBroke { taken: at - from }), buf),
            }
        }
        (Ok(()), buf)
    }

    /// Whether the peer has neither closed nor written anything: only such a connection may be used again.
    pub fn is_quiet(&self) -> bool {
        // SAFETY: the fd is open, `self.tcp` owns it, and the borrow ends with this call.
        let fd = unsafe { BorrowedFd::borrow_raw(self.tcp.as_raw_fd()) };
        nothing_came(&socket2::SockRef::from(&fd))
    }

    /// From now on (`false`: no longer) a write ends when the peer speaks and takes nothing for about a second.
    pub fn hear_out(&self, hear: bool) {
        self.watch.standstill.set(hear.then_some(0));
    }

    /// Reads what is there without waiting, into the spare capacity behind `buf`'s contents; 0 = EOF.
    pub fn read_now(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        // SAFETY: as in `is_quiet`.
        let fd = unsafe { BorrowedFd::borrow_raw(self.tcp.as_raw_fd()) };
        let read = socket2::SockRef::from(&fd).recv_with_flags(buf.spare_capacity_mut(), libc::MSG_DONTWAIT)?;
        let filled = buf.len() + read;
        // SAFETY: the kernel has written `read` bytes behind the contents, and had no room for more than the capacity.
        unsafe { buf.set_len(filled) };
        Ok(read)
    }

    /// Writes what the socket takes without waiting; the rest is lost.
    pub fn write_now(&self, bytes: &[u8]) {
        // SAFETY: as in `is_quiet`.
        let fd = unsafe { BorrowedFd::borrow_raw(self.tcp.as_raw_fd()) };
        let _ = socket2::SockRef::from(&fd).send_with_flags(bytes, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    }

    /// Tells the peer that nothing more will be written.
    pub fn finish_writing(&self) {
        // SAFETY: as in `is_quiet`.
        let fd = unsafe { BorrowedFd::borrow_raw(self.tcp.as_raw_fd()) };
        let _ = socket2::SockRef::from(&fd).shutdown(Shutdown::Write);
    }
}

/// Whether there is nothing to read, and no end either.
fn nothing_came(socket: &socket2::SockRef<'_>) -> bool {
    let mut byte = [std::mem::MaybeUninit::<u8>::uninit(); 1];
    let peeked = socket.recv_with_flags(&mut byte, libc::MSG_PEEK | libc::MSG_DONTWAIT);
    matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

impl Drop for Stream {
    fn drop(&mut self) {
        // The number may belong to somebody else in a moment.
        self.watch.fd.set(-1);
    }
}

/// A write that did not end well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteBroke {
    /// Bytes that the kernel had taken before.
    pub taken: usize,
}

/// A listening socket of this shard.
pub enum Listener {
    /// On an address.
    Tcp(TcpListener),
    /// On a file.
    Unix(UnixListener),
}

impl Listener {
    /// Takes over a bound, listening, non-blocking socket.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Listener> {
        let is_unix = socket2::SockRef::from(&fd).local_addr()?.is_unix();
        if is_unix {
            return UnixListener::from_std(fd.into()).map(Listener::Unix);
        }
        TcpListener::from_std(fd.into()).map(Listener::Tcp)
    }

    /// Accepts for ever, or until `open` says no. `admit` is asked before each accept, and waited for: what
    /// can't be served stays in the kernel's queue.
    pub async fn accept_all(
        &self,
        mut open: impl FnMut() -> bool,
        mut admit: impl FnMut() -> bool,
        mut serve: impl FnMut(Stream, Option<SocketAddr>),
    ) {
        while open() {
            if !admit() {
                sleep(TICK_NS).await;
                continue;
            }
            let accepted = match self {
                Listener::Tcp(listener) => listener.accept().await.map(|(tcp, peer)| (Stream::new(tcp), Some(peer))),
                Listener::Unix(listener) => {
                    listener.accept().await.and_then(|(unix, _)| Ok((Stream::of_unix(unix)?, None)))
                }
            };
            match accepted {
                Ok((stream, peer)) => serve(stream, peer),
                // The peer gave up while it waited: the next one.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => sleep(TICK_NS).await,
            }
        }
    }

    /// A handle that ends the accept loop from outside.
    pub fn watch(&self) -> Rc<Watch> {
        Watch::new(match self {
            Listener::Tcp(listener) => listener.as_raw_fd(),
            Listener::Unix(listener) => listener.as_raw_fd(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    /// Runs a test on both drivers, with deadlines looked after.
    fn on_both<F: Future<Output = ()> + 'static>(test: impl Fn() -> F) {
        for ring in [Ring::io_uring(), Ring::epoll()] {
            let mut ring = ring.expect("both drivers are to be had where tests run");
            ring.block_on(async {
                let done = Rc::new(Cell::new(false));
                let (seen, body) = (done.clone(), test());
                spawn(
                    async move {
                        body.await;
                        done.set(true);
                    },
                    || {},
                );
                let until_ns = now() + 10_000 * MS;
                tick(|now_ns| !seen.get() && now_ns < until_ns).await;
                assert!(seen.get(), "the test's task did not come to its end");
            });
        }
    }

    fn pair() -> (std::net::TcpListener, SocketAddr) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    #[test]
    fn a_deadline_ends_a_read_not_early_and_not_for_the_other_direction() {
        on_both(|| async {
            let (listener, address) = pair();
            let mut stream = Stream::connect(address, 1_000 * MS).await.unwrap();
            let (mut peer, _) = listener.accept().unwrap();
            let begun_ns = now();
            stream.arm(begun_ns + 50 * MS, Cut::Read, begun_ns);
            let (read, buf) = stream.read(Vec::with_capacity(16)).await;
            assert_eq!((read.unwrap(), buf.len()), (0, 0));
            assert!(stream.expired());
            assert!(now() >= begun_ns + 50 * MS, "never early");
            let (wrote, _) = stream.write(b"late".to_vec(), 0, 4, None).await;
            assert_eq!(wrote, Ok(()));
            let mut heard = [0; 4];
            peer.read_exact(&mut heard).unwrap();
            assert_eq!(&heard, b"late");
        });
    }

    #[test]
    fn an_earlier_deadline_overtakes_a_later_one_and_a_disarmed_one_never_fires() {
        on_both(|| async {
            let (listener, address) = pair();
            let mut stream = Stream::connect(address, 1_000 * MS).await.unwrap();
            let (mut peer, _) = listener.accept().unwrap();
            let begun_ns = now();
            stream.arm(begun_ns + 30 * MS, Cut::Both, begun_ns);
            stream.disarm();
            sleep(80 * MS).await;
            peer.write_all(b"x").unwrap();
            let (read, _) = stream.read(Vec::with_capacity(16)).await;
            assert_eq!((read.unwrap(), stream.expired()), (1, false));
            let begun_ns = now();
            stream.arm(begun_ns + 60_000 * MS, Cut::Both, begun_ns);
            stream.arm(begun_ns + 40 * MS, Cut::Both, begun_ns);
            let (read, _) = stream.read(Vec::with_capacity(16)).await;
            assert!(matches!(read, Ok(0) | Err(_)) && stream.expired());
            assert!(now() < begun_ns + 10_000 * MS);
        });
    }

    #[test]
    fn a_deadline_ends_a_write_that_nobody_reads() {
        on_both(|| async {
            let (listener, address) = pair();
            let mut stream = Stream::connect(address, 1_000 * MS).await.unwrap();
            let (_peer, _) = listener.accept().unwrap();
            let now_ns = now();
            stream.arm(now_ns + 50 * MS, Cut::Both, now_ns);
            let length = 64 << 20;
            let (wrote, _) = stream.write(vec![0; length], 0, length, None).await;
            assert!(wrote.is_err_and(|broke| broke.taken > 0) && stream.expired());
        });
    }

    /// A connection whose peer has a small buffer, and so tells often what it took.
    async fn to_small_peer() -> (Stream, std::net::TcpStream) {
        let (listener, address) = pair();
        socket2::SockRef::from(&listener).set_recv_buffer_size(16 << 10).unwrap();
        let stream = Stream::connect(address, 1_000 * MS).await.unwrap();
        let (peer, _) = listener.accept().unwrap();
        peer.set_nonblocking(true).unwrap();
        (stream, peer)
    }

    #[test]
    fn a_reader_that_takes_little_but_steadily_is_waited_for() {
        const LENGTH: usize = 8 << 20;
        on_both(|| async {
            let (mut stream, mut peer) = to_small_peer().await;
            let patience_ns = 300 * MS;
            let got = Rc::new(Cell::new(0));
            let heard = got.clone();
            spawn(
                async move {
                    let mut some = vec![0; 8 << 10];
                    let begun_ns = now();
                    while heard.get() < LENGTH {
                        heard.set(heard.get() + peer.read(&mut some).unwrap_or(0));
                        if now() < begun_ns + 6 * patience_ns {
                            sleep(30 * MS).await;
                        } else {
                            some.resize(1 << 20, 0);
                            sleep(1).await;
                        }
                    }
                },
                || {},
            );
            let begun_ns = now();
            stream.arm_write(patience_ns, begun_ns);
            let (wrote, _) = stream.write(vec![0; LENGTH], 0, LENGTH, Some(patience_ns)).await;
            assert_eq!((wrote, stream.expired()), (Ok(()), false), "after {} ms", (now() - begun_ns) / MS);
            assert!(now() > begun_ns + 5 * patience_ns, "the kernel took all of it: nothing was tried");
        });
    }

    #[test]
    fn a_reader_that_takes_nothing_is_cut_one_look_late_at_most() {
        on_both(|| async {
            for hurry in [false, true] {
                hurry_readers(hurry);
                let (mut stream, _peer) = to_small_peer().await;
                let patience_ns = 600 * MS;
                let begun_ns = now();
                stream.arm_write(patience_ns, begun_ns);
                let (wrote, _) = stream.write(vec![0; 64 << 20], 0, 64 << 20, Some(patience_ns)).await;
                assert!(wrote.is_err() && stream.expired());
                let took_ns = now() - begun_ns;
                assert!(took_ns >= patience_ns, "never early: {} ms", took_ns / MS);
                // With a second for a machine that is busy.
                assert!(took_ns < patience_ns + REVISIT_NS + 1_000 * MS, "{} ms", took_ns / MS);
            }
        });
    }

    #[test]
    fn who_takes_little_is_not_waited_for_while_memory_is_short() {
        on_both(|| async {
            hurry_readers(true);
            let (mut stream, mut peer) = to_small_peer().await;
            spawn(
                async move {
                    let mut some = vec![0; 4 << 10];
                    while !matches!(peer.read(&mut some), Ok(0)) {
                        sleep(20 * MS).await;
                    }
                },
                || {},
            );
            let patience_ns = 200 * MS;
            stream.arm_write(patience_ns, now());
            let (wrote, _) = stream.write(vec![0; 16 << 20], 0, 16 << 20, Some(patience_ns)).await;
            assert!(wrote.is_err() && stream.expired());
            hurry_readers(false);
        });
    }

    #[test]
    fn a_peer_that_speaks_and_reads_no_more_ends_the_write_and_is_heard() {
        on_both(|| async {
            let (listener, address) = pair();
            let mut stream = Stream::connect(address, 1_000 * MS).await.unwrap();
            let (mut peer, _) = listener.accept().unwrap();
            let begun_ns = now();
            stream.arm(begun_ns + 9_000 * MS, Cut::Both, begun_ns);
            peer.write_all(b"no").unwrap();
            stream.hear_out(true);
            let length = 64 << 20;
            let (wrote, _) = stream.write(vec![0; length], 0, length, None).await;
            stream.hear_out(false);
            assert!(wrote.is_err_and(|broke| broke.taken > 0) && !stream.expired());
            let (read, buf) = stream.read(Vec::with_capacity(16)).await;
            assert_eq!((read.unwrap(), buf.as_slice()), (2, &b"no"[..]));
        });
    }

    #[test]
    fn what_runs_for_a_peer_that_resets_is_cut() {
        on_both(|| async {
            let (listener, address) = pair();
            let client = Stream::connect(address, 1_000 * MS).await.unwrap();
            let (peer, _) = listener.accept().unwrap();
            let mut work = Stream::connect(address, 1_000 * MS).await.unwrap();
            let (_node, _) = listener.accept().unwrap();
            client.look_after(now());
            client.watch().runs(work.watch());
            peer.shutdown(Shutdown::Write).unwrap();
            sleep(2 * REVISIT_NS).await;
            assert!(!client.watch().gone(), "who ends its writing may still read");
            socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
            drop(peer);
            let begun_ns = now();
            let (read, _) = work.read(Vec::with_capacity(16)).await;
            assert!(matches!(read, Ok(0) | Err(_)) && client.watch().gone());
            assert!(now() - begun_ns < 4 * REVISIT_NS);
        });
    }

    #[test]
    fn a_panic_costs_its_own_task_and_nothing_else() {
        on_both(|| async {
            let told = Rc::new(Cell::new(0));
            for _ in 0..3 {
                let told = told.clone();
                spawn(async { panic!("planted: this test wants a task that panics") }, move || {
                    told.set(told.get() + 1)
                });
            }
            while told.get() < 3 {
                sleep(MS).await;
            }
        });
    }

    #[test]
    fn a_connection_that_spoke_or_closed_is_not_quiet() {
        on_both(|| async {
            let (listener, address) = pair();
            let stream = Stream::connect(address, 1_000 * MS).await.unwrap();
            let (mut peer, _) = listener.accept().unwrap();
            assert!(stream.is_quiet());
            peer.write_all(b"unasked").unwrap();
            while stream.is_quiet() {
                sleep(MS).await;
            }
            let other = Stream::connect(address, 1_000 * MS).await.unwrap();
            drop(listener.accept().unwrap());
            while other.is_quiet() {
                sleep(MS).await;
            }
        });
    }
}
