//! Types that users made: their numbers differ from one copy of a database to the next one, and binary values
//! have them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use pgtoll_wire::{Connection, Error};

use crate::fields::{Fields, Malformed};
use crate::tables::literal;
use crate::values::{ParameterValue, TypeShape, UserType};
use crate::workload::ExecutedStatement;

/// OIDs from here on are given out as objects are made (`FirstNormalObjectId`).
const FIRST_USER_OID: u32 = 16_384;

/// The OIDs of types that users made, among those of an execution.
pub(crate) fn user_type_oids(execution: &ExecutedStatement) -> impl Iterator<Item = u32> {
    let of_values = execution.parameters.iter().flatten().filter_map(|value| match value {
        ParameterValue::Binary { oid, .. } => Some(*oid),
        ParameterValue::Text(_) => None,
    });
    execution.types.iter().copied().chain(of_values).filter(|oid| *oid >= FIRST_USER_OID)
}

/// Looks up these types, and those that their values have in them.
pub(crate) fn read_user_types(
    connection: &mut Connection,
    oids: &BTreeSet<u32>,
) -> Result<Vec<UserType>, Error> {
    let list: Vec<String> = oids.iter().map(u32::to_string).collect();
    let sql = include_str!("user_types.sql").replace("{oids}", &list.join(","));
    let rows = connection.query(&sql)?;
    let mut types = Vec::with_capacity(rows.len());
    for row in rows {
        let shape = match row.text("shape")? {
            "array" => TypeShape::Array,
            "composite" => TypeShape::Composite,
            "domain" => TypeShape::Domain { base: row.parse("base")? },
            _ => TypeShape::Plain,
        };
        types.push(UserType { oid: row.parse("oid")?, name: row.text("name")?.to_owned(), shape });
    }
    Ok(types)
}

/// From the numbers of types in a captured database to those in the database that it is replayed to.
#[derive(Clone, Debug, Default)]
pub(crate) struct TypeNumbers {
    /// Those that differ.
    differing: BTreeMap<u32, u32>,
    shapes: BTreeMap<u32, TypeShape>,
}

impl TypeNumbers {
    /// Looks the types up by name. Those that the database does not have keep their numbers, which it then
    /// refuses.
    pub(crate) fn read(connection: &mut Connection, types: &[UserType]) -> Result<Self, Error> {
        let names: Vec<String> = types.iter().map(|item| literal(&item.name)).collect();
        let sql = format!(
            "SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(t.typname) AS name, \
             t.oid AS oid FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace \
             WHERE t.oid >= {FIRST_USER_OID} AND pg_catalog.quote_ident(n.nspname) || '.' || \
             pg_catalog.quote_ident(t.typname) = ANY (ARRAY[{}]::text[])",
            names.join(", ")
        );
        let mut here = BTreeMap::new();
        for row in connection.query(&sql)? {
            here.insert(row.text("name")?.to_owned(), row.parse("oid")?);
        }
        Ok(Self::between(types, &here))
    }

    fn between(types: &[UserType], here: &BTreeMap<String, u32>) -> Self {
        let numbers = types.iter().filter_map(|item| Some((item.oid, *here.get(&item.name)?)));
        Self {
            differing: numbers.filter(|(there, here)| there != here).collect(),
            shapes: types.iter().map(|item| (item.oid, item.shape)).collect(),
        }
    }

    /// The executions as this database understands them.
    pub(crate) fn translated<'a>(
        &self,
        executions: &'a [ExecutedStatement],
    ) -> Cow<'a, [ExecutedStatement]> {
        if self.differing.is_empty()
            || executions.iter().all(|execution| user_type_oids(execution).next().is_none())
        {
            return Cow::Borrowed(executions);
        }
        let mut executions = executions.to_vec();
        for execution in &mut executions {
            execution.types.iter_mut().for_each(|oid| *oid = self.number(*oid));
            for value in execution.parameters.iter_mut().flatten() {
                if let ParameterValue::Binary { oid, bytes } = value {
                    *bytes = self.value(*oid, bytes);
                    *oid = self.number(*oid);
                }
            }
        }
        Cow::Owned(executions)
    }

    fn number(&self, oid: u32) -> u32 {
        self.differing.get(&oid).copied().unwrap_or(oid)
    }

    /// Converts a value. An invalid one stays as it is: the server refuses it again.
    fn value(&self, oid: u32, bytes: &[u8]) -> Vec<u8> {
        let mut translated = Vec::with_capacity(bytes.len());
        match self.push_value(oid, bytes, &mut translated, 0) {
            Ok(()) => translated,
            Err(Malformed) => bytes.to_vec(),
        }
    }

    fn push_value(
        &self,
        oid: u32,
        bytes: &[u8],
        into: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), Malformed> {
        if depth > DEPTH_MAX {
            return Err(Malformed);
        }
        let mut fields = Fields(bytes);
        match self.shapes.get(&oid).copied().unwrap_or_default() {
            TypeShape::Plain => into.extend_from_slice(bytes),
            TypeShape::Domain { base } => self.push_value(base, bytes, into, depth + 1)?,
            TypeShape::Array => {
                let dimensions = fields.int32()?;
                let flags = fields.int32()?;
                let element = fields.int32()?.cast_unsigned();
                into.extend(dimensions.to_be_bytes());
                into.extend(flags.to_be_bytes());
                into.extend(self.number(element).to_be_bytes());
                let bounds = usize::try_from(dimensions).map_err(|_| Malformed)?.checked_mul(8);
                into.extend_from_slice(fields.bytes(bounds.ok_or(Malformed)?)?);
                while !fields.0.is_empty() {
                    self.push_part(element, &mut fields, into, depth)?;
                }
            }
            TypeShape::Composite => {
                into.extend(fields.int32()?.to_be_bytes());
                while !fields.0.is_empty() {
                    let column = fields.int32()?.cast_unsigned();
                    into.extend(self.number(column).to_be_bytes());
                    self.push_part(column, &mut fields, into, depth)?;
                }
            }
        }
        Ok(())
    }

    /// A value that has its length before it, -1 for NULL.
    fn push_part(
        &self,
        oid: u32,
        fields: &mut Fields<'_>,
        into: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), Malformed> {
        let length = fields.int32()?;
        // No number of a type changes a value's length.
        into.extend(length.to_be_bytes());
        match usize::try_from(length) {
            Ok(length) => self.push_value(oid, fields.bytes(length)?, into, depth + 1),
            Err(_) => Ok(()),
        }
    }
}

/// Types in types that a value may have: a crafted plan could name a type in itself.
const DEPTH_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An enum, its array, a row of that array and an `integer`, and a domain of that row.
    fn numbers() -> TypeNumbers {
        let pick = |oid: u32, name: &str, shape| UserType { oid, name: name.to_owned(), shape };
        let types = [
            pick(20_000, "s.mood", TypeShape::Plain),
            pick(20_001, "s._mood", TypeShape::Array),
            pick(20_002, "s.row", TypeShape::Composite),
            pick(20_003, "s.checked", TypeShape::Domain { base: 20_002 }),
            pick(20_004, "s.gone", TypeShape::Plain),
        ];
        let here =
            [("s.mood", 30_000), ("s._mood", 20_001), ("s.row", 30_002), ("s.checked", 30_003)];
        let here = here.map(|(name, oid)| (name.to_owned(), oid));
        TypeNumbers::between(&types, &here.into())
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    fn execution(types: &[u32], oid: u32, bytes: &[u8]) -> ExecutedStatement {
        let value = ParameterValue::Binary { oid, bytes: bytes.to_vec() };
        ExecutedStatement {
            name: String::new(),
            sql: "SELECT $1".to_owned(),
            types: types.to_vec(),
            parameters: vec![Some(value), None, Some("text".to_owned().into())],
        }
    }

    #[test]
    fn numbers_are_translated_wherever_values_have_them() {
        let array =
            |mood: u32| [&words(&[1, 0, mood, 2, 1, 3])[..], b"sad", &words(&[u32::MAX])].concat();
        let row = |mood: u32| {
            let array = array(mood);
            let length = u32::try_from(array.len()).unwrap();
            [&words(&[2, 20_001, length])[..], &array, &words(&[23, 4, 7])].concat()
        };
        let before = execution(&[20_003, 23, 20_004], 20_003, &row(20_000));
        let after = execution(&[30_003, 23, 20_004], 30_003, &row(30_000));
        assert_eq!(numbers().translated(&[before])[..], [after]);
        let before = execution(&[], 20_001, &array(20_000));
        assert_eq!(numbers().translated(&[before])[..], [execution(&[], 20_001, &array(30_000))]);
        // Nothing to translate: no copy.
        let unchanged = [execution(&[23], 23, &words(&[5]))];
        assert!(matches!(numbers().translated(&unchanged), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn whatever_bytes_keep_their_length(
            oid in 19_999_u32..20_006,
            bytes in prop::collection::vec(prop::sample::select(&[0_u8, 1, 4, 0x4e, 0x20, 0xff][..]), 0..64),
        ) {
            prop_assert_eq!(numbers().value(oid, &bytes).len(), bytes.len());
        }
    }
}
