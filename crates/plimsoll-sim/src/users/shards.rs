//! Administrators of a cluster of two shards: nodes and trees that go from one to the other, and loans.

use std::sync::Arc;

use plimsoll_api::shards::{DEFAULT, LABEL, MOVE_TO};
use plimsoll_state::{Duration, Time};
use serde_json::{Value, json};

use super::{Users, global};
use crate::agenda::Event;
use crate::api::{Kind, deleting, list, name_of, text};
use crate::network::Network;
use crate::scenario::objects::node_name;
use crate::scenario::shards::{SHARDS, loan, loan_name, planned};
use crate::scenario::{Operation, QueueSpec, Stop};

/// How often administrators look whether the queues of a tree are held.
const HELD: Duration = Duration::from_millis(300);
/// How long writes may still be under way after that, and how long after a change of the label its leaders may not have seen it.
const SETTLED: Duration = Duration::from_seconds(30);

/// A new object of the cluster, in the shard where it is planned.
pub(super) fn labelled(kind: Kind, mut object: Value) -> Value {
    let number = |prefix: &str| name_of(&object).1.strip_prefix(prefix).and_then(|n| n.parse::<usize>().ok());
    let shard = match kind {
        Kind::Node => number("node-"),
        Kind::Cohort if text(&object, &["spec", "parentName"]).is_empty() => number("k"),
        _ => None,
    };
    if let Some(shard) = shard.map(planned).filter(|shard| *shard != DEFAULT) {
        object["metadata"]["labels"][LABEL] = json!(shard);
    }
    object
}

/// Whether a node is on its way to another shard.
fn moves(node: &Value) -> bool {
    let to = text(node, &["metadata", "annotations", MOVE_TO]);
    !to.is_empty() && to != shard_of(node)
}

fn shard_of(object: &Value) -> &str {
    match text(object, &["metadata", "labels", LABEL]) {
        "" => DEFAULT,
        shard => shard,
    }
}

/// Whether nobody decides with a ClusterQueue.
fn is_held(queue: usize, network: &Network) -> bool {
    let cq = network.api.get(Kind::ClusterQueue, "", &format!("c{queue}"));
    cq.is_none_or(|cq| {
        let conditions = list(cq, &["status", "conditions"]);
        cq["spec"]["stopPolicy"] == "Hold"
            && conditions.iter().any(|c| c["type"] == "Active" && c["status"] == "False")
    })
}

impl Users {
    /// Does what an operation says of shards.
    pub(super) fn change_shards(&mut self, operation: &Operation, network: &mut Network) {
        match operation {
            Operation::MoveNode { node, shard } => {
                let body = json!({"metadata": {"annotations": {MOVE_TO: SHARDS[shard % SHARDS.len()]}}});
                self.patch(Kind::Node, global(node_name(*node)), false, body, network);
            }
            Operation::MoveTree { cohort, shard } => {
                if self.trees.is_empty() {
                    network.agenda.after(HELD, Event::Trees);
                }
                self.trees.push((*cohort, *shard));
            }
            // No loans are made while trees are on their way.
            Operation::Lend { .. } if !self.trees.is_empty() => {}
            Operation::Lend { loan: number, from, to, cpus } => {
                let name = loan_name(*number);
                if network.api.get(Kind::QuotaLoan, "", &name).is_none() {
                    self.put(Kind::QuotaLoan, loan(*number, *from, *to, *cpus), network);
                }
            }
            Operation::EndLoan { loan, delete: true } => {
                self.delete(Kind::QuotaLoan, global(loan_name(*loan)), network);
            }
            Operation::EndLoan { loan, delete: false } => self.ask_back(loan_name(*loan), network),
            _ => {}
        }
    }

    fn ask_back(&self, loan: String, network: &mut Network) {
        self.patch(Kind::QuotaLoan, global(loan), false, json!({"spec": {"return": true}}), network);
    }

    /// All loans are asked back, and no tree goes on its way to another shard any more.
    pub(super) fn end_loans(&mut self, network: &mut Network) {
        self.trees.truncate(usize::from(self.labelled.is_some()));
        self.settled = None;
        let all: Vec<String> = network.api.all(Kind::QuotaLoan).map(|l| name_of(l).1).collect();
        all.into_iter().for_each(|loan| self.ask_back(loan, network));
    }

    /// Nodes go where they are planned.
    pub(super) fn return_nodes(&self, network: &mut Network) {
        if !self.settings.shards {
            return;
        }
        for node in 0..self.plan.nodes.len() {
            let Some(object) = network.api.get(Kind::Node, "", &node_name(node)) else { continue };
            if shard_of(object) != planned(node) && !moves(object) {
                let body = json!({"metadata": {"annotations": {MOVE_TO: planned(node)}}});
                self.patch(Kind::Node, global(node_name(node)), false, body, network);
            }
        }
    }

    /// The root of the tree of a cohort, by their numbers.
    fn root_of(&self, cohort: usize) -> usize {
        self.plan.cohorts.get(cohort).and_then(|c| c.parent).unwrap_or(cohort)
    }

    /// Numbers of the ClusterQueues in a tree.
    fn queues_of_tree(&self, root: usize) -> Vec<usize> {
        let mine = |(_, q): &(usize, &QueueSpec)| q.quota.parent.map(|c| self.root_of(c)) == Some(root);
        self.plan.queues.iter().enumerate().filter(mine).map(|(number, _)| number).collect()
    }

    /// Loans of cohorts of a tree.
    fn loans_of_tree(&self, root: usize, network: &Network) -> Vec<String> {
        let cohorts = (0..self.plan.cohorts.len()).filter(|c| self.root_of(*c) == root);
        let cohorts: Vec<String> = cohorts.map(|c| format!("k{c}")).collect();
        let concerns = |loan: &&Arc<Value>| {
            ["from", "to"].iter().any(|side| cohorts.iter().any(|c| loan["spec"][side]["cohort"] == **c))
        };
        network.api.all(Kind::QuotaLoan).filter(concerns).map(|l| name_of(l).1).collect()
    }

    /// Trees go to other shards as `docs/scale.md` says it: their queues are held and their loans end, and when nothing is under way any
    /// more, the label changes.
    pub fn move_trees(&mut self, network: &mut Network) {
        let Some(&(root, shard)) = self.trees.first() else { return };
        let (queues, loans) = (self.queues_of_tree(root), self.loans_of_tree(root, network));
        let held: Vec<usize> = queues.iter().copied().filter(|queue| is_held(*queue, network)).collect();
        for &queue in queues.iter().filter(|queue| !held.contains(queue)) {
            if let Some(q) = self.queues.get_mut(queue).filter(|q| q.stop != Stop::Hold) {
                q.stop = Stop::Hold;
                self.put_queue(queue, network);
            }
        }
        let rests = held.len() == queues.len() && loans.is_empty();
        loans.into_iter().for_each(|loan| self.ask_back(loan, network));
        let now = network.now();
        let is_over = |since: Option<Time>| since.is_some_and(|since| now.since(since) >= SETTLED);
        self.settled = self.settled.or(Some(now)).filter(|_| rests);
        if is_over(self.labelled) {
            self.release(&queues, network);
            self.trees.remove(0);
            (self.settled, self.labelled) = (None, None);
        } else if is_over(self.settled) && self.labelled.is_none() {
            let shard = SHARDS[shard % SHARDS.len()];
            let label = (shard != DEFAULT).then_some(shard);
            let body = json!({"metadata": {"labels": {LABEL: label}}});
            self.patch(Kind::Cohort, global(format!("k{root}")), false, body, network);
            self.labelled = Some(now);
        }
        if !self.trees.is_empty() {
            network.agenda.after(HELD, Event::Trees);
        }
    }

    /// The queues of a tree that has its new label stay held for their time.
    pub(super) fn keep_held(&mut self) {
        let tree = self.trees.first().filter(|_| self.labelled.is_some());
        for queue in tree.map(|(root, _)| self.queues_of_tree(*root)).unwrap_or_default() {
            if let Some(q) = self.queues.get_mut(queue) {
                q.stop = Stop::Hold;
            }
        }
    }

    fn release(&mut self, queues: &[usize], network: &mut Network) {
        for &queue in queues {
            if let Some(q) = self.queues.get_mut(queue) {
                q.stop = Stop::None;
            }
            self.put_queue(queue, network);
        }
    }

    /// What of shards has to come to an end: loans that were asked back, and nodes on their way.
    pub(super) fn open_ends(&self, network: &Network) -> Vec<Arc<Value>> {
        let ends = |l: &&Arc<Value>| l["spec"]["return"] == true || deleting(l);
        let loans = network.api.all(Kind::QuotaLoan).filter(ends);
        loans.chain(network.api.all(Kind::Node).filter(|node| moves(node))).cloned().collect()
    }
}
