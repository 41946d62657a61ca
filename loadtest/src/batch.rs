//! Where the members of a JSON array are: enough to take a batch apart whose members are trusted to be JSON.

/// The members of the array that `body` is, without blanks around them; none if it is no array.
pub fn members(body: &[u8]) -> Option<Vec<&[u8]>> {
    let inside = body.trim_ascii().strip_prefix(b"[")?.strip_suffix(b"]")?;
    if inside.trim_ascii().is_empty() {
        return Some(Vec::new());
    }
    let (mut found, mut start, mut depth, mut at) = (Vec::new(), 0, 0usize, 0);
    while let Some(byte) = inside.get(at) {
        match byte {
            b'"' => at = string_end(inside, at)?,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                found.push(member(inside, start, at)?);
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    if depth != 0 {
        return None;
    }
    found.push(member(inside, start, inside.len())?);
    Some(found)
}

/// One member; nothing between two commas is none.
fn member(inside: &[u8], start: usize, end: usize) -> Option<&[u8]> {
    let member = inside.get(start..end)?.trim_ascii();
    (!member.is_empty()).then_some(member)
}

/// The place of the quote that ends the string which begins at `at`.
fn string_end(text: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(at);
        }
        at += 2;
    }
}

/// `body` begins like an array.
pub fn is_batch(body: &[u8]) -> bool {
    body.trim_ascii_start().first() == Some(&b'[')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(body: &str) -> Option<Vec<String>> {
        let found = members(body.as_bytes())?;
        Some(found.into_iter().map(|one| String::from_utf8(one.to_vec()).unwrap()).collect())
    }

    #[test]
    fn members_are_found_whatever_is_in_them() {
        let body = " [ {\"a\":[1,2,{}]} ,{\"b\":\",]}\\\"[\"},\n7 , \"x\\\\\",[]]\n";
        let expected = ["{\"a\":[1,2,{}]}", "{\"b\":\",]}\\\"[\"}", "7", "\"x\\\\\"", "[]"];
        assert_eq!(texts(body).unwrap(), expected);
        assert_eq!(texts("[]").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn what_is_no_array_has_no_members() {
        for body in ["", "{}", "[", "[1", "1]", "[{]", "[}]", "[\"a]", "[\"a\\]", "[\"\\", "[1,]", "[,1]", "[1,,2]"] {
            assert_eq!(texts(body), None, "{body}");
        }
    }

    #[test]
    fn a_batch_is_known_by_its_first_byte() {
        assert!(is_batch(b" \n[{}]"));
        assert!(!is_batch(b"{\"a\":[]}"));
        assert!(!is_batch(b""));
    }
}
