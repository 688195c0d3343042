//! The streaming tree, and the order in which nodes are converted. Pure.

use crate::RollingError;
use crate::site::NodeSite;
use crate::survey::Survey;

/// A set of nodes as a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaTree {
    pub(crate) primary: String,
    /// Nodes with the one that they stream from, in the file's order; without the primary.
    pub(crate) upstreams: Vec<(String, String)>,
}

impl ReplicaTree {
    /// The tree that running nodes report.
    pub(crate) fn new(survey: &Survey, sites: &[NodeSite]) -> Result<Self, RollingError> {
        let Some(primary) = survey.primary()? else {
            return Err(RollingError::State {
                message: "no node takes writes".to_owned(),
                hint: "start the primary first".to_owned(),
            });
        };
        let mut upstreams = Vec::new();
        for (node, site) in survey.nodes.iter().zip(sites) {
            if node.name == primary.name {
                continue;
            }
            let receiver = node.server.as_ref().and_then(|server| server.receiver.as_ref());
            let found =
                receiver.and_then(|receiver| sites.iter().find(|site| receiver.is_from(site)));
            let upstream = match (&site.config.upstream, found, receiver) {
                (Some(upstream), _, _) => upstream.clone(),
                (None, Some(item), _) if item.name() != node.name => item.name().to_owned(),
                (None, _, Some(receiver)) => {
                    let host = &receiver.host;
                    let port = receiver.port;
                    return Err(RollingError::State {
                        message: format!(
                            "{} streams from {host} port {port}, which is the dsn of no node",
                            node.name
                        ),
                        hint: "add that node, or give this one the key upstream".to_owned(),
                    });
                }
                (None, _, None) => {
                    return Err(RollingError::State {
                        message: format!("{} does not stream", node.name),
                        hint: "start it, let it catch up, and begin again".to_owned(),
                    });
                }
            };
            upstreams.push((node.name.clone(), upstream));
        }
        let topology = Self { primary: primary.name.clone(), upstreams };
        topology.check()?;
        Ok(topology)
    }

    /// Every node leads to the primary.
    fn check(&self) -> Result<(), RollingError> {
        match self.upstreams.iter().find(|(node, _)| self.depth(node).is_none()) {
            None => Ok(()),
            Some((node, _)) => Err(RollingError::State {
                message: format!("{node} does not stream from {}, directly or not", self.primary),
                hint: "see the keys upstream".to_owned(),
            }),
        }
    }

    pub(crate) fn upstream(&self, node: &str) -> Option<&str> {
        self.upstreams
            .iter()
            .find(|(upstream, _)| upstream == node)
            .map(|(_, upstream)| &**upstream)
    }

    /// How many steps the primary is away; `None`: it is not reached.
    fn depth(&self, node: &str) -> Option<usize> {
        let mut node = node;
        (0..=self.upstreams.len()).find(|_| {
            let is_primary = node == self.primary;
            node = self.upstream(node).unwrap_or(node);
            is_primary
        })
    }

    /// Standbys that stream from the primary itself.
    pub(crate) fn direct(&self) -> impl Iterator<Item = &str> {
        let is_direct = |(_, upstream): &&(String, String)| *upstream == self.primary;
        self.upstreams.iter().filter(is_direct).map(|(node, _)| &**node)
    }

    /// Leaves first, the one that takes over last of the standbys, then the primary.
    pub(crate) fn order(&self, candidate: Option<&str>) -> Vec<String> {
        let mut standbys: Vec<&str> = self.upstreams.iter().map(|(node, _)| &**node).collect();
        let rank = |node: &&str| {
            let depth = self.depth(node).unwrap_or_default();
            (std::cmp::Reverse(depth), candidate == Some(node))
        };
        standbys.sort_by_key(rank);
        standbys.into_iter().chain([&*self.primary]).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(upstreams: &[(&str, &str)]) -> ReplicaTree {
        let upstreams =
            upstreams.iter().map(|(node, upstream)| ((*node).to_owned(), (*upstream).to_owned()));
        ReplicaTree { primary: "n1".to_owned(), upstreams: upstreams.collect() }
    }

    #[test]
    fn leaves_come_first_and_the_primary_last() {
        let tree = topology(&[("n2", "n1"), ("n3", "n2"), ("n4", "n1"), ("n5", "n3")]);
        assert_eq!(tree.order(Some("n2")), ["n5", "n3", "n4", "n2", "n1"]);
        assert_eq!(tree.order(Some("n4")), ["n5", "n3", "n2", "n4", "n1"]);
        assert_eq!(tree.direct().collect::<Vec<_>>(), ["n2", "n4"]);
        assert!(tree.check().is_ok());
    }

    #[test]
    fn a_circle_leads_to_no_primary() {
        let tree = topology(&[("n2", "n3"), ("n3", "n2")]);
        assert!(tree.check().unwrap_err().to_string().contains("n2 does not stream from n1"));
    }
}
