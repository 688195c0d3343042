//! `pgtoll verify`: are the pages sound?

mod record;

use std::collections::HashSet;
use std::num::{NonZero, NonZeroUsize};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pgtoll_cluster::Interrupt;
use pgtoll_format::ByteSize;
use pgtoll_format::wal::RelationFiles;
use pgtoll_record::{VerificationOutcome, VerificationRecord};
use pgtoll_scan::{
    DataDirectory, Names, RelationName, TableName, Verified, VerifySettings, verify,
};

use crate::arguments::VerifyArguments;
use crate::commands::Usage;
use crate::exit::Status;
use crate::printer::Printer;

pub(crate) fn run(arguments: &VerifyArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let mut records = Vec::new();
    for target in targets(&arguments.paths)? {
        if interrupt.signal().is_none() {
            records.push(verified(&target, arguments, &interrupt, printer)?);
        }
    }
    show(&records, arguments, printer)?;
    if let Some(signal) = interrupt.signal() {
        printer.warn(&format!("pgtoll: interrupted by {signal}; what was found is shown"));
        return Ok(Status::CouldNotTell);
    }
    Ok(status(&records))
}

/// What is wrong weighs more than what could not be read.
fn status(records: &[VerificationRecord]) -> Status {
    let has = |outcome| records.iter().any(|record| record.outcome == outcome);
    if has(VerificationOutcome::Findings) {
        return Status::Finding;
    }
    if has(VerificationOutcome::Unverified) { Status::CouldNotTell } else { Status::Done }
}

fn show(
    records: &[VerificationRecord],
    arguments: &VerifyArguments,
    printer: &mut Printer,
) -> anyhow::Result<()> {
    if arguments.json {
        // Of several directories a line each would be no JSON for most programs.
        let text = match records {
            [only] => serde_json::to_string_pretty(only)?,
            several => serde_json::to_string_pretty(several)?,
        };
        printer.data(&(text + "\n"));
        return Ok(());
    }
    let texts: Vec<String> = records
        .iter()
        .map(|record| pgtoll_report::verification_text(record, arguments.top))
        .collect();
    printer.data(&texts.join("\n"));
    Ok(())
}

/// A data directory, and what of it is meant: nothing named means all.
struct Target {
    data: DataDirectory,
    below: Vec<PathBuf>,
}

/// Paths in the same data directory are verified together.
fn targets(paths: &[PathBuf]) -> anyhow::Result<Vec<Target>> {
    let mut targets: Vec<Target> = Vec::new();
    for path in paths {
        let absolute = std::path::absolute(path).context("find the current directory")?;
        let within = within(&absolute)?;
        let is_all = same(&within, &absolute);
        let below = (!is_all).then(|| inside(&within, &absolute));
        match targets.iter_mut().find(|target| target.data.path == within) {
            Some(target) if is_all || target.below.is_empty() => target.below.clear(),
            Some(target) => target.below.extend(below),
            None => {
                let data = DataDirectory::open(&within)?;
                refuse_running(&data)?;
                targets.push(Target { data, below: below.into_iter().collect() });
            }
        }
    }
    Ok(targets)
}

/// The data directory that a path is in.
fn within(path: &Path) -> anyhow::Result<PathBuf> {
    if path.join("PG_VERSION").exists() && path.join("global").is_dir() {
        // A whole one, or what should be one: what is wrong with its control file is told.
        return Ok(path.to_owned());
    }
    if let Err(error) = std::fs::metadata(path) {
        let hint = match error.kind() {
            std::io::ErrorKind::PermissionDenied => "run pgtoll as the files' owner",
            _ => "name a data directory, or files or directories in one",
        };
        return Err(Usage::error(format!("read {}: {error}", path.display()), hint));
    }
    if let Some(found) = DataDirectory::around(path) {
        return Ok(found);
    }
    if let Err(error) = std::fs::read_dir(path)
        && error.kind() == std::io::ErrorKind::PermissionDenied
    {
        let message = format!("read {}: {error}", path.display());
        return Err(Usage::error(message, "run pgtoll as the files' owner"));
    }
    Err(Usage::error(
        format!("{} is in no data directory: global/pg_control is missing", path.display()),
        "name a data directory, or files or directories in one; of a tablespace \
         its link in pg_tblspc",
    ))
}

fn same(one: &Path, other: &Path) -> bool {
    one == other || std::fs::canonicalize(one).ok() == std::fs::canonicalize(other).ok()
}

/// The path as the data directory's own begins.
fn inside(data: &Path, path: &Path) -> PathBuf {
    if path.starts_with(data) {
        return path.to_owned();
    }
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (real_data, real_path) = (real(data), real(path));
    real_path.strip_prefix(real_data).map_or(real_path.clone(), |rest| data.join(rest))
}

/// A server writes pages while they are read.
fn refuse_running(data: &DataDirectory) -> anyhow::Result<()> {
    match data.server()? {
        None => Ok(()),
        Some(pid) => Err(Usage::error(
            format!("a server runs on {} (process {pid})", data.path.display()),
            "stop it first, or verify a base backup; running servers cannot be verified yet",
        )),
    }
}

fn verified(
    target: &Target,
    arguments: &VerifyArguments,
    interrupt: &Interrupt,
    printer: &mut Printer,
) -> anyhow::Result<VerificationRecord> {
    let Target { data, below } = target;
    let mut names = None;
    let only = match arguments.only.as_slice() {
        [] => None,
        patterns => {
            let known = names.insert(Names::of_data_directory(&data.path)?);
            Some(chosen(known, patterns)?)
        }
    };
    let is_wanted =
        |relation: RelationFiles| only.as_ref().is_none_or(|only| only.contains(&relation));
    let settings = VerifySettings {
        jobs: arguments.jobs.map_or_else(cores, NonZero::from),
        rate: arguments.rate.map(|ByteSize(bytes)| bytes),
        only_below: below.clone(),
    };
    let mut verified = verify(data, &settings, &is_wanted, &mut |now| {
        let what = format!("{} of {}", size(now.bytes), size(now.all_bytes));
        printer.progress(&what, now.bytes, now.all_bytes);
        match interrupt.signal() {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    });
    if names.is_none() && needs_names(&verified) {
        // Without them findings have numbers instead.
        names = Names::of_data_directory(&data.path).ok();
    }
    if let Some(names) = names.as_ref().filter(|_| !verified.is_interrupted) {
        verified.compare_with(names, data, &is_wanted);
    }
    // A server that was started meanwhile may have written any page.
    refuse_running(data)?;
    Ok(record::of(arguments, data, &verified, names.as_ref()))
}

/// Names take memory for every relation. Where there are very many, only damage is worth it.
fn needs_names(verified: &Verified) -> bool {
    verified.files <= FILES_MANY || !verified.counts.is_empty()
}

/// The relations that these names mean, with the indexes and TOAST tables of tables.
fn chosen(names: &Names, patterns: &[String]) -> anyhow::Result<HashSet<RelationFiles>> {
    let mut chosen = HashSet::new();
    for pattern in patterns {
        let before = chosen.len();
        let found = names.iter().filter(|(_, name)| is_meant(name, pattern));
        chosen.extend(found.map(|(files, _)| files));
        if chosen.len() == before {
            return Err(Usage::error(
                format!("no relation \"{pattern}\""),
                "name it as database.schema.table, schema.table or table",
            ));
        }
    }
    Ok(chosen)
}

/// `shop.public.orders`, `public.orders` and `orders` mean it, and what belongs to it.
fn is_meant(name: &RelationName, pattern: &str) -> bool {
    let own = TableName { schema: name.schema.clone(), relation: name.relation.clone() };
    [Some(&own), name.of.as_ref()].into_iter().flatten().any(|table| {
        let full = table.schema.as_ref().map(|schema| format!("{schema}.{}", table.relation));
        let with_database = name.database.as_ref().zip(full.as_ref());
        let with_database = with_database.map(|(database, full)| format!("{database}.{full}"));
        table.relation == pattern
            || full.as_deref() == Some(pattern)
            || with_database.as_deref() == Some(pattern)
    })
}

fn cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

fn size(bytes: u64) -> String {
    ByteSize(bytes).rounded()
}

const FILES_MANY: u64 = 200_000;
