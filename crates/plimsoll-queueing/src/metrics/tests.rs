//! Counters follow confirmed writes; gauges follow the state.

use super::observations::Place;
use super::*;
use crate::model::{EvictionCount, Workload, WorkloadStatus};
use crate::testing::outside::{cluster_queue, workload};
use crate::{
    Action, Cohort, Condition, Config, CustomLabel, Event, FairSharing, Gates, LabelSource, LocalQueue,
    LocalQueueMetrics, ResourceFlavor, StopPolicy, cond,
};
use plimsoll_state::model::{LabelSelector, Operator, Requirement};
use plimsoll_state::time::Time;

#[test]
fn buckets_are_kueues() {
    let all = table::bounds("kueue_ready_wait_time_seconds");
    assert_eq!((all.len(), all.first(), all.last()), (14, Some(&1.0), Some(&10240.0)));
    for name in ["kueue_execution_time_seconds", "kueue_local_queue_execution_time_seconds"] {
        assert_eq!(table::bounds(name).last(), Some(&40960.0), "{name}");
    }
}

#[test]
fn samples_are_summed_up_and_forgotten() {
    let mut metrics = Metrics::default();
    metrics.count("kueue_admitted_workloads_total", &["a", "high"], 1);
    metrics.count("kueue_admitted_workloads_total", &["a", "high"], 1);
    metrics.count("kueue_admitted_workloads_total", &["b", ""], 1);
    for v in [0.5, 2.0, 3.0, 1e9] {
        metrics.observe("kueue_ready_wait_time_seconds", &["a", ""], v);
    }
    let row = |name| table::ROWS.iter().find(|r| r.name == name).unwrap();
    let samples = metrics.samples(row("kueue_admitted_workloads_total"));
    assert_eq!(samples.len(), 2);
    let labels = vec![("cluster_queue", "a".into()), ("priority_class", "high".into())];
    assert_eq!(samples[0], MetricSample::new(labels, MetricValue::Number(2.0)));
    let MetricValue::Histogram { buckets, count, .. } =
        &metrics.samples(row("kueue_ready_wait_time_seconds"))[0].value
    else {
        unreachable!("a histogram")
    };
    assert_eq!((buckets[0], buckets[1], buckets[2], *count), ((1.0, 1), (2.5, 2), (5.0, 3), 4));
    assert_eq!(buckets.last().unwrap().1, 3);
    metrics.forget(&[("cluster_queue", "a")]);
    assert_eq!(metrics.samples(row("kueue_admitted_workloads_total")).len(), 1);
    assert!(metrics.samples(row("kueue_ready_wait_time_seconds")).is_empty());
}

#[test]
fn names_are_unique_and_in_form() {
    let mut names: Vec<&str> = table::ROWS.iter().map(|r| r.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), table::ROWS.len());
    for r in table::ROWS {
        assert_eq!(r.kind == MetricKind::Counter, r.name.ends_with("_total"), "{}", r.name);
        assert!(r.name.starts_with("kueue_"), "{}", r.name);
    }
}

fn number(q: &Queueing, name: &str, value: &str) -> Option<f64> {
    let families = q.metrics();
    let family = families.iter().find(|f| f.name == name)?;
    let sample = family.samples.iter().find(|s| s.labels.iter().any(|(_, v)| v == value))?;
    match sample.value {
        MetricValue::Number(n) => Some(n),
        MetricValue::Histogram { count, .. } => Some(count as f64),
    }
}

/// Nothing is counted before the write is confirmed, and then once, however it is confirmed.
#[test]
fn confirmed_writes_count_once() {
    let mut q = Queueing::new(Config::default());
    let now = Time::from_seconds(100);
    let local = |i: usize| LocalQueue {
        namespace: "n".into(),
        name: format!("l{i}"),
        cluster_queue: format!("c{i}"),
        ..LocalQueue::default()
    };
    let mut jobs = [workload(1, 0, 0, 1000), workload(2, 0, 0, 1000), workload(3, 0, 0, 9000)];
    let flavor = ResourceFlavor { name: "f".into(), ..Default::default() };
    q.handle(now, Event::NamespaceUpsert("n".into(), Default::default()));
    q.handle(now, Event::ResourceFlavorUpsert(Box::new(flavor)));
    q.handle(now, Event::ClusterQueueUpsert(Box::new(cluster_queue("c0", "pool", 2000, None, false))));
    q.handle(now, Event::LocalQueueUpsert(Box::new(local(0))));
    for j in &jobs {
        q.handle(now, Event::WorkloadUpsert(Box::new(j.clone())));
    }
    let mut writes = Vec::new();
    for _ in 0..4 {
        q.decide(now, &mut |a| {
            writes.extend(match a {
                Action::UpdateWorkload(u) => Some(u),
                _ => None,
            });
        });
    }
    assert_eq!(number(&q, "kueue_admitted_workloads_total", "c0"), None);
    assert_eq!(number(&q, "kueue_reserving_active_workloads", "c0"), Some(2.0));
    for u in writes.into_iter().filter(|u| u.admission.is_some()) {
        let job = jobs.iter_mut().find(|j| j.key == u.key).unwrap();
        u.apply(&mut job.status);
        job.version += 1;
        // One is confirmed by the answer first, the other by the watch alone.
        if job.key.name == "w1" {
            let (key, id, version) = (u.key.clone(), u.id, job.version);
            q.handle(now, Event::Written { key, id, version });
        }
        q.handle(now, Event::WorkloadUpsert(Box::new(job.clone())));
    }
    assert_eq!(number(&q, "kueue_admitted_workloads_total", "c0"), Some(2.0));
    assert_eq!(number(&q, "kueue_quota_reserved_workloads_total", "c0"), Some(2.0));
    assert_eq!(number(&q, "kueue_cohort_subtree_admitted_workloads_total", "pool"), Some(2.0));
    assert_eq!(number(&q, "kueue_admission_wait_time_seconds", "c0"), Some(2.0));
    assert_eq!(number(&q, "kueue_admission_checks_wait_time_seconds", "c0"), None, "there are no checks");
    assert_eq!(number(&q, "kueue_pending_workloads", "inadmissible"), Some(1.0));
    assert_eq!(number(&q, "kueue_cluster_queue_resource_reservation", "c0"), Some(2.0));
    assert_eq!(number(&q, "kueue_cluster_queue_resource_pending", "c0"), Some(9.0));
    let finished =
        Condition { kind: cond::FINISHED.into(), status: true, transition: now, ..Default::default() };
    jobs[0].status.conditions.push(finished);
    q.handle(now, Event::WorkloadUpsert(Box::new(jobs[0].clone())));
    q.handle(now, Event::WorkloadUpsert(Box::new(jobs[0].clone())));
    assert_eq!(number(&q, "kueue_finished_workloads_total", "c0"), Some(1.0));
    assert_eq!(number(&q, "kueue_execution_time_seconds", "c0"), Some(1.0));
    assert_eq!(number(&q, "kueue_finished_workloads", "c0"), Some(1.0));
}

/// Kueue's `TotalExecutionTime`, and pods that are ready after the first start only.
#[test]
fn all_admissions_of_a_workload_are_timed_together() {
    let at = |kind: &str, reason: &str, seconds: i64| Condition {
        kind: kind.into(),
        status: true,
        reason: reason.into(),
        transition: Time::from_seconds(seconds),
        ..Default::default()
    };
    let mut wl = workload(1, 0, 0, 1000);
    wl.status.past_execution_seconds = Some(30);
    wl.status.conditions = vec![
        at(cond::ADMITTED, "Admitted", 10),
        at(cond::PODS_READY, "Recovered", 15),
        at(cond::FINISHED, "Succeeded", 20),
    ];
    let mut metrics = Metrics::default();
    seen(&mut metrics, &WorkloadStatus::default(), &wl, &Place::default());
    let samples = |name| metrics.samples(table::find(name).unwrap());
    let ran = samples("kueue_execution_time_seconds");
    assert!(matches!(&ran[0].value, MetricValue::Histogram { sum, .. } if *sum == 40.0), "{ran:?}");
    assert!(samples("kueue_ready_wait_time_seconds").is_empty());
}

#[test]
fn evictions_of_workloads_without_quota_are_not_counted() {
    let mut wl = workload(1, 0, 0, 1000);
    wl.status.evictions = vec![EvictionCount { reason: "Deactivated".into(), cause: "".into(), count: 1 }];
    let mut old = WorkloadStatus::default();
    assert!(observations_of(&old, &wl, None, now()).is_empty());
    old.admission = Some(Box::default());
    let counted = Observation::Evicted("Deactivated".into(), "".into(), true, None);
    assert_eq!(observations_of(&old, &wl, None, now()), [counted]);
}

fn now() -> Time {
    Time::from_seconds(100)
}

/// Two ClusterQueues in a cohort below another one, with a LocalQueue each, the first with a label.
fn two_queues(config: Config) -> Queueing {
    let mut q = Queueing::new(config);
    let flavor = ResourceFlavor { name: "f".into(), ..Default::default() };
    q.handle(now(), Event::NamespaceUpsert("n".into(), Default::default()));
    q.handle(now(), Event::ResourceFlavorUpsert(Box::new(flavor)));
    let pool = Cohort {
        name: "pool".into(),
        parent: "root".into(),
        fair_weight_nano: 1_000_000_000,
        ..Cohort::default()
    };
    q.handle(now(), Event::CohortUpsert(Box::new(pool)));
    for (i, nominal) in [(0, 3000), (1, 6000)] {
        let mut queue = cluster_queue(&format!("c{i}"), "pool", nominal, None, false);
        // Kept from the cohort, and still reserved in it.
        queue.resource_groups[0].flavors[0].resources[0].lending_limit = (i == 0).then_some(1000);
        q.handle(now(), Event::ClusterQueueUpsert(Box::new(queue)));
        let labels = if i == 0 { [("team".to_owned(), "a".to_owned())].into() } else { Default::default() };
        let local = LocalQueue {
            namespace: "n".into(),
            name: format!("l{i}"),
            cluster_queue: format!("c{i}"),
            labels,
            ..LocalQueue::default()
        };
        q.handle(now(), Event::LocalQueueUpsert(Box::new(local)));
    }
    q
}

/// Decides, and confirms every write of a workload. Returns the workloads as written.
fn settle(q: &mut Queueing, mut jobs: Vec<Workload>) -> Vec<Workload> {
    for j in &jobs {
        q.handle(now(), Event::WorkloadUpsert(Box::new(j.clone())));
    }
    for _ in 0..4 {
        let mut writes = Vec::new();
        q.decide(now(), &mut |a| {
            writes.extend(match a {
                Action::UpdateWorkload(u) => Some(u),
                _ => None,
            });
        });
        for u in writes {
            let job = jobs.iter_mut().find(|j| j.key == u.key).unwrap();
            u.apply(&mut job.status);
            job.version += 1;
            q.handle(now(), Event::WorkloadUpsert(Box::new(job.clone())));
        }
    }
    jobs
}

#[test]
fn only_chosen_local_queues_have_metrics() {
    let team = Requirement { key: "team".into(), operator: Operator::In, values: vec!["a".into()] };
    let matching = LocalQueueMetrics::Matching(LabelSelector { requirements: vec![team] });
    for (metrics, want) in [
        (LocalQueueMetrics::All, [true, true]),
        (matching, [true, false]),
        (LocalQueueMetrics::Disabled, [false, false]),
    ] {
        let mut q = two_queues(Config { local_queue_metrics: metrics, ..Config::default() });
        settle(&mut q, vec![workload(1, 0, 0, 1000), workload(2, 1, 0, 1000), workload(3, 0, 0, 9000)]);
        for name in
            ["kueue_local_queue_admitted_active_workloads", "kueue_local_queue_admitted_workloads_total"]
        {
            assert_eq!(["l0", "l1"].map(|l| number(&q, name, l).is_some()), want, "{name}");
        }
        let unadmitted = number(&q, "kueue_local_queue_unadmitted_workloads", "c0");
        assert_eq!(unadmitted, want[0].then_some(1.0), "by ClusterQueue, too");
    }
}

#[test]
fn cohorts_count_all_reservations_below_them_until_they_are_gone() {
    let mut q = two_queues(Config { fair_sharing: Some(FairSharing::default()), ..Config::default() });
    settle(&mut q, vec![workload(1, 0, 0, 4000), workload(2, 1, 0, 1000)]);
    for cohort in ["pool", "root"] {
        assert_eq!(number(&q, "kueue_cohort_subtree_resource_reservations", cohort), Some(5.0), "{cohort}");
        assert_eq!(
            number(&q, "kueue_cohort_subtree_admitted_workloads_total", cohort),
            Some(2.0),
            "{cohort}"
        );
    }
    assert_eq!(number(&q, "kueue_cohort_subtree_quota", "pool"), Some(7.0));
    // 1 of 7 lendable cores is borrowed.
    let share = number(&q, "kueue_cluster_queue_weighted_share", "c0").unwrap();
    assert!((share - 1000.0 / 7.0).abs() < 1e-9, "{share}");
    q.handle(now(), Event::CohortDelete("pool".into()));
    settle(&mut q, Vec::new());
    for cohort in ["pool", "root"] {
        assert_eq!(number(&q, "kueue_cohort_subtree_admitted_workloads_total", cohort), None, "{cohort}");
    }
    let admitted = |q: &Queueing| number(q, "kueue_cohort_subtree_admitted_active_workloads", "pool");
    assert_eq!(admitted(&q), None);
    assert_eq!(number(&q, "kueue_cohort_subtree_resource_reservations", "pool"), Some(5.0));
    // Its quota is told again when one of its ClusterQueues changes.
    let quota = |q: &Queueing| number(q, "kueue_cohort_subtree_quota", "pool");
    assert_eq!(quota(&q), None);
    let changed = cluster_queue("c1", "pool", 8000, None, false);
    q.handle(now(), Event::ClusterQueueUpsert(Box::new(changed)));
    settle(&mut q, vec![workload(3, 1, 0, 1000)]);
    assert_eq!((quota(&q), admitted(&q)), (Some(9.0), Some(3.0)));
}

/// As Kueue's, for which a limit that is not set is infinite.
#[test]
fn gauges_have_samples_where_there_is_nothing() {
    let mut q = two_queues(Config::default());
    let jobs = settle(&mut q, vec![workload(1, 0, 0, 90_000)]);
    for (name, queue, want) in [
        ("kueue_cluster_queue_borrowing_limit", "c0", f64::INFINITY),
        ("kueue_cluster_queue_lending_limit", "c0", 1.0),
        ("kueue_cluster_queue_lending_limit", "c1", f64::INFINITY),
        ("kueue_cluster_queue_resource_pending", "c1", 0.0),
        ("kueue_finished_workloads", "c1", 0.0),
    ] {
        assert_eq!(number(&q, name, queue), Some(want), "{name} {queue}");
    }
    let hashes = |q: &Queueing| lines(q, "kueue_pending_scheduling_hashes");
    let sample = |status: &str, n: i32| format!("cluster_queue=c0,status={status} {n}");
    assert_eq!(hashes(&q)[..2], [sample("active", 0), sample("inadmissible", 1)]);
    let mut stopped = cluster_queue("c0", "pool", 3000, None, false);
    stopped.stop_policy = StopPolicy::Hold;
    q.handle(now(), Event::ClusterQueueUpsert(Box::new(stopped)));
    let jobs = settle(&mut q, jobs);
    assert_eq!(hashes(&q)[..2], [sample("active", 0), sample("inadmissible", 1)], "it is stopped");
    q.handle(now(), Event::LocalQueueDelete("n".into(), "l0".into()));
    settle(&mut q, jobs);
    assert_eq!(number(&q, "kueue_unadmitted_workloads", "c0"), None, "nobody knows its ClusterQueue");
    let gates = Gates { equivalence_hashing: false, ..Config::default().gates };
    assert!(hashes(&two_queues(Config { gates, ..Config::default() })).is_empty());
}

#[test]
fn evictions_that_others_end_are_timed_too() {
    let mut q = two_queues(Config::default());
    let mut job = settle(&mut q, vec![workload(1, 0, 0, 1000)]).remove(0);
    let name = "kueue_workload_eviction_latency_seconds";
    let condition = |kind: &str, status: bool| Condition {
        kind: kind.into(),
        status,
        reason: "Preempted".into(),
        transition: now(),
        ..Default::default()
    };
    job.status.conditions.retain(|c| c.kind != cond::QUOTA_RESERVED && c.kind != cond::ADMITTED);
    job.status.conditions.push(condition(cond::EVICTED, true));
    job.status.conditions.push(condition(cond::QUOTA_RESERVED, false));
    job.status.admission = None;
    job.version += 1;
    assert_eq!(number(&q, name, "Preempted"), None);
    q.handle(now(), Event::WorkloadUpsert(Box::new(job.clone())));
    q.handle(now(), Event::WorkloadUpsert(Box::new(job)));
    assert_eq!(number(&q, name, "Preempted"), Some(1.0));
}

/// All samples of a metric as text, with values of labels in their order.
fn lines(q: &Queueing, name: &str) -> Vec<String> {
    let families = q.metrics();
    let family = families.iter().find(|f| f.name == name).unwrap();
    let line = |s: &MetricSample| {
        let labels: Vec<String> = s.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let n = match s.value {
            MetricValue::Number(n) => n,
            MetricValue::Histogram { count, .. } => count as f64,
        };
        format!("{} {n}", labels.join(","))
    };
    family.samples.iter().map(line).collect()
}

#[test]
fn custom_labels_follow_gauges_and_stay_with_counters() {
    let label = |name: &str, source, tracked: &[&str]| CustomLabel {
        name: name.into(),
        source,
        annotation: false,
        key: name.into(),
        tracked: tracked.iter().map(|t| (*t).to_owned()).collect(),
    };
    let kind = label("kind", LabelSource::Workload, &["k1"]);
    let custom_labels = vec![
        kind.clone(),
        label("team", LabelSource::ClusterQueue, &[]),
        label("site", LabelSource::Cohort, &[]),
        label("user", LabelSource::LocalQueue, &[]),
    ];
    let mut q = two_queues(Config { custom_labels, ..Config::default() });
    let queue = |team: &str| {
        let mut queue = cluster_queue("c0", "pool", 3000, None, false);
        queue.metric_labels = vec![team.into()];
        Event::ClusterQueueUpsert(Box::new(queue))
    };
    q.handle(now(), queue("red"));
    let mut jobs = vec![workload(1, 0, 0, 1000), workload(2, 0, 0, 1000), workload(3, 0, 0, 90_000)];
    jobs[0].metric_labels = vec![kind.value(Some("k1"))];
    jobs[1].metric_labels = vec![kind.value(Some("k2"))];
    jobs[2].metric_labels = vec![kind.value(None)];
    settle(&mut q, jobs);
    let untracked = "kueue.x-k8s.io/_UNTRACKED_VALUE_";
    let admitted = |team: &str| {
        let of = |kind: &str| format!("cluster_queue=c0,custom_team={team},custom_kind={kind} 1");
        vec![of("k1"), of(untracked)]
    };
    assert_eq!(lines(&q, "kueue_admitted_active_workloads"), admitted("red"));
    let waits = format!("cluster_queue=c0,status=inadmissible,custom_team=red,custom_kind={untracked} 1");
    assert_eq!(lines(&q, "kueue_pending_workloads"), [waits]);
    let local = |kind: &str| format!("name=l0,namespace=n,priority_class=,custom_user=,custom_kind={kind} 1");
    assert_eq!(lines(&q, "kueue_local_queue_admitted_workloads_total"), [local("k1"), local(untracked)]);
    q.handle(now(), queue("blue"));
    assert_eq!(lines(&q, "kueue_admitted_active_workloads"), admitted("blue"));
    let total = ["cluster_queue=c0,priority_class=,custom_team=red 2"];
    assert_eq!(lines(&q, "kueue_admitted_workloads_total"), total);
    let below = lines(&q, "kueue_cohort_subtree_admitted_active_workloads");
    assert_eq!(below[1], "cohort=pool,custom_team=blue 2", "{below:?}");
    assert_eq!(
        lines(&q, "kueue_cohort_info")[0],
        "cohort=pool,parent_cohort=root,root_cohort=root,custom_site= 1"
    );
    q.handle(now(), Event::ClusterQueueDelete("c0".into()));
    assert!(lines(&q, "kueue_admitted_workloads_total").is_empty());
}
