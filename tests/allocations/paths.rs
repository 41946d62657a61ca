//! The ways through the gateway whose allocations are counted, and what each may have.

use super::node::{account, params_of, result_of};
use std::net::SocketAddr;

pub const ORIGIN: &str = "https://app.example";

/// What is asked on a path.
pub enum Asked {
    /// Calls of a method, so many in one request; 0 = one, and no batch.
    Calls { gateway: &'static str, method: &'static str, batch: u64, fields: &'static str },
    /// TRON's HTTP API.
    Tron,
}

/// A way through the gateway.
pub struct Path {
    pub name: &'static str,
    pub asked: Asked,
    /// Connections that ask at the same time.
    pub callers: u64,
    /// Requests of each before counting begins, and in each window that is counted.
    pub requests: (u64, u64),
    /// Allocations that a request may have.
    pub bound: f64,
}

const STEADY: (u64, u64) = (1_000, 400);
const FEWER: (u64, u64) = (200, 80);

const fn calls(name: &'static str, method: &'static str, bound: f64) -> Path {
    let asked = Asked::Calls { gateway: "eth", method, batch: 0, fields: "" };
    Path { name, asked, callers: 1, requests: STEADY, bound }
}

const fn at(name: &'static str, gateway: &'static str, fields: &'static str, bound: f64) -> Path {
    let asked = Asked::Calls { gateway, method: "eth_call", batch: 0, fields };
    Path { name, asked, callers: 1, requests: STEADY, bound }
}

pub const PATHS: [Path; 11] = [
    calls("plain", "eth_call", 0.0),
    Path { callers: 16, ..calls("plain, 16 callers", "eth_call", 0.0) },
    calls("answer of 2 KB", "eth_getBlockReceipts", 0.0),
    // The wait for a share of the memory for large bodies; once more if it comes in several pieces.
    Path { requests: FEWER, ..calls("answer of 100 KB", "eth_getLogs", 2.0) },
    calls("broadcast", "eth_sendRawTransaction", 0.0),
    // A socket, what connects it, and on io_uring what closes it.
    at("failover", "eth-failover", "", 5.0),
    at("tiered", "eth-tiered", "", 0.0),
    Path {
        asked: Asked::Calls { gateway: "eth-tiered", method: "eth_getBlockReceipts", batch: 0, fields: "" },
        ..at("tiered, 2 KB compared with the chain", "", "", 0.0)
    },
    at("CORS", "eth-pages", "Origin: https://app.example\r\n", 0.0),
    // Where the parts of its head are, and the state of what is rare.
    Path { name: "TRON HTTP", asked: Asked::Tron, callers: 1, requests: STEADY, bound: 2.0 },
    // One for each member, whose state it is, and six for all of them.
    Path {
        name: "batch of 20",
        asked: Asked::Calls { gateway: "eth", method: "eth_call", batch: 20, fields: "" },
        callers: 1,
        requests: FEWER,
        bound: 26.0,
    },
];

impl Path {
    /// The request with this mark, and the body of its answer.
    pub fn exchange(&self, mark: u64) -> (Vec<u8>, String) {
        let (place, fields, body, answer) = match self.asked {
            Asked::Tron => {
                let body = format!("{{\"address\":\"41{mark:040x}\",\"visible\":false}}");
                ("tron/wallet/getaccount", "", body, account(mark))
            }
            Asked::Calls { gateway, method, batch: 0, fields } => {
                let (call, answer) = call(method, mark);
                (gateway, fields, call, answer)
            }
            Asked::Calls { gateway, method, batch, fields } => {
                let (calls, answers): (Vec<_>, Vec<_>) = (0..batch).map(|at| call(method, mark * 100 + at)).unzip();
                (gateway, fields, format!("[{}]", calls.join(",")), format!("[{}]", answers.join(",")))
            }
        };
        let length = body.len();
        let head = format!(
            "POST /{place} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{fields}Content-Length: {length}\r\n\r\n"
        );
        ((head + &body).into_bytes(), answer)
    }
}

fn call(method: &str, mark: u64) -> (String, String) {
    let params = params_of(method, mark);
    (
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{mark},\"method\":\"{method}\",\"params\":{params}}}"),
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{mark},\"result\":{}}}", result_of(method, mark)),
    )
}

/// A configuration with all these paths: `dead` refuses every connection, and its Circuit never opens.
pub fn configuration(node: SocketAddr, dead: SocketAddr) -> String {
    let endpoint = |id: &str, chain: &str, at: SocketAddr, more: &str| {
        format!(
            "[[endpoint]]\nid = \"{id}\"\nchain = \"{chain}\"\nnetwork = \"mainnet\"\nurl = \"http://{at}/\"\n{more}\n"
        )
    };
    let gateway = |id: &str, chain: &str, targets: &str, more: &str| {
        format!(
            "[[gateway]]\nid = \"{id}\"\npath = \"/{id}\"\nchain = \"{chain}\"\nnetwork = \"mainnet\"\n{more}\n\
             [[gateway.route]]\nid = \"default\"\ntargets = [{targets}]\n"
        )
    };
    let never = "circuit = { consecutive_failures = 1000000, failure_ratio = 1.0, min_samples = 1000000 }";
    let api = "protocol = \"tron-http\"";
    [
        "[server]\nlisten = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nshards = 1\n".to_owned(),
        endpoint("up", "ethereum", node, ""),
        endpoint("dead", "ethereum", dead, never),
        endpoint("tron", "tron", node, api),
        gateway("eth", "ethereum", "\"up\"", ""),
        gateway("eth-failover", "ethereum", "\"dead\", \"up\"", ""),
        // Polled at the start, and not again while it is counted.
        "[[network]]\nchain = \"tiers\"\nnetwork = \"mainnet\"\npoll_interval = \"60s\"\n".to_owned(),
        endpoint("cheap", "tiers", node, "tier = \"minimal\""),
        endpoint("dear", "tiers", node, "tier = \"archive\""),
        gateway("eth-tiered", "tiers", "\"cheap\", \"dear\"", "")
            .replace("[[gateway.route]]", "[[gateway.route]]\nstrategy = \"tiered\""),
        gateway("eth-pages", "ethereum", "\"up\"", &format!("cors = {{ origins = [\"{ORIGIN}\"] }}")),
        gateway("tron", "tron", "\"tron\"", api),
    ]
    .concat()
}
