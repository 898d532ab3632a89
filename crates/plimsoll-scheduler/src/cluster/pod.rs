//! Pods: one small row each, what they share in shapes and specs.

use super::OwnerKind;
use super::amounts::Usage;
use super::ids::{NodeId, ShapeId, SpecId};
use super::labels::Labels;
use super::spec::Spec;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use plimsoll_state::intern::{Interner, Marks, Sym};
use plimsoll_state::model::{self, PodSpec};
use plimsoll_state::slab::{Id, Slab};
use plimsoll_state::time::Time;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

/// What pods of one kind share.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Namespace.
    pub namespace: Sym,
    /// Labels.
    pub labels: Labels,
    /// Spec.
    pub spec: Arc<Spec>,
    /// Number of the spec.
    pub spec_id: SpecId,
}

/// Names of generated device claims: (name in the pod, claim; `None`: none is needed).
pub type ClaimStatuses = Box<[(Box<str>, Option<Box<str>>)]>;

/// Parts of a pod that most pods don't have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// What the pod occupies when its status says something else than its spec.
    pub usage: Option<Usage>,
    /// Scheduling gates, in order.
    pub gates: Box<[Box<str>]>,
    /// Condition `DisruptionTarget` with reason `PreemptionByScheduler`.
    pub preempted: bool,
    /// Names of generated device claims.
    pub claim_statuses: ClaimStatuses,
    /// `status.nominatedNodeName` as last seen.
    pub nominated: Box<str>,
    /// PodGroup it belongs to, empty for none.
    pub group: Box<str>,
}

/// A pod row.
#[derive(Clone, Debug)]
pub struct Pod {
    /// UID.
    pub uid: Box<str>,
    /// Name.
    pub name: Box<str>,
    /// What it shares with others.
    pub shape: ShapeId,
    /// Node it is counted on: bound, or assumed while the binding is written.
    pub node: Option<NodeId>,
    /// Position in the node's list.
    pub(super) slot: u32,
    /// Node it is nominated to.
    pub nominated: Option<NodeId>,
    /// Whether deletion has been asked for.
    pub deleting: bool,
    /// Whether it belongs to a Workload, or is what is reserved for a pod of one.
    pub queued: bool,
    /// When the kubelet accepted it.
    pub start_time: Option<Time>,
    /// Whether its condition `PodScheduled` is `False` already.
    pub unscheduled: bool,
    /// `metadata.generation`.
    pub generation: i64,
    /// Owner that takes part in default spreading.
    pub owner: Option<(OwnerKind, Sym)>,
    /// Rare parts.
    pub extra: Option<Box<Extra>>,
}

impl Pod {
    /// A pod on no node.
    pub fn new(uid: &str, name: &str, shape: ShapeId) -> Self {
        Self {
            uid: uid.into(),
            name: name.into(),
            shape,
            node: None,
            slot: 0,
            nominated: None,
            deleting: false,
            queued: false,
            start_time: None,
            unscheduled: false,
            generation: 0,
            owner: None,
            extra: None,
        }
    }
}

struct Counted<T> {
    row: Arc<T>,
    refs: u32,
    hash: u64,
}

impl<T> std::fmt::Debug for Counted<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Counted({} refs)", self.refs)
    }
}

/// Shapes and specs in use, found by content, freed with their last pod.
#[derive(Debug)]
pub struct Shapes {
    specs: Slab<SpecId, Counted<Spec>>,
    spec_table: HashTable<SpecId>,
    shapes: Slab<ShapeId, Counted<Shape>>,
    shape_table: HashTable<ShapeId>,
    hasher: FixedState,
    freed_specs: Vec<SpecId>,
    freed_shapes: Vec<ShapeId>,
}

impl Default for Shapes {
    fn default() -> Self {
        Self {
            specs: Slab::default(),
            spec_table: HashTable::new(),
            shapes: Slab::default(),
            shape_table: HashTable::new(),
            hasher: FixedState::with_seed(0x5a4e_0001),
            freed_specs: Vec::new(),
            freed_shapes: Vec::new(),
        }
    }
}

impl Shapes {
    /// The shape of a pod, counted once more.
    pub fn acquire(&mut self, pod: &model::Pod, strings: &mut Interner) -> ShapeId {
        let namespace = strings.intern(&pod.namespace);
        let labels = Labels::new(&pod.labels, strings);
        self.acquire_parts(namespace, labels, &pod.spec, strings)
    }

    fn acquire_parts(
        &mut self,
        namespace: Sym,
        labels: Labels,
        spec: &PodSpec,
        strings: &mut Interner,
    ) -> ShapeId {
        let mut plain;
        let spec = if spec.node_name.is_empty() && spec.scheduling_gates.is_empty() {
            spec
        } else {
            plain = spec.clone();
            plain.node_name.clear();
            plain.scheduling_gates.clear();
            &plain
        };
        let spec_id = self.acquire_spec(spec, strings);
        let hash = self.hash_shape(namespace, &labels, spec_id);
        let shapes = &mut self.shapes;
        let same = |id: &ShapeId| {
            let s = &shapes[*id].row;
            s.namespace == namespace && s.spec_id == spec_id && s.labels == labels
        };
        if let Some(id) = self.shape_table.find(hash, same).copied() {
            shapes[id].refs += 1;
            self.release_spec(spec_id);
            return id;
        }
        let row = Shape { namespace, labels, spec: Arc::clone(&self.specs[spec_id].row), spec_id };
        let id = self.shapes.insert(Counted { row: Arc::new(row), refs: 1, hash });
        let shapes = &self.shapes;
        self.shape_table.insert_unique(hash, id, |i| shapes[*i].hash);
        id
    }

    fn hash_shape(&self, namespace: Sym, labels: &Labels, spec: SpecId) -> u64 {
        let mut h = self.hasher.build_hasher();
        (namespace, spec).hash(&mut h);
        labels.hash(&mut h);
        std::hash::Hasher::finish(&h)
    }

    fn acquire_spec(&mut self, spec: &PodSpec, strings: &mut Interner) -> SpecId {
        let hash = self.hasher.hash_one(spec);
        let specs = &mut self.specs;
        if let Some(id) = self.spec_table.find(hash, |i| *specs[*i].row.source == *spec).copied() {
            specs[id].refs += 1;
            return id;
        }
        let row = Arc::new(Spec::new(spec.clone(), strings));
        let id = self.specs.insert(Counted { row, refs: 1, hash });
        let specs = &self.specs;
        self.spec_table.insert_unique(hash, id, |i| specs[*i].hash);
        id
    }

    fn release_spec(&mut self, id: SpecId) {
        let row = &mut self.specs[id];
        row.refs -= 1;
        if row.refs > 0 {
            return;
        }
        if let Ok(entry) = self.spec_table.find_entry(row.hash, |i| *i == id) {
            entry.remove();
        }
        self.specs.remove(id);
        self.freed_specs.push(id);
    }

    /// A shape for pods like those of another one that also select nodes by these labels. It isn't found by content: pods
    /// with places in a topology differ in nothing else, and to parse and hash the spec of each takes longer than to place it.
    pub fn selecting(&mut self, like: ShapeId, labels: &[(Sym, Sym)]) -> ShapeId {
        let like = Arc::clone(&self.shapes[like].row);
        let mut spec = Spec::clone(&like.spec);
        let own = std::mem::take(&mut spec.node_selector).into_vec();
        let mut selector = Vec::with_capacity(own.len() + labels.len());
        selector.extend(own);
        for (key, value) in labels {
            match selector.iter_mut().find(|(k, _)| k == key) {
                Some((_, own)) => *own = *value,
                None => selector.push((*key, *value)),
            }
        }
        spec.node_selector = selector.into();
        let spec = Arc::new(spec);
        let spec_id = self.specs.insert(Counted { row: Arc::clone(&spec), refs: 1, hash: 0 });
        let row = Shape { namespace: like.namespace, labels: like.labels.clone(), spec, spec_id };
        self.shapes.insert(Counted { row: Arc::new(row), refs: 1, hash: 0 })
    }

    /// A shape in use, counted once more.
    pub fn share(&mut self, id: ShapeId) -> ShapeId {
        self.shapes[id].refs += 1;
        id
    }

    /// Gives a shape back.
    pub fn release(&mut self, id: ShapeId) {
        let row = &mut self.shapes[id];
        row.refs -= 1;
        if row.refs > 0 {
            return;
        }
        if let Ok(entry) = self.shape_table.find_entry(row.hash, |i| *i == id) {
            entry.remove();
        }
        if let Some(shape) = self.shapes.remove(id) {
            self.freed_shapes.push(id);
            self.release_spec(shape.row.spec_id);
        }
    }

    /// Specs freed since the last call: what is cached under their numbers is stale.
    pub fn take_freed_specs(&mut self) -> Vec<SpecId> {
        std::mem::take(&mut self.freed_specs)
    }

    /// Shapes freed since the last call: what is cached under their numbers is stale.
    pub fn take_freed_shapes(&mut self) -> Vec<ShapeId> {
        std::mem::take(&mut self.freed_shapes)
    }

    /// Marks what the shape and the spec of a number hold.
    pub fn mark(&self, number: usize, marks: &mut Marks) {
        if let Some(shape) = self.shapes.get(ShapeId::new(number)) {
            let Shape { namespace, labels, spec: _, spec_id: _ } = &*shape.row;
            marks.mark(*namespace);
            labels.mark(marks);
        }
        if let Some(spec) = self.specs.get(SpecId::new(number)) {
            spec.row.mark(marks);
        }
    }

    /// The numbers of all shapes and specs are below it.
    pub fn bound(&self) -> usize {
        self.shapes.bound().max(self.specs.bound())
    }

    /// A shape.
    pub fn get(&self, id: ShapeId) -> &Arc<Shape> {
        &self.shapes[id].row
    }
}
