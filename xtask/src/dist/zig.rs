//! Programs for another machine than this one, by cargo-zigbuild: zig's C compiler and linker have all
//! that is needed for each machine, and pip has zig.

use std::path::PathBuf;
use std::process::Command;

use crate::command;
use crate::setup::fetch_python;

/// Below `target`.
const NAME: &str = "zigbuild-0.24.1";
const PACKAGES: &str = include_str!("../zigbuild.txt");

/// cargo with the subcommand `zigbuild`.
pub(super) fn cargo() -> anyhow::Result<Command> {
    let packages: PathBuf = fetch_python(NAME, PACKAGES)?;
    let path = std::env::var("PATH").unwrap_or_default();
    let mut cargo = command("cargo");
    cargo.env("PATH", format!("{}:{path}", packages.join("bin").display()));
    cargo.env("PYTHONPATH", &packages);
    cargo.env("CARGO_ZIGBUILD_CACHE_DIR", packages.join("cache"));
    Ok(cargo)
}
