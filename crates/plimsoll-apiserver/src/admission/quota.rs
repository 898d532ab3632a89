//! ResourceQuota: what a write uses is charged to the quotas of its namespace before it is committed
//! (`pkg/admission/plugin/resourcequota` of the apiserver library).

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_api::quantity::Quantity;
use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::amounts::{Amounts, amounts};
use plimsoll_apimachinery::quota::{self, Tracker};
use serde_json::{Value, json};

use super::charges::Charge;
use super::{Operation, forbidden, subject};
use crate::machine;
use crate::store::{Expected, Record, StoreError};
use crate::write::Write;

/// Attempts against other writers of the same quota.
const MAX_ATTEMPTS: usize = 20;

/// Whether a write may use more than was used before.
fn is_charged(w: &Write, object: &Value, old: Option<&Value>, operation: Operation) -> bool {
    let s = subject(w);
    let (create, update) = (operation == Operation::Create, operation == Operation::Update);
    match (s.group, s.plural, s.subresource) {
        ("", "pods", "") => {
            create || old.is_some_and(|old| quota::is_terminating(old) != quota::is_terminating(object))
        }
        ("", "pods", "resize") | ("", "persistentvolumeclaims", "status") => update,
        ("", "services" | "persistentvolumeclaims", "") | ("resource.k8s.io", "resourceclaims", "") => {
            create || update
        }
        ("" | "events.k8s.io", "events", _) => false,
        (_, _, subresource) => create && subresource.is_empty(),
    }
}

/// What a write changes, as far as quotas see it.
struct Wanted<'a> {
    tracker: Tracker<'a>,
    object: &'a Value,
    /// The object before an update.
    old: Option<&'a Value>,
    /// What it uses now.
    usage: Amounts,
    /// What it uses more than before.
    more: Amounts,
}

/// Checks and charges. The charge has to live until the write is committed or given up.
///
/// # Errors
/// 403 when a quota would be exceeded, or says nothing about what it limits yet.
pub async fn charge(
    w: &Write,
    object: &Value,
    old: Option<&Value>,
    operation: Operation,
) -> Result<Charge, ApiError> {
    if !w.kind.namespaced || !is_charged(w, object, old, operation) {
        return Ok(Charge::default());
    }
    let quotas = w.server.store().list("/resourcequotas", Some(&w.namespace));
    if quotas.is_empty() {
        return Ok(Charge::default());
    }
    let tracker = Tracker { kind: &w.kind, objects: w.server.store(), now: w.now };
    let usage = tracker.usage(object);
    let more = old.map_or_else(|| usage.clone(), |old| increase(&usage, &tracker.usage(old)));
    let wanted = Wanted { tracker, object, old, usage, more };
    let records: Vec<Arc<Record>> = quotas.iter().map(Arc::clone).collect();
    // As `CheckRequest` has it: what all quotas require comes before what any of them has left, and all are checked
    // before any is charged.
    let mut pertinent = Vec::new();
    for record in &records {
        let quota = record.value().map_err(ApiError::internal)?;
        if concerns(w, &quota, &wanted)? {
            pertinent.push((record, quota));
        }
    }
    let mut charged = Vec::new();
    for (record, quota) in &pertinent {
        if add(w, quota, &wanted)?.is_some() {
            charged.push(*record);
        }
    }
    if w.dry_run || charged.is_empty() {
        return Ok(Charge::default());
    }
    let charge = w.server.charges().begin(&w.namespace);
    for record in charged {
        commit(w, record, &wanted).await?;
    }
    Ok(charge)
}

/// What is used more than before, never less than nothing.
fn increase(now: &Amounts, before: &Amounts) -> Amounts {
    let less = |(name, amount): (&String, &Quantity)| {
        let more = before.get(name).map_or(*amount, |before| amount.saturating_sub(*before));
        (name.clone(), if more.signum() > 0 { more } else { Quantity::ZERO })
    };
    now.iter().map(less).collect()
}

async fn commit(w: &Write, record: &Arc<Record>, wanted: &Wanted<'_>) -> Result<(), ApiError> {
    for _ in 0..MAX_ATTEMPTS {
        let Some(current) = w.server.store().latest(&record.key) else { return Ok(()) };
        let quota = current.value().map_err(ApiError::internal)?;
        if !concerns(w, &quota, wanted)? {
            return Ok(());
        }
        let Some(mut new) = add(w, &quota, wanted)? else { return Ok(()) };
        if let Some(kind) = w.table.resource("", "v1", "resourcequotas") {
            machine::own_update(kind, Some(&quota), &mut new, "kube-apiserver", "status", w.now)?;
        }
        let key = record.key.clone();
        match w.server.put(key, Expected::Revision(current.revision), &new).await {
            Ok(_) => return Ok(()),
            Err(StoreError::Conflict { .. } | StoreError::NotFound) => {}
            Err(e) => return Err(ApiError::internal(e)),
        }
    }
    Err(ApiError::internal("the quota of the namespace changes too fast"))
}

/// Whether a quota has to do with a write, which then says all that the quota requires. What counts is `status.hard`:
/// a quota holds once its controller has seen it.
fn concerns(w: &Write, quota: &Value, wanted: &Wanted) -> Result<bool, ApiError> {
    let name = quota["metadata"]["name"].as_str().unwrap_or("");
    let (hard, used) = (amounts(&quota["status"]["hard"]), amounts(&quota["status"]["used"]));
    let Wanted { tracker, object, .. } = wanted;
    let tracked: BTreeSet<&str> = hard.keys().map(String::as_str).filter(|r| tracker.tracks(r)).collect();
    if tracked.is_empty() || !quota::holds(tracker.kind, object, &quota["spec"]) {
        return Ok(false);
    }
    if let Some(missing) = tracker.unspecified(object, &tracked) {
        return Err(forbidden(w, object, &format!("failed quota: {name}: must specify {missing}")));
    }
    if tracked.iter().any(|r| !used.contains_key(*r)) {
        let all: Vec<&str> = tracked.into_iter().collect();
        let why = format!("status unknown for quota: {name}, resources: {}", all.join(","));
        return Err(forbidden(w, object, &why));
    }
    Ok(true)
}

/// The quota with the charge added; `None`: there is nothing to charge it for.
fn add(w: &Write, quota: &Value, wanted: &Wanted) -> Result<Option<Value>, ApiError> {
    let name = quota["metadata"]["name"].as_str().unwrap_or("");
    let (hard, used) = (amounts(&quota["status"]["hard"]), amounts(&quota["status"]["used"]));
    let Wanted { tracker, object, old, .. } = wanted;
    // What was out of scope before is charged in full.
    let partly = old.is_some_and(|old| quota::holds(tracker.kind, old, &quota["spec"]));
    let delta = if partly { &wanted.more } else { &wanted.usage };
    let requested: Amounts = delta
        .iter()
        .filter(|(resource, amount)| !amount.is_zero() && hard.contains_key(*resource))
        .map(|(resource, amount)| (resource.clone(), *amount))
        .collect();
    if requested.is_empty() {
        return Ok(None);
    }
    let mut new = quota.clone();
    let mut exceeded = Vec::new();
    for (resource, amount) in &requested {
        let total = used.get(resource).map_or(*amount, |used| used.saturating_add(*amount));
        if hard.get(resource).is_some_and(|limit| total > *limit) {
            exceeded.push(resource.as_str());
        }
        new["status"]["used"][resource] = json!(total.to_string());
    }
    if !exceeded.is_empty() && w.subresource != "status" {
        let shown = |of: &Amounts| {
            let some = exceeded.iter().filter_map(|r| Some(format!("{r}={}", of.get(*r)?)));
            some.collect::<Vec<_>>().join(",")
        };
        let why = format!(
            "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
            shown(&requested),
            shown(&used),
            shown(&hard)
        );
        return Err(forbidden(w, object, &why));
    }
    Ok(Some(new))
}
