//! A statement's plans on two servers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `EXPLAIN` of a statement on both servers, without its values and costs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShapePlans {
    /// The baseline's, a line each.
    pub baseline: Vec<String>,
    /// The arm's.
    pub arm: Vec<String>,
}
