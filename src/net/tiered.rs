//! What a tiered Route adds to a Call: what it needs, whether the answer lacks something or contradicts the chain,
//! and who served.

use crate::logic::block::BlockRef;
use crate::logic::call::Class;
use crate::logic::chain::Standing;
use crate::logic::facts::{Reads, Shows};
use crate::logic::failover::{CallMachine, Event, Finish};
use crate::logic::lacking;
use crate::logic::methods::MethodId;
use crate::logic::routing::Plan;
use crate::logic::snapshot::{EndpointIx, Route, Strategy};
use crate::logic::tiers::{Lack, Requirement};
use crate::logic::units::{MS, Nanos};
use crate::logic::verdict::Verdict;
use crate::net::exchange::{Ask, Context};
use crate::net::ring;
use crate::shared::counters::RouteCells;
use crate::shared::outlook::Outlook;
use crate::shared::tip_board::{NetworkTips, TipBoard, Wish};
use crate::wire::answer_blocks::{blocks, is_empty};
use crate::wire::block_args::asked;
use crate::wire::jsonrpc::Checked;
use std::borrow::Cow;

/// How often whoever waits for a poll looks for its end.
const LOOK_NS: Nanos = 2 * MS;

/// A Call on a tiered Route.
pub struct Tiered<'a> {
    need: Requirement,
    /// Its row in the table, if it has one.
    method: Option<MethodId>,
    name: &'a str,
    tips: &'a TipBoard,
    chain: Option<&'a NetworkTips>,
    /// Its answers are compared with the chain: it names no block or transaction by hash, and the result shows one.
    shows: Shows,
    /// It asks for logs.
    logs: bool,
    /// A stateless query: another Endpoint may be asked about what an answer lacks.
    replayable: bool,
}

impl<'a> Tiered<'a> {
    /// What the Call needs; `None` where its Route is not tiered.
    pub fn new(outlook: &Outlook<'a>, route: &Route, class: Class, ask: Ask<'a>) -> Option<Tiered<'a>> {
        let Ask::JsonRpc(call) = ask else { return None };
        if route.strategy != Strategy::Tiered {
            return None;
        }
        let (row, chain) = (outlook.row(), outlook.chain(route));
        let past = asked(outlook.reads(), call.params);
        let need = outlook.requirement(route, past);
        // Who names a block by hash wants that one, wherever it is; a pending one is on no chain yet.
        let exempt = |block| matches!(block, BlockRef::Hash | BlockRef::Pending);
        let named = past.is_some_and(|past| exempt(past.newest) || exempt(past.oldest));
        let replayable = class.ends_with_caller() && !call.is_notification();
        let shows = row.filter(|_| replayable && !named).map_or(Shows::Nothing, |row| row.shows);
        let logs = matches!(outlook.reads(), Reads::Logs(_));
        let (method, name) = (outlook.listed(), &*call.method);
        Some(Tiered { need, method, name, tips: outlook.tips(), chain, shows, logs, replayable })
    }

    /// What the Call needs of an Endpoint.
    pub fn need(&self) -> Requirement {
        self.need
    }

    /// What stands against delivering an answer that would be final.
    pub fn objection(&self, at: EndpointIx, verdict: Verdict, body: &[u8], checked: &Checked) -> Option<Event> {
        if verdict != Verdict::Final || !self.replayable {
            return None;
        }
        match checked {
            Checked::Error { code, value } => {
                let message = message(&body[value.clone()]);
                let lack = lacking::judge(*code, &message, self.need.by_hash, self.name)?;
                // Remembered for a method of the table: of all others together nothing can be said.
                if let (Lack::Method, Some(method), Some(tips)) = (lack, self.method, self.tips.endpoint(at))
                    && lacking::is_sure(*code, &message, self.name)
                {
                    tips.learn(method, ring::now());
                }
                Some(Event::Lacks(lack))
            }
            Checked::Result(value) => {
                let result = &body[value.clone()];
                if self.need.by_hash && self.finds_nothing(result) {
                    return Some(Event::Lacks(Lack::Null));
                }
                self.contradicts(result).then_some(Event::Contradicts)
            }
            Checked::NodeBusy | Checked::Bad(_) => None,
        }
    }

    /// A list without elements is what a block without transactions has; of logs it says as little as `null`.
    fn finds_nothing(&self, result: &[u8]) -> bool {
        is_empty(result) && (self.logs || result.trim_ascii() == b"null")
    }

    /// Whether a result shows a block that is not on the canonical chain.
    pub fn contradicts(&self, result: &[u8]) -> bool {
        let Some(chain) = self.chain.filter(|_| self.shows != Shows::Nothing) else { return false };
        let mut against = false;
        blocks(self.shows, result, &mut |number, hash| {
            against = chain.agrees(number, hash) == Some(false);
            !against
        });
        against
    }
}

/// What an error object says.
fn message(error: &[u8]) -> Cow<'_, str> {
    #[derive(serde::Deserialize)]
    struct Error<'a> {
        #[serde(borrow, default)]
        message: Cow<'a, str>,
    }
    serde_json::from_slice::<Error<'_>>(error).map(|error| error.message).unwrap_or_default()
}

/// Has the Endpoint and the best one polled at once, and waits for it, but not for ever. So are those that are on a fork
/// as far as is known, also by these polls: if they have re-organised since they were read, they are who can answer.
/// One poll serves all who wait.
pub async fn ask_again(context: Context<'_>, route: &Route, endpoint: EndpointIx, until_ns: Nanos) -> Nanos {
    let tips = &context.current.live.tips;
    let mut asked = 0u128;
    let mut wishes: Vec<(&Wish, u64)> = Vec::new();
    wishes.extend(tips.network_of(endpoint).map(|network| (&network.wish, network.wish.make())));
    loop {
        let now_ns = ring::now();
        for (at, target) in route.targets.iter().enumerate().filter(|(at, _)| route.eligible >> at & 1 == 1) {
            let Some(one) = tips.endpoint(target.endpoint).filter(|_| asked >> at & 1 == 0) else { continue };
            if target.endpoint == endpoint || one.told(now_ns).standing == Standing::Fork {
                asked |= 1 << at;
                wishes.push((&one.wish, one.wish.make()));
            }
        }
        let over = wishes.iter().all(|(wish, number)| wish.granted() >= *number);
        if over || now_ns >= until_ns {
            return now_ns;
        }
        ring::sleep(LOOK_NS.min(until_ns - now_ns)).await;
    }
}

/// Counts which tier served.
pub fn count(cells: &RouteCells, plan: Plan, machine: &CallMachine, finish: Finish) {
    if let Some(served) = machine.served(finish) {
        cells.served(plan.method, served);
    }
}
