//! How often does a shard ask for memory? Counts it per request in steady state, for each way through the gateway.
//!
//! A real shard runs in this process between real sockets; only what its thread allocates counts. What is held to
//! its bound is the least of some windows: for a minute after its start a shard's timers still find slots that nobody
//! has used, and now and then a node is asked over one connection more than ever before.

mod allocations {
    #[allow(unsafe_code)] // an allocator is nothing else
    pub mod counter;
    pub mod node;
    pub mod paths;
    pub mod shard;
    pub mod wire;
}

use allocations::counter::Tally;
use allocations::node;
use allocations::paths::{Asked, ORIGIN, PATHS, Path, configuration};
use allocations::shard::Gateway;
use allocations::wire::Wire;
use ringway::net::ring::Kind;
use std::fmt::Write;
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::Barrier;
use std::thread;

/// Windows that are counted for each path.
const WINDOWS: usize = 5;
/// Allocations of that kind that may be in every window: some, and one of a hundred requests.
const RARE: f64 = 4.0;
const RARE_PER_REQUEST: f64 = 0.01;

#[test]
fn in_steady_state_requests_allocate_what_they_may_on_io_uring() {
    hold(Kind::IoUring);
}

#[test]
fn in_steady_state_requests_allocate_what_they_may_on_epoll() {
    hold(Kind::Epoll);
}

#[test]
fn an_allocation_is_seen_where_it_counts_and_nowhere_else() {
    let tally = Tally::leaked();
    let one = || drop(std::hint::black_box(Box::new(7u64)));
    let mut grown: Vec<u8> = Vec::with_capacity(1);
    thread::scope(|scope| {
        let counted = scope.spawn(move || {
            tally.owns_this_thread();
            one();
            tally.open(true);
            one();
            grown.reserve_exact(100);
            tally.open(false);
            one();
        });
        counted.join().unwrap();
    });
    tally.open(true);
    one();
    assert_eq!(tally.taken(), (2, 108));
    assert!(tally.places().contains("allocations.rs:"), "{}", tally.places());
}

/// Every path on one driver, each through a shard of its own; prints what it found.
fn hold(driver: Kind) {
    let node = node::start();
    // Bound and not listening: whoever connects is refused, and nobody else gets the port.
    let dead = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    dead.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let config = configuration(node, dead.local_addr().unwrap().as_socket().unwrap());
    let mut table =
        format!("| path, {driver:?} | allocations per request | may be | most in a window | bytes per request |\n");
    let mut wrong = String::new();
    for path in &PATHS {
        let gateway = Gateway::start(&config, driver).unwrap();
        let windows = counted(path, &gateway);
        let requests = (path.callers * path.requests.1) as f64;
        let (allocations, bytes) = windows[0];
        let most = windows[WINDOWS - 1].0;
        let (each, name, bound) = (allocations as f64 / requests, path.name, path.bound);
        writeln!(table, "| {name} | {each:.3} | {bound} | {most} in {requests} | {:.0} |", bytes as f64 / requests)
            .unwrap();
        if allocations as f64 > bound * requests + RARE.max(RARE_PER_REQUEST * requests) {
            writeln!(wrong, "{name}: {each:.3} allocations; the first:\n{}", gateway.tally.places()).unwrap();
        }
    }
    eprintln!("{table}");
    assert!(wrong.is_empty(), "{wrong}");
}

/// Sends a path's requests: allocations and bytes of each window, least first.
fn counted(path: &Path, gateway: &Gateway) -> Vec<(u64, u64)> {
    let (warm, window) = path.requests;
    // All callers are there before a window begins, and after it.
    let steps = Barrier::new(path.callers as usize + 1);
    thread::scope(|scope| {
        for caller in 1..=path.callers {
            let steps = &steps;
            scope.spawn(move || {
                let mut wire = Wire::new(TcpStream::connect(gateway.address).unwrap());
                let mut next = caller * 1_000_000;
                let mut sound = ask_all(&mut wire, path, next..next + warm);
                for _ in 0..WINDOWS {
                    next += warm.max(window);
                    steps.wait();
                    // Who has failed still comes to each meeting: nobody may wait for ever.
                    sound = sound.and_then(|()| ask_all(&mut wire, path, next..next + window));
                    steps.wait();
                }
                sound.unwrap();
            });
        }
        let mut windows: Vec<(u64, u64)> = Vec::new();
        for _ in 0..WINDOWS {
            steps.wait();
            gateway.tally.open(true);
            steps.wait();
            gateway.tally.open(false);
            windows.push(gateway.tally.taken());
        }
        windows.sort_unstable();
        windows
    })
}

/// One request after another; every answer is compared to the byte.
fn ask_all(wire: &mut Wire, path: &Path, marks: Range<u64>) -> Result<(), String> {
    for mark in marks {
        let (request, expected) = path.exchange(mark);
        wire.send(&request);
        let (head, body) = wire.message().ok_or_else(|| format!("{}: no answer", path.name))?;
        let told = !matches!(path.asked, Asked::Calls { gateway: "eth-pages", .. })
            || head.contains(&format!("\r\nAccess-Control-Allow-Origin: {ORIGIN}\r\n"));
        if !head.starts_with("HTTP/1.1 200 ") || body != expected.as_bytes() || !told {
            return Err(format!("{}: {head}{}", path.name, String::from_utf8_lossy(&body)));
        }
    }
    Ok(())
}
