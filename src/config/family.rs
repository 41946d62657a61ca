//! `[[network]]`: which family a chain is of, and so which methods it has and who may speak TRON's HTTP API.

use super::endpoint::protocol;
use super::fault::Faults;
use super::file::View;
use crate::logic::methods::Family;
use crate::logic::snapshot::Protocol;
use std::collections::HashMap;

/// What the file says about chains; the others are known by their names.
#[derive(Default)]
pub(super) struct Families(HashMap<(String, String), Family>);

impl Families {
    /// Reads all of it.
    pub(super) fn read(top: &View<'_>, faults: &mut Faults<'_>) -> Families {
        let (mut families, mut lines) = (HashMap::new(), HashMap::new());
        for view in top.tables("network") {
            let (Some(chain), Some(network)) = (view.name("chain"), view.name("network")) else { continue };
            let family = match view.text("family").as_deref() {
                Some("evm") => Family::Evm,
                Some("tron") => Family::Tron,
                Some("solana") => Family::Solana,
                _ => Family::of_chain(&chain),
            };
            let key = (chain, network);
            match lines.get(&key) {
                Some(line) => {
                    let text = format!("line {line} has a [[network]] of the same chain and network; merge the two");
                    faults.fault(view.at, view.path, text);
                }
                None => {
                    lines.insert(key.clone(), faults.line(view.at));
                    families.insert(key, family);
                }
            }
        }
        Families(families)
    }

    /// The family of a chain and network; either may be absent or wrong.
    pub(super) fn of(&self, chain: Option<&str>, network: Option<&str>) -> Family {
        let key = (chain.unwrap_or_default().to_owned(), network.unwrap_or_default().to_owned());
        self.0.get(&key).copied().unwrap_or_else(|| Family::of_chain(&key.0))
    }

    /// Reports an Endpoint or a Gateway that speaks TRON's HTTP API for a chain that has none.
    pub(super) fn check(&self, view: &View<'_>, faults: &mut Faults<'_>) {
        let (chain, network) = (view.name("chain"), view.name("network"));
        let family = self.of(chain.as_deref(), network.as_deref());
        if protocol(view) == Some(Protocol::TronHttp) && family != Family::Tron && chain.is_some() {
            let text =
                "is for chains of the family tron only; write \"json-rpc\", or a [[network]] with family = \"tron\"";
            faults.fault(view.at_of("protocol"), view.path_of("protocol"), text);
        }
    }
}
