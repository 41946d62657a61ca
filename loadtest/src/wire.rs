//! A connection as both sides of the tool see it: plain bytes, whether TLS is spoken below them or not.
//!
//! It keeps the socket's manners: a short read has emptied the socket, and a full socket says `WouldBlock`. The TLS
//! side speaks TLS 1.3 with one suite only, so that no rival can be measured with a cheaper one.

use std::{
    fmt,
    io::{self, ErrorKind, Read as _, Write as _},
    sync::Arc,
};

use mio::net::TcpStream;
use rustls::{
    ClientConfig, ClientConnection, Connection, HandshakeKind, RootCertStore, ServerConfig, ServerConnection,
    client::Resumption,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    version::TLS13,
};

/// The name that a server must prove.
pub const NAME: &str = "localhost";

/// One suite, which HAProxy and nginx are told to take too.
fn provider() -> Arc<CryptoProvider> {
    let suites = vec![ring::cipher_suite::TLS13_AES_256_GCM_SHA384];
    Arc::new(CryptoProvider { cipher_suites: suites, ..ring::default_provider() })
}

fn other(error: impl fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

/// What a caller needs to speak TLS, with roots in PEM; each caller has one of its own, and so tickets of its own.
pub fn client(ca: &[u8], resume: bool) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for one in CertificateDer::pem_slice_iter(ca) {
        roots.add(one.map_err(other)?).map_err(other)?;
    }
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]).map_err(other)?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = if resume { Resumption::in_memory_sessions(8) } else { Resumption::disabled() };
    Ok(Arc::new(config))
}

/// What the upstream needs to speak TLS: certificate and key in PEM. It gives tickets.
pub fn server(cert: &[u8], key: &[u8]) -> io::Result<Arc<ServerConfig>> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(cert).collect();
    let key = PrivateKeyDer::from_pem_slice(key).map_err(other)?;
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]).map_err(other)?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain.map_err(other)?, key).map_err(other)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.ticketer = ring::Ticketer::new().map_err(other)?;
    Ok(Arc::new(config))
}

/// What two sides agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed {
    /// Version and suite.
    pub suite: String,
    /// An earlier session was taken up again.
    pub resumed: bool,
}

impl fmt::Display for Agreed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.suite, if self.resumed { "resumed" } else { "full" })
    }
}

/// A socket, and the TLS session on it.
pub struct Wire {
    stream: TcpStream,
    tls: Option<Box<Connection>>,
}

impl Wire {
    /// The calling side.
    pub fn client(stream: TcpStream, tls: Option<&Arc<ClientConfig>>) -> io::Result<Self> {
        let Some(config) = tls else { return Ok(Self { stream, tls: None }) };
        let name = ServerName::try_from(NAME).map_err(other)?;
        let tls = ClientConnection::new(Arc::clone(config), name).map_err(other)?;
        Ok(Self { stream, tls: Some(Box::new(tls.into())) })
    }

    /// The serving side.
    pub fn server(stream: TcpStream, tls: Option<&Arc<ServerConfig>>) -> io::Result<Self> {
        let Some(config) = tls else { return Ok(Self { stream, tls: None }) };
        let tls = ServerConnection::new(Arc::clone(config)).map_err(other)?;
        Ok(Self { stream, tls: Some(Box::new(tls.into())) })
    }

    /// The socket.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// What was agreed on, once it is.
    pub fn agreed(&self) -> Option<Agreed> {
        let tls = self.tls.as_ref()?;
        let kind = tls.handshake_kind().filter(|_| !tls.is_handshaking())?;
        let (version, suite) = (tls.protocol_version()?, tls.negotiated_cipher_suite()?.suite());
        Some(Agreed { suite: format!("{version:?} {suite:?}"), resumed: kind == HandshakeKind::Resumed })
    }

    /// Reads until `into` is full or the socket is empty; 0 = the peer has ended.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.stream.read(into) };
        let mut count = 0;
        loop {
            match tls.reader().read(&mut into[count..]) {
                Ok(0) => return Ok(count),
                Ok(more) => {
                    count += more;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Ok(count),
            }
            match tls.read_tls(&mut self.stream) {
                Ok(_) => {
                    let understood = tls.process_new_packets();
                    push(tls, &mut self.stream)?;
                    understood.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && count > 0 => return Ok(count),
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes what the socket has room for.
    pub fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.stream.write(from) };
        push(tls, &mut self.stream)?;
        // Before the handshake is done it all waits, and up to 64 KiB may.
        let count = if tls.wants_write() { 0 } else { tls.writer().write(from)? };
        push(tls, &mut self.stream)?;
        if count == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(count) }
    }

    /// Encrypted bytes wait for room in the socket.
    pub fn owes(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Writes encrypted bytes that waited.
    pub fn push(&mut self) -> io::Result<()> {
        self.tls.as_mut().map_or(Ok(()), |tls| push(tls, &mut self.stream))
    }

    /// Says goodbye, before it is dropped.
    pub fn close(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            // A peer without room for it sees the end all the same.
            let _ = push(tls, &mut self.stream);
        }
    }
}

fn push(tls: &mut Connection, stream: &mut TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        match tls.write_tls(stream) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
