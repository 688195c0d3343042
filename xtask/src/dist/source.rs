//! The sources with all crates that they need, to be built without a network, and what packagers of
//! distributions build them by.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::{Parts, anew, copy, epoch, read, write};
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
    run(command("tar")
        .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"])
        .args(["--mode=u=rwX,go=rX", "--use-compress-program=xz --threads=0"])
        .arg(format!("--mtime=@{}", epoch()?))
        .arg("--directory")
        .arg(&work)
        .arg("--create")
        .arg("--file")
        .arg(&archive)
        .arg(&name))?;
    let sum = output(command("sha256sum").arg(&archive))?;
    let sum = sum.split_whitespace().next().unwrap_or_default();
    for (from, to) in FILLED {
        write(&directory.join(to), filled(parts, from, Some(sum))?)?;
    }
    debian(parts, &work, &archive, directory)
}

/// Unpacks what is committed, nothing else of this directory.
fn committed(top: &Path) -> anyhow::Result<()> {
    let archive = top.with_extension("tar");
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
    write(&top.join(".cargo/config.toml"), word_beside_own(top, &word)?)
}

/// The repository has settings of its own there.
fn word_beside_own(top: &Path, word: &str) -> anyhow::Result<String> {
    let own = top.join(".cargo/config.toml");
    let own = if own.is_file() { read(&own)? } else { String::new() };
    Ok(format!("{own}\n{word}"))
}

/// A file of `packaging`, with the version and the sources' SHA-256 in it.
pub(super) fn filled(parts: &Parts, name: &str, sum: Option<&str>) -> anyhow::Result<String> {
    let text = read(&root().join("packaging").join(name))?;
    Ok(text
        .replace("@VERSION@", &parts.version)
        .replace("@SHA256@", sum.unwrap_or("@SHA256@"))
        .replace("@DATE@", &changelog_date("+%a %b %d %Y")?))
}

fn changelog_date(format: &str) -> anyhow::Result<String> {
    let mut date = command("date");
    date.args(["-u", format, "-d"]).arg(format!("@{}", epoch()?)).env("LC_ALL", "C");
    Ok(output(&mut date)?.trim().to_owned())
}

/// The source package: `.dsc` and `.debian.tar.xz` beside the sources under Debian's name.
fn debian(parts: &Parts, work: &Path, archive: &Path, directory: &Path) -> anyhow::Result<()> {
    let Parts { version, .. } = parts;
    let tree = work.join(format!("pgtoll-{version}"));
    run(command("cp").arg("-r").arg(root().join("packaging/debian")).arg(tree.join("debian")))?;
    write(&tree.join("debian/changelog"), super::deb::changelog(parts)?)?;
    write(&tree.join("debian/copyright"), super::deb::copyright(parts)?)?;
    let original = format!("pgtoll_{version}.orig.tar.xz");
    copy(archive, &work.join(&original))?;
    run(command("dpkg-source").arg("--build").arg(&tree).current_dir(work))?;
    for name in
        [original, format!("pgtoll_{version}-1.dsc"), format!("pgtoll_{version}-1.debian.tar.xz")]
    {
        copy(&work.join(&name), &directory.join(&name))?;
    }
    Ok(())
}
