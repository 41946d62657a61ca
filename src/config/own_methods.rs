//! `[[method]]`: methods that the tables do not know, and known ones made stricter.

use super::endpoint::protocol;
use super::fault::{Faults, quoted};
use super::file::View;
use super::gateway_methods::{example, is_method};
use crate::logic::call::Class;
use crate::logic::methods::Methods;
use crate::logic::own_methods::{OWN_METHODS_MAX, OwnMethod, Refusal};
use crate::logic::snapshot::{Protocol, Tier};
use std::collections::HashMap;

/// The embedded tables with what the file says about methods.
pub(super) fn methods(top: &View<'_>, faults: &mut Faults<'_>) -> Methods {
    let mut methods = Methods::embedded();
    let mut lines = HashMap::new();
    for (position, view) in top.tables("method").iter().enumerate() {
        if position == OWN_METHODS_MAX {
            faults.fault(view.at, view.path.clone(), format!("is one too many; there may be {OWN_METHODS_MAX}"));
            break;
        }
        let Some(own) = read(view, faults) else { continue };
        let key = (own.protocol, own.name.clone());
        if let Some(line) = lines.get(&key) {
            let text = format!("line {line} has a [[method]] of the same name; merge the two");
            faults.fault(view.at_of("name"), view.path_of("name"), text);
            continue;
        }
        lines.insert(key, faults.line(view.at));
        if let Err(why) = methods.extend(&own) {
            refuse(view, &own, why, faults);
        } else if !["class", "tier", "capability"].iter().any(|key| view.typed(key)) {
            let text = "says nothing about this method; write class, tier or capability, or remove it";
            faults.warn(view.at, view.path.clone(), text);
        }
    }
    methods
}

/// What one table of the file says; `None` if it is faulty by itself.
fn read(view: &View<'_>, faults: &mut Faults<'_>) -> Option<OwnMethod> {
    let (protocol, name) = (protocol(view)?, view.text("name")?);
    if let Some(text) = ill_named(&name, protocol) {
        faults.fault(view.at_of("name"), view.path_of("name"), text);
        return None;
    }
    if ["class", "tier", "capability"].iter().any(|key| view.wrong(key)) {
        return None;
    }
    let class = view.text("class").and_then(|word| match word.as_str() {
        "stateless" => Some(Class::Stateless),
        "local" => Some(Class::Local),
        "effect" => Some(Class::Effect),
        _ => None,
    });
    let tier = view.text("tier").and_then(|word| Tier::ALL.into_iter().find(|tier| tier.word() == word));
    let capability = view.name("capability").map(Into::into);
    Some(OwnMethod { protocol, name: name.into(), class, tier, capability })
}

/// Why a name is none, and what would be right.
fn ill_named(name: &str, protocol: Protocol) -> Option<String> {
    let is_path = name.starts_with('/');
    if is_path && protocol == Protocol::JsonRpc {
        return Some("is a path; write protocol = \"tron-http\", or the name of a method".to_owned());
    }
    if !is_path && protocol == Protocol::TronHttp {
        return Some(format!("is no path; write one, like \"{}\", or protocol = \"json-rpc\"", example(protocol)));
    }
    // What a node could skip would make two names of one.
    let plain = name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'*' | b'"' | b'\\'));
    let right = plain && is_method(name, protocol);
    (!right).then(|| format!("must be the exact name of a method, like \"{}\"", example(protocol)))
}

fn refuse(view: &View<'_>, own: &OwnMethod, why: Refusal, faults: &mut Faults<'_>) {
    let mut at = |key: &str, text: String| faults.fault(view.at_of(key), view.path_of(key), text);
    let shown = quoted(&own.name).unwrap_or_else(|| "this method".to_owned());
    match why {
        Refusal::NoClass => {
            let text = format!(
                "{shown} is no known method, so it needs a class; write \"stateless\", \"local\" or \"effect\""
            );
            faults.missing(view.at, view.path_of("class"), text);
        }
        Refusal::Looser(class) => {
            let (known, right) = match class {
                Class::Local => ("local", "\"local\" or \"effect\""),
                Class::SignedBroadcast => ("a signed broadcast", "\"effect\""),
                _ => ("effect", "\"effect\""),
            };
            let text = format!("is looser than what is known: {shown} is {known}; write {right}, or leave it out");
            at("class", text);
        }
        Refusal::Spelled(row) => at("name", format!("differs from the known `{row}` only in case; write that")),
        Refusal::OneOf(row) => at("name", format!("is one of the known `{row}`; write that")),
        Refusal::Template => at("name", "must be an exact path; only known ones have parts in braces".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::resolve::probe::{SOUND, faulty, sound, warned};
    use super::*;
    use crate::logic::methods::Family;
    use crate::logic::snapshot::Admittance;

    /// The sound file with a `[[method]]` of these lines.
    fn with(lines: &str) -> String {
        format!("{SOUND}\n[[method]]\n{lines}\n")
    }

    #[test]
    fn a_method_of_ones_own_is_a_row_and_takes_its_route() {
        let lines = "name = \"acme_getThing\"\nclass = \"stateless\"\ntier = \"archive\"\ncapability = \"acme\"";
        let snapshot = sound(&with(lines));
        let table = snapshot.methods.table(Protocol::JsonRpc, Family::Evm);
        let id = table.find("acme_getThing");
        let row = table.get(id).expect("a row");
        assert_eq!((row.class, row.tier, row.needs.as_deref()), (Class::Stateless, Tier::Archive, Some("acme")));
        let gateway = &snapshot.gateways[0];
        assert_eq!(gateway.listed.len(), table.rows().len() + 1);
        // probe.toml names it in a Route.
        assert_eq!(gateway.admittance(id), Admittance::Route(crate::logic::snapshot::RouteIx(1)));
        assert!(gateway.unlisted_routes.is_empty());
    }

    #[test]
    fn a_known_method_is_made_stricter() {
        let snapshot = sound(&with("name = \"eth_call\"\nclass = \"effect\""));
        let table = snapshot.methods.table(Protocol::JsonRpc, Family::Evm);
        assert_eq!(table.class(table.find("eth_call")), Class::Effect);
        let snapshot = sound(&with("name = \"/wallet/getaccount\"\nprotocol = \"tron-http\"\nclass = \"local\""));
        let table = snapshot.methods.table(Protocol::TronHttp, Family::Tron);
        assert_eq!(table.class(table.find("/wallet/getaccount")), Class::Local);
    }

    #[test]
    fn what_is_looser_or_not_classed_is_a_fault_where_it_stands() {
        let path = "method[0].class";
        faulty(
            &with("name = \"eth_newFilter\"\nclass = «\"stateless\""),
            path,
            &["is local", "\"local\" or \"effect\""],
        );
        faulty(&with("name = \"eth_sendTransaction\"\nclass = «\"local\""), path, &["is effect; write \"effect\""]);
        let text = with("name = \"eth_sendRawTransaction\"\nclass = «\"stateless\"");
        faulty(&text, path, &["is a signed broadcast; write \"effect\", or leave it out"]);
        let text = format!("{SOUND}\n«[[method]]\nname = \"acme_x\"\ntier = \"full\"\n");
        faulty(&text, path, &["`acme_x` is no known method", "needs a class"]);
        faulty(
            &with("name = \"acme_x\"\nclass = «\"pure\""),
            path,
            &["must be \"stateless\", \"local\" or \"effect\""],
        );
    }

    #[test]
    fn bad_names_are_faults_where_they_stand() {
        let class = "class = \"local\"";
        for (name, word) in [
            ("", "exact name"),
            ("eth_*", "exact name"),
            ("eth call", "exact name"),
            ("eth_c\\u200ball", "exact name"),
            ("/wallet/x", "tron-http"),
            ("Eth_Call", "differs from the known `eth_call` only in case"),
            ("getslot", "`getSlot`"),
            ("a{b}", "braces"),
        ] {
            faulty(&with(&format!("name = «\"{name}\"\n{class}")), "method[0].name", &[word]);
        }
        let http = "protocol = \"tron-http\"";
        faulty(&with(&format!("{http}\n{class}\nname = «\"wallet_x\"")), "method[0].name", &["is no path"]);
        let text = with(&format!("{http}\n{class}\nname = «\"/v1/accounts/T\""));
        faulty(&text, "method[0].name", &["one of the known `/v1/accounts/{address}`"]);
        let text = format!("{SOUND}\n«[[method]]\nclass = \"local\"\n");
        faulty(&text, "method[0].name", &["is missing", "acme_getThing"]);
        faulty(&with("name = \"acme_x\"\nclass = \"local\"\ncapability = «\"a b\""), "method[0].capability", &["name"]);
    }

    #[test]
    fn a_name_comes_once_in_a_protocol() {
        let one = "name = \"acme_x\"\nclass = \"local\"";
        let text = format!("{}[[method]]\nname = «\"acme_x\"\nclass = \"local\"\n", with(one));
        faulty(&text, "method[1].name", &["the same name"]);
    }

    #[test]
    fn what_says_nothing_is_told() {
        let text = format!("{SOUND}\n«[[method]]\nname = \"eth_call\"\n");
        warned(&text, "method[0]", &["says nothing"]);
    }

    #[test]
    fn there_may_not_be_more_than_the_tables_hold() {
        let one = |n: usize| format!("[[method]]\nname = \"acme_{n}\"\nclass = \"local\"\n");
        let most: String = (0..OWN_METHODS_MAX).map(one).collect();
        sound(&format!("{SOUND}\n{most}"));
        let path = format!("method[{OWN_METHODS_MAX}]");
        faulty(&format!("{SOUND}\n{most}«{}", one(OWN_METHODS_MAX)), &path, &["one too many"]);
    }
}
