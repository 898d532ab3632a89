//! Labels of metrics that the configuration takes from labels and annotations of objects (Kueue KEP-7066,
//! `pkg/metrics/custom_labels.go`).

use std::borrow::Cow;

use super::table::{self, Row};
use super::{BETWEEN, ByLabels, Map};
use crate::config::{CustomLabel, LabelSource};

/// Metrics that say what workloads they count by the workloads' own labels, too.
const BY_WORKLOAD: [&str; 5] = [
    "kueue_pending_workloads",
    "kueue_admitted_active_workloads",
    "kueue_local_queue_admitted_active_workloads",
    "kueue_local_queue_admitted_workloads_total",
    "kueue_local_queue_admission_wait_time_seconds",
];

/// In Kueue this metric of cohorts has the labels of the ClusterQueues below.
pub(super) const BY_QUEUE_BELOW: &str = "kueue_cohort_subtree_admitted_active_workloads";

/// The configured labels and what the objects that exist have for them.
#[derive(Debug, Default)]
pub(crate) struct CustomLabels {
    labels: Vec<CustomLabel>,
    queues: ByLabels<Vec<String>>,
    cohorts: ByLabels<Vec<String>>,
    /// By `namespace/name`.
    local_queues: ByLabels<Vec<String>>,
}

/// The kind of object a row is about, and its name.
fn subject<'a>(row: &Row, values: &[&'a str]) -> Option<(LabelSource, Cow<'a, str>)> {
    let queue = |l: &&str| matches!(*l, "cluster_queue" | "preempting_cluster_queue");
    if row.labels.starts_with(&["name", "namespace"]) {
        return Some((LabelSource::LocalQueue, format!("{}/{}", values.get(1)?, values.first()?).into()));
    }
    if let Some(at) = row.labels.iter().position(queue) {
        return Some((LabelSource::ClusterQueue, Cow::Borrowed(values.get(at)?)));
    }
    if row.labels.first() == Some(&"cohort") && row.name != BY_QUEUE_BELOW {
        return Some((LabelSource::Cohort, Cow::Borrowed(values.first()?)));
    }
    None
}

impl CustomLabels {
    pub(crate) fn new(labels: &[CustomLabel]) -> Self {
        let mut labels = labels.to_vec();
        labels.sort_by_key(|l| l.source);
        Self { labels, queues: Map::default(), cohorts: Map::default(), local_queues: Map::default() }
    }

    /// Whether workloads are told apart.
    pub(super) fn by_workload(&self) -> bool {
        self.labels.iter().any(|l| l.source == LabelSource::Workload)
    }

    fn names(&self, source: LabelSource) -> impl Iterator<Item = String> {
        self.labels.iter().filter(move |l| l.source == source).map(|l| format!("custom_{}", l.name))
    }

    fn objects(&mut self, source: LabelSource) -> Option<&mut ByLabels<Vec<String>>> {
        match source {
            LabelSource::ClusterQueue => Some(&mut self.queues),
            LabelSource::Cohort => Some(&mut self.cohorts),
            LabelSource::LocalQueue => Some(&mut self.local_queues),
            LabelSource::Workload => None,
        }
    }

    /// An object has these values, in the order of the configuration.
    pub(crate) fn store(&mut self, source: LabelSource, name: &str, values: &[String]) {
        if self.labels.is_empty() {
            return;
        }
        let mut values = values.to_vec();
        values.resize(self.names(source).count(), String::new());
        if let Some(objects) = self.objects(source) {
            objects.insert(name.to_owned(), values);
        }
    }

    /// An object is gone.
    pub(crate) fn forget(&mut self, source: LabelSource, name: &str) {
        if let Some(objects) = self.objects(source) {
            objects.remove(name);
        }
    }

    /// The values of an object; empty ones while it is unknown.
    pub(super) fn values(&self, source: LabelSource, name: &str) -> Vec<String> {
        let known = match source {
            LabelSource::ClusterQueue => self.queues.get(name),
            LabelSource::Cohort => self.cohorts.get(name),
            LabelSource::LocalQueue => self.local_queues.get(name),
            LabelSource::Workload => None,
        };
        known.cloned().unwrap_or_else(|| vec![String::new(); self.names(source).count()])
    }

    /// The names of all labels of a row.
    pub(super) fn all_names(&self, row: &Row) -> Vec<Cow<'static, str>> {
        let mut names: Vec<Cow<'static, str>> = row.labels.iter().map(|l| Cow::Borrowed(*l)).collect();
        if self.labels.is_empty() {
            return names;
        }
        let unnamed = vec![""; row.labels.len()];
        let source = subject(row, &unnamed).map(|(source, _)| source);
        let source = source.or((row.name == BY_QUEUE_BELOW).then_some(LabelSource::ClusterQueue));
        names.extend(source.into_iter().flat_map(|s| self.names(s)).map(Cow::Owned));
        if BY_WORKLOAD.contains(&row.name) {
            names.extend(self.names(LabelSource::Workload).map(Cow::Owned));
        }
        names
    }

    /// The custom values of a sample of a gauge, which follow its own.
    pub(super) fn of_sample(&self, row: &Row, own: &[String]) -> Vec<String> {
        if self.labels.is_empty() {
            return Vec::new();
        }
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        subject(row, &own).map_or(Vec::new(), |(source, name)| self.values(source, &name))
    }

    /// Appends the custom values to the key of a counter or histogram. `workload`: those of the workload that is counted.
    pub(super) fn complete(&self, metric: &str, own: &[&str], workload: &[String], key: &mut String) {
        if self.labels.is_empty() {
            return;
        }
        let Some(row) = table::find(metric) else { return };
        let of_object = subject(row, own).map_or(Vec::new(), |(source, name)| self.values(source, &name));
        let of_workload = if BY_WORKLOAD.contains(&row.name) { workload } else { &[] };
        for value in of_object.iter().chain(of_workload) {
            key.push(BETWEEN);
            key.push_str(value);
        }
    }
}
