//! Weighted shares: `P(first = i) = w_i / Σw` over shards and sockets, and over the removal of targets.

use super::harness::{ClosedPort, Gateway, Setup, Upstream, call_body};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use ringway::logic::failover::weighted;
use ringway::logic::snapshot::{EndpointIx, Route, Strategy, Target, shares};

/// Draws over sockets.
const DRAWS: usize = 100_000;
const CLIENTS: usize = 8;
/// Requests that a client sends before it reads their answers.
const PIPELINED: usize = 50;

/// Asserts that counts fit their shares: chi-square below the quantile that chance passes once in a million.
fn assert_shares(counts: &[u64], weights: &[u64]) {
    let (draws, total) = (counts.iter().sum::<u64>() as f64, weights.iter().sum::<u64>() as f64);
    let mut chi_square = 0.0;
    for (count, weight) in counts.iter().zip(weights) {
        if *weight == 0 {
            assert_eq!(*count, 0, "{counts:?} for {weights:?}");
            continue;
        }
        let expected = draws * *weight as f64 / total;
        chi_square += (*count as f64 - expected).powi(2) / expected;
    }
    let freedom = weights.iter().filter(|weight| **weight > 0).count() - 1;
    let quantile = [f64::MIN_POSITIVE, 23.9, 27.6, 30.7, 33.4][freedom];
    assert!(chi_square < quantile, "{chi_square} for {counts:?} by {weights:?}");
}

/// How often each of the nodes `"0"`, `"1"`, ... answered.
fn draw(gateway: &Gateway, draws: usize, nodes: usize) -> Vec<u64> {
    let each = draws / CLIENTS / PIPELINED;
    let one = || {
        let mut client = gateway.connect();
        let mut counts = vec![0; nodes];
        let body = call_body("1", "eth_call", "[]");
        let text = format!("{}{body}", super::harness::request("/eth", &[], body.len())).repeat(PIPELINED);
        for _ in 0..each {
            client.send(&text);
            for _ in 0..PIPELINED {
                let answer = client.response();
                let node = answer.body.as_bytes()[answer.body.len() - 2] - b'0';
                counts[usize::from(node)] += 1;
            }
        }
        counts
    };
    let parts: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(one)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    (0..nodes).map(|node| parts.iter().map(|counts| counts[node]).sum()).collect()
}

fn nodes() -> Vec<Upstream> {
    ["0", "1", "2", "3"].into_iter().map(Upstream::answering).collect()
}

#[test]
fn shares_over_shards_and_sockets() {
    let nodes = nodes();
    let gateway = Setup::of(&nodes.iter().collect::<Vec<_>>())
        .route("strategy = \"weighted\"")
        .targets(
            "[{ endpoint = \"a\", weight = 5 }, { endpoint = \"b\", weight = 3 }, { endpoint = \"c\", weight = 1 }, \
             { endpoint = \"d\", weight = 0 }]",
        )
        .start();
    let counts = draw(&gateway, DRAWS, 4);
    assert_eq!(counts.iter().sum::<u64>(), DRAWS as u64);
    assert_shares(&counts, &[5, 3, 1, 0]);
    for (node, count) in nodes.iter().zip(counts) {
        assert_eq!(node.count() as u64, count, "nobody was asked twice");
    }
}

#[test]
fn what_is_removed_leaves_the_others_their_shares() {
    let nodes = nodes();
    let closed = ClosedPort::new();
    // `a` is disabled, and the Circuit of `e` is open: 4 : 1 : 3 are left.
    let gateway = Setup::at(&[nodes[0].address, nodes[1].address, nodes[2].address, nodes[3].address, closed.address])
        .circuit("consecutive_failures = 1\ncooldown = \"600s\"\nmax_cooldown = \"600s\"")
        .endpoint(0, "enabled = false")
        .another("dead", "[\"e\"]", "")
        .route("strategy = \"weighted\"")
        .targets(
            "[{ endpoint = \"a\", weight = 900 }, { endpoint = \"b\", weight = 4 }, { endpoint = \"c\", weight = 1 }, \
             { endpoint = \"e\", weight = 900 }, { endpoint = \"d\", weight = 3 }]",
        )
        .start();
    gateway.post_to("/dead", call_body("1", "eth_call", "[]")).assert_fault(502, "1", -32052);
    let counts = draw(&gateway, DRAWS / 5, 4);
    assert_shares(&counts, &[0, 4, 1, 3]);
    assert_eq!(gateway.metrics().attempts("e", ""), 1);
}

#[test]
fn a_failed_draw_is_drawn_again_among_the_others() {
    let nodes = nodes();
    let closed = ClosedPort::new();
    // Whoever draws `e` first goes on to `b` and `c` as 1 : 3; whoever does not, too.
    let gateway = Setup::at(&[nodes[0].address, nodes[1].address, nodes[2].address, closed.address])
        .no_circuit()
        .route("strategy = \"weighted\"\nmax_attempts = 2")
        .targets(
            "[{ endpoint = \"d\", weight = 4 }, { endpoint = \"b\", weight = 1 }, { endpoint = \"c\", weight = 3 }]",
        )
        .start();
    let counts = draw(&gateway, DRAWS / 5, 3);
    assert_shares(&counts, &[0, 1, 3]);
    let lost = gateway.metrics().attempts("d", "connect_failed");
    assert_shares(&[lost, (DRAWS / 5) as u64 - lost], &[4, 4]);
}

#[test]
fn a_million_draws_of_the_choice_itself() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(0x0052_494e_4757_4159);
    for weights in [vec![1, 1], vec![3, 1], vec![1000, 1, 10], vec![5, 0, 4, 3], vec![1, 2, 3, 4, 5]] {
        let target = |(weight, at): (&u16, u16)| Target { endpoint: EndpointIx(at), weight: *weight };
        let targets: Vec<Target> = weights.iter().zip(0..).map(target).collect();
        let route = Route {
            id: "r".into(),
            methods: vec![],
            strategy: Strategy::Weighted,
            shares: shares(&targets, u128::MAX),
            held: Box::default(),
            by_tier: [0; 3],
            targets,
            eligible: (1 << weights.len()) - 1,
            max_attempts: 3,
            attempt_timeout_ns: 1,
            version: 1,
        };
        let all: Vec<u64> = weights.iter().map(|weight| u64::from(*weight)).collect();
        // With all of them, and with the first one gone.
        for (remaining, shares) in
            [(route.eligible, all.clone()), (route.eligible & !1, [vec![0], all[1..].to_vec()].concat())]
        {
            let mut counts = vec![0; weights.len()];
            for _ in 0..1_000_000 {
                counts[usize::from(weighted(&route, remaining, random.next_u64()).unwrap())] += 1;
            }
            assert_shares(&counts, &shares);
        }
    }
}
