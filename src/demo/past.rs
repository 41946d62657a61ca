//! What a node still has of the past, by its tier, and how its client says that it has not.

use super::branch::Branch;
use super::chain::{self, Hash, hex, unhex};
use super::fleet::Facts;
use crate::logic::facts::{Client, client_of};
use serde_json::Value;

/// Error of a node: code and message.
pub type Refusal = (i32, String);
/// What a node says.
pub type Answer = Result<Value, Refusal>;

/// Error code of EIP-4444: blocks that were dropped.
const PRUNED: i32 = 4444;
/// Balances and the like change every so many blocks.
const STEP: u64 = 1_000;

/// A node and its chain at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Past {
    /// The node.
    pub node: &'static Facts,
    /// What it shows.
    pub branch: Branch,
}

impl Past {
    /// A height: a tag, or a quantity.
    pub fn height(&self, param: Option<&Value>) -> Option<u64> {
        let head = self.branch.head();
        match param?.as_str()? {
            "latest" | "pending" => Some(head),
            "safe" => Some(head.saturating_sub(32)),
            "finalized" => Some(head.saturating_sub(64)),
            "earliest" => Some(0),
            text => {
                let digits = text.strip_prefix("0x").filter(|digits| !digits.starts_with('+'))?;
                u64::from_str_radix(digits, 16).ok()
            }
        }
    }

    /// The block whose state is asked for: a height, an object that names one, or the newest if nothing is said.
    ///
    /// # Errors
    /// If it is none, or if there is no such block.
    pub fn state_height(&self, param: Option<&Value>) -> Result<u64, Refusal> {
        let height = match param {
            None | Some(Value::Null) => Some(self.branch.head()),
            Some(Value::Object(named)) if named.contains_key("blockHash") => {
                let hash = hash_of(named.get("blockHash")).ok_or_else(bad_block)?;
                return self.branch.number_of(&hash).ok_or_else(|| (-32000, "header for hash not found".into()));
            }
            Some(Value::Object(named)) => self.height(named.get("blockNumber")),
            typed => self.height(typed),
        };
        let height = height.ok_or_else(bad_block)?;
        if height > self.branch.head() {
            return Err((-32000, "header not found".into()));
        }
        Ok(height)
    }

    /// Whether it has the state after this block.
    ///
    /// # Errors
    /// In its client's words, if not.
    pub fn has_state(&self, height: u64) -> Result<(), Refusal> {
        if self.depth(height) < self.node.state_blocks {
            return Ok(());
        }
        let node = hex(&chain::digest(b"trie node", &height.to_be_bytes()));
        let node = node.trim_start_matches("0x");
        Err(match client_of(self.node.client) {
            Client::Geth => (-32000, format!("missing trie node {node} (path ) state 0x{node} is not available")),
            _ => (-32000, format!("state at block #{height} is pruned")),
        })
    }

    /// The same for the state before it, which a trace runs it on.
    ///
    /// # Errors
    /// In its client's words, if not.
    pub fn has_state_before(&self, height: u64) -> Result<(), Refusal> {
        self.has_state(height.saturating_sub(1))
    }

    /// Whether it has the block's body, receipts and logs.
    ///
    /// # Errors
    /// If not.
    pub fn has_history(&self, height: u64) -> Result<(), Refusal> {
        if self.depth(height) < self.node.history_blocks {
            return Ok(());
        }
        Err((PRUNED, "pruned history unavailable".into()))
    }

    fn depth(&self, height: u64) -> u64 {
        self.branch.head().saturating_sub(height)
    }
}

/// What stands in for the state after a block: it changes now and then, and is the same at every node.
pub fn state_of(what: &[u8], whose: &[u8], height: u64) -> Hash {
    chain::digest(what, &[whose, &(height / STEP).to_be_bytes()].concat())
}

/// 32 bytes as nodes write them.
pub fn hash_of(param: Option<&Value>) -> Option<Hash> {
    unhex(param?.as_str()?)?.try_into().ok()
}

/// The answer to params that are none.
pub fn invalid(why: &str) -> Answer {
    Err((-32602, format!("invalid params: {why}")))
}

fn bad_block() -> Refusal {
    (-32602, "invalid params: the block must be a number, a tag, or an object that names one".into())
}

#[cfg(test)]
mod tests {
    use super::super::fleet::NODES;
    use super::*;
    use serde_json::json;

    fn past(node: usize) -> Past {
        Past { node: &NODES[node], branch: Branch::common(1_790_000_000) }
    }

    #[test]
    fn each_holds_what_its_tier_says() {
        let head = past(0).branch.head();
        for (depth, states) in
            [(0, [true, true, true]), (127, [true; 3]), (128, [false, true, true]), (9_999, [false, true, true])]
        {
            assert_eq!([0, 1, 2].map(|node| past(node).has_state(head - depth).is_ok()), states, "{depth}");
        }
        assert_eq!([0, 1, 2].map(|node| past(node).has_state(head - 10_000).is_ok()), [false, false, true]);
        assert_eq!([0, 1, 2].map(|node| past(node).has_state_before(head - 127).is_ok()), [false, true, true]);
        assert_eq!([0, 1, 2].map(|node| past(node).has_history(head - 1_000).is_ok()), [false, true, true]);
        assert!(past(2).has_state(0).is_ok() && past(0).has_history(head - 999).is_ok());
    }

    #[test]
    fn what_is_missing_is_said_as_the_gateway_knows_it() {
        use crate::logic::lacking::judge;
        use crate::logic::tiers::Lack;
        for (code, message) in
            [past(0).has_state(1), past(1).has_state(1), past(0).has_history(1)].map(Result::unwrap_err)
        {
            assert_eq!(judge(i64::from(code), &message, false, "eth_getBalance"), Some(Lack::State), "{message}");
        }
        assert!(past(0).has_state(1).unwrap_err().1.starts_with("missing trie node "));
    }

    #[test]
    fn a_block_is_named_in_every_way() {
        let past = past(0);
        let head = past.branch.head();
        let hash = hex(&past.branch.hash(head - 3));
        for (param, height) in [
            (None, head),
            (Some(json!("latest")), head),
            (Some(json!("safe")), head - 32),
            (Some(json!("finalized")), head - 64),
            (Some(json!("earliest")), 0),
            (Some(json!("0xf4240")), 1_000_000),
            (Some(json!({"blockNumber": "0x10"})), 16),
            (Some(json!({"blockHash": hash})), head - 3),
        ] {
            assert_eq!(past.state_height(param.as_ref()), Ok(height), "{param:?}");
        }
        for (param, code) in [
            (json!(5), -32602),
            (json!("0x+1"), -32602),
            (json!({}), -32602),
            (json!({"blockHash": "0x12"}), -32602),
            (json!({"blockHash": hex(&[7; 32])}), -32000),
            (json!(chain::quantity(head + 1)), -32000),
        ] {
            assert_eq!(past.state_height(Some(&param)).unwrap_err().0, code, "{param}");
        }
    }

    #[test]
    fn state_changes_now_and_then() {
        assert_eq!(state_of(b"balance", b"me", 5_000), state_of(b"balance", b"me", 5_999));
        assert_ne!(state_of(b"balance", b"me", 5_999), state_of(b"balance", b"me", 6_000));
        assert_ne!(state_of(b"balance", b"me", 5_000), state_of(b"balance", b"you", 5_000));
    }
}
