//! Routes that lead nowhere: the kernel says so at once, nothing was sent, and nobody waits.

use super::calls::{EFFECT, READ, call, judge, loopback, node, state, transitions};
use super::world::{Host, ip, world};
use crate::harness::Setup;
use std::time::{Duration, Instant};

const CONNECT: Duration = Duration::from_secs(5);
const ATTEMPT: Duration = Duration::from_millis(500);

#[test]
fn a_route_to_nowhere_costs_no_wait_and_opens_the_circuit() {
    world(|| {
        let host = Host::new(1);
        let (first, second) = (node("a", host.listen()), node("b", loopback()));
        // EINVAL, EHOSTUNREACH, EACCES; and ENETUNREACH, where no route is left at all.
        for kind in ["blackhole", "unreachable", "prohibit", "throw"] {
            let route = format!("{kind} {}", host.address());
            ip(&format!("route add {route}"));
            if kind == "throw" {
                ip("route del 10.77.1.0/24");
            }
            let (seen, before) = (first.count(), second.count());
            let gateway = Setup::of(&[&first, &second])
                .circuit("consecutive_failures = 5\ncooldown = \"300ms\"\nmax_cooldown = \"300ms\"")
                .endpoint(0, &format!("connect_timeout = \"{}s\"", CONNECT.as_secs()))
                .start();
            let mut clients: Vec<_> = (0..8).map(|_| gateway.connect()).collect();
            let methods = [READ, EFFECT, "acme_unknown", "eth_sendRawTransaction"];
            for at in 0..40 {
                let told = call(&mut clients[at % 8], methods[at % 4], at as u64);
                assert_eq!(told.by.as_deref(), Ok("b"), "{kind}: {told:?}");
                assert!(told.waited < CONNECT / 5, "{kind}: {told:?}");
            }
            let probes = transitions(&gateway, "cooldown_over");
            assert_eq!(gateway.metrics().attempts("a", "connect_failed"), 5 + probes, "{kind}");
            assert_eq!(gateway.metrics().attempts("a", ""), 5 + probes, "{kind}");
            assert_eq!((first.count() - seen, second.count() - before), (0, 40), "{kind}");
            assert_eq!(transitions(&gateway, "consecutive_failures"), 1, "{kind}");
            if kind == "throw" {
                ip("route add 10.77.1.0/24 dev near1");
            }
            ip(&format!("route del {route}"));
            let until = Instant::now() + Duration::from_secs(20);
            while call(&mut clients[0], READ, 100).by.as_deref() != Ok("a") {
                assert!(Instant::now() < until, "{kind}: it never comes back");
            }
            assert_eq!((state(&gateway), transitions(&gateway, "probe_succeeded")), (0, 1), "{kind}");
        }
    });
}

#[test]
fn a_route_that_is_lost_under_open_connections_is_an_unknown_outcome() {
    world(|| {
        let host = Host::new(1);
        let (first, second) = (node("a", host.listen()), node("b", loopback()));
        let gateway =
            Setup::of(&[&first, &second]).route(&format!("attempt_timeout = \"{}ms\"", ATTEMPT.as_millis())).start();
        let mut client = gateway.connect();
        let mut told = vec![call(&mut client, READ, 0)];
        ip(&format!("route add blackhole {}", host.address()));
        // The kernel took the request: whether a part of it got through is not known.
        told.push(call(&mut client, EFFECT, 1));
        assert_eq!(told[1].by, Err(-32054));
        // A new connection can't be made, and that is known at once.
        told.push(call(&mut client, EFFECT, 2));
        assert!(told[2].by.as_deref() == Ok("b") && told[2].waited < ATTEMPT, "{told:?}");
        ip(&format!("route del blackhole {}", host.address()));
        told.push(call(&mut client, READ, 3));
        assert_eq!(told[3].by.as_deref(), Ok("a"));
        ip(&format!("route add blackhole {}", host.address()));
        told.push(call(&mut client, READ, 4));
        assert!(told[4].by.as_deref() == Ok("b") && (ATTEMPT..ATTEMPT * 2).contains(&told[4].waited), "{told:?}");
        judge(&told, &[("a", &first), ("b", &second)]);
    });
}
