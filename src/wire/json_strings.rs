//! Where does a JSON string end, and is what it holds allowed? Block by block over one text.
//!
//! Plain ASCII is passed over by stop bits. Escapes are checked one by one, non-ASCII runs by the
//! standard library's UTF-8 check.

use super::json::JsonError;
use super::json_simd::{BLOCK, Vectors};

/// Skips strings one after the other, and remembers the stops of the block where the last one ended.
pub struct Strings<'a, V> {
    text: &'a [u8],
    vectors: V,
    /// Where the block starts; never after a position that is asked for later.
    base: usize,
    stops: u64,
}

impl<'a, V: Vectors> Strings<'a, V> {
    /// Starts at `base`; positions are asked for in rising order.
    #[inline(always)]
    pub fn new(text: &'a [u8], base: usize, vectors: V) -> Self {
        let mut strings = Strings { text, vectors, base, stops: 0 };
        strings.load();
        strings
    }

    #[inline(always)]
    fn load(&mut self) {
        let rest = self.text.get(self.base..).unwrap_or_default();
        self.stops = match rest.first_chunk() {
            Some(block) => self.vectors.stops(block),
            None => self.last_stops(rest.len()),
        };
    }

    /// The stops of a rest that is shorter than a block: its end is one too.
    fn last_stops(&self, rest: usize) -> u64 {
        // All bits from the end of the text on.
        let end = u64::MAX.checked_shl(rest as u32).unwrap_or(0);
        match self.text.last_chunk() {
            Some(block) => {
                let stops = self.vectors.stops(block);
                stops.checked_shr((BLOCK - rest) as u32).unwrap_or(0) | end
            }
            None => {
                let mut block = [0; BLOCK];
                let start = self.text.len() - rest;
                for (to, from) in block.iter_mut().zip(self.text.get(start..).unwrap_or_default()) {
                    *to = *from;
                }
                self.vectors.stops(&block)
            }
        }
    }

    /// The first position at or after `at` whose byte is a quote, a backslash, a control character or
    /// non-ASCII; the end of the text or more if there is none.
    #[inline(always)]
    fn plain_end(&mut self, mut at: usize) -> usize {
        // Wrapping, so that a position before the block would only be loaded anew.
        if at.wrapping_sub(self.base) >= BLOCK {
            self.base += BLOCK;
            if at.wrapping_sub(self.base) >= BLOCK {
                self.base = at;
            }
            self.load();
        }
        loop {
            let stops = self.stops >> (at - self.base);
            if stops != 0 {
                return at + stops.trailing_zeros() as usize;
            }
            self.base += BLOCK;
            self.load();
            at = self.base;
        }
    }

    /// The position after the closing quote of the string whose content starts at `at`.
    #[inline(always)]
    pub fn skip(&mut self, mut at: usize) -> Result<usize, JsonError> {
        loop {
            let stop = self.plain_end(at);
            match self.text.get(stop) {
                Some(b'"') => return Ok(stop + 1),
                Some(b'\\') => at = skip_escape(self.text, stop + 1)?,
                Some(0x80..) => at = skip_unicode(self.text, stop)?,
                _ => return Err(JsonError::Invalid),
            }
        }
    }
}

/// The end of the run of non-ASCII characters that starts at `start`.
#[inline(never)]
fn skip_unicode(text: &[u8], start: usize) -> Result<usize, JsonError> {
    let mut at = start;
    while let Some(bytes) = text.get(at..).and_then(<[u8]>::first_chunk) {
        match character_len(u32::from_le_bytes(*bytes)) {
            Some(0) => return Ok(at),
            Some(length) => at += length,
            None => return Err(JsonError::Invalid),
        }
    }
    let rest = text.get(at..).unwrap_or_default();
    let length = rest.iter().position(u8::is_ascii).unwrap_or(rest.len());
    let (run, _) = rest.split_at_checked(length).unwrap_or_default();
    // A character ends where the run ends, or it is none.
    std::str::from_utf8(run).map_err(|_| JsonError::Invalid)?;
    Ok(at + length)
}

/// How many bytes the non-ASCII character has that these four (the first is the lowest) begin with: 0 if it is ASCII,
/// `None` if it is no character. What is too long, a surrogate or behind U+10FFFF shows in the first ten bits of its code.
#[inline(always)]
fn character_len(bytes: u32) -> Option<usize> {
    let (lead, first) = (bytes & 0xff, bytes >> 8 & 0x3f);
    if bytes & 0x00c0_c0f0 == 0x0080_80e0 {
        let top = (lead & 0xf) << 6 | first;
        (top >= 0x20 && top >> 5 != 0x360 >> 5).then_some(3)
    } else if bytes & 0xc0e0 == 0x80c0 {
        (lead >= 0xc2).then_some(2)
    } else if bytes & 0xc0c0_c0f8 == 0x8080_80f0 {
        let top = (lead & 0x7) << 6 | first;
        (0x10..0x110).contains(&top).then_some(4)
    } else {
        (lead < 0x80).then_some(0)
    }
}

#[inline(always)]
fn skip_escape(text: &[u8], at: usize) -> Result<usize, JsonError> {
    match text.get(at) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 1),
        Some(b'u') => match text.get(at + 1..at + 5) {
            Some(hex) if hex.iter().all(u8::is_ascii_hexdigit) => Ok(at + 5),
            _ => Err(JsonError::Invalid),
        },
        _ => Err(JsonError::Invalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_what_the_standard_library_says_they_are() {
        let edges: Vec<u8> = (0..=255).step_by(16).flat_map(|byte| [byte, byte + 1, byte + 15]).collect();
        for lead in 0..=255u8 {
            for second in 0..=255u8 {
                for (third, fourth) in edges.iter().flat_map(|third| edges.iter().map(|fourth| (*third, *fourth))) {
                    let bytes = [lead, second, third, fourth];
                    let whole = (1..=4).find(|length| std::str::from_utf8(&bytes[..*length]).is_ok());
                    let expected = if lead < 0x80 { Some(0) } else { whole };
                    assert_eq!(character_len(u32::from_le_bytes(bytes)), expected, "{bytes:x?}");
                }
            }
        }
        for code in (0x80..=0x10_ffff).filter_map(char::from_u32) {
            let mut bytes = [b'"'; 4];
            let length = code.encode_utf8(&mut bytes).len();
            assert_eq!(character_len(u32::from_le_bytes(bytes)), Some(length), "{code:?}");
        }
    }

    #[test]
    fn a_run_of_characters_ends_with_the_text_too() {
        for text in ["é", "漢", "😀", "漢字", "é漢😀"] {
            let text = text.as_bytes();
            assert_eq!(skip_unicode(text, 0), Ok(text.len()));
            assert_eq!(skip_unicode(&[text, b"abc"].concat(), 0), Ok(text.len()));
            for behind in [&b""[..], b"a", b"ab", b"abc", b"abcd"] {
                assert_eq!(skip_unicode(&[&text[..text.len() - 1], behind].concat(), 0), Err(JsonError::Invalid));
            }
        }
    }
}
