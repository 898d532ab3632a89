//! Volumes and claims to them.

use jiff::Timestamp;
use serde_json::Value;

use crate::obj::{Obj, has, object, set, text, with_child};

/// Sets the time at which the phase of a volume last changed.
pub fn phase(o: &mut Obj, old: Option<&Obj>, now: Timestamp) {
    let before = old.map(|o| object(o, "status"));
    with_child(o, "status", |status| {
        set(status, "phase", "Pending");
        let same = before.is_some_and(|b| text(b, "phase") == text(status, "phase"));
        if same {
            if let Some(time) = before.and_then(|b| b.get("lastPhaseTransitionTime")) {
                set(status, "lastPhaseTransitionTime", time.clone());
            }
        } else {
            let given = status.get("lastPhaseTransitionTime");
            let stale = before.and_then(|b| b.get("lastPhaseTransitionTime")) == given;
            if given.is_none() || stale {
                let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                status.insert("lastPhaseTransitionTime".to_owned(), Value::String(time));
            }
        }
    });
}

/// Makes `dataSource` and `dataSourceRef` of a claim equal where they can be. Sources in other namespaces are off, as
/// they are upstream by default.
pub fn data_sources(o: &mut Obj, old: Option<&Obj>) {
    let used = |key: &str| old.is_some_and(|o| has(object(o, "spec"), key));
    let known = |source: &Obj| {
        matches!(
            (text(source, "apiGroup"), text(source, "kind")),
            ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
        )
    };
    let without_namespace = |source: &Obj| {
        let mut copy = Obj::new();
        for key in ["apiGroup", "kind", "name"] {
            if let Some(value) = source.get(key) {
                copy.insert(key.to_owned(), value.clone());
            }
        }
        copy
    };
    with_child(o, "spec", |spec| {
        let elsewhere = !text(object(spec, "dataSourceRef"), "namespace").is_empty();
        if elsewhere && !used("dataSourceRef") {
            spec.remove("dataSourceRef");
        }
        let reference = has(spec, "dataSourceRef");
        let in_use = used("dataSource") || used("dataSourceRef");
        if !in_use && !reference && has(spec, "dataSource") && !known(object(spec, "dataSource")) {
            spec.remove("dataSource");
        }
        match (has(spec, "dataSource"), reference) {
            (true, false) => {
                let source = without_namespace(object(spec, "dataSource"));
                spec.insert("dataSourceRef".to_owned(), Value::Object(source));
            }
            (false, true) => {
                let source = object(spec, "dataSourceRef");
                if text(source, "namespace").is_empty() {
                    let mut source = without_namespace(source);
                    // Written whether it is set or not.
                    source.entry("apiGroup").or_insert(Value::Null);
                    spec.insert("dataSource".to_owned(), Value::Object(source));
                }
            }
            _ => {}
        }
    });
}
