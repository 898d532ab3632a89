//! Whole pods and nodes in protobuf, for plugins that hand them on.
//!
//! They go with the events of the engine, so that the same events give the same decisions, and are encoded here, beside the
//! engine's thread.

use plimsoll_api::json;
use plimsoll_apimachinery::{Gvk, proto};
use plimsoll_state::model::EncodedObject;
use serde_json::{Value, json};

/// A Pod or Node of the API as a message, without managed fields as kube-scheduler's informers keep it (`trim` in
/// `pkg/scheduler/scheduler.go`). `None`: the bytes are none.
pub fn encoded(kind: &str, bytes: &[u8]) -> Option<EncodedObject> {
    if plimsoll_api::protobuf::is_protobuf(bytes) {
        return Some(EncodedObject(plimsoll_api::protobuf::without_managed_fields(bytes).ok()?.into()));
    }
    let mut object: Value = serde_json::from_slice(bytes).ok()?;
    let map = object.as_object_mut()?;
    // No pointers in Go: guests read them without asking whether they are there.
    for field in ["metadata", "spec", "status"] {
        map.entry(field).or_insert_with(|| json!({}));
    }
    json::remove(&mut object, &["metadata", "managedFields"]);
    let gvk = Gvk { group: String::new(), version: "v1".to_owned(), kind: kind.to_owned() };
    Some(EncodedObject(proto::encode_message(&gvk, &object)?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message as the embedded API server reads it.
    fn decoded(kind: &str, encoded: &EncodedObject) -> Value {
        let wrap = |number: u8, bytes: &[u8]| {
            let mut out = vec![number << 3 | 2];
            let mut length = bytes.len();
            while length >= 0x80 {
                out.push((length & 0x7f) as u8 | 0x80);
                length >>= 7;
            }
            out.push(length as u8);
            [out.as_slice(), bytes].concat()
        };
        let kind = wrap(1, &[wrap(1, b"v1"), wrap(2, kind.as_bytes())].concat());
        proto::decode_body(&[b"k8s\0".as_slice(), &kind, &wrap(2, &encoded.0)].concat()).expect("a message")
    }

    fn pod() -> Value {
        json!({
            "metadata": {
                "name": "p", "namespace": "ns", "uid": "u", "annotations": {"note": "x"},
                "managedFields": [{"manager": "m", "operation": "Update", "fieldsV1": {"f:metadata": {}}}],
            },
            "spec": {
                "affinity": {
                    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                        {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"},
                    ]},
                    "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 7, "preference": {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}},
                    ]},
                },
                "containers": [{
                    "name": "c", "image": "i", "env": [{"name": "MODE", "value": "fast"}],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }],
                "tolerations": [{"key": "t", "operator": "Exists", "effect": "NoSchedule"}],
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
                ],
                "volumes": [{"name": "data", "configMap": {"name": "settings"}}],
            },
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]},
        })
    }

    #[test]
    fn plugins_see_what_the_api_has() {
        let of = pod();
        let encoded = encoded("Pod", of.to_string().as_bytes()).expect("a pod");
        let found = decoded("Pod", &encoded);
        for path in [
            "/metadata/annotations",
            "/spec/affinity",
            "/spec/containers/0/env",
            "/spec/containers/0/volumeMounts",
            "/spec/tolerations",
            "/spec/topologySpreadConstraints",
            "/spec/volumes",
        ] {
            assert_eq!(found.pointer(path), of.pointer(path), "{path}");
        }
        assert_eq!(found["status"]["conditions"][0]["type"], "PodScheduled");
        assert!(found["metadata"].get("managedFields").is_none());
    }

    #[test]
    fn both_encodings_give_the_same() {
        let gvk = Gvk { group: String::new(), version: "v1".to_owned(), kind: "Pod".to_owned() };
        let message = proto::encode_message(&gvk, &pod()).expect("a kind of the API");
        let from_json = encoded("Pod", pod().to_string().as_bytes()).expect("a pod");
        assert!(from_json.0.len() < message.len(), "without managed fields");
        assert_eq!(encoded("Pod", &message), Some(from_json));
    }

    #[test]
    fn what_is_no_object_is_left_out() {
        assert_eq!(encoded("Pod", b"{"), None);
        assert_eq!(encoded("Pod", b"[]"), None);
        assert_eq!(encoded("Pod", b"\x0a\x05ab"), None);
        let bare = encoded("Node", br#"{"metadata": {"name": "n"}}"#).expect("a node");
        assert_eq!(decoded("Node", &bare)["metadata"], json!({"name": "n"}));
    }
}
