//! Quota for devices (Kueue KEP-2941): what the claims of a workload's pods count as.
//!
//! Claims come from ResourceClaimTemplates; their requests for devices of a class count as the resource that the
//! configuration maps the class to, as what the devices take of a counter, or as shares of a capacity. Extended resources that a class stands for
//! count as devices of it. What can't be resolved keeps the workload out of the queues until something changes.

mod capacity;
mod charge;
mod extended;
mod mappings;
mod matching;
mod problem;
mod templates;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use super::bounded::Again;
use super::cond;
use super::config::Config;
use super::ids::WorkloadId;
use super::model::Workload;
use super::phase::{Phase, is_on_hold};
use super::requests::{self, Limits};
use super::state::WorkloadInfo;
use crate::Queueing;
pub(crate) use charge::{Charge, apply};
use charge::{Extra, Unresolved};
use plimsoll_state::model::{PodClaimSource, PodSpec, ResourceSlice};
use plimsoll_state::time::Time;
use templates::Counted;

/// How many devices a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimCount {
    /// This many.
    Exactly(i64),
    /// All of the class.
    All,
    /// A mode that is not known.
    Other(String),
}

/// One request of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimRequest {
    /// A list of alternatives.
    FirstAvailable,
    /// Neither alternatives nor a class.
    Empty,
    /// Devices of a class.
    Exactly {
        /// The class.
        class: String,
        /// CEL expressions that all must hold.
        selectors: Vec<String>,
        /// How many.
        count: ClaimCount,
        /// The shares asked for of capacities (`capacity.requests`), in billionths.
        capacity: BTreeMap<String, i128>,
        /// For administration, which takes nothing away from others.
        admin: bool,
    },
}

/// A ResourceClaimTemplate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimTemplate {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// `spec.spec.devices.requests`.
    pub requests: Vec<ClaimRequest>,
}

/// A DeviceClass, as far as quota is concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaDeviceClass {
    /// Name.
    pub name: String,
    /// CEL expressions that all must hold.
    pub selectors: Vec<String>,
    /// Extended resource that stands for its devices.
    pub extended_resource: Option<String>,
    /// When it was made: of several classes for one extended resource the newest counts.
    pub created: Time,
}

/// Templates, classes and devices, and what follows from them.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    templates: BTreeMap<(String, String), ClaimTemplate>,
    classes: BTreeMap<String, QuotaDeviceClass>,
    slices: BTreeMap<String, ResourceSlice>,
    /// What templates come to, until something changes.
    resolved: BTreeMap<(String, String), templates::Resolved>,
    /// Waiting workloads with claims, among others.
    users: BTreeSet<WorkloadId>,
    /// Something has changed since the workloads were charged.
    stale: bool,
    /// Extended resources whose classes have changed since then.
    renamed: BTreeSet<String>,
}

impl Devices {
    fn changed(&mut self) {
        self.resolved.clear();
        self.stale = true;
    }

    /// A template was seen (`Some`) or is gone.
    pub(crate) fn template(&mut self, key: (String, String), template: Option<ClaimTemplate>) {
        if self.templates.get(&key) == template.as_ref() {
            return;
        }
        self.resolved.remove(&key);
        self.stale = true;
        match template {
            Some(t) => drop(self.templates.insert(key, t)),
            None => drop(self.templates.remove(&key)),
        }
    }

    /// A class was seen or is gone.
    pub(crate) fn class(&mut self, name: &str, class: Option<QuotaDeviceClass>) {
        let old = self.classes.get(name);
        if old == class.as_ref() {
            return;
        }
        let resources =
            [old, class.as_ref()].into_iter().flatten().filter_map(|c| c.extended_resource.clone());
        let resources: Vec<String> = resources.collect();
        self.renamed.extend(resources);
        match class {
            Some(c) => drop(self.classes.insert(name.to_owned(), c)),
            None => drop(self.classes.remove(name)),
        }
        self.changed();
    }

    /// A slice was seen or is gone.
    pub(crate) fn slice(&mut self, name: &str, slice: Option<ResourceSlice>) {
        if self.slices.get(name) == slice.as_ref() {
            return;
        }
        match slice {
            Some(s) => drop(self.slices.insert(name.to_owned(), s)),
            None => drop(self.slices.remove(name)),
        }
        self.changed();
    }

    /// What the claims of a workload count as; `specs` are its pods with the defaults of their namespace.
    pub(crate) fn charge(&mut self, wl: &Workload, specs: &[PodSpec], config: &Config) -> Charge {
        let claims = || wl.pod_sets.iter().flat_map(|p| &p.spec.resource_claims);
        let gates = &config.gates;
        if !gates.device_quota {
            if gates.device_refusal && claims().next().is_some() {
                let text =
                    "Workload uses DRA resources but the KueueDRAIntegration feature gate is not enabled";
                return Err(Unresolved { message: text.into(), requeued: text.into() });
            }
            return Ok(Vec::new());
        }
        if claims().any(|c| matches!(c.source, PodClaimSource::Claim(_))) {
            return Err(Unresolved {
                message: "KueueDRAIntegration feature does not support use of resource claims".into(),
                requeued: "DRA resource claims not supported".into(),
            });
        }
        let mut extras = vec![Extra::default(); wl.pod_sets.len()];
        let done = self.charge_claims(wl, config, Counted::Devices, &mut extras).and_then(|()| {
            if gates.device_extended {
                extended::charge(&self.classes, specs, config, &mut extras)?;
            }
            self.charge_claims(wl, config, Counted::Counters, &mut extras)?;
            self.charge_claims(wl, config, Counted::Capacities, &mut extras)
        });
        match done {
            Ok(()) if extras.iter().all(|e| *e == Extra::default()) => Ok(Vec::new()),
            Ok(()) => Ok(extras),
            Err(problems) => {
                let text = requests::aggregate(&problems);
                Err(Unresolved { message: text.clone(), requeued: text })
            }
        }
    }
}

/// Whether a workload depends on templates, classes or slices.
fn has_claims(wl: &Workload) -> bool {
    wl.pod_sets.iter().any(|p| !p.spec.resource_claims.is_empty())
}

/// Whether a workload holds nothing and has not come to its end.
fn still_waits(wl: &WorkloadInfo) -> bool {
    wl.quota().is_none() && Phase::of(&wl.obj.status) != Phase::Finished
}

impl Queueing {
    /// Computes the charge of a workload, and remembers whether changes concern it.
    pub(crate) fn device_charge(&mut self, id: WorkloadId, specs: &[PodSpec]) -> Charge {
        let Some(wl) = self.workloads.get(id) else { return Ok(Vec::new()) };
        if has_claims(&wl.obj) {
            self.devices.users.insert(id);
        } else {
            self.devices.users.remove(&id);
        }
        self.devices.charge(&wl.obj, specs, &self.config)
    }

    /// Requeues pending workloads to be charged again after templates, classes or devices have changed.
    pub(crate) fn devices_settle(&mut self) {
        if !std::mem::take(&mut self.devices.stale) {
            return;
        }
        let renamed = std::mem::take(&mut self.devices.renamed);
        let mut users = std::mem::take(&mut self.devices.users);
        users.retain(|&id| self.wl(id).is_some_and(|w| still_waits(w) && has_claims(&w.obj)));
        let mut concerned = users.clone();
        if !renamed.is_empty() && self.config.gates.device_extended {
            let asks = |w: &Workload| {
                let specs = w.pod_sets.iter().map(|p| &p.spec);
                let mut containers = specs.flat_map(|s| s.containers.iter().chain(&s.init_containers));
                containers
                    .any(|c| renamed.iter().any(|r| c.requests.contains_key(r) || c.limits.contains_key(r)))
            };
            let waiting = self.workloads.iter().filter(|(_, w)| still_waits(w) && asks(&w.obj));
            concerned.extend(waiting.map(|(id, _)| id));
        }
        self.devices.users = users;
        concerned.into_iter().for_each(|id| self.dirty.requeue(id, Again::Recharged));
    }

    /// What a workload's namespace allows, and its pods with what that and their runtime class fill in.
    pub(crate) fn adjusted_specs(&self, id: WorkloadId) -> (Limits, Vec<PodSpec>) {
        let Some(wl) = self.wl(id) else { return Default::default() };
        let limits = requests::limits_of(&self.objects.limit_ranges, &wl.obj.key.namespace);
        let adjusted = wl.obj.pod_sets.iter().map(|p| {
            let mut spec = p.spec.clone();
            requests::adjust(&mut spec, &limits, &self.objects.runtime_classes);
            spec
        });
        let specs = adjusted.collect();
        (limits, specs)
    }

    /// Sets the conditions of a workload whose claims can't be charged, or removes them; whether that settles its
    /// pending reason for now.
    pub(crate) fn reconcile_devices(&mut self, id: WorkloadId, now: Time) -> bool {
        const REASON: &str = "Inadmissible";
        let Some(wl) = self.wl(id) else { return true };
        let s = &wl.obj.status;
        if Phase::of(s) != Phase::Pending || is_on_hold(&wl.obj) || wl.quota().is_some() {
            return false;
        }
        let refused = s.condition(cond::REQUEUED).is_some_and(|c| !c.status && c.reason == REASON);
        let explicit = self.config.gates.explicit_status;
        match wl.devices().clone() {
            Ok(_) if !refused => false,
            Ok(_) => self.edit(id, now, Vec::new(), |e| {
                e.status
                    .conditions
                    .retain(|c| !(c.kind == cond::REQUEUED || (c.kind == cond::QUOTA_RESERVED && !c.status)));
            }),
            Err(problem) => {
                self.edit(id, now, Vec::new(), |e| {
                    e.unset_reservation(explicit, "Misconfigured", &problem.message);
                    e.set(cond::REQUEUED, false, REASON, &problem.requeued);
                });
                true
            }
        }
    }
}
