//! Update: PUT, PATCH and apply, also through subresources.

use std::sync::Arc;

use plimsoll_apimachinery::go::go_quote;
use plimsoll_apimachinery::{ApiError, FieldError, Gvk};
use serde_json::{Value, json};

use super::create::create_owned;
use super::{
    Admission, Updated, Write, create, devices, is_service, meta, owners, service, settled, uid_conflict,
};
use crate::convert::versions::{OtherVersions, with_versions};
use crate::store::{Encoded, Expected, Key, Record, StoreError};
use crate::{admission, convert, machine};

/// Attempts of a write against others that were faster, before the conflict is shown: one that names a version is refused at once, and
/// upstream's `GuaranteedUpdate` goes on for as long as the request may last.
const MAX_ATTEMPTS: usize = 100;
const LOCK_MESSAGE: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// The state after a server-side apply: of the one before, if there is one, and of that in the versions in which managers wrote.
type Applied<'a> = dyn Fn(Option<&Value>, &OtherVersions) -> Result<Value, ApiError> + Send + Sync + 'a;

/// Where the new state comes from.
pub enum Change<'a> {
    /// A whole object, defaulted.
    Replace(Value),
    /// A function of the current state (in the version of the request). It gives the new state, defaulted.
    Patch(&'a (dyn Fn(&Value) -> Result<Value, ApiError> + Send + Sync)),
    /// Server-side apply: a function of the current state, if there is one. It sets the managed fields itself.
    Apply(&'a Applied<'a>),
    /// The server's own change of a part (binding, eviction): as a patch, without ownership of fields.
    Internal(&'a (dyn Fn(Value) -> Result<Value, ApiError> + Send + Sync)),
    /// As [`Change::Internal`], with a quick way that doesn't read the whole object. It gives up on all that isn't plain.
    Part(&'a Part<'a>),
}

/// The server's own change of a part, in two ways that come to the same.
pub struct Part<'a> {
    /// What becomes of a record that stays and needs no conversion, if that is easily told.
    pub quick: &'a (dyn Fn(&Record) -> Option<Encoded> + Send + Sync),
    /// What becomes of the object.
    pub whole: &'a (dyn Fn(Value) -> Result<Value, ApiError> + Send + Sync),
}

/// Kinds that PUT may create (`AllowCreateOnUpdate`).
fn creates_on_update(w: &Write) -> bool {
    matches!(
        (w.kind.gvk.group.as_str(), w.kind.plural.as_str()),
        ("", "services" | "events" | "endpoints" | "limitranges")
            | ("events.k8s.io" | "coordination.k8s.io" | "rbac.authorization.k8s.io", _)
            | ("node.k8s.io", "runtimeclasses")
    )
}

/// Kinds that can't be replaced without a resource version (`AllowUnconditionalUpdate` is false).
fn needs_version(w: &Write) -> bool {
    w.kind.custom.is_some()
        || matches!(
            (w.kind.gvk.group.as_str(), w.kind.plural.as_str()),
            (
                "admissionregistration.k8s.io"
                    | "apiextensions.k8s.io"
                    | "apiregistration.k8s.io"
                    | "coordination.k8s.io"
                    | "internal.apiserver.k8s.io"
                    | "node.k8s.io"
                    | "policy"
                    | "storagemigration.k8s.io",
                _
            ) | ("storage.k8s.io", "csidrivers" | "csinodes" | "csistoragecapacities" | "volumeattachments")
                | ("certificates.k8s.io", "podcertificaterequests" | "clustertrustbundles")
                | ("resource.k8s.io", "resourcepoolstatusrequests")
        )
}

/// Changes an object.
///
/// # Errors
/// Whatever admission, validation or the store refuse.
pub async fn update(w: &mut Write, change: Change<'_>) -> Result<Updated, ApiError> {
    let result = update_repeatedly(w, change).await;
    settled(w, result).await
}

async fn update_repeatedly(w: &mut Write, change: Change<'_>) -> Result<Updated, ApiError> {
    for attempt in 1.. {
        match attempt_update(w, &change).await {
            Err((e, true)) if attempt < MAX_ATTEMPTS => {
                tracing::trace!(name = w.name, %e, "written by another, once more");
            }
            other => return other.map_err(|(e, _)| e),
        }
    }
    Err(ApiError::internal("too many attempts"))
}

/// An error, and whether trying again may help.
type Attempt<T> = Result<T, (ApiError, bool)>;

fn fatal(e: ApiError) -> (ApiError, bool) {
    (e, false)
}

async fn attempt_update(w: &mut Write, change: &Change<'_>) -> Attempt<Updated> {
    let name = w.name.clone();
    let key = w.key(&name);
    let record = w.server.store().latest(&key);
    let Some(record) = record else { return create_instead(w, change).await.map_err(fatal) };
    if let Change::Part(part) = change
        && !w.dry_run
        && convert::is_served_as(&record, &w.kind.gvk)
        && let Some(encoded) = (part.quick)(&record)
    {
        let written = store(w, key, &record, encoded).await?;
        return Ok(Updated::unseen(written));
    }
    let old = w.read(&record).await.map_err(fatal)?;
    let mut new = match change {
        Change::Replace(object) => object.clone(),
        Change::Patch(f) => f(&old).map_err(fatal)?,
        Change::Apply(f) => with_versions(w, |versions| f(Some(&old), versions)).await.map_err(fatal)?,
        Change::Internal(f) => return attempt_internal(w, key, record, old, *f).await,
        Change::Part(part) => return attempt_internal(w, key, record, old, part.whole).await,
    };
    check_identity(w, &mut new).map_err(fatal)?;
    if matches!(change, Change::Replace(_)) || w.subresource == "scale" {
        let uid = meta::text(&new, "uid");
        if !uid.is_empty() && uid != record.uid {
            return Err(fatal(uid_conflict(&w.kind, &key, uid, &record.uid, w.dry_run)));
        }
    }
    if matches!(change, Change::Replace(_)) {
        w.warnings.extend(meta::dedup_owners(&mut new, false));
    }
    // who owns what of a Scale is settled where it is turned into a change of the object
    if !matches!(change, Change::Apply(_)) && w.subresource != "scale" {
        owners::own_update(w, Some(&old), &mut new).await.map_err(fatal)?;
    }
    admission::mutate(w, &mut new, Some(&old), admission::Operation::Update).await.map_err(fatal)?;
    w.warnings.extend(meta::dedup_owners(&mut new, true));
    let given = meta::text(&new, "resourceVersion").to_owned();
    check_version(w, change, &given, record.revision).map_err(fatal)?;
    new["metadata"]["resourceVersion"] = json!(record.revision.to_string());
    prepare(w, &mut new, &old).map_err(fatal)?;
    meta::tidy(&mut new);
    let charge =
        admission::validate(w, Some(&new), Some(&old), admission::Operation::Update).await.map_err(fatal)?;
    machine::finish(&w.kind, &mut new);
    machine::settle_times(&mut new, &old);
    let done = commit(w, key, record, new, grace(&old)).await?;
    drop(charge);
    Ok(done)
}

/// The server's own change: admitted already, and without a field manager.
async fn attempt_internal(
    w: &mut Write,
    key: Key,
    record: Arc<Record>,
    old: Value,
    change: &(dyn Fn(Value) -> Result<Value, ApiError> + Send + Sync),
) -> Attempt<Updated> {
    w.admission = Admission::Done;
    let grace = grace(&old);
    let mut new = change(old).map_err(fatal)?;
    meta::tidy(&mut new);
    machine::finish(&w.kind, &mut new);
    commit(w, key, record, new, grace).await
}

/// Stores the new state, unless that is what is stored already; an object whose last finalizer is gone is removed.
async fn commit(
    w: &mut Write,
    key: Key,
    record: Arc<Record>,
    new: Value,
    grace: Option<i64>,
) -> Attempt<Updated> {
    let name = w.name.clone();
    if should_delete(&new, grace, &w.kind.plural) {
        if !w.dry_run {
            let done = w.server.remove(key, Expected::Revision(record.revision), None).await;
            let gone = done.map_err(|e| retryable(w, &e, &name))?;
            w.server.deleted(&w.kind, &gone).await;
        }
        return Ok(Updated::dry(new, false));
    }
    if w.dry_run {
        return Ok(Updated::dry(new, false));
    }
    let stored = convert::webhook::stored(&w.server, &w.kind, new).await.map_err(fatal)?;
    let encoded = Encoded::new(&stored).map_err(|e| retryable(w, &e, &name))?;
    let written = store(w, key, &record, encoded).await?;
    Ok(Updated::stored(w, stored, written, false))
}

/// Stores what becomes of a record, unless it is the same.
async fn store(w: &mut Write, key: Key, record: &Arc<Record>, encoded: Encoded) -> Attempt<Arc<Record>> {
    if encoded.is_stored_in(record) {
        // It may be another's write that is on its way to the disk.
        w.server.store().confirm(record).await.map_err(|e| retryable(w, &e, &w.name))?;
        return Ok(Arc::clone(record));
    }
    let result = w.server.put_encoded(key, Expected::Revision(record.revision), encoded).await;
    let written = result.map_err(|e| retryable(w, &e, &w.name))?;
    w.server.written(&w.kind, &written).await;
    Ok(written)
}

/// `metadata.deletionGracePeriodSeconds`.
fn grace(object: &Value) -> Option<i64> {
    object["metadata"]["deletionGracePeriodSeconds"].as_i64()
}

/// Strategy and validation.
fn prepare(w: &mut Write, new: &mut Value, old: &Value) -> Result<(), ApiError> {
    if is_service(w) && w.subresource.is_empty() {
        service::reallocate(w, new, old)?;
    }
    if !w.dry_run
        && let Some(meta) = meta::metadata(new)
    {
        // No client sees one that is stored.
        meta.remove("selfLink");
    }
    before_update(new, old);
    machine::prepare_update(&w.kind, &w.subresource, new, old, w.now);
    let mut errors = devices::admin_access(w, new, Some(old));
    errors.extend(machine::validate_update(&w.kind, &w.subresource, new, old));
    if errors.is_empty() {
        errors.extend(admission::policies::access::check(w, new, Some(old)));
    }
    if !errors.is_empty() {
        return Err(machine::invalid_object(&w.kind, new, &w.name, &errors));
    }
    w.warnings.extend(machine::warnings(&w.kind, &w.subresource, new, Some(old)));
    Ok(())
}

fn retryable(w: &Write, e: &StoreError, name: &str) -> (ApiError, bool) {
    let again = matches!(e, StoreError::Conflict { .. } | StoreError::NotFound);
    (w.store_error(e, name), again)
}

async fn create_instead(w: &mut Write, change: &Change<'_>) -> Result<Updated, ApiError> {
    let object = match change {
        Change::Apply(f) if w.subresource.is_empty() => f(None, &OtherVersions::of(w))?,
        Change::Replace(object) if w.subresource.is_empty() && creates_on_update(w) => object.clone(),
        _ => return Err(w.not_found(&w.name.clone())),
    };
    let mut object = object;
    w.options["kind"] = json!("CreateOptions");
    check_identity(w, &mut object)?;
    if let Some(meta) = meta::metadata(&mut object) {
        let uid = meta.get("uid").and_then(Value::as_str).unwrap_or("");
        if !uid.is_empty() && matches!(change, Change::Apply(_)) {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            let Gvk { group, .. } = &w.kind.gvk;
            return Err(ApiError::conflict(group, &w.kind.plural, &w.name, &why));
        }
        if !uid.is_empty() {
            let key = w.key(&w.name.clone());
            return Err(uid_conflict(&w.kind, &key, uid, "", w.dry_run));
        }
        meta.remove("resourceVersion");
    }
    match change {
        Change::Apply(_) => create_owned(w, object).await,
        _ => create(w, object).await,
    }
}

/// That an object sent to replace another is the one that the path names; asked before anything is looked up.
///
/// # Errors
/// 400 for another namespace or name, or none.
pub fn check_identity(w: &Write, new: &mut Value) -> Result<(), ApiError> {
    meta::ensure_namespace(new, w.kind.namespaced, &w.namespace)?;
    let name = meta::text(new, "name");
    if name.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            w.name
        )));
    }
    if name != w.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            w.name
        )));
    }
    Ok(())
}

fn check_version(w: &Write, change: &Change<'_>, given: &str, current: u64) -> Result<(), ApiError> {
    let conflict = || ApiError::conflict(&w.kind.gvk.group, &w.kind.plural, &w.name, LOCK_MESSAGE);
    match given.parse::<u64>() {
        Ok(0) | Err(_) if given.is_empty() || given == "0" => {
            // A patch starts from the version that is there: only one that writes zero comes without.
            if needs_version(w) && (matches!(change, Change::Replace(_)) || given == "0") {
                let error = FieldError::invalid(
                    "metadata.resourceVersion",
                    &json!(0),
                    "must be specified for an update",
                );
                return Err(ApiError::invalid(&w.kind.gvk.group, &w.kind.plural, &w.name, &[error]));
            }
            Ok(())
        }
        Ok(version) if version == current => Ok(()),
        Ok(_) => Err(conflict()),
        Err(e) => {
            let why = match e.kind() {
                std::num::IntErrorKind::PosOverflow => "value out of range",
                _ => "invalid syntax",
            };
            Err(ApiError::new(500, "", format!("strconv.ParseUint: parsing {}: {why}", go_quote(given))))
        }
    }
}

/// `rest.BeforeUpdate`: system fields stay as they were. Times of deletion that there were none of are left for
/// validation to refuse.
fn before_update(new: &mut Value, old: &Value) {
    let Some(meta) = meta::metadata(new) else { return };
    let was = |field: &str| old["metadata"].get(field).filter(|v| !v.is_null()).cloned();
    match was("generation") {
        Some(v) => meta.insert("generation".to_owned(), v),
        None => meta.remove("generation"),
    };
    for field in ["creationTimestamp", "deletionTimestamp"] {
        if let Some(v) = was(field) {
            meta.insert(field.to_owned(), v);
        }
    }
    let empty = meta.get("uid").and_then(Value::as_str).is_none_or(str::is_empty);
    for (field, missing) in [
        ("uid", empty),
        ("deletionGracePeriodSeconds", meta.get("deletionGracePeriodSeconds").is_none_or(Value::is_null)),
    ] {
        if let Some(v) = was(field).filter(|_| missing) {
            meta.insert(field.to_owned(), v);
        }
    }
}

/// The last finalizer of an object that is being deleted is gone (`ShouldDeleteDuringUpdate`).
fn should_delete(new: &Value, grace_before: Option<i64>, plural: &str) -> bool {
    let held = |v: &Value| v.as_array().is_some_and(|a| !a.is_empty());
    !meta::text(new, "deletionTimestamp").is_empty()
        && !held(&new["metadata"]["finalizers"])
        && grace_before.unwrap_or(0) == 0
        && (plural != "namespaces" || !held(&new["spec"]["finalizers"]))
        && (plural != "pods" || grace_before.is_some())
}
