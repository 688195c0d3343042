//! Relations of which no page can be read: encrypted by an extension, or overwritten as a whole.

use pgtoll_format::Fault;
use pgtoll_record::{Advice, FindingClass, VerifiedRelation};

use crate::defect::Defect;

/// Fewer garbage pages are damage like any other.
pub(super) const PAGES_MIN: u64 = 4;

/// Whether nothing of the page looks like one of PostgreSQL's: not even its header.
pub(super) fn is_garbage(defect: &Defect) -> bool {
    let Defect::Invalid { fault, .. } = defect else { return false };
    matches!(fault, Fault::Header | Fault::Checksum { header_is_plausible: false, .. })
}

/// Joins the findings of such a relation into one.
pub(super) fn join(relation: &mut VerifiedRelation) {
    let failures = relation.failures;
    let Some(first) = relation.findings.first_mut() else { return };
    first.blocks = u32::try_from(failures).unwrap_or(u32::MAX);
    first.class = FindingClass::Failure;
    first.words = format!(
        "all {failures} pages are unreadable: the relation is encrypted (pg_tde), or was overwritten \
         as a whole"
    );
    (first.stored_checksum, first.computed_checksum) = (None, None);
    relation.findings.truncate(1);
    let step = Advice {
        what:
            "find out whether an extension encrypts it: then only a server with its key can read \
               it, and its own tools verify it"
                .to_owned(),
        command: None,
        kind: None,
        database: None,
    };
    relation.remedy = format!("{}; {}", step.what, relation.remedy);
    relation.advice.insert(0, step);
}
