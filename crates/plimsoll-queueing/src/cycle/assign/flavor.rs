//! The search among the flavors of one resource group.

use super::{FlavorAssignment, FlavorAttempt, LastAssignment, Member, Mode, Pins, Possibility, why};
use crate::amount::Amount;
use crate::cycle::Cycle;
use crate::format;
use crate::ids::{ClusterQueueId, FlavorId, FlavorResource, ResourceId, WorkloadId};
use crate::model::{FlavorFungibility, FlavorPreference, PreemptionPolicy};
use crate::pod_sets::PodSetResources;
use crate::policy::flavor_order;
use crate::rules::Group;
use plimsoll_state::model::{NodeSelectorTerm, PodSpec, Requirement, StringMap, Taint, TaintEffect};
use plimsoll_state::reservation::DryRunId;

/// How a resource of a flavor could be had, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PreemptionMode {
    NoFit,
    NoCandidates,
    Preempt,
    Reclaim,
    Fit,
}

impl PreemptionMode {
    fn mode(self) -> Mode {
        match self {
            Self::NoFit => Mode::NoFit,
            Self::NoCandidates | Self::Preempt | Self::Reclaim => Mode::Preempt,
            Self::Fit => Mode::Fit,
        }
    }

    fn possibility(self) -> Option<Possibility> {
        match self {
            Self::NoCandidates => Some(Possibility::NoCandidates),
            Self::Preempt => Some(Possibility::Preempt),
            Self::Reclaim => Some(Possibility::Reclaim),
            Self::NoFit | Self::Fit => None,
        }
    }
}

/// A way and how far one has to go for the quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GranularMode {
    way: PreemptionMode,
    borrow: u32,
}

impl GranularMode {
    const WORST: Self = Self { way: PreemptionMode::NoFit, borrow: u32::MAX };
    const BEST: Self = Self { way: PreemptionMode::Fit, borrow: 0 };

    /// Whether this is strictly better. The meaning of the preference is that of Kueue's code, which is
    /// the reverse of its API comment.
    fn better_than(self, other: Self, preference: FlavorPreference) -> bool {
        if self.way == PreemptionMode::NoFit {
            return false;
        }
        if other.way == PreemptionMode::NoFit {
            return true;
        }
        let blocked = |g: Self| g.way == PreemptionMode::NoCandidates;
        if blocked(self) != blocked(other) {
            return !blocked(self);
        }
        match preference {
            FlavorPreference::BorrowingOverPreemption => {
                (self.way, std::cmp::Reverse(self.borrow)) > (other.way, std::cmp::Reverse(other.borrow))
            }
            FlavorPreference::PreemptionOverBorrowing => {
                (std::cmp::Reverse(self.borrow), self.way) > (std::cmp::Reverse(other.borrow), other.way)
            }
        }
    }

    fn try_next(self, rules: FlavorFungibility) -> bool {
        match self.way {
            PreemptionMode::NoFit | PreemptionMode::NoCandidates => true,
            PreemptionMode::Preempt | PreemptionMode::Reclaim if rules.try_next_when_can_preempt => true,
            PreemptionMode::Preempt | PreemptionMode::Reclaim | PreemptionMode::Fit => {
                self.borrow > 0 && rules.try_next_when_can_borrow
            }
        }
    }
}

/// What a search is for.
pub(in crate::cycle) struct Search<'a> {
    pub(in crate::cycle) id: WorkloadId,
    pub(in crate::cycle) cq: ClusterQueueId,
    /// Podsets, by index in the spec.
    pub(super) members: &'a [usize],
    /// The same.
    pub(in crate::cycle) group: &'a [Member],
    /// What was found for other resources of them.
    pub(in crate::cycle) found: &'a [FlavorAssignment],
    /// What they ask for together.
    pub(in crate::cycle) requests: &'a [(ResourceId, i64)],
    pub(super) pins: Option<&'a Pins>,
    pub(super) last: Option<&'a LastAssignment>,
    /// What the slice holds whose place the workload takes, per podset of the spec.
    pub(in crate::cycle) replaced: Option<&'a [PodSetResources]>,
}

impl Search<'_> {
    /// Of the flavors found and those tried, the ones for what a podset asks for.
    pub(in crate::cycle) fn flavors_of<'f>(
        &'f self,
        m: &'f Member,
        tried: &'f [FlavorAssignment],
    ) -> impl Iterator<Item = &'f FlavorAssignment> {
        let asks = |f: &&FlavorAssignment| m.total.requests.iter().any(|(r, _)| *r == f.res);
        self.found.iter().chain(tried).filter(asks)
    }
}

/// What a search found.
#[derive(Default)]
pub(super) struct Found {
    pub(super) flavors: Vec<FlavorAssignment>,
    pub(super) reasons: Vec<String>,
    pub(super) attempts: Vec<FlavorAttempt>,
}

impl Found {
    /// A flavor can't be used for a reason that no quota would change.
    fn no_fit(&mut self, flavor: FlavorId, text: String, no_fit_reason: &'static str) {
        self.reasons.push(text.clone());
        self.attempts.push(FlavorAttempt {
            flavor,
            mode: Mode::NoFit,
            borrow: 0,
            possibility: None,
            reasons: vec![text],
            no_fit_reason,
            lacks_nodes: false,
        });
    }

    /// The flavor tried last has quota, but its nodes have no capacity for the pods, unless others are preempted.
    fn no_nodes(&mut self, text: String, way: PreemptionMode) {
        self.reasons.push(text.clone());
        if let Some(last) = self.attempts.last_mut() {
            last.mode = way.mode();
            last.reasons.push(text);
            last.lacks_nodes = true;
            if way == PreemptionMode::NoFit {
                last.no_fit_reason = why::NODES;
            } else {
                last.possibility = way.possibility();
            }
        }
    }
}

impl Cycle<'_> {
    /// Searches the group of `res` for a flavor that gives all its resources. `assumed` is what podsets
    /// before this one took.
    pub(super) fn find_flavor(
        &mut self,
        s: &Search<'_>,
        res: ResourceId,
        assumed: &[(FlavorResource, Amount)],
    ) -> Found {
        let rules = std::sync::Arc::clone(&self.state.cq(s.cq).rules);
        let mut found = Found::default();
        let Some(group) = rules.group_of(res).map(|g| &rules.groups[g]) else {
            let name = self.state.ids.resource_name(res);
            found.reasons.push(format!("resource {name} unavailable in ClusterQueue"));
            return found;
        };
        let start = match s.last {
            Some(last) if self.state.config.gates.flavor_fungibility => last.next(s.members[0], res),
            _ => 0,
        };
        let (mut best, mut attempted) = (GranularMode::WORST, None);
        let (before, mut runs) = (self.lift_group(), Vec::new());
        let scores = self.state.wl(s.id).map_or(&[][..], |w| w.flavor_scores());
        let scored = flavor_order(&group.flavors, scores);
        let flavors = scored.as_deref().unwrap_or(&group.flavors);
        for (i, &flavor) in flavors.iter().enumerate().skip(start) {
            attempted = Some(i);
            if let Some(text) = self.unpinned(s, flavor, res) {
                found.reasons.push(text);
                continue;
            }
            if let Some(text) = self.state.disallowed_flavor_text(s.id, flavor) {
                found.reasons.push(text);
                continue;
            }
            if let Some(text) = self.flavor_mismatch(s, flavor, group) {
                found.no_fit(flavor, text, why::NO_FLAVOR);
                continue;
            }
            if let Some(text) = self.state.shut_flavor_text(flavor) {
                found.no_fit(flavor, text, why::WINDOW);
                continue;
            }
            let (mut grade, mut flavors) = self.try_flavor(s, flavor, group, assumed, &mut found);
            if let Some(text) = self.lacks_nodes((s, assumed), &mut grade, &mut flavors, &mut runs) {
                let name = self.state.ids.flavor_name(flavor);
                found.no_nodes(format!("couldn't place all pods in flavor {name}{text}"), grade.way);
            }
            if !self.state.config.gates.flavor_fungibility {
                if grade.way > best.way {
                    (best, found.flavors) = (grade, flavors);
                    if best.way == PreemptionMode::Fit {
                        break;
                    }
                }
                continue;
            }
            if !grade.try_next(rules.fungibility) {
                (best, found.flavors) = (grade, flavors);
                break;
            }
            if grade.better_than(best, rules.fungibility.preference) {
                (best, found.flavors) = (grade, flavors);
            }
        }
        let seen_all = attempted.map_or(0, |i| i + 1) == group.flavors.len();
        let tried = attempted.filter(|_| !seen_all).and_then(|i| i32::try_from(i).ok()).unwrap_or(-1);
        found.flavors.iter_mut().for_each(|p| p.tried_flavor_idx = tried);
        let mut chosen = None;
        if best.way == PreemptionMode::Fit {
            found.reasons.clear();
            chosen = found.flavors.first().map(|f| f.flavor);
        }
        self.choose_dry_run(before, runs, chosen);
        found
    }

    /// Grades a flavor that has quota, now or after preemption, by its nodes: where those have no capacity for all pods, it
    /// counts as one for which others have to be preempted, or as one without quota. Says what is missing.
    fn lacks_nodes(
        &mut self,
        (s, assumed): (&Search<'_>, &[(FlavorResource, Amount)]),
        grade: &mut GranularMode,
        flavors: &mut Vec<FlavorAssignment>,
        runs: &mut Vec<(FlavorId, DryRunId)>,
    ) -> Option<String> {
        let text = match grade.way {
            PreemptionMode::Fit => match self.dry_run(s, flavors) {
                Ok(run) => {
                    let flavor = flavors.first().map(|f| f.flavor);
                    runs.extend(run.and_then(|run| Some((flavor?, run))));
                    return None;
                }
                Err(text) => format!(": {text}"),
            },
            PreemptionMode::Preempt | PreemptionMode::Reclaim if self.nodes_decide(s, flavors) => {
                " after preemption".to_owned()
            }
            PreemptionMode::Preempt
            | PreemptionMode::Reclaim
            | PreemptionMode::NoFit
            | PreemptionMode::NoCandidates => return None,
        };
        let had_quota = grade.way == PreemptionMode::Fit;
        self.forget_lack_of_nodes();
        match self.preempt_for_nodes(s, flavors, assumed, had_quota) {
            Some(possibility) => {
                if !had_quota {
                    return None;
                }
                grade.way = match possibility {
                    Possibility::Reclaim => PreemptionMode::Reclaim,
                    Possibility::Preempt | Possibility::NoCandidates => PreemptionMode::Preempt,
                };
                flavors.iter_mut().for_each(|f| f.mode = Mode::Preempt);
            }
            // Preemption gives no quota, or is of no use for another reason than nodes: that is Kueue's to say.
            None if !had_quota && !self.lacked_nodes() => return None,
            None => {
                grade.way = PreemptionMode::NoFit;
                flavors.clear();
            }
        }
        Some(text)
    }

    /// Tries one flavor for all resources of the group that are asked for.
    fn try_flavor(
        &mut self,
        s: &Search<'_>,
        flavor: FlavorId,
        group: &Group,
        assumed: &[(FlavorResource, Amount)],
        found: &mut Found,
    ) -> (GranularMode, Vec<FlavorAssignment>) {
        let rules = std::sync::Arc::clone(&self.state.cq(s.cq).rules);
        let (mut worst, mut most, mut flavors) = (GranularMode::BEST, 0, Vec::new());
        let (mut reasons, mut no_fit) = (Vec::new(), "");
        for &(res, amount) in s.requests.iter().filter(|(r, _)| group.covered.contains(r)) {
            let fr = self.state.ids.column(flavor, res);
            let before = assumed.iter().find(|(f, _)| *f == fr).map_or(Amount::ZERO, |(_, a)| *a);
            let (amount, other) = self.beyond_replaced(s, flavor, res, amount);
            if let Some(text) = other {
                reasons.push(text);
                no_fit = why::worse(no_fit, why::NO_FLAVOR);
                worst = GranularMode::WORST;
            }
            let (grade, text, reason) = self.try_column(s, fr, before, amount);
            if let Some(text) = text {
                reasons.push(text);
                no_fit = why::worse(no_fit, reason);
            }
            most = most.max(grade.borrow);
            if worst.better_than(grade, rules.fungibility.preference) {
                worst = grade;
            }
            if worst.way != PreemptionMode::NoFit {
                flavors.push(FlavorAssignment {
                    res,
                    flavor,
                    mode: grade.way.mode(),
                    tried_flavor_idx: 0,
                    borrow: grade.borrow,
                });
            }
        }
        found.reasons.extend(reasons.iter().cloned());
        found.attempts.push(FlavorAttempt {
            flavor,
            mode: worst.way.mode(),
            borrow: most,
            possibility: worst.way.possibility(),
            reasons,
            no_fit_reason: no_fit,
            lacks_nodes: false,
        });
        (worst, flavors)
    }

    /// Request minus the usage of the slice that it replaces, and why the flavor may not be taken, if that
    /// slice has another one.
    fn beyond_replaced(
        &self,
        s: &Search<'_>,
        flavor: FlavorId,
        res: ResourceId,
        amount: i64,
    ) -> (i64, Option<String>) {
        let Some(replaced) = s.replaced else { return (amount, None) };
        let mut left = amount;
        for total in s.members.iter().filter_map(|&m| replaced.get(m)) {
            let original = total.flavors.iter().find(|(r, _)| *r == res).map(|(_, f)| *f);
            if original != Some(flavor) {
                let text = format!(
                    "could not assign {} flavor since the original workload is assigned: {}",
                    self.state.ids.flavor_name(flavor),
                    original.map_or("", |f| self.state.ids.flavor_name(f))
                );
                return (left, Some(text));
            }
            left = left.saturating_sub(total.request(res));
        }
        (left, None)
    }

    /// How an amount of one column could be had; with text and reason when it doesn't simply fit.
    fn try_column(
        &mut self,
        s: &Search<'_>,
        fr: FlavorResource,
        assumed: Amount,
        request: i64,
    ) -> (GranularMode, Option<String>, &'static str) {
        let Some(node) = self.state.cq(s.cq).node else { return (GranularMode::WORST, None, why::QUOTA) };
        let (flavor, res) = self.state.ids.parts(fr);
        let (flavor, res) = (self.state.ids.flavor_name(flavor), self.state.ids.resource_name(res));
        let (available, most) = (self.state.tree.available(node, fr), self.state.tree.potential(node, fr));
        let wanted = assumed.add(Amount(request));
        let bytes = self.state.config.counts_bytes(res);
        if wanted > most {
            let text = format!(
                "insufficient quota for {res} in flavor {flavor}, previously considered podsets requests \
                 ({}) + current podset request ({}) > maximum capacity ({})",
                format::amount(res, assumed, bytes),
                format::quantity(res, request, bytes),
                format::amount(res, most, bytes),
            );
            return (GranularMode { way: PreemptionMode::NoFit, borrow: 0 }, Some(text), why::TOO_MUCH);
        }
        let (borrow, part_of_tree) = self.state.tree.borrow_level(node, fr, wanted);
        if wanted <= available {
            return (GranularMode { way: PreemptionMode::Fit, borrow }, None, "");
        }
        let more = format::amount(res, wanted.sub(available), bytes);
        let text = format!("insufficient unused quota for {res} in flavor {flavor}, {more} more needed");
        let config = self.state.cq(s.cq).rules.preemption_config.is_some();
        let rules = &self.state.cq(s.cq).rules.preemption;
        // Rules of a PreemptionConfig select candidates whatever is borrowed (Kueue `usesConfigurablePreemption`).
        let while_borrowing = config
            || rules.borrow_within_cohort.lower_priority
            || (self.state.config.fair_sharing.is_some()
                && rules.reclaim_within_cohort != PreemptionPolicy::Never);
        if self.state.tree.quota(node, fr).nominal >= wanted || part_of_tree || while_borrowing {
            let (possibility, borrow) = self.simulate_preemption(s.id, s.cq, fr, wanted);
            let way = match possibility {
                Possibility::NoCandidates => PreemptionMode::NoCandidates,
                Possibility::Preempt => PreemptionMode::Preempt,
                Possibility::Reclaim => PreemptionMode::Reclaim,
            };
            return (GranularMode { way, borrow }, Some(text), "");
        }
        (GranularMode { way: PreemptionMode::NoFit, borrow }, Some(text), why::QUOTA)
    }

    /// Why a flavor may not be taken by a second computation, if it may not.
    fn unpinned(&self, s: &Search<'_>, flavor: FlavorId, res: ResourceId) -> Option<String> {
        let pins = s.pins?;
        let pinned = s.members.iter().filter_map(|&m| pins.get(m)).flatten().any(|p| *p == (res, flavor));
        (!pinned).then(|| {
            format!(
                "skipping flavor {} as it is not found in the nomination mapping for resource {}",
                self.state.ids.flavor_name(flavor),
                self.state.ids.resource_name(res)
            )
        })
    }

    /// Why the flavor's nodes don't suit the podsets, if they don't.
    fn flavor_mismatch(&self, s: &Search<'_>, flavor: FlavorId, group: &Group) -> Option<String> {
        let name = self.state.ids.flavor_name(flavor);
        let Some(rules) = self.state.objects.flavors.get(&flavor) else {
            return Some(format!("flavor {name} not found"));
        };
        let wl = self.state.wl(s.id)?;
        for ps in s.members.iter().filter_map(|&m| wl.obj.pod_sets.get(m)) {
            if self.state.config.gates.topology
                && let Some(text) = self.state.tas_view().topology_mismatch(s.cq, ps, flavor, group)
            {
                return Some(text);
            }
            let untolerated = rules.node_taints.iter().find(|t| {
                t.effect != TaintEffect::PreferNoSchedule
                    && !ps.spec.tolerations.iter().chain(&rules.tolerations).any(|l| l.tolerates(t))
            });
            if let Some(taint) = untolerated {
                return Some(format!("untolerated taint {} in flavor {name}", taint_text(taint)));
            }
            if !matches_labels(&ps.spec, &rules.node_labels) {
                return Some(format!("flavor {name} doesn't match node affinity"));
            }
        }
        None
    }
}

/// A taint as Go prints the struct.
fn taint_text(t: &Taint) -> String {
    let effect = match t.effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    };
    format!("{{{} {} {effect} <nil>}}", t.key, t.value)
}

/// Whether a pod's node selector and required affinity, reduced to the keys of `labels`, match `labels`.
/// A term of which nothing is left matches everything.
pub(crate) fn matches_labels(spec: &PodSpec, labels: &StringMap) -> bool {
    if !spec.node_selector.iter().all(|(k, v)| labels.get(k).is_none_or(|l| l == v)) {
        return false;
    }
    let required = spec.affinity.node.as_ref().and_then(|n| n.required.as_ref());
    let Some(required) = required else { return true };
    let mut terms = Vec::new();
    for t in &required.terms {
        let kept: Vec<Requirement> =
            t.expressions.iter().filter(|e| labels.contains_key(&e.key)).cloned().collect();
        if kept.is_empty() {
            return true;
        }
        terms.push(NodeSelectorTerm { expressions: kept, fields: Vec::new() });
    }
    terms.is_empty() || terms.iter().any(|t| t.matches("", labels))
}
