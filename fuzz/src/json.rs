//! JSON as serde_json reads it, and what strings and numbers say by other means than the gateway's.

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// The text without a byte order mark.
pub fn without_mark(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body)
}

/// The one value of a whole text; `None` = not JSON.
pub fn value(body: &[u8]) -> Option<&str> {
    serde_json::from_slice::<&RawValue>(without_mark(body)).ok().map(RawValue::get)
}

/// The elements of an array.
pub fn elements(array: &str) -> Vec<&str> {
    let raw: Vec<&RawValue> = serde_json::from_str(array).expect("a valid array");
    raw.into_iter().map(RawValue::get).collect()
}

/// The members of an object in their order, names as they stand between their quotes.
pub fn members(object: &str) -> Vec<(&str, &str)> {
    struct Members;
    impl<'de> Visitor<'de> for Members {
        type Value = Vec<(&'de str, &'de str)>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some((name, value)) = map.next_entry::<&RawValue, &RawValue>()? {
                members.push((inside(name.get()), value.get()));
            }
            Ok(members)
        }
    }
    serde_json::Deserializer::from_str(object).deserialize_map(Members).expect("a valid object")
}

/// What stands between the quotes of a string.
pub fn inside(string: &str) -> &str {
    string.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).expect("a string")
}

/// What a string says, from the text between its quotes, in UTF-16: the escapes' own unit, in which a lone
/// surrogate is nothing special.
pub fn units(raw: &str) -> Vec<u16> {
    let (mut units, mut rest) = (Vec::new(), raw.chars());
    while let Some(c) = rest.next() {
        let c = match c {
            '\\' => match rest.next().expect("an escape") {
                'u' => {
                    let (digits, behind) = rest.as_str().split_at(4);
                    units.push(u16::from_str_radix(digits, 16).expect("four digits"));
                    rest = behind.chars();
                    continue;
                }
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                same => same,
            },
            c => c,
        };
        units.extend_from_slice(c.encode_utf16(&mut [0; 2]));
    }
    units
}

/// What a string says, lone surrogates replaced.
pub fn text(raw: &str) -> String {
    String::from_utf16_lossy(&units(raw))
}

/// The deepest nesting of brackets outside strings; of a text that is no JSON, an upper bound.
pub fn depth(body: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0usize, 0, false, false);
    for byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Whether a JSON number is exactly `whole`: both written out without leading or trailing zeros.
pub fn number_is(number: &str, whole: u64) -> bool {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (before, behind) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let before = before.strip_prefix('-').unwrap_or(before);
    let digits = format!("{before}{behind}");
    let digits = digits.trim_start_matches('0');
    let bare = digits.trim_end_matches('0');
    let wanted = whole.to_string();
    let wanted_bare = wanted.trim_start_matches('0').trim_end_matches('0');
    if bare != wanted_bare {
        return false;
    }
    if bare.is_empty() {
        return true; // zero, whatever its sign and exponent
    }
    let (sign, size) = match exponent.as_bytes()[0] {
        b'-' => (-1, &exponent[1..]),
        b'+' => (1, &exponent[1..]),
        _ => (1, exponent),
    };
    // What does not fit is out of any reach.
    let exponent = sign
        * size.trim_start_matches('0').parse::<i128>().unwrap_or(if size.trim_matches('0').is_empty() {
            0
        } else {
            i128::MAX / 2
        });
    let power = exponent + (digits.len() - bare.len()) as i128 - behind.len() as i128;
    let wanted_power = (wanted.len() - wanted_bare.len()) as i128;
    !number.starts_with('-') && power == wanted_power
}
