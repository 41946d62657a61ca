//! The members of an envelope, one after the other. Most of what they hold is short, and read without setting out
//! for long texts; the rest is left to the scanner, and so is every judgement about what is JSON.

use super::json::{self, JsonError};
use std::ops::Range;

/// Validates the members of one object as they are read: for each one [`Members::next_name`], then
/// [`Members::skip`] or [`Members::resume`].
pub(super) struct Members<'a> {
    text: &'a [u8],
    at: usize,
    first: bool,
}

impl<'a> Members<'a> {
    /// Starts inside the object whose opening brace stands just before `at`.
    #[inline(always)]
    pub(super) fn new(text: &'a [u8], at: usize) -> Self {
        Members { text, at, first: true }
    }

    /// The next member's name between its quotes; afterwards [`Members::at`] is where its value must start.
    /// `None` is the end of the object, and `at` the position after the closing brace.
    #[inline(always)]
    pub(super) fn next_name(&mut self) -> Result<Option<&'a [u8]>, JsonError> {
        let mut at = skip_whitespace(self.text, self.at);
        match self.text.get(at) {
            Some(b'}') => {
                self.at = at + 1;
                return Ok(None);
            }
            Some(b',') if !self.first => at = skip_whitespace(self.text, at + 1),
            _ if self.first => {}
            _ => return Err(JsonError::Invalid),
        }
        self.first = false;
        let Some(b'"') = self.text.get(at) else { return Err(JsonError::Invalid) };
        let end = string_end(self.text, at)?;
        let colon = skip_whitespace(self.text, end);
        let Some(b':') = self.text.get(colon) else { return Err(JsonError::Invalid) };
        self.at = skip_whitespace(self.text, colon + 1);
        Ok(Some(self.text.get(at + 1..end - 1).unwrap_or_default()))
    }

    /// Skips the value, which may be `depth_max` levels deep, and gives its place.
    #[inline(always)]
    pub(super) fn skip(&mut self, depth_max: usize) -> Result<Range<usize>, JsonError> {
        let start = self.at;
        self.at = match self.text.get(start) {
            Some(b'"') => string_end(self.text, start)?,
            _ => json::skip_value(self.text, start, depth_max)?,
        };
        Ok(start..self.at)
    }

    /// The value was read by other means, and ends at `at`.
    pub(super) fn resume(&mut self, at: usize) {
        self.at = at;
    }

    /// Where the walk stands.
    pub(super) fn at(&self) -> usize {
        self.at
    }
}

/// As the scanner's own, and nearly always there is none.
#[inline(always)]
fn skip_whitespace(text: &[u8], at: usize) -> usize {
    match text.get(at) {
        Some(b'!'..) => at,
        _ => json::skip_whitespace(text, at),
    }
}

/// The end of the string whose opening quote stands at `at`.
#[inline(always)]
fn string_end(text: &[u8], at: usize) -> Result<usize, JsonError> {
    match short_string_end(text, at + 1) {
        Some(end) => Ok(end),
        None => json::skip_value(text, at, 0),
    }
}

/// The position after the closing quote, if it is among the next sixteen bytes and only plain ASCII before it.
#[inline(always)]
fn short_string_end(text: &[u8], at: usize) -> Option<usize> {
    let some: &[u8; 16] = text.get(at..)?.first_chunk()?;
    let both = u128::from_le_bytes(*some);
    let (first, second) = (stops(both as u64), stops((both >> 64) as u64));
    let length = match first {
        0 => 8 + second.trailing_zeros() / 8,
        _ => first.trailing_zeros() / 8,
    } as usize;
    (*some.get(length)? == b'"').then_some(at + length + 1)
}

/// The high bit of the first byte that ends a run of plain ASCII; bits above it say nothing.
#[inline(always)]
const fn stops(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES << 7;
    let (quote, backslash) = (word ^ (b'"' as u64 * ONES), word ^ (b'\\' as u64 * ONES));
    // A subtraction borrows from the next byte only where this one is such a byte already.
    let found = (quote.wrapping_sub(ONES) & !quote)
        | (backslash.wrapping_sub(ONES) & !backslash)
        | (word.wrapping_sub(0x20 * ONES) & !word)
        | word;
    found & HIGH
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_short_string_ends_at_its_quote_and_nothing_else_ends_one() {
        for place in 0..20 {
            for byte in 0..=255u8 {
                let mut text = [b'a'; 40];
                text[place] = byte;
                let expected = if byte == b'"' && place < 16 { Some(place + 1) } else { None };
                assert_eq!(short_string_end(&text, 0), expected, "{byte:#x} at {place}");
            }
        }
        assert_eq!(short_string_end(b"abc\"", 0), None, "too near to the end");
    }

    type Read = Result<(Vec<(Vec<u8>, Range<usize>)>, usize), JsonError>;

    fn read(text: &[u8]) -> Read {
        let (mut members, mut found) = (Members::new(text, 0), Vec::new());
        while let Some(name) = members.next_name()? {
            found.push((name.to_vec(), members.skip(3)?));
        }
        Ok((found, members.at()))
    }

    fn read_by_the_scanner(text: &[u8]) -> Read {
        let (mut members, mut found) = (json::Members::new(text, 0), Vec::new());
        while let Some(name) = members.next_name()? {
            found.push((text[name].to_vec(), members.skip(3)?));
        }
        Ok((found, members.at()))
    }

    fn pieces() -> impl Strategy<Value = Vec<&'static str>> {
        const OF: [&str; 23] = [
            "\"id\"",
            "\"jsonrpc\"",
            "\"\"",
            ":",
            ":",
            ",",
            ",",
            "}",
            " ",
            "\n",
            "7",
            "\"2.0\"",
            "[1,{\"a\":[]}]",
            "{",
            "\"a name of more than sixteen bytes\"",
            "\"m\\u0065thod\"",
            "\"é\"",
            "\"\u{1}\"",
            "\"",
            "null",
            "-1.5e3",
            "[[[[]]]]",
            "x",
        ];
        prop::collection::vec(prop::sample::select(&OF[..]), 0..16)
    }

    proptest! {
        #[test]
        fn members_are_those_of_the_scanner(pieces in pieces(), rest in "[ -~]{0,20}") {
            let text = pieces.concat() + &rest;
            prop_assert_eq!(read(text.as_bytes()), read_by_the_scanner(text.as_bytes()));
        }

        #[test]
        fn so_are_those_of_whole_objects(
            members in prop::collection::vec(("[a-z\\\\\"é]{0,20}", "[ -~]{0,20}"), 0..6),
            between in prop::sample::select(&["", " ", "\n"][..]),
        ) {
            let quoted = |text: &str| serde_json::to_string(text).unwrap();
            let one = |(name, value): &(String, String)| {
                format!("{between}{}{between}:{between}{}{between}", quoted(name), quoted(value))
            };
            let text = members.iter().map(one).collect::<Vec<_>>().join(",") + "}";
            let found = read(text.as_bytes());
            prop_assert!(found.as_ref().is_ok_and(|(found, _)| found.len() == members.len()), "{}", text);
            prop_assert_eq!(found, read_by_the_scanner(text.as_bytes()));
        }
    }
}
