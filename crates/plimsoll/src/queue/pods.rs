//! `plimsoll queue list pods` (upstream's `list_pods.go`): the pods of a job, by the labels that its kind gives them.

use anyhow::{anyhow, bail};
use plimsoll_api::json;
use plimsoll_client::rest::encode;
use serde_json::Value;

use super::client::Client;
use super::kinds::Kinds;
use super::print;
use crate::cli::{ListPods, QueueFormat};
use crate::say;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const JSON: &str = "application/json";

/// Lists pods.
pub async fn list(client: &Client, args: &ListPods) -> anyhow::Result<()> {
    let namespace = if args.all_namespaces { "" } else { client.namespace.as_str() };
    let shown_namespace = (!args.all_namespaces).then_some(namespace);
    let mut kinds = Kinds::new(client);
    let Some((kind, name)) = kinds.decode(&args.of).await? else {
        let of = &args.of;
        bail!("invalid value '{of}' used in --for flag; value must be in the format TYPE[.API-GROUP]/NAME")
    };
    let path =
        format!("{}?fieldSelector={}", kind.path(namespace, ""), encode(&format!("metadata.name={name}")));
    let found = client.get(&path).await?;
    let Some(job) = json::list(&found, &["items"]).first() else {
        print::nothing(shown_namespace);
        return Ok(());
    };
    let own =
        selector(&kind.group, &kind.kind, job).ok_or_else(|| anyhow!("unsupported kind: {}", kind.kind))?;
    let selector = match args.listed.selector.as_str() {
        "" => own,
        more => format!("{more},{own}"),
    };
    let path = match namespace {
        "" => "/api/v1/pods".to_owned(),
        namespace => format!("/api/v1/namespaces/{}/pods", encode(namespace)),
    };
    let wide = args.listed.output == Some(QueueFormat::Wide);
    let accept = if args.listed.output.is_none() || wide { TABLE } else { JSON };
    let list = client.list(&path, (&selector, &args.listed.field_selector), accept).await?;
    match args.listed.output.filter(|_| !wide) {
        Some(format) => return print::list(&list, format),
        None if json::list(&list, &["rows"]).is_empty() => print::nothing(shown_namespace),
        None => say::line(&table(&list, wide, args.all_namespaces)),
    }
    Ok(())
}

/// A Table of the API server, as kubectl prints it.
fn table(table: &Value, wide: bool, with_namespace: bool) -> String {
    let columns = json::list(table, &["columnDefinitions"]);
    let shown: Vec<usize> =
        (0..columns.len()).filter(|&i| wide || columns[i]["priority"].as_i64().unwrap_or(0) == 0).collect();
    let mut headers: Vec<&str> = shown.iter().map(|&i| json::text(&columns[i], &["name"])).collect();
    if with_namespace {
        headers.insert(0, "Namespace");
    }
    let cell = |cell: &Value| match cell {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let row = |row: &Value| {
        let mut cells: Vec<String> = shown.iter().map(|&i| cell(&row["cells"][i])).collect();
        if with_namespace {
            cells.insert(0, json::namespace(&row["object"]).to_owned());
        }
        cells
    };
    let rows: Vec<Vec<String>> = json::list(table, &["rows"]).iter().map(row).collect();
    print::table(&headers, &rows)
}

/// Labels of a job's pods (each integration's `PodLabelSelector` upstream); `None`: there are none.
fn selector(group: &str, kind: &str, job: &Value) -> Option<String> {
    let name = json::name(job);
    let kubeflow = |operator: &str| {
        format!("training.kubeflow.org/job-name={name},training.kubeflow.org/operator-name={operator}")
    };
    let cluster = |path: &[&str]| {
        let cluster = json::text(job, path);
        (!cluster.is_empty()).then(|| format!("ray.io/cluster={cluster}"))
    };
    Some(match (group, kind) {
        ("batch", "Job") => format!("batch.kubernetes.io/job-name={name}"),
        ("", "Pod") => {
            let group = job["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"].as_str()?;
            format!("kueue.x-k8s.io/pod-group-name={group}")
        }
        ("jobset.x-k8s.io", "JobSet") | ("trainer.kubeflow.org", "TrainJob") => {
            format!("jobset.sigs.k8s.io/jobset-name={name}")
        }
        ("kubeflow.org", "MPIJob") => kubeflow("mpi-operator"),
        ("kubeflow.org", "PyTorchJob" | "TFJob" | "XGBoostJob" | "PaddleJob" | "JAXJob") => {
            kubeflow(&format!("{}-controller", kind.to_lowercase()))
        }
        ("ray.io", "RayCluster") => format!("ray.io/cluster={name}"),
        ("ray.io", "RayJob") => cluster(&["status", "rayClusterName"])?,
        ("ray.io", "RayService") => cluster(&["status", "activeServiceStatus", "rayClusterName"])?,
        ("sparkoperator.k8s.io", "SparkApplication") => format!("sparkoperator.k8s.io/app-name={name}"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_are_found_by_the_labels_of_their_kind() {
        let named = json!({"metadata": {"name": "a"}, "status": {"rayClusterName": "c"}});
        let of = |group: &str, kind: &str| selector(group, kind, &named);
        assert_eq!(of("batch", "Job").unwrap(), "batch.kubernetes.io/job-name=a");
        assert_eq!(
            of("kubeflow.org", "TFJob").unwrap(),
            "training.kubeflow.org/job-name=a,training.kubeflow.org/operator-name=tfjob-controller"
        );
        assert_eq!(of("ray.io", "RayJob").unwrap(), "ray.io/cluster=c");
        assert_eq!(of("ray.io", "RayService"), None);
        assert_eq!(of("apps", "Deployment"), None);
        assert_eq!(of("", "Pod"), None, "a pod of no group");
    }
}
