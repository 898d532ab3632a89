//! A client that binds pods and decides nothing, beside schedulers that do.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::bail;
use bytes::Bytes;
use http::Method;
use plimsoll_runtime::api::{Api, PODS};
use serde_json::json;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use super::make::CONNECTIONS;
use super::watch::{self, Pod};
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
pub struct Binder(JoinSet<anyhow::Result<()>>);

impl Binder {
    /// Begins to watch.
    pub async fn start(api: &Api, target: &Target, nodes: &Nodes) -> anyhow::Result<Self> {
        let (watching, mut seen) = watch::start::<Pod>(api, target, PODS.collection(NAMESPACE)).await?;
        let (send, pending) = mpsc::channel::<String>(1024);
        let (pending, next) = (Arc::new(Mutex::new(pending)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        for _ in 0..CONNECTIONS {
            let mut connection = target.connect().await?;
            let (pending, next, nodes) = (Arc::clone(&pending), Arc::clone(&next), nodes.clone());
            tasks.spawn(async move {
                loop {
                    let Some(pod) = pending.lock().await.recv().await else { return Ok(()) };
                    let shot = binding(&pod, &nodes.nth(next.fetch_add(1, Ordering::Relaxed)));
                    // A pod of a churn may be gone.
                    let _ = connection.send(Method::POST, &shot.path, JSON, shot.body).await;
                }
            });
        }
        tasks.spawn(async move {
            let mut known = HashSet::new();
            while let Some(pod) = seen.recv().await {
                if pod.is_pending()
                    && known.insert(pod.name().to_owned())
                    && send.send(pod.name().to_owned()).await.is_err()
                {
                    break;
                }
            }
            watching.await?
        });
        Ok(Self(tasks))
    }

    /// An error when a part of it has ended.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match self.0.try_join_next() {
            None => Ok(()),
            Some(ended) => {
                ended??;
                bail!("the binder ended")
            }
        }
    }
}
