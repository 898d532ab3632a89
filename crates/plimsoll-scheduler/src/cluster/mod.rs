//! The cluster as placement sees it: ground state over interned strings, and what is derived from it.

mod alone;
pub mod amounts;
pub mod attachments;
mod changes;
mod check;
pub mod devices;
pub mod features;
mod feed;
pub mod group;
mod ids;
pub mod labels;
pub mod node;
pub mod objects;
pub mod pod;
pub mod ports;
mod preempting;
pub mod slices;
mod sources;
pub mod spec;
mod sweep;
pub(crate) mod to_come;
mod view;
pub mod workloads;

pub use amounts::{Amounts, Usage};
pub(crate) use changes::Beside;
pub use changes::{Changed, Changes, Moved, Pair};
pub use feed::{NodeChange, PodShape};
pub use ids::{NodeId, PodId, ShapeId, SpecId};
pub use labels::Labels;
pub use node::{Columns, Node, NodeInfo};
pub use plimsoll_state::model::OwnerKind;
pub use pod::{ClaimStatuses, Extra, Pod, Shape, Shapes};

pub use view::{NodeColumns, NodeView, PodView};

use foldhash::fast::FixedState;
use objects::Objects;
use plimsoll_state::intern::{Interner, Map, Sym};
use plimsoll_state::parted::{PartedMap, PartedTable};
use plimsoll_state::{cast::index32, model, slab::Id, slab::Slab, time::Time};
use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::sync::Arc;

/// The cluster. Plugins read it through views: [`Cluster::node`], [`Cluster::pod`], [`Cluster::node_columns`].
#[derive(Debug)]
pub struct Cluster {
    /// All strings.
    pub(crate) strings: Interner,
    /// Labels of namespaces; those not listed have none.
    pub(crate) namespaces: spec::NamespaceLabels,
    /// Shapes and specs in use.
    pub(crate) shapes: Shapes,
    /// Pods that are not finished.
    pub(crate) pods: Slab<PodId, Pod>,
    pods_by_uid: PartedTable<PodId>,
    hasher: FixedState,
    /// Nodes.
    pub(crate) nodes: Slab<NodeId, Node>,
    nodes_by_name: PartedMap<Sym, NodeId>,
    /// Node resources.
    pub(crate) columns: Columns,
    /// How many node objects there are.
    pub(crate) node_count: usize,
    /// How many nodes have an image.
    pub(crate) image_nodes: Map<Sym, u32>,
    /// How many placed pods have affinity or anti-affinity terms.
    pub(crate) with_affinity: usize,
    /// Pod groups.
    pub(crate) groups: group::Groups,
    /// Which group a pod has joined.
    group_keys: PartedMap<PodId, group::GroupKey>,
    /// Pods of Workloads.
    pub(crate) workloads: workloads::WorkloadPods,
    /// Pods nominated to a node.
    pub(crate) nominees: BTreeSet<PodId>,
    /// Preemptions under way.
    pub(crate) preempting: preempting::Preempting,
    /// Everything else.
    pub(crate) objects: Objects,
    /// What changed lately.
    pub(crate) changes: Changes,
    /// The objects of nodes and pods, where a plugin reads them.
    pub(crate) sources: sources::Sources,
    /// What will be made for the pods that rows of joint admission stand for.
    pub(crate) to_come: Map<PodId, to_come::ToCome>,
    /// Where a sweep of the strings goes on.
    unmarked: sweep::Unmarked,
    /// When the last event was handled, or decisions were made.
    pub(crate) now: Time,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            strings: Interner::default(),
            namespaces: Map::default(),
            shapes: Shapes::default(),
            pods: Slab::default(),
            pods_by_uid: PartedTable::default(),
            hasher: FixedState::with_seed(0x0000_90d5),
            nodes: Slab::default(),
            nodes_by_name: PartedMap::default(),
            columns: Columns::default(),
            node_count: 0,
            image_nodes: Map::default(),
            with_affinity: 0,
            groups: group::Groups::default(),
            group_keys: PartedMap::default(),
            workloads: workloads::WorkloadPods::default(),
            nominees: BTreeSet::new(),
            preempting: preempting::Preempting::default(),
            objects: Objects::default(),
            changes: Changes::default(),
            sources: sources::Sources::default(),
            to_come: Map::default(),
            unmarked: sweep::Unmarked::default(),
            now: Time::default(),
        }
    }
}

impl Cluster {
    /// The pod of this UID.
    pub(crate) fn pod_by_uid(&self, uid: &str) -> Option<PodId> {
        let hash = self.hasher.hash_one(uid);
        self.pods_by_uid.find(hash, |i| &*self.pods[*i].uid == uid).copied()
    }

    /// Adds a pod, on no node yet.
    pub(crate) fn insert_pod(&mut self, pod: Pod) -> PodId {
        let hash = self.hasher.hash_one(&*pod.uid);
        let id = self.pods.insert(pod);
        let (pods, hasher) = (&self.pods, &self.hasher);
        self.pods_by_uid.insert_unique(hash, id, |i| hasher.hash_one(&*pods[*i].uid));
        id
    }

    /// Takes a pod out, and off its node.
    pub(crate) fn remove_pod(&mut self, id: PodId) {
        self.unplace(id);
        self.leave_group(id);
        self.workloads.leave(id);
        self.nominate(id, None);
        self.preempting.forget(id);
        self.sources.remove_pod(id);
        self.to_come.remove(&id);
        let hash = self.hasher.hash_one(&*self.pods[id].uid);
        self.pods_by_uid.remove(hash, |i| *i == id);
        if let Some(pod) = self.pods.remove(id) {
            self.shapes.release(pod.shape);
        }
    }

    /// Shape of a pod.
    pub(crate) fn shape(&self, pod: PodId) -> &Arc<Shape> {
        self.shapes.get(self.pods[pod].shape)
    }

    /// Priority of a pod.
    pub(crate) fn priority(&self, pod: PodId) -> i32 {
        self.shape(pod).spec.priority
    }

    /// What a pod occupies.
    pub(crate) fn usage<'a>(&'a self, pod: &'a Pod) -> &'a Usage {
        match pod.extra.as_ref().and_then(|e| e.usage.as_ref()) {
            Some(own) => own,
            None => &self.shapes.get(pod.shape).spec.usage,
        }
    }

    /// `namespace/name` of a pod.
    pub(crate) fn pod_name(&self, id: PodId) -> String {
        format!("{}/{}", self.strings.text(self.shape(id).namespace), self.pods[id].name)
    }

    /// The row of a node name, made if there is none.
    pub(crate) fn node_row(&mut self, name: &str) -> NodeId {
        let name = self.strings.intern(name);
        if let Some(id) = self.nodes_by_name.get(&name) {
            return *id;
        }
        let id = self.nodes.insert(Node::new(name));
        self.columns.grow(self.nodes.bound());
        self.nodes_by_name.insert(name, id);
        id
    }

    /// The node of this name, if its object is there.
    pub(crate) fn node_by_name(&self, name: Sym) -> Option<NodeId> {
        self.nodes_by_name.get(&name).copied().filter(|id| self.nodes[*id].exists)
    }

    /// All nodes whose objects are there, in id order.
    pub(crate) fn live_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.iter().filter(|(_, n)| n.exists).map(|(id, _)| id)
    }

    /// Adds or replaces a node. Returns its row, the object before, and whether an annotation has changed that is read.
    pub(crate) fn upsert_node(&mut self, node: &model::Node) -> (NodeId, Option<Arc<NodeInfo>>, bool) {
        let id = self.node_row(&node.name);
        let annotated = self.sources.set_node(id, node);
        let info = Arc::new(NodeInfo::new(node, &mut self.strings));
        let row = &mut self.nodes[id];
        let old = row.exists.then(|| Arc::clone(&row.info));
        if old.as_ref().is_some_and(|o| *o == info) {
            if annotated {
                self.changes.node(id, false);
            }
            return (id, old, annotated);
        }
        row.info = Arc::clone(&info);
        row.set_scalar_allocs(&info.scalars);
        row.exists = true;
        for (column, amount) in self.columns.alloc.iter_mut().zip(info.alloc) {
            column[id.index()] = amount;
        }
        if old.is_none() {
            self.node_count += 1;
        }
        let old_images = old.as_ref().map_or(&[][..], |o| &o.images);
        if old.is_none() || old_images != &*info.images {
            self.count_images(old_images, false);
            self.count_images(&info.images, true);
            self.changes.epoch += 1;
        }
        if old.as_ref().is_none_or(|o| o.labels != info.labels || o.features != info.features) {
            self.changes.epoch += 1;
        }
        let taints = old.as_ref().is_none_or(|o| o.taints != info.taints);
        self.changes.node(id, taints);
        (id, old, annotated)
    }

    fn count_images(&mut self, images: &[(Sym, i64)], more: bool) {
        for (name, _) in images {
            let n = self.image_nodes.entry(*name).or_default();
            *n = if more { *n + 1 } else { n.saturating_sub(1) };
            if *n == 0 {
                self.image_nodes.remove(name);
            }
        }
    }

    /// Takes a node object out; the row stays while pods are on it.
    pub(crate) fn remove_node(&mut self, name: &str) -> Option<(NodeId, Arc<NodeInfo>)> {
        let id = self.node_by_name(self.strings.get(name)?)?;
        self.sources.remove_node(id);
        let row = &mut self.nodes[id];
        let old = std::mem::take(&mut row.info);
        row.exists = false;
        row.set_scalar_allocs(&[]);
        for column in &mut self.columns.alloc {
            column[id.index()] = 0;
        }
        self.node_count -= 1;
        self.count_images(&old.images, false);
        self.changes.epoch += 1;
        self.changes.node(id, true);
        self.drop_row_if_unused(id);
        Some((id, old))
    }

    fn drop_row_if_unused(&mut self, id: NodeId) {
        let row = &self.nodes[id];
        if !row.exists && row.pods.is_empty() && row.nominated.is_empty() {
            self.nodes_by_name.remove(&row.name);
            self.nodes.remove(id);
        }
    }

    /// Counts a pod on a node.
    pub(crate) fn place(&mut self, id: PodId, node: NodeId) {
        if self.pods[id].node == Some(node) {
            return;
        }
        self.unplace(id);
        let slot = self.nodes[node].pods.len();
        let pod = &mut self.pods[id];
        pod.node = Some(node);
        pod.slot = index32(slot);
        self.nodes[node].pods.push(id);
        self.account(id, node, 1);
        if !self.to_come.is_empty() {
            self.count_held(id, true);
        }
    }

    /// Takes a pod off its node.
    pub(crate) fn unplace(&mut self, id: PodId) -> Option<NodeId> {
        let node = self.pods[id].node.take()?;
        let slot = self.pods[id].slot as usize;
        let row = &mut self.nodes[node];
        row.pods.swap_remove(slot);
        if let Some(moved) = row.pods.get(slot) {
            self.pods[*moved].slot = index32(slot);
        }
        self.account(id, node, -1);
        if !self.to_come.is_empty() {
            self.count_held(id, false);
        }
        self.drop_row_if_unused(node);
        Some(node)
    }

    /// Whether the pods counted on a node request more than it has, or its object is gone. Resources that it does not
    /// have at all don't count: devices may provide them.
    pub(crate) fn is_overcommitted(&self, node: NodeId) -> bool {
        let row = &self.nodes[node];
        let columns = self.columns.alloc.iter().zip(&self.columns.used);
        !row.exists
            || columns.into_iter().any(|(alloc, used)| used[node.index()] > alloc[node.index()])
            || row.scalars.iter().any(|s| s.alloc != 0 && s.used > s.alloc)
    }

    /// Adds (`sign` 1) or takes away (`sign` -1) what a pod occupies.
    fn account(&mut self, id: PodId, node: NodeId, sign: i32) {
        let by = i64::from(sign);
        let pod = &self.pods[id];
        let shape = Arc::clone(self.shapes.get(pod.shape));
        let usage = pod.extra.as_ref().and_then(|e| e.usage.as_ref()).unwrap_or(&shape.spec.usage);
        let r = &usage.requests;
        let n = node.index();
        for (column, amount) in self.columns.used.iter_mut().zip([r.cpu, r.memory, r.ephemeral, 1]) {
            column[n] = column[n].wrapping_add(amount * by);
        }
        let nonzero = [usage.nonzero_cpu, usage.nonzero_memory];
        for (column, amount) in self.columns.nonzero.iter_mut().zip(nonzero) {
            column[n] = column[n].wrapping_add(amount * by);
        }
        let row = &mut self.nodes[node];
        for (name, amount) in &r.scalars {
            let s = row.scalar_mut(*name);
            s.used = s.used.wrapping_add(amount * by);
        }
        if sign < 0 {
            row.scalars.retain(|s| s.alloc != 0 || s.used != 0);
        }
        let spec = &shape.spec;
        if sign > 0 {
            row.ports.extend_from_slice(&spec.ports);
        } else {
            for port in &spec.ports {
                if let Some(at) = row.ports.iter().position(|p| p == port) {
                    row.ports.swap_remove(at);
                }
            }
        }
        if !spec.affinity.is_empty() || !spec.anti_affinity.is_empty() {
            row.with_affinity = row.with_affinity.wrapping_add_signed(sign);
            self.with_affinity = self.with_affinity.wrapping_add_signed(sign as isize);
        }
        if !spec.anti_affinity.required.is_empty() {
            row.with_anti_affinity = row.with_anti_affinity.wrapping_add_signed(sign);
        }
        for _ in spec.source.volumes.iter().filter(|v| v.source.is_claim()) {
            row.claims = row.claims.wrapping_add_signed(sign);
        }
        if !self.groups.is_empty() {
            self.count_member(id, sign);
        }
        let pod = &self.pods[id];
        let moved = Moved { deleting: pod.deleting, shape, by };
        self.changes.pod(node, moved, !pod.queued);
    }

    /// Notes whether deletion of a pod has been asked for.
    pub(crate) fn set_deleting(&mut self, id: PodId, deleting: bool) {
        let old = std::mem::replace(&mut self.pods[id].deleting, deleting);
        if deleting {
            self.preempting.settle(id);
        }
        if let Some(node) = self.pods[id].node.filter(|_| old != deleting) {
            let (shape, alone) = (Arc::clone(self.shape(id)), !self.pods[id].queued);
            self.changes.pod(node, Moved { shape: Arc::clone(&shape), deleting: old, by: -1 }, alone);
            self.changes.pod(node, Moved { shape, deleting, by: 1 }, alone);
        }
    }

    /// Notes when the kubelet accepted a pod.
    pub(crate) fn set_start_time(&mut self, id: PodId, time: Option<Time>) {
        let old = std::mem::replace(&mut self.pods[id].start_time, time);
        if let Some(node) = self.pods[id].node.filter(|_| old != time) {
            self.changes.started(node);
        }
    }

    /// Gives a placed or waiting pod another shape or other rare parts.
    pub(crate) fn reshape(&mut self, id: PodId, shape: ShapeId, extra: Option<Box<Extra>>) {
        if self.pods[id].shape == shape && self.pods[id].extra == extra {
            self.shapes.release(shape);
            return;
        }
        let node = self.unplace_keeping_row(id);
        let old = std::mem::replace(&mut self.pods[id].shape, shape);
        self.pods[id].extra = extra;
        self.shapes.release(old);
        if let Some(node) = node {
            self.place(id, node);
        }
    }

    /// Takes a pod off its node, whose row stays, also if it is used by nothing else: the caller puts the pod back.
    pub(crate) fn unplace_keeping_row(&mut self, id: PodId) -> Option<NodeId> {
        let node = self.pods[id].node?;
        let exists = std::mem::replace(&mut self.nodes[node].exists, true);
        self.unplace(id);
        self.nodes[node].exists = exists;
        Some(node)
    }

    /// Nominates a pod to a node, or to none.
    pub(crate) fn nominate(&mut self, id: PodId, node: Option<NodeId>) {
        let old = std::mem::replace(&mut self.pods[id].nominated, node);
        if old == node {
            return;
        }
        if let Some(node) = node {
            self.nodes[node].nominated.push(id);
            self.changes.node(node, false);
            self.nominees.insert(id);
        } else {
            self.nominees.remove(&id);
        }
        if let Some(old) = old {
            self.nodes[old].nominated.retain(|p| *p != id);
            self.changes.node(old, false);
            self.drop_row_if_unused(old);
        }
    }
}
