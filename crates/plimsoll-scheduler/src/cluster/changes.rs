//! Log of the nodes that changed, for what is kept about nodes and repaired.

mod recent;

pub use recent::Recent;

use super::{NodeId, Shape};
use std::sync::Arc;

/// Beside which pods nodes are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    /// Those that they have.
    All,
    /// Those of no workload, as if all others had left.
    Alone,
}

/// An object before and after a change; `None` before: added, after: deleted.
pub type Pair<T> = (Option<Arc<T>>, Option<Arc<T>>);

/// A change of a node.
#[derive(Clone, Debug)]
pub struct Changed {
    /// The node.
    pub node: NodeId,
    /// Whether the Node object or the pods nominated to it changed; otherwise only what its pods request.
    pub itself: bool,
    /// Whether its taints changed.
    pub taints: bool,
    /// The pod that came or left.
    pub moved: Option<Moved>,
}

/// A pod that is counted on a node from now on, or no longer.
#[derive(Clone, Debug)]
pub struct Moved {
    /// Shape of the pod.
    pub shape: Arc<Shape>,
    /// Whether its deletion had been asked for.
    pub deleting: bool,
    /// 1: came, -1: left.
    pub by: i64,
}

/// Nodes that changed lately, in order; readers keep a position.
#[derive(Debug, Default)]
pub struct Changes {
    /// Position of the first entry of `log`.
    base: u64,
    log: Vec<Changed>,
    /// Counts changes that concern all nodes.
    pub epoch: u64,
    /// Set during a dry run, which undoes its changes.
    pub paused: bool,
    recent: Recent,
    /// The same for nodes without the pods of workloads.
    alone: Recent,
}

/// Longest log of changes; readers further behind start afresh.
const MAX_CHANGES: usize = 1 << 16;

impl Changes {
    fn push(&mut self, change: Changed) {
        if self.log.len() >= MAX_CHANGES {
            let half = MAX_CHANGES / 2;
            self.log.drain(..half);
            self.base += half as u64;
        }
        self.log.push(change);
    }

    /// The Node object or the pods nominated to the node changed.
    pub(super) fn node(&mut self, node: NodeId, taints: bool) {
        if self.paused {
            return;
        }
        self.push(Changed { node, itself: true, taints, moved: None });
        for recent in [&mut self.recent, &mut self.alone] {
            recent.make_room(node);
            recent.touch(node, true);
        }
    }

    /// A pod came or left. `alone`: it is none of a workload.
    pub(super) fn pod(&mut self, node: NodeId, moved: Moved, alone: bool) {
        if self.paused {
            return;
        }
        self.push(Changed { node, itself: false, taints: false, moved: Some(moved) });
        self.recent.touch(node, false);
        if alone {
            self.alone.touch(node, false);
        }
    }

    /// A pod on the node is one of a workload from now on, or no longer.
    pub(super) fn owned(&mut self, node: NodeId) {
        if !self.paused {
            self.alone.touch(node, false);
        }
    }

    /// A pod on the node started: which of its pods are preempted first depends on that (`MoreImportantPod` in `util/utils.go`).
    pub(super) fn started(&mut self, node: NodeId) {
        if !self.paused {
            self.recent.touch(node, false);
        }
    }

    /// Drops all entries: readers start afresh.
    pub(super) fn forget(&mut self) {
        self.base = self.end() + 1;
        self.log.clear();
        self.epoch += 1;
    }

    /// Position after the last change.
    pub fn end(&self) -> u64 {
        self.base + self.log.len() as u64
    }

    /// Changes from a position on; `None`: too far behind.
    pub fn since(&self, position: u64) -> Option<&[Changed]> {
        let skip = usize::try_from(position.checked_sub(self.base)?).ok()?;
        self.log.get(skip..)
    }

    /// The nodes by when they changed last: as they are, or as they are without the pods of workloads. From now on such changes are
    /// noted.
    pub(crate) fn follow(&mut self, beside: Beside) -> &Recent {
        let recent = match beside {
            Beside::All => &mut self.recent,
            Beside::Alone => &mut self.alone,
        };
        recent.followed = true;
        recent
    }
}
