//! What the scheduling queue and preemption count (kube-scheduler's `pkg/scheduler/metrics/metrics.go`).

use plimsoll_queueing::{MetricFamily, MetricKind, MetricSample, MetricValue};
use plimsoll_scheduler::Scheduler;

/// The families, sorted by name.
pub fn families(scheduler: &Scheduler) -> Vec<MetricFamily> {
    let number = |labels, n: u64| MetricSample::new(labels, MetricValue::Number(n as f64));
    let attempts = number(Vec::new(), scheduler.preemption_attempts());
    let incoming = scheduler
        .incoming_pods()
        .map(|(queue, event, n)| number(vec![("event", event), ("queue", queue.to_owned())], n));
    let unschedulable = scheduler
        .unschedulable_pods()
        .into_iter()
        .map(|(plugin, profile, n)| number(vec![("plugin", plugin), ("profile", profile)], n));
    vec![
        MetricFamily {
            name: "scheduler_preemption_attempts_total",
            help: "Attempts to make room by preemption",
            kind: MetricKind::Counter,
            samples: vec![attempts],
        },
        MetricFamily {
            name: "scheduler_queue_incoming_pods_total",
            help: "Pods that came into a part of the queue, by cause",
            kind: MetricKind::Counter,
            samples: incoming.collect(),
        },
        MetricFamily {
            name: "scheduler_unschedulable_pods",
            help: "Pods that wait, by each plugin that has rejected them or keeps them out",
            kind: MetricKind::Gauge,
            samples: unschedulable.collect(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use plimsoll_scheduler::Config;
    use plimsoll_state::model::{Node, Pod, PodSpec};
    use plimsoll_state::{ObjectEvent, Time};

    use super::*;

    #[test]
    fn pods_are_counted_by_queue_event_and_plugin() {
        let mut scheduler = Scheduler::new(Config::default());
        let now = Time::from_seconds(1_000);
        let node = Node { name: "n".into(), uid: "n".into(), ready: true, ..Node::default() };
        scheduler.handle_object(now, &ObjectEvent::NodeUpsert(Box::new(node)));
        for (uid, gates) in [("gated", vec!["g".to_owned()]), ("large", Vec::new())] {
            let spec = PodSpec {
                scheduler_name: "default-scheduler".into(),
                scheduling_gates: gates,
                ..PodSpec::default()
            };
            let pod =
                Pod { namespace: "ns".into(), name: uid.into(), uid: uid.into(), spec, ..Pod::default() };
            scheduler.handle_object(now, &ObjectEvent::PodUpsert(Box::new(pod)));
        }
        scheduler.decide(now, &mut |_| {});
        let mut out = String::new();
        super::super::text::write(&mut out, &families(&scheduler), &[]);
        let incoming = "scheduler_queue_incoming_pods_total";
        let rejected = "scheduler_unschedulable_pods";
        for want in [
            "scheduler_preemption_attempts_total 1\n".to_owned(),
            format!("{incoming}{{event=\"UnschedulablePodAdd\",queue=\"active\"}} 1\n"),
            format!("{incoming}{{event=\"UnschedulablePodAdd\",queue=\"unschedulable\"}} 1\n"),
            format!("{incoming}{{event=\"ScheduleAttemptFailure\",queue=\"unschedulable\"}} 1\n"),
            format!("# TYPE {rejected} gauge\n"),
            format!("{rejected}{{plugin=\"NodeResourcesFit\",profile=\"default-scheduler\"}} 1\n"),
            format!("{rejected}{{plugin=\"SchedulingGates\",profile=\"default-scheduler\"}} 1\n"),
        ] {
            assert!(out.contains(&want), "{want} not in\n{out}");
        }
    }
}
