//! Flavor assignment: which flavor each podset gets, and what that costs (spec section 2.5).

mod attempts;
mod flavor;
mod partial;

pub(crate) use attempts::{Attempt, Possibility, considered};
pub(crate) use partial::Reducer;

use super::account::add_usage;
use super::amount::Amount;
use super::ids::{Flavor, Fr, Res};
use super::model::{Delayed, TopologyAssignment};
use super::pending::{ShapeId, WlId};
use super::state::{CqId, Queueing, Total};
use flavor::Search;

/// Why nothing fits, as reasons of QuotaReserved=False, mild to severe.
pub(crate) mod why {
    pub(crate) const TOPOLOGY: &str = "TopologyPlacementFailed";
    pub(crate) const QUOTA: &str = "WaitingForQuota";
    pub(crate) const TOO_MUCH: &str = "ExceedsMaxQuota";
    pub(crate) const NO_FLAVOR: &str = "NoMatchingFlavor";
    /// Plimsoll's own: a run window is closed.
    pub(crate) const WINDOW: &str = "FlavorOutsideRunWindow";

    fn severity(reason: &str) -> u8 {
        match reason {
            NO_FLAVOR => 5,
            TOO_MUCH => 4,
            WINDOW => 3,
            QUOTA => 2,
            TOPOLOGY => 1,
            _ => 0,
        }
    }

    pub(crate) fn worse(a: &'static str, b: &'static str) -> &'static str {
        if severity(a) >= severity(b) { a } else { b }
    }

    pub(crate) fn is_milder(a: &str, b: &str) -> bool {
        severity(a) < severity(b)
    }
}

/// What an assignment means, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    NoFit,
    Preempt,
    /// Fits once the victims of others are gone.
    DeferredFit,
    Fit,
}

/// A flavor given to a resource of a podset.
#[derive(Clone, Debug)]
pub(crate) struct Pick {
    pub(crate) res: Res,
    pub(crate) flavor: Flavor,
    pub(crate) mode: Mode,
    /// Index of the flavor at which the search stopped; -1 when it saw all.
    pub(crate) tried: i32,
    pub(crate) borrow: u32,
}

/// What one podset gets.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodSetPick {
    /// Index in the spec.
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) picks: Vec<Pick>,
    pub(crate) reasons: Vec<String>,
    pub(crate) error: Option<String>,
    pub(crate) requests: Vec<(Res, i64)>,
    pub(crate) count: i32,
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) topology: Option<TopologyAssignment>,
    pub(crate) delayed: Option<Delayed>,
}

impl PodSetPick {
    fn mode(&self) -> Mode {
        if self.error.is_none() && self.reasons.is_empty() {
            return Mode::Fit;
        }
        if self.error.is_some() {
            return Mode::NoFit;
        }
        self.picks.iter().map(|p| p.mode).min().unwrap_or(Mode::NoFit)
    }

    /// The flavor of a resource.
    pub(crate) fn flavor_of(&self, res: Res) -> Option<Flavor> {
        self.picks.iter().find(|p| p.res == res).map(|p| p.flavor)
    }
}

/// How far the search among flavors got, to go on there next time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastTry {
    /// Per podset in order of assignment: the last flavor tried for each resource, -1 when all were.
    pub(crate) tried: Vec<Vec<(Res, i32)>>,
    generation: i64,
    wakes: i64,
    cycle: i64,
    shape: ShapeId,
}

impl LastTry {
    /// Whether flavors are left that were not tried.
    pub(crate) fn has_more(&self) -> bool {
        self.tried.iter().flatten().any(|(_, i)| *i != -1)
    }

    fn next(&self, pod_set: usize, res: Res) -> usize {
        let tried = self.tried.get(pod_set).and_then(|t| t.iter().find(|(r, _)| *r == res));
        tried.map_or(0, |(_, i)| usize::try_from(i + 1).unwrap_or(0))
    }
}

/// Flavors a second computation in the same cycle has to keep: per podset of the spec.
pub(crate) type Pins = Vec<Vec<(Res, Flavor)>>;

/// Flavors for a whole workload.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    pub(crate) pod_sets: Vec<PodSetPick>,
    /// Borrow level: 0 means within the ClusterQueue's own quota.
    pub(crate) borrowing: u32,
    pub(crate) usage: Vec<(Fr, Amount)>,
    pub(crate) last: LastTry,
    pub(crate) no_fit_reason: &'static str,
    /// What the slice holds whose place the workload takes; `usage` is the difference then.
    pub(crate) replaced: Option<Vec<Total>>,
    mode: Option<Mode>,
}

impl Assignment {
    /// The worst mode among the podsets.
    pub(crate) fn mode(&self) -> Mode {
        if self.pod_sets.is_empty() {
            return Mode::NoFit;
        }
        self.mode.unwrap_or_else(|| self.pod_sets.iter().map(PodSetPick::mode).min().unwrap_or(Mode::NoFit))
    }

    /// Overrides the mode of the whole assignment and of every pick.
    pub(crate) fn set_mode(&mut self, mode: Mode) {
        self.mode = Some(mode);
        self.pod_sets.iter_mut().flat_map(|p| &mut p.picks).for_each(|p| p.mode = mode);
    }

    /// Overrides the mode after a verdict on one podset.
    pub(crate) fn set_pod_set_mode(&mut self, index: usize, mode: Mode) {
        if let Some(ps) = self.pod_sets.iter_mut().find(|p| p.index == index) {
            ps.picks.iter_mut().for_each(|p| p.mode = mode);
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
        parts.join("; ")
    }

    /// Columns for which others would have to give way.
    pub(crate) fn columns_to_preempt(&self, ids: &super::ids::Ids) -> Vec<Fr> {
        let mut frs: Vec<Fr> = self
            .pod_sets
            .iter()
            .flat_map(|p| &p.picks)
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
                p.extend(ps.picks.iter().map(|p| (p.res, p.flavor)));
            }
        }
        pins
    }
}

/// A podset while its group is looked at.
struct Member {
    index: usize,
    total: Total,
}

impl Queueing {
    /// Finds flavors for all podsets, with `counts` pods each instead of the whole number if given, and
    /// only among `pins` if given.
    pub(crate) fn assign(
        &mut self,
        id: WlId,
        cq: CqId,
        counts: Option<&[i32]>,
        pins: Option<&Pins>,
        last: Option<&LastTry>,
    ) -> Assignment {
        if self.wl(id).is_some_and(|w| w.held.is_some()) {
            return self.assign_again(id, cq);
        }
        let mut assignment = self.nothing_assigned(id, cq);
        for group in self.pod_set_groups(id, cq, counts) {
            if !self.assign_group(id, cq, &group, pins, last, &mut assignment) {
                self.resolve_reason(cq, &mut assignment);
                return assignment;
            }
        }
        if assignment.mode() != Mode::NoFit && self.config.gates.topology {
            self.assign_topology(id, cq, &mut assignment);
        }
        self.resolve_reason(cq, &mut assignment);
        // Where a slice needs less than the one before, nothing is given back before that one has ended.
        assignment.usage.iter_mut().for_each(|(_, a)| *a = a.at_least_zero());
        assignment
    }

    fn nothing_assigned(&self, id: WlId, cq: CqId) -> Assignment {
        let (generation, wakes, cycle) = (self.cq(cq).generation, self.cq(cq).wakes, self.cycle);
        let shape = self.wl(id).map_or(u32::MAX, |w| w.shape);
        Assignment {
            pod_sets: Vec::new(),
            borrowing: 0,
            usage: Vec::new(),
            last: LastTry { tried: Vec::new(), generation, wakes, cycle, shape },
            no_fit_reason: "",
            replaced: self.replaced_totals(id, cq),
            mode: None,
        }
    }

    /// For a second pass: the flavors it holds, and places for what has none. Its quota is in the books already.
    fn assign_again(&mut self, id: WlId, cq: CqId) -> Assignment {
        let mut assignment = self.nothing_assigned(id, cq);
        let Some(wl) = self.wl(id) else { return assignment };
        let Some(admission) = &wl.obj.status.admission else { return assignment };
        let mut picked = Vec::new();
        for (index, ps) in wl.obj.pod_sets.iter().enumerate() {
            let at = admission.assignments.iter().zip(&wl.totals).find(|(a, _)| a.name == ps.name);
            let Some((assigned, total)) = at else { continue };
            let pick =
                |&(res, flavor): &(Res, Flavor)| Pick { res, flavor, mode: Mode::Fit, tried: -1, borrow: 0 };
            picked.push(PodSetPick {
                index,
                name: ps.name.clone(),
                picks: total.flavors.iter().map(pick).collect(),
                requests: total.requests.clone(),
                count: total.count,
                topology: assigned.topology.clone(),
                delayed: assigned.delayed,
                ..PodSetPick::default()
            });
        }
        assignment.pod_sets = picked;
        assignment.replaced = None;
        if self.config.gates.topology {
            self.assign_topology(id, cq, &mut assignment);
        }
        self.resolve_reason(cq, &mut assignment);
        assignment
    }

    /// Podsets with the same group name together, the rest alone, in order of first sight.
    fn pod_set_groups(&mut self, id: WlId, cq: CqId, counts: Option<&[i32]>) -> Vec<Vec<Member>> {
        let pods = self.ids.find_resource("pods").filter(|&r| self.cq(cq).rules.group_of(r).is_some());
        let Some(Some(wl)) = self.wls.get(id as usize) else { return Vec::new() };
        let mut groups: Vec<(Option<&str>, Vec<Member>)> = Vec::new();
        for (index, (ps, total)) in wl.obj.pod_sets.iter().zip(&wl.totals).enumerate() {
            let mut total = match counts.and_then(|c| c.get(index)) {
                Some(&count) => total.scaled_to(count),
                None => total.clone(),
            };
            if let Some(pods) = pods {
                total.requests.retain(|(r, _)| *r != pods);
                total.requests.push((pods, i64::from(total.count)));
                let ids = &self.ids;
                total.requests.sort_by(|a, b| ids.walk_key(a.0).cmp(&ids.walk_key(b.0)));
            }
            let name = ps.topology.as_ref().and_then(|t| t.group.as_deref());
            let member = Member { index, total };
            match groups.iter_mut().find(|(n, _)| name.is_some() && *n == name) {
                Some((_, members)) => members.push(member),
                None => groups.push((name, vec![member])),
            }
        }
        groups.into_iter().map(|(_, g)| g).collect()
    }

    /// Finds flavors for one group of podsets; whether all of them got something.
    fn assign_group(
        &mut self,
        id: WlId,
        cq: CqId,
        group: &[Member],
        pins: Option<&Pins>,
        last: Option<&LastTry>,
        out: &mut Assignment,
    ) -> bool {
        let mut requests: Vec<(Res, i64)> = Vec::new();
        for &(res, v) in group.iter().flat_map(|m| &m.total.requests) {
            match requests.iter_mut().find(|(r, _)| *r == res) {
                Some((_, sum)) => *sum = sum.saturating_add(v),
                None => requests.push((res, v)),
            }
        }
        let ids = &self.ids;
        requests.sort_by(|a, b| ids.walk_key(a.0).cmp(&ids.walk_key(b.0)));
        let members: Vec<usize> = group.iter().map(|m| m.index).collect();
        let mut picks: Option<Vec<Pick>> = Some(Vec::new());
        let (mut reasons, mut attempts) = (Vec::new(), Vec::new());
        for &(res, amount) in &requests {
            let rules = std::sync::Arc::clone(&self.cq(cq).rules);
            if rules.group_of(res).is_none() && (amount == 0 || self.config.ignore_undeclared) {
                continue;
            }
            if picks.as_ref().is_some_and(|p| p.iter().any(|p| p.res == res)) {
                continue;
            }
            let replaced = out.replaced.as_deref();
            let search = Search { id, cq, members: &members, requests: &requests, pins, last, replaced };
            let found = self.find_flavor(&search, res, &out.usage);
            let of = rules.group_of(res).map(|g| &rules.groups[g]);
            attempts::merge(&mut attempts, found.attempts, res, of, &self.ids);
            if found.picks.is_empty() {
                picks = None;
                reasons = found.reasons;
                break;
            }
            reasons.extend(found.reasons);
            picks.get_or_insert_default().extend(found.picks);
        }
        attempts.sort_by(|a: &Attempt, b| self.ids.flavor_name(a.flavor).cmp(self.ids.flavor_name(b.flavor)));
        let mut all = true;
        for m in group {
            let own = self.picks_for(cq, m, group.len() > 1, picks.as_deref().unwrap_or_default());
            if own.is_empty() && !m.total.requests.is_empty() {
                all = false;
            }
            self.append(id, m, own, &reasons, &attempts, out);
        }
        all
    }

    /// The group's flavors that concern one podset; a podset of a group that asks for nothing goes where
    /// the group's topology is.
    fn picks_for(&self, cq: CqId, m: &Member, grouped: bool, picks: &[Pick]) -> Vec<Pick> {
        if !m.total.requests.is_empty() {
            return picks
                .iter()
                .filter(|p| m.total.requests.iter().any(|(r, _)| *r == p.res))
                .cloned()
                .collect();
        }
        if !grouped {
            return Vec::new();
        }
        picks.iter().filter(|p| self.is_topology_flavor(cq, p.flavor)).cloned().collect()
    }

    fn append(
        &mut self,
        id: WlId,
        m: &Member,
        picks: Vec<Pick>,
        reasons: &[String],
        attempts: &[Attempt],
        out: &mut Assignment,
    ) {
        let name = self.wl(id).and_then(|w| w.obj.pod_sets.get(m.index)).map_or("", |p| p.name.as_str());
        let name = name.to_owned();
        for p in &picks {
            out.borrowing = out.borrowing.max(p.borrow);
            let amount = m.total.requests.iter().find(|(r, _)| *r == p.res).map_or(0, |(_, v)| *v);
            let fr = self.ids.pair(p.flavor, p.res);
            let before = out.replaced.iter().flatten().nth(m.index).map_or(0, |t| t.request(p.res));
            add_usage(&mut out.usage, fr, Amount(amount).sub(Amount(before)));
        }
        out.last.tried.push(picks.iter().map(|p| (p.res, p.tried)).collect());
        out.pod_sets.push(PodSetPick {
            index: m.index,
            name,
            picks,
            reasons: reasons.to_vec(),
            error: None,
            requests: m.total.requests.clone(),
            count: m.total.count,
            attempts: attempts.to_vec(),
            topology: None,
            delayed: None,
        });
    }

    /// The reason that stands for the whole: per resource group the mildest flavor counts, across groups
    /// and podsets the worst.
    fn resolve_reason(&self, cq: CqId, a: &mut Assignment) {
        if a.mode() != Mode::NoFit {
            return;
        }
        let rules = &self.cq(cq).rules;
        let mut overall = "";
        for ps in a.pod_sets.iter().filter(|p| p.mode() == Mode::NoFit) {
            if ps.attempts.is_empty() {
                overall = why::worse(overall, why::NO_FLAVOR);
                continue;
            }
            let mut mildest: Vec<(usize, &'static str)> = Vec::new();
            for (i, at) in ps.attempts.iter().enumerate().filter(|(_, a)| a.mode == Mode::NoFit) {
                let group = rules.groups.iter().position(|g| g.flavors.contains(&at.flavor));
                let group = group.unwrap_or(usize::MAX - i);
                match mildest.iter_mut().find(|(g, _)| *g == group) {
                    Some((_, r)) if why::is_milder(at.no_fit_reason, r) => *r = at.no_fit_reason,
                    Some(_) => {}
                    None => mildest.push((group, at.no_fit_reason)),
                }
            }
            overall = mildest.into_iter().fold(overall, |o, (_, r)| why::worse(o, r));
        }
        a.no_fit_reason = overall;
    }

    /// Whether what was tried before no longer describes the present state.
    pub(crate) fn is_outdated(&self, last: &LastTry, cq: CqId, shape: ShapeId) -> bool {
        if self.config.gates.preserve_scan_progress {
            if self.config.gates.equivalence_hashing && last.shape != shape {
                return true;
            }
            if self.cycle - last.cycle <= 1 {
                return false;
            }
        }
        self.cq(cq).generation > last.generation
    }

    /// Whether those parked in a ClusterQueue were given another chance since a try: then what was tried before may
    /// fit by now.
    pub(crate) fn woken_since(&self, last: &LastTry, cq: CqId) -> bool {
        self.cq(cq).wakes > last.wakes
    }
}
