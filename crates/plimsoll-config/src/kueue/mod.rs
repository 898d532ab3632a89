//! Kueue's configuration file, `config.kueue.x-k8s.io/v1beta2` and `v1beta1`
//! (<https://kueue.sigs.k8s.io/docs/reference/kueue-config.v1beta2/>).
//!
//! Read strictly: unknown and duplicate fields are errors. A v1beta1 file gets the defaults of v1beta1.

mod custom_labels;
mod devices;
mod gates;
mod multikueue;
mod process;
mod quota_release;
mod sections;
#[cfg(test)]
mod tests;
mod wire;

use plimsoll_api::kueue::QuotaRelease;
use plimsoll_queueing::{
    AdmissionFairSharing, Config, FairSharing, FairStrategy, LocalQueueMetrics, Transformation,
    WaitForPodsReady,
};
use plimsoll_state::Duration;
use plimsoll_state::model::{LabelSelector, Operator, Requirement};
use serde_json::Value;

pub use gates::FeatureGates;
pub use multikueue::MultiKueue;

pub use super::ConfigError;
use super::check_kind;
use super::selector::LabelSelector as WireSelector;
use super::{ClientConnection, NEGATIVE, decode};
use plimsoll_api::quantity::Quantity;

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
    /// When evicted jobs release their quota.
    pub quota_release: QuotaRelease,
    /// Finished workloads are deleted after this; `None`: never.
    pub delete_finished_after: Option<Duration>,
    /// Jobs of workloads that were deactivated here are deleted after this; `None`: never.
    pub delete_deactivated_after: Option<Duration>,
    /// `clientConnection`, if there.
    pub client: Option<ClientConnection>,
    /// `namespace`: where the controller runs, if the file says it.
    pub namespace: Option<String>,
    /// `multiKueue`.
    pub multikueue: MultiKueue,
    /// The section `plimsoll`, which Kueue's file does not have; not read here.
    pub plimsoll: Option<Value>,
}

const V1BETA2: &str = "config.kueue.x-k8s.io/v1beta2";
const V1BETA1: &str = "config.kueue.x-k8s.io/v1beta1";
const EXPECTED: &str = "Configuration of config.kueue.x-k8s.io/v1beta2 or config.kueue.x-k8s.io/v1beta1 (Kueue's configuration file)";

/// Kinds of jobs that Kueue has integrations for (`FrameworkName` below `pkg/controller/jobs`), in the order of
/// `GetIntegrationsList`.
pub const FRAMEWORKS: [&str; 18] = [
    "batch/job",
    "deployment",
    "jobset.x-k8s.io/jobset",
    "kubeflow.org/jaxjob",
    "kubeflow.org/mpijob",
    "kubeflow.org/paddlejob",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/tfjob",
    "kubeflow.org/xgboostjob",
    "leaderworkerset.x-k8s.io/leaderworkerset",
    "pod",
    "ray.io/raycluster",
    "ray.io/rayjob",
    "ray.io/rayservice",
    "sparkoperator.k8s.io/sparkapplication",
    "statefulset",
    "trainer.kubeflow.org/trainjob",
    "workload.codeflare.dev/appwrapper",
];

/// Reads a configuration file in YAML or JSON. `own_namespace` is where the controller runs unless the file
/// says otherwise; its jobs are never managed.
///
/// # Errors
/// When it is malformed, of another kind, or has fields or values that are refused.
pub fn read(text: &str, own_namespace: &str) -> Result<KueueConfig, ConfigError> {
    let value = super::parse(text)?;
    check_kind(&value, "Configuration", &[V1BETA2, V1BETA1], EXPECTED)?;
    let old = value["apiVersion"] == V1BETA1;
    let mut broken = Vec::new();
    let raw: wire::Configuration = decode(value, "", &mut broken);
    match build(raw, old, own_namespace) {
        Ok(config) if broken.is_empty() => Ok(config),
        Ok(_) => Err(ConfigError::Invalid(broken)),
        Err(errors) => Err(ConfigError::Invalid(super::decode::with_consequences(broken, errors))),
    }
}

/// What queueing needs of a fragment of a v1beta2 configuration, without `kind` and `apiVersion`. Pod
/// readiness is supervised only if the fragment says so.
///
/// # Errors
/// As [`read`].
pub fn queueing(fragment: &Value) -> Result<Config, ConfigError> {
    let mut broken = Vec::new();
    let raw: wire::Configuration = decode(fragment.clone(), "", &mut broken);
    if !broken.is_empty() {
        return Err(ConfigError::Invalid(broken));
    }
    let supervised = raw.wait_for_pods_ready.is_some();
    let mut config = build(raw, false, "kueue-system").map_err(ConfigError::Invalid)?.queueing;
    if !supervised {
        config.wait_for_pods_ready = None;
    }
    Ok(config)
}

/// Texts of what is refused.
#[derive(Default)]
struct Errors(Vec<String>);

impl Errors {
    fn add(&mut self, field: &str, text: impl std::fmt::Display) {
        self.0.push(format!("{field}: {text}"));
    }

    fn unsupported(&mut self, field: &str, value: &str, supported: &[&str]) {
        self.add(field, super::unsupported(value, supported));
    }

    fn duration(&mut self, field: &str, text: Option<&String>) -> Option<Duration> {
        let text = text?;
        let parsed = Duration::parse(text);
        match parsed {
            None => self
                .add(field, format!("Invalid value: {text:?}: must be a duration such as 90s, 5m or 1h30m")),
            Some(d) if d < Duration::ZERO => self.add(field, format!("Invalid value: {text:?}: {NEGATIVE}")),
            Some(_) => {}
        }
        parsed.filter(|d| *d >= Duration::ZERO)
    }
}

fn build(raw: wire::Configuration, old: bool, own_namespace: &str) -> Result<KueueConfig, Vec<String>> {
    let mut errors = Errors::default();
    only_in(&raw, old, &mut errors);
    process::check(&raw, &mut errors);
    let gates = match FeatureGates::new(&raw.feature_gates) {
        Ok(g) => Some(g),
        Err(texts) => {
            errors.0.extend(texts);
            None
        }
    };
    let namespace = raw.namespace.as_deref().filter(|n| !n.is_empty()).unwrap_or(own_namespace);
    let mut queueing = Config {
        overtaking: plimsoll_queueing::OVERTAKING,
        fair_sharing: fair_sharing(raw.fair_sharing.as_ref(), old, &mut errors),
        admission_fair_sharing: admission_fair_sharing(raw.admission_fair_sharing.as_ref(), &mut errors),
        ..Config::default()
    };
    let disabled = gates.as_ref().is_some_and(|g| g.is_on("DisableWaitForPodsReady"));
    wait_for_pods_ready(raw.wait_for_pods_ready.as_ref(), old, disabled, &mut queueing, &mut errors);
    resources(raw.resources.as_ref(), &mut queueing, &mut errors);
    if let (Some(raw), Some(gates)) = (&raw.resources, &gates) {
        queueing.device_mappings = devices::mappings(&raw.device_class_mappings, gates, &mut errors);
        if gates.is_on("ReservedResourceNameValidation") {
            reserved_names(raw, gates, &mut errors);
        }
    }
    let multikueue = multikueue::read(raw.multi_kueue.as_ref(), &mut errors);
    let selector = managed_namespaces(raw.managed_jobs_namespace_selector.as_ref(), namespace, &mut errors);
    if let Some(metrics) = raw.metrics.as_ref().and_then(|m| m.local_queue_metrics.as_ref()) {
        queueing.local_queue_metrics = local_queue_metrics(metrics, &mut errors);
    }
    let labels = raw.metrics.as_ref().and_then(|m| m.custom_labels.as_deref()).unwrap_or_default();
    queueing.custom_labels = custom_labels::read(labels, &mut errors);
    let retention = raw.object_retention_policies.unwrap_or_default().workloads.unwrap_or_default();
    let field = "objectRetentionPolicies.workloads";
    let finished = errors.duration(&format!("{field}.afterFinished"), retention.after_finished.as_ref());
    let deactivated = errors
        .duration(&format!("{field}.afterDeactivatedByKueue"), retention.after_deactivated_by_kueue.as_ref());
    let client = client_connection(raw.client_connection.as_ref(), &mut errors);
    let integrations = raw.integrations.unwrap_or_default();
    frameworks(&integrations, &mut errors);
    let strategies = integrations.quota_release_strategy.unwrap_or_default();
    let strategies = quota_release::read(&strategies, &mut errors);
    let Some(gates) = gates.filter(|_| errors.0.is_empty()) else {
        return Err(errors.0);
    };
    queueing.gates = gates.engine();
    queueing.ignore_undeclared &= gates.is_on("QuotaCheckStrategy");
    if !gates.is_on("LocalQueueMetrics") {
        queueing.local_queue_metrics = LocalQueueMetrics::Disabled;
    }
    if !gates.is_on("CustomMetricLabels") {
        queueing.custom_labels.clear();
    }
    Ok(KueueConfig {
        queueing,
        quota_release: quota_release::effective(&strategies, &gates),
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
        namespace: raw.namespace,
        multikueue,
        plimsoll: raw.plimsoll,
    })
}

/// Names of kinds of jobs (Kueue's `validateIntegrations`).
fn frameworks(raw: &wire::Integrations, errors: &mut Errors) {
    for (i, name) in raw.frameworks.iter().enumerate() {
        let field = format!("integrations.frameworks[{i}]");
        if !FRAMEWORKS.contains(&name.as_str()) {
            let hint =
                super::nearest(name, FRAMEWORKS).map_or(String::new(), |n| format!(" (did you mean {n:?}?)"));
            errors.add(&field, format!("{}{hint}", super::unsupported(name, &FRAMEWORKS)));
        } else if raw.frameworks.iter().take(i).any(|n| n == name) {
            errors.add(&field, format!("Duplicate value: {name:?}"));
        }
    }
    for (i, name) in raw.external_frameworks.iter().enumerate() {
        let field = format!("integrations.externalFrameworks[{i}]");
        // Kind, version and a group with at least two parts (`schema.ParseKindArg`).
        if name.splitn(3, '.').filter(|part| !part.is_empty()).count() < 3 {
            errors.add(&field, format!("Invalid value: {name:?}: must be format, 'Kind.version.group.com'"));
        } else if raw.external_frameworks.iter().take(i).any(|n| n == name) {
            errors.add(&field, format!("Duplicate value: {name:?}"));
        }
    }
}

/// With Kueue's defaults for what the section doesn't say.
fn client_connection(raw: Option<&wire::ClientConnection>, errors: &mut Errors) -> Option<ClientConnection> {
    let raw = raw?;
    let burst = raw.burst.unwrap_or(500);
    let Ok(burst) = u32::try_from(burst) else {
        errors.add("clientConnection.burst", format!("Invalid value: {burst}: {NEGATIVE}"));
        return None;
    };
    Some(ClientConnection { qps: raw.qps.unwrap_or(300.0), burst })
}

/// Fields that only one version has.
fn only_in(raw: &wire::Configuration, old: bool, errors: &mut Errors) {
    let removed = [
        ("queueVisibility", raw.queue_visibility.is_some()),
        ("waitForPodsReady.enable", raw.wait_for_pods_ready.as_ref().is_some_and(|w| w.enable.is_some())),
        ("fairSharing.enable", raw.fair_sharing.as_ref().is_some_and(|f| f.enable.is_some())),
        ("integrations.podOptions", raw.integrations.as_ref().is_some_and(|i| i.pod_options.is_some())),
    ];
    for (field, there) in removed {
        if there && !old {
            errors.0.push(format!("strict decoding error: unknown field \"{field}\": only {V1BETA1} has it"));
        }
    }
    if old && raw.integrations.as_ref().is_some_and(|i| i.quota_release_strategy.is_some()) {
        let field = "integrations.quotaReleaseStrategy";
        errors.0.push(format!("strict decoding error: unknown field \"{field}\": only {V1BETA2} has it"));
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
            // Upstream's list of valid lists (`validStrategySetsStr`).
            const VALID: [&str; 3] = [
                "LessThanOrEqualToFinalShare",
                "LessThanInitialShare",
                "LessThanOrEqualToFinalShare,LessThanInitialShare",
            ];
            errors.unsupported(field, &other.join(","), &VALID);
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
        errors.add(&format!("{field}.resourceWeights[{name}]"), format!("Invalid value: {w}: {NEGATIVE}"));
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
            let field = "waitForPodsReady.requeuingStrategy.timestamp";
            errors.unsupported(field, other, &["Creation", "Eviction"]);
        }
    }
    if (old && raw.enable != Some(true)) || (!old && disabled) {
        return;
    }
    let usual = WaitForPodsReady::default();
    let default = if old { Duration::from_seconds(300) } else { usual.timeout };
    // In v1beta2 0s stands for the default (Kueue's `defaults.go`).
    let timeout = errors
        .duration("waitForPodsReady.timeout", raw.timeout.as_ref())
        .filter(|t| old || *t > Duration::ZERO)
        .unwrap_or(default);
    let recovery = errors.duration("waitForPodsReady.recoveryTimeout", raw.recovery_timeout.as_ref());
    let seconds =
        |v: Option<i32>, default| v.map_or(default, |seconds| Duration::from_seconds(i64::from(seconds)));
    for (name, v) in [
        ("backoffLimitCount", requeuing.and_then(|r| r.backoff_limit_count)),
        ("backoffBaseSeconds", requeuing.and_then(|r| r.backoff_base_seconds)),
        ("backoffMaxSeconds", requeuing.and_then(|r| r.backoff_max_seconds)),
    ] {
        if let Some(v) = v.filter(|v| *v < 0) {
            let field = format!("waitForPodsReady.requeuingStrategy.{name}");
            errors.add(&field, format!("Invalid value: {v}: {NEGATIVE}"));
        }
    }
    config.wait_for_pods_ready = Some(WaitForPodsReady {
        timeout,
        recovery_timeout: match recovery {
            Some(d) => Some(d).filter(|d| *d > Duration::ZERO),
            None => Some(timeout),
        },
        block_admission: raw.block_admission.unwrap_or(old),
        backoff_limit: requeuing.and_then(|r| r.backoff_limit_count),
        backoff_base: seconds(requeuing.and_then(|r| r.backoff_base_seconds), usual.backoff_base),
        backoff_max: seconds(requeuing.and_then(|r| r.backoff_max_seconds), usual.backoff_max),
    });
}

fn resources(raw: Option<&wire::Resources>, config: &mut Config, errors: &mut Errors) {
    let Some(raw) = raw else { return };
    config.ignore_undeclared = match raw.quota_check_strategy.as_deref() {
        None | Some("" | "BlockUndeclared") => false,
        Some("IgnoreUndeclared") => true,
        Some(other) => {
            let supported = ["IgnoreUndeclared", "BlockUndeclared"];
            errors.unsupported("resources.quotaCheckStrategy", other, &supported);
            false
        }
    };
    if config.ignore_undeclared && !raw.exclude_resource_prefixes.is_empty() {
        let text = "excludeResourcePrefixes is not allowed when quotaCheckStrategy is IgnoreUndeclared";
        errors.add("resources.quotaCheckStrategy", format!("Invalid value: \"IgnoreUndeclared\": {text}"));
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

/// Refuses names that stand for the number of pods (Kueue's gate `ReservedResourceNameValidation`).
fn reserved_names(raw: &wire::Resources, gates: &FeatureGates, errors: &mut Errors) {
    const PODS: &str = "pods";
    let mut refuse = |field: &str| {
        errors.add(field, format!("Invalid value: {PODS:?}: the key is reserved for internal kueue use"));
    };
    for (i, t) in raw.transformations.iter().enumerate() {
        let field = format!("resources.transformations[{i}]");
        if t.input == PODS {
            refuse(&format!("{field}.input"));
        }
        if t.outputs.contains_key(PODS) {
            refuse(&format!("{field}.outputs[{PODS}]"));
        }
    }
    let mappings = raw.device_class_mappings.iter().enumerate();
    for (i, _) in mappings.filter(|(_, m)| m.name == PODS && gates.is_on("KueueDRAIntegration")) {
        refuse(&format!("resources.deviceClassMappings[{i}].name"));
    }
}

fn transformation(t: &wire::Transformation, field: &str, errors: &mut Errors) -> Transformation {
    let mut outputs = Vec::new();
    for (name, q) in &t.outputs {
        let text = q.as_str().map_or_else(|| q.to_string(), str::to_owned);
        match text.parse::<Quantity>() {
            Ok(q) => outputs.push((name.clone(), q.nanos())),
            Err(e) => {
                errors.add(&format!("{field}.outputs[{name}]"), format!("Invalid value: {text:?}: {e}"));
            }
        }
    }
    let replace = match t.strategy.as_deref() {
        None | Some("Retain") => false,
        Some("Replace") => true,
        Some(o) => {
            errors.unsupported(&format!("{field}.strategy"), o, &["Retain", "Replace"]);
            false
        }
    };
    let multiply_by = t.multiply_by.clone().filter(|m| !m.is_empty());
    Transformation { input: t.input.clone(), replace, multiply_by, outputs }
}

/// The LocalQueues that have metrics.
fn local_queue_metrics(raw: &sections::LocalQueueMetrics, errors: &mut Errors) -> LocalQueueMetrics {
    if raw.enable != Some(true) {
        return LocalQueueMetrics::Disabled;
    }
    let field = "metrics.localQueueMetrics.localQueueSelector";
    let selector = raw.local_queue_selector.as_ref();
    selector.map_or(LocalQueueMetrics::All, |s| LocalQueueMetrics::Matching(s.read(field, &mut errors.0)))
}

/// The namespaces whose jobs are managed; never `kube-system` nor the controller's own.
fn managed_namespaces(raw: Option<&WireSelector>, own: &str, errors: &mut Errors) -> LabelSelector {
    let excluded = || vec!["kube-system".to_owned(), own.to_owned()];
    let key = "kubernetes.io/metadata.name";
    let field = "managedJobsNamespaceSelector";
    let default = LabelSelector {
        requirements: vec![Requirement { key: key.into(), operator: Operator::NotIn, values: excluded() }],
    };
    let Some(raw) = raw else { return default };
    let before = errors.0.len();
    let selector = raw.read(field, &mut errors.0);
    if errors.0.len() > before {
        return default;
    }
    for name in excluded() {
        let labels = [(key.to_owned(), name.clone())].into();
        if selector.matches(&labels) {
            errors.add(field, format!("Invalid value: should not match the {name:?} namespace"));
        }
    }
    selector
}
