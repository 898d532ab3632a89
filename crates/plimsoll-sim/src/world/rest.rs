//! What must hold when nothing is under way, and that everything comes to its end.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use plimsoll_api::shards::{DEFAULT, LABEL, LED_BY};
use plimsoll_queueing::WorkloadKey;
use plimsoll_state::Duration;
use serde_json::Value;

use super::World;
use crate::api::{Api, Change, Kind, deleting, list, name_of, text};
use crate::check::quota::Column;
use crate::check::{Rule, Violation};
use crate::process::Process;
use crate::scenario::shards::planned;

/// What a run may take after the calm, besides the time of all its jobs one after the other.
const BOUND: Duration = Duration::from_seconds(1_200);
/// How long everything has to be quiet at the end.
const QUIET: Duration = Duration::from_seconds(30);

/// Whether one side of a loan counts it otherwise than its phase says: it is granted and ends, its borrower lends as well and returns
/// it, or it may be about to be granted.
fn is_between(loan: &Value, api: &Api) -> bool {
    let tree = |loan: &Value, side: &str| {
        let cohort = text(loan, &["spec", side, "cohort"]).to_owned();
        let parent = api.get(Kind::Cohort, "", &cohort).map_or("", |c| text(c, &["spec", "parentName"]));
        if parent.is_empty() { cohort } else { parent.to_owned() }
    };
    let is_granted = |loan: &Value| text(loan, &["status", "phase"]) == "Granted";
    let lends = |borrower: &str| {
        api.all(Kind::QuotaLoan).any(|other| is_granted(other) && tree(other, "from") == borrower)
    };
    match text(loan, &["status", "phase"]) {
        "Granted" => loan["spec"]["return"] == true || deleting(loan) || lends(&tree(loan, "to")),
        "Returned" => false,
        _ => !list(loan, &["metadata", "finalizers"]).is_empty(),
    }
}

impl World {
    /// The engine's books say what the objects say, once it has seen all of them.
    pub(super) fn compare(&mut self) -> Result<(), Violation> {
        // What borrowers count of a loan that is asked back, and lenders of one that is being granted, no object says.
        let api = &self.network.api;
        if !self.compared[0] && !api.all(Kind::QuotaLoan).any(|loan| is_between(loan, api)) {
            self.compared[0] = true;
            self.leaders.iter().try_for_each(|process| self.compare_books(process))?;
        }
        if let Some(standby) =
            self.standby.as_ref().filter(|s| !self.compared[1] && s.has_caught_up(&self.network))
        {
            self.compare_books(standby)?;
            self.compared[1] = true;
        }
        Ok(())
    }

    fn compare_books(&self, process: &Process) -> Result<(), Violation> {
        let (mut books, mut objects) = (process.books(), self.checkers.books());
        if let Some(division) = process.division() {
            // A tree that is given away in part is in no books as a whole.
            let decides = |name: &str| match self.network.api.get(Kind::ClusterQueue, "", name) {
                Some(_) => division.decides(name),
                None => division.of_cohort(name).decides(division.name()),
            };
            objects.retain(|(name, _), _| decides(name));
            books.retain(|(name, _), _| decides(name));
        }
        for key in books.keys().chain(objects.keys()) {
            let have = books.get(key).copied().unwrap_or_default();
            let want = objects.get(key).copied().unwrap_or_default();
            // The engine counts in thousandths.
            let want = Column { quota: want.quota * 1000, used: want.used * 1000 };
            if have != want {
                let message = format!("the engine has {key:?} with {have:?}, objects say {want:?}");
                return Err(Violation::new(Rule::Usage, message));
            }
        }
        Ok(())
    }

    /// No two leaders decide with one node.
    pub(super) fn check_nodes(&self) -> Result<(), Violation> {
        if self.leaders.len() < 2 {
            return Ok(());
        }
        for node in self.network.api.all(Kind::Node) {
            let name = name_of(node).1;
            let has =
                |process: &&Process| process.division().is_some_and(|division| division.has_node(&name));
            if self.leaders.iter().filter(has).count() > 1 {
                return Err(Violation::new(Rule::Shards, format!("two leaders decide with {name}")));
            }
        }
        Ok(())
    }

    /// The root cohort of a ClusterQueue, which has one in scenarios of shards.
    fn root_of(&self, queue: &Value) -> String {
        let mut root = text(queue, &["spec", "cohortName"]);
        while let Some(cohort) = self.network.api.get(Kind::Cohort, "", root) {
            match text(cohort, &["spec", "parentName"]) {
                "" => break,
                parent => root = parent,
            }
        }
        root.to_owned()
    }

    /// No two leaders admit in one tree.
    pub(super) fn check_trees(&self) -> Result<(), Violation> {
        if self.leaders.len() < 2 {
            return Ok(());
        }
        // The leader of each tree, and a ClusterQueue that it admits in.
        let mut led: BTreeMap<String, (usize, String)> = BTreeMap::new();
        for queue in self.network.api.all(Kind::ClusterQueue) {
            let name = name_of(queue).1;
            let decides =
                |process: &Process| process.division().is_some_and(|division| division.decides(&name));
            for leader in (0..self.leaders.len()).filter(|index| decides(&self.leaders[*index])) {
                match led.entry(self.root_of(queue)) {
                    Entry::Vacant(free) => drop(free.insert((leader, name.clone()))),
                    Entry::Occupied(first) if first.get().0 == leader => {}
                    Entry::Occupied(first) => {
                        let message =
                            format!("two leaders admit in one tree: in {} and in {name}", first.get().1);
                        return Err(Violation::new(Rule::Shards, message));
                    }
                }
            }
        }
        Ok(())
    }

    /// Quota is given by the leader whose name the ClusterQueue has.
    pub(super) fn check_admission(&self, kind: Kind, change: &Change, life: u32) -> Result<(), Violation> {
        let queue = text(&change.object, &["status", "admission", "clusterQueue"]);
        if kind != Kind::Workload || self.leaders.len() < 2 || queue.is_empty() {
            return Ok(());
        }
        let queue = self.network.api.get(Kind::ClusterQueue, "", queue);
        let leads = queue.map_or("", |queue| text(queue, &["metadata", "annotations", LED_BY]));
        let gives = planned(life as usize);
        if leads == gives {
            return Ok(());
        }
        let what = name_of(&change.object).1;
        let message = format!("the leader of {gives} gives quota to {what} in a queue that {leads:?} leads");
        Err(Violation::new(Rule::Shards, message))
    }

    /// Pods are bound to nodes of the shard whose leader binds them.
    pub(super) fn check_binding(&self, kind: Kind, change: &Change, life: u32) -> Result<(), Violation> {
        let node = text(&change.object, &["spec", "nodeName"]);
        if kind != Kind::Pod || self.leaders.len() < 2 || node.is_empty() {
            return Ok(());
        }
        let label = self
            .network
            .api
            .get(Kind::Node, "", node)
            .map_or("", |n| text(n, &["metadata", "labels", LABEL]));
        let (has, binds) = (if label.is_empty() { DEFAULT } else { label }, planned(life as usize));
        if has == binds {
            return Ok(());
        }
        let message =
            format!("the leader of {binds} binds {} to {node}, which {has} has", name_of(&change.object).1);
        Err(Violation::new(Rule::Shards, message))
    }

    /// Whether there is more to come when nothing is under way.
    pub(super) fn rest(&mut self) -> Result<bool, Violation> {
        self.late()?;
        let Some(calm) = self.calm else { return Ok(true) };
        let (version, now) = (self.network.api.version(), self.network.now());
        // What the scheduler of a shard says is about its nodes alone.
        let explains = !self.scenario.settings.shards;
        if explains && self.settled.is_due(version, calm, now) {
            self.checkers.explained(&self.network.api, self.leaders[0].engine().scheduler(), now)?;
        }
        if !self.users.unfinished(&self.network).is_empty() {
            return Ok(true);
        }
        let since = *self.quiet.get_or_insert(self.network.now());
        if self.network.now().since(since) < QUIET {
            return Ok(true);
        }
        // What is left may wait for ever: it says why.
        if explains && !self.settled.is_checked(version) && self.checkers.anything_waits(&self.network.api) {
            return Ok(true);
        }
        self.compare_statuses()?;
        Ok(false)
    }

    /// What has to run has run in time.
    pub(super) fn late(&self) -> Result<(), Violation> {
        let Some(calm) = self.calm else { return Ok(()) };
        self.checkers.overdue(calm, self.network.now())?;
        let longest = self.users.longest().0.saturating_add(BOUND.0);
        if self.network.now().since(calm).0 <= longest {
            return Ok(());
        }
        let left = self.users.unfinished(&self.network);
        if left.is_empty() {
            return Err(Violation::new(Rule::Endless, "nothing is left to run, and there is no rest".into()));
        }
        let show = |w: &std::sync::Arc<Value>| {
            let (namespace, name) = name_of(w);
            let shown = format!("{} {name}", text(w, &["kind"]));
            let key = WorkloadKey { namespace, name };
            let waits = self.leaders.iter().find_map(|process| process.engine().queueing()?.waiting(&key));
            format!("{shown}, deleted {}, {waits:?}: {}", w["metadata"]["deletionTimestamp"], w["status"])
        };
        let all: Vec<String> = left.iter().map(show).collect();
        Err(Violation::new(
            Rule::Liveness,
            format!("{} workloads have not run: {}", left.len(), all.join("; ")),
        ))
    }

    /// Statuses of ClusterQueues say what the objects say.
    fn compare_statuses(&self) -> Result<(), Violation> {
        for queue in self.network.api.all(Kind::ClusterQueue) {
            let name = name_of(queue).1;
            for flavor in list(queue, &["status", "flavorsReservation"]) {
                let flavor_name = text(flavor, &["name"]);
                let row = list(flavor, &["resources"]).first();
                let of = |key: &str| row.map_or("", |r| text(r, &[key])).to_owned();
                let used = self.checkers.usage().of(&name, flavor_name).to_string();
                let borrowed = self.checkers.borrowed(&name, flavor_name).to_string();
                if (of("total"), of("borrowed")) != (used.clone(), borrowed.clone()) {
                    let message = format!(
                        "status of {name}, {flavor_name}: {row:?}, objects say {used}, {borrowed} of them borrowed"
                    );
                    return Err(Violation::new(Rule::Usage, message));
                }
            }
        }
        Ok(())
    }
}
