//! Ranges of IP addresses, as people write them: `10.0.0.0/8`, `2001:db8::/32`, or a single address.

use std::net::{IpAddr, Ipv6Addr};

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    /// The network, as IPv6: IPv4 stands in its mapped form, so that `::ffff:10.0.0.1` is `10.0.0.1`.
    network: u128,
    prefix: u32,
}

impl Cidr {
    /// Reads a range; `None` if it is none, or if bits are set behind the prefix (a typing error, mostly).
    pub fn parse(text: &str) -> Option<Cidr> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let (most, offset) = if address.is_ipv4() { (32, 96) } else { (128, 0) };
        let length = match length {
            Some(length) if length.bytes().all(|byte| byte.is_ascii_digit()) => length.parse::<u32>().ok()?,
            Some(_) => return None,
            None => most,
        };
        let network = mapped(address);
        let prefix = offset + length;
        (length <= most && network & !mask(prefix) == 0).then_some(Cidr { network, prefix })
    }

    /// Whether an address is in the range.
    pub fn holds(&self, address: IpAddr) -> bool {
        mapped(address) & mask(self.prefix) == self.network
    }
}

/// Whether an address is this machine, in either form.
pub fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => address.is_loopback() || address.to_ipv4_mapped().is_some_and(|old| old.is_loopback()),
    }
}

fn mapped(address: IpAddr) -> u128 {
    let address: Ipv6Addr = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    address.to_bits()
}

fn mask(prefix: u32) -> u128 {
    if prefix == 0 { 0 } else { u128::MAX << (128 - prefix.min(128)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(range: &str, address: &str) -> bool {
        Cidr::parse(range).unwrap().holds(address.parse().unwrap())
    }

    #[test]
    fn ranges_hold_their_addresses_and_no_others() {
        assert!(holds("10.0.0.0/8", "10.255.0.1") && !holds("10.0.0.0/8", "11.0.0.0"));
        assert!(holds("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(holds("192.0.2.7", "192.0.2.7") && !holds("192.0.2.7", "192.0.2.6"));
        assert!(holds("0.0.0.0/0", "255.1.2.3") && !holds("0.0.0.0/0", "2001:db8::1"));
        assert!(holds("2001:db8::/32", "2001:db8:1::1") && !holds("2001:db8::/32", "2001:db9::1"));
        assert!(holds("::/0", "2001:db8::1"));
    }

    #[test]
    fn what_is_no_range() {
        for text in ["", "10.0.0.0/33", "10.0.0.1/8", "10.0.0/8", "::/129", "10.0.0.0/", "10.0.0.0/+8", "host", "1/2/3"]
        {
            assert_eq!(Cidr::parse(text), None, "{text}");
        }
    }

    #[test]
    fn loopback_in_both_forms() {
        for text in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert!(is_loopback(text.parse().unwrap()), "{text}");
        }
        assert!(!is_loopback("10.0.0.1".parse().unwrap()) && !is_loopback("::2".parse().unwrap()));
    }
}
