//! Jobs that are stopped because of their workload, and the priority of workloads.

use plimsoll_api::kueue::{QuotaRelease, QuotaReleaseStrategy};

use super::*;
use crate::generic_job::GenericJob;

/// A Job that runs as its workload was admitted, with a start time.
fn running(cache: &mut Fixture) -> (Value, Value) {
    let wl = admitted(cache);
    cache.put(Kind::Workload, wl.clone());
    let mut job = job();
    json_patch_merge(&mut job, body(&run(cache, &key()), 0));
    json::set(&mut job, &["metadata", "resourceVersion"], json!("7"));
    json::set(&mut job, &["status"], json!({"active": 2, "startTime": "2023-11-14T22:13:20Z"}));
    cache.put(Kind::Job, job.clone());
    assert!(run(cache, &key()).is_empty());
    (job, wl)
}

/// Carries out patches of the Job until a reconcile has none, and returns the Job with that reconcile's writes.
fn stopped(cache: &mut Fixture, mut job: Value) -> (Value, Vec<String>) {
    for version in 8..20 {
        let writes = run(cache, &key());
        let Some(Write::Patch { resource, body, .. }) = writes.first().filter(|_| version < 19) else {
            return (job, short(&writes));
        };
        if resource.plural != "jobs" {
            return (job, short(&writes));
        }
        assert!(short(&writes).iter().all(|w| !w.contains("workloads")), "{:?}", short(&writes));
        json_patch_merge(&mut job, body);
        // The Job controller deletes the pods.
        json::set(&mut job, &["status", "active"], json!(0));
        json::set(&mut job, &["metadata", "resourceVersion"], json!(version.to_string()));
        cache.put(Kind::Job, job.clone());
    }
    panic!("never stops");
}

#[test]
fn a_workload_is_deleted_after_its_job_has_its_template_back() {
    let mut cache = cache();
    let (mut changed, wl) = running(&mut cache);
    json::set(&mut changed, &["spec", "parallelism"], json!(1));
    cache.put(Kind::Job, changed.clone());
    let (job, last) = stopped(&mut cache, changed);
    let (own, name) = (super::job(), json::name(&wl));
    assert_eq!(job["spec"]["template"], own["spec"]["template"]);
    assert_eq!((&job["spec"]["suspend"], &job["status"]["startTime"]), (&json!(true), &Value::Null));
    assert_eq!(
        last,
        [
            format!("patch workloads {name} "),
            format!("delete workloads {name}"),
            format!("DeletedWorkload: Deleted not matching Workload: ns/{name}")
        ]
    );
    cache.remove(Kind::Workload, "ns", name, "wl-uid");
    let writes = run(&cache, &key());
    let podset = &body(&writes, 0)["spec"]["podSets"][0];
    assert_eq!((&podset["count"], &podset["template"]), (&json!(1), &own["spec"]["template"]));
}

#[test]
fn a_deleted_workload_is_released_after_its_job_has_its_template_back() {
    let mut cache = cache();
    let (running, mut wl) = running(&mut cache);
    json::set(&mut wl, &["metadata", "deletionTimestamp"], json!("2023-11-14T22:13:20Z"));
    cache.put(Kind::Workload, wl.clone());
    let (job, last) = stopped(&mut cache, running);
    assert_eq!(job["spec"]["template"], super::job()["spec"]["template"]);
    assert!(json::annotation(&job, names::STOPPING).is_none());
    assert_eq!(last, [format!("patch workloads {} ", json::name(&wl))]);
}

#[test]
fn a_workload_has_no_labels_of_the_job_controller_and_its_job_keeps_them() {
    let mut cache = cache();
    let mut own = job();
    let (name, uid) = ("batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid");
    let labels = json!({"own": "x", "job-name": "j", "controller-uid": "job-uid", name: "j", uid: "job-uid"});
    json::set(&mut own, &["spec", "template", "metadata", "labels"], labels.clone());
    cache.put(Kind::Job, own.clone());
    let mut wl = admitted(&cache);
    let podset = &wl["spec"]["podSets"][0];
    assert_eq!(podset["template"]["metadata"]["labels"], json!({"own": "x", name: "j"}));
    cache.put(Kind::Workload, wl.clone());
    json_patch_merge(&mut own, body(&run(&cache, &key()), 0));
    json::set(&mut own, &["metadata", "resourceVersion"], json!("7"));
    cache.put(Kind::Job, own.clone());
    assert!(run(&cache, &key()).is_empty());
    json::set(&mut wl, &["metadata", "deletionTimestamp"], json!("2023-11-14T22:13:20Z"));
    cache.put(Kind::Workload, wl);
    let (own, _) = stopped(&mut cache, own);
    assert_eq!(own["spec"]["template"]["metadata"]["labels"], labels);
}

#[test]
fn a_workload_follows_the_admission_gates_of_its_job() {
    let mut cache = cache();
    let gates = |job: &Value, gates: &str| {
        let mut job = job.clone();
        json::set(&mut job, &["metadata", "annotations", names::GATED_BY], json!(gates));
        job
    };
    let gated = gates(&job(), "a.io/x,b.io/y");
    cache.put(Kind::Job, gated.clone());
    let wl = made(&cache);
    cache.put(Kind::Workload, wl.clone());
    assert!(run(&cache, &key()).is_empty());
    cache.put(Kind::Job, gates(&gated, "b.io/y"));
    let writes = run(&cache, &key());
    assert_eq!(body(&writes, 0)["metadata"]["annotations"], json!({names::GATED_BY: "b.io/y"}));
    assert_eq!(short(&writes)[1], "UpdatedWorkload: Updated workload AdmissionGatedBy to \"b.io/y\"");
    cache.put(Kind::Job, job());
    assert_eq!(body(&run(&cache, &key()), 0)["metadata"]["annotations"], json!({names::GATED_BY: null}));
}

#[test]
fn a_running_job_takes_its_workload_to_another_priority_class() {
    let mut cache = cache();
    let class = |name: &str, value: i64| json!({"metadata": {"name": name}, "value": value});
    cache.put(Kind::WorkloadPriorityClass, class("low", 1));
    let named = |job: &Value, class: &str| {
        let mut job = job.clone();
        json::set(&mut job, &["metadata", "labels", names::PRIORITY_CLASS], json!(class));
        job
    };
    let own = named(&job(), "low");
    cache.put(Kind::Job, own);
    let wl = admitted(&cache);
    assert_eq!(wl["spec"]["priority"], 1);
    cache.put(Kind::Workload, wl.clone());
    let mut started = named(&job(), "low");
    json_patch_merge(&mut started, body(&run(&cache, &key()), 0));
    cache.put(Kind::Job, named(&started, "high"));
    let missing = "WorkloadPriorityClassNotFound: WorkloadPriorityClass \"high\" not found";
    assert_eq!(short(&run(&cache, &key())), [missing, "again"], "the workload keeps what it has");
    cache.put(Kind::WorkloadPriorityClass, class("high", 9));
    let writes = run(&cache, &key());
    let spec = &body(&writes, 0)["spec"];
    assert_eq!((&spec["priority"], &spec["priorityClassRef"]["name"]), (&json!(9), &json!("high")));
    let updated = format!("UpdatedWorkload: Updated workload priority class: ns/{}", json::name(&wl));
    assert_eq!(short(&writes)[1], updated);
    // A user may set another value; only a change of the class overrides it.
    let mut raised = wl;
    json::set(&mut raised, &["spec", "priority"], json!(5));
    cache.put(Kind::Workload, raised);
    cache.put(Kind::Job, started);
    assert!(run(&cache, &key()).is_empty());
}

/// Kueue KEP-10076: active and terminating pods of a Job, and whether it is active with each strategy.
#[test]
fn jobs_are_active_as_long_as_their_strategy_says() {
    use QuotaReleaseStrategy::{OnQuotaReleased, OnTerminal};
    for (status, fast, slow) in [
        (json!({}), false, false),
        (json!({"active": 0, "terminating": 0}), false, false),
        (json!({"active": 2}), true, true),
        (json!({"active": 1, "terminating": 1}), true, true),
        (json!({"active": 0, "terminating": 2}), false, true),
        (json!({"terminating": 1, "failed": 1}), false, true),
        (json!({"succeeded": 2, "terminating": 0}), false, false),
    ] {
        let object = json!({"status": status});
        let job = crate::job::Job { object: &object };
        assert_eq!([OnQuotaReleased, OnTerminal].map(|s| job.is_active(s)), [fast, slow], "{status}");
    }
}

/// Gate QuotaReleaseStrategy: an evicted Job is stopped as ever, and keeps its quota until no pod of it is left.
#[test]
fn an_evicted_job_releases_its_quota_as_its_strategy_says() {
    for jobs in [QuotaReleaseStrategy::OnQuotaReleased, QuotaReleaseStrategy::OnTerminal] {
        let mut cache = cache();
        cache.config.quota_release = QuotaRelease { jobs, ..QuotaRelease::default() };
        let (mut job, mut wl) = running(&mut cache);
        json::set(&mut job, &["status", "terminating"], json!(2));
        condition(&mut wl, "Evicted", "Preempted", "go");
        cache.put(Kind::Workload, wl.clone());
        let (mut job, last) = stopped(&mut cache, job);
        assert_eq!((&job["spec"]["suspend"], &job["status"]["startTime"]), (&json!(true), &Value::Null));
        let released = [format!("stopped {}", json::name(&wl))];
        let early = jobs == QuotaReleaseStrategy::OnQuotaReleased;
        assert_eq!(last, if early { &released[..] } else { &[] }, "two pods terminate");
        for (terminating, version) in [(1, "30"), (0, "31")] {
            json::set(&mut job, &["status", "terminating"], json!(terminating));
            json::set(&mut job, &["metadata", "resourceVersion"], json!(version));
            cache.put(Kind::Job, job.clone());
            let wanted: &[String] = if early || terminating == 0 { &released } else { &[] };
            assert_eq!(short(&run(&cache, &key())), wanted, "{terminating} pods terminate");
        }
    }
}

/// Its pods would use quota that no workload is charged for.
#[test]
fn a_job_whose_pods_terminate_waits_for_its_workload() {
    let mut cache = cache();
    let mut own = job();
    json::set(&mut own, &["status"], json!({"active": 0, "terminating": 1}));
    cache.put(Kind::Job, own);
    let creates =
        |cache: &Fixture| short(&run(cache, &key())).iter().any(|w| w.starts_with("create workloads"));
    assert!(creates(&cache));
    cache.config.quota_release.jobs = QuotaReleaseStrategy::OnTerminal;
    assert!(!creates(&cache));
}

/// Another client takes an eviction back while its job is being stopped ("Should stop ungating once the slice holding the
/// reservation is evicted" of the integration suite of Jobs): the job runs on. With another assignment it is stopped first.
#[test]
fn a_job_that_begins_to_stop_runs_on_when_the_eviction_is_taken_back() {
    let mut cache = cache();
    let (mut job, wl) = running(&mut cache);
    let before = job.clone();
    let mut evicted = wl.clone();
    json::set(&mut evicted, &["metadata", "resourceVersion"], json!("50"));
    let condition =
        json!({"type": "Evicted", "status": "True", "reason": "Preempted", "message": "preempted"});
    evicted["status"]["conditions"].as_array_mut().unwrap().push(condition);
    cache.put(Kind::Workload, evicted);
    // Suspended, and its start time removed. Its pods are still there.
    for version in ["8", "9"] {
        json_patch_merge(&mut job, body(&run(&cache, &key()), 0));
        json::set(&mut job, &["metadata", "resourceVersion"], json!(version));
        cache.put(Kind::Job, job.clone());
    }
    assert_eq!((&job["spec"]["suspend"], &job["status"]["startTime"]), (&json!(true), &Value::Null));
    assert_eq!(json::annotation(&job, names::STOPPING), Some("true"));
    let mut back = wl.clone();
    json::set(&mut back, &["metadata", "resourceVersion"], json!("51"));
    cache.put(Kind::Workload, back.clone());
    let writes = run(&cache, &key());
    assert_eq!(short(&writes)[1..], ["Started: Admitted by clusterQueue cq"], "{writes:?}");
    let mut resumed = job.clone();
    json_patch_merge(&mut resumed, body(&writes, 0));
    assert_eq!(resumed["spec"], before["spec"]);
    assert_eq!(json::annotation(&resumed, names::STOPPING), None);

    json::set(&mut job, &["spec", "template", "spec", "nodeSelector", "zone"], json!("other"));
    json::set(&mut job, &["metadata", "resourceVersion"], json!("10"));
    cache.put(Kind::Job, job);
    let writes = run(&cache, &key());
    assert!(!short(&writes).iter().any(|w| w.starts_with("Started")), "{writes:?}");
    assert!(body(&writes, 0)["spec"]["suspend"].is_null(), "{writes:?}");
}
