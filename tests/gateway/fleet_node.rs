//! Nodes with a chain: each shows its own view of one, keeps so much of the past, has the methods of its client, and
//! can be told to mine, to re-organise, to stand still, to fall back, or to lie.

use super::harness::{Reply, Seen, Upstream};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The newest block at first.
pub const TIP: u64 = 10_000;
/// The branch that all are on at first.
pub const MAIN: u64 = 1;
/// Callers' Calls carry this header, which crosses as it is; what has none is the gateway's own.
pub const MARK: &str = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The hash of a block, which says of itself which one it is.
pub fn hash(branch: u64, number: u64) -> String {
    format!("0x{number:016x}{:036x}{branch:012x}", 7)
}

/// The hash of the one transaction in it.
pub fn transaction(branch: u64, number: u64) -> String {
    format!("0x{number:016x}{:036x}{branch:012x}", 9)
}

/// The branch and the number that a hash speaks of.
pub fn read_hash(hash: &str) -> Option<(u64, u64)> {
    let number = u64::from_str_radix(hash.get(2..18)?, 16).ok()?;
    Some((u64::from_str_radix(hash.get(54..66)?, 16).ok()?, number))
}

/// A chain as one node sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Its newest block.
    pub tip: u64,
    /// Where branches begin: the first block of each, in order.
    pub forks: Vec<(u64, u64)>,
}

impl Default for View {
    fn default() -> View {
        View { tip: TIP, forks: vec![] }
    }
}

impl View {
    /// On which branch a block is.
    pub fn branch(&self, number: u64) -> u64 {
        self.forks.iter().rev().find(|(first, _)| *first <= number).map_or(MAIN, |(_, branch)| *branch)
    }

    /// The hash at a height.
    pub fn hash(&self, number: u64) -> String {
        hash(self.branch(number), number)
    }

    /// Whether it has this very block.
    pub fn has(&self, (branch, number): (u64, u64)) -> bool {
        number <= self.tip && self.branch(number) == branch
    }

    /// More blocks on top.
    pub fn mine(&mut self, blocks: u64) {
        self.tip += blocks;
    }

    /// The newest blocks are others now, of another branch; the height stays.
    pub fn reorg(&mut self, depth: u64, branch: u64) {
        let first = self.tip + 1 - depth;
        self.forks.retain(|(start, _)| *start < first);
        self.forks.push((first, branch));
    }

    /// The newest blocks are gone.
    pub fn rollback(&mut self, blocks: u64) {
        self.tip -= blocks;
        self.forks.retain(|(start, _)| *start <= self.tip);
    }
}

/// How a node treats what it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mood {
    /// It answers.
    #[default]
    Well,
    /// 500.
    Broken,
    /// It closes the connection without a word.
    Closes,
    /// It says nothing.
    Hangs,
    /// An error of its own: it lives, and will not say.
    Refuses,
}

/// What a node answers to callers' Calls of one method, in place of what its chain says.
#[derive(Clone)]
pub enum Answer {
    /// A result.
    Result(String),
    /// An error.
    Error(String),
    /// Whatever it likes.
    Reply(Reply),
}

/// Everything that can be set.
pub struct State {
    /// The chain.
    pub view: View,
    /// What the gateway is shown as its newest block, in JSON.
    pub head: Option<String>,
    /// What callers are shown in place of the chain.
    pub lie: Option<View>,
    /// What it says of its software.
    pub client: String,
    /// And of its chain.
    pub chain_id: u64,
    /// And of its namespaces: `None` = it lacks `rpc_modules`.
    pub modules: Option<Vec<&'static str>>,
    /// Names, or beginnings of names, that it lacks.
    pub lacks: Vec<String>,
    /// The oldest block whose state it has.
    pub state_from: u64,
    /// The oldest block that it has.
    pub history_from: u64,
    /// How it treats the gateway's own questions.
    pub polls: Mood,
    /// How long it takes over each of them.
    pub away: Duration,
    /// The one of them that it never answers.
    pub deaf_to: &'static str,
    /// How it treats callers' Calls.
    pub calls: Mood,
    /// By method.
    pub answers: HashMap<String, Answer>,
    /// How often it was asked for its newest block, and when it answered last.
    pub polled: Vec<Instant>,
}

/// One Call of a caller that reached a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    /// The node's letter, which is its Endpoint's id.
    pub node: char,
    /// The method.
    pub method: String,
}

/// What callers' Calls reached, over all nodes, in order.
pub type Journal = Arc<Mutex<Vec<Reached>>>;

/// A node.
pub struct Node {
    /// Where it listens.
    pub upstream: Upstream,
    state: Arc<Mutex<State>>,
}

impl Node {
    /// Starts one that has all of the past and every method.
    pub fn start(letter: char, client: &str, journal: &Journal) -> Node {
        let state = Arc::new(Mutex::new(State {
            view: View::default(),
            head: None,
            lie: None,
            client: client.to_owned(),
            chain_id: 1,
            modules: None,
            lacks: vec![],
            state_from: 0,
            history_from: 0,
            polls: Mood::Well,
            away: Duration::ZERO,
            deaf_to: "",
            calls: Mood::Well,
            answers: HashMap::new(),
            polled: vec![],
        }));
        let (shared, journal) = (state.clone(), journal.clone());
        let upstream = Upstream::start(move |seen| {
            let json = seen.json();
            let method = json["method"].as_str().unwrap_or_default();
            let called = seen.header("traceparent").is_some();
            if called {
                journal.lock().unwrap().push(Reached { node: letter, method: method.to_owned() });
            }
            if !called {
                let away = shared.lock().unwrap().away;
                std::thread::sleep(away);
            }
            let mut state = shared.lock().unwrap();
            if !called && state.deaf_to == method {
                return Reply::hang();
            }
            match if called { state.calls } else { state.polls } {
                Mood::Well => {}
                Mood::Broken => return Reply::json(500, "no"),
                Mood::Closes => return Reply::close(),
                Mood::Hangs => return Reply::hang(),
                Mood::Refuses => return Reply::error(seen, 200, r#"{"code":-32000,"message":"not now"}"#),
            }
            if called {
                state.called(seen, method, &json["params"])
            } else {
                state.polled(seen, method, &json["params"])
            }
        });
        Node { upstream, state }
    }

    /// Changes what it is.
    pub fn set<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        change(&mut self.state.lock().unwrap())
    }

    /// Changes its chain.
    pub fn chain(&self, change: impl FnOnce(&mut View)) {
        self.set(|state| change(&mut state.view));
    }

    /// Fixes what callers are answered.
    pub fn answer(&self, method: &str, answer: Answer) {
        self.set(|state| state.answers.insert(method.to_owned(), answer));
    }

    /// Fixes an error.
    pub fn error(&self, method: &str, code: i64, message: &str) {
        self.answer(method, Answer::Error(format!(r#"{{"code":{code},"message":"{message}"}}"#)));
    }
}

impl State {
    /// What the gateway asks for itself.
    fn polled(&mut self, seen: &Seen, method: &str, params: &serde_json::Value) -> Reply {
        match method {
            "eth_getBlockByNumber" => {
                if params[0] == "latest" {
                    self.polled.push(Instant::now());
                    if let Some(head) = &self.head {
                        return Reply::result(seen, head);
                    }
                }
                let number = self.height(&self.view, &params[0]);
                Reply::result(seen, &self.block(&self.view, number))
            }
            "eth_chainId" => Reply::result(seen, &format!("\"{:#x}\"", self.chain_id)),
            "web3_clientVersion" => Reply::result(seen, &format!("\"{}\"", self.client)),
            "rpc_modules" if self.modules.is_some() => {
                let modules = self.modules.iter().flatten().map(|name| format!("\"{name}\":\"1.0\""));
                Reply::result(seen, &format!("{{{}}}", modules.collect::<Vec<_>>().join(",")))
            }
            _ => Reply::error(seen, 200, r#"{"code":-32601,"message":"no such method"}"#),
        }
    }

    fn called(&self, seen: &Seen, method: &str, params: &serde_json::Value) -> Reply {
        let lacking = |name: &String| method == *name || (name.ends_with('_') && method.starts_with(name.as_str()));
        if self.lacks.iter().any(lacking) {
            let text = format!("the method {method} does not exist/is not available");
            return Reply::error(seen, 200, &format!(r#"{{"code":-32601,"message":"{text}"}}"#));
        }
        match self.answers.get(method) {
            Some(Answer::Result(result)) => return Reply::result(seen, result),
            Some(Answer::Error(error)) => return Reply::error(seen, 200, error),
            Some(Answer::Reply(reply)) => return reply.clone(),
            None => {}
        }
        let view = self.lie.as_ref().unwrap_or(&self.view);
        let height = |at: usize| self.height(view, &params[at]);
        match method {
            "eth_blockNumber" => Reply::result(seen, &format!("\"{:#x}\"", view.tip)),
            "eth_getBlockByNumber" => Reply::result(seen, &self.block(view, height(0))),
            "eth_getBlockReceipts" if params[0].as_str().is_some_and(|text| text.len() == 66) => {
                Reply::result(seen, &self.by_hash(view, &params[0], |own, at| own.receipts(view, at)))
            }
            "eth_getBlockReceipts" => Reply::result(seen, &self.receipts(view, height(0))),
            "eth_getBlockByHash" => Reply::result(seen, &self.by_hash(view, &params[0], |own, at| own.block(view, at))),
            "eth_getTransactionByHash" | "eth_getTransactionReceipt" => {
                Reply::result(seen, &self.by_hash(view, &params[0], |_, at| inside(view, at)))
            }
            "eth_getLogs" => Reply::result(seen, &self.logs(view, &params[0])),
            "eth_call" | "eth_getBalance" | "eth_getCode" if height(1) < self.state_from => {
                Reply::error(seen, 200, r#"{"code":-32000,"message":"missing trie node 5c0ee75d (path ) <nil>"}"#)
            }
            _ => Reply::result(seen, &format!("\"{:#x}\"", view.tip)),
        }
    }

    /// The height that an argument names.
    fn height(&self, view: &View, block: &serde_json::Value) -> u64 {
        match block.as_str() {
            Some("earliest") => 0,
            Some("safe" | "finalized") => view.tip.saturating_sub(64),
            Some(text) => u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or(view.tip),
            None => view.tip,
        }
    }

    fn holds(&self, view: &View, number: u64) -> bool {
        (self.history_from..=view.tip).contains(&number)
    }

    fn block(&self, view: &View, number: u64) -> String {
        if !self.holds(view, number) {
            return "null".to_owned();
        }
        let (own, parent) = (view.hash(number), view.hash(number.saturating_sub(1)));
        format!(
            r#"{{"number":"{number:#x}","hash":"{own}","parentHash":"{parent}","timestamp":"{:#x}","transactions":["{}"]}}"#,
            number * 12,
            transaction(view.branch(number), number)
        )
    }

    fn receipts(&self, view: &View, number: u64) -> String {
        if self.holds(view, number) { format!("[{}]", inside(view, number)) } else { "null".to_owned() }
    }

    fn by_hash(&self, view: &View, hash: &serde_json::Value, found: impl Fn(&State, u64) -> String) -> String {
        let block = hash.as_str().and_then(read_hash).filter(|block| view.has(*block) && self.holds(view, block.1));
        block.map_or("null".to_owned(), |(_, number)| found(self, number))
    }

    fn logs(&self, view: &View, filter: &serde_json::Value) -> String {
        if filter.get("blockHash").is_some() {
            let one = self.by_hash(view, &filter["blockHash"], |_, at| inside(view, at));
            return if one == "null" { "[]".to_owned() } else { format!("[{one}]") };
        }
        let (from, to) = (self.height(view, &filter["fromBlock"]), self.height(view, &filter["toBlock"]));
        let all = (from.max(self.history_from)..=to.min(view.tip)).take(16).map(|number| inside(view, number));
        format!("[{}]", all.collect::<Vec<_>>().join(","))
    }
}

/// A transaction, receipt or log in a block.
fn inside(view: &View, number: u64) -> String {
    let (block, own) = (view.hash(number), transaction(view.branch(number), number));
    format!(
        r#"{{"blockNumber":"{number:#x}","blockHash":"{block}","transactionHash":"{own}","hash":"{own}","logIndex":"0x0","removed":false}}"#
    )
}
