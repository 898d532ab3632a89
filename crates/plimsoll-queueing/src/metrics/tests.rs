//! Counters follow confirmed writes; gauges follow the state.

use super::*;
use crate::tests::{cluster_queue, workload};
use crate::{Action, Condition, Config, Event, LocalQueue, ResourceFlavor, cond};
use plimsoll_state::time::Time;

#[test]
fn buckets_are_kueues() {
    let all = table::bounds("kueue_ready_wait_time_seconds");
    assert_eq!((all.len(), all.first(), all.last()), (14, Some(&1.0), Some(&10240.0)));
    assert_eq!(table::bounds("kueue_execution_time_seconds").last(), Some(&40960.0));
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
    assert_eq!(samples[0].labels, [("cluster_queue", "a".into()), ("priority_class", "high".into())]);
    assert_eq!(samples[0].value, MetricValue::Number(2.0));
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
