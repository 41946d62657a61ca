//! Content codings: bodies that come compressed, answers that go out so. A piece at a time, so that whoever calls
//! can let others have a turn in between.

use super::http1::{Coding, list, trim};
use flate2::Compression;
use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use flate2::write::GzEncoder;
use std::io::{Read, Write};

/// Bytes that one step of inflating brings at most: about a tenth of a millisecond.
pub const PIECE: usize = 32 << 10;
/// Bytes that the first step has room for. Most bodies are one Call, and all room is cleared first.
const FIRST_PIECE: usize = 2 << 10;

/// Why a compressed body can't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadCoding {
    /// It is not what its coding says, ends too early, or goes on behind its end.
    Broken,
    /// What comes out is larger than its limit.
    TooLarge,
}

/// A body on its way out of its coding.
pub struct Inflate<'b> {
    decoder: Decoder<'b>,
    max: usize,
}

enum Decoder<'b> {
    Gzip(MultiGzDecoder<&'b [u8]>),
    Zlib(ZlibDecoder<&'b [u8]>),
    Raw(DeflateDecoder<&'b [u8]>),
}

impl<'b> Inflate<'b> {
    /// Begins; `None` = the coding is none that is read here. What comes out has at most `max` bytes.
    pub fn new(coding: Coding, body: &'b [u8], max: usize) -> Option<Inflate<'b>> {
        let decoder = match coding {
            Coding::Gzip => Decoder::Gzip(MultiGzDecoder::new(body)),
            Coding::Deflate if is_zlib(body) => Decoder::Zlib(ZlibDecoder::new(body)),
            // What many senders mean by deflate (RFC 9110, 8.4.1.2 knows of it).
            Coding::Deflate => Decoder::Raw(DeflateDecoder::new(body)),
            Coding::Identity | Coding::Other => return None,
        };
        Some(Inflate { decoder, max })
    }

    /// Appends the next piece to `out`, which holds nothing but the pieces before; `true` = that was the last.
    ///
    /// # Errors
    /// Then nothing of the body may be used.
    pub fn step(&mut self, out: &mut Vec<u8>) -> Result<bool, BadCoding> {
        let before = out.len();
        // One more than may be: that it is too large shows at once, and no piece is longer than the limit.
        let room = before.clamp(FIRST_PIECE, PIECE).min(self.max.saturating_add(1).saturating_sub(before));
        out.resize(before + room, 0);
        let read = match &mut self.decoder {
            Decoder::Gzip(decoder) => decoder.read(&mut out[before..]),
            Decoder::Zlib(decoder) => decoder.read(&mut out[before..]),
            Decoder::Raw(decoder) => decoder.read(&mut out[before..]),
        };
        out.truncate(before + read.as_ref().map_or(0, |count| *count));
        match read {
            Ok(_) if out.len() > self.max => Err(BadCoding::TooLarge),
            Ok(0) if self.rest() > 0 => Err(BadCoding::Broken),
            Ok(count) => Ok(count == 0),
            Err(_) => Err(BadCoding::Broken),
        }
    }

    /// Bytes behind the end.
    fn rest(&self) -> usize {
        match &self.decoder {
            Decoder::Gzip(decoder) => decoder.get_ref().len(),
            Decoder::Zlib(decoder) => decoder.get_ref().len(),
            Decoder::Raw(decoder) => decoder.get_ref().len(),
        }
    }
}

/// Whether a body has the header of the zlib format (RFC 1950, 2.2): the method, and a checksum of both bytes.
fn is_zlib(body: &[u8]) -> bool {
    matches!(body, [method, flags, ..] if method & 15 == 8 && (u16::from(*method) << 8 | u16::from(*flags)) % 31 == 0)
}

/// A body on its way into gzip.
pub struct Gzip(GzEncoder<Vec<u8>>);

impl Gzip {
    /// Begins; what comes out is appended to `out`.
    pub fn new(out: Vec<u8>) -> Gzip {
        // The fastest level: it takes a fifth of the default's time for a tenth more bytes.
        Gzip(GzEncoder::new(out, Compression::fast()))
    }

    /// Takes a piece in.
    pub fn push(&mut self, piece: &[u8]) {
        // Writing to memory never fails.
        let _ = self.0.write_all(piece);
    }

    /// What came out.
    pub fn finish(self) -> Vec<u8> {
        self.0.finish().unwrap_or_default()
    }
}

/// Whether the sender of these `Accept-Encoding` fields takes gzip (RFC 9110, 12.5.3): named, or meant by `*`, and
/// not with a weight of 0. Who sends none is taken to want the body as it is.
pub fn accepts_gzip<'h>(fields: impl Iterator<Item = &'h [u8]>) -> bool {
    let (mut named, mut any) = (None, None);
    for item in fields.flat_map(list) {
        let mut parts = item.split(|&byte| byte == b';').map(trim);
        let name = parts.next().unwrap_or_default();
        let refused = parts.any(|part| part.strip_prefix(b"q=").or(part.strip_prefix(b"Q=")).is_some_and(is_zero));
        if name.eq_ignore_ascii_case(b"gzip") || name.eq_ignore_ascii_case(b"x-gzip") {
            named = Some(!refused);
        } else if name == b"*" {
            any = Some(!refused);
        }
    }
    named.or(any).unwrap_or(false)
}

/// Whether a weight is 0: `0`, `0.`, `0.000`.
fn is_zero(weight: &[u8]) -> bool {
    weight.first() == Some(&b'0') && weight.iter().all(|byte| matches!(byte, b'0' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::write::{DeflateEncoder, ZlibEncoder};
    use proptest::prelude::*;

    fn gzip(body: &[u8]) -> Vec<u8> {
        let mut encoder = Gzip::new(Vec::new());
        body.chunks(PIECE).for_each(|piece| encoder.push(piece));
        encoder.finish()
    }
    fn zlib(body: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }
    fn raw(body: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }
    fn inflated(coding: Coding, body: &[u8], max: usize) -> Result<Vec<u8>, BadCoding> {
        let mut inflate = Inflate::new(coding, body, max).unwrap();
        let mut out = Vec::new();
        while !inflate.step(&mut out)? {
            assert!(out.len() <= max);
        }
        Ok(out)
    }

    #[test]
    fn every_coding_is_read() {
        let body = br#"{"jsonrpc":"2.0","id":1,"method":"eth_call"}"#.repeat(2_000);
        let max = body.len();
        assert_eq!(inflated(Coding::Gzip, &gzip(&body), max).unwrap(), body);
        assert_eq!(inflated(Coding::Deflate, &zlib(&body), max).unwrap(), body);
        assert_eq!(inflated(Coding::Deflate, &raw(&body), max).unwrap(), body);
        assert_eq!(inflated(Coding::Gzip, &[gzip(b"{"), gzip(b"}")].concat(), 9).unwrap(), b"{}", "RFC 1952, 2.2");
        assert!(Inflate::new(Coding::Identity, b"", 9).is_none() && Inflate::new(Coding::Other, b"", 9).is_none());
    }

    #[test]
    fn gzip_is_accepted_as_it_was_asked_for() {
        let accepts = |fields: &[&str]| accepts_gzip(fields.iter().map(|field| field.as_bytes()));
        for yes in ["gzip", "GZIP", "deflate, gzip;q=0.5", "br;q=1.0, gzip ; q=0.001", "*", "*;q=0, gzip", "x-gzip"] {
            assert!(accepts(&[yes]), "{yes}");
        }
        for no in ["", "identity", "br", "gzip;q=0", "gzip; q=0.000", "*;q=0", "gzip;q=0, *", "gzipped", "q=1"] {
            assert!(!accepts(&[no]), "{no}");
        }
        assert!(accepts(&["br", "gzip"]) && !accepts(&[]));
    }

    #[test]
    fn a_bomb_is_stopped_at_its_limit() {
        let bomb = vec![b' '; 64 << 20];
        for (coding, body) in
            [(Coding::Gzip, gzip(&bomb)), (Coding::Deflate, zlib(&bomb)), (Coding::Deflate, raw(&bomb))]
        {
            assert_eq!(inflated(coding, &body, 1 << 20), Err(BadCoding::TooLarge));
            let mut out = Vec::new();
            let mut inflate = Inflate::new(coding, &body, 1 << 20).unwrap();
            while let Ok(false) = inflate.step(&mut out) {}
            assert!(out.capacity() <= 2 << 20, "{}", out.capacity());
        }
        let exact = vec![b' '; 1 << 20];
        assert_eq!(inflated(Coding::Gzip, &gzip(&exact), 1 << 20).unwrap(), exact);
        assert_eq!(inflated(Coding::Gzip, &gzip(&exact), (1 << 20) - 1), Err(BadCoding::TooLarge));
    }

    #[test]
    fn what_is_broken_is_refused() {
        let body = br#"{"jsonrpc":"2.0","id":1,"method":"eth_call","params":["0x1234"]}"#;
        for (coding, good) in [(Coding::Gzip, gzip(body)), (Coding::Deflate, zlib(body)), (Coding::Deflate, raw(body))]
        {
            for end in 0..good.len() {
                assert_eq!(inflated(coding, &good[..end], 999), Err(BadCoding::Broken), "{coding:?} cut at {end}");
            }
            assert_eq!(inflated(coding, &[&good[..], b"x"].concat(), 999), Err(BadCoding::Broken), "{coding:?}");
        }
        assert_eq!(inflated(Coding::Gzip, body, 999), Err(BadCoding::Broken));
        let mut wrong_sum = gzip(body);
        let at = wrong_sum.len() - 6;
        wrong_sum[at] ^= 1;
        assert_eq!(inflated(Coding::Gzip, &wrong_sum, 999), Err(BadCoding::Broken));
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(body: Vec<u8>) {
            prop_assert_eq!(inflated(Coding::Gzip, &gzip(&body), body.len()).unwrap(), body);
        }

        #[test]
        fn nothing_makes_it_panic_or_grow(body: Vec<u8>) {
            for coding in [Coding::Gzip, Coding::Deflate] {
                if let Ok(out) = inflated(coding, &body, 500) {
                    prop_assert!(out.len() <= 500);
                }
            }
        }
    }
}
