//! Permit: its results, and the pods that wait on it (upstream `framework/runtime/waiting_pods_map.go`).

use super::{Code, PluginId, PluginNames, Status};
use crate::cluster::PodId;
use plimsoll_state::time::{Duration, Time};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// Longest wait that a plugin may ask for (framework runtime `maxTimeout`).
pub const MAX_WAIT: Duration = Duration::from_seconds(15 * 60);

/// Outcome of Permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermitResult {
    /// The pod may be bound.
    Allow,
    /// The pod is held, assumed on its node, until the plugin allows it or the time is up.
    Wait(Duration),
    /// The pod is not to run there: a rejection or an error.
    Reject(Status),
}

/// How waiting at Permit ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    /// All plugins that asked to wait have allowed the pod.
    Allowed,
    /// A plugin has rejected it, or waiting took too long.
    Rejected(Status),
    /// A pod of higher priority preempts it.
    Preempted,
}

impl Released {
    /// The code of `WaitOnPermit`.
    pub const fn code(&self) -> Code {
        match self {
            Self::Allowed => Code::Success,
            Self::Rejected(status) => status.code,
            Self::Preempted => Code::Error,
        }
    }
}

#[derive(Clone, Debug)]
struct Hold {
    plugin: PluginId,
    timeout: Duration,
    deadline: Time,
}

/// A pod that waits, and the plugins that it waits for.
#[derive(Clone, Debug)]
struct Waiting {
    since: Time,
    holds: SmallVec<[Hold; 1]>,
}

/// The pods that wait on Permit, and deferred Allow, Reject and Activate calls of plugins: they are carried out when the
/// plugin's call has ended. The first call for a pod counts, later ones are ignored.
#[derive(Debug, Default)]
pub struct WaitingPods {
    rows: BTreeMap<PodId, Waiting>,
    timers: BTreeSet<(Time, PodId, PluginId)>,
    /// With the time since when the pod has waited.
    released: Vec<(PodId, Released, Time)>,
    activated: Vec<PodId>,
    /// Whether all pods of a group that are in the queue are being scheduled anyway.
    pub in_group_cycle: bool,
}

impl WaitingPods {
    /// Whether no pod waits.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether the pod waits.
    pub fn contains(&self, pod: PodId) -> bool {
        self.rows.contains_key(&pod)
    }

    /// All pods that wait, in order of their numbers (`IterateOverWaitingPods`).
    pub fn pods(&self) -> Vec<PodId> {
        self.rows.keys().copied().collect()
    }

    /// The pods that wait for a plugin, in order of their numbers.
    pub fn held_by(&self, plugin: PluginId) -> Vec<PodId> {
        let held = self.rows.iter().filter(|(_, row)| row.holds.iter().any(|h| h.plugin == plugin));
        held.map(|(pod, _)| *pod).collect()
    }

    /// A plugin allows the pod.
    pub fn allow(&mut self, pod: PodId, plugin: PluginId) {
        let Some(Waiting { since, holds }) = self.rows.get_mut(&pod) else { return };
        let since = *since;
        for hold in holds.iter().filter(|h| h.plugin == plugin) {
            self.timers.remove(&(hold.deadline, pod, plugin));
        }
        holds.retain(|h| h.plugin != plugin);
        if holds.is_empty() {
            self.rows.remove(&pod);
            self.released.push((pod, Released::Allowed, since));
        }
    }

    /// A plugin rejects the pod. False: it does not wait.
    pub fn reject(&mut self, pod: PodId, plugin: PluginId, text: String) -> bool {
        let status = Status::unschedulable(text).by(plugin);
        self.release(pod, Released::Rejected(status))
    }

    /// The pod is a victim of preemption: it is rejected and retried after a backoff. False: it does not wait.
    pub fn preempt(&mut self, pod: PodId) -> bool {
        self.release(pod, Released::Preempted)
    }

    /// The pod is being deleted. False: it does not wait.
    pub fn leave(&mut self, pod: PodId) -> bool {
        self.release(pod, Released::Rejected(Status::unschedulable("removed")))
    }

    fn release(&mut self, pod: PodId, how: Released) -> bool {
        let waited = self.forget(pod);
        self.released.extend(waited.map(|since| (pod, how, since)));
        waited.is_some()
    }

    /// Moves a pod that waits in the queue to its head (`Activate`); PreEnqueue is run as ever.
    pub fn activate(&mut self, pod: PodId) {
        self.activated.push(pod);
    }

    /// A pod begins to wait.
    pub fn hold(&mut self, pod: PodId, now: Time, plugins: &[(PluginId, Duration)]) {
        let hold = |(plugin, timeout): &(PluginId, Duration)| {
            let timeout = (*timeout).min(MAX_WAIT);
            Hold { plugin: *plugin, timeout, deadline: now.plus(timeout) }
        };
        let holds: SmallVec<[Hold; 1]> = plugins.iter().map(hold).collect();
        self.timers.extend(holds.iter().map(|h| (h.deadline, pod, h.plugin)));
        self.rows.insert(pod, Waiting { since: now, holds });
    }

    /// The pod waits no more, and nothing is to happen to it. Since when it has waited; `None`: it did not.
    pub fn forget(&mut self, pod: PodId) -> Option<Time> {
        let Waiting { since, holds } = self.rows.remove(&pod)?;
        for hold in holds {
            self.timers.remove(&(hold.deadline, pod, hold.plugin));
        }
        Some(since)
    }

    /// Rejects the pods whose timeout has passed.
    pub(crate) fn expire(&mut self, now: Time, names: &PluginNames) {
        while let Some((deadline, pod, plugin)) = self.timers.first().copied()
            && deadline <= now
        {
            let mut holds = self.rows.get(&pod).into_iter().flat_map(|row| &row.holds);
            let waited = holds.find(|h| h.plugin == plugin).map_or(Duration::ZERO, |h| h.timeout);
            let (waited, name) = (waited.go_text(), names.of(plugin));
            self.reject(
                pod,
                plugin,
                format!("rejected due to timeout after waiting {waited} at plugin {name}"),
            );
            self.timers.remove(&(deadline, pod, plugin));
        }
    }

    /// When the first pod will have waited for too long.
    pub fn next_deadline(&self) -> Option<Time> {
        self.timers.first().map(|(at, ..)| *at)
    }

    /// Compares the timers with the pods, and calls `pod` for each of them.
    ///
    /// # Panics
    /// When they differ.
    pub fn check(&self, pod: impl Fn(PodId)) {
        let holds = self.rows.iter().flat_map(|(p, r)| r.holds.iter().map(|h| (h.deadline, *p, h.plugin)));
        assert_eq!(holds.collect::<BTreeSet<_>>(), self.timers, "timers of waiting pods");
        assert!(self.released.is_empty() && self.activated.is_empty(), "nothing is left undone");
        self.rows.keys().copied().for_each(pod);
    }

    /// Whether plugins have called for something that is to happen.
    pub(crate) fn has_calls(&self) -> bool {
        !(self.released.is_empty() && self.activated.is_empty())
    }

    /// What is to happen, once: how the waiting of pods ended and since when they waited, and pods to activate.
    pub fn take(&mut self) -> (Vec<(PodId, Released, Time)>, Vec<PodId>) {
        (std::mem::take(&mut self.released), std::mem::take(&mut self.activated))
    }
}
