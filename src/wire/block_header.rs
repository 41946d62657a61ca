//! From a block as `eth_getBlockByNumber` shows it to the few numbers that a tracker needs.

use super::params::{members, string};
use crate::logic::block::{Hash, Header};

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

/// `"0x1b4"`: a quantity of at most 64 bits.
pub fn quantity(value: &[u8]) -> Option<u64> {
    let digits = string(value)?.strip_prefix(b"0x")?;
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0, |number: u64, digit| Some(number << 4 | u64::from(nibble(*digit)?)))
}

/// 32 bytes as `"0x…"`.
pub fn hash32(value: &[u8]) -> Option<Hash> {
    let digits: &[u8; 64] = string(value)?.strip_prefix(b"0x")?.try_into().ok()?;
    let mut hash = [0; 32];
    for (byte, [high, low]) in hash.iter_mut().zip(digits.as_chunks::<2>().0) {
        *byte = nibble(*high)? << 4 | nibble(*low)?;
    }
    Some(hash)
}

fn nibble(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
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
