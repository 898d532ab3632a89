//! Everybody outside of Plimsoll: users, administrators, machines, the admission check's controller, and what runs the
//! workloads whose jobs are no part of the cluster. They see the API as it is and never fail.

mod reading;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_state::{Duration, Time};
use serde_json::{Map, Value, json};

use crate::agenda::Event;
use crate::api::{Change, Kind, Name, Request, Style, is_true, list, name_of, stamp, text};
use crate::dice::{Dice, Draw};
use crate::network::Network;
use crate::scenario::objects::{self, NAMESPACE, job_name, node_name};
use crate::scenario::{Form, JobSpec, NodeSpec, Operation, Plan, QueueSpec, QuotaSpec, Settings, Stop};
use reading::{asks, is_own, job_size, pod_size, reserved, size, workload_of};

/// CPUs of the largest workload that has to run in the end, whatever its queue.
const SMALL: i64 = 4;

/// How long a workload is inactive and without quota before its user activates it again.
const IDLE: Duration = Duration::from_seconds(30);

/// A queue as administrators have it now.
#[derive(Clone, Debug)]
struct Queue {
    spec: Option<QueueSpec>,
    stop: Stop,
    /// The LocalQueue, if there is one.
    local: Option<Stop>,
}

/// Everybody.
#[derive(Debug)]
pub struct Users {
    settings: Settings,
    plan: Plan,
    dice: Dice,
    queues: Vec<Queue>,
    /// How long each job runs.
    runs: BTreeMap<String, Duration>,
    /// Number of the present run of each workload that runs.
    running: BTreeMap<String, u32>,
    rounds: u32,
    /// Workloads that the check's controller will look at.
    asked: BTreeSet<String>,
    /// Pod groups that users have deleted: the workload goes with them, whenever it was made.
    dropped: BTreeSet<String>,
    /// Plain pods that are to run, by name; `None`: one that has.
    pods: BTreeMap<String, Option<Value>>,
    /// Workloads that are inactive and hold no quota, and since when.
    idle: BTreeMap<Name, Time>,
    /// Answers of the check's controller in thousandths: `Retry`, `Rejected`.
    answers: (u32, u32),
    answered: u64,
}

fn key(name: &str) -> Name {
    (NAMESPACE.to_owned(), name.to_owned())
}

fn global(name: String) -> Name {
    (String::new(), name)
}

impl Users {
    /// Everybody, before anything is there.
    pub fn new(seed: u64, settings: Settings, plan: Plan) -> Self {
        let dice = Dice::new(seed).about("users");
        let (runs, running, asked) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        let mut out = Self {
            settings,
            plan,
            dice,
            queues: Vec::new(),
            runs,
            running,
            rounds: 0,
            asked,
            pods: BTreeMap::new(),
            idle: BTreeMap::new(),
            dropped: BTreeSet::new(),
            answers: (0, 0),
            answered: 0,
        };
        out.forget();
        out
    }

    fn forget(&mut self) {
        let queue =
            |s: &QueueSpec| Queue { spec: Some(s.clone()), stop: Stop::None, local: Some(Stop::None) };
        self.queues = self.plan.queues.iter().map(queue).collect();
        self.answers = (0, 0);
    }

    /// Creates an object, or makes spec and status of one that is there what they are in `object`.
    fn put(&self, kind: Kind, object: Value, network: &mut Network) {
        let name = name_of(&object);
        let now = network.now();
        let Some(old) = network.api.get(kind, &name.0, &name.1) else {
            let _ = network.api.handle(Request::Create(kind, object), now);
            return;
        };
        let old = Arc::clone(old);
        for part in ["spec", "status"] {
            let Some(new) = object[part].as_object() else { continue };
            let gone = old[part].as_object().into_iter().flatten().map(|(k, _)| k);
            // The engine's statuses of queues stay.
            let gone =
                gone.filter(|k| part == "spec" && !new.contains_key(*k)).map(|k| (k.clone(), Value::Null));
            let mut change: Map<String, Value> = gone.collect();
            change.extend(new.clone());
            self.patch(kind, name.clone(), part == "status", json!({ part: change }), network);
        }
    }

    fn patch(&self, kind: Kind, name: Name, status: bool, body: Value, network: &mut Network) {
        let now = network.now();
        let _ = network.api.handle(Request::Patch { kind, name, status, style: Style::Strategic, body }, now);
    }

    fn delete(&self, kind: Kind, name: Name, network: &mut Network) {
        let now = network.now();
        let _ = network.api.handle(Request::Delete { kind, name, uid: String::new(), grace: Some(0) }, now);
    }

    fn put_or_delete(&self, kind: Kind, name: Name, object: Option<Value>, network: &mut Network) {
        match object {
            Some(object) => self.put(kind, object, network),
            None => self.delete(kind, name, network),
        }
    }

    /// All queues, flavors, checks and nodes become as planned.
    pub fn restore(&mut self, network: &mut Network) {
        self.forget();
        self.put(Kind::Namespace, objects::namespace(), network);
        if self.settings.topology {
            self.put(Kind::Topology, objects::topology(), network);
        }
        for flavor in 0..objects::FLAVORS.len() {
            self.put(Kind::Flavor, objects::flavor(flavor, &self.settings), network);
        }
        for class in 0..5 {
            self.put(Kind::WorkloadPriorityClass, objects::priority_class(class), network);
        }
        self.put(Kind::AdmissionCheck, objects::check(true, &self.settings), network);
        for (i, spec) in self.plan.cohorts.iter().enumerate() {
            self.put(Kind::Cohort, objects::cohort(i, spec), network);
        }
        for i in 0..self.queues.len() {
            self.put_queue(i, network);
        }
        for (i, spec) in self.plan.nodes.iter().enumerate() {
            self.put_node(i, Some(spec), network);
        }
    }

    fn put_queue(&self, queue: usize, network: &mut Network) {
        let Some(q) = self.queues.get(queue) else { return };
        let object = q.spec.as_ref().map(|s| objects::cluster_queue(queue, s, q.stop));
        self.put_or_delete(Kind::ClusterQueue, global(format!("c{queue}")), object, network);
        let object = q.local.map(|stop| objects::local_queue(queue, stop));
        self.put_or_delete(Kind::LocalQueue, key(&format!("l{queue}")), object, network);
    }

    fn put_node(&self, node: usize, spec: Option<&NodeSpec>, network: &mut Network) {
        let object = spec.map(|s| objects::node(node, s, network.now()));
        self.put_or_delete(Kind::Node, global(node_name(node)), object, network);
    }

    fn put_cohort(&self, cohort: usize, spec: Option<&QuotaSpec>, network: &mut Network) {
        let object = spec.map(|s| objects::cohort(cohort, s));
        self.put_or_delete(Kind::Cohort, global(format!("k{cohort}")), object, network);
    }

    /// Does what an operation says, as far as it is for users.
    pub fn apply(&mut self, operation: &Operation, network: &mut Network) {
        match operation {
            Operation::Submit { job, spec } => self.submit(*job, spec, network),
            Operation::Delete { job } => self.drop_job(&job_name(*job), network),
            Operation::Activate { job, active } => self.activate(&job_name(*job), *active, network),
            Operation::Prioritize { job, priority } => self.prioritize(&job_name(*job), *priority, network),
            Operation::Move { job, queue } => self.change_queue(&job_name(*job), *queue, network),
            Operation::Reclaim { job } => self.reclaim(&job_name(*job), network),
            Operation::ClusterQueue { queue, spec } => {
                if let Some(q) = self.queues.get_mut(*queue) {
                    q.spec = spec.as_deref().cloned();
                }
                self.put_queue(*queue, network);
            }
            Operation::StopQueue { queue, stop } => {
                if let Some(q) = self.queues.get_mut(*queue) {
                    q.stop = *stop;
                }
                self.put_queue(*queue, network);
            }
            Operation::LocalQueue { queue, stop } => {
                if let Some(q) = self.queues.get_mut(*queue) {
                    q.local = *stop;
                }
                self.put_queue(*queue, network);
            }
            Operation::Cohort { cohort, spec } => self.put_cohort(*cohort, spec.as_deref(), network),
            Operation::Flavor { flavor, exists } => {
                let object = exists.then(|| objects::flavor(*flavor, &self.settings));
                let name = objects::FLAVORS.get(*flavor).copied().unwrap_or_default().to_owned();
                self.put_or_delete(Kind::Flavor, global(name), object, network);
            }
            Operation::Check { active } => {
                let object = active.map(|active| objects::check(active, &self.settings));
                self.put_or_delete(Kind::AdmissionCheck, global(objects::CHECK.to_owned()), object, network);
            }
            Operation::Answers { retry, reject } => self.answers = (*retry, *reject),
            Operation::Node { node, spec } => self.put_node(*node, spec.as_ref(), network),
            Operation::Restore => self.restore(network),
            Operation::Crash => {}
        }
    }

    fn submit(&mut self, job: usize, spec: &JobSpec, network: &mut Network) {
        let name = job_name(job);
        self.drop_job(&name, network);
        self.dropped.remove(&name);
        self.runs.insert(name, Duration::from_millis(spec.runs));
        match spec.form {
            Form::Workload => self.put(Kind::Workload, objects::workload(job, spec, &self.settings), network),
            Form::Pods => {
                for pod in objects::pods(job, spec, &self.settings) {
                    let name = name_of(&pod);
                    // A former pod of that name may still be on its way out: its end is waited for.
                    if network.api.get(Kind::Pod, &name.0, &name.1).is_none() {
                        self.put(Kind::Pod, pod.clone(), network);
                    }
                    self.pods.insert(name.1, Some(pod));
                }
            }
            Form::Job => self.put(Kind::Job, objects::batch_job(job, spec, &self.settings), network),
        }
    }

    fn drop_job(&mut self, name: &str, network: &mut Network) {
        let prefix = objects::pod_prefix(name);
        let pods: Vec<String> = self.pods.keys().filter(|p| p.starts_with(&prefix)).cloned().collect();
        for pod in pods {
            self.pods.remove(&pod);
            self.dropped.insert(name.to_owned());
            let (now, uid) = (network.now(), String::new());
            let request = Request::Delete { kind: Kind::Pod, name: key(&pod), uid, grace: None };
            let _ = network.api.handle(request, now);
        }
        for kind in [Kind::Job, Kind::Workload] {
            self.delete(kind, key(name), network);
        }
    }

    fn prioritize(&self, name: &str, priority: i32, network: &mut Network) {
        let label = json!({"kueue.x-k8s.io/priority-class": objects::class_of(priority)});
        self.patch(Kind::Job, key(name), false, json!({"metadata": {"labels": label}}), network);
        self.patch(Kind::Workload, key(name), false, json!({"spec": {"priority": priority}}), network);
    }

    /// Quota that comes back with `active` would be given twice: users wait until it is released, and until every write of
    /// an admission that was decided before has arrived.
    fn activate(&self, name: &str, active: bool, network: &mut Network) {
        let workload = workload_of(name, network).filter(|w| !active || self.is_idle(w, network.now()));
        if let Some(workload) = workload {
            let name = name_of(&workload);
            self.patch(Kind::Workload, name, false, json!({"spec": {"active": active}}), network);
        }
    }

    fn is_idle(&self, workload: &Value, now: Time) -> bool {
        self.idle.get(&name_of(workload)).is_some_and(|since| now.since(*since) >= IDLE)
    }

    fn change_queue(&self, name: &str, queue: usize, network: &mut Network) {
        // The queue of pods does not change.
        let prefix = objects::pod_prefix(name);
        let workload =
            workload_of(name, network).filter(|_| !self.pods.keys().any(|p| p.starts_with(&prefix)));
        if workload.is_some_and(|w| !reserved(&w) && size(&w) <= SMALL) {
            let queue = format!("l{queue}");
            let label = json!({"kueue.x-k8s.io/queue-name": queue});
            self.patch(Kind::Job, key(name), false, json!({"metadata": {"labels": label}}), network);
            self.patch(Kind::Workload, key(name), false, json!({"spec": {"queueName": queue}}), network);
        }
    }

    fn reclaim(&self, name: &str, network: &mut Network) {
        let Some(workload) = network.api.get(Kind::Workload, NAMESPACE, name) else { return };
        let count =
            list(workload, &["spec", "podSets"]).first().map_or(0, |p| p["count"].as_i64().unwrap_or(1));
        let done = list(workload, &["status", "reclaimablePods"])
            .first()
            .map_or(0, |r| r["count"].as_i64().unwrap_or(0));
        if self.running.contains_key(name) && done < count {
            let rows = json!([{"name": "main", "count": done + 1}]);
            self.patch(
                Kind::Workload,
                key(name),
                true,
                json!({"status": {"reclaimablePods": rows}}),
                network,
            );
        }
    }

    /// Something has changed: jobs start and stop, and the check's controller is asked.
    pub fn changed(&mut self, kind: Kind, change: &Change, runs: bool, network: &mut Network) {
        let name = name_of(&change.object).1;
        if kind == Kind::Pod {
            return self.pod_changed(&name, change, network);
        }
        if kind != Kind::Workload {
            return;
        }
        if change.deleted || change.object["spec"]["active"] != false || reserved(&change.object) {
            self.idle.remove(&name_of(&change.object));
        } else {
            self.idle.entry(name_of(&change.object)).or_insert(network.now());
        }
        let runs = runs && is_own(&change.object);
        if change.deleted || !runs {
            self.running.remove(&name);
        } else if !self.running.contains_key(&name) {
            self.rounds += 1;
            self.running.insert(name.clone(), self.rounds);
            let span = self.runs.get(&name).copied().unwrap_or_default();
            network.agenda.after(span, Event::Finish(name.clone(), self.rounds));
        }
        if !change.deleted && asks(&change.object) && self.asked.insert(name.clone()) {
            let mut rng = self.dice.about(&name).of(self.answered).rng();
            network.agenda.after(Duration::from_millis(rng.range(5, 500)), Event::Check(name));
        }
    }

    /// A pod that ended without success, or that something deleted, is made again.
    fn pod_changed(&mut self, name: &str, change: &Change, network: &mut Network) {
        let Some(wanted) = self.pods.get_mut(name) else { return };
        match text(&change.object, &["status", "phase"]) {
            "Succeeded" => *wanted = None,
            "Failed" => {
                if let Some(mut pod) = wanted.take() {
                    let next = format!("{name}r");
                    pod["metadata"]["name"] = json!(next);
                    self.put(Kind::Pod, pod.clone(), network);
                    self.pods.insert(next, Some(pod));
                }
            }
            _ if change.deleted => {
                if let Some(pod) = wanted.clone() {
                    self.put(Kind::Pod, pod, network);
                }
            }
            _ => {}
        }
    }

    /// A job ends, unless it was stopped.
    pub fn finish(&mut self, name: &str, round: u32, network: &mut Network) {
        if self.running.get(name) != Some(&round) {
            return;
        }
        self.running.remove(name);
        let finished = json!({"type": "Finished", "status": "True", "reason": "Succeeded", "message": "",
            "lastTransitionTime": stamp(network.now())});
        self.patch(Kind::Workload, key(name), true, json!({"status": {"conditions": [finished]}}), network);
    }

    /// The check's controller answers.
    pub fn check(&mut self, name: &str, network: &mut Network) {
        self.asked.remove(name);
        self.answered += 1;
        let Some(workload) = network.api.get(Kind::Workload, NAMESPACE, name).filter(|w| asks(w)) else {
            return;
        };
        let mut rng = self.dice.about(name).of(self.answered).rng();
        let mut rows = list(workload, &["status", "admissionChecks"]).to_vec();
        for row in rows.iter_mut().filter(|r| r["state"] == "Pending") {
            let state = if rng.chance(self.answers.0) {
                row["requeueAfterSeconds"] = json!(5);
                "Retry"
            } else if rng.chance(self.answers.1) {
                "Rejected"
            } else {
                "Ready"
            };
            row["state"] = json!(state);
            row["lastTransitionTime"] = stamp(network.now());
        }
        self.patch(Kind::Workload, key(name), true, json!({"status": {"admissionChecks": rows}}), network);
    }

    /// Users look at what they have, after the faults: what a finalizer kept from being made anew, and what was
    /// deactivated.
    pub fn look(&self, network: &mut Network) {
        self.reactivate(network);
        for group in &self.dropped {
            self.delete(Kind::Workload, key(group), network);
        }
        for flavor in 0..objects::FLAVORS.len() {
            self.put_missing(Kind::Flavor, objects::flavor(flavor, &self.settings), network);
        }
        for (i, queue) in self.queues.iter().enumerate() {
            if let Some(spec) = &queue.spec {
                self.put_missing(Kind::ClusterQueue, objects::cluster_queue(i, spec, queue.stop), network);
            }
        }
    }

    fn put_missing(&self, kind: Kind, object: Value, network: &mut Network) {
        let name = name_of(&object);
        if network.api.get(kind, &name.0, &name.1).is_none() {
            self.put(kind, object, network);
        }
    }

    /// Users activate what was deactivated, once its quota is released.
    fn reactivate(&self, network: &mut Network) {
        let now = network.now();
        let idle = |w: &&Arc<Value>| w["spec"]["active"] == false && self.is_idle(w, now);
        let names: Vec<Name> = network.api.all(Kind::Workload).filter(idle).map(|w| name_of(w)).collect();
        for name in names {
            self.patch(Kind::Workload, name, false, json!({"spec": {"active": true}}), network);
        }
    }

    /// Workloads and Jobs that have to run in the end and have not.
    pub fn unfinished(&self, network: &Network) -> Vec<Arc<Value>> {
        let left = |w: &&Arc<Value>| {
            !is_true(w, "Finished") && self.must_run(text(w, &["spec", "queueName"]), size(w))
        };
        let workloads = network.api.all(Kind::Workload).filter(left);
        let open = |j: &&Arc<Value>| {
            !is_true(j, "Complete")
                && self.must_run(text(j, &["metadata", "labels", "kueue.x-k8s.io/queue-name"]), job_size(j))
        };
        let pods = self.pods.iter().filter(|(name, pod)| {
            let prefix = name.split_once("-p").map_or(name.as_str(), |(job, _)| job);
            let all =
                self.pods.keys().filter(|n| n.split_once("-p").is_some_and(|(job, _)| job == prefix)).count();
            pod.as_ref().is_some_and(|p| {
                let size = pod_size(p) * i64::try_from(all).unwrap_or(i64::MAX);
                self.must_run(text(p, &["metadata", "labels", "kueue.x-k8s.io/queue-name"]), size)
            })
        });
        let pods = pods.filter_map(|(_, pod)| pod.clone()).map(Arc::new);
        workloads.chain(network.api.all(Kind::Job).filter(open)).cloned().chain(pods).collect()
    }

    /// Whether what asks for so many CPUs in this LocalQueue has to run in the end: its queue's own quota is enough as
    /// planned, and it is small enough for the nodes.
    fn must_run(&self, local_queue: &str, size: i64) -> bool {
        let number = local_queue.strip_prefix('l').and_then(|n| n.parse::<usize>().ok());
        let queue = number.and_then(|n| self.plan.queues.get(n));
        queue.is_some_and(|q| size <= SMALL.min(q.quota.quotas[0].nominal))
    }

    /// How long all jobs run, one after the other.
    pub fn longest(&self) -> Duration {
        Duration(self.runs.values().map(|d| d.0).sum())
    }
}

/// The start of every run.
pub const START: Time = Time::from_seconds(1_700_000_000);
