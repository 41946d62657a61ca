//! What does a JSON string say? Unescaping, comparing without unescaping, and quoting.

use memchr::memchr;
use std::borrow::Cow;

/// The text of a string, from the bytes between its quotes. `None` if no Rust string can hold it: a lone
/// surrogate escape (or bytes that no scanner has accepted). Allocates only if there is an escape.
pub fn unescape(raw: &[u8]) -> Option<Cow<'_, str>> {
    let Some(first) = memchr(b'\\', raw) else {
        return std::str::from_utf8(raw).ok().map(Cow::Borrowed);
    };
    let mut text = String::with_capacity(raw.len());
    let (mut at, mut escape) = (0, first);
    loop {
        text.push_str(std::str::from_utf8(raw.get(at..escape)?).ok()?);
        let (code, next) = read_escape(raw, escape)?;
        text.push(char::from_u32(code)?);
        at = next;
        let rest = raw.get(at..)?;
        match memchr(b'\\', rest) {
            Some(run) => escape = at + run,
            None => {
                text.push_str(std::str::from_utf8(rest).ok()?);
                return Some(Cow::Owned(text));
            }
        }
    }
}

/// The code points of a string, from the bytes between its quotes; lone surrogates come as they are.
/// Ends early at bytes that no scanner has accepted.
#[derive(Debug, Clone)]
pub struct CodePoints<'a> {
    raw: &'a [u8],
}

impl<'a> CodePoints<'a> {
    /// Reads `raw`, the bytes between the quotes.
    pub fn new(raw: &'a [u8]) -> Self {
        CodePoints { raw }
    }
}

impl Iterator for CodePoints<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let (code, length) = match *self.raw.first()? {
            b'\\' => read_escape(self.raw, 0)?,
            ascii @ 0..0x80 => (u32::from(ascii), 1),
            lead => {
                let length = 2 + usize::from(lead >= 0xe0) + usize::from(lead >= 0xf0);
                let text = std::str::from_utf8(self.raw.get(..length)?).ok()?;
                (u32::from(text.chars().next()?), length)
            }
        };
        self.raw = self.raw.get(length..)?;
        Some(code)
    }
}

/// Whether the string with the bytes `raw` between its quotes says exactly `text` (ASCII).
#[inline]
pub fn says(raw: &[u8], text: &[u8]) -> bool {
    raw == text || (memchr(b'\\', raw).is_some() && CodePoints::new(raw).eq(text.iter().map(|&byte| u32::from(byte))))
}

/// Whether the string with the bytes `raw` between its quotes says `text` (ASCII) to a reader that folds case: Go's
/// `encoding/json` finds members so, where others compare them.
pub fn folds_to(raw: &[u8], text: &[u8]) -> bool {
    CodePoints::new(raw).map(fold).eq(text.iter().map(|&byte| fold(u32::from(byte))))
}

/// Unicode's simple case folding, as far as it reaches ASCII: besides the capitals that are the long s and the Kelvin
/// sign.
fn fold(code: u32) -> u32 {
    match char::from_u32(code) {
        Some('A'..='Z') => code | 0x20,
        Some('\u{17f}') => u32::from(b's'),
        Some('\u{212a}') => u32::from(b'k'),
        _ => code,
    }
}

/// Whether `text` (ASCII) occurs in the string with the bytes `raw` between its quotes.
pub fn contains(raw: &[u8], text: &[u8]) -> bool {
    let mut rest = CodePoints::new(raw);
    loop {
        let mut here = rest.clone();
        if text.iter().all(|&byte| here.next() == Some(u32::from(byte))) {
            return true;
        }
        if rest.next().is_none() {
            return false;
        }
    }
}

/// The code point of the escape whose backslash stands at `at`, and the position after it. Two
/// surrogates that make a pair are one escape.
fn read_escape(raw: &[u8], at: usize) -> Option<(u32, usize)> {
    let code = match raw.get(at + 1)? {
        b'u' => return read_unicode_escape(raw, at),
        b'b' => 8,
        b'f' => 12,
        b'n' => 10,
        b'r' => 13,
        b't' => 9,
        &same @ (b'"' | b'\\' | b'/') => u32::from(same),
        _ => return None,
    };
    Some((code, at + 2))
}

fn read_unicode_escape(raw: &[u8], at: usize) -> Option<(u32, usize)> {
    let code = read_hex(raw, at)?;
    if (0xd800..0xdc00).contains(&code)
        && let Some(low @ 0xdc00..0xe000) = read_hex(raw, at + 6)
    {
        return Some((0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00), at + 12));
    }
    Some((code, at + 6))
}

/// Reads `\uXXXX` at `at`.
fn read_hex(raw: &[u8], at: usize) -> Option<u32> {
    let [b'\\', b'u', digits @ ..] = raw.get(at..at + 6)? else { return None };
    digits.iter().try_fold(0, |code, &digit| Some(code << 4 | char::from(digit).to_digit(16)?))
}

/// How many bytes [`quote`] writes for `text`.
pub fn quoted_len(text: &str) -> usize {
    text.bytes().fold(2, |sum, byte| {
        sum + match byte {
            b'"' | b'\\' | 8 | 9 | 10 | 12 | 13 => 2,
            0..0x20 => 6,
            _ => 1,
        }
    })
}

/// Appends `text` as a JSON string. Only what RFC 8259 demands is escaped.
pub fn quote(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            8 => out.extend_from_slice(b"\\b"),
            9 => out.extend_from_slice(b"\\t"),
            10 => out.extend_from_slice(b"\\n"),
            12 => out.extend_from_slice(b"\\f"),
            13 => out.extend_from_slice(b"\\r"),
            0..0x20 => {
                out.extend_from_slice(b"\\u00");
                out.extend([byte >> 4, byte & 15].map(|half| HEX[usize::from(half)]));
            }
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_is_copied_without_an_escape() {
        assert!(matches!(unescape(b"eth_call"), Some(Cow::Borrowed("eth_call"))));
        assert!(matches!(unescape("é".as_bytes()), Some(Cow::Borrowed("é"))));
        assert!(matches!(unescape(b""), Some(Cow::Borrowed(""))));
    }

    #[test]
    fn escapes_are_decoded() {
        for (raw, text) in [
            (r"\u0065th\u005Fcall", "eth_call"),
            (r#"\"\\\/\b\f\n\r\t"#, "\"\\/\u{8}\u{c}\n\r\t"),
            (r"\ud83d\uDE00!", "😀!"),
            (r"a\u0000é", "a\0é"),
        ] {
            assert_eq!(unescape(raw.as_bytes()).as_deref(), Some(text));
            assert!(CodePoints::new(raw.as_bytes()).eq(text.chars().map(u32::from)), "{raw}");
        }
    }

    #[test]
    fn lone_surrogates_are_no_text_but_have_a_code() {
        for (raw, codes) in [
            (r"\ud800", vec![0xd800]),
            (r"\udc00\ud800", vec![0xdc00, 0xd800]),
            (r"\udc00\udc01", vec![0xdc00, 0xdc01]),
            (r"\ud800\ud800\udc00", vec![0xd800, 0x10000]),
            (r"\ud800a", vec![0xd800, 0x61]),
        ] {
            assert_eq!(unescape(raw.as_bytes()), None, "{raw}");
            assert_eq!(CodePoints::new(raw.as_bytes()).collect::<Vec<_>>(), codes, "{raw}");
        }
    }

    #[test]
    fn unchecked_bytes_do_no_harm() {
        for raw in [&b"\\"[..], b"\\u", b"\\u12", b"\\u12x4", b"\\q", b"\xff", b"a\xe6\xbc", b"\\n\xff"] {
            assert_eq!(unescape(raw), None, "{raw:x?}");
            assert!(CodePoints::new(raw).count() <= raw.len());
        }
    }

    #[test]
    fn comparing_sees_through_escapes() {
        for raw in ["id", r"\u0069d", r"i\u0064", r"\u0069\u0064"] {
            assert!(says(raw.as_bytes(), b"id"), "{raw}");
        }
        for raw in ["", "i", "ids", "ID", r"\u0049d", r"\u0069", r"id\u0000", r"\\u0069d"] {
            assert!(!says(raw.as_bytes(), b"id"), "{raw}");
        }
        assert!(contains(b"class x : lack of it", b"lack of"));
        assert!(contains(br"l\u0061ck of", b"lack of"));
        assert!(contains(b"lalack", b"lack"));
        assert!(contains(b"", b""));
        assert!(!contains(b"lack o", b"lack of"));
        assert!(!contains(br"lack\nof", b"lack of"));
    }

    proptest! {
        #[test]
        fn unescaping_is_serde_jsons(raw in "([ -!#-\\[\\]-~é漢😀]|\\\\[\"\\\\/bfnrt]|\\\\u[dD89aAcCfF0][0-9a-fA-F]{3}){0,12}") {
            let expected = serde_json::from_str::<String>(&format!("\"{raw}\"")).ok();
            let found = unescape(raw.as_bytes());
            prop_assert_eq!(found.as_deref(), expected.as_deref());
            if let Some(text) = expected {
                prop_assert!(CodePoints::new(raw.as_bytes()).eq(text.chars().map(u32::from)));
            }
        }

        #[test]
        fn quoting_is_serde_jsons_and_its_length_is_known(text in any::<String>()) {
            let mut out = Vec::new();
            quote(&mut out, &text);
            prop_assert_eq!(out.len(), quoted_len(&text));
            prop_assert_eq!(&out, &serde_json::to_vec(&text).unwrap());
        }

        #[test]
        fn control_characters_are_quoted_so_too(text in "[\u{0}-\u{22}\\\\\u{7f}]{0,20}") {
            let mut out = Vec::new();
            quote(&mut out, &text);
            prop_assert_eq!(out.len(), quoted_len(&text));
            prop_assert_eq!(&out, &serde_json::to_vec(&text).unwrap());
        }
    }
}
