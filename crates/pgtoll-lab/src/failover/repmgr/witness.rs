//! repmgr's witness: a server of its own on the primary's side, whose vote a standby needs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use pgtoll_cluster::{Cluster, Guard, Installation, Repmgr, RepmgrNode, RepmgrSettings, StopMode};

use crate::failover::context::WITNESS;
use crate::failover::error::FailoverError;
use crate::failover::servers::open_link;
use crate::link::Link;

/// A witness that is registered.
pub(super) struct Witness {
    cluster: Cluster,
    pub(super) node: RepmgrNode,
    /// Through which the standby sees it.
    pub(super) link: Arc<Link>,
}

/// A stopped server with repmgr, which runs copy.
pub(in crate::failover) fn template(
    installation: &Installation,
    guard: &mut Guard,
) -> Result<Cluster, FailoverError> {
    let template = Cluster::init(guard, installation, "witness-template", true)?;
    let settings = [("shared_preload_libraries", "repmgr"), ("shared_buffers", "16MB")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    template.configure(guard, &BTreeMap::from(settings))?;
    template.start(guard)?;
    let mut connection = template.connect("postgres")?;
    connection.execute(&format!("CREATE DATABASE {}", Repmgr::DATABASE))?;
    connection.close();
    template.stop(guard, StopMode::Fast)?;
    Ok(template)
}

impl Witness {
    /// Starts it, and registers it with the primary. Others find it through a link.
    pub(super) fn start(
        repmgr: &Repmgr,
        guard: &mut Guard,
        template: &Cluster,
        primary: &Cluster,
        settings: &RepmgrSettings,
    ) -> Result<Self, FailoverError> {
        let cluster = template.copy(guard, WITNESS)?;
        cluster.start(guard)?;
        let directory = guard.directory().join("witness-link");
        let link = Arc::new(open_link(guard, &directory, &cluster)?);
        let seen = RepmgrSettings { host: Some(directory), ..settings.clone() };
        let node = repmgr.node(guard, &cluster, &seen)?;
        let host = primary.directory().to_string_lossy().into_owned();
        let place = ["-h", &host, "-p", "5432", "-U", "postgres", "-d", Repmgr::DATABASE];
        node.run(guard, &[&["witness", "register"], place.as_slice()].concat())?;
        // Its own daemon does not need the link.
        let node = repmgr.node(guard, &cluster, settings)?;
        Ok(Self { cluster, node, link })
    }

    /// Ends it, and removes it.
    pub(super) fn remove(self, guard: &mut Guard) -> Result<(), FailoverError> {
        drop(self.link);
        let _ = self.cluster.stop(guard, StopMode::Immediate);
        self.cluster.remove(guard)?;
        let configuration = self.node.configuration().to_string_lossy().into_owned();
        guard.run(Path::new("rm"), &["-f", &configuration])?;
        Ok(())
    }
}
