//! Ray's kinds as elastic jobs (Kueue `pkg/controller/jobs/raycluster/{common,raycluster_webhook}_test.go`, and the specs "with
//! elastic jobs via workload-slices support" of its integration suite `controller/jobs/raycluster`).

use super::ray_jobs::{ALL, around, cluster};
use super::*;
use crate::Key;
use crate::kinds::ray::{RAY_CLUSTER, RAY_JOB, RAY_SERVICE};

/// An elastic object with an autoscaler around a cluster with these groups.
fn elastic(table: &JobKind, groups: &[(&str, Option<i64>, Option<i64>)]) -> Value {
    let mut spec = cluster(groups);
    spec["enableInTreeAutoscaling"] = json!(true);
    let mut object = around(table, &spec);
    json::set(&mut object, &["metadata", "annotations", names::ELASTIC], json!("true"));
    object
}

fn created(table: &JobKind, object: &Value, config: Config) -> Value {
    let mut object = object.clone();
    mutate(&review(table, None), &mut object, Fixture::with_config(config).env(NOW));
    object
}

#[test]
fn the_webhooks_gate_elastic_jobs_and_keep_the_gate() {
    let gate = json!([{"name": names::ELASTIC_GATE}]);
    let gates = |table: &JobKind, object: &Value| -> Vec<Value> {
        let templates = (table.templates)(object);
        templates
            .iter()
            .map(|at| object.pointer(&at.pointer).unwrap()["spec"]["schedulingGates"].clone())
            .collect()
    };
    for table in ALL {
        let object = elastic(table, &[("w", Some(2), None)]);
        let made = created(table, &object, Config::default());
        // KubeRay makes a RayCluster of a RayJob, whose webhook adds the gate.
        let want = if table.kind == CustomKind::RAY_JOB { Value::Null } else { gate.clone() };
        assert_eq!(gates(table, &made), vec![want; 2]);
        assert_eq!(created(table, &made, Config::default()), made, "once");
        assert_eq!(refusal(table, &made, None), "");
        let off = Config { elastic_jobs: false, ..Config::default() };
        assert_eq!(gates(table, &created(table, &object, off.clone())), vec![Value::Null; 2]);
        let refused =
            validate(&review(table, None), &object, Fixture::with_config(off).env(NOW)).unwrap_err();
        assert!(
            refused.message.contains("enableInTreeAutoscaling: Invalid value: true: a kueue"),
            "{refused}"
        );
        let mut later = made.clone();
        json::remove(&mut later, &["metadata", "annotations"]);
        assert!(
            refusal(table, &later, Some(&made))
                .contains("elastic-job]: Invalid value: false: field is immutable")
        );
        let mut free = object.clone();
        json::remove(&mut free, &["metadata", "labels"]);
        assert_eq!(
            gates(table, &created(table, &free, Config::default())),
            vec![Value::Null; 2],
            "not queued"
        );
    }
    let object = elastic(&RAY_CLUSTER, &[("w", Some(2), None)]);
    let want = |at: &str| {
        format!(
            "spec.{at}.template.spec.schedulingGates: Invalid value: null: an elastic job must have the ElasticJobSchedulingGate"
        )
    };
    let both = format!("[{}, {}]", want("workerGroupSpecs[0]"), want("headGroupSpec"));
    assert_eq!(refusal(&RAY_CLUSTER, &object, None), both);
    let mut made = created(&RAY_CLUSTER, &object, Config::default());
    made["spec"]["managedBy"] = json!(names::MULTIKUEUE);
    let want = "spec.enableInTreeAutoscaling: Forbidden: in-tree autoscaling is not supported for a MultiKueue-managed elastic RayCluster";
    assert_eq!(refusal(&RAY_CLUSTER, &made, None), want);
    // Without an autoscaler its user changes the number of workers.
    made["spec"]["enableInTreeAutoscaling"] = json!(false);
    assert_eq!(refusal(&RAY_CLUSTER, &made, None), "");
}

#[test]
fn other_kinds_are_no_elastic_jobs() {
    for table in TABLES.into_iter().filter(|table| table.elastic.is_none()) {
        let mut object = job(table, &json!({"mode": "cluster"}));
        json::set(&mut object, &["metadata", "annotations", names::ELASTIC], json!("true"));
        let resource = table.kind.preferred();
        let want = format!(
            "metadata.annotations[kueue.x-k8s.io/elastic-job]: Forbidden: elastic job is not supported for \"{}, Kind={}\"",
            resource.api_version, resource.kind
        );
        assert_eq!(refusal(table, &object, None), want);
    }
}

/// The status with which a job names its cluster.
fn status(table: &JobKind) -> Value {
    match table.kind {
        CustomKind::RAY_JOB => json!({"rayClusterName": "c"}),
        _ => json!({"activeServiceStatus": {"rayClusterName": "c"}}),
    }
}

/// The cluster of a job, with these groups of workers.
fn child(table: &JobKind, uid: &str, groups: &[(&str, Option<i64>, Option<i64>)]) -> Value {
    let owner = table.kind.preferred();
    json!({"metadata": {"namespace": "ns", "name": "c", "uid": "cu", "generation": 7, "ownerReferences": [
            {"apiVersion": owner.api_version, "kind": owner.kind, "name": "j", "uid": uid, "controller": true}]},
        "spec": cluster(groups)})
}

/// Kueue `TestUpdatePodSets`.
#[test]
fn the_cluster_of_a_job_says_how_many_workers_it_has() {
    let own = [("Small", Some(1), None), ("hosts", Some(1), Some(2))];
    // Groups of the cluster and the UID of its owner; numbers of workers, and whether the job has all groups.
    type Row<'a> = (&'a [(&'a str, Option<i64>, Option<i64>)], &'a str, [i64; 2], bool);
    let rows: [Row<'_>; 6] = [
        (&[("Small", Some(4), None), ("hosts", Some(3), Some(2))], "ju", [4, 6], true),
        (&[("Small", None, None), ("hosts", Some(0), Some(2))], "ju", [1, 0], true),
        (&[("Small", Some(5), None)], "ju", [5, 2], true),
        (&[("other", Some(5), None)], "ju", [1, 2], false),
        (&[("Small", Some(5), None)], "another", [1, 2], true),
        (&[], "ju", [1, 2], true),
    ];
    for table in [&RAY_JOB, &RAY_SERVICE] {
        for (groups, uid, want, known) in rows {
            let mut fixture = Fixture::default();
            fixture.put(Kind::Custom(CustomKind::RAY_CLUSTER), child(table, uid, groups));
            let mut object = elastic(table, &own);
            object["status"] = status(table);
            json::set(&mut object, &["metadata", "generation"], json!(3));
            let sizes = |object: &Value| -> Vec<i64> {
                let job = TableJob::new(table, object, fixture.env(NOW));
                job.pod_sets().iter().skip(1).map(|p| p["count"].as_i64().unwrap()).collect()
            };
            assert_eq!(sizes(&object), want, "{groups:?}");
            let generation = if uid == "ju" { "3_7" } else { "3" };
            assert_eq!(TableJob::new(table, &object, fixture.env(NOW)).slice_generation(), generation);
            let mut running = object.clone();
            json::set(&mut running, table.suspend, json!(false));
            assert_eq!(
                TableJob::new(table, &running, fixture.env(NOW)).changes_cluster(),
                !known,
                "{groups:?}"
            );
            // Without an autoscaler, and without the annotation, the job says it.
            let mut fixed = object.clone();
            let field = if table.kind == CustomKind::RAY_JOB { "rayClusterSpec" } else { "rayClusterConfig" };
            fixed["spec"][field]["enableInTreeAutoscaling"] = json!(false);
            assert_eq!(sizes(&fixed), [1, 2]);
            json::remove(&mut object, &["metadata", "annotations"]);
            assert_eq!(sizes(&object), [1, 2]);
        }
    }
}

/// An elastic job, its cluster if that is another object, workloads and pods.
struct Life {
    table: &'static JobKind,
    fixture: Fixture,
    object: Value,
}

impl Life {
    fn new(table: &'static JobKind) -> Self {
        let mut fixture = Fixture::default();
        fixture.put(Kind::Flavor, json!({"metadata": {"name": "f"}, "spec": {"nodeLabels": {"zone": "a"}}}));
        for kind in [table.kind, CustomKind::RAY_CLUSTER] {
            fixture.serve(Kind::Custom(kind), Some(kind.preferred()));
        }
        let object = created(table, &elastic(table, &[("w", Some(2), None)]), Config::default());
        Self { table, fixture, object }
    }

    fn plan(&mut self) -> Plan {
        self.fixture.put(Kind::Custom(self.table.kind), self.object.clone());
        reconcile(self.table.kind.framework(), "ns", "j", self.fixture.env(NOW))
    }

    /// The workload that the next reconcile creates.
    fn creates(&mut self) -> Value {
        let plan = self.plan();
        match plan.first() {
            Some(Write::Create(_, made)) => made.clone(),
            _ => panic!("{plan:?}"),
        }
    }

    /// The job is scaled: by itself, or in its cluster.
    fn scale(&mut self, workers: i64) {
        if self.table.kind == CustomKind::RAY_CLUSTER {
            self.object["spec"]["workerGroupSpecs"][0]["replicas"] = json!(workers);
        } else {
            self.object["status"] = status(self.table);
            let cluster = child(self.table, "ju", &[("w", Some(workers), None)]);
            self.fixture.put(Kind::Custom(CustomKind::RAY_CLUSTER), cluster);
        }
        let generation = json::int(&self.object, &["metadata", "generation"]).unwrap_or(1) + 1;
        json::set(&mut self.object, &["metadata", "generation"], json!(generation));
    }

    fn pod(&mut self, name: &str, podset: &str, slice: &str) {
        self.fixture.put(
            Kind::Pod,
            json!({"metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": "1",
                    "labels": {names::PODSET: podset}, "annotations": {names::SLICE: slice, names::WORKLOAD: slice}},
                "spec": {"schedulingGates": [{"name": names::ELASTIC_GATE}]}}),
        );
    }

    /// Names of the pods that the next reconcile ungates, which happens.
    fn ungates(&mut self) -> Vec<String> {
        let plan = self.plan();
        let name = |write: &Write| match write {
            Write::Patch { resource: plimsoll_api::resource::PODS, name, .. } => name.clone(),
            other => panic!("{other:?}"),
        };
        let names: Vec<String> = plan.iter().map(name).collect();
        for name in &names {
            let mut pod = (*self.fixture.get(Kind::Pod, "ns", name).unwrap()).clone();
            json::remove(&mut pod, &["spec", "schedulingGates"]);
            self.fixture.put(Kind::Pod, pod);
        }
        names
    }
}

#[test]
fn jobs_of_ray_grow_by_slices_and_shrink_in_place() {
    for table in ALL {
        let mut life = Life::new(table);
        let first = life.creates();
        let slice = json::name(&first).to_owned();
        assert_eq!(json::annotation(&first, names::ELASTIC), Some("true"));
        assert_eq!(json::annotation(&first, names::SLICE), Some(slice.as_str()));
        let wl = admitted(&first);
        life.fixture.put(Kind::Workload, wl.clone());
        let plan = life.plan();
        life.object = patched(&life.object, &plan, table.kind.preferred());
        assert!(!is_suspended(table, &life.object));
        for at in (table.templates)(&life.object) {
            let template = life.object.pointer(&at.pointer).unwrap();
            assert_eq!(json::annotation(template, names::SLICE), Some(slice.as_str()));
            assert!(crate::pod_view::has_gate(template, names::ELASTIC_GATE));
        }
        assert_eq!(life.plan(), Plan::new(), "runs as admitted");
        for (pod, podset) in [("head-0", "head"), ("w-0", "w"), ("w-1", "w"), ("w-2", "w")] {
            life.pod(pod, podset, &slice);
        }
        assert_eq!(life.ungates(), ["head-0", "w-0", "w-1"], "as many as were admitted");
        assert_eq!(life.ungates(), Vec::<String>::new());

        // It grows: a second slice, and its pods wait.
        life.scale(3);
        let second = life.creates();
        assert_ne!(json::name(&second), slice);
        assert_eq!(json::annotation(&second, names::SLICE), Some(slice.as_str()));
        let replaces = format!("ns/{slice}");
        assert_eq!(json::annotation(&second, plimsoll_api::kueue::REPLACEMENT_FOR), Some(replaces.as_str()));
        let sizes = json::list(&second, &["spec", "podSets"]).iter().map(|p| p["count"].clone());
        assert_eq!(sizes.collect::<Vec<_>>(), [json!(1), json!(3)]);
        let mut pending = second.clone();
        for (key, value) in
            [("uid", "w2"), ("resourceVersion", "5"), ("creationTimestamp", "2030-01-01T00:00:00Z")]
        {
            json::set(&mut pending, &["metadata", key], json!(value));
        }
        life.fixture.put(Kind::Workload, pending.clone());
        assert_eq!(life.ungates(), Vec::<String>::new(), "the second slice waits");

        // The origin goes, as with the RayCluster of a RayService that was replaced.
        let mut next = admitted(&pending);
        json::set(&mut next, &["metadata", "uid"], json!("w2"));
        json::set(&mut next, &["metadata", "resourceVersion"], json!("6"));
        life.fixture.put(Kind::Workload, next.clone());
        life.fixture.remove(Kind::Workload, "ns", &slice, "wu");
        assert_eq!(life.ungates(), ["w-2"]);

        // It shrinks when the surplus has ended.
        life.scale(1);
        assert_eq!(life.plan(), Plan::new(), "three workers run");
        for pod in ["w-1", "w-2"] {
            life.fixture.remove(Kind::Pod, "ns", pod, pod);
        }
        let plan = life.plan();
        let Some(Write::Patch { name, body, .. }) = plan.first() else { panic!("{plan:?}") };
        assert_eq!((name.as_str(), &body["spec"]["podSets"][1]["count"]), (json::name(&next), &json!(1)));

        // Evicted: it stops, and keeps its quota until its pods have ended.
        life.fixture.put(Kind::Workload, with_condition(&next, "Evicted", "Preempted"));
        let plan = life.plan();
        life.object = patched(&life.object, &plan, table.kind.preferred());
        assert!(is_suspended(table, &life.object));
        for at in (table.templates)(&life.object) {
            assert!(json::annotation(life.object.pointer(&at.pointer).unwrap(), names::WORKLOAD).is_none());
        }
        assert_eq!(life.plan(), Plan::new(), "pods run");
        for pod in ["head-0", "w-0"] {
            life.fixture.remove(Kind::Pod, "ns", pod, pod);
        }
        assert!(matches!(life.plan().as_slice(), [Write::WorkloadStopped { .. }]));
    }
}

/// While the cluster of a service is replaced by one with other groups, nothing is decided but its eviction.
#[test]
fn a_job_waits_for_the_cluster_with_its_groups() {
    let mut life = Life::new(&RAY_SERVICE);
    let wl = admitted(&life.creates());
    life.fixture.put(Kind::Workload, wl.clone());
    let plan = life.plan();
    life.object = patched(&life.object, &plan, RAY_SERVICE.kind.preferred());
    life.scale(2);
    life.object["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["groupName"] = json!("renamed");
    assert_eq!(life.plan(), Plan::new());
    life.fixture.put(Kind::Workload, with_condition(&wl, "Evicted", "Preempted"));
    let plan = life.plan();
    assert!(
        is_suspended(&RAY_SERVICE, &patched(&life.object, &plan, RAY_SERVICE.kind.preferred())),
        "{plan:?}"
    );
}

/// Whom a pod and a cluster concern.
#[test]
fn pods_and_clusters_concern_the_job_that_is_queued() {
    let owner = |kind: &str, name: &str| json!([{"apiVersion": "ray.io/v1", "kind": kind, "name": name, "uid": "u", "controller": true}]);
    let mut fixture = Fixture::default();
    let cluster = child(&RAY_JOB, "ju", &[]);
    let job = Key::job("ray.io/rayjob", "ns", "j");
    let keys = crate::affected(Kind::Custom(CustomKind::RAY_CLUSTER), &cluster, &fixture);
    assert_eq!(keys, [Key::job("ray.io/raycluster", "ns", "c"), job.clone()]);
    fixture.put(Kind::Custom(CustomKind::RAY_CLUSTER), cluster);
    let pod = json!({"metadata": {"namespace": "ns", "name": "p", "annotations": {names::SLICE: "s"},
        "ownerReferences": owner("RayCluster", "c")}});
    // The first slice is gone: the pod's owner leads to the job.
    let keys = crate::affected(Kind::Pod, &pod, &fixture);
    assert_eq!(keys, [Key::job("ray.io/raycluster", "ns", "c"), job.clone()]);
    let slice = json!({"metadata": {"namespace": "ns", "name": "s", "uid": "s", "ownerReferences": owner("RayJob", "j")}});
    fixture.put(Kind::Workload, slice);
    assert_eq!(crate::affected(Kind::Pod, &pod, &fixture), [job]);
}

/// Kueue KEP-12100, "RayJob/RayService/RayCluster controller".
#[test]
fn groups_with_a_least_number_of_workers_grow_in_part() {
    let config = Config { partial_scale_up: true, ..Config::default() };
    for table in ALL {
        let own = [("a", Some(2), None), ("Fixed", Some(3), None), ("hosts", Some(1), Some(2))];
        let mut object = elastic(table, &own);
        json::set(&mut object, &["metadata", "annotations", names::SCALE_UP_STRATEGY], json!("partial"));
        let groups = format!(
            "{}/workerGroupSpecs",
            (table.templates)(&object)[0].pointer.trim_end_matches("/headGroupSpec/template")
        );
        for (i, least) in [(0, 0), (2, 1)] {
            object.pointer_mut(&groups).unwrap()[i]["minReplicas"] = json!(least);
        }
        let mut life = Life::new(table);
        life.fixture = Fixture::with_config(config.clone());
        for kind in [table.kind, CustomKind::RAY_CLUSTER] {
            life.fixture.serve(Kind::Custom(kind), Some(kind.preferred()));
        }
        life.fixture
            .put(Kind::Flavor, json!({"metadata": {"name": "f"}, "spec": {"nodeLabels": {"zone": "a"}}}));
        life.object = created(table, &object, config.clone());
        let sizes = |wl: &Value| -> Vec<(Value, Value)> {
            let podsets = json::list(wl, &["spec", "podSets"]).iter();
            podsets.map(|p| (p["count"].clone(), p["minCount"].clone())).collect()
        };
        let first = life.creates();
        let null = Value::Null;
        let want = |a: i64, least: i64| {
            [
                (json!(1), null.clone()),
                (json!(a), json!(least)),
                (json!(3), null.clone()),
                (json!(2), null.clone()),
            ]
        };
        assert_eq!(sizes(&first), want(2, 2), "as a whole");
        life.fixture.put(Kind::Workload, admitted(&first));
        let plan = life.plan();
        life.object = patched(&life.object, &plan, table.kind.preferred());
        if table.kind == CustomKind::RAY_CLUSTER {
            life.object["spec"]["workerGroupSpecs"][0]["replicas"] = json!(5);
        } else {
            life.object["status"] = status(table);
            let cluster = child(
                table,
                "ju",
                &[("a", Some(5), None), ("Fixed", Some(3), None), ("hosts", Some(1), Some(2))],
            );
            life.fixture.put(Kind::Custom(CustomKind::RAY_CLUSTER), cluster);
        }
        assert_eq!(sizes(&life.creates()), want(5, 2), "what runs is the least");
        // What MultiKueue dispatches grows as a whole.
        let mut sent = object.clone();
        json::set(&mut sent, &["spec", "managedBy"], json!(names::MULTIKUEUE));
        life.object = created(table, &sent, config.clone());
        life.fixture.remove(Kind::Workload, "ns", json::name(&first), "wu");
        assert!(sizes(&life.creates()).iter().all(|(_, least)| least.is_null()));
    }
}

#[test]
fn the_strategy_is_one_of_two() {
    let on = Config { partial_scale_up: true, ..Config::default() };
    for (config, value, refused) in [
        (&on, "partial", false),
        (&on, "atomic", false),
        (&on, "half", true),
        (&Config::default(), "half", false),
    ] {
        let mut object = elastic(&RAY_SERVICE, &[("w", Some(2), None)]);
        json::set(&mut object, &["metadata", "annotations", names::SCALE_UP_STRATEGY], json!(value));
        let object = created(&RAY_SERVICE, &object, config.clone());
        let fixture = Fixture::with_config(config.clone());
        let answer = validate(&review(&RAY_SERVICE, None), &object, fixture.env(NOW));
        let want = r#"metadata.annotations[kueue.x-k8s.io/elastic-job-scale-up-strategy]: Unsupported value: "half": supported values: "atomic", "partial""#;
        assert_eq!(answer.err().map(|e| e.message.contains(want)), refused.then_some(true), "{value}");
    }
}

/// Kueue KEP-975, "Job runtime contract".
#[test]
fn a_job_is_asked_to_shrink_to_the_least_of_its_group() {
    let config = |on: bool| Config { partial_preemption: on, ..Config::default() };
    let mut life = Life::new(&RAY_CLUSTER);
    let mut floors = |on: bool, groups: &[(i64, i64)]| {
        let names = ["w", "v"];
        let own: Vec<_> = groups.iter().zip(names).map(|(_, name)| (name, Some(3), None)).collect();
        let mut object = elastic(&RAY_CLUSTER, &own);
        let path = ["metadata", "annotations", plimsoll_api::kueue::PARTIAL_PREEMPTION];
        json::set(&mut object, &path, json!("true"));
        for (i, (least, most)) in groups.iter().enumerate() {
            object["spec"]["workerGroupSpecs"][i]["minReplicas"] = json!(least);
            object["spec"]["workerGroupSpecs"][i]["maxReplicas"] = json!(most);
        }
        life.fixture = Fixture::with_config(config(on));
        life.fixture.serve(Kind::Custom(CustomKind::RAY_CLUSTER), Some(RAY_CLUSTER.kind.preferred()));
        life.object = created(&RAY_CLUSTER, &object, config(on));
        let wl = life.creates();
        let copied = json::annotation(&wl, plimsoll_api::kueue::PARTIAL_PREEMPTION).is_some();
        let least = json::list(&wl, &["spec", "podSets"]).iter().map(|p| p["minCount"].as_i64());
        (copied, least.collect::<Vec<_>>())
    };
    assert_eq!(floors(true, &[(1, 9)]), (true, vec![None, Some(1)]));
    assert_eq!(floors(true, &[(0, 9), (3, 3)]), (true, vec![None, Some(0), None]), "one that keeps its size");
    assert_eq!(floors(true, &[(0, 9), (1, 9)]), (true, vec![None; 3]), "nobody knows which");
    assert_eq!(floors(false, &[(1, 9)]), (false, vec![None; 2]));

    // What it is asked for is let go, while more is charged.
    let mut life = Life::new(&RAY_CLUSTER);
    life.fixture = Fixture::with_config(config(true));
    life.fixture.serve(Kind::Custom(CustomKind::RAY_CLUSTER), Some(RAY_CLUSTER.kind.preferred()));
    life.fixture.put(Kind::Flavor, json!({"metadata": {"name": "f"}, "spec": {"nodeLabels": {"zone": "a"}}}));
    let first = life.creates();
    let slice = json::name(&first).to_owned();
    let mut wl = admitted(&first);
    life.fixture.put(Kind::Workload, wl.clone());
    let plan = life.plan();
    life.object = patched(&life.object, &plan, RAY_CLUSTER.kind.preferred());
    wl["status"]["admission"]["podSetAssignments"][1]["reclaimTargetCount"] = json!(1);
    json::set(&mut wl, &["metadata", "resourceVersion"], json!("9"));
    life.fixture.put(Kind::Workload, wl);
    for (pod, podset) in [("head-0", "head"), ("w-0", "w"), ("w-1", "w")] {
        life.pod(pod, podset, &slice);
    }
    assert_eq!(life.ungates(), ["head-0", "w-0"]);
}
