//! Kueue's metrics of job integrations: how long workloads take to be made, and gates of pods to be removed, and what
//! MultiKueue dispatches (`pkg/metrics/metrics.go`). They have to do with clocks and writes, so they are counted where the
//! writes are made.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_api::json;
use plimsoll_jobs::pod_view::workload_of;
use plimsoll_jobs::{integrations, names};
use plimsoll_queueing::{MetricFamily, MetricKind, MetricSample, MetricValue};
use plimsoll_state::Time;
use serde_json::Value;

use super::histogram::{DEFAULT, Histogram};
use crate::cache::{Cache, Kind};
use crate::clock;

/// 0.01 × 2^k, 11 of them.
#[rustfmt::skip]
const CREATION: &[f64] = &[0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24];

#[derive(Debug, Default)]
struct State {
    /// By kind of job.
    made: BTreeMap<String, Histogram>,
    /// By gate, ClusterQueue and whether the pod is of a group.
    freed: BTreeMap<(&'static str, String, bool), Histogram>,
    dispatched: PerWorker,
    admitted: PerWorker,
}

/// Counts by ClusterQueue and worker cluster.
type PerWorker = BTreeMap<(String, String), u64>;

/// The counts; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct JobMetrics {
    state: Arc<Mutex<State>>,
}

fn made_at(object: &Value) -> Option<Time> {
    clock::parse(json::text(object, &["metadata", "creationTimestamp"]))
}

fn seconds(from: Time, to: Time) -> f64 {
    // Two clocks may disagree.
    (to.since(from).0.max(0) as f64) / 1e9
}

/// The workload that a pod was admitted with. Of an elastic job, the slice that has replaced it.
fn admitted_with(pod: &Value, cache: &Cache) -> Option<Arc<Value>> {
    let wl = cache.get(Kind::Workload, json::namespace(pod), workload_of(pod))?;
    if !json::is_true(&wl, "Finished") {
        return Some(wl);
    }
    let job = json::controller(&wl).map(|owner| json::text(owner, &["uid"]))?;
    let live = |wl: &Arc<Value>| !json::is_true(wl, "Finished") && json::is_true(wl, "Admitted");
    cache.objects(|objects| objects.owned_by(job).find(live))
}

fn gates(pod: &Value) -> Vec<&str> {
    json::list(pod, &["spec", "schedulingGates"]).iter().map(|g| json::text(g, &["name"])).collect()
}

impl JobMetrics {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A Workload was made. Jobs that have been changed since they were made are left out: there the time says nothing.
    pub fn workload_made(&self, wl: &Value, cache: &Cache) {
        let owners = json::list(wl, &["metadata", "ownerReferences"]);
        let Some(owner) = json::controller(wl).or_else(|| owners.first()) else { return };
        let (version, kind) = (json::text(owner, &["apiVersion"]), json::text(owner, &["kind"]));
        let job = cache.objects(|objects| {
            let built_in = integrations::of_kind(version, kind).and_then(|i| Kind::of(i.resource));
            let kept = built_in.or_else(|| objects.declared_of_kind(version, kind).map(Kind::Custom))?;
            objects.get(kept, json::namespace(wl), json::text(owner, &["name"]))
        });
        let Some(job) = job else { return };
        if json::int(&job, &["metadata", "generation"]).is_some_and(|g| g > 1) {
            return;
        }
        let (Some(from), Some(to)) = (made_at(&job), made_at(wl)) else { return };
        let (value, new) = (seconds(from, to), || Histogram::new(CREATION));
        self.with(|s| s.made.entry(kind.to_owned()).or_insert_with(new).observe(value));
    }

    /// A pod was changed from `old` to `new`.
    pub fn pod_changed(&self, old: &Value, new: &Value, cache: &Cache, now: Time) {
        let left = gates(new);
        let before = gates(old);
        for gate in [names::GATE, names::TOPOLOGY_GATE, names::ELASTIC_GATE] {
            if !before.contains(&gate) || left.contains(&gate) {
                continue;
            }
            let Some(wl) = admitted_with(new, cache) else { continue };
            let admitted = json::condition(&wl, "Admitted").filter(|c| c["status"] == "True");
            let since = admitted.and_then(|c| clock::parse(json::text(c, &["lastTransitionTime"])));
            let Some(since) = since else { continue };
            let queue = json::text(&wl, &["status", "admission", "clusterQueue"]).to_owned();
            let grouped = !cache.config().identifiers.group_of(new).is_empty();
            let key = (gate, queue, grouped);
            let value = seconds(since, now);
            self.with(|s| s.freed.entry(key).or_insert_with(|| Histogram::new(DEFAULT)).observe(value));
        }
    }

    /// A ClusterQueue was deleted: its histograms go with it (Kueue `ClearClusterQueueMetrics`).
    pub fn cluster_queue_gone(&self, name: &str) {
        self.with(|s| s.freed.retain(|(_, queue, _), _| queue != name));
    }

    /// A worker cluster got a copy of a workload.
    pub fn dispatched(&self, wl: &Value, cluster: &str) {
        self.with(|s| count(&mut s.dispatched, wl, cluster));
    }

    /// A worker cluster was the first that admitted its copy of a workload.
    pub fn admitted_on(&self, wl: &Value, cluster: &str) {
        self.with(|s| count(&mut s.admitted, wl, cluster));
    }

    /// All of them.
    pub fn families(&self) -> Vec<MetricFamily> {
        let family = |name, help, samples| MetricFamily { name, help, kind: MetricKind::Histogram, samples };
        self.with(|s| {
            let made =
                s.made.iter().map(|(kind, h)| MetricSample::new(vec![("job_kind", kind.clone())], h.value()));
            let freed = s.freed.iter().map(|((gate, queue, group), h)| {
                let labels = vec![
                    ("cluster_queue", queue.clone()),
                    ("is_group", group.to_string()),
                    ("name", (*gate).to_owned()),
                ];
                MetricSample::new(labels, h.value())
            });
            vec![
                family(
                    "kueue_workload_creation_latency_seconds",
                    "From the creation of a job to that of its workload",
                    made.collect(),
                ),
                family(
                    "kueue_pod_scheduling_gate_removal_seconds",
                    "From admission to the removal of a pod's scheduling gate",
                    freed.collect(),
                ),
                per_worker(
                    "multikueue_workloads_dispatched_total",
                    "Copies of workloads that were created on a worker cluster",
                    &s.dispatched,
                ),
                per_worker(
                    "multikueue_workloads_admitted_total",
                    "Admissions on a worker cluster; a workload counts again when it was evicted meanwhile",
                    &s.admitted,
                ),
            ]
        })
    }
}

fn count(counts: &mut PerWorker, wl: &Value, cluster: &str) {
    let queue = json::text(wl, &["status", "admission", "clusterQueue"]).to_owned();
    *counts.entry((queue, cluster.to_owned())).or_default() += 1;
}

fn per_worker(name: &'static str, help: &'static str, counts: &PerWorker) -> MetricFamily {
    let samples = counts.iter().map(|((queue, cluster), n)| {
        let labels = vec![("cluster", cluster.clone()), ("cluster_queue", queue.clone())];
        MetricSample::new(labels, MetricValue::Number(*n as f64))
    });
    MetricFamily { name, help, kind: MetricKind::Counter, samples: samples.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_jobs::CustomKind;
    use serde_json::json;

    #[test]
    fn workloads_and_gates_are_timed() {
        let (metrics, cache) = (JobMetrics::default(), Cache::default());
        let job = |name: &str, generation: i64| {
            json!({"metadata": {"namespace": "ns", "name": name, "generation": generation,
                "creationTimestamp": "2026-01-01T00:00:00Z"}})
        };
        cache.put(Kind::Job, job("j", 1));
        cache.put(Kind::Job, job("changed", 2));
        let owned = |version: &str, kind: &str, owner: &str| {
            let owner = json!({"apiVersion": version, "kind": kind, "name": owner, "controller": true});
            json!({"metadata": {"namespace": "ns", "name": "w", "creationTimestamp": "2026-01-01T00:00:02Z",
                "ownerReferences": [owner]},
                "status": {"admission": {"clusterQueue": "cq"}, "conditions": [
                    {"type": "Admitted", "status": "True", "lastTransitionTime": "2026-01-01T00:00:10Z"}]}})
        };
        let workload = |owner: &str| owned("batch/v1", "Job", owner);
        for owner in ["j", "changed", "none"] {
            metrics.workload_made(&workload(owner), &cache);
        }
        cache.put(Kind::Custom(CustomKind::JOB_SET), job("js", 1));
        metrics.workload_made(&owned("jobset.x-k8s.io/v1alpha2", "JobSet", "js"), &cache);
        cache.put(Kind::Workload, workload("j"));
        let pod = |gates: &[&str]| {
            let gates: Vec<Value> = gates.iter().map(|g| json!({"name": g})).collect();
            json!({"metadata": {"namespace": "ns", "name": "p", "annotations": {names::WORKLOAD: "w"}},
                   "spec": {"schedulingGates": gates}})
        };
        let now = clock::parse("2026-01-01T00:00:13Z").unwrap();
        metrics.pod_changed(
            &pod(&[names::GATE, names::TOPOLOGY_GATE]),
            &pod(&[names::TOPOLOGY_GATE]),
            &cache,
            now,
        );
        metrics.pod_changed(&pod(&[names::TOPOLOGY_GATE]), &pod(&[names::TOPOLOGY_GATE]), &cache, now);
        // The pod of an elastic job whose first slice has been replaced.
        let mut old = workload("j");
        old["metadata"]["ownerReferences"][0]["uid"] = json!("ju");
        let mut new = old.clone();
        new["metadata"]["name"] = json!("w2");
        new["status"]["admission"]["clusterQueue"] = json!("cq2");
        old["status"]["conditions"]
            .as_array_mut()
            .unwrap()
            .push(json!({"type": "Finished", "status": "True"}));
        cache.put(Kind::Workload, old);
        cache.put(Kind::Workload, new);
        metrics.pod_changed(&pod(&[names::ELASTIC_GATE]), &pod(&[]), &cache, now);
        let mut text = String::new();
        super::super::text::write(&mut text, &metrics.families(), &[("replica_role", "leader")]);
        for want in [
            "kueue_workload_creation_latency_seconds_count{job_kind=\"Job\",replica_role=\"leader\"} 1\n",
            "kueue_workload_creation_latency_seconds_sum{job_kind=\"Job\",replica_role=\"leader\"} 2\n",
            "kueue_workload_creation_latency_seconds_sum{job_kind=\"JobSet\",replica_role=\"leader\"} 2\n",
            "kueue_pod_scheduling_gate_removal_seconds_sum{cluster_queue=\"cq\",is_group=\"false\",name=\"kueue.x-k8s.io/admission\",replica_role=\"leader\"} 3\n",
            "kueue_pod_scheduling_gate_removal_seconds_sum{cluster_queue=\"cq2\",is_group=\"false\",name=\"kueue.x-k8s.io/elastic-job\",replica_role=\"leader\"} 3\n",
        ] {
            assert!(text.contains(want), "{want} not in\n{text}");
        }
        assert!(!text.contains("kueue.x-k8s.io/topology"));
        metrics.cluster_queue_gone("cq");
        let mut text = String::new();
        super::super::text::write(&mut text, &metrics.families(), &[("replica_role", "leader")]);
        assert!(!text.contains("cluster_queue=\"cq\"") && text.contains("cluster_queue=\"cq2\""), "{text}");
        assert!(text.contains("kueue_workload_creation_latency_seconds_count"), "{text}");
    }
}
