//! What will be made for pods that do not exist yet (joint admission): claims for devices from ResourceClaimTemplates, and
//! claims for generic ephemeral volumes. Nothing of it is an object; plugins see it as the claims of the pod's row.

use super::devices::{self, InFlight};
use super::objects::{Assumed, Claim};
use super::{Cluster, PodId};
use plimsoll_state::intern::{Marks, Sym};
use plimsoll_state::model::{self, AllocatedDevice, PodClaimSource, VolumeSource};
use std::sync::Arc;

/// What will be made for a pod, and what it takes of that kind while it is on a node.
#[derive(Debug, Default)]
pub(crate) struct ToCome {
    /// Claims for devices by the pod's name for them, or why there will be none.
    device_claims: Vec<(String, Result<Arc<devices::Claim>, String>)>,
    /// Claims for volumes by the name of the volume.
    volume_claims: Vec<(String, Arc<Claim>)>,
    /// Devices that it takes on its node, by claim.
    devices: Vec<((Sym, String), Vec<AllocatedDevice>)>,
    /// Volumes that its claims will be bound to on its node.
    volumes: Vec<((String, String), Assumed)>,
}

impl ToCome {
    /// The claim for devices that will be made for the pod under this name of the pod's.
    pub(crate) fn device_claim(&self, name: &str) -> Option<&Result<Arc<devices::Claim>, String>> {
        self.device_claims.iter().find(|(n, _)| n == name).map(|(_, claim)| claim)
    }

    /// The claim that will be made for a volume of the pod.
    pub(crate) fn volume_claim(&self, volume: &str) -> Option<&Arc<Claim>> {
        self.volume_claims.iter().find(|(n, _)| n == volume).map(|(_, claim)| claim)
    }

    pub(super) fn mark(&self, marks: &mut Marks) {
        let selectors = self.volume_claims.iter().filter_map(|(_, claim)| claim.selector.as_ref());
        selectors.for_each(|s| s.mark(marks));
        self.devices.iter().for_each(|((namespace, _), _)| marks.mark(*namespace));
    }
}

/// Whether claims are made for such a pod.
pub(crate) fn has_generated_claims(spec: &model::PodSpec) -> bool {
    spec.resource_claims.iter().any(|c| matches!(c.source, PodClaimSource::Template(_)))
        || spec.volumes.iter().any(|v| matches!(v.source, VolumeSource::Ephemeral(_)))
}

/// Whether a claim of this name will be made for a pod: no object has a slash in its name.
pub(crate) fn is_to_come(claim: &str) -> bool {
    claim.contains('/')
}

impl Cluster {
    /// Makes what will be made for the pod that this row stands for.
    pub(crate) fn generate_claims(&mut self, id: PodId, pod: &model::Pod) {
        let uid = self.pods[id].uid.to_string();
        let mut out = ToCome::default();
        for c in &pod.spec.resource_claims {
            if let PodClaimSource::Template(template) = &c.source {
                let claim = self.generated_devices(&pod.namespace, template, &uid, &c.name);
                out.device_claims.push((c.name.clone(), claim));
            }
        }
        for v in &pod.spec.volumes {
            if let VolumeSource::Ephemeral(template) = &v.source {
                let template = template.as_deref().cloned().unwrap_or_default();
                let raw = model::PersistentVolumeClaim {
                    namespace: pod.namespace.clone(),
                    name: format!("{uid}/{}", v.name),
                    access_modes: template.access_modes,
                    request: template.request,
                    storage_class: template
                        .storage_class
                        .or_else(|| self.objects.default_class().map(str::to_owned))
                        .unwrap_or_default(),
                    attributes_class: template.attributes_class,
                    block: template.block,
                    selector: template.selector,
                    ..model::PersistentVolumeClaim::default()
                };
                out.volume_claims.push((v.name.clone(), Arc::new(Claim::new(&raw, &mut self.strings))));
            }
        }
        self.to_come.insert(id, out);
    }

    fn generated_devices(
        &self,
        namespace: &str,
        template: &str,
        uid: &str,
        name: &str,
    ) -> Result<Arc<devices::Claim>, String> {
        let space = self.strings.get(namespace);
        let known = space.and_then(|s| self.objects.devices.templates.get(&(s, template.to_owned())));
        let Some(template) = known else {
            return Err(format!(
                "resourceclaimtemplate.resource.k8s.io {template:?} not found, or it asks for what is not supported"
            ));
        };
        let raw =
            model::ResourceClaim { name: format!("{uid}/{name}"), ..model::ResourceClaim::clone(template) };
        Ok(Arc::new(devices::Claim { raw, nodes: None }))
    }

    /// Notes what a row takes on a node besides its capacity. It counts while the row is on a node, and has to be noted before.
    pub(crate) fn hold(
        &mut self,
        id: PodId,
        devices: Vec<((Sym, String), Vec<AllocatedDevice>)>,
        volumes: Vec<((String, String), Assumed)>,
    ) {
        if let Some(to_come) = self.to_come.get_mut(&id) {
            (to_come.devices, to_come.volumes) = (devices, volumes);
        }
    }

    /// Counts what a row takes, which is on a node now, or is not any more.
    pub(super) fn count_held(&mut self, id: PodId, on_node: bool) {
        let Some(ToCome { devices, volumes, .. }) = self.to_come.get(&id) else { return };
        for (claim, devices) in devices {
            match on_node {
                true => {
                    let given = InFlight { devices: devices.clone(), ..InFlight::default() };
                    self.objects.devices.give(claim.clone(), given);
                }
                false => self.objects.devices.take_back(claim),
            }
        }
        for (claim, volume) in volumes {
            match on_node {
                true => self.objects.assumed.insert(claim.clone(), volume.clone()),
                false => self.objects.assumed.remove(claim),
            };
        }
    }

    /// What rows take counts exactly while they are on nodes.
    ///
    /// # Panics
    /// When it does not.
    pub(super) fn check_held(&self) {
        for (id, to_come) in &self.to_come {
            let counts = self.pods[*id].node.is_some();
            let devices = &self.objects.devices;
            assert!(
                to_come
                    .devices
                    .iter()
                    .all(|(claim, d)| (devices.given(claim).map(|given| &given.devices) == Some(d)) == counts),
                "{id:?}"
            );
            let volumes = &self.objects.assumed;
            assert!(
                to_come.volumes.iter().all(|(claim, v)| (volumes.get(claim) == Some(v)) == counts),
                "{id:?}"
            );
        }
    }
}
