//! Devices, classes and claims over interned strings.

use super::changes::Pair;
use super::labels::NodeSelector;
use super::{Cluster, Node};
use plimsoll_state::DeviceSelector;
use plimsoll_state::collect::InsertEach as _;
use plimsoll_state::intern::{Interner, Marks, Sym};
use plimsoll_state::model::{self, AllocatedDevice};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Nodes that reach devices.
#[derive(Debug)]
pub enum Reach {
    /// One node.
    Node(Sym),
    /// All nodes.
    All,
    /// Some nodes.
    Selected(NodeSelector),
}

impl Reach {
    fn new(raw: &model::Reach, strings: &mut Interner) -> Self {
        match raw {
            model::Reach::Node(n) => Self::Node(strings.intern(n)),
            model::Reach::All => Self::All,
            model::Reach::Selected(s) => Self::Selected(NodeSelector::new(s, strings)),
        }
    }

    fn mark(&self, marks: &mut Marks) {
        match self {
            Self::Node(name) => marks.mark(*name),
            Self::All => {}
            Self::Selected(s) => s.mark(marks),
        }
    }

    /// Whether the node is one of them.
    pub fn includes(&self, node: &Node, strings: &Interner) -> bool {
        match self {
            Self::Node(name) => *name == node.name,
            Self::All => true,
            Self::Selected(s) => s.matches(node.name, &node.info.labels, strings),
        }
    }
}

/// A ResourceSlice.
#[derive(Debug)]
pub struct Slice {
    /// The object.
    pub raw: model::ResourceSlice,
    /// Nodes that reach all devices; `None`: each device has its own.
    pub reach: Option<Reach>,
    /// Nodes that reach each device, when the slice leaves it to them.
    pub device_reach: Vec<Option<Reach>>,
}

impl Slice {
    /// Interns a slice.
    pub fn new(raw: &model::ResourceSlice, strings: &mut Interner) -> Self {
        let reach = raw.reach.as_ref().map(|r| Reach::new(r, strings));
        let device_reach =
            raw.devices.iter().map(|d| d.reach.as_ref().map(|r| Reach::new(r, strings))).collect();
        Self { reach, device_reach, raw: raw.clone() }
    }

    /// Whether a node reaches a device.
    pub fn reaches(&self, device: usize, node: &Node, strings: &Interner) -> bool {
        match &self.reach {
            Some(r) => r.includes(node, strings),
            None => self
                .device_reach
                .get(device)
                .and_then(Option::as_ref)
                .is_some_and(|r| r.includes(node, strings)),
        }
    }
}

/// A ResourceClaim.
#[derive(Debug)]
pub struct Claim {
    /// The object.
    pub raw: model::ResourceClaim,
    /// Nodes on which its allocation can be used; `None`: all, or not allocated.
    pub nodes: Option<NodeSelector>,
}

impl Claim {
    /// Interns a claim.
    pub fn new(raw: &model::ResourceClaim, strings: &mut Interner) -> Self {
        let nodes = raw.allocation.as_ref().and_then(|a| a.nodes.as_ref());
        Self { nodes: nodes.map(|n| NodeSelector::new(n, strings)), raw: raw.clone() }
    }
}

/// Driver, pool and name of a device.
pub type DeviceId = (String, String, String);

/// Answers of a selector for the devices of a slice.
type Answers = Arc<Vec<Result<bool, String>>>;

/// Devices that a placement has given to a claim, until the write is confirmed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// UID of the claim; of the pod where the claim for its extended resources is still to be made.
    pub uid: String,
    /// Claims for the pod's extended resources that this placement replaces, by name.
    pub replaces: Vec<String>,
    /// The devices.
    pub devices: Vec<AllocatedDevice>,
}

/// All that is known of devices.
#[derive(Debug, Default)]
pub struct Devices {
    /// Slices by name.
    pub slices: BTreeMap<String, Arc<Slice>>,
    /// Claims by namespace and name.
    pub claims: BTreeMap<(Sym, String), Arc<Claim>>,
    /// Templates by namespace and name, as the claims that are made from them.
    pub templates: BTreeMap<(Sym, String), Arc<model::ResourceClaim>>,
    /// Classes by name.
    pub classes: BTreeMap<String, Arc<model::DeviceClass>>,
    /// Devices given to claims by placements whose writes are not confirmed yet, by namespace and name of the claim.
    pub in_flight: BTreeMap<(Sym, String), InFlight>,
    /// Evaluates selectors.
    pub selector: Option<Arc<dyn DeviceSelector>>,
    /// Answers by expression and slice.
    answers: RefCell<BTreeMap<(String, String), Answers>>,
}

/// What stands for the claim of a pod's extended resources until it is made; no name of a claim.
pub fn extended_name(uid: &str) -> String {
    format!("<extended-resources>/{uid}")
}

impl Devices {
    /// Adds or replaces a slice.
    pub fn put_slice(&mut self, raw: &model::ResourceSlice, strings: &mut Interner) -> Pair<Slice> {
        self.answers.borrow_mut().retain(|(_, slice), _| *slice != raw.name);
        let new = Arc::new(Slice::new(raw, strings));
        (self.slices.insert(raw.name.clone(), Arc::clone(&new)), Some(new))
    }

    /// Takes a slice out.
    pub fn remove_slice(&mut self, name: &str) -> Option<Arc<Slice>> {
        self.answers.borrow_mut().retain(|(_, slice), _| slice != name);
        self.slices.remove(name)
    }

    /// Adds or replaces a claim. `None`: a later state of it is known, from the response to a write (upstream's assume
    /// cache, `util/assumecache`).
    pub fn put_claim(&mut self, raw: &model::ResourceClaim, strings: &mut Interner) -> Option<Pair<Claim>> {
        let key = (strings.intern(&raw.namespace), raw.name.clone());
        if raw.version > 0 && self.claims.get(&key).is_some_and(|c| c.raw.version > raw.version) {
            return None;
        }
        if raw.allocation.is_some() {
            self.confirm(&key, &raw.uid);
            self.forget_extended(key.0, raw);
        }
        let new = Arc::new(Claim::new(raw, strings));
        Some((self.claims.insert(key, Arc::clone(&new)), Some(new)))
    }

    /// Whether an older version of this claim is known.
    pub fn has_older(&self, raw: &model::ResourceClaim, strings: &Interner) -> bool {
        let key = strings.get(&raw.namespace).map(|namespace| (namespace, raw.name.clone()));
        let known = key.and_then(|k| self.claims.get(&k));
        known.is_some_and(|c| c.raw.uid == raw.uid && c.raw.version < raw.version)
    }

    /// Takes a claim out.
    pub fn remove_claim(&mut self, namespace: Sym, name: &str) -> Option<Arc<Claim>> {
        let key = (namespace, name.to_owned());
        let old = self.claims.remove(&key);
        if let Some(old) = &old {
            self.confirm(&key, &old.raw.uid);
            self.forget_extended(namespace, &old.raw);
        }
        old
    }

    /// Drops what is in flight for a claim, unless another claim has its name by now: the write is confirmed, or has failed.
    pub fn confirm(&mut self, key: &(Sym, String), uid: &str) {
        if self.in_flight.get(key).is_some_and(|given| given.uid == uid) {
            self.in_flight.remove(key);
        }
    }

    /// The claim for a pod's extended resources is there: what was given to it is in it, or never will be. A claim of an earlier
    /// attempt, which is still to be deleted, says nothing of the present one.
    fn forget_extended(&mut self, namespace: Sym, raw: &model::ResourceClaim) {
        let Some(owner) = raw.owners.iter().find(|o| raw.extended && o.controller) else { return };
        let key = (namespace, extended_name(&owner.uid));
        if self.in_flight.get(&key).is_some_and(|given| !given.replaces.contains(&raw.name)) {
            self.in_flight.remove(&key);
        }
    }

    /// Marks what they hold.
    pub fn mark(&self, marks: &mut Marks) {
        let Self { slices, claims, templates, classes: _, in_flight, selector: _, answers: _ } = self;
        for slice in slices.values() {
            let all = slice.reach.iter().chain(slice.device_reach.iter().flatten());
            all.for_each(|reach| reach.mark(marks));
        }
        claims.values().filter_map(|c| c.nodes.as_ref()).for_each(|n| n.mark(marks));
        let named = claims.keys().chain(in_flight.keys()).chain(templates.keys());
        named.for_each(|(namespace, _)| marks.mark(*namespace));
    }

    /// Claims that were made for the extended resources of a pod.
    pub fn made_for(&self, namespace: Sym, uid: &str) -> Vec<Arc<Claim>> {
        let from = (namespace, String::new());
        let all = self.claims.range(from..).take_while(|((ns, _), _)| *ns == namespace).map(|(_, c)| c);
        let own =
            |c: &&Arc<Claim>| c.raw.extended && c.raw.owners.iter().any(|o| o.controller && o.uid == uid);
        all.filter(own).cloned().collect()
    }

    /// Devices that claims hold, those given a moment ago among them.
    pub fn in_use(&self) -> BTreeSet<DeviceId> {
        let allocated =
            self.claims.values().filter_map(|c| c.raw.allocation.as_ref()).flat_map(|a| &a.devices);
        let all = allocated.chain(self.in_flight.values().flat_map(|given| &given.devices));
        all.filter(|d| !d.admin).map(|d| (d.driver.clone(), d.pool.clone(), d.device.clone())).insert_each()
    }

    /// The answers of a selector for the devices of a slice.
    pub fn ask(&self, expression: &str, slice: &Slice) -> Answers {
        let key = (expression.to_owned(), slice.raw.name.clone());
        if let Some(known) = self.answers.borrow().get(&key) {
            return Arc::clone(known);
        }
        let one = |device: &model::Device| match &self.selector {
            Some(s) => s.matches(expression, &slice.raw.driver, device),
            None => Err("device selectors can't be evaluated here".to_owned()),
        };
        let answers: Answers = Arc::new(slice.raw.devices.iter().map(one).collect());
        self.answers.borrow_mut().insert(key, Arc::clone(&answers));
        answers
    }

    /// The class that stands for an extended resource: by its field, else by the implicit name.
    pub fn class_of_resource(&self, resource: &str) -> Option<&Arc<model::DeviceClass>> {
        if let Some(name) = resource.strip_prefix("deviceclass.resource.kubernetes.io/") {
            return self.classes.get(name);
        }
        self.classes.values().find(|c| c.extended_resource.as_deref() == Some(resource))
    }
}

impl Cluster {
    /// Whether the devices of a class stand for this extended resource.
    pub fn is_backed_by_devices(&self, resource: Sym) -> bool {
        let devices = &self.objects.devices;
        !devices.classes.is_empty() && devices.class_of_resource(self.strings.text(resource)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A claim was deleted and made again under its name while an answer to a write of the first one was on its way.
    #[test]
    fn a_late_answer_brings_no_claim_back() {
        let (mut devices, mut strings) = (Devices::default(), Interner::default());
        let claim = |uid: &str, version: u64| model::ResourceClaim {
            namespace: "ns".into(),
            name: "c".into(),
            uid: uid.into(),
            version,
            ..model::ResourceClaim::default()
        };
        devices.put_claim(&claim("1", 3), &mut strings);
        assert!(devices.has_older(&claim("1", 4), &strings));
        assert!(!devices.has_older(&claim("1", 3), &strings), "it is not news");
        let space = strings.intern("ns");
        devices.remove_claim(space, "c");
        assert!(!devices.has_older(&claim("1", 5), &strings), "it is gone");
        devices.put_claim(&claim("2", 6), &mut strings);
        assert!(!devices.has_older(&claim("1", 5), &strings), "another has its name");
        assert!(devices.put_claim(&claim("1", 5), &mut strings).is_none());
        assert!(devices.put_claim(&claim("2", 7), &mut strings).is_some());
    }
}
