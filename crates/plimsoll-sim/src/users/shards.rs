//! Administrators of a cluster of two shards: nodes and trees that go from one to the other, and loans.

use std::sync::Arc;

use plimsoll_api::shards::{DEFAULT, LABEL, LED_BY, MOVE_TO};
use serde_json::{Value, json};

use super::{Users, global};
use crate::api::{Kind, deleting, name_of, text};
use crate::network::Network;
use crate::scenario::Operation;
use crate::scenario::objects::node_name;
use crate::scenario::shards::{SHARDS, loan, loan_name, planned};

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
    !text(node, &["metadata", "annotations", MOVE_TO]).is_empty()
}

fn shard_of(object: &Value) -> &str {
    match text(object, &["metadata", "labels", LABEL]) {
        "" => DEFAULT,
        shard => shard,
    }
}

impl Users {
    /// Does what an operation says of shards.
    pub(super) fn change_shards(&self, operation: &Operation, network: &mut Network) {
        match operation {
            Operation::MoveNode { node, shard } => {
                let body = json!({"metadata": {"annotations": {MOVE_TO: SHARDS[shard % SHARDS.len()]}}});
                self.patch(Kind::Node, global(node_name(*node)), false, body, network);
            }
            Operation::MoveTree { cohort, shard, by_hand } => {
                let shard = SHARDS[shard % SHARDS.len()];
                let body = match by_hand {
                    true => json!({"labels": {LABEL: (shard != DEFAULT).then_some(shard)}}),
                    false => json!({"annotations": {MOVE_TO: shard}}),
                };
                let body = json!({ "metadata": body });
                self.patch(Kind::Cohort, global(format!("k{}", self.root_of(*cohort))), false, body, network);
            }
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

    /// All loans are asked back.
    pub(super) fn end_loans(&self, network: &mut Network) {
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

    /// Whether an object of a tree is not with the shard that it is to be with.
    fn is_on_its_way(&self, object: &Value, network: &Network) -> bool {
        let (name, meta) = (name_of(object).1, &object["metadata"]["annotations"]);
        let number = |prefix: &str| name.strip_prefix(prefix).and_then(|n| n.parse::<usize>().ok());
        let cohort = match number("c") {
            Some(queue) => self.plan.queues.get(queue).and_then(|q| q.quota.parent),
            None => number("k"),
        };
        let root = cohort.map(|cohort| format!("k{}", self.root_of(cohort)));
        let root = root.and_then(|root| network.api.get(Kind::Cohort, "", &root));
        let shard = root.map_or(DEFAULT, |root| shard_of(root));
        meta.get(MOVE_TO).is_some() || meta[LED_BY] != shard
    }

    /// What of shards has to come to an end: loans that were asked back, and nodes and trees on their way.
    pub(super) fn open_ends(&self, network: &Network) -> Vec<Arc<Value>> {
        let ends = |l: &&Arc<Value>| l["spec"]["return"] == true || deleting(l);
        let loans = network.api.all(Kind::QuotaLoan).filter(ends);
        let trees = [Kind::Cohort, Kind::ClusterQueue].into_iter().flat_map(|kind| network.api.all(kind));
        let trees = trees.filter(|object| self.settings.shards && self.is_on_its_way(object, network));
        loans.chain(trees).chain(network.api.all(Kind::Node).filter(|node| moves(node))).cloned().collect()
    }
}
