//! The gateway from outside: the built binary, real sockets on both sides, upstreams that do as they are told.
//!
//! `RINGWAY_TEST_DRIVER` chooses the driver (`io_uring` by default; `epoll` for the second run).

mod gateway {
    mod batch;
    mod callers;
    mod cases;
    mod circuit;
    mod client;
    mod coded;
    mod coded_answers;
    mod cors;
    mod decisions;
    mod dns;
    mod envelope;
    mod explain;
    mod faults;
    mod fleet;
    mod fleet_node;
    mod framing;
    mod harness;
    mod honesty;
    mod http1_sockets;
    mod http_edge;
    mod json_sockets;
    mod limits;
    mod listen;
    mod lives;
    mod material;
    mod matrix;
    mod matrix_causes;
    mod memory;
    mod metrics;
    mod mixups;
    mod mixups_node;
    mod names;
    mod open_files;
    mod operator;
    mod pairs;
    mod pki;
    mod pool;
    mod probes;
    mod providers;
    mod providers_table;
    mod reload;
    mod rest;
    mod secrets;
    mod storm;
    mod storm_node;
    mod tally;
    mod tiers_failures;
    mod tiers_forks;
    mod tiers_lag;
    mod tiers_methods;
    mod tiers_needs;
    mod tiers_seen;
    mod tls_hostile;
    mod tls_upstream;
    mod tron;
    mod tron_honesty;
    mod tron_matrix;
    mod unlisted;
    mod upstream;
    mod upstream_framing;
    mod vectors;
    mod weighted;
}
