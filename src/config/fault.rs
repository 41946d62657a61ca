//! What is wrong with a configuration file, where, and what would be right.
//!
//! A fault's text never holds a value that may be secret: it names the key, and what the key wants.

use std::collections::HashSet;
use std::fmt;

/// Most faults that are kept: a file with more is no longer read by a person.
const FAULTS_MAX: usize = 1_000;
/// Longest value that a message repeats.
const SHOWN_BYTES_MAX: usize = 64;

/// Whether a [`ConfigFault`] stops the file from being used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The file can't be used.
    Fault,
    /// The file can be used, and probably does not do what was meant.
    Warning,
}

/// One thing that is wrong in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFault {
    /// Whether it stops the file from being used.
    pub severity: Severity,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The key: `server.listen`, `endpoint[geth-1].url`, `gateway[eth].route[default].targets[2]`; an element
    /// stands by its id, or by its position (from 0) where it has none. `toml` for faults of syntax.
    pub path: String,
    /// What is wrong, and what would be right.
    pub text: String,
}

impl ConfigFault {
    /// `file:line:column: path: what is wrong, what would be right`.
    pub fn shown<'f>(&'f self, file: &'f str) -> impl fmt::Display + 'f {
        Shown { fault: self, file }
    }
}

struct Shown<'f> {
    fault: &'f ConfigFault,
    file: &'f str,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConfigFault { severity, line, column, path, text } = self.fault;
        let word = if *severity == Severity::Warning { "warning: " } else { "" };
        write!(f, "{}:{line}:{column}: {word}{path}: {text}", self.file)
    }
}

/// Collects the faults of one file, by byte offset.
pub(super) struct Faults<'t> {
    text: &'t str,
    line_starts: Vec<usize>,
    list: Vec<ConfigFault>,
    syntax_lines: HashSet<usize>,
    /// The last line on which a comma was missed.
    comma_line: Option<usize>,
}

impl<'t> Faults<'t> {
    pub(super) fn new(text: &'t str) -> Faults<'t> {
        let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Faults { text, line_starts, list: Vec::new(), syntax_lines: HashSet::new(), comma_line: None }
    }

    /// Something that TOML itself does not allow.
    pub(super) fn syntax(&mut self, at: usize, text: String) {
        let (line, column) = self.position(at);
        // What the parser takes for the rest of a list that was never closed lacks commas, line after line.
        let comma = text.ends_with("expected `,`");
        let follows = comma && self.comma_line.is_some_and(|last| line.abs_diff(last) <= 3);
        self.comma_line = if comma { Some(line) } else { self.comma_line };
        // The parser recovers by guessing, so a second fault on the line is about the guess.
        if self.syntax_lines.insert(line) && !follows {
            self.add(ConfigFault { severity: Severity::Fault, line, column, path: "toml".to_owned(), text });
        }
    }

    /// Something that the file says and may not say.
    pub(super) fn fault(&mut self, at: usize, path: impl Into<String>, text: impl Into<String>) {
        self.put(Severity::Fault, at, path.into(), text.into());
    }

    /// Something that the file does not say: not believed while a part of the file could not be read.
    pub(super) fn missing(&mut self, at: usize, path: impl Into<String>, text: impl Into<String>) {
        if self.syntax_lines.is_empty() {
            self.fault(at, path, text);
        }
    }

    /// Something that is allowed and probably not meant: not told of a file that could not be read whole.
    pub(super) fn warn(&mut self, at: usize, path: impl Into<String>, text: impl Into<String>) {
        if self.syntax_lines.is_empty() {
            self.put(Severity::Warning, at, path.into(), text.into());
        }
    }

    /// Whether the file can't be used.
    pub(super) fn any(&self) -> bool {
        self.list.iter().any(|fault| fault.severity == Severity::Fault)
    }

    /// All of them, by position.
    pub(super) fn sorted(mut self) -> Vec<ConfigFault> {
        self.list.sort_by_key(|fault| (fault.line, fault.column));
        self.list.dedup();
        self.list
    }

    /// The line of a byte offset, from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        self.position(at).0
    }

    /// Line and column of a byte offset, from 1.
    pub(super) fn position(&self, at: usize) -> (usize, usize) {
        let at = at.min(self.text.len());
        let line = self.line_starts.partition_point(|start| *start <= at).max(1);
        let start = self.line_starts.get(line - 1).copied().unwrap_or(0);
        let before = self.text.as_bytes().get(start..at).unwrap_or_default();
        // Characters, not bytes: every byte that does not continue one.
        let column = before.iter().filter(|byte| **byte & 0xC0 != 0x80).count() + 1;
        (line, column)
    }

    fn put(&mut self, severity: Severity, at: usize, path: String, text: String) {
        let (line, column) = self.position(at);
        if !self.syntax_lines.contains(&line) {
            self.add(ConfigFault { severity, line, column, path, text });
        }
    }

    fn add(&mut self, fault: ConfigFault) {
        // A fault always finds room: a list full of warnings must not hide it.
        if self.list.len() < FAULTS_MAX || (fault.severity == Severity::Fault && !self.any()) {
            self.list.push(fault);
        }
    }
}

/// A typed word in back quotes where it may be shown, else nothing: a word that could hold more than a name
/// could hold a secret.
pub(super) fn quoted(word: &str) -> Option<String> {
    let tame = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '*');
    (!word.is_empty() && word.len() <= SHOWN_BYTES_MAX && word.chars().all(tame)).then(|| format!("`{word}`"))
}

/// The known word that is nearest to a typed one, if it is near enough to have been meant.
pub(super) fn nearest<'k>(typed: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    if typed.len() > SHOWN_BYTES_MAX {
        return None;
    }
    let folded = typed.to_ascii_lowercase().replace('-', "_");
    let far = (typed.chars().count() / 3).max(1);
    let distance = |word: &str| strsim::damerau_levenshtein(&folded, &word.to_ascii_lowercase().replace('-', "_"));
    known.into_iter().map(|word| (distance(word), word)).filter(|(d, _)| *d <= far).min_by_key(|(d, _)| *d).map(|m| m.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters() {
        let text = "a = 1\nké = \"ü\" # x\n\nlast";
        let faults = Faults::new(text);
        let at = |needle: &str| faults.position(text.find(needle).expect("in the text"));
        assert_eq!(at("a = 1"), (1, 1));
        assert_eq!(at("# x"), (2, 10));
        assert_eq!(at("last"), (4, 1));
        assert_eq!(faults.position(usize::MAX), (4, 5));
        assert_eq!(Faults::new("").position(7), (1, 1));
    }

    #[test]
    fn shown_as_the_contract_says() {
        let mut faults = Faults::new("x\ny");
        faults.warn(2, "server.shards", "odd");
        faults.fault(0, "server.listen", "wrong");
        let shown: Vec<_> = faults.sorted().iter().map(|fault| fault.shown("r.toml").to_string()).collect();
        assert_eq!(shown, ["r.toml:1:1: server.listen: wrong", "r.toml:2:1: warning: server.shards: odd"]);
    }

    #[test]
    fn the_list_is_bounded_and_never_loses_that_the_file_is_faulty() {
        let mut faults = Faults::new("x");
        for n in 0..5_000 {
            faults.warn(0, format!("w{n}"), "w");
        }
        assert!(!faults.any());
        faults.fault(0, "f", "f");
        assert!(faults.any());
        assert_eq!(faults.sorted().len(), FAULTS_MAX + 1);
    }

    #[test]
    fn a_near_word_is_found_and_a_far_one_is_not() {
        let known = ["listen", "admin", "max_batch", "max_headers"];
        assert_eq!(nearest("lisen", known), Some("listen"));
        assert_eq!(nearest("Listen", known), Some("listen"));
        assert_eq!(nearest("max-batch", known), Some("max_batch"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest(&"a".repeat(100_000), known), None);
    }

    #[test]
    fn only_tame_words_are_repeated() {
        assert_eq!(quoted("eth_call").as_deref(), Some("`eth_call`"));
        for word in ["", "a b", "http://user:pw@host", "é", &"k".repeat(65)] {
            assert_eq!(quoted(word), None, "{word:?}");
        }
    }
}
