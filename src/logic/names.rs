//! What is known of one host name: its addresses, when they are looked up again, and what a look-up changes.

use crate::logic::units::{Nanos, SECOND};
use std::net::IpAddr;

/// Addresses are used for at least so long, whatever their TTL.
pub const TTL_MIN_NS: Nanos = SECOND;
/// Addresses are looked up again after so long, whatever their TTL.
pub const TTL_MAX_NS: Nanos = 300 * SECOND;
/// A look-up that failed is tried again after so long, and after twice as long each time, up to
pub const RETRY_FIRST_NS: Nanos = SECOND;
/// this.
pub const RETRY_MAX_NS: Nanos = 30 * SECOND;

/// Of more addresses in one family the rest is left out.
pub const ADDRESSES_MAX: usize = 64;

/// What a look-up brought for one family of addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Family {
    /// These, for so long.
    Known(Vec<IpAddr>, Nanos),
    /// The name has none, or does not exist.
    Nothing,
    /// Nobody could say.
    Failed,
}

/// What people are told of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// Nothing: all is as before.
    Nothing,
    /// The first failure after a success.
    Failing,
    /// The first success after a failure.
    Recovered,
}

/// One host name.
#[derive(Debug, Default)]
pub struct HostName {
    v6: Vec<IpAddr>,
    v4: Vec<IpAddr>,
    failures: u32,
    asked: bool,
    due_ns: Nanos,
}

impl HostName {
    /// When it is looked up next.
    pub fn due_ns(&self) -> Nanos {
        self.due_ns
    }

    /// Looks it up at once.
    pub fn hurry(&mut self) {
        self.due_ns = 0;
    }

    /// Whether a look-up has ended, well or not.
    pub fn asked(&self) -> bool {
        self.asked
    }

    /// Takes what a look-up brought. If it brought no address at all, the last ones stay; if nobody could say for
    /// one family, the last ones of that family do.
    pub fn feed(&mut self, v6: Family, v4: Family, now_ns: Nanos) -> Told {
        self.asked = true;
        let ttl_ns = match (&v6, &v4) {
            (Family::Known(_, one), Family::Known(_, other)) => Some(*one.min(other)),
            (Family::Known(_, ttl_ns), _) | (_, Family::Known(_, ttl_ns)) => Some(*ttl_ns),
            _ => None,
        };
        let Some(ttl_ns) = ttl_ns else {
            self.failures = self.failures.saturating_add(1);
            let wait_ns = (RETRY_FIRST_NS << (self.failures - 1).min(8)).min(RETRY_MAX_NS);
            self.due_ns = now_ns.saturating_add(wait_ns);
            return if self.failures == 1 { Told::Failing } else { Told::Nothing };
        };
        for (own, found) in [(&mut self.v6, v6), (&mut self.v4, v4)] {
            match found {
                Family::Known(mut addresses, _) => {
                    // Servers turn their answers round: the same set is the same list here.
                    addresses.sort_unstable();
                    addresses.dedup();
                    addresses.truncate(ADDRESSES_MAX);
                    *own = addresses;
                }
                Family::Nothing => own.clear(),
                Family::Failed => {}
            }
        }
        self.due_ns = now_ns.saturating_add(ttl_ns.clamp(TTL_MIN_NS, TTL_MAX_NS));
        let failed = std::mem::take(&mut self.failures) > 0;
        if failed { Told::Recovered } else { Told::Nothing }
    }

    /// Its addresses, IPv6 and IPv4 in turns (RFC 8305, section 4).
    pub fn addresses(&self) -> Vec<IpAddr> {
        let longest = self.v6.len().max(self.v4.len());
        (0..longest).flat_map(|at| self.v6.get(at).into_iter().chain(self.v4.get(at))).copied().collect()
    }
}

/// Whether an Endpoint can be at an address: none of those that stand for no host (sinkholes say them, and some
/// systems take them for this machine) or for many.
pub fn is_usable(address: &IpAddr) -> bool {
    let v4 = match address.to_canonical() {
        IpAddr::V4(v4) => !v4.is_broadcast(),
        IpAddr::V6(_) => true,
    };
    v4 && !address.to_canonical().is_unspecified() && !address.to_canonical().is_multicast()
}

/// The names that are asked for, as the system's `search` and `ndots` want it, each with whether it is the host as
/// written. A dot at the end, or `ndots` dots, put that one first.
pub fn candidates(host: &str, ndots: usize, search: &[String]) -> Vec<(String, bool)> {
    if host.ends_with('.') {
        return vec![(host.to_owned(), true)];
    }
    let as_written = (format!("{host}."), true);
    let domains = search.iter().map(|domain| domain.trim_matches('.')).filter(|domain| !domain.is_empty());
    let mut names: Vec<_> = domains.map(|domain| (format!("{host}.{domain}."), false)).collect();
    let first = host.matches('.').count() >= ndots;
    names.insert(if first { 0 } else { names.len() }, as_written);
    names
}

/// Whether a name is this machine by definition (RFC 6761, section 6.3).
pub fn is_localhost(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    host == "localhost" || host.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(addresses: &[&str], ttl_s: u64) -> Family {
        Family::Known(addresses.iter().map(|text| text.parse().unwrap()).collect(), ttl_s * SECOND)
    }

    fn shown(name: &HostName) -> Vec<String> {
        name.addresses().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_shorter_ttl_counts_within_bounds() {
        for (v6, v4, due_s) in [(60, 7, 7), (7, 60, 7), (0, 60, 1), (86_400, 3_600, 300)] {
            let mut name = HostName::default();
            assert_eq!(name.feed(known(&["::1"], v6), known(&["10.0.0.1"], v4), SECOND), Told::Nothing);
            assert_eq!(name.due_ns(), SECOND + due_s * SECOND);
        }
    }

    #[test]
    fn families_take_turns_and_the_same_set_is_the_same_list() {
        let mut name = HostName::default();
        name.feed(known(&["::2", "::1"], 5), known(&["10.0.0.3", "10.0.0.1", "10.0.0.2"], 5), 0);
        assert_eq!(shown(&name), ["::1", "10.0.0.1", "::2", "10.0.0.2", "10.0.0.3"]);
        name.feed(known(&["::1", "::2", "::1"], 5), known(&["10.0.0.2", "10.0.0.3", "10.0.0.1"], 5), 0);
        assert_eq!(shown(&name), ["::1", "10.0.0.1", "::2", "10.0.0.2", "10.0.0.3"]);
    }

    #[test]
    fn a_failure_keeps_what_was_known_and_is_told_once() {
        let mut name = HostName::default();
        assert!(!name.asked());
        name.feed(Family::Nothing, known(&["10.0.0.1"], 5), 0);
        assert_eq!(name.feed(Family::Failed, Family::Failed, 0), Told::Failing);
        assert_eq!(name.feed(Family::Nothing, Family::Nothing, 0), Told::Nothing);
        assert_eq!(name.feed(Family::Failed, Family::Nothing, 0), Told::Nothing);
        assert_eq!(shown(&name), ["10.0.0.1"]);
        assert_eq!(name.feed(known(&["::1"], 5), Family::Nothing, 0), Told::Recovered);
        assert_eq!(shown(&name), ["::1"]);
        assert_eq!(name.feed(known(&["::1"], 5), Family::Nothing, 0), Told::Nothing);
        assert!(name.asked());
    }

    #[test]
    fn one_family_that_failed_keeps_its_own_only() {
        let mut name = HostName::default();
        name.feed(known(&["::1"], 5), known(&["10.0.0.1"], 5), 0);
        name.feed(Family::Failed, known(&["10.0.0.2"], 5), 0);
        assert_eq!(shown(&name), ["::1", "10.0.0.2"]);
    }

    #[test]
    fn retries_back_off_and_begin_anew_after_a_success() {
        let mut name = HostName::default();
        let waits = |name: &mut HostName| {
            let mut wait = || {
                name.feed(Family::Failed, Family::Failed, 7);
                (name.due_ns() - 7) / SECOND
            };
            (0..8).map(|_| wait()).collect::<Vec<_>>()
        };
        assert_eq!(waits(&mut name), [1, 2, 4, 8, 16, 30, 30, 30]);
        name.failures = u32::MAX;
        name.feed(Family::Failed, Family::Failed, 0);
        assert_eq!(name.due_ns(), RETRY_MAX_NS);
        name.feed(known(&["::1"], 5), Family::Nothing, 0);
        assert_eq!(waits(&mut name)[..2], [1, 2]);
    }

    #[test]
    fn names_are_tried_as_the_system_wants_it() {
        let search = ["svc.local".to_owned(), "corp.".to_owned(), ".".to_owned()];
        let shown = |host: &str, ndots: usize| -> Vec<String> {
            let names = candidates(host, ndots, &search);
            assert_eq!(names.iter().filter(|(_, as_written)| *as_written).count(), 1);
            names.into_iter().map(|(name, as_written)| if as_written { format!("!{name}") } else { name }).collect()
        };
        assert_eq!(shown("a.b", 1), ["!a.b.", "a.b.svc.local.", "a.b.corp."]);
        assert_eq!(shown("a", 1), ["a.svc.local.", "a.corp.", "!a."]);
        assert_eq!(shown("a.b.c", 5), ["a.b.c.svc.local.", "a.b.c.corp.", "!a.b.c."]);
        assert_eq!(shown("a.", 5), ["!a."]);
    }

    #[test]
    fn addresses_of_nobody_and_of_many_are_not_used() {
        for text in ["0.0.0.0", "::", "::ffff:0.0.0.0", "255.255.255.255", "224.0.0.1", "ff02::1"] {
            assert!(!is_usable(&text.parse().unwrap()), "{text}");
        }
        for text in ["127.0.0.1", "::1", "10.0.0.1", "2001:db8::1"] {
            assert!(is_usable(&text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn a_flood_of_addresses_is_cut() {
        let mut name = HostName::default();
        let many = (0..10_000u32).map(|at| IpAddr::from((at + 1).to_be_bytes())).collect();
        name.feed(Family::Nothing, Family::Known(many, SECOND), 0);
        assert_eq!(name.addresses().len(), ADDRESSES_MAX);
    }

    #[test]
    fn what_is_this_machine_by_definition() {
        for host in ["localhost", "localhost.", "a.localhost", "a.b.localhost."] {
            assert!(is_localhost(host), "{host}");
        }
        for host in ["localhost.example", "notlocalhost", "local", ""] {
            assert!(!is_localhost(host), "{host}");
        }
    }
}
