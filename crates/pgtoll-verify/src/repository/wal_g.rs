//! WAL-G's sentinel of a backup: JSON, written last. Made after its source.

/// The content of a sentinel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalGSentinel {
    /// The backup is whole.
    Full,
    /// It has what changed since another one.
    Delta,
}

/// Parses a sentinel; `None`: these bytes are not a sentinel.
pub fn wal_g_sentinel(sentinel: &[u8]) -> Option<WalGSentinel> {
    let fields: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(sentinel).ok()?;
    let is_delta = ["DeltaFrom", "DeltaLSN", "DeltaFullName"]
        .iter()
        .any(|name| fields.get(*name).is_some_and(|value| !value.is_null()));
    Some(if is_delta { WalGSentinel::Delta } else { WalGSentinel::Full })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_that_names_another_one_is_a_delta() {
        let full = br#"{"LSN": 1, "DeltaFrom": null, "Spec": null}"#;
        assert_eq!(wal_g_sentinel(full), Some(WalGSentinel::Full));
        for field in ["DeltaFrom", "DeltaLSN", "DeltaFullName"] {
            let delta = format!(r#"{{"LSN": 1, "{field}": "base_1"}}"#);
            assert_eq!(wal_g_sentinel(delta.as_bytes()), Some(WalGSentinel::Delta));
        }
        for other in [&b""[..], b"[]", b"Salted__", b"{\"LSN\": 1"] {
            assert_eq!(wal_g_sentinel(other), None);
        }
    }
}
