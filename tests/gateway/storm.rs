//! Ten thousand operations that must not run twice, through nodes that fail at random in every way there is.
//!
//! Each operation has a number of its own. The nodes write down which ones they read whole and what they did with
//! them; the callers, what they were told. Then, for each operation:
//! - at most one node may have run it, and after that one no node saw it again;
//! - no node saw it twice, and a notification that was read whole was read once;
//! - a result is the very one that a node gave; an error of a node is that node's; `-32054` means that a node may
//!   have run it; any other error of the gateway means that none did.

use super::harness::{Client, ClosedPort, PATIENCE, Response, Setup, call_body, notification_body};
use super::storm_node::{Ledger, Node, What, draw};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const OPERATIONS: u64 = 10_000;
const CALLERS: u64 = 16;
const TIMEOUT: Duration = Duration::from_millis(300);

/// Operations that must not be repeated once they may have run.
const UNSAFE: [&str; 8] = [
    "eth_sendTransaction",
    "personal_sendTransaction",
    "personal_unlockAccount",
    "eth_sendRawTransactionSync",
    "acme_transfer",
    "ETH_CALL",
    "net_peerCount",
    "txpool_status",
];

/// What a caller was told about one operation.
#[derive(Debug, Clone)]
enum Said {
    Result(String),
    Error(i64),
    /// 204: it was a notification.
    Nothing,
    /// The caller did not wait.
    Left,
}

#[derive(Debug)]
struct Heard {
    said: Said,
    after: Duration,
    /// It may be sent again, whatever happened.
    safe: bool,
}

struct Storm {
    seed: u64,
    next: AtomicU64,
    heard: Mutex<BTreeMap<u64, Heard>>,
}

impl Storm {
    fn note(&self, token: u64, said: Said, after: Duration, safe: bool) {
        let before = self.heard.lock().unwrap().insert(token, Heard { said, after, safe });
        assert!(before.is_none(), "{token} was answered twice");
    }

    fn token(&self) -> u64 {
        self.next.fetch_add(1, SeqCst)
    }

    /// One caller's share of the storm.
    fn call(&self, gateway: &super::harness::Gateway) {
        let (mut client, mut done) = (gateway.connect(), 0);
        while done < OPERATIONS / CALLERS {
            let token = self.token();
            let method = UNSAFE[draw(self.seed, token, 1, UNSAFE.len() as u64) as usize];
            let params = format!("[\"{token}\"]");
            let begun = Instant::now();
            match draw(self.seed, token, 2, 100) {
                0..=9 => {
                    let mut tokens = vec![token];
                    tokens.extend((0..3).map(|_| self.token()));
                    done += tokens.len() as u64;
                    self.batch(&mut client, method, &tokens);
                    continue;
                }
                10..=24 => {
                    let silent = client.ask(notification_body(method, &params));
                    assert_eq!((silent.status, silent.body.as_str()), (204, ""));
                    self.note(token, Said::Nothing, begun.elapsed(), false);
                }
                25..=26 => {
                    client.post("/eth", &[], call_body("1", method, &params));
                    std::mem::replace(&mut client, gateway.connect()).reset();
                    self.note(token, Said::Left, begun.elapsed(), false);
                }
                // In the background, and not counted among the ten thousand.
                27..=40 => {
                    let method = ["eth_call", "eth_sendRawTransaction"][token as usize % 2];
                    let said = said(&client.ask(call_body(&token.to_string(), method, &params)).json(), token);
                    self.note(token, said, begun.elapsed(), true);
                    continue;
                }
                _ => {
                    let answer = client.ask(call_body(&token.to_string(), method, &params));
                    honest_status(&answer);
                    self.note(token, said(&answer.json(), token), begun.elapsed(), false);
                }
            }
            done += 1;
        }
    }

    fn batch(&self, client: &mut Client, method: &str, tokens: &[u64]) {
        let member = |token: &u64| call_body(&token.to_string(), method, &format!("[\"{token}\"]"));
        let begun = Instant::now();
        let answer = client.ask(format!("[{}]", tokens.iter().map(member).collect::<Vec<_>>().join(",")));
        let answers = answer.json();
        assert_eq!(answers.as_array().map(Vec::len), Some(tokens.len()), "{answer:?}");
        for (token, answer) in tokens.iter().zip(answers.as_array().unwrap()) {
            self.note(*token, said(answer, *token), begun.elapsed(), false);
        }
    }
}

/// Client libraries send again by themselves on these: none may stand over an unknown outcome.
fn honest_status(answer: &Response) {
    if answer.json()["error"]["code"] == -32054 {
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

fn said(answer: &serde_json::Value, token: u64) -> Said {
    assert_eq!(answer["id"], token, "{answer}");
    match answer["error"]["code"].as_i64() {
        Some(code) => Said::Error(code),
        None => Said::Result(answer["result"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()),
    }
}

/// Judges one operation; `true` = its outcome is unknown although no node read it whole.
fn judge(token: u64, heard: &Heard, steps: &[(usize, What)]) -> bool {
    let story = || format!("operation {token}: {heard:?}, at the nodes: {steps:?}");
    let mut nodes: Vec<usize> = steps.iter().map(|(node, _)| *node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    if heard.safe {
        if let Said::Result(result) = &heard.said {
            assert!(steps.iter().any(|(_, what)| what.answer() == Some(result)), "{}", story());
        }
        return false;
    }
    assert_eq!(nodes.len(), steps.len(), "twice at one node: {}", story());
    let may_have_run = steps.iter().filter(|(_, what)| what.may_have_run()).count();
    assert!(may_have_run <= 1, "it may have run twice: {}", story());
    let last = steps.last().map(|(_, what)| what);
    assert!(may_have_run == 0 || last.is_some_and(What::may_have_run), "sent on after it may have run: {}", story());
    match &heard.said {
        Said::Result(result) => assert_eq!(last.and_then(What::answer), Some(result), "{}", story()),
        Said::Error(-32054) => {
            let late = heard.after >= TIMEOUT;
            match last {
                Some(What::Lost(_)) => {}
                Some(What::Ran(_) | What::Failed(_)) => assert!(late, "its answer was dropped: {}", story()),
                Some(What::Refused) | None => return true,
            }
        }
        Said::Error(-32053..=-32050) => assert_eq!(may_have_run, 0, "{}", story()),
        Said::Error(code) => assert_eq!(last, Some(&What::Failed(*code)), "{}", story()),
        Said::Nothing => assert!(steps.len() <= 1, "a notification was sent on: {}", story()),
        Said::Left => {}
    }
    false
}

#[test]
fn ten_thousand_operations_run_at_most_once_whatever_fails() {
    let seed = std::env::var("STORM_SEED").map_or(20_260_101, |seed| seed.parse().unwrap());
    eprintln!("STORM_SEED={seed}");
    let ledger = Ledger::new(seed);
    let nodes: Vec<_> = (0..4).map(|at| Node::start(at, &ledger)).collect();
    let closed = ClosedPort::new();
    let addresses: Vec<_> = nodes.iter().map(|node| node.address).chain([closed.address]).collect();
    let gateway = Setup::at(&addresses)
        .circuit("consecutive_failures = 8\ncooldown = \"4ms\"\nmax_cooldown = \"8ms\"")
        .gateway("expose = [\"personal\"]")
        .route(&format!("strategy = \"weighted\"\nmax_attempts = 5\nattempt_timeout = \"{}ms\"", TIMEOUT.as_millis()))
        .start();
    let storm = Storm { seed, next: AtomicU64::new(1), heard: Mutex::default() };
    std::thread::scope(|scope| {
        (0..CALLERS).for_each(|_| {
            scope.spawn(|| storm.call(&gateway));
        });
    });
    // What callers left behind runs to its end.
    gateway.wait_for_metrics("the last Call", |metrics| metrics.sum("ringway_connections", &["side=\"client\""]) == 0);
    let until = Instant::now() + PATIENCE;
    while ledger.busy() > 0 {
        assert!(Instant::now() < until, "a node never comes to its end");
        std::thread::yield_now();
    }
    let (steps, heard) = (ledger.steps(), storm.heard.into_inner().unwrap());
    let none = Vec::new();
    let unknown = heard.iter().filter(|(token, heard)| judge(**token, heard, steps.get(token).unwrap_or(&none)));
    let unknown = unknown.count() as u64;
    assert!(steps.keys().all(|token| heard.contains_key(token)), "a node saw what nobody sent");
    assert!(unknown <= ledger.cuts(), "{unknown} unknown without a trace, {} connections cut", ledger.cuts());
    let mut told = BTreeMap::<String, u64>::new();
    for heard in heard.values().filter(|heard| !heard.safe) {
        let kind = match &heard.said {
            Said::Result(_) => "result".to_owned(),
            Said::Error(code) => code.to_string(),
            Said::Nothing => "notification".to_owned(),
            Said::Left => "left".to_owned(),
        };
        *told.entry(kind).or_default() += 1;
    }
    let operations: u64 = told.values().sum();
    eprintln!("{operations} operations: {told:?}; {unknown} cut unread of {} cuts", ledger.cuts());
    eprintln!("the nodes' faults: {:?}", ledger.faults());
    assert!(operations >= OPERATIONS);
    for kind in ["result", "notification", "-32054", "3", "-32099"] {
        assert!(told.get(kind).is_some_and(|count| *count >= 100), "hardly any {kind}: {told:?}");
    }
    assert!(ledger.faults().values().all(|count| *count >= 30), "{:?}", ledger.faults());
}
