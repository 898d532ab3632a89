//! TopologyPlacementGenerator: a placement for each topology domain that a pod group may run in (KEP-5732, upstream
//! `plugins/topologyaware/topology_placement.go`).

use crate::cluster::{Cluster, NodeView};
use crate::framework::{ExtensionPoint, Incoming, Placement, Plugin, PodGroupView, Registration, Status};
use std::collections::BTreeMap;

/// The plugin.
#[derive(Debug)]
pub(crate) struct TopologyPlacementGenerator;

/// The domain of the pods that are on a node already; `None`: there are none.
fn scheduled_domain<'a>(group: &PodGroupView<'a>, key: &str) -> Result<Option<&'a str>, String> {
    let mut found: Option<&str> = None;
    for pod in group.scheduled() {
        let Some(domain) = pod.node().and_then(|n| n.label(key)) else {
            return Err(format!("no topology domain found for pod {}/{}", pod.namespace(), pod.name()));
        };
        if let Some(other) = found.filter(|other| *other != domain) {
            return Err(format!("more than 1 domain found for pod group: {other}, {domain}"));
        }
        found = Some(domain);
    }
    Ok(found)
}

/// How the plugin is registered.
pub(super) fn registration() -> Registration {
    Registration::new("TopologyPlacementGenerator", &[ExtensionPoint::PlacementGenerate], |_, _| {
        Box::new(TopologyPlacementGenerator)
    })
    .by_default_behind("TopologyAwareWorkloadScheduling", 0)
}

impl Plugin for TopologyPlacementGenerator {
    fn is_local(&self, _cluster: &Cluster, _pod: &Incoming) -> bool {
        true
    }

    fn generate_placements(
        &self,
        group: &PodGroupView<'_>,
        all: Placement,
    ) -> Result<Vec<Placement>, Status> {
        let Some(key) = group.topology_key() else { return Ok(vec![all]) };
        let required = scheduled_domain(group, key).map_err(|text| {
            Status::error(format!("cannot determine domain for already scheduled pods: {text}"))
        })?;
        let cluster = group.cluster();
        let mut domains: BTreeMap<&str, Placement> = BTreeMap::new();
        for id in all.nodes {
            let domain = cluster.node(id).and_then(|n: NodeView<'_>| n.label(key));
            if let Some(domain) = domain.filter(|d| required.is_none_or(|r| r == *d)) {
                domains.entry(domain).or_default().nodes.push(id);
            }
        }
        let named =
            |(domain, placement): (&str, Placement)| Placement { name: domain.to_owned(), ..placement };
        Ok(domains.into_iter().map(named).collect())
    }
}
