//! Ready connections: made before a Call needs them, so that it need not wait for TCP and TLS.

use crate::logic::circuit::State;
use crate::logic::snapshot::EndpointIx;
use crate::logic::units::Nanos;
use crate::net::connect::connect;
use crate::net::ring;
use crate::net::shard::{Current, Shard};
use std::rc::Rc;

/// Connections to one Endpoint that are begun at once: a node that has just come back must not be stormed.
const AT_ONCE_MAX: usize = 8;

/// Begins as many connections as are missing to what each Endpoint's `warm` asks for. What can't be had is tried
/// again at the next call, and is held against nobody: no Call was waiting.
pub fn keep_warm(shard: &Rc<Shard>, current: &Rc<Current>, now_ns: Nanos) {
    for (at, endpoint) in current.live.snapshot.endpoints.iter().enumerate() {
        let closed =
            || matches!(current.live.board.state(EndpointIx(at as u16)), State::Closed | State::HeldClosed { .. });
        if endpoint.warm == 0 || !endpoint.enabled || !closed() {
            continue;
        }
        let missing = current.upstreams[at].pool.missing(endpoint.warm);
        for _ in 0..missing.min(AT_ONCE_MAX) {
            let (shard, current, panicked) = (shard.clone(), current.clone(), shard.clone());
            ring::spawn(warm_up(shard, current, at, now_ns), move || panicked.note_panic());
        }
    }
}

async fn warm_up(shard: Rc<Shard>, current: Rc<Current>, at: usize, now_ns: Nanos) {
    let (endpoint, upstream) = (&current.live.snapshot.endpoints[at], &current.upstreams[at]);
    let Some(slot) = upstream.pool.reserve() else { return };
    let _begun = upstream.pool.warming();
    let cells = shard.endpoint_cells(&current.live, at);
    let until_ns = now_ns.saturating_add(endpoint.connect_timeout_ns);
    if let Ok((link, address)) = connect(endpoint, upstream, cells, shard.index, until_ns, now_ns).await {
        let now_ns = ring::now();
        slot.fill(link, address, now_ns, cells).give_back(now_ns, &shard.buffers);
    }
}
