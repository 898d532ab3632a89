//! Decisions in the order in which they were made. Writes take time, and quotas change meanwhile: two decisions can be right,
//! each with the quotas of its time, and yet exceed every quota that there ever was together.

use std::collections::BTreeMap;

use plimsoll_state::Time;

use super::quota::{Quotas, Usage};
use super::{Held, Seen, slices};
use crate::api::Name;

/// When workloads got the quota that they hold.
#[derive(Debug, Default)]
pub struct Decisions(BTreeMap<Name, Time>);

impl Decisions {
    /// A workload has what was decided for it. `decided`: quotas that were known from that decision on.
    pub fn landed(&mut self, name: &Name, decided: &[Seen]) {
        if let Some(first) = decided.first() {
            self.0.insert(name.clone(), first.at);
        }
    }

    /// A workload is gone.
    pub fn forget(&mut self, name: &Name) {
        self.0.remove(name);
    }

    /// Whether this decision and those after it are right: with what was decided before it, or at the same time, each
    /// workload fits into quotas that were known then, or later.
    pub fn are_right(&self, name: &Name, held: &BTreeMap<Name, Held>, decided: &[Seen]) -> bool {
        let Some(from) = self.0.get(name) else { return true };
        held.iter().filter(|(_, h)| h.counts()).all(|(other, own)| {
            let Some(at) = self.0.get(other).filter(|at| *at >= from) else { return true };
            let before = |n: &Name| self.0.get(n).is_none_or(|t| t <= at);
            let with = total(held.iter().filter(|(n, _)| before(n)));
            let without = total(held.iter().filter(|(n, _)| before(n) && *n != other));
            let known = decided.partition_point(|seen| seen.at <= *at).saturating_sub(1);
            decided.iter().skip(known).any(|seen| fits(&seen.quotas, own, &with, &without))
        })
    }
}

fn total<'a>(held: impl Iterator<Item = (&'a Name, &'a Held)>) -> Usage {
    let mut usage = Usage::default();
    slices::add(held.map(|(_, held)| held), &mut usage);
    usage
}

/// Whether what the workload adds leaves its ClusterQueue, its cohorts and its nodes within what they may use.
fn fits(quotas: &Quotas, own: &Held, with: &Usage, without: &Usage) -> bool {
    let before = quotas.excess(without);
    let more = quotas
        .excess(with)
        .into_iter()
        .filter(|(what, over)| over.is_positive() && *over > before.get(what).copied().unwrap_or(0).max(0));
    more.map(|(what, _)| what).all(|(kind, name, _)| match kind {
        "Node" => false,
        _ => !quotas.above(own.queue()).contains(&name.as_str()),
    })
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use serde_json::{Value, json};

    use super::*;
    use crate::api::Kind;

    fn queue(cohort: &str, nominal: i64) -> Value {
        let cpu = json!({"name": "cpu", "nominalQuota": nominal.to_string()});
        json!({"spec": {"cohortName": cohort, "resourceGroups": [{"flavors": [{"name": "f", "resources": [cpu]}]}]}})
    }

    fn workload(queue: &str, cpus: i64) -> Held {
        let podset = json!({"name": "main", "count": 1, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": cpus.to_string()}});
        Held::read(&json!({
            "spec": {"podSets": [{"name": "main", "count": 1}]},
            "status": {
                "admission": {"clusterQueue": queue, "podSetAssignments": [podset]},
                "conditions": [{"type": "QuotaReserved", "status": "True"}],
            },
        }))
    }

    #[test]
    fn a_queue_that_leaves_its_cohort_between_two_decisions_is_nobodys_fault() {
        let mut quotas = Quotas::default();
        quotas.know(Kind::ClusterQueue, "a", Some(&queue("k", 4)));
        quotas.know(Kind::ClusterQueue, "b", Some(&queue("k", 2)));
        let seen = |second, quotas: &Quotas| Seen {
            at: Time::from_seconds(second),
            quotas: Rc::new(quotas.clone()),
        };
        let together = seen(1, &quotas);
        quotas.know(Kind::ClusterQueue, "b", Some(&queue("other", 2)));
        let apart = seen(2, &quotas);
        let names = ["first", "second"].map(|n| ("ns".to_owned(), n.to_owned()));
        let held: BTreeMap<Name, Held> =
            names.iter().cloned().zip([workload("a", 6), workload("b", 2)]).collect();
        let known = [together, apart];
        // The second one was decided with the quotas of then, or with those of the first.
        for (from, right) in [(1, true), (0, false)] {
            let mut decisions = Decisions::default();
            decisions.landed(&names[1], &known[from..]);
            decisions.landed(&names[0], &known);
            assert_eq!(decisions.are_right(&names[0], &held, &known), right, "{from}");
        }
    }
}
