//! Places promised to admitted workloads (joint admission): every pod of a workload that queueing wants to admit is
//! placed on trial with all filters. If all find a node, stand-ins keep the places until the real pods come and take
//! them over; if one does not, nothing has happened.
//!
//! Stand-ins are pods like any other to plugins and columns. Nothing is ever written for them.

use super::Scheduler;
use super::cluster::{NodeId, Pod, PodId};
use super::cycle::Cycle;
use super::decide::{Outcome, Search, search};
use super::evaluate;
use super::framework::Incoming;
use super::ranked::Rank;
use plimsoll_state::intern::Map;
use plimsoll_state::model;
use plimsoll_state::time::{Duration, Time};
use std::collections::BTreeMap;

/// How long places are kept for pods that do not come; they are looked for a place as usual afterwards.
pub const PATIENCE: Duration = Duration::from_seconds(300);

/// A workload by namespace and name.
type Holder = (String, String);

/// Who holds promised places, and who may take them.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    /// Stand-ins by podset, and when the promise was made.
    held: BTreeMap<Holder, (Time, Vec<(String, PodId)>)>,
    /// Whose stand-in a pod is.
    stand_ins: Map<PodId, Holder>,
    /// Pods that are not on a node yet of workloads with promises, with their podset.
    waiting: Map<PodId, (Holder, String)>,
    /// How many stand-ins were ever made, for their UIDs.
    made: u64,
}

impl Promises {
    /// Whether nothing is promised to anybody.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether the pod is a stand-in.
    pub(crate) fn is_stand_in(&self, id: PodId) -> bool {
        self.stand_ins.contains_key(&id)
    }

    /// When the oldest promise ends.
    pub(crate) fn next_end(&self) -> Option<Time> {
        self.held.values().map(|(made, _)| made.plus(PATIENCE)).min()
    }
}

impl Scheduler {
    /// Promises a node to each of `pods` (podset and pod, names and UIDs are made here), or changes nothing and says why
    /// not, in the scheduler's words. Pods of a scheduler that is not ours get no promise.
    ///
    /// # Errors
    /// The text of the first pod that fits nowhere.
    pub fn promise(
        &mut self,
        now: Time,
        namespace: &str,
        workload: &str,
        pods: &[(String, model::Pod)],
    ) -> Result<(), String> {
        self.now = now;
        let holder = (namespace.to_owned(), workload.to_owned());
        self.release(&holder.0, &holder.1);
        let mut got: Vec<(String, PodId)> = Vec::with_capacity(pods.len());
        for (podset, pod) in pods {
            self.promises.made += 1;
            let uid = format!("promise-{}", self.promises.made);
            let shape = self.cluster.shapes.acquire(pod, &mut self.cluster.strings);
            let id = self.cluster.insert_pod(Pod::new(&uid, &format!("{workload}-{podset}"), shape));
            // Pods of other schedulers, and those for which extenders have to be asked, are placed later.
            let Some(profile) = self.profile_of(id).filter(|_| !self.is_extended(id)) else {
                self.cluster.remove_pod(id);
                continue;
            };
            match self.trial(id, profile) {
                Ok(node) => {
                    self.cluster.place(id, node);
                    got.push((podset.clone(), id));
                }
                Err(text) => {
                    self.cluster.remove_pod(id);
                    got.into_iter().rev().for_each(|(_, id)| self.cluster.remove_pod(id));
                    return Err(text);
                }
            }
        }
        for (_, id) in &got {
            self.promises.stand_ins.insert(*id, holder.clone());
        }
        if !got.is_empty() {
            self.promises.held.insert(holder, (now, got));
        }
        Ok(())
    }

    /// The best node for a pod now, without asking others to go.
    fn trial(&mut self, id: PodId, profile: usize) -> Result<NodeId, String> {
        if self.cluster.node_count == 0 {
            return Err("no nodes available to schedule pods".into());
        }
        let Some(runner) = self.runners.get(profile) else { return Err("no such profile".into()) };
        let incoming = Incoming::new(&self.cluster, id);
        let index = u32::try_from(profile).unwrap_or(u32::MAX);
        match self.ranks.best(runner, index, &mut self.cluster, &incoming, &mut self.rng) {
            Rank::Best(node) => Ok(node),
            Rank::None(ranked) => Err(evaluate::ranked_failure(&self.cluster, ranked).fit.short()),
            Rank::Unknown => match search(runner, &mut self.cluster, (incoming, None), &mut self.rng, None) {
                Search::On(_, node) => Ok(node),
                Search::Nowhere(_, failure) => Err(failure.fit.short()),
                Search::Error(text) => Err(text),
            },
        }
    }

    /// Takes back what was promised to a workload and not taken.
    pub fn release(&mut self, namespace: &str, workload: &str) {
        let holder = (namespace.to_owned(), workload.to_owned());
        self.promises.waiting.retain(|_, (h, _)| *h != holder);
        let Some((_, left)) = self.promises.held.remove(&holder) else { return };
        for (_, id) in left {
            self.drop_stand_in(id);
        }
    }

    /// Ends promises whose pods did not come.
    pub(super) fn end_promises(&mut self) {
        let now = self.now;
        let ended: Vec<Holder> = self
            .promises
            .held
            .iter()
            .filter(|(_, (made, _))| made.plus(PATIENCE) <= now)
            .map(|(holder, _)| holder.clone())
            .collect();
        for (namespace, workload) in ended {
            self.release(&namespace, &workload);
        }
    }

    fn drop_stand_in(&mut self, id: PodId) {
        self.promises.stand_ins.remove(&id);
        let uid = self.cluster.pods[id].uid.to_string();
        // As if a pod had gone: others may have waited for the room.
        self.pod_delete(&uid);
    }

    /// A stand-in made room for a more important pod: its own pod will look for another place.
    pub(super) fn break_promise(&mut self, id: PodId) {
        let Some(holder) = self.promises.stand_ins.get(&id).cloned() else { return };
        self.take_out(&holder, id);
        self.drop_stand_in(id);
    }

    fn take_out(&mut self, holder: &Holder, id: PodId) {
        if let Some((_, left)) = self.promises.held.get_mut(holder) {
            left.retain(|(_, p)| *p != id);
            if left.is_empty() {
                self.promises.held.remove(holder);
            }
        }
    }

    /// Remembers that a pod belongs to a workload with promises.
    pub(super) fn expect_promise(&mut self, id: PodId, pod: &model::Pod) {
        if self.promises.is_empty() || pod.workload.is_empty() {
            return;
        }
        let holder = (pod.namespace.clone(), pod.workload.clone());
        let Some(podset) = pod.labels.get("kueue.x-k8s.io/podset") else { return };
        if !self.promises.held.contains_key(&holder) {
            return;
        }
        if pod.spec.node_name.is_empty() {
            self.promises.waiting.insert(id, (holder, podset.clone()));
        } else if self.promises.waiting.remove(&id).is_some() || self.binding.is_empty() {
            // Somebody else has bound it.
            let node = self.cluster.pods[id].node;
            let same = |p: &PodId| self.cluster.pods[*p].node == node;
            let Some((_, left)) = self.promises.held.get(&holder) else { return };
            let mine: Vec<PodId> = left.iter().filter(|(s, _)| s == podset).map(|(_, p)| *p).collect();
            let Some(id) = mine.iter().find(|p| same(p)).or(mine.first()).copied() else { return };
            self.break_promise(id);
        }
    }

    /// Forgets a pod that is gone.
    pub(super) fn forget_promise(&mut self, id: PodId) {
        self.promises.waiting.remove(&id);
    }

    /// Whether a place may be promised to a pod.
    pub(super) fn has_promise(&self, id: PodId) -> bool {
        let holder = self.promises.waiting.get(&id).map(|(holder, _)| holder);
        holder.is_some_and(|h| self.promises.held.contains_key(h))
    }

    /// The place that was promised to a pod, taken over from its stand-in; `None` when there is none, or when the pod
    /// is not what was promised for.
    pub(super) fn take_promise(&mut self, id: PodId) -> Option<Outcome> {
        let (holder, podset) = self.promises.waiting.get(&id)?.clone();
        let profile = self.queue.get(id)?.profile as usize;
        let mine: Vec<PodId> = self
            .promises
            .held
            .get(&holder)?
            .1
            .iter()
            .filter(|(s, _)| *s == podset)
            .map(|(_, p)| *p)
            .collect();
        for stand_in in mine {
            let Some(node) = self.cluster.pods[stand_in].node else { continue };
            if !self.cluster.nodes[node].exists {
                self.break_promise(stand_in);
                continue;
            }
            self.cluster.unplace(stand_in);
            let runner = self.runners.get(profile)?;
            let incoming = Incoming::new(&self.cluster, id);
            let cycle = Cycle::pre_filter(runner, &self.cluster, incoming);
            let fits = cycle.status.is_success()
                && cycle.allows(&self.cluster, node)
                && cycle.filter_once(&self.cluster, node).is_success();
            if fits {
                let outcome = Outcome::Placed(node, cycle.state);
                self.take_out(&holder, stand_in);
                self.promises.stand_ins.remove(&stand_in);
                self.cluster.remove_pod(stand_in);
                self.promises.waiting.remove(&id);
                return Some(outcome);
            }
            self.cluster.place(stand_in, node);
        }
        None
    }

    /// Compares what is promised with what stands in for it.
    ///
    /// # Panics
    /// When they differ.
    pub(super) fn check_promises(&self) {
        let mut count = 0;
        for (holder, (_, left)) in &self.promises.held {
            assert!(!left.is_empty(), "{holder:?}: an empty promise");
            for (_, id) in left {
                assert_eq!(self.promises.stand_ins.get(id), Some(holder), "a stand-in of somebody else");
                assert!(self.cluster.pods[*id].node.is_some(), "{holder:?}: a stand-in without a node");
                assert!(self.queue.get(*id).is_none(), "{holder:?}: a stand-in in the queue");
            }
            count += left.len();
        }
        assert_eq!(count, self.promises.stand_ins.len(), "stand-ins without a promise");
    }
}
