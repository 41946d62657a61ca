//! What was typed: the file as a tree with positions.
//!
//! `check` reports everything that can be said about one key by itself; after that the getters here give the typed
//! value where it is right and the default where it is absent or wrong, so that reading goes on and all faults come
//! at once.

use super::fault::Faults;
use super::schema::{Key, Kind};
use super::value::{Env, Plain, Text, expand, is_name, read, stated};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A table of the file, or one that is absent and has only defaults.
#[derive(Clone)]
pub(super) struct View<'t> {
    /// How messages name it; empty for the top of the file.
    pub(super) path: String,
    /// Byte offset where it begins.
    pub(super) at: usize,
    pub(super) table: Option<&'t DeTable<'t>>,
    pub(super) keys: &'static [Key],
    pub(super) env: Env<'t>,
}

/// One typed target of a Route.
pub(super) struct TypedTarget {
    pub(super) at: usize,
    pub(super) path: String,
    pub(super) endpoint: String,
    /// Byte offset and value of `weight`, if it was written.
    pub(super) weight: Option<(usize, u64)>,
}

/// Reads TOML; faults of syntax are reported, and what could be read is returned.
pub(super) fn parse<'t>(text: &'t str, faults: &mut Faults<'_>) -> DeTable<'t> {
    let (tree, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let at = error.span().map_or(text.len(), |span| span.start);
        // Only the message: the error's own picture repeats the line, which may hold a secret.
        let text = match error.message() {
            "duplicate key" => "this key or table is written above already; keep one of the two",
            message => message,
        };
        faults.syntax(at, text.to_owned());
    }
    tree.into_inner()
}

impl<'t> View<'t> {
    /// The top of the file.
    pub(super) fn top(table: &'t DeTable<'t>, keys: &'static [Key], env: Env<'t>) -> View<'t> {
        View { path: String::new(), at: 0, table: Some(table), keys, env }
    }

    /// Path of a key in this table.
    pub(super) fn path_of(&self, name: &str) -> String {
        match self.path.as_str() {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        }
    }

    /// Byte offset of a key's value, or of the table where the key is absent.
    pub(super) fn at_of(&self, name: &str) -> usize {
        self.value(name).map_or(self.at, |value| value.span().start)
    }

    /// Whether the key is written at all.
    pub(super) fn typed(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// Whether the key is written with a value that it can't have.
    pub(super) fn wrong(&self, name: &str) -> bool {
        let key = self.key(name);
        key.zip(self.value(name)).is_some_and(|(key, value)| read(key.kind, value, self.env).is_err())
    }

    /// A table in this one.
    pub(super) fn table(&self, name: &'static str) -> View<'t> {
        let keys = match self.key(name).map(|key| key.kind) {
            Some(Kind::Table(keys)) => keys,
            _ => &[],
        };
        let table = match self.value(name).map(Spanned::get_ref) {
            Some(DeValue::Table(table)) => Some(table),
            _ => None,
        };
        View { path: self.path_of(name), at: self.at_of(name), table, keys, env: self.env }
    }

    /// The tables of an array of tables, each named by its id or its position.
    pub(super) fn tables(&self, name: &'static str) -> Vec<View<'t>> {
        let keys = match self.key(name).map(|key| key.kind) {
            Some(Kind::Tables(keys)) => keys,
            _ => &[],
        };
        let items: &[Spanned<DeValue<'t>>] = match self.value(name).map(Spanned::get_ref) {
            Some(DeValue::Array(items)) => items,
            _ => &[],
        };
        let mut views = Vec::with_capacity(items.len());
        for (position, item) in items.iter().enumerate() {
            let DeValue::Table(table) = item.get_ref() else { continue };
            let mut view = View { path: String::new(), at: item.span().start, table: Some(table), keys, env: self.env };
            let label = view.name("id").unwrap_or_else(|| position.to_string());
            view.path = format!("{}[{label}]", self.path_of(name));
            views.push(view);
        }
        views
    }

    /// A flag.
    pub(super) fn flag(&self, name: &str) -> bool {
        matches!(self.plain(name), Some(Plain::Flag(true)))
    }

    /// A count, a duration in nanoseconds or a size in bytes; `None` only where the key has no default.
    pub(super) fn number_or(&self, name: &str) -> Option<u64> {
        match self.plain(name) {
            Some(Plain::Number(number)) => Some(number),
            _ => None,
        }
    }

    /// As [`View::number_or`], for keys that have a default.
    pub(super) fn number(&self, name: &str) -> u64 {
        self.number_or(name).unwrap_or(0)
    }

    /// As [`View::number`]; the bounds in the table of keys fit.
    pub(super) fn count(&self, name: &str) -> usize {
        usize::try_from(self.number(name)).unwrap_or(usize::MAX)
    }

    /// A text or a word.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        match self.plain(name) {
            Some(Plain::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// An id; `None` where it is absent or wrong.
    pub(super) fn name(&self, name: &str) -> Option<String> {
        self.text(name).filter(|text| is_name(text))
    }

    /// A list of texts.
    pub(super) fn texts(&self, name: &str) -> Vec<Text> {
        match self.plain(name) {
            Some(Plain::Texts(texts)) => texts,
            _ => Vec::new(),
        }
    }

    /// The entries of a table with free keys, in the order of the file: the key and its value.
    pub(super) fn fields(&self, name: &str) -> Vec<(Text, Text)> {
        let Some(DeValue::Table(table)) = self.value(name).map(Spanned::get_ref) else { return Vec::new() };
        let mut fields = Vec::with_capacity(table.len());
        for (key, value) in table {
            let DeValue::String(typed) = value.get_ref() else { continue };
            let Ok(text) = expand(typed, self.env) else { continue };
            let key = Text { at: key.span().start, text: key.get_ref().to_string() };
            fields.push((key, Text { at: value.span().start, text: text.into_owned() }));
        }
        fields.sort_by_key(|(key, _)| key.at);
        fields
    }

    /// The length of a list, if it is one.
    pub(super) fn length(&self, name: &str) -> Option<usize> {
        match self.value(name).map(Spanned::get_ref) {
            Some(DeValue::Array(items)) => Some(items.len()),
            _ => None,
        }
    }

    /// The targets of a Route that could be read.
    pub(super) fn targets(&self, name: &'static str) -> Vec<TypedTarget> {
        let keys = match self.key(name).map(|key| key.kind) {
            Some(Kind::Targets(keys)) => keys,
            _ => &[],
        };
        let Some(DeValue::Array(items)) = self.value(name).map(Spanned::get_ref) else { return Vec::new() };
        let mut targets = Vec::with_capacity(items.len().min(256));
        for (position, item) in items.iter().enumerate() {
            let at = item.span().start;
            let path = format!("{}[{position}]", self.path_of(name));
            let (endpoint, weight) = match item.get_ref() {
                DeValue::Table(table) => {
                    let view = View { path: path.clone(), at, table: Some(table), keys, env: self.env };
                    let weight = view.typed("weight").then(|| (view.at_of("weight"), view.number("weight")));
                    (view.name("endpoint"), weight)
                }
                DeValue::String(typed) => {
                    (expand(typed, self.env).ok().map(|text| text.into_owned()).filter(|id| is_name(id)), None)
                }
                _ => (None, None),
            };
            if let Some(endpoint) = endpoint {
                targets.push(TypedTarget { at, path, endpoint, weight });
            }
        }
        targets
    }

    fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    pub(super) fn value(&self, name: &str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.table?.get(name)
    }

    fn plain(&self, name: &str) -> Option<Plain> {
        let key = self.key(name)?;
        let typed = self.value(name).and_then(|value| read(key.kind, value, self.env).ok());
        typed.or_else(|| stated(key.kind, key.default))
    }
}
