//! The product's own `logic` and `shared` files, compiled with the model checker's atomics in place of the real ones.

#[path = "../../../src/logic"]
pub mod logic {
    pub mod batch;
    pub mod call;
    pub mod circuit;
    pub mod failover;
    pub mod fault;
    pub mod limiter;
    pub mod methods;
    pub mod rest;
    pub mod routing;
    pub mod snapshot;
    pub mod units;
    pub mod verdict;
    pub mod versions;
    pub mod window;
}

#[path = "../../../src/shared"]
pub mod shared {
    pub mod atomic {
        pub use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
    }
    pub mod budget;
    pub mod circuit_board;
    pub mod circuit_cells;
    pub mod counters;
    pub mod journal;
}
