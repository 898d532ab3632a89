//! Watches the API server without the proxy and says what must never be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use plimsoll_api::json;
use plimsoll_client::reflector::{Delta, Reflector};
use plimsoll_runtime::api::{Api, JOBS, PODS, Resource, WORKLOADS};
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};

#[derive(Default)]
struct State {
    quota: i64,
    /// Milli-CPUs of bound pods that have not ended, by UID.
    running: BTreeMap<String, i64>,
    /// UIDs of jobs, and of those that have started and that are complete.
    jobs: BTreeSet<String>,
    started: BTreeSet<String>,
    complete: BTreeSet<String>,
    /// When each workload got its quota.
    admitted: BTreeMap<String, String>,
    seen: u64,
    violation: Option<String>,
}

pub struct Checker {
    state: Arc<Mutex<State>>,
    _stop: DropGuard,
}

impl Checker {
    /// Checks until dropped; `quota` in milli-CPUs.
    pub fn start(api: &Api, quota: i64) -> Self {
        let state = Arc::new(Mutex::new(State { quota, ..State::default() }));
        let stop = CancellationToken::new();
        for resource in [PODS, JOBS, WORKLOADS] {
            let reflector = Reflector { required: true, ..Reflector::new(api.clone(), resource) };
            let state = Arc::clone(&state);
            tokio::spawn(reflector.run(stop.clone(), move |delta| {
                let mut state = state.lock().unwrap();
                state.seen += 1;
                if let Some(violation) = state.take(resource, delta) {
                    state.violation.get_or_insert(violation);
                }
            }));
        }
        Self { state, _stop: stop.drop_guard() }
    }

    pub fn violation(&self) -> Option<String> {
        self.state.lock().unwrap().violation.clone()
    }

    /// Jobs that are not complete.
    pub fn open(&self) -> usize {
        let state = self.state.lock().unwrap();
        state.jobs.difference(&state.complete).count()
    }

    pub fn complete(&self) -> usize {
        self.state.lock().unwrap().complete.len()
    }

    /// Changes that have been checked.
    pub fn seen(&self) -> u64 {
        self.state.lock().unwrap().seen
    }
}

impl State {
    fn take(&mut self, resource: Resource, delta: Delta<'_>) -> Option<String> {
        match delta {
            Delta::Upsert { meta, bytes } => {
                let object: Value = serde_json::from_slice(bytes).unwrap();
                match resource {
                    PODS => self.pod(&meta.name, &object),
                    JOBS => self.job(&meta.name, &object),
                    _ => self.workload(&meta.name, &object),
                }
            }
            Delta::Delete { name, uid, .. } => {
                self.running.remove(uid);
                Some(format!("{} {} was deleted", resource.kind, name))
            }
            Delta::Synced { .. } | Delta::Absent => None,
        }
    }

    fn pod(&mut self, name: &str, pod: &Value) -> Option<String> {
        let uid = json::uid(pod).to_owned();
        let phase = json::text(pod, &["status", "phase"]);
        if json::deleting(pod) || phase == "Failed" {
            return Some(format!("pod {name} was stopped: {}", pod["status"]));
        }
        match !json::text(pod, &["spec", "nodeName"]).is_empty() && phase != "Succeeded" {
            true => self.running.insert(uid, 1000),
            false => self.running.remove(&uid),
        };
        let used: i64 = self.running.values().sum();
        (used > self.quota)
            .then(|| format!("{used} milli-CPUs run, with a quota of {}: the last is {name}", self.quota))
    }

    fn job(&mut self, name: &str, job: &Value) -> Option<String> {
        let uid = json::uid(job).to_owned();
        self.jobs.insert(uid.clone());
        if json::is_true(job, "Complete") {
            self.complete.insert(uid);
            return None;
        }
        if json::is_true(job, "Failed") {
            return Some(format!("job {name} failed: {}", job["status"]));
        }
        if job["spec"]["suspend"] == false {
            self.started.insert(uid);
            return None;
        }
        self.started.contains(&uid).then(|| format!("job {name} was suspended again"))
    }

    fn workload(&mut self, name: &str, workload: &Value) -> Option<String> {
        let uid = json::uid(workload).to_owned();
        if json::is_true(workload, "Evicted") {
            return Some(format!("workload {name} was evicted: {}", workload["status"]["conditions"]));
        }
        let reserved = json::condition(workload, "QuotaReserved").filter(|c| c["status"] == "True");
        let Some(reserved) = reserved else {
            let lost = self.admitted.contains_key(&uid) && !json::is_true(workload, "Finished");
            return lost.then(|| format!("workload {name} lost its quota: {}", workload["status"]));
        };
        let since = json::text(reserved, &["lastTransitionTime"]).to_owned();
        let first = self.admitted.entry(uid).or_insert_with(|| since.clone());
        (*first != since).then(|| format!("workload {name} was admitted at {first} and at {since}"))
    }
}
