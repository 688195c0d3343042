//! Are the pages sound? The verdict on a page is the server's; what contradicts itself although no
//! server would notice is a suspicion.
//!
//! Entry points: [`verify`] for a data directory that no server writes to, [`verify_running`] beside a
//! server, [`verify_tars`] for backups, [`patrol()`] for all pages again and again; [`compare_with_wal`] and [`compare_with_indexes`] look for lost
//! writes.

mod advice;
mod backup;
mod complete;
mod defect;
mod directory;
mod evidence;
mod found;
#[doc(hidden)]
pub mod fuzzed;
mod layout;
mod listing;
mod manifest;
mod mapped;
mod maps;
mod online;
mod pace;
mod page;
mod page_file;
mod patrol;
mod record;
mod repository;
mod resume;
mod settings;
mod severity;
mod storage;
mod verification;
mod visible;
mod work;
mod zeros;

pub use backup::{
    BackupWal, FindSegments, OpenInput, TarBackup, TarChecks, TarInput, UnreadTar, VerifiedTars,
    WalAtHand, WalPlace, WalStretch, describes_backup, verify_tars,
};
pub use defect::{
    BlockFinding, Defect, DefectCounts, Evidence, LayoutDefect, StaleClaim, Unsettled,
};
pub use directory::{verify, verify_again, verify_on};
pub use evidence::{
    IndexesCompared, NotCompared, WalCompared, compare_with_evidence, compare_with_indexes,
    compare_with_wal,
};
pub use found::{EvidenceCompared, PagesRead, RunningCounts, Verified};
pub use manifest::{FileDefect, ManifestCompared, WrongFile, bytes_in_manifest};
pub use mapped::Window;
pub use online::{
    ImagesInWal, Pauses, RealPauses, RunningServer, RunningSettings, ServerAnswer, WalHorizon,
    WalImagesError, Witness, verify_running,
};
pub use page::page_verdict;
pub use page_file::{PageFileError, page_checksums_record, page_difference_record, page_record};
pub use patrol::{
    AttachServer, PatrolClock, PatrolError, PatrolFile, PatrolSettings, PatrolledDirectory, patrol,
    rate_in_time,
};
pub use repository::{
    BarmanInfoError, PGBACKREST_MANIFEST, PgBackRestFile, PgBackRestManifest,
    PgBackRestManifestError, PgBackRestPlace, WalGSentinel, barman_stop, barman_tablespaces,
    is_pgbackrest_label, pgbackrest_label_time, wal_g_sentinel,
};
pub use resume::{ResumeError, ResumeJournal};
pub use settings::{VerifyProgress, VerifySettings};
pub use storage::{DirectFiles, Files, MappedFiles, ReadAt, Storage};
pub use verification::{
    FinishedVerification, ManifestChecksums, Patience, ReportProgress, Verification,
};
