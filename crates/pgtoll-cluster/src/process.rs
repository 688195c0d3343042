//! The one place where a command is made, and how processes are looked at.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::RawFd;
use std::path::Path;
use std::process::Command;

use procfs::process::Process;
use serde::{Deserialize, Serialize};

use crate::environment;

/// A command that reads nothing, gets of the environment only what [passes](environment::passed),
/// and speaks English.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = command_in_own_environment(program.as_ref());
    command.env_clear().envs(environment::passed()).env("LC_ALL", "C");
    command
}

/// A command that reads nothing, as the caller, in the caller's environment.
#[expect(clippy::disallowed_methods, reason = "the one place that makes commands")]
pub(crate) fn command_in_own_environment(program: &OsStr) -> Command {
    let mut command = Command::new(program);
    command.stdin(std::process::Stdio::null());
    command
}

/// Closes the descriptors that this process inherited, but for the standard ones. Called before it
/// opens any of its own.
pub(crate) fn close_inherited_descriptors() {
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open = open.filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    for descriptor in open.filter(|descriptor| *descriptor > 2).collect::<Vec<_>>() {
        // The one that listed them is closed already.
        let _ = nix::unistd::close(descriptor);
    }
}

/// A file of at most `bytes_max` bytes as text, in a directory that another user owns: an error if
/// that user put a link, a FIFO or a device there instead.
pub(crate) fn read_small(path: &Path, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    pgtoll_system::open_unlinked(path)?.take(bytes_max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// A process, told from a later one with the same pid by its start time and boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) pid: i32,
    /// Clock ticks since boot (field 22 of `/proc/PID/stat`).
    start_time_ticks: u64,
    boot_id: String,
}

impl Identity {
    pub(crate) fn from_pid(pid: i32) -> Option<Self> {
        let stat = Process::new(pid).ok()?.stat().ok()?;
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(Self { pid, start_time_ticks: stat.starttime, boot_id: boot_id.trim().to_owned() })
    }

    pub(crate) fn is_alive(&self) -> bool {
        Self::from_pid(self.pid).as_ref() == Some(self)
    }
}

/// All processes below `root`, children before grandchildren, without `root` itself.
pub(crate) fn descendants(root: i32) -> Vec<i32> {
    let parents: Vec<(i32, i32)> = procfs::process::all_processes()
        .into_iter()
        .flatten()
        .filter_map(|process| process.ok()?.stat().ok())
        .map(|stat| (stat.ppid, stat.pid))
        .collect();
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(parents.iter().filter(|(item, _)| *item == parent).map(|(_, pid)| pid));
        next += 1;
    }
    found.remove(0);
    found
}

/// The processes below `root` that are in this process group.
pub(crate) fn group_below(root: i32, group: i32) -> Vec<i32> {
    let in_group = |pid: &i32| {
        Process::new(*pid).and_then(|process| process.stat()).is_ok_and(|stat| stat.pgrp == group)
    };
    descendants(root).into_iter().filter(in_group).collect()
}

/// The last `bytes` of a regular file as text; empty when it cannot be read.
pub(crate) fn tail(path: &Path, bytes: u64) -> String {
    let file = pgtoll_system::open_unlinked(path);
    file.and_then(|mut file| tail_of(&mut file, bytes)).unwrap_or_default()
}

/// The last `bytes` of an open file as text.
pub(crate) fn tail_of(file: &mut File, bytes: u64) -> io::Result<String> {
    let start = file.metadata()?.len().saturating_sub(bytes);
    file.seek(SeekFrom::Start(start))?;
    let mut text = Vec::new();
    file.take(bytes).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
