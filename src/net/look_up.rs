//! Whether an Endpoint knows a transaction: Ringway's own question, counted apart from attempts.

use crate::logic::broadcast::{self, judge_error};
use crate::logic::failover::Known;
use crate::logic::methods::Family;
use crate::logic::snapshot::{EndpointIx, Gateway, Protocol};
use crate::logic::tron_http::{self, ApiCall, Verb};
use crate::logic::units::Nanos;
use crate::net::exchange::{Context, place};
use crate::net::own_call::{self, Said};
use crate::net::upstream::{self, Message, Place, Request};
use crate::wire::evm_tx::{hash_text, transaction_hash};
use crate::wire::hex;
use crate::wire::solana_tx::first_signature;
use crate::wire::tron_tx::{txid_of_broadcast, txid_of_hex};

/// What a signed transaction is called on its chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(Box<str>);

impl Name {
    /// The name of the transaction in the params of a signed broadcast, if it can be told from its bytes.
    pub fn of(family: Family, params: Option<&[u8]>) -> Option<Name> {
        match family {
            Family::Evm => {
                let text = hash_text(&transaction_hash(params?)?);
                std::str::from_utf8(&text).ok().map(|text| Name(text.into()))
            }
            Family::Solana => first_signature(params?).map(|text| Name(text.into())),
            Family::Tron => None,
        }
    }

    /// The name of the transaction in a broadcast of TRON's HTTP API.
    pub fn of_broadcast(call: &ApiCall<'_>) -> Option<Name> {
        let id = match call.path {
            tron_http::BROADCAST => txid_of_broadcast(call.body)?,
            tron_http::BROADCAST_HEX => txid_of_hex(call.body)?,
            _ => return None,
        };
        let mut text = [0; 64];
        hex::encode(&mut text, &id);
        std::str::from_utf8(&text).ok().map(|text| Name(text.into()))
    }

    /// The name as it stands in a JSON text, without quotes: hex or base58, so nothing has to be escaped.
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// What a node's error object says about a transaction that was sent before.
pub fn said(family: Family, error: &[u8]) -> broadcast::Said {
    #[derive(serde::Deserialize)]
    struct Error<'a> {
        code: i64,
        #[serde(borrow, default)]
        message: std::borrow::Cow<'a, str>,
    }
    match serde_json::from_slice::<Error<'_>>(error) {
        Ok(error) => judge_error(family, error.code, &error.message),
        Err(_) => broadcast::Said::Other,
    }
}

/// Asks an Endpoint for a transaction.
pub async fn look_up(
    context: Context<'_>,
    gateway: &Gateway,
    endpoint: EndpointIx,
    name: &Name,
    until_ns: Nanos,
    now_ns: Nanos,
) -> (Known, Nanos) {
    let place = place(context.shard, context.current, context.tab, endpoint);
    let (known, at_ns) = match gateway.protocol {
        Protocol::JsonRpc => {
            let id = context.shard.next_id();
            ask(place, gateway.family, id, name, until_ns, now_ns).await
        }
        Protocol::TronHttp => ask_tron(place, name, until_ns, now_ns).await,
    };
    let cell = if known == Known::Yes { &place.cells.found } else { &place.cells.not_found };
    cell.add(1);
    (known, at_ns)
}

/// Asks by JSON-RPC.
async fn ask(place: Place<'_>, family: Family, id: u64, name: &Name, until_ns: Nanos, now_ns: Nanos) -> (Known, Nanos) {
    let (method, params) = match family {
        Family::Solana => {
            ("getSignatureStatuses", format!("[[\"{}\"],{{\"searchTransactionHistory\":true}}]", name.text()))
        }
        _ => ("eth_getTransactionByHash", format!("[\"{}\"]", name.text())),
    };
    let read = |result: &[u8]| knows(family, result, name);
    match own_call::once(place, id, (method, &params), until_ns, now_ns, read).await {
        (Some(Said::Result(known)), at_ns) => (known, at_ns),
        (_, at_ns) => (Known::Unclear, at_ns),
    }
}

/// Asks TRON's HTTP API, first for the chain and then for what waits: only a node that has it in neither has
/// it not.
async fn ask_tron(place: Place<'_>, name: &Name, until_ns: Nanos, now_ns: Nanos) -> (Known, Nanos) {
    let body = format!("{{\"value\":\"{}\"}}", name.text());
    let (mut known, mut now_ns) = (Known::No, now_ns);
    for path in tron_http::LOOK_UP_PATHS {
        if now_ns >= until_ns {
            return (Known::Unclear, now_ns);
        }
        let (content_type, body) = (Some("application/json"), body.as_bytes());
        let call = ApiCall { verb: Verb::Post, path, query: None, content_type, body };
        let request = Request { message: Message::TronHttp(&call), traceparent: None, replayable: true, caller: None };
        let ended = upstream::attempt(place, request, until_ns, now_ns).await;
        now_ns = ended.at_ns;
        let heard = ended.result.map_or(Known::Unclear, |incoming| {
            let known = match incoming.status {
                200..=299 => knows_tron(&incoming.buf[incoming.body.clone()], name),
                _ => Known::Unclear,
            };
            place.buffers.give(incoming.buf);
            known
        });
        match heard {
            Known::Yes => return (Known::Yes, now_ns),
            Known::Unclear => known = Known::Unclear,
            Known::No => {}
        }
    }
    (known, now_ns)
}

/// Whether an answer of TRON's HTTP API shows the transaction. A node that has none says `{}`.
fn knows_tron(answer: &[u8], name: &Name) -> Known {
    match serde_json::from_slice::<serde_json::Value>(answer) {
        Ok(serde_json::Value::Object(members)) if members.is_empty() => Known::No,
        Ok(answer) if answer["txID"].as_str().is_some_and(|id| id.eq_ignore_ascii_case(name.text())) => Known::Yes,
        _ => Known::Unclear,
    }
}

/// Whether a result shows the transaction, and not only some transaction.
fn knows(family: Family, result: &[u8], name: &Name) -> Known {
    let Ok(result) = serde_json::from_slice::<serde_json::Value>(result) else { return Known::Unclear };
    match family {
        Family::Solana => match result["value"].as_array().and_then(|value| value.first()) {
            Some(status) if status.is_null() => Known::No,
            Some(_) => Known::Yes,
            None => Known::Unclear,
        },
        _ if result.is_null() => Known::No,
        _ => match result["hash"].as_str().is_some_and(|hash| hash.eq_ignore_ascii_case(name.text())) {
            true => Known::Yes,
            false => Known::Unclear,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_transaction_counts() {
        let name = Name("0xab".into());
        let evm = |result: &[u8]| knows(Family::Evm, result, &name);
        assert_eq!(evm(b"{\"hash\":\"0xAB\",\"blockNumber\":null}"), Known::Yes);
        assert_eq!(evm(b"null"), Known::No);
        for other in [&b"{}"[..], b"{\"hash\":\"0xac\"}", b"[]", b"\"0xab\""] {
            assert_eq!(evm(other), Known::Unclear, "{}", String::from_utf8_lossy(other));
        }
        let solana = |result: &[u8]| knows(Family::Solana, result, &name);
        assert_eq!(solana(b"{\"context\":{},\"value\":[{\"slot\":1}]}"), Known::Yes);
        assert_eq!((solana(b"{\"value\":[null]}"), solana(b"{\"value\":[]}")), (Known::No, Known::Unclear));
    }

    #[test]
    fn what_cannot_be_read_says_nothing() {
        assert_eq!(
            said(Family::Evm, b"{\"code\":-32000,\"message\":\"already known\"}"),
            broadcast::Said::AlreadyKnown
        );
        assert_eq!(said(Family::Evm, b"{\"code\":-32000,\"message\":7}"), broadcast::Said::Other);
        assert_eq!(said(Family::Evm, b"{\"code\":-32000}"), broadcast::Said::Other);
        assert_eq!(said(Family::Evm, b"{\"code\":-32000,\"message\":\"nonce too low\"}"), broadcast::Said::Other);
    }

    #[test]
    fn tron_shows_a_transaction_by_its_id() {
        let name = Name("ab".into());
        let tron = |answer: &[u8]| knows_tron(answer, &name);
        assert_eq!(tron(b"{\"txID\":\"AB\",\"ret\":[]}"), Known::Yes);
        assert_eq!((tron(b"{}"), tron(b" { } ")), (Known::No, Known::No));
        for other in [&b""[..], b"[]", b"null", b"{\"txID\":\"ac\"}", b"{\"Error\":\"x\"}", b"this API is closed"] {
            assert_eq!(tron(other), Known::Unclear, "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn only_broadcasts_have_a_name() {
        let of = |path, body: &'static [u8]| {
            let call = ApiCall { verb: Verb::Post, path, query: None, content_type: None, body };
            Name::of_broadcast(&call).map(|name| name.text().len())
        };
        let (json, hex) = (b"{\"raw_data_hex\":\"0a0101\"}", b"{\"transaction\":\"0a030a0101\"}");
        assert_eq!((of(tron_http::BROADCAST, json), of(tron_http::BROADCAST_HEX, hex)), (Some(64), Some(64)));
        assert_eq!((of(tron_http::BROADCAST, hex), of(tron_http::BROADCAST_HEX, json)), (None, None));
        assert_eq!(of("/wallet/getaccount", json), None);
    }
}
