//! Large bodies of many callers at once: memory stays within its limit, everybody else is served.

use super::harness::{Client, Gateway, Reply, Setup, Upstream, call_body};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// The most memory that the process ever had, in MiB.
fn peak_mib(gateway: &Gateway) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
}

/// A node whose answers to `eth_getLogs` are so long, in a length or in chunks, and short to all else.
fn node(bytes: usize, chunked: bool) -> Upstream {
    let large = format!("\"{}\"", "ab".repeat(bytes / 2));
    Upstream::start(move |seen| match (seen.holds("eth_getLogs"), chunked) {
        (false, _) => Reply::result(seen, "1"),
        (true, false) => Reply::result(seen, &large),
        (true, true) => {
            let body = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{large}}}", seen.id());
            let chunks: String = body
                .as_bytes()
                .chunks(MIB)
                .map(|chunk| format!("{:x}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(chunk)))
                .collect();
            Reply::raw(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"))
        }
    })
}

fn ask_and_wait(gateway: &Gateway) -> Client {
    let mut client = gateway.connect();
    client.post("/eth", &[], call_body("1", "eth_getLogs", "[]"));
    client
}

#[test]
fn large_answers_that_nobody_reads_leave_room_for_everybody_else() {
    for chunked in [false, true] {
        let node = node(16 * MIB, chunked);
        let gateway = Setup::of(&[&node]).server("max_buffered_bytes = \"64MiB\"\nwrite_timeout = \"60s\"").start();
        let slow: Vec<Client> = (0..30).map(|_| ask_and_wait(&gateway)).collect();
        gateway.wait_for_metrics("the answers that find no room", |now| now.calls("overloaded") >= 20);
        // Small ones pass, on both shards, at once.
        for _ in 0..50 {
            let began = Instant::now();
            gateway.call("eth_call", "[]").assert_result("1", "1");
            assert!(began.elapsed() < Duration::from_secs(5));
        }
        let metrics = gateway.metrics();
        let held = metrics.sum("ringway_buffered_bytes", &[]) as usize;
        assert!((16 * MIB..=64 * MIB).contains(&held), "{held}");
        assert_eq!(metrics.of("ringway_circuit_state", "a"), 0, "the node is not to blame");
        let peak = peak_mib(&gateway);
        assert!(peak < 64 + 100, "{peak} MiB, chunked: {chunked}");
        // Who reads at last gets all of it; who found no room was told so.
        let (mut whole, mut overloaded) = (0, 0);
        for mut client in slow {
            let answer = client.response();
            match answer.status {
                200 => {
                    assert_eq!(answer.result().len(), 16 * MIB + 2);
                    whole += 1;
                }
                _ => {
                    answer.assert_fault(503, "1", -32056);
                    overloaded += 1;
                }
            }
        }
        assert!(whole >= 1 && overloaded >= 20 && whole + overloaded == 30, "{whole} {overloaded}");
        gateway.wait_for_metrics("all memory to be given back", |now| now.sum("ringway_buffered_bytes", &[]) == 0);
        assert_eq!(ask_and_wait(&gateway).response().result().len(), 16 * MIB + 2);
    }
}

#[test]
fn large_requests_that_never_end_are_held_within_the_limit_too() {
    let node = node(10, false);
    let gateway = Setup::of(&[&node])
        .server("max_buffered_bytes = \"8MiB\"\nmax_request_bytes = \"1MiB\"\nbody_timeout = \"3s\"")
        .start();
    let body = " ".repeat(MIB - 1000);
    let mut slow: Vec<Client> = (0..60).map(|_| gateway.connect()).collect();
    std::thread::scope(|scope| {
        for client in &mut slow {
            scope.spawn(|| {
                client.send(format!("POST /eth HTTP/1.1\r\nHost: h\r\nContent-Length: {MIB}\r\n\r\n{body}"));
            });
        }
        gateway.wait_for_metrics("the limit to be reached", |now| now.sum("ringway_buffered_bytes", &[]) > 6 << 20);
        for _ in 0..50 {
            gateway.call("eth_call", "[]").assert_result("1", "1");
        }
    });
    for client in &mut slow {
        if let Some(answer) = client.try_response(false) {
            assert_eq!(answer.status, 408, "{answer:?}");
        }
    }
    let peak = peak_mib(&gateway);
    assert!(peak < 100, "{peak} MiB");
    gateway.wait_for_metrics("all memory to be given back", |now| now.sum("ringway_buffered_bytes", &[]) == 0);
}
