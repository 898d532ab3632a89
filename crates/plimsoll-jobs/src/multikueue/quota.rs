//! Quota automation (Kueue `clusterqueue.go`, `cqReconciler`; gate `MultiKueueManagerQuotaAutomation`): a ClusterQueue of the
//! manager offers what the workers' ClusterQueues behind the same LocalQueues offer together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_api::conditions::set_status_condition;
use plimsoll_api::json;
use plimsoll_api::quantity::Quantity;
use plimsoll_api::resource::CLUSTER_QUEUES;
use serde_json::{Value, json};

use super::config;
use crate::plan::{Write, patch, patch_status};
use crate::store::{Kind, ObjectStore};
use crate::{Env, check_parameters};

/// The condition of ClusterQueues (`kueue.MultiKueueManagerQuotaAutomation`).
const CONDITION: &str = "MultiKueueManagerQuotaAutomation";
const UNSUPPORTED: &str = "UnsupportedConfiguration";

/// Nominal quotas by resource.
pub type Quotas = BTreeMap<String, Quantity>;

/// The ClusterQueues that a changed or deleted object of the manager concerns.
pub fn queues_concerned(kind: Kind, object: &Value, objects: &ObjectStore) -> Vec<String> {
    match kind {
        Kind::ClusterQueue => vec![json::name(object).to_owned()],
        Kind::LocalQueue => vec![json::text(object, &["spec", "clusterQueue"]).to_owned()],
        Kind::AdmissionCheck | Kind::MultiKueueConfig | Kind::MultiKueueCluster => {
            queues_with_checks(objects)
        }
        _ => Vec::new(),
    }
}

/// All ClusterQueues that have admission checks.
pub fn queues_with_checks(objects: &ObjectStore) -> Vec<String> {
    let checked = |queue: &Arc<Value>| !checks_of(queue).is_empty();
    objects.all(Kind::ClusterQueue).filter(checked).map(|queue| json::name(&queue).to_owned()).collect()
}

/// Namespaces and names of the LocalQueues of a ClusterQueue.
pub fn local_queues_of(cluster_queue: &str, objects: &ObjectStore) -> BTreeSet<(String, String)> {
    let all = objects.all(Kind::LocalQueue);
    let own = all.filter(|queue| json::text(queue, &["spec", "clusterQueue"]) == cluster_queue);
    own.map(|queue| (json::namespace(&queue).to_owned(), json::name(&queue).to_owned())).collect()
}

/// What the ClusterQueues of a worker offer to these LocalQueues; one that several share counts once.
pub fn quotas_of(worker: &ObjectStore, local_queues: &BTreeSet<(String, String)>) -> Quotas {
    let named = local_queues.iter().filter_map(|(namespace, name)| {
        let queue = worker.get(Kind::LocalQueue, namespace, name)?;
        Some(json::text(&queue, &["spec", "clusterQueue"]).to_owned())
    });
    let mut quotas = Quotas::new();
    for name in named.collect::<BTreeSet<String>>() {
        let Some(queue) = worker.get(Kind::ClusterQueue, "", &name) else { continue };
        let groups = json::list(&queue, &["spec", "resourceGroups"]).iter();
        let flavors = groups.flat_map(|group| json::list(group, &["flavors"]));
        for resource in flavors.flat_map(|flavor| json::list(flavor, &["resources"])) {
            let sum = quotas.entry(json::text(resource, &["name"]).to_owned()).or_default();
            *sum = sum.saturating_add(nominal(resource));
        }
    }
    quotas
}

fn nominal(resource: &Value) -> Quantity {
    match &resource["nominalQuota"] {
        Value::Number(number) => number.to_string().parse().unwrap_or_default(),
        text => text.as_str().and_then(|text| text.parse().ok()).unwrap_or_default(),
    }
}

fn checks_of(queue: &Value) -> &[Value] {
    json::list(queue, &["spec", "admissionChecksStrategy", "admissionChecks"])
}

/// The next write of a ClusterQueue; `None`: it is as it should be. `workers` are what the connected workers offer to its
/// LocalQueues.
pub fn plan(name: &str, workers: &BTreeMap<String, Quotas>, env: Env<'_>) -> Option<Write> {
    if !env.config.multikueue.automates_quota {
        return None;
    }
    let queue = env.objects.get(Kind::ClusterQueue, "", name).filter(|queue| !json::deleting(queue))?;
    let named = checks_of(&queue).iter().map(|check| json::text(check, &["name"]));
    let Some(check) = named.into_iter().find_map(|check| config::check(env.objects, check)) else {
        return without_condition(&queue);
    };
    let told = |automated: bool, reason: &str, message: &str| told(&queue, (automated, reason, message), env);
    let Ok(name) = check_parameters::reference(&check, config::CONFIG) else { return None };
    let Some(config) = env.objects.get(Kind::MultiKueueConfig, "", name) else {
        return told(false, UNSUPPORTED, "The referenced MultiKueueConfig was not found.");
    };
    if config["spec"]["quotaManagement"] != "Automated" {
        return told(false, "NotRequested", "MultiKueue manager quota automation has not been requested.");
    }
    let groups = json::list(&queue, &["spec", "resourceGroups"]);
    let ([group], [flavor]) = (groups, groups.first().map_or(&[][..], |g| json::list(g, &["flavors"])))
    else {
        return told(
            false,
            UNSUPPORTED,
            "Quota automation requires that the manager-side ClusterQueue has exactly one ResourceFlavor",
        );
    };
    let clusters = json::list(&config, &["spec", "clusters"]).iter().filter_map(Value::as_str);
    let mut sums = Quotas::new();
    for (resource, amount) in clusters.filter_map(|cluster| workers.get(cluster)).flatten() {
        let sum = sums.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
    let covered: Vec<&str> =
        json::list(group, &["coveredResources"]).iter().filter_map(Value::as_str).collect();
    let missing: Vec<&str> =
        sums.keys().map(String::as_str).filter(|resource| !covered.contains(resource)).collect();
    if !missing.is_empty() {
        let message = format!(
            "manager-side coveredResources is missing resources configured on workers: [{}]",
            missing.join(" ")
        );
        return told(false, UNSUPPORTED, &message);
    }
    let wanted = covered.iter().map(|resource| (*resource, sums.get(*resource).copied().unwrap_or_default()));
    let wanted: Vec<(&str, Quantity)> = wanted.collect();
    if !is_offered(flavor, &wanted) {
        let resources =
            wanted.iter().map(|(name, sum)| json!({"name": name, "nominalQuota": sum.to_string()}));
        let mut new = (*queue).clone();
        new["spec"]["resourceGroups"][0]["flavors"][0]["resources"] = resources.collect();
        // The condition follows when the watch has shown this.
        return patch(CLUSTER_QUEUES, &queue, &new);
    }
    told(true, "QuotaAutomated", "ClusterQueue quota is automatically managed based on MultiKueue workers.")
}

/// Whether a flavor offers these amounts and nothing else: limits of borrowing and lending are the workers' own.
fn is_offered(flavor: &Value, wanted: &[(&str, Quantity)]) -> bool {
    let has = json::list(flavor, &["resources"]);
    let limits = |r: &Value| !r["borrowingLimit"].is_null() || !r["lendingLimit"].is_null();
    has.len() == wanted.len()
        && has
            .iter()
            .zip(wanted)
            .all(|(r, (name, sum))| r["name"] == *name && nominal(r) == *sum && !limits(r))
}

/// The write of the condition, if it says something else.
fn told(queue: &Value, (automated, reason, message): (bool, &str, &str), env: Env<'_>) -> Option<Write> {
    let status = if automated { "True" } else { "False" };
    let same = |c: &Value| c["status"] == status && c["reason"] == reason && c["message"] == message;
    // As in Kueue another generation alone is no change (`cmpConditionState`).
    if json::condition(queue, CONDITION).is_some_and(same) {
        return None;
    }
    let conditions = set_status_condition(queue, CONDITION, automated, reason, message, env.now)?;
    Some(patch_status(CLUSTER_QUEUES, queue, &json!({ "conditions": conditions })))
}

/// Removes the condition of a ClusterQueue that MultiKueue has nothing to do with.
fn without_condition(queue: &Value) -> Option<Write> {
    json::condition(queue, CONDITION)?;
    let mut left = json::list(queue, &["status", "conditions"]).to_vec();
    left.retain(|c| c["type"] != CONDITION);
    Some(patch_status(CLUSTER_QUEUES, queue, &json!({ "conditions": left })))
}
