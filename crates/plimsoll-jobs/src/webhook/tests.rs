use plimsoll_state::Time;
use serde_json::json;

use super::*;
use crate::multikueue::CONTROLLER;
use crate::testing::Fixture;
use crate::{Config, Kind, names};

mod on_flavors;
mod own_kinds;

const NOW: Time = Time::from_seconds(1_700_000_000);

fn cache() -> Fixture {
    let mut cache = Fixture::default();
    cache.put(Kind::LocalQueue, json!({"metadata": {"namespace": "with", "name": "default"}}));
    let labels = json!({names::QUEUE: "q"});
    cache.put(Kind::Job, json!({"metadata": {"namespace": "ns", "name": "j", "uid": "u", "labels": labels}}));
    cache
}

fn review<'a>(group: &'a str, plural: &'a str, namespace: &'a str, old: Option<&'a Value>) -> Review<'a> {
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    Review { group, plural, operation, namespace, old }
}

fn queued(extra: &Value) -> Value {
    let mut o =
        json!({"metadata": {"namespace": "ns", "name": "x", "labels": {names::QUEUE: "q"}}, "spec": {}});
    for (k, v) in extra.as_object().into_iter().flatten() {
        plimsoll_api::json::set(&mut o, &k.split('|').collect::<Vec<_>>(), v.clone());
    }
    o
}

fn owned() -> Value {
    queued(&json!({"metadata|ownerReferences": [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true}]}))
}

#[test]
fn queued_jobs_are_created_suspended() {
    let cache = cache();
    let go = |ns: &str, mut job: Value| {
        mutate(&review("batch", "jobs", ns, None), &mut job, cache.env(NOW));
        (job["spec"]["suspend"].clone(), plimsoll_api::json::label(&job, names::QUEUE).to_owned())
    };
    assert_eq!(go("ns", queued(&json!({}))), (json!(true), "q".into()));
    assert_eq!(go("ns", json!({"metadata": {}, "spec": {}})), (Value::Null, String::new()));
    assert_eq!(go("with", json!({"metadata": {}, "spec": {}})), (json!(true), "default".into()));
    assert_eq!(go("kube-system", queued(&json!({}))).0, Value::Null);
    assert_eq!(go("ns", owned()).0, Value::Null);
}

#[test]
fn queued_pods_are_created_gated() {
    let cache = cache();
    let go = |mut pod: Value| {
        mutate(&review("", "pods", "ns", None), &mut pod, cache.env(NOW));
        pod
    };
    let pod = go(queued(&json!({"spec|schedulingGates": [{"name": "other"}]})));
    assert_eq!(
        pod["spec"]["schedulingGates"],
        json!([{"name": "other"}, {"name": names::GATE}, {"name": names::TOPOLOGY_GATE}])
    );
    assert_eq!(pod["metadata"]["finalizers"], json!([names::MANAGED]));
    assert_eq!(pod["metadata"]["labels"][names::MANAGED], "true");
    assert!(pod["metadata"]["annotations"][names::ROLE_HASH].is_string(), "of a pod without a group, too");
    let grouped = queued(&json!({"metadata|labels|kueue.x-k8s.io/pod-group-name": "g"}));
    assert!(go(grouped)["metadata"]["annotations"][names::ROLE_HASH].is_string());
    let free = json!({"metadata": {"name": "x"}, "spec": {}});
    assert_eq!(go(free.clone()), free);
    assert!(go(owned())["spec"]["schedulingGates"].is_null());
}

#[test]
fn refusals_have_kueues_words() {
    let cache = cache();
    let running = queued(&json!({"spec|suspend": false}));
    let moved = queued(&json!({"spec|suspend": false, "metadata|labels|kueue.x-k8s.io/queue-name": "r"}));
    let unretriable = queued(&json!({"metadata|labels|kueue.x-k8s.io/pod-group-name": "g",
        "metadata|annotations|kueue.x-k8s.io/pod-group-total-count": "2",
        "metadata|annotations|kueue.x-k8s.io/retriable-in-group": "false"}));
    let mut retriable = unretriable.clone();
    plimsoll_api::json::remove(&mut retriable, &["metadata", "annotations", names::RETRIABLE]);
    let min = "metadata|annotations|kueue.x-k8s.io/job-min-parallelism";
    let count = "metadata|annotations|kueue.x-k8s.io/pod-group-total-count";
    let cases: Vec<(&str, Option<&Value>, Value, &str)> = vec![
        (
            "jobs",
            None,
            queued(&json!({"metadata|labels|kueue.x-k8s.io/max-exec-time-seconds": "0"})),
            "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]: Invalid value: 0: should be greater than 0",
        ),
        (
            "jobs",
            None,
            queued(&json!({min: "x"})),
            "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]: Invalid value: \"x\": \
             strconv.Atoi: parsing \"x\": invalid syntax",
        ),
        (
            "jobs",
            None,
            queued(&json!({"spec|parallelism": 4, min: "4"})),
            "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]: Invalid value: 4: should be between 0 and 3",
        ),
        (
            "jobs",
            None,
            queued(&json!({"spec|completionMode": "Indexed", "spec|parallelism": 2, "spec|completions": 3,
                "metadata|annotations|kueue.x-k8s.io/job-completions-equal-parallelism": "true"})),
            "spec.completions: Invalid value: 3: should be equal to parallelism when \
             kueue.x-k8s.io/job-completions-equal-parallelism annotation is true",
        ),
        (
            "jobs",
            Some(&running),
            moved,
            "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: \"r\": field is immutable",
        ),
        (
            "pods",
            None,
            queued(&json!({"metadata|labels|kueue.x-k8s.io/managed": "no"})),
            "metadata.labels[kueue.x-k8s.io/managed]: Forbidden: managed label value can only be 'true'",
        ),
        (
            "pods",
            None,
            queued(&json!({count: "2"})),
            "metadata.labels[kueue.x-k8s.io/pod-group-name]: Required value: both the \
             'kueue.x-k8s.io/pod-group-total-count' annotation and the 'kueue.x-k8s.io/pod-group-name' label should be set",
        ),
        (
            "pods",
            None,
            queued(&json!({"metadata|labels|kueue.x-k8s.io/pod-group-name": "g", count: "0"})),
            "metadata.annotations[kueue.x-k8s.io/pod-group-total-count]: Invalid value: \"0\": incorrect annotation \
             value 'kueue.x-k8s.io/pod-group-total-count=0': group total count should be greater than zero",
        ),
        (
            "pods",
            Some(&unretriable),
            retriable,
            "metadata.annotations[kueue.x-k8s.io/retriable-in-group]: Forbidden: unretriable pod group can't be \
             converted to retriable",
        ),
    ];
    for (plural, old, object, want) in cases {
        let group = if plural == "jobs" { "batch" } else { "" };
        let denied = validate(&review(group, plural, "ns", old), &object, cache.env(NOW)).unwrap_err();
        assert_eq!(denied.message, want);
        assert!(denied.to_string().starts_with("admission webhook \"v"));
    }
    let free = json!({"metadata": {"name": "x"}, "spec": {"suspend": false}});
    assert_eq!(validate(&review("batch", "jobs", "ns", None), &free, cache.env(NOW)), Ok(vec![]));
    // All faults of a name in one error.
    let long = queued(&json!({"metadata|labels|kueue.x-k8s.io/queue-name": "Q".repeat(254)}));
    let denied = validate(&review("batch", "jobs", "ns", None), &long, cache.env(NOW)).unwrap_err().message;
    let both = "must be no more than 253 bytes,a lowercase RFC 1123 subdomain must consist of";
    assert!(denied.contains(both), "{denied}");
}

#[test]
fn pods_name_prebuilt_workloads_as_their_group() {
    let cache = cache();
    let prebuilt = "kueue.x-k8s.io/prebuilt-workload-name";
    let group = "kueue.x-k8s.io/pod-group-name";
    let count = "metadata|annotations|kueue.x-k8s.io/pod-group-total-count";
    for (kind, form) in [("labels", "label"), ("annotations", "annotation")] {
        let (name, of) = (format!("metadata|{kind}|{prebuilt}"), format!("metadata|{kind}|{group}"));
        let go = |pod: Value| {
            validate(&review("", "pods", "ns", None), &pod, cache.env(NOW)).err().map(|d| d.message)
        };
        assert_eq!(go(queued(&json!({&*name: "w"}))), None, "a single pod");
        assert_eq!(go(queued(&json!({&*name: "w", &*of: "w", count: "1"}))), None);
        let text = format!(
            "metadata.{kind}[{prebuilt}]: Invalid value: \"w\": prebuilt workload and pod group should be equal"
        );
        assert_eq!(go(queued(&json!({&*name: "w", &*of: "g", count: "1"}))), Some(text));
        let both = format!(
            "metadata.annotations[kueue.x-k8s.io/pod-group-total-count]: Required value: both the \
             'kueue.x-k8s.io/pod-group-total-count' annotation and the '{group}' {form} should be set"
        );
        assert_eq!(go(queued(&json!({&*of: "g"}))), Some(both));
    }
}

#[test]
fn cluster_queues_are_checked() {
    let queue = |spec: Value| {
        let r = review("kueue.x-k8s.io", "clusterqueues", "", None);
        let object = json!({"metadata": {"name": "q"}, "spec": spec});
        validate(&r, &object, Fixture::default().env(NOW)).err().map(|d| d.message)
    };
    let group =
        |quota: Value| json!({"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]});
    assert_eq!(queue(json!({"resourceGroups": [group(json!({"name": "cpu", "nominalQuota": 4}))]})), None);
    let limited = json!({"name": "cpu", "nominalQuota": 4, "lendingLimit": "5"});
    let at = "spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: Invalid value: \"5\"";
    assert_eq!(
        queue(json!({"resourceGroups": [group(limited)]})).unwrap(),
        format!(
            "[{at}: must be nil when cohort is empty, {at}: must be less than or equal to the nominalQuota]"
        )
    );
    let twice = json!({"resourceGroups": [group(json!({"name": "cpu"})), group(json!({"name": "cpu"}))]});
    assert_eq!(
        queue(twice).unwrap(),
        "[spec.resourceGroups[1].coveredResources[0]: Duplicate value: \"cpu\", \
         spec.resourceGroups[1].flavors[0].name: Duplicate value: \"f\"]"
    );
    let wrong = json!({"resourceGroups": [group(json!({"name": "memory", "nominalQuota": 1}))]});
    assert!(queue(wrong).unwrap().ends_with("must match the name in coveredResources"));
}

#[test]
fn a_reservation_freezes_the_podsets() {
    let wl = |count: i64, reclaimable: i64| {
        json!({"metadata": {"name": "w"}, "spec": {"queueName": "q", "podSets": [{"name": "main", "count": count}]},
               "status": {"conditions": [{"type": "QuotaReserved", "status": "True"}],
                          "reclaimablePods": [{"name": "main", "count": reclaimable}]}})
    };
    let go = |old: &Value, new: &Value| {
        let r = review("kueue.x-k8s.io", "workloads", "ns", Some(old));
        validate(&r, new, Fixture::default().env(NOW)).err().map(|d| d.message)
    };
    assert_eq!(go(&wl(3, 1), &wl(3, 2)), None);
    assert!(go(&wl(3, 1), &wl(4, 1)).unwrap().ends_with("field is immutable"));
    assert_eq!(
        go(&wl(3, 2), &wl(3, 1)).unwrap(),
        "status.reclaimablePods[main].count: Invalid value: 1: cannot be less than 2"
    );
    assert_eq!(
        go(&wl(3, 2), &wl(3, 4)).unwrap(),
        "status.reclaimablePods[main].count: Invalid value: 4: should be less or equal to 3"
    );
}

#[test]
fn queue_names_stay_where_there_is_a_default_queue() {
    let cache = cache();
    let go = |suspend: bool| {
        let old = queued(&json!({"spec|suspend": suspend}));
        let new = json!({"metadata": {"namespace": "with", "name": "x"}, "spec": {"suspend": suspend}});
        let outcome = validate(&review("batch", "jobs", "with", Some(&old)), &new, cache.env(NOW));
        outcome.err().map(|denied| denied.message)
    };
    let at = "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: \"\"";
    let empty = format!("{at}: queue-name must not be empty in namespace with default queue");
    assert_eq!(go(false), Some(format!("[{at}: field is immutable, {empty}]")));
    assert_eq!(go(true), Some(empty));
}

#[test]
fn run_windows_are_read_strictly() {
    let go = |spec: Value| {
        let object = json!({"metadata": {"name": "w"}, "spec": spec});
        validate(&review("plimsoll.dev", "runwindows", "", None), &object, cache().env(NOW)).map(drop)
    };
    assert_eq!(go(json!({"windows": [{"start": "0 22 * * *", "duration": "8h"}]})), Ok(()));
    let denied =
        go(json!({"timeZone": "berlin", "windows": [{"start": "x", "duration": "0s"}]})).unwrap_err();
    let parts = ["vrunwindow.kb.io", "spec.timeZone", "spec.windows[0].start", "spec.windows[0].duration"];
    assert!(parts.iter().all(|p| denied.to_string().contains(p)), "{denied}");
    let named = |plural: &'static str, group: &'static str, window: &str| {
        let object = queued(&json!({"metadata|annotations|plimsoll.dev/run-window": window}));
        let text = validate(&review(group, plural, "ns", None), &object, cache().env(NOW))
            .map_err(|e| e.to_string());
        text.err().is_some_and(|e| e.contains("metadata.annotations[plimsoll.dev/run-window]"))
    };
    for (group, plural) in [("batch", "jobs"), ("kueue.x-k8s.io", "workloads")] {
        assert!(named(plural, group, "No Name") && !named(plural, group, "night"), "{plural}");
    }
}

#[test]
fn elastic_jobs_are_gated_and_refused_in_kueues_words() {
    let cache = cache();
    let key = "metadata|annotations|kueue.x-k8s.io/elastic-job";
    let at = "metadata.annotations[kueue.x-k8s.io/elastic-job]";
    let job = |extra: Value| {
        let mut all = json!({key: "true", "spec|suspend": false, "spec|parallelism": 4});
        all.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        queued(&all)
    };
    let mut made = job(json!({"spec|template|spec|schedulingGates": [{"name": "own"}]}));
    mutate(&review("batch", "jobs", "ns", None), &mut made, cache.env(NOW));
    let gates = &made["spec"]["template"]["spec"]["schedulingGates"];
    assert_eq!(gates, &json!([{"name": "own"}, {"name": names::ELASTIC_GATE}]));
    let mut free = json!({"metadata": {"annotations": {names::ELASTIC: "true"}}, "spec": {}});
    mutate(&review("batch", "jobs", "ns", None), &mut free, cache.env(NOW));
    assert!(free["spec"]["template"].is_null(), "of nobody's concern");

    let go = |cache: &Fixture, plural: &'static str, old: Option<&Value>, new: &Value| {
        let group = if plural == "jobs" { "batch" } else { "" };
        validate(&review(group, plural, "ns", old), new, cache.env(NOW)).err().map(|d| d.message)
    };
    let running = job(json!({}));
    assert_eq!(go(&cache, "jobs", Some(&running), &job(json!({"spec|parallelism": 9}))), None);
    let prebuilt = job(json!({"metadata|annotations|kueue.x-k8s.io/prebuilt-workload-name": "w"}));
    assert_eq!(go(&cache, "jobs", Some(&running), &prebuilt), None);
    let plain = queued(&json!({"spec|suspend": false, "spec|parallelism": 4}));
    let immutable = |value: bool| Some(format!("{at}: Invalid value: {value}: field is immutable"));
    assert_eq!(go(&cache, "jobs", Some(&running), &plain), immutable(false));
    assert_eq!(go(&cache, "jobs", Some(&plain), &running), immutable(true));
    let partial = job(json!({"metadata|annotations|kueue.x-k8s.io/job-min-parallelism": "2"}));
    let path = "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]";
    let both = "partial admission and elastic job cannot be used together";
    assert_eq!(go(&cache, "jobs", None, &partial).unwrap(), format!("{path}: Invalid value: \"2\": {both}"));
    for mode in ["required", "preferred"] {
        let key = format!("kueue.x-k8s.io/podset-{mode}-topology");
        let wanted = format!(
            "spec.template.metadata.annotations.{key}: Forbidden: {mode} topology is not supported with elastic jobs"
        );
        let placed = job(json!({(format!("spec|template|metadata|annotations|{key}")): "rack"}));
        assert_eq!(go(&cache, "jobs", None, &placed), Some(wanted));
    }
    let pod = queued(&json!({key: "true"}));
    let text = format!("{at}: Forbidden: elastic job is not supported for \"/v1, Kind=Pod\"");
    assert_eq!(go(&cache, "pods", None, &pod), Some(text));
    let off = Fixture::with_config(Config { elastic_jobs: false, ..Default::default() });
    assert_eq!(go(&off, "jobs", Some(&running), &plain), None);
    let frozen = "metadata.annotations[kueue.x-k8s.io/prebuilt-workload-name]: Invalid value: \"w\": field is immutable";
    assert_eq!(go(&off, "jobs", Some(&running), &prebuilt).as_deref(), Some(frozen));
    assert_eq!(go(&off, "pods", None, &pod), None);
}

#[test]
fn slices_may_shrink_and_boosts_are_numbers() {
    let wl = |count: i64, reclaimable: Option<i64>, annotations: Value| {
        let mut w = json!({"metadata": {"name": "w", "annotations": annotations},
            "spec": {"queueName": "q", "podSets": [{"name": "main", "count": count}]},
            "status": {"conditions": [{"type": "QuotaReserved", "status": "True"}],
                "admission": {"podSetAssignments": [{"name": "main", "count": 4}]}}});
        if let Some(n) = reclaimable {
            w["status"]["reclaimablePods"] = json!([{"name": "main", "count": n}]);
        }
        w
    };
    let elastic = json!({names::ELASTIC: "true"});
    let config = |elastic_jobs| Config { elastic_jobs, priority_boost: true, ..Default::default() };
    let go = |on: bool, old: Option<&Value>, new: &Value| {
        let r = review("kueue.x-k8s.io", "workloads", "ns", old);
        validate(&r, new, Fixture::with_config(config(on)).env(NOW)).err().map(|d| d.message)
    };
    let at = |n, r| wl(n, r, elastic.clone());
    assert_eq!(go(true, Some(&at(4, None)), &at(2, None)), None);
    // A client in Go leaves out what is empty.
    let mut written = at(4, None);
    written["status"]["admission"]["podSetAssignments"][0]["flavors"] = json!({});
    written["status"]["admission"]["podSetAssignments"][0]["resourceUsage"] = json!({});
    assert_eq!(go(true, Some(&written), &at(4, None)), None);
    let mut other = at(4, None);
    other["status"]["admission"]["podSetAssignments"][0]["flavors"] = json!({"cpu": "f"});
    assert!(go(true, Some(&written), &other).is_some_and(|e| e.contains("status.admission: Invalid value")));
    let frozen = go(false, Some(&at(4, None)), &at(2, None)).unwrap();
    assert!(frozen.starts_with("spec.podSets.0: Invalid value: ") && frozen.ends_with("field is immutable"));
    assert!(go(true, Some(&at(2, None)), &at(4, None)).is_some());
    // What was reclaimed may be too much for a moment, and is counted anew.
    assert_eq!(go(true, Some(&at(4, Some(3))), &at(2, Some(3))), None);
    assert_eq!(go(true, Some(&at(2, Some(3))), &at(2, Some(1))), None);
    assert_eq!(go(true, Some(&at(2, Some(3))), &at(2, None)), None);
    assert!(go(true, Some(&at(4, Some(3))), &at(4, Some(1))).is_some(), "not smaller than admitted");
    let mut variable = at(4, None);
    variable["spec"]["podSets"][0]["minCount"] = json!(1);
    let text = "spec.podSets: Invalid value: 1: partial admission and elastic job cannot be used together";
    assert_eq!(go(true, None, &variable).as_deref(), Some(text));
    // With the gate its least count shrinks with it, and stays when the gate is turned off.
    let partly = |old: Option<&Value>, new: &Value| {
        let r = review("kueue.x-k8s.io", "workloads", "ns", old);
        let config = Config { partial_scale_up: true, ..Default::default() };
        validate(&r, new, Fixture::with_config(config).env(NOW)).err().map(|d| d.message)
    };
    let least = |count: i64, least: i64| {
        let mut wl = at(count, None);
        wl["spec"]["podSets"][0]["minCount"] = json!(least);
        wl
    };
    assert_eq!(partly(None, &variable), None);
    assert_eq!(partly(Some(&least(4, 3)), &least(2, 2)), None);
    assert!(partly(Some(&least(4, 3)), &least(2, 1)).is_some_and(|e| e.contains("immutable")));
    assert!(partly(Some(&least(4, 3)), &least(4, 2)).is_some_and(|e| e.contains("immutable")));
    assert_eq!(go(true, Some(&least(4, 3)), &least(2, 2)), None);
    // What a workload is asked to shrink to may change, and it may shrink to nothing.
    let asked = |target: Option<i64>| {
        let mut wl = wl(4, None, json!({plimsoll_api::kueue::PARTIAL_PREEMPTION: "true"}));
        wl["spec"]["podSets"][0]["minCount"] = json!(0);
        wl["status"]["admission"]["podSetAssignments"][0]["reclaimTargetCount"] = json!(target);
        wl
    };
    let shrinks = |on: bool| {
        let (old, new) = (asked(None), asked(Some(2)));
        let r = review("kueue.x-k8s.io", "workloads", "ns", Some(&old));
        let config = Config { partial_preemption: on, ..Default::default() };
        validate(&r, &new, Fixture::with_config(config).env(NOW)).err().map(|d| d.message)
    };
    assert_eq!(shrinks(true), None);
    assert!(shrinks(false).is_some_and(|e| e.contains("status.admission: Invalid value")));
    let mut none = wl(4, None, json!({}));
    none["spec"]["podSets"][0]["minCount"] = json!(0);
    let text = "spec.podSets[0].minCount: Invalid value: 0: spec.podSets[0].minCount in body should be greater than or equal to 1";
    assert_eq!(go(true, None, &none).as_deref(), Some(text));
    let key = plimsoll_api::kueue::PRIORITY_BOOST;
    for (value, want) in [
        ("-7", None),
        ("2147483648", Some("\"2147483648\": must be a valid signed integer")),
        ("x", Some("\"x\": must be a valid signed integer")),
        ("", Some("\"\": must be a valid signed integer; use \"0\" explicitly, empty string is not allowed")),
    ] {
        let want = want.map(|w| format!("metadata.annotations[{key}]: Invalid value: {w}"));
        assert_eq!(go(true, None, &wl(4, None, json!({key: value}))), want);
    }
}

#[test]
fn pods_of_deployments_are_queued() {
    fn deployments(old: Option<&Value>) -> Review<'_> {
        review("apps", "deployments", "ns", old)
    }
    let cache = cache();
    let mut object = queued(&json!({"metadata|labels|kueue.x-k8s.io/priority-class": "high"}));
    mutate(&deployments(None), &mut object, cache.env(NOW));
    let metadata = &object["spec"]["template"]["metadata"];
    let labels = json!({names::QUEUE: "q", names::PRIORITY_CLASS: "high", names::MANAGED: "true"});
    assert_eq!(metadata, &json!({"labels": labels, "annotations": {names::SUSPENDING_PARENT: "deployment"}}));
    // Another queue reaches the template, too, and the pods that it makes are gated.
    let old = object.clone();
    plimsoll_api::json::set(&mut object, &["metadata", "labels", names::QUEUE], json!("r"));
    mutate(&deployments(Some(&old)), &mut object, cache.env(NOW));
    let mut pod = object["spec"]["template"].clone();
    assert_eq!(pod["metadata"]["labels"][names::QUEUE], "r");
    mutate(&review("", "pods", "ns", None), &mut pod, cache.env(NOW));
    assert_eq!(
        pod["spec"]["schedulingGates"],
        json!([{"name": names::GATE}, {"name": names::TOPOLOGY_GATE}])
    );
    // Not while its pods run.
    let mut running = old;
    running["status"] = json!({"readyReplicas": 1});
    let refused = validate(&deployments(Some(&running)), &object, cache.env(NOW));
    assert!(refused.is_err_and(|e| e.message.contains("field is immutable")));
    let free = json!({"metadata": {"name": "x"}, "spec": {}});
    let mut object = free.clone();
    mutate(&deployments(None), &mut object, cache.env(NOW));
    assert_eq!(object, free);
}

#[test]
fn what_has_no_effect_is_warned_of() {
    let mut cache = Fixture::default();
    cache.config.frameworks.remove("deployment");
    let multikueue = json!({"metadata": {"name": "x"}, "spec": {"controllerName": CONTROLLER}});
    let automated = json!({"metadata": {"name": "x"}, "spec": {"quotaManagement": "Automated"}});
    let other = json!({"metadata": {"name": "x"}, "spec": {"controllerName": "example.com/budget"}});
    let concurrent =
        json!({"metadata": {"name": "x"}, "spec": {"concurrentAdmissionPolicy": {"migration": {}}}});
    let plain = json!({"metadata": {"name": "x"}, "spec": {}});
    let table = [
        ("apps", "deployments", queued(&json!({})), Some("not among integrations.frameworks")),
        ("apps", "deployments", plain.clone(), None),
        ("kueue.x-k8s.io", "admissionchecks", multikueue, None),
        ("kueue.x-k8s.io", "admissionchecks", other, None),
        ("kueue.x-k8s.io", "multikueueconfigs", automated, Some("quotaManagement has no effect")),
        ("kueue.x-k8s.io", "multikueueconfigs", plain.clone(), None),
        ("kueue.x-k8s.io", "multikueueclusters", plain.clone(), None),
        ("kueue.x-k8s.io", "clusterqueues", concurrent, Some("the feature gate ConcurrentAdmission is off")),
        ("kueue.x-k8s.io", "clusterqueues", plain, None),
    ];
    for (group, plural, object, want) in table {
        assert!(concerns(group, plural, "", true) && concerns(group, plural, "", false));
        let warnings = validate(&review(group, plural, "ns", None), &object, cache.env(NOW)).unwrap();
        match want {
            Some(text) => {
                assert!(warnings.len() == 1 && warnings[0].contains(text), "{plural}: {warnings:?}");
            }
            None => assert!(warnings.is_empty(), "{plural}: {warnings:?}"),
        }
    }
}

/// Gates that are on by default, off: Kueue before it had them.
#[test]
fn webhooks_follow_their_gates() {
    use crate::config::WebhookGates;
    let with = |webhook_gates: WebhookGates| {
        let mut frameworks = Config::default().frameworks;
        frameworks.insert("sparkoperator.k8s.io/sparkapplication".to_owned());
        Fixture::with_config(Config { webhook_gates, frameworks, ..Config::default() })
    };
    let on = WebhookGates::default();
    // A running job that leaves its queue.
    for (group, plural, suspend) in [
        ("ray.io", "rayclusters", "spec|suspend"),
        ("ray.io", "rayjobs", "spec|suspend"),
        ("ray.io", "rayservices", "spec|rayClusterConfig|suspend"),
        ("sparkoperator.k8s.io", "sparkapplications", "spec|suspend"),
    ] {
        let queued = queued(&json!({suspend: false, "spec|mode": "cluster", "spec|rayClusterSpec": {}}));
        let mut free = queued.clone();
        free["metadata"]["labels"] = json!({});
        let leaves = |gates: WebhookGates| {
            validate(&review(group, plural, "ns", Some(&queued)), &free, with(gates).env(NOW)).is_ok()
        };
        assert!(!leaves(on), "{plural}");
        assert!(leaves(WebhookGates { validates_ray_updates: false, ..on }), "{plural}");
    }
    let class = |gates: WebhookGates, mut job: Value| {
        let mut fixture = with(gates);
        fixture.put(Kind::WorkloadPriorityClass, json!({"metadata": {"name": "default"}, "value": 1}));
        mutate(&review("batch", "jobs", "ns", None), &mut job, fixture.env(NOW));
        plimsoll_api::json::label(&job, names::PRIORITY_CLASS).to_owned()
    };
    assert_eq!(class(on, queued(&json!({}))), "default");
    // KEP-10765: defaulting does not depend on the queue.
    assert_eq!(class(on, json!({"metadata": {"namespace": "ns", "name": "x"}, "spec": {}})), "default");
    assert_eq!(class(WebhookGates { default_priority_class: false, ..on }, queued(&json!({}))), "");
    // A Deployment that runs without a queue stays as it is, and so does one that is being deleted.
    let updated = |labels: Value, deleted: bool| {
        let mut fixture = with(on);
        fixture.put(Kind::WorkloadPriorityClass, json!({"metadata": {"name": "default"}, "value": 1}));
        let mut deployment = json!({"metadata": {"namespace": "ns", "name": "x", "labels": labels},
            "spec": {"template": {"spec": {"containers": []}}}, "status": {"readyReplicas": 1}});
        if deleted {
            deployment["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        let old = deployment.clone();
        mutate(&review("apps", "deployments", "ns", Some(&old)), &mut deployment, fixture.env(NOW));
        plimsoll_api::json::label(&deployment, names::PRIORITY_CLASS).to_owned()
    };
    let queue = json!({names::QUEUE: "main"});
    assert_eq!(updated(json!({}), false), "");
    assert_eq!(updated(queue.clone(), false), "default");
    assert_eq!(updated(queue, true), "");
    let set = |size: i64| {
        let template = json!({"spec": {"containers": []}});
        queued(&json!({"spec|leaderWorkerTemplate": {"size": size, "workerTemplate": template}}))
    };
    let grows = |gates: WebhookGates| {
        let old = set(2);
        let review = review("leaderworkerset.x-k8s.io", "leaderworkersets", "ns", Some(&old));
        validate(&review, &set(3), with(gates).env(NOW)).is_ok()
    };
    assert!(!grows(on));
    assert!(grows(WebhookGates { immutable_group_size: false, ..on }));
}

/// Gate WorkloadIdentifierAnnotations off (Kueue `TestPrebuiltWorkloadNameFor`, `TestGetPodGroupName`).
#[test]
fn names_are_labels_without_their_gate() {
    use crate::pod_view::{GROUP, Identifiers};
    let long = "x".repeat(64);
    let (annotations, labels) = (Identifiers::Annotations, Identifiers::Labels);
    // Annotation and label; what each value of the gate reads.
    for (annotation, label, on, off) in
        [("a", "l", "a", "l"), ("a", "", "a", ""), ("", "l", "l", "l"), ("", "", "", "")]
    {
        for key in [names::PREBUILT, GROUP] {
            let object = json!({"metadata": {"annotations": {key: annotation}, "labels": {key: label}}});
            let read = |of: Identifiers| {
                if key == GROUP {
                    of.group_of(&object).to_owned()
                } else {
                    of.prebuilt_of(&object).to_owned()
                }
            };
            assert_eq!((read(annotations).as_str(), read(labels).as_str()), (on, off), "{key}");
        }
    }
    // What no label can be is an annotation, for workloads only.
    let object = json!({"metadata": {"annotations": {names::PREBUILT: long, GROUP: long}}});
    assert_eq!((labels.prebuilt_of(&object), labels.group_of(&object)), (long.as_str(), ""));
    for (of, name, want) in [
        (annotations, "short", "annotations"),
        (labels, "short", "labels"),
        (labels, long.as_str(), "annotations"),
    ] {
        let mut object = json!({});
        of.set(&mut object, names::PREBUILT, name);
        assert_eq!(object["metadata"], json!({want: {names::PREBUILT: name}}));
    }

    // A job with the annotation gets a workload of its own; a pod with it is in no group.
    let config = Config { identifiers: labels, ..Config::default() };
    let mut cache = Fixture { objects: crate::ObjectStore::new(labels), config };
    let mut job = queued(&json!({"spec|suspend": true, "spec|template": {"spec": {"containers": []}}}));
    job["metadata"]["annotations"] = json!({names::PREBUILT: "mine"});
    cache.put(Kind::Job, job);
    let plan = crate::reconcile(&crate::Key::job("batch/job", "ns", "x"), cache.env(NOW));
    assert!(plan.iter().any(|w| matches!(w, crate::Write::Create(..))), "{plan:?}");
    let mut pod = queued(&json!({"metadata|labels|kueue.x-k8s.io/managed": "true"}));
    pod["metadata"]["annotations"] = json!({GROUP: "g", names::GROUP_COUNT: "x"});
    cache.put(Kind::Pod, pod.clone());
    assert!(cache.pods_of_group("ns", "g").is_empty());
    let refused = validate(&review("", "pods", "ns", None), &pod, cache.env(NOW)).unwrap_err().message;
    let want = "metadata.labels[kueue.x-k8s.io/pod-group-name]: Required value: both the";
    assert!(refused.starts_with(want), "{refused}");
    pod["metadata"]["labels"][GROUP] = json!("g");
    cache.put(Kind::Pod, pod);
    assert_eq!(cache.pods_of_group("ns", "g").len(), 1);
}
