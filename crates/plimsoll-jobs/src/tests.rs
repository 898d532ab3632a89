//! The reconciler with each kind of job.

use plimsoll_api::conditions::set_status_condition;
use plimsoll_api::json;
use plimsoll_state::Time;
use serde_json::{Value, json};

use crate::config::{BATCH_JOB, POD};
use crate::plan::merge_diff;
use crate::testing::Fixture;
use crate::{Key, Kind, Plan, Write, names, reconcile};

mod groups;
mod names_of_workloads;
mod stops;

const NOW: Time = Time::from_seconds(1_700_000_000);

fn run(cache: &Fixture, key: &Key) -> Plan {
    reconcile(key, cache.env(NOW))
}

/// The kinds of writes, with what matters of them.
fn short(writes: &[Write]) -> Vec<String> {
    writes
        .iter()
        .map(|w| match w {
            Write::Create(r, o) => format!("create {} {}", r.plural, json::name(o)),
            Write::Patch { resource, name, subresource, .. } => {
                format!("patch {} {name} {subresource}", resource.plural)
            }
            Write::Delete { resource, name, .. } => format!("delete {} {name}", resource.plural),
            Write::IfGone { resource, name, .. } => format!("if {} {name} is gone", resource.kind),
            Write::IfUnchanged { resource, name, .. } => format!("if {} {name} is unchanged", resource.kind),
            Write::WorkloadStopped { name, ended: false, .. } => format!("stopped {name}"),
            Write::WorkloadStopped { name, .. } => format!("ended {name}"),
            Write::Event(n) => format!("{}: {}", n.reason, n.message),
            Write::CreateForCheck(o) => format!("provide {} {}", o.resource.plural, json::name(&o.object)),
            Write::RequeueAfter(_) => "again".into(),
        })
        .collect()
}

fn body(writes: &[Write], at: usize) -> &Value {
    match &writes[at] {
        Write::Patch { body, .. } => body,
        Write::Create(_, object) => object,
        other => panic!("{other:?}"),
    }
}

fn job() -> Value {
    json!({"metadata": {"namespace": "ns", "name": "j", "uid": "job-uid", "resourceVersion": "5",
                        "labels": {names::QUEUE: "q"}},
           "spec": {"suspend": true, "parallelism": 3, "completions": 2, "template": {
               "metadata": {"labels": {"own": "x"}},
               "spec": {"restartPolicy": "Never", "nodeSelector": {"disk": "ssd"},
                        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}}})
}

/// The workload that the job of [`job`] makes, as stored.
fn made(cache: &Fixture) -> Value {
    let writes = run(cache, &Key::job(BATCH_JOB, "ns", "j"));
    let mut wl = body(&writes, 0).clone();
    json::set(&mut wl, &["metadata", "resourceVersion"], json!("6"));
    json::set(&mut wl, &["metadata", "uid"], json!("wl-uid"));
    json::set(&mut wl, &["metadata", "generation"], json!(1));
    wl
}

fn condition(wl: &mut Value, kind: &str, reason: &str, message: &str) {
    let list = set_status_condition(wl, kind, true, reason, message, NOW).unwrap();
    json::set(wl, &["status", "conditions"], Value::Array(list));
}

fn admitted(cache: &Fixture) -> Value {
    let mut wl = made(cache);
    let psa = json!({"name": "main", "count": 2, "flavors": {"cpu": "f", "memory": "f"}});
    json::set(&mut wl, &["status", "admission"], json!({"clusterQueue": "cq", "podSetAssignments": [psa]}));
    condition(&mut wl, "QuotaReserved", "QuotaReserved", "m");
    condition(&mut wl, "Admitted", "Admitted", "m");
    wl
}

fn cache() -> Fixture {
    let mut cache = Fixture::default();
    cache.put(Kind::Job, job());
    cache.put(
        Kind::Flavor,
        json!({"metadata": {"name": "f"}, "spec": {"nodeLabels": {"zone": "a"}, "tolerations": [{"key": "spot", "operator": "Exists"}]}}),
    );
    cache
}

fn key() -> Key {
    Key::job(BATCH_JOB, "ns", "j")
}

/// Its pods would count beside the places that are charged for them (Kueue `podset.FromAssignment`).
#[test]
fn pods_with_places_that_nobody_asked_for_say_so() {
    let unconstrained = |request: Value| {
        let mut cache = cache();
        let mut wl = admitted(&cache);
        let topology = json!({"levels": ["kubernetes.io/hostname"], "slices": []});
        wl["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] = topology;
        wl["spec"]["podSets"][0]["topologyRequest"] = request;
        cache.put(Kind::Workload, wl);
        let writes = run(&cache, &key());
        let template = body(&writes, 0)["spec"]["template"].clone();
        template["metadata"]["annotations"]["kueue.x-k8s.io/podset-unconstrained-topology"].clone()
    };
    assert_eq!(unconstrained(Value::Null), "true");
    assert_eq!(unconstrained(json!({"podIndexLabel": "i"})), "true");
    assert_eq!(unconstrained(json!({"required": "rack"})), Value::Null);
}

#[test]
fn a_suspended_job_gets_a_workload() {
    let mut cache = cache();
    let writes = run(&cache, &key());
    let name = plimsoll_api::kueue::WorkloadNames::Long.of("Job", "batch", "j", "job-uid");
    let created = format!("CreatedWorkload: Created Workload: ns/{name}");
    assert_eq!(short(&writes), [format!("create workloads {name}"), created]);
    let wl = body(&writes, 0);
    assert_eq!(wl["spec"]["podSets"][0]["count"], 2);
    assert_eq!(wl["spec"]["priority"], 0);
    assert_eq!(wl["metadata"]["labels"][names::JOB_UID], "job-uid");
    assert_eq!(wl["metadata"]["finalizers"], json!([names::IN_USE]));
    assert_eq!(wl["metadata"]["ownerReferences"][0]["controller"], true);
    let wl = made(&cache);
    cache.put(Kind::Workload, wl);
    assert!(run(&cache, &key()).is_empty(), "waits for admission");
}

#[test]
fn priority_comes_from_the_class_the_template_or_the_default() {
    let mut cache = cache();
    cache.put(Kind::PriorityClass, json!({"metadata": {"name": "a"}, "value": 7, "globalDefault": true}));
    cache.put(Kind::PriorityClass, json!({"metadata": {"name": "b"}, "value": 5, "globalDefault": true}));
    let wl = made(&cache);
    assert_eq!((&wl["spec"]["priority"], &wl["spec"]["priorityClassRef"]["name"]), (&json!(5), &json!("b")));
    let mut j = job();
    json::set(&mut j, &["spec", "template", "spec", "priorityClassName"], json!("a"));
    cache.put(Kind::Job, j.clone());
    assert_eq!(made(&cache)["spec"]["priority"], 7);
    json::set(&mut j, &["spec", "template", "spec", "priorityClassName"], json!("c"));
    cache.put(Kind::Job, j.clone());
    // Kueue warns of the class of the label alone (`ExtractPriority`).
    assert_eq!(short(&run(&cache, &key())), ["again"]);
    json::set(&mut j, &["metadata", "labels", names::PRIORITY_CLASS], json!("w"));
    cache.put(Kind::Job, j);
    let short = short(&run(&cache, &key()));
    assert_eq!(short[0], "WorkloadPriorityClassNotFound: WorkloadPriorityClass \"w\" not found");
    cache.put(Kind::WorkloadPriorityClass, json!({"metadata": {"name": "w"}, "value": 1000}));
    let wl = made(&cache);
    assert_eq!(wl["spec"]["priority"], 1000);
    assert_eq!(wl["spec"]["priorityClassRef"]["kind"], "WorkloadPriorityClass");
}

/// Kueue reads a number of 32 bits (`MaximumExecutionTimeSecondsForObject`).
#[test]
fn a_maximum_time_of_more_than_32_bits_bounds_nothing() {
    let cases = [("2147483647", json!(2_147_483_647)), ("2147483648", Value::Null), ("0", Value::Null)];
    for (text, want) in cases {
        let mut cache = cache();
        let mut job = job();
        json::set(&mut job, &["metadata", "labels", names::MAX_EXEC_TIME], json!(text));
        cache.put(Kind::Job, job);
        let wl = made(&cache);
        assert_eq!(wl["spec"]["maximumExecutionTimeSeconds"], want, "{text}");
        cache.put(Kind::Workload, wl);
        assert!(run(&cache, &key()).is_empty(), "{text}");
    }
}

#[test]
fn admission_starts_the_job_with_what_was_assigned() {
    let mut cache = cache();
    let wl = admitted(&cache);
    cache.put(Kind::Workload, wl);
    let writes = run(&cache, &key());
    assert_eq!(short(&writes), ["patch jobs j ", "Started: Admitted by clusterQueue cq"]);
    let body = body(&writes, 0);
    assert_eq!(body["metadata"]["resourceVersion"], "5");
    assert_eq!(body["spec"]["suspend"], false);
    let template = &body["spec"]["template"];
    assert_eq!(template["spec"]["nodeSelector"], json!({"zone": "a"}), "merged into what is there");
    assert_eq!(template["spec"]["tolerations"], json!([{"key": "spot", "operator": "Exists"}]));
    assert_eq!(template["metadata"]["labels"][names::CLUSTER_QUEUE], "cq");
    let mut started = job();
    json_patch_merge(&mut started, body);
    cache.put(Kind::Job, started);
    assert!(run(&cache, &key()).is_empty(), "the running job matches its workload");
}

fn json_patch_merge(doc: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return *doc = patch.clone() };
    for (key, value) in patch {
        if value.is_null() {
            json::remove(doc, &[key]);
        } else if value.is_object() {
            let mut inner = doc[key.as_str()].take();
            json_patch_merge(&mut inner, value);
            json::set(doc, &[key], inner);
        } else {
            json::set(doc, &[key], value.clone());
        }
    }
}

#[test]
fn a_conflict_with_the_template_fails_for_good() {
    let mut cache = cache();
    let mut j = job();
    json::set(&mut j, &["spec", "template", "spec", "nodeSelector"], json!({"zone": "b"}));
    cache.put(Kind::Job, j);
    let wl = admitted(&cache);
    cache.put(Kind::Workload, wl);
    let writes = run(&cache, &key());
    let finished = body(&writes, 0)["status"]["conditions"].as_array().unwrap().last().unwrap();
    assert_eq!(finished["reason"], "FailedToStart");
    assert_eq!(
        finished["message"],
        "invalid admission check PodSetUpdate: conflict for nodeSelector: conflict for key=zone, value1=b, value2=a"
    );
}

#[test]
fn eviction_has_two_phases() {
    let mut cache = cache();
    let mut wl = admitted(&cache);
    let mut running = job();
    json_patch_merge(
        &mut running,
        body(
            &{
                cache.put(Kind::Workload, wl.clone());
                run(&cache, &key())
            },
            0,
        ),
    );
    json::set(&mut running, &["metadata", "resourceVersion"], json!("7"));
    json::set(&mut running, &["status"], json!({"active": 2, "startTime": "2023-11-14T22:13:20Z"}));
    condition(&mut wl, "Evicted", "Preempted", "Preempted to accommodate");
    cache.put(Kind::Job, running.clone());
    cache.put(Kind::Workload, wl);

    let mut seen = Vec::new();
    for version in 8..20 {
        let writes = run(&cache, &key());
        seen.push(short(&writes).join("; "));
        let Some(Write::Patch { body, subresource, .. }) = writes.first() else { break };
        json_patch_merge(&mut running, body);
        if *subresource == "status" {
            // The Job controller sees the suspension and deletes the pods.
            json::set(&mut running, &["status", "active"], json!(0));
        }
        json::set(&mut running, &["metadata", "resourceVersion"], json!(version.to_string()));
        cache.put(Kind::Job, running.clone());
    }
    assert_eq!(
        seen,
        [
            "patch jobs j ; Stopped: Preempted to accommodate".to_owned(),
            "patch jobs j status".into(),
            "patch jobs j ".into(),
            format!(
                "stopped {}",
                plimsoll_api::kueue::WorkloadNames::Long.of("Job", "batch", "j", "job-uid")
            ),
        ]
    );
    assert_eq!(running["spec"]["template"], job()["spec"]["template"], "the template is what it was");
    assert!(json::annotation(&running, names::STOPPING).is_none());
}

#[test]
fn a_finished_job_finishes_its_workload() {
    let mut cache = cache();
    let wl = admitted(&cache);
    let mut done = job();
    json::set(&mut done, &["spec", "suspend"], json!(false));
    json::set(
        &mut done,
        &["status"],
        json!({"succeeded": 2, "conditions": [
        {"type": "Complete", "status": "True", "message": "Reached expected number of succeeded pods"}]}),
    );
    cache.put(Kind::Job, done);
    // The running job shows the injected selector; without it the workload would not match.
    let mut running = wl.clone();
    json::set(
        &mut running,
        &["status", "admission", "podSetAssignments"],
        json!([{"name": "main", "count": 2}]),
    );
    cache.put(Kind::Workload, running.clone());
    let writes = run(&cache, &key());
    let finished = body(&writes, 0)["status"]["conditions"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&finished["type"], &finished["reason"]), (&json!("Finished"), &json!("Succeeded")));
    assert_eq!(finished["message"], "Reached expected number of succeeded pods");
    condition(&mut running, "Finished", "Succeeded", "m");
    cache.put(Kind::Workload, running);
    let writes = run(&cache, &key());
    assert_eq!(body(&writes, 0)["metadata"]["finalizers"], json!([]));
    assert!(short(&writes)[1].starts_with("FinishedWorkload: Workload 'ns/"));
}

#[test]
fn a_running_job_without_admission_is_stopped() {
    let mut cache = cache();
    let wl = made(&cache);
    let mut running = job();
    json::set(&mut running, &["spec", "suspend"], json!(false));
    cache.put(Kind::Job, running.clone());
    assert!(short(&run(&cache, &key()))[1].starts_with("Stopped: Missing Workload"));
    cache.put(Kind::Workload, wl);
    assert_eq!(short(&run(&cache, &key()))[1], "Stopped: Not admitted by cluster queue");
}

#[test]
fn a_changed_waiting_job_changes_its_workload() {
    let mut cache = cache();
    let wl = made(&cache);
    cache.put(Kind::Workload, wl);
    let mut j = job();
    json::set(&mut j, &["spec", "parallelism"], json!(1));
    cache.put(Kind::Job, j.clone());
    let writes = run(&cache, &key());
    assert_eq!(body(&writes, 0)["spec"]["podSets"][0]["count"], 1);
    assert!(short(&writes)[1].starts_with("UpdatedWorkload"));
    json::set(&mut j, &["spec", "parallelism"], json!(3));
    json::set(&mut j, &["metadata", "labels", names::QUEUE], json!("other"));
    cache.put(Kind::Job, j);
    assert_eq!(body(&run(&cache, &key()), 0)["spec"]["queueName"], "other");
}

#[test]
fn succeeded_pods_give_quota_back() {
    let mut cache = cache();
    let mut j = job();
    json::set(&mut j, &["spec", "completions"], json!(3));
    json::set(&mut j, &["spec", "suspend"], json!(true));
    cache.put(Kind::Job, j.clone());
    let wl = admitted(&cache);
    cache.put(Kind::Workload, wl);
    json::set(&mut j, &["status"], json!({"succeeded": 1, "active": 2}));
    cache.put(Kind::Job, j);
    let writes = run(&cache, &key());
    assert_eq!(body(&writes, 0)["status"]["reclaimablePods"], json!([{"name": "main", "count": 1}]));
}

/// A Workload has one variable of each name.
#[test]
fn repeated_variables_are_left_out() {
    let mut cache = cache();
    let mut j = job();
    let variable = |name: &str, value: &str| json!({"name": name, "value": value});
    let env = json!([variable("A", "1"), variable("B", "x"), variable("A", "2")]);
    j["spec"]["template"]["spec"]["containers"][0]["env"] = env;
    cache.put(Kind::Job, j);
    let wl = made(&cache);
    let env = &wl["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["env"];
    assert_eq!(env, &json!([variable("A", "2"), variable("B", "x")]));
    cache.put(Kind::Workload, wl);
    assert!(run(&cache, &key()).is_empty());
}

#[test]
fn a_prebuilt_workload_is_adopted_or_declared_out_of_sync() {
    let mut cache = cache();
    let mut wl = made(&cache);
    json::set(&mut wl, &["metadata", "name"], json!("pre"));
    json::remove(&mut wl, &["metadata", "ownerReferences"]);
    let mut j = job();
    json::set(&mut j, &["metadata", "labels", names::PREBUILT], json!("pre"));
    cache.put(Kind::Job, j);
    assert_eq!(short(&run(&cache, &key())), ["again"]);
    cache.put(Kind::Workload, wl.clone());
    let writes = run(&cache, &key());
    let owners = body(&writes, 0)["metadata"]["ownerReferences"].clone();
    assert_eq!(owners[0]["uid"], "job-uid");
    json::set(&mut wl, &["metadata", "ownerReferences"], owners);
    // It has a priority of its own.
    json::set(
        &mut wl,
        &["spec", "priorityClassRef"],
        json!({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}),
    );
    json::set(&mut wl, &["spec", "priority"], json!(9));
    cache.put(Kind::Workload, wl.clone());
    assert!(run(&cache, &key()).is_empty());
    // And a limit that its job does not have: it is another job's.
    let mut limited = wl.clone();
    json::set(&mut limited, &["spec", "maximumExecutionTimeSeconds"], json!(60));
    cache.put(Kind::Workload, limited);
    assert_eq!(body(&run(&cache, &key()), 0)["status"]["conditions"][0]["reason"], "OutOfSync");
    json::set(&mut wl, &["spec", "podSets"], json!([{"name": "main", "count": 9, "template": {}}]));
    cache.put(Kind::Workload, wl.clone());
    let writes = run(&cache, &key());
    assert_eq!(body(&writes, 0)["status"]["conditions"][0]["reason"], "OutOfSync");
    // Its quota is released: a job that runs, or is unsuspended later, stops.
    condition(&mut wl, "Finished", "OutOfSync", "m");
    cache.put(Kind::Workload, wl.clone());
    let mut running = job();
    json::set(&mut running, &["metadata", "labels", names::PREBUILT], json!("pre"));
    json::set(&mut running, &["metadata", "resourceVersion"], json!("77"));
    json::set(&mut running, &["spec", "suspend"], json!(false));
    cache.put(Kind::Job, running.clone());
    let writes = run(&cache, &key());
    assert_eq!(body(&writes, 0)["spec"]["suspend"], true, "{writes:?}");
    json::set(&mut running, &["metadata", "resourceVersion"], json!("78"));
    json::set(&mut running, &["spec", "suspend"], json!(true));
    cache.put(Kind::Job, running);
    assert!(
        run(&cache, &key())
            .iter()
            .all(|w| !matches!(w, Write::Patch { resource, .. } if resource.kind == "Job"))
    );
}

fn pod(name: &str, extra: &Value) -> Value {
    let mut p = json!({"metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "5",
        "creationTimestamp": "2023-11-14T22:00:00Z", "finalizers": [names::MANAGED],
        "labels": {names::QUEUE: "q", names::MANAGED: "true"}},
        "spec": {"containers": [{"name": "c"}], "schedulingGates": [{"name": "other"}, {"name": names::GATE}]},
        "status": {"phase": "Pending"}});
    for (k, v) in extra.as_object().into_iter().flatten() {
        json::set(&mut p, &k.split('|').collect::<Vec<_>>(), v.clone());
    }
    p
}

fn admit(wl: &Value, podsets: &Value) -> Value {
    let mut wl = wl.clone();
    json::set(&mut wl, &["metadata", "resourceVersion"], json!("6"));
    json::set(&mut wl, &["metadata", "uid"], json!("wl-uid"));
    json::set(&mut wl, &["status", "admission"], json!({"clusterQueue": "cq", "podSetAssignments": podsets}));
    condition(&mut wl, "QuotaReserved", "QuotaReserved", "m");
    condition(&mut wl, "Admitted", "Admitted", "m");
    wl
}

#[test]
fn a_pod_is_gated_released_and_finished() {
    let mut cache = cache();
    cache.put(Kind::Pod, pod("p", &json!({})));
    let key = Key::job(POD, "ns", "p");
    let writes = run(&cache, &key);
    let name = plimsoll_api::kueue::WorkloadNames::Long.of("Pod", "", "p", "uid-p");
    assert_eq!(short(&writes)[0], format!("create workloads {name}"));
    let mut wl = admit(body(&writes, 0), &json!([{"name": "main", "count": 1, "flavors": {"cpu": "f"}}]));
    cache.put(Kind::Workload, wl.clone());
    let writes = run(&cache, &key);
    assert_eq!(short(&writes), ["patch pods p ", "Started: Admitted by clusterQueue cq"]);
    let change = body(&writes, 0);
    assert_eq!(change["spec"]["schedulingGates"], json!([{"name": "other"}]), "gates of others stay");
    assert_eq!(change["spec"]["nodeSelector"], json!({"zone": "a"}));

    cache.put(Kind::Pod, pod("p", &json!({"spec|schedulingGates": [], "status|phase": "Succeeded"})));
    let writes = run(&cache, &key);
    assert_eq!(short(&writes), [format!("patch workloads {name} status"), "patch pods p ".into()]);
    condition(&mut wl, "Finished", "Succeeded", "");
    cache.put(Kind::Workload, wl);
    cache.put(Kind::Pod, pod("p", &json!({"status|phase": "Succeeded", "metadata|finalizers": []})));
    assert!(short(&run(&cache, &key))[1].starts_with("FinishedWorkload"));
}

#[test]
fn an_evicted_pod_is_deleted_and_its_quota_waits_for_its_end() {
    let mut cache = cache();
    cache.put(Kind::Pod, pod("p", &json!({})));
    let key = Key::job(POD, "ns", "p");
    let mut wl = admit(body(&run(&cache, &key), 0), &json!([{"name": "main", "count": 1}]));
    condition(&mut wl, "Evicted", "Preempted", "go");
    let name = json::name(&wl).to_owned();
    cache.put(Kind::Workload, wl);
    let running = json!({"spec|schedulingGates": [], "spec|nodeName": "n", "status|phase": "Running"});
    let mut p = pod("p", &running);
    cache.put(Kind::Pod, p.clone());
    let writes = run(&cache, &key);
    assert_eq!(short(&writes), ["patch pods p status", "delete pods p", "Stopped: go"]);
    assert_eq!(body(&writes, 0)["status"]["conditions"][0]["reason"], "WorkloadEvictedDueToPreempted");
    json::set(&mut p, &["metadata", "deletionTimestamp"], json!("2023-11-14T22:13:20Z"));
    cache.put(Kind::Pod, p.clone());
    assert!(run(&cache, &key).is_empty(), "still terminating");
    json::set(&mut p, &["status", "phase"], json!("Failed"));
    cache.put(Kind::Pod, p);
    assert_eq!(short(&run(&cache, &key)), [format!("ended {name}")], "the finalizer follows");
}

#[test]
fn an_evicted_pod_without_a_node_releases_its_quota_when_it_is_deleted() {
    let mut cache = cache();
    cache.put(Kind::Pod, pod("p", &json!({})));
    let key = Key::job(POD, "ns", "p");
    let mut wl = admit(body(&run(&cache, &key), 0), &json!([{"name": "main", "count": 1}]));
    condition(&mut wl, "Evicted", "Preempted", "go");
    cache.put(Kind::Workload, wl.clone());
    let name = json::name(&wl).to_owned();
    assert_eq!(short(&run(&cache, &key)), [format!("stopped {name}")], "a gated pod waits for its next turn");
    let ungated = json!({"spec|schedulingGates": []});
    cache.put(Kind::Pod, pod("p", &ungated));
    assert_eq!(short(&run(&cache, &key))[1], "delete pods p");
    // Something holds the object. Bound to a node, the pod may have begun to run.
    let deleted = json!({"spec|schedulingGates": [], "metadata|deletionTimestamp": "2023-11-14T22:13:20Z"});
    let mut bound = pod("p", &deleted);
    json::set(&mut bound, &["spec", "nodeName"], json!("n"));
    cache.put(Kind::Pod, bound);
    assert!(run(&cache, &key).is_empty());
    cache.put(Kind::Pod, pod("p", &deleted));
    assert_eq!(short(&run(&cache, &key)), [format!("ended {name}")]);
    // The engine has released its quota.
    let released = set_status_condition(&wl, "QuotaReserved", false, "PendingEvaluation", "go", NOW).unwrap();
    json::set(&mut wl, &["status", "conditions"], Value::Array(released));
    cache.put(Kind::Workload, wl);
    assert_eq!(short(&run(&cache, &key)), [format!("patch workloads {name} status"), "patch pods p ".into()]);
}

fn member(name: &str, extra: &Value) -> Value {
    let mut all = json!({"metadata|labels|kueue.x-k8s.io/pod-group-name": "g",
                         "metadata|annotations|kueue.x-k8s.io/pod-group-total-count": "2",
                         "metadata|annotations|kueue.x-k8s.io/role-hash": "aaaa"});
    for (k, v) in extra.as_object().into_iter().flatten() {
        all[k.as_str()] = v.clone();
    }
    pod(name, &all)
}

#[test]
fn a_group_becomes_one_workload_when_it_is_complete() {
    let mut cache = cache();
    let key = Key::PodGroup("ns".into(), "g".into());
    cache.put(Kind::Pod, member("a", &json!({})));
    assert_eq!(
        short(&run(&cache, &key)),
        ["ErrWorkloadCompose: 'g' group has fewer runnable pods than expected"]
    );
    cache.put(Kind::Pod, member("b", &json!({"metadata|annotations|kueue.x-k8s.io/role-hash": "bbbb"})));
    let writes = run(&cache, &key);
    assert_eq!(short(&writes)[0], "create workloads g");
    let wl = body(&writes, 0);
    let names: Vec<&Value> = wl["spec"]["podSets"].as_array().unwrap().iter().map(|p| &p["name"]).collect();
    assert_eq!(names, [&json!("aaaa"), &json!("bbbb")]);
    assert_eq!(wl["metadata"]["ownerReferences"].as_array().unwrap().len(), 2);
    assert_eq!(wl["metadata"]["annotations"][names::IS_GROUP], "true");

    let assigned =
        json!([{"name": "aaaa", "count": 1, "flavors": {"cpu": "f"}}, {"name": "bbbb", "count": 1}]);
    cache.put(Kind::Workload, admit(wl, &assigned));
    let writes = run(&cache, &key);
    assert_eq!(short(&writes).iter().filter(|w| w.starts_with("patch pods")).count(), 2, "admitted whole");
}

#[test]
fn extra_pods_of_a_group_are_deleted_and_failed_ones_replaced() {
    let mut cache = cache();
    let key = Key::PodGroup("ns".into(), "g".into());
    cache.put(Kind::Pod, member("a", &json!({})));
    cache.put(Kind::Pod, member("b", &json!({})));
    cache.put(Kind::Pod, member("c", &json!({"metadata|creationTimestamp": "2023-11-14T22:05:00Z"})));
    let writes = run(&cache, &key);
    assert_eq!(
        short(&writes)[..3],
        ["patch pods c ", "delete pods c", "ExcessPodDeleted: Excess pod deleted"]
    );
    let wl = body(&writes, 3);
    assert_eq!(wl["spec"]["podSets"][0]["count"], 2);
    let wl = admit(wl, &json!([{"name": "aaaa", "count": 2}]));
    cache.put(Kind::Workload, wl.clone());
    cache.remove(Kind::Pod, "ns", "c", "");
    let run_state = json!({"spec|schedulingGates": [], "status|phase": "Running"});
    cache.put(Kind::Pod, member("a", &run_state));
    cache.put(Kind::Pod, member("b", &json!({"spec|schedulingGates": [], "status|phase": "Failed"})));
    let writes = run(&cache, &key);
    let waiting = body(&writes, 0)["status"]["conditions"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&waiting["type"], &waiting["reason"]),
        (&json!("WaitingForReplacementPods"), &json!("PodsFailed"))
    );
    // The replacement lets the failed pod go and is started under the same reservation.
    cache.put(Kind::Pod, member("d", &json!({})));
    let first = run(&cache, &key);
    assert!(short(&first).contains(&"patch pods b ".to_owned()), "{:?}", short(&first));
}

#[test]
fn a_foreign_workload_is_not_taken_over_by_a_groups_name() {
    let mut cache = cache();
    cache.put(Kind::Pod, member("a", &json!({})));
    cache.put(Kind::Pod, member("b", &json!({})));
    cache.put(Kind::Workload, json!({"metadata": {"namespace": "ns", "name": "g", "uid": "x"}, "spec": {}}));
    let writes = run(&cache, &Key::PodGroup("ns".into(), "g".into()));
    assert_eq!(
        short(&writes),
        [
            "WorkloadNameConflict: A Workload named \"g\" already exists but is not a pod group workload; this pod group cannot be admitted"
        ]
    );
    assert!(matches!(&writes[0], Write::Event(e) if e.action == "Admission"), "{writes:?}");
    cache.put(Kind::Pod, member("b", &json!({"metadata|deletionTimestamp": "2023-11-14T22:06:00Z"})));
    let writes = run(&cache, &Key::PodGroup("ns".into(), "g".into()));
    assert_eq!(short(&writes)[1..], ["patch pods b "], "deleted pods are let go");
}

#[test]
fn workloads_of_vanished_jobs_are_let_go() {
    let mut cache = cache();
    let mut wl = made(&cache);
    cache.put(Kind::Workload, wl.clone());
    // Nothing has shown the end of the Job: it may not have been shown at all.
    cache.remove(Kind::Job, "ns", "j", "");
    let patch = format!("patch workloads {} status", json::name(&wl));
    assert_eq!(short(&run(&cache, &key())), ["if Job j is gone", &*patch]);
    let uid = json::text(&json::list(&wl, &["metadata", "ownerReferences"])[0], &["uid"]).to_owned();
    cache.remove(Kind::Job, "ns", "j", &uid);
    let writes = run(&cache, &key());
    assert_eq!(short(&writes), [patch]);
    let status = body(&writes, 0)["status"].clone();
    assert_eq!(status["conditions"][0]["reason"], "OwnerNotFound");
    // Its quota is released; the finalizer follows.
    json::set(&mut wl, &["status"], status);
    cache.put(Kind::Workload, wl);
    assert_eq!(body(&run(&cache, &key()), 0)["metadata"]["finalizers"], json!([]));
}

#[test]
fn diffs_are_merge_patches() {
    let old = json!({"a": 1, "b": {"c": 1, "d": 2}, "l": [1, 2], "x": 0});
    let new = json!({"a": 1, "b": {"c": 3}, "l": [2], "n": {"m": 1}});
    let diff = merge_diff(&old, &new).unwrap();
    assert_eq!(diff, json!({"b": {"c": 3, "d": null}, "l": [2], "n": {"m": 1}, "x": null}));
    let mut applied = old.clone();
    json_patch_merge(&mut applied, &diff);
    assert_eq!(applied, new);
    assert_eq!(merge_diff(&new, &new), None);
}
