//! The file of nodes: the servers of a replica set, and the commands that stop and start them.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use pgtoll_format::single_quoted;
use pgtoll_wire::Dsn;
use serde::Deserialize;

use crate::RollingError;

/// A replica set: at least two nodes, with different names.
#[derive(Clone, Debug)]
pub struct NodesFile {
    /// In the file's order.
    pub nodes: Vec<NodeConfig>,
}

/// A server of the set.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Its name in plans and messages.
    pub name: String,
    /// How pgtoll connects to it: a superuser.
    pub dsn: Dsn,
    /// Its data directory, as its own machine names it.
    pub pgdata: PathBuf,
    /// The command that stops it in good order, and waits.
    pub stop: String,
    /// The command that starts it, and waits.
    pub start: String,
    /// The command that promotes it; `None`: `pg_promote()`.
    pub promote: Option<String>,
    /// The command that runs another one on its machine; `None`: it is this machine.
    pub run: Option<String>,
    /// pgtoll's program on its machine; `None`: this one, or `pgtoll` where `run` is set.
    pub pgtoll: Option<String>,
    /// The node that it streams from, where the server's own words do not show which one that is.
    pub upstream: Option<String>,
    /// The `primary_conninfo` of standbys that stream from it; `None`: that of the standby that
    /// takes over, with this node's host and port.
    pub conninfo: Option<String>,
}

/// Bytes of the file that are read.
const BYTES_MAX: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    #[serde(default)]
    defaults: Defaults,
    node: Vec<toml::Spanned<NodeText>>,
}

/// Values of all nodes that do not have their own.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Defaults {
    stop: Option<String>,
    start: Option<String>,
    promote: Option<String>,
    run: Option<String>,
    pgtoll: Option<String>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeText {
    name: String,
    dsn: String,
    pgdata: PathBuf,
    stop: Option<String>,
    start: Option<String>,
    promote: Option<String>,
    run: Option<String>,
    pgtoll: Option<String>,
    upstream: Option<String>,
    conninfo: Option<String>,
}

impl NodesFile {
    /// Reads the file, whose commands will be run: an error if other users can change it.
    pub fn read(path: &Path) -> Result<Self, RollingError> {
        let read = |source| RollingError::ReadNodes { path: path.to_owned(), source };
        let file = pgtoll_system::open(path).map_err(read)?;
        let found = file.metadata().map_err(read)?;
        let is_own = [0, nix::unistd::geteuid().as_raw()].contains(&found.uid());
        if !is_own || found.mode() & 0o022 != 0 {
            return Err(RollingError::Untrusted { path: path.to_owned() });
        }
        let mut text = String::new();
        file.take(BYTES_MAX).read_to_string(&mut text).map_err(read)?;
        Self::parse(&text).map_err(|mistake| mistake.of_file(path))
    }

    /// Reads the file's text.
    pub(crate) fn parse(text: &str) -> Result<Self, NodesMistake> {
        let file: FileText = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            NodesMistake::at(text, at, error.message().to_owned(), HINT)
        })?;
        let mut names = BTreeSet::new();
        let mut nodes = Vec::new();
        for node in file.node {
            let at = node.span().start;
            let mistake = |message: String, hint| NodesMistake::at(text, at, message, hint);
            let node = node.into_inner();
            if !names.insert(node.name.clone()) {
                let message = format!("there are two nodes \"{}\"", node.name);
                return Err(mistake(message, "give each node a name of its own"));
            }
            nodes
                .push(node_of(node, &file.defaults).map_err(|(label, hint)| mistake(label, hint))?);
        }
        if nodes.len() < 2 {
            let message = "a replica set has a primary and a standby at least".to_owned();
            let hint = "for a server without standbys: pgtoll enable PGDATA";
            return Err(NodesMistake::at(text, text.len(), message, hint));
        }
        for node in &nodes {
            if let Some(upstream) =
                node.upstream.as_ref().filter(|upstream| !names.contains(*upstream))
            {
                let message = format!("the upstream \"{upstream}\" of {} is not a node", node.name);
                return Err(NodesMistake::at(text, 0, message, "name a node of this file"));
            }
        }
        Ok(Self { nodes })
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&NodeConfig> {
        self.nodes.iter().find(|node| node.name == name)
    }
}

const HINT: &str =
    "see the example: pgtoll enable --help, or the book's chapter \"Checksums without downtime\"";

fn node_of(node: NodeText, defaults: &Defaults) -> Result<NodeConfig, (String, &'static str)> {
    let name = node.name;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 63 || !name.chars().all(is_plain) {
        let hint = "use letters, digits, - and _, at most 63";
        return Err((format!("\"{name}\" is not a node's name"), hint));
    }
    let dsn = Dsn::parse(&node.dsn).map_err(|error| {
        (format!("the dsn of {name} cannot be read: {error}"), "write it as libpq takes it")
    })?;
    if dsn.endpoints().len() != 1 {
        let hint = "write its own host and port, not those of several servers or of a pooler";
        return Err((format!("the dsn of {name} names several hosts"), hint));
    }
    if !node.pgdata.is_absolute() {
        let hint = "write the data directory's whole path";
        return Err((format!("the pgdata of {name} is not an absolute path"), hint));
    }
    let command = |own: Option<String>, text: &Option<String>| own.or_else(|| text.clone());
    let needed = |own, text: &Option<String>, key: &str| {
        command(own, text).filter(|line| !line.trim().is_empty()).ok_or_else(|| {
            let hint = "for example: stop = \"pg_ctl -D {pgdata} -m fast -w stop\" and start = \
                        \"pg_ctl -D {pgdata} -l {pgdata}/server.log -w start\"";
            (format!("the key \"{key}\" of {name} is missing"), hint)
        })
    };
    let stop = needed(node.stop, &defaults.stop, "stop")?;
    let start = needed(node.start, &defaults.start, "start")?;
    let run = command(node.run, &defaults.run);
    if run.as_ref().is_some_and(|run| !run.contains("{command}")) {
        let hint = "for example: run = \"ssh {name} {command}\"";
        return Err((format!("the key \"run\" of {name} has no {{command}}"), hint));
    }
    Ok(NodeConfig {
        dsn,
        pgdata: node.pgdata,
        stop,
        start,
        promote: command(node.promote, &defaults.promote),
        run,
        pgtoll: command(node.pgtoll, &defaults.pgtoll),
        upstream: node.upstream,
        conninfo: node.conninfo,
        name,
    })
}

impl NodeConfig {
    /// The command line for this machine's shell that runs `line` on the node's machine.
    ///
    /// In `line` stand for {name} and {pgdata} the node's, quoted for a shell. In `run` {command} is
    /// all of it as one quoted word, which `ssh` passes to the shell at the other end.
    pub(crate) fn command_line(&self, line: &str) -> String {
        let line = self.filled(line);
        match &self.run {
            None => line,
            Some(run) => {
                let parts = run.split("{command}").map(|part| self.filled(part));
                parts.collect::<Vec<_>>().join(&single_quoted(&line))
            }
        }
    }

    fn filled(&self, template: &str) -> String {
        let pgdata = single_quoted(&self.pgdata.to_string_lossy());
        template.replace("{pgdata}", &pgdata).replace("{name}", &self.name)
    }
}

/// A mistake in the file of nodes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NodesMistake {
    line: usize,
    message: String,
    hint: String,
}

impl NodesMistake {
    fn at(text: &str, at: usize, message: String, hint: &str) -> Self {
        let before = text.get(..at).unwrap_or(text);
        Self { line: before.matches('\n').count() + 1, message, hint: hint.to_owned() }
    }

    fn of_file(self, path: &Path) -> RollingError {
        let Self { line, message, hint } = self;
        RollingError::Nodes { path: path.to_owned(), line, message, hint }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = r#"
[defaults]
stop = "pg_ctl -D {pgdata} stop"
start = "pg_ctl -D {pgdata} start"
run = "ssh db-{name} {command}"

[[node]]
name = "n1"
dsn = "host=n1 user=postgres"
pgdata = "/srv/it's"

[[node]]
name = "n2"
dsn = "host=n2 user=postgres"
pgdata = "/srv/pg"
stop = "systemctl stop pg"
"#;

    #[test]
    fn a_nodes_own_value_is_before_the_default() {
        let file = NodesFile::parse(TWO).unwrap();
        let [first, second] = &file.nodes[..] else { panic!("{file:?}") };
        assert_eq!((&*first.name, &*second.stop), ("n1", "systemctl stop pg"));
        assert_eq!(second.start, "pg_ctl -D {pgdata} start");
    }

    #[test]
    fn a_command_is_quoted_once_for_each_shell() {
        let file = NodesFile::parse(TWO).unwrap();
        let line = file.nodes[0].command_line(&file.nodes[0].stop);
        // What the far shell gets is: pg_ctl -D '/srv/it'\''s' stop
        let expected = r"ssh db-n1 'pg_ctl -D '\''/srv/it'\''\'\'''\''s'\'' stop'";
        assert_eq!(line, expected);
        let local = NodeConfig { run: None, ..file.nodes[0].clone() };
        assert_eq!(local.command_line("ls {pgdata}"), r"ls '/srv/it'\''s'");
    }

    #[test]
    fn mistakes_have_a_line_and_a_hint() {
        let check = |from: &str, to: &str, line: usize, expected: &str| {
            let text = TWO.replacen(from, to, 1);
            assert_ne!(text, TWO, "{from}");
            let mistake = NodesFile::parse(&text).unwrap_err();
            assert!(mistake.message.contains(expected), "{mistake:?}");
            assert_eq!(mistake.line, line, "{mistake:?}");
            assert!(!mistake.hint.is_empty());
        };
        check("stop = \"pg_ctl -D {pgdata} stop\"\n", "", 6, "\"stop\" of n1 is missing");
        check("stop = \"pg", "stpo = \"pg", 3, "unknown field `stpo`");
        check("name = \"n2\"", "name = \"n1\"", 12, "two nodes \"n1\"");
        check("name = \"n2\"", "name = \"n 2\"", 12, "\"n 2\" is not a node's name");
        check("/srv/pg", "srv/pg", 12, "not an absolute path");
        check("host=n2 ", "host=n2,n3 ", 12, "several hosts");
        check("host=n2 ", "hots=n2 ", 12, "dsn of n2 cannot be read");
        check("{command}", "command", 7, "no {command}");
        check("dsn = \"host=n1 user=postgres\"\n", "", 7, "missing field `dsn`");
        let one = &TWO[..TWO.rfind("[[node]]").unwrap()];
        assert!(NodesFile::parse(one).unwrap_err().message.contains("a primary and a standby"));
        assert!(NodesFile::parse("").unwrap_err().message.contains("missing field `node`"));
    }
}
