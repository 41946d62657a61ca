//! Which blocks does a Call read, by its arguments? Read in place, for the methods whose facts say where to look.
//!
//! What a node would refuse is no fault here: it is [`BlockRef::Unreadable`], and the node says what is wrong with it.

use super::hex::Hex;
use super::json::skip_whitespace;
use super::json_text::says;
use super::params::{Elements, arguments, string};
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
            Arg::Value(value @ [b'{', ..]) => match arguments(value, [b"stateBlockNumber"]) {
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
        let Some([from_block, to_block, hash]) = arguments(value, [b"fromBlock", b"toBlock", b"blockHash"]) else {
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
    let Some(found) = arguments(value, [b"blockNumber", b"blockHash"]) else { return BlockRef::Unreadable };
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

/// `0x` and up to sixteen digits, and zeros in front, which some nodes take.
pub(super) fn hex_number(text: &[u8]) -> Option<u64> {
    let all = text.strip_prefix(b"0x").filter(|digits| !digits.is_empty())?;
    let zeros = all.iter().take_while(|digit| **digit == b'0').count();
    let digits = all.get(zeros..).filter(|digits| digits.len() <= NUMBER_DIGITS_MAX)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    const HASH: &str = "0x88e96d4537bea4d9c05d12549907b32561d3bf31f45aae734cdc119f13406cb6";
    const UNREADABLE_BOTH: BlockRef = BlockRef::Unreadable;

    #[track_caller]
    fn one(reads: Reads, params: &str, expected: BlockRef) {
        assert_eq!(asked(reads, Some(params.as_bytes())), Some(both(expected)), "{params}");
    }

    #[track_caller]
    fn range(reads: Reads, params: &str, oldest: BlockRef, newest: BlockRef) {
        assert_eq!(asked(reads, Some(params.as_bytes())), Some(Asked { oldest, newest, span: 0 }), "{params}");
    }

    #[test]
    fn a_block_is_read_where_the_facts_say() {
        use BlockRef::*;
        for (argument, block) in [
            (r#""latest""#, Latest),
            (r#""pending""#, Pending),
            (r#""safe""#, Safe),
            (r#""finalized""#, Finalized),
            (r#""earliest""#, Earliest),
            ("null", Latest),
            (r#""0x0""#, Number(0)),
            (r#""0x1b4""#, Number(436)),
            (r#""0x1B4""#, Number(436)),
            (r#""0x01b4""#, Number(436)),
            (r#""0x0000000000000000000001b4""#, Number(436)),
            (r#""0x00000000000000000000000""#, Number(0)),
            (r#""0xffffffffffffffff""#, Number(u64::MAX)),
            ("436", Number(436)),
            ("18446744073709551615", Number(u64::MAX)),
            (&format!("\"{HASH}\""), Hash),
            (r#"{"blockNumber":"0x1b4"}"#, Number(436)),
            (r#"{"blockNumber":"safe","requireCanonical":true}"#, Safe),
            (r#"{ "requireCanonical" : false , "blockNumber" : 436 }"#, Number(436)),
            (r#"{"\u0062lockNumber":"0x1b4"}"#, Number(436)),
            (&format!(r#"{{"blockHash":"{HASH}","requireCanonical":true}}"#), Hash),
            (&format!(r#"{{"blockNumber":"{HASH}","transactionIndex":-1}}"#), Hash),
            (&format!(r#"{{"blockNumber":{{"blockHash":"{HASH}"}}}}"#), Hash),
            (r#"{"blockNumber":{"blockNumber":"0x1b4"}}"#, Number(436)),
            (r#"{"transactionIndex":3}"#, Latest),
            (r#"{"blockNumber":null,"blockHash":null}"#, Latest),
            ("{}", Latest),
        ] {
            one(Reads::Block(0), &format!("[{argument}]"), block);
            one(Reads::Trace(0), &format!(" [ {argument} , false ] "), block);
            one(Reads::State(1), &format!(r#"[{{"to":"0x00","data":"]"}},{argument}]"#), block);
            one(Reads::State(2), &format!("[[1,[2]],\"\\\"\",{argument},{{}}]"), block);
        }
    }

    #[test]
    fn what_is_not_written_is_latest() {
        for params in ["[]", " [ ] ", "null", " null\n", "[{}]", "[{},null]", "[{},null,7]"] {
            one(Reads::State(1), params, BlockRef::Latest);
        }
        assert_eq!(asked(Reads::State(1), None), Some(both(BlockRef::Latest)));
        assert_eq!(asked(Reads::Logs(0), None), Some(both(BlockRef::Latest)));
        assert_eq!(asked(Reads::Nothing, Some(b"[\"0x1\"]")), None);
        assert_eq!(asked(Reads::ByHash, None), Some(both(BlockRef::Hash)));
        assert_eq!(asked(Reads::TraceByHash, Some(b"{}")), Some(both(BlockRef::Hash)));
    }

    #[test]
    fn what_is_no_block_is_unreadable_and_never_a_number() {
        for argument in [
            r#""Latest""#,
            r#"" latest""#,
            r#""""#,
            r#""0x""#,
            r#""0x1g""#,
            r#""0X1b4""#,
            r#""1b4""#,
            r#""436""#,
            r#""0x10000000000000000""#,
            r#""0x\u0031""#,
            r#""\u0030x1""#,
            r#""0x 1""#,
            r#""-0x1""#,
            r#""+1""#,
            "-1",
            "1.0",
            "1e3",
            "18446744073709551616",
            "true",
            "[]",
            "[1]",
            r#"{"blockNumber":[]}"#,
            r#"{"blockHash":"0x1"}"#,
            r#"{"blockHash":7}"#,
            r#"{"blockNumber":"0x1","blockNumber":"0x2"}"#,
            r#"{"blockNumber":{"blockNumber":{"blockNumber":"0x1"}}}"#,
            &format!(r#"{{"blockNumber":"0x1","blockHash":"{HASH}"}}"#),
            &format!("\"{HASH}0\""),
            &format!("\"{}g\"", &HASH[..65]),
        ] {
            one(Reads::Block(0), &format!("[{argument}]"), UNREADABLE_BOTH);
        }
        for params in ["{}", r#"{"block":"0x1"}"#, "\"0x1\"", "7", "", " ", "[", "[\"0x1", "nul", "[,\"0x1\"]", "nullx"]
        {
            one(Reads::Block(0), params, UNREADABLE_BOTH);
        }
        one(Reads::State(1), "[7 \"0x1\"]", UNREADABLE_BOTH);
        // A tag by any spelling is that tag, or none.
        one(Reads::Block(0), r#"["lat\u0065st"]"#, BlockRef::Latest);
    }

    #[test]
    fn a_range_has_a_lower_and_a_higher_end() {
        use BlockRef::*;
        for (filter, oldest, newest) in [
            (r#"{"fromBlock":"0x1","toBlock":"0x9"}"#, Number(1), Number(9)),
            (r#"{"fromBlock":"0x9","toBlock":"0x1"}"#, Number(1), Number(9)),
            (r#"{"fromBlock":"0x1"}"#, Number(1), Latest),
            (r#"{"fromBlock":"0x1","toBlock":"latest","address":[]}"#, Number(1), Latest),
            (r#"{"fromBlock":"finalized","toBlock":"0x9"}"#, Finalized, Number(9)),
            (r#"{"fromBlock":"earliest","toBlock":"0x9"}"#, Earliest, Number(9)),
            (r#"{"fromBlock":"0x9","toBlock":"earliest"}"#, Earliest, Number(9)),
            (r#"{"fromBlock":"earliest","toBlock":"earliest"}"#, Earliest, Earliest),
            (r#"{"fromBlock":"0x9","toBlock":[]}"#, Number(9), UNREADABLE_BOTH),
            (r#"{"fromBlock":{"blockNumber":"0x1"},"toBlock":"0x9"}"#, UNREADABLE_BOTH, Number(9)),
            (r#"{"blockHash":7}"#, UNREADABLE_BOTH, UNREADABLE_BOTH),
            ("7", UNREADABLE_BOTH, UNREADABLE_BOTH),
            (&format!(r#"{{"blockHash":"{HASH}","fromBlock":"0x1"}}"#), Hash, Hash),
        ] {
            range(Reads::Logs(0), &format!("[{filter}]"), oldest, newest);
            range(Reads::TraceRange(0), &format!("[{filter}]"), oldest, newest);
        }
        for filter in ["{}", r#"{"fromBlock":null,"toBlock":null,"blockHash":null}"#, "null"] {
            range(Reads::Logs(0), &format!("[{filter}]"), Latest, Latest);
            range(Reads::TraceRange(0), &format!("[{filter}]"), Earliest, Latest);
        }
        range(Reads::Logs(0), r#"[{"toBlock":"0x9"}]"#, Latest, Number(9));
        range(Reads::TraceRange(0), r#"[{"toBlock":"0x9"}]"#, Earliest, Number(9));
    }

    #[test]
    fn a_history_of_fees_counts_back_from_its_newest_block() {
        use BlockRef::*;
        let number = |oldest, newest| Asked { oldest: Number(oldest), newest: Number(newest), span: 0 };
        for (params, expected) in [
            (r#"["0x5","0x64",[25]]"#, number(96, 100)),
            (r#"[5,"0x64"]"#, number(96, 100)),
            (r#"["5","0x64"]"#, number(96, 100)),
            (r#"["0x1","0x64"]"#, number(100, 100)),
            (r#"["0x0","0x64"]"#, number(100, 100)),
            (r#"["0x5","0x2"]"#, number(0, 2)),
            (r#"["0xffffffffffffffff","0x1000"]"#, number(4_096 - 1_023, 4_096)),
            (r#"["0x5","latest"]"#, Asked { oldest: Latest, newest: Latest, span: 4 }),
            (r#"["0x5"]"#, Asked { oldest: Latest, newest: Latest, span: 4 }),
            (r#"["0x5","earliest",[]]"#, Asked { oldest: Earliest, newest: Earliest, span: 4 }),
            (r#"["0x5","x"]"#, UNREADABLE),
            (r#"["x","0x64"]"#, UNREADABLE),
            (r#"[-1,"0x64"]"#, UNREADABLE),
            ("[]", UNREADABLE),
            ("{}", UNREADABLE),
        ] {
            assert_eq!(asked(Reads::Fees, Some(params.as_bytes())), Some(expected), "{params}");
        }
    }

    #[test]
    fn two_blocks_and_bundles_are_read_too() {
        use BlockRef::*;
        range(Reads::Between(0), "[5, 9]", Number(5), Number(9));
        range(Reads::Between(0), "[5]", Number(4), Number(5));
        range(Reads::Between(0), "[0]", Number(0), Number(0));
        range(Reads::Between(0), "{}", UNREADABLE_BOTH, UNREADABLE_BOTH);
        let tagged = Asked { oldest: Latest, newest: Latest, span: 1 };
        assert_eq!(asked(Reads::Between(0), Some(b"[]")), Some(tagged));
        one(Reads::Bundle, r#"[{"txs":[],"blockNumber":"0x9","stateBlockNumber":"0x5"}]"#, Number(5));
        one(Reads::Bundle, r#"[{"txs":[],"stateBlockNumber":"latest"}]"#, Latest);
        one(Reads::Bundle, r#"[{"txs":[]}]"#, Latest);
        one(Reads::Bundle, r#"[["0x00"],"0x5"]"#, Number(5));
        one(Reads::Bundle, r#"[{"a":1,]"#, UNREADABLE_BOTH);
    }

    /// What a value says, read with another reader.
    fn block_of(value: &Value, objects: u8) -> BlockRef {
        match value {
            Value::Object(found) if objects > 0 => {
                match (found.get("blockNumber").unwrap_or(&Value::Null), found.get("blockHash").unwrap_or(&Value::Null))
                {
                    (Value::Null, Value::Null) => BlockRef::Latest,
                    (number, Value::Null) => block_of(number, objects - 1),
                    (Value::Null, Value::String(hash)) if block_of(&json!(hash), 0) == BlockRef::Hash => BlockRef::Hash,
                    _ => BlockRef::Unreadable,
                }
            }
            Value::Number(number) => number.to_string().parse().map_or(BlockRef::Unreadable, BlockRef::Number),
            Value::String(text) => match text.as_str() {
                "latest" => BlockRef::Latest,
                "pending" => BlockRef::Pending,
                "safe" => BlockRef::Safe,
                "finalized" => BlockRef::Finalized,
                "earliest" => BlockRef::Earliest,
                text => match text.strip_prefix("0x") {
                    Some(digits) if digits.chars().all(|c| c.is_ascii_hexdigit()) => match digits.len() {
                        0 => BlockRef::Unreadable,
                        64 => BlockRef::Hash,
                        _ => u128::from_str_radix(&format!("0{}", digits.trim_start_matches('0')), 16)
                            .ok()
                            .and_then(|number| number.try_into().ok())
                            .map_or(BlockRef::Unreadable, BlockRef::Number),
                    },
                    _ => BlockRef::Unreadable,
                },
            },
            _ => BlockRef::Unreadable,
        }
    }

    fn reference(reads: Reads, params: &[Value]) -> Asked {
        let null = Value::Null;
        let at = |place: u8| params.get(usize::from(place)).unwrap_or(&null);
        let or = |value: &Value, absent, objects| if value.is_null() { absent } else { block_of(value, objects) };
        match reads {
            Reads::State(place) | Reads::Trace(place) | Reads::Block(place) => both(or(at(place), BlockRef::Latest, 2)),
            Reads::Logs(place) => {
                let none = Map::new();
                let filter = match at(place) {
                    Value::Null => &none,
                    Value::Object(filter) => filter,
                    _ => return UNREADABLE,
                };
                let member = |name| filter.get(name).unwrap_or(&null);
                match member("blockHash") {
                    Value::Null => {
                        let ends = ["fromBlock", "toBlock"].map(|name| or(member(name), BlockRef::Latest, 0));
                        let [from, to] = ends;
                        let back = match ends {
                            [BlockRef::Number(from), BlockRef::Number(to)] => to < from,
                            _ => to == BlockRef::Earliest,
                        };
                        let (oldest, newest) = if back { (to, from) } else { (from, to) };
                        Asked { oldest, newest, span: 0 }
                    }
                    Value::String(hash) if block_of(&json!(hash), 0) == BlockRef::Hash => both(BlockRef::Hash),
                    _ => UNREADABLE,
                }
            }
            _ => unreachable!("not asked for"),
        }
    }

    fn argument() -> impl Strategy<Value = Value> {
        let scalar = || {
            prop_oneof![
                Just(Value::Null),
                prop::sample::select(vec!["latest", "pending", "safe", "finalized", "earliest", HASH, "", "0x"])
                    .prop_map(Value::from),
                "0x[0-9a-fA-F]{1,18}".prop_map(Value::from),
                "0x0{1,66}[0-9a-f]{0,18}".prop_map(Value::from),
                "0x[0-9a-fg]{63,65}".prop_map(Value::from),
                "[ -~é\u{0}]{0,6}".prop_map(Value::from),
                any::<u64>().prop_map(Value::from),
                any::<i64>().prop_map(Value::from),
                any::<bool>().prop_map(Value::from),
            ]
        };
        let name = prop::sample::select(vec!["blockNumber", "blockHash", "fromBlock", "toBlock", "requireCanonical"]);
        let object = |inner: BoxedStrategy<Value>| {
            prop::collection::btree_map(name.clone().prop_map(str::to_owned), inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect()))
        };
        let flat = object(scalar().boxed()).boxed();
        let nested = object(prop_oneof![scalar(), flat.clone()].boxed());
        prop_oneof![4 => scalar(), 3 => flat, 2 => nested, 1 => prop::collection::vec(scalar(), 0..3).prop_map(Value::from)]
    }

    const PLACED: [fn(u8) -> Reads; 4] = [Reads::State, Reads::Trace, Reads::Block, Reads::Logs];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn arguments_are_read_as_another_reader_reads_them(
            params in prop::collection::vec(argument(), 0..4),
            place in 0..4u8,
            pretty in any::<bool>(),
        ) {
            let text = if pretty { serde_json::to_string_pretty(&params) } else { serde_json::to_string(&params) };
            let text = text.unwrap();
            for reads in PLACED {
                let reads = reads(place);
                prop_assert_eq!(asked(reads, Some(text.as_bytes())), Some(reference(reads, &params)), "{:?} {}", reads, &text);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(
            text in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..40),
                prop::collection::vec(prop::sample::select(b"[]{}\",:\\0x1fnul bockHashNumer".to_vec()), 0..60),
            ],
            place in any::<u8>(),
        ) {
            let placed = PLACED.map(|reads| reads(place));
            let others = [Reads::Between(place), Reads::TraceRange(place), Reads::Bundle, Reads::Fees, Reads::ByHash];
            for reads in placed.into_iter().chain(others) {
                prop_assert!(asked(reads, Some(&text)).is_some());
            }
        }
    }
}
