//! The wheel: the program for pip, which brings a server along.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::{Parts, anew, copy, names_in, read, write};
use crate::{command, output, root};

const COMPLETIONS: [(&str, &str); 3] = [
    ("pgtoll.bash", "bash-completion/completions/pgtoll"),
    ("_pgtoll", "zsh/site-functions/_pgtoll"),
    ("pgtoll.fish", "fish/vendor_completions.d/pgtoll.fish"),
];

pub(super) fn make(parts: &Parts, directory: &Path) -> anyhow::Result<()> {
    let tree = root().join("target/dist-work/wheel");
    anew(&tree)?;
    let stem = format!("pgtoll-{}", parts.version);
    let data = tree.join(format!("{stem}.data"));
    copy(&parts.program, &data.join("scripts/pgtoll"))?;
    parts.share(&data.join("data/share"), &COMPLETIONS)?;
    let info = tree.join(format!("{stem}.dist-info"));
    copy(&root().join("LICENSE"), &info.join("licenses/LICENSE"))?;
    parts.licences(&info.join("licenses"))?;
    let licences = names_in(&info.join("licenses"))?;
    write(&info.join("METADATA"), metadata(parts, &licences)?)?;
    // The program needs no C library at all; the tag names the oldest one that pip knows to ask for.
    let tag = format!("py3-none-manylinux_2_17_{}", parts.target.machine);
    let wheel = format!(
        "Wheel-Version: 1.0\nGenerator: pgtoll-xtask\nRoot-Is-Purelib: false\nTag: {tag}\n"
    );
    write(&info.join("WHEEL"), wheel)?;
    zip(&tree, &format!("{stem}.dist-info/RECORD"), &directory.join(format!("{stem}-{tag}.whl")))
}

fn metadata(parts: &Parts, licences: &[String]) -> anyhow::Result<String> {
    let Parts { version, description, repository, .. } = parts;
    let licences: Vec<String> =
        licences.iter().map(|name| format!("License-File: {name}\n")).collect();
    let licences = licences.concat();
    Ok(format!(
        "Metadata-Version: 2.4\n\
         Name: pgtoll\n\
         Version: {version}\n\
         Summary: {description}\n\
         License-Expression: PostgreSQL\n\
         {licences}\
         Project-URL: Repository, {repository}\n\
         Classifier: Operating System :: POSIX :: Linux\n\
         Classifier: Topic :: Database\n\
         Requires-Python: >=3.9\n\
         Requires-Dist: {}\n\
         Description-Content-Type: text/markdown\n\n{}",
        parts.requires()?,
        read(&root().join("README.md"))?
    ))
}

/// Packs the tree and its list of hashes, in the order of names and with one date for all.
fn zip(tree: &Path, record: &str, wheel: &Path) -> anyhow::Result<()> {
    let names = output(command("find").args([".", "-type", "f"]).current_dir(tree))?;
    let mut names: Vec<&str> = names.lines().map(|name| name.trim_start_matches("./")).collect();
    names.sort_unstable();
    let file = File::create(wheel).with_context(|| format!("write {}", wheel.display()))?;
    let mut zip = ZipWriter::new(file);
    let mut list = String::new();
    for name in names {
        let bytes = fs::read(tree.join(name)).with_context(|| format!("read {name}"))?;
        let hash = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&bytes));
        let _ = writeln!(list, "{name},sha256={hash},{}", bytes.len());
        let mode = if name.contains("/scripts/") { 0o755 } else { 0o644 };
        zip.start_file(name, SimpleFileOptions::default().unix_permissions(mode))?;
        zip.write_all(&bytes)?;
    }
    let _ = writeln!(list, "{record},,");
    zip.start_file(record, SimpleFileOptions::default().unix_permissions(0o644))?;
    zip.write_all(list.as_bytes())?;
    zip.finish()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read as _};

    use zip::ZipArchive;

    use super::*;

    fn pack(scratch: &Path) -> Vec<u8> {
        let tree = scratch.join("tree");
        write(&tree.join("x-1.data/scripts/x"), "program").unwrap();
        write(&tree.join("x-1.dist-info/WHEEL"), "").unwrap();
        let wheel = scratch.join("x.whl");
        zip(&tree, "x-1.dist-info/RECORD", &wheel).unwrap();
        fs::read(wheel).unwrap()
    }

    #[test]
    fn a_wheel_has_its_hashes_and_is_made_again_the_same() {
        let one = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let wheel = pack(one.path());
        assert_eq!(wheel, pack(other.path()));
        let mut archive = ZipArchive::new(io::Cursor::new(wheel)).unwrap();
        let mode = archive.by_name("x-1.data/scripts/x").unwrap().unix_mode().unwrap();
        assert_eq!(mode & 0o777, 0o755);
        let mut record = String::new();
        archive.by_name("x-1.dist-info/RECORD").unwrap().read_to_string(&mut record).unwrap();
        // printf program | sha256sum | xxd -r -p | basenc --base64url
        let program = "x-1.data/scripts/x,sha256=ExDKLIky29EYZovZdEJVij4fVGteFcaWmd-9YCT1SNg,7\n";
        let empty = "x-1.dist-info/WHEEL,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n";
        assert_eq!(record, format!("{program}{empty}x-1.dist-info/RECORD,,\n"));
    }
}
