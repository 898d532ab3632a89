//! Gauges, read off the state.

use std::collections::{BTreeMap, BTreeSet};

use super::observations::Place;
use super::table::Row;
use super::{MetricSample, MetricValue};
use crate::Queueing;
use crate::amount::Amount;
use crate::cond;
use crate::config::LabelSource;
use crate::ids::{ClusterQueueId, FlavorResource, LocalQueueId, WorkloadId};
use crate::model::Workload;
use crate::pending::QueuePosition;
use crate::phase::Phase;
use crate::state::WorkloadInfo;
use crate::tree::{NodeId, Share};

/// Values of labels, in the row's order, and the number.
type Samples = Vec<(Vec<String>, f64)>;

/// An amount in the unit of its resource: cores for cpu.
fn unit(resource: &str, amount: Amount) -> f64 {
    if resource == "cpu" { amount.0 as f64 / 1000.0 } else { amount.0 as f64 }
}

/// A weighted share, which is not rounded. An infinite one is NaN for ClusterQueues, as in Kueue.
fn share_of_queue(s: &Share) -> f64 {
    if s.is_infinite() { f64::NAN } else { s.precise() }
}

/// Reads gauges off the state.
pub(super) struct Gauges<'a>(pub(super) &'a Queueing);

impl Gauges<'_> {
    /// All samples of a gauge.
    pub(super) fn gauge(&self, row: &Row) -> Vec<MetricSample> {
        let mut samples = match row.name.strip_prefix("kueue_").unwrap_or(row.name) {
            n if n.starts_with("local_queue_") => self.local_gauge(n),
            n if n.starts_with("cohort_") => self.cohort_gauge(n),
            n => self.queue_gauge(n),
        };
        samples.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let custom = &self.0.metrics.custom;
        let names = custom.all_names(row);
        let complete = |mut values: Vec<String>| {
            let of_workloads = values.split_off(row.labels.len().min(values.len()));
            let of_object = custom.of_sample(row, &values);
            names.iter().cloned().zip(values.into_iter().chain(of_object).chain(of_workloads)).collect()
        };
        samples
            .into_iter()
            .map(|(values, v)| MetricSample { labels: complete(values), value: MetricValue::Number(v) })
            .collect()
    }

    fn queues(&self) -> impl Iterator<Item = (ClusterQueueId, &str)> {
        self.0
            .cluster_queues
            .ids()
            .filter(|&c| self.0.cq(c).spec.is_some())
            .map(|c| (c, self.0.cq(c).name.as_str()))
    }

    /// ClusterQueues that have a LocalQueue.
    fn used_queues(&self) -> impl Iterator<Item = Vec<String>> {
        let exists = |lq: &LocalQueueId| self.0.lq(*lq).spec.is_some();
        let used = self.queues().filter(move |(id, _)| self.0.cq(*id).locals.iter().any(exists));
        used.map(|(_, cq)| vec![cq.to_owned()])
    }

    fn locals(&self) -> impl Iterator<Item = (LocalQueueId, Vec<String>)> {
        self.0
            .local_queues
            .ids()
            .filter(|&l| self.0.lq(l).spec.is_some())
            .map(|l| (l, vec![self.0.lq(l).name.clone(), self.0.lq(l).namespace.clone()]))
    }

    fn queue_gauge(&self, name: &str) -> Samples {
        match name {
            "unadmitted_workloads" => self.unadmitted(|lq| Some(vec![self.queue_of(lq)?.to_owned()])),
            "finished_workloads" => self.finished(self.used_queues(), |w| {
                let a = w.status.admission.as_ref().map(|a| a.cluster_queue.clone());
                let lq = self.0.local_queues.find(&(w.key.namespace.clone(), w.queue.clone()));
                let cq = lq.and_then(|l| self.0.lq(l).cq).map(|c| self.0.cq(c).name.clone());
                Some(vec![a.or(cq)?])
            }),
            _ => self.queues().flat_map(|(id, cq)| self.one_queue(name, id, cq)).collect(),
        }
    }

    fn one_queue(&self, name: &str, id: ClusterQueueId, cq: &str) -> Samples {
        let (queue, custom) = (self.0.cq(id), &self.0.metrics.custom);
        let one = |v: f64| vec![(vec![cq.to_owned()], v)];
        let by_status = |active: usize, rest: usize| {
            let sample = |s: &str, n: usize| (vec![cq.to_owned(), s.to_owned()], n as f64);
            vec![sample("active", active), sample("inadmissible", rest)]
        };
        match name {
            "pending_workloads" if custom.by_workload() => {
                let waiting = queue.pending.ids();
                self.by_workload(waiting, |w| {
                    let in_turn =
                        queue.is_active() && queue.pending.position(w) == Some(QueuePosition::Active);
                    vec![cq.to_owned(), if in_turn { "active" } else { "inadmissible" }.to_owned()]
                })
            }
            "admitted_active_workloads" if custom.by_workload() => {
                let admitted = self.admitted(|_, holder| holder == id);
                self.by_workload(admitted, |_| vec![cq.to_owned()])
            }
            "pending_workloads" => {
                let active = if queue.is_active() { queue.pending.in_turn() } else { 0 };
                by_status(active, queue.pending.len() - active)
            }
            "pending_scheduling_hashes" if self.0.config.gates.equivalence_hashing => {
                let (active, inadmissible) = queue.pending.scheduling_hashes(queue.is_active());
                by_status(active, inadmissible)
            }
            "admission_cycle_preemption_skips" => one(f64::from(queue.skips)),
            "reserving_active_workloads" => one(self.0.quota.count_at(id) as f64),
            "admitted_active_workloads" => one(f64::from(queue.admitted)),
            "cluster_queue_status" => {
                let deleting = queue.spec.as_ref().is_some_and(|s| s.deleting);
                let now = match (deleting, queue.is_active()) {
                    (true, _) => "terminating",
                    (false, true) => "active",
                    (false, false) => "pending",
                };
                let all = ["pending", "active", "terminating"];
                all.iter().map(|s| (vec![cq.into(), (*s).into()], f64::from(u8::from(*s == now)))).collect()
            }
            "cluster_queue_info" => {
                let (parent, root) = self.0.above(queue.node);
                vec![(vec![cq.into(), parent, root], 1.0)]
            }
            "cluster_queue_resource_pending" => self.asked_for(id, cq),
            "cluster_queue_weighted_share" => self.queue_share(id, cq),
            n if n.starts_with("cluster_queue_") => self.quota_gauge(n, id, cq),
            _ => Vec::new(),
        }
    }

    fn queue_share(&self, id: ClusterQueueId, cq: &str) -> Samples {
        let Some(node) = self.0.cq(id).node.filter(|_| self.0.config.fair_sharing.is_some()) else {
            return Vec::new();
        };
        vec![(vec![cq.to_owned(), self.0.above(Some(node)).0], share_of_queue(&self.0.share(node)))]
    }

    fn quota_gauge(&self, name: &str, id: ClusterQueueId, cq: &str) -> Samples {
        let Some(node) = self.0.cq(id).node else { return Vec::new() };
        let cohort = self.0.above(Some(node)).0;
        let value = |resource: &str, fr: FlavorResource| {
            let quota = self.0.tree.quota(node, fr);
            // One that is not set bounds nothing.
            let limit = |limit: Option<Amount>| limit.map_or(f64::INFINITY, |l| unit(resource, l));
            Some(match name {
                "cluster_queue_nominal_quota" => unit(resource, quota.nominal),
                "cluster_queue_borrowing_limit" => limit(quota.borrowing),
                "cluster_queue_lending_limit" => limit(quota.lending),
                "cluster_queue_resource_reservation" => unit(resource, self.0.tree.usage(node, fr)),
                "cluster_queue_resource_usage" => {
                    let used = self.0.cq(id).admitted_usage.get(&fr).copied();
                    unit(resource, used.unwrap_or_default().amount())
                }
                _ => return None,
            })
        };
        self.0
            .columns_of(id)
            .filter_map(|(f, r, fr)| {
                Some((vec![cohort.clone(), cq.to_owned(), f.to_string(), r.to_string()], value(r, fr)?))
            })
            .collect()
    }

    fn asked_for(&self, id: ClusterQueueId, cq: &str) -> Samples {
        // Resources that nobody asks for have a sample, too.
        let mut sums: BTreeMap<&str, i64> = self.0.columns_of(id).map(|(_, r, _)| (&**r, 0)).collect();
        for w in self.0.cq(id).pending.ids().filter_map(|w| self.0.wl(w)) {
            for &(res, v) in w.total_requests().iter().flat_map(|t| &t.requests) {
                let sum = sums.entry(self.0.ids.resource_name(res)).or_insert(0);
                *sum = sum.saturating_add(v);
            }
        }
        sums.into_iter().map(|(r, v)| (vec![cq.to_owned(), r.to_owned()], unit(r, Amount(v)))).collect()
    }

    fn local_gauge(&self, name: &str) -> Samples {
        let of = |id: LocalQueueId| {
            let l = self.0.lq(id);
            vec![l.name.clone(), l.namespace.clone()]
        };
        match name {
            "local_queue_unadmitted_workloads" => self.unadmitted(|l| {
                let cq = self.queue_of(l)?.to_owned();
                Some(of(l).into_iter().chain([cq]).collect())
            }),
            "local_queue_finished_workloads" => self.finished(std::iter::empty(), |w| {
                let key = (w.key.namespace.clone(), w.queue.clone());
                self.0.local_queues.find(&key).filter(|&l| self.0.lq(l).spec.is_some()).map(of)
            }),
            "local_queue_pending_workloads" => self.local_pending(),
            _ => self.locals().flat_map(|(id, labels)| self.one_local(name, id, &labels)).collect(),
        }
    }

    /// The ClusterQueue that a LocalQueue names; `None`: there is no such LocalQueue.
    fn queue_of(&self, id: LocalQueueId) -> Option<&str> {
        let lq = self.0.lq(id);
        lq.spec.as_ref().and(lq.cq).map(|cq| self.0.cq(cq).name.as_str())
    }

    fn local_pending(&self) -> Samples {
        let mut active: BTreeMap<LocalQueueId, usize> = BTreeMap::new();
        for (id, _) in self.queues().filter(|(id, _)| self.0.cq(*id).is_active()) {
            self.0.cq(id).pending.count_in_turn(&mut active);
        }
        let mut out = Vec::new();
        for (id, labels) in self.locals() {
            let turn = active.get(&id).copied().unwrap_or(0);
            let all = usize::try_from(self.0.lq(id).pending).unwrap_or(0);
            for (status, n) in [("active", turn), ("inadmissible", all.saturating_sub(turn))] {
                let mut labels = labels.clone();
                labels.push(status.into());
                out.push((labels, n as f64));
            }
        }
        out
    }

    fn one_local(&self, name: &str, id: LocalQueueId, labels: &[String]) -> Samples {
        let lq = self.0.lq(id);
        let with = |more: &[&str], v: f64| {
            let mut all = labels.to_vec();
            all.extend(more.iter().map(|s| (*s).to_owned()));
            (all, v)
        };
        match name {
            "local_queue_reserving_active_workloads" => vec![with(&[], f64::from(lq.reserving))],
            "local_queue_admitted_active_workloads" if self.0.metrics.custom.by_workload() => {
                let admitted = self.admitted(|w, _| self.0.wl(w).is_some_and(|w| w.lq() == id));
                self.by_workload(admitted, |_| labels.to_vec())
            }
            "local_queue_admitted_active_workloads" => vec![with(&[], f64::from(lq.admitted))],
            "local_queue_status" => {
                let status = self.0.local_queue_status(id);
                let now = match status.and_then(|s| s.active) {
                    Some((true, ..)) => "True",
                    Some((false, ..)) => "False",
                    None => "Unknown",
                };
                ["True", "False", "Unknown"].map(|s| with(&[s], f64::from(u8::from(s == now)))).to_vec()
            }
            "local_queue_admission_fair_sharing_usage" => {
                let cq = lq.cq.filter(|_| lq.tracks_consumed).map(|c| self.0.cq(c).name.as_str());
                cq.map(|cq| with(&[cq], self.0.local_usage(id))).into_iter().collect()
            }
            "local_queue_resource_reservation" | "local_queue_resource_usage" => {
                let reserved = name.ends_with("reservation");
                let metrics = if reserved { &lq.reserved_usage } else { &lq.admitted_usage };
                let columns = lq.cq.into_iter().flat_map(|c| self.0.columns_of(c));
                columns
                    .map(|(f, r, fr)| {
                        with(&[f, r], unit(r, metrics.get(&fr).copied().unwrap_or_default().amount()))
                    })
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    fn cohort_gauge(&self, name: &str) -> Samples {
        if name == "cohort_subtree_resource_reservations" {
            return self.subtree_reservations();
        }
        let cohorts = self.0.tree.nodes().filter(|(_, n)| !n.leaf);
        cohorts.flat_map(|(n, node)| self.one_cohort(name, n, &node.name)).collect()
    }

    fn one_cohort(&self, name: &str, n: NodeId, cohort: &str) -> Samples {
        match name {
            "cohort_info" => {
                let (parent, root) = self.0.above(Some(n));
                vec![(vec![cohort.to_owned(), parent, root], 1.0)]
            }
            "cohort_weighted_share" if self.0.config.fair_sharing.is_some() => {
                vec![(vec![cohort.to_owned()], self.0.share(n).precise())]
            }
            "cohort_subtree_quota" if !self.0.objects.cleared_cohorts.contains(cohort) => {
                let columns =
                    FlavorResource::first(self.0.tree.columns()).filter(|&fr| self.0.tree.present(n, fr));
                columns
                    .filter_map(|fr| self.subtree_sample(cohort, fr, self.0.tree.subtree_quota(n, fr)))
                    .collect()
            }
            "cohort_subtree_admitted_active_workloads"
                if !self.0.objects.uncounted_cohorts.contains(cohort) =>
            {
                let below = |c: &ClusterQueueId| {
                    self.0.cq(*c).node.is_some_and(|q| self.0.tree.ancestors(q).any(|a| a == n))
                };
                let admitted: i32 =
                    self.queues().map(|(c, _)| c).filter(below).map(|c| self.0.cq(c).admitted).sum();
                let of_queue =
                    |c| self.0.metrics.custom.values(LabelSource::ClusterQueue, &self.0.cq(c).name);
                let mut all: BTreeSet<Vec<String>> =
                    self.queues().map(|(c, _)| c).filter(below).map(of_queue).collect();
                if all.is_empty() {
                    all.insert(self.0.metrics.custom.values(LabelSource::ClusterQueue, ""));
                }
                let sample = |custom: Vec<String>| {
                    (std::iter::once(cohort.to_owned()).chain(custom).collect(), f64::from(admitted))
                };
                all.into_iter().map(sample).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Admitted workloads that hold quota.
    fn admitted(
        &self,
        wanted: impl Fn(WorkloadId, ClusterQueueId) -> bool,
    ) -> impl Iterator<Item = WorkloadId> {
        let held = self.0.quota.iter().map(|(_, r)| r).filter(move |r| wanted(r.owner, r.place));
        let is_admitted =
            |w: &WorkloadId| self.0.wl(*w).is_some_and(|w| Phase::of(&w.obj.status) == Phase::Admitted);
        held.map(|r| r.owner).filter(is_admitted)
    }

    /// Counts workloads by these values and those of their custom labels.
    fn by_workload(
        &self,
        workloads: impl Iterator<Item = WorkloadId>,
        own: impl Fn(WorkloadId) -> Vec<String>,
    ) -> Samples {
        let mut sums: BTreeMap<Vec<String>, usize> = BTreeMap::new();
        for (id, wl) in workloads.filter_map(|id| Some((id, self.0.wl(id)?))) {
            let key = own(id).into_iter().chain(wl.obj.metric_labels.iter().cloned()).collect();
            *sums.entry(key).or_insert(0) += 1;
        }
        sums.into_iter().map(|(k, n)| (k, n as f64)).collect()
    }

    /// What all ClusterQueues below each cohort reserve, also within quota that they don't lend (Kueue `cohort_metrics.go`).
    fn subtree_reservations(&self) -> Samples {
        let tree = &self.0.tree;
        let mut sums: BTreeMap<(NodeId, FlavorResource), Amount> = BTreeMap::new();
        for (n, _) in tree.nodes().filter(|(_, node)| node.leaf) {
            for fr in FlavorResource::first(tree.columns()).filter(|&fr| tree.usage(n, fr).0 > 0) {
                for above in tree.ancestors(n) {
                    let sum = sums.entry((above, fr)).or_default();
                    *sum = sum.add(tree.usage(n, fr));
                }
            }
        }
        sums.into_iter()
            .filter_map(|((n, fr), sum)| self.subtree_sample(&tree.node(n).name, fr, sum))
            .collect()
    }

    /// An amount of a cohort. Kueue has no samples of amounts that are 0.
    fn subtree_sample(&self, cohort: &str, fr: FlavorResource, amount: Amount) -> Option<(Vec<String>, f64)> {
        let (f, r) = self.0.ids.parts(fr);
        let resource = self.0.ids.resource_name(r);
        let labels = [cohort, self.0.ids.flavor_name(f), resource].map(str::to_owned);
        (amount.0 > 0).then(|| (labels.to_vec(), unit(resource, amount)))
    }

    /// Counts workloads without an admission by why.
    fn unadmitted(&self, labels: impl Fn(LocalQueueId) -> Option<Vec<String>>) -> Samples {
        let mut sums: BTreeMap<Vec<String>, usize> = BTreeMap::new();
        // The parent counts for its variants (Kueue `unadmitted_workloads.go`, `getUnadmittedWorkloadStatus`).
        for wl in self.0.workloads.iter().map(|(_, w)| w).filter(|w| w.obj.variant_of.is_empty()) {
            let s = &wl.obj.status;
            let (reason, cause) = match Phase::of(s) {
                Phase::Pending => {
                    let c = s.condition(cond::QUOTA_RESERVED).map_or("PendingEvaluation", |c| &c.reason);
                    ("NoReservation", c)
                }
                Phase::Reserved => {
                    (s.condition(cond::ADMITTED).map_or("NoReservation", |c| c.reason.as_str()), "")
                }
                Phase::Admitted | Phase::Finished => continue,
            };
            let Some(mut key) = labels(wl.lq()) else { continue };
            key.extend([reason.to_owned(), cause.to_owned()]);
            *sums.entry(key).or_insert(0) += 1;
        }
        sums.into_iter().map(|(k, n)| (k, n as f64)).collect()
    }

    /// Counts finished workloads. Those that `always` has are counted where they are 0, too.
    fn finished(
        &self,
        always: impl Iterator<Item = Vec<String>>,
        labels: impl Fn(&Workload) -> Option<Vec<String>>,
    ) -> Samples {
        let mut sums: BTreeMap<Vec<String>, usize> = always.map(|key| (key, 0)).collect();
        let finished =
            |w: &&WorkloadInfo| w.obj.variant_of.is_empty() && Phase::of(&w.obj.status) == Phase::Finished;
        for wl in self.0.workloads.iter().map(|(_, w)| w).filter(finished) {
            if let Some(key) = labels(&wl.obj) {
                *sums.entry(key).or_insert(0) += 1;
            }
        }
        sums.into_iter().map(|(k, n)| (k, n as f64)).collect()
    }
}

impl Queueing {
    /// Names of the parent and of the root above a node; empty without a parent.
    pub(super) fn above(&self, node: Option<NodeId>) -> (String, String) {
        let Some(node) = node else { return Default::default() };
        let parent = self.tree.node(node).parent.map(|p| self.tree.node(p).name.clone());
        let root = self.tree.root(node);
        let is_cohort = !self.tree.node(root).leaf;
        let root = if is_cohort { self.tree.node(root).name.clone() } else { String::new() };
        (parent.unwrap_or_default(), root)
    }

    /// Where the counts of a workload go; `cq` when it is known better than by its LocalQueue.
    pub(crate) fn place_of(&self, id: WorkloadId, cq: Option<ClusterQueueId>) -> Place {
        let Some(wl) = self.wl(id) else { return Place::default() };
        let lq = self.lq(wl.lq());
        let cq = cq.or(lq.cq);
        let node = cq.and_then(|c| self.cq(c).node).filter(|_| !self.tree_dirty);
        Place {
            cluster_queue: cq.map_or(String::new(), |c| self.cq(c).name.clone()),
            cohorts: node.map_or(Vec::new(), |n| {
                self.tree.ancestors(n).map(|a| self.tree.node(a).name.clone()).collect()
            }),
            local_queue: (lq.namespace.clone(), lq.name.clone()),
            class: wl.obj.priority_class.clone(),
            custom: wl.obj.metric_labels.clone(),
        }
    }
}
