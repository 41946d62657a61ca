//! One simulated node: a port, a thread for each connection, and whatever fault it has at the moment.

use super::answers::{self, Asked};
use super::branch::Branch;
use super::fault::Kind;
use super::fleet::Facts;
use super::node_http::{Incoming, Request};
use crate::logic::methods::{Family, Methods};
use crate::logic::snapshot::Protocol;
use crate::net::ring::unix_seconds;
use crate::wire::http1_write::{Announced, Head, ResponseWriter};
use socket2::SockRef;
use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Connections at a time, each with a thread; one more is closed at once.
const CONNECTIONS_MAX: usize = 256;
/// Connections that wait in the kernel.
const BACKLOG: i32 = 128;
/// How long a slow node takes.
const SLOW: Duration = Duration::from_secs(2);
/// How long a peer may be quiet, or take nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// A simulated node. It lives as long as the process.
pub struct Node {
    /// What it simulates.
    pub facts: &'static Facts,
    /// Where it listens.
    pub address: SocketAddr,
    listener: TcpListener,
    /// What clients like it have.
    methods: Methods,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    fault: Option<Kind>,
    /// The moment that the fault came, in seconds since 1970.
    since_s: u64,
    /// A second handle of each open connection, to cut it from outside.
    connections: HashMap<u64, TcpStream>,
    born: u64,
}

impl Node {
    /// Starts a node on a free port of the loopback, with the fault that it has from the start.
    ///
    /// # Errors
    /// If there is no port or no thread to be had.
    pub fn start(facts: &'static Facts, fault: Option<Kind>) -> io::Result<Arc<Node>> {
        let listener = free_port()?;
        let address = listener.local_addr()?;
        let node = Arc::new(Node { facts, address, listener, methods: Methods::embedded(), state: Mutex::default() });
        node.set_fault(fault)?;
        let own = node.clone();
        std::thread::Builder::new().name(facts.id.into()).spawn(move || own.accept())?;
        Ok(node)
    }

    /// What is wrong with it now.
    pub fn fault(&self) -> Option<Kind> {
        self.state().fault
    }

    /// Breaks or heals it.
    ///
    /// # Errors
    /// If the port can't be closed or opened again.
    pub fn set_fault(&self, fault: Option<Kind>) -> io::Result<()> {
        let mut state = self.state();
        state.since_s = unix_seconds();
        let was_closed = std::mem::replace(&mut state.fault, fault) == Some(Kind::Refuse);
        match (was_closed, fault == Some(Kind::Refuse)) {
            (false, true) => {
                // Linux keeps the port bound while nobody listens; without the option nobody can share it.
                SockRef::from(&self.listener).set_reuse_address(false)?;
                SockRef::from(&self.listener).shutdown(Shutdown::Both)?;
                state.connections.drain().for_each(|(_, stream)| drop(stream.shutdown(Shutdown::Both)));
                Ok(())
            }
            (true, false) => {
                // Connections of before, closed a moment ago, must not stand in the way.
                SockRef::from(&self.listener).set_reuse_address(true)?;
                SockRef::from(&self.listener).listen(BACKLOG)
            }
            _ => Ok(()),
        }
    }

    /// Its chain now.
    fn branch(&self) -> Branch {
        let (state, now_s) = (self.state(), unix_seconds());
        match state.fault {
            Some(Kind::Frozen) => Branch::common(state.since_s),
            Some(Kind::Fork) => Branch::own(self.facts.id, state.since_s, now_s),
            _ => Branch::common(now_s),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: Arc<Node>) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let Some(number) = self.enter(&stream) else { continue };
                    let own = self.clone();
                    let serve = move || {
                        // An error is the end of the connection, and nobody's business.
                        let _ = own.serve(&stream);
                        own.state().connections.remove(&number);
                    };
                    if std::thread::Builder::new().name(self.facts.id.into()).spawn(serve).is_err() {
                        self.state().connections.remove(&number);
                    }
                }
                // The port is closed, or the process is out of file descriptors.
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Remembers a connection; `None` = it is one too many, or came as the port was closed.
    fn enter(&self, stream: &TcpStream) -> Option<u64> {
        let mut state = self.state();
        if state.connections.len() >= CONNECTIONS_MAX || state.fault == Some(Kind::Refuse) {
            return None;
        }
        let handle = stream.try_clone().ok()?;
        state.born += 1;
        let number = state.born;
        state.connections.insert(number, handle);
        Some(number)
    }

    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut incoming = Incoming::new(stream);
        while let Some(request) = incoming.next()? {
            let fault = self.fault();
            match fault {
                // Reading on notices when the caller has had enough.
                Some(Kind::Timeout) => continue,
                Some(Kind::Reset | Kind::Refuse) => {
                    SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
                    return stream.shutdown(Shutdown::Read);
                }
                Some(Kind::Slow) => std::thread::sleep(SLOW),
                _ => std::thread::sleep(self.facts.latency),
            }
            let keep_alive = request.keep_alive;
            let mut stream = stream;
            stream.write_all(&self.response(&request, fault))?;
            if !keep_alive {
                break;
            }
        }
        Ok(())
    }

    fn response(&self, request: &Request, fault: Option<Kind>) -> Vec<u8> {
        let page = |status: u16| format!("<html><body><h1>{status}</h1>a page of a simulated node</body></html>\n");
        let (status, content_type, body) = match (fault, request.status) {
            (Some(Kind::Error), _) => (500, "text/html", page(500).into_bytes()),
            (Some(Kind::Busy), _) => (429, "text/html", page(429).into_bytes()),
            (Some(Kind::Html), _) => (200, "text/html", page(200).into_bytes()),
            (_, 200) => {
                let wrong_id = fault == Some(Kind::WrongId);
                let table = self.methods.table(Protocol::JsonRpc, Family::Evm);
                let asked = Asked { node: self.facts, table, branch: self.branch(), wrong_id };
                (200, "application/json", answers::reply(&request.body, asked))
            }
            (_, status) => (status, "text/html", page(status).into_bytes()),
        };
        let mut head = ResponseWriter::new(status, Some(Announced { content_type, bytes: body.len() }));
        head.keep_alive = request.keep_alive;
        let mut out = Vec::with_capacity(head.bytes() + body.len());
        head.write(&mut out);
        out.extend_from_slice(&body);
        out
    }
}

/// A listener on a free port of the loopback. The port is found first and bound by number then: only such a
/// port stays bound while nobody listens.
fn free_port() -> io::Result<TcpListener> {
    let bind = || {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        TcpListener::bind(free)
    };
    // Between the two somebody may take it.
    (0..8).find_map(|_| bind().ok()).map_or_else(bind, Ok)
}

#[cfg(test)]
mod tests {
    use super::super::fleet::NODES;
    use super::*;
    use std::io::Read;

    const ASK: &[u8] = b"POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 35\r\n\r\n{\"id\":5,\"method\":\"eth_blockNumber\"";

    fn ask(node: &Node) -> io::Result<String> {
        let mut stream = TcpStream::connect(node.address)?;
        stream.write_all(ASK)?;
        // The last byte apart: a body may come in pieces.
        stream.write_all(b"}")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn every_fault_shows_on_the_wire_and_heals() {
        let node = Node::start(&NODES[0], None).unwrap();
        let healthy = |when: &str| {
            let text = ask(&node).unwrap();
            assert!(
                text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("\"id\":5,\"result\":\"0x"),
                "{when}: {text}"
            );
        };
        healthy("at first");
        for (kind, start, inside) in [
            (Kind::Error, "HTTP/1.1 500 ", "<html>"),
            (Kind::Busy, "HTTP/1.1 429 ", "<html>"),
            (Kind::Html, "HTTP/1.1 200 OK", "<html>"),
            (Kind::WrongId, "HTTP/1.1 200 OK", "\"id\":\"of another call\""),
        ] {
            node.set_fault(Some(kind)).unwrap();
            let text = ask(&node).unwrap();
            assert!(text.starts_with(start) && text.contains(inside), "{kind:?}: {text}");
            node.set_fault(None).unwrap();
            healthy(kind.word());
        }
    }

    #[test]
    fn a_frozen_chain_stands_and_a_fork_goes_on_otherwise() {
        let node = Node::start(&NODES[0], Some(Kind::Frozen)).unwrap();
        let since_s = node.state().since_s;
        let head = Branch::common(since_s).head();
        assert_eq!(node.branch(), Branch::common(since_s));
        assert!(ask(&node).unwrap().contains(&format!("\"result\":\"{head:#x}\"")));
        node.set_fault(Some(Kind::Fork)).unwrap();
        let (common, own) = (Branch::common(since_s), node.branch());
        assert_ne!(own.hash(own.head()), common.hash(own.head()));
        assert!(ask(&node).unwrap().contains("\"result\":\"0x"));
        node.set_fault(None).unwrap();
        assert_eq!(node.branch().hash(own.head()), common.hash(own.head()));
    }

    #[test]
    fn a_reset_is_a_reset() {
        let node = Node::start(&NODES[0], Some(Kind::Reset)).unwrap();
        assert_eq!(ask(&node).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn a_node_that_refuses_can_come_back_on_its_port() {
        let node = Node::start(&NODES[0], Some(Kind::Refuse)).unwrap();
        for _ in 0..3 {
            assert_eq!(TcpStream::connect(node.address).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
            assert!(TcpListener::bind(node.address).is_err(), "the port stays its own");
            node.set_fault(None).unwrap();
            assert!(ask(&node).unwrap().contains("\"result\":\"0x"));
            let mut open = TcpStream::connect(node.address).unwrap();
            open.write_all(ASK).unwrap();
            node.set_fault(Some(Kind::Refuse)).unwrap();
            let mut rest = Vec::new();
            let ended = open.read_to_end(&mut rest);
            assert!(rest.is_empty(), "open connections end without an answer: {ended:?}");
        }
    }

    #[test]
    fn a_node_that_hangs_holds_the_connection_open() {
        let node = Node::start(&NODES[0], Some(Kind::Timeout)).unwrap();
        let mut stream = TcpStream::connect(node.address).unwrap();
        stream.write_all(ASK).unwrap();
        stream.write_all(b"}").unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let error = stream.read(&mut [0]).unwrap_err();
        assert!(matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{error}");
    }
}
