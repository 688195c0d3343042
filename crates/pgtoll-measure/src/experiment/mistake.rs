//! Mistakes in an experiment's text, each with its place.

use std::fmt;
use std::ops::Range;

use serde_json::Value as Schema;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A mistake in an experiment's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Its line, counted from 1.
    pub line: usize,
    /// Its column in the line, in characters, from 1.
    pub column: usize,
    /// How many characters of the line it is about; at least 1.
    pub width: usize,
    /// The line.
    pub text: String,
    /// The faults.
    pub message: String,
    /// Returns advice, if there is any.
    pub hint: Option<String>,
}

/// As `line 12, column 8: …`.
impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

/// A mistake that knows its place in the text as bytes.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) span: Range<usize>,
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl Fault {
    /// With line and column.
    pub(super) fn located(self, text: &str) -> Mistake {
        let start = self.span.start.min(text.len());
        // A span from elsewhere must not cut a character.
        let start = (0..=start).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let (before, after) = text.split_at(start);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let rest = after.lines().next().unwrap_or_default();
        let marked = rest.char_indices().take_while(|(at, _)| start + at < self.span.end).count();
        Mistake {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            width: marked.max(1),
            text: format!("{}{rest}", &before[line_start..]),
            message: self.message,
            hint: self.hint,
        }
    }
}

/// The way to a value: keys of tables and numbers of entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Entry(usize),
}

impl KeyPath {
    pub(super) fn key(&self, key: &str) -> Self {
        Self([&self.0[..], &[Step::Key(key.to_owned())]].concat())
    }

    pub(super) fn entry(&self, index: usize) -> Self {
        Self([&self.0[..], &[Step::Entry(index)]].concat())
    }

    /// Returns its place: its key when that is what is wrong, else its value; where there is none,
    /// what it would stand in.
    pub(super) fn span(&self, table: &Spanned<DeTable<'_>>, of_key: bool) -> Range<usize> {
        let root = table.span();
        let mut found = root.start..root.start;
        let mut tables = Some(table.get_ref());
        let mut value: Option<&Spanned<DeValue<'_>>> = None;
        for (index, step) in self.0.iter().enumerate() {
            let is_last = index + 1 == self.0.len();
            let next = match step {
                Step::Key(key) => tables.and_then(|table| table.get_key_value(key.as_str())),
                Step::Entry(index) => {
                    let entry = value
                        .and_then(|value| value.get_ref().as_array())
                        .and_then(|entries| entries.get(*index));
                    let Some(entry) = entry else { return found };
                    (found, value) = (entry.span(), Some(entry));
                    tables = entry.get_ref().as_table();
                    continue;
                }
            };
            let Some((key, under)) = next else { return found };
            found = if of_key && is_last { key.span() } else { under.span() };
            value = Some(under);
            tables = under.get_ref().as_table();
        }
        found
    }

    /// The table at this place.
    pub(super) fn table_in<'t, 'i>(
        &self,
        table: &'t mut DeTable<'i>,
    ) -> Option<&'t mut DeTable<'i>> {
        let Some((Step::Key(key), rest)) = self.0.split_first() else { return Some(table) };
        let mut value = table.get_mut(key.as_str())?.get_mut();
        for (index, step) in rest.iter().enumerate() {
            value = match (step, value) {
                (Step::Entry(index), DeValue::Array(entries)) => entries.get_mut(*index)?.get_mut(),
                (Step::Key(_), DeValue::Table(table)) => {
                    return Self(rest[index..].to_vec()).table_in(table);
                }
                _ => return None,
            };
        }
        match value {
            DeValue::Table(table) => Some(table),
            _ => None,
        }
    }

    /// Whether `other` is this place or one inside it.
    pub(super) fn holds(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }

    pub(super) fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

/// Compares a text with the schema of what it should be: unknown keys, missing ones, wrong types.
pub(super) struct Structure<'a> {
    schema: &'a Schema,
    text: &'a str,
    pub(super) faults: Vec<Fault>,
    /// Tables with an unknown key, and the key.
    pub(super) unknown: Vec<(KeyPath, String)>,
    /// Something is wrong other than unknown keys.
    pub(super) is_broken: bool,
}

impl<'a> Structure<'a> {
    pub(super) fn new(schema: &'a Schema, text: &'a str, table: &Spanned<DeTable<'_>>) -> Self {
        let faults = Vec::new();
        let unknown = Vec::new();
        let mut structure = Self { schema, text, faults, unknown, is_broken: false };
        let span = table.span().start..table.span().start;
        structure.table(schema, table.get_ref(), &span, &KeyPath::default());
        structure
    }

    fn table(
        &mut self,
        schema: &Schema,
        table: &DeTable<'_>,
        span: &Range<usize>,
        place: &KeyPath,
    ) {
        let none = serde_json::Map::new();
        let properties = schema["properties"].as_object().unwrap_or(&none);
        let mut meant = Vec::new();
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            match (properties.get(name), &schema["additionalProperties"]) {
                (None, Schema::Bool(false)) => {
                    let absent =
                        properties.keys().filter(|property| !table.contains_key(property.as_str()));
                    let near = nearest(name, absent.map(String::as_str));
                    meant.extend(near);
                    let hint = near.map_or_else(
                        || format!("the keys here are {}", list(properties.keys())),
                        |near| format!("did you mean {near:?}?"),
                    );
                    let message = format!("unknown key {name:?}");
                    self.faults.push(Fault { span: key.span(), message, hint: Some(hint) });
                    self.unknown.push((place.clone(), name.to_owned()));
                }
                (Some(item), _) | (None, item) => self.value(item, name, value, &place.key(name)),
            }
        }
        let required = schema["required"].as_array().into_iter().flatten();
        for name in required.filter_map(Schema::as_str) {
            if table.contains_key(name) {
                continue;
            }
            self.is_broken = true;
            // The unknown key is told already.
            if !meant.contains(&name) {
                let message = format!("the key {name:?} is missing");
                let hint =
                    properties.get(name).and_then(|property| property["description"].as_str());
                let hint = hint.map(|text| format!("{name} is {}", first_sentence(text)));
                self.faults.push(Fault { span: span.clone(), message, hint });
            }
        }
    }

    fn value(
        &mut self,
        schema: &Schema,
        name: &str,
        value: &Spanned<DeValue<'_>>,
        place: &KeyPath,
    ) {
        let kind = kind(value.get_ref());
        let mut accepted = Vec::new();
        self.alternatives(schema, &mut accepted);
        let takes = |schema: &&&Schema| {
            types(schema).any(|item| item == kind || (item == "number" && kind == "integer"))
        };
        let fitting = accepted.iter().find(takes).copied();
        let Some(fitting) = fitting.or_else(|| {
            // What the schema leaves open.
            accepted.iter().find(|accepted| types(accepted).next().is_none()).copied()
        }) else {
            self.is_broken = true;
            let expected: Vec<String> = accepted
                .iter()
                .flat_map(|accepted| types(accepted))
                .filter(|item| *item != "null")
                .map(a)
                .collect();
            let message =
                format!("{name:?} is {}, where {} belongs", a(kind), expected.join(" or "));
            let source = self.text.get(value.span()).filter(|text| !text.contains('"'));
            let quotes = expected.iter().any(|expected| expected == "a string")
                && ["integer", "number", "boolean"].contains(&kind);
            let hint = source.filter(|_| quotes).map(|text| format!("write it as \"{text}\""));
            self.faults.push(Fault { span: value.span(), message, hint });
            return;
        };
        match value.get_ref() {
            DeValue::Integer(integer) => {
                let number = i64::from_str_radix(integer.as_str(), integer.radix());
                let least = fitting["minimum"].as_i64();
                if let Some((number, least)) = number.ok().zip(least).filter(|(item, by)| item < by)
                {
                    self.is_broken = true;
                    let message = format!("{name:?} is {number}, and the least is {least}");
                    self.faults.push(Fault { span: value.span(), message, hint: None });
                }
            }
            DeValue::Table(table) => self.table(fitting, table, &value.span(), place),
            DeValue::Array(entries) if fitting["items"].is_object() => {
                for (index, entry) in entries.iter().enumerate() {
                    self.value(&fitting["items"], name, entry, &place.entry(index));
                }
            }
            _ => {}
        }
    }

    /// Resolves `$ref` and `anyOf`.
    fn alternatives(&self, schema: &'a Schema, found: &mut Vec<&'a Schema>) {
        if let Some(name) =
            schema["$ref"].as_str().and_then(|schema| schema.strip_prefix("#/$defs/"))
        {
            return self.alternatives(&self.schema["$defs"][name], found);
        }
        match schema["anyOf"].as_array() {
            Some(any) => any.iter().for_each(|any| self.alternatives(any, found)),
            None => found.push(schema),
        }
    }
}

fn types(schema: &Schema) -> impl Iterator<Item = &str> {
    let one = schema["type"].as_str();
    let many = schema["type"].as_array().into_iter().flatten().filter_map(Schema::as_str);
    one.into_iter().chain(many)
}

/// A value's type in the schema's words.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "string",
        DeValue::Integer(_) => "integer",
        DeValue::Float(_) => "number",
        DeValue::Boolean(_) => "boolean",
        DeValue::Datetime(_) => "date",
        DeValue::Array(_) => "array",
        DeValue::Table(_) => "object",
    }
}

/// The type in TOML's words, with its article.
fn a(kind: &str) -> String {
    match kind {
        "integer" => "an integer".to_owned(),
        "boolean" => "true or false".to_owned(),
        "array" => "a list".to_owned(),
        "object" => "a table".to_owned(),
        other => format!("a {other}"),
    }
}

/// As it continues after a verb.
fn first_sentence(text: &str) -> String {
    let text = text.split(['.', ':', ';', '\n']).next().unwrap_or(text);
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}

/// In the order in which they are given.
pub(super) fn list(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| name.as_ref().to_owned()).collect();
    names.join(", ")
}

/// The name that was probably meant: one that a slip or two away.
pub(super) fn nearest<'n>(name: &str, among: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let slips = (name.chars().count() / 3).clamp(1, 3);
    let distance = |text: &&str| strsim::osa_distance(name, text);
    among.into_iter().min_by_key(distance).filter(|among| distance(among) <= slips)
}
