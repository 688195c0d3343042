//! barman's `backup.info`: a line a value.

use pgtoll_format::Lsn;

/// Why a backup of barman is not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BarmanInfoError {
    /// It continues, or failed.
    #[error("backup.info has status {0}")]
    Unfinished(String),
    /// It was cut short, or is something else.
    #[error("backup.info has no status")]
    NoStatus,
    /// Not as Python writes it.
    #[error("backup.info lists tablespaces in an unknown format")]
    Tablespaces,
}

/// The tablespaces that a finished backup has, by their OIDs.
pub fn barman_tablespaces(info: &[u8]) -> Result<Vec<u32>, BarmanInfoError> {
    let info = String::from_utf8_lossy(info);
    match value_in(&info, "status") {
        Some("DONE") => tablespaces_in(value_in(&info, "tablespaces").unwrap_or("None"))
            .ok_or(BarmanInfoError::Tablespaces),
        Some(status) => Err(BarmanInfoError::Unfinished(status.to_owned())),
        None => Err(BarmanInfoError::NoStatus),
    }
}

/// The end of a backup; `None`: it does not say.
pub fn barman_stop(info: &[u8]) -> Option<Lsn> {
    value_in(&String::from_utf8_lossy(info), "end_xlog")?.parse().ok()
}

/// The OIDs in `[('name', 16385, '/path'), …]`, as Python writes it; `None`: it is something else.
fn tablespaces_in(list: &str) -> Option<Vec<u32>> {
    if list == "None" {
        return Some(Vec::new());
    }
    let mut rest = list.strip_prefix('[')?.strip_suffix(']')?;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (oid, path) =
            after_string(rest.strip_prefix('(')?)?.strip_prefix(", ")?.split_once(", ")?;
        found.push(oid.parse().ok()?);
        let end = after_string(path)?.strip_prefix(')')?;
        rest = end.strip_prefix(", ").unwrap_or(end);
    }
    Some(found)
}

/// Returns the rest behind a quoted text. Python uses double quotes around a text with a single one.
fn after_string(text: &str) -> Option<&str> {
    let quote = text.chars().next().filter(|character| ['\'', '"'].contains(character))?;
    let mut is_escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            item if item == quote => return text.get(at + 1..),
            _ => {}
        }
    }
    None
}

/// A value in a `backup.info`.
fn value_in<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut values = info.lines().filter_map(|line| line.split_once('='));
    values.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_info_of_barman_itself_is_read() {
        let info = include_str!("../../tests/repository/backup.info");
        assert_eq!(barman_tablespaces(info.as_bytes()), Ok(vec![16384]));
        assert_eq!(barman_stop(info.as_bytes()), Some(Lsn(0x0400_0138)));
        let begun = info.replace("status=DONE", "status=STARTED");
        let error = barman_tablespaces(begun.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), "backup.info has status STARTED");
    }

    proptest! {
        #[test]
        fn tablespaces_are_found_whatever_they_are_called(
            spaces in prop::collection::vec(("[a-z',() =]{1,12}", 1..u32::MAX, "/[a-z]{0,9}"), 0..5)
        ) {
            let listed: Vec<String> = spaces
                .iter()
                .map(|(name, oid, path)| {
                    let quote = if name.contains('\'') { '"' } else { '\'' };
                    format!("({quote}{name}{quote}, {oid}, '{path}')")
                })
                .collect();
            let info = format!("status=DONE\ntablespaces=[{}]\n", listed.join(", "));
            let found = barman_tablespaces(info.as_bytes()).unwrap();
            let expected: Vec<u32> = spaces.iter().map(|(_, oid, _)| *oid).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn values_are_read_from_backup_info() {
        let info = "backup_label='START WAL'\nstatus=DONE\nversion=170002\n";
        assert_eq!(value_in(info, "status"), Some("DONE"));
        assert_eq!(value_in("server_status=x\nstatus = FAILED", "status"), Some("FAILED"));
        assert_eq!(value_in("", "status"), None);
    }

    #[test]
    fn a_list_of_tablespaces_is_read_as_python_writes_it() {
        let check = |list: &str, expected: Option<&[u32]>| {
            assert_eq!(tablespaces_in(list).as_deref(), expected, "{list}");
        };
        check("[('fast, 1', 16385, '/srv/fast'), ('b', 16390, '/srv/b')]", Some(&[16385, 16390]));
        check(r#"[("it's", 16385, '/srv')]"#, Some(&[16385]));
        check(r#"[('it\'s "x" \\', 16385, '/srv')]"#, Some(&[16385]));
        check("None", Some(&[]));
        check("[]", Some(&[]));
        // A list that is not understood is not an empty one.
        for list in ["", "[('a', 16385)]", "[('a', -1, '/srv')]", "[('a, 16385, '/srv')]", "[1]"] {
            check(list, None);
        }
    }
}
