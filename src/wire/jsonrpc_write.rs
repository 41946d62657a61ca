//! How are envelopes written? The request that goes up, and what stands around a value that goes back.

use super::json_text::{quote, quoted_len};
use crate::logic::fault::{Fault, Reason};

const HEAD: &[u8] = b"{\"jsonrpc\":\"2.0\"";
const WITH_ID: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":";
const METHOD: &[u8] = b",\"method\":";
const PARAMS: &[u8] = b",\"params\":";
const RESULT: &[u8] = b",\"result\":";
const ERROR: &[u8] = b",\"error\":";
const NS_PER_MS: u64 = 1_000_000;

/// How many bytes [`write_request`] writes.
pub fn request_len(id: Option<u64>, method: &str, params: Option<&[u8]>) -> usize {
    let head = id.map_or(HEAD.len(), |id| WITH_ID.len() + digits(id));
    let params = params.map_or(0, |params| PARAMS.len() + params.len());
    let method = if is_plain(method) { method.len() + 2 } else { quoted_len(method) };
    head + METHOD.len() + method + params + 1
}

/// Appends the request for an upstream: the method quoted again, `params` as they came.
pub fn write_request(out: &mut Vec<u8>, id: Option<u64>, method: &str, params: Option<&[u8]>) {
    match id {
        Some(id) => {
            out.extend_from_slice(WITH_ID);
            write_number(out, id);
        }
        None => out.extend_from_slice(HEAD),
    }
    out.extend_from_slice(METHOD);
    if is_plain(method) {
        out.push(b'"');
        out.extend_from_slice(method.as_bytes());
        out.push(b'"');
    } else {
        quote(out, method);
    }
    if let Some(params) = params {
        out.extend_from_slice(PARAMS);
        out.extend_from_slice(params);
    }
    out.push(b'}');
}

/// Whether a name is the same inside quotes: letters, digits and `_`, as in all methods that are known.
#[inline(always)]
fn is_plain(name: &str) -> bool {
    static PLAIN: [bool; 256] = {
        let mut table = [false; 256];
        let mut byte = 0;
        while byte < 256 {
            table[byte] = (byte as u8).is_ascii_alphanumeric() || byte as u8 == b'_';
            byte += 1;
        }
        table
    };
    name.bytes().all(|byte| PLAIN[usize::from(byte)])
}

/// How many digits a number has.
#[inline(always)]
fn digits(number: u64) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

/// How many bytes [`write_answer_prefix`] writes.
pub fn answer_prefix_len(id: &[u8], is_error: bool) -> usize {
    WITH_ID.len() + id.len() + if is_error { ERROR.len() } else { RESULT.len() }
}

/// Appends what stands before the upstream's bytes in an answer; after them comes one `}`.
pub fn write_answer_prefix(out: &mut Vec<u8>, id: &[u8], is_error: bool) {
    out.extend_from_slice(WITH_ID);
    out.extend_from_slice(id);
    out.extend_from_slice(if is_error { ERROR } else { RESULT });
}

/// Appends a whole answer that Ringway itself makes, to a Call that had `attempts` attempts.
/// `transaction` is the hash of a signed transaction whose outcome is unknown.
pub fn write_fault(out: &mut Vec<u8>, id: &[u8], fault: &Fault, attempts: u32, transaction: Option<&str>) {
    write_answer_prefix(out, id, true);
    out.extend_from_slice(b"{\"code\":");
    out.extend_from_slice(itoa::Buffer::new().format(fault.code()).as_bytes());
    out.extend_from_slice(b",\"message\":");
    quote(out, fault.message());
    write_fault_data(out, fault, attempts, transaction);
    out.extend_from_slice(b"}}");
}

/// Appends `,"data":{…}`, which both protocols have.
pub(super) fn write_fault_data(out: &mut Vec<u8>, fault: &Fault, attempts: u32, transaction: Option<&str>) {
    out.extend_from_slice(b",\"data\":{\"source\":\"ringway\",\"attempts\":");
    write_number(out, u64::from(attempts));
    if let Some(reason) = fault.reason() {
        out.extend_from_slice(b",\"reason\":");
        quote(out, reason);
    }
    if let Some(wait_ms) = retry_after_ms(fault) {
        out.extend_from_slice(b",\"retry_after_ms\":");
        write_number(out, wait_ms);
    }
    if let Some(transaction) = transaction {
        out.extend_from_slice(b",\"transaction_hash\":");
        quote(out, transaction);
    }
    out.push(b'}');
}

/// The wait in whole milliseconds, rounded up; there is one exactly where the fault has a `Retry-After`.
fn retry_after_ms(fault: &Fault) -> Option<u64> {
    match *fault {
        Fault::Unavailable { retry_after_ns } | Fault::Exhausted { reason: Reason::RateLimited, retry_after_ns } => {
            Some(retry_after_ns.div_ceil(NS_PER_MS).max(1))
        }
        _ => fault.retry_after_s().map(|seconds| seconds.saturating_mul(1000)),
    }
}

fn write_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::fault::{HttpFault, Invalid, Unavailable};

    fn request(id: Option<u64>, method: &str, params: Option<&[u8]>) -> String {
        let mut out = Vec::new();
        write_request(&mut out, id, method, params);
        assert_eq!(out.len(), request_len(id, method, params));
        String::from_utf8(out).unwrap()
    }

    fn fault(fault: Fault, attempts: u32) -> String {
        let mut out = Vec::new();
        write_fault(&mut out, b"\"a\"", &fault, attempts, None);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn requests_are_rebuilt_to_the_byte() {
        assert_eq!(
            request(Some(0), "eth_call", Some(b"[ 1e999 ]")),
            r#"{"jsonrpc":"2.0","id":0,"method":"eth_call","params":[ 1e999 ]}"#
        );
        assert_eq!(request(Some(u64::MAX), "m", None), r#"{"jsonrpc":"2.0","id":18446744073709551615,"method":"m"}"#);
        assert_eq!(request(None, "", Some(b"null")), r#"{"jsonrpc":"2.0","method":"","params":null}"#);
        assert_eq!(request(None, "a\"\\/\n\u{1}é😀", None), r#"{"jsonrpc":"2.0","method":"a\"\\/\n\u0001é😀"}"#);
    }

    #[test]
    fn writing_appends() {
        let mut out = b"x".to_vec();
        write_request(&mut out, Some(1), "m", None);
        write_answer_prefix(&mut out, b"1.50", false);
        write_answer_prefix(&mut out, b"null", true);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "x{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}\
             {\"jsonrpc\":\"2.0\",\"id\":1.50,\"result\":{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":"
        );
    }

    #[test]
    fn the_length_of_an_answer_is_known_before() {
        for id in [&b"null"[..], b"\"\"", b"123456789012345678901234567890"] {
            for is_error in [false, true] {
                let mut out = Vec::new();
                write_answer_prefix(&mut out, id, is_error);
                assert_eq!(out.len(), answer_prefix_len(id, is_error));
            }
        }
    }

    #[test]
    fn faults_carry_code_source_attempts_and_what_else_there_is() {
        assert_eq!(
            fault(Fault::NoTarget, 0),
            r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32050,"message":"No usable Endpoint for this method","data":{"source":"ringway","attempts":0}}}"#
        );
        assert_eq!(
            fault(Fault::Method(Unavailable::NotExposed), 0),
            r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32601,"message":"Method not available on this Gateway","data":{"source":"ringway","attempts":0,"reason":"not_exposed"}}}"#
        );
        assert_eq!(
            fault(Fault::Exhausted { reason: Reason::RateLimited, retry_after_ns: 1_500_000_001 }, 3),
            r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32052,"message":"All attempts failed","data":{"source":"ringway","attempts":3,"reason":"rate_limited","retry_after_ms":1501}}}"#
        );
    }

    #[test]
    fn a_wait_is_told_exactly_where_the_header_has_one() {
        let wait = |told: Fault| {
            let value: serde_json::Value = serde_json::from_str(&fault(told, 1)).unwrap();
            value["error"]["data"]["retry_after_ms"].as_u64()
        };
        assert_eq!(wait(Fault::Unavailable { retry_after_ns: 20_000_000 }), Some(20));
        assert_eq!(wait(Fault::Unavailable { retry_after_ns: 0 }), Some(1));
        assert_eq!(wait(Fault::Unavailable { retry_after_ns: u64::MAX }), Some(u64::MAX.div_ceil(1_000_000)));
        assert_eq!(wait(Fault::Overloaded), Some(1000));
        assert_eq!(wait(Fault::Exhausted { reason: Reason::Timeout, retry_after_ns: 5_000_000 }), None);
        assert_eq!(wait(Fault::ShuttingDown), None);
    }

    #[test]
    fn every_fault_is_valid_json_with_its_own_words() {
        let faults = [
            Fault::NotJson,
            Fault::InvalidRequest(Invalid::MisspelledMember),
            Fault::Http(HttpFault::BadRequest("quote \" and \n line")),
            Fault::TimedOut,
            Fault::OutcomeUnknown { reason: Reason::ConnectionLost },
            Fault::ResponseTooLarge,
            Fault::Overloaded,
        ];
        for told in faults {
            let value: serde_json::Value = serde_json::from_str(&fault(told, 7)).unwrap();
            assert_eq!(value["error"]["code"].as_i64(), Some(told.code().into()));
            assert_eq!(value["error"]["message"], told.message());
            assert_eq!(value["error"]["data"]["attempts"].as_u64(), Some(7));
            assert_eq!(value["error"]["data"]["reason"].as_str(), told.reason());
        }
    }
}
