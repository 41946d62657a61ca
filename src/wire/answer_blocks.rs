//! Which blocks does a result speak of? Their numbers and hashes, where the facts of the method say that they stand.
//!
//! The text was checked before and is JSON; what is none after all ends the walk, and harms nobody.

use super::block_args::{decimal, hex_number};
use super::block_header::hash32;
use super::json::{Members, skip_value, skip_whitespace};
use super::json_text::says;
use super::jsonrpc_check::RESPONSE_DEPTH_MAX;
use super::params::string;
use crate::logic::block::Hash;
use crate::logic::facts::Shows;
use memchr::memchr2;
use memchr::memmem::Finder;

/// Hands on the number and the hash of each block that `result` shows, in the order of the text, until `each` says
/// that it is enough (`false`). Where one of the two is missing, `null` or no number or hash, there is no block.
pub fn blocks(shows: Shows, result: &[u8], each: &mut dyn FnMut(u64, &Hash) -> bool) {
    let start = skip_whitespace(result, 0);
    let names = match shows {
        Shows::Nothing => return,
        Shows::Block => Names { number: b"number", hash: b"hash" },
        Shows::Inside | Shows::Listed => Names { number: b"blockNumber", hash: b"blockHash" },
    };
    if shows == Shows::Listed {
        return listed(result, start, each);
    }
    if let Some((number, hash)) = in_object(result, start, &names) {
        each(number, &hash);
    }
}

/// Whether a result says that there is nothing: `null`, or a list without elements.
pub fn is_empty(result: &[u8]) -> bool {
    match result.trim_ascii() {
        b"null" => true,
        [b'[', inner @ .., b']'] => skip_whitespace(inner, 0) == inner.len(),
        _ => false,
    }
}

struct Names {
    number: &'static [u8],
    hash: &'static [u8],
}

/// The block of the object that starts at `start`.
fn in_object(text: &[u8], start: usize, names: &Names) -> Option<(u64, Hash)> {
    if text.get(start) != Some(&b'{') {
        return None;
    }
    let (mut number, mut hash) = (None, None);
    let mut members = Members::new(text, start + 1);
    while let Some(name) = members.next_name().ok()? {
        let name = text.get(name)?;
        let (is_number, is_hash) = (says(name, names.number), says(name, names.hash));
        let value = text.get(members.skip(RESPONSE_DEPTH_MAX).ok()?)?;
        // Should one come twice, the first counts, here as elsewhere.
        if is_number && number.is_none() {
            number = Some(read_number(value)?);
        } else if is_hash && hash.is_none() {
            hash = Some(hash32(value)?);
        }
        if let (Some(number), Some(hash)) = (number, hash) {
            return Some((number, hash));
        }
    }
    None
}

/// Elements one after the other.
fn listed(text: &[u8], start: usize, each: &mut dyn FnMut(u64, &Hash) -> bool) {
    if text.get(start) != Some(&b'[') {
        return;
    }
    let finders = Finders { number: Finder::new(b"\"blockNumber\""), hash: Finder::new(b"\"blockHash\"") };
    let mut at = skip_whitespace(text, start + 1);
    while let Ok(end) = skip_value(text, at, RESPONSE_DEPTH_MAX) {
        let found = text.get(at..end).and_then(|element| finders.in_element(element));
        if found.is_some_and(|(number, hash)| !each(number, &hash)) {
            return;
        }
        at = skip_whitespace(text, end);
        match text.get(at) {
            Some(b',') => at = skip_whitespace(text, at + 1),
            _ => return,
        }
    }
}

struct Finders {
    number: Finder<'static>,
    hash: Finder<'static>,
}

impl Finders {
    fn in_element(&self, element: &[u8]) -> Option<(u64, Hash)> {
        let inner = element.strip_prefix(b"{")?;
        let slow = || in_object(element, 0, &Names { number: b"blockNumber", hash: b"blockHash" });
        // With no other object in it and no escape, a name that is found is a name of this object and the only way
        // to write it.
        if memchr2(b'{', b'\\', inner).is_some() {
            return slow();
        }
        let number = read_number(value_of(&self.number, inner)?)?;
        Some((number, hash32(value_of(&self.hash, inner)?)?))
    }
}

/// The scalar behind the first place where the quoted name stands as a name. Without escapes, quotes are no part of
/// what a string says: what is found between two of them is a whole string, and a name if a colon follows.
fn value_of<'t>(finder: &Finder<'_>, inner: &'t [u8]) -> Option<&'t [u8]> {
    let mut from = 0;
    loop {
        let at = from + finder.find(inner.get(from..)?)?;
        from = at + finder.needle().len();
        let colon = skip_whitespace(inner, from);
        if inner.get(colon) == Some(&b':') {
            let start = skip_whitespace(inner, colon + 1);
            return inner.get(start..skip_value(inner, start, 0).ok()?);
        }
    }
}

/// A quantity, or a number as traces have it.
fn read_number(value: &[u8]) -> Option<u64> {
    string(value).map_or_else(|| decimal(value), hex_number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn hash(byte: u8) -> String {
        format!("0x{}", format!("{byte:02x}").repeat(32))
    }

    /// The blocks that are found, each by its number and the first byte of its hash.
    fn found(shows: Shows, result: &str) -> Vec<(u64, u8)> {
        let mut found = Vec::new();
        blocks(shows, result.as_bytes(), &mut |number, hash| {
            assert!(hash.iter().all(|byte| *byte == hash[0]));
            found.push((number, hash[0]));
            true
        });
        found
    }

    #[test]
    fn a_block_shows_its_number_and_its_hash() {
        let block = |number: &str| format!(r#"{{"difficulty":"0x0","hash":"{}","number":{number},"x":[]}}"#, hash(7));
        assert_eq!(found(Shows::Block, &block("\"0x1b4\"")), [(436, 7)]);
        assert_eq!(found(Shows::Block, &block("436")), [(436, 7)]);
        assert_eq!(found(Shows::Block, &format!(" {} ", block("\"0x1b4\"").replace("hash", "h\\u0061sh"))), [(436, 7)]);
        for none in ["null", "\"436\"", "-1", "1.5", "{}", "\"0x\"", "\"0x10000000000000000\"", "true"] {
            assert_eq!(found(Shows::Block, &block(none)), [], "{none}");
        }
        let pending = r#"{"number":"0x1","hash":null,"transactions":[]}"#;
        for none in [pending, "null", "[]", "{}", "\"x\"", "7", r#"{"number":"0x1","hash":"0x07"}"#, ""] {
            assert_eq!(found(Shows::Block, none), [], "{none}");
        }
        assert_eq!(found(Shows::Nothing, &block("\"0x1\"")), []);
        // Nothing in it stands for it.
        let inner = format!(r#"{{"parent":{},"hash":"{}"}}"#, block("\"0x1\""), hash(9));
        assert_eq!(found(Shows::Block, &inner), []);
    }

    #[test]
    fn a_transaction_shows_the_block_that_it_is_in() {
        let inside =
            |number: &str, hash: &str| format!(r#"{{"blockHash":{hash},"blockNumber":{number},"hash":"0x1"}}"#);
        let quoted = format!("\"{}\"", hash(3));
        assert_eq!(found(Shows::Inside, &inside("\"0x5\"", &quoted)), [(5, 3)]);
        assert_eq!(found(Shows::Inside, &inside("null", "null")), []);
        assert_eq!(found(Shows::Inside, &inside("\"0x5\"", "null")), []);
        assert_eq!(found(Shows::Inside, &format!("[{}]", inside("\"0x5\"", &quoted))), []);
    }

    fn log(number: u64, byte: u8) -> String {
        let data = "0".repeat(128);
        format!(
            r#"{{"address":"0x00","blockHash":"{}","blockNumber":"{number:#x}","data":"0x{data}","removed":false,"topics":["0x1"]}}"#,
            hash(byte)
        )
    }

    #[test]
    fn a_list_shows_the_block_of_each_element() {
        let trace = |number, byte| {
            format!(
                r#"{{"action":{{"from":"0x","blockHash":"{}"}},"blockHash":"{}","blockNumber":{number},"type":"call"}}"#,
                hash(99),
                hash(byte)
            )
        };
        let receipt = format!(r#"{{"logs":[{}],"blockNumber":"0x8","blockHash":"{}"}}"#, log(99, 99), hash(8));
        let elements =
            [log(1, 1), trace(2, 2), "null".into(), "[{}]".into(), log(3, 3), receipt, "{}".into(), log(4, 4)];
        let expected = [(1, 1), (2, 2), (3, 3), (8, 8), (4, 4)];
        assert_eq!(found(Shows::Listed, &format!("[{}]", elements.join(","))), expected);
        assert_eq!(found(Shows::Listed, &format!(" [ {} ] ", elements.join(" ,\n"))), expected);
        for none in ["[]", "null", "{}", &log(1, 1), "", "["] {
            assert_eq!(found(Shows::Listed, none), [], "{none}");
        }
        // What is cut off ends the walk.
        assert_eq!(found(Shows::Listed, &format!("[{},{}", log(1, 1), &log(2, 2)[..200])), [(1, 1)]);
    }

    #[test]
    fn text_that_looks_like_a_name_is_none() {
        let right = format!(r#""blockNumber":"0x5","blockHash":"{}""#, hash(5));
        let wrong = format!(r#"\"blockNumber\":\"0x9\",\"blockHash\":\"{}\""#, hash(9));
        for element in [
            format!(r#"{{"data":"{wrong}",{right}}}"#),
            format!(r#"{{"data":"blockNumber",{right}}}"#),
            format!(r#"{{"data":["blockHash","blockNumber"],{right}}}"#),
            format!(r#"{{"x\"blockHash":"{}",{right}}}"#, hash(9)),
            format!(r#"{{"{{":"{{blockNumber",{right}}}"#),
            format!(r#"{{"blockNumbers":7,"ablockHash":"",{right}}}"#),
            right.replace("block", "bl\\u006fck").to_owned() + "}",
            format!(r#"{{ "blockHash" : "{}" , "blockNumber" : 5 }}"#, hash(5)),
        ] {
            let element = if element.starts_with('{') { element } else { format!("{{{element}") };
            assert_eq!(found(Shows::Listed, &format!("[{element},{element}]")), [(5, 5), (5, 5)], "{element}");
            assert_eq!(found(Shows::Inside, &element), [(5, 5)], "{element}");
        }
        let only = format!(r#"[{{"data":"{wrong}"}},{{"x":["blockNumber","blockHash"]}},{{"x":{{{right}}}}}]"#);
        assert_eq!(found(Shows::Listed, &only), []);
    }

    #[test]
    fn the_walk_ends_when_it_is_told_to() {
        let text = format!("[{},{},{}]", log(1, 1), log(2, 2), log(3, 3));
        let mut seen = Vec::new();
        blocks(Shows::Listed, text.as_bytes(), &mut |number, _| {
            seen.push(number);
            number < 2
        });
        assert_eq!(seen, [1, 2]);
    }

    #[test]
    fn nothing_is_null_or_a_list_without_elements() {
        for empty in ["null", " null\n", "[]", "[ ]", "\t[\r\n ] "] {
            assert!(is_empty(empty.as_bytes()), "{empty:?}");
        }
        for full in ["", "{}", "[null]", "[[]]", "\"\"", "0", "false", "[", "]", "nul", "\"null\""] {
            assert!(!is_empty(full.as_bytes()), "{full:?}");
        }
    }

    /// The first of the members with this name, as another reader reads it.
    fn member<'v>(value: &'v Value, name: &str) -> &'v Value {
        value.get(name).unwrap_or(&Value::Null)
    }

    fn reference(value: &Value) -> Option<(u64, u8)> {
        let number = match member(value, "blockNumber") {
            Value::String(text) => hex_number(text.as_bytes())?,
            Value::Number(number) => number.as_u64()?,
            _ => return None,
        };
        let hash = member(value, "blockHash").as_str()?;
        (hash.len() == 66).then(|| (number, u8::from_str_radix(&hash[2..4], 16).unwrap()))
    }

    fn element() -> impl Strategy<Value = Value> {
        let value = prop_oneof![
            3 => (0..20u8).prop_map(|byte| Value::from(hash(byte))),
            3 => any::<u64>().prop_map(|number| Value::from(format!("{number:#x}"))),
            2 => any::<u64>().prop_map(Value::from),
            1 => Just(Value::Null),
            1 => Just(Value::from(r#"","blockHash":"x"#)),
            1 => "[\"\\\\{}:,bé]{0,8}".prop_map(Value::from),
            1 => Just(serde_json::json!({"blockNumber": 7, "blockHash": hash(7)})),
            1 => Just(serde_json::json!(["blockNumber", "blockHash", [{}]])),
        ];
        let name = prop::sample::select(vec!["blockNumber", "blockHash", "data", "block\"Hash", "{", "number", "hash"]);
        let named =
            |name: &'static str, value: BoxedStrategy<Value>| value.prop_map(move |value| (name.to_owned(), value));
        let free = (name.prop_map(str::to_owned), value.clone());
        let likely = prop_oneof![
            named("blockNumber", any::<u64>().prop_map(|number| Value::from(format!("{number:#x}"))).boxed()),
            named("blockHash", (0..20u8).prop_map(|byte| Value::from(hash(byte))).boxed()),
            free,
        ];
        prop::collection::btree_map(any::<u8>(), likely, 0..7)
            .prop_map(|members| Value::Object(members.into_values().collect()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn lists_are_read_as_another_reader_reads_them(
            elements in prop::collection::vec(element(), 0..6),
            pretty in any::<bool>(),
        ) {
            let text = if pretty { serde_json::to_string_pretty(&elements) } else { serde_json::to_string(&elements) };
            let expected: Vec<_> = elements.iter().filter_map(reference).collect();
            prop_assert_eq!(found(Shows::Listed, &text.unwrap()), expected);
            for element in &elements {
                let expected: Vec<_> = reference(element).into_iter().collect();
                prop_assert_eq!(found(Shows::Inside, &element.to_string()), expected);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(
            text in prop::collection::vec(prop_oneof![
                any::<u8>(),
                prop::sample::select(b"[]{}\",:\\0x1fnul blockHashNumber".to_vec()),
            ], 0..80),
        ) {
            for shows in [Shows::Block, Shows::Inside, Shows::Listed, Shows::Nothing] {
                blocks(shows, &text, &mut |_, _| true);
            }
            is_empty(&text);
        }
    }
}
