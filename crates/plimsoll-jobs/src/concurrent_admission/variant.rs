//! Which variants a parent has, and which of them are active.

use std::sync::Arc;

use plimsoll_api::conditions::set_status_condition;
use plimsoll_api::json;
use plimsoll_api::kueue::variants;
use plimsoll_api::resource::WORKLOADS;
use serde_json::{Value, json};

use super::{Family, Step, event, flavor_of, quoted, step};
use crate::plan::{Plan, Write, delete, patch, patch_status};
use crate::{Env, names, workload};

/// The variant of a workload for a flavor (Kueue `generateVariant`).
fn construct(parent: &Value, flavor: &str, env: Env<'_>) -> Value {
    let of = (WORKLOADS.kind, WORKLOADS.group(), json::name(parent), json::uid(parent));
    let name = env.config.workload_names.variant(of, flavor);
    let mut metadata = json!({"name": name, "namespace": json::namespace(parent)});
    for key in ["labels", "annotations"] {
        metadata[key] = Value::Object(json::map(parent, &["metadata", key]).cloned().unwrap_or_default());
    }
    let mut variant = json!({
        "apiVersion": WORKLOADS.api_version, "kind": WORKLOADS.kind,
        "metadata": metadata, "spec": parent["spec"],
    });
    json::remove(&mut variant, &["metadata", "labels", variants::PARENT]);
    json::set(&mut variant, &["metadata", "annotations", variants::ALLOWED_FLAVORS], json!(flavor));
    let owner = workload::owner(WORKLOADS.api_version, WORKLOADS.kind, parent, true);
    json::set(&mut variant, &["metadata", "ownerReferences"], json!([owner]));
    let mut gates = json::list(parent, &["spec", "preemptionGates"]).to_vec();
    if !gates.iter().any(|g| g["name"] == variants::PREEMPTION_GATE) {
        gates.push(json!({"name": variants::PREEMPTION_GATE}));
    }
    json::set(&mut variant, &["spec", "preemptionGates"], Value::Array(gates));
    variant
}

fn is_active(wl: &Value) -> bool {
    wl["spec"]["active"] != false
}

/// Whether an admission check has rejected a variant. In Kueue such a variant is activated again at once, and rejected again.
fn is_rejected(variant: &Value) -> bool {
    [("DeactivationTarget", "AdmissionCheck"), ("Evicted", "DeactivatedDueToAdmissionCheck")].iter().any(
        |(kind, reason)| {
            json::condition(variant, kind).is_some_and(|c| c["status"] == "True" && c["reason"] == *reason)
        },
    )
}

fn set_active(variant: &Value, active: bool, why: &str) -> Plan {
    let mut new = variant.clone();
    json::set(&mut new, &["spec", "active"], json!(active));
    let (reason, verb) =
        if active { ("ActivatedVariant", "activated") } else { ("DeactivatedVariant", "deactivated") };
    let told = event(variant, reason, format!("Variant Workload {verb} due to {why}"));
    patch(WORKLOADS, variant, &new).into_iter().chain([told]).collect()
}

impl Family<'_> {
    /// Creates the variants of flavors that have none.
    pub(super) fn create(&self, env: Env<'_>) -> Step {
        let missing = self.flavors.iter().filter(|f| !self.variants.iter().any(|v| flavor_of(v) == **f));
        let writes = missing.flat_map(|flavor| {
            let variant = construct(self.parent, flavor, env);
            let told = format!("Variant Workload {} created", quoted(&variant));
            [Write::Create(WORKLOADS, variant), event(self.parent, "CreatedVariant", told)]
        });
        step(writes.collect())
    }

    /// Deletes the variants of flavors that the ClusterQueue no longer has.
    pub(super) fn delete_stale(&self, _env: Env<'_>) -> Step {
        let stale = self.variants.iter().filter(|v| !self.flavors.contains(&flavor_of(v)));
        let writes = stale.flat_map(|variant| {
            let (name, flavor) = (quoted(variant), flavor_of(variant));
            let told =
                format!("Variant Workload {name} deleted; flavor {flavor:?} no longer in ClusterQueue");
            [delete(WORKLOADS, variant), event(self.parent, "DeletedVariant", told)]
        });
        step(writes.collect())
    }

    /// Brings variants in line with what users change in the parent while it waits: its queue, its priority, its admission
    /// gates. In Kueue they stay as they were created.
    pub(super) fn follow_parent(&self, _env: Env<'_>) -> Step {
        let writes = self.variants.iter().filter_map(|variant| {
            let mut new = (***variant).clone();
            let waits = !json::is_true(variant, "QuotaReserved");
            let fields: &[&str] = if waits { &["queueName", "priority", "priorityClassRef"] } else { &[] };
            let annotations = if waits { &[names::GATED_BY][..] } else { &[] };
            let spec = fields.iter().map(|field| ["spec", field].to_vec());
            let paths = spec.chain(annotations.iter().map(|key| ["metadata", "annotations", key].to_vec()));
            for path in paths {
                match json::at(self.parent, &path) {
                    Value::Null => drop(json::remove(&mut new, &path)),
                    value => json::set(&mut new, &path, value.clone()),
                }
            }
            patch(WORKLOADS, variant, &new)
        });
        step(writes.collect())
    }

    /// Deactivates variants that are no longer wanted: all of a parent that is not active, and those that may not take the
    /// place of the admitted one. A parent all of whose variants were rejected is deactivated itself, as a workload without
    /// variants is.
    pub(super) fn deactivate(&self, env: Env<'_>) -> Step {
        if !is_active(self.parent) {
            let why = format!("Parent Workload {} not active", quoted(self.parent));
            return self
                .deactivate_those(|_| Some(why.clone()), false, env)
                .or_else(|| self.forget_rejections(&why, env));
        }
        if !self.variants.is_empty() && self.variants.iter().all(|v| is_rejected(v) && !is_active(v)) {
            let mut new = self.parent.clone();
            json::set(&mut new, &["spec", "active"], json!(false));
            let text = "Deactivated due to admission checks that rejected all variants".to_owned();
            let told = event(self.parent, "AdmissionCheckRejected", text);
            return Some(patch(WORKLOADS, self.parent, &new).into_iter().chain([told]).collect());
        }
        let admitted = self.admitted()?;
        let (name, own) = (quoted(admitted), self.place(admitted));
        let why = |variant: &Value| {
            let place = self.place(variant);
            if json::uid(variant) == json::uid(admitted) {
                return None;
            }
            if self.retains_first {
                return Some(format!("RetainFirstAdmission: another Variant {name} is admitted"));
            }
            if let Some(last) = self.last_acceptable.filter(|last| place > *last) {
                let last = &self.flavors[last];
                let text =
                    format!("being below lastAcceptableFlavor: {last:?} and another Variant admitted {name}");
                return Some(text);
            }
            (place > own).then(|| format!("being lower priority than admitted Variant {name}"))
        };
        self.deactivate_those(why, true, env)
    }

    /// Lets variants that were rejected be activated once the parent is.
    fn forget_rejections(&self, why: &str, env: Env<'_>) -> Step {
        let rejected = self.variants.iter().filter(|v| is_rejected(v));
        let writes = rejected.filter_map(|variant| {
            let conditions = set_status_condition(variant, "Evicted", true, "Deactivated", why, env.now)?;
            Some(patch_status(WORKLOADS, variant, &json!({ "conditions": conditions })))
        });
        step(writes.collect())
    }

    /// `keep_charged`: the variant with whose quota the job runs stays active until the job has stopped, because a
    /// deactivated workload is charged nothing. Kueue deactivates it first.
    fn deactivate_those(
        &self,
        why: impl Fn(&Value) -> Option<String>,
        keep_charged: bool,
        env: Env<'_>,
    ) -> Step {
        let mut plan = Plan::new();
        for &variant in self.variants.iter().filter(|v| is_active(v)) {
            let Some(why) = why(variant) else { continue };
            if keep_charged && self.runs_as(variant) {
                return Some(self.evict_parent("VariantEvicted", "Admitted variant was evicted", env));
            }
            plan.extend(set_active(variant, false, &why));
        }
        step(plan)
    }

    /// Activates variants: all while none is admitted, and those that may take the place of the admitted one.
    pub(super) fn activate(&self, _env: Env<'_>) -> Step {
        if !is_active(self.parent) {
            return None;
        }
        let admitted = self.admitted();
        if admitted.is_some() && self.retains_first {
            return None;
        }
        let why = |variant: &Value| {
            let Some(admitted) = admitted else { return Some("no other Variant being admitted".to_owned()) };
            let place = self.place(variant);
            if place >= self.place(admitted) {
                return None;
            }
            let better = format!("higher priority than admitted Variant {}", quoted(admitted));
            match self.last_acceptable {
                None => Some(format!("being {better}")),
                Some(last) if place > last => None,
                Some(last) => {
                    let last = &self.flavors[last];
                    Some(format!("being at least lastAcceptableFlavor: {last:?} and {better}"))
                }
            }
        };
        let inactive = self.variants.iter().filter(|v| !is_active(v) && !is_rejected(v));
        let writes = inactive.filter_map(|v: &&Arc<Value>| Some(set_active(v, true, &why(v)?)));
        step(writes.flatten().collect())
    }
}
