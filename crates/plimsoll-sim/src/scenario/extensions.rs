//! What a scenario may have besides plain queueing: dependencies between jobs, run windows, elastic jobs, an extender.

use plimsoll_api::kueue::{DEPENDS_ON, PARTIAL_PREEMPTION};
use plimsoll_api::windows::RUN_WINDOW;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::names::{job_name, pod_prefix};
use super::{Form, JobSpec};

/// Annotation of elastic jobs (Kueue KEP-77).
const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";

/// How another job has to end or run before a job starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Outcome {
    /// It has succeeded.
    #[default]
    Succeeded,
    /// It has ended.
    Finished,
    /// Its pods are ready, or it has succeeded.
    Ready,
}

/// A dependency of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct After {
    /// Number of the other job.
    pub job: usize,
    /// Whether that is a single pod, which has a name of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pod: bool,
    /// The outcome.
    #[serde(default)]
    pub outcome: Outcome,
}

/// What a run window is over, besides jobs that name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Over {
    /// Nothing.
    #[default]
    Named,
    /// The LocalQueue of this number.
    LocalQueue(usize),
    /// The ClusterQueue of this number.
    ClusterQueue(usize),
    /// The flavor of this number.
    Flavor(usize),
}

/// A run window: open for so long from every so manieth minute on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSpec {
    /// Minutes from one opening to the next; a divisor of 60.
    pub every: i64,
    /// Seconds that it is open, fewer than that.
    pub open: i64,
    /// `gracePeriod` in seconds.
    #[serde(default)]
    pub grace: i64,
    /// `minRunTime` in seconds.
    #[serde(default)]
    pub min_run: i64,
    /// `outside: Finish`.
    #[serde(default)]
    pub finish: bool,
    /// What it is over.
    #[serde(default)]
    pub over: Over,
}

/// Name of a run window.
pub fn window_name(window: usize) -> String {
    format!("x{window}")
}

/// A RunWindow.
pub fn run_window(window: usize, s: &WindowSpec) -> Value {
    let applies = match s.over {
        Over::Named => json!({}),
        Over::LocalQueue(n) => json!({"localQueues": {"names": [format!("l{n}")]}}),
        Over::ClusterQueue(n) => json!({"clusterQueues": {"names": [format!("c{n}")]}}),
        Over::Flavor(n) => json!({"flavors": {"names": [format!("f{n}")]}}),
    };
    json!({
        "metadata": {"name": window_name(window)},
        "spec": {
            "windows": [{"start": format!("*/{} * * * *", s.every), "duration": format!("{}s", s.open)}],
            "outside": if s.finish { "Finish" } else { "Suspend" },
            "gracePeriod": format!("{}s", s.grace),
            "minRunTime": format!("{}s", s.min_run),
            "appliesTo": applies,
        },
    })
}

/// Adds what a job, its pods or its Workload say of dependencies and windows.
pub fn annotate(s: &JobSpec, metadata: &mut Value) {
    if let Some(after) = s.after {
        let name =
            if after.pod { format!("{}0", pod_prefix(&job_name(after.job))) } else { job_name(after.job) };
        let outcome = match after.outcome {
            Outcome::Succeeded => "succeeded",
            Outcome::Finished => "finished",
            Outcome::Ready => "ready",
        };
        metadata["annotations"][DEPENDS_ON] = json!(format!("{name}:{outcome}"));
    }
    if let Some(window) = s.window {
        metadata["annotations"][RUN_WINDOW] = json!(window_name(window));
    }
    if s.elastic && s.form == Form::Job {
        metadata["annotations"][ELASTIC] = json!("true");
        if s.partial {
            metadata["annotations"]["kueue.x-k8s.io/elastic-job-scale-up-strategy"] = json!("partial");
        }
        if s.shrinks {
            metadata["annotations"][PARTIAL_PREEMPTION] = json!("true");
        }
    }
}

/// Whether a Job is elastic.
pub fn is_elastic(job: &Value) -> bool {
    job["metadata"]["annotations"][ELASTIC] == "true"
}

/// A scheduler extender, which always filters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExtenderSpec {
    /// Whether it scores nodes.
    pub scores: bool,
    /// Whether it is asked about victims.
    pub preempts: bool,
    /// Whether it binds pods.
    pub binds: bool,
    /// Whether pods are scheduled without it when it fails.
    pub ignorable: bool,
}

/// Whether the extender refuses a node for a pod: every other name is refused one of the nodes.
pub fn refuses(pod: &str, node: &str) -> bool {
    node == "node-0" && pod.bytes().map(u32::from).sum::<u32>() % 2 == 1
}
