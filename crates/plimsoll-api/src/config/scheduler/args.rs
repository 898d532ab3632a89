//! Arguments of plugins (spec section 1.4).

use super::wire::PluginConfig;
use crate::convert::{node_affinity, spread};
use crate::lean::pod::{NodeAffinity, Spread};
use plimsoll_core::model::UnsatisfiableAction;
use plimsoll_core::place::PluginId;
use plimsoll_core::place::args::{Args, ResourceWeight, StrategyKind};
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
    utilization: Option<i64>,
    score: Option<i64>,
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
    hard_pod_affinity_weight: Option<i64>,
    ignore_preferred_terms_of_existing_pods: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Affinity {
    api_version: Option<String>,
    kind: Option<String>,
    added_affinity: Option<NodeAffinity>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct TopologySpread {
    api_version: Option<String>,
    kind: Option<String>,
    default_constraints: Option<Vec<Spread>>,
    defaulting_type: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Preemption {
    api_version: Option<String>,
    kind: Option<String>,
    min_candidate_nodes_percentage: Option<i64>,
    min_candidate_nodes_absolute: Option<i64>,
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

/// What is wrong, with the path of the arguments in front.
struct Errors<'a> {
    path: String,
    list: &'a mut Vec<String>,
}

impl Errors<'_> {
    fn add(&mut self, field: &str, text: impl std::fmt::Display) {
        self.list.push(format!("{}.{field}: {text}", self.path));
    }

    fn range(&mut self, field: &str, value: i64, low: i64, high: i64) {
        if !(low..=high).contains(&value) {
            self.add(field, format!("Invalid value: {value}: not in valid range [{low}-{high}]"));
        }
    }

    fn decode<T: for<'a> Deserialize<'a>>(&mut self, value: Value) -> Option<T> {
        match T::deserialize(value) {
            Ok(v) => Some(v),
            Err(e) => {
                self.list.push(format!("{}: strict decoding error: {e}", self.path));
                None
            }
        }
    }

    fn kind(&mut self, plugin: PluginId, kind: Option<&str>, version: Option<&str>) {
        let want = format!("{}Args", plugin.name());
        if kind.is_some_and(|k| k != want) {
            let kind = kind.unwrap_or_default();
            self.list.push(format!("{}: Invalid value: {kind:?}: has to match plugin name", self.path));
        }
        if version.is_some_and(|v| v != super::VERSION) {
            let version = version.unwrap_or_default();
            self.list.push(format!("{}: no kind {want:?} is registered for version {version:?}", self.path));
        }
    }
}

/// Reads `pluginConfig`; what is wrong goes to `errors`.
pub(super) fn read(list: Vec<PluginConfig>, path: &str, errors: &mut Vec<String>) -> Args {
    let mut args = Args::default();
    let mut seen: Vec<String> = Vec::new();
    for (i, config) in list.into_iter().enumerate() {
        let name = config.name.unwrap_or_default();
        if seen.contains(&name) {
            errors.push(format!("{path}.pluginConfig[{i}]: Duplicate value: {name:?}"));
        }
        let mut e = Errors { path: format!("{path}.pluginConfig[{i}].args"), list: errors };
        let value = config.args.filter(|v| !v.is_null()).unwrap_or_else(|| Value::Object(Default::default()));
        match PluginId::by_name(&name) {
            Some(id) => one(id, value, &mut args, &mut e),
            None => e.list.push(format!("{path}.pluginConfig[{i}]: plugin {name:?} does not exist")),
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

fn one(id: PluginId, value: Value, args: &mut Args, e: &mut Errors<'_>) {
    match id {
        PluginId::NodeResourcesFit => fit(decoded!(e, id, value, Fit), args, e),
        PluginId::NodeResourcesBalancedAllocation => {
            let raw = decoded!(e, id, value, Balanced);
            if let Some(list) = raw.resources.filter(|l| !l.is_empty()) {
                balanced(&list, args, e);
            }
        }
        PluginId::InterPodAffinity => {
            let raw = decoded!(e, id, value, InterPod);
            let weight = raw.hard_pod_affinity_weight.unwrap_or(1);
            e.range("hardPodAffinityWeight", weight, 0, 100);
            args.inter_pod_affinity.hard_pod_affinity_weight = weight;
            args.inter_pod_affinity.ignore_preferred_terms_of_existing_pods =
                raw.ignore_preferred_terms_of_existing_pods.unwrap_or(false);
        }
        PluginId::NodeAffinity => {
            let raw = decoded!(e, id, value, Affinity);
            match raw.added_affinity.map(node_affinity).transpose() {
                Ok(added) => args.added_affinity = added,
                Err(error) => e.add("addedAffinity", error),
            }
        }
        PluginId::PodTopologySpread => topology(decoded!(e, id, value, TopologySpread), args, e),
        PluginId::DefaultPreemption => preemption(&decoded!(e, id, value, Preemption), args, e),
        PluginId::VolumeBinding => {
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
                e.add("shape", "Invalid value: unsupported when feature StorageCapacityScoring is disabled");
            }
            args.bind_timeout_seconds = seconds;
        }
        PluginId::DynamicResources => {
            let raw = decoded!(e, id, value, Dynamic);
            for (field, text, least) in
                [("filterTimeout", &raw.filter_timeout, 0), ("bindingTimeout", &raw.binding_timeout, 1000)]
            {
                match text.as_deref().map(go_duration_millis) {
                    None => {}
                    Some(Some(ms)) if ms >= least && field == "filterTimeout" => {
                        args.filter_timeout_millis = ms;
                    }
                    Some(Some(ms)) if ms >= least => {}
                    Some(Some(_)) => e.add(
                        field,
                        format!("Invalid value: {:?}: too small", text.as_deref().unwrap_or_default()),
                    ),
                    Some(None) => e.add(
                        field,
                        format!("time: invalid duration {:?}", text.as_deref().unwrap_or_default()),
                    ),
                }
            }
        }
        other => e.list.push(format!("{}: plugin {:?} takes no arguments", e.path, other.name())),
    }
}

/// A Go duration (`10s`, `1m30s`, `250ms`) in milliseconds.
fn go_duration_millis(text: &str) -> Option<i64> {
    if text == "0" {
        return Some(0);
    }
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(r) => (true, r),
        None => (false, text),
    };
    if rest.is_empty() {
        return None;
    }
    let mut total = 0.0f64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(end);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let factor = match unit {
            "ns" => 1e-6,
            "us" | "µs" => 1e-3,
            "ms" => 1.0,
            "s" => 1e3,
            "m" => 6e4,
            "h" => 3.6e6,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * factor;
        rest = tail;
    }
    Some(if negative { -total as i64 } else { total as i64 })
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
                    "Invalid value: {weight}: resource weight of {} not in valid range [1, 100]",
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
            e.add(
                &format!("resources[{i}].weight"),
                format!(
                    "Invalid value: {weight}: resource weight of {name} not in valid range, only support 1"
                ),
            );
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
            e.add("scoringStrategy.type", format!("Unsupported value: {other:?}"));
            return;
        }
    };
    if let Some(list) = strategy.resources.filter(|l| !l.is_empty()) {
        fit.resources = weights("scoringStrategy.resources", &list, e);
    }
    let shape = strategy.requested_to_capacity_ratio.and_then(|r| r.shape).unwrap_or_default();
    if fit.strategy == StrategyKind::RequestedToCapacityRatio {
        fit.shape = function(&shape, e);
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
        let (u, s) = (p.utilization.unwrap_or(0), p.score.unwrap_or(0));
        e.range(&format!("{FIELD}[{i}].utilization"), u, 0, 100);
        e.range(&format!("{FIELD}[{i}].score"), s, 0, 10);
        if out.last().is_some_and(|(before, _)| *before >= u) {
            e.add(
                &format!("{FIELD}[{i}].utilization"),
                format!("Invalid value: {u}: utilization values must be sorted in increasing order"),
            );
        }
        out.push((u, s));
    }
    out
}

fn topology(raw: TopologySpread, args: &mut Args, e: &mut Errors<'_>) {
    let list = raw.default_constraints.unwrap_or_default();
    let by_list = match raw.defaulting_type.as_deref() {
        // Upstream defaults the type to `System`; only `List` can have constraints.
        None | Some("" | "System") => false,
        Some("List") => true,
        Some(other) => {
            e.add(
                "defaultingType",
                format!("Unsupported value: {other:?}: supported values: \"List\", \"System\""),
            );
            return;
        }
    };
    if !by_list {
        if !list.is_empty() {
            e.add(
                "defaultingType",
                "Invalid value: \"System\": when .defaultConstraints are not empty, must be \"List\"",
            );
        }
        return;
    }
    let mut out = Vec::new();
    for (i, c) in list.into_iter().enumerate() {
        let field = format!("defaultConstraints[{i}]");
        if c.label_selector.is_some() {
            e.add(
                &format!("{field}.labelSelector"),
                "Forbidden: constraint must not define a selector, as they deduced for each pod",
            );
        }
        match spread(c) {
            Ok(c) => {
                if c.max_skew <= 0 {
                    e.add(
                        &format!("{field}.maxSkew"),
                        format!("Invalid value: {}: not in valid range (0, inf)", c.max_skew),
                    );
                }
                if c.topology_key.is_empty() {
                    e.add(&format!("{field}.topologyKey"), "Required value: can not be empty");
                }
                let same = |o: &plimsoll_core::model::SpreadConstraint| {
                    o.topology_key == c.topology_key && o.when_unsatisfiable == c.when_unsatisfiable
                };
                if out.iter().any(same) {
                    let action = match c.when_unsatisfiable {
                        UnsatisfiableAction::DoNotSchedule => "DoNotSchedule",
                        UnsatisfiableAction::ScheduleAnyway => "ScheduleAnyway",
                    };
                    e.add(&field, format!("Duplicate value: \"{{{}, {action}}}\"", c.topology_key));
                }
                out.push(c);
            }
            Err(error) => e.add(&field, error),
        }
    }
    args.spread.default_constraints = Some(out);
}

fn preemption(raw: &Preemption, args: &mut Args, e: &mut Errors<'_>) {
    let share = raw.min_candidate_nodes_percentage.unwrap_or(10);
    let absolute = raw.min_candidate_nodes_absolute.unwrap_or(100);
    e.range("minCandidateNodesPercentage", share, 0, 100);
    if absolute < 0 {
        e.add("minCandidateNodesAbsolute", format!("Invalid value: {absolute}: not in valid range [0, inf)"));
    }
    if share == 0 && absolute == 0 {
        e.add(
            "minCandidateNodesPercentage",
            "Invalid value: 0: minCandidateNodesPercentage and minCandidateNodesAbsolute cannot both be zero",
        );
    }
    args.preemption.min_candidate_nodes_percentage = u32::try_from(share).unwrap_or(0);
    args.preemption.min_candidate_nodes_absolute = u32::try_from(absolute).unwrap_or(u32::MAX);
}
