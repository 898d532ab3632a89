use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::convert;

/// What kube-apiserver 1.36.2 answered to the same lists in both encodings.
const PODS: [&[u8]; 2] = [include_bytes!("testdata/pods.json"), include_bytes!("testdata/pods.pb")];
const NODES: [&[u8]; 2] = [include_bytes!("testdata/nodes.json"), include_bytes!("testdata/nodes.pb")];
/// The same watch in both encodings.
const WATCH: [&[u8]; 2] = [include_bytes!("testdata/watch.json"), include_bytes!("testdata/watch.pb")];

fn both(lists: [&'static [u8]; 2]) -> Vec<(Vec<u8>, &'static [u8])> {
    let [json, encoded] = lists;
    let json: Value = serde_json::from_slice(json).unwrap();
    let list = list(encoded).unwrap();
    assert_eq!(json["metadata"]["resourceVersion"], list.resource_version);
    assert_eq!(json["metadata"]["continue"].as_str().unwrap_or_default(), list.next);
    let items: Vec<Vec<u8>> =
        json["items"].as_array().unwrap().iter().map(|i| serde_json::to_vec(i).unwrap()).collect();
    assert_eq!(items.len(), list.items.len());
    assert!(items.iter().all(|i| !is_protobuf(i)) && list.items.iter().all(|i| is_protobuf(i)));
    items.into_iter().zip(list.items).collect()
}

#[test]
fn pods_are_the_same_in_both_encodings() {
    let pods = both(PODS);
    assert!(pods.len() >= 3, "{}", pods.len());
    for (json, encoded) in pods {
        assert_eq!(convert::pod(&json).unwrap(), convert::pod(encoded).unwrap());
    }
}

#[test]
fn nodes_are_the_same_in_both_encodings() {
    let nodes = both(NODES);
    assert!(!nodes.is_empty());
    for (json, encoded) in nodes {
        assert_eq!(convert::node(&json).unwrap(), convert::node(encoded).unwrap());
    }
}

#[test]
fn events_are_the_same_in_both_encodings() {
    let [json, encoded] = WATCH;
    let mut left = encoded;
    let mut events = 0;
    for line in json.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
        let json: Value = serde_json::from_slice(line).unwrap();
        let (length, rest) = left.split_first_chunk::<4>().unwrap();
        let (frame, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        left = rest;
        let (kind, object) = event(frame).unwrap();
        assert_eq!(json["type"], kind);
        if kind == "ERROR" {
            let (code, message) = status(object).unwrap();
            assert_eq!(
                (&json["object"]["code"], &json["object"]["message"]),
                (&code.into(), &message.into())
            );
        } else {
            let meta: Value = metadata(object).unwrap();
            let field = |v: &Value, name: &str| v["metadata"][name].as_str().unwrap_or_default().to_owned();
            for name in ["name", "namespace", "uid", "resourceVersion"] {
                assert_eq!(field(&json["object"], name), field(&meta, name), "{name}");
            }
        }
        events += 1;
    }
    assert!(events >= 2 && left.is_empty(), "{events}");
}

proptest! {
    #[test]
    fn damaged_messages_are_refused_without_a_panic(
        at in any::<proptest::sample::Index>(), byte in any::<u8>(), cut in any::<proptest::sample::Index>(),
    ) {
        let [_, whole] = PODS;
        let mut bytes = whole.to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.truncate(cut.index(bytes.len()).max(bytes.len() / 2));
        if let Ok(list) = list(&bytes) {
            list.items.iter().for_each(|i| drop((convert::pod(i), convert::node(i), metadata::<Value>(i))));
        }
        drop((event(&bytes), status(&bytes)));
    }
}
