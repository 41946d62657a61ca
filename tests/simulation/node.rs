//! Simulated nodes: what each does with a request, and what it really executed.

use crate::simulation::random::Random;
use crate::simulation::table::How;
use ringway::logic::failover::Known;
use ringway::logic::fault::Reason;
use ringway::logic::methods::Family;
use ringway::logic::snapshot::Protocol;
use ringway::logic::units::{MS, Nanos, SECOND};
use ringway::logic::verdict::{Body, Broke, Response};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// Results and errors of the application, soon.
    Healthy,
    /// Nothing takes its connections.
    Dead,
    /// Takes requests, and never answers.
    Hanging,
    /// Answers when it is often too late.
    Slow,
    /// 429, or 503 with a wait.
    Busy,
    /// 5xx, executed or not.
    Failing,
    /// Executes, and answers with another id, or with something that is no answer.
    Lying,
    /// Executes, and the connection breaks before the answer is there.
    Losing,
    /// Redirects, wrong credentials, bad paths, with all kinds of bodies.
    Refusing,
    /// Statuses that mean nothing.
    Odd,
}

const MOODS: [Mood; 10] = [
    Mood::Healthy,
    Mood::Dead,
    Mood::Hanging,
    Mood::Slow,
    Mood::Busy,
    Mood::Failing,
    Mood::Lying,
    Mood::Losing,
    Mood::Refusing,
    Mood::Odd,
];

/// What became of one request.
#[derive(Debug, Clone, Copy)]
pub struct Ending {
    pub how: How,
    pub after_ns: Nanos,
}

#[derive(Debug)]
pub struct Node {
    pub mood: Mood,
    /// How often it flaps: the mean time between two moods.
    pub steadiness_ns: Nanos,
    /// Of ten moods, so many are bad.
    pub badness: u64,
    /// All faults are over: results only.
    pub cured: bool,
    /// Requests of which it got at least one byte.
    pub received: u64,
    /// Operations that it executed, or transactions that it took.
    pub executed: u64,
}

impl Node {
    pub fn new(random: &mut Random) -> Node {
        let badness = random.pick(&[0, 1, 3, 5, 8, 10]);
        let steadiness_ns = random.between(50 * MS, 5 * SECOND);
        let mut node = Node { mood: Mood::Healthy, steadiness_ns, badness, cured: false, received: 0, executed: 0 };
        node.turn(random);
        node
    }

    /// Changes its mood, and says when it will do so again.
    pub fn turn(&mut self, random: &mut Random) -> Nanos {
        let bad = random.below(10) < self.badness;
        self.mood = if bad { random.pick(&MOODS) } else { Mood::Healthy };
        random.between(1, 2 * self.steadiness_ns)
    }

    /// Takes one request; says how it ends, and whether it would have executed an operation.
    pub fn take(
        &mut self,
        random: &mut Random,
        (protocol, family): (Protocol, Family),
        notification: bool,
        timeout_ns: Nanos,
    ) -> (Ending, bool) {
        let mood = if self.cured { Mood::Healthy } else { self.mood };
        let soon = random.between(MS / 10, 40 * MS).min(timeout_ns - 1);
        let (how, after_ns, executed) = match mood {
            Mood::Healthy => self.healthy(random, family, soon),
            Mood::Slow => {
                let (how, _, executed) = self.healthy(random, family, soon);
                (how, random.between(1, timeout_ns + timeout_ns / 2), executed)
            }
            Mood::Dead => dead(random, soon, timeout_ns),
            Mood::Hanging => (answer(200, None, Body::Result), timeout_ns, random.once_in(2)),
            Mood::Busy => {
                let wait = random.once_in(2).then(|| random.between(0, 5 * SECOND));
                let body = random.pick(&[Body::Invalid, Body::Error(-32005), Body::Result, Body::Error(-32601)]);
                let status = if random.once_in(2) { 429 } else { 503 };
                let wait = if status == 503 { Some(wait.unwrap_or(SECOND)) } else { wait };
                // An honest node: it refused. Only of a notification nobody may believe it.
                let about_it = matches!(body, Body::Error(-32601));
                (answer(status, wait, body), soon, notification && !about_it && random.once_in(2))
            }
            Mood::Failing => {
                let body = random.pick(&[Body::Invalid, Body::Error(-32603), Body::Error(-32000), Body::Result]);
                (answer(random.pick(&[500, 502, 503, 504, 520]), None, body), soon, random.once_in(2))
            }
            Mood::Lying if random.once_in(12) => (How::Broke(Broke::Sent(Reason::NoRoom)), soon, true),
            Mood::Lying if random.once_in(8) => (How::Broke(Broke::Sent(Reason::ResponseTooLarge)), soon, true),
            Mood::Lying => (answer(random.pick(&[200, 204]), None, Body::Invalid), soon, true),
            Mood::Losing => {
                let reason = random.pick(&[Reason::ConnectionLost, Reason::InvalidHttp]);
                (How::Broke(Broke::Sent(reason)), soon, true)
            }
            Mood::Refusing => {
                let status = random.pick(&[301, 308, 400, 401, 402, 403, 404, 405, 407, 408, 410, 413, 415, 422, 451]);
                let body =
                    random.pick(&[Body::Invalid, Body::Invalid, Body::Result, Body::Error(-32601), Body::Error(3)]);
                (answer(status, None, body), soon, notification && random.once_in(2))
            }
            Mood::Odd => {
                let body = random.pick(&[Body::Invalid, Body::Result, Body::Error(-32602)]);
                (answer(random.pick(&[199, 406, 409, 418, 425]), None, body), soon, random.once_in(2))
            }
        };
        let sent = !matches!(how, How::Broke(Broke::NotSent(_)));
        let how = if protocol == Protocol::TronHttp { of_the_http_api(how) } else { how };
        self.received += u64::from(sent);
        (late(random, how, after_ns, timeout_ns), executed && sent)
    }

    /// Whether a connection to it, kept open, may break with a request on it: whether it got that request,
    /// and whether it would have run it.
    pub fn loses(&mut self, random: &mut Random) -> Option<bool> {
        let often = if self.cured || self.mood == Mood::Healthy { 40 } else { 8 };
        if self.mood == Mood::Dead || !random.once_in(often) {
            return None;
        }
        self.received += 1;
        Some(random.once_in(2))
    }

    /// Answers whether it has a transaction, if it answers at all: what is known then, and after how long.
    pub fn look_up(&self, random: &mut Random, has: bool, timeout_ns: Nanos) -> (Known, Nanos) {
        let clear = if has { Known::Yes } else { Known::No };
        let soon = random.between(MS / 10, 40 * MS);
        let (known, after_ns) = match if self.cured { Mood::Healthy } else { self.mood } {
            Mood::Healthy | Mood::Losing if random.once_in(10) => (Known::Unclear, soon),
            Mood::Healthy | Mood::Losing => (clear, soon),
            Mood::Slow => (clear, random.between(1, timeout_ns + timeout_ns / 2)),
            Mood::Hanging => (Known::Unclear, timeout_ns),
            _ => (Known::Unclear, soon),
        };
        if after_ns < timeout_ns {
            return (known, after_ns);
        }
        // The timer fires a little late, and sometimes much: a shard that stood still.
        let late = if random.once_in(20) { 2 * SECOND } else { 2 * MS };
        (Known::Unclear, timeout_ns + random.below(late))
    }

    fn healthy(&self, random: &mut Random, family: Family, soon: Nanos) -> (How, Nanos, bool) {
        if self.cured || !random.once_in(6) {
            return (answer(200, None, Body::Result), soon, true);
        }
        let busy = match family {
            Family::Solana => Body::Error(random.pick(&[-32005, -32016])),
            Family::Tron => Body::NodeBusy,
            Family::Evm => Body::Error(-32005),
        };
        let body = random.pick(&[busy, Body::Error(3), Body::Error(-32000), Body::Error(-32603)]);
        (answer(200, None, body), soon, false)
    }
}

fn answer(status: u16, retry_after_ns: Option<Nanos>, body: Body) -> How {
    How::Answered(Response { status, retry_after_ns, body })
}

/// Without envelopes every valid JSON is a result.
fn of_the_http_api(how: How) -> How {
    match how {
        How::Answered(response @ Response { body: Body::Error(_), .. }) => {
            How::Answered(Response { body: Body::Result, ..response })
        }
        other => other,
    }
}

fn dead(random: &mut Random, soon: Nanos, timeout_ns: Nanos) -> (How, Nanos, bool) {
    let reason = random.pick(&[
        Reason::ConnectFailed,
        Reason::ConnectFailed,
        Reason::ConnectTimeout,
        Reason::Dns,
        Reason::QueueTimeout,
        Reason::SendFailed,
    ]);
    let after_ns = if reason == Reason::ConnectTimeout { timeout_ns / 2 } else { soon };
    (How::Broke(Broke::NotSent(reason)), after_ns, false)
}

/// What is not there in time is a timeout, and the timer fires a little late.
fn late(random: &mut Random, how: How, after_ns: Nanos, timeout_ns: Nanos) -> Ending {
    if after_ns < timeout_ns {
        return Ending { how, after_ns };
    }
    Ending { how: How::Broke(Broke::Sent(Reason::Timeout)), after_ns: timeout_ns + random.below(2 * MS) }
}
