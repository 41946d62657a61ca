//! Whether a node's error says that this node lacks something which another one may have: the state, or the method.
//!
//! The words are those of the clients' own sources: Geth (`missing trie node`, `header not found`, `required historical
//! state unavailable`, `historical state … is not available`, `the method … does not exist/is not available`), Reth
//! (`state at block #… is pruned`, `block not found`), Erigon (`pruned`), Nethermind (`No state available for block`),
//! Besu (`World state unavailable`, `Unknown block`), and error 4444 of EIP-4444 (`pruned history unavailable`).

use super::tiers::Lack;

/// What the chain was asked for is not there: any of these words, whatever their case.
const STATE: [&str; 13] = [
    "missing trie node",
    "header not found",
    "block not found",
    "header for hash not found",
    "unknown block",
    "state is not available",
    "state not available",
    "state unavailable",
    "no state available",
    "historical state",
    "is pruned",
    "pruned history",
    "state pruned",
];
/// Code of EIP-4444: history that was dropped.
const PRUNED_HISTORY: i64 = 4444;
/// Method not found.
const NO_METHOD: i64 = -32601;
/// Nethermind's code of a Call that failed while it ran: what the contract says.
const VM_ERROR: i64 = -32015;
/// Longest text that is looked at: a node says such things briefly, and a revert may carry a caller's own words.
const TEXT_MAX: usize = 512;

/// Whether an error that lacks the method says so surely enough to be remembered: by its code, or by the method's name.
pub fn is_sure(code: i64, message: &str, method: &str) -> bool {
    code == NO_METHOD || names(message, method)
}

/// What an error to a stateless query lacks; `None` = it is an answer. `by_hash`: it asked for what a hash names, so
/// that a node that found nothing may have dropped it. `method`: its name.
pub fn judge(code: i64, message: &str, by_hash: bool, method: &str) -> Option<Lack> {
    if code == NO_METHOD {
        return Some(Lack::Method);
    }
    // A revert's reason is the contract's, and who refuses an argument repeats it: both may say anything.
    if matches!(code, 3 | VM_ERROR | -32700 | -32602 | -32600) || says(message, "revert") {
        return None;
    }
    // By its name, or in these words alone: a contract may say that it lacks some method of its own.
    if names(message, method) || message.trim_end_matches('.').eq_ignore_ascii_case("method not found") {
        return Some(Lack::Method);
    }
    if code == PRUNED_HISTORY || STATE.iter().any(|words| says(message, words)) {
        return Some(Lack::State);
    }
    (by_hash && says(message, "not found") && !says(message, "method")).then_some(Lack::Null)
}

fn names(message: &str, method: &str) -> bool {
    ["does not exist", "not found"].iter().any(|words| says(message, words))
        && says(message, &format!("method {method}"))
}

fn says(message: &str, words: &str) -> bool {
    let text = message.as_bytes();
    let text = text.get(..TEXT_MAX).unwrap_or(text);
    text.windows(words.len()).any(|part| part.eq_ignore_ascii_case(words.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_say_in_their_own_words_that_they_lack_the_state() {
        for (code, message) in [
            (-32000, "missing trie node 5c0ee75d (path ) state 0xab is not available, not found"),
            (-32000, "header not found"),
            (-32000, "required historical state unavailable (reexec=128)"),
            (-32000, "historical state 0xab is not available"),
            (-32000, "state at block #7 is pruned"),
            (-32001, "block not found: 0x7"),
            (-32000, "Unknown block"),
            (-32002, "No state available for block 0xab"),
            (-32000, "World state unavailable"),
            (4444, "pruned history unavailable"),
            (4444, ""),
        ] {
            assert_eq!(judge(code, message, true, "trace_block"), Some(Lack::State), "{message}");
        }
    }

    #[test]
    fn and_that_they_lack_the_method() {
        for (code, message) in [
            (-32601, "the method trace_block does not exist/is not available"),
            (-32601, ""),
            (-32000, "Method not found"),
            (-32000, "Method not found."),
            (-32004, "Method trace_block not found"),
            (-32000, "the method trace_block does not exist/is not available"),
        ] {
            assert_eq!(judge(code, message, true, "trace_block"), Some(Lack::Method), "{message}");
        }
    }

    #[test]
    fn only_the_code_or_the_name_is_remembered() {
        assert!(is_sure(-32601, "", "eth_call") && is_sure(-32000, "the method eth_call does not exist", "eth_call"));
        for message in ["Method not found", "Method not found: eth_callMe()", "the method transfer does not exist"] {
            assert!(!is_sure(-32000, message, "eth_call"), "{message}");
        }
    }

    #[test]
    fn what_a_hash_names_and_a_node_does_not_find_may_be_found_in_a_longer_past() {
        for message in ["transaction not found", "transaction 0xab not found", "Block not found"] {
            let lack = judge(-32000, message, true, "eth_getTransactionByHash");
            assert!(matches!(lack, Some(Lack::Null | Lack::State)), "{message}: {lack:?}");
        }
        assert_eq!(judge(-32000, "transaction not found", false, "eth_call"), None);
        assert_eq!(judge(3, "execution reverted: not found", true, "eth_call"), None);
    }

    #[test]
    fn everything_else_is_an_answer() {
        let long = format!("{}missing trie node", "x".repeat(600));
        for (code, message) in [
            (3, "execution reverted: missing trie node"),
            (-32000, "execution reverted: header not found"),
            (-32000, "insufficient funds for gas * price + value"),
            (-32602, "invalid argument 0: json: cannot unmarshal"),
            (-32602, "invalid argument 0: unknown variant `missing trie node`"),
            (-32000, "Method not found: transfer()"),
            (-32000, "the method transfer does not exist"),
            (-32015, "method not found"),
            (-32015, "VM execution error: state not available"),
            (-32005, "query returned more than 10000 results"),
            (-32000, "nonce too low"),
            (-32000, ""),
            (-32000, &long),
        ] {
            assert_eq!(judge(code, message, false, "eth_call"), None, "{message}");
        }
    }
}
