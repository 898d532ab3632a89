use super::*;
use plimsoll_queueing::{
    AdmissionCheckState, Condition, OUTSIDE, QueueStatus, RequeueState, ResourceUsage, WorkloadUpdate, cond,
};
use plimsoll_state::Time;
use serde_json::{Value, json};

fn rows(file: &str) -> Vec<Value> {
    let path = format!("{}/../../vectors/admission/names/{file}.jsonl.zst", env!("CARGO_MANIFEST_DIR"));
    let packed = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut text = String::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(packed.as_slice()).unwrap();
    std::io::Read::read_to_string(&mut decoder, &mut text).unwrap();
    text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

#[test]
fn workload_names_are_kueues() {
    let mut checked = 0;
    for row in rows("workload-names").iter().filter(|r| r["generation"].is_null()) {
        let get = |k: &str| row[k].as_str().unwrap_or_default();
        assert_eq!(WorkloadNames::Long.of(get("kind"), get("group"), get("name"), get("uid")), get("expect"));
        checked += 1;
    }
    assert!(checked > 10);
}

/// Kueue's `TestGenerateWorkloadNameWithExtra`.
#[test]
fn workload_names_can_be_short() {
    use WorkloadNames::{Long, Short};
    const OWNER: &str = "marketing-campaign-autumn-2024-region-north-america-department-digital-strategy-sub-department-social-media-engagement-tracker-and-analytics-dashboard-v2-final-revision-by-engineering-team-lead-senior-architect-validation-checked-approved-by-legal-and-ops-dept";
    let cut = |length: usize| format!("job-{}-218b8", &OWNER[..length]);
    for (names, owner, extra, want) in [
        (Long, "name", "", "job-name-ef3a1".to_owned()),
        (Short, "name", "", "job-name-ef3a1".to_owned()),
        (Long, "name", "1", "job-name-2514c".to_owned()),
        (Short, "name", "1", "job-name-2514c".to_owned()),
        (Long, OWNER, "", cut(243)),
        (Short, OWNER, "", cut(53)),
    ] {
        assert_eq!(names.with("Job", "batch", owner, "uid", extra), want);
    }
    assert_eq!(cut(53), "job-marketing-campaign-autumn-2024-region-north-america-d-218b8");
    assert_eq!((cut(243).len(), cut(53).len()), (253, 63));
    // The hash is that of the whole name: what is cut off still counts.
    let of = |owner: &str| Short.of("Job", "batch", owner, "uid");
    assert_ne!(of(OWNER), of(&OWNER[..100]));
    assert_eq!(of(&"a".repeat(53)).len(), 63);
    assert_eq!(of(&"\u{e9}".repeat(53)).len(), 62, "not cut within a character");
}

/// Kueue's `TestGetWorkloadNameForVariant`.
#[test]
fn names_of_variants_can_be_short() {
    use WorkloadNames::{Long, Short};
    let many = "a".repeat(300);
    for (names, flavor, want) in [
        (Long, "spot", "job-my-job-variant-spot-6320b".to_owned()),
        (Short, "spot", "job-my-job-variant-spot-6320b".to_owned()),
        (Long, many.as_str(), format!("job-my-job-variant-{}-2e907", "a".repeat(228))),
        (Short, many.as_str(), format!("job-my-job-variant-{}-2e907", "a".repeat(38))),
    ] {
        assert_eq!(names.variant(("Job", "batch", "job-my-job-12345", "uid-123"), flavor), want);
    }
    let parent = format!("job-{many}-12345");
    for names in [Long, Short] {
        let of = |flavor: &str| names.variant(("Job", "batch", &parent, "uid-123"), flavor);
        let (one, two) = (of("flavor1"), of("flavor2"));
        assert!(one[..one.len() - 6] == two[..two.len() - 6] && one != two, "{one} {two}");
    }
}

#[test]
fn role_hashes_are_kueues() {
    let rows = rows("pod-role-hash");
    assert!(rows.len() >= 20);
    for row in rows {
        assert_eq!(role_hash(&row["podSpec"]), row["expect"].as_str().unwrap(), "{}", row["podSpec"]);
    }
}

#[test]
fn a_status_patch_keeps_what_it_does_not_change() {
    let object = json!({"status": {"conditions": [
        {"type": "PodsReady", "status": "True"}, {"type": "QuotaReserved", "status": "False"},
        {"type": "Requeued", "status": "True"},
    ]}});
    let reserved = Condition {
        kind: "QuotaReserved".into(),
        status: true,
        reason: "QuotaReserved".into(),
        message: "m".into(),
        transition: Time::from_seconds(1_700_000_000),
        observed_generation: 2,
    };
    let update = WorkloadUpdate {
        conditions: vec![reserved],
        removed_conditions: vec!["Requeued".into()],
        admission: Some(None),
        ..WorkloadUpdate::default()
    };
    assert_eq!(
        workload_status_patch(&object, &update),
        json!({"admission": null, "conditions": [
            {"type": "PodsReady", "status": "True"},
            {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "m",
             "lastTransitionTime": "2023-11-14T22:13:20Z", "observedGeneration": 2},
        ]})
    );
}

#[test]
fn an_added_check_keeps_the_answer_that_it_has_got() {
    let row = |state: &str, message: &str| json!({"name": "a", "state": state, "message": message, "lastTransitionTime": "2023-11-14T22:13:20Z"});
    let check = |message: &str| AdmissionCheckState {
        name: "a".into(),
        message: message.into(),
        transition: Time::from_seconds(1_700_000_000),
        ..AdmissionCheckState::default()
    };
    let patched = |state: &str, message: &str| {
        let object = json!({"status": {"admissionChecks": [row(state, "by its controller")]}});
        let update =
            WorkloadUpdate { admission_checks: Some(vec![check(message)]), ..WorkloadUpdate::default() };
        workload_status_patch(&object, &update)["admissionChecks"][0].clone()
    };
    assert_eq!(patched("Ready", ""), row("Ready", "by its controller"));
    assert_eq!(patched("Pending", ""), row("Pending", ""));
    assert_eq!(patched("Ready", "Reset to Pending"), row("Pending", "Reset to Pending"));
}

#[test]
fn a_check_that_has_answered_is_asked_anew_when_a_run_window_takes_the_reservation() {
    let object = json!({"status": {"admissionChecks": [
        {"name": "a", "state": "Ready", "message": "nodes are there", "podSetUpdates": [{"name": "main"}]},
        {"name": "b", "state": "Pending", "message": "asked"},
    ]}});
    let checks = |reason: &str, admission| {
        let lost = Condition {
            kind: cond::QUOTA_RESERVED.to_owned(),
            reason: reason.to_owned(),
            transition: Time::from_seconds(1_700_000_000),
            ..Condition::default()
        };
        let update = WorkloadUpdate { conditions: vec![lost], admission, ..WorkloadUpdate::default() };
        workload_status_patch(&object, &update)["admissionChecks"].clone()
    };
    assert_eq!(
        checks(OUTSIDE, Some(None)),
        json!([
            {"name": "a", "state": "Pending", "lastTransitionTime": "2023-11-14T22:13:20Z",
             "message": "Reset to Pending after eviction. Previously: Ready"},
            {"name": "b", "state": "Pending", "message": "asked"},
        ])
    );
    assert_eq!(checks("Suspended", Some(None)), Value::Null, "Kueue resets them with evictions alone");
    assert_eq!(checks(OUTSIDE, None), Value::Null, "there was no reservation");
}

#[test]
fn a_release_of_a_reservation_resets_checks_that_failed_meanwhile() {
    let object = json!({"status": {"admissionChecks": [
        {"name": "a", "state": "Ready", "message": "nodes are there"},
        {"name": "b", "state": "Rejected", "message": "no"},
        {"name": "c", "state": "Retry", "message": "later", "retryCount": 2},
    ]}});
    let lost = Condition { kind: cond::QUOTA_RESERVED.to_owned(), ..Condition::default() };
    let update =
        WorkloadUpdate { conditions: vec![lost], admission: Some(None), ..WorkloadUpdate::default() };
    let checks = workload_status_patch(&object, &update)["admissionChecks"].clone();
    let states: Vec<_> = checks.as_array().unwrap().iter().map(|c| c["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["Ready", "Pending", "Pending"]);
    assert_eq!(checks[0], object["status"]["admissionChecks"][0]);
    assert_eq!(checks[1]["message"], "Reset to Pending after eviction. Previously: Rejected");
    assert_eq!(checks[2]["retryCount"], 3);
}

#[test]
fn usage_is_grouped_by_flavor_in_order() {
    let row = |flavor: &str, resource: &str, total, borrowed| ResourceUsage {
        flavor: flavor.into(),
        resource: resource.into(),
        total,
        borrowed,
        bytes: resource == "gpu.memory",
    };
    let status = QueueStatus {
        usage: vec![
            row("z", "cpu", 1500, 500),
            row("z", "memory", 3 << 30, 0),
            row("a", "nvidia.com/gpu", 8, 0),
            row("a", "gpu.memory", 4864 << 20, 0),
        ],
        ..QueueStatus::default()
    };
    assert_eq!(
        cluster_queue_status(&status)["flavorsUsage"],
        json!([
            {"name": "z", "resources": [{"name": "cpu", "total": "1500m", "borrowed": "500m"},
                                        {"name": "memory", "total": "3Gi", "borrowed": "0"}]},
            {"name": "a", "resources": [{"name": "nvidia.com/gpu", "total": "8", "borrowed": "0"},
                                        {"name": "gpu.memory", "total": "4864Mi", "borrowed": "0"}]},
        ])
    );
    assert!(local_queue_status(&status)["flavorsUsage"][0]["resources"][0].get("borrowed").is_none());
}

#[test]
fn an_admission_survives_writing_and_reading() {
    let object = json!({"metadata": {"name": "w", "namespace": "n", "resourceVersion": "7"}, "spec": {"podSets": [
        {"name": "main", "count": 4, "template": {"spec": {"containers": [{"name": "c"}]}}}]},
        "status": {"admission": {"clusterQueue": "q", "podSetAssignments": [
            {"name": "main", "count": 4, "flavors": {"cpu": "a"}, "resourceUsage": {"cpu": "4"},
             "topologyAssignment": {"levels": ["block", "host"], "slices": [
                {"domainCount": 2, "valuesPerLevel": [{"universal": "b"}, {"individual": {"prefix": "n", "roots": ["1", "2"]}}],
                 "podCounts": {"individual": [3, 1]}}]}}]}}});
    let read = workload(&object).unwrap();
    let admission = read.status.admission.clone().unwrap();
    let topology = admission.assignments[0].topology.as_ref().unwrap();
    assert_eq!(topology.domains, [(vec!["b".into(), "n1".into()], 3), (vec!["b".into(), "n2".into()], 1)]);
    let update = WorkloadUpdate { admission: Some(Some(admission)), ..WorkloadUpdate::default() };
    let mut of_devices = update.clone();
    if let Some(Some(a)) = &mut of_devices.admission {
        a.assignments[0].resource_usage = [("gpu.memory".into(), 4864 << 20)].into();
    }
    let usage = |update: &WorkloadUpdate| {
        let status = workload_status_patch(&object, update);
        status["admission"]["podSetAssignments"][0]["resourceUsage"]["gpu.memory"].clone()
    };
    assert_eq!(usage(&of_devices), "5100273664");
    of_devices.bytes = vec!["gpu.memory".into()];
    assert_eq!(usage(&of_devices), "4864Mi");
    let mut again = object.clone();
    again["status"] = workload_status_patch(&object, &update);
    assert_eq!(workload(&again).unwrap(), read);
    let places = |o: &Value| o["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"].clone();
    let names = |o: &Value| places(o)["slices"][0]["valuesPerLevel"][1]["individual"].clone();
    assert_eq!(names(&again), json!({"roots": ["n1", "n2"]}));
    let mut many = update;
    if let Some(Some(a)) = &mut many.admission {
        let domains = (0..100).map(|i| (vec!["b".to_owned(), format!("n{i}")], 1)).collect();
        a.assignments[0].topology.as_mut().unwrap().domains = domains;
    }
    again["status"] = workload_status_patch(&object, &many);
    assert_eq!(names(&again)["prefix"], "n", "what many names share is written once");
}

#[test]
fn requests_of_a_workload_that_got_its_quota_are_removed() {
    let requests = json!([{"name": "main", "resources": {"cpu": "1"}}]);
    let object = json!({"metadata": {"name": "w", "namespace": "n", "resourceVersion": "7"}, "spec": {},
        "status": {"resourceRequests": requests}});
    let update = WorkloadUpdate { resource_requests: Some(Vec::new()), ..WorkloadUpdate::default() };
    assert_eq!(workload_status_patch(&object, &update).get("resourceRequests"), Some(&Value::Null));
}

/// Kueue's `SetRequeueState`: the time of a check is not one of the attempts that `backoffLimitCount` limits.
#[test]
fn a_backoff_that_is_not_counted_has_no_count() {
    let object = json!({"metadata": {"name": "w", "namespace": "n", "resourceVersion": "7"}, "spec": {}});
    let state = |count: i32| {
        let state = RequeueState { count, requeue_at: Some(Time::from_seconds(60)) };
        let update = WorkloadUpdate { requeue_state: Some(Some(state)), ..WorkloadUpdate::default() };
        workload_status_patch(&object, &update)["requeueState"].clone()
    };
    let at = "1970-01-01T00:01:00Z";
    assert_eq!(state(0), json!({"count": null, "requeueAt": at}));
    assert_eq!(state(2), json!({"count": 2, "requeueAt": at}));
}

#[test]
fn a_flavor_says_whether_a_cluster_autoscaler_adds_nodes() {
    let flavor = |value: &str| {
        let annotations = json!({"plimsoll.dev/autoscaled": value});
        resource_flavor(&json!({"metadata": {"name": "f", "annotations": annotations}}))
    };
    assert!(flavor("true").unwrap().autoscaled);
    assert!(!flavor("false").unwrap().autoscaled);
    assert!(!resource_flavor(&json!({"metadata": {"name": "f"}})).unwrap().autoscaled);
    let error = flavor("yes").unwrap_err().to_string();
    assert!(error.starts_with("metadata.annotations[plimsoll.dev/autoscaled]: Unsupported value"), "{error}");
}

#[test]
fn a_flavor_says_what_new_nodes_look_like() {
    let flavor = |template: &str| {
        let annotations = json!({"plimsoll.dev/node-template": template});
        resource_flavor(&json!({
            "metadata": {"name": "spot", "annotations": annotations},
            "spec": {"nodeLabels": {"pool": "spot"}, "nodeTaints": [{"key": "spot", "effect": "NoSchedule"}]},
        }))
    };
    let template = json!({"metadata": {"labels": {"zone": "a"}}, "status": {"allocatable": {"cpu": "8"}}});
    let read = flavor(&template.to_string()).unwrap();
    let node = read.new_node.unwrap();
    assert!(read.autoscaled);
    assert_eq!((node.allocatable["cpu"], node.allocatable["pods"]), (8000, 110));
    assert_eq!((node.labels.len(), node.taints.len()), (2, 1));
    let refused = |template: &str| flavor(template).unwrap_err().to_string();
    let field = "metadata.annotations[plimsoll.dev/node-template]: ";
    for (template, want) in [
        ("8 CPUs", "Invalid value: must be a Node in JSON: "),
        ("[]", "Invalid value: must be a Node in JSON"),
        ("{}", "Required value: status.allocatable says what such a node has"),
        (r#"{"status": {"allocatable": {"cpu": "many"}}}"#, "Invalid value: "),
    ] {
        let error = refused(template);
        assert!(error.starts_with(&format!("{field}{want}")), "{error}");
    }
}

#[test]
fn malformed_objects_are_refused_with_the_field() {
    let bad = json!({"metadata": {"name": "q"}, "spec": {"resourceGroups": [{"coveredResources": ["cpu"],
        "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "many"}]}]}]}});
    assert!(cluster_queue(&bad).unwrap_err().to_string().starts_with("nominalQuota: cannot parse"));
    assert!(workload(&json!({})).is_err());
}
