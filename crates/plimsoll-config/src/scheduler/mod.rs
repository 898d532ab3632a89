//! `KubeSchedulerConfiguration` of `kubescheduler.config.k8s.io/v1`
//! (<https://kubernetes.io/docs/reference/config-api/kube-scheduler-config.v1/>).

mod args;
mod extenders;
mod gates;
mod validate;
mod wire;

pub use gates::Gates;

use plimsoll_scheduler::{Backoff, Config, PluginRef, PluginSet, Profile, Registry, UserPlugins, UserSet};
use plimsoll_state::Duration;
use serde_json::Value;

pub use super::ConfigError;
use super::check_kind;
use super::{ClientConnection, decode};

/// Only version that is served.
const VERSION: &str = "kubescheduler.config.k8s.io/v1";
const EXPECTED: &str =
    "KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1 (kube-scheduler's configuration file)";

/// Reads a configuration file in YAML or JSON.
///
/// # Errors
/// When it is malformed, of another kind, or has fields or values that upstream refuses.
pub fn read(text: &str) -> Result<Config, ConfigError> {
    read_with(text, &Gates::default())
}

/// The same with feature gates.
///
/// # Errors
/// As [`read`].
pub fn read_with(text: &str, gates: &Gates) -> Result<Config, ConfigError> {
    read_with_registry(text, gates, &Registry::in_tree())
}

/// The same for profiles that can name the plugins of a registry.
///
/// # Errors
/// As [`read`].
pub fn read_with_registry(text: &str, gates: &Gates, registry: &Registry) -> Result<Config, ConfigError> {
    from_value_with(super::parse(text)?, gates, registry)
}

/// `clientConnection` of a file that [`read`] takes, with kube-scheduler's defaults for what the section doesn't say.
pub fn client_connection(text: &str) -> Option<ClientConnection> {
    let raw: wire::Configuration = decode(super::parse(text).ok()?, "", &mut Vec::new());
    let raw = raw.client_connection?;
    let burst = u32::try_from(raw.burst.unwrap_or(100)).unwrap_or_default();
    Some(ClientConnection { qps: raw.qps.unwrap_or(50.0), burst })
}

/// The same from decoded JSON.
///
/// # Errors
/// As [`read`].
pub fn from_value(value: Value) -> Result<Config, ConfigError> {
    from_value_with(value, &Gates::default(), &Registry::in_tree())
}

fn from_value_with(value: Value, gates: &Gates, registry: &Registry) -> Result<Config, ConfigError> {
    check_kind(&value, "KubeSchedulerConfiguration", &[VERSION], EXPECTED)?;
    let mut broken = Vec::new();
    let mut raw: wire::Configuration = decode(value, "", &mut broken);
    let mut errors = Vec::new();
    validate::top(&raw, &mut errors);
    let profiles = raw.profiles.take().unwrap_or_default();
    let single = profiles.len() <= 1;
    let mut out: Vec<Profile> = Vec::new();
    for (i, p) in profiles.into_iter().enumerate() {
        out.extend(profile(p, (single, &format!("profiles[{i}]")), gates, registry, &mut errors));
    }
    if out.is_empty() && errors.is_empty() {
        out.push(gates.default_profile(registry));
    }
    validate::profiles(&out, &mut errors);
    let errors = super::decode::with_consequences(broken, errors);
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
    let raw = decode(value, "profiles[0]", &mut errors);
    match profile(raw, (true, "profiles[0]"), &Gates::default(), &Registry::in_tree(), &mut errors) {
        Some(profile) if errors.is_empty() => Ok(profile),
        _ => Err(ConfigError::Invalid(errors)),
    }
}

/// Validated to be in 0..=100 before.
fn percentage(raw: Option<i32>) -> u8 {
    raw.and_then(|p| u8::try_from(p).ok()).unwrap_or(0)
}

/// One profile; `None` only where `errors` say why.
fn profile(
    raw: wire::Profile,
    (single, path): (bool, &str),
    gates: &Gates,
    registry: &Registry,
    errors: &mut Vec<String>,
) -> Option<Profile> {
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
    let known = validate::plugins(&user, registry, path, errors);
    let plugins = match PluginSet::new(registry, &user, gates.plugins()) {
        Ok(plugins) => Some(plugins),
        Err(e) => {
            if known {
                errors.push(format!("{path}.plugins: {e}"));
            }
            None
        }
    };
    let configs = raw.plugin_config.unwrap_or_default();
    let configured: Vec<String> = configs.iter().filter_map(|config| config.name.clone()).collect();
    let args = args::read(configs, registry, path, errors);
    let mut plugins = plugins?;
    validate::missing_arguments((&plugins, &configured), registry, path, errors);
    validate::points_of_arguments(&user, &args, registry, path, errors);
    plugins.restrict(&args);
    Some(Profile {
        scheduler_name: name,
        plugins,
        args,
        percentage_of_nodes_to_score: percentage(raw.percentage_of_nodes_to_score),
    })
}

/// `plugin "X" does not exist`, with the names that do.
fn no_plugin(name: &str, registry: &Registry) -> String {
    let hint = match super::nearest(name, registry.names()) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("known plugins: {}", registry.names().collect::<Vec<_>>().join(", ")),
    };
    format!("plugin {name:?} does not exist: {hint}")
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
        ("placementGenerate", raw.placement_generate),
        ("placementScore", raw.placement_score),
    ];
    UserPlugins {
        multi_point: user_set(raw.multi_point),
        points: points.into_iter().map(|(n, s)| (n.to_owned(), user_set(s))).collect(),
    }
}

#[cfg(test)]
mod tests;
