//! Quotas as the API shows them, and by how much anything exceeds them: Kueue's rules for cohorts, borrowing and
//! lending, from the objects alone (Kueue's documentation, "Cluster Queue": Cohort, BorrowingLimit, LendingLimit;
//! KEP-79 for cohorts of cohorts). CPUs only, in whole numbers.

use std::collections::BTreeMap;

use serde_json::Value;

use super::calendar::Window;
use crate::api::{Kind, list, text};

/// Quota of a flavor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Quota {
    nominal: i64,
    borrowing: Option<i64>,
    lending: Option<i64>,
}

/// A ClusterQueue or a cohort.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    /// Name of its cohort, or empty.
    parent: String,
    /// By flavor.
    quotas: BTreeMap<String, Quota>,
}

/// CPUs that a cohort lends to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Loan {
    from: String,
    to: String,
    flavor: String,
    cpus: i64,
}

impl Loan {
    /// One that is granted, and not returned.
    fn read(object: &Value) -> Option<Self> {
        let row = list(object, &["spec", "resources"]).first()?;
        (object["status"]["phase"] == "Granted").then(|| Self {
            from: text(object, &["spec", "from", "cohort"]).to_owned(),
            to: text(object, &["spec", "to", "cohort"]).to_owned(),
            flavor: text(row, &["flavor"]).to_owned(),
            cpus: cpus(&row["quantity"]).unwrap_or(0),
        })
    }
}

/// Usage: CPUs by ClusterQueue and flavor, and on each node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// By (ClusterQueue, flavor).
    pub queues: BTreeMap<(String, String), i64>,
    /// By the node that a topology assignment names.
    pub nodes: BTreeMap<String, i64>,
    /// By the node that pods are bound to.
    pub bound: BTreeMap<String, i64>,
}

/// What may be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    queues: BTreeMap<String, Node>,
    cohorts: BTreeMap<String, Node>,
    /// CPUs of nodes.
    nodes: BTreeMap<String, i64>,
    /// Quota loans that are granted.
    loans: BTreeMap<String, Loan>,
    /// Run windows.
    pub(super) windows: BTreeMap<String, Window>,
}

/// Quota of a ClusterQueue or a cohort with everything below it, and what is used of it: CPUs of one flavor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// Nominal quota, less what those below do not lend.
    pub quota: i64,
    /// Usage, less what those below use of that.
    pub used: i64,
}

/// All columns, by name of the ClusterQueue or cohort and flavor.
pub type Books = BTreeMap<(String, String), Column>;

/// By how much something exceeds what it may use, by kind, name and flavor; 0 and less: it does not.
pub type Excess = BTreeMap<(&'static str, String, String), i64>;

/// A number of CPUs as the scenario writes it.
fn cpus(value: &Value) -> Option<i64> {
    value.as_str().and_then(|s| s.parse().ok()).or_else(|| value.as_i64())
}

impl Node {
    fn read(object: &Value, parent: &str) -> Self {
        let groups = list(object, &["spec", "resourceGroups"]).iter();
        let flavors = groups.flat_map(|g| list(g, &["flavors"]));
        let quota = |f: &Value| {
            let cpu = list(f, &["resources"]).iter().find(|r| r["name"] == "cpu")?;
            let nominal = cpus(&cpu["nominalQuota"]).unwrap_or(0);
            let quota = Quota {
                nominal,
                borrowing: cpus(&cpu["borrowingLimit"]),
                lending: cpus(&cpu["lendingLimit"]),
            };
            Some((text(f, &["name"]).to_owned(), quota))
        };
        Self {
            parent: text(object, &["spec", parent]).to_owned(),
            quotas: flavors.filter_map(quota).collect(),
        }
    }

    fn quota(&self, flavor: &str) -> Quota {
        self.quotas.get(flavor).copied().unwrap_or_default()
    }
}

impl Quotas {
    /// Takes in an object, or that it is gone.
    pub fn know(&mut self, kind: Kind, name: &str, object: Option<&Value>) {
        match kind {
            Kind::ClusterQueue => set(&mut self.queues, name, object.map(|o| Node::read(o, "cohortName"))),
            Kind::Cohort => set(&mut self.cohorts, name, object.map(|o| Node::read(o, "parentName"))),
            Kind::Node => {
                let allocatable = object.map(|o| cpus(&o["status"]["allocatable"]["cpu"]).unwrap_or(0));
                set(&mut self.nodes, name, allocatable);
            }
            Kind::QuotaLoan => set(&mut self.loans, name, object.and_then(Loan::read)),
            Kind::RunWindow => set(&mut self.windows, name, object.map(Window::read)),
            Kind::Namespace
            | Kind::Pod
            | Kind::Job
            | Kind::Workload
            | Kind::LocalQueue
            | Kind::Flavor
            | Kind::AdmissionCheck
            | Kind::ProvisioningConfig
            | Kind::ProvisioningRequest
            | Kind::PodTemplate
            | Kind::Topology
            | Kind::DeviceClass
            | Kind::ResourceSlice
            | Kind::ClaimTemplate
            | Kind::ResourceClaim
            | Kind::WorkloadPriorityClass => {}
        }
    }

    /// Quota and usage of a cohort with everything below it.
    fn cohort(&self, name: &str, flavor: &str, usage: &Usage, depth: u32) -> (i64, i64) {
        let own = self.cohorts.get(name).map_or(0, |c| c.quota(flavor).nominal);
        // Borrowed quota is the cohort's own, and lent quota is used.
        let loans = || self.loans.values().filter(|l| l.flavor == flavor);
        let borrowed: i64 = loans().filter(|l| l.to == name).map(|l| l.cpus).sum();
        let lent: i64 = loans().filter(|l| l.from == name).map(|l| l.cpus).sum();
        let (mut quota, mut used) = (own + borrowed, lent);
        let mut add = |(q, u): (i64, i64), lending: Option<i64>| {
            let local = lending.map_or(0, |l| (q - l).max(0));
            quota += q - local;
            used += (u - local).max(0);
        };
        for (queue, node) in self.queues.iter().filter(|(_, n)| n.parent == name) {
            let own = node.quota(flavor);
            add((own.nominal, usage.of(queue, flavor)), own.lending);
        }
        // A cycle of cohorts has no quota at all; scenarios make none.
        for (child, node) in self.cohorts.iter().filter(|(_, n)| n.parent == name && depth < 8) {
            add(self.cohort(child, flavor, usage, depth + 1), node.quota(flavor).lending);
        }
        (quota, used)
    }

    /// Every ClusterQueue and cohort, as the engine's quota tree has it.
    pub fn books(&self, usage: &Usage) -> Books {
        let mut out = Books::new();
        for flavor in self.flavors() {
            for (name, queue) in &self.queues {
                let quota = queue.quota(flavor).nominal;
                out.insert((name.clone(), flavor.to_owned()), Column { quota, used: usage.of(name, flavor) });
            }
            for cohort in self.cohort_names() {
                let (quota, used) = self.cohort(cohort, flavor, usage, 0);
                out.insert((cohort.to_owned(), flavor.to_owned()), Column { quota, used });
            }
        }
        out
    }

    /// The first ClusterQueue or cohort that uses more than it may, with what it has lent and borrowed.
    pub fn over_committed(&self, usage: &Usage) -> Option<(String, i64)> {
        let over = |((kind, name, flavor), over): ((&'static str, String, String), i64)| {
            (kind != "Node" && over > 0).then(|| (format!("{kind} {name} of {flavor}"), over))
        };
        self.excess(usage).into_iter().find_map(over)
    }

    /// What a ClusterQueue borrows of a flavor.
    pub fn borrowed(&self, usage: &Usage, queue: &str, flavor: &str) -> i64 {
        let nominal = self.queues.get(queue).map_or(0, |q| q.quota(flavor).nominal);
        (usage.of(queue, flavor) - nominal).max(0)
    }

    fn flavors(&self) -> Vec<&str> {
        let nodes = self.queues.values().chain(self.cohorts.values());
        let mut all: Vec<&str> = nodes.flat_map(|n| n.quotas.keys().map(String::as_str)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Cohorts that are there, or that something names as its own.
    fn cohort_names(&self) -> Vec<&str> {
        let parents = self.queues.values().chain(self.cohorts.values()).map(|n| n.parent.as_str());
        let mut all: Vec<&str> = parents.filter(|p| !p.is_empty()).collect();
        all.extend(self.cohorts.keys().map(String::as_str));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// A ClusterQueue and the cohorts above it.
    pub fn above<'a>(&'a self, queue: &'a str) -> Vec<&'a str> {
        let mut all = vec![queue];
        let mut next = self.queues.get(queue).map_or("", |q| q.parent.as_str());
        while !next.is_empty() && !all.contains(&next) {
            all.push(next);
            next = self.cohorts.get(next).map_or("", |c| c.parent.as_str());
        }
        all
    }

    /// Whether so many CPUs more of a flavor leave a ClusterQueue and its cohorts within what they may use.
    pub fn fits(&self, usage: &Usage, queue: &str, flavor: &str, cpus: i64) -> bool {
        let mut more = usage.clone();
        *more.queues.entry((queue.to_owned(), flavor.to_owned())).or_insert(0) += cpus;
        let before = self.excess(usage);
        let listed = self.queues.get(queue).is_some_and(|q| q.quotas.contains_key(flavor));
        listed && self.excess(&more).iter().all(|(what, over)| *over <= 0 || before.get(what) == Some(over))
    }

    /// By how much anything exceeds what it may use.
    pub fn excess(&self, usage: &Usage) -> Excess {
        let mut out = Excess::new();
        for flavor in self.flavors() {
            for (name, node) in &self.queues {
                let quota = node.quota(flavor);
                let limit = if node.parent.is_empty() { Some(0) } else { quota.borrowing };
                if let Some(limit) = limit {
                    let over = usage.of(name, flavor) - quota.nominal - limit;
                    out.insert(("ClusterQueue", name.clone(), flavor.to_owned()), over);
                }
            }
            for name in self.cohort_names() {
                let (quota, used) = self.cohort(name, flavor, usage, 0);
                let node = self.cohorts.get(name).filter(|n| !n.parent.is_empty());
                let limit = node.map_or(Some(0), |n| n.quota(flavor).borrowing);
                if let Some(limit) = limit {
                    out.insert(("Cohort", name.to_owned(), flavor.to_owned()), used - quota - limit);
                }
            }
        }
        for (what, on_nodes) in [("topology", &usage.nodes), ("pods", &usage.bound)] {
            for (node, used) in on_nodes {
                let cpus = self.nodes.get(node).copied().unwrap_or(0);
                out.insert(("Node", node.clone(), what.to_owned()), used - cpus);
            }
        }
        out
    }
}

impl Usage {
    /// CPUs that a ClusterQueue uses of a flavor.
    pub fn of(&self, queue: &str, flavor: &str) -> i64 {
        self.queues.get(&(queue.to_owned(), flavor.to_owned())).copied().unwrap_or(0)
    }
}

fn set<T>(table: &mut BTreeMap<String, T>, name: &str, value: Option<T>) {
    match value {
        Some(value) => drop(table.insert(name.to_owned(), value)),
        None => drop(table.remove(name)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn queue(cohort: &str, nominal: i64, lending: Option<i64>) -> Value {
        let mut cpu = json!({"name": "cpu", "nominalQuota": nominal.to_string()});
        if let Some(lending) = lending {
            cpu["lendingLimit"] = json!(lending.to_string());
        }
        let flavors = json!([{"name": "f", "resources": [cpu]}]);
        json!({"spec": {"cohortName": cohort, "resourceGroups": [{"flavors": flavors}]}})
    }

    #[test]
    fn what_a_queue_does_not_lend_is_no_part_of_its_cohort() {
        let mut quotas = Quotas::default();
        quotas.know(Kind::ClusterQueue, "a", Some(&queue("k", 4, Some(1))));
        quotas.know(Kind::ClusterQueue, "b", Some(&queue("k", 2, None)));
        let usage = |a: i64, b: i64| Usage {
            queues: [(("a".into(), "f".into()), a), (("b".into(), "f".into()), b)].into(),
            ..Usage::default()
        };
        let over = |a, b| quotas.excess(&usage(a, b))[&("Cohort", "k".to_owned(), "f".to_owned())];
        assert_eq!((over(3, 3), over(0, 3), over(0, 4), over(4, 2)), (0, 0, 1, 0));
        quotas.know(Kind::ClusterQueue, "b", Some(&queue("", 2, None)));
        let alone = |b| quotas.excess(&usage(0, b))[&("ClusterQueue", "b".to_owned(), "f".to_owned())];
        assert_eq!((alone(2), alone(3)), (0, 1));
        quotas.know(Kind::ClusterQueue, "b", Some(&queue("k", 2, None)));
        let fits = |cpus| quotas.fits(&usage(3, 1), "b", "f", cpus);
        assert_eq!((fits(2), fits(3)), (true, false));
    }
}
