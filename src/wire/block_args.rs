//! Which blocks does a Call read, by its arguments? Read in place, for the methods whose facts say where to look.
//!
//! What a node would refuse is no fault here: it is [`BlockRef::Unreadable`], and the node says what is wrong with it.

use super::hex::Hex;
use super::json::skip_whitespace;
use super::json_text::says;
use super::params::{Elements, members, string};
use crate::logic::block::{Asked, BlockRef};
use crate::logic::facts::{Reads, UNREADABLE};

/// Digits of a hash.
const HASH_DIGITS: usize = 64;
/// Most digits of a height.
const NUMBER_DIGITS_MAX: usize = 16;
/// No node tells the fees of more blocks at once, whatever it is asked for.
const FEES_BLOCKS_MAX: u64 = 1_024;

/// Which blocks a Call reads, from the JSON text of its `params`; `None` if the method reads nothing that depends on a
/// height.
pub fn asked(reads: Reads, params: Option<&[u8]>) -> Option<Asked> {
    let args = Args { params };
    Some(match reads {
        Reads::Nothing => return None,
        Reads::State(place) | Reads::Trace(place) | Reads::Block(place) => both(args.block(place)),
        Reads::Between(place) => args.between(place),
        Reads::Bundle => both(args.bundle()),
        Reads::Logs(place) => args.range(place, BlockRef::Latest),
        // Erigon and Reth begin with the first block where nothing is said, others with the last: the most counts.
        Reads::TraceRange(place) => args.range(place, BlockRef::Earliest),
        Reads::Fees => args.fees(),
        Reads::ByHash | Reads::TraceByHash => both(BlockRef::Hash),
    })
}

fn both(block: BlockRef) -> Asked {
    Asked { oldest: block, newest: block, span: 0 }
}

/// The lower and the higher of two: numbers by themselves, `earliest` below all, and else as they were written.
fn ordered(from: BlockRef, to: BlockRef) -> Asked {
    let swapped = match (from, to) {
        (BlockRef::Number(from), BlockRef::Number(to)) => from > to,
        (from, BlockRef::Earliest) => from != BlockRef::Earliest,
        _ => false,
    };
    let (oldest, newest) = if swapped { (to, from) } else { (from, to) };
    Asked { oldest, newest, span: 0 }
}

/// What stands at a place.
enum Arg<'a> {
    /// Nothing, or `null`.
    Absent,
    /// The JSON text of a value.
    Value(&'a [u8]),
    /// The text is no array.
    Broken,
}

struct Args<'a> {
    params: Option<&'a [u8]>,
}

impl<'a> Args<'a> {
    fn at(&self, place: u8) -> Arg<'a> {
        let Some(params) = self.params else { return Arg::Absent };
        let start = skip_whitespace(params, 0);
        if params.get(start..).is_some_and(|text| text.trim_ascii_end() == b"null") {
            return Arg::Absent;
        }
        let Some(mut elements) = Elements::new(params) else { return Arg::Broken };
        for _ in 0..place {
            match elements.next_value() {
                Ok(Some(_)) => {}
                Ok(None) => return Arg::Absent,
                Err(_) => return Arg::Broken,
            }
        }
        match elements.next_value() {
            Ok(None) | Ok(Some(b"null")) => Arg::Absent,
            Ok(Some(value)) => Arg::Value(value),
            Err(_) => Arg::Broken,
        }
    }

    /// The block that is named at a place.
    fn block(&self, place: u8) -> BlockRef {
        match self.at(place) {
            Arg::Absent => BlockRef::Latest,
            Arg::Value(value) => block(value),
            Arg::Broken => BlockRef::Unreadable,
        }
    }

    fn between(&self, place: u8) -> Asked {
        let (older, newer) = (self.block(place), self.at(place.saturating_add(1)));
        match (older, newer) {
            (BlockRef::Number(number), Arg::Absent) => {
                Asked { oldest: BlockRef::Number(number.saturating_sub(1)), newest: older, span: 0 }
            }
            // A block and its parent.
            (_, Arg::Absent) => Asked { span: 1, ..both(older) },
            (_, Arg::Value(value)) => ordered(older, block(value)),
            (_, Arg::Broken) => UNREADABLE,
        }
    }

    fn bundle(&self) -> BlockRef {
        match self.at(0) {
            Arg::Value(value @ [b'{', ..]) => match members(value, [b"stateBlockNumber"]) {
                Some([Some(value)]) => flat_block(value),
                Some([None]) => BlockRef::Latest,
                None => BlockRef::Unreadable,
            },
            Arg::Broken => BlockRef::Unreadable,
            _ => self.block(1),
        }
    }

    /// Both ends of a range; `from` is where it begins if that is not said.
    fn range(&self, place: u8, from: BlockRef) -> Asked {
        let value = match self.at(place) {
            Arg::Absent => return ordered(from, BlockRef::Latest),
            Arg::Value(value) => value,
            Arg::Broken => return UNREADABLE,
        };
        let Some([from_block, to_block, hash]) = members(value, [b"fromBlock", b"toBlock", b"blockHash"]) else {
            return UNREADABLE;
        };
        match hash.filter(|hash| *hash != b"null") {
            Some(hash) if is_hash(hash) => both(BlockRef::Hash),
            Some(_) => UNREADABLE,
            None => {
                let end = |value: Option<&[u8]>, default| match value {
                    None | Some(b"null") => default,
                    Some(value) => scalar_block(value),
                };
                ordered(end(from_block, from), end(to_block, BlockRef::Latest))
            }
        }
    }

    fn fees(&self) -> Asked {
        let newest = self.block(1);
        let count = match self.at(0) {
            Arg::Value(value) => count(value),
            _ => None,
        };
        let Some(count) = count else { return UNREADABLE };
        let below = count.min(FEES_BLOCKS_MAX).saturating_sub(1);
        match newest {
            BlockRef::Number(number) => {
                Asked { oldest: BlockRef::Number(number.saturating_sub(below)), newest, span: 0 }
            }
            BlockRef::Unreadable => UNREADABLE,
            tag => Asked { span: below, ..both(tag) },
        }
    }
}

/// The block that a value names: a number, a tag, a hash, or an object with one of them (EIP-1898, and the context of
/// `eth_callMany`, whose `blockNumber` may be such an object again).
fn block(value: &[u8]) -> BlockRef {
    in_object(value, flat_block)
}

/// As [`block`], with no object in an object.
fn flat_block(value: &[u8]) -> BlockRef {
    in_object(value, scalar_block)
}

fn in_object(value: &[u8], inner: fn(&[u8]) -> BlockRef) -> BlockRef {
    if value.first() != Some(&b'{') {
        return scalar_block(value);
    }
    let Some(found) = members(value, [b"blockNumber", b"blockHash"]) else { return BlockRef::Unreadable };
    match found.map(|value| value.filter(|value| *value != b"null")) {
        [None, None] => BlockRef::Latest,
        [Some(number), None] => inner(number),
        [None, Some(hash)] if is_hash(hash) => BlockRef::Hash,
        _ => BlockRef::Unreadable,
    }
}

/// A number, a tag or a hash.
fn scalar_block(value: &[u8]) -> BlockRef {
    let Some(text) = string(value) else {
        return decimal(value).map_or(BlockRef::Unreadable, BlockRef::Number);
    };
    if text.starts_with(b"0x") {
        let number = || hex_number(text).map_or(BlockRef::Unreadable, BlockRef::Number);
        return if is_hash(value) { BlockRef::Hash } else { number() };
    }
    let tags = [
        (&b"latest"[..], BlockRef::Latest),
        (b"pending", BlockRef::Pending),
        (b"safe", BlockRef::Safe),
        (b"finalized", BlockRef::Finalized),
        (b"earliest", BlockRef::Earliest),
    ];
    let tag = tags.iter().find(|(tag, _)| says(text, tag));
    tag.map_or(BlockRef::Unreadable, |(_, block)| *block)
}

/// Whether a value is a string with a hash of 32 bytes.
fn is_hash(value: &[u8]) -> bool {
    let digits = string(value).and_then(|text| text.strip_prefix(b"0x"));
    digits.is_some_and(|digits| digits.len() == HASH_DIGITS && Hex::new(digits).is_some())
}

/// `0x` and up to sixteen digits.
pub(super) fn hex_number(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b"0x")?;
    if !(1..=NUMBER_DIGITS_MAX).contains(&digits.len()) {
        return None;
    }
    digits.iter().try_fold(0, |number, digit| Some(number << 4 | u64::from(char::from(*digit).to_digit(16)?)))
}

/// A whole number in plain digits.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    // Signs are digits to no one but the standard library.
    let digits = text.first().is_some_and(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

/// How many blocks: a quantity, a number, or a number in a string.
fn count(value: &[u8]) -> Option<u64> {
    let text = string(value).unwrap_or(value);
    hex_number(text).filter(|_| string(value).is_some()).or_else(|| decimal(text))
}
