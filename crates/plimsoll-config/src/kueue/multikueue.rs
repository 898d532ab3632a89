//! Section `multiKueue` (Kueue's `pkg/config/validation.go`, `validateMultiKueue`, and `apis/config/v1beta2/defaults.go`).

use plimsoll_api::kueue::{AccessProvider, Dispatcher};
use plimsoll_state::Duration;

use super::{Errors, wire};

const ALL_AT_ONCE: &str = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once";
const INCREMENTAL: &str = "kueue.x-k8s.io/multikueue-dispatcher-incremental";
/// Plimsoll's own.
const EARLIEST: &str = "plimsoll.dev/multikueue-dispatcher-earliest";
/// Clusters of a round where the file says nothing.
const STEP: i32 = 3;

/// Section `multiKueue`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultiKueue {
    /// `gcInterval`; `None`: no garbage collection.
    pub gc_interval: Option<Duration>,
    /// `origin`, a value of a label.
    pub origin: String,
    /// `workerLostTimeout`.
    pub worker_lost_timeout: Duration,
    /// `dispatcherName` and `incrementalDispatcherConfig`.
    pub dispatcher: Dispatcher,
    /// `externalFrameworks`, as `Kind.version.group`.
    pub external_frameworks: Vec<String>,
    /// `clusterProfile.accessProviders`: how ClusterProfiles become connections (gate `MultiKueueClusterProfile`).
    pub access_providers: Vec<AccessProvider>,
}

/// Reads the section, with Kueue's defaults for what it doesn't say.
pub(super) fn read(raw: Option<&wire::MultiKueue>, errors: &mut Errors) -> MultiKueue {
    let none = wire::MultiKueue::default();
    let raw = raw.unwrap_or(&none);
    let interval = errors.duration("multiKueue.gcInterval", raw.gc_interval.as_ref());
    let timeout = errors.duration("multiKueue.workerLostTimeout", raw.worker_lost_timeout.as_ref());
    let origin = raw.origin.as_deref().filter(|origin| !origin.is_empty()).unwrap_or("multikueue");
    if !is_label_value(origin) {
        errors.add("multiKueue.origin", format!("Invalid value: {origin:?}: {LABEL_VALUE}"));
    }
    external_frameworks(raw, errors);
    MultiKueue {
        gc_interval: Some(interval.unwrap_or(Duration::from_seconds(60))).filter(|d| *d > Duration::ZERO),
        origin: origin.to_owned(),
        worker_lost_timeout: timeout.unwrap_or(Duration::from_seconds(15 * 60)),
        dispatcher: dispatcher(raw, errors),
        external_frameworks: raw.external_frameworks.iter().map(|f| f.name.clone()).collect(),
        access_providers: access_providers(raw.cluster_profile.as_ref(), errors),
    }
}

/// `clusterProfile` (`validateClusterProfileAccessProviders`).
fn access_providers(raw: Option<&wire::ClusterProfile>, errors: &mut Errors) -> Vec<AccessProvider> {
    let Some(raw) = raw else { return Vec::new() };
    let section = "multiKueue.clusterProfile";
    let (mut field, mut all) = (format!("{section}.accessProviders"), &raw.access_providers);
    if all.is_empty() {
        (field, all) = (format!("{section}.credentialsProviders"), &raw.credentials_providers);
    } else if !raw.credentials_providers.is_empty() {
        let refused = "Forbidden: must not be specified when accessProviders is specified".to_owned();
        errors.add(&format!("{section}.credentialsProviders"), refused);
    }
    for provider in all {
        access_provider(&field, provider, errors);
    }
    let read = |provider: &wire::AccessProvider| {
        let exec = &provider.exec_config;
        let env = exec.env.iter().flatten().map(|v| (v.name.clone(), v.value.clone()));
        AccessProvider {
            name: provider.name.clone(),
            command: exec.command.clone(),
            args: exec.args.clone().unwrap_or_default(),
            env: env.collect(),
            api_version: exec.api_version.clone(),
            install_hint: exec.install_hint.clone(),
            provide_cluster_info: exec.provide_cluster_info,
        }
    };
    all.iter().map(read).collect()
}

fn access_provider(field: &str, provider: &wire::AccessProvider, errors: &mut Errors) {
    const MODES: [&str; 3] = ["Never", "IfAvailable", "Always"];
    let exec = &provider.exec_config;
    let env = exec.env.iter().flatten();
    let required = [
        (provider.name.is_empty(), "name"),
        (exec.command.is_empty(), "execConfig.command"),
        (exec.api_version.is_empty(), "execConfig.apiVersion"),
        (env.into_iter().any(|v| v.name.is_empty()), "execConfig.env.name"),
        (exec.interactive_mode.is_empty(), "execConfig.interactiveMode"),
    ];
    for (_, name) in required.into_iter().filter(|(missing, _)| *missing) {
        errors.add(&format!("{field}.{name}"), "Required value: must be specified".to_owned());
    }
    let mode = exec.interactive_mode.as_str();
    if !mode.is_empty() && !MODES.contains(&mode) {
        errors.add(
            &format!("{field}.execConfig.interactiveMode"),
            format!("Unsupported value: {mode:?}: supported values: \"Always\", \"IfAvailable\", \"Never\""),
        );
    }
}

fn external_frameworks(raw: &wire::MultiKueue, errors: &mut Errors) {
    for (i, framework) in raw.external_frameworks.iter().enumerate() {
        let (field, name) = (format!("multiKueue.externalFrameworks[{i}].name"), &framework.name);
        // Kind, version and a group with at least two parts (`schema.ParseKindArg`).
        if name.splitn(3, '.').filter(|part| !part.is_empty()).count() < 3 {
            errors.add(&field, format!("Invalid value: {name:?}: must be in 'kind.version.group' format"));
        } else if raw.external_frameworks.iter().take(i).any(|before| before.name == *name) {
            errors.add(&field, format!("Duplicate value: {name:?}"));
        }
    }
}

fn dispatcher(raw: &wire::MultiKueue, errors: &mut Errors) -> Dispatcher {
    let name = raw.dispatcher_name.as_deref().unwrap_or(ALL_AT_ONCE);
    let field = "multiKueue.incrementalDispatcherConfig";
    let steps = raw.incremental_dispatcher_config.as_ref();
    if steps.is_some() && name != INCREMENTAL {
        errors.add(
            field,
            "Invalid value: incrementalDispatcherConfig is only valid when dispatcherName is set to the incremental dispatcher"
                .to_owned(),
        );
    }
    let step = steps.and_then(|s| s.step_size).unwrap_or(STEP);
    if step < 1 {
        errors.add(
            &format!("{field}.stepSize"),
            format!("Invalid value: {step}: must be greater than or equal to 1"),
        );
    }
    match name {
        ALL_AT_ONCE => Dispatcher::AllAtOnce,
        INCREMENTAL => Dispatcher::Incremental { step: usize::try_from(step).unwrap_or(1) },
        EARLIEST => Dispatcher::Earliest,
        _ => Dispatcher::External,
    }
}

/// `content.IsLabelValue`.
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn is_label_value(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && ends(text.chars().next())
        && ends(text.chars().next_back())
}
