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
pub(crate) const PLACES: [FleetBenchPlace; 3] =
    [FleetBenchPlace::File, FleetBenchPlace::Store, FleetBenchPlace::Download];

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
        let verify = |place: String| ["verify".into(), place, "--jobs".into(), "1".into()].to_vec();
        let (program, arguments) = match place {
            FleetBenchPlace::Store => (&*self.pgtoll, verify(format!("s3://{KEY}"))),
            FleetBenchPlace::File => {
                let (_, path) = self.file.as_ref().context("the backup has no file")?;
                warm(path)?;
                (&*self.pgtoll, verify(path.display().to_string()))
            }
            FleetBenchPlace::Download => (Path::new("curl"), self.ranges()),
        };
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let Measured { usage, peak_kb, .. } =
            measured(program, &arguments, &self.server.environment())?;
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

    /// Arguments of curl: every range by itself, on one connection, to nowhere.
    fn ranges(&self) -> Vec<String> {
        let url = format!("{}/{KEY}", self.server.endpoint());
        let starts = (0..self.bytes).step_by(usize::try_from(RANGE_BYTES).unwrap_or(usize::MAX));
        let range = |start: u64| {
            let last = self.bytes.min(start + RANGE_BYTES) - 1;
            let range = format!("{start}-{last}");
            ["--next", "--silent", "--fail", "--output", "/dev/null", "--range", &range, &url]
                .map(str::to_owned)
        };
        starts.flat_map(range).skip(1).collect()
    }
}

/// As pgtoll asks for them.
const RANGE_BYTES: u64 = 8 << 20;

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
