//! What joint admission has reserved on nodes, and what workloads that wait claim.

use plimsoll_queueing::{MetricFamily, MetricKind, MetricSample, MetricValue, Queueing};
use plimsoll_scheduler::Scheduler;

/// Gauges of the reservations that no pod has consumed yet, and of the claims of workloads that wait for nodes.
pub fn families(scheduler: &Scheduler, queueing: Option<&Queueing>) -> Vec<MetricFamily> {
    let (places, workloads, since) = scheduler.reserved_places();
    let (claimed, claiming, oldest) = queueing.map(Queueing::claimed_places).unwrap_or_default();
    let gauge = |name, help, value: Option<f64>| {
        let sample = |value| MetricSample::new(Vec::new(), MetricValue::Number(value));
        MetricFamily { name, help, kind: MetricKind::Gauge, samples: value.map(sample).into_iter().collect() }
    };
    vec![
        gauge(
            "plimsoll_node_reservations",
            "Places on nodes that are reserved for pods of admitted workloads to come",
            Some(places as f64),
        ),
        gauge(
            "plimsoll_node_reservations_oldest_timestamp_seconds",
            "When the oldest of them was made",
            since.map(|t| t.0 as f64 / 1e9),
        ),
        gauge(
            "plimsoll_node_reserving_workloads",
            "Workloads that places on nodes are reserved for",
            Some(workloads as f64),
        ),
        gauge(
            "plimsoll_node_claims",
            "Places on nodes that are claimed for pods of workloads that wait for nodes",
            Some(claimed as f64),
        ),
        gauge(
            "plimsoll_node_claims_oldest_timestamp_seconds",
            "Since when the oldest claim lasts",
            oldest.map(|t| t.0 as f64 / 1e9),
        ),
        gauge(
            "plimsoll_node_claiming_workloads",
            "Workloads that claim places on nodes",
            Some(claiming as f64),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_scheduler::Config;
    use plimsoll_state::ObjectEvent;
    use plimsoll_state::Time;
    use plimsoll_state::model::{Node, Pod, PodSpec, WorkloadKey};

    #[test]
    fn reserved_places_are_counted() {
        let mut scheduler = Scheduler::new(Config::default());
        let show = |scheduler: &Scheduler| {
            let mut out = String::new();
            super::super::text::write(&mut out, &families(scheduler, None), &[]);
            out
        };
        assert!(show(&scheduler).contains("plimsoll_node_reservations 0\n"));
        let mut node = Node { name: "n".into(), uid: "n".into(), ready: true, ..Node::default() };
        node.allocatable.insert("pods".into(), 10);
        let now = Time::from_seconds(1_000);
        scheduler.handle_object(now, &ObjectEvent::NodeUpsert(Box::new(node)));
        let key = WorkloadKey { namespace: "ns".into(), name: "gang".into() };
        let spec = PodSpec { scheduler_name: "default-scheduler".into(), ..PodSpec::default() };
        let pod = Pod { namespace: "ns".into(), pod_set: "main".into(), spec, ..Pod::default() };
        let (run, failure) = scheduler.dry_run(now, &key, &[(pod, 3)]);
        assert_eq!(failure, None);
        let places = scheduler.reserve_nodes(now, &key, &[run]);
        assert_eq!(places.iter().map(|p| (&*p.node, p.pods)).collect::<Vec<_>>(), [("n", 3)]);
        let shown = show(&scheduler);
        for line in [
            "plimsoll_node_reservations 3\n",
            "plimsoll_node_reserving_workloads 1\n",
            "plimsoll_node_reservations_oldest_timestamp_seconds 1000\n",
            "plimsoll_node_claims 0\n",
            "plimsoll_node_claiming_workloads 0\n",
        ] {
            assert!(shown.contains(line), "{line}{shown}");
        }
    }
}
