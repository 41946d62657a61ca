//! Wakes a poll at a point in time, to the microsecond: epoll's own timeout counts whole milliseconds, in which a
//! fixed rate would turn into bursts.

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    time::{Duration, Instant},
};

use mio::{Interest, Registry, Token, unix::SourceFd};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

/// A timer that reports readiness under a token of its own.
pub struct Timer {
    fd: OwnedFd,
    armed: Option<Instant>,
}

impl Timer {
    /// A disarmed timer that reports to `registry` as `token`.
    pub fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        registry.register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Self { fd, armed: None })
    }

    /// Wakes at `at` (at once if that is past), instead of any earlier wish. Costs nothing if nothing changes.
    pub fn wake_at(&mut self, at: Instant, now: Instant) -> io::Result<()> {
        if self.armed == Some(at) {
            return Ok(());
        }
        // Zero would disarm. Reports are edge-triggered and setting clears the count, so nothing is ever read.
        let wait = at.saturating_duration_since(now).max(Duration::from_nanos(1));
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        let spec = Itimerspec { it_interval: zero, it_value: value };
        rustix::time::timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &spec)?;
        self.armed = Some(at);
        Ok(())
    }

    /// Notes that the timer has fired.
    pub fn fired(&mut self) {
        self.armed = None;
    }
}

#[cfg(test)]
mod tests {
    use mio::{Events, Poll};

    use super::*;

    /// Polls until the timer reports, and says how long that took.
    fn wait(poll: &mut Poll, timer: &mut Timer, start: Instant) -> Duration {
        let mut events = Events::with_capacity(4);
        while events.is_empty() {
            poll.poll(&mut events, Some(Duration::from_secs(10))).unwrap();
            assert!(start.elapsed() < Duration::from_secs(9), "the timer never fired");
        }
        timer.fired();
        start.elapsed()
    }

    #[test]
    fn it_wakes_no_earlier_than_asked_and_again_after_that() {
        let mut poll = Poll::new().unwrap();
        let mut timer = Timer::new(poll.registry(), Token(9)).unwrap();
        for wait_us in [300, 1500, 0] {
            let start = Instant::now();
            let waited = Duration::from_micros(wait_us);
            timer.wake_at(start + waited, start).unwrap();
            assert!(wait(&mut poll, &mut timer, start) >= waited);
        }
    }

    #[test]
    fn the_last_wish_holds() {
        let mut poll = Poll::new().unwrap();
        let mut timer = Timer::new(poll.registry(), Token(9)).unwrap();
        let start = Instant::now();
        timer.wake_at(start + Duration::from_secs(3600), start).unwrap();
        timer.wake_at(start + Duration::from_millis(1), start).unwrap();
        assert!(wait(&mut poll, &mut timer, start) >= Duration::from_millis(1));
    }
}
