//! `plimsoll queue list` of queues and flavors (upstream's `cmd/kueuectl/app/list`).

use anyhow::ensure;
use plimsoll_api::json;
use serde_json::Value;

use super::client::{Client, cluster_path, namespaced_path};
use super::print;
use crate::cli::{Listed, QueueFormat};
use crate::say;

const JSON: &str = "application/json";

/// The objects of a path.
pub async fn all(client: &Client, path: &str, listed: &Listed) -> anyhow::Result<Value> {
    client.list(path, (&listed.selector, &listed.field_selector), JSON).await
}

/// The cells of an object.
type Cells<'a> = &'a dyn Fn(&Value) -> Vec<String>;

/// Prints objects as a table of their cells, or in another format.
pub fn show(
    list: &Value,
    format: Option<QueueFormat>,
    namespace: Option<&str>,
    (headers, cells): (&[&str], Cells<'_>),
) -> anyhow::Result<()> {
    let items = json::list(list, &["items"]);
    match format.filter(|f| *f != QueueFormat::Wide) {
        Some(format) => return print::list(list, format),
        None if items.is_empty() => print::nothing(namespace),
        None => {
            let rows: Vec<Vec<String>> = items.iter().map(cells).collect();
            say::line(&print::table(headers, &rows));
        }
    }
    Ok(())
}

/// Keeps the items for which `keep` holds.
pub fn retain(list: &mut Value, keep: impl Fn(&Value) -> bool) {
    if let Some(items) = list["items"].as_array_mut() {
        items.retain(keep);
    }
}

fn text(object: &Value, path: &[&str]) -> String {
    json::text(object, path).to_owned()
}

fn number(object: &Value, field: &str) -> String {
    object["status"][field].as_i64().unwrap_or(0).to_string()
}

/// Lists ClusterQueues.
pub async fn cluster_queues(client: &Client, listed: &Listed, active: &[bool]) -> anyhow::Result<()> {
    ensure!(active.len() <= 1, "only one active flag can be provided");
    let mut list = all(client, &cluster_path("clusterqueues", ""), listed).await?;
    if let [active] = active {
        retain(&mut list, |cq| json::is_true(cq, "Active") == *active);
    }
    let headers = ["Name", "Cohort", "Pending Workloads", "Admitted Workloads", "Active", "Age"];
    let cells = |cq: &Value| {
        vec![
            json::name(cq).to_owned(),
            text(cq, &["spec", "cohortName"]),
            number(cq, "pendingWorkloads"),
            number(cq, "admittedWorkloads"),
            json::is_true(cq, "Active").to_string(),
            print::age(&cq["metadata"]["creationTimestamp"]),
        ]
    };
    show(&list, listed.output, None, (&headers, &cells))
}

/// Lists LocalQueues.
pub async fn local_queues(
    client: &Client,
    listed: &Listed,
    cluster_queue: Option<&str>,
    everywhere: bool,
) -> anyhow::Result<()> {
    let namespace = if everywhere { "" } else { client.namespace.as_str() };
    let mut list = all(client, &namespaced_path(namespace, "localqueues", ""), listed).await?;
    if let Some(name) = cluster_queue {
        retain(&mut list, |lq| lq["spec"]["clusterQueue"] == name);
    }
    let mut headers = vec!["Name", "ClusterQueue", "Pending Workloads", "Admitted Workloads", "Age"];
    if everywhere {
        headers.insert(0, "Namespace");
    }
    let cells = |lq: &Value| {
        let mut cells = vec![
            json::name(lq).to_owned(),
            text(lq, &["spec", "clusterQueue"]),
            number(lq, "pendingWorkloads"),
            number(lq, "admittedWorkloads"),
            print::age(&lq["metadata"]["creationTimestamp"]),
        ];
        if everywhere {
            cells.insert(0, json::namespace(lq).to_owned());
        }
        cells
    };
    show(&list, listed.output, (!everywhere).then_some(namespace), (&headers, &cells))
}

/// Lists ResourceFlavors.
pub async fn resource_flavors(client: &Client, listed: &Listed) -> anyhow::Result<()> {
    let list = all(client, &cluster_path("resourceflavors", ""), listed).await?;
    let cells = |flavor: &Value| {
        let labels = flavor["spec"]["nodeLabels"].as_object().into_iter().flatten();
        let mut labels: Vec<String> =
            labels.map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or(""))).collect();
        labels.sort();
        vec![
            json::name(flavor).to_owned(),
            labels.join(", "),
            print::age(&flavor["metadata"]["creationTimestamp"]),
        ]
    };
    show(&list, listed.output, None, (&["Name", "Node Labels", "Age"], &cells))
}
