//! What an outside is made of: queues, cohorts, flavors, jobs and nodes, as the tests choose them.

use crate::{
    AdmissionCheck, BorrowWithinCohort, ClusterQueue, Cohort, Event, FlavorFungibility, FlavorQuotas,
    LocalQueue, PodSet, PreemptionPolicy, PreemptionRules, QueueingStrategy, ResourceFlavor, ResourceGroup,
    ResourceQuota, StopPolicy, Topology, TopologyRequest, Workload, WorkloadKey, cond,
};
use plimsoll_state::model::{Container, LabelSelector, Node, PodSpec, Resources, StringMap};
use plimsoll_state::time::Time;

pub(super) const FLAVORS: [&str; 2] = ["f0", "f1"];
pub(super) const CHECK: &str = "check";
pub(super) const LEVELS: [&str; 2] = ["rack", "kubernetes.io/hostname"];
pub(super) const NODES: [&str; 4] = ["r1-a", "r1-b", "r2-a", "r2-b"];
/// CPUs of a node.
pub(super) const SIZE: i64 = 4;

/// `withinClusterQueue` by number.
const WITHIN: [PreemptionPolicy; 3] =
    [PreemptionPolicy::Never, PreemptionPolicy::LowerPriority, PreemptionPolicy::LowerOrNewerEqualPriority];
/// `reclaimWithinCohort` by number.
const RECLAIM: [PreemptionPolicy; 3] =
    [PreemptionPolicy::Never, PreemptionPolicy::LowerPriority, PreemptionPolicy::Any];

/// CPUs of one flavor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Quota {
    pub(super) nominal: i64,
    pub(super) borrowing: Option<i64>,
    pub(super) lending: Option<i64>,
}

/// A ClusterQueue, or a Cohort.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spec {
    pub(super) parent: Option<usize>,
    pub(super) quotas: [Quota; 2],
    /// reclaimWithinCohort, withinClusterQueue, borrowWithinCohort.
    pub(super) rules: (u8, u8, bool),
    pub(super) strict: bool,
    pub(super) next_flavor: (bool, bool),
    /// Flavors of the admission check; none means all.
    pub(super) check: Option<Vec<usize>>,
    pub(super) weight: i64,
}

/// What a job asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) queue: usize,
    pub(super) priority: i32,
    pub(super) pods: i32,
    /// Of each pod.
    pub(super) cpus: i64,
    pub(super) fewest: Option<i32>,
    /// Which topology request, with topologies.
    pub(super) topology: usize,
}

fn groups(quotas: &[Quota; 2], limits: bool) -> Vec<ResourceGroup> {
    let flavor = |(name, q): (&&str, &Quota)| FlavorQuotas {
        flavor: (*name).into(),
        resources: vec![ResourceQuota {
            resource: "cpu".into(),
            nominal: q.nominal * 1000,
            borrowing_limit: q.borrowing.filter(|_| limits).map(|b| b * 1000),
            lending_limit: q.lending.filter(|_| limits).map(|l| l * 1000),
        }],
    };
    let flavors = FLAVORS.iter().zip(quotas).map(flavor).collect();
    vec![ResourceGroup { covered: vec!["cpu".into()], flavors }]
}

pub(super) fn cluster_queue(i: usize, s: &Spec, stop_policy: StopPolicy) -> Event {
    let checks = s.check.as_ref().map(|on| {
        (CHECK.to_owned(), on.iter().filter_map(|f| FLAVORS.get(*f)).map(|f| (*f).to_owned()).collect())
    });
    Event::ClusterQueueUpsert(Box::new(ClusterQueue {
        name: format!("c{i}"),
        cohort: s.parent.map_or(String::new(), |p| format!("k{p}")),
        resource_groups: groups(&s.quotas, s.parent.is_some()),
        strategy: if s.strict { QueueingStrategy::StrictFifo } else { QueueingStrategy::BestEffortFifo },
        namespace_selector: Some(LabelSelector::default()),
        fungibility: FlavorFungibility {
            try_next_when_can_borrow: s.next_flavor.0,
            try_next_when_can_preempt: s.next_flavor.1,
            ..FlavorFungibility::default()
        },
        preemption: PreemptionRules {
            reclaim_within_cohort: RECLAIM[usize::from(s.rules.0)],
            within_cluster_queue: WITHIN[usize::from(s.rules.1)],
            borrow_within_cohort: BorrowWithinCohort {
                lower_priority: s.rules.2 && s.rules.0 != 0,
                max_priority_threshold: None,
            },
        },
        stop_policy,
        admission_checks: checks.into_iter().collect(),
        fair_weight_nano: s.weight * 1_000_000_000,
        ..ClusterQueue::default()
    }))
}

pub(super) fn local_queue(i: usize, stop_policy: StopPolicy) -> Event {
    Event::LocalQueueUpsert(Box::new(LocalQueue {
        namespace: "n".into(),
        name: format!("l{i}"),
        cluster_queue: format!("c{i}"),
        stop_policy,
        fair_weight_nano: 1_000_000_000,
        ..LocalQueue::default()
    }))
}

pub(super) fn cohort(i: usize, s: &Spec) -> Event {
    Event::CohortUpsert(Box::new(Cohort {
        name: format!("k{i}"),
        parent: s.parent.map_or(String::new(), |p| format!("k{p}")),
        resource_groups: groups(&s.quotas, s.parent.is_some()),
        fair_weight_nano: s.weight * 1_000_000_000,
    }))
}

pub(super) fn flavor(i: usize, topologies: bool) -> Event {
    let topology = if topologies && i == 0 { "t".to_owned() } else { String::new() };
    let name = FLAVORS[i].to_owned();
    Event::ResourceFlavorUpsert(Box::new(ResourceFlavor { name, topology, ..ResourceFlavor::default() }))
}

/// What is there whatever happens.
pub(super) fn fixed() -> Vec<Event> {
    vec![
        Event::NamespaceUpsert("n".into(), StringMap::new()),
        Event::TopologyUpsert(Box::new(Topology {
            name: "t".into(),
            levels: LEVELS.iter().map(|l| (*l).into()).collect(),
        })),
    ]
}

/// The check; with topologies it is one after which places are found.
pub(super) fn check(topologies: bool, active: bool) -> Event {
    let controller = if topologies { "kueue.x-k8s.io/provisioning-request" } else { "other" };
    Event::AdmissionCheckUpsert(Box::new(AdmissionCheck {
        name: CHECK.into(),
        controller: controller.into(),
        active,
    }))
}

pub(super) fn node(name: &str, cpus: i64, ready: bool, now: Time) -> Node {
    let rack = name.split('-').next().unwrap_or(name);
    let mut n = Node {
        name: name.into(),
        ready,
        ready_since: Some(now),
        allocatable: [("cpu".to_owned(), cpus * 1000), ("pods".to_owned(), 20)].into(),
        ..Node::default()
    };
    for (key, value) in LEVELS.iter().zip([rack, name]) {
        n.labels.insert((*key).into(), value.into());
    }
    n
}

/// With two flavors of which one has a topology, who asks for none gets the other.
fn topology(kind: usize) -> TopologyRequest {
    let rack = || Some(LEVELS[0].to_owned());
    let host = || Some(LEVELS[1].to_owned());
    let plain = TopologyRequest::default();
    match kind {
        0 | 1 => TopologyRequest { unconstrained: true, ..plain },
        2 => TopologyRequest { required: rack(), ..plain },
        3 => TopologyRequest { preferred: host(), ..plain },
        _ => TopologyRequest { preferred: rack(), ..plain },
    }
}

pub(super) fn workload(n: usize, ask: Ask, topologies: bool, now: Time) -> Workload {
    let requests: Resources = [("cpu".to_owned(), ask.cpus * 1000)].into();
    let container = Container { requests, ..Container::default() };
    Workload {
        key: WorkloadKey { namespace: "n".into(), name: format!("w{n}") },
        uid: format!("uid-{n}"),
        version: 1,
        generation: 1,
        creation: now.truncate_to_second(),
        priority: ask.priority,
        queue: format!("l{}", ask.queue),
        active: true,
        pod_sets: vec![PodSet {
            name: "main".into(),
            count: ask.pods,
            min_count: ask.fewest.filter(|f| *f < ask.pods),
            spec: PodSpec { containers: vec![container], ..PodSpec::default() },
            topology: topologies.then(|| topology(ask.topology)),
            ..PodSet::default()
        }],
        ..Workload::default()
    }
}

/// Whether a workload holds quota.
pub(super) fn holds(w: &Workload) -> bool {
    let s = &w.status;
    // What is deactivated holds nothing (Kueue).
    w.active
        && s.admission.is_some()
        && (s.is_true(cond::QUOTA_RESERVED) || s.is_true(cond::ADMITTED))
        && !s.is_true(cond::FINISHED)
}
