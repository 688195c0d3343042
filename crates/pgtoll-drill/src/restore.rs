//! The backup on its way into a server: copied, recovered, read, stopped, verified again.

use std::path::Path;
use std::time::Instant;

use pgtoll_cluster::{Cluster, Guard, StopMode};
use pgtoll_datadir::first_superuser;
use pgtoll_format::ControlFile;
use pgtoll_record::{
    DrilledDatabase, DrilledKind, LoggedTablespace, Provenance, VerificationRecord,
};
use pgtoll_system::Interrupt;

use crate::DrillError;
use crate::adopt::adopt;
use crate::chain::CopiedWal;
use crate::choice::WalChoice;
use crate::configuration::{RecoveryTarget, settings};
use crate::plan::DrillPlan;
use crate::reading::ReadDatabases;
use crate::session::ServerOfDrill;
use crate::source::SourceForm;
use crate::startup::{StartEnd, start};
use crate::step::DrillStep;
use crate::target::DrillTarget;
use crate::writer::{CopyWriter, link_tablespace};

/// The result of a restored backup.
pub(crate) struct Restored {
    /// Notes on files that were left out of the copy.
    pub(crate) notes: Vec<String>,
    pub(crate) copy_seconds: f64,
    pub(crate) wal: CopiedWal,
    pub(crate) wal_seconds: f64,
    pub(crate) made_tablespaces: Vec<LoggedTablespace>,
    pub(crate) end: StartEnd,
    pub(crate) start_seconds: f64,
    /// Why its server did not stop in good order.
    pub(crate) stop_error: Option<String>,
    pub(crate) log: String,
    /// The databases that its server read; `None`: it did not start.
    pub(crate) read: Option<ReadDatabases>,
    /// Its files, when its server was stopped.
    pub(crate) files: Option<VerificationRecord>,
    pub(crate) pages_seconds: f64,
}

impl Restored {
    pub(crate) fn notes(&self) -> Vec<String> {
        let databases = self.read.iter().flat_map(|read| &read.databases);
        let is_unchecked =
            |database: &DrilledDatabase| database.skipped.is_none() && database.indexes.is_none();
        let mut notes = self.notes.clone();
        if databases.clone().any(is_unchecked) {
            notes.push(
                "indexes were not compared with their tables: this server has no amcheck (a part of \
                 contrib)"
                    .to_owned(),
            );
        }
        notes
    }
}

/// The backup on its way into a server.
pub(crate) struct Restore<'a> {
    pub(crate) plan: &'a DrillPlan,
    pub(crate) choice: &'a WalChoice,
    pub(crate) control: &'a ControlFile,
    pub(crate) cluster: &'a Cluster,
    pub(crate) guard: &'a mut Guard,
    pub(crate) provenance: &'a Provenance,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) watch: &'a mut dyn FnMut(DrillStep<'_>),
}

impl Restore<'_> {
    pub(crate) fn run(&mut self) -> Result<Restored, DrillError> {
        let patience = self.plan.options.patience;
        let cluster = self.cluster;
        let writer = CopyWriter::from_user(self.guard.user());
        let begin = Instant::now();
        let notes = self.copy_files(writer)?;
        let copy_seconds = begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        let (wal, made_tablespaces) = self.copy_wal(cluster, writer)?;
        let wal_seconds = begin.elapsed().as_secs_f64();
        self.configure(cluster, &wal, writer)?;
        if self.plan.confinement.is_some() {
            self.guard.confine(self.plan.options.installation.directories())?;
        }
        (self.watch)(DrillStep::Stage("recover"));
        let begin = Instant::now();
        let watch = &mut *self.watch;
        let mut show = |segment: &str| {
            let label = format!("recover: segment {segment}");
            watch(DrillStep::Bytes { what: &label, done: 0, all: 0 });
        };
        let end = start(cluster, self.guard, patience, self.interrupt, &mut show)?;
        let start_seconds = begin.elapsed().as_secs_f64();
        require_space(&end, cluster.directory())?;
        let begin = Instant::now();
        let (read, stop_error) = match end {
            StartEnd::Serves => self.read_and_stop(cluster)?,
            StartEnd::Ended { .. } | StartEnd::Stalled { .. } => (None, None),
        };
        let is_stopped = read.is_some() && stop_error.is_none();
        let files = if is_stopped { Some(self.verify(cluster)?) } else { None };
        Ok(Restored {
            notes,
            copy_seconds,
            wal,
            wal_seconds,
            made_tablespaces,
            end,
            start_seconds,
            stop_error,
            log: log_of(cluster),
            read,
            files,
            pages_seconds: begin.elapsed().as_secs_f64(),
        })
    }

    /// Copies a directory; what was unpacked is there, and loses what a copy leaves out. Returns what a
    /// reader has to know of.
    fn copy_files(&mut self, writer: CopyWriter) -> Result<Vec<String>, DrillError> {
        let plan = self.plan;
        let directory = self.cluster.directory();
        match plan.source.form {
            SourceForm::Directory => {
                let label = "copy";
                (self.watch)(DrillStep::Stage(label));
                let watch = &mut *self.watch;
                plan.layout.copy(directory, writer, self.interrupt, &mut |done| {
                    watch(DrillStep::Bytes { what: label, done, all: plan.layout.bytes });
                })?;
                Ok(Vec::new())
            }
            SourceForm::Tars(_) | SourceForm::Repository(_) | SourceForm::Chain(_) => {
                adopt(directory, writer)
            }
        }
    }

    fn copy_wal(
        &mut self,
        cluster: &Cluster,
        writer: CopyWriter,
    ) -> Result<(CopiedWal, Vec<LoggedTablespace>), DrillError> {
        (self.watch)(DrillStep::Stage("look through the WAL"));
        let directory = cluster.directory().join("wal");
        writer.directory(&directory).map_err(DrillError::write(&directory))?;
        let mut wal =
            CopiedWal::copy(self.choice, self.control, &directory, writer, self.interrupt)?;
        wal.read(self.choice.start, self.interrupt)?;
        let is_enough = self.plan.source.kind == DrilledKind::BaseBackup
            && self.plan.options.target == DrillTarget::Consistency;
        let stop = self.choice.stop.or(wal.backup_end).filter(|_| is_enough);
        let made = wal.make_safe(stop, writer)?;
        for tablespace in &made {
            self.make_tablespace(cluster, tablespace.oid, writer)?;
        }
        let replayed = made.into_iter().filter(|made| made.at >= self.choice.start);
        Ok((wal, replayed.collect()))
    }

    /// As replay of the record would have made it, elsewhere.
    fn make_tablespace(
        &self,
        cluster: &Cluster,
        oid: u32,
        writer: CopyWriter,
    ) -> Result<(), DrillError> {
        let major = self.plan.source.major;
        let catalogs = self.plan.facts.catalog.version;
        let directory = cluster.directory().join("tablespaces").join(oid.to_string());
        let version = directory.join(format!("PG_{major}_{catalogs}"));
        for path in [directory, version] {
            writer.directory(&path).map_err(DrillError::write(&path))?;
        }
        link_tablespace(cluster.directory(), oid, writer)
    }

    fn configure(
        &self,
        cluster: &Cluster,
        wal: &CopiedWal,
        writer: CopyWriter,
    ) -> Result<(), DrillError> {
        let recovery = self.recovery();
        let data = cluster.data();
        if recovery.is_none() {
            wal.move_to(&data.join("pg_wal"), writer)?;
        }
        let files = [
            ("postgresql.conf", settings(self.control, self.plan.facts, recovery)),
            ("postgresql.auto.conf", String::new()),
            ("pg_hba.conf", "local all all trust\n".to_owned()),
            ("pg_ident.conf", String::new()),
        ];
        let signal = recovery.map(|_| ("recovery.signal", String::new()));
        for (name, content) in files.into_iter().chain(signal) {
            let path = data.join(name);
            writer.write_new(&path, content.as_bytes()).map_err(DrillError::write(&path))?;
        }
        Ok(())
    }

    /// Returns the recovery target; a cluster that was shut down needs none.
    fn recovery(&self) -> RecoveryTarget {
        let target = self.plan.options.target;
        let is_at_target =
            self.plan.source.kind == DrilledKind::ColdCopy && target == DrillTarget::Consistency;
        (!is_at_target).then_some(target)
    }

    fn read_and_stop(
        &mut self,
        cluster: &Cluster,
    ) -> Result<(Option<ReadDatabases>, Option<String>), DrillError> {
        let role = first_superuser(&cluster.data()).ok().flatten();
        let role = role.as_deref().unwrap_or("postgres");
        let server = ServerOfDrill { cluster, role, interrupt: self.interrupt };
        let watch = &mut *self.watch;
        let mut show = |database: &str| {
            watch(DrillStep::Stage(&format!("read database {database}")));
        };
        let read = ReadDatabases::read_all(server, &mut show)?;
        let stopped = cluster.stop(self.guard, StopMode::Fast);
        self.interrupt.check()?;
        Ok((Some(read), stopped.err().map(|error| error.to_string())))
    }

    fn verify(&mut self, cluster: &Cluster) -> Result<VerificationRecord, DrillError> {
        let label = "verify the restored cluster";
        (self.watch)(DrillStep::Stage(label));
        let checks = self.plan.checks(self.provenance, self.interrupt);
        let watch = &mut *self.watch;
        checks.verify(&cluster.data(), &mut |now| {
            watch(DrillStep::Bytes { what: label, done: now.bytes, all: now.all_bytes });
        })
    }
}

/// A full disk is not the backup's.
fn require_space(end: &StartEnd, cluster: &Path) -> Result<(), DrillError> {
    match end {
        StartEnd::Ended { last_words, .. } if last_words.contains("No space left on device") => {
            Err(DrillError::write(cluster)(std::io::ErrorKind::StorageFull.into()))
        }
        _ => Ok(()),
    }
}

fn log_of(cluster: &Cluster) -> String {
    pgtoll_system::read(&cluster.log(), LOG_BYTES_MAX)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

const LOG_BYTES_MAX: u64 = 64 << 20;
