//! A batch: members are routed and retried one by one, several at a time, and answered in the request's order.

use crate::logic::call::Id;
use crate::logic::fault::Fault;
use crate::net::exchange::{self, Answer, Ask, Context};
use crate::net::reply::{BatchReply, Frame, Reply};
use crate::net::ring;
use crate::wire::jsonrpc::Batch;
use futures_util::StreamExt;
use std::cell::Cell;

/// The answer to a batch.
pub async fn respond(context: Context<'_>, batch: Batch<'_>, frame: &mut Frame<'_>) -> Reply {
    let server = context.current.server();
    let context = Context { first_draw: Some(context.shard.random()), ..context };
    let members: Vec<_> = batch.iter().collect();
    let full = &Cell::new(false);
    let answers = futures_util::stream::iter(members.iter().enumerate()).map(|(at, member)| async move {
        // A member's attempts begin when its turn comes, which may be long after the batch did.
        let context = Context { started_ns: ring::now(), ..context };
        let answer = match member {
            // Its answer would be thrown away: better that nothing is executed. A notification has none.
            Ok(call) if full.get() && !call.is_notification() => {
                exchange::turned_away(context, Ask::JsonRpc(call), Fault::ResponseTooLarge)
            }
            Ok(call) => exchange::call(context, Ask::JsonRpc(call)).await,
            Err(refused) => exchange::invalid(context, Fault::InvalidRequest(refused.why)),
        };
        (at, answer)
    });
    // Not in order: a slow member must not keep those from starting that come after the ones in flight.
    let mut answers = std::pin::pin!(answers.buffer_unordered(server.batch_concurrency));
    let id = |at: usize| -> Id<'_> { members[at].as_ref().map_or_else(|refused| refused.id, |call| call.id) };
    let limit = server.max_batch_response_bytes;
    let mut replies = BatchReply::new(&context.shard.buffers, limit);
    let mut early = Early::new(members.len());
    while let Some((at, answer)) = answers.next().await {
        early.put(at, answer);
        while let Some((at, answer)) = early.next() {
            full.set(full.get() | !replies.push(id(at).bytes(), answer));
        }
        while replies.bytes().saturating_add(early.bytes) > limit {
            let Some(dropped) = early.drop_last() else { break };
            context.shard.buffers.give(dropped);
            full.set(true);
        }
    }
    frame.keep_alive &= !context.shard.draining();
    replies.finish(*frame).await
}

/// Answers that came before those of earlier members.
struct Early {
    slots: Vec<Option<Answer>>,
    /// The member whose answer is written next.
    next: usize,
    /// No later member has an answer here that could be dropped.
    last: usize,
    /// Bytes of the nodes' answers.
    bytes: usize,
}

impl Early {
    fn new(members: usize) -> Early {
        Early { slots: (0..members).map(|_| None).collect(), next: 0, last: 0, bytes: 0 }
    }

    fn put(&mut self, at: usize, answer: Answer) {
        self.bytes += answer.bytes();
        self.last = self.last.max(at);
        self.slots[at] = Some(answer);
    }

    /// The answer whose turn it is, if it is here.
    fn next(&mut self) -> Option<(usize, Answer)> {
        let (at, answer) = (self.next, self.slots.get_mut(self.next)?.take()?);
        self.next += 1;
        self.bytes -= answer.bytes();
        Some((at, answer))
    }

    /// Turns the last answer of a node into one that says that it had no room. Gives the node's buffer.
    fn drop_last(&mut self) -> Option<Vec<u8>> {
        while self.last >= self.next {
            let slot = &mut self.slots[self.last];
            if let Some(Answer::Node { .. } | Answer::Verbatim { .. }) = slot {
                let full = Answer::Fault { fault: Fault::ResponseTooLarge, attempts: 1, transaction: None };
                let dropped = slot.replace(full)?;
                self.bytes -= dropped.bytes();
                return dropped.into_buf();
            }
            self.last = self.last.checked_sub(1)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(bytes: usize) -> Answer {
        Answer::Node { buf: vec![b'1'; bytes], value: 0..bytes, is_error: false }
    }

    #[test]
    fn answers_leave_in_order_and_the_last_ones_make_room() {
        let mut early = Early::new(5);
        early.put(3, node(30));
        early.put(1, node(10));
        early.put(4, Answer::Silent);
        assert!(early.next().is_none());
        assert_eq!(early.bytes, 40);
        assert_eq!(early.drop_last().map(|buf| buf.len()), Some(30));
        assert_eq!(early.bytes, 10);
        early.put(0, node(1));
        assert!(matches!(early.next(), Some((0, Answer::Node { .. }))));
        assert!(matches!(early.next(), Some((1, Answer::Node { .. }))));
        assert!(early.next().is_none() && early.drop_last().is_none());
        early.put(2, node(2));
        assert!(matches!(early.next(), Some((2, Answer::Node { .. }))));
        assert!(matches!(early.next(), Some((3, Answer::Fault { fault: Fault::ResponseTooLarge, .. }))));
        assert!(matches!(early.next(), Some((4, Answer::Silent))));
        assert!(early.next().is_none() && early.drop_last().is_none());
        assert_eq!(early.bytes, 0);
    }
}
