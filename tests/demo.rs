//! `ringway demo` as a stranger meets it: start it, paste the line it prints, look at what it shows.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

struct Demo {
    child: Child,
    output: BufReader<ChildStdout>,
    /// What was printed so far.
    text: String,
}

impl Demo {
    /// Starts it on free ports without traffic of its own, and reads its first screen.
    fn start(more: &[&str]) -> Demo {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ringway"))
            .args(["demo", "--port", "0", "--admin-port", "0", "--traffic", "0"])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut demo = Demo { child, output, text: String::new() };
        while !demo.text.contains("Ctrl-C ends it.") {
            let read = demo.output.read_line(&mut demo.text).expect("text");
            assert!(read > 0, "it ended with {:?} after:\n{}", demo.child.wait(), demo.text);
        }
        demo
    }

    /// The printed lines that are to be pasted.
    fn pasteable(&self) -> Vec<String> {
        self.text
            .lines()
            .filter_map(|line| line.strip_prefix("  "))
            .filter(|line| line.starts_with("curl "))
            .map(str::to_owned)
            .collect()
    }

    /// What is answered to a printed line.
    fn paste(&self, line: &str) -> serde_json::Value {
        let (url, body) = url_and_body(line);
        serde_json::from_str(&request("POST", &url, &body)).expect("JSON")
    }

    /// Ends it as Ctrl-C does; gives everything it printed.
    fn interrupt(mut self) -> String {
        let killed = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().expect("kill");
        assert!(killed.success());
        self.output.read_to_string(&mut self.text).expect("text");
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}:\n{}", self.text);
        std::mem::take(&mut self.text)
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Takes a printed curl line apart.
fn url_and_body(line: &str) -> (String, String) {
    let url = line.split_whitespace().find(|word| word.starts_with("http://")).expect("a URL");
    assert!(line.contains("-H 'Content-Type: application/json'"), "{line}");
    let body = line.split_once("-d '").and_then(|(_, rest)| rest.strip_suffix('\'')).expect("a body");
    (url.to_owned(), body.to_owned())
}

/// The body of the answer; the status is 200.
fn request(verb: &str, url: &str, body: &str) -> String {
    let rest = url.strip_prefix("http://").expect("http");
    let (authority, path) = rest.split_once('/').expect("a path");
    let mut stream = TcpStream::connect(authority).expect("it listens");
    let request = format!(
        "{verb} /{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    answer.split_once("\r\n\r\n").expect("a head").1.to_owned()
}

fn is_quantity(value: &serde_json::Value) -> bool {
    value.as_str().and_then(|text| text.strip_prefix("0x")).is_some_and(|hex| u64::from_str_radix(hex, 16).is_ok())
}

/// The words of the rows, one row a line.
fn rows(text: &str) -> Vec<String> {
    let table = text.split_once("-----\n").expect("a table").1;
    table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

fn demo(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ringway")).arg("demo").args(arguments).output().expect("the binary starts")
}

#[test]
fn the_printed_lines_answer_and_it_ends_by_itself() {
    let mut demo = Demo::start(&["--for", "3"]);
    let lines = demo.pasteable();
    let [single, batch, metrics] = &lines[..] else { panic!("three lines: {lines:?}") };
    let answer = demo.paste(single);
    assert!(answer["id"] == 1 && is_quantity(&answer["result"]), "{answer}");
    let answers = demo.paste(batch);
    assert!(is_quantity(&answers[0]["result"]) && answers[1]["result"].is_array(), "{answers}");
    let metrics = metrics.strip_prefix("curl ").expect("a line");
    assert!(request("GET", metrics, "").contains("ringway_attempts_total{endpoint=\"geth-1\",outcome=\"ok\"}"));
    assert!(request("GET", &metrics.replace("/metrics", "/readyz"), "").contains("ready"));
    if Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        // As a shell reads it.
        for line in &lines {
            let output = Command::new("sh").args(["-c", line]).stderr(Stdio::null()).output().expect("sh");
            assert!(output.status.success() && !output.stdout.is_empty(), "{line}");
        }
    }
    demo.output.read_to_string(&mut demo.text).expect("text");
    assert!(demo.child.wait().expect("it ends").success());
    assert!(demo.text.contains("\nEnded: ") && demo.text.contains(" Calls answered, 0 failed."), "{}", demo.text);
}

#[test]
fn a_node_that_hangs_is_replaced_within_the_call() {
    let demo = Demo::start(&["--for", "60", "--fault", "geth-1=timeout"]);
    assert!(demo.text.contains("BROKEN: accepts requests and never answers, all the time"), "{}", demo.text);
    let answer = demo.paste(&demo.pasteable()[0]);
    assert!(is_quantity(&answer["result"]), "{answer}");
    let text = demo.interrupt();
    assert!(rows(&text).iter().any(|row| row.ends_with("ms 1 failed 1 - geth-1: timeout")), "{text}");
    assert!(text.contains("1 Calls answered, 0 failed. Attempts: geth-1 1 failed; reth-1 1; erigon-1 0."), "{text}");
}

#[test]
fn a_node_that_refuses_is_replaced_and_its_circuit_opens() {
    let demo = Demo::start(&["--for", "60", "--fault", "geth-1=refuse", "--driver", "epoll"]);
    assert!(demo.text.contains("BROKEN: refuses connections") && demo.text.contains("on epoll"), "{}", demo.text);
    for _ in 0..4 {
        let answer = demo.paste(&demo.pasteable()[0]);
        assert!(is_quantity(&answer["result"]), "{answer}");
    }
    let text = demo.interrupt();
    assert!(text.contains("geth-1: connect_failed"), "{text}");
    assert!(text.contains("geth-1: 3 failures in a row, its Circuit opens"), "{text}");
    assert!(text.contains("4 Calls answered, 0 failed. Attempts: geth-1 3 failed; reth-1 4; erigon-1 0."), "{text}");
}

#[test]
fn every_other_fault_is_survived_too() {
    for kind in ["reset", "error", "busy", "wrong-id", "html", "slow"] {
        let demo = Demo::start(&["--for", "60", "--fault", &format!("geth-1={kind}")]);
        let answer = demo.paste(&demo.pasteable()[0]);
        assert!(is_quantity(&answer["result"]), "{kind}: {answer}");
        let text = demo.interrupt();
        assert!(text.contains("1 Calls answered, 0 failed. Attempts: geth-1 1 failed; reth-1 1;"), "{kind}: {text}");
    }
}

#[test]
fn traffic_of_its_own_is_shown() {
    let output = demo(&["--port", "0", "--admin-port", "0", "--traffic", "50", "--for", "2"]);
    let text = String::from_utf8(output.stdout).expect("text");
    let rows = rows(&text);
    let calls = |row: &String| row.split(' ').nth(3).and_then(|calls| calls.parse::<u32>().ok()).unwrap_or(0);
    assert!(rows.iter().map(calls).sum::<u32>() > 20, "{text}");
    assert!(text.contains(" 0 failed. Attempts:"), "{text}");
}

#[test]
fn the_shown_configuration_passes_the_check() {
    let output = demo(&["--show-config"]);
    assert!(output.status.success());
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("demo.toml");
    std::fs::write(&path, &output.stdout).expect("written");
    let check =
        Command::new(env!("CARGO_BIN_EXE_ringway")).arg("check").arg(&path).output().expect("the binary starts");
    let said = String::from_utf8_lossy(&check.stdout);
    assert!(check.status.success() && said.contains("erigon-1") && said.contains("weighted"), "{said}");
}

#[test]
fn what_is_wrong_is_told_with_what_would_be_right() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    for (arguments, right) in [
        (["--fault", "besu-1=timeout"], "the nodes are geth-1, reth-1, erigon-1"),
        (["--fault", "geth-1=fire"], "the faults are timeout, refuse, reset, error, busy, wrong-id, slow, html"),
        (["--port", &port], "is taken; choose another with --port"),
    ] {
        let output = demo(&arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(right), "{said}");
    }
}
