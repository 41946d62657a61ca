//! A spike: what callers' requests would cost on a few shared upstream connections.
//!
//! It reads each caller's HTTP/1.1 requests (Content-Length alone), puts all that came in one turn of epoll on the
//! shared connections, pipelined and in order, with one write for each connection, and gives the answers back in
//! that order with one write for each caller. A caller keeps to one connection, or else its own answers could
//! overtake each other. Nothing bounds what is kept for who does not read: this is for measuring, not for use.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read as _},
    mem,
    net::SocketAddr,
};

use mio::{
    Events, Interest, Poll, Registry, Token,
    net::{TcpListener, TcpStream},
};

use crate::{
    http::{self, Framing},
    relay::write,
};

const LISTENER: Token = Token(usize::MAX - 1);
/// One read takes at most this much.
const BUFFER_BYTES: usize = 64 << 10;

/// A sharing relay that listens; it works while [`Sharing::run`] runs.
pub struct Sharing {
    poll: Poll,
    listener: TcpListener,
    to: SocketAddr,
    /// Tokens below their count are theirs; callers' follow.
    shared: Vec<Shared>,
    callers: Vec<Option<Caller>>,
    free: Vec<usize>,
    /// Tells a caller from an earlier one of the same place.
    accepted: u64,
    /// Callers that have something to be written at the end of the turn.
    answered: Vec<usize>,
    buffer: Vec<u8>,
}

/// A socket, what of its next message has come, and what is to go out.
struct End {
    stream: TcpStream,
    partial: Vec<u8>,
    out: Vec<u8>,
}

/// An upstream connection; none until somebody needs it.
#[derive(Default)]
struct Shared {
    end: Option<End>,
    /// Whose answers are to come, in order: their places and numbers.
    owed: VecDeque<(usize, u64)>,
}

struct Caller {
    end: End,
    number: u64,
}

impl End {
    fn new(mut stream: TcpStream, registry: &Registry, token: usize) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        registry.register(&mut stream, Token(token), Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self { stream, partial: Vec::new(), out: Vec::new() })
    }

    /// Reads until the socket is empty, and hands on each whole message.
    fn read(&mut self, closing: bool, buffer: &mut [u8], mut each: impl FnMut(&[u8])) -> io::Result<()> {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.split(&buffer[..count], &mut each)?;
                    // A short read has emptied the socket; what comes next is a new event.
                    if count < buffer.len() && !closing {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Hands on each message that is whole with `bytes`; keeps the rest.
    fn split(&mut self, bytes: &[u8], each: &mut impl FnMut(&[u8])) -> io::Result<()> {
        if self.partial.is_empty() {
            let used = whole(bytes, each)?;
            self.partial.extend_from_slice(&bytes[used..]);
        } else {
            self.partial.extend_from_slice(bytes);
            let used = whole(&self.partial, each)?;
            self.partial.drain(..used);
        }
        Ok(())
    }

    /// Writes what is to go out, as far as there is room.
    fn flush(&mut self) -> io::Result<()> {
        if !self.out.is_empty() {
            let sent = write(&mut self.stream, &self.out)?;
            self.out.drain(..sent);
        }
        Ok(())
    }
}

/// Hands on each whole message; says how many bytes they were.
fn whole(bytes: &[u8], each: &mut impl FnMut(&[u8])) -> io::Result<usize> {
    let mut used = 0;
    loop {
        let rest = &bytes[used..];
        let head = match http::head(rest) {
            Framing::Head(head) => head,
            Framing::Partial => return Ok(used),
            Framing::Bad(why) => return Err(io::Error::new(ErrorKind::InvalidData, why)),
        };
        let end = head.len.saturating_add(head.body.unwrap_or(0));
        let Some(message) = rest.get(..end) else { return Ok(used) };
        each(message);
        used += end;
    }
}

impl Sharing {
    /// Listens at `listen` for requests that go on to `to` over `count` connections.
    pub fn new(listen: SocketAddr, to: SocketAddr, count: usize) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listener = TcpListener::bind(listen)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self {
            poll,
            listener,
            to,
            shared: (0..count.max(1)).map(|_| Shared::default()).collect(),
            callers: Vec::new(),
            free: Vec::new(),
            accepted: 0,
            answered: Vec::new(),
            buffer: vec![0; BUFFER_BYTES],
        })
    }

    /// Where it listens.
    pub fn addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Works until epoll fails.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        loop {
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in &events {
                let (readable, closing) = (event.is_readable(), event.is_read_closed());
                match event.token() {
                    LISTENER => self.accept(),
                    Token(token) if token < self.shared.len() => self.hear_upstream(token, readable, closing),
                    Token(token) => self.hear_caller(token - self.shared.len(), readable, closing),
                }
            }
            self.write_all();
        }
    }

    /// Takes what waits. When descriptors run out the rest waits for the next connection.
    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            let index = self.free.pop().unwrap_or_else(|| {
                self.callers.push(None);
                self.callers.len() - 1
            });
            self.accepted += 1;
            // Who can't be registered sees its own end.
            match End::new(stream, self.poll.registry(), self.shared.len() + index) {
                Ok(end) => self.callers[index] = Some(Caller { end, number: self.accepted }),
                Err(_) => self.free.push(index),
            }
        }
    }

    /// Puts a caller's requests on its connection.
    fn hear_caller(&mut self, index: usize, readable: bool, closing: bool) {
        let Some(Some(caller)) = self.callers.get_mut(index) else { return };
        let at = index % self.shared.len();
        let shared = &mut self.shared[at];
        if shared.end.is_none() {
            let stream = TcpStream::connect(self.to);
            shared.end = stream.and_then(|stream| End::new(stream, self.poll.registry(), at)).ok();
        }
        let (Some(upstream), owed) = (&mut shared.end, &mut shared.owed) else { return self.drop_caller(index) };
        let mut result = Ok(());
        if readable || closing {
            result = caller.end.read(closing, &mut self.buffer, |request| {
                upstream.out.extend_from_slice(request);
                owed.push_back((index, caller.number));
            });
        }
        if result.and_then(|()| caller.end.flush()).is_err() {
            self.drop_caller(index);
        }
    }

    /// Gives answers to the callers that they are owed to, in order.
    fn hear_upstream(&mut self, at: usize, readable: bool, closing: bool) {
        let Shared { end, owed } = &mut self.shared[at];
        let Some(upstream) = end else { return };
        if !readable && !closing {
            return;
        }
        let (callers, answered) = (&mut self.callers, &mut self.answered);
        let result = upstream.read(closing, &mut self.buffer, |answer| {
            let Some((index, number)) = owed.pop_front() else { return };
            // The answer of a caller that has gone is nobody's.
            if let Some(Some(caller)) = callers.get_mut(index)
                && caller.number == number
            {
                if caller.end.out.is_empty() {
                    answered.push(index);
                }
                caller.end.out.extend_from_slice(answer);
            }
        });
        if result.is_err() {
            self.lose(at);
        }
    }

    /// Ends the turn: one write for each upstream connection and each caller that got something.
    fn write_all(&mut self) {
        for at in 0..self.shared.len() {
            if self.shared[at].end.as_mut().is_some_and(|end| end.flush().is_err()) {
                self.lose(at);
            }
        }
        for index in mem::take(&mut self.answered) {
            if let Some(Some(caller)) = self.callers.get_mut(index)
                && caller.end.flush().is_err()
            {
                self.drop_caller(index);
            }
        }
    }

    /// A shared connection is gone: nobody knows what became of the requests on it, so all of their callers go too.
    fn lose(&mut self, at: usize) {
        self.shared[at].end = None;
        for (index, number) in mem::take(&mut self.shared[at].owed) {
            if self.callers[index].as_ref().is_some_and(|caller| caller.number == number) {
                self.drop_caller(index);
            }
        }
    }

    fn drop_caller(&mut self, index: usize) {
        self.callers[index] = None;
        self.free.push(index);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        net::{TcpListener as StdListener, TcpStream as StdStream},
        thread,
        time::Duration,
    };

    use super::*;

    /// A sharing relay on a thread of its own, and what it connects to.
    fn sharing(count: usize) -> (SocketAddr, StdListener) {
        let upstream = StdListener::bind("127.0.0.1:0").unwrap();
        let sharing = Sharing::new("127.0.0.1:0".parse().unwrap(), upstream.local_addr().unwrap(), count).unwrap();
        let addr = sharing.addr().unwrap();
        thread::spawn(move || sharing.run());
        (addr, upstream)
    }

    fn timed(stream: StdStream) -> StdStream {
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }

    fn message(body: &str) -> Vec<u8> {
        format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    }

    fn expect(stream: &mut StdStream, body: &str) {
        let expected = message(body);
        let mut got = vec![0; expected.len()];
        stream.read_exact(&mut got).unwrap();
        assert_eq!(String::from_utf8(got).unwrap(), String::from_utf8(expected).unwrap());
    }

    #[test]
    fn callers_share_one_connection_and_each_gets_its_own_answer_in_order() {
        let (addr, upstream) = sharing(1);
        let mut callers: Vec<StdStream> = (0..5).map(|_| timed(StdStream::connect(addr).unwrap())).collect();
        let mut served = timed(upstream.accept().unwrap().0);
        for round in 0..20 {
            for (number, caller) in callers.iter_mut().enumerate() {
                let request = message(&format!("{round} of {number}"));
                // In two pieces, cut at another place each time.
                let (one, two) = request.split_at(1 + (round * 3 + number) % (request.len() - 1));
                caller.write_all(one).unwrap();
                caller.write_all(two).unwrap();
                expect(&mut served, &format!("{round} of {number}"));
            }
            let answers: Vec<u8> = (0..5).flat_map(|number| message(&format!("{number} in {round}"))).collect();
            let (one, two) = answers.split_at(1 + round * 7 % (answers.len() - 1));
            served.write_all(one).unwrap();
            served.write_all(two).unwrap();
            for (number, caller) in callers.iter_mut().enumerate() {
                expect(caller, &format!("{number} in {round}"));
            }
        }
        upstream.set_nonblocking(true).unwrap();
        assert_eq!(upstream.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn an_answer_larger_than_every_buffer_comes_whole() {
        let (addr, upstream) = sharing(1);
        let mut caller = timed(StdStream::connect(addr).unwrap());
        let mut served = timed(upstream.accept().unwrap().0);
        caller.write_all(&message("all")).unwrap();
        expect(&mut served, "all");
        let large: String = (0..8 << 20).map(|at| char::from(b'a' + (at % 23) as u8)).collect();
        let answer = message(&large);
        let sending = thread::spawn(move || served.write_all(&answer).map(|()| served));
        expect(&mut caller, &large);
        drop(sending.join().unwrap().unwrap());
    }

    #[test]
    fn the_answer_of_a_caller_that_left_goes_to_nobody_else() {
        let (addr, upstream) = sharing(1);
        let (mut one, mut two) = (StdStream::connect(addr).unwrap(), timed(StdStream::connect(addr).unwrap()));
        let mut served = timed(upstream.accept().unwrap().0);
        one.write_all(&message("one")).unwrap();
        expect(&mut served, "one");
        drop(one);
        two.write_all(&message("two")).unwrap();
        expect(&mut served, "two");
        served.write_all(&[message("for one"), message("for two")].concat()).unwrap();
        expect(&mut two, "for two");
    }

    #[test]
    fn a_lost_connection_takes_all_its_callers_along_and_the_next_one_is_served() {
        let (addr, upstream) = sharing(1);
        let mut callers: Vec<StdStream> = (0..3).map(|_| timed(StdStream::connect(addr).unwrap())).collect();
        let mut served = timed(upstream.accept().unwrap().0);
        for (number, caller) in callers.iter_mut().enumerate() {
            caller.write_all(&message(&number.to_string())).unwrap();
            expect(&mut served, &number.to_string());
        }
        served.write_all(&message("first")).unwrap();
        expect(&mut callers[0], "first");
        drop(served);
        for caller in &mut callers[1..] {
            assert!(!matches!(caller.read(&mut [0; 8]), Ok(count) if count > 0));
        }
        callers[0].write_all(&message("again")).unwrap();
        let mut served = timed(upstream.accept().unwrap().0);
        expect(&mut served, "again");
        served.write_all(&message("second")).unwrap();
        expect(&mut callers[0], "second");
    }
}
