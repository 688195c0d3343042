//! Names that pgtoll gives to what it makes for a run. Directories and programs with a name of their
//! own share a directory with the arms', so that no arm may be called so.

/// The database with pgbench's tables.
pub(crate) const DATABASE: &str = "postgres";

/// The cluster that is loaded, and that the arms are copies of.
pub(crate) const ORIGIN: &str = "origin";
/// How the names of origins of other formats of data begin.
pub(crate) const ORIGINS: &str = "origin-";
/// How the names of clusters without data begin, for workloads of steps.
pub(crate) const EMPTY: &str = "empty";
/// The one cluster of a crossover.
pub(crate) const CROSSED: &str = "crossed";
/// A copy on which transactions are counted.
pub(crate) const COUNTED: &str = "counted";
/// How the names of copies on which steps are done begin, and their memory groups'.
pub(crate) const OPERATION: &str = "operation";
/// The program that samples functions, with the guard.
pub(crate) const PROFILER: &str = "profiler";

/// PostgreSQL's program that fills the tables scripts work on.
pub(crate) const PGBENCH: &str = "pgbench";
/// The shell that understands a command as its user wrote it.
pub(crate) const SHELL: &str = "/bin/sh";
