//! One attempt at one Endpoint: a connection, a request, a whole response or how it broke.
//!
//! Nothing is decided here beyond framing: what came back is judged by `logic::verdict`.

use crate::logic::fault::Reason;
use crate::logic::snapshot::{Endpoint, Protocol};
use crate::logic::tron_http::ApiCall;
use crate::logic::units::{Nanos, SECOND};
use crate::logic::verdict::Broke;
use crate::net::buffers::{Buffers, HEADROOM, SMALL_RESPONSE};
use crate::net::coded::TURN_STEPS;
use crate::net::connect::connect;
use crate::net::link::Link;
use crate::net::pool::{Lease, Pool};
use crate::net::ring::{self, Cut, Watch};
use crate::net::shard::Upstream;
use crate::net::tab::Tab;
use crate::shared::counters::EndpointCells;
use crate::shared::memory::LARGE;
use crate::wire::coding::{BadCoding, Inflate, seems_to_hold};
use crate::wire::http1::{Coding, HEADERS_MAX, HeadLimits};
use crate::wire::http1_chunked::Chunked;
use crate::wire::http1_response::{BodyFraming, ResponseHead, RetryAfter, response_head};
use crate::wire::http1_write::{ApiRequestWriter, Head, RequestTemplate, RequestWriter};
use crate::wire::jsonrpc;
use std::ops::Range;
use std::rc::Rc;

/// Limits of an upstream's response head.
const HEAD_LIMITS: HeadLimits = HeadLimits { bytes: 64 << 10, headers: HEADERS_MAX };
/// Interim (1xx) responses that are skipped before one answer.
const INTERIM_MAX: usize = 8;
/// While a longer request is written, a node may refuse it.
const LONG_REQUEST: usize = 4 << 10;
/// So long a large answer waits for memory.
const WAIT_FOR_ROOM_NS: Nanos = 5 * SECOND;
/// Responses that are expected to be longer than this are read from a small room on.
const FIRST_ROOM_MAX: usize = 256 << 10;
/// So much longer than the last ones a response may be and still come whole in its first read.
const HEAD_SPARE: usize = 512;
/// A body of a declared length up to this is given its whole buffer at once; a longer one must arrive first.
const TRUSTED_LENGTH: usize = 1 << 20;

/// What is asked.
#[derive(Clone, Copy)]
pub enum Message<'a> {
    /// A Call of JSON-RPC, in an envelope of our own.
    JsonRpc {
        /// The id; `None` = a notification.
        id: Option<u64>,
        /// The decoded method name.
        method: &'a str,
        /// The caller's `params`, byte for byte.
        params: Option<&'a [u8]>,
    },
    /// A request of TRON's HTTP API, as it came.
    TronHttp(&'a ApiCall<'a>),
}

/// What goes up.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// What is asked.
    pub message: Message<'a>,
    /// The caller's `traceparent`.
    pub traceparent: Option<&'a str>,
    /// Whether the same bytes may be sent a second time.
    pub replayable: bool,
    /// The caller, if the attempt ends with it.
    pub caller: Option<&'a Rc<Watch>>,
}

/// What came back: a buffer with the response, and where its body is. In front of the body there is room
/// for an answer's head, behind it for one byte.
#[derive(Debug)]
pub struct Incoming {
    /// The id that the request went up with; 0 where it had none.
    pub sent_id: u64,
    /// HTTP status.
    pub status: u16,
    /// The wait that `Retry-After` asked for.
    pub retry_after_ns: Option<Nanos>,
    /// The response's bytes.
    pub buf: Vec<u8>,
    /// Where the body is.
    pub body: Range<usize>,
    /// `false`: the body was in a coding that can't be read, and is left out.
    pub readable: bool,
}

/// How an attempt ended.
#[derive(Debug)]
pub struct Ended {
    /// A complete response, or how it broke.
    pub result: Result<Incoming, Broke>,
    /// When.
    pub at_ns: Nanos,
    /// The request was sent once before, over a pooled connection that then turned out closed.
    pub lost_send: bool,
    /// The caller went away after so long without a byte of a response.
    pub left_after_ns: Option<Nanos>,
}

impl Ended {
    fn new(result: Result<Incoming, Broke>, at_ns: Nanos, lost_send: bool) -> Ended {
        Ended { result, at_ns, lost_send, left_after_ns: None }
    }
}

/// Everything about the Endpoint that an attempt needs.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The Endpoint.
    pub endpoint: &'a Endpoint,
    /// Which shard asks.
    pub shard: usize,
    /// This shard's side of it.
    pub upstream: &'a Upstream,
    /// This shard's counters of it.
    pub cells: &'a EndpointCells,
    /// This shard's buffers.
    pub buffers: &'a Buffers,
    /// Largest response body.
    pub response_max: usize,
    /// What the Exchange holds of the memory for large bodies.
    pub tab: &'a Tab,
}

/// What every request to an Endpoint begins with.
pub fn template(endpoint: &Endpoint) -> Box<[u8]> {
    let mut headers: Vec<(&str, &str)> =
        endpoint.headers.iter().map(|(name, value)| (&**name, value.reveal())).collect();
    if let Some(basic) = &endpoint.url.basic_auth {
        headers.push(("Authorization", basic.reveal()));
    }
    let template = RequestTemplate {
        authority: &endpoint.url.authority,
        path_and_query: endpoint.url.path_and_query.reveal(),
        user_agent: concat!("ringway/", env!("CARGO_PKG_VERSION")),
        gzip: endpoint.gzip,
        headers: &headers,
    };
    match endpoint.protocol {
        Protocol::JsonRpc => template.build(),
        Protocol::TronHttp => template.build_fields(),
    }
}

/// The bytes of a request, in a buffer.
fn written(place: &Place<'_>, request: Request<'_>) -> Vec<u8> {
    let (template, traceparent) = (&place.upstream.template, request.traceparent);
    match request.message {
        Message::JsonRpc { id, method, params } => {
            let body_bytes = jsonrpc::request_len(id, method, params);
            let head = RequestWriter { template, body_bytes, traceparent };
            let mut out = place.buffers.take(head.bytes() + body_bytes);
            head.write(&mut out);
            jsonrpc::write_request(&mut out, id, method, params);
            out
        }
        Message::TronHttp(call) => {
            let base = place.endpoint.url.path_and_query.reveal();
            let head = ApiRequestWriter { fields: template, base, call, traceparent };
            let mut out = place.buffers.take(head.bytes() + call.body.len());
            head.write(&mut out);
            out.extend_from_slice(call.body);
            out
        }
    }
}

/// Makes one attempt.
pub async fn attempt(place: Place<'_>, request: Request<'_>, until_ns: Nanos, now_ns: Nanos) -> Ended {
    let (begun_ns, mut now_ns) = (now_ns, now_ns);
    let (mut replaced, mut lost_send) = (false, false);
    loop {
        let mut lease = match checkout(&place, request.replayable, replaced, until_ns, &mut now_ns).await {
            Ok(lease) => lease,
            Err(reason) => return Ended::new(Err(Broke::NotSent(reason)), ring::now(), lost_send),
        };
        let watch = lease.stream().watch();
        if let Some(caller) = request.caller {
            caller.runs(watch.clone());
        }
        let (request, sent_id) = with_id(request, &mut lease);
        let heard = converse(&place, lease.stream(), request, until_ns, now_ns).await;
        let at_ns = ring::now();
        if let Some(caller) = request.caller {
            caller.ran(&watch);
            if caller.gone()
                && let Err(lost) = &heard
            {
                let left_after_ns = lost.silent.then(|| at_ns.saturating_sub(begun_ns));
                let gone = Ended::new(Err(Broke::Sent(Reason::CallerGone)), at_ns, lost_send);
                return Ended { left_after_ns, ..gone };
            }
        }
        match heard {
            Ok((incoming, keep)) => {
                if keep && !lease.stream().expired() {
                    lease.give_back(at_ns, place.buffers);
                }
                return Ended::new(Ok(Incoming { sent_id, ..incoming }), at_ns, lost_send);
            }
            // A pooled connection that its peer had closed meanwhile: once, a fresh one takes its place
            // within the same attempt, if the same bytes may be sent twice or none were sent.
            Err(lost) if lease.reused && !replaced && lost.stale && (request.replayable || !lost.sent) => {
                place.cells.replaced.add(1);
                replaced = true;
                lost_send = lost.sent;
                now_ns = at_ns;
            }
            Err(lost) => {
                let broke = if lost.sent { Broke::Sent(lost.reason) } else { Broke::NotSent(lost.reason) };
                return Ended::new(Err(broke), at_ns, lost_send);
            }
        }
    }
}

/// The request with the id that it goes up with over this connection.
fn with_id<'r>(request: Request<'r>, lease: &mut Lease) -> (Request<'r>, u64) {
    match request.message {
        Message::JsonRpc { id: Some(wanted), method, params } => {
            let id = lease.id(wanted);
            (Request { message: Message::JsonRpc { id: Some(id), method, params }, ..request }, id)
        }
        _ => (request, 0),
    }
}

/// A connection for the attempt: a pooled one, a fresh one, or after a wait either.
async fn checkout(
    place: &Place<'_>,
    replayable: bool,
    fresh_only: bool,
    until_ns: Nanos,
    now_ns: &mut Nanos,
) -> Result<Lease, Reason> {
    let pool: &Rc<Pool> = &place.upstream.pool;
    let queue_until_ns = until_ns.min(now_ns.saturating_add(place.endpoint.queue_timeout_ns));
    loop {
        if !fresh_only && let Some(lease) = pool.take_idle(*now_ns, replayable) {
            return Ok(lease);
        }
        if let Some(slot) = pool.reserve() {
            // Boxed, like every wait that is rare: its state would make each connection's task larger.
            let (stream, address) =
                Box::pin(connect(place.endpoint, place.upstream, place.cells, place.shard, until_ns, *now_ns)).await?;
            *now_ns = ring::now();
            return Ok(slot.fill(stream, address, *now_ns, place.cells));
        }
        // All are open, and an idle one is of no use to this operation: a fresh one takes its place.
        if pool.evict_one() {
            continue;
        }
        let left_ns = queue_until_ns.saturating_sub(*now_ns);
        if left_ns == 0 || Box::pin(ring::within(left_ns, pool.freed_one())).await.is_none() {
            return Err(Reason::QueueTimeout);
        }
        *now_ns = ring::now();
    }
}

/// How a conversation broke off.
#[derive(Debug, Clone, Copy)]
struct Lost {
    reason: Reason,
    /// The kernel had taken a byte of the request.
    sent: bool,
    /// Closed or reset by the peer before a byte of the response: a pooled connection may just have been old.
    stale: bool,
    /// No byte of a response came.
    silent: bool,
}

/// Sends the request and reads the whole response. `true` = the connection may be used again.
async fn converse(
    place: &Place<'_>,
    stream: &mut Link,
    request: Request<'_>,
    until_ns: Nanos,
    now_ns: Nanos,
) -> Result<(Incoming, bool), Lost> {
    stream.arm(until_ns, Cut::Both, now_ns);
    let out = written(place, request);
    let whole = said(place, stream, out).await?;
    let counted = listen(place, stream);
    let ignored = matches!(request.message, Message::JsonRpc { id: None, .. });
    let mut reader = Reader { place, stream, buf: Vec::new(), ignored, counted, waited: false };
    let heard = reader.response().await;
    let silent = reader.buf.len() <= HEADROOM;
    let buf = std::mem::take(&mut reader.buf);
    let broke = stream.plain().and_then(|plain| plain.broke());
    match heard {
        Ok((incoming, keep)) => Ok((incoming, keep && whole && broke.is_none())),
        Err(_) if broke.is_some_and(|broke| broke.taken == 0) => Err(unsaid(stream, 0)),
        Err(reason) => {
            place.buffers.give(buf);
            Err(Lost { reason, sent: true, stale: reason == Reason::ConnectionLost && silent, silent })
        }
    }
}

/// Begins to read the response, with room for one like those before it: how much of that is held of the memory for
/// large bodies.
fn listen(place: &Place<'_>, stream: &mut Link) -> usize {
    let expected = place.upstream.pool.expects();
    if expected > SMALL_RESPONSE && expected <= FIRST_ROOM_MAX && stream.plain().is_some_and(|plain| !plain.reads()) {
        // With the space that a head may take more than the last one's.
        let bytes = (expected + HEADROOM + HEAD_SPARE).next_power_of_two();
        let counted = if bytes > LARGE { bytes } else { 0 };
        if counted == 0 || place.tab.take_spare(counted) {
            stream.listen(place.buffers, bytes);
            return counted;
        }
    }
    stream.listen(place.buffers, SMALL_RESPONSE);
    0
}

/// Writes the request. `false` = only a part of it: the Endpoint may have refused the rest, and say so in a response.
/// What became of a short one shows when the response is read.
async fn said(place: &Place<'_>, stream: &mut Link, out: Vec<u8>) -> Result<bool, Lost> {
    let length = out.len();
    if length <= LONG_REQUEST
        && let Some(plain) = stream.plain()
    {
        plain.send(out, 0, length, None).await;
        return Ok(true);
    }
    // Boxed: rare, and its state would make each connection's task larger.
    Box::pin(async {
        // What is shorter fits into the kernel's buffer, whether the node reads or not. What TLS says for itself
        // (tickets) can't be told from an answer before it is read.
        stream.hear_out(length > LONG_REQUEST && stream.resumed().is_none());
        let (wrote, out) = match stream.plain() {
            Some(plain) => plain.write(out, 0, length, None).await,
            None => stream.write_sealed(out, 0, length, None).await,
        };
        stream.hear_out(false);
        place.buffers.give(out);
        match wrote {
            Ok(()) => Ok(true),
            Err(broke) if broke.taken > 0 && !stream.expired() => Ok(false),
            Err(broke) => Err(unsaid(stream, broke.taken)),
        }
    })
    .await
}

/// A request that did not go out whole, of which the kernel took so many bytes.
fn unsaid(stream: &Link, taken: usize) -> Lost {
    let reason = match (stream.expired(), taken) {
        (true, _) => Reason::Timeout,
        (false, 0) => Reason::SendFailed,
        (false, _) => Reason::ConnectionLost,
    };
    Lost { reason, sent: taken > 0, stale: !stream.expired(), silent: true }
}

struct Reader<'a> {
    place: &'a Place<'a>,
    stream: &'a mut Link,
    buf: Vec<u8>,
    /// Nobody will look at the body.
    ignored: bool,
    /// Bytes of the buffer that were taken from the memory for large bodies.
    counted: usize,
    /// It had to wait for memory: what comes too late then is not the node's fault.
    waited: bool,
}

impl Reader<'_> {
    async fn response(&mut self) -> Result<(Incoming, bool), Reason> {
        let (head, start) = self.head().await?;
        let (end, clean) = match head.framing {
            BodyFraming::Empty => (start, self.buf.len() == start),
            BodyFraming::Length(length) => self.counted(start, length).await?,
            BodyFraming::Chunked => self.chunked(start).await?,
            BodyFraming::UntilClose => (self.until_close(start).await?, false),
        };
        self.buf.truncate(end);
        let coding = head.content_encoding;
        let plain = coding == Coding::Identity || self.ignored || start == end;
        let readable = plain || Box::pin(self.inflate(coding, start)).await?;
        let buf = std::mem::take(&mut self.buf);
        let retry_after_ns = head.retry_after.map(|wait| match wait {
            RetryAfter::Seconds(seconds) => seconds.saturating_mul(SECOND),
            RetryAfter::At(at) => at.saturating_sub(ring::unix_seconds()).saturating_mul(SECOND),
        });
        let body = start..buf.len();
        self.place.upstream.pool.answered(buf.len() - HEADROOM);
        let incoming = Incoming { sent_id: 0, status: head.status, retry_after_ns, buf, body, readable };
        // What came behind the answer was not asked for: nobody may take it for the next one's.
        if head.keep_alive && !clean {
            self.place.upstream.pool.speaks_unasked();
        }
        Ok((incoming, head.keep_alive && clean))
    }

    /// The final response head, and where its body starts.
    async fn head(&mut self) -> Result<(ResponseHead, usize), Reason> {
        let mut start = HEADROOM;
        for _ in 0..=INTERIM_MAX {
            let mut scanned = 0;
            let head = loop {
                match response_head(self.buf.get(start..).unwrap_or_default(), scanned, &HEAD_LIMITS) {
                    Ok(Some(head)) => break head,
                    Ok(None) => {}
                    Err(_) => return Err(Reason::InvalidHttp),
                }
                scanned = self.buf.len().saturating_sub(start);
                if self.more(1).await? == 0 {
                    return Err(Reason::ConnectionLost);
                }
            };
            start += head.head_len;
            if !(100..=199).contains(&head.status) || head.status == 101 {
                return Ok((head, start));
            }
        }
        Err(Reason::InvalidHttp)
    }

    async fn counted(&mut self, start: usize, length: u64) -> Result<(usize, bool), Reason> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > self.place.response_max {
            return Err(Reason::ResponseTooLarge);
        }
        let end = start + length;
        // All of it at once: many that each hold a part would keep each other from ever being whole.
        if end > LARGE && end >= self.counted {
            Box::pin(self.room(end + 1)).await?;
        }
        while self.buf.len() < end {
            let missing = end - self.buf.len();
            if self.more(missing.min(TRUSTED_LENGTH.max(self.buf.len()))).await? == 0 {
                return Err(Reason::ConnectionLost);
            }
        }
        Ok((end, self.buf.len() == end))
    }

    async fn chunked(&mut self, start: usize) -> Result<(usize, bool), Reason> {
        let mut decoder = Chunked::default();
        let mut end = start;
        loop {
            let progress = decoder.decode(&mut self.buf[end..]).map_err(|_| Reason::InvalidHttp)?;
            let clean = end + progress.consumed == self.buf.len();
            end += progress.produced;
            if decoder.due().saturating_add((end - start) as u64) > self.place.response_max as u64 {
                return Err(Reason::ResponseTooLarge);
            }
            self.buf.truncate(end);
            if progress.done {
                return Ok((end, clean));
            }
            if self.more(1).await? == 0 {
                return Err(Reason::ConnectionLost);
            }
        }
    }

    async fn until_close(&mut self, start: usize) -> Result<usize, Reason> {
        loop {
            if self.buf.len() - start > self.place.response_max {
                return Err(Reason::ResponseTooLarge);
            }
            if self.more(1).await? == 0 {
                return Ok(self.buf.len());
            }
        }
    }

    /// Takes the body, which begins at `start`, out of its coding; the head stays in front of it. `false` = it can't
    /// be read, and is gone.
    async fn inflate(&mut self, coding: Coding, start: usize) -> Result<bool, Reason> {
        let (packed, counted) = (std::mem::take(&mut self.buf), self.counted);
        let max = self.place.response_max.saturating_add(start);
        let seems = start.saturating_add(seems_to_hold(coding, &packed[start..]));
        let mut unpacked = Err(BadCoding::Broken);
        if let Some(mut inflate) = Inflate::new(coding, &packed[start..], max) {
            self.widen(seems.min(max).saturating_add(1), counted).await?;
            self.buf.extend_from_slice(&packed[..start]);
            let mut steps = 0;
            unpacked = loop {
                if self.buf.len() == self.buf.capacity() {
                    self.widen(self.buf.len().saturating_mul(2).min(max.saturating_add(1)), counted).await?;
                }
                match inflate.step(&mut self.buf) {
                    Ok(false) => steps += 1,
                    Ok(true) => break Ok(()),
                    Err(bad) => break Err(bad),
                }
                if steps % TURN_STEPS == 0 {
                    ring::sleep(1).await;
                }
            };
        }
        if unpacked == Err(BadCoding::Broken) {
            self.widen(start, counted).await?;
            self.buf.clear();
            self.buf.extend_from_slice(&packed[..start]);
        }
        self.place.buffers.give(packed);
        self.place.tab.give(counted);
        self.counted -= counted;
        match unpacked {
            Err(BadCoding::TooLarge) => Err(Reason::ResponseTooLarge),
            told => Ok(told.is_ok()),
        }
    }

    /// Makes the buffer hold at least so many bytes; another one is held beside it.
    async fn widen(&mut self, least: usize, beside: usize) -> Result<(), Reason> {
        let whole = least.saturating_add(beside);
        if least > LARGE && whole > self.counted {
            self.room(whole).await?;
        }
        self.buf = self.place.buffers.grow(std::mem::take(&mut self.buf), least);
        Ok(())
    }

    /// Takes memory for a buffer of so many bytes; whoever has to wait for it does not read meanwhile. Who holds a
    /// part already waits less: somebody must let go first, and who holds nothing harms nobody.
    async fn room(&mut self, bytes: usize) -> Result<(), Reason> {
        let tab = self.place.tab;
        if bytes as u64 > tab.max() {
            return Err(Reason::ResponseTooLarge);
        }
        let patience_ns = if self.counted == 0 { WAIT_FOR_ROOM_NS } else { tab.random_below(WAIT_FOR_ROOM_NS) };
        let more = bytes.saturating_sub(self.counted);
        if !tab.take(more, 0).await {
            self.waited = true;
            if !tab.take(more, patience_ns).await {
                return Err(Reason::NoRoom);
            }
        }
        self.counted += more;
        Ok(())
    }

    /// Reads once, with room for at least `wanted` bytes and one more behind them; 0 = the peer closed.
    async fn more(&mut self, wanted: usize) -> Result<usize, Reason> {
        if let Some(plain) = self.stream.plain().filter(|plain| plain.reads()) {
            let (read, buf) = plain.go_on_reading().await;
            self.buf = buf;
            return self.came(read);
        }
        if self.buf.is_empty() {
            self.buf = self.place.buffers.take(SMALL_RESPONSE);
            self.buf.resize(HEADROOM, 0);
        }
        let (filled, capacity) = (self.buf.len(), self.buf.capacity());
        // Doubling when nothing is known keeps the copying linear.
        let least = if wanted > 1 || capacity > filled + wanted { filled + wanted + 1 } else { filled * 2 };
        let whole = least.max(capacity);
        if whole > LARGE && whole > self.counted {
            Box::pin(self.room(whole)).await?;
        }
        let mut buf = self.place.buffers.grow(std::mem::take(&mut self.buf), least);
        let (read, buf) = match self.stream.plain() {
            // A read that has filled its room has left something: that is taken at once, and with no wait prepared.
            Some(plain) => match if filled == capacity { plain.read_now(&mut buf) } else { Ok(0) } {
                Ok(0) | Err(_) => plain.read(buf).await,
                read => (read, buf),
            },
            None => self.stream.read_sealed(buf).await,
        };
        self.buf = buf;
        self.came(read)
    }

    fn came(&self, read: std::io::Result<usize>) -> Result<usize, Reason> {
        match read {
            // The deadline ends the connection, and must not look like the peer's own end of it.
            Ok(0) | Err(_) if self.stream.expired() => Err(if self.waited { Reason::NoRoom } else { Reason::Timeout }),
            Ok(read) => Ok(read),
            Err(_) => Err(Reason::ConnectionLost),
        }
    }
}
