//! Objects besides nodes and pods → state and events.

use super::Scheduler;
use super::cluster::Pair;
use super::cluster::group::PodGroup;
use super::cluster::labels::Selector;
use super::cluster::objects::{Budget, Capacity, Claim, Class, ObjectChange, OwnerSelector, Service, Volume};
use super::cluster::{Labels, OwnerKind};
use super::events::{ActionType, ClusterEvent, EventResource, Payload};
use plimsoll_state::ClusterObject;
use plimsoll_state::model;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Puts an object into its map; gives what was there and what is there now.
fn put<K: Ord, T>(map: &mut BTreeMap<K, Arc<T>>, key: K, value: T) -> (Option<Arc<T>>, Option<Arc<T>>) {
    let value = Arc::new(value);
    (map.insert(key, Arc::clone(&value)), Some(value))
}

fn owner_kind(kind: &str) -> Option<OwnerKind> {
    Some(match kind {
        "ReplicationController" => OwnerKind::ReplicationController,
        "ReplicaSet" => OwnerKind::ReplicaSet,
        "StatefulSet" => OwnerKind::StatefulSet,
        _ => return None,
    })
}

impl Scheduler {
    pub(super) fn object_upsert(&mut self, object: &ClusterObject) {
        match object {
            ClusterObject::Namespace { .. }
            | ClusterObject::Service { .. }
            | ClusterObject::Workload { .. }
            | ClusterObject::Budget { .. } => self.selecting_upsert(object),
            ClusterObject::Volume(raw) => {
                let new = Volume::new(raw, &mut self.cluster.strings);
                let pair = put(&mut self.cluster.objects.volumes, raw.name.clone(), new);
                self.object_changed(EventResource::PersistentVolume, pair, ObjectChange::Volume);
            }
            ClusterObject::Claim(raw) => {
                let key = (self.cluster.strings.intern(&raw.namespace), raw.name.clone());
                let new = Claim::new(raw, &mut self.cluster.strings);
                let pair = put(&mut self.cluster.objects.claims, key, new);
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
            ClusterObject::DeviceClaim(raw) => {
                let pair = self.cluster.objects.devices.put_claim(raw, &mut self.cluster.strings);
                if let Some(pair) = pair {
                    self.object_changed(EventResource::ResourceClaim, pair, ObjectChange::DeviceClaim);
                }
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
                let pair = put(&mut self.cluster.objects.attachments, raw.name.clone(), raw.clone());
                self.object_changed(EventResource::VolumeAttachment, pair, ObjectChange::Attachment);
            }
        }
    }

    /// Objects that select pods; they make no pod schedulable.
    fn selecting_upsert(&mut self, object: &ClusterObject) {
        let c = &mut self.cluster;
        c.changes.epoch += 1;
        match object {
            ClusterObject::Namespace { name, labels } => {
                let name = c.strings.intern(name);
                let labels = Labels::new(labels, &mut c.strings);
                c.namespaces.insert(name, labels);
            }
            ClusterObject::Service { namespace, name, selector } => {
                let (namespace, name) = (c.strings.intern(namespace), c.strings.intern(name));
                let pairs: Vec<_> =
                    selector.iter().map(|(k, v)| (c.strings.intern(k), c.strings.intern(v))).collect();
                let selector = (!pairs.is_empty()).then_some(pairs);
                c.objects.services.entry(namespace).or_default().insert(name, Service { selector });
            }
            ClusterObject::Workload { kind, namespace, name, selector, .. } => {
                let Some(kind) = owner_kind(kind) else { return };
                let key = (c.strings.intern(namespace), kind, c.strings.intern(name));
                let selector = OwnerSelector::Selector(Selector::new(selector, &mut c.strings));
                c.objects.owners.insert(key, selector);
            }
            ClusterObject::Budget { namespace, name, selector, allowed, disrupted } => {
                let (namespace, name) = (c.strings.intern(namespace), c.strings.intern(name));
                let selector =
                    selector.as_ref().map_or_else(Selector::default, |s| Selector::new(s, &mut c.strings));
                let disrupted = disrupted.iter().map(|d| d.as_str().into()).collect();
                let budget = Budget { selector, allowed: *allowed, disrupted };
                c.objects.budgets.entry(namespace).or_default().insert(name, budget);
            }
            ClusterObject::Volume(_)
            | ClusterObject::Claim(_)
            | ClusterObject::StorageClass(_)
            | ClusterObject::CsiNode(_)
            | ClusterObject::CsiDriver(_)
            | ClusterObject::StorageCapacity(_)
            | ClusterObject::VolumeAttachment(_)
            | ClusterObject::DeviceClaim(_)
            | ClusterObject::DeviceSlice(_)
            | ClusterObject::DeviceClass(_)
            | ClusterObject::PodGroup { .. } => {}
        }
    }

    pub(super) fn object_delete(&mut self, kind: &str, namespace: &str, name: &str) {
        let o = &mut self.cluster.objects;
        let space = self.cluster.strings.intern(namespace);
        let own = name.to_owned();
        let (resource, change) = match kind {
            "PersistentVolume" => (
                EventResource::PersistentVolume,
                o.volumes.remove(name).map(|x| ObjectChange::Volume((Some(x), None))),
            ),
            "PersistentVolumeClaim" => (
                EventResource::PersistentVolumeClaim,
                o.claims.remove(&(space, own)).map(|x| ObjectChange::Claim((Some(x), None))),
            ),
            "StorageClass" => (
                EventResource::StorageClass,
                o.classes.remove(name).map(|x| ObjectChange::Class((Some(x), None))),
            ),
            "CSINode" => (
                EventResource::CsiNode,
                o.csi_nodes.remove(name).map(|x| ObjectChange::CsiNode((Some(x), None))),
            ),
            "CSIDriver" => (
                EventResource::CsiDriver,
                o.csi_drivers.remove(name).map(|x| ObjectChange::CsiDriver((Some(x), None))),
            ),
            "CSIStorageCapacity" => (
                EventResource::CsiStorageCapacity,
                o.capacities
                    .remove(&(namespace.to_owned(), own))
                    .map(|x| ObjectChange::Capacity((Some(x), None))),
            ),
            "ResourceClaim" => (
                EventResource::ResourceClaim,
                o.devices.remove_claim(space, name).map(|x| ObjectChange::DeviceClaim((Some(x), None))),
            ),
            "ResourceSlice" => (
                EventResource::ResourceSlice,
                o.devices.remove_slice(name).map(|x| ObjectChange::DeviceSlice((Some(x), None))),
            ),
            "DeviceClass" => (
                EventResource::DeviceClass,
                o.devices.classes.remove(name).map(|x| ObjectChange::DeviceClass((Some(x), None))),
            ),
            "PodGroup" => {
                let key = (space, own.into_boxed_str());
                let old = self.cluster.groups.get_mut(&key).and_then(|g| g.object.take());
                self.cluster.drop_group_if_unused(&key);
                (EventResource::PodGroup, old.map(|_| ObjectChange::PodGroup(key.0, key.1)))
            }
            "VolumeAttachment" => (
                EventResource::VolumeAttachment,
                o.attachments.remove(name).map(|x| ObjectChange::Attachment((Some(x), None))),
            ),
            _ => {
                self.selecting_delete(kind, namespace, name);
                return;
            }
        };
        if let Some(change) = change {
            let payload = Payload::Object(change);
            self.changed(&ClusterEvent { resource, actions: ActionType::DELETE, payload });
        }
    }

    fn selecting_delete(&mut self, kind: &str, namespace: &str, name: &str) {
        let c = &mut self.cluster;
        let (namespace, name) = (c.strings.intern(namespace), c.strings.intern(name));
        c.changes.epoch += 1;
        match kind {
            "Namespace" => {
                c.namespaces.remove(&name);
            }
            "Service" => {
                if let Some(m) = c.objects.services.get_mut(&namespace) {
                    m.remove(&name);
                }
            }
            "PodDisruptionBudget" => {
                if let Some(m) = c.objects.budgets.get_mut(&namespace) {
                    m.remove(&name);
                }
            }
            other => {
                if let Some(kind) = owner_kind(other) {
                    c.objects.owners.remove(&(namespace, kind, name));
                }
            }
        }
    }

    fn object_changed<T>(
        &mut self,
        resource: EventResource,
        pair: Pair<T>,
        wrap: fn(Pair<T>) -> ObjectChange,
    ) {
        let actions = if pair.0.is_some() { ActionType::UPDATE } else { ActionType::ADD };
        self.capacity_freed();
        self.changed(&ClusterEvent { resource, actions, payload: Payload::Object(wrap(pair)) });
    }
}

/// Both sides of a change that is compared, but not stored.
pub(super) fn object_pair(
    cluster: &mut super::cluster::Cluster,
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
            Some(super::cluster::devices::Slice::new(v, s))
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
        | ClusterObject::Service { .. }
        | ClusterObject::Workload { .. }
        | ClusterObject::Budget { .. } => return None,
    })
}
