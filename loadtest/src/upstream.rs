//! The scripted upstream: a JSON-RPC server over HTTP/1.1 that costs as little as it can, so that what is measured
//! in front of it is the proxy.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    io::{self, ErrorKind},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use mio::{
    Events, Interest, Poll, Token, Waker,
    net::{TcpListener, TcpStream},
};

use rustls::ServerConfig;

use crate::{
    reply::{Manner, Replier},
    served::{Next, Served},
    timer::Timer,
};

const LISTENER: Token = Token(usize::MAX - 1);
const TIMER: Token = Token(usize::MAX - 2);
const WAKER: Token = Token(usize::MAX - 3);
/// One read takes at most this much.
const SCRATCH_BYTES: usize = 64 << 10;

/// A running upstream; ends when dropped.
pub struct Upstream {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
    wakers: Vec<Arc<Waker>>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

/// The way to give a connection to a thread.
struct Peer {
    sender: Sender<TcpStream>,
    waker: Arc<Waker>,
}

impl Upstream {
    /// Listens at `listen` and answers on `threads` threads (at least one).
    pub fn start(
        listen: SocketAddr,
        threads: usize,
        manner: &Manner,
        tls: Option<Arc<ServerConfig>>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        let addr = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut workers = Vec::new();
        let mut peers = Vec::new();
        let mut wakers = Vec::new();
        for _ in 0..threads.max(1) {
            let (sender, inbox) = channel();
            let worker = Worker::new(manner, tls.clone(), inbox, &stop)?;
            let waker = Arc::new(Waker::new(worker.poll.registry(), WAKER)?);
            peers.push(Peer { sender, waker: Arc::clone(&waker) });
            wakers.push(waker);
            workers.push(worker);
        }
        if let Some(first) = workers.first_mut() {
            first.accept_for(listener, peers)?;
        }
        let threads = workers.into_iter().map(|worker| thread::spawn(move || worker.run())).collect();
        Ok(Self { addr, stop, wakers, threads })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Waits until a thread fails; without failures, for ever.
    pub fn wait(mut self) -> io::Result<()> {
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| io::Error::other("an upstream thread panicked"))??;
        }
        Ok(())
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for waker in &self.wakers {
            // Fails only if the thread's poll is gone, and the thread with it.
            let _ = waker.wake();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// One thread's loop.
struct Worker {
    poll: Poll,
    timer: Timer,
    listener: Option<TcpListener>,
    peers: Vec<Peer>,
    accepted: usize,
    inbox: Receiver<TcpStream>,
    stop: Arc<AtomicBool>,
    replier: Replier,
    tls: Option<Arc<ServerConfig>>,
    served: Vec<Option<Served>>,
    free: Vec<usize>,
    /// Connections to advance at a time. An entry may outlive its connection: advancing another one is harmless.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    scratch: Vec<u8>,
}

impl Worker {
    fn new(
        manner: &Manner,
        tls: Option<Arc<ServerConfig>>,
        inbox: Receiver<TcpStream>,
        stop: &Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let timer = Timer::new(poll.registry(), TIMER)?;
        Ok(Self {
            poll,
            timer,
            listener: None,
            peers: Vec::new(),
            accepted: 0,
            inbox,
            stop: Arc::clone(stop),
            replier: Replier::new(manner.clone()),
            tls,
            served: Vec::new(),
            free: Vec::new(),
            due: BinaryHeap::new(),
            scratch: vec![0; SCRATCH_BYTES],
        })
    }

    /// Makes this the worker that accepts, for all in turn.
    fn accept_for(&mut self, mut listener: TcpListener, peers: Vec<Peer>) -> io::Result<()> {
        self.poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        self.listener = Some(listener);
        self.peers = peers;
        Ok(())
    }

    fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        while !self.stop.load(Ordering::Acquire) {
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                other => other?,
            }
            let now = Instant::now();
            for event in &events {
                match event.token() {
                    LISTENER => self.accept(),
                    TIMER => self.timer.fired(),
                    WAKER => self.adopt_all(now)?,
                    Token(index) => self.advance(index, event.is_read_closed(), now),
                }
            }
            self.advance_due(now)?;
        }
        Ok(())
    }

    /// Accepts what waits and deals it out. When descriptors run out the rest waits for the next connection.
    fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        while let Ok((stream, _)) = listener.accept() {
            let peer = &self.peers[self.accepted % self.peers.len()];
            self.accepted += 1;
            // A thread that has ended drops the connection, which its peer sees.
            if peer.sender.send(stream).is_ok() {
                let _ = peer.waker.wake();
            }
        }
    }

    fn adopt_all(&mut self, now: Instant) -> io::Result<()> {
        while let Ok(stream) = self.inbox.try_recv() {
            let mut served = Served::new(stream, self.tls.as_ref())?;
            let index = self.free.pop().unwrap_or_else(|| {
                self.served.push(None);
                self.served.len() - 1
            });
            // Both interests for good: edges cost nothing until a full socket drains.
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(served.stream(), Token(index), interest)?;
            self.served[index] = Some(served);
            self.advance(index, false, now);
        }
        Ok(())
    }

    fn advance(&mut self, index: usize, ended: bool, now: Instant) {
        let Some(slot) = self.served.get_mut(index) else { return };
        let Some(served) = slot else { return };
        match served.advance(&mut self.replier, &mut self.scratch, ended, now) {
            Next::Event => {}
            Next::At(due) => self.due.push(Reverse((due, index))),
            Next::Drop => {
                *slot = None;
                self.free.push(index);
            }
        }
    }

    fn advance_due(&mut self, now: Instant) -> io::Result<()> {
        while let Some(Reverse((due, index))) = self.due.peek().copied() {
            if due > now {
                return self.timer.wake_at(due, now);
            }
            self.due.pop();
            if let Some(Some(served)) = self.served.get_mut(index) {
                served.woken();
            }
            self.advance(index, false, now);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{Shutdown, TcpStream},
        time::Duration,
    };

    use super::*;
    use crate::{
        exchange::{Asker, Work},
        faults::{Fault, Faults},
        http::{Framing, head},
        judge::{Judge, Judgement},
    };

    fn manner(size: usize) -> Manner {
        let faults = Faults::default();
        Manner { size, mix: false, delay: Duration::ZERO, stall: Duration::from_millis(50), faults }
    }

    fn start(threads: usize, manner: &Manner) -> Upstream {
        Upstream::start("127.0.0.1:0".parse().unwrap(), threads, manner, None).unwrap()
    }

    fn connect(upstream: &Upstream) -> TcpStream {
        let stream = TcpStream::connect(upstream.addr()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    fn request(n: u64, size: usize) -> Vec<u8> {
        let mut out = Vec::new();
        Asker::new("127.0.0.1", "/", Work::single(size)).append(n, &mut out);
        out
    }

    /// Reads one answer; what came behind it stays in `buffer`.
    fn answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Vec<u8> {
        loop {
            if let Framing::Head(head) = head(buffer) {
                let end = head.len + head.body.expect("a length");
                if buffer.len() >= end {
                    let rest = buffer.split_off(end);
                    let whole = std::mem::replace(buffer, rest);
                    return whole[head.len..].to_vec();
                }
            }
            let mut chunk = [0; 4096];
            let count = stream.read(&mut chunk).unwrap();
            assert!(count > 0, "the upstream closed early");
            buffer.extend_from_slice(&chunk[..count]);
        }
    }

    #[test]
    fn a_pipeline_is_answered_in_order() {
        for (size, delay_us) in [(120, 0), (100_000, 0), (120, 700)] {
            let manner = Manner { delay: Duration::from_micros(delay_us), ..manner(size) };
            let upstream = start(1, &manner);
            let mut stream = connect(&upstream);
            let burst: Vec<u8> = (0..40).flat_map(|n| request(n, size)).collect();
            stream.write_all(&burst).unwrap();
            let (mut buffer, mut judge) = (Vec::new(), Judge::new(Work::single(size)));
            for n in 0..40 {
                let body = answer(&mut stream, &mut buffer);
                assert_eq!(judge.judge(n, &body), Judgement::Right, "answer {n} of size {size}");
            }
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn a_request_may_come_in_any_two_pieces() {
        let upstream = start(1, &manner(120));
        let mut stream = connect(&upstream);
        let (mut buffer, mut judge) = (Vec::new(), Judge::new(Work::single(120)));
        for n in 0..request(0, 120).len() as u64 {
            let message = request(n, 120);
            let (one, two) = message.split_at(n as usize);
            stream.write_all(one).unwrap();
            stream.write_all(two).unwrap();
            assert_eq!(judge.judge(n, &answer(&mut stream, &mut buffer)), Judgement::Right, "cut at {n}");
        }
    }

    #[test]
    fn a_request_may_come_byte_by_byte() {
        let upstream = start(1, &manner(120));
        let mut stream = connect(&upstream);
        for byte in request(6, 120) {
            stream.write_all(&[byte]).unwrap();
        }
        let body = answer(&mut stream, &mut Vec::new());
        assert_eq!(Judge::new(Work::single(120)).judge(6, &body), Judgement::Right);
    }

    #[test]
    fn answers_go_out_to_a_peer_that_has_finished_sending() {
        let upstream = start(1, &manner(1 << 20));
        let mut stream = connect(&upstream);
        stream.write_all(&[request(1, 1 << 20), request(2, 1 << 20)].concat()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        assert!(all.len() > 2 << 20, "{} bytes", all.len());
    }

    #[test]
    fn connections_are_dealt_to_all_threads() {
        let upstream = start(3, &manner(120));
        let mut streams: Vec<TcpStream> = (0..9).map(|_| connect(&upstream)).collect();
        let mut judge = Judge::new(Work::single(120));
        for round in 0..5 {
            for (index, stream) in streams.iter_mut().enumerate() {
                let n = round * 100 + index as u64;
                stream.write_all(&request(n, 120)).unwrap();
                assert_eq!(judge.judge(n, &answer(stream, &mut Vec::new())), Judgement::Right);
            }
        }
    }

    #[test]
    fn a_delay_holds_every_answer_back() {
        let delay = Duration::from_millis(30);
        let upstream = start(1, &Manner { delay, ..manner(120) });
        let mut stream = connect(&upstream);
        let before = Instant::now();
        stream.write_all(&request(1, 120)).unwrap();
        answer(&mut stream, &mut Vec::new());
        assert!(before.elapsed() >= delay);
    }

    #[test]
    fn a_stalled_answer_keeps_its_place() {
        let faults = Faults { kinds: vec![Fault::Stall], at: Some(1), ..Faults::default() };
        let upstream = start(1, &Manner { faults, ..manner(120) });
        let mut stream = connect(&upstream);
        let before = Instant::now();
        stream.write_all(&[request(1, 120), request(2, 120)].concat()).unwrap();
        let (mut buffer, mut judge) = (Vec::new(), Judge::new(Work::single(120)));
        assert_eq!(judge.judge(1, &answer(&mut stream, &mut buffer)), Judgement::Right);
        assert!(before.elapsed() >= Duration::from_millis(50));
        assert_eq!(judge.judge(2, &answer(&mut stream, &mut buffer)), Judgement::Right);
    }

    #[test]
    fn what_cannot_be_framed_ends_the_connection() {
        let upstream = start(1, &manner(120));
        let mut stream = connect(&upstream);
        stream.write_all(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        assert!(all.starts_with(b"HTTP/1.1 400 "));
    }
}
