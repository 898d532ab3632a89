//! Kubeflow's jobs (Kueue `pkg/controller/jobs/kubeflow/jobs/*/*_test.go`, `pkg/controller/jobs/mpijob/*_test.go`).

use super::*;
use crate::kinds::kubeflow::{JAX_JOB, MPI_JOB, PADDLE_JOB, PYTORCH_JOB, TF_JOB, XGBOOST_JOB};
use crate::workload::priority;

/// A job whose replica types have these numbers of pods; `None`: no number.
fn kubeflow(table: &JobKind, field: &str, replicas: &[(&str, Option<i64>)]) -> Value {
    let mut object = job(table, &json!({"runPolicy": {"cleanPodPolicy": "None"}}));
    for (kind, count) in replicas {
        let mut replica = json!({"template": template(), "restartPolicy": "OnFailure"});
        if let Some(count) = count {
            replica["replicas"] = json!(count);
        }
        object["spec"][field][*kind] = replica;
    }
    object
}

#[test]
fn the_replica_types_of_a_job_become_podsets_in_their_order() {
    type Row<'a> = (&'static JobKind, &'a str, &'a [(&'a str, Option<i64>)], &'a [(&'a str, i64)]);
    let table: [Row<'_>; 8] = [
        (
            &PYTORCH_JOB,
            "pytorchReplicaSpecs",
            &[("Worker", Some(3)), ("Master", None)],
            &[("master", 1), ("worker", 3)],
        ),
        (&PYTORCH_JOB, "pytorchReplicaSpecs", &[("Worker", Some(2))], &[("worker", 2)]),
        (
            &TF_JOB,
            "tfReplicaSpecs",
            &[
                ("Evaluator", Some(1)),
                ("Worker", Some(2)),
                ("PS", Some(3)),
                ("Chief", Some(1)),
                ("Other", Some(9)),
            ],
            &[("chief", 1), ("ps", 3), ("worker", 2), ("evaluator", 1)],
        ),
        (
            &XGBOOST_JOB,
            "xgbReplicaSpecs",
            &[("Master", Some(1)), ("Worker", Some(2))],
            &[("master", 1), ("worker", 2)],
        ),
        (
            &PADDLE_JOB,
            "paddleReplicaSpecs",
            &[("Master", Some(1)), ("Worker", Some(2))],
            &[("master", 1), ("worker", 2)],
        ),
        (&JAX_JOB, "jaxReplicaSpecs", &[("Worker", Some(4))], &[("worker", 4)]),
        (
            &MPI_JOB,
            "mpiReplicaSpecs",
            &[("Worker", Some(3)), ("Launcher", None)],
            &[("launcher", 1), ("worker", 3)],
        ),
        (&MPI_JOB, "mpiReplicaSpecs", &[("Launcher", Some(1))], &[("launcher", 1)]),
    ];
    for (kind, field, replicas, want) in table {
        let object = kubeflow(kind, field, replicas);
        let want: Vec<(String, i64)> = want.iter().map(|(n, c)| ((*n).to_owned(), *c)).collect();
        assert_eq!(counts(kind, &object), want, "{object}");
        let ranks = json!({"podIndexLabel": "training.kubeflow.org/replica-index"});
        assert!(table_job(kind, &object).pod_sets().iter().all(|p| p["topologyRequest"] == ranks));
        lives(kind, &object);
    }
}

/// As in Kueue's example of an XGBoostJob.
#[test]
fn fractional_amounts_become_texts() {
    let mut object = kubeflow(&XGBOOST_JOB, "xgbReplicaSpecs", &[("Master", Some(1))]);
    let requests = json!({"cpu": 0.5, "memory": "256Mi", "example.com/gpu": 1});
    object["spec"]["xgbReplicaSpecs"]["Master"]["template"]["spec"] =
        json!({"containers": [{"name": "c", "resources": {"requests": requests}}]});
    let pod_sets = table_job(&XGBOOST_JOB, &object).pod_sets();
    let want = json!({"cpu": "500m", "memory": "256Mi", "example.com/gpu": 1});
    assert_eq!(pod_sets[0]["template"]["spec"]["containers"][0]["resources"]["requests"], want);
}

#[test]
fn their_conditions_and_replicas_say_what_they_do() {
    for table in [&PYTORCH_JOB, &MPI_JOB] {
        let at = |conditions: &[(&str, &str)]| {
            let row =
                |(kind, status): &(&str, &str)| json!({"type": kind, "status": status, "message": kind});
            json!({"conditions": conditions.iter().map(row).collect::<Vec<_>>()})
        };
        assert_eq!(end(table, &at(&[("Running", "True")])), None);
        assert_eq!(end(table, &at(&[("Succeeded", "False")])), None);
        let done = at(&[("Running", "False"), ("Succeeded", "True")]);
        assert_eq!(end(table, &done), Some((true, "Succeeded".into())));
        assert_eq!(end(table, &at(&[("Failed", "True")])), Some((false, "Failed".into())));
        let of = |status: Value| {
            let mut object = job(table, &json!({}));
            object["status"] = status;
            let job = table_job(table, &object);
            (job.pods_ready(), job.is_active(QuotaReleaseStrategy::OnTerminal), job.reclaimable_pods())
        };
        assert_eq!(of(at(&[("Running", "True")])), (true, false, None));
        assert_eq!(of(at(&[("Running", "False")])), (false, false, None));
        assert_eq!(
            of(json!({"replicaStatuses": {"Master": {}, "Worker": {"active": 1}}})),
            (false, true, None)
        );
        assert_eq!(
            of(json!({"replicaStatuses": {"Worker": {"active": 0, "succeeded": 2}}})),
            (false, false, None)
        );
    }
}

/// Scheduling policy, then the templates in their order.
#[test]
fn the_priority_class_has_an_order() {
    let mut fixture = Fixture::default();
    for (value, name) in ["policy", "master", "worker"].into_iter().enumerate() {
        fixture.put(Kind::PriorityClass, json!({"metadata": {"name": name}, "value": value}));
    }
    for (policy, master, worker, want) in [
        ("policy", "master", "worker", "policy"),
        ("", "master", "worker", "master"),
        ("", "", "worker", "worker"),
    ] {
        let mut object = kubeflow(&TF_JOB, "tfReplicaSpecs", &[("Worker", Some(1)), ("Master", Some(1))]);
        if !policy.is_empty() {
            object["spec"]["runPolicy"]["schedulingPolicy"] = json!({"priorityClass": policy});
        }
        for (kind, class) in [("Master", master), ("Worker", worker)] {
            if !class.is_empty() {
                object["spec"]["tfReplicaSpecs"][kind]["template"]["spec"]["priorityClassName"] =
                    json!(class);
            }
        }
        let job = table_job(&TF_JOB, &object);
        let found = priority(&object, job.priority_class(), &job.pod_sets(), fixture.env(NOW)).unwrap();
        assert_eq!(found.class.map(|c| c.2).as_deref(), Some(want));
    }
}

#[test]
fn workers_of_an_mpi_job_come_after_a_launcher_that_works() {
    const OFFSET: &str = "kueue.x-k8s.io/pod-index-offset";
    let go = |as_worker: bool, grouped: bool, worker: bool| {
        let mut object = kubeflow(&MPI_JOB, "mpiReplicaSpecs", &[("Launcher", None)]);
        object["spec"]["runLauncherAsWorker"] = json!(as_worker);
        if worker {
            object["spec"]["mpiReplicaSpecs"]["Worker"] = json!({"template": template()});
        }
        if grouped {
            let annotations = json!({"kueue.x-k8s.io/podset-group-name": "g"});
            object["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["metadata"]["annotations"] =
                annotations;
        }
        mutate(&review(&MPI_JOB, None), &mut object, Fixture::default().env(NOW));
        let template = &object["spec"]["mpiReplicaSpecs"]["Worker"]["template"];
        json::annotation(template, OFFSET).map(str::to_owned)
    };
    assert_eq!(go(true, false, true).as_deref(), Some("1"));
    assert_eq!((go(false, false, true), go(true, true, true), go(true, false, false)), (None, None, None));
}

#[test]
fn refusals_name_the_replica_type() {
    let mut object = kubeflow(&JAX_JOB, "jaxReplicaSpecs", &[("Worker", Some(1))]);
    object["spec"]["jaxReplicaSpecs"]["Worker"]["template"]["metadata"]["annotations"] =
        json!({"kueue.x-k8s.io/podset-slice-required-topology": "rack"});
    let want = "spec.jaxReplicaSpecs[Worker].template.metadata.annotations[kueue.x-k8s.io/podset-slice-size]: Required value";
    let refusal = refusal(&JAX_JOB, &object, None);
    assert!(refusal.starts_with(want), "{refusal}");
    json::set(&mut object, &["metadata", "annotations", names::ELASTIC], json!("true"));
    let refusal = super::refusal(&JAX_JOB, &object, None);
    assert!(
        refusal.contains("elastic job is not supported for \"kubeflow.org/v1, Kind=JAXJob\""),
        "{refusal}"
    );
}
