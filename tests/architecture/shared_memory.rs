//! Everything that shards share and can write, and everything in `net` that touches it: two lists that the source
//! must match. Whoever adds to either says when it is written, and `tests/README.md` shows it.

use super::source::Source;
use std::collections::BTreeSet;

/// Types whose values are written while others look.
const SHARED_TYPES: [&str; 10] = [
    "AtomicU64",
    "AtomicU32",
    "AtomicU8",
    "AtomicBool",
    "AtomicUsize",
    "AtomicPtr",
    "OnceLock",
    "ArcSwap",
    "ArrayQueue",
    "Mutex",
];

/// Where such a type is declared (file, line of code), and when it is written.
const ATOMICS: &[(&str, &str, &str)] = &[
    ("src/boot.rs", "reload: Arc<AtomicBool>,", "by SIGHUP"),
    ("src/boot.rs", "stop: Arc<AtomicBool>,", "by SIGTERM and SIGINT"),
    ("src/net/ring.rs", "static START: OnceLock<Instant> = OnceLock::new();", "once, when the clock is first read"),
    (
        "src/shared/budget.rs",
        "pub struct Budget(CachePadded<AtomicU64>);",
        "per attempt, only where an Endpoint has `rps`",
    ),
    ("src/shared/circuit_cells.rs", "circuit: AtomicU64,", "on transitions of a Circuit"),
    ("src/shared/circuit_cells.rs", "rests: AtomicU64,", "when an Endpoint begins to rest"),
    ("src/shared/circuit_cells.rs", "rests_until_ns: AtomicU64,", "on busy answers that let an Endpoint rest"),
    ("src/shared/circuit_cells.rs", "streak: CachePadded<AtomicU64>,", "on failures, and when a probe succeeds"),
    ("src/shared/circuit_cells.rs", "transitions: [AtomicU64; Transition::ALL.len()],", "on transitions of a Circuit"),
    (
        "src/shared/counters.rs",
        "methods: Box<[OnceLock<Box<CachePadded<MethodCells>>>]>,",
        "once per shard, Route and method: at its first Call",
    ),
    ("src/shared/counters.rs", "pub struct Cell(AtomicU64);", "per Call, by the one shard that owns its lines"),
    ("src/shared/journal.rs", "dropped: AtomicU64,", "on transitions, when the journal is full"),
    ("src/shared/journal.rs", "waiting: ArrayQueue<Incident>,", "on transitions of a Circuit"),
    ("src/shared/snapshot_cell.rs", "changing: Mutex<()>,", "on a reload or new addresses, by no shard"),
    ("src/shared/snapshot_cell.rs", "pub struct Lifecycle(AtomicU64);", "twice, on the way out"),
    (
        "src/shared/snapshot_cell.rs",
        "pub type SnapshotCell = ArcSwap<Live>;",
        "on a reload or new addresses; read once a tick",
    ),
    ("src/shared/unlisted.rs", "names: Mutex<TopNames>,", "per Call whose method no table has, by its own shard"),
    (
        "src/shared/counters.rs",
        "tiers: OnceLock<Box<CachePadded<TierCells>>>,",
        "once per shard and tiered Route: when a Call first falls back",
    ),
    ("src/shared/tip_board.rs", "best: AtomicU64,", "per poll of a chain's Endpoints"),
    (
        "src/shared/tip_board.rs",
        "closed: AtomicU64,",
        "when an Endpoint is asked who it is: at first, and every 5 minutes",
    ),
    ("src/shared/tip_board.rs", "good_until_ns: AtomicU64,", "per poll of a chain's Endpoints"),
    ("src/shared/tip_board.rs", "lacking: [AtomicU64; LEARNED_MAX],", "when a node says that it lacks a method"),
    ("src/shared/tip_board.rs", "lag: AtomicU64,", "per poll of a chain's Endpoints"),
    ("src/shared/tip_board.rs", "learned: AtomicU64,", "when a node says that it lacks a method"),
    (
        "src/shared/tip_board.rs",
        "mismatches: AtomicU64,",
        "per poll, while an Endpoint is on another chain than it should be",
    ),
    ("src/shared/tip_board.rs", "polled: AtomicU64,", "per poll of an Endpoint"),
    ("src/shared/tip_board.rs", "version: ArcSwapOption<String>,", "when an Endpoint is asked who it is"),
    ("src/shared/tip_board.rs", "wanted: AtomicU64,", "when an answer contradicts the chain"),
    ("src/shared/tip_board.rs", "window: Box<[AtomicU64]>,", "per new block of a chain, and on re-orgs"),
    ("src/shared/tip_board.rs", "word: AtomicU64,", "per poll of a chain's Endpoints"),
    (
        "src/wire/tls_config.rs",
        "static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();",
        "once, when TLS is first set up",
    ),
    (
        "src/wire/tls_config.rs",
        "static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();",
        "once, before a shard needs the machine's roots",
    ),
];

/// How `net` touches shared memory (file, line of code), and when.
const TOUCHES: &[(&str, &str, &str)] = &[
    (
        "src/net/client_http.rs",
        "let healthy = self.shard.world.lifecycle.phase() == Phase::Running;",
        "read by /healthz",
    ),
    (
        "src/net/client_http.rs",
        "self.shard.cells(&current.live).refused(fault.status());",
        "own, per request that becomes no Call",
    ),
    (
        "src/net/exchange.rs",
        "Verdict::Failed(failure) => cells.failed(failure.reason, took_ns),",
        "own, per failed attempt",
    ),
    ("src/net/exchange.rs", "Verdict::Final => cells.answered(took_ns),", "own, per attempt"),
    ("src/net/exchange.rs", "Verdict::NoRoom => cells.failed(Reason::NoRoom, took_ns),", "own, per failed attempt"),
    (
        "src/net/exchange.rs",
        "Verdict::TooLarge => cells.failed(Reason::ResponseTooLarge, took_ns),",
        "own, per failed attempt",
    ),
    ("src/net/exchange.rs", "board.answered(endpoint, shard.index, now_ns);", "own, per attempt"),
    (
        "src/net/exchange.rs",
        "board.note(endpoint, shard.index, note, permit, now_ns, shard.random());",
        "own, per attempt; shared on failures, busy answers and probes",
    ),
    (
        "src/net/exchange.rs",
        "cells.called(method, outcome(&answer), ended_ns.saturating_sub(started_ns));",
        "own, per Call",
    ),
    (
        "src/net/exchange.rs",
        "let permit = match board.begin(endpoint, probe, now_ns, until_ns + PERMIT_SLACK_NS) {",
        "nothing; shared for a probe, and where an Endpoint has `rps`",
    ),
    (
        "src/net/exchange.rs",
        "rows[gateway.routes.len()][context.shard.index].called(method, fault.outcome(), 0);",
        "own, per Call that reaches no Route",
    ),
    (
        "src/net/exchange.rs",
        "current.live.counters.unlisted[shard.index].note(ask.method());",
        "own, per Call whose method no table has",
    ),
    (
        "src/net/exchange.rs",
        "context.current.live.counters.unlisted[context.shard.index].note(ask.method());",
        "own, per Call whose method no table has, and that is turned away",
    ),
    ("src/net/look_up.rs", "cell.add(1);", "own, per look-up"),
    ("src/net/pool.rs", "cells.connected.add(1);", "own, per connection upstream"),
    ("src/net/shard.rs", "cells.accepted.add(1);", "own, per client connection"),
    ("src/net/shard.rs", "cells.clients.add(1);", "own, per client connection"),
    ("src/net/shard.rs", "if !Arc::ptr_eq(&self.current.borrow().live, &*self.world.live.load()) {", "read per tick"),
    (
        "src/net/shard.rs",
        "let current = Rc::new(Current::new(world.live.load_full(), world.shards, None));",
        "shared, once at the start",
    ),
    (
        "src/net/shard.rs",
        "let fresh = Current::new(self.world.live.load_full(), self.world.shards, Some(&before));",
        "shared, per reload or new addresses",
    ),
    ("src/net/shard.rs", "self.cells(&self.current().live).accepting.set(0);", "own, once on the way out"),
    ("src/net/shard.rs", "self.cells(&self.current().live).panics.add(1);", "own, per panic"),
    (
        "src/net/shard.rs",
        "self.endpoint_cells(&current.live, at).connections.set(upstream.pool.open() as u64);",
        "own, per second",
    ),
    ("src/net/shard.rs", "self.shard.cells(&self.shard.current().live).clients.sub(1);", "own, per client connection"),
    ("src/net/shard.rs", "self.world.lifecycle.phase() == Phase::Draining", "read per Call"),
    ("src/net/shard.rs", "shard.cells(&shard.current().live).accepting.set(1);", "own, once at the start"),
    ("src/net/upstream.rs", "place.cells.replaced.add(1);", "own, per dead pooled connection"),
    ("src/net/exchange.rs", "Verdict::NoRoom => cells.failed(Reason::NoRoom, took_ns),", "own, per failed attempt"),
    (
        "src/net/tab.rs",
        "self.memory().give(self.shard.index, bytes);",
        "own, per Exchange that held a body over 64 KiB, and per such body that was inflated",
    ),
    (
        "src/net/tab.rs",
        "while !self.memory().take(self.shard.index, bytes, self.max) {",
        "own, per body that grows past 64 KiB; reads all shards' sums",
    ),
    (
        "src/net/tab.rs",
        "let taken = self.memory().take(self.shard.index, bytes as u64, self.max / 4);",
        "own, per attempt at a node whose last two answers were over 64 KiB; reads all shards' sums",
    ),
    ("src/net/opening.rs", "cells.failed.add(1);", "own, per TLS handshake that came to nothing"),
    (
        "src/net/opening.rs",
        "shard.cells(&current.live).proxy_refused.add(1);",
        "own, per connection without its PROXY header",
    ),
    ("src/net/connect.rs", "cells.handshakes.failed.add(1);", "own, per TLS handshake that came to nothing"),
    (
        "src/net/warm.rs",
        "|| matches!(current.live.board.state(EndpointIx(at as u16)), State::Closed | State::HeldClosed { .. });",
        "read per second, only where an Endpoint has `warm`",
    ),
    (
        "src/net/identity.rs",
        "tips.lacks_namespaces(calls.ask( , , closed).await.unwrap_or(0));",
        "by the tracking shard, when it asks an Endpoint who it is",
    ),
    ("src/net/identity.rs", "tips.set_version(None);", "by the tracking shard, when it asks an Endpoint who it is"),
    (
        "src/net/identity.rs",
        "tips.set_version(Some(Arc::new(client.to_owned())));",
        "by the tracking shard, when it asks an Endpoint who it is",
    ),
    (
        "src/net/identity.rs",
        "tips.set_version(Some(Arc::new(version)));",
        "by the tracking shard, when it asks an Endpoint who it is",
    ),
    ("src/net/tiered.rs", "tips.learn(method, ring::now());", "when a node says that it lacks a method"),
    ("src/net/tracker.rs", "if heard { &tips.polls_ok } else { &tips.polls_failed }.add(1);", "own, per poll"),
    ("src/net/tracker.rs", "network.reorganised(reorg.depth);", "by the tracking shard, per re-org"),
    ("src/net/tracker.rs", "network.set_best(best);", "by the tracking shard, per poll"),
    (
        "src/net/tracker.rs",
        "network.set_canonical(number, hash.as_ref());",
        "by the tracking shard, per new block and on re-orgs",
    ),
    (
        "src/net/tracker.rs",
        "self.current.live.board.journal().write(incident);",
        "when the standing of an Endpoint changes, and per re-org",
    ),
    (
        "src/net/tracker.rs",
        "self.current.live.tips.note_mismatch();",
        "by the tracking shard, per poll while an Endpoint is on another chain",
    ),
    ("src/net/tracker.rs", "self.tell(ring::now());", "by the tracking shard, per poll"),
    ("src/net/tracker.rs", "tips.tell(told, view.lag, view.good_until_ns);", "by the tracking shard, per poll"),
    ("src/net/tiered.rs", "wishes.push((&one.wish, one.wish.make()));", "when an answer contradicts the chain"),
    (
        "src/net/tiered.rs",
        "wishes.extend(tips.network_of(endpoint).map(|network| (&network.wish, network.wish.make())));",
        "when an answer contradicts the chain",
    ),
    ("src/net/tracker.rs", "tips.wish.grant(wishes.own);", "by the tracking shard, per poll"),
    (
        "src/net/tracker.rs",
        "self.current.live.tips.network(self.network).inspect(|network| network.wish.grant(wishes.best));",
        "by the tracking shard, per poll",
    ),
];

/// Lines of code with one of these words, blanks evened out.
fn lines<'s>(source: &'s Source, words: &'s [&str]) -> impl Iterator<Item = String> + 's {
    let code = source.product.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    code.filter(|line| words.iter().any(|word| line.contains(word)) && !line.starts_with("use "))
}

/// A field, a type or a static, and no value of one.
fn declares(line: &str) -> bool {
    line.starts_with("static ") || !["::new", "::default", "::from_pointee"].iter().any(|call| line.contains(call))
}

/// The list and the source say the same.
#[track_caller]
fn agree(found: &BTreeSet<(String, String)>, list: &[(&str, &str, &str)]) {
    let listed: BTreeSet<_> = list.iter().map(|(file, line, _)| ((*file).to_owned(), (*line).to_owned())).collect();
    let missing: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(found).collect();
    assert!(missing.is_empty() && gone.is_empty(), "not on the list: {missing:#?}\nno longer there: {gone:#?}");
}

#[test]
fn every_atomic_is_known_with_when_it_is_written() {
    let mut found = BTreeSet::new();
    for source in crate::sources().iter().filter(|source| source.is_product() && source.room() != Some("demo")) {
        let declared = lines(source, &SHARED_TYPES).filter(|line| declares(line) && !line.starts_with("pub use "));
        found.extend(declared.map(|line| (source.path.clone(), line)));
    }
    agree(&found, ATOMICS);
}

#[test]
fn net_touches_shared_memory_only_where_it_is_known_to() {
    let words = [
        ".add(1)",
        ".sub(1)",
        ".called(",
        ".failed(",
        "cells.answered(",
        ".refused(",
        ".accepting.set(",
        ".connections.set(",
        "board.",
        "board,",
        "lifecycle.",
        "live.load",
        "live.store",
        "live.clone()",
        "journal",
        "Arc::clone",
        "memory().",
        ".tell(",
        ".learn(",
        "wish.make(",
        "wish.grant(",
        ".set_version(",
        ".set_canonical(",
        ".set_best(",
        ".lacks_namespaces(",
        ".note_mismatch(",
        ".reorganised(",
        ".unlisted[",
    ];
    let mut found = BTreeSet::new();
    for source in crate::sources().iter().filter(|source| source.room() == Some("net")) {
        found.extend(lines(source, &words).map(|line| (source.path.clone(), line)));
    }
    agree(&found, TOUCHES);
}

#[test]
fn both_lists_stand_in_the_readme_of_the_tests() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/README.md")).unwrap();
    let row =
        |(file, line, when): &(&str, &str, &str)| format!("| `{file}` | `{}` | {when} |", line.replace('|', "\\|"));
    let rows = ATOMICS.iter().chain(TOUCHES).map(row);
    let missing: Vec<String> = rows.filter(|row| !readme.lines().any(|line| line == row)).collect();
    assert!(missing.is_empty(), "tests/README.md lacks:\n{}", missing.join("\n"));
}
