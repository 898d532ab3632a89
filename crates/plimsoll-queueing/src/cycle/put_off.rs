//! Cycles that a step does not end: enough was decided, or too many nodes would have to be looked at (joint admission). The next step
//! goes on with the same heads.
//!
//! Which nodes pods can have is looked up in ranks of nodes. Where ranks have to be made, or made afresh, what needs them is put off until
//! they are, before anything else has come of it: the claims that are put up, the nominations, or an entry that fits by quota alone. Then the
//! decisions are the same as in one long step.

use super::Cycle;
use super::Head;
use super::entry::Entry;

/// Pods of admitted workloads, for which nodes were looked for, after which a cycle admits no further ones that nobody needs to go for.
const PODS_PER_CYCLE: i64 = 1024;

impl Cycle<'_> {
    /// Whether enough was decided for one step, and the entries left can as well be looked at in the next cycle: nothing is
    /// known of them but that they fit, and no entry before them reserves anything but what it gets.
    pub(super) fn may_break_off(&self, entries: &[Entry], left: &[usize]) -> bool {
        let enough = self.admitted >= self.state.queues_per_cycle || self.admitted_pods >= PODS_PER_CYCLE;
        enough && self.may_leave(entries, left)
    }

    /// Counts a workload that is admitted.
    pub(super) fn count_admission(&mut self, e: &Entry) {
        self.admitted += 1;
        if self.nodes.is_some() {
            let pod_sets = e.assignment.iter().flat_map(|a| &a.pod_sets);
            self.admitted_pods += pod_sets.map(|p| i64::from(p.count)).sum::<i64>();
        }
    }

    pub(super) fn may_leave(&self, entries: &[Entry], left: &[usize]) -> bool {
        self.reserved.is_empty()
            && self.preempted.is_empty()
            && left.iter().all(|&i| entries[i].fits.is_some())
    }

    /// Finds an assignment for every head, as [`Cycle::nominate`], unless too many nodes have to be looked at for that, or for the claims
    /// that are due: then nothing has happened.
    pub(super) fn nominate_in_steps(&mut self, heads: Vec<Head>) -> Option<(Vec<Entry>, Vec<Entry>)> {
        self.begin_attempt();
        let nominated = self.nominate(heads);
        self.rank_nodes_for_claims(&nominated.0);
        if self.end_attempt() {
            self.drop_found_dry_runs();
            self.take_down_claims();
            return None;
        }
        Some(nominated)
    }

    fn begin_attempt(&mut self) {
        self.failed.end_attempt(false);
        self.nodes.iter_mut().for_each(|nodes| nodes.begin_attempt());
    }

    /// Whether what was tried is put off.
    fn end_attempt(&mut self) -> bool {
        let put_off = self.nodes.as_mut().is_some_and(|nodes| nodes.end_attempt());
        self.failed.end_attempt(put_off);
        put_off
    }

    /// Whether what is tried is put off: what is found out from now on means nothing.
    pub(super) fn is_put_off(&self) -> bool {
        self.nodes.as_ref().is_some_and(|nodes| nodes.attempt_is_put_off())
    }

    /// Takes an entry out of its queue that the cycle has come to, and nominates it; otherwise it is put off, and still in its queue.
    pub(super) fn nominate_late(&mut self, e: &mut Entry) -> bool {
        if self.leaves_none {
            self.nominate_now(e);
            return true;
        }
        let fits = e.fits;
        self.begin_attempt();
        self.nominate_now(e);
        self.rank_nodes_for_claims(std::slice::from_ref(e));
        if !self.end_attempt() {
            return true;
        }
        let found = self.dry_runs.take(e.id);
        self.end_dry_runs(&found);
        self.dry_runs.overtaken.remove(&e.id);
        self.heads.pop();
        *e = Entry { fits, ..Entry::new(e.id, e.cq) };
        self.left_one = true;
        false
    }
}
