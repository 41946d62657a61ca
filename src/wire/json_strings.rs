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
    let rest = text.get(start..).unwrap_or_default();
    let length = rest.iter().position(u8::is_ascii).unwrap_or(rest.len());
    let (run, _) = rest.split_at_checked(length).unwrap_or_default();
    // A character ends where the run ends, or it is none.
    std::str::from_utf8(run).map_err(|_| JsonError::Invalid)?;
    Ok(start + length)
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
