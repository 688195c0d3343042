//! Two checkups of a server, before and after a change.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::CheckupRecord;

/// The version of the form of a [`CheckupChange`].
pub const CHECKUP_CHANGE_SCHEMA: &str = "pgtoll.checkup-change/1";

/// Two checkups, side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckupChange {
    /// [`CHECKUP_CHANGE_SCHEMA`].
    pub schema: String,
    /// The first.
    pub before: CheckupRecord,
    /// The second.
    pub after: CheckupRecord,
}

impl CheckupChange {
    /// Two checkups in their order.
    pub fn new(before: CheckupRecord, after: CheckupRecord) -> Self {
        Self { schema: CHECKUP_CHANGE_SCHEMA.to_owned(), before, after }
    }
}
