//! Ringway: a gateway for blockchain RPC, one decision per Call, one ring per core.
//!
//! This page is the floor plan. The path of a Call:
//!
//! ```text
//! bytes in -> wire::http1 (framing, limits) -> wire::jsonrpc::parse -> Call
//!   -> logic::routing::plan -> Route
//!   -> loop { logic::failover::CallMachine::next -> net::pool + net::upstream send
//!             -> wire::jsonrpc::check -> logic::verdict::judge
//!             -> shared::circuit_board::note -> CallMachine::feed }
//!   -> Finish -> bytes out
//! ```
//!
//! Rooms, by what a line may touch. Imports go strictly down by rank, and rooms of one rank do not
//! import each other (`tests/architecture.rs` checks it):
//!
//! | rank | room | touches |
//! |---|---|---|
//! | 0 | `logic` | nothing: values in, values out |
//! | 1 | `wire` | bytes |
//! | 1 | `shared` | the memory of other shards |
//! | 1 | `config` | files that people write |
//! | 2 | `net` | ring, sockets, clock |
//! | 2 | `ops` | people: admin port, metrics, log |
//! | 2 | `host` | what this machine offers: CPUs, limits, sockets to listen on |
//! | 2 | `names` | the DNS: where host names are now |
//! | 3 | `boot`, `demo` | everything: they decide what exists |

/// Rank 0. Decisions: no clock, fd, thread, atomic, async, unsafe or heap allocation per Call.
pub mod logic {
    pub mod batch;
    pub mod block;
    pub mod broadcast;
    pub mod call;
    pub mod capability;
    pub mod chain;
    mod chain_branch;
    mod chain_canon;
    mod chain_reorgs;
    mod chain_window;
    pub mod cidr;
    pub mod circuit;
    pub mod cors;
    pub mod decision;
    pub mod dial;
    pub mod doubt;
    pub mod draw;
    pub mod explain;
    pub mod facts;
    pub mod failover;
    pub mod fault;
    pub mod forwarded;
    pub mod lacking;
    pub mod limiter;
    pub mod methods;
    pub mod names;
    pub mod networks;
    pub mod open_files;
    pub mod own_methods;
    pub mod recent_ids;
    pub mod rest;
    pub mod routing;
    pub mod snapshot;
    pub mod tiers;
    pub mod tls;
    pub mod top_names;
    pub mod tron_http;
    pub mod units;
    pub mod verdict;
    pub mod versions;
    pub mod window;
    pub mod world;
}

/// Rank 1. Bytes to values and back; no sockets.
pub mod wire {
    pub mod answer_blocks;
    pub mod block_args;
    pub mod block_header;
    pub mod coding;
    pub mod evm_tx;
    pub mod hex;
    pub mod http1;
    pub mod http1_chunked;
    pub mod http1_glimpse;
    mod http1_lines;
    pub mod http1_request;
    pub mod http1_response;
    pub mod http1_target;
    pub mod http1_write;
    pub mod json;
    pub mod json_shape;
    pub mod json_simd;
    pub mod json_strings;
    pub mod json_text;
    pub mod jsonrpc;
    pub mod jsonrpc_check;
    mod jsonrpc_members;
    pub mod jsonrpc_write;
    pub mod params;
    pub mod proxy;
    pub mod solana_tx;
    pub mod tls;
    pub mod tls_config;
    pub mod tron_http;
    pub mod tron_tx;
}

/// Rank 1. Memory that several shards see; the only room that defines atomics.
pub mod shared {
    pub mod atomics;
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

/// Rank 1. The configuration file: what was typed, and what it means.
pub mod config {
    pub mod admin_door;
    mod check;
    mod endpoint;
    mod family;
    pub mod fault;
    mod file;
    mod gateway;
    mod gateway_methods;
    mod known_names;
    pub mod machine;
    mod network;
    mod own_methods;
    pub mod resolve;
    mod route;
    mod schema;
    mod server;
    pub mod summary;
    mod tier;
    pub mod tls;
    mod url;
    mod value;
}

/// Rank 2. The kernel: everything that waits.
pub mod net {
    pub mod buffers;
    pub mod client_batch;
    pub mod client_head;
    pub mod client_http;
    pub mod client_tron;
    pub mod coded;
    pub mod connect;
    mod epoll;
    pub mod exchange;
    mod executor;
    mod identity;
    pub mod inbox;
    pub mod link;
    pub mod look_up;
    pub mod opening;
    mod own_call;
    pub mod pool;
    pub mod reply;
    pub mod ring;
    pub mod shard;
    mod sleepers;
    mod socket;
    mod stream;
    pub mod tab;
    mod tiered;
    mod tracker;
    pub mod upstream;
    mod uring;
    mod warm;
    mod watch;
    mod wheel;
}

/// Rank 2. People: the admin port, metrics, the log.
pub mod ops {
    pub mod admin;
    mod admin_circuits;
    mod admin_guard;
    mod admin_unlisted;
    pub mod ask;
    mod explain;
    pub mod explain_table;
    pub mod incidents;
    pub mod log;
    pub mod metrics;
    mod metrics_tiers;
}

pub mod boot;
pub mod host;
/// Rank 2. The DNS: where the host names of Endpoints are now.
pub mod names {
    pub mod keeper;
    mod system;
}
/// Rank 3. `ringway demo`: simulated nodes and a Gateway in one process.
pub mod demo {
    mod answers;
    mod branch;
    mod chain;
    mod fault;
    mod fleet;
    mod node;
    mod node_http;
    mod past;
    pub mod run;
    mod setting;
    mod traces;
    mod traffic;
    mod watch;
    mod welcome;
}
