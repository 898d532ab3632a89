//! Nodes by when they changed last: a reader sees each of them once, however often it changed.

use crate::cluster::NodeId;
use plimsoll_state::cast::index32;
use plimsoll_state::grow::lengthen;
use plimsoll_state::slab::Id;
use smallvec::SmallVec;

/// To follow the list to one node takes about as long as to look at so many nodes in their order, which is that of the memory.
const FOLLOWED: usize = 64;
/// So many nodes are found in the list in any case.
const FEW: usize = 1024;

/// No node.
const NONE: u32 = u32::MAX;

/// A node in the list.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// Number of its last change; 0: none.
    at: u64,
    /// Number of the last change of the node itself.
    itself: u64,
    /// The nodes that changed right before it and right after it.
    before: u32,
    after: u32,
}

/// Nodes in a list by their last change.
#[derive(Debug)]
pub struct Recent {
    /// Number of the last change.
    end: u64,
    links: Vec<Link>,
    /// The node that changed last.
    last: u32,
    /// Whether there are readers.
    pub(super) followed: bool,
}

impl Default for Recent {
    fn default() -> Self {
        Self { end: 0, links: Vec::new(), last: NONE, followed: false }
    }
}

impl Recent {
    /// Has room for a node, also without readers: the first one would come upon many nodes at once.
    #[inline]
    pub(super) fn make_room(&mut self, node: NodeId) {
        let i = node.index();
        if i >= self.links.len() {
            lengthen(&mut self.links, i + 1, Link { at: 0, itself: 0, before: NONE, after: NONE });
        }
    }

    /// A node changed; `itself`: more than what its pods request.
    #[inline]
    pub(super) fn touch(&mut self, node: NodeId, itself: bool) {
        if !self.followed {
            return;
        }
        self.make_room(node);
        let i = node.index();
        self.end += 1;
        let link = &mut self.links[i];
        let known = link.at > 0;
        link.at = self.end;
        if itself {
            link.itself = self.end;
        }
        let number = index32(i);
        if self.last == number {
            return;
        }
        let old = *link;
        *link = Link { before: self.last, after: NONE, ..old };
        if known {
            // It is not the last one, so there is one after it.
            self.links[old.after as usize].before = old.before;
            if let Some(before) = self.links.get_mut(old.before as usize) {
                before.after = old.after;
            }
        }
        if let Some(last) = self.links.get_mut(self.last as usize) {
            last.after = number;
        }
        self.last = number;
    }

    /// The place after the last change.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Adds the nodes that changed after a place, and whether they changed themselves: each once.
    #[inline]
    pub fn since(&self, position: u64, nodes: &mut SmallVec<[(NodeId, bool); 8]>) {
        self.listed_since(position, (self.links.len() / FOLLOWED).max(FEW), nodes);
    }

    /// [`Recent::since`] by the list, as long as there are at most `most` nodes in it.
    #[inline]
    fn listed_since(&self, position: u64, mut most: usize, nodes: &mut SmallVec<[(NodeId, bool); 8]>) {
        let mut at = self.last;
        while let Some(link) = self.links.get(at as usize).filter(|link| link.at > position) {
            if most == 0 {
                return self.all_since(position, nodes);
            }
            nodes.push((NodeId::new(at as usize), link.itself > position));
            at = link.before;
            most -= 1;
        }
    }

    /// [`Recent::since`] by a look at all nodes, in their order.
    #[cold]
    #[inline(never)]
    fn all_since(&self, position: u64, nodes: &mut SmallVec<[(NodeId, bool); 8]>) {
        nodes.clear();
        let changed = self.links.iter().enumerate().filter(|(_, link)| link.at > position);
        nodes.extend(changed.map(|(i, link)| (NodeId::new(i), link.itself > position)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn readers_see_each_node_that_changed_once() {
        let mut rng = plimsoll_state::rng::Rng::new(5);
        let mut recent = Recent { followed: true, ..Recent::default() };
        // Changes of each node, by number, and whether they were of the node itself.
        let mut log: Vec<(usize, bool)> = Vec::new();
        for i in 0..2_000 {
            let nodes = if i < 1_000 { 40 } else { 1_000 };
            let (node, itself) = (rng.below(nodes) as usize, rng.below(5) == 0);
            recent.touch(NodeId::new(node), itself);
            log.push((node, itself));
            let from = rng.below(u32::try_from(log.len()).unwrap() + 1) as usize;
            let mut expected: BTreeMap<usize, bool> = BTreeMap::new();
            for (node, itself) in &log[from..] {
                *expected.entry(*node).or_default() |= itself;
            }
            // By all nodes from the start, in the middle of the list, after its last node but one, and by the list alone.
            for most in [0, 5, expected.len().saturating_sub(1), expected.len(), usize::MAX] {
                let mut nodes = SmallVec::new();
                recent.listed_since(from as u64, most, &mut nodes);
                let seen: Vec<(usize, bool)> =
                    nodes.into_iter().map(|(node, itself)| (node.index(), itself)).collect();
                assert_eq!(seen.len(), expected.len());
                assert_eq!(seen.into_iter().collect::<BTreeMap<_, _>>(), expected);
            }
        }
        assert_eq!(recent.end(), 2_000);
    }
}
