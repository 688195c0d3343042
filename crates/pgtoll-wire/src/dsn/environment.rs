//! The environment that completes connection strings.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::fs;
use std::path::PathBuf;

use nix::unistd::geteuid;

/// The values that complete connection strings: the variables of the environment, the user's home
/// directory and name. Tests make their own.
#[derive(Clone, Default)]
pub struct Environment {
    /// Variables by name. Those that libpq knows are used (`PGHOST` and so on).
    pub variables: BTreeMap<String, String>,
    /// The directory of `.pgpass`, `.pg_service.conf` and `.postgresql`.
    pub home: Option<PathBuf>,
    /// The system's name of the user, which is the default role.
    pub user: Option<String>,
}

impl Environment {
    /// The process's environment, and its user's entry in the system's list.
    pub fn of_process() -> Self {
        let variables = env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok().filter(|name| name.starts_with("PG"))?;
            Some((name, value.into_string().ok()?))
        });
        let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let (name, directory) = entry_of(geteuid().as_raw()).unzip();
        Self {
            variables: variables.collect(),
            home: variable("HOME").or(directory).map(PathBuf::from),
            user: name.or_else(|| variable("LOGNAME")).or_else(|| variable("USER")),
        }
    }

    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }
}

/// A user's name and home directory, read from the file: the C library would load modules to look
/// elsewhere, too, and a static program may not find those of the machine where it runs.
fn entry_of(uid: u32) -> Option<(String, String)> {
    let passwd = fs::read_to_string("/etc/passwd").ok()?;
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, field, _, _, home, ..] = fields[..] else { return None };
        (field.parse() == Ok(uid)).then(|| (name.to_owned(), home.to_owned()))
    })
}

/// Values may be secrets, so only the names are shown.
impl fmt::Debug for Environment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Environment")
            .field("variables", &self.variables.keys())
            .field("home", &self.home)
            .field("user", &self.user)
            .finish()
    }
}
