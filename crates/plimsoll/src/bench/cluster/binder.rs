//! A client that binds pods and decides nothing, beside schedulers that do.

use std::collections::HashSet;

use bytes::Bytes;
use http::Method;
use plimsoll_runtime::api::{Api, PODS};
use serde_json::json;

use super::answerer::Answerer;
use super::make::CONNECTIONS;
use super::watch::Pod;
use crate::bench::client::{JSON, Target};
use crate::bench::load::{self, Shot};
use crate::bench::placement::workload::{NAMESPACE, Nodes};

fn binding(pod: &str, node: &str) -> Shot {
    let body = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
    let path = format!("{}/binding", PODS.object(NAMESPACE, pod));
    Shot { path, body: Bytes::from(body.to_string()) }
}

/// Binds pods that are there, each to the next node.
pub async fn bind_all(
    target: &Target,
    pods: impl Iterator<Item = String>,
    nodes: &Nodes,
) -> anyhow::Result<()> {
    let shots = pods.enumerate().map(|(i, pod)| binding(&pod, &nodes.nth(i))).collect();
    load::post(target, CONNECTIONS, JSON, shots, &load::bar(true, 0, "")).await?;
    Ok(())
}

/// Binds pods as they come, each to the next node, until it is dropped.
pub async fn start(api: &Api, target: &Target, nodes: &Nodes) -> anyhow::Result<Answerer> {
    let (mut known, mut next, nodes) = (HashSet::new(), 0, nodes.clone());
    let how = (Method::POST, JSON);
    Answerer::start::<Pod>((api, target), PODS.collection(NAMESPACE), how, move |pod| {
        (pod.is_pending() && known.insert(pod.name().to_owned())).then(|| {
            next += 1;
            binding(pod.name(), &nodes.nth(next - 1))
        })
    })
    .await
}
