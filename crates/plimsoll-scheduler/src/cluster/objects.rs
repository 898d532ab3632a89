//! Objects other than nodes and pods.

use super::OwnerKind;
use super::changes::Pair;
use super::labels::{Labels, NodeSelector, Selector};
use plimsoll_state::intern::{Interner, Map, Marks, Sym};
use plimsoll_state::model;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A Service, for default spreading.
#[derive(Clone, Debug)]
pub struct Service {
    /// `spec.selector` as exact pairs; `None`: no selector.
    pub selector: Option<Vec<(Sym, Sym)>>,
}

/// A PodDisruptionBudget.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Pods it protects; a selector without conditions protects none.
    pub selector: Selector,
    /// `status.disruptionsAllowed`.
    pub allowed: i64,
    /// Names in `status.disruptedPods`.
    pub disrupted: Vec<Box<str>>,
}

/// A PersistentVolume with its selector over interned strings.
#[derive(Debug)]
pub struct Volume {
    /// The object.
    pub raw: model::PersistentVolume,
    /// Labels.
    pub labels: Labels,
    /// Nodes that can reach it.
    pub affinity: Option<NodeSelector>,
}

impl Volume {
    /// Interns a volume.
    pub fn new(raw: &model::PersistentVolume, strings: &mut Interner) -> Self {
        Self {
            labels: Labels::new(&raw.labels, strings),
            affinity: raw.node_affinity.as_ref().map(|a| NodeSelector::new(a, strings)),
            raw: raw.clone(),
        }
    }
}

/// A PersistentVolumeClaim with its selector over interned strings.
#[derive(Debug)]
pub struct Claim {
    /// The object.
    pub raw: model::PersistentVolumeClaim,
    /// Which volumes will do.
    pub selector: Option<Selector>,
}

impl Claim {
    /// Interns a claim.
    pub fn new(raw: &model::PersistentVolumeClaim, strings: &mut Interner) -> Self {
        Self { selector: raw.selector.as_ref().map(|s| Selector::new(s, strings)), raw: raw.clone() }
    }
}

/// A StorageClass with its topologies over interned strings.
#[derive(Debug)]
pub struct Class {
    /// The object.
    pub raw: model::StorageClass,
    /// Alternatives of (label key, values).
    pub topologies: Vec<Vec<(Sym, Vec<Sym>)>>,
}

impl Class {
    /// Interns a class.
    pub fn new(raw: &model::StorageClass, strings: &mut Interner) -> Self {
        let mut pair = |(key, values): &(String, Vec<String>)| {
            let key = strings.intern(key);
            (key, values.iter().map(|v| strings.intern(v)).collect())
        };
        let topologies = raw.allowed_topologies.iter().map(|t| t.iter().map(&mut pair).collect()).collect();
        Self { topologies, raw: raw.clone() }
    }

    /// Whether volumes can be made for a node with these labels.
    pub fn allows(&self, labels: &Labels) -> bool {
        self.topologies.is_empty()
            || self.topologies.iter().any(|term| {
                !term.is_empty()
                    && term.iter().all(|(k, values)| labels.get(*k).is_some_and(|v| values.contains(&v)))
            })
    }
}

/// A CSIStorageCapacity with its topology over interned strings.
#[derive(Debug)]
pub struct Capacity {
    /// The object.
    pub raw: model::StorageCapacity,
    /// Nodes it is about; `None`: none.
    pub topology: Option<Selector>,
}

impl Capacity {
    /// Interns a capacity.
    pub fn new(raw: &model::StorageCapacity, strings: &mut Interner) -> Self {
        Self { topology: raw.topology.as_ref().map(|s| Selector::new(s, strings)), raw: raw.clone() }
    }

    /// The largest volume that can be made.
    pub fn limit(&self) -> Option<i64> {
        self.raw.maximum_volume_size.or(self.raw.capacity)
    }
}

/// Objects by kind, over interned strings.
#[derive(Debug, Default)]
pub struct Objects {
    /// Services by namespace, then name.
    pub services: Map<Sym, BTreeMap<Sym, Service>>,
    /// Disruption budgets by namespace, then name.
    pub budgets: Map<Sym, BTreeMap<Sym, Budget>>,
    /// Selectors of owners by namespace, kind and name.
    pub owners: Map<(Sym, OwnerKind, Sym), OwnerSelector>,
    /// Volumes by name.
    pub volumes: BTreeMap<String, Arc<Volume>>,
    /// Claims by namespace and name.
    pub claims: BTreeMap<(Sym, String), Arc<Claim>>,
    /// What placements on their way have in mind for claims (namespace, name).
    pub assumed: BTreeMap<(String, String), Assumed>,
    /// Classes by name.
    pub classes: BTreeMap<String, Arc<Class>>,
    /// Drivers of nodes by node name.
    pub csi_nodes: BTreeMap<String, Arc<model::CsiNode>>,
    /// Drivers by name.
    pub csi_drivers: BTreeMap<String, Arc<model::CsiDriver>>,
    /// Capacities by namespace and name.
    pub capacities: BTreeMap<(String, String), Arc<Capacity>>,
    /// Devices, classes of devices and claims for devices.
    pub devices: super::devices::Devices,
    /// Attachments of volumes to nodes.
    pub attachments: super::attachments::Attachments,
}

/// What a placement on its way has in mind for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assumed {
    /// Bind it to this volume.
    Volume(String),
    /// Make a volume for it on this node.
    Node(String),
}

/// Selector of an owner of pods.
#[derive(Clone, Debug)]
pub enum OwnerSelector {
    /// A label selector.
    Selector(Selector),
}

impl Objects {
    /// Marks what they hold.
    pub fn mark(&self, marks: &mut Marks) {
        let Self {
            services,
            budgets,
            owners,
            volumes,
            claims,
            assumed: _,
            classes,
            csi_nodes: _,
            csi_drivers: _,
            capacities,
            devices,
            attachments: _,
        } = self;
        for (namespace, all) in services {
            marks.mark(*namespace);
            for (name, Service { selector }) in all {
                marks.mark(*name);
                marks.pairs(selector.iter().flatten());
            }
        }
        for (namespace, all) in budgets {
            marks.mark(*namespace);
            for (name, Budget { selector, allowed: _, disrupted: _ }) in all {
                marks.mark(*name);
                selector.mark(marks);
            }
        }
        for ((namespace, _, name), OwnerSelector::Selector(selector)) in owners {
            marks.all([namespace, name]);
            selector.mark(marks);
        }
        for volume in volumes.values() {
            let Volume { raw: _, labels, affinity } = &**volume;
            labels.mark(marks);
            affinity.iter().for_each(|a| a.mark(marks));
        }
        for ((namespace, _), claim) in claims {
            marks.mark(*namespace);
            claim.selector.iter().for_each(|s| s.mark(marks));
        }
        for (key, values) in classes.values().flat_map(|c| c.topologies.iter().flatten()) {
            marks.mark(*key);
            marks.all(values);
        }
        capacities.values().filter_map(|c| c.topology.as_ref()).for_each(|t| t.mark(marks));
        devices.mark(marks);
    }

    /// Services of a namespace that select pods with these labels.
    pub fn services_of<'a>(
        &'a self,
        namespace: Sym,
        labels: &'a Labels,
    ) -> impl Iterator<Item = &'a [(Sym, Sym)]> + 'a {
        let all = self.services.get(&namespace).into_iter().flat_map(BTreeMap::values);
        all.filter_map(|s| s.selector.as_deref()).filter(|pairs| labels.has_all(pairs))
    }

    /// The class of claims that name none, where there is exactly one.
    pub fn default_class(&self) -> Option<&str> {
        let mut all = self.classes.values().filter(|c| c.raw.default).map(|c| c.raw.name.as_str());
        all.next().filter(|_| all.next().is_none())
    }

    /// A claim.
    pub fn claim(&self, namespace: Sym, name: &str) -> Option<&Arc<Claim>> {
        // The key is built for the look-up only; claims are looked up once per pod and cycle.
        self.claims.get(&(namespace, name.to_owned()))
    }
}

/// What changed about an object.
#[derive(Clone, Debug)]
pub enum ObjectChange {
    /// A PersistentVolume.
    Volume(Pair<Volume>),
    /// A PersistentVolumeClaim.
    Claim(Pair<Claim>),
    /// A StorageClass.
    Class(Pair<Class>),
    /// A CSINode.
    CsiNode(Pair<model::CsiNode>),
    /// A CSIDriver.
    CsiDriver(Pair<model::CsiDriver>),
    /// A CSIStorageCapacity.
    Capacity(Pair<Capacity>),
    /// A VolumeAttachment.
    Attachment(Pair<model::VolumeAttachment>),
    /// A ResourceClaim.
    DeviceClaim(Pair<super::devices::Claim>),
    /// A ResourceSlice.
    DeviceSlice(#[expect(dead_code, reason = "no hint looks into slices")] Pair<super::slices::Slice>),
    /// A DeviceClass.
    DeviceClass(Pair<model::DeviceClass>),
    /// A PodGroup: namespace and name.
    PodGroup(Sym, Box<str>),
}
