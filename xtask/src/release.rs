//! A release: everything that is published with a version, made of what is committed, and tried. A person
//! publishes it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, bail};
use serde_json::json;

use crate::dist::{self, check, zig};
use crate::{
    command, deny, installed, layers, manifests, output, packagers, root, run, say, words,
};

/// `VERSION [--dry-run]` makes the release, `--check` tries what was made.
pub(crate) fn release(options: &[&str]) -> anyhow::Result<()> {
    match options {
        ["--check"] => check_all(),
        [version] => make(version, false),
        [version, "--dry-run"] | ["--dry-run", version] => make(version, true),
        _ => bail!("release takes VERSION, VERSION --dry-run, or --check"),
    }
}

/// Every package, the packagers' files, and the programs of the other architecture.
fn check_all() -> anyhow::Result<()> {
    let directory = dist::place();
    if !directory.join("SHA256SUMS").is_file() {
        bail!("nothing was made\nhint: cargo xtask release VERSION --dry-run");
    }
    let mut steps = Steps::default();
    steps.step("checksums", || {
        run(command("sha256sum").args(["--check", "--quiet", "SHA256SUMS"]).current_dir(&directory))
    })?;
    steps.step("packagers' files", || packagers::check(&directory))?;
    steps.step("tests of aarch64, emulated", emulated_tests)?;
    steps.step("packages in clean roots", || check::all(&directory))?;
    steps.print();
    Ok(())
}

/// The crates that are published. They have code for one architecture or another, or read bytes in an
/// order: so their tests run emulated, too.
const PUBLISHED: [&str; 3] = ["pgtoll-checksum", "pgtoll-format", "pgtoll-stats"];
/// The version of cargo-semver-checks.
const SEMVER_CHECKS: &str = "0.51.0";
const OTHER: &str = "aarch64-unknown-linux-musl";

/// The kernels of page checksums against their definition, and what reads pages and WAL.
fn emulated_tests() -> anyhow::Result<()> {
    let packages = PUBLISHED.iter().flat_map(|name| ["--package", name]);
    run(zig::cargo("test")?
        .args(["--locked", "--lib", "--tests", "--target", OTHER])
        .args(packages)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUNNER", "qemu-aarch64"))
}

fn make(version: &str, is_dry: bool) -> anyhow::Result<()> {
    let mut steps = Steps::default();
    let present = present_version()?;
    is_later(version, &present)?;
    let section = section(&fs::read_to_string(root().join("CHANGELOG.md"))?)?;
    steps.step("the tree is committed", is_clean)?;
    steps.step("layers and words", || layers::check().and_then(|()| words::check()))?;
    steps.step("licences and advisories", deny::check)?;
    steps.step("manifests", manifests::check)?;
    steps.step("records, schemas and pages are current", are_generated_current)?;
    let tree = Tree::new()?;
    steps.step("the version's commit", || tree.set_version(&present, version))?;
    steps.step("crates", || tree.crates())?;
    steps.step("interfaces of the crates", || tree.interfaces())?;
    steps.step("packages", || tree.packages())?;
    let directory = dist::place();
    if directory.exists() {
        fs::remove_dir_all(&directory).context("remove older packages")?;
    }
    run(command("cp").arg("-r").arg(tree.place.join("target/dist")).arg(&directory))?;
    let made = Made { version, section: &section, directory: &directory, commit: tree.commit()? };
    steps.step("provenance and notes", || made.describe())?;
    if !is_dry {
        run(command("git").args(["merge", "--ff-only", &made.commit]))?;
        run(command("git").args(["tag", "--annotate", "--message"]).args([
            format!("pgtoll {version}"),
            format!("v{version}"),
            made.commit.clone(),
        ]))?;
        say(&format!("xtask: to publish: git push origin HEAD v{version}, then target/dist"));
    }
    steps.print();
    made.print()
}

/// The times of what was done.
#[derive(Default)]
struct Steps(Vec<(&'static str, f64)>);

impl Steps {
    fn step(
        &mut self,
        name: &'static str,
        work: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        say(&format!("xtask: release: {name}"));
        let start = Instant::now();
        work().with_context(|| name.to_owned())?;
        self.0.push((name, start.elapsed().as_secs_f64()));
        Ok(())
    }

    fn print(&self) {
        for (name, seconds) in &self.0 {
            say(&format!("xtask: release: {seconds:>7.1} s  {name}"));
        }
    }
}

fn present_version() -> anyhow::Result<String> {
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml"))?.parse()?;
    let version = manifest["workspace"]["package"]["version"].as_str();
    Ok(version.context("read the version in Cargo.toml")?.to_owned())
}

/// Three numbers, and more than the present ones.
fn is_later(version: &str, present: &str) -> anyhow::Result<()> {
    let numbers = |text: &str| -> Option<[u32; 3]> {
        let numbers =
            text.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u32>>>()?;
        numbers.try_into().ok()
    };
    let Some(wanted) = numbers(version) else {
        bail!("{version} is no version\nhint: three numbers, as in 1.0.0");
    };
    if numbers(present).is_some_and(|present| wanted <= present) {
        bail!("{version} is no later version than {present}");
    }
    Ok(())
}

/// The news for users: the section that is not released yet.
fn section(changelog: &str) -> anyhow::Result<String> {
    let (_, behind) = changelog
        .split_once(&format!("\n{UNRELEASED}\n"))
        .with_context(|| format!("CHANGELOG.md has no section {UNRELEASED}"))?;
    let section = behind.split("\n## ").next().unwrap_or_default().trim();
    if section.is_empty() {
        bail!("CHANGELOG.md says nothing under {UNRELEASED}");
    }
    Ok(section.to_owned())
}

const UNRELEASED: &str = "## Unreleased";

fn is_clean() -> anyhow::Result<()> {
    let changed = output(command("git").args(["status", "--porcelain"]))?;
    if let Some(first) = changed.lines().next() {
        bail!("{} files are not committed, as {}", changed.lines().count(), first.trim());
    }
    Ok(())
}

/// Makes what is made from code and records, and looks whether anything changed.
fn are_generated_current() -> anyhow::Result<()> {
    crate::checks::generate()?;
    is_clean().context("hint: commit what cargo xtask generate wrote")
}

/// A tree of its own with what is committed: the one that is worked in stays as it is.
struct Tree {
    place: PathBuf,
}

impl Tree {
    fn new() -> anyhow::Result<Self> {
        let place = root().join("target/release-tree");
        if place.join(".git").exists() {
            // Left of an earlier release, with its build, which makes this one faster.
            let head = output(command("git").args(["rev-parse", "HEAD"]))?;
            let args = ["checkout", "--quiet", "--force", "--detach", head.trim()];
            run(command("git").args(args).current_dir(&place))?;
        } else {
            run(command("git").args(["worktree", "prune"]))?;
            run(command("git").args(["worktree", "add", "--detach"]).arg(&place).arg("HEAD"))?;
        }
        Ok(Self { place })
    }

    /// Changes the version where it is written, and commits that here.
    fn set_version(&self, present: &str, version: &str) -> anyhow::Result<()> {
        let date = output(command("date").args(["-u", "+%Y-%m-%d"]))?;
        self.replace(
            "Cargo.toml",
            &format!("\nversion = \"{present}\"\n"),
            &format!("\nversion = \"{version}\"\n"),
        )?;
        self.replace(
            "CHANGELOG.md",
            &format!("\n{UNRELEASED}\n"),
            &format!("\n## {version} ({})\n", date.trim()),
        )?;
        run(command("cargo").args(["update", "--workspace", "--quiet"]).current_dir(&self.place))?;
        let message = format!("Release {version}");
        run(command("git")
            .args(["commit", "--quiet", "--all", "-m", &message])
            .current_dir(&self.place))
    }

    fn replace(&self, file: &str, from: &str, to: &str) -> anyhow::Result<()> {
        let path = self.place.join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("read {file}"))?;
        if text.matches(from).count() != 1 {
            bail!("{file} has not one line {:?}", from.trim());
        }
        fs::write(&path, text.replace(from, to)).with_context(|| format!("write {file}"))
    }

    /// As they would be published: each built from its package alone.
    fn crates(&self) -> anyhow::Result<()> {
        let packages = PUBLISHED.iter().flat_map(|name| ["--package", name]);
        run(command("cargo")
            .args(["publish", "--dry-run", "--locked"])
            .args(packages)
            .current_dir(&self.place))
    }

    /// Against the last release: what changed for those who use the crates has to be in the version.
    fn interfaces(&self) -> anyhow::Result<()> {
        let tags = output(command("git").args(["tag", "--list", "v*", "--sort=-version:refname"]))?;
        let Some(last) = tags.lines().next() else {
            say("xtask: interfaces: NOT COMPARED: nothing was released before");
            return Ok(());
        };
        let program = installed("cargo-semver-checks", SEMVER_CHECKS, &[])?;
        let packages = PUBLISHED.iter().flat_map(|name| ["--package", name]);
        run(command(&program.to_string_lossy())
            .args(["semver-checks", "--baseline-rev", last])
            .args(packages)
            .current_dir(&self.place))
    }

    /// With the tree's own cargo and xtask, as anybody would who has the tag.
    fn packages(&self) -> anyhow::Result<()> {
        run(command("cargo")
            .args(["xtask", "dist", "--target", "x86_64-unknown-linux-musl", "--target", OTHER])
            .current_dir(&self.place))
    }

    fn commit(&self) -> anyhow::Result<String> {
        let commit = output(command("git").args(["rev-parse", "HEAD"]).current_dir(&self.place))?;
        Ok(commit.trim().to_owned())
    }
}

/// The packages of a version.
struct Made<'a> {
    version: &'a str,
    section: &'a str,
    directory: &'a Path,
    commit: String,
}

impl Made<'_> {
    /// Says how it was made, and what is new, in files beside it.
    fn describe(&self) -> anyhow::Result<()> {
        let sums = fs::read_to_string(self.directory.join("SHA256SUMS"))?;
        let statement = self.provenance(&sums)?;
        let name = format!("pgtoll-{}.provenance.json", self.version);
        fs::write(self.directory.join(name), serde_json::to_string_pretty(&statement)? + "\n")?;
        let mut notes =
            format!("# pgtoll {}\n\n{}\n\n## Checksums\n\n", self.version, self.section);
        let _ = writeln!(notes, "```text\n{sums}```");
        fs::write(self.directory.join("NOTES.md"), notes).context("write the notes")
    }

    /// In the form of SLSA, version 1, without a signature: who publishes it signs it.
    fn provenance(&self, sums: &str) -> anyhow::Result<serde_json::Value> {
        let repository = "https://github.com/pgtoll/pgtoll";
        let subjects = sums.lines().filter_map(|line| line.split_once("  "));
        let subjects =
            subjects.map(|(sum, name)| json!({ "name": name, "digest": { "sha256": sum } }));
        let rustc = output(command("rustc").arg("--version"))?;
        Ok(json!({
            "_type": "https://in-toto.io/Statement/v1",
            "subject": subjects.collect::<Vec<_>>(),
            "predicateType": "https://slsa.dev/provenance/v1",
            "predicate": {
                "buildDefinition": {
                    "buildType": format!("{repository}/blob/main/MAINTAINING.md"),
                    "externalParameters": { "version": self.version },
                    "internalParameters": { "rustc": rustc.trim(), "profile": "distribution" },
                    "resolvedDependencies": [{
                        "uri": format!("git+{repository}"),
                        "digest": { "gitCommit": self.commit },
                    }],
                },
                "runDetails": { "builder": { "id": format!("{repository}#cargo-xtask-release") } },
            },
        }))
    }

    fn print(&self) -> anyhow::Result<()> {
        let sums = fs::read_to_string(self.directory.join("SHA256SUMS"))?;
        for name in sums.lines().filter_map(|line| line.split_once("  ")).map(|(_, name)| name) {
            let bytes = fs::metadata(self.directory.join(name))?.len();
            say(&format!("xtask: release: {:>7} kB  {name}", bytes.div_ceil(1000)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_later_version_of_three_numbers_is_released() {
        for (version, is_right) in [
            ("1.0.0", true),
            ("0.1.1", true),
            ("0.1.0", false),
            ("0.0.9", false),
            ("1.0", false),
            ("1.0.0-rc1", false),
        ] {
            assert_eq!(is_later(version, "0.1.0").is_ok(), is_right, "{version}");
        }
    }

    #[test]
    fn notes_are_the_section_that_is_not_released() {
        let changelog = "# Changelog\n\n## Unreleased\n\n### A\n\n* a\n\n## 0.9.0\n\n* b\n";
        assert_eq!(section(changelog).unwrap(), "### A\n\n* a");
        assert!(section("# Changelog\n\n## Unreleased\n\n## 0.9.0\n").is_err());
        assert!(section("# Changelog\n\n## 0.9.0\n\n* b\n").is_err());
    }
}
