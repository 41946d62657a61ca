//! Is the next element of an array like one before it? Then it is JSON too, and is passed over as a whole.
//!
//! Nodes answer with long lists of the same: logs and receipts differ in the digits of their strings and in little else.
//! Put plain characters in place of the content of a valid value's strings, as many, and the value is as valid as it
//! was, and as deep. So an element whose bytes are those of a valid one before it outside the strings, and plain within
//! them, need not be read. Whether it is so, is asked of sixty-four bytes at a time.

use super::json_simd::{BLOCK, Baseline, Vectors};
use std::ops::Range;

/// Elements that are kept in mind are no longer than this.
const BLOCKS_MAX: usize = 24;
const LENGTH_MAX: usize = BLOCKS_MAX * BLOCK - 1;

/// Shapes that are kept in mind: neighbours take turns where an index has a digit more or a list an entry less.
const MODELS: usize = 4;

/// What a walk keeps in mind of the elements that are objects.
#[derive(Default)]
pub struct Shapes {
    /// Where the element starts that is being read, and how deep it stands.
    reading: Option<(usize, usize)>,
    /// The one that was read last, and how deep it stood; looked at only when another one follows.
    last: Option<(Range<usize>, usize)>,
    /// Nothing until two elements seem to be as long: other texts do not pay for it.
    known: Option<Known>,
}

/// The elements that others are held against.
struct Known {
    models: [Model; MODELS],
    /// The one that was right last.
    likely: usize,
    /// The next to be forgotten.
    oldest: usize,
}

/// An element that others are held against.
#[derive(Clone, Copy)]
struct Model {
    /// Where it starts.
    start: usize,
    /// 0 for none.
    length: usize,
    /// How deep it stands.
    depth: usize,
    /// The content of its strings, bit by bit.
    content: [u64; BLOCKS_MAX],
    /// The same of its last sixty-four bytes.
    content_last: u64,
}

impl Shapes {
    /// An object starts in an array, `depth` deep.
    #[inline(always)]
    pub fn open(&mut self, at: usize, depth: usize) {
        // Elements of elements count only where the outer ones are too long.
        if self.reading.is_none_or(|(start, outer)| depth <= outer || at - start > LENGTH_MAX) {
            self.reading = Some((at, depth));
        }
    }

    /// An object of an array, `depth` deep, ends before `end`.
    #[inline(always)]
    pub fn close(&mut self, end: usize, depth: usize) {
        let Some((start, _)) = self.reading.take_if(|(_, reading)| *reading == depth) else { return };
        self.last = Some((start..end, depth));
    }

    /// The end of the elements like one before that stand from `at` on with commas between, in an array whose elements
    /// are `depth` deep; `at` if there is none.
    #[inline(always)]
    pub fn pass<V: Vectors>(&mut self, text: &[u8], at: usize, depth: usize, vectors: V) -> usize {
        let last = self.last.take();
        if let Some(known) = &mut self.known {
            let passed = known.pass(text, at, depth, vectors);
            if passed > at {
                return passed;
            }
        }
        match last {
            Some((element, last_depth)) if last_depth == depth && may_be_model(text, &element, at) => {
                learn(&mut self.known, text, element, depth).pass(text, at, depth, vectors)
            }
            _ => at,
        }
    }
}

/// Whether the element is neither too short nor too long, and another one may end where one like it does.
#[inline(always)]
fn may_be_model(text: &[u8], element: &Range<usize>, at: usize) -> bool {
    (BLOCK..=LENGTH_MAX).contains(&element.len()) && text.get(at + element.len() - 1) == Some(&b'}')
}

/// Apart from the walk, whose registers are few.
#[inline(never)]
fn learn<'k>(known: &'k mut Option<Known>, text: &[u8], element: Range<usize>, depth: usize) -> &'k mut Known {
    let known = known.get_or_insert_with(|| {
        let none = Model { start: 0, length: 0, depth: 0, content: [0; BLOCKS_MAX], content_last: 0 };
        Known { models: [none; MODELS], likely: 0, oldest: 0 }
    });
    if let (Some(model), Some(learned)) = (known.models.get_mut(known.oldest), Model::of(text, element, depth)) {
        *model = learned;
        known.likely = known.oldest;
        known.oldest = (known.oldest + 1) % MODELS;
    }
    known
}

impl Known {
    #[inline(always)]
    fn pass<V: Vectors>(&mut self, text: &[u8], at: usize, depth: usize, vectors: V) -> usize {
        let (mut passed, mut next) = (at, at);
        let mut tried = 0;
        while tried < MODELS {
            match self.models.get(self.likely) {
                Some(model) if model.depth == depth && model.is_like(text, next, vectors) => {
                    tried = 0;
                    passed = next + model.length;
                    match text.get(passed) {
                        Some(b',') => next = passed + 1,
                        _ => break,
                    }
                }
                _ => {
                    tried += 1;
                    self.likely = (self.likely + 1) % MODELS;
                }
            }
        }
        passed
    }
}

impl Model {
    /// The model that this element is; `None` if it is none.
    fn of(text: &[u8], element: Range<usize>, depth: usize) -> Option<Model> {
        let value = text.get(element.clone())?;
        // An escaped quote is none.
        if memchr::memchr(b'\\', value).is_some() {
            return None;
        }
        let (blocks, rest) = value.as_chunks::<BLOCK>();
        let mut padded = [0; BLOCK];
        for (to, from) in padded.iter_mut().zip(rest) {
            *to = *from;
        }
        let mut model =
            Model { start: element.start, length: value.len(), depth, content: [0; BLOCKS_MAX], content_last: 0 };
        let mut in_string = 0;
        let (mut before, mut last) = (0, 0);
        for (content, block) in model.content.iter_mut().zip(blocks.iter().chain([&padded])) {
            let quotes = Baseline.equal(block, &[b'"'; BLOCK]);
            let strings = parity(quotes) ^ in_string;
            in_string = (strings.cast_signed() >> 63).cast_unsigned();
            *content = strings & !quotes;
            (before, last) = (last, *content);
        }
        model.content_last = match rest.len() {
            0 => before,
            length => last << (BLOCK - length) | before >> length,
        };
        Some(model)
    }

    /// Whether the text is like this from `at` on.
    #[inline(always)]
    fn is_like<V: Vectors>(&self, text: &[u8], at: usize, vectors: V) -> bool {
        let part = |start: usize| text.get(start..).and_then(|rest| rest.get(..self.length));
        let (Some(model), Some(text)) = (part(self.start), part(at)) else { return false };
        // Most of those that are not are of another length.
        if text.last() != Some(&b'}') {
            return false;
        }
        let blocks = model.as_chunks::<BLOCK>().0.iter().zip(text.as_chunks::<BLOCK>().0);
        for ((one, other), content) in blocks.zip(&self.content) {
            if !vectors.are_alike(one, other, *content) {
                return false;
            }
        }
        match (model.last_chunk(), text.last_chunk()) {
            (Some(one), Some(other)) => vectors.are_alike(one, other, self.content_last),
            _ => false,
        }
    }
}

/// Each bit is the parity of the bits up to and with it.
const fn parity(mut bits: u64) -> u64 {
    let mut width = 1;
    while width < 64 {
        bits ^= bits << width;
        width *= 2;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::super::json::{JsonError, skip_container_on, validate};
    use super::super::json_simd::Level;
    use super::*;
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    /// The verdict of each set of vectors, which must be the same; and serde_json's.
    fn verdict(text: &[u8]) -> bool {
        let sound = serde_json::from_slice::<&RawValue>(text).is_ok();
        for level in Level::ALL {
            let told = skip_container_on(level, text, 0, 100);
            assert!(
                told.is_none_or(|told| (told == Ok(text.len())) == sound),
                "{level:?} {told:?} {}",
                String::from_utf8_lossy(text)
            );
        }
        assert_eq!(validate(text, 100).is_ok(), sound, "{}", String::from_utf8_lossy(text));
        sound
    }

    /// An element of `length` bytes or a few more.
    fn element(length: usize) -> String {
        let frame = r#"{"a":["0x"],"b":{"c":null,"d":[]},"e":-1.5,"f":""}"#;
        let (start, end) = frame.split_at(frame.len() - 2);
        format!("{start}{}{end}", "0".repeat(length.saturating_sub(frame.len())))
    }

    #[test]
    fn a_change_of_any_byte_is_judged_as_if_it_were_the_first() {
        for length in (50..200).chain([1_534, 1_535, 1_536, 1_537]) {
            let element = element(length);
            let places: Vec<usize> = match element.len() {
                1_000.. => (0..50).chain(element.len() - 70..element.len()).collect(),
                length => (0..length).filter(|place| place % 3 == length % 3).collect(),
            };
            for place in places {
                for byte in *b"\"\\{}],:0a \n\x1f\x80" {
                    let mut changed = element.clone().into_bytes();
                    changed[place] = byte;
                    let elements =
                        [element.as_bytes(), element.as_bytes(), element.as_bytes(), &changed, element.as_bytes()];
                    let text = [b"[", elements.join(&b","[..]).as_slice(), b"]"].concat();
                    verdict(&text);
                }
            }
        }
    }

    #[test]
    fn what_stands_between_and_behind_is_still_read() {
        let element = element(100);
        for (between, end, sound) in [
            (",", "]", true),
            (" ,\n ", " ]", true),
            (",", "}", false),
            (",", "", false),
            (",", ",]", false),
            ("", "]", false),
            (",,", "]", false),
            (":", "]", false),
            (",", "1]", false),
        ] {
            let text = format!("[{}{end}", [element.as_str(); 6].join(between));
            assert_eq!(verdict(text.as_bytes()), sound, "{text}");
        }
        // Cut short anywhere.
        let text = format!("[{}]", [element.as_str(); 4].join(","));
        for end in 1..text.len() {
            assert!(!verdict(&text.as_bytes()[..end]));
        }
    }

    #[test]
    fn an_element_that_was_no_element_is_no_model() {
        let member = element(100);
        // The same objects as members of an object, of which the next element may not be one.
        let object = format!(r#"{{"x":{member},"y":{member},{member}}}"#);
        assert!(!verdict(object.as_bytes()));
        let deeper = format!("[[{member},{member},{member}],{member},{member},{member},[[{member}]]]");
        assert!(verdict(deeper.as_bytes()));
    }

    #[test]
    fn the_limit_of_depth_holds_for_each_element() {
        let deep = format!("{{\"a\":{}{}{},\"b\":\"{}\"}}", "[".repeat(50), 1, "]".repeat(50), "0".repeat(60));
        let text = format!("[{}]", [deep.as_str(); 5].join(","));
        assert_eq!(validate(text.as_bytes(), 52), Ok(()));
        assert_eq!(validate(text.as_bytes(), 51), Err(JsonError::TooDeep));
        // Where it stands deeper it is read anew.
        let text = format!("[{deep},{deep},{deep},[{deep},{deep},{deep}]]");
        assert_eq!(validate(text.as_bytes(), 53), Ok(()));
        assert_eq!(validate(text.as_bytes(), 52), Err(JsonError::TooDeep));
    }

    #[test]
    fn likeness_is_found() {
        struct Passed<'t>(&'t [u8]);
        impl super::super::json_simd::Work for Passed<'_> {
            type Out = usize;

            #[inline(always)]
            fn run(self, vectors: impl Vectors) -> usize {
                let length = self.0.iter().position(|byte| *byte == b'}').unwrap() + 1;
                let mut shapes = Shapes::default();
                shapes.open(0, 1);
                shapes.close(length, 1);
                assert_eq!(shapes.pass(self.0, length + 1, 2, vectors), length + 1);
                shapes.open(0, 1);
                shapes.close(length, 1);
                shapes.pass(self.0, length + 1, 1, vectors)
            }
        }
        for length in 64..300 {
            let hex = |digit: &str| digit.repeat(length - 8);
            let text =
                format!(r#"{{"a":"{}"}},{{"a":"{}"}},{{"b":"{}"}},{{"b":1,"c":0}}"#, hex("0"), hex("f"), hex("-"));
            for level in Level::ALL {
                if let Some(passed) = level.run(Passed(text.as_bytes())) {
                    assert_eq!(&text[passed..], r#",{"b":1,"c":0}"#, "{level:?} {length}");
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn lists_of_the_same_get_serde_jsons_verdict(
            shape in "(\\{\"[a-z]{1,9}\":(\"[0-9a-f]{0,70}\"|[0-9]{1,3}|\\[(\"[0-9a-f]{10}\")?\\]),\"[a-z]{1,30}\":\"[a-f é]{20,80}\"\\})",
            digits in prop::collection::vec(prop::sample::select(b"0123456789abcdefghij".to_vec()), 40),
            count in 3..7usize,
            edits in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![
                prop::sample::select(b"{}[]\",:\\0 \n\x1f\x7f".to_vec()), any::<u8>()
            ]), 0..3),
            space in "[ \n]{0,2}",
        ) {
            let mut digits = digits.iter().cycle();
            let elements: Vec<Vec<u8>> = (0..count).map(|_| {
                let mut in_string = false;
                shape.bytes().map(|byte| {
                    in_string ^= byte == b'"';
                    if in_string && byte.is_ascii_hexdigit() { *digits.next().unwrap() } else { byte }
                }).collect()
            }).collect();
            let mut text = [b"[", elements.join(format!(",{space}").as_bytes()).as_slice(), b"]"].concat();
            verdict(&text);
            for (place, byte) in edits {
                let at = place.index(text.len());
                text[at] = byte;
            }
            if text[0] == b'[' {
                verdict(&text);
            }
        }
    }
}
