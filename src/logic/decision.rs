//! How a Call would be decided now: which of its Route's targets would be asked, in which order, and why not the others.
//!
//! Nothing is decided here a second time: the order is what [`CallMachine::rehearse`] goes through, the reasons are
//! those of the [`Slate`], and both look at the same world as a Call that is sent.

use super::call::Class;
use super::draw::share;
use super::failover::{CallMachine, Turn, World};
use super::fault::Fault;
use super::snapshot::{Endpoint, Gateway, Route, Strategy, Tier};
use super::tiers::{Cause, Dropped, Requirement, Slate};
use super::units::Nanos;

/// Why a target is not asked, or not among the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It has `enabled = false`.
    Disabled,
    /// It is for another chain, network or protocol, or a tracker found it on another chain.
    Mismatch,
    /// Its weight is 0.
    Weight,
    /// Its Circuit, its rest or its budget rejects; whoever keeps those knows which.
    Rejected,
    /// Its Circuit is half-open, and this Call probes only when nothing else is left.
    HalfOpen,
    /// It lacks the method, or said so of late.
    Capability,
    /// It does not hold the depth, or its tier is too low.
    Tier,
    /// It has not got the block yet.
    Height,
    /// It is on a fork.
    Fork,
    /// It lags.
    Lag,
    /// Nothing is known of its tip.
    UnknownTip,
}

impl Why {
    /// The word that people and programs read; where a rejection is known more exactly, that goes before it.
    pub const fn word(self) -> &'static str {
        match self {
            Why::Disabled => "disabled",
            Why::Mismatch => "mismatch",
            Why::Weight => "weight",
            Why::Rejected | Why::HalfOpen => "circuit",
            Why::Capability => "capability",
            Why::Tier => "tier",
            Why::Height => "height",
            Why::Fork => "fork",
            Why::Lag => "lag",
            Why::UnknownTip => "unknown_tip",
        }
    }
}

/// What is decided about one target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// Why it is dropped; of one that is asked: why it stands back.
    pub why: Option<Why>,
    /// When it is asked if all before it fail, from 1; those of one draw have the same. `None` = never.
    pub order: Option<u32>,
    /// How likely it is the first that is asked.
    pub probability: f64,
}

/// What is decided about a Call.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// By target, in the Route's order.
    pub parts: Vec<Part>,
    /// The cheapest tier that meets the Requirement, or else the one that the configuration sets; `None` where the Route is
    /// not tiered, or there is neither.
    pub tier: Option<Tier>,
    /// What the caller would be told because nobody can be asked.
    pub refused: Option<Fault>,
}

/// Decides about a Call of this class on this Route.
pub fn decide<W: World>(
    (gateway, route): (&Gateway, &Route),
    endpoints: &[Endpoint],
    class: Class,
    need: Requirement,
    world: &W,
    now_ns: Nanos,
) -> Decision {
    let unasked = |at: usize| Part { why: filtered(gateway, route, endpoints, at), order: None, probability: 0.0 };
    let mut parts: Vec<Part> = (0..route.targets.len()).map(unasked).collect();
    let mut machine = CallMachine::new(route, class, false, None);
    machine.needs(need);
    // The draw that was heard of last, how many had somebody to ask, and whom the first of those had.
    let (mut last, mut orders, mut first) = (None, 0, 0u128);
    let refused = machine.rehearse(route, world, now_ns, |draw, at, turn| {
        let Some(part) = parts.get_mut(usize::from(at)) else { return };
        match turn {
            Turn::Mismatched => part.why = Some(Why::Mismatch),
            Turn::Rejected => part.why = Some(Why::Rejected),
            Turn::Later => part.why = Some(Why::HalfOpen),
            Turn::Asked { .. } => {
                if last != Some(draw) {
                    (last, orders) = (Some(draw), orders + 1);
                }
                part.order = Some(orders);
                if orders == 1 {
                    first |= 1 << at;
                }
            }
        }
    });
    for (at, part) in (0u8..).zip(&mut parts).filter(|(at, _)| first >> at & 1 == 1) {
        part.probability = if route.strategy == Strategy::Priority { 1.0 } else { share(route, first, at) };
    }
    let mut tier = None;
    if route.strategy == Strategy::Tiered {
        let slate = Slate::new(route, &need, world, now_ns);
        tier = slate.preferred(route).or(need.floor.filter(|floor| *floor > Tier::Minimal));
        for (at, part) in parts.iter_mut().enumerate() {
            let why = || match part.order {
                Some(_) => slate.put_back(at).map(stands_back),
                None => slate.dropped(at).map(dropped),
            };
            part.why = part.why.or_else(why);
        }
    }
    Decision { parts, tier, refused }
}

/// Why the candidate filter drops a target.
fn filtered(gateway: &Gateway, route: &Route, endpoints: &[Endpoint], at: usize) -> Option<Why> {
    if route.eligible.checked_shr(u32::try_from(at).unwrap_or(u32::MAX)).unwrap_or(0) & 1 == 1 {
        return None;
    }
    let endpoint = route.targets.get(at).and_then(|target| endpoints.get(usize::from(target.endpoint.0)))?;
    let same =
        (&endpoint.chain, &endpoint.network, endpoint.protocol) == (&gateway.chain, &gateway.network, gateway.protocol);
    Some(match (endpoint.enabled, same) {
        (false, _) => Why::Disabled,
        (true, false) => Why::Mismatch,
        (true, true) => Why::Weight,
    })
}

fn dropped(why: Dropped) -> Why {
    match why {
        Dropped::Mismatch => Why::Mismatch,
        Dropped::Capability => Why::Capability,
        Dropped::Tier => Why::Tier,
        Dropped::Height => Why::Height,
        Dropped::Fork => Why::Fork,
    }
}

fn stands_back(why: Cause) -> Why {
    match why {
        Cause::Lag => Why::Lag,
        Cause::Fork => Why::Fork,
        Cause::Circuit | Cause::Failure => Why::HalfOpen,
        Cause::Capability | Cause::MissingState => Why::Capability,
        Cause::UnknownTip => Why::UnknownTip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::chain::Standing;
    use crate::logic::circuit::Admission;
    use crate::logic::snapshot::tests::snapshot;
    use crate::logic::snapshot::{EndpointIx, Snapshot, Target, shares};
    use crate::logic::tiers::{Has, Seen, place};

    struct Sky(Vec<(Admission, Seen)>);
    impl World for Sky {
        fn admission(&self, endpoint: EndpointIx, _: Nanos) -> Admission {
            self.0[usize::from(endpoint.0)].0
        }
        fn seen(&self, endpoint: EndpointIx, _: Nanos) -> Seen {
            self.0[usize::from(endpoint.0)].1
        }
        fn is_mismatched(&self, endpoint: EndpointIx) -> bool {
            self.0[usize::from(endpoint.0)].1.mismatched
        }
    }

    const OPEN: Admission = Admission::Reject { until_ns: 9 };

    fn fresh() -> Seen {
        Seen { standing: Standing::Fresh, tip: 100, ..Seen::default() }
    }

    /// Targets with these weights and tiers, and the last one disabled.
    fn all(strategy: Strategy, targets: &[(u16, Tier)]) -> Snapshot {
        let mut snapshot = snapshot();
        let model = snapshot.endpoints[0].clone();
        snapshot.endpoints = targets.iter().map(|(_, tier)| Endpoint { tier: *tier, ..model.clone() }).collect();
        snapshot.endpoints.last_mut().unwrap().enabled = false;
        let route = &mut snapshot.gateways[0].routes[0];
        let target =
            |(at, (weight, _)): (usize, &(u16, Tier))| Target { endpoint: EndpointIx(at as u16), weight: *weight };
        route.strategy = strategy;
        route.targets = targets.iter().enumerate().map(target).collect();
        let counts = |at: usize| at + 1 < targets.len() && (strategy == Strategy::Priority || targets[at].0 > 0);
        route.eligible = (0..targets.len()).filter(|at| counts(*at)).fold(0, |set, at| set | 1 << at);
        route.shares = shares(&route.targets, route.eligible);
        place(route, &snapshot.endpoints);
        snapshot
    }

    type Row = (Option<u32>, Option<Why>, f64);

    fn decided(
        snapshot: &Snapshot,
        class: Class,
        need: Requirement,
        sky: &Sky,
    ) -> (Vec<Row>, Option<Tier>, Option<Fault>) {
        let gateway = &snapshot.gateways[0];
        let Decision { parts, tier, refused } =
            decide((gateway, &gateway.routes[0]), &snapshot.endpoints, class, need, sky, 0);
        (parts.iter().map(|part| (part.order, part.why, part.probability)).collect(), tier, refused)
    }

    #[test]
    fn in_priority_each_is_a_choice_of_its_own_and_who_must_not_probe_does_so_last() {
        let snapshot = all(Strategy::Priority, &[(1, Tier::Full); 5]);
        let elsewhere = Seen { mismatched: true, ..fresh() };
        let sky = Sky(vec![
            (OPEN, fresh()),
            (Admission::Probe, fresh()),
            (Admission::Admit, fresh()),
            (Admission::Admit, elsewhere),
            (Admission::Admit, fresh()),
        ]);
        let need = Requirement::default();
        let away = [(None, Some(Why::Mismatch), 0.0), (None, Some(Why::Disabled), 0.0)];
        let open = (None, Some(Why::Rejected), 0.0);
        let query = vec![open, (Some(1), None, 1.0), (Some(2), None, 0.0), away[0], away[1]];
        assert_eq!(decided(&snapshot, Class::Stateless, need, &sky), (query, None, None));
        let effect = vec![open, (Some(2), Some(Why::HalfOpen), 0.0), (Some(1), None, 1.0), away[0], away[1]];
        assert_eq!(decided(&snapshot, Class::Effect, need, &sky), (effect, None, None));
    }

    #[test]
    fn what_is_drawn_shares_its_place_and_what_rejects_leaves_its_share_to_the_others() {
        let snapshot = all(
            Strategy::Weighted,
            &[(4, Tier::Full), (1, Tier::Full), (3, Tier::Full), (0, Tier::Full), (1, Tier::Full)],
        );
        let mut sky = Sky(vec![(Admission::Admit, fresh()); 5]);
        sky.0[0].0 = OPEN;
        let need = Requirement::default();
        let rows = vec![
            (None, Some(Why::Rejected), 0.0),
            (Some(1), None, 0.25),
            (Some(1), None, 0.75),
            (None, Some(Why::Weight), 0.0),
            (None, Some(Why::Disabled), 0.0),
        ];
        assert_eq!(decided(&snapshot, Class::Stateless, need, &sky), (rows, None, None));
        sky.0[1..3].iter_mut().for_each(|(admission, _)| *admission = OPEN);
        let refused = decided(&snapshot, Class::Stateless, need, &sky).2;
        assert_eq!(refused, Some(Fault::Unavailable { retry_after_ns: 9 }));
    }

    #[test]
    fn in_tiers_the_cheapest_fresh_ones_come_first_and_each_other_one_has_its_reason() {
        let tiers = [Tier::Full, Tier::Full, Tier::Minimal, Tier::Archive, Tier::Archive, Tier::Archive, Tier::Full];
        let snapshot = all(Strategy::Tiered, &tiers.map(|tier| (1, tier)));
        let seen = [
            fresh(),
            Seen { standing: Standing::Lagging, tip: 90, ..fresh() },
            fresh(),
            fresh(),
            Seen { standing: Standing::Fork, ..fresh() },
            Seen { has: Has::No, ..fresh() },
            fresh(),
        ];
        let sky = Sky(seen.map(|seen| (Admission::Admit, seen)).to_vec());
        let need = Requirement { floor: Some(Tier::Full), ..Requirement::default() };
        let rows = vec![
            (Some(1), None, 1.0),
            (Some(3), Some(Why::Lag), 0.0),
            (None, Some(Why::Tier), 0.0),
            (Some(2), None, 0.0),
            (None, Some(Why::Fork), 0.0),
            (None, Some(Why::Capability), 0.0),
            (None, Some(Why::Disabled), 0.0),
        ];
        assert_eq!(decided(&snapshot, Class::Stateless, need, &sky), (rows, Some(Tier::Full), None));
        let high = decided(&snapshot, Class::Stateless, Requirement { height: 95, ..need }, &sky);
        assert_eq!(high.0[1], (None, Some(Why::Height), 0.0));
        let none = Sky(vec![(Admission::Admit, Seen { has: Has::No, ..fresh() }); 7]);
        let refused = decided(&snapshot, Class::Stateless, need, &none).2;
        assert_eq!(refused.map(Fault::code), Some(-32601));
    }
}
