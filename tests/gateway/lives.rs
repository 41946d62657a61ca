//! A hundred gateways are told to leave while callers press: whom one accepted, it answers.
//!
//! The rule, as a caller sees it: from SIGTERM on
//! - a connect is refused, or it succeeds; if it succeeds, the request that is sent on it is answered whole;
//! - a request on a connection that is open is answered whole, and that answer says `Connection: close`;
//! - only a connection on which nothing came for a second is closed without an answer. A request that crosses
//!   that close in the network was never read: no node has seen it, its caller got not one byte, and may repeat it.

use super::harness::{Gate, HeldPort, Reply, Setup, Upstream, call_body, request};
use super::upstream::{PATIENCE, header_values};
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const CHAINS: usize = 5;
const LIVES: usize = 20;
/// Answers that a gateway gives before it is told to leave.
const ANSWERS: u64 = 60;
/// A connection that was silent for so long may be closed (a second, less what a caller may oversee).
const SILENT: Duration = Duration::from_millis(900);

/// What all callers of one port share.
#[derive(Default)]
struct Load {
    over: AtomicBool,
    tokens: AtomicU64,
    answered: AtomicU64,
    closes: AtomicU64,
    refused: AtomicU64,
    /// Requests that crossed the close of a silent connection.
    crossed: AtomicU64,
}

struct Link {
    stream: TcpStream,
    used: Instant,
}

enum Heard {
    /// The token in the answer, and whether the connection goes on.
    Answer(u64, bool),
    /// The end, and not one byte before it.
    Nothing,
}

impl Load {
    fn connect(&self, address: SocketAddr) -> Option<Link> {
        let until = Instant::now() + PATIENCE;
        while !self.over.load(SeqCst) {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => {
                    stream.set_nodelay(true).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    return Some(Link { stream, used: Instant::now() });
                }
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    self.refused.fetch_add(1, SeqCst);
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => panic!("neither taken nor refused: {error}"),
            }
            assert!(Instant::now() < until, "nobody listens");
        }
        None
    }

    /// Makes Calls until all is over: `keeps` its connection for as long as it may.
    fn press(&self, address: SocketAddr, keeps: bool) {
        let mut link = None;
        let mut token = self.tokens.fetch_add(1, SeqCst);
        while let Some(mut open) = link.take().or_else(|| self.connect(address)) {
            let silent = open.used.elapsed();
            match open.ask(token, keeps) {
                Heard::Answer(echoed, goes_on) => {
                    assert_eq!(echoed, token);
                    self.answered.fetch_add(1, SeqCst);
                    self.closes.fetch_add(u64::from(keeps && !goes_on), SeqCst);
                    token = self.tokens.fetch_add(1, SeqCst);
                    link = (keeps && goes_on).then_some(open);
                }
                Heard::Nothing => {
                    assert!(silent >= SILENT, "token {token}: lost after {silent:?} of silence, keeps {keeps}");
                    self.crossed.fetch_add(1, SeqCst);
                }
            }
        }
    }
}

impl Link {
    fn ask(&mut self, token: u64, keeps: bool) -> Heard {
        let method = ["eth_call", "eth_sendTransaction", "acme_unknown"][token as usize % 3];
        let body = call_body("1", method, &format!("[{token}]"));
        let headers: &[&str] = if keeps { &[] } else { &["Connection: close"] };
        let bytes = request("/eth", headers, body.len()) + &body;
        let _ = self.stream.write_all(bytes.as_bytes());
        let (mut heard, mut chunk) = (String::new(), [0; 4096]);
        loop {
            let ended = match self.stream.read(&mut chunk) {
                Ok(0) => "closed".to_owned(),
                Ok(count) => {
                    heard += std::str::from_utf8(&chunk[..count]).unwrap();
                    if let Some(answer) = self.whole(&heard) {
                        return answer;
                    }
                    continue;
                }
                Err(error) => error.to_string(),
            };
            assert!(heard.is_empty(), "token {token}: {ended} after a part of an answer: {heard}");
            return Heard::Nothing;
        }
    }

    fn whole(&mut self, heard: &str) -> Option<Heard> {
        let (head, body) = heard.split_once("\r\n\r\n")?;
        let length: usize = header_values(head, "content-length")[0].parse().unwrap();
        if body.len() < length {
            return None;
        }
        self.used = Instant::now();
        assert!(head.starts_with("HTTP/1.1 200 "), "{heard}");
        let answer: serde_json::Value = serde_json::from_str(body).unwrap();
        let token = answer["result"].as_u64().unwrap_or_else(|| panic!("{heard}"));
        Some(Heard::Answer(token, !header_values(head, "connection").iter().any(|value| value == "close")))
    }
}

fn token(seen: &super::harness::Seen) -> u64 {
    seen.json()["params"][0].as_u64().unwrap()
}

/// Gateways on one port, one after the other, under the same load.
fn chain() {
    let port = HeldPort::new();
    let node = Upstream::start(|seen| {
        let token = token(seen);
        if token.is_multiple_of(4) {
            // Something is always in flight.
            std::thread::sleep(Duration::from_millis(token / 4 % 4));
        }
        Reply::result(seen, &token.to_string())
    });
    let start = || Setup::of(&[&node]).listen(port.address).start();
    let load = Load::default();
    std::thread::scope(|scope| {
        let mut gateway = start();
        for caller in 0..5 {
            let load = &load;
            scope.spawn(move || load.press(port.address, caller < 3));
        }
        for life in 0..LIVES {
            let (served, until) = (load.answered.load(SeqCst) + ANSWERS, Instant::now() + PATIENCE);
            while load.answered.load(SeqCst) < served {
                assert!(Instant::now() < until, "life {life}: nothing is answered\n{}", gateway.log());
                std::thread::sleep(Duration::from_millis(1));
            }
            gateway.terminate();
            let next = (life + 1 < LIVES).then(start);
            assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.log());
            assert!(!gateway.log().contains("cut off"), "{}", gateway.log());
            match next {
                Some(next) => gateway = next,
                None => load.over.store(true, SeqCst),
            }
        }
    });
    let mut seen = HashMap::<u64, u64>::new();
    node.seen().iter().for_each(|seen_one| *seen.entry(token(seen_one)).or_default() += 1);
    assert!(seen.values().all(|times| *times == 1), "a request reached the node twice");
    let answered = load.answered.load(SeqCst);
    assert_eq!(seen.len() as u64, answered, "each that the node saw was answered, and each answer came from it");
    let [closes, refused, crossed] = [&load.closes, &load.refused, &load.crossed].map(|count| count.load(SeqCst));
    eprintln!("{LIVES} lives: {answered} answers, {closes} said close, {refused} connects refused, {crossed} crossed");
    assert!(closes >= LIVES as u64, "callers that keep their connections are told: {closes}");
}

#[test]
fn a_hundred_lives_end_under_load_and_no_request_that_was_accepted_is_lost() {
    std::thread::scope(|scope| {
        (0..CHAINS).for_each(|_| {
            scope.spawn(chain);
        });
    });
}

#[test]
fn the_next_request_of_an_idle_connection_is_answered_and_its_last() {
    let node = Upstream::answering("1");
    let mut gateway = Setup::of(&[&node]).start();
    let (mut used, mut fresh, mut silent) = (gateway.connect(), gateway.connect(), gateway.connect());
    used.ask(call_body("1", "eth_call", "[]")).assert_result("1", "1");
    gateway.wait_for_metrics("three clients", |metrics| metrics.sum("ringway_connections", &["side=\"client\""]) == 3);
    gateway.terminate();
    gateway.wait_for_log("draining");
    let draining = Instant::now();
    std::thread::sleep(Duration::from_millis(300)); // long after the listeners were closed
    for client in [&mut used, &mut fresh] {
        let answer = client.ask(call_body("1", "eth_sendTransaction", "[]"));
        answer.assert_result("1", "1");
        assert_eq!(answer.header("connection").as_deref(), Some("close"));
        client.closed();
    }
    silent.closed();
    assert!((SILENT..2 * SILENT).contains(&draining.elapsed()), "{:?}", draining.elapsed());
    assert_eq!(gateway.wait().code(), Some(0));
    assert_eq!(node.count(), 3);
}

#[test]
fn who_waits_in_the_queue_of_a_full_gateway_is_served_when_it_leaves() {
    let gate = Gate::default();
    let held = gate.clone();
    let node = Upstream::start(move |seen| Reply::after(&held, Reply::result(seen, "1")));
    let mut gateway = Setup::of(&[&node]).shards(1).server("max_connections = 1").start();
    let (mut served, mut queued) = (gateway.connect(), gateway.connect());
    for client in [&mut served, &mut queued] {
        client.post("/eth", &[], call_body("1", "eth_sendTransaction", "[]"));
    }
    node.wait_for(1);
    gateway.terminate();
    gateway.wait_for_log("draining");
    std::thread::sleep(Duration::from_millis(300)); // long after the last handshake
    gate.open();
    for mut client in [served, queued] {
        let answer = client.response();
        answer.assert_result("1", "1");
        assert_eq!(answer.header("connection").as_deref(), Some("close"));
        client.closed();
    }
    assert_eq!(gateway.wait().code(), Some(0));
    assert_eq!(node.count(), 2);
}
