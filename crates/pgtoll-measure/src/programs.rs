//! Programs that work on the server of a trial: the shell runs them, in directories of their own.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use pgtoll_cluster::{Cluster, ClusterError, Guard, Output, ProgramSignal, search_path};
use pgtoll_format::single_quoted;

use crate::experiment::{StepKind, substituted};
use crate::names::{DATABASE, PGBENCH, SHELL};
use crate::units::nanoseconds;
use crate::{ArmSpec, BenchError, StepSpec};

/// The environment of a trial's programs.
pub(crate) struct Programs<'a> {
    pub(crate) arm: &'a ArmSpec,
    pub(crate) cluster: Cluster,
    /// pgtoll's own program, for programs that call it.
    pub(crate) pgtoll: &'a Path,
}

/// A program that was started.
#[derive(Clone, Debug)]
pub(crate) struct StartedProgram {
    /// Its name with the guard.
    pub(crate) name: String,
    pub(crate) pid: i32,
    /// The command line of the shell.
    text: String,
}

/// A program's duration is its user's affair.
const A_WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

impl Programs<'_> {
    /// Starts what a step of a program or of pgbench's initialisation does; `None` of other steps.
    pub(crate) fn start(
        &self,
        step: &StepSpec,
        guard: &mut Guard,
    ) -> Result<Option<StartedProgram>, BenchError> {
        let text = match step.kind() {
            StepKind::Program(text) => substituted(text, &self.arm.values),
            StepKind::Pgbench(letters) => {
                let pgbench = self.cluster.client(PGBENCH)?;
                let pgbench = single_quoted(&pgbench.to_string_lossy());
                format!(
                    "exec {pgbench} {}",
                    initialisation(letters, step.pgbench_scale()).join(" ")
                )
            }
            _ => return Ok(None),
        };
        self.spawn(PROGRAM, &text, guard).map(Some)
    }

    /// Runs a program to its end. Its CPU time, in ns.
    pub(crate) fn run(&self, text: &str, guard: &mut Guard) -> Result<u64, BenchError> {
        let text = substituted(text, &self.arm.values);
        let program = self.spawn(PROGRAM, &text, guard)?;
        self.reap(program, guard)
    }

    /// Runs pgbench's initialisation steps.
    pub(crate) fn initialise(
        &self,
        letters: &str,
        scale: u32,
        guard: &mut Guard,
    ) -> Result<(), BenchError> {
        let arguments = initialisation(letters, scale);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.cluster.run_client(guard, PGBENCH, &arguments)?;
        Ok(())
    }

    /// Lets the shell run a text in a directory of its own. What it prints on standard output is thrown
    /// away.
    pub(crate) fn spawn(
        &self,
        role: &str,
        text: &str,
        guard: &mut Guard,
    ) -> Result<StartedProgram, BenchError> {
        let name = format!("{}.{role}", self.cluster.name());
        let scratch = self.scratch(role);
        guard.run(Path::new("mkdir"), &[&scratch])?;
        let quoted = single_quoted(&scratch);
        let command = format!("cd {quoted} && exec >/dev/null || exit\n{text}");
        let pid = guard.spawn(&name, SHELL.as_ref(), &["-c", &command], &self.environment())?;
        Ok(StartedProgram { name, pid, text: text.to_owned() })
    }

    /// Waits for a program's end. Its CPU time, in ns.
    pub(crate) fn reap(
        &self,
        program: StartedProgram,
        guard: &mut Guard,
    ) -> Result<u64, BenchError> {
        let output = guard.reap(&program.name, A_WEEK)?;
        self.remove_scratch(PROGRAM, guard)?;
        if output.success {
            return Ok(nanoseconds(output.usage.cpu()));
        }
        let arm = self.arm.name.clone();
        let program = program.text;
        Err(BenchError::ProgramFailed { arm, program, status: last_words(&output) })
    }

    /// Starts what runs beside a step.
    pub(crate) fn start_beside(&self, text: &str, guard: &mut Guard) -> Result<(), BenchError> {
        self.spawn(BESIDE, text, guard)?;
        Ok(())
    }

    /// Ends what runs beside a step. Its CPU time in ns, and what went wrong with it.
    pub(crate) fn end_beside(
        &self,
        text: &str,
        guard: &mut Guard,
    ) -> Result<(u64, Option<String>), BenchError> {
        let name = format!("{}.{BESIDE}", self.cluster.name());
        let by_itself = match guard.has_ended(&name)? {
            Some(_) => true,
            // It may have ended since.
            None => match guard.signal(&name, ProgramSignal::Terminate) {
                Err(ClusterError::Guard { .. }) => true,
                signalled => signalled.map(|()| false)?,
            },
        };
        let output = guard.reap(&name, PATIENCE)?;
        self.remove_scratch(BESIDE, guard)?;
        let failed = (by_itself && !output.success).then(|| {
            format!(
                "arm {}: what ran beside ({text}) failed: {}",
                self.arm.name,
                last_words(&output)
            )
        });
        Ok((nanoseconds(output.usage.cpu()), failed))
    }

    fn remove_scratch(&self, role: &str, guard: &mut Guard) -> Result<(), BenchError> {
        guard.run(Path::new("rm"), &["-rf", &self.scratch(role)])?;
        Ok(())
    }

    /// The directory of a program of this role.
    fn scratch(&self, role: &str) -> String {
        self.cluster.directory().join(role).to_string_lossy().into_owned()
    }

    fn environment(&self) -> BTreeMap<String, String> {
        let bin = self.cluster.bin().to_string_lossy().into_owned();
        let path = format!("{bin}:{}", search_path().to_string_lossy());
        let data = self.cluster.data().to_string_lossy().into_owned();
        let pgtoll = self.pgtoll.to_string_lossy().into_owned();
        let more = [("PATH", path), ("PGDATA", data), ("PGTOLL", pgtoll)];
        let mut environment = self.cluster.environment();
        environment.extend(more.map(|(name, value)| (name.to_owned(), value)));
        environment
    }
}

/// A program's part in a trial: of its directory's name, and of its name with the guard.
const PROGRAM: &str = "program";
const BESIDE: &str = "beside";
/// A program beside that takes longer to end is killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The arguments of pgbench's initialisation steps.
fn initialisation(letters: &str, scale: u32) -> Vec<String> {
    let steps = [format!("--init-steps={letters}"), format!("--scale={scale}")];
    let fixed = ["--initialize", "--quiet"].map(str::to_owned);
    fixed.into_iter().chain(steps).chain([DATABASE.to_owned()]).collect()
}

/// How a program ended, with the last line that it said.
fn last_words(output: &Output) -> String {
    let last = output.tail.lines().map(str::trim).rfind(|line| !line.is_empty());
    let status = &output.status;
    last.map_or(status.clone(), |last| format!("{status}: {last}"))
}
