//! Bodies in a content coding: what clients send, what they are sent. Both take turns with everybody else.

use crate::logic::fault::HttpFault;
use crate::net::buffers::{Buffers, HEADROOM};
use crate::net::reply::{Reply, finish};
use crate::net::ring;
use crate::wire::coding::{BadCoding, Gzip, Inflate};
use crate::wire::http1::Coding;
use crate::wire::http1_write::{Announced, AnswerCoding, ResponseWriter};

/// Smaller answers go out as they are: what is saved is less than a packet.
pub const GZIP_MIN_BYTES: usize = 1 << 10;
/// Bytes that are compressed in one turn: about a millisecond.
const TURN_BYTES: usize = 128 << 10;
/// Steps of inflating in one turn.
pub const TURN_STEPS: usize = 8;

/// Takes a request body out of its coding.
///
/// # Errors
/// If it is not what its coding says, or if more than `max` bytes come out.
pub async fn inflate(coding: Coding, body: &[u8], max: usize) -> Result<Vec<u8>, HttpFault> {
    let Some(mut inflate) = Inflate::new(coding, body, max) else { return Err(HttpFault::Unsupported(CODED)) };
    let mut out = Vec::new();
    let mut steps = 0;
    loop {
        match inflate.step(&mut out) {
            Ok(true) => return Ok(out),
            Ok(false) => {}
            Err(BadCoding::TooLarge) => return Err(HttpFault::BodyTooLarge),
            Err(BadCoding::Broken) => return Err(HttpFault::BadRequest("the body is not what Content-Encoding says")),
        }
        steps += 1;
        if steps % TURN_STEPS == 0 {
            ring::sleep(1).await;
        }
    }
}

/// Why a coding is refused.
pub const CODED: &str = "Content-Encoding: send the body as it is, or in gzip or deflate";

/// An answer in gzip; `head` tells of its body as it would be without.
pub async fn zipped(buffers: &Buffers, head: ResponseWriter<'_>, parts: &[&[u8]]) -> Reply {
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    // JSON of nodes shrinks to a sixth; what does not grows the buffer.
    let mut out = buffers.take(HEADROOM + bytes / 4);
    out.resize(HEADROOM, 0);
    let mut gzip = Gzip::new(out);
    for piece in parts.iter().flat_map(|part| part.chunks(TURN_BYTES)) {
        gzip.push(piece);
        if piece.len() == TURN_BYTES {
            ring::sleep(1).await;
        }
    }
    let buf = gzip.finish();
    let body = head.body.map(|body| Announced { bytes: buf.len() - HEADROOM, ..body });
    finish(buffers, buf, &ResponseWriter { body, coding: AnswerCoding::Gzip, ..head })
}
