//! Values as Go prints structs of internal types: names of fields as in Go, in Go's order, nothing left out.

use serde_json::Value;

use super::path::go_struct;
use crate::obj::{Obj, as_obj, list, object, text};

/// Fields of texts: their names in Go and in JSON.
type Texts = [(&'static str, &'static str)];

const REFERENCE: [(&str, &str); 7] = [
    ("Kind", "kind"),
    ("Namespace", "namespace"),
    ("Name", "name"),
    ("UID", "uid"),
    ("APIVersion", "apiVersion"),
    ("ResourceVersion", "resourceVersion"),
    ("FieldPath", "fieldPath"),
];
const SOURCE: [(&str, &str); 2] = [("Component", "component"), ("Host", "host")];

fn texts(o: &Obj, fields: &Texts) -> String {
    let shown: Vec<(&str, Value)> = fields.iter().map(|(go, json)| (*go, text(o, json).into())).collect();
    go_struct(&shown)
}

/// `core.ObjectReference`.
pub(super) fn reference(o: &Obj) -> String {
    texts(o, &REFERENCE)
}

/// `core.EventSource`.
pub(super) fn event_source(o: &Obj) -> String {
    texts(o, &SOURCE)
}

/// A list as it is printed; none is `null`.
fn items(o: &Obj, key: &str, one: impl Fn(&Obj) -> String) -> String {
    match o.get(key) {
        Some(Value::Array(_)) => {
            let all: Vec<String> = list(o, key).iter().map(|v| one(as_obj(v))).collect();
            format!("[{}]", all.join(","))
        }
        _ => "null".to_owned(),
    }
}

/// `core.VolumeNodeAffinity`, or `null`.
pub(super) fn node_affinity(value: Option<&Value>) -> String {
    let Some(affinity) = value.and_then(Value::as_object) else { return "null".to_owned() };
    let requirement = |e: &Obj| {
        go_struct(&[
            ("Key", text(e, "key").into()),
            ("Operator", text(e, "operator").into()),
            ("Values", e.get("values").cloned().unwrap_or_default()),
        ])
    };
    let term = |t: &Obj| {
        let (expressions, fields) =
            (items(t, "matchExpressions", requirement), items(t, "matchFields", requirement));
        format!("{{\"MatchExpressions\":{expressions},\"MatchFields\":{fields}}}")
    };
    if !affinity.get("required").is_some_and(Value::is_object) {
        return "{\"Required\":null}".to_owned();
    }
    let terms = items(object(affinity, "required"), "nodeSelectorTerms", term);
    format!("{{\"Required\":{{\"NodeSelectorTerms\":{terms}}}}}")
}

/// `storage.VolumeAttachmentSpec` of a volume by name.
pub(super) fn attachment(spec: &Obj) -> String {
    let from = object(spec, "source");
    let name = from.get("persistentVolumeName").cloned().unwrap_or_default();
    let inline = from.get("inlineVolumeSpec").cloned().unwrap_or_default();
    format!(
        "{{\"Attacher\":{},\"Source\":{{\"PersistentVolumeName\":{name},\"InlineVolumeSpec\":{inline}}},\"NodeName\":{}}}",
        Value::from(text(spec, "attacher")),
        Value::from(text(spec, "nodeName"))
    )
}
