//! One connection of the scripted upstream: requests in, in whatever pieces they come; replies out, in order.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Write as _},
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use mio::net::TcpStream;
use rustls::ServerConfig;

use crate::{
    http::{self, Framing},
    reply::{After, Replier},
    wire::Wire,
};

/// With more than this unsent, no more requests are read.
const UNSENT_BYTES_MAX: usize = 4 << 20;
/// With this many replies waiting for their time, no more requests are read.
const WAITING_MAX: usize = 10_000;
/// A buffer that grew past this is given back once empty.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// A connection and what it owes.
pub struct Served {
    stream: Wire,
    /// What TLS agreed on has been told, or there is none.
    told: bool,
    /// The start of a request whose end has not come.
    partial: Vec<u8>,
    out: Vec<u8>,
    sent: usize,
    waiting: VecDeque<Waiting>,
    closing: bool,
    noted: Option<Instant>,
}

/// A reply whose time has not come.
struct Waiting {
    due: Instant,
    bytes: Vec<u8>,
}

/// What the connection needs next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Readiness.
    Event,
    /// To be advanced again at this time.
    At(Instant),
    /// To be dropped.
    Drop,
}

impl Served {
    /// Serves `stream`.
    pub fn new(stream: TcpStream, tls: Option<&Arc<ServerConfig>>) -> io::Result<Self> {
        // Without it answers only come later; the run would show it.
        let _ = stream.set_nodelay(true);
        Ok(Self {
            stream: Wire::server(stream, tls)?,
            told: tls.is_none(),
            partial: Vec::new(),
            out: Vec::new(),
            sent: 0,
            waiting: VecDeque::new(),
            closing: false,
            noted: None,
        })
    }

    /// The stream, to be registered.
    pub fn stream(&mut self) -> &mut TcpStream {
        self.stream.stream()
    }

    /// The time asked for with [`Next::At`] has come.
    pub fn woken(&mut self) {
        self.noted = None;
    }

    /// Reads, answers and writes as far as it goes. `ended` says that the peer is known to have finished.
    pub fn advance(&mut self, replier: &mut Replier, scratch: &mut [u8], ended: bool, now: Instant) -> Next {
        self.release(now);
        loop {
            if self.flush().is_err() {
                return Next::Drop;
            }
            let full = self.out.len() - self.sent > UNSENT_BYTES_MAX || self.waiting.len() >= WAITING_MAX;
            if self.closing || full {
                break;
            }
            match self.stream.read(scratch) {
                Ok(0) => self.closing = true,
                Ok(count) => {
                    self.take(&scratch[..count], replier);
                    // A short read has emptied the socket; what comes next is a new event.
                    if count < scratch.len() && !ended {
                        if self.flush().is_err() {
                            return Next::Drop;
                        }
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Next::Drop,
            }
        }
        self.tell();
        self.next()
    }

    /// Says what TLS agreed on, once: a comparison must show that all rivals were given the same.
    fn tell(&mut self) {
        if !self.told
            && let Some(agreed) = self.stream.agreed()
        {
            self.told = true;
            // Nobody may be listening.
            let _ = writeln!(io::stderr(), "agreed {agreed}");
        }
    }

    fn next(&mut self) -> Next {
        if self.closing && self.out.is_empty() && self.waiting.is_empty() && !self.stream.owes() {
            return Next::Drop;
        }
        match self.waiting.front().map(|reply| reply.due) {
            Some(due) if self.noted != Some(due) => {
                self.noted = Some(due);
                Next::At(due)
            }
            _ => Next::Event,
        }
    }

    /// Moves replies whose time has come to the output.
    fn release(&mut self, now: Instant) {
        while let Some(reply) = self.waiting.pop_front_if(|reply| reply.due <= now) {
            self.out.extend_from_slice(&reply.bytes);
        }
    }

    /// Answers every whole request of `bytes` and of what came before; keeps the rest.
    fn take(&mut self, bytes: &[u8], replier: &mut Replier) {
        if self.partial.is_empty() {
            let used = self.answer(bytes, replier);
            self.partial.extend_from_slice(&bytes[used..]);
            return;
        }
        let mut joined = mem::take(&mut self.partial);
        joined.extend_from_slice(bytes);
        let used = self.answer(&joined, replier);
        joined.drain(..used);
        self.partial = joined;
        if self.partial.is_empty() && self.partial.capacity() > KEPT_BYTES_MAX {
            self.partial = Vec::new();
        }
    }

    /// Answers whole requests and says how many bytes they were.
    fn answer(&mut self, bytes: &[u8], replier: &mut Replier) -> usize {
        let mut used = 0;
        while !self.closing {
            let rest = &bytes[used..];
            let head = match http::head(rest) {
                Framing::Head(head) => head,
                Framing::Partial => break,
                Framing::Bad(_) => {
                    self.reply(|out| {
                        out.extend_from_slice(
                            b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
                        );
                        After { wait: Duration::ZERO, close: true }
                    });
                    break;
                }
            };
            let end = head.len.saturating_add(head.body.unwrap_or(0));
            let Some(body) = rest.get(head.len..end) else { break };
            self.reply(|out| {
                let after = replier.append(rest, body, out);
                After { close: after.close || head.close, ..after }
            });
            used += end;
        }
        used
    }

    /// Queues what `write` appends, behind every earlier reply.
    fn reply(&mut self, write: impl FnOnce(&mut Vec<u8>) -> After) {
        let base = self.out.len();
        let after = write(&mut self.out);
        self.closing |= after.close;
        let last = self.waiting.back().map(|reply| reply.due);
        if after.wait.is_zero() && last.is_none() {
            return;
        }
        let bytes = self.out.split_off(base);
        // The clock is read anew: the batch's time may lie before the request's.
        let due = Instant::now() + after.wait;
        let due = last.map_or(due, |last| last.max(due));
        self.waiting.push_back(Waiting { due, bytes });
    }

    /// Writes until all is out or the socket is full.
    fn flush(&mut self) -> Result<(), ()> {
        self.stream.push().map_err(drop)?;
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(()),
            }
        }
        self.sent = 0;
        self.out.clear();
        if self.out.capacity() > KEPT_BYTES_MAX {
            self.out = Vec::new();
        }
        Ok(())
    }
}
