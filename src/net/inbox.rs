//! What a client has sent and nobody has answered yet. Offsets count from the first unanswered byte.

use crate::net::buffers::{Buffers, SMALLEST};
use crate::net::link::Link;

/// Received bytes, of which the first `at` are answered.
///
/// Answered bytes are only moved out of the way when more are read: a client that pipelines thousands of
/// small requests into one large buffer must not make each of them move all that follow.
#[derive(Debug, Default)]
pub struct Inbox {
    buf: Vec<u8>,
    at: usize,
}

impl Inbox {
    /// An empty one.
    pub fn new(buffers: &Buffers) -> Inbox {
        Inbox { buf: buffers.take(0), at: 0 }
    }

    /// What was read before the first request was looked for.
    pub fn begin(&mut self, early: Vec<u8>) {
        if !early.is_empty() {
            self.buf = early;
        }
    }

    /// The unanswered bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.buf[self.at..]
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.buf.len() - self.at
    }

    /// Whether all is answered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The unanswered bytes from `from` on, for a decoder that works in place.
    pub fn tail(&mut self, from: usize) -> &mut [u8] {
        &mut self.buf[self.at + from..]
    }

    /// Forgets everything from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.buf.truncate(self.at + len);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.buf.clear();
        self.at = 0;
    }

    /// The first `count` bytes are answered.
    pub fn answered(&mut self, count: usize, buffers: &Buffers) {
        self.at += count;
        if self.is_empty() {
            self.clear();
            if self.buf.capacity() > SMALLEST {
                buffers.give(std::mem::replace(&mut self.buf, buffers.take(0)));
            }
        }
    }

    /// The memory that it takes once there is room for `wanted` bytes more. Doubling keeps the copying linear.
    pub fn grown(&self, wanted: usize) -> usize {
        let (filled, capacity) = (self.len(), self.buf.capacity());
        if capacity >= filled + wanted { capacity } else { (filled + wanted).max(2 * filled).next_power_of_two() }
    }

    /// Reads once, with room for at least `wanted` bytes; `false` = nothing more will come.
    pub async fn read(&mut self, stream: &mut Link, buffers: &Buffers, wanted: usize) -> bool {
        if self.at > 0 {
            self.buf.copy_within(self.at.., 0);
            self.buf.truncate(self.buf.len() - self.at);
            self.at = 0;
        }
        let least = self.grown(wanted);
        let buf = std::mem::take(&mut self.buf);
        let buf = buffers.grow(buf, least);
        let (read, buf) = match stream.plain() {
            Some(plain) => plain.read(buf).await,
            None => stream.read_sealed(buf).await,
        };
        self.buf = buf;
        matches!(read, Ok(count) if count > 0)
    }

    /// Gives the buffer back.
    pub fn close(self, buffers: &Buffers) {
        buffers.give(self.buf);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_count_from_the_first_unanswered_byte() {
        let buffers = Buffers::default();
        let mut inbox = Inbox::new(&buffers);
        inbox.buf.extend_from_slice(b"first second third");
        inbox.answered(6, &buffers);
        assert_eq!(inbox.bytes(), b"second third");
        inbox.tail(7).copy_from_slice(b"THIRD");
        assert_eq!(inbox.bytes(), b"second THIRD");
        inbox.truncate(6);
        assert_eq!((inbox.bytes(), inbox.len()), (&b"second"[..], 6));
        inbox.answered(6, &buffers);
        assert!(inbox.is_empty() && inbox.buf.is_empty());
    }

    #[test]
    fn an_empty_inbox_lets_a_large_buffer_go() {
        let buffers = Buffers::default();
        let mut inbox = Inbox { buf: vec![0; 100_000], at: 0 };
        inbox.answered(100_000, &buffers);
        assert!(inbox.buf.capacity() <= SMALLEST);
    }
}
