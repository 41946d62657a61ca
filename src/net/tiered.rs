//! What a tiered Route adds to a Call: what it needs, whether the answer lacks something or contradicts the chain,
//! and who served.

use crate::logic::block::BlockRef;
use crate::logic::facts::{Reads, Shows};
use crate::logic::failover::{CallMachine, Event, Finish};
use crate::logic::lacking;
use crate::logic::methods::Method;
use crate::logic::routing::Plan;
use crate::logic::snapshot::{EndpointIx, Gateway, Network, Strategy};
use crate::logic::tiers::{Lack, Requirement};
use crate::logic::units::{MS, Nanos};
use crate::logic::verdict::Verdict;
use crate::net::exchange::{Ask, Context};
use crate::net::ring;
use crate::shared::counters::RouteCells;
use crate::shared::tip_board::NetworkTips;
use crate::wire::answer_blocks::{blocks, is_empty};
use crate::wire::block_args::asked;
use crate::wire::jsonrpc::Checked;

/// How often whoever waits for a poll looks for its end.
const LOOK_NS: Nanos = 2 * MS;

/// A Call on a tiered Route.
pub struct Tiered<'a> {
    need: Requirement,
    row: Option<&'a Method>,
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
    pub fn new(context: &Context<'a>, gateway: &'a Gateway, plan: Plan, ask: Ask<'_>) -> Option<Tiered<'a>> {
        let route = &gateway.routes[usize::from(plan.route.0)];
        let Ask::JsonRpc(call) = ask else { return None };
        if route.strategy != Strategy::Tiered {
            return None;
        }
        let live = &context.current.live;
        let row = gateway.table(&live.snapshot.methods).get(plan.method);
        let at = route.targets.first().map_or(0, |target| live.tips.network_ix(target.endpoint));
        let chain = live.tips.network(at);
        let finality_depth = live.snapshot.networks.get(at).map_or(Network::FINALITY_DEPTH, |one| one.finality_depth);
        let reads = row.map_or(Reads::Nothing, |row| row.reads);
        let past = asked(reads, call.params);
        let best = chain.and_then(NetworkTips::best);
        let need = Requirement::of(reads, row.map(|row| row.tier), past, best, finality_depth);
        let by_hash = past.is_some_and(|past| past.newest == BlockRef::Hash || past.oldest == BlockRef::Hash);
        let replayable = plan.class.ends_with_caller() && !call.is_notification();
        let shows = row.filter(|_| replayable && !by_hash).map_or(Shows::Nothing, |row| row.shows);
        let logs = matches!(reads, Reads::Logs(_));
        Some(Tiered { need, row, chain, shows, logs, replayable })
    }

    /// What the Call needs of an Endpoint.
    pub fn need(&self) -> Requirement {
        self.need
    }

    /// What stands against delivering an answer that would be final.
    pub fn objection(&self, verdict: Verdict, body: &[u8], checked: &Checked) -> Option<Event> {
        if verdict != Verdict::Final || !self.replayable {
            return None;
        }
        match checked {
            Checked::Error { code, value } => error(*code, &body[value.clone()]).map(Event::Lacks),
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

    /// Remembers that an Endpoint said that it lacks a method of the table.
    pub fn learn(&self, context: &Context<'_>, endpoint: EndpointIx, plan: Plan, event: Event, now_ns: Nanos) {
        if event == Event::Lacks(Lack::Method)
            && self.row.is_some()
            && let Some(tips) = context.current.live.tips.endpoint(endpoint)
        {
            tips.learn(plan.method, now_ns);
        }
    }
}

/// What an error object lacks.
fn error(code: i64, error: &[u8]) -> Option<Lack> {
    #[derive(serde::Deserialize)]
    struct Error<'a> {
        #[serde(borrow, default)]
        message: std::borrow::Cow<'a, str>,
    }
    let message = serde_json::from_slice::<Error<'_>>(error).map(|error| error.message).unwrap_or_default();
    lacking::judge(code, &message)
}

/// Has the Endpoint and the best one polled at once, and waits for it, but not for ever. One poll serves all who wait.
pub async fn ask_again(context: Context<'_>, endpoint: EndpointIx, until_ns: Nanos) -> Nanos {
    let tips = &context.current.live.tips;
    let best = tips.network_of(endpoint).and_then(NetworkTips::best_at).filter(|best| *best != endpoint);
    let wanted = [Some(endpoint), best].map(|at| at.and_then(|at| tips.endpoint(at)).map(|one| (one, one.want_poll())));
    loop {
        let now_ns = ring::now();
        let over = wanted.iter().flatten().all(|(tips, wanted)| tips.polled() >= *wanted);
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
