//! Coverage: the checks that were made, in words that are the same in each form of a record.

use pgtoll_record::VerifiedSource;

use crate::found::Verified;

/// The subject.
pub(super) fn covered(verified: &Verified, source: &VerifiedSource) -> Vec<String> {
    let is_directory = source.form.is_none();
    let has_maps = is_directory && (source.checksums || !source.backup);
    let parts = [
        (true, if source.checksums { "checksums" } else { "page headers" }),
        (has_maps, "visibility maps"),
        (has_maps && !verified.skips_rows, "rows"),
        (verified.manifest.is_some(), "names and lengths of files"),
        (
            verified.manifest.is_some_and(|manifest| manifest.checksums.is_some()),
            "checksums of files",
        ),
        (verified.compares_stored_files, "checksums of stored files"),
    ];
    let parts = parts.into_iter().filter(|(is_covered, _)| *is_covered);
    parts
        .map(|(_, words)| words.to_owned())
        .chain(verified.evidence.covered.iter().cloned())
        .collect()
}

/// Returns the checks that were left out, with their reasons.
pub(super) fn left_out(verified: &Verified, source: &VerifiedSource) -> Vec<String> {
    let has_rows = source.form.is_none() && verified.skips_rows;
    let rows = has_rows.then(|| "rows: not asked for".to_owned());
    rows.into_iter().chain(verified.evidence.left_out.iter().cloned()).collect()
}
