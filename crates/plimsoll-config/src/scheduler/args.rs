//! Arguments of plugins: section `pluginConfig` (`pkg/scheduler/apis/config/types_pluginargs.go`, defaults of
//! `apis/config/v1/defaults.go`).

use super::errors::Errors;
use super::wire::PluginConfig;
use super::{affinity, spread, validate};
use plimsoll_api::duration::parse as duration;
use plimsoll_scheduler::Registry;
use plimsoll_scheduler::args::{Args, ResourceWeight, StrategyKind};
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Fit {
    api_version: Option<String>,
    kind: Option<String>,
    ignored_resources: Option<Vec<String>>,
    ignored_resource_groups: Option<Vec<String>>,
    scoring_strategy: Option<Strategy>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Strategy {
    r#type: Option<String>,
    resources: Option<Vec<Weighted>>,
    requested_to_capacity_ratio: Option<Ratio>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Weighted {
    name: Option<String>,
    weight: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Ratio {
    shape: Option<Vec<Point>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Point {
    utilization: Option<i32>,
    score: Option<i32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Balanced {
    api_version: Option<String>,
    kind: Option<String>,
    resources: Option<Vec<Weighted>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct InterPod {
    api_version: Option<String>,
    kind: Option<String>,
    hard_pod_affinity_weight: Option<i32>,
    ignore_preferred_terms_of_existing_pods: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Affinity {
    api_version: Option<String>,
    kind: Option<String>,
    added_affinity: Option<affinity::NodeAffinity>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Preemption {
    api_version: Option<String>,
    kind: Option<String>,
    min_candidate_nodes_percentage: Option<i32>,
    min_candidate_nodes_absolute: Option<i32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct VolumeBinding {
    api_version: Option<String>,
    kind: Option<String>,
    bind_timeout_seconds: Option<i64>,
    shape: Option<Vec<Point>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Dynamic {
    api_version: Option<String>,
    kind: Option<String>,
    filter_timeout: Option<String>,
    binding_timeout: Option<String>,
}

/// Reads `pluginConfig`; what is wrong goes to `errors`.
pub(super) fn read(
    list: Vec<PluginConfig>,
    registry: &Registry,
    path: &str,
    errors: &mut Vec<String>,
) -> Args {
    let mut args = Args::default();
    let mut seen: Vec<String> = Vec::new();
    for (i, config) in list.into_iter().enumerate() {
        let name = config.name.unwrap_or_default();
        if seen.contains(&name) {
            errors.push(format!("{path}.pluginConfig[{i}]: Duplicate value: {name:?}"));
        }
        let mut e = Errors { path: format!("{path}.pluginConfig[{i}].args"), list: errors };
        let value = config.args.filter(|v| !v.is_null()).unwrap_or_else(|| Value::Object(Default::default()));
        match registry.get(&name) {
            Some(plugin) => {
                let text = value.to_string();
                match plugin.check_args(&text) {
                    Some(Ok(())) => {
                        args.others.insert(name.clone(), text);
                    }
                    Some(Err(errors)) => errors.iter().for_each(|error| e.at(&error.field, &error.message)),
                    None => one(&name, value, &mut args, &mut e),
                }
            }
            None if validate::is_removed(&name) => {
                e.list.push(format!("{path}.pluginConfig[{i}]: {}", validate::removed(&name)));
            }
            None => {
                e.list.push(format!("{path}.pluginConfig[{i}].name: {}", super::no_plugin(&name, registry)));
            }
        }
        seen.push(name);
    }
    args
}

/// Decodes `$value` as `$type`, checks kind and version, and binds it.
macro_rules! decoded {
    ($e:ident, $id:expr, $value:expr, $type:ty) => {{
        let Some(raw) = $e.decode::<$type>($value) else { return };
        $e.kind($id, raw.kind.as_deref(), raw.api_version.as_deref());
        raw
    }};
}

fn one(id: &str, value: Value, args: &mut Args, e: &mut Errors<'_>) {
    match id {
        "NodeResourcesFit" => fit(decoded!(e, id, value, Fit), args, e),
        "NodeResourcesBalancedAllocation" => {
            let raw = decoded!(e, id, value, Balanced);
            if let Some(list) = raw.resources.filter(|l| !l.is_empty()) {
                balanced(&list, args, e);
            }
        }
        "InterPodAffinity" => {
            let raw = decoded!(e, id, value, InterPod);
            let weight = i64::from(raw.hard_pod_affinity_weight.unwrap_or(1));
            e.range("hardPodAffinityWeight", weight, 0, 100);
            args.inter_pod_affinity.hard_pod_affinity_weight = weight;
            args.inter_pod_affinity.ignore_preferred_terms_of_existing_pods =
                raw.ignore_preferred_terms_of_existing_pods.unwrap_or(false);
        }
        "NodeAffinity" => {
            let raw = decoded!(e, id, value, Affinity);
            args.added_affinity = raw.added_affinity.and_then(|a| affinity::read(a, e));
        }
        "PodTopologySpread" => spread::read(decoded!(e, id, value, spread::TopologySpread), args, e),
        "DefaultPreemption" => preemption(&decoded!(e, id, value, Preemption), args, e),
        "VolumeBinding" => {
            let raw = decoded!(e, id, value, VolumeBinding);
            let seconds = raw.bind_timeout_seconds.unwrap_or(600);
            if seconds < 0 {
                e.add(
                    "bindTimeoutSeconds",
                    format!(
                        "Invalid value: {seconds}: invalid BindTimeoutSeconds, should not be a negative value"
                    ),
                );
            }
            if raw.shape.is_some() {
                e.add("shape", "Invalid value: unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring");
            }
            args.bind_timeout_seconds = seconds;
        }
        "DynamicResources" => timeouts(&decoded!(e, id, value, Dynamic), args, e),
        other => e.list.push(format!("{}: plugin {:?} takes no arguments", e.path, other)),
    }
}

/// Upstream's `ValidateDynamicResourcesArgs`.
fn timeouts(raw: &Dynamic, args: &mut Args, e: &mut Errors<'_>) {
    const MILLI: i64 = 1_000_000;
    let fields = [
        ("filterTimeout", &raw.filter_timeout, 0, "must be zero or positive"),
        ("bindingTimeout", &raw.binding_timeout, 1000, "must be at least 1 second"),
    ];
    for (field, text, least, why) in fields {
        let Some(text) = text else { continue };
        match duration(text).map(|d| d.0 / MILLI) {
            Some(ms) if ms >= least && field == "filterTimeout" => args.filter_timeout_millis = ms,
            Some(ms) if ms >= least => {}
            Some(_) => e.add(field, format!("Invalid value: {text:?}: {why}")),
            None => {
                e.add(field, format!("Invalid value: {text:?}: must be a duration such as 90s, 5m or 1h30m"));
            }
        }
    }
}

fn weights(field: &str, list: &[Weighted], e: &mut Errors<'_>) -> Vec<ResourceWeight> {
    let mut out = Vec::new();
    for (i, w) in list.iter().enumerate() {
        let weight = match w.weight.unwrap_or(0) {
            0 => 1,
            other => other,
        };
        if !(1..=100).contains(&weight) {
            e.add(
                &format!("{field}[{i}].weight"),
                format!(
                    "Invalid value: {weight}: resource weight of {} not in valid range (0, 100]",
                    w.name.clone().unwrap_or_default()
                ),
            );
        }
        out.push(ResourceWeight { name: w.name.clone().unwrap_or_default(), weight });
    }
    out
}

fn balanced(list: &[Weighted], args: &mut Args, e: &mut Errors<'_>) {
    let mut names: Vec<String> = Vec::new();
    for (i, w) in list.iter().enumerate() {
        let name = w.name.clone().unwrap_or_default();
        let weight = w.weight.unwrap_or(0);
        if !(0..=1).contains(&weight) {
            e.add(&format!("resources[{i}].weight"), format!("Invalid value: {weight}: must be 1"));
        }
        if names.contains(&name) {
            e.add(&format!("resources[{i}].name"), format!("Duplicate value: {name:?}"));
        }
        names.push(name);
    }
    args.balanced = names;
}

fn fit(raw: Fit, args: &mut Args, e: &mut Errors<'_>) {
    let fit = &mut args.fit;
    fit.ignored_resources = raw.ignored_resources.unwrap_or_default();
    fit.ignored_resource_groups = raw.ignored_resource_groups.unwrap_or_default();
    for (i, group) in fit.ignored_resource_groups.iter().enumerate() {
        if group.contains('/') {
            e.add(
                &format!("ignoredResourceGroups[{i}]"),
                format!("Invalid value: {group:?}: resource group name can't contain '/'"),
            );
        }
    }
    let Some(strategy) = raw.scoring_strategy else { return };
    fit.strategy = match strategy.r#type.as_deref() {
        None | Some("" | "LeastAllocated") => StrategyKind::LeastAllocated,
        Some("MostAllocated") => StrategyKind::MostAllocated,
        Some("RequestedToCapacityRatio") => StrategyKind::RequestedToCapacityRatio,
        Some(other) => {
            let supported = ["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"];
            e.add("scoringStrategy.type", crate::unsupported(other, &supported));
            StrategyKind::LeastAllocated
        }
    };
    if let Some(list) = strategy.resources.filter(|l| !l.is_empty()) {
        fit.resources = weights("scoringStrategy.resources", &list, e);
    }
    const RATIO: &str = "scoringStrategy.requestedToCapacityRatio";
    match (fit.strategy, strategy.requested_to_capacity_ratio) {
        (StrategyKind::RequestedToCapacityRatio, Some(ratio)) => {
            fit.shape = function(&ratio.shape.unwrap_or_default(), e);
        }
        (StrategyKind::RequestedToCapacityRatio, None) => {
            e.add(RATIO, "Required value: must be specified when type is RequestedToCapacityRatio");
        }
        (_, Some(_)) => e.add(RATIO, "Forbidden: must be nil when type is not RequestedToCapacityRatio"),
        (_, None) => {}
    }
}

/// The points of a RequestedToCapacityRatio function.
fn function(shape: &[Point], e: &mut Errors<'_>) -> Vec<(i64, i64)> {
    const FIELD: &str = "scoringStrategy.requestedToCapacityRatio.shape";
    if shape.is_empty() {
        e.add(FIELD, "Required value: at least one point must be specified");
    }
    let mut out: Vec<(i64, i64)> = Vec::new();
    for (i, p) in shape.iter().enumerate() {
        let (u, s) = (i64::from(p.utilization.unwrap_or(0)), i64::from(p.score.unwrap_or(0)));
        e.range(&format!("{FIELD}[{i}].utilization"), u, 0, 100);
        e.range(&format!("{FIELD}[{i}].score"), s, 0, 10);
        if out.last().is_some_and(|(before, _)| *before >= u) {
            e.add(
                &format!("{FIELD}[{i}].utilization"),
                format!("Invalid value: {u}: values must be sorted in increasing order"),
            );
        }
        out.push((u, s));
    }
    out
}

fn preemption(raw: &Preemption, args: &mut Args, e: &mut Errors<'_>) {
    let share = i64::from(raw.min_candidate_nodes_percentage.unwrap_or(10));
    let absolute = i64::from(raw.min_candidate_nodes_absolute.unwrap_or(100));
    e.range("minCandidateNodesPercentage", share, 0, 100);
    if absolute < 0 {
        e.add("minCandidateNodesAbsolute", format!("Invalid value: {absolute}: not in valid range [0, inf)"));
    }
    if share == 0 && absolute == 0 {
        for (field, other) in [
            ("minCandidateNodesPercentage", "minCandidateNodesAbsolute"),
            ("minCandidateNodesAbsolute", "minCandidateNodesPercentage"),
        ] {
            e.add(field, format!("Invalid value: 0: cannot be zero at the same time as {other}"));
        }
    }
    args.preemption.min_candidate_nodes_percentage = u32::try_from(share).unwrap_or(0);
    args.preemption.min_candidate_nodes_absolute = u32::try_from(absolute).unwrap_or(u32::MAX);
}
