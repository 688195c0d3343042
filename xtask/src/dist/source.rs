//! The sources with all crates that they need, to be built without a network, and what packagers of
//! distributions build them by.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::{Parts, anew, copy, read, write};
use crate::{command, output, root, run};

/// Below `packaging`, with the version and the sources' checksum filled in; where they go.
const FILLED: [(&str, &str); 3] = [
    ("rpm/pgtoll.spec", "pgtoll.spec"),
    ("arch/PKGBUILD", "PKGBUILD"),
    ("homebrew/pgtoll.rb", "pgtoll.rb"),
];

pub(super) fn make(parts: &Parts, directory: &Path) -> anyhow::Result<()> {
    let Parts { version, .. } = parts;
    let name = format!("pgtoll-{version}");
    let work = root().join("target/dist-work/source");
    let top = work.join(&name);
    anew(&top)?;
    committed(&top)?;
    vendor(&top)?;
    let archive = directory.join(format!("{name}-vendored.tar.xz"));
    run(parts
        .tar(&work, &[name], &archive)
        .args(["--mode=u=rwX,go=rX", "--use-compress-program=xz --threads=0"]))?;
    let sum = output(command("sha256sum").arg(&archive))?;
    let sum = sum.split_whitespace().next().unwrap_or_default();
    for (from, to) in FILLED {
        write(&directory.join(to), filled(parts, from, sum)?)?;
    }
    debian(parts, &work, &archive, directory)
}

/// Unpacks what is committed, nothing else of this directory.
fn committed(top: &Path) -> anyhow::Result<()> {
    let archive = root().join("target/dist-work/committed.tar");
    run(command("git").args(["archive", "--format=tar", "--output"]).arg(&archive).arg("HEAD"))?;
    run(command("tar").arg("--directory").arg(top).arg("--extract").arg("--file").arg(&archive))?;
    fs::remove_file(&archive).context("remove the archive")
}

/// The crates of others, and cargo's word to take them from there.
fn vendor(top: &Path) -> anyhow::Result<()> {
    let word = output(
        command("cargo")
            .args(["vendor", "--quiet", "--locked", "--versioned-dirs", "vendor"])
            .current_dir(top),
    )?;
    // The repository has settings of its own there.
    let settings = top.join(".cargo/config.toml");
    write(&settings, read(&settings)? + "\n" + &word)
}

/// A file of `packaging`, with the version and the sources' SHA-256 in it.
pub(super) fn filled(parts: &Parts, name: &str, sum: &str) -> anyhow::Result<String> {
    let text = read(&root().join("packaging").join(name))?;
    Ok(text
        .replace("@VERSION@", &parts.version)
        .replace("@SHA256@", sum)
        .replace("@DATE@", &parts.date("+%a %b %d %Y")?))
}

/// The source package: `.dsc` and `.debian.tar.xz`. Debian calls the sources beside them otherwise.
fn debian(parts: &Parts, work: &Path, archive: &Path, directory: &Path) -> anyhow::Result<()> {
    let Parts { version, .. } = parts;
    let tree = work.join(format!("pgtoll-{version}"));
    run(command("cp").arg("-r").arg(root().join("packaging/debian")).arg(tree.join("debian")))?;
    write(&tree.join("debian/changelog"), super::deb::changelog(parts)?)?;
    write(&tree.join("debian/copyright"), super::deb::copyright(parts)?)?;
    let original = format!("pgtoll_{version}.orig.tar.xz");
    copy(archive, &work.join(&original))?;
    run(command("dpkg-source").arg("--build").arg(&tree).current_dir(work))?;
    for name in [format!("pgtoll_{version}-1.dsc"), format!("pgtoll_{version}-1.debian.tar.xz")] {
        copy(&work.join(&name), &directory.join(&name))?;
    }
    Ok(())
}
