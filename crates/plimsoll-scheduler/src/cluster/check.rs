//! The counts of the cluster against a recount.

use super::{Cluster, NodeId, PodId};
use plimsoll_state::intern::{Map, Sym};
use plimsoll_state::slab::Id as _;
use std::collections::BTreeSet;

impl Cluster {
    /// Recounts every node from its pods and compares.
    ///
    /// # Panics
    /// When they differ.
    pub(crate) fn check(&self) {
        self.check_held();
        self.objects.devices.check();
        let mut columns = self.columns.clone();
        for c in columns.used.iter_mut().chain(&mut columns.nonzero) {
            c.fill(0);
        }
        let mut on_node: Map<NodeId, usize> = Map::default();
        let mut scalars: Map<(NodeId, Sym), i64> = Map::default();
        let mut ports = 0;
        let mut claims: Map<NodeId, u32> = Map::default();
        for (id, pod) in self.pods.iter() {
            let Some(node) = pod.node else { continue };
            let n = node.index();
            assert_eq!(self.nodes[node].pods.get(pod.slot as usize), Some(&id), "pod is listed on its node");
            *on_node.entry(node).or_default() += 1;
            let usage = self.usage(pod);
            let r = &usage.requests;
            for (column, amount) in columns.used.iter_mut().zip([r.cpu, r.memory, r.ephemeral, 1]) {
                column[n] += amount;
            }
            columns.nonzero[0][n] += usage.nonzero_cpu;
            columns.nonzero[1][n] += usage.nonzero_memory;
            for (name, amount) in &r.scalars {
                *scalars.entry((node, *name)).or_default() += amount;
            }
            for _ in self.shapes.get(pod.shape).spec.source.volumes.iter().filter(|v| v.source.is_claim()) {
                *claims.entry(node).or_default() += 1;
            }
            ports += self.shapes.get(pod.shape).spec.ports.len();
        }
        assert!(columns == self.columns, "node columns equal a recount");
        let mut listed_ports = 0;
        for (id, node) in self.nodes.iter() {
            assert_eq!(node.pods.len(), on_node.get(&id).copied().unwrap_or(0), "pods per node");
            assert_eq!(node.claims, claims.get(&id).copied().unwrap_or(0), "volumes that are claims");
            listed_ports += node.ports.len();
            for s in &node.scalars {
                assert_eq!(s.used, scalars.get(&(id, s.name)).copied().unwrap_or(0), "scalar resources");
            }
        }
        assert_eq!(ports, listed_ports, "host ports");
        assert_eq!(self.node_count, self.live_nodes().count(), "number of nodes");
        let nominees: BTreeSet<PodId> =
            self.pods.iter().filter(|(_, p)| p.nominated.is_some()).map(|(id, _)| id).collect();
        assert_eq!(nominees, self.nominees, "nominated pods");
        self.objects.attachments.check();
        self.check_groups();
        self.check_strings();
    }
}
