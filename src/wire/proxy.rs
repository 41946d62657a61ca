//! The PROXY protocol, versions 1 and 2, as its receiver (haproxy.org, proxy-protocol.txt): who a connection is from.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest header of version 1, its line end included (section 2.1).
const TEXT_MAX: usize = 107;
/// Longest header of version 2 that is taken: addresses and what senders add behind them.
pub const HEADER_MAX: usize = 4 << 10;
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The fixed part of version 2.
const FIXED: usize = 16;

/// A whole header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Where the connection comes from; `None` = its sender does not know, or speaks for itself (a health check).
    pub source: Option<IpAddr>,
    /// Its bytes.
    pub length: usize,
}

/// What stands there is no such header, or one that is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bad;

/// Reads the header at the front of a connection; `None` = it is not whole yet.
///
/// # Errors
/// If it can't become one.
pub fn header(bytes: &[u8]) -> Result<Option<Header>, Bad> {
    let begun = bytes.len().min(SIGNATURE.len());
    if bytes[..begun] == SIGNATURE[..begun] {
        return if begun < SIGNATURE.len() { Ok(None) } else { binary(bytes) };
    }
    text(bytes)
}

fn text(bytes: &[u8]) -> Result<Option<Header>, Bad> {
    let begun = bytes.len().min(6);
    if bytes[..begun] != b"PROXY "[..begun] {
        return Err(Bad);
    }
    let Some(end) = bytes.iter().take(TEXT_MAX).position(|byte| *byte == b'\n') else {
        return if bytes.len() < TEXT_MAX { Ok(None) } else { Err(Bad) };
    };
    let line = bytes[..end].strip_suffix(b"\r").ok_or(Bad)?;
    let line = std::str::from_utf8(line).map_err(|_| Bad)?;
    let mut words = line.split(' ').skip(1);
    let length = end + 1;
    let source = match words.next() {
        // Whatever follows is not looked at (section 2.1).
        Some("UNKNOWN") => return Ok(Some(Header { source: None, length })),
        Some("TCP4") => addresses::<Ipv4Addr>(&mut words)?.into(),
        Some("TCP6") => addresses::<Ipv6Addr>(&mut words)?.into(),
        _ => return Err(Bad),
    };
    for _ in 0..2 {
        let port = words.next().ok_or(Bad)?;
        let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        port.parse::<u16>().ok().filter(|_| digits).ok_or(Bad)?;
    }
    if words.next().is_some() { Err(Bad) } else { Ok(Some(Header { source: Some(source), length })) }
}

/// Source and destination; gives the source.
fn addresses<A: std::str::FromStr>(words: &mut dyn Iterator<Item = &str>) -> Result<A, Bad> {
    let mut next = || words.next().and_then(|word| word.parse::<A>().ok()).ok_or(Bad);
    let source = next()?;
    next()?;
    Ok(source)
}

fn binary(bytes: &[u8]) -> Result<Option<Header>, Bad> {
    let Some(fixed) = bytes.get(SIGNATURE.len()..FIXED) else { return Ok(None) };
    let (version, command, family) = (fixed[0] >> 4, fixed[0] & 0xf, fixed[1] >> 4);
    let length = FIXED + usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    if version != 2 || command > 1 || family > 3 || fixed[1] & 0xf > 2 || length > HEADER_MAX {
        return Err(Bad);
    }
    let Some(rest) = bytes.get(FIXED..length) else { return Ok(None) };
    let source = match (command, family) {
        (1, 1) => Some(ipv4(rest.get(..12).ok_or(Bad)?)),
        (1, 2) => Some(ipv6(rest.get(..36).ok_or(Bad)?)),
        // LOCAL, or a family without an address that anything is decided by.
        _ => None,
    };
    Ok(Some(Header { source: source.flatten(), length }))
}

fn ipv4(bytes: &[u8]) -> Option<IpAddr> {
    Some(IpAddr::from(<[u8; 4]>::try_from(bytes.get(..4)?).ok()?))
}

fn ipv6(bytes: &[u8]) -> Option<IpAddr> {
    Some(IpAddr::from(<[u8; 16]>::try_from(bytes.get(..16)?).ok()?).to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([0x20 | command, family]);
        bytes.extend((rest.len() as u16).to_be_bytes());
        bytes.extend(rest);
        bytes
    }

    /// Reads a header byte by byte with a request behind it: the same as at once.
    #[track_caller]
    fn read(bytes: &[u8]) -> Result<Option<IpAddr>, Bad> {
        let whole = [bytes, b"POST / HTTP/1.1\r\n"].concat();
        let at_once = header(&whole);
        for end in 0..bytes.len() {
            match header(&bytes[..end]) {
                Ok(None) => {}
                Ok(Some(_)) => panic!("whole before its end, at {end}"),
                Err(Bad) => assert_eq!(at_once, Err(Bad), "at {end}"),
            }
        }
        at_once.map(|header| {
            let header = header.expect("it is whole");
            assert_eq!(header.length, bytes.len());
            header.source
        })
    }

    #[test]
    fn addresses_are_read_in_both_versions() {
        let some = |text: &str| Ok(Some(text.parse::<IpAddr>().unwrap()));
        assert_eq!(read(b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n"), some("192.0.2.1"));
        assert_eq!(read(b"PROXY TCP6 2001:db8::1 ::1 1 65535\r\n"), some("2001:db8::1"));
        let ports = [0, 80, 1, 187];
        let four = [&[192, 0, 2, 1, 192, 0, 2, 2][..], &ports].concat();
        assert_eq!(read(&v2(1, 0x11, &four)), some("192.0.2.1"));
        assert_eq!(read(&v2(1, 0x12, &[&four[..], &[3, 0, 1, 9]].concat())), some("192.0.2.1"));
        let mut six = [0; 36];
        six[15] = 1;
        assert_eq!(read(&v2(1, 0x21, &six)), some("::1"));
        six[..16].copy_from_slice(&"192.0.2.1".parse::<Ipv4Addr>().unwrap().to_ipv6_mapped().octets());
        assert_eq!(read(&v2(1, 0x21, &six)), some("192.0.2.1"));
    }

    #[test]
    fn a_sender_that_speaks_for_itself_names_nobody() {
        let long = format!("PROXY UNKNOWN {}\r\n", "f".repeat(TEXT_MAX - 16));
        for bytes in
            [b"PROXY UNKNOWN\r\n".to_vec(), long.into_bytes(), v2(0, 0, b""), v2(0, 0x11, &[0; 12]), v2(1, 0, b"")]
        {
            assert_eq!(read(&bytes), Ok(None));
        }
        assert_eq!(read(&v2(1, 0x31, &[0; 216])), Ok(None));
    }

    #[test]
    fn what_is_no_header_is_refused() {
        for bytes in [
            &b"POST /eth HTTP/1.1\r\n"[..],
            b"PROXY\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 56324\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443 x\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 +1 443\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 65536 443\r\n",
            b"PROXY TCP4 192.0.2.256 192.0.2.2 1 443\r\n",
            b"PROXY TCP4 2001:db8::1 ::1 1 443\r\n",
            b"PROXY TCP6 192.0.2.1 192.0.2.2 1 443\r\n",
            b"PROXY  TCP4 192.0.2.1 192.0.2.2 1 443\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1 443\n",
            b"PROXY tcp4 192.0.2.1 192.0.2.2 1 443\r\n",
            b"\r\n\r\nPOST / HTTP/1.1\r\n",
        ] {
            assert_eq!(read(bytes), Err(Bad), "{}", String::from_utf8_lossy(bytes));
        }
        for (version_and_command, family, rest) in
            [(0x31, 0x11, 12), (0x22, 0x11, 12), (0x21, 0x41, 12), (0x21, 0x13, 12), (0x21, 0x11, 11), (0x21, 0x21, 35)]
        {
            let mut bytes = v2(1, family, &vec![0; rest]);
            bytes[12] = version_and_command;
            assert_eq!(header(&bytes), Err(Bad), "{version_and_command:x} {family:x} {rest}");
        }
        assert_eq!(header(&v2(1, 0x11, &[0; HEADER_MAX])[..20]), Err(Bad), "refused by its length");
        assert_eq!(header(&[b"PROXY UNKNOWN ", &[b'x'; TEXT_MAX][..]].concat()), Err(Bad), "no end");
    }

    proptest! {
        #[test]
        fn nothing_panics_and_no_length_is_beyond_what_came(bytes: Vec<u8>, kind in 0..3, cut in 0usize..300) {
            let mut whole = match kind {
                0 => b"PROXY TCP4 ".to_vec(),
                1 => v2(1, 0x11, &[7; 40]),
                _ => Vec::new(),
            };
            whole.extend(&bytes);
            whole.truncate(cut);
            if let Ok(Some(header)) = header(&whole) {
                prop_assert!(header.length <= whole.len());
            }
        }
    }
}
