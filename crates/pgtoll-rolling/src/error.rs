//! Why a run over a replica set cannot begin, or ended before everything was done.

use std::io;
use std::path::PathBuf;

use pgtoll_cluster::ClusterError;
use pgtoll_system::Interrupted;

/// A run over a replica set cannot begin, or ended before everything was done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RollingError {
    /// The file of nodes cannot be read.
    #[error("read {}", path.display())]
    ReadNodes {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Other users could put commands into the file of nodes.
    #[error("{} can be changed by other users, and has commands that would be run", path.display())]
    Untrusted {
        /// The file.
        path: PathBuf,
    },
    /// A mistake in the file of nodes.
    #[error("{}, line {line}: {message}", path.display())]
    Nodes {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The faults.
        message: String,
        /// Returns advice, if there is any.
        hint: String,
    },
    /// The journal cannot be read or written.
    #[error("{verb} {}", path.display())]
    Journal {
        /// "read", "write" or "remove"; "lock" the file of nodes.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// An earlier run has not ended.
    #[error("an earlier run over these nodes has not ended: {}", path.display())]
    Unfinished {
        /// Its journal.
        path: PathBuf,
    },
    /// There is nothing to resume or to abort.
    #[error("no unfinished run: there is no {}", path.display())]
    NothingToResume {
        /// The journal.
        path: PathBuf,
    },
    /// The unfinished run is another one.
    #[error("the unfinished run {what}")]
    OtherRun {
        /// In what it differs.
        what: String,
    },
    /// Another process works on the same nodes.
    #[error("another pgtoll works on these nodes: it has locked {}", path.display())]
    Locked {
        /// The file of nodes.
        path: PathBuf,
    },
    /// A name is no node's.
    #[error("no node \"{name}\"")]
    NoNode {
        /// The name.
        name: String,
    },
    /// A command could not be started.
    #[error(transparent)]
    Start(#[from] ClusterError),
    /// A command failed.
    #[error("{what} failed on {node}: {status}: {output}")]
    Command {
        /// The node.
        node: String,
        /// The name of the node's command.
        what: &'static str,
        /// How it ended.
        status: String,
        /// The end of what it printed.
        output: String,
    },
    /// A command did not end in time. It continues.
    #[error("{what} on {node} has not ended after {seconds} s")]
    Slow {
        /// The node.
        node: String,
        /// The name of the node's command.
        what: &'static str,
        /// The limit.
        seconds: u64,
    },
    /// pgtoll on a node gave an answer that this one cannot read.
    #[error("pgtoll gave no answer on {node}: {output}")]
    NoAnswer {
        /// The node.
        node: String,
        /// The end of what was printed.
        output: String,
    },
    /// pgtoll on a node refused.
    #[error("{node}: {message}")]
    Node {
        /// The node.
        node: String,
        /// The reason, in a sentence.
        message: String,
        /// Returns advice, if there is any.
        hint: Option<String>,
    },
    /// A server cannot be asked.
    #[error("{what} {node}")]
    Server {
        /// "connect to", "ask" or "change a setting of".
        what: &'static str,
        /// The node.
        node: String,
        /// The error.
        source: pgtoll_wire::Error,
    },
    /// The awaited state was not reached.
    #[error("{node} {what} within {seconds} s")]
    NotInTime {
        /// The node.
        node: String,
        /// The part that it did not do.
        what: String,
        /// The limit.
        seconds: u64,
    },
    /// The nodes are in a state from which pgtoll does not continue by itself.
    #[error("{message}")]
    State {
        /// Its number or name.
        message: String,
        /// Returns advice, if there is any.
        hint: String,
    },
    /// The user said no.
    #[error("not confirmed: {what}")]
    NotConfirmed {
        /// The question.
        what: String,
    },
    /// A signal came.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl RollingError {
    /// Returns advice.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::ReadNodes { .. } => "name a file that lists the nodes, as the book shows",
            Self::Untrusted { .. } => {
                "make it your own, and take the others' right to write: chmod go-w"
            }
            Self::Nodes { hint, .. } | Self::State { hint, .. } => hint,
            Self::Unfinished { .. } => "end it first: --resume continues, --abort restores order",
            Self::NothingToResume { .. } => "begin a new run, without --resume or --abort",
            Self::OtherRun { .. } => "end it with the command and the file that it was begun with",
            Self::NoNode { .. } => "name a node of the file of nodes",
            Self::Start(error) => return error.hint(),
            Self::Command { what: "run", .. } | Self::NoAnswer { .. } => {
                "is this version of pgtoll on that machine? The keys run and pgtoll name it"
            }
            Self::Node { hint, .. } => return hint.clone(),
            Self::Server { source, .. } => return source.hint(),
            Self::NotConfirmed { .. } => "confirm it on a terminal, or with --yes",
            Self::Journal { .. } | Self::Locked { .. } => return None,
            Self::Command { .. }
            | Self::Slow { .. }
            | Self::NotInTime { .. }
            | Self::Interrupted(_) => "then: --resume continues, --abort restores order",
        };
        Some(hint.to_owned())
    }
}
