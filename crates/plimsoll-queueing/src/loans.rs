//! Quota that one tree of cohorts lends to another (Plimsoll's own, `QuotaLoan` in `plimsoll.dev/v1alpha1`).
//!
//! The trees may be led by different processes, which see each other's writes late. Let *q* be the quantity of a loan. The
//! lender's tree is charged *q* from before `Granted` is written until `Returned` is seen; the borrower's tree has *q* from
//! when `Granted` is seen until before `Returned` is written. The second interval lies within the first whatever is late, lost
//! or repeated, because each side changes its own tree before it writes, and acts on the other's write only once it is
//! committed. So both trees together never use more than both together have ([docs/scale.md]).
//!
//! A tree lends or borrows, not both at a time: what uses a loan in it are workloads then, some of which borrow and can be preempted for its
//! return. Otherwise trees that lend to each other could wait for each other for ever.
//!
//! Everything is rebuilt from the objects: a process that starts charges the lender for each loan that is granted, and considers
//! those that are requested before it admits anything. A charge for a grant that is under way is kept until the API shows that
//! the write can no longer be carried out, not only until it has failed: a write whose response was lost may still arrive.

mod model;
#[cfg(test)]
mod protocol_tests;
mod returning;
#[cfg(test)]
mod tests;

pub use model::{LOAN_FINALIZER, LoanChange, LoanPhase, LoanUpdate, LoanedResource, QuotaLoan};

use std::collections::BTreeMap;

use super::Action;
use super::amount::Amount;
use super::format;
use super::ids::{ClusterQueueId, FlavorResource};
use super::model::ShardStop;
use super::tree::{NodeId, NodeSpec, Quota};
use crate::Queueing;
use plimsoll_state::Answer;
use plimsoll_state::time::{Duration, Time};

/// First and longest pause after a write that failed.
const BACKOFF: (Duration, Duration) = (Duration::from_seconds(1), Duration::from_seconds(60));
/// How long the watch may take to show a write that was carried out before the loan is considered again.
const SHOWN_AFTER: Duration = Duration::from_seconds(10);
/// Least time between two writes of why a loan is not granted.
const EXPLAIN_LOAN_EVERY: Duration = Duration::from_seconds(60);

/// Which steps a process takes with the loans of a cohort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Steps {
    None,
    /// Those that end loans: the tree is to go to another shard.
    Ending,
    All,
}

/// A loan and the writes to it.
#[derive(Debug, Default)]
struct Slot {
    loan: QuotaLoan,
    /// The version for which `Granted` was asked for, while the API shows the loan as requested.
    granting: Option<u64>,
    /// Whether the borrower's tree uses it, while the API shows it as granted.
    used: bool,
    /// The write that has no answer yet.
    under_way: Option<LoanChange>,
    failures: u32,
    /// When it was last written why the lender does not grant it.
    explained: Option<Time>,
    /// No write before this time, unless the API shows another version.
    wait_until: Option<Time>,
}

impl Slot {
    /// Whether the lender's tree is charged.
    fn is_charged(&self) -> bool {
        self.loan.phase == LoanPhase::Granted || self.granting.is_some()
    }

    /// Whether the borrower's tree has it.
    fn is_usable(&self) -> bool {
        self.used && self.loan.phase == LoanPhase::Granted && !self.loan.ends()
    }

    /// The API shows the loan; whether that is news.
    fn show(&mut self, loan: QuotaLoan) -> bool {
        if loan.uid == self.loan.uid && loan.version <= self.loan.version {
            self.loan.absent = loan.absent;
            return false;
        }
        if loan.uid != self.loan.uid {
            *self = Self::default();
        }
        // A grant has the version as its precondition: from now on it can't be carried out any more, or has been.
        if self.granting.is_some_and(|version| version < loan.version) {
            self.granting = None;
        }
        (self.failures, self.wait_until) = (0, None);
        self.loan = loan;
        true
    }
}

/// All loans, by name.
#[derive(Debug, Default)]
pub(crate) struct Loans(BTreeMap<String, Slot>);

impl Loans {
    /// When a write is to be tried again.
    pub(crate) fn next(&self) -> Option<Time> {
        self.0.values().filter_map(|slot| slot.wait_until).min()
    }
}

impl Queueing {
    /// Whether this process decides about the tree of a cohort, after the tree as it is built.
    pub(crate) fn leads(&self, cohort: &str) -> bool {
        !self.config.shard || self.tree.cohort(cohort).is_some()
    }

    /// Which steps of a cohort this process takes: none while no shard decides with its tree, or another one does. `absent`: it exists
    /// in no shard, and the steps are this process's.
    fn steps_of(&self, cohort: &str, absent: bool) -> Steps {
        let Some(root) = self.tree.cohort(cohort).map(|node| self.tree.root(node)) else {
            return if self.config.shard && !absent { Steps::None } else { Steps::All };
        };
        let of_queue = |cq: &ClusterQueueId| self.cq(*cq).spec.as_ref()?.shard_stop.as_ref();
        let queues = self.trees.get(&root).into_iter().flat_map(|queues| queues.iter().filter_map(of_queue));
        let within = |name: &str| self.tree.cohort(name).is_some_and(|node| self.tree.root(node) == root);
        let cohorts = self.objects.cohorts.values().filter(|c| c.shard_stop.is_some() && within(&c.name));
        let stops = queues.chain(cohorts.filter_map(|c| c.shard_stop.as_ref()));
        let steps = stops.map(|stop| match stop {
            ShardStop::Leaves(_) => Steps::Ending,
            ShardStop::Conflict(_) | ShardStop::Waits(_) => Steps::None,
        });
        steps.min().unwrap_or(Steps::All)
    }

    /// A QuotaLoan was seen or changed.
    pub(crate) fn quota_loan(&mut self, loan: QuotaLoan) {
        for r in &loan.resources {
            let (flavor, resource) = (self.ids.flavor(&r.flavor), self.ids.resource(&r.resource));
            self.ids.pair(flavor, resource);
        }
        let slot = self.loans.0.entry(loan.name.clone()).or_default();
        let before = (slot.is_charged(), slot.is_usable());
        if slot.show(loan) && before != (slot.is_charged(), slot.is_usable()) {
            self.rebuild_soon();
        }
    }

    /// The QuotaLoan is gone, returned or by an administrator's decision.
    pub(crate) fn quota_loan_gone(&mut self, name: &str) {
        if self.loans.0.remove(name).is_some_and(|slot| slot.is_charged() || slot.is_usable()) {
            self.rebuild_soon();
        }
    }

    /// What became of a write to a loan.
    pub(crate) fn loan_answered(&mut self, update: &LoanUpdate, answer: &Answer, now: Time) {
        let Some(slot) = self.loans.0.get_mut(&update.name).filter(|s| s.loan.uid == update.uid) else {
            return;
        };
        slot.under_way = None;
        if slot.loan.version > update.version {
            return;
        }
        let pause = match answer {
            Answer::Done | Answer::Superseded => SHOWN_AFTER,
            Answer::Failed(_) => {
                slot.failures = slot.failures.saturating_add(1);
                Duration(BACKOFF.0.0.saturating_mul(1 << (slot.failures - 1).min(6))).min(BACKOFF.1)
            }
        };
        // No grant is under way of a loan that is gone, or that another shard's tree lends.
        let uncharged = *answer == Answer::Superseded && slot.granting.take().is_some();
        slot.wait_until = Some(now.plus(pause));
        if uncharged {
            self.rebuild_soon();
        }
    }

    /// Adds what trees have borrowed to the quotas of their cohorts.
    pub(crate) fn add_borrowed_quota(&self, specs: &mut Vec<NodeSpec>) {
        for Slot { loan, .. } in self.loans.0.values().filter(|s| s.is_usable()) {
            let is_known = |s: &NodeSpec| s.parent == loan.to || !s.leaf && s.name == loan.to;
            if self.config.shard && !specs.iter().any(is_known) {
                continue;
            }
            let found = specs.iter().position(|s| !s.leaf && s.name == loan.to);
            let at = found.unwrap_or_else(|| {
                let name = loan.to.clone();
                specs.push(NodeSpec { name, active: true, weight: 1.0, ..NodeSpec::default() });
                specs.len() - 1
            });
            let Some(NodeSpec { quotas, .. }) = specs.get_mut(at) else { continue };
            for (fr, quantity) in self.lent_columns(loan) {
                match quotas.iter_mut().find(|(known, _)| *known == fr) {
                    Some((_, quota)) => quota.nominal = quota.nominal.add(quantity),
                    None => quotas.push((fr, Quota { nominal: quantity, ..Quota::default() })),
                }
            }
        }
    }

    /// Charges trees for what they have lent.
    pub(crate) fn charge_lent_quota(&mut self) {
        let lent = self.loans.0.values().filter(|s| s.is_charged() && self.leads(&s.loan.from));
        let charges: Vec<(NodeId, FlavorResource, Amount)> = lent
            .filter_map(|s| Some((self.tree.cohort(&s.loan.from)?, &s.loan)))
            .flat_map(|(node, loan)| self.lent_columns(loan).map(move |(fr, quantity)| (node, fr, quantity)))
            .collect();
        charges.into_iter().for_each(|(node, fr, quantity)| self.tree.charge_cohort(node, fr, quantity));
    }

    fn lent_columns(&self, loan: &QuotaLoan) -> impl Iterator<Item = (FlavorResource, Amount)> {
        loan.resources.iter().filter_map(|r| {
            let (flavor, resource) = (self.ids.find_flavor(&r.flavor)?, self.ids.find_resource(&r.resource)?);
            Some((self.ids.find_pair(flavor, resource)?, Amount(r.quantity)))
        })
    }

    /// Takes each loan one step further, before anything is admitted.
    pub(crate) fn settle_loans(&mut self, now: Time) {
        if self.loans.0.is_empty() {
            return;
        }
        self.ensure_tree();
        // Those that were made first come first.
        let mut order: Vec<(Time, String)> =
            self.loans.0.iter().map(|(name, slot)| (slot.loan.creation, name.clone())).collect();
        order.sort_unstable();
        for (_, name) in order {
            let Some(slot) = self.loans.0.get_mut(&name) else { continue };
            if slot.under_way.is_some() || slot.wait_until.is_some_and(|t| now < t) {
                continue;
            }
            slot.wait_until = None;
            let loan = slot.loan.clone();
            // A grant that may be carried out is repeated until it is known.
            let least = if loan.ends() || slot.granting.is_some() { Steps::Ending } else { Steps::All };
            let steps = match loan.phase {
                LoanPhase::Requested | LoanPhase::Returned => self.steps_of(&loan.from, loan.absent[0]),
                LoanPhase::Granted => self.steps_of(&loan.to, loan.absent[1]),
            };
            let change = match loan.phase {
                LoanPhase::Requested if steps >= least => self.consider_loan(&loan, now),
                LoanPhase::Granted if steps >= least => self.use_loan(&loan, now),
                LoanPhase::Returned if steps > Steps::None => end_loan(&loan),
                LoanPhase::Requested | LoanPhase::Granted | LoanPhase::Returned => None,
            };
            if let Some(change) = change {
                self.write_loan(&loan, change);
            }
        }
        self.ensure_tree();
    }

    /// The borrower's next step with a loan that is granted. A tree that lends meanwhile does not use it.
    fn use_loan(&mut self, loan: &QuotaLoan, now: Time) -> Option<LoanChange> {
        self.ensure_tree();
        let lends = self.tree.cohort(&loan.to).is_some_and(|to| self.tree.lends(to));
        let slot = self.loans.0.get_mut(&loan.name)?;
        let uses = !loan.ends() && !lends;
        if std::mem::replace(&mut slot.used, uses) != uses {
            self.rebuild_soon();
        }
        if uses { None } else { self.return_loan(loan, now) }
    }

    /// The lender's next step with a loan that is requested. It is charged before the grant is written.
    fn consider_loan(&mut self, loan: &QuotaLoan, now: Time) -> Option<LoanChange> {
        let asked = self.loans.0.get(&loan.name).is_some_and(|slot| slot.granting.is_some());
        if asked {
            // With another version of the loan the grant can't be carried out any more. The charge is on no cohort.
            self.ensure_tree();
            let exists = self.tree.cohort(&loan.from).is_some();
            return if exists { Some(LoanChange::Grant) } else { end_loan(loan) };
        }
        if loan.ends() {
            return end_loan(loan);
        }
        if let Some(lacking) = self.why_not_lent(loan) {
            let slot = self.loans.0.get_mut(&loan.name).filter(|_| loan.message != lacking)?;
            if slot.explained.is_some_and(|at| now < at.plus(EXPLAIN_LOAN_EVERY)) {
                return None;
            }
            slot.explained = Some(now);
            return Some(LoanChange::Explain(lacking));
        }
        if !loan.is_held() {
            let ours = std::iter::once(LOAN_FINALIZER.to_owned());
            return Some(LoanChange::Finalizers(loan.finalizers.iter().cloned().chain(ours).collect()));
        }
        if let Some(slot) = self.loans.0.get_mut(&loan.name) {
            slot.granting = Some(loan.version);
        }
        self.tree_dirty = true;
        self.joint.changes += 1;
        self.ensure_tree();
        Some(LoanChange::Grant)
    }

    /// Why the lender does not grant a loan now: it lends what is free, what its ClusterQueues lend to each other and what is within
    /// the limit of the cohort.
    fn why_not_lent(&mut self, loan: &QuotaLoan) -> Option<String> {
        self.ensure_tree();
        let from = &loan.from;
        let Some(node) = self.tree.cohort(from) else { return Some(format!("Cohort {from} does not exist")) };
        let to = self.tree.cohort(&loan.to).filter(|_| self.leads(&loan.to));
        if to.is_some_and(|to| self.tree.root(to) == self.tree.root(node)) {
            return Some(format!(
                "Cohorts {from} and {} are in the same tree, in which quota is borrowed without a loan",
                loan.to
            ));
        }
        let borrowed = self.loans.0.values().find(|s| {
            s.loan.phase == LoanPhase::Granted && self.leads(&s.loan.to) && {
                let to = self.tree.cohort(&s.loan.to);
                to.is_some_and(|to| self.tree.root(to) == self.tree.root(node))
            }
        });
        if let Some(Slot { loan, .. }) = borrowed {
            return Some(format!(
                "Cohort {from} lends nothing while its tree has the quota loan {}",
                loan.name
            ));
        }
        let lacking = loan.resources.iter().zip(self.lent_columns(loan)).find(|(_, (fr, quantity))| {
            let lent = || {
                let mine = self.loans.0.values().filter(|s| s.is_charged() && s.loan.from == *from);
                let columns = mine.flat_map(|s| self.lent_columns(&s.loan)).filter(|(known, _)| known == fr);
                columns.fold(*quantity, |sum, (_, lent)| sum.add(lent))
            };
            let limit = self.tree.quota(node, *fr).lending;
            self.tree.borrowing_with(node, *fr, *quantity)
                || self.tree.available(node, *fr) < *quantity
                || limit.is_some_and(|limit| limit < lent())
        });
        lacking.map(|(r, (_, quantity))| {
            let quantity = format::amount(&r.resource, quantity, self.config.counts_bytes(&r.resource));
            format!(
                "Cohort {from} can't lend {quantity} of {} in flavor {} now, because less is free or may be lent",
                r.resource, r.flavor
            )
        })
    }

    fn write_loan(&mut self, loan: &QuotaLoan, change: LoanChange) {
        if let Some(slot) = self.loans.0.get_mut(&loan.name) {
            slot.under_way = Some(change.clone());
        }
        let update =
            LoanUpdate { name: loan.name.clone(), uid: loan.uid.clone(), version: loan.version, change };
        self.out.push(Action::UpdateLoan(Box::new(update)));
    }

    /// Compares what trees are charged for loans with the loans.
    ///
    /// # Panics
    /// When they differ.
    pub(crate) fn check_loans(&self) {
        let mut lent = BTreeMap::new();
        for slot in self.loans.0.values().filter(|s| s.is_charged() && self.leads(&s.loan.from)) {
            let Some(node) = self.tree.cohort(&slot.loan.from) else { continue };
            for (fr, quantity) in self.lent_columns(&slot.loan) {
                let sum = lent.entry((node, fr)).or_insert(Amount::ZERO);
                *sum = sum.add(quantity);
            }
        }
        assert_eq!(lent, self.tree.charged_cohorts(), "what cohorts have lent");
    }
}

/// The lender's next step with a loan that counts nowhere: it ends.
fn end_loan(loan: &QuotaLoan) -> Option<LoanChange> {
    if loan.is_held() {
        let others = loan.finalizers.iter().filter(|f| *f != LOAN_FINALIZER).cloned().collect();
        return Some(LoanChange::Finalizers(others));
    }
    (!loan.deleting).then_some(LoanChange::Delete)
}
