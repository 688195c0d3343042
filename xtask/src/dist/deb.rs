//! The Debian package, made by `dpkg-deb` alone.

use std::path::Path;

use anyhow::Context as _;

use super::{Parts, anew, copy, read, write};
use crate::{command, output, root, run};

/// Of a package that somebody builds, until there is an archive with a maintainer.
const MAINTAINER: &str = "the pgtoll developers <pgtoll@users.noreply.github.com>";

const COMPLETIONS: [(&str, &str); 3] = [
    ("pgtoll.bash", "bash-completion/completions/pgtoll"),
    ("_pgtoll", "zsh/vendor-completions/_pgtoll"),
    ("pgtoll.fish", "fish/vendor_completions.d/pgtoll.fish"),
];

pub(super) fn make(parts: &Parts, directory: &Path) -> anyhow::Result<()> {
    let tree = root().join("target/dist-work/deb");
    anew(&tree)?;
    copy(&parts.program, &tree.join("usr/bin/pgtoll"))?;
    let share = tree.join("usr/share");
    parts.share(&share, &COMPLETIONS)?;
    documents(parts, &share.join("doc/pgtoll"))?;
    write(&share.join("lintian/overrides/pgtoll"), OVERRIDES)?;
    compress(&share)?;
    write(&tree.join("DEBIAN/control"), control(parts, &tree)?)?;
    write(&tree.join("DEBIAN/md5sums"), md5sums(&tree)?)?;
    run(command("chmod").args(["-R", "u=rwX,go=rX"]).arg(&tree))?;
    let name = format!("pgtoll_{}-1_{}.deb", parts.version, parts.target.debian);
    run(command("dpkg-deb")
        .args(["--root-owner-group", "--build"])
        .arg(&tree)
        .arg(directory.join(name))
        .env("SOURCE_DATE_EPOCH", &parts.epoch))
}

/// All are meant: the program is one for all systems, so it needs nothing, and profiles of it need
/// its symbols.
const OVERRIDES: &str = "\
pgtoll: shared-library-lacks-prerequisites [usr/bin/pgtoll]
pgtoll: statically-linked-binary [usr/bin/pgtoll]
pgtoll: unstripped-binary-or-object [usr/bin/pgtoll]
";

fn documents(parts: &Parts, doc: &Path) -> anyhow::Result<()> {
    write(&doc.join("copyright"), copyright(parts)?)?;
    copy(&root().join("CHANGELOG.md"), &doc.join("changelog"))?;
    write(&doc.join("changelog.Debian"), changelog(parts)?)?;
    parts.licences(&doc.join("licences"))
}

/// Whose work it is, as Debian's tools read it.
pub(super) fn copyright(parts: &Parts) -> anyhow::Result<String> {
    let licence = read(&root().join("LICENSE"))?;
    let indented: Vec<String> = licence
        .lines()
        .map(|line| if line.is_empty() { " .".to_owned() } else { format!(" {line}") })
        .collect();
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: pgtoll\nSource: {}\n\
         Comment: the licences of what is linked in are in /usr/share/doc/pgtoll/licences\n\n\
         Files: *\nCopyright: 2026 the pgtoll developers\nLicense: PostgreSQL\n{}\n",
        parts.repository,
        indented.join("\n")
    ))
}

/// The package's own changelog, which points at the program's.
pub(super) fn changelog(parts: &Parts) -> anyhow::Result<String> {
    let (version, date) = (&parts.version, parts.date("-R")?);
    Ok(format!(
        "pgtoll ({version}-1) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n \
         -- {MAINTAINER}  {date}\n"
    ))
}

/// As Debian wants it: manual pages, changelogs and long texts, the same bytes each time.
fn compress(share: &Path) -> anyhow::Result<()> {
    run(command("find").arg(share).args([
        "(",
        "-path",
        "*/man1/*",
        "-o",
        "-name",
        "changelog*",
        "-o",
        "-path",
        "*/licences/*",
        ")",
        "-type",
        "f",
        "-exec",
        "gzip",
        "-9n",
        "{}",
        "+",
    ]))
}

/// From the source package's: only what is known now is filled in.
fn control(parts: &Parts, tree: &Path) -> anyhow::Result<String> {
    let kib = output(command("du").args(["-sk", "--apparent-size"]).arg(tree))?;
    let kib = kib.split_whitespace().next().unwrap_or_default().to_owned();
    let source = read(&root().join("packaging/debian/control"))?;
    let (general, binary) = source.split_once("\n\n").context("read packaging/debian/control")?;
    let inherited = ["Section:", "Priority:", "Maintainer:", "Homepage:"];
    let mut lines = vec![
        format!("Package: pgtoll\nVersion: {}-1", parts.version),
        format!("Architecture: {}\nInstalled-Size: {kib}", parts.target.debian),
    ];
    let is_inherited = |line: &&str| inherited.iter().any(|key| line.starts_with(key));
    lines.extend(general.lines().filter(is_inherited).map(str::to_owned));
    // The program is static: it depends on nothing.
    let replaced = ["Package:", "Architecture:", "Depends:"];
    let is_kept = |line: &&str| !replaced.iter().any(|key| line.starts_with(key));
    lines.extend(binary.lines().filter(is_kept).map(str::to_owned));
    Ok(lines.join("\n") + "\n")
}

fn md5sums(tree: &Path) -> anyhow::Result<String> {
    let files = output(command("find").args(["usr", "-type", "f"]).current_dir(tree))?;
    let mut files: Vec<&str> = files.lines().collect();
    files.sort_unstable();
    output(command("md5sum").args(files).current_dir(tree))
}
