//! The settings in a data directory's configuration files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use pgtoll_format::conf::{self, Entry};

/// Settings as `postgresql.conf` and `postgresql.auto.conf` have them, with the files that they
/// include. What a server's command line or environment sets is not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// Values by names in lower case; of several the last, as in the server.
    pub settings: BTreeMap<String, String>,
    /// The unreadable parts, a sentence each: a server would not start with them.
    pub unread: Vec<String>,
}

/// `CONF_FILE_MAX_DEPTH`.
const DEPTH: usize = 10;
/// Bytes of a file that are read: more is no configuration.
const BYTES_MAX: u64 = 1 << 20;
/// Files that are read: more of them include each other in a circle.
const FILES_MAX: usize = 1000;

impl Configuration {
    /// The configuration in a data directory; `None`: it has no `postgresql.conf` (packages of some
    /// distributions keep it elsewhere).
    pub fn in_data_directory(data: &Path) -> Option<Self> {
        let main = data.join("postgresql.conf");
        if !main.is_file() {
            return None;
        }
        let mut reader = Reader::default();
        reader.read(&main, false, 0);
        reader.read(&data.join("postgresql.auto.conf"), true, 0);
        Some(reader.configuration)
    }
}

/// Follows includes.
#[derive(Debug, Default)]
struct Reader {
    configuration: Configuration,
    files: usize,
}

impl Reader {
    fn cannot(&mut self, why: String) {
        self.configuration.unread.push(why);
    }

    /// A file, with those that it includes.
    fn read(&mut self, path: &Path, may_be_missing: bool, depth: usize) {
        if self.files > FILES_MAX {
            return;
        }
        self.files += 1;
        if self.files > FILES_MAX {
            self.cannot(format!("more than {FILES_MAX} files are included"));
            return;
        }
        if depth > DEPTH {
            self.cannot(format!("{} is included too deep", path.display()));
            return;
        }
        let text = match pgtoll_system::read(path, BYTES_MAX) {
            Ok(text) => text,
            Err(error) if may_be_missing && error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => {
                self.cannot(format!("read {}: {error}", path.display()));
                return;
            }
        };
        let file = conf::parse(&String::from_utf8_lossy(&text));
        let errors = file.errors.iter().map(|error| format!("{}: {error}", path.display()));
        self.configuration.unread.extend(errors);
        let directory = path.parent().unwrap_or(Path::new("."));
        for entry in file.entries {
            match entry {
                Entry::Setting { name, value } => {
                    self.configuration.settings.insert(name, value);
                }
                Entry::Include { path, may_be_missing } => {
                    self.read(&directory.join(path), may_be_missing, depth + 1);
                }
                Entry::IncludeDirectory { path } => {
                    self.read_directory(&directory.join(path), depth + 1);
                }
            }
        }
    }

    /// All files of a directory that the server takes for configuration, by their names.
    fn read_directory(&mut self, directory: &Path, depth: usize) {
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) => {
                self.cannot(format!("read {}: {error}", directory.display()));
                return;
            }
        };
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        let is_read = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with(".conf") && !name.starts_with('.') && path.is_file()
        };
        files.retain(is_read);
        files.sort();
        for file in &files {
            self.read(file, false, depth);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(files: &[(&str, &str)]) -> Option<Configuration> {
        let data = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = data.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Configuration::in_data_directory(data.path())
    }

    fn settings(configuration: &Configuration) -> Vec<(&str, &str)> {
        let all = configuration.settings.iter();
        all.map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    #[test]
    fn the_last_of_all_files_is_in_force() {
        let configuration = configured(&[
            (
                "postgresql.conf",
                "a = 1\ninclude 'more/first.conf'\ninclude_dir = 'conf.d'\nb = main\n\
                 include_if_exists 'none.conf'\n",
            ),
            ("more/first.conf", "a = 2\ninclude 'second.conf'\n"),
            ("more/second.conf", "c = 'second'\nb = second\n"),
            ("conf.d/2.conf", "d = two\n"),
            ("conf.d/1.conf", "d = one\n"),
            ("conf.d/.hidden.conf", "d = hidden\n"),
            ("conf.d/3.conf.old", "d = old\n"),
            ("postgresql.auto.conf", "c = 'auto'\n"),
        ]);
        let configuration = configuration.unwrap();
        assert_eq!(
            settings(&configuration),
            [("a", "2"), ("b", "main"), ("c", "auto"), ("d", "two")]
        );
        assert_eq!(configuration.unread, Vec::<String>::new());
    }

    #[test]
    fn what_cannot_be_read_is_reported() {
        let configuration = configured(&[(
            "postgresql.conf",
            "a = 1\ninclude 'none.conf'\ninclude_dir 'none.d'\nb = \nc = 2\n",
        )]);
        let configuration = configuration.unwrap();
        assert_eq!(settings(&configuration), [("a", "1"), ("c", "2")]);
        let unread = configuration.unread.join("\n");
        for words in ["none.conf: ", "none.d: ", "syntax error in line 4, near end of line"] {
            assert!(unread.contains(words), "{words}: {unread}");
        }
        assert_eq!(configured(&[("other.conf", "a = 1")]), None);
    }

    #[test]
    fn a_file_that_includes_itself_ends() {
        let text = "a = 1\ninclude 'postgresql.conf'\n";
        let configuration = configured(&[("postgresql.conf", text)]).unwrap();
        assert!(configuration.unread[0].ends_with("is included too deep"), "{configuration:?}");
        let text = "include 'postgresql.conf'\n".repeat(100);
        let configuration = configured(&[("postgresql.conf", &text)]).unwrap();
        let unread = configuration.unread;
        assert_eq!(unread.last().unwrap(), "more than 1000 files are included");
        assert!(unread.len() <= FILES_MAX + 1, "{}", unread.len());
    }
}
