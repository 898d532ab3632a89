//! Nodes and trees that go from one shard to another: what keeps them with the leader that has them, and the writes that give them away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_api::request::{PatchKind, Request};
use plimsoll_api::resource::NODES;
use plimsoll_api::shards::{self, Changed, DEFAULT, TreeChange, TreeObject, TreeStep};
use plimsoll_queueing::{Event, LoanChange, LoanPhase, LoanUpdate, QuotaLoan};
use plimsoll_state::ObjectEvent;
use plimsoll_state::model::Node;
use serde_json::json;

use super::{Division, Seen, Told};

/// A node of the shard that is to be given to another one; to itself where it only loses the annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// The other shard.
    pub to: String,
    /// The version of the node that says so.
    pub version: String,
}

impl Leaving {
    /// The write that gives the node away, if it still has the version that says so.
    pub fn request(&self, node: &str) -> Request {
        let label = (self.to != DEFAULT).then_some(&self.to);
        let body = json!({"metadata": {"resourceVersion": self.version,
            "labels": {shards::LABEL: label}, "annotations": {shards::MOVE_TO: null}}});
        Request::patch(NODES, "", node, "", PatchKind::Merge, body)
    }
}

/// A write to an object of a tree, and what has to be known before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The write.
    pub write: TreeStep,
    /// ClusterQueues in which the engine may have no write of an admission left; all steps of a tree share them.
    pub cluster_queues: Arc<BTreeSet<String>>,
    /// [`Division::changes`] when this was found.
    changes: u64,
}

impl Step {
    /// Whether it is the same write, with nothing decided anew about trees in between.
    fn is_same(&self, other: &Self) -> bool {
        self.changes == other.changes && self.write == other.write
    }
}

/// What keeps a tree with its shard.
struct Around {
    /// Its ClusterQueues that the shard keeps.
    cluster_queues: Arc<BTreeSet<String>>,
    /// Whether an admission there is under way, or a write of what its cohorts lend or borrow.
    writes: bool,
}

/// What is under way to nodes and in trees, and loans by which quota may go.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    /// How many bindings to each node.
    bindings: BTreeMap<String, usize>,
    /// How many admissions in each ClusterQueue.
    admissions: BTreeMap<String, usize>,
    /// Loans as they were seen last.
    loans: BTreeMap<String, Loan>,
    /// Loans that are not there any more: all without a UID in this list whose version is not newer than that of the list.
    listed: Option<(u64, BTreeSet<String>)>,
    /// The last number of [`Division::found`].
    found: u64,
}

#[derive(Debug)]
struct Loan {
    /// As the engine was told.
    told: QuotaLoan,
    /// The version for which a write was begun that grants or returns it. Until another one is seen it may be carried out.
    written: Option<u64>,
    /// When it was first seen to be asked back: a number that [`Division::found`] may have.
    ends: Option<u64>,
}

impl Loan {
    fn cohorts(&self) -> [&str; 2] {
        [&self.told.from, &self.told.to]
    }
}

fn add(counts: &mut BTreeMap<String, usize>, name: &str) {
    *counts.entry(name.to_owned()).or_insert(0) += 1;
}

fn take(counts: &mut BTreeMap<String, usize>, name: &str) {
    if let Some(count) = counts.get_mut(name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(name);
        }
    }
}

impl Division {
    /// Whether a binding to a node may begin; it is under way until [`Division::bound`].
    pub fn may_bind(&mut self, node: &str) -> bool {
        let may = self.pods.has_node(node);
        if may {
            add(&mut self.under_way.bindings, node);
        }
        may
    }

    /// A binding that had begun is not under way any more.
    pub fn bound(&mut self, node: &str) {
        take(&mut self.under_way.bindings, node);
    }

    /// Whether an admission in a ClusterQueue may begin; it is under way until [`Division::admitted`].
    pub fn may_admit(&mut self, cluster_queue: &str) -> bool {
        let may = self.decides(cluster_queue);
        if may {
            add(&mut self.under_way.admissions, cluster_queue);
        }
        may
    }

    /// An admission that had begun is not under way any more: it is known what became of it.
    pub fn admitted(&mut self, cluster_queue: &str) {
        take(&mut self.under_way.admissions, cluster_queue);
    }

    /// Whether a write to a loan may begin. One that grants or returns it may be carried out until another version is seen.
    pub fn may_write_loan(&mut self, update: &LoanUpdate) -> bool {
        let side = match update.change {
            LoanChange::Grant => 0,
            LoanChange::Return => 1,
            LoanChange::Finalizers(_) | LoanChange::Explain(_) | LoanChange::Delete => return true,
        };
        let known = self.under_way.loans.get_mut(&update.name).filter(|loan| loan.told.uid == update.uid);
        // The engine has seen a loan that is gone.
        let Some(loan) = known else { return false };
        let owner = self.trees.of_cohort(loan.cohorts()[side]);
        let repeats = loan.written == Some(update.version);
        let ends = side == 1 && owner.may_end_loans(&self.name);
        let may = repeats || ends || owner.decides(&self.name);
        if may {
            loan.written = Some(update.version);
        }
        may
    }

    /// Whether a write may still be carried out whose answer was lost, and of which the next leader of the shard would know nothing:
    /// one that gives an object of a tree away, or grants or returns a loan.
    pub fn is_unsettled(&self) -> bool {
        self.trees.is_giving() || self.under_way.loans.values().any(|loan| loan.written.is_some())
    }

    /// A loan was seen or has changed.
    pub(super) fn loan(&mut self, loan: QuotaLoan, seen: Seen<'_>, out: &mut Vec<Told>) {
        if self.under_way.is_gone(&loan.uid, loan.version) {
            return self.loan_gone(loan.name, seen, out);
        }
        let granted = loan.phase == LoanPhase::Granted;
        let cohorts = [loan.from.clone(), loan.to.clone()];
        let before = self.under_way.loans.get(&loan.name).filter(|b| b.told.uid == loan.uid);
        let written = before.filter(|b| b.told.version >= loan.version).and_then(|b| b.written);
        let ended = before.and_then(|before| before.ends);
        self.trees.put_loan(&loan.name, granted.then_some(&cohorts));
        let ends = loan.ends().then(|| ended.unwrap_or_else(|| self.trees.count_up()));
        let name = loan.name.clone();
        let mut known = Loan { told: loan, written, ends };
        known.told.absent = self.absent(&known);
        out.push(Told::Queueing(Event::QuotaLoanUpsert(Box::new(known.told.clone()))));
        self.under_way.loans.insert(name, known);
        self.trees_changed(Changed::default(), seen, out);
    }

    /// Which cohorts of a loan exist nowhere, so that the leader of the shard [`DEFAULT`] takes their steps: the end of the loan.
    ///
    /// It returns a loan in the place of a borrower after it has looked for the cohort since the loan was asked back. A cohort that is
    /// made later gets a leader that has listed loans since, and uses none that is asked back.
    fn absent(&self, loan: &Loan) -> [bool; 2] {
        let looks = self.name == DEFAULT && self.is_open();
        let [from, to] = loan.cohorts().map(|cohort| looks && !self.trees.has_cohort(cohort));
        [from, to && loan.ends.is_some_and(|since| since <= self.under_way.found)]
    }

    /// Tells the engine of loans whose cohorts exist nowhere from now on, or do exist.
    pub(super) fn tell_absent(&mut self, out: &mut Vec<Told>) {
        if self.name != DEFAULT {
            return;
        }
        let loans = self.under_way.loans.iter().map(|(name, loan)| (name, loan, self.absent(loan)));
        let changed = loans.filter(|(_, loan, absent)| loan.told.absent != *absent);
        let changed: Vec<(String, [bool; 2])> =
            changed.map(|(name, _, absent)| (name.clone(), absent)).collect();
        for (name, absent) in changed {
            let Some(loan) = self.under_way.loans.get_mut(&name) else { continue };
            loan.told.absent = absent;
            out.push(Told::Queueing(Event::QuotaLoanUpsert(Box::new(loan.told.clone()))));
        }
    }

    /// Whether a loan is to be returned in the place of a borrower that seems to exist nowhere.
    fn looks_for_borrowers(&self) -> bool {
        let looks = |loan: &Loan| {
            let ended = loan.ends.is_some_and(|since| since > self.under_way.found);
            ended && loan.told.phase == LoanPhase::Granted && !self.trees.has_cohort(&loan.told.to)
        };
        self.name == DEFAULT && self.under_way.loans.values().any(looks)
    }

    /// A loan is gone.
    pub(super) fn loan_gone(&mut self, name: String, seen: Seen<'_>, out: &mut Vec<Told>) {
        self.trees.put_loan(&name, None);
        self.under_way.loans.remove(&name);
        out.push(Told::Queueing(Event::QuotaLoanDelete(name)));
        self.trees_changed(Changed::default(), seen, out);
    }

    /// Whether nodes are to be given away.
    pub fn gives_away(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Nodes that can be given away now, or lose an annotation that asks for what is so already.
    pub fn given_away(&self) -> Vec<(String, Leaving)> {
        let stays = |to: &str| to == self.name;
        let idle = self.leaving.iter();
        let idle =
            idle.filter(|(node, leaving)| stays(&leaving.to) || !self.under_way.bindings.contains_key(*node));
        idle.map(|(node, leaving)| (node.clone(), leaving.clone())).collect()
    }

    /// A node was seen or has changed, in this version. Returns whether it is of the shard, and stays there.
    pub fn node(&mut self, node: Node, version: &str, out: &mut Vec<Told>) -> bool {
        let name = node.name.clone();
        let asked = shards::moves_to(&node.annotations);
        let leaves = asked.filter(|to| *to != self.name);
        if shards::of_node(&node.labels) != self.name || leaves.is_some() {
            self.node_gone(&name, out);
            // It is given away when nothing is under way that concerns it.
            if let Some(to) = leaves.filter(|_| shards::of_node(&node.labels) == self.name) {
                let leaving = Leaving { to: to.to_owned(), version: version.to_owned() };
                self.leaving.insert(name, leaving);
            }
            return false;
        }
        self.leaving.remove(&name);
        if let Some(to) = asked {
            self.leaving.insert(name.clone(), Leaving { to: to.to_owned(), version: version.to_owned() });
        }
        out.push(Told::Object(ObjectEvent::NodeUpsert(Box::new(node))));
        out.extend(self.pods.node(&name).into_iter().map(Told::Object));
        true
    }

    /// A node is gone, or of another shard.
    pub fn node_gone(&mut self, name: &str, out: &mut Vec<Told>) {
        self.leaving.remove(name);
        if self.pods.node_gone(name) {
            out.push(Told::Object(ObjectEvent::NodeDelete(name.to_owned())));
        }
    }

    /// Whether objects of trees are to be written to, or looked for.
    pub fn moves_trees(&self) -> bool {
        self.unknown().is_some() || self.is_open() && !self.trees.steps().is_empty()
    }

    /// What can be written to objects of trees now, as far as this process knows without its engine: an object is given away when
    /// no admission in its tree is under way, nor a write of what its cohorts lend or borrow.
    pub fn tree_steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut around: Option<(&TreeObject, Around)> = None;
        for write in if self.is_open() { self.trees.steps() } else { Vec::new() } {
            let gives = matches!(write.change, TreeChange::Give(_));
            let Some(root) = self.trees.root(&write.object).filter(|_| gives) else {
                steps.push(Step { write, cluster_queues: Arc::default(), changes: self.changes });
                continue;
            };
            // Objects of one tree follow each other.
            let tree = match around.take() {
                Some((of, known)) if of == root => known,
                _ => self.around(root),
            };
            if !tree.writes {
                let cluster_queues = Arc::clone(&tree.cluster_queues);
                steps.push(Step { write, cluster_queues, changes: self.changes });
            }
            around = Some((root, tree));
        }
        steps
    }

    /// What keeps the tree of an object from being given away.
    fn around(&self, object: &TreeObject) -> Around {
        let (cluster_queues, cohorts) = self.trees.around(object);
        let written = |loan: &Loan| {
            loan.written.is_some() && loan.cohorts().iter().any(|cohort| cohorts.contains(cohort))
        };
        let admits = cluster_queues.iter().any(|queue| self.under_way.admissions.contains_key(queue));
        let writes = admits || self.under_way.loans.values().any(written);
        Around { cluster_queues: Arc::new(cluster_queues), writes }
    }

    /// The writes of those steps that are still to be made, after the engine was asked. From now on they may be carried out.
    pub fn begin_steps(
        &mut self,
        steps: Vec<Step>,
        seen: Seen<'_>,
        out: &mut Vec<Told>,
    ) -> Vec<(TreeStep, Request)> {
        let now = self.tree_steps();
        let now: BTreeMap<&TreeObject, &Step> = now.iter().map(|step| (&step.write.object, step)).collect();
        let is_due = |step: &Step| now.get(&step.write.object).is_some_and(|now| now.is_same(step));
        let begun: Vec<Step> = steps.into_iter().filter(is_due).collect();
        begun.iter().for_each(|step| self.trees.gives(&step.write));
        self.trees_changed(Changed::default(), seen, out);
        let request = |Step { write, .. }: Step| {
            let request = write.request(&self.name);
            (write, request)
        };
        begun.into_iter().map(request).collect()
    }

    /// A number for [`Division::found`], when not everything was seen that leaders before wrote about trees of this shard, or when a
    /// cohort seems to exist nowhere.
    pub fn unknown(&self) -> Option<u64> {
        if !self.is_open() {
            return None;
        }
        self.trees.unknown().or_else(|| self.looks_for_borrowers().then(|| self.trees.count()))
    }

    /// All objects that carry out decisions about trees were listed after [`Division::unknown`] gave this number, and everything up to
    /// the newest of each kind has been seen. `loans`: version of the list of loans, and their UIDs.
    pub fn found(
        &mut self,
        number: u64,
        loans: (u64, BTreeSet<String>),
        seen: Seen<'_>,
        out: &mut Vec<Told>,
    ) {
        self.under_way.listed = Some(loans);
        // A loan that was deleted has been returned before: it must not be used here any more.
        let UnderWay { loans, .. } = &self.under_way;
        let is_gone = |told: &QuotaLoan| self.under_way.is_gone(&told.uid, told.version);
        let gone = loans.iter().filter(|(_, loan)| is_gone(&loan.told));
        for name in gone.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.loan_gone(name, seen, out);
        }
        self.trees.found(number);
        self.under_way.found = self.under_way.found.max(number);
        self.trees_changed(Changed::default(), seen, out);
    }

    /// Objects that this shard waits for, and the shards that lead them.
    pub fn awaited(&self) -> Vec<(TreeObject, String)> {
        self.trees.awaited()
    }
}

impl UnderWay {
    /// Whether a loan that was seen in this version has been deleted since.
    fn is_gone(&self, uid: &str, version: u64) -> bool {
        let listed = self.listed.as_ref();
        listed.is_some_and(|(newest, uids)| version <= *newest && !uids.contains(uid))
    }
}
