//! apps/v1 and the older `ReplicationController`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::path::{Errors, IMMUTABLE, Path};
use super::{checks, claim, golang, pod, selector};
use crate::obj::{Obj, as_obj, has, int, list, object, text};

/// apps/v1 Deployment.
pub(super) fn deployment(o: &Obj, errors: &mut Errors) {
    let spec = object(o, "spec");
    let path = Path::new("spec");
    errors.non_negative(&path.field("replicas"), int(spec, "replicas"));
    selected_template(spec, "deployment", &path, errors);
    strategy(object(spec, "strategy"), &path.field("strategy"), errors);
    for key in ["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        errors.non_negative(&path.field(key), int(spec, key));
    }
    let ready = int(spec, "minReadySeconds").unwrap_or(0);
    if let Some(seconds) = int(spec, "progressDeadlineSeconds").filter(|s| *s <= ready) {
        errors.invalid(
            &path.field("progressDeadlineSeconds"),
            seconds,
            "must be greater than minReadySeconds",
        );
    }
}

/// apps/v1 `ReplicaSet`.
pub(super) fn replica_set(o: &Obj, errors: &mut Errors) {
    let spec = object(o, "spec");
    let path = Path::new("spec");
    errors.non_negative(&path.field("replicas"), int(spec, "replicas"));
    errors.non_negative(&path.field("minReadySeconds"), int(spec, "minReadySeconds"));
    selected_template(spec, "deployment", &path, errors);
}

/// The selector, and the template it has to match.
fn selected_template(spec: &Obj, what: &str, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("selector");
    let chosen = spec.get("selector").and_then(Value::as_object);
    match chosen {
        None => errors.required(&at, ""),
        Some(chosen) => {
            selector::label_selector(chosen, &at, errors);
            if selector::is_empty(chosen) {
                let detail = format!("empty selector is invalid for {what}");
                errors.invalid_text(&at, selector::shown(chosen), &detail);
            }
        }
    }
    if let Some(chosen) = chosen.filter(|s| !selector::is_usable(s)) {
        errors.invalid_text(&at, selector::shown(chosen), "invalid label selector");
        return;
    }
    let template = object(spec, "template");
    let here = path.field("template");
    let empty = chosen.is_some_and(selector::is_empty);
    if !empty {
        matches(chosen, template, &here, errors);
    }
    pod::template(template, &here, errors);
    always_restarted(template, "ReplicaSet", &here, errors);
}

/// The template's labels match; a missing selector matches nothing.
fn matches(chosen: Option<&Obj>, template: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let labels = object(object(template, "metadata"), "labels");
    if !chosen.is_some_and(|chosen| selector::matches(chosen, labels)) {
        let metadata = path.field("metadata");
        errors.invalid(
            &metadata.field("labels"),
            shown_labels(labels),
            "`selector` does not match template `labels`",
        );
    }
}

/// Labels as Go prints them: none is `null`.
pub(super) fn shown_labels(labels: &Obj) -> Value {
    if labels.is_empty() { Value::Null } else { Value::Object(labels.clone()) }
}

/// Pods of controllers run until they are deleted.
fn always_restarted(template: &Obj, what: &str, path: &Path<'_>, errors: &mut Errors) {
    let spec = object(template, "spec");
    let at = path.field("spec");
    let policy = text(spec, "restartPolicy");
    if policy != "Always" {
        errors.not_supported(&at.field("restartPolicy"), policy, &["Always"]);
    }
    if has(spec, "activeDeadlineSeconds") {
        let detail = format!("activeDeadlineSeconds in {what} is not Supported");
        errors.forbidden(&at.field("activeDeadlineSeconds"), &detail);
    }
}

/// The strategy of a Deployment.
fn strategy(strategy: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("rollingUpdate");
    let rolling = strategy.get("rollingUpdate").and_then(Value::as_object);
    match (text(strategy, "type"), rolling) {
        ("Recreate", Some(_)) => {
            errors.forbidden(&at, "may not be specified when strategy `type` is 'Recreate'");
        }
        ("Recreate", None) => {}
        ("RollingUpdate", None) => errors.required(&at, "this should be defaulted and never be nil"),
        ("RollingUpdate", Some(rolling)) => {
            let (down, up) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            int_or_percent(down, &at.field("maxUnavailable"), errors);
            int_or_percent(up, &at.field("maxSurge"), errors);
            if amount(down) == 0 && amount(up) == 0 {
                let value = down.cloned().unwrap_or_default();
                errors.invalid(&at.field("maxUnavailable"), value, "may not be 0 when `maxSurge` is 0");
            }
            at_most_all(down, &at.field("maxUnavailable"), errors);
        }
        _ => {
            let shown = golang::structure("DeploymentStrategy", strategy);
            errors.not_supported_text(path, shown, &["Recreate", "RollingUpdate"]);
        }
    }
}

/// `ValidatePositiveIntOrPercent`.
pub(super) fn int_or_percent(value: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    match value {
        Some(Value::String(text)) => errors.invalid_all(path, text, &checks::percent(text)),
        Some(value) => errors.non_negative(path, value.as_i64()),
        None => {}
    }
}

/// `IsNotMoreThan100Percent`.
pub(super) fn at_most_all(value: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    if let Some(Value::String(text)) = value
        && checks::percent(text).is_empty()
        && amount(value) > 100
    {
        errors.invalid(path, text.as_str(), "must not be greater than 100%");
    }
}

/// The number in an integer or percentage.
fn amount(value: Option<&Value>) -> i64 {
    match value {
        Some(Value::String(text)) if checks::percent(text).is_empty() => {
            text.trim_end_matches('%').parse().unwrap_or(0)
        }
        Some(Value::String(text)) => text.parse().unwrap_or(0),
        Some(value) => value.as_i64().unwrap_or(0),
        None => 0,
    }
}

/// apps/v1 `StatefulSet` that is new.
pub(super) fn new_stateful_set(o: &Obj, errors: &mut Errors) {
    whole_stateful_set(o, true, errors);
}

/// apps/v1 `StatefulSet` that is there.
pub(super) fn stateful_set(o: &Obj, errors: &mut Errors) {
    whole_stateful_set(o, false, errors);
}

/// `ValidateStatefulSetSpec`. Claims and service can't change, so that only new ones are looked at.
fn whole_stateful_set(o: &Obj, new: bool, errors: &mut Errors) {
    let spec = object(o, "spec");
    let path = Path::new("spec");
    let at = path.field("podManagementPolicy");
    match text(spec, "podManagementPolicy") {
        "" => errors.required(&at, ""),
        "OrderedReady" | "Parallel" => {}
        other => errors.invalid(&at, other, "must be 'OrderedReady' or 'Parallel'"),
    }
    stateful_strategy(object(spec, "updateStrategy"), &path.field("updateStrategy"), errors);
    let at = path.field("persistentVolumeClaimRetentionPolicy");
    let retention = object(spec, "persistentVolumeClaimRetentionPolicy");
    for key in ["whenDeleted", "whenScaled"] {
        if has(retention, key) {
            errors.one_of(&at.field(key), text(retention, key), &["Retain", "Delete"]);
        }
    }
    if new {
        stateful_set_claims(spec, &path.field("volumeClaimTemplates"), errors);
    }
    errors.non_negative(&path.field("replicas"), int(spec, "replicas"));
    errors.non_negative(&path.field("minReadySeconds"), int(spec, "minReadySeconds"));
    let ordinals = path.field("ordinals");
    errors.non_negative(&ordinals.field("start"), int(object(spec, "ordinals"), "start"));
    let service = text(spec, "serviceName");
    if new && !service.is_empty() {
        errors.invalid_all(&path.field("serviceName"), service, &checks::dns_label(service));
    }
    let at = path.field("selector");
    let chosen = spec.get("selector").and_then(Value::as_object);
    match chosen {
        None => errors.required(&at, ""),
        Some(chosen) => {
            selector::label_selector(chosen, &at, errors);
            if selector::is_empty(chosen) {
                let detail = "empty selector is invalid for statefulset";
                errors.invalid_text(&at, selector::shown(chosen), detail);
            }
        }
    }
    let template = object(spec, "template");
    let here = path.field("template");
    if let Some(chosen) = chosen.filter(|s| !selector::is_usable(s)) {
        errors.invalid_text(&at, selector::shown(chosen), "");
    } else {
        if !chosen.is_some_and(selector::is_empty) {
            matches(chosen, template, &here, errors);
        }
        pod::template(&as_the_pods_have_it(spec, template), &here, errors);
        // Upstream looks at these twice.
        pod::template_metadata(template, &here, errors);
    }
    always_restarted(template, "StatefulSet", &here, errors);
}

/// A `StatefulSet`'s template with what its controller changes of it: the claims of the set are volumes in the place of
/// those of their names, and the pod's place in the network is the set's affair.
fn as_the_pods_have_it(spec: &Obj, template: &Obj) -> Obj {
    let mut template = template.clone();
    let Some(pod) = template.get_mut("spec").and_then(Value::as_object_mut) else { return template };
    pod.remove("hostname");
    pod.remove("subdomain");
    // Two claims of one name are one volume, as in upstream's map.
    let mut claims = BTreeSet::new();
    let named =
        list(spec, "volumeClaimTemplates").iter().map(|c| text(object(as_obj(c), "metadata"), "name"));
    let volume = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    let mut volumes: Vec<Value> = named.filter(|name| claims.insert(*name)).map(volume).collect();
    if claims.is_empty() {
        return template;
    }
    let own = list(pod, "volumes").iter().filter(|v| !claims.contains(text(as_obj(v), "name")));
    volumes.extend(own.cloned());
    pod.insert("volumes".to_owned(), Value::Array(volumes));
    template
}

fn stateful_set_claims(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    for (i, template) in list(spec, "volumeClaimTemplates").iter().enumerate() {
        claim::spec(object(as_obj(template), "spec"), &path.index(i).field("spec"), errors);
    }
}

fn stateful_strategy(strategy: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let rolling = strategy.get("rollingUpdate").and_then(Value::as_object);
    let at = path.field("rollingUpdate");
    match text(strategy, "type") {
        "" => errors.required(path, ""),
        "OnDelete" => {
            if let Some(rolling) = rolling {
                let detail = "only allowed for updateStrategy 'RollingUpdate'";
                let shown = golang::structure("RollingUpdateStatefulSetStrategy", rolling);
                errors.invalid_text(&at, shown, detail);
            }
        }
        "RollingUpdate" => {
            if let Some(rolling) = rolling {
                errors.non_negative(&at.field("partition"), int(rolling, "partition"));
            }
        }
        _ => {
            let shown = golang::structure("StatefulSetUpdateStrategy", strategy);
            errors.invalid_text(path, shown, "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
}

/// What may change of a `StatefulSet`.
pub(super) fn stateful_set_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    const MUTABLE: [&str; 7] = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let fixed = |o: &Obj| {
        let mut spec = object(o, "spec").clone();
        spec.retain(|key, _| !MUTABLE.contains(&key.as_str()));
        spec
    };
    if fixed(old) != fixed(new) {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        errors.forbidden(&Path::new("spec"), detail);
    }
}

/// apps/v1 `DaemonSet`.
pub(super) fn daemon_set(o: &Obj, errors: &mut Errors) {
    let spec = object(o, "spec");
    let path = Path::new("spec");
    let at = path.field("selector");
    let chosen = spec.get("selector").and_then(Value::as_object);
    if let Some(chosen) = chosen {
        selector::label_selector(chosen, &at, errors);
    }
    let template = object(spec, "template");
    let here = path.field("template");
    if chosen.is_none_or(selector::is_usable) {
        matches(chosen, template, &here, errors);
    }
    if let Some(chosen) = chosen.filter(|s| selector::is_empty(s)) {
        errors.invalid_text(&at, selector::shown(chosen), "empty selector is invalid for daemonset");
    }
    pod::template(template, &here, errors);
    always_restarted(template, "DaemonSet", &here, errors);
    errors.non_negative(&path.field("minReadySeconds"), int(spec, "minReadySeconds"));
    let template_generation = object(object(o, "metadata"), "annotations")
        .get("deprecated.daemonset.template.generation")
        .and_then(Value::as_str)
        .and_then(|t| t.parse().ok());
    errors.non_negative(&path.field("templateGeneration"), template_generation);
    daemon_strategy(object(spec, "updateStrategy"), &path.field("updateStrategy"), errors);
    errors.non_negative(&path.field("revisionHistoryLimit"), int(spec, "revisionHistoryLimit"));
}

fn daemon_strategy(strategy: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("rollingUpdate");
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let Some(rolling) = strategy.get("rollingUpdate").and_then(Value::as_object) else {
                errors.required(&at, "");
                return;
            };
            let (down, up) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            let (down_path, up_path) = (at.field("maxUnavailable"), at.field("maxSurge"));
            int_or_percent(down, &down_path, errors);
            int_or_percent(up, &up_path, errors);
            at_most_all(down, &down_path, errors);
            at_most_all(up, &up_path, errors);
            match (amount(down) != 0, amount(up) != 0) {
                (true, true) => {
                    let value = up.cloned().unwrap_or_default();
                    errors.invalid(&up_path, value, "may not be set when maxUnavailable is non-zero");
                }
                (false, false) => errors.required(&down_path, "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => {
            let shown = golang::structure("DaemonSetUpdateStrategy", strategy);
            errors.not_supported_text(path, shown, &["RollingUpdate", "OnDelete"]);
        }
    }
}

/// Selectors of workloads are for good.
pub(super) fn selector_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let (before, after) = (object(old, "spec"), object(new, "spec"));
    if before.get("selector") != after.get("selector") {
        let path = Path::new("spec");
        let shown = after.get("selector").and_then(Value::as_object);
        let shown = shown.map_or_else(|| "null".to_owned(), selector::shown);
        errors.invalid_text(&path.field("selector"), shown, IMMUTABLE);
    }
}

/// What a kind's status counts: what can't be negative, and what can't be more than `replicas`.
struct Counts {
    all: &'static [&'static str],
    within: &'static [&'static str],
    /// How the field with those that are ready is called where there are more available ones.
    ready: &'static str,
}

const OF_DEPLOYMENTS: Counts = Counts {
    all: &[
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ],
    within: &["updatedReplicas", "readyReplicas", "availableReplicas"],
    ready: "readyReplicas",
};
const OF_REPLICA_SETS: Counts = Counts {
    all: &[
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ],
    within: &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    ready: "readyReplicas",
};
const OF_STATEFUL_SETS: Counts = Counts {
    all: &[
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ],
    within: &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
    ready: "status.readyReplicas",
};
const OF_DAEMON_SETS: Counts = Counts {
    all: &[
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ],
    within: &[],
    ready: "",
};

/// Counts in the status of a Deployment.
pub(super) fn deployment_status(old: &Obj, new: &Obj, errors: &mut Errors) {
    counts(&OF_DEPLOYMENTS, new, errors);
    collisions(old, new, errors);
}

/// Counts in the status of a `ReplicaSet` or `ReplicationController`.
pub(super) fn replica_set_status(_: &Obj, new: &Obj, errors: &mut Errors) {
    counts(&OF_REPLICA_SETS, new, errors);
}

/// Counts in the status of a `StatefulSet`.
pub(super) fn stateful_set_status(old: &Obj, new: &Obj, errors: &mut Errors) {
    counts(&OF_STATEFUL_SETS, new, errors);
    collisions(old, new, errors);
}

/// Counts in the status of a `DaemonSet`.
pub(super) fn daemon_set_status(old: &Obj, new: &Obj, errors: &mut Errors) {
    counts(&OF_DAEMON_SETS, new, errors);
    collisions(old, new, errors);
}

fn counts(counts: &Counts, new: &Obj, errors: &mut Errors) {
    let status = object(new, "status");
    let path = Path::new("status");
    for key in counts.all {
        errors.non_negative(&path.field(key), int(status, key));
    }
    let number = |key: &str| int(status, key).unwrap_or(0);
    for key in counts.within.iter().filter(|key| number(key) > number("replicas")) {
        errors.invalid(&path.field(key), number(key), "cannot be greater than status.replicas");
    }
    let available = number("availableReplicas");
    if !counts.ready.is_empty() && available > number("readyReplicas") {
        let detail = format!("cannot be greater than {}", counts.ready);
        errors.invalid(&path.field("availableReplicas"), available, &detail);
    }
}

/// How often a hash collided is never forgotten.
fn collisions(old: &Obj, new: &Obj, errors: &mut Errors) {
    let count = |o: &Obj| int(object(o, "status"), "collisionCount");
    if let Some(was) = count(old)
        && count(new).is_none_or(|is| is < was)
    {
        let path = Path::new("status");
        errors.invalid(&path.field("collisionCount"), count(new).unwrap_or(0), "cannot be decremented");
    }
}

/// core/v1 `ReplicationController`.
pub(super) fn replication_controller(o: &Obj, errors: &mut Errors) {
    let spec = object(o, "spec");
    let path = Path::new("spec");
    errors.non_negative(&path.field("minReadySeconds"), int(spec, "minReadySeconds"));
    let chosen = object(spec, "selector");
    if chosen.is_empty() {
        errors.required(&path.field("selector"), "");
    }
    errors.non_negative(&path.field("replicas"), int(spec, "replicas"));
    let here = path.field("template");
    if !has(spec, "template") {
        errors.required(&here, "");
        return;
    }
    let template = object(spec, "template");
    let labels = object(object(template, "metadata"), "labels");
    if chosen.iter().any(|(key, value)| labels.get(key) != Some(value)) {
        let metadata = here.field("metadata");
        errors.invalid(
            &metadata.field("labels"),
            shown_labels(labels),
            "`selector` does not match template `labels`",
        );
    }
    pod::template(template, &here, errors);
    always_restarted(template, "ReplicationController", &here, errors);
}

/// apps/v1 `ControllerRevision`.
pub(super) fn controller_revision(o: &Obj, errors: &mut Errors) {
    errors.non_negative(&Path::new("revision"), int(o, "revision"));
}

/// A new revision: its data is an object, whatever is in it.
pub(super) fn new_controller_revision(o: &Obj, errors: &mut Errors) {
    controller_revision(o, errors);
    let path = Path::new("data");
    match o.get("data") {
        None | Some(Value::Null) => errors.required(&path, "data is mandatory"),
        Some(Value::Object(_)) => {}
        Some(_) => errors.required(&path, "data must be a valid JSON object"),
    }
}

/// The data of a revision is for good. Upstream compares its text, which a change of the number writes anew.
pub(super) fn controller_revision_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    if old.get("data") != new.get("data") || old.get("revision") != new.get("revision") {
        errors.invalid(&Path::new("data"), new.get("data").cloned().unwrap_or_default(), IMMUTABLE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(spec: &Value) -> Vec<String> {
        let set = json!({"spec": spec});
        let mut errors = Errors::default();
        new_stateful_set(as_obj(&set), &mut errors);
        errors.0.iter().map(|e| e.field.clone()).collect()
    }

    fn spec(pod: &Value, claims: &Value) -> Value {
        let mut pod = pod.clone();
        for (key, value) in [("restartPolicy", "Always"), ("dnsPolicy", "ClusterFirst")] {
            pod[key] = json!(value);
        }
        pod["terminationGracePeriodSeconds"] = json!(30);
        json!({
            "podManagementPolicy": "OrderedReady", "updateStrategy": {"type": "RollingUpdate"},
            "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": pod},
            "volumeClaimTemplates": claims,
        })
    }

    /// `volumesToAddForTemplates` and the fields that `initIdentity` overwrites.
    #[test]
    fn claims_of_a_stateful_set_are_volumes_of_its_pods() {
        let claim = |name: &str| {
            json!({"metadata": {"name": name}, "spec": {
                "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
                "resources": {"requests": {"storage": "1Gi"}}}})
        };
        let mount = |name: &str| {
            json!([{"name": "c", "image": "i", "imagePullPolicy": "Always", "terminationMessagePolicy": "File",
                "volumeMounts": [{"name": name, "mountPath": "/d"}]}])
        };
        let at = "spec.template.spec.containers[0].volumeMounts[0].name";
        let taken = json!({"containers": mount("data"), "hostname": "NOT ONE", "subdomain": "NOT ONE",
            "volumes": [{"name": "data", "nonsense": {}}]});
        for (name, pod, claims, want) in [
            ("by its name", json!({"containers": mount("data")}), json!([claim("data")]), vec![]),
            ("by another", json!({"containers": mount("logs")}), json!([claim("data")]), vec![at]),
            ("none", json!({"containers": mount("data")}), json!([]), vec![at]),
            ("replaced, and names that are overwritten", taken, json!([claim("data")]), vec![]),
            (
                "a claim without a size or access",
                json!({"containers": mount("data")}),
                json!([{"metadata": {"name": "data"}, "spec": {"volumeMode": "Filesystem"}}]),
                vec![
                    "spec.volumeClaimTemplates[0].spec.accessModes",
                    "spec.volumeClaimTemplates[0].spec.resources[storage]",
                ],
            ),
        ] {
            assert_eq!(wrong(&spec(&pod, &claims)), want, "{name}");
        }
    }
}
