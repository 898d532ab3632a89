//! Elastic jobs with the engine and the reconcile, step by step: names, annotations, events and numbers of pods, where every
//! write works and every watch is up to date. The simulator (`plimsoll-sim`) scales jobs while anything fails.

use std::collections::BTreeMap;

use plimsoll_api::{json, timestamp};
use plimsoll_engine::{Action, Engine, EngineConfig, Event as CoreEvent};
use plimsoll_queueing::Event;
use plimsoll_state::Time;
use plimsoll_state::model::{LabelSelector, StringMap};
use plimsoll_state::time::Duration;
use serde_json::{Value, json};

use crate::config::BATCH_JOB;
use crate::testing::Fixture;
use crate::webhook::{self, Operation, Review};
use crate::{Config, Key, Kind, Write, names, pod_view, reconcile};

const START: i64 = 1_700_000_000;
type Name = (Kind, String);

fn merge(doc: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return *doc = patch.clone() };
    if !doc.is_object() {
        *doc = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            json::remove(doc, &[key]);
        } else {
            let mut inner = doc[key.as_str()].take();
            merge(&mut inner, value);
            json::set(doc, &[key], inner);
        }
    }
}

/// Objects, the cache that follows them, and the engine.
struct Harness {
    server: BTreeMap<Name, Value>,
    version: u64,
    made: u64,
    /// What the cache has not seen yet.
    unseen: Vec<(Name, Option<Value>)>,
    cache: Fixture,
    engine: Engine,
    now: Time,
    quota: i64,
    /// Whether the ClusterQueue is `StrictFIFO`.
    strict: bool,
    notes: Vec<String>,
}

mod partial;
mod shrink;

impl Harness {
    fn new(quota: i64) -> Self {
        Self::with(quota, false)
    }

    fn with(quota: i64, partial_scale_up: bool) -> Self {
        Self::with_gates(quota, partial_scale_up, false)
    }

    fn with_gates(quota: i64, partial_scale_up: bool, partial_preemption: bool) -> Self {
        let mut w = Self {
            server: BTreeMap::new(),
            version: 10,
            made: 0,
            unseen: Vec::new(),
            cache: Fixture::default(),
            engine: Self::engine(quota, partial_scale_up, partial_preemption),
            now: Time::from_seconds(START),
            quota,
            strict: false,
            notes: Vec::new(),
        };
        w.cache = Fixture::with_config(Config {
            wait_for_pods_ready: true,
            partial_scale_up,
            partial_preemption,
            ..Config::default()
        });
        w.cache.put(Kind::Flavor, json!({"metadata": {"name": "f"}, "spec": {"nodeLabels": {"zone": "a"}}}));
        w
    }

    fn engine(quota: i64, partial_scale_up: bool, partial_preemption: bool) -> Engine {
        let gates = plimsoll_queueing::Gates { partial_scale_up, partial_preemption, ..Default::default() };
        let queueing = plimsoll_queueing::Config { gates, ..Default::default() };
        let mut engine =
            Engine::new(EngineConfig { scheduler: None, queueing: Some(queueing), joint: false });
        let lq = json!({"metadata": {"namespace": "ns", "name": "q"}, "spec": {"clusterQueue": "cq"}});
        let mut batch: Vec<CoreEvent> = [
            Event::NamespaceUpsert("ns".into(), StringMap::new()),
            Event::ResourceFlavorUpsert(Box::new(plimsoll_queueing::ResourceFlavor {
                name: "f".into(),
                ..Default::default()
            })),
            Event::ClusterQueueUpsert(Box::new(Self::cluster_queue(quota, false))),
            Event::LocalQueueUpsert(Box::new(plimsoll_api::kueue::local_queue(&lq).unwrap())),
        ]
        .into_iter()
        .map(CoreEvent::Queueing)
        .collect();
        engine.step(Time::from_seconds(START), &mut batch, &mut Vec::new());
        engine
    }

    fn cluster_queue(quota: i64, strict: bool) -> plimsoll_queueing::ClusterQueue {
        let strategy = if strict { "StrictFIFO" } else { "BestEffortFIFO" };
        let spec = json!({"namespaceSelector": {}, "queueingStrategy": strategy, "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                {"name": "f", "resources": [{"name": "cpu", "nominalQuota": quota}]}]}]});
        let object = json!({"metadata": {"name": "cq"}, "spec": spec});
        let mut cq = plimsoll_api::kueue::cluster_queue(&object).unwrap();
        cq.namespace_selector = Some(LabelSelector::default());
        cq
    }

    /// The quota becomes another one.
    fn set_quota(&mut self, quota: i64) {
        self.quota = quota;
        let event = Event::ClusterQueueUpsert(Box::new(Self::cluster_queue(quota, self.strict)));
        let mut actions = Vec::new();
        self.engine.step(self.now, &mut vec![CoreEvent::Queueing(event)], &mut actions);
        self.act(actions);
    }

    /// The LocalQueue is created anew, of a second ClusterQueue with the same quota.
    fn move_queue(&mut self) {
        let mut other = Self::cluster_queue(self.quota, self.strict);
        other.name = "other".into();
        let lq = json!({"metadata": {"namespace": "ns", "name": "q"}, "spec": {"clusterQueue": "other"}});
        let mut batch = vec![
            CoreEvent::Queueing(Event::LocalQueueDelete("ns".into(), "q".into())),
            CoreEvent::Queueing(Event::ClusterQueueUpsert(Box::new(other))),
            CoreEvent::Queueing(Event::LocalQueueUpsert(Box::new(
                plimsoll_api::kueue::local_queue(&lq).unwrap(),
            ))),
        ];
        let mut actions = Vec::new();
        self.engine.step(self.now, &mut batch, &mut actions);
        self.act(actions);
    }

    /// The watches show all changes.
    fn show(&mut self) {
        let mut batch: Vec<CoreEvent> = Vec::new();
        for ((kind, name), object) in self.unseen.drain(..) {
            let event = match object {
                Some(object) => {
                    let event = plimsoll_api::kueue::upsert_event(&object).unwrap();
                    self.cache.put(kind, object);
                    event
                }
                None => {
                    self.cache.remove(kind, "ns", &name, "");
                    plimsoll_api::kueue::delete_event("Workload", "ns", &name)
                }
            };
            batch.extend(event.filter(|_| kind == Kind::Workload).map(CoreEvent::Queueing));
        }
        let mut actions = Vec::new();
        self.engine.step(self.now, &mut batch, &mut actions);
        self.engine.check();
        self.act(actions);
    }

    fn store(&mut self, kind: Kind, mut object: Value) -> Value {
        self.version += 1;
        json::set(&mut object, &["metadata", "resourceVersion"], json!(self.version.to_string()));
        let name = (kind, json::name(&object).to_owned());
        let gone = json::deleting(&object) && json::list(&object, &["metadata", "finalizers"]).is_empty();
        if gone {
            self.server.remove(&name);
            self.unseen.push((name, None));
        } else {
            self.server.insert(name.clone(), object.clone());
            self.unseen.push((name, Some(object.clone())));
        }
        object
    }

    fn create(&mut self, kind: Kind, mut object: Value) -> Result<Value, String> {
        if self.server.contains_key(&(kind, json::name(&object).to_owned())) {
            return Err(format!("{} exists already", json::name(&object)));
        }
        self.made += 1;
        json::set(&mut object, &["metadata", "uid"], json!(format!("uid-{}", self.made)));
        json::set(&mut object, &["metadata", "generation"], json!(1));
        json::set(&mut object, &["metadata", "creationTimestamp"], json!(timestamp::text(self.now)));
        Ok(self.store(kind, object))
    }

    fn delete(&mut self, kind: Kind, name: &str, now: bool) {
        let Some(object) = self.server.get(&(kind, name.to_owned())) else { return };
        let mut object = object.clone();
        if now {
            json::set(&mut object, &["metadata", "finalizers"], json!([]));
        }
        json::set(&mut object, &["metadata", "deletionTimestamp"], json!(timestamp::text(self.now)));
        self.store(kind, object);
    }

    fn patch(&mut self, kind: Kind, name: &str, body: &Value) -> Result<Value, String> {
        let Some(old) = self.server.get(&(kind, name.to_owned())).cloned() else { return Err("gone".into()) };
        let wanted = json::text(body, &["metadata", "resourceVersion"]);
        if !wanted.is_empty() && wanted != json::version(&old) {
            return Err("conflict".into());
        }
        let mut new = old.clone();
        merge(&mut new, body);
        if new["spec"] != old["spec"] {
            let generation = json::int(&old, &["metadata", "generation"]).unwrap_or(0) + 1;
            json::set(&mut new, &["metadata", "generation"], json!(generation));
        }
        let (group, plural) =
            if kind == Kind::Job { ("batch", "jobs") } else { ("kueue.x-k8s.io", "workloads") };
        if kind != Kind::Pod {
            let review =
                Review { group, plural, operation: Operation::Update, namespace: "ns", old: Some(&old) };
            if let Err(e) = webhook::validate(&review, &new, self.cache.env(self.now)) {
                panic!("{e}: {body}");
            }
        }
        Ok(self.store(kind, new))
    }

    /// Carries out what the engine asks for, in order, as writes of one workload are.
    fn act(&mut self, actions: Vec<Action>) {
        let mut todo = std::collections::VecDeque::from(actions);
        while let Some(action) = todo.pop_front() {
            let Action::Queueing(plimsoll_queueing::Action::UpdateWorkload(u)) = action else { continue };
            let (key, id) = (u.key.clone(), u.id);
            let mut result = Err("no".to_owned());
            if let Some(object) = self.server.get(&(Kind::Workload, key.name.clone()))
                && json::uid(object) == u.uid
            {
                let status = plimsoll_api::kueue::workload_status_patch(object, &u);
                result = self.patch(Kind::Workload, &key.name, &json!({ "status": status }));
                self.notes
                    .extend(u.events.iter().map(|n| format!("{} {}: {}", key.name, n.reason, n.message)));
            }
            let event = match result {
                Ok(object) => {
                    let version = json::version(&object).parse().unwrap();
                    let event = Event::Written { key, id, version };
                    self.cache.refresh(Kind::Workload, object);
                    event
                }
                Err(_) => Event::WriteFailed { key, id, message: "no".into() },
            };
            let mut more = Vec::new();
            self.engine.step(self.now, &mut vec![CoreEvent::Queueing(event)], &mut more);
            self.engine.check();
            self.audit();
            todo.extend(more);
        }
    }

    /// Reconciles a job once; whether something was written.
    fn reconcile(&mut self, name: &str) -> bool {
        let writes = reconcile(&Key::job(BATCH_JOB, "ns", name), self.cache.env(self.now));
        let any = !writes.is_empty();
        for write in writes {
            let kind = |r: plimsoll_api::resource::Resource| match r.kind {
                "Job" => Kind::Job,
                "Pod" => Kind::Pod,
                _ => Kind::Workload,
            };
            let done = match write {
                Write::Create(r, object) => self.create(kind(r), object).map(|made| Some((kind(r), made))),
                Write::Patch { resource, name, body, .. } => {
                    self.patch(kind(resource), &name, &body).map(|made| Some((kind(resource), made)))
                }
                Write::Delete { resource, name, .. } => {
                    self.delete(kind(resource), &name, false);
                    Ok(None)
                }
                Write::WorkloadStopped { namespace, name, ended: _ } => {
                    let key = plimsoll_queueing::WorkloadKey { namespace, name };
                    let mut actions = Vec::new();
                    let mut batch = vec![CoreEvent::Queueing(Event::WorkloadStopped(key))];
                    self.engine.step(self.now, &mut batch, &mut actions);
                    self.act(actions);
                    Ok(None)
                }
                Write::Event(n) => {
                    self.notes.push(format!("{}: {}", n.reason, n.message));
                    Ok(None)
                }
                Write::IfGone { resource, name, .. } => {
                    let found = self.server.contains_key(&(kind(resource), name));
                    if found { Err("there".to_owned()) } else { Ok(None) }
                }
                Write::IfUnchanged { .. } | Write::RequeueAfter(_) | Write::CreateForCheck(_) => Ok(None),
            };
            self.audit();
            match done {
                Ok(Some((kind, object))) if !json::deleting(&object) => self.cache.put(kind, object),
                Ok(_) => {}
                Err(_) => return true,
            }
        }
        any
    }

    fn pods(&self, job: &str) -> Vec<Value> {
        let mine = |p: &&Value| json::controller(p).is_some_and(|o| o["name"] == job);
        let pods = self.server.iter().filter(|((k, _), _)| *k == Kind::Pod).map(|(_, p)| p);
        pods.filter(mine).cloned().collect()
    }

    /// The Job controller: as many pods as parallelism says, none while suspended. Pods take a while to go.
    fn control(&mut self, name: &str) {
        let Some(job) = self.server.get(&(Kind::Job, name.to_owned())).cloned() else { return };
        let over = json::is_true(&job, "Complete");
        let wanted = if over || json::flag(&job, &["spec", "suspend"]) {
            0
        } else {
            json::int(&job, &["spec", "parallelism"]).unwrap()
        };
        let pods = self.pods(name);
        let done = i64::try_from(pods.iter().filter(|p| pod_view::ended(p)).count()).unwrap();
        let left = json::int(&job, &["spec", "completions"]).map_or(wanted, |n| n - done);
        let wanted = wanted.min(left).max(0);
        let going = |p: &&Value| !json::deleting(p) && !pod_view::ended(p);
        let mut active: Vec<&Value> = pods.iter().filter(going).collect();
        // Those that wait go first.
        active.sort_by_key(|p| super::gated(p));
        for pod in active.iter().skip(usize::try_from(wanted).unwrap()) {
            self.delete(Kind::Pod, json::name(pod), false);
        }
        for _ in active.len()..usize::try_from(wanted).unwrap() {
            let mut pod = job["spec"]["template"].clone();
            let name = format!("{name}-{}", self.made);
            json::set(&mut pod, &["metadata", "name"], json!(name));
            json::set(&mut pod, &["metadata", "namespace"], json!("ns"));
            json::set(&mut pod, &["metadata", "finalizers"], json!(["kubelet"]));
            let owner = json!([{"kind": "Job", "apiVersion": "batch/v1", "name": json::name(&job), "uid": json::uid(&job), "controller": true}]);
            json::set(&mut pod, &["metadata", "ownerReferences"], owner);
            self.create(Kind::Pod, pod).unwrap();
        }
        let status = json!({"active": wanted, "ready": wanted, "succeeded": done});
        if ["active", "ready", "succeeded"].iter().any(|f| job["status"][f] != status[f]) {
            self.patch(Kind::Job, name, &json!({ "status": status })).unwrap();
        }
    }

    /// Pods that are being deleted go.
    fn kubelet(&mut self) {
        let all = self.server.iter().filter(|((k, _), o)| *k == Kind::Pod && json::deleting(o));
        let names: Vec<String> = all.map(|((_, n), _)| n.clone()).collect();
        names.iter().for_each(|n| self.delete(Kind::Pod, n, true));
    }

    fn running(&self, job: &str) -> i64 {
        let runs = |p: &&Value| !super::gated(p) && !pod_view::ended(p);
        i64::try_from(self.pods(job).iter().filter(runs).count()).unwrap()
    }

    fn workloads(&self, job: &str) -> Vec<&Value> {
        let all = self.server.iter().filter(|((k, _), _)| *k == Kind::Workload).map(|(_, w)| w);
        all.filter(|w| json::controller(w).is_some_and(|o| o["name"] == job)).collect()
    }

    fn charged(&self) -> i64 {
        let tree = self.engine.queueing().unwrap().quota_tree();
        tree.iter().flat_map(|n| &n.cells).map(|c| c.usage).sum::<i64>() / 1000
    }

    /// What runs has quota: by the objects of every job, and in the engine's books.
    fn audit(&self) {
        let mut sum = 0;
        for job in ["a", "b"] {
            let runs = self.running(job);
            let holds = |w: &&&Value| super::reserved(w) && !json::is_true(w, "Finished");
            let most = self.workloads(job).iter().filter(holds).map(|w| super::granted(w)["main"]).max();
            assert!(runs <= most.unwrap_or(0), "{job}: {runs} run, {most:?} reserved: {:?}", self.notes);
            sum += runs;
        }
        let charged = self.charged();
        assert!(sum <= charged && charged <= self.quota, "{sum} run, {charged} charged of {}", self.quota);
    }

    /// A round in which no terminating pod goes.
    fn round_without_kubelet(&mut self) {
        self.show();
        self.engine_alone();
        for job in ["a", "b"] {
            self.reconcile(job);
            self.control(job);
            self.audit();
        }
    }

    fn round(&mut self) {
        self.round_without_kubelet();
        self.kubelet();
        self.audit();
        self.now = self.now.plus(Duration::from_seconds(1));
    }

    fn engine_alone(&mut self) {
        let mut actions = Vec::new();
        self.engine.step(self.now, &mut Vec::new(), &mut actions);
        self.engine.check();
        self.act(actions);
    }

    /// Rounds until nothing changes.
    fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..600 {
            let before = self.version;
            self.round();
            quiet = if self.version == before && self.unseen.is_empty() { quiet + 1 } else { 0 };
            if quiet > 70 {
                return;
            }
        }
        panic!("never comes to rest: {:#?}", self.notes.iter().rev().take(30).collect::<Vec<_>>());
    }

    fn job(&mut self, name: &str, pods: i64) {
        let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": "ns", "name": name,
            "labels": {names::QUEUE: "q"}, "annotations": {names::ELASTIC: "true"}},
            "spec": {"parallelism": pods, "template": {"metadata": {"labels": {"own": "x"}}, "spec": {
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}}});
        let review = Review {
            group: "batch",
            plural: "jobs",
            operation: Operation::Create,
            namespace: "ns",
            old: None,
        };
        webhook::mutate(&review, &mut job, self.cache.env(self.now));
        webhook::validate(&review, &job, self.cache.env(self.now)).unwrap();
        assert_eq!(job["spec"]["suspend"], true);
        assert_eq!(
            job["spec"]["template"]["spec"]["schedulingGates"],
            json!([{"name": names::ELASTIC_GATE}])
        );
        self.create(Kind::Job, job).unwrap();
    }

    fn scale(&mut self, name: &str, pods: i64) {
        if self.server.contains_key(&(Kind::Job, name.to_owned())) {
            self.patch(Kind::Job, name, &json!({"spec": {"parallelism": pods}})).unwrap();
        }
    }

    fn push(&mut self, name: &str, priority: i64, cpus: i64) {
        let wl = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"namespace": "ns", "name": name},
            "spec": {"queueName": "q", "priority": priority, "active": true, "podSets": [{"name": "main", "count": 1,
                "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpus.to_string()}}}]}}}]}});
        let _ = self.create(Kind::Workload, wl);
    }

    /// The job completes, and its pods are gone.
    fn finish(&mut self, name: &str) {
        let done = json!([{"type": "Complete", "status": "True", "message": "done"}]);
        self.patch(Kind::Job, name, &json!({"status": {"conditions": done}})).unwrap();
        for pod in self.pods(name) {
            self.delete(Kind::Pod, json::name(&pod), true);
        }
    }
}

#[test]
fn a_job_grows_and_shrinks_while_it_runs() {
    let mut w = Harness::new(5);
    w.job("a", 2);
    w.settle();
    assert_eq!(w.running("a"), 2);
    let first = json::name(w.workloads("a")[0]).to_owned();
    let uid = json::uid(&w.server[&(Kind::Job, "a".into())]).to_owned();
    assert_eq!(first, plimsoll_api::kueue::WorkloadNames::Long.with("Job", "batch", "a", &uid, "1"));
    assert_eq!(json::annotation(w.workloads("a")[0], names::SLICE), Some(first.as_str()));

    w.scale("a", 4);
    w.settle();
    assert_eq!((w.running("a"), w.charged()), (4, 4));
    let slices = w.workloads("a");
    let (old, new): (Vec<&Value>, Vec<&Value>) = slices.iter().partition(|s| json::name(s) == first);
    let end = json::condition(old[0], "Finished").unwrap();
    assert_eq!(end["reason"], "WorkloadSliceReplaced");
    assert!(json::text(end, &["message"]).starts_with("Replaced to accommodate a workload (UID: uid-"));
    assert!(json::list(old[0], &["metadata", "finalizers"]).is_empty(), "nothing holds on to it");
    assert_eq!(json::annotation(new[0], plimsoll_api::kueue::REPLACEMENT_FOR), Some(&*format!("ns/{first}")));
    assert_eq!(json::annotation(new[0], names::SLICE), Some(first.as_str()));
    // Of what the admission added to the job's template it has the name of the first slice, as Kueue's has.
    let mut template = old[0]["spec"]["podSets"][0]["template"].clone();
    json::set(&mut template, &["metadata", "annotations", names::SLICE], json!(first));
    assert_eq!(new[0]["spec"]["podSets"][0]["template"], template);
    let name = json::name(new[0]).to_owned();
    assert!(w.notes.contains(&format!("CreatedWorkload: Created Workload: ns/{name}")), "{:?}", w.notes);

    w.scale("a", 1);
    w.settle();
    assert_eq!((w.running("a"), w.charged()), (1, 1));
    assert_eq!(w.workloads("a").len(), 2, "shrunk in place");
    // More than there is: what runs goes on, the rest waits at its gate.
    w.scale("a", 9);
    w.settle();
    assert_eq!((w.running("a"), w.charged(), w.pods("a").len()), (1, 1, 9));
    w.scale("a", 5);
    w.settle();
    assert_eq!((w.running("a"), w.charged(), w.workloads("a").len()), (5, 5, 3));
    // Its workload goes: a new chain begins, and replaces the name of the old one in the template.
    let last = w.workloads("a").into_iter().find(|s| !json::is_true(s, "Finished"));
    let last = last.map(|s| json::name(s).to_owned()).unwrap_or_default();
    w.delete(Kind::Workload, &last, false);
    w.settle();
    let live = w.workloads("a").into_iter().find(|s| !json::is_true(s, "Finished")).cloned().unwrap();
    let own = Some(json::name(&live));
    assert_eq!((w.running("a"), json::annotation(&live, names::SLICE)), (5, own), "{:?}", w.notes);
    let template = &w.server[&(Kind::Job, "a".into())]["spec"]["template"];
    assert_eq!(json::annotation(template, names::SLICE), own);
    w.finish("a");
    w.settle();
    assert_eq!(w.charged(), 0);
    assert!(w.workloads("a").iter().all(|s| json::is_true(s, "Finished")));
    assert_eq!(w.notes.iter().filter(|n| n.contains("is declared finished")).count(), 1);
}

#[test]
fn a_slice_in_another_cluster_queue_leaves_no_quota_behind() {
    let mut w = Harness::new(5);
    w.job("a", 2);
    w.settle();
    w.move_queue();
    w.scale("a", 3);
    w.settle();
    assert_eq!((w.running("a"), w.charged()), (3, 3), "{:?}", w.notes);
    w.scale("a", 4);
    w.settle();
    assert_eq!((w.running("a"), w.charged(), w.workloads("a").len()), (4, 4, 3));
}

#[test]
fn an_evicted_job_stops_as_a_whole_and_comes_back_with_what_it_asks_for() {
    let mut w = Harness::new(5);
    w.job("a", 2);
    w.settle();
    w.scale("a", 6);
    w.settle();
    assert_eq!((w.running("a"), w.workloads("a").len()), (2, 2));
    w.push("big", 9, 4);
    w.settle();
    assert_eq!((w.running("a"), w.charged()), (0, 4), "{:?}", w.notes);
    let job = &w.server[&(Kind::Job, "a".into())];
    assert_eq!(job["spec"]["suspend"], true);
    let template = &job["spec"]["template"];
    assert!(json::annotation(template, names::SLICE).is_none() && template["spec"]["nodeSelector"].is_null());
    w.scale("a", 3);
    w.delete(Kind::Workload, "big", true);
    w.settle();
    assert_eq!((w.running("a"), w.charged()), (3, 3), "{:?}", w.notes);
}

/// What succeeded pods give back is not theirs any more when a job grows.
#[test]
fn a_growing_job_runs_no_more_than_it_is_still_charged() {
    let mut w = Harness::new(4);
    w.job("a", 4);
    w.patch(Kind::Job, "a", &json!({"spec": {"completions": 4}})).unwrap();
    w.settle();
    assert_eq!((w.running("a"), w.charged()), (4, 4));
    for pod in w.pods("a").iter().take(2).map(|p| json::name(p).to_owned()) {
        w.patch(Kind::Pod, &pod, &json!({"status": {"phase": "Succeeded"}})).unwrap();
    }
    w.settle();
    assert_eq!((w.running("a"), w.charged()), (2, 2), "{:?}", w.notes);
    w.push("other", 0, 2);
    w.settle();
    assert_eq!(w.charged(), 4);
    w.patch(Kind::Job, "a", &json!({"spec": {"parallelism": 6, "completions": 6}})).unwrap();
    // Its pods come at once, their quota doesn't.
    w.settle();
    assert_eq!((w.running("a"), w.charged(), w.workloads("a").len()), (2, 4, 2), "{:?}", w.notes);
}

/// A pod that ends gives nothing back while a terminating one still runs beside the pod that was created in its place.
#[test]
fn terminating_pods_keep_their_quota_when_others_end() {
    let mut w = Harness::new(4);
    w.job("a", 2);
    w.patch(Kind::Job, "a", &json!({"spec": {"completions": 4}})).unwrap();
    w.settle();
    let end = |w: &mut Harness, count: usize| {
        let runs = |p: &&Value| !super::gated(p) && !pod_view::ended(p) && !json::deleting(p);
        let pods: Vec<Value> = w.pods("a").iter().filter(runs).take(count).cloned().collect();
        for pod in pods {
            w.patch(Kind::Pod, json::name(&pod), &json!({"status": {"phase": "Succeeded"}})).unwrap();
        }
    };
    end(&mut w, 2);
    w.settle();
    assert_eq!((w.running("a"), w.charged()), (2, 2), "{:?}", w.notes);
    // One of the two is deleted, and another is created in its place.
    w.scale("a", 1);
    w.control("a");
    w.scale("a", 4);
    (0..3).for_each(|_| w.round_without_kubelet());
    end(&mut w, 1);
    (0..6).for_each(|_| w.round_without_kubelet());
    assert_eq!((w.running("a"), w.charged()), (2, 2), "{:?}", w.notes);
    w.settle();
    assert_eq!((w.running("a"), w.charged()), (1, 1), "{:?}", w.notes);
}

/// Another client may take an eviction back before the quota is released: the job has begun to stop, and starts again.
#[test]
fn a_job_whose_eviction_is_taken_back_starts_again() {
    let mut w = Harness::new(5);
    w.job("a", 2);
    w.settle();
    let wl = w.workloads("a")[0].clone();
    let before = wl["status"]["conditions"].clone();
    let mut evicted = before.clone();
    let now = timestamp::text(w.now);
    evicted.as_array_mut().unwrap().push(json!({"type": "Evicted", "status": "True", "reason": "Preempted",
        "message": "preempted", "lastTransitionTime": now}));
    w.patch(Kind::Workload, json::name(&wl), &json!({"status": {"conditions": evicted}})).unwrap();
    w.show();
    w.reconcile("a");
    assert_eq!(w.server[&(Kind::Job, "a".into())]["spec"]["suspend"], true);
    w.patch(Kind::Workload, json::name(&wl), &json!({"status": {"conditions": before}})).unwrap();
    w.settle();
    assert_eq!((w.running("a"), w.charged(), w.workloads("a").len()), (2, 2, 1), "{:?}", w.notes);
    assert_eq!(w.server[&(Kind::Job, "a".into())]["spec"]["suspend"], false);
}

/// Nobody starts a job by saying that it was started.
#[test]
fn a_job_that_lost_its_gate_is_stopped() {
    for gates in [json!(null), json!([{"name": names::ELASTIC_GATE}])] {
        let mut w = Harness::new(4);
        w.push("big", 9, 4);
        w.settle();
        w.job("a", 2);
        w.settle();
        assert_eq!(w.running("a"), 0);
        let template =
            json!({"metadata": {"annotations": {names::SLICE: "zzz"}}, "spec": {"schedulingGates": gates}});
        w.patch(Kind::Job, "a", &json!({"spec": {"suspend": false, "template": template}})).unwrap();
        let seen = w.server[&(Kind::Job, "a".into())].clone();
        w.show();
        w.reconcile("a");
        assert_eq!(w.server[&(Kind::Job, "a".into())]["spec"]["suspend"], true, "{seen}");
    }
}

/// Pods of a slice that nobody owns, or another object than the job, are ungated as the slice allows.
#[test]
fn a_pod_belongs_to_the_job_whose_slice_it_names() {
    let mut w = Harness::new(5);
    w.job("a", 2);
    w.settle();
    let slice = json::name(w.workloads("a")[0]).to_owned();
    for owners in
        [json!([]), json!([{"apiVersion": "x/v1", "kind": "Other", "name": "b", "controller": true}])]
    {
        let pod = json!({"metadata": {"namespace": "ns", "name": "p", "ownerReferences": owners,
            "annotations": {names::SLICE: slice, names::WORKLOAD: slice}}});
        let keys = crate::affected(Kind::Pod, &pod, &w.cache.objects);
        assert!(keys.contains(&Key::job(BATCH_JOB, "ns", "a")), "{keys:?}");
    }
}
