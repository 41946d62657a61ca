//! Byte buffers of one shard: taken and given back, so that the steady state allocates nothing.

use std::cell::{Cell, RefCell};

thread_local! {
    /// Given back by the kernel, which knows no shard.
    static SPENT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer that the kernel has done with: the next one that is taken finds it among the free.
pub fn spent(buf: Vec<u8>) {
    // At the thread's end nobody takes any.
    let _ = SPENT.try_with(|spent| spent.borrow_mut().push(buf));
}

/// Bytes kept free in front of a response, so that the answer's head can be written there in place.
pub const HEADROOM: usize = 256;
/// Smallest buffer: what an idle connection keeps. Most requests fit.
pub const SMALLEST: usize = 2 << 10;
/// First room for a response, with what stands in front of it: most come whole in one read.
pub const SMALL_RESPONSE: usize = 4 << 10;
/// Classes are powers of two: 2 KiB, 4 KiB, ... 4 MiB. Larger ones are not kept.
const CLASSES: usize = 12;
/// Bytes kept per class.
const KEPT_PER_CLASS: usize = 2 << 20;
/// Classes of larger buffers than this are kept together within [`KEPT_LARGE`] bytes: what a burst of large bodies
/// needed is not to stay for ever.
const SMALL_CLASSES_MAX: usize = 32 << 10;
/// Bytes kept of all larger classes.
const KEPT_LARGE: usize = 8 << 20;

/// Free buffers, by size.
#[derive(Debug, Default)]
pub struct Buffers {
    free: [RefCell<Vec<Vec<u8>>>; CLASSES],
    /// Bytes of the larger ones among them.
    large: Cell<usize>,
}

impl Buffers {
    /// An empty buffer with room for at least `least` bytes.
    pub fn take(&self, least: usize) -> Vec<u8> {
        while let Some(buf) = SPENT.with(|spent| spent.borrow_mut().pop()) {
            self.give(buf);
        }
        match class_for(least) {
            Some(class) => match self.free[class].borrow_mut().pop() {
                Some(buf) => {
                    self.large.set(self.large.get() - large(buf.capacity()));
                    buf
                }
                None => Vec::with_capacity(size(class)),
            },
            None => Vec::with_capacity(least),
        }
    }

    /// Gives a buffer back. One that grew beyond every class is let go.
    pub fn give(&self, mut buf: Vec<u8>) {
        let capacity = buf.capacity();
        if !(SMALLEST..=size(CLASSES - 1)).contains(&capacity) {
            return;
        }
        // The largest class that it can serve whole.
        let class = (capacity / SMALLEST).ilog2() as usize;
        {
            let mut free = self.free[class].borrow_mut();
            let kept = self.large.get() + large(capacity);
            let fits = if large(capacity) > 0 { kept <= KEPT_LARGE } else { free.len() < KEPT_PER_CLASS / size(class) };
            if fits {
                self.large.set(kept);
                buf.clear();
                free.push(buf);
            }
        }
    }

    /// Moves the contents to a buffer with room for at least `least` bytes in all.
    pub fn grow(&self, buf: Vec<u8>, least: usize) -> Vec<u8> {
        if buf.capacity() >= least {
            return buf;
        }
        let mut larger = self.take(least);
        larger.extend_from_slice(&buf);
        self.give(buf);
        larger
    }
}

/// What a buffer counts among the large ones.
const fn large(capacity: usize) -> usize {
    if capacity >= 2 * SMALL_CLASSES_MAX { capacity } else { 0 }
}

const fn size(class: usize) -> usize {
    SMALLEST << class
}

/// The smallest class with room for `least` bytes.
const fn class_for(least: usize) -> Option<usize> {
    let class = least.div_ceil(SMALLEST).next_power_of_two().trailing_zeros() as usize;
    if class < CLASSES { Some(class) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back() {
        let buffers = Buffers::default();
        let mut buf = buffers.take(5_000);
        assert!(buf.capacity() >= 8 << 10);
        buf.extend_from_slice(b"somebody's bytes");
        let place = buf.as_ptr();
        buffers.give(buf);
        let again = buffers.take(8_000);
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
    }

    #[test]
    fn classes_hold_what_is_asked_for() {
        for least in [0, 1, 2_048, 2_049, 4_096, 100_000, 4 << 20] {
            let class = class_for(least).unwrap();
            assert!(size(class) >= least && (class == 0 || size(class - 1) < least), "{least}");
        }
        assert_eq!(class_for((4 << 20) + 1), None);
    }

    #[test]
    fn growing_keeps_the_contents() {
        let buffers = Buffers::default();
        let mut buf = buffers.take(1);
        buf.extend_from_slice(b"abc");
        let buf = buffers.grow(buf, 100_000);
        assert_eq!(buf, b"abc");
        assert!(buf.capacity() >= 100_000);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let buffers = Buffers::default();
        let many: Vec<_> = (0..50).map(|_| buffers.take(1 << 20)).collect();
        many.into_iter().for_each(|buf| buffers.give(buf));
        let kept: usize = buffers.free.iter().map(|free| free.borrow().iter().map(Vec::capacity).sum::<usize>()).sum();
        assert!((KEPT_LARGE / 2..=KEPT_LARGE).contains(&kept), "{kept}");
        assert_eq!(buffers.large.get(), kept);
        for bytes in [64 << 10, 1 << 20, 4 << 20] {
            let more: Vec<_> = (0..20).map(|_| buffers.take(bytes)).collect();
            more.into_iter().for_each(|buf| buffers.give(buf));
        }
        assert!(buffers.large.get() <= KEPT_LARGE, "all large classes together");
        buffers.give(Vec::with_capacity(64 << 20));
        assert!(buffers.take(1 << 20).capacity() < 64 << 20);
    }
}
