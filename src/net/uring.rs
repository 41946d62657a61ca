//! The io_uring driver: operations on sockets, each ended by one completion.
//!
//! What the kernel may touch lives here until the completion has come, whatever became of whoever began it: the buffer,
//! and the socket itself, whose number must not be given to another one while an operation names it.

#![allow(unsafe_code)]

use crate::logic::units::Nanos;
use crate::net::buffers::spent;
use crate::net::socket::{Rest, Sent, Socket};
use io_uring::types::{Fd, Timespec};
use io_uring::{EnterFlags, IoUring, opcode, squeue};
use slab::Slab;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Operations that can be begun between two turns without a call into the kernel of their own.
const ENTRIES: u32 = 1024;
/// Wait for news first (`IORING_RECVSEND_POLL_FIRST`): hardly ever is there anything when a read begins, and a try that
/// fails costs as much as one that does not. Since Linux 5.19.
const POLL_FIRST: u16 = 1;
/// So many completions in one turn make a busy one.
const BUSY: usize = 5;
/// Completions that nobody waits for.
const OF_NOBODY: u64 = u64::MAX;
const OF_TIMEOUT: u64 = u64::MAX - 1;

/// What an operation works on.
pub enum Held {
    /// Bytes to write from.
    Bytes(Vec<u8>),
    /// Room to read into, behind what is there.
    Room(Vec<u8>),
    /// Where to connect to.
    Address { _at: Box<socket2::SockAddr> },
    /// A descriptor comes out of it.
    Nothing,
    /// The descriptor that has come.
    Accepted(OwnedFd),
}

/// How an operation ended: what the kernel says, and what it worked on.
pub type End = (io::Result<u32>, Held);

struct Operation {
    held: Held,
    socket: Rc<Socket>,
    state: State,
    /// The turn before which it was submitted.
    turn: u32,
}

enum State {
    /// Somebody will ask.
    Begun(Option<Waker>),
    /// The kernel has answered.
    Ended(i32),
    /// Nobody asks any more.
    Left,
    /// A write of these bytes that ends when it is submitted, and of which the socket is told.
    Sent { from: usize, to: usize },
}

/// A ring, and what is under way on it.
pub struct Uring {
    ring: IoUring,
    operations: Slab<Operation>,
    /// Completions that come with the next call into the kernel at once, and so are nothing to be woken for.
    at_once: usize,
    /// When the timeouts fire that are under way, the earliest last.
    timeouts: Vec<Nanos>,
    timespec: Box<Timespec>,
    /// [`POLL_FIRST`], or nothing where the kernel does not know it.
    poll_first: u16,
    /// How often the kernel was entered.
    turns: u32,
    /// What somebody is woken for in this turn.
    woken: usize,
    /// The last turn brought many.
    busy: bool,
    /// Reads that go with the turn after the next. See [`Uring::turn`].
    young: Vec<usize>,
}

impl Uring {
    /// A ring with the cheapest flags that the kernel takes.
    pub fn new() -> io::Result<Uring> {
        let mut best = IoUring::builder();
        // One thread submits, and completions run when it asks: about 15 % less CPU per request.
        best.setup_single_issuer().setup_defer_taskrun();
        let mut ring = best.build(ENTRIES).or_else(|_| IoUring::new(ENTRIES))?;
        let poll_first = if takes_poll_first(&mut ring)? { POLL_FIRST } else { 0 };
        Ok(Uring {
            ring,
            operations: Slab::new(),
            at_once: 0,
            timeouts: Vec::new(),
            timespec: Box::default(),
            poll_first,
            turns: 0,
            woken: 0,
            busy: false,
            young: Vec::new(),
        })
    }

    /// Whether the last turn brought much: who waits then had better wait for the next one too.
    pub fn is_busy(&self) -> bool {
        self.busy
    }

    /// Begins to read into the spare capacity of `bytes`.
    pub fn read(&mut self, socket: &Rc<Socket>, bytes: Vec<u8>) -> usize {
        let (held, state) = (Held::Room(bytes), State::Begun(None));
        let number = self.operations.insert(Operation { held, socket: socket.clone(), state, turn: self.turns });
        match self.busy {
            true => self.young.push(number),
            false => self.push_read(number, self.poll_first),
        }
        number
    }

    fn push_read(&mut self, number: usize, first: u16) {
        let Some(operation) = self.operations.get_mut(number) else { return };
        let Held::Room(bytes) = &mut operation.held else { return };
        operation.turn = self.turns;
        let spare = bytes.spare_capacity_mut();
        let entry = opcode::Recv::new(fd(&operation.socket), spare.as_mut_ptr().cast(), length(spare.len()));
        self.push(&entry.ioprio(first).build().user_data(number as u64));
    }

    /// By now there is something to read, more likely than not.
    fn push_young(&mut self) {
        let mut young = std::mem::take(&mut self.young);
        for number in young.drain(..) {
            self.push_read(number, 0);
        }
        self.young = young;
    }

    /// Whether the kernel knows of an operation: what has come by the last turn would have ended it.
    pub fn is_under_way(&self, number: usize) -> bool {
        self.operations[number].turn != self.turns && !self.young.contains(&number)
    }

    /// Begins to write `bytes[from..to]`, and waits for the peer if need be.
    pub fn write(&mut self, socket: &Rc<Socket>, bytes: Vec<u8>, from: usize, to: usize) -> usize {
        let part = &bytes[from..to];
        let entry = opcode::Send::new(fd(socket), part.as_ptr(), length(part.len())).flags(libc::MSG_NOSIGNAL).build();
        self.begin(socket, Held::Bytes(bytes), entry, State::Begun(None))
    }

    /// Writes what the kernel takes of `bytes[from..to]` at once, with the next turn. Only if that is not all of it, the
    /// socket is told; nobody is woken for success.
    pub fn send(&mut self, socket: &Rc<Socket>, bytes: Vec<u8>, from: usize, to: usize) {
        let part = &bytes[from..to];
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        let entry = opcode::Send::new(fd(socket), part.as_ptr(), length(part.len())).flags(flags).build();
        socket.sent.set(Sent::UnderWay);
        self.begin(socket, Held::Bytes(bytes), entry, State::Sent { from, to });
        self.at_once += 1;
    }

    /// Begins to accept one connection.
    pub fn accept(&mut self, socket: &Rc<Socket>) -> usize {
        let (address, bytes) = (std::ptr::null_mut(), std::ptr::null_mut());
        let entry = opcode::Accept::new(fd(socket), address, bytes).flags(libc::SOCK_CLOEXEC).build();
        self.begin(socket, Held::Nothing, entry, State::Begun(None))
    }

    /// Begins to connect.
    pub fn connect(&mut self, socket: &Rc<Socket>, address: socket2::SockAddr) -> usize {
        let address = Box::new(address);
        let entry = opcode::Connect::new(fd(socket), address.as_ptr().cast(), address.len()).build();
        self.begin(socket, Held::Address { _at: address }, entry, State::Begun(None))
    }

    fn begin(&mut self, socket: &Rc<Socket>, held: Held, entry: squeue::Entry, state: State) -> usize {
        let number = self.operations.insert(Operation { held, socket: socket.clone(), state, turn: self.turns });
        self.push(&entry.user_data(number as u64));
        number
    }

    fn push(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: what the entry points to is a heap allocation held in `operations` (or `timespec`), where it
            // stays, unmoved and untouched, until the entry's completion has been taken from the ring. The descriptor
            // stays open for the same time, since its socket is held there too.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return;
            }
            // Full. Completions that have no room keep it full: they are taken first.
            if self.ring.submit().is_err() {
                self.take_completions();
            }
        }
    }

    /// Whether an operation has ended; if not, its waker is woken when it has.
    pub fn poll(&mut self, number: usize, context: &mut Context<'_>) -> Poll<End> {
        match &mut self.operations[number].state {
            State::Begun(waker) => {
                if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                    *waker = Some(context.waker().clone());
                }
                Poll::Pending
            }
            State::Ended(code) => {
                let code = *code;
                let Operation { held, socket, .. } = self.operations.remove(number);
                socket.heard.set(false);
                Poll::Ready((outcome(code), brought(held, code)))
            }
            State::Left | State::Sent { .. } => Poll::Pending,
        }
    }

    /// Whether an operation has ended, and with what.
    pub fn peek(&self, number: usize) -> Option<io::Result<u32>> {
        match self.operations[number].state {
            State::Ended(code) => Some(outcome(code)),
            _ => None,
        }
    }

    /// Nobody will ask for this operation. It is cancelled; what it holds is let go when the kernel has done with it.
    pub fn leave(&mut self, number: usize) {
        let operation = &mut self.operations[number];
        if let State::Ended(code) = operation.state {
            let operation = self.operations.remove(number);
            let_go(operation, code);
            return;
        }
        if self.young.contains(&number) {
            // The kernel has never heard of it.
            self.young.retain(|young| *young != number);
            let operation = self.operations.remove(number);
            return let_go(operation, -libc::ECANCELED);
        }
        operation.state = State::Left;
        let cancel = opcode::AsyncCancel::new(number as u64).build().user_data(OF_NOBODY);
        self.push(&cancel);
    }

    /// Submits what was begun, and takes what has ended. With `wait`: waits for something to end, or for `wake_ns`.
    ///
    /// A read that begins in a busy turn is submitted one turn later, when its bytes have mostly come: to be woken for
    /// them would cost as much again as to read them. Nobody waits longer for that, since a ring that has nothing else
    /// to do submits it before it sleeps.
    pub fn turn(&mut self, wait: bool, wake_ns: Option<Nanos>, now: fn() -> Nanos) {
        if let Some(wake_ns) = wake_ns.filter(|_| wait) {
            self.wake_at(wake_ns, now);
        }
        if self.busy || !wait {
            self.enter(0);
            self.push_young();
            self.busy = self.woken >= BUSY;
            if self.woken > 0 || !wait {
                return;
            }
        }
        self.enter(self.at_once + 1);
        self.busy = self.woken >= BUSY;
    }

    fn enter(&mut self, wanted: usize) {
        let (submitted, flags) = (self.ring.submission().len() as u32, EnterFlags::GETEVENTS.bits());
        let ring = self.ring.submitter();
        // Interrupted by a signal, or short of memory for a moment: the next turn tries again.
        // SAFETY: no argument is passed, and all entries up to the tail are whole.
        let _ = unsafe { ring.enter::<libc::sigset_t>(submitted, wanted as u32, flags, None) };
        self.turns = self.turns.wrapping_add(1);
        self.woken = 0;
        self.take_completions();
    }

    /// One timeout serves all turns until it fires: a wait of its own in each turn would set a timer each time.
    fn wake_at(&mut self, wake_ns: Nanos, now: fn() -> Nanos) {
        if self.timeouts.last().is_some_and(|earliest_ns| *earliest_ns <= wake_ns) {
            return;
        }
        let left_ns = wake_ns.saturating_sub(now());
        *self.timespec = Timespec::new().sec(left_ns / 1_000_000_000).nsec((left_ns % 1_000_000_000) as u32);
        let entry = opcode::Timeout::new(&raw const *self.timespec).build().user_data(OF_TIMEOUT);
        // The kernel reads the timespec when the entry is submitted, which the turn does before it is changed again; if
        // it failed, both fire at the earlier time.
        self.push(&entry);
        self.timeouts.push(wake_ns);
    }

    /// Takes what has ended by now.
    pub fn take_completions(&mut self) {
        loop {
            let Some(entry) = self.ring.completion().next() else { return };
            match entry.user_data() {
                OF_NOBODY => {}
                OF_TIMEOUT => {
                    self.timeouts.pop();
                    self.woken += 1;
                }
                number => self.complete(number as usize, entry.result()),
            }
        }
    }

    fn complete(&mut self, number: usize, code: i32) {
        let Some(operation) = self.operations.get_mut(number) else { return };
        match &mut operation.state {
            State::Begun(waker) => {
                self.woken += 1;
                let waker = waker.take();
                operation.state = State::Ended(code);
                if let Held::Room(_) = operation.held {
                    operation.socket.heard.set(true);
                }
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            State::Sent { from, to } => {
                let (from, to) = (*from, *to);
                let Operation { held, socket, .. } = self.operations.remove(number);
                self.at_once = self.at_once.saturating_sub(1);
                if let Held::Bytes(bytes) = held {
                    self.woken += usize::from(told(&socket, code, bytes, from, to));
                }
            }
            State::Left => {
                let operation = self.operations.remove(number);
                let_go(operation, code);
            }
            State::Ended(_) => {}
        }
    }
}

/// Whether this kernel reads with [`POLL_FIRST`]: one byte over a pair of sockets tells.
fn takes_poll_first(ring: &mut IoUring) -> io::Result<bool> {
    let (mut here, there) = UnixStream::pair()?;
    here.write_all(b"?")?;
    // Leaked where the ring fails: then nobody knows whether the kernel still writes to it.
    let room: &'static mut [u8; 1] = Box::leak(Box::default());
    let entry = opcode::Recv::new(Fd(there.as_raw_fd()), room.as_mut_ptr(), 1).ioprio(POLL_FIRST).build();
    // SAFETY: the byte is never freed before the completion has come, and `there` is open until then.
    unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
    while let Err(error) = ring.submit_and_wait(1) {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let read = ring.completion().next().map(|entry| entry.result());
    // SAFETY: made by Box::leak above, and the kernel's one operation on it is over.
    drop(unsafe { Box::from_raw(room) });
    Ok(read == Some(1))
}

/// What a socket learns of a write that ended at once. `true` = somebody is woken for it.
fn told(socket: &Rc<Socket>, code: i32, bytes: Vec<u8>, from: usize, to: usize) -> bool {
    let taken = usize::try_from(code).unwrap_or(0);
    if taken == to - from {
        socket.sent.set(Sent::Whole);
        // Of success only those are told who wait for it, or have already heard more.
        let asked = socket.asked.take() || socket.heard.get();
        if asked {
            socket.wake_writer();
        }
        spent(bytes);
        return asked;
    }
    let full = code >= 0 || matches!(-code, libc::EAGAIN | libc::EINTR);
    let rest = Rest { bytes, from, at: from + taken, to };
    *socket.rest.borrow_mut() = Some(rest);
    socket.sent.set(if full { Sent::Short } else { Sent::Broke });
    socket.wake_writer();
    true
}

/// An operation that nobody asks for is over.
fn let_go(operation: Operation, code: i32) {
    match operation.held {
        // SAFETY: a successful accept made this descriptor, and nobody else knows it.
        Held::Nothing if code >= 0 => drop(unsafe { OwnedFd::from_raw_fd(code) }),
        Held::Bytes(bytes) | Held::Room(bytes) => spent(bytes),
        Held::Nothing | Held::Address { .. } | Held::Accepted(_) => {}
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // The kernel may still write to what is held: it is never given back.
        for operation in self.operations.drain() {
            match operation.state {
                State::Ended(code) => let_go(operation, code),
                _ => {
                    let _ = ManuallyDrop::new(operation.held);
                }
            }
        }
    }
}

fn fd(socket: &Rc<Socket>) -> Fd {
    Fd(socket.fd.as_raw_fd())
}

/// No operation moves more than fits the kernel's answer.
fn length(bytes: usize) -> u32 {
    bytes.min(i32::MAX as usize) as u32
}

fn outcome(code: i32) -> io::Result<u32> {
    u32::try_from(code).map_err(|_| io::Error::from_raw_os_error(-code))
}

/// What an operation that ended with this code has made of what it worked on.
fn brought(held: Held, code: i32) -> Held {
    match (held, usize::try_from(code)) {
        (Held::Room(mut bytes), Ok(read)) => {
            let filled = bytes.len() + read;
            debug_assert!(filled <= bytes.capacity());
            // SAFETY: the kernel has written `read` bytes behind the contents, into the spare capacity that it was told
            // of, and nobody had the buffer meanwhile.
            unsafe { bytes.set_len(filled) };
            Held::Room(bytes)
        }
        // SAFETY: a successful accept made this descriptor, its completion is taken once, and nobody else knows it.
        (Held::Nothing, Ok(_)) => Held::Accepted(unsafe { OwnedFd::from_raw_fd(code) }),
        (held, _) => held,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::ring::now;
    use futures_util::task::noop_waker;
    use std::io::Read;

    const MS: Nanos = 1_000_000;

    fn socket() -> (Rc<Socket>, UnixStream) {
        let (here, there) = UnixStream::pair().unwrap();
        there.set_nonblocking(true).unwrap();
        (Socket::new(here.into()).unwrap(), there)
    }

    fn peer_reads(peer: &mut UnixStream) -> Vec<u8> {
        let mut got = vec![0; 64 << 10];
        let read = peer.read(&mut got).unwrap_or(0);
        got.truncate(read);
        got
    }

    #[test]
    fn more_operations_than_the_ring_has_room_for() {
        const MANY: usize = 3 * ENTRIES as usize;
        let mut uring = Uring::new().unwrap();
        let (socket, mut peer) = socket();
        let reads: Vec<usize> = (0..MANY).map(|_| uring.read(&socket, Vec::with_capacity(1))).collect();
        uring.turn(false, None, now);
        let bytes: Vec<u8> = (0..MANY).map(|at| (at % 251) as u8).collect();
        peer.write_all(&bytes).unwrap();
        let waker = noop_waker();
        let mut context = Context::from_waker(&waker);
        let mut got = Vec::new();
        for number in reads {
            loop {
                match uring.poll(number, &mut context) {
                    Poll::Ready((read, Held::Room(buf))) => {
                        assert_eq!((read.unwrap(), buf.capacity()), (1, 1));
                        got.push(buf.first().copied());
                        break;
                    }
                    _ => uring.turn(true, Some(now() + 1_000 * MS), now),
                }
            }
        }
        assert_eq!((got.len(), uring.operations.len()), (MANY, 0));
    }

    #[test]
    fn many_short_writes_go_in_order_and_none_is_waited_for_in_vain() {
        const MANY: usize = 3 * ENTRIES as usize;
        let mut uring = Uring::new().unwrap();
        let sockets: Vec<_> = (0..4).map(|_| socket()).collect();
        for at in 0..MANY {
            uring.send(&sockets[at % 4].0, vec![(at / 4 % 251) as u8], 0, 1);
        }
        let begun_ns = now();
        uring.turn(true, Some(begun_ns + 50 * MS), now);
        while uring.at_once > 0 {
            uring.turn(true, Some(now() + 50 * MS), now);
        }
        assert!(now() < begun_ns + 2_000 * MS && uring.operations.is_empty());
        for (socket, mut peer) in sockets {
            // Stream sockets of Unix count buffers: what did not fit is left with the socket, and nothing is lost.
            let got = peer_reads(&mut peer);
            let expected: Vec<u8> = (0..MANY / 4).map(|at| (at % 251) as u8).collect();
            assert!(expected.starts_with(&got) && !got.is_empty());
            assert_eq!(socket.rest.borrow().is_some(), got.len() < expected.len());
        }
    }

    #[test]
    fn a_timeout_that_came_first_leaves_the_others_in_place() {
        let mut uring = Uring::new().unwrap();
        let (socket, mut peer) = socket();
        let begun_ns = now();
        // Each wait is ended by a byte, or by its time.
        for (after, speaks) in [(60, true), (30, true), (30, false), (60, false), (90, false)] {
            let number = uring.read(&socket, Vec::with_capacity(1));
            if speaks {
                peer.write_all(b"x").unwrap();
            }
            let wake_ns = begun_ns + after * MS;
            while uring.peek(number).is_none() && now() < wake_ns {
                uring.turn(true, Some(wake_ns), now);
            }
            assert_eq!(uring.peek(number).is_some(), speaks);
            uring.leave(number);
            let pending: Vec<Nanos> = uring.timeouts.iter().map(|at_ns| (at_ns - begun_ns) / MS).collect();
            match (after, speaks) {
                (60, true) | (30, false) => assert_eq!(pending, [60]),
                (30, true) => assert_eq!(pending, [60, 30]),
                _ => assert_eq!(pending, [] as [Nanos; 0]),
            }
        }
    }

    #[test]
    fn what_an_accept_brought_is_closed_if_nobody_asks_for_it() {
        let mut uring = Uring::new().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let socket = Socket::new(listener.into()).unwrap();
        for turns in [0, 3] {
            let number = uring.accept(&socket);
            uring.turn(false, None, now);
            let mut caller = std::net::TcpStream::connect(address).unwrap();
            (0..turns).for_each(|_| uring.turn(false, None, now));
            uring.leave(number);
            while !uring.operations.is_empty() {
                uring.turn(true, Some(now() + 10 * MS), now);
            }
            if turns > 0 {
                caller.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
                assert!(matches!(caller.read(&mut [0]), Ok(0) | Err(_)));
            }
        }
        let number = uring.accept(&socket);
        uring.turn(false, None, now);
        let mut caller = std::net::TcpStream::connect(address).unwrap();
        caller.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        // The one whose accept was cancelled is still in the queue, and comes first.
        while uring.peek(number).is_none() {
            uring.turn(true, Some(now() + 1_000 * MS), now);
        }
        drop((uring, socket));
        let error = caller.read(&mut [0]);
        assert!(matches!(&error, Ok(0)) || error.is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock));
    }
}
