//! Volumes and volume claims that are written before a pod is bound (upstream `BindPodVolumes` in
//! `plugins/volumebinding/binder.go`).
//!
//! Each write names the version of the object that it has read, and is not made when the object is another claim's by then: a
//! response may be lost, and the watch that the decision was made from may be late.

use serde_json::{Value, json};

use super::{CONFLICTS, Response, Step, send};
use crate::json;
use crate::request::{PatchKind, Request};
use crate::resource::{VOLUME_CLAIMS, VOLUMES};

/// Continues with how a write ended.
pub(super) type Then = Box<dyn FnOnce(Result<(), String>) -> Step + Send>;

/// The node for which a claim is to be provisioned.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Names the claim in `spec.claimRef` of the volume.
pub(super) fn bind((namespace, name): (String, String), volume: String, then: Then) -> Step {
    send(Request::get(VOLUME_CLAIMS, &namespace, &name), move |response| match response {
        Ok(claim) if json::deleting(&claim) => {
            then(Err(format!("persistentvolumeclaim {name:?} is being deleted")))
        }
        Ok(claim) => match json::text(&claim, &["spec", "volumeName"]) {
            other if !other.is_empty() && other != volume => {
                then(Err(format!("persistentvolumeclaim {name:?} is bound to persistentvolume {other:?}")))
            }
            _ => take(claim, volume, CONFLICTS, then),
        },
        Err(e) => then(Err(e.to_string())),
    })
}

/// Reads the volume and names the claim in it.
fn take(claim: Value, volume: String, left: u32, then: Then) -> Step {
    send(Request::get(VOLUMES, "", &volume), move |response| {
        let read = match response {
            Ok(read) => read,
            Err(e) => return then(Err(e.to_string())),
        };
        let reference = &read["spec"]["claimRef"];
        let (namespace, name, uid) = (json::namespace(&claim), json::name(&claim), json::uid(&claim));
        let named = json::text(reference, &["uid"]);
        let own = json::text(reference, &["namespace"]) == namespace
            && json::text(reference, &["name"]) == name
            && (named.is_empty() || named == uid);
        if json::deleting(&read) {
            return then(Err(format!("persistentvolume {volume:?} is being deleted")));
        }
        if reference.is_object() && !own {
            let (namespace, name) = (json::text(reference, &["namespace"]), json::text(reference, &["name"]));
            return then(Err(format!(
                "persistentvolume {volume:?} is bound to claim \"{namespace}/{name}\""
            )));
        }
        if own && named == uid {
            // An earlier attempt, whose response was lost.
            return then(Ok(()));
        }
        let body = json!({
            "metadata": {
                "uid": json::uid(&read), "resourceVersion": json::version(&read),
                "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
            },
            "spec": {"claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name,
                "uid": uid, "resourceVersion": json::version(&claim),
            }},
        });
        let request = Request::patch(VOLUMES, "", &volume, "", PatchKind::Merge, body);
        send(request, move |response| match response {
            Err(e) if e.is_conflict() && left > 1 => take(claim, volume, left - 1, then),
            response => then(done(response)),
        })
    })
}

/// Asks for a volume for the claim that the node reaches.
pub(super) fn provision(claim: (String, String), node: String, then: Then) -> Step {
    select(claim, node, CONFLICTS, then)
}

fn select(key: (String, String), node: String, left: u32, then: Then) -> Step {
    send(Request::get(VOLUME_CLAIMS, &key.0, &key.1), move |response| {
        let claim = match response {
            Ok(claim) => claim,
            Err(e) => return then(Err(e.to_string())),
        };
        let selected = json::annotation(&claim, SELECTED_NODE).unwrap_or_default();
        if json::deleting(&claim) {
            return then(Err(format!("persistentvolumeclaim {:?} is being deleted", key.1)));
        }
        if selected == node {
            return then(Ok(()));
        }
        if !selected.is_empty() {
            let name = &key.1;
            return then(Err(format!("persistentvolumeclaim {name:?} is provisioned for node {selected:?}")));
        }
        let body = json!({"metadata": {
            "uid": json::uid(&claim), "resourceVersion": json::version(&claim),
            "annotations": {SELECTED_NODE: node},
        }});
        let request = Request::patch(VOLUME_CLAIMS, &key.0, &key.1, "", PatchKind::Merge, body);
        send(request, move |response| match response {
            Err(e) if e.is_conflict() && left > 1 => select(key, node, left - 1, then),
            response => then(done(response)),
        })
    })
}

/// How a write ended that needs no more than its response.
pub(super) fn done(response: Response) -> Result<(), String> {
    response.map(drop).map_err(|e| e.to_string())
}
