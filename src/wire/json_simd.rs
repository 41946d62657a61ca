//! Where does a run of plain string bytes end? Sixty-four bytes at a time, with the vectors the CPU has.
//!
//! A scanner that loads each string where it starts waits for the last one's end first. Here the text
//! is cut into blocks whatever it says, and each block becomes one word of stop bits: the CPU runs ahead
//! with the blocks while the walk only shifts words.
//!
//! The only file of the JSON scanner with `unsafe`: vector loads, and calls of code that is compiled
//! for vectors. Everything that indexes the input is safe slicing.
#![allow(unsafe_code)]

/// Bytes in a block, and bits in its word of stops.
pub const BLOCK: usize = 64;

/// Whether `byte` ends a run of plain ASCII string content: quote, backslash, control or non-ASCII byte.
const fn is_stop(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < 0x20 || byte >= 0x80
}

/// The stops of a block, byte by byte: bit *n* is set if byte *n* ends a plain run.
pub fn scalar_stops(block: &[u8; BLOCK]) -> u64 {
    block.iter().rev().fold(0, |stops, &byte| stops << 1 | u64::from(is_stop(byte)))
}

/// Code that is compiled once for each set of vectors.
pub trait Work {
    /// What comes out.
    type Out;

    /// Does the work. Must be `#[inline(always)]`, or it is compiled without the wider vectors.
    fn run(self, vectors: impl Vectors) -> Self::Out;
}

/// Proof that the CPU has certain vectors, and what is done with them.
pub trait Vectors: Copy {
    /// The same as [`scalar_stops`].
    fn stops(self, block: &[u8; BLOCK]) -> u64;
}

/// What every CPU of the target has.
#[derive(Debug, Clone, Copy)]
pub struct Baseline;

impl Vectors for Baseline {
    #[inline(always)]
    fn stops(self, block: &[u8; BLOCK]) -> u64 {
        #[cfg(target_arch = "x86_64")]
        {
            x86::stops(block)
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            scalar_stops(block)
        }
    }
}

/// Runs `work` compiled for the widest vectors that this CPU has.
#[inline]
pub fn with_best_vectors<W: Work>(work: W) -> W::Out {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = x86::Avx2::found() {
        return avx2.run(work);
    }
    work.run(Baseline)
}

/// SSE2 is part of x86-64; AVX2 is looked for at run time.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{BLOCK, Vectors, Work};
    use std::arch::asm;
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_cmpeq_epi8, _mm_cmplt_epi8, _mm_loadu_si128, _mm_or_si128, _mm_set1_epi8,
        _mm256_cmpeq_epi8, _mm256_cmpgt_epi8, _mm256_loadu_si256, _mm256_or_si256, _mm256_set1_epi8,
    };

    #[inline(always)]
    pub fn stops(block: &[u8; BLOCK]) -> u64 {
        // SAFETY: SSE2 is part of every x86-64 CPU.
        unsafe { stops_sse2(block) }
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn stops_sse2(block: &[u8; BLOCK]) -> u64 {
        // No closure over the chunks: it would not be compiled for the vectors.
        let [a, b, c, d] = block.as_chunks::<16>().0 else { return super::scalar_stops(block) };
        let low = u32::from(stops_of_16(b)) << 16 | u32::from(stops_of_16(a));
        let high = u32::from(stops_of_16(d)) << 16 | u32::from(stops_of_16(c));
        u64::from(high) << 32 | u64::from(low)
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn stops_of_16(chunk: &[u8; 16]) -> u16 {
        // SAFETY: the reference covers 16 readable bytes, and `loadu` asks for no alignment.
        let bytes = unsafe { _mm_loadu_si128(chunk.as_ptr().cast()) };
        let quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'"' as i8));
        let backslash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'\\' as i8));
        // Signed: bytes from 0x80 on are negative, so one comparison finds control and non-ASCII bytes.
        let outside = _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20));
        mask_of_16(_mm_or_si128(_mm_or_si128(quote, backslash), outside))
    }

    /// The top bit of each byte. Not by the intrinsic: the compiler knows that one as a vector of single
    /// bits, carries it across the scanner's loop in that form, and takes it apart bit by bit.
    #[inline]
    #[target_feature(enable = "sse2")]
    fn mask_of_16(bytes: __m128i) -> u16 {
        let mask: u32;
        // SAFETY: an instruction of SSE2 between registers, without any other effect.
        unsafe {
            asm!("pmovmskb {:e}, {}", out(reg) mask, in(xmm_reg) bytes, options(pure, nomem, nostack, preserves_flags));
        }
        mask as u16
    }

    /// Proof that the CPU has AVX2, BMI1 and BMI2.
    #[derive(Debug, Clone, Copy)]
    pub struct Avx2(());

    impl Avx2 {
        /// The only way to get one.
        #[inline]
        pub fn found() -> Option<Avx2> {
            let found = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2");
            found.then_some(Avx2(()))
        }

        #[inline]
        pub fn run<W: Work>(self, work: W) -> W::Out {
            // SAFETY: an `Avx2` exists only where `found` saw the features that `run_wide` is compiled for.
            unsafe { run_wide(self, work) }
        }
    }

    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn run_wide<W: Work>(avx2: Avx2, work: W) -> W::Out {
        work.run(avx2)
    }

    impl Vectors for Avx2 {
        #[inline(always)]
        fn stops(self, block: &[u8; BLOCK]) -> u64 {
            // SAFETY: an `Avx2` exists only where `found` saw the features that `stops_avx2` is compiled for.
            unsafe { stops_avx2(block) }
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn stops_avx2(block: &[u8; BLOCK]) -> u64 {
        let [low, high] = block.as_chunks::<32>().0 else { return super::scalar_stops(block) };
        u64::from(stops_of_32(high)) << 32 | u64::from(stops_of_32(low))
    }

    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn stops_of_32(chunk: &[u8; 32]) -> u32 {
        // SAFETY: the reference covers 32 readable bytes, and `loadu` asks for no alignment.
        let bytes = unsafe { _mm256_loadu_si256(chunk.as_ptr().cast()) };
        let quote = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(b'"' as i8));
        let backslash = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(b'\\' as i8));
        // Signed, as above.
        let outside = _mm256_cmpgt_epi8(_mm256_set1_epi8(0x20), bytes);
        mask_of_32(_mm256_or_si256(_mm256_or_si256(quote, backslash), outside))
    }

    /// The top bit of each byte; not by the intrinsic, for the same reason.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn mask_of_32(bytes: __m256i) -> u32 {
        let mask: u32;
        // SAFETY: an instruction of AVX2 between registers, without any other effect.
        unsafe {
            asm!("vpmovmskb {:e}, {}", out(reg) mask, in(ymm_reg) bytes, options(pure, nomem, nostack, preserves_flags));
        }
        mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Stops<'a>(&'a [u8; BLOCK]);

    impl Work for Stops<'_> {
        type Out = u64;

        #[inline(always)]
        fn run(self, vectors: impl Vectors) -> u64 {
            vectors.stops(self.0)
        }
    }

    #[test]
    fn every_byte_at_every_place_is_a_stop_exactly_if_it_should_be() {
        for place in 0..BLOCK {
            for byte in 0..=255u8 {
                let mut block = [b'a'; BLOCK];
                block[place] = byte;
                let plain = byte != b'"' && byte != b'\\' && (0x20..0x80).contains(&byte);
                let expected = if plain { 0 } else { 1 << place };
                assert_eq!(scalar_stops(&block), expected, "{byte:#x} at {place}");
                assert_eq!(Baseline.stops(&block), expected, "{byte:#x} at {place}");
                assert_eq!(with_best_vectors(Stops(&block)), expected, "{byte:#x} at {place}");
            }
        }
    }

    proptest! {
        #[test]
        fn vectors_agree_with_the_scalar_form(bytes in prop::collection::vec(any::<u8>(), BLOCK)) {
            let block: &[u8; BLOCK] = bytes.first_chunk().unwrap();
            prop_assert_eq!(Baseline.stops(block), scalar_stops(block));
            prop_assert_eq!(with_best_vectors(Stops(block)), scalar_stops(block));
        }
    }
}
