//! The part of `GET /metrics` about tiered Routes: tips, re-orgs, which tier served what, and why not the cheapest.

use crate::logic::chain::Standing;
use crate::logic::snapshot::Tier;
use crate::logic::tiers::Cause;
use crate::logic::units::Nanos;
use crate::ops::metrics::{family, for_each_route, ids, label};
use crate::shared::snapshot_cell::Live;
use crate::shared::tip_board::{DEPTHS, EndpointTips, NetworkTips};
use std::fmt::Write;

/// The labels of a standing: each Endpoint is in one of these.
const STANDINGS: [(Standing, &str); 4] = [
    (Standing::Fresh, "fresh"),
    (Standing::Lagging, "lagging"),
    (Standing::Fork, "fork"),
    (Standing::Unknown, "unknown"),
];

/// Writes it, if anything is tracked.
pub fn encode(out: &mut String, live: &Live, now_ns: Nanos) {
    if !live.tips.any_tracked() {
        return;
    }
    endpoints(out, live, now_ns);
    networks(out, live);
    decisions(out, live);
    fallbacks(out, live);
}

fn endpoints(out: &mut String, live: &Live, now_ns: Nanos) {
    let tracked = || ids(live).filter_map(|(id, at)| live.tips.endpoint(at).map(|tips| (id, tips)));
    let name = "ringway_endpoint_tip";
    family(out, name, "gauge", "Newest block of a tracked Endpoint; absent while it is unknown.");
    for (id, tips) in tracked().filter(|(_, tips)| tips.told(now_ns).standing != Standing::Unknown) {
        let _ = writeln!(out, "{name}{{endpoint=\"{id}\"}} {}", tips.told(now_ns).tip);
    }
    let name = "ringway_endpoint_lag_blocks";
    family(out, name, "gauge", "Blocks behind the best tip when the Endpoint was last polled.");
    for (id, tips) in tracked().filter(|(_, tips)| tips.told(now_ns).standing != Standing::Unknown) {
        let _ = writeln!(out, "{name}{{endpoint=\"{id}\"}} {}", tips.lag());
    }
    let name = "ringway_endpoint_standing";
    family(out, name, "gauge", "1 for how the chain of a tracked Endpoint stands, 0 for the other ways.");
    for (id, tips) in tracked() {
        let now = tips.told(now_ns).standing;
        for (standing, word) in STANDINGS {
            let _ = writeln!(out, "{name}{{endpoint=\"{id}\",standing=\"{word}\"}} {}", u8::from(standing == now));
        }
    }
    let name = "ringway_endpoint_mismatched";
    family(out, name, "gauge", "1 while a tracked Endpoint serves another chain than its configuration says.");
    for (id, tips) in tracked() {
        let _ = writeln!(out, "{name}{{endpoint=\"{id}\"}} {}", u8::from(tips.told(now_ns).mismatched));
    }
    let name = "ringway_endpoint_client_info";
    family(out, name, "gauge", "Always 1; the label says which client's methods the Endpoint is known for.");
    for (id, tips) in tracked() {
        let client = tips.told(now_ns).client.word();
        let _ = writeln!(out, "{name}{{endpoint=\"{id}\",client=\"{client}\"}} 1");
    }
    let name = "ringway_answer_objections_total";
    let help = "Answers of an Endpoint that were not delivered at once: fork = they contradict the chain, the others lack something.";
    family(out, name, "counter", help);
    for (id, at) in ids(live).filter(|(_, at)| live.tips.endpoint(*at).is_some()) {
        for cause in [Cause::Fork, Cause::MissingState, Cause::Capability] {
            let shards = live.counters.endpoints[usize::from(at.0)].iter();
            let count: u64 = shards.map(|cells| cells.objections(cause)).sum();
            let _ = writeln!(out, "{name}{{endpoint=\"{id}\",reason=\"{}\"}} {count}", cause.word());
        }
    }
    let name = "ringway_tracker_polls_total";
    family(out, name, "counter", "Polls of tracked Endpoints: ok = they brought a block.");
    let counts = |tips: &EndpointTips| [("ok", tips.polls_ok.get()), ("failed", tips.polls_failed.get())];
    for (id, tips) in tracked() {
        for (outcome, count) in counts(tips) {
            let _ = writeln!(out, "{name}{{endpoint=\"{id}\",outcome=\"{outcome}\"}} {count}");
        }
    }
}

fn networks(out: &mut String, live: &Live) {
    let tracked =
        |at: usize| ids(live).any(|(_, one)| live.tips.endpoint(one).is_some() && live.tips.network_ix(one) == at);
    let all: Vec<(String, &NetworkTips)> = (live.snapshot.networks.iter().enumerate())
        .filter(|(at, _)| tracked(*at))
        .filter_map(|(at, one)| {
            let labels = format!("chain=\"{}\",network=\"{}\"", label(&one.chain), label(&one.network));
            live.tips.network(at).map(|tips| (labels, tips))
        })
        .collect();
    let name = "ringway_network_tip";
    family(out, name, "gauge", "Newest block that is believed; absent while none is known.");
    for (labels, tips) in &all {
        if let Some(best) = tips.best() {
            let _ = writeln!(out, "{name}{{{labels}}} {best}");
        }
    }
    family(out, "ringway_reorgs_total", "counter", "Re-orgs that tracked Endpoints showed, each counted once.");
    for (labels, tips) in &all {
        let _ = writeln!(out, "ringway_reorgs_total{{{labels}}} {}", tips.reorgs.get());
    }
    let name = "ringway_reorg_depth";
    family(out, name, "histogram", "Blocks that were given up in a re-org.");
    for (labels, tips) in &all {
        let mut count = 0;
        for (at, cell) in tips.depths.iter().enumerate() {
            count += cell.get();
            let bound = DEPTHS.get(at).map_or("+Inf".to_owned(), u64::to_string);
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}");
        }
        let _ = writeln!(out, "{name}_sum{{{labels}}} {}\n{name}_count{{{labels}}} {count}", tips.depth_sum.get());
    }
}

fn decisions(out: &mut String, live: &Live) {
    let name = "ringway_routing_decisions_total";
    family(out, name, "counter", "Calls on tiered Routes by the tier that served them.");
    for_each_route(live, |gateway, route, at, row| {
        let table = live.snapshot.gateways[at].table(&live.snapshot.methods);
        for method in live.method_ids(at) {
            for tier in Tier::ALL {
                let shards = live.counters.routes[at][row].iter().filter_map(|shard| shard.method(method));
                let count: u64 = shards.map(|cells| cells.served_by(tier)).sum();
                if count > 0 {
                    let (method, tier) = (label(table.label(method)), tier.word());
                    let _ = writeln!(
                        out,
                        "{name}{{gateway=\"{gateway}\",route=\"{route}\",method=\"{method}\",tier=\"{tier}\"}} {count}"
                    );
                }
            }
        }
    });
}

fn fallbacks(out: &mut String, live: &Live) {
    let name = "ringway_tier_fallbacks_total";
    let help = "Calls that were not served by the cheapest tier that meets their needs, and why.";
    family(out, name, "counter", help);
    for_each_route(live, |gateway, route, at, row| {
        let shards = || live.counters.routes[at][row].iter().filter_map(|shard| shard.tiers());
        for (from, to) in Tier::ALL.into_iter().flat_map(|from| Tier::ALL.map(|to| (from, to))) {
            for cause in Cause::ALL {
                let count: u64 = shards().map(|cells| cells.fallbacks(from, to, cause)).sum();
                if count > 0 {
                    let (from, to, reason) = (from.word(), to.word(), cause.word());
                    let _ = writeln!(
                        out,
                        "{name}{{gateway=\"{gateway}\",route=\"{route}\",from=\"{from}\",to=\"{to}\",reason=\"{reason}\"}} {count}"
                    );
                }
            }
        }
    });
    let name = "ringway_fork_unresolved_total";
    family(out, name, "counter", "Answers that contradict the chain, delivered because no candidate had a better one.");
    for_each_route(live, |gateway, route, at, row| {
        let shards = live.counters.routes[at][row].iter().filter_map(|shard| shard.tiers());
        let is_tiered = live.snapshot.gateways[at]
            .routes
            .get(row)
            .is_some_and(|route| route.strategy == crate::logic::snapshot::Strategy::Tiered);
        if is_tiered {
            let count: u64 = shards.map(|cells| cells.unresolved.get()).sum();
            let _ = writeln!(out, "{name}{{gateway=\"{gateway}\",route=\"{route}\"}} {count}");
        }
    });
}
