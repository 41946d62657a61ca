//! The product's own `shared` files, compiled with the model checker's atomics in place of the real ones.

pub use ringway::logic;

#[path = "../../../src/shared"]
pub mod shared {
    pub mod atomics {
        pub use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
    }
    pub mod budget;
    pub mod circuit_board;
    pub mod circuit_cells;
    pub mod counters;
    pub mod journal;
    pub mod unlisted;
}
