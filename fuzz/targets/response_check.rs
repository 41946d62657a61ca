//! Answers of upstreams: the check against serde_json, and the scanner's vectors against its plain bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway::wire::json::skip_container_on;
use ringway::wire::json_simd::{BLOCK, Baseline, Level, Scalar, Vectors, Work, scalar_stops, with_best_vectors};
use ringway::wire::json_strings::Strings;
use ringway::wire::jsonrpc::{BadAnswer, Checked, check};
use ringway::wire::jsonrpc_check::RESPONSE_DEPTH_MAX;
use ringway_fuzz::json;
use std::ops::Range;

const IDS: [u64; 8] = [0, 1, 7, 10, 1200, 999_999_999_999_999, 18_446_744_073_709_551_610, u64::MAX];

fuzz_target!(|data: &[u8]| {
    let Some(([id, nesting], inner)) = ringway_fuzz::settings::<2>(data) else { return };
    let sent_id = IDS[usize::from(id % 8)];
    let body = nested(inner, *nesting);
    vectors_agree(&body);
    levels_agree(&body);
    levels_agree(&repeated(inner, *nesting));
    let ours = check(&body, sent_id);
    if let Checked::Result(range) | Checked::Error { value: range, .. } = &ours {
        assert!(range.start < range.end && range.end < body.len());
    }
    let too_deep = json::depth(json::without_mark(&body)) > RESPONSE_DEPTH_MAX;
    match json::value(&body) {
        // What ends the check early is not looked behind.
        None => assert!(
            matches!(ours, Checked::Bad(BadAnswer::NotJson | BadAnswer::DuplicateMember))
                || too_deep && ours == Checked::Bad(BadAnswer::TooDeep),
            "{ours:?}"
        ),
        Some(_) if too_deep => {
            assert!(matches!(ours, Checked::Bad(BadAnswer::TooDeep | BadAnswer::DuplicateMember)), "{ours:?}");
        }
        Some(text) => assert_eq!(ours, expected(&body, text, sent_id), "sent {sent_id}: {text}"),
    }
});

/// The text, or with a high number many brackets around its last value: mutations alone rarely get deep.
fn nested(inner: &[u8], nesting: u8) -> Vec<u8> {
    let Some(levels) = nesting.checked_sub(127) else { return inner.to_vec() };
    let levels = usize::from(levels) * 80;
    let at = inner.iter().rposition(|byte| *byte == b':').map_or(0, |at| at + 1);
    let (before, behind) = inner.split_at(at);
    let (value, close) = behind.split_at(behind.len() - usize::from(behind.ends_with(b"}")));
    [before, &b"[".repeat(levels), value, &b"]".repeat(levels), close].concat()
}

/// The verdict on a valid text.
fn expected(body: &[u8], text: &str, sent_id: u64) -> Checked {
    let bad = Checked::Bad;
    if !text.starts_with('{') {
        return bad(BadAnswer::NotAnObject);
    }
    let members: Vec<(String, &str)> =
        json::members(text).into_iter().map(|(name, value)| (json::text(name), value)).collect();
    let all = |wanted: &str| -> Vec<&str> {
        members.iter().filter(|(name, _)| name == wanted).map(|(_, value)| *value).collect()
    };
    let (ids, results, errors) = (all("id"), all("result"), all("error"));
    if ids.len() > 1 || results.len() > 1 || errors.len() > 1 {
        return bad(BadAnswer::DuplicateMember);
    }
    let busy = |value: &&str| {
        value.starts_with('"') && json::text(json::inside(value)).contains("lack of computing resources")
    };
    if ids.is_empty() && results.is_empty() && errors.is_empty() && all("Error").iter().any(busy) {
        return Checked::NodeBusy;
    }
    let Some(id) = ids.first() else { return bad(BadAnswer::NoId) };
    if !id.starts_with(|c: char| c == '-' || c.is_ascii_digit()) || !json::number_is(id, sent_id) {
        return bad(BadAnswer::WrongId);
    }
    let error = errors.first().filter(|error| **error != "null");
    match (results.first(), error) {
        (Some(result), Some(_)) if *result != "null" => bad(BadAnswer::BothResultAndError),
        (_, Some(error)) => {
            code_of(error).map_or(bad(BadAnswer::BadError), |code| Checked::Error { code, value: place(body, error) })
        }
        (Some(result), None) => Checked::Result(place(body, result)),
        (None, None) => bad(BadAnswer::NeitherResultNorError),
    }
}

/// The one `code` of an error object, if it is a plain integer.
fn code_of(error: &str) -> Option<i64> {
    if !error.starts_with('{') {
        return None;
    }
    let codes: Vec<&str> = json::members(error)
        .into_iter()
        .filter(|(name, _)| json::text(name) == "code")
        .map(|(_, value)| value)
        .collect();
    let [code] = codes[..] else { return None };
    if code.contains(['.', 'e', 'E', '"']) { None } else { code.parse().ok() }
}

/// Where a part of the body stands in it.
fn place(body: &[u8], part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - body.as_ptr() as usize;
    start..start + part.len()
}

/// The ends of the strings of a text, one behind the other, until one is broken.
struct Ends<'t>(&'t [u8]);

impl Work for Ends<'_> {
    type Out = (Vec<usize>, bool);

    #[inline(always)]
    fn run(self, vectors: impl Vectors) -> Self::Out {
        let (mut strings, mut ends, mut at) = (Strings::new(self.0, 0, vectors), Vec::new(), 0);
        while let Some(quote) = self.0[at..].iter().position(|byte| *byte == b'"') {
            match strings.skip(at + quote + 1) {
                Ok(end) => at = end,
                Err(_) => return (ends, false),
            }
            ends.push(at);
        }
        (ends, true)
    }
}

/// An array of the text, given several times: its elements are alike, but for one.
fn repeated(inner: &[u8], odd: u8) -> Vec<u8> {
    let mut other = inner.to_vec();
    if let Some(byte) = other.get_mut(usize::from(odd)) {
        *byte = byte.wrapping_add(1);
    }
    [&b"["[..], inner, b",", inner, b",", inner, b",", &other, b",", inner, b"]"].concat()
}

/// Every set of vectors gives the same verdict on an array or an object, and serde_json's.
fn levels_agree(text: &[u8]) {
    if !text.starts_with(b"[") && !text.starts_with(b"{") {
        return;
    }
    let sound = json::depth(text) <= RESPONSE_DEPTH_MAX && json::value(text).is_some();
    for level in Level::ALL {
        if let Some(told) = skip_container_on(level, text, 0, RESPONSE_DEPTH_MAX) {
            let whole = told.is_ok_and(|end| text[end..].iter().all(|byte| b" \n\r\t".contains(byte)));
            assert_eq!(whole, sound, "{level:?} {told:?}");
        }
    }
}

struct Stops<'t>(&'t [u8; BLOCK]);

impl Work for Stops<'_> {
    type Out = u64;

    #[inline(always)]
    fn run(self, vectors: impl Vectors) -> u64 {
        vectors.stops(self.0)
    }
}

fn vectors_agree(text: &[u8]) {
    for block in text.as_chunks::<BLOCK>().0 {
        let plain = scalar_stops(block);
        assert_eq!((Baseline.stops(block), with_best_vectors(Stops(block))), (plain, plain));
    }
    let plain = Ends(text).run(Scalar);
    assert_eq!(Ends(text).run(Baseline), plain);
    assert_eq!(with_best_vectors(Ends(text)), plain);
    // And serde_json takes each of them for one string.
    let mut at = 0;
    for end in plain.0.iter().take(64) {
        let start = at + text[at..].iter().position(|byte| *byte == b'"').expect("a quote");
        assert!(json::value(&text[start..*end]).is_some());
        at = *end;
    }
}
