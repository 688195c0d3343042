//! A backup that pgtoll verifies, from a file and from a store.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use pgtoll_record::trials::{FleetBenchCase, FleetBenchPlace, FleetBenchRead};
use pgtoll_testing::{MadeObject as _, ObjectServer};
use pgtoll_trials::{Measured, beside, measured, warm};
use tempfile::TempDir;

use crate::made::MadeBackup;

/// In this order in tables.
pub(crate) const PLACES: [FleetBenchPlace; 2] = [FleetBenchPlace::File, FleetBenchPlace::Store];

const KEY: &str = "backups/main/base.tar";

/// The backup, served, and in a file where that was asked for.
pub(crate) struct BenchBackup {
    bytes: u64,
    server: ObjectServer,
    file: Option<(TempDir, PathBuf)>,
    pgtoll: PathBuf,
}

impl BenchBackup {
    pub(crate) fn make(bytes: u64, file_in: Option<&Path>) -> anyhow::Result<Self> {
        let made = Arc::new(MadeBackup::from_bytes(bytes)?);
        let file = file_in.map(|base| write(&made, base)).transpose()?;
        let server = ObjectServer::start();
        let bytes = made.bytes();
        server.put_made(KEY, made);
        Ok(Self { bytes, server, file, pgtoll: beside("pgtoll")? })
    }

    /// Verifies it; anything but sound is an error.
    pub(crate) fn read(
        &self,
        case: FleetBenchCase,
        repetition: u32,
        place: FleetBenchPlace,
    ) -> anyhow::Result<FleetBenchRead> {
        let place_of = match place {
            FleetBenchPlace::Store => format!("s3://{KEY}"),
            FleetBenchPlace::File => {
                let (_, path) = self.file.as_ref().context("the backup has no file")?;
                warm(path)?;
                path.display().to_string()
            }
        };
        let arguments = ["verify", &place_of, "--jobs", "1"];
        let Measured { usage, peak_kb, .. } =
            measured(&self.pgtoll, &arguments, &self.server.environment())?;
        Ok(FleetBenchRead {
            case,
            repetition,
            place,
            packing: None,
            bytes: self.bytes,
            objects: None,
            unpacked_bytes: None,
            usage,
            peak_kb,
        })
    }
}

/// Writes it to a file, which is then in the page cache as a reader left it.
fn write(made: &MadeBackup, base: &Path) -> anyhow::Result<(TempDir, PathBuf)> {
    let directory = TempDir::new_in(base).context("make a directory for the backup")?;
    let path = directory.path().join("base.tar");
    let mut file = BufWriter::with_capacity(1 << 20, File::create(&path)?);
    made.write(0..made.bytes(), &mut file).context("write the backup")?;
    file.flush()?;
    let file = file.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    file.sync_all()?;
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    Ok((directory, path))
}
