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
