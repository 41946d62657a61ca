//! Which of an Endpoint's addresses is tried first, which next, and for how long.

use crate::logic::units::{MS, Nanos, SECOND};
use std::net::SocketAddr;

/// An address that failed is tried after the others for so long.
pub const AVOID_NS: Nanos = 30 * SECOND;
/// The least time for one address, where so much is left (RFC 8305, section 5: Connection Attempt Delay).
pub const SHARE_MIN_NS: Nanos = 250 * MS;

/// What one shard remembers of its attempts to connect to one Endpoint.
#[derive(Debug, Default)]
pub struct Dial {
    turn: usize,
    /// Addresses that failed, and when; the oldest failure first.
    failed: Vec<(SocketAddr, Nanos)>,
}

impl Dial {
    /// The order for the next connection: in turns, each shard begins with another one; those that failed lately
    /// come last, the one whose failure is oldest first.
    pub fn order(&mut self, mut addresses: Vec<SocketAddr>, shard: usize, now_ns: Nanos) -> Vec<SocketAddr> {
        if addresses.len() < 2 {
            return addresses;
        }
        let first = shard.wrapping_add(self.turn) % addresses.len();
        self.turn = self.turn.wrapping_add(1);
        addresses.rotate_left(first);
        self.failed.retain(|(address, at)| addresses.contains(address) && now_ns.saturating_sub(*at) < AVOID_NS);
        // Stable: those that work keep their turn.
        addresses
            .sort_by_key(|address| self.failed.iter().position(|(failed, _)| failed == address).map_or(0, |at| at + 1));
        addresses
    }

    /// A connection was made.
    pub fn worked(&mut self, address: SocketAddr) {
        self.failed.retain(|(failed, _)| *failed != address);
    }

    /// None could be made: others come first from now on.
    pub fn avoid(&mut self, address: SocketAddr, now_ns: Nanos) {
        self.worked(address);
        self.failed.push((address, now_ns));
    }
}

/// The time for the next of so many addresses that are left: a fair share, so that one that swallows packets
/// leaves time for the others.
pub fn share(left_ns: Nanos, addresses: usize) -> Nanos {
    (left_ns / (addresses as u64).max(1)).max(SHARE_MIN_NS).min(left_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, last], 1))
    }

    fn order(dial: &mut Dial, addresses: u8, shard: usize, now_ns: Nanos) -> Vec<u8> {
        let order = dial.order((0..addresses).map(address).collect(), shard, now_ns);
        order.iter().map(|address| (0..addresses).find(|last| self::address(*last) == *address).unwrap()).collect()
    }

    #[test]
    fn connections_take_turns_and_shards_begin_apart() {
        let (mut first, mut second) = (Dial::default(), Dial::default());
        assert_eq!(order(&mut first, 3, 0, 0), [0, 1, 2]);
        assert_eq!(order(&mut first, 3, 0, 0), [1, 2, 0]);
        assert_eq!(order(&mut first, 3, 0, 0), [2, 0, 1]);
        assert_eq!(order(&mut first, 3, 0, 0), [0, 1, 2]);
        assert_eq!(order(&mut second, 3, 1, 0), [1, 2, 0]);
        assert_eq!(order(&mut second, 1, 7, 0), [0]);
        assert_eq!(order(&mut second, 0, 7, 0), [0; 0]);
    }

    #[test]
    fn what_failed_comes_last_until_it_works_or_time_has_passed() {
        let mut dial = Dial::default();
        dial.avoid(address(0), 5);
        dial.avoid(address(2), 7);
        assert_eq!(order(&mut dial, 3, 0, 8), [1, 0, 2], "the oldest failure before the newer one");
        dial.avoid(address(0), 9);
        assert_eq!(order(&mut dial, 3, 0, 10), [1, 2, 0]);
        assert_eq!(order(&mut dial, 3, 0, 7 + AVOID_NS), [2, 1, 0]);
        dial.worked(address(0));
        assert_eq!(order(&mut dial, 3, 0, 10), [0, 1, 2]);
    }

    #[test]
    fn all_failed_are_all_tried_and_what_left_is_forgotten() {
        let mut dial = Dial::default();
        for last in 0..3 {
            dial.avoid(address(last), 1);
        }
        assert_eq!(order(&mut dial, 3, 1, 2), [0, 1, 2]);
        order(&mut dial, 2, 0, 3);
        assert_eq!(dial.failed.len(), 2);
    }

    #[test]
    fn time_is_shared_and_never_more_than_is_left() {
        assert_eq!(share(2 * SECOND, 1), 2 * SECOND);
        assert_eq!(share(2 * SECOND, 4), 500 * MS);
        assert_eq!(share(2 * SECOND, 100), SHARE_MIN_NS);
        assert_eq!(share(100 * MS, 2), 100 * MS);
        assert_eq!(share(0, 0), 0);
    }
}
