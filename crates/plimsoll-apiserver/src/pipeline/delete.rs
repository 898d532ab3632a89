//! Delete: preconditions, grace, finalizers, propagation (`registry/rest/delete.go`, `registry/generic/store.go`).

use jiff::SignedDuration;
use plimsoll_apimachinery::ApiError;
use serde_json::{Value, json};

use super::{Write, meta, settled};
use crate::http::options::{DeleteOptions, Propagation};
use crate::store::{Expected, Record, StoreError};
use crate::{admission, convert, machine};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
const MAX_ATTEMPTS: usize = 100;
/// Kinds whose deletion answers the object, not a Status (`ReturnDeletedObject`).
const RETURN_DELETED: [(&str, &[&str]); 4] = [
    (
        "",
        &[
            "services",
            "serviceaccounts",
            "pods",
            "persistentvolumeclaims",
            "persistentvolumes",
            "resourcequotas",
            "podtemplates",
        ],
    ),
    ("policy", &["podsecuritypolicies"]),
    (
        "storage.k8s.io",
        &["storageclasses", "csidrivers", "csinodes", "volumeattachments", "volumeattributesclasses"],
    ),
    ("resource.k8s.io", &["resourceclaims", "resourceclaimtemplates", "deviceclasses", "resourceslices"]),
];

/// What became of it.
pub enum Deleted {
    /// It is gone; its last state.
    Gone(Value),
    /// It is on its way: waiting for its grace period or for finalizers.
    Pending(Value),
}

/// Deletes an object, or starts to.
///
/// # Errors
/// Not found, broken preconditions, what admission refuses.
pub async fn delete(w: &mut Write, options: &DeleteOptions) -> Result<Deleted, ApiError> {
    let result = delete_repeatedly(w, options).await;
    settled(w, result).await
}

async fn delete_repeatedly(w: &mut Write, options: &DeleteOptions) -> Result<Deleted, ApiError> {
    for _ in 0..MAX_ATTEMPTS {
        match attempt(w, options).await? {
            Some(done) => return Ok(done),
            None => tracing::trace!(name = w.name, "deletion met another write, once more"),
        }
    }
    Err(ApiError::internal("too many attempts"))
}

/// Whether DELETE answers the deleted object.
pub fn returns_object(w: &Write) -> bool {
    let group = w.kind.gvk.group.as_str();
    RETURN_DELETED.iter().any(|(g, plurals)| *g == group && plurals.contains(&w.kind.plural.as_str()))
}

async fn attempt(w: &mut Write, options: &DeleteOptions) -> Result<Option<Deleted>, ApiError> {
    let name = w.name.clone();
    let key = w.key(&name);
    let record = w.server.store().latest(&key).ok_or_else(|| w.not_found(&name))?;
    let old = w.read(&record).await?;
    preconditions(w, &old, options)?;
    admission::mutate(w, &mut Value::Null, Some(&old), admission::Operation::Delete).await?;
    let mut new = old.clone();
    let step = if crate::custom::is_definition(&w.kind) {
        definition_step(w, &mut new)
    } else if w.kind.plural == "namespaces" && w.kind.gvk.group.is_empty() {
        namespace_step(w, &mut new, options)
    } else {
        plan(w, &mut new, options)
    };
    if let Step::Nothing = step {
        return confirmed(w, &record, Deleted::Pending(old)).await;
    }
    let _ = admission::validate(w, None, Some(&old), admission::Operation::Delete).await?;
    let stored = convert::webhook::stored(&w.server, &w.kind, new.clone()).await?;
    let mut expected = Expected::Revision(record.revision);
    let mut marked = false;
    if w.dry_run {
        let pending = matches!(step, Step::Mark { then_remove: false });
        return Ok(Some(if pending { Deleted::Pending(new) } else { Deleted::Gone(new) }));
    }
    if let Step::Mark { then_remove } = step {
        if old != new {
            match w.server.put(key.clone(), expected, &stored).await {
                Ok(written) => {
                    expected = Expected::Revision(written.revision);
                    new = w.read(&written).await?;
                    marked = true;
                    w.server.written(&w.kind, &written).await;
                }
                Err(StoreError::Conflict { .. } | StoreError::NotFound) => return Ok(None),
                Err(e) => return Err(w.store_error(&e, &name)),
            }
        }
        if !then_remove && marked {
            return Ok(Some(Deleted::Pending(new)));
        }
        if !then_remove {
            return confirmed(w, &record, Deleted::Pending(new)).await;
        }
    }
    match w.server.remove(key, expected, None).await {
        Ok(gone) => {
            w.server.deleted(&w.kind, &gone).await;
            Ok(Some(Deleted::Gone(w.read(&gone).await?)))
        }
        // A client that saw the mark was faster (upstream's `ignoreNotFound`): it is gone, as requested.
        Err(StoreError::Conflict { .. } | StoreError::NotFound)
            if marked && w.server.store().latest(&w.key(&name)).is_none() =>
        {
            w.server.store().settled().await.map_err(|e| w.store_error(&e, &name))?;
            Ok(Some(Deleted::Gone(new)))
        }
        Err(StoreError::Conflict { .. } | StoreError::NotFound) => Ok(None),
        Err(e) => Err(w.store_error(&e, &name)),
    }
}

/// An answer that shows a record as it was found, once it is durable; `None`: it has changed meanwhile.
async fn confirmed(w: &Write, record: &Record, answer: Deleted) -> Result<Option<Deleted>, ApiError> {
    match w.server.store().confirm(record).await {
        Ok(()) => Ok(Some(answer)),
        Err(StoreError::Conflict { .. } | StoreError::NotFound) => Ok(None),
        Err(e) => Err(w.store_error(&e, &w.name)),
    }
}

/// UID and resource version asked for, in the words of `rest.BeforeDelete`.
///
/// # Errors
/// 409 where the object has others.
pub fn preconditions(w: &Write, old: &Value, options: &DeleteOptions) -> Result<(), ApiError> {
    let conflict = |why: String| Err(ApiError::conflict(&w.kind.gvk.group, &w.kind.gvk.kind, &w.name, &why));
    let (uid, version) = (meta::text(old, "uid"), meta::text(old, "resourceVersion"));
    if w.kind.gvk.group.is_empty() && w.kind.plural == "namespaces" {
        // Their registry looks before the others do.
        let asked = [
            ("UID", options.uid.as_deref(), uid),
            ("ResourceVersion", options.resource_version.as_deref(), version),
        ];
        for (what, wanted, found) in asked {
            let Some(wanted) = wanted.filter(|wanted| *wanted != found) else { continue };
            let why = format!(
                "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
            );
            return Err(ApiError::conflict("", "namespaces", &w.name, &why));
        }
    }
    if let Some(wanted) = options.uid.as_deref().filter(|u| *u != uid) {
        return conflict(format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). \
             The object might have been deleted and then recreated"
        ));
    }
    if let Some(wanted) = options.resource_version.as_deref().filter(|v| *v != version) {
        return conflict(format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
             ({version}). The object might have been modified"
        ));
    }
    Ok(())
}

enum Step {
    /// Nothing changes: it is being deleted already.
    Nothing,
    /// It is marked first.
    Mark {
        /// And then removed at once.
        then_remove: bool,
    },
    /// It is removed.
    Remove,
}

fn plan(w: &Write, new: &mut Value, options: &DeleteOptions) -> Step {
    let graceful = w.kind.plural == "pods" && w.kind.gvk.group.is_empty();
    let mut grace = 0;
    let mut marked = false;
    if graceful {
        // What is pending already stays as it is (`pendingGraceful`).
        match grace_for_pod(w.now, new, options) {
            Grace::Pending => return Step::Nothing,
            Grace::Seconds(seconds) => (grace, marked) = (seconds, true),
            Grace::None => {}
        }
    }
    let changed = set_finalizers(w, new, options);
    let held = new["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
    if !marked && (held || changed) {
        mark(w, new);
    }
    match (marked || held || changed, held || grace > 0) {
        (true, true) => Step::Mark { then_remove: false },
        (true, false) if graceful => Step::Mark { then_remove: true },
        _ => Step::Remove,
    }
}

/// `markAsDeleting`.
fn mark(w: &Write, object: &mut Value) {
    let now = crate::time::seconds(w.now);
    let first = meta::text(object, "deletionTimestamp").is_empty();
    let Some(meta) = meta::metadata(object) else { return };
    if first {
        bump_generation(meta);
        meta.insert("deletionTimestamp".to_owned(), json!(now));
    }
    meta.insert("deletionGracePeriodSeconds".to_owned(), json!(0));
}

fn bump_generation(meta: &mut serde_json::Map<String, Value>) {
    if let Some(generation) = meta.get("generation").and_then(Value::as_i64).filter(|g| *g > 0) {
        meta.insert("generation".to_owned(), json!(generation + 1));
    }
}

/// What a pod is given before it goes (`BeforeDelete` in `registry/rest/delete.go`).
#[derive(Debug, PartialEq, Eq)]
enum Grace {
    /// It is being deleted, and the time that it has stays.
    Pending,
    /// So many seconds.
    Seconds(i64),
    /// Nothing: it goes as other objects do.
    None,
}

/// Sets the deadline of a pod.
fn grace_for_pod(now: jiff::Timestamp, pod: &mut Value, options: &DeleteOptions) -> Grace {
    let wanted = options.grace.map(|g| if g < 0 { 1 } else { g });
    let current = pod["metadata"]["deletionGracePeriodSeconds"].as_i64();
    let deadline: Option<jiff::Timestamp> =
        pod["metadata"]["deletionTimestamp"].as_str().and_then(|t| t.parse().ok());
    if let Some(deadline) = deadline {
        // A deletion that ended between its two writes is carried out now.
        let Some(current) = current.filter(|g| *g != 0) else { return Grace::None };
        let Some(mut wanted) = wanted.filter(|g| *g < current) else { return Grace::Pending };
        let moved = deadline.checked_sub(SignedDuration::from_secs(current - wanted)).unwrap_or(deadline);
        if moved < now {
            wanted = wanted.min(1);
        }
        set_deadline(pod, moved.max(now), wanted);
        return Grace::Seconds(wanted);
    }
    let spec = &pod["spec"];
    let mut grace = wanted.unwrap_or_else(|| spec["terminationGracePeriodSeconds"].as_i64().unwrap_or(30));
    let bound = spec["nodeName"].as_str().is_some_and(|n| !n.is_empty());
    let done = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if !bound || done {
        grace = 0;
    }
    if grace < 0 {
        grace = 1;
    }
    if let Some(meta) = meta::metadata(pod) {
        bump_generation(meta);
    }
    let deadline = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(now);
    set_deadline(pod, deadline, grace);
    Grace::Seconds(grace)
}

fn set_deadline(pod: &mut Value, deadline: jiff::Timestamp, grace: i64) {
    if let Some(meta) = meta::metadata(pod) {
        meta.insert("deletionTimestamp".to_owned(), json!(crate::time::seconds(deadline)));
        meta.insert("deletionGracePeriodSeconds".to_owned(), json!(grace));
    }
}

/// `deletionFinalizersForGarbageCollection`; whether anything changed.
fn set_finalizers(w: &Write, object: &mut Value, options: &DeleteOptions) -> bool {
    if w.kind.storage == "/events" {
        return false;
    }
    let orphan_by_default =
        machine::orphans_by_default(&w.kind) && options.orphan.is_none() && options.propagation.is_none();
    let old: Vec<String> = object["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let has = |name: &str| old.iter().any(|f| f == name);
    let (orphan, foreground) = match (options.orphan, options.propagation) {
        // In namespaces a request without orphans is honoured.
        (Some(orphan), _) => (orphan, !orphan && w.kind.storage == "/namespaces"),
        (None, Some(p)) => (p == Propagation::Orphan, p == Propagation::Foreground),
        (None, None) if has(ORPHAN) => (true, false),
        (None, None) if has(FOREGROUND) => (false, true),
        (None, None) => (orphan_by_default, false),
    };
    let mut new: Vec<String> = old.iter().filter(|f| *f != ORPHAN && *f != FOREGROUND).cloned().collect();
    if orphan {
        new.push(ORPHAN.to_owned());
    }
    if foreground {
        new.push(FOREGROUND.to_owned());
    }
    let same = new.len() == old.len() && new.iter().all(|f| old.contains(f));
    if same {
        return false;
    }
    if let Some(meta) = meta::metadata(object) {
        if new.is_empty() {
            meta.remove("finalizers");
        } else {
            meta.insert("finalizers".to_owned(), json!(new));
        }
    }
    true
}

/// A definition goes when its instances are gone.
fn definition_step(w: &Write, object: &mut Value) -> Step {
    if !meta::text(object, "deletionTimestamp").is_empty() {
        return Step::Nothing;
    }
    let now = crate::time::seconds(w.now);
    if let Some(meta) = meta::metadata(object) {
        meta.insert("deletionTimestamp".to_owned(), json!(now));
        let finalizers = meta.entry("finalizers").or_insert_with(|| json!([]));
        if let Some(list) = finalizers.as_array_mut()
            && !list.iter().any(|f| f == crate::custom::FINALIZER)
        {
            list.push(json!(crate::custom::FINALIZER));
        }
    }
    let condition = json!({
        "type": "Terminating", "status": "True", "lastTransitionTime": now, "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    });
    match object["status"]["conditions"].as_array_mut() {
        Some(list) => list.push(condition),
        None => object["status"]["conditions"] = json!([condition]),
    }
    Step::Mark { then_remove: false }
}

/// A namespace goes when its own finalizers are gone; until then it is `Terminating`.
fn namespace_step(w: &Write, object: &mut Value, options: &DeleteOptions) -> Step {
    let held = |v: &Value| v.as_array().is_some_and(|a| !a.is_empty());
    let waits = |o: &Value| held(&o["spec"]["finalizers"]) || held(&o["metadata"]["finalizers"]);
    if meta::text(object, "deletionTimestamp").is_empty() {
        if let Some(meta) = meta::metadata(object) {
            meta.insert("deletionTimestamp".to_owned(), json!(crate::time::seconds(w.now)));
        }
        object["status"]["phase"] = json!("Terminating");
        set_finalizers(w, object, options);
        return Step::Mark { then_remove: !waits(object) };
    }
    if waits(object) { Step::Nothing } else { Step::Remove }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pod's grace period and seconds to its deadline, what is asked for, what comes of it, and the seconds that are left then.
    #[test]
    fn a_deletion_is_shortened_and_never_given_more_time() {
        let now: jiff::Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let cases = [
            ((30, 20), None, Grace::Pending, 20),
            ((30, 20), Some(40), Grace::Pending, 20),
            ((30, 20), Some(15), Grace::Seconds(15), 5),
            ((30, 20), Some(5), Grace::Seconds(1), 0),
            ((30, 20), Some(0), Grace::Seconds(0), 0),
            ((30, -20), Some(10), Grace::Seconds(1), 0),
            // Its second write failed.
            ((0, 0), None, Grace::None, 0),
            ((0, -40), Some(30), Grace::None, -40),
        ];
        for ((seconds, left), wanted, outcome, after) in cases {
            let mut pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n"}});
            set_deadline(&mut pod, now + SignedDuration::from_secs(left), seconds);
            let options = DeleteOptions { grace: wanted, ..DeleteOptions::default() };
            let what = format!("{seconds}, {left}, {wanted:?}");
            assert_eq!(grace_for_pod(now, &mut pod, &options), outcome, "{what}");
            let deadline: jiff::Timestamp =
                pod["metadata"]["deletionTimestamp"].as_str().unwrap().parse().unwrap();
            assert_eq!(deadline.duration_since(now).as_secs(), after, "{what}");
        }
    }
}
