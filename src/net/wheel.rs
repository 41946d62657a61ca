//! A timer wheel: things that are to be visited at some tick. What is moved is put in again; its old entry is dropped
//! when its slot comes.

use crate::logic::units::{MS, Nanos};
use std::cell::{Cell, RefCell};

/// How often slots come due: a visit is at most so much late, and never early.
pub const TICK_NS: Nanos = 10 * MS;
/// Slots of one turn. Whoever is to be visited later than one turn from now is put in on the way.
pub const SLOTS: usize = 256;
/// No visit is due.
pub const NEVER: Nanos = u64::MAX;

/// What is to be visited, by tick.
pub struct Wheel<T> {
    slots: Vec<RefCell<Vec<T>>>,
    /// The last tick that was visited.
    done: Cell<u64>,
}

impl<T> Default for Wheel<T> {
    fn default() -> Wheel<T> {
        Wheel { slots: (0..SLOTS).map(|_| RefCell::default()).collect(), done: Cell::new(0) }
    }
}

impl<T> Wheel<T> {
    /// The tick's time at or after this one that an entry put in now will come due at.
    pub fn due_ns(&self, at_ns: Nanos) -> Nanos {
        // A slot that is over would be visited one turn later, and not be taken for this one: the deadline, and
        // all later ones of its socket, would never fire.
        round_up(at_ns).max((self.done.get() + 1) * TICK_NS)
    }

    /// Puts an entry in, to come due at a time that [`Wheel::due_ns`] gave.
    pub fn put(&self, entry: T, due_ns: Nanos) {
        self.slots[slot(due_ns / TICK_NS)].borrow_mut().push(entry);
    }

    /// Visits the entries of a tick whose time, as `visit_ns` knows it, has come. `each` may put entries in.
    pub fn visit(&self, tick: u64, visit_ns: impl Fn(&T) -> Nanos, mut each: impl FnMut(T)) {
        self.done.set(tick);
        let here = &self.slots[slot(tick)];
        let mut entries = here.take();
        for entry in entries.drain(..) {
            let due_ns = visit_ns(&entry);
            if due_ns <= tick * TICK_NS {
                each(entry);
            } else if due_ns != NEVER && slot(due_ns / TICK_NS) == slot(tick) {
                // Its turn of the wheel has not come yet (the tick lags behind after a standstill): dropped here, it
                // would never be visited. Any other was moved to another slot, where its entry counts.
                here.borrow_mut().push(entry);
            }
        }
        // Give the allocation back to its slot, unless something was put there meanwhile.
        let mut here = here.borrow_mut();
        if here.is_empty() {
            *here = entries;
        }
    }
}

fn slot(tick: u64) -> usize {
    tick as usize % SLOTS
}

/// The first tick's time that is not before this one.
pub fn round_up(ns: Nanos) -> Nanos {
    ns.div_ceil(TICK_NS) * TICK_NS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    type Timer = Rc<Cell<Nanos>>;

    fn put(wheel: &Wheel<Timer>, timer: &Timer, at_ns: Nanos) {
        timer.set(wheel.due_ns(at_ns));
        wheel.put(timer.clone(), timer.get());
    }

    fn visited(wheel: &Wheel<Timer>, tick: u64) -> usize {
        let mut seen = 0;
        wheel.visit(
            tick,
            |timer| timer.get(),
            |timer| {
                timer.set(NEVER);
                seen += 1;
            },
        );
        seen
    }

    #[test]
    fn each_comes_due_once_never_early_and_less_than_a_tick_late() {
        let wheel = Wheel::default();
        wheel.visit(1_000, |_: &Timer| NEVER, |_| {});
        let base = 1_000 * TICK_NS;
        for after in [0, 1, TICK_NS, TICK_NS + 1, 500 * MS] {
            let timer = Timer::default();
            put(&wheel, &timer, base + after);
            let due = (1_001..1_400).find(|tick| visited(&wheel, *tick) == 1).map(|tick| tick * TICK_NS);
            assert_eq!(due, Some((base + after.max(1)).div_ceil(TICK_NS) * TICK_NS));
            wheel.done.set(1_000);
        }
    }

    #[test]
    fn what_was_moved_is_visited_at_its_last_time_only() {
        let wheel = Wheel::default();
        let timer = Timer::default();
        put(&wheel, &timer, 5 * TICK_NS);
        put(&wheel, &timer, 9 * TICK_NS);
        let seen: Vec<u64> = (1..300).filter(|tick| visited(&wheel, *tick) > 0).collect();
        assert_eq!(seen, [9]);
    }

    #[test]
    fn an_entry_of_the_next_turn_stays_in_its_slot() {
        let wheel = Wheel::default();
        let timer = Timer::default();
        let turn = SLOTS as u64;
        put(&wheel, &timer, (turn + 3) * TICK_NS);
        let seen: Vec<u64> = (1..2 * turn).filter(|tick| visited(&wheel, *tick) > 0).collect();
        assert_eq!(seen, [turn + 3]);
    }
}
