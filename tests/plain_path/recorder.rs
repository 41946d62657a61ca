//! An atomic that writes down where it is, and each access to it.

use std::cell::RefCell;
use std::sync::atomic::AtomicU64 as Real;
pub use std::sync::atomic::Ordering::{self, Relaxed};

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Read.
    Load,
    /// Written.
    Store,
    /// Read and written in one: on most processors that locks the line.
    Swap,
}

/// One access.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    /// Where.
    pub address: usize,
    /// What.
    pub kind: Kind,
}

thread_local! {
    static RECORD: RefCell<Vec<Access>> = const { RefCell::new(Vec::new()) };
}

/// Everything that this thread does to such atomics in here.
pub fn recorded(doing: impl FnOnce()) -> Vec<Access> {
    RECORD.take();
    doing();
    RECORD.take()
}

/// Stands where the product has `std`'s.
#[derive(Debug, Default)]
pub struct AtomicU64(Real);

#[allow(missing_docs)] // as in `std`
impl AtomicU64 {
    fn note(&self, kind: Kind) -> &Real {
        RECORD.with_borrow_mut(|record| record.push(Access { address: std::ptr::from_ref(&self.0) as usize, kind }));
        &self.0
    }
    pub fn load(&self, order: Ordering) -> u64 {
        self.note(Kind::Load).load(order)
    }
    pub fn store(&self, value: u64, order: Ordering) {
        self.note(Kind::Store).store(value, order);
    }
    pub fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.note(Kind::Swap).fetch_add(value, order)
    }
    pub fn new(value: u64) -> AtomicU64 {
        AtomicU64(Real::new(value))
    }
    pub fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
        self.note(Kind::Swap).fetch_or(value, order)
    }
    pub fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        self.note(Kind::Swap).fetch_max(value, order)
    }
    pub fn fetch_update(
        &self,
        success: Ordering,
        failure: Ordering,
        next: impl FnMut(u64) -> Option<u64>,
    ) -> Result<u64, u64> {
        self.note(Kind::Swap).fetch_update(success, failure, next)
    }
    pub fn compare_exchange(&self, old: u64, new: u64, success: Ordering, failure: Ordering) -> Result<u64, u64> {
        self.note(Kind::Swap).compare_exchange(old, new, success, failure)
    }
    pub fn compare_exchange_weak(&self, old: u64, new: u64, success: Ordering, failure: Ordering) -> Result<u64, u64> {
        self.note(Kind::Swap).compare_exchange_weak(old, new, success, failure)
    }
}
