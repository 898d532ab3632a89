//! How much of a step goes into looking at nodes. What would take more is put off: the next step goes on with it, before it decides
//! anything else. Counted in nodes, not in time, so that the same events give the same decisions on every machine.

use super::MAX_ENTRIES;
use crate::cluster::{Cluster, PodId, ShapeId};
use plimsoll_state::rng::Rng;

/// Nodes looked at after which decisions are made in any case, since they were put off. Where more kinds of pods take turns than there
/// are ranks for, or nodes come all the time, they would never be made.
const PATIENCE: usize = 2 * MAX_ENTRIES;

/// Ranks are repaired at once where no more nodes have changed than this part of what a step looks at, or where they were up to date in
/// the last step, and that does not count: a step changes nodes itself, those of claims, and what was put off has to come to an end.
const REPAIRED_AT_ONCE: usize = 48;

/// A step that has looked again at more than this part of the nodes that it may look at leaves it to the next one to decide.
const ENOUGH: usize = 2;

/// How many nodes ranks look at again that have changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repairs {
    /// As many at once.
    pub at_once: usize,
    /// Where there are more, so many of them, which count.
    pub counted: usize,
}

impl Repairs {
    /// All of them.
    pub const ALL: Self = Self { at_once: usize::MAX, counted: usize::MAX };
}

/// The work of steps.
#[derive(Debug)]
pub(crate) struct Work {
    /// The number of the present step.
    pub step: u64,
    /// Most nodes that a step looks at to make ranks.
    pub most: usize,
    /// Nodes looked at in the present step.
    pub looked_at: usize,
    /// Whether what is looked for may be put off: its caller tries again in the next step.
    pub may_put_off: bool,
    /// Whether the present attempt is put off, and whether one was in the present step.
    pub attempt_put_off: bool,
    pub put_off: bool,
    /// Nodes looked at from the first of the last steps on that all put something off, and after how many nothing is.
    waited: usize,
    pub patience: usize,
    /// The nodes looked at in the last step.
    pub before: usize,
    /// Claims planned in the present step, and in the last one.
    pub claims: usize,
    pub claims_before: usize,
    /// Shapes of pods that are not there until then; ranks are dropped with the last pod of a shape.
    kept: Vec<ShapeId>,
    /// The generator as it was before what may be put off.
    pub ties: Rng,
}

impl Work {
    pub fn new(most: usize) -> Self {
        Self {
            step: 0,
            most,
            looked_at: 0,
            may_put_off: false,
            attempt_put_off: false,
            put_off: false,
            waited: 0,
            patience: PATIENCE,
            before: 0,
            claims: 0,
            claims_before: 0,
            kept: Vec::new(),
            ties: Rng::new(0),
        }
    }

    /// How many nodes the present search may look at.
    pub fn left(&self) -> usize {
        match self.may_put_off && self.waited <= self.patience {
            true => self.most.saturating_sub(self.looked_at),
            false => usize::MAX,
        }
    }

    /// How many nodes the present search may look at again in ranks that were up to date in this step.
    pub fn repairs(&self, last_step: u64) -> Repairs {
        match self.left() {
            usize::MAX => Repairs::ALL,
            left if last_step + 1 >= self.step => Repairs { at_once: usize::MAX, counted: left },
            left => Repairs { at_once: self.most / REPAIRED_AT_ONCE, counted: left },
        }
    }

    /// Counts nodes looked at again; whether that is enough for a step, so that the next one decides with them.
    pub fn is_enough(&mut self, looked_at: usize) -> bool {
        self.looked_at += looked_at;
        self.left() < usize::MAX && looked_at > self.most / ENOUGH
    }

    /// Ends an attempt; whether it is put off.
    pub fn end_attempt(&mut self) -> bool {
        self.may_put_off = false;
        let put_off = std::mem::take(&mut self.attempt_put_off);
        self.put_off |= put_off;
        put_off
    }

    /// Whether the step has looked at as many nodes as it should.
    pub fn is_spent(&self) -> bool {
        self.looked_at > self.most
    }

    /// Whether the last step has put something off.
    pub fn is_waiting(&self) -> bool {
        self.waited > 0
    }

    /// Keeps the shape of a pod that may not stay until what was put off is decided.
    pub fn keep(&mut self, cluster: &mut Cluster, pod: PodId) {
        let shape = cluster.pods[pod].shape;
        if !self.kept.contains(&shape) {
            self.kept.push(cluster.shapes.share(shape));
        }
    }

    /// Ends a step.
    pub fn end_step(&mut self, cluster: &mut Cluster) {
        if self.put_off {
            self.waited = self.waited.saturating_add(self.looked_at.max(1));
        } else {
            self.waited = 0;
            self.kept.drain(..).for_each(|shape| cluster.shapes.release(shape));
        }
        self.step += 1;
        (self.before, self.looked_at, self.put_off) = (self.looked_at, 0, false);
        (self.claims_before, self.claims) = (self.claims, 0);
    }
}
