//! Kueue's metrics as data (Kueue `pkg/metrics/metrics.go`): counters and histograms are kept here as writes are confirmed,
//! gauges are read off the state when asked for. The runtime adds the label `replica_role`.

mod custom_labels;
mod gauges;
mod observations;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use custom_labels::CustomLabels;
pub(crate) use observations::{Observation, observations_of, seen};

use std::borrow::Cow;

use super::ids::Map;
use crate::Queueing;
use crate::config::LocalQueueMetrics;

/// What kind of metric a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only rises.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts observations by size.
    Histogram,
}

/// A metric with all its samples.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricFamily {
    /// Full name, with Kueue's prefix; a counter's name ends in `_total`.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// One sample per combination of labels, sorted by labels.
    pub samples: Vec<MetricSample>,
}

/// A sample.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSample {
    /// Names and values of labels, in Kueue's order.
    pub labels: Vec<(Cow<'static, str>, String)>,
    /// What was measured.
    pub value: MetricValue,
}

impl MetricSample {
    /// A sample whose labels all have fixed names.
    pub fn new(labels: Vec<(&'static str, String)>, value: MetricValue) -> Self {
        Self { labels: labels.into_iter().map(|(name, v)| (Cow::Borrowed(name), v)).collect(), value }
    }
}

/// The value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricValue {
    /// Of a counter or a gauge; NaN for a share that is infinite.
    Number(f64),
    /// Of a histogram.
    Histogram {
        /// Upper bounds, and how many observations are at most that; without `+Inf`.
        buckets: Vec<(f64, u64)>,
        /// Sum of all observations, in the unit of the name.
        sum: f64,
        /// How many observations there are.
        count: u64,
    },
}

/// Observations of one combination of labels.
#[derive(Clone, Debug, Default)]
struct Histogram {
    /// Observations per bucket, not yet summed up.
    buckets: Vec<u64>,
    sum: f64,
    count: u64,
}

/// Stands between values of labels in a key; no name of an object has it.
const BETWEEN: char = '\u{1f}';

/// Samples of one metric by the values of their labels.
type ByLabels<T> = Map<String, T>;

/// Counters and histograms. Found by hash, as they change with every admission; sorted when asked for.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    counters: Map<&'static str, ByLabels<u64>>,
    histograms: Map<&'static str, ByLabels<Histogram>>,
    /// Labels that the configuration adds.
    pub(crate) custom: CustomLabels,
    /// The key being looked for.
    key: String,
}

fn join(key: &mut String, labels: &[&str]) {
    key.clear();
    for (i, l) in labels.iter().enumerate() {
        if i > 0 {
            key.push(BETWEEN);
        }
        key.push_str(l);
    }
}

/// The entry for a key, which is only copied when it is new.
fn entry<'a, T: Default>(map: &'a mut ByLabels<T>, key: &str) -> &'a mut T {
    map.entry_ref(key).or_default()
}

impl Metrics {
    /// No samples yet, and these custom labels.
    pub(crate) fn new(custom: CustomLabels) -> Self {
        Self { custom, ..Self::default() }
    }

    /// Adds to a counter.
    pub(crate) fn count(&mut self, name: &'static str, labels: &[&str], n: u64) {
        self.count_for(name, labels, &[], n);
    }

    /// [`Metrics::count`] for a workload with these values of custom labels.
    fn count_for(&mut self, name: &'static str, labels: &[&str], workload: &[String], n: u64) {
        join(&mut self.key, labels);
        self.custom.complete(name, labels, workload, &mut self.key);
        let c = entry(self.counters.entry(name).or_default(), &self.key);
        *c = c.saturating_add(n);
    }

    /// Adds an observation, in seconds.
    pub(crate) fn observe(&mut self, name: &'static str, labels: &[&str], value: f64) {
        self.observe_for(name, labels, &[], value);
    }

    /// [`Metrics::observe`] for a workload with these values of custom labels.
    fn observe_for(&mut self, name: &'static str, labels: &[&str], workload: &[String], value: f64) {
        join(&mut self.key, labels);
        self.custom.complete(name, labels, workload, &mut self.key);
        let h = entry(self.histograms.entry(name).or_default(), &self.key);
        if h.buckets.is_empty() {
            h.buckets.resize(table::bounds(name).len(), 0);
        }
        let bucket = table::BOUNDS.iter().zip(&mut h.buckets).find(|(b, _)| value <= **b);
        if let Some((_, n)) = bucket {
            *n += 1;
        }
        h.sum += value;
        h.count += 1;
    }

    /// Forgets everything about an object that is gone: samples in which these labels have these values.
    pub(crate) fn forget(&mut self, object: &[(&str, &str)]) {
        let speaks_of = |name: &str, key: &str| {
            let labels = table::labels(name);
            object.iter().all(|(l, v)| {
                let at = labels.iter().position(|n| n == l);
                at.and_then(|i| key.split(BETWEEN).nth(i)).is_some_and(|x| x == *v)
            })
        };
        for (name, samples) in &mut self.counters {
            samples.retain(|k, _| !speaks_of(name, k));
        }
        for (name, samples) in &mut self.histograms {
            samples.retain(|k, _| !speaks_of(name, k));
        }
    }

    fn samples(&self, row: &table::Row) -> Vec<MetricSample> {
        let names = self.custom.all_names(row);
        let with_labels =
            |key: &str| names.iter().cloned().zip(key.split(BETWEEN).map(str::to_owned)).collect();
        let mut samples: Vec<MetricSample> = Vec::new();
        for (key, n) in self.counters.get(row.name).into_iter().flatten() {
            samples.push(MetricSample { labels: with_labels(key), value: MetricValue::Number(*n as f64) });
        }
        for (key, h) in self.histograms.get(row.name).into_iter().flatten() {
            let mut sum = 0;
            let upto = |n: &u64| {
                sum += n;
                sum
            };
            let counts: Vec<u64> = h.buckets.iter().map(upto).collect();
            let buckets = table::bounds(row.name).iter().copied().zip(counts).collect();
            let value = MetricValue::Histogram { buckets, sum: h.sum, count: h.count };
            samples.push(MetricSample { labels: with_labels(key), value });
        }
        samples.sort_unstable_by(|a, b| a.labels.cmp(&b.labels));
        samples
    }
}

impl Queueing {
    /// All metrics, sorted by name. Gauges are computed here: cost grows with the number of queues and waiting
    /// workloads, which suits a scrape every few seconds, not every cycle.
    pub fn metrics(&self) -> Vec<MetricFamily> {
        let mut families: Vec<MetricFamily> = table::ROWS
            .iter()
            .map(|row| {
                let mut samples = match row.kind {
                    MetricKind::Gauge => gauges::Gauges(self).gauge(row),
                    MetricKind::Counter | MetricKind::Histogram => self.metrics.samples(row),
                };
                if row.name.starts_with("kueue_local_queue_") {
                    samples.retain(|s| self.exposes(s));
                }
                MetricFamily { name: row.name, help: row.help, kind: row.kind, samples }
            })
            .collect();
        families.sort_unstable_by_key(|f| f.name);
        families
    }

    /// Whether a sample is of a LocalQueue that has metrics (`metrics.localQueueMetrics`).
    fn exposes(&self, sample: &MetricSample) -> bool {
        let selector = match &self.config.local_queue_metrics {
            LocalQueueMetrics::All => return true,
            LocalQueueMetrics::Matching(selector) => selector,
            LocalQueueMetrics::Disabled => return false,
        };
        let label = |name: &str| sample.labels.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone());
        let key = (label("namespace").unwrap_or_default(), label("name").unwrap_or_default());
        let spec = self.local_queues.find(&key).and_then(|l| self.lq(l).spec.as_deref());
        spec.is_some_and(|s| selector.matches(&s.labels))
    }
}
