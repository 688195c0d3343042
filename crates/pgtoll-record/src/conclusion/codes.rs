//! Stable codes of findings.

use serde::{Serialize, Serializer};

/// Makes the enum of codes, with each code's text and meaning.
macro_rules! finding_codes {
    ($($(#[doc = $meaning:literal])+ $code:ident = $text:literal,)+) => {
        /// The stable code of a finding. Scripts can match on it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum FindingCode {
            $($(#[doc = $meaning])+ $code,)+
        }

        impl FindingCode {
            /// All codes.
            pub const ALL: &[Self] = &[$(Self::$code,)+];

            /// The code, such as `page.checksum`.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$code => $text,)+ }
            }

            /// Returns its meaning, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$code => concat!($($meaning),+),)+ }
            }
        }
    };
}

impl FindingCode {
    /// Nothing is damaged or lost, and no server refuses anything: a setting or a machine could be better.
    pub const fn is_warning(self) -> bool {
        matches!(
            self,
            Self::DoctorWarning
                | Self::DurabilitySynchronousCommit
                | Self::DurabilityLossWindow
                | Self::IntegrityChecksumsOff
                | Self::FailoverRewind
                | Self::SpaceSlots
                | Self::RecoveryTime
                | Self::WritesAutovacuum
        )
    }
}

finding_codes! {
    /// The page's checksum does not match its contents.
    PageChecksum = "page.checksum",
    /// The page's header is impossible.
    PageHeader = "page.header",
    /// The header says that the page was never used, and the page is not zero.
    PageNotZero = "page.not-zero",
    /// The page may have been torn while it was copied into the backup; the WAL that would show it is missing.
    PageMayBeTorn = "page.may-be-torn",
    /// The file of an incremental backup is damaged.
    IncrementalDamaged = "backup.incremental-damaged",
    /// The page's LSN is beyond the end of WAL.
    PageAheadOfWal = "page.ahead-of-wal",
    /// The page is zero, and the visibility map has bits for it.
    PageZeroButVisible = "page.zero-but-visible",
    /// The visibility map contradicts the pages.
    MapStale = "page.map-stale",
    /// The page claims that all of its rows are visible, and some are not.
    PageVisible = "page.all-visible-wrong",
    /// The first page of an index or a sequence is zero.
    PageZeroFirst = "page.zero-first",
    /// A file ends within a block.
    FileEndsInBlock = "file.ends-in-block",
    /// A file that another one follows is not full.
    FileShort = "file.short",
    /// A file has more blocks than files can have.
    FileLong = "file.long",
    /// A file is missing before others.
    FileMissing = "file.missing",
    /// The visibility map has bits beyond the end of the file.
    FileVisibleBeyondEnd = "file.visible-beyond-end",
    /// The relation has no file.
    RelationNoFile = "file.none",
    /// The index or sequence has an empty file.
    FileEmpty = "file.empty",
    /// The system could not read the block.
    PageUnreadable = "page.unreadable",
    /// The file became shorter while it was read.
    FileChanged = "file.changed",
    /// WAL changed the page later than the page says: a write was lost.
    PageLostWrite = "page.lost-write",
    /// The page is zero, and WAL changed it.
    PageZeroButLogged = "page.zero-but-logged",
    /// The file ends before blocks that WAL changed.
    FileMissingButLogged = "file.missing-but-logged",
    /// The page of an index is zero, and another page leads to it.
    PageZeroButLinked = "page.zero-but-linked",
    /// The file of an index ends before a block that a page leads to.
    FileMissingButLinked = "file.missing-but-linked",
    /// The page of a table is zero, and an index leads to its rows.
    PageZeroButIndexed = "page.zero-but-indexed",
    /// The file of a table ends before rows that an index leads to.
    FileMissingButIndexed = "file.missing-but-indexed",
    /// A running server may have another version of the page in memory.
    PageUnsettled = "page.unsettled",
    /// A file or directory of the backup or data directory is missing or differs from the manifest.
    FilesWrong = "files.wrong",
    /// A page differs between two files.
    PageDiffers = "page.differs",
    /// The server does not accept the page.
    PageRefused = "page.refused",
    /// Damaged pages remain after a repair.
    RepairRemaining = "repair.remaining",
    /// A restored backup's pages, indexes or tables are damaged.
    DrillPages = "drill.pages",
    /// WAL that recovery of the backup needs is missing or damaged.
    DrillWal = "drill.wal",
    /// A server does not start on the restored backup.
    DrillStart = "drill.start",
    /// A backup of a fleet has findings.
    FleetBackup = "fleet.backup",
    /// The machine or its settings speak against measuring on it.
    DoctorWarning = "doctor.warning",
    /// A node of a replica set has damaged pages.
    RollingDamaged = "rolling.damaged",
    /// An acknowledged transaction was lost.
    LabAcknowledgedLost = "lab.acknowledged-lost",
    /// Rows exist that no client committed.
    LabImpossible = "lab.impossible-rows",
    /// Damage reached a standby although pages have checksums.
    LabDamageSpread = "lab.damage-spread",
    /// An application saw what its server should have prevented.
    LabJudged = "lab.judged",
    /// A failover or a node's return went wrong.
    LabFailover = "lab.failover",
    /// A statement failed, or was answered by a server that must not answer it.
    LabMisrouted = "lab.misrouted",
    /// A read returned stale rows although the settings rule that out.
    LabStaleRead = "lab.stale-read",
    /// Sessions are not distributed by the weights.
    LabShares = "lab.shares",
    /// Clients were refused.
    LabRefusedClients = "lab.refused-clients",
    /// A check of foreign tables failed.
    LabCheckFailed = "lab.check-failed",
    /// A server counted checksum failures.
    WatchFailures = "watch.failures",
    /// Statements ended differently than recorded.
    ReplayDiverged = "replay.diverged",
    /// Statements of the log were not replayed.
    ReplayMissing = "replay.missing",
    /// Statements ran in another order than recorded.
    ReplayOrder = "replay.order",
    /// A table's contents differ from what they should be.
    ReplayTables = "replay.tables",
    /// A statement is slower on an arm.
    ReplaySlower = "replay.slower",
    /// The server does not flush WAL or data (`fsync = off`).
    DurabilityFsync = "durability.fsync",
    /// A crash of the operating system can leave torn pages (`full_page_writes = off`).
    DurabilityTornPages = "durability.torn-pages",
    /// Commits are acknowledged before their WAL is flushed (`synchronous_commit = off`).
    DurabilitySynchronousCommit = "durability.synchronous-commit",
    /// The loss of the primary's host loses acknowledged commits without a bound, or stops all commits.
    DurabilityLossWindow = "durability.loss-window",
    /// The cluster has no data checksums.
    IntegrityChecksumsOff = "integrity.checksums-off",
    /// The server has read pages whose checksum is wrong.
    IntegrityChecksumFailures = "integrity.checksum-failures",
    /// `pg_rewind` cannot return an old primary after a failover.
    FailoverRewind = "failover.rewind",
    /// A replication slot can fill the disk, or has lost its WAL.
    SpaceSlots = "space.slots",
    /// Archiving of WAL fails or has stopped.
    BackupArchive = "backup.archive",
    /// Recovery after a crash may take more than ten minutes.
    RecoveryTime = "recovery.time",
    /// Transaction IDs or multixacts run out.
    WritesWraparound = "writes.wraparound",
    /// Autovacuum is off.
    WritesAutovacuum = "writes.autovacuum",
}

impl Serialize for FindingCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_are_distinct_and_have_a_meaning() {
        let texts: BTreeSet<&str> = FindingCode::ALL.iter().map(|code| code.text()).collect();
        assert_eq!(texts.len(), FindingCode::ALL.len());
        for code in FindingCode::ALL {
            assert!(code.meaning().trim().ends_with('.'), "{}", code.text());
        }
    }
}
