//! The control file, `global/pg_control`: what a cluster is, and how it was left.

use std::fmt;
use std::ops::Range;

use crate::Lsn;
use crate::bytes::{u32_at, u64_at};
use crate::version::{ControlFacts, MAJORS};

/// Bytes of the file; what is behind the CRC is zero (`PG_CONTROL_FILE_SIZE`).
pub const CONTROL_FILE_BYTES: usize = 8192;

/// The content of the control file (`ControlFileData`). Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "they are PostgreSQL's own settings")]
pub struct ControlFile {
    /// The cluster's identifier; its WAL has the same.
    pub system_identifier: u64,
    /// The file's own format.
    pub control_version: u32,
    /// The catalogs' format.
    pub catalog_version: u32,
    /// How the cluster was left.
    pub state: ClusterState,
    /// When the file was written last.
    pub updated: i64,
    /// The start of the last checkpoint's record.
    pub checkpoint: Lsn,
    /// The content of that record.
    pub last_checkpoint: Checkpoint,
    /// The counter that stands in for positions of WAL on pages of unlogged relations.
    pub unlogged_lsn: Lsn,
    /// Recovery has to get here before the data are consistent; 0/0: no recovery was in progress.
    pub minimum_recovery_end: Lsn,
    /// The timeline of that position.
    pub minimum_recovery_timeline: u32,
    /// The start of the backup that is being recovered; 0/0: none.
    pub backup_start: Lsn,
    /// Its end; 0/0: none, or the WAL will tell.
    pub backup_end: Lsn,
    /// The WAL has to say that the backup ended before the data are consistent.
    pub backup_end_required: bool,
    /// The server's `wal_level`.
    pub wal_level: WalLevel,
    /// The server's `wal_log_hints`.
    pub wal_log_hints: bool,
    /// The server's `max_connections`.
    pub max_connections: u32,
    /// The server's `max_worker_processes`.
    pub max_worker_processes: u32,
    /// The server's `max_wal_senders`.
    pub max_wal_senders: u32,
    /// The server's `max_prepared_transactions`.
    pub max_prepared_transactions: u32,
    /// The server's `max_locks_per_transaction`.
    pub max_locks_per_transaction: u32,
    /// The server's `track_commit_timestamp`.
    pub track_commit_timestamp: bool,
    /// The largest alignment of rows, in bytes.
    pub alignment_max: u32,
    /// A constant, 1234567, as the machine that made the cluster stores it.
    pub float_format: f64,
    /// Bytes of a page.
    pub block_bytes: u32,
    /// Pages of one file of a relation (`RELSEG_SIZE`).
    pub file_blocks: u32,
    /// Pages of one file of `pg_xact` and its like.
    pub slru_file_blocks: u32,
    /// Bytes of a WAL page.
    pub wal_block_bytes: u32,
    /// Bytes of a WAL segment.
    pub wal_segment_bytes: u32,
    /// Bytes of a name in a catalog (`NAMEDATALEN`).
    pub name_bytes: u32,
    /// Columns that an index has at most.
    pub index_columns_max: u32,
    /// Bytes of a TOAST table's chunk at most.
    pub toast_chunk_bytes_max: u32,
    /// Bytes of a large object's chunk.
    pub large_object_chunk_bytes: u32,
    /// Whether 8-byte floats and integers are passed by value.
    pub float8_by_value: bool,
    /// 0: pages have no checksums; 1: they have. 19's development knew 2 and 3, on the way to off
    /// and to on: checksums are written and not to be relied on.
    pub checksum_version: u32,
    /// Whether `char` is signed, which some indexes depend on; `None` before 18.
    pub char_is_signed: Option<bool>,
}

/// The content of a checkpoint's record (`CheckPoint`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The start of recovery.
    pub redo: Lsn,
    /// The timeline.
    pub timeline: u32,
    /// The timeline before, where the checkpoint began a new one; else the same.
    pub previous_timeline: u32,
    /// `full_page_writes` at that time.
    pub full_page_writes: bool,
    /// Whether logical decoding was on, which 19 can do without `wal_level`; `None` before 19.
    pub logical_decoding: Option<bool>,
    /// The next transaction: its number and, above 32 bits, how often numbers began again.
    pub next_xid: u64,
    /// The next OID.
    pub next_oid: u32,
    /// The next multixact.
    pub next_multixact: u32,
    /// The place of the next multixact's members.
    pub next_multixact_offset: u64,
    /// The oldest transaction that rows may still be of.
    pub oldest_xid: u32,
    /// The database with that.
    pub oldest_xid_database: u32,
    /// The oldest multixact that rows may still be of.
    pub oldest_multixact: u32,
    /// The database with that.
    pub oldest_multixact_database: u32,
    /// When the checkpoint began.
    pub time: i64,
    /// The oldest transaction that has a commit timestamp; 0: none.
    pub oldest_commit_timestamp_xid: u32,
    /// The newest one; 0: none.
    pub newest_commit_timestamp_xid: u32,
    /// The oldest transaction that was running; 0 at a shutdown.
    pub oldest_active_xid: u32,
}

/// How a cluster was left (`DBState`). Printed in the words of `pg_controldata`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterState {
    /// Before its first start has ended.
    StartingUp,
    /// Stopped in good order.
    ShutDown,
    /// A standby that was stopped in good order.
    ShutDownInRecovery,
    /// In the middle of stopping.
    ShuttingDown,
    /// In the middle of recovery from a crash.
    InCrashRecovery,
    /// A standby, or in the middle of recovery from a backup.
    InArchiveRecovery,
    /// Running, or not stopped in good order.
    InProduction,
    /// None that PostgreSQL has.
    Unknown(u32),
}

impl ClusterState {
    fn from_number(number: u32) -> Self {
        match number {
            0 => Self::StartingUp,
            1 => Self::ShutDown,
            2 => Self::ShutDownInRecovery,
            3 => Self::ShuttingDown,
            4 => Self::InCrashRecovery,
            5 => Self::InArchiveRecovery,
            6 => Self::InProduction,
            other => Self::Unknown(other),
        }
    }
}

impl fmt::Display for ClusterState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StartingUp => "starting up",
            Self::ShutDown => "shut down",
            Self::ShutDownInRecovery => "shut down in recovery",
            Self::ShuttingDown => "shutting down",
            Self::InCrashRecovery => "in crash recovery",
            Self::InArchiveRecovery => "in archive recovery",
            Self::InProduction => "in production",
            Self::Unknown(_) => "unrecognized status code",
        })
    }
}

/// How much a server writes into its WAL (`wal_level`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalLevel {
    /// Enough for recovery from a crash.
    Minimal,
    /// Enough for backups and standbys.
    Replica,
    /// Enough for logical decoding.
    Logical,
    /// None that PostgreSQL has.
    Unknown(u32),
}

impl WalLevel {
    pub(crate) fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Minimal,
            1 => Self::Replica,
            2 => Self::Logical,
            other => Self::Unknown(other),
        }
    }
}

impl fmt::Display for WalLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Minimal => "minimal",
            Self::Replica => "replica",
            Self::Logical => "logical",
            Self::Unknown(_) => "unrecognized wal_level",
        })
    }
}

/// The bytes are no control file that pgtoll can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The file ends too early.
    #[error("it is only {bytes} bytes long")]
    TooShort {
        /// Its length.
        bytes: usize,
    },
    /// A format that is not in the table of versions.
    #[error("its format {found} is unknown")]
    UnknownVersion {
        /// The format's number.
        found: u32,
    },
    /// A machine of the other byte order wrote it.
    #[error("a machine of the other byte order wrote it")]
    OtherByteOrder,
    /// The CRC does not fit: it is damaged, or was read while the server wrote it.
    #[error("its CRC is wrong")]
    Crc,
    /// The CRC fits, and yet a value is impossible.
    #[error("its {what} of {found} is impossible")]
    Impossible {
        /// The value.
        what: &'static str,
        /// Its kind.
        found: u64,
    },
}

impl ControlFile {
    /// Reads the file's bytes.
    pub fn read(bytes: &[u8]) -> Result<Self, ControlError> {
        let too_short = ControlError::TooShort { bytes: bytes.len() };
        let facts = facts(u32_at(bytes, VERSION_AT).ok_or(too_short)?)?;
        let mut fields = Fields::from_bytes(bytes);
        let file = fields.control_file(facts).ok_or(too_short)?;
        let crc = fields.u32().ok_or(too_short)?;
        let covered = bytes.get(..fields.at - size_of::<u32>()).ok_or(too_short)?;
        if crate::crc32c(covered) != crc {
            return Err(ControlError::Crc);
        }
        file.check()?;
        Ok(file)
    }

    /// The bytes that a file gets whose [`checksum_version`](Self::checksum_version) is changed, at
    /// `now` in seconds since 1970: as long as a server writes it, with a CRC that fits. What else
    /// is in it stays, also what it says of checksums at `initdb` (19).
    pub fn with_checksum_version(
        bytes: &[u8],
        version: u32,
        now: i64,
    ) -> Result<Vec<u8>, ControlError> {
        let read = Self::read(bytes)?;
        let mut fields = Fields::from_bytes(bytes);
        // It was read a moment ago.
        let _ = fields.control_file(facts(read.control_version)?);
        let updated_at = fields.updated_at;
        let checksums_at = fields.checksums_at;
        fields.align(size_of::<u32>());
        let crc_at = fields.at;
        let mut changed = bytes[..crc_at].to_vec();
        changed[updated_at..updated_at + 8].copy_from_slice(&now.to_le_bytes());
        changed[checksums_at..checksums_at + 4].copy_from_slice(&version.to_le_bytes());
        changed.extend(crate::crc32c(&changed).to_le_bytes());
        changed.resize(CONTROL_FILE_BYTES, 0);
        Ok(changed)
    }

    /// The bytes of a control file with which a server recovers from the checkpoint of a shutdown whose
    /// record begins at `start`, on this timeline, as after a crash; and that record's data. What else
    /// is in both stays.
    pub fn for_redo(
        bytes: &[u8],
        start: Lsn,
        timeline: u32,
    ) -> Result<(Vec<u8>, Vec<u8>), ControlError> {
        let read = Self::read(bytes)?;
        let mut fields = Fields::from_bytes(bytes);
        // It was read a moment ago.
        let _ = fields.control_file(facts(read.control_version)?);
        let checkpoint = fields.checkpoint_at.clone();
        let recovery = fields.recovery_at.clone();
        fields.align(size_of::<u32>());
        let mut changed = bytes[..fields.at].to_vec();
        let mut put =
            |at: usize, value: &[u8]| changed[at..at + value.len()].copy_from_slice(value);
        put(STATE_AT, &IN_PRODUCTION.to_le_bytes());
        // Before the copy of the checkpoint stands where its record begins.
        put(checkpoint.start - size_of::<u64>(), &start.0.to_le_bytes());
        put(checkpoint.start, &start.0.to_le_bytes());
        put(checkpoint.start + 8, &timeline.to_le_bytes());
        put(checkpoint.start + 12, &timeline.to_le_bytes());
        put(recovery.start, &vec![0; recovery.len()]);
        let data = changed[checkpoint].to_vec();
        changed.extend(crate::crc32c(&changed).to_le_bytes());
        changed.resize(CONTROL_FILE_BYTES, 0);
        Ok((changed, data))
    }

    /// Whoever forges a file can give it a CRC that fits; what others count on is checked.
    fn check(&self) -> Result<(), ControlError> {
        let powers = [
            ("block size", self.block_bytes, 1 << 10..=1 << 15),
            ("WAL block size", self.wal_block_bytes, 1 << 10..=1 << 16),
            ("WAL segment size", self.wal_segment_bytes, 1 << 20..=1 << 30),
            ("maximum alignment", self.alignment_max, 1..=1 << 7),
        ];
        for (label, found, range) in powers {
            if !found.is_power_of_two() || !range.contains(&found) {
                return Err(ControlError::Impossible { what: label, found: found.into() });
            }
        }
        let counts =
            [("file size in blocks", self.file_blocks), ("SLRU size", self.slru_file_blocks)];
        for (label, found) in counts {
            if found == 0 || found > 1 << 30 {
                return Err(ControlError::Impossible { what: label, found: found.into() });
            }
        }
        Ok(())
    }
}

/// The offset of the format's number, in every version.
const VERSION_AT: usize = 8;
/// The offset of the state, in every version, and the value of a running server.
const STATE_AT: usize = 16;
const IN_PRODUCTION: u32 = 6;

fn facts(version: u32) -> Result<&'static ControlFacts, ControlError> {
    let known = |wanted: u32| {
        MAJORS.iter().map(|major| &major.control).find(|facts| facts.version == wanted)
    };
    match (known(version), known(version.swap_bytes())) {
        (Some(facts), _) => Ok(facts),
        (None, Some(_)) => Err(ControlError::OtherByteOrder),
        (None, None) => Err(ControlError::UnknownVersion { found: version }),
    }
}

/// Reads one field after the other where a C compiler puts them: each is aligned to its size.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The offset of the time of the last change.
    updated_at: usize,
    /// The offset of the present version of checksums.
    checksums_at: usize,
    /// The range of the copy of the last checkpoint.
    checkpoint_at: Range<usize>,
    /// The range of the minimum recovery point.
    recovery_at: Range<usize>,
}

impl<'a> Fields<'a> {
    fn from_bytes(bytes: &'a [u8]) -> Self {
        let checkpoint_at = 0..0;
        let recovery_at = 0..0;
        Self { bytes, at: 0, updated_at: 0, checksums_at: 0, checkpoint_at, recovery_at }
    }

    fn control_file(&mut self, facts: &ControlFacts) -> Option<ControlFile> {
        Some(ControlFile {
            system_identifier: self.u64()?,
            control_version: self.u32()?,
            catalog_version: self.u32()?,
            state: ClusterState::from_number(self.u32()?),
            updated: {
                let updated = self.i64()?;
                self.updated_at = self.at - size_of::<i64>();
                updated
            },
            checkpoint: self.lsn()?,
            last_checkpoint: {
                let from = self.at;
                let checkpoint = self.checkpoint(facts)?;
                self.checkpoint_at = from..self.at;
                checkpoint
            },
            unlogged_lsn: {
                let lsn = self.lsn()?;
                self.recovery_at.start = self.at;
                lsn
            },
            minimum_recovery_end: self.lsn()?,
            minimum_recovery_timeline: self.u32()?,
            backup_start: self.lsn()?,
            backup_end: self.lsn()?,
            backup_end_required: {
                let required = self.bool()?;
                self.recovery_at.end = self.at;
                required
            },
            wal_level: WalLevel::from_number(self.u32()?),
            wal_log_hints: self.bool()?,
            max_connections: self.u32()?,
            max_worker_processes: self.u32()?,
            max_wal_senders: self.u32()?,
            max_prepared_transactions: self.u32()?,
            max_locks_per_transaction: self.u32()?,
            track_commit_timestamp: self.bool()?,
            alignment_max: self.u32()?,
            float_format: f64::from_bits(self.u64()?),
            block_bytes: self.u32()?,
            file_blocks: self.u32()?,
            slru_file_blocks: if facts.has_slru_size { self.u32()? } else { SLRU_FILE_BLOCKS },
            wal_block_bytes: self.u32()?,
            wal_segment_bytes: self.u32()?,
            name_bytes: self.u32()?,
            index_columns_max: self.u32()?,
            toast_chunk_bytes_max: self.u32()?,
            large_object_chunk_bytes: self.u32()?,
            float8_by_value: self.bool()?,
            checksum_version: {
                if facts.has_initial_checksums {
                    self.u32()?;
                }
                let version = self.u32()?;
                self.checksums_at = self.at - size_of::<u32>();
                version
            },
            char_is_signed: {
                let signed = if facts.has_char_signedness { Some(self.bool()?) } else { None };
                self.at += NONCE_BYTES;
                signed
            },
        })
    }

    fn checkpoint(&mut self, facts: &ControlFacts) -> Option<Checkpoint> {
        let redo = self.lsn()?;
        let timeline = self.u32()?;
        let previous_timeline = self.u32()?;
        let full_page_writes = self.bool()?;
        if facts.checkpoint_has_wal_level {
            self.u32()?;
        }
        let logical_decoding =
            if facts.checkpoint_has_logical_decoding { Some(self.bool()?) } else { None };
        let checkpoint = Checkpoint {
            redo,
            timeline,
            previous_timeline,
            full_page_writes,
            logical_decoding,
            next_xid: self.u64()?,
            next_oid: self.u32()?,
            next_multixact: self.u32()?,
            next_multixact_offset: match facts.multixact_offset_bytes {
                8 => self.u64()?,
                _ => self.u32()?.into(),
            },
            oldest_xid: self.u32()?,
            oldest_xid_database: self.u32()?,
            oldest_multixact: self.u32()?,
            oldest_multixact_database: self.u32()?,
            time: self.i64()?,
            oldest_commit_timestamp_xid: self.u32()?,
            newest_commit_timestamp_xid: self.u32()?,
            oldest_active_xid: self.u32()?,
        };
        self.align(size_of::<u64>());
        Some(checkpoint)
    }

    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn bool(&mut self) -> Option<bool> {
        let value = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(value != 0)
    }

    fn u32(&mut self) -> Option<u32> {
        self.align(size_of::<u32>());
        let value = u32_at(self.bytes, self.at)?;
        self.at += size_of::<u32>();
        Some(value)
    }

    fn u64(&mut self) -> Option<u64> {
        self.align(size_of::<u64>());
        let value = u64_at(self.bytes, self.at)?;
        self.at += size_of::<u64>();
        Some(value)
    }

    fn i64(&mut self) -> Option<i64> {
        self.u64().map(u64::cast_signed)
    }

    fn lsn(&mut self) -> Option<Lsn> {
        self.u64().map(Lsn)
    }
}

/// `SLRU_PAGES_PER_SEGMENT`, which the control file does not name before 19.
const SLRU_FILE_BLOCKS: u32 = 32;
/// `MOCK_AUTH_NONCE_LEN`: random bytes for refused logins.
const NONCE_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The CRC's places were measured on files of real servers.
    const FORMATS: [(u32, usize); 4] = [(1300, 288), (1700, 288), (1800, 292), (1905, 308)];

    /// A file of this format with every field zero but those that must not be.
    fn file(version: u32, crc_at: usize) -> Vec<u8> {
        let mut bytes = vec![0; CONTROL_FILE_BYTES];
        let shift = if version == 1905 { 8 } else { 0 };
        let put = |bytes: &mut Vec<u8>, at: usize, value: u32| {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        };
        put(&mut bytes, VERSION_AT, version);
        put(&mut bytes, 16, 6);
        put(&mut bytes, 204 + shift, 8);
        put(&mut bytes, 216 + shift, 8192);
        put(&mut bytes, 220 + shift, 131_072);
        let behind = if version == 1905 {
            put(&mut bytes, 232, 64);
            236
        } else {
            224
        };
        put(&mut bytes, behind, 8192);
        put(&mut bytes, behind + 4, 16 << 20);
        put(&mut bytes, behind + 8, 64);
        put(&mut bytes, if version == 1905 { 268 } else { 252 }, 1);
        seal(&mut bytes, crc_at);
        bytes
    }

    fn seal(bytes: &mut [u8], crc_at: usize) {
        let crc = ::crc32c::crc32c(&bytes[..crc_at]);
        bytes[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
    }

    #[test]
    fn each_format_is_read() {
        for (version, crc_at) in FORMATS {
            let read = ControlFile::read(&file(version, crc_at)).unwrap();
            assert_eq!(read.state, ClusterState::InProduction);
            assert_eq!((read.block_bytes, read.file_blocks), (8192, 131_072));
            assert_eq!((read.wal_block_bytes, read.wal_segment_bytes), (8192, 16 << 20));
            assert_eq!((read.name_bytes, read.checksum_version), (64, 1));
            assert_eq!(read.slru_file_blocks, if version == 1905 { 64 } else { 32 });
            assert_eq!(read.char_is_signed, (version > 1700).then_some(false));
        }
    }

    #[test]
    fn checksums_are_switched_and_nothing_else() {
        for (version, crc_at) in FORMATS {
            let on = file(version, crc_at);
            let off = ControlFile::with_checksum_version(&on[..crc_at + 4], 0, 1_700_000_000);
            let off = off.unwrap();
            assert_eq!(off.len(), CONTROL_FILE_BYTES);
            let read = ControlFile::read(&off).unwrap();
            assert_eq!((read.checksum_version, read.updated), (0, 1_700_000_000));
            let differing: Vec<usize> = (0..off.len()).filter(|&at| on[at] != off[at]).collect();
            let field = if version == 1905 { 268 } else { 252 };
            let known = |at: usize| (24..32).contains(&at) || at == field || at >= crc_at;
            assert!(differing.iter().all(|&at| known(at)), "{version}: {differing:?}");
            let back = ControlFile::with_checksum_version(&off, 1, 0).unwrap();
            assert_eq!(back, on, "{version}");
        }
    }

    #[test]
    fn a_server_recovers_from_another_checkpoint() {
        for (version, crc_at) in FORMATS {
            let (bytes, data) =
                ControlFile::for_redo(&file(version, crc_at), Lsn(0x300_0028), 7).unwrap();
            let read = ControlFile::read(&bytes).unwrap();
            assert_eq!(
                (read.state, read.checkpoint),
                (ClusterState::InProduction, Lsn(0x300_0028))
            );
            let last = read.last_checkpoint;
            assert_eq!((last.redo, last.timeline, last.previous_timeline), (Lsn(0x300_0028), 7, 7));
            assert_eq!(read.minimum_recovery_end, Lsn(0));
            let facts = MAJORS.iter().find(|major| major.control.version == version).unwrap();
            assert_eq!(data.len(), facts.wal.checkpoint_bytes as usize, "{version}");
        }
    }

    #[test]
    fn what_is_no_control_file_says_why() {
        let good = file(1800, 292);
        let mut other_order = good.clone();
        other_order[8..12].reverse();
        assert_eq!(ControlFile::read(&other_order), Err(ControlError::OtherByteOrder));
        let mut unknown = good.clone();
        unknown[8] ^= 1;
        assert_eq!(ControlFile::read(&unknown), Err(ControlError::UnknownVersion { found: 1801 }));
        let short = ControlFile::read(&good[..294]);
        assert_eq!(short, Err(ControlError::TooShort { bytes: 294 }));
        let mut forged = good.clone();
        forged[216..220].copy_from_slice(&0x4000_0000_u32.to_le_bytes());
        assert_eq!(ControlFile::read(&forged), Err(ControlError::Crc));
        seal(&mut forged, 292);
        let impossible = ControlError::Impossible { what: "block size", found: 1 << 30 };
        assert_eq!(ControlFile::read(&forged), Err(impossible));
    }

    proptest! {
        #[test]
        fn every_changed_bit_is_noticed(
            format in prop::sample::select(FORMATS.to_vec()),
            place in any::<prop::sample::Index>(),
            bit in 0..8_u32,
        ) {
            let mut bytes = file(format.0, format.1);
            bytes[place.index(format.1 + 4)] ^= 1_u8 << bit;
            prop_assert!(ControlFile::read(&bytes).is_err());
        }

        #[test]
        fn any_bytes_are_a_control_file_or_an_error(
            format in prop::sample::select(FORMATS.to_vec()),
            mut bytes in prop::collection::vec(any::<u8>(), 0..400),
        ) {
            let _ = ControlFile::read(&bytes);
            if bytes.len() >= format.1 + 4 {
                bytes[VERSION_AT..VERSION_AT + 4].copy_from_slice(&format.0.to_le_bytes());
                seal(&mut bytes, format.1);
                let _ = ControlFile::read(&bytes);
            }
        }
    }
}
