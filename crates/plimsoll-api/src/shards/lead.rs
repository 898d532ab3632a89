//! Who decides with a tree of cohorts: one pure function of its objects ([`lead`]), as the process of one shard sees them.
//!
//! The label of a tree says which shard is to lead it, and each of its objects says in the annotation [`LED_BY`] which shard does. Only
//! that shard's leader replaces its own name there, by that of the next shard, and a leader decides with a tree only while all objects
//! of it have its name. So at each time at most one leader decides with an object, whatever each has seen: what a leader has seen of
//! its own name stays true until it writes another one itself.

use std::collections::BTreeSet;
use std::fmt;

use plimsoll_queueing::ShardStop;
use serde_json::Value;

use super::{DEFAULT, LABEL, MOVE_TO, problem_of_name};
use crate::json;

/// Annotation of Cohorts and ClusterQueues: name of the shard whose leader decides with the object. Leaders write it.
pub const LED_BY: &str = "plimsoll.dev/led-by";

/// Kinds of objects that trees are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TreeKind {
    /// Cohorts.
    Cohort,
    /// ClusterQueues.
    ClusterQueue,
}

/// An object of a tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TreeObject {
    /// Its kind.
    pub kind: TreeKind,
    /// Its name.
    pub name: String,
}

impl TreeObject {
    /// The Cohort of this name.
    pub fn cohort(name: &str) -> Self {
        Self { kind: TreeKind::Cohort, name: name.to_owned() }
    }

    /// The ClusterQueue of this name.
    pub fn cluster_queue(name: &str) -> Self {
        Self { kind: TreeKind::ClusterQueue, name: name.to_owned() }
    }
}

impl fmt::Display for TreeObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            TreeKind::Cohort => "Cohort",
            TreeKind::ClusterQueue => "ClusterQueue",
        };
        write!(f, "{kind} {}", self.name)
    }
}

/// What an object says of shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The label, possibly empty.
    pub label: String,
    /// The shard that leads it; empty: none yet.
    pub led_by: String,
    /// The shard that its tree is to be given to.
    pub moves_to: Option<String>,
}

impl Marks {
    /// Those of a Cohort or ClusterQueue.
    pub fn of(object: &Value) -> Self {
        let annotation = |key| json::annotation(object, key).unwrap_or_default();
        let moves_to = annotation(MOVE_TO);
        Self {
            label: json::label(object, LABEL).to_owned(),
            led_by: annotation(LED_BY).to_owned(),
            moves_to: problem_of_name(moves_to).is_none().then(|| moves_to.to_owned()),
        }
    }
}

/// What is known of an object of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Name of the cohort above, possibly empty.
    pub above: String,
    /// What it says.
    pub marks: Marks,
    /// Whether everything has been seen that was written before the object named this shard.
    pub known: bool,
    /// The shard that it was given to by a write of which is not known whether it was carried out.
    pub given_to: Option<String>,
}

/// What the labels of a tree say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Labels {
    /// All name this shard.
    One(String),
    /// They name several. The text names these, and an object of each.
    Several(String),
}

/// What the labels of a tree say: one label is enough, and none is [`DEFAULT`].
pub fn labels<'a>(tree: impl IntoIterator<Item = (&'a TreeObject, &'a Member)>) -> Labels {
    let mut found: Vec<(&str, &TreeObject)> = Vec::new();
    for (object, member) in tree {
        let label = &*member.marks.label;
        if !label.is_empty() && !found.iter().any(|(known, _)| *known == label) {
            found.push((label, object));
        }
    }
    found.sort_unstable();
    match &found[..] {
        [] => Labels::One(DEFAULT.to_owned()),
        [(one, _)] => Labels::One((*one).to_owned()),
        several => {
            let each: Vec<String> = several.iter().map(|(label, who)| format!("{label} ({who})")).collect();
            Labels::Several(each.join(", "))
        }
    }
}

/// What the leader of a shard may do with a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lead {
    /// It decides.
    Decides,
    /// It has decided, and admits nothing more: the tree is to be given to this shard.
    Leaves(String),
    /// It does not decide, and the text says why. Where a shard is named, the tree is to be given to that.
    Waits(String, Option<String>),
}

/// What the leader of `shard` may do with a tree. It decides where all objects of the tree name it as their leader, it has seen everything
/// that was written before they did, the labels say so, and no object says that the tree moves away.
pub fn lead<'a>(shard: &str, tree: &[(&'a TreeObject, &'a Member)]) -> Lead {
    let labels = labels(tree.iter().copied());
    let owner = match &labels {
        Labels::One(one) => Some(one),
        Labels::Several(_) => None,
    };
    let moves = tree.iter().filter_map(|(_, member)| member.marks.moves_to.as_ref());
    let target = moves.filter(|to| Some(*to) != owner).min().or(owner).cloned();
    let elsewhere = target.clone().filter(|to| to != shard);
    let led = |member: &Member| member.marks.led_by == shard && member.given_to.is_none();
    if let Some((object, member)) = tree.iter().find(|(_, member)| !led(member)) {
        let why = match &*member.marks.led_by {
            by if by == shard => format!("{object} of its tree is being given to another shard"),
            "" => format!("no shard leads {object} of its tree yet"),
            by => format!("{object} of its tree is led by shard {by}"),
        };
        return Lead::Waits(why, elsewhere);
    }
    match (target, labels) {
        _ if tree.iter().any(|(_, member)| !member.known) => {
            Lead::Waits(format!("shard {shard} begins to lead its tree"), None)
        }
        (Some(to), _) if to != shard => Lead::Leaves(to),
        (None, Labels::Several(why)) => {
            Lead::Waits(format!("its tree belongs to several shards: {why}"), None)
        }
        _ => Lead::Decides,
    }
}

/// Why the leader of a shard admits nothing in a tree; `None`: it does. `loans`: names of loans that keep the tree where it is.
pub(super) fn stop(lead: &Lead, labels: &Labels, loans: &BTreeSet<&str>) -> Option<ShardStop> {
    match (lead, labels) {
        (Lead::Leaves(to), _) if loans.is_empty() => {
            Some(ShardStop::Leaves(format!("its tree moves to shard {to}")))
        }
        (Lead::Leaves(to), _) => {
            let names: Vec<&str> = loans.iter().copied().collect();
            Some(ShardStop::Leaves(format!(
                "its tree moves to shard {to} when these quota loans have ended: {} (kubectl patch quotaloan NAME \
                 --type=merge -p '{{\"spec\": {{\"return\": true}}}}')",
                names.join(", ")
            )))
        }
        (Lead::Waits(..), Labels::Several(why)) => Some(ShardStop::Conflict(why.clone())),
        (Lead::Waits(why, _), Labels::One(_)) => Some(ShardStop::Waits(why.clone())),
        (Lead::Decides, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An object of a tree: name, label, shard that leads it, shard that it moves to.
    fn member(name: &str, label: &str, led_by: &str, moves_to: &str) -> (TreeObject, Member) {
        let moves_to = (!moves_to.is_empty()).then(|| moves_to.to_owned());
        let marks = Marks { label: label.into(), led_by: led_by.into(), moves_to };
        (TreeObject::cluster_queue(name), Member { marks, known: true, ..Member::default() })
    }

    fn of(shard: &str, tree: &[(TreeObject, Member)]) -> Lead {
        lead(shard, &tree.iter().map(|(object, member)| (object, member)).collect::<Vec<_>>())
    }

    fn waits(shard: &str, tree: &[(TreeObject, Member)]) -> (String, Option<String>) {
        match of(shard, tree) {
            Lead::Waits(why, to) => (why, to),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_leader_decides_where_all_objects_name_it() {
        let tree = [member("x", "a", "a", ""), member("y", "", "a", "")];
        assert_eq!(of("a", &tree), Lead::Decides);
        assert_eq!(waits("b", &tree).0, "ClusterQueue x of its tree is led by shard a");
        let tree = [member("x", "a", "a", ""), member("y", "", "", "")];
        assert_eq!(waits("a", &tree).0, "no shard leads ClusterQueue y of its tree yet");
        let mut tree = [member("x", "a", "a", ""), member("y", "", "a", "")];
        tree[1].1.known = false;
        assert_eq!(waits("a", &tree).0, "shard a begins to lead its tree");
        (tree[1].1.known, tree[0].1.given_to) = (true, Some("b".into()));
        assert_eq!(waits("a", &tree).0, "ClusterQueue x of its tree is being given to another shard");
    }

    #[test]
    fn a_tree_leaves_by_its_annotation_or_its_label() {
        let annotated = [member("x", "a", "a", "b"), member("y", "", "a", "")];
        assert_eq!(of("a", &annotated), Lead::Leaves("b".into()));
        assert!(matches!(of("b", &annotated), Lead::Waits(..)));
        let labelled = [member("x", "b", "a", ""), member("y", "", "a", "")];
        assert_eq!(of("a", &labelled), Lead::Leaves("b".into()));
        let unlabelled = [member("x", "", "a", "")];
        assert_eq!(of("a", &unlabelled), Lead::Leaves(DEFAULT.into()));
        // One that is given in part: neither leader decides, and the first gives the rest.
        let halfway = [member("x", "b", "b", ""), member("y", "", "a", "")];
        assert_eq!(waits("a", &halfway).1, Some("b".into()));
        assert_eq!(waits("b", &halfway).1, None);
        // It is to stay where it is.
        assert_eq!(of("a", &[member("x", "a", "a", "a")]), Lead::Decides);
    }

    #[test]
    fn labels_that_disagree_stop_a_tree_unless_it_is_on_its_way() {
        let tree = [member("x", "a", "a", ""), member("y", "b", "a", "")];
        let (why, to) = waits("a", &tree);
        assert!(why.contains("a (ClusterQueue x), b (ClusterQueue y)") && to.is_none(), "{why}");
        let moving = [member("x", "a", "a", "b"), member("y", "b", "b", "")];
        assert_eq!(waits("a", &moving).1, Some("b".into()));
    }
}
