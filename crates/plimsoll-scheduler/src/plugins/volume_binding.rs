//! VolumeBinding: claims that are bound, can be bound, or can be provisioned on a node
//! (upstream `plugins/volumebinding`).

mod args;

use self::args::VolumeBindingArgs;
use super::volume_limits::not_owner;
use super::volumes::{
    claim_change, claim_name, find, is_for, is_own_claim, to_come, uses_volumes, waits_for_consumer,
};
use crate::PreBindWork;
use crate::cluster::objects::{Assumed, Claim, ObjectChange, Volume};
use crate::cluster::to_come::is_to_come;
use crate::cluster::{Cluster, NodeId, PodId};
use crate::events::{ActionType, ClusterEvent, ClusterEventWithHint, EventResource, Payload};
use crate::framework::{
    AssumedPod, Code, CycleState, ExtensionPoint, FilterState, Incoming, Plugin, PreBindResult,
    PreFilterResult, Reason, Registration, Status,
};
use crate::pre_bind::BINDING_VOLUMES;
use plimsoll_state::model::VolumeSource;
use plimsoll_state::time::Duration;
use smallvec::SmallVec;
use std::rc::Rc;
use std::sync::Arc;

const NODE_CONFLICT: &str = "node(s) didn't match PersistentVolume's node affinity";
const BIND_CONFLICT: &str = "node(s) didn't find available persistent volumes to bind";
const NO_SPACE: &str = "node(s) did not have enough free storage";
const VOLUME_GONE: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
const IMMEDIATE: &str = "pod has unbound immediate PersistentVolumeClaims";
/// Provisioner of classes that make no volumes.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// The plugin; knows how long volumes may take to be bound.
#[derive(Debug)]
pub(crate) struct VolumeBinding {
    timeout: Duration,
}

impl VolumeBinding {
    pub(crate) fn new(args: &VolumeBindingArgs) -> Self {
        Self { timeout: Duration::from_seconds(args.bind_timeout_seconds) }
    }
}

/// The pod's claims.
#[derive(Debug)]
struct State {
    /// The volumes of bound claims, as far as they are there.
    bound: Vec<Option<Arc<Volume>>>,
    /// Unbound claims whose class waits for a pod.
    waiting: Vec<Arc<Claim>>,
}

/// What would be done for a pod on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Plan {
    /// Claims (namespace, name) and the volumes to bind them to.
    bindings: Vec<((String, String), String)>,
    /// Claims (namespace, name) for which volumes are to be made.
    provisions: Vec<(String, String)>,
}

fn reject(text: String) -> Status {
    Status::unresolvable(text)
}

/// Checks the claims of a pod one by one (upstream `podHasPVCs`).
fn claims_of(cluster: &Cluster, pod: &Incoming) -> Result<Vec<Arc<Claim>>, Status> {
    let name = &cluster.pods[pod.id].name;
    let mut out = Vec::new();
    for v in &pod.shape.spec.source.volumes {
        if let Some(claim) = to_come(cluster, pod.id, v) {
            out.push(Arc::clone(claim));
            continue;
        }
        let Some((claim_name, ephemeral)) = claim_name(name, v) else { continue };
        let Some(claim) = find(cluster, pod.shape.namespace, &claim_name) else {
            return Err(reject(if ephemeral {
                format!(
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim {claim_name:?}"
                )
            } else {
                format!("persistentvolumeclaim {claim_name:?} not found")
            }));
        };
        let c = &claim.raw;
        if c.lost {
            return Err(reject(format!(
                "persistentvolumeclaim {:?} bound to non-existent persistentvolume {:?}",
                c.name, c.volume_name
            )));
        }
        if c.deleting {
            return Err(reject(format!("persistentvolumeclaim {:?} is being deleted", c.name)));
        }
        if ephemeral && !is_for(cluster, pod.id, c) {
            return Err(reject(not_owner(cluster, pod.shape.namespace, &c.name, name)));
        }
        out.push(Arc::clone(claim));
    }
    Ok(out)
}

fn reaches(cluster: &Cluster, volume: &Volume, node: NodeId) -> bool {
    let row = &cluster.nodes[node];
    volume.affinity.as_ref().is_none_or(|a| a.matches(row.name, &row.info.labels, &cluster.strings))
}

/// Whether the volume is kept for the claim.
fn is_kept_for(volume: &Volume, claim: &Claim) -> bool {
    volume.raw.claim.as_ref().is_some_and(|r| {
        r.name == claim.raw.name
            && r.namespace == claim.raw.namespace
            && (r.uid.is_empty() || r.uid == claim.raw.uid)
    })
}

/// The smallest volume that will do, or the one kept for the claim (upstream `FindMatchingVolume`).
fn matching_volume(cluster: &Cluster, claim: &Claim, node: NodeId, taken: &[String]) -> Option<String> {
    let c = &claim.raw;
    let assumed = &cluster.objects.assumed;
    let mut smallest: Option<&Volume> = None;
    for volume in cluster.objects.volumes.values() {
        let v = &volume.raw;
        if v.storage_class != c.storage_class || taken.contains(&v.name) {
            continue;
        }
        let kept = is_kept_for(volume, claim);
        // Another placement on its way has chosen this volume.
        let promised = assumed.values().any(|a| *a == Assumed::Volume(v.name.clone()));
        if ((promised || v.claim.is_some()) && !kept)
            || v.capacity < c.request.unwrap_or(0)
            || v.block != c.block
            || v.attributes_class != c.attributes_class
            || v.deleting
        {
            continue;
        }
        let reached = reaches(cluster, volume, node);
        if kept {
            return reached.then(|| v.name.clone());
        }
        if !v.available
            || !reached
            || claim.selector.as_ref().is_some_and(|s| !s.matches(&volume.labels, &cluster.strings))
            || !c.access_modes.iter().all(|m| v.access_modes.contains(m))
        {
            continue;
        }
        if smallest.is_none_or(|s| s.raw.capacity > v.capacity) {
            smallest = Some(volume);
        }
    }
    smallest.map(|v| v.raw.name.clone())
}

/// Whether any published capacity of the class is large enough near the node.
fn has_space(cluster: &Cluster, claim: &Claim, provisioner: &str, node: NodeId) -> bool {
    let Some(size) = claim.raw.request else { return true };
    if !cluster.objects.csi_drivers.get(provisioner).is_some_and(|d| d.storage_capacity) {
        return true;
    }
    let labels = &cluster.nodes[node].info.labels;
    cluster.objects.capacities.values().any(|c| {
        c.raw.storage_class == claim.raw.storage_class
            && c.limit().is_some_and(|l| l >= size)
            && c.topology.as_ref().is_some_and(|t| t.matches(labels, &cluster.strings))
    })
}

/// Why a claim can't be provisioned on a node.
fn provision(cluster: &Cluster, claim: &Claim, node: NodeId) -> Result<(), Status> {
    let c = &claim.raw;
    let Some(class) = cluster.objects.classes.get(&c.storage_class) else {
        let text = format!("no class for claim \"{}/{}\"", c.namespace, c.name);
        return Err(Status::error(text));
    };
    let provisioner = class.raw.provisioner.as_str();
    if provisioner.is_empty()
        || provisioner == NO_PROVISIONER
        || !class.allows(&cluster.nodes[node].info.labels)
    {
        return Err(Status::unresolvable(BIND_CONFLICT));
    }
    if !has_space(cluster, claim, provisioner, node) {
        return Err(Status::unresolvable(NO_SPACE));
    }
    Ok(())
}

impl State {
    /// What is to be done on a node, or why it can't be (upstream `FindPodVolumes`).
    fn plan(&self, cluster: &Cluster, node: NodeId) -> Result<Plan, Status> {
        let mut reasons: SmallVec<[Reason; 1]> = SmallVec::new();
        for volume in &self.bound {
            match volume {
                None => {
                    reasons.push(Reason::Text(VOLUME_GONE));
                    break;
                }
                Some(volume) if !reaches(cluster, volume, node) => {
                    reasons.push(Reason::Text(NODE_CONFLICT));
                    break;
                }
                Some(_) => {}
            }
        }
        match self.plan_waiting(cluster, node) {
            Ok(plan) if reasons.is_empty() => Ok(plan),
            Ok(_) => Err(Status { code: Code::Unresolvable, plugin: None, reasons }),
            Err(mut status) => {
                if status.code == Code::Unresolvable {
                    status.reasons.extend(reasons);
                }
                Err(status)
            }
        }
    }

    fn plan_waiting(&self, cluster: &Cluster, node: NodeId) -> Result<Plan, Status> {
        let conflict = || Status::unresolvable(BIND_CONFLICT);
        let name = cluster.strings.text(cluster.nodes[node].name);
        let mut plan = Plan::default();
        let mut taken = Vec::new();
        let mut to_match: Vec<&Arc<Claim>> = Vec::new();
        let mut to_make: Vec<&Arc<Claim>> = Vec::new();
        for claim in &self.waiting {
            let key = (claim.raw.namespace.clone(), claim.raw.name.clone());
            let assumed = match cluster.objects.assumed.get(&key) {
                Some(Assumed::Volume(volume)) => {
                    // Another pod with the same claim is on its way: this one must reach the same volume.
                    let known = cluster.objects.volumes.get(volume);
                    if !known.is_some_and(|v| reaches(cluster, v, node)) {
                        return Err(conflict());
                    }
                    plan.bindings.push((key, volume.clone()));
                    taken.push(volume.clone());
                    continue;
                }
                Some(Assumed::Node(node)) => Some(node),
                None => claim.raw.selected_node.as_ref(),
            };
            match assumed {
                Some(selected) if selected != name => return Err(conflict()),
                Some(_) => to_make.push(claim),
                None => to_match.push(claim),
            }
        }
        to_match.sort_by_key(|c| c.raw.request.unwrap_or(0));
        for claim in to_match {
            match matching_volume(cluster, claim, node, &taken) {
                Some(volume) => {
                    taken.push(volume.clone());
                    plan.bindings.push(((claim.raw.namespace.clone(), claim.raw.name.clone()), volume));
                }
                None => to_make.push(claim),
            }
        }
        for claim in to_make {
            provision(cluster, claim, node)?;
            plan.provisions.push((claim.raw.namespace.clone(), claim.raw.name.clone()));
        }
        Ok(plan)
    }
}

/// How the plugin is registered.
pub(super) fn registration() -> Registration {
    Registration::with_args_of(
        "VolumeBinding",
        &[
            ExtensionPoint::PreFilter,
            ExtensionPoint::Filter,
            ExtensionPoint::Reserve,
            ExtensionPoint::PreBind,
        ],
        |args: &VolumeBindingArgs, _| Box::new(VolumeBinding::new(args)),
    )
    .by_default(0)
}

impl Plugin for VolumeBinding {
    fn is_local(&self, _cluster: &Cluster, pod: &Incoming) -> bool {
        !uses_volumes(&pod.shape)
    }

    fn pre_filter(&self, cluster: &Cluster, pod: &Incoming, cycle: &mut CycleState) -> PreFilterResult {
        let claims = match claims_of(cluster, pod) {
            Ok(claims) if claims.is_empty() => return PreFilterResult::Skip,
            Ok(claims) => claims,
            Err(status) => return PreFilterResult::Reject(status),
        };
        let mut state = State { bound: Vec::new(), waiting: Vec::new() };
        let mut immediate = false;
        for claim in claims {
            let c = &claim.raw;
            if !c.volume_name.is_empty() && c.bind_completed {
                state.bound.push(cluster.objects.volumes.get(&c.volume_name).cloned());
                continue;
            }
            match waits_for_consumer(cluster, c) {
                Ok(true) if c.volume_name.is_empty() => state.waiting.push(claim),
                // Which volume it gets when it is made is not known.
                Ok(_) if is_to_come(&c.name) => {}
                Ok(_) => immediate = true,
                Err(text) => return PreFilterResult::Reject(Status::error(text)),
            }
        }
        if immediate {
            return PreFilterResult::Reject(Status::unresolvable(IMMEDIATE));
        }
        let state = Rc::new(state);
        cycle.write(Rc::clone(&state));
        PreFilterResult::go(state)
    }

    fn reserve(&self, pod: &AssumedPod<'_>, work: &mut PreBindWork) -> Status {
        let Some(state) = pod.state.read::<Rc<State>>() else { return Status::success() };
        match state.plan(pod.cluster, pod.node) {
            Ok(Plan { bindings, provisions }) => {
                work.bindings.extend(bindings);
                work.provisions.extend(provisions);
                Status::success()
            }
            Err(status) => Status { code: Code::Error, ..status },
        }
    }

    fn hold(&self, pod: &AssumedPod<'_>, work: &mut PreBindWork) {
        let state = pod.state.read::<Rc<State>>();
        let plan = state.and_then(|s| s.plan(pod.cluster, pod.node).ok()).unwrap_or_default();
        work.bindings.extend(plan.bindings.into_iter().filter(|((_, claim), _)| is_to_come(claim)));
    }

    /// Upstream's `BindPodVolumes`: waits until the volume controllers have bound the claims to volumes that the node reaches.
    fn pre_bind(&self, pod: &AssumedPod<'_>, work: &PreBindWork) -> PreBindResult {
        let (strings, objects) = (&pod.cluster.strings, &pod.cluster.objects);
        let node = &pod.cluster.nodes[pod.node];
        let name = strings.text(node.name);
        if work.volume_claims().next().is_some() && !node.exists {
            let text = format!("binding volumes: failed to get node {name:?}: node {name:?} not found");
            return PreBindResult::Reject(Status::error(text));
        }
        let mut bound = true;
        for (namespace, claim) in work.volume_claims() {
            let claim = strings.get(namespace).and_then(|ns| objects.claim(ns, claim));
            // A volume that is not seen yet will come.
            let volume = claim.and_then(|c| objects.volumes.get(&c.raw.volume_name));
            if let Some(volume) = volume.filter(|v| !reaches(pod.cluster, v, pod.node)) {
                let text = format!(
                    "binding volumes: pv {:?} node affinity doesn't match node {name:?}: no matching NodeSelectorTerms",
                    volume.raw.name
                );
                return PreBindResult::Reject(Status::error(text));
            }
            bound &= claim.is_some_and(|c| c.raw.bind_completed && !c.raw.volume_name.is_empty());
        }
        match bound {
            true => PreBindResult::Success,
            false => PreBindResult::Wait { timeout: self.timeout, operation: BINDING_VOLUMES },
        }
    }

    fn events_to_register(&self) -> &[ClusterEventWithHint] {
        const {
            &[
                ClusterEventWithHint::hinted(
                    EventResource::StorageClass,
                    ActionType::ADD.or(ActionType::UPDATE),
                ),
                ClusterEventWithHint::hinted(
                    EventResource::PersistentVolumeClaim,
                    ActionType::ADD.or(ActionType::UPDATE),
                ),
                ClusterEventWithHint::always(
                    EventResource::PersistentVolume,
                    ActionType::ADD.or(ActionType::UPDATE),
                ),
                ClusterEventWithHint::always(EventResource::Node, ActionType::ADD.or(ActionType::NODE_LABEL)),
                ClusterEventWithHint::hinted(EventResource::CsiNode, ActionType::ADD.or(ActionType::UPDATE)),
                ClusterEventWithHint::hinted(EventResource::CsiDriver, ActionType::UPDATE),
                ClusterEventWithHint::hinted(
                    EventResource::CsiStorageCapacity,
                    ActionType::ADD.or(ActionType::UPDATE),
                ),
            ]
        }
    }

    fn queueing_hint(&self, cluster: &Cluster, pod: PodId, change: &ClusterEvent) -> bool {
        let Payload::Object(change) = &change.payload else { return false };
        match change {
            ObjectChange::Class((None, Some(_)))
            | ObjectChange::CsiNode((None, Some(_)))
            | ObjectChange::Capacity((None, Some(_))) => true,
            ObjectChange::Class((Some(old), Some(new))) => {
                old.raw.allowed_topologies != new.raw.allowed_topologies
            }
            ObjectChange::CsiNode((Some(old), Some(new))) => old.migrated_plugins != new.migrated_plugins,
            ObjectChange::CsiDriver((Some(old), Some(new))) => {
                let volumes = &cluster.shape(pod).spec.source.volumes;
                old.storage_capacity
                    && !new.storage_capacity
                    && volumes
                        .iter()
                        .any(|v| matches!(&v.source, VolumeSource::Csi { driver } if *driver == new.name))
            }
            ObjectChange::Capacity((Some(old), Some(new))) => {
                old.raw.topology != new.raw.topology || new.limit().unwrap_or(0) > old.limit().unwrap_or(0)
            }
            other @ (ObjectChange::Volume(_)
            | ObjectChange::Claim(_)
            | ObjectChange::Class(_)
            | ObjectChange::CsiNode(_)
            | ObjectChange::CsiDriver(_)
            | ObjectChange::Capacity(_)
            | ObjectChange::Attachment(_)
            | ObjectChange::DeviceClaim(_)
            | ObjectChange::DeviceSlice(_)
            | ObjectChange::DeviceClass(_)
            | ObjectChange::PodGroup(..)) => {
                claim_change(other).is_some_and(|pair| is_own_claim(cluster, pod, pair))
            }
        }
    }
}

impl FilterState for Rc<State> {
    fn filter(&self, cluster: &Cluster, node: NodeId) -> Status {
        match self.plan(cluster, node) {
            Ok(_) => Status::success(),
            Err(status) => status,
        }
    }
}
