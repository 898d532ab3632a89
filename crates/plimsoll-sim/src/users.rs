//! All clients outside of Plimsoll: users, administrators, machines, the admission check's controller, and what runs the
//! workloads whose jobs are no part of the cluster. They see the API as it is and never fail.

mod admin;
pub mod autoscaler;
mod devices;
mod hopes;
mod pods;
mod reading;
mod shards;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_api::kueue::variants;
use plimsoll_state::{Duration, Time};
use serde_json::{Map, Value, json};

use crate::agenda::Event;
use crate::api::{Change, Kind, Name, Request, Style, is_true, list, name_of, stamp, text};
use crate::dice::{Dice, Draw};
use crate::network::Network;
use crate::scenario::extensions::is_elastic;
use crate::scenario::objects::{self, NAMESPACE, job_name};
use crate::scenario::{Form, JobSpec, Operation, Plan, QueueSpec, Settings, Stop};
use pods::Pods;
use reading::{
    asked_to_shrink, asks, is_own, job_asked_to_shrink, job_size, owning_job, reserved, workload_of,
};
pub use reading::{pod_size, size};

/// CPUs of the largest workload that has to run in the end, whatever its queue.
const SMALL: i64 = 4;

/// How long a workload is inactive and without quota before its user activates it again.
const IDLE: Duration = Duration::from_seconds(30);

/// What runs take longer where windows open every few minutes.
const WINDOWS: Duration = Duration::from_seconds(3_600);

/// A queue as administrators have it now.
#[derive(Clone, Debug)]
struct Queue {
    spec: Option<QueueSpec>,
    stop: Stop,
    /// The LocalQueue, if there is one.
    local: Option<Stop>,
}

/// All clients outside of Plimsoll.
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
    /// Plain pods.
    pods: Pods,
    /// What the ClusterQueues' selectors find in the namespace; `None`: it is deleted.
    namespace: Option<bool>,
    /// Workloads that are inactive and hold no quota, and since when.
    idle: BTreeMap<Name, Time>,
    /// Whether the check is active; `None`: it is deleted.
    check: Option<bool>,
    /// Which shared claims and templates there are to be.
    claims: devices::Wanted,
    /// Generation of the newest ResourceSlice.
    generation: u64,
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
    /// All of them, before anything is there.
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
            pods: Pods::default(),
            namespace: Some(true),
            idle: BTreeMap::new(),
            check: Some(true),
            claims: devices::Wanted::default(),
            generation: 0,
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
        self.check = Some(true);
        self.namespace = Some(true);
        self.claims = devices::Wanted::default();
    }

    /// Creates an object, or makes spec and status of one that is there what they are in `object`.
    fn put(&self, kind: Kind, object: Value, network: &mut Network) {
        let name = name_of(&object);
        let now = network.now();
        let Some(old) = network.api.get(kind, &name.0, &name.1) else {
            let object = if self.settings.shards { shards::labelled(kind, object) } else { object };
            let _ = network.api.handle(Request::Create(kind, object), now);
            return;
        };
        let old = Arc::clone(old);
        let (value, labels) = (&object["value"], &object["metadata"]["labels"]);
        if !value.is_null() {
            self.patch(kind, name.clone(), false, json!({ "value": value }), network);
        }
        if labels.is_object() {
            self.patch(kind, name.clone(), false, json!({"metadata": {"labels": labels}}), network);
        }
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

    fn delete_gracefully(&self, kind: Kind, name: Name, network: &mut Network) {
        let now = network.now();
        let _ = network.api.handle(Request::Delete { kind, name, uid: String::new(), grace: None }, now);
    }

    fn put_or_delete(&self, kind: Kind, name: Name, object: Option<Value>, network: &mut Network) {
        match object {
            Some(object) => self.put(kind, object, network),
            None => self.delete(kind, name, network),
        }
    }

    /// Does what an operation says, as far as it is for users.
    pub fn apply(&mut self, operation: &Operation, network: &mut Network) {
        match operation {
            // Nothing can be created in a namespace that is deleted.
            Operation::Submit { .. } if self.namespace.is_none() || self.is_terminating(network) => {}
            Operation::Submit { job, spec } => self.submit(*job, spec, network),
            Operation::Delete { job } => self.drop_job(&job_name(*job), network),
            Operation::Activate { job, active } => self.activate(&job_name(*job), *active, network),
            Operation::Prioritize { job, priority } => self.prioritize(&job_name(*job), *priority, network),
            Operation::Move { job, queue } => self.change_queue(&job_name(*job), *queue, network),
            Operation::Reclaim { job } => self.reclaim(&job_name(*job), network),
            Operation::Scale { job, pods } => self.scale(&job_name(*job), *pods, network),
            other => self.administer(other, network),
        }
    }

    fn submit(&mut self, job: usize, spec: &JobSpec, network: &mut Network) {
        let name = job_name(job);
        self.drop_job(&name, network);
        // The pods of an elastic Job may run one after the other.
        let times = if spec.elastic { 2 * i64::from(spec.pods) } else { 1 };
        self.runs.insert(name, Duration::from_millis(spec.runs * times));
        match spec.form {
            Form::Workload => self.put(Kind::Workload, objects::workload(job, spec, &self.settings), network),
            Form::Pods | Form::Unmanaged => self.submit_pods(job, spec, network),
            Form::Job => self.put(Kind::Job, objects::batch_job(job, spec, &self.settings), network),
        }
    }

    fn drop_job(&mut self, name: &str, network: &mut Network) {
        self.drop_pods(name, network);
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
        let workload = workload_of(name, network).filter(|_| !self.pods.are_of(name));
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

    fn scale(&self, name: &str, pods: i32, network: &mut Network) {
        let job = network.api.get(Kind::Job, NAMESPACE, name).filter(|j| is_elastic(j));
        if job.is_some_and(|j| !is_true(j, "Complete")) {
            let most = job_asked_to_shrink(name, network);
            let pods = most.map_or(i64::from(pods), |most| most.min(i64::from(pods)));
            self.patch(Kind::Job, key(name), false, json!({"spec": {"parallelism": pods}}), network);
        }
    }

    /// Something has changed: jobs start and stop, and the check's controller is asked.
    pub fn changed(&mut self, kind: Kind, change: &Change, runs: bool, network: &mut Network) {
        let name = name_of(&change.object).1;
        if change.deleted && matches!(kind, Kind::Pod | Kind::Workload) {
            self.make_waiting(network);
        }
        if kind == Kind::Pod {
            return self.pod_changed(&name, change, network);
        }
        if kind == Kind::ProvisioningRequest && !change.deleted {
            self.requested(&change.object, network);
        }
        if kind != Kind::Workload {
            return;
        }
        // Users know nothing of variants.
        let variant = variants::parent(&change.object["metadata"]).is_some();
        if variant || change.deleted || change.object["spec"]["active"] != false || reserved(&change.object) {
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
        if !change.deleted && asked_to_shrink(&change.object).is_some() {
            let mut rng = self.dice.about(&name).of(self.answered).rng();
            network.agenda.after(Duration::from_millis(rng.range(5, 3_000)), Event::Shrink(name.clone()));
        }
        // The controller of the other check is Plimsoll.
        if !self.settings.provisioning
            && !change.deleted
            && asks(&change.object)
            && self.asked.insert(name.clone())
        {
            let mut rng = self.dice.about(&name).of(self.answered).rng();
            network.agenda.after(Duration::from_millis(rng.range(5, 500)), Event::Check(name));
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

    /// Other controllers have done what they were asked for.
    pub fn respond(&mut self, event: &Event, network: &mut Network) {
        match event {
            Event::Check(name) => self.check(name, network),
            Event::Shrink(name) => self.shrink(name, network),
            Event::Provide(name) => self.provide(name, network),
            _ => {}
        }
    }

    /// The runtime of a job that was asked to shrink has let pods go.
    fn shrink(&self, name: &str, network: &mut Network) {
        let Some(workload) = network.api.get(Kind::Workload, NAMESPACE, name) else { return };
        if let Some(job) = owning_job(workload) {
            let Some(target) = job_asked_to_shrink(job, network) else { return };
            let job = key(job);
            let asks_for =
                network.api.get(Kind::Job, &job.0, &job.1).map(|j| j["spec"]["parallelism"].as_i64());
            if asks_for.flatten().is_some_and(|pods| pods > target) {
                self.patch(Kind::Job, job, false, json!({"spec": {"parallelism": target}}), network);
            }
        } else if let Some(target) = asked_to_shrink(workload) {
            let mut podsets = list(workload, &["spec", "podSets"]).to_vec();
            podsets.iter_mut().for_each(|p| p["count"] = json!(target));
            self.patch(Kind::Workload, key(name), false, json!({"spec": {"podSets": podsets}}), network);
        }
    }

    /// The check's controller answers.
    fn check(&mut self, name: &str, network: &mut Network) {
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
    pub fn look(&mut self, network: &mut Network) {
        self.reactivate(network);
        self.delete_dropped(network);
        self.drop_reserved(network);
        self.complete(network);
        self.return_nodes(network);
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
            !is_true(w, "Finished")
                && self.must_run(text(w, &["spec", "queueName"]), size(w))
                && self.may_start(w, network)
        };
        let workloads = network.api.all(Kind::Workload).filter(left);
        let open = |j: &&Arc<Value>| {
            !is_true(j, "Complete")
                && self.must_run(text(j, &["metadata", "labels", "kueue.x-k8s.io/queue-name"]), job_size(j))
                && self.may_start(j, network)
        };
        let pods = self.pods.unfinished().filter(|(pod, size)| {
            let queue = text(pod, &["metadata", "labels", "kueue.x-k8s.io/queue-name"]);
            if queue.is_empty() {
                return self.plan.nodes.iter().any(|node| pod_size(pod) <= node.cpus);
            }
            self.must_run(queue, *size) && self.may_start(pod, network)
        });
        let pods = pods.map(|(pod, _)| Arc::new(pod.clone())).chain(self.open_ends(network));
        workloads.chain(network.api.all(Kind::Job).filter(open)).cloned().chain(pods).collect()
    }

    /// Whether what asks for so many CPUs in this LocalQueue has to run in the end: its queue's own quota is enough as
    /// planned, and it is small enough for the nodes.
    fn must_run(&self, local_queue: &str, size: i64) -> bool {
        let number = local_queue.strip_prefix('l').and_then(|n| n.parse::<usize>().ok());
        let queue = number.and_then(|n| self.plan.queues.get(n));
        if self.settings.gangs {
            return queue.is_some();
        }
        queue.is_some_and(|q| size <= SMALL.min(q.quota.quotas[0].nominal))
    }

    /// How long all jobs run, one after the other.
    pub fn longest(&self) -> Duration {
        let total = Duration(self.runs.values().map(|d| d.0).sum());
        if self.plan.windows.is_empty() {
            return total;
        }
        // Windows are open for a part of the time, and nothing starts shortly before they close.
        Duration(total.0.saturating_mul(6).saturating_add(WINDOWS.0))
    }
}

/// The start of every run.
pub const START: Time = Time::from_seconds(1_700_000_000);
