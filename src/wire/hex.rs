//! What bytes does a hexadecimal text stand for? Read in place: nothing is allocated, whatever the length.

/// Decoded bytes handed on at a time: a multiple of the block sizes of Keccak-256 (136) and SHA-256 (64).
const CHUNK: usize = 136 * 8;

/// The bytes that an even number of hexadecimal digits stands for.
#[derive(Debug, Clone, Copy)]
pub struct Hex<'a> {
    /// Digits only, two a byte.
    pairs: &'a [[u8; 2]],
}

impl<'a> Hex<'a> {
    /// `None` unless `digits` is an even number of hexadecimal digits of either case.
    pub fn new(digits: &'a [u8]) -> Option<Hex<'a>> {
        let (pairs, []) = digits.as_chunks() else { return None };
        // No early end, so that the compiler makes wide comparisons of it.
        let all_digits = digits.iter().fold(true, |all, &digit| all & is_digit(digit));
        all_digits.then_some(Hex { pairs })
    }

    /// How many bytes.
    pub fn len(self) -> usize {
        self.pairs.len()
    }

    /// Whether there is no byte.
    pub fn is_empty(self) -> bool {
        self.pairs.is_empty()
    }

    /// The byte at `at`.
    pub fn byte(self, at: usize) -> Option<u8> {
        self.pairs.get(at).map(decode)
    }

    /// The bytes from `start` to before `end`.
    pub fn range(self, start: usize, end: usize) -> Option<Hex<'a>> {
        self.pairs.get(start..end).map(|pairs| Hex { pairs })
    }

    /// Hands the bytes on, in order, in pieces.
    pub fn for_each_chunk(self, mut take: impl FnMut(&[u8])) {
        let mut buffer = [0; CHUNK];
        for pairs in self.pairs.chunks(CHUNK) {
            let Some(bytes) = buffer.get_mut(..pairs.len()) else { return };
            for (byte, pair) in bytes.iter_mut().zip(pairs) {
                *byte = decode(pair);
            }
            take(bytes);
        }
    }

    /// Whether these are exactly `bytes`.
    pub fn is(self, bytes: &[u8]) -> bool {
        self.pairs.iter().map(decode).eq(bytes.iter().copied())
    }
}

#[inline(always)]
fn is_digit(digit: u8) -> bool {
    (digit.wrapping_sub(b'0') < 10) | ((digit | 0x20).wrapping_sub(b'a') < 6)
}

/// Digits of both cases: the low four bits count from 0 or from 1, and bit 6 tells letters.
#[inline(always)]
fn decode(pair: &[u8; 2]) -> u8 {
    let [high, low] = pair.map(|digit| (digit & 15).wrapping_add((digit >> 6).wrapping_mul(9)));
    high << 4 | low
}

/// Writes `bytes` as lower-case digits; `digits` has two places a byte.
pub fn encode<'a>(digits: impl IntoIterator<Item = &'a mut u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let halves = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    for (digit, half) in digits.into_iter().zip(halves) {
        *digit = DIGITS[usize::from(half & 15)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_pair_of_bytes_is_judged_and_read_as_the_standard_library_does() {
        for high in 0..=255u8 {
            for low in 0..=255u8 {
                let digit = |byte| char::from(byte).to_digit(16);
                let expected = digit(high).zip(digit(low)).map(|(high, low)| (high * 16 + low) as u8);
                let pair = [high, low];
                assert_eq!(Hex::new(&pair).and_then(|hex| hex.byte(0)), expected, "{pair:?}");
            }
        }
    }

    #[test]
    fn an_odd_number_of_digits_is_none() {
        assert!(Hex::new(b"0").is_none());
        assert!(Hex::new(b"012").is_none());
        assert!(Hex::new(b"").is_some_and(|hex| hex.is_empty() && hex.byte(0).is_none()));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            bytes in prop::collection::vec(any::<u8>(), 0..3000),
            upper in any::<bool>(),
            cut in any::<(prop::sample::Index, prop::sample::Index)>(),
        ) {
            let mut digits = vec![0; bytes.len() * 2];
            encode(&mut digits, &bytes);
            if upper {
                digits.make_ascii_uppercase();
            }
            let hex = Hex::new(&digits).unwrap();
            prop_assert_eq!(hex.len(), bytes.len());
            prop_assert!(hex.is(&bytes));
            let mut again = Vec::new();
            hex.for_each_chunk(|chunk| again.extend_from_slice(chunk));
            prop_assert_eq!(&again, &bytes);
            let (from, to) = (cut.0.index(bytes.len() + 1), cut.1.index(bytes.len() + 1));
            prop_assert_eq!(hex.range(from, to).map(|part| part.is(&bytes[from..to])), (from <= to).then_some(true));
            prop_assert!(hex.range(0, bytes.len() + 1).is_none());
        }
    }
}
