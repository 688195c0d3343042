//! A cluster of our own from a data directory of somebody else.

use std::fs;
use std::path::{Path, PathBuf};

use pgtoll_format::conf::{self, Entry};

use crate::leftover::live_postmaster;
use crate::not_imported::NotImported;
use crate::{Cluster, ClusterError, Guard, Installation};

/// Settings that are of the place where the data directory lies, or that lead out of it: to archives,
/// primaries, publishers, and files that are not the copy's.
const LEFT_OUT: [&str; 28] = [
    "archive_cleanup_command",
    "archive_command",
    "archive_library",
    "archive_mode",
    "config_file",
    "data_directory",
    "external_pid_file",
    "hba_file",
    "ident_file",
    "krb_server_keyfile",
    "listen_addresses",
    "log_destination",
    "log_directory",
    "logging_collector",
    "oauth_validator_libraries",
    "port",
    "primary_conninfo",
    "primary_slot_name",
    "promote_trigger_file",
    "recovery_end_command",
    "restore_command",
    "ssl",
    "ssl_passphrase_command",
    "stats_temp_directory",
    "synchronized_standby_slots",
    "synchronous_standby_names",
    "unix_socket_directories",
    "unix_socket_group",
];

/// Longer configuration files are none.
const CONFIGURATION_MAX: u64 = 16 << 20;

impl Cluster {
    /// A copy of a data directory that no server runs on, blocks shared where the file system can. It is
    /// read as the servers' user.
    ///
    /// Of its configuration what concerns its place, its archive and other servers is left out, and so are
    /// included files; every role may connect, since only the servers' user reaches the copy's socket. The
    /// second value names what was left out.
    pub fn import(
        guard: &mut Guard,
        installation: &Installation,
        name: &str,
        from: &Path,
    ) -> Result<(Self, Vec<String>), ClusterError> {
        let refused = |reason| ClusterError::NotImported { directory: from.to_owned(), reason };
        if let Some(reason) = check_source(from, installation.version.major())? {
            return Err(refused(reason));
        }
        let mut left_out = Vec::new();
        let mut configuration = String::new();
        for file in ["postgresql.conf", "postgresql.auto.conf"] {
            let path = from.join(file);
            let text = match pgtoll_system::read(&path, CONFIGURATION_MAX) {
                Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
                Err(source) => return Err(ClusterError::io("read", &path)(source)),
            };
            let error = |error| refused(NotImported::Configuration { file, error });
            configuration.push_str(&portable(&text, &mut left_out).map_err(error)?);
        }
        // An enabled subscription would take changes from its publisher.
        configuration.push_str("max_logical_replication_workers = 0\n");
        let copy = Self::place(guard, installation, name)?;
        let data = copy.data();
        let arguments = ["-a", "--reflink=auto", &from.to_string_lossy(), &data.to_string_lossy()];
        guard.run(Path::new("cp"), &arguments)?;
        let pid_file = data.join("postmaster.pid");
        guard.run(Path::new("rm"), &["-f", &pid_file.to_string_lossy()])?;
        guard.write(&data.join("postgresql.conf"), configuration)?;
        // Read behind all others, so nothing in it could be overruled.
        guard.write(&data.join("postgresql.auto.conf"), String::new())?;
        guard.write(&data.join("pg_hba.conf"), "local all all trust\n".to_owned())?;
        guard.write(&data.join("pg_ident.conf"), String::new())?;
        copy.include_settings(guard)?;
        left_out.sort();
        left_out.dedup();
        Ok((copy, left_out))
    }
}

/// Why it cannot be copied, if so.
fn check_source(from: &Path, major: u32) -> Result<Option<NotImported>, ClusterError> {
    let version = from.join("PG_VERSION");
    let Ok(version) = pgtoll_system::read(&version, 64) else {
        return Ok(Some(NotImported::NoDataDirectory));
    };
    let found = String::from_utf8_lossy(&version).trim().to_owned();
    if found != major.to_string() {
        return Ok(Some(NotImported::OtherMajor { found, server: major }));
    }
    let real = fs::canonicalize(from).map_err(ClusterError::io("find", from))?;
    if let Some(pid) = live_postmaster(&real) {
        return Ok(Some(NotImported::Running(pid)));
    }
    for signal in ["standby.signal", "recovery.signal"] {
        if fs::symlink_metadata(from.join(signal)).is_ok() {
            return Ok(Some(NotImported::Recovery(signal)));
        }
    }
    Ok(link_below(&real)?.map(NotImported::Link))
}

/// A symbolic link in the directory or below it.
fn link_below(directory: &Path) -> Result<Option<PathBuf>, ClusterError> {
    let entries = fs::read_dir(directory).map_err(ClusterError::io("read", directory))?;
    for entry in entries {
        let entry = entry.map_err(ClusterError::io("read", directory))?;
        let path = entry.path();
        let kind = entry.file_type().map_err(ClusterError::io("read", &path))?;
        if kind.is_symlink() {
            return Ok(Some(path));
        }
        if kind.is_dir()
            && let Some(found) = link_below(&path)?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The lines of a configuration that hold for a copy elsewhere.
fn portable(text: &str, left_out: &mut Vec<String>) -> Result<String, String> {
    let file = conf::parse(text);
    if let Some(error) = file.errors.first() {
        return Err(error.to_string());
    }
    let mut lines = String::new();
    for entry in file.entries {
        match entry {
            Entry::Setting { name, value } if !LEFT_OUT.contains(&name.as_str()) => {
                lines.push_str(&conf::line(&name, &value));
                lines.push('\n');
            }
            Entry::Setting { name, .. } => left_out.push(name),
            Entry::Include { path, .. } => left_out.push(format!("include '{path}'")),
            Entry::IncludeDirectory { path } => left_out.push(format!("include_dir '{path}'")),
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_out_of_a_data_directory_is_left_out() {
        let text = "shared_buffers = 64MB\nArchive_Command = 'cp %p /archive/%f'\n\
            include_dir 'conf.d'\ndata_directory '/var/lib/other'\nwork_mem = '4MB'\n";
        let mut left_out = Vec::new();
        let lines = portable(text, &mut left_out).unwrap();
        assert_eq!(lines, "shared_buffers = '64MB'\nwork_mem = '4MB'\n");
        assert_eq!(left_out, ["archive_command", "include_dir 'conf.d'", "data_directory"]);
        let broken = portable("work_mem = \n", &mut left_out);
        assert!(broken.unwrap_err().contains("line 1"));
    }

    #[test]
    fn directories_that_share_files_or_are_none_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let check = |expected: Option<NotImported>| {
            assert_eq!(check_source(directory.path(), 17).unwrap(), expected);
        };
        check(Some(NotImported::NoDataDirectory));
        fs::write(directory.path().join("PG_VERSION"), "15\n").unwrap();
        check(Some(NotImported::OtherMajor { found: "15".to_owned(), server: 17 }));
        fs::write(directory.path().join("PG_VERSION"), "17\n").unwrap();
        check(None);
        fs::create_dir(directory.path().join("pg_tblspc")).unwrap();
        let link = fs::canonicalize(directory.path()).unwrap().join("pg_tblspc/16384");
        std::os::unix::fs::symlink("/srv/fast", &link).unwrap();
        check(Some(NotImported::Link(link)));
        fs::write(directory.path().join("standby.signal"), "").unwrap();
        check(Some(NotImported::Recovery("standby.signal")));
    }
}
