//! Reload: other plugins, arguments and weights for the profiles of a running scheduler.
//!
//! kube-scheduler reads its configuration once. Here the queue, the cluster and what is reserved stay, and every pod is
//! decided by one version: a reload happens between two cycles, and a pod that was assumed before it is bound, or
//! unreserved, by the plugins that reserved its node.

use std::sync::Arc;

use plimsoll_state::cast::index32;
use plimsoll_state::intern::Interner;

use super::framework::{ExtensionPoint, PluginNames, Profile};
use super::queue::Stage;
use super::runner::Runner;
use super::{Config, Scheduler};

impl Config {
    /// Whether a plugin reads whole objects: the host gives them with the events of nodes and pods then
    /// ([`EncodedObject`](plimsoll_state::model::EncodedObject)).
    pub fn reads_objects(&self) -> bool {
        let made = Runner::all(&self.profiles, &self.extenders, &mut Interner::default(), None);
        Runner::read_objects(&made)
    }
}

impl Scheduler {
    /// Why these profiles can't replace the present ones without a restart; `None`: they can.
    pub fn reload_problem(&self, profiles: &[Profile]) -> Option<String> {
        let names = |profiles: &[Profile]| -> Vec<String> {
            profiles.iter().map(|p| p.scheduler_name.clone()).collect()
        };
        let (old, new) = (names(&self.config.profiles), names(profiles));
        if old != new {
            let shown = |names: &[String]| names.join(", ");
            return Some(format!(
                "profiles: the schedulers are {} and can't become {} without a restart",
                shown(&old),
                shown(&new)
            ));
        }
        let sorts = |profiles: &[Profile]| {
            let first = profiles.first()?.plugins.at(ExtensionPoint::QueueSort).first()?;
            Some(first.0.name().to_owned())
        };
        if sorts(&self.config.profiles) != sorts(profiles) {
            return Some(
                "plugins.queueSort: another plugin can't sort the queue without a restart".to_owned(),
            );
        }
        // Objects are kept from their first event on, or not at all.
        let made = Runner::all(profiles, &self.config.extenders, &mut Interner::default(), None);
        let mut plugins = made.iter().flat_map(|runner| runner.plugins.iter().map(move |p| (runner, p)));
        let reader = plugins.find(|(_, made)| made.plugin.reads_objects() && !self.cluster.sources.keep);
        reader.map(|(runner, made)| {
            let name = runner.names.of(made.id);
            format!(
                "plugin {name:?} reads whole objects, which are kept only from a start with such a plugin on"
            )
        })
    }

    /// How often the plugins were replaced.
    pub fn reloads(&self) -> u64 {
        self.reloads
    }

    /// Replaces the profiles before the next cycle. Profiles with a [`Scheduler::reload_problem`] change nothing.
    pub(super) fn reload(&mut self, profiles: Vec<Profile>) {
        self.pending_reload = Some(profiles);
        self.reload_pending();
    }

    /// Carries out a reload unless a cycle is under way that waits for extenders.
    pub(super) fn reload_pending(&mut self) {
        if self.pending_reload.is_some() && self.extending.is_none() && self.group_cycle.is_empty() {
            self.reload_now();
        }
    }

    #[cold]
    fn reload_now(&mut self) {
        let Some(profiles) = self.pending_reload.take() else { return };
        if self.reload_problem(&profiles).is_some() {
            return;
        }
        let before: Option<Arc<PluginNames>> = self.runners.first().map(|r| Arc::clone(&r.names));
        // Strings that nothing holds are forgotten first: those that are left are pinned, for the plugins keep theirs.
        self.sweep_now();
        let new =
            Runner::all(&profiles, &self.config.extenders, &mut self.cluster.strings, before.as_deref());
        self.cluster.strings.pin();
        self.cluster.sources.keys = Runner::node_annotations(&new);
        self.retire(new);
        self.config.profiles = profiles;
        self.registered.clear();
        let names = self.runners.first().map_or(0, |r| r.names.len());
        let sort = self.runners.first().and_then(Runner::queue_sort);
        self.queue.set_plugins(names, sort);
        self.reloads += 1;
        // Other plugins may take what these rejected.
        self.node_freed();
        self.allow_orphans();
        self.in_flight_events.values_mut().for_each(super::in_flight::InFlightEvents::anything);
        for (id, stage) in self.queue.all() {
            match stage {
                Stage::InFlight => {}
                Stage::Gated(_) => self.admit(id),
                Stage::Unschedulable => self.retry(id),
                Stage::Active | Stage::Backoff | Stage::ErrorBackoff => self.admit_to(id, stage),
            }
        }
    }

    /// Puts the new runners in place. Those before them stay, behind, for the pods that are assumed.
    fn retire(&mut self, new: Vec<Runner>) {
        let count = new.len();
        let old = std::mem::replace(&mut self.runners, new);
        let mut places: Vec<Option<u32>> = vec![None; old.len()];
        let mut next = index32(count);
        for id in self.reservations.assumed_pods() {
            let Some(row) = self.reservations.assumed_mut(id) else { continue };
            let Some(place) = places.get_mut(row.profile()) else { continue };
            let at = *place.get_or_insert(next);
            next = next.max(at + 1);
            row.set_profile(at);
        }
        let used = places.into_iter().zip(old).filter_map(|(place, runner)| Some((place?, runner)));
        let mut kept: Vec<(u32, Runner)> = used.collect();
        kept.sort_by_key(|(place, _)| *place);
        self.runners.extend(kept.into_iter().map(|(_, runner)| runner));
    }

    /// Pods that wait on Permit for a plugin that is no more are allowed by it: no other plugin would.
    fn allow_orphans(&mut self) {
        let Some(names) = self.runners.first().map(|r| Arc::clone(&r.names)) else { return };
        let is_used = |id| self.current().iter().any(|r| r.plugin(id).is_some());
        let gone: Vec<_> = names.ids().filter(|id| !is_used(*id)).collect();
        for pod in self.waiting.pods() {
            gone.iter().for_each(|plugin| self.waiting.allow(pod, *plugin));
        }
        self.run_deferred_calls();
    }

    /// The profiles as they are now, without those that only bind what they have assumed.
    pub(super) fn current(&self) -> &[Runner] {
        self.runners.get(..self.config.profiles.len()).unwrap_or(&self.runners)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{busy_history, related_history};
    use super::super::{Action, Config, Event as Answer, FeatureGates, PluginRef, PluginSet, UserPlugins};
    use super::super::{Registry, Scheduler};
    use crate::framework::Profile;
    use crate::testing::Event;
    use plimsoll_state::time::Time;

    /// The default plugins, with another weight.
    fn weighted(weight: i32) -> Vec<Profile> {
        let mut user = UserPlugins::default();
        user.multi_point.enabled.push(PluginRef { name: "ImageLocality".to_owned(), weight });
        let plugins = PluginSet::new(&Registry::in_tree(), &user, &FeatureGates::default()).expect("valid");
        vec![Profile { plugins, ..Profile::default() }]
    }

    fn actions(mut p: Scheduler, history: Vec<Vec<Event>>) -> Vec<Action> {
        let mut out = Vec::new();
        for (at, events) in history.into_iter().enumerate() {
            let now = Time::from_seconds(at as i64 / 3);
            events.into_iter().for_each(|event| p.apply(now, event));
            if at % 17 == 5 {
                p.handle(now, Answer::Reload(weighted(at as i32 % 4)));
            }
            p.decide(now, &mut |a| out.push(a));
            p.check();
        }
        assert!(p.reloads() > 5);
        out
    }

    #[test]
    fn ranks_follow_reloads() {
        for seed in 0..4 {
            for history in [busy_history(seed, 200), related_history(seed, 200)] {
                let ranked = actions(Scheduler::new(Config::default()), history.clone());
                let plain = actions(Scheduler::new(Config::default()).without_ranks(), history);
                assert!(ranked == plain, "seed {seed}");
            }
        }
    }
}
