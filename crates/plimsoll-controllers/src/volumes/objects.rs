//! Reading claims and volumes, and changing them in place.

use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::meta::text;
use plimsoll_client::{Resource, Target};
use serde_json::{Value, json};

pub fn name(object: &Value) -> &str {
    text(object, &["metadata", "name"])
}

pub fn namespace(object: &Value) -> &str {
    text(object, &["metadata", "namespace"])
}

pub fn uid(object: &Value) -> &str {
    text(object, &["metadata", "uid"])
}

pub fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    text(object, &["metadata", "annotations", key])
}

pub fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|list| list.iter().any(|f| f == finalizer))
}

pub fn is_leaving(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// The claim that a volume names, as a key.
pub fn claim_of(volume: &Value) -> Option<String> {
    let reference = &volume["spec"]["claimRef"];
    reference
        .is_object()
        .then(|| format!("{}/{}", text(reference, &["namespace"]), text(reference, &["name"])))
}

pub fn target<'a>(object: &'a Value, resource: &'static Resource) -> Target<'a> {
    Target::object(resource, namespace(object), name(object))
}

/// Whether a pod uses a claim (`podUsesPVC`): one that is on no node doesn't, as none will start it with a claim that is on
/// its way out. One that has ended does until it is deleted.
pub fn uses(pod: &Value, claim: &Value) -> bool {
    if text(pod, &["spec", "nodeName"]).is_empty() {
        return false;
    }
    // Its claims may go before it, so that neither waits for the other.
    let shut_down = is_leaving(pod) && pod["metadata"]["deletionGracePeriodSeconds"] == 0;
    let mut owners = claim["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let made_for_it = owners.any(|o| o["controller"] == true && o["uid"] == pod["metadata"]["uid"]);
    pod["spec"]["volumes"].as_array().into_iter().flatten().any(|v| {
        let generated = v["ephemeral"].is_object()
            && !shut_down
            && made_for_it
            && name(claim) == format!("{}-{}", name(pod), text(v, &["name"]));
        generated || text(v, &["persistentVolumeClaim", "claimName"]) == name(claim)
    })
}

pub fn claim_reference(claim: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace(claim), "name": name(claim),
        "uid": uid(claim), "resourceVersion": text(claim, &["metadata", "resourceVersion"]),
    })
}

pub fn set_annotation(object: &mut Value, key: &str, value: &str) {
    if !object["metadata"]["annotations"].is_object() {
        object["metadata"]["annotations"] = json!({});
    }
    object["metadata"]["annotations"][key] = json!(value);
}

pub fn without_nulls(mut object: Value) -> Value {
    if let Some(spec) = object["spec"].as_object_mut() {
        spec.retain(|_, v| !v.is_null());
    }
    object
}

pub fn ignore_not_found(result: Result<(), ApiError>) -> Result<(), ApiError> {
    match result {
        Err(error) if error.code != 404 => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `podUsesPVC`.
    #[test]
    fn who_uses_a_claim() {
        let claim =
            json!({"metadata": {"name": "data", "ownerReferences": [{"uid": "u", "controller": true}]}});
        let named = json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}});
        let own = json!({"name": "ta", "ephemeral": {}});
        let pod = |name: &str, uid: &str, node: &str, phase: &str, volume: &Value| {
            json!({"metadata": {"name": name, "uid": uid}, "spec": {"nodeName": node, "volumes": [volume]},
                "status": {"phase": phase}})
        };
        let mut shut_down = pod("da", "u", "n", "Running", &own);
        let mut claim_of_da = claim.clone();
        claim_of_da["metadata"]["name"] = json!("da-ta");
        let table = [
            (pod("p", "x", "n", "Running", &named), &claim, true),
            (pod("p", "x", "n", "Succeeded", &named), &claim, true),
            (pod("p", "x", "", "Pending", &named), &claim, false),
            (pod("p", "x", "n", "Running", &json!({"name": "v", "emptyDir": {}})), &claim, false),
            (shut_down.clone(), &claim_of_da, true),
            (pod("da", "other", "n", "Running", &own), &claim_of_da, false),
            (pod("da", "u", "", "Pending", &own), &claim_of_da, false),
        ];
        for (pod, claim, want) in table {
            assert_eq!(uses(&pod, claim), want, "{pod}");
        }
        shut_down["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        shut_down["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        assert!(!uses(&shut_down, &claim_of_da));
    }
}
