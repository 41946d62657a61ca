//! The bytes that the scripted upstream answers a request with.

use std::time::{Duration, Instant};

use crate::{
    exchange::{ENVELOPE_BYTES, Reader, Seen, append_answer_start, append_decimal},
    faults::{Fault, Faults},
    payload::{Template, seed},
};

/// What becomes of the connection and when, once the reply's bytes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct After {
    /// How long the reply waits before it goes out.
    pub wait: Duration,
    /// The connection ends after it.
    pub close: bool,
}

/// How an upstream answers.
#[derive(Debug, Clone)]
pub struct Manner {
    /// Bytes of each result.
    pub size: usize,
    /// The wait before each answer.
    pub delay: Duration,
    /// The longer wait of a stalled answer.
    pub stall: Duration,
    /// Which answers are bad.
    pub faults: Faults,
}

/// Writes replies; one per thread.
pub struct Replier {
    manner: Manner,
    template: Template,
    reader: Reader,
    count: u64,
    start: Instant,
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ";
const NOT_POST: &[u8] = b"HTTP/1.1 405 Method Not Allowed\r\nAllow: POST\r\nContent-Length: 0\r\n\r\n";
const BROKEN: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nbusy\n";
const BUSY: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n";
const BUSY_FOR_2S: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n";
/// A block number for gateways that poll: this height at start, one more each twelve seconds.
const TIP: u64 = 0x131_2d00;

impl Replier {
    /// A replier in the given manner.
    pub fn new(manner: Manner) -> Self {
        let template = Template::new(manner.size);
        Self { manner, template, reader: Reader::new(), count: 0, start: Instant::now() }
    }

    /// Appends the reply to a request of which `first` is the start of its head.
    pub fn append(&mut self, first: &[u8], body: &[u8], out: &mut Vec<u8>) -> After {
        let prompt = After { wait: self.manner.delay, close: false };
        if !first.starts_with(b"POST ") {
            out.extend_from_slice(NOT_POST);
            return prompt;
        }
        let seen = self.reader.see(body);
        if !seen.marked
            && let Some(result) = self.probe(body)
        {
            return self.whole(seen.id, result.as_bytes(), out);
        }
        self.count += 1;
        match self.manner.faults.of(self.count) {
            None => self.right(&seen, out),
            Some(fault) => self.bad(fault, &seen, out),
        }
    }

    fn right(&self, seen: &Seen<'_>, out: &mut Vec<u8>) -> After {
        head(ENVELOPE_BYTES + seen.id.len() + self.template.size(), out);
        append_answer_start(seen.id, out);
        self.template.append(seed(seen.key), out);
        out.push(b'}');
        After { wait: self.manner.delay, close: false }
    }

    fn whole(&self, id: &[u8], result: &[u8], out: &mut Vec<u8>) -> After {
        head(ENVELOPE_BYTES + id.len() + result.len(), out);
        append_answer_start(id, out);
        out.extend_from_slice(result);
        out.push(b'}');
        After { wait: self.manner.delay, close: false }
    }

    fn bad(&self, fault: Fault, seen: &Seen<'_>, out: &mut Vec<u8>) -> After {
        let base = out.len();
        let after = After { wait: self.manner.delay, close: false };
        match fault {
            Fault::Status503 => out.extend_from_slice(BROKEN),
            Fault::Status429 => out.extend_from_slice(BUSY),
            Fault::Status429For2s => out.extend_from_slice(BUSY_FOR_2S),
            Fault::Close => return After { close: true, ..after },
            Fault::Truncate => {
                self.right(seen, out);
                let half = (out.len() - base) / 2;
                out.truncate(base + half);
                return After { close: true, ..after };
            }
            Fault::WrongId => return self.right(&Seen { id: b"\"astray\"", ..*seen }, out),
            Fault::WrongPayload => return self.right(&Seen { key: b"astray", ..*seen }, out),
            Fault::RpcError => {
                const ERROR: &[u8] = br#","error":{"code":-32000,"message":"scripted"}}"#;
                const START: &[u8] = br#"{"jsonrpc":"2.0","id":"#;
                head(START.len() + seen.id.len() + ERROR.len(), out);
                for part in [START, seen.id, ERROR] {
                    out.extend_from_slice(part);
                }
            }
            Fault::Stall => return After { wait: self.manner.stall, ..self.right(seen, out) },
        }
        after
    }

    /// The result for a question that a gateway asks on its own behalf.
    fn probe(&self, body: &[u8]) -> Option<String> {
        let asks = |method: &[u8]| memchr::memmem::find(body, method).is_some();
        if asks(b"\"eth_blockNumber\"") {
            Some(format!("\"{:#x}\"", TIP + self.start.elapsed().as_secs() / 12))
        } else if asks(b"\"eth_chainId\"") {
            Some("\"0x1\"".to_owned())
        } else if asks(b"\"web3_clientVersion\"") {
            Some("\"Geth/v1.16.0-scripted/linux-amd64/go1.24\"".to_owned())
        } else {
            None
        }
    }
}

fn head(length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(OK);
    append_decimal(length as u64, out);
    out.extend_from_slice(b"\r\n\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http;

    fn manner(kinds: Vec<Fault>) -> Manner {
        let faults = Faults { rate: 1.0, kinds, ..Faults::default() };
        Manner { size: 120, delay: Duration::ZERO, stall: Duration::from_secs(9), faults }
    }

    fn reply(kinds: Vec<Fault>, first: &str, body: &str) -> (String, After) {
        let mut out = Vec::new();
        let after = Replier::new(manner(kinds)).append(first.as_bytes(), body.as_bytes(), &mut out);
        (String::from_utf8(out).unwrap(), after)
    }

    fn is_whole(reply: &str) -> bool {
        matches!(http::head(reply.as_bytes()), http::Framing::Head(head)
            if head.body.is_some_and(|body| head.len + body == reply.len()))
    }

    #[test]
    fn replies_have_exact_lengths_and_the_id() {
        let (right, after) = reply(vec![], "POST / HTTP/1.1", r#"{"id":"x\"y","method":"eth_call"}"#);
        assert!(is_whole(&right), "{right}");
        assert!(right.contains(r#"{"jsonrpc":"2.0","id":"x\"y","result":"0x"#), "{right}");
        assert_eq!(after, After { wait: Duration::ZERO, close: false });
    }

    #[test]
    fn a_gateways_own_questions_are_answered() {
        for (method, result) in [("eth_chainId", "\"0x1\""), ("eth_blockNumber", "\"0x1312d00\"")] {
            let (answer, _) = reply(vec![Fault::Close], "POST /", &format!(r#"{{"id":1,"method":"{method}"}}"#));
            assert!(is_whole(&answer) && answer.ends_with(&format!("\"result\":{result}}}")), "{answer}");
        }
    }

    #[test]
    fn faults_look_as_named() {
        let ask = r#"{"id":7,"method":"eth_call"}"#;
        let (right, _) = reply(vec![], "POST /", ask);
        let bad = |fault| reply(vec![fault], "POST /", ask);
        assert_eq!(bad(Fault::Close), (String::new(), After { wait: Duration::ZERO, close: true }));
        let (half, after) = bad(Fault::Truncate);
        assert!(right.starts_with(&half) && half.len() == right.len() / 2 && after.close);
        assert_eq!(bad(Fault::Stall), (right.clone(), After { wait: Duration::from_secs(9), close: false }));
        assert!(bad(Fault::Status503).0.starts_with("HTTP/1.1 503 ") && is_whole(&bad(Fault::Status503).0));
        let (rpc_error, _) = bad(Fault::RpcError);
        assert!(is_whole(&rpc_error) && rpc_error.contains(r#""id":7,"error":{"#));
        let (wrong_id, _) = bad(Fault::WrongId);
        assert!(is_whole(&wrong_id) && !wrong_id.contains("\"id\":7"));
        let (wrong_payload, _) = bad(Fault::WrongPayload);
        assert!(is_whole(&wrong_payload) && wrong_payload.contains("\"id\":7,") && wrong_payload != right);
    }

    #[test]
    fn only_posts_are_calls() {
        let (answer, _) = reply(vec![], "GET / HTTP/1.1", "");
        assert!(answer.starts_with("HTTP/1.1 405 ") && is_whole(&answer));
    }
}
