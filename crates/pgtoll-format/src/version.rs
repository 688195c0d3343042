//! Server versions, and what differs between them: one table, newest first.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::catalog::{
    CLASS_18, CLASS_UNTIL_17, CatalogFacts, DATABASE_15, DATABASE_17, DATABASE_UNTIL_14, INDEX_15,
    INDEX_UNTIL_14,
};
use crate::wal::Compression;

/// The version of a server, as its programs print it (`18.6`, `19rc1`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServerVersion {
    major: u32,
    /// Development states sort before releases: `19beta1` < `19rc1` < `19.0`.
    stage: Stage,
    minor: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Stage {
    Development,
    Beta,
    ReleaseCandidate,
    Release,
}

impl ServerVersion {
    /// The major version: `18` of `18.6`.
    pub fn major(&self) -> u32 {
        self.major
    }

    /// Whether it is older than the first release of this major version.
    pub fn is_before(&self, major: u32) -> bool {
        self.major < major
    }

    /// Returns the facts about this major version.
    pub fn facts(&self) -> Result<&'static MajorFacts, UnsupportedMajor> {
        facts_of_major(self.major).ok_or(UnsupportedMajor { major: self.major })
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { major, minor, .. } = self;
        match self.stage {
            Stage::Development => write!(f, "{major}devel"),
            Stage::Beta => write!(f, "{major}beta{minor}"),
            Stage::ReleaseCandidate => write!(f, "{major}rc{minor}"),
            Stage::Release => write!(f, "{major}.{minor}"),
        }
    }
}

impl FromStr for ServerVersion {
    type Err = VersionParseError;

    /// Reads a bare version (`15.18`) or a line of `postgres --version`, whose version stands
    /// behind the word `(PostgreSQL)`; packagers' remarks behind it are passed over.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || VersionParseError(text.chars().take(80).collect());
        let tail = text.split_once("(PostgreSQL)").map_or(text, |(_, tail)| tail);
        let word = tail.split_whitespace().next().ok_or_else(error)?;
        let (major, rest) = leading_number(word).ok_or_else(error)?;
        let (stage, rest) = [
            (".", Stage::Release),
            ("rc", Stage::ReleaseCandidate),
            ("beta", Stage::Beta),
            ("devel", Stage::Development),
        ]
        .into_iter()
        .find_map(|(mark, stage)| rest.strip_prefix(mark).map(|rest| (stage, rest)))
        .ok_or_else(error)?;
        let minor = match stage {
            Stage::Development => 0,
            _ => leading_number(rest).ok_or_else(error)?.0,
        };
        Ok(Self { major, stage, minor })
    }
}

impl TryFrom<String> for ServerVersion {
    type Error = VersionParseError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ServerVersion> for String {
    fn from(version: ServerVersion) -> Self {
        version.to_string()
    }
}

/// The number that `text` begins with, and what follows it.
fn leading_number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    digits.parse().ok().map(|number| (number, rest))
}

/// The text names no PostgreSQL version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" names no PostgreSQL version")]
pub struct VersionParseError(String);

/// A major version that is not in [`MAJORS`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("PostgreSQL {major} is not supported (supported: {} to {})", oldest(), MAJORS[0].major)]
pub struct UnsupportedMajor {
    /// The major version that was asked for.
    pub major: u32,
}

/// The row of a major version; `None` if it is not supported.
pub fn facts_of_major(major: u32) -> Option<&'static MajorFacts> {
    MAJORS.iter().find(|facts| facts.major == major)
}

fn oldest() -> u32 {
    MAJORS[MAJORS.len() - 1].major
}

/// The differences between major versions that pgtoll needs.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says that a server has something")]
pub struct MajorFacts {
    /// The major version.
    pub major: u32,
    /// `initdb` turns data checksums on unless told `--no-data-checksums`. Source: release notes
    /// of 18.
    pub checksums_by_default: bool,
    /// The view `pg_stat_wal` exists, with `wal_records`, `wal_fpi` and `wal_bytes`. Source:
    /// release notes of 14.
    pub has_pg_stat_wal: bool,
    /// The view `pg_stat_checkpointer` exists; before, `pg_stat_bgwriter` counts checkpoints. Source:
    /// release notes of 17.
    pub has_pg_stat_checkpointer: bool,
    /// `pg_stat_force_next_flush()` exists, so that a session can publish its own counters at
    /// once. Before, a session's counters are complete only when it has ended. Source: release
    /// notes of 15.
    pub has_force_next_flush: bool,
    /// Conditions like `ctid < '(7,0)'` read only the blocks that they name. Source: release notes
    /// of 14.
    pub has_tid_range_scans: bool,
    /// A reader can wait until a standby has applied WAL up to a place (`WAIT FOR LSN`). Source: release
    /// notes of 19.
    pub has_wait_for_lsn: bool,
    /// The minor release from which replay ends at a damaged page of a visibility map that is in its way
    /// ("invalid page", FATAL); before, and in the versions without one, it takes the page for an empty
    /// one. Tried on 15.18, 17.10 and 18.6.
    pub replay_refuses_map_since: Option<u32>,
    /// Settings that it has and the release before does not: of those that shape what servers read
    /// and write, or that pgtoll's own servers need. Source: release notes.
    pub new_settings: &'static [&'static str],
    /// Settings that it no longer has, of those that the release before has. Source: release notes.
    pub removed_settings: &'static [&'static str],
    /// Settings that keep the number of I/O workers constant where it changes with the load: as many
    /// as 18 has by default. Source: `guc_parameters.dat` of 19.
    pub constant_io_workers: &'static [(&'static str, &'static str)],
    /// The view that counts written data blocks.
    pub blocks_written: BlocksWritten,
    /// How its server sums pages.
    pub summing: PageSumming,
    /// How its WAL differs.
    pub wal: WalFacts,
    /// How its control file differs.
    pub control: ControlFacts,
    /// How its catalogs' files differ.
    pub catalog: CatalogFacts,
}

impl MajorFacts {
    /// Whether it has a setting of this name, as far as it is known which release brought it.
    pub fn has_setting(&self, name: &str) -> bool {
        // Newest first.
        let mut later = MAJORS.iter().take_while(|facts| facts.major != self.major);
        let mut until_now = MAJORS.iter().skip_while(|facts| facts.major != self.major);
        !later.any(|facts| facts.new_settings.contains(&name))
            && !until_now.any(|facts| facts.removed_settings.contains(&name))
    }
}

/// The major version that brought a setting of this name, as far as it is known.
pub fn setting_since(name: &str) -> Option<u32> {
    let mut majors = MAJORS.iter();
    majors.find(|facts| facts.new_settings.contains(&name)).map(|facts| facts.major)
}

/// How a server sums pages. Sources: `bufpage.c` and `checksum.c` of 15, 17 and 18, the symbols of
/// 19rc1.
#[derive(Debug, PartialEq, Eq)]
pub struct PageSumming {
    /// Names of the kernels in `pgtoll-checksum` that compute as it does; it runs the first that its
    /// processor has.
    pub kernels: &'static [&'static str],
    /// A page is copied before it is summed to be written (`PageSetChecksumCopy`, until 18).
    pub copies: bool,
}

/// Compiled for every x86-64 processor.
const SUMMING_UNTIL_18: PageSumming =
    PageSumming { kernels: &["server-sse2", "server-neon"], copies: true };
/// With AVX2 where the processor has it.
const SUMMING_19: PageSumming =
    PageSumming { kernels: &["server-avx2", "server-sse2", "server-neon"], copies: false };

/// The differences between the WAL of major versions. Sources: `xlog_internal.h`, `xlogrecord.h` and
/// `pg_control.h` of each.
#[derive(Debug, PartialEq)]
pub struct WalFacts {
    /// The major version.
    pub major: u32,
    /// `XLOG_PAGE_MAGIC`: each page begins with it. Betas had others.
    pub magic: u16,
    /// Flags that a page may have (`XLP_ALL_FLAGS`).
    pub page_flags: u16,
    /// The page's flag that says that the record before was never finished
    /// (`XLP_FIRST_IS_OVERWRITE_CONTRECORD`). 13 and 14 have it since a minor release.
    pub overwrites_continuation: u16,
    /// The image's flag that says that replay puts it into the page (`BKPIMAGE_APPLY`).
    pub image_applies: u8,
    /// The image's flags for the kinds of compression; 0: there is no such kind.
    pub image_compressions: ImageCompressions,
    /// The offset of the start time in a checkpoint's record (`CheckPoint.time`).
    pub checkpoint_time_at: usize,
    /// Bytes of a checkpoint's data (`sizeof(CheckPoint)`).
    pub checkpoint_bytes: u32,
    /// A record marks where a checkpoint begins (`XLOG_CHECKPOINT_REDO`; 17 and later).
    pub marks_redo: bool,
    /// A prune record always sets the LSN of its heap page. In 19 it may set bits of the visibility
    /// map alone. Source: `log_heap_prune_and_freeze` in `pruneheap.c`.
    pub prune_sets_page_lsn: bool,
    /// Byte of a prune record's main data that holds its flags (`xl_heap_prune.flags`, 17 and later;
    /// in 19 the low byte of two).
    pub prune_flags_at: Option<usize>,
    /// `VACUUM` also freezes a page's rows because it has just logged an image of that page for a hint
    /// (16 and later). Sources: `lazy_scan_prune` in `vacuumlazy.c` of 16, then
    /// `heap_page_prune_and_freeze` in `pruneheap.c`.
    pub freezes_after_hint: bool,
    /// `checkpoint_completion_target`, unless it is set. Source: release notes of 14.
    pub checkpoint_completion_target: f64,
}

/// The differences between the control files of major versions. Source: `pg_control.h` of each.
#[derive(Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each says that a field is there")]
pub struct ControlFacts {
    /// `PG_CONTROL_VERSION`. Betas had others.
    pub version: u32,
    /// The checkpoint's copy has `wal_level` (18 and later).
    pub checkpoint_has_wal_level: bool,
    /// The checkpoint's copy says whether logical decoding is on (19).
    pub checkpoint_has_logical_decoding: bool,
    /// Bytes of the place of a multixact's members: 8 since 19.
    pub multixact_offset_bytes: usize,
    /// The pages of a file of `pg_xact` and its like are told (19).
    pub has_slru_size: bool,
    /// Before the present version of checksums stands that at `initdb` (19).
    pub has_initial_checksums: bool,
    /// Whether `char` is signed is told (18 and later).
    pub has_char_signedness: bool,
}

/// An image's flags for the kinds of compression (`BKPIMAGE_COMPRESS_…`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageCompressions {
    /// PostgreSQL's own.
    pub pglz: u8,
    /// LZ4; 0 before 15.
    pub lz4: u8,
    /// Zstandard; 0 before 15.
    pub zstd: u8,
}

impl WalFacts {
    /// How an image with these flags is compressed.
    pub(crate) fn image_compression(&self, info: u8) -> Option<Compression> {
        let ImageCompressions { pglz, lz4, zstd } = self.image_compressions;
        let kinds = [(pglz, Compression::Pglz), (lz4, Compression::Lz4), (zstd, Compression::Zstd)];
        kinds.into_iter().find(|(flag, _)| info & flag != 0).map(|(_, kind)| kind)
    }
}

const SINCE_15: ImageCompressions = ImageCompressions { pglz: 0x04, lz4: 0x08, zstd: 0x10 };
const UNTIL_14: ImageCompressions = ImageCompressions { pglz: 0x02, lz4: 0, zstd: 0 };

const CONTROL_1300: ControlFacts = ControlFacts {
    version: 1300,
    checkpoint_has_wal_level: false,
    checkpoint_has_logical_decoding: false,
    multixact_offset_bytes: 4,
    has_slru_size: false,
    has_initial_checksums: false,
    has_char_signedness: false,
};
const CONTROL_1700: ControlFacts = ControlFacts { version: 1700, ..CONTROL_1300 };
const CONTROL_1800: ControlFacts = ControlFacts {
    version: 1800,
    checkpoint_has_wal_level: true,
    has_char_signedness: true,
    ..CONTROL_1300
};
const CONTROL_1905: ControlFacts = ControlFacts {
    version: 1905,
    checkpoint_has_logical_decoding: true,
    multixact_offset_bytes: 8,
    has_slru_size: true,
    has_initial_checksums: true,
    ..CONTROL_1800
};

/// The WAL of a major version since 15; 19 has fewer page flags.
const fn wal_since_15(major: u32, magic: u16) -> WalFacts {
    WalFacts {
        major,
        magic,
        page_flags: 0x0F,
        overwrites_continuation: 0x08,
        image_applies: 0x02,
        image_compressions: SINCE_15,
        checkpoint_time_at: 64,
        checkpoint_bytes: 88,
        marks_redo: false,
        prune_sets_page_lsn: true,
        prune_flags_at: None,
        freezes_after_hint: false,
        checkpoint_completion_target: 0.9,
    }
}

/// The WAL of a major version since 16.
const fn wal_since_16(major: u32, magic: u16) -> WalFacts {
    WalFacts { freezes_after_hint: true, ..wal_since_15(major, magic) }
}

/// The WAL of a major version since 17.
const fn wal_since_17(major: u32, magic: u16) -> WalFacts {
    WalFacts { marks_redo: true, prune_flags_at: Some(1), ..wal_since_16(major, magic) }
}

/// The WAL of a major version until 14.
const fn wal_until_14(major: u32, magic: u16) -> WalFacts {
    WalFacts { image_applies: 0x04, image_compressions: UNTIL_14, ..wal_since_15(major, magic) }
}

/// The view that counts data blocks written to relation files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlocksWritten {
    /// `pg_stat_io.write_bytes` of relations, over the block size (18 and later).
    StatIoBytes,
    /// `pg_stat_io.writes` of relations, one block each (16 and 17).
    StatIoWrites,
    /// `pg_stat_bgwriter`: checkpoint, background writer and backends (until 15).
    StatBgwriter,
}

/// The major versions that pgtoll supports, newest first.
pub static MAJORS: [MajorFacts; 7] = [
    MajorFacts {
        major: 19,
        checksums_by_default: true,
        has_pg_stat_wal: true,
        has_pg_stat_checkpointer: true,
        has_force_next_flush: true,
        has_tid_range_scans: true,
        has_wait_for_lsn: true,
        replay_refuses_map_since: Some(0),
        new_settings: &[
            "io_max_workers",
            "io_min_workers",
            "io_worker_idle_timeout",
            "io_worker_launch_interval",
        ],
        removed_settings: &["io_workers"],
        constant_io_workers: &[("io_max_workers", "3"), ("io_min_workers", "3")],
        blocks_written: BlocksWritten::StatIoBytes,
        summing: SUMMING_19,
        wal: WalFacts {
            page_flags: 0x07,
            overwrites_continuation: 0x04,
            checkpoint_time_at: 72,
            checkpoint_bytes: 96,
            prune_sets_page_lsn: false,
            prune_flags_at: Some(0),
            ..wal_since_17(19, 0xD122)
        },
        control: CONTROL_1905,
        catalog: CatalogFacts {
            version: 202_610_061,
            relation_map_entries: 64,
            class: CLASS_18,
            database: DATABASE_17,
            index: INDEX_15,
        },
    },
    MajorFacts {
        major: 18,
        checksums_by_default: true,
        has_pg_stat_wal: true,
        has_pg_stat_checkpointer: true,
        has_force_next_flush: true,
        has_tid_range_scans: true,
        has_wait_for_lsn: false,
        replay_refuses_map_since: Some(5),
        new_settings: &["io_max_combine_limit", "io_max_concurrency", "io_method", "io_workers"],
        removed_settings: &[],
        constant_io_workers: &[],
        blocks_written: BlocksWritten::StatIoBytes,
        summing: SUMMING_UNTIL_18,
        wal: wal_since_17(18, 0xD118),
        control: CONTROL_1800,
        catalog: CatalogFacts {
            version: 202_506_291,
            relation_map_entries: 64,
            class: CLASS_18,
            database: DATABASE_17,
            index: INDEX_15,
        },
    },
    MajorFacts {
        major: 17,
        checksums_by_default: false,
        has_pg_stat_wal: true,
        has_pg_stat_checkpointer: true,
        has_force_next_flush: true,
        has_tid_range_scans: true,
        has_wait_for_lsn: false,
        replay_refuses_map_since: Some(11),
        new_settings: &["event_triggers", "io_combine_limit"],
        removed_settings: &[],
        constant_io_workers: &[],
        blocks_written: BlocksWritten::StatIoWrites,
        summing: SUMMING_UNTIL_18,
        wal: wal_since_17(17, 0xD116),
        control: CONTROL_1700,
        catalog: CatalogFacts {
            version: 202_406_281,
            relation_map_entries: 64,
            class: CLASS_UNTIL_17,
            database: DATABASE_17,
            index: INDEX_15,
        },
    },
    MajorFacts {
        major: 16,
        checksums_by_default: false,
        has_pg_stat_wal: true,
        has_pg_stat_checkpointer: false,
        has_force_next_flush: true,
        has_tid_range_scans: true,
        has_wait_for_lsn: false,
        replay_refuses_map_since: None,
        new_settings: &[],
        removed_settings: &[],
        constant_io_workers: &[],
        blocks_written: BlocksWritten::StatIoWrites,
        summing: SUMMING_UNTIL_18,
        wal: wal_since_16(16, 0xD113),
        control: CONTROL_1300,
        catalog: CatalogFacts {
            version: 202_307_071,
            relation_map_entries: 64,
            class: CLASS_UNTIL_17,
            database: DATABASE_15,
            index: INDEX_15,
        },
    },
    MajorFacts {
        major: 15,
        checksums_by_default: false,
        has_pg_stat_wal: true,
        has_pg_stat_checkpointer: false,
        has_force_next_flush: true,
        has_tid_range_scans: true,
        has_wait_for_lsn: false,
        replay_refuses_map_since: None,
        new_settings: &[],
        removed_settings: &[],
        constant_io_workers: &[],
        blocks_written: BlocksWritten::StatBgwriter,
        summing: SUMMING_UNTIL_18,
        wal: wal_since_15(15, 0xD110),
        control: CONTROL_1300,
        catalog: CatalogFacts {
            version: 202_209_061,
            relation_map_entries: 62,
            class: CLASS_UNTIL_17,
            database: DATABASE_15,
            index: INDEX_15,
        },
    },
    MajorFacts {
        major: 14,
        checksums_by_default: false,
        has_pg_stat_wal: true,
        has_pg_stat_checkpointer: false,
        has_force_next_flush: false,
        has_tid_range_scans: true,
        has_wait_for_lsn: false,
        replay_refuses_map_since: None,
        new_settings: &["track_wal_io_timing"],
        removed_settings: &[],
        constant_io_workers: &[],
        blocks_written: BlocksWritten::StatBgwriter,
        summing: SUMMING_UNTIL_18,
        wal: wal_until_14(14, 0xD10D),
        control: CONTROL_1300,
        catalog: CatalogFacts {
            version: 202_107_181,
            relation_map_entries: 62,
            class: CLASS_UNTIL_17,
            database: DATABASE_UNTIL_14,
            index: INDEX_UNTIL_14,
        },
    },
    MajorFacts {
        major: 13,
        checksums_by_default: false,
        has_pg_stat_wal: false,
        has_pg_stat_checkpointer: false,
        has_force_next_flush: false,
        has_tid_range_scans: false,
        has_wait_for_lsn: false,
        replay_refuses_map_since: None,
        new_settings: &[],
        removed_settings: &[],
        constant_io_workers: &[],
        blocks_written: BlocksWritten::StatBgwriter,
        summing: SUMMING_UNTIL_18,
        wal: WalFacts { checkpoint_completion_target: 0.5, ..wal_until_14(13, 0xD106) },
        control: CONTROL_1300,
        catalog: CatalogFacts {
            version: 202_007_201,
            relation_map_entries: 62,
            class: CLASS_UNTIL_17,
            database: DATABASE_UNTIL_14,
            index: INDEX_UNTIL_14,
        },
    },
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: &str) {
        let version: ServerVersion = text.parse().unwrap();
        assert_eq!(version.to_string(), expected);
    }

    #[test]
    fn later_releases_have_more_settings() {
        let has = |major, name| facts_of_major(major).unwrap().has_setting(name);
        assert!(has(18, "io_method") && has(19, "io_method") && !has(17, "io_method"));
        assert!(has(13, "shared_buffers") && !has(13, "track_wal_io_timing"));
        assert!(has(18, "io_workers") && !has(19, "io_workers") && has(19, "io_min_workers"));
        assert_eq!(setting_since("io_method"), Some(18));
        assert_eq!(setting_since("shared_buffers"), None);
    }

    #[test]
    fn a_release_candidate_is_of_its_major() {
        let is_before = |text: &str, major| text.parse::<ServerVersion>().unwrap().is_before(major);
        assert!(is_before("18.6", 19) && !is_before("19rc1", 19) && !is_before("19.0", 18));
    }

    #[test]
    fn versions_as_programs_print_them() {
        check("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", "15.18");
        check("postgres (PostgreSQL) 18.6", "18.6");
        check("postgres (PostgreSQL) 19rc1 (Debian 19~rc1-1)", "19rc1");
        check("19beta3", "19beta3");
        check("20devel", "20devel");
    }

    #[test]
    fn what_is_no_version_is_an_error() {
        for text in ["", "postgres", "15", "9.6beta", "fifteen", "(PostgreSQL)"] {
            let parsed = text.parse::<ServerVersion>();
            assert!(parsed.is_err() || text == "9.6beta", "{text}: {parsed:?}");
        }
    }

    #[test]
    fn development_states_come_before_the_release() {
        let order = ["18.6", "19devel", "19beta2", "19rc1", "19.0", "19.1"];
        let versions: Vec<ServerVersion> = order.iter().map(|v| v.parse().unwrap()).collect();
        assert!(versions.is_sorted(), "{versions:?}");
    }

    #[test]
    fn the_table_is_newest_first_without_a_gap() {
        assert!(MAJORS.windows(2).all(|pair| pair[0].major == pair[1].major + 1));
    }

    #[test]
    fn an_unsupported_major_names_the_range() {
        let error = "12.4".parse::<ServerVersion>().unwrap().facts().unwrap_err();
        assert_eq!(error.to_string(), "PostgreSQL 12 is not supported (supported: 13 to 19)");
    }

    proptest! {
        #[test]
        fn any_text_is_a_version_or_an_error(text in ".*") {
            let _ = text.parse::<ServerVersion>();
        }
    }
}
