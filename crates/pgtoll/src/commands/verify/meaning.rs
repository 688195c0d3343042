//! Which relations `--only` means.

use std::collections::HashSet;

use pgtoll_datadir::{Names, RelationName, TableName};
use pgtoll_format::wal::RelationFiles;

use crate::commands::Usage;

/// The relations that these names mean, with the indexes and TOAST tables of tables.
pub(super) fn chosen(names: &Names, patterns: &[String]) -> anyhow::Result<HashSet<RelationFiles>> {
    let mut chosen = HashSet::new();
    for pattern in patterns {
        let before = chosen.len();
        let found = names.iter().filter(|(_, name)| is_meant(name, pattern));
        chosen.extend(found.map(|(files, _)| files));
        if chosen.len() == before {
            return Err(Usage::error(
                format!("no relation \"{pattern}\""),
                "name it as database.schema.table, schema.table or table",
            ));
        }
    }
    Ok(chosen)
}

/// `shop.public.orders`, `public.orders` and `orders` mean it, and what belongs to it.
fn is_meant(name: &RelationName, pattern: &str) -> bool {
    let own = TableName { schema: name.schema.clone(), relation: name.relation.clone() };
    [Some(&own), name.of.as_ref()].into_iter().flatten().any(|table| {
        let full = table.schema.as_ref().map(|schema| format!("{schema}.{}", table.relation));
        let with_database = name.database.as_ref().zip(full.as_ref());
        let with_database = with_database.map(|(database, full)| format!("{database}.{full}"));
        table.relation == pattern
            || full.as_deref() == Some(pattern)
            || with_database.as_deref() == Some(pattern)
    })
}
