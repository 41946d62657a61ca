//! The one chain of all healthy nodes: a pure function of the time, so that they agree without talking.
//!
//! What a single node shows of it, or instead of it, is its `branch`. Hashes are made up (no Keccak), but consistent: the same block has the same hash at every node and in
//! every run, and each block names its parent.

use serde_json::{Value, json};

/// A block every so many seconds.
pub const BLOCK_TIME_S: u64 = 2;
/// What `eth_chainId` says: the number that development chains use.
pub const CHAIN_ID: u64 = 1337;
/// The moment of block 0: 1 January 2025.
const GENESIS_S: u64 = 1_735_689_600;

/// A hash.
pub type Hash = [u8; 32];

/// The newest block at this time (seconds since 1970).
pub fn head(now_s: u64) -> u64 {
    now_s.saturating_sub(GENESIS_S) / BLOCK_TIME_S
}

/// The hash of a block. Its first eight bytes hold the number, scrambled so that it can be found again; `salt` tells
/// the blocks of different chains apart.
pub fn hash(salt: &str, number: u64) -> Hash {
    let mut hash = digest(salt.as_bytes(), &number.to_be_bytes());
    hash[..8].copy_from_slice(&scramble(number).to_be_bytes());
    hash
}

/// The number of the block with this hash, if it is the hash of a block.
pub fn number_in(hash: &Hash) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *hash;
    unscramble(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
}

/// A block as `eth_getBlockByNumber` shows it; it holds no transactions.
pub fn block(number: u64, hash: &Hash, parent: &Hash) -> Value {
    let part = |name: &str| hex(&digest(name.as_bytes(), hash));
    json!({
        "number": quantity(number),
        "hash": hex(hash),
        "parentHash": hex(parent),
        "timestamp": quantity(GENESIS_S.saturating_add(number.saturating_mul(BLOCK_TIME_S))),
        "miner": "0x0000000000000000000000000000000000000000",
        "gasLimit": quantity(36_000_000),
        "gasUsed": "0x0",
        "baseFeePerGas": quantity(gas_price(number)),
        "difficulty": "0x0",
        "extraData": "0x72696e67776179", // ringway
        "logsBloom": format!("0x{}", "0".repeat(512)),
        "mixHash": part("mix"),
        "nonce": "0x0000000000000000",
        "receiptsRoot": part("receipts"),
        "sha3Uncles": part("uncles"),
        "size": "0x21d",
        "stateRoot": part("state"),
        "transactionsRoot": part("transactions"),
        "transactions": [],
        "uncles": [],
    })
}

/// The base fee of a block in wei: 1 to 2 gwei.
pub fn gas_price(number: u64) -> u64 {
    1_000_000_000 + scramble(number) % 1_000_000_000
}

/// 32 bytes that depend on every byte given. Not cryptographic: this is a simulation.
pub fn digest(salt: &[u8], bytes: &[u8]) -> Hash {
    let mut out = [0; 32];
    for (lane, word) in (0u64..).zip(out.as_chunks_mut::<8>().0) {
        let seed = mix(lane ^ 0x5349_4d55_4c41_5445);
        let sum = salt
            .iter()
            .chain(&[0xff])
            .chain(bytes)
            .fold(seed, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23));
        *word = mix(sum).to_be_bytes();
    }
    out
}

/// The finaliser of splitmix64.
fn mix(mut word: u64) -> u64 {
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

fn scramble(number: u64) -> u64 {
    (number ^ FACTOR).wrapping_mul(FACTOR)
}

fn unscramble(word: u64) -> u64 {
    word.wrapping_mul(inverse(FACTOR)) ^ FACTOR
}

/// The inverse of an odd number modulo 2^64, by Newton's method: each step doubles the right bits.
const fn inverse(odd: u64) -> u64 {
    let mut inverse = odd;
    let mut step = 0;
    while step < 6 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
}

/// A number as nodes write it.
pub fn quantity(number: u64) -> String {
    format!("{number:#x}")
}

/// Bytes as nodes write them.
pub fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 + 2 * bytes.len());
    out.push_str("0x");
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            out.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
    out
}

/// Bytes from `0x` and an even number of hex digits.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.strip_prefix("0x")?.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_moves_with_the_clock() {
        assert_eq!(head(0), 0);
        assert_eq!(head(GENESIS_S + 9), 4);
        assert_eq!(head(GENESIS_S + 10), 5);
    }

    #[test]
    fn hashes_are_the_same_always_and_differ_from_each_other() {
        assert_eq!(hash("block", 27_000_000), hash("block", 27_000_000));
        assert_ne!(hash("block", 27_000_000), hash("other", 27_000_000));
        let all: std::collections::HashSet<Hash> = (0..10_000).map(|number| hash("block", number)).collect();
        assert_eq!(all.len(), 10_000);
        assert_ne!(digest(b"a", b"bc"), digest(b"ab", b"c"));
    }

    #[test]
    fn a_hash_holds_its_number() {
        for number in [0, 1, 7, 27_000_000, u64::MAX] {
            assert_eq!(number_in(&hash("block", number)), number);
        }
    }

    #[test]
    fn hex_goes_there_and_back() {
        assert_eq!(unhex("0x"), Some(vec![]));
        assert_eq!(unhex(&hex(&[0, 0xab, 255])), Some(vec![0, 0xab, 255]));
        for bad in ["", "0", "ab", "0xa", "0xgg", "0x+1", "0Xab", "0xé"] {
            assert_eq!(unhex(bad), None, "{bad}");
        }
    }
}
