//! Where does a run of plain string bytes end? Sixteen or thirty-two bytes at a time where the CPU can.
//!
//! The only file of the JSON scanner with `unsafe`: vector loads, and the call of code that was compiled
//! for AVX2. Everything that indexes the input is safe slicing.
#![allow(unsafe_code)]

/// Whether `byte` ends a run of plain ASCII string content: quote, backslash, control or non-ASCII byte.
const fn ends_plain(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < 0x20 || byte >= 0x80
}

/// Whether `byte` ends a run of string content that may hold non-ASCII bytes: quote, backslash or control.
const fn ends_content(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < 0x20
}

/// The first position at or after `at` whose byte is a quote, a backslash, a control character or
/// non-ASCII; the length of `text` if there is none.
#[inline(always)]
pub fn plain_end(text: &[u8], at: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        x86::plain_end(text, at)
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        scalar_plain_end(text, at)
    }
}

/// The first position at or after `at` whose byte is a quote, a backslash or a control character; the
/// length of `text` if there is none.
#[inline]
pub fn content_end(text: &[u8], at: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        x86::content_end(text, at)
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        scalar_content_end(text, at)
    }
}

/// [`plain_end`], byte by byte.
pub fn scalar_plain_end(text: &[u8], at: usize) -> usize {
    scalar_end(text, at, ends_plain)
}

/// [`content_end`], byte by byte.
pub fn scalar_content_end(text: &[u8], at: usize) -> usize {
    scalar_end(text, at, ends_content)
}

#[inline(always)]
fn scalar_end(text: &[u8], at: usize, ends: fn(u8) -> bool) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    rest.iter().position(|&byte| ends(byte)).map_or(text.len(), |run| at.saturating_add(run))
}

/// SSE2 is part of x86-64; AVX2 is looked for at run time, for long strings alone.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_cmpeq_epi8, _mm_cmplt_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8,
        _mm_or_si128, _mm_set1_epi8, _mm256_cmpeq_epi8, _mm256_cmpgt_epi8, _mm256_loadu_si256, _mm256_movemask_epi8,
        _mm256_or_si256, _mm256_set1_epi8,
    };

    /// Strings whose plain run is longer than this go on in AVX2 code: the call costs more than the
    /// wider steps save on a shorter one.
    const SHORT_CHUNKS: usize = 5;

    #[inline(always)]
    pub fn plain_end(text: &[u8], at: usize) -> usize {
        let mut at = at;
        for _ in 0..SHORT_CHUNKS {
            let Some(chunk) = text.get(at..).and_then(<[u8]>::first_chunk::<16>) else {
                return super::scalar_plain_end(text, at);
            };
            let stops = plain_stops(chunk);
            if stops != 0 {
                return at + stops.trailing_zeros() as usize;
            }
            at += 16;
        }
        long_plain_end(text, at)
    }

    #[inline(never)]
    fn long_plain_end(text: &[u8], mut at: usize) -> usize {
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the line above found AVX2 on this CPU.
            return unsafe { wide_plain_end(text, at) };
        }
        while let Some(chunk) = text.get(at..).and_then(<[u8]>::first_chunk::<16>) {
            let stops = plain_stops(chunk);
            if stops != 0 {
                return at + stops.trailing_zeros() as usize;
            }
            at += 16;
        }
        super::scalar_plain_end(text, at)
    }

    pub fn content_end(text: &[u8], mut at: usize) -> usize {
        while let Some(chunk) = text.get(at..).and_then(<[u8]>::first_chunk::<16>) {
            let stops = content_stops(chunk);
            if stops != 0 {
                return at + stops.trailing_zeros() as usize;
            }
            at += 16;
        }
        super::scalar_content_end(text, at)
    }

    #[target_feature(enable = "avx2")]
    fn wide_plain_end(text: &[u8], mut at: usize) -> usize {
        while let Some(chunk) = text.get(at..).and_then(<[u8]>::first_chunk::<32>) {
            let bytes = load_wide(chunk);
            let quote = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(b'"' as i8));
            let backslash = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(b'\\' as i8));
            // Signed: bytes from 0x80 on are negative, so one comparison finds control and non-ASCII bytes.
            let outside = _mm256_cmpgt_epi8(_mm256_set1_epi8(0x20), bytes);
            let stops = _mm256_movemask_epi8(_mm256_or_si256(_mm256_or_si256(quote, backslash), outside));
            if stops != 0 {
                return at + stops.trailing_zeros() as usize;
            }
            at += 32;
        }
        super::scalar_plain_end(text, at)
    }

    #[inline(always)]
    fn plain_stops(chunk: &[u8; 16]) -> i32 {
        // SAFETY: SSE2 is part of every x86-64 CPU.
        unsafe { plain_stops_sse2(chunk) }
    }

    #[inline(always)]
    fn content_stops(chunk: &[u8; 16]) -> i32 {
        // SAFETY: SSE2 is part of every x86-64 CPU.
        unsafe { content_stops_sse2(chunk) }
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn plain_stops_sse2(chunk: &[u8; 16]) -> i32 {
        let bytes = load(chunk);
        // Signed: bytes from 0x80 on are negative, so one comparison finds control and non-ASCII bytes.
        let outside = _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20));
        _mm_movemask_epi8(_mm_or_si128(quote_or_backslash(bytes), outside))
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn content_stops_sse2(chunk: &[u8; 16]) -> i32 {
        let bytes = load(chunk);
        // Unsigned: a byte is a control character exactly if capping it at 0x1f changes nothing.
        let control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes);
        _mm_movemask_epi8(_mm_or_si128(quote_or_backslash(bytes), control))
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn quote_or_backslash(bytes: __m128i) -> __m128i {
        let quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'"' as i8));
        let backslash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'\\' as i8));
        _mm_or_si128(quote, backslash)
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn load(chunk: &[u8; 16]) -> __m128i {
        // SAFETY: the reference covers 16 readable bytes, and `loadu` asks for no alignment.
        unsafe { _mm_loadu_si128(chunk.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load_wide(chunk: &[u8; 32]) -> __m256i {
        // SAFETY: the reference covers 32 readable bytes, and `loadu` asks for no alignment.
        unsafe { _mm256_loadu_si256(chunk.as_ptr().cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_byte_at_every_place_stops_the_run_as_the_scalar_form_says() {
        for length in [1, 15, 16, 17, 31, 33, 80, 81, 112, 130, 161] {
            for place in 0..length {
                for byte in 0..=255u8 {
                    let mut text = vec![b'a'; length];
                    text[place] = byte;
                    let plain = byte != b'"' && byte != b'\\' && (0x20..0x80).contains(&byte);
                    assert_eq!(
                        plain_end(&text, 0),
                        if plain { length } else { place },
                        "{byte:#x} at {place}/{length}"
                    );
                    let content = byte != b'"' && byte != b'\\' && byte >= 0x20;
                    assert_eq!(content_end(&text, 0), if content { length } else { place });
                }
            }
        }
    }

    #[test]
    fn a_start_past_the_end_is_the_end() {
        assert_eq!(plain_end(b"abc", 3), 3);
        assert_eq!(plain_end(b"abc", 9), 3);
        assert_eq!(content_end(b"abc", 9), 3);
    }

    proptest! {
        #[test]
        fn vectors_agree_with_the_scalar_form(
            text in prop::collection::vec(prop_oneof![30 => b' '..=b'~', 1 => any::<u8>()], 0..400),
            at in 0usize..420,
        ) {
            prop_assert_eq!(plain_end(&text, at), scalar_plain_end(&text, at));
            prop_assert_eq!(content_end(&text, at), scalar_content_end(&text, at));
        }
    }
}
