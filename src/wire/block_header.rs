//! From a block as `eth_getBlockByNumber` shows it to the few numbers that a tracker needs.

use super::block_args::hex_number;
use super::hex::Hex;
use super::params::{members, string};
use crate::logic::block::{Hash, Header};

/// `0x` and sixteen digits.
const QUANTITY_MAX: usize = 18;

/// Reads a block's head; `None` if it is `null`, or any of the four is missing or odd: such a sample says nothing.
pub fn header(block: &[u8]) -> Option<Header> {
    let [number, hash, parent, timestamp] = members(block, [b"number", b"hash", b"parentHash", b"timestamp"])?;
    Some(Header {
        number: quantity(number?)?,
        hash: hash32(hash?)?,
        parent: hash32(parent?)?,
        timestamp_s: quantity(timestamp?)?,
    })
}

/// `"0x1b4"`: a quantity of at most 64 bits, in at most sixteen digits.
pub fn quantity(value: &[u8]) -> Option<u64> {
    string(value).filter(|text| text.len() <= QUANTITY_MAX).and_then(hex_number)
}

/// 32 bytes as `"0x…"`.
pub fn hash32(value: &[u8]) -> Option<Hash> {
    let hex = Hex::new(string(value)?.strip_prefix(b"0x")?)?;
    let mut hash = Hash::default();
    if hex.len() != hash.len() {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = hex.byte(at)?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(number: &str, hash: &str, parent: &str, timestamp: &str) -> String {
        format!(
            r#"{{"number":{number},"hash":{hash},"parentHash":{parent},"timestamp":{timestamp},"transactions":[]}}"#
        )
    }

    #[test]
    fn a_head_is_read_and_nothing_half_of_one() {
        let (one, two) = (format!("\"0x{}\"", "0a".repeat(32)), format!("\"0x{}\"", "FF".repeat(32)));
        let whole = block("\"0x1b4\"", &one, &two, "\"0x55ba467c\"");
        let right = Header { number: 436, hash: [10; 32], parent: [255; 32], timestamp_s: 0x55ba_467c };
        assert_eq!(header(whole.as_bytes()), Some(right));
        let largest = block("\"0xffffffffffffffff\"", &one, &two, "\"0x0\"");
        assert_eq!(header(largest.as_bytes()).map(|head| head.number), Some(u64::MAX));
        for bad in ["null", "7", "\"1b4\"", "\"0x\"", "\"0x10000000000000000\"", "\"0xg\"", "{}"] {
            assert_eq!(header(block(bad, &one, &two, "\"0x0\"").as_bytes()), None, "{bad}");
            assert_eq!(header(block("\"0x1\"", bad, &two, "\"0x0\"").as_bytes()), None, "{bad}");
            assert_eq!(header(block("\"0x1\"", &one, bad, "\"0x0\"").as_bytes()), None, "{bad}");
            assert_eq!(header(block("\"0x1\"", &one, &two, bad).as_bytes()), None, "{bad}");
        }
        for no_block in ["null", "[]", "\"0x1\"", "{}", "", "{\"number\":\"0x1\"}"] {
            assert_eq!(header(no_block.as_bytes()), None, "{no_block}");
        }
    }
}
