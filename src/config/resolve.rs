//! What the file means: text and environment in, a whole Snapshot or all faults at once out.

use super::endpoint::Endpoints;
use super::fault::{ConfigFault, Faults};
use super::file::{View, parse};
use super::gateway::{Context, gateways};
use super::schema::ROOT;
use super::server::{circuit, server};
use crate::logic::methods::Methods;
use crate::logic::snapshot::Snapshot;

/// Largest configuration file.
pub const FILE_BYTES_MAX: usize = 8 << 20;

/// The outcome of reading a configuration.
#[derive(Debug)]
pub struct Resolved {
    /// `None` if there is any fault.
    pub snapshot: Option<Snapshot>,
    /// Faults and warnings, by position.
    pub faults: Vec<ConfigFault>,
}

/// Reads a configuration file's text; `env` answers `${NAME}`.
pub fn resolve(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Resolved {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut faults = Faults::new(text);
    if text.len() > FILE_BYTES_MAX {
        faults.syntax(0, "the file is larger than 8 MiB; make it smaller".to_owned());
        return Resolved { snapshot: None, faults: faults.sorted() };
    }
    let tree = parse(text, &mut faults);
    let top = View::top(&tree, ROOT, env);
    top.check(&mut faults);
    let server = server(&top, &mut faults);
    let base = circuit(&top.table("circuit"), None, &mut faults);
    let endpoints = Endpoints::read(&top, base, &mut faults);
    let methods = Methods::embedded();
    let context = Context { endpoints: &endpoints, methods: &methods, max_attempts: server.max_attempts };
    let gateways = gateways(&top, &context, &mut faults);
    let snapshot = (!faults.any()).then_some(Snapshot { server, endpoints: endpoints.valid, gateways, methods });
    Resolved { snapshot, faults: faults.sorted() }
}

#[cfg(test)]
mod tests {
    use super::super::summary::summary;
    use super::*;

    fn env(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn the_minimal_example_is_taken_without_a_word() {
        let resolved = resolve(include_str!("../../config/minimal.toml"), &env);
        assert_eq!(resolved.faults, []);
        let snapshot = resolved.snapshot.expect("no fault");
        assert!(summary(&snapshot).contains("default  all other  priority  3 x 10s   node-1, node-2"));
    }
}
