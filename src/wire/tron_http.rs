//! What is in an answer of TRON's HTTP API? One pass, nothing copied, and the errors that Ringway says in its form.

use super::json::{self, JsonError, Members};
use super::json_text::{contains, quote, says, unescape};
use super::jsonrpc::text_start;
use super::jsonrpc_check::{RESPONSE_DEPTH_MAX, TRON_BUSY};
use super::jsonrpc_write::write_fault_data;
use super::params::{members, string};
use crate::logic::broadcast::{Said, judge_tron_broadcast};
use crate::logic::fault::Fault;
use crate::logic::tron_http::is_busy_code;

/// What a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// JSON: an answer.
    Answer,
    /// JSON with which the node says no: it has an `Error`, a false `result`, or the `code` of a failure.
    Refusal,
    /// The node is busy, and another one may not be.
    NodeBusy,
    /// There is none.
    Empty,
    /// No JSON.
    Bad,
}

/// Reads a whole body.
pub fn check(body: &[u8]) -> Checked {
    if body.is_empty() {
        return Checked::Empty;
    }
    read(body).unwrap_or(Checked::Bad)
}

fn read(body: &[u8]) -> Result<Checked, JsonError> {
    let start = text_start(body);
    let Some(b'{') = body.get(start) else {
        let end = json::skip_value(body, start, RESPONSE_DEPTH_MAX)?;
        json::expect_end(body, end)?;
        return Ok(Checked::Answer);
    };
    let mut found = Found::default();
    let mut members = Members::new(body, start + 1);
    while let Some(name) = members.next_name()? {
        let value = members.skip(RESPONSE_DEPTH_MAX - 1)?;
        found.take(body.get(name).unwrap_or_default(), body.get(value).unwrap_or_default());
    }
    json::expect_end(body, members.at())?;
    Ok(found.judge())
}

/// The members that matter, as they come by.
#[derive(Default)]
struct Found {
    error: bool,
    overloaded: bool,
    busy_code: bool,
    taken: bool,
    /// Protobuf leaves a false `result` out, and then only `code` says no.
    refused: bool,
}

impl Found {
    fn take(&mut self, name: &[u8], value: &[u8]) {
        if says(name, b"Error") {
            self.error = true;
            self.overloaded |= string(value).is_some_and(|text| contains(text, TRON_BUSY));
        } else if says(name, b"code") {
            let code = string(value).and_then(unescape);
            self.busy_code |= code.as_deref().is_some_and(is_busy_code);
            self.refused |= code.is_some_and(|code| code != "SUCCESS");
        } else if says(name, b"result") {
            self.taken |= value == b"true";
            self.refused |= value == b"false";
        }
    }

    /// An answer that says both yes and busy is no refusal: the node may have taken what it was sent.
    fn judge(self) -> Checked {
        if (self.overloaded || self.busy_code) && !self.taken {
            Checked::NodeBusy
        } else if self.error || (self.refused && !self.taken) {
            Checked::Refusal
        } else {
            Checked::Answer
        }
    }
}

/// What a broadcast's answer says about a transaction that was sent before; `None` = the node has taken it.
pub fn said(answer: &[u8], name: &str) -> Option<Said> {
    let Some([result, code, message, txid]) = members(answer, [b"result", b"code", b"message", b"txid"]) else {
        return Some(Said::Other);
    };
    if result == Some(b"true") {
        return None;
    }
    let text = |value: Option<&'_ [u8]>| value.and_then(string).and_then(unescape).unwrap_or_default().into_owned();
    // An answer that names another transaction is about another transaction.
    if txid.and_then(string).is_some_and(|txid| !txid.is_empty() && !txid.eq_ignore_ascii_case(name.as_bytes())) {
        return Some(Said::Other);
    }
    Some(judge_tron_broadcast(&text(code), &text(message)))
}

/// Appends the success of a broadcast that an earlier attempt earned.
pub fn write_taken(out: &mut Vec<u8>, txid: &str) {
    out.extend_from_slice(b"{\"result\":true,\"txid\":");
    quote(out, txid);
    out.push(b'}');
}

/// Appends an error that Ringway itself makes.
pub fn write_fault(out: &mut Vec<u8>, fault: &Fault, attempts: u32, transaction: Option<&str>) {
    out.extend_from_slice(b"{\"Error\":\"ringway: ");
    // No message holds a character that JSON escapes; a test shows it.
    out.extend_from_slice(fault.message().as_bytes());
    out.extend_from_slice(b"\",\"code\":");
    out.extend_from_slice(itoa::Buffer::new().format(fault.code()).as_bytes());
    write_fault_data(out, fault, attempts, transaction);
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::fault::{HttpFault, Invalid, Reason, Unavailable};

    #[test]
    fn every_json_is_an_answer() {
        for body in ["{}", " [] ", "1e999", "null", "\"x\"", "{\"a\":{\"Error\":1}}", "{\"result\":true}", "\u{feff}{}"]
        {
            assert_eq!(check(body.as_bytes()), Checked::Answer, "{body}");
        }
        for body in [" ", "{", "{}x", "{\"a\":01}", "<html>", "this API is closed", "{\"a\":1,}", "\u{feff}", "{'a':1}"]
        {
            assert_eq!(check(body.as_bytes()), Checked::Bad, "{body}");
        }
        assert_eq!(check(b""), Checked::Empty);
        assert_eq!(check(&[b"[".repeat(10_000), b"]".repeat(10_000)].concat()), Checked::Answer);
        assert_eq!(check(&[b"[".repeat(10_001), b"]".repeat(10_001)].concat()), Checked::Bad);
        assert_eq!(check(&b"[".repeat(1_000_000)), Checked::Bad);
    }

    #[test]
    fn a_node_says_no_in_three_ways() {
        for body in [
            "{\"Error\":\"class x : y\"}",
            "{\"Error\":null}",
            "{\"result\":false}",
            "{\"code\":\"SIGERROR\"}",
            "{\"result\":false,\"code\":\"SIGERROR\"}",
        ] {
            assert_eq!(check(body.as_bytes()), Checked::Refusal, "{body}");
        }
        for body in [
            "{\"error\":\"x\"}",
            "{\"result\":\"false\"}",
            "{\"result\":{\"result\":false,\"code\":\"SIGERROR\"}}",
            "{\"code\":7}",
            "{\"code\":\"SUCCESS\"}",
            "{\"result\":true,\"code\":\"SIGERROR\"}",
        ] {
            assert_eq!(check(body.as_bytes()), Checked::Answer, "{body}");
        }
    }

    #[test]
    fn busy_is_known_by_its_code_or_its_words() {
        for body in [
            "{\"Error\":\"class java.lang.IllegalAccessException : lack of computing resources\"}",
            "{\"Err\\u006fr\":\"lack\\u0020of computing resources\"}",
            "{\"code\":\"SERVER_BUSY\",\"txid\":\"00\"}",
            "{\"result\":false,\"code\":\"NO_CONNECTION\"}",
            "{\"code\":\"BLOCK\\u005fUNSOLIDIFIED\"}",
        ] {
            assert_eq!(check(body.as_bytes()), Checked::NodeBusy, "{body}");
        }
        for body in [
            "{\"message\":\"lack of computing resources\"}",
            "{\"Error\":{\"x\":\"lack of computing resources\"}}",
            "{\"a\":{\"code\":\"SERVER_BUSY\"}}",
            "{\"result\":true,\"code\":\"SERVER_BUSY\"}",
            "{\"code\":\"SERVER_BUSY\",\"result\":true}",
        ] {
            assert_ne!(check(body.as_bytes()), Checked::NodeBusy, "{body}");
        }
        assert_eq!(check(b"{\"code\":\"SERVER_BUSY\""), Checked::Bad, "half an answer says nothing");
    }

    #[test]
    fn a_broadcast_in_doubt_is_judged_by_what_its_node_says() {
        let says = |answer: &str| said(answer.as_bytes(), "ab");
        let dup = |rest: &str| format!("{{\"code\":\"DUP_TRANSACTION_ERROR\"{rest}}}");
        assert_eq!(says("{\"result\":true}"), None);
        assert_eq!(says("{\"result\":true,\"code\":\"DUP_TRANSACTION_ERROR\"}"), None);
        assert_eq!(says(&dup(",\"message\":\"Dup transaction.\",\"txid\":\"AB\"")), Some(Said::AlreadyKnown));
        assert_eq!(says(&dup(",\"message\":\"Dup\\u0020transaction.\"")), Some(Said::AlreadyKnown));
        assert_eq!(says(&dup(",\"message\":\"Transaction already exists.\"")), Some(Said::Seen));
        assert_eq!(says(&dup("")), Some(Said::Seen));
        assert_eq!(says(&dup(",\"txid\":\"\"")), Some(Said::Seen));
        assert_eq!(says(&dup(",\"message\":\"Dup transaction.\",\"txid\":\"ac\"")), Some(Said::Other));
        for other in ["{}", "[]", "true", "{\"result\":false}", "{\"code\":\"SIGERROR\"}", "{\"result\":\"true\"}", "{"]
        {
            assert_eq!(says(other), Some(Said::Other), "{other}");
        }
        assert_eq!(says("{\"result\":true,\"result\":false}"), Some(Said::Other), "readers differ on which counts");
    }

    #[test]
    fn what_ringway_says_is_valid_json_in_the_form_of_the_api() {
        let mut taken = Vec::new();
        write_taken(&mut taken, "ab");
        assert_eq!(taken, b"{\"result\":true,\"txid\":\"ab\"}");
        for fault in [
            Fault::NotJson,
            Fault::InvalidRequest(Invalid::TooDeep),
            Fault::Http(HttpFault::BadRequest("no \"Host\"")),
            Fault::Http(HttpFault::NotFound),
            Fault::Http(HttpFault::MethodNotAllowed("GET")),
            Fault::Http(HttpFault::Timeout),
            Fault::Http(HttpFault::BodyTooLarge),
            Fault::Http(HttpFault::Unsupported("x")),
            Fault::Http(HttpFault::ExpectationFailed),
            Fault::Http(HttpFault::HeadTooLarge),
            Fault::Http(HttpFault::VersionNotSupported),
            Fault::Method(Unavailable::Blocked),
            Fault::NoTarget,
            Fault::Unavailable { retry_after_ns: 1 },
            Fault::Exhausted { reason: Reason::RateLimited, retry_after_ns: 2_000_000 },
            Fault::TimedOut,
            Fault::OutcomeUnknown { reason: Reason::Timeout },
            Fault::ResponseTooLarge,
            Fault::ShuttingDown,
            Fault::Overloaded,
        ] {
            let mut out = Vec::new();
            write_fault(&mut out, &fault, 3, Some("ab"));
            let told: serde_json::Value = serde_json::from_slice(&out).unwrap();
            assert_eq!(told["Error"], format!("ringway: {}", fault.message()));
            assert_eq!(told["code"], fault.code());
            let data = &told["data"];
            assert_eq!((&data["source"], &data["attempts"]), (&"ringway".into(), &3.into()));
            assert_eq!((&data["transaction_hash"], data["reason"].as_str()), (&"ab".into(), fault.reason()));
        }
    }
}
