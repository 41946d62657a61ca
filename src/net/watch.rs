//! Deadlines of sockets: what is cut when, and who is looked after.
//!
//! A deadline shuts the *socket* down, and whatever waits on it ends by itself (EOF or EPIPE): nothing is dropped in
//! flight. Setting one costs a store.

use crate::logic::units::{MS, Nanos};
use crate::net::socket::Socket;
use crate::net::wheel::{NEVER, SLOTS, TICK_NS, Wheel};
use socket2::SockRef;
use std::cell::{Cell, RefCell};
use std::net::Shutdown;
use std::rc::Rc;

/// A deadline that never comes, but is visited all the same.
const ALWAYS: Nanos = u64::MAX - 1;
/// A socket with a deadline is visited at least so often: that is how late a reset of a waiting client is seen.
pub const REVISIT_NS: Nanos = 500 * MS;
/// Nobody has looked yet.
const UNKNOWN: u32 = u32::MAX;

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
    /// `None`: whoever owned it has let it go.
    socket: RefCell<Option<Rc<Socket>>>,
    deadline_ns: Cell<Nanos>,
    visit_ns: Cell<Nanos>,
    cut: Cell<Cut>,
    fired: Cell<bool>,
    gone: Cell<bool>,
    /// While something is written: how long the peer may take nothing. Otherwise 0.
    patience_ns: Cell<Nanos>,
    /// The longest that the deadline after what is written now may be away.
    then_ns: Cell<Nanos>,
    /// Bytes that the peer had not yet taken at the last look.
    untaken: Cell<u32>,
    /// What is cut when this peer is gone.
    running: RefCell<Vec<Rc<Watch>>>,
    /// While something long is written: visits since the peer last took any of it.
    standstill: Cell<Option<u8>>,
}

impl Watch {
    /// Over this socket.
    pub fn new(socket: Rc<Socket>) -> Rc<Watch> {
        Rc::new(Watch {
            socket: RefCell::new(Some(socket)),
            deadline_ns: Cell::new(NEVER),
            visit_ns: Cell::new(NEVER),
            cut: Cell::new(Cut::Both),
            fired: Cell::new(false),
            gone: Cell::new(false),
            patience_ns: Cell::new(0),
            then_ns: Cell::new(NEVER),
            untaken: Cell::new(UNKNOWN),
            running: RefCell::default(),
            standstill: Cell::new(None),
        })
    }

    /// From now on the socket is cut at `deadline_ns`.
    pub fn arm(self: &Rc<Watch>, deadline_ns: Nanos, cut: Cut, now_ns: Nanos) {
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
    pub fn arm_write(self: &Rc<Watch>, patience_ns: Nanos, now_ns: Nanos) {
        self.arm(now_ns.saturating_add(patience_ns), Cut::Both, now_ns);
        self.patience_ns.set(patience_ns);
        self.untaken.set(UNKNOWN);
    }

    /// What was written is: the deadline that was set before is set again.
    pub fn arm_again(self: &Rc<Watch>, deadline_ns: Nanos, cut: Cut, now_ns: Nanos) {
        let most_ns = now_ns.saturating_add(self.then_ns.replace(NEVER));
        self.arm(deadline_ns.min(most_ns), cut, now_ns);
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

    /// Bytes that the peer has not taken, if that can be told.
    fn untaken_now(&self) -> u32 {
        self.on_socket(Socket::untaken).flatten().unwrap_or(UNKNOWN)
    }

    fn on_socket<T>(&self, act: impl FnOnce(&Socket) -> T) -> Option<T> {
        self.socket.borrow().as_deref().map(act)
    }

    /// Brings the deadline forward to `deadline_ns`, if it is later. While something is written, that is the deadline
    /// after it: what is begun comes to its end.
    pub fn hasten(self: &Rc<Watch>, deadline_ns: Nanos, now_ns: Nanos) {
        if self.patience_ns.get() > 0 {
            return self.then_ns.set(deadline_ns.saturating_sub(now_ns));
        }
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
        let gone = self.on_socket(Socket::is_gone).unwrap_or(true);
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
        if visits > 0 && self.on_socket(|socket| !socket.is_quiet()) == Some(true) {
            self.shut(Shutdown::Write);
        }
    }

    /// A listening socket takes no new handshakes from now on; those under way come to their end and are accepted.
    /// The kernel drops each SYN: its client sends it again after a second, to whoever listens by then.
    pub fn no_new_handshakes(&self) {
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
        self.on_socket(|socket| drop(SockRef::from(&socket.fd).attach_filter(&filter)));
    }

    /// Whether connections wait to be accepted by a listening socket.
    pub fn has_callers(&self) -> bool {
        self.on_socket(Socket::has_callers) == Some(true)
    }

    /// Cuts the socket now: whatever waits on it ends.
    pub fn cut(&self, how: Cut) {
        match how {
            Cut::Read => self.shut(Shutdown::Read),
            Cut::Both => self.shut(Shutdown::Both),
            Cut::Look => {}
        }
    }

    fn shut(&self, how: Shutdown) {
        // A socket that the peer has already reset says ENOTCONN; its reader is awake then.
        self.on_socket(|socket| drop(SockRef::from(&socket.fd).shutdown(how)));
    }

    /// Its owner lets the socket go.
    pub fn let_go(&self) {
        let socket = self.socket.borrow_mut().take();
        drop(socket);
    }

    /// No deadline until the next one is set.
    pub fn disarm(&self) {
        self.deadline_ns.set(NEVER);
    }

    /// Whether the deadline fired.
    pub fn expired(&self) -> bool {
        self.fired.get()
    }

    /// Forgets that a deadline fired.
    pub fn forgive(&self) {
        self.fired.set(false);
    }

    /// No deadline, but a look at the peer now and then.
    pub fn look_after(self: &Rc<Watch>, now_ns: Nanos) {
        self.arm(ALWAYS, Cut::Look, now_ns);
    }

    /// The deadline, and what it does.
    pub fn deadline(&self) -> (Nanos, Cut) {
        (self.deadline_ns.get(), self.cut.get())
    }

    /// Something long is written (`false`: no longer), which ends when the peer speaks and takes nothing for about a
    /// second.
    pub fn hear_out_on(&self, hear: bool) {
        self.standstill.set(hear.then_some(0));
    }

    /// The peer took some of what is written.
    pub fn moved_on(&self) {
        self.standstill.set(self.standstill.get().and(Some(0)));
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
        if watch.socket.borrow().is_none() || watch.deadline_ns.get() == NEVER {
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

/// Visits the sockets whose time has come at this tick. Never inlined: by its name `bench/instructions` counts ticks.
#[inline(never)]
pub fn visit(tick: u64, now_ns: Nanos) {
    DEADLINES.with(|deadlines| deadlines.visit(tick, now_ns));
}
