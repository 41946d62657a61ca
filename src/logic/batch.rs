//! What a whole batch says, given what its members said.

use super::fault::Fault;

/// The HTTP status line and `Retry-After` of a batch: each member carries its own error, so the status is
/// 200 (204 if nobody waits for an answer), and the longest wait of its limited members stands in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchHead {
    /// Members that have an answer.
    pub answers: usize,
    /// The longest wait in whole seconds.
    pub retry_after_s: Option<u64>,
}

impl BatchHead {
    /// Counts one member's answer.
    pub fn answered(&mut self, fault: Option<Fault>) {
        self.answers += 1;
        if let Some(wait) = fault.and_then(Fault::retry_after_s) {
            self.retry_after_s = Some(self.retry_after_s.map_or(wait, |longest| longest.max(wait)));
        }
    }

    /// 200, or 204 for a batch of notifications only.
    pub fn status(&self) -> u16 {
        if self.answers == 0 { 204 } else { 200 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::units::SECOND;

    #[test]
    fn the_longest_wait_stands_in_the_head() {
        let mut head = BatchHead::default();
        assert_eq!(head.status(), 204);
        head.answered(None);
        head.answered(Some(Fault::Unavailable { retry_after_ns: 2 * SECOND }));
        head.answered(Some(Fault::Unavailable { retry_after_ns: SECOND }));
        head.answered(Some(Fault::NoTarget));
        assert_eq!((head.status(), head.answers, head.retry_after_s), (200, 4, Some(2)));
    }
}
