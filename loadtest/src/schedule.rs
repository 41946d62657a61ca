//! When each request is due. An open loop never waits for answers: a request that could not be sent in time keeps
//! its due time, so that a stall of the target is paid by every request that it held up.

use std::time::{Duration, Instant};

/// The plan of a run: a warm-up, then the measured window.
#[derive(Debug, Clone)]
pub struct Schedule {
    start: Instant,
    window_start: Instant,
    window_end: Instant,
    /// Requests a second; 0 = a closed loop, where a request is due whenever a connection is free.
    rate: u64,
    /// Requests taken so far.
    taken: u64,
}

/// A request's place in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// When it was to be sent.
    pub due: Instant,
    /// It counts: it was due inside the window.
    pub measured: bool,
}

impl Schedule {
    /// A plan that begins at `start`.
    pub fn new(start: Instant, rate: u64, warmup: Duration, window: Duration) -> Self {
        let window_start = start + warmup;
        Self { start, window_start, window_end: window_start + window, rate, taken: 0 }
    }

    /// Requests have fixed times.
    pub fn is_open(&self) -> bool {
        self.rate > 0
    }

    /// When measuring begins.
    pub fn window_start(&self) -> Instant {
        self.window_start
    }

    /// When measuring ends, and requests with it.
    pub fn window_end(&self) -> Instant {
        self.window_end
    }

    /// When the next request is due; none are after the window.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        let due = if self.rate == 0 {
            now
        } else {
            let nanos = u128::from(self.taken) * 1_000_000_000 / u128::from(self.rate);
            self.start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        };
        (due < self.window_end).then_some(due)
    }

    /// Takes the next request if it is due.
    pub fn take(&mut self, now: Instant) -> Option<Slot> {
        let due = self.next(now).filter(|due| *due <= now)?;
        self.taken += 1;
        Some(Slot { due, measured: due >= self.window_start })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_fixed_rate_is_met_to_the_request() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, 3_000, SECOND, 2 * SECOND);
        let (mut measured, mut warm) = (0, 0);
        while let Some(slot) = schedule.take(start + 10 * SECOND) {
            if slot.measured {
                measured += 1;
            } else {
                warm += 1;
            }
        }
        assert_eq!((warm, measured), (3_000, 6_000));
        assert_eq!(schedule.next(start), None);
    }

    #[test]
    fn a_late_request_keeps_its_due_time() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, 1_000, Duration::ZERO, SECOND);
        let late = start + Duration::from_millis(200);
        let dues: Vec<_> = (0..3).map(|_| schedule.take(late).unwrap().due - start).collect();
        assert_eq!(dues, [0, 1, 2].map(Duration::from_millis));
    }

    #[test]
    fn nothing_is_taken_early() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, 1_000, Duration::ZERO, SECOND);
        assert!(schedule.take(start).is_some());
        assert_eq!(schedule.take(start + Duration::from_micros(999)), None);
        assert!(schedule.take(start + Duration::from_micros(1000)).is_some());
    }

    #[test]
    fn a_closed_loop_is_always_due_until_the_window_ends() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, 0, SECOND, SECOND);
        assert_eq!(schedule.take(start).map(|slot| slot.measured), Some(false));
        assert_eq!(schedule.take(start + SECOND).map(|slot| slot.measured), Some(true));
        assert_eq!(schedule.take(start + 2 * SECOND), None);
    }
}
