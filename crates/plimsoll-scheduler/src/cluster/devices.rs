//! Devices, classes and claims over interned strings.

use super::Cluster;
use super::changes::Pair;
use super::labels::NodeSelector;
use super::slices::{PoolIndex, Slice};
use plimsoll_state::DeviceSelector;
use plimsoll_state::intern::{Interner, Marks, Sym};
use plimsoll_state::model::{self, AllocatedDevice};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

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

/// Answers of a selector for the devices of a slice.
type Answers = Arc<Vec<Result<bool, String>>>;

/// Most expressions of which answers are kept: claims may come with ever new ones.
const MAX_EXPRESSIONS: usize = 256;

/// Answers of selectors.
#[derive(Debug, Default)]
struct Asked {
    /// By expression and name of the slice.
    answers: BTreeMap<String, BTreeMap<String, Answers>>,
    /// Expressions, those asked first before others.
    order: VecDeque<String>,
}

impl Asked {
    fn forget_slice(&mut self, name: &str) {
        self.answers.values_mut().for_each(|slices| drop(slices.remove(name)));
    }

    fn insert(&mut self, expression: &str, slice: &str, answers: Answers) {
        if !self.answers.contains_key(expression) {
            while self.order.len() >= MAX_EXPRESSIONS {
                let Some(oldest) = self.order.pop_front() else { break };
                self.answers.remove(&oldest);
            }
            self.order.push_back(expression.to_owned());
        }
        self.answers.entry(expression.to_owned()).or_default().insert(slice.to_owned(), answers);
    }
}

/// Devices that claims hold, each with the number of these: by driver, pool and name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct InUse(BTreeMap<String, BTreeMap<String, BTreeMap<String, u32>>>);

impl InUse {
    /// Those of a pool.
    pub fn of_pool(&self, driver: &str, pool: &str) -> Option<&BTreeMap<String, u32>> {
        self.0.get(driver)?.get(pool)
    }

    fn count<'a>(&mut self, given: impl IntoIterator<Item = &'a AllocatedDevice>) {
        for d in given.into_iter().filter(|d| !d.admin) {
            let pools = self.0.entry(d.driver.clone()).or_default();
            *pools.entry(d.pool.clone()).or_default().entry(d.device.clone()).or_default() += 1;
        }
    }

    fn uncount<'a>(&mut self, given: impl IntoIterator<Item = &'a AllocatedDevice>) {
        for d in given.into_iter().filter(|d| !d.admin) {
            let Some(pools) = self.0.get_mut(&d.driver) else { continue };
            let Some(devices) = pools.get_mut(&d.pool) else { continue };
            if let Some(claims) = devices.get_mut(&d.device) {
                *claims -= 1;
                if *claims == 0 {
                    devices.remove(&d.device);
                }
            }
            if devices.is_empty() {
                pools.remove(&d.pool);
            }
            if pools.is_empty() {
                self.0.remove(&d.driver);
            }
        }
    }
}

fn allocated(claim: &Claim) -> impl Iterator<Item = &AllocatedDevice> {
    claim.raw.allocation.iter().flat_map(|a| &a.devices)
}

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
    /// Claims by namespace and name; changed by [`Devices::put_claim`] and [`Devices::remove_claim`] only.
    pub claims: BTreeMap<(Sym, String), Arc<Claim>>,
    /// Templates by namespace and name, as the claims that are made from them.
    pub templates: BTreeMap<(Sym, String), Arc<model::ResourceClaim>>,
    /// Classes by name.
    pub classes: BTreeMap<String, Arc<model::DeviceClass>>,
    /// Devices given to claims by placements whose writes are not confirmed yet, by namespace and name of the claim.
    in_flight: BTreeMap<(Sym, String), InFlight>,
    /// Devices that claims hold, those given a moment ago among them.
    in_use: InUse,
    /// The slices by where they have to be looked for, while none has changed.
    index: RefCell<Option<Arc<PoolIndex>>>,
    /// Evaluates selectors.
    pub selector: Option<Arc<dyn DeviceSelector>>,
    asked: RefCell<Asked>,
}

/// What stands for the claim of a pod's extended resources until it is made; no name of a claim.
pub fn extended_name(uid: &str) -> String {
    format!("<extended-resources>/{uid}")
}

impl Devices {
    /// Adds or replaces a slice.
    pub fn put_slice(&mut self, raw: &model::ResourceSlice, strings: &mut Interner) -> Pair<Slice> {
        self.slice_changes(&raw.name);
        let new = Arc::new(Slice::new(raw, strings));
        (self.slices.insert(raw.name.clone(), Arc::clone(&new)), Some(new))
    }

    /// Takes a slice out.
    pub fn remove_slice(&mut self, name: &str) -> Option<Arc<Slice>> {
        self.slice_changes(name);
        self.slices.remove(name)
    }

    fn slice_changes(&mut self, name: &str) {
        self.asked.get_mut().forget_slice(name);
        *self.index.get_mut() = None;
    }

    /// The slices by where they have to be looked for.
    pub fn index(&self) -> Arc<PoolIndex> {
        let mut index = self.index.borrow_mut();
        Arc::clone(index.get_or_insert_with(|| Arc::new(PoolIndex::new(self.slices.values()))))
    }

    /// Devices that claims hold, those given a moment ago among them.
    pub fn in_use(&self) -> &InUse {
        &self.in_use
    }

    /// What a placement has given to a claim whose write is not confirmed yet.
    pub fn given(&self, claim: &(Sym, String)) -> Option<&InFlight> {
        self.in_flight.get(claim)
    }

    /// A placement gives devices to a claim.
    pub fn give(&mut self, claim: (Sym, String), given: InFlight) {
        self.in_use.count(&given.devices);
        if let Some(before) = self.in_flight.insert(claim, given) {
            self.in_use.uncount(&before.devices);
        }
    }

    /// What was given to a claim counts no more.
    pub fn take_back(&mut self, claim: &(Sym, String)) {
        if let Some(given) = self.in_flight.remove(claim) {
            self.in_use.uncount(&given.devices);
        }
    }

    /// Compares what is counted with a count of the claims.
    ///
    /// # Panics
    /// When they differ.
    pub fn check(&self) {
        let mut in_use = InUse::default();
        self.claims.values().for_each(|claim| in_use.count(allocated(claim)));
        self.in_flight.values().for_each(|given| in_use.count(&given.devices));
        assert_eq!(in_use, self.in_use, "devices in use");
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
        let old = self.claims.insert(key, Arc::clone(&new));
        self.in_use.count(allocated(&new));
        self.in_use.uncount(old.iter().flat_map(|old| allocated(old)));
        Some((old, Some(new)))
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
            self.in_use.uncount(allocated(old));
            self.confirm(&key, &old.raw.uid);
            self.forget_extended(namespace, &old.raw);
        }
        old
    }

    /// Drops what is in flight for a claim, unless another claim has its name by now: the write is confirmed, or has failed.
    pub fn confirm(&mut self, key: &(Sym, String), uid: &str) {
        if self.in_flight.get(key).is_some_and(|given| given.uid == uid) {
            self.take_back(key);
        }
    }

    /// The claim for a pod's extended resources is there: what was given to it is in it, or never will be. A claim of an earlier
    /// attempt, which is still to be deleted, says nothing of the present one.
    fn forget_extended(&mut self, namespace: Sym, raw: &model::ResourceClaim) {
        let Some(owner) = raw.owners.iter().find(|o| raw.extended && o.controller) else { return };
        let key = (namespace, extended_name(&owner.uid));
        if self.in_flight.get(&key).is_some_and(|given| !given.replaces.contains(&raw.name)) {
            self.take_back(&key);
        }
    }

    /// Marks what they hold.
    pub fn mark(&self, marks: &mut Marks) {
        let Self { slices, claims, templates, in_flight, .. } = self;
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

    /// The answers of a selector for the devices of a slice.
    pub fn ask(&self, expression: &str, slice: &Slice) -> Answers {
        let known = |asked: &Asked| asked.answers.get(expression)?.get(&slice.raw.name).cloned();
        if let Some(known) = known(&self.asked.borrow()) {
            return known;
        }
        let one = |device: &model::Device| match &self.selector {
            Some(s) => s.matches(expression, &slice.raw.driver, device),
            None => Err("device selectors can't be evaluated here".to_owned()),
        };
        let answers: Answers = Arc::new(slice.raw.devices.iter().map(one).collect());
        self.asked.borrow_mut().insert(expression, &slice.raw.name, Arc::clone(&answers));
        answers
    }

    /// The class that stands for an extended resource: by its field, else by the implicit name.
    pub fn class_of_resource(&self, resource: &str) -> Option<&model::DeviceClass> {
        if let Some(name) = resource.strip_prefix("deviceclass.resource.kubernetes.io/") {
            return self.classes.get(name).map(|c| &**c);
        }
        model::DeviceClass::of_extended_resource(self.classes.values().map(|c| &**c), resource)
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

    /// Each with answers of its own.
    #[test]
    fn answers_of_few_expressions_are_kept() {
        let (mut devices, mut strings) = (Devices::default(), Interner::default());
        let slice = model::ResourceSlice { name: "s".into(), ..model::ResourceSlice::default() };
        let (_, slice) = devices.put_slice(&slice, &mut strings);
        let slice = slice.expect("it is there");
        for i in 0..3 * MAX_EXPRESSIONS {
            devices.ask(&format!("e{i}"), &slice);
            devices.ask(&format!("e{i}"), &slice);
        }
        let asked = devices.asked.borrow();
        assert_eq!((asked.answers.len(), asked.order.len()), (MAX_EXPRESSIONS, MAX_EXPRESSIONS));
    }

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
