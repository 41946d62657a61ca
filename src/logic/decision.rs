//! How a Call would be decided now: which of its Route's targets would be asked, in which order, and why not the others.
//!
//! Nothing is decided here a second time: the order is what [`CallMachine::rehearse`] goes through, the reasons are
//! those of the [`Slate`], and both look at the same world as a Call that is sent.

use super::call::Class;
use super::failover::{CallMachine, Turn, World, share};
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
    /// The cheapest tier that meets the Requirement; `None` where the Route is not tiered, or none does.
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
        tier = slate.preferred(route);
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
