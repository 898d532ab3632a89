//! What the host keeps for a plugin: columns of nodes and counters of what pods hold. Both are derived from the cluster and
//! repaired from its log of changes, so that placeholders and dry runs count, and nothing is lost with a guest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_plugin::{Charge, Manifest, Nodes, Pod, Table};
use plimsoll_scheduler::framework::{Cluster, NodeId, NodeView, PodId, PodShape};
use plimsoll_state::intern::Map;
use plimsoll_state::model::TaintEffect;
use plimsoll_state::slab::Id;

use super::backend::Backend;

/// Most shapes whose charges are remembered, and most texts that have a code.
const MAX_SHAPES: usize = 16_384;
const MAX_TEXTS: usize = 1 << 20;

/// A plugin with its state.
#[derive(Debug)]
pub(super) struct Shared {
    pub backend: Box<dyn Backend>,
    pub table: Table,
    manifest: Manifest,
    /// Where the log of changes was read to; `None`: not at all.
    position: Option<u64>,
    used: BTreeMap<String, i64>,
    charges: Map<PodShape, Arc<[Charge]>>,
    /// Nodes that a dry run changes without a word in the log.
    unlogged: BTreeSet<NodeId>,
}

impl Shared {
    pub(super) fn new(backend: Box<dyn Backend>) -> Self {
        let manifest = backend.manifest().clone();
        let table = Table::new(&manifest);
        let (used, charges, unlogged) = (BTreeMap::new(), Map::default(), BTreeSet::new());
        Self { backend, table, manifest, position: None, used, charges, unlogged }
    }

    /// Brings columns and counters up to date.
    pub(super) fn sync(&mut self, cluster: &Cluster) -> Result<(), String> {
        self.backend.at(cluster.now().0);
        let end = cluster.change_position();
        if self.position == Some(end) && self.unlogged.is_empty() && self.table.rows >= cluster.node_bound() {
            return Ok(());
        }
        let changes = self.position.and_then(|position| cluster.changes_since(position));
        // What fails is begun anew.
        self.position = None;
        match changes {
            Some(changes) if self.table.texts() < MAX_TEXTS => {
                let mut nodes = self.unlogged.clone();
                for change in changes {
                    nodes.insert(change.node);
                    if let Some((shape, by)) = change.pod.filter(|_| self.manifest.charges) {
                        self.count(cluster, &shape, by)?;
                    }
                }
                self.table.grow(cluster.node_bound());
                nodes.iter().for_each(|node| self.read(cluster, *node));
                let rows: Vec<u32> = nodes.iter().filter_map(|n| u32::try_from(n.index()).ok()).collect();
                self.backend.changed(Some(&rows));
            }
            _ => {
                self.used.clear();
                self.charges.clear();
                self.table = Table::new(&self.manifest);
                self.table.grow(cluster.node_bound());
                if self.manifest.charges {
                    for shape in cluster.placed_shapes() {
                        self.count(cluster, &shape, 1)?;
                    }
                }
                (0..cluster.node_bound()).for_each(|i| self.read(cluster, NodeId::new(i)));
                self.backend.changed(None);
            }
        }
        self.position = Some(end);
        Ok(())
    }

    fn count(&mut self, cluster: &Cluster, shape: &PodShape, by: i64) -> Result<(), String> {
        for charge in &*self.charges_of(cluster, shape)? {
            let used = self.used.entry(charge.key.clone()).or_default();
            *used = used.saturating_add(by.saturating_mul(charge.amount));
            if *used == 0 {
                self.used.remove(&charge.key);
            }
        }
        Ok(())
    }

    /// What pods of a shape hold.
    pub(super) fn charges_of(
        &mut self,
        cluster: &Cluster,
        shape: &PodShape,
    ) -> Result<Arc<[Charge]>, String> {
        if !self.manifest.charges {
            return Ok(Arc::new([]));
        }
        if let Some(known) = self.charges.get(shape) {
            return Ok(Arc::clone(known));
        }
        if self.charges.len() >= MAX_SHAPES {
            self.charges.clear();
        }
        let pod = self.of_shape(cluster, shape);
        let charges: Arc<[Charge]> = self.backend.charges(&pod)?.into();
        self.charges.insert(shape.clone(), Arc::clone(&charges));
        Ok(charges)
    }

    fn of_shape(&self, cluster: &Cluster, shape: &PodShape) -> Pod {
        let manifest = &self.manifest;
        let namespace = if manifest.pod_namespace { cluster.namespace_of(shape) } else { "" };
        let label = |key: &String| cluster.label_of(shape, key).map(str::to_owned);
        Pod {
            priority: cluster.priority_of(shape).into(),
            requests: manifest.pod_requests.iter().map(|r| cluster.request_of(shape, r)).collect(),
            labels: manifest.pod_labels.iter().map(label).collect(),
            namespace: namespace.to_owned(),
            ..Pod::default()
        }
    }

    /// A pod as the plugin sees it. `delta`: what a dry run adds to the counters.
    pub(super) fn pod(
        &mut self,
        cluster: &Cluster,
        id: PodId,
        delta: &BTreeMap<String, i64>,
    ) -> Result<Pod, String> {
        let shape = cluster.pod_shape(id);
        let mut charges = self.charges_of(cluster, &shape)?.to_vec();
        for charge in &mut charges {
            let count = |from: &BTreeMap<String, i64>| from.get(&charge.key).copied().unwrap_or(0);
            charge.used = count(&self.used).saturating_add(count(delta));
        }
        let view = cluster.pod(id);
        let name = view.filter(|_| self.manifest.pod_name).map_or("", |view| view.name()).to_owned();
        let node = view.and_then(|view| view.node()).and_then(|node| u32::try_from(node.id().index()).ok());
        Ok(Pod { name, node, charges, ..self.of_shape(cluster, &shape) })
    }

    /// A dry run changes a node.
    pub(super) fn touch(&mut self, node: NodeId) {
        self.unlogged.insert(node);
    }

    /// No dry run is under way: nodes that one has changed are as they were.
    pub(super) fn settle(&mut self, cluster: &Cluster) -> Result<(), String> {
        self.sync(cluster)?;
        self.unlogged.clear();
        Ok(())
    }

    /// Reads a node into its row.
    fn read(&mut self, cluster: &Cluster, node: NodeId) {
        let row = node.index();
        let Some(view) = cluster.node(node) else { return };
        let (table, manifest) = (&mut self.table, &self.manifest);
        for (i, resource) in manifest.node_resources.iter().enumerate() {
            table.allocatable[i][row] = view.allocatable(resource);
            table.requested[i][row] = view.requested(resource);
        }
        for (column, key) in table.numbers.iter_mut().zip(&manifest.node_numbers) {
            column[row] = view.label(key).and_then(|text| text.parse().ok()).unwrap_or(Nodes::NONE);
        }
        for (i, key) in manifest.node_labels.iter().enumerate() {
            let code = view.label(key).map_or(0, |value| table.code(value));
            table.labels[i][row] = code;
        }
        if manifest.node_taints {
            let code = table.code(&taints(view));
            table.taints[0][row] = code;
        }
        for (column, key) in table.annotation_numbers.iter_mut().zip(&manifest.node_annotation_numbers) {
            column[row] = view.annotation(key).and_then(|text| text.parse().ok()).unwrap_or(Nodes::NONE);
        }
        for (i, key) in manifest.node_annotations.iter().enumerate() {
            let code = view.annotation(key).map_or(0, |value| table.code(value));
            table.annotations[i][row] = code;
        }
    }
}

/// `key=value:Effect`, with commas between, in order.
fn taints(node: NodeView<'_>) -> String {
    let effect = |effect| match effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    };
    let mut all: Vec<String> =
        node.taints().map(|(key, value, e)| format!("{key}={value}:{}", effect(e))).collect();
    all.sort();
    all.join(",")
}
