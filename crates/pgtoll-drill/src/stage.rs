//! Unpacking of backups that are no plain directory into the cluster's directory.

use std::path::{Path, PathBuf};
use std::time::Instant;

use pgtoll_cluster::{Cluster, Guard};
use pgtoll_record::{DrillFinding, Provenance, VerificationRecord};
use pgtoll_system::Interrupt;

use crate::DrillError;
use crate::chain_source::misfits;
use crate::combine::Combination;
use crate::plan::DrillPlan;
use crate::source::{DrillSource, SourceForm};
use crate::step::DrillStep;
use crate::tars::{TarSurvey, UnpackTarget};
use crate::writer::CopyWriter;

/// A backup on its way into the cluster's directory.
pub(crate) struct Stage<'a> {
    pub(crate) plan: &'a DrillPlan,
    pub(crate) cluster: &'a Cluster,
    pub(crate) guard: &'a mut Guard,
    pub(crate) provenance: &'a Provenance,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) watch: &'a mut dyn FnMut(DrillStep<'_>),
}

/// The result of staging.
#[derive(Default)]
pub(crate) struct Staged {
    /// How long unpacking and combining took.
    pub(crate) seconds: f64,
    /// The backups of a chain as they lie, in its order, those that could be verified.
    pub(crate) members: Vec<VerificationRecord>,
    /// How long that took.
    pub(crate) members_seconds: f64,
    /// Findings while files were unpacked.
    pub(crate) findings: Vec<DrillFinding>,
    /// Why there is nothing that a server can start on.
    pub(crate) failure: Option<String>,
    /// Notes for the reader.
    pub(crate) notes: Vec<String>,
}

impl<'a> Stage<'a> {
    /// Unpacks tars, and combines chains. A directory is copied later, when it was verified where it lies.
    pub(crate) fn run(&mut self) -> Result<Staged, DrillError> {
        let plan = self.plan;
        let directory = self.cluster.directory();
        let mut staged = Staged::default();
        match &plan.source.form {
            SourceForm::Directory => {}
            SourceForm::Tars(_) | SourceForm::Repository(_) if plan.source.control.is_err() => {}
            SourceForm::Tars(survey) => {
                let begin = Instant::now();
                self.unpack(survey, directory, "unpack")?;
                staged.seconds = begin.elapsed().as_secs_f64();
            }
            SourceForm::Repository(survey) => {
                let begin = Instant::now();
                let label = "unpack";
                (self.watch)(DrillStep::Stage(label));
                let target = self.target(directory);
                let watch = &mut *self.watch;
                let mut progress = |done, all| watch(DrillStep::Bytes { what: label, done, all });
                staged.findings = survey.unpack(target, &mut progress)?;
                staged.seconds = begin.elapsed().as_secs_f64();
            }
            SourceForm::Chain(members) => self.chain(members, &mut staged)?,
        }
        Ok(staged)
    }

    fn unpack(
        &mut self,
        survey: &TarSurvey,
        directory: &Path,
        label: &str,
    ) -> Result<(), DrillError> {
        (self.watch)(DrillStep::Stage(label));
        let target = self.target(directory);
        let watch = &mut *self.watch;
        survey.unpack(target, &mut |done, all| watch(DrillStep::Bytes { what: label, done, all }))
    }

    /// Tars of its members are unpacked into a directory that is removed when they are combined.
    fn chain(&mut self, members: &[DrillSource], staged: &mut Staged) -> Result<(), DrillError> {
        let unpacked = self.cluster.directory().join("chain");
        let mut paths = Vec::with_capacity(members.len());
        for (number, member) in members.iter().enumerate() {
            let begin = Instant::now();
            let path = self.plain(member, &unpacked.join(number.to_string()), &unpacked)?;
            staged.seconds += begin.elapsed().as_secs_f64();
            let begin = Instant::now();
            match self.verified(member, &path) {
                // Tars may hold a data directory that is none: pg_combinebackup refuses it.
                Err(DrillError::Datadir(error)) if path != member.path => {
                    staged.notes.push(format!("{}: {error}", member.path.display()));
                }
                verified => staged.members.extend(verified?),
            }
            staged.members_seconds += begin.elapsed().as_secs_f64();
            paths.push(path);
        }
        let begin = Instant::now();
        (self.watch)(DrillStep::Stage("combine the backups"));
        let tablespaces = self.cluster.directory().join("tablespaces");
        self.writer().directory(&tablespaces).map_err(DrillError::write(&tablespaces))?;
        let cluster = self.cluster;
        let interrupt = self.interrupt;
        let combined = Combination { cluster, members: &paths, interrupt }.run(self.guard)?;
        if unpacked.exists() {
            self.writer().remove_all(&unpacked).map_err(DrillError::write(&unpacked))?;
        }
        staged.seconds += begin.elapsed().as_secs_f64();
        if let Err(words) = combined {
            let mut words = words;
            for (path, member) in paths.iter().zip(members) {
                let unpacked = path.to_string_lossy();
                let named = member.path.to_string_lossy();
                words = words.replace(&*unpacked, &named);
            }
            staged.failure = Some(words);
            staged.notes.extend(misfits(members));
        }
        Ok(())
    }

    /// Returns the directory of a member: its own, or the unpacked one.
    fn plain(
        &mut self,
        member: &DrillSource,
        directory: &Path,
        above: &Path,
    ) -> Result<PathBuf, DrillError> {
        let SourceForm::Tars(survey) = &member.form else { return Ok(member.path.clone()) };
        for path in [above, directory] {
            self.writer().directory(path).map_err(DrillError::write(path))?;
        }
        self.unpack(survey, directory, &format!("unpack {}", member.path.display()))?;
        Ok(directory.join("data"))
    }

    /// The files of a member; `None`: its control file cannot be read, and `pg_combinebackup` says so.
    fn verified(
        &mut self,
        member: &DrillSource,
        path: &Path,
    ) -> Result<Option<VerificationRecord>, DrillError> {
        if member.control.is_err() {
            return Ok(None);
        }
        let label = format!("verify {}", member.path.display());
        (self.watch)(DrillStep::Stage(&label));
        let checks = self.plan.checks_with(&member.wal, self.provenance, self.interrupt);
        let watch = &mut *self.watch;
        let mut record = checks.verify(path, &mut |now| {
            watch(DrillStep::Bytes { what: &label, done: now.bytes, all: now.all_bytes });
        })?;
        record.source.path = member.path.display().to_string();
        Ok(Some(record))
    }

    fn target<'b>(&self, directory: &'b Path) -> UnpackTarget<'b>
    where
        'a: 'b,
    {
        UnpackTarget {
            directory,
            major: self.plan.source.major,
            writer: self.writer(),
            interrupt: self.interrupt,
        }
    }

    fn writer(&self) -> CopyWriter {
        CopyWriter::from_user(self.guard.user())
    }
}
