//! Reads a Rust file as the rules see it: its code without comments and strings, its tests apart, its functions.

use std::fs;
use std::path::Path;

pub struct Source {
    /// From the root of the repository, with `/`.
    pub path: String,
    pub text: String,
    /// The same length, with blanks for comments, strings and characters.
    pub code: String,
    /// `code` with blanks for what stands under `#[cfg(test)]`, too.
    pub product: String,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Source {
        let code = blanked(text);
        let product = without_tests(&code);
        Source { path: path.to_owned(), text: text.to_owned(), code, product }
    }

    /// The room of a file under `src`: its folder, or its own name (`boot`, `main`, `lib`).
    pub fn room(&self) -> Option<&str> {
        let inside = self.path.strip_prefix("src/")?;
        Some(inside.split('/').next()?.trim_end_matches(".rs"))
    }

    pub fn is_product(&self) -> bool {
        self.path.starts_with("src/")
    }

    pub fn line(&self, at: usize) -> usize {
        1 + self.code[..at].matches('\n').count()
    }

    /// Where a word stands in a text, whole: `atomic` is not in `atomics`.
    pub fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        let joins = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let whole = move |at: usize| {
            let before = at.checked_sub(1).map(|at| text.as_bytes()[at]);
            !joins(before) && !joins(text.as_bytes().get(at + word.len()).copied())
        };
        text.match_indices(word).map(|(at, _)| at).filter(move |at| whole(*at))
    }

    /// Lines that count: those outside tests. Comments count, for they are read too.
    pub fn product_lines(&self) -> usize {
        let tests = self.code.lines().zip(self.product.lines()).filter(|(code, product)| code != product).count();
        self.text.lines().count() - tests
    }

    /// Name, line and length in lines of each function with a body.
    pub fn functions(&self) -> Vec<(String, usize, usize)> {
        let code = self.product.as_bytes();
        let mut found = Vec::new();
        for at in Source::words(&self.product, "fn") {
            let name: String = self.product[at + 2..].trim_start().chars().take_while(|c| is_name(*c)).collect();
            // `fn(u8) -> u8` is a type, and a signature in a trait has no body.
            let (Some(open), false) = (body(code, at), name.is_empty()) else { continue };
            let close = matching(code, open);
            found.push((name, self.line(at), self.product[at..close].matches('\n').count() + 1));
        }
        found
    }
}

/// All files with this ending in these places, by path.
pub fn files(root: &Path, places: &[&str], endings: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut open: Vec<_> = places.iter().map(|place| root.join(place)).collect();
    while let Some(path) = open.pop() {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        // What a test installed is not ours.
        if name == "node_modules" || (name.starts_with('.') && name != ".ci") {
            continue;
        }
        if path.is_dir() {
            let entries = fs::read_dir(&path).expect("a folder of the repository can be listed");
            open.extend(entries.map(|entry| entry.expect("an entry can be read").path()));
        } else if endings.iter().any(|ending| path.to_string_lossy().ends_with(ending)) {
            let name = path.strip_prefix(root).expect("under the root").to_string_lossy().replace('\\', "/");
            if let Ok(text) = fs::read_to_string(&path) {
                found.push((name, text));
            }
        }
    }
    found.sort();
    found
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The opening brace of a function that begins at `at`, or nothing if `;` comes first.
fn body(code: &[u8], at: usize) -> Option<usize> {
    let mut depth = 0i32;
    for (offset, byte) in code[at..].iter().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(at + offset),
            b';' if depth == 0 => return None,
            _ => {}
        }
        // The end of the list that this `fn(…)` type stands in.
        if depth < 0 {
            return None;
        }
    }
    None
}

/// Just behind the brace that closes the one at `open`.
fn matching(code: &[u8], open: usize) -> usize {
    let mut depth = 0usize;
    for (offset, byte) in code[open..].iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return open + offset + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

fn without_tests(code: &str) -> String {
    let mut product = code.as_bytes().to_vec();
    for (at, _) in code.match_indices("#[cfg(test)]") {
        let rest = &code.as_bytes()[at..];
        let end = match rest.iter().position(|byte| matches!(byte, b'{' | b';')) {
            Some(stop) if rest[stop] == b'{' => matching(code.as_bytes(), at + stop),
            Some(stop) => at + stop + 1,
            None => code.len(),
        };
        // A mark instead of each line's text, so that an empty line of a test is known for one, too.
        blank(&mut product[at..end]);
    }
    let mut product = String::from_utf8(product).expect("blanks are ASCII");
    product = mark(&product, code);
    product
}

/// Lines inside tests that were empty anyway must differ as well: they get a mark that no rule looks for.
fn mark(product: &str, code: &str) -> String {
    let mut inside = false;
    let mut marked = String::with_capacity(product.len());
    let pairs: Vec<(&str, &str)> = product.lines().zip(code.lines()).collect();
    for (at, (line, original)) in pairs.iter().enumerate() {
        let changed = line != original;
        let empty = original.trim().is_empty();
        let goes_on = pairs[at..].iter().find(|(_, original)| !original.trim().is_empty());
        inside = changed || (inside && empty && goes_on.is_some_and(|(line, original)| line != original));
        let text = if inside && !changed { "\u{1}".repeat(line.len().max(1)) } else { (*line).to_owned() };
        marked.push_str(&text);
        marked.push('\n');
    }
    marked
}

fn blank(bytes: &mut [u8]) {
    bytes.iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
}

/// Code of the same length with blanks for comments, strings and characters.
fn blanked(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match (bytes[at], bytes.get(at + 1)) {
            (b'/', Some(b'/')) => line_end(bytes, at),
            (b'/', Some(b'*')) => comment_end(bytes, at),
            (b'"', _) => string_end(bytes, at),
            (b'r', Some(b'"' | b'#')) if !follows_name(bytes, at) => raw_end(bytes, at).unwrap_or(at),
            (b'\'', _) => char_end(bytes, at).unwrap_or(at),
            _ => at,
        };
        if end > at {
            blank(&mut code[at..end]);
            at = end;
        } else {
            at += 1;
        }
    }
    String::from_utf8_lossy(&code).into_owned()
}

fn follows_name(bytes: &[u8], at: usize) -> bool {
    // The b of br"…" is no name before it.
    let before = |back: usize| at.checked_sub(back).map(|at| bytes[at]);
    let name = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if before(1) == Some(b'b') { name(before(2)) } else { name(before(1)) }
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| at + length)
}

fn comment_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'/', Some(b'*')) => (depth, at) = (depth + 1, at + 2),
            (b'*', Some(b'/')) => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while end < bytes.len() {
        match bytes[end] {
            b'\\' => end += 2,
            b'"' => return end + 1,
            _ => end += 1,
        }
    }
    bytes.len()
}

/// The end of `r"…"` or `r#"…"#`; nothing for `r#name`.
fn raw_end(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at + 1..].iter().take_while(|byte| **byte == b'#').count();
    let open = at + 1 + hashes;
    (bytes.get(open) == Some(&b'"')).then_some(())?;
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let length = bytes[open + 1..].windows(close.len()).position(|window| window == close);
    Some(length.map_or(bytes.len(), |length| open + 1 + length + close.len()))
}

/// The end of `'x'`; nothing for a lifetime.
fn char_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at + 1) == Some(&b'\\') {
        let close = bytes[at + 3..].iter().position(|byte| *byte == b'\'')?;
        return Some(at + 3 + close + 1);
    }
    // One character, in however many bytes.
    let rest = std::str::from_utf8(&bytes[at + 1..(at + 6).min(bytes.len())])
        .ok()
        .or_else(|| (1..5).rev().find_map(|length| std::str::from_utf8(bytes.get(at + 1..at + 1 + length)?).ok()))?;
    let length = rest.chars().next()?.len_utf8();
    (bytes.get(at + 1 + length) == Some(&b'\'')).then_some(at + length + 2)
}
