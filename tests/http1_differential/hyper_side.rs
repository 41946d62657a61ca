//! What hyper's HTTP/1 server makes of the bytes of a connection: a real one, over memory instead of a socket.

use super::reading::{Body, Message, Reading};
use futures_util::FutureExt;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A connection that was polled so often and neither read nor called the service waits for more bytes: more often
/// than a body here has chunks, each of which may take a turn.
const IDLE_POLLS: usize = 300;

/// The client's end: so many bytes a read, then silence. What the server writes is dropped.
struct Wire {
    bytes: Vec<u8>,
    at: usize,
    step: usize,
    read_so_far: Rc<Cell<usize>>,
}

impl Read for Wire {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, mut into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        if self.at == self.bytes.len() {
            return Poll::Pending;
        }
        let size = self.step.min(self.bytes.len() - self.at).min(into.remaining());
        let (from, to) = (self.at, self.at + size);
        into.put_slice(&self.bytes[from..to]);
        self.at = to;
        self.read_so_far.set(to);
        Poll::Ready(Ok(()))
    }
}

impl Write for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Serves the connection to its end.
pub fn read(bytes: &[u8], step: usize) -> Reading {
    let messages = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&messages);
    let service = service_fn(move |request: Request<Incoming>| {
        let seen = Rc::clone(&seen);
        async move {
            let (head, body) = request.into_parts();
            let at = seen.borrow().len();
            let (method, target) = (head.method.to_string(), head.uri.to_string());
            seen.borrow_mut().push(Message { method, target, body: Body::Unfinished });
            let body = match body.collect().await {
                Ok(body) => Body::Whole(body.to_bytes().to_vec()),
                Err(error) => Body::Refused(words(&error)),
            };
            seen.borrow_mut()[at].body = body;
            // Not a success: that would turn CONNECT into a tunnel.
            let mut answer = Response::new(Empty::<Bytes>::new());
            *answer.status_mut() = StatusCode::NOT_FOUND;
            Ok::<_, Infallible>(answer)
        }
    });
    let read_so_far = Rc::new(Cell::new(0));
    let wire = Wire { bytes: bytes.to_vec(), at: 0, step: step.max(1), read_so_far: Rc::clone(&read_so_far) };
    let mut connection = http1::Builder::new().max_headers(super::HEADERS_MAX).serve_connection(wire, service);
    // It waits for nothing but bytes; every now and then it only lets others have a turn.
    let mut ended = None;
    let (mut idle_polls, mut known) = (0, 0);
    while ended.is_none() && idle_polls < IDLE_POLLS {
        ended = (&mut connection).now_or_never();
        let progress = read_so_far.get() + messages.borrow().len();
        idle_polls = if progress == known { idle_polls + 1 } else { 0 };
        known = progress;
    }
    let refused = ended.and_then(Result::err).filter(hyper::Error::is_parse).map(|error| words(&error));
    drop(connection);
    let messages = messages.take();
    Reading { messages, refused }
}

fn words(error: &hyper::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}
