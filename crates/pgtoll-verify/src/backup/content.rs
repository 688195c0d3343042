//! The files of a tar, and those among them that list others.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use super::source::TarFile;
use crate::manifest::{Inventory, MANIFEST};
use pgtoll_wal::{TarError, TarMember, TarMemberKind, TarMemberReader, TarStream};

/// The files of a tar.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) tar: PathBuf,
    /// The start of the data directory in it.
    pub(super) root: String,
    /// By their paths in the data directory, once all was read.
    pub(super) files: Inventory,
    /// The manifest that is in it, unpacked, or why it is not.
    pub(super) manifest: Option<io::Result<File>>,
    /// Its directory.
    manifest_root: String,
    /// The tablespaces that have tars of their own, where `tablespace_map` lists them.
    pub(super) tablespaces: Vec<u32>,
    /// It was read to its end.
    pub(super) is_whole: bool,
}

impl Content {
    /// Takes a member, before its bytes are read.
    pub(super) fn add<R: Read>(
        &mut self,
        member: &TarMember,
        stream: &mut TarStream<R>,
    ) -> Result<(), TarError> {
        let path = trimmed(&member.path);
        self.files.add(path.to_owned(), member.bytes);
        if member.kind != TarMemberKind::File {
            return Ok(());
        }
        let (root, name) = path.rsplit_once('/').unwrap_or(("", path));
        match name {
            MANIFEST if self.manifest.is_none() => {
                self.manifest = Some(unpacked(member, stream));
                root.clone_into(&mut self.manifest_root);
            }
            "tablespace_map" if self.tablespaces.is_empty() => {
                let mut bytes = vec![0; TABLESPACE_MAP_BYTES_MAX];
                let read = stream.read(&mut bytes)?;
                let text = String::from_utf8_lossy(&bytes[..read]);
                let oids = text.lines().filter_map(|line| line.split(' ').next()?.parse().ok());
                self.tablespaces = oids.collect();
            }
            _ => {}
        }
        Ok(())
    }

    /// Its end was reached, and the data directory begins here.
    pub(super) fn end(&mut self, tar: &TarFile, root: String) {
        if tar.tablespace.is_some() || !root.is_empty() {
            let all = std::mem::take(&mut self.files);
            self.files.is_cut = all.is_cut;
            for (path, bytes) in all.into_files() {
                if let Some(path) = within(&path, &root, tar.tablespace) {
                    self.files.add(path, bytes);
                }
            }
        }
        if self.manifest_root != root {
            // Another directory's.
            self.manifest = None;
        }
        (self.root, self.is_whole) = (root, true);
        self.tar.clone_from(&tar.path);
    }
}

/// The place of a tar's member in the data directory; `None`: outside of it.
pub(super) fn within(member: &str, root: &str, tablespace: Option<u32>) -> Option<String> {
    let path = trimmed(member);
    match tablespace {
        Some(oid) => Some(format!("pg_tblspc/{oid}/{path}")),
        None if root.is_empty() => Some(path.to_owned()),
        None => Some(path.strip_prefix(root)?.strip_prefix('/')?.to_owned()),
    }
}

fn trimmed(member: &str) -> &str {
    member.trim_start_matches("./").trim_start_matches('/')
}

/// In a file without a name, since it may come before the files that it lists.
fn unpacked<R: Read>(member: &TarMember, stream: &mut TarStream<R>) -> io::Result<File> {
    if member.bytes > MANIFEST_BYTES_MAX {
        return Err(io::Error::other("it is longer than pgtoll unpacks to read it"));
    }
    let mut file = tempfile::tempfile()?;
    io::copy(&mut TarMemberReader { stream }, &mut file)?;
    Ok(file)
}

const TABLESPACE_MAP_BYTES_MAX: usize = 1 << 20;
/// Some seven million files.
const MANIFEST_BYTES_MAX: u64 = 1 << 30;
