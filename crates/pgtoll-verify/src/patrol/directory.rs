//! The data directory that a patrol reads, whether a server runs on it or not.

use std::collections::HashSet;
use std::io;
use std::mem;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use pgtoll_datadir::{AttachError, Attached, DataDirectory, Names, Postmaster, control_file};
use pgtoll_format::{ForkNumber, Lsn, RelFileLocator, RelationFork};
use pgtoll_record::{PatrolAmount, PatrolBlock, PatrolFinding, PatrolSource};
use pgtoll_wal::recorded_name;

use super::error::PatrolError;
use super::patrolled::{PatrolListing, PatrolPiece, Patrolled, PieceResult};
use crate::defect::{BlockFinding, Defect, Unsettled};
use crate::directory::DirectoryVerification;
use crate::found::{PagesRead, Verified};
use crate::listing::{Listing, Position};
use crate::maps::MapRule;
use crate::online::{
    DiskBlocks, ImagesInWal, RealPauses, RunningServer, RunningSettings, ServerAnswer, WalHorizon,
    WalImagesError, Witness, as_running, is_still_unlisted, read_running,
};
use crate::record::page_finding;
use crate::settings::VerifyProgress;
use crate::severity::severity;
use crate::storage::Files;

/// Finds the server that runs on a data directory.
pub type AttachServer<'a> = &'a dyn Fn(&DataDirectory) -> Result<Option<Attached>, AttachError>;

/// A data directory with the list of its files.
pub struct PatrolledDirectory<'a> {
    settings: RunningSettings,
    attach: AttachServer<'a>,
    data: DataDirectory,
    files: Listing,
    unlisted: Vec<(PathBuf, io::Error)>,
    /// The content of `postmaster.pid` when the files were listed.
    postmaster: Option<Postmaster>,
    is_running: bool,
    /// Names of relations, once something was wrong with one.
    names: Option<Names>,
    notes: Vec<String>,
}

impl<'a> PatrolledDirectory<'a> {
    /// The data directory; a server that runs on it is attached to, to see whether it can be asked.
    pub fn open(
        data: DataDirectory,
        mut settings: RunningSettings,
        attach: AttachServer<'a>,
    ) -> Result<Self, PatrolError> {
        // On a busy machine each wait lasts somewhat too long. A piece as a whole keeps to the rate: what is
        // left of its time is waited for behind it.
        settings.verify.rate = settings.verify.rate.map(|rate| rate.saturating_add(rate / 4));
        if data.backup_start.is_some() {
            return Err(PatrolError::Backup { path: data.path });
        }
        let postmaster = Postmaster::read(&data.path);
        let attached = attach(&data)?;
        let notes = attached.as_ref().map_or(Vec::new(), |server| server.notes().to_vec());
        Ok(Self {
            settings,
            attach,
            data,
            files: Listing::default(),
            unlisted: Vec::new(),
            postmaster,
            is_running: attached.is_some(),
            names: None,
            notes,
        })
    }

    /// Reads the control file and the list of files again, and looks whether a server runs.
    fn refresh(&mut self) -> Result<(), PatrolError> {
        let path = self.data.path.clone();
        let data = DataDirectory::open(&path)?;
        let system_identifier = self.data.control.system_identifier;
        let found = data.control.system_identifier;
        if system_identifier != found {
            return Err(PatrolError::OtherCluster { path, of: system_identifier, found });
        }
        self.data = data;
        let postmaster = Postmaster::read(&path);
        if postmaster != self.postmaster {
            // A server that cannot be asked runs all the same.
            self.is_running = match (self.attach)(&self.data) {
                Ok(attached) => attached.is_some(),
                Err(_) => postmaster.is_some(),
            };
            self.postmaster = postmaster;
        }
        let (files, beside) = Listing::new(&path, &self.data.control, &[], &|_| true);
        (self.files, self.unlisted, self.names) = (files, beside.unlisted, None);
        self.unlisted.retain(is_still_unlisted);
        Ok(())
    }

    /// Whether no server was started, stopped or started again since the files were listed.
    fn is_as_listed(&self) -> bool {
        let control = control_file(&self.data.path).ok();
        let is_same_control = || {
            control.is_some_and(|now| {
                let then = &self.data.control;
                (now.state, now.checkpoint) == (then.state, then.checkpoint)
            })
        };
        Postmaster::read(&self.data.path) == self.postmaster
            && (self.is_running || is_same_control())
    }

    fn verify(&mut self, piece: &PatrolPiece) -> Verified {
        // What files say of each other is left to whole verifications, of a stopped server too.
        let data = as_running(&self.data);
        let part = self.position(piece.from)
            ..piece.to.map_or_else(|| self.files.end(), |to| self.position(to));
        let files = mem::take(&mut self.files);
        let mut scan = DirectoryVerification::of_part(&data, &self.settings.verify, files, part);
        let mut verified = Verified::default();
        let mut progress = |_: VerifyProgress| ControlFlow::Continue(());
        if self.is_running {
            scan.maps = MapRule::of_running(&data);
            let threads = self.settings.verify.jobs.get();
            let mut server =
                LazyServer { attach: self.attach, data: &self.data, threads, found: None };
            verified = read_running(
                &scan,
                &DiskBlocks::new(&Files, &data, &scan.files),
                verified,
                &self.settings,
                &mut server,
                &RealPauses::default(),
                &mut progress,
            );
        } else {
            scan.maps = MapRule::from_data(&self.data);
            let blocks = DiskBlocks::new(&Files, &data, &scan.files);
            let mut take = |verified: &mut Verified, finding: BlockFinding| {
                // A server may have run for a moment, and removed it.
                let is_gone = match finding.defect {
                    Defect::Changed => true,
                    Defect::Unreadable { .. } => blocks.is_gone(finding.fork, finding.block),
                    _ => false,
                };
                if !is_gone {
                    verified.add(finding);
                }
            };
            scan.read(&Files, &mut verified, None, &mut take, &mut progress);
        }
        self.files = scan.files;
        verified
    }

    fn finding(&self, finding: &BlockFinding, now: Timestamp) -> PatrolFinding {
        let names = self.names.as_ref();
        let name = names.and_then(|names| names.relation(finding.fork.relation));
        // A running server has files of which no catalog says anything yet.
        let complete = names.filter(|_| !self.is_running);
        PatrolFinding {
            at: self.block_of_fork(finding.fork, finding.block),
            found: now,
            seen: now,
            path: self.path(finding.fork),
            fork: finding.fork.number.to_string(),
            name: name.map(recorded_name),
            severity: severity(finding.fork, name, complete),
            page: page_finding(finding, names),
        }
    }

    /// The fork's first file, below the data directory.
    fn path(&self, fork: RelationFork) -> String {
        let first = self.files.of_fork(fork).next().map(|first| self.files.path(first));
        let below = first.as_deref().and_then(|first| first.strip_prefix(&self.data.path).ok());
        let RelFileLocator { tablespace, database, rel_number } = fork.relation;
        below.map_or_else(
            || format!("{tablespace}/{database}/{rel_number}"),
            |below| below.display().to_string(),
        )
    }

    fn load_names(&mut self) {
        if self.names.is_none() {
            let attached = if self.is_running { (self.attach)(&self.data) } else { Ok(None) };
            self.names = match attached {
                Ok(Some(mut server)) => server.names(&self.data).ok(),
                _ => Names::of_data_directory(&self.data.path).ok(),
            };
        }
    }

    fn block_of_fork(&self, fork: RelationFork, block: u32) -> PatrolBlock {
        let per_file = self.data.control.file_blocks.max(1);
        let block_of_file = u64::from(block % per_file);
        PatrolBlock { segment: block / per_file, block: block_of_file, ..first_block(fork) }
    }

    /// Returns the position of a block in the list, or of the next one.
    fn position(&self, block: PatrolBlock) -> Position {
        let fork = fork_of(&block);
        let file = self.files.first_from(fork, block.segment);
        if file == self.files.len() {
            return self.files.end();
        }
        let listed = self.files.file(file);
        if (listed.fork, listed.segment) != (fork, block.segment) {
            return Position { file, at: 0 };
        }
        let at = block.block.saturating_mul(u64::from(self.data.control.block_bytes));
        if at < listed.bytes { Position { file, at } } else { Position { file: file + 1, at: 0 } }
    }

    /// The block at a place of the list; `None`: it is the end.
    fn block_at(&self, Position { file, at }: Position) -> Option<PatrolBlock> {
        if file >= self.files.len() {
            return None;
        }
        let listed = self.files.file(file);
        let block = at / u64::from(self.data.control.block_bytes.max(1));
        Some(PatrolBlock { segment: listed.segment, block, ..first_block(listed.fork) })
    }
}

impl std::fmt::Debug for PatrolledDirectory<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PatrolledDirectory").field("data", &self.data).finish_non_exhaustive()
    }
}

impl Patrolled for PatrolledDirectory<'_> {
    fn list(&mut self) -> Result<PatrolListing, PatrolError> {
        self.refresh()?;
        let path = &self.data.path;
        if self.files.len() == 0 {
            return Err(PatrolError::NoRelation { path: path.clone() });
        }
        let shown = |found: &Path| found.strip_prefix(path).unwrap_or(found).display().to_string();
        let unlisted = self.unlisted.iter();
        Ok(PatrolListing {
            source: PatrolSource {
                path: path.display().to_string(),
                major: self.data.major,
                system_identifier: self.data.control.system_identifier,
                block_bytes: self.data.control.block_bytes,
                file_blocks: self.data.control.file_blocks,
                checksums: self.data.has_checksums(),
                running: self.is_running,
                files: self.files.len() as u64,
                bytes: self.files.bytes(),
            },
            unlisted: unlisted.map(|(path, error)| format!("{}: {error}", shown(path))).collect(),
            notes: self.notes.clone(),
        })
    }

    fn piece(&self, from: PatrolBlock, bytes_max: u64) -> Option<PatrolPiece> {
        let block_bytes = u64::from(self.data.control.block_bytes.max(1));
        let bytes_max = (bytes_max / block_bytes).max(1) * block_bytes;
        let mut at = self.position(from);
        let last = at.file.saturating_add(PIECE_FILES);
        if at.file >= self.files.len() {
            return None;
        }
        let mut room = bytes_max;
        while let Some(bytes) = self.files.bytes_of(at.file).filter(|_| at.file < last) {
            let left = bytes.saturating_sub(at.at);
            if left > room {
                at.at += room;
                break;
            }
            room -= left;
            at = Position { file: at.file + 1, at: 0 };
        }
        Some(PatrolPiece { from, to: self.block_at(at) })
    }

    fn read(&mut self, piece: &PatrolPiece, now: Timestamp) -> Result<PieceResult, PatrolError> {
        let mut verified = Verified::default();
        for _ in 0..TRIES {
            if !self.is_as_listed() {
                self.refresh()?;
            }
            verified = self.verify(piece);
            // A server that was started meanwhile may have written any page.
            if self.is_as_listed() {
                break;
            }
        }
        if !verified.counts.is_empty() {
            self.load_names();
            verified.settle_maps(self.names.as_ref());
        }
        let findings = verified.findings.iter().map(|finding| self.finding(finding, now)).collect();
        let PagesRead { blocks: pages, bytes, .. } = verified.pages;
        Ok(PieceResult { read: PatrolAmount { pages, bytes }, findings })
    }

    fn is_listed(&self, block: &PatrolBlock) -> bool {
        let fork = fork_of(block);
        let file = self.files.first_from(fork, block.segment);
        file < self.files.len() && {
            let listed = self.files.file(file);
            (listed.fork, listed.segment) == (fork, block.segment)
        }
    }
}

fn first_block(fork: RelationFork) -> PatrolBlock {
    let RelFileLocator { tablespace, database, rel_number } = fork.relation;
    PatrolBlock {
        tablespace,
        database,
        filenode: rel_number,
        fork: fork.number.0,
        segment: 0,
        block: 0,
    }
}

fn fork_of(block: &PatrolBlock) -> RelationFork {
    let PatrolBlock { tablespace, database, filenode: rel_number, fork, .. } = *block;
    let relation = RelFileLocator { tablespace, database, rel_number };
    RelationFork { relation, number: ForkNumber(fork) }
}

/// The server, connected to when something looks damaged and not before: a patrol that finds nothing
/// keeps no session.
struct LazyServer<'a> {
    attach: AttachServer<'a>,
    data: &'a DataDirectory,
    threads: usize,
    found: Option<Result<RunningServer, Unsettled>>,
}

impl LazyServer<'_> {
    fn server(&mut self) -> Result<&mut RunningServer, Unsettled> {
        let Self { attach, data, threads, found } = self;
        let server = found.get_or_insert_with(|| {
            let refused = |why: String| Unsettled::Refused(why);
            let attached = attach(data).map_err(|error| refused(error.to_string()))?;
            let stopped = || Unsettled::NotReady("the server has stopped".to_owned());
            let mut attached = attached.ok_or_else(stopped)?;
            let server = RunningServer::attached(&mut attached, data, *threads);
            server.map_err(|error| refused(error.to_string()))
        });
        server.as_mut().map_err(|why| why.clone())
    }
}

impl Witness for LazyServer<'_> {
    fn now(&mut self) -> Result<WalHorizon, Unsettled> {
        self.server()?.now()
    }

    fn images(
        &mut self,
        forks: &HashSet<(RelationFork, u32)>,
        from: Lsn,
    ) -> Result<ImagesInWal, WalImagesError> {
        self.server().map_err(WalImagesError::NoServer)?.images(forks, from)
    }

    fn ask(&mut self, fork: RelationFork, block: u32) -> ServerAnswer {
        match self.server() {
            Ok(server) => server.ask(fork, block),
            Err(why) => ServerAnswer::Nothing(why),
        }
    }
}

/// Files of a piece at most.
const PIECE_FILES: usize = 512;
/// A server that starts and stops all the time has other worries.
const TRIES: u32 = 3;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;
    use crate::settings::VerifySettings;

    /// A data directory on disk whose pages, of these files, are all damaged.
    fn damaged(files: &[(&str, usize)]) -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        for directory in ["global", "base/5", "base/7", "pg_tblspc"] {
            fs::create_dir_all(place.path().join(directory)).unwrap();
        }
        fs::write(place.path().join("global/pg_control"), pgtoll_testing::control_file()).unwrap();
        fs::write(place.path().join("PG_VERSION"), "15\n").unwrap();
        for (name, pages) in files {
            fs::write(place.path().join(name), vec![7; pages * 8192]).unwrap();
        }
        place
    }

    fn patrolled(place: &Path) -> PatrolledDirectory<'static> {
        let verify = VerifySettings {
            jobs: 2.try_into().unwrap(),
            rate: None,
            only_below: Vec::new(),
            rows: true,
        };
        let settings = RunningSettings { verify, patience: std::time::Duration::ZERO };
        let data = DataDirectory::open(place).unwrap();
        let mut directory = PatrolledDirectory::open(data, settings, &|_| Ok(None)).unwrap();
        directory.list().unwrap();
        directory
    }

    /// Reads all, in pieces of this many bytes.
    fn read_all(directory: &mut PatrolledDirectory<'_>, bytes_max: u64) -> (u64, Vec<PatrolBlock>) {
        let mut pages = 0;
        let mut found = Vec::new();
        let mut pieces = 0;
        let mut from = Some(PatrolBlock::default());
        while let Some(next) = from {
            let piece = directory.piece(next, bytes_max).unwrap();
            assert!(piece.from == next && piece.to.is_none_or(|to| next < to), "{piece:?}");
            let result = directory.read(&piece, Timestamp::UNIX_EPOCH).unwrap();
            assert!(result.read.bytes <= bytes_max.max(8192), "{piece:?}: {result:?}");
            assert!(
                result.findings.iter().all(|finding| piece.has(&finding.at)),
                "{piece:?}: {result:?}"
            );
            pages += result.read.pages;
            found.extend(result.findings.iter().map(|finding| finding.at));
            from = piece.to;
            pieces += 1;
            assert!(pieces < 100, "it ends");
        }
        (pages, found)
    }

    const FILES: [(&str, usize); 9] = [
        ("global/1262", 1),
        ("base/5/16384", 3),
        ("base/5/16384_fsm", 1),
        ("base/5/16385", 0),
        ("base/5/16386", 5),
        ("base/5/16386.1", 2),
        ("base/5/16387_init", 1),
        ("base/7/16384", 2),
        ("base/7/16399", 0),
    ];

    #[test]
    fn pieces_of_any_length_have_each_block_once() {
        let place = damaged(&FILES);
        let all = FILES.iter().map(|(_, pages)| *pages).sum::<usize>();
        for bytes_max in [1, 8192, 20_000, 4 * 8192, 1 << 20] {
            let mut directory = patrolled(place.path());
            let (pages, found) = read_all(&mut directory, bytes_max);
            assert_eq!((pages, found.len()), (all as u64, all), "{bytes_max}");
            assert!(found.is_sorted(), "{found:?}");
            assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), all);
        }
    }

    #[test]
    fn a_file_that_is_gone_is_no_finding_and_one_that_has_grown_is_read_when_it_is_listed() {
        let place = damaged(&FILES);
        let mut directory = patrolled(place.path());
        let pick = |name: &str| place.path().join(name);
        fs::remove_file(pick("base/5/16386")).unwrap();
        fs::write(pick("base/5/16384"), vec![7; 2 * 8192]).unwrap();
        fs::write(pick("base/7/16384"), vec![7; 9 * 8192]).unwrap();
        let (pages, found) = read_all(&mut directory, 1 << 20);
        assert_eq!((pages, found.len()), (9, 9));
        directory.list().unwrap();
        assert_eq!(read_all(&mut directory, 1 << 20).0, 16);
        // Behind the end of a file it continues with the next one.
        let at = PatrolBlock { block: 2, ..found[0] };
        let rest = directory.piece(at, 1 << 20).unwrap();
        let result = directory.read(&rest, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!((result.read.pages, result.findings.len()), (14, 14));
    }

    #[test]
    fn another_cluster_in_the_same_place_ends_it() {
        let place = damaged(&FILES);
        let mut directory = patrolled(place.path());
        directory.data.control.system_identifier += 1;
        assert!(matches!(directory.list(), Err(PatrolError::OtherCluster { .. })));
        for (name, _) in FILES {
            fs::remove_file(place.path().join(name)).unwrap();
        }
        directory.data.control.system_identifier -= 1;
        assert!(matches!(directory.list(), Err(PatrolError::NoRelation { .. })));
    }
}
