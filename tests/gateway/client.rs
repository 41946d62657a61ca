//! A client that sends exactly the bytes that a test gives it.

use super::upstream::{PATIENCE, header_values};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

/// An answer as a client saw it.
#[derive(Debug, Clone)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// The head, its empty line included.
    pub head: String,
    /// The body.
    pub body: String,
}

impl Response {
    /// Reads an answer with a length from any stream, and nothing behind it.
    pub fn read(mut stream: impl Read) -> std::io::Result<Response> {
        let (mut bytes, mut byte) = (Vec::new(), [0]);
        while !bytes.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte)?;
            bytes.push(byte[0]);
        }
        let head = String::from_utf8(bytes).unwrap();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{head}"));
        let mut body = vec![0; header_values(&head, "content-length")[0].parse().unwrap()];
        stream.read_exact(&mut body)?;
        Ok(Response { status, head, body: String::from_utf8(body).unwrap() })
    }

    /// The only value of a header, or nothing.
    pub fn header(&self, name: &str) -> Option<String> {
        let mut values = header_values(&self.head, name);
        assert!(values.len() <= 1, "{name} came {} times in {}", values.len(), self.head);
        values.pop()
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// `result`, as JSON text.
    #[track_caller]
    pub fn result(&self) -> String {
        let json = self.json();
        assert!(json.get("error").is_none(), "{self:?}");
        json.get("result").unwrap_or_else(|| panic!("no result: {self:?}")).to_string()
    }

    /// `error.code`.
    #[track_caller]
    pub fn code(&self) -> i64 {
        self.json()["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {self:?}"))
    }

    /// `error.data.reason`, or nothing.
    #[track_caller]
    pub fn reason(&self) -> String {
        self.json()["error"]["data"]["reason"].as_str().unwrap_or_default().to_owned()
    }

    /// `error.data.attempts` of an error that Ringway made.
    #[track_caller]
    pub fn attempts(&self) -> u64 {
        let data = &self.json()["error"]["data"];
        assert_eq!(data["source"], "ringway", "{self:?}");
        data["attempts"].as_u64().unwrap_or_else(|| panic!("no attempts: {self:?}"))
    }

    /// The whole of a JSON-RPC success.
    #[track_caller]
    pub fn assert_result(&self, id: &str, result: &str) {
        assert_eq!(self.status, 200, "{self:?}");
        assert_eq!(self.body, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
        assert_eq!(self.header("content-type").as_deref(), Some("application/json"));
    }

    /// An error that Ringway made.
    #[track_caller]
    pub fn assert_fault(&self, status: u16, id: &str, code: i64) {
        assert_eq!(self.status, status, "{self:?}");
        let rest = self.body.strip_prefix(&format!(r#"{{"jsonrpc":"2.0","id":{id},"#));
        // Without the id: some are valid JSON that this reader does not take (lone surrogates).
        let rest: serde_json::Value = rest
            .and_then(|rest| serde_json::from_str(&format!("{{{rest}")).ok())
            .unwrap_or_else(|| panic!("not an error for {id}: {self:?}"));
        assert_eq!(rest["error"]["code"], code, "{self:?}");
        assert_eq!(rest["error"]["data"]["source"], "ringway", "{self:?}");
        assert!(rest["error"]["data"]["attempts"].is_u64() && rest["error"]["message"].is_string(), "{self:?}");
        assert_eq!(self.header("content-type").as_deref(), Some("application/json"));
    }
}

/// One connection.
pub struct Client {
    stream: TcpStream,
    buf: Vec<u8>,
}

impl Client {
    /// Connects.
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client { stream, buf: Vec::new() }
    }

    /// Sends bytes. A peer that has already closed shows in what is read.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Client {
        let _ = self.stream.write_all(bytes.as_ref());
        self
    }

    /// Sends one request.
    pub fn post(&mut self, path: &str, headers: &[&str], body: impl AsRef<[u8]>) -> &mut Client {
        let mut bytes = request(path, headers, body.as_ref().len()).into_bytes();
        bytes.extend_from_slice(body.as_ref());
        self.send(bytes)
    }

    /// Sends one request to `/eth`, and reads its answer.
    #[track_caller]
    pub fn ask(&mut self, body: impl AsRef<[u8]>) -> Response {
        self.post("/eth", &[], body);
        self.response()
    }

    /// Reads one response.
    #[track_caller]
    pub fn response(&mut self) -> Response {
        self.try_response(false).expect("closed instead of a response")
    }

    /// Reads the response to a HEAD request.
    #[track_caller]
    pub fn head_response(&mut self) -> Response {
        self.try_response(true).expect("closed instead of a response")
    }

    /// Reads one response; `None` = the peer closed.
    #[track_caller]
    pub fn try_response(&mut self, head_only: bool) -> Option<Response> {
        let end = loop {
            if let Some(end) = self.buf.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if !self.read() {
                assert!(self.buf.is_empty(), "closed in a head: {:?}", String::from_utf8_lossy(&self.buf));
                return None;
            }
        };
        let head = String::from_utf8(self.buf[..end].to_vec()).unwrap();
        let status: u16 = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{head}"));
        assert!(header_values(&head, "transfer-encoding").is_empty(), "{head}");
        let length = header_values(&head, "content-length");
        assert!(length.len() <= 1, "{head}");
        let bodiless = head_only || status == 204 || status < 200;
        assert!(bodiless || !length.is_empty(), "an answer without its length: {head}");
        let length = if bodiless { 0 } else { length[0].parse().unwrap() };
        while self.buf.len() < end + length {
            assert!(self.read(), "closed in a body: {head}{:?}", String::from_utf8_lossy(&self.buf[end..]));
        }
        let body = &self.buf[end..end + length];
        let body = match header_values(&head, "content-encoding").first().map(String::as_str) {
            Some("gzip") => std::io::read_to_string(flate2::bufread::GzDecoder::new(body)).unwrap(),
            None => String::from_utf8(body.to_vec()).unwrap(),
            other => panic!("{other:?}: {head}"),
        };
        self.buf.drain(..end + length);
        Some(Response { status, head, body })
    }

    /// Everything that comes until the peer closes.
    #[track_caller]
    pub fn rest(&mut self) -> Vec<u8> {
        while self.read() {}
        std::mem::take(&mut self.buf)
    }

    /// Whether the peer closes without another byte.
    #[track_caller]
    pub fn closed(&mut self) {
        let more = self.buf.is_empty() && self.read();
        assert!(self.buf.is_empty() && !more, "more came: {:?}", String::from_utf8_lossy(&self.buf));
    }

    /// Whether nothing has come that was not read yet, and the connection is open.
    pub fn is_quiet(&mut self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        self.buf.is_empty() && matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Tells the peer that nothing more will be sent.
    pub fn finish(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Goes away without a word.
    pub fn reset(self) {
        rustix::net::connect_unspec(&self.stream).unwrap();
    }

    /// Goes away by a reset after this time; `true` = some of an answer had come.
    pub fn gives_up_after_micros(self, patience: u64) -> bool {
        if patience > 0 {
            std::thread::sleep(std::time::Duration::from_micros(patience));
        }
        self.stream.set_nonblocking(true).unwrap();
        let came = matches!((&self.stream).read(&mut [0; 64]), Ok(n) if n > 0);
        let _ = rustix::net::connect_unspec(&self.stream);
        came
    }

    /// Reads once; `false` = closed or reset.
    #[track_caller]
    fn read(&mut self) -> bool {
        let mut chunk = vec![0; 64 << 10];
        let read = loop {
            // A process that is stopped and goes on is told so here, since the socket has a time limit.
            match self.stream.read(&mut chunk) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        match read {
            Ok(n) => {
                self.buf.extend_from_slice(&chunk[..n]);
                n > 0
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("nothing came: {error}"),
        }
    }
}

/// The head of a POST.
pub fn request(path: &str, headers: &[&str], length: usize) -> String {
    let fields: String = headers.iter().map(|field| format!("{field}\r\n")).collect();
    format!(
        "POST {path} HTTP/1.1\r\nHost: gw.test\r\nContent-Type: application/json\r\n{fields}Content-Length: {length}\r\n\r\n"
    )
}

/// The body of a Call.
pub fn call_body(id: &str, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

/// The body of a notification.
pub fn notification_body(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}

/// A body in chunks, cut where `seed` says.
pub fn chunked(body: &[u8], seed: usize) -> Vec<u8> {
    let (mut rest, mut out, mut nth) = (body, Vec::new(), seed);
    while !rest.is_empty() {
        // From single bytes to pieces larger than a buffer.
        let size = [1, 7, 300, 5_000, 70_000, 2, 64][nth % 7].min(rest.len());
        let (piece, left) = rest.split_at(size);
        out.extend_from_slice(
            format!("{size:x}{}\r\n", if nth.is_multiple_of(3) { ";x=\"y\"" } else { "" }).as_bytes(),
        );
        out.extend_from_slice(piece);
        out.extend_from_slice(b"\r\n");
        (rest, nth) = (left, nth + 1);
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}
