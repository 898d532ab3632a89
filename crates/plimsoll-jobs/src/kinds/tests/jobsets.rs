//! JobSets (Kueue `pkg/controller/jobs/jobset/jobset_controller_test.go`, `jobset_webhook_test.go`).

use super::*;
use crate::generic_job::ReclaimablePod;

const TABLE: &JobKind = &jobset::JOB_SET;

fn replicated(name: &str, replicas: i64, job: &Value) -> Value {
    let mut spec = job.clone();
    spec["template"] = template();
    json!({"name": name, "replicas": replicas, "template": {"spec": spec}, "unknownField": 1})
}

fn job_set(replicated: &[Value]) -> Value {
    job(TABLE, &json!({"replicatedJobs": replicated, "network": {"enableDNSHostnames": true}}))
}

#[test]
fn a_job_set_lives() {
    let two = [
        replicated("leader", 1, &json!({"parallelism": 1, "completions": 1})),
        replicated("Workers", 3, &json!({"parallelism": 4, "completions": 2})),
    ];
    let object = job_set(&two);
    assert_eq!(counts(TABLE, &object), [("leader".into(), 1), ("workers".into(), 6)]);
    lives(TABLE, &object);
}

#[test]
fn pods_have_ranks() {
    let pod_sets = table_job(TABLE, &job_set(&[replicated("a", 3, &json!({}))])).pod_sets();
    let want = json!({"podIndexLabel": "batch.kubernetes.io/job-completion-index",
                      "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index", "subGroupCount": 3});
    assert_eq!(pod_sets[0]["topologyRequest"], want);
}

#[test]
fn its_conditions_say_how_it_ended() {
    let ended = |kind: &str, status: &str| {
        end(TABLE, &json!({"conditions": [{"type": kind, "status": status, "message": "m"}]}))
    };
    assert_eq!(ended("Completed", "True"), Some((true, "m".into())));
    assert_eq!(ended("Failed", "True"), Some((false, "m".into())));
    for (kind, status) in [("Completed", "False"), ("Failed", "Unknown"), ("Suspended", "True")] {
        assert_eq!(ended(kind, status), None, "{kind} {status}");
    }
}

#[test]
fn its_status_says_what_is_ready_and_what_is_over() {
    let spec = [
        replicated("a", 1, &json!({"parallelism": 1})),
        replicated("b", 3, &json!({"parallelism": 3, "completions": 2})),
    ];
    // Status of a and b as (ready, succeeded, active); whether pods are ready, whether any runs, pods that are over.
    type Row<'a> = ([(i64, i64, i64); 2], bool, bool, &'a [(&'a str, i64)]);
    let table: [Row<'_>; 6] = [
        ([(0, 0, 0), (0, 0, 0)], false, false, &[]),
        ([(1, 0, 1), (3, 0, 3)], true, true, &[]),
        ([(1, 0, 1), (2, 0, 3)], false, true, &[]),
        ([(0, 1, 0), (2, 1, 2)], true, true, &[("a", 1), ("b", 2)]),
        ([(0, 1, 0), (0, 3, 0)], true, false, &[("a", 1), ("b", 6)]),
        // More than there are.
        ([(0, 2, 0), (0, 0, 1)], false, true, &[]),
    ];
    for (status, ready, active, over) in table {
        let row = |name: &str, (ready, succeeded, active): (i64, i64, i64)| json!({"name": name, "ready": ready, "succeeded": succeeded, "active": active});
        let mut object = job_set(&spec);
        object["status"] = json!({"replicatedJobsStatus": [row("b", status[1]), row("a", status[0])]});
        let job = table_job(TABLE, &object);
        assert_eq!(
            (job.pods_ready(), job.is_active(QuotaReleaseStrategy::OnTerminal)),
            (ready, active),
            "{status:?}"
        );
        let over: Vec<ReclaimablePod> =
            over.iter().map(|(name, count)| ReclaimablePod { name: (*name).into(), count: *count }).collect();
        assert_eq!(job.reclaimable_pods(), Some(over), "{status:?}");
    }
    assert!(!table_job(TABLE, &job_set(&spec)).pods_ready());
}

#[test]
fn topology_annotations_are_validated_where_they_are() {
    let mut object = job_set(&[replicated("a", 1, &json!({})), replicated("b", 1, &json!({}))]);
    assert_eq!(refusal(TABLE, &object, None), "");
    let annotations = json!({"kueue.x-k8s.io/podset-required-topology": "rack", "kueue.x-k8s.io/podset-preferred-topology": "rack"});
    object["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["metadata"]["annotations"] =
        annotations;
    let refusal = refusal(TABLE, &object, None);
    let path = "spec.replicatedJobs[1].template.spec.template.metadata.annotations: Invalid value: ";
    assert!(refusal.starts_with(path), "{refusal}");
}

/// Kueue `tas_validation_test.go`.
#[test]
fn slices_fit_their_podset_and_groups_are_pairs() {
    let at = |i: usize| format!("spec.replicatedJobs[{i}].template.spec.template.metadata.annotations");
    let refused = |pods: &[i64], annotations: &[Value]| {
        let mut jobs = Vec::new();
        for (i, (count, annotations)) in pods.iter().zip(annotations).enumerate() {
            let mut job = replicated(&format!("j{i}"), *count, &json!({}));
            job["template"]["spec"]["template"]["metadata"]["annotations"] = annotations.clone();
            jobs.push(job);
        }
        refusal(TABLE, &job_set(&jobs), None)
    };
    let slice = |size: &str| json!({"kueue.x-k8s.io/podset-slice-required-topology": "rack", "kueue.x-k8s.io/podset-slice-size": size});
    assert_eq!(refused(&[4], &[slice("4")]), "");
    let want = format!(
        "{}[kueue.x-k8s.io/podset-slice-size]: Invalid value: \"5\": must not be greater than pod set count 4",
        at(0)
    );
    assert_eq!(refused(&[4], &[slice("5")]), want);
    // A number of more than 32 bits is none.
    let want = format!(
        "{}[kueue.x-k8s.io/podset-slice-size]: Invalid value: \"3000000000\": must be a numeric value",
        at(0)
    );
    assert_eq!(refused(&[4], &[slice("3000000000")]), want);
    let group = |mode: &str, level: &str| json!({format!("kueue.x-k8s.io/podset-{mode}-topology"): level, "kueue.x-k8s.io/podset-group-name": "g"});
    let rack = || group("required", "rack");
    assert_eq!(refused(&[1, 4], &[rack(), rack()]), "");
    let want = format!(
        "{}[kueue.x-k8s.io/podset-group-name]: Invalid value: \"g\": can only define groups of exactly 2 pod sets, got: 1 pod set(s)",
        at(0)
    );
    assert_eq!(refused(&[1], &[rack()]), want);
    let named = |name: &str| json!({"kueue.x-k8s.io/podset-required-topology": "rack", "kueue.x-k8s.io/podset-group-name": name});
    let ordered = refused(&[1, 1], &[named("z"), named("a")]);
    assert!(ordered.starts_with(&format!("[{}[", at(0))), "{ordered}");
    let many = refused(&[2, 4], &[rack(), rack()]);
    assert!(many.contains("got: 2 replica(s) and 4 replica(s) in the group"), "{many}");
    for other in [group("preferred", "rack"), group("required", "block")] {
        let mixed = refused(&[1, 4], &[rack(), other]);
        let want = format!("topology consistent with '{}' in group 'g'", at(1));
        assert!(mixed.starts_with(&format!("[{}: Invalid value: must specify", at(0))), "{mixed}");
        assert!(mixed.contains(&want), "{mixed}");
    }
}
