//! `pgtoll corrupt`: damages a page on purpose, and puts it right again.

mod site;

use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::Context as _;
use pgtoll_alter::{Damage, DamagePlan, plan_damage};
use pgtoll_datadir::{RelationFile, relation_files};
use pgtoll_format::{ControlFile, ForkNumber};
use pgtoll_record::{CORRUPT_SCHEMA, CorruptOutcome, CorruptRecord, Status};
use pgtoll_report::Format;

use crate::arguments::{CorruptArguments, DamageKind};
use crate::commands::output;
use crate::mistakes::Usage;
use crate::printer::Printer;
use site::Site;

pub(crate) fn run(arguments: &CorruptArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    match &arguments.undo {
        Some(undo) => revert(undo, arguments, printer),
        None => apply(arguments, printer),
    }
}

fn apply(arguments: &CorruptArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    if !arguments.yes {
        let message = format!("{} would be damaged", arguments.data.display());
        return Err(Usage::error(message, "take a copy, or say --yes if you mean these data"));
    }
    // As root all is read, and the undo file written, before pgtoll becomes the owner.
    let undo = &arguments.undo_file;
    if fs::symlink_metadata(undo).is_ok() {
        return Err(undo_error(undo, &io::ErrorKind::AlreadyExists.into()));
    }
    let undo_path = std::path::absolute(undo).context("find the current directory")?;
    let mut site = Site::from_arguments(arguments)?;
    let (plan, file, block) = planned(arguments, &mut site)?;
    site.check(&plan, &file)?;
    plan.save(undo).map_err(|error| undo_error(undo, &error))?;
    let damaged = site.check(&plan, &file).and_then(|()| {
        site.take()?;
        Ok(plan.apply()?)
    });
    damaged.map_err(|error| without_damage(error, &plan, &undo_path))?;
    let record = record(CorruptOutcome::Damaged, arguments, &plan, Some(block), &undo_path);
    output::finish_on_stdout(record, arguments.format, printer)
}

fn undo_error(undo: &Path, error: &io::Error) -> anyhow::Error {
    let hint = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "nothing was damaged; free some space, or name another place with --undo-file"
        }
        _ => "nothing was damaged; name a new file with --undo-file",
    };
    Usage::error(format!("write {}: {error}", undo.display()), hint)
}

/// Takes the undo file away where there is nothing to undo, or says what became of it.
fn without_damage(error: anyhow::Error, plan: &DamagePlan, undo: &Path) -> anyhow::Error {
    if !plan.is_untouched() {
        return error.context(format!("undo it with --undo {}", undo.display()));
    }
    match fs::remove_file(undo) {
        Ok(()) => error,
        // Made by root, who is the directory's owner by now.
        Err(_) => error
            .context(format!("nothing was damaged; {} stays and undoes nothing", undo.display())),
    }
}

fn planned(
    arguments: &CorruptArguments,
    site: &mut Site,
) -> anyhow::Result<(DamagePlan, RelationFile, u64)> {
    let control = site.control().clone();
    let block_bytes = control.block_bytes as usize;
    let (file, block) = target(arguments, site, &control)?;
    let damage = kind(arguments, block, block_bytes)?;
    let plan = plan_damage(&file.path, block, block_bytes, &damage, arguments.seed)?;
    Ok((plan, file, block))
}

fn revert(
    undo: &Path,
    arguments: &CorruptArguments,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let plan = DamagePlan::load(undo)?;
    let mut site = Site::from_arguments(arguments)?;
    let Some(file) = plan.file_in(&arguments.data, site.control()) else {
        return Err(Usage::error(
            format!("{} is about {}", undo.display(), plan.file.display()),
            "name the data directory that this file is in",
        ));
    };
    site.check(&plan, &file)?;
    site.take()?;
    let is_reverted = plan.revert()?;
    let record = record(CorruptOutcome::Undone, arguments, &plan, None, undo);
    if !is_reverted && arguments.format.chosen() != Some(Format::Json) {
        printer.data("nothing to undo: ");
    }
    output::finish_on_stdout(record, arguments.format, printer)
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
    let Some(file) = list.files.into_iter().find(|file| file.path == path) else {
        let message = format!("{} is not a relation's file", path.display());
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
    let entry = names.iter().find(|(_, name)| name.to_string() == wanted).map(|(files, _)| files);
    let Some(item) = entry else {
        return Err(Usage::error(
            format!("{} holds no relation {wanted}", arguments.data.display()),
            "name it as database.schema.name, as the files call it",
        ));
    };
    let fork = ForkNumber(arguments.fork as u8);
    let mut files = files
        .into_iter()
        .filter(|file| (file.relation, file.name.fork, file.name.backend) == (item, fork, None));
    let segment = arguments.block.map(|block| block / u64::from(control.file_blocks));
    let file =
        files.find(|file| segment.is_none_or(|segment| u64::from(file.name.segment) == segment));
    file.ok_or_else(|| {
        let message = format!("{wanted} has no such file");
        Usage::error(message, "choose another --fork or --block")
    })
}

fn kind(arguments: &CorruptArguments, block: u64, block_bytes: usize) -> anyhow::Result<Damage> {
    let older = || -> anyhow::Result<Vec<u8>> {
        let path = arguments.older.as_ref().context("--older is missing")?;
        let file = pgtoll_system::open(path).with_context(|| format!("read {}", path.display()))?;
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
    plan: &DamagePlan,
    block: Option<u64>,
    undo: &Path,
) -> CorruptRecord {
    let kind = arguments.kind.and_then(|kind| clap::ValueEnum::to_possible_value(&kind));
    CorruptRecord {
        schema: CORRUPT_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        outcome,
        data: arguments.data.display().to_string(),
        file: plan.file.display().to_string(),
        block,
        kind: kind.map(|kind| kind.get_name().to_owned()),
        seed: arguments.seed,
        bytes_before: plan.length,
        bytes_after: plan.length_after,
        undo_file: undo.display().to_string(),
    }
}
