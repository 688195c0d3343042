//! The file of a relation that a block is in.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A relation (`RelFileLocator`): the place and number of its files.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct RelFileLocator {
    /// The tablespace's OID.
    pub tablespace: u32,
    /// The database's OID; 0 for shared relations.
    pub database: u32,
    /// The number of the files (`relfilenode`).
    #[serde(rename = "number")]
    pub rel_number: u32,
}

/// A fork of a relation.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct RelationFork {
    /// The relation.
    pub relation: RelFileLocator,
    /// The number of its fork.
    #[serde(rename = "fork")]
    pub number: ForkNumber,
}

/// A block of a fork (`BlockNumber`), from 0.
pub type BlockNumber = u32;

/// A fork of a relation (`ForkNumber`). PostgreSQL has four; damaged WAL may name others.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ForkNumber(pub u8);

impl ForkNumber {
    /// Its rows or pages (`MAIN_FORKNUM`).
    pub const MAIN: Self = Self(0);
    /// The free space map (`FSM_FORKNUM`).
    pub const FSM: Self = Self(1);
    /// The visibility map (`VISIBILITYMAP_FORKNUM`).
    pub const VM: Self = Self(2);
    /// The fork that an unlogged relation is reset to after a crash (`INIT_FORKNUM`).
    pub const INIT: Self = Self(3);
    /// All that PostgreSQL has, in their numbers' order.
    pub const ALL: [Self; 4] = [Self::MAIN, Self::FSM, Self::VM, Self::INIT];

    /// The name (`forkNames`): `main`, `fsm`, `vm` or `init`; `None` of a fork that PostgreSQL does
    /// not have.
    pub fn name(self) -> Option<&'static str> {
        NAMES.get(usize::from(self.0)).copied()
    }

    /// The fork with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fork| fork.name() == Some(name))
    }

    /// The fork whose files' names have this behind an underscore: all but the main one.
    pub fn from_suffix(suffix: &str) -> Option<Self> {
        Self::from_name(suffix).filter(|fork| *fork != Self::MAIN)
    }

    /// Returns the suffix of a file's name behind an underscore; `None` for the main fork.
    pub fn suffix(self) -> Option<&'static str> {
        (self != Self::MAIN).then(|| self.name().unwrap_or("?"))
    }
}

const NAMES: [&str; 4] = ["main", "fsm", "vm", "init"];

/// `main`; `fork 7` of one that PostgreSQL does not have.
impl fmt::Display for ForkNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "fork {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Resume files have them.
    #[test]
    fn the_serialized_form_stays() {
        let relation = RelFileLocator { tablespace: 1663, database: 5, rel_number: 16384 };
        let fork = RelationFork { relation, number: ForkNumber::VM };
        let form = r#"{"relation":{"tablespace":1663,"database":5,"number":16384},"fork":2}"#;
        assert_eq!(serde_json::to_string(&fork).unwrap(), form);
        assert_eq!(serde_json::from_str::<RelationFork>(form).unwrap(), fork);
    }

    #[test]
    fn forks_have_postgresqls_names() {
        let names = ForkNumber::ALL.map(|fork| fork.to_string());
        assert_eq!(names, ["main", "fsm", "vm", "init"]);
        assert_eq!(ForkNumber::ALL.map(|fork| fork.0), [0, 1, 2, 3]);
        let suffixes = ForkNumber::ALL.map(ForkNumber::suffix);
        assert_eq!(suffixes, [None, Some("fsm"), Some("vm"), Some("init")]);
        assert_eq!(ForkNumber::from_suffix("main"), None);
    }

    proptest! {
        #[test]
        fn every_number_has_a_name_of_its_own(number: u8, other: u8) {
            let fork = ForkNumber(number);
            let other = ForkNumber(other);
            prop_assert_eq!(fork == other, fork.to_string() == other.to_string());
            prop_assert_eq!(fork.name().and_then(ForkNumber::from_name), fork.name().map(|_| fork));
        }

        #[test]
        fn a_name_is_that_of_its_fork(text in "main|fsm|vm|init|[a-z_]{0,5}|.*") {
            let by_name = ForkNumber::from_name(&text);
            prop_assert_eq!(by_name.and_then(ForkNumber::name), by_name.map(|_| text.as_str()));
            let by_suffix = ForkNumber::from_suffix(&text);
            prop_assert_eq!(by_suffix.and_then(ForkNumber::suffix), by_suffix.map(|_| text.as_str()));
        }
    }
}
