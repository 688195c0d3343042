//! What was damaged on purpose, or put right, as text.

use pgtoll_record::{CorruptOutcome, CorruptRecord};

use crate::printable::printable;

/// What was damaged, and how to undo it.
pub(crate) fn corruption_text(of: &CorruptRecord) -> String {
    let file = printable(&of.file);
    match of.outcome {
        CorruptOutcome::Undone => format!("{file} is as it was.\n"),
        CorruptOutcome::Damaged => {
            let kind = of.kind.as_deref().map(printable).unwrap_or_default();
            let block = of.block.unwrap_or_default();
            let (data, undo) = (printable(&of.data), printable(&of.undo_file));
            format!(
                "{file} block {block}: {kind}\n\
                 as it was again: pgtoll corrupt {data} --undo {undo}\n"
            )
        }
    }
}
