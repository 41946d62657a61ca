//! Callers at a steady rate, what they were told, and whether it fits what the nodes saw.

use crate::harness::{Client, Gateway, PATIENCE, Reply, Seen, Upstream, call_body};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// May be asked of any number of nodes.
pub const READ: &str = "eth_call";
/// Must not be executed twice.
pub const EFFECT: &str = "eth_sendTransaction";

/// A node whose results say who it is and which Call it answered.
pub fn node(name: &'static str, listener: TcpListener) -> Upstream {
    Upstream::serving(listener, b"", move |seen| Reply::result(seen, &format!("\"{name}:{}\"", token(seen))))
}

/// The number of a Call, as a node sees it.
pub fn token(seen: &Seen) -> u64 {
    seen.json()["params"][0].as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{seen:?}"))
}

/// A listener on the loopback interface of this network.
pub fn loopback() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// One Call and its end.
#[derive(Debug, Clone)]
pub struct Told {
    /// Its number.
    pub token: u64,
    /// It was an effect.
    pub effect: bool,
    /// When it was sent.
    pub begun: Instant,
    /// How long its caller waited.
    pub waited: Duration,
    /// The node that answered, or the code of Ringway's error.
    pub by: Result<String, i64>,
    /// Each attempt, as Ringway tells it.
    pub trail: String,
}

/// Makes a Call, and checks that the answer is to this one.
pub fn call(client: &mut Client, method: &str, token: u64) -> Told {
    let begun = Instant::now();
    client.post("/eth", &["Ringway-Explain: 1"], call_body(&token.to_string(), method, &format!("[\"{token}\"]")));
    let answer = client.response();
    let (waited, json) = (begun.elapsed(), answer.json());
    assert_eq!(json["id"], token, "{answer:?}");
    let by = match json["error"]["code"].as_i64() {
        Some(code) => {
            assert_eq!(json["error"]["data"]["source"], "ringway", "{answer:?}");
            assert_eq!(answer.status == 200, code == -32054, "{answer:?}");
            Err(code)
        }
        None => {
            let (node, echoed) = json["result"].as_str().and_then(|text| text.split_once(':')).unwrap();
            assert_eq!(echoed, token.to_string(), "the answer to another Call: {answer:?}");
            Ok(node.to_owned())
        }
    };
    let trail = answer.header("ringway-trail").unwrap_or_default();
    Told { token, effect: method == EFFECT, begun, waited, by, trail }
}

/// Callers that go on until they are stopped.
#[derive(Default)]
pub struct Callers {
    next: AtomicU64,
    stop: AtomicBool,
    told: Mutex<Vec<Told>>,
    heard: Condvar,
}

impl Callers {
    /// Runs so many callers while `during` runs: every fourth Call is an effect, and each caller pauses between Calls.
    pub fn steady(gateway: &Gateway, callers: usize, pause: Duration, during: impl FnOnce(&Callers)) -> Vec<Told> {
        let all = Callers::default();
        std::thread::scope(|scope| {
            for _ in 0..callers {
                scope.spawn(|| {
                    let mut client = gateway.connect();
                    while !all.stop.load(SeqCst) {
                        let token = all.next.fetch_add(1, SeqCst);
                        let told = call(&mut client, if token % 4 == 3 { EFFECT } else { READ }, token);
                        all.told.lock().unwrap().push(told);
                        all.heard.notify_all();
                        std::thread::sleep(pause);
                    }
                });
            }
            // Whatever fails, the callers end.
            let _end = OnDrop(|| all.stop.store(true, SeqCst));
            during(&all);
        });
        all.told.into_inner().unwrap()
    }

    /// Waits until so many Calls that began from now on have ended as a test wants it.
    pub fn wait_for(&self, what: &str, calls: usize, done: impl Fn(&Told) -> bool) {
        let from = Instant::now();
        let fewer = |told: &mut Vec<Told>| told.iter().filter(|one| one.begun >= from && done(one)).count() < calls;
        let (_told, late) = self.heard.wait_timeout_while(self.told.lock().unwrap(), PATIENCE, fewer).unwrap();
        assert!(!late.timed_out(), "waited in vain for {calls} Calls {what}");
    }
}

/// Runs this at the end of its block, however that comes.
pub struct OnDrop<F: Fn()>(pub F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Every read was answered; no effect ran at two nodes; what is told of an effect is true of it.
pub fn judge(told: &[Told], nodes: &[(&str, &Upstream)]) {
    let mut ran = BTreeMap::<u64, Vec<&str>>::new();
    for (name, node) in nodes {
        let seen = node.seen().into_iter().filter(|seen| seen.holds(READ) || seen.holds(EFFECT));
        seen.for_each(|seen| ran.entry(token(&seen)).or_default().push(name));
    }
    for one in told {
        // No node is tried twice, and the last one is who answered.
        let tried: Vec<&str> = one.trail.split(',').filter_map(|attempt| attempt.trim().split(' ').next()).collect();
        let twice = tried.iter().enumerate().any(|(nth, node)| tried[..nth].contains(node));
        assert!(!twice && one.by.as_deref().map_or(true, |by| tried.last() == Some(&by)), "{tried:?}: {one:?}");
        let at = ran.get(&one.token).map(Vec::as_slice).unwrap_or_default();
        match (&one.by, one.effect) {
            (Ok(node), true) => assert_eq!(at, [node.as_str()], "{one:?}"),
            (Ok(node), false) => assert!(at.contains(&node.as_str()), "{one:?}, at the nodes: {at:?}"),
            (Err(-32054), true) => assert!(at.len() <= 1, "{one:?}, at the nodes: {at:?}"),
            (Err(_), true) => assert!(at.is_empty(), "{one:?}, at the nodes: {at:?}"),
            (Err(_), false) => panic!("a read without an answer: {one:?}"),
        }
    }
}

/// The state of the first Endpoint's Circuit: 0 closed, 1 open, 2 half-open.
pub fn state(gateway: &Gateway) -> u64 {
    gateway.metrics().of("ringway_circuit_state", "a")
}

/// Transitions of the first Endpoint's Circuit for this reason.
pub fn transitions(gateway: &Gateway, reason: &str) -> u64 {
    let reason = format!("reason=\"{reason}\"");
    gateway.metrics().sum("ringway_circuit_transitions_total", &["endpoint=\"a\"", &reason])
}
