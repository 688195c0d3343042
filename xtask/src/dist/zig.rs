//! Programs for another machine than this one, by cargo-zigbuild: zig's C compiler and linker have all
//! that is needed for each machine, and pip has zig.

use std::path::PathBuf;
use std::process::Command;

use crate::command;
use crate::setup::fetch_python;

/// Below `target`.
const NAME: &str = "zigbuild-0.24.1";
const PACKAGES: &str = include_str!("../zigbuild.txt");

/// cargo-zigbuild with `zigbuild`, `test` or another of its subcommands.
pub(crate) fn cargo(subcommand: &str) -> anyhow::Result<Command> {
    let packages: PathBuf = fetch_python(NAME, PACKAGES)?;
    let mut cargo = command(&packages.join("bin/cargo-zigbuild").to_string_lossy());
    cargo.arg(subcommand);
    cargo.env("PYTHONPATH", &packages);
    cargo.env("CARGO_ZIGBUILD_CACHE_DIR", packages.join("cache"));
    Ok(cargo)
}
