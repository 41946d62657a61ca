//! `ringway demo`: simulated nodes and a Gateway in one process, and a screen to watch them by.

use super::fault::{self, Injection};
use super::fleet::NODES;
use super::node::Node;
use super::setting::{self, Places};
use super::traffic;
use super::watch::Watch;
use super::welcome::{self, Scene};
use crate::boot::{self, Failure, Running, Signals};
use crate::logic::snapshot::Listen;
use crate::net::ring::{self, Kind};
use crate::ops::log;
use crate::shared::snapshot_cell::Phase;
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

/// How often faults and Circuits are looked at.
const TICK: Duration = Duration::from_millis(50);
/// How long answers that are on their way may take at the end.
const GRACE: Duration = Duration::from_secs(2);
const PORT: u16 = 8545;
const ADMIN_PORT: u16 = 9545;

/// Options of the demo.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Break a node, always or from one second to another; may be given several times.
    ///
    /// NAME is geth-1, reth-1 or erigon-1. KIND is timeout (accepts and never answers), refuse (its port is
    /// closed), reset (resets connections), error (HTTP 500), busy (HTTP 429), wrong-id (answers another id),
    /// slow (2 s for an answer), html (a web page), frozen (its chain stands still) or fork (it gives up two blocks
    /// and shows blocks of its own from then on). geth-1=timeout@5 begins at second 5, geth-1=timeout@5-20 ends at
    /// second 20 as well.
    #[arg(long = "fault", value_name = "NAME=KIND[@SECONDS]", value_parser = Injection::parse)]
    faults: Vec<Injection>,
    /// Port of the Gateway; 0 = any free one [default: 8545, or a free one if that is taken]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Port of metrics and health; 0 = any free one [default: 9545, or a free one if that is taken]
    #[arg(long, value_name = "PORT")]
    admin_port: Option<u16>,
    /// Calls a second that are made inside the process, so that something is to be seen; 0 = none
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(..=100_000))]
    traffic: u32,
    /// End by itself after so many seconds
    #[arg(long = "for", value_name = "SECONDS")]
    seconds: Option<u32>,
    /// What the shards run on
    #[arg(long, default_value = "auto", value_parser = ["auto", "io_uring", "epoll"])]
    driver: String,
    /// Print the configuration, to start your own from, and end
    #[arg(long)]
    show_config: bool,
}

/// Runs it until Ctrl-C, or as long as it shall.
///
/// # Errors
/// If it can't start.
pub fn run(options: &Options) -> Result<u8, Failure> {
    if options.show_config {
        say(setting::example().trim_end());
        return Ok(0);
    }
    let mut notes = Vec::new();
    let port = choose_port("--port", options.port, PORT, 0, &mut notes)?;
    let admin_port = choose_port("--admin-port", options.admin_port, ADMIN_PORT, port, &mut notes)?;
    let nodes = NODES
        .iter()
        .map(|facts| Node::start(facts, fault::at(&options.faults, facts.id, 0)))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| Failure(format!("a simulated node could not start: {error}")))?;
    let addresses: Vec<SocketAddr> = nodes.iter().map(|node| node.address).collect();
    let text = setting::text(&Places { port, admin_port, driver: &options.driver, nodes: &addresses });
    let snapshot = setting::snapshot(&text)?;
    log::start(snapshot.server.log_format, snapshot.server.log_level);
    let signals = Signals::install()?;
    let running = boot::start(snapshot)?;
    let Some(Listen::Tcp(gateway)) = running.listen.first().cloned() else {
        return Err(Failure("the Gateway does not listen".into()));
    };
    let scene = Scene {
        gateway,
        admin: running.admin,
        nodes: &addresses,
        driver: if running.driver == Kind::IoUring { "io_uring" } else { "epoll" },
        shards: running.world.shards,
        now_s: ring::unix_seconds(),
        faults: &options.faults,
        traffic: options.traffic,
        program: &program(),
        notes: &notes,
    };
    let heard = say(welcome::screen(&scene).trim_end_matches('\n')) && say("");
    let callers = traffic::start(gateway, options.traffic)
        .map_err(|error| Failure(format!("the callers could not start: {error}")))?;
    let mut watch = Watch::new();
    let healthy = !heard || show(options, &nodes, &running, &signals, &mut watch)?;
    callers.stop();
    end(running, &watch);
    Ok(if healthy { 0 } else { 70 })
}

/// Shows what happens until the end; `false` = a shard was lost.
fn show(
    options: &Options,
    nodes: &[Arc<Node>],
    running: &Running,
    signals: &Signals,
    watch: &mut Watch,
) -> Result<bool, Failure> {
    let start_ns = ring::now();
    let mut shown_s = 0;
    loop {
        let now_ns = ring::now();
        let second = (now_ns - start_ns) / 1_000_000_000;
        let mut lines = change_faults(options, nodes, second)?;
        let live = running.world.live.load();
        // A node that is back at the tip is asked again, and then its Circuit may close.
        lines.extend(watch.chains(&live, now_ns));
        lines.extend(watch.circuits(&live, now_ns));
        lines.iter_mut().for_each(|line| *line = format!("{:>6}  {line}", format!("{second} s")));
        let over = signals.asked() || options.seconds.is_some_and(|end| second >= u64::from(end));
        if second > shown_s || over {
            shown_s = second;
            // What happened comes before the second that it happened in is summed up.
            lines.extend(watch.row(&live, now_ns, second, ring::unix_seconds()));
        }
        if !lines.iter().all(|line| say(line)) || over {
            return Ok(true);
        }
        if running.lost_a_shard() {
            return Ok(false);
        }
        std::thread::sleep(TICK);
    }
}

/// Breaks and heals nodes as the second demands; a line for each change.
fn change_faults(options: &Options, nodes: &[Arc<Node>], second: u64) -> Result<Vec<String>, Failure> {
    let mut lines = Vec::new();
    for node in nodes {
        let wanted = fault::at(&options.faults, node.facts.id, second);
        if wanted == node.fault() {
            continue;
        }
        let id = node.facts.id;
        node.set_fault(wanted).map_err(|error| Failure(format!("{id} could not be changed: {error}")))?;
        let does = wanted.map_or("is healthy again", fault::Kind::does);
        lines.push(format!("{id} {does} (--fault)"));
    }
    Ok(lines)
}

/// Lets what is on its way come to its end, and says what it came to.
fn end(running: Running, watch: &Watch) {
    let world = running.world.clone();
    world.lifecycle.advance(Phase::Draining);
    let _ = running.join(Some(GRACE));
    say(&format!("\nEnded: {}", watch.total(&world.live.load())));
}

/// The port to listen on. `beside` is one that is given away already.
fn choose_port(
    option: &str,
    wanted: Option<u16>,
    usual: u16,
    beside: u16,
    notes: &mut Vec<String>,
) -> Result<u16, Failure> {
    let port = wanted.unwrap_or(usual);
    if port == 0 {
        return Ok(0);
    }
    let taken = if port == beside {
        Some("the Gateway's".to_owned())
    } else {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => None,
            Err(error) if error.kind() == ErrorKind::AddrInUse => Some("taken".to_owned()),
            Err(error) => Some(format!("not to be had ({error})")),
        }
    };
    match (taken, wanted) {
        (None, _) => Ok(port),
        (Some(why), None) => {
            notes.push(format!("port {port} is {why}, so {option} became a free one."));
            Ok(0)
        }
        (Some(why), Some(_)) => {
            Err(Failure(format!("port {port} is {why}; choose another with {option}, or {option} 0 for a free one")))
        }
    }
}

/// This program as it was started, if that can be pasted as it is.
fn program() -> String {
    let plain = |name: &String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+".contains(&byte));
    std::env::args().next().filter(|name| !name.is_empty() && plain(name)).unwrap_or_else(|| "ringway".into())
}

/// To standard output; `false` = nobody reads it any more.
fn say(line: &str) -> bool {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn options(words: &[&str]) -> Result<Options, String> {
        let words = ["demo"].iter().chain(words);
        Line::try_parse_from(words).map(|line| line.options).map_err(|error| error.to_string())
    }

    #[test]
    fn options_have_defaults_and_are_read() {
        let plain = options(&[]).unwrap();
        assert_eq!((plain.port, plain.admin_port, plain.traffic, plain.seconds), (None, None, 20, None));
        assert_eq!((plain.driver.as_str(), plain.faults.len(), plain.show_config), ("auto", 0, false));
        let all = options(&[
            "--fault",
            "geth-1=timeout",
            "--fault",
            "reth-1=busy@3-4",
            "--port",
            "0",
            "--admin-port",
            "7",
            "--traffic",
            "0",
            "--for",
            "3",
            "--driver",
            "epoll",
        ]);
        let all = all.unwrap();
        assert_eq!((all.port, all.admin_port, all.traffic, all.seconds), (Some(0), Some(7), 0, Some(3)));
        assert_eq!((all.driver.as_str(), all.faults.len()), ("epoll", 2));
    }

    #[test]
    fn a_wrong_option_is_told_what_would_be_right() {
        for (words, right) in [
            (["--fault", "besu-1=timeout"], "the nodes are geth-1, reth-1, erigon-1"),
            (["--fault", "geth-1=fire"], "the faults are timeout, refuse, reset"),
            (["--driver", "kqueue"], "auto, io_uring, epoll"),
            (["--port", "70000"], "65535"),
        ] {
            let error = options(&words).unwrap_err();
            assert!(error.contains(right), "{error}");
        }
    }

    #[test]
    fn a_taken_port_is_replaced_unless_it_was_asked_for() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let mut notes = Vec::new();
        assert!(choose_port("--port", Some(port), PORT, 0, &mut notes).unwrap_err().0.contains("is taken"));
        assert!(notes.is_empty());
        assert_eq!(choose_port("--port", None, port, 0, &mut notes).unwrap(), 0);
        assert!(notes[0].contains(&port.to_string()));
        drop(taken);
        assert!(choose_port("--admin-port", Some(port), PORT, port, &mut notes).unwrap_err().0.contains("Gateway's"));
        assert_eq!(choose_port("--port", Some(0), PORT, 0, &mut notes).unwrap(), 0);
    }
}
