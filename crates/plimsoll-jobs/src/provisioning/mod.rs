//! The admission check of the cluster autoscaler (Kueue KEP-1136, `pkg/controller/admissionchecks/provisioning`): for
//! every workload with reserved quota and such a check a ProvisioningRequest, whose conditions become the check's state.
//!
//! The plan depends on the last seen objects alone: a write that was lost, repeated or delayed is detected and corrected by
//! the next reconcile, and a restart starts from the same objects. The number of an attempt follows from the check's
//! `retryCount` and from the names of the requests, so no attempt is made twice.

mod config;
mod request;
mod states;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::conditions::set_status_condition;
use plimsoll_api::event::EventRecord;
use plimsoll_api::resource::{ADMISSION_CHECKS, POD_TEMPLATES, Resource, WORKLOADS};
use plimsoll_api::{json, timestamp};
use plimsoll_state::Time;
use serde_json::{Value, json};

use crate::key::Key;
use crate::plan::{self, CheckObject, Plan, Write, patch, patch_status};
use crate::store::{Kind, ObjectStore};
use crate::{Env, workload};

/// Reporting controller of Events (Kueue's recorder of this controller).
const REPORTING_CONTROLLER: &str = "kueue-provisioning-request-controller";
/// Pause before the next attempt after a failure that takes a change of other objects to resolve.
const RETRY: Duration = Duration::from_secs(60);

/// The workloads and checks that a changed or deleted object concerns.
pub(crate) fn affected(objects: &ObjectStore, kind: Kind, object: &Value) -> Vec<Key> {
    let name = json::name(object);
    match kind {
        Kind::Workload => {
            let namespace = json::namespace(object);
            let has_checks = !json::list(object, &["status", "admissionChecks"]).is_empty();
            if has_checks || !objects.requests_of(namespace, name).is_empty() {
                vec![Key::Provisioning(namespace.to_owned(), name.to_owned())]
            } else {
                Vec::new()
            }
        }
        Kind::ProvisioningRequest | Kind::PodTemplate => owner_of(objects, object).into_iter().collect(),
        Kind::AdmissionCheck if json::text(object, &["spec", "controllerName"]) == config::CONTROLLER => {
            of_check(objects, name)
        }
        Kind::ProvisioningConfig => {
            users_of(objects, name).flat_map(|c| of_check(objects, json::name(&c))).collect()
        }
        _ => Vec::new(),
    }
}

/// The keys to reconcile when provisioning requests begin or cease to be served.
pub fn all(objects: &ObjectStore) -> Vec<Key> {
    let ours = objects
        .all(Kind::AdmissionCheck)
        .filter(|c| json::text(c, &["spec", "controllerName"]) == config::CONTROLLER);
    ours.flat_map(|c| of_check(objects, json::name(&c))).collect()
}

/// The workload behind a request or a template.
fn owner_of(objects: &ObjectStore, object: &Value) -> Option<Key> {
    let owner = json::controller(object)?;
    let (namespace, name) = (json::namespace(object), json::text(owner, &["name"]));
    match json::text(owner, &["kind"]) {
        "Workload" => Some(Key::Provisioning(namespace.to_owned(), name.to_owned())),
        "ProvisioningRequest" => {
            let request = objects.get(Kind::ProvisioningRequest, namespace, name)?;
            let owner = json::controller(&request).filter(|o| o["kind"] == "Workload")?;
            Some(Key::Provisioning(namespace.to_owned(), json::text(owner, &["name"]).to_owned()))
        }
        _ => None,
    }
}

fn users_of(objects: &ObjectStore, config: &str) -> impl Iterator<Item = Arc<Value>> {
    objects.all(Kind::AdmissionCheck).filter(move |c| {
        json::text(c, &["spec", "controllerName"]) == config::CONTROLLER && config::reference(c) == Ok(config)
    })
}

/// A check and the workloads that have to pass it.
fn of_check(objects: &ObjectStore, check: &str) -> Vec<Key> {
    let mut keys = vec![Key::AdmissionCheck(check.to_owned())];
    for wl in objects.all(Kind::Workload) {
        if json::list(&wl, &["status", "admissionChecks"]).iter().any(|c| c["name"] == check) {
            keys.push(Key::Provisioning(json::namespace(&wl).to_owned(), json::name(&wl).to_owned()));
        }
    }
    keys
}

/// The condition `Active` of an AdmissionCheck of this controller.
pub(crate) fn plan_check(name: &str, env: Env<'_>) -> Plan {
    // Also of a terminating one: ClusterQueues hold it by its finalizer, and use it as long as it is there (upstream's
    // `pkg/controller/admissionchecks/provisioning/admissioncheck_reconciler.go`).
    let Some(check) = config::check(env.objects, name) else {
        return Vec::new();
    };
    let (active, reason, message) = match (
        env.objects.served(Kind::ProvisioningRequest),
        config::of_check(env.objects, &check),
    ) {
        (None, _) => (
            false,
            "ProvisioningRequestNotSupported",
            "Provisioning Requests not supported (Possible cause: missing or unsupported cluster-autoscaler)"
                .to_owned(),
        ),
        (Some(_), Ok(_)) => (true, "Active", "The admission check is active".to_owned()),
        (Some(_), Err(problem)) => (false, "BadParametersRef", problem),
    };
    let conditions = set_status_condition(&check, "Active", active, reason, &message, env.now);
    conditions
        .map(|c| patch_status(ADMISSION_CHECKS, &check, &json!({"conditions": c})))
        .into_iter()
        .collect()
}

/// Creates and deletes the requests of a workload, and updates the states of its checks from them.
pub(crate) fn plan(namespace: &str, name: &str, env: Env<'_>) -> Plan {
    let objects = env.objects;
    let (Some(wl), Some(served)) =
        (objects.get(Kind::Workload, namespace, name), objects.served(Kind::ProvisioningRequest))
    else {
        return Vec::new();
    };
    let mut owned = objects.requests_of(namespace, name);
    owned.retain(|r| json::controller(r).is_some_and(|o| o["uid"] == json::uid(&wl)));
    let (finished, evicted) = (json::is_true(&wl, "Finished"), json::is_true(&wl, "Evicted"));
    if finished || evicted {
        let mut writes = if finished { Vec::new() } else { undo(&wl, env) };
        if finished || env.config.clean_up_provisioning_requests {
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
    (!json::deleting(request)).then(|| plan::delete(served, request))
}

/// Checks of an evicted workload are pending, also one whose state was written while the eviction was.
fn undo(wl: &Value, env: Env<'_>) -> Plan {
    let ours = |c: &Value| config::check(env.objects, json::text(c, &["name"])).is_some();
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

fn event(wl: &Value, warning: bool, reason: &str, action: &str, message: String) -> Write {
    Write::Event(Box::new(EventRecord {
        regarding: plan::reference(WORKLOADS, wl),
        warning,
        reason: reason.to_owned(),
        action: action.to_owned(),
        message,
        reporting_controller: REPORTING_CONTROLLER.into(),
        reporting_instance: String::new(),
    }))
}

/// The reconcile of a workload with reserved quota.
struct Sync<'a> {
    wl: &'a Value,
    /// Its requests.
    owned: &'a [Arc<Value>],
    /// Version in which requests are served.
    served: Resource,
    env: Env<'a>,
}

impl Sync<'_> {
    fn plan(&self) -> Plan {
        let mut writes = Vec::new();
        let mut rows = Vec::new();
        let mut created = Vec::new();
        let mut decisive = Vec::new();
        let mut kept: Vec<&str> = Vec::new();
        for old in json::list(self.wl, &["status", "admissionChecks"]) {
            let name = json::text(old, &["name"]);
            let Some(check) = config::check(self.env.objects, name) else {
                rows.push(old.clone());
                continue;
            };
            let Ok(config) = config::of_check(self.env.objects, &check) else {
                rows.push(states::inactive(old, self.env.now));
                continue;
            };
            let Some(needed) = request::is_needed(self.wl, &config) else {
                // Assignments of other podsets than these: the watch will show a newer version of the workload.
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
            if let Some((request, _)) = current.filter(|_| row["state"] != old["state"]) {
                decisive.push(self.if_unchanged(request));
            }
            created.extend(self.create(&row, &config, current));
            rows.push(row);
        }
        writes.extend(decisive);
        writes.extend(self.changes(&rows));
        let unused = self.owned.iter().filter(|r| !kept.contains(&json::name(r)));
        writes.extend(unused.filter_map(|r| delete(self.served, r)));
        writes.extend(created);
        writes
    }

    /// Asks for a request whose conditions change the state of a check: an informer that is behind, as that of a new leader
    /// may be, still shows the request of an earlier reservation, which was deleted when the workload was evicted.
    fn if_unchanged(&self, request: &Value) -> Write {
        Write::IfUnchanged {
            resource: self.served,
            namespace: json::namespace(request).to_owned(),
            name: json::name(request).to_owned(),
            version: json::version(request).to_owned(),
        }
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

    fn changes(&self, rows: &[Value]) -> Plan {
        let mut events = Vec::new();
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
            events.push(event(self.wl, false, "AdmissionCheckUpdated", "AdmissionCheckUpdated", text));
        }
        let mut writes: Plan = write_states(self.wl, rows).into_iter().collect();
        if !writes.is_empty() {
            writes.extend(events);
        }
        writes
    }

    /// Creates what a check in state `row` lacks.
    fn create(&self, row: &Value, config: &config::Config, current: Option<(&Value, i64)>) -> Plan {
        if row["state"] == "Ready" {
            return Vec::new();
        }
        let wl = self.wl;
        let attempt = match current {
            None => json::int(row, &["retryCount"]).unwrap_or(0).saturating_add(1),
            Some((request, attempt)) => {
                let again =
                    states::has_failed(request, json::is_true(wl, "Admitted")) && row["state"] == "Pending";
                if !again {
                    return self.templates(row, config, request);
                }
                attempt.saturating_add(1)
            }
        };
        let check = json::text(row, &["name"]);
        let name = request::name(json::name(wl), check, attempt);
        let known = self.env.objects.get(Kind::ProvisioningRequest, json::namespace(wl), &name);
        if known.is_some_and(|r| json::deleting(&r)) {
            // The watch will show its deletion.
            return Vec::new();
        }
        let Some(parts) = request::parts(wl, config) else { return Vec::new() };
        let mut writes = Vec::new();
        for part in &parts {
            match self.template(part, &name, &request::owner(wl)) {
                Ok(made) => {
                    writes.extend(made.map(|object| self.create_object(POD_TEMPLATES, object, check)));
                }
                Err((template, problem)) => {
                    let problem = format!("Error creating PodTemplate {template:?}: {problem}");
                    writes.extend(failed(wl, check, &problem, self.env.now));
                    writes.push(Write::RequeueAfter(RETRY));
                    return writes;
                }
            }
        }
        let object = request::request(wl, &name, config, &parts, self.served.api_version);
        writes.push(self.create_object(self.served, object, check));
        let text = format!("Created ProvisioningRequest: {name:?}");
        writes.push(event(wl, false, "ProvisioningRequestCreated", "Created", text));
        writes
    }

    fn create_object(&self, resource: Resource, object: Value, check: &str) -> Write {
        Write::CreateForCheck(Box::new(CheckObject {
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
        if self.env.objects.get(Kind::PodTemplate, json::namespace(self.wl), &name).is_some() {
            return Ok(None);
        }
        match request::template(self.wl, part, &name, owner, self.env) {
            Ok(object) => Ok(Some(object)),
            Err(problem) => Err((name, problem)),
        }
    }

    /// Creates missing templates of an existing request while it is pending, and makes it their owner.
    fn templates(&self, row: &Value, config: &config::Config, request: &Value) -> Plan {
        let mut writes = Vec::new();
        let owner = workload::owner(self.served.api_version, self.served.kind, request, true);
        let parts = request::parts(self.wl, config).unwrap_or_default();
        for wanted in json::list(request, &["spec", "podSets"]) {
            let name = json::text(wanted, &["podTemplateRef", "name"]);
            if let Some(template) = self.env.objects.get(Kind::PodTemplate, json::namespace(self.wl), name) {
                writes.extend(hand_over(&template, self.wl, request, &owner));
                continue;
            }
            let of = |p: &&request::Part| {
                request::template_name(json::name(request), json::text(&p.podset, &["name"])) == name
            };
            if let Some(part) = parts.iter().find(of).filter(|_| !states::has_ended(request))
                && let Ok(Some(object)) = self.template(part, json::name(request), &owner)
            {
                writes.push(self.create_object(POD_TEMPLATES, object, json::text(row, &["name"])));
            }
        }
        writes
    }
}

/// Makes the request the owner of a template. Until then the workload owns it, so that it is always garbage collected.
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
        // It belongs to another controller; the autoscaler can use it all the same.
        return None;
    }
    owners.push(owner.clone());
    let mut new = template.clone();
    json::set(&mut new, &["metadata", "ownerReferences"], Value::Array(owners));
    patch(POD_TEMPLATES, template, &new)
}

/// The writes that report on a check, and in an Event, why an object could not be created.
pub fn failed(wl: &Value, check: &str, problem: &str, now: Time) -> Plan {
    let mut writes = vec![event(wl, true, "FailedCreate", "FailedCreate", problem.to_owned())];
    let mut rows = json::list(wl, &["status", "admissionChecks"]).to_vec();
    if let Some(row) = rows.iter_mut().find(|r| r["name"] == check && r["message"] != problem) {
        row["message"] = json!(problem);
        row["lastTransitionTime"] = json!(timestamp::text(now));
    }
    writes.extend(write_states(wl, &rows));
    writes
}

/// The writes after the API server has refused to create an object: an Event, and the check's message.
pub fn creation_failed(wanted: &CheckObject, error: &str, env: Env<'_>) -> Plan {
    let Some(wl) = env.objects.get(Kind::Workload, &wanted.namespace, &wanted.workload) else {
        return Vec::new();
    };
    let problem =
        format!("Error creating {} {:?}: {error}", wanted.resource.kind, json::name(&wanted.object));
    failed(&wl, &wanted.check, &problem, env.now)
}
