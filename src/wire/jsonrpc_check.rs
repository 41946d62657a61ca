//! May this answer go to the caller? The response check: one pass, nothing copied, nothing allocated.

use super::json::{self, JsonError};
use super::json_text;
use super::jsonrpc::text_start;
use super::jsonrpc_members::Members;
use crate::logic::call::safe_integer;
use std::ops::Range;

/// Nesting that a response may have, the envelope included.
pub const RESPONSE_DEPTH_MAX: usize = 10_000;

/// What java-tron says when it is busy, in an object that is no JSON-RPC answer.
pub(super) const TRON_BUSY: &[u8] = b"lack of computing resources";

/// What the body of an upstream's answer is. Ranges are places in that body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// A result, `null` included.
    Result(Range<usize>),
    /// The node's own error.
    Error {
        /// Its `code`.
        code: i64,
        /// The whole error object.
        value: Range<usize>,
    },
    /// java-tron's overload message, outside any envelope.
    NodeBusy,
    /// Nothing that may be believed.
    Bad(BadAnswer),
}

/// Why an answer failed the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadAnswer {
    /// Not a JSON text.
    NotJson,
    /// Nested deeper than 10,000.
    TooDeep,
    /// JSON, but not an object.
    NotAnObject,
    /// `result`, `error` or `id` comes twice.
    DuplicateMember,
    /// No `id`.
    NoId,
    /// Another `id` than the one sent.
    WrongId,
    /// Both `result` and `error`, and neither is `null`.
    BothResultAndError,
    /// Neither `result` nor an `error` other than `null`.
    NeitherResultNorError,
    /// `error` is not an object with exactly one integer `code`.
    BadError,
}

impl BadAnswer {
    /// The words for the log.
    pub const fn words(self) -> &'static str {
        match self {
            BadAnswer::NotJson => "not valid JSON",
            BadAnswer::TooDeep => "nested deeper than 10000",
            BadAnswer::NotAnObject => "not a JSON object",
            BadAnswer::DuplicateMember => "result, error or id comes twice",
            BadAnswer::NoId => "no id",
            BadAnswer::WrongId => "another id than the one sent",
            BadAnswer::BothResultAndError => "both result and error",
            BadAnswer::NeitherResultNorError => "neither result nor error",
            BadAnswer::BadError => "error is not an object with an integer code",
        }
    }
}

impl From<JsonError> for BadAnswer {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::Invalid => BadAnswer::NotJson,
            JsonError::TooDeep => BadAnswer::TooDeep,
        }
    }
}

/// Checks the answer to a request that was sent with the id `sent_id`.
///
/// Names count after unescaping, in their exact case. A `code` must be a JSON number in plain integer
/// form that fits an i64: `-32000.0` and `1e3` are refused, since clients read them differently.
pub fn check(body: &[u8], sent_id: u64) -> Checked {
    match read_answer(body) {
        Ok(answer) => answer.judge(body, sent_id),
        Err(why) => Checked::Bad(why),
    }
}

/// The members that matter, as found in the body.
#[derive(Default)]
struct Answer {
    id: Option<Range<usize>>,
    result: Option<Range<usize>>,
    error: Option<Range<usize>>,
    /// The error's code, if `error` is an object and has exactly one.
    code: Option<i64>,
    busy: bool,
}

fn read_answer(body: &[u8]) -> Result<Answer, BadAnswer> {
    let start = text_start(body);
    let Some(b'{') = body.get(start) else {
        let end = json::skip_value(body, start, RESPONSE_DEPTH_MAX)?;
        json::expect_end(body, end)?;
        return Err(BadAnswer::NotAnObject);
    };
    let mut answer = Answer::default();
    let mut members = Members::new(body, start + 1);
    while let Some(name) = members.next_name()? {
        let place = match Name::of(name) {
            Name::Result => &mut answer.result,
            Name::Id => &mut answer.id,
            Name::Error => {
                let value = read_error(body, &mut members, &mut answer.code)?;
                set_once(&mut answer.error, value)?;
                continue;
            }
            Name::NodesError => {
                let value = members.skip(RESPONSE_DEPTH_MAX - 1)?;
                answer.busy |= is_busy(body.get(value).unwrap_or_default());
                continue;
            }
            Name::Other => {
                members.skip(RESPONSE_DEPTH_MAX - 1)?;
                continue;
            }
        };
        let value = members.skip(RESPONSE_DEPTH_MAX - 1)?;
        set_once(place, value)?;
    }
    json::expect_end(body, members.at())?;
    Ok(answer)
}

/// What a member's name means to us.
#[derive(Clone, Copy)]
enum Name {
    Result,
    Id,
    Error,
    /// `Error`, as java-tron writes it outside any envelope.
    NodesError,
    Other,
}

impl Name {
    #[inline(always)]
    fn of(raw: &[u8]) -> Name {
        match raw {
            b"result" => Name::Result,
            b"id" => Name::Id,
            b"error" => Name::Error,
            b"Error" => Name::NodesError,
            // The one that every answer has, before others are looked through for escapes.
            b"jsonrpc" => Name::Other,
            _ => Name::escaped(raw),
        }
    }

    #[inline(never)]
    fn escaped(raw: &[u8]) -> Name {
        let names =
            [(&b"result"[..], Name::Result), (b"id", Name::Id), (b"error", Name::Error), (b"Error", Name::NodesError)];
        let found = names.iter().find(|(text, _)| json_text::says(raw, text));
        found.map_or(Name::Other, |(_, name)| *name)
    }
}

fn set_once(place: &mut Option<Range<usize>>, value: Range<usize>) -> Result<(), BadAnswer> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(BadAnswer::DuplicateMember),
    }
}

fn is_busy(value: &[u8]) -> bool {
    matches!(value, [b'"', raw @ .., b'"'] if json_text::contains(raw, TRON_BUSY))
}

/// Reads the value of `error`, looking for its code on the way.
fn read_error(body: &[u8], members: &mut Members<'_>, code: &mut Option<i64>) -> Result<Range<usize>, BadAnswer> {
    let start = members.at();
    let Some(b'{') = body.get(start) else {
        return Ok(members.skip(RESPONSE_DEPTH_MAX - 1)?);
    };
    let mut inner = Members::new(body, start + 1);
    let mut codes = 0u32;
    while let Some(name) = inner.next_name()? {
        let value = inner.skip(RESPONSE_DEPTH_MAX - 2)?;
        if json_text::says(name, b"code") {
            codes = codes.saturating_add(1);
            *code = plain_integer(body.get(value).unwrap_or_default());
        }
    }
    if codes != 1 {
        *code = None;
    }
    members.resume(inner.at());
    Ok(start..inner.at())
}

/// Reads a JSON number without fraction or exponent.
fn plain_integer(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

impl Answer {
    fn judge(self, body: &[u8], sent_id: u64) -> Checked {
        let is_null = |place: &Range<usize>| body.get(place.clone()) == Some(b"null");
        if self.busy && self.id.is_none() && self.result.is_none() && self.error.is_none() {
            return Checked::NodeBusy;
        }
        let Some(id) = self.id else { return Checked::Bad(BadAnswer::NoId) };
        if !is_number_equal(body.get(id).unwrap_or_default(), sent_id) {
            return Checked::Bad(BadAnswer::WrongId);
        }
        let error = self.error.filter(|error| !is_null(error));
        match (self.result, error) {
            (Some(result), Some(_)) if !is_null(&result) => Checked::Bad(BadAnswer::BothResultAndError),
            (_, Some(error)) => match self.code {
                Some(code) => Checked::Error { code, value: error },
                None => Checked::Bad(BadAnswer::BadError),
            },
            (Some(result), None) => Checked::Result(result),
            (None, None) => Checked::Bad(BadAnswer::NeitherResultNorError),
        }
    }
}

/// Whether the JSON value `text` is a number that equals `sent`, exactly: 7, 7.0, 0.7e1 and 70e-1 are 7.
fn is_number_equal(text: &[u8], sent: u64) -> bool {
    match text {
        [b'-' | b'0'..=b'9', ..] => safe_integer(text) == Some(sent) || is_decimal_equal(text, sent),
        _ => false,
    }
}

/// Brings both numbers to the form *digits without trailing zeros, times a power of ten*, and compares.
fn is_decimal_equal(number: &[u8], sent: u64) -> bool {
    let (negative, number) = match number {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, number),
    };
    let split = number.iter().position(|byte| matches!(byte, b'e' | b'E'));
    let (mantissa, exponent) = match split.and_then(|at| number.split_at_checked(at)) {
        Some((mantissa, [_, exponent @ ..])) => (mantissa, read_exponent(exponent)),
        _ => (number, 0),
    };
    let (mut digits, mut zeros, mut fraction) = (0u64, 0u32, None::<i64>);
    for byte in mantissa {
        match byte {
            b'.' => fraction = Some(0),
            b'0'..=b'9' => {
                fraction = fraction.map(|count| count.saturating_add(1));
                if *byte == b'0' {
                    // A zero before the first other digit says nothing; another one waits for what follows.
                    zeros = zeros.saturating_add(u32::from(digits != 0));
                    continue;
                }
                let longer = 10u64.checked_pow(zeros.saturating_add(1)).and_then(|shift| digits.checked_mul(shift));
                match longer.and_then(|longer| longer.checked_add(u64::from(byte - b'0'))) {
                    Some(longer) => digits = longer,
                    // More digits than any u64 has, and the last of them counts.
                    None => return false,
                }
                zeros = 0;
            }
            _ => return false,
        }
    }
    if digits == 0 || sent == 0 {
        return digits == sent;
    }
    let power = exponent.saturating_add(i64::from(zeros)).saturating_sub(fraction.unwrap_or(0));
    let (mut sent_digits, mut sent_power) = (sent, 0);
    while sent_digits % 10 == 0 {
        sent_digits /= 10;
        sent_power += 1;
    }
    !negative && digits == sent_digits && power == sent_power
}

/// Reads an exponent; one too large to hold is cut to a value that no sent id reaches.
fn read_exponent(text: &[u8]) -> i64 {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let size = digits
        .iter()
        .fold(0i64, |sum, digit| sum.saturating_mul(10).saturating_add(i64::from(digit.wrapping_sub(b'0'))));
    if negative { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::json::tests::{edited, edits, json_text};
    use crate::wire::jsonrpc::tests::pairs;
    use crate::wire::jsonrpc::write_answer_prefix;
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    /// What the check says, with texts in place of their places.
    #[derive(Debug, PartialEq)]
    enum Told<'a> {
        Result(&'a str),
        Error(i64, &'a str),
        NodeBusy,
        Bad(BadAnswer),
    }

    fn told(body: &str, sent_id: u64) -> Told<'_> {
        match check(body.as_bytes(), sent_id) {
            Checked::Result(value) => Told::Result(&body[value]),
            Checked::Error { code, value } => Told::Error(code, &body[value]),
            Checked::NodeBusy => Told::NodeBusy,
            Checked::Bad(why) => Told::Bad(why),
        }
    }

    #[test]
    fn results_and_errors_keep_their_bytes() {
        assert_eq!(told(r#"{"jsonrpc":"2.0","id":7,"result":"0x1"}"#, 7), Told::Result("\"0x1\""));
        assert_eq!(told(" {\"result\" : [ 1e999 , {} ] ,\"id\" :7 }\r\n", 7), Told::Result("[ 1e999 , {} ]"));
        assert_eq!(told("\u{feff}\n{\"id\":7,\"result\":{\"error\":1}}", 7), Told::Result("{\"error\":1}"));
        let error = r#"{ "code" : -32000, "message":"x", "data":{"code":"y"} }"#;
        assert_eq!(told(&format!(r#"{{"id":7,"error":{error}}}"#), 7), Told::Error(-32000, error));
    }

    #[test]
    fn unknown_members_and_an_odd_jsonrpc_do_not_matter() {
        for extra in [
            r#""jsonrpc":1"#,
            r#""Result":1"#,
            r#""ERROR":{}"#,
            r#""Id":9"#,
            r#""x":[{"id":1}],"x":2"#,
            r#""Error":"busy""#,
        ] {
            assert_eq!(told(&format!(r#"{{{extra},"id":1,"result":2}}"#), 1), Told::Result("2"));
            assert_eq!(told(&format!(r#"{{"id":1,"result":2,{extra}}}"#), 1), Told::Result("2"));
        }
    }

    #[test]
    fn null_counts_as_absent_beside_another_member() {
        assert_eq!(told(r#"{"id":1,"result":null}"#, 1), Told::Result("null"));
        assert_eq!(told(r#"{"id":1,"result":null,"error":null}"#, 1), Told::Result("null"));
        assert_eq!(told(r#"{"id":1,"error":null,"result":0}"#, 1), Told::Result("0"));
        assert_eq!(told(r#"{"id":1,"error":{"code":3},"result":null}"#, 1), Told::Error(3, "{\"code\":3}"));
        assert_eq!(told(r#"{"id":1,"error":null}"#, 1), Told::Bad(BadAnswer::NeitherResultNorError));
        assert_eq!(told(r#"{"id":1}"#, 1), Told::Bad(BadAnswer::NeitherResultNorError));
        for result in ["0", "false", "\"\"", "[]", "{}"] {
            let body = format!(r#"{{"id":1,"result":{result},"error":{{"code":3}}}}"#);
            assert_eq!(told(&body, 1), Told::Bad(BadAnswer::BothResultAndError));
        }
        assert_eq!(told(r#"{"id":1,"result":1,"error":false}"#, 1), Told::Bad(BadAnswer::BothResultAndError));
    }

    #[test]
    fn an_error_is_an_object_with_one_integer_code() {
        for error in [
            "false",
            "0",
            "\"\"",
            "[]",
            "{}",
            r#"{"message":"x"}"#,
            r#"{"code":"-32000"}"#,
            r#"{"code":null}"#,
            r#"{"code":[1]}"#,
            r#"{"code":1.0}"#,
            r#"{"code":1e3}"#,
            r#"{"code":9223372036854775808}"#,
            r#"{"code":1,"code":1}"#,
            r#"{"Code":1}"#,
            r#"{"code":1,"c\u006fde":2}"#,
            r#"{"data":{"code":1}}"#,
        ] {
            for rest in ["", ",\"result\":null"] {
                let body = format!(r#"{{"id":1,"error":{error}{rest}}}"#);
                assert_eq!(told(&body, 1), Told::Bad(BadAnswer::BadError), "{error}");
            }
        }
        for (code, text) in [(0, "0"), (0, "-0"), (i64::MIN, "-9223372036854775808"), (i64::MAX, "9223372036854775807")]
        {
            let error = format!("{{\"message\":\"\",\"c\\u006fde\":{text}}}");
            assert_eq!(told(&format!(r#"{{"error":{error},"id":1}}"#), 1), Told::Error(code, &error));
        }
    }

    #[test]
    fn members_that_matter_come_once_however_they_are_spelled() {
        for (first, second) in [
            (r#""id":1"#, r#""id":1"#),
            (r#""id":1"#, r#""\u0069d":1"#),
            (r#""result":1"#, r#""result":1"#),
            (r#""result":null"#, r#""res\u0075lt":1"#),
            (r#""error":null"#, r#""error":{"code":1}"#),
            (r#""error":{"code":1}"#, r#""\u0065rror":null"#),
        ] {
            for body in [format!(r#"{{{first},"x":0,{second}}}"#), format!(r#"{{"id":1,"result":1,{first},{second}}}"#)]
            {
                assert_eq!(told(&body, 1), Told::Bad(BadAnswer::DuplicateMember), "{body}");
            }
        }
        assert_eq!(told(r#"{"\u0069d":1,"r\u0065sult":2}"#, 1), Told::Result("2"));
    }

    #[test]
    fn the_id_is_compared_by_exact_decimal_value() {
        let id_max = 999_999_999_999_999;
        for (sent, texts) in [
            (0, vec!["0", "-0", "0.0", "0e9", "-0.000e-99999999999999999999", "0E+1"]),
            (
                1,
                vec![
                    "1",
                    "1.0",
                    "1e0",
                    "10e-1",
                    "0.1e1",
                    "1.000000000000000000000000000000",
                    "0.00001e5",
                    "1E+00",
                    "100e-2",
                ],
            ),
            (120, vec!["120", "1.2e2", "12e1", "120.00", "1200e-1", "12.0E+1", "0.00012e6"]),
            (id_max, vec!["999999999999999", "9.99999999999999e14", "999999999999999.0"]),
        ] {
            for text in texts {
                assert_eq!(told(&format!(r#"{{"id":{text},"result":1}}"#), sent), Told::Result("1"), "{text}");
            }
        }
        for (sent, texts) in [
            (0, vec!["1", "1e-999", "0.0000000001", "null", "\"0\"", "\"\"", "[]", "false"]),
            (
                1,
                vec![
                    "2",
                    "-1",
                    "1.0000000000000000000000000000001",
                    "1e1",
                    "1e-1",
                    "1e99999999999999999999",
                    "10",
                    "\"1\"",
                    "[1]",
                    "true",
                    "10000000000000000000000000001e-27",
                    "1e18446744073709551616",
                    "1e-18446744073709551616",
                    "18446744073709551617",
                    "0",
                    "0.1",
                    "01e0",
                ],
            ),
            (120, vec!["12", "1200", "12e2", "120.1", "102", "-120", "-1.2e2"]),
            (id_max, vec!["999999999999998.99999999", "1e15", "999999999999999.0000001", "9999999999999990"]),
        ] {
            for text in texts {
                let bad = if text == "01e0" { BadAnswer::NotJson } else { BadAnswer::WrongId };
                assert_eq!(told(&format!(r#"{{"id":{text},"result":1}}"#), sent), Told::Bad(bad), "{text} for {sent}");
            }
        }
        assert_eq!(told(r#"{"result":1}"#, 1), Told::Bad(BadAnswer::NoId));
        let endless = format!(r#"{{"id":1.{}1,"result":1}}"#, "0".repeat(100_000));
        assert_eq!(told(&endless, 1), Told::Bad(BadAnswer::WrongId));
    }

    #[test]
    fn what_is_no_json_object_is_bad() {
        for body in [
            "",
            "<html>",
            "{\"id\":1,\"result\":1",
            "{\"id\":1,\"result\":1}}",
            "{\"id\":1,\"result\":01}",
            "{\"id\":1,\"result\":1} x",
            "[1",
        ] {
            assert_eq!(told(body, 1), Told::Bad(BadAnswer::NotJson), "{body}");
        }
        for body in ["[]", "1", "null", "[{\"id\":1,\"result\":1}]", "\"lack of computing resources\""] {
            assert_eq!(told(body, 1), Told::Bad(BadAnswer::NotAnObject), "{body}");
        }
        assert_eq!(check(b"{\"id\":1,\"result\":\"\xff\"}", 1), Checked::Bad(BadAnswer::NotJson));
        assert_eq!(check(b"{\"id\":1,\"error\":{\"code\":1,\"m\":\"\xff\"}}", 1), Checked::Bad(BadAnswer::NotJson));
    }

    #[test]
    fn depth_counts_the_envelope() {
        let lists = |levels: usize| ["[".repeat(levels), "]".repeat(levels)].concat();
        let result = |levels| format!("{{\"id\":1,\"result\":{}}}", lists(levels));
        let error = |levels| format!("{{\"id\":1,\"error\":{{\"data\":{},\"code\":1}}}}", lists(levels));
        assert!(matches!(check(result(9_999).as_bytes(), 1), Checked::Result(_)));
        assert_eq!(told(&result(10_000), 1), Told::Bad(BadAnswer::TooDeep));
        assert!(matches!(check(error(9_998).as_bytes(), 1), Checked::Error { code: 1, .. }));
        assert_eq!(told(&error(9_999), 1), Told::Bad(BadAnswer::TooDeep));
        assert_eq!(told(&lists(10_000), 1), Told::Bad(BadAnswer::NotAnObject));
        assert_eq!(told(&"[".repeat(1_000_000), 1), Told::Bad(BadAnswer::TooDeep));
        assert_eq!(told(&"{\"error\":".repeat(1_000_000), 1), Told::Bad(BadAnswer::TooDeep));
    }

    #[test]
    fn java_tron_busy_is_known_outside_an_envelope_alone() {
        let busy = r#""Error":"class java.lang.IllegalAccessException : lack of computing resources""#;
        assert_eq!(told(&format!("{{{busy}}}"), 1), Told::NodeBusy);
        assert_eq!(told(&format!("{{\"x\":1,{busy}}}"), 1), Told::NodeBusy);
        assert_eq!(told(r#"{"Error":"lack of c\u006fmputing resources"}"#, 1), Told::NodeBusy);
        assert_eq!(told(&format!("{{\"id\":1,{busy}}}"), 1), Told::Bad(BadAnswer::NeitherResultNorError));
        assert_eq!(told(&format!("{{\"result\":1,{busy}}}"), 1), Told::Bad(BadAnswer::NoId));
        assert_eq!(told(&format!("{{\"error\":null,{busy}}}"), 1), Told::Bad(BadAnswer::NoId));
        assert_eq!(told(&format!("{{\"id\":1,\"result\":2,{busy}}}"), 1), Told::Result("2"));
        for other in [
            r#"{"Error":"class x : y"}"#,
            r#"{"Error":["lack of computing resources"]}"#,
            r#"{"error":"lack of computing resources"}"#,
            "{}",
        ] {
            assert_eq!(told(other, 1), Told::Bad(BadAnswer::NoId), "{other}");
        }
    }

    /// The rules again, over serde_json's reading, for an answer to the id 1. `None` if it is no object.
    fn model(body: &str) -> Option<Told<'_>> {
        let members = pairs(body.as_bytes())?;
        let values = |wanted: &str| -> Vec<&str> {
            let named = |name: &str| serde_json::from_str::<String>(name).is_ok_and(|name| name == wanted);
            members.iter().filter(|(name, _)| named(name)).map(|(_, value)| value.get()).collect()
        };
        let (ids, results, errors) = (values("id"), values("result"), values("error"));
        if ids.len() > 1 || results.len() > 1 || errors.len() > 1 {
            return Some(Told::Bad(BadAnswer::DuplicateMember));
        }
        let Some(id) = ids.first() else {
            let busy = values("Error")
                .iter()
                .any(|text| text.starts_with('"') && text.contains("lack of computing resources"));
            let outside = results.is_empty() && errors.is_empty();
            return Some(if busy && outside { Told::NodeBusy } else { Told::Bad(BadAnswer::NoId) });
        };
        if id.starts_with('"') || id.parse::<f64>() != Ok(1.0) {
            return Some(Told::Bad(BadAnswer::WrongId));
        }
        let code = |error: &str| -> Option<i64> {
            let members = pairs(error.as_bytes())?;
            let named = |name: &str| serde_json::from_str::<String>(name).is_ok_and(|name| name == "code");
            let codes: Vec<_> = members.iter().filter(|(name, _)| named(name)).collect();
            if codes.len() == 1 { codes[0].1.get().parse().ok() } else { None }
        };
        Some(match (results.first().copied(), errors.first().copied().filter(|error| *error != "null")) {
            (None | Some("null"), Some(error)) => match code(error) {
                Some(code) => Told::Error(code, error),
                None => Told::Bad(BadAnswer::BadError),
            },
            (Some(_), Some(_)) => Told::Bad(BadAnswer::BothResultAndError),
            (Some(result), None) => Told::Result(result),
            (None, None) => Told::Bad(BadAnswer::NeitherResultNorError),
        })
    }

    /// One member of an answer, rightly or wrongly named and filled.
    fn member() -> impl Strategy<Value = String> {
        let name =
            prop::sample::select(vec!["id", "result", "error", "Error", "Result", r"\u0069d", r"err\u006fr", "x"]);
        let value = prop_oneof![
            json_text(),
            Just("null".to_owned()),
            prop::sample::select(vec![
                "1",
                "1.0",
                "10e-1",
                "0.1e+1",
                "2",
                "-1",
                "\"1\"",
                "\"lack of computing resources\""
            ])
            .prop_map(str::to_owned),
            prop::collection::vec("\"(code|c\\\\u006fde|message)\" ?: ?(-?[1-9][0-9]{0,20}|null|\"x\")", 0..3)
                .prop_map(|members| format!("{{{}}}", members.join(","))),
        ];
        (name, value).prop_map(|(name, value)| format!("\"{name}\":{value}"))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn the_check_is_the_model(known in prop::bool::weighted(0.7), members in prop::collection::vec(member(), 0..4), edits in edits()) {
            let mut members = members;
            if known {
                members.push("\"id\":1".to_owned());
            }
            for body in [format!("{{{}}}", members.join(",")).into_bytes(), edited(format!("{{{}}}", members.join(" , ")), edits)] {
                let found = check(&body, 1);
                let Some(expected) = std::str::from_utf8(&body).ok().and_then(|body| Some((body, model(body)?))) else {
                    prop_assert!(matches!(found, Checked::Bad(_)), "{:?}: {}", found, String::from_utf8_lossy(&body));
                    continue;
                };
                prop_assert_eq!(told(expected.0, 1), expected.1, "{}", expected.0);
            }
        }

        #[test]
        fn a_written_result_is_found_again(id in 0..1_000_000_000_000_000u64, value in json_text(), edits in edits()) {
            let value = edited(value, edits);
            let mut body = Vec::new();
            write_answer_prefix(&mut body, id.to_string().as_bytes(), false);
            let start = body.len();
            body.extend_from_slice(&value);
            let end = body.len();
            body.push(b'}');
            let found = check(&body, id);
            if serde_json::from_slice::<&RawValue>(&value).is_ok() {
                let Checked::Result(range) = found else { panic!("{found:?}") };
                prop_assert_eq!(body[range].trim_ascii(), body[start..end].trim_ascii());
                prop_assert_eq!(check(&body, id + 1), Checked::Bad(BadAnswer::WrongId));
            } else {
                // An edit may have closed the envelope early; then the rest is valid only as a whole.
                let valid = serde_json::from_slice::<&RawValue>(&body).is_ok();
                prop_assert_eq!(found == Checked::Bad(BadAnswer::NotJson), !valid);
            }
        }

        #[test]
        fn decimals_are_compared_as_numbers(sent in prop_oneof![0..2000u64, 0..1_000_000_000_000_000u64], digits in "0|[1-9][0-9]{0,16}", zeros in 0usize..4, shift in -20i64..20) {
            // The same value as `sent`, moved by `shift` places, with zeros behind it.
            let shifted = format!("{sent}{}.{}e{}", "0".repeat(zeros), "0".repeat(zeros), -(zeros as i64));
            prop_assert!(is_number_equal(shifted.replace(".e", "e").as_bytes(), sent), "{shifted}");
            let moved = format!("{sent}e{shift}");
            prop_assert_eq!(is_number_equal(moved.as_bytes(), sent), shift == 0 || sent == 0);
            prop_assert_eq!(is_number_equal(digits.as_bytes(), sent), digits.parse() == Ok(sent));
        }
    }
}
