//! Create.

use plimsoll_apimachinery::ApiError;
use serde_json::{Value, json};

use super::{Updated, Write, authorize, devices, is_service, meta, owners, service, settled};
use crate::store::{Expected, StoreError};
use crate::{admission, convert, machine};

/// Attempts at a generated name before giving up (`registry/generic`).
const MAX_NAME_ATTEMPTS: usize = 8;

/// Creates an object that has been decoded and given its defaults.
///
/// # Errors
/// Whatever admission, validation or the store refuse.
pub async fn create(w: &mut Write, object: Value) -> Result<Updated, ApiError> {
    let result = create_unowned(w, object).await;
    settled(w, result).await
}

async fn create_unowned(w: &mut Write, mut object: Value) -> Result<Updated, ApiError> {
    meta::ensure_namespace(&mut object, w.kind.namespaced, &w.namespace)?;
    w.name = meta::text(&object, "name").to_owned();
    meta::drop_deletion(&mut object);
    w.warnings.extend(meta::dedup_owners(&mut object, false));
    owners::own_update(w, None, &mut object).await?;
    create_owned(w, object).await
}

/// As [`create`] for an object that already has managedFields, as one made by server-side apply does.
///
/// # Errors
/// Whatever admission, validation or the store refuse.
pub async fn create_owned(w: &mut Write, mut object: Value) -> Result<Updated, ApiError> {
    if w.kind.custom.as_ref().is_some_and(|c| c.terminating) {
        let why = "create not allowed while custom resource definition is terminating";
        let name = meta::text(&object, "name");
        if !name.is_empty() {
            return Err(admission::forbidden_named(w, name, why));
        }
        // What is to get its name yet has none.
        let mut e = admission::forbidden_named(w, "", why);
        e.message = e.message.replacen(" \"\"", "", 1);
        return Err(e);
    }
    admission::mutate(w, &mut object, None, admission::Operation::Create).await?;
    w.warnings.extend(meta::dedup_owners(&mut object, true));
    meta::fill_system_fields(&mut object, w.now);
    let prefix = meta::text(&object, "generateName").to_owned();
    let generated = meta::text(&object, "name").is_empty() && !prefix.is_empty();
    if !generated {
        return attempt_create(w, object).await;
    }
    for attempt in 1.. {
        let mut candidate = object.clone();
        // Addresses are names; nothing can be added to them.
        let generated = if w.kind.plural == "ipaddresses" && w.kind.gvk.group == "networking.k8s.io" {
            prefix.clone()
        } else {
            meta::generate_name(&prefix)
        };
        candidate["metadata"]["name"] = json!(generated);
        match attempt_create(w, candidate).await {
            Err(e) if e.reason == "AlreadyExists" && attempt < MAX_NAME_ATTEMPTS => {}
            other => return other,
        }
    }
    Err(ApiError::internal("no name could be generated"))
}

async fn attempt_create(w: &mut Write, mut object: Value) -> Result<Updated, ApiError> {
    // Allocation comes before the strategy upstream (`BeginCreate`).
    if is_service(w) {
        w.name = meta::text(&object, "name").to_owned();
        service::allocate(w, &mut object)?;
    }
    machine::prepare_create(&w.kind, &mut object, w.now);
    if w.follows_template {
        object["metadata"]["labels"] = object["spec"]["template"]["metadata"]["labels"].clone();
    }
    if w.kind.gvk.group == "certificates.k8s.io" && w.kind.gvk.kind == "CertificateSigningRequest" {
        sign(w, &mut object);
    }
    if w.kind.gvk.group.is_empty() && w.kind.plural == "limitranges" && meta::text(&object, "name").is_empty()
    {
        // `limitrangeStrategy.PrepareForCreate`.
        object["metadata"]["name"] = json!(uuid::Uuid::new_v4().to_string());
    }
    w.name = meta::text(&object, "name").to_owned();
    let name = w.name.clone();
    let mut errors = devices::admin_access(w, &object, None);
    errors.extend(machine::validate_create(&w.kind, &object));
    if errors.is_empty() {
        errors.extend(admission::policies::access::check(w, &object, None));
    }
    if !errors.is_empty() {
        return Err(machine::invalid_object(&w.kind, &object, &name, &errors));
    }
    w.warnings.extend(machine::warnings(&w.kind, "", &object, None));
    meta::tidy(&mut object);
    // Where upstream calls `createValidation`: after mutating admission and validation, before validating admission.
    authorize::creation(w)?;
    let charge = admission::validate(w, Some(&object), None, admission::Operation::Create).await?;
    machine::finish(&w.kind, &mut object);
    let key = w.key(&name);
    let prefixed = !meta::text(&object, "generateName").is_empty();
    if w.dry_run {
        if let Some(current) = w.server.store().get(&key) {
            return Err(exists(w, &current.json, &name, prefixed));
        }
        return Ok(Updated::dry(object, true));
    }
    // Text that is no version counts as none (`APIObjectVersioner`).
    if meta::text(&object, "resourceVersion").parse::<u64>().is_ok_and(|v| v != 0) {
        return Err(ApiError::new(500, "", "resourceVersion should not be set on objects to be created"));
    }
    if let Some(metadata) = meta::metadata(&mut object) {
        metadata.remove("resourceVersion");
    }
    let stored = convert::webhook::stored(&w.server, &w.kind, object).await?;
    let result = w.server.put(key, Expected::Absent, &stored).await;
    match result {
        Ok(record) => {
            drop(charge);
            w.server.written(&w.kind, &record).await;
            Ok(Updated::stored(w, stored, record, true))
        }
        Err(StoreError::AlreadyExists { current }) => Err(exists(w, &current.json, &name, prefixed)),
        Err(e) => Err(w.store_error(&e, &name)),
    }
}

/// A request for a certificate says who makes it, whatever it says itself (`csrStrategy.PrepareForCreate`).
fn sign(w: &Write, request: &mut Value) {
    let Some(spec) = request.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let user = w.user.to_value();
    for key in ["username", "uid", "groups", "extra"] {
        match user.get(key) {
            Some(value) => spec.insert(key.to_owned(), value.clone()),
            None => spec.remove(key),
        };
    }
}

/// 409; says so when the object that is in the way is being deleted. `prefixed`: the new one has a `generateName`, which
/// counts even beside a name of the client's (`CheckGeneratedNameError`).
fn exists(w: &Write, current: &[u8], name: &str, prefixed: bool) -> ApiError {
    let error = if prefixed { ApiError::generated_name_exists } else { ApiError::already_exists };
    let mut e = error(&w.kind.gvk.group, &w.kind.plural, name);
    let current: Value = serde_json::from_slice(current).unwrap_or_default();
    if !meta::text(&current, "deletionTimestamp").is_empty() {
        e.message = format!("object is being deleted: {}", e.message);
    }
    e
}
