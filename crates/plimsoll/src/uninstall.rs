//! `plimsoll uninstall`: removes Plimsoll and leaves jobs, queues and their definitions.
//!
//! Finalizers that only Plimsoll removes are released once none of its pods runs: `kubectl delete` would wait for ever for a
//! Workload, a queue or a pod of a group, and with it for its namespace.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use futures::{StreamExt as _, stream};
use plimsoll_api::resource::{
    ADMISSION_CHECKS, CLUSTER_QUEUES, FLAVORS, JOB_KINDS, PODS, QUOTA_LOANS, Resource, TOPOLOGIES, WORKLOADS,
};
use plimsoll_api::{crds, json, roles};
use plimsoll_jobs::{JOB_KIND_FINALIZER, names};
use plimsoll_queueing::LOAN_FINALIZER;
use serde_json::{Value, json};

use crate::cli::{Cluster, DryRun, Uninstall};
use crate::queue::client::{Client, is_conflict, is_not_found};
use crate::{install, say};

const JSON: &str = "application/json";
/// Labels of Plimsoll's Deployments and pods.
const OWN: &str = "app.kubernetes.io/name=plimsoll";
/// Pause between two looks at pods that end.
const PAUSE: Duration = Duration::from_millis(500);
/// Most objects that are released at a time.
const CONCURRENCY: usize = 8;
/// Attempts to release an object that others write.
const ATTEMPTS: usize = 5;

const DEPLOYMENTS: Resource = Resource { api_version: "apps/v1", plural: "deployments", kind: "Deployment" };
const DEFINITIONS: Resource = Resource {
    api_version: "apiextensions.k8s.io/v1",
    plural: "customresourcedefinitions",
    kind: "CustomResourceDefinition",
};

/// Objects with a finalizer that nobody else removes, and the labels of those that have it.
fn released() -> [(Resource, &'static str, &'static str); 8] {
    [
        (WORKLOADS, "", names::IN_USE),
        (CLUSTER_QUEUES, "", names::IN_USE),
        (FLAVORS, "", names::IN_USE),
        (ADMISSION_CHECKS, "", names::IN_USE),
        (TOPOLOGIES, "", names::IN_USE),
        (QUOTA_LOANS, "", LOAN_FINALIZER),
        (JOB_KINDS, "", JOB_KIND_FINALIZER),
        (PODS, "kueue.x-k8s.io/managed=true", names::MANAGED),
    ]
}

/// Removes Plimsoll.
///
/// # Errors
/// What the API server refuses, and pods that don't end in time.
pub async fn run(args: Uninstall) -> anyhow::Result<()> {
    let at = Cluster { kubeconfig: args.kubeconfig.clone(), context: args.context.clone(), namespace: None };
    let cluster = Cleanup { client: Client::connect(&at).await?, dry_run: args.dry_run };
    cluster.check_stored_versions().await?;
    let (first, last) = objects(&args.namespace)?;
    // Webhooks first: without their server they would refuse what follows, and jobs and pods of others.
    for object in &first {
        cluster.delete(object).await?;
    }
    for deployment in cluster.deployments(&args.namespace).await? {
        cluster.delete(&deployment).await?;
        cluster.delete(&budget_of(&deployment)).await?;
    }
    if !args.dry_run {
        cluster.ended(&args.namespace, args.timeout).await?;
    }
    for (resource, labels, finalizer) in released() {
        cluster.release_all(resource, labels, finalizer).await?;
    }
    for object in &last {
        cluster.delete(object).await?;
    }
    Ok(())
}

/// Where an object is; the plurals of all kinds in the manifests are regular.
fn path(object: &Value) -> String {
    let plural = format!("{}s", json::text(object, &["kind"]).to_lowercase());
    let version = json::text(object, &["apiVersion"]);
    let root = if version.contains('/') { "apis" } else { "api" };
    let namespace = match json::namespace(object) {
        "" => String::new(),
        namespace => format!("namespaces/{namespace}/"),
    };
    format!("/{root}/{version}/{namespace}{plural}/{}", json::name(object))
}

/// What is deleted before the pods have ended, and after that. The definitions stay with their objects, and with them the
/// roles of their users; the namespace stays, because it may have Secrets of others.
fn objects(namespace: &str) -> anyhow::Result<(Vec<Value>, Vec<Value>)> {
    let users: BTreeSet<String> = roles::objects().iter().map(|role| json::name(role).to_owned()).collect();
    let stays = |object: &Value| match json::text(object, &["kind"]) {
        "Namespace" | "CustomResourceDefinition" | "Deployment" => true,
        "ClusterRole" => users.contains(json::name(object)),
        _ => false,
    };
    let all = install::everything(namespace)?.into_iter().filter(|object| !stays(object));
    // An APIService without a server fails discovery, and namespaces can't be deleted then.
    let is_first = |object: &Value| {
        let kind = json::text(object, &["kind"]);
        kind.ends_with("WebhookConfiguration") || kind == "APIService"
    };
    Ok(all.partition(is_first))
}

/// The PodDisruptionBudget of a Deployment has its name.
fn budget_of(deployment: &Value) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"namespace": json::namespace(deployment), "name": json::name(deployment)}})
}

fn items(mut list: Value) -> Vec<Value> {
    match list["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

/// The requests.
struct Cleanup {
    client: Client,
    dry_run: bool,
}

impl Cleanup {
    fn say(&self, kind: &str, object: &Value, done: &str) {
        let namespace = match json::namespace(object) {
            "" => String::new(),
            namespace => format!(" in namespace {namespace}"),
        };
        let dry = if self.dry_run { " (dry run)" } else { "" };
        say::line(&format!("{kind}/{}{namespace} {done}{dry}", json::name(object)));
    }

    /// Objects that are stored in another version can't be read, and so not deleted, once the conversion webhook has gone.
    async fn check_stored_versions(&self) -> anyhow::Result<()> {
        for (file, _) in crds::MANIFESTS {
            let name = format!("{}.kueue.x-k8s.io", file.trim_end_matches(".yaml"));
            let path = format!("{}/{name}", DEFINITIONS.collection(""));
            let Some(definition) = self.client.find(&path).await? else { continue };
            let mut versions = json::list(&definition, &["spec", "versions"]).iter();
            let stored = versions.find(|v| v["storage"] == true).map_or("", |v| json::text(v, &["name"]));
            let others = json::list(&definition, &["status", "storedVersions"]);
            let others: Vec<&str> =
                others.iter().filter_map(Value::as_str).filter(|version| *version != stored).collect();
            ensure!(
                others.is_empty(),
                "CustomResourceDefinition {name}: status.storedVersions has {}: objects of that version can't be read \
                 without the conversion webhook; migrate them to {stored} first (docs/cluster.md, \"Migrate objects that \
                 are stored in v1beta1\")",
                others.join(", ")
            );
        }
        Ok(())
    }

    async fn delete(&self, object: &Value) -> anyhow::Result<()> {
        let (kind, path) = (json::text(object, &["kind"]).to_lowercase(), path(object));
        if self.client.find(&path).await.with_context(|| path.clone())?.is_none() {
            return Ok(());
        }
        if !self.dry_run {
            self.client.delete(&path, DryRun::None).await.with_context(|| format!("deleting {path}"))?;
        }
        self.say(&kind, object, "deleted");
        Ok(())
    }

    /// Plimsoll's Deployments: there is one for each named node, and for each shard.
    async fn deployments(&self, namespace: &str) -> anyhow::Result<Vec<Value>> {
        let list = self.client.list(&DEPLOYMENTS.collection(namespace), (OWN, ""), JSON).await;
        let mut all = items(list.context("listing Deployments")?);
        for object in &mut all {
            // The items of a list have neither.
            object["apiVersion"] = DEPLOYMENTS.api_version.into();
            object["kind"] = DEPLOYMENTS.kind.into();
        }
        Ok(all)
    }

    /// Waits until none of Plimsoll's pods is left: one that runs would add finalizers again.
    async fn ended(&self, namespace: &str, timeout: Duration) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let list = self.client.list(&PODS.collection(namespace), (OWN, ""), JSON).await;
            let list = list.context("listing Plimsoll's pods")?;
            let left: Vec<&str> = json::list(&list, &["items"]).iter().map(json::name).collect();
            if left.is_empty() {
                return Ok(());
            }
            if began.elapsed() >= timeout {
                bail!(
                    "timed out waiting for pods of namespace {namespace} to end: {}; delete them, and run this command again",
                    left.join(", ")
                );
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn release_all(&self, resource: Resource, labels: &str, finalizer: &str) -> anyhow::Result<()> {
        let path = resource.collection("");
        let objects = match self.client.list(&path, (labels, ""), JSON).await {
            Err(e) if is_not_found(&e) => return Ok(()),
            served => items(served.with_context(|| format!("listing {}", resource.plural))?),
        };
        let held = objects.into_iter().filter(|o| json::has_finalizer(o, finalizer));
        let each = held.map(|object| async move { self.release(resource, &object, finalizer).await });
        let mut all = stream::iter(each).buffer_unordered(CONCURRENCY);
        while let Some(done) = all.next().await {
            done?;
        }
        Ok(())
    }

    async fn release(&self, resource: Resource, object: &Value, finalizer: &str) -> anyhow::Result<()> {
        let path = resource.object(json::namespace(object), json::name(object));
        let mut seen = Some(object.clone());
        for attempt in 1.. {
            let Some(object) = seen.filter(|o| json::has_finalizer(o, finalizer)) else { return Ok(()) };
            let left: Vec<&Value> = json::list(&object, &["metadata", "finalizers"])
                .iter()
                .filter(|f| **f != finalizer)
                .collect();
            let version = &object["metadata"]["resourceVersion"];
            let patch = json!({"metadata": {"finalizers": left, "resourceVersion": version}});
            if self.dry_run {
                break;
            }
            match self.client.patch(&path, &patch, DryRun::None).await {
                Err(e) if is_not_found(&e) => return Ok(()),
                Err(e) if is_conflict(&e) && attempt < ATTEMPTS => seen = self.client.find(&path).await?,
                done => {
                    done.with_context(|| format!("releasing {path}"))?;
                    break;
                }
            }
        }
        let kind = resource.kind.to_lowercase();
        self.say(&kind, object, &format!("released from finalizer {finalizer}"));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn definitions_objects_and_their_users_roles_stay() {
        let (first, last) = objects("batch").unwrap();
        let kinds = |all: &[Value]| -> BTreeSet<String> {
            all.iter().map(|o| json::text(o, &["kind"]).to_owned()).collect()
        };
        let want = ["APIService", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
        assert_eq!(kinds(&first), want.map(str::to_owned).into());
        let paths: Vec<String> = last.iter().map(path).collect();
        for deleted in [
            "/api/v1/namespaces/batch/serviceaccounts/plimsoll",
            "/api/v1/namespaces/batch/secrets/plimsoll-webhook-server-cert",
            "/api/v1/namespaces/batch/configmaps/plimsoll-manager-config",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/plimsoll",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings/plimsoll-visibility-auth-reader",
            "/apis/policy/v1/namespaces/batch/poddisruptionbudgets/plimsoll",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/plimsoll-shards",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/batch/rolebindings/plimsoll-shards",
        ] {
            assert!(paths.contains(&deleted.to_owned()), "{deleted} of {paths:?}");
        }
        for stays in ["customresourcedefinitions", "namespaces/batch\"", "kueue-batch-admin-role"] {
            assert!(!format!("{paths:?}").contains(stays), "{stays} of {paths:?}");
        }
    }
}
