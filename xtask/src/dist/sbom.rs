//! The list of what the program contains, in the form of `CycloneDX`.

use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::{Parts, read, write};
use crate::root;

pub(super) fn make(parts: &Parts, directory: &Path) -> anyhow::Result<()> {
    let lock: toml::Table = read(&root().join("Cargo.lock"))?.parse().context("read Cargo.lock")?;
    let locked = lock["package"].as_array().context("read Cargo.lock")?;
    let checksum = |name: &str, version: &str| {
        let item = locked.iter().find(|locked| {
            locked["name"].as_str() == Some(name) && locked["version"].as_str() == Some(version)
        });
        item.and_then(|locked| locked.get("checksum")?.as_str())
    };
    let components: Vec<Value> = parts
        .packages
        .iter()
        .map(|package| {
            let purl =
                format!("pkg:cargo/{}@{}", package.name, package.version.replace('+', "%2B"));
            json!({
                "type": "library",
                "bom-ref": purl,
                "purl": purl,
                "name": package.name,
                "version": package.version,
                "licenses": [{ "expression": package.licence.replace('/', " OR ") }],
                "hashes": checksum(&package.name, &package.version)
                    .map(|sum| json!({ "alg": "SHA-256", "content": sum }))
                    .into_iter()
                    .collect::<Vec<_>>(),
            })
        })
        .collect();
    let bom = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": {
            "type": "application",
            "name": "pgtoll",
            "version": parts.version,
            "licenses": [{ "expression": "PostgreSQL" }],
        }},
        "components": components,
    });
    let Parts { version, target, .. } = parts;
    let name = format!("pgtoll-{version}-{}-linux.cdx.json", target.machine);
    write(&directory.join(name), serde_json::to_string_pretty(&bom)? + "\n")
}
