//! `ringway demo` as a stranger meets it: start it, paste the line it prints, look at what it shows.
//!
//! `RINGWAY_TEST_DRIVER` chooses the driver (`auto` by default).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

const NEWEST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"}"#;
/// On the Route by priority, which looks at no tips: it tries each node, whatever its tracker says.
const SEND: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_sendRawTransaction","params":["0x02f8"]}"#;

struct Demo {
    child: Child,
    output: BufReader<ChildStdout>,
    /// What was printed so far.
    text: String,
}

impl Demo {
    /// Starts it on free ports, and reads its first screen.
    fn start(driver: &str, traffic: &str, more: &[&str]) -> Demo {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ringway"))
            .args(["demo", "--port", "0", "--admin-port", "0", "--driver", driver, "--traffic", traffic])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut demo = Demo { child, output, text: String::new() };
        demo.wait_for("Ctrl-C ends it.");
        demo
    }

    /// One in which nothing is asked but by the test.
    fn quiet(more: &[&str]) -> Demo {
        Demo::start(&driver(), "0", more)
    }

    /// The same with a node that is broken so, at these seconds or always.
    fn broken(fault: &str) -> Demo {
        Demo::quiet(&["--for", "60", "--fault", fault])
    }

    /// Reads on until a line holds these words; gives the line.
    fn wait_for(&mut self, words: &str) -> String {
        loop {
            let before = self.text.len();
            let read = self.output.read_line(&mut self.text).expect("text");
            assert!(read > 0, "no `{words}`, and it ended with {:?} after:\n{}", self.child.wait(), self.text);
            if self.text[before..].contains(words) {
                return self.text[before..].trim().to_owned();
            }
        }
    }

    /// The printed lines that are to be pasted.
    fn pasteable(&self) -> Vec<String> {
        self.text
            .lines()
            .filter_map(|line| line.strip_prefix("  "))
            .filter(|line| line.starts_with("curl ") || line.contains(" explain --admin "))
            .map(str::to_owned)
            .collect()
    }

    /// What is answered to a printed line.
    fn paste(&self, line: &str) -> serde_json::Value {
        let (url, body) = url_and_body(line);
        serde_json::from_str(&request("POST", &url, &body).1).expect("JSON")
    }

    /// The result of a Call, and which Endpoint gave it.
    fn call(&self, body: &str) -> (serde_json::Value, String) {
        let (url, _) = url_and_body(&self.pasteable()[0]);
        let (head, answer) = request("POST", &url, body);
        let mut answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
        let result = answer["result"].take();
        assert!(!result.is_null(), "{answer}");
        (result, header(&head, "ringway-endpoint"))
    }

    /// Which Endpoint answers a Call.
    fn who_answers(&self, body: &str) -> String {
        self.call(body).1
    }

    /// Its metrics.
    fn metrics(&self) -> String {
        let lines = self.pasteable();
        let line = lines.iter().find(|line| line.ends_with("/metrics")).expect("a line");
        request("GET", line.strip_prefix("curl ").expect("curl"), "").1
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

/// Head and body of the answer; the status is 200.
fn request(verb: &str, url: &str, body: &str) -> (String, String) {
    let rest = url.strip_prefix("http://").expect("http");
    let (authority, path) = rest.split_once('/').expect("a path");
    let mut stream = TcpStream::connect(authority).expect("it listens");
    let request = format!(
        "{verb} /{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\nRingway-Explain: 1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

/// The value of a header.
fn header(head: &str, name: &str) -> String {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let found = lines.find(|(one, _)| one.eq_ignore_ascii_case(name));
    found.unwrap_or_else(|| panic!("no {name}: {head}")).1.to_owned()
}

/// What the shards run on.
fn driver() -> String {
    std::env::var("RINGWAY_TEST_DRIVER").unwrap_or_else(|_| "auto".to_owned())
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
    let mut demo = Demo::quiet(&["--for", "4"]);
    let lines = demo.pasteable();
    let [single, batch, metrics, old, explain] = &lines[..] else { panic!("five lines: {lines:?}") };
    let answer = demo.paste(single);
    assert!(answer["id"] == 1 && is_quantity(&answer["result"]), "{answer}");
    let answers = demo.paste(batch);
    assert!(is_quantity(&answers[0]["result"]) && answers[1]["result"].is_array(), "{answers}");
    assert!(old.contains("-i -H 'Ringway-Explain: 1'") && is_quantity(&demo.paste(old)["result"]), "{old}");
    assert!(demo.metrics().contains("ringway_attempts_total{endpoint=\"geth-1\",outcome=\"ok\"}"));
    let metrics = metrics.strip_prefix("curl ").expect("a line");
    assert!(request("GET", &metrics.replace("/metrics", "/readyz"), "").1.contains("ready"));
    let as_a_shell_reads_it = |line: &str| {
        let output = Command::new("sh").args(["-c", line]).stderr(Stdio::null()).output().expect("sh");
        assert!(output.status.success() && !output.stdout.is_empty(), "{line}");
        String::from_utf8(output.stdout).expect("text")
    };
    let decision = as_a_shell_reads_it(explain);
    assert!(["capability", "tier", "erigon-1"].iter().all(|word| decision.contains(word)), "{decision}");
    if Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        for line in &lines {
            as_a_shell_reads_it(line);
        }
        assert!(as_a_shell_reads_it(old).to_lowercase().contains("\r\nringway-endpoint: erigon-1\r\n"));
    }
    demo.output.read_to_string(&mut demo.text).expect("text");
    assert!(demo.child.wait().expect("it ends").success());
    assert!(demo.text.contains("\nEnded: ") && demo.text.contains(" Calls answered, 0 failed."), "{}", demo.text);
}

#[test]
fn an_old_read_goes_to_the_archive_and_to_nobody_else() {
    let demo = Demo::quiet(&["--for", "60"]);
    let (_, old) = url_and_body(&demo.pasteable()[3]);
    for _ in 0..3 {
        assert_eq!(demo.who_answers(&old), "erigon-1");
    }
    let trace = |block: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"trace_block","params":["{block}"]}}"#);
    let (traces, endpoint) = demo.call(&trace("0xf4240"));
    assert_eq!((endpoint.as_str(), &traces[0]["blockNumber"]), ("erigon-1", &1_000_000.into()));
    let text = demo.interrupt();
    assert!(text.contains("4 Calls answered, 0 failed. Attempts: geth-1 0; reth-1 0; erigon-1 4."), "{text}");

    // What the cheaper ones have goes no higher than it must.
    let demo = Demo::quiet(&["--for", "60"]);
    assert_eq!(demo.who_answers(&trace("latest")), "reth-1");
    assert_eq!(demo.who_answers(&old.replace("0xf4240", "latest")), "geth-1");
    assert_eq!(demo.who_answers(&trace("latest").replace("trace_block", "erigon_getHeaderByNumber")), "erigon-1");
    assert!(!demo.metrics().contains("ringway_tier_fallbacks_total{"), "nobody stood in for another");
    let text = demo.interrupt();
    assert!(text.contains("3 Calls answered, 0 failed. Attempts: geth-1 1; reth-1 1; erigon-1 1."), "{text}");
}

#[test]
fn a_node_that_hangs_is_left_out_where_tips_count_and_replaced_where_they_do_not() {
    let mut demo = Demo::broken("geth-1=timeout");
    assert!(demo.text.contains("BROKEN: accepts requests and never answers, all the time"), "{}", demo.text);
    demo.wait_for("geth-1: its tip is unknown, as polls bring no block: tiers ask the others first");
    assert_eq!(demo.who_answers(NEWEST), "reth-1");
    let fallback = "{gateway=\"eth\",route=\"default\",from=\"minimal\",to=\"full\",reason=\"unknown_tip\"} 1";
    assert!(demo.metrics().contains(&format!("ringway_tier_fallbacks_total{fallback}")), "{}", demo.metrics());
    demo.wait_for("tip unknown");
    assert_eq!(demo.who_answers(SEND), "reth-1");
    let text = demo.interrupt();
    assert!(rows(&text).iter().any(|row| row.ends_with("ms 1 failed 1 - geth-1: timeout")), "{text}");
    assert!(text.contains("2 Calls answered, 0 failed. Attempts: geth-1 1 failed; reth-1 2; erigon-1 0."), "{text}");
}

#[test]
fn a_node_that_refuses_is_replaced_and_its_circuit_opens() {
    let demo = Demo::start("epoll", "0", &["--for", "60", "--fault", "geth-1=refuse"]);
    assert!(demo.text.contains("BROKEN: refuses connections") && demo.text.contains("on epoll"), "{}", demo.text);
    for _ in 0..4 {
        assert_eq!(demo.who_answers(SEND), "reth-1");
    }
    let text = demo.interrupt();
    assert!(text.contains("geth-1: connect_failed"), "{text}");
    assert!(text.contains("geth-1: 3 failures in a row, its Circuit opens"), "{text}");
    assert!(text.contains("4 Calls answered, 0 failed. Attempts: geth-1 3 failed; reth-1 4; erigon-1 0."), "{text}");
}

#[test]
fn every_other_failure_is_survived_too() {
    for kind in ["reset", "error", "busy", "wrong-id", "html", "slow"] {
        let mut demo = Demo::broken(&format!("geth-1={kind}"));
        demo.wait_for("geth-1: its tip is unknown");
        assert_eq!(demo.who_answers(NEWEST), "reth-1", "{kind}");
        assert_eq!(demo.who_answers(SEND), "reth-1", "{kind}");
        let text = demo.interrupt();
        assert!(text.contains("2 Calls answered, 0 failed. Attempts: geth-1 1 failed; reth-1 2;"), "{kind}: {text}");
    }
}

#[test]
fn a_node_that_fails_at_work_is_left_alone_and_comes_back() {
    let mut demo = Demo::start(&driver(), "50", &["--for", "60", "--fault", "geth-1=error@2-7"]);
    demo.wait_for("geth-1 answers HTTP 500 (--fault)");
    demo.wait_for("geth-1: 3 failures in a row, its Circuit opens");
    demo.wait_for("geth-1: its tip is unknown, as polls bring no block: tiers ask the others first");
    demo.wait_for("geth-1 is healthy again (--fault)");
    demo.wait_for("geth-1: at the tip again");
    demo.wait_for("geth-1: the probe was answered, its Circuit closes: back in service");
    let text = demo.interrupt();
    let total = text.split_once("Ended: ").expect("a total").1;
    assert!(total.contains(" answered, 0 failed."), "no caller saw it: {text}");
    let geth = total.split_once("geth-1 ").and_then(|(_, rest)| rest.split_once(';')).expect("its attempts").0;
    assert!(geth.contains(", ") && geth.ends_with(" failed"), "it served, and it failed: {text}");
}

#[test]
fn a_frozen_node_is_passed_over() {
    let mut demo = Demo::broken("geth-1=frozen");
    assert!(demo.text.contains("BROKEN: stands still: it sees no new blocks, all the time"), "{}", demo.text);
    demo.wait_for("geth-1: lags, 2 blocks behind: tiers ask the others first");
    assert_eq!(demo.who_answers(NEWEST), "reth-1");
    let fallback = "{gateway=\"eth\",route=\"default\",from=\"minimal\",to=\"full\",reason=\"lag\"} 1";
    assert!(demo.metrics().contains(&format!("ringway_tier_fallbacks_total{fallback}")), "{}", demo.metrics());
    let row = demo.wait_for(" lags ");
    assert!(row.split_whitespace().collect::<Vec<_>>().ends_with(&["lags", "1", "-"]), "{row}");
    assert_eq!(demo.who_answers(SEND), "geth-1", "by priority it is asked all the same");
    let text = demo.interrupt();
    assert!(text.contains("2 Calls answered, 0 failed. Attempts: geth-1 1; reth-1 1; erigon-1 0."), "{text}");
}

#[test]
fn a_forked_node_is_not_asked_until_it_agrees_again() {
    let mut demo = Demo::start("epoll", "0", &["--for", "60", "--fault", "geth-1=fork@1-8"]);
    demo.wait_for("geth-1 goes its own way: other blocks than the others (--fault)");
    demo.wait_for("re-org: a node gave up 2 blocks for others");
    demo.wait_for("geth-1: on a fork, its blocks contradict the others': tiers leave it out");
    assert_eq!(demo.who_answers(NEWEST), "reth-1");
    let fallback = "{gateway=\"eth\",route=\"default\",from=\"minimal\",to=\"full\",reason=\"fork\"} 1";
    assert!(demo.metrics().contains(&format!("ringway_tier_fallbacks_total{fallback}")), "{}", demo.metrics());
    demo.wait_for(" on a fork ");
    demo.wait_for("geth-1 is healthy again (--fault)");
    demo.wait_for("re-org: ");
    demo.wait_for("geth-1: at the tip again");
    assert_eq!(demo.who_answers(NEWEST), "geth-1");
    let text = demo.interrupt();
    assert!(text.contains("2 Calls answered, 0 failed. Attempts: geth-1 1; reth-1 1; erigon-1 0."), "{text}");
}

#[test]
fn traffic_of_its_own_is_shown() {
    let output = demo(&["--port", "0", "--admin-port", "0", "--traffic", "50", "--for", "2", "--driver", &driver()]);
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
    assert!(
        check.status.success() && ["erigon-1", "tiered", "weighted", "priority"].iter().all(|word| said.contains(word)),
        "{said}"
    );
}

#[test]
fn what_is_wrong_is_told_with_what_would_be_right() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    for (arguments, right) in [
        (["--fault", "besu-1=timeout"], "the nodes are geth-1, reth-1, erigon-1"),
        (
            ["--fault", "geth-1=fire"],
            "the faults are timeout, refuse, reset, error, busy, wrong-id, slow, html, frozen, fork",
        ),
        (["--port", &port], "is taken; choose another with --port"),
    ] {
        let output = demo(&arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(right), "{said}");
    }
}
