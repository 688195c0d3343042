//! Data checksums on and off over a replica set, node by node, without downtime but that of a
//! switchover.
//!
//! Standbys are stopped one by one, converted and started again, leaves first. Then the primary hands
//! over to a standby that is converted, starts as a standby itself, and is converted as the others
//! were. Before anybody is promoted, the old primary is made a standby: the one who starts it, and
//! whenever this process dies, at most one node takes writes.
//!
//! The state is asked of the nodes before each step (`survey`), and the next step follows from it
//! (`step`). The journal beside the file of nodes has only what nodes cannot say: the plan, what was
//! confirmed, and what has to be restored.

mod error;
mod journal;
mod node;
mod nodes;
mod options;
mod preflight;
mod run;
mod site;
mod step;
mod survey;
mod topology;

pub use error::RollingError;
pub use node::{NodeAnswer, NodeReport, NodeVerb, answer};
pub use nodes::{NodeConfig, NodesFile};
pub use options::{RollingDialogue, RollingEvent, RollingOptions, RollingQuestion};
pub use run::RollingRun;
