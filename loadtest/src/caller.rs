//! One connection of the generator: one request at a time out, one whole answer back.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use mio::{Interest, Registry, Token, net::TcpStream};
use rustls::ClientConfig;

use crate::{
    http::{self, Framing, Head},
    judge::Judgement,
    load::Call,
    wire::{Agreed, Wire},
};

/// The wait before a lost connection is made anew.
const RECONNECT_AFTER: Duration = Duration::from_millis(20);
/// The time that a first connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A buffer that grew past this is given back once empty.
const KEPT_BYTES_MAX: usize = 4 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Down,
    Connecting,
    Free,
    Busy,
}

/// How a caller connects.
#[derive(Debug, Clone, Default)]
pub struct Manner {
    /// It speaks TLS.
    pub tls: Option<Arc<ClientConfig>>,
    /// It connects anew for each request.
    pub fresh: bool,
}

/// A connection, or the lack of one.
pub struct Caller {
    target: SocketAddr,
    token: Token,
    manner: Manner,
    stream: Option<Wire>,
    state: State,
    retry_at: Instant,
    call: Option<Call>,
    out: Vec<u8>,
    sent: usize,
    /// What came of the answer so far.
    partial: Vec<u8>,
    /// Where the answer ends, once its head has come.
    expect: Option<Head>,
    /// The start of the last answer that wasn't right.
    last: Vec<u8>,
    /// What was agreed on when this connection was made, until somebody asks.
    agreed: Option<Agreed>,
    /// This connection has not answered yet.
    is_new: bool,
}

/// What a connection had to say.
pub enum Heard {
    /// Nothing that ends a call.
    Nothing,
    /// It is connected and free.
    Ready,
    /// A whole answer with status 200.
    Answer {
        /// The call it ends.
        call: Call,
        /// What it is worth.
        judgement: Judgement,
        /// The connection is free again.
        keep: bool,
    },
    /// A whole answer with another status.
    Status {
        /// The call it ends.
        call: Call,
        /// The connection is free again.
        keep: bool,
    },
    /// Bytes that are no answer.
    Garbage,
    /// The connection has ended.
    End,
}

/// A whole response in a buffer.
struct Response {
    head: Head,
    end: usize,
}

impl Caller {
    /// Connects, waiting for it.
    pub fn connected(target: SocketAddr, token: Token, registry: &Registry, manner: Manner) -> io::Result<Self> {
        let stream = std::net::TcpStream::connect_timeout(&target, CONNECT_TIMEOUT)?;
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let mut caller = Self {
            target,
            token,
            manner,
            stream: None,
            state: State::Free,
            retry_at: Instant::now(),
            call: None,
            out: Vec::with_capacity(1024),
            sent: 0,
            partial: Vec::new(),
            expect: None,
            last: Vec::new(),
            agreed: None,
            is_new: true,
        };
        caller.register(TcpStream::from_std(stream), registry)?;
        Ok(caller)
    }

    fn register(&mut self, mut stream: TcpStream, registry: &Registry) -> io::Result<()> {
        registry.register(&mut stream, self.token, Interest::READABLE | Interest::WRITABLE)?;
        self.stream = Some(Wire::client(stream, self.manner.tls.as_ref())?);
        self.is_new = true;
        Ok(())
    }

    /// It can take a call.
    pub fn is_free(&self) -> bool {
        self.state == State::Free
    }

    /// The call under way.
    pub fn call(&self) -> Option<&Call> {
        self.call.as_ref()
    }

    /// The start of the last answer that wasn't right.
    pub fn last_bytes(&self) -> &[u8] {
        &self.last
    }

    /// What the connection that answered last agreed on when it was made; once for each connection.
    pub fn agreed(&mut self) -> Option<Agreed> {
        self.agreed.take()
    }

    /// Sends what `write` appends, as `call`. On an error the call stays, to be abandoned.
    pub fn send(&mut self, call: Call, registry: &Registry, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        self.state = State::Busy;
        self.call = Some(call);
        self.out.clear();
        self.sent = 0;
        write(&mut self.out);
        if self.stream.is_none() && self.manner.fresh {
            let stream = TcpStream::connect(self.target)?;
            let _ = stream.set_nodelay(true);
            self.register(stream, registry)?;
        }
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Err(ErrorKind::NotConnected.into()) };
        while self.sent < self.out.len() {
            match stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        stream.push()
    }

    /// Takes readiness: finishes connecting, writes on, reads, and judges a whole answer with `judge`. `ended` says
    /// that the peer is known to have finished, which no later event will repeat.
    pub fn hear(
        &mut self,
        writable: bool,
        ended: bool,
        scratch: &mut [u8],
        judge: impl FnMut(u64, &[u8]) -> Judgement,
    ) -> Heard {
        match self.state {
            State::Down => return Heard::Nothing,
            State::Connecting if writable => return self.finish_connecting(),
            State::Connecting => return Heard::Nothing,
            State::Free | State::Busy => {}
        }
        let owes = self.stream.as_ref().is_some_and(Wire::owes);
        if (owes || self.sent < self.out.len()) && self.flush().is_err() {
            return Heard::End;
        }
        self.read(ended, scratch, judge)
    }

    fn finish_connecting(&mut self) -> Heard {
        let Some(stream) = self.stream.as_mut().map(Wire::stream) else { return Heard::End };
        if !matches!(stream.take_error(), Ok(None)) {
            return Heard::End;
        }
        match stream.peer_addr() {
            Ok(_) => {
                // Without it requests only go out later; the run would show it.
                let _ = stream.set_nodelay(true);
                self.state = State::Free;
                Heard::Ready
            }
            Err(error) if error.kind() == ErrorKind::NotConnected => Heard::Nothing,
            Err(_) => Heard::End,
        }
    }

    fn read(&mut self, ended: bool, scratch: &mut [u8], mut judge: impl FnMut(u64, &[u8]) -> Judgement) -> Heard {
        loop {
            let Some(stream) = &mut self.stream else { return Heard::End };
            let count = match stream.read(scratch) {
                Ok(0) => {
                    self.last.clone_from(&self.partial);
                    return Heard::End;
                }
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Heard::Nothing,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return Heard::End,
            };
            let heard = self.take(&scratch[..count], &mut judge);
            match heard {
                Heard::Answer { call, judgement, keep } => {
                    return Heard::Answer { call, judgement, keep: keep && !ended };
                }
                Heard::Status { call, keep } => return Heard::Status { call, keep: keep && !ended },
                // A short read has emptied the socket; what comes next is a new event.
                Heard::Nothing if ended || count == scratch.len() => {}
                other => return other,
            }
        }
    }

    /// Adds bytes to the answer; ends the call if it is whole.
    fn take(&mut self, bytes: &[u8], judge: &mut impl FnMut(u64, &[u8]) -> Judgement) -> Heard {
        if self.partial.is_empty() {
            return match self.whole(bytes) {
                Ok(Some(response)) => self.finish(bytes, &response, judge),
                Ok(None) => {
                    self.partial.extend_from_slice(bytes);
                    Heard::Nothing
                }
                Err(()) => self.garbage(bytes),
            };
        }
        let mut joined = std::mem::take(&mut self.partial);
        joined.extend_from_slice(bytes);
        match self.whole(&joined) {
            Ok(Some(response)) => {
                let heard = self.finish(&joined, &response, judge);
                joined.clear();
                if joined.capacity() <= KEPT_BYTES_MAX {
                    self.partial = joined;
                }
                heard
            }
            Ok(None) => {
                self.partial = joined;
                Heard::Nothing
            }
            Err(()) => self.garbage(&joined),
        }
    }

    /// Finds a whole response in `bytes`; an error if they can't be one.
    fn whole(&mut self, bytes: &[u8]) -> Result<Option<Response>, ()> {
        if self.call.is_none() {
            return Err(());
        }
        let head = match self.expect {
            Some(head) => head,
            None => match http::head(bytes) {
                Framing::Head(head) => head,
                Framing::Partial => return Ok(None),
                Framing::Bad(_) => return Err(()),
            },
        };
        let end = head.len.saturating_add(head.body.ok_or(())?);
        match bytes.len().cmp(&end) {
            std::cmp::Ordering::Less => {
                self.expect = Some(head);
                Ok(None)
            }
            std::cmp::Ordering::Equal => Ok(Some(Response { head, end })),
            std::cmp::Ordering::Greater => Err(()),
        }
    }

    fn finish(&mut self, bytes: &[u8], response: &Response, judge: &mut impl FnMut(u64, &[u8]) -> Judgement) -> Heard {
        self.expect = None;
        let Some(call) = self.call.take() else { return self.garbage(bytes) };
        let keep = !response.head.close;
        self.state = State::Free;
        self.answered();
        let Some(status) = http::status(bytes) else {
            self.call = Some(call);
            return self.garbage(bytes);
        };
        if status != 200 {
            self.remember(bytes);
            return Heard::Status { call, keep };
        }
        let judgement = judge(call.n, bytes.get(response.head.len..response.end).unwrap_or_default());
        if judgement != Judgement::Right {
            self.remember(bytes);
        }
        Heard::Answer { call, judgement, keep }
    }

    /// The connection has done its work; one that is used once has done all of it.
    fn answered(&mut self) {
        if self.is_new {
            self.agreed = self.stream.as_ref().and_then(Wire::agreed);
            self.is_new = false;
        }
        if self.manner.fresh
            && let Some(mut stream) = self.stream.take()
        {
            stream.close();
        }
    }

    fn garbage(&mut self, bytes: &[u8]) -> Heard {
        self.remember(bytes);
        Heard::Garbage
    }

    fn remember(&mut self, bytes: &[u8]) {
        self.last.clear();
        self.last.extend_from_slice(&bytes[..bytes.len().min(1024)]);
    }

    /// Takes away the call under way.
    pub fn abandon(&mut self) -> Option<Call> {
        self.call.take()
    }

    /// Drops the connection; it may be made anew a little later.
    pub fn close(&mut self, now: Instant) {
        self.stream = None;
        self.state = State::Down;
        self.retry_at = now + RECONNECT_AFTER;
        self.partial.clear();
        self.expect = None;
        self.out.clear();
        self.sent = 0;
    }

    /// Begins to connect anew, if it is down and the wait is over. True if it did.
    pub fn reconnect(&mut self, registry: &Registry, now: Instant) -> bool {
        if self.state != State::Down || now < self.retry_at {
            return false;
        }
        self.retry_at = now + RECONNECT_AFTER;
        let Ok(stream) = TcpStream::connect(self.target) else { return false };
        if self.register(stream, registry).is_err() {
            return false;
        }
        self.state = State::Connecting;
        true
    }
}
