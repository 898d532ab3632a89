//! A fixed amount of what lies between an API server and the engine, for `cargo xtask instructions`: objects of watches
//! become events, and actions become requests whose answers become events. No network, no clock, no randomness. Prints how
//! many there were.
//!
//!     wire_work (pods-json|pods-protobuf|workloads|bind|admit) NUMBER

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::panic, reason = "a program for measuring")]

use std::sync::Arc;

use plimsoll_api::execution::{self, Step};
use plimsoll_api::request::Request;
use plimsoll_api::watch::Meta;
use plimsoll_api::{convert, kueue, object, protobuf};
use plimsoll_engine::{Action, Event};
use plimsoll_queueing::{
    Action as QueueAction, Admission, Condition, KubernetesEvent, PodSetAssignment, Reporter, WorkloadKey,
    WorkloadUpdate, cond,
};
use plimsoll_scheduler::{Action as SchedulerAction, PodRef};
use plimsoll_state::time::Time;
use serde_json::{Value, json};

/// The same list, as kube-apiserver encodes it.
const JSON: &[u8] = include_bytes!("../src/protobuf/testdata/pods.json");
const PROTOBUF: &[u8] = include_bytes!("../src/protobuf/testdata/pods.pb");

fn workload(i: usize) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"namespace": "ns", "name": format!("small-{i}"), "uid": format!("uid-{i}"), "generation": 1,
            "resourceVersion": "1234", "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{"apiVersion": "kueue.x-k8s.io/v1beta2", "fieldsType": "FieldsV1", "manager": "jobs",
                "operation": "Update", "time": "2026-01-01T00:00:00Z",
                "fieldsV1": {"f:spec": {".": {}, "f:active": {}, "f:podSets": {}, "f:queueName": {}}}}]},
        "spec": {"active": true, "queueName": "lq", "priority": 50, "podSets": [{"name": "main", "count": 1,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "pause",
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}}}]},
        "status": {}
    })
}

fn admission(i: usize) -> WorkloadUpdate {
    let condition = |kind: &str, message: &str| Condition {
        kind: kind.into(),
        status: true,
        reason: kind.into(),
        message: message.into(),
        transition: Time::from_seconds(1_767_225_600),
        observed_generation: 1,
    };
    let assignment = PodSetAssignment {
        name: "main".into(),
        flavors: vec![("cpu".into(), "default".into()), ("memory".into(), "default".into())],
        resource_usage: [("cpu".to_owned(), 1000), ("memory".to_owned(), 1 << 30)].into(),
        count: 1,
        ..PodSetAssignment::default()
    };
    let note = |reason: &str, message: &str| KubernetesEvent {
        reporter: Reporter::Scheduler,
        warning: false,
        reason: reason.into(),
        message: message.into(),
    };
    WorkloadUpdate {
        id: 1,
        key: WorkloadKey { namespace: "ns".into(), name: format!("small-{i}") },
        uid: format!("uid-{i}"),
        conditions: vec![
            condition(cond::QUOTA_RESERVED, "Quota reserved in ClusterQueue cq"),
            condition(cond::ADMITTED, "The workload is admitted"),
        ],
        admission: Some(Some(Box::new(Admission {
            cluster_queue: "cq".into(),
            assignments: vec![assignment],
        }))),
        events: vec![
            note("QuotaReserved", "Quota reserved in ClusterQueue cq, wait time since queued was 1s"),
            note("Admitted", "Admitted by ClusterQueue cq, wait time since reservation was 0s"),
        ],
        ..WorkloadUpdate::default()
    }
}

/// Carries out an action that takes one request; `answer` makes the response from the body that was sent.
fn carry_out(action: Action, seen: Option<Arc<Value>>, answer: impl Fn(&Value) -> Value) -> Vec<Event> {
    let Ok(Step::Send(request, then)) = execution::begin(action, seen, Time(0)) else { panic!("no request") };
    let (Request::CreateSubresource { body, .. } | Request::Patch { body, .. }) = &*request else {
        panic!("{request:?}")
    };
    assert!(!serde_json::to_vec(body).unwrap().is_empty());
    let Step::Done(outcome) = then(Ok(answer(body))) else { panic!("more than one request") };
    outcome.answers
}

/// Objects of a list in turn: what a watch reads of each, and what the engine gets.
fn decode(items: &[&[u8]], number: usize) -> usize {
    let mut read = 0;
    for item in items.iter().cycle().take(number) {
        let Meta { namespace, name, uid, resource_version } = Meta::of(item).unwrap();
        let length = namespace.len() + name.len() + uid.len() + resource_version.len();
        read += usize::from(length > 0 && !convert::pod(item).unwrap().name.is_empty());
    }
    read
}

fn run(what: &str, number: usize) -> usize {
    match what {
        "pods-json" => {
            let list: Value = serde_json::from_slice(JSON).unwrap();
            let items: Vec<Vec<u8>> =
                list["items"].as_array().unwrap().iter().map(|i| serde_json::to_vec(i).unwrap()).collect();
            let items: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
            decode(&items, number)
        }
        "pods-protobuf" => decode(&protobuf::list(PROTOBUF).unwrap().items, number),
        "workloads" => {
            let text = workload(0).to_string();
            (0..number)
                .filter(|_| {
                    let object = object::parse(text.as_bytes()).unwrap();
                    kueue::upsert_event(&object).unwrap().is_some()
                })
                .count()
        }
        "bind" => (0..number)
            .map(|i| {
                let pod =
                    PodRef { uid: format!("uid-{i}"), namespace: "ns".into(), name: format!("pod-{i}") };
                let bind = SchedulerAction::Bind { pod, node: "node-000001".into() };
                carry_out(Action::Scheduler(bind), None, |_| Value::Null).len()
            })
            .sum(),
        "admit" => (0..number)
            .map(|i| {
                let seen = workload(i);
                let answer = |body: &Value| {
                    let mut object = seen.clone();
                    object["status"] = body["status"].clone();
                    object
                };
                let update = QueueAction::UpdateWorkload(Box::new(admission(i)));
                carry_out(Action::Queueing(update), Some(Arc::new(seen.clone())), answer).len()
            })
            .sum(),
        _ => panic!("{what}: pods-json, pods-protobuf, workloads, bind or admit"),
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let (Some(what), Some(Ok(number))) = (args.next(), args.next().map(|n| n.parse())) else {
        panic!("usage: wire_work (pods-json|pods-protobuf|workloads|bind|admit) NUMBER");
    };
    println!("{what}: {}", run(&what, number));
}
