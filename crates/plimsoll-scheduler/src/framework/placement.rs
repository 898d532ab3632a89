//! Placements: sets of nodes in which a pod group is tried (KEP-5732, framework `PlacementGeneratePlugin` and
//! `PlacementScorePlugin`).

use crate::cluster::{Cluster, NodeId, PodId, PodView};

/// A set of nodes for a pod group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Its name in messages.
    pub name: String,
    /// Its nodes, in no particular order.
    pub nodes: Vec<NodeId>,
}

/// Where pods of a group would run in a placement.
#[derive(Clone, Copy, Debug)]
pub struct PodGroupAssignments<'a> {
    /// The placement.
    pub placement: &'a Placement,
    /// Pods that found a node there, and the node.
    pub proposed: &'a [(PodId, NodeId)],
}

/// A pod group that is being scheduled.
#[derive(Clone, Copy, Debug)]
pub struct PodGroupView<'a> {
    cluster: &'a Cluster,
    pods: &'a [PodId],
}

impl<'a> PodGroupView<'a> {
    /// The group of these pods, at least one, which have no node.
    pub(crate) fn new(cluster: &'a Cluster, pods: &'a [PodId]) -> Self {
        Self { cluster, pods }
    }

    /// The cluster.
    pub fn cluster(self) -> &'a Cluster {
        self.cluster
    }

    /// Namespace of the group.
    pub fn namespace(self) -> &'a str {
        self.pods.first().and_then(|p| self.cluster.pod(*p)).map_or("", PodView::namespace)
    }

    /// Name of the PodGroup.
    pub fn name(self) -> &'a str {
        let extra = self.pods.first().and_then(|p| self.cluster.pods[*p].extra.as_ref());
        extra.map_or("", |e| &e.group)
    }

    /// `spec.schedulingConstraints.topology[0].key`: all pods of the group run on nodes with the same value of this label.
    pub fn topology_key(self) -> Option<&'a str> {
        let group = self.pods.first().and_then(|p| self.cluster.group_of(*p))?;
        group.object.as_ref()?.topology_key.as_deref()
    }

    /// The pods to be scheduled, in the order in which they are tried.
    pub fn unscheduled(self) -> impl Iterator<Item = PodView<'a>> {
        self.pods.iter().filter_map(move |p| self.cluster.pod(*p))
    }

    /// The pods of the group that are on a node, assumed ones among them.
    pub fn scheduled(self) -> impl Iterator<Item = PodView<'a>> {
        let group = self.pods.first().and_then(|p| self.cluster.group_of(*p));
        let pods = group.into_iter().flat_map(|g| &g.pods);
        pods.filter_map(move |p| self.cluster.pod(*p)).filter(|p| p.node().is_some())
    }
}
