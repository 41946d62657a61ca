//! What was typed: the file as a tree with positions, each key checked against the table of keys.
//!
//! [`View::check`] reports everything that can be said about one key by itself; after that the getters give the
//! typed value where it is right and the default where it is absent or wrong, so that reading goes on and all
//! faults come at once.

use super::fault::{Faults, nearest, quoted};
use super::schema::{Built, Key, Kind, Lit};
use super::value::{Env, Plain, Text, expand, is_name, read, stated, wants};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A table of the file, or one that is absent and has only defaults.
#[derive(Clone)]
pub(super) struct View<'t> {
    /// How messages name it; empty for the top of the file.
    pub(super) path: String,
    /// Byte offset where it begins.
    pub(super) at: usize,
    table: Option<&'t DeTable<'t>>,
    keys: &'static [Key],
    env: Env<'t>,
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

    /// Reports all that is wrong with the keys of this table and of the tables in it.
    pub(super) fn check(&self, faults: &mut Faults<'_>) {
        for (key, value) in self.table.into_iter().flatten() {
            match self.keys.iter().find(|known| known.name == key.get_ref().as_ref()) {
                Some(known) => self.check_value(known, key.span().start, value, faults),
                None => self.unknown(key, faults),
            }
        }
        for key in self.keys {
            if let (Lit::Required(example), None) = (key.default, self.value(key.name)) {
                let text = format!("is missing; write it, like {} = {example}", key.name);
                faults.missing(self.at, self.path_of(key.name), text);
            }
        }
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

    fn value(&self, name: &str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.table?.get(name)
    }

    fn plain(&self, name: &str) -> Option<Plain> {
        let key = self.key(name)?;
        let typed = self.value(name).and_then(|value| read(key.kind, value, self.env).ok());
        typed.or_else(|| stated(key.kind, key.default))
    }

    fn unknown(&self, key: &Spanned<std::borrow::Cow<'_, str>>, faults: &mut Faults<'_>) {
        let typed = key.get_ref().as_ref();
        let path = if self.path.is_empty() { "toml" } else { self.path.as_str() };
        let (path, shown) = match quoted(typed) {
            Some(shown) => (self.path_of(typed), shown),
            None => (path.to_owned(), "here".to_owned()),
        };
        let text = match nearest(typed, self.keys.iter().map(|key| key.name)) {
            Some(near) => format!("unknown key {shown}; did you mean `{near}`?"),
            None => {
                let known: Vec<&str> = self.keys.iter().map(|key| key.name).collect();
                format!("unknown key {shown}; known here: {}", known.join(", "))
            }
        };
        faults.fault(key.span().start, path, text);
    }

    fn check_value(&self, key: &'static Key, key_at: usize, value: &'t Spanned<DeValue<'t>>, faults: &mut Faults<'_>) {
        let (at, path) = (value.span().start, self.path_of(key.name));
        let plain = match (key.kind, value.get_ref()) {
            (Kind::Table(_), DeValue::Table(_)) => {
                self.table(key.name).check(faults);
                Plain::Unused
            }
            (Kind::Table(_), DeValue::Array(_)) => {
                return faults.fault(at, path, format!("must be one table; write [{}] once", self.path_of(key.name)));
            }
            (Kind::Tables(_), DeValue::Array(items)) => {
                self.check_tables(key, items, faults);
                Plain::Unused
            }
            (Kind::Tables(_), DeValue::Table(_)) => {
                let text = format!("there may be several; write it in double brackets: [[{}]]", key.name);
                return faults.fault(at, path, text);
            }
            (Kind::Targets(keys), DeValue::Array(items)) => {
                self.check_targets(&path, keys, items, faults);
                Plain::Unused
            }
            (Kind::Fields, DeValue::Table(table)) => {
                self.check_fields(&path, table, faults);
                Plain::Unused
            }
            _ => match read(key.kind, value, self.env) {
                Ok(plain) => plain,
                Err(wrong) => return faults.fault(wrong.at, path, wrong.text),
            },
        };
        if let Built::Later(harmless) = key.built {
            self.check_later(key, harmless, &plain, value.get_ref(), (key_at, path), faults);
        }
    }

    fn check_later(
        &self,
        key: &Key,
        harmless: Lit,
        plain: &Plain,
        value: &DeValue<'_>,
        (at, path): (usize, String),
        faults: &mut Faults<'_>,
    ) {
        let empty = match value {
            DeValue::Table(table) => table.is_empty(),
            DeValue::Array(items) => items.is_empty(),
            _ => false,
        };
        match stated(key.kind, harmless) {
            _ if empty => {}
            Some(nothing) if nothing == *plain => {}
            Some(_) => {
                let text = format!("not built yet; remove it, or write {} = {}", key.name, shown(harmless));
                faults.fault(at, path, text);
            }
            None => faults.fault(at, path, "not built yet; remove it"),
        }
    }

    fn check_tables(&self, key: &'static Key, items: &[Spanned<DeValue<'t>>], faults: &mut Faults<'_>) {
        for item in items.iter().filter(|item| !matches!(item.get_ref(), DeValue::Table(_))) {
            faults.fault(item.span().start, self.path_of(key.name), wants(key.kind));
        }
        for view in self.tables(key.name) {
            view.check(faults);
        }
    }

    fn check_targets(
        &self,
        path: &str,
        keys: &'static [Key],
        items: &'t [Spanned<DeValue<'t>>],
        faults: &mut Faults<'_>,
    ) {
        for (position, item) in items.iter().enumerate() {
            let (at, path) = (item.span().start, format!("{path}[{position}]"));
            match item.get_ref() {
                DeValue::Table(table) => {
                    View { path, at, table: Some(table), keys, env: self.env }.check(faults);
                }
                DeValue::String(_) => {
                    if let Err(wrong) = read(Kind::Name, item, self.env) {
                        faults.fault(wrong.at, path, wrong.text);
                    }
                }
                _ => faults.fault(at, path, wants(Kind::Targets(keys))),
            }
        }
    }

    fn check_fields(&self, path: &str, table: &DeTable<'_>, faults: &mut Faults<'_>) {
        for (key, value) in table {
            let path = quoted(key.get_ref()).map_or(path.to_owned(), |_| format!("{path}.{}", key.get_ref()));
            if let Err(wrong) = read(Kind::Text, value, self.env) {
                faults.fault(wrong.at, path, wrong.text);
            }
        }
    }
}

/// A stated value as it would be typed.
pub(super) fn shown(lit: Lit) -> String {
    match lit {
        Lit::Absent => String::new(),
        Lit::Required(example) => example.to_owned(),
        Lit::Flag(flag) => flag.to_string(),
        Lit::Count(number) => number.to_string(),
        Lit::Ratio(number) => number.to_owned(),
        Lit::Text(text) => format!("\"{text}\""),
        Lit::Texts(list) => format!("{list:?}"),
    }
}
