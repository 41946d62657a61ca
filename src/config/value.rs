//! One value of the file by the kind of its key: `${NAME}` replaced, units read, bounds kept.

use super::fault::{nearest, quoted};
use super::schema::{Kind, Lit};
use crate::logic::units::{self, MILLION, Nanos, SECOND};
use std::borrow::Cow;
use toml::Spanned;
use toml::de::DeValue;

/// Where `${NAME}` comes from.
pub(super) type Env<'e> = &'e dyn Fn(&str) -> Option<String>;

/// Longest duration: a year. Sums with the clock and products with counts stay far from the end of `u64`.
const DURATION_NS_MAX: Nanos = 365 * 24 * 3_600 * SECOND;
/// Largest size: 1 TiB, which fits `usize` and sums of many.
const SIZE_BYTES_MAX: u64 = 1 << 40;
/// Longest text after replacement.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// A value of a simple kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plain {
    Flag(bool),
    /// A count, nanoseconds, bytes or parts of a million.
    Number(u64),
    Text(String),
    Texts(Vec<Text>),
    /// Read, checked, and used by nothing yet.
    Unused,
}

/// A text and the byte offset where it was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) at: usize,
    pub(super) text: String,
}

/// A wrong value: where, and what would be right.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) at: usize,
    pub(super) text: String,
}

/// Reads a value of a simple kind; the kinds that hold tables are read in `file`.
pub(super) fn read(kind: Kind, value: &Spanned<DeValue<'_>>, env: Env<'_>) -> Result<Plain, Wrong> {
    let at = value.span().start;
    let plain = match (kind, value.get_ref()) {
        (Kind::Texts, DeValue::Array(items)) => return texts(items, env),
        (Kind::Flag, DeValue::Boolean(flag)) => Ok(Plain::Flag(*flag)),
        (Kind::Count(min, max), DeValue::Integer(number)) => {
            let number = u64::from_str_radix(number.as_str(), number.radix()).ok();
            number.filter(|n| (min..=max).contains(n)).map(Plain::Number).ok_or_else(|| wants(kind))
        }
        (Kind::Ratio, DeValue::Float(number)) => ratio(number.as_str()),
        (Kind::Ratio, DeValue::Integer(number)) => ratio(number.as_str()),
        (Kind::Size(min), DeValue::Integer(number)) => {
            let bytes = u64::from_str_radix(number.as_str(), number.radix()).ok();
            bytes.filter(|n| (min..=SIZE_BYTES_MAX).contains(n)).map(Plain::Number).ok_or_else(|| wants(kind))
        }
        (_, DeValue::String(typed)) => expand(typed, env).and_then(|text| word(kind, typed, &text)),
        _ => Err(wants(kind)),
    };
    plain.map_err(|text| Wrong { at, text })
}

/// A default as the table of keys states it.
pub(super) fn stated(kind: Kind, lit: Lit) -> Option<Plain> {
    match lit {
        Lit::Absent | Lit::Required(_) => None,
        Lit::Ratio(number) => ratio(number).ok(),
        Lit::Flag(flag) => Some(Plain::Flag(flag)),
        Lit::Count(number) => Some(Plain::Number(number)),
        Lit::Text(text) => word(kind, text, text).ok(),
        Lit::Texts(list) => {
            Some(Plain::Texts(list.iter().map(|text| Text { at: 0, text: (*text).to_owned() }).collect()))
        }
    }
}

/// A text with each `${NAME}` replaced from the environment.
pub(super) fn expand<'t>(typed: &'t str, env: Env<'_>) -> Result<Cow<'t, str>, String> {
    if !typed.contains("${") {
        return Ok(Cow::Borrowed(typed));
    }
    let (mut out, mut rest) = (String::new(), typed);
    while let Some((before, after)) = rest.split_once("${") {
        let (name, tail) = after.split_once('}').ok_or("`${` has no `}`; write ${NAME}")?;
        let valid = !name.is_empty()
            && name.len() <= 128
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !valid {
            return Err(
                "what stands in `${…}` is no name of a variable; write ${NAME} with letters, digits and _".into()
            );
        }
        let value = env(name).ok_or_else(|| {
            format!(
                "the environment variable {name} is not set; set it where ringway is started, or write the value here"
            )
        })?;
        if out.len() + before.len() + value.len() > TEXT_BYTES_MAX {
            return Err("is longer than 64 KiB once its variables are replaced".into());
        }
        out.push_str(before);
        out.push_str(&value);
        rest = tail;
    }
    out.push_str(rest);
    Ok(Cow::Owned(out))
}

fn texts(items: &[Spanned<DeValue<'_>>], env: Env<'_>) -> Result<Plain, Wrong> {
    let mut list = Vec::with_capacity(items.len());
    for item in items {
        let at = item.span().start;
        let wrong = |text: String| Wrong { at, text };
        let DeValue::String(typed) = item.get_ref() else { return Err(wrong(wants(Kind::Text))) };
        let text = expand(typed, env).map_err(wrong)?.into_owned();
        list.push(Text { at, text });
    }
    Ok(Plain::Texts(list))
}

fn word(kind: Kind, typed: &str, text: &str) -> Result<Plain, String> {
    let number = |value: u64, min: u64, max: u64| (min..=max).contains(&value).then_some(Plain::Number(value));
    match kind {
        Kind::Text => Ok(Plain::Text(text.to_owned())),
        Kind::Name if is_name(text) => Ok(Plain::Text(text.to_owned())),
        Kind::Duration(min) => {
            units::duration(text).ok().and_then(|ns| number(ns, min, DURATION_NS_MAX)).ok_or_else(|| wants(kind))
        }
        Kind::Size(min) => {
            units::size(text).ok().and_then(|bytes| number(bytes, min, SIZE_BYTES_MAX)).ok_or_else(|| wants(kind))
        }
        Kind::Choice(words, _) if words.contains(&text) => Ok(Plain::Text(text.to_owned())),
        Kind::Choice(words, later) if later.contains(&text) => {
            Err(format!("`{text}` is not built yet; it must be {}", one_of(words)))
        }
        Kind::Choice(words, _) => {
            // What was typed, not what a variable held.
            let meant = nearest(typed, words.iter().copied()).map(|near| format!("; did you mean \"{near}\"?"));
            let (typed, meant) = (quoted(typed).unwrap_or_else(|| "this".to_owned()), meant.unwrap_or_default());
            Err(format!("{typed} is no word for this key; it must be {}{meant}", one_of(words)))
        }
        Kind::Texts => Err("must be a list; put the text in brackets, like [\"a\"]".to_owned()),
        Kind::Flag | Kind::Count(..) => Err(format!("{}, without quotes", wants(kind))),
        _ => Err(wants(kind)),
    }
}

fn ratio(number: &str) -> Result<Plain, String> {
    let ppm = number.parse::<f64>().ok().filter(|ratio| *ratio <= 1.0).map(|ratio| ratio * f64::from(MILLION));
    // Not a number and what is negative become 0.
    let ppm = ppm.map(|ppm| ppm.round() as u64).filter(|ppm| *ppm > 0);
    ppm.map(Plain::Number).ok_or_else(|| wants(Kind::Ratio))
}

/// Whether a text may stand as an id.
pub(super) fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    (1..=64).contains(&text.len()) && text.chars().all(allowed)
}

/// `"a", "b" or "c"`.
fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// What a kind wants, as a sentence whose subject is the key.
pub(super) fn wants(kind: Kind) -> String {
    match kind {
        Kind::Flag => "must be true or false".to_owned(),
        Kind::Count(min, u64::MAX) => format!("must be a whole number, at least {min}"),
        Kind::Count(min, max) if max >= u64::from(u32::MAX) => {
            format!("must be a whole number, at least {min} and at most {max}")
        }
        Kind::Count(min, max) => format!("must be a whole number from {min} to {max}"),
        Kind::Ratio => "must be a number above 0 and up to 1, like 0.5".to_owned(),
        Kind::Duration(0) => "must be a duration of at most a year, like \"0s\", \"250ms\" or \"10s\"".to_owned(),
        Kind::Duration(least) if least >= units::MS => {
            format!(
                "must be a duration from {} to a year, like \"250ms\", \"10s\" or \"2m\"",
                units::show_duration(least)
            )
        }
        Kind::Duration(_) => {
            "must be a duration above 0 and of at most a year, like \"250ms\", \"10s\" or \"2m\"".to_owned()
        }
        Kind::Size(0) => "must be a size up to 1024GiB, like \"0\", \"16KiB\" or \"1MiB\"".to_owned(),
        Kind::Size(1) => "must be a size from 1B to 1024GiB, like \"16KiB\" or \"1MiB\"".to_owned(),
        Kind::Size(least) => format!("must be a size from {} to 1024GiB, like \"1GiB\"", show_size(least)),
        Kind::Name => "must be a name of 1 to 64 letters, digits, `_`, `.` or `-`, in quotes".to_owned(),
        Kind::Text => "must be a text in quotes".to_owned(),
        Kind::Texts => "must be a list of texts, like [\"a\", \"b\"]".to_owned(),
        Kind::Choice(words, _) => format!("must be {}", one_of(words)),
        Kind::Fields => "must be a table of texts, like { Name = \"value\" }".to_owned(),
        Kind::Targets(_) => {
            "must be a list of Endpoint ids, like [\"geth-1\"] or [{ endpoint = \"geth-1\", weight = 3 }]".to_owned()
        }
        Kind::Table(_) => "must be a table".to_owned(),
        Kind::Tables(_) => "must be a list of tables".to_owned(),
    }
}

/// A size in the largest unit that it is a whole number of.
fn show_size(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let whole = units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{bytes}B"), |(unit, name)| format!("{}{name}", bytes / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str) -> Option<String> {
        (name == "KEY").then(|| "s3cret".to_owned())
    }

    #[test]
    fn variables_are_replaced_once_and_missing_ones_are_named() {
        assert_eq!(expand("a ${KEY}b${KEY}", &env).as_deref(), Ok("a s3cretbs3cret"));
        assert_eq!(expand("no $KEY {KEY} $", &env).as_deref(), Ok("no $KEY {KEY} $"));
        let nested = |_: &str| Some("${KEY}".to_owned());
        assert_eq!(expand("${A}", &nested).as_deref(), Ok("${KEY}"));
        assert!(expand("${OTHER}", &env).is_err_and(|text| text.contains("OTHER is not set")));
        for broken in ["${", "${KEY", "${}", "${K Y}", "${9}", "x${KEY}${"] {
            assert!(expand(broken, &env).is_err_and(|text| text.contains("${NAME}")), "{broken}");
        }
    }

    #[test]
    fn shares_are_kept_in_parts_of_a_million() {
        for (typed, ppm) in [("0.5", 500_000), ("1", 1_000_000), ("1.0", 1_000_000), ("0.000001", 1), ("1e-3", 1_000)] {
            assert_eq!(ratio(typed), Ok(Plain::Number(ppm)), "{typed}");
        }
        for typed in ["0", "0.0", "-0.5", "1.000001", "2", "nan", "inf", "-inf", "1e-9", "half"] {
            assert!(ratio(typed).is_err(), "{typed}");
        }
    }

    #[test]
    fn a_replaced_text_is_bounded() {
        let huge = |_: &str| Some("x".repeat(TEXT_BYTES_MAX / 2));
        assert!(expand("${A}${A}", &huge).is_ok());
        assert!(expand("${A}${A}${A}", &huge).is_err());
    }

    #[test]
    fn names_are_what_people_can_read_in_a_label() {
        for name in ["geth-1", "a", "A.b_C-9", &"x".repeat(64)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "a b", "é", "a/b", &"x".repeat(65)] {
            assert!(!is_name(name), "{name}");
        }
    }
    #[test]
    fn a_word_that_is_known_and_not_built_yet_is_told_from_an_unknown_one() {
        let kind = Kind::Choice(&["here", "there"], &["beyond"]);
        let why = |typed: &str| word(kind, typed, typed).unwrap_err();
        assert_eq!(word(kind, "here", "here"), Ok(Plain::Text("here".to_owned())));
        assert_eq!(why("beyond"), "`beyond` is not built yet; it must be \"here\" or \"there\"");
        assert!(why("elsewhere").contains("is no word for this key"), "{}", why("elsewhere"));
    }

    #[test]
    fn the_least_duration_is_said() {
        let kind = Kind::Duration(10 * units::MS);
        assert!(word(kind, "10ms", "10ms").is_ok());
        assert!(word(kind, "9ms", "9ms").unwrap_err().contains("from 10ms to a year"));
        assert!(word(Kind::Duration(1), "0s", "0s").unwrap_err().contains("above 0"));
    }
}
