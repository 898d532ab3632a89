//! Which shard each tree of cohorts belongs to, and what its leader is to write to its objects.

#[cfg(test)]
mod protocol_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_queueing::ShardStop;
use serde_json::json;

use super::lead::{LED_BY, Labels, Lead, Marks, Member, TreeKind, TreeObject, labels, lead, stop};
use super::{DEFAULT, LABEL, MOVE_TO};
use crate::request::{PatchKind, Request};
use crate::resource::{CLUSTER_QUEUES, COHORTS};

/// To which shard something belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    keeper: Arc<str>,
    stop: Option<ShardStop>,
    /// Whether another shard may admit workloads there, or has done so unseen.
    may_be_others: bool,
}

impl Default for Owner {
    fn default() -> Self {
        Self { keeper: DEFAULT.into(), stop: None, may_be_others: false }
    }
}

impl Owner {
    /// Whether it belongs to a shard, with its tree.
    pub fn is(&self, shard: &str) -> bool {
        *self.keeper == *shard && !matches!(self.stop, Some(ShardStop::Conflict(_)))
    }

    /// The shard whose leader knows it and writes about it: the one that leads it by now or, as long as none does, the one of the label.
    pub fn keeper(&self) -> &str {
        &self.keeper
    }

    /// Whether the job controllers of this process's shard, which has this name, act there. They do not from the write that gives the
    /// object to another shard, and not before this process has seen every write of the leader before: they would suspend the jobs of
    /// workloads whose admission this process has not seen.
    pub fn controls(&self, shard: &str) -> bool {
        *self.keeper == *shard && !self.may_be_others
    }

    /// Why the leader of this process's shard admits nothing there, if that shard has it.
    pub const fn stop(&self) -> Option<&ShardStop> {
        self.stop.as_ref()
    }

    /// Whether the leader of this process's shard, which has this name, ends loans there: it decides, or did until the tree was asked away.
    pub fn may_end_loans(&self, shard: &str) -> bool {
        *self.keeper == *shard && matches!(self.stop, None | Some(ShardStop::Leaves(_)))
    }

    /// Whether the leader of this process's shard, which has this name, admits there.
    pub fn decides(&self, shard: &str) -> bool {
        *self.keeper == *shard && self.stop.is_none()
    }
}

/// ClusterQueues and cohorts that belong to another shard than before, or are stopped for another reason.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Names of ClusterQueues, also of such that there are none of.
    pub cluster_queues: BTreeSet<String>,
    /// Those of them that another shard keeps than before.
    pub handed: BTreeSet<String>,
    /// Those of them in which the job controllers of this shard act from now on.
    pub controlled: BTreeSet<String>,
    /// Whether pods of some of them are known to another shard than before: those of a tree whose labels disagree are to none.
    pub pods: bool,
    /// Names of cohorts.
    pub cohorts: BTreeSet<String>,
}

/// What gives an object to another shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The other shard.
    pub to: String,
    /// Whether its label changes as well.
    labels: bool,
    /// Whether the annotation is removed that asked for it.
    moves: bool,
}

/// A change of an object of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeChange {
    /// It gets the name of its leader, where it had none.
    Claim,
    /// It stays, and no longer asks for that.
    Stay(Given),
    /// It is given to another shard.
    Give(Given),
}

/// A write to an object of a tree. It is carried out only while the object has the version that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeStep {
    /// The object.
    pub object: TreeObject,
    /// Its version.
    pub version: String,
    /// What changes.
    pub change: TreeChange,
    /// Whether it may have been carried out before, because an answer was lost.
    pub repeats: bool,
}

impl TreeStep {
    /// The write, by the leader of this shard.
    pub fn request(&self, shard: &str) -> Request {
        let mut body = json!({"metadata": {"resourceVersion": self.version, "annotations": {}}});
        let meta = &mut body["metadata"];
        match &self.change {
            TreeChange::Claim => meta["annotations"][LED_BY] = json!(shard),
            TreeChange::Stay(Given { to, labels, moves }) | TreeChange::Give(Given { to, labels, moves }) => {
                meta["annotations"][LED_BY] = json!(to);
                if *moves {
                    meta["annotations"][MOVE_TO] = json!(null);
                }
                if *labels {
                    meta["labels"][LABEL] = json!((to != DEFAULT).then_some(to));
                }
            }
        }
        let resource = match self.object.kind {
            TreeKind::Cohort => COHORTS,
            TreeKind::ClusterQueue => CLUSTER_QUEUES,
        };
        Request::patch(resource, "", &self.object.name, "", PatchKind::Merge, body)
    }
}

/// An object of a tree, as it was seen last.
#[derive(Debug, Default)]
struct Entry {
    member: Member,
    version: String,
    /// When it was first seen to be led by this shard: a count.
    since: u64,
}

/// A tree as it stands.
#[derive(Debug)]
struct Tree {
    lead: Lead,
    labels: Labels,
    /// Whether loans keep it where it is.
    lends: bool,
    objects: Vec<TreeObject>,
}

/// All ClusterQueues and Cohorts, as trees that belong to shards, as the process of one shard sees them.
///
/// One label anywhere in a tree is enough, on the root or, where a root cohort has no object, on one of its ClusterQueues. A tree
/// without a label belongs to [`DEFAULT`]; one with several different labels to nobody.
#[derive(Debug, Default)]
pub struct Trees {
    shard: String,
    entries: BTreeMap<TreeObject, Entry>,
    /// Loans that are granted: both cohorts, by name.
    loans: BTreeMap<String, [String; 2]>,
    owners: BTreeMap<TreeObject, Owner>,
    /// By their root.
    trees: BTreeMap<TreeObject, Tree>,
    /// The root of each object, and of cohorts without an object.
    roots: BTreeMap<TreeObject, TreeObject>,
    count: u64,
    stale: bool,
    /// Whether there are no steps since the shards were computed last.
    rests: bool,
}

impl Trees {
    /// Trees as the process of this shard sees them.
    pub fn new(shard: &str) -> Self {
        Self { shard: shard.to_owned(), ..Self::default() }
    }

    /// An object was seen in this version, below this cohort (possibly empty).
    pub fn put(&mut self, object: TreeObject, above: &str, marks: Marks, version: &str) {
        let entry = self.entries.entry(object);
        let new = matches!(entry, std::collections::btree_map::Entry::Vacant(_));
        let entry = entry.or_default();
        if !new && entry.version == version && !version.is_empty() {
            return;
        }
        // An object that was given away may have been led by another shard, and given back, before a list showed it again.
        let same = entry.member.marks.led_by == marks.led_by && entry.member.given_to.is_none();
        if !same && marks.led_by == self.shard {
            self.count += 1;
            entry.since = self.count;
        }
        let known = entry.member.known && same;
        // Whatever was written for an older version can't be carried out any more, or has been.
        let member = Member { above: above.to_owned(), marks, known, given_to: None };
        self.stale |= new || entry.member != member;
        (entry.member, entry.version) = (member, version.to_owned());
    }

    /// An object is gone.
    pub fn remove(&mut self, object: &TreeObject) {
        self.stale |= self.entries.remove(object).is_some();
    }

    /// A loan is granted between these cohorts, or none of this name is.
    pub fn put_loan(&mut self, name: &str, cohorts: Option<&[String; 2]>) {
        let before = match cohorts {
            Some(cohorts) => self.loans.insert(name.to_owned(), cohorts.clone()),
            None => self.loans.remove(name),
        };
        self.stale |= before.as_ref() != cohorts;
    }

    /// To which shard a ClusterQueue belongs; to [`DEFAULT`] where there is none of this name.
    pub fn of_cluster_queue(&self, name: &str) -> Owner {
        self.owners.get(&TreeObject::cluster_queue(name)).cloned().unwrap_or_default()
    }

    /// To which shard a cohort belongs.
    pub fn of_cohort(&self, name: &str) -> Owner {
        self.owners.get(&TreeObject::cohort(name)).cloned().unwrap_or_default()
    }

    /// Whether there is a ClusterQueue of this name.
    pub fn has_cluster_queue(&self, name: &str) -> bool {
        self.entries.contains_key(&TreeObject::cluster_queue(name))
    }

    /// Whether there is a cohort of this name, with an object or without one.
    pub fn has_cohort(&self, name: &str) -> bool {
        self.roots.contains_key(&TreeObject::cohort(name))
    }

    /// The number of what was seen last, as [`Trees::unknown`] gives it.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// A number for something that is seen, larger than all before.
    pub const fn count_up(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Where objects name this shard as their leader since a moment before which not everything was seen: a number for
    /// [`Trees::found`], once everything has been seen that was written until now.
    pub fn unknown(&self) -> Option<u64> {
        let unknown = |entry: &Entry| entry.member.marks.led_by == self.shard && !entry.member.known;
        self.entries.values().any(unknown).then_some(self.count)
    }

    /// Everything has been seen that was written before [`Trees::unknown`] gave this number.
    pub fn found(&mut self, number: u64) {
        for entry in self.entries.values_mut() {
            let mine = entry.member.marks.led_by == self.shard;
            if mine && !entry.member.known && entry.since <= number {
                entry.member.known = true;
                self.stale = true;
            }
        }
    }

    /// Whether a write that gives an object away may still be carried out.
    pub fn is_giving(&self) -> bool {
        self.entries.values().any(|entry| entry.member.given_to.is_some())
    }

    /// A write that gives an object away may be carried out from now on.
    pub fn gives(&mut self, step: &TreeStep) {
        if let (TreeChange::Give(given), Some(entry)) = (&step.change, self.entries.get_mut(&step.object)) {
            entry.member.given_to = Some(given.to.clone());
            self.stale = true;
        }
    }

    /// ClusterQueues that this shard keeps, and all cohorts, in the tree of an object.
    pub fn around(&self, object: &TreeObject) -> (BTreeSet<String>, BTreeSet<&str>) {
        let root = self.roots.get(object);
        let same = self.roots.iter().filter(|(_, other)| Some(*other) == root).map(|(member, _)| member);
        let (queues, cohorts): (Vec<_>, Vec<_>) = same.partition(|o| o.kind == TreeKind::ClusterQueue);
        let kept =
            queues.into_iter().filter(|o| self.owners.get(o).is_some_and(|o| *o.keeper == *self.shard));
        (kept.map(|o| o.name.clone()).collect(), cohorts.into_iter().map(|o| &*o.name).collect())
    }

    /// The root of the tree of an object.
    pub fn root(&self, object: &TreeObject) -> Option<&TreeObject> {
        self.roots.get(object)
    }

    /// Whether the labels of a tree name this shard.
    fn is_owned(&self, tree: &Tree) -> bool {
        matches!(&tree.labels, Labels::One(owner) if *owner == self.shard)
    }

    /// Objects that another shard leads although the labels of their trees name this one, and that shard.
    pub fn awaited(&self) -> Vec<(TreeObject, String)> {
        let trees = self.trees.values().filter(|tree| self.is_owned(tree));
        let by = |object: &TreeObject| {
            let by = &self.entries.get(object)?.member.marks.led_by;
            (!by.is_empty() && *by != self.shard).then(|| (object.clone(), by.clone()))
        };
        trees.flat_map(|tree| tree.objects.iter().filter_map(by)).collect()
    }

    /// What the leader of the shard is to write to objects of trees. It may give an object away once nothing is under way in its tree.
    pub fn steps(&self) -> Vec<TreeStep> {
        let mut steps = Vec::new();
        if self.rests {
            return steps;
        }
        for tree in self.trees.values() {
            let entries = || tree.objects.iter().filter_map(|o| Some((o, self.entries.get(o)?)));
            let to = match &tree.lead {
                Lead::Leaves(to) if !tree.lends => Some(to),
                Lead::Waits(_, to) => to.as_ref(),
                Lead::Leaves(_) | Lead::Decides => None,
            };
            let stays = (tree.lead == Lead::Decides).then_some(&self.shard);
            let target = |member: &Member| member.given_to.as_ref().or(to).or(stays).cloned();
            let asks = |member: &Member| target(member).is_some_and(|to| member.marks.moves_to == Some(to));
            let mine = |member: &Member| member.marks.led_by == self.shard;
            let asked = entries().any(|(_, e)| asks(&e.member));
            let plain = entries().all(|(_, e)| e.member.marks.label.is_empty());
            let owned = self.is_owned(tree);
            let given = |member: &Member| {
                let to = target(member).filter(|_| mine(member) && member.known)?;
                let (label, moves) = (&member.marks.label, asks(member));
                let labels = asked && !label.is_empty() && *label != to || moves && plain && to != DEFAULT;
                (to != self.shard || labels || moves).then_some(Given { to, labels, moves })
            };
            // The object that asks for it is the last one. One of which not everything was seen has yet to go.
            let others = entries().any(|(_, Entry { member, .. })| {
                mine(member) && !member.known || given(member).is_some_and(|given| !given.moves)
            });
            for (object, Entry { member, version, .. }) in entries() {
                let change = match given(member) {
                    None => (member.marks.led_by.is_empty() && owned).then_some(TreeChange::Claim),
                    Some(given) if given.moves && others => None,
                    Some(given) if given.to == self.shard => Some(TreeChange::Stay(given)),
                    Some(given) => Some(TreeChange::Give(given)),
                };
                let step = |change| TreeStep {
                    object: object.clone(),
                    version: version.clone(),
                    change,
                    repeats: member.given_to.is_some(),
                };
                steps.extend(change.map(step));
            }
        }
        steps
    }

    /// Computes the shards anew after changes, in O(objects), and returns what has another one than before.
    pub fn resolve(&mut self) -> Changed {
        if !std::mem::take(&mut self.stale) {
            return Changed::default();
        }
        self.roots = self.all_roots();
        self.trees = self.all_trees();
        let owners = self.roots.iter().map(|(object, root)| (object.clone(), self.owner(object, root)));
        let owners: BTreeMap<TreeObject, Owner> = owners.collect();
        let before = std::mem::replace(&mut self.owners, owners);
        self.rests = false;
        self.rests = self.steps().is_empty();
        let default = Owner::default();
        let mut changed = Changed::default();
        for object in before.keys().chain(self.owners.keys()) {
            let [old, new] = [&before, &self.owners].map(|of| of.get(object).unwrap_or(&default));
            let name = || object.name.clone();
            match object.kind {
                TreeKind::Cohort if old != new => drop(changed.cohorts.insert(name())),
                TreeKind::ClusterQueue if old != new => {
                    changed.cluster_queues.insert(name());
                    let handed = old.keeper != new.keeper;
                    changed.pods |= handed || old.is(&new.keeper) != new.is(&new.keeper);
                    if handed {
                        changed.handed.insert(name());
                    }
                    if !old.controls(&self.shard) && new.controls(&self.shard) {
                        changed.controlled.insert(name());
                    }
                }
                TreeKind::Cohort | TreeKind::ClusterQueue => {}
            }
        }
        changed
    }

    fn owner(&self, object: &TreeObject, root: &TreeObject) -> Owner {
        let Some(tree) = self.trees.get(root) else { return Owner::default() };
        let member = self.entries.get(object).map(|entry| &entry.member);
        let led_by = member.map_or_else(|| self.leader_of(tree), |member| &member.marks.led_by);
        let keeper = match (&tree.labels, led_by) {
            (Labels::One(owner), "") => owner,
            (Labels::Several(_), "") => DEFAULT,
            (_, by) => by,
        };
        let stop = match &tree.labels {
            Labels::Several(why) if *keeper != *self.shard => Some(ShardStop::Conflict(why.clone())),
            Labels::One(_) if *keeper != *self.shard => None,
            _ => stop(&tree.lead, &tree.labels, &self.loans_of(root)),
        };
        let unseen = |member: &Member| member.marks.led_by == self.shard && !member.known;
        let may_be_others = member.is_some_and(|member| member.given_to.is_some() || unseen(member));
        Owner { keeper: keeper.into(), stop, may_be_others }
    }

    /// The shard that all objects of a tree name as their leader; empty where they do not agree. A cohort without an object is led
    /// with them.
    fn leader_of(&self, tree: &Tree) -> &str {
        let mut leaders =
            tree.objects.iter().filter_map(|o| Some(&*self.entries.get(o)?.member.marks.led_by));
        let first = leaders.next().unwrap_or_default();
        if leaders.all(|led_by| led_by == first) { first } else { "" }
    }

    /// Loans that are granted to cohorts of a tree, or by them.
    fn loans_of(&self, root: &TreeObject) -> BTreeSet<&str> {
        let within = |cohort: &String| self.roots.get(&TreeObject::cohort(cohort)) == Some(root);
        let of = |(_, cohorts): &(&String, &[String; 2])| cohorts.iter().any(within);
        self.loans.iter().filter(of).map(|(name, _)| &**name).collect()
    }

    fn all_trees(&self) -> BTreeMap<TreeObject, Tree> {
        let mut objects: BTreeMap<&TreeObject, Vec<&TreeObject>> = BTreeMap::new();
        for (object, root) in &self.roots {
            objects.entry(root).or_default().push(object);
        }
        let tree = |(root, objects): (&TreeObject, Vec<&TreeObject>)| {
            let members: Vec<(&TreeObject, &Member)> =
                objects.iter().filter_map(|o| Some((*o, &self.entries.get(*o)?.member))).collect();
            let tree = Tree {
                lead: lead(&self.shard, &members),
                labels: labels(members.iter().copied()),
                lends: !self.loans.is_empty() && !self.loans_of(root).is_empty(),
                objects: members.iter().map(|(object, _)| (*object).clone()).collect(),
            };
            (root.clone(), tree)
        };
        objects.into_iter().map(tree).collect()
    }

    /// The root of each object, and of cohorts without one.
    fn all_roots(&self) -> BTreeMap<TreeObject, TreeObject> {
        let cohorts = self.roots_of_cohorts();
        let mut roots: BTreeMap<TreeObject, TreeObject> = cohorts
            .iter()
            .map(|(cohort, root)| (TreeObject::cohort(cohort), TreeObject::cohort(root)))
            .collect();
        for (object, entry) in self.entries.iter().filter(|(o, _)| o.kind == TreeKind::ClusterQueue) {
            // One without a cohort is a tree of its own.
            let root = cohorts.get(&*entry.member.above).map(|root| TreeObject::cohort(root));
            roots.insert(object.clone(), root.unwrap_or_else(|| object.clone()));
        }
        roots
    }

    /// The root of each cohort, with or without an object. In a cycle that is the first of its names.
    fn roots_of_cohorts(&self) -> BTreeMap<&str, &str> {
        let objects = self.entries.keys().filter(|o| o.kind == TreeKind::Cohort).map(|o| &*o.name);
        let named = self.entries.values().map(|e| &*e.member.above).filter(|name| !name.is_empty());
        let all: BTreeSet<&str> = named.chain(objects).collect();
        let above = |name: &str| {
            let entry = self.entries.get(&TreeObject::cohort(name))?;
            (!entry.member.above.is_empty()).then_some(&*entry.member.above)
        };
        let mut roots: BTreeMap<&str, &str> = BTreeMap::new();
        for start in all {
            let (mut path, mut at) = (vec![start], start);
            let root = loop {
                if let Some(root) = roots.get(at) {
                    break *root;
                }
                let Some(next) = above(at) else { break at };
                match path.iter().position(|name| *name == next) {
                    Some(first) => break path[first..].iter().min().copied().unwrap_or(next),
                    None => path.push(next),
                }
                at = next;
            };
            path.into_iter().for_each(|name| {
                roots.insert(name, root);
            });
        }
        roots
    }
}
