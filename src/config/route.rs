//! `[[gateway.route]]`: targets, the candidate filter, and the bounds of attempts.

use super::endpoint::{Endpoints, Typed};
use super::fault::Faults;
use super::file::{TypedTarget, View};
use super::gateway::Context;
use super::server::attempts;
use crate::logic::snapshot::{Protocol, Route, Strategy, TARGETS_MAX, Target};
use crate::logic::units::{SECOND, show_duration};
use std::collections::HashMap;

/// Longest time that a Call of a default Route should be able to take.
const PATIENCE_NS: u64 = 30 * SECOND;

/// What the candidate filter compares: facts of the Gateway, `None` where they are wrong.
pub(super) struct Owner {
    pub(super) chain: Option<String>,
    pub(super) network: Option<String>,
    pub(super) protocol: Option<Protocol>,
}

/// Reads one Route.
pub(super) fn route(
    view: &View<'_>,
    is_default: bool,
    owner: &Owner,
    context: &Context<'_>,
    faults: &mut Faults<'_>,
) -> Route {
    let strategy = match view.text("strategy").as_deref() {
        Some("weighted") => Strategy::Weighted,
        _ => Strategy::Priority,
    };
    let (targets, eligible) = targets(view, strategy, owner, context.endpoints, faults);
    let bound = attempts(view);
    let max_attempts = bound.min(context.max_attempts);
    if view.typed("max_attempts") && !view.wrong("max_attempts") && bound > context.max_attempts {
        let text = format!(
            "is above the deployment's [failsafe] max_attempts, so {max_attempts} counts; write at most {max_attempts}, or raise the other"
        );
        faults.warn(view.at_of("max_attempts"), view.path_of("max_attempts"), text);
    }
    let attempt_timeout_ns = view.number("attempt_timeout");
    let longest = attempt_timeout_ns.saturating_mul(u64::from(max_attempts));
    if is_default && longest > PATIENCE_NS {
        let name = if view.typed("attempt_timeout") { "attempt_timeout" } else { "max_attempts" };
        let text = format!(
            "{max_attempts} attempts of {} can keep a caller waiting for {}; 30s in all is what callers bear: lower max_attempts or attempt_timeout",
            show_duration(attempt_timeout_ns),
            show_duration(longest)
        );
        faults.warn(view.at_of(name), view.path_of(name), text);
    }
    Route {
        id: view.name("id").unwrap_or_default().into(),
        methods: view.texts("methods").into_iter().map(|method| method.text.into()).collect(),
        strategy,
        targets,
        eligible,
        max_attempts,
        attempt_timeout_ns,
        version: view.number("version"),
    }
}

fn targets(
    view: &View<'_>,
    strategy: Strategy,
    owner: &Owner,
    endpoints: &Endpoints,
    faults: &mut Faults<'_>,
) -> (Vec<Target>, u128) {
    let (at, path) = (view.at_of("targets"), view.path_of("targets"));
    let length = view.length("targets");
    if length == Some(0) {
        faults.fault(at, path.clone(), "is empty; write at least one Endpoint, like [\"geth-1\"]");
    }
    if let Some(length) = length.filter(|length| *length > TARGETS_MAX) {
        let text = format!("holds {length} targets; {TARGETS_MAX} is the most, remove some or make a second Route");
        faults.fault(at, path.clone(), text);
        return (Vec::new(), 0);
    }
    let (mut targets, mut eligible) = (Vec::new(), 0u128);
    let (mut seen, mut places) = (HashMap::new(), HashMap::new());
    let typed = view.targets("targets");
    let all_read = length == Some(typed.len());
    for target in typed {
        let Some((ix, endpoint)) = endpoints.find(&target.endpoint) else {
            let text =
                format!("no Endpoint has the id `{}`; {}", target.endpoint, endpoints.instead_of(&target.endpoint));
            faults.missing(target.at, target.path, text);
            continue;
        };
        if let Some(first) = seen.insert(ix, target.path.clone()) {
            let text =
                format!("`{}` is {first} already; no Call goes to one Endpoint twice, remove one", target.endpoint);
            faults.fault(target.at, target.path, text);
            continue;
        }
        let weight = weight(&target, strategy, faults);
        warn_same_place(&target, endpoint, &mut places, faults);
        let mismatch = mismatch(endpoint, owner);
        if let Some(why) = &mismatch {
            let text = format!("`{}` is never used here: {why}", target.endpoint);
            faults.warn(target.at, target.path, text);
        }
        if mismatch.is_none() && (strategy == Strategy::Priority || weight > 0) {
            eligible |= 1u128 << targets.len().min(TARGETS_MAX);
        }
        targets.push(Target { endpoint: ix, weight });
    }
    if strategy == Strategy::Weighted && all_read && !targets.is_empty() && targets.iter().all(|t| t.weight == 0) {
        faults.fault(
            at,
            path,
            "every weight is 0, so no target could ever be selected; give at least one a weight from 1 to 1000",
        );
    } else if all_read && !targets.is_empty() && eligible == 0 {
        faults.warn(at, path, "no target is usable, so every Call here gets error -32050; enable one, or add one of this chain, network and protocol");
    }
    (targets, eligible)
}

fn weight(target: &TypedTarget, strategy: Strategy, faults: &mut Faults<'_>) -> u16 {
    let Some((at, weight)) = target.weight else { return 1 };
    if strategy == Strategy::Priority {
        let text = "counts only with strategy = \"weighted\"; write that, or remove the weight";
        faults.warn(at, format!("{}.weight", target.path), text);
    }
    u16::try_from(weight).unwrap_or(1)
}

fn warn_same_place(
    target: &TypedTarget,
    endpoint: &Typed,
    places: &mut HashMap<(String, u16, String), String>,
    faults: &mut Faults<'_>,
) {
    let Some(place) = &endpoint.place else { return };
    match places.get(place) {
        Some(other) => {
            let text = format!(
                "`{}` and `{other}` have one scheme, host, port and path, so a retry would meet the same node; remove one",
                target.endpoint
            );
            faults.warn(target.at, target.path.clone(), text);
        }
        None => {
            places.insert(place.clone(), target.endpoint.clone());
        }
    }
}

/// Why the candidate filter drops an Endpoint; facts that are wrong themselves are taken as equal.
fn mismatch(endpoint: &Typed, owner: &Owner) -> Option<String> {
    if !endpoint.enabled {
        return Some("it has enabled = false".to_owned());
    }
    for (what, theirs, ours) in
        [("chain", &endpoint.chain, &owner.chain), ("network", &endpoint.network, &owner.network)]
    {
        if let (Some(theirs), Some(ours)) = (theirs, ours)
            && theirs != ours
        {
            return Some(format!("its {what} is `{theirs}`, the Gateway's is `{ours}`"));
        }
    }
    match (endpoint.protocol, owner.protocol) {
        (Some(theirs), Some(ours)) if theirs != ours => Some("its protocol is not the Gateway's".to_owned()),
        _ => None,
    }
}
