//! Who is calling, where proxies stand in between: `X-Forwarded-For`, walked from the right.

use super::cidr::Cidr;
use std::net::{IpAddr, SocketAddr};

/// The address of the caller: the first hop from the right that is no trusted proxy.
///
/// `peer` is the other end of the connection; `fields` are the values of all `X-Forwarded-For` fields in the order
/// in which they came, each a list with commas. Only what a trusted hop added is believed: what stands further left
/// may be anybody's invention. `None`: a trusted hop wrote something that is no address, so nobody knows who it is.
pub fn caller<'h>(peer: IpAddr, trusted: &[Cidr], fields: impl DoubleEndedIterator<Item = &'h [u8]>) -> Option<IpAddr> {
    let mut last = peer;
    for entry in fields.rev().flat_map(|field| field.rsplit(|byte| *byte == b',')) {
        if !is_trusted(last, trusted) {
            return Some(last);
        }
        match std::str::from_utf8(entry).ok().and_then(|entry| address(entry.trim_matches([' ', '\t']))) {
            Some(address) => last = address,
            None => return None,
        }
    }
    Some(last)
}

/// Whether what this address says of others is believed.
pub fn is_trusted(address: IpAddr, trusted: &[Cidr]) -> bool {
    trusted.iter().any(|range| range.holds(address))
}

/// One entry: an address, with or without a port.
fn address(entry: &str) -> Option<IpAddr> {
    if let Ok(address) = entry.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    if let Ok(address) = entry.parse::<SocketAddr>() {
        return Some(address.ip().to_canonical());
    }
    let bare = entry.strip_prefix('[')?.strip_suffix(']')?;
    bare.parse::<std::net::Ipv6Addr>().ok().map(|address| IpAddr::V6(address).to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(peer: &str, trusted: &[&str], fields: &[&str]) -> String {
        let trusted: Vec<Cidr> = trusted.iter().map(|range| Cidr::parse(range).unwrap()).collect();
        caller(peer.parse().unwrap(), &trusted, fields.iter().map(|field| field.as_bytes()))
            .map_or("nobody".into(), |caller| caller.to_string())
    }

    #[test]
    fn only_trusted_hops_are_believed() {
        let trusted = ["10.0.0.0/8"];
        assert_eq!(of("203.0.113.9", &trusted, &["198.51.100.1"]), "203.0.113.9", "anybody can write a field");
        assert_eq!(of("10.0.0.1", &trusted, &["198.51.100.1"]), "198.51.100.1");
        assert_eq!(of("10.0.0.1", &trusted, &["192.0.2.66, 198.51.100.1"]), "198.51.100.1", "from the right");
        assert_eq!(of("10.0.0.1", &trusted, &["192.0.2.66, 198.51.100.1 ,10.2.3.4"]), "198.51.100.1");
        assert_eq!(of("10.0.0.1", &trusted, &["192.0.2.66", "198.51.100.1", "10.2.3.4"]), "198.51.100.1");
        assert_eq!(of("10.0.0.1", &trusted, &[]), "10.0.0.1");
        assert_eq!(of("10.0.0.1", &trusted, &["10.0.0.7,10.0.0.8"]), "10.0.0.7", "all of them trusted");
        assert_eq!(of("10.0.0.1", &[], &["198.51.100.1"]), "10.0.0.1");
    }

    #[test]
    fn an_entry_that_is_no_address_ends_the_walk() {
        let trusted = ["10.0.0.0/8"];
        for odd in ["unknown", "", "_hidden", "198.51.100.1:x", "1.2.3", "[::1", "a, ,"] {
            let field = format!("192.0.2.66, {odd}");
            assert_eq!(of("10.0.0.1", &trusted, &[&field]), "nobody", "{odd}");
        }
        let trusted: Vec<Cidr> = vec![Cidr::parse("10.0.0.0/8").unwrap()];
        let bytes = [&b"198.51.100.1, \xff\xfe"[..]];
        assert_eq!(caller("10.0.0.1".parse().unwrap(), &trusted, bytes.into_iter()), None);
    }

    #[test]
    fn addresses_come_with_and_without_ports_in_both_families() {
        let trusted = ["10.0.0.0/8", "fd00::/8"];
        for (entry, address) in [
            ("198.51.100.1:4711", "198.51.100.1"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]:4711", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("::ffff:198.51.100.1", "198.51.100.1"),
        ] {
            assert_eq!(of("10.0.0.1", &trusted, &[entry]), address);
            assert_eq!(of("fd00::1", &trusted, &[entry, "::ffff:10.1.1.1"]), address);
        }
    }
}
