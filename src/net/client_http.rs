//! One client connection: requests in order, each read whole, answered, and only then the next.

use crate::logic::call::Id;
use crate::logic::explain::Trail;
use crate::logic::fault::{Fault, HttpFault};
use crate::logic::snapshot::{GatewayIx, Protocol, Server};
use crate::logic::units::{Nanos, SECOND};
use crate::net::buffers::{Buffers, SMALLEST};
use crate::net::client_batch;
use crate::net::client_head::{Heard, Place, Reader, Want, heard, is_short, limits, overheard};
use crate::net::client_tron::{self};
use crate::net::coded::inflate;
use crate::net::exchange::{self, Answer, Ask, Context};
use crate::net::inbox::Inbox;
use crate::net::link::Link;
use crate::net::opening::{self, Opened};
use crate::net::reply::{self, Frame, Reply};
use crate::net::ring::{self, Cut, SHORT_WRITE, Stream};
use crate::net::shard::{Current, LAST_REQUEST_NS, Presence, Shard};
use crate::net::tab::Tab;
use crate::shared::memory::LARGE;
use crate::shared::snapshot_cell::Phase;
use crate::wire::http1::Coding;
use crate::wire::http1_chunked::Chunked;
use crate::wire::http1_request::{Framing, request_head};
use crate::wire::http1_write::{AnswerCoding, CONTINUE};
use crate::wire::jsonrpc::{self, Message};
use std::cell::RefCell;
use std::net::IpAddr;
use std::ops::Range;
use std::rc::Rc;

/// How long, and how many bytes, a closing connection still listens, so that its last answer is not lost
/// in a reset (RFC 9112, 9.6).
const LINGER_NS: Nanos = SECOND;
const LINGER_BYTES: usize = 1 << 20;
/// Pipelined requests that are answered in a row before others get their turn.
const PIPELINED_BURST: u32 = 64;

/// Serves a client until either side has had enough.
pub async fn serve(shard: Rc<Shard>, stream: Stream, peer: Option<IpAddr>, presence: Presence) {
    // Boxed: what comes before the first request must not make every connection's task larger.
    let Some(mut connection) = Box::pin(Connection::open(shard, stream, peer, presence)).await else { return };
    while let Next::Request = connection.request().await {}
    let Connection { shard, inbox, .. } = connection;
    inbox.close(&shard.buffers);
}

struct Connection {
    shard: Rc<Shard>,
    stream: Link,
    presence: Presence,
    /// What was read and not yet answered.
    inbox: Inbox,
    /// When something last happened here.
    now_ns: Nanos,
    /// Requests that were answered since something was last read.
    unread: u32,
    /// Who it is.
    peer: IpAddr,
}

enum Next {
    Request,
    Close,
}

impl Connection {
    /// A caller that may ask; `None` = nobody worth an answer is there.
    async fn open(shard: Rc<Shard>, stream: Stream, peer: Option<IpAddr>, presence: Presence) -> Option<Connection> {
        // Whoever comes over a Unix socket is this machine.
        let (local, peer) = (peer.is_none(), peer.unwrap_or(IpAddr::from([127, 0, 0, 1])));
        let opened = match opening::is_needed(&shard.current(), local) {
            true => opening::open(&shard, stream, peer, local, &presence).await?,
            false => Opened { link: stream.into(), peer, early: Vec::new() },
        };
        let mut inbox = Inbox::new(&shard.buffers);
        inbox.begin(opened.early);
        let (stream, peer) = (opened.link, opened.peer);
        Some(Connection { shard, stream, presence, inbox, now_ns: ring::now(), unread: 0, peer })
    }

    /// One request, from its first byte to its answer's last.
    async fn request(&mut self) -> Next {
        if !self.arrival().await {
            return Next::Close;
        }
        // Only now: whoever waited took no Snapshot along, and keeps none alive.
        let current = self.shard.current();
        let ask = match self.head(&current).await {
            Ok(Some(ask)) => ask,
            Ok(None) => return Next::Close,
            Err(fault) => return Box::pin(self.hang_up(fault, None)).await,
        };
        if let Want::Nothing(fault, _) = ask.want
            && (ask.expect_continue || !is_short(ask.framing))
        {
            return Box::pin(self.hang_up(fault, Some(&ask))).await;
        }
        let tab = Tab::new(self.shard.clone(), current.server().max_buffered_bytes);
        let (body, next) = match self.body(current.server(), &ask, &tab).await {
            Ok(Some(body)) => body,
            Ok(None) => return Next::Close,
            Err(fault) => return Box::pin(self.hang_up(fault, Some(&ask))).await,
        };
        let inflated = match ask.coding {
            Coding::Identity => None,
            // Boxed: rare, and its state would make every connection's task larger.
            coding => match Box::pin(self.inflated(current.server(), coding, body.clone())).await {
                Ok(inflated) => Some(inflated),
                Err(fault) => return Box::pin(self.hang_up(fault, Some(&ask))).await,
            },
        };
        self.now_ns = ring::now();
        // Nothing is awaited from the client now: an old deadline must not cut it while a node thinks.
        self.stream.look_after(self.now_ns);
        let (reply, keep_alive) = self.answer(&current, &ask, body, inflated.as_deref(), &tab).await;
        if keep_alive && reply.buf.len() - reply.from <= SHORT_WRITE && self.stream.plain().is_some() {
            if !self.send(current.server(), reply).await {
                return Next::Close;
            }
        } else if !self.write(current.server(), reply).await || !keep_alive {
            Box::pin(self.linger()).await;
            return Next::Close;
        }
        self.answered(next).await;
        Next::Request
    }

    /// The answer, and whether the connection goes on after it.
    async fn answer(
        &self,
        current: &Current,
        ask: &Heard,
        body: Range<usize>,
        inflated: Option<&[u8]>,
        tab: &Tab,
    ) -> (Reply, bool) {
        let buffers = &self.shard.buffers;
        let made = reply::made_request_id(self.shard.random());
        let mut frame = self.frame(Some(ask), &made, ask.keep_alive && !self.shard.draining());
        let reply = match ask.want {
            Want::Call(gateway) | Want::Api(gateway) => {
                let caller = self.stream.watch();
                let trail = ask.explain.then(Box::<RefCell<Trail>>::default);
                let context = Context {
                    shard: &self.shard,
                    current,
                    gateway,
                    traceparent: self.text(ask.traceparent),
                    first_draw: None,
                    started_ns: self.now_ns,
                    caller: &caller,
                    tab,
                    trail: trail.as_deref(),
                };
                let body = inflated.unwrap_or(&self.inbox.bytes()[body]);
                match &ask.api {
                    // Pinned where it stands: `.await` alone moves its state, which is large, once more.
                    None => std::pin::pin!(respond(context, body, &mut frame)).await,
                    // Boxed: its state would make every connection's task larger.
                    Some(places) => {
                        Box::pin(client_tron::respond(context, places, self.inbox.bytes(), body, &mut frame)).await
                    }
                }
            }
            Want::Preflight(gateway) => self.preflight(current, gateway, frame),
            Want::Health => {
                let healthy = self.shard.world.lifecycle.phase() == Phase::Running;
                reply::health(buffers, frame, healthy)
            }
            Want::Nothing(fault, _) => {
                self.shard.cells(&current.live).refused(fault.status());
                reply::fault(buffers, frame, b"null", Fault::Http(fault), 0, None)
            }
        };
        (reply, frame.keep_alive)
    }

    /// What an answer says about its connection; without an `ask` the head could not be read.
    fn frame<'a>(&'a self, ask: Option<&Heard>, made: &'a [u8], keep_alive: bool) -> Frame<'a> {
        let id = ask.and_then(|ask| self.text(ask.request_id));
        Frame {
            keep_alive,
            http11: ask.is_none_or(|ask| ask.http11),
            head_only: ask.is_some_and(|ask| ask.head_only),
            request_id: id.unwrap_or(std::str::from_utf8(made).unwrap_or_default()),
            cors: ask.and_then(|ask| match &ask.reader {
                Reader::NoPage => None,
                Reader::Any => Some("*"),
                Reader::Origin(place) => self.text(Some(*place)),
            }),
            coding: ask.map_or(AnswerCoding::Fixed, |ask| ask.answer_coding),
            extra: b"",
            protocol: ask.map_or(Protocol::JsonRpc, |ask| ask.want.protocol()),
        }
    }

    /// A piece of the head that is being answered.
    fn text(&self, place: Option<Place>) -> Option<&str> {
        place?.text(self.inbox.bytes())
    }

    /// What a page may send, and how it asked.
    fn preflight(&self, current: &Current, gateway: GatewayIx, frame: Frame<'_>) -> Reply {
        let methods = match current.live.snapshot.gateways[usize::from(gateway.0)].protocol {
            Protocol::JsonRpc => "OPTIONS, POST",
            Protocol::TronHttp => "GET, OPTIONS, POST",
        };
        // Read a second time: few requests need this, and all would have to carry it.
        let head = request_head(self.inbox.bytes(), 0, &limits(current.server())).ok().flatten();
        let asked: Vec<&[u8]> = head.iter().flat_map(|head| head.values("access-control-request-headers")).collect();
        reply::preflight(&self.shard.buffers, frame, methods, &asked)
    }

    /// Waits for the first byte of a request; `false` = the client left, or was idle for too long.
    async fn arrival(&mut self) -> bool {
        if !self.inbox.is_empty() {
            return true;
        }
        self.presence.idle(true);
        let last = self.shard.draining().then_some(LAST_REQUEST_NS);
        let patience_ns = self.shard.current().server().idle_timeout_ns.min(last.unwrap_or(Nanos::MAX));
        self.stream.arm(self.now_ns + patience_ns, Cut::Read, self.now_ns);
        let here = self.read(1).await;
        self.presence.idle(false);
        here
    }

    /// Reads a head that has begun; `None` = the client left.
    async fn head(&mut self, current: &Current) -> Result<Option<Heard>, HttpFault> {
        let server = current.server();
        let limits = limits(server);
        let mut scanned = 0;
        loop {
            if let Some(head) = request_head(self.inbox.bytes(), scanned, &limits)? {
                return Ok(Some(heard(current, &head, self.inbox.bytes(), self.peer)));
            }
            if scanned == 0 {
                let now_ns = ring::now();
                self.stream.arm(now_ns + server.header_timeout_ns, Cut::Read, now_ns);
            }
            scanned = self.inbox.len();
            if !self.read(1).await {
                return if self.stream.expired() { Err(HttpFault::Timeout) } else { Ok(None) };
            }
        }
    }

    async fn inflated(&self, server: &Server, coding: Coding, body: Range<usize>) -> Result<Vec<u8>, HttpFault> {
        inflate(coding, &self.inbox.bytes()[body], server.max_request_bytes).await
    }

    /// Reads the body: where it is, and where the next request begins. `None` = the client left.
    async fn body(
        &mut self,
        server: &Server,
        ask: &Heard,
        tab: &Tab,
    ) -> Result<Option<(Range<usize>, usize)>, HttpFault> {
        let start = ask.head_len;
        let here = self.inbox.len() - start;
        let complete = match ask.framing {
            Framing::Empty => return Ok(Some((start..start, start))),
            Framing::Length(length) if length > server.max_request_bytes as u64 => {
                return Err(HttpFault::BodyTooLarge);
            }
            Framing::Length(length) => here as u64 >= length,
            Framing::Chunked => false,
        };
        if !complete {
            let now_ns = ring::now();
            self.stream.arm(now_ns + server.body_timeout_ns, Cut::Read, now_ns);
            if ask.expect_continue && here == 0 && !Box::pin(self.say_continue(server)).await {
                return Ok(None);
            }
        }
        match ask.framing {
            Framing::Length(length) if complete => {
                let end = start + length as usize;
                Ok(Some((start..end, end)))
            }
            // Boxed: most bodies come with their head, and the state would make every connection's task larger.
            Framing::Length(length) => Box::pin(self.counted(start, length as usize, tab)).await,
            _ => Box::pin(self.chunked(start, server.max_request_bytes, tab)).await,
        }
    }

    async fn say_continue(&mut self, server: &Server) -> bool {
        let mut buf = self.shard.buffers.take(CONTINUE.len());
        buf.extend_from_slice(CONTINUE);
        let patience_ns = Some(server.write_timeout_ns);
        let (wrote, buf) = match self.stream.plain() {
            Some(plain) => plain.write(buf, 0, CONTINUE.len(), patience_ns).await,
            None => self.stream.write_sealed(buf, 0, CONTINUE.len(), patience_ns).await,
        };
        self.shard.buffers.give(buf);
        wrote.is_ok()
    }

    async fn counted(
        &mut self,
        start: usize,
        length: usize,
        tab: &Tab,
    ) -> Result<Option<(Range<usize>, usize)>, HttpFault> {
        let end = start + length;
        while self.inbox.len() < end {
            // Doubling instead of trusting the announced length: memory follows what really arrives.
            let missing = end - self.inbox.len();
            if !self.read_more(missing.min(self.inbox.len().max(SMALLEST)), tab).await {
                return self.gone();
            }
        }
        Ok(Some((start..end, end)))
    }

    async fn chunked(
        &mut self,
        start: usize,
        limit: usize,
        tab: &Tab,
    ) -> Result<Option<(Range<usize>, usize)>, HttpFault> {
        let mut decoder = Chunked::default();
        let mut end = start;
        loop {
            let progress = decoder.decode(self.inbox.tail(end)).map_err(|bad| HttpFault::BadRequest(bad.words()))?;
            let next = end + progress.consumed;
            end += progress.produced;
            // A chunk that is announced and can't fit is not waited for.
            if decoder.due().saturating_add((end - start) as u64) > limit as u64 {
                return Err(HttpFault::BodyTooLarge);
            }
            if progress.done {
                return Ok(Some((start..end, next)));
            }
            self.inbox.truncate(end);
            if !self.read_more(1, tab).await {
                return self.gone();
            }
        }
    }

    /// A body that does not come to its end.
    fn gone<T>(&self) -> Result<Option<T>, HttpFault> {
        if self.stream.expired() { Err(HttpFault::Timeout) } else { Ok(None) }
    }

    /// Reads more of a body. What is large is held against the memory for that; while there is none, nothing is
    /// read, and the body's own deadline goes on.
    async fn read_more(&mut self, wanted: usize, tab: &Tab) -> bool {
        let grown = self.inbox.grown(wanted);
        let more = (grown as u64).saturating_sub(tab.taken());
        if grown > LARGE && more > 0 {
            // By then the deadline has cut the connection.
            let patience_ns = self.shard.current().server().body_timeout_ns;
            if !Box::pin(tab.take(more as usize, patience_ns)).await {
                return false;
            }
        }
        self.read(wanted).await
    }

    /// Reads once, with room for at least `wanted` bytes; `false` = nothing more will come.
    async fn read(&mut self, wanted: usize) -> bool {
        self.unread = 0;
        self.inbox.read(&mut self.stream, &self.shard.buffers, wanted).await
    }

    /// A short answer goes with the next turn; the next read meets what became of it. `false` = an earlier one did not
    /// reach the client: nothing more is done for it.
    async fn send(&mut self, server: &Server, reply: Reply) -> bool {
        let to = reply.buf.len();
        let Some(plain) = self.stream.plain() else { return false };
        plain.send(reply.buf, reply.from, to, Some(server.write_timeout_ns)).await;
        plain.broke().is_none()
    }

    async fn write(&mut self, server: &Server, reply: Reply) -> bool {
        // Read anew: a node may have thought for longer than the client has to take its answer.
        let now_ns = ring::now();
        self.stream.arm_write(server.write_timeout_ns, now_ns);
        let to = reply.buf.len();
        let patience_ns = Some(server.write_timeout_ns);
        let (wrote, buf) = match self.stream.plain() {
            Some(plain) => plain.write(reply.buf, reply.from, to, patience_ns).await,
            None => self.stream.write_sealed(reply.buf, reply.from, to, patience_ns).await,
        };
        self.shard.buffers.give(buf);
        wrote.is_ok()
    }

    /// Answers a request after which the next one can't be found, and closes.
    async fn hang_up(&mut self, fault: HttpFault, ask: Option<&Heard>) -> Next {
        let current = self.shard.current();
        self.shard.cells(&current.live).refused(fault.status());
        self.stream.forgive();
        let made = reply::made_request_id(self.shard.random());
        let overheard = if ask.is_none() { overheard(&current, fault, self.inbox.bytes()) } else { None };
        let frame = self.frame(ask.or(overheard.as_ref()), &made, false);
        let reply = reply::fault(&self.shard.buffers, frame, b"null", Fault::Http(fault), 0, None);
        if self.write(current.server(), reply).await {
            self.linger().await;
        }
        Next::Close
    }

    /// Lets the peer read the last answer before unread bytes of its own turn the close into a reset.
    async fn linger(&mut self) {
        self.presence.idle(false);
        self.stream.finish_writing();
        let now_ns = ring::now();
        self.stream.arm(now_ns + LINGER_NS, Cut::Both, now_ns);
        let mut heard = 0;
        while heard < LINGER_BYTES {
            self.inbox.clear();
            if !self.read(1).await {
                return;
            }
            heard += self.inbox.len();
        }
    }

    /// The request is answered; what follows it stays. Many that need no node, in one buffer, must not
    /// keep the shard from everybody else.
    async fn answered(&mut self, next: usize) {
        self.now_ns = ring::now();
        self.inbox.answered(next, &self.shard.buffers);
        self.unread += 1;
        if self.unread >= PIPELINED_BURST {
            self.unread = 0;
            Box::pin(ring::sleep(1)).await;
        }
    }
}

/// The answer to a body.
async fn respond(context: Context<'_>, body: &[u8], frame: &mut Frame<'_>) -> Reply {
    let buffers = &context.shard.buffers;
    let reply = |frame: &Frame<'_>, id: &[u8], answer| reply::single(buffers, *frame, id, answer);
    match jsonrpc::parse(body, context.current.server().max_batch) {
        Ok(Message::Single(Ok(call))) => {
            let answer = std::pin::pin!(exchange::call(context, Ask::JsonRpc(&call))).await;
            explained(context, call.id.bytes(), answer, frame).await
        }
        Ok(Message::Single(Err(refused))) => {
            reply(frame, refused.id.bytes(), exchange::invalid(context, Fault::InvalidRequest(refused.why)))
        }
        // Boxed: a batch is rare, and its state would make every idle connection larger.
        Ok(Message::Batch(members)) => Box::pin(client_batch::respond(context, members, frame)).await,
        Err(fault) => reply(frame, Id::Absent.bytes(), exchange::invalid(context, fault)),
    }
}

/// The answer to one Call, with how it was decided where the caller wants to know.
pub async fn explained(context: Context<'_>, id: &[u8], answer: Answer, frame: &mut Frame<'_>) -> Reply {
    let buffers = &context.shard.buffers;
    frame.keep_alive &= !context.shard.draining();
    let Some(trail) = context.trail else { return told(buffers, *frame, id, answer).await };
    let source = matches!(answer, Answer::Node { .. } | Answer::Verbatim { .. }).then_some("upstream");
    let snapshot = &context.current.live.snapshot;
    let extra = reply::explanation(snapshot, context.gateway, &trail.borrow(), source);
    told(buffers, Frame { extra: &extra, ..*frame }, id, answer).await
}

async fn told(buffers: &Buffers, frame: Frame<'_>, id: &[u8], answer: Answer) -> Reply {
    match frame.coding {
        // Boxed: rare, and its state would make every connection's task larger.
        AnswerCoding::Gzip => Box::pin(reply::single_coded(buffers, frame, id, answer)).await,
        _ => reply::single(buffers, frame, id, answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_task<A, B, C, D, F>(_: impl Fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_idle_connection_is_small() {
        let task = size_of_task(serve);
        assert!(task <= 3_400, "the task of a connection takes {task} bytes");
    }
}
