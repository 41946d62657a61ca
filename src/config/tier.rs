//! What an Endpoint holds of its chain, and what it is known for: the keys that tiered Routes go by.

use super::fault::Faults;
use super::file::View;
use super::value::Text;
use crate::logic::snapshot::Tier;
use std::collections::HashSet;

/// Nodes that hold only the newest blocks, or only their state, hold so many.
const NEWEST_BLOCKS: u64 = 128;
/// Longest `client`.
const CLIENT_BYTES_MAX: usize = 256;
/// Longest namespace or method.
const CAPABILITY_BYTES_MAX: usize = 128;

/// As the fields of [`crate::logic::snapshot::Endpoint`] of the same names.
pub(super) struct Holding {
    pub(super) tier: Tier,
    pub(super) state_blocks: u64,
    pub(super) history_blocks: u64,
    pub(super) client: Option<Box<str>>,
    pub(super) capabilities: Vec<Box<str>>,
    pub(super) without: Vec<Box<str>>,
}

/// Reads these keys of an Endpoint.
pub(super) fn holding(view: &View<'_>, faults: &mut Faults<'_>) -> Holding {
    let word = view.text("tier");
    let tier = Tier::ALL.into_iter().find(|tier| Some(tier.word()) == word.as_deref()).unwrap_or_default();
    let depth = |name: &str, default: u64| match view.number_or(name) {
        Some(0) => u64::MAX,
        Some(blocks) => blocks,
        None => default,
    };
    let state_blocks = depth("state_blocks", if tier == Tier::Archive { u64::MAX } else { NEWEST_BLOCKS });
    let history_blocks = depth("history_blocks", if tier == Tier::Minimal { NEWEST_BLOCKS } else { u64::MAX });
    if state_blocks > history_blocks {
        let name = if view.typed("state_blocks") { "state_blocks" } else { "history_blocks" };
        let text = format!(
            "it would hold the state of {}, and bodies, receipts and logs of the newest {history_blocks} only; each counts for what it says, so correct the other if this was not meant",
            if state_blocks == u64::MAX {
                "all blocks".to_owned()
            } else {
                format!("the newest {state_blocks} blocks")
            }
        );
        faults.warn(view.at_of(name), view.path_of(name), text);
    }
    let (capabilities, without) = (view.texts("capabilities"), view.texts("without"));
    let valid = names(view, "capabilities", &capabilities, &[], faults);
    let lacking = names(view, "without", &without, &capabilities, faults);
    Holding { tier, state_blocks, history_blocks, client: client(view, faults), capabilities: valid, without: lacking }
}

fn client(view: &View<'_>, faults: &mut Faults<'_>) -> Option<Box<str>> {
    let client = view.text("client")?;
    if let Some(text) = client_fault(&client) {
        faults.fault(view.at_of("client"), view.path_of("client"), text);
    }
    Some(client.into())
}

/// What is wrong with a `client`, whoever it is.
pub(super) fn client_fault(client: &str) -> Option<String> {
    let shown = client.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) && !client.trim().is_empty();
    (!shown || client.len() > CLIENT_BYTES_MAX).then(|| {
        format!(
            "must be what the node answers to web3_clientVersion, like \"Geth/v1.14.0\": up to {CLIENT_BYTES_MAX} visible ASCII characters"
        )
    })
}

/// One of the two lists, held against the other one.
fn names(view: &View<'_>, name: &str, list: &[Text], other: &[Text], faults: &mut Faults<'_>) -> Vec<Box<str>> {
    let others: HashSet<&str> = other.iter().map(|added| added.text.as_str()).collect();
    let mut seen = HashSet::new();
    for (position, entry) in list.iter().enumerate() {
        let fault = if let Some(why) = name_fault(&entry.text) {
            why
        } else if !seen.insert(entry.text.as_str()) {
            "is listed twice; remove one of the two"
        } else if others.contains(entry.text.as_str()) {
            "stands in `capabilities` too, and can't be both had and lacking; remove one of the two"
        } else {
            continue;
        };
        faults.fault(entry.at, format!("{}[{position}]", view.path_of(name)), fault);
    }
    list.iter().map(|entry| entry.text.as_str().into()).collect()
}

/// What is wrong with the name of a namespace (`ots`) or of a method (`trace_block`).
pub(super) fn name_fault(name: &str) -> Option<&'static str> {
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let (namespace, method) =
        name.split_once('_').map_or((name, None), |(namespace, method)| (namespace, Some(method)));
    if method == Some("*") && plain(namespace) {
        return Some("must be a namespace by its name alone, like \"ots\"; remove the `_*`");
    }
    let word = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let good = plain(namespace) && method.is_none_or(word) && name.len() <= CAPABILITY_BYTES_MAX;
    (!good).then_some(
        "must be a namespace of letters and digits, like \"ots\", or the exact name of a method, like \"trace_block\"",
    )
}

#[cfg(test)]
mod tests {
    use super::super::resolve::probe::{faulty, read, sound, warned, with};
    use super::*;
    use crate::logic::snapshot::Endpoint;

    fn of(typed: &str) -> Endpoint {
        sound(&with("enabled = true", typed)).endpoints.remove(0)
    }

    const ALL: u64 = u64::MAX;

    #[test]
    fn depths_follow_from_the_tier_unless_they_are_typed() {
        for (typed, expected) in [
            ("", (Tier::Full, 128, ALL)),
            ("tier = \"minimal\"", (Tier::Minimal, 128, 128)),
            ("tier = \"full\"", (Tier::Full, 128, ALL)),
            ("tier = \"archive\"", (Tier::Archive, ALL, ALL)),
            ("tier = \"archive\"\nstate_blocks = 90000", (Tier::Archive, 90_000, ALL)),
            ("state_blocks = 0\nhistory_blocks = 0", (Tier::Full, ALL, ALL)),
            ("state_blocks = 64\nhistory_blocks = 64", (Tier::Full, 64, 64)),
            ("tier = \"minimal\"\nhistory_blocks = 0", (Tier::Minimal, 128, ALL)),
            ("tier = \"minimal\"\nhistory_blocks = 900000\nstate_blocks = 1", (Tier::Minimal, 1, 900_000)),
        ] {
            let endpoint = of(typed);
            assert_eq!((endpoint.tier, endpoint.state_blocks, endpoint.history_blocks), expected, "{typed}");
            assert_eq!(read(&with("enabled = true", typed)).faults, [], "{typed}");
        }
        faulty(&with("enabled = true", "tier = «\"archiv\""), "endpoint[geth-1].tier", &["did you mean \"archive\"?"]);
        faulty(&with("enabled = true", "state_blocks = «-1"), "endpoint[geth-1].state_blocks", &["at least 0"]);
    }

    #[test]
    fn state_that_reaches_below_the_blocks_is_warned_of() {
        let text = with("enabled = true", "tier = \"minimal\"\nstate_blocks = «1000");
        warned(&text, "endpoint[geth-1].state_blocks", &["newest 1000 blocks", "newest 128 only", "each counts"]);
        let text = with("enabled = true", "tier = \"archive\"\nhistory_blocks = «1000");
        warned(&text, "endpoint[geth-1].history_blocks", &["state of all blocks", "newest 1000 only"]);
    }

    #[test]
    fn a_client_is_what_a_node_could_say() {
        assert_eq!(of("client = \"erigon/3.0 (x; y)\"").client.as_deref(), Some("erigon/3.0 (x; y)"));
        assert_eq!(of("").client, None);
        for bad in ["", " ", "gé", "geth\\n", &"x".repeat(257)] {
            let text = with("enabled = true", &format!("client = «\"{bad}\""));
            faulty(&text, "endpoint[geth-1].client", &["web3_clientVersion", "visible ASCII"]);
        }
    }

    #[test]
    fn what_is_added_and_taken_away_are_namespaces_and_methods() {
        let endpoint = of("capabilities = [\"ots\", \"trace_block\"]\nwithout = [\"debug\", \"acme_get_It2\"]");
        assert_eq!(endpoint.capabilities, ["ots".into(), "trace_block".into()]);
        assert_eq!(endpoint.without, ["debug".into(), "acme_get_It2".into()]);
        for bad in ["", "_", "ots_", "_block", "a.b", "debug-x", "trace block", "é", "a_b*", &"x".repeat(129)] {
            for key in ["capabilities", "without"] {
                let text = with("enabled = true", &format!("{key} = [\"ots\", «\"{bad}\"]"));
                faulty(&text, &format!("endpoint[geth-1].{key}[1]"), &["like \"ots\"", "like \"trace_block\""]);
            }
        }
        let text = with("enabled = true", "capabilities = [«\"ots_*\"]");
        faulty(&text, "endpoint[geth-1].capabilities[0]", &["name alone", "remove the `_*`"]);
    }

    #[test]
    fn nothing_is_listed_twice() {
        let text = with("enabled = true", "without = [\"ots\", «\"ots\"]");
        faulty(&text, "endpoint[geth-1].without[1]", &["listed twice"]);
        let text = with("enabled = true", "capabilities = [\"trace_block\", \"ots\"]\nwithout = [«\"ots\"]");
        faulty(&text, "endpoint[geth-1].without[0]", &["in `capabilities` too", "remove one"]);
        assert_eq!(
            of("capabilities = [\"debug\"]\nwithout = [\"debug_traceCall\"]").without,
            ["debug_traceCall".into()]
        );
    }
}
