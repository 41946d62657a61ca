//! The chunked transfer coding (RFC 9112, 7.1), decoded in place: payload moves to the front of its own bytes.
//!
//! Strict where smuggling lives: every line ends in CRLF, sizes are hex digits alone, white space around
//! extensions (legal, but only for old senders) is refused. Extensions and trailers are checked and dropped.
//! Every input byte is looked at once, however the message is cut into pieces.

use super::http1::{is_tchar, is_value_char};
use crate::logic::fault::HttpFault;

/// Hex digits of one chunk size, leading zeros included. 16 of them can't overflow 64 bits.
pub const SIZE_DIGITS_MAX: u8 = 16;
/// Bytes of chunk extensions in one body.
pub const EXTENSION_BYTES_MAX: u32 = 4 << 10;
/// Bytes of trailer lines after one body, their line ends included, the empty line's not.
pub const TRAILER_BYTES_MAX: u32 = 8 << 10;
/// Trailer lines after one body.
pub const TRAILER_LINES_MAX: u32 = 64;

/// Why a chunked body is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadChunk {
    /// The chunk size is empty, holds another byte than a hex digit, or is too long.
    Size,
    /// A malformed chunk extension, or white space around one.
    Extension,
    /// More than [`EXTENSION_BYTES_MAX`].
    ExtensionsTooLong,
    /// A line that does not end in CRLF.
    LineEnd,
    /// Chunk data that is not followed by CRLF.
    DataEnd,
    /// A malformed trailer line.
    Trailer,
    /// More than [`TRAILER_BYTES_MAX`] or [`TRAILER_LINES_MAX`].
    TrailersTooLong,
}

impl BadChunk {
    /// What is wrong, in words.
    pub const fn words(self) -> &'static str {
        match self {
            BadChunk::Size => "malformed chunk size",
            BadChunk::Extension => "malformed chunk extension",
            BadChunk::ExtensionsTooLong => "chunk extensions too long",
            BadChunk::LineEnd => "bare CR or LF in the chunked coding",
            BadChunk::DataEnd => "no CRLF after the chunk data",
            BadChunk::Trailer => "malformed trailer",
            BadChunk::TrailersTooLong => "trailers too long",
        }
    }
}

impl From<BadChunk> for HttpFault {
    fn from(bad: BadChunk) -> Self {
        HttpFault::BadRequest(bad.words())
    }
}

/// What one call of [`Chunked::decode`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of `raw` that belong to this body: all of them unless `done`.
    pub consumed: usize,
    /// Bytes of payload, now at `raw[..produced]`. Never more than `consumed`.
    pub produced: usize,
    /// The body has ended; `raw[consumed..]` is the next message, untouched.
    pub done: bool,
}

/// The decoder of one body. The caller holds one buffer and knows where the payload ends in it:
///
/// ```
/// # use ringway::wire::http1_chunked::Chunked;
/// let (mut decoder, mut body_end) = (Chunked::default(), 0);
/// let mut buf = Vec::new();
/// for received in [&b"5\r\nhe"[..], b"llo\r\n0\r\n\r\nNEXT"] {
///     buf.extend_from_slice(received);
///     let progress = decoder.decode(&mut buf[body_end..]).unwrap();
///     let rest = body_end + progress.consumed;
///     body_end += progress.produced; // compare with the limit here
///     if progress.done {
///         assert_eq!(&buf[rest..], b"NEXT"); // keep these for the next message
///     }
///     buf.truncate(body_end); // the next read goes right behind the payload
/// }
/// assert_eq!(buf, b"hello");
/// ```
#[derive(Debug, Clone, Default)]
pub struct Chunked {
    state: State,
    extension_bytes: u32,
    trailer_bytes: u32,
    trailer_lines: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In the digits of a size.
    Size { size: u64, digits: u8 },
    /// After `;`, or in a name that has so far `any` bytes.
    ExtensionName { size: u64, any: bool },
    /// Right after `=`.
    ExtensionValue { size: u64 },
    /// In an unquoted value.
    ExtensionToken { size: u64 },
    /// Inside quotes; `escaped` after a backslash.
    ExtensionQuoted { size: u64, escaped: bool },
    /// After the closing quote.
    ExtensionEnd { size: u64 },
    /// The CR of a size line was read.
    SizeLf { size: u64 },
    /// In chunk data, with so many bytes left.
    Data { left: u64 },
    /// The data is complete.
    DataCr,
    /// The CR after the data was read.
    DataLf,
    /// At the start of a trailer line, or of the empty line.
    TrailerStart,
    /// In the name of a trailer.
    TrailerName,
    /// In its value.
    TrailerValue,
    /// The CR of a trailer line was read.
    TrailerLf,
    /// The CR of the empty line was read.
    EndLf,
    /// The whole body was read.
    Done,
    /// It was refused, for good.
    Failed(BadChunk),
}

impl Default for State {
    fn default() -> Self {
        State::SIZE_START
    }
}

impl State {
    const SIZE_START: State = State::Size { size: 0, digits: 0 };
}

impl Chunked {
    /// Decodes what was received since the last call, in place. Unless `done`, everything is consumed.
    ///
    /// # Errors
    /// [`BadChunk`], again at every later call. Bytes of `raw` may have moved by then.
    pub fn decode(&mut self, raw: &mut [u8]) -> Result<Progress, BadChunk> {
        let (mut consumed, mut produced) = (0, 0);
        while self.state != State::Done && consumed < raw.len() {
            if let State::Data { left } = self.state {
                let here = raw.len() - consumed;
                let taken = usize::try_from(left).map_or(here, |left| left.min(here));
                raw.copy_within(consumed..consumed + taken, produced);
                consumed += taken;
                produced += taken;
                let left = left - taken as u64;
                self.state = if left == 0 { State::DataCr } else { State::Data { left } };
            } else {
                let next = self.step(raw[consumed]);
                self.state = next.unwrap_or_else(State::Failed);
                next?;
                consumed += 1;
            }
        }
        Ok(Progress { consumed, produced, done: self.state == State::Done })
    }

    /// Bytes of payload that the current chunk has announced and that have not come yet.
    pub fn due(&self) -> u64 {
        match self.state {
            State::Data { left } => left,
            State::SizeLf { size } => size,
            _ => 0,
        }
    }

    /// The state after one byte that is not chunk data.
    fn step(&mut self, byte: u8) -> Result<State, BadChunk> {
        match (self.state, byte) {
            (State::Size { size, digits }, _) => size_step(size, digits, byte),
            (
                State::ExtensionName { .. }
                | State::ExtensionValue { .. }
                | State::ExtensionToken { .. }
                | State::ExtensionQuoted { .. }
                | State::ExtensionEnd { .. },
                _,
            ) => {
                self.extension_bytes += 1;
                if self.extension_bytes > EXTENSION_BYTES_MAX {
                    return Err(BadChunk::ExtensionsTooLong);
                }
                extension_step(self.state, byte)
            }
            (State::SizeLf { size: 0 }, b'\n') => Ok(State::TrailerStart),
            (State::SizeLf { size }, b'\n') => Ok(State::Data { left: size }),
            (State::SizeLf { .. }, _) => Err(BadChunk::LineEnd),
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => Ok(State::SIZE_START),
            (State::DataCr | State::DataLf, _) => Err(BadChunk::DataEnd),
            (State::TrailerStart, b'\r') => Ok(State::EndLf),
            (State::TrailerStart | State::TrailerName | State::TrailerValue | State::TrailerLf, _) => {
                self.trailer_step(byte)
            }
            (State::EndLf, b'\n') => Ok(State::Done),
            (State::EndLf, _) => Err(BadChunk::LineEnd),
            (State::Failed(why), _) => Err(why),
            // `decode` never asks in these.
            (state @ (State::Data { .. } | State::Done), _) => Ok(state),
        }
    }

    fn trailer_step(&mut self, byte: u8) -> Result<State, BadChunk> {
        self.trailer_bytes += 1;
        self.trailer_lines += u32::from(self.state == State::TrailerStart);
        if self.trailer_bytes > TRAILER_BYTES_MAX || self.trailer_lines > TRAILER_LINES_MAX {
            return Err(BadChunk::TrailersTooLong);
        }
        match (self.state, byte) {
            (State::TrailerName, b':') => Ok(State::TrailerValue),
            (State::TrailerStart | State::TrailerName, _) if is_tchar(byte) => Ok(State::TrailerName),
            (State::TrailerValue, b'\r') => Ok(State::TrailerLf),
            (State::TrailerValue, _) if is_value_char(byte) => Ok(State::TrailerValue),
            (State::TrailerLf, b'\n') => Ok(State::TrailerStart),
            (State::TrailerLf, _) | (State::TrailerStart | State::TrailerValue, b'\n') => Err(BadChunk::LineEnd),
            _ => Err(BadChunk::Trailer),
        }
    }
}

fn size_step(size: u64, digits: u8, byte: u8) -> Result<State, BadChunk> {
    let digit = match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        b'A'..=b'F' => byte - b'A' + 10,
        // An empty size never ends the body: that is how a body is smuggled past a lenient parser.
        b'\r' if digits > 0 => return Ok(State::SizeLf { size }),
        b';' if digits > 0 => return Ok(State::ExtensionName { size, any: false }),
        b'\n' if digits > 0 => return Err(BadChunk::LineEnd),
        _ => return Err(BadChunk::Size),
    };
    if digits >= SIZE_DIGITS_MAX {
        return Err(BadChunk::Size);
    }
    Ok(State::Size { size: (size << 4) | u64::from(digit), digits: digits + 1 })
}

/// `;name`, `;name=token`, `;name="quoted"`, any number of them.
fn extension_step(state: State, byte: u8) -> Result<State, BadChunk> {
    match (state, byte) {
        (State::ExtensionName { size, .. }, _) if is_tchar(byte) => Ok(State::ExtensionName { size, any: true }),
        (State::ExtensionName { size, any: true }, b'=') => Ok(State::ExtensionValue { size }),
        (State::ExtensionValue { size }, b'"') => Ok(State::ExtensionQuoted { size, escaped: false }),
        (State::ExtensionValue { size } | State::ExtensionToken { size }, _) if is_tchar(byte) => {
            Ok(State::ExtensionToken { size })
        }
        (State::ExtensionQuoted { size, escaped: false }, b'"') => Ok(State::ExtensionEnd { size }),
        (State::ExtensionQuoted { size, escaped }, _) if is_value_char(byte) => {
            Ok(State::ExtensionQuoted { size, escaped: byte == b'\\' && !escaped })
        }
        (
            State::ExtensionName { size, any: true } | State::ExtensionToken { size } | State::ExtensionEnd { size },
            b';' | b'\r',
        ) => Ok(if byte == b';' { State::ExtensionName { size, any: false } } else { State::SizeLf { size } }),
        (_, b'\r' | b'\n') => Err(BadChunk::LineEnd),
        _ => Err(BadChunk::Extension),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Payload and the bytes behind the body.
    type Decoded = (Vec<u8>, Vec<u8>);

    fn decode(raw: &[u8]) -> Result<Decoded, BadChunk> {
        let mut bytes = raw.to_vec();
        let progress = Chunked::default().decode(&mut bytes)?;
        assert!(progress.done, "{:?} is not complete", String::from_utf8_lossy(raw));
        Ok((bytes[..progress.produced].to_vec(), bytes[progress.consumed..].to_vec()))
    }

    /// The same, fed in pieces as a connection would; `None` = incomplete.
    fn decode_pieces(raw: &[u8], mut cuts: Vec<usize>) -> Result<Option<Decoded>, BadChunk> {
        cuts.sort_unstable();
        cuts.push(raw.len());
        let (mut decoder, mut buf, mut from) = (Chunked::default(), b"HEAD".to_vec(), 0);
        let mut end = buf.len();
        for cut in cuts {
            buf.extend_from_slice(&raw[from..cut]);
            from = cut;
            let progress = decoder.decode(&mut buf[end..])?;
            let rest = end + progress.consumed;
            end += progress.produced;
            if progress.done {
                let behind = [&buf[rest..], &raw[from..]].concat();
                assert!(buf.starts_with(b"HEAD"));
                return Ok(Some((buf[4..end].to_vec(), behind)));
            }
            assert_eq!(rest, buf.len());
            buf.truncate(end);
        }
        Ok(None)
    }

    fn refused(raw: &str, why: BadChunk) {
        let got = decode_pieces(raw.as_bytes(), Vec::new());
        assert_eq!(got, Err(why), "{raw:?}");
        assert_eq!(decode_pieces(raw.as_bytes(), (0..raw.len()).collect()), Err(why), "{raw:?} by bytes");
    }

    #[test]
    fn payload_is_joined_and_the_rest_left_alone() {
        for (raw, payload, rest) in [
            ("0\r\n\r\n", "", ""),
            ("5\r\nhello\r\n0\r\n\r\n", "hello", ""),
            ("5\r\nhello\r\n6\r\n world\r\n000\r\n\r\nPOST /", "hello world", "POST /"),
            ("a\r\n0123456789\r\n0\r\n\r\n\r\n", "0123456789", "\r\n"),
            ("A\r\n01234\r\n789\r\n0\r\n\r\n", "01234\r\n789", ""),
            ("0000000000000001\r\nx\r\n0\r\n\r\n", "x", ""),
            ("1;a;b=c;d=\"e;\\\" \\\\\u{e9}\t\"\r\nx\r\n0;last\r\n\r\n", "x", ""),
            ("1\r\nx\r\n0\r\nVary: *\r\nEmpty:\r\n\r\nz", "x", "z"),
        ] {
            assert_eq!(decode(raw.as_bytes()), Ok((payload.into(), rest.into())), "{raw:?}");
        }
    }

    #[test]
    fn an_incomplete_body_is_not_done() {
        let raw = b"5\r\nhello\r\n0;x=\"y\"\r\nA: b\r\n\r\n";
        for cut in 0..raw.len() {
            assert_eq!(decode_pieces(&raw[..cut], Vec::new()), Ok(None), "cut {cut}");
        }
    }

    #[test]
    fn sizes_are_hex_digits_alone() {
        for line in
            ["", ";x", " 5", "g", "+5", "-5", "0x5", "5 ", "5\t;x", "5 ;x", "5.", "5,", "5\0", "11111111111111111"]
        {
            refused(&format!("{line}\r\nhello\r\n0\r\n\r\n"), BadChunk::Size);
        }
        refused("00000000000000000\r\n\r\n", BadChunk::Size);
        refused("3\r\nfoo\r\n\r\n", BadChunk::Size);
        let huge = decode_pieces(b"ffffffffffffffff\r\nabc", vec![3, 20]);
        assert_eq!(huge, Ok(None));
    }

    #[test]
    fn every_line_ends_in_crlf() {
        refused("5\nhello\r\n0\r\n\r\n", BadChunk::LineEnd);
        refused("5\r\rhello\r\n0\r\n\r\n", BadChunk::LineEnd);
        refused("5;a\nhello\r\n0\r\n\r\n", BadChunk::LineEnd);
        refused("5;a=\"\n\"\r\nhello\r\n0\r\n\r\n", BadChunk::LineEnd);
        refused("5\r\nhello\n0\r\n\r\n", BadChunk::DataEnd);
        refused("5\r\nhello0\r\n\r\n", BadChunk::DataEnd);
        refused("5\r\nhello!\r\n0\r\n\r\n", BadChunk::DataEnd);
        refused("5\r\nhello\r0\r\n\r\n", BadChunk::DataEnd);
        refused("0\r\n\n", BadChunk::LineEnd);
        refused("0\r\n\rX", BadChunk::LineEnd);
        refused("0\r\nA: b\n\r\n", BadChunk::LineEnd);
        refused("0\r\nA: b\rc\r\n\r\n", BadChunk::LineEnd);
    }

    #[test]
    fn extensions_follow_the_grammar() {
        for extension in
            [";", ";;a", ";a=;b", ";=b", ";a =b", ";a= b", "; a", ";a ;b", ";a=\"b\"c", ";a=\x01", ";a=\"\x7f\"", ";é"]
        {
            refused(
                &format!("1{extension}\r\nx\r\n0\r\n\r\n"),
                if extension == ";" { BadChunk::LineEnd } else { BadChunk::Extension },
            );
        }
        refused("1;a=\"b\r\nx\r\n0\r\n\r\n", BadChunk::LineEnd);
        refused("1;a=\r\nx\r\n0\r\n\r\n", BadChunk::LineEnd);
    }

    #[test]
    fn extensions_are_bounded_over_the_whole_body() {
        let chunk = "1;abcdefg\r\nx\r\n"; // 8 bytes of extension: its name and the CR
        let most = EXTENSION_BYTES_MAX as usize / 8;
        assert!(decode(format!("{}0\r\n\r\n", chunk.repeat(most)).as_bytes()).is_ok());
        refused(&format!("{}0\r\n\r\n", chunk.repeat(most + 1)), BadChunk::ExtensionsTooLong);
        refused(&format!("1;{}", "a".repeat(EXTENSION_BYTES_MAX as usize + 1)), BadChunk::ExtensionsTooLong);
    }

    #[test]
    fn trailers_are_field_lines() {
        for line in [" folded: x", "a b: c", "a : b", ": b", "a", "a\tb: c", "a: \x01", "a: \x7f", "é: x"] {
            refused(&format!("0\r\n{line}\r\n\r\n"), BadChunk::Trailer);
        }
        refused("0\r\na: b\r\n folded\r\n\r\n", BadChunk::Trailer);
    }

    #[test]
    fn trailers_are_bounded() {
        let most = "a: b\r\n".repeat(TRAILER_LINES_MAX as usize);
        assert!(decode(format!("0\r\n{most}\r\n").as_bytes()).is_ok());
        refused(&format!("0\r\n{most}a: b\r\n\r\n"), BadChunk::TrailersTooLong);
        refused(&format!("0\r\na:{}", "b".repeat(TRAILER_BYTES_MAX as usize)), BadChunk::TrailersTooLong);
    }

    #[test]
    fn a_refusal_stands() {
        let mut decoder = Chunked::default();
        assert_eq!(decoder.decode(&mut b"\r\n".to_vec()), Err(BadChunk::Size));
        assert_eq!(decoder.decode(&mut b"0\r\n\r\n".to_vec()), Err(BadChunk::Size));
    }

    #[test]
    fn nothing_is_taken_after_the_end() {
        let mut decoder = Chunked::default();
        assert!(decoder.decode(&mut b"0\r\n\r\n".to_vec()).unwrap().done);
        let after = decoder.decode(&mut b"5\r\nhello".to_vec());
        assert_eq!(after, Ok(Progress { consumed: 0, produced: 0, done: true }));
    }

    fn encode(chunks: &[Vec<u8>], extension: &str, trailer: &str) -> Vec<u8> {
        let mut raw = Vec::new();
        for chunk in chunks {
            raw.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
            raw.extend_from_slice(chunk);
            raw.extend_from_slice(b"\r\n");
        }
        raw.extend_from_slice(format!("0{extension}\r\n{trailer}\r\n").as_bytes());
        raw
    }

    proptest! {
        #[test]
        fn encoded_and_cut_anyhow_it_comes_back(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..60), 0..8),
            extension in prop::sample::select(vec!["", ";a", ";a=b;c=\"d \\\" e\""]),
            trailer in prop::sample::select(vec!["", "Expires: never\r\n", "a:\r\nb: c\r\n"]),
            rest in prop::collection::vec(any::<u8>(), 0..20),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let raw = [encode(&chunks, extension, trailer), rest.clone()].concat();
            let cuts = cuts.iter().map(|cut| cut.index(raw.len() + 1)).collect();
            prop_assert_eq!(decode_pieces(&raw, cuts), Ok(Some((chunks.concat(), rest))));
        }

        #[test]
        fn broken_bytes_never_panic_and_cuts_never_matter(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 0..4),
            edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let mut raw = encode(&chunks, ";a=\"b\"", "c: d\r\n");
            for (at, byte) in edits {
                let at = at.index(raw.len());
                raw[at] = byte;
            }
            let cuts = cuts.iter().map(|cut| cut.index(raw.len() + 1)).collect();
            prop_assert_eq!(decode_pieces(&raw, cuts), decode_pieces(&raw, Vec::new()));
        }
    }
}
