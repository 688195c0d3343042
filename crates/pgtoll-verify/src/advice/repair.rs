//! The command that repairs damaged pages, as far as a data directory tells what it needs.

use std::path::Path;

use pgtoll_datadir::Configuration;
use pgtoll_format::shell_quoted;
use pgtoll_record::{Advice, CommandKind};

/// The archive of a cluster's WAL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WalArchive {
    /// A directory, to which `archive_command` copies.
    Directory(String),
    /// Another program's repository.
    Program(String),
    /// Unknown, or nowhere.
    Unknown,
}

impl WalArchive {
    /// The archive that the configuration in a data directory names.
    pub(crate) fn of_data_directory(data: &Path) -> Self {
        let configuration = Configuration::in_data_directory(data).unwrap_or_default();
        let command = configuration.settings.get("archive_command");
        command.map_or(Self::Unknown, |command| Self::parse(command))
    }

    /// Parses an `archive_command`.
    fn parse(command: &str) -> Self {
        let words = command.split_whitespace().map(|word| word.trim_matches(['"', '\'']));
        let words: Vec<&str> = words.collect();
        let programs = ["pgbackrest", "wal-g", "barman-wal-archive", "barman-cloud-wal-archive"];
        let program = words.iter().find_map(|word| {
            let name = word.rsplit('/').next().unwrap_or(word);
            programs.into_iter().find(|program| name == *program)
        });
        if let Some(program) = program {
            return Self::Program(program.to_owned());
        }
        let is_copy = words.iter().any(|word| ["cp", "install", "rsync", "dd"].contains(word));
        let directory = words.iter().rev().find_map(|word| word.strip_suffix("/%f"));
        match directory.filter(|directory| is_copy && directory.starts_with('/')) {
            Some(directory) => Self::Directory(directory.to_owned()),
            None => Self::Unknown,
        }
    }
}

/// The step that leads to `pgtoll repair`: of a stopped server or a running one.
pub(super) fn step(
    data: &str,
    archive: &WalArchive,
    standbys: &[String],
    is_running: bool,
) -> Advice {
    let (wal, hint) = match archive {
        WalArchive::Directory(directory) => (shell_quoted(directory), String::new()),
        WalArchive::Program(program) => {
            ("ARCHIVE".to_owned(), format!("; have {program} restore WAL to ARCHIVE first"))
        }
        WalArchive::Unknown => ("ARCHIVE".to_owned(), String::new()),
    };
    let standby = if is_running && standbys.is_empty() {
        "; a standby serves too: --from-standby DSN"
    } else {
        ""
    };
    let from_standbys: Vec<String> =
        standbys.iter().map(|address| format!(" --from-standby host={address}")).collect();
    let from_standbys = from_standbys.concat();
    Advice {
        what: format!(
            "plan a repair with proof; nothing is written without --yes. Without a backup or an \
             archive leave that option out{standby}{hint}"
        ),
        command: Some(format!(
            "pgtoll repair {}{from_standbys} --from-backup BACKUP --wal {wal}",
            shell_quoted(data)
        )),
        kind: Some(CommandKind::Shell),
        database: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_known_by_the_command_that_fills_it() {
        let check = |command: &str, expected: WalArchive| {
            assert_eq!(WalArchive::parse(command), expected, "{command}");
        };
        let directory = |path: &str| WalArchive::Directory(path.to_owned());
        check("cp %p /srv/wal/%f", directory("/srv/wal"));
        check("test ! -f /srv/wal/%f && cp %p /srv/wal/%f", directory("/srv/wal"));
        check("rsync -a %p '/srv/my wal/%f'", WalArchive::Unknown);
        check("rsync -a %p backup:/srv/wal/%f", WalArchive::Unknown);
        check("/usr/bin/pgbackrest --stanza=main archive-push %p", {
            WalArchive::Program("pgbackrest".to_owned())
        });
        check("envdir /etc/wal-g wal-g wal-push %p", WalArchive::Program("wal-g".to_owned()));
        check("/bin/true", WalArchive::Unknown);
        check("", WalArchive::Unknown);
    }

    #[test]
    fn a_step_has_the_directory_and_the_archive() {
        let archive = WalArchive::Directory("/srv/wal archive".to_owned());
        let command =
            |standbys: &[String]| step("/srv/pg", &archive, standbys, true).command.unwrap();
        let rest = "--from-backup BACKUP --wal '/srv/wal archive'";
        assert_eq!(command(&[]), format!("pgtoll repair /srv/pg {rest}"));
        let standbys = ["10.0.0.2", "fd00::2"].map(str::to_owned);
        let from = "--from-standby host=10.0.0.2 --from-standby host=fd00::2";
        assert_eq!(command(&standbys), format!("pgtoll repair /srv/pg {from} {rest}"));
    }
}
