//! The generator: sends by the schedule over kept connections, on one thread, and judges every answer.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind},
    mem,
    net::SocketAddr,
    time::{Duration, Instant},
};

use mio::{Events, Poll, Token};

use crate::{
    caller::{Caller, Heard, Manner},
    cores::{self, Core},
    cpu::{Snapshot, Used},
    exchange::{Asker, Work},
    judge::{Judge, Judgement},
    schedule::{Schedule, Slot},
    tally::{Bad, Report, Tally},
    timer::Timer,
    wire,
};

const TIMER: Token = Token(usize::MAX - 1);
/// How often timeouts and lost connections are looked for.
const SWEEP: Duration = Duration::from_millis(20);
/// One read takes at most this much.
const SCRATCH_BYTES: usize = 128 << 10;

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Whom to ask.
    pub target: SocketAddr,
    /// The path to ask at.
    pub path: String,
    /// Connections kept open.
    pub connections: usize,
    /// Requests a second; 0 = closed loop.
    pub rate: u64,
    /// What is asked for.
    pub work: Work,
    /// The time before measuring.
    pub warmup: Duration,
    /// The time of measuring.
    pub window: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Speak TLS with whom these roots (PEM) vouch for.
    pub tls_ca: Option<Vec<u8>>,
    /// Connect anew for each request.
    pub fresh: bool,
    /// Take up TLS sessions again.
    pub resume: bool,
    /// The processes whose CPU time is measured.
    pub cpu_of: Vec<u32>,
    /// The CPUs whose whole time is measured.
    pub cores: Vec<u32>,
}

/// A request under way.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// Its number, from which its id and result follow.
    pub n: u64,
    /// Its place in the schedule.
    pub slot: Slot,
    /// When it is given up.
    pub give_up: Instant,
}

/// Runs the plan to its end. Fails if the target can't be reached at all or the watched processes can't be read.
pub fn run(plan: &Plan) -> io::Result<Report> {
    let mut driver = Driver::new(plan)?;
    driver.run(plan)?;
    let window = driver.measured(plan)?;
    Ok(Report {
        tally: driver.tally,
        rate: plan.rate,
        connections: plan.connections,
        work: plan.work,
        window: window.0,
        used: window.1,
        cores: window.2,
    })
}

/// A look at the clock, the watched processes and the watched cores.
struct Mark {
    at: Instant,
    cpu: Snapshot,
    cores: Vec<Core>,
}

impl Mark {
    fn now(plan: &Plan) -> io::Result<Self> {
        Ok(Self { cores: cores::read(&plan.cores)?, cpu: Snapshot::of(&plan.cpu_of)?, at: Instant::now() })
    }
}

struct Driver {
    poll: Poll,
    timer: Timer,
    callers: Vec<Caller>,
    /// Callers that may be free, in the order they became so: all take part in turn.
    idle: VecDeque<usize>,
    busy: usize,
    schedule: Schedule,
    asker: Asker,
    judge: Judge,
    tally: Tally,
    scratch: Vec<u8>,
    next_n: u64,
    next_sweep: Instant,
    timeout: Duration,
    begin: Option<Mark>,
    end: Option<Mark>,
}

impl Driver {
    fn new(plan: &Plan) -> io::Result<Self> {
        let poll = Poll::new()?;
        let timer = Timer::new(poll.registry(), TIMER)?;
        let mut callers = Vec::with_capacity(plan.connections);
        for index in 0..plan.connections {
            let tls = plan.tls_ca.as_deref().map(|ca| wire::client(ca, plan.resume)).transpose()?;
            let manner = Manner { tls, fresh: plan.fresh };
            callers.push(Caller::connected(plan.target, Token(index), poll.registry(), manner)?);
        }
        let now = Instant::now();
        Ok(Self {
            poll,
            timer,
            idle: (0..callers.len()).collect(),
            callers,
            busy: 0,
            schedule: Schedule::new(now, plan.rate, plan.warmup, plan.window),
            asker: Asker::new(&plan.target.to_string(), &plan.path, plan.work),
            judge: Judge::new(plan.work),
            tally: Tally::new(),
            scratch: vec![0; SCRATCH_BYTES],
            next_n: 0,
            next_sweep: now + SWEEP,
            timeout: plan.timeout,
            begin: None,
            end: None,
        })
    }

    fn run(&mut self, plan: &Plan) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        let last = self.schedule.window_end() + plan.timeout;
        loop {
            let now = Instant::now();
            self.mark(now, plan)?;
            self.send_due(now);
            if self.end.is_some() && self.busy == 0 && self.schedule.next(now).is_none() {
                return Ok(());
            }
            if now >= last {
                self.give_up(now);
                return Ok(());
            }
            if now >= self.next_sweep {
                self.sweep(now);
            }
            self.wait(&mut events, last)?;
            for event in &events {
                match event.token() {
                    TIMER => self.timer.fired(),
                    Token(index) => self.hear(index, event.is_writable(), event.is_read_closed()),
                }
            }
        }
    }

    /// Waits for events, or for the next thing that has a time.
    fn wait(&mut self, events: &mut Events, last: Instant) -> io::Result<()> {
        let now = Instant::now();
        let mut wake = self.next_sweep.min(last);
        if self.begin.is_none() {
            wake = wake.min(self.schedule.window_start());
        } else if self.end.is_none() {
            wake = wake.min(self.schedule.window_end());
        }
        // Without a free connection the next request waits for an event anyway.
        if !self.idle.is_empty()
            && let Some(due) = self.schedule.next(now)
        {
            wake = wake.min(due);
        }
        self.timer.wake_at(wake, now)?;
        match self.poll.poll(events, None) {
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            other => other,
        }
    }

    /// Looks at the watched processes at both ends of the window.
    fn mark(&mut self, now: Instant, plan: &Plan) -> io::Result<()> {
        if self.begin.is_none() && now >= self.schedule.window_start() {
            self.begin = Some(Mark::now(plan)?);
        } else if self.begin.is_some() && self.end.is_none() && now >= self.schedule.window_end() {
            self.end = Some(Mark::now(plan)?);
        }
        Ok(())
    }

    fn measured(&self, plan: &Plan) -> io::Result<(Duration, Option<Used>, Vec<Core>)> {
        let (Some(begin), Some(end)) = (&self.begin, &self.end) else {
            return Err(io::Error::other("the run ended before its window"));
        };
        let used = (!plan.cpu_of.is_empty()).then(|| end.cpu.since(&begin.cpu));
        let cores = end.cores.iter().zip(&begin.cores).map(|(end, begin)| end.since(begin)).collect();
        Ok((end.at - begin.at, used, cores))
    }

    /// Sends every request that is due, as far as there are free connections.
    fn send_due(&mut self, now: Instant) {
        while let Some(index) = self.idle.front().copied() {
            if !self.callers[index].is_free() {
                self.idle.pop_front();
                continue;
            }
            let Some(slot) = self.schedule.take(now) else { return };
            self.idle.pop_front();
            let n = self.next_n;
            self.next_n += 1;
            self.tally.sent(slot, now);
            self.busy += 1;
            let call = Call { n, slot, give_up: now + self.timeout };
            let (registry, asker) = (self.poll.registry(), &mut self.asker);
            let sent = self.callers[index].send(call, registry, |out| asker.append(n, out));
            if sent.is_err() {
                self.failed(index, Bad::Lost, now);
            }
        }
    }

    /// Takes what a connection has to say.
    fn hear(&mut self, index: usize, writable: bool, ended: bool) {
        let mut scratch = mem::take(&mut self.scratch);
        let heard = match self.callers.get_mut(index) {
            None => Heard::Nothing,
            Some(caller) => {
                let judge = &mut self.judge;
                caller.hear(writable, ended, &mut scratch, |n, body| judge.judge(n, body))
            }
        };
        self.scratch = scratch;
        // The time of the answer, not of the batch that it came with.
        let now = Instant::now();
        match heard {
            Heard::Nothing => {}
            Heard::Ready => self.idle.push_back(index),
            Heard::Answer { call, judgement, keep } => {
                self.answered(index, now);
                self.busy -= 1;
                match judgement {
                    Judgement::Right => self.tally.right(call.slot, now),
                    other => {
                        let why = match other {
                            Judgement::WrongId => Bad::WrongId,
                            Judgement::RpcError => Bad::RpcError,
                            _ => Bad::WrongPayload,
                        };
                        self.tally.bad(call.slot, why, self.callers[index].last_bytes(), now);
                    }
                }
                if keep {
                    self.idle.push_back(index);
                } else {
                    self.callers[index].close(now);
                }
            }
            Heard::Status { call, keep } => {
                self.answered(index, now);
                self.busy -= 1;
                self.tally.bad(call.slot, Bad::Status, self.callers[index].last_bytes(), now);
                if keep {
                    self.idle.push_back(index);
                } else {
                    self.callers[index].close(now);
                }
            }
            Heard::Garbage => self.failed(index, Bad::Framing, now),
            Heard::End => self.failed(index, Bad::Lost, now),
        }
    }

    /// Notes an answer of whatever kind for the achieved rate.
    fn answered(&mut self, index: usize, now: Instant) {
        if let Some(agreed) = self.callers[index].agreed() {
            self.tally.agreed(&agreed);
        }
        if self.begin.is_some() && self.end.is_none() && now <= self.schedule.window_end() {
            self.tally.window_answers += 1;
        }
    }

    /// Ends a connection and what was under way on it.
    fn failed(&mut self, index: usize, why: Bad, now: Instant) {
        let caller = &mut self.callers[index];
        if let Some(call) = caller.abandon() {
            self.busy -= 1;
            self.tally.bad(call.slot, why, caller.last_bytes(), now);
        }
        caller.close(now);
    }

    /// Gives up calls that took too long and connects anew.
    fn sweep(&mut self, now: Instant) {
        self.next_sweep = now + SWEEP;
        for index in 0..self.callers.len() {
            if self.callers[index].call().is_some_and(|call| call.give_up <= now) {
                self.failed(index, Bad::Timeout, now);
            }
            if self.callers[index].reconnect(self.poll.registry(), now) {
                self.tally.reconnects += 1;
            }
        }
    }

    /// Ends the run: what is under way has timed out, what was due and not sent never will be.
    fn give_up(&mut self, now: Instant) {
        for index in 0..self.callers.len() {
            self.failed(index, Bad::Timeout, now);
        }
        if self.schedule.is_open() {
            while let Some(slot) = self.schedule.take(now) {
                self.tally.requests += u64::from(slot.measured);
                self.tally.bad(slot, Bad::Unsent, b"", now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
        thread,
    };

    use super::*;
    use crate::{
        certificates,
        faults::{Fault, Faults},
        reply::Manner,
        upstream::Upstream,
    };

    const STALL: Duration = Duration::from_millis(200);

    fn upstream(faults: Faults) -> Upstream {
        let manner = Manner { size: 120, mix: false, delay: Duration::ZERO, stall: STALL, faults };
        Upstream::start("127.0.0.1:0".parse().unwrap(), 1, &manner, None).unwrap()
    }

    fn once(fault: Fault, at: u64) -> Faults {
        Faults { kinds: vec![fault], at: Some(at), ..Faults::default() }
    }

    fn plan(target: SocketAddr, rate: u64, connections: usize) -> Plan {
        Plan {
            target,
            path: "/eth".to_owned(),
            connections,
            rate,
            work: Work::single(120),
            warmup: Duration::ZERO,
            window: Duration::from_millis(300),
            timeout: Duration::from_secs(5),
            tls_ca: None,
            fresh: false,
            resume: false,
            cpu_of: vec![],
            cores: vec![],
        }
    }

    /// A server on its own thread that takes each request and answers with `reply`, then closes.
    fn blunt(reply: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = [0; 4096];
                if matches!(stream.read(&mut request), Ok(count) if count > 0) {
                    // The generator may have hung up.
                    let _ = stream.write_all(reply);
                }
            }
        });
        addr
    }

    /// An upstream that speaks TLS, and the plan to ask it.
    fn with_tls(size: usize) -> (Upstream, Plan) {
        let made = certificates::make().unwrap();
        let manner = Manner { size, mix: false, delay: Duration::ZERO, stall: STALL, faults: Faults::default() };
        let tls = wire::server(made.cert.as_bytes(), made.key.as_bytes()).unwrap();
        let upstream = Upstream::start("127.0.0.1:0".parse().unwrap(), 1, &manner, Some(tls)).unwrap();
        let plan =
            Plan { tls_ca: Some(made.ca.into_bytes()), work: Work::single(size), ..plan(upstream.addr(), 400, 4) };
        (upstream, plan)
    }

    #[test]
    fn tls_carries_every_request_and_says_what_was_agreed_on() {
        for (size, rate) in [(120, 400), (300_000, 100)] {
            let (_upstream, plan) = with_tls(size);
            let report = run(&Plan { rate, ..plan }).unwrap();
            let (tally, due) = (&report.tally, rate * 3 / 10);
            assert_eq!((tally.requests, tally.ok, tally.any_bad()), (due, due, false), "{}", report.line());
            assert_eq!((tally.handshakes.full, tally.handshakes.resumed), (4, 0));
            let says = r#""tls":{"suites":["TLSv1_3 TLS13_AES_256_GCM_SHA384"],"full":4,"resumed":0}"#;
            assert!(report.json().contains(says), "{}", report.json());
        }
    }

    #[test]
    fn a_fresh_connection_for_each_request_shakes_hands_each_time() {
        for resume in [false, true] {
            let (_upstream, plan) = with_tls(120);
            let report = run(&Plan { fresh: true, resume, ..plan }).unwrap();
            let tally = &report.tally;
            assert_eq!((tally.requests, tally.ok, tally.any_bad()), (120, 120, false), "{}", report.line());
            let (full, resumed) = if resume { (4, 116) } else { (120, 0) };
            assert_eq!((tally.handshakes.full, tally.handshakes.resumed), (full, resumed));
        }
    }

    #[test]
    fn a_server_that_nobody_vouches_for_is_not_asked() {
        let (upstream, plan) = with_tls(120);
        let other = certificates::make().unwrap();
        let report = run(&Plan { tls_ca: Some(other.ca.into_bytes()), ..plan }).unwrap();
        assert_eq!((report.tally.ok, report.tally.handshakes.full), (0, 0), "{}", report.line());
        drop(upstream);
    }

    #[test]
    fn a_good_server_gets_every_request_and_no_complaint() {
        let upstream = upstream(Faults::default());
        let report = run(&plan(upstream.addr(), 1000, 8)).unwrap();
        assert_eq!((report.tally.requests, report.tally.ok), (300, 300), "{}", report.line());
        assert!(!report.tally.any_bad());
        assert_eq!(report.tally.latency.len(), 300);
        assert_eq!(report.tally.reconnects, 0);
    }

    #[test]
    fn the_warm_up_is_left_out() {
        let upstream = upstream(Faults::default());
        let plan = Plan { warmup: Duration::from_millis(200), ..plan(upstream.addr(), 1000, 8) };
        assert_eq!(run(&plan).unwrap().tally.requests, 300);
    }

    #[test]
    fn big_results_are_checked_too() {
        let faults = Faults::default();
        let manner = Manner { size: 300_000, mix: false, delay: Duration::ZERO, stall: STALL, faults };
        let upstream = Upstream::start("127.0.0.1:0".parse().unwrap(), 1, &manner, None).unwrap();
        let report = run(&Plan { work: Work::single(300_000), ..plan(upstream.addr(), 100, 4) }).unwrap();
        assert_eq!((report.tally.requests, report.tally.ok), (30, 30), "{}", report.line());
        let report = run(&Plan { work: Work::single(300_001), ..plan(upstream.addr(), 100, 4) }).unwrap();
        assert_eq!(report.tally.count(Bad::WrongPayload), 30, "{}", report.line());
    }

    #[test]
    fn batches_and_mixes_are_answered_and_checked() {
        for (work, rate) in [
            (Work { size: 120, batch: 20, mix: false }, 200),
            (Work { size: 120, batch: 1, mix: true }, 200),
            (Work { size: 120, batch: 3, mix: true }, 50),
        ] {
            let manner =
                Manner { size: 120, mix: work.mix, delay: Duration::ZERO, stall: STALL, faults: Faults::default() };
            let upstream = Upstream::start("127.0.0.1:0".parse().unwrap(), 1, &manner, None).unwrap();
            let report = run(&Plan { work, ..plan(upstream.addr(), rate, 4) }).unwrap();
            let due = rate * 3 / 10;
            assert_eq!((report.tally.requests, report.tally.ok), (due, due), "{work:?}: {}", report.json());
        }
        let upstream = upstream(once(Fault::WrongPayload, 5));
        let work = Work { size: 120, batch: 20, mix: false };
        let report = run(&Plan { work, ..plan(upstream.addr(), 200, 4) }).unwrap();
        assert_eq!((report.tally.ok, report.tally.count(Bad::WrongPayload)), (59, 1), "{}", report.line());
    }

    #[test]
    fn each_fault_is_seen_as_what_it_is() {
        for (fault, why) in [
            (Fault::WrongId, Bad::WrongId),
            (Fault::WrongPayload, Bad::WrongPayload),
            (Fault::RpcError, Bad::RpcError),
            (Fault::Status503, Bad::Status),
            (Fault::Close, Bad::Lost),
            (Fault::Truncate, Bad::Lost),
        ] {
            let upstream = upstream(once(fault, 50));
            let report = run(&plan(upstream.addr(), 1000, 4)).unwrap();
            let tally = &report.tally;
            assert_eq!((tally.requests, tally.ok), (300, 299), "{fault:?}: {}", report.line());
            assert_eq!(tally.count(why), 1, "{fault:?}: {}", report.line());
            assert_eq!(tally.mismatched(), u64::from(matches!(why, Bad::WrongId | Bad::WrongPayload)));
            assert!(tally.any_bad());
        }
    }

    #[test]
    fn a_fault_in_the_warm_up_is_not_forgiven() {
        let upstream = upstream(once(Fault::WrongId, 1));
        let plan = Plan { warmup: Duration::from_millis(100), ..plan(upstream.addr(), 1000, 4) };
        let tally = run(&plan).unwrap().tally;
        assert_eq!((tally.ok, tally.warmup_bad), (300, 1));
        assert!(tally.any_bad());
    }

    #[test]
    fn answers_that_are_none_are_seen() {
        for (reply, why) in [
            (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}".as_slice(), Bad::WrongId),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}{", Bad::Framing),
            (b"HTTP/1.1 200 OK\r\n\r\n{}", Bad::Framing),
            (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", Bad::Framing),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Bad::Framing),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", Bad::Lost),
            (b"HTTP/1.1 429 Too Many\r\nContent-Length: 0\r\n\r\n", Bad::Status),
            (b"", Bad::Lost),
        ] {
            let report = run(&plan(blunt(reply), 100, 4)).unwrap();
            let text = String::from_utf8_lossy(reply);
            assert!(report.tally.count(why) > 0, "{text}: {}", report.line());
            assert_eq!(report.tally.ok, 0, "{text}: {}", report.line());
            assert_eq!(report.tally.requests, 30, "{text}: {}", report.line());
        }
    }

    #[test]
    fn a_silent_server_times_out_and_the_wait_is_recorded() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let timeout = Duration::from_millis(100);
        let plan = Plan { timeout, ..plan(listener.local_addr().unwrap(), 100, 2) };
        let report = run(&plan).unwrap();
        let tally = &report.tally;
        assert_eq!((tally.requests, tally.ok), (30, 0), "{}", report.line());
        assert!(tally.count(Bad::Timeout) > 0);
        assert_eq!(tally.count(Bad::Timeout) + tally.count(Bad::Unsent), 30, "{}", report.line());
        assert_eq!(tally.latency.len(), 30);
        assert!(tally.latency.min() >= 99_000_000, "{}", report.line());
    }

    #[test]
    fn no_server_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        drop(listener);
        assert!(run(&plan(addr, 100, 1)).is_err());
    }

    #[test]
    fn a_stall_is_paid_by_every_request_that_it_held_up() {
        // One connection, so that one stalled answer is a stalled server. In an open loop a fifth of the requests
        // waits for it; a closed loop hides it, since it sends nothing meanwhile.
        let second = Duration::from_secs(1);
        let stalled = upstream(once(Fault::Stall, 100));
        let open = run(&Plan { window: second, ..plan(stalled.addr(), 1000, 1) }).unwrap();
        assert_eq!((open.tally.requests, open.tally.ok), (1000, 1000), "{}", open.line());
        let p99 = open.tally.latency.value_at_quantile(0.99);
        let p85 = open.tally.latency.value_at_quantile(0.85);
        assert!(p99 >= 150_000_000, "p99 hides the stall: {}", open.line());
        assert!(p85 >= 30_000_000, "only the first of the waiting requests shows: {}", open.line());
        assert!(open.tally.late >= 150, "{}", open.line());

        let stalled = upstream(once(Fault::Stall, 100));
        let closed = run(&Plan { window: second, ..plan(stalled.addr(), 0, 1) }).unwrap();
        assert!(closed.tally.latency.max() >= 200_000_000, "{}", closed.line());
        assert!(closed.tally.latency.value_at_quantile(0.99) < 150_000_000, "{}", closed.line());
    }

    #[test]
    fn watched_processes_are_reported() {
        let upstream = upstream(Faults::default());
        let plan = Plan { cpu_of: vec![std::process::id()], cores: vec![0], ..plan(upstream.addr(), 1000, 2) };
        let report = run(&plan).unwrap();
        let used = report.used.unwrap();
        assert!(used.on_cpu_ns > 0 && used.threads > 1, "{used:?}");
        assert!(report.json().contains("\"us_per_answer\":"));
        assert!(report.json().contains("\"cores\":[{\"core\":0,\"user\":"), "{}", report.json());
    }
}
