//! A machine that allows fewer open files than the configuration asks for: said beforehand, and survived.

use super::harness::{Client, Gateway, Setup, Upstream, call_body, with_open_files};
use std::sync::Barrier;

#[test]
fn more_callers_than_files_wait_for_their_turn_and_all_are_answered() {
    let node = Upstream::answering("1");
    let config = Setup::of(&[&node]).circuit("consecutive_failures = 1").text();
    let gateway = Gateway::start_with_open_files(110, &config);
    gateway.wait_for_log("this process may have 110 open: only 14 callers are let in at once");
    let all_are_here = Barrier::new(120);
    std::thread::scope(|scope| {
        for _ in 0..120 {
            scope.spawn(|| {
                // The kernel takes them all; the gateway lets them in as others leave.
                let mut client = Client::connect(gateway.listen);
                all_are_here.wait();
                let open = std::fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap().count();
                assert!(open < 110, "{open} files");
                client.ask(call_body("1", "eth_call", "[]")).assert_result("1", "1");
            });
        }
    });
    let metrics = gateway.metrics();
    assert_eq!(
        (metrics.attempts("a", "ok"), metrics.attempts("a", "")),
        (120, 120),
        "every file was there when needed"
    );
    assert_eq!(node.count(), 120);
}

#[test]
fn an_endpoint_is_not_to_blame_for_files_that_are_missing_here() {
    let node = Upstream::answering("1");
    // The pool alone may have more than there are: each Call holds a connection until the gate opens.
    let gate = super::harness::Gate::default();
    let held = gate.clone();
    let slow =
        Upstream::start(move |seen| super::harness::Reply::after(&held, super::harness::Reply::result(seen, "1")));
    let setup = Setup::of(&[&slow, &node]).shards(1).server("batch_concurrency = 100");
    let setup = setup.circuit("consecutive_failures = 1").another("slow", "[\"a\"]", "");
    let gateway = Gateway::start_with_open_files(120, &setup.text());
    let batch = (0..100).map(|_| call_body("1", "eth_call", "[]")).collect::<Vec<_>>().join(",");
    let mut clients: Vec<Client> = (0..10).map(|_| gateway.connect()).collect();
    for client in &mut clients {
        client.post("/slow", &[], format!("[{batch}]"));
    }
    // By now the files are used up: ten times as many Calls are under way. The admin port has none left either.
    slow.wait_for(80);
    gate.open();
    for mut client in clients {
        assert_eq!(client.response().json().as_array().unwrap().len(), 100);
    }
    let metrics = gateway.metrics();
    assert!(metrics.attempts("a", "queue_timeout") > 0, "the files did not run out: {:#?}", metrics.told());
    let failed = (metrics.attempts("a", "connect_failed"), metrics.of("ringway_circuit_state", "a"));
    assert_eq!(failed, (0, 0), "{} connections, {} requests, {:#?}", slow.connections(), slow.count(), metrics.told());
    gateway.call("eth_call", "[]").assert_result("1", "1");
}

#[test]
fn a_check_warns_with_the_place_in_the_file() {
    let file = std::env::temp_dir().join(format!("ringway-open-files-{}.toml", std::process::id()));
    let config = Setup::of(&[&Upstream::answering("1")]).server("max_connections = 1000").text();
    std::fs::write(&file, &config).unwrap();
    let line = config.lines().position(|line| line.starts_with("max_connections")).unwrap() + 1;
    for (most, warned) in [(256, true), (20_000, false)] {
        let run = with_open_files(most).arg("check").arg(&file).output().unwrap();
        let said = String::from_utf8(run.stdout).unwrap();
        let place = format!("{}:{line}:19: warning: server.max_connections: 1000 connections", file.display());
        assert_eq!(said.contains(&place), warned, "{said}");
        assert!(run.status.success() && said.contains("ENDPOINT"), "a warning is no fault: {said}");
    }
    std::fs::remove_file(file).unwrap();
}
