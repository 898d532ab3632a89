//! Section `multiKueue` (Kueue's `pkg/config/validation.go`, `validateMultiKueue`, and `apis/config/v1beta2/defaults.go`).

use plimsoll_api::kueue::Dispatcher;
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
    if raw.cluster_profile.is_some() {
        let refused = "Forbidden: not supported by Plimsoll: remove the field".to_owned();
        errors.add("multiKueue.clusterProfile", refused);
    }
    external_frameworks(raw, errors);
    MultiKueue {
        gc_interval: Some(interval.unwrap_or(Duration::from_seconds(60))).filter(|d| *d > Duration::ZERO),
        origin: origin.to_owned(),
        worker_lost_timeout: timeout.unwrap_or(Duration::from_seconds(15 * 60)),
        dispatcher: dispatcher(raw, errors),
        external_frameworks: raw.external_frameworks.iter().map(|f| f.name.clone()).collect(),
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
        EARLIEST => Dispatcher::Earliest,
