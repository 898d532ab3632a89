//! Elastic RayJobs and RayServices whose RayCluster is resized on the worker, by Ray's autoscaler.

use plimsoll_api::resource::Resource;

use super::*;
use crate::Key;
use crate::custom_kind::CustomKind;

const CLUSTER: Kind = Kind::Custom(CustomKind::RAY_CLUSTER);

struct Case {
    custom: CustomKind,
    /// Where the job has its cluster.
    field: &'static str,
    manager: Fixture,
    store: WorkerStore,
    version: u32,
}

fn spec(replicas: i64) -> Value {
    let template = json!({"spec": {"containers": [{"name": "ray", "image": "ray"}]}});
    json!({"enableInTreeAutoscaling": true, "headGroupSpec": {"template": template},
        "workerGroupSpecs": [{"groupName": "W", "replicas": replicas, "numOfHosts": 2, "template": template}]})
}

impl Case {
    fn new(custom: CustomKind) -> Self {
        let field = if custom == CustomKind::RAY_JOB { "rayClusterSpec" } else { "rayClusterConfig" };
        let mut manager = manager(workload("Pending", &[]));
        manager.remove(Kind::Workload, "ns", "job-a", "w");
        manager.objects.serve(Kind::Custom(custom), Some(custom.preferred()));
        Self { custom, field, manager, store: WorkerStore::default(), version: 10 }
    }

    fn resource(&self) -> Resource {
        self.custom.preferred()
    }

    fn kind(&self) -> Kind {
        Kind::Custom(self.custom)
    }

    /// The next version of an object.
    fn next(&mut self, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        object
    }

    fn status(&self) -> Value {
        match self.custom {
            CustomKind::RAY_JOB => json!({"jobDeploymentStatus": "Running", "rayClusterName": "c"}),
            _ => json!({"activeServiceStatus": {"rayClusterName": "c"}}),
        }
    }

    /// The manager's job.
    fn local(&mut self) -> Value {
        let metadata = json!({"namespace": "ns", "name": "a", "uid": "j", "generation": 2,
            "labels": {names::QUEUE: "q"}, "annotations": {names::ELASTIC: "true"}});
        let mut job = json!({"metadata": metadata, "spec": {"managedBy": CONTROLLER, "suspend": true}});
        job["spec"][self.field] = spec(1);
        if self.custom == CustomKind::RAY_SERVICE {
            job["spec"][self.field]["suspend"] = json!(true);
        }
        self.next(job)
    }

    /// The workload that a reconcile of the manager's job creates, with quota and this state of its check.
    fn creates(&mut self, uid: &str) -> Value {
        let key = Key::job(self.custom.framework(), "ns", "a");
        let plan = crate::reconcile(&key, self.manager.env(NOW));
        let made = plan.iter().find_map(|write| match write {
            Write::Create(WORKLOADS, made) => Some(made.clone()),
            _ => None,
        });
        let mut made = made.unwrap_or_else(|| panic!("{plan:?}"));
        json::set(&mut made, &["metadata", "uid"], uid.into());
        json::set(
            &mut made,
            &["metadata", "creationTimestamp"],
            format!("2023-11-14T22:0{}:00Z", uid.len()).into(),
        );
        made["status"] = json!({"conditions": [condition("QuotaReserved", 0)],
            "admissionChecks": [{"name": "mk", "state": "Pending", "message": ""}]});
        self.next(made)
    }

    fn counts(wl: &Value) -> Vec<i64> {
        json::list(wl, &["spec", "podSets"]).iter().filter_map(|p| p["count"].as_i64()).collect()
    }

    fn plan(&self, name: &str) -> Plan {
        let before = replaced(&named(name), &self.manager.objects);
        let copy = self.store.copy(&named(name), &before);
        let workers = [("one".to_owned(), Sight::Connected(copy))].into();
        plan(&named(name), &workers, &Memory::default(), self.manager.env(NOW))
    }

    /// The worker's copy of a workload, admitted.
    fn admits(&mut self, wl: &Value) {
        let mut copy = wl.clone();
        copy["status"] = json!({"conditions": [condition("QuotaReserved", 1), condition("Admitted", 1)]});
        let copy = self.next(copy);
        self.store.put(Kind::Workload, copy);
    }

    /// The worker's RayCluster, with the labels and annotations that KubeRay copies from the job.
    fn cluster(&mut self, replicas: i64) -> Value {
        let of = self.resource();
        let owner = json!({"apiVersion": of.api_version, "kind": of.kind, "name": "a", "uid": "rj", "controller": true});
        let theirs = self.store_job();
        let metadata = json!({"namespace": "ns", "name": "c", "uid": "rc", "generation": replicas, "ownerReferences": [owner],
            "labels": theirs["metadata"]["labels"], "annotations": theirs["metadata"]["annotations"]});
        self.next(json!({"metadata": metadata, "spec": spec(replicas)}))
    }

    fn store_job(&self) -> Value {
        let all = self.manager.objects.all(Kind::Workload);
        let jobs = all.flat_map(|wl| self.store.copy(&key_of(&wl), &[]).jobs);
        jobs.map(|(_, job)| Value::clone(&job)).next().unwrap_or_default()
    }

    fn put(&mut self, wl: &Value) {
        self.manager.put(Kind::Workload, wl.clone());
    }
}

/// Name and body of the patch of the manager's job, but for its status.
fn annotates(plan: &Plan) -> Option<Value> {
    plan.first.iter().find_map(|step| match step {
        Step::Manager(Write::Patch { body, subresource: "", .. }) => {
            Some(body["metadata"]["annotations"].clone())
        }
        _ => None,
    })
}

/// The first slice runs on the worker, and the next one has replaced it.
fn first_is_over(case: &mut Case, first: &Value) {
    let mut old = first.clone();
    old["status"]["clusterName"] = json!("one");
    let mut over = condition("Finished", 3);
    over["reason"] = json!("WorkloadSliceReplaced");
    old["status"]["conditions"] = json!([over]);
    json::remove(&mut old, &["metadata", "finalizers"]);
    let old = case.next(old);
    case.put(&old);
}

#[test]
fn a_job_grows_by_slices_for_the_autoscaler_on_its_worker() {
    for custom in [CustomKind::RAY_JOB, CustomKind::RAY_SERVICE] {
        let mut case = Case::new(custom);
        let (kind, mut local) = (case.kind(), case.local());
        case.manager.put(kind, local.clone());
        let first = case.creates("w");
        let counts = Case::counts(&first);
        assert_eq!(counts[..2], [1, 2], "as many as the job asks for");
        case.put(&first);
        case.admits(&first);
        let name = json::name(&first).to_owned();
        // The worker has the job, and KubeRay its cluster.
        let plan = case.plan(&name);
        let Some(Step::Worker(_, Write::Create(_, made))) = plan.first.first() else { panic!("{plan:?}") };
        let mut theirs = made.clone();
        theirs["metadata"]["uid"] = json!("rj");
        theirs["status"] = case.status();
        let theirs = case.next(theirs);
        assert_eq!(case.store.put(kind, theirs), [named(&name)]);
        local["status"] = case.status();
        local = case.next(local);
        case.manager.put(kind, local.clone());
        let cluster = case.cluster(1);
        assert_eq!(json::annotation(&cluster, names::PREBUILT), Some(name.as_str()), "as KubeRay does");
        assert_eq!(case.store.put(CLUSTER, cluster), [named(&name)], "it concerns the workload of its job");
        let copy = case.store.copy(&named(&name), &[]);
        assert_eq!((copy.jobs.len(), copy.clusters.len()), (1, 1), "it is no job of the workload");

        // The autoscaler has other ideas.
        let cluster = case.cluster(2);
        case.store.put(CLUSTER, cluster);
        let body = annotates(&case.plan(&name)).expect("a patch");
        assert_eq!(body, json!({names::RAY_CLUSTER_SIZES: "c/2/W=4"}));
        local["metadata"]["annotations"][names::RAY_CLUSTER_SIZES] = json!("c/2/W=4");
        local = case.next(local);
        case.manager.put(kind, local.clone());
        assert_eq!(annotates(&case.plan(&name)), None, "once");
        let mut second = case.creates("w2");
        assert_eq!(Case::counts(&second)[..2], [1, 4], "a slice for the larger cluster");
        assert_eq!(json::annotation(&second, REPLACEMENT_FOR), Some(format!("ns/{name}").as_str()));
        case.put(&second);
        first_is_over(&mut case, &first);

        // While that waits on the worker, what runs goes on, and the autoscaler may change its mind.
        let next = json::name(&second).to_owned();
        let mut waits = second.clone();
        waits["status"] = json!({});
        let waits = case.next(waits);
        case.store.put(Kind::Workload, waits);
        let cluster = case.cluster(3);
        assert_eq!(case.store.put(CLUSTER, cluster), [named(&name), named(&next)]);
        assert_eq!(annotates(&case.plan(&name)), None, "that slice is over");
        let body = annotates(&case.plan(&next)).expect("a patch");
        assert_eq!(body, json!({names::RAY_CLUSTER_SIZES: "c/3/W=6"}));
        let cluster = case.cluster(2);
        case.store.put(CLUSTER, cluster);
        assert_eq!(annotates(&case.plan(&next)), None, "as it was");

        // With the admission of the slice there the job gets its name. Its cluster keeps the sizes of the autoscaler.
        case.admits(&second);
        let plan = case.plan(&next);
        let edit = plan.first.iter().find_map(|step| match step {
            Step::Worker(_, Write::Patch { resource, body, subresource: "", .. }) => Some((*resource, body)),
            _ => None,
        });
        let (resource, body) = edit.unwrap_or_else(|| panic!("{plan:?}"));
        assert_eq!(
            (resource, &body["metadata"]["annotations"]),
            (case.resource(), &json!({names::PREBUILT: next}))
        );
        assert!(body["spec"].is_null(), "{body}");
        assert_eq!(remote(&case.plan(&name)), [""; 0], "nothing of the job goes with the slice before");
        let mut renamed = case.store.copy(&named(&name), &[]).jobs[0].1.as_ref().clone();
        renamed["metadata"]["annotations"][names::PREBUILT] = json!(next);
        let renamed = case.next(renamed);
        case.store.put(kind, renamed);

        // Its cluster, which names the first slice for ever, still concerns the workload of the job.
        let mut smaller = case.cluster(1);
        smaller["metadata"]["annotations"] = json!({names::PREBUILT: name});
        assert_eq!(case.store.put(CLUSTER, smaller), [named(&next)]);
        let body = annotates(&case.plan(&next)).expect("a patch");
        assert_eq!(body, json!({names::RAY_CLUSTER_SIZES: "c/1/W=2"}));
        local["metadata"]["annotations"][names::RAY_CLUSTER_SIZES] = json!("c/1/W=2");
        local = case.next(local);
        case.manager.put(kind, local.clone());
        // Nothing of it runs here: the slice shrinks at once.
        second = case.next(second);
        case.put(&second);
        let key = Key::job(custom.framework(), "ns", "a");
        let plan = crate::reconcile(&key, case.manager.env(NOW));
        let shrunk = plan.iter().find_map(|write| match write {
            Write::Patch { resource: WORKLOADS, body, subresource: "", .. } => {
                Some(&body["spec"]["podSets"][1]["count"])
            }
            _ => None,
        });
        assert_eq!(shrunk, Some(&json!(2)), "{plan:?}");
    }
}

#[test]
fn only_the_cluster_that_runs_the_job_counts() {
    let mut case = Case::new(CustomKind::RAY_JOB);
    let kind = case.kind();
    let groups = |job: &Value| {
        crate::kinds::ray::recorded_cluster(kind, job).map(|c| c["spec"]["workerGroupSpecs"].clone())
    };
    let mut job = case.local();
    job["status"] = case.status();
    assert_eq!(groups(&job), None);
    let want = json!([{"groupName": "W", "replicas": 4}, {"groupName": "x", "replicas": 0}]);
    for (text, found) in [
        ("c/2/W=4,x=0", Some(&want)),
        ("other/2/W=4,x=0", None),
        ("c/W=4", None),
        ("c/x/W=4", None),
        ("", None),
    ] {
        job["metadata"]["annotations"][names::RAY_CLUSTER_SIZES] = json!(text);
        assert_eq!(groups(&job).as_ref(), found, "{text}");
    }
    job["metadata"]["annotations"][names::RAY_CLUSTER_SIZES] = json!("c/2/W=4,x=-1,y=many");
    assert_eq!(groups(&job), Some(json!([{"groupName": "W", "replicas": 4}])));
    // A job that runs here has its cluster here, and one that has stopped has none.
    let mut own = job.clone();
    json::remove(&mut own, &["spec", "managedBy"]);
    assert_eq!(groups(&own), None);
    job["status"] = json!({});
    assert_eq!(groups(&job), None);
}
