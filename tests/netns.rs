//! Networks that fail: each test has network namespaces of its own, with cables that are cut, routes that lead nowhere,
//! packets that vanish one way, and a front between gateway and nodes that delays, drips and cuts.
//!
//! Needs `ip` (iproute2), `unshare` (util-linux), and root or a user namespace: `netns/world.rs` says what it does
//! without them. `RINGWAY_TEST_DRIVER` chooses the driver, as in `gateway.rs`.

// What `gateway.rs` starts and talks with; not all of it is needed here.
#[path = "gateway/client.rs"]
#[allow(dead_code, unused_imports)]
mod client;
#[path = "gateway/harness.rs"]
#[allow(dead_code, unused_imports)]
mod harness;
#[path = "gateway/storm_node.rs"]
#[allow(dead_code, unused_imports)]
mod storm_node;
#[path = "gateway/upstream.rs"]
#[allow(dead_code, unused_imports)]
mod upstream;

mod netns {
    mod calls;
    mod front;
    mod fronts;
    mod links;
    mod routes;
    mod world;
}
