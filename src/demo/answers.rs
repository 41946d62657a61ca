//! What a simulated node says to a request body: made up, but as a real node would shape it.

use super::branch::Branch;
use super::chain::{self, hex, quantity, unhex};
use super::fleet::Facts;
use super::past::{Answer, Past, hash_of, invalid, state_of};
use super::traces;
use crate::logic::call::Call;
use crate::logic::facts::client_of;
use crate::logic::fault::Fault;
use crate::logic::methods::Table;
use crate::wire::jsonrpc::{self, Message, Refused};
use serde_json::{Value, json};

/// Members that a node takes in one batch.
const BATCH_MAX: usize = 1_000;
/// Blocks that one `eth_getLogs` may span.
const LOG_BLOCKS_MAX: u64 = 100;

/// Who answers, and when.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'t> {
    /// The node.
    pub node: &'static Facts,
    /// What clients have.
    pub table: &'t Table,
    /// What it shows of the chain.
    pub branch: Branch,
    /// Answer under another id than the asked one.
    pub wrong_id: bool,
}

/// The answer to a body; empty if there is nothing to say.
pub fn reply(body: &[u8], asked: Asked<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    match jsonrpc::parse(body, BATCH_MAX) {
        Ok(Message::Single(call)) => member(&mut out, &call, asked),
        Ok(Message::Batch(batch)) => {
            for call in batch {
                let before = out.len();
                out.push(if before == 0 { b'[' } else { b',' });
                member(&mut out, &call, asked);
                if out.len() == before + 1 {
                    out.truncate(before);
                }
            }
            if !out.is_empty() {
                out.push(b']');
            }
        }
        Err(fault) => {
            let code = if fault == Fault::NotJson { -32700 } else { -32600 };
            write(&mut out, b"null", Err((code, "not a request".into())));
        }
    }
    out
}

fn member(out: &mut Vec<u8>, call: &Result<Call<'_>, Refused<'_>>, asked: Asked<'_>) {
    match call {
        Ok(call) if call.is_notification() => {}
        Ok(call) if asked.wrong_id => write(out, b"\"of another call\"", answer(call, asked)),
        Ok(call) => write(out, call.id.bytes(), answer(call, asked)),
        Err(refused) => write(out, refused.id.bytes(), Err((-32600, "invalid request".into()))),
    }
}

fn write(out: &mut Vec<u8>, id: &[u8], answer: Answer) {
    jsonrpc::write_answer_prefix(out, id, answer.is_err());
    let value = answer.unwrap_or_else(|(code, message)| json!({"code": code, "message": message}));
    out.extend_from_slice(value.to_string().as_bytes());
    out.push(b'}');
}

fn answer(call: &Call<'_>, asked: Asked<'_>) -> Answer {
    let params = match call.params.map(serde_json::from_slice::<Value>) {
        None | Some(Ok(Value::Null)) => Vec::new(),
        Some(Ok(Value::Array(params))) => params,
        _ => return invalid("params must be an array"),
    };
    let past = Past { node: asked.node, branch: asked.branch };
    // Each says what it is, so that what else it has can be told.
    let facts = asked.table.get(asked.table.find(&call.method)).filter(|_| call.method != "web3_clientVersion");
    if facts.is_some_and(|facts| !facts.clients.has(client_of(asked.node.client))) {
        return Err((-32601, format!("the method {} does not exist/is not available", call.method)));
    }
    match &*call.method {
        "eth_blockNumber" => Ok(quantity(past.branch.head()).into()),
        "eth_chainId" => Ok(quantity(chain::CHAIN_ID).into()),
        "net_version" => Ok(chain::CHAIN_ID.to_string().into()),
        "web3_clientVersion" => Ok(asked.node.client.into()),
        "eth_syncing" => Ok(false.into()),
        "eth_gasPrice" => Ok(quantity(chain::gas_price(past.branch.head())).into()),
        "eth_getBlockByNumber" => block_by_number(&params, &past),
        "eth_getBlockByHash" => block_by_hash(&params, &past),
        "eth_getBalance" => of_address(&params, &past, b"balance", u64::MAX >> 1),
        "eth_getTransactionCount" => of_address(&params, &past, b"nonce", 1_000),
        "eth_call" => call_result(&params, &past),
        "eth_getLogs" => logs(&params, &past),
        "eth_sendRawTransaction" => broadcast(&params),
        "erigon_getHeaderByNumber" => header_by_number(&params, &past),
        "trace_block" => traces::of_block(&params, &past),
        "debug_traceBlockByNumber" => traces::of_transactions(&params, &past),
        "txpool_status" => Ok(json!({"pending": "0x0", "queued": "0x0"})),
        method => {
            let name: String = method.chars().take(100).collect();
            Err((-32601, format!("the method {name} does not exist in this simulation")))
        }
    }
}

fn address_of(param: Option<&Value>) -> Option<[u8; 20]> {
    unhex(param?.as_str()?)?.try_into().ok()
}

fn block_by_number(params: &[Value], past: &Past) -> Answer {
    match past.height(params.first()) {
        Some(number) if number <= past.branch.head() => past.has_history(number).map(|()| past.branch.block(number)),
        Some(_) => Ok(Value::Null),
        None => invalid("the first one must be a block number or tag"),
    }
}

/// A block without its body.
fn header_by_number(params: &[Value], past: &Past) -> Answer {
    let mut block = block_by_number(params, past)?;
    if let Value::Object(members) = &mut block {
        members.retain(|name, _| !matches!(name.as_str(), "transactions" | "uncles" | "size"));
    }
    Ok(block)
}

fn block_by_hash(params: &[Value], past: &Past) -> Answer {
    let Some(hash) = hash_of(params.first()) else { return invalid("the first one must be a hash of 32 bytes") };
    // What it dropped is as good as unknown to it.
    let found = past.branch.number_of(&hash).filter(|number| past.has_history(*number).is_ok());
    Ok(found.map_or(Value::Null, |number| past.branch.block(number)))
}

fn of_address(params: &[Value], past: &Past, what: &[u8], bound: u64) -> Answer {
    let Some(address) = address_of(params.first()) else {
        return invalid("the first one must be an address of 20 bytes");
    };
    let height = past.state_height(params.get(1))?;
    past.has_state(height)?;
    let [a, b, c, d, e, f, g, h, ..] = state_of(what, &address, height);
    Ok(quantity(u64::from_be_bytes([a, b, c, d, e, f, g, h]) % bound).into())
}

fn call_result(params: &[Value], past: &Past) -> Answer {
    let Some(Value::Object(call)) = params.first() else { return invalid("the first one must be an object") };
    let height = past.state_height(params.get(1))?;
    past.has_state(height)?;
    Ok(hex(&state_of(b"call", Value::from(call.clone()).to_string().as_bytes(), height)).into())
}

/// One log a block.
fn logs(params: &[Value], past: &Past) -> Answer {
    let Some(Value::Object(filter)) = params.first() else { return invalid("the first one must be an object") };
    let bound = |name: &str| match filter.get(name) {
        None | Some(Value::Null) => Some(past.branch.head()),
        typed => past.height(typed),
    };
    let (from, to) = match filter.get("blockHash") {
        Some(hash) => match hash_of(Some(hash)).and_then(|hash| past.branch.number_of(&hash)) {
            Some(number) => (number, number),
            None => return Err((-32000, "unknown block".into())),
        },
        None => match (bound("fromBlock"), bound("toBlock")) {
            (Some(from), Some(to)) if from <= to => (from, to.min(past.branch.head())),
            _ => return invalid("fromBlock and toBlock must be a range"),
        },
    };
    if to.saturating_sub(from) >= LOG_BLOCKS_MAX {
        return Err((-32005, format!("the simulation shows the logs of at most {LOG_BLOCKS_MAX} blocks")));
    }
    past.has_history(from)?;
    let address = address_of(filter.get("address")).unwrap_or([0x11; 20]);
    let log = |number: u64| {
        let block = past.branch.hash(number);
        json!({
            "address": hex(&address),
            "topics": [hex(&chain::digest(b"topic", b"Transfer"))],
            "data": hex(&chain::digest(b"data", &block)),
            "blockNumber": quantity(number),
            "blockHash": hex(&block),
            "transactionHash": hex(&traces::transaction(&block)),
            "transactionIndex": "0x0",
            "logIndex": "0x0",
            "removed": false,
        })
    };
    Ok((from..=to).map(log).collect())
}

/// Takes any bytes: nothing is checked, and nothing is ever mined.
fn broadcast(params: &[Value]) -> Answer {
    match params.first().and_then(Value::as_str).and_then(unhex) {
        Some(bytes) if !bytes.is_empty() => Ok(hex(&chain::digest(b"transaction", &bytes)).into()),
        _ => invalid("the first one must be a signed transaction as 0x and hex digits"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fleet::NODES;
    use super::*;
    use crate::logic::methods::{Family, Methods};
    use crate::logic::snapshot::Protocol;

    const NOW_S: u64 = 1_790_000_000;

    fn text(body: &str, node: usize) -> String {
        answer_of(node, Branch::common(NOW_S), false, body)
    }

    fn answer_of(node: usize, branch: Branch, wrong_id: bool, body: &str) -> String {
        let methods = Methods::embedded();
        let table = methods.table(Protocol::JsonRpc, Family::Evm);
        String::from_utf8(reply(body.as_bytes(), Asked { node: &NODES[node], table, branch, wrong_id })).unwrap()
    }

    fn ask(method: &str, params: &str, node: usize) -> Value {
        let body = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{params}}}"#);
        let answer: Value = serde_json::from_str(&text(&body, node)).unwrap();
        assert_eq!(answer["id"], 7);
        answer
    }

    #[test]
    fn the_nodes_agree_on_the_chain_and_differ_as_clients() {
        for (method, params) in [
            ("eth_blockNumber", "[]"),
            ("eth_chainId", "[]"),
            ("net_version", "[]"),
            ("eth_gasPrice", "[]"),
            ("eth_syncing", "[]"),
            ("eth_getBlockByNumber", r#"["latest",false]"#),
            ("eth_getBalance", r#"["0x1111111111111111111111111111111111111111","latest"]"#),
            ("eth_getTransactionCount", r#"["0x1111111111111111111111111111111111111111","latest"]"#),
            ("eth_call", r#"[{"to":"0x1111111111111111111111111111111111111111","data":"0x"},"latest"]"#),
            ("eth_getLogs", r#"[{"fromBlock":"finalized","toBlock":"latest"}]"#),
            ("eth_sendRawTransaction", r#"["0x02f8"]"#),
        ] {
            let answers = [0, 1, 2].map(|node| ask(method, params, node));
            assert!(answers[0].get("result").is_some(), "{method}: {}", answers[0]);
            assert!(answers.iter().all(|answer| *answer == answers[0]), "{method}");
        }
        let clients = [0, 1, 2].map(|node| ask("web3_clientVersion", "[]", node)["result"].to_string());
        assert!(clients[0].contains("Geth/") && clients[1].contains("reth/") && clients[2].contains("erigon/"));
    }

    #[test]
    fn a_block_is_the_same_by_number_and_by_hash() {
        let latest = ask("eth_getBlockByNumber", r#"["latest",false]"#, 0)["result"].clone();
        assert_eq!(ask("eth_blockNumber", "[]", 1)["result"], latest["number"]);
        let by_hash = ask("eth_getBlockByHash", &format!("[{},false]", latest["hash"]), 2);
        assert_eq!(by_hash["result"], latest);
        let parent = ask("eth_getBlockByHash", &format!("[{},false]", latest["parentHash"]), 2);
        assert_eq!(parent["result"]["hash"], latest["parentHash"]);
        assert_eq!(ask("eth_getBlockByNumber", r#"["0xffffffffffff",false]"#, 0)["result"], Value::Null);
        let header = ask("erigon_getHeaderByNumber", &format!("[{}]", latest["number"]), 2)["result"].clone();
        assert_eq!((&header["hash"], header.get("transactions")), (&latest["hash"], None));
        let log = ask("eth_getLogs", "[{}]", 0)["result"][0].clone();
        assert_eq!(log["blockHash"], latest["hash"]);
    }

    #[test]
    fn wrong_params_and_unknown_methods_are_errors_of_the_node() {
        for (method, params, code) in [
            ("eth_getBlockByNumber", "[]", -32602),
            ("eth_getBlockByNumber", r#"["0x+1"]"#, -32602),
            ("eth_getBlockByHash", r#"["0x12"]"#, -32602),
            ("eth_getBalance", r#"["me"]"#, -32602),
            ("eth_call", "{}", -32602),
            ("eth_getLogs", r#"[{"fromBlock":"0x2","toBlock":"0x1"}]"#, -32602),
            ("eth_getLogs", r#"[{"fromBlock":"earliest"}]"#, -32005),
            ("eth_getLogs", r#"[{"fromBlock":"0x1","toBlock":"0x1"}]"#, 4444),
            ("eth_getBlockByNumber", r#"["0x1",false]"#, 4444),
            ("eth_getBalance", r#"["0x1111111111111111111111111111111111111111","0x1"]"#, -32000),
            ("eth_call", r#"[{},"0x1"]"#, -32000),
            ("eth_sendRawTransaction", r#"["0x"]"#, -32602),
            ("eth_sendRawTransaction", r#"["0xabc"]"#, -32602),
            ("eth_mine", "[]", -32601),
        ] {
            assert_eq!(ask(method, params, 0)["error"]["code"], code, "{method} {params}");
        }
    }

    #[test]
    fn each_client_has_its_own_methods() {
        for (method, has) in [
            ("trace_block", [false, true, true]),
            ("debug_traceBlockByNumber", [true, true, true]),
            ("erigon_getHeaderByNumber", [false, false, true]),
            ("txpool_status", [true, true, false]),
        ] {
            for (node, has) in has.into_iter().enumerate() {
                let answer = ask(method, r#"["latest"]"#, node);
                assert_eq!(answer.get("result").is_some(), has, "{method} at {}: {answer}", NODES[node].id);
                assert!(has || answer["error"]["code"] == -32601, "{method}: {answer}");
            }
        }
    }

    #[test]
    fn the_archive_has_everything() {
        for (method, params) in [
            ("eth_getBalance", r#"["0x1111111111111111111111111111111111111111","0xf4240"]"#),
            ("eth_call", r#"[{},"earliest"]"#),
            ("trace_block", r#"["0xf4240"]"#),
            ("debug_traceBlockByNumber", r#"["0xf4240"]"#),
            ("erigon_getHeaderByNumber", r#"["0xf4240"]"#),
            ("eth_getLogs", r#"[{"fromBlock":"0xf4240","toBlock":"0xf4240"}]"#),
        ] {
            let answers = [0, 1, 2].map(|node| ask(method, params, node));
            assert!(answers[2].get("result").is_some_and(|result| !result.is_null()), "{method}: {}", answers[2]);
            assert!(answers[0].get("error").is_some(), "{method}: {}", answers[0]);
        }
        let old = ask("eth_getBlockByNumber", r#"["0xf4240",false]"#, 1)["result"]["hash"].clone();
        let by_hash = |node| ask("eth_getBlockByHash", &format!("[{old},false]"), node)["result"].clone();
        assert_eq!((by_hash(0), by_hash(1)["hash"].clone()), (Value::Null, old.clone()));
    }

    #[test]
    fn batches_are_answered_without_their_notifications() {
        let member = |id: &str| format!(r#"{{"jsonrpc":"2.0",{id}"method":"eth_chainId"}}"#);
        let both = text(&format!("[{},{},{},5]", member("\"id\":1,"), member(""), member("\"id\":\"b\",")), 0);
        let both: Value = serde_json::from_str(&both).unwrap();
        let ids: Vec<&Value> = both.as_array().unwrap().iter().map(|answer| &answer["id"]).collect();
        assert_eq!(ids, [&json!(1), &json!("b"), &Value::Null]);
        assert_eq!(text(&format!("[{}]", member("")), 0), "");
        assert_eq!(text(&member(""), 0), "");
        let not_json: Value = serde_json::from_str(&text("{", 0)).unwrap();
        assert_eq!(not_json["error"]["code"], -32700);
    }

    #[test]
    fn a_wrong_id_is_wrong() {
        let answer = answer_of(0, Branch::common(NOW_S), true, r#"{"id":1,"method":"eth_chainId"}"#);
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_ne!(answer["id"], 1);
        assert_eq!(answer["result"], "0x539");
    }
}
