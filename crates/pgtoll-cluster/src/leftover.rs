//! Directories of runs whose guard itself was killed: found by what the guard wrote into them.

use pgtoll_format::single_quoted;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::ServerUser;
use crate::process::{Identity, command, descendants, read_small};

/// The template of a working directory's name, for `mkdtemp`.
pub(crate) const TEMPLATE: &str = "pgtoll-XXXXXX";
const PREFIX: &str = "pgtoll-";
const SIGNATURE: &str = "guard.json";
/// Bytes of a signature, and of a postmaster.pid, at most.
const SMALL_FILE: u64 = 1 << 13;

/// A working directory without its guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// The directory.
    pub directory: PathBuf,
    /// Postmasters that still run in it.
    pub postmasters: Vec<i32>,
    /// Other programs that still run in it, frozen ones too.
    pub programs: Vec<i32>,
}

impl Leftover {
    /// The shell command that removes it.
    pub fn removal(&self) -> String {
        // Whoever can make a directory must not be able to make a command.
        let quoted = single_quoted(&self.directory.display().to_string());
        let kill = |signal: &str, pids: &[i32]| {
            let pids: Vec<String> = pids.iter().map(i32::to_string).collect();
            if pids.is_empty() {
                return String::new();
            }
            format!("kill -{signal} {} && ", pids.join(" "))
        };
        // A server removes files of its own while it ends.
        let ended = |pid: &i32| format!("tail --pid={pid} -f /dev/null && ");
        format!(
            "{}{}{}rm -r {quoted}",
            kill("QUIT", &self.postmasters),
            self.postmasters.iter().map(ended).collect::<String>(),
            kill("KILL", &self.programs),
        )
    }
}

/// The leftovers of this user's guards below `base`.
pub fn leftovers(base: &Path, user: &ServerUser) -> Vec<Leftover> {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    let mut found: Vec<Leftover> = entries
        .filter(|entry| is_working_directory(&entry.file_name().to_string_lossy()))
        .filter(|entry| {
            entry.metadata().is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == user.uid)
        })
        .filter_map(|entry| left_over(&entry.path()))
        .collect();
    found.sort_by(|a, b| a.directory.cmp(&b.directory));
    found
}

/// Whether `mkdtemp` made this name from [`TEMPLATE`].
fn is_working_directory(name: &str) -> bool {
    let suffix = name.strip_prefix(PREFIX);
    suffix.is_some_and(|suffix| {
        suffix.len() == 6 && suffix.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

fn left_over(directory: &Path) -> Option<Leftover> {
    let signature = read_small(&directory.join(SIGNATURE), SMALL_FILE).ok()?;
    let guard: Identity = serde_json::from_str(&signature).ok()?;
    if guard.is_alive() {
        return None;
    }
    let clusters = fs::read_dir(directory).ok()?.flatten();
    let mut postmasters: Vec<i32> =
        clusters.filter_map(|cluster| live_postmaster(&cluster.path().join("data"))).collect();
    postmasters.sort_unstable();
    let programs = programs_in(directory);
    Some(Leftover { directory: directory.to_owned(), postmasters, programs })
}

/// The pid in postmaster.pid, if that process works in this very directory.
pub(crate) fn live_postmaster(data: &Path) -> Option<i32> {
    let file = postmaster_file(data)?;
    let pid: i32 = file.lines().next()?.parse().ok()?;
    let works_in = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
    (works_in == data).then_some(pid)
}

/// The content of postmaster.pid.
pub(crate) fn postmaster_file(data: &Path) -> Option<String> {
    read_small(&data.join("postmaster.pid"), SMALL_FILE).ok()
}

/// Those whose current directory is this one: a guard's programs begin there, while a server goes
/// to its data directory.
fn programs_in(directory: &Path) -> Vec<i32> {
    let processes = procfs::process::all_processes().into_iter().flatten().flatten();
    processes
        .filter(|process| process.cwd().is_ok_and(|cwd| cwd == directory))
        .map(|process| process.pid)
        .collect()
}

/// Says whose the directory is.
pub(crate) fn sign(directory: &Path) -> io::Result<()> {
    let own = i32::try_from(std::process::id()).expect("a pid fits in pid_t");
    let identity =
        Identity::from_pid(own).ok_or_else(|| io::Error::other("read /proc/self/stat"))?;
    fs::write(directory.join(SIGNATURE), serde_json::to_vec(&identity)?)
}

/// The directory is meant to stay.
pub(crate) fn unsign(directory: &Path) {
    let _ = fs::remove_file(directory.join(SIGNATURE));
}

/// Removes the System V segment of a server that died without removing it. Its identifier is the
/// second number of postmaster.pid's seventh line, and the file is gone after any orderly end.
pub(crate) fn remove_shared_memory_of(cluster: &Path) {
    let Some(file) = postmaster_file(&cluster.join("data")) else { return };
    let identifier = file.lines().nth(6).and_then(|line| line.split_whitespace().nth(1));
    if let Some(identifier) = identifier.and_then(|word| word.parse::<i32>().ok()) {
        // Without ipcrm a few bytes of kernel memory stay until the machine restarts.
        let _ = command("ipcrm").args(["-m", &identifier.to_string()]).status();
    }
}

/// The files in /dev/shm that a postmaster maps: what it would remove itself if it lived.
fn mapped_shared_memory(pid: i32) -> Vec<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let files: BTreeSet<PathBuf> = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .filter(|path| path.starts_with("/dev/shm/PostgreSQL."))
        .map(PathBuf::from)
        .collect();
    files.into_iter().collect()
}

/// Returns the shared memory of a server's processes: backends' segments are not mapped by the postmaster.
pub(crate) fn shared_memory_of_tree(root: i32) -> Vec<PathBuf> {
    let tree = descendants(root).into_iter().chain([root]);
    let files: BTreeSet<PathBuf> = tree.flat_map(mapped_shared_memory).collect();
    files.into_iter().collect()
}
