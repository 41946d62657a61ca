//! A signed transaction that some Endpoint may have taken: whom to ask about it, and for how long.

use super::snapshot::EndpointIx;
use super::units::{Nanos, SECOND};

/// All look-ups of one Call together take no longer.
pub const LOOK_UPS_NS: Nanos = 2 * SECOND;

/// The doubt about one Call's transaction. Without any it costs a Call nothing but its place.
#[derive(Debug, Clone, Copy, Default)]
pub struct Doubt {
    /// The last Endpoint that may have taken it.
    arose_at: Option<EndpointIx>,
    /// The transaction's hash is known, so that the chain can be asked.
    named: bool,
    /// Whom to ask next, and whom then.
    to_ask: [Option<EndpointIx>; 2],
    /// When asking ends, from the first question on.
    until_ns: Option<Nanos>,
}

impl Doubt {
    /// An Endpoint may have taken it.
    pub fn arose(&mut self, at: EndpointIx) {
        self.arose_at = Some(at);
    }

    /// Whether there is any.
    pub fn exists(&self) -> bool {
        self.arose_at.is_some()
    }

    /// The transaction has a name.
    pub fn named(&mut self) {
        self.named = true;
    }

    /// Whether there is doubt, and a name to ask by.
    pub fn can_be_settled(&self) -> bool {
        self.exists() && self.named
    }

    /// Asks the Endpoint that spoke, and then where the doubt arose: it may be the only one that has it yet.
    pub fn ask_who_spoke(&mut self, endpoint: EndpointIx) {
        self.to_ask = [Some(endpoint), self.arose_at.filter(|arose_at| *arose_at != endpoint)];
    }

    /// Asks where the doubt arose, and one other: the first of `others` that is not the same.
    pub fn ask_where_it_arose(&mut self, mut others: impl Iterator<Item = EndpointIx>) {
        self.to_ask = [self.arose_at, others.find(|other| Some(*other) != self.arose_at)];
    }

    /// The next Endpoint to ask, and until when. With another one behind it, it gets half of what is left,
    /// so that a black hole can't use up the other's time.
    pub fn next(&mut self, now_ns: Nanos) -> Option<(EndpointIx, Nanos)> {
        let until_ns = *self.until_ns.get_or_insert(now_ns.saturating_add(LOOK_UPS_NS));
        let [first, second] = std::mem::take(&mut self.to_ask);
        let (endpoint, rest) = match (first, second) {
            (Some(first), second) => (first, second),
            (None, second) => (second?, None),
        };
        self.to_ask = [rest, None];
        let left_ns = until_ns.saturating_sub(now_ns);
        let share_ns = if rest.is_some() { left_ns / 2 } else { left_ns };
        (left_ns > 0).then_some((endpoint, now_ns + share_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: EndpointIx = EndpointIx(0);
    const B: EndpointIx = EndpointIx(1);

    #[test]
    fn where_it_arose_and_one_other_are_asked_within_two_seconds() {
        let mut doubt = Doubt::default();
        assert!(!doubt.exists() && !doubt.can_be_settled());
        doubt.arose(A);
        assert!(doubt.exists() && !doubt.can_be_settled());
        doubt.named();
        doubt.ask_where_it_arose([A, B].into_iter());
        assert_eq!(doubt.next(SECOND), Some((A, 2 * SECOND)));
        assert_eq!(doubt.next(2 * SECOND), Some((B, 3 * SECOND)), "what the first left over, and no more");
        assert_eq!(doubt.next(2 * SECOND), None);
    }

    #[test]
    fn the_last_that_may_have_taken_it_is_asked_first() {
        let mut doubt = Doubt::default();
        doubt.arose(A);
        doubt.arose(B);
        doubt.ask_where_it_arose([A, B].into_iter());
        assert_eq!(doubt.next(0), Some((B, SECOND)));
        assert_eq!(doubt.next(0), Some((A, 2 * SECOND)));
    }

    #[test]
    fn nobody_is_asked_when_the_time_is_over() {
        let mut doubt = Doubt::default();
        doubt.arose(A);
        doubt.ask_where_it_arose([B].into_iter());
        assert!(doubt.next(0).is_some());
        assert_eq!(doubt.next(2 * SECOND), None);
    }

    #[test]
    fn who_spoke_is_asked_first_and_nobody_twice() {
        let mut doubt = Doubt::default();
        doubt.arose(A);
        doubt.ask_who_spoke(B);
        assert_eq!([doubt.next(0), doubt.next(0)], [Some((B, SECOND)), Some((A, 2 * SECOND))]);
        doubt.ask_who_spoke(A);
        assert_eq!([doubt.next(0), doubt.next(0)], [Some((A, 2 * SECOND)), None]);
    }

    #[test]
    fn a_lone_endpoint_is_asked_once() {
        let mut doubt = Doubt::default();
        doubt.arose(A);
        doubt.ask_where_it_arose([A].into_iter());
        assert_eq!(doubt.next(0), Some((A, 2 * SECOND)));
        assert_eq!(doubt.next(SECOND), None);
    }
}
