//! Run windows (Plimsoll's own, `RunWindow` in `plimsoll.dev/v1alpha1`): outside its windows a workload is not queued, and
//! what runs is left to finish or suspended.
//!
//! Whether a window is open is always computed from `now`, never from ticks that may have been missed: a
//! [`Calendar`] is a pure function. The edges only say when to look again.
//!
//! A workload's windows are those of its LocalQueue, its ClusterQueue and its annotation; all of them have to be open.
//! A flavor's windows take the flavor away: no new admission gets it outside, and what runs on it is treated as if the
//! window were its own.

mod grace_period;
mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) use model::Name;
pub use model::{Calendar, Chosen, Hours, OUTSIDE, RunWindow, RunWindowStatus};

use super::Action;
use super::bounded::Again;
use super::ids::{ClusterQueueId, FlavorId, LocalQueueId, WorkloadId};
use super::state::WorkloadInfo;
use crate::Queueing;
use plimsoll_state::collect::InsertEach as _;
use plimsoll_state::time::Time;

/// Openings looked at in search of a time at which several windows are open.
const MAX_OPENINGS: usize = 128;

/// A window and what holds now.
#[derive(Debug)]
pub(crate) struct Slot {
    spec: Arc<RunWindow>,
    hours: Hours,
    /// The change after the next.
    after: Option<Time>,
    /// When to look again.
    edge: Option<Time>,
    reported: Option<RunWindowStatus>,
}

impl Slot {
    fn look(spec: &RunWindow, now: Time) -> (Hours, Option<Time>) {
        let Some(calendar) = &spec.calendar else { return (Hours::default(), None) };
        let hours = calendar.at(now);
        (hours, hours.change.and_then(|at| calendar.at(at).change))
    }

    fn next_opening(&self) -> Option<Time> {
        if self.hours.open { self.after } else { self.hours.change }
    }

    fn next_closing(&self) -> Option<Time> {
        if self.hours.open { self.hours.change } else { self.after }
    }

    fn text(&self, at: Time) -> String {
        self.spec.calendar.as_ref().map_or(String::new(), |c| c.text(at))
    }
}

/// All windows and where they apply.
#[derive(Debug, Default)]
pub(crate) struct RunWindows {
    all: BTreeMap<Name, Slot>,
    edges: BTreeSet<(Time, Name)>,
    /// Windows of each flavor that has any.
    flavors: BTreeMap<FlavorId, Vec<Name>>,
    /// Workloads by the window they name.
    named: BTreeMap<String, BTreeSet<WorkloadId>>,
    /// When several windows are open together, for workloads that wait for that.
    together: BTreeMap<Vec<Name>, Option<Time>>,
    /// The latest time looked at.
    seen: Option<Time>,
    unreported: BTreeSet<Name>,
}

impl RunWindows {
    fn set(&mut self, name: &Name, spec: Arc<RunWindow>, now: Time) {
        let (hours, after) = Slot::look(&spec, now);
        let edge = hours.change.or(hours.again).filter(|t| *t > now);
        let reported = self.all.get(name).and_then(|s| s.reported.clone());
        self.forget_edge(name);
        self.edges.extend(edge.map(|t| (t, name.clone())));
        self.all.insert(name.clone(), Slot { spec, hours, after, edge, reported });
        self.unreported.insert(name.clone());
        self.together.clear();
    }

    fn forget_edge(&mut self, name: &Name) {
        if let Some(t) = self.all.get(name).and_then(|s| s.edge) {
            self.edges.remove(&(t, name.clone()));
        }
    }

    fn is_open(&self, name: &str) -> bool {
        self.all.get(name).is_some_and(|s| s.hours.open)
    }

    /// When the next edge comes.
    pub(crate) fn next_edge(&self) -> Option<Time> {
        self.edges.first().map(|(t, _)| *t)
    }
}

impl Queueing {
    /// A RunWindow was seen or changed.
    pub(crate) fn run_window(&mut self, w: RunWindow, now: Time) {
        let name: Name = Arc::from(w.name.as_str());
        let old = self.run_windows.all.get(&name).map(|s| Arc::clone(&s.spec));
        if old.as_ref().is_some_and(|o| o.source == w.source && o.creation == w.creation) {
            return;
        }
        let elsewhere = old.as_ref().is_none_or(|o| {
            (&o.local_queues, &o.cluster_queues, &o.flavors)
                != (&w.local_queues, &w.cluster_queues, &w.flavors)
        });
        let mut met = self.users_of(std::slice::from_ref(&name));
        self.run_windows.set(&name, Arc::new(w), now);
        if elsewhere {
            self.assign_windows();
            met.join(self.users_of(&[name]));
        }
        self.windows_moved(&met);
    }

    /// The RunWindow is gone. Where it applied nothing is held back any more; workloads that name it wait for another
    /// of its name.
    pub(crate) fn run_window_gone(&mut self, name: &str) {
        let name: Name = Arc::from(name);
        let met = self.users_of(std::slice::from_ref(&name));
        self.run_windows.forget_edge(&name);
        self.run_windows.unreported.remove(&name);
        self.run_windows.together.clear();
        if self.run_windows.all.remove(&name).is_some() {
            self.assign_windows();
        }
        self.windows_moved(&met);
    }

    /// Looks again at windows that may have opened or closed.
    pub(crate) fn update_run_windows(&mut self, now: Time) {
        let back = self.run_windows.seen.is_some_and(|t| now < t);
        self.run_windows.seen = Some(now);
        let due: Vec<Name> = if back {
            self.run_windows.all.keys().cloned().collect()
        } else {
            let due = self.run_windows.edges.iter().take_while(|(t, _)| *t <= now);
            due.map(|(_, name)| name.clone()).collect()
        };
        let mut moved = Vec::new();
        for name in due {
            let Some(slot) = self.run_windows.all.get(&name) else { continue };
            let (spec, open) = (Arc::clone(&slot.spec), slot.hours.open);
            self.run_windows.set(&name, spec, now);
            if self.run_windows.is_open(&name) != open {
                moved.push(name);
            }
        }
        if !moved.is_empty() {
            let met = self.users_of(&moved);
            self.windows_moved(&met);
        }
    }

    /// Works out anew which queues and flavors every window applies to.
    fn assign_windows(&mut self) {
        for id in self.local_queues.ids() {
            self.lq_mut(id).windows = self.windows_of_local(id);
        }
        for id in self.cluster_queues.ids() {
            self.cq_mut(id).windows = self.windows_of_cluster(id);
        }
        self.run_windows.flavors = self.windows_of_flavors();
        self.run_windows.unreported.extend(self.run_windows.all.keys().cloned());
    }

    fn windows_where(&self, applies: impl Fn(&RunWindow) -> bool) -> Vec<Name> {
        self.run_windows.all.iter().filter(|(_, s)| applies(&s.spec)).map(|(n, _)| n.clone()).collect()
    }

    fn windows_of_local(&self, id: LocalQueueId) -> Vec<Name> {
        let lq = self.lq(id);
        let Some(spec) = &lq.spec else { return Vec::new() };
        self.windows_where(|w| w.local_queues.has(&lq.namespace, &lq.name, &spec.labels))
    }

    fn windows_of_cluster(&self, id: ClusterQueueId) -> Vec<Name> {
        let Some(spec) = &self.cq(id).spec else { return Vec::new() };
        self.windows_where(|w| w.cluster_queues.has("", &spec.name, &spec.labels))
    }

    fn windows_of_flavors(&self) -> BTreeMap<FlavorId, Vec<Name>> {
        let of = |f: &super::ResourceFlavor| self.windows_where(|w| w.flavors.has("", &f.name, &f.labels));
        self.objects.flavors.iter().map(|(id, f)| (*id, of(f))).filter(|(_, w)| !w.is_empty()).insert_each()
    }

    /// A LocalQueue was seen, changed or deleted.
    pub(crate) fn windows_of_local_again(&mut self, id: LocalQueueId) {
        let windows = self.windows_of_local(id);
        if self.lq(id).windows == windows {
            return;
        }
        let old = std::mem::replace(&mut self.lq_mut(id).windows, windows.clone());
        self.run_windows.unreported.extend(old.into_iter().chain(windows));
        let workloads = self.lq(id).members.iter().copied().collect();
        self.windows_moved(&Met { workloads, ..Met::default() });
    }

    /// A ClusterQueue was seen, changed or deleted.
    pub(crate) fn windows_of_cluster_again(&mut self, id: ClusterQueueId) {
        let windows = self.windows_of_cluster(id);
        if self.cq(id).windows == windows {
            return;
        }
        let old = std::mem::replace(&mut self.cq_mut(id).windows, windows.clone());
        self.run_windows.unreported.extend(old.into_iter().chain(windows));
        let workloads = self.members_of_cluster(id);
        self.windows_moved(&Met { workloads, ..Met::default() });
    }

    /// A flavor was seen, changed or deleted.
    pub(crate) fn windows_of_flavors_again(&mut self, flavor: FlavorId) {
        let flavors = self.windows_of_flavors();
        if flavors.get(&flavor) == self.run_windows.flavors.get(&flavor) {
            return;
        }
        let both = flavors.get(&flavor).into_iter().chain(self.run_windows.flavors.get(&flavor)).flatten();
        let both: Vec<Name> = both.cloned().collect();
        self.run_windows.unreported.extend(both);
        self.run_windows.flavors = flavors;
        self.windows_moved(&Met { flavors: [flavor].into(), ..Met::default() });
    }

    /// Notes which window a workload names, and forgets which it named.
    pub(crate) fn window_named(&mut self, id: WorkloadId, old: &str, new: &str) {
        if let Some(set) = self.run_windows.named.get_mut(old) {
            set.remove(&id);
            if set.is_empty() {
                self.run_windows.named.remove(old);
            }
        }
        if !new.is_empty() {
            self.run_windows.named.entry(new.to_owned()).or_default().insert(id);
        }
    }

    fn members_of_cluster(&self, id: ClusterQueueId) -> Vec<WorkloadId> {
        let cq = self.cq(id);
        let members = cq.locals.iter().flat_map(|&l| &self.lq(l).members);
        members.copied().chain(self.holders(id)).collect()
    }

    /// Whom a change of these windows concerns.
    fn users_of(&self, names: &[Name]) -> Met {
        let hit = |list: &[Name]| list.iter().any(|n| names.contains(n));
        let mut workloads: Vec<WorkloadId> = Vec::new();
        for name in names {
            workloads.extend(self.run_windows.named.get(&**name).into_iter().flatten());
        }
        for lq in self.local_queues.iter().map(|(_, l)| l).filter(|l| hit(&l.windows)) {
            workloads.extend(&lq.members);
        }
        for id in self.cluster_queues.ids() {
            if hit(&self.cq(id).windows) {
                workloads.extend(self.members_of_cluster(id));
            }
        }
        let flavors = self.run_windows.flavors.iter().filter(|(_, w)| hit(w)).map(|(f, _)| *f).insert_each();
        Met { workloads, flavors }
    }

    /// Marks everything dirty that depends on windows that opened, closed, came or went.
    fn windows_moved(&mut self, met: &Met) {
        met.workloads.iter().for_each(|&id| self.dirty.requeue(id, Again::InPlace));
        for id in self.cluster_queues.ids() {
            let uses = self.cq(id).rules.groups.iter().flat_map(|g| &g.flavors);
            if !uses.into_iter().any(|f| met.flavors.contains(f)) {
                continue;
            }
            // The search among flavors begins anew.
            let members = self.members_of_cluster(id);
            for &w in &members {
                if let Some(wl) = self.wl_mut(w) {
                    wl.restart_flavor_search();
                }
                self.dirty.requeue(w, Again::InPlace);
            }
            self.cq_mut(id).generation += 1;
            self.dirty.inadmissible.insert(id);
        }
        self.due.everywhere();
    }

    /// Gives out the statuses of windows that changed.
    pub(crate) fn report_windows(&mut self) {
        for name in std::mem::take(&mut self.run_windows.unreported) {
            let Some(slot) = self.run_windows.all.get(&name) else { continue };
            let in_list = |list: &[Name]| list.contains(&name);
            let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
            let status = RunWindowStatus {
                generation: slot.spec.generation,
                open: slot.hours.open,
                invalid: slot.spec.invalid.clone(),
                next_opening: slot.next_opening().map(|t| slot.text(t)),
                next_closing: slot.next_closing().map(|t| slot.text(t)),
                applies_to: [
                    count(self.local_queues.iter().map(|(_, l)| l).filter(|l| in_list(&l.windows)).count()),
                    count(self.cluster_queues.iter().map(|(_, c)| c).filter(|c| in_list(&c.windows)).count()),
                    count(self.run_windows.flavors.values().filter(|w| in_list(w)).count()),
                ],
            };
            if slot.reported.as_ref() == Some(&status) {
                continue;
            }
            if let Some(slot) = self.run_windows.all.get_mut(&name) {
                slot.reported = Some(status.clone());
            }
            self.out.push(Action::RunWindowStatus(name.to_string(), Box::new(status)));
        }
    }

    /// Compares where windows apply with a rebuild.
    ///
    /// # Panics
    /// When they differ.
    pub(crate) fn check_windows(&self) {
        let edges: BTreeSet<(Time, Name)> =
            self.run_windows.all.iter().filter_map(|(n, s)| Some((s.edge?, n.clone()))).collect();
        assert_eq!(edges, self.run_windows.edges, "edges of windows");
        let mut named: BTreeMap<String, BTreeSet<WorkloadId>> = BTreeMap::new();
        for (id, wl) in self.workloads.iter() {
            if !wl.obj.run_window.is_empty() {
                named.entry(wl.obj.run_window.clone()).or_default().insert(id);
            }
            let known = wl.queued().is_none() || self.dirty.requeue.contains_key(&id);
            assert!(known || !self.outside_run_window(wl), "{}: queued outside", wl.obj.key);
        }
        assert_eq!(named, self.run_windows.named, "who names which window");
        for (id, lq) in self.local_queues.iter() {
            assert_eq!(lq.windows, self.windows_of_local(id), "{}/{}: windows", lq.namespace, lq.name);
        }
        for (id, cq) in self.cluster_queues.iter() {
            assert_eq!(cq.windows, self.windows_of_cluster(id), "{}: windows", cq.name);
        }
        assert_eq!(self.run_windows.flavors, self.windows_of_flavors(), "windows of flavors");
    }

    /// Windows that apply to a workload wherever it runs, by name; the one it names may not exist.
    fn windows_of<'a>(&'a self, wl: &'a WorkloadInfo) -> impl Iterator<Item = &'a str> {
        let lq = self.lq(wl.lq());
        let cq = self.reserved_in(wl).or(lq.cq).map(|c| self.cq(c));
        let queues = lq.windows.iter().chain(cq.into_iter().flat_map(|c| &c.windows)).map(|n| &**n);
        let named = Some(wl.obj.run_window.as_str()).filter(|n| !n.is_empty());
        queues.chain(named)
    }

    /// Whether a workload may not be queued, because one of its windows is closed.
    pub(crate) fn outside_run_window(&self, wl: &WorkloadInfo) -> bool {
        self.windows_of(wl).any(|name| !self.run_windows.is_open(name))
    }
}

/// Whom a change concerns.
#[derive(Debug, Default)]
struct Met {
    /// Some perhaps more than once.
    workloads: Vec<WorkloadId>,
    flavors: BTreeSet<FlavorId>,
}

impl Met {
    fn join(&mut self, other: Self) {
        self.workloads.extend(other.workloads);
        self.flavors.extend(other.flavors);
    }
}

#[cfg(test)]
pub(super) mod tests;
