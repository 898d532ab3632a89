//! Concurrent admission (Kueue `pkg/controller/concurrentadmission`, KEP-8691): a workload of a ClusterQueue with
//! `concurrentAdmissionPolicy` is the parent of variants, one for each flavor. The engine admits variants; here they are
//! created, and the admission of one becomes that of the parent, whose job starts with it.
//!
//! A variant that is evicted keeps its quota until the parent has stopped: so as much is charged as there are pods. The parent
//! has the state of its job alone, and nothing is remembered between two plans.

mod admission;
mod gates;
#[cfg(test)]
mod tests;
mod variant;

use std::sync::Arc;

use plimsoll_api::event::EventRecord;
use plimsoll_api::json;
use plimsoll_api::kueue::variants::{self, has_policy};
use plimsoll_api::resource::WORKLOADS;
use serde_json::{Value, json};

use crate::key::Key;
use crate::plan::{Plan, Write, patch, reference};
use crate::store::{Kind, ObjectStore};
use crate::{Env, workload};

/// Reporting controller of Events (Kueue's recorder of this controller).
const REPORTING_CONTROLLER: &str = "concurrent-admission-controller";

/// Whether a workload is a variant of another one.
pub(crate) fn is_variant(wl: &Value) -> bool {
    variants::parent(&wl["metadata"]).is_some()
}

fn is_parent(wl: &Value) -> bool {
    variants::is_parent(&wl["metadata"])
}

/// The first flavor that a variant may get, or empty.
fn flavor_of(variant: &Value) -> String {
    let allowed = variants::allowed_flavors(&variant["metadata"]).unwrap_or_default();
    allowed.into_iter().next().unwrap_or_default()
}

fn key_of(wl: &Value) -> Key {
    Key::Variants(json::namespace(wl).to_owned(), json::name(wl).to_owned())
}

/// The parents that a changed or deleted object concerns.
pub(crate) fn affected(objects: &ObjectStore, kind: Kind, object: &Value) -> Vec<Key> {
    match kind {
        Kind::Workload => match variants::parent(&object["metadata"]) {
            Some(owner) => {
                let name = json::text(owner, &["name"]).to_owned();
                vec![Key::Variants(json::namespace(object).to_owned(), name)]
            }
            None if is_parent(object) => vec![key_of(object)],
            None if objects.are_variants_wanted()
                && cluster_queue(object, objects).is_some_and(|cq| has_policy(&cq)) =>
            {
                vec![key_of(object)]
            }
            None => Vec::new(),
        },
        Kind::ClusterQueue if has_policy(object) => {
            let queue = json::name(object);
            let mine = |w: &Value| {
                local_queue(w, objects).is_some_and(|lq| json::text(&lq, &["spec", "clusterQueue"]) == queue)
            };
            incomplete(objects, object, mine)
        }
        Kind::LocalQueue => {
            let cq = objects.get(Kind::ClusterQueue, "", json::text(object, &["spec", "clusterQueue"]));
            let Some(cq) = cq.filter(|cq| has_policy(cq)) else { return Vec::new() };
            let (namespace, name) = (json::namespace(object), json::name(object));
            let mine =
                |w: &Value| json::namespace(w) == namespace && json::text(w, &["spec", "queueName"]) == name;
            incomplete(objects, &cq, mine)
        }
        _ => Vec::new(),
    }
}

/// Workloads of a ClusterQueue whose variants are not those of its flavors, as after a change of these. Statuses of queues
/// change all the time, and concern no other workload.
fn incomplete(objects: &ObjectStore, cq: &Value, mine: impl Fn(&Value) -> bool) -> Vec<Key> {
    let flavors = flavors(cq);
    let lacking = |wl: &Arc<Value>| {
        let mut have: Vec<String> = objects.owned_by(json::uid(wl)).map(|v| flavor_of(&v)).collect();
        have.sort_unstable();
        let mut want = flavors.clone();
        want.sort_unstable();
        !is_variant(wl) && !json::is_true(wl, "Finished") && mine(wl) && have != want
    };
    objects.all(Kind::Workload).filter(lacking).map(|w| key_of(&w)).collect()
}

fn local_queue(wl: &Value, objects: &ObjectStore) -> Option<Arc<Value>> {
    objects.get(Kind::LocalQueue, json::namespace(wl), json::text(wl, &["spec", "queueName"]))
}

fn cluster_queue(wl: &Value, objects: &ObjectStore) -> Option<Arc<Value>> {
    let lq = local_queue(wl, objects)?;
    objects.get(Kind::ClusterQueue, "", json::text(&lq, &["spec", "clusterQueue"]))
}

/// The flavors of a ClusterQueue, the most favorable one first. One with a policy has a single resource group.
fn flavors(cq: &Value) -> Vec<String> {
    let groups = json::list(cq, &["spec", "resourceGroups"]);
    let flavors = groups.first().map_or(&[][..], |group| json::list(group, &["flavors"]));
    flavors.iter().map(|f| json::text(f, &["name"]).to_owned()).collect()
}

/// An Event on a workload.
fn event(wl: &Value, reason: &str, message: String) -> Write {
    Write::Event(Box::new(EventRecord {
        regarding: reference(WORKLOADS, wl),
        warning: false,
        reason: reason.to_owned(),
        action: reason.to_owned(),
        message,
        reporting_controller: REPORTING_CONTROLLER.into(),
        reporting_instance: String::new(),
    }))
}

/// Namespace and name, as Kueue's messages have them.
fn quoted(wl: &Value) -> String {
    format!("\"{}/{}\"", json::namespace(wl), json::name(wl))
}

/// The writes for a parent and its variants: those of the first step that is not done.
pub(crate) fn plan(namespace: &str, name: &str, env: Env<'_>) -> Plan {
    if !env.config.concurrent_admission {
        return Plan::new();
    }
    let Some(parent) = env.objects.get(Kind::Workload, namespace, name) else { return Plan::new() };
    if is_variant(&parent) || json::deleting(&parent) {
        return Plan::new();
    }
    let cq = cluster_queue(&parent, env.objects);
    if !is_parent(&parent) {
        return if cq.is_some_and(|cq| has_policy(&cq)) { mark(&parent) } else { Plan::new() };
    }
    let variants: Vec<Arc<Value>> =
        env.objects.owned_by(json::uid(&parent)).filter(|w| !json::deleting(w)).collect();
    let family = Family::of(&parent, cq.as_deref().unwrap_or(&Value::Null), &variants);
    // Before anything that may fail again and again: until the job has stopped, its pods run without a right to.
    let first = [Family::finish, Family::follow_evictions];
    let rest = [
        Family::create,
        Family::delete_stale,
        Family::follow_parent,
        Family::deactivate,
        Family::activate,
        Family::sync_admission,
        Family::open_gate,
    ];
    // What a queue that is gone would want is not known.
    let known = if cq.is_some() { &rest[..] } else { &[] };
    first.iter().chain(known).find_map(|step| step(&family, env)).unwrap_or_default()
}

/// Marks a workload as a parent. One that holds quota, which it got while the gate was off, goes on with that as it is: in Kueue
/// it is charged nothing from then on, and evicted. A finished one needs no variants.
fn mark(wl: &Value) -> Plan {
    if json::is_true(wl, "QuotaReserved") || json::is_true(wl, "Finished") {
        return Plan::new();
    }
    let mut new = wl.clone();
    json::set(&mut new, &["metadata", "labels", variants::PARENT], json!("true"));
    patch(WORKLOADS, wl, &new).into_iter().collect()
}

/// A parent, its variants and what its ClusterQueue says.
struct Family<'a> {
    parent: &'a Value,
    /// In the order of their flavors.
    variants: Vec<&'a Arc<Value>>,
    flavors: Vec<String>,
    /// `mode: RetainFirstAdmission`.
    retains_first: bool,
    /// The place of `lastAcceptableFlavorName`.
    last_acceptable: Option<usize>,
}

/// What a step has to do; `None`: nothing, and the next one follows.
type Step = Option<Plan>;

fn step(plan: Plan) -> Step {
    (!plan.is_empty()).then_some(plan)
}

impl<'a> Family<'a> {
    fn of(parent: &'a Value, cq: &Value, variants: &'a [Arc<Value>]) -> Self {
        let flavors = flavors(cq);
        let place = |flavor: &str| flavors.iter().position(|f| f == flavor);
        let mut variants: Vec<&Arc<Value>> = variants.iter().collect();
        variants.sort_by_key(|v| place(&flavor_of(v)));
        let migration = &cq["spec"]["concurrentAdmissionPolicy"]["migration"];
        let last = migration["constraints"]["lastAcceptableFlavorName"].as_str();
        let last_acceptable = last.and_then(place);
        let retains_first = migration["mode"] == "RetainFirstAdmission";
        Self { parent, variants, flavors, retains_first, last_acceptable }
    }

    fn place(&self, variant: &Value) -> usize {
        let flavor = flavor_of(variant);
        self.flavors.iter().position(|f| *f == flavor).unwrap_or(0)
    }

    /// The end of the parent is that of its variants.
    fn finish(&self, env: Env<'_>) -> Step {
        let finished = json::condition(self.parent, "Finished").filter(|c| c["status"] == "True")?;
        let (reason, message) = (json::text(finished, &["reason"]), json::text(finished, &["message"]));
        let open = self.variants.iter().filter(|v| !json::is_true(v, "Finished"));
        // Whatever is left to do: a finished parent gets no variants.
        Some(open.flat_map(|v| workload::finish(v, reason, message, env.now)).collect())
    }
}
