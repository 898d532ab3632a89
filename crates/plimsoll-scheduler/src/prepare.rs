//! Between Reserve and Bind: devices and volumes that must be written before the pod is bound
//! (Reserve, PreBind and Unreserve of DynamicResources and VolumeBinding, spec sections 5.9 and 5.10).

use super::cluster::{Cluster, NodeId, PodId};
use super::cycle::Cycle;
use super::devices::extended_name;
use super::framework::{FilterState, PluginId};
use super::objects::Assumed;
use super::plugins::{DeviceState, VolumePlan, VolumeState};
use super::{Action, DeviceGrant, Preparation, Scheduler};
use plimsoll_state::time::{Duration, Time};

/// A pod whose preparation is being written, or whose volumes are being bound.
#[derive(Clone, Debug)]
pub(crate) struct Preparing {
    pub what: Preparation,
    deadline: Time,
    /// Whether the writes have been asked for.
    asked: bool,
    /// Whether the writes are done.
    written: bool,
}

fn state<'a, T: 'static>(cycle: &'a Cycle<'_>, plugin: PluginId) -> Option<&'a T> {
    cycle.state(plugin).and_then(FilterState::as_any)?.downcast_ref::<T>()
}

/// Reserve: what must be written before the pod can be bound to the node; `None`: nothing.
///
/// # Errors
/// When the node can't be used after all.
pub(crate) fn reserve(
    cycle: &Cycle<'_>,
    cluster: &Cluster,
    node: NodeId,
) -> Result<Option<Preparation>, String> {
    let mut what = Preparation::default();
    if let Some(volumes) = state::<VolumeState>(cycle, PluginId::VolumeBinding) {
        let text =
            |s: super::framework::Status| reserve_text(PluginId::VolumeBinding, &s.message(&cluster.strings));
        let plan = volumes.plan(cluster, node).map_err(text)?;
        let VolumePlan { bindings, provisions } = plan;
        (what.bindings, what.provisions) = (bindings, provisions);
    }
    if let Some(devices) = state::<DeviceState>(cycle, PluginId::DynamicResources) {
        let text = |t: String| reserve_text(PluginId::DynamicResources, &t);
        (what.devices, what.extended) = devices.grants(cluster, node).map_err(text)?;
    }
    let nothing = what.bindings.is_empty()
        && what.provisions.is_empty()
        && what.devices.is_empty()
        && what.extended.is_none();
    Ok((!nothing).then_some(what))
}

fn reserve_text(plugin: PluginId, text: &str) -> String {
    format!("running Reserve plugin {:?}: {text}", plugin.name())
}

impl Scheduler {
    /// Counts what was reserved.
    pub(super) fn reserve(&mut self, id: PodId, node: NodeId, what: Preparation) {
        let node = self.cluster.strings.text(self.cluster.nodes[node].name).to_owned();
        let objects = &mut self.cluster.objects;
        for grant in what.devices.iter().filter(|g| !g.devices.is_empty()) {
            let key = (self.cluster.strings.intern(&grant.namespace), grant.name.clone());
            objects.devices.in_flight.insert(key, grant.devices.clone());
        }
        if let Some(claim) = &what.extended {
            let pod = &self.cluster.pods[id];
            let key = (self.cluster.shapes.get(pod.shape).namespace, extended_name(&pod.uid));
            objects.devices.in_flight.insert(key, claim.devices.clone());
        }
        for (claim, volume) in &what.bindings {
            objects.assumed.insert(claim.clone(), Assumed::Volume(volume.clone()));
        }
        for claim in &what.provisions {
            objects.assumed.insert(claim.clone(), Assumed::Node(node.clone()));
        }
        self.preparing.insert(id, Preparing { what, deadline: self.now, asked: false, written: false });
    }

    /// PreBind: asks for what was reserved to be written, or for the binding where nothing was.
    pub(super) fn pre_bind(&mut self, id: PodId) {
        let Some(node) = self.cluster.pods[id].node else { return };
        let node = self.cluster.strings.text(self.cluster.nodes[node].name).to_owned();
        let profile = self.queue.get(id).map_or(0, |q| q.profile) as usize;
        let seconds = self.runners.get(profile).map_or(600, |r| r.profile.args.bind_timeout_seconds);
        let Some(p) = self.preparing.get_mut(&id) else { return self.bind(id, node) };
        p.deadline = self.now.plus(Duration::from_seconds(seconds));
        p.asked = true;
        let what = Box::new(p.what.clone());
        let pod = self.pod_ref(id);
        self.outbox.push(Action::Prepare { pod, node, what });
    }

    /// Whether a pod waits for its volumes, so that it can make room without being deleted.
    pub(super) fn can_cancel(&self, id: PodId) -> bool {
        self.preparing.get(&id).is_some_and(|p| p.written)
    }

    /// The writes are done: bind, or wait for the volumes.
    pub(super) fn prepared(&mut self, uid: &str) {
        let Some(id) = self.cluster.pod_by_uid(uid) else { return };
        if let Some(p) = self.preparing.get_mut(&id).filter(|p| p.asked) {
            p.written = true;
            self.bind_prepared(id);
        }
    }

    /// Binds the pod if everything it waits for is there.
    fn bind_prepared(&mut self, id: PodId) {
        let Some(p) = self.preparing.get(&id) else { return };
        let claims = p.what.bindings.iter().map(|(c, _)| c).chain(&p.what.provisions);
        let bound = |(namespace, name): &(String, String)| {
            let namespace = self.cluster.strings.get(namespace);
            let claim = namespace.and_then(|ns| self.cluster.objects.claim(ns, name));
            claim.is_some_and(|c| c.raw.bind_completed && !c.raw.volume_name.is_empty())
        };
        if !p.written || !claims.into_iter().all(bound) {
            return;
        }
        let Some(node) = self.cluster.pods[id].node else { return };
        // Devices stay reserved until the claim's allocation is seen; volumes are bound by now.
        if let Some(p) = self.preparing.remove(&id) {
            self.forget_volumes(&p.what);
        }
        let node = self.cluster.strings.text(self.cluster.nodes[node].name).to_owned();
        self.bind(id, node);
    }

    fn forget_volumes(&mut self, what: &Preparation) {
        let claims = what.bindings.iter().map(|(c, _)| c).chain(&what.provisions);
        for claim in claims {
            self.cluster.objects.assumed.remove(claim);
        }
    }

    /// Unreserve: takes back what was counted for a pod. Says which plugin had work.
    pub(super) fn unreserve(&mut self, id: PodId) -> Option<PluginId> {
        let p = self.preparing.remove(&id)?;
        self.forget_volumes(&p.what);
        for grant in p.what.devices.iter().filter(|g| !g.devices.is_empty()) {
            let key = (self.cluster.strings.intern(&grant.namespace), grant.name.clone());
            self.cluster.objects.devices.in_flight.remove(&key);
        }
        if p.what.extended.is_some() {
            let key = (self.cluster.shape(id).namespace, extended_name(&self.cluster.pods[id].uid));
            self.cluster.objects.devices.in_flight.remove(&key);
        }
        let volumes = !p.what.bindings.is_empty() || !p.what.provisions.is_empty();
        Some(if volumes && p.written { PluginId::VolumeBinding } else { PluginId::DynamicResources })
    }

    /// A claim changed: pods may have waited for its volume.
    pub(super) fn claim_seen(&mut self) {
        let mut waiting: Vec<PodId> = self.preparing.keys().copied().collect();
        waiting.sort_unstable();
        for id in waiting {
            self.bind_prepared(id);
        }
    }

    /// Gives up on pods whose volumes were not bound in time.
    pub(super) fn give_up_waiting(&mut self) {
        let late = |p: &Preparing| p.written && self.now >= p.deadline;
        let mut ids: Vec<PodId> = self.preparing.iter().filter(|(_, p)| late(p)).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        for id in ids {
            let uid = self.cluster.pods[id].uid.clone();
            self.bind_failed(&uid, "binding volumes: context deadline exceeded");
        }
    }

    /// When the first pod gives up waiting for its volumes.
    pub(super) fn next_give_up(&self) -> Option<Time> {
        self.preparing.values().filter(|p| p.written).map(|p| p.deadline).min()
    }
}

impl DeviceGrant {
    /// Whether it only reserves a claim that has its devices already.
    pub fn is_reservation(&self) -> bool {
        self.devices.is_empty()
    }
}
