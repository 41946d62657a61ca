//! Which methods a Gateway offers, and which Route each of them takes.

use super::fault::{Faults, nearest, quoted};
use super::file::View;
use crate::logic::fault::Unavailable;
use crate::logic::methods::{MethodId, Table};
use crate::logic::routing::{CLOSED_NAMESPACES, admit};
use crate::logic::snapshot::{Admittance, RouteIx, Surface};
use std::collections::HashMap;

/// Longest method name.
const METHOD_BYTES_MAX: usize = 128;

/// Reads `allowed_methods`, `blocked_methods` and `expose`.
pub(super) fn surface(view: &View<'_>, faults: &mut Faults<'_>) -> Surface {
    Surface {
        allowed: patterns(view, "allowed_methods", faults),
        blocked: patterns(view, "blocked_methods", faults),
        expose: namespaces(view, faults),
    }
}

/// The methods that Routes of one Gateway name.
#[derive(Default)]
pub(super) struct MethodRoutes {
    by_name: HashMap<String, Named>,
}

struct Named {
    route: RouteIx,
    at: usize,
    /// Of the Route.
    path: String,
    /// Of the entry.
    entry: String,
}

impl MethodRoutes {
    /// Reads the `methods` of one Route.
    pub(super) fn read(&mut self, route: &View<'_>, ix: RouteIx, faults: &mut Faults<'_>) {
        for (position, typed) in route.texts("methods").into_iter().enumerate() {
            let entry = format!("{}[{position}]", route.path_of("methods"));
            if typed.text.contains('*') {
                faults.fault(typed.at, entry, "must be an exact name, like \"eth_getLogs\"; a Route takes no patterns");
                continue;
            }
            if !is_method(&typed.text) {
                faults.fault(typed.at, entry, "must be the exact name of a method, like \"eth_getLogs\"");
                continue;
            }
            let shown = quoted(&typed.text).unwrap_or_else(|| "this method".to_owned());
            match self.by_name.get(&typed.text) {
                Some(other) if other.route == ix => {
                    faults.fault(typed.at, entry, format!("{shown} is listed twice; remove one of the two"));
                }
                Some(other) => {
                    let text = format!("{shown} is in {} already; a method takes one Route, remove one", other.path);
                    faults.fault(typed.at, entry, text);
                }
                None => {
                    let named = Named { route: ix, at: typed.at, path: route.path.clone(), entry };
                    self.by_name.insert(typed.text, named);
                }
            }
        }
    }

    /// Warns of names that no Call can reach a Route by, and of names that are nearly a known one.
    pub(super) fn warn_unreachable(&self, table: &Table, surface: &Surface, faults: &mut Faults<'_>) {
        for (name, named) in &self.by_name {
            let id = table.find(name);
            let shown = quoted(name).unwrap_or_else(|| "this method".to_owned());
            let why = match admit(surface, name, table.class(id)) {
                Some(Unavailable::Blocked) => "it is in blocked_methods; remove it there or here",
                Some(Unavailable::NotAllowed) => "it is not in allowed_methods; add it there or remove it here",
                Some(_) => "its namespace is closed; add the namespace to `expose` or remove it here",
                None if id == table.other() => {
                    let folded = table.rows().iter().map(|row| &*row.name);
                    if let Some(near) =
                        folded.filter(|row| row.eq_ignore_ascii_case(name)).chain(close(table, name)).next()
                    {
                        let text =
                            format!("{shown} is no known method; did you mean `{near}`? (names are case-sensitive)");
                        faults.warn(named.at, named.entry.clone(), text);
                    }
                    continue;
                }
                None => continue,
            };
            faults.warn(named.at, named.entry.clone(), format!("{shown} never comes here: {why}"));
        }
    }
}

/// For each row of the table (and `other`) where it goes, and the Routes of names that stand in no row.
pub(super) fn listed(
    table: &Table,
    surface: &Surface,
    named: &MethodRoutes,
    default: RouteIx,
) -> (Vec<Admittance>, HashMap<Box<str>, RouteIx>) {
    let rows =
        table.rows().iter().zip(0u16..).map(|(row, at)| match admit(surface, &row.name, table.class(MethodId(at))) {
            Some(why) => Admittance::Closed(why),
            None => Admittance::Route(named.by_name.get(&*row.name).map_or(default, |named| named.route)),
        });
    let listed = rows.chain([Admittance::ByName]).collect();
    let unlisted = named.by_name.iter().filter(|(name, _)| table.find(name) == table.other());
    (listed, unlisted.map(|(name, named)| (name.as_str().into(), named.route)).collect())
}

fn close<'t>(table: &'t Table, name: &str) -> Option<&'t str> {
    let near = nearest(name, table.rows().iter().map(|row| &*row.name))?;
    // Names of methods are long, and own methods often look like known ones: only a slip of the finger is one.
    (strsim::damerau_levenshtein(near, name) <= 2).then_some(near)
}

fn patterns(view: &View<'_>, key: &str, faults: &mut Faults<'_>) -> Vec<Box<str>> {
    let mut patterns = Vec::new();
    for (position, typed) in view.texts(key).into_iter().enumerate() {
        let name = typed.text.strip_suffix("_*").unwrap_or(&typed.text);
        if is_method(name) && !name.contains('*') {
            patterns.push(typed.text.into());
        } else {
            let text = "must be an exact name or a namespace, like \"eth_call\" or \"debug_*\"";
            faults.fault(typed.at, format!("{}[{position}]", view.path_of(key)), text);
        }
    }
    patterns
}

fn namespaces(view: &View<'_>, faults: &mut Faults<'_>) -> Vec<Box<str>> {
    let closed = || CLOSED_NAMESPACES.into_iter().chain(["debug"]);
    let mut open = Vec::new();
    for (position, typed) in view.texts("expose").into_iter().enumerate() {
        if closed().any(|namespace| namespace == typed.text) {
            open.push(typed.text.into());
            continue;
        }
        let text = match nearest(typed.text.strip_suffix("_*").unwrap_or(&typed.text), closed()) {
            Some(near) => format!("is no closed namespace; did you mean \"{near}\"?"),
            None => {
                let known: Vec<&str> = closed().collect();
                format!("is no closed namespace; these are: {} (all others are open already)", known.join(", "))
            }
        };
        faults.fault(typed.at, format!("{}[{position}]", view.path_of("expose")), text);
    }
    open
}

fn is_method(name: &str) -> bool {
    (1..=METHOD_BYTES_MAX).contains(&name.len()) && !name.chars().any(|c| c.is_control() || c.is_whitespace())
}
