//! Repositories of pgBackRest: what a `backup.manifest` lists, and where each file's bytes are.
//!
//! A backup's files lie one by one (`LABEL/pg_data/base/5/1259.zst`), or several in a bundle
//! (`LABEL/bundle/1` from an offset on), each compressed by itself. What did not change since an
//! earlier backup lies below that one's label. Seen in repositories of 2.45; files in blocks and
//! encryption, which exist since, are named and not read.

use pgtoll_format::Lsn;
use pgtoll_wal::Packing;
use serde::Deserialize;

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgBackRestFile {
    /// Below the data directory.
    pub path: String,
    /// Bytes, unpacked.
    pub bytes: u64,
    /// `None`: it is empty, and nothing is stored.
    pub place: Option<PgBackRestPlace>,
    /// SHA-1 of its bytes, unpacked, in hexadecimal.
    pub checksum: Option<String>,
}

/// The place of a file's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgBackRestPlace {
    /// Below the stanza.
    pub key: String,
    /// The offset of the file's first byte.
    pub offset: u64,
    /// Bytes as they are stored; `None`: the whole object.
    pub bytes: Option<u64>,
}

/// The content of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgBackRestManifest {
    /// How each file is packed.
    pub packing: Packing,
    /// The files, in the manifest's order.
    pub files: Vec<PgBackRestFile>,
    /// Directories below the data directory, called as its files are.
    pub directories: Vec<String>,
    /// OIDs of the tablespaces, whose files are below `pg_tblspc/OID`.
    pub tablespaces: Vec<u32>,
    /// The directory of its cluster's WAL, below the archive's stanza, like `15-1`.
    pub archive: Option<String>,
    /// The major version.
    pub major: Option<u32>,
    /// The end of the backup.
    pub stop: Option<Lsn>,
    /// A server ran while it was made, so that it has a `backup_label`.
    pub is_online: bool,
}

/// Whether pgBackRest names backups so: `20261123-020000F`, and behind it `_20261124-020000D` or `…I`.
pub fn is_pgbackrest_label(name: &str) -> bool {
    let is_time = |text: &str, kinds: &[char]| {
        let time = text.strip_suffix(kinds).unwrap_or_default();
        let is_digits =
            |text: &str, count| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
        time.split_once('-').is_some_and(|(day, time)| is_digits(day, 8) && is_digits(time, 6))
    };
    match name.split_once('_') {
        Some((full, own)) => is_time(full, &['F']) && is_time(own, &['D', 'I']),
        None => is_time(name, &['F']),
    }
}

/// When pgBackRest's backup of this label began, as text that sorts.
pub fn pgbackrest_label_time(label: &str) -> &str {
    let time = label.rsplit_once('_').map_or(label, |(_, own)| own);
    time.trim_end_matches(['F', 'D', 'I'])
}

/// Why a manifest of pgBackRest cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PgBackRestManifestError {
    /// With a passphrase of the repository.
    #[error("encrypted: restore it with pgBackRest, and verify that")]
    Encrypted,
    /// It is not UTF-8.
    #[error("{PGBACKREST_MANIFEST} is not text: is it encrypted?")]
    NoText,
    /// Its checksum is written last.
    #[error("{PGBACKREST_MANIFEST} does not end with its checksum: it was cut short")]
    CutShort,
    /// Or of none.
    #[error("{PGBACKREST_MANIFEST} is not that of {label}")]
    OtherBackup {
        /// The backup that was wanted.
        label: String,
    },
    /// `option-compress-type` is missing.
    #[error("{PGBACKREST_MANIFEST} does not say how files are packed")]
    NoPacking,
    /// As `option-compress-type` calls it.
    #[error("compressed with {0}, which pgtoll does not read")]
    OtherPacking(String),
    /// Its beginning.
    #[error("{PGBACKREST_MANIFEST} has a line that is not understood: {0}")]
    Line(String),
    /// This file is, by `repo-block`.
    #[error("{0} is stored in blocks (repo-block), which pgtoll does not read")]
    StoredInBlocks(String),
}

impl PgBackRestManifest {
    /// Parses the manifest of a backup with this label.
    pub fn parse(text: &[u8], label: &str) -> Result<Self, PgBackRestManifestError> {
        if text.starts_with(b"Salted__") {
            return Err(PgBackRestManifestError::Encrypted);
        }
        let text = std::str::from_utf8(text).map_err(|_| PgBackRestManifestError::NoText)?;
        // Its checksum is written last: without it the list of files may be cut.
        let last = text.lines().next_back().unwrap_or_default();
        if !last.starts_with("backrest-checksum=") {
            return Err(PgBackRestManifestError::CutShort);
        }
        let lines = ManifestLines::from_text(text);
        if !lines.is_manifest || lines.label != Some(label) {
            return Err(PgBackRestManifestError::OtherBackup { label: label.to_owned() });
        }
        let ending = lines.ending.ok_or(PgBackRestManifestError::NoPacking)?;
        let (packing, ending) = match ending {
            "none" => (Packing::Plain, ""),
            "gz" => (Packing::Gzip, ".gz"),
            "lz4" => (Packing::Lz4, ".lz4"),
            "zst" => (Packing::Zstd, ".zst"),
            other => return Err(PgBackRestManifestError::OtherPacking(other.to_owned())),
        };
        let files = lines.files.iter().map(|line| file(line, label, ending));
        let directories = lines.directories.iter().filter_map(|line| directory(line).transpose());
        Ok(Self {
            packing,
            files: files.collect::<Result<_, _>>()?,
            directories: directories.collect::<Result<_, _>>()?,
            tablespaces: lines.tablespaces,
            archive: lines
                .version
                .zip(lines.database)
                .and_then(|(version, id)| archive(version, id)),
            major: lines.version.and_then(|version| version.parse().ok()),
            stop: lines.stop.and_then(|lsn| lsn.parse().ok()),
            is_online: lines.is_online,
        })
    }
}

/// The text of the sections.
#[derive(Default)]
struct ManifestLines<'a> {
    is_manifest: bool,
    is_online: bool,
    label: Option<&'a str>,
    stop: Option<&'a str>,
    version: Option<&'a str>,
    database: Option<&'a str>,
    ending: Option<&'a str>,
    tablespaces: Vec<u32>,
    files: Vec<&'a str>,
    directories: Vec<&'a str>,
}

impl<'a> ManifestLines<'a> {
    fn from_text(text: &'a str) -> Self {
        let mut found = Self::default();
        let mut section = "";
        for line in text.lines() {
            match line.strip_prefix('[').and_then(|item| item.strip_suffix(']')) {
                Some(name) => section = name,
                None => found.add(section, line),
            }
        }
        found
    }

    fn add(&mut self, section: &str, line: &'a str) {
        let Some((name, value)) = line.split_once('=') else { return };
        let text = Some(unquoted(value));
        match (section, name) {
            ("backrest", "backrest-format") => self.is_manifest = true,
            ("backup", "backup-label") => self.label = text,
            ("backup", "backup-lsn-stop") => self.stop = text,
            ("backup:db", "db-version") => self.version = text,
            ("backup:db", "db-id") => self.database = text,
            ("backup:option", "option-compress-type") => self.ending = text,
            ("backup:option", "option-online") => self.is_online = value.trim() == "true",
            ("backup:target", _) => {
                let oid = name.strip_prefix("pg_tblspc/").and_then(pgtoll_datadir::decimal);
                self.tablespaces.extend(oid.filter(|oid| *oid > 0));
            }
            ("target:file", _) => self.files.push(line),
            ("target:path", _) => self.directories.push(line),
            _ => {}
        }
    }
}

/// The value of a line, as far as it is read.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct FileLine {
    #[serde(default)]
    size: u64,
    checksum: Option<String>,
    repo_size: Option<u64>,
    reference: Option<String>,
    bni: Option<u64>,
    #[serde(default)]
    bno: u64,
    bi: Option<serde_json::Value>,
    bim: Option<serde_json::Value>,
}

/// The key of a line, and its value.
fn key_and_value(line: &str) -> Result<(&str, &str), PgBackRestManifestError> {
    let at = line.find("={").ok_or_else(|| not_understood(line))?;
    Ok((&line[..at], &line[at + 1..]))
}

fn not_understood(line: &str) -> PgBackRestManifestError {
    PgBackRestManifestError::Line(line.chars().take(80).collect())
}

/// The manifest is as much another's as any other object: no name in it leads out of the stanza.
fn is_inside(key: &str) -> bool {
    key.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
}

fn below_data(key: &str) -> &str {
    key.strip_prefix("pg_data/").unwrap_or(key)
}

/// A directory; `None`: the data directory itself.
fn directory(line: &str) -> Result<Option<String>, PgBackRestManifestError> {
    let (key, _) = key_and_value(line)?;
    if !is_inside(key) {
        return Err(not_understood(line));
    }
    Ok((key != "pg_data").then(|| below_data(key).to_owned()))
}

/// The name of the archive's directory of a cluster.
fn archive(version: &str, id: &str) -> Option<String> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (version.split('.').all(is_number) && is_number(id)).then(|| format!("{version}-{id}"))
}

fn file(line: &str, label: &str, ending: &str) -> Result<PgBackRestFile, PgBackRestManifestError> {
    let wrong = || not_understood(line);
    let (key, value) = key_and_value(line)?;
    let line: FileLine = serde_json::from_str(value).map_err(|_| wrong())?;
    if line.bi.is_some() || line.bim.is_some() {
        return Err(PgBackRestManifestError::StoredInBlocks(key.to_owned()));
    }
    let path = below_data(key).to_owned();
    let whose = line.reference.as_deref().unwrap_or(label);
    if !is_pgbackrest_label(whose) || !is_inside(key) {
        return Err(wrong());
    }
    let place = match line.bni {
        _ if line.size == 0 => None,
        Some(bundle) => Some(PgBackRestPlace {
            key: format!("{whose}/bundle/{bundle}"),
            offset: line.bno,
            bytes: Some(line.repo_size.unwrap_or(line.size)),
        }),
        None => {
            Some(PgBackRestPlace { key: format!("{whose}/{key}{ending}"), offset: 0, bytes: None })
        }
    };
    Ok(PgBackRestFile { path, bytes: line.size, place, checksum: line.checksum })
}

fn unquoted(value: &str) -> &str {
    value.trim().trim_matches('"')
}

/// The manifest's name in its backup.
pub const PGBACKREST_MANIFEST: &str = "backup.manifest";
#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEAD: &str = "[backrest]\nbackrest-format=5\n\n[backup]\n\
        backup-label=\"20261123-020000F_20261124-020000I\"\n\n[backup:option]\n\
        option-compress-type=\"zst\"\n\n[target:file]\n";
    const LABEL: &str = "20261123-020000F_20261124-020000I";

    const END: &str = "\n[backrest]\nbackrest-checksum=\"0\"\n";

    fn parsed(lines: &str) -> Result<PgBackRestManifest, PgBackRestManifestError> {
        PgBackRestManifest::parse(format!("{HEAD}{lines}{END}").as_bytes(), LABEL)
    }

    #[test]
    fn files_lie_alone_in_bundles_and_below_earlier_labels() {
        let lines = "pg_data/base/5/1={\"checksum\":\"0\",\"repo-size\":90,\"size\":8192}\n\
            pg_data/base/5/2={\"bni\":3,\"bno\":17,\"repo-size\":9,\"size\":8192,\
            \"reference\":\"20261123-020000F\"}\n\
            pg_data/base/5/3={\"size\":0}\n\
            pg_tblspc/7/PG_15_202209061/5/4={\"bni\":1,\"size\":16384}\n";
        let files = parsed(lines).unwrap().files;
        let place =
            |key: &str, offset, bytes| Some(PgBackRestPlace { key: key.to_owned(), offset, bytes });
        let expected = [
            ("base/5/1", 8192, place(&format!("{LABEL}/pg_data/base/5/1.zst"), 0, None)),
            ("base/5/2", 8192, place("20261123-020000F/bundle/3", 17, Some(9))),
            ("base/5/3", 0, None),
            (
                "pg_tblspc/7/PG_15_202209061/5/4",
                16384,
                place(&format!("{LABEL}/bundle/1"), 0, Some(16384)),
            ),
        ];
        let expected = expected.map(|(path, bytes, place)| PgBackRestFile {
            path: path.to_owned(),
            bytes,
            place,
            checksum: (path == "base/5/1").then(|| "0".to_owned()),
        });
        assert_eq!(files, expected);
    }

    #[test]
    fn a_manifest_says_what_else_a_restore_needs() {
        let text = format!(
            "{HEAD}\n[backup]\nbackup-lsn-stop=\"0/3000138\"\n\n[backup:db]\ndb-id=2\n\
             db-version=\"17\"\n\n[backup:option]\noption-online=true\n\n[backup:target]\n\
             pg_data={{\"path\":\"/srv\"}}\npg_tblspc/7={{\"path\":\"/srv/7\"}}\n\n[target:path]\n\
             pg_data={{}}\npg_data/base={{}}\npg_tblspc/7/PG_17_1={{}}\n{END}"
        );
        let found = PgBackRestManifest::parse(text.as_bytes(), LABEL).unwrap();
        assert_eq!(found.directories, ["base", "pg_tblspc/7/PG_17_1"]);
        assert_eq!((found.tablespaces, found.archive.as_deref()), (vec![7], Some("17-2")));
        assert_eq!((found.stop, found.is_online), (Some(Lsn(0x0300_0138)), true));
        let error = parsed("\n[target:path]\npg_data/../..={}\n").unwrap_err().to_string();
        assert!(error.contains("not understood"), "{error}");
        for (version, id) in [("../..", "1"), ("15", "1/.."), ("", ""), ("15.", "1")] {
            assert_eq!(archive(version, id), None, "{version} {id}");
        }
    }

    #[test]
    fn what_is_not_read_is_named() {
        let error = |lines: &str| parsed(lines).unwrap_err().to_string();
        assert!(error("pg_data/1={\"bi\":1,\"size\":1}").contains("stored in blocks"));
        assert!(error("pg_data/1={\"size\":-1}").contains("not understood"));
        assert!(error("pg_data/../1={\"size\":1}").contains("not understood"));
        let line = "pg_data/1={\"size\":1,\"reference\":\"../../other\"}";
        assert!(error(line).contains("not understood"));
        let pick = |text: &[u8]| PgBackRestManifest::parse(text, LABEL).unwrap_err().to_string();
        assert!(pick(b"Salted__\x01\x02").starts_with("encrypted"));
        let other = format!("[backrest]\nbackrest-format=5\n{END}");
        assert!(pick(other.as_bytes()).contains("is not that of"));
        let cut = format!("{HEAD}pg_data/base/5/1={{\"size\":8192}}\n");
        assert!(pick(cut.as_bytes()).contains("cut short"));
    }

    #[test]
    fn labels_are_known_and_sort_by_their_own_time() {
        assert!(is_pgbackrest_label("20261123-020000F") && is_pgbackrest_label(LABEL));
        for other in ["latest", "backup.history", "20261123-020000", "20261123-020000F_x", "F"] {
            assert!(!is_pgbackrest_label(other), "{other}");
        }
        assert!(pgbackrest_label_time(LABEL) > pgbackrest_label_time("20261123-020000F"));
        assert!(pgbackrest_label_time(LABEL) < pgbackrest_label_time("20261125-020000F"));
    }

    /// Of a real repository; all but some lines of files are taken out.
    const BUNDLES: &str = include_str!("../../tests/repository/bundles.manifest");
    const FILES: &str = include_str!("../../tests/repository/files.manifest");

    #[test]
    fn manifests_of_pgbackrest_itself_are_read() {
        let [full, own] = ["20261126-122617F", "20261126-122617F_20261126-122617I"];
        let bundles = PgBackRestManifest::parse(BUNDLES.as_bytes(), own).unwrap();
        assert_eq!((bundles.packing, bundles.files.len()), (Packing::Zstd, 40));
        assert_eq!((bundles.archive.as_deref(), bundles.major), (Some("15-1"), Some(15)));
        assert_eq!((&*bundles.tablespaces, bundles.is_online), (&[16384][..], false));
        let place = |path: &str| {
            let file = bundles.files.iter().find(|file| file.path == path).unwrap();
            file.place.as_ref().map(|place| (&*place.key, place.offset, place.bytes.unwrap()))
        };
        let unchanged = format!("{full}/bundle/1");
        assert_eq!(place("base/5/1247"), Some((&*unchanged, 982_862, 11_001)));
        let changed = format!("{own}/bundle/2");
        assert_eq!(place("postgresql.conf"), Some((&*changed, 0, 9389)));
        assert_eq!(place("base/5/4155"), None);
        let error = PgBackRestManifest::parse(BUNDLES.as_bytes(), full).unwrap_err();
        assert_eq!(error.to_string(), format!("backup.manifest is not that of {full}"));

        let own = "20261126-122615F_20261126-122617I";
        let files = PgBackRestManifest::parse(FILES.as_bytes(), own).unwrap();
        assert_eq!(files.packing, Packing::Gzip);
        let changed = files.files.iter().find(|file| file.path == "postgresql.conf").unwrap();
        let place = changed.place.as_ref().unwrap();
        assert_eq!(place.key, format!("{own}/pg_data/postgresql.conf.gz"));
        assert_eq!((place.offset, place.bytes), (0, None));
    }

    proptest! {
        #[test]
        fn no_manifest_panics(text in "(\\[(backrest|target:file)\\]\n|[a-z/.]{0,9}=(\\{\"size\":[0-9]{1,22}\\}|x)\n|\\PC{0,9}\n){0,9}") {
            let _ = PgBackRestManifest::parse(text.as_bytes(), LABEL);
            let _ = parsed(&text);
        }

        #[test]
        fn a_real_manifest_with_other_bytes_in_it_leads_nowhere_else(
            at in 0..BUNDLES.len(), end in 0..40_usize, bytes in prop::collection::vec(any::<u8>(), 0..40)
        ) {
            let mut text = BUNDLES.as_bytes().to_vec();
            let end = (at + end).min(text.len());
            text.splice(at..end, bytes);
            if let Ok(found) = PgBackRestManifest::parse(&text, "20261126-122617F_20261126-122617I") {
                let keys = found.files.iter().filter_map(|file| Some(&file.place.as_ref()?.key));
                for key in keys {
                    let is_plain = |part: &str| !["", ".", ".."].contains(&part);
                    prop_assert!(key.split('/').all(is_plain), "{key}");
                    prop_assert!(is_pgbackrest_label(key.split('/').next().unwrap()), "{key}");
                }
            }
        }
    }
}
