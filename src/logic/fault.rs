//! What Ringway itself says to a caller: one closed list, with the codes and HTTP statuses of the contract.

use super::snapshot::Protocol;
use super::units::{Nanos, SECOND};

/// The kind of the failure that ended an attempt, as callers read it in `data.reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The Endpoint's host name could not be resolved.
    Dns,
    /// The connection was refused or could not be made.
    ConnectFailed,
    /// No connection within `connect_timeout`.
    ConnectTimeout,
    /// Whoever answered does not speak TLS.
    NotTls,
    /// The Endpoint's certificate is for another name.
    TlsWrongName,
    /// The Endpoint's certificate is over, or not valid yet.
    TlsExpired,
    /// The Endpoint's certificate is from nobody who is trusted.
    TlsUnknownCa,
    /// TLS could not be agreed on for another reason.
    TlsFailed,
    /// No free connection within `queue_timeout`.
    QueueTimeout,
    /// The connection broke before the kernel took a byte of the request.
    SendFailed,
    /// No complete answer within `attempt_timeout`.
    Timeout,
    /// The connection was reset or closed before the answer was complete.
    ConnectionLost,
    /// Not HTTP, or HTTP that may not be believed.
    InvalidHttp,
    /// The response check failed.
    InvalidResponse,
    /// The answer is in a content coding that can't be read, or not what its coding says.
    UnreadableCoding,
    /// The Endpoint refused the gateway (credentials, path, redirect).
    Rejected,
    /// The Endpoint refused this request.
    BadRequest,
    /// The Endpoint says it is busy.
    RateLimited,
    /// A 5xx or another status without a final answer.
    HttpStatus,
    /// An error of the node that another node may not have (Solana behind, TRON busy).
    NodeBusy,
    /// The answer is larger than `max_response_bytes`.
    ResponseTooLarge,
    /// The answer did not fit into `max_buffered_bytes` beside all others.
    NoRoom,
    /// The caller went away, and its query was cut short.
    CallerGone,
}

impl Reason {
    /// All reasons, for tables and tests.
    pub const ALL: [Reason; 23] = [
        Reason::Dns,
        Reason::ConnectFailed,
        Reason::ConnectTimeout,
        Reason::NotTls,
        Reason::TlsWrongName,
        Reason::TlsExpired,
        Reason::TlsUnknownCa,
        Reason::TlsFailed,
        Reason::QueueTimeout,
        Reason::SendFailed,
        Reason::Timeout,
        Reason::ConnectionLost,
        Reason::InvalidHttp,
        Reason::InvalidResponse,
        Reason::UnreadableCoding,
        Reason::Rejected,
        Reason::BadRequest,
        Reason::RateLimited,
        Reason::HttpStatus,
        Reason::NodeBusy,
        Reason::ResponseTooLarge,
        Reason::NoRoom,
        Reason::CallerGone,
    ];

    /// Whether TLS could not be agreed on.
    pub const fn is_of_tls(self) -> bool {
        use Reason::{NotTls, TlsExpired, TlsFailed, TlsUnknownCa, TlsWrongName};
        matches!(self, NotTls | TlsExpired | TlsFailed | TlsUnknownCa | TlsWrongName)
    }

    /// The word used in `data.reason`, metrics and logs.
    pub const fn word(self) -> &'static str {
        match self {
            Reason::Dns => "dns",
            Reason::ConnectFailed => "connect_failed",
            Reason::ConnectTimeout => "connect_timeout",
            Reason::NotTls => "not_tls",
            Reason::TlsWrongName => "tls_wrong_name",
            Reason::TlsExpired => "tls_expired",
            Reason::TlsUnknownCa => "tls_unknown_ca",
            Reason::TlsFailed => "tls_failed",
            Reason::QueueTimeout => "queue_timeout",
            Reason::SendFailed => "send_failed",
            Reason::Timeout => "timeout",
            Reason::ConnectionLost => "connection_lost",
            Reason::InvalidHttp => "invalid_http",
            Reason::InvalidResponse => "invalid_response",
            Reason::UnreadableCoding => "unreadable_coding",
            Reason::Rejected => "rejected",
            Reason::BadRequest => "bad_request",
            Reason::RateLimited => "rate_limited",
            Reason::HttpStatus => "http_status",
            Reason::NodeBusy => "node_busy",
            Reason::ResponseTooLarge => "response_too_large",
            Reason::NoRoom => "no_room",
            Reason::CallerGone => "caller_gone",
        }
    }
}

/// Why a body or a member is not a valid Call (-32600).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// A JSON value that is neither an object nor an array.
    NotAnObject,
    /// `[]`.
    EmptyBatch,
    /// More members than `max_batch`.
    BatchTooLong,
    /// Nesting deeper than 128.
    TooDeep,
    /// `method` is missing.
    NoMethod,
    /// `method` is not a string (or not valid Unicode after unescaping).
    MethodNotAString,
    /// `id` is an object, an array or a boolean.
    BadId,
    /// `method`, `id`, `params` or `jsonrpc` comes twice.
    DuplicateMember,
    /// A member name equals one of those four after unescaping and case folding, but is not spelled so.
    MisspelledMember,
}

impl Invalid {
    /// The words after "Invalid request: ".
    pub const fn words(self) -> &'static str {
        match self {
            Invalid::NotAnObject => "not a JSON object or an array of them",
            Invalid::EmptyBatch => "empty batch",
            Invalid::BatchTooLong => "more members than max_batch",
            Invalid::TooDeep => "nested deeper than 128",
            Invalid::NoMethod => "no method",
            Invalid::MethodNotAString => "method is not a string",
            Invalid::BadId => "id is not a string, a number or null",
            Invalid::DuplicateMember => "an envelope member comes twice",
            Invalid::MisspelledMember => "an envelope member is spelled otherwise",
        }
    }
}

/// Why a method may not be called here (-32601), as callers read it in `data.reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unavailable {
    /// In `blocked_methods`.
    Blocked,
    /// Not in `allowed_methods`.
    NotAllowed,
    /// In a namespace that is closed unless `expose` names it.
    NotExposed,
    /// No target of the Route has it.
    NoCapability,
}

impl Unavailable {
    /// The word used in `data.reason`.
    pub const fn word(self) -> &'static str {
        match self {
            Unavailable::Blocked => "blocked",
            Unavailable::NotAllowed => "not_allowed",
            Unavailable::NotExposed => "not_exposed",
            Unavailable::NoCapability => "capability",
        }
    }
}

/// An HTTP request that never became a Call; each carries its own status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpFault {
    /// 400: the framing rules of RFC 9112 were broken. The words say which.
    BadRequest(&'static str),
    /// 404.
    NotFound,
    /// 404 below a Gateway of TRON's HTTP API.
    NotInApi,
    /// 405, with these methods in `Allow`.
    MethodNotAllowed(&'static str),
    /// 408: the head or the body took too long.
    Timeout,
    /// 413.
    BodyTooLarge,
    /// 415: content type or coding. The words say which.
    Unsupported(&'static str),
    /// 417: an expectation other than `100-continue`.
    ExpectationFailed,
    /// 431.
    HeadTooLarge,
    /// 505.
    VersionNotSupported,
}

impl HttpFault {
    /// The HTTP status.
    pub const fn status(self) -> u16 {
        match self {
            HttpFault::BadRequest(_) => 400,
            HttpFault::NotFound | HttpFault::NotInApi => 404,
            HttpFault::MethodNotAllowed(_) => 405,
            HttpFault::Timeout => 408,
            HttpFault::BodyTooLarge => 413,
            HttpFault::Unsupported(_) => 415,
            HttpFault::ExpectationFailed => 417,
            HttpFault::HeadTooLarge => 431,
            HttpFault::VersionNotSupported => 505,
        }
    }
}

/// A gateway-made error. Everything a caller can hear from Ringway itself is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// -32700.
    NotJson,
    /// -32600.
    InvalidRequest(Invalid),
    /// -32600 on an HTTP-level failure.
    Http(HttpFault),
    /// -32601.
    Method(Unavailable),
    /// -32050: no usable target.
    NoTarget,
    /// -32051: no attempt was made, and candidates were rejected; the wait until the soonest may try.
    Unavailable {
        /// Nanoseconds until the soonest rejected candidate may be tried.
        retry_after_ns: Nanos,
    },
    /// -32052: attempts exhausted.
    Exhausted {
        /// The last failure's kind.
        reason: Reason,
        /// The wait that the last Endpoint asked for, where `reason` is `rate_limited`.
        retry_after_ns: Nanos,
    },
    /// -32053: attempts exhausted, and the last was a timeout.
    TimedOut,
    /// -32054: an ambiguous failure of an operation that must not be replayed.
    OutcomeUnknown {
        /// The kind of the ambiguous failure.
        reason: Reason,
    },
    /// -32055.
    ResponseTooLarge,
    /// -32056: shutting down.
    ShuttingDown,
    /// -32056: over `max_inflight` or `max_buffered_bytes`.
    Overloaded,
}

impl Fault {
    /// The JSON-RPC error code.
    pub const fn code(self) -> i32 {
        match self {
            Fault::NotJson => -32700,
            Fault::InvalidRequest(_) | Fault::Http(_) => -32600,
            Fault::Method(_) => -32601,
            Fault::NoTarget => -32050,
            Fault::Unavailable { .. } => -32051,
            Fault::Exhausted { .. } => -32052,
            Fault::TimedOut => -32053,
            Fault::OutcomeUnknown { .. } => -32054,
            Fault::ResponseTooLarge => -32055,
            Fault::ShuttingDown | Fault::Overloaded => -32056,
        }
    }

    /// The HTTP status of an answer that carries only this fault. In JSON-RPC every status but 200 means: nothing
    /// was executed, or the Call was safe to replay, because client libraries re-send on 5xx by themselves.
    /// The callers of TRON's HTTP API expect a 200 to be the node's.
    pub const fn http_status(self, protocol: Protocol) -> u16 {
        if let Protocol::TronHttp = protocol {
            match self {
                Fault::NotJson | Fault::InvalidRequest(_) => return 400,
                Fault::Method(_) => return 403,
                Fault::OutcomeUnknown { .. } | Fault::ResponseTooLarge => return 502,
                _ => {}
            }
        }
        match self {
            Fault::NotJson
            | Fault::InvalidRequest(_)
            | Fault::Method(_)
            | Fault::OutcomeUnknown { .. }
            | Fault::ResponseTooLarge => 200,
            Fault::Http(http) => http.status(),
            Fault::NoTarget | Fault::Unavailable { .. } | Fault::ShuttingDown | Fault::Overloaded => 503,
            Fault::Exhausted { .. } => 502,
            Fault::TimedOut => 504,
        }
    }

    /// `Retry-After` in whole seconds, rounded up; `None` where the header has no place.
    pub const fn retry_after_s(self) -> Option<u64> {
        match self {
            Fault::Unavailable { retry_after_ns } => Some(whole_seconds(retry_after_ns)),
            Fault::Exhausted { reason: Reason::RateLimited, retry_after_ns } => Some(whole_seconds(retry_after_ns)),
            Fault::Overloaded => Some(1),
            _ => None,
        }
    }

    /// The sentence in `error.message`.
    pub const fn message(self) -> &'static str {
        match self {
            Fault::NotJson => "Parse error: the body is not valid JSON",
            Fault::InvalidRequest(_) => "Invalid request",
            Fault::Http(HttpFault::BadRequest(_)) => "Bad HTTP request",
            Fault::Http(HttpFault::NotFound) => "No Gateway on this path",
            Fault::Http(HttpFault::NotInApi) => "No such path in TRON's HTTP API",
            Fault::Http(HttpFault::MethodNotAllowed(_)) => "HTTP method not allowed: see Allow",
            Fault::Http(HttpFault::Timeout) => "The request took too long to arrive",
            Fault::Http(HttpFault::BodyTooLarge) => "Request body over max_request_bytes",
            Fault::Http(HttpFault::Unsupported(_)) => "Unsupported media type",
            Fault::Http(HttpFault::ExpectationFailed) => "Expectation failed: only 100-continue is known",
            Fault::Http(HttpFault::HeadTooLarge) => "Request head over max_header_bytes or max_headers",
            Fault::Http(HttpFault::VersionNotSupported) => "HTTP version not supported: use HTTP/1.1",
            Fault::Method(_) => "Method not available on this Gateway",
            Fault::NoTarget => "No usable Endpoint for this method",
            Fault::Unavailable { .. } => "No Endpoint admits a request at the moment",
            Fault::Exhausted { .. } => "All attempts failed",
            Fault::TimedOut => "All attempts failed, the last one by timeout",
            Fault::OutcomeUnknown { .. } => "Outcome unknown: the Call may have been executed and must not be replayed",
            Fault::ResponseTooLarge => "The Endpoint's answer is over max_response_bytes",
            Fault::ShuttingDown => "Shutting down",
            Fault::Overloaded => "Overloaded",
        }
    }

    /// The word or words in `error.data.reason`, where there is one.
    pub const fn reason(self) -> Option<&'static str> {
        match self {
            Fault::InvalidRequest(why) => Some(why.words()),
            Fault::Http(HttpFault::BadRequest(why) | HttpFault::Unsupported(why)) => Some(why),
            Fault::Method(why) => Some(why.word()),
            Fault::Exhausted { reason, .. } | Fault::OutcomeUnknown { reason } => Some(reason.word()),
            Fault::TimedOut => Some(Reason::Timeout.word()),
            Fault::ShuttingDown => Some("shutting_down"),
            Fault::Overloaded => Some("overloaded"),
            _ => None,
        }
    }

    /// How a Call that ends so is counted.
    pub const fn outcome(self) -> Outcome {
        match self {
            Fault::NotJson | Fault::InvalidRequest(_) | Fault::Http(_) => Outcome::Invalid,
            Fault::Method(_) => Outcome::MethodUnavailable,
            Fault::NoTarget => Outcome::NoTarget,
            Fault::Unavailable { .. } => Outcome::Unavailable,
            Fault::Exhausted { .. } => Outcome::Exhausted,
            Fault::TimedOut => Outcome::Timeout,
            Fault::OutcomeUnknown { .. } => Outcome::OutcomeUnknown,
            Fault::ResponseTooLarge => Outcome::ResponseTooLarge,
            Fault::ShuttingDown => Outcome::ShuttingDown,
            Fault::Overloaded => Outcome::Overloaded,
        }
    }
}

/// How a Call ended, as `ringway_calls_total{outcome}` counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// A result of a node.
    Ok,
    /// An error of a node.
    NodeError,
    /// A notification, whatever became of it.
    Notification,
    /// The caller went away.
    Abandoned,
    /// -32700 or -32600.
    Invalid,
    /// -32601.
    MethodUnavailable,
    /// -32050.
    NoTarget,
    /// -32051.
    Unavailable,
    /// -32052.
    Exhausted,
    /// -32053.
    Timeout,
    /// -32054.
    OutcomeUnknown,
    /// -32055.
    ResponseTooLarge,
    /// -32056 while draining.
    ShuttingDown,
    /// -32056 over a limit.
    Overloaded,
}

impl Outcome {
    /// All outcomes, in the order of their counters.
    pub const ALL: [Outcome; 14] = [
        Outcome::Ok,
        Outcome::NodeError,
        Outcome::Notification,
        Outcome::Abandoned,
        Outcome::Invalid,
        Outcome::MethodUnavailable,
        Outcome::NoTarget,
        Outcome::Unavailable,
        Outcome::Exhausted,
        Outcome::Timeout,
        Outcome::OutcomeUnknown,
        Outcome::ResponseTooLarge,
        Outcome::ShuttingDown,
        Outcome::Overloaded,
    ];

    /// The label.
    pub const fn word(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::NodeError => "node_error",
            Outcome::Notification => "notification",
            Outcome::Abandoned => "abandoned",
            Outcome::Invalid => "invalid",
            Outcome::MethodUnavailable => "method_unavailable",
            Outcome::NoTarget => "no_target",
            Outcome::Unavailable => "unavailable",
            Outcome::Exhausted => "exhausted",
            Outcome::Timeout => "timeout",
            Outcome::OutcomeUnknown => "outcome_unknown",
            Outcome::ResponseTooLarge => "response_too_large",
            Outcome::ShuttingDown => "shutting_down",
            Outcome::Overloaded => "overloaded",
        }
    }
}

const fn whole_seconds(ns: Nanos) -> u64 {
    let seconds = ns.div_ceil(SECOND);
    if seconds == 0 { 1 } else { seconds }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One row of the contract's table: code, HTTP status, `Retry-After`, `data.reason`, outcome.
    type Row = (Fault, i32, u16, Option<u64>, Option<&'static str>, &'static str);

    const WAIT_NS: Nanos = 2 * SECOND + 1;

    /// Every gateway-made error as callers and their libraries see it.
    const TABLE: [Row; 16] = [
        (Fault::NotJson, -32700, 200, None, None, "invalid"),
        (Fault::InvalidRequest(Invalid::EmptyBatch), -32600, 200, None, Some("empty batch"), "invalid"),
        (Fault::Http(HttpFault::NotFound), -32600, 404, None, None, "invalid"),
        (Fault::Http(HttpFault::BadRequest("a second Host")), -32600, 400, None, Some("a second Host"), "invalid"),
        (Fault::Http(HttpFault::Unsupported("coding")), -32600, 415, None, Some("coding"), "invalid"),
        (Fault::Method(Unavailable::Blocked), -32601, 200, None, Some("blocked"), "method_unavailable"),
        (Fault::NoTarget, -32050, 503, None, None, "no_target"),
        (Fault::Unavailable { retry_after_ns: WAIT_NS }, -32051, 503, Some(3), None, "unavailable"),
        (
            Fault::Exhausted { reason: Reason::ConnectFailed, retry_after_ns: WAIT_NS },
            -32052,
            502,
            None,
            Some("connect_failed"),
            "exhausted",
        ),
        (
            Fault::Exhausted { reason: Reason::RateLimited, retry_after_ns: WAIT_NS },
            -32052,
            502,
            Some(3),
            Some("rate_limited"),
            "exhausted",
        ),
        (Fault::TimedOut, -32053, 504, None, Some("timeout"), "timeout"),
        (
            Fault::OutcomeUnknown { reason: Reason::ConnectionLost },
            -32054,
            200,
            None,
            Some("connection_lost"),
            "outcome_unknown",
        ),
        (Fault::ResponseTooLarge, -32055, 200, None, None, "response_too_large"),
        (Fault::ShuttingDown, -32056, 503, None, Some("shutting_down"), "shutting_down"),
        (Fault::Overloaded, -32056, 503, Some(1), Some("overloaded"), "overloaded"),
        (Fault::Http(HttpFault::Timeout), -32600, 408, None, None, "invalid"),
    ];

    #[test]
    fn callers_see_the_codes_and_statuses_of_the_contract() {
        for (fault, code, status, retry_after_s, reason, outcome) in TABLE {
            let said = (fault.code(), fault.http_status(Protocol::JsonRpc), fault.retry_after_s(), fault.reason());
            assert_eq!(said, (code, status, retry_after_s, reason), "{fault:?}");
            assert_eq!(fault.outcome().word(), outcome, "{fault:?}");
        }
    }

    #[test]
    fn in_trons_http_api_a_200_is_always_the_nodes() {
        for (fault, _, in_json_rpc, ..) in TABLE {
            let status = fault.http_status(Protocol::TronHttp);
            let right = match fault {
                Fault::NotJson | Fault::InvalidRequest(_) => 400,
                Fault::Method(_) => 403,
                Fault::OutcomeUnknown { .. } | Fault::ResponseTooLarge => 502,
                _ => in_json_rpc,
            };
            assert_eq!(status, right, "{fault:?}");
            assert_ne!(status, 200, "{fault:?}");
        }
    }

    #[test]
    fn every_sentence_says_what_it_is_about() {
        for (fault, about) in [
            (Fault::NotJson, "JSON"),
            (Fault::InvalidRequest(Invalid::NoMethod), "Invalid request"),
            (Fault::Http(HttpFault::BadRequest("")), "HTTP request"),
            (Fault::Http(HttpFault::NotFound), "No Gateway on this path"),
            (Fault::Http(HttpFault::NotInApi), "TRON's HTTP API"),
            (Fault::Http(HttpFault::MethodNotAllowed("POST")), "Allow"),
            (Fault::Http(HttpFault::Timeout), "too long"),
            (Fault::Http(HttpFault::BodyTooLarge), "max_request_bytes"),
            (Fault::Http(HttpFault::Unsupported("")), "media type"),
            (Fault::Http(HttpFault::ExpectationFailed), "100-continue"),
            (Fault::Http(HttpFault::HeadTooLarge), "max_header_bytes"),
            (Fault::Http(HttpFault::VersionNotSupported), "HTTP/1.1"),
            (Fault::Method(Unavailable::NotAllowed), "Method"),
            (Fault::NoTarget, "No usable Endpoint"),
            (Fault::Unavailable { retry_after_ns: 0 }, "admits"),
            (Fault::Exhausted { reason: Reason::Dns, retry_after_ns: 0 }, "All attempts failed"),
            (Fault::TimedOut, "timeout"),
            (Fault::OutcomeUnknown { reason: Reason::Dns }, "must not be replayed"),
            (Fault::ResponseTooLarge, "max_response_bytes"),
            (Fault::ShuttingDown, "Shutting down"),
            (Fault::Overloaded, "Overloaded"),
        ] {
            assert!(fault.message().contains(about), "{fault:?}: {}", fault.message());
        }
    }

    #[test]
    fn an_http_failure_has_the_status_of_its_kind() {
        for (fault, status) in [
            (HttpFault::BadRequest(""), 400),
            (HttpFault::NotFound, 404),
            (HttpFault::NotInApi, 404),
            (HttpFault::MethodNotAllowed(""), 405),
            (HttpFault::Timeout, 408),
            (HttpFault::BodyTooLarge, 413),
            (HttpFault::Unsupported(""), 415),
            (HttpFault::ExpectationFailed, 417),
            (HttpFault::HeadTooLarge, 431),
            (HttpFault::VersionNotSupported, 505),
        ] {
            assert_eq!(fault.status(), status);
        }
    }

    /// Words are an interface: alerts and client code compare them.
    #[test]
    fn words_are_as_published_and_no_two_are_alike() {
        let words = |words: &[&'static str]| words.join(" ");
        let reasons = Reason::ALL.map(Reason::word);
        assert_eq!(
            words(&reasons),
            "dns connect_failed connect_timeout not_tls tls_wrong_name tls_expired tls_unknown_ca tls_failed queue_timeout \
             send_failed timeout connection_lost invalid_http invalid_response unreadable_coding rejected bad_request \
             rate_limited http_status node_busy response_too_large no_room caller_gone"
        );
        let outcomes = Outcome::ALL.map(Outcome::word);
        assert_eq!(
            words(&outcomes),
            "ok node_error notification abandoned invalid method_unavailable no_target unavailable exhausted timeout \
             outcome_unknown response_too_large shutting_down overloaded"
        );
        let why = [Unavailable::Blocked, Unavailable::NotAllowed, Unavailable::NotExposed].map(Unavailable::word);
        assert_eq!(words(&why), "blocked not_allowed not_exposed");
        let invalid = [
            Invalid::NotAnObject,
            Invalid::EmptyBatch,
            Invalid::BatchTooLong,
            Invalid::TooDeep,
            Invalid::NoMethod,
            Invalid::MethodNotAString,
            Invalid::BadId,
            Invalid::DuplicateMember,
            Invalid::MisspelledMember,
        ];
        let mut said = invalid.map(Invalid::words);
        assert!(said.iter().all(|words| words.len() > 5 && words.is_ascii()));
        said.sort_unstable();
        assert!(said.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn a_wait_is_told_in_whole_seconds_and_never_as_none() {
        for (retry_after_ns, seconds) in [(0, 1), (1, 1), (SECOND, 1), (SECOND + 1, 2), (90 * SECOND, 90)] {
            assert_eq!(Fault::Unavailable { retry_after_ns }.retry_after_s(), Some(seconds), "{retry_after_ns}");
        }
    }
}
