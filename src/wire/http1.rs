//! HTTP/1.1, what both directions share: where a head ends, what frames a body, what is refused.
//!
//! One rule everywhere (RFC 9112, 9110): whatever two parsers could read in two ways is refused, never
//! repaired.

use super::http1_lines::{Field, is_graphic, short_text};
use crate::logic::fault::HttpFault;

/// The most header fields a head can have, whatever the limits say.
pub const HEADERS_MAX: usize = 256;

/// Limits on one message head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes from the first one to the end of the empty line.
    pub bytes: usize,
    /// Header fields; above [`HEADERS_MAX`] it counts as that.
    pub headers: usize,
}

impl HeadLimits {
    /// `headers` under the cap.
    pub(super) fn slots(&self) -> usize {
        self.headers.min(HEADERS_MAX)
    }
}

/// Why a head is refused. A client hears the words in a 400; an upstream's answer counts as no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadHttp {
    /// More bytes or fields than the limits allow.
    HeadTooLarge,
    /// CR without LF.
    BareCr,
    /// LF without CR.
    BareLf,
    /// Not a request line or a status line.
    StartLine,
    /// A status outside 100 to 599.
    Status,
    /// Another version than HTTP/1.0 and HTTP/1.1.
    Version,
    /// Not a token before the colon (also obs-fold, space before the colon, an empty name).
    FieldName,
    /// A control character in a field value.
    FieldValue,
    /// `Content-Length` is not 1*DIGIT, or over 64 bits.
    Length,
    /// Two `Content-Length`s that differ.
    Lengths,
    /// A `Transfer-Encoding` other than exactly `chunked`.
    TransferCoding,
    /// `Transfer-Encoding` in an HTTP/1.0 message.
    CodingInHttp10,
    /// Both `Content-Length` and `Transfer-Encoding`.
    LengthAndCoding,
    /// A 1xx response that declares a body.
    InterimBody,
}

impl BadHttp {
    /// What is wrong, in words.
    pub const fn words(self) -> &'static str {
        match self {
            BadHttp::HeadTooLarge => "head too large",
            BadHttp::BareCr => "bare CR in the head",
            BadHttp::BareLf => "bare LF in the head",
            BadHttp::StartLine => "malformed start line",
            BadHttp::Status => "status outside 100 to 599",
            BadHttp::Version => "HTTP version not supported",
            BadHttp::FieldName => "malformed header name",
            BadHttp::FieldValue => "control character in a header value",
            BadHttp::Length => "malformed Content-Length",
            BadHttp::Lengths => "differing Content-Lengths",
            BadHttp::TransferCoding => "Transfer-Encoding other than chunked",
            BadHttp::CodingInHttp10 => "Transfer-Encoding in HTTP/1.0",
            BadHttp::LengthAndCoding => "both Content-Length and Transfer-Encoding",
            BadHttp::InterimBody => "1xx response with a body",
        }
    }
}

impl From<BadHttp> for HttpFault {
    fn from(bad: BadHttp) -> Self {
        match bad {
            BadHttp::HeadTooLarge => HttpFault::HeadTooLarge,
            BadHttp::Version => HttpFault::VersionNotSupported,
            other => HttpFault::BadRequest(other.words()),
        }
    }
}

/// What `Content-Encoding` says about a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Coding {
    /// No coding, or `identity`.
    #[default]
    Identity,
    /// `gzip` or `x-gzip`.
    Gzip,
    /// `deflate` (the zlib format).
    Deflate,
    /// Anything else, and more than one coding.
    Other,
}

impl Coding {
    /// The coding after one more `Content-Encoding` field with this value.
    pub(super) fn and(self, value: &[u8]) -> Coding {
        list(value).fold(self, |sum, name| match (sum, Coding::named(name)) {
            (sum, Coding::Identity) => sum,
            (Coding::Identity, one) => one,
            _ => Coding::Other,
        })
    }

    fn named(name: &[u8]) -> Coding {
        if name.is_empty() || name.eq_ignore_ascii_case(b"identity") {
            Coding::Identity
        } else if name.eq_ignore_ascii_case(b"gzip") || name.eq_ignore_ascii_case(b"x-gzip") {
            Coding::Gzip
        } else if name.eq_ignore_ascii_case(b"deflate") {
            Coding::Deflate
        } else {
            Coding::Other
        }
    }
}

/// How the header fields frame the body, before verb or status have a say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Declared {
    Nothing,
    Length(u64),
    Chunked,
}

/// The fields that frame a message, gathered one by one.
#[derive(Debug, Default)]
pub(super) struct FramingFields {
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
}

impl FramingFields {
    /// Takes the field if it is one of these.
    #[inline(always)]
    pub(super) fn take(&mut self, field: Field, value: &[u8]) -> Result<(), BadHttp> {
        match field {
            Field::ContentLength => self.content_length(value),
            Field::TransferEncoding => self.transfer_encoding(value),
            Field::Connection => {
                self.connection(value);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Repetitions, also as a comma list, pass only if they agree (RFC 9110, 8.6).
    #[inline(always)]
    fn content_length(&mut self, value: &[u8]) -> Result<(), BadHttp> {
        match (self.length, digits(value)) {
            (None, Some(length)) => {
                self.length = Some(length);
                Ok(())
            }
            _ => self.content_lengths(value),
        }
    }

    #[cold]
    fn content_lengths(&mut self, value: &[u8]) -> Result<(), BadHttp> {
        for member in list(value) {
            let length = digits(member).ok_or(BadHttp::Length)?;
            if self.length.is_some_and(|first| first != length) {
                return Err(BadHttp::Lengths);
            }
            self.length = Some(length);
        }
        Ok(())
    }

    /// One field, one coding. Ringway announces no other coding, so any other one is an attack or a mistake.
    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), BadHttp> {
        if self.chunked || !trim(value).eq_ignore_ascii_case(b"chunked") {
            return Err(BadHttp::TransferCoding);
        }
        self.chunked = true;
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) {
        for option in list(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// The framing, once all fields were taken.
    pub(super) fn declared(&self, http11: bool) -> Result<Declared, BadHttp> {
        match (self.length, self.chunked) {
            (Some(_), true) => Err(BadHttp::LengthAndCoding),
            (None, true) if !http11 => Err(BadHttp::CodingInHttp10),
            (None, true) => Ok(Declared::Chunked),
            (Some(length), false) => Ok(Declared::Length(length)),
            (None, false) => Ok(Declared::Nothing),
        }
    }

    /// Whether the sender keeps the connection: HTTP/1.1 unless `close`, HTTP/1.0 only with `keep-alive`.
    pub(super) fn keep_alive(&self, http11: bool) -> bool {
        !self.close && (http11 || self.keep_alive)
    }
}

/// The end of the head that begins at `start`: the index after its empty line, or `None` = not here yet.
/// Every line end on the way is CRLF. The first `scanned` bytes were seen by an earlier call: only for heads that
/// come in pieces, whose lines would else be walked through anew with every piece.
pub(super) fn head_end(buf: &[u8], start: usize, scanned: usize, limit: usize) -> Result<Option<usize>, BadHttp> {
    let window = buf.get(..limit).unwrap_or(buf);
    // One byte back: a CR that was the last byte then is judged by its successor now.
    let from = scanned.saturating_sub(1).max(start).min(window.len());
    for offset in memchr::memchr2_iter(b'\r', b'\n', &window[from..]) {
        let at = from + offset;
        if window[at] == b'\r' {
            if window.get(at + 1).is_some_and(|&next| next != b'\n') {
                return Err(BadHttp::BareCr);
            }
        } else if at == start || window[at - 1] != b'\r' {
            return Err(BadHttp::BareLf);
        } else if at >= start + 2 && window[at - 2] == b'\n' {
            return Ok(Some(at + 1));
        }
    }
    if buf.len() >= limit { Err(BadHttp::HeadTooLarge) } else { Ok(None) }
}

/// The members of a comma-separated value, without the white space around them.
pub(super) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim)
}

/// Without optional white space (SP and HTAB only, RFC 9110, 5.6.3) at both ends.
pub(super) fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// 1*DIGIT within 64 bits. No sign, no white space, no other radix.
pub(super) fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// A token character (RFC 9110, 5.6.2).
pub(super) const fn is_tchar(byte: u8) -> bool {
    matches!(byte,
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9'
        | b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~')
}

/// A character of a field value: HTAB, SP, visible ASCII, obs-text.
pub(super) const fn is_value_char(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// The value as text if it is all visible ASCII.
pub(super) fn visible(value: &[u8]) -> Option<&str> {
    if is_graphic(value) { short_text(value) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_digits_alone() {
        assert_eq!(digits(b"0"), Some(0));
        assert_eq!(digits(b"003"), Some(3));
        assert_eq!(digits(b"18446744073709551615"), Some(u64::MAX));
        for bad in ["", "+5", "-1", "0x5", " 5", "5 ", "5 5", "18446744073709551616", "99999999999999999999999", "٣"] {
            assert_eq!(digits(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn trim_takes_spaces_and_tabs_only() {
        assert_eq!(trim(b" \t a b\t "), b"a b");
        assert_eq!(trim(b" \t "), b"");
        assert_eq!(trim(b"\x0bx"), b"\x0bx");
    }

    #[test]
    fn the_head_ends_at_the_empty_line_and_not_before() {
        let whole = b"A\r\nb: c\r\n\r\nrest\n\r";
        for cut in 0..11 {
            assert_eq!(head_end(&whole[..cut], 0, 0, 100), Ok(None), "cut {cut}");
        }
        for scanned in 0..11 {
            assert_eq!(head_end(whole, 0, scanned, 100), Ok(Some(11)), "scanned {scanned}");
        }
        assert_eq!(head_end(whole, 0, 0, 11), Ok(Some(11)));
        assert_eq!(head_end(whole, 0, 0, 10), Err(BadHttp::HeadTooLarge));
        assert_eq!(head_end(b"A\n", 0, 0, 100), Err(BadHttp::BareLf));
        assert_eq!(head_end(b"\n", 0, 0, 100), Err(BadHttp::BareLf));
        assert_eq!(head_end(b"A\rB", 0, 0, 100), Err(BadHttp::BareCr));
        assert_eq!(head_end(b"A\rB", 0, 2, 100), Err(BadHttp::BareCr), "the CR was the last byte of the last call");
        assert_eq!(head_end(b"A", 0, usize::MAX, 100), Ok(None));
    }

    #[test]
    fn codings_add_up() {
        let of = |values: &[&str]| values.iter().fold(Coding::default(), |sum, value| sum.and(value.as_bytes()));
        assert_eq!(of(&[]), Coding::Identity);
        assert_eq!(of(&["identity"]), Coding::Identity);
        assert_eq!(of(&["GZIP"]), Coding::Gzip);
        assert_eq!(of(&["x-gzip, identity"]), Coding::Gzip);
        assert_eq!(of(&["deflate"]), Coding::Deflate);
        assert_eq!(of(&["gzip", "gzip"]), Coding::Other);
        assert_eq!(of(&["gzip, deflate"]), Coding::Other);
        assert_eq!(of(&["br"]), Coding::Other);
        assert_eq!(of(&["chunked"]), Coding::Other);
    }
}
