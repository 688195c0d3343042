//! Rows of the simple query protocol: every value as the text that the server made of it.

use std::any;
use std::error;
use std::str::FromStr;
use std::sync::Arc;

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{DataRowBody, RowDescriptionBody};

use crate::Error;

/// One row, every value as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    columns: Columns,
    values: Vec<Option<String>>,
}

/// The names of a result set's columns, which all its rows share.
pub(crate) type Columns = Arc<[String]>;

impl Row {
    /// The names of the columns, in the order of the query.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The values in the order of the columns; `None` is null.
    pub fn values(&self) -> &[Option<String>] {
        &self.values
    }

    /// The value of the first column of this name; `None` is null.
    pub fn value(&self, column: &str) -> Result<Option<&str>, Error> {
        let index = self.columns.iter().position(|name| name == column);
        match index.and_then(|index| self.values.get(index)) {
            Some(value) => Ok(value.as_deref()),
            None => Err(Error::NoColumn { column: column.to_owned() }),
        }
    }

    /// The value of the first column of this name, which must not be null.
    pub fn text(&self, column: &str) -> Result<&str, Error> {
        self.value(column)?.ok_or_else(|| Error::Null { column: column.to_owned() })
    }

    /// The value of the first column of this name, read from its text. Note that the server's
    /// `boolean` is `t` or `f`, which is not Rust's `bool`.
    pub fn parse<T>(&self, column: &str) -> Result<T, Error>
    where
        T: FromStr,
        T::Err: error::Error + Send + Sync + 'static,
    {
        let text = self.text(column)?;
        text.parse().map_err(|source| Error::Value {
            column: column.to_owned(),
            value: text.to_owned(),
            wanted: any::type_name::<T>(),
            source: Box::new(source),
        })
    }

    /// How much memory the row takes, roughly, that came as this many bytes.
    pub(crate) fn bytes(&self, sent: usize) -> usize {
        sent + self.values.len() * VALUE_BYTES + ROW_BYTES
    }

    pub(crate) fn decode(body: &DataRowBody, columns: &Columns) -> Result<Self, Error> {
        let mut ranges = body.ranges();
        let mut values = Vec::new();
        while let Some(range) =
            ranges.next().map_err(|source| Error::undecodable("malformed row", source))?
        {
            values.push(range.map(|range| text(&body.buffer()[range])).transpose()?);
        }
        if values.len() != columns.len() {
            return Err(Error::protocol(format!(
                "row has {} values for {} columns",
                values.len(),
                columns.len()
            )));
        }
        Ok(Self { columns: Arc::clone(columns), values })
    }
}

/// A string, and what its allocation takes beside its text.
const VALUE_BYTES: usize = size_of::<Option<String>>() + 16;
const ROW_BYTES: usize = size_of::<Row>() + 16;

pub(crate) fn decode_columns(body: &RowDescriptionBody) -> Result<Columns, Error> {
    body.fields()
        .map(|field| Ok(field.name().to_owned()))
        .collect::<Vec<_>>()
        .map(Columns::from)
        .map_err(|source| Error::undecodable("malformed row description", source))
}

fn text(bytes: &[u8]) -> Result<String, Error> {
    match str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(Error::protocol("value is not UTF-8")),
    }
}
