//! The chunked transfer coding by recursive descent over the whole body (RFC 9112, 7.1), and its limits.

use ringway::wire::http1_chunked::{EXTENSION_BYTES_MAX, SIZE_DIGITS_MAX, TRAILER_BYTES_MAX, TRAILER_LINES_MAX};

/// What a body is.
#[derive(Debug, PartialEq, Eq)]
pub enum Body {
    /// All there: its payload, and how many bytes it took.
    Whole { payload: Vec<u8>, taken: usize },
    /// Good so far, with so much payload.
    Unfinished { payload: Vec<u8> },
    /// No continuation makes it good.
    Bad,
}

/// Why the descent stopped.
enum Stop {
    End,
    Bad,
}

struct Descent<'b> {
    raw: &'b [u8],
    at: usize,
    payload: Vec<u8>,
    extension_bytes: usize,
    trailer_bytes: usize,
}

/// Reads the body at the front of `raw`.
pub fn read(raw: &[u8]) -> Body {
    let mut descent = Descent { raw, at: 0, payload: Vec::new(), extension_bytes: 0, trailer_bytes: 0 };
    match descent.body() {
        Ok(()) => Body::Whole { payload: descent.payload, taken: descent.at },
        Err(Stop::End) => Body::Unfinished { payload: descent.payload },
        Err(Stop::Bad) => Body::Bad,
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= 0x20 && byte != 0x7f)
}

impl Descent<'_> {
    fn peek(&self) -> Result<u8, Stop> {
        self.raw.get(self.at).copied().ok_or(Stop::End)
    }

    fn expect(&mut self, wanted: u8) -> Result<(), Stop> {
        if self.peek()? != wanted {
            return Err(Stop::Bad);
        }
        self.at += 1;
        Ok(())
    }

    fn line_end(&mut self) -> Result<(), Stop> {
        self.expect(b'\r')?;
        self.expect(b'\n')
    }

    fn body(&mut self) -> Result<(), Stop> {
        loop {
            let size = self.size()?;
            self.extensions()?;
            self.line_end()?;
            if size == 0 {
                return self.trailers();
            }
            for _ in 0..size {
                let byte = self.peek()?;
                self.payload.push(byte);
                self.at += 1;
            }
            self.line_end()?;
        }
    }

    fn size(&mut self) -> Result<u64, Stop> {
        let start = self.at;
        while self.peek()?.is_ascii_hexdigit() {
            self.at += 1;
            if self.at - start > usize::from(SIZE_DIGITS_MAX) {
                return Err(Stop::Bad);
            }
        }
        let digits = std::str::from_utf8(&self.raw[start..self.at]).map_err(|_| Stop::Bad)?;
        u64::from_str_radix(digits, 16).map_err(|_| Stop::Bad)
    }

    /// The limit counts what stands after the first semicolon, up to and with the CR.
    fn extension_byte(&mut self) -> Result<u8, Stop> {
        let byte = self.peek()?;
        self.extension_bytes += 1;
        if self.extension_bytes > EXTENSION_BYTES_MAX as usize { Err(Stop::Bad) } else { Ok(byte) }
    }

    fn extensions(&mut self) -> Result<(), Stop> {
        if self.peek()? != b';' {
            return Ok(());
        }
        self.at += 1;
        loop {
            let mut next = self.token()?;
            if next == b'=' {
                self.at += 1;
                next = self.extension_byte()?;
                if next == b'"' {
                    next = self.quoted()?;
                } else {
                    // Counted already, so looked at again without counting.
                    self.extension_bytes -= 1;
                    next = self.token()?;
                }
            }
            match next {
                b';' => self.at += 1,
                b'\r' => return Ok(()),
                _ => return Err(Stop::Bad),
            }
        }
    }

    /// A token of at least one byte; gives the byte behind it, counted but not taken.
    fn token(&mut self) -> Result<u8, Stop> {
        let start = self.at;
        loop {
            let byte = self.extension_byte()?;
            if !is_token(byte) {
                return if self.at > start { Ok(byte) } else { Err(Stop::Bad) };
            }
            self.at += 1;
        }
    }

    /// From the opening quote on; gives the byte behind the closing one, counted but not taken.
    fn quoted(&mut self) -> Result<u8, Stop> {
        self.at += 1;
        let mut escaped = false;
        loop {
            let byte = self.extension_byte()?;
            if !is_text(byte) {
                return Err(Stop::Bad);
            }
            self.at += 1;
            match byte {
                b'"' if !escaped => return self.extension_byte(),
                b'\\' if !escaped => escaped = true,
                _ => escaped = false,
            }
        }
    }

    fn trailer_byte(&mut self) -> Result<u8, Stop> {
        let byte = self.peek()?;
        self.trailer_bytes += 1;
        if self.trailer_bytes > TRAILER_BYTES_MAX as usize { Err(Stop::Bad) } else { Ok(byte) }
    }

    fn trailers(&mut self) -> Result<(), Stop> {
        for line in 0.. {
            if self.peek()? == b'\r' {
                return self.line_end();
            }
            if line >= TRAILER_LINES_MAX {
                return Err(Stop::Bad);
            }
            let start = self.at;
            let mut byte = self.trailer_byte()?;
            while is_token(byte) {
                self.at += 1;
                byte = self.trailer_byte()?;
            }
            if self.at == start || byte != b':' {
                return Err(Stop::Bad);
            }
            self.at += 1;
            byte = self.trailer_byte()?;
            while is_text(byte) {
                self.at += 1;
                byte = self.trailer_byte()?;
            }
            self.expect(b'\r')?;
            self.trailer_byte()?;
            self.expect(b'\n')?;
        }
        Ok(())
    }
}
