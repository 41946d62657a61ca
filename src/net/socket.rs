//! A socket with what its users know of it, and which of the two drivers looks after it.

#![allow(unsafe_code)]

use crate::net::epoll::Epoll;
use crate::net::uring::Uring;
use socket2::SockRef;
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Waker};

/// What became of the last write that was to end at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The kernel has all of it, or there was none.
    Whole,
    /// It goes with the next turn.
    UnderWay,
    /// The kernel's buffer is full: a rest is left.
    Short,
    /// It failed.
    Broke,
}

/// What is left of a write: `bytes[at..to]`, of `bytes[from..to]`.
pub struct Rest {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Where the write began.
    pub from: usize,
    /// What the kernel has not taken begins here.
    pub at: usize,
    /// And ends here.
    pub to: usize,
}

/// A socket.
pub struct Socket {
    /// Its descriptor.
    pub fd: OwnedFd,
    /// The last write that was to end at once.
    pub sent: Cell<Sent>,
    /// What is left of it.
    pub rest: RefCell<Option<Rest>>,
    /// Whoever writes wants to be told of success too.
    pub asked: Cell<bool>,
    /// A read that nobody has asked for yet has ended.
    pub heard: Cell<bool>,
    reader: RefCell<Option<Waker>>,
    writer: RefCell<Option<Waker>>,
    /// Its number with epoll.
    number: Cell<Option<usize>>,
}

/// The driver of this thread, of which there is one.
#[allow(clippy::large_enum_variant)]
pub enum Driver {
    /// io_uring.
    Uring(Uring),
    /// epoll.
    Epoll(Epoll),
}

thread_local! {
    static DRIVER: RefCell<Option<Driver>> = const { RefCell::new(None) };
    static IS_URING: Cell<bool> = const { Cell::new(false) };
}

/// Makes this the driver of this thread, or takes it away.
pub fn install(driver: Option<Driver>) -> Option<Driver> {
    IS_URING.set(matches!(driver, Some(Driver::Uring(_))));
    DRIVER.replace(driver)
}

/// Whether this thread has a ring.
pub fn is_uring() -> bool {
    IS_URING.get()
}

/// Something to do with the ring; `None` = this thread has none, or is ending.
pub fn with_uring<T>(act: impl FnOnce(&mut Uring) -> T) -> Option<T> {
    let acted = DRIVER.try_with(|driver| match driver.try_borrow_mut().ok()?.as_mut() {
        Some(Driver::Uring(uring)) => Some(act(uring)),
        _ => None,
    });
    acted.ok().flatten()
}

/// Something to do with epoll; `None` as above.
pub fn with_epoll<T>(act: impl FnOnce(&mut Epoll) -> T) -> Option<T> {
    let acted = DRIVER.try_with(|driver| match driver.try_borrow_mut().ok()?.as_mut() {
        Some(Driver::Epoll(epoll)) => Some(act(epoll)),
        _ => None,
    });
    acted.ok().flatten()
}

impl Socket {
    /// Takes a socket over: io_uring wants it to wait, epoll wants it not to.
    pub fn new(fd: OwnedFd) -> io::Result<Rc<Socket>> {
        SockRef::from(&fd).set_nonblocking(!is_uring())?;
        let (sent, number) = (Cell::new(Sent::Whole), Cell::new(None));
        let (rest, reader, writer) = (RefCell::default(), RefCell::default(), RefCell::default());
        let (asked, heard) = (Cell::new(false), Cell::new(false));
        let socket = Rc::new(Socket { fd, sent, rest, asked, heard, reader, writer, number });
        if let Some(number) = with_epoll(|epoll| epoll.add(&socket)) {
            socket.number.set(Some(number?));
        }
        Ok(socket)
    }

    /// Calls into the kernel without waiting. `None` = it has to be waited for, and the waker is woken then.
    pub fn attempt<T>(
        &self,
        writes: bool,
        context: &Context<'_>,
        mut call: impl FnMut(&SockRef<'_>) -> io::Result<T>,
    ) -> Option<io::Result<T>> {
        loop {
            match call(&SockRef::from(&self.fd)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINPROGRESS | libc::EALREADY)) =>
                {
                    let place = if writes { &self.writer } else { &self.reader };
                    *place.borrow_mut() = Some(context.waker().clone());
                    return None;
                }
                done => return Some(done),
            }
        }
    }

    /// Whoever waits for the end of a write is woken when there is news of it.
    pub fn tell_writer(&self, context: &Context<'_>) {
        *self.writer.borrow_mut() = Some(context.waker().clone());
    }

    /// Wakes whoever waits to write.
    pub fn wake_writer(&self) {
        let waker = self.writer.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Wakes whoever waits for anything.
    pub fn wake(&self) {
        self.wake_writer();
        let waker = self.reader.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Reads what is there without waiting, into the spare capacity behind `buf`'s contents; 0 = EOF.
    pub fn read_now(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        let read = SockRef::from(&self.fd).recv_with_flags(buf.spare_capacity_mut(), libc::MSG_DONTWAIT)?;
        // SAFETY: the kernel has written `read` bytes into the spare capacity that it was given.
        unsafe { buf.set_len(buf.len() + read) };
        Ok(read)
    }

    /// Writes what the socket takes without waiting.
    pub fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        SockRef::from(&self.fd).send_with_flags(bytes, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    }

    /// Whether there is nothing to read, and no end either.
    pub fn is_quiet(&self) -> bool {
        if self.heard.get() {
            return false;
        }
        let mut byte = [std::mem::MaybeUninit::<u8>::uninit(); 1];
        let peeked = SockRef::from(&self.fd).recv_with_flags(&mut byte, libc::MSG_PEEK | libc::MSG_DONTWAIT);
        matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Whether the peer has reset the connection, or both have ended it. An end of its writing alone is none.
    pub fn is_gone(&self) -> bool {
        // Asked for nothing, it tells only of a reset and of an end in both directions (poll(2)).
        self.told(0)
    }

    /// Whether connections wait to be accepted, if it listens.
    pub fn has_callers(&self) -> bool {
        self.told(libc::POLLIN)
    }

    /// Whether any of these events is there now, or an error or an end.
    fn told(&self, events: libc::c_short) -> bool {
        let mut asked = libc::pollfd { fd: self.fd.as_raw_fd(), events, revents: 0 };
        // SAFETY: one pollfd that lives across the call, which does not wait.
        unsafe { libc::poll(&raw mut asked, 1, 0) == 1 }
    }

    /// Bytes that were written and that the peer's kernel has not acknowledged.
    pub fn untaken(&self) -> Option<u32> {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the descriptor is open, and the kernel writes one int to where `bytes` is.
        let asked = unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        u32::try_from(bytes).ok().filter(|_| asked == 0)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(number) = self.number.get() {
            with_epoll(|epoll| epoll.forget(number));
        }
    }
}
