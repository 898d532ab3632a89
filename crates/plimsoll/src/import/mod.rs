//! `plimsoll import`: takes running pods into the quota of ClusterQueues, as Kueue's importer (`cmd/importer` upstream).

mod check;
mod mapping;

use std::collections::BTreeMap;

use anyhow::{Context, bail, ensure};
use futures::{StreamExt as _, stream};
use plimsoll_api::conditions::set_status_condition;
use plimsoll_api::content::{label_key, label_value};
use plimsoll_api::json;
use plimsoll_jobs::pod_view::ended;
use plimsoll_state::Time;
use serde_json::{Value, json};

use crate::cli::{Cluster as At, DryRun, Import};
use crate::queue::client::{Client, cluster_path, is_already_exists, namespaced_path};
use crate::say;
use check::{Checked, Cluster, Rules};

const JSON: &str = "application/json";
/// Owner of the fields of an admission; Kueue's manager and ours change them later under this name.
const ADMISSION: &str = "kueue-admission";
/// Reason of the conditions.
const REASON: &str = "Imported";

/// Checks all pods, and imports them unless it is a dry run.
///
/// # Errors
/// What the API server refuses, what is wrong with the arguments, and the pods that can't be imported.
pub async fn run(args: Import) -> anyhow::Result<()> {
    let rules = rules(&args)?;
    let at = At { kubeconfig: args.kubeconfig.clone(), context: args.context.clone(), namespace: None };
    let client = Client::connect(&at).await?;
    let cluster = load(&client, &args.namespace).await?;

    let mut check = Summary::default();
    for pod in pods(&client, &args.namespace).await? {
        check.add(&pod, cluster.check(&pod, &rules).map(|checked| checked.is_some()));
    }
    check.report("Check", "Validation failed")?;
    if args.dry_run {
        say::line("\"dry-run\" is enabled by default, use \"--dry-run=false\" to continue with the import");
        return Ok(());
    }

    let (client, cluster, rules) = (&client, &cluster, &rules);
    let each = pods(client, &args.namespace).await?.into_iter().map(|pod| async move {
        let done = match cluster.check(&pod, rules) {
            Ok(Some(checked)) => {
                import(client, &pod, &checked).await.map(|()| true).map_err(|e| format!("{e:#}"))
            }
            Ok(None) => Ok(false),
            Err(e) => Err(e),
        };
        (pod, done)
    });
    let mut workers = stream::iter(each).buffer_unordered(usize::from(args.concurrent_workers));
    let mut import = Summary::default();
    while let Some((pod, done)) = workers.next().await {
        import.add(&pod, done);
    }
    import.report("Import", "Import failed")
}

fn rules(args: &Import) -> anyhow::Result<Rules> {
    let mapping = match (&args.queuemapping_file, &args.queuelabel) {
        (Some(path), _) => {
            let at = || path.display().to_string();
            let text = std::fs::read_to_string(path).with_context(at)?;
            mapping::from_file(&text).with_context(at)?
        }
        (None, Some(label)) => mapping::for_label(label, &pairs(&args.queuemapping)?),
        (None, None) => bail!("one of --queuelabel and --queuemapping-file is required"),
    };
    let add_labels = pairs(&args.add_labels)?;
    let mut faults = Vec::new();
    for (key, value) in &add_labels {
        faults.extend(label_key(key).iter().map(|e| format!("name {key:?}: {e}")));
        faults.extend(label_value(value).iter().map(|e| format!("label {key:?} value {value:?}: {e}")));
    }
    ensure!(faults.is_empty(), "add-labels: {}", faults.join("\n"));
    Ok(Rules { mapping, add_labels, excluded: args.exclude_resource_prefixes.clone() })
}

fn pairs(texts: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let pair = |text: &String| {
        let (key, value) =
            text.split_once('=').with_context(|| format!("{text} must be formatted as key=value"))?;
        Ok((key.to_owned(), value.to_owned()))
    };
    texts.iter().map(pair).collect()
}

async fn load(client: &Client, namespaces: &[String]) -> anyhow::Result<Cluster> {
    let all = |path: String| async move { client.list(&path, ("", ""), JSON).await };
    let cluster_queues = all(cluster_path("clusterqueues", "")).await.context("loading cluster queues")?;
    let mut local_queues = Vec::new();
    for namespace in namespaces {
        let at = || format!("loading local queues in namespace {namespace}");
        local_queues.push(all(namespaced_path(namespace, "localqueues", "")).await.with_context(at)?);
    }
    let flavors = all(cluster_path("resourceflavors", "")).await.context("loading resource flavors")?;
    let classes = all("/apis/scheduling.k8s.io/v1/priorityclasses".to_owned()).await;
    let classes = classes.context("loading priority classes")?;
    Ok(Cluster::new(&cluster_queues, &local_queues, &flavors, &classes))
}

/// Pods of these namespaces that have not ended.
async fn pods(client: &Client, namespaces: &[String]) -> anyhow::Result<Vec<Value>> {
    let mut out = Vec::new();
    for namespace in namespaces {
        let at = || format!("listing pods in {namespace}");
        let mut list = client.list(&pod_path(namespace, ""), ("", ""), JSON).await.with_context(at)?;
        if let Value::Array(items) = list["items"].take() {
            out.extend(items.into_iter().filter(|pod| !ended(pod)));
        }
    }
    Ok(out)
}

fn pod_path(namespace: &str, name: &str) -> String {
    let namespace = plimsoll_client::rest::encode(namespace);
    let slash = if name.is_empty() { "" } else { "/" };
    format!("/api/v1/namespaces/{namespace}/pods{slash}{}", plimsoll_client::rest::encode(name))
}

/// Creates and admits the Workload of a pod, and then labels the pod: a queue manager stops a running pod with its label
/// that has no admitted workload. Repeated, it does what is left.
async fn import(client: &Client, pod: &Value, checked: &Checked) -> anyhow::Result<()> {
    let namespace = json::namespace(pod);
    let name = json::name(&checked.workload);
    let collection = namespaced_path(namespace, "workloads", "");
    let workload = match client.create(&collection, checked.workload.clone(), DryRun::None).await {
        Err(e) if is_already_exists(&e) => client.get(&namespaced_path(namespace, "workloads", name)).await?,
        created => created.context("creating workload")?,
    };
    if !json::is_true(&workload, "Admitted") {
        let status = status(workload, checked);
        let object = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"namespace": namespace, "name": name}, "status": status,
        });
        let path = format!("{}/status", namespaced_path(namespace, "workloads", name));
        client.apply(&path, &object, ADMISSION).await.context("admitting workload")?;
    }
    if checked.labels.iter().any(|(k, v)| json::label_opt(pod, k) != Some(v.as_str())) {
        let patch = json!({"metadata": {"uid": json::uid(pod), "labels": checked.labels}});
        let path = pod_path(namespace, json::name(pod));
        client.patch(&path, &patch, DryRun::None).await.context("cannot add queue label")?;
    }
    Ok(())
}

/// The status of a Workload that holds the quota of its pod.
fn status(mut workload: Value, checked: &Checked) -> Value {
    let now = Time::from_seconds(jiff::Timestamp::now().as_second());
    let message = format!("Imported into ClusterQueue {}", checked.cluster_queue);
    for kind in ["QuotaReserved", "Admitted"] {
        if let Some(conditions) = set_status_condition(&workload, kind, true, REASON, &message, now) {
            json::set(&mut workload, &["status", "conditions"], Value::Array(conditions));
        }
    }
    let mut conditions = json::list(&workload, &["status", "conditions"]).to_vec();
    conditions.retain(|c| c["reason"] == REASON);
    json!({"admission": checked.admission, "conditions": conditions})
}

/// Pods by what came of them.
#[derive(Debug, Default)]
struct Summary {
    total: usize,
    skipped: usize,
    /// Pods by what is wrong with them.
    failed: BTreeMap<String, Vec<String>>,
}

impl Summary {
    /// `done`: whether a rule wants the pod, or what is wrong with it.
    fn add(&mut self, pod: &Value, done: Result<bool, String>) {
        self.total += 1;
        match done {
            Ok(true) => {}
            Ok(false) => self.skipped += 1,
            Err(e) => {
                let name = format!("{}/{}", json::namespace(pod), json::name(pod));
                self.failed.entry(e).or_default().push(name);
            }
        }
    }

    fn report(&self, what: &str, failed: &str) -> anyhow::Result<()> {
        let count: usize = self.failed.values().map(Vec::len).sum();
        say::line(&format!("{what} done: {} pods, {} skipped, {count} failed", self.total, self.skipped));
        for (error, pods) in &self.failed {
            let first = pods.first().map_or("", String::as_str);
            say::error(&format!("{failed} for {} pods, first {first}: {error}", pods.len()));
        }
        let errors: Vec<&str> = self.failed.keys().map(String::as_str).collect();
        ensure!(errors.is_empty(), "{}", errors.join("\n"));
        Ok(())
    }
}
