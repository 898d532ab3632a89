//! Gate `ShortWorkloadNames`: whatever makes a workload gives it a name that can be the value of a label.

use plimsoll_api::kueue::WorkloadNames;

use super::*;
use crate::{Config, CustomKind, config};

/// Name of an owner that no name of a workload has room for.
fn long() -> String {
    "n".repeat(100)
}

/// The names of the workloads that a reconcile creates.
fn made(kind: Kind, key: &Key, object: &Value, names: WorkloadNames) -> Vec<String> {
    let mut cache = Fixture::with_config(Config { workload_names: names, ..Config::default() });
    cache.put(kind, object.clone());
    let plan = run(&cache, key);
    let created = plan.iter().filter_map(|write| match write {
        Write::Create(resource, object) if resource.kind == "Workload" => Some(json::name(object).to_owned()),
        _ => None,
    });
    created.collect()
}

fn object(spec: &Value, annotations: &Value) -> Value {
    json!({"metadata": {"namespace": "ns", "name": long(), "uid": "u", "resourceVersion": "1", "generation": 1,
                        "labels": {names::QUEUE: "q", "kueue.x-k8s.io/managed": "true"}, "annotations": annotations},
           "spec": spec})
}

#[test]
fn workloads_of_all_jobs_have_short_names_where_the_gate_says_so() {
    let pod = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
                     "schedulingGates": [{"name": names::GATE}]});
    let template = json!({"spec": pod});
    let job = json!({"suspend": true, "parallelism": 2, "completions": 2, "template": template});
    let job_set =
        json!({"suspend": true, "replicatedJobs": [{"name": "r", "replicas": 1, "template": {"spec": job}}]});
    let groups = json!({"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template}});
    let set = json!({"replicas": 2, "template": template});
    let (lws, jobset) = (CustomKind::LEADER_WORKER_SET, CustomKind::JOB_SET);
    let table = [
        (Kind::Job, config::BATCH_JOB, object(&job, &json!({})), 1),
        (Kind::Job, config::BATCH_JOB, object(&job, &json!({names::ELASTIC: "true"})), 1),
        (Kind::Pod, config::POD, object(&pod, &json!({})), 1),
        (Kind::StatefulSet, config::STATEFUL_SET, object(&set, &json!({})), 1),
        (Kind::Custom(lws), lws.framework(), object(&groups, &json!({})), 2),
        (Kind::Custom(jobset), jobset.framework(), object(&job_set, &json!({})), 1),
    ];
    for (kind, framework, object, count) in table {
        let key = Key::job(framework, "ns", &long());
        let (before, after) =
            (made(kind, &key, &object, WorkloadNames::Long), made(kind, &key, &object, WorkloadNames::Short));
        assert_eq!((before.len(), after.len()), (count, count), "{framework}");
        for (long, short) in before.iter().zip(&after) {
            assert!(long.len() > 100 && short.len() == 63, "{framework}: {long} {short}");
            // The hash is that of the whole name, whatever of it is left.
            assert_eq!((&long[..57], &long[long.len() - 5..]), (&short[..57], &short[58..]), "{framework}");
        }
    }
}
