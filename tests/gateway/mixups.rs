//! Two callers never get each other's bytes: a storm of callers who cancel, give up, pipeline and batch, through nodes
//! that lose, cut, delay and misplace their answers. What each Call may get is known to the byte, and nothing else is
//! taken: its own result, its own error, or an error of the gateway under its own id.
//!
//! `MIXUPS=5000000 cargo test --release --test gateway mixups -- --nocapture` is the long one; `MIXUPS_SEED` replays.

use super::harness::{Client, Gateway, Setup, chunked, request};
use super::mixups_node::{Done, Node, STRAY, answer};
use super::storm_node::draw;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Instant;

const CALLERS: u64 = 24;

#[derive(Default)]
struct Tally {
    next: AtomicU64,
    asked: AtomicU64,
    results: AtomicU64,
    errors: AtomicU64,
    faults: AtomicU64,
    silent: AtomicU64,
    left: AtomicU64,
    bytes: AtomicU64,
}

struct Storm {
    seed: u64,
    calls: u64,
    tally: Tally,
}

/// One Call: a token that no other has, and an id that many have.
struct Call {
    token: u64,
    id: String,
}

fn bump(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, SeqCst);
}

impl Storm {
    fn draw(&self, token: u64, what: u64, below: u64) -> u64 {
        draw(self.seed, token, what, below)
    }

    fn call(&self) -> Call {
        let token = self.tally.next.fetch_add(1, SeqCst);
        let id = match self.draw(token, 10, 10) {
            0..=5 => self.draw(token, 11, 3).to_string(),
            6 => "null".to_owned(),
            7 => "1720000000123456789012".to_owned(),
            8 => format!("\"{}\"", ["", "a\\\"b", "\\u00e9"][token as usize % 3]),
            _ => format!("-{}.5", self.draw(token, 11, 3)),
        };
        Call { token, id }
    }

    fn body(&self, call: &Call) -> String {
        let method = match self.draw(call.token, 12, 20) {
            0 => "eth_sendTransaction",
            1 => "eth_sendRawTransaction",
            2 => "acme_unheardOf",
            3..=6 => "eth_getLogs",
            _ => "eth_call",
        };
        let pad = match self.draw(call.token, 13, 50) {
            0 => self.draw(call.token, 14, 100_000),
            _ => self.draw(call.token, 14, 200),
        };
        let (id, token, pad) = (&call.id, call.token, "0".repeat(pad as usize));
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":[{token},"{pad}"]}}"#)
    }

    /// Judges one answer to the byte; a text in which one stands in front gives the length of that one.
    fn judge(&self, call: &Call, text: &str) -> usize {
        let head = format!(r#"{{"jsonrpc":"2.0","id":{},"#, call.id);
        let wrong = || -> ! {
            let shown: String = text.chars().take(400).collect();
            panic!("Call {} with id {} got {shown}", call.token, call.id)
        };
        let Some(rest) = text.strip_prefix(&head) else { wrong() };
        let (own, counter) = match answer(self.seed, call.token) {
            Ok(result) => (format!("\"result\":{result}}}"), &self.tally.results),
            Err(error) => (format!("\"error\":{error}}}"), &self.tally.errors),
        };
        if rest.starts_with(&own) {
            bump(counter, 1);
            bump(&self.tally.bytes, own.len() as u64);
            return head.len() + own.len();
        }
        // Else it is one of the gateway's, which ends with `}}}` and nowhere holds that.
        let Some(end) = rest.find("}}}") else { wrong() };
        let error = &rest[..end + 3];
        let code = error.strip_prefix("\"error\":{\"code\":").and_then(|rest| rest.split(',').next());
        let known = code.is_some_and(|code| ["-32052", "-32053", "-32054"].contains(&code));
        if !known || !error.contains("\"source\":\"ringway\"") || error.contains(STRAY) || error.len() > 400 {
            wrong();
        }
        bump(&self.tally.faults, 1);
        head.len() + error.len()
    }

    /// One caller's share of the storm.
    fn caller(&self, gateway: &Gateway) {
        let (mut client, mut made) = (gateway.connect(), 0);
        while made < self.calls / CALLERS {
            let call = self.call();
            let token = call.token;
            let path = ["/eth", "/other"][self.draw(token, 20, 2) as usize];
            made += match self.draw(token, 21, 100) {
                0..=9 => self.pipelined(&mut client, path, call),
                10..=19 => self.batch(&mut client, path, call),
                20..=22 => {
                    // Gone before, or in the middle of, an answer.
                    client.post(path, &[], self.body(&call));
                    let gone = std::mem::replace(&mut client, gateway.connect());
                    if !gone.gives_up_after_micros(self.draw(token, 22, 1500).saturating_sub(500)) {
                        bump(&self.tally.left, 1);
                    }
                    1
                }
                23..=24 => {
                    let body = self.body(&call).replacen(&format!("\"id\":{},", call.id), "", 1);
                    let silent = client.post(path, &[], body).response();
                    assert_eq!((silent.status, silent.body.as_str()), (204, ""));
                    bump(&self.tally.silent, 1);
                    1
                }
                25..=26 => {
                    let told = client.post(path, &["Connection: close"], self.body(&call)).response();
                    assert_eq!(self.judge(&call, &told.body), told.body.len());
                    client.closed();
                    client = gateway.connect();
                    1
                }
                27..=31 => {
                    let head = request(path, &["Transfer-Encoding: chunked"], 0).replace("Content-Length: 0\r\n", "");
                    client.send(head).send(chunked(self.body(&call).as_bytes(), token as usize % 7));
                    let told = client.response();
                    assert_eq!(self.judge(&call, &told.body), told.body.len());
                    1
                }
                _ => {
                    let told = client.post(path, &[], self.body(&call)).response();
                    assert_eq!(self.judge(&call, &told.body), told.body.len());
                    1
                }
            };
        }
        bump(&self.tally.asked, made);
    }

    fn pipelined(&self, client: &mut Client, path: &str, first: Call) -> u64 {
        let more = 1 + self.draw(first.token, 23, 7);
        let calls: Vec<Call> = std::iter::once(first).chain((0..more).map(|_| self.call())).collect();
        let mut bytes = String::new();
        for call in &calls {
            let body = self.body(call);
            bytes += &request(path, &[], body.len());
            bytes += &body;
        }
        client.send(bytes);
        for call in &calls {
            let told = client.response();
            assert_eq!(self.judge(call, &told.body), told.body.len());
        }
        calls.len() as u64
    }

    fn batch(&self, client: &mut Client, path: &str, first: Call) -> u64 {
        let more = self.draw(first.token, 23, 12);
        let calls: Vec<Call> = std::iter::once(first).chain((0..more).map(|_| self.call())).collect();
        let members: Vec<String> = calls.iter().map(|call| self.body(call)).collect();
        let told = client.post(path, &[], format!("[{}]", members.join(","))).response();
        let mut rest = told.body.as_str();
        for (nth, call) in calls.iter().enumerate() {
            rest = rest.strip_prefix(if nth == 0 { '[' } else { ',' }).unwrap_or_else(|| panic!("{nth}: {rest:.300}"));
            rest = &rest[self.judge(call, rest)..];
        }
        assert_eq!(rest, "]");
        calls.len() as u64
    }
}

#[test]
fn two_callers_never_get_each_others_bytes() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (calls, seed) = (number("MIXUPS", 100_000), number("MIXUPS_SEED", 20_260_202));
    eprintln!("MIXUPS={calls} MIXUPS_SEED={seed}");
    let done = Arc::new(Done::default());
    let nodes: Vec<Node> = (0..4).map(|at| Node::start(at, seed, &done)).collect();
    let addresses: Vec<_> = nodes.iter().map(|node| node.address).collect();
    let route = "strategy = \"weighted\"\nmax_attempts = 3\nattempt_timeout = \"300ms\"";
    let targets = "[\"d\", \"b\", \"a\", \"c\"]";
    let gateway = Setup::at(&addresses).no_circuit().route(route).another("other", targets, route).start();
    let storm = Storm { seed, calls, tally: Tally::default() };
    let begun = Instant::now();
    std::thread::scope(|scope| {
        (0..CALLERS).for_each(|_| {
            scope.spawn(|| storm.caller(&gateway));
        });
    });
    let took = begun.elapsed();
    gateway.wait_for_metrics("the last Call", |metrics| metrics.sum("ringway_connections", &["side=\"client\""]) == 0);
    let of = |counter: &AtomicU64| counter.load(SeqCst);
    let tally = &storm.tally;
    let (asked, results, errors) = (of(&tally.asked), of(&tally.results), of(&tally.errors));
    let (faults, silent, left) = (of(&tally.faults), of(&tally.silent), of(&tally.left));
    eprintln!(
        "{asked} Calls in {:.1} s ({:.0}/s): {results} results and {errors} errors of nodes, each its own to the byte \
         ({} MB), {faults} errors of the gateway, {silent} notifications, {left} left by their callers",
        took.as_secs_f64(),
        asked as f64 / took.as_secs_f64(),
        of(&tally.bytes) / 1_000_000,
    );
    eprintln!("nodes: {} requests, {} lost, cut, late or wrong on purpose", of(&done.requests), of(&done.faults));
    assert!(asked >= calls / CALLERS * CALLERS);
    assert!(results >= asked * 8 / 10, "too many had no result: nothing was shown");
    for (what, count) in [("errors", errors), ("faults", faults), ("silent", silent), ("left", left)] {
        assert!(count >= asked / 1000, "hardly any {what}: {count}");
    }
}
