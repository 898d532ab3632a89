//! What happens in a run.

use serde::{Deserialize, Serialize};

use super::{Ending, Faults, JobSpec, NodeSpec, QueueSpec, QuotaSpec, Stop, WindowSpec};

/// Something that happens at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// When.
    pub at: i64,
    /// What.
    #[serde(flatten)]
    pub operation: Operation,
}

/// What users, administrators, machines and the process of Plimsoll itself do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Operation {
    /// A job is created; under the name of an older one that is deleted, if there is one.
    Submit {
        /// Number in its name.
        job: usize,
        /// The job.
        #[serde(flatten)]
        spec: JobSpec,
    },
    /// A job is deleted.
    Delete {
        /// Number in its name.
        job: usize,
    },
    /// `spec.active` of the workload is set.
    Activate {
        /// Number in its name.
        job: usize,
        /// To what.
        active: bool,
    },
    /// The priority of the workload changes.
    Prioritize {
        /// Number in its name.
        job: usize,
        /// The new priority.
        priority: i32,
    },
    /// The workload moves to another queue, if it holds no quota.
    Move {
        /// Number in its name.
        job: usize,
        /// Number of the LocalQueue.
        queue: usize,
    },
    /// An elastic Job gets another number of pods.
    Scale {
        /// Number in its name.
        job: usize,
        /// `parallelism` from now on.
        pods: i32,
    },
    /// One more pod of a Workload is done.
    Reclaim {
        /// Number in its name.
        job: usize,
    },
    /// A ClusterQueue is created, changed or deleted.
    ClusterQueue {
        /// Its number.
        queue: usize,
        /// What it is from now on.
        spec: Option<Box<QueueSpec>>,
    },
    /// `stopPolicy` of a ClusterQueue.
    StopQueue {
        /// Its number.
        queue: usize,
        /// The policy.
        stop: Stop,
    },
    /// A LocalQueue is created, changed or deleted.
    LocalQueue {
        /// Its number.
        queue: usize,
        /// The stop policy of one that is there.
        stop: Option<Stop>,
    },
    /// A Cohort is created, changed or deleted.
    Cohort {
        /// Its number.
        cohort: usize,
        /// What it is from now on.
        spec: Option<Box<QuotaSpec>>,
    },
    /// A ResourceFlavor is created or deleted.
    Flavor {
        /// Its number.
        flavor: usize,
        /// Whether it is there.
        exists: bool,
    },
    /// The admission check becomes active, inactive, or is deleted.
    Check {
        /// Whether it is active.
        active: Option<bool>,
    },
    /// How the check's controller answers from now on, in thousandths: `Retry`, `Rejected`.
    Answers {
        /// `Retry`.
        retry: u32,
        /// `Rejected`.
        reject: u32,
    },
    /// A node comes, changes or goes.
    Node {
        /// Its number.
        node: usize,
        /// What it is from now on.
        spec: Option<NodeSpec>,
    },
    /// A WorkloadPriorityClass is created, changed or deleted.
    PriorityClass {
        /// Its number: that of its planned value, plus one.
        class: i32,
        /// Its value from now on.
        value: Option<i32>,
    },
    /// The topology is created or deleted.
    Topology {
        /// Whether it is there.
        exists: bool,
    },
    /// A run window is created, changed or deleted.
    RunWindow {
        /// Its number.
        window: usize,
        /// What it is from now on.
        spec: Option<WindowSpec>,
    },
    /// The ResourceSlice of a node comes, changes or goes.
    Slice {
        /// Number of the node.
        node: usize,
        /// How many devices it has from now on.
        devices: Option<u8>,
    },
    /// The DeviceClass is created or deleted.
    DeviceClass {
        /// Whether it is there.
        exists: bool,
    },
    /// A ResourceClaim that pods share is created or deleted.
    SharedClaim {
        /// Its number.
        claim: usize,
        /// Whether it is there.
        exists: bool,
    },
    /// A ResourceClaimTemplate is created or deleted.
    ClaimTemplate {
        /// Devices of its claims.
        devices: u8,
        /// Whether it is there.
        exists: bool,
    },
    /// The namespace is created, changed, or deleted with everything in it.
    Namespace {
        /// Whether it has the label that ClusterQueues select.
        selected: Option<bool>,
    },
    /// What goes wrong from now on, and how often.
    Faults {
        /// The faults.
        faults: Faults,
    },
    /// The process ends and starts again; requests under way are carried out or not.
    Crash,
    /// The process is stopped, and another replica leads.
    HandOver,
    /// The process can't renew its Lease, and another replica leads.
    LoseLease,
    /// The process that leads a shard ends.
    End {
        /// Number of the shard.
        shard: usize,
        /// How.
        ending: Ending,
    },
    /// A node is to go to another shard, by its annotation.
    MoveNode {
        /// Its number.
        node: usize,
        /// Number of the shard.
        shard: usize,
    },
    /// The tree of a cohort goes to another shard.
    MoveTree {
        /// Number of its root.
        cohort: usize,
        /// Number of the shard.
        shard: usize,
        /// By its label, not by the annotation.
        #[serde(default)]
        by_hand: bool,
    },
    /// A cohort is to lend CPUs of the first flavor to another one.
    Lend {
        /// Number of the loan.
        loan: usize,
        /// Number of the cohort that lends.
        from: usize,
        /// Number of the cohort that borrows.
        to: usize,
        /// CPUs.
        cpus: i64,
    },
    /// A loan is asked back, or deleted.
    EndLoan {
        /// Its number.
        loan: usize,
        /// Whether it is deleted.
        delete: bool,
    },
    /// All queues, flavors, checks and nodes become as planned.
    Restore,
}
