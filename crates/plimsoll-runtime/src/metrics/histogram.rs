//! A histogram as Prometheus counts.

use plimsoll_queueing::MetricValue;

/// Prometheus' own.
pub(super) const DEFAULT: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Observations in buckets.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    bounds: &'static [f64],
    /// Per bound, not summed up.
    counts: Vec<u64>,
    sum: f64,
    count: u64,
}

impl Histogram {
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len()], sum: 0.0, count: 0 }
    }

    pub(super) fn observe(&mut self, value: f64) {
        self.observe_often(value, 1);
    }

    /// Observes the same value so many times.
    pub(super) fn observe_often(&mut self, value: f64, times: u64) {
        if let Some((_, n)) = self.bounds.iter().zip(&mut self.counts).find(|(b, _)| value <= **b) {
            *n += times;
        }
        self.sum += value * times as f64;
        self.count += times;
    }

    pub(super) fn value(&self) -> MetricValue {
        let mut sum = 0;
        let buckets = self.bounds.iter().zip(&self.counts).map(|(b, n)| {
            sum += n;
            (*b, sum)
        });
        MetricValue::Histogram { buckets: buckets.collect(), sum: self.sum, count: self.count }
    }
}
