//! Kueue's configuration file, `config.kueue.x-k8s.io/v1beta2` and `v1beta1` (spec section 1.8).
//!
//! Read strictly: unknown and duplicate fields are errors. A v1beta1 file gets the defaults of v1beta1.

mod devices;
mod gates;
#[cfg(test)]
mod tests;
mod wire;

use plimsoll_core::Duration;
use plimsoll_core::model::{LabelSelector, Operator, Requirement};
use plimsoll_core::queueing::{
    AdmissionFairSharing, Config, FairSharing, FairStrategy, Transformation, WaitForPodsReady,
};
use serde_json::Value;

pub use gates::FeatureGates;

use super::ClientConnection;
use crate::convert::label_selector_from_value;
use crate::quantity::Quantity;

/// Why a configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is not YAML or JSON of the expected shape; unknown and duplicate fields are errors.
    #[error("strict decoding error: {0}")]
    Decode(String),
    /// It is another kind or version.
    #[error("no kind {kind:?} is registered for version {version:?}")]
    Kind {
        /// Kind that was found.
        kind: String,
        /// Version that was found.
        version: String,
    },
    /// Values that are refused, one text each.
    #[error("{}", .0.join(", "))]
    Invalid(Vec<String>),
}

/// A configuration, with defaults filled in.
#[derive(Clone, Debug)]
pub struct KueueConfig {
    /// What decides something in the engine.
    pub queueing: Config,
    /// All feature gates.
    pub gates: FeatureGates,
    /// `manageJobsWithoutQueueName`.
    pub manage_jobs_without_queue_name: bool,
    /// Namespaces whose jobs are managed.
    pub managed_jobs_namespaces: LabelSelector,
    /// `integrations.frameworks`.
    pub frameworks: Vec<String>,
    /// `integrations.externalFrameworks`, as `Kind.version.group`.
    pub external_frameworks: Vec<String>,
    /// `integrations.labelKeysToCopy`.
    pub label_keys_to_copy: Vec<String>,
    /// Finished workloads are deleted after this; `None`: never.
    pub delete_finished_after: Option<Duration>,
    /// Jobs of workloads that were deactivated here are deleted after this; `None`: never.
    pub delete_deactivated_after: Option<Duration>,
    /// `clientConnection`, if there.
    pub client: Option<ClientConnection>,
}

const V1BETA2: &str = "config.kueue.x-k8s.io/v1beta2";
const V1BETA1: &str = "config.kueue.x-k8s.io/v1beta1";

/// Reads a configuration file in YAML or JSON. `own_namespace` is where the controller runs unless the file
/// says otherwise; its jobs are never managed.
///
/// # Errors
/// When it is malformed, of another kind, or has values that are refused.
pub fn read(text: &str, own_namespace: &str) -> Result<KueueConfig, ConfigError> {
    let value: Value = serde_saphyr::from_str(text).map_err(|e| ConfigError::Decode(e.to_string()))?;
    let raw = decode(value)?;
    let old = match (raw.kind.as_str(), raw.api_version.as_str()) {
        ("Configuration", V1BETA2) => false,
        ("Configuration", V1BETA1) => true,
        _ => return Err(ConfigError::Kind { kind: raw.kind, version: raw.api_version }),
    };
    build(raw, old, own_namespace)
}

/// What queueing needs of a fragment of a v1beta2 configuration, without `kind` and `apiVersion`. Pod
/// readiness is supervised only if the fragment says so.
///
/// # Errors
/// As [`read`].
pub fn queueing(fragment: &Value) -> Result<Config, ConfigError> {
    let raw = decode(fragment.clone())?;
    let supervised = raw.wait_for_pods_ready.is_some();
    let mut config = build(raw, false, "kueue-system")?.queueing;
    if !supervised {
        config.wait_for_pods_ready = None;
    }
    Ok(config)
}

fn decode(value: Value) -> Result<wire::Configuration, ConfigError> {
    serde_json::from_value(value).map_err(|e| ConfigError::Decode(e.to_string()))
}

/// Texts of what is refused.
#[derive(Default)]
struct Errors(Vec<String>);

impl Errors {
    fn add(&mut self, field: &str, text: impl std::fmt::Display) {
        self.0.push(format!("{field}: {text}"));
    }

    fn duration(&mut self, field: &str, text: Option<&String>) -> Option<Duration> {
        let text = text?;
        let parsed = duration(text).filter(|d| *d >= Duration::ZERO);
        if parsed.is_none() {
            self.add(field, format!("Invalid value: {text:?}: must be a duration, not negative"));
        }
        parsed
    }
}

fn build(raw: wire::Configuration, old: bool, own_namespace: &str) -> Result<KueueConfig, ConfigError> {
    let mut errors = Errors::default();
    only_in(&raw, old, &mut errors);
    let gates = match FeatureGates::new(&raw.feature_gates) {
        Ok(g) => Some(g),
        Err(texts) => {
            texts.into_iter().for_each(|t| errors.add("featureGates", t));
            None
        }
    };
    let namespace = raw.namespace.as_deref().filter(|n| !n.is_empty()).unwrap_or(own_namespace);
    let mut queueing = Config {
        fair_sharing: fair_sharing(raw.fair_sharing.as_ref(), old, &mut errors),
        admission_fair_sharing: admission_fair_sharing(raw.admission_fair_sharing.as_ref(), &mut errors),
        ..Config::default()
    };
    let disabled = gates.as_ref().is_some_and(|g| g.is_on("DisableWaitForPodsReady"));
    wait_for_pods_ready(raw.wait_for_pods_ready.as_ref(), old, disabled, &mut queueing, &mut errors);
    resources(raw.resources.as_ref(), &mut queueing, &mut errors);
    if let (Some(raw), Some(gates)) = (&raw.resources, &gates) {
        queueing.device_mappings = devices::mappings(&raw.device_class_mappings, gates, &mut errors);
    }
    if raw.multi_kueue.is_some() {
        errors.add("multiKueue", "not supported by Plimsoll");
    }
    let selector = managed_namespaces(raw.managed_jobs_namespace_selector.as_ref(), namespace, &mut errors);
    let retention = raw.object_retention_policies.unwrap_or_default().workloads.unwrap_or_default();
    let field = "objectRetentionPolicies.workloads";
    let finished = errors.duration(&format!("{field}.afterFinished"), retention.after_finished.as_ref());
    let deactivated = errors
        .duration(&format!("{field}.afterDeactivatedByKueue"), retention.after_deactivated_by_kueue.as_ref());
    let client = client_connection(raw.client_connection.as_ref(), &mut errors);
    let integrations = raw.integrations.unwrap_or_default();
    let Some(gates) = gates.filter(|_| errors.0.is_empty()) else {
        return Err(ConfigError::Invalid(errors.0));
    };
    queueing.gates = gates.engine();
    Ok(KueueConfig {
        queueing,
        gates,
        manage_jobs_without_queue_name: raw.manage_jobs_without_queue_name,
        managed_jobs_namespaces: selector,
        frameworks: if integrations.frameworks.is_empty() {
            vec!["batch/job".to_owned()]
        } else {
            integrations.frameworks
        },
        external_frameworks: integrations.external_frameworks,
        label_keys_to_copy: integrations.label_keys_to_copy,
        delete_finished_after: finished,
        delete_deactivated_after: deactivated,
        client,
    })
}

/// With Kueue's defaults for what the section doesn't say.
fn client_connection(raw: Option<&wire::ClientConnection>, errors: &mut Errors) -> Option<ClientConnection> {
    let raw = raw?;
    let burst = raw.burst.unwrap_or(500);
    let Ok(burst) = u32::try_from(burst) else {
        errors.add("clientConnection.burst", format!("Invalid value: {burst}: must be non-negative"));
        return None;
    };
    Some(ClientConnection { qps: raw.qps.unwrap_or(300.0), burst })
}

/// Fields that only v1beta1 has.
fn only_in(raw: &wire::Configuration, old: bool, errors: &mut Errors) {
    let removed = [
        ("queueVisibility", raw.queue_visibility.is_some()),
        ("waitForPodsReady.enable", raw.wait_for_pods_ready.as_ref().is_some_and(|w| w.enable.is_some())),
        ("fairSharing.enable", raw.fair_sharing.as_ref().is_some_and(|f| f.enable.is_some())),
        ("integrations.podOptions", raw.integrations.as_ref().is_some_and(|i| i.pod_options.is_some())),
    ];
    for (field, there) in removed {
        if there && !old {
            errors.0.push(format!("unknown field \"{field}\""));
        }
    }
}

fn fair_sharing(raw: Option<&wire::FairSharing>, old: bool, errors: &mut Errors) -> Option<FairSharing> {
    let raw = raw?;
    if old && raw.enable != Some(true) {
        return None;
    }
    let field = "fairSharing.preemptionStrategies";
    use FairStrategy::{LessThanInitialShare as Initial, LessThanOrEqualToFinalShare as Final};
    let strategies = match raw.preemption_strategies.iter().map(String::as_str).collect::<Vec<_>>().as_slice()
    {
        [] => return Some(FairSharing::default()),
        ["LessThanOrEqualToFinalShare"] => vec![Final],
        ["LessThanInitialShare"] => vec![Initial],
        ["LessThanOrEqualToFinalShare", "LessThanInitialShare"] => vec![Final, Initial],
        other => {
            errors.add(field, format!("Unsupported value: {other:?}"));
            return None;
        }
    };
    Some(FairSharing { strategies })
}

fn admission_fair_sharing(
    raw: Option<&wire::AdmissionFairSharing>,
    errors: &mut Errors,
) -> Option<AdmissionFairSharing> {
    let raw = raw?;
    let field = "admissionFairSharing";
    for (name, w) in raw.resource_weights.iter().filter(|(_, w)| !(w.is_finite() && **w >= 0.0)) {
        errors.add(&format!("{field}.resourceWeights[{name}]"), format!("Invalid value: {w}"));
    }
    let half = errors.duration(&format!("{field}.usageHalfLifeTime"), raw.usage_half_life_time.as_ref());
    let sampling =
        errors.duration(&format!("{field}.usageSamplingInterval"), raw.usage_sampling_interval.as_ref());
    Some(AdmissionFairSharing {
        half_life: half.unwrap_or(Duration::ZERO),
        sampling: sampling.filter(|d| *d > Duration::ZERO).unwrap_or(Duration::from_seconds(300)),
        weights: raw.resource_weights.clone(),
    })
}

/// On unless switched off in v1beta2; off unless switched on in v1beta1.
fn wait_for_pods_ready(
    raw: Option<&wire::WaitForPodsReady>,
    old: bool,
    disabled: bool,
    config: &mut Config,
    errors: &mut Errors,
) {
    let none = wire::WaitForPodsReady::default();
    let raw = raw.unwrap_or(&none);
    let requeuing = raw.requeuing_strategy.as_ref();
    match requeuing.and_then(|r| r.timestamp.as_deref()) {
        None | Some("Eviction") => {}
        Some("Creation") => config.order_by_creation = true,
        Some(other) => {
            errors
                .add("waitForPodsReady.requeuingStrategy.timestamp", format!("Unsupported value: {other:?}"));
        }
    }
    if (old && raw.enable != Some(true)) || (!old && disabled) {
        return;
    }
    let default = Duration::from_seconds(if old { 300 } else { 1800 });
    let timeout = errors.duration("waitForPodsReady.timeout", raw.timeout.as_ref()).unwrap_or(default);
    let recovery = errors.duration("waitForPodsReady.recoveryTimeout", raw.recovery_timeout.as_ref());
    let seconds = |v: Option<i32>, default: i64| Duration::from_seconds(v.map_or(default, i64::from));
    for (name, v) in [
        ("backoffLimitCount", requeuing.and_then(|r| r.backoff_limit_count)),
        ("backoffBaseSeconds", requeuing.and_then(|r| r.backoff_base_seconds)),
        ("backoffMaxSeconds", requeuing.and_then(|r| r.backoff_max_seconds)),
    ] {
        if v.is_some_and(|v| v < 0) {
            let field = format!("waitForPodsReady.requeuingStrategy.{name}");
            errors.add(&field, "must be greater than or equal to 0");
        }
    }
    config.wait_for_pods_ready = Some(WaitForPodsReady {
        timeout,
        recovery_timeout: match recovery {
            Some(d) => Some(d).filter(|d| *d > Duration::ZERO),
            None => (!old).then_some(timeout),
        },
        block_admission: raw.block_admission.unwrap_or(old),
        backoff_limit: requeuing.and_then(|r| r.backoff_limit_count),
        backoff_base: seconds(requeuing.and_then(|r| r.backoff_base_seconds), 60),
        backoff_max: seconds(requeuing.and_then(|r| r.backoff_max_seconds), 3600),
    });
}

fn resources(raw: Option<&wire::Resources>, config: &mut Config, errors: &mut Errors) {
    let Some(raw) = raw else { return };
    config.ignore_undeclared = match raw.quota_check_strategy.as_deref() {
        None | Some("" | "BlockUndeclared") => false,
        Some("IgnoreUndeclared") => true,
        Some(other) => {
            errors.add("resources.quotaCheckStrategy", format!("Unsupported value: {other:?}"));
            false
        }
    };
    if config.ignore_undeclared && !raw.exclude_resource_prefixes.is_empty() {
        errors.add("resources.excludeResourcePrefixes", "can't be used with IgnoreUndeclared");
    }
    config.exclude_resource_prefixes.clone_from(&raw.exclude_resource_prefixes);
    for (i, t) in raw.transformations.iter().enumerate() {
        let field = format!("resources.transformations[{i}]");
        if raw.transformations[..i].iter().any(|o| o.input == t.input) {
            errors.add(&format!("{field}.input"), format!("Duplicate value: {:?}", t.input));
        }
        config.transformations.push(transformation(t, &field, errors));
    }
}

fn transformation(t: &wire::Transformation, field: &str, errors: &mut Errors) -> Transformation {
    let mut outputs = Vec::new();
    for (name, q) in &t.outputs {
        let text = q.as_str().map_or_else(|| q.to_string(), str::to_owned);
        match text.parse::<Quantity>() {
            Ok(q) => outputs.push((name.clone(), q.nanos())),
            Err(e) => errors.add(&format!("{field}.outputs[{name}]"), e),
        }
    }
    let replace = match t.strategy.as_deref() {
        None | Some("Retain") => false,
        Some("Replace") => true,
        Some(o) => {
            errors.add(&format!("{field}.strategy"), format!("Unsupported value: {o:?}"));
            false
        }
    };
    let multiply_by = t.multiply_by.clone().filter(|m| !m.is_empty());
    Transformation { input: t.input.clone(), replace, multiply_by, outputs }
}

/// The namespaces whose jobs are managed; never `kube-system` nor the controller's own.
fn managed_namespaces(raw: Option<&Value>, own: &str, errors: &mut Errors) -> LabelSelector {
    let excluded = || vec!["kube-system".to_owned(), own.to_owned()];
    let key = "kubernetes.io/metadata.name";
    let field = "managedJobsNamespaceSelector";
    let default = LabelSelector {
        requirements: vec![Requirement { key: key.into(), operator: Operator::NotIn, values: excluded() }],
    };
    let Some(raw) = raw.filter(|v| !v.is_null()) else { return default };
    match label_selector_from_value(raw) {
        Ok(selector) => {
            for name in excluded() {
                let labels = [(key.to_owned(), name.clone())].into();
                if selector.matches(&labels) {
                    errors.add(field, format!("should not match the {name:?} namespace"));
                }
            }
            selector
        }
        Err(e) => {
            errors.add(field, e);
            default
        }
    }
}

/// A duration as Go writes it: `1h30m`, `500ms`, `0`.
pub fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(r) => (-1, r),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest.is_empty() {
        return None;
    }
    let mut nanos = 0i64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = match &rest[..unit_end] {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return None,
        };
        nanos = nanos.checked_add((number * unit) as i64)?;
        rest = &rest[unit_end..];
    }
    Some(Duration(sign * nanos))
}
