//! What comes before a caller's first request: who it says it is (PROXY), and TLS.

use crate::logic::forwarded::is_trusted;
use crate::logic::units::Nanos;
use crate::net::link::Link;
use crate::net::ring::{self, Cut, Stream};
use crate::net::shard::{Current, Presence, Shard};
use crate::wire::proxy;
use std::net::IpAddr;

/// A caller that may ask.
pub struct Opened {
    /// Its connection.
    pub link: Link,
    /// Who it is.
    pub peer: IpAddr,
    /// What it has already said.
    pub early: Vec<u8>,
}

/// Whether there is anything before a first request.
pub fn is_needed(current: &Current, local: bool) -> bool {
    current.server().proxy_protocol || (current.live.tls.is_some() && !local)
}

/// Goes through it, within `header_timeout`; `None` = nobody worth an answer is there.
pub async fn open(shard: &Shard, mut stream: Stream, peer: IpAddr, local: bool, presence: &Presence) -> Option<Opened> {
    let current = shard.current();
    let server = current.server();
    let now_ns: Nanos = ring::now();
    // Nothing was asked yet: a shard that drains need not wait for it.
    presence.idle(true);
    stream.arm(now_ns + server.header_timeout_ns, Cut::Read, now_ns);
    let (mut peer, mut early) = (peer, Vec::new());
    if server.proxy_protocol && is_trusted(peer, &server.trusted_proxies) {
        let Some((source, rest)) = announced(&mut stream).await else {
            shard.cells(&current.live).proxy_refused.add(1);
            return None;
        };
        (peer, early) = (source.unwrap_or(peer), rest);
    }
    let tls = current.live.tls.clone().filter(|_| !local);
    let Some(config) = tls else {
        presence.idle(false);
        return Some(Opened { link: stream.into(), peer, early });
    };
    let cells = &shard.cells(&current.live).handshakes;
    match Link::accept(stream, config, early).await {
        Ok(link) => {
            cells.made(link.resumed() == Some(true));
            presence.idle(false);
            Some(Opened { link, peer, early: Vec::new() })
        }
        Err(_) => {
            cells.failed.add(1);
            None
        }
    }
}

/// Reads a PROXY header: whom it names, and what came behind it.
async fn announced(stream: &mut Stream) -> Option<(Option<IpAddr>, Vec<u8>)> {
    let mut buf = Vec::with_capacity(proxy::HEADER_MAX);
    loop {
        let (read, back) = stream.read(buf).await;
        buf = back;
        if !matches!(read, Ok(count) if count > 0) {
            return None;
        }
        match proxy::header(&buf) {
            Ok(Some(header)) => return Some((header.source, buf.split_off(header.length))),
            // The longest header has filled the buffer by now, and would have been whole.
            Ok(None) if buf.len() == buf.capacity() => return None,
            Ok(None) => {}
            Err(proxy::Bad) => return None,
        }
    }
}
