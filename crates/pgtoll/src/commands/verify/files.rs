//! Files that are missing or wrong, in words.

use pgtoll_datadir::{DataDirectory, Names};
use pgtoll_record as form;
use pgtoll_verify::{FileFinding, ManifestCompared, Verified, WrongFile};

use crate::arguments::VerifyArguments;

pub(super) fn finding(of: &FileFinding) -> form::FileFinding {
    use form::FileFindingKind as Kind;
    let (kind, words) = match &of.what {
        WrongFile::Missing => (Kind::Missing, "missing".to_owned()),
        WrongFile::Length { bytes, expected } => {
            let words = if bytes < expected { "cut short" } else { "too long" };
            (Kind::Length, format!("{words}: {bytes} bytes, and the manifest lists {expected}"))
        }
        WrongFile::Extra => (Kind::Extra, "the manifest does not list it".to_owned()),
        WrongFile::Checksum => {
            (Kind::Checksum, "not the checksum that the manifest lists".to_owned())
        }
        WrongFile::Manifest(error) => (Kind::Manifest, error.clone()),
        WrongFile::OtherCluster => {
            (Kind::OtherCluster, "the system identifier is another cluster's".to_owned())
        }
        WrongFile::NoDatabase { name } => {
            (Kind::NoDatabase, format!("missing: the directory of the database \"{name}\""))
        }
        WrongFile::NoVersion => (
            Kind::NoVersion,
            "missing or unreadable: no server starts on this directory".to_owned(),
        ),
        WrongFile::NoTablespace => {
            (Kind::NoTablespace, "the tablespace's tar is missing".to_owned())
        }
    };
    form::FileFinding { path: of.path.clone(), kind, words }
}

pub(super) fn comparison(of: ManifestCompared) -> form::ManifestComparison {
    form::ManifestComparison { files: of.files, checksum_bytes: of.checksums }
}

/// What of a base backup was compared, and what was not.
pub(super) fn backup_note(verified: &Verified) -> String {
    let with = match verified.manifest {
        None => {
            return "a base backup: missing files, LSNs and visibility maps are not compared"
                .to_owned();
        }
        Some(ManifestCompared { checksums: None, .. }) => "names and lengths",
        Some(_) => "names, lengths and checksums",
    };
    format!(
        "a base backup: its files were compared with backup_manifest by {with}; LSNs and \
         visibility maps are not compared"
    )
}

pub(super) fn threads_note(verified: &Verified) -> Option<String> {
    let (started, wanted) = verified.fewer_threads?;
    Some(format!(
        "the system allowed {started} of {wanted} threads (a limit of processes): it took longer"
    ))
}

/// Without all catalogs nothing is said of relations' files that are missing.
pub(super) fn check_names(verified: &mut Verified, names: &Names, data: &DataDirectory) {
    let unread = names.unread();
    let is_whole = unread.catalogs + unread.maps == 0;
    if is_whole || !data.is_consistent() || verified.incremental > 0 || verified.is_interrupted {
        return;
    }
    verified.incomplete.push(format!("{unread}: whether relations' files are missing is unknown"));
}

/// Checksums that were asked for, and were not compared.
pub(super) fn require_checksums(verified: &mut Verified, arguments: &VerifyArguments) {
    let is_missing = verified.manifest.is_none_or(|of| of.checksums.is_none());
    if arguments.manifest_checksums && is_missing && !verified.is_interrupted {
        let words = "--manifest-checksums: the files were not compared with a backup_manifest";
        verified.incomplete.push(words.to_owned());
    }
}
