//! Concurrent admission: no more than one variant of a workload is admitted, and it is charged as long as pods run.

use std::collections::BTreeMap;

use plimsoll_state::{Duration, Time};

use super::{Held, Rule, Violation};
use crate::api::Name;

/// How long two variants may be admitted: one is about to be deactivated.
const GRACE: Duration = Duration::from_seconds(600);

/// What is known of variants.
#[derive(Debug, Default)]
pub struct Variants {
    /// Parents of which more than one variant is admitted, and since when.
    twice: BTreeMap<String, Time>,
    migrations: usize,
}

impl Variants {
    /// How many variants were evicted for a sibling.
    pub const fn migrations(&self) -> usize {
        self.migrations
    }

    /// A workload has changed from `old` to `new`.
    ///
    /// # Errors
    /// When a variant gave its quota back while its parent has what it held: pods may run for which nothing is charged.
    pub fn changed(&mut self, old: &Held, new: &Held, held: &BTreeMap<Name, Held>) -> Result<(), Violation> {
        self.migrations += usize::from(new.migrates && !old.migrates);
        // What is deactivated holds nothing; the end of a parent is that of its variants.
        let ended = old.uid() == new.uid() && old.counts() && !new.counts() && new.waits() && new.is_active;
        let runs = |p: &&Held| p.is_parent && p.runs_on() && old.is_charged_for(p);
        match held.values().find(runs).filter(|_| ended) {
            Some(parent) => {
                let message =
                    format!("a variant of {} gave its quota back, and it runs: {old:?}", parent.uid());
                Err(Violation::new(Rule::PodsWithoutQuota, message))
            }
            None => Ok(()),
        }
    }

    /// Compares the variants of each parent. A write whose answer is lost, or that comes late, may admit a second one, which
    /// is deactivated then.
    ///
    /// # Errors
    /// When two have been admitted for longer than that takes.
    pub fn compare(&mut self, held: &BTreeMap<Name, Held>, now: Time) -> Result<(), Violation> {
        let mut admitted: BTreeMap<&str, usize> = BTreeMap::new();
        for variant in held.values().filter(|h| !h.variant_of.is_empty() && h.runs()) {
            *admitted.entry(&variant.variant_of).or_insert(0) += 1;
        }
        let mut twice = BTreeMap::new();
        for (parent, count) in admitted.into_iter().filter(|(_, count)| *count > 1) {
            let since = self.twice.get(parent).copied().unwrap_or(now);
            if now.since(since) > GRACE {
                let message = format!("{count} variants of {parent} are admitted, since {since:?}");
                return Err(Violation::new(Rule::AdmittedTwice, message));
            }
            twice.insert(parent.to_owned(), since);
        }
        self.twice = twice;
        Ok(())
    }
}

/// Whether the pods of a workload are charged for: those of a parent to a variant that holds the same.
pub fn are_charged(own: &Held, held: &BTreeMap<Name, Held>) -> bool {
    !own.is_parent || held.values().any(|variant| variant.is_charged_for(own))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn workload(name: &str, flavor: &str, words: &[&str]) -> (Name, Held) {
        let condition = |kind: &str| json!({"type": kind, "status": "True"});
        let mut conditions = vec![condition("QuotaReserved")];
        conditions.extend(words.iter().filter(|w| w.starts_with(char::is_uppercase)).map(|w| condition(w)));
        let podset =
            json!({"name": "main", "count": 2, "flavors": {"cpu": flavor}, "resourceUsage": {"cpu": "2"}});
        let mut object = json!({
            "metadata": {"uid": name},
            "spec": {"podSets": [{"name": "main", "count": 2}], "active": !words.contains(&"inactive")},
            "status": {"conditions": conditions, "admission": {"clusterQueue": "c", "podSetAssignments": [podset]}},
        });
        if name == "p" {
            object["metadata"]["labels"] = json!({plimsoll_api::kueue::variants::PARENT: "true"});
        } else {
            object["metadata"]["ownerReferences"] = json!([{"kind": "Workload", "apiVersion": "kueue.x-k8s.io/v1beta2", "name": "p", "uid": "p"}]);
        }
        assert_ne!(object["spec"]["podSets"], Value::Null);
        (("ns".to_owned(), name.to_owned()), Held::read(&object))
    }

    #[test]
    fn a_parent_is_charged_to_the_variant_that_holds_the_same() {
        let charged = |variants: Vec<(Name, Held)>| {
            let parent = workload("p", "f0", &["Admitted"]);
            let held: BTreeMap<Name, Held> = variants.into_iter().chain([parent.clone()]).collect();
            are_charged(&parent.1, &held)
        };
        assert!(charged(vec![workload("a", "f0", &["Admitted"])]));
        assert!(charged(vec![workload("a", "f0", &["Admitted", "Evicted"])]), "until the pods have stopped");
        assert!(!charged(vec![workload("a", "f1", &["Admitted"])]));
        assert!(!charged(vec![workload("a", "f0", &["Admitted", "inactive"])]));
        assert!(!charged(Vec::new()));
    }

    #[test]
    fn a_variant_keeps_its_quota_while_its_parent_runs() {
        let (_, old) = workload("a", "f0", &["Admitted", "Evicted"]);
        let released = Held::read(&json!({"metadata": {"uid": "a"}, "spec": {"active": true}}));
        let check = |parent: &[&str]| {
            let held: BTreeMap<Name, Held> = [workload("p", "f0", parent)].into();
            Variants::default().changed(&old, &released, &held).is_ok()
        };
        assert!(!check(&["Admitted"]) && !check(&["Admitted", "Evicted"]));
        assert!(check(&["Admitted", "inactive"]) && check(&["Finished"]));
        assert!(Variants::default().changed(&old, &released, &BTreeMap::new()).is_ok());
    }

    #[test]
    fn two_admitted_variants_are_too_many_after_a_while() {
        let compare = |second: &[&str]| {
            let held: BTreeMap<Name, Held> =
                [workload("a", "f0", &["Admitted"]), workload("b", "f1", second)].into();
            let mut variants = Variants::default();
            let (start, end) = (Time::from_seconds(1), Time::from_seconds(2).plus(GRACE));
            assert!(end.since(start) > Duration::from_seconds(1));
            variants.compare(&held, start).and_then(|()| variants.compare(&held, end)).is_ok()
        };
        assert!(!compare(&["Admitted"]));
        assert!(compare(&["Admitted", "Evicted"]) && compare(&[]) && compare(&["Admitted", "inactive"]));
    }
}
