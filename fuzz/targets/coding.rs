//! Compressed bodies: never more than the limit, and else the same as flate2 gives at once; gzip comes back.
#![no_main]

use flate2::Compression;
use flate2::read::{DeflateDecoder, DeflateEncoder, GzEncoder, MultiGzDecoder, ZlibDecoder, ZlibEncoder};
use libfuzzer_sys::fuzz_target;
use ringway::wire::coding::{BadCoding, Gzip, Inflate, PIECE, SIP, accepts_gzip, seems_to_hold};
use ringway::wire::http1::Coding;
use std::io::Read;

fuzz_target!(|data: &[u8]| {
    let Some(([kind, limit, edit_at, edit], rest)) = ringway_fuzz::settings::<4>(data) else { return };
    let max = match limit % 4 {
        0 => usize::from(*limit),
        1 => usize::from(*limit) * 40,
        2 => PIECE + usize::from(*limit) - 128,
        _ => 200_000,
    };
    let coding = if kind & 1 == 0 { Coding::Gzip } else { Coding::Deflate };
    // The bytes as they are, or what they are in their coding (many times over: a bomb), perhaps with one broken.
    let times = if kind & 8 == 0 { 1 } else { usize::from(*limit) };
    let mut body = match kind >> 1 & 3 {
        0 => rest.to_vec(),
        1 => encode(coding, &rest.repeat(times), kind & 16 != 0),
        _ => [encode(coding, &rest.repeat(times), kind & 16 != 0), encode(coding, rest, kind & 16 != 0)].concat(),
    };
    if *edit != 0 && !body.is_empty() {
        let at = usize::from(*edit_at) * body.len() / 256;
        body[at] ^= edit;
    }
    let sip = [SIP, 1, 7, 100][usize::from(kind >> 5 & 3)];
    let ours = inflate(coding, &body, max, sip);
    match (&ours, at_once(coding, &body, max)) {
        (Ok(out), Some((plain, ended))) => assert!(ended && *out == plain),
        (Err(BadCoding::TooLarge), Some((plain, _))) => assert!(plain.len() > max),
        (Err(BadCoding::Broken), Some((_, ended))) => assert!(!ended),
        (Err(BadCoding::Broken), None) => {}
        // It broke only behind what is already too much.
        (Err(BadCoding::TooLarge), None) => {}
        (Ok(_), None) => panic!("flate2 finds it broken"),
    }
    assert!(Inflate::new(Coding::Identity, &body, max).is_none() && Inflate::new(Coding::Other, &body, max).is_none());
    there_and_back(rest, usize::from(*edit_at) + 1);
    accepted(rest);
});

fn encode(coding: Coding, plain: &[u8], raw: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let level = Compression::fast();
    let done = match coding {
        Coding::Gzip => GzEncoder::new(plain, level).read_to_end(&mut out),
        _ if raw => DeflateEncoder::new(plain, level).read_to_end(&mut out),
        _ => ZlibEncoder::new(plain, level).read_to_end(&mut out),
    };
    done.expect("compressed");
    out
}

fn inflate(coding: Coding, body: &[u8], max: usize, sip: usize) -> Result<Vec<u8>, BadCoding> {
    let mut inflate = Inflate::in_sips(coding, body, max, sip).expect("a coding");
    // With room to begin with, as for an Endpoint's answer, or with none, as for a request.
    let mut out = Vec::with_capacity(if max % 2 == 0 { seems_to_hold(coding, body).min(max) + 1 } else { 0 });
    // Every step brings something, has taken a sip, or is the last.
    for _ in 0..max + 2 + body.len() / sip + 1 {
        let before = out.len();
        let step = inflate.step(&mut out);
        assert!(out.len() - before <= PIECE && out.len() <= max + 1);
        assert!(out.capacity() <= 2 * (max + 1) + PIECE, "{} bytes held for {max}", out.capacity());
        match step {
            Ok(true) => return Ok(out),
            Ok(false) => assert!((out.len() > before || body.len() >= sip) && out.len() <= max),
            Err(bad) => return Err(bad),
        }
    }
    panic!("no end after {} bytes", out.len());
}

/// What flate2 reads in one go, at most one byte more than `max`, and whether that was the whole body; `None` = it
/// calls it broken.
fn at_once(coding: Coding, body: &[u8], max: usize) -> Option<(Vec<u8>, bool)> {
    let mut out = Vec::new();
    let most = max as u64 + 1;
    let mut left = body;
    let zlib = body.len() >= 2 && body[0] & 15 == 8 && u16::from_be_bytes([body[0], body[1]]) % 31 == 0;
    let read = match coding {
        Coding::Gzip => MultiGzDecoder::new(&mut left).take(most).read_to_end(&mut out).map(|_| true),
        _ if zlib => {
            let mut decoder = ZlibDecoder::new(&mut left);
            let read = decoder.by_ref().take(most).read_to_end(&mut out);
            read.map(|_| decoder.total_in() == body.len() as u64)
        }
        _ => {
            let mut decoder = DeflateDecoder::new(&mut left);
            let read = decoder.by_ref().take(most).read_to_end(&mut out);
            read.map(|_| decoder.total_in() == body.len() as u64)
        }
    };
    read.ok().map(|whole| (out, whole))
}

fn there_and_back(plain: &[u8], piece: usize) {
    let mut gzip = Gzip::new(b"HEAD".to_vec());
    plain.chunks(piece).for_each(|piece| gzip.push(piece));
    let out = gzip.finish();
    let body = out.strip_prefix(b"HEAD").expect("appended");
    assert_eq!(inflate(Coding::Gzip, body, plain.len(), SIP), Ok(plain.to_vec()));
    if let Some(less) = plain.len().checked_sub(1) {
        assert_eq!(inflate(Coding::Gzip, body, less, SIP), Err(BadCoding::TooLarge));
    }
}

/// `Accept-Encoding`, one field a line.
fn accepted(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    let blank = [' ', '\t'];
    let (mut named, mut any) = (None, None);
    for item in text.split(['\n', ',']) {
        let parts: Vec<&str> = item.split(';').map(|part| part.trim_matches(blank)).collect();
        let zero = |part: &&str| {
            let weight = part.to_ascii_lowercase();
            weight.strip_prefix("q=").is_some_and(|q| q.starts_with('0') && q.trim_matches(['0', '.']).is_empty())
        };
        let wanted = !parts[1..].iter().any(|part| zero(part));
        match parts[0].to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => named = Some(wanted),
            "*" => any = Some(wanted),
            _ => {}
        }
    }
    assert_eq!(accepts_gzip(text.split('\n').map(str::as_bytes)), named.or(any).unwrap_or(false), "{text:?}");
}
