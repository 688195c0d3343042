//! Severity of damage to a fork: the rows, if any, at stake.

use pgtoll_datadir::{Names, RelationName};
use pgtoll_format::catalog::{Persistence, RelationKind};
use pgtoll_format::{ForkNumber, RelationFork};
use pgtoll_record::Severity;

/// Returns the severity of damage to a fork of the relation `name`. `names` are those of the whole cluster, which
/// has no relation for a leftover file; `None`: they may be incomplete.
pub(crate) fn severity(
    fork: RelationFork,
    name: Option<&RelationName>,
    names: Option<&Names>,
) -> Severity {
    let Some(name) = name else {
        // A catalog that could not be read may name it.
        let is_known = names.is_some_and(|names| names.unread().is_empty());
        return if is_known { Severity::Leftover } else { Severity::Unknown };
    };
    match (fork.number, name.kind) {
        (ForkNumber::FSM | ForkNumber::VM, _) => Severity::Map,
        (_, RelationKind::Index) => Severity::Index,
        _ if name.persistence == Persistence::Unlogged => Severity::Unlogged,
        _ if name.oid < FIRST_NORMAL_OID => Severity::Catalog,
        _ => Severity::Data,
    }
}

/// The order in which damage is repaired. Tables come before their indexes: an index that is made
/// again from a damaged table hides which rows the table has lost.
pub(crate) fn repair_order(severity: Severity) -> u8 {
    match severity {
        Severity::Catalog => 0,
        Severity::Data => 1,
        Severity::Unknown => 2,
        Severity::Unlogged => 3,
        Severity::Index => 4,
        Severity::Map => 5,
        Severity::Leftover => 6,
    }
}

/// The first OID that `initdb` does not use (`FirstNormalObjectId`).
pub(crate) const FIRST_NORMAL_OID: u32 = 16384;

#[cfg(test)]
mod tests {
    use pgtoll_format::RelFileLocator;

    use super::*;

    fn name(oid: u32, kind: RelationKind, persistence: Persistence) -> RelationName {
        RelationName {
            oid,
            database: Some("shop".into()),
            schema: Some("public".into()),
            relation: "orders".into(),
            kind,
            persistence,
            of: None,
        }
    }

    fn fork(fork: u8) -> RelationFork {
        RelationFork {
            relation: RelFileLocator { tablespace: 1663, database: 5, rel_number: 16390 },
            number: ForkNumber(fork),
        }
    }

    #[test]
    fn severity_depends_on_fork_kind_and_oid() {
        use Persistence::{Permanent, Unlogged};
        use RelationKind::{Index, Table, Toast};
        let check = |number: u8, oid, kind, persistence, expected| {
            let name = name(oid, kind, persistence);
            assert_eq!(severity(fork(number), Some(&name), None), expected, "{name:?}");
        };
        check(0, 16390, Table, Permanent, Severity::Data);
        check(0, 16390, Toast, Permanent, Severity::Data);
        check(0, 16390, Index, Permanent, Severity::Index);
        check(0, 16390, Table, Unlogged, Severity::Unlogged);
        check(0, 16383, Table, Permanent, Severity::Catalog);
        // An index of a catalog is made again as any other.
        check(0, 2662, Index, Permanent, Severity::Index);
        // Maps come first: a damaged one of a catalog is no more than that.
        check(1, 1259, Table, Permanent, Severity::Map);
        check(2, 16390, Table, Unlogged, Severity::Map);
        check(3, 16390, Table, Unlogged, Severity::Unlogged);
    }

    #[test]
    fn a_file_without_a_name_is_a_leftover_only_where_all_names_are_known() {
        let none = Names::default();
        assert_eq!(severity(fork(0), None, Some(&none)), Severity::Leftover);
        assert_eq!(severity(fork(0), None, None), Severity::Unknown);
    }

    #[test]
    fn tables_are_repaired_before_their_indexes() {
        assert!(repair_order(Severity::Data) < repair_order(Severity::Index));
        assert!(repair_order(Severity::Catalog) < repair_order(Severity::Data));
    }
}
