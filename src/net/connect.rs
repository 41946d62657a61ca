//! A connection to an Endpoint: its addresses, one after the other, within one connect timeout.

use crate::logic::dial;
use crate::logic::fault::Reason;
use crate::logic::units::Nanos;
use crate::net::ring::{self, Stream};
use crate::net::upstream::Place;
use std::io;
use std::net::SocketAddr;

/// Connects to the first address that takes the connection, in the order and with the shares of time that
/// `logic::dial` decides.
pub async fn connect(place: &Place<'_>, until_ns: Nanos, now_ns: Nanos) -> Result<(Stream, SocketAddr), Reason> {
    let until_ns = until_ns.min(now_ns.saturating_add(place.endpoint.connect_timeout_ns));
    let pool = &place.upstream.pool;
    let order = pool.dial.borrow_mut().order(pool.addresses(), place.shard, now_ns);
    let mut reason = Reason::Dns;
    let mut now_ns = now_ns;
    for (tried, address) in order.iter().enumerate() {
        let left_ns = until_ns.saturating_sub(now_ns);
        if left_ns == 0 {
            return Err(Reason::ConnectTimeout);
        }
        match Stream::connect(*address, dial::share(left_ns, order.len() - tried)).await {
            Ok(stream) => {
                pool.dial.borrow_mut().worked(*address);
                return Ok((stream, *address));
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => reason = Reason::ConnectTimeout,
            Err(_) => reason = Reason::ConnectFailed,
        }
        now_ns = ring::now();
        pool.dial.borrow_mut().avoid(*address, now_ns);
    }
    Err(reason)
}
