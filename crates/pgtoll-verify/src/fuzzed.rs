//! Readers of what strangers may have made, for fuzzing.

use crate::{manifest, resume};

/// Files in the manifest that these bytes are; `None`: they are none.
pub fn backup_manifest(bytes: &[u8]) -> Option<u64> {
    manifest::files_in(bytes)
}

/// Whether these bytes are a resume file.
pub fn resume_file(bytes: &[u8]) -> bool {
    resume::is_resume_file(bytes)
}
