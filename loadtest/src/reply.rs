//! The bytes that the scripted upstream answers a request with.

use std::time::{Duration, Instant};

use crate::{
    batch,
    exchange::{
        CHAIN_ID, ENVELOPE_BYTES, Reader, Results, Seen, TIP, append_answer_start, append_decimal, append_height,
    },
    faults::{Fault, Faults},
    payload::seed,
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
    /// Bytes of each result, without a mix.
    pub size: usize,
    /// Results as in [`crate::mixture`].
    pub mix: bool,
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
    results: Results,
    reader: Reader,
    /// The answer to a batch, until its length is known.
    joined: Vec<u8>,
    count: u64,
    start: Instant,
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ";
const NOT_POST: &[u8] = b"HTTP/1.1 405 Method Not Allowed\r\nAllow: POST\r\nContent-Length: 0\r\n\r\n";
const BROKEN: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nbusy\n";
const BUSY: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n";
const BUSY_FOR_2S: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n";
const NOT_JSON: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
/// The height grows by one in this time, for gateways that poll it.
const BLOCK_SECONDS: u64 = 12;

impl Replier {
    /// A replier in the given manner.
    pub fn new(manner: Manner) -> Self {
        let results = Results::new(manner.size, manner.mix);
        let (reader, start) = (Reader::new(), Instant::now());
        Self { manner, results, reader, joined: Vec::new(), count: 0, start }
    }

    /// Appends the reply to a request of which `first` is the start of its head. A batch draws one fault: one of the
    /// connection hits all of it, one of an answer hits its first member.
    pub fn append(&mut self, first: &[u8], body: &[u8], out: &mut Vec<u8>) -> After {
        let prompt = After { wait: self.manner.delay, close: false };
        if !first.starts_with(b"POST ") {
            out.extend_from_slice(NOT_POST);
            return prompt;
        }
        let asked = match batch::is_batch(body).then(|| batch::members(body)) {
            None => Asked::Call(self.reader.see(body), body),
            Some(Some(members)) if !members.is_empty() => Asked::Batch(members),
            Some(_) => {
                out.extend_from_slice(NOT_JSON);
                return prompt;
            }
        };
        if let Asked::Call(seen, _) = &asked
            && let Some(result) = self.probe(seen)
        {
            framed(seen.id, &result, out);
            return prompt;
        }
        self.count += 1;
        match self.manner.faults.of(self.count) {
            None => self.write(&asked, None, out),
            Some(fault) => return self.bad(fault, &asked, out),
        }
        prompt
    }

    /// Appends the whole response, with a flaw in the first answer if one is wanted.
    fn write(&mut self, asked: &Asked<'_>, flaw: Option<Fault>, out: &mut Vec<u8>) {
        let members = match asked {
            Asked::Call(seen, _) if flaw != Some(Fault::RpcError) => {
                let seen = flawed(*seen, flaw);
                let template = self.results.template(seen.method, seen.key);
                head(ENVELOPE_BYTES + seen.id.len() + template.size(), out);
                append_answer_start(seen.id, out);
                template.append(seed(seen.key), out);
                out.push(b'}');
                return;
            }
            Asked::Call(_, body) => std::slice::from_ref(body),
            Asked::Batch(members) => members.as_slice(),
        };
        let mut joined = std::mem::take(&mut self.joined);
        joined.clear();
        let is_batch = matches!(asked, Asked::Batch(_));
        for (at, member) in members.iter().enumerate() {
            if is_batch {
                joined.push(if at == 0 { b'[' } else { b',' });
            }
            self.member(member, flaw.filter(|_| at == 0), &mut joined);
        }
        if is_batch {
            joined.push(b']');
        }
        head(joined.len(), out);
        out.extend_from_slice(&joined);
        self.joined = joined;
    }

    /// Appends the answer to one Call.
    fn member(&mut self, body: &[u8], flaw: Option<Fault>, out: &mut Vec<u8>) {
        let seen = flawed(self.reader.see(body), flaw);
        if flaw == Some(Fault::RpcError) {
            for part in [br#"{"jsonrpc":"2.0","id":"#, seen.id, br#","error":{"code":-32000,"message":"scripted"}}"#] {
                out.extend_from_slice(part);
            }
            return;
        }
        append_answer_start(seen.id, out);
        match self.probe(&seen) {
            Some(result) => out.extend_from_slice(&result),
            None => self.results.template(seen.method, seen.key).append(seed(seen.key), out),
        }
        out.push(b'}');
    }

    fn bad(&mut self, fault: Fault, asked: &Asked<'_>, out: &mut Vec<u8>) -> After {
        let base = out.len();
        let after = After { wait: self.manner.delay, close: false };
        match fault {
            Fault::Status503 => out.extend_from_slice(BROKEN),
            Fault::Status429 => out.extend_from_slice(BUSY),
            Fault::Status429For2s => out.extend_from_slice(BUSY_FOR_2S),
            Fault::Close => return After { close: true, ..after },
            Fault::Truncate => {
                self.write(asked, None, out);
                let half = (out.len() - base) / 2;
                out.truncate(base + half);
                return After { close: true, ..after };
            }
            Fault::WrongId | Fault::WrongPayload | Fault::RpcError => self.write(asked, Some(fault), out),
            Fault::Stall => {
                self.write(asked, None, out);
                return After { wait: self.manner.stall, ..after };
            }
        }
        after
    }

    /// The result for a question that a gateway asks on its own behalf, and others without a mark.
    fn probe(&self, seen: &Seen<'_>) -> Option<Vec<u8>> {
        match seen.method {
            _ if seen.marked => None,
            b"eth_blockNumber" => {
                let mut result = Vec::new();
                append_height(TIP + self.start.elapsed().as_secs() / BLOCK_SECONDS, &mut result);
                Some(result)
            }
            b"eth_chainId" => Some(CHAIN_ID.to_vec()),
            b"web3_clientVersion" => Some(b"\"Geth/v1.16.0-scripted/linux-amd64/go1.24\"".to_vec()),
            _ => None,
        }
    }
}

/// What a request holds.
enum Asked<'a> {
    Call(Seen<'a>, &'a [u8]),
    Batch(Vec<&'a [u8]>),
}

/// A Call as seen by an upstream that takes it for another.
fn flawed<'a>(seen: Seen<'a>, flaw: Option<Fault>) -> Seen<'a> {
    match flaw {
        Some(Fault::WrongId) => Seen { id: b"\"astray\"", ..seen },
        Some(Fault::WrongPayload) => Seen { key: b"astray", ..seen },
        _ => seen,
    }
}

/// Appends a response with this id and result.
fn framed(id: &[u8], result: &[u8], out: &mut Vec<u8>) {
    head(ENVELOPE_BYTES + id.len() + result.len(), out);
    append_answer_start(id, out);
    out.extend_from_slice(result);
    out.push(b'}');
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
        Manner { size: 120, mix: false, delay: Duration::ZERO, stall: Duration::from_secs(9), faults }
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
    fn a_batch_is_answered_with_an_array_in_order() {
        let (one, two) = (r#"{"id":7,"method":"eth_call"}"#, r#"{"id":"b","method":"eth_chainId"}"#);
        let (answer, _) = reply(vec![], "POST /", &format!("[{one}, {two}]"));
        let (single, _) = reply(vec![], "POST /", one);
        let first = &single[single.find("\r\n\r\n").unwrap() + 4..];
        let whole = format!(r#"[{first},{{"jsonrpc":"2.0","id":"b","result":"0x1"}}]"#);
        assert!(is_whole(&answer) && answer.ends_with(&whole), "{answer}");
        for none in ["[]", "[", "[{}}]"] {
            let (answer, _) = reply(vec![], "POST /", none);
            assert!(is_whole(&answer) && answer.starts_with("HTTP/1.1 400 "), "{none}: {answer}");
        }
    }

    #[test]
    fn a_fault_of_an_answer_hits_the_first_of_a_batch() {
        let batch = r#"[{"id":7,"method":"eth_call"},{"id":8,"method":"eth_call"}]"#;
        let (right, _) = reply(vec![], "POST /", batch);
        let tail = &right[right.find(r#"{"jsonrpc":"2.0","id":8"#).unwrap()..];
        for (fault, holds) in [
            (Fault::WrongId, r#""id":"astray""#),
            (Fault::WrongPayload, r#""id":7,"result""#),
            (Fault::RpcError, r#""id":7,"error""#),
        ] {
            let (answer, _) = reply(vec![fault], "POST /", batch);
            assert!(is_whole(&answer) && answer != right, "{answer}");
            assert!(answer.contains(holds) && answer.ends_with(tail), "{fault:?}: {answer}");
        }
        assert!(reply(vec![Fault::Status503], "POST /", batch).0.starts_with("HTTP/1.1 503 "));
    }

    #[test]
    fn only_posts_are_calls() {
        let (answer, _) = reply(vec![], "GET / HTTP/1.1", "");
        assert!(answer.starts_with("HTTP/1.1 405 ") && is_whole(&answer));
    }
}
