//! One client connection: requests in order, each read whole, answered, and only then the next.

use crate::logic::call::Id;
use crate::logic::explain::Trail;
use crate::logic::fault::{Fault, HttpFault};
use crate::logic::snapshot::{GatewayIx, Server};
use crate::logic::units::{Nanos, SECOND};
use crate::net::buffers::SMALLEST;
use crate::net::exchange::{self, Context};
use crate::net::inbox::Inbox;
use crate::net::reply::{self, BatchReply, Frame, Reply};
use crate::net::ring::{self, Cut, Stream};
use crate::net::shard::{Current, LAST_REQUEST_NS, Presence, Shard};
use crate::shared::snapshot_cell::Phase;
use crate::wire::http1::{Coding, HeadLimits};
use crate::wire::http1_chunked::Chunked;
use crate::wire::http1_request::{ContentType, Framing, RequestHead, Verb, request_head};
use crate::wire::http1_write::CONTINUE;
use crate::wire::jsonrpc::{self, Batch, Message};
use futures_util::StreamExt;
use std::cell::RefCell;
use std::net::IpAddr;
use std::ops::Range;
use std::rc::Rc;

/// A refused request's body is still read if it is no longer than this: its connection can then go on.
const DRAINED_BODY_MAX: u64 = 64 << 10;
/// How long, and how many bytes, a closing connection still listens, so that its last answer is not lost
/// in a reset (RFC 9112, 9.6).
const LINGER_NS: Nanos = SECOND;
const LINGER_BYTES: usize = 1 << 20;
/// Pipelined requests that are answered in a row before others get their turn.
const PIPELINED_BURST: u32 = 64;

/// Serves a client until either side has had enough.
pub async fn serve(shard: Rc<Shard>, stream: Stream, peer: IpAddr, presence: Presence) {
    let inbox = Inbox::new(&shard.buffers);
    let mut connection = Connection { shard, stream, presence, inbox, now_ns: ring::now(), unread: 0, peer };
    while let Next::Request = connection.request().await {}
    let Connection { shard, inbox, .. } = connection;
    inbox.close(&shard.buffers);
}

struct Connection {
    shard: Rc<Shard>,
    stream: Stream,
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

/// What a request wants, known from its head.
#[derive(Clone, Copy)]
enum Want {
    Call(GatewayIx),
    Health,
    Nothing(HttpFault),
}

/// What is remembered of a head while its body is read into the same buffer.
struct Ask {
    want: Want,
    framing: Framing,
    head_len: usize,
    keep_alive: bool,
    http11: bool,
    head_only: bool,
    expect_continue: bool,
    traceparent: Option<Range<usize>>,
    request_id: Option<Range<usize>>,
    /// The caller asks how its Call was decided, and may.
    explain: bool,
}

impl Connection {
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
        if let Want::Nothing(fault) = ask.want
            && (ask.expect_continue || !is_short(ask.framing))
        {
            return Box::pin(self.hang_up(fault, Some(&ask))).await;
        }
        let (body, next) = match self.body(current.server(), &ask).await {
            Ok(Some(body)) => body,
            Ok(None) => return Next::Close,
            Err(fault) => return Box::pin(self.hang_up(fault, Some(&ask))).await,
        };
        self.now_ns = ring::now();
        // Nothing is awaited from the client now: an old deadline must not cut it while a node thinks.
        self.stream.look_after(self.now_ns);
        let (reply, keep_alive) = self.answer(&current, &ask, body).await;
        if !self.write(current.server(), reply).await || !keep_alive {
            Box::pin(self.linger()).await;
            return Next::Close;
        }
        self.answered(next).await;
        Next::Request
    }

    /// The answer, and whether the connection goes on after it.
    async fn answer(&self, current: &Current, ask: &Ask, body: Range<usize>) -> (Reply, bool) {
        let buffers = &self.shard.buffers;
        let made = reply::made_request_id(self.shard.random());
        let mut frame = self.frame(Some(ask), &made, ask.keep_alive && !self.shard.draining());
        let reply = match ask.want {
            Want::Call(gateway) => {
                let caller = self.stream.watch();
                let trail = ask.explain.then(Box::<RefCell<Trail>>::default);
                let context = Context {
                    shard: &self.shard,
                    current,
                    gateway,
                    traceparent: self.text(&ask.traceparent),
                    first_draw: None,
                    started_ns: self.now_ns,
                    caller: &caller,
                    trail: trail.as_deref(),
                };
                respond(context, &self.inbox.bytes()[body], &mut frame).await
            }
            Want::Health => {
                let healthy = self.shard.world.lifecycle.phase() == Phase::Running;
                reply::health(buffers, frame, healthy)
            }
            Want::Nothing(fault) => {
                self.shard.cells(&current.live).refused(fault.status());
                reply::fault(buffers, frame, b"null", Fault::Http(fault), 0, None)
            }
        };
        (reply, frame.keep_alive)
    }

    /// What an answer says about its connection; without an `ask` the head could not be read.
    fn frame<'a>(&'a self, ask: Option<&Ask>, made: &'a [u8], keep_alive: bool) -> Frame<'a> {
        let id = ask.and_then(|ask| self.text(&ask.request_id));
        Frame {
            keep_alive,
            http11: ask.is_none_or(|ask| ask.http11),
            head_only: ask.is_some_and(|ask| ask.head_only),
            request_id: id.unwrap_or(std::str::from_utf8(made).unwrap_or_default()),
            extra: b"",
        }
    }

    /// A piece of the head that is being answered.
    fn text(&self, place: &Option<Range<usize>>) -> Option<&str> {
        std::str::from_utf8(self.inbox.bytes().get(place.clone()?)?).ok()
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
    async fn head(&mut self, current: &Current) -> Result<Option<Ask>, HttpFault> {
        let server = current.server();
        let limits = HeadLimits { bytes: server.max_header_bytes, headers: server.max_headers };
        let mut scanned = 0;
        loop {
            if let Some(head) = request_head(self.inbox.bytes(), scanned, &limits)? {
                return Ok(Some(self.ask(current, &head)));
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

    fn ask(&self, current: &Current, head: &RequestHead<'_>) -> Ask {
        let place = |text: &str| {
            let from = text.as_ptr() as usize - self.inbox.bytes().as_ptr() as usize;
            from..from + text.len()
        };
        Ask {
            want: want(current, head),
            framing: head.framing,
            head_len: head.head_len,
            keep_alive: head.keep_alive,
            http11: head.http11,
            head_only: head.verb == Verb::Head,
            expect_continue: head.expect_continue,
            traceparent: head.traceparent.map(place),
            request_id: head.request_id.map(place),
            explain: head.explain && current.server().explains_to(self.peer),
        }
    }

    /// Reads the body: where it is, and where the next request begins. `None` = the client left.
    async fn body(&mut self, server: &Server, ask: &Ask) -> Result<Option<(Range<usize>, usize)>, HttpFault> {
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
            Framing::Length(length) => self.counted(start, length as usize).await,
            _ => self.chunked(start, server.max_request_bytes).await,
        }
    }

    async fn say_continue(&mut self, server: &Server) -> bool {
        let mut buf = self.shard.buffers.take(CONTINUE.len());
        buf.extend_from_slice(CONTINUE);
        let patience_ns = Some(server.write_timeout_ns);
        let (wrote, buf) = self.stream.write(buf, 0, CONTINUE.len(), patience_ns).await;
        self.shard.buffers.give(buf);
        wrote.is_ok()
    }

    async fn counted(&mut self, start: usize, length: usize) -> Result<Option<(Range<usize>, usize)>, HttpFault> {
        let end = start + length;
        while self.inbox.len() < end {
            // Doubling instead of trusting the announced length: memory follows what really arrives.
            let missing = end - self.inbox.len();
            if !self.read(missing.min(self.inbox.len().max(SMALLEST))).await {
                return self.gone();
            }
        }
        Ok(Some((start..end, end)))
    }

    async fn chunked(&mut self, start: usize, limit: usize) -> Result<Option<(Range<usize>, usize)>, HttpFault> {
        let mut decoder = Chunked::default();
        let mut end = start;
        loop {
            let progress = decoder.decode(self.inbox.tail(end)).map_err(|bad| HttpFault::BadRequest(bad.words()))?;
            let next = end + progress.consumed;
            end += progress.produced;
            if end - start > limit {
                return Err(HttpFault::BodyTooLarge);
            }
            if progress.done {
                return Ok(Some((start..end, next)));
            }
            self.inbox.truncate(end);
            if !self.read(1).await {
                return self.gone();
            }
        }
    }

    /// A body that does not come to its end.
    fn gone<T>(&self) -> Result<Option<T>, HttpFault> {
        if self.stream.expired() { Err(HttpFault::Timeout) } else { Ok(None) }
    }

    /// Reads once, with room for at least `wanted` bytes; `false` = nothing more will come.
    async fn read(&mut self, wanted: usize) -> bool {
        self.unread = 0;
        self.inbox.read(&mut self.stream, &self.shard.buffers, wanted).await
    }

    async fn write(&mut self, server: &Server, reply: Reply) -> bool {
        // Read anew: a node may have thought for longer than the client has to take its answer.
        let now_ns = ring::now();
        self.stream.arm(now_ns + server.write_timeout_ns, Cut::Both, now_ns);
        let to = reply.buf.len();
        let (wrote, buf) = self.stream.write(reply.buf, reply.from, to, Some(server.write_timeout_ns)).await;
        self.shard.buffers.give(buf);
        wrote.is_ok()
    }

    /// Answers a request after which the next one can't be found, and closes.
    async fn hang_up(&mut self, fault: HttpFault, ask: Option<&Ask>) -> Next {
        let current = self.shard.current();
        self.shard.cells(&current.live).refused(fault.status());
        self.stream.forgive();
        let made = reply::made_request_id(self.shard.random());
        let frame = self.frame(ask, &made, false);
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

/// What a request wants, as far as its head tells.
fn want(current: &Current, head: &RequestHead<'_>) -> Want {
    if head.path == "/healthz" {
        return match head.verb {
            Verb::Get | Verb::Head => Want::Health,
            _ => Want::Nothing(HttpFault::MethodNotAllowed("GET, HEAD")),
        };
    }
    let Some(gateway) = current.entrances.find(head.path, head.host) else {
        return Want::Nothing(HttpFault::NotFound);
    };
    if head.verb != Verb::Post {
        return Want::Nothing(HttpFault::MethodNotAllowed("POST"));
    }
    match (head.content_type, head.content_encoding) {
        (ContentType::Other, _) => Want::Nothing(HttpFault::Unsupported("Content-Type is not application/json")),
        // Without a type a browser would send it without asking first.
        (ContentType::Missing, _) if head.origin.is_some() => {
            Want::Nothing(HttpFault::Unsupported("a request with an Origin needs Content-Type: application/json"))
        }
        (_, Coding::Identity) => Want::Call(gateway),
        (_, _) => Want::Nothing(HttpFault::Unsupported("Content-Encoding: send the body as it is")),
    }
}

fn is_short(framing: Framing) -> bool {
    match framing {
        Framing::Empty => true,
        Framing::Length(length) => length <= DRAINED_BODY_MAX,
        Framing::Chunked => false,
    }
}

/// The answer to a body.
async fn respond(context: Context<'_>, body: &[u8], frame: &mut Frame<'_>) -> Reply {
    let buffers = &context.shard.buffers;
    let reply = |frame: &Frame<'_>, id: &[u8], answer| reply::single(buffers, *frame, id, answer);
    match jsonrpc::parse(body, context.current.server().max_batch) {
        Ok(Message::Single(Ok(call))) => {
            let answer = exchange::call(context, &call).await;
            frame.keep_alive &= !context.shard.draining();
            let Some(trail) = context.trail else { return reply(frame, call.id.bytes(), answer) };
            let source = matches!(answer, exchange::Answer::Node { .. }).then_some("upstream");
            let snapshot = &context.current.live.snapshot;
            let extra = reply::explanation(snapshot, context.gateway, &trail.borrow(), source);
            reply(&Frame { extra: &extra, ..*frame }, call.id.bytes(), answer)
        }
        Ok(Message::Single(Err(refused))) => {
            reply(frame, refused.id.bytes(), exchange::invalid(context, Fault::InvalidRequest(refused.why)))
        }
        // Boxed: a batch is rare, and its state would make every idle connection larger.
        Ok(Message::Batch(members)) => Box::pin(batch(context, members, frame)).await,
        Err(fault) => reply(frame, Id::Absent.bytes(), exchange::invalid(context, fault)),
    }
}

async fn batch(context: Context<'_>, batch: Batch<'_>, frame: &mut Frame<'_>) -> Reply {
    let server = context.current.server();
    let context = Context { first_draw: Some(context.shard.random()), ..context };
    let members: Vec<_> = batch.iter().collect();
    let mut replies = BatchReply::new(&context.shard.buffers, server.max_batch_response_bytes);
    let answers = futures_util::stream::iter(&members).map(|member| async move {
        // A member's attempts begin when its turn comes, which may be long after the batch did.
        let context = Context { started_ns: ring::now(), ..context };
        match member {
            Ok(call) => (call.id, exchange::call(context, call).await),
            Err(refused) => (refused.id, exchange::invalid(context, Fault::InvalidRequest(refused.why))),
        }
    });
    let mut answers = std::pin::pin!(answers.buffered(server.batch_concurrency));
    while let Some((id, answer)) = answers.next().await {
        replies.push(id.bytes(), answer);
    }
    frame.keep_alive &= !context.shard.draining();
    replies.finish(*frame)
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
