//! What ranks tell of nodes that can't take the pod, and of all nodes for comparison.

use super::{Class, FEASIBLE, NO_NODE, Ranked};
use crate::cluster::NodeId;
use crate::framework::{Dump, Status};
use plimsoll_state::slab::Id;

impl Ranked {
    fn rejected_classes(&self) -> impl Iterator<Item = &Class> {
        self.classes.iter().filter(|c| c.nodes > 0 && !c.status.is_success())
    }

    /// Distinct rejections and how many nodes have them.
    pub fn rejections(&self) -> impl Iterator<Item = (&Status, usize)> {
        let alone = self.table.iter().filter(|r| r.nodes > 0).map(|r| (&r.status, r.nodes));
        alone.chain(self.rejected_classes().map(|c| (&c.status, c.nodes as usize)))
    }

    /// Nodes whose rejection satisfies a condition, in id order.
    pub fn rejected(&self, which: impl Fn(&Status) -> bool) -> Vec<NodeId> {
        let alone: Vec<bool> = self.table.iter().map(|r| r.nodes > 0 && which(&r.status)).collect();
        let class = |c: &Class| c.nodes > 0 && !c.status.is_success() && which(&c.status);
        let classes: Vec<bool> = self.classes.iter().map(class).collect();
        if !alone.contains(&true) && !classes.contains(&true) {
            return Vec::new();
        }
        // By verdict; those of classes are looked up only where one is wanted.
        let by_verdict: Vec<bool> = [false, classes.contains(&true)].into_iter().chain(alone).collect();
        let in_class = |i: usize| classes[self.rows[i].class as usize];
        let wanted =
            |(i, v): &(usize, &u16)| by_verdict[usize::from(**v)] && (**v != FEASIBLE || in_class(*i));
        self.verdicts.iter().enumerate().filter(wanted).map(|(i, _)| NodeId::new(i)).collect()
    }

    /// Status and scores of every node, and the counts; for comparison.
    pub fn dump(&mut self) -> (Vec<String>, Vec<Dump>) {
        self.sift();
        self.weigh();
        let say = |(i, verdict): (usize, &u16)| match *verdict {
            NO_NODE => String::new(),
            FEASIBLE => {
                let row = self.rows[i];
                let class = &self.classes[row.class as usize];
                let more = class.total.saturating_sub(i64::from(self.forest.best(class.root).0));
                let score = self.forest.score(row.leaf, i).map_or(i64::MIN, i64::from);
                let total = class.status.is_success().then(|| score.saturating_add(more));
                format!("{:?} {total:?}", class.status)
            }
            rejected => format!("{:?}", self.table[usize::from(rejected) - 2].status),
        };
        let nodes = self.verdicts.iter().enumerate().map(say).collect();
        (nodes, self.layers.iter().map(|l| l.counts.dump()).collect())
    }
}
