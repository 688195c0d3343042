//! Packages around one static program for each architecture, an image of both, and the sources.

pub(crate) mod check;
mod deb;
mod image;
mod rpm;
mod sbom;
mod source;
mod tarball;
mod wheel;
pub(crate) mod zig;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::{command, licences, output, root, run, say};

/// Makes everything in `target/dist`; with `--check` installs and runs it in clean roots.
pub(crate) fn dist(options: &[&str]) -> anyhow::Result<()> {
    let mut targets = Vec::new();
    let mut check = false;
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        match *option {
            "--check" => check = true,
            "--target" => {
                targets.push((*rest.next().context("--target takes a triple")?).to_owned());
            }
            _ => bail!("dist takes --check and --target TRIPLE"),
        }
    }
    if targets.is_empty() {
        targets.push(default_target()?);
    }
    let targets = targets.iter().map(|triple| Target::from_triple(triple));
    let targets = targets.collect::<anyhow::Result<Vec<_>>>()?;
    let directory = place();
    anew(&directory)?;
    make(&targets, &directory)?;
    if check {
        check::all(&directory)?;
    }
    Ok(())
}

/// The directory of all packages.
pub(crate) fn place() -> PathBuf {
    root().join("target/dist")
}

fn make(targets: &[Target], directory: &Path) -> anyhow::Result<()> {
    let mut all = Vec::new();
    for target in targets {
        let parts = Parts::make(*target)?;
        tarball::make(&parts, directory)?;
        deb::make(&parts, directory)?;
        rpm::make(&parts, directory)?;
        wheel::make(&parts, directory)?;
        sbom::make(&parts, directory)?;
        all.push(parts);
    }
    image::make(&all, directory)?;
    if let Some(parts) = all.first() {
        source::make(parts, directory)?;
    }
    sums(directory)
}

/// A machine to build for, and its names.
#[derive(Clone, Copy, Debug)]
struct Target {
    triple: &'static str,
    /// As Python, rpm and the tarball's name call it.
    machine: &'static str,
    /// As Debian and images call it.
    debian: &'static str,
}

/// musl before glibc: its licence asks for less, and it loads nothing at run time.
const TARGETS: [Target; 4] = [
    Target { triple: "x86_64-unknown-linux-musl", machine: "x86_64", debian: "amd64" },
    Target { triple: "x86_64-unknown-linux-gnu", machine: "x86_64", debian: "amd64" },
    Target { triple: "aarch64-unknown-linux-musl", machine: "aarch64", debian: "arm64" },
    Target { triple: "aarch64-unknown-linux-gnu", machine: "aarch64", debian: "arm64" },
];

impl Target {
    fn from_triple(triple: &str) -> anyhow::Result<Self> {
        let known = TARGETS.iter().find(|target| target.triple == triple);
        known.copied().with_context(|| {
            let names = TARGETS.map(|target| target.triple);
            format!("dist makes nothing for {triple}\nhint: it knows {}", names.join(", "))
        })
    }

    fn is_glibc(self) -> bool {
        self.triple.ends_with("gnu")
    }

    /// Whether this machine runs its programs.
    fn is_native(self) -> anyhow::Result<bool> {
        Ok(licences::host()?.starts_with(self.machine))
    }

    /// A command that runs a program of this target, where it is another machine's by an emulator.
    fn command(self, program: &Path) -> anyhow::Result<Command> {
        if self.is_native()? {
            return Ok(command(&program.to_string_lossy()));
        }
        let mut emulated = command(&format!("qemu-{}", self.machine));
        if emulated.arg("--version").output().is_err() {
            bail!(
                "no emulator of {} is here\nhint: apt-get install --no-install-recommends qemu-user",
                self.machine
            );
        }
        let mut emulated = command(&format!("qemu-{}", self.machine));
        emulated.arg(program);
        Ok(emulated)
    }
}

/// This machine's architecture, with musl where rustc has it.
fn default_target() -> anyhow::Result<String> {
    let host = licences::host()?;
    let musl = host.replace("-gnu", "-musl");
    let library = output(command("rustc").args(["--print", "target-libdir", "--target", &musl]))?;
    Ok(if Path::new(library.trim()).is_dir() { musl } else { host })
}

/// What all packages are made of.
#[derive(Debug)]
struct Parts {
    target: Target,
    version: String,
    description: String,
    repository: String,
    /// The time of the commit: everything made is dated so, and is made again the same.
    epoch: String,
    program: PathBuf,
    /// Manual pages, completions, licences: see `pgtoll __package`.
    files: PathBuf,
    packages: Vec<licences::Package>,
}

/// When the last commit was made, in seconds since 1970: the date of all packages.
fn epoch() -> anyhow::Result<String> {
    // What git itself prints of a directory without commits says nothing of packages.
    let requested =
        command("git").args(["log", "-1", "--format=%ct"]).output().context("run git")?;
    if !requested.status.success() {
        bail!("packages have the last commit's date: run this in a git checkout with a commit");
    }
    Ok(String::from_utf8_lossy(&requested.stdout).trim().to_owned())
}

impl Parts {
    fn make(target: Target) -> anyhow::Result<Self> {
        let metadata =
            output(command("cargo").args(["metadata", "--no-deps", "--format-version", "1"]))?;
        let metadata: Value = serde_json::from_str(&metadata).context("read cargo's metadata")?;
        let all = metadata["packages"].as_array().context("read cargo's metadata")?;
        let own =
            all.iter().find(|context| context["name"] == "pgtoll").context("find crate pgtoll")?;
        let text = |key: &str| own[key].as_str().unwrap_or_default().to_owned();
        let epoch = epoch()?;
        let program = build(target)?;
        let files = root().join("target/dist-work/files");
        anew(&files)?;
        run(target
            .command(&program)?
            .arg("__package")
            .arg(&files)
            .env("SOURCE_DATE_EPOCH", &epoch))?;
        let packages = licences::linked(target.triple)?;
        write_licences(target, &packages, &files.join("licences"))?;
        let version = text("version");
        let description = text("description");
        let repository = text("repository");
        Ok(Self { target, version, description, repository, epoch, program, files, packages })
    }

    /// The Python package whose server goes with the wheel, as in `name==version`.
    fn requires(&self) -> anyhow::Result<String> {
        Ok(read(&self.files.join("requires"))?.trim().to_owned())
    }

    /// The commit's date, in a format of `date`.
    fn date(&self, format: &str) -> anyhow::Result<String> {
        let mut date = command("date");
        date.args(["-u", format, "-d"]).arg(format!("@{}", self.epoch)).env("LC_ALL", "C");
        Ok(output(&mut date)?.trim().to_owned())
    }

    /// A tar of some entries of a directory, to which its packing may be added: in the order of names, of root
    /// and with one date, so that it is made again the same.
    fn tar(&self, from: &Path, names: &[String], archive: &Path) -> Command {
        let mut tar = command("tar");
        tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"]);
        tar.arg(format!("--mtime=@{}", self.epoch)).arg("--directory").arg(from);
        tar.arg("--create").arg("--file").arg(archive).args(names);
        tar
    }

    /// Puts the licences of what is linked in into a directory.
    fn licences(&self, directory: &Path) -> anyhow::Result<()> {
        let from = self.files.join("licences");
        names_in(&from)?.iter().try_for_each(|name| copy(&from.join(name), &directory.join(name)))
    }

    /// Puts manual pages and completions below a `share` directory, where programs look for them.
    fn share(&self, share: &Path, places: &[(&str, &str)]) -> anyhow::Result<()> {
        let man = share.join("man/man1");
        fs::create_dir_all(&man)?;
        run(command("cp").arg("-r").arg(self.files.join("man/.")).arg(&man))?;
        for (from, to) in places {
            copy(&self.files.join("completions").join(from), &share.join(to))?;
        }
        Ok(())
    }
}

/// A program that needs nothing of the machine where it will run, and names no directory of this
/// one.
fn build(target: Target) -> anyhow::Result<PathBuf> {
    let variable =
        format!("CARGO_TARGET_{}_RUSTFLAGS", target.triple.replace('-', "_").to_uppercase());
    let home = std::env::var("CARGO_HOME")
        .or_else(|_| std::env::var("HOME").map(|home| home + "/.cargo"))
        .context("find cargo's directory")?;
    let flags = format!(
        "-C target-feature=+crt-static --remap-path-prefix={home}=/cargo \
         --remap-path-prefix={}=/pgtoll",
        root().display()
    );
    // A system has the C compiler of its own C library at most.
    let is_systems = target.is_glibc() && target.is_native()?;
    let mut cargo = if is_systems { command("cargo") } else { zig::cargo("zigbuild")? };
    if is_systems {
        cargo.arg("build");
    }
    run(cargo
        .args(["--locked", "--profile", "distribution", "--package", "pgtoll"])
        .args(["--target", target.triple])
        .env(variable, flags))?;
    Ok(root().join("target").join(target.triple).join("distribution/pgtoll"))
}

/// The licences of what the program contains: of the crates, of Rust's library, of the C library.
fn write_licences(
    target: Target,
    packages: &[licences::Package],
    directory: &Path,
) -> anyhow::Result<()> {
    fs::create_dir_all(directory)?;
    write(&directory.join("crates.txt"), licences::texts(packages)?)?;
    let sysroot = output(command("rustc").args(["--print", "sysroot"]))?;
    let library = Path::new(sysroot.trim()).join("share/doc/rust/COPYRIGHT-library.html");
    copy(&library, &directory.join("rust-library.html"))?;
    if target.is_glibc() {
        let copyright = read(Path::new("/usr/share/doc/libc6/copyright"))?;
        let lesser = read(Path::new("/usr/share/common-licenses/LGPL-2.1"))?;
        let text = [GLIBC, &copyright, &lesser].join("\n");
        write(&directory.join("glibc.txt"), text)?;
    }
    Ok(())
}

const GLIBC: &str = "\
The program contains the GNU C library, linked statically. To link it with another version, build
it from its source: CONTRIBUTING.md says how.
";

fn sums(directory: &Path) -> anyhow::Result<()> {
    let names = names_in(directory)?;
    let sums = output(command("sha256sum").args(&names).current_dir(directory))?;
    write(&directory.join("SHA256SUMS"), &sums)?;
    for name in &names {
        let bytes = fs::metadata(directory.join(name))?.len();
        say(&format!("xtask: {bytes:>9} bytes  target/dist/{name}"));
    }
    Ok(())
}

/// The names of a directory's entries, in order.
pub(crate) fn names_in(directory: &Path) -> anyhow::Result<Vec<String>> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))?;
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

/// An empty directory.
fn anew(directory: &Path) -> anyhow::Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| format!("empty {}", directory.display()))?;
    }
    fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    fs::copy(from, to)
        .map(drop)
        .with_context(|| format!("copy {} to {}", from.display(), to.display()))
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

fn write(path: &Path, text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}
