//! What Ringway's codec makes of the bytes of a connection.

use super::reading::{Body, Message, Reading};
use ringway::logic::fault::HttpFault;
use ringway::wire::http1::HeadLimits;
use ringway::wire::http1_chunked::Chunked;
use ringway::wire::http1_request::{Framing, RequestHead, request_head};

const LIMITS: HeadLimits = HeadLimits { bytes: 64 << 10, headers: super::HEADERS_MAX };

/// Reads messages to the end, `step` bytes a read.
pub fn read(bytes: &[u8], step: usize) -> Reading {
    let mut pieces = bytes.chunks(step.max(1));
    let (mut buf, mut messages) = (Vec::new(), Vec::new());
    loop {
        let mut scanned = 0;
        let (head_len, framing, keep_alive) = loop {
            match request_head(&buf, scanned, &LIMITS) {
                Ok(Some(head)) => {
                    let (method, target) = start_line(&buf, &head);
                    messages.push(Message { method, target, body: Body::Unfinished });
                    break (head.head_len, head.framing, head.keep_alive);
                }
                Ok(None) => scanned = buf.len(),
                Err(fault) => return Reading { messages, refused: Some(words(&fault)) },
            }
            match pieces.next() {
                Some(piece) => buf.extend_from_slice(piece),
                None => return Reading { messages, refused: None },
            }
        };
        buf.drain(..head_len);
        let (mut decoder, mut end) = (Chunked::default(), 0);
        let rest = loop {
            match framing {
                Framing::Empty => break 0,
                Framing::Length(length) if buf.len() as u64 >= length => {
                    end = length as usize;
                    break end;
                }
                Framing::Length(_) => {}
                Framing::Chunked => match decoder.decode(&mut buf[end..]) {
                    Ok(progress) => {
                        let rest = end + progress.consumed;
                        end += progress.produced;
                        if progress.done {
                            break rest;
                        }
                        buf.truncate(end);
                    }
                    Err(bad) => {
                        set_body(&mut messages, Body::Refused(bad.words().to_owned()));
                        return Reading { messages, refused: None };
                    }
                },
            }
            match pieces.next() {
                Some(piece) => buf.extend_from_slice(piece),
                None => return Reading { messages, refused: None },
            }
        };
        set_body(&mut messages, Body::Whole(buf[..end].to_vec()));
        if !keep_alive {
            return Reading { messages, refused: None };
        }
        buf.drain(..rest);
    }
}

fn set_body(messages: &mut [Message], body: Body) {
    messages.last_mut().expect("a message whose body was read").body = body;
}

/// The method as it was sent; the target put together again from its parts.
fn start_line(buf: &[u8], head: &RequestHead<'_>) -> (String, String) {
    let head_text = String::from_utf8_lossy(&buf[..head.head_len]);
    let line = head_text.trim_start().lines().next().unwrap_or_default();
    let (method, target) = line.split_once(' ').unwrap_or_default();
    let absolute = !target.starts_with('/') && head.path != "*";
    // Schemes mean the same in any case (RFC 3986, 3.1); hyper writes them in lower case.
    let scheme = if absolute { target.split_once("://").map_or("", |(scheme, _)| scheme) } else { "" };
    let scheme = scheme.to_ascii_lowercase();
    let authority = if absolute { head.host.unwrap_or_default() } else { "" };
    let mark = if absolute { "://" } else { "" };
    let query = head.query.map_or(String::new(), |query| format!("?{query}"));
    (method.to_owned(), format!("{scheme}{mark}{authority}{}{query}", head.path))
}

fn words(fault: &HttpFault) -> String {
    match fault {
        HttpFault::BadRequest(words) => (*words).to_owned(),
        other => format!("{other:?}"),
    }
}
