//! What does the caller ask? One pass from a request body to its Call, or to the members of a batch.
//!
//! The response check and the writers live beside this file, and are reached through it.

pub use super::jsonrpc_check::{BadAnswer, Checked, check};
pub use super::jsonrpc_write::{answer_prefix_len, request_len, write_answer_prefix, write_fault, write_request};

use super::http1_lines::short_text;
use super::json::{self, JsonError};
use super::json_text::{self, folds_to};
use super::jsonrpc_members::Members;
use crate::logic::call::{Call, Id};
use crate::logic::fault::{Fault, Invalid};
use std::borrow::Cow;

/// Nesting that a request may have, the envelope and the batch around it included.
pub const REQUEST_DEPTH_MAX: usize = 128;

/// A request body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message<'a> {
    /// One object.
    Single(Result<Call<'a>, Refused<'a>>),
    /// A non-empty array.
    Batch(Batch<'a>),
}

/// A member that is not a valid Call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused<'a> {
    /// The id, if exactly one well-typed `id` could be read; else absent, and the answer says `null`.
    pub id: Id<'a>,
    /// What is wrong.
    pub why: Invalid,
}

/// A batch whose text is known to be valid; its members are read as they are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch<'a> {
    body: &'a [u8],
    /// Where the first member starts.
    start: usize,
    len: usize,
}

impl<'a> Batch<'a> {
    /// The number of members: at least one.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The members, in the order of the request.
    pub fn iter(&self) -> BatchCalls<'a> {
        BatchCalls { body: self.body, at: self.start, left: self.len }
    }
}

impl<'a> IntoIterator for Batch<'a> {
    type Item = Result<Call<'a>, Refused<'a>>;
    type IntoIter = BatchCalls<'a>;

    fn into_iter(self) -> BatchCalls<'a> {
        self.iter()
    }
}

/// Reads the members of a [`Batch`] one by one.
#[derive(Debug, Clone)]
pub struct BatchCalls<'a> {
    body: &'a [u8],
    at: usize,
    left: usize,
}

impl<'a> Iterator for BatchCalls<'a> {
    type Item = Result<Call<'a>, Refused<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        // The text was validated when the batch was made, so neither reading can fail.
        let (call, end) = read_member(self.body, self.at).ok()?;
        self.at = next_element(self.body, end).ok()?.unwrap_or(end);
        Some(call)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for BatchCalls<'_> {}

/// Reads a request body. A fault is about the body as a whole, and its answer has the id `null`.
pub fn parse(body: &[u8], max_batch: usize) -> Result<Message<'_>, Fault> {
    let at = text_start(body);
    match body.get(at) {
        Some(b'{') => {
            let (call, end) = read_call(body, at + 1, REQUEST_DEPTH_MAX - 1).map_err(whole)?;
            json::expect_end(body, end).map_err(whole)?;
            Ok(Message::Single(call))
        }
        Some(b'[') => read_batch(body, at + 1, max_batch).map(Message::Batch),
        _ => {
            let end = json::skip_value(body, at, 0).map_err(whole)?;
            json::expect_end(body, end).map_err(whole)?;
            Err(Fault::InvalidRequest(Invalid::NotAnObject))
        }
    }
}

/// Where the JSON text starts: after a byte order mark and whitespace.
pub(super) fn text_start(body: &[u8]) -> usize {
    json::skip_whitespace(body, if body.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 })
}

fn whole(error: JsonError) -> Fault {
    match error {
        JsonError::Invalid => Fault::NotJson,
        JsonError::TooDeep => Fault::InvalidRequest(Invalid::TooDeep),
    }
}

/// Validates the array whose opening bracket stands just before `at`, and counts its elements.
fn read_batch(body: &[u8], at: usize, max_batch: usize) -> Result<Batch<'_>, Fault> {
    let start = json::skip_whitespace(body, at);
    if body.get(start) == Some(&b']') {
        json::expect_end(body, start + 1).map_err(whole)?;
        return Err(Fault::InvalidRequest(Invalid::EmptyBatch));
    }
    let (mut at, mut len) = (start, 0);
    let end = loop {
        let end = json::skip_value(body, at, REQUEST_DEPTH_MAX - 1).map_err(whole)?;
        len += 1;
        match next_element(body, end).map_err(whole)? {
            Some(next) => at = next,
            None => break json::skip_whitespace(body, end) + 1,
        }
    };
    json::expect_end(body, end).map_err(whole)?;
    if len > max_batch {
        return Err(Fault::InvalidRequest(Invalid::BatchTooLong));
    }
    Ok(Batch { body, start, len })
}

/// Where the next element of an array starts, after one that ended at `end`; `None` at the closing bracket.
fn next_element(body: &[u8], end: usize) -> Result<Option<usize>, JsonError> {
    let at = json::skip_whitespace(body, end);
    match body.get(at) {
        Some(b',') => Ok(Some(json::skip_whitespace(body, at + 1))),
        Some(b']') => Ok(None),
        _ => Err(JsonError::Invalid),
    }
}

type MemberRead<'a> = Result<(Result<Call<'a>, Refused<'a>>, usize), JsonError>;

/// Reads the batch member that starts at `at`.
fn read_member(body: &[u8], at: usize) -> MemberRead<'_> {
    if body.get(at) == Some(&b'{') {
        return read_call(body, at + 1, REQUEST_DEPTH_MAX - 2);
    }
    let end = json::skip_value(body, at, REQUEST_DEPTH_MAX - 1)?;
    Ok((Err(Refused { id: Id::Absent, why: Invalid::NotAnObject }), end))
}

/// Reads the object whose opening brace stands just before `at`; its values may be `depth_max` deep.
fn read_call(body: &[u8], at: usize, depth_max: usize) -> MemberRead<'_> {
    let mut members = Members::new(body, at);
    let mut envelope = Envelope::default();
    while let Some(name) = members.next_name()? {
        let name = Name::of(name);
        let value = members.skip(depth_max)?;
        envelope.note(name, body.get(value).unwrap_or_default());
    }
    Ok((envelope.judge(), members.at()))
}

/// What a member's name means to us.
enum Name {
    Method,
    Id,
    Params,
    Jsonrpc,
    /// One of those four to a node that folds names, but not to one that compares them.
    Misspelled,
    Other,
}

impl Name {
    fn of(raw: &[u8]) -> Name {
        match raw {
            b"method" => Name::Method,
            b"id" => Name::Id,
            b"params" => Name::Params,
            b"jsonrpc" => Name::Jsonrpc,
            _ if folds_to_envelope_name(raw) => Name::Misspelled,
            _ => Name::Other,
        }
    }
}

fn folds_to_envelope_name(raw: &[u8]) -> bool {
    // The longest spelling is `jsonrpc` with seven escapes of six bytes.
    (2..=42).contains(&raw.len())
        && ["method", "id", "params", "jsonrpc"].iter().any(|name| folds_to(raw, name.as_bytes()))
}

/// The members found so far.
#[derive(Default)]
struct Envelope<'a> {
    method: Option<&'a [u8]>,
    id: Option<&'a [u8]>,
    params: Option<&'a [u8]>,
    jsonrpc: Option<&'a [u8]>,
    id_twice: bool,
    misnamed: Option<Invalid>,
}

impl<'a> Envelope<'a> {
    #[inline]
    fn note(&mut self, name: Name, value: &'a [u8]) {
        let place = match name {
            Name::Method => &mut self.method,
            Name::Id => &mut self.id,
            Name::Params => &mut self.params,
            Name::Jsonrpc => &mut self.jsonrpc,
            Name::Misspelled => {
                self.misnamed.get_or_insert(Invalid::MisspelledMember);
                return;
            }
            Name::Other => return,
        };
        if place.replace(value).is_some() {
            self.id_twice |= matches!(name, Name::Id);
            self.misnamed.get_or_insert(Invalid::DuplicateMember);
        }
    }

    /// Names are judged first, then the id, then the method.
    fn judge(self) -> Result<Call<'a>, Refused<'a>> {
        let (id, id_fault) = match self.id {
            None => (Id::Absent, None),
            Some(_) if self.id_twice => (Id::Absent, None),
            Some(text @ [b'"' | b'-' | b'0'..=b'9' | b'n', ..]) => (Id::Present(text), None),
            Some(_) => (Id::Absent, Some(Invalid::BadId)),
        };
        if let Some(why) = self.misnamed.or(id_fault) {
            return Err(Refused { id, why });
        }
        let method = match self.method {
            None => Err(Invalid::NoMethod),
            Some([b'"', raw @ .., b'"']) => method(raw).ok_or(Invalid::MethodNotAString),
            Some(_) => Err(Invalid::MethodNotAString),
        };
        match method {
            Ok(method) => Ok(Call { id, method, params: self.params }),
            Err(why) => Err(Refused { id, why }),
        }
    }
}

/// The decoded name of a method.
#[inline(always)]
fn method(raw: &[u8]) -> Option<Cow<'_, str>> {
    // Names are short: a look at each byte costs less than setting out for a long text.
    if raw.len() <= 32 && raw.iter().all(|&byte| byte != b'\\') {
        return short_text(raw).map(Cow::Borrowed);
    }
    json_text::unescape(raw)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::wire::json::tests::{edited, edits, json_text};
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    fn single(body: &str) -> Result<Call<'_>, Refused<'_>> {
        match parse(body.as_bytes(), 10) {
            Ok(Message::Single(call)) => call,
            other => panic!("{body}: {other:?}"),
        }
    }

    fn refused(body: &str) -> (&str, Invalid) {
        let Refused { id, why } = single(body).expect_err(body);
        (std::str::from_utf8(id.bytes()).unwrap(), why)
    }

    fn fault(body: &str) -> Fault {
        parse(body.as_bytes(), 3).expect_err(body)
    }

    fn batch(body: &str) -> Vec<Result<Call<'_>, Refused<'_>>> {
        match parse(body.as_bytes(), 10) {
            Ok(Message::Batch(batch)) => {
                assert_eq!(batch.len(), batch.iter().count());
                batch.iter().collect()
            }
            other => panic!("{body}: {other:?}"),
        }
    }

    #[test]
    fn an_ordinary_call_is_borrowed_as_it_is() {
        let call = single(r#"{"jsonrpc":"2.0","id":7,"method":"eth_call","params":[{"to":"0x"}, "latest"]}"#).unwrap();
        assert_eq!(call.id, Id::Present(b"7"));
        assert!(matches!(call.method, Cow::Borrowed("eth_call")));
        assert_eq!(call.params, Some(&br#"[{"to":"0x"}, "latest"]"#[..]));
    }

    #[test]
    fn whitespace_and_a_byte_order_mark_may_stand_around() {
        for body in ["\u{feff}{\"method\":\"m\"}", " \r\n\t{\"method\":\"m\"}\n ", "\u{feff} { \"method\" : \"m\" } "] {
            assert_eq!(single(body).unwrap().method, "m", "{body:?}");
        }
        assert_eq!(batch("\u{feff}[ {\"method\":\"m\"} ] ").len(), 1);
        assert_eq!(fault(" \u{feff}{\"method\":\"m\"}"), Fault::NotJson);
        assert_eq!(fault("\u{feff}\u{feff}{\"method\":\"m\"}"), Fault::NotJson);
    }

    #[test]
    fn ids_keep_their_bytes() {
        for id in
            ["0", "-0", "1.50", "1e999", "123456789012345678901234567890", "\"\"", r#""\u0061\ud800""#, "null", "\"é\""]
        {
            assert_eq!(single(&format!("{{\"id\": {id} ,\"method\":\"m\"}}")).unwrap().id, Id::Present(id.as_bytes()));
        }
        assert_eq!(single(r#"{"method":"m"}"#).unwrap().id, Id::Absent);
    }

    #[test]
    fn ids_of_another_type_are_refused_with_null() {
        for id in ["true", "false", "[]", "[1]", "{}", "{\"id\":1}"] {
            assert_eq!(refused(&format!("{{\"method\":\"m\",\"id\":{id}}}")), ("null", Invalid::BadId));
        }
    }

    #[test]
    fn params_may_be_any_json_value() {
        for params in ["[]", "{}", "null", "1e999", "\"x\\ud800\"", "false", "[ [1 ] ]"] {
            let body = format!("{{\"method\":\"m\",\"params\":{params}}}");
            assert_eq!(single(&body).unwrap().params, Some(params.as_bytes()));
        }
        assert_eq!(single(r#"{"method":"m"}"#).unwrap().params, None);
    }

    #[test]
    fn jsonrpc_may_be_odd_or_missing_and_other_members_are_skipped() {
        for head in [
            "",
            "\"jsonrpc\":1,",
            "\"jsonrpc\":null,",
            "\"jsonrpc\":{\"a\":[]},",
            "\"x\":[{\"id\":3,\"method\":4}],\"x\":1,",
        ] {
            assert_eq!(single(&format!("{{{head}\"id\":1,\"method\":\"m\"}}")).unwrap().id, Id::Present(b"1"));
        }
    }

    #[test]
    fn the_method_is_decoded() {
        let call = single(r#"{"method":"eth\u005f\u0063all\ud83d\ude00\n"}"#);
        assert_eq!(call.unwrap().method, "eth_call😀\n");
        assert_eq!(single(r#"{"method":""}"#).unwrap().method, "");
    }

    #[test]
    fn a_method_must_be_a_string_that_can_be_decoded() {
        for method in ["1", "null", "[\"m\"]", "{}", "true", r#""\ud800""#, r#""a\udc00b""#] {
            let body = format!("{{\"id\":\"x\",\"method\":{method}}}");
            assert_eq!(refused(&body), ("\"x\"", Invalid::MethodNotAString), "{body}");
        }
        assert_eq!(refused(r#"{"id":4}"#), ("4", Invalid::NoMethod));
        assert_eq!(refused("{}"), ("null", Invalid::NoMethod));
    }

    #[test]
    fn envelope_members_come_once() {
        assert_eq!(refused(r#"{"id":1,"method":"a","method":"b"}"#), ("1", Invalid::DuplicateMember));
        assert_eq!(refused(r#"{"id":1,"params":[],"method":"b","params":[]}"#), ("1", Invalid::DuplicateMember));
        assert_eq!(
            refused(r#"{"jsonrpc":"2.0","id":1,"jsonrpc":"2.0","method":"b"}"#),
            ("1", Invalid::DuplicateMember)
        );
        assert_eq!(refused(r#"{"id":1,"method":"a","id":1}"#), ("null", Invalid::DuplicateMember));
        assert_eq!(refused(r#"{"id":1,"method":"a","id":[]}"#), ("null", Invalid::DuplicateMember));
    }

    #[test]
    fn envelope_members_are_spelled_exactly() {
        for name in [
            "Method",
            "METHOD",
            "methoD",
            r"m\u0065thod",
            r"\u004dethod",
            "ID",
            "Id",
            "iD",
            r"\u0069d",
            r"\u0049D",
            "Params",
            "paramſ",
            "param\\u017f",
            "PARAM\\u017F",
            "jſonrpc",
            "JsonRPC",
            r"\u006a\u0073\u006f\u006e\u0072\u0070\u0063",
        ] {
            assert_eq!(
                refused(&format!("{{\"{name}\":1,\"method\":\"m\"}}")),
                ("null", Invalid::MisspelledMember),
                "{name}"
            );
            let body = format!("{{\"id\":5,\"method\":\"m\",\"{name}\":\"\"}}");
            assert_eq!(refused(&body), ("5", Invalid::MisspelledMember), "{name}");
        }
    }

    #[test]
    fn names_that_no_folding_makes_equal_are_others() {
        for name in [
            "methods",
            "metho",
            "m",
            "",
            "іd",
            "ıd",
            "id ",
            r"id\u0000",
            r"\\u0069d",
            r"\ud800",
            "param\u{15f}",
            "jsonrpc2",
        ] {
            assert!(single(&format!("{{\"{name}\":1,\"method\":\"m\"}}")).is_ok(), "{name}");
        }
    }

    #[test]
    fn bodies_that_are_not_json_are_told_so() {
        for body in [
            "",
            " ",
            "\u{feff}",
            "{",
            "[",
            "nul",
            "{\"method\":\"m\"}}",
            "{\"method\":\"m\"} x",
            "[{\"method\":\"m\"},]",
            "[1 2]",
            "{\"method\":\"m\",}",
            "{\"id\":1,\"id\":01}",
            "[] []",
            "[1]]",
            "[}",
            "1 2",
            "{\"method\":\"a\u{1}\"}",
            "{\"a\":[1,}",
        ] {
            assert_eq!(fault(body), Fault::NotJson, "{body:?}");
        }
        assert_eq!(parse(b"{\"method\":\"\xff\"}", 1), Err(Fault::NotJson));
        assert_eq!(parse(b"[{\"method\":\"m\"},\"\xff\"]", 9), Err(Fault::NotJson));
    }

    #[test]
    fn valid_json_that_is_no_call_is_told_so() {
        for body in ["1", "null", " true ", "\"x\"", "-0.1e1"] {
            assert_eq!(fault(body), Fault::InvalidRequest(Invalid::NotAnObject));
        }
        assert_eq!(fault(" [ ] "), Fault::InvalidRequest(Invalid::EmptyBatch));
        assert_eq!(fault("[1,2,3,4]"), Fault::InvalidRequest(Invalid::BatchTooLong));
        assert_eq!(fault("[1,2,3,4,]"), Fault::NotJson);
        assert!(parse(b"[1,2,3]", 3).is_ok());
    }

    #[test]
    fn depth_counts_the_envelope_and_the_batch() {
        let body = |levels: usize, head: &str, tail: &str| {
            format!("{head}{{\"method\":\"m\",\"params\":{}1{}}}{tail}", "[".repeat(levels), "]".repeat(levels))
        };
        let too_deep = Fault::InvalidRequest(Invalid::TooDeep);
        assert!(single(&body(127, "", "")).is_ok());
        assert_eq!(fault(&body(128, "", "")), too_deep);
        assert!(batch(&body(126, "[", "]"))[0].is_ok());
        assert_eq!(fault(&body(127, "[", "]")), too_deep);
        assert_eq!(fault(&"[".repeat(1_000_000)), too_deep);
        assert_eq!(fault(&"{\"a\":".repeat(1_000_000)), too_deep);
        let lists = |levels: usize| ["[".repeat(levels), "]".repeat(levels)].concat();
        assert!(batch(&lists(128))[0].is_err());
        assert_eq!(fault(&lists(129)), too_deep);
    }

    #[test]
    fn batch_members_are_judged_one_by_one_in_order() {
        let members = batch(
            r#"[{"id":1,"method":"a"} , 7,{"method":"b","params":[[],{}]},[{}], {"id":"x"},{"id":1,"method":"c"}]"#,
        );
        let told: Vec<_> = members
            .iter()
            .map(|member| match member {
                Ok(call) => (call.id, call.method.as_ref(), None),
                Err(refused) => (refused.id, "", Some(refused.why)),
            })
            .collect();
        assert_eq!(
            told,
            [
                (Id::Present(b"1"), "a", None),
                (Id::Absent, "", Some(Invalid::NotAnObject)),
                (Id::Absent, "b", None),
                (Id::Absent, "", Some(Invalid::NotAnObject)),
                (Id::Present(b"\"x\""), "", Some(Invalid::NoMethod)),
                (Id::Present(b"1"), "c", None),
            ]
        );
    }

    /// One member of an envelope, rightly or wrongly named and filled.
    fn member() -> impl Strategy<Value = String> {
        let name = prop::sample::select(vec!["method", "id", "params", "jsonrpc", "Method", r"\u0069d", "x", "paramſ"]);
        (name, prop_oneof![2 => json_text(), 1 => "\"[a-z_]{0,9}\"", 1 => "[0-9]"])
            .prop_map(|(name, value)| format!("\"{name}\":{value}"))
    }

    /// The members of an object as serde_json finds them: names with their quotes and escapes, in order.
    pub fn pairs(body: &[u8]) -> Option<Vec<(&str, &RawValue)>> {
        struct Pairs<'a>(Vec<(&'a str, &'a RawValue)>);
        struct Visit;
        impl<'de> serde::de::Visitor<'de> for Visit {
            type Value = Pairs<'de>;
            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(name) = map.next_key::<&RawValue>()? {
                    pairs.push((name.get(), map.next_value()?));
                }
                Ok(Pairs(pairs))
            }
        }
        impl<'de> serde::Deserialize<'de> for Pairs<'de> {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_map(Visit)
            }
        }
        Some(serde_json::from_slice::<Pairs<'_>>(body).ok()?.0)
    }

    /// The rules again, over serde_json's reading of the object.
    fn model(body: &[u8]) -> Option<Result<Call<'_>, Refused<'_>>> {
        let pairs = pairs(body)?;
        let values = |wanted: &str| -> Vec<&str> {
            pairs.iter().filter(|(name, _)| *name == format!("\"{wanted}\"")).map(|(_, value)| value.get()).collect()
        };
        let envelope = ["method", "id", "params", "jsonrpc"];
        let misspelled = pairs.iter().any(|(name, _)| {
            let plain = serde_json::from_str::<String>(name).unwrap_or_default();
            let folded = plain.to_ascii_lowercase().replace('ſ', "s");
            envelope.contains(&folded.as_str()) && *name != format!("\"{folded}\"")
        });
        let twice = envelope.iter().any(|name| values(name).len() > 1);
        let id = match values("id")[..] {
            [id] if !id.starts_with(['[', '{', 't', 'f']) => Id::Present(id.as_bytes()),
            _ => Id::Absent,
        };
        let method = values("method").first().map(|method| serde_json::from_str::<String>(method).ok());
        let bad_id = values("id").len() == 1 && id == Id::Absent;
        Some(match method {
            Some(Some(method)) if !misspelled && !twice && !bad_id => {
                Ok(Call { id, method: method.into(), params: values("params").first().map(|text| text.as_bytes()) })
            }
            _ => Err(Refused { id, why: Invalid::NotAnObject }),
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn a_call_is_what_serde_json_reads(members in prop::collection::vec(member(), 0..5), edits in edits()) {
            for body in [format!("{{{}}}", members.join(",")).into_bytes(), edited(format!("{{{}}}", members.join(" , ")), edits)] {
                let found = parse(&body, 10);
                match (model(&body), &found) {
                    (Some(Ok(call)), Ok(Message::Single(found))) => prop_assert_eq!(found, &Ok(call)),
                    (Some(Err(refused)), Ok(Message::Single(Err(found)))) => prop_assert_eq!(refused.id, found.id),
                    (None, Err(_) | Ok(Message::Batch(_))) => {}
                    (model, _) => prop_assert!(false, "{:?} but {:?}: {}", model, found, String::from_utf8_lossy(&body)),
                }
            }
        }

        #[test]
        fn a_batch_is_its_members(bodies in prop::collection::vec(prop_oneof![
            2 => prop::collection::vec(member(), 0..5).prop_map(|members| format!(" {{{}}} ", members.join(","))),
            1 => json_text(),
        ], 1..6)) {
            let body = format!("[{}]", bodies.join(","));
            let Ok(Message::Batch(batch)) = parse(body.as_bytes(), 6) else { panic!("{body}") };
            prop_assert_eq!(batch.len(), bodies.len());
            for (found, alone) in batch.into_iter().zip(&bodies) {
                match parse(alone.as_bytes(), 6) {
                    Ok(Message::Single(alone)) => prop_assert_eq!(found, alone),
                    _ => prop_assert_eq!(found, Err(Refused { id: Id::Absent, why: Invalid::NotAnObject })),
                }
            }
        }

        #[test]
        fn a_written_request_reads_back(id in prop::option::of(0..1_000_000_000_000_000u64), method in any::<String>(), params in prop::option::of(json_text())) {
            let mut out = Vec::new();
            write_request(&mut out, id, &method, params.as_deref().map(str::as_bytes));
            prop_assert_eq!(out.len(), request_len(id, &method, params.as_deref().map(str::as_bytes)));
            let id = id.map(|id| id.to_string());
            let call = Call {
                id: id.as_deref().map_or(Id::Absent, |id| Id::Present(id.as_bytes())),
                method: method.as_str().into(),
                params: params.as_deref().map(str::as_bytes),
            };
            prop_assert_eq!(parse(&out, 1), Ok(Message::Single(Ok(call))));
        }
    }
}
