//! A connection to an Endpoint: its addresses, one after the other, TLS included, within one connect timeout.

use crate::logic::dial;
use crate::logic::fault::Reason;
use crate::logic::snapshot::Endpoint;
use crate::logic::units::Nanos;
use crate::net::link::Link;
use crate::net::ring;
use crate::net::shard::Upstream;
use crate::shared::counters::EndpointCells;
use std::net::SocketAddr;

/// Connects to the first address that takes the connection, in the order and with the shares of time that
/// `logic::dial` decides.
pub async fn connect(
    endpoint: &Endpoint,
    upstream: &Upstream,
    cells: &EndpointCells,
    shard: usize,
    until_ns: Nanos,
    now_ns: Nanos,
) -> Result<(Link, SocketAddr), Reason> {
    let until_ns = until_ns.min(now_ns.saturating_add(endpoint.connect_timeout_ns));
    let (pool, tls) = (&upstream.pool, upstream.tls.as_ref());
    if endpoint.url.https && tls.is_none() {
        // Never in plain text instead.
        return Err(Reason::TlsFailed);
    }
    let order = pool.dial.borrow_mut().order(pool.addresses(), shard, now_ns);
    let mut reason = Reason::Dns;
    let mut now_ns = now_ns;
    for (tried, address) in order.iter().enumerate() {
        let left_ns = until_ns.saturating_sub(now_ns);
        if left_ns == 0 {
            return Err(Reason::ConnectTimeout);
        }
        let share_ns = dial::share(left_ns, order.len() - tried);
        match Link::connect(*address, tls, now_ns.saturating_add(share_ns), now_ns).await {
            Ok(link) => {
                pool.dial.borrow_mut().worked(*address);
                if let Some(resumed) = link.resumed() {
                    cells.handshakes.made(resumed);
                }
                return Ok((link, *address));
            }
            // No more files may be open here: that is about no address.
            Err(Reason::QueueTimeout) => return Err(Reason::QueueTimeout),
            Err(why) => reason = why,
        }
        if reason.is_of_tls() {
            cells.handshakes.failed.add(1);
        }
        now_ns = ring::now();
        pool.dial.borrow_mut().avoid(*address, now_ns);
    }
    Err(reason)
}
