//! The container image: a layout of the Open Container Initiative, written without a daemon, with the
//! program of each architecture, authorities for TLS, and nothing else.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Parts, anew, copy, names_in, read, write};
use crate::{command, root, run};

/// The authorities that browsers trust, as Debian packages them: none that this machine added.
const AUTHORITIES: &str = "/usr/share/ca-certificates/mozilla";
const BUNDLE: &str = "etc/ssl/certs/ca-certificates.crt";

/// An archive of the layout; tools take it as `oci-archive:FILE:VERSION`.
pub(super) fn make(all: &[Parts], directory: &Path) -> anyhow::Result<()> {
    let Some(first) = all.first() else { return Ok(()) };
    let work = root().join("target/dist-work/image");
    anew(&work)?;
    let layout = Layout { directory: work.join("layout") };
    let authorities = authorities()?;
    let manifests = all
        .iter()
        .map(|parts| layout.platform(parts, &authorities, &work.join(parts.target.debian)))
        .collect::<anyhow::Result<Vec<Value>>>()?;
    let platforms = json!({
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": manifests,
    });
    let mut named = layout.json(&platforms, INDEX)?;
    named["annotations"] = json!({ "org.opencontainers.image.ref.name": first.version });
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [named] });
    write(&layout.directory.join("index.json"), index.to_string())?;
    let version = json!({ "imageLayoutVersion": "1.0.0" });
    write(&layout.directory.join("oci-layout"), version.to_string())?;
    let archive = directory.join(format!("pgtoll-{}-oci.tar", first.version));
    run(&mut first.tar(&layout.directory, &names_in(&layout.directory)?, &archive))
}

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIGURATION: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

struct Layout {
    directory: PathBuf,
}

impl Layout {
    /// A program's image; what an index says of it.
    fn platform(&self, parts: &Parts, authorities: &str, work: &Path) -> anyhow::Result<Value> {
        let tree = work.join("tree");
        copy(&parts.program, &tree.join("usr/bin/pgtoll"))?;
        copy(&root().join("LICENSE"), &tree.join("usr/share/doc/pgtoll/LICENSE"))?;
        parts.licences(&tree.join("usr/share/doc/pgtoll/licences"))?;
        write(&tree.join(BUNDLE), authorities)?;
        write(&tree.join("etc/passwd"), "nobody:x:65534:65534:nobody:/:/usr/bin/false\n")?;
        fs::create_dir_all(tree.join("tmp"))?;
        run(command("chmod").args(["-R", "u=rwX,go=rX"]).arg(&tree))?;
        run(command("chmod").arg("1777").arg(tree.join("tmp")))?;
        let layer = work.join("layer.tar");
        run(&mut parts.tar(&tree, &names_in(&tree)?, &layer))?;
        let unpacked = digest(&read_bytes(&layer)?);
        run(command("gzip").args(["--best", "--no-name", "--force"]).arg(&layer))?;
        let layer = self.blob(&read_bytes(&work.join("layer.tar.gz"))?, LAYER)?;
        let created = parts.date("+%Y-%m-%dT%H:%M:%SZ")?;
        let configuration = self.json(&configuration(parts, &unpacked, &created), CONFIGURATION)?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": configuration,
            "layers": [layer],
        });
        let mut descriptor = self.json(&manifest, MANIFEST)?;
        descriptor["platform"] = json!({ "os": "linux", "architecture": parts.target.debian });
        Ok(descriptor)
    }

    fn json(&self, value: &Value, media_type: &str) -> anyhow::Result<Value> {
        self.blob(value.to_string().as_bytes(), media_type)
    }

    /// Adds a blob; the descriptor by which others point at it.
    fn blob(&self, bytes: &[u8], media_type: &str) -> anyhow::Result<Value> {
        let digest = digest(bytes);
        write(&self.directory.join("blobs/sha256").join(&digest), bytes)?;
        Ok(json!({
            "mediaType": media_type,
            "digest": format!("sha256:{digest}"),
            "size": bytes.len(),
        }))
    }
}

fn configuration(parts: &Parts, layer: &str, created: &str) -> Value {
    json!({
        "created": created,
        "architecture": parts.target.debian,
        "os": "linux",
        "config": {
            "User": "65534:65534",
            "Env": ["PATH=/usr/bin", format!("SSL_CERT_FILE=/{BUNDLE}")],
            "Entrypoint": ["/usr/bin/pgtoll"],
            "Labels": {
                "org.opencontainers.image.title": "pgtoll",
                "org.opencontainers.image.description": parts.description,
                "org.opencontainers.image.version": parts.version,
                "org.opencontainers.image.licenses": "PostgreSQL",
                "org.opencontainers.image.source": parts.repository,
                "org.opencontainers.image.created": created,
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer}")] },
        "history": [{ "created": created, "created_by": "cargo xtask dist" }],
    })
}

fn authorities() -> anyhow::Result<String> {
    let directory = Path::new(AUTHORITIES);
    let names = names_in(directory).context("hint: apt-get install ca-certificates")?;
    let texts = names.iter().map(|name| read(&directory.join(name)));
    let bundle = texts.collect::<anyhow::Result<Vec<_>>>()?.concat();
    if !bundle.contains("BEGIN CERTIFICATE") {
        bail!("no certificates are in {AUTHORITIES}\nhint: apt-get install ca-certificates");
    }
    Ok(bundle)
}

fn digest(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn read_bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("read {}", path.display()))
}
