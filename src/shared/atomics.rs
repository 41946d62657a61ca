//! The atomics of this room, by one name: the model checker (`tests/loom_board`) puts its own in their place.

pub use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
