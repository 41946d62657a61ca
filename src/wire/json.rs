//! Is this text JSON by RFC 8259, and where does each value end? Nothing is built, nothing allocated.
//!
//! The scanner keeps its nesting in a bit stack of fixed size on the machine stack, so no input can
//! overflow it. Numbers of any size and lone surrogate escapes are accepted, as the RFC's grammar says;
//! what they mean is for those who read them. UTF-8 is checked only in strings with non-ASCII bytes.

use super::json_shape::Shapes;
use super::json_simd::{Baseline, Level, Vectors, Work, with_best_vectors};
use super::json_strings::Strings;
use std::ops::Range;

/// Why a text is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonError {
    /// Not JSON.
    Invalid,
    /// Nested deeper than the caller allows. What follows was not looked at.
    TooDeep,
}

/// Levels that fit the stack that every walk carries; deeper texts are walked again with a larger one.
const SHALLOW_LEVELS: usize = 128;
const SHALLOW_WORDS: usize = SHALLOW_LEVELS / 64;
const DEEP_WORDS: usize = 157;

/// No `depth_max` reaches further than this.
pub const DEPTH_CEILING: usize = DEEP_WORDS * 64;

/// The first position at or after `at` that holds no JSON whitespace.
#[inline(always)]
pub fn skip_whitespace(text: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = text.get(at) {
        at += 1;
    }
    at
}

/// Whether the whole text is one JSON value with whitespace around it, at most `depth_max` levels deep.
pub fn validate(text: &[u8], depth_max: usize) -> Result<(), JsonError> {
    let end = skip_value(text, skip_whitespace(text, 0), depth_max)?;
    expect_end(text, end)
}

/// Nothing but whitespace follows.
pub fn expect_end(text: &[u8], at: usize) -> Result<(), JsonError> {
    if skip_whitespace(text, at) == text.len() { Ok(()) } else { Err(JsonError::Invalid) }
}

/// The end of the JSON value that starts at `at`. A scalar has depth 0, `[]` has depth 1.
#[inline]
pub fn skip_value(text: &[u8], at: usize, depth_max: usize) -> Result<usize, JsonError> {
    match text.get(at) {
        Some(b'{' | b'[') => skip_container(text, at, depth_max),
        _ => skip_scalar(text, at),
    }
}

/// [`skip_value`] of a container with certain vectors; `None` if this CPU has them not.
pub fn skip_container_on(level: Level, text: &[u8], at: usize, depth_max: usize) -> Option<Result<usize, JsonError>> {
    let mut words = [0; DEEP_WORDS];
    level.run(Walk { text, at, nest: Nest::new(&mut words, depth_max) })
}

fn skip_container(text: &[u8], at: usize, depth_max: usize) -> Result<usize, JsonError> {
    let mut words = [0; SHALLOW_WORDS];
    match with_best_vectors(Walk { text, at, nest: Nest::new(&mut words, depth_max) }) {
        Err(JsonError::TooDeep) if depth_max > SHALLOW_LEVELS => skip_deep(text, at, depth_max),
        verdict => verdict,
    }
}

/// Apart from [`skip_container`], so that ordinary texts do not pay for clearing the large stack.
#[cold]
#[inline(never)]
fn skip_deep(text: &[u8], at: usize, depth_max: usize) -> Result<usize, JsonError> {
    let mut words = [0; DEEP_WORDS];
    with_best_vectors(Walk { text, at, nest: Nest::new(&mut words, depth_max) })
}

/// One bit for each open container: 1 for an object.
struct Nest<'s> {
    words: &'s mut [u64],
    depth: usize,
    depth_max: usize,
    in_object: bool,
}

impl<'s> Nest<'s> {
    fn new(words: &'s mut [u64], depth_max: usize) -> Self {
        let depth_max = depth_max.min(words.len() * 64);
        Nest { words, depth: 0, depth_max, in_object: false }
    }

    #[inline(always)]
    fn open(&mut self, object: bool) -> Result<(), JsonError> {
        if self.depth >= self.depth_max {
            return Err(JsonError::TooDeep);
        }
        let word = self.words.get_mut(self.depth / 64).ok_or(JsonError::TooDeep)?;
        let bit = self.depth % 64;
        *word = (*word & !(1 << bit)) | (u64::from(object) << bit);
        self.depth += 1;
        self.in_object = object;
        Ok(())
    }

    /// Whether what is open innermost is an array.
    #[inline(always)]
    fn in_array(&self) -> bool {
        self.depth > 0 && !self.in_object
    }

    /// Closes the innermost container; says whether it was the outermost too.
    #[inline(always)]
    fn close(&mut self) -> bool {
        self.depth = self.depth.saturating_sub(1);
        let Some(outer) = self.depth.checked_sub(1) else { return true };
        self.in_object = self.words.get(outer / 64).is_some_and(|word| word >> (outer % 64) & 1 == 1);
        false
    }
}

/// The walk over the container that starts at `at`, to its end.
struct Walk<'a, 's> {
    text: &'a [u8],
    at: usize,
    nest: Nest<'s>,
}

impl Work for Walk<'_, '_> {
    type Out = Result<usize, JsonError>;

    #[inline(always)]
    fn run(mut self, vectors: impl Vectors) -> Self::Out {
        walk(self.text, self.at, &mut self.nest, &mut Strings::new(self.text, self.at, vectors), vectors)
    }
}

#[inline(always)]
fn walk<V: Vectors>(
    text: &[u8],
    mut at: usize,
    nest: &mut Nest<'_>,
    strings: &mut Strings<'_, V>,
    vectors: V,
) -> Result<usize, JsonError> {
    let mut shapes = Shapes::default();
    loop {
        // `at` is where a value must start.
        match text.get(at) {
            Some(&bracket @ (b'{' | b'[')) => {
                let object = bracket == b'{';
                if object && nest.in_array() {
                    shapes.open(at, nest.depth);
                }
                nest.open(object)?;
                at = skip_whitespace(text, at + 1);
                match text.get(at) {
                    // `{` and `[` are two below their closing brackets.
                    Some(&close) if close == bracket + 2 => {
                        at += 1;
                        if nest.close() {
                            return Ok(at);
                        }
                    }
                    _ => {
                        if object {
                            at = read_name(text, at, strings)?.1;
                        }
                        continue;
                    }
                }
            }
            Some(b'"') => at = strings.skip(at + 1)?,
            Some(b'-' | b'0'..=b'9') => at = skip_number(text, at)?,
            _ => at = skip_scalar(text, at)?,
        }
        // A value has ended: what may follow depends on what holds it.
        loop {
            at = skip_whitespace(text, at);
            match text.get(at) {
                Some(b',') => {
                    at = skip_whitespace(text, at + 1);
                    if nest.in_object {
                        at = read_name(text, at, strings)?.1;
                    } else if text.get(at) == Some(&b'{') {
                        let passed = shapes.pass(text, at, nest.depth, vectors);
                        if passed > at {
                            at = passed;
                            continue;
                        }
                    }
                    break;
                }
                Some(&close @ (b'}' | b']')) if (close == b'}') == nest.in_object => {
                    at += 1;
                    if nest.close() {
                        return Ok(at);
                    }
                    if close == b'}' && nest.in_array() {
                        shapes.close(at, nest.depth);
                    }
                }
                _ => return Err(JsonError::Invalid),
            }
        }
    }
}

/// Reads `"name" :`, and gives the name between its quotes and the place where its value must start.
#[inline(always)]
fn read_name<V: Vectors>(
    text: &[u8],
    at: usize,
    strings: &mut Strings<'_, V>,
) -> Result<(Range<usize>, usize), JsonError> {
    let Some(b'"') = text.get(at) else { return Err(JsonError::Invalid) };
    let end = strings.skip(at + 1)?;
    let colon = skip_whitespace(text, end);
    let Some(b':') = text.get(colon) else { return Err(JsonError::Invalid) };
    Ok((at + 1..end - 1, skip_whitespace(text, colon + 1)))
}

fn skip_scalar(text: &[u8], at: usize) -> Result<usize, JsonError> {
    match text.get(at) {
        Some(b'"') => Strings::new(text, at + 1, Baseline).skip(at + 1),
        Some(b'-' | b'0'..=b'9') => skip_number(text, at),
        Some(b't') => skip_word(text, at, b"true"),
        Some(b'f') => skip_word(text, at, b"false"),
        Some(b'n') => skip_word(text, at, b"null"),
        _ => Err(JsonError::Invalid),
    }
}

fn skip_word(text: &[u8], at: usize, word: &[u8]) -> Result<usize, JsonError> {
    let starts = text.get(at..).is_some_and(|rest| rest.starts_with(word));
    if starts { Ok(at + word.len()) } else { Err(JsonError::Invalid) }
}

#[inline(always)]
fn skip_number(text: &[u8], mut at: usize) -> Result<usize, JsonError> {
    if text.get(at) == Some(&b'-') {
        at += 1;
    }
    at = match text.get(at) {
        Some(b'0') => at + 1,
        _ => skip_digits(text, at)?,
    };
    if text.get(at) == Some(&b'.') {
        at = skip_digits(text, at + 1)?;
    }
    if let Some(b'e' | b'E') = text.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = text.get(at) {
            at += 1;
        }
        at = skip_digits(text, at)?;
    }
    Ok(at)
}

/// At least one digit.
#[inline(always)]
fn skip_digits(text: &[u8], start: usize) -> Result<usize, JsonError> {
    let mut at = start;
    while let Some(b'0'..=b'9') = text.get(at) {
        at += 1;
    }
    if at > start { Ok(at) } else { Err(JsonError::Invalid) }
}

/// The members of one object, validated as they are read: for each one [`Members::next_name`], then
/// [`Members::skip`] or [`Members::resume`].
pub struct Members<'a> {
    text: &'a [u8],
    strings: Strings<'a, Baseline>,
    at: usize,
    first: bool,
}

impl<'a> Members<'a> {
    /// Starts inside the object whose opening brace stands just before `at`.
    pub fn new(text: &'a [u8], at: usize) -> Self {
        Members { text, strings: Strings::new(text, at, Baseline), at, first: true }
    }

    /// The next member's name between its quotes; afterwards [`Members::at`] is where its value must
    /// start. `None` is the end of the object, and `at` the position after the closing brace.
    #[inline]
    pub fn next_name(&mut self) -> Result<Option<Range<usize>>, JsonError> {
        let mut at = skip_whitespace(self.text, self.at);
        if self.text.get(at) == Some(&b'}') {
            self.at = at + 1;
            return Ok(None);
        }
        if !self.first {
            let Some(b',') = self.text.get(at) else { return Err(JsonError::Invalid) };
            at = skip_whitespace(self.text, at + 1);
        }
        self.first = false;
        let (name, value) = read_name(self.text, at, &mut self.strings)?;
        self.at = value;
        Ok(Some(name))
    }

    /// Skips the value, which may be `depth_max` levels deep, and gives its place.
    #[inline]
    pub fn skip(&mut self, depth_max: usize) -> Result<Range<usize>, JsonError> {
        let start = self.at;
        self.at = match self.text.get(start) {
            Some(b'"') => self.strings.skip(start + 1)?,
            _ => skip_value(self.text, start, depth_max)?,
        };
        Ok(start..self.at)
    }

    /// The value was read by other means, and ends at `at`.
    pub fn resume(&mut self, at: usize) {
        self.at = at;
    }

    /// Where the walk stands.
    pub fn at(&self) -> usize {
        self.at
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    fn verdict(text: &[u8]) -> Result<(), JsonError> {
        validate(text, 10_000)
    }

    #[test]
    fn what_the_rfc_allows_is_accepted() {
        for text in [
            "0",
            "-0",
            "10",
            "1e999",
            "-1E+7",
            "0.5e-3",
            "1234567890123456789012345678901234567890",
            "true",
            "false",
            "null",
            "\"\"",
            "[]",
            "{}",
            " [ ] ",
            "\t{\r\n}\n",
            "[1,2 , 3]",
            "{\"a\":1,\"a\":{\"b\":[]}}",
            "{\"\":0}",
            r#""\"\\\/\b\f\n\r\t\u00e9\uD800""#,
            "\"\u{7f}\u{2028}é漢😀\"",
            "[[],{},[{}]]",
            r#"{ "a" : [ ] , "b" : { } }"#,
        ] {
            assert_eq!(verdict(text.as_bytes()), Ok(()), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            " ",
            "00",
            "01",
            "-",
            "-01",
            "+1",
            ".5",
            "1.",
            "1.e5",
            "1e",
            "1e+",
            "0x10",
            "NaN",
            "Infinity",
            "tru",
            "nulll",
            "truefalse",
            "1 2",
            "[1,]",
            "[,1]",
            "[1 2]",
            "[1",
            "]",
            "[}",
            "{]",
            "[1}",
            "{\"a\":1]",
            "{,}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\" 1}",
            "{\"a\":1,}",
            "{a:1}",
            "{1:1}",
            "{'a':1}",
            "\"",
            "\"a",
            "'a'",
            r#""\x""#,
            r#""\u12g4""#,
            r#""\u12""#,
            r#""\"#,
            "\"\n\"",
            "\"\t\"",
            "\"\u{0}\"",
            "[] x",
            "/**/1",
            "1,",
            "\u{a0}1",
            "\u{feff}1",
            "\u{c}1",
            "[\"a\u{1f}\"]",
        ] {
            assert_eq!(verdict(text.as_bytes()), Err(JsonError::Invalid), "{text:?}");
        }
    }

    #[test]
    fn strings_must_be_utf8_wherever_they_stand() {
        let bad: [&[u8]; 8] =
            [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xe6\xbc", b"\x80", b"\xf5\x80\x80\x80", b"\xc3\"", b"\xc3\\n"];
        for bytes in bad {
            for before in [0, 1, 15, 16, 40, 100] {
                for frame in [("\"", "\""), ("{\"", "\":1}"), ("[\"\\n", "é\"]")] {
                    let start = [frame.0.as_bytes(), &vec![b'a'; before]].concat();
                    let text = [&start, bytes, &b"a"[..], frame.1.as_bytes()].concat();
                    assert_eq!(verdict(&text), Err(JsonError::Invalid), "{bytes:x?} after {before}");
                    let sound = [&start, "漢é😀".as_bytes(), frame.1.as_bytes()].concat();
                    assert_eq!(verdict(&sound), Ok(()));
                }
            }
        }
    }

    #[test]
    fn depth_is_counted_exactly() {
        for levels in [1, 2, 63, 64, 65, 127, 128, 129, 130, 1000, 9_999, 10_000, DEPTH_CEILING] {
            for (open, inner, close) in [("[", "", "]"), ("{\"a\":", "[]", "}"), ("[{\"b\":", "1", "}]")] {
                let text = [&open.repeat(levels), inner, &close.repeat(levels)].concat();
                let depth = levels * close.len() + usize::from(inner == "[]");
                let (fits, over) = (validate(text.as_bytes(), depth), validate(text.as_bytes(), depth - 1));
                assert_eq!(fits.is_ok(), depth <= DEPTH_CEILING, "{levels} of {open}");
                assert_eq!(over, Err(JsonError::TooDeep), "{levels} of {open}");
            }
        }
        assert_eq!(validate(b"1", 0), Ok(()));
        assert_eq!(validate(b"[]", 0), Err(JsonError::TooDeep));
    }

    #[test]
    fn no_depth_overflows_the_machine_stack() {
        for open in ["[", "{\"a\":", "[{\"\":"] {
            let text = open.repeat(1_000_000);
            assert_eq!(validate(text.as_bytes(), usize::MAX), Err(JsonError::TooDeep));
            assert_eq!(validate(text.as_bytes(), 128), Err(JsonError::TooDeep));
        }
    }

    #[test]
    fn brackets_are_remembered_at_every_depth() {
        let kinds: Vec<bool> = (0..400u32).map(|level| level * level % 7 < 3).collect();
        let opened: String = kinds.iter().map(|&object| if object { "{\"k\":" } else { "[" }).collect();
        let closed: Vec<u8> = kinds.iter().rev().map(|&object| if object { b'}' } else { b']' }).collect();
        assert_eq!(verdict(&[opened.as_bytes(), b"0", &closed].concat()), Ok(()));
        for wrong in 0..closed.len() {
            let mut closed = closed.clone();
            closed[wrong] = if closed[wrong] == b'}' { b']' } else { b'}' };
            assert_eq!(verdict(&[opened.as_bytes(), b"0", &closed].concat()), Err(JsonError::Invalid), "{wrong}");
        }
    }

    #[test]
    fn skip_value_stops_behind_the_value() {
        for (text, end) in
            [("12,3", 2), ("\"a\\\"b\" :", 6), ("[1,[2]] ]", 7), ("{}}", 2), ("nullnull", 4), ("0123", 1)]
        {
            assert_eq!(skip_value(text.as_bytes(), 0, 9), Ok(end), "{text}");
        }
        assert_eq!(skip_value(b"[1]", 3, 9), Err(JsonError::Invalid));
        assert_eq!(skip_value(b"[1]", 99, 9), Err(JsonError::Invalid));
    }

    #[test]
    fn members_come_in_order_with_their_places() {
        let text = br#"{ "a" : [1] ,"b\n":{"c":2}, "":"x"}tail"#;
        let mut members = Members::new(text, 1);
        let mut seen = Vec::new();
        while let Some(name) = members.next_name().unwrap() {
            let value = members.skip(1).unwrap();
            seen.push((String::from_utf8_lossy(&text[name]), String::from_utf8_lossy(&text[value])));
        }
        assert_eq!(&text[members.at()..], b"tail");
        let expected = [("a", "[1]"), ("b\\n", "{\"c\":2}"), ("", "\"x\"")];
        assert_eq!(seen, expected.map(|(name, value)| (name.into(), value.into())));
    }

    #[test]
    fn strings_end_where_they_end_at_every_length() {
        for length in 0..200 {
            for before in [0, 1, 30, 63, 64, 65] {
                let text = format!("{}[\"{}\" , \"b\"]", " ".repeat(before), "a".repeat(length));
                assert_eq!(verdict(text.as_bytes()), Ok(()), "{length} after {before}");
                for end in 1..text.len() {
                    assert_eq!(verdict(&text.as_bytes()[..end]), Err(JsonError::Invalid), "{length} after {before}");
                }
            }
            let alone = format!("\"{}\"", "a".repeat(length));
            assert_eq!(skip_value(format!("{alone}]").as_bytes(), 0, 0), Ok(alone.len()));
            for place in 1..=length {
                let mut broken = alone.clone().into_bytes();
                broken[place] = 0x1f;
                assert_eq!(verdict(&broken), Err(JsonError::Invalid), "{place} of {length}");
            }
        }
    }

    /// JSON texts with some whitespace, numbers and strings of many shapes.
    pub fn json_text() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("true".to_owned()),
            Just("false".to_owned()),
            "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,5})?([eE][+-]?[0-9]{1,4})?",
            "\"([ -!#-\\[\\]-~é漢😀]|\\\\[\"\\\\/bfnrt]|\\\\u[0-9a-fA-F]{4}){0,40}\"",
            "\"0x[0-9a-f]{0,200}\"",
        ];
        let space = "[ \n\r\t]{0,2}";
        leaf.prop_recursive(6, 60, 6, move |inner| {
            prop_oneof![
                (prop::collection::vec(inner.clone(), 0..6), space)
                    .prop_map(|(items, space)| format!("[{space}{}{space}]", items.join(&format!("{space},")))),
                (prop::collection::vec(("[a-zé]{0,20}", inner), 0..6), space).prop_map(|(members, space)| {
                    let members: Vec<String> =
                        members.iter().map(|(name, value)| format!("\"{name}\"{space}:{space}{value}")).collect();
                    format!("{{{space}{}{space}}}", members.join(","))
                }),
            ]
        })
    }

    /// A byte that is likely to matter, put over, before or in place of another.
    pub fn edits() -> impl Strategy<Value = Vec<(u8, prop::sample::Index, u8)>> {
        let byte = prop_oneof![
            6 => prop::sample::select(b"{}[]\",:\\0123456789-+.eEtfnu \n\t\x00\x1f".to_vec()),
            1 => any::<u8>(),
        ];
        prop::collection::vec((0..4u8, any::<prop::sample::Index>(), byte), 0..4)
    }

    pub fn edited(text: String, edits: Vec<(u8, prop::sample::Index, u8)>) -> Vec<u8> {
        let mut text = text.into_bytes();
        for (kind, place, byte) in edits {
            let at = place.index(text.len() + 1);
            match kind {
                0 => text.insert(at, byte),
                1 if at < text.len() => text[at] = byte,
                2 if at < text.len() => drop(text.remove(at)),
                _ => text.truncate(at.max(1)),
            }
        }
        text
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        // serde_json's raw values have no depth limit, take any number, and leave surrogates alone: there
        // is no text on which the two may differ below our depth.
        #[test]
        fn the_verdict_is_serde_jsons(text in json_text(), edits in edits()) {
            let text = edited(text, edits);
            let expected = serde_json::from_slice::<&RawValue>(&text).is_ok();
            prop_assert_eq!(verdict(&text).is_ok(), expected, "{}", String::from_utf8_lossy(&text));
        }

        #[test]
        fn short_noise_gets_serde_jsons_verdict_too(
            text in prop::collection::vec(prop::sample::select(b"{}[]\",:\\0-.e1tn u\xc3\xa9\x1f".to_vec()), 0..9),
        ) {
            prop_assert_eq!(verdict(&text).is_ok(), serde_json::from_slice::<&RawValue>(&text).is_ok());
        }
    }
}
