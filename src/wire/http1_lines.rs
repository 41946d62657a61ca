//! The lines of a head, one after the other: where each ends, which field it is, and what its value is.
//!
//! One pass of sixteen bytes at a time. Line ends are judged as they are met; what else is wrong with a line is
//! remembered and told once the end of the head is there, so that a fault never depends on how a head was cut.

use super::http1::{BadHttp, HeadLimits, head_end, is_tchar, trim};

/// A field that means something here, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Connection,
    ContentEncoding,
    ContentLength,
    ContentType,
    Expect,
    Host,
    Origin,
    RequestId,
    RetryAfter,
    RingwayExplain,
    Traceparent,
    TransferEncoding,
    Other,
}

/// A line without its CRLF.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'b> {
    pub(super) text: &'b [u8],
    /// A control character other than HTAB is in it.
    pub(super) control: bool,
}

/// What follows in a head.
#[derive(Debug)]
pub(super) enum Step<'b> {
    /// A field and its value, without the white space around it.
    Field(Field, &'b [u8]),
    /// The end, behind the empty line.
    End,
    /// The rest is not here yet.
    Missing,
}

/// Walks through the lines of a head.
pub(super) struct Lines<'b> {
    seen: &'b [u8],
    rest: &'b [u8],
    fields_left: usize,
    wrong: Option<BadHttp>,
    /// Where the head ends, if it came in pieces.
    end: Option<usize>,
    /// No more bytes may be waited for.
    is_full: bool,
}

impl<'b> Lines<'b> {
    /// The head that begins at `start`, of which `scanned` bytes were seen before; `None` = not all of it is here.
    #[inline(always)]
    pub(super) fn open(
        buf: &'b [u8],
        start: usize,
        scanned: usize,
        limits: &HeadLimits,
    ) -> Result<Option<Lines<'b>>, BadHttp> {
        let end = match scanned {
            0 => None,
            _ => match head_end(buf, start, scanned, limits.bytes)? {
                None => return Ok(None),
                end => end,
            },
        };
        let seen = buf.get(..limits.bytes).unwrap_or(buf);
        let rest = seen.get(start..).unwrap_or_default();
        let is_full = buf.len() >= limits.bytes;
        Ok(Some(Lines { seen, rest, fields_left: limits.slots(), wrong: None, end, is_full }))
    }

    /// Where the walk stands.
    pub(super) fn at(&self) -> usize {
        self.seen.len() - self.rest.len()
    }

    /// Remembers a fault, if it is the first.
    pub(super) fn note(&mut self, wrong: BadHttp) {
        self.wrong.get_or_insert(wrong);
    }

    /// What it means that a line is not here: more is waited for, or there may be no more.
    pub(super) fn missing<T>(&self) -> Result<Option<T>, BadHttp> {
        if self.is_full { Err(BadHttp::HeadTooLarge) } else { Ok(None) }
    }

    /// The first fault of the lines, once all were seen. A hint that was about another head is none of ours.
    pub(super) fn close(&self) -> Result<(), BadHttp> {
        match (self.wrong, self.end) {
            (Some(wrong), _) => Err(wrong),
            (None, Some(end)) if end != self.at() => Err(BadHttp::StartLine),
            _ => Ok(()),
        }
    }

    /// The next line; `None` = its end is not here yet. The fault is one of its end.
    #[inline(always)]
    pub(super) fn line(&mut self) -> Result<Option<Line<'b>>, BadHttp> {
        let (mut rest, mut control) = (self.rest, false);
        loop {
            rest = from_control(rest);
            match rest {
                [b'\r', b'\n', next @ ..] => {
                    let (text, _) = self.rest.split_at(self.rest.len() - rest.len());
                    self.rest = next;
                    return Ok(Some(Line { text, control }));
                }
                [b'\t', more @ ..] => rest = more,
                [b'\r', _, ..] => return Err(BadHttp::BareCr),
                [b'\n', ..] => return Err(BadHttp::BareLf),
                [] | [b'\r'] => return Ok(None),
                [_, more @ ..] => (rest, control) = (more, true),
            }
        }
    }

    /// The next field. Lines behind one that is wrong are judged by their ends alone.
    #[inline(always)]
    pub(super) fn step(&mut self) -> Result<Step<'b>, BadHttp> {
        loop {
            let Some(line) = self.line()? else { return Ok(Step::Missing) };
            if line.text.is_empty() {
                return Ok(Step::End);
            }
            if self.wrong.is_some() {
                continue;
            }
            match field(line) {
                Ok((field, value)) => match self.fields_left.checked_sub(1) {
                    Some(left) => {
                        self.fields_left = left;
                        return Ok(Step::Field(field, value));
                    }
                    None => self.note(BadHttp::HeadTooLarge),
                },
                Err(wrong) => self.note(wrong),
            }
        }
    }
}

/// Name and value of a field line.
#[inline(always)]
fn field(line: Line<'_>) -> Result<(Field, &[u8]), BadHttp> {
    let (field, value) = match known(line.text) {
        Some(known) => known,
        None => match line.text.split_at_checked(token_len(line.text)) {
            Some(([_, ..], [b':', value @ ..])) => (Field::Other, value),
            _ => return Err(BadHttp::FieldName),
        },
    };
    if line.control { Err(BadHttp::FieldValue) } else { Ok((field, trimmed(value))) }
}

/// As [`trim`], which most values do not need.
#[inline(always)]
fn trimmed(value: &[u8]) -> &[u8] {
    let value = value.strip_prefix(b" ").unwrap_or(value);
    match value {
        [first, .., last] if *first > b' ' && *last > b' ' => value,
        _ => trim(value),
    }
}

/// The field with one of the names that mean something, and what follows its colon.
#[inline(always)]
fn known(line: &[u8]) -> Option<(Field, &[u8])> {
    let is = |field, value: Option<_>| value.map(|value| (field, value));
    match line.first()? | 0x20 {
        b'h' => is(Field::Host, behind(line, b"host:")),
        b'c' => is(Field::ContentLength, behind(line, b"content-length:"))
            .or_else(|| is(Field::ContentType, behind(line, b"content-type:")))
            .or_else(|| is(Field::Connection, behind(line, b"connection:")))
            .or_else(|| is(Field::ContentEncoding, behind(line, b"content-encoding:"))),
        b'e' => is(Field::Expect, behind(line, b"expect:")),
        b'o' => is(Field::Origin, behind(line, b"origin:")),
        b'x' => is(Field::RequestId, behind(line, b"x-request-id:")),
        b'r' => is(Field::RetryAfter, behind(line, b"retry-after:"))
            .or_else(|| is(Field::RingwayExplain, behind(line, b"ringway-explain:"))),
        b't' => is(Field::TransferEncoding, behind(line, b"transfer-encoding:"))
            .or_else(|| is(Field::Traceparent, behind(line, b"traceparent:"))),
        _ => None,
    }
}

/// What follows `name` (in lower case, with its colon), however it is spelled.
#[inline(always)]
fn behind<'b, const N: usize>(line: &'b [u8], name: &[u8; N]) -> Option<&'b [u8]> {
    let (front, rest) = line.split_first_chunk::<N>()?;
    // Words that overlap, and all known when this is compiled but for those of the line.
    let mut other = 0;
    let mut at = 0;
    while at < N {
        let from = if at + 8 > N { N.saturating_sub(8) } else { at };
        other |= (word(front, from) | case_bits(word(name, from))) ^ word(name, from);
        at += 8;
    }
    (other == 0).then_some(rest)
}

/// Up to eight bytes from `from` on.
#[inline(always)]
fn word<const N: usize>(bytes: &[u8; N], from: usize) -> u64 {
    match bytes.get(from..).and_then(|rest| rest.first_chunk()) {
        Some(eight) => u64::from_le_bytes(*eight),
        None => bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}

/// The bit in which capitals differ, for each byte that is a letter in lower case. Nothing else has two spellings:
/// a CR is no hyphen, and SUB is no colon.
const fn case_bits(lower: u64) -> u64 {
    let mut bits = 0;
    let mut at = 0;
    while at < 64 {
        if (lower >> at & 0xff).wrapping_sub(b'a' as u64) < 26 {
            bits |= 0x20 << at;
        }
        at += 8;
    }
    bits
}

/// What begins with the first control character (DEL is one).
#[inline(always)]
fn from_control(mut text: &[u8]) -> &[u8] {
    while let Some((some, rest)) = text.split_first_chunk() {
        let found = controls(some);
        if found != 0 {
            return text.get((found.trailing_zeros() / 8) as usize..).unwrap_or_default();
        }
        text = rest;
    }
    text.get(text.iter().position(u8::is_ascii_control).unwrap_or(text.len())..).unwrap_or_default()
}

/// All ones in each byte that is a control character. The loop becomes a few instructions on a vector.
#[inline(always)]
fn controls(bytes: &[u8; 16]) -> u128 {
    let mut found = [0; 16];
    for (to, byte) in found.iter_mut().zip(bytes) {
        *to = if byte.is_ascii_control() { 0xff } else { 0 };
    }
    u128::from_le_bytes(found)
}

/// Whether all bytes are visible ASCII.
#[inline(always)]
pub(super) fn is_graphic(text: &[u8]) -> bool {
    let (Some(last), (words, _)) = (text.last_chunk(), text.as_chunks()) else {
        return text.iter().all(u8::is_ascii_graphic);
    };
    (words.iter().fold(strange(last), |sum, word| sum | strange(word))) & HIGH == 0
}

const ONES: u64 = u64::MAX / 0xff;
const HIGH: u64 = ONES << 7;

/// The high bit of each byte that is not visible ASCII; other bits say nothing.
#[inline(always)]
fn strange(word: &[u8; 8]) -> u64 {
    let word = u64::from_le_bytes(*word);
    let low = word & !HIGH;
    // No sum leaves its byte: the first reaches the high bit from `!` on, the second at DEL alone.
    !(low + 0x5f * ONES) | (low + ONES) | word
}

/// The text, if it is UTF-8: without setting out for a long one, as the standard library does at once.
#[inline(always)]
pub(super) fn short_text(bytes: &[u8]) -> Option<&str> {
    match bytes.utf8_chunks().next() {
        Some(part) => part.invalid().is_empty().then_some(part.valid()),
        None => Some(""),
    }
}

/// How many token characters a text begins with.
#[inline(always)]
pub(super) fn token_len(text: &[u8]) -> usize {
    static TOKEN: [bool; 256] = {
        let mut table = [false; 256];
        let mut byte = 0;
        while byte < 256 {
            table[byte] = is_tchar(byte as u8);
            byte += 1;
        }
        table
    };
    text.iter().position(|&byte| !TOKEN[usize::from(byte)]).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_byte_is_judged_at_every_place() {
        for place in 0..40 {
            for byte in 0..=255u8 {
                let mut text = [b'v'; 40];
                text[place] = byte;
                let control = if byte.is_ascii_control() { place } else { 40 };
                assert_eq!(from_control(&text), &text[control..], "{byte:#x} at {place}");
                assert_eq!(from_control(&text[..place + 1]).len(), usize::from(control < 40), "{byte:#x} at {place}");
                assert_eq!(is_graphic(&text), byte.is_ascii_graphic(), "{byte:#x} at {place}");
                assert_eq!(token_len(&text), if is_tchar(byte) { 40 } else { place }, "{byte:#x} at {place}");
            }
        }
    }

    const NAMES: [(&str, Field); 12] = [
        ("connection", Field::Connection),
        ("content-encoding", Field::ContentEncoding),
        ("content-length", Field::ContentLength),
        ("content-type", Field::ContentType),
        ("expect", Field::Expect),
        ("host", Field::Host),
        ("origin", Field::Origin),
        ("x-request-id", Field::RequestId),
        ("retry-after", Field::RetryAfter),
        ("ringway-explain", Field::RingwayExplain),
        ("traceparent", Field::Traceparent),
        ("transfer-encoding", Field::TransferEncoding),
    ];

    fn read(line: &[u8]) -> Result<(Field, &[u8]), BadHttp> {
        field(Line { text: line, control: line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') })
    }

    #[test]
    fn a_name_is_known_in_every_case_and_no_other_byte_passes_for_one_of_its_own() {
        for (name, field) in NAMES {
            for spelled in [name.to_owned(), name.to_ascii_uppercase()] {
                assert_eq!(read(format!("{spelled}:v").as_bytes()), Ok((field, &b"v"[..])));
                assert_eq!(read(format!("{spelled}: \tv \t").as_bytes()), Ok((field, &b"v"[..])));
                assert_eq!(read(format!("{spelled}:").as_bytes()), Ok((field, &b""[..])));
                assert_eq!(read(format!("{spelled}: \x01").as_bytes()), Err(BadHttp::FieldValue));
                for at in 0..=name.len() {
                    for byte in 0..=255u8 {
                        let mut line = format!("{spelled}:v").into_bytes();
                        if line[at].eq_ignore_ascii_case(&byte) {
                            continue;
                        }
                        line[at] = byte;
                        let expected = match line.split_at(token_len(&line)) {
                            ([_, ..], [b':', value @ ..]) => Ok((Field::Other, value)),
                            _ => Err(BadHttp::FieldName),
                        };
                        assert_eq!(read(&line), expected, "{}", line.escape_ascii());
                    }
                }
            }
            for cut in 0..name.len() {
                assert_eq!(read(&name.as_bytes()[..cut]), Err(BadHttp::FieldName), "{name} {cut}");
                assert_eq!(read(format!("{}:", &name[..cut]).as_bytes()).is_ok(), cut > 0, "{name} {cut}");
            }
            assert_eq!(read(format!("{name}s:v").as_bytes()), Ok((Field::Other, &b"v"[..])));
            assert_eq!(read(format!("{name} :v").as_bytes()), Err(BadHttp::FieldName));
        }
    }

    proptest! {
        #[test]
        fn words_agree_with_bytes(text in prop::collection::vec(any::<u8>(), 0..40)) {
            let control = text.iter().position(u8::is_ascii_control).unwrap_or(text.len());
            prop_assert_eq!(from_control(&text), &text[control..]);
            prop_assert_eq!(is_graphic(&text), text.iter().all(u8::is_ascii_graphic));
            prop_assert_eq!(short_text(&text), std::str::from_utf8(&text).ok());
        }

        #[test]
        fn a_short_text_is_what_the_standard_library_takes(text in ".{0,12}", cut in 0..12usize) {
            for bytes in [text.as_bytes(), &text.as_bytes()[..cut.min(text.len())]] {
                prop_assert_eq!(short_text(bytes), std::str::from_utf8(bytes).ok());
                prop_assert_eq!(trimmed(bytes), trim(bytes));
            }
        }
    }
}
