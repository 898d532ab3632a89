//! PreBind: what must be written before a pod is bound, and waiting until it has taken effect
//! (upstream `bindingCycle` in `schedule_one.go`, and PreBind of DynamicResources and VolumeBinding).

use super::cluster::devices::{InFlight, extended_name};
use super::cluster::objects::{Assumed, Claim, Volume};
use super::cluster::{NodeId, Pair, PodId};
use super::framework::{PluginId, PreBindResult};
use super::metrics::Unmetered;
use super::work::PreBindWork;
use super::{Action, Map, Scheduler};
use plimsoll_state::intern::Sym;
use plimsoll_state::time::Time;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Of pods for which nothing must be written before they are bound.
static NO_WORK: PreBindWork =
    PreBindWork { devices: Vec::new(), extended: None, bindings: Vec::new(), provisions: Vec::new() };

/// What VolumeBinding does in PreBind, in messages.
pub(crate) const BINDING_VOLUMES: &str = "binding volumes";

/// A pod in PreBind.
#[derive(Clone, Debug)]
pub(crate) struct PreBinding {
    work: PreBindWork,
    /// Plugins that put something into `work`.
    writers: SmallVec<[PluginId; 2]>,
    /// When PreBind began.
    began: Time,
    stage: Stage,
    /// What has gone wrong, while the rest is being written, with claims and volumes that were written already: by their name.
    failed: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
enum Stage {
    /// Permit comes first.
    Reserved,
    /// The work is being written.
    Writing,
    /// A plugin waits until this time for an operation.
    Waiting { plugin: PluginId, deadline: Time, operation: &'static str },
}

/// All that is in PreBind.
#[derive(Clone, Debug, Default)]
pub(crate) struct InPreBind {
    pub(crate) pods: Map<PodId, PreBinding>,
    /// Work that is being written for pods that are gone, by their UID, with their namespace. What it gives away is not free
    /// before the answer: the claim may get its devices although its pod is gone.
    left: BTreeMap<String, (String, PreBindWork)>,
}

impl PreBinding {
    /// The plugin that fails when PreBind fails now.
    fn plugin(&self) -> Option<PluginId> {
        match self.stage {
            Stage::Waiting { plugin, .. } => Some(plugin),
            Stage::Reserved | Stage::Writing => self.writers.last().copied(),
        }
    }

    /// Whether work of this kind is being written.
    fn is_written(&self, concerns: &impl Fn(&PreBindWork) -> bool) -> bool {
        matches!(self.stage, Stage::Writing) && concerns(&self.work)
    }

    fn deadline(&self) -> Option<(Time, &'static str)> {
        match self.stage {
            Stage::Waiting { deadline, operation, .. } => Some((deadline, operation)),
            Stage::Reserved | Stage::Writing => None,
        }
    }
}

impl Scheduler {
    /// Counts what Reserve has given to a pod.
    pub(super) fn reserve_work(
        &mut self,
        id: PodId,
        node: NodeId,
        work: PreBindWork,
        writers: SmallVec<[PluginId; 2]>,
    ) {
        let node = self.cluster.strings.text(self.cluster.nodes[node].name).to_owned();
        let objects = &mut self.cluster.objects;
        for grant in work.devices.iter().filter(|g| !g.devices.is_empty()) {
            let key = (self.cluster.strings.intern(&grant.namespace), grant.name.clone());
            let given =
                InFlight { uid: grant.uid.clone(), devices: grant.devices.clone(), ..InFlight::default() };
            objects.devices.give(key, given);
        }
        if let Some(claim) = &work.extended {
            let pod = &self.cluster.pods[id];
            let key = (self.cluster.shapes.get(pod.shape).namespace, extended_name(&pod.uid));
            let given = InFlight {
                uid: pod.uid.to_string(),
                replaces: claim.stale.clone(),
                devices: claim.devices.clone(),
            };
            objects.devices.give(key, given);
        }
        for (claim, volume) in &work.bindings {
            objects.assumed.insert(claim.clone(), Assumed::Volume(volume.clone()));
        }
        for claim in &work.provisions {
            objects.assumed.insert(claim.clone(), Assumed::Node(node.clone()));
        }
        let row =
            PreBinding { work, writers, began: self.now, stage: Stage::Reserved, failed: BTreeMap::new() };
        self.pre_binding.pods.insert(id, row);
    }

    /// PreBind: asks for the work to be written, or runs the plugins where there is none.
    pub(super) fn pre_bind(&mut self, id: PodId) {
        let now = self.now;
        let Some(row) = self.pre_binding.pods.get_mut(&id) else { return self.run_pre_bind(id) };
        let Some(node) = self.cluster.pods[id].node else { return };
        (row.began, row.stage) = (now, Stage::Writing);
        let what = Box::new(row.work.clone());
        let node = self.cluster.strings.text(self.cluster.nodes[node].name).to_owned();
        if let Some(assumed) = self.reservations.assumed_mut(id) {
            assumed.reserves(&what.devices);
        }
        self.expect_binding(id);
        let pod = self.pod_ref(id);
        self.outbox.push(Action::Prepare { pod, node, what });
    }

    /// The work is written.
    pub(super) fn prepared(&mut self, uid: &str) {
        self.left_work_answered(uid, true);
        let Some(id) = self.cluster.pod_by_uid(uid) else { return };
        let Some(row) = self.pre_binding.pods.get(&id).filter(|r| matches!(r.stage, Stage::Writing)) else {
            return;
        };
        match row.failed.values().next() {
            None => self.run_pre_bind(id),
            Some(text) => {
                let text = format!("{BINDING_VOLUMES}: {text}");
                self.bind_failed(uid, &text);
            }
        }
    }

    /// PreBind of the plugins, the work being written: binds the pod, or lets it wait.
    fn run_pre_bind(&mut self, id: PodId) {
        let Some((runner, assumed)) = self.assumed(id) else { return };
        let row = self.pre_binding.pods.get(&id);
        let work = row.map_or(&NO_WORK, |r| &r.work);
        if assumed.measured {
            return self.run_measured_pre_bind(id);
        }
        let (held, began) = (runner.run_pre_bind_plugins(&Unmetered, &assumed, work), row.map(|r| r.began));
        self.pre_bind_ran(id, held, began);
    }

    #[cold]
    fn run_measured_pre_bind(&mut self, id: PodId) {
        let Some((runner, assumed)) = self.assumed(id) else { return };
        let row = self.pre_binding.pods.get(&id);
        let work = row.map_or(&NO_WORK, |r| &r.work);
        let held = match self.meter_of(&assumed) {
            None => runner.run_pre_bind_plugins(&Unmetered, &assumed, work),
            Some(meter) => runner.run_pre_bind_plugins(&meter, &assumed, work),
        };
        let began = row.map(|r| r.began);
        self.pre_bind_ran(id, held, began);
    }

    /// PreBind came to this. `began`: when PreBind began, if there was work for it or the pod waits in it.
    #[inline(always)]
    fn pre_bind_ran(&mut self, id: PodId, held: Option<(PluginId, PreBindResult)>, began: Option<Time>) {
        match held {
            None | Some((_, PreBindResult::Success)) => {
                // Devices stay reserved until the claim's allocation is seen; volumes are bound by now.
                if began.is_some()
                    && let Some(row) = self.pre_binding.pods.remove(&id)
                {
                    self.forget_volumes(&row.work);
                }
                self.bind(id);
            }
            Some((plugin, PreBindResult::Wait { timeout, operation })) => {
                let began = began.unwrap_or(self.now);
                let stage = Stage::Waiting { plugin, deadline: began.plus(timeout), operation };
                let (work, writers) = (PreBindWork::default(), SmallVec::new());
                let new = PreBinding { work, writers, began, stage: stage.clone(), failed: BTreeMap::new() };
                self.pre_binding.pods.entry(id).or_insert(new).stage = stage;
                self.expect_binding(id);
            }
            Some((plugin, PreBindResult::Reject(status))) => {
                let Some((runner, _)) = self.assumed(id) else { return };
                let text = runner.error_text(&self.cluster, &status.by(plugin), "PreBind");
                let uid = self.cluster.pods[id].uid.clone();
                self.unbind(&uid, &text, false);
            }
        }
    }

    /// Whether a pod waits in PreBind: as a victim of preemption it is not deleted.
    pub(super) fn can_cancel(&self, id: PodId) -> bool {
        self.pre_binding.pods.get(&id).is_some_and(|r| r.deadline().is_some())
    }

    /// Ends the waiting of a pod in PreBind (`text`: why); the attempt has failed.
    pub(super) fn end_pre_bind(&mut self, id: PodId, text: &str) {
        let Some((_, operation)) = self.pre_binding.pods.get(&id).and_then(PreBinding::deadline) else {
            return;
        };
        let uid = self.cluster.pods[id].uid.clone();
        self.bind_failed(&uid, &format!("{operation}: {text}"));
    }

    /// Ends the waiting of pods for a claim that will not be bound as they expect (upstream `checkBindings` in
    /// `plugins/volumebinding/binder.go`, which looks at the state; here the change tells that it was written before).
    pub(super) fn claim_changed(&mut self, (old, new): &Pair<Claim>) {
        let Some(old) = old else { return };
        let (namespace, name) = (&old.raw.namespace, &old.raw.name);
        let concerns = |work: &PreBindWork| work.volume_claims().any(|(ns, n)| ns == namespace && n == name);
        match new {
            Some(new) if new.raw.uid == old.raw.uid => {
                let (was, is) = (old.raw.selected_node.as_deref(), new.raw.selected_node.as_deref());
                if was == is || new.raw.bind_completed {
                    return;
                }
                let text = format!("provisioning failed for PVC {name:?}");
                self.selection_changed(&concerns, &format!("{namespace}/{name}"), (was, is), &text);
                if was.is_some() {
                    self.end_waiting_for(concerns, &text);
                }
            }
            _ => {
                let text = format!(
                    "failed to check binding: could not find v1.PersistentVolumeClaim \"{namespace}/{name}\""
                );
                self.fail_writing(&concerns, name, &text);
                self.end_waiting_for(concerns, &text);
            }
        }
    }

    /// A claim is to be provisioned for another node than before. For a pod that is still being written, it counts when that was its own:
    /// then it was written, and refused. An earlier attempt may have chosen others.
    fn selection_changed(
        &mut self,
        concerns: &impl Fn(&PreBindWork) -> bool,
        claim: &str,
        (was, is): (Option<&str>, Option<&str>),
        text: &str,
    ) {
        let cluster = &self.cluster;
        for (id, row) in self.pre_binding.pods.iter_mut().filter(|(_, row)| row.is_written(concerns)) {
            let own = cluster.pods[*id].node.map(|node| cluster.strings.text(cluster.nodes[node].name));
            if is == own {
                row.failed.remove(claim);
            } else if was == own {
                row.failed.insert(claim.to_owned(), text.to_owned());
            }
        }
    }

    /// What was written for pods is gone, while the rest is being written.
    fn fail_writing(&mut self, concerns: &impl Fn(&PreBindWork) -> bool, name: &str, text: &str) {
        for row in self.pre_binding.pods.values_mut().filter(|row| row.is_written(concerns)) {
            row.failed.insert(name.to_owned(), text.to_owned());
        }
    }

    /// The same for a volume.
    pub(super) fn volume_changed(&mut self, (old, new): &Pair<Volume>) {
        let Some(old) = old else { return };
        let name = &old.raw.name;
        let text = match new {
            Some(new) if old.raw.claim.is_none() || new.raw.claim.is_some() => return,
            Some(_) => format!("ClaimRef got reset for pv {name:?}"),
            None => format!("failed to check binding: could not find v1.PersistentVolume {name:?}"),
        };
        let concerns = |work: &PreBindWork| work.bindings.iter().any(|(_, volume)| volume == name);
        self.fail_writing(&concerns, name, &text);
        self.end_waiting_for(concerns, &text);
    }

    fn end_waiting_for(&mut self, concerns: impl Fn(&PreBindWork) -> bool, text: &str) {
        let waits =
            |(id, r): (&PodId, &PreBinding)| (r.deadline().is_some() && concerns(&r.work)).then_some(*id);
        let mut ids: Vec<PodId> = self.pre_binding.pods.iter().filter_map(waits).collect();
        ids.sort_unstable();
        for id in ids {
            self.end_pre_bind(id, text);
        }
    }

    fn forget_volumes(&mut self, work: &PreBindWork) {
        for claim in work.volume_claims() {
            self.cluster.objects.assumed.remove(claim);
        }
    }

    /// Drops what Reserve has given to a pod. Returns the plugin whose PreBind has not ended.
    pub(super) fn release_work(&mut self, id: PodId) -> Option<PluginId> {
        let row = self.pre_binding.pods.remove(&id)?;
        let uid = self.cluster.pods[id].uid.clone();
        let namespace = self.cluster.shape(id).namespace;
        self.give_up(&row.work, &uid, namespace);
        row.plugin()
    }

    /// As [`Scheduler::release_work`] for a pod that is gone: what is being written for it is kept until the answer. Upstream's
    /// binding cycle goes on, too, and drops it in Unreserve.
    pub(super) fn leave_work(&mut self, id: PodId) {
        let writing = |r: &PreBinding| matches!(r.stage, Stage::Writing);
        if !self.pre_binding.pods.get(&id).is_some_and(writing) {
            self.release_work(id);
            return;
        }
        let Some(row) = self.pre_binding.pods.remove(&id) else { return };
        let namespace = self.cluster.strings.text(self.cluster.shape(id).namespace).to_owned();
        self.pre_binding.left.insert(self.cluster.pods[id].uid.to_string(), (namespace, row.work));
    }

    /// Another scheduler has bound a pod that is in PreBind: its attempt ends with Unreserve, as upstream's does when Bind is
    /// refused (`handleBindingCycleError` in `schedule_one.go`).
    pub(super) fn leave_pre_bind(&mut self, id: PodId) {
        if !self.pre_binding.pods.contains_key(&id) {
            return;
        }
        if let Some(assumed) = self.reservations.end_assumed(id) {
            self.unreserve(id, Some(&assumed));
        }
        self.leave_work(id);
    }

    /// The answer to what was written for a pod that is gone.
    pub(super) fn left_work_answered(&mut self, uid: &str, written: bool) {
        let Some((namespace, work)) = self.pre_binding.left.remove(uid) else { return };
        if written {
            // Devices stay reserved until the claim's allocation is seen.
            self.forget_volumes(&work);
        } else {
            let namespace = self.cluster.strings.intern(&namespace);
            self.give_up(&work, uid, namespace);
        }
    }

    fn give_up(&mut self, work: &PreBindWork, uid: &str, namespace: Sym) {
        self.forget_volumes(work);
        for grant in work.devices.iter().filter(|g| !g.devices.is_empty()) {
            let key = (self.cluster.strings.intern(&grant.namespace), grant.name.clone());
            self.cluster.objects.devices.confirm(&key, &grant.uid);
        }
        if work.extended.is_some() {
            self.cluster.objects.devices.confirm(&(namespace, extended_name(uid)), uid);
        }
    }

    /// Runs PreBind again for the pods that wait in it: something that they wait for may have come.
    #[inline]
    pub(super) fn retry_pre_bind(&mut self) {
        if !self.pre_binding.pods.is_empty() {
            self.retry_waiting();
        }
    }

    #[cold]
    fn retry_waiting(&mut self) {
        let waits = |(id, r): (&PodId, &PreBinding)| r.deadline().map(|_| *id);
        let mut ids: Vec<PodId> = self.pre_binding.pods.iter().filter_map(waits).collect();
        ids.sort_unstable();
        for id in ids {
            self.run_pre_bind(id);
        }
    }

    /// Ends the waiting of pods whose time is up.
    pub(super) fn expire_pre_bind(&mut self) {
        let now = self.now;
        let late = |(id, r): (&PodId, &PreBinding)| r.deadline().filter(|(d, _)| now >= *d).map(|_| *id);
        let mut ids: Vec<PodId> = self.pre_binding.pods.iter().filter_map(late).collect();
        ids.sort_unstable();
        for id in ids {
            self.end_pre_bind(id, "context deadline exceeded");
        }
    }

    /// When the time of the first pod that waits in PreBind is up.
    pub(super) fn next_pre_bind_deadline(&self) -> Option<Time> {
        self.pre_binding.pods.values().filter_map(|r| Some(r.deadline()?.0)).min()
    }
}

#[cfg(test)]
#[path = "pre_bind_tests.rs"]
mod tests;
