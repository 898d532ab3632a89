//! Dependencies between workloads (Plimsoll's own, annotation `plimsoll.dev/depends-on`): a workload is queued only once
//! everything it depends on has had the outcome it asks for.
//!
//! Both directions are indexed by name, so an outcome costs what hangs on it and nothing else. What has come true
//! stays true, also when the dependency is deleted afterwards: the condition `plimsoll.dev/DependenciesMet` keeps it
//! over restarts.

mod progress;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use progress::Progress;

use super::cond;
use super::ids::WorkloadId;
use super::model::{Dependency, Outcome, TargetKind, Workload, WorkloadKey, WorkloadStatus};
use super::state::WorkloadInfo;
use crate::Queueing;
use plimsoll_state::collect::InsertEach as _;
use plimsoll_state::time::Time;
use smallvec::SmallVec;

/// Type of the condition that says how far the dependencies are.
pub const DEPENDENCIES_MET: &str = "plimsoll.dev/DependenciesMet";
/// Reason of a workload whose dependencies may still come true.
pub(crate) const WAITING: &str = "WaitingForDependencies";
/// What stands before the dependencies that have come true.
const DONE: &str = " Done: ";
/// Most dependencies that a message names of each sort.
const NAMED: usize = 8;
/// Most steps of the search for a circle; workloads in a longer one just wait.
const MAX_STEPS: usize = 100_000;

type Name = (String, String);
/// What answers to a name, sorted: one workload, in most cases.
type Names = SmallVec<[(TargetKind, WorkloadId); 1]>;

/// Dependencies and dependents, by (namespace, name).
#[derive(Debug, Default)]
pub(crate) struct Dependencies {
    /// Dependencies that have not come true, with their position in the workload's list.
    waits: BTreeMap<Name, BTreeSet<(WorkloadId, u32)>>,
    /// Workloads that answer to a name other than their own, by which the table of workloads finds them.
    names: BTreeMap<Name, Names>,
    /// A workload that answers to no name until it is registered again.
    unnamed: Option<WorkloadId>,
    /// Workloads whose circles have to be looked for again.
    due: BTreeSet<WorkloadId>,
    /// Workloads whose own fate changed what others may hope for.
    ripple: BTreeSet<WorkloadId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Met,
    Waiting,
    Never,
    Missing,
}

/// What one workload's end or readiness means for workloads that wait for this outcome.
fn verdict_of(status: &WorkloadStatus, hopeless: bool, outcome: Outcome) -> Verdict {
    // Another slice of the job goes on.
    if status.was_replaced() {
        return Verdict::Missing;
    }
    let finished = status.condition(cond::FINISHED).filter(|c| c.status);
    let succeeded = finished.map(|c| c.reason == "Succeeded");
    match (outcome, succeeded) {
        (Outcome::Finished, Some(_))
        | (Outcome::Succeeded | Outcome::Ready, Some(true))
        | (Outcome::Failed, Some(false)) => Verdict::Met,
        (_, Some(_)) => Verdict::Never,
        (Outcome::Ready, None) if status.is_true(cond::PODS_READY) => Verdict::Met,
        (_, None) if hopeless => Verdict::Never,
        (_, None) => Verdict::Waiting,
    }
}

/// Dependencies that the condition says have come true.
fn recorded(status: &WorkloadStatus) -> Option<BTreeSet<String>> {
    let condition = status.condition(DEPENDENCIES_MET)?;
    if condition.status {
        return None;
    }
    let done = condition.message.split_once(DONE).map_or("", |(_, d)| d);
    Some(done.split(", ").map(str::to_owned).insert_each())
}

/// Names to which a workload answers, without its own.
fn other_names_of(w: &Workload) -> impl Iterator<Item = (TargetKind, Name)> {
    w.answers_to.iter().map(|(kind, name)| (*kind, (w.key.namespace.clone(), name.clone())))
}

/// Names to which a workload answers, its own last.
fn names_of(w: &Workload) -> impl Iterator<Item = Name> {
    let own = (w.key.namespace.clone(), w.key.name.clone());
    other_names_of(w).map(|(_, name)| name).chain([own])
}

fn insert_name(names: &mut Names, of: (TargetKind, WorkloadId)) {
    if let Err(at) = names.binary_search(&of) {
        names.insert(at, of);
    }
}

impl Queueing {
    /// Whether a workload may be queued as far as its dependencies go.
    pub(crate) fn depends_on_nothing(wl: &WorkloadInfo) -> bool {
        wl.obj.depends_invalid.is_empty() && wl.dependencies.clear()
    }

    /// Takes a new or changed workload into the indexes. `old` is what was registered.
    pub(crate) fn register_dependencies(&mut self, id: WorkloadId, fresh: bool, now: Time) {
        let Some(wl) = self.wl(id) else { return };
        let names: Vec<_> = other_names_of(&wl.obj).collect();
        let deps = wl.obj.depends_on.clone();
        let condition = wl.obj.status.condition(DEPENDENCIES_MET);
        let all_met = fresh && condition.is_some_and(|c| c.status);
        let done = recorded(&wl.obj.status).filter(|_| fresh).unwrap_or_default();
        let namespace = wl.obj.key.namespace.clone();
        self.dependencies.unnamed = None;
        for (kind, name) in names {
            insert_name(self.dependencies.names.entry(name).or_default(), (kind, id));
        }
        let unmet: BTreeSet<u32> = (0u32..)
            .zip(&deps)
            .filter(|(_, d)| !all_met && !done.contains(&d.to_string()))
            .map(|(i, _)| i)
            .collect();
        for (i, dep) in (0u32..).zip(&deps).filter(|(i, _)| unmet.contains(i)) {
            let key = (namespace.clone(), dep.name.clone());
            self.dependencies.waits.entry(key).or_default().insert((id, i));
        }
        if let Some(wl) = self.wl_mut(id) {
            wl.dependencies = Progress::of(unmet.clone());
        }
        for i in unmet {
            self.depend_look(id, i, now);
        }
        self.dependencies.due.insert(id);
        self.dependency_changed(id, now);
    }

    /// Takes a workload out of the indexes; what waits for it has to look for another of its name.
    pub(crate) fn forget_dependencies(&mut self, id: WorkloadId, now: Time) {
        let Some(wl) = self.wl(id) else { return };
        let names: Vec<Name> = names_of(&wl.obj).collect();
        let namespace = wl.obj.key.namespace.clone();
        let waits: Vec<(Name, u32)> = wl
            .dependencies
            .unmet
            .iter()
            .filter_map(|&i| Some(((namespace.clone(), wl.obj.depends_on.get(i as usize)?.name.clone()), i)))
            .collect();
        for (name, i) in waits {
            self.depend_unwait(&name, id, i);
        }
        self.dependencies.unnamed = Some(id);
        for name in &names {
            if let Some(set) = self.dependencies.names.get_mut(name) {
                set.retain(|(_, w)| *w != id);
                if set.is_empty() {
                    self.dependencies.names.remove(name);
                }
            }
        }
        self.dependencies.due.remove(&id);
        self.dependencies.ripple.remove(&id);
        for name in names {
            self.depend_named(&name, now);
        }
    }

    fn depend_unwait(&mut self, name: &Name, id: WorkloadId, at: u32) {
        if let Some(set) = self.dependencies.waits.get_mut(name) {
            set.remove(&(id, at));
            if set.is_empty() {
                self.dependencies.waits.remove(name);
            }
        }
    }

    /// Marks all dependents of this workload dirty.
    pub(crate) fn dependency_changed(&mut self, id: WorkloadId, now: Time) {
        if self.dependencies.waits.is_empty() {
            return;
        }
        let Some(wl) = self.wl(id) else { return };
        let names: Vec<Name> = names_of(&wl.obj).collect();
        for name in names {
            self.depend_named(&name, now);
        }
    }

    fn depend_named(&mut self, name: &Name, now: Time) {
        let waiting: Vec<(WorkloadId, u32)> =
            self.dependencies.waits.get(name).map(|s| s.iter().copied().collect()).unwrap_or_default();
        for (id, i) in waiting {
            self.depend_look(id, i, now);
        }
    }

    /// Workloads that answer to a name, sorted.
    fn answering(&self, name: &Name) -> impl Iterator<Item = (TargetKind, WorkloadId)> {
        let key = WorkloadKey { namespace: name.0.clone(), name: name.1.clone() };
        let own = self.workloads.find(&key).filter(|id| self.dependencies.unnamed != Some(*id));
        let others = self.dependencies.names.get(name).into_iter().flatten().copied();
        others.chain(own.map(|id| (TargetKind::Workload, id)))
    }

    fn depend_verdict(&self, id: WorkloadId, dep: &Dependency, namespace: &str) -> Verdict {
        let key = (namespace.to_owned(), dep.name.clone());
        let mut best = Verdict::Missing;
        for (kind, target) in self.answering(&key) {
            if dep.kind.is_some_and(|k| k != kind) {
                continue;
            }
            let Some(wl) = self.wl(target) else { continue };
            // Waiting for itself is a circle, found as any other.
            let hopeless = target != id && wl.dependencies.hopeless();
            match verdict_of(&wl.obj.status, hopeless, dep.outcome) {
                Verdict::Met => return Verdict::Met,
                Verdict::Waiting => best = Verdict::Waiting,
                Verdict::Never if best == Verdict::Missing => best = Verdict::Never,
                Verdict::Never | Verdict::Missing => {}
            }
        }
        best
    }

    /// Looks at one dependency of a workload again.
    fn depend_look(&mut self, id: WorkloadId, at: u32, now: Time) {
        let Some(wl) = self.wl(id).filter(|w| w.dependencies.unmet.contains(&at)) else { return };
        let Some(dep) = wl.obj.depends_on.get(at as usize) else { return };
        let namespace = wl.obj.key.namespace.clone();
        let name = (namespace.clone(), dep.name.clone());
        let verdict = self.depend_verdict(id, dep, &namespace);
        let Some(wl) = self.wl_mut(id) else { return };
        let before = wl.dependencies.clone();
        let progress = &mut wl.dependencies;
        let put = |set: &mut BTreeSet<u32>, on: bool| {
            if on { set.insert(at) } else { set.remove(&at) }
        };
        put(&mut progress.never, verdict == Verdict::Never);
        put(&mut progress.missing, verdict == Verdict::Missing);
        if verdict == Verdict::Met {
            progress.unmet.remove(&at);
        }
        let (after, cleared) = (progress.clone(), progress.clear() && !before.clear());
        if after == before {
            return;
        }
        if verdict == Verdict::Met {
            self.depend_unwait(&name, id, at);
        }
        if after.hopeless() != before.hopeless() {
            self.dependencies.ripple.insert(id);
        }
        if after.missing != before.missing || before.circle.is_some() {
            self.dependencies.due.insert(id);
        }
        self.dirty.workloads.insert(id);
        if cleared && self.wl(id).is_some_and(|w| w.quota().is_none()) {
            self.enqueue(id, false, now);
        }
    }

    /// Lets changes run through chains, and looks for circles; called before workloads are reconciled.
    pub(crate) fn settle_dependencies(&mut self, now: Time) {
        while let Some(id) = self.dependencies.ripple.pop_first() {
            self.dependency_changed(id, now);
        }
        while let Some(id) = self.dependencies.due.pop_first() {
            let circle = self.circle_of(id);
            let Some(wl) = self.wl_mut(id).filter(|w| w.dependencies.circle != circle) else { continue };
            wl.dependencies.circle = circle;
            self.dirty.workloads.insert(id);
            // The others in it find it too, or find it gone.
            let around = self.dependents(id);
            self.dependencies.due.extend(around);
        }
    }

    fn dependents(&self, id: WorkloadId) -> Vec<WorkloadId> {
        let Some(wl) = self.wl(id) else { return Vec::new() };
        let waits = names_of(&wl.obj).filter_map(|n| self.dependencies.waits.get(&n));
        waits.flatten().map(|(w, _)| *w).collect()
    }

    /// Workloads that answer to a dependency which has not come true.
    fn targets(&self, id: WorkloadId) -> Vec<WorkloadId> {
        let Some(wl) = self.wl(id) else { return Vec::new() };
        let unmet = wl.dependencies.unmet.iter().filter_map(|&i| wl.obj.depends_on.get(i as usize));
        let of = |d: &Dependency| {
            let key = (wl.obj.key.namespace.clone(), d.name.clone());
            let named = self.answering(&key);
            named.filter(|(k, _)| d.kind.is_none_or(|w| w == *k)).map(|(_, w)| w).collect::<Vec<_>>()
        };
        unmet.flat_map(of).collect()
    }

    /// The circle that leads back to a workload, as text.
    fn circle_of(&self, id: WorkloadId) -> Option<String> {
        // Most have no dependents, or no dependencies: no search.
        if self.wl(id).is_none_or(|w| w.dependencies.clear()) || self.dependents(id).is_empty() {
            return None;
        }
        let mut from: BTreeMap<WorkloadId, WorkloadId> = BTreeMap::new();
        let mut stack = vec![id];
        let mut steps = 0;
        while let Some(at) = stack.pop() {
            for next in self.targets(at) {
                if next == id {
                    return Some(self.path_text(id, at, &from));
                }
                steps += 1;
                if steps > MAX_STEPS {
                    return None;
                }
                if let std::collections::btree_map::Entry::Vacant(v) = from.entry(next) {
                    v.insert(at);
                    stack.push(next);
                }
            }
        }
        None
    }

    fn path_text(&self, id: WorkloadId, last: WorkloadId, from: &BTreeMap<WorkloadId, WorkloadId>) -> String {
        let mut path = vec![id];
        let mut at = last;
        while at != id {
            path.push(at);
            let Some(&before) = from.get(&at) else { break };
            at = before;
        }
        path.push(id);
        path.reverse();
        let name = |w: &WorkloadId| self.wl(*w).map_or(String::new(), |w| w.obj.key.name.clone());
        path.iter().map(name).collect::<Vec<_>>().join(" -> ")
    }

    /// Reason and message while dependencies keep a workload from being queued.
    pub(crate) fn dependency_reason(&self, wl: &WorkloadInfo) -> Option<(&'static str, String)> {
        let obj = &wl.obj;
        if !obj.depends_invalid.is_empty() {
            return Some(("Misconfigured", obj.depends_invalid.clone()));
        }
        let progress = &wl.dependencies;
        if progress.clear() {
            return None;
        }
        let list = |set: &mut dyn Iterator<Item = &u32>| -> String {
            let mut names: Vec<String> = set
                .filter_map(|&i| obj.depends_on.get(i as usize))
                .take(NAMED + 1)
                .map(Dependency::to_string)
                .collect();
            if names.len() > NAMED {
                names.truncate(NAMED);
                names.push("and others".into());
            }
            names.join(", ")
        };
        if let Some(circle) = &progress.circle {
            return Some(("DependencyCycle", format!("The dependencies go round in a circle: {circle}")));
        }
        if progress.hopeless() {
            let which = list(&mut progress.never.iter());
            return Some(("DependencyNeverMet", format!("Can never run: {which} can't come true any more")));
        }
        let mut message = String::new();
        let waiting: String = list(&mut progress.unmet.difference(&progress.missing));
        if !waiting.is_empty() {
            message = format!("Waiting for {waiting}");
        }
        if !progress.missing.is_empty() {
            let text = list(&mut progress.missing.iter());
            let join = if message.is_empty() { "Waiting" } else { ";" };
            message = format!("{message}{join} for {text}, which no workload in the namespace answers to");
        }
        Some((WAITING, message))
    }

    /// Keeps the condition what it has to be; whether a write was made.
    pub(crate) fn reconcile_dependencies(&mut self, id: WorkloadId, now: Time) -> bool {
        let Some(wl) = self.wl(id) else { return true };
        let has = wl.obj.status.condition(DEPENDENCIES_MET);
        if wl.obj.depends_on.is_empty() && wl.obj.depends_invalid.is_empty() {
            return has.is_some()
                && self.edit(id, now, Vec::new(), |e| {
                    e.status.conditions.retain(|c| c.kind != DEPENDENCIES_MET);
                });
        }
        let (status, reason, mut message) = match self.dependency_reason(wl) {
            None => (true, "DependenciesMet", "Everything this depends on has come true".to_owned()),
            Some((reason, message)) => (false, reason, message),
        };
        let done: Vec<String> = (0u32..)
            .zip(&wl.obj.depends_on)
            .filter(|(i, _)| !wl.dependencies.unmet.contains(i))
            .map(|(_, d)| d.to_string())
            .collect();
        if !status && !done.is_empty() {
            message = format!("{message}.{DONE}{}", done.join(", "));
        }
        self.edit(id, now, Vec::new(), |e| {
            e.set(DEPENDENCIES_MET, status, reason, &message);
        })
    }

    /// Compares the indexes with a rebuild.
    ///
    /// # Panics
    /// When they differ.
    pub(crate) fn check_dependencies(&self) {
        let mut waits: BTreeMap<Name, BTreeSet<(WorkloadId, u32)>> = BTreeMap::new();
        let mut names: BTreeMap<Name, Names> = BTreeMap::new();
        for (id, wl) in self.workloads.iter() {
            for (kind, name) in other_names_of(&wl.obj) {
                insert_name(names.entry(name).or_default(), (kind, id));
            }
            for &i in &wl.dependencies.unmet {
                let Some(dep) = wl.obj.depends_on.get(i as usize) else {
                    unreachable!("{}: waits for a dependency it does not have", wl.obj.key)
                };
                let namespace = &wl.obj.key.namespace;
                waits.entry((namespace.clone(), dep.name.clone())).or_default().insert((id, i));
                if self.dependencies.ripple.is_empty() {
                    let verdict = self.depend_verdict(id, dep, namespace);
                    assert_ne!(verdict, Verdict::Met, "{}: missed that {dep} came true", wl.obj.key);
                    let never = wl.dependencies.never.contains(&i);
                    assert_eq!(never, verdict == Verdict::Never, "{}: hope for {dep}", wl.obj.key);
                }
            }
            assert!(
                wl.queued().is_none() || Self::depends_on_nothing(wl),
                "{}: queued too early",
                wl.obj.key
            );
        }
        assert_eq!(waits, self.dependencies.waits, "who waits for whom");
        assert_eq!(names, self.dependencies.names, "who answers to which name");
    }
}

#[cfg(test)]
#[path = "dependencies_tests.rs"]
mod tests;
