//! Cables that are cut, and hosts that hear or speak no more: what it costs callers until the Circuit opens.

use super::calls::{Callers, EFFECT, READ, Told, call, judge, loopback, node, state, transitions};
use super::world::{Host, world};
use crate::harness::{Gateway, Setup, Upstream, call_body};
use std::time::{Duration, Instant};

const CONNECT: Duration = Duration::from_millis(600);
const ATTEMPT: Duration = Duration::from_millis(1_200);
/// What a busy machine may add to a deadline: less than a second one would.
const SLACK: Duration = Duration::from_millis(550);
const FAILURES: usize = 5;

fn gateway(shards: usize, first: &Upstream, second: &Upstream, cooldown: &str) -> Gateway {
    Setup::of(&[first, second])
        .shards(shards)
        .circuit(&format!(
            "consecutive_failures = {FAILURES}\nmin_samples = 4000000000\ncooldown = \"{cooldown}\"\n\
             max_cooldown = \"{cooldown}\""
        ))
        .endpoint(0, &format!("connect_timeout = \"{}ms\"", CONNECT.as_millis()))
        .route(&format!("attempt_timeout = \"{}ms\"", ATTEMPT.as_millis()))
        .start()
}

/// Calls reads until the first Endpoint answers again.
fn until_it_is_back(gateway: &Gateway, token: u64) {
    let (mut client, until) = (gateway.connect(), Instant::now() + Duration::from_secs(20));
    while call(&mut client, READ, token).by != Ok("a".to_owned()) {
        assert!(Instant::now() < until, "it never comes back");
    }
    assert_eq!(state(gateway), 0);
}

#[test]
fn a_host_that_is_not_there_costs_each_caller_one_connect_timeout_until_its_circuit_opens() {
    world(|| {
        let host = Host::new(1);
        let (first, second) = (node("a", host.listen()), node("b", loopback()));
        let gateway = gateway(2, &first, &second, "1s");
        host.cut();
        // All at once, over both shards, of every class.
        let methods = [READ, EFFECT, "eth_sendRawTransaction", "eth_newFilter", "acme_unknown"];
        let mut clients: Vec<_> = (0..20).map(|_| gateway.connect()).collect();
        let begun = Instant::now();
        for (at, client) in clients.iter_mut().enumerate() {
            client.post("/eth", &[], call_body("1", methods[at % 5], &format!("[\"{at}\"]")));
        }
        for (at, client) in clients.iter_mut().enumerate() {
            // The id of a new filter bears a tag of its Endpoint; the others come as they are.
            let result = client.response().result();
            assert!(at % 5 == 3 || result == format!("\"b:{at}\""), "{at}: {result}");
            assert!(begun.elapsed() < CONNECT + SLACK, "{at} waited {:?}", begun.elapsed());
        }
        assert!(begun.elapsed() >= CONNECT, "nobody waited: the cable is not cut");
        assert_eq!(gateway.metrics().attempts("a", "connect_timeout"), 20);
        assert_eq!((transitions(&gateway, "consecutive_failures"), first.count(), second.count()), (1, 0, 20));
        // From here on nobody waits but who probes.
        let told: Vec<Told> = (100..400)
            .map(|token| call(&mut clients[token as usize % 20], methods[token as usize % 3], token))
            .collect();
        let slow = told.iter().filter(|one| one.waited >= CONNECT).count() as u64;
        assert!(slow <= transitions(&gateway, "cooldown_over"), "{slow} waited although it is open");
        assert!(told.iter().all(|one| one.by.as_deref() == Ok("b") && one.waited < CONNECT + SLACK), "{told:?}");
        assert_eq!(first.count(), 0);
        host.mend();
        until_it_is_back(&gateway, 1_000);
        assert_eq!(transitions(&gateway, "probe_succeeded"), 1);
    });
}

#[test]
fn a_cable_that_is_cut_under_load_costs_each_call_one_timeout_and_traffic_returns() {
    world(|| {
        let host = Host::new(1);
        let (first, second) = (node("a", host.listen()), node("b", loopback()));
        let gateway = gateway(2, &first, &second, "700ms");
        let callers = 12;
        let by = |name: &'static str| move |one: &Told| one.by.as_deref() == Ok(name);
        let (mut cut, mut open, mut mended) = (None, None, None);
        let told = Callers::steady(&gateway, callers, Duration::from_millis(5), |all| {
            all.wait_for("before the cut", 300, by("a"));
            assert_eq!(second.count(), 0);
            cut = Some(Instant::now());
            host.cut();
            gateway.wait_for_metrics("an open Circuit", |metrics| metrics.of("ringway_circuit_state", "a") == 1);
            open = Some(Instant::now());
            all.wait_for("while it is open", 300, by("b"));
            let failed = || transitions(&gateway, "probe_failed");
            gateway.wait_for_metrics("a probe that fails", |_| failed() >= 1);
            mended = Some(Instant::now());
            host.mend();
            all.wait_for("after it was mended", 300, by("a"));
        });
        let (cut, open, mended) = (cut.unwrap(), open.unwrap(), mended.unwrap());
        judge(&told, &[("a", &first), ("b", &second)]);
        for one in &told {
            assert!(one.waited < ATTEMPT + SLACK, "more than one timeout: {one:?}");
            assert!(one.by != Err(-32054) || one.waited >= ATTEMPT, "given up early: {one:?}");
        }
        // What one node may still get, and no other has seen.
        let unknown = told.iter().filter(|one| one.by == Err(-32054));
        unknown.for_each(|one| assert_eq!(second.count_with(&format!("[\"{}\"]", one.token)), 0, "{one:?}"));
        // Those under way when it opened waited; before, less than it takes to open it could wait once more.
        let slow = |from: Instant, to: Instant| {
            told.iter().filter(|one| one.waited >= CONNECT && (from..to).contains(&one.begun)).count()
        };
        // A Call may have been sent a moment before the cut.
        let (before, after) = (slow(cut - ATTEMPT, open), slow(open, mended));
        assert!((FAILURES..callers + FAILURES).contains(&before), "{before} waited before it opened");
        let probes = transitions(&gateway, "cooldown_over") as usize;
        assert!(after <= probes, "{after} waited while it was open, of {probes} probes");
        assert_eq!((state(&gateway), transitions(&gateway, "consecutive_failures")), (0, 1));
        assert_eq!(transitions(&gateway, "probe_succeeded"), 1);
    });
}

#[test]
fn a_host_that_speaks_no_more_has_run_what_it_heard() {
    world(|| {
        let host = Host::new(1);
        let (first, second) = (node("a", host.listen()), node("b", loopback()));
        let gateway = gateway(1, &first, &second, "300ms");
        let mut client = gateway.connect();
        assert_eq!(call(&mut client, READ, 1).by.as_deref(), Ok("a"));
        host.mute();
        // Over the connection that is open: it may have run, and it has.
        let effect = call(&mut client, EFFECT, 2);
        assert_eq!((effect.by, first.count_with("[\"2\"]"), second.count()), (Err(-32054), 1, 0));
        assert!((ATTEMPT..ATTEMPT + SLACK).contains(&effect.waited), "{:?}", effect.waited);
        // Over a new one: it was not sent.
        let effect = call(&mut client, EFFECT, 3);
        assert_eq!((effect.by.as_deref(), first.count_with("[\"3\"]")), (Ok("b"), 0));
        assert!((CONNECT..CONNECT + SLACK).contains(&effect.waited), "{:?}", effect.waited);
        host.speaks();
        until_it_is_back(&gateway, 4);
        // A read that was heard, and whose answer is lost, goes on.
        host.mute();
        let read = call(&mut client, READ, 5);
        assert_eq!((read.by.as_deref(), second.count_with("[\"5\"]")), (Ok("b"), 1));
        assert!((ATTEMPT..ATTEMPT + SLACK).contains(&read.waited), "{:?}", read.waited);
        assert_eq!(first.count_with("[\"5\"]"), 1);
        host.speaks();
        until_it_is_back(&gateway, 6);
        assert_eq!((first.count_with("[\"2\"]"), second.count_with("[\"2\"]")), (1, 0));
    });
}

#[test]
fn what_a_deaf_host_was_sent_is_never_sent_to_another() {
    world(|| {
        let host = Host::new(1);
        let (first, second) = (node("a", host.listen()), node("b", loopback()));
        let gateway = gateway(1, &first, &second, "300ms");
        let mut client = gateway.connect();
        assert_eq!(call(&mut client, READ, 1).by.as_deref(), Ok("a"));
        host.deaf();
        // Nobody can know that it never arrived.
        let effect = call(&mut client, EFFECT, 2);
        assert_eq!((effect.by, first.count_with("[\"2\"]"), second.count()), (Err(-32054), 0, 0));
        assert!((ATTEMPT..ATTEMPT + SLACK).contains(&effect.waited), "{:?}", effect.waited);
        let effect = call(&mut client, EFFECT, 3);
        assert_eq!((effect.by.as_deref(), first.count()), (Ok("b"), 1));
        assert!((CONNECT..CONNECT + SLACK).contains(&effect.waited), "{:?}", effect.waited);
        host.hears();
        until_it_is_back(&gateway, 4);
        // The kernel may deliver what it was given even now, to the host that it was for.
        assert!(first.count_with("[\"2\"]") <= 1 && second.count_with("[\"2\"]") == 0);
    });
}
