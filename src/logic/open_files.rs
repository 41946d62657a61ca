//! How many files a configuration may have open at once, and who gets how many where there are fewer.

use super::snapshot::Snapshot;

/// Files that the process has open by itself: the log, the admin port and who asks there, signals, name look-ups.
const OWN: u64 = 64;
/// Files of a shard beside its listeners: the ring, its timers and wakers.
const PER_SHARD: u64 = 8;

/// Open files, by what they are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFiles {
    /// Connections of callers.
    pub callers: u64,
    /// Connections to Endpoints.
    pub upstream: u64,
    /// Everything else.
    pub own: u64,
}

impl OpenFiles {
    /// The most that a configuration asks for.
    pub fn wanted(snapshot: &Snapshot, shards: usize) -> OpenFiles {
        let (server, shards) = (&snapshot.server, shards as u64);
        let pools = snapshot.endpoints.iter().filter(|endpoint| endpoint.enabled);
        let pools = pools.map(|endpoint| endpoint.max_connections as u64).fold(0, u64::saturating_add);
        OpenFiles {
            callers: server.max_connections as u64,
            // A connection is opened for a Call in flight, and there are no more of these.
            upstream: pools.min(shards.saturating_mul(server.max_inflight as u64)),
            own: OWN + shards.saturating_mul(PER_SHARD + server.listen.len() as u64),
        }
    }

    /// All of them.
    pub fn sum(&self) -> u64 {
        self.callers.saturating_add(self.upstream).saturating_add(self.own)
    }

    /// How many connections of callers fit into `limit` files. Where not all fit, connections to Endpoints get what
    /// they need, up to a half: callers that can't be served are of no use.
    pub fn callers_within(&self, limit: u64) -> u64 {
        let free = limit.saturating_sub(self.own);
        self.callers.min(free - self.upstream.min(free / 2)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_shared() {
        let wanted = OpenFiles { callers: 1_000, upstream: 300, own: 100 };
        assert_eq!((wanted.sum(), wanted.callers_within(1_400)), (1_400, 1_000), "all fits");
        assert_eq!(wanted.callers_within(1_399), 999);
        assert_eq!(wanted.callers_within(700), 300, "Endpoints have what they need");
        assert_eq!(wanted.callers_within(300), 100, "or a half");
        assert_eq!((wanted.callers_within(100), wanted.callers_within(0)), (1, 1), "never none");
        let huge = OpenFiles { callers: u64::MAX, upstream: u64::MAX, own: u64::MAX };
        assert_eq!((huge.sum(), huge.callers_within(u64::MAX)), (u64::MAX, 1));
    }
}
