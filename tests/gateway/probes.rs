//! One probe over all shards, a thousand times; and probes that are lost in every way there is.

use super::harness::{Client, Gate, Gateway, PATIENCE, Reply, Setup, Upstream, call_body};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

const ROUNDS: usize = 1_000;
const CALLERS: usize = 64;
const RULE: &str = "consecutive_failures = 1\ncooldown = \"4ms\"\nmax_cooldown = \"4ms\"";
/// The cooldown with its jitter, and what is lost in rounding.
const COOLED: Duration = Duration::from_millis(7);

/// What becomes of the probe.
#[derive(Clone)]
enum Fate {
    /// It succeeds, once the gate opens.
    Succeeds(Gate),
    /// It fails, once the gate opens.
    Fails(Gate),
    /// Nobody ever hears of it again.
    Hangs,
}

/// A node whose next answers are as a test likes.
fn node(fate: &Arc<Mutex<Fate>>) -> Upstream {
    let fate = fate.clone();
    Upstream::start(move |seen| {
        let fate = fate.lock().unwrap().clone();
        match fate {
            Fate::Succeeds(gate) => Reply::after(&gate, Reply::result(seen, "\"first\"")),
            Fate::Fails(gate) => Reply::after(&gate, Reply::json(500, "no")),
            Fate::Hangs => Reply::hang(),
        }
    })
}

fn opened() -> Gate {
    let gate = Gate::default();
    gate.open();
    gate
}

fn transitions(gateway: &Gateway, reason: &str) -> usize {
    let labels = ["endpoint=\"a\"", &format!("reason=\"{reason}\"")];
    gateway.metrics().sum("ringway_circuit_transitions_total", &labels) as usize
}

/// All callers send at once, from two threads; the first one moves on with each round.
fn burst(clients: &mut [Client], path: &str, round: usize) {
    clients.rotate_left(round % CALLERS);
    let (left, right) = clients.split_at_mut(CALLERS / 2);
    let start = Barrier::new(2);
    let press = |half: &mut [Client]| {
        start.wait();
        for client in half {
            client.post(path, &[], call_body("1", "eth_call", "[]"));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| press(left));
        press(right);
    });
}

#[test]
fn a_thousand_times_exactly_one_of_64_callers_over_both_shards_is_the_probe() {
    let fate = Arc::new(Mutex::new(Fate::Fails(opened())));
    let (first, second) = (node(&fate), Upstream::answering("\"second\""));
    // A Gateway of its own for probes that hang: theirs is the same Circuit, with less patience.
    let gateway = Setup::of(&[&first, &second])
        .circuit(RULE)
        .another("brief", "[\"a\", \"b\"]", "attempt_timeout = \"300ms\"")
        .start();
    let mut clients: Vec<_> = (0..CALLERS).map(|_| gateway.connect()).collect();
    let mut opener = gateway.connect();
    let (mut open, mut expected) = (false, [0; 3]);
    let begun = Instant::now();
    for round in 0..ROUNDS {
        let gate = Gate::default();
        if !open {
            *fate.lock().unwrap() = Fate::Fails(opened());
            opener.ask(call_body("1", "eth_call", "[]")).assert_result("1", "\"second\"");
        }
        let (kind, path) = match round % 50 {
            49 => (2, "/brief"),
            at if at % 5 == 4 => (1, "/eth"),
            _ => (0, "/eth"),
        };
        *fate.lock().unwrap() = match kind {
            0 => Fate::Succeeds(gate.clone()),
            1 => Fate::Fails(gate.clone()),
            _ => Fate::Hangs,
        };
        std::thread::sleep(COOLED); // the time that the Circuit is open is what is tested
        let (asked, served) = (first.count(), second.count());
        burst(&mut clients, path, round);
        // All but the probe are answered while it is still under way.
        second.wait_for(served + CALLERS - 1);
        first.wait_for(asked + 1);
        assert_eq!(first.count(), asked + 1, "round {round}: more than one probe");
        gate.open();
        let answers = clients.iter_mut().map(|client| client.response().result());
        let from_first = answers.filter(|result| result == "\"first\"").count();
        assert_eq!(from_first, usize::from(kind == 0), "round {round}");
        assert_eq!((first.count(), second.count()), (asked + 1, served + CALLERS - usize::from(kind == 0)));
        expected[kind] += 1;
        open = kind != 0;
    }
    eprintln!("{ROUNDS} rounds in {:?}", begun.elapsed());
    assert_eq!(transitions(&gateway, "cooldown_over"), ROUNDS);
    assert_eq!(transitions(&gateway, "probe_succeeded"), expected[0]);
    assert_eq!(transitions(&gateway, "probe_failed"), expected[1] + expected[2]);
    assert!(first.connections() > 20 && expected[2] == 20, "each probe that hung cost its connection");
}

/// Lets one Call open the Circuit, and the cooldown pass.
fn trip(gateway: &Gateway, fate: &Mutex<Fate>) {
    *fate.lock().unwrap() = Fate::Fails(opened());
    gateway.call("eth_call", "[]").assert_result("1", "\"second\"");
    std::thread::sleep(COOLED);
}

#[test]
fn a_probe_whose_caller_leaves_is_the_next_callers() {
    let fate = Arc::new(Mutex::new(Fate::Hangs));
    let (first, second) = (node(&fate), Upstream::answering("\"second\""));
    let gateway = Setup::of(&[&first, &second]).circuit(RULE).start();
    for round in 1..=3 {
        trip(&gateway, &fate);
        *fate.lock().unwrap() = Fate::Hangs;
        let asked = first.count();
        let mut client = gateway.connect();
        client.post("/eth", &[], call_body("1", "eth_call", "[]"));
        first.wait_for(asked + 1);
        client.reset();
        gateway.wait_for_metrics("the permit's return", |metrics| {
            metrics.sum("ringway_circuit_transitions_total", &["endpoint=\"a\"", "reason=\"probe_inconclusive\""])
                == round
        });
        std::thread::sleep(Duration::from_millis(2)); // times of a Circuit are whole ms, rounded up
        *fate.lock().unwrap() = Fate::Succeeds(opened());
        gateway.call("eth_call", "[]").assert_result("1", "\"first\"");
    }
    assert_eq!((transitions(&gateway, "probe_succeeded"), transitions(&gateway, "probe_failed")), (3, 0));
}

#[test]
fn no_way_to_lose_a_probe_keeps_an_endpoint_closed() {
    let fate = Arc::new(Mutex::new(Fate::Hangs));
    let (first, second) = (node(&fate), Upstream::answering("\"second\""));
    let gateway = Setup::of(&[&first, &second]).circuit(RULE).route("attempt_timeout = \"300ms\"").start();
    for lost in 0..4 {
        trip(&gateway, &fate);
        *fate.lock().unwrap() = Fate::Hangs;
        let asked = first.count();
        let mut client = gateway.connect();
        client.post("/eth", &[], call_body("1", "eth_call", "[]"));
        first.wait_for(asked + 1);
        match lost {
            0 => client.response().assert_result("1", "\"second\""),
            // Its connection goes, its caller goes, or the Snapshot under it changes.
            1 => first.hang_up(),
            2 => client.reset(),
            _ => {
                let same = Setup::of(&[&first, &second]).circuit(RULE).route("attempt_timeout = \"299ms\"");
                assert!(gateway.reload(&same));
            }
        }
        *fate.lock().unwrap() = Fate::Succeeds(opened());
        let until = Instant::now() + PATIENCE;
        while gateway.call("eth_call", "[]").result() != "\"first\"" {
            assert!(Instant::now() < until, "closed for ever after loss {lost}");
        }
    }
}
