//! Whose work pgtoll is built from, and under which licences. `deny.toml` says which ones may be.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

use crate::{command, output};

/// A crate that somebody else wrote.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// An SPDX expression, or nothing where its manifest has none.
    pub(crate) licence: String,
    directory: PathBuf,
}

/// The crates that go into the program, without those that only ran while it was built.
pub(crate) fn linked(target: &str) -> anyhow::Result<Vec<Package>> {
    let tree = output(
        command("cargo")
            .args(["tree", "--locked", "--package", "pgtoll", "--prefix", "none", "--no-dedupe"])
            .args(["--edges", "normal,no-proc-macro", "--format", "{p}", "--target", target]),
    )?;
    let names: BTreeSet<&str> = tree.lines().collect();
    let mut packages = packages(target)?;
    packages.retain(|package| {
        names.contains(format!("{} v{}", package.name, package.version).as_str())
    });
    Ok(packages)
}

/// The machine that this is, as rustc calls it.
pub(crate) fn host() -> anyhow::Result<String> {
    let version = output(command("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("read rustc's host")?.to_owned())
}

/// All crates of others that a build for this target may use.
fn packages(target: &str) -> anyhow::Result<Vec<Package>> {
    let metadata = output(command("cargo").args([
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--filter-platform",
        target,
    ]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("read cargo's metadata")?;
    // `packages` has those of all platforms, `resolve` those of this one.
    let nodes = metadata["resolve"]["nodes"].as_array().context("read cargo's metadata")?;
    let used: BTreeSet<&str> = nodes.iter().filter_map(|node| node["id"].as_str()).collect();
    let of_others = metadata["packages"].as_array().into_iter().flatten().filter(|package| {
        !package["source"].is_null() && used.contains(package["id"].as_str().unwrap_or_default())
    });
    let text = |package: &Value, key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let package = |value: &Value| Package {
        name: text(value, "name"),
        version: text(value, "version"),
        licence: text(value, "license"),
        directory: PathBuf::from(text(value, "manifest_path"))
            .parent()
            .unwrap_or(Path::new(""))
            .into(),
    };
    Ok(of_others.map(package).collect())
}

/// Every crate with its licence, then each text once, with the crates that it came with.
pub(crate) fn texts(packages: &[Package]) -> anyhow::Result<String> {
    let mut all = "pgtoll's program contains these crates:\n\n".to_owned();
    let mut texts: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for package in packages {
        let files = licence_files(&package.directory)?;
        let remark = if files.is_empty() { ", without a text of its own" } else { "" };
        let Package { name, version, licence, .. } = package;
        let _ = writeln!(all, "  {name} {version}: {licence}{remark}");
        for file in files {
            let text = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
            let text = String::from_utf8_lossy(&text).trim_end().to_owned();
            texts.entry(text).or_default().push(&package.name);
        }
    }
    for (text, names) in &texts {
        let _ = write!(all, "\n{}\n{}:\n\n{text}\n", "-".repeat(72), names.join(", "));
    }
    Ok(all)
}

fn licence_files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))?;
    let is_licence = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        let starts = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
        path.is_file() && starts.iter().any(|start| name.starts_with(start))
    };
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(is_licence).collect();
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_less_than_what_is_built_with() {
        let host = host().unwrap();
        let linked = linked(&host).unwrap();
        let has = |name: &str| linked.iter().any(|package| package.name == name);
        assert!(has("clap") && has("serde"), "{linked:?}");
        assert!(!has("insta") && !has("serde_derive") && !has("proptest"), "{linked:?}");
        assert!(texts(&linked).unwrap().contains("Permission is hereby granted"));
    }
}
