//! The one place where this crate calls what `plimsoll-machinery` does to objects, so that the pipeline reads
//! the same whatever the machinery learns.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use plimsoll_machinery::decode::{self as codec, FieldValidation};
use plimsoll_machinery::select::LabelSelector;
use plimsoll_machinery::table::{IncludeObject, to_table};
use plimsoll_machinery::{
    ApiError, FieldError, Gvk, Kind, KindTable, apply as owners, builtin, crd, openapi, patch, proto,
    strategy, validate,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::http::Document;
use crate::http::discovery::GIT_VERSION;
use crate::http::negotiate::{Format, MetaVersion};
use crate::http::query::Query;
use crate::server::Server;

pub use plimsoll_machinery::table::TableOptions;

/// Decodes a body into an object of a kind. The second part: warnings.
pub fn decode(
    kind: &Kind,
    bytes: &[u8],
    format: Format,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), ApiError> {
    let decoded = match format {
        Format::Json => codec::decode(kind, bytes, codec::Format::Json, validation)?,
        Format::Yaml => codec::decode(kind, bytes, codec::Format::Yaml, validation)?,
        Format::Protobuf => {
            let message = match proto::decode_body(bytes) {
                Err(_) if !bytes.starts_with(b"k8s\0") => {
                    return Err(codec::unrecognized(kind, proto::NO_MESSAGE, bytes));
                }
                other => other?,
            };
            let json = message.to_string();
            codec::decode(kind, json.as_bytes(), codec::Format::Json, validation)?
        }
    };
    Ok((decoded.object, decoded.warnings))
}

/// Warnings about a custom resource whose body was refused: fields, when they are of a version that there isn't.
pub fn unread(kind: &Kind, body: &[u8], validation: FieldValidation) -> Vec<String> {
    let other = |object: &Value| object["apiVersion"].as_str() != Some(kind.gvk.api_version().as_str());
    match serde_json::from_slice::<Value>(body) {
        Ok(object) if kind.custom.is_some() && validation == FieldValidation::Warn && other(&object) => {
            codec::conform(kind, object).map_or_else(|_| Vec::new(), |c| c.strict)
        }
        _ => Vec::new(),
    }
}

/// Kinds besides DeleteOptions that are registered for it in every group (`metav1.AddToGroupVersion`).
const META_KINDS: [&str; 15] = [
    "APIGroup",
    "APIGroupList",
    "APIResourceList",
    "APIVersions",
    "CreateOptions",
    "GetOptions",
    "ListOptions",
    "PartialObjectMetadata",
    "PartialObjectMetadataList",
    "PatchOptions",
    "Status",
    "Table",
    "TableOptions",
    "UpdateOptions",
    "WatchEvent",
];

/// Decodes the DeleteOptions in the body of a deletion.
pub fn decode_delete_options(bytes: &[u8], format: Format) -> Result<Value, ApiError> {
    let mut value: Value = match format {
        Format::Yaml => codec::yaml(bytes).map_err(|e| {
            ApiError::bad_request(format!("couldn't get version/kind; json parse error: {e}"))
        })?,
        Format::Protobuf => proto::decode_body(bytes)?,
        Format::Json => serde_json::from_slice(bytes).map_err(|_| {
            let why = json_error(bytes);
            ApiError::bad_request(format!("couldn't get version/kind; json parse error: {why}"))
        })?,
    };
    type_meta(&mut value).map_err(|why| {
        ApiError::bad_request(format!("couldn't get version/kind; json parse error: {why}"))
    })?;
    let text = |field: &str| value[field].as_str().unwrap_or("");
    let (kind, version) = (text("kind"), text("apiVersion"));
    if version.matches('/').count() > 1 {
        return Err(ApiError::bad_request(format!("unexpected GroupVersion string: {version}")));
    }
    if !matches!(kind, "" | "DeleteOptions") {
        if META_KINDS.contains(&kind) && matches!(version, "" | "v1" | "meta.k8s.io/v1") {
            let why = format!("converting (v1.{kind}) to (v1.DeleteOptions): unknown conversion");
            return Err(ApiError::bad_request(why));
        }
        let version = if version.is_empty() { "meta.k8s.io/v1" } else { version };
        return Err(ApiError::bad_request(format!(
            "no kind {kind:?} is registered for version {version:?} in scheme \
             \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\""
        )));
    }
    match delete_option_fault(&value) {
        Some(why) => Err(ApiError::bad_request(why)),
        None => Ok(value),
    }
}

/// The first of the fields of `DeleteOptions` that is of another type than it must be, in Go's words.
fn delete_option_fault(options: &Value) -> Option<String> {
    const FIELDS: [(&str, &str, &str); 7] = [
        ("/dryRun", "DeleteOptions", "[]string"),
        ("/gracePeriodSeconds", "DeleteOptions", "int64"),
        ("/orphanDependents", "DeleteOptions", "bool"),
        ("/preconditions", "DeleteOptions", "v1.Preconditions"),
        ("/preconditions/resourceVersion", "Preconditions", "string"),
        ("/preconditions/uid", "Preconditions", "types.UID"),
        ("/propagationPolicy", "DeleteOptions", "v1.DeletionPropagation"),
    ];
    FIELDS.into_iter().find_map(|(path, owner, wanted)| {
        let value = options.pointer(path).filter(|v| !v.is_null())?;
        let fits = match wanted {
            "[]string" => value.is_array(),
            "int64" => value.is_i64(),
            "bool" => value.is_boolean(),
            "v1.Preconditions" => value.is_object(),
            _ => value.is_string(),
        };
        let got = match value {
            Value::Number(n) if wanted == "int64" => format!("number {n}"),
            other => codec::json_kind(other).to_owned(),
        };
        let field = path.trim_start_matches('/').replace('/', ".");
        let text =
            format!("json: cannot unmarshal {got} into Go struct field {owner}.{field} of type {wanted}");
        (!fits).then_some(text)
    })
}

/// Reads `apiVersion` and `kind` as Go does, which looks at no case.
fn type_meta(value: &mut Value) -> Result<(), String> {
    if value.is_null() {
        *value = json!({});
    }
    let Some(map) = value.as_object_mut() else {
        return Err(format!(
            "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \
             \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            codec::json_kind(value)
        ));
    };
    for field in ["apiVersion", "kind"] {
        let Some(found) = map.keys().find(|k| k.eq_ignore_ascii_case(field)).cloned() else { continue };
        let Some(text) = map.remove(&found) else { continue };
        match text {
            Value::String(_) => map.insert(field.to_owned(), text),
            Value::Null => None,
            other => {
                let what = codec::json_kind(&other);
                return Err(format!(
                    "json: cannot unmarshal {what} into Go struct field .{field} of type string"
                ));
            }
        };
    }
    Ok(())
}

/// What Go says about bytes that are no JSON.
pub fn json_error(bytes: &[u8]) -> String {
    codec::explain(bytes).unwrap_or_else(|| "unexpected end of JSON input".to_owned())
}

/// What clients of a built-in kind are warned of.
pub fn deprecation(kind: &Kind) -> Option<String> {
    builtin::deprecation(&kind.gvk).map(str::to_owned)
}

/// Fills in defaults.
pub fn default(kind: &Kind, object: &mut Value) {
    if kind.custom.is_some() {
        crd::default_object(kind, object);
    } else {
        plimsoll_machinery::default::apply_defaults(kind, object);
    }
}

/// What happens to an object between validation and storage: custom resources lose what their schema doesn't know, and
/// what the strategy left empty gets the defaults it would have when read again. Whole numbers lose their fraction.
pub fn finish(kind: &Kind, object: &mut Value) {
    crd::prune(kind, object);
    // Most of what is written are these two, whose strategies leave nothing empty.
    if kind.custom.is_none() && matches!(kind.gvk.kind.as_str(), "Pod" | "Event") {
        debug_assert!(is_default(kind, object), "{object}");
    } else {
        default(kind, object);
    }
    if kind.custom.is_some() {
        crd::normalise_numbers(object);
    }
    strategy::finish(kind, object);
}

/// Whether an object has all its defaults.
fn is_default(kind: &Kind, object: &Value) -> bool {
    let mut again = object.clone();
    default(kind, &mut again);
    again == *object
}

/// An object as it is served: custom resources with the defaults of their version.
pub fn serve(kind: &Kind, mut object: Value) -> Value {
    if kind.custom.is_some() {
        crd::prune(kind, &mut object);
        crd::default_object(kind, &mut object);
    }
    object
}

/// What the kind's strategy does before a create.
pub fn prepare_create(kind: &Kind, object: &mut Value, now: Timestamp) {
    strategy::prepare_create(kind, object, now);
}

/// What the kind's strategy does before an update through a subresource (empty: the object itself).
pub fn prepare_update(kind: &Kind, subresource: &str, new: &mut Value, old: &Value, now: Timestamp) {
    strategy::prepare_update(kind, subresource, old, new, now);
}

/// Validates a new object.
pub fn validate_create(kind: &Kind, object: &Value) -> Vec<FieldError> {
    let wrong = crd::validate_type(kind, object);
    if !wrong.is_empty() {
        return wrong;
    }
    let mut errors = validate::validate_create(kind, object);
    if crate::custom::is_definition(kind) {
        errors.extend(crd::define::validate_create(object));
    } else if kind.custom.is_some() {
        let more = crd::validate_object(kind, None, object, &errors);
        errors.extend(more);
    }
    errors
}

/// Validates a change.
pub fn validate_update(kind: &Kind, subresource: &str, new: &Value, old: &Value) -> Vec<FieldError> {
    let wrong = crd::validate_type(kind, new);
    if !wrong.is_empty() {
        return wrong;
    }
    let mut errors = validate::validate_update(kind, subresource, old, new);
    if crate::custom::is_definition(kind) && subresource.is_empty() {
        errors.extend(crd::define::validate_update(old, new));
    } else if crate::custom::is_definition(kind) && subresource == "status" {
        errors.extend(crd::define::validate_status(new));
    } else if kind.custom.is_some() && subresource == "status" {
        errors.extend(crd::validate_status(kind, old, new));
    } else if kind.custom.is_some() {
        let more = crd::validate_object(kind, Some(old), new, &errors);
        errors.extend(more);
    }
    errors
}

/// Warnings about an object that is accepted.
pub fn warnings(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<String> {
    if crate::custom::is_definition(kind) {
        return crd::define::warnings(old, new);
    }
    validate::warnings(kind, old, new)
}

/// 422 for an object that was to be of a kind; a custom resource may say that it is of another.
pub fn invalid_object(kind: &Kind, object: &Value, name: &str, errors: &[FieldError]) -> ApiError {
    if kind.custom.is_none() {
        return invalid(kind, name, errors);
    }
    let said = gvk_of(object);
    ApiError::invalid(&said.group, &said.kind, name, errors)
}

/// 422 for an object of a kind.
pub fn invalid(kind: &Kind, name: &str, errors: &[FieldError]) -> ApiError {
    let (group, kind) = validate::named(kind);
    ApiError::invalid(group, kind, name, errors)
}

/// Records in `new` who owns what changed.
pub fn own_update(
    kind: &Kind,
    old: Option<&Value>,
    new: &mut Value,
    manager: &str,
    subresource: &str,
    now: Timestamp,
) -> Result<(), ApiError> {
    if kind.gvk.group == "apps" && kind.gvk.kind == "DaemonSet" {
        // A field of upstream's internal type that shows as an annotation.
        const GENERATION: &str = "deprecated.daemonset.template.generation";
        if new["metadata"]["annotations"].get(GENERATION).is_none() && new["metadata"].is_object() {
            if !new["metadata"]["annotations"].is_object() {
                new["metadata"]["annotations"] = json!({});
            }
            new["metadata"]["annotations"][GENERATION] = json!("0");
        }
    }
    owners::on_update(kind, subresource, old, new, manager, &crate::time::seconds(now));
    Ok(())
}

/// Times in managed fields stay as they were when nothing else changed.
pub fn settle_times(new: &mut Value, old: &Value) {
    owners::keep_times(old, new);
}

/// Whether dependents are orphaned unless the client says otherwise (`DefaultGarbageCollectionPolicy`).
pub fn orphans_by_default(kind: &Kind) -> bool {
    matches!(
        (kind.gvk.group.as_str(), kind.plural.as_str()),
        ("batch", "jobs") | ("", "replicationcontrollers")
    )
}

/// The object in protobuf, in its envelope; `None`: it has no protobuf form.
pub fn to_protobuf(_kind: Option<&Kind>, object: &Value) -> Option<Vec<u8>> {
    proto::encode(&gvk_of(object), object)
}

/// A watch event in protobuf, with its length.
pub fn protobuf_event(_kind: &Kind, event_type: &str, object: &Value) -> Option<Vec<u8>> {
    let object = proto::encode(&gvk_of(object), object)?;
    Some(proto::frame(&proto::watch_event(event_type, &object)))
}

/// Whether a kind can be read and written in protobuf.
pub fn has_protobuf(kind: &Kind) -> bool {
    kind.custom.is_none() && proto::supports(&kind.gvk)
}

/// What an object says it is.
fn gvk_of(object: &Value) -> Gvk {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    Gvk { group: group.to_owned(), version: version.to_owned(), kind: text("kind").to_owned() }
}

/// Options of a table from the query.
pub fn table_options(query: &Query, list_meta: Value, no_headers: bool) -> Result<TableOptions, ApiError> {
    let include_object = IncludeObject::parse(query.get("includeObject").unwrap_or(""))?;
    Ok(TableOptions { include_object, no_headers, list_meta })
}

/// Objects as a table.
pub fn table(
    kind: &Kind,
    items: &[Value],
    options: &TableOptions,
    version: MetaVersion,
    now: Timestamp,
) -> Value {
    let mut table = to_table(kind, items, options, now);
    if version == MetaVersion::V1beta1 {
        table["apiVersion"] = json!(version.api_version());
        for row in table["rows"].as_array_mut().into_iter().flatten() {
            if row["object"]["kind"] == "PartialObjectMetadata" {
                row["object"]["apiVersion"] = json!(version.api_version());
            }
        }
    }
    table
}

/// An object of a kind with nothing in it, as bookmarks carry it.
pub fn empty(kind: &Kind) -> Value {
    let object = json!({"kind": kind.gvk.kind, "apiVersion": kind.gvk.api_version()});
    if kind.custom.is_some() {
        return object;
    }
    codec::conform(kind, object.clone()).map_or(object, |c| c.object)
}

/// Type of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Strategic merge.
    Strategic,
    /// Server-side apply.
    Apply,
}

/// Applies a patch to an object of a kind; the second part: warnings.
///
/// # Errors
/// The patch doesn't fit, or the result isn't an object of the kind.
pub fn apply_patch(
    kind: &Kind,
    patch_type: PatchType,
    body: &[u8],
    old: &Value,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), ApiError> {
    let document = || match (patch_type, &kind.schema) {
        (PatchType::Json, _) => patch::json(old, body),
        (PatchType::Strategic, Some(schema)) => patch::strategic(schema, old, body),
        _ => patch::merge(old, body),
    };
    // only shown in errors, so made again rather than kept
    let shown = || match patch_type {
        PatchType::Strategic => patch::go_text(&serde_json::from_slice(body).unwrap_or(Value::Null)),
        _ => document().map(|d| d.to_string()).unwrap_or_default(),
    };
    let document_of_kind = document()?;
    if kind.custom.is_some() && document_of_kind["apiVersion"].is_null() {
        return Err(ApiError::internal("Object 'apiVersion' is missing in 'object has no apiVersion field'"));
    }
    if let Some(why) = other_kind(kind, &document_of_kind) {
        return Err(patch::refused(&shown(), &why));
    }
    let conformed = codec::conform(kind, document_of_kind).map_err(|why| match patch_type {
        PatchType::Strategic => patch::refused(&shown(), &codec::converter_error(&why)),
        _ => patch::refused(&shown(), &why),
    })?;
    if validation == FieldValidation::Strict && !conformed.strict.is_empty() {
        let why = format!("strict decoding error: {}", conformed.strict.join(", "));
        return Err(patch::refused(&shown(), &why));
    }
    let warnings = if validation == FieldValidation::Warn { conformed.strict } else { Vec::new() };
    Ok((conformed.object, warnings))
}

/// Why it can't be read what a custom resource says that it is.
fn type_fault(document: &Value) -> Option<String> {
    let lead = "couldn't get version/kind; json parse error: json: cannot unmarshal";
    for field in ["apiVersion", "kind"] {
        if let Some(wrong) = document.get(field).filter(|v| !v.is_null() && !v.is_string()) {
            let got = codec::json_kind(wrong);
            return Some(format!("{lead} {got} into Go struct field .{field} of type string"));
        }
    }
    let version = document["apiVersion"].as_str().unwrap_or_default();
    if version.matches('/').count() > 1 {
        return Some(format!("unexpected GroupVersion string: {version}"));
    }
    let named = document["kind"].as_str().is_some_and(|k| !k.is_empty());
    (!named).then(|| format!("Object 'Kind' is missing in '{document}'"))
}

/// What Go says when a patch made another kind of an object of a built-in kind.
fn other_kind(kind: &Kind, document: &Value) -> Option<String> {
    let found = gvk_of(document);
    if found == kind.gvk {
        return None;
    }
    if kind.custom.is_some() {
        return type_fault(document);
    }
    let version = found.api_version();
    if found.kind.is_empty() {
        return Some(format!("Object 'Kind' is missing in '{document}'"));
    }
    if version.is_empty() {
        return Some(format!("Object 'apiVersion' is missing in '{document}'"));
    }
    let Some(schema) = builtin::definition(&found) else {
        let name = &found.kind;
        return Some(format!(
            "no kind {name:?} is registered for version {version:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\""
        ));
    };
    let other = Kind { gvk: found.clone(), schema: Some(schema), ..Kind::default() };
    if let Err(why) = codec::conform(&other, document.clone()) {
        return Some(why);
    }
    let into = format!("*{}.{}", kind.gvk.version, kind.gvk.kind);
    Some(format!("unable to decode {}/{}, Kind={} into {into}", found.group, found.version, found.kind))
}

/// Parses the body of an apply: the configuration as it is written, without defaults or zero fields.
///
/// # Errors
/// 400 for what is neither YAML nor JSON, or no object.
pub fn parse_apply(bytes: &[u8]) -> Result<Value, ApiError> {
    let value = match serde_json::from_slice(bytes) {
        Ok(mut value) => {
            crd::normalise_numbers(&mut value);
            value
        }
        Err(_) => codec::yaml(bytes).map_err(|e| {
            ApiError::bad_request(format!("error decoding YAML: error converting YAML to JSON: {e}"))
        })?,
    };
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(json!({})),
        other => Err(ApiError::bad_request(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} \
             into Go value of type map[string]interface {{}}",
            codec::json_kind(&other)
        ))),
    }
}

/// What a strict reader says of keys that are there twice in the body of an apply, as warnings.
///
/// # Errors
/// 400 if they are refused.
pub fn strict_apply(bytes: &[u8], validation: FieldValidation) -> Result<Vec<String>, ApiError> {
    if validation == FieldValidation::Ignore || serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok()
    {
        return Ok(Vec::new());
    }
    let twice = codec::yaml_strict(bytes).map(|(_, twice)| twice).unwrap_or_default();
    if validation == FieldValidation::Strict && !twice.is_empty() {
        let why = codec::strict_yaml(&twice);
        return Err(ApiError::bad_request(format!(
            "error strict decoding YAML: error converting YAML to JSON: {why}"
        )));
    }
    Ok(twice)
}

/// Checks that a configuration is one of a kind.
///
/// # Errors
/// As [`apply`].
pub fn check_apply(kind: &Kind, intent: &Value) -> Result<(), ApiError> {
    owners::check_applied(kind, intent)
}

/// Server-side apply.
///
/// # Errors
/// Conflicts with other managers.
pub fn apply(
    kind: &Kind,
    old: Option<&Value>,
    intent: &Value,
    manager: &str,
    subresource: &str,
    force: bool,
    now: Timestamp,
) -> Result<Value, ApiError> {
    let now = crate::time::seconds(now);
    let merged = owners::apply(kind, subresource, old, intent, manager, force, &now)?;
    let conformed = codec::conform(kind, merged).map_err(|why| ApiError::new(500, "", why))?;
    let mut object = conformed.object;
    default(kind, &mut object);
    Ok(object)
}

/// Custom resources have no strategic merge patch.
pub fn unsupported_patch(_kind: &Kind) -> ApiError {
    ApiError::new(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: \
         application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
    )
}

/// SHA-256 in hexadecimal, upper case, for ETags.
pub fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02X}")).collect()
}

/// The index of schema documents.
pub fn openapi_index(_server: &Arc<Server>, table: &KindTable) -> Value {
    openapi::index(table)
}

/// Most schema documents kept; there are about 35 of built-in kinds.
const MAX_DOCUMENTS: usize = 256;
static DOCUMENTS: Mutex<BTreeMap<(String, String), Arc<Document>>> = Mutex::new(BTreeMap::new());

/// One schema document. Its hash says all there is to know about it, so documents are shared by all servers of
/// the process and made once.
pub fn openapi_document(_server: &Arc<Server>, table: &KindTable, name: &str) -> Option<Arc<Document>> {
    let hash = openapi::hash(table, name)?;
    let key = (name.to_owned(), hash.clone());
    let kept = || DOCUMENTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = kept().get(&key) {
        return Some(Arc::clone(found));
    }
    let value = openapi::document(table, name, GIT_VERSION)?;
    let made = Arc::new(Document { bytes: serde_json::to_vec(&value).ok()?.into(), hash });
    let mut documents = kept();
    if documents.len() >= MAX_DOCUMENTS {
        documents.clear();
    }
    documents.insert(key, Arc::clone(&made));
    Some(made)
}

/// The kind of a subresource that is not its parent's.
pub fn subresource_kind(table: &KindTable, gvk: &Gvk) -> Option<Arc<Kind>> {
    table.kind(gvk).or_else(|| builtin::subresource_kind(gvk)).cloned()
}

/// An object as it is; fields written as null upstream stay.
pub fn ordered(value: Value) -> Value {
    value
}

/// Whether a `metav1.LabelSelector` selects labels. An absent one selects nothing, an empty one everything.
pub fn selects(selector: &Value, labels: &Value) -> bool {
    if selector.is_null() {
        return false;
    }
    let labels: BTreeMap<String, String> = labels
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned())))
        .collect();
    LabelSelector::parse(&selector_text(selector)).is_ok_and(|s| s.matches(&labels))
}

/// A `metav1.LabelSelector` (or the map of an old one) in the syntax of queries.
pub fn selector_text(selector: &Value) -> String {
    let mut parts: Vec<(String, String)> = Vec::new();
    let plain = selector.get("matchLabels").is_none() && selector.get("matchExpressions").is_none();
    let labels = if plain { selector.as_object() } else { selector["matchLabels"].as_object() };
    for (key, value) in labels.into_iter().flatten() {
        parts.push((key.clone(), format!("{key}={}", value.as_str().unwrap_or(""))));
    }
    for e in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = e["key"].as_str().unwrap_or("").to_owned();
        let mut values: Vec<&str> =
            e["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let text = match e["operator"].as_str().unwrap_or("") {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "DoesNotExist" => format!("!{key}"),
            _ => key.clone(),
        };
        parts.push((key, text));
    }
    parts.sort();
    parts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}
