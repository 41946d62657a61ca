//! One connection of a caller or a node in this test: whole messages with a length, in and out.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// So long anybody waits for a byte.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Wire {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Wire {
    pub fn new(stream: TcpStream) -> Wire {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Wire { stream, read: Vec::new() }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next message's head and body; `None` = the peer has gone, or says nothing.
    pub fn message(&mut self) -> Option<(String, Vec<u8>)> {
        let mut scanned = 0;
        let body_at = loop {
            if let Some(at) = self.read[scanned..].windows(4).position(|four| four == b"\r\n\r\n") {
                break scanned + at + 4;
            }
            scanned = self.read.len().saturating_sub(3);
            self.more()?;
        };
        let head = String::from_utf8(self.read[..body_at].to_vec()).unwrap();
        let field = |line: &str| Some(line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().to_owned());
        let length: usize = head.lines().find_map(field).map_or(0, |length| length.parse().unwrap());
        while self.read.len() < body_at + length {
            self.more()?;
        }
        let body = self.read[body_at..body_at + length].to_vec();
        self.read.drain(..body_at + length);
        Some((head, body))
    }

    fn more(&mut self) -> Option<()> {
        let mut piece = [0; 64 << 10];
        let read = self.stream.read(&mut piece).ok().filter(|read| *read > 0)?;
        self.read.extend_from_slice(&piece[..read]);
        Some(())
    }
}
