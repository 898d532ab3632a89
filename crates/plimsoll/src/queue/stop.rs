//! `plimsoll queue stop` and `resume` (upstream's `cmd/kueuectl/app/stop`, `resume`).

use serde_json::{Value, json};

use super::client::{Client, cluster_path, namespaced_path};
use super::print;
use crate::cli::{DryRun, QueueFormat};

type How = (DryRun, Option<QueueFormat>);

/// Changes fields of an object, and prints it.
async fn change(client: &Client, path: &str, patch: &Value, done: &str, how: How) -> anyhow::Result<()> {
    let mut object = client.get(path).await?;
    match how.0 {
        DryRun::Client => {
            for (field, value) in patch["spec"].as_object().into_iter().flatten() {
                object["spec"][field] = value.clone();
            }
        }
        dry_run => object = client.patch(path, patch, dry_run).await?,
    }
    print::object(&object, done, how)
}

/// Sets the stop policy of a ClusterQueue.
pub async fn cluster_queue(client: &Client, name: &str, policy: &str, how: How) -> anyhow::Result<()> {
    let path = cluster_path("clusterqueues", name);
    change(client, &path, &json!({"spec": {"stopPolicy": policy}}), "", how).await
}

/// Sets the stop policy of a LocalQueue.
pub async fn local_queue(client: &Client, name: &str, policy: &str, how: How) -> anyhow::Result<()> {
    let path = namespaced_path(&client.namespace, "localqueues", name);
    change(client, &path, &json!({"spec": {"stopPolicy": policy}}), "", how).await
}

/// Sets whether a workload is active.
pub async fn workload(client: &Client, name: &str, active: bool, how: How) -> anyhow::Result<()> {
    let path = namespaced_path(&client.namespace, "workloads", name);
    let done = if active { "resumed" } else { "stopped" };
    change(client, &path, &json!({"spec": {"active": active}}), done, how).await
}
