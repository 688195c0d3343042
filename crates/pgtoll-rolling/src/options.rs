//! A user's choices for a run, and the callbacks by which a run reports and asks.

use pgtoll_record::RollingRecord;

/// How a run goes.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a user's choice")]
pub struct RollingOptions {
    /// Turn checksums on; else off.
    pub enable: bool,
    /// Convert this node alone; `None`: all.
    pub only: Option<String>,
    /// The node that becomes the primary meanwhile; `None`: the first direct standby in the file.
    pub to: Option<String>,
    /// At the end hand over to the first primary again.
    pub switch_back: bool,
    /// Verify each node when it streams again.
    pub verify: bool,
    /// Take `synchronous_standby_names` out for the run.
    pub suspend_sync: bool,
    /// The user says that failover managers are paused.
    pub managers_paused: bool,
    /// Switchovers are not asked for once more.
    pub is_switchover_confirmed: bool,
    /// A command that is run here before each switchover; `{primary}` in it is the primary's name.
    pub before_switch: Option<String>,
    /// A command that is run here after each switchover, or after one that was taken back.
    pub after_switch: Option<String>,
    /// Threads of a conversion; `None`: all cores of the node's machine.
    pub jobs: Option<u16>,
    /// This program, for nodes on this machine.
    pub executable: String,
    /// pgtoll's version.
    pub version: String,
}

/// Whom a run reports to, and asks.
pub trait RollingDialogue {
    /// Something begins or ends.
    fn event(&mut self, event: RollingEvent<'_>);
    /// Whether the user agrees.
    fn confirm(&mut self, question: &RollingQuestion<'_>) -> bool;
}

/// An event of a run.
#[derive(Clone, Copy, Debug)]
pub enum RollingEvent<'a> {
    /// A step, in words.
    Step(&'a str),
    /// A point between steps, by name, at which a run can be ended and resumed.
    Point(&'static str),
}

/// A question of a run.
#[derive(Clone, Copy, Debug)]
pub enum RollingQuestion<'a> {
    /// Begin, as planned?
    Begin(&'a RollingRecord),
    /// Hand over now?
    Switchover {
        /// The primary.
        from: &'a str,
        /// The new primary.
        to: &'a str,
    },
}
