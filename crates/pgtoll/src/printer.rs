//! Output: data to stdout, everything else to stderr.

use std::io::{self, IsTerminal, Write};

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use pgtoll_report::{PluginLine, Style, printable, printable_lines};

use crate::hints::hint;
use crate::mistakes::BadExperiment;
use pgtoll_wire::masked;

/// Prints. The reader may have gone (a closed pipe): that is no reason to fail.
///
/// Names, paths and servers' messages are in what is printed. Commands and reports escape them where
/// they compose lines; what they missed is escaped here, line breaks and tabs apart.
#[derive(Debug)]
pub(crate) struct Printer {
    quiet: bool,
    /// Data include the evidence.
    full: bool,
    /// Only when stderr is a terminal.
    bar: Option<ProgressBar>,
    terminal: bool,
    /// The style of data.
    style: Style,
    /// Why data were lost.
    unwritten: Option<io::Error>,
    /// The line for Nagios, which is printed when the command's status is known.
    pub(crate) check: Option<PluginLine>,
}

impl Printer {
    pub(crate) fn new(quiet: bool) -> Self {
        let terminal = io::stderr().is_terminal();
        let style = style_of_stdout();
        Self { quiet, full: false, bar: None, terminal, style, unwritten: None, check: None }
    }

    /// The same, with or without the evidence.
    pub(crate) fn with_full(self, full: bool) -> Self {
        Self { full, ..self }
    }

    /// Whether data may have colours.
    pub(crate) fn style(&self) -> Style {
        self.style
    }

    /// Whether data include the evidence.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Prints data to stdout.
    pub(crate) fn data(&mut self, text: &str) {
        self.end_progress();
        let mut stdout = io::stdout().lock();
        let text = self.style.printable(text);
        let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
        let lost = written.err().filter(|error| error.kind() != io::ErrorKind::BrokenPipe);
        self.unwritten = self.unwritten.take().or(lost);
    }

    /// An error when some of the data could not be written, though somebody still listens.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.unwritten.take().map_or(Ok(()), Err)
    }

    /// Prints a line on stderr, unless quiet.
    pub(crate) fn say(&self, line: &str) {
        if !self.quiet {
            self.line(line);
        }
    }

    /// Prints a line on stderr, quiet or not.
    pub(crate) fn warn(&self, line: &str) {
        self.line(line);
    }

    /// An error in one line, and what to do about it.
    pub(crate) fn error(&mut self, error: &anyhow::Error) {
        self.end_progress();
        if let Some(bad) = error.downcast_ref::<BadExperiment>() {
            return bad.lines().iter().for_each(|line| self.line(line));
        }
        let message = message(error);
        let one_line: Vec<&str> = message.split_whitespace().collect();
        self.line(&format!("pgtoll: {}", one_line.join(" ")));
        if let Some(hint) = hint(error) {
            self.line(&format!("hint: {}", printable(&hint)));
        }
    }

    /// A stage of long work begins.
    pub(crate) fn stage(&mut self, name: &str) {
        if self.quiet {
            return;
        }
        if !self.terminal {
            self.line(&format!("pgtoll: {}", printable(name)));
            return;
        }
        let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}");
        self.bar(0, style).set_message(printable(name).into_owned());
    }

    /// A line that marks the way where there is no bar.
    pub(crate) fn milestone(&mut self, label: &str) {
        if !self.quiet && !self.terminal {
            self.line(&format!("pgtoll: {}", printable(label)));
        }
    }

    /// Long work has come to `done` of `all` steps; `what` names them.
    pub(crate) fn progress(&mut self, label: &str, done: u64, all: u64) {
        if self.quiet || !self.terminal {
            return;
        }
        let style = ProgressStyle::with_template("{bar:30} {msg}{time_left}")
            .map(|style| style.with_key("time_left", write_time_left));
        let bar = self.bar(all, style);
        bar.set_message(printable(label).into_owned());
        bar.set_position(done);
    }

    fn bar(
        &mut self,
        length: u64,
        style: Result<ProgressStyle, indicatif::style::TemplateError>,
    ) -> &ProgressBar {
        let same = self.bar.as_ref().is_some_and(|bar| bar.length() == Some(length));
        if !same {
            self.end_progress();
            let bar = ProgressBar::new(length);
            if let Ok(style) = style {
                bar.set_style(style);
            }
            if length == 0 {
                bar.enable_steady_tick(std::time::Duration::from_millis(200));
            }
            self.bar = Some(bar);
        }
        self.bar.get_or_insert_with(ProgressBar::hidden)
    }

    fn end_progress(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn line(&self, line: &str) {
        let line = masked(line);
        let line = printable_lines(&line);
        let write = || drop(writeln!(io::stderr(), "{line}"));
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }
}

/// Colours are for terminals that have them and users who have not said no (no-color.org).
fn style_of_stdout() -> Style {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_none_or(|value| value == "dumb");
    let plain = is_set("NO_COLOR") || is_dumb || !io::stdout().is_terminal();
    if plain { Style::Plain } else { Style::Coloured }
}

/// An estimate needs some work that is done.
fn write_time_left(state: &ProgressState, text: &mut dyn std::fmt::Write) {
    let left = state.eta();
    if state.pos() > 0 && left.as_secs() > 0 {
        // What cannot be written is not shown.
        let _ = write!(text, ", {:#} left", HumanDuration(left));
    }
}

/// An error and its causes. Some errors say already what their cause says.
pub(crate) fn message(error: &anyhow::Error) -> String {
    let mut message = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !message.ends_with(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    message
}
