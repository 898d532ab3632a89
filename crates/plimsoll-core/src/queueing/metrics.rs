//! Kueue's metrics as data (spec section 5.5): counters and histograms are kept here as writes are confirmed,
//! gauges are read off the state when asked for. Whoever serves them adds the label `replica_role`.

mod gauges;
mod table;
mod tally;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub(crate) use tally::{Tally, seen, tally_of};

use super::state::Queueing;

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
    pub labels: Vec<(&'static str, String)>,
    /// What was measured.
    pub value: MetricValue,
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

type Key = (&'static str, Vec<String>);

/// Counters and histograms.
#[derive(Debug, Default)]
pub(crate) struct Books {
    counters: BTreeMap<Key, u64>,
    histograms: BTreeMap<Key, Histogram>,
}

impl Books {
    /// Adds to a counter.
    pub(crate) fn count(&mut self, name: &'static str, labels: &[&str], n: u64) {
        let labels = labels.iter().map(|l| (*l).to_owned()).collect();
        let c = self.counters.entry((name, labels)).or_insert(0);
        *c = c.saturating_add(n);
    }

    /// Adds an observation, in seconds.
    pub(crate) fn observe(&mut self, name: &'static str, labels: &[&str], value: f64) {
        let bounds = table::bounds(name);
        let labels = labels.iter().map(|l| (*l).to_owned()).collect();
        let h = self.histograms.entry((name, labels)).or_default();
        h.buckets.resize(bounds.len(), 0);
        if let Some(i) = bounds.iter().position(|b| value <= *b) {
            h.buckets[i] += 1;
        }
        h.sum += value;
        h.count += 1;
    }

    /// Forgets everything about an object that is gone: samples in which these labels have these values.
    pub(crate) fn forget(&mut self, object: &[(&str, &str)]) {
        let speaks_of = |(name, values): &Key| {
            let labels = table::labels(name);
            object.iter().all(|(l, v)| {
                labels.iter().position(|n| n == l).and_then(|i| values.get(i)).is_some_and(|x| x == v)
            })
        };
        self.counters.retain(|k, _| !speaks_of(k));
        self.histograms.retain(|k, _| !speaks_of(k));
    }

    fn samples(&self, row: &table::Row) -> Vec<MetricSample> {
        let key = (row.name, Vec::new());
        let with_labels =
            |values: &[String]| row.labels.iter().copied().zip(values.iter().cloned()).collect();
        match row.kind {
            MetricKind::Histogram => self
                .histograms
                .range(key..)
                .take_while(|((n, _), _)| *n == row.name)
                .map(|((_, values), h)| {
                    let mut sum = 0;
                    let upto = |n: &u64| {
                        sum += n;
                        sum
                    };
                    let counts: Vec<u64> = h.buckets.iter().map(upto).collect();
                    let buckets = table::bounds(row.name).into_iter().zip(counts).collect();
                    let value = MetricValue::Histogram { buckets, sum: h.sum, count: h.count };
                    MetricSample { labels: with_labels(values), value }
                })
                .collect(),
            _ => self
                .counters
                .range(key..)
                .take_while(|((n, _), _)| *n == row.name)
                .map(|((_, values), n)| MetricSample {
                    labels: with_labels(values),
                    value: MetricValue::Number(*n as f64),
                })
                .collect(),
        }
    }
}

impl Queueing {
    /// All metrics, sorted by name. Gauges are computed here: cost grows with the number of queues and waiting
    /// workloads, which suits a scrape every few seconds, not every cycle.
    pub fn metrics(&self) -> Vec<MetricFamily> {
        let mut families: Vec<MetricFamily> = table::ROWS
            .iter()
            .map(|row| {
                let samples = match row.kind {
                    MetricKind::Gauge => self.gauge(row),
                    _ => self.metrics.samples(row),
                };
                MetricFamily { name: row.name, help: row.help, kind: row.kind, samples }
            })
            .collect();
        families.sort_by_key(|f| f.name);
        families
    }
}
