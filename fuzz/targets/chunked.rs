//! The chunked coding against a descent over the whole body: the same bytes, the same verdict, cut anyhow.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway::wire::http1_chunked::{BadChunk, Chunked};
use ringway_fuzz::chunks::{self, Body};

fuzz_target!(|data: &[u8]| {
    let Some((cuts, raw)) = ringway_fuzz::settings::<3>(data) else { return };
    let whole = decode(raw, &[usize::MAX]);
    let sizes = cuts.map(|cut| usize::from(cut % 32) + 1);
    assert_eq!(whole, decode(raw, &sizes), "cut into {sizes:?}");
    assert_eq!(whole, decode(raw, &[1]), "byte by byte");
    match (whole, chunks::read(raw)) {
        (Ok((payload, Some(taken))), plain) => assert_eq!(plain, Body::Whole { payload, taken }),
        (Ok((payload, None)), plain) => assert_eq!(plain, Body::Unfinished { payload }),
        (Err(why), plain) => assert_eq!(plain, Body::Bad, "{why:?}"),
    }
});

/// The payload, and how many bytes the body took if it has ended.
type Decoded = (Vec<u8>, Option<usize>);

/// Decodes in pieces whose sizes come round and round.
fn decode(raw: &[u8], sizes: &[usize]) -> Result<Decoded, BadChunk> {
    let (mut decoder, mut payload, mut from) = (Chunked::default(), Vec::new(), 0);
    let mut sizes = sizes.iter().cycle();
    while from < raw.len() {
        let size = sizes.next().map_or(1, |size| (*size).min(raw.len() - from));
        let mut piece = raw[from..from + size].to_vec();
        let progress = match decoder.decode(&mut piece) {
            Ok(progress) => progress,
            Err(why) => {
                assert_eq!(decoder.decode(&mut b"0\r\n\r\n".to_vec()), Err(why), "a refusal stands");
                return Err(why);
            }
        };
        assert!(progress.produced <= progress.consumed && progress.consumed <= size);
        assert_eq!(
            piece[progress.consumed..],
            raw[from + progress.consumed..from + size],
            "what follows is left alone"
        );
        payload.extend_from_slice(&piece[..progress.produced]);
        from += progress.consumed;
        if progress.done {
            return Ok((payload, Some(from)));
        }
        assert_eq!(progress.consumed, size, "unless done, everything is taken");
    }
    Ok((payload, None))
}
