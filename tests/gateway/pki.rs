//! Certificates of a test's own, and a front that speaks TLS before a plain upstream.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::event::{PollFd, PollFlags, poll};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    SupportedProtocolVersion,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A root, and what it signs.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key.
pub struct Signed {
    pub cert: String,
    pub key: String,
    der: CertificateDer<'static>,
    key_der: Vec<u8>,
}

impl Authority {
    /// A root of its own.
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// The root in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for these names.
    pub fn sign(&self, names: &[&str]) -> Signed {
        self.sign_until(names, 2100)
    }

    /// A certificate that ends with this year.
    pub fn sign_until(&self, names: &[&str], year: i32) -> Signed {
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 12, 31);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.0).unwrap();
        Signed { cert: cert.pem(), key: key.serialize_pem(), der: cert.der().clone(), key_der: key.serialize_der() }
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        Arc::new(roots)
    }
}

impl Signed {
    /// A server that shows this certificate, and asks for one of this authority if there is one.
    pub fn server(&self, clients: Option<&Authority>) -> Arc<ServerConfig> {
        let builder = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let provider = Arc::new(rustls::crypto::ring::default_provider());
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(authority.roots(), provider).build().unwrap();
                builder.with_client_cert_verifier(verifier)
            }
        };
        let key = PrivatePkcs8KeyDer::from(self.key_der.clone()).into();
        let mut config = builder.with_single_cert(vec![self.der.clone()], key).unwrap();
        config.ticketer = rustls::crypto::ring::Ticketer::new().unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config)
    }
}

/// A caller that speaks TLS; its connections share tickets.
pub struct TlsClient(Arc<ClientConfig>);

impl TlsClient {
    /// Trusts this authority, and shows this certificate if it is asked.
    pub fn new(trusted: &Authority, own: Option<&Signed>, versions: &[&'static SupportedProtocolVersion]) -> TlsClient {
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
        let builder = builder.with_protocol_versions(versions).unwrap().with_root_certificates(trusted.roots());
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let key = PrivatePkcs8KeyDer::from(own.key_der.clone()).into();
                builder.with_client_auth_cert(vec![own.der.clone()], key).unwrap()
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        TlsClient(Arc::new(config))
    }

    /// A connection to `localhost` at this address.
    pub fn connect(&self, address: SocketAddr) -> StreamOwned<ClientConnection, TcpStream> {
        self.connect_behind(address, b"")
    }

    /// The same, with something in plain text first.
    pub fn connect_behind(&self, address: SocketAddr, first: &[u8]) -> StreamOwned<ClientConnection, TcpStream> {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(super::upstream::PATIENCE)).unwrap();
        stream.write_all(first).unwrap();
        StreamOwned::new(ClientConnection::new(self.0.clone(), "localhost".try_into().unwrap()).unwrap(), stream)
    }
}

/// Files that end with the test.
pub struct Files(PathBuf);

impl Files {
    pub fn new() -> Files {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("ringway-pki-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Files(folder)
    }

    /// Writes a file: its path.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a front has seen of its handshakes.
#[derive(Debug, Clone, Default)]
pub struct Shaken {
    pub full: usize,
    pub resumed: usize,
    pub failed: usize,
    /// What the callers asked for: server name, and the protocol that was agreed on.
    pub asked: Vec<(Option<String>, Option<Vec<u8>>)>,
}

/// Speaks TLS on its address, and hands the plain bytes on to another and back.
pub struct Front {
    pub address: SocketAddr,
    shaken: Arc<Mutex<Shaken>>,
    callers: Arc<Mutex<Vec<TcpStream>>>,
}

impl Front {
    pub fn start(config: Arc<ServerConfig>, target: SocketAddr) -> Front {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shaken = Arc::new(Mutex::new(Shaken::default()));
        let callers = Arc::new(Mutex::new(Vec::new()));
        let (seen, known) = (shaken.clone(), callers.clone());
        std::thread::spawn(move || {
            for outer in listener.incoming().map_while(Result::ok) {
                known.lock().unwrap().extend(outer.try_clone());
                let (config, seen) = (config.clone(), seen.clone());
                std::thread::spawn(move || {
                    let _ = relay(config, outer, target, &seen);
                });
            }
        });
        Front { address, shaken, callers }
    }

    /// Closes every connection that it has.
    pub fn hang_up(&self) {
        for caller in self.callers.lock().unwrap().drain(..) {
            let _ = caller.shutdown(Shutdown::Both);
        }
    }

    pub fn shaken(&self) -> Shaken {
        self.shaken.lock().unwrap().clone()
    }
}

fn relay(
    config: Arc<ServerConfig>,
    mut outer: TcpStream,
    target: SocketAddr,
    seen: &Mutex<Shaken>,
) -> std::io::Result<()> {
    let mut tls = ServerConnection::new(config).unwrap();
    while tls.is_handshaking() {
        if let Err(error) = tls.complete_io(&mut outer) {
            seen.lock().unwrap().failed += 1;
            return Err(error);
        }
    }
    {
        let mut seen = seen.lock().unwrap();
        match tls.handshake_kind() {
            Some(HandshakeKind::Resumed) => seen.resumed += 1,
            _ => seen.full += 1,
        }
        seen.asked.push((tls.server_name().map(str::to_owned), tls.alpn_protocol().map(<[u8]>::to_vec)));
    }
    let mut inner = TcpStream::connect(target)?;
    outer.set_nonblocking(true)?;
    inner.set_nonblocking(true)?;
    let mut buf = vec![0; 1 << 16];
    loop {
        // First what came right behind the handshake.
        while let Ok(count @ 1..) = tls.reader().read(&mut buf) {
            write_all(&mut inner, &buf[..count])?;
        }
        flush(&mut tls, &mut outer)?;
        let mut ready = [PollFd::new(&outer, PollFlags::IN), PollFd::new(&inner, PollFlags::IN)];
        poll(&mut ready, None)?;
        let (from_outer, from_inner) = (!ready[0].revents().is_empty(), !ready[1].revents().is_empty());
        if from_outer {
            if tls.read_tls(&mut outer)? == 0 {
                let _ = inner.shutdown(Shutdown::Both);
                return Ok(());
            }
            tls.process_new_packets().map_err(|error| std::io::Error::new(ErrorKind::InvalidData, error))?;
        }
        if from_inner {
            match inner.read(&mut buf) {
                Ok(0) => {
                    tls.send_close_notify();
                    flush(&mut tls, &mut outer)?;
                    let _ = outer.shutdown(Shutdown::Both);
                    return Ok(());
                }
                Ok(count) => tls.writer().write_all(&buf[..count])?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn flush(tls: &mut ServerConnection, outer: &mut TcpStream) -> std::io::Result<()> {
    while tls.wants_write() {
        match tls.write_tls(outer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => writable(outer)?,
            other => drop(other?),
        }
    }
    Ok(())
}

fn write_all(to: &mut TcpStream, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => writable(to)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn writable(socket: &TcpStream) -> std::io::Result<()> {
    poll(&mut [PollFd::new(socket, PollFlags::OUT)], None)?;
    Ok(())
}
