//! The bytes of a connection, read by the gateway's codec as a connection reads them: a piece at a time.

use ringway::wire::http1_chunked::Chunked;

/// How a walk ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Before a head.
    Between,
    InHead,
    InBody,
    /// The last message closes the connection.
    Closed,
    BadHead(String),
    BadChunk,
}

/// What ends a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Length(u64),
    Chunked,
    UntilClose,
}

/// A head as the walk needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub head_len: usize,
    pub framing: Framing,
    pub keep_alive: bool,
    /// Whatever else is to be compared.
    pub says: String,
}

/// Reads the head at the front of a buffer of which so many bytes were there before.
pub type HeadOf<'f> = &'f dyn Fn(&[u8], usize) -> Result<Option<Seen>, String>;

/// Reads messages, `step` bytes at a time: what each head says, with its body.
pub fn walk(head_of: HeadOf<'_>, bytes: &[u8], step: usize) -> (Vec<(String, Vec<u8>)>, End) {
    let mut pieces = bytes.chunks(step.max(1));
    let (mut buf, mut messages) = (Vec::new(), Vec::new());
    loop {
        let mut scanned = 0;
        let head = loop {
            match head_of(&buf, scanned) {
                Ok(Some(head)) => break head,
                Ok(None) => scanned = buf.len(),
                Err(words) => return (messages, End::BadHead(words)),
            }
            match pieces.next() {
                Some(piece) => buf.extend_from_slice(piece),
                None => return (messages, if buf.is_empty() { End::Between } else { End::InHead }),
            }
        };
        buf.drain(..head.head_len);
        let (mut decoder, mut end) = (Chunked::default(), 0);
        let rest = loop {
            match head.framing {
                Framing::Length(length) if buf.len() as u64 >= length => {
                    end = length as usize;
                    break Some(end);
                }
                Framing::Length(_) | Framing::UntilClose => end = buf.len(),
                Framing::Chunked => {
                    let Ok(progress) = decoder.decode(&mut buf[end..]) else { return (messages, End::BadChunk) };
                    let rest = end + progress.consumed;
                    end += progress.produced;
                    if progress.done {
                        break Some(rest);
                    }
                    buf.truncate(end);
                }
            }
            match pieces.next() {
                Some(piece) => buf.extend_from_slice(piece),
                None => break None,
            }
        };
        messages.push((head.says, buf[..end].to_vec()));
        match rest {
            _ if head.framing == Framing::UntilClose => return (messages, End::Closed),
            None => return (messages, End::InBody),
            Some(_) if !head.keep_alive => return (messages, End::Closed),
            Some(rest) => drop(buf.drain(..rest)),
        }
    }
}
