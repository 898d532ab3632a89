//! The check that asks the cluster autoscaler for nodes (Kueue KEP-1136): for every workload with a reservation and
//! such a check a ProvisioningRequest, whose conditions become the state of the check.
//!
//! Everything is a function of what the cache shows: a write that was lost, repeated or comes late is found out and put
//! right the next time, and a restart starts from the same objects. The number of an attempt follows from the check's
//! `retryCount` and from the names of the requests, so an attempt is never made twice.

mod config;
mod request;
mod states;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_state::Time;
use serde_json::{Value, json};

use super::control::Key;
use super::{Env, Write, patch_status, workload};
use crate::api::{ADMISSION_CHECKS, POD_TEMPLATES, Resource, WORKLOADS};
use crate::cache::{Cache, Kind};
use crate::json;
use crate::notes::{Note, Subject};

/// Who reports events (Kueue's recorder of this controller).
const REPORTER: &str = "kueue-provisioning-request-controller";
/// Pause before something is tried again that only somebody else can put right.
const LATER: Duration = Duration::from_secs(60);

/// Something to be made for a workload; when that fails, its check says so.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// Resource.
    pub resource: Resource,
    /// The object.
    pub object: Value,
    /// Namespace of the workload.
    pub namespace: String,
    /// Name of the workload.
    pub workload: String,
    /// The check.
    pub check: String,
}

/// What may have to be looked at now that `object` has changed or gone.
pub fn concerned(cache: &Cache, kind: Kind, object: &Value) -> Vec<Key> {
    let name = json::name(object);
    match kind {
        Kind::Workload => {
            let namespace = json::namespace(object);
            let has_checks = !json::list(object, &["status", "admissionChecks"]).is_empty();
            if has_checks || !cache.requests_of(namespace, name).is_empty() {
                vec![Key::Provision(namespace.to_owned(), name.to_owned())]
            } else {
                Vec::new()
            }
        }
        Kind::ProvisioningRequest | Kind::PodTemplate => owner_of(cache, object).into_iter().collect(),
        Kind::AdmissionCheck if json::text(object, &["spec", "controllerName"]) == config::CONTROLLER => {
            of_check(cache, name)
        }
        Kind::ProvisioningConfig => {
            users_of(cache, name).flat_map(|c| of_check(cache, json::name(&c))).collect()
        }
        _ => Vec::new(),
    }
}

/// What has to be looked at when requests begin or cease to be served.
pub fn all(cache: &Cache) -> Vec<Key> {
    let checks = cache.all(Kind::AdmissionCheck);
    let ours = checks.iter().filter(|c| json::text(c, &["spec", "controllerName"]) == config::CONTROLLER);
    ours.flat_map(|c| of_check(cache, json::name(c))).collect()
}

/// The workload behind a request or a template.
fn owner_of(cache: &Cache, object: &Value) -> Option<Key> {
    let owner = json::controller(object)?;
    let (namespace, name) = (json::namespace(object), json::text(owner, &["name"]));
    match json::text(owner, &["kind"]) {
        "Workload" => Some(Key::Provision(namespace.to_owned(), name.to_owned())),
        "ProvisioningRequest" => {
            let request = cache.get(Kind::ProvisioningRequest, namespace, name)?;
            let owner = json::controller(&request).filter(|o| o["kind"] == "Workload")?;
            Some(Key::Provision(namespace.to_owned(), json::text(owner, &["name"]).to_owned()))
        }
        _ => None,
    }
}

fn users_of(cache: &Cache, config: &str) -> impl Iterator<Item = Arc<Value>> {
    cache.all(Kind::AdmissionCheck).into_iter().filter(move |c| {
        json::text(c, &["spec", "controllerName"]) == config::CONTROLLER && config::reference(c) == Ok(config)
    })
}

/// A check and the workloads that have to pass it.
fn of_check(cache: &Cache, check: &str) -> Vec<Key> {
    let mut keys = vec![Key::Check(check.to_owned())];
    for wl in cache.all(Kind::Workload) {
        if json::list(&wl, &["status", "admissionChecks"]).iter().any(|c| c["name"] == check) {
            keys.push(Key::Provision(json::namespace(&wl).to_owned(), json::name(&wl).to_owned()));
        }
    }
    keys
}

/// Says on an AdmissionCheck whether it can be passed.
pub fn plan_check(name: &str, env: Env<'_>) -> Vec<Write> {
    let Some(check) = config::check(env.cache, name).filter(|c| !json::deleting(c)) else {
        return Vec::new();
    };
    let (active, reason, message) = match (env.cache.requests_served(), config::of_check(env.cache, &check)) {
        (None, _) => (
            false,
            "ProvisioningRequestNotSupported",
            "Provisioning Requests not supported (Possible cause: missing or unsupported cluster-autoscaler)"
                .to_owned(),
        ),
        (Some(_), Ok(_)) => (true, "Active", "The admission check is active".to_owned()),
        (Some(_), Err(problem)) => (false, "BadParametersRef", problem),
    };
    let conditions = workload::with_condition(&check, "Active", active, reason, &message, env.now);
    conditions
        .map(|c| patch_status(ADMISSION_CHECKS, &check, &json!({"conditions": c})))
        .into_iter()
        .collect()
}

/// Brings the requests of a workload and the states of its checks in line with each other.
pub fn plan(namespace: &str, name: &str, env: Env<'_>) -> Vec<Write> {
    let cache = env.cache;
    let (Some(wl), Some(served)) = (cache.get(Kind::Workload, namespace, name), cache.requests_served())
    else {
        return Vec::new();
    };
    let mut owned = cache.requests_of(namespace, name);
    owned.retain(|r| json::controller(r).is_some_and(|o| o["uid"] == json::uid(&wl)));
    let (finished, evicted) = (json::is_true(&wl, "Finished"), json::is_true(&wl, "Evicted"));
    if finished || evicted {
        let mut writes = if finished { Vec::new() } else { undo(&wl, env) };
        if finished || cache.rules().clean_up_requests {
            writes.extend(owned.iter().filter_map(|r| delete(served, r)));
        }
        return writes;
    }
    if !json::is_true(&wl, "QuotaReserved") || !wl["status"]["admission"].is_object() {
        return Vec::new();
    }
    Sync { wl: &wl, owned: &owned, served, env }.plan()
}

fn delete(served: Resource, request: &Value) -> Option<Write> {
    (!json::deleting(request)).then(|| Write::Delete {
        resource: served,
        namespace: json::namespace(request).to_owned(),
        name: json::name(request).to_owned(),
        uid: json::uid(request).to_owned(),
    })
}

/// Checks of an evicted workload are pending, also one whose state was written while the eviction was.
fn undo(wl: &Value, env: Env<'_>) -> Vec<Write> {
    let ours = |c: &Value| config::check(env.cache, json::text(c, &["name"])).is_some();
    let rows: Vec<Value> = json::list(wl, &["status", "admissionChecks"])
        .iter()
        .map(|c| if ours(c) { states::reset(c, env.now) } else { c.clone() })
        .collect();
    write_states(wl, &rows).into_iter().collect()
}

fn write_states(wl: &Value, rows: &[Value]) -> Option<Write> {
    let changed = json::list(wl, &["status", "admissionChecks"]) != rows;
    changed.then(|| patch_status(WORKLOADS, wl, &json!({"admissionChecks": rows})))
}

fn note(wl: &Value, warning: bool, reason: &str, action: &str, message: String) -> Write {
    let mut subject = Subject::of(wl);
    subject.api_version = WORKLOADS.api_version.to_owned();
    subject.kind = WORKLOADS.kind.to_owned();
    Write::Note(Box::new(Note {
        subject,
        warning,
        reason: reason.to_owned(),
        action: action.to_owned(),
        message,
        reporter: REPORTER,
        instance: String::new(),
    }))
}

/// One look at a workload with a reservation.
struct Sync<'a> {
    wl: &'a Value,
    /// Its requests.
    owned: &'a [Arc<Value>],
    /// Version in which requests are served.
    served: Resource,
    env: Env<'a>,
}

impl Sync<'_> {
    fn plan(&self) -> Vec<Write> {
        let mut writes = Vec::new();
        let mut rows = Vec::new();
        let mut orders = Vec::new();
        let mut kept: Vec<&str> = Vec::new();
        for old in json::list(self.wl, &["status", "admissionChecks"]) {
            let name = json::text(old, &["name"]);
            let Some(check) = config::check(self.env.cache, name) else {
                rows.push(old.clone());
                continue;
            };
            let Ok(config) = config::of_check(self.env.cache, &check) else {
                rows.push(states::inactive(old, self.env.now));
                continue;
            };
            let Some(needed) = request::is_needed(self.wl, &config) else {
                // Assignments of other podsets than these: a newer state of the workload will come.
                return Vec::new();
            };
            if !needed {
                rows.push(states::not_needed(old, self.env.now));
                continue;
            }
            let current = self.current(name, &config);
            kept.extend(current.map(|(r, _)| json::name(r)));
            let subject = states::Subject {
                workload: self.wl,
                request: current.map(|c| c.0),
                attempt: current.map_or(1, |c| c.1),
            };
            let row = states::follow(old, subject, &config, self.env.now);
            orders.extend(self.order(&row, &config, current));
            rows.push(row);
        }
        writes.extend(self.changes(&rows));
        let unused = self.owned.iter().filter(|r| !kept.contains(&json::name(r)));
        writes.extend(unused.filter_map(|r| delete(self.served, r)));
        writes.extend(orders);
        writes
    }

    /// The newest request of a check that asks for what is configured today.
    fn current(&self, check: &str, config: &config::Config) -> Option<(&Value, i64)> {
        let mine = self.owned.iter().filter(|r| !json::deleting(r) && request::in_sync(r, config));
        let attempts = mine.filter_map(|r| {
            let attempt = request::attempt(json::name(r), json::name(self.wl), check)?;
            Some((&**r, attempt))
        });
        attempts.max_by_key(|(_, attempt)| *attempt)
    }

    fn changes(&self, rows: &[Value]) -> Vec<Write> {
        let mut notes = Vec::new();
        for (old, new) in json::list(self.wl, &["status", "admissionChecks"]).iter().zip(rows) {
            let state = |v: &Value| json::text(v, &["state"]).to_owned();
            if state(old) == state(new) {
                continue;
            }
            let name = json::text(new, &["name"]);
            let mut text =
                format!("Admission check {name} updated state from {} to {}", state(old), state(new));
            let message = json::text(new, &["message"]);
            if !message.is_empty() {
                text.push_str(&format!(" with message: {message}"));
            }
            notes.push(note(self.wl, false, "AdmissionCheckUpdated", "AdmissionCheckUpdated", text));
        }
        let mut writes: Vec<Write> = write_states(self.wl, rows).into_iter().collect();
        if !writes.is_empty() {
            writes.extend(notes);
        }
        writes
    }

    /// What has to be made for a check, now that its state is `row`.
    fn order(&self, row: &Value, config: &config::Config, current: Option<(&Value, i64)>) -> Vec<Write> {
        if row["state"] == "Ready" {
            return Vec::new();
        }
        let wl = self.wl;
        let attempt = match current {
            None => json::int(row, &["retryCount"]).unwrap_or(0).saturating_add(1),
            Some((request, attempt)) => {
                let again =
                    states::is_lost(request, json::is_true(wl, "Admitted")) && row["state"] == "Pending";
                if !again {
                    return self.templates(row, config, request);
                }
                attempt.saturating_add(1)
            }
        };
        let check = json::text(row, &["name"]);
        let name = request::name(json::name(wl), check, attempt);
        let known = self.env.cache.get(Kind::ProvisioningRequest, json::namespace(wl), &name);
        if known.is_some_and(|r| json::deleting(&r)) {
            // Its end will be seen.
            return Vec::new();
        }
        let Some(parts) = request::parts(wl, config) else { return Vec::new() };
        let mut writes = Vec::new();
        for part in &parts {
            match self.template(part, &name, &request::owner(wl)) {
                Ok(made) => writes.extend(made.map(|object| self.provide(POD_TEMPLATES, object, check))),
                Err((template, problem)) => {
                    let problem = format!("Error creating PodTemplate {template:?}: {problem}");
                    writes.extend(failed(wl, check, &problem, self.env.now));
                    writes.push(Write::Again(LATER));
                    return writes;
                }
            }
        }
        let object = request::request(wl, &name, config, &parts, self.served.api_version);
        writes.push(self.provide(self.served, object, check));
        let text = format!("Created ProvisioningRequest: {name:?}");
        writes.push(note(wl, false, "ProvisioningRequestCreated", "Created", text));
        writes
    }

    fn provide(&self, resource: Resource, object: Value, check: &str) -> Write {
        Write::Provide(Box::new(Order {
            resource,
            object,
            namespace: json::namespace(self.wl).to_owned(),
            workload: json::name(self.wl).to_owned(),
            check: check.to_owned(),
        }))
    }

    /// The template of a part, unless it is there; or its name and why there is none.
    fn template(
        &self,
        part: &request::Part,
        request: &str,
        owner: &Value,
    ) -> Result<Option<Value>, (String, String)> {
        let name = request::template_name(request, json::text(&part.podset, &["name"]));
        if self.env.cache.get(Kind::PodTemplate, json::namespace(self.wl), &name).is_some() {
            return Ok(None);
        }
        match request::template(self.wl, part, &name, owner, self.env) {
            Ok(object) => Ok(Some(object)),
            Err(problem) => Err((name, problem)),
        }
    }

    /// The templates of a request that is there belong to it, and are there as long as it waits.
    fn templates(&self, row: &Value, config: &config::Config, request: &Value) -> Vec<Write> {
        let mut writes = Vec::new();
        let owner = workload::owner(self.served.api_version, self.served.kind, request, true);
        let parts = request::parts(self.wl, config).unwrap_or_default();
        for wanted in json::list(request, &["spec", "podSets"]) {
            let name = json::text(wanted, &["podTemplateRef", "name"]);
            if let Some(template) = self.env.cache.get(Kind::PodTemplate, json::namespace(self.wl), name) {
                writes.extend(hand_over(&template, self.wl, request, &owner));
                continue;
            }
            let of = |p: &&request::Part| {
                request::template_name(json::name(request), json::text(&p.podset, &["name"])) == name
            };
            if let Some(part) = parts.iter().find(of).filter(|_| !states::is_over(request))
                && let Ok(Some(object)) = self.template(part, json::name(request), &owner)
            {
                writes.push(self.provide(POD_TEMPLATES, object, json::text(row, &["name"])));
            }
        }
        writes
    }
}

/// Makes a template go with its request. Until then it goes with the workload, so that it never stays behind.
fn hand_over(template: &Value, wl: &Value, request: &Value, owner: &Value) -> Option<Write> {
    if json::controller(template).is_some_and(|o| o["uid"] == json::uid(request)) || json::deleting(template)
    {
        return None;
    }
    let replaced =
        |o: &Value| o["uid"] == json::uid(wl) || (o["kind"] == owner["kind"] && o["name"] == owner["name"]);
    let mut owners = json::list(template, &["metadata", "ownerReferences"]).to_vec();
    owners.retain(|o| !replaced(o));
    if owners.iter().any(|o| o["controller"] == true) {
        // Somebody else's, of whom the autoscaler may make use all the same.
        return None;
    }
    owners.push(owner.clone());
    let mut new = template.clone();
    json::set(&mut new, &["metadata", "ownerReferences"], Value::Array(owners));
    super::patch(POD_TEMPLATES, template, &new)
}

/// Says on a check, and in an event, why something could not be made.
pub fn failed(wl: &Value, check: &str, problem: &str, now: Time) -> Vec<Write> {
    let mut writes = vec![note(wl, true, "FailedCreate", "FailedCreate", problem.to_owned())];
    let mut rows = json::list(wl, &["status", "admissionChecks"]).to_vec();
    if let Some(row) = rows.iter_mut().find(|r| r["name"] == check && r["message"] != problem) {
        row["message"] = json!(problem);
        row["lastTransitionTime"] = json!(crate::clock::text(now));
    }
    writes.extend(write_states(wl, &rows));
    writes
}

/// [`failed`] for an order that the API server refused.
pub fn refused(order: &Order, error: &str, env: Env<'_>) -> Vec<Write> {
    let Some(wl) = env.cache.get(Kind::Workload, &order.namespace, &order.workload) else {
        return Vec::new();
    };
    let problem = format!("Error creating {} {:?}: {error}", order.resource.kind, json::name(&order.object));
    failed(&wl, &order.check, &problem, env.now)
}
