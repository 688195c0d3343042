//! A part of a backup, and what the other parts say of it: by what its pages are judged, and where the
//! backup began.

use std::io;
use std::path::PathBuf;

use super::TarBackup;
use super::catalogs::needed;
use super::member_path::{MemberKind, MemberPath};
use super::run::{SourceContents, small};
use super::source::TarFile;
use pgtoll_wal::TarStream;

/// The files of a backup that are about all of it.
#[derive(Clone, Debug, Default)]
pub(super) struct BackupFacts {
    /// The control file, and where it is.
    pub(super) control: Option<(PathBuf, Vec<u8>)>,
    pub(super) label: Option<Vec<u8>>,
}

impl BackupFacts {
    /// Those in what was read.
    pub(super) fn in_contents(read: &[SourceContents]) -> Self {
        Self {
            control: read.iter().find_map(|content| content.control.clone()),
            label: read.iter().find_map(|content| content.label.clone()),
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.control.is_some() && self.label.is_some()
    }

    /// These, or those.
    pub(super) fn or(self, other: &Self) -> Self {
        Self {
            control: self.control.or_else(|| other.control.clone()),
            label: self.label.or_else(|| other.label.clone()),
        }
    }

    /// Reads tars, one after the other, until both are found.
    fn read(&mut self, tars: &[TarFile]) -> io::Result<()> {
        for tar in tars {
            let mut stream = TarStream::new(tar.unpacked()?);
            while !self.is_complete() {
                let Some(member) = stream.next_member()? else { break };
                match MemberPath::new(&member.path, tar.tablespace).kind {
                    MemberKind::Control if self.control.is_none() => {
                        self.control = Some((tar.path.join(&member.path), small(&mut stream)?));
                    }
                    MemberKind::Label if self.label.is_none() => {
                        self.label = Some(small(&mut stream)?);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

impl TarBackup {
    /// Returns the facts from the other tars; the error says why the control file is missing.
    pub(super) fn facts_beside(&self) -> (BackupFacts, Option<String>) {
        let mut facts = BackupFacts::default();
        let read = facts.read(&self.beside);
        let reason = match (&facts.control, read) {
            (Some(_), _) => None,
            (None, Ok(())) => Some(NO_CONTROL_BESIDE.to_owned()),
            (None, Err(error)) => Some(format!("{NO_CONTROL_BESIDE}: {error}")),
        };
        (facts, reason)
    }
}

/// Whether a file, by its path in the data directory, says of a backup how its pages are judged, where
/// it began, or what its relations are called.
pub fn describes_backup(path: &str) -> bool {
    let kind = MemberPath::new(path, None).kind;
    matches!(kind, MemberKind::Control | MemberKind::Label) || needed(path, None).is_some()
}

const NO_CONTROL_BESIDE: &str = "pages of this part look wrong, and no control file beside it says \
    whether they are of the usual size and have checksums";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_about_the_whole_backup_are_known() {
        for path in [
            "global/pg_control",
            "backup_label",
            "base/5/1259",
            "base/5/pg_filenode.map",
            "global/1262",
            "pg_xact/0000",
        ] {
            assert!(describes_backup(path), "{path}");
        }
        for path in ["base/5/16384", "base/5/1259_vm", "base/5/PG_VERSION", "PG_VERSION"] {
            assert!(!describes_backup(path), "{path}");
        }
    }
}
