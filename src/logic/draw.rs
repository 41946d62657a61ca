//! Who of several targets is drawn, and with which share: by weight, and by nothing else.

use super::snapshot::Route;

/// The share of a target in a draw among `set`: what [`weighted`] gives it.
pub fn share(route: &Route, set: u128, at: u8) -> f64 {
    let weight = |at: u8| route.targets.get(usize::from(at)).map_or(0, |target| u32::from(target.weight));
    let total: u32 = Bits(set).map(weight).sum();
    if total == 0 { 0.0 } else { f64::from(weight(at)) / f64::from(total) }
}

/// One of the set bits at random by relative weight; removal renormalises by itself, because only the
/// remaining weights are summed. `P(i) = w_i / Σw` to within 2^-46.
pub fn weighted(route: &Route, remaining: u128, draw: u64) -> Option<u8> {
    // The high half of draw × total is uniform over 0..total: no division, and no bias that anybody could measure.
    let below = |total: u64| ((u128::from(draw) * u128::from(total)) >> 64) as u64;
    // Of most Calls this is the only choice: many targets must not make it dear.
    if remaining == route.eligible
        && let Some(total) = route.shares.last()
    {
        let drawn = below(u64::from(*total));
        let at = route.shares.partition_point(|up_to| u64::from(*up_to) <= drawn);
        return u8::try_from(at).ok().filter(|_| at < route.shares.len());
    }
    let weights = || Bits(remaining).map(|at| (at, u64::from(route.targets[usize::from(at)].weight)));
    let total: u64 = weights().map(|(_, weight)| weight).sum();
    let mut left = below(total);
    for (at, weight) in weights() {
        if left < weight {
            return Some(at);
        }
        left -= weight;
    }
    None
}

/// The positions of the set bits, lowest first.
#[derive(Clone)]
pub(super) struct Bits(pub(super) u128);

impl Iterator for Bits {
    type Item = u8;
    fn next(&mut self) -> Option<u8> {
        if self.0 == 0 {
            return None;
        }
        let at = self.0.trailing_zeros() as u8;
        self.0 &= self.0 - 1;
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::snapshot::tests::snapshot;
    use crate::logic::snapshot::{EndpointIx, Target, shares};

    #[test]
    fn a_share_is_what_the_draws_give() {
        let mut route = snapshot().gateways.remove(0).routes.remove(0);
        let weights = [5, 0, 1, 2, 2];
        let target = |(weight, at): (&u16, u16)| Target { endpoint: EndpointIx(at), weight: *weight };
        route.targets = weights.iter().zip(0..).map(target).collect();
        route.eligible = 0b11101;
        route.shares = shares(&route.targets, route.eligible);
        for set in [0b11101u128, 0b11000, 0b00101, 0b10000] {
            // Evenly over all draws, so that the counts are the shares.
            let draws = (0..1_000u64).map(|nth| nth * (u64::MAX / 1_000) + u64::MAX / 2_000);
            let mut counts = [0; 5];
            draws.filter_map(|draw| weighted(&route, set, draw)).for_each(|at| counts[usize::from(at)] += 1);
            for at in 0..5u8 {
                let right = if set >> at & 1 == 1 { share(&route, set, at) } else { 0.0 };
                let count = f64::from(counts[usize::from(at)]) / 1_000.0;
                assert!((count - right).abs() < 0.002, "{at} of {set:b}: {count}, not {right}");
            }
        }
        assert_eq!((share(&route, 0, 0), share(&route, 0b10, 1), share(&route, 1 << 9, 9)), (0.0, 0.0, 0.0));
    }
}
