//! From the requests of a ResourceClaimTemplate to amounts of resources, or to what is wrong with them.

use std::collections::BTreeMap;

use super::capacity;
use super::mappings::{capacities_of, counters_of, mapped, sources_of};
use super::matching::Matcher;
use super::problem::{Problem, quoted};
use super::{ClaimCount, ClaimRequest, ClaimTemplate, Devices, Extra};
use crate::config::{Config, DeviceSource};
use crate::model::Workload;
use plimsoll_state::model::{Device, PodClaimSource, Resources};

type Sum = Result<Resources, Vec<Problem>>;

/// What a template comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resolved {
    /// Numbers of devices, as mapped resources.
    devices: Sum,
    /// What the devices take of counters.
    counters: Sum,
    /// What the requests get of capacities.
    capacities: Sum,
}

/// By what a template is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// The number of devices.
    Devices,
    /// What the devices take of counters (gate `KueueDRAIntegrationPartitionableDevices`).
    Counters,
    /// Shares of the devices' capacities (gate `KueueDRAIntegrationConsumableCapacity`).
    Capacities,
}

impl Devices {
    /// Charges the claims of a workload.
    pub(super) fn charge_claims(
        &mut self,
        wl: &Workload,
        config: &Config,
        counted: Counted,
        extras: &mut [Extra],
    ) -> Result<(), Vec<String>> {
        for (i, (podset, extra)) in wl.pod_sets.iter().zip(extras).enumerate() {
            for (j, claim) in podset.spec.resource_claims.iter().enumerate() {
                let PodClaimSource::Template(name) = &claim.source else { continue };
                let path = format!("spec.podSets[{i}].template.spec.resourceClaims[{j}]");
                let key = (wl.key.namespace.clone(), name.clone());
                let Some(resolved) = self.resolve(&key, config) else {
                    return Err(vec![format!(
                        "{path}: Internal error: failed to get claim spec for ResourceClaimTemplate {name} in podset {}: ResourceClaimTemplate.resource.k8s.io {name:?} not found",
                        podset.name
                    )]);
                };
                let (sum, named) = match counted {
                    Counted::Devices => (&resolved.devices, format!("ResourceClaimTemplate {name}: ")),
                    Counted::Counters => (&resolved.counters, String::new()),
                    Counted::Capacities => (&resolved.capacities, String::new()),
                };
                match sum {
                    Ok(amounts) => {
                        for (resource, amount) in amounts {
                            let e = extra.add.entry(resource.clone()).or_insert(0);
                            *e = e.saturating_add(*amount);
                        }
                    }
                    Err(problems) => {
                        return Err(problems.iter().map(|p| p.text(&path, &podset.name, &named)).collect());
                    }
                }
            }
        }
        Ok(())
    }

    /// What a template comes to; `None`: there is none.
    fn resolve(&mut self, key: &(String, String), config: &Config) -> Option<&Resolved> {
        if !self.resolved.contains_key(key) {
            let template = self.templates.get(key)?;
            let matcher = Matcher::new(&self.classes, &self.slices, config);
            let resolved = Resolved {
                devices: devices(template, &matcher, config),
                counters: taken(template, &matcher, config),
                capacities: shares(template, &matcher, config),
            };
            self.resolved.insert(key.clone(), resolved);
        }
        self.resolved.get(key)
    }
}

fn request_path(i: usize) -> String {
    format!("devices.requests[{i}]")
}

/// Devices per class, and what is not supported.
fn per_class<'a>(
    template: &'a ClaimTemplate,
    matcher: &Matcher<'_>,
) -> Result<BTreeMap<&'a str, i64>, Problem> {
    let mut out: BTreeMap<&str, i64> = BTreeMap::new();
    let null = || "\"null\"".to_owned();
    for (i, request) in template.requests.iter().enumerate() {
        let path = request_path(i);
        let (class, selectors, count, admin) = match request {
            ClaimRequest::FirstAvailable => {
                let text = "FirstAvailable device selection is not supported";
                return Err(Problem::Invalid(path, null(), text.into()));
            }
            ClaimRequest::Empty => {
                let text = "Exactly must be set if FirstAvailable is nil";
                return Err(Problem::Invalid(path, null(), text.into()));
            }
            ClaimRequest::Exactly { class, selectors, count, admin, .. } => (class, selectors, count, *admin),
        };
        if let Some(text) =
            matcher.compile(selectors, &format!("{path}.exactly.selectors"), "CEL compilation failed")
        {
            return Err(Problem::Invalid(format!("{path}.exactly.selectors"), null(), text));
        }
        if admin {
            continue;
        }
        let mode = format!("{path}.exactly.allocationMode");
        let count = match count {
            ClaimCount::Exactly(count) => *count,
            ClaimCount::All => {
                let text = "AllocationMode 'All' is not supported";
                return Err(Problem::Invalid(mode, quoted("All"), text.into()));
            }
            ClaimCount::Other(other) => {
                let text = format!("unsupported allocation mode: {other}");
                return Err(Problem::Invalid(mode, quoted(other), text));
            }
        };
        if !class.is_empty() {
            let sum = out.entry(class).or_insert(0);
            *sum = sum.saturating_add(count.max(0));
        }
    }
    Ok(out)
}

/// Numbers of devices as mapped resources. Requests with selectors are refused when the cluster has too few devices.
fn devices(template: &ClaimTemplate, matcher: &Matcher<'_>, config: &Config) -> Sum {
    let classes = per_class(template, matcher).map_err(|p| vec![p])?;
    let problems = matcher.enough(template);
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut out = Resources::new();
    for (class, count) in classes {
        let Some(resource) = mapped(config, class) else {
            return Err(vec![Problem::Unmapped(class.to_owned())]);
        };
        if sources_of(config, class).next().is_some() {
            continue;
        }
        let sum = out.entry(resource.to_owned()).or_insert(0);
        *sum = sum.saturating_add(count);
    }
    Ok(out)
}

fn enough(devices: &[&Device], wanted: i64, kind: &str, path: &str) -> Result<(), Problem> {
    let matching = i64::try_from(devices.len()).unwrap_or(i64::MAX);
    if matching >= wanted {
        return Ok(());
    }
    let text = format!(
        "insufficient matching devices for {kind} driver: {matching} device(s) match but {wanted} requested"
    );
    Err(Problem::Missing(path.to_owned(), text))
}

/// The most that one of these devices takes of a counter; whole units, rounded up.
fn most_taken(devices: &[&Device], counter: &DeviceSource, path: &str) -> Result<i64, Problem> {
    let sets = devices.iter().flat_map(|d| &d.consumes);
    let Some(nanos) = sets.filter_map(|(_, c)| c.get(&counter.name)).max() else {
        let name = quoted(&counter.name);
        let text = format!("matched devices have no consumesCounters entry for counter {name}");
        return Err(Problem::Missing(path.to_owned(), text));
    };
    Ok(capacity::units((*nanos).max(0)))
}

/// What the devices of a template take of counters: for each request the most that any device takes that may be
/// given, for each device asked for.
fn taken(template: &ClaimTemplate, matcher: &Matcher<'_>, config: &Config) -> Sum {
    let mut out = Resources::new();
    for (i, request) in template.requests.iter().enumerate() {
        let ClaimRequest::Exactly { class, selectors, count, admin: false, .. } = request else { continue };
        let wanted = if let ClaimCount::Exactly(n) = count { *n } else { 0 };
        for (resource, counter) in counters_of(config, class) {
            let path = request_path(i);
            let amount = matcher
                .fitting(&path, class, selectors, counter)
                .and_then(|devices| {
                    enough(&devices, wanted, "counter", &path)?;
                    most_taken(&devices, counter, &path)
                })
                .map_err(|problem| vec![problem])?;
            let sum = out.entry(resource.to_owned()).or_insert(0);
            *sum = sum.saturating_add(amount.saturating_mul(wanted.max(1)));
        }
    }
    Ok(out)
}

/// What the requests of a template get of capacities: for each request the greatest share that a device gives which may be
/// given, for each device asked for (Kueue `DetermineCapacityResourcesForWorkload`).
fn shares(template: &ClaimTemplate, matcher: &Matcher<'_>, config: &Config) -> Sum {
    let mut out = Resources::new();
    for (i, request) in template.requests.iter().enumerate() {
        let ClaimRequest::Exactly { class, selectors, count, capacity, admin: false } = request else {
            continue;
        };
        let path = request_path(i);
        let wanted = if let ClaimCount::Exactly(n) = count { *n } else { 0 };
        for (resource, source) in capacities_of(config, class) {
            let fitting = matcher.fitting(&path, class, selectors, source);
            let amount = fitting
                .and_then(|devices| {
                    enough(&devices, wanted, "capacity", &path)?;
                    capacity::greatest_share(&devices, source, capacity.get(&source.name).copied(), &path)
                })
                .map_err(|problem| vec![problem])?;
            let sum = out.entry(resource.to_owned()).or_insert(0);
            *sum = sum.saturating_add(amount.saturating_mul(wanted.max(1)));
        }
    }
    Ok(out)
}
