//! Who an Endpoint is: its software, its chain, and the namespaces that it offers. Asked at first, and now and then.

use crate::logic::facts::{Client, client_of};
use crate::logic::methods::Family;
use crate::logic::snapshot::Network;
use crate::logic::units::{Nanos, SECOND};
use crate::net::own_call::{OwnCalls, Said};
use crate::wire::block_header::quantity;
use crate::wire::params::member_names;
use std::sync::Arc;

/// How often it is asked anew.
const AGAIN_NS: Nanos = 300 * SECOND;
/// How soon it is asked anew if it did not tell all, though it tells its blocks.
const SOON_NS: Nanos = 2 * SECOND;
/// Longest `web3_clientVersion` that is kept.
const VERSION_MAX: usize = 256;

/// What is known of an Endpoint.
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    /// Its software.
    pub client: Client,
    /// It was asked for it, or its configuration says it.
    pub known: bool,
    /// It serves another chain than its configuration says.
    pub mismatched: bool,
    due_ns: Nanos,
}

impl Identity {
    /// What is known before an Endpoint was asked: what its configuration says.
    pub fn configured(client: Option<&str>) -> Identity {
        let known = client.is_some();
        Identity { client: client.map_or(Client::Unknown, client_of), known, mismatched: false, due_ns: 0 }
    }

    /// To be asked for at the next poll: the node may be another one by now.
    pub fn doubt(&mut self) {
        self.due_ns = 0;
    }
}

/// Asks again what is due. What can't be had is asked for soon. Each question has the whole time of a poll: together
/// with all others none would ever be answered by a node that is far away.
pub async fn renew(was: Identity, calls: &OwnCalls<'_>, network: &Network) -> Identity {
    let snapshot = &calls.current().live.snapshot;
    let endpoint = &snapshot.endpoints[usize::from(calls.at().0)];
    let Some(tips) = calls.current().live.tips.endpoint(calls.at()).filter(|_| was.due_ns <= calls.now_ns()) else {
        return was;
    };
    // What was known of a node that gives no answer stays.
    let later = Identity { due_ns: calls.now_ns() + SOON_NS, ..was };
    let mut now = Identity { due_ns: calls.now_ns() + AGAIN_NS, ..was };
    if let Some(expected) = network.chain_id {
        match calls.hear("eth_chainId", "[]", quantity).await {
            Some(Said::Result(Some(chain_id))) => now.mismatched = chain_id != expected,
            Some(Said::Result(None) | Said::Error) => now.mismatched = false,
            Some(Said::Odd) | None => return later,
        }
        calls.give_time();
    }
    if now.mismatched {
        return Identity { due_ns: 0, ..now };
    }
    now.known = true;
    now.client = match endpoint.client.as_deref() {
        Some(client) => {
            tips.set_version(Some(Arc::new(client.to_owned())));
            client_of(client)
        }
        None => match calls.hear("web3_clientVersion", "[]", version).await {
            Some(Said::Result(Some(version))) => {
                let client = client_of(&version);
                tips.set_version(Some(Arc::new(version)));
                client
            }
            Some(Said::Result(None) | Said::Error) => {
                tips.set_version(None);
                Client::Unknown
            }
            Some(Said::Odd) | None => return later,
        },
    };
    calls.give_time();
    let table = snapshot.methods.table(endpoint.protocol, Family::Evm);
    let closed = |modules: &[u8]| {
        let mut names = Vec::new();
        let whole = member_names(modules, |name| names.push(name));
        if whole { table.namespaces().lacking(names) } else { 0 }
    };
    tips.lacks_namespaces(calls.ask("rpc_modules", "[]", closed).await.unwrap_or(0));
    now
}

fn version(result: &[u8]) -> Option<String> {
    let text: String = serde_json::from_slice(result).ok()?;
    Some(text.chars().filter(|letter| !letter.is_control()).take(VERSION_MAX).collect())
}
