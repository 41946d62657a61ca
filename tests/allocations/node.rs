//! The node behind the gateway: its answers follow from what arrives, and their sizes are told by the method.

use super::wire::Wire;
use std::net::{SocketAddr, TcpListener};
use std::thread;

/// The transaction that is the example of EIP-155, and its hash.
pub const SIGNED: &str = "0xf86c098504a817c800825208943535353535353535353535353535353535353535880de0b6b3a76400008025a028ef61340bd939bc2195fe537567866003e1a15d3c71ff63e1590620aa636276a067cbe9d8997f761aecb703304b3800ccf555c9f3dc64214b297fb1966a3b6d83";
const SIGNED_HASH: &str = "0x33469b22e9f636356c4160a87eb19df52b7412e8eac32a4a55ffe88ea8350788";

/// The result of a method for the Call with this mark, as JSON.
pub fn result_of(method: &str, mark: u64) -> String {
    match method {
        "eth_call" => format!("\"0x{mark:0116x}\""),
        "eth_getBlockReceipts" => logs(2_048, mark),
        "eth_getLogs" => logs(100_000, mark),
        "eth_sendRawTransaction" => format!("\"{SIGNED_HASH}\""),
        other => panic!("the node was asked {other}"),
    }
}

/// The params with a mark in them, as JSON.
pub fn params_of(method: &str, mark: u64) -> String {
    match method {
        "eth_sendRawTransaction" => format!("[\"{SIGNED}\"]"),
        "eth_call" => {
            format!("[{{\"to\":\"0xdac17f958d2ee523a2206206994597c13d831ec7\",\"data\":\"0x{mark:072x}\"}},\"latest\"]")
        }
        "eth_getLogs" => format!("[{{\"fromBlock\":\"0x1312d00\",\"data\":\"0x{mark:064x}\"}}]"),
        _ => format!("[{{\"data\":\"0x{mark:064x}\"}}]"),
    }
}

/// What TRON's HTTP API says of the account with this mark.
pub fn account(mark: u64) -> String {
    format!("{{\"address\":\"41{mark:040x}\",\"balance\":1234567}}")
}

/// Logs of at least so many bytes, the first of which has the mark.
fn logs(bytes: usize, mark: u64) -> String {
    // Of the block that is the newest to a tracker.
    let block = format!("\"blockNumber\":\"0x64\",\"blockHash\":\"0x{:064x}\"", 7);
    let entry = |mark: u64| format!("{{{block},\"data\":\"0x{mark:064x}\",\"topics\":[\"0x{:064x}\"]}}", 7);
    let mut text = format!("[{}", entry(mark));
    let other = format!(",{}", entry(0));
    while text.len() < bytes {
        text += &other;
    }
    text + "]"
}

/// Starts a node that serves until the process ends.
pub fn start() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut wire = Wire::new(stream.unwrap());
            thread::spawn(move || {
                while let Some((head, body)) = wire.message() {
                    let answer = answer(&head, std::str::from_utf8(&body).unwrap());
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                        answer.len()
                    );
                    wire.send((head + &answer).as_bytes());
                }
            });
        }
    });
    address
}

/// What whoever follows its chain asks.
fn to_a_tracker(method: &str) -> Option<String> {
    Some(match method {
        "web3_clientVersion" => "\"Geth/v1.14.0\"".into(),
        "rpc_modules" => "{\"eth\":\"1.0\"}".into(),
        "eth_getBlockByNumber" => {
            let [hash, parent] = [7, 6].map(|number| format!("0x{number:064x}"));
            let ids = format!("\"hash\":\"{hash}\",\"parentHash\":\"{parent}\"");
            format!("{{\"number\":\"0x64\",{ids},\"timestamp\":\"0x1\"}}")
        }
        _ => return None,
    })
}

fn answer(head: &str, body: &str) -> String {
    let asked: serde_json::Value = serde_json::from_str(body).unwrap();
    let hex = |text: &str| u64::from_str_radix(&text[text.len() - 16..], 16).unwrap();
    if head.starts_with("POST /wallet/getaccount ") {
        return account(hex(asked["address"].as_str().unwrap()));
    }
    let method = asked["method"].as_str().unwrap();
    if let Some(known) = to_a_tracker(method) {
        return format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{known}}}", asked["id"]);
    }
    let mark = asked["params"][0]["data"].as_str().map_or(0, hex);
    assert!(body.contains(&params_of(method, mark)), "the node was asked {body}");
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{}}}", asked["id"], result_of(method, mark))
}
