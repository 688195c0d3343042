//! The tarball: everything in one directory, to be unpacked anywhere.

use std::path::Path;

use super::{Parts, anew, copy};
use crate::{command, root, run};

pub(super) fn make(parts: &Parts, directory: &Path) -> anyhow::Result<()> {
    let Parts { version, target, .. } = parts;
    let name = format!("pgtoll-{version}-{}-linux", target.machine);
    let work = root().join("target/dist-work/tarball");
    let top = work.join(&name);
    anew(&top)?;
    copy(&parts.program, &top.join("pgtoll"))?;
    for file in ["LICENSE", "README.md", "CHANGELOG.md"] {
        copy(&root().join(file), &top.join(file))?;
    }
    for part in ["man", "completions", "licences"] {
        run(command("cp").arg("-r").arg(parts.files.join(part)).arg(&top))?;
    }
    let archive = directory.join(name.clone() + ".tar.gz");
    run(parts
        .tar(&work, &[name], &archive)
        .args(["--mode=u=rwX,go=rX", "--use-compress-program=gzip -9n"]))
}
