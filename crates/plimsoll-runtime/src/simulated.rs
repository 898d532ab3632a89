//! Runs the simulated kubelets (`plimsoll-kubelet`) against an API server: watches in, writes out.

use std::collections::HashMap;
use std::time::Duration;

use plimsoll_api::event::{EventRecord, ObjectReference};
use plimsoll_api::json;
use plimsoll_client::fault;
use plimsoll_client::reflector::Delta;
use plimsoll_kubelet::kubelet::view::PodView;
use plimsoll_kubelet::{Kubelet, MILLISECOND, Options, Write};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Error, LEASES, NODES, PODS, PatchKind, Resource};
use crate::event_recorder::Recorder;
use crate::throttle::Throttle;
use crate::{clock, ingest};

/// Most writes under way.
const CONCURRENCY: usize = 128;
/// Pause before a lost write is made again.
const RETRY: i64 = 200 * MILLISECOND;

enum Input {
    Pod(Box<PodView>),
    PodGone(String),
    /// `lost`: it was given up for lack of signs of life.
    Node {
        name: String,
        uid: String,
        ip: Option<String>,
        lost: bool,
    },
    NodeGone(String),
    Written {
        uid: String,
        lost: bool,
    },
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NodeView {
    status: NodeStatus,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NodeStatus {
    addresses: Option<Vec<Address>>,
    conditions: Option<Vec<Condition>>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

#[derive(Deserialize)]
struct Address {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

/// Runs until stopped.
pub async fn run(api: Api, options: Options, stop: CancellationToken) {
    let (tx, mut rx) = mpsc::unbounded_channel();
    let (recorder, writer) = Recorder::new(api.clone(), Throttle::default());
    // They end with this task, and their panics are its own.
    let mut feeds = tokio::task::JoinSet::new();
    feeds.spawn(writer.run());
    let mut feed = |resource: Resource| {
        let (tx, api, stop) = (tx.clone(), api.clone(), stop.clone());
        feeds.spawn(async move {
            ingest::reflector(api, resource)
                .run(stop, move |delta| {
                    if let Some(input) = read(resource, delta) {
                        let _ = tx.send(input);
                    }
                })
                .await;
        });
    };
    // Pods on unknown nodes are ignored, so nodes go first.
    feed(NODES);
    tokio::time::sleep(Duration::from_millis(20)).await;
    feed(PODS);
    let mut kubelet = Kubelet::new(options);
    let mut waiting: HashMap<String, PodView> = HashMap::new();
    let mut lanes: HashMap<String, std::collections::VecDeque<Write>> = HashMap::new();
    let mut tasks = tokio::task::JoinSet::new();
    let mut ready: std::collections::VecDeque<(String, Write)> = std::collections::VecDeque::new();
    loop {
        fault::point("kubelets", "");
        for write in kubelet.step(clock::now().0) {
            if let Write::Event { .. } = write {
                record(&recorder, write);
                continue;
            }
            let lane = lane(&write);
            match lanes.get_mut(&lane) {
                Some(queue) => queue.push_back(write),
                None => {
                    lanes.insert(lane.clone(), std::collections::VecDeque::new());
                    ready.push_back((lane, write));
                }
            }
        }
        while tasks.len() < CONCURRENCY
            && let Some((lane, write)) = ready.pop_front()
        {
            let api = api.clone();
            tasks.spawn(async move {
                let lost = carry_out(&api, &write).await;
                (lane, lost)
            });
        }
        let sleep = kubelet.next_wake().map_or(Duration::from_secs(3600), |at| {
            let left = Duration::from_nanos(u64::try_from(at.saturating_sub(clock::now().0)).unwrap_or(0));
            left.min(clock::SLICE)
        });
        let input = tokio::select! {
            () = stop.cancelled() => return,
            Some(Err(e)) = feeds.join_next() => match e.is_panic() {
                true => std::panic::resume_unwind(e.into_panic()),
                false => continue,
            },
            input = rx.recv() => input,
            Some(done) = tasks.join_next(), if !tasks.is_empty() => {
                let (lane, lost) = match done {
                    Ok(done) => done,
                    Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
                    Err(_) => continue,
                };
                match lanes.get_mut(&lane).and_then(std::collections::VecDeque::pop_front) {
                    Some(write) => ready.push_back((lane.clone(), write)),
                    None => { lanes.remove(&lane); }
                }
                Some(Input::Written { uid: lane, lost })
            }
            () = tokio::time::sleep(sleep) => continue,
        };
        let Some(input) = input else { return };
        report_if_lost(&api, &input);
        take(&mut kubelet, &mut waiting, input);
        for _ in 0..1024 {
            let Ok(input) = rx.try_recv() else { break };
            report_if_lost(&api, &input);
            take(&mut kubelet, &mut waiting, input);
        }
    }
}

/// A node that was given up while its kubelet could not be heard reports again.
fn report_if_lost(api: &Api, input: &Input) {
    let Input::Node { name, lost: true, .. } = input else { return };
    let (api, name) = (api.clone(), name.clone());
    tokio::spawn(async move {
        let status = json!({"status": {"conditions": plimsoll_kubelet::nodes::conditions(clock::now().0)}});
        if let Err(e) = api.patch(NODES, "", &name, "status", PatchKind::Strategic, &status).await {
            tracing::debug!(error = %e, name, "a node's report was lost");
        }
    });
}

fn read(resource: Resource, delta: Delta<'_>) -> Option<Input> {
    match delta {
        Delta::Upsert { meta, bytes } if resource == NODES => {
            let node: NodeView = serde_json::from_slice(bytes).unwrap_or_default();
            let addresses = node.status.addresses.unwrap_or_default();
            let mut conditions = node.status.conditions.into_iter().flatten();
            let lost = conditions.any(|c| c.kind == "Ready" && c.status == "Unknown");
            let ip = addresses.into_iter().find(|a| a.kind == "InternalIP").map(|a| a.address);
            Some(Input::Node { name: meta.name.to_string(), uid: meta.uid.to_string(), ip, lost })
        }
        Delta::Upsert { bytes, .. } => serde_json::from_slice(bytes).ok().map(|p| Input::Pod(Box::new(p))),
        Delta::Delete { name, .. } if resource == NODES => Some(Input::NodeGone(name.to_owned())),
        Delta::Delete { uid, .. } => Some(Input::PodGone(uid.to_owned())),
        Delta::Synced { .. } | Delta::Absent => None,
    }
}

/// Pods that came before their node wait for it.
fn take(kubelet: &mut Kubelet, waiting: &mut HashMap<String, PodView>, input: Input) {
    let now = clock::now().0;
    match input {
        Input::Pod(pod) => {
            if pod.spec.node_name.is_empty() {
                return;
            }
            if kubelet.has_node(&pod.spec.node_name) {
                kubelet.handle_pod(now, *pod);
            } else {
                waiting.insert(pod.metadata.uid.clone(), *pod);
            }
        }
        Input::PodGone(uid) => {
            waiting.remove(&uid);
            kubelet.forget_pod(&uid);
        }
        Input::Node { name, uid, ip, .. } => {
            let new = !kubelet.has_node(&name);
            kubelet.handle_node(now, &name, &uid, ip.as_deref());
            if new && !waiting.is_empty() {
                let mine: Vec<String> = waiting
                    .iter()
                    .filter(|(_, p)| p.spec.node_name == name)
                    .map(|(u, _)| u.clone())
                    .collect();
                for uid in mine {
                    if let Some(pod) = waiting.remove(&uid) {
                        kubelet.handle_pod(now, pod);
                    }
                }
            }
        }
        Input::NodeGone(name) => kubelet.forget_node(&name),
        Input::Written { uid, lost } => {
            if lost {
                kubelet.retry(now.saturating_add(RETRY), &uid);
            }
        }
    }
}

/// Writes about one pod go one after the other; its UID is the lane.
fn lane(write: &Write) -> String {
    match write {
        Write::PodStatus { uid, .. } | Write::PodDelete { uid, .. } | Write::Event { uid, .. } => uid.clone(),
        Write::Lease { node, .. } => format!("lease/{node}"),
    }
}

fn record(recorder: &Recorder, write: Write) {
    let Write::Event { namespace, name, uid, node, container, reason, message } = write else { return };
    let field_path =
        if container.is_empty() { String::new() } else { format!("spec.containers{{{container}}}") };
    recorder.record(EventRecord {
        regarding: ObjectReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace,
            name,
            uid,
            field_path,
            ..ObjectReference::default()
        },
        warning: false,
        reason: reason.to_owned(),
        action: String::new(),
        message,
        reporting_controller: "kubelet".into(),
        reporting_instance: node,
    });
}

/// Carries out one write; says whether it was lost and has to be made again.
async fn carry_out(api: &Api, write: &Write) -> bool {
    let done = match write {
        Write::PodStatus { namespace, name, patch, .. } => {
            api.patch(PODS, namespace, name, "status", PatchKind::Strategic, patch).await
        }
        Write::PodDelete { namespace, name, uid } => api.delete(PODS, namespace, name, uid, Some(0)).await,
        Write::Lease { node, object } => renew(api, node, object).await,
        Write::Event { .. } => return false,
    };
    match done {
        Ok(_) => false,
        // Gone, or another pod of that name.
        Err(e) if e.is_not_found() || e.is_conflict() => false,
        Err(e) => {
            tracing::debug!(error = %e, "a kubelet's write was lost");
            !matches!(write, Write::Lease { .. })
        }
    }
}

async fn renew(api: &Api, node: &str, object: &Value) -> Result<Value, Error> {
    let patch = json!({"spec": object["spec"]});
    match api.patch(LEASES, "kube-node-lease", node, "", PatchKind::Merge, &patch).await {
        Err(e) if e.is_not_found() => api.create(LEASES, object).await,
        other => other,
    }
}

/// Creates nodes that do not exist yet, at most [`CONCURRENCY`] at once.
///
/// # Errors
/// The first that could not be created.
pub async fn create_nodes(api: &Api, nodes: Vec<Value>) -> Result<(), Error> {
    let mut tasks = tokio::task::JoinSet::new();
    for node in nodes {
        if tasks.len() >= CONCURRENCY
            && let Some(Ok(done)) = tasks.join_next().await
        {
            done?;
        }
        let api = api.clone();
        tasks.spawn(async move { create_node(&api, node).await });
    }
    while let Some(done) = tasks.join_next().await {
        if let Ok(done) = done {
            done?;
        }
    }
    Ok(())
}

async fn create_node(api: &Api, node: Value) -> Result<(), Error> {
    let status = json!({"status": node["status"]});
    match api.create(NODES, &node).await {
        Ok(_) => {}
        Err(e) if e.is_conflict() => return Ok(()),
        Err(e) => return Err(e),
    }
    let name = json::name(&node).to_owned();
    api.patch(NODES, "", &name, "status", PatchKind::Merge, &status).await?;
    // The API server taints a new node until a controller has seen it ready (admission plugin TaintNodesByCondition).
    let fresh = api.get(NODES, "", &name).await?;
    let declared = json::list(&node, &["spec", "taints"]);
    let taints: Vec<Value> = json::list(&fresh, &["spec", "taints"])
        .iter()
        .filter(|t| t["key"] != "node.kubernetes.io/not-ready" || declared.contains(t))
        .cloned()
        .collect();
    if taints.len() != json::list(&fresh, &["spec", "taints"]).len() {
        let taints = if taints.is_empty() { Value::Null } else { Value::Array(taints) };
        api.patch(NODES, "", &name, "", PatchKind::Merge, &json!({"spec": {"taints": taints}})).await?;
    }
    Ok(())
}
