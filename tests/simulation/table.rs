//! What an attempt means, written down a second time from the contract's table of certainties: it judges
//! the judge, and shares no line with it.

use ringway::logic::methods::Family;
use ringway::logic::snapshot::Protocol;
use ringway::logic::verdict::{Body, Broke, Certainty, CircuitNote, Response, Verdict};

/// How an attempt ended, as the driver saw it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum How {
    Answered(Response),
    Broke(Broke),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    Final,
    TooLarge,
    NoRoom,
    NotSent,
    Refused,
    Ambiguous,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub meaning: Meaning,
    /// The node's own error goes out if nothing better comes.
    pub keep: bool,
    pub circuit: CircuitNote,
}

/// Callers can't provoke these: our credentials or path are wrong.
const CONFIGURATION: [u16; 12] = [401, 402, 403, 404, 405, 407, 410, 411, 415, 421, 426, 431];
/// Callers can provoke these.
const REQUEST: [u16; 5] = [400, 408, 413, 414, 422];
/// Their bodies speak about the gateway's own credentials.
const SECRET: [u16; 5] = [401, 402, 403, 407, 429];
/// Statuses besides 2xx with which a valid answer is an answer.
const ANSWERS: [u16; 7] = [400, 404, 405, 413, 415, 422, 500];
/// Errors about the request itself: every node would say the same.
const ABOUT_THE_REQUEST: [i64; 4] = [-32700, -32600, -32601, -32602];

/// The row for an attempt.
pub fn row((protocol, family): (Protocol, Family), notification: bool, how: &How) -> Row {
    match (how, notification) {
        (How::Broke(Broke::NotSent(reason)), _) => {
            let own_budget = reason.word() == "queue_timeout";
            say(Meaning::NotSent, false, if own_budget { CircuitNote::Nothing } else { CircuitNote::Failure })
        }
        (How::Broke(Broke::Sent(reason)), _) if reason.word() == "response_too_large" => {
            say(Meaning::TooLarge, false, CircuitNote::Nothing)
        }
        (How::Broke(Broke::Sent(reason)), _) if reason.word() == "no_room" => {
            say(Meaning::NoRoom, false, CircuitNote::Nothing)
        }
        (How::Broke(Broke::Sent(_)), _) => say(Meaning::Ambiguous, false, CircuitNote::Failure),
        (How::Answered(response), false) if protocol == Protocol::TronHttp => answered_http(response),
        (How::Answered(response), false) => answered(family, response),
        (How::Answered(Response { status: 200..=299, .. }), true) => say(Meaning::Final, false, CircuitNote::Success),
        (How::Answered(response), true) => {
            // Nobody looked into the body, and any other status stops.
            let row = answered(Family::Evm, &Response { body: Body::Invalid, ..*response });
            Row { meaning: Meaning::Ambiguous, keep: false, ..row }
        }
    }
}

fn answered(family: Family, response: &Response) -> Row {
    let Response { status, retry_after_ns, body } = *response;
    let class = status / 100;
    let code = if let Body::Error(code) = body { Some(code) } else { None };
    let valid = code.is_some() || body == Body::Result;
    let busy_node = match family {
        Family::Solana => code == Some(-32005) || code == Some(-32016),
        Family::Tron => body == Body::NodeBusy,
        Family::Evm => false,
    };
    if class == 2 && busy_node {
        return say(Meaning::Refused, true, CircuitNote::Nothing);
    }
    let internal = status == 500 && code == Some(-32603);
    let about_the_request = code.is_some_and(|code| ABOUT_THE_REQUEST.contains(&code));
    let taken = (class == 2 || ANSWERS.contains(&status)) && !internal;
    if valid && !SECRET.contains(&status) && (taken || about_the_request) {
        return say(Meaning::Final, false, if class == 2 { CircuitNote::Success } else { CircuitNote::Nothing });
    }
    if status == 429 || (status == 503 && retry_after_ns.is_some()) {
        return say(Meaning::Refused, false, CircuitNote::Busy { retry_after_ns });
    }
    if class == 3 || status == 451 || CONFIGURATION.contains(&status) {
        return say(Meaning::Refused, false, CircuitNote::FailureIfNoRecentSuccess);
    }
    if REQUEST.contains(&status) {
        return say(Meaning::Refused, false, CircuitNote::Nothing);
    }
    match class {
        4 => say(Meaning::Ambiguous, false, CircuitNote::Nothing),
        5 => say(Meaning::Ambiguous, code.is_some(), CircuitNote::Failure),
        _ => say(Meaning::Ambiguous, false, CircuitNote::Failure),
    }
}

/// The HTTP API of TRON: JSON under a 2xx is the answer, and so is whatever comes with 400 and 405.
fn answered_http(response: &Response) -> Row {
    match (response.status, response.body) {
        (400, _) | (405, _) => say(Meaning::Final, false, CircuitNote::Nothing),
        (200..300, Body::Result) => say(Meaning::Final, false, CircuitNote::Success),
        (200..300, Body::NodeBusy) => say(Meaning::Refused, true, CircuitNote::Nothing),
        _ => answered(Family::Evm, &Response { body: Body::Invalid, ..*response }),
    }
}

fn say(meaning: Meaning, keep: bool, circuit: CircuitNote) -> Row {
    Row { meaning, keep, circuit }
}

/// What is wrong with a judgement; `None` if it is right.
pub fn objection(row: &Row, verdict: &Verdict, note: CircuitNote) -> Option<String> {
    let (meaning, keep) = match verdict {
        Verdict::Final => (Meaning::Final, false),
        Verdict::TooLarge => (Meaning::TooLarge, false),
        Verdict::NoRoom => (Meaning::NoRoom, false),
        Verdict::Failed(failure) => {
            let meaning = match failure.certainty {
                Certainty::NotSent => Meaning::NotSent,
                Certainty::Refused => Meaning::Refused,
                Certainty::Ambiguous => Meaning::Ambiguous,
            };
            (meaning, failure.keep)
        }
    };
    let said = Row { meaning, keep, circuit: note };
    (said != *row).then(|| format!("judged {said:?}, the table says {row:?}"))
}
