//! `[[gateway.route]]`: targets, the candidate filter, and the bounds of attempts.

use super::endpoint::{Endpoints, Typed};
use super::fault::Faults;
use super::file::{TypedTarget, View};
use super::gateway::Context;
use super::server::attempts;
use crate::logic::methods::Family;
use crate::logic::snapshot::{Protocol, Route, Strategy, TARGETS_MAX, Target, shares};
use crate::logic::units::{SECOND, show_duration};
use std::collections::HashMap;

/// Longest time that a Call of a default Route should be able to take.
const PATIENCE_NS: u64 = 30 * SECOND;

/// What the candidate filter compares: facts of the Gateway, `None` where they are wrong.
pub(super) struct Owner {
    pub(super) chain: Option<String>,
    pub(super) network: Option<String>,
    pub(super) protocol: Option<Protocol>,
    pub(super) family: Family,
}

/// Reads one Route.
pub(super) fn route(
    view: &View<'_>,
    is_default: bool,
    owner: &Owner,
    context: &Context<'_>,
    faults: &mut Faults<'_>,
) -> Route {
    let strategy = strategy(view, owner, faults);
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
        shares: shares(&targets, eligible),
        held: Box::default(),
        by_tier: [0; 3],
        targets,
        eligible,
        max_attempts,
        attempt_timeout_ns,
        version: view.number("version"),
    }
}

fn strategy(view: &View<'_>, owner: &Owner, faults: &mut Faults<'_>) -> Strategy {
    let family = match owner.family {
        Family::Evm => None,
        Family::Tron => Some("tron"),
        Family::Solana => Some("solana"),
    };
    match (view.text("strategy").as_deref(), family) {
        (Some("weighted"), _) => Strategy::Weighted,
        (Some("tiered"), family) => {
            if let Some(family) = family {
                let text = format!(
                    "is for EVM chains with JSON-RPC only, and this chain is of the family {family}; write \"priority\" or \"weighted\""
                );
                faults.fault(view.at_of("strategy"), view.path_of("strategy"), text);
            }
            Strategy::Tiered
        }
        _ => Strategy::Priority,
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
            if endpoints.unsure {
                continue;
            }
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
    if strategy != Strategy::Priority && all_read && !targets.is_empty() && targets.iter().all(|t| t.weight == 0) {
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
        let text = "counts only with strategy = \"weighted\" or \"tiered\"; write one of these, or remove the weight";
        faults.warn(at, format!("{}.weight", target.path), text);
    }
    u16::try_from(weight).unwrap_or(1)
}

fn warn_same_place(
    target: &TypedTarget,
    endpoint: &Typed,
    places: &mut HashMap<(bool, String, u16, String), String>,
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

#[cfg(test)]
mod tests {
    use super::super::resolve::probe::{faulty, read, sound, warned, with};
    use super::*;

    const BOTH: &str = "targets = [\"geth-1\", \"geth-2\"]";
    const HEAVY: &str = "targets = [{ endpoint = \"erigon\", weight = 3 }, { endpoint = \"geth-2\", weight = 1 }]";
    const DEFAULT: &str = "gateway[eth].route[default]";

    #[test]
    fn defaults_and_what_is_typed() {
        let snapshot = sound(&with(BOTH, &format!("{BOTH}\nversion = 7")));
        let [default, heavy] = snapshot.gateways[0].routes.as_slice() else { panic!("two Routes") };
        assert_eq!((&*default.id, default.strategy, default.max_attempts), ("default", Strategy::Priority, 3));
        assert_eq!((default.attempt_timeout_ns, default.version, heavy.version), (10 * SECOND, 7, 1));
        assert_eq!((default.eligible, heavy.eligible, heavy.strategy), (0b11, 0b11, Strategy::Weighted));
        assert_eq!(heavy.targets.iter().map(|t| (t.endpoint.0, t.weight)).collect::<Vec<_>>(), [(2, 3), (1, 1)]);
        assert_eq!(default.targets.iter().map(|t| t.weight).collect::<Vec<_>>(), [1, 1]);
    }

    #[test]
    fn a_target_must_be_a_known_endpoint_once() {
        let path = format!("{DEFAULT}.targets[1]");
        let text = with(BOTH, "targets = [\"geth-1\", «\"geth-3\"]");
        faulty(&text, &path, &["no Endpoint has the id `geth-3`", "did you mean `geth-1`?"]);
        let text = with(BOTH, "targets = [\"geth-1\", «{ endpoint = \"nethermind\" }]");
        faulty(&text, &path, &["write an [[endpoint]] with id = \"nethermind\"", "use one of: geth-1, geth-2, erigon"]);
        let text = with(BOTH, "targets = [\"geth-1\", «\"geth-1\"]");
        faulty(&text, &path, &["`geth-1` is gateway[eth].route[default].targets[0] already", "remove one"]);
        faulty(&with(BOTH, "targets = [\"geth-1\", «7]"), &path, &["list of Endpoint ids"]);
        faulty(&with(BOTH, "targets = [\"geth-1\", «{ weight = 7 }]"), &format!("{path}.endpoint"), &["is missing"]);
        faulty(&with(BOTH, "targets = «[]"), &format!("{DEFAULT}.targets"), &["at least one Endpoint"]);
        faulty(&with(BOTH, "targets = «\"geth-1\""), &format!("{DEFAULT}.targets"), &["list of Endpoint ids"]);
    }

    #[test]
    fn a_hundred_targets_are_the_most() {
        let many = |count: usize| {
            let mut text = String::new();
            for n in 0..count {
                text += &format!(
                    "[[endpoint]]\nid = \"e{n}\"\nchain = \"ethereum\"\nnetwork = \"mainnet\"\nurl = \"http://h{n}\"\n"
                );
            }
            let targets: Vec<String> = (0..count).map(|n| format!("\"e{n}\"")).collect();
            with(BOTH, &format!("targets = «[{}]", targets.join(", "))) + &text
        };
        faulty(&many(101), &format!("{DEFAULT}.targets"), &["holds 101 targets", "100 is the most"]);
        let route = &sound(&many(100).replace('«', "")).gateways[0].routes[0];
        assert_eq!((route.targets.len(), route.eligible), (100, (1u128 << 100) - 1));
    }

    #[test]
    fn weights_are_bounded_and_one_must_count() {
        let path = "gateway[eth].route[heavy].targets";
        for bad in ["1001", "-1", "\"3\""] {
            let text = with("weight = 3", &format!("weight = «{bad}"));
            faulty(&text, &format!("{path}[0].weight"), &["from 0 to 1000"]);
        }
        let text = with(HEAVY, &HEAVY.replace("= [", "= «[").replace("= 3", "= 0").replace("= 1 ", "= 0 "));
        faulty(&text, path, &["every weight is 0", "from 1 to 1000"]);
        let snapshot = sound(&with("weight = 3", "weight = 0"));
        assert_eq!(snapshot.gateways[0].routes[1].eligible, 0b10);
        let text = with(BOTH, "targets = [\"geth-1\", { endpoint = \"geth-2\", weight = «3 }]");
        warned(&text, &format!("{DEFAULT}.targets[1].weight"), &["only with strategy = \"weighted\" or \"tiered\""]);
    }

    #[test]
    fn a_tiered_route_is_for_evm_chains_and_weighs_inside_its_tiers() {
        let text = with("\"weighted\"", "\"tiered\"");
        let route = &sound(&text).gateways[0].routes[1];
        assert_eq!((route.strategy, route.eligible), (Strategy::Tiered, 0b11));
        assert_eq!(*route.shares, [3, 4]);
        assert_eq!(sound(&text.replace("weight = 3", "weight = 0")).gateways[0].routes[1].eligible, 0b10);
        assert_eq!(read(&text).faults, [], "one tier in all is a fleet with lag detection");
        let none = with("\"weighted\"", "\"tiered\"")
            .replace(HEAVY, &HEAVY.replace("= [", "= «[").replace("= 3", "= 0").replace("= 1 ", "= 0 "));
        faulty(&none, "gateway[eth].route[heavy].targets", &["every weight is 0"]);
        for (chain, family) in [("tron", "tron"), ("solana", "solana")] {
            let text = with("\"weighted\"", "«\"tiered\"").replace("\"ethereum\"", &format!("\"{chain}\""));
            let says = [&*format!("of the family {family}"), "\"priority\" or \"weighted\""];
            faulty(&text, "gateway[eth].route[heavy].strategy", &says);
        }
    }

    #[test]
    fn attempts_are_bounded_by_the_route_and_the_deployment() {
        for bad in ["0", "11", "\"3\"", "-1"] {
            let text = with(BOTH, &format!("{BOTH}\nmax_attempts = «{bad}"));
            faulty(&text, &format!("{DEFAULT}.max_attempts"), &["from 1 to 10"]);
        }
        let text =
            with(BOTH, &format!("{BOTH}\nmax_attempts = «3")).replace("shards = 2", "[failsafe]\nmax_attempts = 2");
        warned(&text, &format!("{DEFAULT}.max_attempts"), &["[failsafe] max_attempts, so 2 counts", "write at most 2"]);
        let routes = &sound(&text.replace('«', "")).gateways[0].routes;
        assert_eq!(routes.iter().map(|route| route.max_attempts).collect::<Vec<_>>(), [2, 2]);
    }

    #[test]
    fn a_default_route_that_outlasts_its_callers_is_warned_of() {
        let text = with(BOTH, &format!("{BOTH}\nattempt_timeout = «\"11s\""));
        warned(&text, &format!("{DEFAULT}.attempt_timeout"), &["3 attempts of 11s", "33s", "lower max_attempts"]);
        let text = with(BOTH, &format!("{BOTH}\nmax_attempts = «4"));
        warned(&text, &format!("{DEFAULT}.max_attempts"), &["4 attempts of 10s", "40s"]);
        assert_eq!(read(&with(HEAVY, &format!("{HEAVY}\nattempt_timeout = \"60s\""))).faults, []);
    }

    #[test]
    fn what_the_candidate_filter_drops_is_said() {
        let path = format!("{DEFAULT}.targets[0]");
        let marked = |from: &str, to: &str| with(from, to).replace(BOTH, "targets = [«\"geth-1\", \"geth-2\"]");
        let first = "id = \"geth-1\"\nchain = \"ethereum\"\nnetwork = \"mainnet\"";
        let text = marked("enabled = true", "enabled = false");
        warned(&text, &path, &["`geth-1` is never used here", "enabled = false"]);
        assert_eq!(sound(&text.replace('«', "")).gateways[0].routes[0].eligible, 0b10);
        let text = marked(first, &first.replace("ethereum", "polygon"));
        warned(&text, &path, &["its chain is `polygon`, the Gateway's is `ethereum`"]);
        let text = marked(first, &first.replace("mainnet", "sepolia"));
        warned(&text, &path, &["its network is `sepolia`, the Gateway's is `mainnet`"]);
    }

    #[test]
    fn a_route_without_a_usable_target_is_warned_of() {
        let text = with("enabled = true", "enabled = false").replace(BOTH, "targets = [\"geth-1\"]");
        let found = read(&text).faults;
        assert_eq!(found.len(), 2, "{found:#?}");
        assert!(found[0].text.contains("no target is usable") && found[0].text.contains("-32050"));
    }

    #[test]
    fn two_targets_that_are_one_node_are_warned_of() {
        let text = with("http://10.0.0.2:8545", "http://10.0.0.1:8545/?key=2")
            .replace(BOTH, "targets = [\"geth-1\", «\"geth-2\"]");
        let says = ["`geth-2` and `geth-1` have one scheme, host, port and path", "remove one"];
        warned(&text, &format!("{DEFAULT}.targets[1]"), &says);
        assert_eq!(read(&text.replace('«', "").replace("/?key=2", "/other")).faults, []);
    }
}
