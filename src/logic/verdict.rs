//! How certain a failure is: from what came back (or did not) to one of a closed list of verdicts.
//!
//! The table stands in the README under "When an attempt fails". Every row of it is one arm here.

use super::fault::Reason;
use super::methods::Family;
use super::units::{Nanos, SECOND};

/// What the response check found in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// A valid answer with the right id that holds a result.
    Result,
    /// A valid answer with the right id that holds an error of this code.
    Error(i64),
    /// java-tron's overload answer, outside any envelope.
    NodeBusy,
    /// It is in a content coding that can't be read, or not what its coding says.
    Unreadable,
    /// Anything else.
    Invalid,
}

/// What came back: everything that the judgement may look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// The wait that `Retry-After` asked for, if it was there.
    pub retry_after_ns: Option<Nanos>,
    /// The response check.
    pub body: Body,
}

/// How an attempt broke without a complete response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broke {
    /// Before any byte of the request was handed to the kernel: nothing can have happened.
    NotSent(Reason),
    /// After that: the operation may have been executed.
    Sent(Reason),
}

/// What the Circuit learns from an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CircuitNote {
    /// The Endpoint works.
    Success,
    /// The Endpoint failed.
    Failure,
    /// A failure only if there was no success within the Circuit's window: our credentials or path may
    /// be wrong for one method only.
    FailureIfNoRecentSuccess,
    /// The Endpoint is busy: it may rest (`logic::rest`), and has not failed.
    Busy {
        /// The wait that it asked for.
        retry_after_ns: Option<Nanos>,
    },
    /// The caller went away after it had waited for a second without a byte of the response: one failure among
    /// the samples, and none in a row. A black hole is found although its callers are impatient.
    AbandonedAfterWait,
    /// Says nothing about the Endpoint.
    Nothing,
}

/// How certain it is that the operation was not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certainty {
    /// No byte reached the Endpoint.
    NotSent,
    /// The Endpoint said that it did not take the request.
    Refused,
    /// It may have been executed.
    Ambiguous,
}

impl Certainty {
    /// The word in `Ringway-Trail` and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Certainty::NotSent => "not_sent",
            Certainty::Refused => "refused",
            Certainty::Ambiguous => "ambiguous",
        }
    }
}

/// The judgement of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The answer goes to the caller.
    Final,
    /// -32055, and the connection is dropped.
    TooLarge,
    /// Ringway has no room for the answer now: -32056, and the connection is dropped.
    NoRoom,
    /// The attempt failed.
    Failed(Failure),
}

/// A failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// How certain it is that nothing happened.
    pub certainty: Certainty,
    /// The kind, for the caller and for people.
    pub reason: Reason,
    /// The answer is a valid error of the node: it goes out unchanged if no later attempt gives a final
    /// answer, or if the operation must stop.
    pub keep: bool,
    /// The wait that the Endpoint asked for.
    pub retry_after_ns: Option<Nanos>,
}

/// Judges a complete response.
pub fn judge(family: Family, response: &Response) -> (Verdict, CircuitNote) {
    let Response { status, body, .. } = *response;
    if let Body::Error(code) = body
        && family == Family::Solana
        && matches!(code, -32005 | -32016)
        && (200..300).contains(&status)
    {
        return (refused(Reason::NodeBusy, true, response), CircuitNote::Nothing);
    }
    if is_final(status, body) {
        let note = if (200..300).contains(&status) { CircuitNote::Success } else { CircuitNote::Nothing };
        return (Verdict::Final, note);
    }
    if family == Family::Tron && body == Body::NodeBusy && (200..300).contains(&status) {
        return (refused(Reason::NodeBusy, true, response), CircuitNote::Nothing);
    }
    let busy = CircuitNote::Busy { retry_after_ns: response.retry_after_ns };
    match status {
        429 => (refused(Reason::RateLimited, false, response), busy),
        503 if response.retry_after_ns.is_some() => (refused(Reason::RateLimited, false, response), busy),
        300..=399 | 401 | 402 | 403 | 404 | 405 | 407 | 410 | 411 | 415 | 421 | 426 | 431 | 451 => {
            (refused(Reason::Rejected, false, response), CircuitNote::FailureIfNoRecentSuccess)
        }
        // A caller could provoke these, and must not be able to open the Circuit.
        400 | 408 | 413 | 414 | 422 => (refused(Reason::BadRequest, false, response), CircuitNote::Nothing),
        400..=499 => (ambiguous(Reason::HttpStatus, false), CircuitNote::Nothing),
        500..=599 => (ambiguous(Reason::HttpStatus, matches!(body, Body::Error(_))), CircuitNote::Failure),
        200..=299 if body == Body::Unreadable => (ambiguous(Reason::UnreadableCoding, false), CircuitNote::Failure),
        200..=299 => (ambiguous(Reason::InvalidResponse, false), CircuitNote::Failure),
        _ => (ambiguous(Reason::HttpStatus, false), CircuitNote::Failure),
    }
}

/// Judges a complete response of TRON's HTTP API. Here [`Body::Result`] is every valid JSON, and every other
/// body that the facts allow; the node's 400 and 405 are for the caller, whatever their body is, if it can be read.
pub fn judge_tron_http(response: &Response) -> (Verdict, CircuitNote) {
    match (response.status, response.body) {
        (200..=299, Body::Result) => (Verdict::Final, CircuitNote::Success),
        (_, Body::Unreadable) => judge(Family::Tron, response),
        (400 | 405, _) => (Verdict::Final, CircuitNote::Nothing),
        (200..=299, Body::NodeBusy) => (refused(Reason::NodeBusy, true, response), CircuitNote::Nothing),
        _ => judge(Family::Tron, &Response { body: Body::Invalid, ..*response }),
    }
}

/// Judges an attempt that ended without a complete response.
pub fn judge_broken(broke: Broke) -> (Verdict, CircuitNote) {
    match broke {
        Broke::NotSent(Reason::QueueTimeout) => {
            (failed(Certainty::NotSent, Reason::QueueTimeout), CircuitNote::Nothing)
        }
        Broke::NotSent(reason) => (failed(Certainty::NotSent, reason), CircuitNote::Failure),
        Broke::Sent(Reason::ResponseTooLarge) => (Verdict::TooLarge, CircuitNote::Nothing),
        Broke::Sent(Reason::NoRoom) => (Verdict::NoRoom, CircuitNote::Nothing),
        Broke::Sent(Reason::CallerGone) => (failed(Certainty::Ambiguous, Reason::CallerGone), CircuitNote::Nothing),
        Broke::Sent(reason) => (failed(Certainty::Ambiguous, reason), CircuitNote::Failure),
    }
}

/// What the Circuit learns from an attempt that was cut short because its caller went away, after so long
/// without a byte of the response.
pub fn judge_abandoned(waited_ns: Nanos) -> CircuitNote {
    if waited_ns >= SECOND { CircuitNote::AbandonedAfterWait } else { CircuitNote::Nothing }
}

/// Judges a notification's response: any 2xx is success and its body is ignored.
pub fn judge_notification(response: &Response) -> (Verdict, CircuitNote) {
    match response.status {
        200..=299 => (Verdict::Final, CircuitNote::Success),
        _ => {
            let (verdict, note) = judge(Family::Evm, &Response { body: Body::Invalid, ..*response });
            // The node may have run it before it answered: only what was never sent may go elsewhere.
            match verdict {
                Verdict::Failed(failure) => {
                    (Verdict::Failed(Failure { certainty: Certainty::Ambiguous, keep: false, ..failure }), note)
                }
                other => (other, note),
            }
        }
    }
}

/// Whether a valid answer with the right id is the answer.
fn is_final(status: u16, body: Body) -> bool {
    let code = match body {
        Body::Result => None,
        Body::Error(code) => Some(code),
        Body::NodeBusy | Body::Unreadable | Body::Invalid => return false,
    };
    // What comes with these speaks about the gateway's own credentials, and is never delivered.
    if matches!(status, 401 | 402 | 403 | 407 | 429) {
        return false;
    }
    if matches!(code, Some(-32700 | -32600 | -32601 | -32602)) {
        return true;
    }
    match status {
        500 => code != Some(-32603),
        200..=299 | 400 | 404 | 405 | 413 | 415 | 422 => true,
        _ => false,
    }
}

fn refused(reason: Reason, keep: bool, response: &Response) -> Verdict {
    Verdict::Failed(Failure { certainty: Certainty::Refused, reason, keep, retry_after_ns: response.retry_after_ns })
}

fn ambiguous(reason: Reason, keep: bool) -> Verdict {
    Verdict::Failed(Failure { certainty: Certainty::Ambiguous, reason, keep, retry_after_ns: None })
}

fn failed(certainty: Certainty, reason: Reason) -> Verdict {
    Verdict::Failed(Failure { certainty, reason, keep: false, retry_after_ns: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(status: u16, body: Body) -> (Verdict, CircuitNote) {
        judge(Family::Evm, &Response { status, retry_after_ns: None, body })
    }

    fn certainty(verdict: Verdict) -> Option<(Certainty, bool)> {
        match verdict {
            Verdict::Failed(failure) => Some((failure.certainty, failure.keep)),
            _ => None,
        }
    }

    #[test]
    fn answers_that_are_final() {
        for status in [200, 201, 299, 400, 404, 405, 413, 415, 422, 500] {
            for body in [Body::Result, Body::Error(3), Body::Error(-32000)] {
                let note = if status < 300 { CircuitNote::Success } else { CircuitNote::Nothing };
                assert_eq!(judged(status, body), (Verdict::Final, note), "{status} {body:?}");
            }
        }
        for status in [200, 302, 400, 408, 418, 500, 502, 503, 504] {
            for code in [-32700, -32600, -32601, -32602] {
                assert_eq!(judged(status, Body::Error(code)).0, Verdict::Final, "{status} {code}");
            }
        }
    }

    #[test]
    fn bodies_about_our_own_credentials_are_never_final() {
        for status in [401, 402, 403, 407] {
            for body in [Body::Result, Body::Error(-32601), Body::Error(3), Body::Invalid] {
                let (verdict, note) = judged(status, body);
                assert_eq!(certainty(verdict), Some((Certainty::Refused, false)));
                assert_eq!(note, CircuitNote::FailureIfNoRecentSuccess);
            }
        }
        assert_eq!(judged(429, Body::Result).1, CircuitNote::Busy { retry_after_ns: None });
        assert_eq!(certainty(judged(429, Body::Error(-32601)).0), Some((Certainty::Refused, false)));
    }

    #[test]
    fn server_errors_are_ambiguous_and_their_valid_errors_kept() {
        for status in [502, 503, 504, 507, 520, 599] {
            assert_eq!(
                certainty(judged(status, Body::Error(-32000)).0),
                Some((Certainty::Ambiguous, true)),
                "{status}"
            );
            assert_eq!(certainty(judged(status, Body::Result).0), Some((Certainty::Ambiguous, false)), "{status}");
            assert_eq!(certainty(judged(status, Body::Invalid).0), Some((Certainty::Ambiguous, false)), "{status}");
            assert_eq!(judged(status, Body::Invalid).1, CircuitNote::Failure);
        }
        assert_eq!(certainty(judged(500, Body::Error(-32603)).0), Some((Certainty::Ambiguous, true)));
        assert_eq!(certainty(judged(500, Body::Invalid).0), Some((Certainty::Ambiguous, false)));
        assert_eq!(judged(200, Body::Error(-32603)).0, Verdict::Final);
    }

    #[test]
    fn refusals_that_a_caller_can_provoke_never_reach_the_circuit() {
        for status in [400, 408, 413, 414, 422] {
            let (verdict, note) = judged(status, Body::Invalid);
            assert_eq!(
                (certainty(verdict), note),
                (Some((Certainty::Refused, false)), CircuitNote::Nothing),
                "{status}"
            );
        }
        for status in [402, 404, 405, 410, 411, 415, 421, 426, 431, 451, 301, 302, 307, 308] {
            let (verdict, note) = judged(status, Body::Invalid);
            assert_eq!(certainty(verdict), Some((Certainty::Refused, false)), "{status}");
            assert_eq!(note, CircuitNote::FailureIfNoRecentSuccess, "{status}");
        }
        for status in [406, 409, 418, 425, 444, 499] {
            let (verdict, note) = judged(status, Body::Invalid);
            assert_eq!(
                (certainty(verdict), note),
                (Some((Certainty::Ambiguous, false)), CircuitNote::Nothing),
                "{status}"
            );
        }
    }

    #[test]
    fn an_invalid_2xx_is_ambiguous() {
        assert_eq!(certainty(judged(200, Body::Invalid).0), Some((Certainty::Ambiguous, false)));
        assert_eq!(judged(204, Body::Invalid).1, CircuitNote::Failure);
        assert_eq!(certainty(judged(101, Body::Invalid).0), Some((Certainty::Ambiguous, false)));
    }

    #[test]
    fn what_can_not_be_read_is_judged_by_its_status() {
        for (status, wanted, reason) in [
            (200, (Certainty::Ambiguous, false), Reason::UnreadableCoding),
            (400, (Certainty::Refused, false), Reason::BadRequest),
            (405, (Certainty::Refused, false), Reason::Rejected),
            (429, (Certainty::Refused, false), Reason::RateLimited),
            (502, (Certainty::Ambiguous, false), Reason::HttpStatus),
        ] {
            let response = Response { status, retry_after_ns: None, body: Body::Unreadable };
            for (verdict, note) in [judge(Family::Evm, &response), judge_tron_http(&response)] {
                let Verdict::Failed(failure) = verdict else { panic!("{status}") };
                assert_eq!((certainty(verdict), failure.reason), (Some(wanted), reason), "{status}");
                assert_eq!(note == CircuitNote::Failure, wanted.0 == Certainty::Ambiguous, "{status}");
            }
        }
    }

    #[test]
    fn people_read_what_kind_of_failure_it_was() {
        for (status, reason) in [
            (200, Reason::InvalidResponse),
            (302, Reason::Rejected),
            (400, Reason::BadRequest),
            (418, Reason::HttpStatus),
            (429, Reason::RateLimited),
            (502, Reason::HttpStatus),
            (101, Reason::HttpStatus),
        ] {
            let (Verdict::Failed(failure), _) = judged(status, Body::Invalid) else { panic!("{status}") };
            assert_eq!(failure.reason, reason, "{status}");
        }
        let words = [Certainty::NotSent, Certainty::Refused, Certainty::Ambiguous].map(Certainty::word);
        assert_eq!(words, ["not_sent", "refused", "ambiguous"]);
    }

    #[test]
    fn busy_endpoints_are_refusals() {
        let wait = Some(3_000_000_000);
        let busy = |status, body| judge(Family::Evm, &Response { status, retry_after_ns: wait, body });
        for (verdict, note) in [busy(429, Body::Invalid), busy(503, Body::Invalid), busy(503, Body::Error(-32000))] {
            let Verdict::Failed(failure) = verdict else { panic!("{verdict:?}") };
            assert_eq!((failure.certainty, failure.reason), (Certainty::Refused, Reason::RateLimited));
            assert_eq!((failure.retry_after_ns, note), (wait, CircuitNote::Busy { retry_after_ns: wait }));
        }
        let solana = judge(Family::Solana, &Response { status: 200, retry_after_ns: None, body: Body::Error(-32005) });
        assert_eq!((certainty(solana.0), solana.1), (Some((Certainty::Refused, true)), CircuitNote::Nothing));
        assert_eq!(judged(200, Body::Error(-32005)).0, Verdict::Final, "other families mean other things by it");
        let tron = judge(Family::Tron, &Response { status: 200, retry_after_ns: None, body: Body::NodeBusy });
        assert_eq!((certainty(tron.0), tron.1), (Some((Certainty::Refused, true)), CircuitNote::Nothing));
        assert_eq!(certainty(judged(200, Body::NodeBusy).0), Some((Certainty::Ambiguous, false)));
    }

    #[test]
    fn the_http_api_of_tron_has_its_own_final_answers() {
        let of = |status, body| judge_tron_http(&Response { status, retry_after_ns: None, body });
        for status in [200, 201, 299] {
            assert_eq!(of(status, Body::Result), (Verdict::Final, CircuitNote::Success), "{status}");
            let (verdict, note) = of(status, Body::NodeBusy);
            assert_eq!((certainty(verdict), note), (Some((Certainty::Refused, true)), CircuitNote::Nothing));
            let (verdict, note) = of(status, Body::Invalid);
            assert_eq!((certainty(verdict), note), (Some((Certainty::Ambiguous, false)), CircuitNote::Failure));
        }
        for body in [Body::Result, Body::Invalid, Body::NodeBusy] {
            for status in [400, 405] {
                assert_eq!(of(status, body), (Verdict::Final, CircuitNote::Nothing), "{status} {body:?}");
            }
            for status in [301, 401, 402, 403, 404, 407, 408, 410, 411, 413, 414, 415, 421, 422, 426, 429, 431, 451] {
                assert_eq!(certainty(of(status, body).0), Some((Certainty::Refused, false)), "{status} {body:?}");
            }
            for status in [101, 406, 409, 418, 500, 501, 502, 503, 504, 599] {
                assert_eq!(certainty(of(status, body).0), Some((Certainty::Ambiguous, false)), "{status} {body:?}");
            }
        }
        assert_eq!(of(429, Body::Result).1, CircuitNote::Busy { retry_after_ns: None });
        assert_eq!(of(503, Body::Result).1, CircuitNote::Failure);
    }

    #[test]
    fn what_broke_before_a_byte_was_sent_is_not_sent() {
        let (verdict, note) = judge_broken(Broke::NotSent(Reason::ConnectFailed));
        assert_eq!((certainty(verdict), note), (Some((Certainty::NotSent, false)), CircuitNote::Failure));
        let (verdict, note) = judge_broken(Broke::NotSent(Reason::QueueTimeout));
        assert_eq!((certainty(verdict), note), (Some((Certainty::NotSent, false)), CircuitNote::Nothing));
        let (verdict, note) = judge_broken(Broke::Sent(Reason::Timeout));
        assert_eq!((certainty(verdict), note), (Some((Certainty::Ambiguous, false)), CircuitNote::Failure));
        assert_eq!(judge_broken(Broke::Sent(Reason::ResponseTooLarge)), (Verdict::TooLarge, CircuitNote::Nothing));
        assert_eq!(judge_broken(Broke::Sent(Reason::NoRoom)), (Verdict::NoRoom, CircuitNote::Nothing));
    }

    #[test]
    fn an_impatient_caller_says_something_after_a_second() {
        assert_eq!(judge_abandoned(SECOND - 1), CircuitNote::Nothing);
        assert_eq!(judge_abandoned(SECOND), CircuitNote::AbandonedAfterWait);
    }

    #[test]
    fn a_notification_is_content_with_any_2xx() {
        let of = |status| judge_notification(&Response { status, retry_after_ns: None, body: Body::Invalid });
        assert_eq!(of(200), (Verdict::Final, CircuitNote::Success));
        assert_eq!(of(204), (Verdict::Final, CircuitNote::Success));
        for status in [302, 400, 401, 429, 500, 503] {
            assert_eq!(certainty(of(status).0), Some((Certainty::Ambiguous, false)), "{status}");
        }
        assert_eq!(of(429).1, CircuitNote::Busy { retry_after_ns: None });
        assert_eq!(of(500).1, CircuitNote::Failure);
    }
}
