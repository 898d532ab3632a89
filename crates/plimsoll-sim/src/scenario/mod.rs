//! What a run is made of, as data: settings, faults, the cluster as it is planned, and what happens when. A scenario
//! says everything about a run; the same scenario gives the same run. Times are milliseconds since its start.

mod bounds;
pub mod devices;
pub mod extensions;
mod faults;
mod features;
mod generate;
pub mod joint;
pub mod load;
mod names;
pub mod objects;
mod operation;
mod quotas;
pub mod shards;
mod text;
pub mod unwritten;
mod variants;

use serde::{Deserialize, Serialize};

pub use bounds::Bounds;
pub use devices::Claims;
pub use extensions::{After, ExtenderSpec, Outcome, Over, WindowSpec};
pub use faults::{Faults, GENERAL_FAULTS};
pub use generate::{Profile, generate};
pub use operation::{Operation, Timed};
pub use variants::{Migration, with_variants};

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// Seed of all draws.
    pub seed: u64,
    /// Configuration of the engine.
    #[serde(default)]
    pub settings: Settings,
    /// What goes wrong, and how often.
    #[serde(default)]
    pub faults: Faults,
    /// What is there at the start, and again once the faults have ended.
    pub plan: Plan,
    /// When the faults end and the plan is restored.
    pub calm: i64,
    /// After how many steps the process ends once more, if at all, in addition to what the operations say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash_after: Option<u64>,
    /// How it ends then.
    #[serde(default)]
    pub ending: Ending,
    /// What the run has to keep to besides the rules.
    #[serde(default, skip_serializing_if = "Bounds::is_none")]
    pub bounds: Bounds,
    /// What happens until then, in order of time. Written on lines of their own.
    #[serde(skip)]
    pub operations: Vec<Timed>,
}

impl Scenario {
    /// Whether it has no faults, at any time.
    pub(crate) fn is_calm(&self) -> bool {
        let breaks = |o: &Timed| matches!(o.operation, Operation::Faults { .. });
        self.faults == Faults::default() && !self.operations.iter().any(breaks)
    }
}

/// How a process of Plimsoll ends, and when the next replica leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// It is killed; the next one leads when its Lease has expired.
    #[default]
    Crash,
    /// A signal: it begins no writes any more, waits for those under way, and releases the Lease.
    HandOver,
    /// It renews its Lease no more, and goes on until `renewDeadline`; the next one leads after `leaseDuration`.
    LoseLease,
}

/// Configuration of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Fair sharing between ClusterQueues.
    pub fair_sharing: bool,
    /// Whether the first flavor has a topology, and nodes are watched.
    pub topology: bool,
    /// Whether the engine places pods; otherwise none of them runs.
    pub placement: bool,
    /// Joint admission.
    pub joint: bool,
    /// Joint admission: how many pods are placed past a workload before it claims nodes, as a multiple of its own.
    #[serde(skip_serializing_if = "is_none_at_all")]
    pub overtaking: usize,
    /// Least time between two explanations of one workload.
    pub explain_every: i64,
    /// `waitForPodsReady.timeout`; 0: off.
    #[serde(skip_serializing_if = "is_zero")]
    pub pods_ready: i64,
    /// `waitForPodsReady.blockAdmission`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub block_admission: bool,
    /// Whether the admission check is the one that asks the cluster autoscaler for nodes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub provisioning: bool,
    /// The scheduler extender, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extender: Option<ExtenderSpec>,
    /// Whether a second replica follows the one that leads.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub standby: bool,
    /// Whether there are devices, and claims for them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub devices: bool,
    /// Whether two processes lead, each its shard.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shards: bool,
    /// Whether nodes belong to flavors: those of even racks to `f0`, the others to `f1`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub flavored: bool,
    /// Whether the pods of a Job run only while all of them have nodes, and every job has to run in the end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gangs: bool,
    /// `integrations.quotaReleaseStrategy` with its gate on; otherwise its defaults hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<Release>,
}

/// Whether evicted jobs keep their quota until their pods have ended (`OnTerminal`), or until those are being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// Jobs.
    pub jobs: bool,
    /// Pods and pod groups.
    pub pods: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
const fn is_zero(number: &i64) -> bool {
    *number == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
const fn is_none_at_all(number: &usize) -> bool {
    *number == 0
}

/// The cluster as it is planned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Cohorts `k0`, `k1`, …
    pub cohorts: Vec<QuotaSpec>,
    /// ClusterQueues `c0`, `c1`, … with their LocalQueues `l0`, `l1`, …
    pub queues: Vec<QueueSpec>,
    /// Nodes `r<rack>-<number>`.
    pub nodes: Vec<NodeSpec>,
    /// Run windows `x0`, `x1`, …
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<WindowSpec>,
    /// Devices of each node; none: no device has a claim, and none is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<u8>,
}

/// CPUs of one flavor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// `nominalQuota`.
    pub nominal: i64,
    /// `borrowingLimit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub borrowing: Option<i64>,
    /// `lendingLimit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lending: Option<i64>,
}

/// A cohort, or what a ClusterQueue shares with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaSpec {
    /// Number of the parent cohort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<usize>,
    /// Quotas of the flavors `f0` and `f1`.
    pub quotas: [Quota; 2],
    /// Weight under fair sharing.
    #[serde(default)]
    pub weight: i64,
}

/// A ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSpec {
    /// Cohort and quotas.
    #[serde(flatten)]
    pub quota: QuotaSpec,
    /// `reclaimWithinCohort` and `withinClusterQueue`: 0 to 2.
    #[serde(default)]
    pub preemption: (u8, u8),
    /// `borrowWithinCohort: LowerPriority`.
    #[serde(default)]
    pub borrow_preempts: bool,
    /// `StrictFIFO`.
    #[serde(default)]
    pub strict: bool,
    /// `TryNextFlavor` when it can borrow, and when it can preempt.
    #[serde(default)]
    pub next_flavor: (bool, bool),
    /// Whether the admission check `check` is required.
    #[serde(default)]
    pub check: bool,
    /// Whether that is for its second flavor only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub check_second: bool,
    /// Whether its `namespaceSelector` asks for a label of the namespace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub selects: bool,
    /// Whether its workloads are admitted by variants, and how these migrate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration: Option<Migration>,
}

/// A node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Rack.
    pub rack: usize,
    /// CPUs.
    pub cpus: i64,
    /// Whether it is ready.
    pub ready: bool,
}

/// What stops a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stop {
    /// Nothing.
    #[default]
    None,
    /// `Hold`.
    Hold,
    /// `HoldAndDrain`.
    HoldAndDrain,
}

/// What a user submits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// A Workload whose job is not part of the cluster.
    #[default]
    Workload,
    /// A Job.
    Job,
    /// Plain pods: a pod group where there are several.
    Pods,
    /// Plain pods that no queue manages.
    Unmanaged,
}

/// A job, whatever its form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// What it is.
    #[serde(default)]
    pub form: Form,
    /// Number of its LocalQueue.
    pub queue: usize,
    /// Priority.
    #[serde(default)]
    pub priority: i32,
    /// Pods.
    pub pods: i32,
    /// CPUs of each pod.
    pub cpus: i64,
    /// Fewer pods are acceptable down to this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least: Option<i32>,
    /// Which topology request, with topologies: 0 to 4.
    #[serde(default)]
    pub topology: u8,
    /// How long it runs once admitted, in milliseconds.
    pub runs: i64,
    /// How long its pods take to start, in milliseconds; 0: as the kubelets have it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub starts: i64,
    /// Which job it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<After>,
    /// Number of the run window that it names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// Whether it is an elastic Job: it has twice as many completions as pods.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub elastic: bool,
    /// Whether an elastic Job grows as far as quota allows, and a Workload with a least count shrinks when it is asked to.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// Whether an elastic Job that grows in part shrinks when it is asked to.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shrinks: bool,
    /// What each of its pods claims.
    #[serde(default, skip_serializing_if = "Claims::is_empty")]
    pub claims: Claims,
}
