//! What the demo shows while it runs: the Gateway's own counters as one line a second, Circuits and
//! chains as they change.

use super::chain;
use super::fleet::NODES;
use crate::logic::chain::Standing;
use crate::logic::circuit::State;
use crate::logic::fault::{Outcome, Reason};
use crate::logic::snapshot::EndpointIx;
use crate::logic::units::{MS, Nanos, SECOND};
use crate::shared::counters::DurationSum;
use crate::shared::journal::Transition;
use crate::shared::snapshot_cell::Live;
use std::fmt::Write;

/// Lines after which the head of the table is shown again.
const HEAD_EVERY: usize = 20;

/// Sums over all shards at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Sums {
    /// By Endpoint.
    nodes: Vec<NodeSums>,
    /// Calls that got a node's answer.
    answered: u64,
    /// Calls that got an error of the Gateway.
    failed: u64,
    /// All Calls' durations.
    took_ns: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct NodeSums {
    ok: u64,
    failed: [u64; Reason::ALL.len()],
}

impl Sums {
    fn read(live: &Live) -> Sums {
        let node = |shards: &crate::shared::counters::PerShard<crate::shared::counters::EndpointCells>| NodeSums {
            ok: shards.iter().map(|cells| cells.ok_count()).sum(),
            failed: Reason::ALL.map(|reason| shards.iter().map(|cells| cells.failed_count(reason)).sum()),
        };
        let mut sums =
            Sums { nodes: live.counters.endpoints.iter().map(|shards| node(shards)).collect(), ..Sums::default() };
        for (at, routes) in live.counters.routes.iter().enumerate() {
            for cells in routes.iter().flat_map(|shards| shards.iter()) {
                let mut durations = DurationSum::default();
                cells.durations.sum_into(&mut durations);
                sums.took_ns = sums.took_ns.wrapping_add(durations.sum_ns);
                for method in live.method_ids(at).filter_map(|method| cells.method(method)) {
                    for outcome in Outcome::ALL {
                        let sum = match outcome {
                            Outcome::Ok | Outcome::NodeError | Outcome::Notification => &mut sums.answered,
                            _ => &mut sums.failed,
                        };
                        *sum += method.get(outcome);
                    }
                }
            }
        }
        sums
    }
}

/// Remembers what was shown, so that only what is new is shown next.
#[derive(Debug)]
pub struct Watch {
    shown: Sums,
    transitions: Vec<[u64; Transition::ALL.len()]>,
    /// By node; at the tip unless something else was said.
    standings: Vec<Standing>,
    /// Re-orgs, and the blocks that were given up in them.
    reorgs: (u64, u64),
    rows: usize,
}

impl Watch {
    /// Nothing was shown so far.
    pub fn new() -> Watch {
        let shown = Sums { nodes: vec![NodeSums::default(); NODES.len()], ..Sums::default() };
        let (transitions, standings) =
            (vec![[0; Transition::ALL.len()]; NODES.len()], vec![Standing::Fresh; NODES.len()]);
        Watch { shown, transitions, standings, reorgs: (0, 0), rows: 0 }
    }

    /// Lines for the Circuits that changed since the last look.
    pub fn circuits(&mut self, live: &Live, now_ns: Nanos) -> Vec<String> {
        let mut lines = Vec::new();
        for ((at, node), seen) in (0u16..).zip(&NODES).zip(&mut self.transitions) {
            let endpoint = EndpointIx(at);
            for transition in Transition::ALL {
                let count = live.board.transitions(endpoint, transition);
                let Some(seen) = seen.get_mut(transition as usize) else { continue };
                if std::mem::replace(seen, count) == count {
                    continue;
                }
                let wait = match live.board.state(endpoint) {
                    State::Open { until_ns } | State::HeldOpen { until_ns } => {
                        until_ns.saturating_sub(now_ns).div_ceil(SECOND).max(1)
                    }
                    _ => 0,
                };
                let limit = live.snapshot.endpoints.get(usize::from(at)).map_or(0, |e| e.circuit.consecutive_failures);
                lines.extend(change(transition, limit, wait).map(|words| format!("{}: {words}", node.id)));
            }
        }
        lines
    }

    /// Lines for the nodes that fell behind, went astray or came back since the last look, and for re-orgs.
    pub fn chains(&mut self, live: &Live, now_ns: Nanos) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(chain) = live.tips.network_of(EndpointIx(0)) {
            let sums = (chain.reorgs.get(), chain.depth_sum.get());
            let (count, blocks) = (sums.0.saturating_sub(self.reorgs.0), sums.1.saturating_sub(self.reorgs.1));
            if count > 0 {
                let times = if count > 1 { format!("{count} re-orgs") } else { "re-org".into() };
                lines.push(format!("{times}: a node gave up {blocks} blocks for others"));
                self.reorgs = sums;
            }
        }
        for ((at, node), shown) in (0u16..).zip(&NODES).zip(&mut self.standings) {
            let Some(tips) = live.tips.endpoint(EndpointIx(at)) else { continue };
            let told = tips.told(now_ns);
            if std::mem::replace(shown, told.standing) != told.standing {
                lines.push(format!("{}: {}", node.id, stands(told.standing, tips.lag())));
            }
        }
        lines
    }

    /// The line of the last second, with the head of the table where it is due; empty if nothing happened.
    pub fn row(&mut self, live: &Live, now_ns: Nanos, second: u64, now_s: u64) -> Vec<String> {
        let now = Sums::read(live);
        let old = std::mem::replace(&mut self.shown, now.clone());
        if old == now {
            return Vec::new();
        }
        let standing = |at| live.tips.endpoint(at).map_or(Standing::Fresh, |tips| tips.told(now_ns).standing);
        let state = |at| (live.board.state(at), standing(at));
        let states: Vec<_> = (0..).map(EndpointIx).map(state).take(NODES.len()).collect();
        let mut lines = Vec::new();
        if self.rows.is_multiple_of(HEAD_EVERY) {
            lines.extend(head());
        }
        self.rows += 1;
        lines.push(row(&old, &now, &states, second, chain::head(now_s)));
        lines
    }

    /// What it came to.
    pub fn total(&self, live: &Live) -> String {
        let sums = Sums::read(live);
        let mut out = format!("{} Calls answered, {} failed. Attempts:", sums.answered, sums.failed);
        for (node, sums) in NODES.iter().zip(&sums.nodes) {
            let _ = write!(out, " {} {};", node.id, tries(sums.ok, sums.failed.iter().sum()));
        }
        out.pop();
        out.push('.');
        out
    }
}

/// The words for a Circuit's change; `None` = not worth a line.
fn change(transition: Transition, limit: u32, wait_s: u64) -> Option<String> {
    Some(match transition {
        Transition::Tripped => format!("{limit} failures in a row, its Circuit opens: no Calls for {wait_s} s"),
        Transition::ProbeFailed => format!("the probe failed, its Circuit stays open: no Calls for {wait_s} s"),
        Transition::ProbeSucceeded => "the probe was answered, its Circuit closes: back in service".into(),
        Transition::TrippedByRatio => format!("too many failures, its Circuit opens: no Calls for {wait_s} s"),
        Transition::HeldOpen => format!("its Circuit is held open: no Calls for {wait_s} s"),
        Transition::HeldClosed => "its Circuit is held closed".into(),
        Transition::Probing | Transition::ProbeReturned | Transition::Released => return None,
    })
}

/// The words for how a node's chain stands, and what follows from it on tiered Routes.
fn stands(standing: Standing, lag: u64) -> String {
    match standing {
        Standing::Fresh => "at the tip again".into(),
        Standing::Lagging => format!("lags, {lag} blocks behind: tiers ask the others first"),
        Standing::Fork => "on a fork, its blocks contradict the others': tiers leave it out".into(),
        Standing::Unknown => "its tip is unknown, as polls bring no block: tiers ask the others first".into(),
    }
}

fn head() -> [String; 2] {
    let mut names = format!("{:>6}{:>10}{:>7}{:>8}{:>10}  ", "time", "block", "Calls", "failed", "mean");
    for node in &NODES {
        let _ = write!(names, "{:<15}", node.id);
    }
    let rule = "-".repeat(names.len());
    [names.trim_end().to_owned(), rule]
}

fn row(old: &Sums, now: &Sums, states: &[(State, Standing)], second: u64, block: u64) -> String {
    let (answered, failed) = (now.answered - old.answered, now.failed - old.failed);
    let mean_ns = now.took_ns.wrapping_sub(old.took_ns).checked_div(answered + failed);
    let mean = mean_ns.map_or("-".into(), |ns| format!("{}.{} ms", ns / MS, ns % MS / (MS / 10)));
    let time = format!("{second} s");
    let mut out = format!("{time:>6}{block:>10}{answered:>7}{failed:>8}{mean:>10}  ");
    let mut reasons = String::new();
    let fresh = NodeSums::default();
    for (((at, node), sums), state) in NODES.iter().enumerate().zip(&now.nodes).zip(states) {
        let before = old.nodes.get(at).unwrap_or(&fresh);
        let failures: Vec<u64> = sums.failed.iter().zip(&before.failed).map(|(now, old)| now - old).collect();
        let _ = write!(out, "{:<15}", cell(sums.ok - before.ok, failures.iter().sum(), *state));
        let words: Vec<&str> =
            Reason::ALL.iter().zip(&failures).filter(|(_, n)| **n > 0).map(|(reason, _)| reason.word()).collect();
        if !words.is_empty() {
            let _ = write!(reasons, "  {}: {}", node.id, words.join(", "));
        }
    }
    out.truncate(out.trim_end().len());
    out + &reasons
}

/// What one node did in a second, or why it did nothing.
fn cell(ok: u64, failed: u64, (state, standing): (State, Standing)) -> String {
    match (ok, failed, state) {
        (0, 0, State::Closed | State::HeldClosed { .. }) => match standing {
            Standing::Fresh => "-".into(),
            Standing::Lagging => "lags".into(),
            Standing::Fork => "on a fork".into(),
            Standing::Unknown => "tip unknown".into(),
        },
        (0, 0, _) => "Circuit open".into(),
        _ => tries(ok, failed),
    }
}

fn tries(ok: u64, failed: u64) -> String {
    match (ok, failed) {
        (ok, 0) => format!("{ok}"),
        (0, failed) => format!("{failed} failed"),
        (ok, failed) => format!("{ok}, {failed} failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::setting;
    use super::*;
    use crate::logic::facts::Client;
    use crate::logic::methods::MethodId;
    use crate::logic::verdict::CircuitNote;
    use crate::shared::tip_board::Told;

    /// All nodes are at block 100.
    fn live() -> Live {
        let live = Live::new(setting::snapshot(&setting::example()).unwrap(), vec![], 2, None);
        (0..3).for_each(|at| tell(&live, at, Standing::Fresh, 0));
        live
    }

    fn tell(live: &Live, at: u16, standing: Standing, lag: u64) {
        let told = Told { standing, tip: 100 - lag, client: Client::Geth, identified: true, mismatched: false };
        live.tips.endpoint(EndpointIx(at)).unwrap().tell(told, lag, 10 * SECOND);
    }

    #[test]
    fn a_row_says_what_is_new_and_nothing_is_no_row() {
        let (live, mut watch) = (live(), Watch::new());
        assert!(watch.row(&live, SECOND, 1, 0).is_empty());
        live.counters.endpoints[0][1].failed(Reason::Timeout, SECOND);
        live.counters.endpoints[1][1].answered(2 * MS);
        live.counters.routes[0][0][1].called(MethodId(3), Outcome::Ok, SECOND + 2 * MS);
        let lines = watch.row(&live, SECOND, 2, 0);
        assert!(lines[0].contains("geth-1") && lines[0].contains("erigon-1"), "the head comes first");
        let words: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(words, ["2", "s", "0", "1", "0", "1002.0", "ms", "1", "failed", "1", "-", "geth-1:", "timeout"]);
        assert!(watch.row(&live, SECOND, 3, 0).is_empty());
        live.counters.routes[0][1][0].called(MethodId(3), Outcome::Exhausted, 3 * MS);
        let lines = watch.row(&live, SECOND, 4, 0);
        assert_eq!(lines.len(), 1, "no second head so soon");
        let words: Vec<&str> = lines[0].split_whitespace().collect();
        assert_eq!(words, ["4", "s", "0", "0", "1", "3.0", "ms", "-", "-", "-"]);
        assert_eq!(watch.total(&live), "1 Calls answered, 1 failed. Attempts: geth-1 1 failed; reth-1 1; erigon-1 0.");
    }

    #[test]
    fn a_circuit_is_told_once_per_change() {
        let (live, mut watch) = (live(), Watch::new());
        let note = |note, permit, now_ns| live.board.note(EndpointIx(1), 0, note, permit, now_ns, 0);
        (0..3).for_each(|_| note(CircuitNote::Failure, None, SECOND));
        assert_eq!(watch.circuits(&live, SECOND), ["reth-1: 3 failures in a row, its Circuit opens: no Calls for 3 s"]);
        assert!(watch.circuits(&live, SECOND).is_empty());
        let permit = live.board.begin(EndpointIx(1), true, 5 * SECOND, 6 * SECOND).unwrap();
        assert!(watch.circuits(&live, 5 * SECOND).is_empty());
        note(CircuitNote::Success, permit, 5 * SECOND);
        assert_eq!(
            watch.circuits(&live, 5 * SECOND),
            ["reth-1: the probe was answered, its Circuit closes: back in service"]
        );
    }

    #[test]
    fn a_chain_is_told_once_per_change() {
        let (live, mut watch) = (live(), Watch::new());
        assert!(watch.chains(&live, SECOND).is_empty(), "all is well");
        tell(&live, 0, Standing::Lagging, 2);
        tell(&live, 1, Standing::Fork, 0);
        let lines = watch.chains(&live, SECOND);
        assert!(lines[0].starts_with("geth-1: lags, 2 blocks behind") && lines[1].starts_with("reth-1: on a fork"));
        assert!(watch.chains(&live, SECOND).is_empty());
        live.counters.endpoints[2][0].answered(MS);
        assert!(watch.row(&live, SECOND, 1, 0)[2].ends_with("lags           on a fork      1"));
        tell(&live, 0, Standing::Fresh, 0);
        assert_eq!(watch.chains(&live, SECOND), ["geth-1: at the tip again"]);
        let lines = watch.chains(&live, 11 * SECOND);
        assert_eq!(lines.len(), 2, "no polls any more, and who was on a fork is on it still: {lines:?}");
        assert!(lines.iter().all(|line| line.contains("tip is unknown")));
    }

    #[test]
    fn re_orgs_are_told_with_their_depth() {
        let (live, mut watch) = (live(), Watch::new());
        let chain = live.tips.network_of(EndpointIx(0)).unwrap();
        chain.reorganised(2);
        assert_eq!(watch.chains(&live, SECOND), ["re-org: a node gave up 2 blocks for others"]);
        assert!(watch.chains(&live, SECOND).is_empty());
        chain.reorganised(1);
        chain.reorganised(3);
        assert_eq!(watch.chains(&live, SECOND), ["2 re-orgs: a node gave up 4 blocks for others"]);
    }
}
