//! The Debian package, made by `dpkg-deb` alone.

use std::path::Path;

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
    let Parts { version, repository, epoch, .. } = parts;
    let licence = read(&root().join("LICENSE"))?;
    let lines = licence.lines().map(|line| if line.is_empty() { " ." } else { line });
    let indented: Vec<String> =
        lines.map(|line| if line == " ." { line.to_owned() } else { format!(" {line}") }).collect();
    let copyright = format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: pgtoll\nSource: {repository}\n\
         Comment: the licences of what is linked in are in /usr/share/doc/pgtoll/licences\n\n\
         Files: *\nCopyright: 2026 the pgtoll developers\nLicense: PostgreSQL\n{}\n",
        indented.join("\n")
    );
    write(&doc.join("copyright"), copyright)?;
    copy(&root().join("CHANGELOG.md"), &doc.join("changelog"))?;
    let date = output(command("date").args(["-u", "-R", "-d"]).arg(format!("@{epoch}")))?;
    let debian = format!(
        "pgtoll ({version}-1) unstable; urgency=medium\n\n  * See changelog.gz.\n\n \
         -- {MAINTAINER}  {date}"
    );
    write(&doc.join("changelog.Debian"), debian)?;
    parts.licences(&doc.join("licences"))
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

fn control(parts: &Parts, tree: &Path) -> anyhow::Result<String> {
    let kib = output(command("du").args(["-sk", "--apparent-size"]).arg(tree))?;
    let kib = kib.split_whitespace().next().unwrap_or_default().to_owned();
    let Parts { version, target, repository, .. } = parts;
    Ok(format!(
        "Package: pgtoll\n\
         Version: {version}-1\n\
         Architecture: {}\n\
         Maintainer: {MAINTAINER}\n\
         Installed-Size: {kib}\n\
         Recommends: postgresql\n\
         Suggests: linux-perf\n\
         Section: database\n\
         Priority: optional\n\
         Homepage: {repository}\n\
         Description: measures what PostgreSQL's safety costs on this machine\n \
         pgtoll runs servers of its own, compares them in short interleaved slices,\n \
         and says what data checksums and other safe settings cost here, with\n \
         intervals. It keeps every sample and removes its servers at the end.\n \
         It also verifies pages and reads WAL of existing clusters. Only its\n \
         commands enable, disable and corrupt write to an existing cluster.\n",
        target.debian
    ))
}

fn md5sums(tree: &Path) -> anyhow::Result<String> {
    let files = output(command("find").args(["usr", "-type", "f"]).current_dir(tree))?;
    let mut files: Vec<&str> = files.lines().collect();
    files.sort_unstable();
    output(command("md5sum").args(files).current_dir(tree))
}
