//! The files that complete a connection string: services and passwords.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::error::DsnError;

/// The keywords of a service, from the user's file or from the system's. The first file that has
/// the service counts.
pub(super) fn service(
    name: &str,
    file: Option<&str>,
    environment: &Environment,
) -> Result<Vec<(String, String)>, DsnError> {
    let users = match file {
        Some(file) => Some(PathBuf::from(file)),
        None => environment.home.as_ref().map(|home| home.join(".pg_service.conf")),
    };
    let system = match environment.variable("PGSYSCONFDIR") {
        Some(directory) => PathBuf::from(directory),
        None => PathBuf::from(SYSTEM_CONFIGURATION),
    };
    let candidates = users.into_iter().chain([system.join("pg_service.conf")]);
    for (index, path) in candidates.enumerate() {
        let text = match fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            // Only a file that somebody named has to be there.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && (index > 0 || file.is_none()) =>
            {
                continue;
            }
            Err(source) => return Err(DsnError::File { path, source }),
        };
        if let Some(pairs) = section(&text, name)
            .map_err(|line| DsnError::ServiceFile { path: path.clone(), line })?
        {
            return Ok(pairs);
        }
    }
    Err(DsnError::UnknownService { name: name.to_owned() })
}

/// The system configuration of Debian's libpq. Other builds do not show theirs.
const SYSTEM_CONFIGURATION: &str = "/etc/postgresql-common";

/// The lines of one section, or the number of a line that is none.
fn section(text: &str, name: &str) -> Result<Option<Vec<(String, String)>>, usize> {
    let mut found: Option<Vec<(String, String)>> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_matches(|c: char| c.is_ascii_whitespace());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            if found.is_some() {
                break;
            }
            if header.split_once(']').is_some_and(|(item, _)| item == name) {
                found = Some(Vec::new());
            }
        } else if let Some(pairs) = &mut found {
            // A service within a service would have no end, and LDAP is not spoken here.
            match line.split_once('=') {
                Some((key, value)) if key != "service" && key != "servicefile" => {
                    pairs.push((key.to_owned(), value.to_owned()));
                }
                _ => return Err(number),
            }
        }
    }
    Ok(found)
}

/// The result of a lookup in a file of passwords.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Looked {
    Found(String),
    Nothing,
    /// Others than its owner may access the file, so it is not used.
    Exposed,
}

/// The password for a host as it was named, a port, a database and a user.
pub(super) fn password(path: &Path, wanted: [&str; 4]) -> Looked {
    let Ok(facts) = fs::metadata(path) else { return Looked::Nothing };
    if !facts.is_file() {
        return Looked::Nothing;
    }
    if facts.mode() & 0o077 != 0 {
        return Looked::Exposed;
    }
    let Ok(bytes) = fs::read(path) else { return Looked::Nothing };
    let text = String::from_utf8_lossy(&bytes);
    text.lines().find_map(|line| matched(line, wanted)).map_or(Looked::Nothing, Looked::Found)
}

/// The password of a line, if its four other fields are these.
fn matched(line: &str, wanted: [&str; 4]) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let mut rest = line;
    for value in wanted {
        rest = if let Some(after) = rest.strip_prefix("*:") {
            after
        } else {
            let (field, after) = field(rest);
            if field != value {
                return None;
            }
            after?
        };
    }
    Some(field(rest).0)
}

/// A field without its backslashes, and what follows its colon.
fn field(text: &str) -> (String, Option<&str>) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            ':' => return (value, Some(&text[at + 1..])),
            '\\' => value.push(characters.next().map_or('\\', |(_, c)| c)),
            c => value.push(c),
        }
    }
    (value, None)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use proptest::prelude::*;

    use super::*;

    const WANTED: [&str; 4] = ["db", "5432", "shop", "alice"];

    #[test]
    fn lines_of_passwords() {
        let check = |line, expected: Option<&str>| {
            assert_eq!(matched(line, WANTED), expected.map(str::to_owned), "{line}");
        };
        check("db:5432:shop:alice:sesame", Some("sesame"));
        check("*:*:*:*:sesame", Some("sesame"));
        check("db:5432:shop:alice:", Some(""));
        check(r"db:5432:shop:alice:a\:b\\c", Some(r"a:b\c"));
        check("db:5432:shop:alice:a:b", Some("a"));
        check(r"d\b:5432:shop:alice:x", Some("x"));
        check("db:5433:shop:alice:sesame", None);
        check("#db:5432:shop:alice:sesame", None);
        check("db:5432:shop:alice", None);
        check("d*:5432:shop:alice:sesame", None);
        check("", None);
    }

    #[test]
    fn a_file_that_others_may_read_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pgpass");
        assert_eq!(password(&path, WANTED), Looked::Nothing);
        fs::write(&path, "other:*:*:*:no\ndb:*:*:*:yes\n*:*:*:*:late\n").unwrap();
        let check = |mode, expected| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(password(&path, WANTED), expected, "{mode:o}");
        };
        check(0o600, Looked::Found("yes".to_owned()));
        check(0o640, Looked::Exposed);
        check(0o604, Looked::Exposed);
    }

    #[test]
    fn sections() {
        let text = "# a\n[one]\nhost=a\n port=1 \n\n[two]\ndbname=it's = x\n[one]\nhost=b\n";
        let check = |text, name, expected: Result<Option<&[(&str, &str)]>, usize>| {
            let owned = expected.map(|found| {
                found.map(|pairs| {
                    pairs
                        .iter()
                        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                        .collect::<Vec<_>>()
                })
            });
            assert_eq!(section(text, name), owned);
        };
        check(text, "one", Ok(Some(&[("host", "a"), ("port", "1")])));
        check(text, "two", Ok(Some(&[("dbname", "it's = x")])));
        check(text, "three", Ok(None));
        check("[x]\nhost\n", "x", Err(2));
        check("[x]\nservice=y\n", "x", Err(2));
        check("[x]\nldap://h\n", "x", Err(2));
    }

    proptest! {
        #[test]
        fn no_file_panics(text in any::<String>(), line in "[a*:\\\\#]{0,30}") {
            let _ = section(&text, "a");
            let _ = matched(&text, WANTED);
            let _ = matched(&line, ["a", "", "*", "a:"]);
        }
    }
}
