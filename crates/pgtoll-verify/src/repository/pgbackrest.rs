//! Repositories of pgBackRest: what a `backup.manifest` lists, and where each file's bytes are.
//!
//! A backup's files lie one by one (`LABEL/pg_data/base/5/1259.zst`), or several in a bundle
//! (`LABEL/bundle/1` from an offset on), each compressed by itself. What did not change since an
//! earlier backup lies below that one's label. Seen in repositories of 2.45; files in blocks and
//! encryption, which exist since, are named and not read.

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
}

/// Where a file's bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgBackRestPlace {
    /// Below the stanza.
    pub key: String,
    /// Of the file's first byte there.
    pub offset: u64,
    /// Bytes as they are stored; `None`: the whole object.
    pub bytes: Option<u64>,
}

/// What a manifest lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgBackRestManifest {
    /// How each file is packed.
    pub packing: Packing,
    /// The files, in the manifest's order.
    pub files: Vec<PgBackRestFile>,
}

/// Whether pgBackRest names backups so: `20261123-020000F`, and behind it `_20261124-020000D` or `…I`.
pub fn is_pgbackrest_label(name: &str) -> bool {
    let is_time = |text: &str, kinds: &[char]| {
        let time = text.strip_suffix(kinds).unwrap_or_default();
        let is_digits =
            |of: &str, count| of.len() == count && of.bytes().all(|b| b.is_ascii_digit());
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

impl PgBackRestManifest {
    /// Of a backup with this label; an error says why it cannot be read.
    pub fn parse(text: &[u8], label: &str) -> Result<Self, String> {
        if text.starts_with(b"Salted__") {
            return Err("encrypted: restore it with pgBackRest, and verify that".to_owned());
        }
        let text = std::str::from_utf8(text)
            .map_err(|_| format!("{PGBACKREST_MANIFEST} is no text: is it encrypted?"))?;
        // Its checksum is written last: without it the list of files may be cut.
        let last = text.lines().next_back().unwrap_or_default();
        if !last.starts_with("backrest-checksum=") {
            return Err(format!(
                "{PGBACKREST_MANIFEST} does not end with its checksum: it was cut short"
            ));
        }
        let (mut section, mut ending, mut lines) = ("", None, Vec::new());
        let (mut is_manifest, mut own_label) = (false, None);
        for line in text.lines() {
            if let Some(name) = line.strip_prefix('[').and_then(|of| of.strip_suffix(']')) {
                section = name;
                continue;
            }
            match (section, line.split_once('=')) {
                ("backrest", Some(("backrest-format", _))) => is_manifest = true,
                ("backup", Some(("backup-label", value))) => own_label = Some(unquoted(value)),
                ("backup:option", Some(("option-compress-type", value))) => {
                    ending = Some(unquoted(value));
                }
                ("target:file", Some(_)) => lines.push(line),
                _ => {}
            }
        }
        if !is_manifest || own_label != Some(label) {
            return Err(format!("{PGBACKREST_MANIFEST} is not that of {label}"));
        }
        let ending = ending
            .ok_or_else(|| format!("{PGBACKREST_MANIFEST} does not say how files are packed"))?;
        let (packing, ending) = match ending {
            "none" => (Packing::Plain, ""),
            "gz" => (Packing::Gzip, ".gz"),
            "lz4" => (Packing::Lz4, ".lz4"),
            "zst" => (Packing::Zstd, ".zst"),
            other => return Err(format!("compressed with {other}, which pgtoll does not read")),
        };
        let files = lines.into_iter().map(|line| file(line, label, ending));
        Ok(Self { packing, files: files.collect::<Result<_, _>>()? })
    }
}

/// The value of a line, as far as it is read.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct FileLine {
    #[serde(default)]
    size: u64,
    repo_size: Option<u64>,
    reference: Option<String>,
    bni: Option<u64>,
    #[serde(default)]
    bno: u64,
    bi: Option<serde_json::Value>,
    bim: Option<serde_json::Value>,
}

fn file(line: &str, label: &str, ending: &str) -> Result<PgBackRestFile, String> {
    let wrong = || format!("{PGBACKREST_MANIFEST} has a line that is not understood: {line:.80}");
    let at = line.find("={").ok_or_else(wrong)?;
    let (key, value) = (&line[..at], &line[at + 1..]);
    let of: FileLine = serde_json::from_str(value).map_err(|_| wrong())?;
    if of.bi.is_some() || of.bim.is_some() {
        return Err(format!("{key} is stored in blocks (repo-block), which pgtoll does not read"));
    }
    let path = key.strip_prefix("pg_data/").unwrap_or(key).to_owned();
    let whose = of.reference.as_deref().unwrap_or(label);
    // The manifest is as much another's as any other object: no name in it leads out of the stanza.
    let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    if !is_pgbackrest_label(whose) || !key.split('/').all(is_plain) {
        return Err(wrong());
    }
    let place = match of.bni {
        _ if of.size == 0 => None,
        Some(bundle) => Some(PgBackRestPlace {
            key: format!("{whose}/bundle/{bundle}"),
            offset: of.bno,
            bytes: Some(of.repo_size.unwrap_or(of.size)),
        }),
        None => {
            Some(PgBackRestPlace { key: format!("{whose}/{key}{ending}"), offset: 0, bytes: None })
        }
    };
    Ok(PgBackRestFile { path, bytes: of.size, place })
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

    fn parsed(lines: &str) -> Result<PgBackRestManifest, String> {
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
        });
        assert_eq!(files, expected);
    }

    #[test]
    fn what_is_not_read_is_named() {
        let error = |lines: &str| parsed(lines).unwrap_err();
        assert!(error("pg_data/1={\"bi\":1,\"size\":1}").contains("stored in blocks"));
        assert!(error("pg_data/1={\"size\":-1}").contains("not understood"));
        assert!(error("pg_data/../1={\"size\":1}").contains("not understood"));
        let line = "pg_data/1={\"size\":1,\"reference\":\"../../other\"}";
        assert!(error(line).contains("not understood"));
        let of = |text: &[u8]| PgBackRestManifest::parse(text, LABEL).unwrap_err();
        assert!(of(b"Salted__\x01\x02").starts_with("encrypted"));
        let other = format!("[backrest]\nbackrest-format=5\n{END}");
        assert!(of(other.as_bytes()).contains("is not that of"));
        let cut = format!("{HEAD}pg_data/base/5/1={{\"size\":8192}}\n");
        assert!(of(cut.as_bytes()).contains("cut short"));
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
        let place = |path: &str| {
            let file = bundles.files.iter().find(|of| of.path == path).unwrap();
            file.place.as_ref().map(|of| (&*of.key, of.offset, of.bytes.unwrap()))
        };
        let unchanged = format!("{full}/bundle/1");
        assert_eq!(place("base/5/1247"), Some((&*unchanged, 982_862, 11_001)));
        let changed = format!("{own}/bundle/2");
        assert_eq!(place("postgresql.conf"), Some((&*changed, 0, 9389)));
        assert_eq!(place("base/5/4155"), None);
        let error = PgBackRestManifest::parse(BUNDLES.as_bytes(), full).unwrap_err();
        assert_eq!(error, format!("backup.manifest is not that of {full}"));

        let own = "20261126-122615F_20261126-122617I";
        let files = PgBackRestManifest::parse(FILES.as_bytes(), own).unwrap();
        assert_eq!(files.packing, Packing::Gzip);
        let changed = files.files.iter().find(|of| of.path == "postgresql.conf").unwrap();
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
                let keys = found.files.iter().filter_map(|of| Some(&of.place.as_ref()?.key));
                for key in keys {
                    let is_plain = |part: &str| !["", ".", ".."].contains(&part);
                    prop_assert!(key.split('/').all(is_plain), "{key}");
                    prop_assert!(is_pgbackrest_label(key.split('/').next().unwrap()), "{key}");
                }
            }
        }
    }
}
