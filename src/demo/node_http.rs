//! The requests that come in on one connection of a simulated node.

use crate::logic::fault::HttpFault;
use crate::wire::http1::HeadLimits;
use crate::wire::http1_chunked::Chunked;
use crate::wire::http1_request::{Framing, Verb, request_head};
use crate::wire::http1_write::CONTINUE;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// Largest body that a node takes.
const BODY_BYTES_MAX: usize = 8 << 20;
const LIMITS: HeadLimits = HeadLimits { bytes: 16 << 10, headers: 100 };

/// One whole request.
pub struct Request {
    /// 200, or why it is no request that a node answers.
    pub status: u16,
    /// Its body.
    pub body: Vec<u8>,
    /// Whether the connection goes on.
    pub keep_alive: bool,
}

impl Request {
    /// A request that is answered with an error and ends the connection.
    fn refused(status: u16) -> Request {
        Request { status, body: Vec::new(), keep_alive: false }
    }
}

/// Reads one request after the other.
pub struct Incoming<'s> {
    stream: &'s TcpStream,
    buf: Vec<u8>,
}

impl<'s> Incoming<'s> {
    /// Nothing was read so far.
    pub fn new(stream: &'s TcpStream) -> Incoming<'s> {
        Incoming { stream, buf: Vec::new() }
    }

    /// The next request; `None` = the peer has left.
    ///
    /// # Errors
    /// Of the socket; a peer that is quiet for too long is one.
    pub fn next(&mut self) -> io::Result<Option<Request>> {
        let mut scanned = 0;
        let (framing, head_len, verb, keep_alive, expects) = loop {
            match request_head(&self.buf, scanned, &LIMITS) {
                Ok(Some(head)) => {
                    break (head.framing, head.head_len, head.verb, head.keep_alive, head.expect_continue);
                }
                Ok(None) => {}
                Err(fault) => return Ok(Some(Request::refused(fault.status()))),
            }
            scanned = self.buf.len();
            if !self.fill()? {
                return Ok(None);
            }
        };
        self.buf.drain(..head_len);
        if verb != Verb::Post {
            return Ok(Some(Request::refused(405)));
        }
        if expects {
            self.stream.write_all(CONTINUE)?;
        }
        let body = match framing {
            Framing::Empty => Ok(Vec::new()),
            Framing::Length(bytes) => self.length(bytes)?,
            Framing::Chunked => self.chunked()?,
        };
        Ok(Some(match body {
            Ok(body) => Request { status: 200, body, keep_alive },
            Err(fault) => Request::refused(fault.status()),
        }))
    }

    fn length(&mut self, bytes: u64) -> io::Result<Result<Vec<u8>, HttpFault>> {
        let Some(bytes) = usize::try_from(bytes).ok().filter(|bytes| *bytes <= BODY_BYTES_MAX) else {
            return Ok(Err(HttpFault::BodyTooLarge));
        };
        while self.buf.len() < bytes {
            self.must_fill()?;
        }
        let rest = self.buf.split_off(bytes);
        Ok(Ok(std::mem::replace(&mut self.buf, rest)))
    }

    fn chunked(&mut self) -> io::Result<Result<Vec<u8>, HttpFault>> {
        let (mut decoder, mut end) = (Chunked::default(), 0);
        loop {
            let progress = match decoder.decode(&mut self.buf[end..]) {
                Ok(progress) => progress,
                Err(bad) => return Ok(Err(bad.into())),
            };
            let rest = end + progress.consumed;
            end += progress.produced;
            if end > BODY_BYTES_MAX {
                return Ok(Err(HttpFault::BodyTooLarge));
            }
            if progress.done {
                let rest = self.buf.split_off(rest);
                let mut body = std::mem::replace(&mut self.buf, rest);
                body.truncate(end);
                return Ok(Ok(body));
            }
            self.buf.truncate(end);
            self.must_fill()?;
        }
    }

    /// Reads what is there; `false` = the peer has left.
    fn fill(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 8 << 10];
        let mut stream = self.stream;
        let n = stream.read(&mut chunk)?;
        self.buf.extend_from_slice(chunk.get(..n).unwrap_or_default());
        Ok(n > 0)
    }

    fn must_fill(&mut self) -> io::Result<()> {
        if self.fill()? { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Shutdown, TcpListener};

    /// What a node reads when a peer sends `bytes` and leaves.
    fn requests(bytes: &[u8]) -> Vec<(u16, Vec<u8>, bool)> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        peer.write_all(bytes).unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        let mut incoming = Incoming::new(&stream);
        let mut all = Vec::new();
        while let Ok(Some(request)) = incoming.next() {
            all.push((request.status, request.body, request.keep_alive));
            if !all.last().unwrap().2 {
                break;
            }
        }
        all
    }

    #[test]
    fn requests_follow_each_other_in_any_framing() {
        let bytes = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab\
            POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\ncd\r\n1\r\ne\r\n0\r\n\r\n\
            POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 1\r\n\r\nf";
        let expected = [(200, b"ab".to_vec(), true), (200, b"cde".to_vec(), true), (200, b"f".to_vec(), false)];
        assert_eq!(requests(bytes), expected);
    }

    #[test]
    fn what_is_no_post_is_refused_and_what_is_cut_short_is_none() {
        assert_eq!(requests(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"), [(405, vec![], false)]);
        assert_eq!(requests(b"nonsense\r\n\r\n"), [(400, vec![], false)]);
        let huge = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999\r\n\r\n";
        assert_eq!(requests(huge), [(413, vec![], false)]);
        assert_eq!(requests(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nab"), []);
        assert_eq!(requests(b""), []);
    }
}
