//! The causes of failure that the retry matrix is run with: what the upstream does, and what it must be taken for.

use super::harness::{Reply, Seen, error_body, result_body};

/// How certain it is that nothing was executed: the columns of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    NotSent,
    Refused,
    Ambiguous,
}

/// One cause.
pub struct Cause {
    /// Stands in the params of the Call, so that the script finds it.
    pub name: String,
    /// What it must be taken for.
    pub column: Column,
    /// What the caller must read in `data.reason`.
    pub reason: &'static str,
    /// The node's own error, where it must go out unchanged if nothing better comes.
    pub kept: Option<&'static str>,
    /// The Gateway on which it happens.
    pub gateway: &'static str,
    /// What the upstream does.
    pub script: Script,
    /// The status it does it with.
    pub status: u16,
}

impl Cause {
    /// The path of the Gateway on which it happens to a method.
    pub fn path(&self, method: &str) -> String {
        match self.gateway {
            "busy" => format!("/busy-{}-{method}", self.name.trim_matches(['<', '>'])),
            gateway => format!("/{gateway}"),
        }
    }
}

/// An error of a node that must never be mistaken for one of ours.
pub const NODE_ERROR: &str = r#"{"code":-32000,"message":"node says no","data":"0xfeed"}"#;
const INTERNAL: &str = r#"{"code":-32603,"message":"node internal"}"#;

/// What an upstream does with a request, under a status (or by the number of a body in its table).
pub type Script = fn(&Seen, u16) -> Reply;

fn closing(status: u16, fields: &[&str], body: &str) -> Reply {
    Reply::http(status, &[&["Connection: close"], fields].concat(), body).then_close()
}

fn text(_: &Seen, status: u16) -> Reply {
    closing(status, &["Content-Type: text/html"], "<html>secret body of a proxy</html>")
}

fn empty(_: &Seen, status: u16) -> Reply {
    closing(status, &[], "")
}

fn busy(_: &Seen, status: u16) -> Reply {
    closing(status, &["Retry-After: 7"], "secret body of a limiter")
}

fn busy_answer(seen: &Seen, status: u16) -> Reply {
    closing(status, &["Retry-After: 7"], &error_body(seen, r#"{"code":-32000,"message":"secret body of a node"}"#))
}

fn result(seen: &Seen, status: u16) -> Reply {
    closing(status, &[], &result_body(seen, "\"secret body of a node\""))
}

fn method_error(seen: &Seen, status: u16) -> Reply {
    closing(status, &[], &error_body(seen, r#"{"code":-32601,"message":"secret body of a node"}"#))
}

fn node_error(seen: &Seen, status: u16) -> Reply {
    closing(status, &[], &error_body(seen, NODE_ERROR))
}

fn internal(seen: &Seen, status: u16) -> Reply {
    closing(status, &[], &error_body(seen, INTERNAL))
}

fn redirect(_: &Seen, status: u16) -> Reply {
    closing(status, &["Location: http://127.0.0.1:1/elsewhere"], "moved")
}

/// A 200 with this body, where `ID` stands for the id that was sent.
fn body(seen: &Seen, template: &str) -> Reply {
    closing(200, &["Content-Type: application/json"], &template.replace("ID", &seen.id()))
}

/// Whole bodies that are no valid answer, although the status says 200.
const INVALID: [(&str, &str); 24] = [
    ("wrong-id", r#"{"jsonrpc":"2.0","id":99,"result":"0x1"}"#),
    ("id-as-string", r#"{"jsonrpc":"2.0","id":"ID","result":"0x1"}"#),
    ("id-null", r#"{"jsonrpc":"2.0","id":null,"result":"0x1"}"#),
    ("id-missing", r#"{"jsonrpc":"2.0","result":"0x1"}"#),
    ("id-twice", r#"{"jsonrpc":"2.0","id":ID,"result":"0x1","id":99}"#),
    ("wrong-id-error", r#"{"jsonrpc":"2.0","id":99,"error":{"code":-32000,"message":"m"}}"#),
    ("result-and-error", r#"{"jsonrpc":"2.0","id":ID,"result":"0x1","error":{"code":1,"message":"m"}}"#),
    ("neither", r#"{"jsonrpc":"2.0","id":ID}"#),
    ("error-null-only", r#"{"jsonrpc":"2.0","id":ID,"error":null}"#),
    ("error-is-text", r#"{"jsonrpc":"2.0","id":ID,"error":"no"}"#),
    ("error-code-text", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":"-32000","message":"m"}}"#),
    ("error-code-float", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":1.5,"message":"m"}}"#),
    ("error-no-code", r#"{"jsonrpc":"2.0","id":ID,"error":{"message":"m"}}"#),
    ("array", r#"[{"jsonrpc":"2.0","id":ID,"result":"0x1"}]"#),
    ("empty-array", "[]"),
    ("text", "invalid host specified"),
    ("html", "<html><body>please wait</body></html>"),
    ("cut-json", r#"{"jsonrpc":"2.0","id":ID,"result":"0x"#),
    ("trailing-bytes", r#"{"jsonrpc":"2.0","id":ID,"result":"0x1"}}"#),
    ("two-answers", r#"{"jsonrpc":"2.0","id":ID,"result":"0x1"}{"jsonrpc":"2.0","id":ID,"result":"0x2"}"#),
    ("raw-control", "{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":\"a\tb\"}"),
    ("bad-number", r#"{"jsonrpc":"2.0","id":ID,"result":01}"#),
    ("empty", ""),
    ("number", "7"),
];

fn invalid(seen: &Seen, at: u16) -> Reply {
    body(seen, INVALID[usize::from(at)].1)
}

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";

/// Bytes after which the connection ends, and that are no whole response. `ANSWER` stands for a right body.
const BROKEN: [(&str, &str, &str); 9] = [
    ("eof-at-once", "connection_lost", ""),
    ("eof-in-status", "connection_lost", "HTTP/1.1 20"),
    ("eof-in-head", "connection_lost", "HEAD"),
    ("eof-in-body", "connection_lost", "HEADContent-Length: 4000\r\n\r\nANSWER"),
    ("eof-in-chunk", "connection_lost", "HEADTransfer-Encoding: chunked\r\n\r\nfff\r\nANSWER"),
    ("eof-before-last-chunk", "connection_lost", "HEADTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"),
    ("eof-after-interim", "connection_lost", "HTTP/1.1 102 Processing\r\n\r\n"),
    ("eof-in-long-body", "connection_lost", "HEADContent-Length: 500000\r\n\r\nANSWER"),
    ("eof-after-blank", "connection_lost", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"),
];

/// Whole bytes that are no HTTP, or none that may be believed.
const UNBELIEVABLE: [(&str, &str); 8] = [
    ("not-http", "SSH-2.0-OpenSSH_9.6\r\n\r\n"),
    ("two-lengths", "HEADContent-Length: 10\r\nContent-Length: 11\r\n\r\nANSWER"),
    ("length-and-chunked", "HEADContent-Length: 10\r\nTransfer-Encoding: chunked\r\n\r\nANSWER"),
    ("bad-length", "HEADContent-Length: 0x10\r\n\r\nANSWER"),
    ("negative-length", "HEADContent-Length: -1\r\n\r\nANSWER"),
    ("bad-chunk-size", "HEADTransfer-Encoding: chunked\r\n\r\nzz\r\nANSWER\r\n0\r\n\r\n"),
    ("unknown-coding", "HEADTransfer-Encoding: gzip\r\n\r\nANSWER"),
    ("http-2", "HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
];

fn expand(seen: &Seen, template: &str) -> String {
    template.replace("HEAD", HEAD).replace("ANSWER", &result_body(seen, "\"0x1\""))
}

fn broken(seen: &Seen, at: u16) -> Reply {
    Reply::raw(expand(seen, BROKEN[usize::from(at)].2)).then_close()
}

fn unbelievable(seen: &Seen, at: u16) -> Reply {
    Reply::raw(expand(seen, UNBELIEVABLE[usize::from(at)].1)).then(Reply::hang())
}

fn reset_at_once(_: &Seen, _: u16) -> Reply {
    Reply::reset()
}

fn hang_at_once(_: &Seen, _: u16) -> Reply {
    Reply::hang()
}

fn hang_in_head(_: &Seen, _: u16) -> Reply {
    Reply::raw("HTTP/1.1 200 OK\r\nContent-").then(Reply::hang())
}

fn hang_in_body(seen: &Seen, _: u16) -> Reply {
    Reply::raw(expand(seen, "HEADContent-Length: 4000\r\n\r\nANSWER")).then(Reply::hang())
}

fn hang_without_length(seen: &Seen, _: u16) -> Reply {
    Reply::raw(expand(seen, "HEAD\r\nANSWER")).then(Reply::hang())
}

/// All causes.
pub fn causes() -> Vec<Cause> {
    let mut all = Vec::new();
    let mut add = |name: String, column, reason, kept, gateway, script, status| {
        all.push(Cause { name: format!("<{name}>"), column, reason, kept, gateway, script, status });
    };
    use Column::{Ambiguous, NotSent, Refused};
    add("closed-port".into(), NotSent, "connect_failed", None, "closed", text, 0);
    add("full-port".into(), NotSent, "connect_timeout", None, "full", text, 0);
    add("full-pool".into(), NotSent, "queue_timeout", None, "crowded", text, 0);
    for status in [301, 302, 303, 304, 307, 308] {
        add(format!("redirect-{status}"), Refused, "rejected", None, "plain", redirect, status);
    }
    for status in [401, 402, 403, 404, 405, 407, 410, 411, 415, 421, 426, 431, 451] {
        add(format!("text-{status}"), Refused, "rejected", None, "plain", text, status);
    }
    for status in [401, 402, 403, 407] {
        for (kind, script) in [("result", result as Script), ("node-error", busy_answer), ("unknown", method_error)] {
            add(format!("{kind}-{status}"), Refused, "rejected", None, "plain", script, status);
        }
    }
    for status in [400, 408, 413, 414, 422] {
        add(format!("text-{status}"), Refused, "bad_request", None, "plain", text, status);
        add(format!("empty-{status}"), Refused, "bad_request", None, "plain", empty, status);
    }
    // Each of these lets its Endpoint rest, so none is met twice.
    for (kind, script) in [("text", text as Script), ("result", result), ("unknown", method_error), ("wait", busy)] {
        add(format!("{kind}-429"), Refused, "rate_limited", None, "busy", script, 429);
    }
    for (kind, script) in [("wait", busy as Script), ("wait-answer", busy_answer)] {
        add(format!("{kind}-503"), Refused, "rate_limited", None, "busy", script, 503);
    }
    for status in [500, 501, 502, 503, 504, 507, 520, 524, 530, 599] {
        add(format!("text-{status}"), Ambiguous, "http_status", None, "plain", text, status);
    }
    for status in [406, 409, 412, 417, 418, 425, 428, 444, 499] {
        add(format!("text-{status}"), Ambiguous, "http_status", None, "plain", text, status);
    }
    for status in [502, 503, 504, 520] {
        add(format!("node-error-{status}"), Ambiguous, "http_status", Some(NODE_ERROR), "plain", node_error, status);
        add(format!("internal-{status}"), Ambiguous, "http_status", Some(INTERNAL), "plain", internal, status);
        add(format!("result-{status}"), Ambiguous, "http_status", None, "plain", result, status);
    }
    add("internal-500".into(), Ambiguous, "http_status", Some(INTERNAL), "plain", internal, 500);
    for (at, (name, _)) in (0..).zip(INVALID) {
        add(format!("body-{name}"), Ambiguous, "invalid_response", None, "plain", invalid as Script, at);
    }
    for (at, (name, reason, _)) in (0..).zip(BROKEN) {
        add(name.into(), Ambiguous, reason, None, "plain", broken as Script, at);
    }
    for (at, (name, _)) in (0..).zip(UNBELIEVABLE) {
        add(name.into(), Ambiguous, "invalid_http", None, "plain", unbelievable as Script, at);
    }
    add("reset-at-once".into(), Ambiguous, "connection_lost", None, "plain", reset_at_once, 0);
    for (name, script) in [
        ("hang-at-once", hang_at_once as Script),
        ("hang-in-head", hang_in_head),
        ("hang-in-body", hang_in_body),
        ("hang-without-length", hang_without_length),
    ] {
        add(name.into(), Ambiguous, "timeout", None, "hasty", script, 0);
    }
    all
}
