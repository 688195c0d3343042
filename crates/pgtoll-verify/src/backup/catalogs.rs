//! Names of relations from the catalogs in tars.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use pgtoll_format::ForkNumber;
use pgtoll_format::catalog::{PG_CLASS, PG_DATABASE, PG_INDEX, PG_NAMESPACE, PG_TABLESPACE};

use super::TarBackup;
use super::member_path::{MemberKind, MemberPath};
use super::source::TarFile;
use pgtoll_datadir::DatadirError;
use pgtoll_datadir::Names;
use pgtoll_wal::{TarMemberKind, TarMemberReader, TarStream};

impl TarBackup {
    /// The names of the relations in these tars. They are read once more for that, and the few
    /// catalogs that have names are unpacked into a temporary directory, which is gone afterwards.
    ///
    /// Catalogs that were rewritten since `initdb` are not found under their numbers; what is
    /// missing is counted, as in a data directory ([`Names::unread`]).
    pub fn names(&self) -> Result<Names, DatadirError> {
        let read = |source| DatadirError::Read { path: self.path.clone(), source };
        // Other users may not put links into it.
        let private = Permissions::from_mode(0o700);
        let place = tempfile::Builder::new().permissions(private).tempdir().map_err(read)?;
        let mut left = UNPACKED_MAX;
        for tar in self.tars.iter().chain(&self.beside) {
            let unpacked = unpack(tar, place.path(), &mut left);
            unpacked.map_err(|source| DatadirError::Read { path: tar.path.clone(), source })?;
        }
        Names::of_data_directory(place.path())
    }
}

/// Writes what names need to where a data directory has it.
fn unpack(tar: &TarFile, to: &Path, left: &mut u64) -> io::Result<()> {
    let mut stream = TarStream::new(tar.unpacked()?);
    while let Some(member) = stream.next_member()? {
        let path = needed(&member.path, tar.tablespace);
        let Some(path) = path.filter(|_| member.kind == TarMemberKind::File) else { continue };
        *left = left.checked_sub(member.bytes).ok_or_else(|| {
            io::Error::other("its catalogs are larger than pgtoll unpacks to read names")
        })?;
        let path = to.join(path);
        fs::create_dir_all(path.parent().unwrap_or(to))?;
        let mut reader = TarMemberReader { stream: &mut stream };
        io::copy(&mut reader, &mut File::create(path)?)?;
    }
    Ok(())
}

/// Returns its place in a data directory, from the meaning of its path: no name leads elsewhere.
pub(super) fn needed(member: &str, tablespace: Option<u32>) -> Option<PathBuf> {
    let place = MemberPath::new(member, tablespace);
    let is_needed = match place.kind {
        MemberKind::Control => true,
        MemberKind::Relation(relation, name) => {
            name.backend.is_none()
                && name.fork == ForkNumber::MAIN
                && CATALOGS.contains(&relation.rel_number)
        }
        MemberKind::Own if place.path.ends_with("/pg_filenode.map") => true,
        _ => return of_transactions(member),
    };
    let below = tablespace.map_or_else(String::new, |oid| format!("pg_tblspc/{oid}/"));
    is_needed.then(|| PathBuf::from(below + place.path))
}

/// Files of `pg_xact` and `pg_multixact`, which have hexadecimal numbers for names.
fn of_transactions(path: &str) -> Option<PathBuf> {
    let (directory, name) = path.rsplit_once('/')?;
    let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    let places = ["pg_xact", "pg_multixact/offsets", "pg_multixact/members"];
    let place = places.iter().find(|place| directory.ends_with(*place))?;
    is_number.then(|| Path::new(place).join(name))
}

/// The catalogs with names in them, whose files have these numbers from `initdb` on.
const CATALOGS: [u32; 5] = [PG_CLASS, PG_DATABASE, PG_INDEX, PG_NAMESPACE, PG_TABLESPACE];
const UNPACKED_MAX: u64 = 4 << 30;
