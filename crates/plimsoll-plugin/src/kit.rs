//! A small cluster for tests of a plugin, without a server and without WebAssembly.

use std::collections::BTreeMap;

use crate::{Charge, Manifest, Permit, Plugin, Pod, Rejection, Table};

/// A pod for a [`Kit`].
#[derive(Clone, Debug, Default)]
pub struct KitPod {
    priority: i64,
    name: String,
    namespace: String,
    requests: BTreeMap<String, i64>,
    labels: BTreeMap<String, String>,
}

impl KitPod {
    /// What it requests; cpu in millicores.
    #[must_use]
    pub fn request(mut self, resource: &str, amount: i64) -> Self {
        self.requests.insert(resource.to_owned(), amount);
        self
    }

    /// A label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(self, namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..self }
    }

    /// Its priority.
    #[must_use]
    pub fn priority(self, priority: i64) -> Self {
        Self { priority, ..self }
    }
}

/// A pod that has a node.
#[derive(Debug)]
pub struct Placed {
    /// The node.
    pub node: String,
    /// What Permit says.
    pub permit: Permit,
    pod: KitPod,
    row: usize,
    charges: Vec<Charge>,
}

/// A small cluster and a plugin.
#[derive(Debug)]
pub struct Kit<P> {
    plugin: P,
    manifest: Manifest,
    names: Vec<String>,
    table: Table,
    used: BTreeMap<String, i64>,
}

impl<P: Plugin> Kit<P> {
    /// No nodes, and the plugin with this configuration.
    ///
    /// # Errors
    /// What the plugin says is wrong with the configuration.
    pub fn new(config: &str) -> Result<Self, String> {
        let plugin = P::configure(config)?;
        let manifest = plugin.manifest();
        let table = Table::new(&manifest);
        Ok(Self { plugin, manifest, names: Vec::new(), table, used: BTreeMap::new() })
    }

    /// The plugin.
    pub fn plugin(&self) -> &P {
        &self.plugin
    }

    /// Adds a node with allocatable amounts and labels.
    pub fn node(&mut self, name: &str, resources: &[(&str, i64)], labels: &[(&str, &str)]) {
        let row = self.names.len();
        self.names.push(name.to_owned());
        self.table.grow(row + 1);
        let resource = |key: &str| resources.iter().find(|(k, _)| *k == key).map_or(0, |(_, v)| *v);
        let label = |key: &str| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        for (column, key) in self.table.allocatable.iter_mut().zip(&self.manifest.node_resources) {
            column[row] = resource(key);
        }
        for (column, key) in self.table.numbers.iter_mut().zip(&self.manifest.node_numbers) {
            column[row] = label(key).and_then(|v| v.parse().ok()).unwrap_or(crate::Nodes::NONE);
        }
        for (i, key) in self.manifest.node_labels.iter().enumerate() {
            let code = label(key).map_or(0, |value| self.table.code(value));
            self.table.labels[i][row] = code;
        }
        if self.manifest.node_taints {
            let code = self.table.code("");
            self.table.taints[0][row] = code;
        }
    }

    /// Annotates a node, instead of the annotations that it had.
    pub fn annotate(&mut self, node: &str, annotations: &[(&str, &str)]) {
        let Some(row) = self.row(node) else { return };
        let value = |key: &str| annotations.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        for (column, key) in
            self.table.annotation_numbers.iter_mut().zip(&self.manifest.node_annotation_numbers)
        {
            column[row] = value(key).and_then(|v| v.parse().ok()).unwrap_or(crate::Nodes::NONE);
        }
        for (i, key) in self.manifest.node_annotations.iter().enumerate() {
            let code = value(key).map_or(0, |value| self.table.code(value));
            self.table.annotations[i][row] = code;
        }
    }

    /// Taints a node: `key=value:Effect` with commas between.
    pub fn taint(&mut self, node: &str, taints: &str) {
        let code = self.table.code(taints);
        if let (Some(row), Some(column)) = (self.row(node), self.table.taints.first_mut()) {
            column[row] = code;
        }
    }

    fn row(&self, node: &str) -> Option<usize> {
        self.names.iter().position(|n| n == node)
    }

    /// A pod that requests nothing.
    pub fn pod(&self) -> KitPod {
        KitPod::default()
    }

    /// The pod as the plugin sees it.
    fn seen(&self, pod: &KitPod, row: Option<usize>) -> Pod {
        let of_shape = Pod {
            priority: pod.priority,
            requests: self.manifest.pod_requests.iter().map(|r| *pod.requests.get(r).unwrap_or(&0)).collect(),
            labels: self.manifest.pod_labels.iter().map(|k| pod.labels.get(k).cloned()).collect(),
            namespace: if self.manifest.pod_namespace { pod.namespace.clone() } else { String::new() },
            ..Pod::default()
        };
        let mut charges = if self.manifest.charges { self.plugin.charges(&of_shape) } else { Vec::new() };
        for charge in &mut charges {
            charge.used = *self.used.get(&charge.key).unwrap_or(&0);
        }
        let name = if self.manifest.pod_name { pod.name.clone() } else { String::new() };
        Pod { name, node: row.and_then(|r| u32::try_from(r).ok()), charges, ..of_shape }
    }

    /// PreFilter and Filter: every node with the reason for which the pod can't run there.
    ///
    /// # Errors
    /// Why it can run nowhere.
    pub fn filters(&self, pod: &KitPod) -> Result<Vec<(String, Option<String>)>, Rejection> {
        let pod = self.seen(pod, None);
        self.plugin.pre_filter(&pod)?;
        let reason = |at: u8| self.manifest.reasons.get(usize::from(at)).map(|(text, _)| text.clone());
        Ok(self.table.with(|nodes| {
            let one = |(row, name): (usize, &String)| {
                (name.clone(), self.plugin.filter(&pod, nodes, row).and_then(reason))
            };
            self.names.iter().enumerate().map(one).collect()
        }))
    }

    /// Score: every node with its raw score.
    pub fn scores(&self, pod: &KitPod) -> Vec<(String, i64)> {
        let pod = self.seen(pod, None);
        self.table.with(|nodes| {
            let one = |(row, name): (usize, &String)| (name.clone(), self.plugin.score(&pod, nodes, row));
            self.names.iter().enumerate().map(one).collect()
        })
    }

    /// A whole cycle: the best node of those that pass, the first one where several are equal. Capacity is the plugin's to
    /// check, as other plugins are not here.
    ///
    /// # Errors
    /// Why the pod has no node.
    pub fn schedule(&mut self, pod: &KitPod) -> Result<Placed, Rejection> {
        let passing = self.filters(pod)?;
        let scores = self.scores(pod);
        let feasible = passing.iter().zip(scores).enumerate().filter(|(_, ((_, why), _))| why.is_none());
        let best = feasible.max_by_key(|(row, (_, (_, score)))| (*score, std::cmp::Reverse(*row)));
        let Some((row, (_, (node, _)))) = best else {
            let why = passing.into_iter().find_map(|(_, why)| why).unwrap_or_else(|| "no nodes".to_owned());
            return Err(Rejection::Unschedulable(why));
        };
        let charges = self.seen(pod, Some(row)).charges;
        self.count(pod, row, &charges, 1);
        let seen = self.seen(pod, Some(row));
        let permit = match self.plugin.reserve(&seen) {
            Ok(()) => self.plugin.permit(&seen),
            Err(why) => Permit::Reject(why),
        };
        if let Permit::Reject(why) = permit {
            self.count(pod, row, &charges, -1);
            return Err(why);
        }
        Ok(Placed { node, permit, pod: pod.clone(), row, charges })
    }

    /// Permit again, for a pod that waits.
    pub fn permit(&self, placed: &Placed) -> Permit {
        self.plugin.permit(&self.seen(&placed.pod, Some(placed.row)))
    }

    /// The pod is gone.
    pub fn remove(&mut self, placed: &Placed) {
        self.count(&placed.pod, placed.row, &placed.charges, -1);
    }

    fn count(&mut self, pod: &KitPod, row: usize, charges: &[Charge], sign: i64) {
        for (column, key) in self.table.requested.iter_mut().zip(&self.manifest.node_resources) {
            let amount = if key == "pods" { 1 } else { *pod.requests.get(key).unwrap_or(&0) };
            column[row] += sign * amount;
        }
        for charge in charges {
            *self.used.entry(charge.key.clone()).or_default() += sign * charge.amount;
        }
    }
}
