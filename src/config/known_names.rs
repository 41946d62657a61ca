//! Whether the clients, capabilities and methods that Endpoints and `[[method]]`s name are known to anyone.
//!
//! Only warnings: a node may call itself anything, and a namespace that no table has still takes its Calls. But a slip
//! of a letter here sends nothing anywhere, and nobody says so until a Call is refused.

use super::endpoint::{Endpoints, protocol};
use super::family::Families;
use super::fault::{Faults, nearest};
use super::file::View;
use super::tier::{client_fault, name_fault};
use super::value::Text;
use crate::logic::capability::namespace;
use crate::logic::facts::{Client, client_of, name_in, names_of_clients};
use crate::logic::methods::{Family, Methods, Table};
use crate::logic::snapshot::{Protocol, Tier};
use std::collections::{BTreeSet, HashSet};

/// So many near words are looked for: in a file with more unknown ones it would cost more than it helps.
const NEAREST_MAX: usize = 100;

/// Warns of what nobody is known for.
pub(super) fn warn(
    top: &View<'_>,
    endpoints: &Endpoints,
    families: &Families,
    methods: &Methods,
    faults: &mut Faults<'_>,
) {
    let own = Own::read(top);
    let mut known = Known { own: &own, table: methods.table(Protocol::JsonRpc, Family::Evm), hints: NEAREST_MAX };
    let mut listed = HashSet::new();
    for view in top.tables("endpoint") {
        let added = view.texts("capabilities");
        // What is known of clients, and what tiered Routes go by, is of these chains only.
        let family = families.of(view.name("chain").as_deref(), view.name("network").as_deref());
        if protocol(&view) == Some(Protocol::JsonRpc) && family == Family::Evm {
            client(&view, faults);
            known.names(&view, "capabilities", &added, faults);
            known.names(&view, "without", &view.texts("without"), faults);
        }
        listed.extend(added.into_iter().map(|entry| entry.text));
    }
    if !endpoints.unsure {
        own.unserved(&listed, faults);
        let enabled = endpoints.valid.iter().filter(|endpoint| endpoint.enabled);
        own.too_high(enabled.map(|endpoint| endpoint.tier).max(), faults);
    }
}

/// A client that is none of those whose methods are known.
fn client(view: &View<'_>, faults: &mut Faults<'_>) {
    let Some(text) = view.text("client").filter(|text| client_fault(text).is_none()) else { return };
    let name = name_in(&text);
    if client_of(&text) != Client::Unknown || name.eq_ignore_ascii_case(Client::Unknown.word()) {
        return;
    }
    let meant = match nearest(name, names_of_clients()) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => format!(
            "known are {}, by which a fork may go too; of any other write \"unknown\", and in `capabilities` what else it has",
            names_of_clients().collect::<Vec<_>>().join(", ")
        ),
    };
    let text = format!(
        "is no known client by what stands before the first `/`, so the Endpoint is taken to have eth, net and web3 alone; {meant}"
    );
    faults.warn(view.at_of("client"), view.path_of("client"), text);
}

/// What the file says in `[[method]]`, right or wrong in other ways.
struct Own<'t> {
    views: Vec<(View<'t>, String, Option<String>)>,
    /// Their names, namespaces and capabilities.
    words: HashSet<String>,
}

impl<'t> Own<'t> {
    fn read(top: &View<'t>) -> Own<'t> {
        let of = |view: View<'t>| {
            let (name, capability) = (view.text("name")?, view.name("capability"));
            (protocol(&view) == Some(Protocol::JsonRpc)).then_some((view, name, capability))
        };
        let views: Vec<_> = top.tables("method").into_iter().filter_map(of).collect();
        let mut words = HashSet::new();
        for (_, name, capability) in &views {
            words.extend([name.clone(), namespace(name).to_owned()]);
            words.extend(capability.clone());
        }
        Own { views, words }
    }

    fn capabilities(&self) -> impl Iterator<Item = &str> {
        self.views.iter().filter_map(|(_, _, capability)| capability.as_deref())
    }

    /// Warns of tiers that no Endpoint has; `highest` is the highest one of all that are enabled.
    fn too_high(&self, highest: Option<Tier>, faults: &mut Faults<'_>) {
        for (view, ..) in &self.views {
            let wanted = view.text("tier").and_then(|word| Tier::ALL.into_iter().find(|tier| tier.word() == word));
            if wanted <= highest {
                continue;
            }
            let text = "no enabled Endpoint has this tier or a higher one, so a tiered Route refuses the method; write a lower one here, or set the `tier` of an Endpoint";
            faults.warn(view.at_of("tier"), view.path_of("tier"), text);
        }
    }

    /// Warns of capabilities that no Endpoint has; `listed` is all that Endpoints list.
    fn unserved(&self, listed: &HashSet<String>, faults: &mut Faults<'_>) {
        for (view, name, capability) in &self.views {
            let Some(capability) = capability.as_ref() else { continue };
            if listed.contains(capability) || listed.contains(name) {
                continue;
            }
            let text = match name_fault(capability) {
                Some(_) => {
                    "no Endpoint can list this in `capabilities`, so a tiered Route sends the method nowhere; write a word of letters and digits, like \"acme\", here and there"
                }
                None => {
                    "no Endpoint lists this in `capabilities`, and what a client is known for does not count here, so a tiered Route sends the method nowhere; list it there, or remove it"
                }
            };
            faults.warn(view.at_of("capability"), view.path_of("capability"), text);
        }
    }
}

/// What namespaces and methods are known.
struct Known<'k, 't> {
    own: &'k Own<'t>,
    table: &'k Table,
    /// So many more near words are looked for.
    hints: usize,
}

impl Known<'_, '_> {
    /// One of the two lists.
    fn names(&mut self, view: &View<'_>, key: &str, list: &[Text], faults: &mut Faults<'_>) {
        for (position, entry) in list.iter().enumerate() {
            let word = entry.text.as_str();
            if name_fault(word).is_some() || self.has(word) {
                continue;
            }
            let text = match (self.near(word), word.contains('_')) {
                (Some(near), true) => format!("no method of this name is known; did you mean \"{near}\"?"),
                (Some(near), false) => format!("no namespace of this name is known; did you mean \"{near}\"?"),
                (None, true) => {
                    "no method of this name is known; correct it, or describe it in a [[method]]".to_owned()
                }
                (None, false) => format!(
                    "no namespace of this name is known; clients have: {}. If it is another one, describe its methods in [[method]]s",
                    self.of_clients().into_iter().collect::<Vec<_>>().join(", ")
                ),
            };
            faults.warn(entry.at, format!("{}[{position}]", view.path_of(key)), text);
        }
    }

    fn has(&self, word: &str) -> bool {
        let listed = match word.contains('_') {
            true => self.table.find(word) != self.table.other(),
            false => self.table.namespaces().names().any(|known| known == word),
        };
        listed || self.own.words.contains(word)
    }

    fn near(&mut self, word: &str) -> Option<&str> {
        self.hints = self.hints.checked_sub(1)?;
        let own = self.own.capabilities();
        match word.contains('_') {
            true => nearest(word, self.table.rows().iter().map(|row| &*row.name).chain(own)),
            false => nearest(word, self.table.namespaces().names().chain(own)),
        }
    }

    /// The namespaces that any client is known for.
    fn of_clients(&self) -> BTreeSet<&str> {
        let namespaces = self.table.namespaces();
        namespaces.names().filter(|name| !name.is_empty() && namespaces.clients(name).0 != 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::resolve::probe::{SOUND, read, warned, with};

    /// The sound file with these keys of its first Endpoint, and then these lines.
    fn typed(keys: &str, more: &str) -> String {
        format!("{}\n{more}", with("enabled = true", keys))
    }

    #[track_caller]
    fn silent(text: &str) {
        assert_eq!(read(text).faults, []);
    }

    const METHOD: &str = "[[method]]\nname = \"acme_getThing\"\nclass = \"stateless\"\n";

    #[test]
    fn a_client_that_nobody_knows_is_warned_of_with_the_known_ones() {
        let path = "endpoint[geth-1].client";
        warned(&typed("client = «\"besuu\"", ""), path, &["no known client", "did you mean \"besu\"?"]);
        warned(&typed("client = «\"Gteh/v1.15\"", ""), path, &["did you mean \"geth\"?"]);
        warned(
            &typed("client = «\"anvil/v1.0\"", ""),
            path,
            &["eth, net and web3 alone", "geth, reth, erigon, nethermind", "`capabilities`"],
        );
        for right in ["Geth/v1.15", "besu", "bor/v1.10.8", "CoreGeth/v1", "unknown", "reth/v1.3.0 (x; y)"] {
            silent(&typed(&format!("client = \"{right}\""), ""));
        }
    }

    #[test]
    fn chains_whose_clients_are_not_told_apart_may_say_anything() {
        let text = typed("client = \"java-tron/4.7\"\ncapabilities = [\"wallets\"]", "");
        silent(&text.replace("\"ethereum\"", "\"tron\""));
        let text = typed("client = \"agave/2.0\"\nwithout = [\"getSlots\"]", "");
        silent(&text.replace("\"ethereum\"", "\"solana\""));
    }

    #[test]
    fn names_that_nobody_knows_are_warned_of_with_near_ones() {
        for key in ["capabilities", "without"] {
            let path = format!("endpoint[geth-1].{key}[1]");
            let says = |bad: &str, says: &[&str]| {
                warned(&typed(&format!("{key} = [\"ots\", «\"{bad}\"]"), ""), &path, says);
            };
            says("debgu", &["no namespace", "did you mean \"debug\"?"]);
            says("Trace", &["did you mean \"trace\"?"]);
            says("trace_blokc", &["no method", "did you mean \"trace_block\"?"]);
            says("state", &["clients have: ", "debug, ", "txpool", "[[method]]"]);
            says("acme_getThing", &["no method", "[[method]]"]);
            silent(&typed(&format!("{key} = [\"ots\", \"trace_block\", \"alchemy\", \"eth\", \"web3\"]"), ""));
        }
    }

    #[test]
    fn what_a_method_of_ones_own_names_is_known() {
        for word in ["acme", "acme_getThing"] {
            silent(&typed(&format!("capabilities = [\"{word}\"]"), METHOD));
            silent(&typed(&format!("without = [\"{word}\"]"), METHOD));
            silent(&typed(&format!("capabilities = [\"{word}\"]"), &format!("{METHOD}capability = \"acme\"")));
        }
        silent(&typed("capabilities = [\"special\"]", &format!("{METHOD}capability = \"special\"")));
        let text = typed("capabilities = [\"special\"]\nwithout = [«\"specail\"]", METHOD);
        warned(&format!("{text}capability = \"special\""), "endpoint[geth-1].without[0]", &["mean \"special\"?"]);
    }

    #[test]
    fn a_capability_that_no_endpoint_has_is_warned_of() {
        let path = "method[0].capability";
        let with = |capability: &str| format!("{SOUND}\n{METHOD}capability = «\"{capability}\"");
        warned(&with("acme"), path, &["no Endpoint lists this", "nowhere", "list it there, or remove it"]);
        // That Erigon has it is not enough.
        warned(&with("trace"), path, &["what a client is known for does not count"]);
        warned(&with("acme-pro"), path, &["no Endpoint can", "letters and digits"]);
        // An Endpoint that could not be read may have it.
        let unread = with("acme").replace("[[endpoint]]", "[[endpont]]").replace('«', "");
        assert!(read(&unread).faults.iter().all(|fault| !fault.path.starts_with("method")));
    }

    #[test]
    fn a_tier_that_no_enabled_endpoint_has_is_warned_of() {
        let with = |tier: &str, keys: &str| typed(keys, &format!("{METHOD}tier = «\"{tier}\""));
        let says = ["no enabled Endpoint has this tier", "set the `tier` of an Endpoint"];
        warned(&with("archive", "enabled = true\ntier = \"full\""), "method[0].tier", &says);
        for tier in ["full", "minimal"] {
            silent(&with(tier, "enabled = true\ntier = \"full\"").replace('«', ""));
        }
        silent(&with("archive", "enabled = true\ntier = \"archive\"").replace('«', ""));
    }

    #[test]
    fn any_number_of_unknown_names_is_told_soon() {
        let words: Vec<String> = (0..20_000).map(|n| format!("\"x{n}\"")).collect();
        let found = read(&typed(&format!("without = [{}]", words.join(", ")), "")).faults;
        assert!(found.len() >= 1_000 && found.iter().all(|fault| fault.text.contains("no namespace")));
    }
}
