//! A run as a history of Jepsen's, one operation a line in EDN: `:add` of a number for each
//! transaction, and a last `:read` of all numbers that are there. `elle-cli --model set` and
//! Jepsen's checkers for sets read it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufWriter, Seek as _, Write};
use std::path::{Path, PathBuf};

use super::error::FileError;
use super::journal::Attempt;
use super::verdict::PresentId;

/// A file that a history is written to. It is new, so that no other file is lost.
#[derive(Debug)]
pub(crate) struct HistoryFile {
    file: File,
    path: PathBuf,
}

impl HistoryFile {
    pub(crate) fn open_new(path: &Path) -> Result<Self, FileError> {
        let made = File::options().write(true).create_new(true).open(path);
        let file =
            made.map_err(|source| FileError { action: "make", path: path.to_owned(), source })?;
        Ok(Self { file, path: path.to_owned() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes what clients did, from the begin of the file; the read is still to come.
    pub(crate) fn begin<I: Iterator<Item = Attempt>>(
        &mut self,
        clients: Vec<I>,
    ) -> io::Result<HistoryWriter<BufWriter<&File>>> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        let mut writer = HistoryWriter::new(BufWriter::new(&self.file), clients.len() as u64);
        writer.adds(clients)?;
        Ok(writer)
    }
}

/// Writes a history.
pub(crate) struct HistoryWriter<W: Write> {
    to: W,
    clients: u64,
    index: u64,
    time_ns: u64,
    foreign: i64,
    /// Why the last values could not be written.
    failure: Option<io::Error>,
}

impl<W: Write> HistoryWriter<W> {
    fn new(to: W, clients: u64) -> Self {
        Self { to, clients, index: 0, time_ns: 0, foreign: 0, failure: None }
    }

    /// All operations of all clients in the order of their times.
    fn adds<I: Iterator<Item = Attempt>>(&mut self, clients: Vec<I>) -> io::Result<()> {
        let mut sources: Vec<ClientOperations<I>> =
            clients.into_iter().map(ClientOperations::new).collect();
        let mut next: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        for (client, source) in sources.iter().enumerate() {
            next.extend(source.next_ns().map(|at_ns| Reverse((at_ns, client))));
        }
        while let Some(Reverse((at_ns, client))) = next.pop() {
            let Some(source) = sources.get_mut(client) else { continue };
            if let Some((kind, sequence)) = source.take() {
                let value = sequence.saturating_mul(self.clients).saturating_add(client as u64);
                // Who never heard of an operation begins as another process.
                let process = client as u64 + source.unheard * self.clients;
                self.operation(kind, "add", &value.to_string(), process, at_ns)?;
                source.unheard += u64::from(kind == "info");
            }
            next.extend(source.next_ns().map(|at_ns| Reverse((at_ns, client))));
        }
        self.operation("invoke", "read", "nil", u64::from(u32::MAX), self.time_ns)?;
        let index = self.index;
        let time_ns = self.time_ns;
        write!(
            self.to,
            "{{:index {index}, :type :ok, :process {}, :f :read, :time {time_ns}, :value [",
            u32::MAX
        )
    }

    fn operation(
        &mut self,
        kind: &str,
        f: &str,
        value: &str,
        process: u64,
        at_ns: u64,
    ) -> io::Result<()> {
        self.time_ns = self.time_ns.max(at_ns);
        writeln!(
            self.to,
            "{{:index {}, :type :{kind}, :process {process}, :f :{f}, :time {}, :value {value}}}",
            self.index, self.time_ns
        )?;
        self.index += 1;
        Ok(())
    }

    /// A number that is there.
    pub(crate) fn present(&mut self, id: PresentId) {
        let written = if id.client < self.clients {
            let value = id.sequence.saturating_mul(self.clients).saturating_add(id.client);
            write!(self.to, "{value} ")
        } else {
            self.foreign -= 1;
            write!(self.to, "{} ", self.foreign)
        };
        if let Err(error) = written {
            self.failure.get_or_insert(error);
        }
    }

    /// All that is there has been written.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.failure.take().map_or(Ok(()), Err)?;
        writeln!(self.to, "]}}")?;
        self.to.flush()
    }
}

/// A client's transactions as operations: each begins, and ends in one of three ways.
struct ClientOperations<I> {
    attempts: I,
    current: Option<Attempt>,
    is_invoked: bool,
    /// Operations that never were answered for certain.
    unheard: u64,
}

impl<I: Iterator<Item = Attempt>> ClientOperations<I> {
    fn new(mut attempts: I) -> Self {
        let current = attempts.next();
        Self { attempts, current, is_invoked: false, unheard: 0 }
    }

    /// When the next operation is; one that still waits has none.
    fn next_ns(&self) -> Option<u64> {
        let attempt = self.current?;
        if self.is_invoked { attempt.end.map(|end| end.at_ns) } else { Some(attempt.begun_ns) }
    }

    fn take(&mut self) -> Option<(&'static str, u64)> {
        let attempt = self.current?;
        if !self.is_invoked {
            self.is_invoked = true;
            return Some(("invoke", attempt.sequence));
        }
        let outcome = attempt.end?.outcome;
        self.is_invoked = false;
        self.current = self.attempts.next();
        Some((
            match outcome {
                outcome if outcome.is_acknowledged() => "ok",
                outcome if outcome.is_failure() => "fail",
                _ => "info",
            },
            attempt.sequence,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::journal::{AttemptEnd, AttemptOutcome};
    use super::*;

    #[test]
    fn operations_are_in_the_order_of_time_and_unheard_processes_end() {
        let attempt = |sequence, begun_ns, end: Option<(u64, AttemptOutcome)>| Attempt {
            sequence,
            due_ns: begun_ns,
            begun_ns,
            end: end.map(|(at_ns, outcome)| AttemptEnd {
                at_ns,
                outcome,
                node: None,
                code: [0; 5],
            }),
        };
        let clients = vec![
            vec![
                attempt(0, 10, Some((30, AttemptOutcome::Acknowledged))),
                attempt(1, 40, Some((50, AttemptOutcome::Unknown))),
                attempt(2, 60, None),
            ],
            vec![attempt(0, 20, Some((25, AttemptOutcome::Failed)))],
        ];
        let mut bytes = Vec::new();
        let mut writer = HistoryWriter::new(&mut bytes, 2);
        writer.adds(clients.into_iter().map(Vec::into_iter).collect()).unwrap();
        writer.present(PresentId { client: 0, sequence: 0, payload: 0 });
        writer.present(PresentId { client: 9, sequence: 0, payload: 0 });
        writer.finish().unwrap();
        let expected = "\
{:index 0, :type :invoke, :process 0, :f :add, :time 10, :value 0}
{:index 1, :type :invoke, :process 1, :f :add, :time 20, :value 1}
{:index 2, :type :fail, :process 1, :f :add, :time 25, :value 1}
{:index 3, :type :ok, :process 0, :f :add, :time 30, :value 0}
{:index 4, :type :invoke, :process 0, :f :add, :time 40, :value 2}
{:index 5, :type :info, :process 0, :f :add, :time 50, :value 2}
{:index 6, :type :invoke, :process 2, :f :add, :time 60, :value 4}
{:index 7, :type :invoke, :process 4294967295, :f :read, :time 60, :value nil}
{:index 8, :type :ok, :process 4294967295, :f :read, :time 60, :value [0 -1 ]}
";
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }
}
