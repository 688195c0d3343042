//! Dependencies between crates: the table of the architecture, and its comparison with the
//! manifests.
//! manifests.

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::{command, output, say};

/// Every crate of the workspace with the crates of the workspace that it may use. A new crate or
/// edge is a decision: write one in `docs/decisions`.
const LAYERS: [(&str, &[&str]); 29] = [
    ("pgtoll-checksum", &[]),
    ("pgtoll-stats", &[]),
    ("pgtoll-format", &["pgtoll-testing"]),
    // Tests only.
    ("pgtoll-testing", &[]),
    ("pgtoll-model", &["pgtoll-format"]),
    ("pgtoll-record", &["pgtoll-format"]),
    ("pgtoll-estimate", &["pgtoll-format", "pgtoll-model", "pgtoll-record", "pgtoll-stats"]),
    ("pgtoll-wire", &[]),
    ("pgtoll-observe", &["pgtoll-format", "pgtoll-wire"]),
    ("pgtoll-cluster", &["pgtoll-format", "pgtoll-system", "pgtoll-wire"]),
    ("pgtoll-workload", &["pgtoll-format", "pgtoll-record", "pgtoll-wire"]),
    ("pgtoll-system", &[]),
    ("pgtoll-store", &["pgtoll-system", "pgtoll-testing"]),
    ("pgtoll-datadir", &["pgtoll-format", "pgtoll-system", "pgtoll-testing", "pgtoll-wire"]),
    (
        "pgtoll-wal",
        &[
            "pgtoll-datadir",
            "pgtoll-format",
            "pgtoll-model",
            "pgtoll-record",
            "pgtoll-system",
            "pgtoll-testing",
            "pgtoll-wire",
        ],
    ),
    (
        "pgtoll-verify",
        &[
            "pgtoll-checksum",
            "pgtoll-datadir",
            "pgtoll-format",
            "pgtoll-record",
            "pgtoll-system",
            "pgtoll-testing",
            "pgtoll-wal",
            "pgtoll-wire",
        ],
    ),
    (
        "pgtoll-alter",
        &[
            "pgtoll-checksum",
            "pgtoll-datadir",
            "pgtoll-format",
            "pgtoll-record",
            "pgtoll-system",
            "pgtoll-testing",
            "pgtoll-wal",
            "pgtoll-wire",
        ],
    ),
    (
        "pgtoll-fleet",
        &[
            "pgtoll-datadir",
            "pgtoll-estimate",
            "pgtoll-format",
            "pgtoll-record",
            "pgtoll-store",
            "pgtoll-system",
            "pgtoll-verify",
            "pgtoll-wal",
        ],
    ),
    (
        "pgtoll-drill",
        &[
            "pgtoll-cluster",
            "pgtoll-datadir",
            "pgtoll-format",
            "pgtoll-record",
            "pgtoll-system",
            "pgtoll-verify",
            "pgtoll-wal",
            "pgtoll-wire",
        ],
    ),
    (
        "pgtoll-measure",
        &[
            "pgtoll-cluster",
            "pgtoll-estimate",
            "pgtoll-format",
            "pgtoll-model",
            "pgtoll-observe",
            "pgtoll-record",
            "pgtoll-stats",
            "pgtoll-system",
            "pgtoll-wal",
            "pgtoll-wire",
            "pgtoll-workload",
        ],
    ),
    (
        "pgtoll-checkup",
        &[
            "pgtoll-estimate",
            "pgtoll-format",
            "pgtoll-predict",
            "pgtoll-record",
            "pgtoll-stats",
            "pgtoll-system",
            "pgtoll-wire",
        ],
    ),
    (
        "pgtoll-predict",
        &[
            "pgtoll-checksum",
            "pgtoll-estimate",
            "pgtoll-format",
            "pgtoll-model",
            "pgtoll-observe",
            "pgtoll-record",
            "pgtoll-stats",
            "pgtoll-system",
            "pgtoll-wal",
            "pgtoll-wire",
        ],
    ),
    (
        "pgtoll-lab",
        &[
            "pgtoll-alter",
            "pgtoll-checkup",
            "pgtoll-cluster",
            "pgtoll-format",
            "pgtoll-record",
            "pgtoll-stats",
            "pgtoll-system",
            "pgtoll-wire",
            "pgtoll-workload",
        ],
    ),
    (
        "pgtoll-replay",
        &[
            "pgtoll-cluster",
            "pgtoll-format",
            "pgtoll-observe",
            "pgtoll-record",
            "pgtoll-stats",
            "pgtoll-system",
            "pgtoll-wire",
        ],
    ),
    (
        "pgtoll-rolling",
        &[
            "pgtoll-alter",
            "pgtoll-cluster",
            "pgtoll-datadir",
            "pgtoll-format",
            "pgtoll-record",
            "pgtoll-system",
            "pgtoll-wire",
        ],
    ),
    ("pgtoll-report", &["pgtoll-estimate", "pgtoll-format", "pgtoll-record", "pgtoll-stats"]),
    (
        "pgtoll",
        &[
            "pgtoll-alter",
            "pgtoll-checkup",
            "pgtoll-checksum",
            "pgtoll-cluster",
            "pgtoll-datadir",
            "pgtoll-drill",
            "pgtoll-estimate",
            "pgtoll-fleet",
            "pgtoll-format",
            "pgtoll-lab",
            "pgtoll-measure",
            "pgtoll-model",
            "pgtoll-observe",
            "pgtoll-predict",
            "pgtoll-record",
            "pgtoll-replay",
            "pgtoll-report",
            "pgtoll-rolling",
            "pgtoll-stats",
            "pgtoll-store",
            "pgtoll-system",
            "pgtoll-testing",
            "pgtoll-verify",
            "pgtoll-wal",
            "pgtoll-wire",
            "pgtoll-workload",
        ],
    ),
    (
        "pgtoll-trials",
        &[
            "pgtoll-alter",
            "pgtoll-checkup",
            "pgtoll-checksum",
            "pgtoll-cluster",
            "pgtoll-datadir",
            "pgtoll-estimate",
            "pgtoll-format",
            "pgtoll-measure",
            "pgtoll-model",
            "pgtoll-observe",
            "pgtoll-predict",
            "pgtoll-record",
            "pgtoll-report",
            "pgtoll-rolling",
            "pgtoll-stats",
            "pgtoll-system",
            "pgtoll-testing",
            "pgtoll-verify",
            "pgtoll-wal",
            "pgtoll-wire",
            "pgtoll-workload",
        ],
    ),
    ("xtask", &[]),
];

/// Fails on an edge that is not in the table.
pub(crate) fn check() -> anyhow::Result<()> {
    let text = output(command("cargo").args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_str(&text).context("read cargo's metadata")?;
    let violations = violations(&metadata);
    if violations.is_empty() {
        say(&format!("xtask: layers: {} crates as in the table", LAYERS.len()));
        return Ok(());
    }
    bail!("layers: {}", violations.join("; "))
}

/// What the manifests have and the table has not, and crates that only the table has.
fn violations(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let names: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut violations = Vec::new();
    for (package, &name) in packages.iter().zip(&names) {
        let Some((_, may_use)) = LAYERS.iter().find(|(layer, _)| *layer == name) else {
            violations.push(format!("crate {name} is not in the table"));
            continue;
        };
        let dependencies = package["dependencies"].as_array().map_or(&[][..], Vec::as_slice);
        for dependency in dependencies {
            let used = dependency["name"].as_str().unwrap_or_default();
            // Cargo says null for what the program needs, dev for what its tests need; a test's
            // edge counts as well.
            if names.contains(&used) && !may_use.contains(&used) {
                violations.push(format!("{name} uses {used}, which the table does not have"));
            }
        }
    }
    let gone = LAYERS.iter().filter(|(name, _)| !names.contains(name));
    violations.extend(gone.map(|(name, _)| format!("the table's crate {name} does not exist")));
    violations
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The table itself as cargo would tell it, with one more edge.
    fn check(edge: Option<(&str, &str)>) -> Vec<String> {
        let packages: Vec<Value> = LAYERS
            .iter()
            .map(|(name, uses)| {
                let more = edge.filter(|(from, _)| from == name).map(|(_, to)| to);
                let dependencies: Vec<Value> =
                    uses.iter().copied().chain(more).map(|used| json!({ "name": used })).collect();
                json!({ "name": name, "dependencies": dependencies })
            })
            .collect();
        violations(&json!({ "packages": packages }))
    }

    #[test]
    fn the_table_itself_is_accepted() {
        assert_eq!(check(None), [""; 0]);
        assert_eq!(check(Some(("pgtoll-stats", "rand"))), [""; 0], "other crates are free");
    }

    #[test]
    fn a_wrong_edge_is_refused() {
        let expected = "pgtoll-report uses pgtoll-measure, which the table does not have";
        assert_eq!(check(Some(("pgtoll-report", "pgtoll-measure"))), [expected]);
    }

    #[test]
    fn a_crate_on_one_side_only_is_refused() {
        let found = violations(&json!({ "packages": [{ "name": "new", "dependencies": [] }] }));
        assert!(found.contains(&"crate new is not in the table".to_owned()));
        assert!(found.contains(&"the table's crate xtask does not exist".to_owned()));
    }
}
