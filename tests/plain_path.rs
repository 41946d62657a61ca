//! What a Call that goes well reads and writes of memory that shards share: all of it, and in order.
//!
//! The product's own `shared` files are compiled here with atomics that write down each access. The calls are made
//! as `net::exchange` makes them; that it makes no others is checked in its source (`tests/architecture`).

mod plain_path {
    pub mod recorder;
}

pub use ringway::logic;

#[path = "../src/shared"]
#[allow(missing_docs)] // told where they are at home
pub mod shared {
    pub mod atomics {
        pub use crate::plain_path::recorder::{AtomicU64, Relaxed};
    }
    pub mod budget;
    pub mod circuit_board;
    pub mod circuit_cells;
    pub mod counters;
    pub mod journal;
    pub mod memory;
    pub mod outlook;
    pub mod snapshot_cell;
    pub mod tip_board;
    pub mod unlisted;
}

use logic::circuit::Admission;
use logic::failover::World as _;
use logic::fault::Outcome;
use logic::methods::MethodId;
use logic::snapshot::{EndpointIx, GatewayIx};
use logic::units::{MS, SECOND};
use logic::verdict::CircuitNote;
use plain_path::recorder::{Access, Kind, recorded};
use shared::outlook::Outlook;
use shared::snapshot_cell::{Live, Phase, World};
use std::collections::BTreeSet;
use std::sync::Arc;

const CONFIG: &str = r#"
[server]
listen = ["127.0.0.1:0"]
admin = "127.0.0.1:0"
[[endpoint]]
id = "a"
chain = "ethereum"
network = "mainnet"
url = "http://127.0.0.1:1"
[[gateway]]
id = "eth"
path = "/eth"
chain = "ethereum"
network = "mainnet"
[[gateway.route]]
id = "default"
targets = ["a"]
"#;

const A: EndpointIx = EndpointIx(0);
const GATEWAY: GatewayIx = GatewayIx(0);
const METHOD: MethodId = MethodId(7);
/// Sizes that lines come in: one, and the pair that some processors fetch together.
const LINES: [usize; 2] = [64, 128];

fn world(shards: usize) -> Arc<World> {
    let snapshot = ringway::config::resolve::resolve(CONFIG, &|_| None).snapshot.expect("a valid file");
    World::new(Live::new(snapshot, vec![Vec::new()], shards, None), shards)
}

/// One Call of `eth_call` that the first Endpoint answers: each touch of shared memory, as `net` does it.
fn plain_call(world: &World, live: &Live, shard: usize, now_ns: u64) {
    // client_http: does the connection go on?
    assert_eq!(world.lifecycle.phase(), Phase::Running);
    // exchange::run: the machine asks for admission, the attempt begins and ends.
    let outlook = Outlook::new(live, &live.snapshot.gateways[usize::from(GATEWAY.0)], METHOD, "eth_call");
    assert!(!outlook.is_mismatched(A));
    assert_eq!(outlook.admission(A, now_ns), Admission::Admit);
    let permit = live.board.begin(A, false, now_ns, now_ns + 10 * SECOND).unwrap();
    assert_eq!(permit, None);
    live.board.answered(A, shard, now_ns);
    live.board.note(A, shard, CircuitNote::Success, permit, now_ns, 42);
    live.counters.endpoints[usize::from(A.0)][shard].answered(MS);
    // exchange::call
    live.counters.routes[usize::from(GATEWAY.0)][0][shard].called(METHOD, Outcome::Ok, MS);
    // client_http: and now?
    assert_eq!(world.lifecycle.phase(), Phase::Running);
}

/// The accesses of one Call on a shard that has seen such Calls before.
fn of_shard(world: &World, live: &Live, shard: usize) -> Vec<Access> {
    let now_ns = 3_600 * SECOND;
    plain_call(world, live, shard, now_ns);
    recorded(|| plain_call(world, live, shard, now_ns + MS))
}

#[test]
fn a_call_that_goes_well_makes_exactly_these_accesses() {
    let world = world(2);
    let live = world.live.load_full();
    let expected: [(&str, &[Kind]); 14] = [
        ("lifecycle", &[Kind::Load]),
        ("whether any Endpoint is on another chain", &[Kind::Load]),
        ("the Circuit's word", &[Kind::Load]),
        ("until when it rests", &[Kind::Load]),
        ("own answers of this moment", &[Kind::Load, Kind::Store]),
        ("own successes", &[Kind::Load, Kind::Store]),
        ("own last success", &[Kind::Store]),
        ("own successes of this moment", &[Kind::Load, Kind::Store]),
        ("attempts that were answered", &[Kind::Load, Kind::Store]),
        ("an attempt's bucket and sum", &[Kind::Load, Kind::Store, Kind::Load, Kind::Store]),
        ("Calls of this method and outcome", &[Kind::Load, Kind::Store]),
        ("a Call's bucket", &[Kind::Load, Kind::Store]),
        ("a Call's sum", &[Kind::Load, Kind::Store]),
        ("lifecycle", &[Kind::Load]),
    ];
    for shard in 0..2 {
        let kinds: Vec<Kind> = of_shard(&world, &live, shard).iter().map(|access| access.kind).collect();
        let wanted: Vec<Kind> = expected.iter().flat_map(|(_, kinds)| kinds.iter().copied()).collect();
        assert_eq!(kinds, wanted, "no locked instruction among them, and nothing that is not on the list");
    }
}

#[test]
fn what_a_shard_writes_lies_on_lines_that_no_other_shard_touches() {
    const SHARDS: usize = 8;
    let world = world(SHARDS);
    let live = world.live.load_full();
    // However a Call ends, it is counted beside the others of its method.
    let all_outcomes = |shard: usize| {
        let cells = &live.counters.routes[usize::from(GATEWAY.0)][0][shard];
        recorded(|| Outcome::ALL.iter().for_each(|outcome| cells.called(METHOD, *outcome, MS)))
    };
    let of = |shard: usize| [of_shard(&world, &live, shard), all_outcomes(shard)].concat();
    let accesses: Vec<Vec<Access>> = (0..SHARDS).map(of).collect();
    for size in LINES {
        let lines = |shard: usize, writes: bool| -> BTreeSet<usize> {
            let wanted = accesses[shard].iter().filter(|access| !writes || access.kind != Kind::Load);
            wanted.map(|access| access.address / size).collect()
        };
        for one in 0..SHARDS {
            assert!(lines(one, true).len() >= 3, "its own cells, on several lines");
            for other in (0..SHARDS).filter(|other| *other != one) {
                let both: Vec<usize> = lines(one, true).intersection(&lines(other, false)).copied().collect();
                assert_eq!(both, [0; 0], "shard {one} writes a line of {size} bytes that shard {other} uses");
            }
        }
        // What all of them read is on lines that none of them writes.
        let read_by_all = (1..SHARDS).fold(lines(0, false), |all, shard| &all & &lines(shard, false));
        assert!(!read_by_all.is_empty());
        let written: BTreeSet<usize> = (0..SHARDS).flat_map(|shard| lines(shard, true)).collect();
        assert!(read_by_all.is_disjoint(&written));
    }
}

#[test]
fn the_record_sees_what_it_should() {
    let world = world(2);
    let live = world.live.load_full();
    let failure = recorded(|| live.board.note(A, 0, CircuitNote::Failure, None, SECOND, 0));
    assert!(failure.iter().any(|access| access.kind == Kind::Swap), "a failure moves the shared streak: {failure:?}");
    let leaving = recorded(|| world.lifecycle.advance(Phase::Draining));
    assert!(leaving.iter().any(|access| access.kind == Kind::Swap));
}
