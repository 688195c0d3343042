//! `pgtoll corrupt`: damages a page on purpose, and puts it right again.

mod site;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::Context as _;
use pgtoll_format::ControlFile;
use pgtoll_record::{CORRUPT_SCHEMA, CorruptOutcome, CorruptRecord};
use pgtoll_scan::{Damage, RelationFile, Wound, plan, relation_files};

use crate::arguments::{CorruptArguments, DamageKind};
use crate::commands::Usage;
use crate::exit::Status;
use crate::printer::Printer;
use site::Site;

pub(crate) fn run(arguments: &CorruptArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    match &arguments.undo {
        Some(undo) => heal(undo, arguments, printer),
        None => inflict(arguments, printer),
    }
}

fn inflict(arguments: &CorruptArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    if !arguments.yes {
        let message = format!("{} would be damaged", arguments.data.display());
        return Err(Usage::error(message, "take a copy, or say --yes if you mean these data"));
    }
    // Made, and older bytes opened, by who called pgtoll: to take hold, root becomes the owner.
    let undo = &arguments.undo_file;
    let older = arguments.older.as_ref().map(|path| (path, File::open(path)));
    let older = older.map(|(path, file)| file.with_context(|| format!("read {}", path.display())));
    let older = older.transpose()?;
    let undo_path = std::path::absolute(undo).context("find the current directory")?;
    let saved = File::options().write(true).create_new(true).mode(0o600).open(undo);
    let saved = saved.map_err(|error| {
        let message = format!("write {}: {error}", undo.display());
        Usage::error(message, "name a new file with --undo-file")
    })?;
    let done = damage(arguments, older.as_ref(), |wound| Ok(wound.save(&saved, undo)?));
    let (wound, block) = done.inspect_err(|_| {
        if saved.metadata().is_ok_and(|of| of.len() == 0) {
            // Nothing was damaged. Where it may not be removed any more, it is empty.
            let _ = fs::remove_file(&undo_path);
        }
    })?;
    let record = record(CorruptOutcome::Damaged, arguments, &wound, Some(block), &undo_path);
    deliver(&record, arguments.json, printer);
    Ok(Status::Done)
}

fn damage(
    arguments: &CorruptArguments,
    older: Option<&File>,
    save: impl FnOnce(&Wound) -> anyhow::Result<()>,
) -> anyhow::Result<(Wound, u64)> {
    let mut site = Site::of(arguments)?;
    let control = site.control().clone();
    let block_bytes = control.block_bytes as usize;
    let (file, block) = target(arguments, &mut site, &control)?;
    let damage = kind(arguments, block, block_bytes, older)?;
    let wound = plan(&file.path, block, block_bytes, &damage, arguments.seed)?;
    site.check(&wound, &file)?;
    save(&wound)?;
    site.check(&wound, &file)?;
    wound.inflict()?;
    Ok((wound, block))
}

fn heal(
    undo: &Path,
    arguments: &CorruptArguments,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let wound = Wound::load(undo)?;
    let mut site = Site::of(arguments)?;
    let list = relation_files(&arguments.data, site.control());
    let is_there = |path: &Path| {
        let found = path.parent().and_then(|of| fs::canonicalize(of).ok());
        found.zip(path.file_name()).is_some_and(|(of, name)| of.join(name) == wound.file)
    };
    let moved = wound.moved_to.as_deref();
    let file = list.files.iter().find(|of| is_there(&of.path));
    let is_moved = list.foreign.iter().any(|path| moved.is_some_and(|moved| same(path, moved)));
    if file.is_none() && !is_moved {
        return Err(Usage::error(
            format!("{} is about {}", undo.display(), wound.file.display()),
            "name the data directory that this file is in",
        ));
    }
    match file {
        Some(file) => site.check(&wound, file)?,
        None => site.check_held()?,
    }
    wound.heal()?;
    let record = record(CorruptOutcome::Undone, arguments, &wound, None, undo);
    deliver(&record, arguments.json, printer);
    Ok(Status::Done)
}

fn same(a: &Path, b: &Path) -> bool {
    fs::canonicalize(a).is_ok_and(|found| found == b)
}

/// The file, and the block in it.
fn target(
    arguments: &CorruptArguments,
    site: &mut Site,
    control: &ControlFile,
) -> anyhow::Result<(RelationFile, u64)> {
    let list = relation_files(&arguments.data, control);
    let Some(file) = &arguments.file else {
        let file = of_relation(arguments, site, control, list.files)?;
        let block = match arguments.block {
            Some(block) => block % u64::from(control.file_blocks),
            None => site.any_block(&file, arguments.seed)?,
        };
        return Ok((file, block));
    };
    let path = arguments.data.join(file);
    let Some(file) = list.files.into_iter().find(|of| of.path == path) else {
        let message = format!("{} is no relation's file", path.display());
        return Err(Usage::error(message, "name one from PGDATA on, like base/5/1259"));
    };
    let block = match arguments.block {
        Some(block) => block,
        None => site.any_block(&file, arguments.seed)?,
    };
    Ok((file, block))
}

/// The file of a relation's fork that the block is in.
fn of_relation(
    arguments: &CorruptArguments,
    site: &mut Site,
    control: &ControlFile,
    files: Vec<RelationFile>,
) -> anyhow::Result<RelationFile> {
    let wanted = arguments.relation.as_deref().unwrap_or_default();
    let names = site.names()?;
    let of = names.iter().find(|(_, name)| name.to_string() == wanted).map(|(files, _)| files);
    let Some(of) = of else {
        return Err(Usage::error(
            format!("{} holds no relation {wanted}", arguments.data.display()),
            "name it as database.schema.name, as the files call it",
        ));
    };
    let fork = arguments.fork as u8;
    let mut files = files
        .into_iter()
        .filter(|file| (file.relation, file.name.fork, file.name.backend) == (of, fork, None));
    let segment = arguments.block.map(|block| block / u64::from(control.file_blocks));
    let file = files.find(|file| segment.is_none_or(|of| u64::from(file.name.segment) == of));
    file.ok_or_else(|| {
        let message = format!("{wanted} has no such file");
        Usage::error(message, "choose another --fork or --block")
    })
}

fn kind(
    arguments: &CorruptArguments,
    block: u64,
    block_bytes: usize,
    older: Option<&File>,
) -> anyhow::Result<Damage> {
    let older = || -> anyhow::Result<Vec<u8>> {
        let file = older.context("--older is missing")?;
        let mut page = vec![0; block_bytes];
        file.read_exact_at(&mut page, block * block_bytes as u64)
            .with_context(|| format!("read block {block} of the older file"))?;
        Ok(page)
    };
    Ok(match arguments.kind.context("--kind is missing")? {
        DamageKind::Bit => Damage::Bit,
        DamageKind::Garbage => Damage::Garbage,
        DamageKind::Transposed => {
            Damage::Transposed { with: arguments.with.context("--with is missing")? }
        }
        DamageKind::Torn => Damage::Torn { older: older()? },
        DamageKind::Zero => Damage::Zero,
        DamageKind::ZeroHalf => Damage::ZeroHalf,
        DamageKind::Stale => Damage::Stale { older: older()? },
        DamageKind::Cut => Damage::Cut,
        DamageKind::CutAtBlock => Damage::CutAtBlock,
        DamageKind::MissingSegment => Damage::MissingSegment,
    })
}

fn record(
    outcome: CorruptOutcome,
    arguments: &CorruptArguments,
    wound: &Wound,
    block: Option<u64>,
    undo: &Path,
) -> CorruptRecord {
    let kind = arguments.kind.and_then(|kind| clap::ValueEnum::to_possible_value(&kind));
    CorruptRecord {
        schema: CORRUPT_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        outcome,
        data: arguments.data.display().to_string(),
        file: wound.file.display().to_string(),
        block,
        kind: kind.map(|kind| kind.get_name().to_owned()),
        seed: arguments.seed,
        bytes_before: wound.length,
        bytes_after: wound.length_after,
        undo_file: undo.display().to_string(),
    }
}

fn deliver(record: &CorruptRecord, json: bool, printer: &mut Printer) {
    let file = printable(&record.file);
    let text = match record.outcome {
        // It is made of strings and numbers.
        _ if json => serde_json::to_string_pretty(record).unwrap_or_default() + "\n",
        CorruptOutcome::Undone => format!("{file} is as it was.\n"),
        CorruptOutcome::Damaged => {
            let kind = record.kind.as_deref().unwrap_or_default();
            let block = record.block.unwrap_or_default();
            let (data, undo) = (printable(&record.data), printable(&record.undo_file));
            format!(
                "{file} block {block}: {kind}\n\
                 as it was again: pgtoll corrupt {data} --undo {undo}\n"
            )
        }
    };
    printer.data(&text);
}

fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
