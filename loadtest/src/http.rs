//! Where an HTTP/1.1 message ends: just enough framing for a peer whose messages we know, for both directions.
//!
//! Only Content-Length bodies are understood: a proxy that turns an exact length into chunks is reported, not
//! tolerated, since the products compared here keep the length.

use memchr::memmem;

/// A longer head is an error.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// A longer body is an error.
pub const BODY_BYTES_MAX: usize = 80 << 20;

/// What the head of a message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Bytes up to and including the blank line.
    pub len: usize,
    /// The announced length; none announced counts as 0 for requests and is for the caller to judge.
    pub body: Option<usize>,
    /// The sender wants the connection closed after this exchange.
    pub close: bool,
}

/// What the bytes so far amount to.
#[derive(Debug, PartialEq, Eq)]
pub enum Framing {
    /// The blank line has not come yet.
    Partial,
    /// A whole head.
    Head(Head),
    /// Not a message that this tool understands.
    Bad(&'static str),
}

/// Reads the head at the start of `bytes`.
pub fn head(bytes: &[u8]) -> Framing {
    let Some(end) = memmem::find(bytes, b"\r\n\r\n") else {
        return if bytes.len() > HEAD_BYTES_MAX { Framing::Bad("head too long") } else { Framing::Partial };
    };
    if end > HEAD_BYTES_MAX {
        return Framing::Bad("head too long");
    }
    let mut head = Head { len: end + 4, body: None, close: false };
    let mut rest = &bytes[..end];
    if let Some(line_end) = memchr::memchr(b'\n', rest) {
        rest = &rest[line_end + 1..];
    } else {
        return Framing::Head(head);
    }
    while !rest.is_empty() {
        let (line, next) = match memchr::memchr(b'\n', rest) {
            Some(at) => (&rest[..at], &rest[at + 1..]),
            None => (rest, &rest[rest.len()..]),
        };
        if let Err(why) = field(line, &mut head) {
            return Framing::Bad(why);
        }
        rest = next;
    }
    Framing::Head(head)
}

/// Notes one header line, where it bears on framing.
fn field(line: &[u8], head: &mut Head) -> Result<(), &'static str> {
    let colon = memchr::memchr(b':', line).ok_or("header line without a colon")?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    if name.eq_ignore_ascii_case(b"content-length") {
        let length = decimal(value).filter(|length| *length <= BODY_BYTES_MAX).ok_or("bad Content-Length")?;
        if head.body.is_some_and(|before| before != length) {
            return Err("two Content-Lengths");
        }
        head.body = Some(length);
    } else if name.eq_ignore_ascii_case(b"connection") {
        head.close |= value.eq_ignore_ascii_case(b"close");
    } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
        return Err("transfer coding");
    }
    Ok(())
}

/// The status of a response whose head begins `bytes`.
pub fn status(bytes: &[u8]) -> Option<u16> {
    let rest = bytes.strip_prefix(b"HTTP/1.1 ")?;
    let digits = rest.get(..3)?;
    decimal(digits).and_then(|status| u16::try_from(status).ok())
}

fn decimal(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0usize, |value, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        value.checked_mul(10)?.checked_add(usize::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_partial_until_its_blank_line() {
        let whole = b"POST /eth HTTP/1.1\r\nHost: a\r\ncontent-LENGTH:  12 \r\nConnection: Close\r\n\r\n{";
        for cut in 0..whole.len() - 1 {
            assert_eq!(head(&whole[..cut]), Framing::Partial, "cut at {cut}");
        }
        assert_eq!(head(whole), Framing::Head(Head { len: whole.len() - 1, body: Some(12), close: true }));
    }

    #[test]
    fn a_head_of_one_line_has_no_length() {
        assert_eq!(head(b"HTTP/1.1 204 No\r\n\r\n"), Framing::Head(Head { len: 19, body: None, close: false }));
    }

    #[test]
    fn what_cannot_be_framed_is_bad() {
        for line in [
            "Content-Length: 1\r\nContent-Length: 2",
            "Content-Length: -1",
            "Content-Length: ",
            "Content-Length: 99999999999999999999999",
            "Transfer-Encoding: chunked",
            "no colon",
        ] {
            let message = format!("POST / HTTP/1.1\r\n{line}\r\n\r\n");
            assert!(matches!(head(message.as_bytes()), Framing::Bad(_)), "{line}");
        }
        assert!(matches!(head(&vec![b'a'; HEAD_BYTES_MAX + 1]), Framing::Bad(_)));
    }

    #[test]
    fn only_http_1_1_has_a_status() {
        assert_eq!(status(b"HTTP/1.1 502 Bad Gateway\r\n"), Some(502));
        assert_eq!(status(b"HTTP/1.1 2x0 OK"), None);
        assert_eq!(status(b"HTTP/1.0 200 OK"), None);
        assert_eq!(status(b"HTTP/1.1 2"), None);
    }
}
