//! Which result belongs to a request: the one rule that the upstream answers by and the generator checks by.
//!
//! A result is a template of the wanted size with stamps: hex digits that follow from the request's key, so that
//! no two requests share a result and a swapped answer shows. Up to 1 KB it is one hex string made of stamps; above,
//! an array of log-like objects with two stamps each, so that building and comparing costs little more than a copy.

/// Results above this many bytes are arrays of log-like objects.
const STRING_SIZE_MAX: usize = 1024;
/// The smallest result: an empty hex string, quotes included.
pub const SIZE_MIN: usize = 4;
/// The largest result.
pub const SIZE_MAX: usize = 64 << 20;
/// From one stamp of a key's stream to the next.
const STREAM_STEP: u64 = 0x9e37_79b9_7f4a_7c15;
/// Hex digits in a whole stamp.
const STAMP_DIGITS: usize = 16;

/// A result of a fixed size, waiting for the stamps of a request.
pub struct Template {
    bytes: Vec<u8>,
    stamps: Vec<Stamp>,
}

/// Where hex digits of the key's stream go.
struct Stamp {
    at: usize,
    digits: usize,
}

impl Template {
    /// A template for results of `size` bytes of JSON, held to `SIZE_MIN..=SIZE_MAX`.
    pub fn new(size: usize) -> Self {
        let size = size.clamp(SIZE_MIN, SIZE_MAX);
        let mut template = Self { bytes: Vec::with_capacity(size), stamps: Vec::new() };
        if size <= STRING_SIZE_MAX {
            template.text("\"0x");
            template.stamp(size - SIZE_MIN);
            template.text("\"");
        } else {
            template.logs(size);
        }
        template
    }

    /// Bytes of every result of this template.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the result that belongs to `seed`.
    pub fn append(&self, seed: u64, out: &mut Vec<u8>) {
        let base = out.len();
        out.extend_from_slice(&self.bytes);
        let target = &mut out[base..];
        let mut stream = seed;
        for stamp in &self.stamps {
            stream = stream.wrapping_add(STREAM_STEP);
            let digits = hex(mix(stream));
            target[stamp.at..stamp.at + stamp.digits].copy_from_slice(&digits[..stamp.digits]);
        }
    }

    /// `result` is the one that belongs to `seed`, byte for byte: what [`Template::append`] writes, without writing it.
    pub fn is(&self, seed: u64, result: &[u8]) -> bool {
        if result.len() != self.bytes.len() {
            return false;
        }
        let (mut stream, mut at) = (seed, 0);
        for stamp in &self.stamps {
            stream = stream.wrapping_add(STREAM_STEP);
            let end = stamp.at + stamp.digits;
            if result[at..stamp.at] != self.bytes[at..stamp.at]
                || result[stamp.at..end] != hex(mix(stream))[..stamp.digits]
            {
                return false;
            }
            at = end;
        }
        result[at..] == self.bytes[at..]
    }

    fn text(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn zeros(&mut self, count: usize) {
        self.bytes.resize(self.bytes.len() + count, b'0');
    }

    /// Reserves `digits` hex digits for the key's stream.
    fn stamp(&mut self, digits: usize) {
        let mut left = digits;
        while left > 0 {
            let digits = left.min(STAMP_DIGITS);
            self.stamps.push(Stamp { at: self.bytes.len(), digits });
            self.zeros(digits);
            left -= digits;
        }
    }

    /// An array of logs; the last one's data is stretched to meet `size` exactly.
    fn logs(&mut self, size: usize) {
        self.log(0);
        let one = self.bytes.len();
        self.bytes.clear();
        self.stamps.clear();
        let count = ((size - 1) / (one + 1)).max(1);
        let stretch = size.saturating_sub(1 + count * (one + 1));
        self.text("[");
        for index in 1..=count {
            self.log(if index == count { stretch } else { 0 });
            self.text(if index == count { "]" } else { "," });
        }
    }

    /// One log as nodes write it, with a stamp in its data and in its transaction hash.
    fn log(&mut self, stretch: usize) {
        self.text(r#"{"address":"0xdac17f958d2ee523a2206206994597c13d831ec7","topics":["#);
        self.text(r#""0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef","#);
        self.text(r#""0x00000000000000000000000028c6c06298d514db089934071355e5743bf21d60","#);
        self.text(r#""0x0000000000000000000000003fc91a3afd70395cd496c647d5a6cc9d4b2b7fad"],"data":"0x"#);
        self.zeros(64 - STAMP_DIGITS + stretch);
        self.stamp(STAMP_DIGITS);
        self.text(r#"","blockNumber":"0x1312d00","transactionHash":"0x"#);
        self.stamp(STAMP_DIGITS);
        self.text(r#"1f0d5e0c8a4b7f6e3d2c1b0a9f8e7d6c5b4a39281706f5e4","transactionIndex":"0x2a","#);
        self.text(r#""blockHash":"0xd24fd73f794058a3807db926d8898c6481e902b7edb91ce0d479d6760f276183","#);
        self.text(r#""logIndex":"0x1f","removed":false}"#);
    }
}

/// The start of a key's stream: FNV-1a, mixed, so that keys that differ by one digit share no stamps.
pub fn seed(key: &[u8]) -> u64 {
    let hash = key
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    mix(hash)
}

/// The finalizer of SplitMix64: a bijection, so distinct inputs stay distinct.
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The sixteen lower-case hex digits of `value`.
pub fn hex(value: u64) -> [u8; STAMP_DIGITS] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut out = [0; STAMP_DIGITS];
    for (pair, byte) in out.chunks_exact_mut(2).zip(value.to_be_bytes()) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(size: usize, key: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Template::new(size).append(seed(key), &mut out);
        out
    }

    #[test]
    fn every_size_is_met_exactly() {
        for size in (SIZE_MIN..5000).chain([100_000, 100_001, 1_000_000]) {
            assert_eq!(result(size, b"7").len(), size);
            assert_eq!(Template::new(size).size(), size);
        }
        assert_eq!(result(0, b"7").len(), SIZE_MIN);
    }

    #[test]
    fn a_small_result_is_a_hex_string() {
        let small = result(120, b"7");
        assert!(small.starts_with(b"\"0x") && small.ends_with(b"\""));
        assert!(small[3..119].iter().all(u8::is_ascii_hexdigit));
    }

    #[test]
    fn a_big_result_is_an_array_of_logs() {
        let big = String::from_utf8(result(100_000, b"7")).unwrap();
        let logs = big.matches(r#"{"address":"#).count();
        assert!(logs > 100, "{logs} logs");
        assert_eq!(big.matches(r#""removed":false}"#).count(), logs);
        assert!(big.starts_with("[{") && big.ends_with("}]"));
        assert_eq!(big.matches('"').count() % 2, 0);
    }

    #[test]
    fn a_result_is_its_own_and_no_other() {
        for size in [SIZE_MIN, 20, 119, 120, 1025, 3000] {
            let (template, own) = (Template::new(size), result(size, b"7"));
            assert!(template.is(seed(b"7"), &own));
            assert_eq!(template.is(seed(b"8"), &own), size == SIZE_MIN, "size {size}");
            assert!(!template.is(seed(b"7"), &own[1..]));
            assert!(!template.is(seed(b"7"), &[own.as_slice(), b" "].concat()));
            for at in 0..size {
                let mut wrong = own.clone();
                wrong[at] ^= 1;
                assert!(!template.is(seed(b"7"), &wrong), "size {size}, byte {at}");
            }
        }
    }

    #[test]
    fn neighbouring_keys_differ_in_every_stamp() {
        for size in [120, 1024, 1025, 100_000] {
            let (one, two) = (result(size, b"1000"), result(size, b"1001"));
            for stamp in &Template::new(size).stamps {
                if stamp.digits >= 8 {
                    let range = stamp.at..stamp.at + stamp.digits;
                    assert_ne!(one[range.clone()], two[range], "size {size}, offset {}", stamp.at);
                }
            }
        }
    }

    #[test]
    fn hex_is_what_format_writes() {
        for value in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
            assert_eq!(hex(value).as_slice(), format!("{value:016x}").as_bytes());
        }
    }
}
