//! Several scripts, each with its weight.

use crate::Script;

/// Several scripts, each with its weight: every transaction is one of them, drawn in proportion.
/// What `pgbench -f FILE@WEIGHT` does.
#[derive(Clone, Debug)]
pub struct Mix(Vec<(Script, u32)>);

impl Mix {
    /// A script of weight 0 is never run.
    pub fn new(scripts: Vec<(Script, u32)>) -> Result<Self, MixError> {
        if scripts.iter().all(|(_, weight)| *weight == 0) {
            return Err(MixError);
        }
        Ok(Self(scripts))
    }

    /// Whether some script may change data, see [`Script::writes`].
    pub fn writes(&self) -> bool {
        self.0.iter().any(|(script, weight)| *weight > 0 && script.writes())
    }

    /// All of its scripts are built in.
    pub fn is_built_in(&self) -> bool {
        self.0.iter().all(|(script, _)| script.is_built_in())
    }

    /// The scripts with their weights.
    pub fn scripts(&self) -> &[(Script, u32)] {
        &self.0
    }
}

impl From<Script> for Mix {
    fn from(script: Script) -> Self {
        Self(vec![(script, 1)])
    }
}

/// There is nothing to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no script of the mix has a weight above 0")]
pub struct MixError;
