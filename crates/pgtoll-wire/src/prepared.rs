//! Prepared statements and their parameters.

use std::error;
use std::fmt::Write as _;
use std::iter;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{BufMut, BytesMut};
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{ParameterDescriptionBody, RowDescriptionBody};
use postgres_protocol::message::frontend::{self, BindError};
use postgres_protocol::{IsNull, Oid};

use crate::Error;
use crate::row::{self, Columns};

/// A statement that one connection has prepared, and keeps until it closes.
#[derive(Debug)]
pub struct PreparedStatement {
    name: String,
    sql: String,
    /// Once the server has described them, those of all parameters.
    parameter_types: Vec<Oid>,
    columns: Columns,
}

impl PreparedStatement {
    /// The statement's text.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// The OIDs of the parameters' types, as declared, or as the server inferred them.
    pub fn parameter_types(&self) -> &[u32] {
        &self.parameter_types
    }

    /// The names of the columns of its rows; none if it returns no rows.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    pub(crate) fn shared_columns(&self) -> &Columns {
        &self.columns
    }

    /// A statement that no connection knows yet. Names are unique in the process, so that a
    /// statement used on a connection that has not prepared it is an error of the server instead
    /// of the execution of another statement.
    ///
    /// `declared` are the OIDs of the first parameters' types, 0 of those that the server is to infer.
    pub(crate) fn unnamed(sql: &str, declared: &[Oid]) -> Self {
        static STATEMENTS: AtomicU64 = AtomicU64::new(0);
        Self {
            name: format!("p{}", STATEMENTS.fetch_add(1, Ordering::Relaxed)),
            sql: sql.to_owned(),
            parameter_types: declared.to_vec(),
            columns: Columns::default(),
        }
    }

    pub(crate) fn encode_preparation(&self, outbox: &mut BytesMut) -> Result<(), Error> {
        frontend::parse(&self.name, &self.sql, self.parameter_types.iter().copied(), outbox)
            .and_then(|()| frontend::describe(b'S', &self.name, outbox))
            .map_err(|source| Error::unsendable("statement", source))?;
        frontend::sync(outbox);
        Ok(())
    }

    pub(crate) fn describe(&mut self, body: &ParameterDescriptionBody) -> Result<(), Error> {
        self.parameter_types = body
            .parameters()
            .collect()
            .map_err(|source| Error::undecodable("malformed parameter description", source))?;
        Ok(())
    }

    pub(crate) fn describe_rows(&mut self, body: &RowDescriptionBody) -> Result<(), Error> {
        self.columns = row::decode_columns(body)?;
        Ok(())
    }

    /// Bind, Execute and Sync: a whole execution in one write.
    pub(crate) fn encode_execution(
        &self,
        parameters: &[Parameter<'_>],
        outbox: &mut BytesMut,
    ) -> Result<(), Error> {
        if parameters.len() != self.parameter_types.len() {
            return Err(Error::ParameterCount {
                expected: self.parameter_types.len(),
                actual: parameters.len(),
            });
        }
        let typed = || iter::zip(parameters, &self.parameter_types);
        frontend::bind(
            "",
            &self.name,
            typed().map(|(parameter, &oid)| parameter.format(oid)),
            typed(),
            |(parameter, &oid), outbox| parameter.encode(oid, outbox),
            iter::empty(),
            outbox,
        )
        .map_err(|error| match error {
            BindError::Conversion(source) => Error::unsendable("parameter", source),
            BindError::Serialization(source) => Error::unsendable("parameters", source),
        })?;
        frontend::execute("", 0, outbox)
            .map_err(|source| Error::unsendable("execution", source))?;
        frontend::sync(outbox);
        Ok(())
    }
}

/// An execution as a client of the extended protocol asks for it, message by message.
#[derive(Debug, Clone, Copy)]
pub struct ExtendedExecution<'a> {
    /// The prepared statement's name; empty for the unnamed one.
    pub name: &'a str,
    /// The statement.
    pub sql: &'a str,
    /// Whether it is parsed first, in place of any other statement of this name.
    pub parse: bool,
    /// The OIDs of the first parameters' types, 0 of those that the server is to infer.
    pub types: &'a [u32],
    /// The parameters' values.
    pub parameters: &'a [Parameter<'a>],
}

impl ExtendedExecution<'_> {
    pub(crate) fn encode(&self, outbox: &mut BytesMut) -> Result<(), Error> {
        let unsendable = |source| Error::unsendable("statement", source);
        if self.parse {
            if !self.name.is_empty() {
                frontend::close(b'S', self.name, outbox).map_err(unsendable)?;
            }
            let types = self.types.iter().copied();
            frontend::parse(self.name, self.sql, types, outbox).map_err(unsendable)?;
        }
        let types = || self.types.iter().copied().chain(iter::repeat(0));
        let typed = || iter::zip(self.parameters, types());
        frontend::bind(
            "",
            self.name,
            typed().map(|(parameter, oid)| parameter.format(oid)),
            typed(),
            |(parameter, oid), outbox| parameter.encode(oid, outbox),
            iter::empty(),
            outbox,
        )
        .map_err(|error| match error {
            BindError::Conversion(source) => Error::unsendable("parameter", source),
            BindError::Serialization(source) => Error::unsendable("parameters", source),
        })?;
        frontend::execute("", 0, outbox).map_err(|source| Error::unsendable("execution", source))
    }
}

/// A value for a parameter of a prepared statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parameter<'a> {
    /// Null, of whatever type.
    Null,
    /// The value in the parameter type's text form.
    Text(&'a str),
    /// The value in the parameter type's binary form.
    Binary(&'a [u8]),
    /// An integer: sent in binary if the parameter is a `smallint`, `integer` or `bigint`, else as
    /// text.
    Integer(i64),
}

impl Parameter<'_> {
    fn format(self, oid: Oid) -> i16 {
        i16::from(match self {
            Self::Binary(_) => true,
            Self::Integer(_) => matches!(oid, INT8 | INT4 | INT2),
            Self::Null | Self::Text(_) => false,
        })
    }

    fn encode(
        self,
        oid: Oid,
        outbox: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn error::Error + Send + Sync>> {
        match (self, oid) {
            (Self::Null, _) => return Ok(IsNull::Yes),
            (Self::Text(text), _) => outbox.put_slice(text.as_bytes()),
            (Self::Binary(bytes), _) => outbox.put_slice(bytes),
            (Self::Integer(number), INT8) => outbox.put_i64(number),
            (Self::Integer(number), INT4) => outbox.put_i32(number.try_into()?),
            (Self::Integer(number), INT2) => outbox.put_i16(number.try_into()?),
            (Self::Integer(number), _) => write!(outbox, "{number}")?,
        }
        Ok(IsNull::No)
    }
}

// These three are in PostgreSQL's `pg_type.dat`, and as old as the protocol.
const INT8: Oid = 20;
const INT2: Oid = 21;
const INT4: Oid = 23;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(parameter: Parameter<'_>, oid: Oid, expected: &[u8]) {
        let mut statement = PreparedStatement::unnamed("SELECT $1", &[oid]);
        statement.name = "p".to_owned();
        let mut outbox = BytesMut::new();
        statement.encode_execution(&[parameter], &mut outbox).unwrap();
        // After tag, length, portal and statement: the bind's variable part, then the messages
        // that are always the same.
        let fixed = b"\0\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04";
        let variable = outbox[8..].strip_suffix(fixed).unwrap();
        assert_eq!(variable, expected, "{parameter:?} as {oid}");
    }

    #[test]
    fn integers_take_the_width_of_the_parameter() {
        let number = Parameter::Integer(-2);
        check(number, INT8, b"\0\x01\0\x01\0\x01\0\0\0\x08\xff\xff\xff\xff\xff\xff\xff\xfe");
        check(number, INT4, b"\0\x01\0\x01\0\x01\0\0\0\x04\xff\xff\xff\xfe");
        check(number, INT2, b"\0\x01\0\x01\0\x01\0\0\0\x02\xff\xfe");
        check(number, 1700, b"\0\x01\0\0\0\x01\0\0\0\x02-2");
    }

    #[test]
    fn text_and_null_go_as_text() {
        check(Parameter::Text("7"), INT4, b"\0\x01\0\0\0\x01\0\0\0\x017");
        check(Parameter::Null, INT4, b"\0\x01\0\0\0\x01\xff\xff\xff\xff");
        check(Parameter::Binary(b"\0\x07"), INT2, b"\0\x01\0\x01\0\x01\0\0\0\x02\0\x07");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let statement = PreparedStatement::unnamed("SELECT $1", &[INT2]);
        let mut outbox = BytesMut::new();
        let too_wide = statement.encode_execution(&[Parameter::Integer(40_000)], &mut outbox);
        assert!(matches!(too_wide, Err(Error::Encode { .. })));
        let too_few = statement.encode_execution(&[], &mut outbox);
        assert!(matches!(too_few, Err(Error::ParameterCount { expected: 1, actual: 0 })));
    }
}
