//! Objects whose fields are known.

use super::Ty;

/// Fields of an object type; `@name` is its name.
pub type Fields = [(&'static str, &'static str)];

/// `kubernetes.AdmissionRequest` (apiserver `BuildRequestType`).
pub(super) const REQUEST: &Fields = &[
    ("@name", "kubernetes.AdmissionRequest"),
    ("kind", "@gvk"),
    ("resource", "@gvr"),
    ("subResource", "string"),
    ("requestKind", "@gvk"),
    ("requestResource", "@gvr"),
    ("requestSubResource", "string"),
    ("name", "string"),
    ("namespace", "string"),
    ("operation", "string"),
    ("userInfo", "@user"),
    ("dryRun", "bool"),
    ("options", "dyn"),
];
const GVK: &Fields = &[
    ("@name", "kubernetes.GroupVersionKind"),
    ("group", "string"),
    ("version", "string"),
    ("kind", "string"),
];
const GVR: &Fields = &[
    ("@name", "kubernetes.GroupVersionResource"),
    ("group", "string"),
    ("version", "string"),
    ("resource", "string"),
];
const USER: &Fields = &[
    ("@name", "kubernetes.UserInfo"),
    ("username", "string"),
    ("uid", "string"),
    ("groups", "[string"),
    ("extra", "{[string"),
];
/// `kubernetes.Namespace` (apiserver `BuildNamespaceType`).
pub(super) const NAMESPACE: &Fields = &[
    ("@name", "kubernetes.Namespace"),
    ("metadata", "@nsmeta"),
    ("spec", "@nsspec"),
    ("status", "@nsstatus"),
];
const NS_META: &Fields = &[
    ("@name", "kubernetes.NamespaceMetadata"),
    ("name", "string"),
    ("generateName", "string"),
    ("namespace", "string"),
    ("labels", "{string"),
    ("annotations", "{string"),
    ("UID", "string"),
    ("creationTimestamp", "?"),
    ("deletionGracePeriodSeconds", "int"),
    ("deletionTimestamp", "?"),
    ("generation", "int"),
    ("resourceVersion", "string"),
    ("finalizers", "[string"),
];
const NS_SPEC: &Fields = &[("@name", "kubernetes.NamespaceSpec"), ("finalizers", "[string")];
const NS_STATUS: &Fields =
    &[("@name", "kubernetes.NamespaceStatus"), ("conditions", "?"), ("phase", "string")];

/// What selectors of devices look at (dynamic-resource-allocation `newCompiler`).
pub(super) const DEVICE: &Fields = &[
    ("@name", "kubernetes.DRADevice"),
    ("driver", "string"),
    ("allowMultipleAllocations", "bool"),
    ("attributes", "{{?"),
    ("capacity", "{{kubernetes.Quantity"),
];

/// The type that a field's says.
pub(super) fn named(text: &'static str) -> Ty {
    if let Some(of) = text.strip_prefix('[') {
        return Ty::List(Box::new(named(of)));
    }
    if let Some(of) = text.strip_prefix('{') {
        return Ty::Map(Box::new(named(of)));
    }
    match text {
        "@gvk" => Ty::Object(GVK),
        "@gvr" => Ty::Object(GVR),
        "@user" => Ty::Object(USER),
        "@nsmeta" => Ty::Object(NS_META),
        "@nsspec" => Ty::Object(NS_SPEC),
        "@nsstatus" => Ty::Object(NS_STATUS),
        "dyn" => Ty::Dyn,
        "?" => Ty::Unknown,
        plain => Ty::Plain(plain),
    }
}
