//! Drivers of devices, and users of claims: slices, the class, claims that pods share, templates.

use super::{Users, global, key};
use crate::api::{Kind, deleting, list, text};
use crate::network::Network;
use crate::scenario::Operation;
use crate::scenario::devices::{self, CLASS, MOST, shared_name, slice_name, template_name};
use crate::scenario::objects::NAMESPACE;

/// Which claims that pods share and which templates there are to be.
#[derive(Debug)]
pub(super) struct Wanted {
    shared: [bool; 2],
    templates: [bool; MOST as usize],
}

impl Default for Wanted {
    fn default() -> Self {
        Self { shared: [true; 2], templates: [true; MOST as usize] }
    }
}

impl Users {
    /// Everything about devices becomes as planned.
    pub(super) fn restore_devices(&mut self, network: &mut Network) {
        if !self.settings.devices {
            return;
        }
        self.put(Kind::DeviceClass, devices::class(), network);
        for (node, count) in self.plan.devices.clone().into_iter().enumerate() {
            self.put_slice(node, Some(count), network);
        }
        self.complete_devices(network);
    }

    /// Makes anew what a finalizer kept from being made before.
    pub(super) fn complete_devices(&self, network: &mut Network) {
        if !self.settings.devices || self.namespace.is_none() {
            return;
        }
        for (claim, wanted) in self.claims.shared.into_iter().enumerate() {
            if wanted {
                self.put_missing(Kind::ResourceClaim, devices::shared(claim), network);
            }
        }
        for (devices, wanted) in (1..).zip(self.claims.templates) {
            if wanted {
                self.put_missing(Kind::ClaimTemplate, devices::template(devices), network);
            }
        }
    }

    /// Deletes pods without a node for which a claim is reserved that is deleted: the claim waits for the pod, and the pod can
    /// have no node. A scheduler that ends between reservation and binding leaves this, as kube-scheduler does.
    pub(super) fn drop_reserved(&self, network: &mut Network) {
        let claims = network.api.all(Kind::ResourceClaim).filter(|c| deleting(c));
        let reserved = claims.flat_map(|c| list(c, &["status", "reservedFor"]));
        let waits = |name: &&str| {
            let pod = network.api.get(Kind::Pod, NAMESPACE, name);
            pod.is_some_and(|p| text(p, &["spec", "nodeName"]).is_empty() && !deleting(p))
        };
        let pods: Vec<String> =
            reserved.map(|r| text(r, &["name"])).filter(waits).map(str::to_owned).collect();
        for pod in pods {
            self.delete_gracefully(Kind::Pod, key(&pod), network);
        }
    }

    fn put_slice(&mut self, node: usize, count: Option<u8>, network: &mut Network) {
        self.generation += 1;
        let object = count.map(|count| devices::slice(node, count, self.generation));
        self.put_or_delete(Kind::ResourceSlice, global(slice_name(node)), object, network);
    }

    /// Does what an operation says about devices.
    pub(super) fn change_devices(&mut self, operation: &Operation, network: &mut Network) {
        if !self.settings.devices {
            return;
        }
        match operation {
            Operation::Slice { node, devices } => self.put_slice(*node, *devices, network),
            Operation::DeviceClass { exists } => {
                let object = exists.then(devices::class);
                self.put_or_delete(Kind::DeviceClass, global(CLASS.to_owned()), object, network);
            }
            Operation::SharedClaim { claim, exists } => {
                if let Some(wanted) = self.claims.shared.get_mut(*claim) {
                    *wanted = *exists;
                }
                if !exists {
                    self.delete(Kind::ResourceClaim, key(&shared_name(*claim)), network);
                }
            }
            Operation::ClaimTemplate { devices, exists } => {
                let at = usize::from(*devices).wrapping_sub(1);
                if let Some(wanted) = self.claims.templates.get_mut(at) {
                    *wanted = *exists;
                }
                if !exists {
                    self.delete(Kind::ClaimTemplate, key(&template_name(*devices)), network);
                }
            }
            _ => {}
        }
        self.complete_devices(network);
    }
}
