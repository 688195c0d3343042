//! A server of objects behind TLS, as stores are.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use pgtoll_testing::ObjectServer;
use pgtoll_trials::{Measured, beside, measured};
use tempfile::TempDir;

/// The server, whose certificate pgtoll trusts.
pub(crate) struct TlsStore {
    pub(crate) server: ObjectServer,
    pgtoll: PathBuf,
    /// The server's certificate.
    roots: TempDir,
}

impl TlsStore {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let roots = TempDir::new().context("make a directory for the certificate")?;
        fs::write(roots.path().join("root.pem"), certified.cert.pem())?;
        let key = certified.signing_key.serialize_pem();
        let server = ObjectServer::start_with_tls(&certified.cert.pem(), &key);
        Ok(Self { server, pgtoll: beside("pgtoll")?, roots })
    }

    /// Verifies the backup with this key; anything but sound is an error.
    pub(crate) fn verify(&self, key: &str) -> anyhow::Result<Measured> {
        let roots = self.roots.path().join("root.pem").display().to_string();
        let mut variables = self.server.environment().to_vec();
        variables.push(("SSL_CERT_FILE", roots));
        let arguments = ["verify", &format!("s3://{key}"), "--jobs", "1"];
        measured(&self.pgtoll, &arguments, &variables)
    }
}
