//! Names of relations as records have them.

use pgtoll_datadir::{RelationName, TableName};
use pgtoll_format::catalog::RelationKind;
use pgtoll_record::WalRelationName;

/// The name as a record has it; what could not be read is empty.
pub fn recorded_name(name: &RelationName) -> WalRelationName {
    let table = |table: &TableName| match &table.schema {
        Some(schema) => format!("{schema}.{}", table.relation),
        None => table.relation.clone(),
    };
    let kind = match name.kind {
        RelationKind::Table => "table",
        RelationKind::Index => "index",
        RelationKind::Toast => "TOAST table",
        RelationKind::Sequence => "sequence",
        RelationKind::MaterializedView => "materialized view",
        RelationKind::WithoutFiles(_) => "other",
    };
    WalRelationName {
        database: name.database.as_deref().unwrap_or_default().to_owned(),
        schema: name.schema.as_deref().unwrap_or_default().to_owned(),
        relation: name.relation.clone(),
        kind: kind.to_owned(),
        of: name.of.as_ref().map(table),
    }
}
