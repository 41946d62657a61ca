//! The floor under every proxy: a byte relay on one epoll thread that understands nothing of what it carries.
//!
//! One upstream connection for each client's. What is read is written on at once from one shared buffer; only what
//! the other socket has no room for is kept, and then nothing more is read from that side until it is out.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    mem,
    net::{Shutdown, SocketAddr},
};

use mio::{
    Events, Interest, Poll, Registry, Token,
    net::{TcpListener, TcpStream},
};

const LISTENER: Token = Token(usize::MAX - 1);
/// One read takes at most this much, and so each direction keeps at most this much.
const BUFFER_BYTES: usize = 64 << 10;

/// A relay that listens; it carries bytes while [`Relay::run`] runs.
pub struct Relay {
    poll: Poll,
    listener: TcpListener,
    to: SocketAddr,
    pairs: Vec<Option<Pair>>,
    free: Vec<usize>,
    buffer: Vec<u8>,
}

/// A client's connection (side 0) and the one to the upstream (side 1).
struct Pair {
    sides: [Side; 2],
}

struct Side {
    stream: TcpStream,
    /// What came from the other side and found no room here.
    kept: Vec<u8>,
    /// It has sent its last byte.
    ended: bool,
    /// The other side's end has been passed on to it.
    told: bool,
}

impl Side {
    fn new(mut stream: TcpStream, registry: &Registry, token: usize) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        // Both interests for good: writability is an edge that only a socket which was full reports.
        registry.register(&mut stream, Token(token), Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self { stream, kept: Vec::new(), ended: false, told: false })
    }

    /// Writes `bytes`; what finds no room is kept.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let sent = write(&mut self.stream, bytes)?;
        self.kept.extend_from_slice(&bytes[sent..]);
        Ok(())
    }

    /// Writes what was kept; true if all of it is out.
    fn flush(&mut self) -> io::Result<bool> {
        if !self.kept.is_empty() {
            let sent = write(&mut self.stream, &self.kept)?;
            self.kept.drain(..sent);
        }
        Ok(self.kept.is_empty())
    }
}

/// Writes until all is out or the socket is full; says how much that was.
pub fn write(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

impl Pair {
    /// Carries bytes from side `from` until it has no more, or the other has no room. `closing`: no later event will
    /// tell of the end again.
    fn carry(&mut self, from: usize, closing: bool, buffer: &mut [u8]) -> io::Result<()> {
        let [client, upstream] = &mut self.sides;
        let (source, sink) = if from == 0 { (client, upstream) } else { (upstream, client) };
        while sink.flush()? && !source.ended {
            match source.stream.read(buffer) {
                Ok(0) => source.ended = true,
                Ok(count) => {
                    sink.send(&buffer[..count])?;
                    // A short read has emptied the socket; what comes next is a new event.
                    if count < buffer.len() && !closing {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if source.ended && sink.kept.is_empty() && !mem::replace(&mut sink.told, true) {
            sink.stream.shutdown(Shutdown::Write)?;
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.sides.iter().all(|side| side.told)
    }
}

impl Relay {
    /// Listens at `listen` for connections that go on to `to`.
    pub fn new(listen: SocketAddr, to: SocketAddr) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listener = TcpListener::bind(listen)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self { poll, listener, to, pairs: Vec::new(), free: Vec::new(), buffer: vec![0; BUFFER_BYTES] })
    }

    /// Where it listens.
    pub fn addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Carries bytes until epoll fails.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        loop {
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept(),
                    Token(token) => {
                        self.hear(token, event.is_readable(), event.is_writable(), event.is_read_closed());
                    }
                }
            }
        }
    }

    /// Takes what waits. When descriptors run out the rest waits for the next connection.
    fn accept(&mut self) {
        while let Ok((client, _)) = self.listener.accept() {
            let index = self.free.pop().unwrap_or_else(|| {
                self.pairs.push(None);
                self.pairs.len() - 1
            });
            // A client whose upstream connection cannot even begin sees its own end.
            match self.pair(client, index) {
                Ok(pair) => self.pairs[index] = Some(pair),
                Err(_) => self.free.push(index),
            }
        }
    }

    fn pair(&self, client: TcpStream, index: usize) -> io::Result<Pair> {
        let registry = self.poll.registry();
        let client = Side::new(client, registry, 2 * index)?;
        let upstream = Side::new(TcpStream::connect(self.to)?, registry, 2 * index + 1)?;
        Ok(Pair { sides: [client, upstream] })
    }

    /// Takes a side's readiness: bytes from it, or room in it for bytes of the other side.
    fn hear(&mut self, token: usize, readable: bool, writable: bool, closing: bool) {
        let (index, side) = (token / 2, token % 2);
        let Some(slot) = self.pairs.get_mut(index) else { return };
        let Some(pair) = slot else { return };
        let mut result = Ok(());
        // Each event of a socket with room says so: only one that was full has something to go on with.
        if writable && (!pair.sides[side].kept.is_empty() || pair.sides[1 - side].ended) {
            result = pair.carry(1 - side, true, &mut self.buffer);
        }
        if readable || closing {
            result = result.and_then(|()| pair.carry(side, closing, &mut self.buffer));
        }
        if result.is_err() || pair.is_over() {
            *slot = None;
            self.free.push(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{TcpListener as StdListener, TcpStream as StdStream},
        thread,
        time::Duration,
    };

    use super::*;

    /// A relay on a thread of its own, and what it connects to.
    fn relay() -> (SocketAddr, StdListener) {
        let upstream = StdListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay::new("127.0.0.1:0".parse().unwrap(), upstream.local_addr().unwrap()).unwrap();
        let addr = relay.addr().unwrap();
        thread::spawn(move || relay.run());
        (addr, upstream)
    }

    fn connect(addr: SocketAddr, upstream: &StdListener) -> (StdStream, StdStream) {
        let client = StdStream::connect(addr).unwrap();
        let (served, _) = upstream.accept().unwrap();
        for stream in [&client, &served] {
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        }
        (client, served)
    }

    /// Bytes of which no two places look alike.
    fn pattern(count: usize) -> Vec<u8> {
        (0..count).map(|at| u8::try_from(crate::payload::mix(at as u64) & 0xff).unwrap()).collect()
    }

    #[test]
    fn bytes_go_both_ways_and_pairs_are_kept_apart() {
        let (addr, upstream) = relay();
        let mut pairs: Vec<_> = (0..5).map(|_| connect(addr, &upstream)).collect();
        for round in 0..20u8 {
            for (number, (client, served)) in (0u8..).zip(&mut pairs) {
                let mut got = [0; 2];
                client.write_all(&[number, round]).unwrap();
                served.read_exact(&mut got).unwrap();
                assert_eq!(got, [number, round]);
                served.write_all(&[round, number]).unwrap();
                client.read_exact(&mut got).unwrap();
                assert_eq!(got, [round, number]);
            }
        }
    }

    #[test]
    fn more_than_all_buffers_hold_comes_whole_to_a_reader_that_starts_late() {
        let (addr, upstream) = relay();
        for towards_client in [false, true] {
            let (client, served) = connect(addr, &upstream);
            let (mut writer, mut reader) = if towards_client { (served, client) } else { (client, served) };
            let sent = pattern(24 << 20);
            let expected = sent.clone();
            let sending = thread::spawn(move || writer.write_all(&sent).map(|()| writer));
            // Reading begins only once the writer is stuck: then more than the sockets hold is under way.
            while !is_stuck(&reader) {
                thread::yield_now();
            }
            let mut got = vec![0; expected.len()];
            reader.read_exact(&mut got).unwrap();
            assert!(got == expected);
            drop(sending.join().unwrap().unwrap());
            assert_eq!(reader.read(&mut got).unwrap(), 0);
        }
    }

    /// What waits to be read has stopped growing.
    fn is_stuck(reader: &StdStream) -> bool {
        let mut look = vec![0; 8 << 20];
        let mut waiting = || reader.peek(&mut look).unwrap_or(0);
        let first = waiting();
        first > 0 && (0..50).all(|_| waiting() == first)
    }

    #[test]
    fn an_end_is_passed_on_while_the_other_direction_lives() {
        let (addr, upstream) = relay();
        let (mut client, mut served) = connect(addr, &upstream);
        client.write_all(b"last").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut all = Vec::new();
        served.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"last");
        served.write_all(b"answer").unwrap();
        drop(served);
        all.clear();
        client.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"answer");
    }

    #[test]
    fn without_an_upstream_a_client_sees_the_end_and_the_relay_lives() {
        let (addr, upstream) = relay();
        drop(upstream);
        for _ in 0..3 {
            let mut client = StdStream::connect(addr).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let ended = match client.read(&mut [0; 8]) {
                Ok(count) => count == 0,
                Err(error) => error.kind() == ErrorKind::ConnectionReset,
            };
            assert!(ended);
        }
    }
}
