//! How long extension points and plugins take (upstream `metrics/metrics.go`, `framework/runtime/framework.go` and
//! `framework/runtime/instrumented_plugins.go`), measured with a clock that the host lends.
//!
//! Decisions never depend on it: outcomes go through a [`Meter`] unchanged, and what it records is only read by
//! [`Scheduler::measurements`]. One attempt of ten is measured (`pluginMetricsSamplePercent` in `schedule_one.go`), by counting
//! instead of by chance. The others run code that was compiled without any measuring.

mod counters;
mod recorder;

pub(crate) use counters::Counters;
pub(crate) use recorder::MetricsRecorder;

use super::Scheduler;
use super::framework::{Code, PluginId, Status};
use std::fmt::Debug;
use std::rc::Rc;

/// A clock for measuring.
pub trait Stopwatch: Debug + Send + Sync {
    /// Nanoseconds since some fixed instant; never fewer than in an earlier call.
    fn nanos(&self) -> u64;
}

/// Observed durations, as Prometheus counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Durations {
    /// Upper bounds in seconds, and how many observations are at most that; without `+Inf`.
    pub buckets: Vec<(f64, u64)>,
    /// Sum in seconds.
    pub sum: f64,
    /// How many observations there are.
    pub count: u64,
}

/// How long a plugin took at an extension point (`scheduler_plugin_execution_duration_seconds`).
#[derive(Clone, Debug, PartialEq)]
pub struct PluginExecution {
    /// Name of the plugin.
    pub plugin: String,
    /// Upstream's name of the extension point.
    pub extension_point: &'static str,
    /// Upstream's name of the code that it returned.
    pub status: &'static str,
    /// The durations. Of the calls for single nodes, the first of each attempt and every 64th after it are timed.
    pub durations: Durations,
}

/// How long all plugins of an extension point took (`scheduler_framework_extension_point_duration_seconds`).
#[derive(Clone, Debug, PartialEq)]
pub struct ExtensionPointRun {
    /// Upstream's name of the extension point.
    pub extension_point: &'static str,
    /// Upstream's name of the code that the plugins came to.
    pub status: &'static str,
    /// Name of the profile.
    pub profile: String,
    /// The durations.
    pub durations: Durations,
}

/// How often a plugin had something to evaluate (`scheduler_plugin_evaluation_total`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginEvaluations {
    /// Name of the plugin.
    pub plugin: String,
    /// Upstream's name of the extension point: PreFilter, Filter, PreScore or Score.
    pub extension_point: &'static str,
    /// Name of the profile.
    pub profile: String,
    /// How often: per node at Filter and Score, without what was skipped at PreFilter and PreScore.
    pub count: u64,
}

/// What was measured since the start, in attempts that were measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measurements {
    /// By extension point, status and profile.
    pub extension_points: Vec<ExtensionPointRun>,
    /// By plugin, extension point and profile.
    pub evaluations: Vec<PluginEvaluations>,
    /// By plugin, extension point and status.
    pub executions: Vec<PluginExecution>,
}

/// What is measured. Unlike [`ExtensionPoint`](super::ExtensionPoint), with the methods that have no switch of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    PreEnqueue,
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    NormalizeScore,
    Reserve,
    Unreserve,
    Permit,
    PreBind,
    PostBind,
}

impl Point {
    pub const ALL: [Self; 12] = [
        Self::PreEnqueue,
        Self::PreFilter,
        Self::Filter,
        Self::PostFilter,
        Self::PreScore,
        Self::Score,
        Self::NormalizeScore,
        Self::Reserve,
        Self::Unreserve,
        Self::Permit,
        Self::PreBind,
        Self::PostBind,
    ];

    /// Upstream's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PreEnqueue => "PreEnqueue",
            Self::PreFilter => "PreFilter",
            Self::Filter => "Filter",
            Self::PostFilter => "PostFilter",
            Self::PreScore => "PreScore",
            Self::Score => "Score",
            Self::NormalizeScore => "ScoreExtensionNormalize",
            Self::Reserve => "Reserve",
            Self::Unreserve => "Unreserve",
            Self::Permit => "Permit",
            Self::PreBind => "PreBind",
            Self::PostBind => "PostBind",
        }
    }
}

/// Measures an attempt, or nothing. A type parameter instead of a value, so that an attempt that is not measured has no
/// branches for it in the loops over nodes and plugins. What runs plugins is inlined for the same reason.
pub(crate) trait Meter {
    /// Whether it measures.
    const MEASURES: bool;

    #[inline]
    fn measures(&self) -> bool {
        Self::MEASURES
    }

    /// Itself, for what is compiled once and asks at each node; `None`: nothing is measured.
    fn metered(&self) -> Option<&Metered>;

    /// The time in nanoseconds; 0 when nothing is measured.
    fn read(&self) -> u64;

    /// A plugin ran from `began` until now.
    fn plugin_ran(&self, point: Point, plugin: PluginId, code: Code, began: u64);

    /// The plugins of an extension point took this many nanoseconds together.
    fn point_took(&self, point: Point, code: Code, nanos: u64);

    /// Runs a plugin.
    #[inline(always)]
    fn plugin<T>(
        &self,
        point: Point,
        plugin: PluginId,
        run: impl FnOnce() -> T,
        code: impl FnOnce(&T) -> Code,
    ) -> T {
        if !Self::MEASURES {
            return run();
        }
        let began = self.read();
        let out = run();
        self.plugin_ran(point, plugin, code(&out), began);
        out
    }

    /// Runs all plugins of an extension point.
    #[inline(always)]
    fn point<T>(&self, point: Point, run: impl FnOnce() -> T, code: impl FnOnce(&T) -> Code) -> T {
        if !Self::MEASURES {
            return run();
        }
        let began = self.read();
        let out = run();
        self.point_took(point, code(&out), self.read().saturating_sub(began));
        out
    }
}

/// Measures nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unmetered;

impl Meter for Unmetered {
    const MEASURES: bool = false;

    fn metered(&self) -> Option<&Metered> {
        None
    }

    fn read(&self) -> u64 {
        0
    }

    fn plugin_ran(&self, _: Point, _: PluginId, _: Code, _: u64) {}

    fn point_took(&self, _: Point, _: Code, _: u64) {}
}

/// Measures an attempt with a profile.
#[derive(Clone, Debug)]
pub(crate) struct Metered {
    recorder: Rc<MetricsRecorder>,
    profile: usize,
}

impl Meter for Metered {
    const MEASURES: bool = true;

    fn metered(&self) -> Option<&Metered> {
        Some(self)
    }

    fn read(&self) -> u64 {
        self.recorder.read()
    }

    fn plugin_ran(&self, point: Point, plugin: PluginId, code: Code, began: u64) {
        let nanos = self.read().saturating_sub(began);
        if matches!(point, Point::PreFilter | Point::PreScore) && code != Code::Skip {
            self.recorder.evaluated(point, plugin, self.profile);
        }
        self.recorder.plugin_took(point, plugin, code, nanos);
    }

    fn point_took(&self, point: Point, code: Code, nanos: u64) {
        self.recorder.point_took(point, self.profile, code, nanos);
    }
}

impl Metered {
    /// Filter of a plugin on one node.
    pub fn filter(&self, plugin: PluginId, run: impl FnOnce() -> Status) -> Status {
        self.plugin_on_node(Point::Filter, plugin, run, |status| status.code)
    }

    /// Score of a plugin for one node.
    pub fn score(&self, plugin: PluginId, run: impl FnOnce() -> i64) -> i64 {
        self.plugin_on_node(Point::Score, plugin, run, |_| Code::Success)
    }

    /// The plugins of an extension point succeeded, from `began` until now.
    pub fn point_ran(&self, point: Point, began: u64) {
        self.point_took(point, Code::Success, self.read().saturating_sub(began));
    }

    fn plugin_on_node<T>(
        &self,
        point: Point,
        plugin: PluginId,
        run: impl FnOnce() -> T,
        code: impl FnOnce(&T) -> Code,
    ) -> T {
        let before = self.recorder.evaluated(point, plugin, self.profile);
        if !before.is_multiple_of(recorder::TIMED_CALLS) {
            return run();
        }
        self.plugin(point, plugin, run, code)
    }
}

impl Scheduler {
    /// What was measured; `None`: there is no [`Config::stopwatch`](super::Config::stopwatch).
    pub fn measurements(&self) -> Option<Measurements> {
        let names = &self.runners.first()?.names;
        let profiles: Vec<&str> = self.config.profiles.iter().map(|p| &*p.scheduler_name).collect();
        Some(self.recorder.as_ref()?.measurements(names, &profiles))
    }

    /// How many pods came to a part of the queue (`scheduler_queue_incoming_pods_total`): the part, the event that brought them
    /// there, and their number.
    pub fn incoming_pods(&self) -> impl Iterator<Item = (&'static str, String, u64)> {
        self.queue.incoming()
    }

    /// How many pods wait that a plugin has rejected or keeps out (`scheduler_unschedulable_pods`): the plugin, the profile, and
    /// their number. A pod counts for each of its plugins.
    pub fn unschedulable_pods(&self) -> Vec<(String, String, u64)> {
        let Some(names) = self.runners.first().map(|r| &r.names) else { return Vec::new() };
        let rejected = self.queue.rejected().into_iter().filter_map(|((profile, plugin), pods)| {
            let profile = self.config.profiles.get(profile as usize)?;
            Some((names.of(plugin).to_owned(), profile.scheduler_name.clone(), pods))
        });
        rejected.collect()
    }

    /// How often pods tried to preempt others (`scheduler_preemption_attempts_total`).
    pub fn preemption_attempts(&self) -> u64 {
        self.cluster.preempting.attempts
    }

    /// How many victims preemptions had, and how many had so many (`scheduler_preemption_victims`).
    pub fn preemption_victims(&self) -> impl Iterator<Item = (usize, u64)> {
        self.counters.victims()
    }

    /// How long pods waited on Permit (`scheduler_permit_wait_duration_seconds`), by upstream's name of the code that ended it.
    pub fn permit_waits(&self) -> impl Iterator<Item = (&'static str, Durations)> {
        self.counters.permit_waits()
    }

    /// How many pods were bound that were tried because they had waited for an event for too long
    /// (`scheduler_pod_scheduled_after_flush_total`).
    pub fn pods_scheduled_after_flush(&self) -> u64 {
        self.counters.after_flush()
    }

    /// Begins an attempt: one of ten is measured.
    #[inline]
    pub(super) fn begin_measuring(&mut self) {
        if let Some(recorder) = &self.recorder {
            self.measuring = recorder.begin_attempt();
        }
    }

    /// What measures an attempt of a pod of this profile, if it is `measured`.
    #[inline]
    pub(super) fn meter(&self, measured: bool, profile: usize) -> Option<Metered> {
        if measured { self.new_meter(profile) } else { None }
    }

    /// What measures PreEnqueue of a pod of this profile: one run of ten, as upstream, which samples it apart from attempts.
    #[inline]
    pub(super) fn pre_enqueue_meter(&self, profile: usize) -> Option<Metered> {
        let measured = self.recorder.as_ref().is_some_and(|r| r.begin_pre_enqueue());
        self.meter(measured, profile)
    }

    #[cold]
    fn new_meter(&self, profile: usize) -> Option<Metered> {
        let recorder = Rc::clone(self.recorder.as_ref()?);
        // A profile from before a reload has the name of its successor.
        let name = self.runners.get(profile)?.name;
        let profile = self.runners.iter().position(|r| r.name == name)?;
        Some(Metered { recorder, profile })
    }
}

#[cfg(test)]
mod tests;
