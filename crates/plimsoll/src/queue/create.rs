//! `plimsoll queue create` (upstream's `cmd/kueuectl/app/create`).

use anyhow::{bail, ensure};
use serde_json::{Map, Value, json};

use super::client::{Client, cluster_path, namespaced_path};
use super::{print, quotas};
use crate::cli::{CreateClusterQueue, CreateLocalQueue, CreateResourceFlavor, DryRun, QueueFormat};

const VERSION: &str = "kueue.x-k8s.io/v1beta2";
/// Effects of taints.
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

type How = (DryRun, Option<QueueFormat>);

/// Creates a ClusterQueue.
pub async fn cluster_queue(client: &Client, args: &CreateClusterQueue, how: How) -> anyhow::Result<()> {
    ensure!(!args.name.is_empty(), "name must be specified");
    let groups = quotas::resource_groups(&args.nominal_quota, &args.borrowing_limit, &args.lending_limit)?;
    let mut spec = json!({
        "queueingStrategy": args.queuing_strategy,
        "namespaceSelector": {},
        "preemption": {
            "reclaimWithinCohort": args.reclaim_within_cohort,
            "withinClusterQueue": args.preemption_within_cluster_queue,
        },
    });
    if !args.namespace_selector.is_empty() {
        spec["namespaceSelector"]["matchLabels"] = pairs(&args.namespace_selector)?;
    }
    if !args.cohort.is_empty() {
        spec["cohortName"] = json!(args.cohort);
    }
    if !groups.is_empty() {
        spec["resourceGroups"] = json!(groups);
    }
    let object =
        json!({"apiVersion": VERSION, "kind": "ClusterQueue", "metadata": {"name": args.name}, "spec": spec});
    let created = client.create(&cluster_path("clusterqueues", ""), object, how.0).await?;
    print::object(&created, "created", how)
}

/// Creates a LocalQueue.
pub async fn local_queue(client: &Client, args: &CreateLocalQueue, how: How) -> anyhow::Result<()> {
    ensure!(!args.name.is_empty(), "name must be specified");
    ensure!(!args.clusterqueue.is_empty(), "clusterqueue must be specified");
    if !args.ignore_unknown_cq {
        client.get(&cluster_path("clusterqueues", &args.clusterqueue)).await?;
    }
    let object = json!({"apiVersion": VERSION, "kind": "LocalQueue",
        "metadata": {"name": args.name, "namespace": client.namespace}, "spec": {"clusterQueue": args.clusterqueue}});
    let created =
        client.create(&namespaced_path(&client.namespace, "localqueues", ""), object, how.0).await?;
    print::object(&created, "created", how)
}

/// Creates a ResourceFlavor.
pub async fn resource_flavor(client: &Client, args: &CreateResourceFlavor, how: How) -> anyhow::Result<()> {
    let mut spec = Map::new();
    if !args.node_labels.is_empty() {
        spec.insert("nodeLabels".into(), pairs(&args.node_labels)?);
    }
    let taints = taints(&args.node_taints)?;
    if !taints.is_empty() {
        spec.insert("nodeTaints".into(), json!(taints));
    }
    let tolerations: Vec<Value> = args.tolerations.iter().map(|t| toleration(t)).collect::<Result<_, _>>()?;
    if !tolerations.is_empty() {
        spec.insert("tolerations".into(), json!(tolerations));
    }
    let object = json!({"apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": {"name": args.name}, "spec": spec});
    let created = client.create(&cluster_path("resourceflavors", ""), object, how.0).await?;
    print::object(&created, "created", how)
}

fn pairs(texts: &[String]) -> anyhow::Result<Value> {
    let mut all = Map::new();
    for text in texts {
        let Some((key, value)) = text.split_once('=') else { bail!("{text} must be formatted as key=value") };
        all.insert(key.to_owned(), json!(value));
    }
    Ok(Value::Object(all))
}

/// Key, value and effect of `KEY[=VALUE][:EFFECT]`.
fn parts(text: &str) -> Option<(&str, &str, &str)> {
    let (pair, effect) = text.split_once(':').unwrap_or((text, ""));
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    (!effect.contains(':') && !value.contains('=')).then_some((key, value, effect))
}

fn check_effect(effect: &str) -> anyhow::Result<()> {
    ensure!(EFFECTS.contains(&effect), "invalid taint effect: {effect}, unsupported taint effect");
    Ok(())
}

fn taints(texts: &[String]) -> anyhow::Result<Vec<Value>> {
    let mut all: Vec<Value> = Vec::new();
    for text in texts {
        ensure!(!text.is_empty(), "invalid taint spec");
        let Some((key, value, effect)) = parts(text).filter(|(_, _, effect)| !effect.is_empty()) else {
            bail!("invalid taint spec: {text}")
        };
        check_effect(effect)?;
        ensure!(!key.is_empty(), "invalid taint spec: {text}");
        let same = |t: &&Value| t["key"] == key && t["effect"] == effect;
        ensure!(all.iter().find(same).is_none(), "duplicated taints with the same key and effect: {text}");
        let mut taint = json!({"key": key, "effect": effect});
        if !value.is_empty() {
            taint["value"] = json!(value);
        }
        all.push(taint);
    }
    Ok(all)
}

fn toleration(text: &str) -> anyhow::Result<Value> {
    ensure!(!text.is_empty(), "invalid toleration spec");
    let Some((key, value, effect)) =
        parts(text).filter(|(key, value, _)| !key.is_empty() || value.is_empty())
    else {
        bail!("invalid toleration spec: {text}")
    };
    if !effect.is_empty() {
        check_effect(effect)?;
    }
    let exists = key.is_empty() || value.is_empty();
    let mut toleration = json!({"operator": if exists { "Exists" } else { "Equal" }});
    for (field, text) in [("key", key), ("value", value), ("effect", effect)] {
        if !text.is_empty() {
            toleration[field] = json!(text);
        }
    }
    Ok(toleration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_and_tolerations_are_read_as_kueuectl_does() {
        let all = taints(&["a=b:NoSchedule".into(), "c:NoExecute".into()]).unwrap();
        assert_eq!(
            all,
            [
                json!({"key": "a", "value": "b", "effect": "NoSchedule"}),
                json!({"key": "c", "effect": "NoExecute"})
            ]
        );
        let wrong = |text: &str| taints(&[text.to_owned()]).unwrap_err().to_string();
        assert_eq!(wrong("a"), "invalid taint spec: a");
        assert_eq!(wrong("a:b:c"), "invalid taint spec: a:b:c");
        assert_eq!(wrong("a:Never"), "invalid taint effect: Never, unsupported taint effect");
        let twice = taints(&["a=1:NoSchedule".into(), "a=2:NoSchedule".into()]).unwrap_err().to_string();
        assert!(twice.starts_with("duplicated taints with the same key and effect"), "{twice}");
        assert_eq!(toleration("a=b").unwrap(), json!({"operator": "Equal", "key": "a", "value": "b"}));
        assert_eq!(toleration(":NoExecute").unwrap(), json!({"operator": "Exists", "effect": "NoExecute"}));
        assert_eq!(toleration("=b").unwrap_err().to_string(), "invalid toleration spec: =b");
    }
}
