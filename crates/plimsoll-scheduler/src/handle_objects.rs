//! Objects besides nodes and pods → state and events.

use super::Scheduler;
use super::cluster::Pair;
use super::cluster::group::PodGroup;
use super::cluster::labels::Selector;
use super::cluster::objects::{Budget, Capacity, Claim, Class, ObjectChange, OwnerSelector, Service, Volume};
use super::cluster::{Cluster, Labels};
use super::events::{ActionType, ClusterEvent, EventResource, Payload};
use plimsoll_state::model;
use plimsoll_state::{ClusterObject, ClusterObjectKey, ClusterObjectKind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Puts an object into its map; gives what was there and what is there now.
fn put<K: Ord, T>(map: &mut BTreeMap<K, Arc<T>>, key: K, value: T) -> (Option<Arc<T>>, Option<Arc<T>>) {
    let value = Arc::new(value);
    (map.insert(key, Arc::clone(&value)), Some(value))
}

impl Scheduler {
    pub(super) fn object_upsert(&mut self, object: &ClusterObject) {
        match object {
            ClusterObject::Namespace { name, labels } => {
                let c = self.selecting_objects();
                let name = c.strings.intern(name);
                c.namespaces.insert(name, Labels::new(labels, &mut c.strings));
            }
            ClusterObject::Service { namespace, name, selector } => {
                let c = self.selecting_objects();
                let (namespace, name) = (c.strings.intern(namespace), c.strings.intern(name));
                let pairs: Vec<_> =
                    selector.iter().map(|(k, v)| (c.strings.intern(k), c.strings.intern(v))).collect();
                let selector = (!pairs.is_empty()).then_some(pairs);
                c.objects.services.entry(namespace).or_default().insert(name, Service { selector });
            }
            ClusterObject::Workload { kind, namespace, name, selector, .. } => {
                let c = self.selecting_objects();
                let key = (c.strings.intern(namespace), *kind, c.strings.intern(name));
                let selector = OwnerSelector::Selector(Selector::new(selector, &mut c.strings));
                c.objects.owners.insert(key, selector);
            }
            ClusterObject::Budget { namespace, name, selector, allowed, disrupted } => {
                let c = self.selecting_objects();
                let (namespace, name) = (c.strings.intern(namespace), c.strings.intern(name));
                let selector =
                    selector.as_ref().map_or_else(Selector::default, |s| Selector::new(s, &mut c.strings));
                let disrupted = disrupted.iter().map(|d| d.as_str().into()).collect();
                let budget = Budget { selector, allowed: *allowed, disrupted };
                c.objects.budgets.entry(namespace).or_default().insert(name, budget);
            }
            ClusterObject::Volume(raw) => {
                let new = Volume::new(raw, &mut self.cluster.strings);
                let pair = put(&mut self.cluster.objects.volumes, raw.name.clone(), new);
                self.volume_changed(&pair);
                self.object_changed(EventResource::PersistentVolume, pair, ObjectChange::Volume);
            }
            ClusterObject::Claim(raw) => {
                let key = (self.cluster.strings.intern(&raw.namespace), raw.name.clone());
                let new = Claim::new(raw, &mut self.cluster.strings);
                let pair = put(&mut self.cluster.objects.claims, key, new);
                self.claim_changed(&pair);
                self.object_changed(EventResource::PersistentVolumeClaim, pair, ObjectChange::Claim);
                self.retry_pre_bind();
            }
            ClusterObject::StorageClass(raw) => {
                let new = Class::new(raw, &mut self.cluster.strings);
                let pair = put(&mut self.cluster.objects.classes, raw.name.clone(), new);
                self.object_changed(EventResource::StorageClass, pair, ObjectChange::Class);
            }
            ClusterObject::CsiNode(raw) => {
                let pair = put(&mut self.cluster.objects.csi_nodes, raw.name.clone(), raw.clone());
                self.object_changed(EventResource::CsiNode, pair, ObjectChange::CsiNode);
            }
            ClusterObject::CsiDriver(raw) => {
                let pair = put(&mut self.cluster.objects.csi_drivers, raw.name.clone(), raw.clone());
                self.object_changed(EventResource::CsiDriver, pair, ObjectChange::CsiDriver);
            }
            ClusterObject::StorageCapacity(raw) => {
                let new = Capacity::new(raw, &mut self.cluster.strings);
                let key = (raw.namespace.clone(), raw.name.clone());
                let pair = put(&mut self.cluster.objects.capacities, key, new);
                self.object_changed(EventResource::CsiStorageCapacity, pair, ObjectChange::Capacity);
            }
            ClusterObject::DeviceClaim(raw) => self.device_claim(raw),
            ClusterObject::DeviceClaimTemplate(raw) => {
                let key = (self.cluster.strings.intern(&raw.namespace), raw.name.clone());
                self.cluster.objects.devices.templates.insert(key, Arc::new(raw.clone()));
                // No pod that exists waits for it, but workloads may.
                self.capacity_freed(None);
            }
            ClusterObject::DeviceSlice(raw) => {
                let pair = self.cluster.objects.devices.put_slice(raw, &mut self.cluster.strings);
                self.object_changed(EventResource::ResourceSlice, pair, ObjectChange::DeviceSlice);
            }
            ClusterObject::DeviceClass(raw) => {
                self.cluster.changes.epoch += 1;
                let pair = put(&mut self.cluster.objects.devices.classes, raw.name.clone(), raw.clone());
                self.object_changed(EventResource::DeviceClass, pair, ObjectChange::DeviceClass);
            }
            ClusterObject::PodGroup { namespace, name, min_count, topology_key } => {
                let key = (self.cluster.strings.intern(namespace), Box::<str>::from(name.as_str()));
                let topology_key = topology_key.as_deref().map(Box::from);
                let new = Arc::new(PodGroup { min_count: *min_count, topology_key });
                let group = self.cluster.groups.entry(key.clone()).or_default();
                let known = group.object.replace(new).is_some();
                let actions = if known { ActionType::UPDATE } else { ActionType::ADD };
                let payload = Payload::Object(ObjectChange::PodGroup(key.0, key.1));
                self.changed(&ClusterEvent { resource: EventResource::PodGroup, actions, payload });
            }
            ClusterObject::VolumeAttachment(raw) => {
                let pair = self.cluster.objects.attachments.put(raw);
                self.object_changed(EventResource::VolumeAttachment, pair, ObjectChange::Attachment);
            }
        }
    }

    /// The cluster, of which objects that select pods are changed; they make no pod schedulable.
    const fn selecting_objects(&mut self) -> &mut Cluster {
        self.cluster.changes.epoch += 1;
        &mut self.cluster
    }

    pub(super) fn object_delete(&mut self, key: &ClusterObjectKey) {
        let ClusterObjectKey { kind, namespace, name } = key;
        let space = self.cluster.strings.intern(namespace);
        let o = &mut self.cluster.objects;
        match kind {
            ClusterObjectKind::Namespace => {
                let c = self.selecting_objects();
                c.namespaces.remove(&c.strings.intern(name));
            }
            ClusterObjectKind::Service => {
                let c = self.selecting_objects();
                if let Some(services) = c.objects.services.get_mut(&space) {
                    services.remove(&c.strings.intern(name));
                }
            }
            ClusterObjectKind::Workload(kind) => {
                let c = self.selecting_objects();
                c.objects.owners.remove(&(space, *kind, c.strings.intern(name)));
            }
            ClusterObjectKind::Budget => {
                let c = self.selecting_objects();
                if let Some(budgets) = c.objects.budgets.get_mut(&space) {
                    budgets.remove(&c.strings.intern(name));
                }
            }
            ClusterObjectKind::Volume => {
                let old = o.volumes.remove(name);
                self.volume_changed(&(old.clone(), None));
                self.object_deleted(EventResource::PersistentVolume, old, ObjectChange::Volume);
            }
            ClusterObjectKind::Claim => {
                let old = o.claims.remove(&(space, name.clone()));
                self.claim_changed(&(old.clone(), None));
                self.object_deleted(EventResource::PersistentVolumeClaim, old, ObjectChange::Claim);
            }
            ClusterObjectKind::StorageClass => {
                let old = o.classes.remove(name);
                self.object_deleted(EventResource::StorageClass, old, ObjectChange::Class);
            }
            ClusterObjectKind::CsiNode => {
                let old = o.csi_nodes.remove(name);
                self.object_deleted(EventResource::CsiNode, old, ObjectChange::CsiNode);
            }
            ClusterObjectKind::CsiDriver => {
                let old = o.csi_drivers.remove(name);
                self.object_deleted(EventResource::CsiDriver, old, ObjectChange::CsiDriver);
            }
            ClusterObjectKind::StorageCapacity => {
                let old = o.capacities.remove(&(namespace.clone(), name.clone()));
                self.object_deleted(EventResource::CsiStorageCapacity, old, ObjectChange::Capacity);
            }
            ClusterObjectKind::VolumeAttachment => {
                let old = o.attachments.remove(name);
                self.object_deleted(EventResource::VolumeAttachment, old, ObjectChange::Attachment);
            }
            ClusterObjectKind::DeviceClaim => {
                let old = o.devices.remove_claim(space, name);
                if old.as_ref().is_some_and(|claim| claim.raw.allocation.is_some()) {
                    self.capacity_freed(None);
                }
                self.object_deleted(EventResource::ResourceClaim, old, ObjectChange::DeviceClaim);
            }
            ClusterObjectKind::DeviceClaimTemplate => {
                o.devices.templates.remove(&(space, name.clone()));
            }
            ClusterObjectKind::DeviceSlice => {
                let old = o.devices.remove_slice(name);
                self.object_deleted(EventResource::ResourceSlice, old, ObjectChange::DeviceSlice);
            }
            ClusterObjectKind::DeviceClass => {
                let old = o.devices.classes.remove(name);
                self.object_deleted(EventResource::DeviceClass, old, ObjectChange::DeviceClass);
            }
            ClusterObjectKind::PodGroup => {
                let key = (space, Box::<str>::from(name.as_str()));
                let old = self.cluster.groups.get_mut(&key).and_then(|g| g.object.take());
                self.cluster.drop_group_if_unused(&key);
                self.object_deleted(EventResource::PodGroup, old, |_| ObjectChange::PodGroup(key.0, key.1));
            }
        }
    }

    fn device_claim(&mut self, raw: &model::ResourceClaim) {
        if let Some(pair) = self.cluster.objects.devices.put_claim(raw, &mut self.cluster.strings) {
            self.object_changed(EventResource::ResourceClaim, pair, ObjectChange::DeviceClaim);
        }
    }

    /// The answer to a write shows a claim.
    pub(super) fn claim_written(&mut self, raw: &model::ResourceClaim) {
        if self.cluster.objects.devices.has_older(raw, &self.cluster.strings) {
            self.device_claim(raw);
        }
    }

    fn object_deleted<T>(
        &mut self,
        resource: EventResource,
        old: Option<Arc<T>>,
        wrap: impl FnOnce(Pair<T>) -> ObjectChange,
    ) {
        if old.is_some() {
            let payload = Payload::Object(wrap((old, None)));
            self.changed(&ClusterEvent { resource, actions: ActionType::DELETE, payload });
        }
    }

    fn object_changed<T>(
        &mut self,
        resource: EventResource,
        pair: Pair<T>,
        wrap: fn(Pair<T>) -> ObjectChange,
    ) {
        let actions = if pair.0.is_some() { ActionType::UPDATE } else { ActionType::ADD };
        self.capacity_freed(None);
        self.changed(&ClusterEvent { resource, actions, payload: Payload::Object(wrap(pair)) });
    }
}

/// Both sides of a change that is compared, but not stored.
pub(super) fn object_pair(
    cluster: &mut Cluster,
    old: Option<&ClusterObject>,
    new: Option<&ClusterObject>,
) -> Option<ObjectChange> {
    fn both<T>(
        old: Option<&ClusterObject>,
        new: Option<&ClusterObject>,
        mut make: impl FnMut(&ClusterObject) -> Option<T>,
    ) -> (Option<Arc<T>>, Option<Arc<T>>) {
        (old.and_then(&mut make).map(Arc::new), new.and_then(&mut make).map(Arc::new))
    }
    let s = &mut cluster.strings;
    Some(match old.or(new)? {
        ClusterObject::Volume(_) => ObjectChange::Volume(both(old, new, |o| {
            let ClusterObject::Volume(v) = o else { return None };
            Some(Volume::new(v, s))
        })),
        ClusterObject::Claim(_) => ObjectChange::Claim(both(old, new, |o| {
            let ClusterObject::Claim(v) = o else { return None };
            Some(Claim::new(v, s))
        })),
        ClusterObject::StorageClass(_) => ObjectChange::Class(both(old, new, |o| {
            let ClusterObject::StorageClass(v) = o else { return None };
            Some(Class::new(v, s))
        })),
        ClusterObject::CsiNode(_) => ObjectChange::CsiNode(both(old, new, |o| {
            let ClusterObject::CsiNode(v) = o else { return None };
            Some(model::CsiNode::clone(v))
        })),
        ClusterObject::CsiDriver(_) => ObjectChange::CsiDriver(both(old, new, |o| {
            let ClusterObject::CsiDriver(v) = o else { return None };
            Some(v.clone())
        })),
        ClusterObject::StorageCapacity(_) => ObjectChange::Capacity(both(old, new, |o| {
            let ClusterObject::StorageCapacity(v) = o else { return None };
            Some(Capacity::new(v, s))
        })),
        ClusterObject::DeviceClaim(_) => ObjectChange::DeviceClaim(both(old, new, |o| {
            let ClusterObject::DeviceClaim(v) = o else { return None };
            Some(super::cluster::devices::Claim::new(v, s))
        })),
        ClusterObject::DeviceSlice(_) => ObjectChange::DeviceSlice(both(old, new, |o| {
            let ClusterObject::DeviceSlice(v) = o else { return None };
            Some(super::cluster::slices::Slice::new(v, s))
        })),
        ClusterObject::DeviceClass(_) => ObjectChange::DeviceClass(both(old, new, |o| {
            let ClusterObject::DeviceClass(v) = o else { return None };
            Some(v.clone())
        })),
        ClusterObject::PodGroup { namespace, name, .. } => {
            ObjectChange::PodGroup(s.intern(namespace), name.as_str().into())
        }
        ClusterObject::VolumeAttachment(_) => ObjectChange::Attachment(both(old, new, |o| {
            let ClusterObject::VolumeAttachment(v) = o else { return None };
            Some(v.clone())
        })),
        ClusterObject::Namespace { .. }
        | ClusterObject::DeviceClaimTemplate(_)
        | ClusterObject::Service { .. }
        | ClusterObject::Workload { .. }
        | ClusterObject::Budget { .. } => return None,
    })
}
