//! Names, labels and help of the metrics.

use super::MetricKind::{self, Counter, Gauge, Histogram};

/// A metric.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) kind: MetricKind,
    pub(super) labels: &'static [&'static str],
    pub(super) help: &'static str,
}

const fn row(
    name: &'static str,
    kind: MetricKind,
    labels: &'static [&'static str],
    help: &'static str,
) -> Row {
    Row { name, kind, labels, help }
}

const CQ: &[&str] = &["cluster_queue"];
const CQ_CLASS: &[&str] = &["cluster_queue", "priority_class"];
const LQ: &[&str] = &["name", "namespace"];
const LQ_CLASS: &[&str] = &["name", "namespace", "priority_class"];
const QUOTA: &[&str] = &["cohort", "cluster_queue", "flavor", "resource"];
const COHORT_QUOTA: &[&str] = &["cohort", "flavor", "resource"];

/// All metrics of queueing.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row("kueue_admission_attempts_total", Counter, &["result"], "Attempts to admit workloads, one per scheduling cycle"),
    row("kueue_admission_cycle_preemption_skips", Gauge, CQ, "Workloads that were skipped in the last cycle because another one needs the same victims"),
    row("kueue_preemption_target_recomputations_total", Counter, &["cluster_queue", "result"], "Assignments computed again because their victims were claimed by others"),
    row("kueue_pending_workloads", Gauge, &["cluster_queue", "status"], "Pending workloads"),
    row("kueue_pending_scheduling_hashes", Gauge, &["cluster_queue", "status"], "Different scheduling hashes of pending workloads"),
    row("kueue_local_queue_pending_workloads", Gauge, &["name", "namespace", "status"], "Pending workloads"),
    row("kueue_unadmitted_workloads", Gauge, &["cluster_queue", "reason", "underlying_cause"], "Workloads that are not admitted, by reason"),
    row("kueue_local_queue_unadmitted_workloads", Gauge, &["name", "namespace", "cluster_queue", "reason", "underlying_cause"], "Workloads that are not admitted, by reason"),
    row("kueue_finished_workloads", Gauge, CQ, "Finished workloads that still exist"),
    row("kueue_local_queue_finished_workloads", Gauge, LQ, "Finished workloads that still exist"),
    row("kueue_finished_workloads_total", Counter, CQ_CLASS, "Workloads that finished"),
    row("kueue_local_queue_finished_workloads_total", Counter, LQ_CLASS, "Workloads that finished"),
    row("kueue_replaced_workload_slices_total", Counter, CQ, "Workload slices that another slice of the job replaced"),
    row("kueue_quota_reserved_workloads_total", Counter, CQ_CLASS, "Reservations of quota"),
    row("kueue_local_queue_quota_reserved_workloads_total", Counter, LQ_CLASS, "Reservations of quota"),
    row("kueue_admitted_workloads_total", Counter, CQ_CLASS, "Admissions"),
    row("kueue_local_queue_admitted_workloads_total", Counter, LQ_CLASS, "Admissions"),
    row("kueue_quota_reserved_wait_time_seconds", Histogram, CQ_CLASS, "From creation or requeueing to the reservation of quota"),
    row("kueue_local_queue_quota_reserved_wait_time_seconds", Histogram, LQ_CLASS, "From creation or requeueing to the reservation of quota"),
    row("kueue_admission_wait_time_seconds", Histogram, CQ_CLASS, "From creation or requeueing to admission"),
    row("kueue_local_queue_admission_wait_time_seconds", Histogram, LQ_CLASS, "From creation or requeueing to admission"),
    row("kueue_admission_checks_wait_time_seconds", Histogram, CQ_CLASS, "From the reservation of quota to admission"),
    row("kueue_local_queue_admission_checks_wait_time_seconds", Histogram, LQ_CLASS, "From the reservation of quota to admission"),
    row("kueue_ready_wait_time_seconds", Histogram, CQ_CLASS, "From creation or requeueing to ready pods"),
    row("kueue_local_queue_ready_wait_time_seconds", Histogram, LQ_CLASS, "From creation or requeueing to ready pods"),
    row("kueue_admitted_until_ready_wait_time_seconds", Histogram, CQ_CLASS, "From admission to ready pods"),
    row("kueue_local_queue_admitted_until_ready_wait_time_seconds", Histogram, LQ_CLASS, "From admission to ready pods"),
    row("kueue_execution_time_seconds", Histogram, CQ_CLASS, "How long finished workloads were admitted, all admissions together"),
    row("kueue_local_queue_execution_time_seconds", Histogram, LQ_CLASS, "How long finished workloads were admitted, all admissions together"),
    row("kueue_pods_ready_to_evicted_time_seconds", Histogram, &["cluster_queue", "reason", "underlying_cause"], "From ready pods to eviction"),
    row("kueue_workload_eviction_latency_seconds", Histogram, &["cluster_queue", "reason"], "From eviction to the release of quota"),
    row("kueue_evicted_workloads_total", Counter, &["cluster_queue", "reason", "underlying_cause", "priority_class"], "Evictions"),
    row("kueue_local_queue_evicted_workloads_total", Counter, &["name", "namespace", "reason", "underlying_cause", "priority_class"], "Evictions"),
    row("kueue_evicted_workloads_once_total", Counter, &["cluster_queue", "reason", "underlying_cause", "priority_class"], "Workloads that were evicted for the first time for this reason"),
    row("kueue_preempted_workloads_total", Counter, &["preempting_cluster_queue", "reason"], "Preemptions"),
    row("kueue_reserving_active_workloads", Gauge, CQ, "Workloads that hold quota"),
    row("kueue_local_queue_reserving_active_workloads", Gauge, LQ, "Workloads that hold quota"),
    row("kueue_admitted_active_workloads", Gauge, CQ, "Workloads that are admitted and not finished"),
    row("kueue_local_queue_admitted_active_workloads", Gauge, LQ, "Workloads that are admitted and not finished"),
    row("kueue_cluster_queue_status", Gauge, &["cluster_queue", "status"], "1 for the status a ClusterQueue has"),
    row("kueue_local_queue_status", Gauge, &["name", "namespace", "active"], "1 for the value of the condition Active"),
    row("kueue_cluster_queue_info", Gauge, &["cluster_queue", "parent_cohort", "root_cohort"], "Where a ClusterQueue is in the tree"),
    row("kueue_cohort_info", Gauge, &["cohort", "parent_cohort", "root_cohort"], "Where a cohort is in the tree"),
    row("kueue_cluster_queue_resource_pending", Gauge, &["cluster_queue", "resource"], "Requests of pending workloads"),
    row("kueue_cluster_queue_nominal_quota", Gauge, QUOTA, "Nominal quota"),
    row("kueue_cluster_queue_borrowing_limit", Gauge, QUOTA, "Borrowing limit"),
    row("kueue_cluster_queue_lending_limit", Gauge, QUOTA, "Lending limit"),
    row("kueue_cluster_queue_resource_reservation", Gauge, QUOTA, "Quota reserved"),
    row("kueue_cluster_queue_resource_usage", Gauge, QUOTA, "Quota used by admitted workloads"),
    row("kueue_cluster_queue_weighted_share", Gauge, &["cluster_queue", "cohort"], "Dominant resource share by weight; NaN when infinite"),
    row("kueue_cohort_weighted_share", Gauge, &["cohort"], "Dominant resource share by weight; NaN when infinite"),
    row("kueue_local_queue_resource_reservation", Gauge, &["name", "namespace", "flavor", "resource"], "Quota reserved"),
    row("kueue_local_queue_resource_usage", Gauge, &["name", "namespace", "flavor", "resource"], "Quota used by admitted workloads"),
    row("kueue_local_queue_admission_fair_sharing_usage", Gauge, &["name", "namespace", "cluster_queue"], "Usage that orders LocalQueues"),
    row("kueue_cohort_subtree_quota", Gauge, COHORT_QUOTA, "Quota of a cohort and everything below it"),
    row("kueue_cohort_subtree_resource_reservations", Gauge, COHORT_QUOTA, "Quota reserved in a cohort and everything below it"),
    row("kueue_cohort_subtree_admitted_workloads_total", Counter, &["cohort", "priority_class"], "Admissions in a cohort and everything below it"),
    row("kueue_cohort_subtree_admitted_active_workloads", Gauge, &["cohort"], "Workloads admitted in a cohort and everything below it"),
];

pub(super) fn find(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|r| r.name == name)
}

/// The labels of a metric; none for an unknown one.
pub(super) fn labels(name: &str) -> &'static [&'static str] {
    find(name).map_or(&[], |r| r.labels)
}

/// Upper bounds of buckets in seconds.
pub(super) const BOUNDS: [f64; 16] = [
    1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0, 5120.0, 10240.0, 20480.0,
    40960.0,
];

/// Upper bounds of a histogram's buckets: all for execution times, and for waits in a ClusterQueue, else up to 10240.
pub(super) fn bounds(name: &str) -> &'static [f64] {
    let long = [
        "kueue_execution_time_seconds",
        "kueue_local_queue_execution_time_seconds",
        "kueue_admission_wait_time_seconds",
    ];
    if long.contains(&name) { &BOUNDS } else { &BOUNDS[..14] }
}
