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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::snapshot::tests::snapshot;
    use crate::logic::snapshot::{EndpointIx, Strategy, Target};

    /// The version that the Route has after a reload, if it ran as `old` and the file says `new`.
    fn after(old: u64, new: u64, change: impl FnOnce(&mut Snapshot)) -> u64 {
        let (mut running, mut file) = (snapshot(), snapshot());
        running.gateways[0].routes[0].version = old;
        file.gateways[0].routes[0].version = new;
        change(&mut file);
        carry_over(&running, &mut file);
        file.gateways[0].routes[0].version
    }

    #[test]
    fn whatever_changes_a_route_gives_it_a_new_number() {
        let route = |file: &mut Snapshot, change: fn(&mut Route)| change(&mut file.gateways[0].routes[0]);
        let changes: [fn(&mut Route); 8] = [
            |route| route.methods = vec!["eth_call".into()],
            |route| route.strategy = Strategy::Weighted,
            |route| route.strategy = Strategy::Tiered,
            |route| route.max_attempts = 7,
            |route| route.attempt_timeout_ns = 7,
            |route| route.targets.swap(0, 1),
            |route| route.targets[0].weight = 7,
            |route| route.targets.truncate(1),
        ];
        for change in changes {
            assert_eq!(after(4, 4, |file| route(file, change)), 5, "under its old number");
            assert_eq!(after(4, 1, |file| route(file, change)), 5, "under a lower one");
            assert_eq!(after(4, 9, |file| route(file, change)), 9, "under one of its own");
        }
    }

    #[test]
    fn a_route_that_says_the_same_never_goes_back() {
        assert_eq!(after(4, 4, |_| {}), 4);
        assert_eq!(after(4, 1, |_| {}), 4);
        assert_eq!(after(4, 9, |_| {}), 9);
        // Its Endpoints stand elsewhere in the file now, and are the same.
        let moved = |file: &mut Snapshot| {
            file.endpoints.swap(0, 1);
            let at = |endpoint| Target { endpoint: EndpointIx(endpoint), weight: 1 };
            file.gateways[0].routes[0].targets = vec![at(1), at(0)];
        };
        assert_eq!(after(4, 1, moved), 4);
    }

    #[test]
    fn what_was_not_there_before_keeps_the_number_of_the_file() {
        let changed = |file: &mut Snapshot| file.gateways[0].routes[0].max_attempts = 7;
        let renamed = |file: &mut Snapshot| {
            changed(file);
            file.gateways[0].id = "other".into();
        };
        assert_eq!(after(4, 1, renamed), 1);
        let renamed = |file: &mut Snapshot| {
            changed(file);
            file.gateways[0].routes[0].id = "other".into();
        };
        assert_eq!(after(4, 1, renamed), 1);
    }
}
