//! Types of conditions of a workload (Kueue v1beta2).

/// Quota and flavors are taken.
pub const QUOTA_RESERVED: &str = "QuotaReserved";
/// Quota is taken and all checks passed: the job may start.
pub const ADMITTED: &str = "Admitted";
/// All pods are ready.
pub const PODS_READY: &str = "PodsReady";
/// The workload has to stop.
pub const EVICTED: &str = "Evicted";
/// The eviction was a preemption.
pub const PREEMPTED: &str = "Preempted";
/// Whether it may be queued again.
pub const REQUEUED: &str = "Requeued";
/// The end.
pub const FINISHED: &str = "Finished";
/// `spec.active` is about to become false.
pub const DEACTIVATION_TARGET: &str = "DeactivationTarget";
/// It could preempt, but a preemption gate is closed.
pub const BLOCKED_ON_GATES: &str = "BlockedOnPreemptionGates";
/// Nodes were reserved for the pods when the workload was admitted (joint admission): which, in its message, and since
/// when. Kueue keeps conditions of types that it does not know.
pub const NODES_RESERVED: &str = "plimsoll.dev/NodesReserved";
/// A pod group lost pods and waits for others.
pub const WAITING_FOR_REPLACEMENT_PODS: &str = "WaitingForReplacementPods";
