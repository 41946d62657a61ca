//! What stands in a `params` array, or in a flat object, one value after the other?
//!
//! For the few methods whose parameters Ringway reads. Nothing is built; what is not whole JSON is refused.

use super::json::{JsonError, Members, expect_end, skip_value, skip_whitespace};
use super::json_text::{folds_to, says};

/// Levels below the array or object itself; requests may nest no deeper.
const DEPTH_MAX: usize = 127;

/// The elements of an array, checked as they are read. An error ends the walk.
#[derive(Debug)]
pub struct Elements<'a> {
    text: &'a [u8],
    at: usize,
    first: bool,
    done: bool,
}

impl<'a> Elements<'a> {
    /// Starts the walk; `None` if the text is no array.
    pub fn new(text: &'a [u8]) -> Option<Elements<'a>> {
        let at = skip_whitespace(text, 0);
        (text.get(at) == Some(&b'[')).then_some(Elements { text, at: at + 1, first: true, done: false })
    }

    /// The JSON text of the next element; `None` after the last one, when nothing but whitespace follows.
    pub fn next_value(&mut self) -> Result<Option<&'a [u8]>, JsonError> {
        if self.done {
            return Ok(None);
        }
        let mut at = skip_whitespace(self.text, self.at);
        match self.text.get(at) {
            Some(b']') => {
                expect_end(self.text, at + 1)?;
                self.done = true;
                return Ok(None);
            }
            Some(b',') if !self.first => at = skip_whitespace(self.text, at + 1),
            _ if self.first => {}
            _ => return Err(JsonError::Invalid),
        }
        self.first = false;
        self.at = skip_value(self.text, at, DEPTH_MAX)?;
        Ok(self.text.get(at..self.at))
    }
}

/// What stands between the quotes of a JSON string; `None` for every other value.
pub fn string(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

/// The values of the members called `names`, from a text that is one object. `None` if it is none, or if one
/// of the names comes twice: readers differ on which one counts.
pub fn members<'a, const N: usize>(text: &'a [u8], names: [&[u8]; N]) -> Option<[Option<&'a [u8]>; N]> {
    find(text, names, |_, _| false)
}

/// The same of what goes to a node as it is: `None` also if a name is written in another case, since readers differ on
/// whether it counts.
pub fn arguments<'a, const N: usize>(text: &'a [u8], names: [&[u8]; N]) -> Option<[Option<&'a [u8]>; N]> {
    find(text, names, folds_to)
}

fn find<'a, const N: usize>(
    text: &'a [u8],
    names: [&[u8]; N],
    is_unsure: fn(&[u8], &[u8]) -> bool,
) -> Option<[Option<&'a [u8]>; N]> {
    let start = skip_whitespace(text, 0);
    if text.get(start) != Some(&b'{') {
        return None;
    }
    let mut found = [None; N];
    let mut members = Members::new(text, start + 1);
    while let Some(name) = members.next_name().ok()? {
        let name = text.get(name)?;
        let value = text.get(members.skip(DEPTH_MAX).ok()?)?;
        for (wanted, found) in names.iter().zip(&mut found) {
            match says(name, wanted) {
                true if found.replace(value).is_some() => return None,
                false if is_unsure(name, wanted) => return None,
                _ => {}
            }
        }
    }
    expect_end(text, members.at()).ok()?;
    Some(found)
}

/// Hands on the names of the members of a text that is one object, as they are written; what has an escape is left
/// out. `false` if the text is none: what was handed on before that counts for nothing.
pub fn member_names<'a>(text: &'a [u8], mut take: impl FnMut(&'a str)) -> bool {
    let start = skip_whitespace(text, 0);
    if text.get(start) != Some(&b'{') {
        return false;
    }
    let mut members = Members::new(text, start + 1);
    loop {
        match members.next_name() {
            Ok(Some(name)) => {
                let name = text.get(name).and_then(|name| std::str::from_utf8(name).ok());
                name.filter(|name| !name.contains('\\')).into_iter().for_each(&mut take);
            }
            Ok(None) => return expect_end(text, members.at()).is_ok(),
            Err(_) => return false,
        }
        if members.skip(DEPTH_MAX).is_err() {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn elements(text: &str) -> Option<Vec<&str>> {
        let mut walk = Elements::new(text.as_bytes())?;
        let mut found = Vec::new();
        while let Some(value) = walk.next_value().ok()? {
            found.push(std::str::from_utf8(value).unwrap());
        }
        assert_eq!(walk.next_value(), Ok(None), "the end stays the end");
        Some(found)
    }

    #[test]
    fn elements_come_in_order_without_whitespace() {
        assert_eq!(elements("[]"), Some(vec![]));
        assert_eq!(elements(" [ ] "), Some(vec![]));
        assert_eq!(elements("\t[ \"a\" ,\n{\"b\":[1]} , 2 ]\r\n"), Some(vec!["\"a\"", "{\"b\":[1]}", "2"]));
    }

    #[test]
    fn what_is_no_array_is_refused() {
        for text in
            ["", "{}", "\"a\"", "[", "[1", "[,1]", "[1,]", "[1 2]", "[1]]", "[1] x", "[\"a]", "[1,,2]", "[1}", "null"]
        {
            assert_eq!(elements(text), None, "{text}");
        }
    }

    #[test]
    fn a_name_in_another_case_makes_an_argument_unreadable() {
        let names: [&[u8]; 2] = [b"fromBlock", b"blockHash"];
        assert_eq!(arguments(br#"{"fromBlock":1,"from":2}"#, names), Some([Some(&b"1"[..]), None]));
        let spellings = [
            "fromblock",
            "FROMBLOCK",
            "\\u0046romBlock",
            "froMbloc\u{212a}",
            "BlockHash",
            "blockHa\u{17f}h",
            "fromBlocK",
        ];
        for spelling in spellings {
            let text = format!(r#"{{"{spelling}":1,"x":2}}"#);
            assert_eq!(arguments(text.as_bytes(), names), None, "{spelling}");
            assert_eq!(members(text.as_bytes(), names), Some([None, None]), "{spelling}");
        }
    }

    #[test]
    fn members_are_found_by_what_their_names_say() {
        let text = br#" {"x":[1,{"a":2}],"a":"1", "\u0062":{"a":3}} "#;
        assert_eq!(members(text, [b"a", b"b", b"c"]), Some([Some(&b"\"1\""[..]), Some(br#"{"a":3}"#), None]));
        assert_eq!(members(b"{}", [b"a"]), Some([None]));
        for text in ["", "[]", "{", "{\"a\":1", "{\"a\":1,\"a\":1}", "{\"a\":1,\"\\u0061\":1}", "{\"a\":1}x", "{\"a\"}"]
        {
            assert_eq!(members(text.as_bytes(), [b"a"]), None, "{text}");
        }
    }

    #[test]
    fn names_of_members_come_in_order() {
        let names = |text: &'static str| {
            let mut names = Vec::new();
            member_names(text.as_bytes(), |name| names.push(name)).then_some(names)
        };
        let modules = r#" {"eth":"1.0", "net" :{"web3":[]},"\u0061":1,"Debug":null} "#;
        assert_eq!(names(modules), Some(vec!["eth", "net", "Debug"]));
        assert_eq!(names("{}"), Some(vec![]));
        for text in ["", "[]", "null", "{", "{\"a\"}", "{\"a\":1", "{\"a\":1,}", "{\"a\":1}x", "{\"a\":}"] {
            assert_eq!(names(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn arrays_are_read_as_serde_json_reads_them(text in "[ \\[\\],:{}\"a0-9\\\\]{0,24}") {
            let expected = serde_json::from_str::<Vec<Box<serde_json::value::RawValue>>>(&text).ok();
            let expected = expected.as_ref().map(|all| all.iter().map(|value| value.get()).collect::<Vec<_>>());
            prop_assert_eq!(elements(&text), expected);
        }
    }
}
