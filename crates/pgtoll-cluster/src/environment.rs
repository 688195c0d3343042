//! The environment of programs that pgtoll starts, and the search for them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access, geteuid};

use crate::trust::changeable_by_others;

/// The variables that pass, next to `PATH` and `LC_*`.
const PASSED: [&str; 4] = ["LANG", "LD_LIBRARY_PATH", "TMPDIR", "TZ"];
/// The variables that pass to pip and npm too, next to [`INSTALLERS`]: their home and certificates.
const PASSED_TO_INSTALLERS: [&str; 7] = [
    "HOME",
    "NETRC",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
];
/// Prefixes of their own variables.
const INSTALLERS: [&str; 4] = ["PIP_", "XDG_", "npm_config_", "NPM_CONFIG_"];
/// They are named in both cases.
const PROXIES: [&str; 4] = ["ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"];
const PATH: &str = "PATH";
/// The path if no directory of `PATH` is left.
const SYSTEM_PATH: &str = "/usr/bin:/bin";

/// The environment of servers and programs: a list of what passes, the rest (secrets, settings of
/// other servers) stays behind.
pub(crate) fn passed() -> Vec<(OsString, OsString)> {
    let mut passed: Vec<_> = std::env::vars_os().filter(|(name, _)| passes(name)).collect();
    passed.push((PATH.into(), search_path()));
    passed
}

fn passes(name: &OsStr) -> bool {
    PASSED.iter().any(|passed| name == *passed) || name.as_bytes().starts_with(b"LC_")
}

/// Variables for pip and npm.
pub(crate) fn passed_to_installers() -> BTreeMap<String, String> {
    let text = |(name, value): (OsString, OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).filter(|(name, _)| passes_to_installers(name)).collect()
}

fn passes_to_installers(name: &str) -> bool {
    PASSED_TO_INSTALLERS.contains(&name)
        || INSTALLERS.iter().any(|prefix| name.starts_with(prefix))
        || PROXIES.contains(&name.to_ascii_uppercase().as_str())
}

/// The directories of `PATH`. For root, those only that other users cannot change; its own guards,
/// which run as another user, get the same ones from it.
pub fn search_path() -> OsString {
    if !geteuid().is_root() {
        return path();
    }
    // An empty path is the current directory.
    match std::env::join_paths(trusted_directories()) {
        Ok(trusted) if !trusted.is_empty() => trusted,
        _ => SYSTEM_PATH.into(),
    }
}

/// A program in the directories of `PATH`. For root, one that other users cannot change.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let programs = trusted_directories().into_iter().map(|directory| directory.join(name));
    let is_program =
        |program: &PathBuf| program.is_file() && access(program, AccessFlags::X_OK).is_ok();
    programs.filter(is_program).find(|program| is_trusted(program))
}

/// As [`find_program`]; also where daemons are, which is not in everybody's `PATH`.
pub(crate) fn find_daemon(name: &str) -> Option<PathBuf> {
    let others = ["/usr/sbin", "/usr/local/sbin"].map(|directory| Path::new(directory).join(name));
    find_program(name)
        .or_else(|| others.into_iter().find(|path| path.is_file() && is_trusted(path)))
}

/// The directories of `PATH` from which programs may be started wherever pgtoll was started.
fn trusted_directories() -> Vec<PathBuf> {
    let path = path();
    let directories = std::env::split_paths(&path).filter(|directory| directory.is_absolute());
    let resolved = directories.filter_map(|directory| fs::canonicalize(directory).ok());
    resolved.filter(|directory| is_trusted(directory)).collect()
}

fn path() -> OsString {
    std::env::var_os(PATH).unwrap_or_else(|| SYSTEM_PATH.into())
}

/// Other users than root decide for themselves whose programs they start.
fn is_trusted(path: &Path) -> bool {
    !geteuid().is_root() || changeable_by_others(path).is_ok_and(|part| part.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_settings_of_other_servers_do_not_pass() {
        for name in ["LANG", "LC_ALL", "TZ", "TMPDIR"] {
            assert!(passes(OsStr::new(name)), "{name}");
        }
        for name in ["AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "LD_PRELOAD", "HOME", "BASH_ENV"] {
            assert!(!passes(OsStr::new(name)), "{name}");
            assert!(name == "HOME" || !passes_to_installers(name), "{name}");
        }
        for name in ["HOME", "PIP_INDEX_URL", "https_proxy", "NO_PROXY", "SSL_CERT_FILE"] {
            assert!(passes_to_installers(name), "{name}");
        }
    }

    #[test]
    fn path_passes_once() {
        let passed = passed();
        assert_eq!(passed.iter().filter(|(name, _)| name == PATH).count(), 1);
        assert!(find_program("sh").is_some_and(|sh| sh.ends_with("sh")));
        assert_eq!(find_program("no-such-program"), None);
    }
}
