//! A base backup in tars as a source: its control file, its label and the wanted blocks, read in one pass.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use pgtoll_datadir::{DataDirectory, DatadirError, backup_label_start};
use pgtoll_format::{CONTROL_FILE_BYTES, ControlFile, Lsn, RelationFork};
use pgtoll_wal::{Lineage, Packing, TarMemberKind, TarStream};

use super::fetched::FetchedPages;
use super::refusal::SourceRefusal;
use super::source::{PageSource, RelationBlocks, foreign_control, label_timeline};
use super::{DamagedBlock, RepairError};

/// The content of the tars that is read.
#[derive(Default)]
struct TarContents {
    control: Option<Vec<u8>>,
    label: Option<String>,
    pages: FetchedPages,
}

/// A block that is wanted, and where it is in its file, in bytes.
type WantedBlock = (u64, RelationFork, u32);

/// The tars of the backup at this path: a tar itself, or a directory with a `base.tar`, packed or not,
/// and with those of its tablespaces. None where it is something else.
pub(super) fn backup_tars(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return Packing::of_tar(path).map(|_| path.to_owned()).into_iter().collect();
    }
    if path.join("PG_VERSION").exists() {
        return Vec::new();
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut tars: Vec<PathBuf> =
        entries.filter(|entry| is_base(entry) || tablespace(entry).is_some()).collect();
    tars.sort();
    if tars.iter().any(|tar| is_base(tar)) { tars } else { Vec::new() }
}

/// The tar of its WAL beside it.
fn wal_beside(base: &Path) -> Option<PathBuf> {
    let directory = if base.is_dir() { base } else { base.parent()? };
    let names = ["pg_wal.tar", "pg_wal.tar.gz", "pg_wal.tar.lz4", "pg_wal.tar.zst"];
    names.iter().map(|name| directory.join(name)).find(|path| path.is_file())
}

/// Reads the tars of a backup. The error within is why nothing may be taken from it.
pub(super) fn open(
    path: &Path,
    tars: &[PathBuf],
    target: &DataDirectory,
    lineage: &Lineage,
    damaged: &[DamagedBlock],
) -> Result<Result<PageSource, SourceRefusal>, RepairError> {
    let blocks = RelationBlocks::from_data(target);
    let wanted = wanted_blocks(&blocks, &target.path, damaged);
    let mut found = TarContents::default();
    for tar in tars {
        let read = read_tar(tar, &wanted, blocks.block_bytes(), &mut found);
        if let Err(error) = read {
            return Ok(Err(SourceRefusal::Tar { path: tar.clone(), error }));
        }
    }
    let Some(bytes) = found.control else {
        return Ok(Err(SourceRefusal::NoControlFile));
    };
    let control = ControlFile::read(&bytes).map_err(|source| {
        let path = path.join("global/pg_control");
        DatadirError::Control { path, source }
    })?;
    if let Some(reason) = foreign_control(&control, &target.control) {
        return Ok(Err(reason));
    }
    let Some(label) = found.label else {
        return Ok(Err(SourceRefusal::NoLabelInTars));
    };
    let Some(start) = backup_label_start(&label).filter(|start| *start > Lsn(0)) else {
        return Ok(Err(SourceRefusal::LabelWithoutBegin));
    };
    let timeline = label_timeline(&label).unwrap_or(control.last_checkpoint.timeline);
    let wal = wal_beside(path);
    Ok(PageSource::of_backup(found.pages, &control, start, timeline, wal, target, lineage))
}

/// The wanted blocks by the names of their files below the data directory, each in the order of the file.
fn wanted_blocks(
    blocks: &RelationBlocks,
    data: &Path,
    damaged: &[DamagedBlock],
) -> HashMap<String, Vec<WantedBlock>> {
    let mut wanted = HashMap::<String, Vec<WantedBlock>>::new();
    for damaged in damaged {
        let Some((path, at)) = blocks.place(damaged.fork, damaged.block) else { continue };
        let Ok(below) = path.strip_prefix(data) else { continue };
        let name = below.to_string_lossy().into_owned();
        wanted.entry(name).or_default().push((at, damaged.fork, damaged.block));
    }
    for item in wanted.values_mut() {
        item.sort_unstable_by_key(|(at, ..)| *at);
    }
    wanted
}

fn read_tar(
    path: &Path,
    wanted: &HashMap<String, Vec<WantedBlock>>,
    block_bytes: usize,
    found: &mut TarContents,
) -> io::Result<()> {
    let packing = Packing::of_tar(path).unwrap_or(Packing::Plain);
    let file: File = pgtoll_system::open(path)?;
    let input: Box<dyn Read + Send> = Box::new(io::BufReader::with_capacity(READ_BYTES, file));
    let mut stream = TarStream::new(packing.open(input)?);
    let tablespace = tablespace(path);
    while let Some(member) = stream.next_member().map_err(io::Error::other)? {
        if member.kind != TarMemberKind::File {
            continue;
        }
        let name = member.path.trim_start_matches("./");
        let name = match tablespace {
            Some(oid) => format!("pg_tblspc/{oid}/{name}"),
            None => name.to_owned(),
        };
        match name.as_str() {
            "global/pg_control" => found.control = Some(take(&mut stream, CONTROL_FILE_BYTES)?),
            "backup_label" => {
                let bytes = take(&mut stream, LABEL_BYTES_MAX)?;
                found.label = Some(String::from_utf8_lossy(&bytes).into_owned());
            }
            _ => {
                if let Some(blocks) = wanted.get(&name) {
                    read_blocks(&mut stream, blocks, block_bytes, &mut found.pages)?;
                }
            }
        }
    }
    Ok(())
}

/// The pages of these blocks of a member, as far as it has them.
fn read_blocks<R: Read>(
    stream: &mut TarStream<R>,
    blocks: &[WantedBlock],
    block_bytes: usize,
    pages: &mut FetchedPages,
) -> io::Result<()> {
    let mut at = 0_u64;
    let mut skipped = vec![0; READ_BYTES];
    for (begin, fork, block) in blocks {
        while at < *begin {
            let step = usize::try_from(*begin - at).unwrap_or(READ_BYTES).min(READ_BYTES);
            let read = stream.read(&mut skipped[..step]).map_err(io::Error::other)?;
            if read == 0 {
                return Ok(());
            }
            at += read as u64;
        }
        let page = take(stream, block_bytes)?;
        at += page.len() as u64;
        if page.len() == block_bytes {
            pages.insert((*fork, *block), Ok(page));
        }
    }
    Ok(())
}

/// Up to this many bytes of the member.
fn take<R: Read>(stream: &mut TarStream<R>, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; most];
    let mut filled = 0;
    while filled < most {
        match stream.read(&mut bytes[filled..]).map_err(io::Error::other)? {
            0 => break,
            read => filled += read,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

fn is_base(path: &Path) -> bool {
    stem(path) == Some("base")
}

/// Whose tar it is, by its name.
fn tablespace(path: &Path) -> Option<u32> {
    pgtoll_datadir::decimal(stem(path)?).filter(|oid| *oid > 0)
}

/// The name of a tar without its endings.
fn stem(path: &Path) -> Option<&str> {
    Packing::of_tar(path)?;
    let name = path.file_name()?.to_str()?;
    let (stem, _) = name.split_once(".tar").or_else(|| name.split_once(".tgz"))?;
    Some(stem)
}

const READ_BYTES: usize = 1 << 18;
const LABEL_BYTES_MAX: usize = 1 << 16;
