//! ProvisioningRequestConfig (Kueue KEP-1136), and the one that an AdmissionCheck refers to.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_api::json;
use serde_json::Value;

use crate::check_parameters::{self, GROUP};
use crate::store::{Kind, ObjectStore};

/// `spec.controllerName` of this controller's checks.
pub const CONTROLLER: &str = "kueue.x-k8s.io/provisioning-request";
const KIND: &str = "ProvisioningRequestConfig";

/// `spec.podSetMergePolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// Podsets with equal templates become one.
    IdenticalTemplates,
    /// Podsets with equal scheduling requirements become one.
    SameRequirements,
}

/// A configuration, with the defaults of its definition.
#[derive(Clone, Debug)]
pub struct Config {
    /// `spec.provisioningClassName`.
    pub class: String,
    /// `spec.parameters`.
    pub parameters: BTreeMap<String, String>,
    /// `spec.managedResources`; empty: all.
    pub managed: Vec<String>,
    /// `spec.retryStrategy.backoffLimitCount`.
    pub limit: i64,
    /// `spec.retryStrategy.backoffBaseSeconds`.
    pub base: i64,
    /// `spec.retryStrategy.backoffMaxSeconds`.
    pub max: i64,
    /// `spec.podSetUpdates.nodeSelector`: label, and the detail of the request that gives its value.
    pub selectors: Vec<(String, String)>,
    /// `spec.podSetMergePolicy`.
    pub merge: Option<Merge>,
}

impl Config {
    fn of(object: &Value) -> Self {
        let spec = &object["spec"];
        let retry = |key: &str, default: i64| json::int(spec, &["retryStrategy", key]).unwrap_or(default);
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        Self {
            class: text(&spec["provisioningClassName"]),
            parameters: json::map(spec, &["parameters"])
                .into_iter()
                .flatten()
                .map(|(k, v)| (k.clone(), text(v)))
                .collect(),
            managed: json::list(spec, &["managedResources"]).iter().map(text).collect(),
            limit: retry("backoffLimitCount", 3),
            base: retry("backoffBaseSeconds", 60),
            max: retry("backoffMaxSeconds", 1800),
            selectors: json::list(spec, &["podSetUpdates", "nodeSelector"])
                .iter()
                .map(|s| (text(&s["key"]), text(&s["valueFromProvisioningClassDetail"])))
                .collect(),
            merge: match json::text(spec, &["podSetMergePolicy"]) {
                "IdenticalPodTemplates" => Some(Merge::IdenticalTemplates),
                "IdenticalWorkloadSchedulingRequirements" => Some(Merge::SameRequirements),
                _ => None,
            },
        }
    }

    /// Seconds to wait before attempt `count` + 1 (`base` * 2^(`count`-1), at most `max`; the first is never cut).
    pub fn backoff(&self, count: i64) -> i64 {
        let doublings = u32::try_from(count.saturating_sub(1)).unwrap_or(0).min(62);
        let grown = self.base.max(0).saturating_mul(1 << doublings);
        let cut = if doublings == 0 || self.max == 0 { grown } else { grown.min(self.max) };
        cut.clamp(0, i64::from(i32::MAX))
    }
}

/// The AdmissionCheck of this name, if this controller is responsible for it.
pub fn check(objects: &ObjectStore, name: &str) -> Option<Arc<Value>> {
    objects
        .get(Kind::AdmissionCheck, "", name)
        .filter(|c| json::text(c, &["spec", "controllerName"]) == CONTROLLER)
}

/// Name of the configuration that a check's parameters point to.
///
/// # Errors
/// The problem, in Kueue's words.
pub fn reference(check: &Value) -> Result<&str, String> {
    check_parameters::reference(check, KIND)
}

/// The configuration of a check.
///
/// # Errors
/// Why there is none, in Kueue's words.
pub fn of_check(objects: &ObjectStore, check: &Value) -> Result<Config, String> {
    let name = reference(check)?;
    match objects.get(Kind::ProvisioningConfig, "", name) {
        Some(object) => Ok(Config::of(&object)),
        None => Err(format!("{KIND}.{GROUP} \"{name}\" not found")),
    }
}
