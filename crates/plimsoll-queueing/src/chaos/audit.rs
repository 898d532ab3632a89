//! What must hold whatever happens, by the objects alone.

use std::collections::BTreeMap;

use super::objects::{FLAVORS, Quota, Spec, holds};
use super::world::World;
use crate::Workload;

/// CPUs that something has more than it may have (not above 0: it keeps to its limits), by its name and flavor.
pub(super) type Excess = BTreeMap<(String, usize), i64>;

/// Pods of a workload that still need quota.
fn pods(w: &Workload, admitted: i32) -> i64 {
    let done: i32 = w.status.reclaimable.iter().map(|r| r.count).sum();
    i64::from(admitted.min(w.pod_sets[0].count - done))
}

/// CPUs that a workload holds: of which queue, by flavor.
fn held(w: &Workload) -> Option<(&str, usize, i64)> {
    let a = w.status.admission.as_ref().filter(|_| holds(w))?;
    let p = a.assignments.first()?;
    let flavor = FLAVORS.iter().position(|f| p.flavors.iter().any(|(_, name)| name == f))?;
    let each = p.resource_usage.get("cpu")? / i64::from(p.count.max(1)) / 1000;
    Some((&a.cluster_queue, flavor, each * pods(w, p.count)))
}

fn held_by(world: &World, queue: usize, flavor: usize) -> i64 {
    let name = format!("c{queue}");
    let all = world.jobs.values().filter_map(held);
    all.filter(|(q, f, _)| *q == name && *f == flavor).map(|(_, _, n)| n).sum()
}

fn is_in(spec: &Option<Spec>, cohort: usize) -> bool {
    spec.as_ref().is_some_and(|s| s.parent == Some(cohort))
}

/// Quota and usage of a cohort with everything below (Kueue KEP-79).
fn cohort(world: &World, k: usize, flavor: usize) -> (i64, i64) {
    let own = world.cohorts[k].as_ref().map_or(Quota::default(), |s| s.quotas[flavor]);
    let (mut quota, mut used) = (own.nominal, 0);
    let mut add = |(q, u): (i64, i64), lending: Option<i64>| {
        let local = lending.map_or(0, |l| (q - l).max(0));
        quota += q - local;
        used += (u - local).max(0);
    };
    for (i, q) in world.queues.iter().enumerate().filter(|(_, q)| is_in(&q.spec, k)) {
        let Some(s) = &q.spec else { continue };
        add((s.quotas[flavor].nominal, held_by(world, i, flavor)), s.quotas[flavor].lending);
    }
    for (i, s) in world.cohorts.iter().enumerate().filter(|(_, s)| is_in(s, k)) {
        let Some(s) = s else { continue };
        add(cohort(world, i, flavor), s.quotas[flavor].lending);
    }
    (quota, used)
}

/// By how much anything exceeds what it may have.
pub(super) fn excess(world: &World) -> Excess {
    let mut out = Excess::new();
    for flavor in 0..FLAVORS.len() {
        for (i, q) in world.queues.iter().enumerate() {
            let Some(s) = &q.spec else { continue };
            let quota = s.quotas[flavor];
            let most = if s.parent.is_some() { quota.borrowing } else { Some(0) };
            let Some(most) = most else { continue };
            out.insert((format!("c{i}"), flavor), held_by(world, i, flavor) - quota.nominal - most);
        }
        for (i, s) in world.cohorts.iter().enumerate() {
            let (quota, used) = cohort(world, i, flavor);
            let has_parent = s.as_ref().is_some_and(|s| s.parent.is_some());
            let limit = s.as_ref().and_then(|s| s.quotas[flavor].borrowing);
            let Some(most) = (if has_parent { limit } else { Some(0) }) else { continue };
            out.insert((format!("k{i}"), flavor), used - quota - most);
        }
    }
    for (name, used) in on_nodes(world) {
        let cpus = world.nodes.get(&name).map_or(0, |(cpus, _)| *cpus);
        out.insert((name, 0), used - cpus);
    }
    out
}

/// CPUs that workloads were given on each node.
fn on_nodes(world: &World) -> BTreeMap<String, i64> {
    let mut out = BTreeMap::new();
    for w in world.jobs.values().filter(|w| holds(w)) {
        let each = w.pod_sets[0].spec.containers[0].requests["cpu"] / 1000;
        let assigned = w.status.admission.iter().flat_map(|a| &a.assignments);
        for (values, n) in assigned.filter_map(|a| a.topology.as_ref()).flat_map(|t| &t.domains) {
            let host = values.last().cloned().unwrap_or_default();
            *out.entry(host).or_insert(0) += each * i64::from(*n);
        }
    }
    out
}

/// The engine's books say what the objects say, once it has seen everything.
pub(super) fn agree(world: &World) {
    let Some(q) = world.engine.queueing() else { return };
    for node in q.quota_tree() {
        let used = |flavor: usize| {
            let cell = node.cells.iter().find(|c| c.flavor == FLAVORS[flavor]);
            cell.map_or(0, |c| c.usage / 1000)
        };
        let number = node.name[1..].parse::<usize>().unwrap_or(0);
        for flavor in 0..FLAVORS.len() {
            let want = if node.cluster_queue {
                held_by(world, number, flavor)
            } else {
                cohort(world, number, flavor).1
            };
            assert_eq!(used(flavor), want, "{} of {flavor}: {}", node.name, dump(world));
        }
    }
}

/// Everything about the workloads, for messages.
pub(super) fn dump(world: &World) -> String {
    let mut out = String::new();
    for w in world.jobs.values() {
        let s = &w.status;
        out.push_str(&format!(
            "\n{} {} p{} {} pods of {:?} min {:?} active {} v{}",
            w.key.name,
            w.queue,
            w.priority,
            w.pod_sets[0].count,
            w.pod_sets[0].spec.containers[0].requests.get("cpu"),
            w.pod_sets[0].min_count,
            w.active,
            w.version
        ));
        for c in &s.conditions {
            out.push_str(&format!("\n    {}={} {}: {}", c.kind, c.status, c.reason, c.message));
        }
        if let Some(a) = &s.admission {
            out.push_str(&format!("\n    in {} {:?}", a.cluster_queue, a.assignments));
        }
        out.push_str(&format!(
            "\n    checks {:?} requeue {:?} reclaimable {:?} unhealthy {:?}",
            s.admission_checks, s.requeue_state, s.reclaimable, s.unhealthy_nodes
        ));
    }
    out
}
