//! What a decision may see of the world outside.

use super::circuit::Admission;
use super::snapshot::EndpointIx;
use super::tiers::{Look, Seen};
use super::units::Nanos;

/// What the machine may see of the world outside: Circuits, and what trackers know. The shared boards implement it,
/// and the simulator.
pub trait World {
    /// What the Endpoint's Circuit says now.
    fn admission(&self, endpoint: EndpointIx, now_ns: Nanos) -> Admission;

    /// What is known of its chain and its software; tiered Routes ask.
    fn seen(&self, _endpoint: EndpointIx, _now_ns: Nanos) -> Seen {
        Seen::default()
    }

    /// Whether a tracker found it on another chain than its configuration says.
    fn is_mismatched(&self, _endpoint: EndpointIx) -> bool {
        false
    }
}

impl<W: World> Look for W {
    fn seen(&self, endpoint: EndpointIx, now_ns: Nanos) -> Seen {
        World::seen(self, endpoint, now_ns)
    }
}
