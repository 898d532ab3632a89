//! Shards of a cluster (`docs/scale.md`): which of them a node, a tree of cohorts or a pod belongs to.
//!
//! A shard has a name, and one leader. Nodes say their shard in the label [`LABEL`], trees of cohorts in the same label of one of
//! their objects ([`Trees`]). What says nothing belongs to the shard [`DEFAULT`]. All of it is computed from the objects alone, so
//! that leaders which have seen the same objects agree without a word between them.

pub mod lead;
mod pods;
mod trees;

use plimsoll_state::model::{Reach, ResourceSlice, StringMap};

pub use lead::{LED_BY, Marks, TreeKind, TreeObject};
pub use pods::Pods;
pub use trees::{Changed, Given, Owner, TreeChange, TreeStep, Trees};

/// Label of nodes, Cohorts and ClusterQueues: name of their shard.
pub const LABEL: &str = "plimsoll.dev/shard";
/// Annotation of nodes and of trees: name of the shard to which the one that has it is to give it.
pub const MOVE_TO: &str = "plimsoll.dev/move-to";
/// The shard of what has no label. Its leader also does what is about the whole cluster.
pub const DEFAULT: &str = "default";
/// Longest name: that of the Lease has it at its end.
const LONGEST: usize = 40;

/// What makes a name unusable for a shard; it is a label's value and part of the name of a Lease.
pub fn problem_of_name(name: &str) -> Option<String> {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let bytes = name.as_bytes();
    let ends = |c: Option<&u8>| c.is_some_and(|&c| c != b'-');
    let fits = ends(bytes.first()) && ends(bytes.last()) && name.len() <= LONGEST;
    (!fits || !bytes.iter().all(|&c| inner(c))).then(|| {
        format!(
            "must be at most {LONGEST} lower-case letters, digits and '-', and start and end with a letter or digit"
        )
    })
}

/// The shard that a node belongs to.
pub fn of_node(labels: &StringMap) -> &str {
    labels.get(LABEL).map(String::as_str).filter(|name| !name.is_empty()).unwrap_or(DEFAULT)
}

/// The shard that a node is to be given to. What can't be a name asks for nothing.
pub fn moves_to(annotations: &StringMap) -> Option<&str> {
    annotations.get(MOVE_TO).map(String::as_str).filter(|name| problem_of_name(name).is_none())
}

/// Whether the devices of a slice can be used from more than one node, perhaps of several shards: only the leader of
/// [`DEFAULT`] gives such away.
pub const fn is_shared(slice: &ResourceSlice) -> bool {
    !matches!(slice.reach, Some(Reach::Node(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_labels_and_leases() {
        for name in ["a", "pool-7", "7", "default", &"x".repeat(40)] {
            assert_eq!(problem_of_name(name), None, "{name}");
        }
        for name in ["", "A", "-a", "a-", "a.b", "a_b", "ä", &"x".repeat(41)] {
            assert!(problem_of_name(name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_node_without_a_label_is_of_the_default_shard() {
        let of = |value: Option<&str>| {
            let label = value.map(|v| (LABEL.to_owned(), v.to_owned()));
            of_node(&label.into_iter().collect()).to_owned()
        };
        assert_eq!(
            [of(None), of(Some("")), of(Some("default")), of(Some("a"))],
            ["default", "default", "default", "a"]
        );
        let to = |value: &str| moves_to(&[(MOVE_TO.to_owned(), value.to_owned())].into()).map(str::to_owned);
        assert_eq!(
            [to("b"), to("default"), to("B"), to("")],
            [Some("b".into()), Some("default".into()), None, None]
        );
    }
}
