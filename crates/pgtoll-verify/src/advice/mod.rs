//! Advice on damage, step by step. Pure: facts in, steps out.
//!
//! Every command is run by a test on the damage that it is for (`tests/it/advice.rs`).

mod maps;
mod repair;
mod sql;

use pgtoll_datadir::{RelationFileName, RelationName};
use pgtoll_format::catalog::{DEFAULT_TABLESPACE, GLOBAL_TABLESPACE, RelationKind};
use pgtoll_format::{ForkNumber, RelationFork, facts_of_major, shell_quoted};
use pgtoll_record::{Advice, CommandKind, Severity};

use crate::defect::Evidence;
use crate::defect::{BlockFinding, Defect, LayoutDefect};
use crate::severity::FIRST_NORMAL_OID;
pub(crate) use repair::WalArchive;
use sql::Range;

/// The role of the damaged cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClusterRole {
    /// A base backup.
    Backup,
    /// A standby, running or not.
    Standby,
    /// A server that is stopped.
    Stopped {
        /// It was not stopped in good order.
        needs_recovery: bool,
    },
    /// A server that runs.
    Running,
}

/// The cluster, as far as advice depends on it.
#[derive(Clone, Debug)]
pub(crate) struct AdvisedCluster {
    pub(crate) role: ClusterRole,
    /// The data directory as any directory's commands can name it.
    pub(crate) data: String,
    pub(crate) major: u32,
    pub(crate) block_bytes: u32,
    pub(crate) file_blocks: u32,
    /// Pages have checksums, without which none is repaired.
    pub(crate) has_checksums: bool,
    /// The archive of its WAL.
    pub(crate) archive: WalArchive,
    /// Addresses of standbys that stream from it.
    pub(crate) standbys: Vec<String>,
    /// The catalogs' version, which tablespaces' directories are called by; `None`: unknown.
    pub(crate) catalog_version: Option<u32>,
}

/// A damaged fork.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DamagedFork<'a> {
    pub(crate) fork: RelationFork,
    pub(crate) name: Option<&'a RelationName>,
    pub(crate) severity: Severity,
    pub(crate) findings: &'a [&'a BlockFinding],
    /// There are more findings than these.
    pub(crate) has_more: bool,
    /// Something is wrong with the table that it belongs to, too.
    pub(crate) is_table_damaged: bool,
}

impl DamagedFork<'_> {
    /// The pages can be read, and only what they and the map say of visibility is wrong.
    fn is_map_stale_alone(&self) -> bool {
        !self.findings.is_empty()
            && self.findings.iter().all(|finding| finding.defect.is_of_visibility())
    }
}

impl AdvisedCluster {
    /// Whether a condition on `ctid` reads only the blocks that it names.
    fn has_tid_range_scans(&self) -> bool {
        facts_of_major(self.major).is_some_and(|facts| facts.has_tid_range_scans)
    }

    /// A fork's file, below the data directory: as `page show` takes it from there.
    pub(crate) fn file(&self, fork: RelationFork, segment: u32) -> String {
        let RelationFork { relation, number: fork } = fork;
        let name = RelationFileName { number: relation.rel_number, fork, segment, backend: None };
        match relation.tablespace {
            GLOBAL_TABLESPACE => format!("global/{name}"),
            DEFAULT_TABLESPACE => format!("base/{}/{name}", relation.database),
            tablespace => {
                let catalog = self
                    .catalog_version
                    .map_or("*".to_owned(), |catalog_version| catalog_version.to_string());
                let major = self.major;
                let database = relation.database;
                format!("pg_tblspc/{tablespace}/PG_{major}_{catalog}/{database}/{name}")
            }
        }
    }

    /// Returns advice about a damaged fork, in order.
    pub(crate) fn advise(&self, damage: &DamagedFork<'_>) -> Vec<Advice> {
        if damage.is_map_stale_alone() {
            let start = if matches!(self.role, ClusterRole::Stopped { .. }) {
                "start the server; "
            } else {
                ""
            };
            return maps::stale(damage.name, self.role, start);
        }
        match self.role {
            ClusterRole::Backup => vec![of_backup(damage.fork.number, damage.severity)],
            ClusterRole::Standby => self.of_standby(damage),
            ClusterRole::Stopped { needs_recovery } => {
                let mut steps: Vec<Advice> =
                    self.repair(damage).into_iter().chain(self.copy(damage)).collect();
                if needs_recovery {
                    steps.push(describe(
                        "start the server and stop it again: its recovery may replace these pages; \
                         then verify again",
                    ));
                }
                steps.extend(self.of_primary(damage, "start the server; "));
                steps
            }
            ClusterRole::Running => {
                let first = self.repair(damage).into_iter().chain(self.copy(damage));
                first.chain(self.of_primary(damage, "")).collect()
            }
        }
    }

    fn of_standby(&self, damage: &DamagedFork<'_>) -> Vec<Advice> {
        match (damage.severity, damage.fork.number) {
            (Severity::Map, ForkNumber::VM) => maps::damaged_on_standby(self.major),
            (Severity::Map, _) => vec![describe(
                "nothing is lost: the server takes a damaged page of it for an empty one; VACUUM on the \
                 primary fills it again",
            )],
            _ => vec![describe(
                "verify the primary first. If it is sound, rebuild this standby from it (pg_basebackup); \
                 repair pages that are damaged there too on the primary: a standby changes nothing itself",
            )],
        }
    }

    /// The command that repairs pages; `None`: it cannot repair these.
    fn repair(&self, damage: &DamagedFork<'_>) -> Option<Advice> {
        let is_known =
            matches!(damage.severity, Severity::Data | Severity::Catalog | Severity::Index);
        let is_running = self.role == ClusterRole::Running;
        let is_repairable = |finding: &&BlockFinding| match finding.defect {
            Defect::Invalid { .. } => true,
            // A running server accepts these pages, and may change them.
            Defect::ZeroButVisible
            | Defect::ZeroFirst
            | Defect::Evidence(
                Evidence::Stale { .. }
                | Evidence::ZeroButLogged { .. }
                | Evidence::ZeroButLinked { .. }
                | Evidence::ZeroButIndexed { .. },
            ) => !is_running,
            _ => false,
        };
        let has_some = damage.findings.iter().copied().any(|finding| is_repairable(&finding));
        let is_after_recovery = self.role != ClusterRole::Stopped { needs_recovery: true };
        (self.has_checksums && is_known && is_after_recovery && has_some)
            .then(|| repair::step(&self.data, &self.archive, &self.standbys, is_running))
    }

    /// The next steps change the files, which are evidence and the last copy of their rows.
    fn copy(&self, damage: &DamagedFork<'_>) -> Option<Advice> {
        if damage.severity == Severity::Map {
            return None;
        }
        let mut segments: Vec<u32> =
            damage.findings.iter().filter_map(|finding| self.segment(finding)).collect();
        segments.sort_unstable();
        segments.dedup();
        let files = segments.iter().take(FILES_MAX);
        let files: Vec<String> =
            files.map(|segment| shell_quoted(&self.file(damage.fork, *segment))).collect();
        if files.is_empty() {
            return None;
        }
        let data = shell_quoted(&self.data);
        let copy = shell_quoted(&format!("{}.damaged", self.data));
        let more = if segments.len() > files.len() { " (and the others like them)" } else { "" };
        Some(Advice {
            what: format!("copy the damaged files before anything changes them{more}"),
            command: Some(format!(
                "mkdir -p -m 700 {copy} &&\ncd {data} &&\ncp -a --parents {} \\\n  {copy}",
                files.join(" ")
            )),
            kind: Some(CommandKind::Shell),
            database: None,
        })
    }

    /// The file that a finding is in; `None`: there is none.
    fn segment(&self, finding: &BlockFinding) -> Option<u32> {
        let block = match &finding.defect {
            Defect::Layout(LayoutDefect::NoFile | LayoutDefect::Missing { .. }) => return None,
            Defect::Layout(LayoutDefect::Short { segment } | LayoutDefect::TooLong { segment }) => {
                return Some(*segment);
            }
            _ if finding.last_missing().is_some() => finding.block.saturating_sub(1),
            _ => finding.block,
        };
        Some(block / self.file_blocks.max(1))
    }

    fn of_primary(&self, damage: &DamagedFork<'_>, start: &str) -> Vec<Advice> {
        let DamagedFork { severity, name, .. } = *damage;
        match (severity, name) {
            (Severity::Catalog, _) => vec![describe(
                "restore from a backup, or bring the pages back from a standby: the catalogs say \
                 what everything else is",
            )],
            (Severity::Leftover, _) => {
                vec![describe(
                    "no relation has this file: a leftover of a crash, which may be removed",
                )]
            }
            (Severity::Unknown, _) | (_, None) => {
                vec![describe("repair the catalogs first, which say whose file it is")]
            }
            (Severity::Index, Some(name)) => of_index(name, damage.is_table_damaged, start),
            (Severity::Map, Some(name)) if damage.fork.number == ForkNumber::VM => {
                maps::damaged(name, start)
            }
            (Severity::Map, Some(name)) => vec![of_free_space_map(name, start)],
            (Severity::Unlogged, Some(name)) => vec![statement(
                name,
                format!("{start}empty it, and fill it again: a crash would have emptied it, too"),
                format!("TRUNCATE {};", sql::qualified(name)),
            )],
            (Severity::Data, Some(name)) => self.of_data(name, damage, start),
        }
    }

    fn of_data(&self, name: &RelationName, damage: &DamagedFork<'_>, start: &str) -> Vec<Advice> {
        let restore = describe(
            "restore it from a backup, or bring the pages back from a standby; continue only without either",
        );
        match name.kind {
            RelationKind::Sequence => vec![describe(
                "make another sequence beyond the highest number in use, have the columns' defaults \
                 use it, and drop this one",
            )],
            RelationKind::MaterializedView => vec![statement(
                name,
                format!("{start}make it again"),
                format!("REFRESH MATERIALIZED VIEW {};", sql::qualified(name)),
            )],
            RelationKind::Toast => {
                let mut steps = vec![restore];
                steps.extend(name.of.as_ref().map(|table| {
                    let schema = table.schema.as_deref();
                    let relation = &table.relation;
                    let table = sql::with_schema(schema, relation);
                    let label = format!(
                        "{start}long values of {table} are lost; save its other rows (each takes a \
                         transaction ID)"
                    );
                    statement(name, label, sql::save_row_by_row(schema, relation))
                }));
                steps.push(describe(KEEP));
                steps
            }
            _ => {
                let mut steps = vec![restore];
                steps.extend(self.of_table(name, damage, start));
                steps
            }
        }
    }

    /// How to save the rows that are left.
    fn of_table(&self, name: &RelationName, damage: &DamagedFork<'_>, start: &str) -> Vec<Advice> {
        let TableDamage { refused, lost, wrong, has_gap, is_open, has_file } =
            TableDamage::from_findings(damage.findings);
        if !has_file {
            return vec![describe("nothing of it is left here: its rows are lost")];
        }
        let mut steps = Vec::new();
        if has_gap {
            steps.extend(self.fill_gaps(damage));
        }
        if !refused.is_empty() || damage.has_more {
            let is_few = refused.len() <= RANGES_MAX && !damage.has_more;
            steps.push(if is_few && self.has_tid_range_scans() {
                let label = format!("{start}save the rows beside {}", blocks(&refused));
                statement(name, label, sql::save_beside(name, &refused))
            } else {
                let label = format!(
                    "{start}save the rows of the blocks that can be read (each takes a transaction \
                     ID)"
                );
                statement(name, label, sql::save_block_by_block(name, self.block_bytes))
            });
            steps.push(describe(KEEP));
            return steps;
        }
        if !wrong.is_empty() {
            let label = format!(
                "{start}the server reads {} without an error, but they are not as they should be: \
                 compare their rows with another source",
                blocks(&wrong)
            );
            let (first, last) = wrong[0];
            let range = (first, last.min(first.saturating_add(BLOCKS_SHOWN - 1)));
            steps.push(statement(name, label, sql::rows_on(name, range, self.block_bytes)));
        }
        if !lost.is_empty() || has_gap {
            let label = if lost.is_empty() {
                format!("{start}save the rows that are left")
            } else {
                format!(
                    "{start}the rows on {} are lost, and the server does not report it: what it \
                     reads is all that is left. Save that",
                    blocks(&lost)
                )
            };
            steps.push(statement(name, label, sql::save_all(name)));
            steps.push(describe(KEEP));
            steps.push(statement(
                name,
                "when the lost rows are given up: its indexes lead to them still".to_owned(),
                format!("REINDEX TABLE {};", sql::qualified(name)),
            ));
        }
        if is_open {
            steps
                .push(describe("verify again: some of its blocks are not settled (see the notes)"));
        }
        steps
    }

    /// The server takes the first file that is not full for the last one.
    fn fill_gaps(&self, damage: &DamagedFork<'_>) -> Option<Advice> {
        let mut segments = Vec::new();
        for finding in damage.findings {
            match finding.defect {
                Defect::Layout(LayoutDefect::Short { segment }) => segments.push(segment),
                Defect::Layout(LayoutDefect::Missing { segment, count }) => {
                    segments.extend((segment..segment.saturating_add(count)).take(FILES_MAX));
                }
                _ => {}
            }
        }
        segments.truncate(FILES_MAX);
        let files = segments.iter().map(|segment| shell_quoted(&self.file(damage.fork, *segment)));
        let files = files.collect::<Vec<_>>().join(" ");
        let bytes = u64::from(self.file_blocks) * u64::from(self.block_bytes);
        let data = shell_quoted(&self.data);
        (!segments.is_empty()).then(|| Advice {
            what: "with the server stopped, fill the gap with zeros: without it the server reads \
                   nothing of the files behind"
                .to_owned(),
            command: Some(format!(
                "cd {data} &&\nfor file in {files}; do\n  truncate -s {bytes} \"$file\" &&\n  chown \
                 --reference=PG_VERSION \"$file\" &&\n  chmod 600 \"$file\" || break\ndone"
            )),
            kind: Some(CommandKind::Shell),
            database: None,
        })
    }
}

fn of_backup(fork: ForkNumber, severity: Severity) -> Advice {
    describe(match severity {
        Severity::Map if fork == ForkNumber::VM => {
            "no row is lost: on the server that is restored from this backup, and before standbys are \
             made of it, SELECT pg_truncate_visibility_map of the table (extension pg_visibility), then \
             VACUUM; verify the server and take a new backup"
        }
        Severity::Map => {
            "nothing is lost: a server that is restored from this backup makes the map again; \
             verify the server and take a new backup"
        }
        Severity::Index => {
            "restore from another backup; verify the server, and take a new backup (if this one is \
             the last, its table has what the index is made from)"
        }
        _ => "restore from another backup; verify the server, and take a new backup",
    })
}

fn of_index(name: &RelationName, is_table_damaged: bool, start: &str) -> Vec<Advice> {
    let index = sql::qualified(name);
    let table = name.of.as_ref();
    let table = table.map(|table| sql::with_schema(table.schema.as_deref(), &table.relation));
    let mut steps = Vec::new();
    if let Some(table) = table.as_ref().filter(|_| is_table_damaged) {
        steps.push(describe(&format!(
            "first the table {table}, which is damaged, too: an index that is made from it hides \
             which rows are lost"
        )));
    }
    let then = if is_table_damaged { "then " } else { "" };
    let is_system = name.oid < FIRST_NORMAL_OID;
    let system = if is_system {
        " (if the server cannot use it, start it with ignore_system_indexes = on)"
    } else {
        ""
    };
    let label = format!("{then}{start}make the index again from its table{system}");
    steps.push(statement(name, label, format!("REINDEX INDEX {index};")));
    steps
}

fn of_free_space_map(name: &RelationName, start: &str) -> Advice {
    let table = name.of.as_ref().filter(|_| name.kind == RelationKind::Index);
    let table = table.map_or_else(
        || sql::qualified(name),
        |table| sql::with_schema(table.schema.as_deref(), &table.relation),
    );
    statement(
        name,
        format!(
            "{start}nothing is lost: the server takes a damaged page of it for an empty one, and \
             fills it again"
        ),
        format!("VACUUM (DISABLE_PAGE_SKIPPING) {table};"),
    )
}

fn describe(label: &str) -> Advice {
    Advice { what: label.to_owned(), command: None, kind: None, database: None }
}

fn statement(name: &RelationName, label: String, command: String) -> Advice {
    let database = name.database.as_deref().map(str::to_owned);
    Advice { what: label, command: Some(command), kind: Some(CommandKind::Sql), database }
}

/// The faults of a table, as far as it matters to its rows. Ranges follow each other.
#[derive(Debug, Default)]
struct TableDamage {
    /// Blocks that the server refuses.
    refused: Vec<Range>,
    /// Blocks whose rows are gone without an error: zeros, or missing behind the end.
    lost: Vec<Range>,
    /// Blocks that the server reads, and that are not as they should be.
    wrong: Vec<Range>,
    /// A file is missing or not full, and others follow.
    has_gap: bool,
    /// Some blocks are unsettled.
    is_open: bool,
    has_file: bool,
}

impl TableDamage {
    fn from_findings(findings: &[&BlockFinding]) -> Self {
        let mut damage = Self { has_file: true, ..Self::default() };
        for finding in findings {
            let block = finding.block;
            let one = (block, block);
            match &finding.defect {
                Defect::Invalid { .. } | Defect::Incremental(_) => damage.refused.push(one),
                Defect::Unreadable { blocks, .. } => {
                    damage.refused.push((block, block.saturating_add(blocks.saturating_sub(1))));
                }
                Defect::MayBeTorn { .. } | Defect::Unsettled { .. } | Defect::Changed => {
                    damage.is_open = true;
                }
                Defect::AheadOfWal { .. }
                | Defect::Evidence(Evidence::Stale { .. })
                | Defect::Layout(LayoutDefect::TooLong { .. }) => damage.wrong.push(one),
                Defect::Layout(LayoutDefect::Short { .. } | LayoutDefect::Missing { .. }) => {
                    damage.has_gap = true;
                }
                Defect::Layout(LayoutDefect::NoFile) => damage.has_file = false,
                Defect::MapStale { .. } | Defect::PageVisible { .. } => {}
                _ => damage.lost.push((block, finding.last_missing().unwrap_or(block))),
            }
        }
        for ranges in [&mut damage.refused, &mut damage.lost, &mut damage.wrong] {
            *ranges = joined(std::mem::take(ranges));
        }
        damage
    }
}

/// In order, without gaps or overlaps between neighbours.
fn joined(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut joined: Vec<Range> = Vec::new();
    for (first, last) in ranges {
        match joined.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            _ => joined.push((first, last)),
        }
    }
    joined
}

/// `block 7`, `blocks 7 and 9 to 12`, `blocks 1, 3, 5, 7 and 12 more`
fn blocks(ranges: &[Range]) -> String {
    let shown = ranges.iter().take(RANGES_SHOWN).map(|(first, last)| match last - first {
        0 => first.to_string(),
        _ => format!("{first} to {last}"),
    });
    let mut shown: Vec<String> = shown.collect();
    if ranges.len() > RANGES_SHOWN {
        shown.push(format!("{} more", ranges.len() - RANGES_SHOWN));
    }
    match (ranges, shown.as_slice()) {
        ([(first, last)], [one]) if first == last => format!("block {one}"),
        (_, [one]) => format!("blocks {one}"),
        (_, [before @ .., last]) => format!("blocks {} and {last}", before.join(", ")),
        (_, []) => "its blocks".to_owned(),
    }
}

const KEEP: &str =
    "change the damaged table only after checking the saved rows, and keep both until then";
/// More are read block by block.
const RANGES_MAX: usize = 8;
const RANGES_SHOWN: usize = 4;
/// Blocks whose rows are shown at once.
const BLOCKS_SHOWN: u32 = 100;
/// Files that a command names.
const FILES_MAX: usize = 16;

#[cfg(test)]
mod tests;
