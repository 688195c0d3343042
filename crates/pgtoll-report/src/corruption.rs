//! The document of damage on purpose.

use pgtoll_record::{CorruptOutcome, CorruptRecord};

use crate::document::{Block, Document, Section};
use crate::records::{ReportedRecord, TableOptions};

impl ReportedRecord for CorruptRecord {
    /// The damage, and how to undo it.
    fn document(&self, _: &TableOptions) -> Document {
        let mut document = Document {
            command: "pgtoll corrupt",
            question: "Which page was damaged?",
            ..Document::default()
        };
        match self.outcome {
            CorruptOutcome::Undone => document.answer.push(format!("{} is as it was.", self.file)),
            CorruptOutcome::Damaged => {
                let file = &self.file;
                let kind = self.kind.as_deref().unwrap_or_default();
                document.answer.push(match self.block {
                    Some(block) => format!("{file} is damaged in block {block}: {kind}."),
                    None => format!("{file} is damaged: {kind}."),
                });
                let undo = format!("pgtoll corrupt {} --undo {}", self.data, self.undo_file);
                let undo = Block::Code(vec![undo]);
                document.push(Section::detail("To undo the damage", vec![undo]));
            }
        }
        document
    }
}
