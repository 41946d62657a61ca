//! The atomics of this room, by one name: the model checker (`tests/loom_board`) and the record of the plain path
//! (`tests/plain_path.rs`) put their own in their place.

pub use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
