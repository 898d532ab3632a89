//! From the requests of a ResourceClaimTemplate to amounts of resources, or to what is wrong with them.

use std::collections::BTreeMap;

use super::mappings::{counters_of, mapped};
use super::matching::Matcher;
use super::problem::{Problem, quoted};
use super::{ClaimCount, ClaimRequest, ClaimTemplate, Devices, Extra};
use crate::config::Config;
use crate::model::Workload;
use plimsoll_state::model::{PodClaimSource, Resources};

type Sum = Result<Resources, Vec<Problem>>;

/// What a template comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resolved {
    /// Numbers of devices, as mapped resources.
    devices: Sum,
    /// What the devices take of counters.
    counters: Sum,
}

impl Devices {
    /// Charges the claims of a workload: their devices, or with `counters` what those take of counters.
    pub(super) fn charge_claims(
        &mut self,
        wl: &Workload,
        config: &Config,
        counters: bool,
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
                let (sum, named) = if counters {
                    (&resolved.counters, String::new())
                } else {
                    (&resolved.devices, format!("ResourceClaimTemplate {name}: "))
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
            ClaimRequest::Exactly { class, selectors, count, admin } => (class, selectors, count, *admin),
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
        if counters_of(config, class).next().is_some() {
            continue;
        }
        let sum = out.entry(resource.to_owned()).or_insert(0);
        *sum = sum.saturating_add(count);
    }
    Ok(out)
}

/// What the devices of a template take of counters: for each request the most that any device takes that may be
/// given, for each device asked for.
fn taken(template: &ClaimTemplate, matcher: &Matcher<'_>, config: &Config) -> Sum {
    let mut out = Resources::new();
    for (i, request) in template.requests.iter().enumerate() {
        let ClaimRequest::Exactly { class, selectors, count, admin: false } = request else { continue };
        let wanted = if let ClaimCount::Exactly(n) = count { *n } else { 0 };
        for (resource, counter) in counters_of(config, class) {
            let amount = matcher
                .most_taken(&request_path(i), class, selectors, counter, wanted)
                .map_err(|problem| vec![problem])?;
            let sum = out.entry(resource.to_owned()).or_insert(0);
            *sum = sum.saturating_add(amount.saturating_mul(wanted.max(1)));
        }
    }
    Ok(out)
}
