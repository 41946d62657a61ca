//! What does a node's error say about a signed transaction that was sent before: was the first one taken?
//!
//! Only asked after an ambiguous attempt with the same bytes. A wrong yes tells somebody that money moves
//! when it does not; a wrong no costs one look-up of the hash. So a message must be one of the known
//! wordings as a whole (no part of a longer text: `unknown transaction` holds `known transaction`, and
//! contracts choose the text of their reverts), under a code that nodes use for a refused transaction.

use super::methods::Family;

/// What an error says about the bytes that were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// The node holds exactly this transaction, in its pool or in the chain.
    AlreadyKnown,
    /// The node has seen these bytes before. It says the same of bytes that it turned down shortly before,
    /// so only a look-up tells which: a node that got a failed attempt and its repetition (one connection
    /// after the other, or two Endpoints that are one node) would confirm what it refused.
    Seen,
    /// Anything else, `nonce too low` and `replacement transaction underpriced` included: another transaction
    /// of the sender may have taken the nonce.
    Other,
}

/// One wording of one client.
struct Wording {
    /// The whole message, in lower case and without the full stop at its end.
    text: &'static str,
    code: i64,
    said: Said,
}

const fn wording(text: &'static str, code: i64, said: Said) -> Wording {
    Wording { text, code, said }
}

/// The wordings of EVM clients. Each was read in the client's source, or in an answer that it gave.
///
/// Not here, so that the look-up decides: zkSync (`known transaction. transaction with hash ... is already in
/// the system`), the caches of Tendermint chains (`tx already exists in cache`), Frontier's pools, what
/// gateways wrap around another node's text, and every bare `already exists`.
const EVM: &[Wording] = &[
    // Geth since 1.9.11 (core/txpool/errors.go, ErrAlreadyKnown: the hash is in the pool) and what derives from
    // it: bor, op-geth, BSC, coreth. Reth (rpc-eth-types, RpcPoolError::AlreadyKnown: the pool holds the hash).
    wording("already known", -32000, Said::AlreadyKnown),
    // Nethermind since 2026 (TxPoolErrorMessages.AlreadyKnown) and before (AcceptTxResult.AlreadyKnown), with
    // its code for refused transactions. AlreadyKnownTxFilter also remembers, for one block, what it rejected
    // (NethermindEth/nethermind#4148: FeeTooLow first, AlreadyKnown on the repetition).
    wording("already known", -32010, Said::Seen),
    wording("alreadyknown", -32010, Said::Seen),
    // Erigon 2 and 3 (rpc/jsonrpc/send_transaction.go: import result and reason). TxPool.IdHashKnown also finds
    // the hash in the list of discarded transactions.
    wording("already_exists: already known", -32000, Said::Seen),
    // Besu (RpcErrorType.ETH_SEND_TX_ALREADY_KNOWN: the pool holds it).
    wording("known transaction", -32000, Said::AlreadyKnown),
    // anvil (eth/error/mod.rs, PoolError::AlreadyImported as transaction_rejected).
    wording("transaction already imported", -32003, Said::AlreadyKnown),
    // OpenEthereum and Parity (rpc helpers/errors.rs, TRANSACTION_ERROR: in the pool or in the chain).
    wording("transaction with the same hash was already imported", -32010, Said::AlreadyKnown),
];

/// Geth before 1.9.11 and what derives from it (core/tx_pool.go), Hardhat 2 (node/TxPool.ts): the hash in
/// hexadecimal follows.
const WITH_HASH: Wording = wording("known transaction: ", -32000, Said::AlreadyKnown);

/// Solana and Agave: the preflight check found the signature in the bank's status cache
/// (custom_error.rs, SEND_TRANSACTION_PREFLIGHT_FAILURE; TransactionError::AlreadyProcessed).
const SOLANA: [Wording; 1] =
    [wording("transaction simulation failed: this transaction has already been processed", -32002, Said::AlreadyKnown)];

/// Judges a JSON-RPC error (its message without JSON escapes) that answered bytes which had been sent before.
pub fn judge_error(family: Family, code: i64, message: &str) -> Said {
    let message = message.trim_ascii();
    let message = message.strip_suffix('.').unwrap_or(message);
    let wordings: &[Wording] = match family {
        Family::Evm => EVM,
        Family::Solana => &SOLANA,
        // Its JSON-RPC takes no signed transactions.
        Family::Tron => &[],
    };
    for wording in wordings {
        if wording.code == code && message.eq_ignore_ascii_case(wording.text) {
            return wording.said;
        }
    }
    if family == Family::Evm && code == WITH_HASH.code && names_a_hash(message) {
        return WITH_HASH.said;
    }
    Said::Other
}

/// Whether the message is [`WITH_HASH`] and a whole hash.
fn names_a_hash(message: &str) -> bool {
    let Some((text, hash)) = message.split_at_checked(WITH_HASH.text.len()) else { return false };
    let hash = hash.strip_prefix("0x").unwrap_or(hash);
    text.eq_ignore_ascii_case(WITH_HASH.text) && hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Judges an answer of TRON's HTTP API, `{"code":"...","message":"...","txid":"..."}`, to a broadcast that had
/// been sent before. Without `visible` the message is in hexadecimal; both forms are read.
///
/// java-tron (Wallet.broadcastTransaction) has one code for two findings: `Dup transaction.` when its store
/// holds the transaction, `Transaction already exists.` when its cache of ids holds it, which it fills before
/// it checks signature, balance and expiry.
pub fn judge_tron_broadcast(code: &str, message: &str) -> Said {
    match (code, message) {
        ("DUP_TRANSACTION_ERROR", "Dup transaction." | "447570207472616e73616374696f6e2e") => Said::AlreadyKnown,
        ("DUP_TRANSACTION_ERROR", _) => Said::Seen,
        _ => Said::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "608f9e3b4bb0a4fd63a8162b5cbee34c723093797b462c2a2f953dc251713d54";

    fn evm(code: i64, message: &str) -> Said {
        judge_error(Family::Evm, code, message)
    }

    #[test]
    fn a_node_that_holds_the_transaction_is_believed() {
        for (code, message) in [
            (-32000, "already known"),
            (-32000, "Already Known"),
            (-32000, " already known\n"),
            (-32000, "Known transaction"),
            (-32003, "transaction already imported"),
            (-32010, "Transaction with the same hash was already imported."),
        ] {
            assert_eq!(evm(code, message), Said::AlreadyKnown, "{code} {message}");
        }
        assert_eq!(evm(-32000, &format!("known transaction: {HASH}")), Said::AlreadyKnown);
        assert_eq!(evm(-32000, &format!("Known transaction: 0x{HASH}")), Said::AlreadyKnown);
    }

    #[test]
    fn a_node_that_remembers_what_it_refused_is_asked_again() {
        assert_eq!(evm(-32010, "AlreadyKnown"), Said::Seen);
        assert_eq!(evm(-32010, "already known"), Said::Seen);
        assert_eq!(evm(-32000, "ALREADY_EXISTS: already known"), Said::Seen);
    }

    #[test]
    fn what_only_resembles_it_is_something_else() {
        for message in [
            "",
            ".",
            "known",
            "unknown transaction",
            "unknown transaction type",
            "Unknown transaction: 0x03",
            "known transaction: ",
            "known transaction: 0x",
            "known transaction: 608f9e3b",
            "Known transaction (3b7baba5)",
            "known transactions",
            "block already known",
            "nonce already known",
            "not already known",
            "already known nonce",
            "already known..",
            "execution reverted: already known",
            "ALREADY_EXISTS: could not replace existing tx",
            "ALREADY_EXISTS",
            "already exists",
            "tx already exists in cache",
            "nonce too low",
            "nonce too low: next nonce 8, tx nonce 7",
            "OldNonce, Current nonce: 8, nonce of rejected tx: 7",
            "replacement transaction underpriced",
            "ReplacementNotAllowed",
            "could not replace existing tx",
            "transaction underpriced",
            "insufficient funds for gas * price + value",
            "INTERNAL_ERROR: insufficient funds",
            "Transaction nonce is too low. Try incrementing the nonce.",
            "There is another transaction with same nonce in the queue",
            "This transaction has already been processed",
            "Transaction simulation failed: This transaction has already been processed",
        ] {
            for code in [-32000, -32003, -32010, -32002, -32603] {
                assert_eq!(evm(code, message), Said::Other, "{code} {message}");
            }
        }
        assert_eq!(evm(-32000, &format!("unknown transaction: {HASH}")), Said::Other);
        assert_eq!(evm(-32000, &format!("known transaction: {HASH}00")), Said::Other);
        assert_eq!(evm(-32000, &format!("known transaction: {}g", &HASH[1..])), Said::Other);
    }

    #[test]
    fn the_code_must_be_one_that_the_wording_comes_with() {
        for code in [3, 0, 4001, -1, -32700, -32600, -32601, -32602, -32005, -32029, i64::MIN, i64::MAX] {
            for wording in EVM {
                assert_eq!(evm(code, wording.text), Said::Other, "{code} {}", wording.text);
            }
        }
    }

    #[test]
    fn solana_says_it_after_its_preflight_check() {
        let said = "Transaction simulation failed: This transaction has already been processed";
        assert_eq!(judge_error(Family::Solana, -32002, said), Said::AlreadyKnown);
        assert_eq!(judge_error(Family::Solana, -32003, said), Said::Other);
        for message in [
            "Transaction simulation failed: Blockhash not found",
            "Transaction simulation failed: Error processing Instruction 0: custom program error: 0x1",
            "Transaction simulation failed: Attempt to load a program that does not exist",
            "Program log: This transaction has already been processed",
            "This transaction has not already been processed",
            "already known",
        ] {
            assert_eq!(judge_error(Family::Solana, -32002, message), Said::Other, "{message}");
        }
    }

    #[test]
    fn tron_has_one_code_for_two_findings() {
        for (message, said) in [
            ("Dup transaction.", Said::AlreadyKnown),
            ("447570207472616e73616374696f6e2e", Said::AlreadyKnown),
            ("Transaction already exists.", Said::Seen),
            ("5472616e73616374696f6e20616c7265616479206578697374732e", Said::Seen),
            ("", Said::Seen),
        ] {
            assert_eq!(judge_tron_broadcast("DUP_TRANSACTION_ERROR", message), said, "{message}");
            for code in ["", "SIGERROR", "OTHER_ERROR", "dup_transaction_error", "TRANSACTION_EXPIRATION_ERROR"] {
                assert_eq!(judge_tron_broadcast(code, message), Said::Other, "{code} {message}");
            }
        }
        assert_eq!(judge_error(Family::Tron, -32000, "already known"), Said::Other);
    }

    #[test]
    fn nothing_around_or_inside_a_wording_is_overlooked() {
        for Wording { text, code, .. } in EVM {
            for at in 0..=text.len() {
                for letter in "abcdefghijklmnopqrstuvwxyz0123456789 :".chars() {
                    let changed = format!("{}{letter}{}", &text[..at], &text[at..]);
                    // Whitespace at the ends, and what makes one wording of another, is meant.
                    if !EVM.iter().any(|wording| wording.text == changed.trim()) {
                        assert_eq!(evm(*code, &changed), Said::Other, "{changed}");
                    }
                }
            }
        }
    }
}
