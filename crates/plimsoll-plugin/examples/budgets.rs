//! Rules about workloads: a namespace may use so many GPUs at once, interactive workloads go first, others are sent to the
//! cheapest flavor, and the workload with the fewest GPUs is preempted first.
//!
//! The configuration has a line for each namespace: its name and how many GPUs a workload of it may request, such as
//! `research 16`. Flavors have their price in the node label `example.com/price`.

use std::collections::BTreeMap;

use plimsoll_plugin::{Flavor, Manifest, Plugin, Ruling, Workload};

plimsoll_plugin::export!(Budgets);

/// The priority class of interactive workloads.
const INTERACTIVE: &str = "interactive";

/// The plugin: GPUs by namespace.
#[derive(Debug)]
pub struct Budgets(BTreeMap<String, i64>);

fn gpus(workload: &Workload) -> i64 {
    workload.requests.first().copied().unwrap_or(0)
}

impl Plugin for Budgets {
    fn configure(text: &str) -> Result<Self, String> {
        let mut budgets = BTreeMap::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let mut words = line.split_whitespace();
            let budget = match (words.next(), words.next(), words.next()) {
                (Some(namespace), Some(gpus), None) => gpus.parse().ok().map(|gpus| (namespace, gpus)),
                _ => None,
            };
            let Some((namespace, gpus)) = budget else {
                return Err(format!("{line:?}: a line has a namespace and a number of GPUs"));
            };
            budgets.insert(namespace.to_owned(), gpus);
        }
        Ok(Self(budgets))
    }

    fn manifest(&self) -> Manifest {
        Manifest::new()
            .rules_workloads()
            .scores_flavors()
            .orders_victims()
            .workload_request("nvidia.com/gpu")
            .flavor_label("example.com/price")
    }

    fn rule(&self, workload: &Workload) -> Ruling {
        let budget = self.0.get(&workload.namespace).filter(|budget| gpus(workload) > **budget);
        Ruling {
            veto: budget.map(|n| format!("a workload of namespace {} may use {n} GPUs", workload.namespace)),
            order: if workload.priority_class == INTERACTIVE { -1 } else { 0 },
            score: 0,
        }
    }

    fn score_flavor(&self, workload: &Workload, flavor: &Flavor) -> i32 {
        let price = flavor.labels.first().and_then(|price| price.as_ref()?.parse::<i32>().ok());
        if workload.priority_class == INTERACTIVE { 0 } else { price.map_or(0, |price| -price) }
    }

    fn victim_order(&self, workload: &Workload) -> i32 {
        i32::try_from(gpus(workload)).unwrap_or(i32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(namespace: &str, priority_class: &str, gpus: i64) -> Workload {
        let (namespace, priority_class) = (namespace.to_owned(), priority_class.to_owned());
        Workload { namespace, priority_class, requests: vec![gpus], ..Workload::default() }
    }

    #[test]
    fn a_namespace_keeps_to_its_budget() {
        let plugin = Budgets::configure("research 16\n\nweb 2\n").unwrap();
        assert_eq!(plugin.rule(&workload("research", "", 16)), Ruling::default());
        assert_eq!(plugin.rule(&workload("other", "", 99)), Ruling::default());
        let veto = plugin.rule(&workload("web", "", 3)).veto;
        assert_eq!(veto.as_deref(), Some("a workload of namespace web may use 2 GPUs"));
        let error = Budgets::configure("web two").map(drop).unwrap_err();
        assert_eq!(error, "\"web two\": a line has a namespace and a number of GPUs");
    }

    #[test]
    fn interactive_workloads_go_first_and_others_where_it_is_cheap() {
        let plugin = Budgets::configure("").unwrap();
        let flavor = |price: &str| Flavor { name: "f".to_owned(), labels: vec![Some(price.to_owned())] };
        let (quick, slow) = (workload("a", "interactive", 1), workload("a", "", 1));
        assert_eq!((plugin.rule(&quick).order, plugin.rule(&slow).order), (-1, 0));
        assert_eq!(plugin.score_flavor(&slow, &flavor("7")), -7);
        assert_eq!(plugin.score_flavor(&slow, &flavor("high")), 0);
        assert_eq!(plugin.score_flavor(&quick, &flavor("7")), 0);
    }

    #[test]
    fn workloads_with_few_gpus_are_preempted_first() {
        let plugin = Budgets::configure("").unwrap();
        assert!(plugin.victim_order(&workload("a", "", 1)) < plugin.victim_order(&workload("a", "", 8)));
    }
}
