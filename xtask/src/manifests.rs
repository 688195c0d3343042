//! Whether others would take what is below `deploy`: Kubernetes the manifests, by their schemas in several
//! releases, GitHub the action and workflows, Grafana the dashboard. What schemas do not say is in
//! pgtoll's own tests.

use std::path::PathBuf;

use crate::setup::fetch_python;
use crate::{command, root, run};

/// The oldest release with retries by index, one in the middle, the newest that the package has.
const RELEASES: [&str; 3] = ["1.29.0", "1.33.0", "1.37.0"];

const MANIFESTS: [&str; 2] = ["pgtoll-checkup.yaml", "pgtoll-fleet.yaml"];

/// Files that a schema of GitHub's or types of Grafana's check, behind the name of which.
const OTHERS: [&[&str]; 3] = [
    &["action", "action.yml"],
    &["workflow", "deploy/github/nightly-drill.yml", "deploy/github/price-of-a-pull-request.yml"],
    &["grafana", "deploy/grafana/pgtoll-patrol.json"],
];

const SCRIPT: &str = include_str!("manifests.py");

const PACKAGES: &str = include_str!("manifests.txt");

pub(crate) fn check() -> anyhow::Result<()> {
    let packages: PathBuf = fetch_python("manifests", PACKAGES)?;
    for release in RELEASES {
        run(command("python3")
            .args(["-m", "kubernetes_validate", "--quiet", "--strict"])
            .args(["--kubernetes-version", release])
            .args(MANIFESTS.map(|name| root().join("deploy/kubernetes").join(name)))
            .env("PYTHONPATH", &packages))?;
    }
    for words in OTHERS {
        run(command("python3").args(["-c", SCRIPT]).args(words).env("PYTHONPATH", &packages))?;
    }
    Ok(())
}
