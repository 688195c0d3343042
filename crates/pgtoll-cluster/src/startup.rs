//! A server's work before it takes connections, as the system shows it.

use procfs::process::Process;

use crate::process::descendants;

/// The activity of a starting server's recovery processes: a value that changes as long as they
/// get on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartupActivity {
    /// The title of the startup process, which names the segment that it replays; `None`: there is
    /// none, or the system does not show it.
    pub title: Option<String>,
    /// CPU time of the startup process and the checkpointer, in clock ticks.
    pub cpu_ticks: u64,
}

impl StartupActivity {
    /// That of the server with this postmaster.
    pub fn from_postmaster(postmaster: i32) -> Self {
        let mut activity = Self::default();
        for pid in descendants(postmaster) {
            let Ok(process) = Process::new(pid) else { continue };
            let Some(title) = process.cmdline().ok().and_then(|words| words.into_iter().next())
            else {
                continue;
            };
            let Some(work) = title.strip_prefix("postgres: ") else { continue };
            let is_startup = work.starts_with("startup");
            if is_startup {
                activity.title = Some(work.trim().to_owned());
            }
            if is_startup || work.starts_with("checkpointer") {
                let stat = process.stat();
                activity.cpu_ticks += stat.map_or(0, |stat| stat.utime + stat.stime);
            }
        }
        activity
    }

    /// The segment that is replayed, as the title has it.
    pub fn segment(&self) -> Option<&str> {
        self.title.as_deref()?.split_whitespace().next_back().filter(|word| word.len() == 24)
    }
}
