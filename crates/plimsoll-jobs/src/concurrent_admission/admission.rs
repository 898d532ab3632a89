//! The admission of a parent, which is that of one of its variants.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_api::conditions::set_status_condition;
use plimsoll_api::json;
use plimsoll_api::resource::WORKLOADS;
use plimsoll_state::Time;
use serde_json::{Value, json};

use super::{Family, Step, step};
use crate::plan::{Plan, Write, patch_status};
use crate::reconciler::stopped;
use crate::{Env, workload};

/// The flavors of an admission.
fn assigned_flavors(wl: &Value) -> BTreeSet<&str> {
    let assigned = json::list(wl, &["status", "admission", "podSetAssignments"]).iter();
    let flavors = assigned.filter_map(|a| json::map(a, &["flavors"]));
    flavors.flat_map(|f| f.values().filter_map(Value::as_str)).collect()
}

/// The status of a workload with some of its conditions set.
struct Conditions {
    workload: Value,
    now: Time,
}

impl Conditions {
    fn set(&mut self, kind: &str, status: bool, reason: &str, message: &str) {
        let set = set_status_condition(&self.workload, kind, status, reason, message, self.now);
        if let Some(conditions) = set {
            json::set(&mut self.workload, &["status", "conditions"], Value::Array(conditions));
        }
    }
}

impl Family<'_> {
    /// The admitted variant. One that the job runs as stays the one where the first admission is to be retained; otherwise
    /// the most favorable one goes first, and the job moves to it.
    pub(super) fn admitted(&self) -> Option<&Arc<Value>> {
        let admitted = || self.variants.iter().copied().filter(|v| json::is_true(v, "Admitted"));
        let retained = admitted().find(|v| self.retains_first && self.runs_as(v));
        retained.or_else(|| admitted().next())
    }

    /// Whether the parent has quota, and with the flavors of this variant.
    pub(super) fn runs_as(&self, variant: &Value) -> bool {
        json::is_true(self.parent, "QuotaReserved")
            && json::is_true(variant, "QuotaReserved")
            && assigned_flavors(self.parent) == assigned_flavors(variant)
    }

    /// Evicts the parent, so that its job stops; no write where that has been done.
    pub(super) fn evict_parent(&self, reason: &str, message: &str, env: Env<'_>) -> Plan {
        if json::is_true(self.parent, "Evicted") {
            return Plan::new();
        }
        let set = set_status_condition(self.parent, "Evicted", true, reason, message, env.now);
        set.map(|conditions| patch_status(WORKLOADS, self.parent, &json!({ "conditions": conditions })))
            .into_iter()
            .collect()
    }

    /// The eviction of the variant that the job runs as is that of the parent. An evicted variant gives its quota back when the
    /// parent has none, which says that no pods are left, or when the parent runs with another variant. (Kueue
    /// `syncVariantEvictionStatus` evicts the parent in the second case, too.)
    pub(super) fn follow_evictions(&self, env: Env<'_>) -> Step {
        let evicted = || {
            let variants = self.variants.iter().filter(|v| json::is_true(v, "Evicted"));
            variants.filter(|v| json::is_true(v, "QuotaReserved"))
        };
        if evicted().any(|v| self.runs_as(v)) {
            return Some(self.evict_parent("VariantEvicted", "Admitted variant was evicted", env));
        }
        step(evicted().map(|v| stopped(v, false)).collect())
    }

    /// Brings the admission of the parent in line with that of its variants.
    pub(super) fn sync_admission(&self, env: Env<'_>) -> Step {
        if self.parent["status"]["admission"].is_object() && !json::is_true(self.parent, "QuotaReserved") {
            // A client that does not own the admission releases quota by the condition alone; an admission does not change.
            return Some(vec![patch_status(WORKLOADS, self.parent, &json!({ "admission": null }))]);
        }
        let holds = json::is_true(self.parent, "Admitted");
        let Some(variant) = self.admitted() else {
            return holds.then(|| self.evict_parent("ConcurrentAdmission", "No variant is running", env));
        };
        if holds && !self.runs_as(variant) {
            // Kueue leaves it with a flavor for which nothing is charged any more.
            return Some(self.evict_parent("ConcurrentAdmission", "No variant is running", env));
        }
        let mut plan: Plan = self.sync_pods_ready(variant, env).into_iter().collect();
        if !holds && self.parent["spec"]["active"] != false && !workload::is_on_hold(self.parent) {
            plan.push(self.admit_parent(variant, env));
        }
        step(plan)
    }

    /// The pods are those of the parent, and so is the condition `PodsReady`.
    fn sync_pods_ready(&self, variant: &Value, env: Env<'_>) -> Option<Write> {
        let ready = json::condition(self.parent, "PodsReady")?;
        let (status, text) = (ready["status"] == "True", |key| json::text(ready, &[key]));
        let conditions =
            set_status_condition(variant, "PodsReady", status, text("reason"), text("message"), env.now)?;
        Some(patch_status(WORKLOADS, variant, &json!({ "conditions": conditions })))
    }

    fn admit_parent(&self, variant: &Value, env: Env<'_>) -> Write {
        const RESERVED: &str = "QuotaReserved";
        let admission = &variant["status"]["admission"];
        let queue = json::text(admission, &["clusterQueue"]);
        let mut new = Conditions { workload: self.parent.clone(), now: env.now };
        new.set(RESERVED, true, RESERVED, &format!("Quota reserved in ClusterQueue {queue}"));
        for kind in ["Evicted", "Preempted", "BlockedOnPreemptionGates"] {
            let old = json::condition(self.parent, kind).filter(|c| c["status"] == "True");
            if let Some(old) = old {
                let message = format!("Previously: {}", json::text(old, &["message"]));
                new.set(kind, false, RESERVED, &message);
            }
        }
        let name = json::name(variant);
        new.set("Admitted", true, "Admitted", &format!("The variant {name} is admitted"));
        let conditions = &new.workload["status"]["conditions"];
        patch_status(WORKLOADS, self.parent, &json!({"admission": admission, "conditions": conditions}))
    }
}
