//! The package for Fedora and its relatives, by `rpmbuild` from the tarball and the one spec file.

use std::path::Path;

use super::source::filled;
use super::{Parts, anew, copy, write};
use crate::{command, root, run};

pub(super) fn make(parts: &Parts, directory: &Path) -> anyhow::Result<()> {
    let top = root().join("target/dist-work/rpm");
    anew(&top)?;
    let tarball = format!("pgtoll-{}-{}-linux.tar.gz", parts.version, parts.target.machine);
    copy(&directory.join(&tarball), &top.join("SOURCES").join(&tarball))?;
    let spec = top.join("pgtoll.spec");
    write(&spec, filled(parts, "rpm/pgtoll.spec", "")?)?;
    run(command("rpmbuild")
        .args(["-bb", "--quiet", "--with", "prebuilt", "--target"])
        .arg(format!("{}-linux", parts.target.machine))
        .arg("--define")
        .arg(format!("_topdir {}", top.display()))
        .arg("--define")
        .arg(format!("_rpmdir {}", directory.display()))
        .args(["--define", "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm"])
        .args(["--define", "packager the pgtoll developers <pgtoll@users.noreply.github.com>"])
        // The same bytes each time.
        .args([
            "--define",
            "_buildhost localhost",
            "--define",
            "use_source_date_epoch_as_buildtime 1",
        ])
        .args(["--define", "clamp_mtime_to_source_date_epoch 1"])
        .arg(&spec)
        .env("SOURCE_DATE_EPOCH", &parts.epoch))
}
