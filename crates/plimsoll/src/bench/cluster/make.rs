//! Objects of a workload on the API server.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use http::Method;
use plimsoll_api::json;
use plimsoll_runtime::api::{
    BUDGETS, CSI_DRIVERS, CSI_NODES, DEVICE_CLAIMS, DEVICE_CLASSES, DEVICE_SLICES, NAMESPACES, NODES, PODS,
    PRIORITY_CLASSES, REPLICA_SETS, Resource, SERVICES, STORAGE_CLASSES, VOLUME_CLAIMS, VOLUMES,
};
use serde_json::{Value, json};

use super::writes::Writes;
use crate::bench::client::{JSON, Target};
use crate::bench::load::{self, Shot};
use crate::bench::placement::workload::{Churn, NAMESPACE, Nodes, Pods, Workload};

/// Connections that create.
pub const CONNECTIONS: usize = 64;

/// What workloads consist of.
const KINDS: [Resource; 15] = [
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
    REPLICA_SETS,
    BUDGETS,
    PRIORITY_CLASSES,
    VOLUMES,
    VOLUME_CLAIMS,
    STORAGE_CLASSES,
    CSI_NODES,
    CSI_DRIVERS,
    DEVICE_CLAIMS,
    DEVICE_SLICES,
    DEVICE_CLASSES,
];

fn resource(object: &Value) -> anyhow::Result<Resource> {
    let is = |r: &&Resource| object["kind"] == r.kind && object["apiVersion"] == r.api_version;
    let what = || format!("{} {} is not known here", object["apiVersion"], object["kind"]);
    KINDS.iter().find(is).copied().with_context(what)
}

fn collection(object: &Value) -> anyhow::Result<String> {
    Ok(resource(object)?.collection(json::text(object, &["metadata", "namespace"])))
}

async fn post(target: &Target, objects: &[Value], gap: Duration) -> anyhow::Result<Vec<Instant>> {
    let shot = |o: &Value| Ok(Shot { path: collection(o)?, body: Bytes::from(o.to_string()) });
    let shots = objects.iter().map(shot).collect::<anyhow::Result<Vec<Shot>>>()?;
    Ok(load::paced(target, CONNECTIONS, JSON, shots, gap, &load::bar(true, 0, "")).await?.sent)
}

/// Creates everything but pods: the namespace, other objects, priority classes and nodes.
pub async fn cluster(target: &Target, w: &Workload) -> anyhow::Result<()> {
    let (namespaces, others): (Vec<Value>, Vec<Value>) =
        w.objects.iter().cloned().partition(|o| o["kind"] == NAMESPACES.kind);
    let namespaces = match namespaces.is_empty() {
        true => vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})],
        false => namespaces,
    };
    let priorities: BTreeSet<i64> = w.init.iter().chain([&w.pods]).filter_map(Pods::priority).collect();
    let class = |value: i64| {
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": class_name(value)}, "value": value})
    };
    let (nodes, own) = w.nodes.manifests().context("nodes")?;
    for objects in [namespaces, priorities.into_iter().map(class).collect(), others, own, nodes] {
        post(target, &objects, Duration::ZERO).await?;
    }
    Ok(())
}

fn class_name(value: i64) -> String {
    format!("priority-{value}")
}

/// Pods to be created.
pub struct Batch(Vec<Value>, Duration);

/// Makes a set of pods ready: what each has for itself is created.
pub async fn prepare(target: &Target, pods: &Pods, set: usize) -> anyhow::Result<Batch> {
    let (mut manifests, own) = pods.manifests(set).context("pods")?;
    post(target, &own, Duration::ZERO).await?;
    for pod in &mut manifests {
        // The API server takes numbers only from classes.
        if let Some(priority) = pod["spec"]["priority"].as_i64() {
            pod["spec"]["priorityClassName"] = class_name(priority).into();
            pod["spec"]["priority"] = Value::Null;
        }
    }
    let gap = pods.per_second.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(1.0 / rate.max(1e-3)));
    Ok(Batch(manifests, gap))
}

impl Batch {
    /// Gives the pods their nodes, one after the other.
    pub fn on(mut self, nodes: &Nodes) -> Self {
        for (i, pod) in self.0.iter_mut().enumerate() {
            pod["spec"]["nodeName"] = nodes.nth(i).into();
        }
        self
    }

    /// Creates the pods; gives when each was sent.
    pub async fn create(self, target: &Target) -> anyhow::Result<Vec<Instant>> {
        post(target, &self.0, self.1).await.context("creating pods")
    }
}

/// Creates objects of a churn and deletes those before, for ever; counts its own writes.
pub async fn churn(target: &Target, churn: &Churn, own: &std::sync::Mutex<Writes>) -> anyhow::Result<()> {
    let mut connection = target.connect().await?;
    let mut beat = tokio::time::interval(Duration::from_millis(churn.every_ms.max(1)));
    let mut last: Vec<Value> = Vec::new();
    for i in 0.. {
        beat.tick().await;
        for old in last.drain(..) {
            let path = format!("{}/{}?gracePeriodSeconds=0", collection(&old)?, json::name(&old));
            connection.send(Method::DELETE, &path, JSON, Bytes::new()).await.context("churn")?;
            count(own, &old)?;
        }
        for new in churn.make(i)? {
            let body = Bytes::from(new.to_string());
            connection.send(Method::POST, &collection(&new)?, JSON, body).await.context("churn")?;
            count(own, &new)?;
            last.push(new);
        }
    }
    Ok(())
}

fn count(own: &std::sync::Mutex<Writes>, object: &Value) -> anyhow::Result<()> {
    let plural = resource(object)?.plural;
    own.lock().unwrap_or_else(std::sync::PoisonError::into_inner).add(plural, 1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_of_a_workload_has_a_path() {
        for mut w in Workload::all().expect("data") {
            w.scale(0.001);
            let (mut all, own) = w.nodes.manifests().expect("nodes");
            all.extend(own);
            all.extend(w.objects.iter().cloned());
            for pods in w.init.iter().chain([&w.pods]) {
                let (pods, own) = pods.manifests(0).expect("pods");
                all.extend(pods.into_iter().chain(own));
            }
            all.extend(w.churn.iter().flat_map(|c| c.make(1).expect("churn")));
            for object in all {
                let path = collection(&object).expect("a path");
                assert!(path.starts_with("/api"), "{path}");
            }
        }
    }
}
