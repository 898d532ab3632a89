//! Checkers: what must hold whatever happens, recounted from the API model after every step, without the engine's own
//! arithmetic.

mod autoscaling;
mod calendar;
mod checks;
mod decisions;
mod dependencies;
mod devices;
pub mod explanations;
mod pods;
mod preemptions;
pub mod quota;
mod releases;
mod slices;
mod stops;
mod variants;
mod waiting;
mod windows;
mod workload;

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use plimsoll_state::{Duration, Time};

use crate::api::{Change, Kind, Name, name_of, text};
use crate::scenario::Scenario;
use crate::scenario::extensions::refuses;
use autoscaling::Requests;
use checks::Checks;
use decisions::Decisions;
use dependencies::Dependencies;
use devices::Devices;
use pods::Pods;
use preemptions::Preemptions;
use quota::{Books, Quotas, Usage};
use releases::Releases;
use stops::Stops;
use variants::Variants;
use waiting::Waiting;
pub use workload::Held;

/// How long the writes that move workloads away from a changed node may take.
const MOVES: Duration = Duration::from_seconds(30);

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Nothing uses more than it may.
    Quota,
    /// No workload gets a second reservation while it has one.
    AdmittedTwice,
    /// No workload is admitted with half of what admission needs.
    AdmittedWhole,
    /// No workload is admitted before the checks of its ClusterQueue are ready.
    Unchecked,
    /// The cluster autoscaler is not asked twice for the same workload.
    AskedTwice,
    /// No workload gets quota before its dependencies are met.
    Dependencies,
    /// No workload gets quota outside of its run windows, nor runs on there.
    OutsideWindow,
    /// No pod is bound to a node that the extender refuses for it.
    Refused,
    /// No device is in two claims, and pods are bound where their claims can be used.
    Devices,
    /// No more pods run than their workload holds quota for.
    PodsWithoutQuota,
    /// No job is stopped while its workload may run.
    Stopped,
    /// The engine's books and the statuses say what the objects say.
    Usage,
    /// Each node and each tree belongs to one leader at a time, and trees of cohorts use no more than they have with their loans.
    Shards,
    /// What workloads and pods say of why they wait is true, once the faults have ended and nothing changes.
    Explanations,
    /// What can run runs within a bound, once the faults have ended.
    Liveness,
    /// Nothing waits longer than the scenario says, and no pod of an admitted workload waits for a node.
    Waiting,
    /// A run comes to its end.
    Endless,
    /// The product does not panic, and its own checks hold.
    Panic,
}

/// A rule was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// How.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.message)
    }
}

impl Violation {
    /// A rule was broken.
    pub const fn new(rule: Rule, message: String) -> Self {
        Self { rule, message }
    }
}

/// Quotas and windows as the process has seen them, from a time on.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Since when.
    pub at: Time,
    /// What.
    pub quotas: Rc<Quotas>,
}

/// The checkers.
#[derive(Debug, Default)]
pub struct Checkers {
    /// What each workload holds.
    held: BTreeMap<Name, Held>,
    /// When that was decided.
    decisions: Decisions,
    /// The quotas of the API.
    quotas: Quotas,
    /// What is used.
    usage: Usage,
    pods: Pods,
    checks: Checks,
    requests: Requests,
    waiting: Waiting,
    preemptions: Preemptions,
    dependencies: Dependencies,
    devices: Devices,
    jobs: slices::Jobs,
    stops: Stops,
    releases: Releases,
    variants: Variants,
    /// Whether pods need the extender's consent.
    extended: bool,
    /// Whether nodes are kept for pods to come (joint admission).
    joint: bool,
    /// How many explanations were compared.
    explanations: usize,
    /// Whether workloads wait for the pods of others (`waitForPodsReady.blockAdmission`).
    blocks: bool,
    /// When nodes have changed.
    nodes: BTreeMap<String, Time>,
    /// Whether the cluster is divided among two leaders, and quotas stay as they are.
    sharded: bool,
}

impl Checkers {
    /// Checkers for a scenario that begins at this time.
    pub fn new(scenario: &Scenario, start: Time) -> Self {
        let settings = &scenario.settings;
        let extended = settings.extender.is_some_and(|e| !e.ignorable);
        let mut releases = Releases::new(settings);
        if scenario.is_calm() {
            releases.calm(start);
        }
        Self {
            extended,
            joint: settings.joint,
            blocks: settings.block_admission,
            sharded: settings.shards,
            releases,
            ..Self::default()
        }
    }

    /// From now on nothing goes wrong.
    pub fn calm(&mut self, now: Time) {
        self.releases.calm(now);
    }

    /// An object has changed. `decided`: quotas that the process has known since it decided on this change, where it
    /// gives quota away.
    ///
    /// # Errors
    /// The rule that was broken.
    pub fn changed(
        &mut self,
        kind: Kind,
        change: &Change,
        decided: Option<&[Seen]>,
        now: Time,
    ) -> Result<(), Violation> {
        let name = name_of(&change.object);
        let object = (!change.deleted).then_some(&*change.object);
        self.quotas.know(kind, &name.1, object);
        if kind == Kind::Node {
            self.nodes.insert(name.1.clone(), now);
        }
        if kind == Kind::ClusterQueue {
            self.checks.know(&name.1, object);
        }
        if kind == Kind::AdmissionCheck {
            self.requests.know_check(object);
        }
        if kind == Kind::ProvisioningRequest {
            return self.requests.changed(&name.1, &change.object, change.deleted, now);
        }
        if kind == Kind::Job {
            self.jobs.know(&change.object, change.deleted);
            self.stops.changed(&change.object, change.deleted, &self.held)?;
        }
        if kind == Kind::ResourceClaim {
            return self.devices.claim_changed(&name, object, now);
        }
        if kind == Kind::Pod {
            return self.pod_changed(&name, object, decided, now);
        }
        if kind == Kind::QuotaLoan {
            return self.over_committed(&name.1);
        }
        if kind != Kind::Workload {
            return Ok(());
        }
        self.preemptions.changed(&name, &change.object, change.deleted, now);
        if let Some(object) = object {
            self.waiting.changed(&name, object, now);
        }
        let bound = self.usage.bound.clone();
        let before = std::mem::replace(&mut self.usage, Usage { bound, ..Usage::default() });
        let new = object.map(Held::read).unwrap_or_default();
        let old = self.held.insert(name.clone(), new).unwrap_or_default();
        if change.deleted {
            self.held.remove(&name);
            self.decisions.forget(&name);
            self.requests.gone(old.uid());
        }
        slices::add(self.held.values(), &mut self.usage);
        let gone = Held::default();
        self.dependencies.changed(&name, object, &old, self.held.get(&name).unwrap_or(&gone))?;
        if let Some(new) = self.held.get(&name) {
            if new.is_assigned() && !old.is_assigned() {
                windows::check_start(&name.1, new, decided.unwrap_or_default())?;
            }
            new.check_change(&name.1, &old)?;
            self.variants.changed(&old, new, &self.held)?;
            self.releases.compare(&name, &old, new, &self.pods, now)?;
            let asks = self.checks.compare(&name.1, &old, new)?;
            self.requests.compare(&name.1, &old, new, asks)?;
            if let Some(decided) = decided {
                self.decisions.landed(&name, decided);
                let exceeded = self.within(&name.1, &before, decided, now);
                if !self.decisions.are_right(&name, &self.held, decided) {
                    exceeded?;
                }
            }
        }
        self.variants.compare(&self.held, now)?;
        self.over_committed(&name.1)?;
        self.pods.compare(&self.held, &self.jobs, now)
    }

    /// With the loans that the API shows as granted, no tree uses more than it has, with any leader and any delay.
    fn over_committed(&self, changed: &str) -> Result<(), Violation> {
        match self.quotas.over_committed(&self.usage).filter(|_| self.sharded) {
            None => Ok(()),
            Some((what, over)) => {
                let message =
                    format!("{changed} has changed, and {what} uses {over} CPUs too much: {:?}", self.usage);
                Err(Violation::new(Rule::Shards, message))
            }
        }
    }

    /// What has to be told to stop was, some time after the faults have ended.
    ///
    /// # Errors
    /// The rule that was broken.
    pub fn overdue(&self, calm: Time, now: Time) -> Result<(), Violation> {
        self.requests.overdue(calm, now)?;
        self.devices.overdue(calm, now)?;
        let held = self.held.iter().map(|(name, held)| (name.1.as_str(), held));
        windows::check_ends(held, &self.quotas.windows, calm, now)
    }

    fn pod_changed(
        &mut self,
        name: &Name,
        object: Option<&serde_json::Value>,
        decided: Option<&[Seen]>,
        now: Time,
    ) -> Result<(), Violation> {
        if let Some(object) = object.filter(|_| self.extended) {
            let node = text(object, &["spec", "nodeName"]);
            if refuses(&name.1, node) {
                let message = format!("{} is on {node}, which the extender refuses", name.1);
                return Err(Violation::new(Rule::Refused, message));
            }
        }
        self.devices.pod_changed(name, object, now)?;
        let before = self.usage.clone();
        self.pods.changed(name, object, now);
        self.usage.bound = self.pods.on_nodes();
        self.pods.compare(&self.held, &self.jobs, now)?;
        match decided {
            Some(decided) => self.within(&name.1, &before, decided, now),
            None => Ok(()),
        }
    }

    /// Whether what is used fits into quotas that the process knew when it decided, or later: what was used too much
    /// before may not have grown.
    fn within(&self, name: &str, before: &Usage, decided: &[Seen], now: Time) -> Result<(), Violation> {
        // The place of a workload that moves away from a changed node is free once the engine has decided on that.
        // The new leader of a node may not have seen yet which pods the one before it has bound there: its kubelet refuses them.
        let moving = |(kind, node, what): &(&str, String, String)| {
            *kind == "Node"
                && (what == "topology" || self.sharded)
                && self.nodes.get(node).is_some_and(|at| now.since(*at) < MOVES)
        };
        // By node of the tree: other workloads were decided with other quotas of the same time.
        let mut over: Option<quota::Excess> = None;
        let mut last: Option<&Rc<Quotas>> = None;
        for Seen { quotas, .. } in decided {
            if last.replace(quotas).is_some_and(|last| Rc::ptr_eq(last, quotas)) {
                continue;
            }
            let old = quotas.excess(before);
            let was = |what: &(&str, String, String)| old.get(what).copied().unwrap_or(0).max(0);
            let mut excess = quotas.excess(&self.usage);
            excess.retain(|what, over| *over > was(what) && over.is_positive() && !moving(what));
            match &mut over {
                None => over = Some(excess),
                Some(over) => over.retain(|what, _| excess.contains_key(what)),
            }
        }
        match over.unwrap_or_default().first_key_value() {
            None => Ok(()),
            Some((what, over)) => {
                let used = &self.usage;
                let message =
                    format!("{name} got quota or a node, and {what:?} uses {over} CPUs too much: {used:?}");
                Err(Violation::new(Rule::Quota, message))
            }
        }
    }

    /// Quota and usage, by node of the quota tree and flavor.
    pub fn books(&self) -> Books {
        self.quotas.books(&self.usage)
    }

    /// What a ClusterQueue borrows of a flavor.
    pub fn borrowed(&self, queue: &str, flavor: &str) -> i64 {
        self.quotas.borrowed(&self.usage, queue, flavor)
    }

    /// How long workloads have waited for nodes at most, by priority.
    pub const fn waited_for_nodes(&self) -> &BTreeMap<i64, Duration> {
        self.waiting.longest()
    }

    /// How many workloads were preempted, and the longest wait of one that others were preempted for.
    pub fn preemptions(&self, now: Time) -> (usize, Duration) {
        (self.preemptions.count(), self.preemptions.longest(now))
    }

    /// How many variants were evicted for a sibling.
    pub const fn migrations(&self) -> usize {
        self.variants.migrations()
    }

    /// How many pods the scheduler once had no node for.
    pub fn unschedulable(&self) -> usize {
        self.pods.unschedulable()
    }

    /// What is used.
    pub const fn usage(&self) -> &Usage {
        &self.usage
    }

    /// What a workload holds.
    pub fn held(&self, name: &Name) -> Option<&Held> {
        self.held.get(name)
    }
}

#[cfg(test)]
mod tests;
