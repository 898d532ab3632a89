//! What closed windows mean for one workload: why it waits, and when it has to stop.

use super::{MAX_OPENINGS, Name, OUTSIDE, Slot};
use crate::Queueing;
use crate::Reporter;
use crate::cond;
use crate::ids::{FlavorId, WorkloadId};
use crate::model::TargetKind;
use crate::phase::Phase;
use crate::state::WorkloadInfo;
use plimsoll_state::time::Time;

/// Most windows that a message names.
const NAMED: usize = 8;

impl Queueing {
    fn closed(&self, name: &str) -> String {
        let Some(slot) = self.run_windows.all.get(name) else { return format!("{name:?} (doesn't exist)") };
        match slot.next_opening() {
            Some(at) => format!("{name:?} (opens next at {})", slot.text(at)),
            None => format!("{name:?} (does not open again)"),
        }
    }

    /// Reason and message while windows keep a workload from being queued.
    pub(crate) fn run_window_reason(&self, wl: &WorkloadInfo) -> Option<(&'static str, String)> {
        let mut all: Vec<&str> = self.windows_of(wl).collect();
        all.sort_unstable();
        all.dedup();
        let shut: Vec<&str> = all.iter().copied().filter(|n| !self.run_windows.is_open(n)).collect();
        let first = shut.first()?;
        for name in &shut {
            match self.run_windows.all.get(*name) {
                None => return Some(("Misconfigured", format!("RunWindow {name} doesn't exist"))),
                Some(s) if !s.spec.invalid.is_empty() => {
                    return Some((
                        "Misconfigured",
                        format!("RunWindow {name} is invalid: {}", s.spec.invalid),
                    ));
                }
                Some(_) => {}
            }
        }
        if all.len() == 1 {
            let message = match self.run_windows.all.get(*first).map(|s| (s, s.next_opening())) {
                Some((slot, Some(at))) => {
                    format!("Run window {first} is closed; it opens next at {}", slot.text(at))
                }
                _ => format!("Run window {first} is closed and does not open again"),
            };
            return Some((OUTSIDE, message));
        }
        let list: Vec<String> = shut.iter().take(NAMED).map(|n| self.closed(n)).collect();
        let noun = if shut.len() == 1 { "Run window" } else { "Run windows" };
        let verb = if shut.len() == 1 { "is" } else { "are" };
        let key: Vec<Name> = all.iter().map(|n| Name::from(*n)).collect();
        let together = match self.run_windows.together.get(&key).copied().flatten() {
            Some(at) => {
                let slot = self.run_windows.all.get(*first);
                format!(
                    "all {} that apply are open next at {}",
                    all.len(),
                    slot.map_or(String::new(), |s| s.text(at))
                )
            }
            None => format!(
                "as far as can be seen the {} that apply ({}) are never open together",
                all.len(),
                all.join(", ")
            ),
        };
        Some((OUTSIDE, format!("{noun} {} {verb} closed; {together}", list.join(", "))))
    }

    /// Finds out when the windows of a workload are open together, for what will be said of it.
    pub(crate) fn look_for_opening(&mut self, id: WorkloadId) {
        let Some(wl) = self.wl(id).filter(|w| self.outside_run_window(w)) else { return };
        let mut key: Vec<Name> = self.windows_of(wl).map(Name::from).collect();
        key.sort_unstable();
        key.dedup();
        if key.len() < 2 || self.run_windows.together.contains_key(&key) {
            return;
        }
        let found = self.open_together(&key);
        self.run_windows.together.insert(key, found);
    }

    /// When all windows of a workload are open next; `None`: that is not known.
    pub(crate) fn next_opening(&self, wl: &WorkloadInfo) -> Option<Time> {
        let names: Vec<Name> = self.windows_of(wl).map(Name::from).collect();
        self.open_together(&names)
    }

    fn open_together(&self, names: &[Name]) -> Option<Time> {
        let slots: Vec<&Slot> = names.iter().map(|n| self.run_windows.all.get(n)).collect::<Option<_>>()?;
        let mut at = slots.iter().filter(|s| !s.hours.open).map(|s| s.hours.change).max()??;
        for _ in 0..MAX_OPENINGS {
            let mut later = at;
            for slot in &slots {
                let hours = slot.spec.calendar.as_ref()?.at(at);
                if !hours.open {
                    later = later.max(hours.change?);
                }
            }
            if later == at {
                return Some(at);
            }
            at = later;
        }
        None
    }

    /// Why a flavor is not given, for the message of a workload that could use it.
    pub(crate) fn shut_flavor_text(&self, flavor: FlavorId) -> Option<String> {
        let windows = self.run_windows.flavors.get(&flavor)?;
        let shut: Vec<String> = windows
            .iter()
            .filter(|n| !self.run_windows.is_open(n))
            .take(NAMED)
            .map(|n| self.closed(n))
            .collect();
        let noun = if shut.len() == 1 { "run window" } else { "run windows" };
        let name = self.ids.flavor_name(flavor);
        (!shut.is_empty()).then(|| format!("flavor {name} is outside {noun} {}", shut.join(", ")))
    }

    /// Why the flavors of a workload's ClusterQueue that windows close are not given.
    pub(crate) fn shut_flavors_text(&self, wl: &WorkloadInfo) -> Option<String> {
        let cq = self.lq(wl.lq()).cq?;
        let flavors = self.cq(cq).rules.groups.iter().flat_map(|g| &g.flavors);
        let texts: Vec<String> = flavors.filter_map(|&f| self.shut_flavor_text(f)).collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    }

    fn flavors_held(wl: &WorkloadInfo) -> impl Iterator<Item = FlavorId> {
        wl.total_requests().iter().flat_map(|t| &t.flavors).map(|(_, f)| *f)
    }

    /// Windows that what a workload holds depends on.
    fn windows_held<'a>(&'a self, wl: &'a WorkloadInfo) -> impl Iterator<Item = &'a str> {
        let flavors = Self::flavors_held(wl).filter_map(|f| self.run_windows.flavors.get(&f)).flatten();
        self.windows_of(wl).chain(flavors.map(|n| &**n))
    }

    /// When a running workload has to stop if nothing opens before, and what is said then.
    fn has_to_stop(&self, wl: &WorkloadInfo) -> Option<(Time, String)> {
        // Stopping a plain pod means deleting it: that is not what a pause is.
        let pods = |(kind, _): &(TargetKind, String)| matches!(kind, TargetKind::Pod | TargetKind::PodGroup);
        if wl.obj.answers_to.iter().any(pods) {
            return None;
        }
        let admitted = wl.obj.status.condition(cond::ADMITTED).filter(|c| c.status)?.transition;
        let shut = self
            .windows_held(wl)
            .filter_map(|n| Some((n, self.run_windows.all.get(n)?)))
            .filter(|(_, s)| !s.hours.open && !s.spec.finish && s.spec.invalid.is_empty());
        let due = shut.map(|(name, s)| {
            let closed = s.hours.since.map_or(s.spec.creation, |t| t.max(s.spec.creation));
            (closed.plus(s.spec.grace).max(admitted.plus(s.spec.min_run)), name)
        });
        let (at, name) = due.min()?;
        Some((at, format!("The workload is suspended outside run window {}", self.closed(name))))
    }

    /// Stops what runs outside, and takes back reservations that have not started anything; whether a write was made.
    pub(crate) fn reconcile_windows(&mut self, id: WorkloadId, now: Time) -> bool {
        if self.run_windows.all.is_empty() && self.run_windows.named.is_empty() {
            return false;
        }
        let Some(wl) = self.wl(id) else { return true };
        let status = &wl.obj.status;
        if status.is_true(cond::EVICTED) {
            return false;
        }
        match Phase::of(status) {
            Phase::Reserved => {
                let why = self.run_window_reason(wl).or_else(|| {
                    let texts: Vec<_> =
                        Self::flavors_held(wl).filter_map(|f| self.shut_flavor_text(f)).collect();
                    texts.into_iter().next().map(|text| (OUTSIDE, text))
                });
                let Some((reason, message)) = why else { return false };
                let explicit = self.config.gates.explicit_status;
                let events = self.held_back_event(id, reason, &message).into_iter().collect();
                self.edit(id, now, events, |e| {
                    // What they have provided for it may be gone when the window opens.
                    e.reset_checks();
                    e.unset_reservation(explicit, reason, &message);
                })
            }
            Phase::Admitted => {
                let Some((at, message)) = self.has_to_stop(wl) else { return false };
                if at > now {
                    self.timers.workloads.insert((at, id));
                    return false;
                }
                self.evict(id, (OUTSIDE, ""), &message, Reporter::WorkloadController, now)
            }
            Phase::Pending | Phase::Finished => false,
        }
    }
}
