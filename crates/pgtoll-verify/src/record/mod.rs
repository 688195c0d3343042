//! From what was found to the record.

mod coverage;
mod notes;
mod unreadable;
mod words;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use pgtoll_datadir::{Attached, DataDirectory, Names, RelationName, control_file};
use pgtoll_format::{ClusterState, ForkNumber, RelationFork};
use pgtoll_record::{
    Advice, ManifestComparison, Provenance, VERIFICATION_SCHEMA, VerificationOutcome,
    VerificationRecord, VerifiedAmount, VerifiedRelation, VerifiedRunning, VerifiedSource,
};
use pgtoll_wal::recorded_name;

use crate::advice::{AdvisedCluster, ClusterRole, DamagedFork, WalArchive};
use crate::backup::{TarBackup, VerifiedTars, WalAtHand};
use crate::defect::{BlockFinding, DefectCounts};
use crate::found::Verified;
use crate::severity::{repair_order, severity};
use words::file_finding;
pub(crate) use words::page_finding;

impl Verified {
    /// The record of a data directory on which no server ran, or of a plain backup; `wal` is what
    /// was known of the WAL that the backup needs.
    pub fn record(
        &self,
        data: &DataDirectory,
        names: Option<&Names>,
        wal: WalAtHand,
        provenance: Provenance,
    ) -> VerificationRecord {
        let notes = notes::of_directory(data, self, names, wal);
        self.record_from(provenance, &data.path, directory_source(data), names, None, notes)
    }

    /// The record of a data directory on which a server ran.
    pub fn record_of_running(
        &self,
        data: &DataDirectory,
        names: Option<&Names>,
        attached: &Attached,
        provenance: Provenance,
    ) -> VerificationRecord {
        let mut notes = attached.notes().to_vec();
        notes.extend(notes::of_running(data, self, names));
        let running = Some((self.while_running(attached), attached.standbys()));
        let source = directory_source(data);
        let mut record = self.record_from(provenance, &data.path, source, names, running, notes);
        if let Some(server) = attached.server().filter(|_| names.is_some()) {
            record.names = Some(format!("the server {server}"));
        }
        record
    }

    fn record_from(
        &self,
        provenance: Provenance,
        path: &Path,
        source: VerifiedSource,
        names: Option<&Names>,
        running: Option<(VerifiedRunning, &[String])>,
        notes: Vec<String>,
    ) -> VerificationRecord {
        let total = self.total();
        let (running, standbys) = running.unzip();
        let mut cluster = advised_cluster(path, &source, running.is_some());
        cluster.standbys = standbys.unwrap_or_default().to_vec();
        let relations = self.relations(names, running.is_some(), &cluster);
        let shown = |found: &Path| {
            let within = found.strip_prefix(path).ok();
            within.filter(|within| *within != Path::new("")).unwrap_or(found).display().to_string()
        };
        let covered = coverage::covered(self, &source);
        let left_out = coverage::left_out(self, &source);
        let Provenance { version, command, made } = provenance;
        VerificationRecord {
            schema: VERIFICATION_SCHEMA.to_owned(),
            pgtoll: version,
            command,
            made,
            source,
            outcome: self.outcome(&left_out),
            covered,
            left_out,
            interrupted: self.is_interrupted,
            read: VerifiedAmount {
                files: self.files,
                incremental_files: self.incremental,
                blocks: self.pages.blocks,
                new_blocks: self.pages.new,
                bytes: self.pages.bytes,
                temporary_files: self.temporary,
            },
            failures: total.failures,
            suspicions: total.suspicions,
            unverified: total.unverified,
            healed_by_replay: self.healed_by_replay,
            files: self.wrong_files.iter().map(file_finding).collect(),
            wrong_files: self.wrong_files.len() as u64 + self.more_wrong_files,
            incomplete: self.incomplete.clone(),
            manifest: self.manifest.map(|compared| ManifestComparison {
                files: compared.files,
                checksum_bytes: compared.checksums,
            }),
            relations,
            running,
            names: names.map(|_| format!("the catalogs in {}", path.display())),
            foreign: self.foreign.iter().map(|path| shown(path)).collect(),
            unlisted: self
                .unlisted
                .iter()
                .map(|(path, error)| format!("{}: {error}", shown(path)))
                .collect(),
            notes,
        }
    }

    /// Returns the outcome: findings weigh more than unread blocks.
    fn outcome(&self, left_out: &[String]) -> VerificationOutcome {
        if self.is_wrong() {
            VerificationOutcome::Findings
        } else if !self.is_whole() {
            VerificationOutcome::Unverified
        } else if left_out.is_empty() {
            VerificationOutcome::Sound
        } else {
            VerificationOutcome::NoDamageSeen
        }
    }

    fn while_running(&self, attached: &Attached) -> VerifiedRunning {
        let counts = self.running;
        VerifiedRunning {
            server: attached.server().map(ToString::to_string),
            suspects: counts.suspects,
            healed: counts.healed,
            in_flight: counts.in_flight,
            dropped: counts.dropped,
            asked: counts.asked,
        }
    }

    /// The damaged forks, in the order in which they are repaired.
    fn relations(
        &self,
        names: Option<&Names>,
        is_running: bool,
        cluster: &AdvisedCluster,
    ) -> Vec<VerifiedRelation> {
        let mut findings: HashMap<RelationFork, Vec<&BlockFinding>> = HashMap::new();
        for finding in &self.findings {
            findings.entry(finding.fork).or_default().push(finding);
        }
        let damaged = DamagedForks {
            names,
            // A running server has files of which no catalog says anything yet.
            complete_names: names.filter(|_| !is_running),
            cluster,
            damaged_tables: damaged_tables(&self.counts, names),
        };
        let mut relations: Vec<VerifiedRelation> = self
            .counts
            .iter()
            .map(|(fork, counts)| {
                let findings = findings.remove(fork).unwrap_or_default();
                let mut relation = damaged.relation(*fork, *counts, &findings);
                if self.is_unreadable_throughout(*fork, *counts, &findings, cluster.block_bytes) {
                    unreadable::join(&mut relation);
                }
                relation
            })
            .collect();
        relations.sort_by_key(|relation| repair_order(relation.severity));
        relations
    }
}

impl Verified {
    /// Whether each page of a fork that is not zero is garbage, as far as its files are known.
    fn is_unreadable_throughout(
        &self,
        fork: RelationFork,
        counts: DefectCounts,
        findings: &[&BlockFinding],
        block_bytes: u32,
    ) -> bool {
        let Some(files) = &self.files_of_all else { return false };
        let bytes: u64 = files.of_fork(fork).map(|file| files.file(file).bytes).sum();
        let zeros = self.zeros.runs().iter().filter(|run| run.relation == fork.relation);
        let zeros: u64 = zeros.map(|run| u64::from(run.count)).sum();
        let blocks = bytes / u64::from(block_bytes.max(1));
        counts.failures >= unreadable::PAGES_MIN
            && counts.failures + zeros >= blocks
            && findings.iter().all(|finding| unreadable::is_garbage(&finding.defect))
    }
}

impl VerifiedTars {
    /// The record of a backup in tars; `wal` is what was known of the WAL that it needs.
    pub fn record(
        &self,
        backup: &TarBackup,
        names: Option<&Names>,
        wal: WalAtHand,
        provenance: Provenance,
    ) -> VerificationRecord {
        let notes = notes::of_tars(self, names, wal);
        let source = self.source(backup);
        self.verified.record_from(provenance, &backup.path, source, names, None, notes)
    }

    fn source(&self, backup: &TarBackup) -> VerifiedSource {
        let control = self.control.as_ref();
        let packing = backup.packing().map_or(String::new(), |packing| format!(", {packing}"));
        VerifiedSource {
            path: backup.path.display().to_string(),
            backup: self.start.is_some() || control.is_none(),
            form: Some(format!("tar{packing}")),
            major: self.major.unwrap_or_default(),
            system_identifier: control.map_or(0, |control| control.system_identifier),
            state: control
                .map_or_else(|| "unknown".to_owned(), |control| control.state.to_string()),
            block_bytes: control.map_or(8192, |control| control.block_bytes),
            file_blocks: control.map_or(131_072, |control| control.file_blocks),
            checksums: control.is_none_or(|control| control.checksum_version == 1),
            wal_end: None,
        }
    }
}

fn directory_source(data: &DataDirectory) -> VerifiedSource {
    VerifiedSource {
        path: data.path.display().to_string(),
        backup: data.backup_start.is_some(),
        form: None,
        major: data.major,
        system_identifier: data.control.system_identifier,
        state: data.control.state.to_string(),
        block_bytes: data.control.block_bytes,
        file_blocks: data.control.file_blocks,
        checksums: data.has_checksums(),
        wal_end: data.wal_end(),
    }
}

/// Returns the facts that advice depends on.
fn advised_cluster(path: &Path, source: &VerifiedSource, is_running: bool) -> AdvisedCluster {
    let standby_states = [ClusterState::ShutDownInRecovery, ClusterState::InArchiveRecovery];
    let is_standby = path.join("standby.signal").exists()
        || standby_states.iter().any(|state| state.to_string() == source.state);
    let role = if source.backup || source.form.is_some() {
        ClusterRole::Backup
    } else if is_standby {
        ClusterRole::Standby
    } else if is_running {
        ClusterRole::Running
    } else {
        let needs_recovery = source.state != ClusterState::ShutDown.to_string();
        ClusterRole::Stopped { needs_recovery }
    };
    let data = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    AdvisedCluster {
        role,
        // A slash at the end would make another name of the copy.
        data: data.components().collect::<PathBuf>().to_string_lossy().into_owned(),
        major: source.major,
        block_bytes: source.block_bytes,
        file_blocks: source.file_blocks,
        has_checksums: source.checksums,
        archive: WalArchive::of_data_directory(path),
        standbys: Vec::new(),
        catalog_version: control_file(path).ok().map(|control| control.catalog_version),
    }
}

/// A table by its database, schema and name, as its indexes refer to it.
type TableKey<'a> = (Option<&'a str>, Option<&'a str>, &'a str);

/// Tables whose main fork has findings.
fn damaged_tables<'a>(
    counts: &BTreeMap<RelationFork, DefectCounts>,
    names: Option<&'a Names>,
) -> HashSet<TableKey<'a>> {
    let main_forks = counts.keys().filter(|fork| fork.number == ForkNumber::MAIN);
    main_forks
        .filter_map(|fork| names?.relation(fork.relation))
        .map(|name| (name.database.as_deref(), name.schema.as_deref(), &*name.relation))
        .collect()
}

/// The context in which all damaged forks of a cluster are judged.
struct DamagedForks<'a> {
    names: Option<&'a Names>,
    /// Names without which a file is a leftover; `None`: they may be incomplete.
    complete_names: Option<&'a Names>,
    cluster: &'a AdvisedCluster,
    damaged_tables: HashSet<TableKey<'a>>,
}

impl DamagedForks<'_> {
    fn relation(
        &self,
        fork: RelationFork,
        counts: DefectCounts,
        findings: &[&BlockFinding],
    ) -> VerifiedRelation {
        let name = self.names.and_then(|names| names.relation(fork.relation));
        let severity = severity(fork, name, self.complete_names);
        let listed: u64 = findings.iter().map(|finding| u64::from(finding.defect.blocks())).sum();
        let advice = self.cluster.advise(&DamagedFork {
            fork,
            name,
            severity,
            findings,
            has_more: listed < counts.failures + counts.suspicions + counts.unverified,
            is_table_damaged: name.is_some_and(|name| self.is_table_damaged(name)),
        });
        VerifiedRelation {
            tablespace: fork.relation.tablespace,
            database: fork.relation.database,
            filenode: fork.relation.rel_number,
            fork: fork.number.to_string(),
            path: Some(self.cluster.file(fork, 0)),
            name: name.map(recorded_name),
            severity,
            remedy: remedy(&advice),
            advice,
            failures: counts.failures,
            suspicions: counts.suspicions,
            unverified: counts.unverified,
            findings: findings.iter().map(|finding| page_finding(finding, self.names)).collect(),
        }
    }

    /// Whether the table that it belongs to is damaged, too.
    fn is_table_damaged(&self, name: &RelationName) -> bool {
        name.of.as_ref().is_some_and(|table| {
            let schema = table.schema.as_deref();
            self.damaged_tables.contains(&(name.database.as_deref(), schema, &*table.relation))
        })
    }
}

/// The steps in one line.
fn remedy(advice: &[Advice]) -> String {
    let steps = advice.iter().map(|step| match &step.command {
        Some(command) => {
            let lines = command.lines().map(str::trim_start).collect::<Vec<_>>();
            format!("{}: {}", step.what, lines.join(" ").trim_end_matches(';'))
        }
        None => step.what.clone(),
    });
    steps.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
