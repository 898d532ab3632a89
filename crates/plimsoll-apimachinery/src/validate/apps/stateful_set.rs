//! apps/v1 `StatefulSet`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::path::{Errors, Path};
use super::super::{checks, claim, golang, pod, selector};
use super::{always_restarted, matches, selector_of};
use crate::obj::{Obj, as_obj, has, int, list, object, text};

/// apps/v1 `StatefulSet` that is new.
pub(in super::super) fn new_stateful_set(o: &Obj, errors: &mut Errors) {
    whole_stateful_set(o, true, errors);
}

/// apps/v1 `StatefulSet` that is there.
pub(in super::super) fn stateful_set(o: &Obj, errors: &mut Errors) {
    whole_stateful_set(o, false, errors);
}

/// `ValidateStatefulSetSpec`. Claims and service are immutable, so only those of new objects are checked.
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
    let chosen = selector_of(spec, "statefulset", &at, errors);
    let template = object(spec, "template");
    let here = path.field("template");
    if let Some(chosen) = chosen.filter(|s| !selector::is_usable(s)) {
        errors.invalid_text(&at, selector::shown(chosen), "");
    } else {
        if !chosen.is_some_and(selector::is_empty) {
            matches(chosen, template, &here, errors);
        }
        pod::template(&as_the_pods_have_it(spec, template), &here, errors);
        // Upstream checks these twice.
        pod::template_metadata(template, &here, errors);
    }
    always_restarted(template, "StatefulSet", &here, errors);
}

/// A `StatefulSet`'s template with the changes that its controller makes: the claims of the set are volumes in place of
/// those of the same name, and the set determines hostname and subdomain.
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

/// Update of a `StatefulSet`.
pub(in super::super) fn stateful_set_update(old: &Obj, new: &Obj, errors: &mut Errors) {
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
