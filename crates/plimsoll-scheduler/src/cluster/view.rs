//! Views: what plugins see of nodes and pods, one by one or in columns.
//!
//! Views show names and amounts as the API has them, without interned strings, so that they can be handed on to a plugin
//! that runs elsewhere. A view borrows the cluster and is as cheap as two words.

use super::amounts::Amounts;
use super::node::{CPU, EPHEMERAL, MEMORY, PODS};
use super::{Cluster, Labels, Node, NodeId, Pod, PodId};
use plimsoll_state::intern::Sym;
use plimsoll_state::model::{self, TaintEffect};
use plimsoll_state::slab::Id;
use plimsoll_state::time::Time;
use std::sync::Arc;

/// Units of amounts: cpu in millicores, memory and ephemeral storage in bytes, everything else as it is.
const COLUMNS: [(&str, usize); 4] =
    [("cpu", CPU), ("memory", MEMORY), ("ephemeral-storage", EPHEMERAL), ("pods", PODS)];

fn column(resource: &str) -> Option<usize> {
    COLUMNS.iter().find(|(name, _)| *name == resource).map(|(_, at)| *at)
}

/// A node.
#[derive(Clone, Copy, Debug)]
pub struct NodeView<'a> {
    cluster: &'a Cluster,
    id: NodeId,
}

impl<'a> NodeView<'a> {
    fn row(self) -> &'a Node {
        &self.cluster.nodes[self.id]
    }

    /// Its number.
    pub fn id(self) -> NodeId {
        self.id
    }

    /// `metadata.name`.
    pub fn name(self) -> &'a str {
        self.cluster.strings.text(self.row().name)
    }

    /// The value of a label.
    pub fn label(self, key: &str) -> Option<&'a str> {
        label(self.cluster, &self.row().info.labels, key)
    }

    /// All labels, in no particular order that lasts.
    pub fn labels(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        texts(self.cluster, &self.row().info.labels)
    }

    /// The value of an annotation. Plugins say which ones they read
    /// ([`Plugin::reads_node_annotations`](crate::framework::Plugin::reads_node_annotations)).
    pub fn annotation(self, key: &str) -> Option<&'a str> {
        self.cluster.sources.annotation(self.id, key)
    }

    /// The object; `None` unless a plugin [reads objects](crate::framework::Plugin::reads_objects).
    pub fn object(self) -> Option<&'a Arc<model::Node>> {
        self.cluster.sources.node(self.id)
    }

    /// `spec.unschedulable`.
    pub fn is_unschedulable(self) -> bool {
        self.row().info.unschedulable
    }

    /// `spec.taints`: key, value, effect.
    pub fn taints(self) -> impl Iterator<Item = (&'a str, &'a str, TaintEffect)> {
        let cluster = self.cluster;
        let text = move |s| cluster.strings.text(s);
        self.row().info.taints.iter().map(move |t| (text(t.key), text(t.value), t.effect))
    }

    /// `status.allocatable`: cpu in millicores, other resources in their unit.
    pub fn allocatable(self, resource: &str) -> i64 {
        match column(resource) {
            Some(at) => self.cluster.columns.alloc[at][self.id.index()],
            None => self.scalar(resource).0,
        }
    }

    /// What the pods on the node request, assumed ones among them; of `pods` their number.
    pub fn requested(self, resource: &str) -> i64 {
        match column(resource) {
            Some(at) => self.cluster.columns.used[at][self.id.index()],
            None => self.scalar(resource).1,
        }
    }

    /// `status.allocatable` of all resources that count for placement: cpu, memory, ephemeral storage and pods first.
    pub fn all_allocatable(self) -> impl Iterator<Item = (&'a str, i64)> {
        self.amounts(&self.cluster.columns.alloc).chain(self.scalars().map(|(name, alloc, _)| (name, alloc)))
    }

    /// What the pods on the node request, of the resources of [`Self::all_allocatable`].
    pub fn all_requested(self) -> impl Iterator<Item = (&'a str, i64)> {
        self.amounts(&self.cluster.columns.used).chain(self.scalars().map(|(name, _, used)| (name, used)))
    }

    fn amounts(self, columns: &'a [Vec<i64>; 4]) -> impl Iterator<Item = (&'a str, i64)> {
        COLUMNS.iter().map(move |(name, at)| (*name, columns[*at][self.id.index()]))
    }

    fn scalars(self) -> impl Iterator<Item = (&'a str, i64, i64)> {
        let cluster = self.cluster;
        self.row().scalars.iter().map(move |s| (cluster.strings.text(s.name), s.alloc, s.used))
    }

    fn scalar(self, resource: &str) -> (i64, i64) {
        self.cluster.strings.get(resource).map_or((0, 0), |name| self.row().scalar(name))
    }

    /// The pods on the node, assumed ones among them, in no particular order.
    pub fn pods(self) -> impl Iterator<Item = PodView<'a>> {
        self.row().pods.iter().map(move |id| PodView { cluster: self.cluster, id: *id })
    }
}

/// A pod.
#[derive(Clone, Copy, Debug)]
pub struct PodView<'a> {
    cluster: &'a Cluster,
    id: PodId,
}

impl<'a> PodView<'a> {
    fn row(self) -> &'a Pod {
        &self.cluster.pods[self.id]
    }

    /// Its number.
    pub fn id(self) -> PodId {
        self.id
    }

    /// `metadata.uid`.
    pub fn uid(self) -> &'a str {
        &self.row().uid
    }

    /// `metadata.name`.
    pub fn name(self) -> &'a str {
        &self.row().name
    }

    /// `metadata.namespace`.
    pub fn namespace(self) -> &'a str {
        self.cluster.strings.text(self.cluster.shape(self.id).namespace)
    }

    /// The value of a label.
    pub fn label(self, key: &str) -> Option<&'a str> {
        label(self.cluster, &self.cluster.shape(self.id).labels, key)
    }

    /// All labels, in no particular order that lasts.
    pub fn labels(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        texts(self.cluster, &self.cluster.shape(self.id).labels)
    }

    /// What its spec requests of all resources that count for placement: cpu, memory and ephemeral storage first.
    pub fn spec_requests(self) -> impl Iterator<Item = (&'a str, i64)> {
        let cluster = self.cluster;
        let amounts = &cluster.shape(self.id).spec.usage.requests;
        let own =
            [("cpu", amounts.cpu), ("memory", amounts.memory), ("ephemeral-storage", amounts.ephemeral)];
        let scalars =
            amounts.scalars.iter().map(move |(name, amount)| (cluster.strings.text(*name), *amount));
        own.into_iter().chain(scalars)
    }

    /// The object; `None` unless a plugin [reads objects](crate::framework::Plugin::reads_objects).
    pub fn object(self) -> Option<&'a Arc<model::Pod>> {
        self.cluster.sources.pod(self.id)
    }

    /// `spec.priority`.
    pub fn priority(self) -> i32 {
        self.cluster.priority(self.id)
    }

    /// The node that it is on, or assumed to be on.
    pub fn node(self) -> Option<NodeView<'a>> {
        self.row().node.map(|id| NodeView { cluster: self.cluster, id })
    }

    /// What it requests: cpu in millicores, other resources in their unit.
    pub fn request(self, resource: &str) -> i64 {
        amount(self.cluster, &self.cluster.usage(self.row()).requests, resource)
    }
}

fn texts<'a>(cluster: &'a Cluster, labels: &'a Labels) -> impl Iterator<Item = (&'a str, &'a str)> {
    labels.iter().map(move |(key, value)| (cluster.strings.text(key), cluster.strings.text(value)))
}

fn label<'a>(cluster: &'a Cluster, labels: &Labels, key: &str) -> Option<&'a str> {
    labels.get(cluster.strings.get(key)?).map(|value| cluster.strings.text(value))
}

pub(super) fn amount(cluster: &Cluster, amounts: &Amounts, resource: &str) -> i64 {
    match resource {
        "cpu" => amounts.cpu,
        "memory" => amounts.memory,
        "ephemeral-storage" => amounts.ephemeral,
        "pods" => 1,
        other => cluster.strings.get(other).map_or(0, |name| amounts.scalar(name)),
    }
}

/// Nodes in columns: one row per node in each of them. To be made once per pod or less often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeColumns<'a> {
    /// Numbers, ascending.
    pub ids: Vec<NodeId>,
    /// Names.
    pub names: Vec<&'a str>,
    /// `spec.unschedulable`.
    pub unschedulable: Vec<bool>,
    /// Per resource that was asked for: allocatable amounts.
    pub allocatable: Vec<Vec<i64>>,
    /// Per resource that was asked for: what the pods on the node request.
    pub requested: Vec<Vec<i64>>,
    /// Per label that was asked for: its values.
    pub labels: Vec<Vec<Option<&'a str>>>,
}

impl Cluster {
    /// A node, `None` when there is no object of it.
    pub fn node(&self, id: NodeId) -> Option<NodeView<'_>> {
        self.nodes.get(id).filter(|n| n.exists).map(|_| NodeView { cluster: self, id })
    }

    /// The node of this name, `None` when there is no object of it.
    pub fn node_named(&self, name: &str) -> Option<NodeView<'_>> {
        let id = self.node_by_name(self.strings.get(name)?)?;
        Some(NodeView { cluster: self, id })
    }

    /// The symbol of a name, for [`PreFilterResult`](crate::framework::PreFilterResult); `None`: nothing has the name.
    pub fn symbol(&self, name: &str) -> Option<Sym> {
        self.strings.get(name)
    }

    /// The time of the last event or decision.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Counts changes of Node objects; stays 0 unless a plugin [reads objects](crate::framework::Plugin::reads_objects).
    pub fn node_objects_version(&self) -> u64 {
        self.sources.version
    }

    /// A pod.
    pub fn pod(&self, id: PodId) -> Option<PodView<'_>> {
        self.pods.get(id).map(|_| PodView { cluster: self, id })
    }

    /// All nodes, in order of their numbers.
    pub fn node_views(&self) -> impl Iterator<Item = NodeView<'_>> {
        self.live_nodes().map(|id| NodeView { cluster: self, id })
    }

    /// All nodes in columns, with these resources and labels.
    pub fn node_columns(&self, resources: &[&str], labels: &[&str]) -> NodeColumns<'_> {
        let nodes: Vec<NodeView<'_>> = self.node_views().collect();
        let per = |resource: &&str, get: fn(NodeView<'_>, &str) -> i64| -> Vec<i64> {
            nodes.iter().map(|n| get(*n, resource)).collect()
        };
        NodeColumns {
            ids: nodes.iter().map(|n| n.id()).collect(),
            names: nodes.iter().map(|n| n.name()).collect(),
            unschedulable: nodes.iter().map(|n| n.is_unschedulable()).collect(),
            allocatable: resources.iter().map(|r| per(r, |n, r| n.allocatable(r))).collect(),
            requested: resources.iter().map(|r| per(r, |n, r| n.requested(r))).collect(),
            labels: labels.iter().map(|key| nodes.iter().map(|n| n.label(key)).collect()).collect(),
        }
    }
}
