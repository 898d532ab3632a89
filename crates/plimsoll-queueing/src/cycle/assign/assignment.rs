//! Flavors given to podsets, and how far the search for them got.

use super::{FlavorAttempt, Mode};
use crate::amount::Amount;
use crate::ids::{FlavorId, FlavorResource, Ids, ResourceId, SchedulingHashId};
use crate::model::{Delayed, TopologyAssignment};
use crate::pod_sets::PodSetResources;

/// A flavor given to a resource of a podset.
#[derive(Clone, Debug)]
pub(crate) struct FlavorAssignment {
    pub(crate) res: ResourceId,
    pub(crate) flavor: FlavorId,
    pub(crate) mode: Mode,
    /// Index of the flavor at which the search stopped; -1 when it saw all.
    pub(crate) tried_flavor_idx: i32,
    pub(crate) borrow: u32,
}

/// What one podset gets.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodSetFlavors {
    /// Index in the spec.
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) flavors: Vec<FlavorAssignment>,
    pub(crate) reasons: Vec<String>,
    pub(crate) error: Option<String>,
    pub(crate) requests: Vec<(ResourceId, i64)>,
    pub(crate) count: i32,
    pub(crate) attempts: Vec<FlavorAttempt>,
    pub(crate) topology: Option<TopologyAssignment>,
    pub(crate) delayed: Option<Delayed>,
}

impl PodSetFlavors {
    pub(super) fn mode(&self) -> Mode {
        if self.error.is_none() && self.reasons.is_empty() {
            return Mode::Fit;
        }
        if self.error.is_some() {
            return Mode::NoFit;
        }
        self.flavors.iter().map(|p| p.mode).min().unwrap_or(Mode::NoFit)
    }

    /// The flavor of a resource.
    pub(crate) fn flavor_of(&self, res: ResourceId) -> Option<FlavorId> {
        self.flavors.iter().find(|p| p.res == res).map(|p| p.flavor)
    }
}

/// How far the search among flavors got, to go on there next time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastAssignment {
    /// Per podset in order of assignment: the last flavor tried for each resource, -1 when all were.
    pub(crate) last_tried_flavor_idx: Vec<Vec<(ResourceId, i32)>>,
    pub(super) generation: i64,
    pub(super) inadmissible_requeues: i64,
    pub(super) cycle: i64,
    pub(super) scheduling_hash: SchedulingHashId,
}

impl LastAssignment {
    /// Whether flavors are left that were not tried.
    pub(crate) fn has_more(&self) -> bool {
        self.last_tried_flavor_idx.iter().flatten().any(|(_, i)| *i != -1)
    }

    pub(super) fn next(&self, pod_set: usize, res: ResourceId) -> usize {
        let tried = self.last_tried_flavor_idx.get(pod_set).and_then(|t| t.iter().find(|(r, _)| *r == res));
        tried.map_or(0, |(_, i)| usize::try_from(i + 1).unwrap_or(0))
    }
}

/// Flavors a second computation in the same cycle has to keep: per podset of the spec.
pub(crate) type Pins = Vec<Vec<(ResourceId, FlavorId)>>;

/// Flavors for a whole workload.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    pub(crate) pod_sets: Vec<PodSetFlavors>,
    /// Borrow level: 0 means within the ClusterQueue's own quota.
    pub(crate) borrowing: u32,
    pub(crate) usage: Vec<(FlavorResource, Amount)>,
    pub(crate) last_assignment: LastAssignment,
    pub(crate) no_fit_reason: &'static str,
    /// What the slice holds whose place the workload takes; `usage` is the difference then.
    pub(crate) replaced: Option<Vec<PodSetResources>>,
    pub(super) mode: Option<Mode>,
    /// Number of the assignment whose dry runs are its own (joint admission).
    pub(in crate::cycle) dry_runs: u64,
    /// Whether preemption would give quota to all podsets, and leave not all their pods a node (joint admission).
    pub(in crate::cycle) lacks_nodes_after_preemption: bool,
    /// Whether quota is enough, and a topology has places only once other workloads have left (joint admission).
    pub(in crate::cycle) lacks_places: bool,
    /// Whether the labels of the pods keep them off nodes: workloads of the same scheduling hash may fit.
    pub(in crate::cycle) by_labels: bool,
}

impl Assignment {
    /// The worst mode among the podsets.
    pub(crate) fn mode(&self) -> Mode {
        if self.pod_sets.is_empty() {
            return Mode::NoFit;
        }
        self.mode
            .unwrap_or_else(|| self.pod_sets.iter().map(PodSetFlavors::mode).min().unwrap_or(Mode::NoFit))
    }

    /// Whether a flavor had quota, now or after preemption, and its nodes no capacity.
    pub(crate) fn lacks_nodes(&self) -> bool {
        self.lacks_nodes_after_preemption
            || self.lacks_places
            || self.pod_sets.iter().flat_map(|p| &p.attempts).any(|a| a.lacks_nodes)
    }

    /// Overrides the mode of the whole assignment and of every pick.
    pub(crate) fn set_mode(&mut self, mode: Mode) {
        self.mode = Some(mode);
        self.pod_sets.iter_mut().flat_map(|p| &mut p.flavors).for_each(|p| p.mode = mode);
    }

    /// Overrides the mode after a verdict on one podset.
    pub(crate) fn set_pod_set_mode(&mut self, index: usize, mode: Mode) {
        if let Some(ps) = self.pod_sets.iter_mut().find(|p| p.index == index) {
            ps.flavors.iter_mut().for_each(|p| p.mode = mode);
            self.mode = Some(mode);
        }
    }

    /// Notes why a podset doesn't simply fit.
    pub(crate) fn add_reason(&mut self, index: usize, text: String) {
        if let Some(ps) = self.pod_sets.iter_mut().find(|p| p.index == index) {
            ps.reasons.push(text);
        }
    }

    /// Marks a podset as failed.
    pub(crate) fn fail(&mut self, index: usize, text: String) {
        if let Some(ps) = self.pod_sets.iter_mut().find(|p| p.index == index) {
            ps.error = Some(text);
            self.mode = None;
        }
    }

    /// Leaves the placement of a podset for later.
    pub(crate) fn delay(&mut self, index: usize) {
        if let Some(ps) = self.pod_sets.iter_mut().find(|p| p.index == index) {
            ps.delayed = Some(Delayed::Pending);
        }
    }

    /// Why it doesn't simply fit.
    pub(crate) fn message(&self) -> String {
        let mut parts = Vec::new();
        for ps in self.pod_sets.iter().filter(|p| p.error.is_some() || !p.reasons.is_empty()) {
            if let Some(e) = &ps.error {
                return format!("failed to assign flavors to pod set {}: {e}", ps.name);
            }
            let mut reasons = ps.reasons.clone();
            reasons.sort_unstable();
            parts.push(format!("couldn't assign flavors to pod set {}: {}", ps.name, reasons.join(", ")));
        }
        if self.lacks_nodes_after_preemption {
            parts.push("couldn't place all pods after preemption".to_owned());
        }
        parts.join("; ")
    }

    /// Columns for which others would have to give way.
    pub(crate) fn columns_to_preempt(&self, ids: &Ids) -> Vec<FlavorResource> {
        let mut frs: Vec<FlavorResource> = self
            .pod_sets
            .iter()
            .flat_map(|p| &p.flavors)
            .filter(|p| p.mode == Mode::Preempt)
            .filter_map(|p| ids.find_pair(p.flavor, p.res))
            .collect();
        frs.sort_unstable();
        frs.dedup();
        frs
    }

    /// The flavors found, to be kept by a second computation.
    pub(crate) fn pins(&self, pod_sets: usize) -> Pins {
        let mut pins = vec![Vec::new(); pod_sets];
        for ps in &self.pod_sets {
            if let Some(p) = pins.get_mut(ps.index) {
                p.extend(ps.flavors.iter().map(|p| (p.res, p.flavor)));
            }
        }
        pins
    }

    /// The text `Flavors considered` of the event QuotaReserved, empty if there is nothing to say.
    pub(crate) fn considered(&self, ids: &Ids) -> String {
        let mut parts = Vec::new();
        for ps in &self.pod_sets {
            let tried: Vec<String> = ps
                .attempts
                .iter()
                .filter(|t| !(t.mode == Mode::Fit && t.borrow == 0))
                .map(|t| {
                    let mut text = match t.possibility {
                        Some(p) => format!("preemptionMode={}", p.as_str()),
                        None => format!("{:?}", t.mode),
                    };
                    if t.borrow > 0 {
                        text.push_str(&format!(";borrow={}", t.borrow));
                    }
                    if !t.reasons.is_empty() {
                        text.push_str(&format!(";{}", t.reasons.join(";")));
                    }
                    format!("{}({text})", ids.flavor_name(t.flavor))
                })
                .collect();
            if !tried.is_empty() {
                parts.push(format!("{}: {}", ps.name, tried.join(", ")));
            }
        }
        parts.join(" | ")
    }
}
