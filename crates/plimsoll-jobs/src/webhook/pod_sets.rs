//! Rules for the topology annotations of all templates of a job (Kueue `tas_validation.go`).

use plimsoll_api::json;
use serde_json::Value;

use super::topology::{self, GROUP, PREFERRED, REQUIRED, SLICE_LAYERS, SLICE_SIZE};
use super::validation::ErrorList;
use crate::podset;

/// A podset of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodSetAt<'a> {
    /// Field path of the metadata of its template.
    pub metadata: &'a str,
    /// Number of pods.
    pub count: i64,
    /// The template.
    pub template: &'a Value,
}

impl PodSetAt<'_> {
    fn annotations(&self) -> String {
        format!("{}.annotations", self.metadata)
    }
}

/// Topology annotations of templates; `groups`: two podsets may be a group that is placed together.
pub(crate) fn topology(pod_sets: &[PodSetAt<'_>], groups: bool, errors: &mut ErrorList) {
    for at in pod_sets {
        topology::topology(at.template, at.metadata, errors);
        // Others are no size at all, which is said already.
        let size = json::annotation(at.template, SLICE_SIZE);
        if let Some(size) = size.filter(|s| s.parse::<i32>().is_ok_and(|n| i64::from(n) > at.count)) {
            let detail = format!("must not be greater than pod set count {}", at.count);
            errors.invalid(&format!("{}[{SLICE_SIZE}]", at.annotations()), size, &detail);
        }
        let layers = json::annotation(at.template, SLICE_LAYERS);
        let layers = layers.and_then(|text| podset::slice_layers(text).ok()).unwrap_or_default();
        let largest = layers.first().map(|layer| layer.size);
        if let Some(size) = largest.filter(|size| i64::from(*size) > at.count) {
            let detail = format!("must not be greater than pod set count {}", at.count);
            errors.invalid(&format!("{}[{SLICE_LAYERS}]", at.annotations()), size, &detail);
        }
    }
    // In the order of their first podsets.
    let mut by_name: Vec<(&str, Vec<&PodSetAt<'_>>)> = Vec::new();
    for at in pod_sets.iter().filter(|_| groups) {
        let placed = [REQUIRED, PREFERRED].iter().any(|mode| json::annotation(at.template, mode).is_some());
        let Some(name) = json::annotation(at.template, GROUP).filter(|_| placed) else { continue };
        match by_name.iter_mut().find(|(known, _)| *known == name) {
            Some((_, members)) => members.push(at),
            None => by_name.push((name, vec![at])),
        }
    }
    for (name, members) in by_name {
        group(name, &members, errors);
    }
}

/// A group has two podsets, one of them of a single pod, at the same level (Kueue `ValidatePodSetGroupingTopology`).
fn group(name: &str, members: &[&PodSetAt<'_>], errors: &mut ErrorList) {
    let path = |at: &PodSetAt<'_>| format!("{}[{GROUP}]", at.annotations());
    let [first, second] = members else {
        let count = members.len();
        let detail = format!("can only define groups of exactly 2 pod sets, got: {count} pod set(s)");
        members.iter().for_each(|at| errors.invalid(&path(at), name, &detail));
        return;
    };
    if first.count != 1 && second.count != 1 {
        let detail = format!(
            "can only define groups where at least one pod set has only 1 replica, got: {} replica(s) and {} replica(s) \
             in the group",
            first.count, second.count
        );
        errors.invalid(&path(first), name, &detail);
        errors.invalid(&path(second), name, &detail);
    }
    let same = |mode: &str| json::annotation(first.template, mode) == json::annotation(second.template, mode);
    if !same(REQUIRED) || !same(PREFERRED) {
        for (at, other) in [(first, second), (second, first)] {
            let detail = format!(
                "must specify '{REQUIRED}' or '{PREFERRED}' topology consistent with '{}' in group '{name}'",
                other.annotations()
            );
            errors.invalid_whole(&at.annotations(), &detail);
        }
    }
}
