//! Which shard each tree of cohorts belongs to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::DEFAULT;

/// To which shard something belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This one.
    Shard(Arc<str>),
    /// Objects of the tree name several shards: none of them decides with it. The text names them.
    Conflict(Arc<str>),
}

impl Default for Owner {
    fn default() -> Self {
        Self::Shard(DEFAULT.into())
    }
}

impl Owner {
    /// Whether the leader of a shard decides with it.
    pub fn is(&self, shard: &str) -> bool {
        matches!(self, Self::Shard(name) if **name == *shard)
    }

    /// The shard whose leader writes statuses about it: where none decides, that of [`DEFAULT`] says why.
    pub fn keeper(&self) -> &str {
        match self {
            Self::Shard(name) => name,
            Self::Conflict(_) => DEFAULT,
        }
    }
}

/// What an object says of its tree.
#[derive(Debug, Default, PartialEq)]
struct Member {
    /// Name of the cohort above, possibly empty.
    above: String,
    /// The label, possibly empty.
    label: String,
}

type Owners = BTreeMap<String, Owner>;
/// By the root of a tree: its labels, the empty one too, and an object that has each.
type Labels<'a> = BTreeMap<&'a str, BTreeMap<&'a str, String>>;

/// ClusterQueues and cohorts that belong to another shard than before.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Names of ClusterQueues, also of such that there are none of.
    pub cluster_queues: BTreeSet<String>,
    /// Names of cohorts.
    pub cohorts: BTreeSet<String>,
}

/// All ClusterQueues and Cohorts, as trees that belong to shards.
///
/// One label anywhere in a tree is enough, on the root or, where a root cohort has no object, on one of its ClusterQueues. A tree
/// without a label belongs to [`DEFAULT`]; one with several different labels to nobody.
#[derive(Debug, Default)]
pub struct Trees {
    cluster_queues: BTreeMap<String, Member>,
    cohorts: BTreeMap<String, Member>,
    of_cluster_queues: Owners,
    of_cohorts: Owners,
    stale: bool,
}

impl Trees {
    /// A ClusterQueue was seen, in this cohort (possibly empty), with this label (possibly empty).
    pub fn put_cluster_queue(&mut self, name: &str, cohort: &str, label: &str) {
        self.stale |= put(&mut self.cluster_queues, name, cohort, label);
    }

    /// A Cohort was seen, below this one (possibly empty), with this label (possibly empty).
    pub fn put_cohort(&mut self, name: &str, parent: &str, label: &str) {
        self.stale |= put(&mut self.cohorts, name, parent, label);
    }

    /// A ClusterQueue is gone.
    pub fn remove_cluster_queue(&mut self, name: &str) {
        self.stale |= self.cluster_queues.remove(name).is_some();
    }

    /// A Cohort is gone.
    pub fn remove_cohort(&mut self, name: &str) {
        self.stale |= self.cohorts.remove(name).is_some();
    }

    /// To which shard a ClusterQueue belongs; to [`DEFAULT`] where there is none of this name.
    pub fn of_cluster_queue(&self, name: &str) -> Owner {
        self.of_cluster_queues.get(name).cloned().unwrap_or_default()
    }

    /// To which shard a cohort belongs.
    pub fn of_cohort(&self, name: &str) -> Owner {
        self.of_cohorts.get(name).cloned().unwrap_or_default()
    }

    /// Whether there is a ClusterQueue of this name.
    pub fn has_cluster_queue(&self, name: &str) -> bool {
        self.cluster_queues.contains_key(name)
    }

    /// Computes the shards anew after changes, in O(objects), and returns what has another one than before.
    pub fn resolve(&mut self) -> Changed {
        if !std::mem::take(&mut self.stale) {
            return Changed::default();
        }
        let (of_cluster_queues, of_cohorts) = self.owners();
        let changed = Changed {
            cluster_queues: differences(&self.of_cluster_queues, &of_cluster_queues),
            cohorts: differences(&self.of_cohorts, &of_cohorts),
        };
        (self.of_cluster_queues, self.of_cohorts) = (of_cluster_queues, of_cohorts);
        changed
    }

    fn owners(&self) -> (Owners, Owners) {
        let roots = self.roots();
        let root_of = |cohort: &str| roots.get(cohort).copied();
        let mut labels = Labels::new();
        let cohorts = self.cohorts.iter().map(|(name, member)| ("Cohort", name, member, root_of(name)));
        let queues = self.cluster_queues.iter();
        let queues = queues.map(|(name, member)| ("ClusterQueue", name, member, root_of(&member.above)));
        for (kind, name, member, root) in cohorts.chain(queues) {
            if let Some(root) = root {
                let who = || format!("{kind} {name}");
                labels.entry(root).or_default().entry(&member.label).or_insert_with(who);
            }
        }
        let of_trees: BTreeMap<&str, Owner> =
            labels.iter().map(|(root, labels)| (*root, owner(labels))).collect();
        let of =
            |cohort: &str| root_of(cohort).and_then(|root| of_trees.get(root)).cloned().unwrap_or_default();
        let of_cohorts = roots.keys().map(|name| ((*name).to_owned(), of(name))).collect();
        let of_queue = |(name, member): (&String, &Member)| {
            let alone = || match &*member.label {
                "" => Owner::default(),
                label => Owner::Shard(label.into()),
            };
            (name.clone(), if member.above.is_empty() { alone() } else { of(&member.above) })
        };
        (self.cluster_queues.iter().map(of_queue).collect(), of_cohorts)
    }

    /// The root of each cohort, with or without an object. In a cycle that is the first of its names.
    fn roots(&self) -> BTreeMap<&str, &str> {
        let named = self.cluster_queues.values().chain(self.cohorts.values()).map(|m| &*m.above);
        let all: BTreeSet<&str> =
            named.filter(|name| !name.is_empty()).chain(self.cohorts.keys().map(String::as_str)).collect();
        let above = |name: &str| self.cohorts.get(name).map(|m| &*m.above).filter(|above| !above.is_empty());
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

fn put(members: &mut BTreeMap<String, Member>, name: &str, above: &str, label: &str) -> bool {
    let member = Member { above: above.to_owned(), label: label.to_owned() };
    let same = members.get(name) == Some(&member);
    if !same {
        members.insert(name.to_owned(), member);
    }
    !same
}

fn owner(labels: &BTreeMap<&str, String>) -> Owner {
    let named: Vec<(&str, &String)> =
        labels.iter().map(|(label, who)| (*label, who)).filter(|(label, _)| !label.is_empty()).collect();
    match &named[..] {
        [] => Owner::default(),
        [(one, _)] => Owner::Shard((*one).into()),
        several => {
            let each: Vec<String> = several.iter().map(|(label, who)| format!("{label} ({who})")).collect();
            Owner::Conflict(each.join(", ").into())
        }
    }
}

/// Names that belong to another shard in one of the two.
fn differences(old: &Owners, new: &Owners) -> BTreeSet<String> {
    let default = Owner::default();
    let of = |owners: &Owners, name: &str| owners.get(name).unwrap_or(&default).clone();
    let names = old.keys().chain(new.keys());
    names.filter(|name| of(old, name) != of(new, name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(name: &str) -> Owner {
        Owner::Shard(name.into())
    }

    #[test]
    fn one_label_is_the_shard_of_the_whole_tree() {
        let mut trees = Trees::default();
        trees.put_cohort("root", "", "a");
        trees.put_cohort("team", "root", "");
        trees.put_cluster_queue("q", "team", "");
        trees.put_cluster_queue("alone", "", "b");
        trees.put_cluster_queue("plain", "", "");
        // The root has no object.
        trees.put_cluster_queue("left", "implicit", "b");
        trees.put_cluster_queue("right", "implicit", "");
        let changed = trees.resolve();
        assert_eq!(trees.of_cluster_queue("q"), shard("a"));
        assert_eq!(trees.of_cohort("team"), shard("a"));
        assert_eq!(trees.of_cluster_queue("alone"), shard("b"));
        assert_eq!(trees.of_cluster_queue("plain"), shard("default"));
        assert_eq!(trees.of_cluster_queue("right"), shard("b"), "as its sibling says");
        assert_eq!(trees.of_cohort("implicit"), shard("b"));
        assert_eq!(trees.of_cluster_queue("unknown"), shard("default"));
        let named: Vec<&str> = changed.cluster_queues.iter().map(String::as_str).collect();
        assert_eq!(named, ["alone", "left", "q", "right"], "what the default shard has is as before");
        assert_eq!(trees.resolve(), Changed::default(), "nothing has changed since");
    }

    #[test]
    fn a_tree_whose_objects_disagree_belongs_to_nobody() {
        let mut trees = Trees::default();
        trees.put_cohort("root", "", "a");
        trees.put_cluster_queue("q", "root", "b");
        trees.put_cluster_queue("other", "root", "");
        trees.resolve();
        let owner = trees.of_cluster_queue("other");
        assert_eq!(owner, Owner::Conflict("a (Cohort root), b (ClusterQueue q)".into()));
        assert!(["a", "b", "default"].iter().all(|name| !owner.is(name)));
        assert_eq!(owner.keeper(), "default");
        // The label is mended: all of it is the root's again.
        trees.put_cluster_queue("q", "root", "");
        let changed = trees.resolve();
        assert_eq!(changed.cluster_queues.len(), 2);
        assert_eq!(trees.of_cluster_queue("other"), shard("a"));
        trees.put_cluster_queue("q", "root", "default");
        trees.resolve();
        assert!(!trees.of_cluster_queue("q").is("default"), "the name of the default shard is a name, too");
    }

    #[test]
    fn trees_are_joined_cut_and_removed() {
        let mut trees = Trees::default();
        trees.put_cohort("a", "", "a");
        trees.put_cohort("b", "", "b");
        trees.put_cluster_queue("q", "b", "");
        trees.resolve();
        assert_eq!(trees.of_cluster_queue("q"), shard("b"));
        trees.put_cohort("b", "a", "b");
        trees.resolve();
        assert!(matches!(trees.of_cluster_queue("q"), Owner::Conflict(_)));
        trees.put_cohort("b", "a", "");
        let changed = trees.resolve();
        assert_eq!(trees.of_cluster_queue("q"), shard("a"));
        assert_eq!(changed.cohorts.len(), 2, "of both cohorts, which nobody had");
        trees.remove_cohort("a");
        trees.resolve();
        assert_eq!(trees.of_cluster_queue("q"), shard("default"), "nothing says its shard any more");
        trees.put_cluster_queue("q", "", "c");
        trees.resolve();
        trees.remove_cluster_queue("q");
        assert!(trees.resolve().cluster_queues.contains("q"));
        assert!(!trees.has_cluster_queue("q"));
    }

    #[test]
    fn a_cycle_of_cohorts_is_one_tree() {
        let mut trees = Trees::default();
        trees.put_cohort("x", "y", "");
        trees.put_cohort("y", "z", "a");
        trees.put_cohort("z", "x", "");
        trees.put_cohort("below", "x", "");
        trees.put_cluster_queue("q", "below", "");
        trees.resolve();
        for name in ["x", "y", "z", "below"] {
            assert_eq!(trees.of_cohort(name), shard("a"), "{name}");
        }
        assert_eq!(trees.of_cluster_queue("q"), shard("a"));
    }
}
