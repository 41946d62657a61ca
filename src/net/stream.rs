//! Connections and listeners, whichever driver looks after them.
//!
//! A read that has begun stays with its stream until somebody takes its bytes: a future that is dropped loses none. A
//! short write goes with the next turn of the ring, together with all others, and nobody is woken for its success;
//! if the kernel does not take all of it, the next read or write of the stream sees to the rest first.

use crate::logic::units::Nanos;
use crate::net::buffers::spent;
use crate::net::ring::{now, sleep, within};
use crate::net::socket::{Rest, Sent, Socket, is_uring, with_uring};
use crate::net::uring::{End, Held, Uring};
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
    /// A write broke, or nobody waited for its end: a part of it may have gone out, and nothing follows it.
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
                    Err(broke) if broke.taken == 0 => {
                        self.stop_reading();
                        return (Err(io::ErrorKind::BrokenPipe.into()), Vec::new());
                    }
                    _ => {}
                },
            }
        }
    }

    /// What a read that has begun brings is of no use any more.
    fn stop_reading(&mut self) {
        match std::mem::replace(&mut self.reading, Reading::No) {
            Reading::Begun(number) => drop(with_uring(|uring| uring.leave(number))),
            Reading::Wanted(buf) => spent(buf),
            Reading::No => {}
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

    /// A write that broke: nothing is written any more.
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
            return Err(self.breaks(at - from));
        }
        let (deadline_ns, cut) = self.watch.deadline();
        if let Some(patience_ns) = self.patience_ns {
            self.watch.arm_write(patience_ns, now());
        }
        let (wrote, bytes) = self.write_on(bytes, at, to, self.patience_ns).await;
        spent(bytes);
        if self.patience_ns.is_some() && wrote.is_ok() {
            self.watch.arm_again(deadline_ns, cut, now());
        }
        wrote.map_err(|broke| self.breaks(at - from + broke.taken))
    }

    fn breaks(&mut self, taken: usize) -> WriteBroke {
        *self.broke.insert(WriteBroke { taken })
    }

    /// Writes `buf[from..to]`. An error says how many bytes the kernel had taken. With `patience_ns` the
    /// deadline moves on whenever the peer takes something: it bounds the standstill, not the whole.
    pub async fn write(&mut self, buf: Vec<u8>, from: usize, to: usize, patience_ns: Option<Nanos>) -> Wrote {
        if self.socket.sent.get() != Sent::Whole {
            let _ = Box::pin(self.sent()).await;
        }
        if self.broke.is_some() {
            return (Err(WriteBroke { taken: 0 }), buf);
        }
        self.write_on(buf, from, to, patience_ns).await
    }

    async fn write_on(&mut self, mut buf: Vec<u8>, from: usize, to: usize, patience_ns: Option<Nanos>) -> Wrote {
        let mut at = from;
        // So it stays if this future is dropped.
        self.breaks(to - from);
        while at < to {
            let (wrote, back) = self.write_once(buf, at, to).await;
            buf = back;
            match wrote {
                Ok(0) => return (Err(self.breaks(at - from)), buf),
                Ok(n) => {
                    at += n;
                    self.watch.moved_on();
                    if let Some(patience_ns) = patience_ns.filter(|_| at < to) {
                        self.watch.arm_write(patience_ns, now());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return (Err(self.breaks(at - from)), buf),
            }
        }
        self.broke = None;
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

    /// As [`Stream::is_quiet`], but knows what has come since the last turn too, for a call into the kernel.
    pub fn is_surely_quiet(&self) -> bool {
        let quiet = self.socket.is_quiet();
        // Asked first: what the kernel had moved to the read by then has ended it.
        with_uring(Uring::take_completions);
        quiet && !self.socket.heard.get()
    }

    /// Whether the peer of a connection that is not quiet has said something, and not just ended. It is used no more.
    pub fn has_spoken(&self) -> bool {
        let ended = match self.reading {
            Reading::Begun(number) => with_uring(|uring| uring.peek(number)).flatten(),
            _ => None,
        };
        let read = ended.map(|read| read.map(|read| read as usize));
        let read = read.unwrap_or_else(|| self.socket.read_now(&mut Vec::with_capacity(1)));
        read.is_ok_and(|read| read > 0)
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
        self.stop_reading();
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn read_end((read, held): End) -> (io::Result<usize>, Vec<u8>) {
    let Held::Room(buf) = held else { return (Err(io::ErrorKind::InvalidInput.into()), Vec::new()) };
    (read.map(|read| read as usize), buf)
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
            let ended = Ended { number };
            return match ended.await {
                (Ok(_), Held::Accepted(fd)) => Ok(fd),
                (accepted, _) => Err(accepted.err().unwrap_or_else(|| io::ErrorKind::InvalidInput.into())),
            };
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
pub(super) mod tests {
    use super::*;
    use crate::logic::units::MS;
    use crate::net::ring::{Ring, spawn, tick};
    use crate::net::watch::{REVISIT_NS, hurry_readers};
    use std::cell::Cell;
    use std::io::{Read, Write};
    use std::pin::pin;
    use std::time::Duration;

    /// Runs a test on both drivers, with deadlines looked after.
    pub fn on_both<F: Future<Output = ()> + 'static>(test: impl Fn() -> F) {
        for ring in [Ring::io_uring(), Ring::epoll()] {
            let mut ring = ring.expect("both drivers are to be had where tests run");
            ring.block_on(async {
                let (done, panicked) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
                let (seen, broken, body) = (done.clone(), panicked.clone(), test());
                spawn(
                    async move {
                        body.await;
                        done.set(true);
                    },
                    move || panicked.set(true),
                );
                let until_ns = now() + 10_000 * MS;
                tick(|now_ns| !seen.get() && !broken.get() && now_ns < until_ns).await;
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

    /// A connection, and its peer, which does not wait.
    pub async fn connected_to() -> (Stream, std::net::TcpStream) {
        let (listener, address) = pair();
        let stream = Stream::connect(address, 1_000 * MS).await.unwrap();
        let (peer, _) = listener.accept().unwrap();
        peer.set_nonblocking(true).unwrap();
        (stream, peer)
    }

    /// Writes until the kernel takes no more: whatever is written next finds no room.
    async fn fill(stream: &Stream) -> usize {
        SockRef::from(&stream.socket.fd).set_send_buffer_size(16 << 10).unwrap();
        let (mut filled, mut full) = (0, 0);
        // What reaches the peer's buffer makes room once more.
        while full < 5 {
            full += 1;
            for length in [4 << 10, 1] {
                while let Ok(taken) = stream.socket.write_now(&vec![b'.'; length]) {
                    (filled, full) = (filled + taken, 0);
                }
            }
            sleep(10 * MS).await;
        }
        filled
    }

    /// Reads what comes to `peer`, until it ends or `bytes` are there.
    async fn all(peer: &mut std::net::TcpStream, bytes: usize) -> Vec<u8> {
        let (mut got, mut some) = (Vec::new(), vec![0; 64 << 10]);
        while got.len() < bytes {
            match peer.read(&mut some) {
                Ok(0) => break,
                Ok(read) => got.extend_from_slice(&some[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(MS).await,
                Err(_) => break,
            }
        }
        got
    }

    #[test]
    fn a_read_that_was_dropped_loses_no_byte() {
        on_both(|| async {
            let (mut stream, mut peer) = connected_to().await;
            assert!(within(20 * MS, stream.read(Vec::with_capacity(16))).await.is_none());
            peer.write_all(b"abc").unwrap();
            // It ends while nobody waits for it.
            sleep(20 * MS).await;
            assert!(stream.reads() && !stream.is_quiet() && stream.has_spoken());
        });
        on_both(|| async {
            let (mut stream, mut peer) = connected_to().await;
            assert!(within(20 * MS, stream.read(Vec::with_capacity(16))).await.is_none());
            peer.write_all(b"abc").unwrap();
            sleep(20 * MS).await;
            let (read, buf) = stream.go_on_reading().await;
            assert_eq!((read.unwrap(), buf.as_slice()), (3, &b"abc"[..]));
            assert!(!stream.reads() && stream.is_quiet());
        });
    }

    #[test]
    fn short_writes_go_out_in_order() {
        on_both(|| async {
            let (mut stream, mut peer) = connected_to().await;
            stream.send(b"..one".to_vec(), 2, 5, None).await;
            stream.send(b"two.".to_vec(), 0, 3, None).await;
            let (wrote, _) = stream.write(b"three".to_vec(), 0, 5, None).await;
            assert_eq!((wrote, stream.sent().await, stream.broke()), (Ok(()), Ok(()), None));
            assert_eq!(all(&mut peer, 11).await, b"onetwothree");
        });
    }

    #[test]
    fn what_found_no_room_goes_out_once_there_is_some() {
        on_both(|| async {
            let (mut stream, mut peer) = connected_to().await;
            let filled = fill(&stream).await;
            let idle_ns = now() + 60_000 * MS;
            stream.arm(idle_ns, Cut::Read, now());
            stream.send(b"first".to_vec(), 0, 5, Some(5_000 * MS)).await;
            spawn(
                async move {
                    let got = all(&mut peer, filled + 5).await;
                    assert_eq!(&got[filled..], b"first");
                    peer.write_all(b"ok").unwrap();
                    let got = all(&mut peer, 11).await;
                    assert_eq!(got, b"secondthird");
                    peer.write_all(b"bye").unwrap();
                    sleep(1_000 * MS).await;
                },
                || {},
            );
            // Whoever reads sees to it, and has its own deadline again.
            let (read, buf) = stream.read(Vec::with_capacity(16)).await;
            assert_eq!((read.unwrap(), buf.as_slice()), (2, &b"ok"[..]));
            assert_eq!(stream.watch.deadline(), (idle_ns, Cut::Read));
            stream.send(b"second".to_vec(), 0, 6, Some(5_000 * MS)).await;
            stream.send(b"third".to_vec(), 0, 5, Some(5_000 * MS)).await;
            let (read, buf) = stream.read(Vec::with_capacity(16)).await;
            assert_eq!((read.unwrap(), buf.as_slice(), stream.broke()), (3, &b"bye"[..], None));
        });
    }

    #[test]
    fn of_a_short_write_without_room_nothing_was_taken() {
        on_both(|| async {
            let (mut stream, mut peer) = connected_to().await;
            let filled = fill(&stream).await;
            let begun_ns = now();
            stream.send(b"late".to_vec(), 0, 4, Some(50 * MS)).await;
            let (read, _) = stream.read(Vec::with_capacity(16)).await;
            assert!(read.is_err() && stream.expired() && now() >= begun_ns + 50 * MS);
            assert_eq!(stream.broke(), Some(WriteBroke { taken: 0 }));
            assert!(!stream.reads(), "nobody asks for a read whose buffer was not given back");
            let (wrote, _) = stream.write(b"later".to_vec(), 0, 5, None).await;
            assert_eq!(wrote, Err(WriteBroke { taken: 0 }));
            drop(stream);
            assert_eq!(all(&mut peer, usize::MAX).await.len(), filled);
        });
    }

    #[test]
    fn what_came_while_something_was_written_is_read_after_it() {
        on_both(|| async {
            let (mut stream, mut peer) = connected_to().await;
            let filled = fill(&stream).await;
            let writer = async {
                let (wrote, _) = stream.write(vec![b','; 100_000], 0, 100_000, None).await;
                assert_eq!(wrote, Ok(()));
                within(1_000 * MS, stream.read(Vec::with_capacity(16))).await.map(|(read, _)| read.unwrap())
            };
            let slow = async {
                sleep(20 * MS).await;
                peer.write_all(b"early").unwrap();
                sleep(20 * MS).await;
                all(&mut peer, filled + 100_000).await.len()
            };
            let (read, got) = futures_util::future::join(writer, slow).await;
            assert_eq!((read, got), (Some(5), filled + 100_000));
        });
    }

    #[test]
    fn whoever_is_to_end_gets_the_rest_of_its_answer_first() {
        on_both(|| async {
            let (mut stream, mut peer) = connected_to().await;
            let filled = fill(&stream).await;
            stream.arm(now() + 60_000 * MS, Cut::Read, now());
            stream.send(b"rest".to_vec(), 0, 4, Some(5_000 * MS)).await;
            let watch = stream.watch();
            let reader = async {
                let (read, _) = stream.read(Vec::with_capacity(16)).await;
                (read.unwrap(), stream.expired())
            };
            let slow = async {
                sleep(20 * MS).await;
                watch.hasten(now() + 100 * MS, now());
                sleep(2 * REVISIT_NS).await;
                all(&mut peer, filled + 4).await
            };
            let (ended, got) = futures_util::future::join(reader, slow).await;
            assert_eq!(&got[filled..], b"rest");
            assert_eq!(ended, (0, true), "and then it ends");
        });
    }

    #[test]
    fn a_short_write_to_nobody_breaks() {
        on_both(|| async {
            let (mut stream, _peer) = connected_to().await;
            stream.finish_writing();
            stream.send(b"late".to_vec(), 0, 4, None).await;
            assert_eq!(stream.sent().await, Err(WriteBroke { taken: 0 }));
            stream.send(b"later".to_vec(), 0, 5, None).await;
            assert_eq!((stream.sent().await, stream.broke()), (Err(WriteBroke { taken: 0 }), stream.broke));
        });
    }

    #[test]
    fn after_a_short_write_that_broke_nothing_else_is_written() {
        on_both(|| async {
            let (mut stream, mut peer) = connected_to().await;
            // The kernel was short of memory, and is no more.
            stream.socket.rest.replace(Some(Rest { bytes: b"answer".to_vec(), from: 0, at: 3, to: 6 }));
            stream.socket.sent.set(Sent::Broke);
            stream.send(b"next".to_vec(), 0, 4, None).await;
            assert_eq!(stream.broke(), Some(WriteBroke { taken: 3 }));
            let (wrote, _) = stream.write(b"long".to_vec(), 0, 4, None).await;
            assert_eq!(wrote, Err(WriteBroke { taken: 0 }));
            drop(stream);
            assert_eq!(all(&mut peer, usize::MAX).await, b"");
        });
    }

    #[test]
    fn nothing_is_written_behind_a_rest_that_was_given_up() {
        on_both(|| async {
            let (mut stream, mut peer) = connected_to().await;
            let filled = fill(&stream).await;
            stream.send(b"rest".to_vec(), 0, 4, None).await;
            assert!(within(30 * MS, stream.read(Vec::with_capacity(16))).await.is_none());
            let reader = async move {
                sleep(10 * MS).await;
                all(&mut peer, usize::MAX).await
            };
            let writer = async move {
                stream.send(b"next".to_vec(), 0, 4, None).await;
                let (wrote, _) = stream.write(b"last".to_vec(), 0, 4, None).await;
                assert!(wrote.is_err() && stream.broke().is_some_and(|broke| broke.taken > 0));
            };
            let (got, ()) = futures_util::future::join(reader, writer).await;
            assert!(b"rest".starts_with(&got[filled..]), "{:?}", &got[filled..]);
        });
    }

    #[test]
    fn nothing_is_heard_before_it_is_known_what_was_said() {
        on_both(|| async {
            let (mut stream, mut peer) = connected_to().await;
            stream.begin_read(Vec::with_capacity(16));
            peer.write_all(b"early").unwrap();
            while stream.is_quiet() {
                sleep(MS).await;
            }
            stream.send(b"asked".to_vec(), 0, 5, None).await;
            let mut polls = 0;
            let (read, buf) = {
                let mut reading = pin!(stream.go_on_reading());
                poll_fn(|context| {
                    polls += 1;
                    reading.as_mut().poll(context)
                })
                .await
            };
            assert_eq!((read.unwrap(), buf.as_slice()), (5, &b"early"[..]));
            assert_eq!(polls, if is_uring() { 2 } else { 1 });
            assert_eq!(all(&mut peer, 5).await, b"asked");
        });
    }

    #[test]
    fn a_socket_stays_open_while_the_kernel_works_on_it_and_no_longer() {
        on_both(|| async {
            let (mut stream, mut peer) = connected_to().await;
            let at = Rc::downgrade(&stream.socket);
            stream.begin_read(Vec::with_capacity(16));
            sleep(MS).await;
            drop(stream);
            assert_eq!(at.upgrade().is_some(), is_uring(), "its number must not be another's meanwhile");
            let begun_ns = now();
            assert_eq!(all(&mut peer, 1).await, b"", "closed");
            assert!(at.upgrade().is_none() && now() < begun_ns + 1_000 * MS);
        });
    }

    #[test]
    fn whoever_gets_the_number_of_a_read_that_was_left_gets_all_of_its_own() {
        on_both(|| async {
            for round in 0..50_u8 {
                let (mut left, _left_peer) = connected_to().await;
                left.begin_read(Vec::with_capacity(16));
                sleep(u64::from(round % 2)).await;
                let (mut stream, mut peer) = connected_to().await;
                drop(left);
                stream.begin_read(Vec::with_capacity(16));
                let (mut other, mut other_peer) = connected_to().await;
                other.begin_read(Vec::with_capacity(16));
                peer.write_all(&[round]).unwrap();
                other_peer.write_all(&[round, round]).unwrap();
                for (stream, bytes) in [(&mut stream, 1), (&mut other, 2)] {
                    let (read, buf) = stream.go_on_reading().await;
                    assert_eq!((read.unwrap(), buf), (bytes, vec![round; bytes]));
                }
            }
        });
    }

    #[test]
    fn a_connect_that_nobody_answers_ends_in_time() {
        let held = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        held.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        held.listen(0).unwrap();
        let address = held.local_addr().unwrap().as_socket().unwrap();
        let mut queue = Vec::new();
        let full = (0..16).any(|_| {
            let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            let full = socket.connect_timeout(&address.into(), Duration::from_millis(100)).is_err();
            queue.push(socket);
            full
        });
        assert!(full, "a queue that never fills proves nothing");
        on_both(move || async move {
            let begun_ns = now();
            let connected = Stream::connect(address, 150 * MS).await;
            assert_eq!(connected.err().map(|error| error.kind()), Some(io::ErrorKind::TimedOut));
            assert!((150 * MS..3_000 * MS).contains(&(now() - begun_ns)), "{} ms", (now() - begun_ns) / MS);
        });
    }

    #[test]
    fn a_connect_that_is_refused_says_so() {
        on_both(|| async {
            let (listener, address) = pair();
            drop(listener);
            let refused = Stream::connect(address, 1_000 * MS).await;
            assert_eq!(refused.err().map(|error| error.kind()), Some(io::ErrorKind::ConnectionRefused));
        });
    }

    #[test]
    fn sleepers_wake_in_order_and_never_early() {
        on_both(|| async {
            let (order, begun_ns) = (Rc::new(std::cell::RefCell::new(Vec::new())), now());
            for ms in [40, 5, 25, 5, 0] {
                let order = order.clone();
                spawn(
                    async move {
                        sleep(ms * MS).await;
                        assert!(now() >= begun_ns + ms * MS);
                        order.borrow_mut().push(ms);
                    },
                    || {},
                );
            }
            while order.borrow().len() < 5 {
                sleep(MS).await;
            }
            assert_eq!(*order.borrow(), [0, 5, 5, 25, 40]);
            assert!(now() < begun_ns + 2_000 * MS);
        });
    }
}
