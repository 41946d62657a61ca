//! A connection as its users see it: plain bytes, whether TLS is spoken below them or not.

use crate::logic::fault::Reason;
use crate::logic::snapshot::Endpoint;
use crate::logic::units::Nanos;
use crate::net::buffers::{Buffers, HEADROOM, SMALL_RESPONSE};
use crate::net::ring::{self, Cut, Stream, WriteBroke};
use crate::wire::tls::{Broken, Session, Step, Took};
use crate::wire::tls_config;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;

/// Reads of a quiet connection that are looked into: tickets come in one or two.
const QUIET_READS: usize = 4;

/// How a write ended, and its buffer.
type Wrote = (Result<(), WriteBroke>, Vec<u8>);

/// What TLS towards an Endpoint needs.
#[derive(Clone)]
pub struct ClientTls {
    /// Versions, roots, tickets.
    pub config: Arc<ClientConfig>,
    /// The name that must be proved.
    pub name: ServerName<'static>,
}

impl ClientTls {
    /// What TLS towards this Endpoint needs; `None` where none is spoken, and where it can't be made: then nothing is
    /// sent to it.
    pub fn of(endpoint: &Endpoint) -> Option<ClientTls> {
        let made = endpoint.url.https.then(|| tls_config::client(&endpoint.url.host, &endpoint.tls))?;
        made.ok().map(|(config, name)| ClientTls { config, name })
    }
}

/// A socket, and the TLS session on it.
pub struct Link {
    stream: Stream,
    tls: Option<Box<Session>>,
}

impl From<Stream> for Link {
    fn from(stream: Stream) -> Link {
        Link { stream, tls: None }
    }
}

/// Deadlines and handles are the socket's.
impl Deref for Link {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.stream
    }
}

impl Link {
    /// Connects, and agrees on TLS if it is wanted, until `until_ns`.
    ///
    /// # Errors
    /// Why nothing can be sent.
    pub async fn connect(
        address: SocketAddr,
        tls: Option<&ClientTls>,
        until_ns: Nanos,
        now_ns: Nanos,
    ) -> Result<Link, Reason> {
        let stream = match Stream::connect(address, until_ns.saturating_sub(now_ns)).await {
            Ok(stream) => stream,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(Reason::ConnectTimeout),
            // Too many files are open here: no free connection, and nothing that the node has done.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                return Err(Reason::QueueTimeout);
            }
            Err(_) => return Err(Reason::ConnectFailed),
        };
        let Some(tls) = tls else { return Ok(stream.into()) };
        let session = Session::client(tls.config.clone(), tls.name.clone()).map_err(Broken::reason)?;
        let mut link = Link { stream, tls: Some(Box::new(session)) };
        link.stream.arm(until_ns, Cut::Both, ring::now());
        match link.shake().await {
            Ok(()) => Ok(link),
            Err(_) if link.expired() => Err(Reason::ConnectTimeout),
            Err(broken) => Err(broken.reason()),
        }
    }

    /// Agrees on TLS with a caller, of whom `early` was read already. The deadline is the one that the stream has.
    ///
    /// # Errors
    /// Why not.
    pub async fn accept(stream: Stream, config: Arc<ServerConfig>, early: Vec<u8>) -> Result<Link, Broken> {
        let mut session = Session::server(config)?;
        session.received(early)?;
        let mut link = Link { stream, tls: Some(Box::new(session)) };
        link.shake().await.map(|()| link)
    }

    /// Whether TLS is spoken, and if so, whether an earlier session was taken up again.
    pub fn resumed(&self) -> Option<bool> {
        self.tls.as_ref().map(|tls| tls.resumed())
    }

    async fn shake(&mut self) -> Result<(), Broken> {
        let Link { stream, tls: Some(tls) } = self else { return Ok(()) };
        loop {
            let step = tls.shake();
            if tls.is_to_write() {
                let outgoing = tls.outgoing();
                let length = outgoing.len();
                let (wrote, outgoing) = stream.write(outgoing, 0, length, None).await;
                tls.written(outgoing);
                if wrote.is_err() && step.is_ok() {
                    return Err(Broken::Failed);
                }
            }
            match step? {
                Step::Done => return Ok(()),
                Step::Write => {}
                Step::Read => {
                    let (read, incoming) = stream.read(tls.room()).await;
                    tls.received(incoming)?;
                    if !matches!(read, Ok(count) if count > 0) {
                        return Err(Broken::Failed);
                    }
                }
            }
        }
    }

    /// The socket itself where no TLS is spoken. Whoever reads or writes for every Call asks for it first and waits for
    /// it directly: a future around the two kinds would cost each plain Call three per cent of its instructions.
    pub fn plain(&mut self) -> Option<&mut Stream> {
        if self.tls.is_none() { Some(&mut self.stream) } else { None }
    }

    /// Begins to read as [`Link::listen`] does, on a connection that is put aside: a peer that closes or speaks unasked
    /// shows without a look at the socket. While much is going on a look costs less, since it is soon in use again.
    pub fn listen_aside(&mut self, buffers: &Buffers) {
        if !ring::is_busy() {
            self.listen(buffers);
        }
    }

    /// Begins to read the head of what comes next, behind room for an answer's head, unless that has begun or TLS is
    /// spoken.
    pub fn listen(&mut self, buffers: &Buffers) {
        if let Some(plain) = self.plain().filter(|plain| !plain.reads()) {
            let mut buf = buffers.take(SMALL_RESPONSE);
            buf.resize(HEADROOM, 0);
            plain.begin_read(buf);
        }
    }

    /// [`Stream::read`] where TLS is spoken. An end that TLS does not confirm is an error: somebody may have cut the
    /// answer short. Boxed, because a plain connection's task must not be larger for it.
    pub fn read_sealed(&mut self, buf: Vec<u8>) -> Pin<Box<impl Future<Output = (io::Result<usize>, Vec<u8>)>>> {
        Box::pin(self.unseal(buf))
    }

    async fn unseal(&mut self, mut buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        let Link { stream, tls: Some(tls) } = self else { return (Err(io::ErrorKind::InvalidData.into()), buf) };
        loop {
            match tls.take(&mut buf) {
                Ok(Took::Bytes(count)) => return (Ok(count), buf),
                Ok(Took::End) => return (Ok(0), buf),
                Ok(Took::Read) => {}
                Err(_) => return (Err(io::ErrorKind::InvalidData.into()), buf),
            }
            let (read, incoming) = stream.read(tls.room()).await;
            let understood = tls.received(incoming);
            match read {
                Ok(0) => return (Err(io::ErrorKind::UnexpectedEof.into()), buf),
                Ok(_) if understood.is_ok() => {}
                Ok(_) => return (Err(io::ErrorKind::InvalidData.into()), buf),
                Err(error) => return (Err(error), buf),
            }
        }
    }

    /// [`Stream::write`] where TLS is spoken: `taken` counts what was encrypted and at least in part taken, so what the
    /// peer may have seen. Boxed as reading is.
    pub fn write_sealed(
        &mut self,
        buf: Vec<u8>,
        from: usize,
        to: usize,
        patience_ns: Option<Nanos>,
    ) -> Pin<Box<impl Future<Output = Wrote>>> {
        Box::pin(self.seal(buf, from, to, patience_ns))
    }

    async fn seal(&mut self, buf: Vec<u8>, from: usize, to: usize, patience_ns: Option<Nanos>) -> Wrote {
        let Link { stream, tls: Some(tls) } = self else { return (Err(WriteBroke { taken: 0 }), buf) };
        let mut at = from;
        while at < to {
            let Ok(sealed) = tls.seal(&buf[at..to]) else { return (Err(WriteBroke { taken: at - from }), buf) };
            let out = tls.outgoing();
            let length = out.len();
            let (wrote, out) = stream.write(out, 0, length, patience_ns).await;
            tls.written(out);
            if let Err(broke) = wrote {
                let taken = if broke.taken > 0 { at + sealed } else { at } - from;
                return (Err(WriteBroke { taken }), buf);
            }
            at += sealed;
        }
        (Ok(()), buf)
    }

    /// Whether the peer has neither closed nor said anything: only such a connection may be used again. What TLS says
    /// for itself (tickets) is taken in, and is nothing. With `surely` the kernel is asked, and not just the last turn.
    pub fn is_quiet(&mut self, surely: bool) -> bool {
        let Some(tls) = &mut self.tls else {
            return if surely { self.stream.is_surely_quiet() } else { self.stream.is_quiet() };
        };
        for _ in 0..QUIET_READS {
            if !tls.settles() {
                return false;
            }
            if self.stream.is_quiet() {
                return true;
            }
            let mut incoming = tls.room();
            let read = self.stream.read_now(&mut incoming);
            if tls.received(incoming).is_err() || !matches!(read, Ok(count) if count > 0) {
                return false;
            }
        }
        false
    }

    /// Whether the peer of a connection that is not quiet has said something, and not just ended. It is used no more.
    pub fn has_spoken(&self) -> bool {
        self.tls.as_ref().map_or_else(|| self.stream.has_spoken(), |tls| tls.holds())
    }

    /// Tells the peer that nothing more will be written.
    pub fn finish_writing(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.close();
            let note = tls.outgoing();
            // Of use to a peer that reads to the end; one whose buffer is full does not wait for it.
            self.stream.write_now(&note);
        }
        self.stream.finish_writing();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::units::MS;
    use crate::net::ring::sleep;
    use crate::net::stream::tests::{connected_to, on_both};
    use std::io::Write;

    #[test]
    fn what_a_peer_says_unasked_is_told_from_its_end() {
        for speaks in [true, false] {
            on_both(move || async move {
                let (stream, mut peer) = connected_to().await;
                let mut link = Link::from(stream);
                link.listen(&Buffers::default());
                sleep(MS).await;
                assert!(link.is_quiet(false) && link.is_quiet(true));
                match speaks {
                    true => peer.write_all(b"unasked").unwrap(),
                    false => drop(peer),
                }
                while link.is_quiet(false) {
                    sleep(MS).await;
                }
                assert_eq!(link.has_spoken(), speaks);
            });
        }
    }
}
