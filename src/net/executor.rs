//! The tasks of one thread: who is polled next, and how somebody is woken.
//!
//! A waker is the number of its task. One that outlives its task may poll whoever has the number next, once and for
//! nothing, which every future has to stand. Nothing on a shard waits for another thread: a waker that were used on
//! one would wake nobody here.

#![allow(unsafe_code)]

use slab::Slab;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

/// The number of the future that [`run`] was given.
const MAIN: usize = usize::MAX;

/// Bytes of a task's state that are fetched ahead: all of a connection's.
const PREFETCHED: usize = 4 << 10;

type Future = Pin<Box<dyn std::future::Future<Output = ()>>>;

#[derive(Default)]
struct Tasks {
    slots: RefCell<Slab<Slot>>,
    ready: RefCell<VecDeque<usize>>,
    main_is_ready: Cell<bool>,
}

struct Slot {
    /// Not here while it is polled.
    task: Option<Future>,
    /// In the queue: each task stands there once at most.
    queued: bool,
}

/// A waker that is no more than its number: made, copied and dropped for nothing.
fn waker(number: usize) -> Waker {
    const DOES: RawWakerVTable = RawWakerVTable::new(
        |number| RawWaker::new(number, &DOES),
        |number| wake(number.addr()),
        |number| wake(number.addr()),
        |_| {},
    );
    // SAFETY: the data is a number and is never followed; all four functions are sound on any thread and at any time,
    // since they touch no more than the thread's own list.
    unsafe { Waker::from_raw(RawWaker::new(std::ptr::without_provenance(number), &DOES)) }
}

#[cfg(target_arch = "x86_64")]
fn prefetch<T: ?Sized>(value: &T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    let start = std::ptr::from_ref(value).cast::<i8>();
    for line in (0..size_of_val(value).min(PREFETCHED)).step_by(64) {
        // SAFETY: a hint, which reads nothing; the place is inside of `value`.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.add(line)) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn prefetch<T: ?Sized>(_: &T) {}

fn wake(number: usize) {
    // At the thread's end there is nobody left to wake.
    let _ = TASKS.try_with(|tasks| tasks.wake(number));
}

thread_local! {
    static TASKS: Tasks = Tasks::default();
}

impl Tasks {
    fn wake(&self, number: usize) {
        if number == MAIN {
            return self.main_is_ready.set(true);
        }
        let mut slots = self.slots.borrow_mut();
        if let Some(slot) = slots.get_mut(number).filter(|slot| !slot.queued) {
            slot.queued = true;
            self.ready.borrow_mut().push_back(number);
        }
    }

    /// Whoever is next is fetched from memory while the one before is polled: with many connections most of their
    /// state has left the near caches by the time they are polled again.
    fn prefetch_next(&self) {
        let ready = self.ready.borrow();
        let Some(number) = ready.front() else { return };
        if let Some(future) = self.slots.borrow().get(*number).and_then(|slot| slot.task.as_ref()) {
            prefetch(&**future);
        }
    }

    fn poll_next(&self, before_each: &impl Fn()) {
        let Some(number) = self.ready.borrow_mut().pop_front() else { return };
        let taken = self.slots.borrow_mut().get_mut(number).and_then(|slot| {
            slot.queued = false;
            slot.task.take()
        });
        let Some(mut task) = taken else { return };
        self.prefetch_next();
        before_each();
        let polled = task.as_mut().poll(&mut Context::from_waker(&waker(number)));
        match polled {
            Poll::Pending => {
                if let Some(slot) = self.slots.borrow_mut().get_mut(number) {
                    slot.task = Some(task);
                }
            }
            Poll::Ready(()) => {
                // Before its number is free: what it drops may wake it.
                drop(task);
                self.slots.borrow_mut().remove(number);
            }
        }
    }
}

/// Adds a task to this thread's.
pub fn spawn(future: Future) {
    TASKS.with(|tasks| {
        let mut slots = tasks.slots.borrow_mut();
        let entry = slots.vacant_entry();
        let number = entry.key();
        entry.insert(Slot { task: Some(future), queued: true });
        tasks.ready.borrow_mut().push_back(number);
    });
}

/// Runs `main` and all tasks until `main` is done. `before_each` is called before a future is polled; `turn` looks
/// after input and output, and may wait if it is told that nobody is ready.
pub fn run<F: std::future::Future>(main: F, before_each: impl Fn(), mut turn: impl FnMut(bool)) -> F::Output {
    let mut main = pin!(main);
    let waker = waker(MAIN);
    TASKS.with(|tasks| {
        tasks.main_is_ready.set(true);
        loop {
            // Those that are woken meanwhile come after the next turn, so that nobody starves input and output.
            let most = tasks.ready.borrow().len();
            for _ in 0..most {
                tasks.poll_next(&before_each);
            }
            if tasks.main_is_ready.take() {
                before_each();
                if let Poll::Ready(done) = main.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return done;
                }
            }
            turn(tasks.ready.borrow().is_empty() && !tasks.main_is_ready.get());
        }
    })
}

/// Drops all tasks.
pub fn clear() {
    TASKS.with(|tasks| {
        let all = tasks.slots.take();
        tasks.ready.take();
        drop(all);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::poll_fn;
    use std::rc::Rc;

    #[test]
    fn tasks_take_turns_and_each_wake_counts_once() {
        let order = Rc::new(RefCell::new(Vec::new()));
        for name in ["a", "b"] {
            let order = order.clone();
            let mut left = 3;
            spawn(Box::pin(poll_fn(move |context| {
                order.borrow_mut().push(name);
                left -= 1;
                context.waker().wake_by_ref();
                context.waker().wake_by_ref();
                if left == 0 { Poll::Ready(()) } else { Poll::Pending }
            })));
        }
        let turns = Cell::new(0);
        let done = poll_fn(|context| {
            context.waker().wake_by_ref();
            if order.borrow().len() == 6 { Poll::Ready(7) } else { Poll::Pending }
        });
        assert_eq!(run(done, || {}, |_| turns.set(turns.get() + 1)), 7);
        assert_eq!(*order.borrow(), ["a", "b", "a", "b", "a", "b"]);
        assert!(turns.get() >= 2, "input and output had their turn");
        clear();
    }

    #[test]
    fn a_turn_may_wait_only_when_nobody_is_ready() {
        let seen = RefCell::new(Vec::new());
        let waker: RefCell<Option<Waker>> = RefCell::default();
        let mut polls = 0;
        let main = poll_fn(|context| {
            polls += 1;
            *waker.borrow_mut() = Some(context.waker().clone());
            if polls == 2 { Poll::Ready(()) } else { Poll::Pending }
        });
        run(
            main,
            || {},
            |may_wait| {
                seen.borrow_mut().push(may_wait);
                waker.borrow().as_ref().unwrap().wake_by_ref();
            },
        );
        assert_eq!(*seen.borrow(), [true]);
    }

    #[test]
    fn whoever_gets_the_number_of_a_task_that_woke_itself_last_runs_as_any_other() {
        let polls = Rc::new(Cell::new(0));
        for _ in 0..3 {
            spawn(Box::pin(poll_fn(|context| {
                context.waker().wake_by_ref();
                Poll::Ready(())
            })));
        }
        let (seen, mut turns) = (polls.clone(), 0);
        let main = poll_fn(move |context| {
            context.waker().wake_by_ref();
            turns += 1;
            if turns == 1 {
                for _ in 0..3 {
                    let (polls, mut left) = (polls.clone(), 5);
                    spawn(Box::pin(poll_fn(move |context| {
                        polls.set(polls.get() + 1);
                        left -= 1;
                        context.waker().wake_by_ref();
                        if left == 0 { Poll::Ready(()) } else { Poll::Pending }
                    })));
                }
            }
            if turns == 20 { Poll::Ready(()) } else { Poll::Pending }
        });
        run(main, || {}, |_| {});
        assert_eq!(seen.get(), 15);
        TASKS.with(|tasks| assert!(tasks.slots.borrow().is_empty() && tasks.ready.borrow().is_empty()));
    }

    #[test]
    fn a_waker_that_outlives_its_task_harms_nobody() {
        let kept: Rc<RefCell<Option<Waker>>> = Rc::default();
        let keep = kept.clone();
        spawn(Box::pin(poll_fn(move |context| {
            *keep.borrow_mut() = Some(context.waker().clone());
            Poll::Ready(())
        })));
        let polls = Rc::new(Cell::new(0));
        let (seen, woken) = (polls.clone(), kept.clone());
        let mut turns = 0;
        let main = poll_fn(move |context| {
            turns += 1;
            context.waker().wake_by_ref();
            if turns == 2 {
                let polls = polls.clone();
                spawn(Box::pin(poll_fn(move |_| {
                    polls.set(polls.get() + 1);
                    Poll::Pending
                })));
            }
            if turns == 4 {
                woken.borrow().as_ref().unwrap().wake_by_ref();
            }
            if turns == 6 { Poll::Ready(()) } else { Poll::Pending }
        });
        run(main, || {}, |_| {});
        assert!((1..=2).contains(&seen.get()));
        kept.take();
        clear();
    }
}
