//! Clients that decide nothing, beside controllers that do: the most that the API server lets through.

use std::collections::HashSet;
use std::sync::Arc;

use anyhow::bail;
use bytes::Bytes;
use http::Method;
use plimsoll_api::json;
use plimsoll_runtime::api::{Api, WORKLOADS};
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use super::make::CONNECTIONS;
use super::objects::condition;
use super::watch::{self, Seen};
use crate::bench::admission::shape::HOST;
use crate::bench::client::{MERGE_PATCH, Target};
use crate::bench::load::Shot;

/// Sends a request for each object that wants one, as they come, until it is dropped.
pub struct Answerer(JoinSet<anyhow::Result<()>>);

impl Answerer {
    /// Watches a collection. What a request is answered with is not looked at: its object may be gone.
    pub async fn start<T: Seen>(
        (api, target): (&Api, &Target),
        collection: String,
        (method, format): (Method, &'static str),
        mut answer: impl FnMut(&T) -> Option<Shot> + Send + 'static,
    ) -> anyhow::Result<Self> {
        let (watching, mut seen) = watch::start::<T>(api, target, collection).await?;
        let (send, pending) = mpsc::channel::<Shot>(1024);
        let pending = Arc::new(Mutex::new(pending));
        let mut tasks = JoinSet::new();
        for _ in 0..CONNECTIONS {
            let mut connection = target.connect().await?;
            let (pending, method) = (Arc::clone(&pending), method.clone());
            tasks.spawn(async move {
                loop {
                    let Some(shot) = pending.lock().await.recv().await else { return Ok(()) };
                    let _ = connection.send(method.clone(), &shot.path, format, shot.body).await;
                }
            });
        }
        tasks.spawn(async move {
            while let Some(object) = seen.recv().await {
                if let Some(shot) = answer(&object)
                    && send.send(shot).await.is_err()
                {
                    break;
                }
            }
            watching.await?
        });
        Ok(Self(tasks))
    }

    /// Admits each workload when it comes, with one write, whatever the quota and the nodes: with a topology, all pods are
    /// assigned to one node.
    pub async fn admitter(api: &Api, target: &Target, namespace: &str) -> anyhow::Result<Self> {
        let mut known = HashSet::new();
        let how = (Method::PATCH, MERGE_PATCH);
        Self::start::<Value>((api, target), WORKLOADS.collection(namespace), how, move |workload| {
            known.insert(json::name(workload).to_owned()).then(|| admission(workload))
        })
        .await
    }

    /// An error when a part of it has ended.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match self.0.try_join_next() {
            None => Ok(()),
            Some(ended) => {
                ended??;
                bail!("the client that decides nothing ended")
            }
        }
    }
}

/// The write that admits a workload of a load: each has one pod set, and its LocalQueue has the number of its ClusterQueue.
fn admission(workload: &Value) -> Shot {
    let queue = json::text(workload, &["spec", "queueName"]).replacen("lq-", "cq-", 1);
    let set = &workload["spec"]["podSets"][0];
    let requests = &set["template"]["spec"]["containers"][0]["resources"]["requests"];
    let mut assignment = json!({"name": set["name"], "count": set["count"], "flavors": {"cpu": "default"},
        "resourceUsage": requests});
    if set.get("topologyRequest").is_some() {
        // A few pods that need a hundredth of a node: so small are nearly all assignments of `tas`.
        assignment["topologyAssignment"] = json!({"levels": [HOST], "slices": [{"domainCount": 1,
            "podCounts": {"universal": set["count"]}, "valuesPerLevel": [{"universal": "node-0-0-0"}]}]});
    }
    let status = json!({"admission": {"clusterQueue": queue, "podSetAssignments": [assignment]}, "conditions": [
        condition("QuotaReserved", "True", "QuotaReserved", &format!("Quota reserved in ClusterQueue {queue}")),
        condition("Admitted", "True", "Admitted", "The workload is admitted"),
    ]});
    let path = format!("{}/status", WORKLOADS.object(json::namespace(workload), json::name(workload)));
    Shot { path, body: Bytes::from(json!({"status": status}).to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::admission::shape::Shape;
    use crate::bench::cluster::objects;

    #[test]
    fn an_admission_names_queue_and_flavor() {
        let shape = Shape::built_in().expect("shapes").swap_remove(0);
        let class = &shape.classes[0];
        let shot = admission(&objects::workload(class, 3, 0, "bench"));
        assert!(shot.path.ends_with(&format!("/namespaces/bench/workloads/{}-3-0/status", class.name)));
        let body: Value = serde_json::from_slice(&shot.body).expect("JSON");
        let admission = &body["status"]["admission"];
        assert_eq!(admission["clusterQueue"], "cq-3");
        assert_eq!(admission["podSetAssignments"][0]["flavors"]["cpu"], "default");
        let requested = &admission["podSetAssignments"][0]["resourceUsage"]["cpu"];
        assert_eq!(*requested, json!(format!("{}m", class.cpu_milli)));
        assert_eq!(admission["podSetAssignments"][0].get("topologyAssignment"), None);
    }

    #[test]
    fn an_admission_has_a_topology_assignment_where_one_is_requested() {
        let shapes = Shape::built_in().expect("shapes");
        let class =
            shapes.iter().flat_map(|s| &s.classes).find(|c| c.topology.is_some()).expect("a class of tas");
        let shot = admission(&objects::workload(class, 0, 0, "bench"));
        let body: Value = serde_json::from_slice(&shot.body).expect("JSON");
        let assignment = &body["status"]["admission"]["podSetAssignments"][0];
        let slice = &assignment["topologyAssignment"]["slices"][0];
        assert_eq!(slice["podCounts"]["universal"], assignment["count"]);
    }
}
