//! The origin of a record.

/// The provenance of a record. The binary passes it to the crate that fills the record:
/// libraries read neither the arguments nor the clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// pgtoll's version.
    pub version: String,
    /// The command that makes the record again, a shell's word each.
    pub command: Vec<String>,
    /// When it was made (RFC 3339).
    pub made: String,
}
