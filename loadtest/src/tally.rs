//! What a run counted, and how it is told.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;

use crate::{cores::Core, cpu::Used, exchange::Work, schedule::Slot, wire::Agreed};

/// Sent later than this after its due time, a request counts as late: the generator or the target lagged.
const LATE: Duration = Duration::from_millis(1);
/// Answers that took longer than this are counted as well: who waited for something that was stuck.
const SLOW_NS: u64 = 10_000_000;
/// Latencies above this are recorded as this.
const LATENCY_NS_MAX: u64 = 600_000_000_000;
/// At most this much of the first bad answer is kept.
const SAMPLE_BYTES_MAX: usize = 300;

/// Why a request got no right answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bad {
    /// The connection ended before the answer.
    Lost,
    /// No whole answer within the timeout.
    Timeout,
    /// No connection was free until the end.
    Unsent,
    /// Another HTTP status than 200.
    Status,
    /// Bytes that are no HTTP/1.1 response with a length, or more than the answer.
    Framing,
    /// A JSON-RPC error.
    RpcError,
    /// The answer carries another id.
    WrongId,
    /// The answer carries another result.
    WrongPayload,
}

impl Bad {
    const ALL: [Self; 8] = [
        Self::Lost,
        Self::Timeout,
        Self::Unsent,
        Self::Status,
        Self::Framing,
        Self::RpcError,
        Self::WrongId,
        Self::WrongPayload,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Timeout => "timeout",
            Self::Unsent => "unsent",
            Self::Status => "status",
            Self::Framing => "framing",
            Self::RpcError => "rpc_error",
            Self::WrongId => "wrong_id",
            Self::WrongPayload => "wrong_payload",
        }
    }

    /// The answer came and is somebody else's: worse than none.
    fn is_mismatch(self) -> bool {
        matches!(self, Self::WrongId | Self::WrongPayload)
    }
}

/// The counts of a run.
pub struct Tally {
    /// Requests that were due in the window.
    pub requests: u64,
    /// Of these, rightly answered.
    pub ok: u64,
    /// Bad ones of the warm-up.
    pub warmup_bad: u64,
    /// Of `requests`, sent late.
    pub late: u64,
    /// Connections made anew.
    pub reconnects: u64,
    /// Answers of any kind that came inside the window: what CPU time and the achieved rate are divided by.
    pub window_answers: u64,
    /// Latencies in nanoseconds of right answers and of requests given up.
    pub latency: Histogram<u64>,
    /// TLS handshakes.
    pub handshakes: Handshakes,
    bad: [u64; Bad::ALL.len()],
    sample: Option<String>,
}

impl Tally {
    /// Nothing counted yet.
    pub fn new() -> Self {
        let latency = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("constant bounds in order");
        Self {
            requests: 0,
            ok: 0,
            warmup_bad: 0,
            late: 0,
            reconnects: 0,
            window_answers: 0,
            latency,
            handshakes: Handshakes::default(),
            bad: [0; Bad::ALL.len()],
            sample: None,
        }
    }

    /// A connection was made.
    pub fn agreed(&mut self, agreed: &Agreed) {
        let handshakes = &mut self.handshakes;
        *(if agreed.resumed { &mut handshakes.resumed } else { &mut handshakes.full }) += 1;
        if !handshakes.suites.contains(&agreed.suite) {
            handshakes.suites.insert(agreed.suite.clone());
        }
    }

    /// A request was sent at `now`.
    pub fn sent(&mut self, slot: Slot, now: Instant) {
        if slot.measured {
            self.requests += 1;
            self.late += u64::from(now.saturating_duration_since(slot.due) > LATE);
        }
    }

    /// Its right answer came at `now`.
    pub fn right(&mut self, slot: Slot, now: Instant) {
        if slot.measured {
            self.ok += 1;
            self.wait(slot, now);
        }
    }

    /// It ended badly at `now`; `bytes` are what came instead.
    pub fn bad(&mut self, slot: Slot, why: Bad, bytes: &[u8], now: Instant) {
        if self.sample.is_none() {
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SAMPLE_BYTES_MAX)]);
            self.sample = Some(format!("{}: {text}", why.name()));
        }
        if !slot.measured {
            self.warmup_bad += 1;
            return;
        }
        self.bad[why as usize] += 1;
        // Who gave up has waited at least this long. A fast refusal is no latency.
        if matches!(why, Bad::Timeout | Bad::Unsent) {
            self.wait(slot, now);
        }
    }

    fn wait(&mut self, slot: Slot, now: Instant) {
        let nanos = now.saturating_duration_since(slot.due).as_nanos();
        self.latency.saturating_record(u64::try_from(nanos).unwrap_or(u64::MAX));
    }

    /// How many requests of the window ended so.
    #[cfg(test)]
    pub fn count(&self, why: Bad) -> u64 {
        self.bad[why as usize]
    }

    /// Answers that were somebody else's.
    pub fn mismatched(&self) -> u64 {
        Bad::ALL.iter().filter(|why| why.is_mismatch()).map(|why| self.bad[*why as usize]).sum()
    }

    /// Something went wrong, in the window or before it.
    pub fn any_bad(&self) -> bool {
        self.warmup_bad > 0 || self.bad.iter().any(|count| *count > 0)
    }
}

/// What TLS handshakes came to, the warm-up's included.
#[derive(Debug, Default)]
pub struct Handshakes {
    /// Versions and suites that were agreed on.
    pub suites: BTreeSet<String>,
    /// From the beginning.
    pub full: u64,
    /// An earlier session was taken up again.
    pub resumed: u64,
}

/// A finished run.
pub struct Report {
    /// What was counted.
    pub tally: Tally,
    /// Wanted requests a second; 0 = closed loop.
    pub rate: u64,
    /// The connections used.
    pub connections: usize,
    /// What was asked for.
    pub work: Work,
    /// How long the window really was.
    pub window: Duration,
    /// What the watched processes used in it.
    pub used: Option<Used>,
    /// How the watched cores spent it.
    pub cores: Vec<Core>,
}

impl Report {
    fn achieved(&self) -> f64 {
        self.tally.window_answers as f64 / self.window.as_secs_f64()
    }

    fn quantile_us(&self, quantile: f64) -> f64 {
        self.tally.latency.value_at_quantile(quantile) as f64 / 1000.0
    }

    fn max_us(&self) -> f64 {
        self.tally.latency.max() as f64 / 1000.0
    }

    /// Requests that waited longer than [`SLOW_NS`].
    fn slow(&self) -> u64 {
        self.tally.latency.count_between(SLOW_NS + 1, LATENCY_NS_MAX)
    }

    /// CPU time of the watched processes for each answer.
    fn cpu_us(&self) -> Option<f64> {
        let used = self.used?;
        (self.tally.window_answers > 0).then(|| used.on_cpu_ns as f64 / self.tally.window_answers as f64 / 1000.0)
    }

    /// One line of JSON.
    pub fn json(&self) -> String {
        let tally = &self.tally;
        let errors: Vec<String> = Bad::ALL
            .iter()
            .filter(|why| !why.is_mismatch())
            .map(|why| format!("\"{}\":{}", why.name(), tally.bad[*why as usize]))
            .collect();
        let mismatches: Vec<String> = Bad::ALL
            .iter()
            .filter(|why| why.is_mismatch())
            .map(|why| format!("\"{}\":{}", why.name(), tally.bad[*why as usize]))
            .collect();
        let mut out = format!(
            "{{\"mode\":\"{}\",\"rate\":{},\"connections\":{},\"size\":{},\"batch\":{},\"mix\":{},\"window_s\":{:.6},\"requests\":{},\"ok\":{},\
             \"errors\":{{{}}},\"mismatched\":{},\"mismatches\":{{{}}},\"warmup_bad\":{},\"late\":{},\
             \"reconnects\":{},\"window_answers\":{},\"achieved_rate\":{:.1}",
            if self.rate == 0 { "closed" } else { "open" },
            self.rate,
            self.connections,
            self.work.size,
            self.work.batch,
            self.work.mix,
            self.window.as_secs_f64(),
            tally.requests,
            tally.ok,
            errors.join(","),
            tally.mismatched(),
            mismatches.join(","),
            tally.warmup_bad,
            tally.late,
            tally.reconnects,
            tally.window_answers,
            self.achieved(),
        );
        out += &self.latency_json();
        if let Some(used) = self.used {
            out += &format!(
                ",\"cpu\":{{\"on_cpu_ns\":{},\"waited_ns\":{},\"user_ticks\":{},\"system_ticks\":{},\"threads\":{},\
                 \"threads_lost\":{},\"us_per_answer\":{}}}",
                used.on_cpu_ns,
                used.waited_ns,
                used.user_ticks,
                used.system_ticks,
                used.threads,
                used.threads_lost,
                self.cpu_us().map_or("null".to_owned(), |us| format!("{us:.3}")),
            );
        }
        if !self.cores.is_empty() {
            let cores: Vec<String> = self.cores.iter().map(Core::json).collect();
            out += &format!(",\"cores\":[{}]", cores.join(","));
        }
        let Handshakes { suites, full, resumed } = &tally.handshakes;
        if !suites.is_empty() {
            let suites: Vec<String> = suites.iter().map(|suite| quoted(suite)).collect();
            out += &format!(",\"tls\":{{\"suites\":[{}],\"full\":{full},\"resumed\":{resumed}}}", suites.join(","));
        }
        match &tally.sample {
            None => out += ",\"first_bad\":null}",
            Some(sample) => out += &format!(",\"first_bad\":{}}}", quoted(sample)),
        }
        out
    }

    /// How long requests took, as members of the JSON line.
    fn latency_json(&self) -> String {
        format!(
            ",\"latency_us\":{{\"p50\":{:.1},\"p90\":{:.1},\"p99\":{:.1},\"p99.9\":{:.1},\"max\":{:.1}}},\"over_10ms\":{}",
            self.quantile_us(0.5),
            self.quantile_us(0.9),
            self.quantile_us(0.99),
            self.quantile_us(0.999),
            self.max_us(),
            self.slow(),
        )
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let tally = &self.tally;
        let bad: Vec<String> = Bad::ALL
            .iter()
            .filter(|why| tally.bad[**why as usize] > 0)
            .map(|why| format!("{} {}", tally.bad[*why as usize], why.name()))
            .collect();
        let cpu = self.cpu_us().map_or(String::new(), |us| format!(", CPU {us:.2} µs/answer"));
        let kind = if self.rate == 0 { "closed loop" } else { "open loop" };
        format!(
            "{kind}: {} requests, {} ok, bad: {}, {} bad in the warm-up, {} late; {:.0}/s; \
             µs p50 {:.0} p90 {:.0} p99 {:.0} p99.9 {:.0} max {:.0}{cpu}",
            tally.requests,
            tally.ok,
            if bad.is_empty() { "none".to_owned() } else { bad.join(", ") },
            tally.warmup_bad,
            tally.late,
            self.achieved(),
            self.quantile_us(0.5),
            self.quantile_us(0.9),
            self.quantile_us(0.99),
            self.quantile_us(0.999),
            self.max_us(),
        )
    }
}

/// `text` as a JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => out += "\\\"",
            '\\' => out += "\\\\",
            letter if letter < ' ' => out += &format!("\\u{:04x}", u32::from(letter)),
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_place_of_its_own() {
        for (index, why) in Bad::ALL.iter().enumerate() {
            assert_eq!(*why as usize, index);
        }
    }

    #[test]
    fn latency_runs_from_the_due_time_and_giving_up_counts() {
        let due = Instant::now();
        let slot = Slot { due, measured: true };
        let mut tally = Tally::new();
        tally.sent(slot, due + Duration::from_millis(30));
        tally.right(slot, due + Duration::from_millis(40));
        assert_eq!((tally.requests, tally.ok, tally.late), (1, 1, 1));
        assert!(tally.latency.max() >= 40_000_000);
        tally.bad(slot, Bad::Timeout, b"", due + Duration::from_secs(2));
        assert!(tally.latency.max() >= 2_000_000_000);
        tally.bad(slot, Bad::Lost, b"", due + Duration::from_secs(9));
        assert_eq!(tally.latency.len(), 2);
    }

    #[test]
    fn the_warm_up_is_not_measured_but_its_failures_show() {
        let due = Instant::now();
        let slot = Slot { due, measured: false };
        let mut tally = Tally::new();
        tally.sent(slot, due);
        tally.right(slot, due);
        assert!(!tally.any_bad());
        tally.bad(slot, Bad::Status, b"x", due);
        assert_eq!((tally.requests, tally.ok, tally.warmup_bad, tally.latency.len()), (0, 0, 1, 0));
        assert!(tally.any_bad());
    }

    #[test]
    fn the_json_line_is_one_line_and_quotes_what_came() {
        let due = Instant::now();
        let mut tally = Tally::new();
        for millis in [1, 9, 12, 300] {
            tally.right(Slot { due, measured: true }, due + Duration::from_millis(millis));
        }
        tally.bad(Slot { due, measured: true }, Bad::WrongId, b"HTTP \"x\"\r\n\\", due);
        let report = Report {
            tally,
            rate: 5,
            connections: 1,
            work: Work::single(120),
            window: Duration::from_secs(2),
            used: Some(Used { on_cpu_ns: 9000, ..Used::default() }),
            cores: vec![],
        };
        let json = report.json();
        assert!(!json.contains('\n'));
        assert!(json.contains(r#""mismatched":1,"mismatches":{"wrong_id":1,"wrong_payload":0}"#), "{json}");
        assert!(json.ends_with(r#""first_bad":"wrong_id: HTTP \"x\"\u000d\u000a\\"}"#), "{json}");
        assert!(json.contains(r#","over_10ms":2,"#), "{json}");
        assert!(json.contains(r#""us_per_answer":null"#), "{json}");
        assert!(report.line().contains("1 wrong_id"));
    }
}
