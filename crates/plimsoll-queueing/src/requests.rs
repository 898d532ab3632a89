//! What a workload asks for: pod requests, defaults of the namespace, transformations
//! (Kueue `pkg/workload/resources.go`, KEP-2937).

use std::collections::BTreeMap;

use super::config::Transformation;
use super::model::{LimitRange, LimitRangeItem};
use plimsoll_state::collect::InsertEach as _;
use plimsoll_state::model::requests::{PodResourcesOptions, pod_requests, raise};
use plimsoll_state::model::{Container, PodSpec, Resources};

#[cfg(test)]
mod tests;

fn keep_first(to: &mut Resources, defaults: &Resources) {
    for (name, amount) in defaults {
        to.entry(name.clone()).or_insert(*amount);
    }
}

/// The strictest of several LimitRanges: lowest maxima, highest minima, first defaults.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    pod: Option<LimitRangeItem>,
    container: Option<LimitRangeItem>,
}

impl Limits {
    pub(crate) fn summarize<'a>(ranges: impl Iterator<Item = &'a LimitRange>) -> Self {
        let mut all = Self::default();
        for r in ranges {
            for (slot, item) in [(&mut all.pod, &r.pod), (&mut all.container, &r.container)] {
                let Some(item) = item else { continue };
                let slot = slot.get_or_insert_default();
                for (name, max) in &item.max {
                    let e = slot.max.entry(name.clone()).or_insert(*max);
                    *e = (*e).min(*max);
                }
                raise(&mut slot.min, &item.min);
                keep_first(&mut slot.default, &item.default);
                keep_first(&mut slot.default_request, &item.default_request);
            }
        }
        all
    }

    fn is_empty(&self) -> bool {
        self.pod.is_none() && self.container.is_none()
    }

    /// Texts of all violations by the podset at `path`.
    fn violations(&self, spec: &PodSpec, path: &str, out: &mut Vec<String>) {
        if let Some(item) = &self.container {
            for (field, i, c) in containers(spec) {
                let (mut low, mut high) = (c.requests.clone(), c.requests.clone());
                raise(&mut high, &c.limits);
                for (name, limit) in &c.limits {
                    let e = low.entry(name.clone()).or_insert(*limit);
                    *e = (*e).min(*limit);
                }
                check_range(&low, &high, item, &format!("{path}.{field}[{i}]"), out);
            }
        }
        if let Some(item) = &self.pod {
            let total = pod_requests(spec, &PodResourcesOptions::default());
            check_range(&total, &total, item, path, out);
        }
    }
}

fn check_range(low: &Resources, high: &Resources, item: &LimitRangeItem, path: &str, out: &mut Vec<String>) {
    let above = greater_keys(high, &item.max);
    if !above.is_empty() {
        out.push(invalid(path, &above, "requests must not be above the limitRange max"));
    }
    let below = greater_keys(&item.min, low);
    if !below.is_empty() {
        out.push(invalid(path, &below, "requests must not be below the limitRange min"));
    }
}

/// The limits that the LimitRanges of a namespace set together.
pub(crate) fn limits_of(ranges: &BTreeMap<(String, String), LimitRange>, namespace: &str) -> Limits {
    let from = (namespace.to_owned(), String::new());
    Limits::summarize(ranges.range(from..).map(|(_, r)| r).take_while(|r| r.namespace == namespace))
}

/// All containers with the field they are in and their position there.
fn containers(spec: &PodSpec) -> impl Iterator<Item = (&'static str, usize, &Container)> {
    let init = spec.init_containers.iter().enumerate().map(|(i, c)| ("initContainers", i, c));
    init.chain(spec.containers.iter().enumerate().map(|(i, c)| ("containers", i, c)))
}

/// Names for which both sides say something and the left side says more.
fn greater_keys(a: &Resources, b: &Resources) -> Vec<String> {
    a.iter().filter(|(n, v)| b.get(*n).is_some_and(|w| *v > w)).map(|(n, _)| n.clone()).collect()
}

fn invalid(path: &str, names: &[String], message: &str) -> String {
    let names: Vec<String> = names.iter().map(|n| format!("{n:?}")).collect();
    format!("{path}: Invalid value: [{}]: {message}", names.join(","))
}

/// Several errors as Kubernetes prints an aggregate: alone as it is, else in brackets, repeats left out.
pub(crate) fn aggregate(errors: &[String]) -> String {
    let mut seen: Vec<&str> = Vec::new();
    for e in errors {
        if !seen.contains(&e.as_str()) {
            seen.push(e);
        }
    }
    if seen.len() == 1 { seen[0].to_owned() } else { format!("[{}]", seen.join(", ")) }
}

/// Fills in what the namespace and the runtime class say: overhead, LimitRange defaults, then limits as
/// missing requests.
pub(crate) fn adjust(spec: &mut PodSpec, limits: &Limits, runtime_classes: &BTreeMap<String, Resources>) {
    if !spec.runtime_class_name.is_empty()
        && spec.overhead.is_empty()
        && let Some(overhead) = runtime_classes.get(&spec.runtime_class_name)
    {
        spec.overhead.clone_from(overhead);
    }
    let PodSpec { init_containers, containers, pod_requests, pod_limits, .. } = spec;
    for c in init_containers.iter_mut().chain(containers) {
        if let Some(item) = &limits.container {
            keep_first(&mut c.limits, &item.default);
            keep_first(&mut c.requests, &item.default_request);
        }
        let limits = c.limits.clone();
        keep_first(&mut c.requests, &limits);
    }
    if pod_requests.is_none() && pod_limits.is_none() {
        return;
    }
    let (requests, pod_limits) = (pod_requests.get_or_insert_default(), pod_limits.get_or_insert_default());
    if let Some(item) = &limits.pod {
        keep_first(pod_limits, &item.default);
        keep_first(requests, &item.default_request);
    }
    keep_first(requests, pod_limits);
}

/// Why a workload with these pod specs may not be admitted, if it may not: requests above limits, or a
/// LimitRange broken.
pub(crate) fn validate<'a>(
    specs: impl Iterator<Item = &'a PodSpec> + Clone,
    limits: &Limits,
) -> Option<String> {
    let mut errors = Vec::new();
    for (i, spec) in specs.clone().enumerate() {
        let path = |rest: &str| format!("spec.podSets[{i}].template.spec.{rest}");
        let message = "requests must not exceed its limits";
        for (field, at, c) in containers(spec) {
            let over = greater_keys(&c.requests, &c.limits);
            if !over.is_empty() {
                errors.push(invalid(&path(&format!("{field}[{at}]")), &over, message));
            }
        }
        if let (Some(requests), Some(limits)) = (&spec.pod_requests, &spec.pod_limits) {
            let over = greater_keys(requests, limits);
            if !over.is_empty() {
                errors.push(invalid(&path("resources"), &over, message));
            }
        }
    }
    if !errors.is_empty() {
        return Some(format!("resources validation failed: {}", aggregate(&errors)));
    }
    if limits.is_empty() {
        return None;
    }
    for (i, spec) in specs.enumerate() {
        limits.violations(spec, &format!("spec.podSets[{i}].template.spec"), &mut errors);
    }
    (!errors.is_empty())
        .then(|| format!("resources didn't satisfy LimitRange constraints: {}", aggregate(&errors)))
}

/// What one pod counts as: excluded prefixes dropped, transformations applied, nothing below zero.
pub(crate) fn effective(requests: &Resources, excluded: &[String], rules: &[Transformation]) -> Resources {
    let kept: Resources = requests
        .iter()
        .filter(|(name, _)| !excluded.iter().any(|p| name.starts_with(p.as_str())))
        .map(|(n, v)| (n.clone(), *v))
        .insert_each();
    let mut out = transform(kept, rules);
    out.values_mut().for_each(|v| *v = (*v).max(0));
    out
}

/// One whole unit in the fixed-point numbers of [`transform`].
const ONE: i128 = 1_000_000_000_000_000;

/// Steps per whole unit in which amounts of this resource are kept.
fn steps(resource: &str) -> i128 {
    if resource == "cpu" { 1000 } else { 1 }
}

fn transform(input: Resources, rules: &[Transformation]) -> Resources {
    let rule = |name: &str| rules.iter().find(|r| r.input == name);
    if !input.keys().any(|n| rule(n).is_some()) {
        return input;
    }
    let mut retained = Resources::new();
    let mut generated: BTreeMap<&str, i128> = BTreeMap::new();
    for (name, &amount) in &input {
        let Some(rule) = rule(name) else {
            retained.insert(name.clone(), amount);
            continue;
        };
        let mut value = i128::from(amount).saturating_mul(ONE / 1_000_000_000 / steps(name));
        if let Some((other, times)) = rule.multiply_by.as_ref().and_then(|o| input.get_key_value(o)) {
            value = value.saturating_mul(i128::from(*times)) / steps(other);
        }
        for (output, factor) in &rule.outputs {
            let sum = generated.entry(output).or_insert(0);
            *sum = sum.saturating_add(value.saturating_mul(*factor));
        }
        if !rule.replace {
            retained.insert(name.clone(), amount);
        }
    }
    for (name, sum) in generated {
        let scaled = sum.max(0).saturating_mul(steps(name));
        let up = scaled / ONE + i128::from(scaled % ONE > 0);
        let amount = i64::try_from(up).unwrap_or(i64::MAX);
        let e = retained.entry(name.to_owned()).or_insert(0);
        *e = e.saturating_add(amount);
    }
    retained
}
