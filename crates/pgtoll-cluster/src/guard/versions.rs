//! Asking `postgres --version` without trust in what is asked.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::child::access::closed_part;
use super::child::{GuardProcess, message};
use super::protocol::VersionAnswer;
use crate::process::command;

/// How long programs that are asked together may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(15);
/// Bytes of an answer.
const ANSWER_BYTES: usize = 1 << 12;
/// Programs that are asked together.
const ASKED_AT_ONCE: usize = 16;

impl GuardProcess {
    /// Nothing that was started is left when this returns.
    pub(super) fn ask_versions(&mut self, programs: &[PathBuf]) -> io::Result<Vec<VersionAnswer>> {
        let mut answers = Vec::with_capacity(programs.len());
        for together in programs.chunks(ASKED_AT_ONCE) {
            let mut questions: Vec<Question> =
                together.iter().map(|program| Question::begin(program)).collect();
            let waited = self.read_answers(&mut questions);
            self.kill_children();
            waited?;
            answers.extend(questions.into_iter().map(Question::answer));
        }
        Ok(answers)
    }

    fn read_answers(&self, questions: &mut [Question]) -> io::Result<()> {
        let deadline = Instant::now() + ANSWER_TIME;
        loop {
            let mut open: Vec<&mut Question> =
                questions.iter_mut().filter(|question| question.pipe().is_some()).collect();
            let left = deadline.saturating_duration_since(Instant::now());
            if open.is_empty() || left.is_zero() {
                return Ok(());
            }
            let mut fds = vec![
                PollFd::new(self.parent.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.told_to_end.as_fd(), PollFlags::POLLIN),
            ];
            let pipes = open.iter().filter_map(|question| question.pipe());
            fds.extend(pipes.map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)));
            match poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
            // pgtoll says nothing while it waits for the reply: it has ended.
            if ready[0] || ready[1] {
                return Err(io::ErrorKind::Interrupted.into());
            }
            for (question, _) in open.iter_mut().zip(&ready[2..]).filter(|(_, ready)| **ready) {
                question.read_on();
            }
        }
    }
}

enum Question {
    Open { pipe: ChildStdout, text: Vec<u8> },
    Answered(VersionAnswer),
}

impl Question {
    fn begin(program: &Path) -> Self {
        if let Some((path, purpose)) = closed_part(program) {
            return Self::Answered(VersionAnswer::Closed { path, purpose: purpose.into() });
        }
        let mut command = command(program);
        command.arg("--version").stdout(Stdio::piped()).stderr(Stdio::null()).env("HOME", "/");
        match command.spawn().map(|mut child| child.stdout.take()) {
            Ok(Some(pipe)) => Self::Open { pipe, text: Vec::new() },
            Ok(None) => Self::failed("it has no standard output".into()),
            Err(error) => Self::failed(message(&error)),
        }
    }

    fn failed(reason: String) -> Self {
        Self::Answered(VersionAnswer::Failed(reason))
    }

    fn pipe(&self) -> Option<&ChildStdout> {
        match self {
            Self::Open { pipe, .. } => Some(pipe),
            Self::Answered(_) => None,
        }
    }

    /// Reads once, which does not wait when there is something to read.
    fn read_on(&mut self) {
        let Self::Open { pipe, text } = self else { return };
        let mut buffer = [0; ANSWER_BYTES];
        match pipe.read(&mut buffer) {
            Ok(0) => {
                let text = String::from_utf8_lossy(text).into_owned();
                *self = Self::Answered(VersionAnswer::Printed(text));
            }
            Ok(length) if text.len() + length > ANSWER_BYTES => {
                *self = Self::failed(format!("it printed more than {ANSWER_BYTES} bytes"));
            }
            Ok(length) => text.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => *self = Self::failed(message(&error)),
        }
    }

    fn answer(self) -> VersionAnswer {
        match self {
            Self::Answered(answer) => answer,
            Self::Open { .. } => {
                VersionAnswer::Failed(format!("no answer within {} s", ANSWER_TIME.as_secs()))
            }
        }
    }
}
