//! Who waits for a time to come: few, since deadlines of sockets have a wheel of their own.

use crate::logic::units::Nanos;
use crate::net::ring::now;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

#[derive(Default)]
struct Sleepers {
    /// By time, and then in the order of coming.
    wakers: BTreeMap<(Nanos, u64), Waker>,
    next: u64,
}

thread_local! {
    static SLEEPERS: RefCell<Sleepers> = RefCell::default();
}

/// When the next one is to be woken.
pub fn next_ns() -> Option<Nanos> {
    SLEEPERS.with(|sleepers| sleepers.borrow().wakers.first_key_value().map(|((at_ns, _), _)| *at_ns))
}

/// Wakes all whose time has come.
pub fn wake_due(now_ns: Nanos) {
    SLEEPERS.with(|sleepers| {
        let mut sleepers = sleepers.borrow_mut();
        while let Some(first) = sleepers.wakers.first_entry().filter(|first| first.key().0 <= now_ns) {
            first.remove().wake();
        }
    });
}

/// Ends when its time has come. May be dropped before.
pub struct Sleep {
    at_ns: Nanos,
    number: Option<u64>,
}

impl Sleep {
    /// Until then.
    pub fn until(at_ns: Nanos) -> Sleep {
        Sleep { at_ns, number: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Sleep>, context: &mut Context<'_>) -> Poll<()> {
        // At least one turn, even if its time has come already: others had theirs.
        if self.number.is_some() && now() >= self.at_ns {
            return Poll::Ready(());
        }
        let at_ns = self.at_ns;
        self.number = SLEEPERS.with(|sleepers| {
            let mut sleepers = sleepers.borrow_mut();
            let number = self.number.unwrap_or(sleepers.next);
            sleepers.next = sleepers.next.max(number + 1);
            sleepers.wakers.insert((at_ns, number), context.waker().clone());
            Some(number)
        });
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        // At the thread's end nobody is left to be woken.
        let _ = SLEEPERS.try_with(|sleepers| sleepers.borrow_mut().wakers.remove(&(self.at_ns, number)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use futures_util::task::noop_waker;

    #[test]
    fn each_is_woken_at_its_time_and_who_was_dropped_is_forgotten() {
        let waker = noop_waker();
        let mut context = Context::from_waker(&waker);
        let now_ns = now();
        let (mut first, mut second) = (Sleep::until(now_ns), Sleep::until(now_ns + 60_000_000_000));
        assert!(first.poll_unpin(&mut context).is_pending(), "one turn for the others");
        assert!(second.poll_unpin(&mut context).is_pending());
        assert_eq!(next_ns(), Some(now_ns));
        wake_due(now_ns);
        assert_eq!(next_ns(), Some(now_ns + 60_000_000_000));
        assert!(first.poll_unpin(&mut context).is_ready());
        assert!(second.poll_unpin(&mut context).is_pending());
        drop(second);
        assert_eq!(next_ns(), None);
    }
}
