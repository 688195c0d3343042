//! Whether Kubernetes would take the manifests below `deploy`: their schemas in several releases. What
//! schemas do not say is in pgtoll's own tests.

use std::path::PathBuf;

use crate::setup::fetch_python;
use crate::{command, root, run};

/// The oldest release with retries by index, one in the middle, the newest that the package has.
const RELEASES: [&str; 3] = ["1.29.0", "1.33.0", "1.37.0"];

const MANIFESTS: [&str; 2] = ["pgtoll-checkup.yaml", "pgtoll-fleet.yaml"];

const PACKAGES: &str = include_str!("manifests.txt");

pub(crate) fn check() -> anyhow::Result<()> {
    let packages: PathBuf = fetch_python("kubernetes-validate-1.37.0", PACKAGES)?;
    for release in RELEASES {
        run(command("python3")
            .args(["-m", "kubernetes_validate", "--quiet", "--strict"])
            .args(["--kubernetes-version", release])
            .args(MANIFESTS.map(|name| root().join("deploy/kubernetes").join(name)))
            .env("PYTHONPATH", &packages))?;
    }
    Ok(())
}
