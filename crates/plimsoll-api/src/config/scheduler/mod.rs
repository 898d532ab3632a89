//! `KubeSchedulerConfiguration` of `kubescheduler.config.k8s.io/v1` (spec section 1).

mod args;
mod extenders;
mod gates;
mod validate;
mod wire;

pub use gates::Gates;

use plimsoll_core::Duration;
use plimsoll_core::place::{Backoff, Config, PluginRef, PluginSet, Profile, UserPlugins, UserSet};
use serde::Deserialize;
use serde_json::Value;

use super::ClientConnection;

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
    /// Values that upstream's validation refuses, one text each.
    #[error("{}", .0.join(", "))]
    Invalid(Vec<String>),
}

/// Only version that is served.
const VERSION: &str = "kubescheduler.config.k8s.io/v1";

/// Reads a configuration file in YAML or JSON.
///
/// # Errors
/// When it is malformed, of another kind, or has values that upstream refuses.
pub fn read(text: &str) -> Result<Config, ConfigError> {
    read_with(text, Gates::default())
}

/// The same with feature gates.
///
/// # Errors
/// As [`read`].
pub fn read_with(text: &str, gates: Gates) -> Result<Config, ConfigError> {
    let value: Value = serde_saphyr::from_str(text).map_err(|e| ConfigError::Decode(e.to_string()))?;
    from_value_with(value, gates)
}

/// `clientConnection` of a file that [`read`] takes, with kube-scheduler's defaults for what the section doesn't say.
pub fn client_connection(text: &str) -> Option<ClientConnection> {
    let raw: wire::Configuration = strict(serde_saphyr::from_str(text).ok()?).ok()?;
    let raw = raw.client_connection?;
    let burst = raw.burst.unwrap_or(100).clamp(0, i64::from(u32::MAX));
    Some(ClientConnection { qps: raw.qps.unwrap_or(50.0), burst: u32::try_from(burst).unwrap_or(u32::MAX) })
}

/// The same from decoded JSON.
///
/// # Errors
/// As [`read`].
pub fn from_value(value: Value) -> Result<Config, ConfigError> {
    from_value_with(value, Gates::default())
}

fn from_value_with(value: Value, gates: Gates) -> Result<Config, ConfigError> {
    let raw: wire::Configuration = strict(value)?;
    let (kind, version) = (raw.kind.clone().unwrap_or_default(), raw.api_version.clone().unwrap_or_default());
    if kind != "KubeSchedulerConfiguration" || version != VERSION {
        return Err(ConfigError::Kind { kind, version });
    }
    let mut errors = Vec::new();
    validate::top(&raw, &mut errors);
    let profiles = raw.profiles.clone().unwrap_or_default();
    let single = profiles.len() <= 1;
    let mut out: Vec<Profile> = Vec::new();
    for (i, p) in profiles.into_iter().enumerate() {
        match profile(p, single, &format!("profiles[{i}]"), gates, &mut errors) {
            Ok(p) => out.push(p),
            Err(e) => errors.push(e),
        }
    }
    if out.is_empty() && errors.is_empty() {
        out.push(gates.default_profile());
    }
    validate::profiles(&out, &mut errors);
    if !errors.is_empty() {
        return Err(ConfigError::Invalid(errors));
    }
    for p in &mut out {
        if p.percentage_of_nodes_to_score == 0 {
            p.percentage_of_nodes_to_score = percentage(raw.percentage_of_nodes_to_score);
        }
    }
    let extenders = extenders::read(raw.extenders.unwrap_or_default(), &mut out);
    Ok(Config {
        profiles: out,
        extenders,
        backoff: Backoff {
            initial: Duration::from_seconds(raw.pod_initial_backoff_seconds.unwrap_or(1)),
            max: Duration::from_seconds(raw.pod_max_backoff_seconds.unwrap_or(10)),
        },
        ..Config::default()
    })
}

/// One element of `profiles`, as a user writes it.
///
/// # Errors
/// As [`read`].
pub fn profile_from_value(value: Value) -> Result<Profile, ConfigError> {
    let mut errors = Vec::new();
    match profile(strict(value)?, true, "profiles[0]", Gates::default(), &mut errors) {
        Ok(p) if errors.is_empty() => Ok(p),
        Ok(_) => Err(ConfigError::Invalid(errors)),
        Err(e) => {
            errors.push(e);
            Err(ConfigError::Invalid(errors))
        }
    }
}

fn strict<T: for<'a> Deserialize<'a>>(value: Value) -> Result<T, ConfigError> {
    T::deserialize(value).map_err(|e| ConfigError::Decode(e.to_string()))
}

/// Validated to be in 0..=100 before.
fn percentage(raw: Option<i64>) -> u8 {
    raw.and_then(|p| u8::try_from(p).ok()).unwrap_or(0)
}

fn profile(
    raw: wire::Profile,
    single: bool,
    path: &str,
    gates: Gates,
    errors: &mut Vec<String>,
) -> Result<Profile, String> {
    let mut name = raw.scheduler_name.unwrap_or_default();
    if name.is_empty() && single {
        "default-scheduler".clone_into(&mut name);
    }
    if name.is_empty() {
        errors.push(format!("{path}.schedulerName: Required value"));
    }
    validate::percentage(
        &format!("{path}.percentageOfNodesToScore"),
        raw.percentage_of_nodes_to_score,
        errors,
    );
    let user = user_plugins(raw.plugins.unwrap_or_default());
    validate::removed(&user, path, errors);
    let plugins =
        PluginSet::with_gates(&user, gates.gang_scheduling).map_err(|e| format!("{path}.plugins: {e}"))?;
    let args = args::read(raw.plugin_config.unwrap_or_default(), path, errors);
    Ok(Profile {
        scheduler_name: name,
        plugins,
        args,
        percentage_of_nodes_to_score: percentage(raw.percentage_of_nodes_to_score),
    })
}

fn user_set(raw: Option<wire::PluginSet>) -> UserSet {
    let raw = raw.unwrap_or_default();
    let one = |p: wire::Plugin| PluginRef { name: p.name.unwrap_or_default(), weight: p.weight.unwrap_or(0) };
    UserSet {
        enabled: raw.enabled.unwrap_or_default().into_iter().map(one).collect(),
        disabled: raw.disabled.unwrap_or_default().into_iter().map(|p| p.name.unwrap_or_default()).collect(),
    }
}

fn user_plugins(raw: wire::Plugins) -> UserPlugins {
    let points = [
        ("preEnqueue", raw.pre_enqueue),
        ("queueSort", raw.queue_sort),
        ("preFilter", raw.pre_filter),
        ("filter", raw.filter),
        ("postFilter", raw.post_filter),
        ("preScore", raw.pre_score),
        ("score", raw.score),
        ("reserve", raw.reserve),
        ("permit", raw.permit),
        ("preBind", raw.pre_bind),
        ("bind", raw.bind),
        ("postBind", raw.post_bind),
    ];
    UserPlugins {
        multi_point: user_set(raw.multi_point),
        points: points.into_iter().map(|(n, s)| (n.to_owned(), user_set(s))).collect(),
    }
}

#[cfg(test)]
mod tests;
