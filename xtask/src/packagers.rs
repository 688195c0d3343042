//! The files for packagers, each read by its own tool.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};

use crate::dist::names_in;
use crate::{command, output, root, run};

/// Tools, and their packages of Debian.
const TOOLS: [(&str, &str); 7] = [
    ("lintian", "lintian"),
    ("rpmlint", "rpmlint"),
    ("rpmbuild", "rpm"),
    ("makepkg", "makepkg"),
    // makepkg asks it for what is installed.
    ("pacman", "pacman-package-manager"),
    ("nix-instantiate", "nix-bin"),
    ("ruby", "ruby"),
];

/// Fails on what a tool calls an error.
pub(crate) fn check(directory: &Path) -> anyhow::Result<()> {
    let missing = TOOLS.iter().filter(|(tool, _)| command(tool).arg("--version").output().is_err());
    let missing: Vec<&str> = missing.map(|(_, package)| *package).collect();
    if !missing.is_empty() {
        bail!(
            "{} missing\nhint: apt-get install --no-install-recommends {}",
            missing.join(" and "),
            missing.join(" ")
        );
    }
    let names = names_in(directory)?;
    let vendored = one(&names, "-vendored.tar.xz")?;
    let work = root().join("target/dist-work/packagers");
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    fs::create_dir_all(&work)?;
    debian(directory, &work, &names, vendored)?;
    for name in with_ending(&names, "spec") {
        run(command("rpmlint").arg(directory.join(name)))?;
    }
    let signature = root().join("packaging/rpm/pgtoll.rpmlintrc");
    for name in with_ending(&names, "rpm") {
        run(command("rpmlint").arg("--rpmlintrc").arg(&signature).arg(directory.join(name)))?;
    }
    arch(directory, &work)?;
    run(command("ruby").arg("-c").arg(directory.join("pgtoll.rb")))?;
    output(command("nix-instantiate").args(["--parse", "flake.nix"]))?;
    offline(directory, &work, vendored)
}

/// Checks that look for minutes into 20,000 files of other crates, and find warnings at most.
const SLOW: &str = "cruft,binaries/corrupted,files/contents/line-length";

/// The source package beside its sources, as an archive has them, and the packages.
fn debian(directory: &Path, work: &Path, names: &[String], vendored: &str) -> anyhow::Result<()> {
    let description = one(names, ".dsc")?;
    let version = description.trim_start_matches("pgtoll_").trim_end_matches("-1.dsc");
    for name in [description, one(names, ".debian.tar.xz")?] {
        fs::copy(directory.join(name), work.join(name))?;
    }
    let original = work.join(format!("pgtoll_{version}.orig.tar.xz"));
    fs::copy(directory.join(vendored), original)?;
    let lintian = || {
        let mut lintian = command("lintian");
        lintian.args(["--allow-root", "--fail-on", "error"]).env("LC_ALL", "C.UTF-8");
        lintian
    };
    run(lintian().args(["--dont-check-part", SLOW]).arg(work.join(description)))?;
    let packages = with_ending(names, "deb");
    packages.map(|name| directory.join(name)).try_for_each(|path| run(lintian().arg(path)))
}

/// makepkg works for no root.
fn arch(directory: &Path, work: &Path) -> anyhow::Result<()> {
    let place = work.join("arch");
    fs::create_dir_all(&place)?;
    fs::copy(directory.join("PKGBUILD"), place.join("PKGBUILD"))?;
    run(command("chmod").args(["-R", "a+rwX"]).arg(&place))?;
    let mut makepkg = command("setpriv");
    makepkg.args(["--reuid=65534", "--clear-groups", "makepkg", "--printsrcinfo"]);
    makepkg.current_dir(&place).env("HOME", &place);
    let information = output(&mut makepkg)?;
    if !information.contains("pkgname = pgtoll") {
        bail!("makepkg reads no package in PKGBUILD");
    }
    Ok(())
}

/// The sources compile with no network at all.
fn offline(directory: &Path, work: &Path, vendored: &str) -> anyhow::Result<()> {
    let place = work.join("offline");
    fs::create_dir_all(&place)?;
    run(command("tar")
        .args(["--strip-components=1", "-xJf"])
        .arg(directory.join(vendored))
        .arg("-C")
        .arg(&place))?;
    run(command("unshare")
        .args([
            "--net",
            "cargo",
            "check",
            "--quiet",
            "--offline",
            "--locked",
            "--package",
            "pgtoll",
        ])
        .current_dir(&place)
        .env("CARGO_TARGET_DIR", root().join("target/dist-work/offline")))
}

fn with_ending<'a>(names: &'a [String], ending: &str) -> impl Iterator<Item = &'a String> {
    names
        .iter()
        .filter(move |name| Path::new(name).extension().is_some_and(|found| found == ending))
}

fn one<'a>(names: &'a [String], end: &str) -> anyhow::Result<&'a str> {
    let found = names.iter().find(|name| name.ends_with(end));
    Ok(found.with_context(|| format!("no file *{end} was made"))?)
}
