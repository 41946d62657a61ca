//! What number a Route has after a reload: one that changed by hand must never carry its old one.

use super::snapshot::{Route, Snapshot};

/// Raises versions in `new` where the file did not: a Route that differs from the running one under an
/// unchanged or lower version becomes the larger of both plus one; one that did not change never goes back.
pub fn carry_over(running: &Snapshot, new: &mut Snapshot) {
    let mut raised = Vec::new();
    for (at, gateway) in new.gateways.iter().enumerate() {
        let Some(old_gateway) = running.gateways.iter().find(|old| old.id == gateway.id) else { continue };
        for (row, route) in gateway.routes.iter().enumerate() {
            let Some(old) = old_gateway.routes.iter().find(|old| old.id == route.id) else { continue };
            let changed = !same((running, old), (new, route));
            if changed && route.version <= old.version {
                raised.push((at, row, old.version.max(route.version) + 1));
            } else if !changed {
                raised.push((at, row, old.version.max(route.version)));
            }
        }
    }
    for (at, row, version) in raised {
        new.gateways[at].routes[row].version = version;
    }
}

/// Whether two Routes say the same, each in its own Snapshot: indexes of Endpoints mean nothing across them.
fn same((a_in, a): (&Snapshot, &Route), (b_in, b): (&Snapshot, &Route)) -> bool {
    let targets = |snapshot: &Snapshot, route: &Route| -> Vec<(Box<str>, u16)> {
        let named = |target: &super::snapshot::Target| {
            (snapshot.endpoints[usize::from(target.endpoint.0)].id.clone(), target.weight)
        };
        route.targets.iter().map(named).collect()
    };
    a.methods == b.methods
        && a.strategy == b.strategy
        && a.max_attempts == b.max_attempts
        && a.attempt_timeout_ns == b.attempt_timeout_ns
        && targets(a_in, a) == targets(b_in, b)
}
