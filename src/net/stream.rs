//! Connections and listeners, whichever driver looks after them.
//!
//! A read that has begun stays with its stream until somebody takes its bytes: a future that is dropped loses none. A
//! short write goes with the next turn of the ring, together with all others, and nobody is woken for its success;
//! if the kernel does not take all of it, the next read or write of the stream sees to the rest first.

use crate::logic::units::Nanos;
use crate::net::buffers::spent;
use crate::net::ring::{now, sleep, within};
use crate::net::socket::{Rest, Sent, Socket, is_uring, with_uring};
use crate::net::uring::{End, Held, Uring, accepted, read_in};
use crate::net::watch::{Cut, Watch};
use crate::net::wheel::TICK_NS;
use futures_util::future::poll_fn;
use socket2::{Domain, SockAddr, SockRef, Type};
use std::future::Future;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// What is longer is written on its own, with a wait.
pub const SHORT_WRITE: usize = 16 << 10;

/// A read that has begun.
enum Reading {
    No,
    /// On the ring, by its number.
    Begun(usize),
    /// With epoll nothing is under way but the will to.
    Wanted(Vec<u8>),
}

/// What comes first.
enum News {
    Read(io::Result<usize>, Vec<u8>),
    /// The last short write has not found room.
    Unsent,
}

/// How a write ended, and its buffer.
pub type Wrote = (Result<(), WriteBroke>, Vec<u8>);

/// A write that did not end well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteBroke {
    /// Bytes that the kernel had taken before.
    pub taken: usize,
}

/// A connected socket with one deadline.
pub struct Stream {
    socket: Rc<Socket>,
    watch: Rc<Watch>,
    reading: Reading,
    /// How long the peer may take nothing of a short write.
    patience_ns: Option<Nanos>,
    /// A short write broke.
    broke: Option<WriteBroke>,
}

impl Stream {
    fn new(fd: OwnedFd) -> io::Result<Stream> {
        // Small messages must not wait for each other; a socket that refuses is dead and says so on use (or is a Unix
        // socket, which knows no waiting).
        let _ = SockRef::from(&fd).set_tcp_nodelay(true);
        let socket = Socket::new(fd)?;
        let watch = Watch::new(socket.clone());
        Ok(Stream { socket, watch, reading: Reading::No, patience_ns: None, broke: None })
    }

    /// Connects, or says why not: `TimedOut` after `timeout_ns`.
    pub async fn connect(address: SocketAddr, timeout_ns: Nanos) -> io::Result<Stream> {
        let fd: OwnedFd = socket2::Socket::new(Domain::for_address(address), Type::STREAM, None)?.into();
        let stream = Stream::new(fd)?;
        match within(timeout_ns, connected(&stream.socket, address)).await {
            Some(connected) => connected.map(|()| stream),
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
        self.watch.look_after(now_ns);
    }

    /// No deadline until the next `arm`.
    pub fn disarm(&self) {
        self.watch.disarm();
    }

    /// Whether the deadline fired.
    pub fn expired(&self) -> bool {
        self.watch.expired()
    }

    /// Forgets that a read deadline fired, so that an answer to it can have one of its own.
    pub fn forgive(&self) {
        self.watch.forgive();
    }

    /// A handle by which somebody else can cut the socket.
    pub fn watch(&self) -> Rc<Watch> {
        self.watch.clone()
    }

    /// Begins to read into the spare capacity behind `buf`'s contents. What comes waits here for whoever reads next.
    pub fn begin_read(&mut self, buf: Vec<u8>) {
        debug_assert!(buf.capacity() > buf.len(), "nowhere to read to");
        debug_assert!(!self.reads(), "one read at a time");
        self.reading = match is_uring() {
            true => with_uring(|uring| uring.read(&self.socket, buf)).map_or(Reading::No, Reading::Begun),
            false => Reading::Wanted(buf),
        };
    }

    /// Whether a read has begun.
    pub fn reads(&self) -> bool {
        !matches!(self.reading, Reading::No)
    }

    /// Reads once into the spare capacity behind `buf`'s contents; 0 = EOF.
    pub async fn read(&mut self, buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        self.begin_read(buf);
        self.go_on_reading().await
    }

    /// Waits for the read that has begun: its result, and its buffer. An error of an earlier short write is one too;
    /// then there is no buffer.
    pub async fn go_on_reading(&mut self) -> (io::Result<usize>, Vec<u8>) {
        loop {
            match poll_fn(|context| self.poll_news(context)).await {
                News::Read(read, buf) => return (read, buf),
                // Boxed: rare, and its state would make every connection's task larger.
                News::Unsent => match Box::pin(self.send_rest()).await {
                    // Who has seen a part of it may have an answer.
                    Err(broke) if broke.taken == 0 => return (Err(io::ErrorKind::BrokenPipe.into()), Vec::new()),
                    _ => {}
                },
            }
        }
    }

    fn poll_news(&mut self, context: &mut Context<'_>) -> Poll<News> {
        match self.socket.sent.get() {
            Sent::Whole => {}
            Sent::Short | Sent::Broke => return Poll::Ready(News::Unsent),
            // Nothing is heard before it is known what was said: it could be no answer to that.
            Sent::UnderWay => self.socket.tell_writer(context),
        }
        let under_way = self.socket.sent.get() == Sent::UnderWay;
        let polled = match &mut self.reading {
            Reading::No => Poll::Ready((Err(io::ErrorKind::InvalidInput.into()), Vec::new())),
            Reading::Begun(number) => {
                let number = *number;
                let poll = |uring: &mut Uring| match under_way && uring.peek(number).is_some() {
                    true => Poll::Pending,
                    false => uring.poll(number, context),
                };
                with_uring(poll).unwrap_or(Poll::Pending).map(read_end)
            }
            Reading::Wanted(buf) => {
                let read = self.socket.attempt(false, context, |_| self.socket.read_now(buf));
                read.map_or(Poll::Pending, |read| Poll::Ready((read, std::mem::take(buf))))
            }
        };
        polled.map(|(read, buf)| {
            self.reading = Reading::No;
            News::Read(read, buf)
        })
    }

    /// Writes `buf[from..to]`, which is short, with the next turn, and waits for nothing: whoever reads or writes next
    /// meets what became of it. With `patience_ns` that is how long the peer may take nothing of it.
    pub async fn send(&mut self, buf: Vec<u8>, from: usize, to: usize, patience_ns: Option<Nanos>) {
        if self.socket.sent.get() != Sent::Whole {
            // Boxed: rare, as above.
            let _ = Box::pin(self.sent()).await;
        }
        self.patience_ns = patience_ns;
        if self.broke.is_some() {
            return spent(buf);
        }
        if is_uring() {
            with_uring(|uring| uring.send(&self.socket, buf, from, to));
            return;
        }
        match self.socket.write_now(&buf[from..to]) {
            Ok(taken) if taken == to - from => spent(buf),
            wrote => {
                let full = wrote.as_ref().map_or_else(is_for_later, |_| true);
                let at = from + wrote.unwrap_or(0);
                *self.socket.rest.borrow_mut() = Some(Rest { bytes: buf, from, at, to });
                self.socket.sent.set(if full { Sent::Short } else { Sent::Broke });
            }
        }
    }

    /// Waits until the last short write has come to its end.
    ///
    /// # Errors
    /// It broke.
    pub async fn sent(&mut self) -> Result<(), WriteBroke> {
        let socket = self.socket.clone();
        poll_fn(|context| match socket.sent.get() {
            Sent::UnderWay => {
                socket.asked.set(true);
                socket.tell_writer(context);
                Poll::Pending
            }
            _ => Poll::Ready(()),
        })
        .await;
        self.send_rest().await
    }

    /// A short write that broke.
    pub fn broke(&self) -> Option<WriteBroke> {
        self.broke
    }

    /// Sees to what is left of a short write. The deadline that is set meanwhile is set again after it.
    async fn send_rest(&mut self) -> Result<(), WriteBroke> {
        let rest = self.socket.rest.borrow_mut().take();
        let state = self.socket.sent.replace(Sent::Whole);
        let Some(Rest { bytes, from, at, to }) = rest else { return self.broke.map_or(Ok(()), Err) };
        if state == Sent::Broke {
            spent(bytes);
            self.broke = Some(WriteBroke { taken: at - from });
            return Err(WriteBroke { taken: at - from });
        }
        let (deadline_ns, cut) = self.watch.deadline();
        if let Some(patience_ns) = self.patience_ns {
            self.watch.arm_write(patience_ns, now());
        }
        let (wrote, bytes) = self.write_on(bytes, at, to, self.patience_ns).await;
        spent(bytes);
        if self.patience_ns.is_some() && wrote.is_ok() {
            self.watch.arm(deadline_ns, cut, now());
        }
        wrote.map_err(|broke| {
            let broke = WriteBroke { taken: at - from + broke.taken };
            self.broke = Some(broke);
            broke
        })
    }

    /// Writes `buf[from..to]`. An error says how many bytes the kernel had taken. With `patience_ns` the
    /// deadline moves on whenever the peer takes something: it bounds the standstill, not the whole.
    pub async fn write(&mut self, buf: Vec<u8>, from: usize, to: usize, patience_ns: Option<Nanos>) -> Wrote {
        if self.socket.sent.get() != Sent::Whole
            && let Err(_) = Box::pin(self.sent()).await
        {
            return (Err(WriteBroke { taken: 0 }), buf);
        }
        self.write_on(buf, from, to, patience_ns).await
    }

    async fn write_on(&mut self, mut buf: Vec<u8>, from: usize, to: usize, patience_ns: Option<Nanos>) -> Wrote {
        let mut at = from;
        while at < to {
            let (wrote, back) = self.write_once(buf, at, to).await;
            buf = back;
            match wrote {
                Ok(0) => return (Err(WriteBroke { taken: at - from }), buf),
                Ok(n) => {
                    at += n;
                    self.watch.moved_on();
                    if let Some(patience_ns) = patience_ns.filter(|_| at < to) {
                        self.watch.arm_write(patience_ns, now());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return (Err(WriteBroke { taken: at - from }), buf),
            }
        }
        (Ok(()), buf)
    }

    async fn write_once(&self, buf: Vec<u8>, from: usize, to: usize) -> (io::Result<usize>, Vec<u8>) {
        if !is_uring() {
            let write = |context: &mut Context<'_>| {
                let wrote = self.socket.attempt(true, context, |_| self.socket.write_now(&buf[from..to]));
                wrote.map_or(Poll::Pending, Poll::Ready)
            };
            return (poll_fn(write).await, buf);
        }
        match with_uring(|uring| uring.write(&self.socket, buf, from, to)) {
            Some(number) => write_end(Ended { number: Some(number) }.await),
            None => (Err(io::ErrorKind::NotConnected.into()), Vec::new()),
        }
    }

    /// Whether the peer has neither closed nor written anything: only such a connection may be used again.
    pub fn is_quiet(&self) -> bool {
        match self.reading {
            // Whatever came by the last turn has ended the read.
            Reading::Begun(number) if with_uring(|uring| uring.is_under_way(number)) == Some(true) => {
                !self.socket.heard.get()
            }
            _ => self.socket.is_quiet(),
        }
    }

    /// Whether the peer of a connection that is not quiet has said something, and not just ended.
    pub fn has_spoken(&self) -> bool {
        match self.reading {
            Reading::Begun(number) if self.socket.heard.get() => {
                matches!(with_uring(|uring| uring.peek(number)), Some(Some(Ok(read))) if read > 0)
            }
            _ => self.socket.read_now(&mut Vec::with_capacity(1)).is_ok_and(|read| read > 0),
        }
    }

    /// From now on (`false`: no longer) a write ends when the peer speaks and takes nothing for about a second.
    pub fn hear_out(&self, hear: bool) {
        self.watch.hear_out_on(hear);
    }

    /// Reads what is there without waiting, into the spare capacity behind `buf`'s contents; 0 = EOF. Not while a read
    /// has begun.
    pub fn read_now(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        self.socket.read_now(buf)
    }

    /// Writes what the socket takes without waiting; the rest is lost. Not while a short write is under way.
    pub fn write_now(&self, bytes: &[u8]) {
        let _ = self.socket.write_now(bytes);
    }

    /// Tells the peer that nothing more will be written. Not while a short write is under way.
    pub fn finish_writing(&self) {
        debug_assert_eq!(self.socket.sent.get(), Sent::Whole, "what is under way would be lost");
        let _ = SockRef::from(&self.socket.fd).shutdown(Shutdown::Write);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.watch.let_go();
        if let Reading::Begun(number) = self.reading {
            with_uring(|uring| uring.leave(number));
        }
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn read_end((read, held): End) -> (io::Result<usize>, Vec<u8>) {
    let Held::Room(mut buf) = held else { return (Err(io::ErrorKind::InvalidInput.into()), Vec::new()) };
    let read = read.map(|read| {
        read_in(&mut buf, read);
        read as usize
    });
    (read, buf)
}

fn write_end((wrote, held): End) -> (io::Result<usize>, Vec<u8>) {
    let Held::Bytes(buf) = held else { return (Err(io::ErrorKind::InvalidInput.into()), Vec::new()) };
    (wrote.map(|wrote| wrote as usize), buf)
}

/// An operation of the ring that somebody waits for. Dropped, it is cancelled.
struct Ended {
    number: Option<usize>,
}

impl Future for Ended {
    type Output = End;

    fn poll(mut self: Pin<&mut Ended>, context: &mut Context<'_>) -> Poll<End> {
        let Some(number) = self.number else { return Poll::Pending };
        let polled = with_uring(|uring| uring.poll(number, context)).unwrap_or(Poll::Pending);
        if polled.is_ready() {
            self.number = None;
        }
        polled
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            with_uring(|uring| uring.leave(number));
        }
    }
}

async fn connected(socket: &Rc<Socket>, address: SocketAddr) -> io::Result<()> {
    let address = SockAddr::from(address);
    if is_uring() {
        let number = with_uring(|uring| uring.connect(socket, address));
        return Ended { number }.await.0.map(|_| ());
    }
    let mut asked = false;
    let connect = |context: &mut Context<'_>| {
        let connected = socket.attempt(true, context, |socket| {
            if !std::mem::replace(&mut asked, true) {
                return socket.connect(&address);
            }
            if let Some(error) = socket.take_error()? {
                return Err(error);
            }
            match socket.peer_addr() {
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                    Err(io::Error::from_raw_os_error(libc::EINPROGRESS))
                }
                known => known.map(|_| ()),
            }
        });
        connected.map_or(Poll::Pending, Poll::Ready)
    };
    poll_fn(connect).await
}

/// A listening socket of this shard.
pub struct Listener {
    socket: Rc<Socket>,
    watch: Rc<Watch>,
    is_unix: bool,
}

impl Listener {
    /// Takes over a bound, listening socket.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Listener> {
        let is_unix = SockRef::from(&fd).local_addr()?.is_unix();
        let socket = Socket::new(fd)?;
        let watch = Watch::new(socket.clone());
        Ok(Listener { socket, watch, is_unix })
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
            let accepted = self.accept().await;
            match accepted.map(|fd| self.stream(fd)) {
                Ok(Some((stream, peer))) => serve(stream, peer),
                // The peer gave up while it waited: the next one.
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // Too many files are open: without a wait this would be a busy loop.
                Err(_) => sleep(TICK_NS).await,
            }
        }
    }

    async fn accept(&self) -> io::Result<OwnedFd> {
        if is_uring() {
            let number = with_uring(|uring| uring.accept(&self.socket));
            return Ended { number }.await.0.map(accepted);
        }
        let accept = |context: &mut Context<'_>| {
            let accepted = self.socket.attempt(false, context, |socket| socket.accept());
            accepted.map_or(Poll::Pending, |accepted| Poll::Ready(accepted.map(|(socket, _)| socket.into())))
        };
        poll_fn(accept).await
    }

    fn stream(&self, fd: OwnedFd) -> Option<(Stream, Option<SocketAddr>)> {
        let peer = match self.is_unix {
            true => None,
            false => Some(SockRef::from(&fd).peer_addr().ok()?.as_socket()?),
        };
        Some((Stream::new(fd).ok()?, peer))
    }

    /// A handle that ends the accept loop from outside.
    pub fn watch(&self) -> Rc<Watch> {
        self.watch.clone()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.watch.let_go();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::units::MS;
    use crate::net::ring::{Ring, spawn, tick};
    use crate::net::watch::{REVISIT_NS, hurry_readers};
    use std::cell::Cell;
    use std::io::{Read, Write};
    use std::time::Duration;

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
