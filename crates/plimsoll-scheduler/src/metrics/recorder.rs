//! Dense tables of what was measured.

use super::{
    Durations, ExtensionPointRun, Measurements, PluginEvaluations, PluginExecution, Point, Stopwatch,
};
use crate::Config;
use crate::framework::{Code, PluginId, PluginNames};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// One attempt of this many is measured.
const ATTEMPTS: u32 = 10;
/// Of the calls of a plugin for single nodes in an attempt, one of this many is timed: reading the clock takes about as long as
/// such a call.
pub(super) const TIMED_CALLS: u32 = 64;

/// 0.01 ms × 1.5^k, as upstream's `PluginExecutionDuration`.
const PLUGIN: [f64; 20] = exponential(0.00001, 1.5);
/// 0.1 ms × 2^k, as upstream's `FrameworkExtensionPointDuration`.
const EXTENSION_POINT: [f64; 12] = exponential(0.0001, 2.0);

const CODES: [Code; 7] = [
    Code::Success,
    Code::Error,
    Code::Unschedulable,
    Code::Unresolvable,
    Code::Wait,
    Code::Skip,
    Code::Pending,
];

/// Points whose evaluations are counted.
const EVALUATED: [Point; 4] = [Point::PreFilter, Point::Filter, Point::PreScore, Point::Score];

/// As Prometheus' `ExponentialBuckets`, rounding included.
pub(super) const fn exponential<const N: usize>(start: f64, factor: f64) -> [f64; N] {
    let mut out = [start; N];
    let mut i = 1;
    while i < N {
        out[i] = out[i - 1] * factor;
        i += 1;
    }
    out
}

/// Observations in buckets.
#[derive(Clone, Debug)]
pub(super) struct Histogram<const N: usize> {
    /// Per bound, not summed up.
    counts: [u64; N],
    nanos: u64,
    count: u64,
}

impl<const N: usize> Histogram<N> {
    pub const NEW: Self = Self { counts: [0; N], nanos: 0, count: 0 };

    pub fn observe(&mut self, bounds: &[f64; N], nanos: u64) {
        let seconds = nanos as f64 / 1e9;
        if let Some((_, n)) = bounds.iter().zip(&mut self.counts).find(|(b, _)| seconds <= **b) {
            *n += 1;
        }
        self.nanos = self.nanos.saturating_add(nanos);
        self.count += 1;
    }

    pub fn durations(&self, bounds: &[f64; N]) -> Durations {
        let mut sum = 0;
        let buckets = bounds.iter().zip(&self.counts).map(|(bound, n)| {
            sum += n;
            (*bound, sum)
        });
        Durations { buckets: buckets.collect(), sum: self.nanos as f64 / 1e9, count: self.count }
    }
}

/// Counts of a plugin at a point.
#[derive(Clone, Copy, Debug, Default)]
struct Evaluations {
    all: u64,
    /// In the attempt of this number.
    calls: u32,
    attempt: u32,
}

#[derive(Debug, Default)]
struct Tables {
    /// By number of the plugin, point and code. In boxes: few are used.
    plugins: Vec<Option<Box<Histogram<20>>>>,
    /// By number of the profile, point and code.
    points: Vec<Option<Box<Histogram<12>>>>,
    /// By number of the plugin, number of the profile and point.
    evaluations: Vec<Evaluations>,
}

/// Records what is measured (upstream `MetricAsyncRecorder`).
#[derive(Debug)]
pub(crate) struct MetricsRecorder {
    stopwatch: Arc<dyn Stopwatch>,
    /// How many profiles there are, which no reload changes.
    profiles: usize,
    attempts: Cell<u32>,
    pre_enqueues: Cell<u32>,
    tables: RefCell<Tables>,
}

impl MetricsRecorder {
    /// Nothing recorded yet; `None`: there is no stopwatch.
    pub fn of(config: &Config) -> Option<Rc<Self>> {
        Some(Rc::new(Self {
            stopwatch: Arc::clone(config.stopwatch.as_ref()?),
            profiles: config.profiles.len(),
            attempts: Cell::default(),
            pre_enqueues: Cell::default(),
            tables: RefCell::default(),
        }))
    }

    /// Whether the attempt that begins is measured: the first one is, and every tenth after it.
    pub fn begin_attempt(&self) -> bool {
        let before = self.attempts.get();
        self.attempts.set(before.wrapping_add(1));
        before.is_multiple_of(ATTEMPTS)
    }

    /// The same for a run of PreEnqueue.
    pub fn begin_pre_enqueue(&self) -> bool {
        let before = self.pre_enqueues.get();
        self.pre_enqueues.set((before + 1) % ATTEMPTS);
        before == 0
    }

    pub fn read(&self) -> u64 {
        self.stopwatch.nanos()
    }

    pub fn plugin_took(&self, point: Point, plugin: PluginId, code: Code, nanos: u64) {
        let at = (plugin.index() * Point::ALL.len() + point as usize) * CODES.len() + code as usize;
        let tables = &mut *self.tables.borrow_mut();
        let slot = slot(&mut tables.plugins, at);
        slot.get_or_insert_with(|| Box::new(Histogram::NEW)).observe(&PLUGIN, nanos);
    }

    pub fn point_took(&self, point: Point, profile: usize, code: Code, nanos: u64) {
        let at = (profile * Point::ALL.len() + point as usize) * CODES.len() + code as usize;
        let tables = &mut *self.tables.borrow_mut();
        let slot = slot(&mut tables.points, at);
        slot.get_or_insert_with(|| Box::new(Histogram::NEW)).observe(&EXTENSION_POINT, nanos);
    }

    /// Counts an evaluation. Returns how many came before in this attempt.
    pub fn evaluated(&self, point: Point, plugin: PluginId, profile: usize) -> u32 {
        let Some(column) = EVALUATED.iter().position(|p| *p == point) else { return 0 };
        let at = (plugin.index() * self.profiles + profile) * EVALUATED.len() + column;
        let tables = &mut *self.tables.borrow_mut();
        let row = slot(&mut tables.evaluations, at);
        let attempt = self.attempts.get();
        let before = if row.attempt == attempt { row.calls } else { 0 };
        *row = Evaluations { all: row.all + 1, calls: before.wrapping_add(1), attempt };
        before
    }

    pub fn measurements(&self, names: &PluginNames, profiles: &[&str]) -> Measurements {
        let tables = self.tables.borrow();
        let profile = |i: usize| profiles.get(i).map_or_else(String::new, |p| (*p).to_owned());
        let plugin = |i: usize| names.of(PluginId::new(i)).to_owned();
        let (codes, points) = (CODES.len(), Point::ALL.len());
        let labels = |at: usize| (Point::ALL[at / codes % points].name(), CODES[at % codes].name());
        let executions = tables.plugins.iter().enumerate().filter_map(|(at, histogram)| {
            let durations = histogram.as_ref()?.durations(&PLUGIN);
            let (extension_point, status) = labels(at);
            Some(PluginExecution { plugin: plugin(at / codes / points), extension_point, status, durations })
        });
        let extension_points = tables.points.iter().enumerate().filter_map(|(at, histogram)| {
            let durations = histogram.as_ref()?.durations(&EXTENSION_POINT);
            let (extension_point, status) = labels(at);
            let profile = profile(at / codes / points);
            Some(ExtensionPointRun { extension_point, status, profile, durations })
        });
        let counted = tables.evaluations.iter().enumerate().filter(|(_, row)| row.all > 0);
        let evaluations = counted.map(|(at, row)| PluginEvaluations {
            plugin: plugin(at / EVALUATED.len() / self.profiles.max(1)),
            extension_point: EVALUATED[at % EVALUATED.len()].name(),
            profile: profile(at / EVALUATED.len() % self.profiles.max(1)),
            count: row.all,
        });
        Measurements {
            extension_points: extension_points.collect(),
            evaluations: evaluations.collect(),
            executions: executions.collect(),
        }
    }
}

/// The element at a position; the list grows as needed, with plugins that a reload adds.
fn slot<T: Clone + Default>(list: &mut Vec<T>, at: usize) -> &mut T {
    if list.len() <= at {
        list.resize(at + 1, T::default());
    }
    &mut list[at]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_upstreams() {
        assert_eq!(PLUGIN[..3], [0.00001, 0.000_015_000_000_000_000_002, 0.000_022_500_000_000_000_005]);
        assert_eq!((PLUGIN[19] * 1e6).round(), 22_168.0);
        assert_eq!(EXTENSION_POINT[..4], [0.0001, 0.0002, 0.0004, 0.0008]);
        assert_eq!(EXTENSION_POINT[11], 0.2048);
        for (at, code) in CODES.into_iter().enumerate() {
            assert_eq!(code as usize, at);
        }
        for (at, point) in Point::ALL.into_iter().enumerate() {
            assert_eq!(point as usize, at);
        }
        let mut one = Histogram::<12>::NEW;
        [100_000, 100_001, 1_000_000_000].into_iter().for_each(|n| one.observe(&EXTENSION_POINT, n));
        let seen = one.durations(&EXTENSION_POINT);
        assert_eq!(seen.buckets[..2], [(0.0001, 1), (0.0002, 2)]);
        assert_eq!((seen.buckets[11].1, seen.count), (2, 3));
        assert!((seen.sum - 1.000_200_001).abs() < 1e-12, "{}", seen.sum);
    }
}
