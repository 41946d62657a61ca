//! Two thousand mixed Calls through fronts that delay, drip, cut and fall silent: no wrong answer, nothing twice.

use super::calls::{EFFECT, OnDrop, READ, Told, call, judge, loopback, state, token, transitions};
use super::front::{Front, Weather};
use super::world::world;
use crate::harness::{Client, Gateway, Reply, Setup, Upstream, call_body};
use crate::storm_node::draw;
use ringway::wire::evm_tx::{hash_text, transaction_hash};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const CALLS: u64 = 2_000;
const CALLERS: usize = 16;
const TIMEOUT: Duration = Duration::from_millis(400);
const BROADCAST: &str = "eth_sendRawTransaction";

/// The params of a broadcast: a legacy transaction of its own for each number.
fn signed(token: u64) -> String {
    let nonce = 0x0100_0000 + token;
    let (to, r, s) = ("35".repeat(20), "28".repeat(32), "67".repeat(32));
    format!("[\"0xf86784{nonce:08x}8404a817c882520894{to}808025a0{r}a0{s}\"]")
}

fn hash(params: &str) -> String {
    let hash = transaction_hash(params.as_bytes()).expect("a well-formed transaction");
    String::from_utf8(hash_text(&hash).to_vec()).unwrap()
}

/// A node with transactions that no other node has.
fn node(name: &'static str) -> Upstream {
    let pool = Mutex::new(BTreeSet::new());
    Upstream::serving(loopback(), b"", move |seen| {
        let params = seen.json()["params"].to_string();
        if seen.holds(BROADCAST) {
            let hash = hash(&params);
            return match pool.lock().unwrap().insert(hash.clone()) {
                true => Reply::result(seen, &format!("\"{hash}\"")),
                false => Reply::error(seen, 200, "{\"code\":-32000,\"message\":\"already known\"}"),
            };
        }
        if seen.holds("eth_getTransactionByHash") {
            let hash = seen.json()["params"][0].as_str().unwrap().to_owned();
            return match pool.lock().unwrap().contains(&hash) {
                true => Reply::result(seen, &format!("{{\"hash\":\"{hash}\",\"blockNumber\":null}}")),
                false => Reply::result(seen, "null"),
            };
        }
        Reply::result(seen, &format!("\"{name}:{}\"", token(seen)))
    })
}

/// The hash is known whatever happened on the way: the last node can always be reached.
fn broadcast(client: &mut Client, token: u64) {
    let params = signed(token);
    let answer = client.ask(call_body(&token.to_string(), BROADCAST, &params));
    answer.assert_result(&token.to_string(), &format!("\"{}\"", hash(&params)));
}

/// Both go dark, one after the other, until their Circuits are open; and then are as before.
fn darkness(gateway: &Gateway, fronts: &[Front; 2]) {
    let circuit = |endpoint: &str, state: u64| {
        let what = format!("state {state} of {endpoint}");
        gateway.wait_for_metrics(&what, |metrics| metrics.of("ringway_circuit_state", endpoint) == state);
    };
    let named = fronts.iter().zip(["a", "b"]);
    for (front, endpoint) in named.clone() {
        front.darken(true);
        circuit(endpoint, 1);
    }
    for (front, endpoint) in named.rev() {
        front.darken(false);
        circuit(endpoint, 0);
    }
}

#[test]
fn two_thousand_calls_through_fronts_that_delay_drip_and_cut() {
    world(|| {
        let seed = std::env::var("STORM_SEED").map_or(20_260_101, |seed| seed.parse().unwrap());
        eprintln!("STORM_SEED={seed}");
        let begun = Instant::now();
        let nodes = [node("a"), node("b"), node("c")];
        let fronts = [Front::start(nodes[0].address, seed), Front::start(nodes[1].address, seed ^ 1)];
        let gateway = Setup::at(&[fronts[0].address, fronts[1].address, nodes[2].address])
            .circuit("consecutive_failures = 3\ncooldown = \"20ms\"\nmax_cooldown = \"40ms\"")
            .route(&format!("attempt_timeout = \"{}ms\"", TIMEOUT.as_millis()))
            .start();
        let (next, told, done) = (AtomicU64::new(0), Mutex::<Vec<Told>>::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..CALLERS {
                scope.spawn(|| {
                    let mut client = gateway.connect();
                    loop {
                        let token = next.fetch_add(1, SeqCst);
                        let method = match draw(seed, token, 7, 10) {
                            _ if token >= CALLS && done.load(SeqCst) => return,
                            0..2 => {
                                broadcast(&mut client, token);
                                continue;
                            }
                            2..5 => EFFECT,
                            _ => READ,
                        };
                        let one = call(&mut client, method, token);
                        told.lock().unwrap().push(one);
                    }
                });
            }
            // Whatever fails, the callers end.
            let _end = OnDrop(|| done.store(true, SeqCst));
            gateway.wait_for_metrics("a part of the Calls", |_| next.load(SeqCst) > CALLS * 2 / 3);
            darkness(&gateway, &fronts);
        });
        eprintln!("{} Calls after {:?}", next.load(SeqCst), begun.elapsed());
        fronts.iter().for_each(Front::calm_down);
        let (mut client, until) = (gateway.connect(), Instant::now() + Duration::from_secs(20));
        let (mut token, mut in_a_row) = (2 * next.load(SeqCst), 0);
        while in_a_row < 100 || state(&gateway) != 0 {
            assert!(Instant::now() < until, "the first never comes back");
            let one = call(&mut client, READ, token);
            (token, in_a_row) = (token + 1, if one.by.as_deref() == Ok("a") { in_a_row + 1 } else { 0 });
        }
        eprintln!("back after {:?}", begun.elapsed());
        let opened = transitions(&gateway, "consecutive_failures") + transitions(&gateway, "failure_ratio");
        let (closed, failed) = (transitions(&gateway, "probe_succeeded"), transitions(&gateway, "probe_failed"));
        eprintln!("{:?}, {:?}", fronts[0].befell(), fronts[1].befell());
        eprintln!("opened {opened} times, closed {closed} times, {failed} probes failed");
        assert!(opened >= 1 && closed >= 1, "opened {opened} times, closed {closed} times");
        drop(gateway);
        fronts.iter().for_each(Front::wait_for_the_end);
        nodes.iter().for_each(|node| node.wait_for_open(0));
        for weather in Weather::BAD {
            let times: usize = fronts.iter().filter_map(|front| front.befell().get(&weather).copied()).sum();
            assert!(times >= 5, "hardly any {weather:?}: {times}");
        }
        let told = told.into_inner().unwrap();
        judge(&told, &[("a", &nodes[0]), ("b", &nodes[1]), ("c", &nodes[2])]);
        let told =
            |by: Result<&str, i64>| told.iter().filter(|one| one.by.as_deref().map_err(|code| *code) == by).count();
        let (a, b, c, unknown) = (told(Ok("a")), told(Ok("b")), told(Ok("c")), told(Err(-32054)));
        eprintln!("answered by a {a}, b {b}, c {c}; {unknown} unknown");
        assert!(a > 100 && b > 10 && c > 10 && unknown > 10, "{a}, {b}, {c}, {unknown}");
    });
}
