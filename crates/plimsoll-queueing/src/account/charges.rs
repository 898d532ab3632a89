//! What a workload asks for and what it holds, per podset and column.

use crate::Queueing;
use crate::amount::Amount;
use crate::ids::{FlavorResource, WorkloadId};
use crate::model::{PodSet, Workload};
use crate::pod_sets::{
    FlavorScores, PodSetResources, SchedulingHash, has_namespaced_volumes, looks_at_pods, scheduling_spec,
};
use crate::policy::Ruling;
use crate::quota::add_usage;
use crate::requests;
use crate::state::WorkloadRequest;
use plimsoll_state::model::StringMap;
use plimsoll_state::model::requests::{PodResourcesOptions, pod_requests};

impl Queueing {
    /// Sums requests per column, for podsets with flavors.
    pub(crate) fn usage_of(&mut self, total_requests: &[PodSetResources]) -> Vec<(FlavorResource, Amount)> {
        let mut usage: Vec<(FlavorResource, Amount)> = Vec::new();
        for t in total_requests {
            for &(res, amount) in &t.requests {
                let Some((_, flavor)) = t.flavors.iter().find(|(r, _)| *r == res) else { continue };
                let fr = self.ids.pair(*flavor, res);
                add_usage(&mut usage, fr, Amount(amount));
            }
        }
        usage
    }

    /// What the admission of a workload says it holds, less what reclaimable pods gave back.
    pub(crate) fn resources_held(&mut self, id: WorkloadId) -> Vec<PodSetResources> {
        let Some(wl) = self.workloads.get(id) else { return Vec::new() };
        let Some(admission) = wl.status_held().and_then(|s| s.admission.as_ref()) else { return Vec::new() };
        let limits = requests::limits_of(&self.objects.limit_ranges, &wl.obj.key.namespace);
        let ids = &mut self.ids;
        let mut total_requests = Vec::with_capacity(admission.assignments.len());
        for psa in &admission.assignments {
            let mut requests: Vec<_> = psa.resource_usage.iter().map(|(n, v)| (ids.resource(n), v)).collect();
            ids.sort_by_walk_key(&mut requests);
            let flavors = psa.flavors.iter().map(|(r, f)| (ids.resource(r), ids.flavor(f))).collect();
            let places = psa.topology.as_ref().map(|t| t.domains.clone()).unwrap_or_default();
            let spec = wl.obj.pod_sets.iter().find(|p| p.name == psa.name).map(|p| &p.spec);
            let one = spec.filter(|_| !places.is_empty() || psa.delayed.is_some()).map(|s| {
                let mut s = s.clone();
                requests::adjust(&mut s, &limits, &self.objects.runtime_classes);
                crate::tas::amounts(ids, &pod_requests(&s, &PodResourcesOptions::default()))
            });
            let one = one.unwrap_or_default();
            let total = PodSetResources { count: psa.count, requests, flavors, one, places };
            let left = count_left(&wl.obj, &psa.name, self.config.gates.reclaimable_pods);
            total_requests.push(if left < total.count { total.scaled_to(left) } else { total });
        }
        total_requests
    }

    /// Computes anew what a waiting workload asks for.
    pub(crate) fn refresh_request(&mut self, id: WorkloadId) {
        let (limits, adjusted) = self.adjusted_specs(id);
        let devices = self.device_charge(id, &adjusted);
        let Some(wl) = self.workloads.get(id) else { return };
        let obj = &wl.obj;
        let mut total_requests = Vec::with_capacity(obj.pod_sets.len());
        let mut scheduling_hash = SchedulingHash {
            priority: obj.effective_priority(),
            replaces: obj.replaces.clone(),
            allowed_flavors: obj.allowed_flavors.clone(),
            veto: None,
            flavor_scores: FlavorScores::default(),
            max_execution_seconds: obj.max_execution_seconds,
            preemptor: self.preemptor_key(wl),
            namespace: None,
            pod_sets: Vec::new(),
        };
        let mut specs = Vec::with_capacity(obj.pod_sets.len());
        for (i, (ps, spec)) in obj.pod_sets.iter().zip(adjusted).enumerate() {
            let pod = pod_requests(&spec, &PodResourcesOptions::default());
            let mut effective = requests::effective(
                &pod,
                &self.config.exclude_resource_prefixes,
                &self.config.transformations,
            );
            crate::dra::apply(&devices, i, &mut effective);
            let count = count_left(obj, &ps.name, self.config.gates.reclaimable_pods);
            let ids = &mut self.ids;
            let mut list: Vec<_> = effective
                .iter()
                .map(|(n, v)| (ids.resource(n), v.saturating_mul(i64::from(count))))
                .collect();
            ids.sort_by_walk_key(&mut list);
            let like = PodSet {
                name: ps.name.clone(),
                count,
                min_count: ps.min_count,
                spec: scheduling_spec(&spec),
                labels: if looks_at_pods(&spec) { ps.labels.clone() } else { StringMap::new() },
                topology: ps.topology.clone(),
            };
            if looks_at_pods(&spec) || has_namespaced_volumes(&spec) {
                scheduling_hash.namespace = Some(obj.key.namespace.clone());
            }
            let one = crate::tas::amounts(ids, &pod);
            let total =
                PodSetResources { count, requests: list, flavors: Vec::new(), one, places: Vec::new() };
            scheduling_hash.pod_sets.push((like, total.clone()));
            total_requests.push(total);
            specs.push(spec);
        }
        let invalid = requests::validate(specs.iter(), &limits).map(String::into_boxed_str);
        let as_written = requests::validate(obj.pod_sets.iter().map(|p| &p.spec), &limits);
        let ruling = self.config.policy.as_ref().map(|policy| {
            let requests = crate::policy::requested(&self.ids, &total_requests);
            policy.rule(obj, &requests)
        });
        let ruling = ruling.filter(|ruling| *ruling != Ruling::default()).map(Box::new);
        let flavor_scores = self.flavor_scores(obj, &total_requests);
        scheduling_hash.veto = ruling.as_ref().and_then(|ruling| ruling.veto.clone());
        scheduling_hash.flavor_scores.clone_from(&flavor_scores);
        let scheduling_hash = self.scheduling_hashes.take(scheduling_hash);
        if let Some(old) = self.wl(id).map(|w| w.scheduling_hash()) {
            self.scheduling_hashes.give_back(old);
        }
        if let Some(wl) = self.wl_mut(id) {
            wl.set_request(WorkloadRequest {
                total_requests,
                scheduling_hash,
                invalid,
                invalid_as_written: as_written.map(String::into_boxed_str),
                ruling,
                flavor_scores,
                devices,
            });
        }
    }
}

/// Pods of a podset that still need quota.
fn count_left(wl: &Workload, pod_set: &str, reclaim: bool) -> i32 {
    let count = wl.pod_sets.iter().find(|p| p.name == pod_set).map_or(0, |p| p.count);
    let done = wl.status.reclaimable.iter().find(|r| r.name == pod_set && reclaim).map_or(0, |r| r.count);
    count.saturating_sub(done.min(count))
}
