//! Answers as bytes for a client: heads and envelopes around the node's own bytes, in place where they fit.

use crate::logic::batch::BatchHead;
use crate::logic::explain::Trail;
use crate::logic::fault::{Fault, HttpFault};
use crate::logic::snapshot::{EndpointIx, GatewayIx, Protocol, Snapshot};
use crate::logic::units::MS;
use crate::net::buffers::{Buffers, HEADROOM};
use crate::net::coded::{GZIP_MIN_BYTES, zipped};
use crate::net::exchange::Answer;
use crate::net::look_up::Name;
use crate::wire::hex;
use crate::wire::http1_response::content_type;
use crate::wire::http1_write::{Announced, AnswerCoding, Head, ResponseWriter};
use crate::wire::jsonrpc::{write_answer_prefix, write_fault};
use crate::wire::tron_http;

/// Bytes that are ready to be written.
#[derive(Debug)]
pub struct Reply {
    /// Holds them.
    pub buf: Vec<u8>,
    /// Where they begin.
    pub from: usize,
}

/// What a reply says about its connection.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// It stays open.
    pub keep_alive: bool,
    /// The request was HTTP/1.1.
    pub http11: bool,
    /// The request was HEAD: an answer tells the length of its body, and leaves it out.
    pub head_only: bool,
    /// The caller's own `X-Request-Id`, or one that was made.
    pub request_id: &'a str,
    /// `Access-Control-Allow-Origin`.
    pub cors: Option<&'a str>,
    /// Whether large answers go out compressed: [`AnswerCoding::Gzip`] = to this client.
    pub coding: AnswerCoding,
    /// More header lines, each with its CRLF.
    pub extra: &'a [u8],
    /// In whose form Ringway's own errors are told.
    pub protocol: Protocol,
}

impl<'a> Frame<'a> {
    fn head(self, status: u16, body: Option<usize>) -> ResponseWriter<'a> {
        let head = ResponseWriter::new(status, body.map(Announced::json));
        let Frame { keep_alive, http11, request_id, cors, coding, extra, .. } = self;
        // Whatever is compressed says so itself.
        let coding = if coding == AnswerCoding::Fixed { coding } else { AnswerCoding::Plain };
        ResponseWriter { keep_alive, http11, request_id: Some(request_id), cors, coding, extra, ..head }
    }

    fn zips(self, bytes: usize) -> bool {
        self.coding == AnswerCoding::Gzip && bytes >= GZIP_MIN_BYTES
    }
}

/// An id for a request that came without one, from a random number.
pub fn made_request_id(random: u64) -> [u8; 16] {
    let mut digits = [0; 16];
    hex::encode(&mut digits, &random.to_be_bytes());
    digits
}

/// How a Call was decided, as header lines.
pub fn explanation(snapshot: &Snapshot, gateway: GatewayIx, trail: &Trail, source: Option<&str>) -> Vec<u8> {
    let id = |endpoint: EndpointIx| &snapshot.endpoints[usize::from(endpoint.0)].id;
    let mut lines = String::new();
    let mut line = |name: &str, value: &str| {
        lines.push_str(name);
        lines.push_str(": ");
        lines.push_str(value);
        lines.push_str("\r\n");
    };
    if let Some(route) = trail.route {
        line("Ringway-Route", &snapshot.gateways[usize::from(gateway.0)].routes[usize::from(route.0)].id);
    }
    if let Some(endpoint) = trail.endpoint() {
        line("Ringway-Endpoint", id(endpoint));
    }
    line("Ringway-Attempts", &trail.steps().count().to_string());
    let told = trail.steps().map(|step| {
        let ((outcome, certainty), ms) = (step.words(), step.took_ns / MS);
        format!("{} {outcome} {certainty} {ms}ms", id(step.endpoint))
    });
    let told: Vec<String> = told.collect();
    if !told.is_empty() {
        line("Ringway-Trail", &told.join(", "));
    }
    if let Some(source) = source {
        line("Ringway-Source", source);
    }
    lines.into_bytes()
}

/// The answer to a single Call with this id.
pub fn single(buffers: &Buffers, frame: Frame<'_>, id: &[u8], answer: Answer) -> Reply {
    match answer {
        Answer::Node { mut buf, value, is_error } => {
            // The value stays where the kernel put it: its envelope is written around it.
            let mut front = buffers.take(HEADROOM);
            let prefix = crate::wire::jsonrpc::answer_prefix_len(id, is_error);
            frame.head(200, Some(prefix + value.len() + 1)).write(&mut front);
            write_answer_prefix(&mut front, id, is_error);
            buf.truncate(value.end);
            buf.push(b'}');
            let reply = in_front(buffers, buf, value.start, &front);
            buffers.give(front);
            reply
        }
        Answer::Verbatim { mut buf, body, status, is_json, .. } => {
            let mut front = buffers.take(HEADROOM);
            verbatim_head(frame, &buf[..body.start], status, is_json, body.len()).write(&mut front);
            buf.truncate(body.end);
            let reply = in_front(buffers, buf, body.start, &front);
            buffers.give(front);
            reply
        }
        Answer::Fault { fault, attempts, transaction } => {
            self::fault(buffers, frame, id, fault, attempts, transaction.as_ref().map(Name::text))
        }
        Answer::Silent | Answer::Abandoned => bare(buffers, frame, 204),
    }
}

/// The answer to a single Call, compressed if it is large and the client takes that.
pub async fn single_coded(buffers: &Buffers, frame: Frame<'_>, id: &[u8], answer: Answer) -> Reply {
    match answer {
        Answer::Node { buf, value, is_error } if frame.zips(value.len()) => {
            let mut prefix = Vec::new();
            write_answer_prefix(&mut prefix, id, is_error);
            let reply = zipped(buffers, frame.head(200, Some(0)), &[&prefix, &buf[value], b"}"]).await;
            buffers.give(buf);
            reply
        }
        Answer::Verbatim { buf, body, status, is_json, .. } if frame.zips(body.len()) => {
            let head = verbatim_head(frame, &buf[..body.start], status, is_json, 0);
            let reply = zipped(buffers, head, &[&buf[body]]).await;
            buffers.give(buf);
            reply
        }
        other => single(buffers, frame, id, other),
    }
}

fn verbatim_head<'a>(frame: Frame<'a>, head: &'a [u8], status: u16, is_json: bool, bytes: usize) -> ResponseWriter<'a> {
    let writer = frame.head(status, Some(bytes));
    if is_json {
        return writer;
    }
    // What is no JSON is told as the node told it.
    let content_type = content_type(head).unwrap_or("text/plain");
    ResponseWriter { body: Some(Announced { content_type, bytes }), ..writer }
}

/// Puts `front` right before `buf[at..]`.
fn in_front(buffers: &Buffers, mut buf: Vec<u8>, at: usize, front: &[u8]) -> Reply {
    if let Some(from) = at.checked_sub(front.len()) {
        buf[from..at].copy_from_slice(front);
        return Reply { buf, from };
    }
    // Only an id longer than the headroom comes here.
    let mut larger = buffers.take(front.len() + buf.len() - at);
    larger.extend_from_slice(front);
    larger.extend_from_slice(&buf[at..]);
    buffers.give(buf);
    Reply { buf: larger, from: 0 }
}

/// A gateway-made error.
pub fn fault(
    buffers: &Buffers,
    frame: Frame<'_>,
    id: &[u8],
    fault: Fault,
    attempts: u32,
    transaction: Option<&str>,
) -> Reply {
    let mut buf = buffers.take(2 * HEADROOM + id.len());
    buf.resize(HEADROOM, 0);
    match frame.protocol {
        Protocol::JsonRpc => write_fault(&mut buf, id, &fault, attempts, transaction),
        Protocol::TronHttp => tron_http::write_fault(&mut buf, &fault, attempts, transaction),
    }
    let mut head = frame.head(fault.http_status(frame.protocol), Some(buf.len() - HEADROOM));
    head.retry_after_s = fault.retry_after_s();
    if let Fault::Http(HttpFault::MethodNotAllowed(allow)) = fault {
        head.allow = Some(allow);
    }
    let mut reply = finish(buffers, buf, &head);
    if frame.head_only {
        reply.buf.truncate(reply.from + head.bytes());
    }
    reply
}

/// The health answer.
pub fn health(buffers: &Buffers, frame: Frame<'_>, healthy: bool) -> Reply {
    let mut buf = buffers.take(2 * HEADROOM);
    buf.resize(HEADROOM, 0);
    buf.extend_from_slice(if healthy { b"{\"status\":\"ok\"}\n" } else { b"{\"status\":\"draining\"}\n" });
    let head = frame.head(if healthy { 200 } else { 503 }, Some(buf.len() - HEADROOM));
    let mut reply = finish(buffers, buf, &head);
    if frame.head_only {
        reply.buf.truncate(reply.from + head.bytes());
    }
    reply
}

/// An answer without a body.
pub fn bare(buffers: &Buffers, frame: Frame<'_>, status: u16) -> Reply {
    let mut buf = buffers.take(HEADROOM);
    frame.head(status, None).write(&mut buf);
    Reply { buf, from: 0 }
}

/// The answer to a page's question whether it may send what it wants to (the Fetch standard's preflight).
/// `asked` are the headers that it wants to send: any may be, since none but `traceparent` crosses.
pub fn preflight(buffers: &Buffers, frame: Frame<'_>, methods: &str, asked: &[&[u8]]) -> Reply {
    let mut lines = Vec::new();
    if frame.cors.is_some() {
        let mut line = |name: &str, value: &[u8]| {
            lines.extend_from_slice(name.as_bytes());
            lines.extend_from_slice(value);
            lines.extend_from_slice(b"\r\n");
        };
        line("Access-Control-Allow-Methods: ", methods.as_bytes());
        asked.iter().for_each(|names| line("Access-Control-Allow-Headers: ", names));
        line("Access-Control-Max-Age: ", b"7200");
        line("Vary: ", b"Access-Control-Request-Headers");
    }
    let mut buf = buffers.take(HEADROOM + lines.len());
    ResponseWriter { allow: Some(methods), ..Frame { extra: &lines, ..frame }.head(204, None) }.write(&mut buf);
    Reply { buf, from: 0 }
}

/// Writes the head into the room that was left in front of the body.
pub fn finish(buffers: &Buffers, mut buf: Vec<u8>, head: &ResponseWriter<'_>) -> Reply {
    if let Some(from) = head.write_before(&mut buf[..HEADROOM]) {
        return Reply { buf, from };
    }
    let mut front = buffers.take(head.bytes());
    head.write(&mut front);
    let reply = in_front(buffers, buf, HEADROOM, &front);
    buffers.give(front);
    reply
}

/// The answers of a batch, in the order of its members.
pub struct BatchReply<'b> {
    buffers: &'b Buffers,
    buf: Vec<u8>,
    head: BatchHead,
    limit: usize,
}

impl<'b> BatchReply<'b> {
    /// An empty array; `limit` bounds its bytes (`max_batch_response_bytes`).
    pub fn new(buffers: &'b Buffers, limit: usize) -> BatchReply<'b> {
        let mut buf = buffers.take(4 * HEADROOM);
        buf.resize(HEADROOM, 0);
        BatchReply { buffers, buf, head: BatchHead::default(), limit }
    }

    /// Adds the next member's answer; `false` = a node's, for which there is no room any more.
    pub fn push(&mut self, id: &[u8], answer: Answer) -> bool {
        if matches!(answer, Answer::Silent | Answer::Abandoned) {
            return true;
        }
        let fits = answer.bytes() == 0 || !self.is_full(answer.bytes() + id.len());
        let answer = match fits {
            true => answer,
            false => {
                if let Some(buf) = answer.into_buf() {
                    self.buffers.give(buf);
                }
                Answer::Fault { fault: Fault::ResponseTooLarge, attempts: 1, transaction: None }
            }
        };
        self.buf.push(if self.head.answers == 0 { b'[' } else { b',' });
        let mut fault = None;
        match answer {
            Answer::Node { buf, value, is_error } => {
                self.room_for(value.len() + id.len() + HEADROOM);
                write_answer_prefix(&mut self.buf, id, is_error);
                self.buf.extend_from_slice(&buf[value]);
                self.buf.push(b'}');
                self.buffers.give(buf);
            }
            Answer::Verbatim { buf, body, .. } => {
                self.room_for(body.len() + HEADROOM);
                self.buf.extend_from_slice(&buf[body]);
                self.buffers.give(buf);
            }
            Answer::Fault { fault: said, attempts, transaction } => {
                write_fault(&mut self.buf, id, &said, attempts, transaction.as_ref().map(Name::text));
                fault = Some(said);
            }
            Answer::Silent | Answer::Abandoned => {}
        }
        self.head.answered(fault);
        fits
    }

    /// Bytes so far.
    pub fn bytes(&self) -> usize {
        self.buf.len() - HEADROOM
    }

    fn is_full(&self, more: usize) -> bool {
        self.buf.len() + more > self.limit.saturating_add(HEADROOM)
    }

    fn room_for(&mut self, more: usize) {
        let wanted = self.buf.len() + more;
        if wanted > self.buf.capacity() {
            let buf = std::mem::take(&mut self.buf);
            let doubled = 2 * buf.capacity();
            self.buf = self.buffers.grow(buf, wanted.max(doubled));
        }
    }

    /// The whole reply, compressed if it is large and the client takes that.
    pub async fn finish(mut self, frame: Frame<'_>) -> Reply {
        if self.head.answers == 0 {
            self.buffers.give(self.buf);
            return bare(self.buffers, frame, 204);
        }
        self.buf.push(b']');
        let bytes = self.buf.len() - HEADROOM;
        let mut head = frame.head(self.head.status(), Some(bytes));
        head.retry_after_s = self.head.retry_after_s;
        if !frame.zips(bytes) {
            return finish(self.buffers, self.buf, &head);
        }
        let reply = zipped(self.buffers, head, &[&self.buf[HEADROOM..]]).await;
        self.buffers.give(self.buf);
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Frame<'_> = Frame {
        keep_alive: true,
        http11: true,
        head_only: false,
        request_id: "r-1",
        cors: None,
        coding: AnswerCoding::Fixed,
        extra: b"",
        protocol: Protocol::JsonRpc,
    };

    fn node(front: usize, value: &[u8]) -> Answer {
        let mut buf = vec![b'#'; front];
        buf.extend_from_slice(value);
        buf.extend_from_slice(b",\"id\":1}");
        Answer::Node { buf, value: front..front + value.len(), is_error: false }
    }

    fn text(reply: &Reply) -> &str {
        std::str::from_utf8(&reply.buf[reply.from..]).unwrap()
    }

    #[test]
    fn the_nodes_bytes_keep_their_place() {
        let buffers = Buffers::default();
        let expected = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 40\r\nX-Request-Id: r-1\r\n\r\n\
                        {\"jsonrpc\":\"2.0\",\"id\":1.50,\"result\":\"0x1\"}";
        // With room in front of the value, and without.
        for front in [300, 10] {
            let reply = single(&buffers, FRAME, b"1.50", node(front, b"\"0x1\""));
            assert_eq!(
                text(&reply),
                expected.replace("40", &(expected.len() - expected.find('{').unwrap()).to_string())
            );
        }
    }

    #[test]
    fn a_batch_keeps_order_and_its_limit() {
        let buffers = Buffers::default();
        let mut batch = BatchReply::new(&buffers, 120);
        batch.push(b"1", node(300, b"\"a\""));
        batch.push(b"null", Answer::Silent);
        batch.push(b"2", node(300, &[b'9'; 100]));
        batch.push(b"3", Answer::Fault { fault: Fault::NoTarget, attempts: 0, transaction: None });
        let reply = futures_util::FutureExt::now_or_never(batch.finish(FRAME)).unwrap();
        let body = text(&reply).split_once("\r\n\r\n").unwrap().1;
        let answers: Vec<serde_json::Value> = serde_json::from_str(body).unwrap();
        assert_eq!(answers.iter().map(|answer| answer["id"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(answers[0]["result"], "a");
        assert_eq!(answers[1]["error"]["code"], -32055);
        assert_eq!(answers[2]["error"]["code"], -32050);
        assert!(text(&reply).contains(&format!("Content-Length: {}\r\n", body.len())));
    }

    #[test]
    fn a_batch_of_silence_is_204_without_a_body() {
        let buffers = Buffers::default();
        let mut batch = BatchReply::new(&buffers, 1_000);
        batch.push(b"null", Answer::Silent);
        assert_eq!(
            text(&futures_util::FutureExt::now_or_never(batch.finish(FRAME)).unwrap()),
            "HTTP/1.1 204 No Content\r\nX-Request-Id: r-1\r\n\r\n"
        );
    }

    #[test]
    fn health_tells_the_length_of_the_body_that_head_leaves_out() {
        let buffers = Buffers::default();
        let whole = health(&buffers, FRAME, true);
        let head = health(&buffers, Frame { head_only: true, ..FRAME }, true);
        assert!(text(&whole).starts_with(text(&head)));
        assert!(text(&head).ends_with("Content-Length: 16\r\nX-Request-Id: r-1\r\n\r\n"));
        assert_eq!(text(&whole).len(), text(&head).len() + 16);
    }
}
