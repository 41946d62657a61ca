//! The epoll driver, for kernels and containers that block io_uring: it tells when a socket is worth another try.

use crate::logic::units::Nanos;
use crate::net::socket::Socket;
use rustix::event::{Timespec, epoll};
use slab::Slab;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};

/// Sockets that one turn is told of.
const EVENTS: usize = 1024;

/// What is looked after.
pub struct Epoll {
    fd: OwnedFd,
    events: Vec<epoll::Event>,
    sockets: Slab<Weak<Socket>>,
    /// Room for the sockets of one turn, when it is not in use.
    room: Vec<Rc<Socket>>,
}

impl Epoll {
    /// With nothing to look after.
    pub fn new() -> io::Result<Epoll> {
        let fd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Epoll { fd, events: Vec::with_capacity(EVENTS), sockets: Slab::new(), room: Vec::new() })
    }

    /// Looks after a socket until it is forgotten. Told once per change, so each call is tried before it is waited for.
    pub fn add(&mut self, socket: &Rc<Socket>) -> io::Result<usize> {
        let number = self.sockets.insert(Rc::downgrade(socket));
        let all = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let added = epoll::add(&self.fd, &socket.fd, epoll::EventData::new_u64(number as u64), all);
        if let Err(error) = added {
            self.sockets.remove(number);
            return Err(error.into());
        }
        Ok(number)
    }

    /// The socket is closed: that alone ends epoll's interest in it.
    pub fn forget(&mut self, number: usize) {
        self.sockets.try_remove(number);
    }

    /// The sockets with news, in a list that is to be [kept](Epoll::keep). With `wait`: waits for news, or for `wake_ns`.
    pub fn turn(&mut self, wait: bool, wake_ns: Option<Nanos>, now: fn() -> Nanos) -> Vec<Rc<Socket>> {
        let lasting = |left_ns: Nanos| Timespec {
            tv_sec: (left_ns / 1_000_000_000) as i64,
            tv_nsec: (left_ns % 1_000_000_000) as i64,
        };
        let timeout =
            if wait { wake_ns.map(|wake_ns| lasting(wake_ns.saturating_sub(now()))) } else { Some(lasting(0)) };
        self.events.clear();
        // Interrupted by a signal: the next turn tries again.
        let _ = epoll::wait(&self.fd, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref());
        let told = |event: &epoll::Event| self.sockets.get(event.data.u64() as usize).and_then(Weak::upgrade);
        let mut news = std::mem::take(&mut self.room);
        news.extend(self.events.iter().filter_map(told));
        news
    }

    /// Takes the list of a turn, which is empty by now, back for the next one.
    pub fn keep(&mut self, news: Vec<Rc<Socket>>) {
        self.room = news;
    }
}
