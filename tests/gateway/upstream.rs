//! Upstreams that do as they are told: each records what it was sent and answers by a script.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The longest that a test waits for anything.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// One request as an upstream saw it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Which connection it came over, from 0.
    pub connection: usize,
    /// Which request it was at this upstream, from 0.
    pub nth: usize,
    /// The head, its empty line included.
    pub head: String,
    /// As many bytes as `Content-Length` told.
    pub body: Vec<u8>,
    /// When its last byte was read.
    pub at: Instant,
}

impl Seen {
    /// All values of a header.
    pub fn headers(&self, name: &str) -> Vec<String> {
        header_values(&self.head, name)
    }

    /// The only value of a header, or nothing.
    pub fn header(&self, name: &str) -> Option<String> {
        let mut values = self.headers(name);
        assert!(values.len() <= 1, "{name} came {} times in {}", values.len(), self.head);
        values.pop()
    }

    /// Method, target and version.
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is UTF-8")
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The id as it stands in the body; `null` for a notification.
    pub fn id(&self) -> String {
        self.json()["id"].to_string()
    }

    /// Whether these characters stand anywhere in the body.
    pub fn holds(&self, text: &str) -> bool {
        self.text().contains(text)
    }
}

/// All values of a header in a head.
pub fn header_values(head: &str, name: &str) -> Vec<String> {
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    fields.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned()).collect()
}

/// A door that a test opens when it likes.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// Lets everybody through, now and later.
    pub fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let open = self.0.0.lock().unwrap();
        drop(self.0.1.wait_timeout_while(open, PATIENCE, |open| !*open).unwrap());
    }
}

/// One thing that an upstream does on a connection.
#[derive(Clone)]
enum Step {
    Write(Vec<u8>),
    /// Byte by byte, each in a segment of its own.
    Drip(Vec<u8>),
    Wait(Gate),
    Close,
    Reset,
    Hang,
}

/// What an upstream does with one request; without an end of its own the connection stays open.
#[derive(Clone, Default)]
pub struct Reply(Vec<Step>);

impl Reply {
    /// These bytes, and nothing else.
    pub fn raw(bytes: impl AsRef<[u8]>) -> Reply {
        Reply(vec![Step::Write(bytes.as_ref().to_vec())])
    }

    /// A whole HTTP response with `Content-Length`.
    pub fn http(status: u16, headers: &[&str], body: &str) -> Reply {
        Reply::raw(response(status, headers, body))
    }

    /// A JSON body under this status.
    pub fn json(status: u16, body: &str) -> Reply {
        Reply::http(status, &["Content-Type: application/json"], body)
    }

    /// 200 with this result (JSON text) for the id that was sent; 204-like emptiness for a notification.
    pub fn result(seen: &Seen, result: &str) -> Reply {
        Reply::json(200, &result_body(seen, result))
    }

    /// A JSON-RPC error (JSON text) for the id that was sent.
    pub fn error(seen: &Seen, status: u16, error: &str) -> Reply {
        Reply::json(status, &error_body(seen, error))
    }

    /// Nothing, until the peer closes.
    pub fn hang() -> Reply {
        Reply(vec![Step::Hang])
    }

    /// Closes without a word.
    pub fn close() -> Reply {
        Reply(vec![Step::Close])
    }

    /// Resets without a word.
    pub fn reset() -> Reply {
        Reply(vec![Step::Reset])
    }

    /// Does nothing until the gate opens, then this.
    pub fn after(gate: &Gate, then: Reply) -> Reply {
        Reply(vec![Step::Wait(gate.clone())]).then(then)
    }

    /// This, and then that.
    pub fn then(mut self, next: Reply) -> Reply {
        self.0.extend(next.0);
        self
    }

    /// The same bytes, one at a time.
    pub fn dripping(self) -> Reply {
        let drip = |step| match step {
            Step::Write(bytes) => Step::Drip(bytes),
            other => other,
        };
        Reply(self.0.into_iter().map(drip).collect())
    }

    /// This, and then the end of the connection.
    pub fn then_close(self) -> Reply {
        self.then(Reply::close())
    }
}

/// A response with `Content-Length` as bytes.
pub fn response(status: u16, headers: &[&str], body: &str) -> String {
    let fields: String = headers.iter().map(|field| format!("{field}\r\n")).collect();
    format!("HTTP/1.1 {status} Whatever\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// A JSON-RPC answer with a result.
pub fn result_body(seen: &Seen, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, seen.id())
}

/// A JSON-RPC answer with an error.
pub fn error_body(seen: &Seen, error: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, seen.id())
}

type Script = Box<dyn Fn(&Seen) -> Reply + Send + Sync>;

#[derive(Default)]
struct Record {
    seen: Vec<Seen>,
    /// One per connection, in the order of arrival: a handle to it, and whether it has ended.
    connections: Vec<(TcpStream, bool)>,
}

struct Shared {
    record: Mutex<Record>,
    changed: Condvar,
    stopped: AtomicBool,
    script: Script,
    /// Sent to each connection before anything is read.
    greeting: Vec<u8>,
}

impl Shared {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A scripted upstream on a port of its own.
pub struct Upstream {
    /// Where it listens.
    pub address: SocketAddr,
    listener: TcpListener,
    shared: Arc<Shared>,
}

impl Upstream {
    /// Starts one that answers by `script`.
    pub fn start(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Upstream {
        Upstream::greeting(b"", script)
    }

    /// Starts one that sends something on each new connection before it is asked.
    pub fn greeting(greeting: &[u8], script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Upstream {
        Upstream::serving(TcpListener::bind("127.0.0.1:0").unwrap(), greeting, script)
    }

    /// Starts one at an address that is bound already, which answers everything with this result.
    pub fn on(listener: TcpListener, result: &'static str) -> Upstream {
        Upstream::serving(listener, b"", move |seen| Reply::result(seen, result))
    }

    /// Starts one at an address that is bound already.
    pub fn serving(
        listener: TcpListener,
        greeting: &[u8],
        script: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Upstream {
        let address = listener.local_addr().unwrap();
        let held = listener.try_clone().unwrap();
        let shared = Arc::new(Shared {
            record: Mutex::default(),
            changed: Condvar::new(),
            stopped: AtomicBool::new(false),
            script: Box::new(script),
            greeting: greeting.to_vec(),
        });
        let accepting = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if accepting.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let shared = accepting.clone();
                let connection = {
                    let mut record = shared.record();
                    record.connections.push((stream.try_clone().unwrap(), false));
                    record.connections.len() - 1
                };
                shared.changed.notify_all();
                std::thread::spawn(move || serve(stream, connection, &shared));
            }
        });
        Upstream { address, listener: held, shared }
    }

    /// Starts one that answers everything with this result.
    pub fn answering(result: &'static str) -> Upstream {
        Upstream::start(move |seen| Reply::result(seen, result))
    }

    /// Everything that it was sent so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.record().seen.clone()
    }

    /// How many requests it was sent so far.
    pub fn count(&self) -> usize {
        self.shared.record().seen.len()
    }

    /// The requests whose body holds these characters.
    pub fn seen_with(&self, text: &str) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.holds(text)).collect()
    }

    /// How many requests had these characters in their body.
    pub fn count_with(&self, text: &str) -> usize {
        self.shared.record().seen.iter().filter(|seen| seen.holds(text)).count()
    }

    /// The only request that it was sent.
    pub fn only(&self) -> Seen {
        let mut seen = self.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen.remove(0)
    }

    /// Connections that were made to it so far.
    pub fn connections(&self) -> usize {
        self.shared.record().connections.len()
    }

    /// Connections that are open, as far as it knows.
    pub fn open(&self) -> usize {
        self.shared.record().connections.iter().filter(|(_, ended)| !ended).count()
    }

    /// Waits until it was sent so many requests.
    pub fn wait_for(&self, requests: usize) {
        self.wait_until(&format!("{requests} requests"), |record| record.seen.len() >= requests);
    }

    /// Waits until no more than so many connections are open.
    pub fn wait_for_open(&self, most: usize) {
        let open = |record: &Record| record.connections.iter().filter(|(_, ended)| !ended).count();
        self.wait_until(&format!("{most} open connections"), |record| open(record) <= most);
    }

    /// Waits until so many connections have come, those that ended included.
    pub fn wait_for_connections(&self, least: usize) {
        self.wait_until(&format!("{least} connections"), |record| record.connections.len() >= least);
    }

    fn wait_until(&self, what: &str, done: impl Fn(&Record) -> bool) {
        let record = self.shared.record();
        let (record, late) = self.shared.changed.wait_timeout_while(record, PATIENCE, |record| !done(record)).unwrap();
        assert!(!late.timed_out(), "waited in vain for {what}: {} requests, {:?}", record.seen.len(), record.seen);
    }

    /// Writes on connections that are idle, without having been asked.
    pub fn say_unasked(&self, bytes: &[u8]) {
        for (stream, ended) in &self.shared.record().connections {
            if !ended {
                let _ = (&*stream).write_all(bytes);
            }
        }
    }

    /// Closes all connections that are open; it goes on listening.
    pub fn hang_up(&self) {
        for (stream, _) in &self.shared.record().connections {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.wait_for_open(0);
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        for (stream, _) in &self.shared.record().connections {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Whoever waits in accept is let go.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

fn serve(mut stream: TcpStream, connection: usize, shared: &Shared) {
    let _ = stream.set_nodelay(true);
    let _ = stream.write_all(&shared.greeting);
    let mut buf = VecDeque::new();
    while let Some((head, body)) = read_request(&mut stream, &mut buf) {
        let seen = {
            let mut record = shared.record();
            let seen = Seen { connection, nth: record.seen.len(), head, body, at: Instant::now() };
            record.seen.push(seen.clone());
            seen
        };
        shared.changed.notify_all();
        if !act(&mut stream, (shared.script)(&seen)) {
            break;
        }
    }
    // A connection that ends with unread bytes would be reset, and what was written might be lost.
    shared.record().connections[connection].1 = true;
    shared.changed.notify_all();
    let _ = stream.shutdown(Shutdown::Both);
}

/// Follows the script; `false` = the connection is over.
fn act(stream: &mut TcpStream, reply: Reply) -> bool {
    for step in reply.0 {
        match step {
            Step::Write(bytes) => {
                if stream.write_all(&bytes).is_err() {
                    return false;
                }
            }
            Step::Drip(bytes) => {
                for byte in bytes {
                    if stream.write_all(&[byte]).is_err() {
                        return false;
                    }
                }
            }
            Step::Wait(gate) => gate.pass(),
            Step::Close => return false,
            Step::Reset => {
                reset(stream);
                return false;
            }
            Step::Hang => {
                let mut chunk = [0; 4096];
                while matches!(stream.read(&mut chunk), Ok(n) if n > 0) {}
                return false;
            }
        }
    }
    true
}

/// Connecting a TCP socket to nowhere resets it at once, whoever else holds a handle.
pub fn reset(stream: &TcpStream) {
    let _ = rustix::net::connect_unspec(stream);
}

/// Reads one request; `None` = the peer closed.
pub fn read_request(stream: &mut TcpStream, buf: &mut VecDeque<u8>) -> Option<(String, Vec<u8>)> {
    let mut chunk = vec![0; 64 << 10];
    loop {
        let bytes = buf.make_contiguous();
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end + 4].to_vec()).expect("heads are ASCII");
            let length = header_values(&head, "content-length").first().map_or(0, |length| length.parse().unwrap());
            if bytes.len() >= end + 4 + length {
                let body = bytes[end + 4..end + 4 + length].to_vec();
                buf.drain(..end + 4 + length);
                return Some((head, body));
            }
        }
        match stream.read(&mut chunk) {
            Ok(n) if n > 0 => buf.extend(&chunk[..n]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            _ => return None,
        }
    }
}

/// An upstream that answers on seeing the first bytes of a request, and reads no more.
pub struct EarlyRefusal {
    /// Where it listens.
    pub address: SocketAddr,
}

impl Upstream {
    /// Starts one that closes with the rest of the request unread: its peer may see a reset.
    pub fn refusing_early(answer: &'static str) -> EarlyRefusal {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.write_all(answer.as_bytes());
        });
        EarlyRefusal { address }
    }
}

impl Upstream {
    /// Starts one that reads the beginning of one request, answers, and then neither reads nor closes until it is
    /// dropped.
    pub fn refusing_and_deaf(answer: &'static str) -> (EarlyRefusal, std::sync::mpsc::Sender<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (stay, over) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.write_all(answer.as_bytes());
            let _: Result<(), _> = over.recv();
        });
        (EarlyRefusal { address }, stay)
    }
}

/// A port where nobody listens, and nobody else can begin to.
pub struct ClosedPort {
    /// The address that refuses.
    pub address: SocketAddr,
    _held: socket2::Socket,
}

impl ClosedPort {
    /// Takes one.
    pub fn new() -> ClosedPort {
        let held = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        held.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        ClosedPort { address: held.local_addr().unwrap().as_socket().unwrap(), _held: held }
    }
}

/// A port for gateways that follow one another: nobody else gets it while none of them listens.
pub struct HeldPort {
    /// The address.
    pub address: SocketAddr,
    _held: socket2::Socket,
}

impl HeldPort {
    /// Takes one.
    pub fn new() -> HeldPort {
        let held = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        held.set_reuse_address(true).unwrap();
        held.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        HeldPort { address: held.local_addr().unwrap().as_socket().unwrap(), _held: held }
    }
}

/// A listener whose queue is full: the kernel drops further attempts to connect.
pub struct FullPort {
    /// The address that never answers.
    pub address: SocketAddr,
    _held: socket2::Socket,
    _queue: Vec<socket2::Socket>,
}

impl FullPort {
    /// Fills one.
    pub fn new() -> FullPort {
        FullPort::at(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Fills this one.
    pub fn at(at: SocketAddr) -> FullPort {
        let held = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        held.bind(&at.into()).unwrap();
        held.listen(0).unwrap();
        let address = held.local_addr().unwrap().as_socket().unwrap();
        let mut queue = Vec::new();
        for _ in 0..16 {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            let full = socket.connect_timeout(&address.into(), Duration::from_millis(100)).is_err();
            queue.push(socket);
            if full {
                break;
            }
        }
        FullPort { address, _held: held, _queue: queue }
    }
}
